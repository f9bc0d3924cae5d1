//! The shares of every node on every segment.

use std::collections::BTreeMap;

use crate::{Divider, Method, NodeId, Tree, Weights, WeightsError};

/// A segment by its number. The lowest gets what is left when all else is equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentId(pub u32);

/// A segment that takes part in a division.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Segment {
    /// Its number.
    pub id: SegmentId,
    /// How large its part is against the others'; zero gets nothing.
    pub weight: u32,
}

/// How the highest limit of calls of every node falls to the segments: a row per node, a column
/// per segment.
#[derive(Clone, Debug)]
pub struct Division {
    segments: Box<[SegmentId]>,
    /// By node, apart from each other: a division of all reads little else than the limits.
    limits: Box<[Option<u32>]>,
    keys: Box<[u64]>,
    /// The rows fixed by hand.
    manual: BTreeMap<usize, Box<[u32]>>,
    divider: Divider,
    shares: Vec<u32>,
}

/// Why segments make no columns. The configuration is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DivideError {
    /// Their weights divide nothing.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// Two segments have this number.
    #[error("two segments have the number {}", .0.0)]
    Duplicate(SegmentId),
}

/// Divides the limits of `tree` among `segments` by their weights.
///
/// The columns stand in the order of the segments' numbers, whatever order they are given in.
pub fn divide(tree: &Tree, segments: &[Segment], method: Method) -> Result<Division, DivideError> {
    let (segments, weights) = columns(segments)?;
    let manual = tree.iter().filter(|(_, node)| !node.manual.is_empty()).map(|(id, node)| {
        let of = |segment| node.manual.get(segment).copied().unwrap_or(0);
        (id.index(), segments.iter().map(of).collect())
    });
    let mut division = Division {
        limits: tree.iter().map(|(_, node)| node.limits.hard()).collect(),
        keys: tree.iter().map(|(id, _)| tree.key(id)).collect(),
        manual: manual.collect(),
        divider: Divider::new(weights, method, tree.len()),
        shares: vec![0; tree.len() * segments.len()],
        segments,
    };
    division.refresh();
    Ok(division)
}

/// Sorts segments by number and checks their weights.
pub(crate) fn columns(segments: &[Segment]) -> Result<(Box<[SegmentId]>, Weights), DivideError> {
    let mut sorted = segments.to_vec();
    sorted.sort_unstable();
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0].id == pair[1].id) {
        return Err(DivideError::Duplicate(pair[0].id));
    }
    let weights = Weights::new(sorted.iter().map(|segment| segment.weight).collect())?;
    Ok((sorted.iter().map(|segment| segment.id).collect(), weights))
}

impl Division {
    /// Divides everything anew into the memory it has.
    pub fn refresh(&mut self) {
        let columns = self.segments.len();
        let rows = self.limits.iter().zip(&self.keys);
        for ((&limit, &key), shares) in rows.zip(self.shares.chunks_exact_mut(columns)) {
            write(&self.divider, limit, key, shares);
        }
        for (&row, manual) in &self.manual {
            self.shares[row * columns..][..columns].copy_from_slice(manual);
        }
    }

    /// Changes one limit and returns its new shares; no other row changes. Shares fixed by hand
    /// are divided from then on.
    ///
    /// # Panics
    ///
    /// Panics when `id` comes from another tree.
    pub fn set_limit(&mut self, id: NodeId, limit: Option<u32>) -> Option<&[u32]> {
        let row = id.index();
        self.limits[row] = limit;
        self.manual.remove(&row);
        let columns = self.segments.len();
        let shares = &mut self.shares[row * columns..][..columns];
        write(&self.divider, limit, self.keys[row], shares);
        limit.map(|_| &*shares)
    }

    /// Returns the shares of a node, one per segment; `None` where it has no limit.
    ///
    /// # Panics
    ///
    /// Panics when `id` comes from another tree.
    pub fn shares(&self, id: NodeId) -> Option<&[u32]> {
        let columns = self.segments.len();
        self.limits[id.index()].map(|_| &self.shares[id.index() * columns..][..columns])
    }

    /// Returns what one segment gets of every node, in the order of the tree; `None` when the
    /// segment takes no part.
    pub fn column(&self, id: SegmentId) -> Option<impl Iterator<Item = Option<u32>>> {
        let column = self.segments.binary_search(&id).ok()?;
        let shares = self.shares.chunks_exact(self.segments.len());
        let shares = self.limits.iter().zip(shares);
        Some(shares.map(move |(limit, shares)| limit.map(|_| shares[column])))
    }

    /// Returns the segments in the order of the columns.
    pub fn segments(&self) -> &[SegmentId] {
        &self.segments
    }
}

/// Writes one row that is not fixed by hand.
fn write(divider: &Divider, limit: Option<u32>, key: u64, shares: &mut [u32]) {
    match limit {
        Some(limit) => divider.split_into(limit, key, shares),
        None => shares.fill(0),
    }
}
