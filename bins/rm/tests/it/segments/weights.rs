//! Other weights, which one part of a cluster that is cut hears of and the other does not.

use std::sync::Arc;

use election::{NodeId, Segment};
use rm::cluster::Kept;

use super::judge::{cells, rest};
use super::world::{Kind, LIMITED, Ms, World, plan, share};

/// Of the limit under a weight majority.
const LIMIT: u32 = 6;

#[test]
fn weights_that_were_given_to_one_part_give_it_no_second_majority() {
    // Some time before the cut, from none to enough for all to promise and be granted.
    for (seed, before) in (0..24).map(|seed| (seed, seed * 40)) {
        let mut world = begin(seed, before);
        world.run_for(45_000);
        assert_eq!(world.judge.fault, None, "seed {seed}");

        world.heal();
        world.run_for(30_000);
        (world.arrivals, world.hangs) = (false, false);
        world.run_for(6_000);
        rest(&mut world).unwrap_or_else(|text| panic!("seed {seed}: {text}"));
        assert_eq!(caps(&world), [4, 1, 1], "seed {seed}: all have them now");
    }
}

#[test]
fn the_part_that_had_the_majority_keeps_it_whatever_the_other_is_given() {
    let mut world = begin(1, 0);
    world.run_for(45_000);
    assert_eq!(caps(&world), [0, 3, 3]);
}

#[test]
fn both_nodes_of_a_segment_keep_by_which_weights_it_tells_majorities() {
    let ids = [(1, 1), (1, 2), (2, 1)];
    let ids = ids.map(|(segment, rm)| NodeId { segment: Segment(segment), rm });
    let weights = |first| [(1, first), (2, 100)].map(|(id, it)| (Segment(id), share(it, false)));
    let mut world = World::new(1, &ids, Arc::new(plan(1, [30; 5], weights(100).into())));
    for at in 0..3 {
        world.start(at);
    }
    world.run_for(25_000);
    world.change(0, plan(2, [30; 5], weights(400).into()));
    world.run_for(12_000);

    for at in 0..2 {
        let kept: Kept =
            driver::codec::decode(&world.nodes[at].disk.as_ref().unwrap()[2..]).unwrap();
        assert_eq!(kept.bases.weights(), [[(1, 400), (2, 100)]], "{}", world.nodes[at].id);
    }
}

/// Three segments, of which the first gets most of the weight so long before it is cut off.
fn begin(seed: u64, before: Ms) -> World {
    let ids = [1, 2, 3].map(|segment| NodeId { segment: Segment(segment), rm: 1 });
    let weights = |first| {
        [(1, first), (2, 100), (3, 100)].map(|(id, weight)| (Segment(id), share(weight, false)))
    };
    let limits = LIMITED.map(|name| if name == "majority" { LIMIT } else { 30 });
    let mut world = World::new(seed, &ids, Arc::new(plan(1, limits, weights(100).into())));
    world.kind = Kind::Wide;
    for at in 0..3 {
        world.start(at);
    }
    world.run_for(25_000);
    if before == 0 {
        cut_off(&mut world);
        world.change(0, plan(2, limits, weights(400).into()));
    } else {
        world.change(0, plan(2, limits, weights(400).into()));
        world.run_for(before);
        cut_off(&mut world);
    }
    world
}

fn cut_off(world: &mut World) {
    for other in 1..3 {
        world.cut(0, other);
        world.cut(other, 0);
    }
    world.topology();
}

/// Returns what each segment may have under a weight majority.
fn caps(world: &World) -> Vec<u32> {
    let index = LIMITED.iter().position(|name| *name == "majority").unwrap();
    let cap = |at: usize| cells(world.nodes[at].cluster.as_ref().unwrap()).unwrap()[index].0;
    (0..3).map(cap).collect()
}
