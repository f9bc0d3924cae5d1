//! One division, from its first word to the end of its reign.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use super::CoordinatorOutput;
use super::pool::Pool;
use crate::handover::{
    Ask, Column, ColumnCell, Grow, Prepare, Promise, Report, Stamp, Timing, ToMember, column_digest,
};
use crate::plan::Plan;
use crate::{Document, Lending, Limited, Part, Partition, Recipe, SegmentId, Sight};

/// What the coordinator knows and has granted under one stamp.
#[derive(Clone, Debug)]
pub(super) struct Round {
    stamp: Stamp,
    recipe: Recipe,
    plan: Plan,
    seats: Vec<Seat>,
    /// What each member may hold at the most, a row per counter.
    ledger: Vec<u32>,
    /// How much of that in sum no grant covers, per counter.
    beyond: Vec<u32>,
    /// What may be held in sum, per counter; empty until every member has promised.
    budgets: Vec<u32>,
    pool: Pool,
    resend_at: Option<Instant>,
    majority_at: Option<Instant>,
    lease_at: Option<Instant>,
    tick_at: Option<Instant>,
    /// When those that have not promised by then count as not serving.
    overdue_at: Option<Instant>,
}

/// A member that does not answer so many questions does not serve.
const OVERDUE: u32 = 5;

/// A member computed other shares from the same document.
#[derive(Clone, Copy, Debug)]
pub(super) struct DigestDiffers;

/// One member, in the order of the plan's columns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Seat {
    promise: Option<Option<u64>>,
    /// Whether its shares are sent in words.
    in_words: bool,
    /// Whether its first grant is due, which says everything.
    opens: bool,
    /// The last grant sent.
    seq: u32,
    /// The last grant known to be applied.
    applied: u32,
    /// The last grant that said everything: until it is known to be applied, whatever is given back
    /// may be undone by it.
    whole: u32,
    /// Counters granted and not known to be applied.
    pending: BTreeMap<u32, Granted>,
    /// Counters granted and not sent yet.
    fresh: BTreeSet<u32>,
}

/// A counter on its way to a member, by the numbers of grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Granted {
    /// The grant that raised it: each says it again until this one is known to be applied.
    first: u32,
    /// The last one that said so: until it is known to be applied, what is given back may be undone by it.
    last: u32,
}

impl Round {
    pub(super) fn new(
        now: Instant,
        stamp: Stamp,
        recipe: Recipe,
        in_words: &BTreeMap<SegmentId, Option<Instant>>,
        document: &Document,
        timing: &Timing,
        outputs: &mut VecDeque<CoordinatorOutput>,
    ) -> Self {
        let plan = Plan::new(document, &recipe);
        let seat = |who| Seat { in_words: in_words.contains_key(who), ..Seat::default() };
        let seats: Vec<Seat> = plan.members().iter().map(seat).collect();
        let ledger = vec![0; seats.len() * document.counters().len()];
        let has = |partition| document.counters().iter().any(|c| c.partition == partition);
        let weighted = has(Partition::WeightMajority);
        let waits = weighted && recipe.sight == Sight::Waiting;
        let leases = weighted && recipe.sight != Sight::Minority;
        let round = Self {
            stamp,
            plan,
            seats,
            ledger,
            beyond: vec![0; document.counters().len()],
            budgets: Vec::new(),
            pool: Pool::default(),
            resend_at: Some(now + timing.resend),
            majority_at: waits.then(|| now + timing.majority_wait()),
            lease_at: leases.then(|| now + timing.lease / 3),
            tick_at: None,
            overdue_at: Some(now + OVERDUE * timing.resend),
            recipe,
        };
        for column in 0..round.seats.len() {
            round.send_prepare(column, document, outputs);
        }
        round
    }

