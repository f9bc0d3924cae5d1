//! Through whom a message reaches the owner of its slot.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use failover::slots::Reign;
use failover::{NodeId, Slot};

use super::{B2b, Gate, Output, waiting};
use crate::frame::SipIn;

/// What is known of other gates as ways to b2bs.
#[derive(Debug, Default)]
pub(super) struct Ways {
    /// Which of them last carried something of a b2b to this one, and when.
    open: BTreeMap<NodeId, (NodeId, Instant)>,
    /// When one of them last said that it does not reach a b2b either.
    closed: BTreeMap<(NodeId, NodeId), Instant>,
}

/// Who gets a message next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hop {
    pub(super) to: NodeId,
    /// How often it was handed on then.
    pub(super) hops: u8,
    pub(super) is_owner: bool,
    /// It is another gate, or a b2b whose pulses come.
    pub(super) is_heard: bool,
    /// Too much waits for it, or it has no lease.
    pub(super) is_congested: bool,
}

impl Ways {
    /// A gate carried something of a b2b to this one.
    pub(super) fn open(&mut self, now: Instant, gate: NodeId, b2b: NodeId) {
        self.open.insert(b2b, (gate, now));
        self.closed.remove(&(gate, b2b));
    }

    /// A gate said that it does not reach a b2b.
    fn close(&mut self, now: Instant, gate: NodeId, b2b: NodeId) {
        self.closed.insert((gate, b2b), now);
        if self.open.get(&b2b).is_some_and(|(known, _)| *known == gate) {
            self.open.remove(&b2b);
        }
    }

    fn is_closed(&self, now: Instant, gate: NodeId, b2b: NodeId) -> bool {
        self.closed.get(&(gate, b2b)).is_some_and(|at| now < *at + WAY)
    }
}

impl Gate {
    /// Hands a message of another gate to its owner or, if it cannot reach that either, gives it back.
    pub(super) fn relay(&mut self, now: Instant, from: NodeId, frame: SipIn) {
        if frame.is_returned() {
            return self.send_elsewhere(now, from, frame);
        }
        let owner = self.owner(frame.slot);
        if let Some(to) = owner.filter(|owner| self.is_heard(now, *owner)) {
            self.counters.relayed += 1;
            self.outputs.push_back(Output::Sip { to, frame });
        } else if from == frame.flow.gate && self.gates.contains(&from) {
            self.counters.returned += 1;
            let frame = SipIn { hops: frame.hops.saturating_add(1), ..frame };
            self.outputs.push_back(Output::Sip { to: from, frame });
        } else {
            self.counters.unowned += 1;
        }
    }

    /// A gate gave a message of this one back: another way is taken, and that one no more for a while.
    fn send_elsewhere(&mut self, now: Instant, from: NodeId, frame: SipIn) {
        if let Some(owner) = self.owner(frame.slot) {
            self.ways.close(now, from, owner);
        }
        let is_ours = frame.flow.gate == self.config.id && frame.flow.boot == self.config.boot;
        let is_once = waiting::is_said_once(&frame);
        let hops_max = if is_once { HOPS_ONCE_MAX } else { HOPS_MAX };
        if !is_ours || hops_max <= frame.hops {
            self.counters.unowned += 1;
        } else if is_once && self.must_wait(now, frame.slot) {
            self.wait(now, frame);
        } else if self.hand(now, frame).is_none() {
            self.counters.unowned += 1;
        }
    }

    /// Returns who takes messages of `slot`: the owner; else a gate that may reach it; else any b2b,
    /// which hands them on once. Of b2bs that can all not be heard, it takes one whose link is up.
    pub(super) fn next_hop(&self, now: Instant, slot: Slot) -> Option<Hop> {
        let Reign { owner, standby, .. } = self.voter.map().get(slot)?;
        let hop = |to: NodeId, hops| {
            let is_congested =
                self.up(to).is_some_and(|b2b| b2b.is_congested) || self.voter.is_mute(now, to);
            let is_heard = 0 < hops || self.is_heard(now, to);
            Hop { to, hops, is_owner: to == owner, is_heard, is_congested }
        };
        let up = |id: &NodeId| self.up(*id).is_some();
        let heard = |id: &NodeId| self.is_heard(now, *id);
        let mut b2bs = [owner].into_iter().chain(standby).chain(self.b2bs.keys().copied());
        Some(owner)
            .filter(heard)
            .map(|to| hop(to, 0))
            .or_else(|| self.way(now, owner).map(|to| hop(to, 1)))
            .or_else(|| b2bs.clone().find(heard).or_else(|| b2bs.find(up)).map(|to| hop(to, 0)))
    }

    /// Returns the gate to reach a b2b through: one that just carried something of it. Which of the
    /// others does is not known before they are asked: they take turns, and one that cannot gives the
    /// message back.
    fn way(&self, now: Instant, b2b: NodeId) -> Option<NodeId> {
        let known = self.ways.open.get(&b2b);
        let known = known.filter(|(way, at)| self.is_way(*way) && now < *at + WAY);
        let others = self.gates.iter().copied();
        let ways: Vec<NodeId> = others
            .filter(|way| self.is_way(*way) && !self.ways.is_closed(now, *way, b2b))
            .collect();
        let turn = usize::try_from(self.counters.detoured).unwrap_or_default();
        known.map(|(way, _)| *way).or_else(|| ways.get(turn.checked_rem(ways.len())?).copied())
    }

    /// Whether a node is another gate and no b2b, which passes on what is not its own.
    pub(super) fn is_way(&self, node: NodeId) -> bool {
        self.gates.contains(&node) && !self.b2bs.contains_key(&node)
    }

    /// Whether a b2b can be reached: a link ends only after seconds of silence.
    fn is_heard(&self, now: Instant, b2b: NodeId) -> bool {
        self.up(b2b).is_some() && self.voter.reaches(now, b2b)
    }

    fn up(&self, b2b: NodeId) -> Option<&B2b> {
        self.b2bs.get(&b2b).filter(|b2b| b2b.is_up)
    }
}

/// How long a way that led to a b2b is taken again, and one that did not is not.
const WAY: Duration = Duration::from_secs(1);
/// A message that was handed on and given back so often is dropped.
const HOPS_MAX: u8 = 16;
/// The same of a message that nobody says again. It is enough to ask four other gates, each once a second, for
/// as long as the message may wait.
const HOPS_ONCE_MAX: u8 = 254;
