//! The quick ways against references that no number is too large for: no weight and few limits here
//! are what anybody would configure.
//!
//! A division by claims is judged by its definition: nobody's last unit had a lesser claim than what
//! somebody else would get next. Other methods have a closed form, and `quota` its period.

use std::cmp::Ordering;

use proptest::collection::vec;
use proptest::prelude::*;
use quota_split::{
    Divider, Limits, Method, Node, Segment, SegmentId, Tree, Weights, divide, split, spread_key,
};

use crate::reference;

/// The greatest limit for which `quota` is also compared unit by unit.
const QUOTA_LIMIT_MAX: u32 = 60;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn extreme_numbers_divide_as_the_definition_says((weights, limit) in extremes(), key: u64) {
        let checked = Weights::new(weights.clone()).unwrap();
        for method in Method::ALL.into_iter().filter(|method| *method != Method::Quota) {
            let shares = split(limit, &checked, method, key);
            prop_assert_eq!(fault(limit, &weights, method, key, &shares), None, "{:?}", method);
        }
    }

    #[test]
    fn extreme_limits_are_looked_up_as_the_definition_says(
        weights in small_weights(), limit in any_limit(), key: u64,
    ) {
        let total: u32 = weights.iter().sum();
        let checked = Weights::new(weights.clone()).unwrap();
        for method in Method::ALL {
            let divider = Divider::new(checked.clone(), method, usize::MAX);
            for limit in [limit, total - 1, total, total.saturating_add(1), u32::MAX] {
                let mut shares = vec![7; weights.len()];
                divider.split_into(limit, key, &mut shares);
                prop_assert_eq!(fault(limit, &weights, method, key, &shares), None, "{:?}", method);
            }
        }
    }

    #[test]
    fn trees_with_cold_segments_divide_as_the_definition_says(
        (weights, limit) in extremes(), other: u32, cold in 0_usize..60,
    ) {
        let mut weights = weights;
        let cold = cold % weights.len();
        if weights.iter().enumerate().any(|(place, &weight)| place != cold && weight != 0) {
            weights[cold] = 0;
        }
        let node = |name: &str, calls| Node {
            name: name.into(),
            limits: Limits { calls, ..Limits::default() },
            ..Node::default()
        };
        let nodes = vec![node("open", None), node("one", Some(limit)), node("other", Some(other))];
        let tree = Tree::new(nodes).unwrap();
        let segments: Vec<Segment> = (1..)
            .zip(&weights)
            .map(|(id, &weight)| Segment { id: SegmentId(id), weight })
            .collect();
        for method in [Method::Dhondt, Method::Spread] {
            let mut division = divide(&tree, &segments, method).unwrap();
            prop_assert_eq!(division.shares(tree.find("open").unwrap()), None);
            for (name, limit) in [("one", limit), ("other", other)] {
                let shares = division.shares(tree.find(name).unwrap()).unwrap();
                let key = spread_key(name);
                prop_assert_eq!(fault(limit, &weights, method, key, shares), None, "{:?}", method);
            }
            let shares = division.set_limit(tree.find("one").unwrap(), Some(other)).unwrap();
            let key = spread_key("one");
            prop_assert_eq!(fault(other, &weights, method, key, shares), None, "{:?}", method);
        }
    }
}

#[test]
fn one_huge_weight_beside_small_ones_and_many_equal_ones_divide() {
    let cases: [(u32, Vec<u32>, &[u32]); 7] = [
        (u32::MAX, vec![u32::MAX, 1], &[u32::MAX, 0]),
        (u32::MAX, vec![1; 2], &[1 << 31, (1 << 31) - 1]),
        (u32::MAX, vec![u32::MAX, u32::MAX], &[1 << 31, (1 << 31) - 1]),
        (2, vec![0, 5, 0, 5, 5], &[0, 1, 0, 1, 0]),
        (1, vec![1, u32::MAX, 1], &[0, 1, 0]),
        (0, vec![u32::MAX, 0, 1], &[0, 0, 0]),
        (u32::MAX, vec![0, 0, 1], &[0, 0, u32::MAX]),
    ];
    for (limit, weights, shares) in cases {
        let checked = Weights::new(weights.clone()).unwrap();
        assert_eq!(split(limit, &checked, Method::Dhondt, 0), shares, "{limit} over {weights:?}");
    }
    let many = Weights::new(vec![u32::MAX; 1000]).unwrap();
    let shares = split(999, &many, Method::Dhondt, 0);
    assert!(shares[..999].iter().all(|share| *share == 1) && shares[999] == 0);
}

