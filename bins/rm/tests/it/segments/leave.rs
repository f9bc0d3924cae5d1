//! A speaker that is told to leave.

use std::sync::Arc;

use election::{Cold, NodeId, Segment};
use rm::cluster::{Cluster, Input};

use super::judge::{cells, rest};
use super::world::{World, plan, share};

#[test]
fn a_speaker_that_leaves_hands_its_part_over_and_no_counter_and_no_call_changes() {
    for seed in 0..20 {
        let ids = [(1, 1), (1, 2), (2, 1)];
        let ids = ids.map(|(segment, rm)| NodeId { segment: Segment(segment), rm });
        let segments = [(Segment(1), share(200, false)), (Segment(2), share(100, false))].into();
        let mut world = World::new(seed, &ids, Arc::new(plan(1, [30, 12, 12, 12, 12], segments)));
        for at in 0..3 {
            world.start(at);
        }
        world.run_for(25_000);
        // No call comes or goes while the counters are compared.
        (world.arrivals, world.hangs) = (false, false);
        world.run_for(1_000);
        let before = of(&world, 0).unwrap();
        (world.arrivals, world.hangs) = (true, true);
        world.run_for(300);
        let unheard = world.judge.unheard;

        world.feed(0, Input::Leave);
        (world.arrivals, world.hangs) = (false, false);
        world.run_for(400);
        assert_eq!(of(&world, 0), None, "seed {seed}: it speaks no more");
        let after = of(&world, 1).unwrap_or_else(|| panic!("seed {seed}: nobody speaks"));
        let caps = |cells: [(u32, u32); 5]| cells.map(|(cap, _)| cap);
        assert_eq!(caps(after)[..4], caps(before)[..4], "seed {seed}: what is lent may move");
        (world.arrivals, world.hangs) = (true, true);
        world.run_for(3_000);
        assert_eq!(world.judge.unheard, unheard, "seed {seed}: calls were refused");

        world.crash(0);
        world.run_for(30_000);
        (world.arrivals, world.hangs) = (false, false);
        world.run_for(2_000);
        rest(&mut world).unwrap_or_else(|text| panic!("seed {seed}: {text}"));
        assert!(of(&world, 1).is_some());
    }
}

/// Its second life speaks in the same epoch, with the number of its first.
#[test]
fn a_segment_that_left_and_starts_anew_lets_its_stand_in_rest() {
    for seed in 0..10 {
        let ids = [1, 2, 3].map(|segment| NodeId { segment: Segment(segment), rm: 1 });
        let segments = [(1, false), (2, false), (3, true)];
        let segments = segments.map(|(id, cold)| (Segment(id), share(100, cold))).into();
        let mut world = World::new(seed, &ids, Arc::new(plan(1, [30, 12, 12, 12, 12], segments)));
        for at in 0..3 {
            world.start(at);
        }
        world.run_for(25_000);
        let epoch = |world: &World| {
            let view = world.nodes[0].cluster.as_ref()?.view();
            view.mandate.map(|mandate| mandate.epoch)
        };
        let before = epoch(&world);

        world.feed(1, Input::Leave);
        world.run_for(1_000);
        world.crash(1);
        world.run_for(500);
        world.start(1);
        world.run_for(30_000);

        assert_eq!(epoch(&world), before, "seed {seed}");
        (world.arrivals, world.hangs) = (false, false);
        world.run_for(2_000);
        rest(&mut world).unwrap_or_else(|text| panic!("seed {seed}: {text}"));
    }
}

/// No division ever gives it a weight, so that no new coordinator would ask.
#[test]
fn a_segment_without_a_weight_that_leaves_has_a_stand_in_whoever_coordinates() {
    for seed in 0..10 {
        let ids = [1, 2, 3].map(|segment| NodeId { segment: Segment(segment), rm: 1 });
        let segments = [(1, 100, false), (2, 0, false), (3, 100, true)];
        let segments = segments.map(|(id, weight, cold)| (Segment(id), share(weight, cold))).into();
        let mut world = World::new(seed, &ids, Arc::new(plan(1, [30, 12, 12, 12, 12], segments)));
        for at in 0..3 {
            world.start(at);
        }
        world.run_for(25_000);
        world.feed(1, Input::Leave);
        world.nodes[1].leaves_in = Some(world.nodes[1].life);
        world.run_for(3_000);
        assert!(!rests(&world, 2), "seed {seed}");

        world.crash(0);
        world.run_for(10_000);
        world.start(0);
        world.run_for(40_000);

        assert!(!rests(&world, 2), "seed {seed}");
        (world.arrivals, world.hangs) = (false, false);
        world.run_for(2_000);
        rest(&mut world).unwrap_or_else(|text| panic!("seed {seed}: {text}"));
    }
}

/// What one with a weight left falls to those that take calls.
#[test]
fn a_segment_that_rests_gets_no_part_where_no_other_has_a_weight() {
    for seed in 0..10 {
        let ids = [1, 2, 3, 4].map(|segment| NodeId { segment: Segment(segment), rm: 1 });
        let mut segments = [(1, 100, false), (2, 0, false), (3, 0, false), (4, 100, true)]
            .map(|(id, weight, cold)| (Segment(id), share(weight, cold)));
        let covers = Some([Segment(2)].into());
        segments[3].1.cold = Some(Cold { covers, witness: false });
        let plan = plan(1, [30, 12, 12, 12, 12], segments.into());
        let mut world = World::new(seed, &ids, Arc::new(plan));
        for at in 0..4 {
            world.start(at);
        }
        world.run_for(25_000);
        world.crash(0);
        world.run_for(20_000);

        assert!(rests(&world, 3), "seed {seed}");
        let caps = |at| of(&world, at).map(|cells| cells.map(|(cap, _)| cap));
        assert_eq!(caps(3), Some([0; 5]), "seed {seed}");
        let halves = [1, 2].map(|at| caps(at).map(|caps| caps[0]));
        assert_eq!(halves, [Some(15); 2], "seed {seed}");
    }
}

fn rests(world: &World, at: usize) -> bool {
    world.nodes[at].cluster.as_ref().is_some_and(|cluster| cluster.view().passive)
}

fn of(world: &World, at: usize) -> Option<[(u32, u32); 5]> {
    world.nodes[at].cluster.as_ref().and_then(|cluster: &Cluster| cells(cluster))
}