    pub(super) fn promise(
        &mut self,
        now: Instant,
        from: SegmentId,
        promise: &Promise,
        document: &Document,
        timing: &Timing,
        outputs: &mut VecDeque<CoordinatorOutput>,
    ) -> Result<(), DigestDiffers> {
        let here = self.column(from).filter(|_| promise.stamp == self.stamp);
        let Some(column) = here.filter(|&column| self.seats[column].promise.is_none()) else {
            return Ok(());
        };
        let targets = || document.counters().iter().map(|l| self.plan.target(document, l, from));
        if promise.digest != column_digest(targets()) {
            return Err(DigestDiffers);
        }
        let width = self.seats.len();
        let targets: Vec<u32> = targets().collect();
        for (row, target) in self.ledger.chunks_exact_mut(width).zip(targets) {
            row[column] = target;
        }
        let mut last = None;
        for &(counter, held) in &promise.held {
            if let Some(cell) = self.ledger.get_mut(counter as usize * width + column) {
                *cell = held;
                if let Some((_, granted)) = last.filter(|(before, _)| *before == counter) {
                    let beyond = &mut self.beyond[counter as usize];
                    *beyond = beyond.saturating_add(held.saturating_sub(granted));
                }
                last = Some((counter, held));
            }
        }
        self.seats[column].promise = Some(promise.settled);
        outputs.push_back(CoordinatorOutput::Serves { segment: from, serves: true });
        if self.seats.iter().all(|seat| seat.promise.is_some()) {
            self.open(document);
            outputs.push_back(CoordinatorOutput::Opened(self.stamp));
            self.flush(now, document, timing, outputs);
        }
        Ok(())
    }

    pub(super) fn report(
        &mut self,
        now: Instant,
        from: SegmentId,
        report: &Report,
        document: &Document,
        timing: &Timing,
        outputs: &mut VecDeque<CoordinatorOutput>,
    ) {
        let current = report.stamp == self.stamp && self.is_open();
        let Some(column) = self.column(from).filter(|_| current) else { return };
        let seat = &mut self.seats[column];
        let applied = report.applied.min(seat.seq);
        // Written before a grant that is known to be applied, it may say less than is held now.
        let fresh = 0 < applied && seat.applied <= applied && seat.whole <= applied;
        let mut taken = fresh;
        seat.applied = seat.applied.max(applied);
        seat.pending.retain(|_, granted| applied < granted.last);
        for cell in report.cells.iter().filter(|_| fresh) {
            let Some(limited) = document.counters().get(cell.counter as usize) else { continue };
            self.pool.uses(cell.counter, column, cell.used);
            self.tick_at.get_or_insert(now + timing.tick);
            // A grant on its way may be applied after this was written: what it adds is still held.
            if self.seats[column].pending.contains_key(&cell.counter) {
                taken = false;
                continue;
            }
            let place = self.place(cell.counter, column);
            self.ledger[place] = self.ledger[place].min(cell.held);
            if limited.lending == Lending::Off {
                self.level(cell.counter, document);
            } else {
                self.pool.heard(now, cell.counter, column);
                self.serve(now, cell.counter, document, timing, outputs);
            }
        }
        if taken && report.number != 0 {
            let message = ToMember::Heard { stamp: self.stamp, report: report.number };
            outputs.push_back(CoordinatorOutput::Send { to: from, message });
        }
        self.flush(now, document, timing, outputs);
    }

    pub(super) fn ask(
        &mut self,
        now: Instant,
        from: SegmentId,
        ask: &Ask,
        document: &Document,
        timing: &Timing,
        outputs: &mut VecDeque<CoordinatorOutput>,
    ) {
        let current = ask.stamp == self.stamp && self.is_open();
        let Some(column) = self.column(from).filter(|_| current) else { return };
        if self.is_passive(from) {
            return;
        }
        for &(counter, goal) in &ask.cells {
            let Some(limited) = document.counters().get(counter as usize) else { continue };
            if limited.lending == Lending::Off {
                continue;
            }
            let until = ask.urgent.then(|| now + timing.hold);
            self.tick_at.get_or_insert(now + timing.tick);
            self.pool.want(now, counter, column, goal.min(limited.limit), until);
            self.serve(now, counter, document, timing, outputs);
        }
        self.flush(now, document, timing, outputs);
    }

