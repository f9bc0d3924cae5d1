//! Copies of records: from the owner of a slot to its standby, in one ordered stream.
//!
//! A [`Replicator`] stands at the owner. It sends each standby one stream of [`Batch`]es: for every
//! slot first the whole content, then each change; the standby answers with an [`Ack`]. What may leave
//! only after the standby holds a change (a *barrier*) is kept back by the `Replicator`, for
//! [`BARRIER_MAX`] at most: then that standby is late, its slots are unprotected, and nothing waits for
//! it until it keeps up again.
//!
//! A [`Replica`] stands at the standby. It believes a copy of a slot to be whole only after count and
//! digest agreed, refuses what is older than what it knows, and gives the records away when its node
//! takes the slot.
//!
//! Values are opaque here but for their first two bytes, in network order: the kind, by which a standby
//! of an older version says that it could not read them. A slot that a standby refuses is unprotected,
//! and tried again, later each time: the record in the way may be gone.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{Aor, Boot, CallId, Epoch, Slot};

mod owner;
mod peer;
mod standby;
#[cfg(test)]
mod tests;
mod waiting;

pub use owner::{Counters, NotSyncedError, Output, Replicator};
pub use standby::{Held, Replica, ReplicaCounters, ReplicaOutput};

/// What a record is filed under.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Key {
    /// A call, or the tombstone that is left of it.
    Call(CallId),
    /// The bindings of an address of record, which are few beside the calls: boxed, so that what names a
    /// call is small.
    Aor(Box<Aor>),
}

/// A record that has changed at the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Where it belongs.
    pub slot: Slot,
    /// Its name.
    pub key: Key,
    /// What it is now; `None` when it is gone.
    pub value: Option<Bytes>,
    /// Whether what is sent for this slot from now on must wait until the standby holds it.
    pub barrier: bool,
}

/// One stream of an owner to a standby. A later one has a higher number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StreamId {
    /// The owner's boot.
    pub boot: Boot,
    /// Counts its streams to this standby.
    pub number: u32,
}

/// Owner to standby: the next items of a stream. A standby may read the values where they lie, as `&[u8]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch<V = Bytes> {
    /// Which stream.
    pub stream: StreamId,
    /// The number of the first item; the first of a stream is 1.
    pub first: u64,
    /// What happened, in order; never empty.
    pub items: Vec<Item<V>>,
}

/// One step of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Item<V = Bytes> {
    /// All records of a slot follow.
    Begin {
        /// The slot.
        slot: Slot,
        /// The owner's epoch of it.
        epoch: Epoch,
    },
    /// A record, or that it is gone.
    Record {
        /// Where it belongs.
        slot: Slot,
        /// Its name.
        key: Key,
        /// What it is; `None` when it is gone.
        value: Option<V>,
    },
    /// That were all records of the slot; each later one of it is a change.
    End {
        /// The slot.
        slot: Slot,
        /// What the standby must have now.
        sum: Sum,
    },
    /// Asks again what the standby holds of a slot.
    Check {
        /// The slot.
        slot: Slot,
        /// What it must have now.
        sum: Sum,
    },
    /// The receiver is no longer the standby of the slot.
    Leave {
        /// The slot.
        slot: Slot,
    },
    /// The sender has said all about these slots and asks the receiver to take them.
    HandOver {
        /// The slots.
        slots: Vec<Slot>,
    },
}

/// Standby to owner: how much of a stream it has taken in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    /// Which stream.
    pub stream: StreamId,
    /// The number of the last item taken in.
    pub taken: u64,
    /// Items are missing: the owner must begin a new stream.
    pub broken: bool,
    /// What the standby holds of each slot that a batch ended or checked.
    pub held: Vec<(Slot, Sum)>,
    /// Slots of which it takes nothing in this stream any more.
    pub refused: Vec<Refused>,
}

/// A slot that a standby refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The slot.
    pub slot: Slot,
    /// The number of the item that it would not take.
    pub item: u64,
    /// Why.
    pub refusal: Refusal,
}

/// Why a standby takes nothing more of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It knows a later owner.
    #[error("a later epoch than {} is known", .0.0)]
    OlderEpoch(Epoch),
    /// A record of a slot that was not begun in this stream.
    #[error("a record of a slot that was not begun")]
    NotBegun,
    /// A value of a kind that it cannot read, from an owner of a later version.
    #[error("a record of kind {0:#06x}, which this version does not know")]
    Kind(u16),
    /// It holds as much as it may.
    #[error("no room for more records")]
    Full,
    /// A value of a kind that it knows, and that is no record of this name and slot: of another
    /// cluster, or of a version that did not change the kind.
    #[error("a record that cannot be read")]
    Unreadable,
}

/// Count and digest of the records of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// How many there are.
    pub count: u32,
    /// Depends on each key and value, not on their order.
    pub digest: u64,
}

impl Sum {
    /// Adds a record.
    pub fn add(&mut self, key: &Key, value: &[u8]) {
        let mut hash = Hash::new();
        match key {
            Key::Call(CallId(id)) => hash.part(&id.to_be_bytes()),
            Key::Aor(aor) => {
                hash.part(&aor.user);
                hash.part(&aor.domain);
            }
        }
        hash.part(value);
        self.count += 1;
        self.digest = self.digest.wrapping_add(hash.finish());
    }
}

/// FNV-1a of 64 bits over eight bytes at a time: it guards against faults, not against forgers, who have
/// no link.
struct Hash(u64);

impl Hash {
    const PRIME: u64 = 0x0000_0100_0000_01b3;

    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(Self::PRIME).rotate_left(23);
    }

    fn part(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.word(u64::from_le_bytes(word.try_into().expect("a chunk of eight")));
        }
        let mut last = [0; 8];
        last[..words.remainder().len()].copy_from_slice(words.remainder());
        self.word(u64::from_le_bytes(last));
    }

    fn finish(mut self) -> u64 {
        self.word(0);
        self.word(0);
        self.0 ^ (self.0 >> 32)
    }
}

/// How long anything waits for a standby, at most.
pub const BARRIER_MAX: std::time::Duration = std::time::Duration::from_millis(5);

/// The longest value that is copied, in bytes. A call with a longer one is served without a copy.
pub const VALUE_MAX: usize = 32 << 10;

/// The most that is copied of one slot, in bytes. A slot with more has no standby.
pub const SLOT_MAX: usize = 4 << 20;

/// The most that a standby holds of all slots, in bytes.
pub const HELD_MAX: usize = 1 << 30;

/// Returns what a record counts towards the bounds: its value and its key, roughly.
fn weight(key: &Key, value: Option<&[u8]>) -> usize {
    let key = match key {
        Key::Call(_) => 8,
        Key::Aor(aor) => aor.user.len() + aor.domain.len(),
    };
    32 + key + value.map_or(0, <[u8]>::len)
}
