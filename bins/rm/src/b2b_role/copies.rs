//! What this b2b owns, the copies it gives to its standby, and those it holds for others.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use b2bua::frame::SipIn;
use b2bua::{Input, Output as Asked};
use driver::{Class, Output};
use failover::ownership;
use failover::record::Value;
use failover::replica::{self, Ack, Batch, Change, ReplicaOutput};
use failover::{Boot, CallRecord, Epoch, NodeId, Slot, SlotSet, verdicts};
use tracing::{debug, error, info, warn};

use super::exits::Exit;
use super::restoring::Copied;
use super::{B2bRole, GIVING_MAX, LINGER, Wish};
use crate::frames::{self, send};
use crate::journal;

impl B2bRole {
    /// These slots are ours from now on, and what is held of them.
    pub(crate) fn own(&mut self, now: Instant, slots: SlotSet, epoch: Epoch) {
        info!(slots = slots.len(), epoch = epoch.0, "slots are ours");
        self.yield_no_more(slots);
        self.verdicts.handle_input(now, verdicts::Input::Owns(true));
        for slot in slots.iter() {
            self.b2b.handle_input(now, Input::Owned { slot, epoch });
        }
        let listed: Vec<Slot> = slots.iter().collect();
        let shifts: BTreeMap<Slot, i64> =
            listed.iter().map(|slot| (*slot, self.shift(*slot))).collect();
        // Phones went on without whoever wrote these: some may have hung up.
        let old = self.ownership.bare();
        let copies = self.replica.take(&listed, epoch).into_iter();
        let copies = copies.map(|(slot, key, bytes)| {
            let by_ms = shifts.get(&slot).copied().unwrap_or_default();
            (slot, key, Copied { bytes, by_ms, is_old: old.contains(slot) })
        });
        self.restoring.copied(now, copies);
        let kept = self.kept.as_mut().map(|kept| kept.take(slots)).unwrap_or_default();
        for (slot, key, value) in self.restoring.kept(now, kept) {
            self.b2b.restore(now, slot, &key, Some(value));
        }
        let bare = self.ownership.counters().bare;
        let bare = bare - std::mem::replace(&mut self.bare, bare);
        if 0 < bare {
            error!(
                slots = bare,
                "slots are taken without a whole copy: calls of their owner are lost"
            );
        }
        self.restore_due(now);
        for frame in self.held.heard_of(now, slots) {
            self.sip(now, frame);
        }
    }

    /// Forgets what earlier owners of slots left here.
    pub(crate) fn forget_left(&mut self) {
        for (slot, reign) in self.ownership.map().reigns() {
            if reign.owner != self.own {
                self.replica.reigns(slot, reign.owner);
            }
        }
    }

    /// Returns by how much the times in a slot's copies are moved: their owner has its own clock.
    fn shift(&self, slot: Slot) -> i64 {
        self.replica.source(slot).map_or(0, |source| self.clocks.shift(source))
    }

    /// These slots are another's: nothing more is said for them.
    pub(crate) fn lose(&mut self, now: Instant, slots: SlotSet) {
        info!(slots = slots.len(), "slots are another's");
        self.lingers_until = Some(now + LINGER);
        self.yield_no_more(slots);
        let owns = !self.ownership.own().is_empty();
        self.verdicts.handle_input(now, verdicts::Input::Owns(owns));
        let lost = self.b2b.records().filter(|record| slots.contains(record.slot));
        let lost: Vec<_> = lost.map(|record| record.call).collect();
        self.mediagates.forget(&lost);
        self.details.forget(slots);
        self.restoring.lose(slots);
        self.held.lose(now, slots, &lost);
        self.exits.retain(|exit| !slots.contains(exit.slot()));
        for frame in self.held.heard_of(now, slots) {
            self.wishes.push_back(Wish::PassOn(SipIn { hops: frame.hops.max(1), ..frame }));
        }
        let slots: Vec<Slot> = slots.iter().collect();
        self.replicator.lose(&slots);
        self.b2b.handle_input(now, Input::Lost { slots });
    }

    /// These slots are to be copied to this standby.
    pub(crate) fn protect(
        &mut self,
        now: Instant,
        slots: SlotSet,
        standby: Option<NodeId>,
        epoch: Epoch,
    ) {
        self.replicator.standby(now, &slots.iter().collect::<Vec<_>>(), standby, epoch);
    }

