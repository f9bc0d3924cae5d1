//! What must hold after every event, and what must hold again soon after the last fault.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::world::{Ms, Role, World};
use crate::Segment;
use crate::message::LinkStates;
use crate::{Epoch, Frame, Life, Mandate, NodeId, Stored, segments};

/// Sees every output of every process.
#[derive(Debug, Default)]
pub(super) struct Watchdog {
    /// Every division there ever was.
    pub(super) epochs: BTreeMap<Epoch, Mandate>,
    /// The epochs that were declared, told or not.
    declared: BTreeSet<Epoch>,
    /// When the last new epoch was declared.
    pub(super) declared_at: Ms,
    /// When a link was last lost or found by one of its ends.
    pub(super) relinked_at: Ms,
    links: BTreeMap<usize, BTreeSet<NodeId>>,
    obeyed: BTreeMap<usize, Epoch>,
    election_frames: BTreeMap<usize, VecDeque<Ms>>,
    pub(super) election_frames_max: usize,
    pub(super) election_frames_sent: u64,
    /// A digest of everything that was sent.
    pub(super) trace: u64,
    pub(super) faults: Vec<String>,
    /// Which process each life was.
    lives: BTreeMap<u128, usize>,
    /// What the segments last said to each coordinator in each epoch: whether they serve.
    serving: BTreeMap<(usize, Epoch, Segment), bool>,
    pub(super) unrest: Unrest,
    pub(super) cold_unrest: Unrest,
}

/// What kept the cluster from rest, and until when.
#[derive(Debug, Default)]
pub(super) struct Unrest {
    now: Option<String>,
    pub(super) last: Option<String>,
    pub(super) until: Ms,
}

impl Watchdog {
    /// A process starts; without its file it cannot know what it promised.
    pub(super) fn started(&mut self, process: usize, instance: u128, file: bool) {
        self.lives.insert(instance, process);
        if !file {
            self.obeyed.remove(&process);
        }
    }

    /// A process keeps a copy of its file that is older than what it promised.
    pub(super) fn forgets(&mut self, process: usize) {
        self.obeyed.remove(&process);
    }

    /// A process says that another one has its id.
    pub(super) fn named(&mut self, process: usize, id: NodeId, instance: u128) {
        if self.lives.get(&instance).is_none_or(|other| *other == process) {
            self.faults.push(format!("{id} takes a former life of its own for another process"));
        }
    }

    pub(super) fn asked(&mut self, process: usize, epoch: Epoch, segment: Segment, serving: bool) {
        self.serving.insert((process, epoch, segment), serving);
    }

    /// Whether a segment has told a coordinator that it drains.
    pub(super) fn drains(&self, process: usize, epoch: Epoch, segment: Segment) -> bool {
        self.serving.get(&(process, epoch, segment)) == Some(&false)
    }

    pub(super) fn judged(&mut self, now: Ms, unrest: Option<String>, cold: Option<String>) {
        self.unrest.judged(now, unrest);
        self.cold_unrest.judged(now, cold);
    }

    pub(super) fn linked(&mut self, now: Ms, process: usize, up: &BTreeSet<NodeId>) {
        if self.links.get(&process) != Some(up) {
            self.links.insert(process, up.clone());
            self.relinked_at = now;
        }
    }

    pub(super) fn led(&mut self, now: Ms, process: usize, mandate: &Mandate) {
        self.obey(process, mandate.epoch);
        match self.epochs.insert(mandate.epoch, mandate.clone()) {
            Some(other) if other != *mandate => {
                self.faults.push(format!("epoch {} names two divisions", mandate.epoch));
            }
            Some(_) => {}
            None => self.declared_at = now,
        }
    }

    /// A process promises an epoch; its own may be outdone before anybody is told of it.
    pub(super) fn promised(&mut self, id: NodeId, promised: Option<Epoch>) {
        self.declared.extend(promised.filter(|epoch| epoch.coordinator == id));
    }

    /// Terms rise with declared epochs only.
    pub(super) fn check_terms(&mut self) {
        let term = self.epochs.keys().map(|epoch| epoch.term).max().unwrap_or(0);
        let epochs = self.declared.len();
        if u64::try_from(epochs).unwrap() < term {
            self.faults.push(format!("term {term} after {epochs} epochs"));
        }
    }

    pub(super) fn followed(&mut self, process: usize, mandate: &Mandate) {
        self.obey(process, mandate.epoch);
        if self.epochs.get(&mandate.epoch).is_some_and(|other| other != mandate) {
            self.faults.push(format!("epoch {} names two divisions", mandate.epoch));
        }
    }

    pub(super) fn sent(
        &mut self,
        now: Ms,
        process: usize,
        id: NodeId,
        disk: Option<Stored>,
        frame: &Frame,
    ) {
        let (life, promised) = shown(id, frame);
        let disk = disk.unwrap_or_default();
        if disk.promised < promised || life.is_some_and(|it| disk.incarnation < it.incarnation) {
            self.faults.push(format!("{id} shows {promised:?} at {now}, its disk holds {disk:?}"));
        }
        let seen = [now, u64::from(id.segment.0), u64::from(id.rm), kind(frame)];
        for part in seen {
            self.trace = (self.trace ^ part).wrapping_mul(0x0100_0000_01b3).rotate_left(17);
        }
        if let Some(origin) = election_origin(frame)
            && origin == id
        {
            self.election_frames_sent += 1;
            let times = self.election_frames.entry(process).or_default();
            times.push_back(now);
            while times.front().is_some_and(|at| *at + 5_000 < now) {
                times.pop_front();
            }
            self.election_frames_max = self.election_frames_max.max(times.len());
        }
    }

