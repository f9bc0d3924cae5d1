//! What a member remembers of counters that are lent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::handover::Timing;
use crate::{Call, CallId, Document, Lending};

/// Calls that wait for a unit, and counters that were used since the last tick.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Borrower {
    /// In the order in which they have waited long enough: that of their arrival, and of their numbers
    /// where they came at one time.
    waiting: BTreeMap<Turn, Waiting>,
    /// Where each of them stands there.
    turns: BTreeMap<CallId, Turn>,
    /// Those that wait on a counter.
    on: BTreeMap<u32, BTreeSet<Turn>>,
    /// How many wait on a counter, as last asked for.
    asked: BTreeMap<u32, u32>,
    /// Counters on which that may be other than it was.
    unasked: BTreeSet<u32>,
    touched: BTreeSet<u32>,
    refusals: BTreeMap<u32, u32>,
    exhausted: BTreeMap<u32, Instant>,
    /// Units that were recalled and not there to give, and until when they are wanted.
    owed: BTreeMap<u32, (u32, Instant)>,
    /// Set while anything is lent.
    tick_at: Option<Instant>,
}

/// Until when a call waits, and which.
type Turn = (Instant, CallId);

/// A call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Waiting {
    pub(super) call: Call,
    /// The counter that is full.
    pub(super) on: u32,
    until: Instant,
}

/// How many calls may wait on one counter.
const WAITING_MAX: usize = 8;

/// How many refusals since the last tick are still asked for.
const REFUSALS_MAX: u32 = 4;

impl Borrower {
    /// Starts anew under another division; whoever waits goes on waiting.
    pub(super) fn restart(&mut self, document: &Document, now: Instant, timing: &Timing) {
        let lends = document.counters().iter().any(|limited| limited.lending != Lending::Off);
        self.tick_at = lends.then(|| self.tick_at.unwrap_or(now + timing.tick));
        self.exhausted.clear();
        self.owed.clear();
        self.ask_again();
    }

    /// Puts a call aside, unless too many wait already.
    pub(super) fn hold(&mut self, call: Call, on: u32, until: Instant) -> bool {
        if self.on.get(&on).is_some_and(|turns| WAITING_MAX <= turns.len()) {
            return false;
        }
        self.push(Waiting { call, on, until });
        true
    }

    pub(super) fn push(&mut self, waiting: Waiting) {
        let turn = (waiting.until, waiting.call.id);
        self.turns.insert(waiting.call.id, turn);
        self.on.entry(waiting.on).or_default().insert(turn);
        self.unasked.insert(waiting.on);
        self.waiting.insert(turn, waiting);
    }

    /// Takes out all that wait.
    pub(super) fn take_all(&mut self) -> Vec<Waiting> {
        self.turns.clear();
        self.on.clear();
        std::mem::take(&mut self.waiting).into_values().collect()
    }

    /// Takes out those that wait on one of these counters.
    pub(super) fn take_on(&mut self, places: impl IntoIterator<Item = u32>) -> Vec<Waiting> {
        let turns: BTreeSet<Turn> =
            places.into_iter().filter_map(|place| self.on.get(&place)).flatten().copied().collect();
        turns.into_iter().filter_map(|turn| self.take(turn)).collect()
    }

    /// Takes out those that have waited long enough. For the others that are left on their counters it
    /// is asked anew.
    pub(super) fn take_late(&mut self, now: Instant) -> Vec<Waiting> {
        let mut late = Vec::new();
        while let Some((&turn, _)) = self.waiting.first_key_value().filter(|(t, _)| t.0 <= now) {
            late.extend(self.take_anew(turn));
        }
        late
    }

    pub(super) fn forget(&mut self, id: CallId) {
        if let Some(&turn) = self.turns.get(&id) {
            self.take_anew(turn);
        }
    }

    pub(super) fn waits(&self, id: CallId) -> bool {
        self.turns.contains_key(&id)
    }

    /// Returns the calls that wait.
    pub(super) fn calls(&self) -> impl Iterator<Item = Call> {
        self.waiting.values().map(|waiting| waiting.call)
    }

    /// Makes [`unasked`](Self::unasked) name everything again.
    pub(super) fn ask_again(&mut self) {
        self.asked.clear();
        self.unasked.extend(self.on.keys());
    }

    /// Returns the counters on which more calls wait than were asked for, with their number.
    pub(super) fn unasked(&mut self) -> Vec<(u32, u32)> {
        let mut unasked = Vec::new();
        for on in std::mem::take(&mut self.unasked) {
            let count = self.on.get(&on).map_or(0, BTreeSet::len);
            let count = u32::try_from(count).expect("no more than wait on a counter");
            let before =
                if count == 0 { self.asked.remove(&on) } else { self.asked.insert(on, count) };
            if before.unwrap_or(0) < count {
                unasked.push((on, count));
            }
        }
        unasked
    }

    fn take_anew(&mut self, turn: Turn) -> Option<Waiting> {
        let waiting = self.take(turn)?;
        self.asked.remove(&waiting.on);
        Some(waiting)
    }

    fn take(&mut self, turn: Turn) -> Option<Waiting> {
        let waiting = self.waiting.remove(&turn)?;
        self.turns.remove(&turn.1);
        if let Some(turns) = self.on.get_mut(&waiting.on) {
            turns.remove(&turn);
            if turns.is_empty() {
                self.on.remove(&waiting.on);
            }
        }
        self.unasked.insert(waiting.on);
        Some(waiting)
    }

    pub(super) fn touch(&mut self, place: u32) {
        self.touched.insert(place);
    }

    pub(super) fn refused(&mut self, place: u32) {
        self.touched.insert(place);
        let refusals = self.refusals.entry(place).or_insert(0);
        *refusals = (*refusals + 1).min(REFUSALS_MAX);
    }

    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Notes that others want units that are all in use.
    pub(super) fn owe(&mut self, place: u32, units: u32, until: Instant) {
        self.owed.insert(place, (units, until));
    }

    /// Tells whether a unit that has just become free is wanted elsewhere; asked once for each.
    pub(super) fn owes(&mut self, place: u32, now: Instant) -> bool {
        let Some((units, until)) = self.owed.get_mut(&place) else { return false };
        let owes = now < *until && 0 < *units;
        *units = units.saturating_sub(1);
        if !owes {
            self.owed.remove(&place);
        }
        owes
    }

    pub(super) fn exhaust(&mut self, place: u32, until: Instant) {
        self.exhausted.insert(place, until);
    }

    /// Notes that there was something after all.
    pub(super) fn found(&mut self, place: u32) {
        self.exhausted.remove(&place);
    }

    pub(super) fn is_exhausted(&self, place: u32, now: Instant) -> bool {
        self.exhausted.get(&place).is_some_and(|until| now < *until)
    }

    /// Returns the counters used since the last tick, and the refusals there.
    pub(super) fn tick(&mut self, now: Instant, timing: &Timing) -> Vec<(u32, u32)> {
        self.tick_at = Some(now + timing.tick);
        self.exhausted.retain(|_, until| now < *until);
        let refusals = std::mem::take(&mut self.refusals);
        let touched = std::mem::take(&mut self.touched);
        touched.into_iter().map(|p| (p, refusals.get(&p).copied().unwrap_or(0))).collect()
    }

    /// Tells whether anything is lent at all.
    pub(super) fn is_used(&self) -> bool {
        self.tick_at.is_some()
    }

    pub(super) fn tick_at(&self) -> Option<Instant> {
        self.tick_at
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let first = self.waiting.first_key_value().map(|(turn, _)| turn.0);
        self.tick_at.into_iter().chain(first).min()
    }
}
