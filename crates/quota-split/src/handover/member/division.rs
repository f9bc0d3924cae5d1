//! How a member obeys a division: it shrinks and promises, then grows by what is granted.

use std::collections::BTreeSet;
use std::time::Instant;

use super::partner::News;
use super::{Followed, Member, MemberOutput};
use crate::Sight;
use crate::handover::{
    ColumnCell, ColumnPart, Grow, Prepare, Promise, ToCoordinator, column_digest,
};
use crate::plan::{PARTS_MAX, Plan};

/// Stands for the settled version once another document was promised with every segment there: until that
/// grants something here nobody knows who else has grown under it. It is the version of no document.
const UNSETTLED: u64 = 0;

impl Member {
    pub(super) fn prepare(&mut self, now: Instant, prepare: &Prepare) {
        let stamp = prepare.stamp;
        if PARTS_MAX < prepare.recipe.parts.len() {
            // No cluster is so large, and a table of shares grows with it.
            return;
        }
        if self.follows(stamp) {
            // The promise may have been lost. What is held now is no more than what was held then.
            return self.promise();
        }
        if let Some(promised) = self.promised().filter(|promised| stamp <= *promised) {
            return self.send(stamp.epoch, ToCoordinator::Refuse { stamp, promised });
        }
        let recipe = &prepare.recipe;
        if recipe.sight.is_majority() && !self.bases.agree(&recipe.parts) {
            return self.send(stamp.epoch, ToCoordinator::Outweighed { stamp });
        }
        let same =
            (recipe.document, recipe.digest) == (self.document.version(), self.document.digest());
        let (targets, names) = match &prepare.column {
            Some(column) => {
                self.take_parts(&column.parts);
                let targets = column.cells.iter().map(|cell| cell.target).collect();
                (targets, Some(column.cells.iter().map(|cell| self.find(cell)).collect()))
            }
            None if same => {
                let plan = Plan::new(&self.document, recipe);
                let counters = self.document.counters().iter();
                let targets =
                    counters.map(|l| plan.target(&self.document, l, self.segment)).collect();
                self.take_parts(&plan.parts(&self.document, self.segment).collect::<Vec<_>>());
                (targets, None)
            }
            None => return self.send(stamp.epoch, ToCoordinator::NeedColumn { stamp }),
        };
        for limited in self.document.counters() {
            self.ledger.set_elsewhere(limited.node, limited.counter, None);
        }
        let (document, sight) = (recipe.document, recipe.sight);
        let places = Vec::new();
        let mut followed = Followed { stamp, sight, document, seq: 0, targets, names, places };
        followed.turn_names();
        for (counter, &target) in (0..).zip(&followed.targets) {
            if let Some(place) = followed.own(counter) {
                self.shrink(place, target);
            }
        }
        self.followed = Some(followed);
        self.news = News::All;
        self.dirty.clear();
        self.unheard.clear();
        (self.report_at, self.resend_at, self.refuses) = (None, None, None);
        if sight == Sight::Whole {
            if self.bases.settled != Some(document) {
                self.bases.settled = Some(UNSETTLED);
            }
            self.bases.add(&recipe.parts);
            self.added = Some(stamp);
            self.renew(now);
        }
        self.borrower.restart(&self.document, now, &self.timing);
        self.promise();
        let mut parts = recipe.parts.iter().filter(|part| part.segment == self.segment.0);
        self.drain_at = None;
        // Where it never has a weight, that it gets none does not show that the coordinator knows.
        if parts.any(|part| 0 < part.weight || part.usual == 0) {
            self.tell_drain(now);
        }
    }

    fn promise(&mut self) {
        let Some(followed) = &self.followed else { return };
        let mut held = Vec::new();
        for (counter, &target) in (0..).zip(&followed.targets) {
            let place = followed.own(counter);
            let granted = place.map_or(0, |place| self.granted(place));
            let all = place.map_or(0, |place| self.held(place).held);
            if granted != all {
                held.push((counter, granted));
            }
            if granted != all || all != target {
                held.push((counter, all));
            }
        }
        let promise = Promise {
            stamp: followed.stamp,
            held,
            digest: column_digest(followed.targets.iter().copied()),
            settled: self.bases.settled,
        };
        self.send(promise.stamp.epoch, ToCoordinator::Promise(promise));
    }

    pub(super) fn grow(&mut self, now: Instant, grow: &Grow) {
        if !self.follows(grow.stamp) {
            return;
        }
        if let Some(mut followed) = self.followed.take_if(|followed| followed.seq < grow.seq) {
            followed.seq = grow.seq;
            self.news.note(None);
            // It is word from the coordinator as a lease is: who has lapsed may use what it is granted.
            self.renew(now);
            // Its first shares count as those of all: what the others have by then follows the same document.
            if followed.sight == Sight::Whole || self.bases.settled.is_none() {
                self.bases.settled = Some(followed.document);
            }
            if self.added == Some(grow.stamp) {
                self.bases.settle();
            }
            let mut places: BTreeSet<u32> = BTreeSet::new();
            if grow.rest {
                let listed: BTreeSet<u32> =
                    grow.cells.iter().map(|(counter, _)| *counter).collect();
                for (counter, &target) in (0..).zip(&followed.targets) {
                    if let Some(place) =
                        followed.own(counter).filter(|_| !listed.contains(&counter))
                    {
                        places.insert(place);
                        self.raise(place, target);
                    }
                }
            }
            for &(counter, cap) in &grow.cells {
                if let Some(place) = followed.own(counter) {
                    places.insert(place);
                    self.borrower.found(place);
                    self.raise(place, cap);
                }
            }
            self.followed = Some(followed);
            if grow.rest {
                self.borrower.ask_again();
                self.tell_all(now);
            }
            self.retry(now, places);
        }
        self.report(now, true);
    }

    pub(super) fn lapse(&mut self, now: Instant) {
        for place in self.weighted().collect::<Vec<_>>() {
            self.shrink(place, 0);
            self.dirty.insert(place);
        }
        self.outputs.push_back(MemberOutput::Lapsed);
        self.report(now, false);
    }

    pub(super) fn renew(&mut self, now: Instant) {
        if self.weighted().next().is_some() {
            self.lease_until = Some(now + self.timing.lease);
        }
    }

    /// Takes its part of rates and burst levels, which nobody hands out.
    fn take_parts(&mut self, parts: &[ColumnPart]) {
        for part in parts {
            let Some(id) = self.document.tree().find(&part.node) else { continue };
            self.ledger.set_rate(id, part.per_second);
            self.ledger.set_levels(id, part.levels);
        }
    }

    fn find(&self, cell: &ColumnCell) -> Option<u32> {
        self.document.place(self.document.tree().find(&cell.node)?, cell.counter)
    }

    fn raise(&mut self, place: u32, cap: u32) {
        let limited = self.document.counters()[place as usize];
        if self.share(place) < cap {
            self.news.note(Some(place));
            self.ledger.set_share(limited.node, limited.counter, cap);
            self.cover(place);
        }
    }
}
