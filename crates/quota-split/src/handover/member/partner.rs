//! What the other node of a segment needs to go on in a member's place.

use std::collections::BTreeSet;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::{Followed, Member};
use crate::handover::Stamp;
use crate::{Call, Document};

/// What a partner needs to speak for the segment in a member's place; the calls themselves it
/// knows from their records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberState {
    pub(in crate::handover) document: u64,
    pub(in crate::handover) floor: Option<Stamp>,
    pub(in crate::handover) settled: Option<u64>,
    pub(in crate::handover) followed: Option<Followed>,
    pub(in crate::handover) caps: Vec<u32>,
    pub(in crate::handover) reports: u32,
}

impl MemberState {
    /// Returns the highest division promised in it.
    pub fn promised(&self) -> Option<Stamp> {
        self.followed.as_ref().map(|followed| followed.stamp).max(self.floor)
    }

    /// Returns whether everything in it is about limits of this document.
    fn fits(&self, document: &Document) -> bool {
        let own = document.counters().len();
        let follows = |followed: &Followed| match &followed.names {
            None => followed.targets.len() == own,
            Some(names) => {
                let known = |name: &u32| (*name as usize) < own;
                names.len() == followed.targets.len() && names.iter().flatten().all(known)
            }
        };
        let numbered = self.caps.len() == own && self.followed.as_ref().is_none_or(follows);
        self.document == document.digest() && numbered
    }

    /// Takes in what has become other; tells whether it can be this one's, and changes nothing if not.
    pub(in crate::handover) fn change(&mut self, change: &MemberChange) -> bool {
        let own = self.caps.len();
        let Some(followed) = &mut self.followed else { return false };
        if change.caps.iter().any(|(place, _)| own <= *place as usize) {
            return false;
        }
        followed.seq = change.seq;
        (self.settled, self.reports) = (change.settled, change.reports);
        for &(place, cap) in &change.caps {
            self.caps[place as usize] = cap;
        }
        true
    }

    /// Returns how many numbers are listed in it, for who must know how long it gets.
    pub fn numbers(&self) -> usize {
        let followed = self.followed.as_ref().map_or(0, |followed| {
            // A number that may be missing takes a byte more.
            followed.targets.len() + 2 * followed.names.as_ref().map_or(0, Vec::len)
        });
        self.caps.len() + followed
    }
}

/// What is other in a [`MemberState`] than in the one before: grants and caps move while the division
/// stays the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberChange {
    pub(in crate::handover) seq: u32,
    pub(in crate::handover) settled: Option<u64>,
    pub(in crate::handover) reports: u32,
    /// Counters, and what their caps are now.
    pub(in crate::handover) caps: Vec<(u32, u32)>,
}

/// What a partner does not know that has the last state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::handover) enum News {
    Nothing,
    /// These caps, and figures of which there is one each.
    Some(BTreeSet<u32>),
    All,
}

impl News {
    /// Adds a cap, or what is no cap.
    pub(super) fn note(&mut self, place: Option<u32>) {
        if *self == Self::Nothing {
            *self = Self::Some(BTreeSet::new());
        }
        if let Self::Some(places) = self {
            places.extend(place);
        }
    }
}

/// Caps that are told one by one: with more of them the whole state is sent, which may be long.
const CHANGES_MAX: usize = 256;

/// How many reports a member may have sent that its partner does not know of: the state tells their number
/// in steps of so many, so that it does not change with each.
pub(super) const REPORTS_UNKNOWN: u32 = 1 << 16;

impl Member {
    /// Returns what a partner must have stored before any message that came out with it is sent.
    pub fn state(&self) -> MemberState {
        let places = (0..).take(self.document.counters().len());
        MemberState {
            document: self.document.digest(),
            floor: self.floor,
            settled: self.bases.settled,
            followed: self.followed.clone(),
            caps: places.map(|place| self.share(place)).collect(),
            reports: self.reports / REPORTS_UNKNOWN * REPORTS_UNKNOWN,
        }
    }

    /// Returns what in [`state`](Self::state) may have changed since this was last asked.
    pub(in crate::handover) fn take_news(&mut self) -> News {
        std::mem::replace(&mut self.news, News::Nothing)
    }

    /// Puts news into words; `None` where only the whole state can say them.
    pub(in crate::handover) fn change(&self, news: &News) -> Option<MemberChange> {
        let News::Some(places) = news else { return None };
        let followed = self.followed.as_ref().filter(|_| places.len() <= CHANGES_MAX)?;
        Some(MemberChange {
            seq: followed.seq,
            settled: self.bases.settled,
            reports: self.reports / REPORTS_UNKNOWN * REPORTS_UNKNOWN,
            caps: places.iter().map(|&place| (place, self.share(place))).collect(),
        })
    }

    /// Speaks for the segment from now on with what the partner had; `live` are the calls that its
    /// records tell of. Returns false, and has no share until the next division, when the state
    /// belongs to another document, or cannot be this one's.
    ///
    /// # Panics
    ///
    /// Panics when a call's node comes from a larger tree.
    pub fn take_over(
        &mut self,
        now: Instant,
        state: &MemberState,
        live: impl IntoIterator<Item = Call>,
    ) -> bool {
        let drifts = self.ledger.audit(live);
        self.recounted(drifts);
        self.bases.settled = state.settled;
        self.news = News::All;
        self.uncover_all();
        let promised = state.followed.as_ref().map(|followed| followed.stamp);
        if !state.fits(&self.document) {
            self.floor = self.promised().max(promised).max(state.floor);
            self.followed = None;
            return false;
        }
        self.floor = state.floor;
        self.followed.clone_from(&state.followed);
        self.followed.iter_mut().for_each(Followed::turn_names);
        for ((place, &cap), limited) in (0..).zip(&state.caps).zip(self.document.counters()) {
            self.ledger.set_share(limited.node, limited.counter, cap);
            self.dirty.insert(place);
        }
        self.uncover_all();
        // Reports that the partner sent since are not known here: their numbers are passed over.
        self.reports = state.reports.wrapping_add(REPORTS_UNKNOWN);
        self.renew(now);
        self.borrower.restart(&self.document, now, &self.timing);
        self.report(now, false);
        true
    }
}
