//! The one that counts calls against its share, and gives back before others get.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use super::{Bases, Epoch, Held, Report, Stamp, Timing, ToCoordinator, ToMember};
use serde::{Deserialize, Serialize};

use crate::{
    Admission, Call, CallId, Counter, Document, Drift, Ledger, Partition, Refusal, SegmentId, Sight,
};

use borrower::Borrower;
pub(super) use partner::News;
use partner::REPORTS_UNKNOWN;
pub use partner::{MemberChange, MemberState};

mod beyond;
mod borrower;
mod division;
mod lending;
mod partner;

/// The share of one segment: obeys the highest division it has promised, counts calls against it,
/// and reports what it holds less.
///
/// Only the speaker of a segment runs one. Until it is granted something every limit is zero, and no
/// call is ever ended for a share that shrank. Drain [`poll_output`](Self::poll_output) after every
/// other call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    segment: SegmentId,
    timing: Timing,
    document: Arc<Document>,
    ledger: Ledger,
    /// Promised by an earlier life, whose grants must not be taken for this one's.
    floor: Option<Stamp>,
    /// By which weights it tells majorities, and which document all have grown under.
    bases: Bases,
    /// The division in which the newest of them was promised.
    added: Option<Stamp>,
    followed: Option<Followed>,
    lease_until: Option<Instant>,
    /// Counters held less than the coordinator knows.
    dirty: BTreeSet<u32>,
    /// Counters reported and not known to be heard, with the number of the report.
    unheard: BTreeMap<u32, u32>,
    reports: u32,
    report_at: Option<Instant>,
    resend_at: Option<Instant>,
    /// A division that cannot be obeyed as it is any more, and when that is said again: until another is
    /// promised, since nobody else asks for one.
    refuses: Option<(Stamp, Instant)>,
    /// Counters that are not lent, used otherwise than was last told, and when that is told.
    changed: BTreeSet<u32>,
    tell_at: Option<Instant>,
    borrower: Borrower,
    /// Whether the segment takes no new calls any more.
    drains: bool,
    /// When that is said again, while the division obeyed does not show that the coordinator knows.
    drain_at: Option<Instant>,
    /// Calls by counter that no grant covers, where there are any: they passed the limit, or were here before any
    /// grant. A limit of which only what was brought along is handed out does not get them.
    beyond: BTreeMap<u32, u32>,
    /// What in [`Member::state`] may differ from what it was when this was last asked.
    news: News,
    outputs: VecDeque<MemberOutput>,
}

/// What the owner tells a member.
#[derive(Clone, Debug)]
pub enum MemberInput {
    /// The coordinator sent this.
    Received(ToMember),
    /// Tenants or limits have changed.
    Document(Arc<Document>),
    /// The segment takes no new calls any more.
    Drain,
}

/// What a member asks of its owner, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MemberOutput {
    /// Send this to the coordinator of an epoch.
    Send {
        /// Whose division it belongs to.
        epoch: Epoch,
        /// The message.
        message: ToCoordinator,
    },
    /// A call that waited is decided.
    Decided {
        /// The call.
        call: CallId,
        /// Whether it was let in.
        verdict: Result<Admission, Refusal>,
    },
    /// Counters changed at once, with a document or what lives.
    Recounted(Vec<Drift>),
    /// A call that waited counts nowhere in the new document.
    Unknown(CallId),
    /// Limits under a weight majority are closed: the coordinator was not heard for a lease.
    Lapsed,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is counted.
    Admitted(Admission),
    /// It does not fit.
    Refused(Refusal),
    /// It waits for a borrowed unit; [`MemberOutput::Decided`] follows.
    Held,
}

/// The division that is obeyed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Followed {
    pub(super) stamp: Stamp,
    pub(super) sight: Sight,
    pub(super) document: u64,
    /// The last grant applied.
    pub(super) seq: u32,
    /// What each counter may grow to, as the coordinator numbers them.
    pub(super) targets: Vec<u32>,
    /// Its numbers of counters in ours, when the documents differ.
    pub(super) names: Option<Vec<Option<u32>>>,
    /// Ours in its, derived from that.
    #[serde(skip)]
    pub(super) places: Vec<Option<u32>>,
}