    /// Gives slots away: what comes for them from now on is another's. What is under way is ended first.
    pub(crate) fn hand_over(&mut self, now: Instant, slots: SlotSet) {
        info!(slots = slots.len(), "slots are given away");
        self.yielded = self.yielded.union(slots);
        self.giving = self.giving.union(slots);
        self.under_way_until = Some(now + GIVING_MAX);
    }

    /// Tells the taker of slots in which nothing is under way any more; returns whether there were some.
    pub(super) fn give(&mut self, now: Instant) -> bool {
        if self.giving.is_empty() {
            self.under_way_until = None;
            return false;
        }
        let is_late = self.under_way_until.is_none_or(|until| until <= now);
        let leaving = self.exits.iter().map(Exit::slot).collect();
        let under_way = self.details.slots().union(leaving);
        let is_ready = |slot: &Slot| {
            is_late || (!under_way.contains(*slot) && self.replicator.waiting_of(*slot) == 0)
        };
        let ready: SlotSet = self.giving.iter().filter(is_ready).collect();
        if ready.is_empty() {
            return false;
        }
        self.giving = self.giving.without(ready);
        let (ready, b2b): (Vec<Slot>, _) = (ready.iter().collect(), &self.b2b);
        let records = |key: &_| b2b.stored(key).map(frames::value_bytes);
        if let Err(error) = self.replicator.hand_over(&ready, records) {
            warn!(%error, "slots cannot be given away");
        }
        true
    }

    /// Returns the slots that another may take at any time.
    pub(super) fn given(&self) -> SlotSet {
        self.yielded.without(self.giving)
    }

    /// These slots have an owner again.
    fn yield_no_more(&mut self, slots: SlotSet) {
        self.yielded = self.yielded.without(slots);
        self.giving = self.giving.without(slots);
    }

    /// Ends this role's work: its slots go to the standby, if it has one that holds everything. Of what
    /// is not given away soon no call is taken on, and the last one is waited for.
    pub(crate) fn drain_slots(&mut self, now: Instant) {
        let map = self.ownership.map();
        let has_standby = |slot| map.get(slot).is_some_and(|reign| reign.standby.is_some());
        let is_held = self.ownership.own().iter().any(has_standby);
        self.ownership.handle_input(now, ownership::Input::Drain);
        if is_held || !self.yielded.is_empty() {
            info!("all slots go to the standby");
            self.gives_until = Some(now + GIVING);
        } else {
            self.refuse_calls(now);
        }
    }

    /// Returns when it is time to look again whether this role is drained.
    pub(crate) fn lingers_until(&self) -> Option<Instant> {
        [self.lingers_until, self.under_way_until].into_iter().flatten().min()
    }

    /// Ends giving slots away when that took long: whoever could not take the rest will not.
    pub(super) fn keep_the_rest(&mut self, now: Instant) {
        let is_over = self.gives_until.take_if(|until| *until <= now).is_some();
        if is_over && !self.ownership.own().union(self.yielded).is_empty() {
            self.refuse_calls(now);
        }
    }

    fn refuse_calls(&mut self, now: Instant) {
        info!("no new calls from now on; done when the last call has ended");
        self.b2b.handle_input(now, Input::Drain);
    }

    /// Returns whether nothing is left to do of a role that drains. `has_gate`: in this process, and phones
    /// signal through it whoever owns their calls.
    pub(crate) fn is_drained(&mut self, now: Instant, has_gate: bool) -> bool {
        let mut reigns = self.ownership.map().reigns();
        if has_gate && reigns.any(|(_, reign)| reign.owner != self.own) {
            return false;
        }
        let gives_nothing = self.yielded.is_empty() && self.lingers_until.is_none();
        let is_quiet = self.replicator.waiting() == 0 && self.held.is_empty();
        let has_none = self.ownership.own().is_empty() && is_quiet;
        let is_done = gives_nothing && (self.b2b.is_drained() || has_none);
        let is_silent = self.restoring.is_empty() && self.exits.is_empty();
        is_done && is_silent && !self.details.keep_the_end(now)
    }

    /// A message for one of our slots, or for one that is not.
    pub(crate) fn sip(&mut self, now: Instant, frame: SipIn) {
        if self.restoring.has(frame.slot) {
            self.restore_slot(now, frame.slot);
        }
        // Without a lease an answer may go to nobody, and over a connection no phone asks again.
        let is_mute = frame.flow.transport.is_reliable()
            && self.ownership.own().contains(frame.slot)
            && !self.ownership.may_act(now);
        if self.awaits_owner(now, &frame) {
            self.crowded_out += u64::from(!self.held.await_owner(now, frame));
        } else if !self.yielded.contains(frame.slot) && !is_mute {
            self.b2b.handle_input(now, Input::Sip(frame));
        } else if !self.held.hear(now, frame) {
            // Of what is given away nothing may change any more.
            self.crowded_out += 1;
        }
    }

