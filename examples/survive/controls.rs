//! Whether calls obey their phones after the death of what controls them.
//!
//! The calls fall into three groups. In the first, somebody holds, resumes and
//! hangs up after the death. In the second, somebody has just begun to hold when
//! it comes. The others do nothing but talk: their phones must hear nothing of it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use examples::figures::{Figures, millis_text};
use serde::Serialize;
use testkit::{Command, Ended, Entry, Event, PhoneId, What};

use crate::survive::stage::{Seen, call_of, callee_of, caller_of};

/// At most so many calls are tried.
const TRIED_MAX: u32 = 200;
/// At most so many are in the middle of a transaction.
const CROSSED_MAX: u32 = 20;
/// Over this time the first controls of the tried calls are spread.
const SPREAD: Duration = Duration::from_secs(1);
/// Between two controls of a call.
const BETWEEN: Duration = Duration::from_millis(1200);
/// What a hold and a resume are made of. A new owner repeats a 2xx, acknowledges another blindly, and
/// sends anew what was asked for.
const CROSSED_KINDS: [&str; 4] = ["INVITE", "ACK", "100 to INVITE", "200 to INVITE"];
/// A control that is answered within this time was accepted at once.
const AT_ONCE: Duration = Duration::from_millis(100);

/// Which call belongs to which group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Groups {
    tried: u32,
    crossed: u32,
    slack: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// It is held, resumed and ended after the death.
    Tried,
    /// It is being held at the death.
    Crossed,
    /// It does nothing.
    Quiet,
}

impl Groups {
    pub(crate) fn new(calls: u32, slack: u32) -> Self {
        Self { tried: TRIED_MAX.min(calls / 2), crossed: CROSSED_MAX.min(calls / 10), slack }
    }

    /// Returns groups of which nobody does anything at the death.
    pub(crate) fn tried_only(calls: u32, slack: u32) -> Self {
        Self { crossed: 0, ..Self::new(calls, slack) }
    }

    pub(crate) fn of(self, phone: PhoneId) -> Group {
        match call_of(phone) {
            Some(call) if call < self.tried => Group::Tried,
            Some(call) if call < self.tried + self.crossed => Group::Crossed,
            Some(_) | None => Group::Quiet,
        }
    }

    /// What is begun just before a death at about `now`: the time it takes to
    /// kill is less than these are apart.
    pub(crate) fn before(self, now: Instant) -> Vec<(Instant, PhoneId, Command)> {
        let mut plan = Vec::new();
        for index in 0..self.crossed {
            let call = self.tried + index;
            let phone = if index % 2 == 0 { caller_of(call) } else { callee_of(caller_of(call)) };
            plan.push((now + Duration::from_micros(200) * index, phone, Command::Hold));
            plan.push((now + 2 * BETWEEN * self.slack, phone, Command::Resume));
        }
        plan
    }

    /// What is tried after a death at `at`, from each side in turn.
    pub(crate) fn after(self, at: Instant) -> Vec<(Instant, PhoneId, Command)> {
        let mut plan = Vec::new();
        for call in 0..self.tried {
            let (holds, ends) = self.sides(call);
            let first_at = self.first_at(at, call);
            plan.push((first_at, holds, Command::Hold));
            plan.push((first_at + BETWEEN * self.slack, holds, Command::Resume));
            plan.push((first_at + 2 * BETWEEN * self.slack, ends, Command::Hangup));
        }
        plan
    }

    /// Returns how many calls are tried.
    pub(crate) fn tried(self) -> u32 {
        self.tried
    }

    /// Returns when everything that was tried should be over.
    pub(crate) fn done_after(self) -> Duration {
        (SPREAD + 3 * BETWEEN) * self.slack
    }

    /// Returns who holds and resumes a tried call, and who ends it.
    fn sides(self, call: u32) -> (PhoneId, PhoneId) {
        let (caller, callee) = (caller_of(call), callee_of(caller_of(call)));
        match call % 4 {
            0 => (caller, caller),
            1 => (callee, callee),
            2 => (caller, callee),
            _ => (callee, caller),
        }
    }

    fn first_at(self, at: Instant, call: u32) -> Instant {
        at + SPREAD * self.slack * call / self.tried.max(1)
    }
}

/// What became of the controls of one outage.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Controls {
    /// Tried calls.
    pub(crate) calls: u32,
    /// Those that were held, resumed and ended.
    pub(crate) obeyed: u32,
    /// From the death to the first hold from which on each was accepted at once.
    #[serde(serialize_with = "crate::survive::outage::millis_or_null")]
    pub(crate) accepted_again: Option<Duration>,
    /// How long each accepted hold took.
    pub(crate) hold: Figures,
    /// Calls with an open transaction at the death, and the SIP messages that
    /// came to their phones, by kind.
    pub(crate) crossed_calls: u32,
    pub(crate) crossed: BTreeMap<String, u64>,
    /// Those that came to phones of the calls that did nothing; there must be none.
    pub(crate) quiet: BTreeMap<String, u64>,
}

