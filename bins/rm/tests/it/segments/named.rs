//! Segments that no document names, or no longer.

use std::sync::Arc;

use election::{NodeId, Segment};

use super::judge::{cells, rest};
use super::world::{World, plan, share};

#[test]
fn a_segment_that_a_document_takes_out_gives_its_part_back_before_others_have_it() {
    for seed in 0..10 {
        let ids = [1, 2, 3].map(|segment| NodeId { segment: Segment(segment), rm: 1 });
        let segments = [1, 2, 3].map(|id| (Segment(id), share(100, false)));
        let limits = [30, 12, 12, 12, 12];
        let mut world = World::new(seed, &ids, Arc::new(plan(1, limits, segments.clone().into())));
        for at in 0..3 {
            world.start(at);
        }
        world.run_for(25_000);

        let left = segments.into_iter().take(2).collect();
        world.change(0, plan(2, limits, left));
        world.run_for(30_000);

        assert_eq!(world.judge.fault, None, "seed {seed}");
        assert_eq!(caps(&world, 2), Some([0; 5]), "seed {seed}");
        assert_eq!([0, 1].map(|at| caps(&world, at).map(|caps| caps[0])), [Some(15); 2]);
        (world.arrivals, world.hangs) = (false, false);
        world.run_for(2_000);
        rest(&mut world).unwrap_or_else(|text| panic!("seed {seed}: {text}"));
    }
}

/// Files name its node before a document does.
#[test]
fn a_cold_segment_rests_while_only_one_is_away_that_no_document_names() {
    let ids = [1, 2, 3, 4].map(|segment| NodeId { segment: Segment(segment), rm: 1 });
    let segments = [(1, false), (2, false), (4, true)];
    let segments = segments.map(|(id, cold)| (Segment(id), share(100, cold))).into();
    let mut world = World::new(0, &ids, Arc::new(plan(1, [30, 12, 12, 12, 12], segments)));
    for at in [0, 1, 3] {
        world.start(at);
    }
    world.run_for(40_000);

    assert!(world.nodes[3].cluster.as_ref().unwrap().view().passive);
    assert_eq!(caps(&world, 3), Some([0; 5]));
}

fn caps(world: &World, at: usize) -> Option<[u32; 5]> {
    let cells = cells(world.nodes[at].cluster.as_ref()?)?;
    Some(cells.map(|(cap, _)| cap))
}
