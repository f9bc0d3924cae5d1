//! A segment whose nodes start anew, one after the other.

use std::sync::Arc;

use election::{NodeId, Segment};

use super::judge::rest;
use super::world::{Kind, World, plan, share};

#[test]
fn a_segment_that_starts_anew_keeps_its_part_and_costs_one_division() {
    for seed in 0..10 {
        let ids = [(1, 1), (2, 1), (2, 2), (3, 1)];
        let ids = ids.map(|(segment, rm)| NodeId { segment: Segment(segment), rm });
        let segments = [1, 2, 3].map(|id| (Segment(id), share(100, false))).into();
        let mut world = World::new(seed, &ids, Arc::new(plan(1, [30, 12, 6, 6, 5], segments)));
        for at in 0..4 {
            world.start(at);
        }
        world.run_for(25_000);
        world.crash(2);
        world.run_for(6_000);
        let epoch = epoch(&world);

        // What lives on the one lives on at the other, which has only just begun to start.
        world.start(2);
        world.run_for(1_000);
        let before = world.judge.divisions();
        world.crash(1);
        world.run_for(1_000);
        world.start(1);
        world.run_for(3_500);
        assert_eq!(world.judge.divisions(), before, "seed {seed}: nobody to ask");
        world.run_for(20_000);

        assert_eq!(world.judge.divisions(), before + 1, "seed {seed}");
        assert_eq!(self::epoch(&world), epoch, "seed {seed}");
        (world.arrivals, world.hangs) = (false, false);
        world.run_for(2_000);
        rest(&mut world).unwrap_or_else(|text| panic!("seed {seed}: {text}"));
    }
}

/// Each of them starts without the other, and neither starts anew.
#[test]
fn halves_that_the_files_name_later_count_together() {
    for seed in 0..5 {
        let ids = [(1, 1), (2, 1), (2, 2)];
        let ids = ids.map(|(segment, rm)| NodeId { segment: Segment(segment), rm });
        let segments = [1, 2].map(|id| (Segment(id), share(100, false))).into();
        let mut world = World::new(seed, &ids, Arc::new(plan(1, [30, 12, 6, 6, 5], segments)));
        world.kind = Kind::Joining;
        world.known.retain(|id| id.segment != Segment(2));
        for at in 0..3 {
            world.start(at);
        }
        world.run_for(20_000);

        world.known.extend(ids);
        for at in 0..3 {
            world.meet(at);
        }
        world.run_for(40_000);
        let unheard = world.judge.unheard;
        world.run_for(5_000);

        assert_eq!(world.judge.unheard, unheard, "seed {seed}: calls were refused");
        (world.arrivals, world.hangs) = (false, false);
        world.run_for(2_000);
        rest(&mut world).unwrap_or_else(|text| panic!("seed {seed}: {text}"));
    }
}

fn epoch(world: &World) -> Option<election::Epoch> {
    let view = world.nodes[0].cluster.as_ref()?.view();
    view.mandate.map(|mandate| mandate.epoch)
}
