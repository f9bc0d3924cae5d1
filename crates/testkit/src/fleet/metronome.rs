//! Whose turn it is to speak.

use crate::fleet::index;
use crate::journal::PhoneId;
use crate::voice::PERIOD;

/// Deals the phones out over the milliseconds of a period.
#[derive(Debug)]
pub(crate) struct Metronome {
    /// The tick that is being done, in milliseconds since the start.
    tick: u64,
    /// The next phone of the tick's slot.
    position: u32,
    /// How many phones speak, by slot.
    speaking: [u32; SLOTS],
    /// Whether a phone speaks.
    speaks: Vec<bool>,
    /// The first phone began to speak since the last tick, so that the ticks
    /// before were nobody's.
    fresh: bool,
}

const SLOTS: usize = 20;
const SLOTS_U32: u32 = 20;

impl Metronome {
    pub(crate) fn new(phones: usize) -> Self {
        Self {
            tick: 0,
            position: 0,
            speaking: [0; SLOTS],
            speaks: vec![false; phones],
            fresh: false,
        }
    }

    pub(crate) fn tick(&self) -> u64 {
        self.tick
    }

    /// Skips what is long past: ticks at which nobody spoke, and, after a
    /// sleep of a period or more, those that would make somebody speak twice.
    pub(crate) fn catch_up(&mut self, now_tick: u64) {
        let fresh = std::mem::take(&mut self.fresh);
        if self.is_idle() {
            self.skip_to(now_tick + 1);
        } else if fresh || u64::from(SLOTS_U32) < now_tick.saturating_sub(self.tick) {
            self.skip_to(now_tick);
        }
    }

    pub(crate) fn end_tick(&mut self) {
        self.skip_to(self.tick + 1);
    }

    /// Returns the next phone of this tick's slot that speaks.
    pub(crate) fn next_phone(&mut self) -> Option<PhoneId> {
        let slot = slot_of(self.tick);
        if self.speaking[slot] == 0 {
            return None;
        }
        loop {
            let phone = u32::try_from(slot).unwrap_or(0) + SLOTS_U32 * self.position;
            let speaks = *self.speaks.get(index(PhoneId(phone)))?;
            self.position += 1;
            if speaks {
                return Some(PhoneId(phone));
            }
        }
    }

    /// Returns the next tick at which somebody speaks.
    pub(crate) fn next_tick(&self) -> Option<u64> {
        (self.tick..).take(SLOTS).find(|&tick| self.speaking[slot_of(tick)] != 0)
    }

    pub(crate) fn set(&mut self, phone: PhoneId, speaks: bool) {
        if self.speaks[index(phone)] != speaks {
            self.fresh |= speaks && self.is_idle();
            self.speaks[index(phone)] = speaks;
            let speaking = &mut self.speaking[index(phone) % SLOTS];
            *speaking = if speaks { *speaking + 1 } else { *speaking - 1 };
        }
    }

    /// Returns whether the ticks until now were nobody's.
    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh
    }

    fn is_idle(&self) -> bool {
        self.speaking.iter().all(|&speaking| speaking == 0)
    }

    fn skip_to(&mut self, tick: u64) {
        if self.tick < tick {
            self.tick = tick;
            self.position = 0;
        }
    }
}

const _: () = assert!(PERIOD.as_millis() == SLOTS as u128);

fn slot_of(tick: u64) -> usize {
    usize::try_from(tick % u64::from(SLOTS_U32)).unwrap_or(0)
}
