//! Calls that lack ports: those without any, whose voice waits, and those without a standby.
//!
//! They ask in rounds, so that a gateway that comes back is not met by all of them at once, and so
//! that thousands of calls without a second gateway cost next to nothing. As long as somebody gets
//! ports, rounds follow each other closely: the next death must find every call with a standby.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use failover::CallId;

/// Which calls are to ask for ports, and when.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    portless: BTreeSet<CallId>,
    unprotected: BTreeSet<CallId>,
    /// The last call without a standby that asked; the next round begins behind it.
    asked_last: CallId,
    round_at: Option<Instant>,
}

impl Shortage {
    /// Lets a call ask again that got nothing. `has_ports`: only its standby is missing.
    pub(crate) fn add(&mut self, now: Instant, call: CallId, has_ports: bool) {
        let wait = if has_ports {
            self.unprotected.insert(call);
            AT_LEISURE
        } else {
            self.portless.insert(call);
            SOON
        };
        self.arm(now + wait);
    }

    /// Takes out a call that has what it needs, or needs nothing any more.
    pub(crate) fn remove(&mut self, call: CallId) {
        self.portless.remove(&call);
        self.unprotected.remove(&call);
    }

    /// Notes that some call got ports: there may be more.
    pub(crate) fn relieved(&mut self, now: Instant) {
        if !self.portless.is_empty() || !self.unprotected.is_empty() {
            self.arm(now + SOON);
        }
    }

    /// Takes out the calls that ask now; those that get nothing come back by [`Shortage::add`].
    pub(crate) fn round(&mut self, now: Instant) -> Vec<CallId> {
        if self.round_at.is_none_or(|at| now < at) {
            return Vec::new();
        }
        let mut calls: Vec<CallId> = self.portless.iter().take(ROUND).copied().collect();
        let behind = self.unprotected.range(self.next_id()..);
        let before = self.unprotected.range(..self.next_id());
        calls.extend(behind.chain(before).take(ROUND - calls.len()));
        if let Some(last) = calls.last().filter(|call| self.unprotected.contains(call)) {
            self.asked_last = *last;
        }
        calls.iter().for_each(|call| self.remove(*call));
        self.round_at = if !self.portless.is_empty() {
            Some(now + SOON)
        } else {
            (!self.unprotected.is_empty()).then_some(now + AT_LEISURE)
        };
        calls
    }

    /// Returns when the next round is.
    pub(crate) fn round_at(&self) -> Option<Instant> {
        self.round_at
    }

    fn arm(&mut self, at: Instant) {
        self.round_at = Some(self.round_at.map_or(at, |old| old.min(at)));
    }

    fn next_id(&self) -> CallId {
        CallId(self.asked_last.0.wrapping_add(1))
    }
}

/// Calls that ask in one round.
const ROUND: usize = 32;

/// Between two rounds while calls have no voice, or while there are ports to be had.
const SOON: Duration = Duration::from_millis(20);

/// Between two rounds in which nobody got a standby.
const AT_LEISURE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_without_voice_ask_first_and_soon() {
        let (mut shortage, now) = (Shortage::default(), now());
        (0..40).for_each(|id| shortage.add(now, CallId(id), true));
        shortage.add(now, CallId(99), false);

        assert_eq!(shortage.round_at(), Some(now + SOON));
        let calls = shortage.round(now + SOON);
        assert_eq!((calls[0], calls.len()), (CallId(99), ROUND));
        assert_eq!(shortage.round_at(), Some(now + SOON + AT_LEISURE));
    }

    #[test]
    fn every_call_asks_in_turn_when_nobody_gets_anything() {
        let (mut shortage, mut now) = (Shortage::default(), now());
        (0..100).for_each(|id| shortage.add(now, CallId(id), true));

        let mut asked = BTreeSet::new();
        for _ in 0..4 {
            now += AT_LEISURE;
            for call in shortage.round(now) {
                asked.insert(call);
                shortage.add(now, call, true);
            }
        }
        assert_eq!(asked.len(), 100);
    }

    #[test]
    fn rounds_follow_closely_while_there_are_ports_and_end_with_the_need() {
        let (mut shortage, mut now) = (Shortage::default(), now());
        (0..70).for_each(|id| shortage.add(now, CallId(id), true));

        now += AT_LEISURE;
        let mut rounds = 0;
        while !shortage.round(now).is_empty() {
            rounds += 1;
            shortage.relieved(now);
            now += SOON;
        }
        assert_eq!(rounds, 3);
        assert_eq!(shortage.round_at(), None);
    }

    #[expect(clippy::disallowed_methods, reason = "an origin for the test")]
    fn now() -> Instant {
        Instant::now()
    }
}
