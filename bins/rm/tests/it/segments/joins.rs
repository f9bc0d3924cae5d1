//! Segments that join a cluster that lives, and that are taken out of it.
//!
//! Who adds one names its nodes in the files of all, has a document applied that names the segment, and
//! starts the nodes: in any order but that no document names whom the files do not. Who takes one out has
//! a document applied that no longer names it, and ends its nodes, in any order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use election::{NodeId, Segment};
use rm::cluster::{Input, Share};

use super::faults;
use super::world::{Dice, Event, Ms, World, nothing};

/// A segment that is to join, or is being taken out.
#[derive(Clone, Debug)]
pub(super) struct Absent {
    /// What a document will say of it.
    share: Share,
    /// Until then its nodes may still run from before.
    ends_at: Ms,
    /// Whether its nodes were told to start.
    starts: bool,
}

/// Takes segments that are to join later out of those that the first document names, or leaves them there.
/// One at the least that is hot is there from the beginning.
pub(super) fn late(
    dice: &mut Dice,
    segments: &mut BTreeMap<Segment, Share>,
) -> BTreeMap<Segment, Absent> {
    let is_hot = |(segment, share): (&Segment, &Share)| share.cold.is_none().then_some(*segment);
    let hot: Vec<Segment> = segments.iter().filter_map(is_hot).collect();
    let stays = dice.pick(&hot);
    let mut late = BTreeMap::new();
    for (segment, share) in segments.clone() {
        if segment != stays && dice.hits(40) {
            if dice.hits(60) {
                segments.remove(&segment);
            }
            late.insert(segment, Absent { share, ends_at: 0, starts: false });
        }
    }
    late
}

/// Does something of what makes a segment join, or all of it.
pub(super) fn join(world: &mut World, at: usize) {
    let now = world.now;
    let waits = |(segment, absent): (&Segment, &Absent)| (absent.ends_at < now).then_some(*segment);
    let waiting: Vec<Segment> = world.absent.iter().filter_map(waits).collect();
    if waiting.is_empty() {
        return;
    }
    let segment = world.dice.pick(&waiting);
    let absent = world.absent[&segment].clone();
    let named = world.plan.segments.contains_key(&segment);
    let all = world.dice.hits(60);
    let starts = !absent.starts && (all || named || world.dice.hits(50));
    let nodes: Vec<usize> =
        (0..world.nodes.len()).filter(|it| world.nodes[*it].id.segment == segment).collect();
    let ids = nodes.iter().map(|it| world.nodes[*it].id);
    if !world.known.contains(&world.nodes[nodes[0]].id) {
        world.known.extend(ids.collect::<Vec<_>>());
        tell_peers(world);
    }
    if !named && (all || !starts) {
        let segments = &world.plan.segments;
        let with = [(segment, absent.share.clone())].into_iter();
        let segments = segments.clone().into_iter().chain(with).collect();
        faults::change_among(world, at, segments);
    }
    if starts {
        for node in nodes {
            let due = now + world.dice.range(600, 8_000);
            world.post(due, Event::Start { node });
            world.busy_until = world.busy_until.max(due);
        }
    }
    let starts = starts || absent.starts;
    if starts && world.plan.segments.contains_key(&segment) {
        world.absent.remove(&segment);
    } else {
        world.absent.insert(segment, Absent { starts, ..absent });
    }
}

/// Takes a segment out, where another that is hot stays.
pub(super) fn remove(world: &mut World, working: &[usize]) {
    let segments = &world.plan.segments;
    let stays = |(segment, share): (&Segment, &Share)| {
        share.cold.is_none() && !world.absent.contains_key(segment)
    };
    let hot: BTreeSet<Segment> =
        segments.iter().filter(|it| stays(*it)).map(|(segment, _)| *segment).collect();
    let may = |segment: &Segment| {
        !world.absent.contains_key(segment) && hot.iter().any(|other| other != segment)
    };
    let choice: Vec<Segment> = segments.keys().copied().filter(may).collect();
    if choice.is_empty() {
        return;
    }
    let segment = world.dice.pick(&choice);
    let others = |at: &usize| world.nodes[*at].id.segment != segment;
    let others: Vec<usize> = working.iter().copied().filter(others).collect();
    if others.is_empty() {
        return;
    }
    let at = world.dice.pick(&others);
    let (drains, forgotten) = (world.dice.hits(50), world.dice.hits(50));
    let latest = if world.dice.hits(30) { 1 } else { 15_000 };
    let mut ends_at = world.now;
    for node in 0..world.nodes.len() {
        if world.nodes[node].id.segment != segment {
            continue;
        }
        if drains && world.nodes[node].works() {
            faults::leave(world, node);
        }
        let due = world.now + world.dice.range(0, latest);
        world.post(due, Event::Stop { node, forgotten });
        ends_at = ends_at.max(due);
    }
    world.busy_until = world.busy_until.max(ends_at);
    let mut segments = world.plan.segments.clone();
    let share = segments.remove(&segment).unwrap();
    world.absent.insert(segment, Absent { share, ends_at, starts: false });
    faults::change_among(world, at, segments);
}

/// All that run hear soon whom the files name.
fn tell_peers(world: &mut World) {
    for node in 0..world.nodes.len() {
        let due = world.now + world.dice.range(10, 500);
        world.post(due, Event::Peers { node });
        world.busy_until = world.busy_until.max(due);
    }
}

impl World {
    /// Returns whom the file of a node names.
    pub(super) fn peers(&self, id: NodeId) -> BTreeSet<NodeId> {
        self.known.iter().copied().filter(|peer| *peer != id).collect()
    }

    /// Whether two nodes have a link.
    pub(super) fn are_peers(&self, a: usize, b: usize) -> bool {
        let has = |from: usize, to: usize| self.nodes[from].peers.contains(&self.nodes[to].id);
        !self.joins() || has(a, b) && has(b, a)
    }

    pub(super) fn meet(&mut self, at: usize) {
        let peers = self.peers(self.nodes[at].id);
        self.nodes[at].peers.clone_from(&peers);
        self.feed(at, Input::Peers(peers));
        self.topology();
    }

    /// A node is to run from now on; at its first start it has the newest document, an old one or none.
    pub(super) fn enrol(&mut self, at: usize) {
        if std::mem::replace(&mut self.nodes[at].enrolled, true) {
            return;
        }
        if self.nodes[at].life == 0 {
            match self.dice.range(0, 4) {
                0 => {}
                1 => self.nodes[at].plan = Arc::clone(&self.plan),
                _ => self.nodes[at].plan = Arc::new(nothing()),
            }
        }
        self.start(at);
    }

    /// A node is to run no more.
    pub(super) fn stop(&mut self, at: usize, forgotten: bool) {
        if self.nodes[at].cluster.is_some() {
            self.crash(at);
        }
        self.nodes[at].enrolled = false;
        let segment = self.nodes[at].id.segment;
        if forgotten && !self.nodes.iter().any(|node| node.enrolled && node.id.segment == segment) {
            self.known.retain(|id| id.segment != segment);
            tell_peers(self);
        }
    }
}
