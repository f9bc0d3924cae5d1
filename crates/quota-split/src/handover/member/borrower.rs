//! What a member remembers of counters that are lent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use crate::handover::Timing;
use crate::{Call, CallId, Document, Lending};

/// Calls that wait for a unit, and counters that were used since the last tick.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Borrower {
    waiting: VecDeque<Waiting>,
    /// How many wait on a counter, as last asked for.
    asked: BTreeMap<u32, u32>,
    touched: BTreeSet<u32>,
    refusals: BTreeMap<u32, u32>,
    exhausted: BTreeMap<u32, Instant>,
    /// Units that were recalled and not there to give, and until when they are wanted.
    owed: BTreeMap<u32, (u32, Instant)>,
    /// Set while anything is lent.
    tick_at: Option<Instant>,
}

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
        self.asked.clear();
    }

    /// Puts a call aside, unless too many wait already.
    pub(super) fn hold(&mut self, call: Call, on: u32, until: Instant) -> bool {
        let count = self.waiting.iter().filter(|waiting| waiting.on == on).count();
        if WAITING_MAX <= count {
            return false;
        }
        self.waiting.push_back(Waiting { call, on, until });
        true
    }

    pub(super) fn push(&mut self, waiting: Waiting) {
        self.waiting.push_back(waiting);
    }

    pub(super) fn take_all(&mut self) -> VecDeque<Waiting> {
        std::mem::take(&mut self.waiting)
    }

    pub(super) fn take_late(&mut self, now: Instant) -> Vec<Waiting> {
        let late = self.waiting.iter().take_while(|waiting| waiting.until <= now).count();
        if 0 < late {
            self.asked.clear();
        }
        self.waiting.drain(..late).collect()
    }

    pub(super) fn forget(&mut self, id: CallId) {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| waiting.call.id != id);
        if self.waiting.len() < before {
            self.asked.clear();
        }
    }

    pub(super) fn waits(&self, id: CallId) -> bool {
        self.waiting.iter().any(|waiting| waiting.call.id == id)
    }

    /// Returns the calls that wait.
    pub(super) fn calls(&self) -> impl Iterator<Item = Call> {
        self.waiting.iter().map(|waiting| waiting.call)
    }

    /// Makes [`unasked`](Self::unasked) name everything again.
    pub(super) fn ask_again(&mut self) {
        self.asked.clear();
    }

    /// Returns the counters on which more calls wait than were asked for, with their number.
    pub(super) fn unasked(&mut self) -> Vec<(u32, u32)> {
        let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
        for waiting in &self.waiting {
            *counts.entry(waiting.on).or_insert(0) += 1;
        }
        let before = std::mem::replace(&mut self.asked, counts.clone());
        counts.retain(|on, count| before.get(on).is_none_or(|asked| asked < count));
        counts.into_iter().collect()
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
        self.tick_at.into_iter().chain(self.waiting.front().map(|waiting| waiting.until)).min()
    }
}
