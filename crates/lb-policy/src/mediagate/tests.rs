use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

#[test]
fn a_call_avoids_the_host_of_its_b2b_and_stands_by_there() {
    let two_servers = [gateway(1, "one"), gateway(2, "two")];

    for key in 0..50 {
        assert_eq!(choose(&two_servers, "one", key), Some(Choice { holder: 2, standby: Some(1) }));
        assert_eq!(choose(&two_servers, "two", key), Some(Choice { holder: 1, standby: Some(2) }));
    }
}

#[test]
fn a_call_goes_to_the_host_of_its_b2b_when_nothing_else_lives() {
    let gateways = [gateway(1, "one"), Gateway { alive: false, ..gateway(2, "two") }];

    assert_eq!(choose(&gateways, "one", 7), Some(Choice { holder: 1, standby: None }));
}

#[test]
fn a_gateway_marked_standby_takes_new_calls_only_when_no_other_lives() {
    let spare = Gateway { standby: true, ..gateway(4, "four") };
    let worker = gateway(3, "three");
    let dead = Gateway { alive: false, ..worker };

    assert_eq!(choose(&[spare, worker], "two", 7), Some(Choice { holder: 3, standby: Some(4) }));
    assert_eq!(choose(&[spare, dead], "two", 7), Some(Choice { holder: 4, standby: None }));
}

#[test]
fn a_full_gateway_sends_no_call_to_one_marked_standby() {
    let spare = Gateway { standby: true, ..gateway(4, "four") };
    let full = Gateway { legs: 999, ..gateway(3, "three") };

    assert_eq!(choose(&[spare, full], "two", 7), None);
}

#[test]
fn no_gateway_alive_is_no_choice() {
    assert_eq!(choose(&[], "one", 7), None);
    assert_eq!(choose(&[Gateway { alive: false, ..gateway(1, "two") }], "one", 7), None);
}

#[test]
fn a_standby_on_another_host_is_better_than_an_idle_one_beside_the_holder() {
    let beside = gateway(2, "two");
    let busy = Gateway { legs: 900, ..gateway(3, "three") };

    assert_eq!(choose_standby(&[gateway(1, "two"), beside, busy], 1, "one", 7), Some(3));
    assert_eq!(choose_standby(&[gateway(1, "two"), beside], 1, "one", 7), Some(2));
}

#[test]
fn equally_loaded_gateways_share_the_calls() {
    let gateways = [gateway(1, "a"), gateway(2, "b"), gateway(3, "c")];
    let mut calls = [0; 4];
    for key in 0..3000 {
        calls[usize::from(choose(&gateways, "d", key).unwrap().holder)] += 1;
    }

    assert!(calls[1..].iter().all(|calls| (900..=1100).contains(calls)), "{calls:?}");
}

#[test]
fn the_death_of_a_gateway_moves_no_other_gateways_calls() {
    let whole = [gateway(1, "a"), gateway(2, "b"), gateway(3, "c")];
    let mut less = whole;
    less[2].alive = false;

    for key in 0..500 {
        let before = choose(&whole, "d", key).unwrap().holder;
        let after = choose(&less, "d", key).unwrap().holder;
        assert!(before == 3 || before == after);
    }
}

proptest! {
    #[test]
    fn a_choice_keeps_every_rule(gateways in vec(any_gateway(), 0..8), host in 0..4_usize, key: u64) {
        let gateways = numbered(&gateways);
        let here = HOSTS[host];
        let fit = |gateway: &&Gateway<'_>| gateway.alive && gateway.legs + 2 <= gateway.legs_max;
        let Some(choice) = choose(&gateways, here, key) else {
            let working = gateways.iter().any(|gateway| gateway.alive && !gateway.standby);
            prop_assert!(!gateways.iter().filter(fit).any(|gateway| gateway.standby != working));
            return Ok(());
        };
        let holder = find(&gateways, choice.holder);

        prop_assert!(fit(&holder));
        prop_assert!(!holder.standby || gateways.iter().all(|other| !other.alive || other.standby));
        if holder.host == here {
            let elsewhere = gateways.iter().filter(fit).find(|other| other.host != here && other.standby == holder.standby);
            prop_assert_eq!(elsewhere, None);
        }
        let others: Vec<_> = gateways.iter().filter(fit).filter(|other| other.id != holder.id).collect();
        prop_assert_eq!(choice.standby.is_some(), !others.is_empty());
        if let Some(standby) = choice.standby {
            let standby = find(&gateways, standby);
            prop_assert!(fit(&standby) && standby.id != holder.id);
            prop_assert!(standby.host != holder.host || others.iter().all(|other| other.host == holder.host));
        }
    }

    #[test]
    fn the_order_of_the_list_decides_nothing(gateways in vec(any_gateway(), 0..8), turn in 0..8_usize, key: u64) {
        let gateways = numbered(&gateways);
        let mut turned = gateways.clone();
        turned.rotate_left(turn % gateways.len().max(1));

        prop_assert_eq!(choose(&gateways, "a", key), choose(&turned, "a", key));
    }
}

const HOSTS: [&str; 4] = ["a", "b", "c", "d"];

type Spec = (usize, bool, bool, u32, u32);

fn any_gateway() -> impl Strategy<Value = Spec> {
    (0..4_usize, any::<bool>(), any::<bool>(), 0..12_u32, 0..12_u32)
}

fn numbered(specs: &[Spec]) -> Vec<Gateway<'static>> {
    (1..)
        .zip(specs)
        .map(|(id, &(host, standby, alive, legs, legs_max))| Gateway {
            id,
            host: HOSTS[host],
            standby,
            alive,
            legs,
            legs_max,
        })
        .collect()
}

fn find<'a>(gateways: &'a [Gateway<'static>], id: u16) -> &'a Gateway<'static> {
    gateways.iter().find(|gateway| gateway.id == id).unwrap()
}

fn gateway(id: u16, host: &str) -> Gateway<'_> {
    Gateway { id, host, standby: false, alive: true, legs: 0, legs_max: 1000 }
}
