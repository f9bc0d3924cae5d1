//! What waits until this b2b may act again, or until another has its slots.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use b2bua::frame::{SipIn, SipOut};
use b2bua::{Detail, MediaCommand};
use failover::{Boot, CallId, NodeId, SlotSet};

/// What an owner has to say and may not, and what it is told meanwhile over connections, or of slots that
/// it is giving away. A lease can be away for long: each part has a bound.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// The newest command about a call to a mediagate.
    media: BTreeMap<(CallId, NodeId, Boot), MediaCommand>,
    details: VecDeque<Box<Detail>>,
    said: Messages<SipOut>,
    heard: Messages<SipIn>,
    /// For whoever will own these slots.
    awaiting: Messages<SipIn>,
    awaited: SlotSet,
}

impl Held {
    /// Keeps a command: what was to be said before about that call there needs not be said any more.
    pub(super) fn command(&mut self, gateway: NodeId, boot: Boot, mut command: MediaCommand) {
        let key = (call_of(&command), gateway, boot);
        if let (Some(MediaCommand::Open(open)), MediaCommand::Update(update)) =
            (self.media.get(&key), &mut command)
        {
            for (leg, before) in update.legs.iter_mut().zip(&open.legs) {
                leg.latched = before.latched;
            }
            command = MediaCommand::Open(update.clone());
        }
        self.media.insert(key, command);
    }

    /// Keeps the detail of a call that ended. Returns whose is given up, if too many wait.
    pub(super) fn detail(&mut self, detail: Box<Detail>) -> Option<CallId> {
        self.details.push_back(detail);
        if self.details.len() <= DETAILS_MAX {
            return None;
        }
        self.details.pop_front().map(|detail| detail.call)
    }

    /// Keeps a message to a phone; returns whether there was room.
    pub(super) fn say(&mut self, now: Instant, message: SipOut) -> bool {
        self.said.keep(now, message.bytes.len(), message)
    }

    /// Keeps a message of a phone; returns whether there was room.
    pub(super) fn hear(&mut self, now: Instant, frame: SipIn) -> bool {
        self.heard.keep(now, frame.bytes.len(), frame)
    }

    /// Keeps a message of a phone until its slot has an owner; returns whether there was room.
    pub(super) fn await_owner(&mut self, now: Instant, frame: SipIn) -> bool {
        self.awaited.insert(frame.slot);
        self.awaiting.keep(now, frame.bytes.len(), frame)
    }

    /// Returns the slots for whose owners something waits.
    pub(super) fn awaited(&self) -> SlotSet {
        self.awaited
    }

    /// Returns what waited for the owners of these slots, in order.
    pub(super) fn awaited_of(&mut self, now: Instant, slots: SlotSet) -> Vec<SipIn> {
        self.awaited = self.awaited.without(slots);
        self.awaiting.take(now, |frame| slots.contains(frame.slot))
    }

    /// Returns how many messages of phones still wait at `now`, for the owners of their slots or for ours to
    /// be ours again.
    pub(super) fn waiting(&self, now: Instant) -> usize {
        self.heard.waiting(now) + self.awaiting.waiting(now)
    }

    /// Returns how many messages of phones waited until their phones had given up.
    pub(super) fn outdated(&self, now: Instant) -> u64 {
        self.heard.outdated(now) + self.awaiting.outdated(now)
    }

    /// Returns the commands, and to whom each goes.
    pub(super) fn commands(&mut self) -> BTreeMap<(CallId, NodeId, Boot), MediaCommand> {
        std::mem::take(&mut self.media)
    }

    /// Returns the details of calls that are in none of these slots.
    pub(super) fn details_but(&mut self, slots: SlotSet) -> VecDeque<Box<Detail>> {
        let (kept, due) = std::mem::take(&mut self.details)
            .into_iter()
            .partition(|detail| slots.contains(detail.slot));
        self.details = kept;
        due
    }

