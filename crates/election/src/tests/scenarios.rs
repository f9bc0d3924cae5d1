//! What the election does, told in single stories on a good network.

use super::invariants::unrest;
use super::node;
use super::world::{Ms, Role, World};
use crate::rules::Rules;
use crate::{Cold, Epoch, NodeId, Segment};

#[test]
fn a_cold_start_elects_the_lowest_once() {
    let world = at_rest(&[node(1, 1), node(2, 1), node(3, 1)]);

    assert_eq!(world.watchdog.epochs.len(), 1);
    let epoch = epoch_of(&world, 0);
    assert_eq!((epoch.term, epoch.coordinator), (1, node(1, 1)));
    assert!(world.watchdog.declared_at <= 6_500, "{}", world.watchdog.declared_at);
}

#[test]
fn a_node_alone_leads_itself() {
    let world = at_rest(&[node(4, 1)]);

    assert_eq!(epoch_of(&world, 0).coordinator, node(4, 1));
}

#[test]
fn the_loss_of_a_segment_makes_an_epoch_without_it() {
    let mut world = at_rest(&[node(1, 1), node(2, 1), node(3, 1)]);

    world.crash(0);
    settle(&mut world, 3_300);

    assert_eq!(epoch_of(&world, 1).coordinator, node(2, 1));
    assert_eq!(world.watchdog.epochs.len(), 2);
}

#[test]
fn one_of_a_pair_comes_and_goes_without_an_epoch() {
    let mut world = at_rest(&[node(1, 1), node(1, 2), node(2, 1), node(2, 2)]);

    for at in [1, 2, 3] {
        world.crash(at);
        world.run_for(10_000);
        world.start(at);
        world.run_for(20_000);
        settle(&mut world, 0);
    }

    assert_eq!(world.watchdog.epochs.len(), 1);
}

#[test]
fn a_node_that_returns_before_it_is_missed_is_another_speaker() {
    for nodes in [&[node(1, 1), node(2, 1), node(3, 1)][..], &[node(1, 1), node(2, 1), node(2, 2)]]
    {
        let mut world = at_rest(nodes);
        let speaker = |world: &World| world.processes[0].speakers[&Segment(2)];
        let before = speaker(&world);
        let pair: Vec<usize> = (1..3).filter(|at| nodes[*at].segment == Segment(2)).collect();
        for &at in &pair {
            world.crash(at);
        }
        world.run_for(500);
        for &at in &pair {
            world.start(at);
        }
        world.run_for(30_000);

        assert_ne!(speaker(&world), before, "{nodes:?}");
        assert!(unrest(&world).is_none(), "{:?}", unrest(&world));
    }
}

#[test]
fn a_returning_node_leaves_the_word_with_its_partner() {
    let mut world = at_rest(&[node(1, 1), node(2, 1), node(2, 2), node(3, 1)]);
    let speaker = |world: &World| {
        let speaker = world.processes[3].speakers[&Segment(2)];
        (speaker.node, speaker.turn)
    };
    assert_eq!(speaker(&world), (node(2, 1), 1));

    world.crash(1);
    settle(&mut world, 3_300);
    assert_eq!(speaker(&world), (node(2, 2), 2));
    world.start(1);
    world.run_for(30_000);

    assert_eq!(speaker(&world), (node(2, 2), 2));
    assert!(unrest(&world).is_none(), "{:?}", unrest(&world));
}

#[test]
fn of_two_who_spoke_apart_the_one_that_took_over_goes_on() {
    let mut world = at_rest(&[node(1, 1), node(2, 1), node(2, 2)]);

    for other in [node(1, 1), node(2, 2)] {
        world.cuts.insert((node(2, 1), other));
        world.cuts.insert((other, node(2, 1)));
    }
    world.run_for(10_000);
    assert_eq!(world.processes[1].speakers[&Segment(2)].node, node(2, 1));
    assert_eq!(world.processes[2].speakers[&Segment(2)].node, node(2, 2));
    world.cuts.clear();
    settle(&mut world, 15_000);

    assert_eq!(world.processes[1].speakers[&Segment(2)].node, node(2, 2));
}

