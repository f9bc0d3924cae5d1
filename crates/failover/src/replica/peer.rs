//! One stream, as the owner sees it.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{BARRIER_MAX, Batch, Item, Key, StreamId, Sum, weight};
use crate::{Boot, Slot};

/// A standby, and the stream to it.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) phase: Phase,
    id: StreamId,
    /// The number of the last item said, of the last one sent, and of the last one acknowledged.
    said: u64,
    sent: u64,
    pub(super) acked: u64,
    /// When it last acknowledged something, or was first sent what it has not acknowledged.
    moved_at: Instant,
    /// Said and not sent.
    pending: Vec<Item>,
    /// Until when what is pending waits for more, as long as that is barriers alone: those that come
    /// close together share a frame.
    gathers_until: Option<Instant>,
    /// When barriers were sent last.
    framed_at: Option<Instant>,
    /// When what leaves now was to leave.
    due_at: Option<Instant>,
    /// Barriers that are not acknowledged: the last item of their frame, and when it should have left.
    left: Option<(u64, Instant)>,
    /// How long a frame takes to leave and to be answered, on average of late.
    answer: Duration,
    /// What is said and not acknowledged, in bytes: up to which item, and how much.
    flights: VecDeque<(u64, usize)>,
    in_flight: usize,
    /// Barriers that are not acknowledged, and since when.
    barriers: VecDeque<(u64, Instant)>,
    /// Changes that can wait for a later one of the same record: those that have waited for one turn,
    /// and those that came since. They are few: the memory of both is used again and again.
    later: [Vec<Later>; 2],
    later_len: usize,
    /// Those that wait no longer and are not said yet.
    due: Vec<Later>,
    turn_at: Option<Instant>,
    /// Slots whose content is still to be sent.
    pub(super) queued: BTreeSet<Slot>,
    /// The slot whose content was asked for, and whether only to check it.
    pub(super) asked: Option<(Slot, Purpose)>,
    /// Sums that the standby has not confirmed.
    pub(super) sums: VecDeque<Expected>,
    /// It was slow: nothing waits for it before this time.
    pub(super) late_until: Option<Instant>,
    /// Slots that failed, to be sent again.
    pub(super) failed: BTreeSet<Slot>,
    pub(super) retry_at: Option<Instant>,
    retry: Duration,
    pub(super) check_at: Instant,
    /// The slot after the one checked last.
    pub(super) check_next: u8,
}

/// A change that waits.
#[derive(Clone, Debug)]
pub(super) struct Later {
    pub(super) slot: Slot,
    pub(super) key: Key,
    pub(super) told: Told,
}

/// What is known of a record that changed.
#[derive(Clone, Debug)]
pub(super) enum Told {
    /// What it became; `None` when it is gone.
    Value(Option<Bytes>),
    /// Only that it did.
    Change,
}

impl Later {
    fn weight(&self) -> usize {
        match &self.told {
            Told::Value(value) => weight(&self.key, value.as_deref()),
            Told::Change => weight(&self.key, None),
        }
    }
}

/// Whether there is a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// There is no link.
    Down,
    /// There is.
    Streaming,
    /// The standby takes too little: it gets nothing until it has taken what was sent.
    Stalled,
    /// The standby was wrong: it gets nothing until `retry_at`.
    Resting,
}

/// Why the content of a slot was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Copy,
    Check,
}

/// What the standby must say that it holds of `slot` when it has taken in item `number`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub(super) number: u64,
    pub(super) slot: Slot,
    pub(super) sum: Sum,
}

impl Peer {
    pub(super) fn new(boot: Boot, now: Instant) -> Self {
        Self {
            phase: Phase::Down,
            id: StreamId { boot, number: 0 },
            said: 0,
            sent: 0,
            acked: 0,
            moved_at: now,
            pending: Vec::new(),
            gathers_until: None,
            framed_at: None,
            due_at: None,
            left: None,
            answer: ANSWER,
            flights: VecDeque::new(),
            in_flight: 0,
            barriers: VecDeque::new(),
            later: [Vec::new(), Vec::new()],
            later_len: 0,
            due: Vec::new(),
            turn_at: None,
            queued: BTreeSet::new(),
            asked: None,
            sums: VecDeque::new(),
            late_until: None,
            failed: BTreeSet::new(),
            retry_at: None,
            retry: RETRY_MIN,
            check_at: now + CHECK_PERIOD,
            check_next: 0,
        }
    }