/// Returns what is wrong with shares.
fn fault(limit: u32, weights: &[u32], method: Method, key: u64, shares: &[u32]) -> Option<String> {
    let sum: u64 = shares.iter().copied().map(u64::from).sum();
    if sum != u64::from(limit) {
        return Some(format!("{shares:?} add up to {sum}"));
    }
    match method {
        Method::Dhondt | Method::Webster | Method::HuntingtonHill => {
            unfair(weights, method, shares)
        }
        Method::First | Method::Hamilton | Method::Spread => {
            let slow = reference::shares(limit, weights, method, key);
            (shares != slow).then(|| format!("{shares:?}, not {slow:?}"))
        }
        Method::Quota => {
            let parts = Weights::new(weights.to_vec()).unwrap();
            let total = u32::try_from(parts.total()).unwrap();
            let (rounds, rest) = (limit / total, limit % total);
            if QUOTA_LIMIT_MAX < rest {
                return None;
            }
            let mut slow = reference::shares(rest, weights, method, key);
            for (share, &weight) in slow.iter_mut().zip(parts.reduced()) {
                *share += rounds * weight;
            }
            (shares != slow).then(|| format!("{shares:?}, not {slow:?}"))
        }
    }
}

/// Finds a unit that somebody had the better claim on.
fn unfair(weights: &[u32], method: Method, shares: &[u32]) -> Option<String> {
    let claim = |place: usize, share: u32| -> (u128, u128, usize) {
        let (weight, share) = (u128::from(weights[place]), u128::from(share));
        match method {
            Method::Webster => (weight, 2 * share + 1, place),
            Method::HuntingtonHill => (weight * weight, share * (share + 1), place),
            Method::Dhondt | Method::First | Method::Quota | Method::Hamilton | Method::Spread => {
                (weight, share + 1, place)
            }
        }
    };
    if let Some(place) = (0..shares.len()).find(|&it| weights[it] == 0 && shares[it] != 0) {
        return Some(format!("{place} has no weight and {}", shares[place]));
    }
    let next = (0..shares.len()).filter(|&it| weights[it] != 0).map(|it| claim(it, shares[it]));
    let last = (0..shares.len()).filter(|&it| shares[it] != 0).map(|it| claim(it, shares[it] - 1));
    let next = next.max_by(|one, other| stronger(*one, *other))?;
    let last = last.min_by(|one, other| stronger(*one, *other))?;
    // Of one part the next claim is never above the last.
    let taken = next.2 != last.2 && stronger(last, next) == Ordering::Less;
    taken.then(|| format!("{} has a unit of {} in {shares:?}", last.2, next.2))
}

/// Compares two claims, fractions of which no denominator is the greatest; ties go to the first.
fn stronger(one: (u128, u128, usize), other: (u128, u128, usize)) -> Ordering {
    let by_size = match (one.1, other.1) {
        (0, 0) => one.0.cmp(&other.0),
        _ => (one.0 * other.1).cmp(&(other.0 * one.1)),
    };
    by_size.then(other.2.cmp(&one.2))
}

/// Weights of all sizes, at least one of them not zero, and a limit that is hard for them.
fn extremes() -> impl Strategy<Value = (Vec<u32>, u32)> {
    let edge = prop_oneof![
        Just(0_u32),
        Just(1),
        Just(2),
        Just(u32::MAX),
        Just(u32::MAX - 1),
        Just(1 << 31),
        any::<u32>(),
        0_u32..400,
    ];
    let equal = (any_limit(), 1_usize..60).prop_map(|(weight, count)| vec![weight; count]);
    let one_huge = (vec(0_u32..4, 1..20), 0_usize..20, (1_u32 << 24)..).prop_map(
        |(mut weights, place, huge)| {
            let place = place % weights.len();
            weights[place] = huge;
            weights
        },
    );
    let weights = prop_oneof![4 => vec(edge, 1..12), 2 => equal, 2 => one_huge];
    let weights = weights.prop_filter("all are zero", |it| it.iter().any(|&weight| weight != 0));
    weights.prop_flat_map(|weights| {
        let count = u32::try_from(weights.len()).unwrap();
        let total: u64 = weights.iter().copied().map(u64::from).sum();
        let total = u32::try_from(total).unwrap_or(u32::MAX);
        let near = |value: u32| (value.saturating_sub(2))..=value.saturating_add(2);
        let limit = prop_oneof![any_limit(), near(count), near(total), near(total / 2), 0..=count];
        (Just(weights), limit)
    })
}

/// Weights that a table is made for.
fn small_weights() -> impl Strategy<Value = Vec<u32>> {
    let weights = vec(0_u32..12, 1..9);
    weights.prop_filter("all are zero", |it| it.iter().any(|&weight| weight != 0))
}

fn any_limit() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0_u32), Just(1), Just(u32::MAX), Just(u32::MAX - 1), 0_u32..100, any::<u32>()]
}
