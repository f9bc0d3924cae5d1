//! Laws of division, each over 10,000 cases. The README's matrix says which method keeps which.

use proptest::collection::vec;
use proptest::prelude::*;
use quota_split::{
    Divider, Limits, Method, Node, Segment, SegmentId, Tree, Weights, divide, split, spread_key,
};

use crate::reference;

const DIVISORS: [Method; 3] = [Method::Dhondt, Method::Webster, Method::HuntingtonHill];

proptest! {
    #![proptest_config(ProptestConfig {
        max_global_rejects: 1_000_000,
        ..ProptestConfig::with_cases(10_000)
    })]

    #[test]
    fn no_unit_is_lost_and_none_is_made(weights in weights(), limit in limit(), key: u64) {
        for method in Method::ALL {
            let sum: u64 = shares(limit, &weights, method, key).into_iter().map(u64::from).sum();
            prop_assert_eq!(sum, u64::from(limit), "{:?}", method);
        }
    }

    #[test]
    fn a_weight_of_zero_gets_nothing(weights in weights(), limit in limit(), key: u64) {
        for method in Method::ALL {
            let shares = shares(limit, &weights, method, key);
            for (weight, share) in weights.iter().zip(shares) {
                prop_assert!(*weight != 0 || share == 0, "{:?}", method);
            }
        }
    }

    #[test]
    fn no_limit_stays_none_and_a_limit_of_zero_gives_nothing(weights in weights()) {
        let limited = Node {
            name: "zero".into(),
            limits: Limits { calls: Some(0), ..Limits::default() },
            ..Node::default()
        };
        let tree = Tree::new(vec![Node::default(), limited]).unwrap();
        for method in Method::ALL {
            let division = divide(&tree, &segments(&weights), method).unwrap();
            let [open, zero] = [tree.find("").unwrap(), tree.find("zero").unwrap()];
            prop_assert_eq!(division.shares(open), None);
            prop_assert_eq!(division.shares(zero), Some(&vec![0; weights.len()][..]));
        }
    }

    #[test]
    fn one_segment_gets_all(weight in 1_u32.., limit: u32, key: u64) {
        for method in Method::ALL {
            prop_assert_eq!(shares(limit, &[weight], method, key), [limit]);
        }
    }

    #[test]
    fn weights_all_larger_by_a_factor_change_nothing(
        weights in weights(), limit in limit(), factor in 1_u32..1000, key: u64,
    ) {
        let larger: Vec<u32> = weights.iter().map(|weight| weight * factor).collect();
        for method in Method::ALL {
            let [one, other] = [&weights, &larger].map(|w| shares(limit, w, method, key));
            prop_assert_eq!(one, other, "{:?}", method);
        }
    }

    #[test]
    fn the_order_of_segments_decides_ties_alone(
        (weights, order) in weights().prop_flat_map(|weights| {
            let order: Vec<usize> = (0..weights.len()).collect();
            (Just(weights), Just(order).prop_shuffle())
        }),
        limit in limit(),
    ) {
        let moved: Vec<u32> = order.iter().map(|&index| weights[index]).collect();
        let methods = DIVISORS.into_iter().chain([Method::Hamilton]);
        let divided = |method| (method, shares(limit, &weights, method, 0));
        let divided: Vec<(Method, Vec<u32>)> = methods.map(divided).collect();
        let tie = |(method, shares): &(Method, Vec<u32>)| {
            has_tie(&weights, shares, limit, *method)
        };
        prop_assume!(!divided.iter().any(tie));
        for (method, before) in divided {
            let expected: Vec<u32> = order.iter().map(|&index| before[index]).collect();
            prop_assert_eq!(shares(limit, &moved, method, 0), expected, "{:?}", method);
        }
    }

    #[test]
    fn the_order_in_which_segments_are_given_changes_nothing(
        (given, sorted) in weights().prop_flat_map(|weights| {
            let sorted = segments(&weights);
            (Just(sorted.clone()).prop_shuffle(), Just(sorted))
        }),
        limit in limit(),
    ) {
        let limits = Limits { calls: Some(limit), ..Limits::default() };
        let tree = Tree::new(vec![Node { limits, ..Node::default() }]).unwrap();
        for method in Method::ALL {
            let [one, other] = [&given, &sorted].map(|segments| {
                divide(&tree, segments, method).unwrap().shares(tree.find("").unwrap()).unwrap().to_vec()
            });
            prop_assert_eq!(one, other);
        }
    }

    #[test]
    fn equal_weights_get_shares_that_differ_by_one_at_most(
        count in 1_usize..9, weight in 1_u32..1000, limit in limit(), key: u64,
    ) {
        for method in Method::ALL {
            let shares = shares(limit, &vec![weight; count], method, key);
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            prop_assert!(most - least <= 1, "{:?}", method);
        }
    }

    #[test]
    fn nobody_falls_below_the_rounded_down_exact_share(
        weights in weights(), limit in limit(), key: u64,
    ) {
        let methods =
            [Method::Dhondt, Method::First, Method::Quota, Method::Hamilton, Method::Spread];
        for method in methods {
            for (index, share) in shares(limit, &weights, method, key).into_iter().enumerate() {
                prop_assert!(exact(limit, &weights, index).0 <= share, "{:?}", method);
            }
        }
    }

    #[test]
    fn quota_methods_never_pass_the_rounded_up_exact_share(
        weights in weights(), limit in limit(), key: u64,
    ) {
        for method in [Method::Quota, Method::Hamilton, Method::Spread] {
            for (index, share) in shares(limit, &weights, method, key).into_iter().enumerate() {
                prop_assert!(share <= exact(limit, &weights, index).1, "{:?}", method);
            }
        }
    }

    #[test]
    fn a_higher_limit_lowers_nobody(weights in weights(), limit in 0_u32..5000, more in 0_u32..50) {
        for method in DIVISORS.into_iter().chain([Method::Quota]) {
            let [before, after] = [limit, limit + more].map(|limit| shares(limit, &weights, method, 0));
            prop_assert!(before.iter().zip(&after).all(|(b, a)| b <= a), "{:?}", method);
        }
    }

    #[test]
    fn who_leaves_lowers_no_survivor_and_who_joins_raises_nobody(
        weights in vec(0_u32..400, 2..9), gone in 0_usize..9, limit in limit(),
    ) {
        let gone = gone % weights.len();
        let mut rest = weights.clone();
        rest.remove(gone);
        prop_assume!(rest.iter().any(|&weight| weight != 0));
        for method in DIVISORS {
            let mut before = shares(limit, &weights, method, 0);
            before.remove(gone);
            let after = shares(limit, &rest, method, 0);
            prop_assert!(before.iter().zip(&after).all(|(b, a)| b <= a), "{:?}", method);
        }
    }

    #[test]
    fn a_heavier_segment_never_gets_less(weights in weights(), limit in limit()) {
        for method in DIVISORS {
            let shares = shares(limit, &weights, method, 0);
            for (i, j) in pairs(weights.len()) {
                let heavier = weights[j] < weights[i];
                prop_assert!(!heavier || shares[j] <= shares[i], "{:?}", method);
            }
        }
    }

    #[test]
    fn any_numbers_at_all_divide_and_twice_alike(
        weights in vec(any::<u32>(), 1..9).prop_filter_map("zero", |it| Weights::new(it).ok()),
        limit: u32, key: u64,
    ) {
        // `Quota` steps through every limit below: the test next to this one bounds them.
        for method in Method::ALL.into_iter().filter(|method| *method != Method::Quota) {
            let shares = split(limit, &weights, method, key);
            let sum: u64 = shares.iter().copied().map(u64::from).sum();
            prop_assert_eq!(sum, u64::from(limit));
            prop_assert_eq!(shares, split(limit, &weights, method, key));
        }
    }

    #[test]
    fn any_weights_divide_by_the_quota_method(
        weights in vec(any::<u32>(), 1..9).prop_filter_map("zero", |it| Weights::new(it).ok()),
        limit in 0_u32..1000,
    ) {
        let sum: u32 = split(limit, &weights, Method::Quota, 0).iter().sum();
        prop_assert_eq!(sum, limit);
    }

    #[test]
    fn the_quick_way_equals_the_definition(
        weights in weights(), limit in 0_u32..120, key: u64,
    ) {
        for method in Method::ALL {
            let slow = reference::shares(limit, &weights, method, key);
            prop_assert_eq!(shares(limit, &weights, method, key), slow, "{:?}", method);
        }
    }

    #[test]
    fn the_table_equals_the_quick_way(
        weights in vec(0_u32..40, 1..9).prop_filter_map("zero", |it| Weights::new(it).ok()),
        limits in vec(any::<u32>(), 4), key: u64,
    ) {
        for method in Method::ALL {
            let divider = Divider::new(weights.clone(), method, usize::MAX);
            for &limit in limits.iter().chain(&[0, 1, u32::MAX]) {
                let direct = split(limit, &weights, method, key);
                let mut looked_up = vec![0; direct.len()];
                divider.split_into(limit, key, &mut looked_up);
                prop_assert_eq!(&looked_up, &direct, "{:?}", method);
                let last = direct.len() - 1;
                prop_assert_eq!(divider.share(limit, key, last), direct[last]);
            }
        }
    }
}

