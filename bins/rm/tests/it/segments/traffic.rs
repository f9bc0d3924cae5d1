//! How much nodes say: I12, in any schedule.
//!
//! An election costs its candidate a question and a victory to each of the others, 2(n − 1) messages (§2.11),
//! and a node campaigns four times in a timeout at the most (R4). All else of elections answers what was heard,
//! and what comes from others is told on once. Around it stand heartbeats, one a period and one more when
//! somebody is lost or found (§2.1), link states, each version of which is told on once to each neighbour, and
//! what moves shares: some messages a call, and some a second to each of the others.

use std::collections::BTreeMap;

use election::message::LinkStates;
use election::{Frame, NodeId};
use rm::cluster::ClusterFrame;

use super::world::Ms;

/// What all nodes have said and heard, in periods of an election's timeout.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    nodes: Vec<Node>,
    period: Ms,
}

#[derive(Debug)]
struct Node {
    id: NodeId,
    now: Counts,
    before: Counts,
    /// How many periods before this one its disk hung in, without one between in which it did not.
    hung: usize,
    /// The last message of its own: who is not linked is reached over all others, by copies of it.
    said: Option<(u128, u64)>,
    /// Whom it heard when it last beat.
    heard: Vec<NodeId>,
    /// The newest link states that it has heard, and its own.
    states: BTreeMap<NodeId, (u64, u128, u64)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    said: Kinds,
    heard: Kinds,
    /// Those it has found or lost.
    changes: usize,
    /// Newer link states that it has heard, and versions of its own.
    versions: usize,
    /// Questions whether a call is let in.
    calls: usize,
    /// Its disk held back what it had to say, of which more may come at once then.
    hangs: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Kinds {
    elections: usize,
    victories: usize,
    answers: usize,
    nacks: usize,
    /// Of elections, told on for others.
    relays: usize,
    beats: usize,
    states: usize,
    /// Of the hand-over, and those told on for others.
    shares: usize,
    told_on: usize,
    pair: usize,
}

/// A timeout of elections.
const PERIOD: Ms = 5_000;

/// Heartbeats in it, one more where both its ends beat.
const BEATS: usize = 6;

/// Campaigns in it (R4).
const CAMPAIGNS: usize = 4;

impl Traffic {
    pub(super) fn new(ids: &[NodeId]) -> Self {
        let node = |&id: &NodeId| Node {
            id,
            now: Counts::default(),
            before: Counts::default(),
            hung: 0,
            said: None,
            heard: Vec::new(),
            states: BTreeMap::new(),
        };
        Self { nodes: ids.iter().map(node).collect(), period: 0 }
    }

    pub(super) fn hangs(&mut self, at: usize) {
        self.nodes[at].now.hangs = true;
    }

    pub(super) fn asks(&mut self, at: usize) {
        self.nodes[at].now.calls += 1;
    }

    pub(super) fn hears(&mut self, at: usize, frame: &ClusterFrame) {
        self.nodes[at].note_states(frame, false);
        let heard = &mut self.nodes[at].now.heard;
        match frame {
            ClusterFrame::Election(Frame::Heartbeat(_)) => heard.beats += 1,
            ClusterFrame::Election(Frame::LinkStates(_)) => heard.states += 1,
            ClusterFrame::Election(Frame::Election(_)) => heard.elections += 1,
            ClusterFrame::Election(Frame::Victory(_)) => heard.victories += 1,
            ClusterFrame::Election(Frame::Answer(_)) => heard.answers += 1,
            ClusterFrame::Election(Frame::Nack(_)) => heard.nacks += 1,
            ClusterFrame::ToMember(_) | ClusterFrame::ToCoordinator(_) => heard.shares += 1,
            ClusterFrame::Pair(_) | ClusterFrame::Piece(_) | ClusterFrame::Pieces(_) => {}
        }
    }

    /// Counts a frame that a node sends; returns what was too much in the period that has ended before.
    pub(super) fn says(&mut self, now: Ms, at: usize, frame: &ClusterFrame) -> Option<String> {
        let fault = (self.period != now / PERIOD).then(|| self.turn(now / PERIOD)).flatten();
        let node = &mut self.nodes[at];
        node.note_states(frame, true);
        match frame {
            ClusterFrame::Election(frame) => node.says(frame),
            ClusterFrame::ToMember(routed) => node.moves_shares(routed.origin),
            ClusterFrame::ToCoordinator(routed) => node.moves_shares(routed.origin),
            // As many as what is long has pieces.
            ClusterFrame::Piece(_) | ClusterFrame::Pieces(_) => {}
            ClusterFrame::Pair(_) => node.now.said.pair += 1,
        }
        fault
    }

