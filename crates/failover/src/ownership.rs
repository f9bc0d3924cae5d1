//! The side of a b2b: which slots it owns, and whether it may act for them.
//!
//! The voters of a segment are its gates and the configured witness. A b2b takes slots with the
//! promises of a [`majority`] of them, while no gate that it reaches refuses; and an owner acts only
//! while its pulses of the last [`LEASE`] were answered by [`answers_needed`] of them: whichever
//! majority promises its slots to another, one of those answers will be missing. Nobody bids before a
//! trial has shown that the bid would win.
//!
//! A slot that loses its owner goes to its standby, or, when it has none, to whoever is first; one
//! that never had an owner to the b2b it is meant for; and after [`ORPHANED`] to any. A b2b that comes
//! back gets nothing until an owner dies, except to be somebody's standby.

mod bidding;
mod io;
mod lease;
mod peer;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use crate::pulse::{self, CLAIMS_MAX, Claim, Pulse, PulseBack, Standing};
use crate::slots::{Reign, SLOTS, SlotSet};
use crate::{Boot, Clock, Epoch, NodeId, Slot, SlotMap};
use bidding::Round;
pub use io::{Input, Output};
pub use lease::{LEASE, answers_needed, lease_until, majority};
use peer::Peer;

/// What an operator decides about a segment, and which of its b2bs this is. It must be the same at
/// all of them, but for `node`, `boot` and `clock`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// This b2b. Must be one of `b2bs`.
    pub node: NodeId,
    /// Its boot.
    pub boot: Boot,
    /// The time of its start on both clocks.
    pub clock: Clock,
    /// The gates; one may live in this process.
    pub gates: BTreeSet<NodeId>,
    /// Who votes as a gate does and is none.
    pub witness: Option<NodeId>,
    /// All b2bs of the segment.
    pub b2bs: BTreeMap<NodeId, Member>,
}

/// One b2b of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Whether it gets no slots at the start.
    pub standby: bool,
    /// The server it runs on: a standby is rather chosen on another.
    pub host: String,
}

/// What an operator may want to know; all counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Times slots were won.
    pub wins: u64,
    /// Of these, times they were another's.
    pub takeovers: u64,
    /// Bids that failed though their trial had succeeded.
    pub failures: u64,
    /// Slots taken from another that had no whole copy here, or only an old one: calls that it had are
    /// lost.
    pub bare: u64,
    /// Times slots were lost to another.
    pub losses: u64,
    /// Times the lease ended while slots were owned.
    pub mutes: u64,
}

/// Owns slots for one b2b. See the [module](self).
#[derive(Clone, Debug)]
pub struct Ownership {
    config: Config,
    started_at: Instant,
    peers: BTreeMap<NodeId, Peer>,
    map: SlotMap,
    own: SlotSet,
    /// Slots of ours that were taken from another without a whole copy, or with an old one.
    bare: SlotSet,
    /// The highest epoch that anyone promised or named of each slot.
    known: Box<[Epoch; SLOTS]>,
    /// When the owner of each slot was last heard to act for it.
    acted_at: Box<[Instant; SLOTS]>,
    /// The highest epoch in the local store.
    stored: Epoch,
    /// Given away, not yet taken; ours again from then on.
    yielded: Option<(SlotSet, Instant)>,
    /// Given to us and not yet taken, by whom, at which epoch.
    offered: BTreeMap<(NodeId, Epoch), SlotSet>,
    standby: Option<NodeId>,
    draining: bool,
    round: Option<Round>,
    rounds: u64,
    /// When to bid again for what belongs to each owner.
    retry_at: BTreeMap<Option<NodeId>, Instant>,
    pulse_at: Instant,
    /// A voter has heard a later boot of this b2b.
    is_replaced: bool,
    was_holding: bool,
    counters: Counters,
    outputs: VecDeque<Output>,
}

