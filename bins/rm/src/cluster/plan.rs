//! What the machine needs to know of a cluster document.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use election::{Cold, Segment};
use quota_split::{Document, Part};

use super::document::{ClusterDocument, Mode, SegmentPlan};

/// One version of what is divided, and among whom.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The tenants and their limits.
    pub division: Arc<Document>,
    /// Whether shares grow at once, over-used or not.
    pub eager: bool,
    /// Every segment of the cluster.
    pub segments: BTreeMap<Segment, Share>,
}

/// The part of one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// How large it is against the others'.
    pub weight: u32,
    /// Set where it gets a part only while others are away.
    pub cold: Option<Cold>,
}

impl From<&ClusterDocument> for Plan {
    fn from(document: &ClusterDocument) -> Self {
        let share = |plan: &SegmentPlan| Share {
            weight: plan.weight,
            cold: match &plan.mode {
                Mode::Hot => None,
                Mode::Cold(cold) => Some(cold.clone()),
            },
        };
        let segments = document.segments.iter();
        Self {
            division: Arc::clone(&document.division),
            eager: document.eager,
            segments: segments.map(|(segment, plan)| (*segment, share(plan))).collect(),
        }
    }
}

impl Plan {
    /// Returns the cold segments, each with the hot ones that it covers. A segment that the document does not
    /// name is none of these, whatever links there are to it.
    pub(super) fn cold(&self) -> BTreeMap<Segment, Cold> {
        let hot = || self.segments.iter().filter(|(_, share)| share.cold.is_none());
        let all = || hot().map(|(segment, _)| *segment).collect();
        let cold = |(segment, share): (&Segment, &Share)| {
            let Cold { covers, witness } = share.cold.clone()?;
            Some((*segment, Cold { covers: Some(covers.unwrap_or_else(all)), witness }))
        };
        self.segments.iter().filter_map(cold).collect()
    }

    pub(super) fn is_cold(&self, segment: Segment) -> bool {
        self.segments.get(&segment).is_some_and(|share| share.cold.is_some())
    }

    /// Returns what each segment weighs when all are there, by its number.
    pub(super) fn usual(&self) -> impl Iterator<Item = (u32, u32)> {
        self.parts(&BTreeSet::new(), |_| true).into_iter().map(|part| (part.segment, part.usual))
    }

    /// Returns every segment with its weight, among those that are present and those that get a share.
    /// One that is present and not named gets nothing, and what it still carries counts until it ends.
    pub(super) fn parts(
        &self,
        present: &BTreeSet<Segment>,
        shares: impl Fn(Segment) -> bool,
    ) -> Vec<Part> {
        let part = |(&segment, share): (&Segment, &Share)| Part {
            segment: u32::from(segment.0),
            weight: if shares(segment) { share.weight } else { 0 },
            usual: if share.cold.is_some() { 0 } else { share.weight },
            present: present.contains(&segment),
        };
        let stranger = |segment: &Segment| Part {
            segment: u32::from(segment.0),
            weight: 0,
            usual: 0,
            present: true,
        };
        // Who has no document divides nothing.
        let strangers = present
            .iter()
            .filter(|it| !self.segments.is_empty() && !self.segments.contains_key(it));
        self.segments.iter().map(part).chain(strangers.map(stranger)).collect()
    }
}
