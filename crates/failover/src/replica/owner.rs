//! The owner's side: what its standbys hold, and what waits for them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use bytes::Bytes;

use super::peer::{CHECK_PERIOD, Expected, Later, Pace, Peer, Phase, Purpose, Told};
use super::waiting::Queues;
use super::{Batch, Change, Item, Key, Refusal, SLOT_MAX, Sum, VALUE_MAX, weight};
use crate::slots::SLOTS;
use crate::{Boot, Epoch, NodeId, Slot};

mod answer;

/// Copies the records of the slots that a node owns to their standbys. See the [module](super).
///
/// `T` is what may have to wait for a barrier: a message, a call's detail. Per slot it comes out in the
/// order in which it went in, and no later than [`BARRIER_MAX`](super::BARRIER_MAX).
#[derive(Clone, Debug)]
pub struct Replicator<T> {
    boot: Boot,
    slots: Vec<Copied>,
    peers: BTreeMap<NodeId, Peer>,
    waiting: Queues<T>,
    /// What waits for a late standby too.
    patient: Queues<T>,
    counters: Counters,
    outputs: VecDeque<Output<T>>,
}

/// What the replicator asks of its owner, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<T> {
    /// Waits no longer: send it.
    Pass(T),
    /// Send this frame to the standby, on a link that keeps the order.
    Copy {
        /// The standby.
        peer: NodeId,
        /// The frame.
        batch: Batch,
    },
    /// Tell [`Replicator::provide`] all records of this slot, before any further change.
    Whole {
        /// The slot.
        slot: Slot,
    },
    /// The standby has a whole copy of these slots.
    Synced {
        /// The standby.
        peer: NodeId,
        /// In ascending order.
        slots: Vec<Slot>,
    },
    /// The standby no longer has a whole copy of these slots, or no longer follows their changes.
    Unsynced {
        /// The standby.
        peer: NodeId,
        /// In ascending order.
        slots: Vec<Slot>,
    },
    /// The standby was slow: all its slots are unprotected and nothing waits for it.
    Late {
        /// The standby.
        peer: NodeId,
    },
    /// The standby keeps up again.
    Caught {
        /// The standby.
        peer: NodeId,
    },
    /// The standby will not have a slot.
    Refused {
        /// The standby.
        peer: NodeId,
        /// The slot.
        slot: Slot,
        /// Why.
        refusal: Refusal,
    },
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames sent.
    pub batches: u64,
    /// Changes and records sent.
    pub items: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// Slots sent as a whole.
    pub copies: u64,
    /// Times that a standby did not acknowledge in time.
    pub late: u64,
    /// Times that a stream was given up because the standby took too little.
    pub stalled: u64,
    /// Times that a standby missed items.
    pub broken: u64,
    /// Acknowledgements of what was never sent.
    pub lies: u64,
    /// Slots of which a standby held something else than the owner.
    pub differed: u64,
    /// Slots that a standby refused.
    pub refused: u64,
    /// Values too long to be copied, and slots too large.
    pub too_long: u64,
    /// Acknowledgements of a stream that is over.
    pub stale_acks: u64,
}

impl Counters {
    /// Returns the value of a record as it is sent: none, if it is too long. An old one would be worse.
    fn fitting(
        &mut self,
        mut records: impl FnMut(&Key) -> Option<Bytes>,
        key: &Key,
        told: Told,
    ) -> Option<Bytes> {
        let value = match told {
            Told::Value(value) => value,
            Told::Change => records(key),
        };
        let is_long = value.as_ref().is_some_and(|value| VALUE_MAX < value.len());
        self.too_long += u64::from(is_long);
        value.filter(|_| !is_long)
    }
}

/// Some of the slots have no standby that holds a whole copy; nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("slot {0} is not synced")]
pub struct NotSyncedError(pub Slot);

/// One slot, as this node copies it.
#[derive(Clone, Copy, Debug, Default)]
struct Copied {
    standby: Option<NodeId>,
    epoch: Epoch,
    progress: Progress,
    /// The number of the item with which its content begins in the stream.
    begun: u64,
    /// The number of its newest barrier in the stream.
    barrier: u64,
}

