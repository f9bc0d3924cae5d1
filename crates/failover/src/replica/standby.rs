//! The standby's side: the copies that a node holds for others.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::{
    Ack, Batch, HELD_MAX, Item, Key, Refusal, Refused, SLOT_MAX, StreamId, Sum, VALUE_MAX, weight,
};
use crate::slots::SLOTS;
use crate::{Boot, Epoch, NodeId, Slot};

/// Holds the copies of other nodes' slots. See the [module](super).
#[derive(Clone, Debug)]
pub struct Replica {
    kinds: Vec<u16>,
    is_readable: fn(Slot, &Key, &[u8]) -> bool,
    /// Changes that were taken in unread since the last one that was read.
    unread: u32,
    sources: BTreeMap<NodeId, Source>,
    slots: Vec<SlotCopy>,
    len: usize,
    counters: ReplicaCounters,
    outputs: VecDeque<ReplicaOutput>,
}

/// What a replica tells its node, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaOutput {
    /// The bindings of an address of record, as its owner has them now: to be read here, not written.
    Copied {
        /// The slot of the address.
        slot: Slot,
        /// The address.
        key: Key,
        /// Its bindings; `None` when there are none.
        value: Option<Bytes>,
    },
    /// The owner gives these slots away; everything it has to say about them was said.
    HandOver {
        /// The owner.
        from: NodeId,
        /// Its epoch of them.
        epoch: Epoch,
        /// The slots of which a whole copy is here.
        slots: Vec<Slot>,
    },
}

/// What is here of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// No owner has ever sent it.
    Nothing,
    /// A part, or what an earlier stream left.
    Part,
    /// All that the owner had, as far as the stream came.
    Whole,
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaCounters {
    /// Batches of a stream, or of a part of it, that was taken in before.
    pub replayed: u64,
    /// Batches before which others were missing.
    pub broken: u64,
    /// Slots of an older epoch than is known here.
    pub older_epochs: u64,
    /// Slots refused for another reason.
    pub refused: u64,
    /// Slots that were not what their owner said.
    pub differed: u64,
}

#[derive(Clone, Copy, Debug)]
struct Source {
    stream: StreamId,
    taken: u64,
    broken: bool,
}

#[derive(Clone, Debug, Default)]
struct SlotCopy {
    /// Nothing of a lower epoch is taken.
    epoch: Epoch,
    /// Whose records these are.
    from: Option<(NodeId, StreamId)>,
    /// Whose bindings these are, after it copied the slot here no more.
    left_by: Option<(NodeId, Boot)>,
    whole: bool,
    records: Records,
    /// What a new stream has brought so far; the older records stay until it is complete.
    filling: Option<Records>,
    len: usize,
}

/// Values by name. Each has memory of its own, in which the next one of its name finds room.
type Records = BTreeMap<Key, Vec<u8>>;

impl Replica {
    /// Returns the replica of a node that holds nothing, and can read values of these kinds.
    ///
    /// `is_readable` says whether a value is indeed a record of that name and slot. It is asked for each
    /// record of a whole copy, for the first change of a stream, one in 64 after it, and for all
    /// that is here of a slot when its owner asks what that is: so another version's or another
    /// cluster's form is found, and most changes need not be read.
    pub fn new(
        kinds: impl IntoIterator<Item = u16>,
        is_readable: fn(Slot, &Key, &[u8]) -> bool,
    ) -> Self {
        Self {
            kinds: kinds.into_iter().collect(),
            is_readable,
            unread: SAMPLE,
            sources: BTreeMap::new(),
            slots: vec![SlotCopy::default(); SLOTS],
            len: 0,
            counters: ReplicaCounters::default(),
            outputs: VecDeque::new(),
        }
    }

    /// Takes in what an owner sent; returns what to answer, if anything.
    pub fn copy<V: AsRef<[u8]>>(&mut self, from: NodeId, batch: Batch<V>) -> Option<Ack> {
        let stream = batch.stream;
        if self.sources.get(&from).is_none_or(|source| source.stream < stream) {
            self.begin(from, stream);
        }
        let source = self.sources.get_mut(&from)?;
        if stream < source.stream {
            self.counters.replayed += 1;
            return None;
        }
        let mut ack =
            Ack { stream, taken: source.taken, broken: false, held: vec![], refused: vec![] };
        let last = batch.first.saturating_add(batch.items.len() as u64).saturating_sub(1);
        if last <= source.taken {
            self.counters.replayed += 1;
            return Some(ack);
        }
        if batch.first != source.taken + 1 || source.broken {
            source.broken = true;
            self.counters.broken += 1;
            ack.broken = true;
            return Some(ack);
        }
        source.taken = last;
        for item in batch.items {
            ack.taken += 1;
            self.item((from, stream), item, &mut ack);
        }
        Some(ack)
    }

