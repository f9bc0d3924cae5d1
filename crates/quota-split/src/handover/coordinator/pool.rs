//! Parts of limits that nobody holds, and who wants them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::Limited;

/// Wants and recalls of counters that are lent, by counter and column.
///
/// The pool itself is no figure of its own: it is the budget less what the ledger says is held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Pool {
    wants: BTreeMap<(u32, usize), Want>,
    recalls: BTreeMap<(u32, usize), Sent>,
    used: BTreeMap<(u32, usize), u32>,
    /// When wants and recalls are over, those of recalls with `true`.
    due: BTreeSet<(Instant, u32, usize, bool)>,
    heard_at: BTreeMap<u32, Instant>,
    /// The same in the order of time.
    heard: BTreeSet<(Instant, u32)>,
    changed: BTreeSet<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Want {
    goal: u32,
    /// Calls wait for it until then.
    until: Option<Instant>,
    /// Everybody was asked for it, whether they were known to have room or not.
    polled: bool,
    /// Its member knows that there is nothing at the moment.
    told: bool,
}

/// A recall that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Sent {
    amount: u32,
    drain: bool,
    until: Instant,
}

impl Pool {
    /// Notes that a member wants to hold `goal` of a counter.
    pub(super) fn want(
        &mut self,
        now: Instant,
        counter: u32,
        column: usize,
        goal: u32,
        until: Option<Instant>,
    ) {
        self.hear(now, counter);
        let mut want = Want { goal, until, polled: false, told: false };
        // Calls that wait go on waiting, whatever a tick asks for besides.
        if let Some(waiting) = self.wants.get(&(counter, column)).filter(|_| until.is_none())
            && waiting.until.is_some()
        {
            want = Want { goal: goal.max(waiting.goal), ..*waiting };
        }
        self.forget_want(counter, column);
        self.due.extend(want.until.map(|until| (until, counter, column, false)));
        self.wants.insert((counter, column), want);
    }

    /// Notes what a member uses of a counter, lent or not.
    pub(super) fn uses(&mut self, counter: u32, column: usize, used: u32) {
        self.changed.insert(counter);
        self.used.insert((counter, column), used);
    }

    /// Whether there is anything to look at from time to time.
    pub(super) fn is_used(&self) -> bool {
        !self.heard_at.is_empty() || !self.changed.is_empty()
    }

    /// Notes that a member has reported a counter that is lent.
    pub(super) fn heard(&mut self, now: Instant, counter: u32, column: usize) {
        self.hear(now, counter);
        if let Some(sent) = self.recalls.get(&(counter, column)).filter(|sent| !sent.drain) {
            self.due.remove(&(sent.until, counter, column, true));
            self.recalls.remove(&(counter, column));
        }
    }

    /// Gives what is free: to calls that wait, then to those below their targets, then to whoever
    /// has the least room. Returns who got something.
    pub(super) fn give(
        &mut self,
        counter: u32,
        row: &mut [u32],
        targets: &[u32],
        budget: u32,
    ) -> BTreeSet<usize> {
        let mut free = budget.saturating_sub(super::round::sum(row));
        let mut given = BTreeSet::new();
        let mut wants = self.wants_of(counter);
        wants.sort_by_key(|&(column, want)| {
            let above = targets[column] <= row[column];
            (want.until.is_none(), above, self.room(counter, column, row), column)
        });
        for (column, want) in wants {
            let part = want.goal.saturating_sub(row[column]).min(free);
            if 0 < part {
                row[column] += part;
                free -= part;
                given.insert(column);
            }
            let owed = self.owed(counter, column, want, row, targets);
            if want.goal <= row[column] || want.until.is_none() && owed == 0 {
                self.forget_want(counter, column);
            }
        }
        given
    }