/// How far the copy of a slot is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Progress {
    /// Nothing of it is sent.
    #[default]
    None,
    /// Its content is sent, and each change since; the standby must confirm this item.
    Sent { end: u64 },
    /// The standby has a whole copy.
    Done,
}

impl<T> Replicator<T> {
    /// Returns the replicator of a node that copies nothing yet. `boot` must be higher in each life of
    /// the node.
    pub fn new(boot: Boot) -> Self {
        Self {
            boot,
            slots: vec![Copied::default(); SLOTS],
            peers: BTreeMap::new(),
            waiting: Queues::new(),
            patient: Queues::new(),
            counters: Counters::default(),
            outputs: VecDeque::new(),
        }
    }

    /// This node owns `slots` at `epoch`, and `standby` is to have their copies.
    pub fn standby(&mut self, now: Instant, slots: &[Slot], standby: Option<NodeId>, epoch: Epoch) {
        for &slot in slots {
            let copied = self.slots[usize::from(slot.0)];
            if (copied.standby, copied.epoch) == (standby, epoch) {
                continue;
            }
            let had_some = copied.progress != Progress::None;
            if let Some(peer) = self.forget(slot)
                && copied.standby != standby
                && had_some
            {
                peer.say(Item::Leave { slot });
            }
            self.unprotect(slot);
            let fresh = Copied { standby, epoch, ..Copied::default() };
            self.slots[usize::from(slot.0)] = fresh;
            if let Some(id) = standby {
                let boot = self.boot;
                let peer = self.peers.entry(id).or_insert_with(|| Peer::new(boot, now));
                peer.queued.insert(slot);
            }
        }
        self.ask_for_content();
    }

    /// This node no longer owns `slots`: what waits is dropped, and nothing more is said about them.
    pub fn lose(&mut self, slots: &[Slot]) {
        for &slot in slots {
            self.waiting.clear(slot);
            self.patient.clear(slot);
            self.forget(slot);
            self.slots[usize::from(slot.0)] = Copied::default();
        }
    }

    /// The link to a peer came up: a new stream begins.
    pub fn peer_up(&mut self, now: Instant, id: NodeId) {
        let boot = self.boot;
        self.peers.entry(id).or_insert_with(|| Peer::new(boot, now));
        self.end_stream(now, id, Phase::Streaming);
        self.begin(id);
        self.ask_for_content();
    }

    /// The link to a peer ended, and the stream with it.
    pub fn peer_down(&mut self, now: Instant, id: NodeId) {
        self.end_stream(now, id, Phase::Down);
    }

    /// A record has changed, and nothing waits for the standby to know: it is told soon, as
    /// [`flush`](Self::flush) finds it then.
    pub fn touch(&mut self, now: Instant, slot: Slot, key: Key) {
        if let Some(peer) = self.told_of(slot) {
            peer.say_later(now, Later { slot, key, told: Told::Change });
        }
    }

    /// A record has changed.
    pub fn change(&mut self, now: Instant, change: Change) {
        let Change { slot, key, value, barrier } = change;
        if barrier && value.as_ref().is_none_or(|value| value.len() <= VALUE_MAX) {
            let said = self.told_of(slot).map(|peer| peer.say_barrier(now, slot, key, value));
            if let Some(number) = said {
                self.slots[usize::from(slot.0)].barrier = number;
            }
        } else if let Some(peer) = self.told_of(slot) {
            peer.say_later(now, Later { slot, key, told: Told::Value(value) });
        }
    }

    /// Sends `what` of `slot`: now, or once the standby holds the slot's newest barrier.
    pub fn send(&mut self, slot: Slot, what: T) {
        let after = self.slots[usize::from(slot.0)].barrier;
        let waits = self.protector(slot).is_some_and(|peer| peer.acked < after);
        if waits || self.waiting.busy().contains(slot) {
            self.waiting.push(slot, after, what);
        } else {
            self.outputs.push_back(Output::Pass(what));
        }
    }