#[test]
fn who_fences_its_partner_speaks_at_once() {
    let mut world = at_rest(&[node(1, 1), node(2, 1), node(2, 2)]);

    world.fence(2);
    world.run_for(100);

    for process in &world.processes {
        assert_eq!(process.speakers[&Segment(2)].node, node(2, 2), "{}", process.id);
    }
}

#[test]
fn a_returning_node_leaves_the_role_with_its_partner() {
    let mut world = at_rest(&[node(1, 1), node(1, 2), node(2, 1)]);

    world.crash(0);
    settle(&mut world, 3_300);
    let epoch = epoch_of(&world, 1);
    assert_eq!(epoch.coordinator, node(1, 2));
    world.start(0);
    world.run_for(30_000);

    assert_eq!(unrest(&world), None);
    assert_eq!(epoch_of(&world, 0), epoch);
}

#[test]
fn the_lowest_segment_coordinates_again_after_its_return() {
    let mut world = at_rest(&[node(1, 1), node(2, 1), node(3, 1)]);

    world.crash(0);
    settle(&mut world, 3_300);
    world.start(0);
    world.run_for(5_900);
    assert_eq!(epoch_of(&world, 1).coordinator, node(2, 1), "it is not yet stable");
    settle(&mut world, 600);

    assert_eq!(epoch_of(&world, 1).coordinator, node(1, 1));
    assert_eq!(world.watchdog.epochs.len(), 3);
}

#[test]
fn a_segment_that_joins_is_taken_in_once_it_is_stable() {
    let mut world = World::new(3, &[node(1, 1), node(2, 1), node(3, 1)], Rules::default());
    world.start(0);
    world.start(1);
    world.run_for(7_000);
    assert_eq!(world.watchdog.epochs.len(), 1);

    world.start(2);
    settle(&mut world, 6_500);

    assert_eq!(epoch_of(&world, 2).coordinator, node(1, 1));
    assert_eq!(world.watchdog.epochs.len(), 2);
}

#[test]
fn every_island_has_a_coordinator_and_healing_leaves_one() {
    let mut world = at_rest(&[node(1, 1), node(2, 1), node(3, 1), node(4, 1)]);

    cut(&mut world, &[0, 1], &[2, 3]);
    settle(&mut world, 3_300);
    assert_eq!(epoch_of(&world, 1).coordinator, node(1, 1));
    assert_eq!(epoch_of(&world, 2).coordinator, node(3, 1));
    let before = world.watchdog.epochs.keys().copied().max();

    world.cuts.clear();
    settle(&mut world, 8_200);

    let epoch = epoch_of(&world, 3);
    assert_eq!(epoch.coordinator, node(1, 1));
    assert!(before < Some(epoch), "the epoch of the whole is above those of its parts");
}

#[test]
fn two_nodes_that_hear_each_other_only_through_a_third_stay_one_island() {
    let mut world = at_rest(&[node(1, 1), node(2, 1), node(3, 1)]);
    let epoch = epoch_of(&world, 0);

    cut(&mut world, &[0], &[2]);
    world.run_for(60_000);
    settle(&mut world, 0);
    assert_eq!(epoch_of(&world, 2), epoch);

    // Messages between them go through the third.
    world.crash(1);
    world.run_for(20_000);
    world.start(1);
    settle(&mut world, 8_200);
    assert_eq!(epoch_of(&world, 2).coordinator, node(1, 1));
}

#[test]
fn a_one_way_cut_counts_as_a_cut() {
    let mut world = at_rest(&[node(1, 1), node(2, 1), node(3, 1)]);
    let epoch = epoch_of(&world, 0);

    world.cuts.insert((node(1, 1), node(3, 1)));
    world.run_for(60_000);
    settle(&mut world, 0);
    assert_eq!(epoch_of(&world, 2), epoch, "the third node still connects all");

    world.cuts.insert((node(1, 1), node(2, 1)));
    settle(&mut world, 5_300);
    assert_eq!(epoch_of(&world, 0).coordinator, node(1, 1));
    assert_eq!(epoch_of(&world, 1).coordinator, node(2, 1));
    assert_eq!(epoch_of(&world, 2).coordinator, node(2, 1));
}