    /// Forgets the stream; what is said from now on is of another one, if the phase lets it.
    pub(super) fn clear(&mut self, now: Instant, phase: Phase) {
        let Self { retry, check_next, answer, .. } = *self;
        let id = StreamId { boot: self.id.boot, number: self.id.number.saturating_add(1) };
        // A stalled standby is heard until it has taken what was sent.
        let (id, sent, acked) = match phase {
            Phase::Stalled => (self.id, self.sent, self.acked),
            Phase::Down | Phase::Streaming | Phase::Resting => (id, 0, 0),
        };
        *self =
            Self { phase, id, sent, acked, retry, check_next, answer, ..Self::new(id.boot, now) };
        if phase == Phase::Resting {
            self.retry_later(now);
        }
    }

    /// Returns when to try again, later each time.
    pub(super) fn retry_later(&mut self, now: Instant) {
        if self.retry_at.is_none() {
            self.retry_at = Some(now + self.retry);
            self.retry = RETRY_MAX.min(2 * self.retry);
        }
    }

    /// The standby has a whole copy of everything.
    pub(super) fn forgive(&mut self) {
        self.retry = RETRY_MIN;
    }

    pub(super) fn stream(&self) -> StreamId {
        self.id
    }

    /// Says `item` with the next flush; returns its number.
    pub(super) fn say(&mut self, item: Item) -> u64 {
        self.gathers_until = None;
        self.said += 1;
        let len = match &item {
            Item::Record { key, value, .. } => weight(key, value.as_deref()),
            Item::HandOver { slots } => 16 + slots.len(),
            Item::Begin { .. } | Item::End { .. } | Item::Check { .. } | Item::Leave { .. } => 16,
        };
        self.in_flight += len;
        match self.flights.back_mut() {
            // One entry for about as much as is acknowledged at once.
            Some((last, bytes)) if self.sent < *last && *bytes + len <= BATCH_MAX => {
                *last = self.said;
                *bytes += len;
            }
            _ => self.flights.push_back((self.said, len)),
        }
        self.pending.push(item);
        self.said
    }

    /// Says what must be there before what is sent from now on; returns its number.
    pub(super) fn say_barrier(
        &mut self,
        now: Instant,
        slot: Slot,
        key: Key,
        value: Option<Bytes>,
    ) -> u64 {
        for later in &mut self.later {
            if let Some(at) = find(later, slot, &key) {
                self.later_len -= later.remove(at).weight();
            }
        }
        if let Some(at) = find(&self.due, slot, &key) {
            self.due.remove(at);
        }
        let gathers_until = match self.framed_at {
            _ if !self.pending.is_empty() => self.gathers_until,
            Some(at) => Some(now.max(at + self.gathers())),
            None => Some(now),
        };
        let number = self.say(Item::Record { slot, key, value });
        self.gathers_until = gathers_until.filter(|_| self.pending.len() < GATHERED_MAX);
        self.barriers.push_back((number, now));
        number
    }

    /// Says a change soon, or the next one of the same record in its place.
    pub(super) fn say_later(&mut self, now: Instant, change: Later) {
        let waits = usize::from(find(&self.later[0], change.slot, &change.key).is_none());
        let later = &mut self.later[waits];
        self.later_len += change.weight();
        match find(later, change.slot, &change.key) {
            Some(at) => self.later_len -= std::mem::replace(&mut later[at], change).weight(),
            None => later.push(change),
        }
        self.turn_at.get_or_insert(now + TURN);
        if BATCH_MAX <= self.later_len || LATER_MAX <= self.later[waits].len() {
            self.say_now();
        }
    }

    /// Says everything that was to be said later.
    pub(super) fn say_now(&mut self) {
        self.turn_at = None;
        self.later_len = 0;
        for later in &mut self.later {
            self.due.append(later);
        }
    }

