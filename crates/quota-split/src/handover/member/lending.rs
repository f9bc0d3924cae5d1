//! The lending side of a member: calls that wait, parts that go back.

use std::time::Instant;

use super::{Member, MemberOutput};
use crate::handover::{Ask, Held, Recall, Report, ToCoordinator};
use crate::{Call, Counter, Full, Lending, Refusal};

impl Member {
    pub(super) fn recall(&mut self, now: Instant, recall: &Recall) {
        let Some(place) = self.ours(recall.stamp, recall.counter) else { return };
        let before = self.held(place);
        let share = self.share(place);
        let least = if recall.drain { 0 } else { self.kept(place, before.used) };
        self.shrink(place, recall.cap.max(least));
        if self.share(place) != share {
            self.dirty.insert(place);
            return self.report(now, true);
        }
        if !recall.drain {
            // The next call that ends within the time of those that wait elsewhere is theirs.
            let units = share.saturating_sub(recall.cap);
            self.borrower.owe(place, units, now + self.timing.hold);
        }
        let Some(followed) = &self.followed else { return };
        let cells = vec![Held { counter: recall.counter, ..before }];
        let report = Report { stamp: recall.stamp, number: 0, applied: followed.seq, cells };
        self.send(report.stamp.epoch, ToCoordinator::Report(report));
    }

    /// Returns the unit of calls that have waited long enough.
    pub(super) fn give_up(&mut self, now: Instant) {
        for waiting in self.borrower.take_late(now) {
            let verdict = self.ledger.admit(now, waiting.call, false);
            if verdict.is_ok() {
                self.touch(now, waiting.call);
            }
            let call = waiting.call.id;
            self.outputs.push_back(MemberOutput::Decided { call, verdict });
        }
    }

    /// Lets in whom the room at these counters allows, in the order of their arrival.
    pub(super) fn retry(&mut self, now: Instant, places: impl IntoIterator<Item = u32>) {
        if !self.borrower.has_waiting() {
            return;
        }
        for mut waiting in self.borrower.take_on(places) {
            let refusal = self.ledger.probe(now, waiting.call).err();
            let on = refusal.and_then(|refusal| self.lender_of(&refusal));
            if let Some(place) = on {
                waiting.on = place;
                self.borrower.push(waiting);
                continue;
            }
            let verdict = self.ledger.admit(now, waiting.call, false);
            if verdict.is_ok() {
                self.touch(now, waiting.call);
            }
            let call = waiting.call.id;
            self.outputs.push_back(MemberOutput::Decided { call, verdict });
        }
        self.ask_for_waiting(now);
    }

    /// Puts a call aside while a unit is borrowed for it, if that can help.
    pub(super) fn hold(&mut self, now: Instant, call: Call, refusal: &Refusal) -> bool {
        let Some(place) = self.lender_of(refusal) else { return false };
        if self.borrower.is_exhausted(place, now) {
            return false;
        }
        if !self.borrower.hold(call, place, now + self.timing.hold) {
            return false;
        }
        self.ask_for_waiting(now);
        true
    }

    /// Returns the counter that a refused call can borrow from.
    pub(super) fn lender_of(&self, refusal: &Refusal) -> Option<u32> {
        let Full::Counter(counter) = refusal.what else { return None };
        let place = self.document.place(refusal.node, counter)?;
        let lends = self.document.counters()[place as usize].lending == Lending::Hold;
        let granted = self.followed.as_ref().is_some_and(|followed| 0 < followed.seq);
        (lends && granted).then_some(place)
    }

    pub(super) fn ask_for_waiting(&mut self, now: Instant) {
        let unasked = self.borrower.unasked();
        // What is asked for is measured by what the coordinator counts as held: if that is more than
        // is held by now, it would find that there is nothing to give.
        if unasked.iter().any(|(place, _)| self.dirty.contains(place)) {
            self.report(now, false);
        }
        let Some(followed) = &self.followed else { return };
        let goal = |&(place, count): &(u32, u32)| {
            let goal = self.held(place).used.saturating_add(count);
            followed.theirs(place).map(|counter| (counter, goal))
        };
        let cells: Vec<(u32, u32)> = unasked.iter().filter_map(goal).collect();
        if !cells.is_empty() {
            let ask = Ask { stamp: followed.stamp, cells, urgent: true };
            self.send(ask.stamp.epoch, ToCoordinator::Ask(ask));
        }
    }

    /// Returns what is idle to the pool and asks for what is missing.
    pub(super) fn tick(&mut self, now: Instant) {
        let mut asks = Vec::new();
        for (place, refusals) in self.borrower.tick(now, &self.timing) {
            let held = self.held(place);
            let share = self.share(place);
            let pooled = self.target(place) == Some(0);
            let want = if pooled { held.used } else { want(held.used, refusals) };
            let want = want.max(self.kept(place, held.used));
            if want < share {
                self.shrink(place, want);
            } else if share < want {
                asks.extend(
                    self.followed.as_ref().and_then(|f| f.theirs(place)).map(|c| (c, want)),
                );
                self.borrower.touch(place);
            }
            self.dirty.insert(place);
        }
        self.report(now, false);
        let stamp = self.followed.as_ref().map(|followed| followed.stamp);
        if let Some(stamp) = stamp.filter(|_| !asks.is_empty()) {
            let ask = Ask { stamp, cells: asks, urgent: false };
            self.send(stamp.epoch, ToCoordinator::Ask(ask));
        }
    }

    /// Notes that a call's counters are used otherwise than before.
    pub(super) fn touch(&mut self, now: Instant, call: Call) {
        for node in self.document.tree().path(call.node) {
            for counter in [Counter::Calls, call.direction.counter()] {
                let Some(place) = self.document.place(node, counter) else { continue };
                if self.lends(place) && self.borrower.is_used() {
                    self.borrower.touch(place);
                } else {
                    self.changed.insert(place);
                    self.tell_at.get_or_insert(now + self.timing.tick);
                }
            }
        }
    }

    /// Makes everything in use be told to a coordinator that knows nothing yet.
    pub(super) fn tell_all(&mut self, now: Instant) {
        let counters = (0..).zip(self.document.counters());
        let used = counters.filter(|(_, one)| 0 < self.ledger.view(one.node, one.counter).used);
        self.changed.extend(used.map(|(place, _)| place));
        if !self.changed.is_empty() {
            self.tell_at.get_or_insert(now + self.timing.tick);
        }
    }

    pub(super) fn want_more(&mut self, refusal: &Refusal) {
        let Full::Counter(counter) = refusal.what else { return };
        let place = self.document.place(refusal.node, counter);
        if let Some(place) = place.filter(|&place| self.lends(place)) {
            self.borrower.refused(place);
        }
    }

    /// Returns what is kept back of a counter whatever others want.
    pub(super) fn kept(&self, place: u32, used: u32) -> u32 {
        let part = self.target(place).unwrap_or(0);
        self.document.counters()[place as usize].kept(used, part)
    }

    pub(super) fn lends(&self, place: u32) -> bool {
        self.document.counters()[place as usize].lending != Lending::Off
    }
}

/// Returns the cap that a busy counter asks for: room for the calls of the next second.
fn want(used: u32, refusals: u32) -> u32 {
    let root = used.isqrt();
    let root = root + u32::from(root * root < used);
    used.saturating_add(1 + root + refusals)
}