    /// Returns what is to be said for other slots than these, in order; not what nobody waits for any
    /// more.
    pub(super) fn said_but(&mut self, now: Instant, slots: SlotSet) -> Vec<SipOut> {
        self.said.take(now, |message| !slots.contains(message.slot))
    }

    /// Returns what came for these slots, in order.
    pub(super) fn heard_of(&mut self, now: Instant, slots: SlotSet) -> Vec<SipIn> {
        self.heard.take(now, |frame| slots.contains(frame.slot))
    }

    /// Leaves what these slots had to say to their next owner: `calls` are theirs.
    pub(super) fn lose(&mut self, now: Instant, slots: SlotSet, calls: &[CallId]) {
        calls.iter().for_each(|call| {
            let of_call = (*call, NodeId(0), Boot(0))..=(*call, NodeId(u16::MAX), Boot(u64::MAX));
            let keys: Vec<_> = self.media.range(of_call).map(|(key, _)| *key).collect();
            keys.iter().for_each(|key| drop(self.media.remove(key)));
        });
        self.details.retain(|detail| !slots.contains(detail.slot));
        self.said.take(now, |message| slots.contains(message.slot));
    }

    /// Returns whether nothing waits that is this b2b's.
    pub(super) fn is_empty(&self) -> bool {
        self.media.is_empty()
            && self.details.is_empty()
            && self.said.queue.is_empty()
            && self.heard.queue.is_empty()
    }
}

/// Messages, since when each waits, and how many bytes it has; and how many they all have.
#[derive(Debug)]
struct Messages<T> {
    queue: VecDeque<(Instant, usize, T)>,
    len: usize,
    /// How many were dropped for their age.
    outdated: u64,
}

impl<T> Messages<T> {
    fn keep(&mut self, now: Instant, len: usize, message: T) -> bool {
        let over = self.queue.iter().take_while(|(since, ..)| *since + WAIT_MAX <= now).count();
        self.len -= self.queue.drain(..over).map(|(_, len, _)| len).sum::<usize>();
        self.outdated += over as u64;
        let fits = self.queue.len() < MESSAGES_MAX && self.len + len <= MESSAGES_LEN_MAX;
        if fits {
            self.len += len;
            self.queue.push_back((now, len, message));
        }
        fits
    }

    fn take(&mut self, now: Instant, is_due: impl Fn(&T) -> bool) -> Vec<T> {
        let mut due = Vec::new();
        for (since, len, message) in std::mem::take(&mut self.queue) {
            if !is_due(&message) {
                self.queue.push_back((since, len, message));
                continue;
            }
            self.len -= len;
            if now < since + WAIT_MAX {
                due.push(message);
            } else {
                self.outdated += 1;
            }
        }
        due
    }

    fn waiting(&self, now: Instant) -> usize {
        self.queue.iter().rev().take_while(|(since, ..)| now < *since + WAIT_MAX).count()
    }

    /// Those that nothing has moved out yet are outdated all the same.
    fn outdated(&self, now: Instant) -> u64 {
        self.outdated + (self.queue.len() - self.waiting(now)) as u64
    }
}

impl<T> Default for Messages<T> {
    fn default() -> Self {
        Self { queue: VecDeque::new(), len: 0, outdated: 0 }
    }
}

fn call_of(command: &MediaCommand) -> CallId {
    match command {
        MediaCommand::Open(call) | MediaCommand::Update(call) => call.call,
        MediaCommand::Close { call, .. } => *call,
    }
}

/// Messages of a kind that wait at most. Gates refuse new calls long before.
const MESSAGES_MAX: usize = 1 << 14;
/// The bytes of those.
const MESSAGES_LEN_MAX: usize = 16 << 20;
/// 64*T1: then whoever waits for a message has given up (RFC 3261 §17.1).
const WAIT_MAX: Duration = Duration::from_secs(32);
/// Details that wait at most, about 20 MB of them.
const DETAILS_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests;