impl Ownership {
    /// Returns a b2b that starts at `now` and owns nothing.
    ///
    /// # Panics
    /// Panics when `config.node` is not one of `config.b2bs`.
    pub fn new(now: Instant, config: Config) -> Self {
        assert!(config.b2bs.contains_key(&config.node), "a b2b is one of its segment's");
        let others = config.b2bs.keys().chain(&config.gates).chain(&config.witness);
        Self {
            started_at: now,
            peers: others.map(|id| (*id, Peer::new(now))).collect(),
            map: SlotMap::empty(),
            own: SlotSet::EMPTY,
            bare: SlotSet::EMPTY,
            known: Box::new([Epoch(0); SLOTS]),
            acted_at: Box::new([now; SLOTS]),
            stored: Epoch(0),
            yielded: None,
            offered: BTreeMap::new(),
            standby: None,
            draining: false,
            round: None,
            rounds: 0,
            retry_at: BTreeMap::new(),
            pulse_at: now,
            is_replaced: false,
            was_holding: false,
            counters: Counters::default(),
            outputs: VecDeque::new(),
            config,
        }
    }

    /// Takes in what happened at `now`. What strangers say is ignored.
    pub fn handle_input(&mut self, now: Instant, input: Input) {
        match input {
            Input::Pulse(pulse) => self.hear_pulse(now, &pulse),
            Input::Back(back) => self.hear_back(now, back),
            Input::Refused(peer) => self.peer(peer, |peer| peer.refused(now)),
            Input::LinkUp { peer, boot } => {
                self.peer(peer, |peer| peer.link_up(now, boot));
                if self.peers.contains_key(&peer) {
                    self.send_map(peer);
                }
            }
            Input::LinkDown(peer) => {
                self.peer(peer, Peer::link_down);
                if self.config.b2bs.contains_key(&peer) && peer != self.config.node {
                    let pulse = self.pulse(now);
                    self.outputs.push_back(Output::Pulse { to: peer, pulse });
                }
            }
            Input::Map { from, map } => self.learn(now, from, &map),
            Input::Vote { from, vote } => self.count(from, vote),
            Input::Synced { peer, slots } => self.name_standby(Some(peer), slots),
            Input::Unsynced { peer, slots } => {
                if self.standby == Some(peer) {
                    self.name_standby(None, slots);
                }
            }
            Input::HandOver { from, slots, epoch } => {
                if self.config.b2bs.contains_key(&from) {
                    for offered in self.offered.values_mut() {
                        *offered = offered.without(slots);
                    }
                    self.offered.retain(|_, offered| !offered.is_empty());
                    let offered = self.offered.entry((from, epoch)).or_default();
                    *offered = offered.union(slots);
                    self.retry_at.remove(&Some(from));
                }
            }
            Input::Drain => {
                self.draining = true;
                self.yield_slots(now);
            }
            Input::Stored(epoch) => self.stored = self.stored.max(epoch),
        }
        self.advance(now);
    }