#[test]
fn a_paused_follower_comes_back_without_a_victory_of_its_own() {
    for clock_ran in [true, false] {
        let mut world = at_rest(&[node(1, 1), node(1, 2), node(2, 1)]);

        world.pause(1, 10_000, clock_ran);
        world.run_for(10_000);
        settle(&mut world, 8_200);

        assert_eq!(world.watchdog.epochs.len(), 1, "its partner held the segment");
    }
}

#[test]
fn a_paused_coordinator_comes_back_to_an_island_with_one_epoch() {
    for clock_ran in [true, false] {
        let mut world = at_rest(&[node(1, 1), node(1, 2), node(2, 1)]);

        world.pause(0, 10_000, clock_ran);
        world.run_for(10_000);
        settle(&mut world, 8_200);
        world.run_for(10_000);

        let epoch = epoch_of(&world, 2);
        assert!(epoch_of(&world, 0) == epoch && epoch_of(&world, 1) == epoch);
        assert!(world.watchdog.epochs.len() <= 3, "{:?}", world.watchdog.epochs.keys());
    }
}

#[test]
fn a_campaign_that_waits_for_one_who_does_not_hear_is_not_forgotten() {
    let ids = [node(1, 1), node(2, 1), node(2, 2), node(3, 1)];
    let mut world = at_rest(&ids);
    // 2/2 hears nobody, and only 1/1 hears it.
    for other in [node(1, 1), node(2, 1), node(3, 1)] {
        world.cuts.insert((other, node(2, 2)));
    }
    world.cuts.extend([(node(2, 2), node(2, 1)), (node(2, 2), node(3, 1))]);
    settle(&mut world, 5_300);

    world.pause(0, 10_000, true);
    world.run_for(10_000);
    settle(&mut world, 8_200);

    assert_eq!(epoch_of(&world, 3).coordinator, node(1, 1));
}

#[test]
fn a_short_pause_changes_nothing() {
    let mut world = at_rest(&[node(1, 1), node(2, 1), node(3, 1)]);

    for at in 0..3 {
        world.pause(at, 1_900, true);
        world.run_for(20_000);
        settle(&mut world, 0);
    }

    assert_eq!(world.watchdog.epochs.len(), 1);
}

#[test]
fn a_node_without_its_file_outlives_its_former_life() {
    let mut world = at_rest(&[node(1, 1), node(2, 1)]);
    for _ in 0..3 {
        world.crash(0);
        world.run_for(1_000);
        world.start(0);
        world.run_for(20_000);
    }
    let before = world.processes[0].disk.unwrap().incarnation;

    world.crash(0);
    world.processes[0].disk = None;
    world.start(0);
    settle(&mut world, 6_500);

    let after = world.processes[0].disk.unwrap().incarnation;
    assert!(before < after, "{before} < {after}");
    assert_eq!(epoch_of(&world, 1).life.incarnation, after);
}

#[test]
fn of_two_processes_with_one_id_the_lower_instance_stays() {
    for seed in 0..20 {
        let ids = [node(1, 1), node(2, 1), node(3, 1)];
        let mut world = World::new(seed, &ids, Rules::default());
        (0..3).for_each(|at| world.start(at));
        world.run_for(10_000);

        let copy = world.add(node(2, 1));
        world.processes[copy].disk = world.processes[1].disk;
        world.start(copy);
        settle(&mut world, 20_000);

        let withdrawn: Vec<usize> = (0..4).filter(|at| world.processes[*at].withdrawn).collect();
        assert_eq!(withdrawn.len(), 1, "seed {seed}: {withdrawn:?} withdrew");
        let other = if withdrawn == [1] { copy } else { 1 };
        let instance = |at: usize| world.processes[at].instance;
        assert!(withdrawn == [1] || withdrawn == [copy]);
        assert!(instance(other) < instance(withdrawn[0]), "seed {seed}");
    }
}