    /// Gives away everything that is here of `slots`, whose owner this node is from now on, at `epoch`:
    /// copies of this epoch or an older one are refused.
    pub fn take(&mut self, slots: &[Slot], epoch: Epoch) -> Vec<(Slot, Key, Bytes)> {
        let mut taken = Vec::new();
        for &slot in slots {
            let copy = std::mem::take(&mut self.slots[usize::from(slot.0)]);
            self.len -= copy.len;
            let floor = copy.epoch.max(Epoch(epoch.0.saturating_add(1)));
            self.slots[usize::from(slot.0)].epoch = floor;
            let mut records = copy.records;
            records.extend(copy.filling.into_iter().flatten());
            taken.extend(records.into_iter().map(|(key, value)| (slot, key, value.into())));
        }
        taken
    }

    /// Returns the next thing to tell the node, `None` when nothing is left.
    pub fn poll_output(&mut self) -> Option<ReplicaOutput> {
        self.outputs.pop_front()
    }

    /// Returns what is here of `slot`.
    pub fn held(&self, slot: Slot) -> Held {
        let copy = &self.slots[usize::from(slot.0)];
        match copy.from {
            _ if copy.whole => Held::Whole,
            None => Held::Nothing,
            Some(_) => Held::Part,
        }
    }

    /// Returns who wrote what is here of `slot`, and in which of its lives.
    pub fn source(&self, slot: Slot) -> Option<(NodeId, Boot)> {
        let copy = &self.slots[usize::from(slot.0)];
        copy.from.map(|(node, stream)| (node, stream.boot)).or(copy.left_by)
    }

    /// Learns that `owner` has `slot`: the bindings that another one left here are out of date.
    pub fn reigns(&mut self, slot: Slot, owner: NodeId) {
        let left_by = self.slots[usize::from(slot.0)].left_by;
        if left_by.is_some_and(|(node, _)| node != owner) {
            self.drop_slot(slot);
        }
    }

    /// Returns the records that are here of `slot`, by key; not those of a copy that is still coming.
    pub fn records(&self, slot: Slot) -> impl Iterator<Item = (&Key, &[u8])> {
        let records = self.slots[usize::from(slot.0)].records.iter();
        records.map(|(key, value)| (key, value.as_slice()))
    }

    /// Returns how many bytes are held, roughly.
    pub fn held_len(&self) -> usize {
        self.len
    }

    /// Returns what happened so far.
    pub fn counters(&self) -> ReplicaCounters {
        self.counters
    }

    /// What came in an earlier stream of `from` may be out of date from now on.
    fn begin(&mut self, from: NodeId, stream: StreamId) {
        self.unread = SAMPLE;
        self.sources.insert(from, Source { stream, taken: 0, broken: false });
        for copy in &mut self.slots {
            if copy.from.is_some_and(|(node, _)| node == from) {
                copy.whole = false;
            }
        }
    }

