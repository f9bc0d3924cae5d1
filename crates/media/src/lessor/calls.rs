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
    closed: BTreeMap<CallId, u32>,
    burials: VecDeque<(Instant, CallId)>,
    stale: u64,
}

impl Calls {
    /// Whether a command of `epoch` is to be obeyed. Counts those that are not.
    pub(super) fn may(&mut self, call: CallId, epoch: u32) -> bool {
        let open = self.open.get(&call).map(|obeyed| obeyed.epoch);
        let highest = open.or_else(|| self.closed.get(&call).copied());
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

    /// Remembers the epoch of a call that has ended.
    pub(super) fn bury(&mut self, now: Instant, call: CallId, epoch: u32) {
        if self.closed.insert(call, epoch).is_none() {
            self.burials.push_back((now + MEMORY, call));
        }
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

    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.open.len()).expect("a call takes four of 65,536 ports")
    }

    pub(super) fn stale(&self) -> u64 {
        self.stale
    }

    pub(super) fn forget(&mut self, now: Instant) {
        while let Some((at, call)) = self.burials.front().copied()
            && at <= now
        {
            self.burials.pop_front();
            self.closed.remove(&call);
        }
    }

    pub(super) fn forget_at(&self) -> Option<Instant> {
        self.burials.front().map(|(at, _)| *at)
    }
}

/// Longer than a command can wait in a queue to a gateway.
const MEMORY: Duration = Duration::from_secs(10);
