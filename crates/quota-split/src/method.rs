//! The ways to divide a limit into whole shares.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::Weights;

/// A rule that divides a limit into whole shares. The crate's README compares them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Method {
    /// The floor, then each unit left to the largest `weight / (share + 1)`; ties go to the first.
    #[default]
    Dhondt,
    /// The floor, then one unit each in order of position, whoever that is.
    First,
    /// Balinski and Young: as `Dhondt`, but nobody passes the rounded-up exact share.
    ///
    /// It steps through every limit below, up to the sum of the reduced weights, so it takes
    /// long where both that sum and the limit are in the millions.
    Quota,
    /// The floor, then one unit each to the largest remainders.
    Hamilton,
    /// Each unit to the largest `weight / (2 * share + 1)`.
    Webster,
    /// Each unit to the largest `weight / √(share * (share + 1))`: everybody gets one first.
    HuntingtonHill,
    /// Rounds the running sum of the exact shares, moved by the key: small limits of many keys
    /// do not all land on the first part.
    Spread,
}

impl Method {
    /// Every method, in the order of the README's table.
    pub const ALL: [Self; 7] = [
        Self::Dhondt,
        Self::Spread,
        Self::First,
        Self::Quota,
        Self::Hamilton,
        Self::Webster,
        Self::HuntingtonHill,
    ];

    /// Returns the name used in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dhondt => "dhondt",
            Self::First => "first",
            Self::Quota => "quota",
            Self::Hamilton => "hamilton",
            Self::Webster => "webster",
            Self::HuntingtonHill => "huntington_hill",
            Self::Spread => "spread",
        }
    }

    /// Returns the method of this name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name() == name)
    }

    /// Tells whether `limit + total` gives everybody its reduced weight more than `limit` does,
    /// whatever the key.
    pub(crate) fn is_periodic(self) -> bool {
        match self {
            Self::Dhondt | Self::First | Self::Quota | Self::Hamilton | Self::Webster => true,
            Self::HuntingtonHill | Self::Spread => false,
        }
    }
}

/// Returns one share per weight; the shares add up to `limit`.
///
/// `key` tells [`Method::Spread`] where to round and is ignored by the others; [`spread_key`]
/// makes one from a name.
pub fn split(limit: u32, weights: &Weights, method: Method, key: u64) -> Vec<u32> {
    let mut shares = vec![0; weights.reduced().len()];
    split_into(limit, weights, method, key, &mut shares);
    shares
}

/// Writes the shares of [`split`] into `shares`.
///
/// # Panics
///
/// Panics when `shares` and `weights` differ in length.
pub(crate) fn split_into(
    limit: u32,
    weights: &Weights,
    method: Method,
    key: u64,
    shares: &mut [u32],
) {
    assert_eq!(shares.len(), weights.reduced().len(), "one share per weight");
    match method {
        Method::Dhondt => by_divisor(limit, weights, Divisor::Dhondt, shares),
        Method::Webster => by_divisor(limit, weights, Divisor::Webster, shares),
        Method::HuntingtonHill => by_divisor(limit, weights, Divisor::HuntingtonHill, shares),
        Method::First => first(limit, weights, shares),
        Method::Quota => quota(limit, weights, shares),
        Method::Hamilton => hamilton(limit, weights, shares),
        Method::Spread => spread(limit, weights, key, shares),
    }
}

/// Returns the key of a name for [`Method::Spread`]: the same on every machine and in every release.
pub fn spread_key(name: &str) -> u64 {
    siphasher::sip::SipHasher24::new().hash(name.as_bytes())
}

/// What the next unit of a part is divided by; the parts' quotients order all units.
#[derive(Clone, Copy, Debug)]
enum Divisor {
    Dhondt,
    Webster,
    HuntingtonHill,
}

/// The claim of one part on its next unit, as a fraction; no denominator is the greatest.
#[derive(Clone, Copy, Debug)]
struct Claim {
    numerator: u64,
    denominator: u64,
    index: usize,
}

impl Divisor {
    /// Returns the claim of a part that has `share` units on one more.
    fn claim(self, index: usize, weight: u32, share: u32) -> Claim {
        let (weight, share) = (u64::from(weight), u64::from(share));
        let (numerator, denominator) = match self {
            Self::Dhondt => (weight, share + 1),
            Self::Webster => (weight, 2 * share + 1),
            // Squared, so that no root is taken.
            Self::HuntingtonHill => (weight * weight, share * (share + 1)),
        };
        Claim { numerator, denominator, index }
    }

    /// Returns how many units of a part have a claim of at least `total / limit`.
    fn rounded(self, limit: u32, weight: u32, total: u64) -> u32 {
        let product = u128::from(limit) * u128::from(weight);
        let wide = u128::from(total);
        let floor = product / wide;
        let rounded = match self {
            Self::Dhondt => floor,
            Self::Webster => (2 * product + wide) / (2 * wide),
            Self::HuntingtonHill => {
                // One more where the exact share passes √(floor * (floor + 1)).
                let bar = (wide * floor).checked_mul(wide * (floor + 1));
                floor + u128::from(0 < product && bar.is_some_and(|bar| bar <= product * product))
            }
        };
        narrow(rounded)
    }
}