    /// Returns whose caps are to shrink to what, and whether below what they use: for calls that wait
    /// from the two with the most room; and where nobody has any, for owners of a part from those
    /// above theirs.
    pub(super) fn recall(
        &mut self,
        until: Instant,
        counter: u32,
        limited: &Limited,
        row: &[u32],
        targets: &[u32],
        busy: &[bool],
    ) -> Vec<(usize, u32, bool)> {
        let wants = self.wants_of(counter);
        let waits =
            |column| wants.iter().any(|&(other, want)| other == column && want.until.is_some());
        let may = |column: &usize| {
            let asked = self.recalls.contains_key(&(counter, *column));
            !busy[*column] && !asked && !waits(*column)
        };
        let mut donors: Vec<usize> = (0..row.len()).filter(may).collect();
        let mut sent = Vec::new();
        let waiting = wants.iter().filter(|(_, want)| want.until.is_some());
        let missing = waiting.map(|&(column, want)| want.goal.saturating_sub(row[column]));
        let missing = missing.fold(0, u32::saturating_add);
        let missing = missing.saturating_sub(self.under_way(counter, false));
        let spare = |column: usize| {
            let used = self.used.get(&(counter, column)).copied().unwrap_or(0);
            row[column].saturating_sub(limited.kept(used, targets[column]))
        };
        donors.sort_by_key(|&column| std::cmp::Reverse(spare(column)));
        // What is known of their use may be a tick old, so one alone may have nothing to give.
        for &column in donors.iter().take(2) {
            let amount = spare(column).min(missing);
            if 0 < amount {
                sent.push((column, amount, false));
            }
        }
        // Nobody is known to have room: whoever's call ends next gives the unit that it frees.
        let unpolled = wants.iter().any(|(_, want)| want.until.is_some() && !want.polled);
        if sent.is_empty() && 0 < missing && unpolled {
            let used = donors.iter().filter(|column| 0 < row[**column]);
            sent.extend(used.map(|&column| (column, 1, false)));
            for (_, want) in self.wants.range_mut(range(counter)) {
                want.polled |= want.until.is_some();
            }
        }
        if sent.is_empty() && self.under_way(counter, false) == 0 {
            let owed =
                |&(column, want): &(usize, Want)| self.owed(counter, column, want, row, targets);
            let mut owed = wants.iter().map(owed).fold(0, u32::saturating_add);
            owed = owed.saturating_sub(self.under_way(counter, true));
            donors.sort_unstable();
            for column in donors {
                let amount = row[column].saturating_sub(targets[column]).min(owed);
                if 0 < amount {
                    owed -= amount;
                    sent.push((column, amount, true));
                }
            }
        }
        for &(column, amount, drain) in &sent {
            self.recalls.insert((counter, column), Sent { amount, drain, until });
            self.due.insert((until, counter, column, true));
        }
        sent.into_iter()
            .map(|(column, amount, drain)| (column, row[column] - amount, drain))
            .collect()
    }

    /// Returns whose waiting calls wait for others to end, each once.
    pub(super) fn exhausted(&mut self, counter: u32) -> Vec<usize> {
        if 0 < self.under_way(counter, false) {
            return Vec::new();
        }
        let wants = self.wants.range_mut(range(counter));
        let untold = wants.filter(|(_, want)| want.until.is_some() && !want.told);
        untold
            .map(|((_, column), want)| {
                want.told = true;
                *column
            })
            .collect()
    }

    /// Forgets recalls and waiting calls whose time is over, and returns their counters.
    pub(super) fn expire(&mut self, now: Instant) -> BTreeSet<u32> {
        let mut counters = BTreeSet::new();
        while let Some(due) = self.due.first().copied().filter(|(until, ..)| *until <= now) {
            let (_, counter, column, recall) = due;
            self.due.remove(&due);
            counters.insert(counter);
            if recall {
                self.recalls.remove(&(counter, column));
            } else {
                self.wants.remove(&(counter, column));
            }
        }
        counters
    }

    /// Returns the counters of which nothing was heard for so long, once.
    pub(super) fn idle(&mut self, now: Instant, after: Duration) -> BTreeSet<u32> {
        let mut idle = BTreeSet::new();
        while let Some(&(at, counter)) = self.heard.first().filter(|(at, _)| *at + after <= now) {
            self.heard.remove(&(at, counter));
            self.heard_at.remove(&counter);
            idle.insert(counter);
        }
        idle
    }

    /// Returns the counters whose use changed since the last time.
    pub(super) fn take_changed(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.changed)
    }

    /// Returns what all but one member were last known to use.
    pub(super) fn used_by_others(&self, counter: u32, column: usize) -> u32 {
        let others = self.used.range(range(counter)).filter(|((_, other), _)| *other != column);
        others.map(|(_, used)| *used).fold(0, u32::saturating_add)
    }

    /// Returns when the next recall or want ends.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due.first().map(|(until, ..)| *until)
    }

    fn hear(&mut self, now: Instant, counter: u32) {
        if let Some(before) = self.heard_at.insert(counter, now) {
            self.heard.remove(&(before, counter));
        }
        self.heard.insert((now, counter));
    }

    fn forget_want(&mut self, counter: u32, column: usize) {
        let want = self.wants.remove(&(counter, column));
        if let Some(until) = want.and_then(|want| want.until) {
            self.due.remove(&(until, counter, column, false));
        }
    }

    /// Returns how many calls more a member can take, as far as is known.
    fn room(&self, counter: u32, column: usize, row: &[u32]) -> u32 {
        row[column].saturating_sub(self.used.get(&(counter, column)).copied().unwrap_or(0))
    }

    /// Returns what a member that has no room is short of its own part.
    fn owed(&self, counter: u32, column: usize, want: Want, row: &[u32], targets: &[u32]) -> u32 {
        if want.until.is_none() && 0 < self.room(counter, column, row) {
            return 0;
        }
        want.goal.min(targets[column]).saturating_sub(row[column])
    }

    fn under_way(&self, counter: u32, drain: bool) -> u32 {
        let recalls = self.recalls.range(range(counter)).map(|(_, sent)| sent);
        let amounts = recalls.filter(|sent| sent.drain == drain).map(|sent| sent.amount);
        amounts.fold(0, u32::saturating_add)
    }

    fn wants_of(&self, counter: u32) -> Vec<(usize, Want)> {
        let wants = self.wants.range(range(counter));
        wants.map(|(&(_, column), &want)| (column, want)).collect()
    }
}

fn range(counter: u32) -> std::ops::RangeInclusive<(u32, usize)> {
    (counter, 0)..=(counter, usize::MAX)
}
