//! What holds again some time after the last fault.

use std::collections::{BTreeMap, BTreeSet};

use election::{NodeId, Segment, Speaker};
use quota_split::Counter;
use rm::cluster::{ClusterView, Plan};

use super::super::world::{LIMITED, Live, World};
use super::{cells, limits};

/// Checks a world that has been quiet for long enough.
pub(in super::super) fn rest(world: &mut World) -> Result<(), String> {
    if let Some(fault) = &world.judge.fault {
        return Err(fault.clone());
    }
    world.judge.halves.look(world.now, &world.nodes);
    let islands: Vec<Vec<usize>> = world.islands();
    let mut well = islands.len() == 1;
    for island in islands.iter().filter(|island| world.nodes[island[0]].works()) {
        well &= rest_in(world, island).map_err(|text| {
            let ids: Vec<String> =
                island.iter().map(|at| world.nodes[*at].id.to_string()).collect();
            format!("at {} ms in {ids:?}: {text}", world.now)
        })?;
    }
    if well {
        world.judge.settle(&world.nodes);
    }
    Ok(())
}

/// Returns whether a hot segment takes no calls here: it is away, or who speaks for it was told to leave,
/// and speaks all the same since nobody else could.
fn hot_away(world: &World, plan: &Plan, here: &BTreeSet<Segment>, view: &ClusterView) -> bool {
    let leaves = |speaker: NodeId| {
        let node = world.nodes.iter().find(|node| node.id == speaker);
        node.is_some_and(|node| node.leaves_in == Some(node.life))
    };
    let serves = |segment: &Segment| {
        let speaker = view.segments[segment].speaker;
        here.contains(segment) && !speaker.is_some_and(|speaker| leaves(speaker.node))
    };
    let mut hot = plan.segments.iter().filter(|(_, told)| told.cold.is_none());
    hot.any(|(segment, _)| !serves(segment))
}

/// In every island one node coordinates, of its lowest segment and all its segments; everybody follows it,
/// and knows who speaks for each (I7 without its shares).
pub(in super::super) fn all_follow_one(world: &World) -> Result<(), String> {
    let islands = world.islands();
    for island in islands.iter().filter(|island| world.nodes[island[0]].works()) {
        let views = views(world, island);
        follow_one(&views).map_err(|text| {
            let ids: Vec<String> = views.iter().map(|(_, view)| view.node.to_string()).collect();
            format!("at {} ms in {ids:?}: {text}", world.now)
        })?;
    }
    Ok(())
}

fn views(world: &World, island: &[usize]) -> Vec<(usize, ClusterView)> {
    let view = |at: &usize| Some((*at, world.nodes[*at].cluster.as_ref()?.view()));
    island.iter().filter_map(view).collect()
}

/// Returns who is followed, and the segments of the island.
fn follow_one(views: &[(usize, ClusterView)]) -> Result<(NodeId, BTreeSet<Segment>), String> {
    let segments: BTreeSet<Segment> = views.iter().map(|(_, view)| view.node.segment).collect();
    let (_, first) = &views[0];
    let mandate = first.mandate.as_ref().ok_or("nobody leads")?;
    if Some(&mandate.epoch.coordinator.segment) != segments.first() {
        return Err(format!("{} leads", mandate.epoch.coordinator));
    }
    if mandate.segments() != segments {
        return Err(format!("the members are {:?}", mandate.members));
    }
    for (_, view) in views {
        if view.mandate.as_ref() != Some(mandate) {
            return Err(format!("{} follows {:?}, not {mandate:?}", view.node, view.mandate));
        }
        let (seen, others) = (speakers(view), speakers(first));
        if seen != others {
            return Err(format!("{} hears {seen:?}, not {others:?}", view.node));
        }
    }
    Ok((mandate.epoch.coordinator, segments))
}

fn speakers(view: &ClusterView) -> Vec<Option<Speaker>> {
    view.segments.values().map(|segment| segment.speaker).collect()
}