    /// Lets `what` of `slot` pass once the standby holds the slot's newest barrier, however late it is; at
    /// once when the slot has no whole copy, or has none any more. For what is to be done once, and in
    /// no hurry: whoever owns the slot next does it unless this node has.
    pub fn send_patiently(&mut self, slot: Slot, what: T) {
        let Copied { standby, progress, barrier: after, .. } = self.slots[usize::from(slot.0)];
        let peer = standby.filter(|_| progress == Progress::Done);
        let peer = peer.and_then(|id| self.peers.get(&id));
        if peer.is_some_and(|peer| peer.acked < after) || self.patient.busy().contains(slot) {
            self.patient.push(slot, after, what);
        } else {
            self.outputs.push_back(Output::Pass(what));
        }
    }

    /// Answers [`Output::Whole`] with all records of the slot. What was not asked for is ignored.
    pub fn provide(
        &mut self,
        now: Instant,
        slot: Slot,
        records: impl IntoIterator<Item = (Key, Bytes)>,
    ) {
        let copied = &mut self.slots[usize::from(slot.0)];
        let Some(peer) = copied.standby.and_then(|id| self.peers.get_mut(&id)) else { return };
        let Some((_, purpose)) = peer.asked.take_if(|asked| asked.0 == slot) else { return };
        let mut fit = Vec::new();
        let (mut sum, mut len) = (Sum::default(), 0);
        for (key, value) in records {
            if VALUE_MAX < value.len() {
                self.counters.too_long += 1;
                continue;
            }
            sum.add(&key, &value);
            len += weight(&key, Some(&value));
            fit.push((key, value));
        }
        let number = match purpose {
            Purpose::Check => {
                peer.say_now();
                peer.say_due(Some(slot), |key, _| {
                    let its = fit.iter().find(|(named, _)| named == key);
                    its.map(|(_, value)| value.clone())
                });
                peer.say(Item::Check { slot, sum })
            }
            Purpose::Copy if SLOT_MAX < len => {
                self.counters.too_long += 1;
                peer.failed.insert(slot);
                peer.retry_later(now);
                self.ask_for_content();
                return;
            }
            Purpose::Copy => {
                self.counters.copies += 1;
                copied.begun = peer.say(Item::Begin { slot, epoch: copied.epoch });
                for (key, value) in fit {
                    peer.say(Item::Record { slot, key, value: Some(value) });
                }
                let end = peer.say(Item::End { slot, sum });
                copied.progress = Progress::Sent { end };
                end
            }
        };
        peer.sums.push_back(Expected { number, slot, sum });
        self.ask_for_content();
    }

    /// Asks the standby of `slots` to take them, behind everything that was said about them. `records` is
    /// asked as by [`flush`](Self::flush).
    ///
    /// # Errors
    /// When one of them is not synced.
    pub fn hand_over(
        &mut self,
        slots: &[Slot],
        mut records: impl FnMut(&Key) -> Option<Bytes>,
    ) -> Result<(), NotSyncedError> {
        let mut takers: BTreeMap<NodeId, Vec<Slot>> = BTreeMap::new();
        for &slot in slots {
            let Copied { standby, progress, .. } = self.slots[usize::from(slot.0)];
            let taker =
                standby.filter(|_| progress == Progress::Done).ok_or(NotSyncedError(slot))?;
            takers.entry(taker).or_default().push(slot);
        }
        for (id, slots) in takers {
            let Some(peer) = self.peers.get_mut(&id) else { continue };
            peer.say_now();
            peer.say_due(None, |key, told| self.counters.fitting(&mut records, key, told));
            peer.say(Item::HandOver { slots });
        }
        Ok(())
    }