#[test]
fn a_node_whose_disk_hangs_is_gone_for_the_others_and_comes_back() {
    let mut world = at_rest(&[node(1, 1), node(2, 1), node(3, 1)]);

    // The next thing that it must write is the victory after a loss.
    world.processes[0].disk_hangs = true;
    world.crash(2);
    world.run_for(10_000);
    assert_eq!(epoch_of(&world, 1).coordinator, node(2, 1));
    assert_eq!(world.watchdog.epochs.len(), 2, "what is not on disk is told to nobody");

    world.release_disk(0);
    settle(&mut world, 8_200);
    assert_eq!(epoch_of(&world, 1).coordinator, node(1, 1));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let trace = |seed| {
        let ids = [node(1, 1), node(1, 2), node(2, 1)];
        let mut world = World::new(seed, &ids, Rules::default());
        (0..3).for_each(|at| world.start(at));
        world.run_for(30_000);
        world.watchdog.trace
    };

    assert_eq!(trace(1), trace(1));
    assert_ne!(trace(1), trace(2));
}

#[test]
fn a_cold_site_keeps_over_healing_what_its_island_gave_it_and_gets_nothing_else_by_it() {
    let ids = [node(1, 1), node(2, 1), node(9, 1)];
    let mut world = World::new(7, &ids, Rules::default());
    world.cold = [(Segment(9), Cold::default())].into();
    (0..3).for_each(|at| world.start(at));
    settle(&mut world, 6_500);
    let shares = |world: &World, at: usize| world.processes[at].shares.clone();
    assert_eq!(shares(&world, 2), [Segment(1), Segment(2)].into());

    cut(&mut world, &[0], &[1, 2]);
    settle(&mut world, 3_500);
    assert_eq!(shares(&world, 0), [Segment(1)].into());
    assert_eq!(shares(&world, 2), [Segment(2), Segment(9)].into(), "1 is away");
    world.cuts.clear();
    settle(&mut world, 8_200);
    assert_eq!(shares(&world, 0), [Segment(1), Segment(2), Segment(9)].into(), "until all serve");
    settle(&mut world, 8_000);
    assert_eq!(shares(&world, 2), [Segment(1), Segment(2)].into());

    cut(&mut world, &[0, 1], &[2]);
    settle(&mut world, 3_500);
    assert_eq!(shares(&world, 2), [Segment(9)].into(), "alone");
}

/// Starts a cluster and lets it come to rest.
fn at_rest(ids: &[NodeId]) -> World {
    let mut world = World::new(7, ids, Rules::default());
    (0..ids.len()).for_each(|at| world.start(at));
    settle(&mut world, 6_500);
    world
}

/// Runs for so long, after which the cluster must be at rest.
fn settle(world: &mut World, span: Ms) {
    world.run_for(span);
    assert_eq!(unrest(world), None, "at {} ms", world.now);
    assert!(world.watchdog.faults.is_empty(), "{:?}", world.watchdog.faults);
}

/// Returns the epoch that a process's owner was last told.
fn epoch_of(world: &World, at: usize) -> Epoch {
    world.processes[at].role.as_ref().map(Role::mandate).unwrap().epoch
}

fn cut(world: &mut World, some: &[usize], others: &[usize]) {
    for &a in some {
        for &b in others {
            let (a, b) = (world.processes[a].id, world.processes[b].id);
            world.cuts.insert((a, b));
            world.cuts.insert((b, a));
        }
    }
}

#[test]
fn the_members_of_a_mandate_are_counted_by_segment() {
    let world = at_rest(&[node(1, 1), node(1, 2), node(9, 1)]);

    let mandate = world.processes[1].role.as_ref().map(Role::mandate).unwrap();
    assert_eq!(mandate.members, [node(1, 1), node(1, 2), node(9, 1)].into());
    assert_eq!(mandate.segments(), [Segment(1), Segment(9)].into());
    assert!(mandate.has(Segment(9)) && !mandate.has(Segment(2)));
}
