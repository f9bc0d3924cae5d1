//! Names of segments, nodes and their lives, and the epochs that order what coordinators say.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A segment of the cluster: the unit that gets a share. The lowest one coordinates.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Segment(pub u16);

/// A node: one of the resource managers of a segment. Lower ids win elections.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct NodeId {
    /// The segment it serves.
    pub segment: Segment,
    /// Its number inside the segment, 1 or 2 in a pair.
    pub rm: u8,
}

/// One life of a node, from start to end. Of two lives with the same id the greater one is believed.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Life {
    /// The boot counter: one more than what the disk held, or than what others still tell of a
    /// life whose file was lost.
    pub incarnation: u64,
    /// Drawn at random at each start, so that no two lives are ever taken for one another.
    pub instance: u128,
}

/// The number of a division. No two divisions share one; whoever has promised an epoch obeys no
/// lower one.
///
/// Epochs are ordered by term; of equal terms the lower coordinator's is the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Epoch {
    /// One more than any term its coordinator had heard of.
    pub term: u64,
    /// Who declared it.
    pub coordinator: NodeId,
    /// The life that declared it: a coordinator that lost its file repeats terms, never epochs.
    pub life: Life,
}

/// What a victory says: who coordinates whom, under which number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Mandate {
    /// Its number; names the coordinator too.
    pub epoch: Epoch,
    /// The nodes that get a part of the division through their segments, the coordinator among them.
    pub members: BTreeSet<NodeId>,
}

/// Who counts the calls of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Speaker {
    /// The node.
    pub node: NodeId,
    /// Rises each time that another node of the segment begins to speak. A life that was told of no turn
    /// begins at the first, be it that of the life before.
    pub turn: u64,
    /// Which life of the node: it knows nothing of what another one was told.
    pub life: Life,
}

/// What a node must find again after a restart. Nothing that shows one of these values leaves the
/// node before they are on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stored {
    /// The boot counter of the life that wrote this.
    pub incarnation: u64,
    /// The highest epoch promised. Its term is the highest term too, since nobody declares an epoch
    /// without promising it.
    pub promised: Option<Epoch>,
}

impl Mandate {
    /// Returns whether a node of `segment` is a member.
    pub fn has(&self, segment: Segment) -> bool {
        self.members.iter().any(|node| node.segment == segment)
    }

    /// Returns the segments that have a member.
    pub fn segments(&self) -> BTreeSet<Segment> {
        segments(&self.members)
    }
}

/// Returns the segments of `nodes`.
pub fn segments(nodes: &BTreeSet<NodeId>) -> BTreeSet<Segment> {
    nodes.iter().map(|node| node.segment).collect()
}

impl PartialOrd for Epoch {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Epoch {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |epoch: &Self| (epoch.term, Reverse(epoch.coordinator), epoch.life);
        key(self).cmp(&key(other))
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.segment, self.rm)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.term, self.coordinator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(segment: u16, rm: u8) -> NodeId {
        NodeId { segment: Segment(segment), rm }
    }

    fn epoch(term: u64, coordinator: NodeId, incarnation: u64, instance: u128) -> Epoch {
        Epoch { term, coordinator, life: Life { incarnation, instance } }
    }

    #[test]
    fn epochs_grow_with_the_term_and_then_with_lower_coordinators() {
        let ascending = [
            epoch(1, node(2, 1), 9, 9),
            epoch(1, node(1, 2), 1, 1),
            epoch(1, node(1, 1), 1, 1),
            epoch(1, node(1, 1), 1, 2),
            epoch(1, node(1, 1), 2, 0),
            epoch(2, node(3, 2), 0, 0),
        ];

        assert!(ascending.is_sorted_by(|a, b| a < b));
        assert!(None < Some(ascending[0]), "no promise is below every promise");
    }
}