    pub(super) fn send_column(
        &mut self,
        to: SegmentId,
        document: &Document,
        outputs: &mut VecDeque<CoordinatorOutput>,
    ) {
        let Some(column) = self.column(to) else { return };
        self.seats[column].in_words = true;
        self.send_prepare(column, document, outputs);
    }

    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        document: &Document,
        timing: &Timing,
        outputs: &mut VecDeque<CoordinatorOutput>,
    ) {
        if self.resend_at.is_some_and(|at| at <= now) {
            self.resend_at = None;
            self.resend(now, document, timing, outputs);
        }
        if self.overdue_at.is_some_and(|at| at <= now) {
            self.overdue_at = None;
            for (seat, &segment) in self.seats.iter().zip(self.plan.members()) {
                if seat.promise.is_none() {
                    outputs.push_back(CoordinatorOutput::Serves { segment, serves: false });
                }
            }
        }
        if self.lease_at.is_some_and(|at| at <= now) {
            self.lease_at = Some(now + timing.lease / 3);
            // Who has not answered yet may know that this is no majority.
            let grants = self.is_open() || self.recipe.sight == Sight::Whole;
            for &to in self.plan.members().iter().filter(|_| grants) {
                let message = ToMember::Lease { stamp: self.stamp };
                outputs.push_back(CoordinatorOutput::Send { to, message });
            }
        }
        if self.tick_at.is_some_and(|at| at <= now) {
            self.tick_at = self.pool.is_used().then(|| now + timing.tick);
            self.tell_elsewhere(outputs);
            for counter in self.pool.idle(now, timing.idle) {
                self.level(counter, document);
            }
        }
        for counter in self.pool.expire(now) {
            self.serve(now, counter, document, timing, outputs);
        }
        self.flush(now, document, timing, outputs);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let overdue_at = self.overdue_at.filter(|_| !self.is_open());
        let own = [self.resend_at, self.majority_at, self.lease_at, self.tick_at, overdue_at];
        own.into_iter().flatten().chain(self.pool.deadline()).min()
    }

    pub(super) fn stamp(&self) -> Stamp {
        self.stamp
    }

    pub(super) fn parts(&self) -> &[Part] {
        &self.recipe.parts
    }

    pub(super) fn majority_at(&self) -> Option<Instant> {
        self.majority_at
    }

    /// Returns the sight that a further round of this epoch keeps: leases that ran out stay so, and what a
    /// member is bound to.
    pub(super) fn settled_sight(&self) -> Option<Sight> {
        Some(self.recipe.sight).filter(|sight| matches!(sight, Sight::Majority | Sight::Minority))
    }

    /// Returns what stays settled with other parts: who is absent still has no lease.
    pub(super) fn sight_with(&self, parts: &[Part]) -> Option<Sight> {
        let was_absent = |part: &Part| {
            let same = |old: &&Part| old.segment == part.segment;
            self.recipe.parts.iter().find(same).is_some_and(|old| !old.present)
        };
        let stays = Sight::of(parts) == Sight::Waiting
            && parts.iter().filter(|part| !part.present).all(was_absent);
        (stays && self.recipe.sight == Sight::Majority).then_some(Sight::Majority)
    }

    /// Whether a member of this division may say that it is none of a majority.
    pub(super) fn outweighs(&self, segment: SegmentId) -> bool {
        self.has(segment) && self.recipe.sight.is_majority()
    }

    pub(super) fn has(&self, segment: SegmentId) -> bool {
        self.column(segment).is_some()
    }

    pub(super) fn held(&self, segment: SegmentId, counter: u32) -> Option<u32> {
        let column = self.column(segment).filter(|_| self.is_open())?;
        self.ledger.get(self.place(counter, column)).copied()
    }

    /// Counts what was promised and grants what is free.
    fn open(&mut self, document: &Document) {
        let version = document.version();
        let settled = self.seats.iter().filter_map(|seat| seat.promise.flatten());
        let agreed = settled.into_iter().all(|settled| settled == version);
        let mut targets = Vec::new();
        let mut budgets = Vec::with_capacity(document.counters().len());
        let rows = self.ledger.chunks_exact_mut(self.seats.len().max(1));
        let counters = document.counters().iter().zip(&self.beyond);
        for ((limited, beyond), row) in counters.zip(rows) {
            self.plan.targets(document, limited, &mut targets);
            let budget = if self.plan.conserves(limited, agreed) {
                limited.limit.min(sum(row).saturating_sub(*beyond))
            } else {
                self.plan.budget(limited, sum(&targets))
            };
            budgets.push(budget);
            grant(row, &targets, budget, self.recipe.eager);
        }
        self.budgets = budgets;
        for seat in &mut self.seats {
            seat.opens = true;
        }
    }

    /// Grants what is free of one counter to those below their targets.
    fn level(&mut self, counter: u32, document: &Document) {
        let width = self.seats.len();
        let Some(limited) = document.counters().get(counter as usize) else { return };
        let row = &mut self.ledger[counter as usize * width..][..width];
        let before = row.to_vec();
        let mut targets = Vec::with_capacity(width);
        self.plan.targets(document, limited, &mut targets);
        grant(row, &targets, self.budgets[counter as usize], self.recipe.eager);
        for (column, (before, after)) in before.into_iter().zip(&*row).enumerate() {
            if before != *after {
                self.seats[column].fresh.insert(counter);
            }
        }
    }

    /// Gives out what the pool has of one counter, and asks for more where that is due.
    fn serve(
        &mut self,
        now: Instant,
        counter: u32,
        document: &Document,
        timing: &Timing,
        outputs: &mut VecDeque<CoordinatorOutput>,
    ) {
        let width = self.seats.len();
        let Some(limited) = document.counters().get(counter as usize) else { return };
        let mut targets = Vec::with_capacity(width);
        self.plan.targets(document, limited, &mut targets);
        let busy: Vec<bool> =
            self.seats.iter().map(|seat| seat.pending.contains_key(&counter)).collect();
        let row = &mut self.ledger[counter as usize * width..][..width];
        let budget = self.budgets[counter as usize];
        for column in self.pool.give(counter, row, &targets, budget) {
            self.seats[column].fresh.insert(counter);
        }
        let members = self.plan.members();
        for (column, cap, drain) in
            self.pool.recall(now + timing.hold, counter, limited, row, &targets, &busy)
        {
            let recall = crate::handover::Recall { stamp: self.stamp, counter, cap, drain };
            let message = ToMember::Recall(recall);
            outputs.push_back(CoordinatorOutput::Send { to: members[column], message });
        }
        for column in self.pool.exhausted(counter) {
            let message = ToMember::Exhausted { stamp: self.stamp, counter };
            outputs.push_back(CoordinatorOutput::Send { to: members[column], message });
        }
    }

    /// Sends each member what was granted to it since the last time.
    fn flush(
        &mut self,
        now: Instant,
        document: &Document,
        timing: &Timing,
        outputs: &mut VecDeque<CoordinatorOutput>,
    ) {
        for column in 0..self.seats.len() {
            let seat = &mut self.seats[column];
            if !seat.opens && seat.fresh.is_empty() {
                continue;
            }
            seat.opens = false;
            seat.seq += 1;
            let seq = seat.seq;
            for counter in std::mem::take(&mut seat.fresh) {
                self.seats[column].pending.insert(counter, Granted { first: seq, last: seq });
            }
            self.send_grow(column, document, outputs);
            self.resend_at.get_or_insert(now + timing.resend);
        }
    }

    fn resend(
        &mut self,
        now: Instant,
        document: &Document,
        timing: &Timing,
        outputs: &mut VecDeque<CoordinatorOutput>,
    ) {
        for column in 0..self.seats.len() {
            let seat = &self.seats[column];
            if seat.promise.is_none() {
                self.send_prepare(column, document, outputs);
            } else if seat.applied < seat.seq {
                self.send_grow(column, document, outputs);
            } else {
                continue;
            }
            self.resend_at = Some(now + timing.resend);
        }
    }

    fn send_prepare(
        &self,
        column: usize,
        document: &Document,
        outputs: &mut VecDeque<CoordinatorOutput>,
    ) {
        let to = self.plan.members()[column];
        let cell = |limited: &Limited| ColumnCell {
            node: document.tree().node(limited.node).name.clone(),
            counter: limited.counter,
            target: self.plan.target(document, limited, to),
        };
        let in_words = self.seats[column].in_words;
        let column = in_words.then(|| Column {
            cells: document.counters().iter().map(cell).collect(),
            parts: self.plan.parts(document, to).collect(),
        });
        let prepare = Prepare { stamp: self.stamp, recipe: self.recipe.clone(), column };
        outputs.push_back(CoordinatorOutput::Send { to, message: ToMember::Prepare(prepare) });
    }

    /// Says all that a member is not known to have applied.
    fn send_grow(
        &mut self,
        column: usize,
        document: &Document,
        outputs: &mut VecDeque<CoordinatorOutput>,
    ) {
        let seat = &self.seats[column];
        let to = self.plan.members()[column];
        let rest = seat.applied == 0;
        if rest {
            self.seats[column].whole = seat.seq;
        }
        let seat = &self.seats[column];
        let counters = (0..).zip(document.counters());
        let cells: Vec<(u32, u32)> = if rest {
            let differs = |&(counter, limited): &(u32, &Limited)| {
                let target = self.plan.target(document, limited, to);
                let held = self.ledger[self.place(counter, column)];
                held < target || seat.pending.contains_key(&counter) || self.is_over(counter)
            };
            let cell = |(counter, _)| {
                let held = self.ledger[self.place(counter, column)];
                // Nothing is free: calls beyond the limit must not come back as a cap when they end.
                (counter, if self.is_over(counter) { 0 } else { held })
            };
            counters.filter(differs).map(cell).collect()
        } else {
            let unknown = seat.pending.iter().filter(|(_, granted)| seat.applied < granted.first);
            let cell = |(&counter, _)| (counter, self.ledger[self.place(counter, column)]);
            unknown.map(cell).collect()
        };
        let seat = &mut self.seats[column];
        for (counter, _) in &cells {
            seat.pending.entry(*counter).and_modify(|granted| granted.last = seat.seq);
        }
        let grow = Grow { stamp: self.stamp, seq: seat.seq, rest, cells };
        outputs.push_back(CoordinatorOutput::Send { to, message: ToMember::Grow(grow) });
    }

    fn tell_elsewhere(&mut self, outputs: &mut VecDeque<CoordinatorOutput>) {
        let changed = self.pool.take_changed();
        if changed.is_empty() {
            return;
        }
        for (column, &to) in self.plan.members().iter().enumerate() {
            let others = |&counter: &u32| (counter, self.pool.used_by_others(counter, column));
            let cells = changed.iter().map(others).collect();
            let message = ToMember::Elsewhere { stamp: self.stamp, cells };
            outputs.push_back(CoordinatorOutput::Send { to, message });
        }
    }

    /// Returns whether more is held of a counter than may be, so that nothing was granted of it.
    fn is_over(&self, counter: u32) -> bool {
        let width = self.seats.len();
        let row = &self.ledger[counter as usize * width..][..width];
        !self.recipe.eager && self.budgets[counter as usize] < sum(row)
    }

    /// Returns whether a member gets nothing while others do.
    fn is_passive(&self, segment: SegmentId) -> bool {
        let mut present = self.recipe.parts.iter().filter(|part| part.present);
        let idle = present.clone().any(|part| part.segment == segment.0 && part.weight == 0);
        idle && present.any(|part| 0 < part.weight)
    }

    fn is_open(&self) -> bool {
        self.seats.iter().all(|seat| seat.promise.is_some())
    }

    fn column(&self, segment: SegmentId) -> Option<usize> {
        self.plan.members().binary_search(&segment).ok()
    }

    fn place(&self, counter: u32, column: usize) -> usize {
        counter as usize * self.seats.len() + column
    }
}