    fn obey(&mut self, process: usize, epoch: Epoch) {
        let before = self.obeyed.insert(process, epoch);
        if before.is_some_and(|before| epoch < before) {
            self.faults.push(format!("process {process} obeys {epoch} after {before:?}"));
        }
    }
}

impl Unrest {
    fn judged(&mut self, now: Ms, unrest: Option<String>) {
        if self.now.is_some() || unrest.is_some() {
            self.until = now;
        }
        self.last = unrest.clone().or_else(|| self.now.take()).or_else(|| self.last.take());
        self.now = unrest;
    }
}

/// The nodes that can reach each other over links that work both ways, by process.
pub(super) fn islands(world: &World) -> Vec<Vec<usize>> {
    let runs = |at: &usize| world.processes[*at].runs() && !world.processes[*at].withdrawn;
    let mut left: BTreeSet<usize> = (0..world.processes.len()).filter(runs).collect();
    let mut islands = Vec::new();
    while let Some(first) = left.pop_first() {
        let mut island = vec![first];
        let mut next = 0;
        while let Some(&at) = island.get(next) {
            let joins = |other: &usize| {
                let (a, b) = (world.processes[at].id, world.processes[*other].id);
                // Two of one id never talk with each other.
                a != b && !world.cuts.contains(&(a, b)) && !world.cuts.contains(&(b, a))
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

/// Returns what is wrong in a network that has been quiet for long enough: each island must have one
/// coordinator, of its lowest segment, whose members' segments are the island's, followed by all.
pub(super) fn unrest(world: &World) -> Option<String> {
    islands(world).iter().find_map(|island| unrest_in(world, island))
}

pub(super) fn unrest_in(world: &World, island: &[usize]) -> Option<String> {
    let ids: BTreeSet<NodeId> = island.iter().map(|at| world.processes[*at].id).collect();
    if ids.len() != island.len() {
        return Some(format!("two processes of one id are in {ids:?}"));
    }
    let leads: Vec<usize> =
        island.iter().copied().filter(|at| world.processes[*at].leads()).collect();
    let [lead] = leads[..] else { return Some(format!("{} lead {ids:?}", leads.len())) };
    let lead = &world.processes[lead];
    let mandate = lead.role.as_ref()?.mandate();
    if Some(&lead.id.segment) != segments(&ids).first() {
        return Some(format!("{} leads {ids:?}", lead.id));
    }
    if mandate.segments() != segments(&ids) {
        return Some(format!("{} leads {:?} of {ids:?}", lead.id, mandate.members));
    }
    let spoken: BTreeSet<Segment> = lead.speakers.keys().copied().collect();
    if spoken != segments(&ids) || !lead.speakers.values().all(|it| ids.contains(&it.node)) {
        return Some(format!("{:?} speak in {ids:?}", lead.speakers));
    }
    let other = island.iter().find(|at| world.processes[**at].speakers != lead.speakers);
    if let Some(&other) = other {
        let (one, two) = (&lead.speakers, &world.processes[other].speakers);
        return Some(format!("{one:?} speak, {two:?} for {}", world.processes[other].id));
    }
    island.iter().find_map(|at| {
        let process = &world.processes[*at];
        let follows = process.role == Some(Role::Follow(mandate.clone()));
        (process.id != lead.id && !follows).then(|| {
            let epoch = process.role.as_ref().map(|role| role.mandate().epoch);
            format!("{} is in {epoch:?}, not in {}", process.id, mandate.epoch)
        })
    })
}

/// The life and the epoch that a frame shows of its sender.
fn shown(id: NodeId, frame: &Frame) -> (Option<Life>, Option<Epoch>) {
    match frame {
        Frame::Heartbeat(beat) => (Some(beat.life), None),
        Frame::LinkStates(LinkStates(states)) => {
            let own = states.iter().find(|state| state.origin == id);
            (own.map(|own| own.life), own.and_then(|own| own.promised))
        }
        Frame::Election(it) => ((it.envelope.origin == id).then_some(it.envelope.life), None),
        Frame::Answer(it) if it.envelope.origin == id => (Some(it.envelope.life), it.body.promised),
        Frame::Victory(it) if it.envelope.origin == id => {
            (Some(it.envelope.life), Some(it.body.0.epoch))
        }
        Frame::Nack(it) if it.envelope.origin == id => {
            (Some(it.envelope.life), Some(it.body.promised))
        }
        Frame::Answer(_) | Frame::Victory(_) | Frame::Nack(_) => (None, None),
    }
}

fn election_origin(frame: &Frame) -> Option<NodeId> {
    match frame {
        Frame::Heartbeat(_) | Frame::LinkStates(_) => None,
        Frame::Election(it) => Some(it.envelope.origin),
        Frame::Answer(it) => Some(it.envelope.origin),
        Frame::Victory(it) => Some(it.envelope.origin),
        Frame::Nack(it) => Some(it.envelope.origin),
    }
}

fn kind(frame: &Frame) -> u64 {
    match frame {
        Frame::Heartbeat(beat) => beat.digest,
        Frame::LinkStates(LinkStates(states)) => states.iter().map(|state| state.version).sum(),
        Frame::Election(it) => it.body.nonce,
        Frame::Answer(it) => it.body.nonce + u64::from(it.body.lower),
        Frame::Victory(it) => it.body.0.epoch.term,
        Frame::Nack(it) => it.body.promised.term,
    }
}
