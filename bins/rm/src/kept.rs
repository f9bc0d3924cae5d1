//! The local store: what a restart of the only b2b finds.

use std::collections::BTreeMap;
use std::time::Instant;

use bytes::Bytes;
use driver::store::{Loaded, Store};
use failover::record::Value;
use failover::replica::Key;
use failover::{Slot, SlotSet};
use tracing::{info, warn};

use crate::frames;

/// Records on the local disk, and those of an earlier life whose slots are not owned yet.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) store: Store,
    found: BTreeMap<Slot, Vec<(Key, Value)>>,
    /// Whether the operator was told that nothing is written.
    is_in_trouble: bool,
}

impl Kept {
    /// Reads what was found; what cannot be read is named and left.
    pub(crate) fn new((store, loaded): (Store, Loaded)) -> Self {
        for fault in &loaded.faults {
            warn!(%fault, "something of the store is lost");
        }
        let mut found: BTreeMap<Slot, Vec<(Key, Value)>> = BTreeMap::new();
        let (mut read, mut unread) = (0_usize, loaded.more_faults);
        for (name, bytes) in loaded.values {
            let name = driver::codec::decode::<(Slot, Key)>(&name);
            if let (Ok((slot, key)), Some(value)) = (name, frames::value(&bytes)) {
                found.entry(slot).or_default().push((key, value));
                read += 1;
            } else {
                unread += 1;
            }
        }
        info!(read, unread, "the store is open");
        Self { store, found, is_in_trouble: false }
    }

    /// Keeps a record, or that it is gone.
    pub(crate) fn put(&mut self, now: Instant, slot: Slot, key: &Key, value: Option<&Bytes>) {
        // While the disk takes nothing they are kept in memory.
        let keep = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
        self.store.put(now, keep(&driver::codec::encode(&(slot, key))), value.map(keep));
        let trouble = self.store.health().trouble;
        if trouble.is_some() != self.is_in_trouble {
            self.is_in_trouble = trouble.is_some();
            match trouble {
                Some(trouble) => warn!(%trouble, "calls would not outlive a restart"),
                None => info!("the store takes records again"),
            }
        }
    }

    /// Gives away what was found of these slots.
    pub(crate) fn take(&mut self, slots: SlotSet) -> Vec<(Slot, Key, Value)> {
        let found = slots.iter().filter_map(|slot| Some((slot, self.found.remove(&slot)?)));
        found
            .flat_map(|(slot, records)| {
                records.into_iter().map(move |(key, value)| (slot, key, value))
            })
            .collect()
    }
}