#[test]
fn the_key_of_a_name_is_the_same_in_every_release() {
    assert_eq!(spread_key("T2.2.1"), 0x2597_6fb5_5caf_cdbe);
}

/// Small weights and weights of a configuration, zero among them.
fn weights() -> impl Strategy<Value = Vec<u32>> {
    let weight = prop_oneof![2 => 0_u32..20, 3 => 1_u32..400, 1 => Just(100), 1 => Just(0)];
    let weights = vec(weight, 1..9);
    weights.prop_filter("all are zero", |weights| weights.iter().any(|&weight| weight != 0))
}

fn limit() -> impl Strategy<Value = u32> {
    prop_oneof![0_u32..50, 0_u32..3000, any::<u32>()]
}

fn shares(limit: u32, weights: &[u32], method: Method, key: u64) -> Vec<u32> {
    split(limit, &Weights::new(weights.to_vec()).unwrap(), method, key)
}

fn segments(weights: &[u32]) -> Vec<Segment> {
    let segment = |(id, &weight)| Segment { id: SegmentId(id), weight };
    (1..).zip(weights).map(segment).collect()
}

/// Returns the exact share of one segment, rounded down and up.
fn exact(limit: u32, weights: &[u32], index: usize) -> (u32, u32) {
    let total: u64 = weights.iter().copied().map(u64::from).sum();
    let product = u64::from(limit) * u64::from(weights[index]);
    (u32::try_from(product / total).unwrap(), u32::try_from(product.div_ceil(total)).unwrap())
}

