//! The tables of the document.

use crate::islands::layout::SEGMENTS;
use crate::islands::tree::{Tenant, calls_that_fill};

/// Shares of each segment; `None` for one that is away. In the document every limit is one of three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Table([Option<[u32; 3]>; SEGMENTS]);

/// Of limits of 100, 500 and 20. The document prints 7/6/6 of 20, which is 19.
pub(crate) const EVEN: Table = Table([Some([34, 167, 7]), Some([33, 167, 7]), Some([33, 166, 6])]);
/// By weights of 300, 100 and 50.
pub(crate) const WEIGHTED: Table =
    Table([Some([67, 334, 14]), Some([22, 111, 4]), Some([11, 55, 2])]);
/// The third segment is gone.
pub(crate) const TWO: Table = Table([Some([75, 375, 15]), Some([25, 125, 5]), None]);
/// The third segment is an island.
pub(crate) const ISLANDS: Table =
    Table([Some([75, 375, 15]), Some([25, 125, 5]), Some([100, 500, 20])]);
/// The third segment is cold. The document prints no table of it; this one and the next follow from
/// what it says.
pub(crate) const RESTING: Table = Table([Some([75, 375, 15]), Some([25, 125, 5]), Some([0, 0, 0])]);
/// The third segment is cold and the first is gone: weights of 100 and 50.
pub(crate) const AWAKE: Table = Table([None, Some([67, 334, 14]), Some([33, 166, 6])]);

impl Table {
    /// Whether a segment is there.
    pub(crate) fn has(&self, segment: usize) -> bool {
        self.0[segment].is_some()
    }

    /// Returns a segment's share of a tenant's limit; `None` where that is not set.
    pub(crate) fn share(&self, tenant: Tenant, segment: usize) -> Option<u32> {
        let [hundred, five_hundred, twenty] = self.0[segment].unwrap_or_default();
        match tenant.limit {
            None => None,
            Some(100) => Some(hundred),
            Some(500) => Some(five_hundred),
            Some(_) => Some(twenty),
        }
    }

    /// Returns how many calls of each profile fill every share of a segment.
    pub(crate) fn calls(&self, segment: usize) -> [u32; 6] {
        let [hundred, five_hundred, twenty] = self.0[segment].unwrap_or_default();
        calls_that_fill(hundred, five_hundred, twenty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_the_limits() {
        for Table(shares) in [EVEN, WEIGHTED, TWO, RESTING, AWAKE] {
            let sum = |limit: usize| -> u32 { shares.iter().flatten().map(|one| one[limit]).sum() };
            assert_eq!([0, 1, 2].map(sum), [100, 500, 20]);
        }
    }
}
