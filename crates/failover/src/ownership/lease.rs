use std::time::{Duration, Instant};

use super::Ownership;

impl Ownership {
    /// Returns until when this b2b may act, if it ever might.
    pub(super) fn lease_until(&self) -> Option<Instant> {
        let voters = self.peers.iter().filter(|(id, _)| self.votes(**id));
        lease_until(voters.filter_map(|(_, peer)| peer.acked_at), self.acks_needed())
    }

    /// Returns how many voters must promise.
    pub(super) fn promises_needed(&self) -> usize {
        majority(self.voters())
    }

    fn acks_needed(&self) -> usize {
        answers_needed(self.voters())
    }

    fn voters(&self) -> usize {
        self.peers.keys().filter(|id| self.votes(**id)).count()
    }
}

/// Returns how many of `voters` must promise slots to a b2b before it owns them.
pub fn majority(voters: usize) -> usize {
    voters / 2 + 1
}

/// Returns how many of `voters` must answer an owner before it may act: whichever majority promises its
/// slots to another, one of these answers is missing then. A voter that restarts may have forgotten such
/// a promise; by the time it takes frames again, the old owner has been without a lease for so long that
/// the others let it lapse. Of two voters one suffices and there are no others: two gates alone are not
/// safe from that, and get a witness.
pub fn answers_needed(voters: usize) -> usize {
    voters + 1 - majority(voters)
}

/// Returns when the lease of an owner ends that needs the answers of `needed` voters: [`LEASE`] after
/// the `needed`-th newest of the pulses that were answered was sent. `acked_at` holds when the newest
/// of each voter was sent. `None` when there never was a lease.
pub fn lease_until(acked_at: impl IntoIterator<Item = Instant>, needed: usize) -> Option<Instant> {
    let mut acked_at: Vec<Instant> = acked_at.into_iter().collect();
    acked_at.sort_unstable();
    Some(*acked_at.iter().rev().nth(needed.checked_sub(1)?)? + LEASE)
}

/// How long an owner may act after it sent a pulse that enough voters answered.
pub const LEASE: Duration = Duration::from_millis(150);
