//! The shares of every node on every segment.

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
    rows: Box<[Row]>,
    divider: Divider,
    shares: Vec<u32>,
}

/// How one node is divided.
#[derive(Clone, Debug)]
struct Row {
    limit: Option<u32>,
    key: u64,
    manual: Option<Box<[u32]>>,
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
    let rows = tree.iter().map(|(id, node)| Row {
        limit: node.limits.hard(),
        key: tree.key(id),
        manual: (!node.manual.is_empty()).then(|| {
            let of = |segment| node.manual.get(segment).copied().unwrap_or(0);
            segments.iter().map(of).collect()
        }),
    });
    let rows: Box<[Row]> = rows.collect();
    let divider = Divider::new(weights, method, rows.len());
    let shares = vec![0; rows.len() * segments.len()];
    let mut division = Division { segments, rows, divider, shares };
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
        for (row, shares) in self.rows.iter().zip(self.shares.chunks_exact_mut(columns)) {
            row.write(&self.divider, shares);
        }
    }

    /// Changes one limit and returns its new shares; no other row changes. Shares fixed by hand
    /// are divided from then on.
    ///
    /// # Panics
    ///
    /// Panics when `id` comes from another tree.
    pub fn set_limit(&mut self, id: NodeId, limit: Option<u32>) -> Option<&[u32]> {
        let row = &mut self.rows[id.index()];
        row.limit = limit;
        row.manual = None;
        let columns = self.segments.len();
        let shares = &mut self.shares[id.index() * columns..][..columns];
        row.write(&self.divider, shares);
        limit.map(|_| &*shares)
    }

    /// Returns the shares of a node, one per segment; `None` where it has no limit.
    ///
    /// # Panics
    ///
    /// Panics when `id` comes from another tree.
    pub fn shares(&self, id: NodeId) -> Option<&[u32]> {
        let columns = self.segments.len();
        self.rows[id.index()].limit.map(|_| &self.shares[id.index() * columns..][..columns])
    }

    /// Returns what one segment gets of every node, in the order of the tree; `None` when the
    /// segment takes no part.
    pub fn column(&self, id: SegmentId) -> Option<impl Iterator<Item = Option<u32>>> {
        let column = self.segments.binary_search(&id).ok()?;
        let shares = self.shares.chunks_exact(self.segments.len());
        let shares = self.rows.iter().zip(shares);
        Some(shares.map(move |(row, shares)| row.limit.map(|_| shares[column])))
    }

    /// Returns the segments in the order of the columns.
    pub fn segments(&self) -> &[SegmentId] {
        &self.segments
    }
}

impl Row {
    fn write(&self, divider: &Divider, shares: &mut [u32]) {
        match (self.limit, &self.manual) {
            (Some(_), Some(manual)) => shares.copy_from_slice(manual),
            (Some(limit), None) => divider.split_into(limit, self.key, shares),
            (None, _) => shares.fill(0),
        }
    }
}
