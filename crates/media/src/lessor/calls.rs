//! Which peer's word counts for a call.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::Peer;
use crate::frame::CallId;

/// The command that made a call what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Obeyed {
    pub(super) peer: Peer,
    pub(super) epoch: u32,
    pub(super) worker: u16,
    pub(super) ports: [u16; 2],
}

#[derive(Debug, Default)]
pub(super) struct Calls {
    open: BTreeMap<CallId, Obeyed>,
    /// The epochs of calls that ended lately: a stale command must not bring one back.
    closed: BTreeMap<CallId, Burial>,
    /// In order of their ends; at most [`CLOSED_MAX`].
    burials: VecDeque<(Instant, CallId)>,
    stale: u64,
}

#[derive(Clone, Copy, Debug)]
struct Burial {
    epoch: u32,
    until: Instant,
}

impl Calls {
    /// Whether a command of `epoch` is to be obeyed. Counts those that are not.
    pub(super) fn may(&mut self, call: CallId, epoch: u32) -> bool {
        let open = self.open.get(&call).map(|obeyed| obeyed.epoch);
        let highest = open.or_else(|| self.closed.get(&call).map(|burial| burial.epoch));
        let may = highest.is_none_or(|highest| highest <= epoch);
        self.stale += u64::from(!may);
        may
    }

    /// Notes who said what; returns what was said before.
    pub(super) fn obey(&mut self, call: CallId, obeyed: Obeyed) -> Option<Obeyed> {
        self.closed.remove(&call);
        self.open.insert(call, obeyed)
    }

    pub(super) fn remove(&mut self, call: CallId) -> Option<Obeyed> {
        self.open.remove(&call)
    }

    /// Remembers the epoch of a call that has ended, in place of the oldest when there are too many.
    pub(super) fn bury(&mut self, now: Instant, call: CallId, epoch: u32) {
        if self.burials.len() == CLOSED_MAX {
            self.unbury();
        }
        let until = now + MEMORY;
        self.closed.insert(call, Burial { epoch, until });
        self.burials.push_back((until, call));
    }

    /// Makes `peer` the holder of a call that is open, unless another holds it at a higher epoch. Returns whether it
    /// is open.
    pub(super) fn claim(&mut self, call: CallId, peer: Peer, epoch: u32) -> bool {
        let Some(obeyed) = self.open.get_mut(&call) else { return false };
        if obeyed.epoch <= epoch {
            obeyed.peer = peer;
            obeyed.epoch = epoch;
        }
        true
    }

    pub(super) fn get(&self, call: CallId) -> Option<&Obeyed> {
        self.open.get(&call)
    }

    pub(super) fn held_by(&self, peer: Peer) -> impl Iterator<Item = CallId> + '_ {
        self.open.iter().filter(move |(_, obeyed)| obeyed.peer == peer).map(|(call, _)| *call)
    }

    /// RTP ports of calls that are not this peer's.
    pub(super) fn ports_but_of(&self, peer: Peer) -> impl Iterator<Item = u16> + '_ {
        let others = self.open.values().filter(move |obeyed| obeyed.peer != peer);
        others.flat_map(|obeyed| obeyed.ports)
    }

    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.open.len()).expect("a call takes four of 65,536 ports")
    }

    pub(super) fn stale(&self) -> u64 {
        self.stale
    }

    pub(super) fn forget(&mut self, now: Instant) {
        while self.burials.front().is_some_and(|(at, _)| *at <= now) {
            self.unbury();
        }
    }

    /// Forgets the oldest end, unless the call has ended again since.
    fn unbury(&mut self) {
        let Some((at, call)) = self.burials.pop_front() else { return };
        if self.closed.get(&call).is_some_and(|burial| burial.until == at) {
            self.closed.remove(&call);
        }
    }

    pub(super) fn forget_at(&self) -> Option<Instant> {
        self.burials.front().map(|(at, _)| *at)
    }
}

/// Longer than a command can wait in a queue to a gateway.
const MEMORY: Duration = Duration::from_secs(10);

/// Ends in so long a time at ten times the rate of calls that one gateway has carried.
const CLOSED_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_remembered_for_a_while_and_no_more_than_there_is_room_for() {
        let mut calls = Calls::default();
        #[expect(clippy::disallowed_methods, reason = "an origin for the test")]
        let start = Instant::now();
        let ended = |n: usize| CallId(n as u64);

        for n in 0..=CLOSED_MAX {
            calls.bury(start, ended(n), 7);
        }
        assert!(calls.may(ended(0), 6), "the oldest gave place");
        assert!(!calls.may(ended(1), 6));
        calls.bury(start + MEMORY / 2, ended(2), 8);
        assert_eq!(calls.burials.len(), CLOSED_MAX);

        calls.forget(start + MEMORY);
        assert!(calls.may(ended(3), 6));
        assert!(!calls.may(ended(2), 7), "it ended again since");
        calls.forget(start + 2 * MEMORY);
        assert!(calls.may(ended(2), 7));
        assert_eq!((calls.closed.len(), calls.burials.len()), (0, 0));
    }
}
