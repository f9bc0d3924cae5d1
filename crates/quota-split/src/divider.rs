//! Division of many limits by the same weights.

use crate::method::{quota_step, split_into};
use crate::{Method, Weights};

/// Divides many limits by the same weights, fast.
///
/// Most methods are periodic: with `total` the sum of the reduced weights, a limit of
/// `q * total + r` gives everybody `q` times its weight and what `r` alone would give. For totals
/// up to [`ROWS_MAX`] the shares of every `r` are computed once, and a share is then one
/// multiplication and one look-up.
#[derive(Clone, Debug)]
pub struct Divider {
    weights: Weights,
    method: Method,
    table: Option<Table>,
}

/// The shares of every limit below the period, row after row.
#[derive(Clone, Debug)]
struct Table {
    period: u32,
    /// 2⁶³ over the period, rounded up: a multiplication divides in a fifth of the time.
    reciprocal: u64,
    rows: Vec<u32>,
}

/// The greatest sum of reduced weights for which shares are looked up.
pub const ROWS_MAX: u32 = 8192;

impl Divider {
    /// Prepares division by `weights`; cheap unless a table is worth it for `limits` divisions.
    pub fn new(weights: Weights, method: Method, limits: usize) -> Self {
        let period = u32::try_from(weights.total()).ok().filter(|&total| total <= ROWS_MAX);
        let worth = |period: &u32| method.is_periodic() && *period as usize <= limits;
        let table = period.filter(worth).map(|period| Table::new(period, &weights, method));
        Self { weights, method, table }
    }

    /// Writes the shares of `limit`, as [`split`](crate::split) returns them.
    ///
    /// # Panics
    ///
    /// Panics when `shares` does not have one place per weight.
    pub fn split_into(&self, limit: u32, key: u64, shares: &mut [u32]) {
        let Some(table) = &self.table else {
            return split_into(limit, &self.weights, self.method, key, shares);
        };
        let parts = self.weights.reduced();
        assert_eq!(shares.len(), parts.len(), "one share per weight");
        let (rounds, row) = table.find(limit, parts.len());
        if rounds == 0 {
            // Most limits are below the sum of the weights.
            shares.copy_from_slice(row);
            return;
        }
        for ((share, &weight), &rest) in shares.iter_mut().zip(parts).zip(row) {
            *share = rounds * weight + rest;
        }
    }

    /// Returns the share of the part at `index` alone.
    ///
    /// # Panics
    ///
    /// Panics when there is no such part.
    pub fn share(&self, limit: u32, key: u64, index: usize) -> u32 {
        let parts = self.weights.reduced();
        let Some(table) = &self.table else {
            return crate::split(limit, &self.weights, self.method, key)[index];
        };
        let (rounds, row) = table.find(limit, parts.len());
        rounds * parts[index] + row[index]
    }

    /// Returns what it divides by.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }
}

impl Table {
    fn new(period: u32, weights: &Weights, method: Method) -> Self {
        let parts = weights.reduced().len();
        let mut row = vec![0; parts];
        let mut rows = vec![0; parts];
        for limit in 1..period {
            if method == Method::Quota {
                quota_step(u64::from(limit), weights, &mut row);
            } else {
                split_into(limit, weights, method, 0, &mut row);
            }
            rows.extend_from_slice(&row);
        }
        Self { period, reciprocal: (1 << 63) / u64::from(period) + 1, rows }
    }

    /// Returns how often the period fits into `limit`, and the shares of the rest.
    fn find(&self, limit: u32, parts: usize) -> (u32, &[u32]) {
        // Exact for every limit, since the period is far below 2³¹.
        let rounds = (u128::from(limit) * u128::from(self.reciprocal)) >> 63;
        let rounds = u32::try_from(rounds).expect("a limit fits no less than once into itself");
        let row = (limit - rounds * self.period) as usize * parts;
        (rounds, &self.rows[row..row + parts])
    }
}
