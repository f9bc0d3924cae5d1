//! When who gave a document is answered: once its peers have it, or another one of its version.

use std::time::{Duration, Instant};

use super::{Documents, Output, PutError};

/// Operators who wait to hear what became of a document that is stored here.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) ids: Vec<u64>,
    pub(super) version: u64,
    pub(super) digest: u64,
    pub(super) until: Instant,
}

/// Peers that have not taken a document in after this do so later, or never: whoever gave it waits no longer.
pub(super) const SPREAD: Duration = Duration::from_secs(1);

impl Documents {
    /// Answers whose documents all peers have, or one has another text of, or that have waited long enough.
    pub(super) fn answer(&mut self, now: Instant) {
        for waiting in std::mem::take(&mut self.waiting) {
            let Waiting { version, digest, until, .. } = waiting;
            let is_there = |held: &Option<_>| {
                held.as_ref().is_some_and(|held: &super::DocumentHeld| version <= held.version)
            };
            let answer = match self.rival(version, digest) {
                Some(peer) => Err(PutError::Twice { peer, version }),
                None if until <= now || self.linked.values().all(is_there) => Ok(version),
                None => {
                    self.waiting.push(waiting);
                    continue;
                }
            };
            let answered = |id| Output::Answered { id, answer: answer.clone() };
            self.outputs.extend(waiting.ids.into_iter().map(answered));
        }
    }

    /// Returns a peer that has another text of a version, if one is known.
    pub(super) fn rival(&self, version: u64, digest: u64) -> Option<failover::NodeId> {
        let held = self.linked.iter().filter_map(|(peer, held)| Some((*peer, held.as_ref()?)));
        let mut others = held.filter(|(_, held)| held.version == version && held.digest != digest);
        others.next().map(|(peer, _)| peer)
    }
}
