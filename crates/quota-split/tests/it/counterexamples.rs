//! Where a method breaks a law that others keep: why the choice exists.

use quota_split::{Method, Weights, split};

#[test]
fn first_and_hamilton_take_units_away_when_the_limit_rises() {
    assert_eq!(shares(22, &[150, 2, 7], Method::First), [21, 1, 0]);
    assert_eq!(shares(23, &[150, 2, 7], Method::First), [22, 0, 1]);

    assert_eq!(shares(31, &[150, 2, 7], Method::Hamilton), [29, 1, 1]);
    assert_eq!(shares(32, &[150, 2, 7], Method::Hamilton), [30, 0, 2]);
}

#[test]
fn first_passes_the_rounded_up_share_and_forgets_the_heavy() {
    assert_eq!(shares(2, &[200, 100, 100], Method::First), [2, 0, 0]);
    assert_eq!(shares(6, &[200, 100, 100], Method::First), [4, 1, 1]);
    assert_eq!(shares(1, &[100, 300, 50], Method::First), [1, 0, 0]);
}

#[test]
fn dhondt_passes_the_rounded_up_share_beside_small_weights() {
    assert_eq!(shares(12, &[300, 10, 10, 10], Method::Dhondt), [12, 0, 0, 0]);
    assert_eq!(shares(12, &[300, 10, 10, 10], Method::Quota), [11, 1, 0, 0]);
}

#[test]
fn only_some_methods_print_the_documents_weighted_table() {
    let weights = [300, 100, 50];
    for method in [Method::Dhondt, Method::First, Method::Quota] {
        assert_eq!(shares(500, &weights, method), [334, 111, 55], "{method:?}");
        assert_eq!(shares(20, &weights, method), [14, 4, 2], "{method:?}");
    }
    for method in [Method::Hamilton, Method::Webster, Method::HuntingtonHill] {
        assert_eq!(shares(500, &weights, method), [333, 111, 56], "{method:?}");
    }
    assert_eq!(shares(20, &weights, Method::Hamilton), [13, 5, 2]);
    assert_eq!(shares(20, &weights, Method::Webster), [14, 4, 2]);
    assert_eq!(shares(20, &weights, Method::HuntingtonHill), [13, 5, 2]);
}

#[test]
fn lowest_first_and_heaviest_first_differ_when_the_heavy_segment_is_not_the_lowest() {
    assert_eq!(shares(20, &[100, 300, 50], Method::First), [5, 13, 2]);
    assert_eq!(shares(20, &[100, 300, 50], Method::Dhondt), [4, 14, 2]);
    assert_eq!(shares(500, &[100, 300, 50], Method::First), [112, 333, 55]);
    assert_eq!(shares(500, &[100, 300, 50], Method::Dhondt), [111, 334, 55]);
}

#[test]
fn every_no_in_the_readmes_table_has_a_case() {
    let breaks = [
        (Method::Dhondt, Law::Ceiling),
        (Method::Spread, Law::Higher),
        (Method::Spread, Law::Leaver),
        (Method::Spread, Law::Heavier),
        (Method::First, Law::Ceiling),
        (Method::First, Law::Higher),
        (Method::First, Law::Leaver),
        (Method::First, Law::Heavier),
        (Method::Quota, Law::Leaver),
        (Method::Hamilton, Law::Higher),
        (Method::Hamilton, Law::Leaver),
        (Method::Webster, Law::Floor),
        (Method::Webster, Law::Ceiling),
        (Method::HuntingtonHill, Law::Floor),
        (Method::HuntingtonHill, Law::Ceiling),
    ];
    for (method, law) in breaks {
        let found = cases().any(|(limit, weights)| law.is_broken(method, limit, &weights));
        assert!(found, "{method:?} keeps {law:?} in every case looked at");
    }
}

/// A column of the table.
#[derive(Clone, Copy, Debug)]
enum Law {
    Floor,
    Ceiling,
    Higher,
    Leaver,
    Heavier,
}

impl Law {
    fn is_broken(self, method: Method, limit: u32, weights: &[u32]) -> bool {
        let before = shares(limit, weights, method);
        let sum: u32 = weights.iter().sum();
        let mut parts = weights.iter().zip(&before);
        let pairs = |broken: &dyn Fn(usize, usize) -> bool| {
            (0..weights.len()).any(|i| (0..weights.len()).any(|j| broken(i, j)))
        };
        match self {
            Self::Floor => parts.any(|(weight, share)| *share < limit * weight / sum),
            Self::Ceiling => parts.any(|(weight, share)| (limit * weight).div_ceil(sum) < *share),
            Self::Higher => {
                let after = shares(limit + 1, weights, method);
                after.iter().zip(&before).any(|(after, before)| after < before)
            }
            Self::Leaver => {
                let after = shares(limit, &weights[..weights.len() - 1], method);
                after.iter().zip(&before).any(|(after, before)| after < before)
            }
            Self::Heavier => pairs(&|i, j| weights[j] < weights[i] && before[i] < before[j]),
        }
    }
}

/// Limits with three segments, and with one large segment among small ones.
fn cases() -> impl Iterator<Item = (u32, Vec<u32>)> {
    let small = || 1..12_u32;
    let three = small().flat_map(move |a| small().map(move |b| (a, b)));
    let three = three.flat_map(move |(a, b)| small().map(move |c| vec![a, b, c]));
    let large = (20..200).step_by(7).flat_map(move |large| {
        small().map(move |small| vec![large, small, small, small, small, small])
    });
    three.chain(large).flat_map(|weights| (1..40).map(move |limit| (limit, weights.clone())))
}

#[test]
fn spread_lands_small_limits_of_many_keys_on_all_segments() {
    let weights = Weights::new(vec![1, 1, 1]).unwrap();
    let mut landed = [0_u32; 3];
    for key in 0..300 {
        for (sum, share) in landed.iter_mut().zip(split(1, &weights, Method::Spread, key)) {
            *sum += share;
        }
    }
    assert_eq!(landed, [100, 100, 100]);
    assert_eq!(split(1, &weights, Method::Dhondt, 7), [1, 0, 0]);
}

fn shares(limit: u32, weights: &[u32], method: Method) -> Vec<u32> {
    split(limit, &Weights::new(weights.to_vec()).unwrap(), method, 0)
}