    fn item<V: AsRef<[u8]>>(&mut self, source: (NodeId, StreamId), item: Item<V>, ack: &mut Ack) {
        match item {
            Item::Begin { slot, epoch } => {
                let copy = &mut self.slots[usize::from(slot.0)];
                let other = copy.from.is_some_and(|(node, _)| node != source.0);
                if epoch < copy.epoch || (epoch == copy.epoch && other) {
                    self.counters.older_epochs += 1;
                    let refusal = Refusal::OlderEpoch(copy.epoch);
                    ack.refused.push(Refused { slot, item: ack.taken, refusal });
                    return;
                }
                if copy.left_by.is_some_and(|left_by| left_by != (source.0, source.1.boot)) {
                    self.drop_slot(slot);
                }
                let copy = &mut self.slots[usize::from(slot.0)];
                copy.epoch = epoch;
                copy.from = Some(source);
                copy.left_by = None;
                copy.whole = false;
                let abandoned = copy.filling.replace(Records::new()).unwrap_or_default();
                let len = len_of(&abandoned);
                copy.len -= len;
                self.len -= len;
            }
            Item::Record { slot, key, value } => {
                self.record(source, slot, key, value.as_ref().map(V::as_ref), ack);
            }
            Item::End { slot, sum } => self.end(source, slot, sum, ack),
            Item::Check { slot, sum } => self.check(source, slot, sum, ack),
            Item::Leave { slot } => {
                if self.slots[usize::from(slot.0)].from == Some(source) {
                    self.leave(slot);
                }
            }
            Item::HandOver { slots } => {
                let mut offers: BTreeMap<Epoch, Vec<Slot>> = BTreeMap::new();
                for slot in slots {
                    let copy = &self.slots[usize::from(slot.0)];
                    if copy.from == Some(source) && copy.whole {
                        offers.entry(copy.epoch).or_default().push(slot);
                    }
                }
                let offers = offers.into_iter();
                let offers = offers.map(|(epoch, slots)| ReplicaOutput::HandOver {
                    from: source.0,
                    epoch,
                    slots,
                });
                self.outputs.extend(offers);
            }
        }
    }

    fn record(
        &mut self,
        source: (NodeId, StreamId),
        slot: Slot,
        key: Key,
        value: Option<&[u8]>,
        ack: &mut Ack,
    ) {
        let copy = &mut self.slots[usize::from(slot.0)];
        let refusal = if copy.from == Some(source) {
            let (copy_len, is_change) = (copy.len, copy.filling.is_none());
            value.and_then(|value| {
                self.refusal(value, copy_len).or_else(|| self.sample(is_change, slot, &key, value))
            })
        } else {
            Some(Refusal::NotBegun)
        };
        if let Some(refusal) = refusal {
            let said = |refused: &Refused| (refused.slot, refused.refusal) == (slot, refusal);
            if !ack.refused.iter().any(said) {
                self.counters.refused += 1;
                ack.refused.push(Refused { slot, item: ack.taken, refusal });
            }
            if refusal != Refusal::NotBegun {
                self.drop_slot(slot);
            }
            return;
        }
        let copy = &mut self.slots[usize::from(slot.0)];
        let shown = copy.filling.is_none() && matches!(key, Key::Aor(_));
        let records = copy.filling.as_mut().unwrap_or(&mut copy.records);
        if shown {
            let (key, value) = (key.clone(), value.map(Bytes::copy_from_slice));
            self.outputs.push_back(ReplicaOutput::Copied { slot, key, value });
        }
        let key_len = weight(&key, None);
        let added = value.map_or(0, |value| key_len + value.len());
        let older = match value {
            Some(value) => put(records, key, value),
            None => records.remove(&key).map(|value| value.len()),
        };
        let gone = older.map_or(0, |len| key_len + len);
        copy.len = copy.len + added - gone;
        self.len = self.len + added - gone;
    }

    /// Returns why `value` is not taken, if so.
    fn refusal(&self, value: &[u8], copy_len: usize) -> Option<Refusal> {
        let kind = match *value {
            [high, low, ..] => u16::from_be_bytes([high, low]),
            [] | [_] => 0,
        };
        if !self.kinds.contains(&kind) {
            return Some(Refusal::Kind(kind));
        }
        let full =
            VALUE_MAX < value.len() || 4 * SLOT_MAX < copy_len || HELD_MAX < self.len + value.len();
        full.then_some(Refusal::Full)
    }

    /// Reads some of the changes; returns why one is not taken, if so.
    fn sample(&mut self, is_change: bool, slot: Slot, key: &Key, value: &[u8]) -> Option<Refusal> {
        if !is_change {
            return None;
        }
        self.unread += 1;
        if self.unread < SAMPLE {
            return None;
        }
        self.unread = 0;
        (!(self.is_readable)(slot, key, value)).then_some(Refusal::Unreadable)
    }