impl Controls {
    pub(crate) fn new(groups: Groups, at: Instant, seen: &Seen) -> Self {
        let (calls, crossed_calls) = (groups.tried, groups.crossed);
        let mut controls = Self { calls, crossed_calls, ..Self::default() };
        let mut holds = Vec::new();
        for call in 0..groups.tried {
            let (holds_it, ends_it) = groups.sides(call);
            let accepted = accepted_at(&seen.entries, holds_it);
            let first_at = groups.first_at(at, call);
            let took = accepted.first().map(|then| then.saturating_duration_since(first_at));
            if let Some(took) = took {
                controls.hold.push(took);
            }
            holds.push((first_at, took));
            let ended = seen
                .entries
                .iter()
                .any(|entry| entry.phone == Some(ends_it) && is(entry, Event::Ended(Ended::Here)));
            let timed_out = seen
                .entries
                .iter()
                .any(|entry| call_of_entry(entry) == Some(call) && is(entry, Event::TimedOut));
            controls.obeyed += u32::from(2 <= accepted.len() && ended && !timed_out);
        }
        controls.accepted_again = accepted_again(&holds, AT_ONCE * groups.slack)
            .map(|then| then.saturating_duration_since(at));
        for ((phone, kind), count) in &seen.received {
            let messages = match groups.of(*phone) {
                _ if call_of(*phone).is_none() => continue,
                Group::Tried => continue,
                Group::Crossed => &mut controls.crossed,
                Group::Quiet => &mut controls.quiet,
            };
            *messages.entry(kind.clone()).or_default() += count;
        }
        controls
    }

    /// Returns how many messages came to calls in the middle of a hold or a resume that neither these
    /// are made of nor a new owner has to repeat.
    pub(crate) fn strange(&self) -> u64 {
        let strange = self.crossed.iter().filter(|(kind, _)| !CROSSED_KINDS.contains(&&kind[..]));
        strange.map(|(_, count)| count).sum()
    }

    /// Returns them in one line.
    pub(crate) fn line(&self) -> String {
        let again = millis_text(self.accepted_again);
        format!(
            "{} of {} calls obeyed, at once again from {again} ms on; hold p50 {}, p99 {} ms",
            self.obeyed,
            self.calls,
            self.hold.text(50),
            self.hold.text(99)
        )
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let first = self.calls == 0;
        self.calls += other.calls;
        self.obeyed += other.obeyed;
        self.crossed_calls += other.crossed_calls;
        self.accepted_again = match (first, self.accepted_again.zip(other.accepted_again)) {
            (true, _) => other.accepted_again,
            (false, both) => both.map(|(one, other)| one.max(other)),
        };
        self.hold.extend(&other.hold);
        for (sum, more) in [(&mut self.crossed, &other.crossed), (&mut self.quiet, &other.quiet)] {
            for (kind, count) in more {
                *sum.entry(kind.clone()).or_default() += count;
            }
        }
    }
}

/// Returns when the first hold was sent from which on all were accepted `at_once`.
fn accepted_again(holds: &[(Instant, Option<Duration>)], at_once: Duration) -> Option<Instant> {
    let slow = |(_, took): &(Instant, Option<Duration>)| took.is_none_or(|took| at_once < took);
    let from = holds.iter().rposition(slow).map_or(0, |last| last + 1);
    holds.get(from).map(|(sent_at, _)| *sent_at)
}

/// When INVITEs of a phone inside its call were accepted.
fn accepted_at(entries: &[Entry], phone: PhoneId) -> Vec<Instant> {
    let accepted =
        |entry: &&Entry| entry.phone == Some(phone) && is(entry, Event::ReinviteAccepted);
    entries.iter().filter(accepted).map(|entry| entry.at).collect()
}

fn call_of_entry(entry: &Entry) -> Option<u32> {
    entry.phone.and_then(call_of)
}

fn is(entry: &Entry, wanted: Event) -> bool {
    matches!(entry.what, What::Event(event) if event == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_to_a_call_that_is_held_at_the_death_is_a_hold_and_nothing_else() {
        let crossed = [("INVITE", 2), ("200 to INVITE", 5), ("ACK", 2)];
        let crossed = crossed.map(|(kind, count)| (kind.to_owned(), count));
        let mut controls = Controls { crossed: crossed.into(), ..Controls::default() };
        assert_eq!(controls.strange(), 0);

        controls.crossed.extend([("491 to INVITE".to_owned(), 3), ("BYE".to_owned(), 1)]);
        assert_eq!(controls.strange(), 4);
    }

    #[test]
    fn controls_are_accepted_again_once_none_waits_any_more() {
        let (at, ms) = (examples::account::clock(), Duration::from_millis);
        let quick = Some(ms(5));
        let holds = [(at, quick), (at + ms(10), Some(ms(500))), (at + ms(20), quick)];

        assert_eq!(accepted_again(&holds, ms(100)), Some(at + ms(20)));
        assert_eq!(accepted_again(&holds[..2], ms(100)), None);
        assert_eq!(accepted_again(&holds[..1], ms(100)), Some(at));
        assert_eq!(accepted_again(&[(at, None)], ms(100)), None);
    }
}
