//! Records of slots that were won, on their way into the call machine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use b2bua::Input;
use bytes::Bytes;
use failover::record::Value;
use failover::replica::Key;
use failover::{Boot, CallRecord, NodeId, Slot, SlotSet};
use tracing::error;

use super::B2bRole;
use crate::frames;

/// What is known of slots and not gone on with yet. A death can leave thousands of calls, and a turn
/// that takes them all is longer than a lease: they come in parts, each slot as soon as somebody asks
/// for it.
#[derive(Debug, Default)]
pub(super) struct Restoring {
    slots: BTreeMap<Slot, BTreeMap<Key, Record>>,
    /// When the next part is due.
    next_at: Option<Instant>,
    /// Of these the standby waits for the records.
    awaited: BTreeSet<Slot>,
    /// Mediagates of which it was said that they are gone.
    gone: BTreeSet<(NodeId, Boot)>,
    /// How many records could not be read.
    unread: usize,
    /// Whether the last record has been taken, and nobody was told.
    is_done: bool,
}

/// A value as it was found.
#[derive(Debug)]
enum Record {
    Read(Value),
    Copied(Copied),
}

/// A copy of another b2b's record.
#[derive(Debug)]
pub(super) struct Copied {
    pub(super) bytes: Bytes,
    /// By how much its times are moved: who wrote it has a clock of its own.
    pub(super) by_ms: i64,
    /// Whether whoever wrote it may have gone on without telling.
    pub(super) is_old: bool,
}

impl Copied {
    fn read(&self, slot: Slot, key: &Key) -> Option<Value> {
        let mut value = frames::value_of(slot, key, &self.bytes)?;
        value.shift(self.by_ms);
        if self.is_old {
            doubt(&mut value);
        }
        Some(value)
    }
}

/// Phones may have hung up since this was written.
fn doubt(value: &mut Value) {
    if let Value::Call(record) = value {
        record.doubt();
    }
}

impl Restoring {
    /// Takes in the copies that another b2b's death left.
    pub(super) fn copied(
        &mut self,
        now: Instant,
        copies: impl IntoIterator<Item = (Slot, Key, Copied)>,
    ) {
        for (slot, key, copied) in copies {
            self.slots.entry(slot).or_default().insert(key, Record::Copied(copied));
        }
        self.begin(now);
    }

    /// Takes in what an earlier life of this process kept. What a standby of it held is newer. Returns
    /// the bindings: they are looked up from every slot.
    pub(super) fn kept(
        &mut self,
        now: Instant,
        kept: Vec<(Slot, Key, Value)>,
    ) -> Vec<(Slot, Key, Value)> {
        let mut bindings = Vec::new();
        for (slot, key, mut value) in kept {
            doubt(&mut value);
            let copied = self.slots.get(&slot).is_some_and(|records| records.contains_key(&key));
            match value {
                _ if copied => {}
                Value::Bindings(_) => bindings.push((slot, key, value)),
                Value::Call(_) | Value::Ended(_) => {
                    self.slots.entry(slot).or_default().insert(key, Record::Read(value));
                }
            }
        }
        self.begin(now);
        bindings
    }

    /// Returns what is here of a slot, but for what cannot be read.
    pub(super) fn take(&mut self, slot: Slot) -> Vec<(Key, Value)> {
        let records = self.slots.remove(&slot).unwrap_or_default();
        let count = records.len();
        let read = records.into_iter().filter_map(|(key, record)| match record {
            Record::Read(value) => Some((key, value)),
            Record::Copied(copied) => {
                let value = copied.read(slot, &key)?;
                Some((key, value))
            }
        });
        let read: Vec<_> = read.collect();
        self.unread += count - read.len();
        self.is_done = self.slots.is_empty();
        read
    }

    /// The standby waits for the records of a slot.
    pub(super) fn await_slot(&mut self, slot: Slot) {
        self.awaited.insert(slot);
    }

