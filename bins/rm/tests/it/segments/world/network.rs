//! Who reaches whom, and what becomes of what they send.

use std::collections::BTreeSet;
use std::sync::Arc;

use election::NodeId;
use quota_split::handover::PairMessage;
use rm::cluster::{ClusterFrame, Input};
use rm::frames::Frame as _;

use super::{Event, Ms, Node, World};

impl World {
    pub(in super::super) fn cut(&mut self, a: usize, b: usize) {
        if self.cuts.insert((a, b)) && self.nodes[a].partner == Some(b) {
            self.disconnect(a, 500, 1_500);
        }
    }

    pub(in super::super) fn heal(&mut self) {
        self.cuts.clear();
        for at in 0..self.nodes.len() {
            self.relink_soon(at, 50, 1_000);
        }
        self.topology();
    }

    /// The gates give the slots of `victim` to its partner, which is told so or finds out.
    pub(super) fn fence(&mut self, victim: usize) {
        let life = self.nodes[victim].life;
        match self.nodes[victim].partner {
            Some(node) if self.nodes[node].works() => {
                let told = self.dice.hits(70);
                let after = if told { 300 } else { 4_000 };
                let Node { cluster, died_among, .. } = &self.nodes[victim];
                if cluster.is_none() && !died_among.contains(&node) {
                    self.judge.calls_change_islands();
                }
                self.post(self.now + after, Event::Fence { node, victim, life, told });
            }
            partner if self.nodes[victim].cluster.is_none() => {
                let dead = partner.filter(|it| self.nodes[*it].cluster.is_none());
                let lost = |owner: usize| owner == victim || Some(owner) == dead;
                self.calls.retain(|live| !lost(live.owner));
            }
            Some(_) | None => {}
        }
    }

    pub(super) fn take_slots(&mut self, at: usize, victim: usize, life: u64, told: bool) {
        let gone = self.nodes[victim].cluster.is_none() || self.nodes[victim].paused_at.is_some();
        if !self.nodes[at].works() {
            if self.nodes[victim].cluster.is_none() {
                self.calls.retain(|live| live.owner != victim);
            }
            return;
        }
        if self.nodes[victim].life == life && !gone {
            return;
        }
        self.calls.give(victim, at);
        if told && gone && self.nodes[victim].life == life {
            self.feed(at, Input::Fenced);
        }
    }

    pub(super) fn transmit(&mut self, at: usize, to: NodeId, frame: &ClusterFrame) {
        let from = self.nodes[at].id;
        let Some(to) = self.nodes.iter().position(|node| node.id == to) else { return };
        if !self.are_peers(at, to) {
            return;
        }
        let pair = match frame {
            ClusterFrame::Pair(_) => true,
            ClusterFrame::Piece(piece) => piece.kind == PairMessage::KIND,
            ClusterFrame::Election(_)
            | ClusterFrame::ToMember(_)
            | ClusterFrame::ToCoordinator(_)
            | ClusterFrame::Pieces(_) => false,
        };
        let reports = matches!(frame, ClusterFrame::ToCoordinator(_));
        if reports && self.muted.get(&at).is_some_and(|until| self.now < *until) {
            return;
        }
        let connection = self.nodes[at].connection.filter(|_| pair);
        if self.cuts.contains(&(at, to)) || pair && connection.is_none() {
            return;
        }
        let bad = self.bad && !pair;
        let copies = match bad {
            true if self.dice.hits(2) && self.may_lose(at, to, frame) => 0,
            true if self.dice.hits(2) => 2,
            true | false => 1,
        };
        for copy in 0..copies {
            let span = match bad {
                true if copy == 1 => self.dice.range(5, 2_000),
                true => self.dice.range(5, 300),
                false => self.dice.range(5, 50),
            };
            let mut due = self.now + span;
            if !bad {
                let last = self.fifo.entry((at, to)).or_insert(0);
                due = due.max(*last);
                *last = due;
            }
            self.post(due, Event::Deliver { to, from, frame: frame.clone(), connection });
        }
    }

    /// A network that loses one heartbeat after the other is cut, as far as a node can tell: a link is up
    /// while something was heard within three periods (§2.1), and I2 holds where nothing was cut.
    fn may_lose(&mut self, at: usize, to: usize, frame: &ClusterFrame) -> bool {
        if !matches!(frame, ClusterFrame::Election(election::Frame::Heartbeat(_))) {
            return true;
        }
        let last = self.lost.get(&(at, to)).copied();
        let may = last.is_none_or(|last| last + 2_000 < self.now);
        if may {
            self.lost.insert((at, to), self.now);
        }
        may
    }