    /// What was said goes to the standbys, in one frame each; barriers with the next
    /// [`handle_timeout`](Self::handle_timeout), which is due at once, or, when others were sent just
    /// before, within 4.25 ms: each frame is answered, and an owner that takes in many messages
    /// meanwhile pays for one.
    ///
    /// `records` says what the record of a name is now, `None` when there is none any more.
    pub fn flush(&mut self, now: Instant, mut records: impl FnMut(&Key) -> Option<Bytes>) {
        let mut choked = Vec::new();
        for (&id, peer) in &mut self.peers {
            if peer.phase != Phase::Streaming {
                continue;
            }
            if peer.is_choked() {
                choked.push(id);
                continue;
            }
            peer.pass_by(now);
            peer.say_due(None, |key, told| self.counters.fitting(&mut records, key, told));
            while let Some(batch) = peer.batch(now) {
                self.counters.batches += 1;
                for item in &batch.items {
                    if let Item::Record { value, .. } = item {
                        self.counters.items += 1;
                        self.counters.bytes += value.as_ref().map_or(0, |value| value.len() as u64);
                    }
                }
                self.outputs.push_back(Output::Copy { peer: id, batch });
            }
        }
        for id in choked {
            self.counters.stalled += 1;
            self.end_stream(now, id, Phase::Stalled);
        }
    }

    /// Does what is due at `now`. Call [`flush`](Self::flush) after it, or what is to be sent then waits
    /// for another reason to: [`poll_timeout`](Self::poll_timeout) may be `None` meanwhile.
    pub fn handle_timeout(&mut self, now: Instant) {
        let (mut late, mut again, mut silent) = (Vec::new(), Vec::new(), Vec::new());
        for (&id, peer) in &mut self.peers {
            if peer.is_silent(now) {
                silent.push(id);
                continue;
            }
            match peer.handle_timeout(now) {
                None => {}
                Some(Pace::Late) => late.push(id),
                Some(Pace::Caught) => self.outputs.push_back(Output::Caught { peer: id }),
            }
            if peer.retry_at.is_some_and(|at| at <= now) {
                peer.retry_at = None;
                if peer.phase == Phase::Resting {
                    again.push(id);
                } else {
                    let failed = std::mem::take(&mut peer.failed);
                    peer.queued.extend(failed);
                }
            }
        }
        for id in late {
            self.counters.late += 1;
            self.outputs.push_back(Output::Late { peer: id });
            self.release(id);
        }
        for id in again {
            self.peer_up(now, id);
        }
        for id in silent {
            self.counters.stalled += 1;
            self.end_stream(now, id, Phase::Resting);
        }
        self.check(now);
        self.ask_for_content();
    }

    /// Returns the next thing to do, `None` when nothing is left.
    pub fn poll_output(&mut self) -> Option<Output<T>> {
        self.outputs.pop_front()
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next needed.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.peers.values().filter_map(Peer::poll_timeout).min()
    }

    /// Returns whether the death of this node would lose nothing of `slot` that a barrier covers.
    pub fn is_protected(&self, slot: Slot) -> bool {
        self.protector(slot).is_some()
    }

    /// Returns what happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns how many things wait for a standby.
    pub fn waiting(&self) -> usize {
        let queues = [&self.waiting, &self.patient].into_iter();
        let slots = queues.flat_map(|queues| queues.busy().iter().map(|slot| queues.len_of(slot)));
        slots.sum()
    }

    /// Returns how many things of `slot` wait for its standby.
    pub fn waiting_of(&self, slot: Slot) -> usize {
        self.waiting.len_of(slot) + self.patient.len_of(slot)
    }

    /// Returns the standby that is told of changes in `slot`.
    fn told_of(&mut self, slot: Slot) -> Option<&mut Peer> {
        let Copied { standby, progress, .. } = self.slots[usize::from(slot.0)];
        self.peers.get_mut(&standby.filter(|_| progress != Progress::None)?)
    }

    /// Returns the standby for which what is sent of `slot` waits.
    fn protector(&self, slot: Slot) -> Option<&Peer> {
        let copied = self.slots[usize::from(slot.0)];
        let peer = self.peers.get(&copied.standby?)?;
        (copied.progress == Progress::Done && peer.late_until.is_none()).then_some(peer)
    }

