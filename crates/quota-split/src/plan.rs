//! What a recipe gives to each segment.

use serde::{Deserialize, Serialize};

use crate::handover::ColumnPart;
use crate::{Divider, Document, Lending, Limited, Limits, NodeId, Partition, SegmentId, Weights};

/// How a document is divided: with the document, all that a segment needs to know its shares.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Recipe {
    /// The version of the document.
    pub document: u64,
    /// Its digest.
    pub digest: u64,
    /// Every configured segment, by number.
    pub parts: Vec<Part>,
    /// How much of the cluster the coordinator sees.
    pub sight: Sight,
    /// Whether shares grow at once, over-used or not: the document's way.
    pub eager: bool,
}

/// One configured segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Part {
    /// Its number.
    pub segment: u32,
    /// Its weight now: zero for a cold one that is not needed.
    pub weight: u32,
    /// Its weight when every segment is there.
    pub usual: u32,
    /// Whether it is a member of this division.
    pub present: bool,
}

/// How much of the cluster the coordinator sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Sight {
    /// Every configured segment is a member.
    Whole,
    /// The members have more than half of the weight, and everybody else's lease has run out.
    Majority,
    /// The members have more than half of the weight; the others may still hold a lease.
    Waiting,
    /// The members have half of the weight or less, by the weights of some document that one of them is bound to.
    Minority,
}

/// A recipe worked out for one document.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    members: Vec<SegmentId>,
    sight: Sight,
    /// Among the members by the weights of now.
    now: Divider,
    /// Among all segments by their usual weights.
    usual: Divider,
    /// Where the members stand among all segments.
    among_all: Vec<usize>,
    all: Vec<SegmentId>,
}

/// Segments of one recipe at the most.
pub(crate) const PARTS_MAX: usize = 256;

impl Recipe {
    /// Returns the members' numbers, ascending.
    pub fn members(&self) -> impl Iterator<Item = SegmentId> {
        self.parts.iter().filter(|part| part.present).map(|part| SegmentId(part.segment))
    }
}

impl Sight {
    /// Judges what the present ones of `parts` are among all.
    pub fn of(parts: &[Part]) -> Self {
        let weight = |part: &Part| u64::from(part.usual);
        let all: u64 = parts.iter().map(weight).sum();
        let here: u64 = parts.iter().filter(|part| part.present).map(weight).sum();
        match () {
            () if parts.iter().all(|part| part.present) => Self::Whole,
            () if all < 2 * here => Self::Waiting,
            () => Self::Minority,
        }
    }

    /// Whether some are away, and those here have more than half of the weight.
    pub(crate) fn is_majority(self) -> bool {
        match self {
            Self::Majority | Self::Waiting => true,
            Self::Whole | Self::Minority => false,
        }
    }
}

impl Plan {
    /// Works out `recipe`. Where all weights are zero everybody gets an equal part.
    pub(crate) fn new(document: &Document, recipe: &Recipe) -> Self {
        let limits = document.counters().len();
        let divider = |weights: Vec<u32>| {
            let equal = vec![1; weights.len().max(1)];
            let weights = Weights::new(weights).or_else(|_| Weights::new(equal));
            Divider::new(weights.expect("equal weights divide"), document.method(), limits)
        };
        let present = recipe.parts.iter().filter(|part| part.present);
        let places = recipe.parts.iter().enumerate().filter(|(_, part)| part.present);
        Self {
            members: recipe.members().collect(),
            sight: recipe.sight,
            now: divider(present.map(|part| part.weight).collect()),
            usual: divider(recipe.parts.iter().map(|part| part.usual).collect()),
            among_all: places.map(|(place, _)| place).collect(),
            all: recipe.parts.iter().map(|part| SegmentId(part.segment)).collect(),
        }
    }

    /// Returns the members, ascending; the columns of [`targets`](Self::targets).
    pub(crate) fn members(&self) -> &[SegmentId] {
        &self.members
    }