    /// Does whatever is due at `now`; does nothing when nothing is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_none_or(|due_at| now < due_at) {
            return;
        }
        self.advance(now);
        if self.pulse_at <= now {
            self.send_pulses(now);
        }
    }

    /// Returns the next thing to do. Drain until `None` after every other call.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next needed.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let round = self.round.as_ref().map(Round::ends_at);
        // The others matter to bids alone, which wait for the next pulse at most.
        let retry = self.retry_at.values().copied().filter(|at| *at < self.pulse_at).min();
        [Some(self.pulse_at), round, retry].into_iter().flatten().min()
    }

    /// Returns whether this b2b may send anything for its slots at `now`. Ask before each message,
    /// media command and detail record; while it may not, nobody must hear of it.
    pub fn may_act(&self, now: Instant) -> bool {
        self.lease_until().is_some_and(|until| now < until)
    }

    /// Returns whether the voter `peer` answered a pulse of this owner lately, so that frames to it
    /// arrive too.
    pub fn hears_us(&self, now: Instant, peer: NodeId) -> bool {
        let acked_at = self.peers.get(&peer).and_then(|peer| peer.acked_at);
        acked_at.is_some_and(|acked_at| now < acked_at + LEASE)
    }

    /// Returns whether what is sent to `peer` is heard there: its link is up and it was heard lately.
    pub fn reaches(&self, now: Instant, peer: NodeId) -> bool {
        self.peers.get(&peer).is_some_and(|peer| peer.is_reached(now))
    }

    /// Returns the slots this b2b owns, without those it is giving away.
    pub fn own(&self) -> SlotSet {
        self.own
    }

    /// Returns those of them that were another's before and had no whole copy here, or none of the last
    /// second: what is here of them may be old.
    pub fn bare(&self) -> SlotSet {
        self.bare
    }

    /// Returns all owners it knows.
    pub fn map(&self) -> &SlotMap {
        &self.map
    }

    /// Returns whether a process that was started later runs as this node: voters heed that one alone,
    /// and this one stays mute.
    pub fn is_replaced(&self) -> bool {
        self.is_replaced
    }

    /// Returns what was counted since the start.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn peer(&mut self, id: NodeId, change: impl FnOnce(&mut Peer)) {
        if let Some(peer) = self.peers.get_mut(&id) {
            change(peer);
        }
    }

    fn hear_pulse(&mut self, now: Instant, pulse: &Pulse) {
        let Some(peer) = self.peers.get_mut(&pulse.node) else { return };
        if !peer.heard(now, pulse.boot) {
            return;
        }
        peer.draining = pulse.draining;
        // Pulses at one time wake each node once for all of them.
        if self.pulse_at < now + pulse::PERIOD / 2 {
            self.pulse_at = now;
        }
        if pulse.holds {
            for slot in pulse.claims.iter().flat_map(|claim| claim.slots.iter()) {
                if self.map.get(slot).is_some_and(|reign| reign.owner == pulse.node) {
                    self.acted_at[usize::from(slot.0)] = now;
                }
            }
        }
    }

    fn hear_back(&mut self, now: Instant, back: PulseBack) {
        let Some(sent_at) = self.started_at.checked_add(Duration::from_micros(back.stamp)) else {
            return;
        };
        let is_ours = back.asker == self.config.boot && sent_at <= now;
        let Some(peer) = self.peers.get_mut(&back.node).filter(|_| is_ours) else { return };
        if !peer.heard(now, back.boot) {
            return;
        }
        peer.stands(now, sent_at, back.standing);
        let mut standings = self.peers.values().filter_map(|it| it.standing(now, Duration::ZERO));
        self.is_replaced = standings.any(|standing| standing == Standing::Replaced);
        if let Standing::Fenced { promised } = back.standing
            && self.own.iter().any(|slot| promised < self.known[usize::from(slot.0)])
        {
            // The voter may not know yet. Bids heal what is left.
            self.send_map(back.node);
        }
    }

    fn learn(&mut self, now: Instant, from: NodeId, said: &SlotMap) {
        if !self.peers.contains_key(&from) {
            return;
        }
        let before = self.map.clone();
        self.map.learn(from, said);
        let mut lost = SlotSet::EMPTY;
        for (slot, reign) in self.map.reigns() {
            let index = usize::from(slot.0);
            self.known[index] = self.known[index].max(reign.epoch);
            if before.get(slot).map(|reign| reign.epoch) != Some(reign.epoch) {
                self.acted_at[index] = now;
                if reign.owner != self.config.node {
                    lost.insert(slot);
                }
            }
        }
        let yielded = self.yielded.map_or(SlotSet::EMPTY, |(slots, _)| slots);
        let lost = lost.intersection(self.own.union(yielded));
        if !lost.is_empty() {
            self.own = self.own.without(lost);
            self.bare = self.bare.without(lost);
            self.yielded = self.yielded.map(|(slots, at)| (slots.without(lost), at));
            self.counters.losses += 1;
            self.outputs.push_back(Output::Lose { slots: lost });
            self.send_pulses(now);
        }
    }

    /// Names the standby of those of `slots` that are copied to it, or that there is none.
    fn name_standby(&mut self, standby: Option<NodeId>, slots: SlotSet) {
        if standby.is_some() && standby != self.standby {
            return;
        }
        let mut changed = false;
        for slot in slots.intersection(self.own).iter() {
            let Some(reign) = self.map.get(slot) else { continue };
            if reign.standby != standby {
                self.map.set(slot, Reign { standby, ..reign });
                changed = true;
            }
        }
        if changed {
            self.send_maps();
        }
    }

    /// Keeps a standby that is reached, or chooses another: on another host first, then by number.
    fn choose_standby(&mut self) {
        let usable = |id: &NodeId| {
            self.peers.get(id).is_some_and(|peer| peer.is_linked() && !peer.draining)
                && *id != self.config.node
        };
        if !self.own.is_empty() && self.standby.as_ref().is_some_and(usable) {
            return;
        }
        let here = self.config.b2bs.get(&self.config.node).map(|own| &own.host);
        let others = self.config.b2bs.iter().filter(|(id, _)| usable(id));
        let chosen = others.min_by_key(|(id, other)| (Some(&other.host) == here, **id));
        let chosen = chosen.map(|(id, _)| *id);
        if chosen != self.standby {
            self.standby = chosen;
            self.name_standby(None, SlotSet::ALL);
            self.copy_to_standby(self.own);
        }
    }

    fn copy_to_standby(&mut self, slots: SlotSet) {
        for Claim { epoch, slots } in self.claims(slots) {
            self.outputs.push_back(Output::Standby { slots, standby: self.standby, epoch });
        }
    }

    /// Gives away what a standby holds.
    fn yield_slots(&mut self, now: Instant) {
        let Some(to) = self.standby.filter(|_| self.draining) else { return };
        let held = |slot: &Slot| self.map.get(*slot).is_some_and(|it| it.standby == Some(to));
        let slots: SlotSet = self.own.iter().filter(held).collect();
        if slots.is_empty() {
            return;
        }
        for Claim { epoch, slots } in self.claims(slots) {
            self.outputs.push_back(Output::HandOver { slots, to, epoch });
        }
        self.own = self.own.without(slots);
        let before = self.yielded.map_or(SlotSet::EMPTY, |(slots, _)| slots);
        self.yielded = Some((before.union(slots), now + YIELD));
        self.send_pulses(now);
    }

    /// Whatever follows from the time and from what was taken in.
    fn advance(&mut self, now: Instant) {
        self.settle(now);
        self.retry_at.retain(|_, at| now < *at);
        self.choose_standby();
        self.yield_slots(now);
        self.bid(now);
        let holding = self.may_act(now);
        self.counters.mutes += u64::from(self.was_holding && !holding && !self.own.is_empty());
        self.was_holding = holding;
    }

    fn send_pulses(&mut self, now: Instant) {
        // Counted from `now`: a process that was suspended must not send its whole backlog.
        self.pulse_at = now + pulse::PERIOD;
        let pulse = self.pulse(now);
        let asked = self.peers.iter().filter(|(id, _)| !self.is_self(**id) || self.votes(**id));
        let pulses = asked.map(|(to, peer)| Output::Pulse {
            to: *to,
            pulse: Pulse { deaf: peer.is_silent(now), ..pulse.clone() },
        });
        let pulses: Vec<Output> = pulses.collect();
        self.outputs.extend(pulses);
    }

    /// Returns a pulse for a peer of whom something was heard.
    fn pulse(&self, now: Instant) -> Pulse {
        let mut claims = self.claims(self.own);
        claims.truncate(CLAIMS_MAX);
        Pulse {
            node: self.config.node,
            boot: self.config.boot,
            stamp: u64::try_from((now - self.started_at).as_micros()).unwrap_or(u64::MAX),
            holds: self.may_act(now),
            draining: self.draining,
            deaf: false,
            claims,
        }
    }

    /// Groups slots of ours by epoch.
    fn claims(&self, slots: SlotSet) -> Vec<Claim> {
        let mut claims: Vec<Claim> = Vec::new();
        for slot in slots.iter() {
            let Some(Reign { epoch, .. }) = self.map.get(slot) else { continue };
            // They are mostly of one.
            match claims.iter_mut().find(|claim| claim.epoch == epoch) {
                Some(claim) => claim.slots.insert(slot),
                None => claims.push(Claim { epoch, slots: [slot].into_iter().collect() }),
            }
        }
        claims.sort_unstable_by_key(|claim| claim.epoch);
        claims
    }

    fn send_map(&mut self, to: NodeId) {
        if to != self.config.node || self.votes(to) {
            self.outputs.push_back(Output::Map { to, map: self.map.clone() });
        }
    }

    fn send_maps(&mut self) {
        let linked = self.peers.iter().filter(|(id, peer)| self.is_self(**id) || peer.is_linked());
        let linked: Vec<NodeId> = linked.map(|(id, _)| *id).collect();
        linked.into_iter().for_each(|to| self.send_map(to));
    }

    fn is_self(&self, id: NodeId) -> bool {
        id == self.config.node
    }

    fn votes(&self, id: NodeId) -> bool {
        self.config.gates.contains(&id) || self.config.witness == Some(id)
    }
}

/// After which time any b2b takes a slot that lost its owner, or never had one.
pub const ORPHANED: Duration = Duration::from_secs(1);

/// How long a b2b that gave slots away waits for them to be taken.
const YIELD: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
