//! The disk of a simulated host.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;

use super::{Health, Trouble};

/// What a store in memory leaves behind when its node dies. Its clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk(Arc<Mutex<Content>>);

#[derive(Debug, Default)]
struct Content {
    values: BTreeMap<Bytes, Bytes>,
    /// In the order in which they were put.
    recent: Vec<(Instant, Bytes, Option<Bytes>)>,
    trouble: Option<Trouble>,
    /// What is put meanwhile waits in the memory of the node.
    waiting: Vec<(Instant, Bytes, Option<Bytes>)>,
}

impl MemoryDisk {
    /// The node's host died at `now`: what was put within `window` before is lost.
    pub fn crash(&self, now: Instant, window: Duration) {
        let mut content = self.0.lock();
        content.recent.retain(|&(at, ..)| at + window <= now);
        content.settle();
        content.waiting.clear();
    }

    /// Takes nothing from now on, or all of it again.
    pub fn refuse(&self, trouble: Option<Trouble>) {
        let mut content = self.0.lock();
        content.trouble = trouble;
        if trouble.is_none() {
            let waiting = std::mem::take(&mut content.waiting);
            content.recent.extend(waiting);
        }
    }

    pub(super) fn health(&self) -> Health {
        let content = self.0.lock();
        Health { trouble: content.trouble, pending: content.waiting.len(), ..Health::default() }
    }

    pub(super) fn put(&self, now: Instant, key: Bytes, value: Option<Bytes>) {
        let mut content = self.0.lock();
        if RECENT_MAX <= content.recent.len() {
            content.settle();
        }
        match content.trouble {
            Some(_) => content.waiting.push((now, key, value)),
            None => content.recent.push((now, key, value)),
        }
    }

    pub(super) fn values(&self) -> Vec<(Bytes, Bytes)> {
        let mut content = self.0.lock();
        content.settle();
        content.values.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

impl Content {
    fn settle(&mut self) {
        for (_, key, value) in std::mem::take(&mut self.recent) {
            match value {
                Some(value) => self.values.insert(key, value),
                None => self.values.remove(&key),
            };
        }
    }
}

/// More than a node puts within any window of loss.
const RECENT_MAX: usize = 100_000;
