//! What came over connections and waits for somebody to take it.
//!
//! A datagram that finds nobody is sent again by its peer. Over a connection everything is said once, so
//! what belongs to a call waits here until its slot's owner can be reached, and no longer than its peer
//! waits for an answer.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use failover::{Slot, SlotSet};
use sip_core::Message;

use super::Gate;
use crate::frame::SipIn;
use crate::slot;

/// Messages in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    queue: VecDeque<(Instant, SipIn)>,
    /// The bytes of them all.
    len: usize,
    slots: SlotSet,
    /// When to look whether somebody takes some of them, while there are any.
    look_at: Option<Instant>,
}

impl Waiting {
    /// Keeps a message; returns whether there was room. What is not trusted may have half of it.
    fn keep(&mut self, now: Instant, frame: SipIn, is_trusted: bool) -> bool {
        let part = if is_trusted { 1 } else { 2 };
        let len = self.len + frame.bytes.len();
        if COUNT_MAX / part <= self.queue.len() || LEN_MAX / part < len {
            return false;
        }
        self.len = len;
        self.slots.insert(frame.slot);
        self.queue.push_back((now, frame));
        self.look_at = self.look_at.or(Some(now + LOOK_PERIOD));
        true
    }

    /// Drops what nobody waits for any more; returns how many that were.
    fn expire(&mut self, now: Instant) -> u64 {
        let is_over = |(since, _): &(Instant, SipIn)| *since + WAIT_MAX <= now;
        let over = self.queue.iter().take_while(|waiting| is_over(waiting)).count();
        let gone = self.queue.drain(..over).map(|(_, frame)| frame.bytes.len()).sum::<usize>();
        self.len -= gone;
        u64::try_from(over).unwrap_or(u64::MAX)
    }

    /// Returns what waits for these slots.
    fn take(&mut self, slots: SlotSet) -> Vec<SipIn> {
        let is_due = |(_, frame): &(Instant, SipIn)| slots.contains(frame.slot);
        let (due, kept) = std::mem::take(&mut self.queue).into_iter().partition(is_due);
        (self.queue, self.slots) = (kept, SlotSet::EMPTY);
        self.queue.iter().for_each(|(_, frame)| self.slots.insert(frame.slot));
        let due: VecDeque<(Instant, SipIn)> = due;
        self.len -= due.iter().map(|(_, frame)| frame.bytes.len()).sum::<usize>();
        due.into_iter().map(|(_, frame)| frame).collect()
    }
}

impl Gate {
    /// Does whatever is due at `now`; does nothing when nothing is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.waiting.look_at.is_some_and(|at| at <= now) {
            self.look_for_takers(now);
        }
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next needed: only while something waits.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.waiting.look_at
    }

    /// Returns how many messages wait for somebody to take them.
    pub fn waiting(&self) -> usize {
        self.waiting.queue.len()
    }

    /// Whether a message that nobody says again has to wait: for somebody to take it, or behind others of its
    /// slot.
    pub(super) fn must_wait(&self, now: Instant, slot: Slot) -> bool {
        self.waiting.slots.contains(slot) || !self.has_taker(now, slot)
    }

    /// Keeps a message until somebody takes it; returns whether there was room.
    pub(super) fn wait(&mut self, now: Instant, frame: SipIn) -> bool {
        let is_trusted = self.is_trusted(frame.flow.remote.ip());
        let has_room = self.waiting.keep(now, frame, is_trusted);
        self.counters.unowned += u64::from(!has_room);
        has_room
    }

    /// Hands on what somebody takes by now.
    pub(super) fn look_for_takers(&mut self, now: Instant) {
        self.counters.unowned += self.waiting.expire(now);
        let taken = self.waiting.slots.iter().filter(|slot| self.has_taker(now, *slot)).collect();
        for frame in self.waiting.take(taken) {
            self.pass(now, frame);
        }
        self.waiting.look_at = (!self.waiting.queue.is_empty()).then_some(now + LOOK_PERIOD);
    }

    /// Whether somebody takes a message of this slot who would hear it.
    fn has_taker(&self, now: Instant, slot: Slot) -> bool {
        self.next_hop(now, slot).is_some_and(|hop| hop.is_heard)
    }
}

/// Whether a message came over a connection and belongs to what we know of: nobody says it again, and
/// it is never refused for load.
pub(super) fn is_said_once(frame: &SipIn) -> bool {
    frame.flow.transport.is_reliable()
        && Message::parse(frame.bytes.clone()).is_ok_and(|message| slot::named(&message).is_some())
}

/// 64*T1: then whoever waits for an answer has given up (RFC 3261 §17.1).
const WAIT_MAX: Duration = Duration::from_secs(32);
/// How often to look for takers. That a link or a map came is told at once; that a pulse did, or that a way may
/// be tried anew, is not.
const LOOK_PERIOD: Duration = Duration::from_millis(100);
/// Messages that wait at most.
const COUNT_MAX: usize = 1 << 14;
/// The bytes of those.
const LEN_MAX: usize = 16 << 20;
