//! What was put and is not written yet: between the protocol thread and the disk's.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use super::{GROUP, Health, KEY_MAX, Trouble, VALUE_MAX};
use crate::run::clock;

/// Changes by key; `None` removes.
pub(super) type Changes = BTreeMap<Bytes, Option<Bytes>>;

/// A queue that never lets the one who puts wait.
#[derive(Debug, Default)]
pub(super) struct Pending {
    inner: Mutex<Inner>,
    woken: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    changes: Changes,
    len: usize,
    since: Option<Instant>,
    closing: bool,
    /// The disk's thread has ended.
    ended: bool,
    health: Health,
}

impl Pending {
    pub(super) fn put(&self, now: Instant, key: Bytes, value: Option<Bytes>) {
        let mut inner = self.inner.lock();
        let len = weight(&key, value.as_ref());
        let too_long = KEY_MAX < key.len() || value.as_ref().is_some_and(|it| VALUE_MAX < it.len());
        if too_long || LEN_MAX < inner.len + len {
            inner.health.refused += 1;
            return;
        }
        inner.add(key, value);
        if inner.since.is_none() {
            inner.since = Some(now);
            self.woken.notify_one();
        }
    }

    pub(super) fn health(&self) -> Health {
        let inner = self.inner.lock();
        Health { pending: inner.changes.len(), ..inner.health }
    }

    /// Ends the disk's thread once everything is written; returns whether it has, in time.
    pub(super) fn close(&self) -> bool {
        let mut inner = self.inner.lock();
        inner.closing = true;
        self.woken.notify_all();
        let until = clock() + CLOSING_MAX;
        while !inner.ended && clock() < until {
            self.woken.wait_until(&mut inner, until);
        }
        inner.ended
    }

    /// The disk's thread says that it ends.
    pub(super) fn end(&self) {
        self.inner.lock().ended = true;
        self.woken.notify_all();
    }

    /// Waits for changes and then for others to join them; `None` when there will be no more.
    pub(super) fn take(&self) -> Option<Changes> {
        let mut inner = self.inner.lock();
        while inner.changes.is_empty() && !inner.closing {
            self.woken.wait(&mut inner);
        }
        while let Some(since) = inner.since
            && !inner.closing
            && clock() < since + GROUP
        {
            self.woken.wait_until(&mut inner, since + GROUP);
        }
        (inner.since, inner.len) = (None, 0);
        let changes = std::mem::take(&mut inner.changes);
        (!changes.is_empty()).then_some(changes)
    }

    /// The disk took `changes`.
    pub(super) fn written(&self, changes: usize, bytes: u64, took: Duration) {
        let health = &mut self.inner.lock().health;
        health.trouble = None;
        health.written += changes as u64;
        health.bytes += bytes;
        health.commits += 1;
        health.commit_max = health.commit_max.max(took);
        health.commit_total += took;
    }

    /// The disk did not take `changes`: they wait for the next time, unless there are later ones.
    pub(super) fn failed(&self, changes: Changes, trouble: Trouble) {
        let len = changes.iter().map(|(key, value)| weight(key, value.as_ref())).sum();
        let mut inner = self.inner.lock();
        inner.health.trouble = Some(trouble);
        inner.put_below(changes, len);
    }

    /// Waits before the next try; returns false when there will be none.
    pub(super) fn rest(&self) -> bool {
        let mut inner = self.inner.lock();
        let until = clock() + RETRY;
        while !inner.closing && clock() < until {
            self.woken.wait_until(&mut inner, until);
        }
        !inner.closing
    }
}

impl Inner {
    fn add(&mut self, key: Bytes, value: Option<Bytes>) {
        self.len += weight(&key, value.as_ref());
        let key_len = key.len();
        if let Some(older) = self.changes.insert(key, value) {
            self.len -= ENTRY_LEN + key_len + older.as_ref().map_or(0, Bytes::len);
        }
    }

    /// Puts older changes below the newer ones, of which there are few.
    fn put_below(&mut self, older: Changes, len: usize) {
        let newer = std::mem::replace(&mut self.changes, older);
        self.len = len;
        for (key, value) in newer {
            self.add(key, value);
        }
        if !self.changes.is_empty() {
            self.since.get_or_insert_with(clock);
        }
    }
}

fn weight(key: &Bytes, value: Option<&Bytes>) -> usize {
    ENTRY_LEN + key.len() + value.map_or(0, Bytes::len)
}

/// What an entry takes beside its bytes, roughly.
const ENTRY_LEN: usize = 128;
/// The most that waits, in bytes.
const LEN_MAX: usize = 256 << 20;
/// How long a disk that failed is left alone.
const RETRY: Duration = Duration::from_secs(1);
/// How long a disk may take for the last changes; one that hangs must not keep the process.
const CLOSING_MAX: Duration = Duration::from_secs(2);
