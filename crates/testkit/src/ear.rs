//! What a phone heard, judged by its own arrivals alone.

use std::time::{Duration, Instant};

use crate::voice::Stamp;

/// A packet this much later on its way than the fastest one is late.
pub const LATE: Duration = Duration::from_millis(60);

/// What came in one direction since the last [`Ear::take`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Packets that came, each counted once.
    pub received: u64,
    /// Packets that the numbers say were sent and that did not come.
    pub lost: u64,
    /// Those of them that were missing at the end of the longest silence.
    pub lost_in_silence: u64,
    /// Packets that came again.
    pub duplicated: u64,
    /// Packets that came after a newer one, or [`LATE`] on their way.
    pub late: u64,
    /// Packets that no phone of ours sent.
    pub foreign: u64,
    /// The longest time between two arrivals, or since the last one, while
    /// voice was expected. An undisturbed stream shows about 20 ms.
    pub silence: Duration,
    /// When the first packet came while voice was expected.
    pub first_at: Option<Instant>,
}

impl Heard {
    /// Returns what was lost outside the longest silence.
    pub fn lost_beyond_silence(&self) -> u64 {
        self.lost.saturating_sub(self.lost_in_silence)
    }
}

/// The receiving half of one stream.
#[derive(Clone, Debug, Default)]
pub struct Ear {
    state: State,
    ssrc: Option<u32>,
    /// One more than the highest number that came.
    next: u64,
    /// Which of the last 1,024 numbers came.
    seen: Seen,
    transit_min: Option<i128>,
    window: Heard,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// Nothing should come: on hold, or no call.
    #[default]
    Closed,
    /// Voice should come and has not yet.
    Waiting { since: Instant },
    /// Voice comes.
    Hearing { last_at: Instant },
}

impl Ear {
    /// Begins to expect voice; does nothing if it is expected already.
    pub(crate) fn open(&mut self, now: Instant) {
        if matches!(self.state, State::Closed) {
            self.state = State::Waiting { since: now };
        }
    }

    /// Expects nothing any more. Counted so far stays.
    pub(crate) fn close(&mut self, now: Instant) {
        self.note_silence(now, 0);
        self.state = State::Closed;
    }

    /// Takes in one packet that came at `now`; `since_start` is `now` on the
    /// senders' clock.
    pub(crate) fn hear(&mut self, now: Instant, since_start: Duration, stamp: &Stamp) {
        let number = self.unwrapped(stamp);
        if self.ssrc != Some(stamp.ssrc) {
            self.ssrc = Some(stamp.ssrc);
            self.seen = Seen::default();
            self.next = number;
            self.transit_min = None;
        }
        if stamp.sent.is_none() {
            self.window.foreign += 1;
        }
        let hole = number.saturating_sub(self.next);
        if self.next <= number {
            self.window.received += 1;
            self.window.lost += hole;
            self.seen.advance(self.next, number);
            self.next = number + 1;
        } else if self.seen.insert(number, self.next) {
            self.window.received += 1;
            self.window.lost = self.window.lost.saturating_sub(1);
            self.window.late += 1;
        } else {
            self.window.duplicated += 1;
            return;
        }
        if self.on_the_way_too_long(since_start, stamp) {
            self.window.late += 1;
        }
        if self.is_open() {
            self.window.first_at.get_or_insert(now);
        }
        match self.state {
            State::Closed => {}
            State::Waiting { .. } => self.state = State::Hearing { last_at: now },
            State::Hearing { .. } => {
                self.note_silence(now, hole);
                self.state = State::Hearing { last_at: now };
            }
        }
    }

    /// Returns what came since the last call and begins anew.
    pub fn take(&mut self, now: Instant) -> Heard {
        self.note_silence(now, 0);
        std::mem::take(&mut self.window)
    }

    /// Returns what came since the last [`take`](Self::take), as of `now`.
    pub fn heard(&self, now: Instant) -> Heard {
        let mut copy = self.clone();
        copy.take(now)
    }

    /// Returns how long nothing has come although voice is expected; zero if
    /// none is expected.
    pub fn silence(&self, now: Instant) -> Duration {
        match self.state {
            State::Closed => Duration::ZERO,
            State::Waiting { since: at } | State::Hearing { last_at: at } => {
                now.saturating_duration_since(at)
            }
        }
    }

    /// Returns whether voice is expected and has come.
    pub fn is_hearing(&self) -> bool {
        matches!(self.state, State::Hearing { .. })
    }

    /// Returns whether voice is expected.
    pub fn is_open(&self) -> bool {
        !matches!(self.state, State::Closed)
    }

    fn note_silence(&mut self, now: Instant, hole: u64) {
        let silence = self.silence(now);
        if self.window.silence < silence {
            self.window.silence = silence;
            self.window.lost_in_silence = hole;
        }
    }

    /// Extends a foreign packet's 16-bit number to the nearest one of ours.
    fn unwrapped(&self, stamp: &Stamp) -> u64 {
        if stamp.sent.is_some() || self.ssrc != Some(stamp.ssrc) {
            return stamp.number;
        }
        let expected = self.next;
        let ahead = stamp.number.wrapping_sub(expected) & 0xffff;
        if ahead < 0x8000 { expected + ahead } else { (expected + ahead).saturating_sub(0x1_0000) }
    }

    fn on_the_way_too_long(&mut self, since_start: Duration, stamp: &Stamp) -> bool {
        let Some(sent) = stamp.sent else { return false };
        // The clocks of two fleets begin at different times; only the
        // difference between packets means something.
        let transit = i128::try_from(since_start.as_nanos()).unwrap_or(i128::MAX)
            - i128::try_from(sent.as_nanos()).unwrap_or(i128::MAX);
        let fastest = *self.transit_min.get_or_insert(transit);
        self.transit_min = Some(fastest.min(transit));
        i128::try_from(LATE.as_nanos()).unwrap_or(i128::MAX) < transit - fastest
    }
}

/// The last numbers that came.
#[derive(Clone, Debug, Default)]
struct Seen([u64; 16]);

impl Seen {
    const NUMBERS: u64 = 64 * 16;

    /// Forgets what `next..=number` push out and marks `number`.
    fn advance(&mut self, next: u64, number: u64) {
        if Self::NUMBERS <= number - next {
            self.0 = [0; 16];
        } else {
            for passed in next..=number {
                let (word, bit) = Self::place(passed);
                self.0[word] &= !bit;
            }
        }
        let (word, bit) = Self::place(number);
        self.0[word] |= bit;
    }

    /// Marks a number below `next`; returns whether it was missing.
    fn insert(&mut self, number: u64, next: u64) -> bool {
        if Self::NUMBERS < next - number {
            return false;
        }
        let (word, bit) = Self::place(number);
        let missing = self.0[word] & bit == 0;
        self.0[word] |= bit;
        missing
    }

    fn place(number: u64) -> (usize, u64) {
        let index = usize::try_from(number % Self::NUMBERS).unwrap_or(0);
        (index / 64, 1 << (index % 64))
    }
}

#[cfg(test)]
mod tests;