/// Divides by the order of all units' claims.
///
/// The units with a claim of at least `total / limit` are the first ones of that order, so only
/// few remain to be given or taken back.
fn by_divisor(limit: u32, weights: &Weights, divisor: Divisor, shares: &mut [u32]) {
    if limit == 0 {
        shares.fill(0);
        return;
    }
    let parts = weights.reduced();
    let mut given: u64 = 0;
    for (share, &weight) in shares.iter_mut().zip(parts) {
        *share = divisor.rounded(limit, weight, weights.total());
        given += u64::from(*share);
    }
    let limit = u64::from(limit);
    if given < limit {
        let claims = parts.iter().zip(&*shares).enumerate();
        let mut next: BinaryHeap<Claim> = claims
            .filter(|(_, (weight, _))| **weight != 0)
            .map(|(index, (&weight, &share))| divisor.claim(index, weight, share))
            .collect();
        for _ in given..limit {
            let mut best = next.peek_mut().expect("one weight is not zero");
            let index = best.index;
            shares[index] += 1;
            *best = divisor.claim(index, parts[index], shares[index]);
        }
    } else if limit < given {
        let claims = parts.iter().zip(&*shares).enumerate();
        let mut last: BinaryHeap<Reverse<Claim>> = claims
            .filter(|(_, (_, share))| **share != 0)
            .map(|(index, (&weight, &share))| Reverse(divisor.claim(index, weight, share - 1)))
            .collect();
        for _ in limit..given {
            let Reverse(worst) = last.pop().expect("what was given can be taken back");
            let index = worst.index;
            shares[index] -= 1;
            if shares[index] != 0 {
                last.push(Reverse(divisor.claim(index, parts[index], shares[index] - 1)));
            }
        }
    }
}

/// Writes the rounded-down exact shares and returns how many units are left.
fn floors(limit: u32, weights: &Weights, shares: &mut [u32]) -> usize {
    let mut left = limit;
    for (share, &weight) in shares.iter_mut().zip(weights.reduced()) {
        *share = narrow(u128::from(limit) * u128::from(weight) / u128::from(weights.total()));
        left -= *share;
    }
    left as usize
}

fn first(limit: u32, weights: &Weights, shares: &mut [u32]) {
    let left = floors(limit, weights, shares);
    let parts = shares.iter_mut().zip(weights.reduced()).filter(|(_, weight)| **weight != 0);
    for (share, _) in parts.take(left) {
        *share += 1;
    }
}

fn hamilton(limit: u32, weights: &Weights, shares: &mut [u32]) {
    let left = floors(limit, weights, shares);
    let remainder =
        |weight: u32| u128::from(limit) * u128::from(weight) % u128::from(weights.total());
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by_key(|&index| Reverse(remainder(weights.reduced()[index])));
    for &index in &order[..left] {
        shares[index] += 1;
    }
}

fn quota(limit: u32, weights: &Weights, shares: &mut [u32]) {
    let rounds = u64::from(limit) / weights.total();
    for (share, &weight) in shares.iter_mut().zip(weights.reduced()) {
        *share = narrow(u128::from(rounds) * u128::from(weight));
    }
    let first = rounds * weights.total() + 1;
    for limit in first..=u64::from(limit) {
        quota_step(limit, weights, shares);
    }
}

/// Makes the shares of `limit` from those of one less.
pub(crate) fn quota_step(limit: u64, weights: &Weights, shares: &mut [u32]) {
    let below_its_quota = |share: u32, weight: u32| {
        u128::from(share) * u128::from(weights.total()) < u128::from(limit) * u128::from(weight)
    };
    let best = weights
        .reduced()
        .iter()
        .zip(&*shares)
        .enumerate()
        .filter(|(_, (weight, share))| below_its_quota(**share, **weight))
        .map(|(index, (&weight, &share))| Divisor::Dhondt.claim(index, weight, share))
        .max();
    let best = best.expect("the exact shares add up to more than what was given");
    shares[best.index] += 1;
}

fn spread(limit: u32, weights: &Weights, key: u64, shares: &mut [u32]) {
    let offset = u128::from(key % weights.total());
    let mut sum: u128 = 0;
    let mut before: u128 = 0;
    for (share, &weight) in shares.iter_mut().zip(weights.reduced()) {
        sum += u128::from(weight);
        let upto = (u128::from(limit) * sum + offset) / u128::from(weights.total());
        *share = narrow(upto - before);
        before = upto;
    }
}

/// Shortens a share, which never exceeds the limit.
fn narrow(share: u128) -> u32 {
    u32::try_from(share).expect("a share never exceeds the limit")
}

impl Ord for Claim {
    fn cmp(&self, other: &Self) -> Ordering {
        let mine = u128::from(self.numerator) * u128::from(other.denominator);
        let theirs = u128::from(other.numerator) * u128::from(self.denominator);
        let endless = self.denominator == 0 && other.denominator == 0;
        let endless = if endless { self.numerator.cmp(&other.numerator) } else { Ordering::Equal };
        mine.cmp(&theirs).then(endless).then(other.index.cmp(&self.index))
    }
}

impl PartialOrd for Claim {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Claim {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Claim {}