    /// A slot is complete: it takes the place of what was here before, if it is what the owner said.
    fn end(&mut self, source: (NodeId, StreamId), slot: Slot, sum: Sum, ack: &mut Ack) {
        let copy = &mut self.slots[usize::from(slot.0)];
        if copy.from != Some(source) {
            return;
        }
        let Some(fresh) = copy.filling.take() else { return };
        if !fresh.iter().all(|(key, value)| (self.is_readable)(slot, key, value)) {
            return self.refuse(slot, Refusal::Unreadable, ack);
        }
        let held = sum_of(&fresh);
        ack.held.push((slot, held));
        self.counters.differed += u64::from(held != sum);
        copy.whole = held == sum;
        let before = std::mem::replace(&mut copy.records, fresh);
        let len = len_of(&before);
        copy.len -= len;
        self.len -= len;
        let gone = before.into_keys().filter(|key| !copy.records.contains_key(key));
        let gone = gone.map(|key| (key, None));
        let here = copy.records.iter().map(|(key, value)| (key.clone(), Some(value.as_slice())));
        let aors = gone.chain(here).filter(|(key, _)| matches!(key, Key::Aor(_)));
        let copied = aors.map(|(key, value)| {
            let value = value.map(Bytes::copy_from_slice);
            ReplicaOutput::Copied { slot, key, value }
        });
        self.outputs.extend(copied);
    }

    /// Says what is here of a slot, once all of it was read.
    fn check(&mut self, source: (NodeId, StreamId), slot: Slot, sum: Sum, ack: &mut Ack) {
        let copy = &mut self.slots[usize::from(slot.0)];
        if copy.from != Some(source) {
            return;
        }
        if !copy.records.iter().all(|(key, value)| (self.is_readable)(slot, key, value)) {
            return self.refuse(slot, Refusal::Unreadable, ack);
        }
        let held = sum_of(&copy.records);
        copy.whole &= held == sum;
        self.counters.differed += u64::from(held != sum);
        ack.held.push((slot, held));
    }

    /// Takes nothing of `slot` any more.
    fn refuse(&mut self, slot: Slot, refusal: Refusal, ack: &mut Ack) {
        self.counters.refused += 1;
        ack.refused.push(Refused { slot, item: ack.taken, refusal });
        self.drop_slot(slot);
    }

    /// Forgets the calls of `slot`, whose owner copies them here no more. Its bindings are read until
    /// the slot has another owner: after a cut this one may have given up a standby that it finds again.
    fn leave(&mut self, slot: Slot) {
        let copy = std::mem::take(&mut self.slots[usize::from(slot.0)]);
        let mut records = copy.records;
        records.retain(|key, _| matches!(key, Key::Aor(_)));
        let len = records.iter().map(|(key, value)| weight(key, Some(value))).sum();
        self.len -= copy.len - len;
        let from = copy.from.filter(|_| !records.is_empty());
        let left_by = from.map(|(node, stream)| (node, stream.boot));
        let left = SlotCopy { epoch: copy.epoch, left_by, records, len, ..SlotCopy::default() };
        self.slots[usize::from(slot.0)] = left;
    }

    /// Forgets what is here of `slot`, but for its epoch.
    fn drop_slot(&mut self, slot: Slot) {
        let copy = &mut self.slots[usize::from(slot.0)];
        self.len -= copy.len;
        let copy = std::mem::replace(copy, SlotCopy { epoch: copy.epoch, ..SlotCopy::default() });
        let aors = copy.records.into_keys().filter(|key| matches!(key, Key::Aor(_)));
        let gone = aors.map(|key| ReplicaOutput::Copied { slot, key, value: None });
        self.outputs.extend(gone);
    }
}

/// One in so many changes is read before it is taken.
pub(super) const SAMPLE: u32 = 64;

/// Puts a value in the place of an older one; returns how long that was.
fn put(records: &mut Records, key: Key, value: &[u8]) -> Option<usize> {
    match records.entry(key) {
        Entry::Vacant(place) => {
            place.insert(value.to_vec());
            None
        }
        Entry::Occupied(place) => {
            let place = place.into_mut();
            let older = place.len();
            if (value.len()..=2 * value.len()).contains(&place.capacity()) {
                place.clear();
                place.extend_from_slice(value);
            } else {
                *place = value.to_vec();
            }
            Some(older)
        }
    }
}

fn len_of(records: &Records) -> usize {
    records.iter().map(|(key, value)| weight(key, Some(value))).sum()
}

fn sum_of(records: &Records) -> Sum {
    let mut sum = Sum::default();
    records.iter().for_each(|(key, value)| sum.add(key, value));
    sum
}
