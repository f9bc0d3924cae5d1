//! Which peers are heard, and which of them hear this node.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::message::Heartbeat;
use crate::{Life, NodeId};

/// Hears heartbeats. Whether a silence means anything is its owner's to judge.
#[derive(Clone, Debug)]
pub(crate) struct Detector {
    id: NodeId,
    silence: Duration,
    peers: BTreeMap<NodeId, Peer>,
}

#[derive(Clone, Copy, Debug)]
struct Peer {
    life: Life,
    seq: u64,
    heard_at: Instant,
    hears_us: bool,
}

impl Detector {
    pub(crate) fn new(id: NodeId, silence: Duration) -> Self {
        Self { id, silence, peers: BTreeMap::new() }
    }

    /// Takes in a heartbeat; returns false for one of an earlier life or one that came late.
    pub(crate) fn hear(&mut self, now: Instant, from: NodeId, beat: &Heartbeat) -> bool {
        if let Some(peer) = self.peers.get(&from) {
            let same = peer.life.instance == beat.life.instance;
            if beat.life < peer.life || same && beat.seq <= peer.seq {
                return false;
            }
        }
        let hears_us = beat.heard.contains(&self.id);
        let peer = Peer { life: beat.life, seq: beat.seq, heard_at: now, hears_us };
        self.peers.insert(from, peer);
        true
    }

    /// Counts the silence of all who are heard anew: this node was not listening.
    pub(crate) fn forgive(&mut self, now: Instant, since: Instant) {
        for peer in self.peers.values_mut() {
            if since < peer.heard_at + self.silence {
                peer.heard_at = now;
            }
        }
    }

    /// Forgets peers that are none any more.
    pub(crate) fn retain(&mut self, peers: &BTreeSet<NodeId>) {
        self.peers.retain(|peer, _| peers.contains(peer));
    }

    /// Returns the peers that are heard.
    pub(crate) fn heard(&self, now: Instant) -> BTreeSet<NodeId> {
        self.live(now).map(|(node, _)| node).collect()
    }

    /// Returns the peers whose link is up: heard, and hearing this node.
    pub(crate) fn up(&self, now: Instant) -> BTreeSet<NodeId> {
        self.live(now).filter(|(_, peer)| peer.hears_us).map(|(node, _)| node).collect()
    }

    /// Returns the life in which `node` was last heard.
    pub(crate) fn life(&self, node: NodeId) -> Option<Life> {
        self.peers.get(&node).map(|peer| peer.life)
    }

    /// Returns when the next silence will be long enough, counted from `now`.
    pub(crate) fn next_silence(&self, now: Instant) -> Option<Instant> {
        self.live(now).map(|(_, peer)| peer.heard_at + self.silence).min()
    }

    fn live(&self, now: Instant) -> impl Iterator<Item = (NodeId, Peer)> {
        let live = move |peer: &Peer| now < peer.heard_at + self.silence;
        self.peers.iter().map(|(node, peer)| (*node, *peer)).filter(move |(_, peer)| live(peer))
    }
}
