//! Parts of limits that nobody holds, and who wants them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Wants and recalls of counters that are lent, by counter and column.
///
/// The pool itself is no figure of its own: it is the budget less what the ledger says is held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Pool {
    wants: BTreeMap<(u32, usize), Want>,
    recalls: BTreeMap<(u32, usize), Sent>,
    used: BTreeMap<(u32, usize), u32>,
    heard_at: BTreeMap<u32, Instant>,
    changed: BTreeSet<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Want {
    goal: u32,
    /// Calls wait for it until then.
    until: Option<Instant>,
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
        self.heard_at.insert(counter, now);
        let mut want = Want { goal, until };
        // Calls that wait go on waiting, whatever a tick asks for besides.
        if let Some(waiting) = self.wants.get(&(counter, column)).filter(|_| until.is_none())
            && waiting.until.is_some()
        {
            want = Want { goal: goal.max(waiting.goal), until: waiting.until };
        }
        self.wants.insert((counter, column), want);
    }

    /// Notes what a member uses of a counter.
    pub(super) fn heard(&mut self, now: Instant, counter: u32, column: usize, used: u32) {
        self.heard_at.insert(counter, now);
        self.changed.insert(counter);
        self.used.insert((counter, column), used);
        if self.recalls.get(&(counter, column)).is_some_and(|sent| !sent.drain) {
            self.recalls.remove(&(counter, column));
        }
    }

    /// Gives what is free: first to those below their targets, then to whoever has the least room.
    /// Returns who got something.
    pub(super) fn give(
        &mut self,
        counter: u32,
        row: &mut [u32],
        targets: &[u32],
        budget: u32,
    ) -> BTreeSet<usize> {
        let mut free = budget.saturating_sub(super::round::sum(row));
        let mut given = BTreeSet::new();
        let mut give = |row: &mut [u32], column: usize, goal: u32| {
            let part = goal.saturating_sub(row[column]).min(free);
            if 0 < part {
                row[column] += part;
                free -= part;
                given.insert(column);
            }
        };
        let mut wants = self.wants_of(counter);
        for &(column, want) in &wants {
            give(row, column, want.goal.min(targets[column]));
        }
        let room = |column: usize| row[column].saturating_sub(self.used(counter, column));
        wants.sort_by_key(|&(column, want)| (want.until.is_none(), room(column), column));
        for &(column, want) in &wants {
            give(row, column, want.goal);
        }
        for (column, want) in wants {
            let owner = row[column] < want.goal.min(targets[column]);
            if want.goal <= row[column] || want.until.is_none() && !owner {
                self.wants.remove(&(counter, column));
            }
        }
        given
    }

    /// Returns whose caps are to shrink to what, and whether below what they use: for owners of a
    /// part from those above theirs, and for waiting calls from whoever has the most room.
    pub(super) fn recall(
        &mut self,
        until: Instant,
        counter: u32,
        row: &[u32],
        targets: &[u32],
        busy: &[bool],
    ) -> Vec<(usize, u32, bool)> {
        let wants = self.wants_of(counter);
        let owed = |&(column, want): &(usize, Want)| {
            want.goal.min(targets[column]).saturating_sub(row[column])
        };
        let urgent = |&(column, want): &(usize, Want)| {
            if want.until.is_some() { want.goal.saturating_sub(row[column]) } else { 0 }
        };
        let may = |pool: &Self, column: usize| {
            !busy[column]
                && !pool.recalls.contains_key(&(counter, column))
                && !pool.wants.contains_key(&(counter, column))
        };
        let mut recalls = Vec::new();
        let mut owed: u32 = wants.iter().map(owed).sum();
        owed = owed.saturating_sub(self.under_way(counter));
        for column in 0..row.len() {
            let amount = row[column].saturating_sub(targets[column]).min(owed);
            if 0 < amount && may(self, column) {
                owed -= amount;
                let sent = Sent { amount, drain: true, until };
                self.recalls.insert((counter, column), sent);
                recalls.push((column, row[column] - amount, true));
            }
        }
        let mut missing: u32 = wants.iter().map(urgent).sum();
        missing = missing.saturating_sub(self.under_way(counter));
        let room =
            |pool: &Self, column: usize| row[column].saturating_sub(pool.used(counter, column));
        let mut donors: Vec<usize> = (0..row.len()).filter(|&column| may(self, column)).collect();
        donors.sort_by_key(|&column| std::cmp::Reverse(room(self, column)));
        for column in donors {
            let amount = room(self, column).min(missing);
            if 0 < amount {
                missing -= amount;
                let sent = Sent { amount, drain: false, until };
                self.recalls.insert((counter, column), sent);
                recalls.push((column, row[column] - amount, false));
            }
        }
        recalls
    }

    /// Returns whose waiting calls wait in vain; what they want becomes an owner's claim at most.
    pub(super) fn exhausted(&mut self, counter: u32) -> Vec<usize> {
        // What comes back as calls end comes too late for a call that waits.
        if self.recalls.range(range(counter)).any(|(_, sent)| !sent.drain) {
            return Vec::new();
        }
        let waiting = self.wants.range_mut(range(counter));
        let vain = waiting.filter(|(_, want)| want.until.is_some());
        vain.map(|((_, column), want)| {
            want.until = None;
            *column
        })
        .collect()
    }

    /// Forgets recalls and waiting calls whose time is over, and returns their counters.
    pub(super) fn expire(&mut self, now: Instant) -> BTreeSet<u32> {
        let mut counters = BTreeSet::new();
        self.recalls.retain(|&(counter, _), sent| {
            let over = sent.until <= now;
            if over {
                counters.insert(counter);
            }
            !over
        });
        self.wants.retain(|&(counter, _), want| {
            let over = want.until.is_some_and(|until| until <= now);
            if over {
                counters.insert(counter);
            }
            !over
        });
        counters
    }

    /// Returns the counters of which nothing was heard for so long, once.
    pub(super) fn idle(&mut self, now: Instant, after: Duration) -> Vec<u32> {
        let mut idle = Vec::new();
        self.heard_at.retain(|&counter, heard_at| {
            let over = *heard_at + after <= now;
            if over {
                idle.push(counter);
            }
            !over
        });
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
        let recalls = self.recalls.values().map(|sent| sent.until);
        recalls.chain(self.wants.values().filter_map(|want| want.until)).min()
    }

    fn used(&self, counter: u32, column: usize) -> u32 {
        self.used.get(&(counter, column)).copied().unwrap_or(0)
    }

    fn under_way(&self, counter: u32) -> u32 {
        self.recalls.range(range(counter)).map(|(_, sent)| sent.amount).sum()
    }

    fn wants_of(&self, counter: u32) -> Vec<(usize, Want)> {
        let wants = self.wants.range(range(counter));
        wants.map(|(&(_, column), &want)| (column, want)).collect()
    }
}

fn range(counter: u32) -> std::ops::RangeInclusive<(u32, usize)> {
    (counter, 0)..=(counter, usize::MAX)
}