    fn turn(&mut self, period: Ms) -> Option<String> {
        let calls = self.nodes.iter().map(|node| node.now.calls + node.before.calls).sum();
        let others = self.nodes.len() - 1;
        let fault = self.nodes.iter().find_map(|node| {
            let fault = node.fault(others, calls)?;
            Some(format!("{} says too much of {fault}: {:?}", node.id, node.now))
        });
        self.period = period;
        for node in &mut self.nodes {
            let hangs = node.now.hangs || node.before.hangs;
            node.hung = if hangs { node.hung + 1 } else { 0 };
            node.before = std::mem::take(&mut node.now);
        }
        fault
    }
}

impl Node {
    /// Returns of what it has said more than `others` nodes and `calls` calls everywhere can have caused.
    fn fault(&self, others: usize, calls: usize) -> Option<&'static str> {
        let (Counts { said, heard, changes, versions, .. }, before) = (self.now, self.before.heard);
        // A lead answers a question with its victory, too.
        let asked = heard.elections + before.elections;
        let of_elections = |it: Kinds| it.elections + it.victories + it.answers + it.nacks;
        let relayed = (of_elections(heard) + of_elections(before)) * others;
        let laws = [
            ("campaigns", said.elections, CAMPAIGNS * others),
            ("victories", said.victories, CAMPAIGNS * others + asked),
            ("answers", said.answers, asked),
            ("refusals", said.nacks, heard.victories + before.victories),
            ("elections of others", said.relays, relayed),
            ("heartbeats", said.beats, (BEATS + changes) * others),
            // In three periods of silence somebody is lost once.
            ("nodes found and lost", changes, 4 * others),
            // A whole database goes to whoever shows that it has another, or is found.
            ("link states", said.states, (versions + 1) * others + heard.beats),
            ("versions", versions, (8 + 4 * others) * (others + 1)),
            ("shares", said.shares, calls + 20 * others),
            ("shares of others", said.told_on, heard.shares + before.shares),
            ("its pair", said.pair, calls + 60),
        ];
        // What a disk held back comes at once when it writes again: of that period and all in which it hung.
        let periods = if self.now.hangs || self.before.hangs { self.hung + 2 } else { 1 };
        let too_much = |(_, count, most): &(_, usize, usize)| periods * most < *count;
        laws.into_iter().find(too_much).map(|(what, ..)| what)
    }

    fn moves_shares(&mut self, origin: NodeId) {
        let said = &mut self.now.said;
        *(if origin == self.id { &mut said.shares } else { &mut said.told_on }) += 1;
    }

    fn says(&mut self, frame: &Frame) {
        let said = &mut self.now.said;
        let (envelope, count) = match frame {
            Frame::Heartbeat(beat) => {
                said.beats += 1;
                if !beat.heard.iter().eq(&self.heard) {
                    self.heard = beat.heard.iter().copied().collect();
                    self.now.changes += 1;
                }
                return;
            }
            Frame::LinkStates(_) => return said.states += 1,
            Frame::Election(it) => (it.envelope, &mut said.elections),
            Frame::Victory(it) => (it.envelope, &mut said.victories),
            Frame::Answer(it) => (it.envelope, &mut said.answers),
            Frame::Nack(it) => (it.envelope, &mut said.nacks),
        };
        let number = Some((envelope.life.instance, envelope.seq));
        if envelope.origin != self.id {
            said.relays += 1;
        } else if self.said != number {
            self.said = number;
            *count += 1;
        }
    }

    fn note_states(&mut self, frame: &ClusterFrame, own: bool) {
        let ClusterFrame::Election(Frame::LinkStates(LinkStates(states))) = frame else { return };
        for state in states.iter().filter(|state| (state.origin == self.id) == own) {
            let version = (state.life.incarnation, state.life.instance, state.version);
            let known = self.states.entry(state.origin).or_default();
            if *known < version {
                *known = version;
                self.now.versions += 1;
            }
        }
    }
}
