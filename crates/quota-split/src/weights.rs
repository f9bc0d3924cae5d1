//! How large each part is against the others.

/// Weights that can divide something: at least one is not zero.
///
/// They are kept divided by their greatest common divisor, so 300/100/50 and 6/2/1 are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Weights {
    reduced: Box<[u32]>,
    total: u64,
}

/// Why weights divide nothing. The configuration is at fault; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// There is nobody to divide among.
    #[error("there are no weights")]
    Empty,
    /// Nobody may get anything.
    #[error("all weights are zero")]
    AllZero,
}

impl Weights {
    /// Checks `weights` once, so that [`split`](crate::split) cannot fail.
    pub fn new(weights: Vec<u32>) -> Result<Self, WeightsError> {
        if weights.is_empty() {
            return Err(WeightsError::Empty);
        }
        let divisor = weights.iter().copied().fold(0, greatest_common_divisor);
        if divisor == 0 {
            return Err(WeightsError::AllZero);
        }
        let reduced: Box<[u32]> = weights.into_iter().map(|weight| weight / divisor).collect();
        let total = reduced.iter().copied().map(u64::from).sum();
        Ok(Self { reduced, total })
    }

    /// Returns the weights, divided by their greatest common divisor.
    pub fn reduced(&self) -> &[u32] {
        &self.reduced
    }

    /// Returns the sum of the reduced weights: the period of the periodic methods.
    pub fn total(&self) -> u64 {
        self.total
    }
}

fn greatest_common_divisor(mut a: u32, mut b: u32) -> u32 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