impl Member {
    /// Starts with no call and no share. `promised` is what an earlier life promised last, from
    /// disk: this life obeys only what is higher. `seed` keys the look-up of calls.
    pub fn new(
        now: Instant,
        segment: SegmentId,
        timing: Timing,
        document: Arc<Document>,
        promised: Option<Stamp>,
        seed: u64,
    ) -> Self {
        Self {
            segment,
            timing,
            ledger: Ledger::new(document.tree(), seed, now),
            document,
            floor: promised,
            bases: Bases::default(),
            added: None,
            followed: None,
            lease_until: None,
            dirty: BTreeSet::new(),
            unheard: BTreeMap::new(),
            reports: 0,
            report_at: None,
            resend_at: None,
            refuses: None,
            changed: BTreeSet::new(),
            tell_at: None,
            borrower: Borrower::default(),
            drains: false,
            drain_at: None,
            beyond: BTreeMap::new(),
            news: News::All,
            outputs: VecDeque::new(),
        }
    }

    /// Tells majorities by these weights from now on: what an earlier life or the other node of the
    /// segment was bound to. Without any, whatever a coordinator calls a majority is believed to be one.
    pub fn bind(&mut self, bases: Bases) {
        self.bases = bases;
        self.added = None;
    }

    /// Takes in what arrived at `now`. What belongs to another division is ignored or refused.
    pub fn handle_input(&mut self, now: Instant, input: MemberInput) {
        match input {
            MemberInput::Document(document) => self.take_document(now, &document),
            MemberInput::Received(message) => self.receive(now, message),
            MemberInput::Drain if self.drains => {}
            MemberInput::Drain => {
                self.drains = true;
                // Whoever coordinates may be here, and shrinks the share at once: not while calls are
                // let in.
                self.drain_at = Some(now + self.timing.report);
            }
        }
    }

