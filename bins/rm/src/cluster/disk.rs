//! What waits until something is on disk.

use std::collections::VecDeque;

use bytes::Bytes;

use super::frame::Kept;

/// Writes what must be found again after a restart, and holds back what shows it until then.
#[derive(Clone, Debug)]
pub(super) struct Disk<T> {
    asked: Kept,
    serial: u64,
    kept: u64,
    /// By which number the elector asked for what is written under ours.
    elector: VecDeque<(u64, u64)>,
    waiting: VecDeque<(u64, T)>,
}

/// What waits at a time; more is lost, as on a bad network.
const WAITING_MAX: usize = 4096;

impl<T> Disk<T> {
    pub(super) fn new(found: Kept) -> Self {
        let (elector, waiting) = (VecDeque::new(), VecDeque::new());
        Self { asked: found, serial: 0, kept: 0, elector, waiting }
    }

    /// Returns what to write if `kept` differs from what was last written.
    pub(super) fn want(&mut self, kept: Kept) -> Option<(u64, Bytes)> {
        if kept == self.asked { None } else { Some(self.write(kept)) }
    }

    /// Returns what to write for a request of the elector, written already or not.
    pub(super) fn want_for_elector(&mut self, kept: Kept, serial: u64) -> (u64, Bytes) {
        let (number, bytes) = self.write(kept);
        self.elector.push_back((number, serial));
        (number, bytes)
    }

    /// Takes in what is on disk; returns what the elector may be told.
    pub(super) fn persisted(&mut self, serial: u64) -> Option<u64> {
        self.kept = self.kept.max(serial.min(self.serial));
        let mut told = None;
        while self.elector.front().is_some_and(|(at, _)| *at <= self.kept) {
            told = self.elector.pop_front().map(|(_, elector)| elector);
        }
        told
    }

    /// Holds `it` back until all that has been asked for is on disk.
    pub(super) fn after(&mut self, it: T) {
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back((self.serial, it));
        }
    }

    /// Returns the next that waits no longer.
    pub(super) fn ready(&mut self) -> Option<T> {
        let is_ready = self.waiting.front().is_some_and(|(serial, _)| *serial <= self.kept);
        if is_ready { self.waiting.pop_front().map(|(_, it)| it) } else { None }
    }

    fn write(&mut self, kept: Kept) -> (u64, Bytes) {
        self.serial += 1;
        let bytes = kept.encode();
        self.asked = kept;
        (self.serial, bytes)
    }
}