/// Returns whether nothing passes its limit.
fn rest_in(world: &World, island: &[usize]) -> Result<bool, String> {
    let views = views(world, island);
    let (coordinator, segments) = follow_one(&views)?;
    let (_, first) = &views[0];
    if let Some((_, view)) = views.iter().find(|(_, view)| view.segments != first.segments) {
        let (seen, others) = (&view.segments, &first.segments);
        return Err(format!("{} sees {seen:?}, not {others:?}", view.node));
    }
    let plans = island.iter().map(|at| &world.nodes[*at].plan);
    let plan = plans.max_by_key(|plan| plan.division.version()).ok_or("nobody is here")?;
    if plan.segments.is_empty() {
        // Nothing is divided without a document.
        return Ok(false);
    }
    let hot_away = hot_away(world, plan, &segments, first);
    let deaf = world.judge.halves.deaf(world, island);
    let mut sums = [0; 5];
    let mut all = BTreeMap::new();
    let mut well = true;
    let named = |segment: &Segment| plan.segments.contains_key(segment);
    let any_named = segments.iter().any(named);
    for &segment in &segments {
        let (at, cells) = counts(world, island, first, segment)?;
        let speaker = world.nodes[at].id;
        let told = world.judge.lines.of(segment);
        // Halves that are torn apart may both count, and one of them is read.
        let apart = world.judge.torn && deaf.contains(&segment);
        if !apart && told != cells.map(|(_, used)| used) {
            return Err(format!("{speaker} counts {cells:?}, told was {told:?}"));
        }
        let is_cold = plan.segments.get(&segment).is_some_and(|share| share.cold.is_some());
        let passive = is_cold && !hot_away;
        for (_, view) in views.iter().filter(|(_, view)| view.node.segment == segment) {
            if view.passive != passive {
                return Err(format!("{}: passive is {}", view.node, view.passive));
            }
        }
        check_counts(world, &deaf, at, &cells)?;
        all.insert(segment, cells);
        for (index, (cap, used)) in cells.into_iter().enumerate() {
            if passive && 0 < cap {
                return Err(format!("{segment} is passive and has {cap} of {}", LIMITED[index]));
            }
            if any_named && !named(&segment) && 0 < cap {
                let name = LIMITED[index];
                return Err(format!("{segment} is in no document and has {cap} of {name}"));
            }
            sums[index] += cap;
            well &= used <= cap;
        }
    }
    check_held(world, &deaf, coordinator, &all)?;
    let is_whole = plan.segments.keys().all(|segment| segments.contains(segment));
    let limits = limits(plan);
    for (index, name) in LIMITED.iter().enumerate() {
        let over = limits[index] < sums[index];
        // What is lent may lie in the pool.
        let whole = name.starts_with("full") || is_whole && *name != "lent";
        let leaks = sums[index] < limits[index] && whole;
        // What was too much has drained by now.
        if over && (well || world.judge.is_strict()) || well && leaks {
            return Err(format!("{} of {} are given out of {name}", sums[index], limits[index]));
        }
        well &= !over;
    }
    Ok(well)
}

/// Returns who counts the calls of a segment, and what it may have and has.
fn counts(
    world: &World,
    island: &[usize],
    view: &ClusterView,
    segment: Segment,
) -> Result<(usize, [(u32, u32); 5]), String> {
    let of = |at: usize| world.nodes[at].cluster.as_ref().and_then(cells);
    let Some(told) = view.segments.get(&segment) else {
        // No document names it, and nobody shows who speaks for it.
        let mut here = island.iter().filter(|at| world.nodes[**at].id.segment == segment);
        let counts = here.find_map(|at| Some((*at, of(*at)?)));
        return counts.ok_or_else(|| format!("nobody counts for {segment}"));
    };
    let speaker = told.speaker.ok_or_else(|| format!("nobody speaks for {segment}"))?.node;
    let at = island.iter().copied().find(|at| world.nodes[*at].id == speaker);
    let at = at.ok_or_else(|| format!("{speaker} speaks and is not here"))?;
    Ok((at, of(at).ok_or_else(|| format!("{speaker} does not count"))?))
}

/// The coordinator counts as held what is held, and not a call more: no part is lost between them.
fn check_held(
    world: &World,
    deaf: &[Segment],
    coordinator: NodeId,
    cells: &BTreeMap<Segment, [(u32, u32); 5]>,
) -> Result<(), String> {
    let node = world.nodes.iter().find(|node| node.id == coordinator);
    let Some(cluster) = node.and_then(|node| node.cluster.as_ref()) else { return Ok(()) };
    for tenant in cluster.tenants_from(0) {
        let Some(index) = LIMITED.iter().position(|name| *name == tenant.name) else { continue };
        let Some(calls) = tenant.counters.iter().find(|it| it.counter == Counter::Calls) else {
            continue;
        };
        // What drained below a lowered limit is only known where both halves of a segment talk (§2.6).
        let drains = |(segment, held): (&Segment, &u32)| match cells.get(segment) {
            Some(cells) if deaf.contains(segment) => cells[index].0.min(*held),
            Some(_) | None => *held,
        };
        let sum: u32 = calls.held.iter().map(drains).sum();
        if calls.limit < Some(sum) && world.judge.is_strict() {
            return Err(format!("{sum} of {:?} of {} are held", calls.limit, tenant.name));
        }
        for (segment, cells) in cells {
            let ((cap, used), held) = (cells[index], calls.held.get(segment).copied());
            // A call that passes every limit is held and was never granted.
            if held.is_none_or(|held| held < cap || cap.max(used) < held) {
                return Err(format!(
                    "{segment} has {used} of {cap} of {}, {held:?} are counted as held",
                    tenant.name
                ));
            }
        }
    }
    Ok(())
}

/// Counters equal the calls that live, where both halves of a segment talk.
fn check_counts(
    world: &World,
    deaf: &[Segment],
    at: usize,
    cells: &[(u32, u32); 5],
) -> Result<(), String> {
    let node = &world.nodes[at];
    let together = !deaf.contains(&node.id.segment);
    let segment = |live: &&Live| world.nodes[live.owner].id.segment == node.id.segment;
    let live = world.calls.count(world.calls.iter().filter(segment));
    for (index, (_, used)) in cells.iter().enumerate() {
        if together && *used != live[index] {
            let name = LIMITED[index];
            return Err(format!("{} counts {used} of {name}, {} live", node.id, live[index]));
        }
    }
    Ok(())
}
