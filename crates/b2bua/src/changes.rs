//! What has to be stored elsewhere before messages may leave.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use failover::Slot;
use failover::replica::Key;
use siphasher::sip::SipHasher13;

/// The records that changed and were not reported yet.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Whether anybody wants to know.
    is_on: bool,
    pending: BTreeMap<Key, (Slot, bool)>,
}

impl Changes {
    pub(crate) fn new(is_on: bool) -> Self {
        Self { is_on, pending: BTreeMap::new() }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Notes that a record is another one now, or gone.
    pub(crate) fn note(&mut self, slot: Slot, key: Key, barrier: bool) {
        if self.is_on {
            self.pending.entry(key).or_insert((slot, false)).1 |= barrier;
        }
    }

    pub(crate) fn pop(&mut self) -> Option<(Key, Slot, bool)> {
        self.pending.pop_first().map(|(key, (slot, barrier))| (key, slot, barrier))
    }

    /// Drops what is not to be reported any more.
    pub(crate) fn retain(&mut self, keep: impl Fn(Slot) -> bool) {
        self.pending.retain(|_, (slot, _)| keep(*slot));
    }
}

/// Returns a hash by which a record is known to be the same as before.
pub(crate) fn digest(value: &impl Hash) -> u64 {
    let mut hasher = SipHasher13::new();
    value.hash(&mut hasher);
    hasher.finish()
}
