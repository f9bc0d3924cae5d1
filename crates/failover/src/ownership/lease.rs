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
        self.voters() / 2 + 1
    }

    /// Any majority that promises to another meets so many.
    fn acks_needed(&self) -> usize {
        self.voters() + 1 - self.promises_needed()
    }

    fn voters(&self) -> usize {
        self.peers.keys().filter(|id| self.votes(**id)).count()
    }
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