    /// Returns the slots of the next part, if one is due at `now`.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Slot> {
        if self.next_at.is_none_or(|at| now < at) {
            return Vec::new();
        }
        let mut count = 0;
        let due = self.slots.iter().take_while(|(_, records)| {
            let is_due = count < PART;
            count += records.len();
            is_due
        });
        let due: Vec<Slot> = due.map(|(slot, _)| *slot).collect();
        self.next_at = (due.len() < self.slots.len()).then_some(now + PAUSE);
        due
    }

    /// Leaves slots to their next owner.
    pub(super) fn lose(&mut self, slots: SlotSet) {
        self.slots.retain(|slot, _| !slots.contains(*slot));
        self.awaited.retain(|slot| !slots.contains(*slot));
        self.is_done |= self.slots.is_empty() && self.next_at.is_some();
    }

    /// Returns whether something of `slot` is here.
    pub(super) fn has(&self, slot: Slot) -> bool {
        self.slots.contains_key(&slot)
    }

    /// Returns whether nothing is here.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the calls that are here.
    pub(super) fn calls(&self) -> impl Iterator<Item = CallRecord> {
        self.slots.values().flat_map(BTreeMap::values).filter_map(|record| {
            let value = match record {
                Record::Read(value) => value.clone(),
                Record::Copied(copied) => frames::value(&copied.bytes)?,
            };
            match value {
                Value::Call(record) => Some(*record),
                Value::Ended(_) | Value::Bindings(_) => None,
            }
        })
    }

    /// Returns when [`due`](Self::due) is next needed.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.next_at
    }

    fn begin(&mut self, now: Instant) {
        if !self.slots.is_empty() && self.next_at.is_none() {
            self.next_at = Some(now);
        }
    }
}

impl B2bRole {
    /// Goes on with the next part of what is known of slots that were won; returns whether there was one.
    pub(super) fn restore_due(&mut self, now: Instant) -> bool {
        let due = self.restoring.due(now);
        due.iter().for_each(|slot| self.restore_slot(now, *slot));
        !due.is_empty()
    }

    /// Goes on with what is known of a slot.
    pub(super) fn restore_slot(&mut self, now: Instant, slot: Slot) {
        let values = self.restoring.take(slot);
        // Told before the calls are there, so that none moves to another one that is gone.
        for (gateway, boot) in places(&values) {
            if self.is_gone(gateway, boot) && self.restoring.gone.insert((gateway, boot)) {
                self.b2b.handle_input(now, Input::GatewayDead { gateway, boot });
            }
        }
        for (key, value) in values {
            self.b2b.restore(now, slot, &key, Some(value));
        }
        if self.restoring.awaited.remove(&slot) {
            self.provide(now, slot);
        }
    }

    /// Returns, once, whether all that was known of slots that were won is gone on with.
    pub(crate) fn has_restored(&mut self) -> bool {
        if !std::mem::take(&mut self.restoring.is_done) {
            return false;
        }
        self.restoring.gone.clear();
        let unread = std::mem::take(&mut self.restoring.unread);
        if 0 < unread {
            self.unread += unread as u64;
            error!(unread, "copies of the owner before cannot be read: their calls are lost");
        }
        true
    }

    /// Returns the calls that this b2b owns and has not gone on with yet.
    pub(crate) fn coming_calls(&self) -> impl Iterator<Item = CallRecord> {
        self.restoring.calls()
    }

    /// Returns when the next part of what is known of slots is due.
    pub(crate) fn restoring_at(&self) -> Option<Instant> {
        self.restoring.poll_timeout()
    }
}

/// Returns where the media of these calls is, and where it would go next.
fn places(values: &[(Key, Value)]) -> BTreeSet<(NodeId, Boot)> {
    let records = values.iter().filter_map(|(_, value)| match value {
        Value::Call(record) => Some(record),
        Value::Ended(_) | Value::Bindings(_) => None,
    });
    let places = records.flat_map(|record| record.holder.iter().chain(&record.standby));
    places.map(|place| (place.gateway, place.boot)).collect()
}

/// So many records make a part, and what is left of a slot: some milliseconds of work.
const PART: usize = 256;

/// Between two parts, for what came meanwhile.
const PAUSE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests;