/// Raises those below their targets, lowest segment first, as far as the budget goes.
fn grant(row: &mut [u32], targets: &[u32], budget: u32, eager: bool) {
    let mut free = budget.saturating_sub(sum(row));
    for (held, &target) in row.iter_mut().zip(targets) {
        let missing = target.saturating_sub(*held);
        let given = if eager { missing } else { missing.min(free) };
        *held += given;
        free = free.saturating_sub(given);
    }
}

/// Adds up; what no limit can reach stays there.
pub(super) fn sum(row: &[u32]) -> u32 {
    row.iter().copied().fold(0, u32::saturating_add)
}

/// The plan follows from the recipe.
impl PartialEq for Round {
    fn eq(&self, other: &Self) -> bool {
        let key = |round: &Self| {
            (round.stamp, round.resend_at, round.majority_at, round.lease_at, round.tick_at)
        };
        key(self) == key(other)
            && self.recipe == other.recipe
            && self.seats == other.seats
            && self.ledger == other.ledger
            && self.beyond == other.beyond
            && self.budgets == other.budgets
            && self.pool == other.pool
    }
}

impl Eq for Round {}

impl std::hash::Hash for Round {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.stamp, &self.recipe, &self.seats, &self.ledger, &self.beyond).hash(state);
        (&self.budgets, &self.pool, self.resend_at, self.majority_at, self.lease_at, self.tick_at)
            .hash(state);
    }
}