/// Tells whether somebody who got nothing more had the same claim as somebody who did.
fn has_tie(weights: &[u32], shares: &[u32], limit: u32, method: Method) -> bool {
    let total: u128 = weights.iter().copied().map(u128::from).sum();
    pairs(weights.len()).any(|(i, j)| {
        let [(wi, si), (wj, sj)] = [i, j].map(|n| (u128::from(weights[n]), u128::from(shares[n])));
        let rest = |weight: u128| u128::from(limit) * weight % total;
        match method {
            Method::Hamilton => rest(wi) == rest(wj) && wi != wj || wi == wj && si != sj,
            Method::Dhondt
            | Method::Webster
            | Method::HuntingtonHill
            | Method::First
            | Method::Quota
            | Method::Spread
                if si == 0 =>
            {
                false
            }
            Method::Webster => wi * (2 * sj + 1) == wj * (2 * si - 1),
            Method::HuntingtonHill => wi * wi * sj * (sj + 1) == wj * wj * si * (si - 1),
            Method::Dhondt | Method::First | Method::Quota | Method::Spread => {
                wi * (sj + 1) == wj * si
            }
        }
    })
}

fn pairs(len: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..len).flat_map(move |i| (0..len).filter(move |&j| i != j).map(move |j| (i, j)))
}
