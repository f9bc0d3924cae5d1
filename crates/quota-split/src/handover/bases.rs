//! What a segment goes by in a cluster that is cut: which weights make a majority, which document all have seen.

use serde::{Deserialize, Serialize};

use crate::Part;
use crate::plan::PARTS_MAX;

/// The usual weights of all segments, by each document that somebody may still tell majorities by.
///
/// Two parts of a cluster that is cut may each have more than half of the weight when they know different
/// documents. So a new document decides nothing alone: a segment is with the majority only where it is so by the
/// weights of the last document that every segment promised to obey, and by those of each that it has promised
/// since. Once all have promised the new one, that is the last.
///
/// So it is with frozen limits: under another document than the one that all have grown under they stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Bases {
    /// Weights by segment, the newest last.
    weights: Vec<Vec<(u32, u32)>>,
    /// Whether there were more than are kept: no majority is believed until all have promised one.
    more: bool,
    /// The version of the document that last grew while every segment was a member, or first; 0 once another
    /// one was promised with every segment there, which has granted nothing here yet.
    pub(super) settled: Option<u64>,
}

/// What [`Bases`] looks like where it was written, by whoever that was.
#[derive(Deserialize)]
struct Unchecked {
    weights: Vec<Vec<(u32, u32)>>,
    more: bool,
    settled: Option<u64>,
}

/// Why a [`Bases`] cannot be read: nobody writes such a one. Who sent it is at fault, and nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum BasesError {
    #[error("weights of {0} documents are more than are ever kept")]
    Documents(usize),
    #[error("{0} segments are more than a cluster has")]
    Segments(usize),
}

/// Documents of which the weights are kept: there is one, or a second for the time of a round trip.
const BASES_MAX: usize = 8;

impl Bases {
    /// Starts with the weights of one document, by the number of the segment, ascending.
    pub fn new(weights: impl IntoIterator<Item = (u32, u32)>) -> Self {
        Self { weights: vec![weights.into_iter().collect()], more: false, settled: None }
    }

    /// Returns the weights by segment of each document that majorities are told by, the newest last.
    pub fn weights(&self) -> &[Vec<(u32, u32)>] {
        &self.weights
    }

    /// Returns whether nothing is known yet.
    pub fn is_empty(&self) -> bool {
        self.weights.is_empty()
    }

    /// Whether those of `parts` that are present have more than half of the weight by each of the documents. A
    /// segment that `parts` leaves out has no say: it is gone.
    pub(super) fn agree(&self, parts: &[Part]) -> bool {
        !self.more && self.weights.iter().all(|weights| has_majority(weights, parts))
    }

    /// Promises to obey a document with the weights of `parts`, too.
    pub(super) fn add(&mut self, parts: &[Part]) {
        let weights = usual(parts);
        self.weights.retain(|one| *one != weights);
        self.weights.push(weights);
        if BASES_MAX < self.weights.len() {
            self.weights.remove(0);
            self.more = true;
        }
    }

    /// Forgets all but the newest: every segment has promised it.
    pub(super) fn settle(&mut self) {
        let older = self.weights.len().saturating_sub(1);
        self.weights.drain(..older);
        self.more = false;
    }
}

impl TryFrom<Unchecked> for Bases {
    type Error = BasesError;

    fn try_from(Unchecked { weights, more, settled }: Unchecked) -> Result<Self, BasesError> {
        let segments = weights.iter().map(Vec::len).max().unwrap_or(0);
        if BASES_MAX < weights.len() {
            return Err(BasesError::Documents(weights.len()));
        }
        if PARTS_MAX < segments {
            return Err(BasesError::Segments(segments));
        }
        Ok(Self { weights, more, settled })
    }
}

fn has_majority(weights: &[(u32, u32)], parts: &[Part]) -> bool {
    let part = |segment| parts.iter().find(|part| part.segment == segment);
    let named = weights.iter().filter_map(|&(segment, weight)| Some((part(segment)?, weight)));
    let (mut all, mut here) = (0, 0);
    for (part, weight) in named {
        all += u64::from(weight);
        here += if part.present { u64::from(weight) } else { 0 };
    }
    all == 0 || all < 2 * here
}

fn usual(parts: &[Part]) -> Vec<(u32, u32)> {
    parts.iter().map(|part| (part.segment, part.usual)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(weights: [u32; 3], present: [bool; 3]) -> Vec<Part> {
        let parts = (1..).zip(weights).zip(present);
        parts
            .map(|((segment, weight), present)| Part { segment, weight, usual: weight, present })
            .collect()
    }

    #[test]
    fn a_majority_is_one_by_each_document_until_the_last_is_settled() {
        let mut bases = Bases::new([(1, 1), (2, 1), (3, 1)]);
        let first = parts([4, 1, 1], [true, false, false]);
        let others = parts([4, 1, 1], [false, true, true]);
        assert!(!bases.agree(&first) && bases.agree(&others));
        bases.add(&first);
        assert!(!bases.agree(&first) && !bases.agree(&others));
        assert!(bases.agree(&parts([4, 1, 1], [true, true, false])), "by both");
        bases.settle();
        assert!(bases.agree(&first) && !bases.agree(&others));
        // Left out, it has no say.
        assert!(bases.agree(&others[1..]));
    }

    #[test]
    fn more_documents_than_are_kept_leave_no_majority_until_one_is_settled() {
        let mut bases = Bases::new([(1, 1), (2, 1), (3, 1)]);
        let all = |weight| parts([weight, 1, 1], [true; 3]);
        for weight in 2..=u32::try_from(BASES_MAX).unwrap() {
            bases.add(&all(weight));
            bases.add(&all(weight));
        }
        assert!(bases.agree(&all(1)));
        bases.add(&all(99));
        assert!(!bases.agree(&all(1)));
        bases.settle();
        assert!(bases.agree(&all(1)));
    }
}
