//! Each rule left out, one at a time: the tests must notice.

use super::node;
use super::seeds::live;
use super::world::World;
use crate::Segment;
use crate::rules::{Rule, Rules};

#[test]
fn random_worlds_notice_the_rules_without_which_something_breaks() {
    let rules = [Rule::TwoWayLinks, Rule::ToldLinks, Rule::TermPerVictory, Rule::StoredPromise];
    for rule in rules {
        let failing =
            (0..200).find(|seed| !live(*seed, Rules::without(rule)).watchdog.faults.is_empty());
        println!("without {rule:?}: {failing:?}");
        assert!(failing.is_some(), "nothing broke without {rule:?}");
    }
}

#[test]
fn without_the_life_in_an_epoch_a_lost_file_makes_one_number_name_two_divisions() {
    let faults = |rules| {
        let mut world = started(3, &[(1, 1), (2, 1)], rules);
        world.crash(0);
        world.crash(1);
        world.processes[0].disk = None;
        world.start(0);
        world.run_for(10_000);
        world.watchdog.faults.len()
    };

    assert_eq!(faults(Rules::default()), 0);
    assert_ne!(faults(Rules::without(Rule::EpochOfOneLife)), 0);
}

#[test]
fn without_the_stability_time_a_flapping_node_costs_far_more_epochs() {
    let epochs = |rules| {
        let mut epochs = 0;
        for seed in 0..5 {
            let mut world = started(seed, &[(1, 1), (2, 1), (3, 1)], rules);
            for _ in 0..6 {
                isolate(&mut world, 0);
                world.run_for(4_000);
                world.cuts.clear();
                world.run_for(4_000);
            }
            world.run_for(10_000);
            epochs += world.watchdog.epochs.len();
        }
        epochs
    };

    let (kept, left_out) = (epochs(Rules::default()), epochs(Rules::without(Rule::Stability)));
    println!("{kept} {left_out}");
    assert!(3 * kept < 2 * left_out, "{kept} epochs, {left_out} without");
}

#[test]
fn without_self_suspicion_a_pause_costs_more_epochs() {
    let (kept, left_out) = pauses(Rule::SelfSuspicion, true);
    println!("{kept} {left_out}");
    assert!(3 * kept < 2 * left_out, "{kept} epochs, {left_out} without");
}

#[test]
fn without_waiting_for_those_who_do_not_hear_an_unseen_pause_costs_more_epochs() {
    let (kept, left_out) = pauses(Rule::Away, false);
    println!("{kept} {left_out}");
    assert!(3 * kept < 2 * left_out, "{kept} epochs, {left_out} without");
}

#[test]
fn without_the_incumbent_a_return_costs_an_epoch() {
    let epochs = |rules| {
        let mut world = started(3, &[(1, 1), (1, 2), (2, 1)], rules);
        world.crash(0);
        world.run_for(10_000);
        world.start(0);
        world.run_for(20_000);
        world.watchdog.epochs.len()
    };

    assert_eq!(epochs(Rules::default()), 2);
    assert_eq!(epochs(Rules::without(Rule::Incumbent)), 3);
}

#[test]
fn without_turns_a_return_changes_who_counts() {
    let turn = |rules| {
        let mut world = started(3, &[(1, 1), (2, 1), (2, 2)], rules);
        world.crash(1);
        world.run_for(10_000);
        world.start(1);
        world.run_for(20_000);
        world.processes[0].speakers[&Segment(2)].turn
    };

    assert_eq!(turn(Rules::default()), 2);
    assert_eq!(turn(Rules::without(Rule::Turn)), 3);
}

#[test]
fn without_leading_while_it_campaigns_a_coordinator_loses_the_role_to_its_partner() {
    let moved = |rules| {
        let is_moved = |seed: &u64| {
            let mut world = started(*seed, &[(1, 1), (1, 2), (2, 1), (3, 1)], rules);
            world.crash(0);
            world.run_for(10_000);
            world.start(0);
            world.run_for(20_000);
            world.crash(2);
            world.run_for(20_000);
            let mandate = world.processes[0].role.as_ref().unwrap().mandate();
            mandate.epoch.coordinator != node(1, 2)
        };
        (0..10).filter(is_moved).count()
    };

    assert_eq!(moved(Rules::default()), 0);
    assert_ne!(moved(Rules::without(Rule::LeadWhileCampaigning)), 0);
}

#[test]
fn without_the_boot_time_starts_cost_epochs() {
    let epochs = |rules| {
        let world = started(3, &[(1, 1), (2, 1), (3, 1)], rules);
        world.watchdog.epochs.len()
    };

    assert_eq!(epochs(Rules::default()), 1);
    assert!(3 < epochs(Rules::without(Rule::Boot)));
}

/// Epochs declared when each node pauses once, with all rules and without one.
fn pauses(rule: Rule, clock_ran: bool) -> (usize, usize) {
    let epochs = |rules| {
        let mut epochs = 0;
        for seed in 0..5 {
            let mut world = started(seed, &[(1, 1), (1, 2), (2, 1), (2, 2)], rules);
            let before = world.watchdog.epochs.len();
            for at in 0..4 {
                world.pause(at, 10_000, clock_ran);
                world.run_for(30_000);
            }
            epochs += world.watchdog.epochs.len() - before;
        }
        epochs
    };
    (epochs(Rules::default()), epochs(Rules::without(rule)))
}

fn started(seed: u64, ids: &[(u16, u8)], rules: Rules) -> World {
    let ids: Vec<_> = ids.iter().map(|(segment, rm)| node(*segment, *rm)).collect();
    let mut world = World::new(seed, &ids, rules);
    (0..ids.len()).for_each(|at| world.start(at));
    world.run_for(10_000);
    world
}

/// Cuts a node off from all others.
fn isolate(world: &mut World, at: usize) {
    let id = world.processes[at].id;
    let others: Vec<_> = world.processes.iter().map(|process| process.id).collect();
    for other in others.into_iter().filter(|other| *other != id) {
        world.cuts.insert((id, other));
        world.cuts.insert((other, id));
    }
}