    /// Whether nobody can take a message yet that its phone says only once: the owner of its slot is gone or
    /// not reached, or this b2b has just started.
    fn awaits_owner(&self, now: Instant, frame: &SipIn) -> bool {
        frame.flow.transport.is_reliable()
            && !self.yielded.contains(frame.slot)
            && !self.has_owner(now, frame.slot)
    }

    fn has_owner(&self, now: Instant, slot: Slot) -> bool {
        let anothers = |owner| owner != self.own && self.ownership.reaches(now, owner);
        self.ownership.own().contains(slot)
            || self.ownership.map().get(slot).is_some_and(|reign| anothers(reign.owner))
    }

    /// Returns how many messages of phones wait to be taken in, and how many waited for too long.
    pub(crate) fn unheard(&self, now: Instant) -> (usize, u64) {
        (self.held.waiting(now), self.held.outdated(now))
    }

    /// Takes in what waited for an owner that there is now; returns whether there was anything.
    pub(super) fn hear_awaited(&mut self, now: Instant) -> bool {
        let awaited = self.held.awaited().iter();
        let found: SlotSet = awaited.filter(|slot| self.has_owner(now, *slot)).collect();
        if found.is_empty() {
            return false;
        }
        let frames = self.held.awaited_of(now, found);
        frames.into_iter().for_each(|frame| self.sip(now, frame));
        true
    }

    /// The bulk link to another b2b came up or went down.
    pub(crate) fn bulk_link(
        &mut self,
        now: Instant,
        peer: NodeId,
        up: bool,
        out: &mut VecDeque<Output>,
    ) {
        if up {
            out.push_back(self.clocks.tell(now, peer));
            self.replicator.peer_up(now, peer);
        } else {
            self.replicator.peer_down(now, peer);
        }
    }

    /// Another b2b sent copies.
    pub(crate) fn batch(
        &mut self,
        from: NodeId,
        payload: &[u8],
        out: &mut VecDeque<Output>,
    ) -> bool {
        let Ok(batch) = driver::codec::decode_borrowed::<Batch<&[u8]>>(payload) else {
            return false;
        };
        if let Some(ack) = self.replica.copy(from, batch) {
            out.push_back(send(driver::NodeId(from.0), Class::Bulk, &ack));
        }
        true
    }

    /// Another b2b says what time it is there.
    pub(crate) fn wall_clock(&mut self, now: Instant, from: NodeId, payload: &[u8]) -> bool {
        let Ok(clock) = driver::codec::decode(payload) else { return false };
        self.clocks.hear(now, from, clock);
        true
    }

    /// The standby holds something.
    pub(crate) fn ack(&mut self, now: Instant, from: NodeId, payload: &[u8]) -> bool {
        let Ok(ack) = driver::codec::decode::<Ack>(payload) else { return false };
        self.replicator.ack(now, from, &ack);
        true
    }

    /// Returns the calls of other b2bs whose records are held here.
    pub(crate) fn copied_calls(&self) -> impl Iterator<Item = CallRecord> {
        let records = (0..=u8::MAX).flat_map(|slot| self.replica.records(Slot(slot)));
        records.filter_map(|(_, bytes)| match frames::value(bytes)? {
            Value::Call(record) => Some(*record),
            Value::Ended(_) | Value::Bindings(_) => None,
        })
    }