    /// Says what has waited for a turn; what came since has waited for one from now on.
    fn turn(&mut self, now: Instant) {
        self.later_len -= self.later[0].iter().map(Later::weight).sum::<usize>();
        self.due.append(&mut self.later[0]);
        self.later.swap(0, 1);
        self.turn_at = (!self.later[0].is_empty()).then(|| now + TURN);
    }

    /// Says what waits no longer, of one slot or of all, as `value` finds it.
    pub(super) fn say_due(
        &mut self,
        of: Option<Slot>,
        mut value: impl FnMut(&Key, Told) -> Option<Bytes>,
    ) {
        let mut due = std::mem::take(&mut self.due);
        for change in due.extract_if(.., |change| of.is_none_or(|slot| slot == change.slot)) {
            let Later { slot, key, told } = change;
            let value = value(&key, told);
            self.say(Item::Record { slot, key, value });
        }
        // Keeps its memory.
        self.due = due;
    }

    /// Asks for nothing of `slot`, expects nothing of it and says nothing of it later.
    pub(super) fn forget(&mut self, slot: Slot) {
        self.queued.remove(&slot);
        self.failed.remove(&slot);
        self.asked.take_if(|asked| asked.0 == slot);
        self.sums.retain(|expected| expected.slot != slot);
        for later in &mut self.later {
            later.retain(|change| {
                let keep = change.slot != slot;
                self.later_len -= if keep { 0 } else { change.weight() };
                keep
            });
        }
        self.due.retain(|change| change.slot != slot);
    }

    /// A turn in which something else happened as well may take along what gathers.
    pub(super) fn pass_by(&mut self, now: Instant) {
        if let Some(until) = &mut self.gathers_until
            && *until <= now + GATHER_LESS
        {
            *until = now.min(*until);
        }
    }

    /// Returns how long barriers gather: three times the time of an answer is left of what one may wait.
    fn gathers(&self) -> Duration {
        BARRIER_MAX.saturating_sub(3 * self.answer).min(GATHER_MAX)
    }

    /// Takes in how long the last barriers took.
    fn answered(&mut self, now: Instant) {
        let Some((_, at)) = self.left.take_if(|(last, _)| *last <= self.acked) else { return };
        let answer = now.saturating_duration_since(at).min(BARRIER_MAX);
        self.answer = (7 * self.answer + answer) / 8;
    }

    /// Returns the next batch of what was said; `None` when all is sent, or still gathers.
    pub(super) fn batch(&mut self, now: Instant) -> Option<Batch> {
        if self.pending.is_empty() || self.gathers_until.is_some() {
            return None;
        }
        let mut len = 0;
        let fits = self.pending.iter().take_while(|item| {
            let fits = len < BATCH_MAX;
            if let Item::Record { key, value, .. } = item {
                len += weight(key, value.as_deref());
            }
            fits
        });
        let count = fits.count();
        let mut rest = Vec::with_capacity(count);
        rest.extend(self.pending.drain(count..));
        let items = std::mem::replace(&mut self.pending, rest);
        if self.is_idle() {
            self.moved_at = now;
        }
        let first = self.sent + 1;
        self.sent += items.len() as u64;
        if !self.barriers.is_empty() {
            self.framed_at = Some(now);
            let due_at = self.due_at.take().unwrap_or(now);
            self.left.get_or_insert((self.sent, due_at));
        }
        Some(Batch { stream: self.id, first, items })
    }

    /// Takes in an acknowledgement of everything up to `taken`; returns false when that was never sent.
    pub(super) fn acknowledged(&mut self, now: Instant, taken: u64) -> bool {
        if self.sent < taken {
            return false;
        }
        if self.acked < taken {
            self.acked = taken;
            self.moved_at = now;
        }
        self.answered(now);
        while let Some(&(last, len)) = self.flights.front()
            && last <= self.acked
        {
            self.in_flight -= len;
            self.flights.pop_front();
        }
        let mut was_late = false;
        while let Some(&(number, at)) = self.barriers.front()
            && number <= self.acked
        {
            was_late |= at + BARRIER_MAX < now;
            self.barriers.pop_front();
        }
        if was_late && self.late_until.is_some() {
            self.late_until = Some(now + LATE_FOR);
        }
        true
    }

