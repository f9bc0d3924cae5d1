//! What the other node of a segment needs to go on in a member's place.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::{Followed, Member};
use crate::Call;
use crate::handover::Stamp;

/// What a partner needs to speak for the segment in a member's place; the calls themselves it
/// knows from their records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberState {
    document: u64,
    floor: Option<Stamp>,
    settled: Option<u64>,
    followed: Option<Followed>,
    caps: Vec<u32>,
    reports: u32,
}

impl MemberState {
    /// Returns the highest division promised in it.
    pub fn promised(&self) -> Option<Stamp> {
        self.followed.as_ref().map(|followed| followed.stamp).max(self.floor)
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

/// How many reports a member may have sent that its partner does not know of.
const REPORTS_UNKNOWN: u32 = 1 << 16;

impl Member {
    /// Returns what a partner must have stored before any message that came out with it is sent.
    pub fn state(&self) -> MemberState {
        let places = (0..).take(self.document.counters().len());
        MemberState {
            document: self.document.digest(),
            floor: self.floor,
            settled: self.settled,
            followed: self.followed.clone(),
            caps: places.map(|place| self.share(place)).collect(),
            reports: self.reports,
        }
    }

    /// Speaks for the segment from now on with what the partner had; `live` are the calls that its
    /// records tell of. Returns false, and has no share until the next division, when the state
    /// belongs to another document.
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
        self.ledger.audit(live);
        self.settled = state.settled;
        let promised = state.followed.as_ref().map(|followed| followed.stamp);
        if state.document != self.document.digest() {
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
        // Reports that the partner sent since are not known here: their numbers are passed over.
        self.reports = state.reports.saturating_add(REPORTS_UNKNOWN);
        self.report_at = Some(now);
        self.renew(now);
        self.borrower.restart(&self.document, now, &self.timing);
        true
    }
}