    /// Writes what each member may grow to.
    pub(crate) fn targets(&self, document: &Document, limited: &Limited, targets: &mut Vec<u32>) {
        targets.clear();
        if let Some(manual) = document.manual(limited) {
            let share = |segment| manual.get(segment).copied().unwrap_or(0);
            targets.extend(self.members.iter().map(share));
            return;
        }
        match self.rule(limited) {
            Rule::Nothing => targets.resize(self.members.len(), 0),
            Rule::Now => {
                targets.resize(self.members.len(), 0);
                self.now.split_into(limited.limit, limited.key, targets);
            }
            Rule::Usual => {
                let mut all = vec![0; self.all.len()];
                self.usual.split_into(limited.limit, limited.key, &mut all);
                targets.extend(self.among_all.iter().map(|&place| all[place]));
            }
        }
    }

    /// Returns what one member may grow to; nothing for a stranger.
    pub(crate) fn target(&self, document: &Document, limited: &Limited, who: SegmentId) -> u32 {
        let Ok(place) = self.members.binary_search(&who) else { return 0 };
        if let Some(manual) = document.manual(limited) {
            return manual.get(&who).copied().unwrap_or(0);
        }
        match self.rule(limited) {
            Rule::Nothing => 0,
            Rule::Now => self.now.share(limited.limit, limited.key, place),
            Rule::Usual => self.usual.share(limited.limit, limited.key, self.among_all[place]),
        }
    }

    /// Returns one member's part of a figure that no coordinator hands out: a rate, a burst level.
    fn part(&self, document: &Document, node: NodeId, figure: u32, who: SegmentId) -> u32 {
        let Ok(place) = self.members.binary_search(&who) else { return 0 };
        let key = document.tree().key(node);
        if document.tree().partition(node) == Partition::Full {
            return self.now.share(figure, key, place);
        }
        self.usual.share(figure, key, self.among_all[place])
    }

    /// Returns one member's parts of all such figures.
    pub(crate) fn parts<'a>(
        &'a self,
        document: &'a Document,
        who: SegmentId,
    ) -> impl Iterator<Item = ColumnPart> + 'a {
        document.tree().iter().filter_map(move |(id, node)| {
            let Limits { per_second, burst, calls, .. } = node.limits;
            let part = |figure: Option<u32>| figure.map(|it| self.part(document, id, it, who));
            let levels =
                burst[0].map(|second| [calls, Some(second)].map(|it| part(it).unwrap_or(0)));
            (per_second.is_some() || levels.is_some()).then(|| ColumnPart {
                node: node.name.clone(),
                per_second: part(per_second).unwrap_or(0),
                levels: levels.unwrap_or_default(),
            })
        })
    }

    /// Tells whether only what the members brought along may be handed out.
    pub(crate) fn conserves(&self, limited: &Limited, agreed: bool) -> bool {
        match limited.partition {
            Partition::Full => false,
            Partition::Frozen => self.sight != Sight::Whole && !agreed,
            Partition::WeightMajority => self.sight == Sight::Waiting,
        }
    }

    /// Returns what may be held in sum, given what the targets add up to.
    pub(crate) fn budget(&self, limited: &Limited, targets: u32) -> u32 {
        match (limited.partition, self.sight) {
            (Partition::WeightMajority, Sight::Minority) => 0,
            (Partition::Frozen, Sight::Majority | Sight::Waiting | Sight::Minority) => targets,
            (Partition::Full | Partition::WeightMajority | Partition::Frozen, _) => limited.limit,
        }
    }

    /// Tells whether a limit stays in the pool, since its parts would be of one call or none.
    fn pooled(&self, limited: &Limited) -> bool {
        limited.lending == Lending::Hold && (limited.limit as usize) < 2 * self.members.len()
    }

    fn rule(&self, limited: &Limited) -> Rule {
        if self.pooled(limited) {
            return Rule::Nothing;
        }
        match (limited.partition, self.sight) {
            (Partition::Full, _) => Rule::Now,
            (Partition::WeightMajority, Sight::Whole | Sight::Majority) => Rule::Now,
            (Partition::WeightMajority, Sight::Minority) => Rule::Nothing,
            // Never the weights of now: who is away may still hold what usual weights gave it.
            (Partition::Frozen, _) | (Partition::WeightMajority, Sight::Waiting) => Rule::Usual,
        }
    }
}

enum Rule {
    Nothing,
    Now,
    Usual,
}