    /// Whether everything that was sent is acknowledged.
    pub(super) fn is_idle(&self) -> bool {
        self.sent == self.acked
    }

    /// Whether it has acknowledged nothing for so long that something must be lost.
    pub(super) fn is_silent(&self, now: Instant) -> bool {
        self.silent_at().is_some_and(|at| at <= now)
    }

    fn silent_at(&self) -> Option<Instant> {
        (!self.is_idle()).then(|| self.moved_at + SILENCE_MAX)
    }

    /// Whether the content of another slot may be sent.
    pub(super) fn has_room(&self) -> bool {
        self.in_flight <= WINDOW
    }

    /// Whether it takes in so little that the stream is better begun anew.
    pub(super) fn is_choked(&self) -> bool {
        IN_FLIGHT_MAX < self.in_flight
    }

    /// Whether a barrier has waited as long as one may.
    pub(super) fn has_waited(&self, now: Instant) -> bool {
        self.barriers.front().is_some_and(|&(_, at)| at + BARRIER_MAX <= now)
    }

    /// Does what is due of the stream's own; returns whether the standby has become late or keeps up
    /// again.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> Option<Pace> {
        self.pass_by(now);
        self.due_at = self.gathers_until.take_if(|until| *until <= now);
        let leaves = self.due_at.is_some();
        // A frame that leaves anyway takes along what would soon need one of its own.
        let turns_at = if leaves { now + TURN / 4 } else { now };
        if self.turn_at.is_some_and(|at| at <= turns_at) {
            self.turn(now);
        }
        match self.late_until {
            None if self.has_waited(now) => {
                self.late_until = Some(now + LATE_FOR);
                Some(Pace::Late)
            }
            Some(until) if until <= now && self.has_waited(now) => {
                self.late_until = Some(now + LATE_FOR);
                None
            }
            Some(until) if until <= now => {
                self.late_until = None;
                Some(Pace::Caught)
            }
            None | Some(_) => None,
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let barrier = match self.late_until {
            Some(until) => Some(until),
            None => self.barriers.front().map(|&(_, at)| at + BARRIER_MAX),
        };
        let check = (self.phase == Phase::Streaming).then_some(self.check_at);
        let ends = [barrier, self.gathers_until, self.turn_at, self.retry_at, check];
        ends.into_iter().chain([self.silent_at()]).flatten().min()
    }
}

fn find(later: &[Later], slot: Slot, key: &Key) -> Option<usize> {
    later.iter().position(|change| change.slot == slot && change.key == *key)
}

/// How a standby keeps up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    Late,
    Caught,
}

/// A change that nothing waits for waits for the next one of its record: for one such turn at least
/// and for two at most.
const TURN: Duration = Duration::from_millis(25);
/// Barriers that come within this time after others were sent gather until its end, if the standby is
/// quick to answer: each frame wakes it, and its answer the owner.
pub(super) const GATHER_MAX: Duration = Duration::from_micros(4250);
/// So many changes wait for later ones at most: each is compared with all of them.
const LATER_MAX: usize = 256;
/// So many do not wait for more.
const GATHERED_MAX: usize = 32;
/// They gather for so much less if the owner is awake then for something else.
pub(super) const GATHER_LESS: Duration = Duration::from_micros(500);
/// How long an answer takes, before one has come.
const ANSWER: Duration = Duration::from_millis(1);
/// How long nothing waits for a standby after it was late.
const LATE_FOR: Duration = Duration::from_secs(1);
/// A stream is given up when nothing of it was acknowledged for this long.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// How often one slot is checked.
pub(super) const CHECK_PERIOD: Duration = Duration::from_secs(1);
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(64);
/// The content of the next slot is sent when no more than this is on its way, in bytes.
const WINDOW: usize = 256 << 10;
/// With more than this on its way, in bytes, a stream is given up.
const IN_FLIGHT_MAX: usize = 6 << 20;
/// A batch is sent once it has this many bytes.
const BATCH_MAX: usize = 256 << 10;
