//! What goes wrong: deaths, pauses, cuts, clocks.

use std::net::IpAddr;
use std::time::Duration;

use super::{Sim, Watch};
use crate::node::{Input, Node, NodeId};

impl<N: Node> Sim<N> {
    /// Kills a process at once, as SIGKILL does: its links end, its host
    /// refuses what comes to its sockets, what it sent before still arrives.
    /// One that does not run stays as it is.
    pub fn crash(&mut self, id: NodeId) {
        let node = self.place(id);
        self.end(node);
    }

    /// Starts a process anew, with the next boot. One that runs is killed
    /// first.
    pub fn restart(&mut self, id: NodeId) {
        let node = self.place(id);
        self.end(node);
        for ip in self.nodes[node].ips.clone() {
            self.power_on(ip);
        }
        self.start(node);
    }

    /// Stops a process as SIGSTOP does.
    pub fn pause(&mut self, id: NodeId) {
        self.pause_now(self.place(id));
    }

    /// Stops a process as SIGSTOP does, in the middle of the turn in which it is told what `is_it` wants:
    /// nothing that it says then has left.
    pub fn pause_in_turn(&mut self, id: NodeId, is_it: impl Fn(&Input) -> bool + 'static) {
        let node = self.place(id);
        self.nodes[node].pauses_when = Some(Box::new(is_it));
    }

    pub(super) fn pause_now(&mut self, node: usize) {
        if self.nodes[node].node.is_some() && !self.nodes[node].is_paused {
            let before = self.silences();
            self.nodes[node].is_paused = true;
            self.timers[node] = u64::MAX;
            self.silence_changed(&before);
        }
    }

    /// Lets a stopped process go on: it handles what came meanwhile and only
    /// then looks at its timers.
    pub fn resume(&mut self, id: NodeId) {
        let node = self.place(id);
        let in_turn = std::mem::take(&mut self.nodes[node].is_in_turn);
        self.nodes[node].pauses_when = None;
        if !self.nodes[node].is_paused {
            return;
        }
        let before = self.silences();
        let slot = &mut self.nodes[node];
        slot.is_paused = false;
        slot.inbox_len = 0;
        let inbox = std::mem::take(&mut slot.inbox);
        self.silence_changed(&before);
        if in_turn {
            self.settle(node);
        }
        let watch: Watch<'_> = &mut |_, _| false;
        for event in inbox {
            self.dispatch(event, watch);
        }
        // The timer was forgotten.
        self.nodes[node].timeout = None;
        self.settle(node);
    }

    /// Whether a process runs; one that is paused does.
    pub fn is_running(&self, id: NodeId) -> bool {
        self.node(id).is_some()
    }

    /// Cuts the way from one node to another, not the way back.
    pub fn cut(&mut self, from: NodeId, to: NodeId) {
        self.set_cut(from, to, true);
    }

    /// Cuts both ways.
    pub fn cut_both(&mut self, one: NodeId, other: NodeId) {
        self.cut(one, other);
        self.cut(other, one);
    }

    /// Ends a cut. Frames that waited go on when TCP next tries.
    pub fn heal(&mut self, from: NodeId, to: NodeId) {
        self.set_cut(from, to, false);
    }

    /// Ends all cuts.
    pub fn heal_all(&mut self) {
        let ids: Vec<NodeId> = self.index.keys().copied().collect();
        for &from in &ids {
            for &to in &ids {
                self.heal(from, to);
            }
        }
    }

    /// Cuts the power of a host: all its processes are gone and nothing says
    /// so. A node on it that is restarted brings the host back.
    pub fn power_off(&mut self, ip: IpAddr) {
        let before = self.silences();
        for node in 0..self.nodes.len() {
            if self.nodes[node].ips.contains(&ip) {
                self.nodes[node].host_is_down = true;
                self.end_silently(node);
            }
        }
        self.silence_changed(&before);
    }

    /// Brings a host back, without its processes.
    pub fn power_on(&mut self, ip: IpAddr) {
        let before = self.silences();
        for node in 0..self.nodes.len() {
            if self.nodes[node].ips.contains(&ip) && self.nodes[node].host_is_down {
                self.nodes[node].host_is_down = false;
                self.reset_links(node);
            }
        }
        self.silence_changed(&before);
    }

    /// Breaks every connection of SIP between two nodes, as something between them that forgets does:
    /// each end finds out at once, and what was under way is lost.
    pub fn break_streams(&mut self, one: NodeId, other: NodeId) {
        let (one, other) = (self.place(one), self.place(other));
        self.forget_between(one, other);
    }

    /// Lets a node make no connection of SIP any more, as if all its peers were behind a NAT.
    pub fn refuse_streams(&mut self, id: NodeId) {
        let node = self.place(id);
        self.nodes[node].makes_no_streams = true;
    }

    /// Makes a node's wall clock jump. Nodes read it only when they start.
    pub fn jump_clock(&mut self, id: NodeId, by_ms: i64) {
        let node = self.place(id);
        self.nodes[node].jumped_ms += by_ms;
    }

    /// Ends a process whose host lives.
    pub(super) fn end(&mut self, node: usize) {
        if self.nodes[node].node.is_some() {
            self.end_links(node);
            self.end_streams(node);
            self.end_silently(node);
        }
    }

    fn end_silently(&mut self, node: usize) {
        self.forget_links(node);
        self.forget_streams(node);
        self.timers[node] = u64::MAX;
        let slot = &mut self.nodes[node];
        slot.node = None;
        slot.is_paused = false;
        slot.pauses_when = None;
        slot.is_in_turn = false;
        slot.inbox.clear();
        slot.inbox_len = 0;
        slot.timeout = None;
        slot.sockets.clear();
        slot.journal.forget();
        self.bound.retain(|_, &mut (owner, _)| owner != node);
    }

    fn set_cut(&mut self, from: NodeId, to: NodeId, is_cut: bool) {
        let (from, to) = (self.place(from), self.place(to));
        if self.routes[from][to].is_cut == is_cut {
            return;
        }
        let before = self.silences();
        self.routes[from][to].is_cut = is_cut;
        if is_cut {
            self.silence_changed(&before);
        } else {
            self.release_frames(from, to);
            self.release_streams(from, to);
        }
    }
}

/// TCP sends what was not acknowledged again after this, then after twice
/// this, and so on.
const RETRANSMISSION: Duration = Duration::from_millis(200);

/// Returns when TCP next sends at or after `now` what it first sent at `sent`.
pub(super) fn retransmitted_at(sent: u64, now: u64) -> u64 {
    let mut at = sent;
    let mut wait = super::nanos(RETRANSMISSION);
    while at < now {
        at += wait;
        wait *= 2;
    }
    at
}