    /// Does what the b2b asks for, or lets it wait: for the standby, or for the lease.
    pub(super) fn let_out(&mut self, now: Instant, output: Asked) {
        match output {
            Asked::Stored { slot, key, barrier } => {
                // Of what is given away nobody hears any more: its taker must not have it either.
                let is_given = self.given().contains(slot);
                if !barrier && !is_given && self.kept.is_none() {
                    return self.replicator.touch(now, slot, key);
                }
                let value = self.b2b.stored(&key).map(frames::value_bytes);
                if let Some(kept) = &mut self.kept {
                    kept.put(now, slot, &key, value.as_ref());
                }
                if !barrier || !is_given {
                    self.replicator.change(now, Change { slot, key, value, barrier });
                }
            }
            Asked::Sip(message) => self.replicator.send(message.slot, Exit::Sip(message)),
            Asked::Detail(detail) => {
                self.replicator.send_patiently(detail.slot, Exit::Detail(detail));
            }
            Asked::Media { gateway, boot, command } => self.media(now, gateway, boot, command),
            Asked::Admit { call, ask } => self.wishes.push_back(Wish::Admit(call, ask)),
            Asked::Released { call } => self.wishes.push_back(Wish::Released(call)),
            Asked::PassOn(frame) => self.wishes.push_back(Wish::PassOn(frame)),
            Asked::Place { call, wanted } => self.place(now, call, wanted),
            Asked::Named(place) => self.mediagates.keep_back(&place),
            Asked::Freed(place) => self.mediagates.free(now, &place),
            Asked::Event(event) => journal::event(&event),
        }
    }

    /// Carries copies to and from the other b2bs; returns whether there was anything.
    pub(super) fn drain_copies(&mut self, now: Instant, out: &mut VecDeque<Output>) -> bool {
        let mut busy = false;
        let b2b = &self.b2b;
        self.replicator.flush(now, |key| b2b.stored(key).map(frames::value_bytes));
        while let Some(output) = self.replicator.poll_output() {
            busy = true;
            self.copied(now, output, out);
        }
        while let Some(output) = self.replica.poll_output() {
            busy = true;
            match output {
                ReplicaOutput::Copied { slot, key, value } => {
                    let mut value = value.and_then(|bytes| frames::value(&bytes));
                    let by_ms = self.shift(slot);
                    value.iter_mut().for_each(|value| value.shift(by_ms));
                    self.b2b.restore(now, slot, &key, value);
                }
                ReplicaOutput::HandOver { from, epoch, slots } => {
                    let slots = slots.into_iter().collect();
                    let offered = ownership::Input::HandOver { from, slots, epoch };
                    self.ownership.handle_input(now, offered);
                }
            }
        }
        busy
    }

    /// Tells the standby all records of a slot.
    pub(super) fn provide(&mut self, now: Instant, slot: Slot) {
        let keys = self.b2b.keys_of(slot).into_iter();
        let stored = keys.filter_map(|key| {
            let value = frames::value_bytes(self.b2b.stored(&key)?);
            Some((key, value))
        });
        self.replicator.provide(now, slot, stored);
    }

    fn copied(&mut self, now: Instant, output: replica::Output<Exit>, out: &mut VecDeque<Output>) {
        use replica::Output as Copy;
        match output {
            Copy::Pass(exit) => self.exits.push_back(exit),
            Copy::Copy { peer, batch } => {
                out.push_back(send(driver::NodeId(peer.0), Class::Bulk, &batch));
            }
            Copy::Whole { slot } if self.restoring.has(slot) => self.restoring.await_slot(slot),
            Copy::Whole { slot } => self.provide(now, slot),
            Copy::Synced { peer, slots } => {
                let slots = slots.into_iter().collect();
                self.ownership.handle_input(now, ownership::Input::Synced { peer, slots });
            }
            Copy::Unsynced { peer, slots } => {
                let slots = slots.into_iter().collect();
                self.ownership.handle_input(now, ownership::Input::Unsynced { peer, slots });
            }
            Copy::Late { peer } => {
                // A busy host can be late many times a second; the counter has them all.
                let count = self.replicator.counters().late;
                if count.is_power_of_two() {
                    warn!(peer = peer.0, count, "the standby is late: calls go on unprotected");
                }
            }
            Copy::Caught { peer } => debug!(peer = peer.0, "the standby keeps up again"),
            Copy::Refused { peer, slot, refusal } => {
                // Of 256 slots one line says enough; the counter has them all.
                let count = self.replicator.counters().refused;
                if count.is_power_of_two() {
                    let peer = peer.0;
                    error!(peer, %slot, %refusal, count, "the standby refuses a slot: its calls go on unprotected");
                }
            }
        }
    }

    /// Returns whether that boot of a mediagate is known to be dead.
    pub(super) fn is_gone(&self, gateway: NodeId, boot: Boot) -> bool {
        self.verdicts.is_dead(gateway, boot)
            || self.mediagates.boot(gateway).is_some_and(|known| known != boot)
    }
}

/// How long a b2b that drains tries to give its slots away: twice as long as a standby may take.
const GIVING: Duration = Duration::from_secs(4);