    /// Does whatever is due at `now`; does nothing when nothing is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.lease_until.is_some_and(|until| until <= now) {
            self.lease_until = None;
            self.lapse(now);
        }
        if self.resend_at.is_some_and(|at| at <= now) {
            self.resend_at = None;
            self.dirty.extend(self.unheard.keys().copied());
            self.report(now, false);
        }
        if self.tell_at.is_some_and(|at| at <= now) {
            self.tell_at = None;
            self.dirty.append(&mut self.changed);
            self.report(now, false);
        }
        if self.report_at.is_some_and(|at| at <= now) {
            self.report(now, false);
        }
        if self.borrower.tick_at().is_some_and(|at| at <= now) {
            self.tick(now);
        }
        if self.drain_at.is_some_and(|at| at <= now) {
            self.tell_drain(now);
        }
        if let Some((stamp, _)) = self.refuses.filter(|(_, at)| *at <= now) {
            self.refuse(now, stamp);
        }
        self.give_up(now);
    }

    /// Returns the next thing to do.
    pub fn poll_output(&mut self) -> Option<MemberOutput> {
        self.outputs.pop_front()
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next needed.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let own = [self.lease_until, self.report_at, self.resend_at, self.tell_at, self.drain_at];
        let refuses = [self.refuses.map(|(_, at)| at)];
        own.into_iter().chain(refuses).flatten().chain(self.borrower.deadline()).min()
    }

    /// Counts a call, refuses it, or lets it wait for a borrowed unit. `exempt` calls pass every limit.
    ///
    /// # Panics
    ///
    /// Panics when the call's node comes from a larger tree.
    pub fn request(&mut self, now: Instant, call: Call, exempt: bool) -> Verdict {
        if self.borrower.waits(call.id) {
            return Verdict::Held;
        }
        if !exempt
            && self.borrower.is_used()
            && let Err(refusal) = self.ledger.probe(now, call)
            && self.hold(now, call, &refusal)
        {
            return Verdict::Held;
        }
        match self.ledger.admit(now, call, exempt) {
            Ok(admission) => {
                if exempt && !admission.again {
                    self.pass(call);
                }
                self.touch(now, call);
                Verdict::Admitted(admission)
            }
            Err(refusal) => {
                self.want_more(&refusal);
                Verdict::Refused(refusal)
            }
        }
    }

    /// Ends a call, counted or waiting, whatever ended it; tells whether it was counted until now.
    pub fn release(&mut self, now: Instant, id: CallId) -> bool {
        self.borrower.forget(id);
        let Some(call) = self.ledger.call(id) else { return false };
        self.ledger.release(id);
        self.touch(now, call);
        let mut owed = false;
        let document = Arc::clone(&self.document);
        // Whoever waits here goes before whoever waits elsewhere.
        self.retry(now, document.places(call));
        for node in document.tree().path(call.node) {
            for counter in [Counter::Calls, call.direction.counter()] {
                let Some(place) = document.place(node, counter) else { continue };
                let view = self.ledger.view(node, counter);
                self.cover(place);
                if view.share.is_some_and(|share| share <= view.used) {
                    self.dirty.insert(place);
                    self.report_at.get_or_insert(now + self.timing.report);
                } else if self.borrower.owes(place, now) {
                    let least = self.kept(place, view.used);
                    self.shrink(place, view.share.unwrap_or(0).saturating_sub(1).max(least));
                    self.dirty.insert(place);
                    owed = true;
                }
            }
        }
        if owed {
            self.report(now, true);
        }
        true
    }

    /// Counts anew from the calls that live, as [`Ledger::audit`]. What is found to be held beyond all
    /// that the coordinator can know of costs a new round.
    ///
    /// # Panics
    ///
    /// Panics when a call's node comes from a larger tree.
    pub fn audit(&mut self, now: Instant, live: impl IntoIterator<Item = Call>) -> Vec<Drift> {
        let drifts = self.ledger.audit(live);
        let more = |drift: &Drift| {
            let share = self.ledger.view(drift.node, drift.counter).share;
            share.is_some_and(|share| share.max(drift.was) < drift.is)
        };
        if let Some(followed) = self.followed.as_ref().filter(|_| drifts.iter().any(more)) {
            let stamp = followed.stamp;
            self.refuse(now, stamp);
        }
        for drift in &drifts {
            let Some(place) = self.document.place(drift.node, drift.counter) else { continue };
            self.uncover(place);
            self.dirty.insert(place);
        }
        if !self.dirty.is_empty() {
            self.report_at.get_or_insert(now + self.timing.report);
        }
        drifts
    }

    /// Returns the calls that wait for a borrowed unit.
    pub fn held_calls(&self) -> impl Iterator<Item = Call> {
        self.borrower.calls()
    }

    /// Returns its counters, for views.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns its document.
    pub fn document(&self) -> &Arc<Document> {
        &self.document
    }

    /// Returns the highest division promised, which must be on disk before the promise is sent.
    pub fn promised(&self) -> Option<Stamp> {
        self.followed.as_ref().map(|followed| followed.stamp).max(self.floor)
    }

    /// Returns by which weights it tells majorities; to be on disk before a promise is sent.
    pub fn bases(&self) -> &Bases {
        &self.bases
    }

    /// Returns what a counter may grow to in the division obeyed; `None` before there is one.
    pub fn target(&self, counter: u32) -> Option<u32> {
        let followed = self.followed.as_ref()?;
        followed.targets.get(followed.theirs(counter)? as usize).copied()
    }

    fn receive(&mut self, now: Instant, message: ToMember) {
        match message {
            ToMember::Prepare(prepare) => self.prepare(now, &prepare),
            ToMember::Grow(grow) => self.grow(now, &grow),
            ToMember::Recall(recall) => self.recall(now, &recall),
            ToMember::Exhausted { stamp, counter } => {
                if let Some(place) = self.ours(stamp, counter) {
                    self.borrower.exhaust(place, now + self.timing.hint);
                }
            }
            ToMember::Heard { stamp, report } => {
                if self.follows(stamp) {
                    self.unheard.retain(|_, number| *number != report);
                }
            }
            ToMember::Lease { stamp } => {
                if self.follows(stamp) {
                    self.renew(now);
                }
            }
            ToMember::Elsewhere { stamp, cells } => {
                for (counter, used) in cells {
                    let Some(place) = self.ours(stamp, counter) else { continue };
                    let limited = self.document.counters()[place as usize];
                    self.ledger.set_elsewhere(limited.node, limited.counter, Some(used));
                }
            }
        }
    }

    fn take_document(&mut self, now: Instant, document: &Arc<Document>) {
        let before = std::mem::replace(&mut self.document, Arc::clone(document));
        let (before, now_here) = (before.tree(), document.tree());
        let moved = self.ledger.moved(before, now_here);
        self.recounted(moved.differences(now_here, &self.ledger, before));
        self.ledger = moved;
        self.uncover_all();
        self.news = News::All;
        // Numbers of counters have changed: what is followed can no longer be told from others.
        self.floor = self.promised();
        if let Some(Followed { stamp, .. }) = self.followed.take() {
            self.refuse(now, stamp);
        }
        self.dirty.clear();
        self.unheard.clear();
        (self.report_at, self.resend_at, self.tell_at) = (None, None, None);
        self.drain_at = None;
        self.changed.clear();
        for waiting in self.borrower.take_all() {
            let call = waiting.call.id;
            self.outputs.push_back(match waiting.call.moved(before, now_here) {
                Some(moved) => {
                    let verdict = self.ledger.admit(now, moved, false);
                    MemberOutput::Decided { call, verdict }
                }
                None => MemberOutput::Unknown(call),
            });
        }
        self.borrower = Borrower::default();
    }

    /// Reports what is held less, or, when `always`, at least which grant was applied.
    fn report(&mut self, now: Instant, always: bool) {
        self.report_at = None;
        if self.followed.is_none() {
            return;
        }
        let dirty = std::mem::take(&mut self.dirty);
        if dirty.is_empty() && !always {
            return;
        }
        let number = if dirty.is_empty() { 0 } else { self.next_report() };
        let Some(followed) = &self.followed else { return };
        let own = dirty.iter().filter_map(|&place| {
            let counter = followed.theirs(place)?;
            Some(Held { counter, ..self.held(place) })
        });
        let cells: Vec<Held> = own.collect();
        let report = Report { stamp: followed.stamp, number, applied: followed.seq, cells };
        if !dirty.is_empty() {
            self.resend_at = Some(now + self.timing.resend);
        }
        self.unheard.extend(dirty.into_iter().map(|place| (place, number)));
        self.send(report.stamp.epoch, ToCoordinator::Report(report));
    }

    /// Says that no new calls are taken, until a division gives this segment no weight though it has one.
    fn tell_drain(&mut self, now: Instant) {
        self.drain_at = None;
        let Some(stamp) = self.followed.as_ref().map(|followed| followed.stamp) else { return };
        if self.drains {
            self.drain_at = Some(now + self.timing.resend);
            self.send(stamp.epoch, ToCoordinator::Drains { stamp });
        }
    }

    /// Asks for a new round in the place of what was promised.
    fn refuse(&mut self, now: Instant, stamp: Stamp) {
        self.refuses = Some((stamp, now + self.timing.resend));
        self.send(stamp.epoch, ToCoordinator::Refuse { stamp, promised: stamp });
    }

    fn recounted(&mut self, drifts: Vec<Drift>) {
        if !drifts.is_empty() {
            self.outputs.push_back(MemberOutput::Recounted(drifts));
        }
    }

    /// Returns the number of the next report, which is never zero.
    fn next_report(&mut self) -> u32 {
        let before = self.reports / REPORTS_UNKNOWN;
        self.reports = self.reports.wrapping_add(1).max(1);
        if before != self.reports / REPORTS_UNKNOWN {
            self.news.note(None);
        }
        self.reports
    }

    /// Returns the counters under a weight majority.
    fn weighted(&self) -> impl Iterator<Item = u32> {
        let counters = (0..).zip(self.document.counters());
        let weighted = counters.filter(|(_, c)| c.partition == Partition::WeightMajority);
        weighted.map(|(place, _)| place)
    }

    fn follows(&self, stamp: Stamp) -> bool {
        self.followed.as_ref().is_some_and(|followed| followed.stamp == stamp)
    }

    /// Returns our number of the coordinator's counter, under the division obeyed.
    fn ours(&self, stamp: Stamp, counter: u32) -> Option<u32> {
        self.followed.as_ref().filter(|followed| followed.stamp == stamp)?.own(counter)
    }

    fn share(&self, place: u32) -> u32 {
        let limited = &self.document.counters()[place as usize];
        self.ledger.view(limited.node, limited.counter).share.unwrap_or(0)
    }

    fn held(&self, place: u32) -> Held {
        let limited = &self.document.counters()[place as usize];
        let view = self.ledger.view(limited.node, limited.counter);
        let held = view.share.unwrap_or(0).max(view.used);
        Held { counter: place, held, used: view.used }
    }

    fn shrink(&mut self, place: u32, cap: u32) {
        let limited = self.document.counters()[place as usize];
        if cap < self.share(place) {
            self.news.note(Some(place));
            self.ledger.set_share(limited.node, limited.counter, cap);
        }
    }

    fn send(&mut self, epoch: Epoch, message: ToCoordinator) {
        self.outputs.push_back(MemberOutput::Send { epoch, message });
    }
}

impl Followed {
    /// Derives from `names` what they are called the other way.
    fn turn_names(&mut self) {
        self.places.clear();
        for (counter, name) in (0..).zip(self.names.iter().flatten()) {
            let Some(place) = name.map(|name| name as usize) else { continue };
            if self.places.len() <= place {
                self.places.resize(place + 1, None);
            }
            self.places[place].get_or_insert(counter);
        }
    }

    /// Returns our number of the coordinator's counter.
    fn own(&self, counter: u32) -> Option<u32> {
        match &self.names {
            Some(names) => names.get(counter as usize).copied().flatten(),
            None => ((counter as usize) < self.targets.len()).then_some(counter),
        }
    }

    /// Returns the coordinator's number of our counter.
    fn theirs(&self, place: u32) -> Option<u32> {
        match &self.names {
            Some(_) => self.places.get(place as usize).copied().flatten(),
            None => ((place as usize) < self.targets.len()).then_some(place),
        }
    }
}
