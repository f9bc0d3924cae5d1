//! Halves of a segment that do not talk to each other.

use std::collections::BTreeMap;

use election::Segment;

use super::world::{Ms, Node, World};

/// When each node was first seen without its other half, by the lives of the two.
#[derive(Debug, Default)]
pub(super) struct Halves(BTreeMap<[(usize, u64); 2], Ms>);

/// For so long calls of a dead half may count that nobody takes over: until the next audit, and the report
/// of it.
const MOURNS: Ms = 62_000;

impl Halves {
    /// Notes who has lost its other half since the last look.
    pub(super) fn look(&mut self, now: Ms, nodes: &[Node]) {
        let lost = nodes.iter().filter_map(|node| {
            let partner = node.partner.filter(|partner| nodes[*partner].cluster.is_none())?;
            node.cluster.as_ref().map(|_| lives(nodes, node, partner))
        });
        let before = std::mem::take(&mut self.0);
        self.0 = lost.map(|lives| (lives, before.get(&lives).copied().unwrap_or(now))).collect();
    }

    /// Returns the segments of an island whose halves do not talk: who speaks does not hear which calls of the
    /// other end.
    pub(super) fn deaf(&self, world: &World, island: &[usize]) -> Vec<Segment> {
        let is_deaf = |node: &Node| match node.partner {
            Some(partner) if world.nodes[partner].cluster.is_some() => {
                !island.contains(&partner) || node.connection.is_none()
            }
            Some(partner) => {
                let since = self.0.get(&lives(&world.nodes, node, partner));
                since.is_none_or(|since| world.now < since + MOURNS)
            }
            None => false,
        };
        let nodes = island.iter().map(|at| &world.nodes[*at]);
        nodes.filter(|node| is_deaf(node)).map(|node| node.id.segment).collect()
    }
}

fn lives(nodes: &[Node], node: &Node, partner: usize) -> [(usize, u64); 2] {
    let other = &nodes[partner];
    [(other.partner.unwrap_or(partner), node.life), (partner, other.life)]
}
