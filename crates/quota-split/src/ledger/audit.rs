//! What operators see of a ledger, and how it is set right.

use super::{Call, Counter, Ledger};
use crate::{NodeId, Tree};

/// One counter as an operator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// The limit over all segments.
    pub limit: Option<u32>,
    /// The part of it that this segment has.
    pub share: Option<u32>,
    /// How many calls count here now.
    pub used: u32,
    /// How many the others were last known to have.
    pub elsewhere: Option<u32>,
}

/// A counter that an audit set right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Drift {
    /// Where it is.
    pub node: NodeId,
    /// Which one.
    pub counter: Counter,
    /// What it said.
    pub was: u32,
    /// What the live calls say.
    pub is: u32,
}

impl Ledger {
    /// Shows one counter.
    ///
    /// # Panics
    ///
    /// Panics when `node` comes from a larger tree.
    pub fn view(&self, node: NodeId, counter: Counter) -> View {
        let cell = self.nodes[node.index()].cells[counter.index()];
        let limit = self.limits[node.index()][counter.index()];
        let elsewhere = self.elsewhere[node.index()][counter.index()];
        View { limit, share: limit.map(|_| cell.share), used: cell.used, elsewhere }
    }

    /// Returns the most calls that a node had at a time, and how many it refused.
    ///
    /// # Panics
    ///
    /// Panics when `node` comes from a larger tree.
    pub fn peak_and_refused(&self, node: NodeId) -> (u32, u32) {
        let state = &self.nodes[node.index()];
        (state.peak, state.refused)
    }

    /// Sets one counter by hand and returns what it was. An [`audit`](Self::audit) does better.
    ///
    /// # Panics
    ///
    /// Panics when `node` comes from a larger tree.
    pub fn repair(&mut self, node: NodeId, counter: Counter, used: u32) -> u32 {
        let cell = &mut self.nodes[node.index()].cells[counter.index()];
        std::mem::replace(&mut cell.used, used)
    }

    /// Counts anew from the calls that live, and returns what was wrong. A call given twice counts
    /// once.
    ///
    /// # Panics
    ///
    /// Panics when a call's node comes from a larger tree.
    pub fn audit(&mut self, live: impl IntoIterator<Item = Call>) -> Vec<Drift> {
        let before: Vec<[u32; 3]> =
            self.nodes.iter().map(|state| state.cells.map(|cell| cell.used)).collect();
        for cell in self.nodes.iter_mut().flat_map(|state| &mut state.cells) {
            cell.used = 0;
        }
        self.calls.clear();
        self.free.clear();
        self.places.0.clear();
        for call in live {
            if !self.places.0.contains_key(&call.id) {
                self.places.0.insert(call.id, super::narrow(self.calls.len()));
                self.calls.push(Some(call));
                super::count(&mut self.nodes, call);
            }
        }
        let mut drifts = Vec::new();
        for (node, was) in (0..).map(NodeId).zip(before) {
            for counter in Counter::ALL {
                let (was, is) = (was[counter.index()], self.view(node, counter).used);
                if was != is {
                    drifts.push(Drift { node, counter, was, is });
                }
            }
        }
        drifts
    }

    /// Returns the ledger of another tree with the same calls, shares and peaks, matched by name.
    /// A limit that is new starts with no share; a call whose node is gone counts at the nearest
    /// ancestor that is left.
    pub fn moved(&self, old: &Tree, new: &Tree) -> Self {
        let mut moved = Self::new(new, self.places.0.hasher().0, self.started_at);
        for (id, node) in new.iter() {
            let Some(from) = old.find(&node.name) else { continue };
            for counter in Counter::ALL {
                let view = self.view(from, counter);
                moved.set_share(id, counter, view.share.unwrap_or(0));
                moved.set_elsewhere(id, counter, view.elsewhere);
            }
            let state = self.nodes[from.index()];
            (moved.nodes[id.index()].peak, moved.nodes[id.index()].refused) =
                (state.peak, state.refused);
            if let Some(extra) = self.extras.get(state.extra as usize) {
                moved.set_levels(id, extra.levels);
                moved.set_rate(id, extra.rate.map_or(0, |rate| rate.share));
            }
        }
        let calls = self.calls.iter().flatten();
        moved.audit(calls.filter_map(|call| call.moved(old, new)));
        moved
    }

    /// Returns the counters that are not what they were in another ledger, matched by name.
    pub(crate) fn differences(&self, tree: &Tree, before: &Self, old: &Tree) -> Vec<Drift> {
        let counters = tree.iter().flat_map(|(id, node)| {
            let was = old.find(&node.name);
            Counter::ALL.map(|counter| (id, counter, was))
        });
        let used = |ledger: &Self, node, counter| ledger.view(node, counter).used;
        let drift = |(node, counter, old): (NodeId, Counter, Option<NodeId>)| {
            let was = old.map_or(0, |old| used(before, old, counter));
            let is = used(self, node, counter);
            (was != is).then_some(Drift { node, counter, was, is })
        };
        counters.filter_map(drift).collect()
    }

    /// Returns how often a counter would have gone below zero: more than zero after a repair by hand.
    pub fn underflows(&self) -> u64 {
        self.underflows
    }
}