    /// Ends the connection of a pair at once; both ends hear of it later.
    pub(super) fn disconnect(&mut self, at: usize, low: Ms, high: Ms) {
        let Some(partner) = self.nodes[at].partner else { return };
        for end in [at, partner] {
            if self.nodes[end].connection.take().is_some() {
                let (after, life) = (self.dice.range(low, high), self.nodes[end].life);
                self.nodes[end].parted_at = self.now + after;
                self.post(self.now + after, Event::Link { node: end, life, up: false });
            }
        }
    }

    pub(super) fn relink_soon(&mut self, at: usize, low: Ms, high: Ms) {
        if self.nodes[at].partner.is_some() {
            let after = 3_000 + self.dice.range(low, high);
            self.post(self.now + after, Event::Relink { node: at });
        }
    }

    pub(super) fn relink(&mut self, at: usize) {
        let Some(partner) = self.nodes[at].partner else { return };
        let cut = self.cuts.contains(&(at, partner)) || self.cuts.contains(&(partner, at));
        let works = self.nodes[at].works() && self.nodes[partner].works();
        if cut || !works || self.nodes[at].connection.is_some() {
            return;
        }
        // No connection is heard of before the end of the last one.
        let parted_at = self.nodes[at].parted_at.max(self.nodes[partner].parted_at);
        if self.now <= parted_at {
            return self.post(parted_at + 1, Event::Relink { node: at });
        }
        let number = self.nodes[at].connections.max(self.nodes[partner].connections) + 1;
        for end in [at, partner] {
            (self.nodes[end].connection, self.nodes[end].connections) = (Some(number), number);
            let life = self.nodes[end].life;
            self.post(self.now, Event::Link { node: end, life, up: true });
        }
    }

    /// Tells the judge who can reach whom, and of pairs whose halves live apart, each of which may go on
    /// with the share of both.
    pub(in super::super) fn topology(&mut self) {
        let islands = self.islands();
        let island = |at: usize| islands.iter().position(|island| island.contains(&at));
        self.judge.torn |= (0..self.nodes.len()).any(|at| {
            let node = &self.nodes[at];
            let apart =
                |partner: usize| self.nodes[partner].works() && island(at) != island(partner);
            node.cluster.is_some() && node.paused_at.is_none() && node.partner.is_some_and(apart)
        });
        self.judge.topology(&islands);
        self.spread();
    }

    /// In a wide world, lets whoever has an older plan than another of its island have that soon, or late.
    pub(super) fn spread(&mut self) {
        if !self.kind.is_wide() {
            return;
        }
        for island in self.islands() {
            let plans = island.iter().map(|at| &self.nodes[*at].plan);
            let Some(newest) = plans.max_by_key(|plan| plan.division.version()).cloned() else {
                continue;
            };
            let version = newest.division.version();
            for node in island {
                if self.nodes[node].plan.division.version() < version {
                    let late = self.dice.hits(20);
                    let after =
                        if late { self.dice.range(3_000, 9_000) } else { self.dice.range(10, 500) };
                    let plan = Arc::clone(&newest);
                    self.post(self.now + after, Event::Plan { node, plan });
                }
            }
        }
    }

    /// Returns the nodes that reach each other; one that does not run is an island of its own.
    pub(in super::super) fn islands(&self) -> Vec<Vec<usize>> {
        let mut left: BTreeSet<usize> =
            (0..self.nodes.len()).filter(|at| self.nodes[*at].cluster.is_some()).collect();
        let mut islands = Vec::new();
        while let Some(first) = left.pop_first() {
            let mut island = vec![first];
            let mut next = 0;
            while let Some(&at) = island.get(next) {
                let joins = |other: &usize| {
                    self.nodes[at].works()
                        && self.nodes[*other].works()
                        && self.are_peers(at, *other)
                        && !self.cuts.contains(&(at, *other))
                        && !self.cuts.contains(&(*other, at))
                };
                let (new, rest): (Vec<usize>, Vec<usize>) = left.into_iter().partition(joins);
                left = rest.into_iter().collect();
                island.extend(new);
                next += 1;
            }
            islands.push(island);
        }
        islands
    }
}
