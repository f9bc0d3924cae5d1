//! Each method as its books define it: unit by unit, in exact fractions, slow.

use quota_split::Method;

/// Returns the shares of `limit`. `key` counts for `Method::Spread` alone.
pub(crate) fn shares(limit: u32, weights: &[u32], method: Method, key: u64) -> Vec<u32> {
    let divisor = |share: u128| match method {
        Method::Webster => (2 * share + 1).pow(2),
        Method::HuntingtonHill => share * (share + 1),
        Method::Dhondt | Method::Quota | Method::First | Method::Hamilton | Method::Spread => {
            (share + 1).pow(2)
        }
    };
    let total: u128 = weights.iter().copied().map(u128::from).sum();
    let exact = |limit: u32, weight: u32| u128::from(limit) * u128::from(weight);
    let mut shares = vec![0_u32; weights.len()];
    match method {
        Method::Dhondt | Method::Webster | Method::HuntingtonHill | Method::Quota => {
            for given in 1..=limit {
                let may = |index: usize| {
                    let quota = u128::from(shares[index]) * total < exact(given, weights[index]);
                    weights[index] != 0 && (method != Method::Quota || quota)
                };
                // Claims are compared squared: weight² / divisor².
                let mut best: Option<usize> = None;
                for index in (0..weights.len()).filter(|&index| may(index)) {
                    let claim = |index: usize| {
                        (u128::from(weights[index]).pow(2), divisor(u128::from(shares[index])))
                    };
                    let better = best.is_none_or(|best| {
                        let ((mine, by), (other, other_by)) = (claim(index), claim(best));
                        match (by, other_by) {
                            (0, 0) => other < mine,
                            _ => other * by < mine * other_by,
                        }
                    });
                    if better {
                        best = Some(index);
                    }
                }
                shares[best.unwrap()] += 1;
            }
        }
        Method::First | Method::Hamilton => {
            for (share, &weight) in shares.iter_mut().zip(weights) {
                *share = u32::try_from(exact(limit, weight) / total).unwrap();
            }
            let mut order: Vec<usize> = (0..weights.len()).filter(|&i| weights[i] != 0).collect();
            if method == Method::Hamilton {
                order.sort_by_key(|&index| std::cmp::Reverse(exact(limit, weights[index]) % total));
            }
            let left = limit - shares.iter().sum::<u32>();
            for &index in order.iter().take(left as usize) {
                shares[index] += 1;
            }
        }
        Method::Spread => {
            let divisor = weights.iter().fold(0, |a, &b| common_divisor(a, b));
            let offset = u128::from(key) % (total / u128::from(divisor)) * u128::from(divisor);
            let upto = |count: usize| {
                let sum: u128 = weights[..count].iter().copied().map(u128::from).sum();
                (u128::from(limit) * sum + offset) / total
            };
            for (index, share) in shares.iter_mut().enumerate() {
                *share = u32::try_from(upto(index + 1) - upto(index)).unwrap();
            }
        }
    }
    shares
}

fn common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}
