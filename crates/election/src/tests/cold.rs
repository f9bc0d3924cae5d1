//! Cold segments, judged by the words of the rule.

use std::collections::{BTreeMap, BTreeSet};

use super::invariants::{islands, unrest_in};
use super::random::Random;
use super::world::World;
use crate::{Cold, Mandate, NodeId, Segment, segments};

/// Makes up to two segments cold, but not all.
pub(super) fn pick(dice: &mut Random, ids: &[NodeId]) -> BTreeMap<Segment, Cold> {
    let mut hot: Vec<Segment> = segments(&ids.iter().copied().collect()).into_iter().collect();
    let mut cold = Vec::new();
    for _ in 0..dice.range(0, 3) {
        if 1 < hot.len() {
            let at = usize::try_from(dice.next() % 16).unwrap() % hot.len();
            cold.push(hot.remove(at));
        }
    }
    let mut covers = || {
        let some: BTreeSet<Segment> = hot.iter().copied().filter(|_| dice.hits(50)).collect();
        Cold { covers: Some(some).filter(|it| !it.is_empty()), witness: dice.hits(40) }
    };
    cold.into_iter().map(|segment| (segment, covers())).collect()
}

/// Returns what is wrong with what a coordinator is about to hand out: a cold segment that nobody had
/// counted in must be needed.
pub(super) fn fault(
    world: &World,
    at: usize,
    mandate: &Mandate,
    shares: &BTreeSet<Segment>,
) -> Option<String> {
    if !shares.is_subset(&mandate.segments()) {
        return Some(format!("{shares:?} get shares of {:?}", mandate.members));
    }
    let hot: Vec<Segment> =
        mandate.segments().into_iter().filter(|it| !world.cold.contains_key(it)).collect();
    if let Some(hot) = hot.iter().find(|hot| !shares.contains(hot)) {
        return Some(format!("{hot} is hot and gets nothing in {}", mandate.epoch));
    }
    if 1 < world.processes[at].promises {
        // It may go on from a decision that was outdone before it was told.
        return None;
    }
    let had = |segment: &Segment| world.processes.iter().any(|it| it.counted.contains(segment));
    let cold = shares.iter().filter(|it| world.cold.contains_key(it)).find(|cold| {
        let needed = needs(world, at, mandate, **cold);
        !had(cold) && !needed
    });
    cold.map(|cold| format!("{cold} is cold and gets a share in {} for no reason", mandate.epoch))
}

/// Returns what is wrong with the cold segments of a network that has been quiet for long enough.
pub(super) fn unrest(world: &World) -> Option<String> {
    islands(world).iter().filter(|island| unrest_in(world, island).is_none()).find_map(|island| {
        let lead = island.iter().copied().find(|at| world.processes[*at].leads())?;
        let process = &world.processes[lead];
        let mandate = process.role.as_ref()?.mandate();
        let other = island.iter().find(|at| world.processes[**at].shares != process.shares);
        if let Some(other) = other {
            let (one, two) = (&process.shares, &world.processes[*other].shares);
            return Some(format!("{one:?} get shares, {two:?} for {}", world.processes[*other].id));
        }
        let members = mandate.segments();
        let cold = world.cold.keys().filter(|cold| members.contains(cold));
        cold.copied().find_map(|cold| {
            let has = process.shares.contains(&cold);
            let covers = covers(world, cold);
            let all =
                covers.iter().all(|hot| members.contains(hot) && !world.draining.contains(hot));
            let needed = needs(world, lead, mandate, cold);
            let wrong = needed && !has || all && !covers.is_empty() && has;
            wrong.then(|| format!("{cold} is cold in {members:?} and has a share: {has}"))
        })
    })
}

/// Whether a hot segment that it covers is away, as far as the coordinator `at` can know.
fn needs(world: &World, at: usize, mandate: &Mandate, cold: Segment) -> bool {
    let members = mandate.segments();
    let witnessed = !world.cold[&cold].witness || members.iter().any(|it| *it != cold);
    covers(world, cold).iter().any(|hot| match members.contains(hot) {
        true => world.watchdog.drains(at, mandate.epoch, *hot),
        false => witnessed,
    })
}

fn covers(world: &World, cold: Segment) -> BTreeSet<Segment> {
    let ids = world.processes.iter().map(|process| process.id).collect();
    let hot = segments(&ids).into_iter().filter(|it| !world.cold.contains_key(it));
    let covers = &world.cold[&cold].covers;
    hot.filter(|hot| covers.as_ref().is_none_or(|covers| covers.contains(hot))).collect()
}