    /// Lets everything of `slot` pass.
    fn unprotect(&mut self, slot: Slot) {
        for queues in [&mut self.waiting, &mut self.patient] {
            queues.pass(slot, u64::MAX, |what| self.outputs.push_back(Output::Pass(what)));
        }
    }

    /// Lets pass what waits for the standby `id` no longer.
    fn release(&mut self, id: NodeId) {
        let Some(peer) = self.peers.get(&id) else { return };
        // For one that is late only what is patient waits.
        let acked = if peer.late_until.is_some() { u64::MAX } else { peer.acked };
        for (queues, acked) in [(&mut self.waiting, acked), (&mut self.patient, peer.acked)] {
            for slot in queues.busy().iter() {
                if self.slots[usize::from(slot.0)].standby == Some(id) {
                    queues.pass(slot, acked, |what| self.outputs.push_back(Output::Pass(what)));
                }
            }
        }
    }

    /// Asks for nothing of `slot` and says nothing about it any more; returns its standby.
    fn forget(&mut self, slot: Slot) -> Option<&mut Peer> {
        let id = self.slots[usize::from(slot.0)].standby?;
        let peer = self.peers.get_mut(&id)?;
        peer.forget(slot);
        Some(peer)
    }

    /// Ends the stream to `id`, if there is one: its slots are unprotected.
    fn end_stream(&mut self, now: Instant, id: NodeId, phase: Phase) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.clear(now, phase);
        let mut unsynced = Vec::new();
        for slot in (0..=u8::MAX).map(Slot) {
            let copied = &mut self.slots[usize::from(slot.0)];
            if copied.standby != Some(id) {
                continue;
            }
            if copied.progress == Progress::Done {
                unsynced.push(slot);
            }
            *copied = Copied { standby: Some(id), epoch: copied.epoch, ..Copied::default() };
            self.unprotect(slot);
        }
        self.unsynced(id, unsynced);
    }

    /// Says that `slots` have no whole copy any more.
    fn unsynced(&mut self, peer: NodeId, slots: Vec<Slot>) {
        if !slots.is_empty() {
            self.outputs.push_back(Output::Unsynced { peer, slots });
        }
    }

    /// Queues every slot of the standby `id` for its new stream.
    fn begin(&mut self, id: NodeId) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let slots = (0..=u8::MAX).map(Slot);
        let its = slots.filter(|slot| self.slots[usize::from(slot.0)].standby == Some(id));
        peer.queued = its.collect();
    }

    /// Asks for the content of the next slot of every standby that has room.
    fn ask_for_content(&mut self) {
        for peer in self.peers.values_mut() {
            if peer.phase == Phase::Streaming
                && peer.asked.is_none()
                && peer.has_room()
                && let Some(slot) = peer.queued.pop_first()
            {
                peer.asked = Some((slot, Purpose::Copy));
                self.outputs.push_back(Output::Whole { slot });
            }
        }
    }

    /// Asks for the content of one slot of every standby, to compare it.
    fn check(&mut self, now: Instant) {
        for (&id, peer) in &mut self.peers {
            if peer.phase != Phase::Streaming || now < peer.check_at {
                continue;
            }
            peer.check_at = now + CHECK_PERIOD;
            if peer.asked.is_some() || peer.late_until.is_some() || !peer.has_room() {
                continue;
            }
            let slots = (0..=u8::MAX).map(|offset| peer.check_next.wrapping_add(offset));
            let synced = |slot: &u8| {
                let copied = self.slots[usize::from(*slot)];
                copied.standby == Some(id) && copied.progress == Progress::Done
            };
            let Some(slot) = slots.into_iter().find(synced) else { continue };
            peer.check_next = slot.wrapping_add(1);
            peer.asked = Some((Slot(slot), Purpose::Check));
            self.outputs.push_back(Output::Whole { slot: Slot(slot) });
        }
    }
}
