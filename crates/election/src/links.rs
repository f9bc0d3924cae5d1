//! What every node says about itself, and which of them form one island with this one.

use std::collections::{BTreeMap, BTreeSet};

use crate::message::{LinkState, NODES_MAX};
use crate::rules::{Rule, Rules};
use crate::{Mandate, NodeId};

/// The newest link state of each node, this one's included.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Links {
    own: NodeId,
    states: BTreeMap<NodeId, LinkState>,
    component: BTreeSet<NodeId>,
    digest: u64,
    rules: Rules,
}

impl Links {
    pub(crate) fn new(own: LinkState, rules: Rules) -> Self {
        let id = own.origin;
        let states = BTreeMap::from([(id, own)]);
        let mut links = Self { own: id, states, component: BTreeSet::from([id]), digest: 0, rules };
        links.changed();
        links
    }

    /// Takes in what another node says; returns whether that was news.
    pub(crate) fn learn(&mut self, state: LinkState) -> bool {
        let origin = state.origin;
        match self.states.get(&origin) {
            Some(known) if (state.life, state.version) <= (known.life, known.version) => {
                return false;
            }
            Some(_) => {}
            None if self.states.len() < NODES_MAX => {}
            None => {
                // Nodes that were taken out of the configuration make room for new ones.
                let gone = self.states.keys().find(|node| !self.component.contains(node)).copied();
                let Some(gone) = gone else { return false };
                self.states.remove(&gone);
            }
        }
        self.states.insert(origin, state);
        self.changed();
        true
    }

    /// Replaces what this node says about itself; returns whether that changed it.
    pub(crate) fn say(&mut self, mut own: LinkState) -> bool {
        let before = self.own();
        own.version = before.version;
        if *before == own {
            return false;
        }
        own.version += 1;
        self.states.insert(self.own, own);
        self.changed();
        true
    }

    /// Gives what this node says a new version, so that it is told anew.
    pub(crate) fn repeat(&mut self) {
        if let Some(own) = self.states.get_mut(&self.own) {
            own.version += 1;
        }
        self.changed();
    }

    /// Notes a victory, which is newer than the winner's last link state.
    pub(crate) fn note_lead(&mut self, mandate: &Mandate) {
        let Some(state) = self.states.get_mut(&mandate.epoch.coordinator) else { return };
        let leads = state.leads.as_ref().map(|leads| leads.epoch);
        if leads < Some(mandate.epoch) {
            state.leads = Some(mandate.clone());
            state.shares = None;
        }
    }

    pub(crate) fn own(&self) -> &LinkState {
        &self.states[&self.own]
    }

    pub(crate) fn get(&self, node: NodeId) -> Option<&LinkState> {
        self.states.get(&node)
    }

    /// Returns all link states, in the order of their nodes.
    pub(crate) fn all(&self) -> impl Iterator<Item = &LinkState> {
        self.states.values()
    }

    /// Returns the nodes that are connected with this one by links that both ends list.
    pub(crate) fn component(&self) -> &BTreeSet<NodeId> {
        &self.component
    }

    /// Returns the neighbour of this node that is nearest to `to`, over links that both ends list.
    pub(crate) fn next_hop(&self, to: NodeId) -> Option<NodeId> {
        if !self.component.contains(&to) || to == self.own {
            return None;
        }
        // From there back to here: the last step before this node is the first one of the way.
        let mut reached = BTreeSet::from([to]);
        let mut next = std::collections::VecDeque::from([to]);
        while let Some(node) = next.pop_front() {
            if self.own().neighbours.contains(&node) && self.lists(node, self.own) {
                return Some(node);
            }
            let neighbours = self.states.get(&node).map(|state| &state.neighbours);
            for &other in neighbours.into_iter().flatten() {
                if other != self.own && self.lists(other, node) && reached.insert(other) {
                    next.push_back(other);
                }
            }
        }
        None
    }

    /// Returns the nodes of the component that may win and be members.
    pub(crate) fn electable(&self) -> BTreeSet<NodeId> {
        let all = !self.rules.keep(Rule::Electable);
        let is = |node: &NodeId| self.states.get(node).is_some_and(|state| state.electable || all);
        self.component.iter().copied().filter(is).collect()
    }

    /// Returns a number that two nodes share only if they know the same link states.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// Replaces each version by what `number` makes of it, in the same order.
    #[cfg(test)]
    pub(crate) fn renumber(&mut self, number: impl Fn(&LinkState) -> u64) {
        for state in self.states.values_mut() {
            state.version = number(state);
        }
        self.changed();
    }

    fn changed(&mut self) {
        // A sum of spread values does not depend on their order.
        self.digest = self.states.values().fold(0, |sum, state| {
            let node = u64::from(state.origin.segment.0) << 8 | u64::from(state.origin.rm);
            let bytes = state.life.instance.to_le_bytes();
            let half = |at: usize| {
                bytes[at..at + 8].iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
            };
            let parts = [node, state.life.incarnation, half(0), half(8), state.version];
            u64::wrapping_add(sum, parts.into_iter().fold(0, |value, part| mix(value ^ part)))
        });
        self.component = self.reachable();
    }

    fn reachable(&self) -> BTreeSet<NodeId> {
        let mut reached = BTreeSet::from([self.own]);
        if !self.rules.keep(Rule::ToldLinks) {
            reached.extend(self.own().neighbours.iter().copied());
            return reached;
        }
        let mut next = vec![self.own];
        while let Some(node) = next.pop() {
            let Some(state) = self.states.get(&node) else { continue };
            for &other in &state.neighbours {
                if !reached.contains(&other) && self.lists(other, node) {
                    reached.insert(other);
                    next.push(other);
                }
            }
        }
        reached
    }

    fn lists(&self, node: NodeId, other: NodeId) -> bool {
        let state = self.states.get(&node);
        state.is_some_and(|state| {
            state.neighbours.contains(&other) || !self.rules.keep(Rule::TwoWayLinks)
        })
    }
}

/// Spreads the bits of `value`; no two values meet.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
