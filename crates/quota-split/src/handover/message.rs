//! What coordinators and members tell each other.

use serde::{Deserialize, Serialize};

use crate::{Counter, Recipe};

/// The number of a coordinator's reign: no two reigns share one, and the greater is obeyed. Whoever
/// elects coordinators fills it in; it is compared field by field.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct Epoch {
    /// Rises with each election.
    pub term: u64,
    /// Orders coordinators of one term.
    pub rank: u64,
    /// How often that coordinator had started.
    pub incarnation: u64,
    /// What tells its starts apart when it lost count.
    pub instance: u128,
}

/// The number of a division: within an epoch each change of documents or weights is a round.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct Stamp {
    /// Whose division it is.
    pub epoch: Epoch,
    /// Which of its divisions.
    pub round: u32,
}

/// From the coordinator to the segment that speaks for a share. Limits of calls are numbered as in
/// the coordinator's [`Document::counters`](crate::Document::counters).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ToMember {
    /// Shrink to this division and promise to obey no lower one.
    Prepare(Prepare),
    /// Grow to what is granted.
    Grow(Grow),
    /// Give back parts for others.
    Recall(Recall),
    /// The limit of this counter is used up everywhere: hold no call for it for a while.
    Exhausted {
        /// Under which division.
        stamp: Stamp,
        /// The counter.
        counter: u32,
    },
    /// This report was taken in and need not be repeated.
    Heard {
        /// Under which division.
        stamp: Stamp,
        /// The number of the report.
        report: u32,
    },
    /// Limits under [`Partition::WeightMajority`](crate::Partition) may be used for a while longer.
    Lease {
        /// Under which division.
        stamp: Stamp,
    },
    /// What all others use.
    Elsewhere {
        /// Under which division.
        stamp: Stamp,
        /// Counters, and calls of all other segments there.
        cells: Vec<(u32, u32)>,
    },
}

/// See [`ToMember::Prepare`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Prepare {
    /// The division's number.
    pub stamp: Stamp,
    /// How to compute it.
    pub recipe: Recipe,
    /// The receiver's shares in words, when its document differs from the coordinator's.
    pub column: Option<Column>,
}

/// Everything that a division gives to one member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Column {
    /// Limits of calls at a time, as the coordinator numbers them.
    pub cells: Vec<ColumnCell>,
    /// Rates and burst levels, which nobody hands out one by one.
    pub parts: Vec<ColumnPart>,
}

/// A share by the name of its node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ColumnCell {
    /// The node's name.
    pub node: String,
    /// What is counted there.
    pub counter: Counter,
    /// What the receiver may grow to.
    pub target: u32,
}

/// A part of the figures that are divided and never lent, by the name of their node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ColumnPart {
    /// The node's name.
    pub node: String,
    /// New calls a second; zero where they are not limited.
    pub per_second: u32,
    /// Where burst levels 1 and 2 end; zero where there are none.
    pub levels: [u32; 2],
}

/// See [`ToMember::Grow`]. Sent again it says the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Grow {
    /// Under which division.
    pub stamp: Stamp,
    /// Rises with each grant to this member.
    pub seq: u32,
    /// Whether all counters that are not listed grow to their targets.
    pub rest: bool,
    /// Counters, and the caps to grow to.
    pub cells: Vec<(u32, u32)>,
}

/// See [`ToMember::Recall`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Recall {
    /// Under which division.
    pub stamp: Stamp,
    /// The counter.
    pub counter: u32,
    /// The cap to shrink to.
    pub cap: u32,
    /// Whether to shrink below what is in use too, so that the rest comes back as calls end.
    pub drain: bool,
}

/// From a segment to the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ToCoordinator {
    /// The division is obeyed, and nothing grows but by its grants.
    Promise(Promise),
    /// A higher division has been promised; or, if it is the same one, by an earlier life that is
    /// forgotten, and a new round is needed.
    Refuse {
        /// What was asked.
        stamp: Stamp,
        /// What stands against it.
        promised: Stamp,
    },
    /// The document is another one: send the column.
    NeedColumn {
        /// What was asked.
        stamp: Stamp,
    },
    /// What was applied, and what is held less than before.
    Report(Report),
    /// Larger caps are wanted.
    Ask(Ask),
    /// The segment takes no new calls any more: its part is better given to others.
    Drains {
        /// Under which division.
        stamp: Stamp,
    },
    /// This is no majority by weights that the segment is bound to; it promises nothing else.
    Outweighed {
        /// What was asked.
        stamp: Stamp,
    },
}

impl ToCoordinator {
    /// Returns the division that it is about.
    pub fn stamp(&self) -> Stamp {
        match self {
            Self::Promise(Promise { stamp, .. })
            | Self::Refuse { stamp, .. }
            | Self::NeedColumn { stamp }
            | Self::Drains { stamp }
            | Self::Outweighed { stamp }
            | Self::Report(Report { stamp, .. })
            | Self::Ask(Ask { stamp, .. }) => *stamp,
        }
    }
}

/// See [`ToCoordinator::Promise`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Promise {
    /// The division's number.
    pub stamp: Stamp,
    /// Counters that are held differently from their targets, and what is held: cap or use,
    /// whichever is more. A counter of which calls are held that no grant covers comes twice: before that, what
    /// was granted.
    pub held: Vec<(u32, u32)>,
    /// A digest of the targets.
    pub digest: u64,
    /// The version of the document that last grew while every segment was a member, or first; 0 once another
    /// one was promised with every segment there, which has granted nothing here yet.
    pub settled: Option<u64>,
}

/// See [`ToCoordinator::Report`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Report {
    /// Under which division.
    pub stamp: Stamp,
    /// Its number; zero when it need not be heard.
    pub number: u32,
    /// The last grant applied.
    pub applied: u32,
    /// What is held and used.
    pub cells: Vec<Held>,
}

/// One counter of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Held {
    /// The counter.
    pub counter: u32,
    /// Cap or use, whichever is more.
    pub held: u32,
    /// Live calls.
    pub used: u32,
}

/// See [`ToCoordinator::Ask`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ask {
    /// Under which division.
    pub stamp: Stamp,
    /// Counters, and the caps wanted.
    pub cells: Vec<(u32, u32)>,
    /// Whether calls wait for it.
    pub urgent: bool,
}

impl ToMember {
    /// Returns the division that it is about.
    pub fn stamp(&self) -> Stamp {
        match self {
            Self::Prepare(Prepare { stamp, .. })
            | Self::Grow(Grow { stamp, .. })
            | Self::Recall(Recall { stamp, .. })
            | Self::Exhausted { stamp, .. }
            | Self::Heard { stamp, .. }
            | Self::Lease { stamp }
            | Self::Elsewhere { stamp, .. } => *stamp,
        }
    }
}
