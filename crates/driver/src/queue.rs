//! What waits to be written to a link: bounded in bytes and in age.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::frame::{HEADER_LEN, PAYLOAD_MAX, header};

/// From this age of the oldest frame on, the queue is congested.
pub(crate) const CONGESTED_AFTER: Duration = Duration::from_millis(100);
/// Below this age it no longer is.
const RELIEVED_BELOW: Duration = Duration::from_millis(50);
/// A frame older than this is dropped: whoever waited has asked again.
pub(crate) const AGE_MAX: Duration = Duration::from_secs(4);
/// How much waits for one link, in bytes, before frames are dropped.
pub(crate) const QUEUE_LEN_MAX: usize = 16 << 20;
/// An empty queue keeps at most this much memory.
const IDLE_LEN_MAX: usize = 1 << 18;

/// Frames in the order in which they were sent, as one run of bytes, so that
/// a turn's frames leave in one write.
#[derive(Debug)]
pub(crate) struct Queue {
    buffer: Vec<u8>,
    /// Everything before is written.
    start: usize,
    frames: VecDeque<Queued>,
    /// How much of the first frame is written.
    begun: usize,
    congested: bool,
    len_max: usize,
}

#[derive(Debug)]
struct Queued {
    len: usize,
    at: Instant,
}

impl Queue {
    pub(crate) fn new(len_max: usize) -> Self {
        Self {
            buffer: Vec::new(),
            start: 0,
            frames: VecDeque::new(),
            begun: 0,
            congested: false,
            len_max,
        }
    }

    /// Appends a frame; returns false, and drops it, if there is no room.
    pub(crate) fn push(&mut self, now: Instant, version: u16, kind: u16, payload: &[u8]) -> bool {
        let len = HEADER_LEN + payload.len();
        let Ok(payload_len) = u32::try_from(payload.len()) else { return false };
        if PAYLOAD_MAX < payload.len() || self.len_max < self.len() + len {
            return false;
        }
        self.buffer.extend_from_slice(&header(payload_len, version, kind));
        self.buffer.extend_from_slice(payload);
        self.frames.push_back(Queued { len, at: now });
        true
    }

    /// Forgets the first `len` bytes: they are written.
    pub(crate) fn written(&mut self, len: usize) {
        self.start += len;
        self.begun += len;
        while let Some(first) = self.frames.front()
            && first.len <= self.begun
        {
            self.begun -= first.len;
            self.frames.pop_front();
        }
        self.compact();
    }

    /// Drops frames that are too old, but for one whose start is written, and
    /// returns how many.
    pub(crate) fn drop_old(&mut self, now: Instant) -> u64 {
        let kept = usize::from(0 < self.begun);
        let mut dropped = 0;
        let mut dropped_len = 0;
        while let Some(next) = self.frames.get(kept)
            && AGE_MAX <= now.saturating_duration_since(next.at)
        {
            dropped += 1;
            dropped_len += next.len;
            self.frames.remove(kept);
        }
        if 0 < dropped {
            let rest = self
                .frames
                .front()
                .map_or(0, |first| if kept == 1 { first.len - self.begun } else { 0 });
            self.buffer.copy_within(self.start..self.start + rest, self.start + dropped_len);
            self.start += dropped_len;
            self.compact();
        }
        dropped
    }

    /// Says whether the queue has become congested or relieved since the last
    /// time it was asked. No frame is dropped for age or length before it has
    /// said that it is congested.
    pub(crate) fn congestion(&mut self, now: Instant) -> Option<bool> {
        let age = self.oldest().map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let long = self.len_max / 2 <= self.len();
        if self.congested && age < RELIEVED_BELOW && !long {
            self.congested = false;
            return Some(false);
        }
        if !self.congested && (CONGESTED_AFTER <= age || long) {
            self.congested = true;
            return Some(true);
        }
        None
    }

    /// What is to be written next.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// When the first frame was queued.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.frames.front().map(|first| first.at)
    }

    fn len(&self) -> usize {
        self.buffer.len() - self.start
    }

    fn compact(&mut self) {
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.buffer.shrink_to(IDLE_LEN_MAX);
            self.start = 0;
        } else if IDLE_LEN_MAX <= self.start && self.len() <= self.start {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Reader, VERSION};

    const MS: Duration = Duration::from_millis(1);

    #[expect(clippy::disallowed_methods, reason = "a first instant for the test to count from")]
    fn start() -> Instant {
        Instant::now()
    }

    fn kinds(bytes: &[u8]) -> Vec<u16> {
        let mut kinds = Vec::new();
        let read = Reader::default().read(bytes, PAYLOAD_MAX, |frame| {
            kinds.push(frame.kind);
            Ok(PAYLOAD_MAX)
        });
        assert_eq!(read, Ok(()));
        kinds
    }

    #[test]
    fn an_old_queue_is_congested_once_and_relieved_once() {
        let now = start();
        let mut queue = Queue::new(1000);
        assert!(queue.push(now, VERSION, 0x101, b"x"));
        assert_eq!(queue.congestion(now + 99 * MS), None);
        assert_eq!(queue.congestion(now + 100 * MS), Some(true));
        assert_eq!(queue.congestion(now + 200 * MS), None);
        queue.written(queue.bytes().len());
        assert_eq!(queue.congestion(now + 201 * MS), Some(false));
        assert_eq!(queue.congestion(now + 202 * MS), None);
    }

    #[test]
    fn a_queue_says_that_it_is_congested_before_it_drops() {
        let now = start();
        let mut queue = Queue::new(100);
        let mut congested = None;
        while queue.push(now, VERSION, 0x101, &[0; 12]) {
            congested = queue.congestion(now).or(congested);
        }
        assert_eq!(congested, Some(true));
        assert_eq!(queue.frames.len(), 5);
    }

    #[test]
    fn a_frame_whose_start_is_written_outlives_older_ones_behind_it() {
        let now = start();
        let mut queue = Queue::new(1000);
        for kind in 0x101..0x104 {
            assert!(queue.push(now, VERSION, kind, &[1; 20]));
        }
        assert!(queue.push(now + AGE_MAX, VERSION, 0x104, &[1; 20]));
        let begun = queue.bytes()[..10].to_vec();
        queue.written(10);

        assert_eq!(queue.drop_old(now + AGE_MAX), 2);

        let sent = [&begun, queue.bytes()].concat();
        assert_eq!(kinds(&sent), [0x101, 0x104]);
        queue.written(queue.bytes().len());
        assert!(queue.is_empty());
    }

    #[test]
    fn a_frame_longer_than_frames_may_be_is_dropped() {
        let mut queue = Queue::new(usize::MAX);
        assert!(!queue.push(start(), VERSION, 0x101, &vec![0; PAYLOAD_MAX + 1]));
    }
}
