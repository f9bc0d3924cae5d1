//! The election machine: hears peers, tells what they say, and finds the coordinator of the island.

mod exchange;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use crate::bully::Bully;
use crate::detector::Detector;
use crate::message::{Frame, Heartbeat};
use crate::rival::Rivals;
use crate::routes::Routes;
use crate::rules::{Rule, Rules};
use crate::sites::{Cold, Sites};
use crate::{Epoch, Mandate, NodeId, Segment, Speaker, Stored, Timing, segments};

/// Finds out who coordinates the island that this node is in, and says so once it is safe to.
#[derive(Clone, Debug)]
pub struct Elector {
    id: NodeId,
    peers: BTreeSet<NodeId>,
    timing: Timing,
    detector: Detector,
    bully: Bully,
    routes: Routes,
    rivals: Rivals,
    sites: Sites,
    rules: Rules,
    heard: BTreeSet<NodeId>,
    up: BTreeSet<NodeId>,
    beats: u64,
    beat_at: Instant,
    repeat_at: Instant,
    suspect_until: Option<Instant>,
    next_silence: Option<Instant>,
    /// What the disk was last asked to hold, and by which number.
    asked: Stored,
    serial: u64,
    asking: bool,
    kept: u64,
    /// Whether a heartbeat waits for the disk.
    beat_waits: bool,
    /// The segments that get a share of what this node coordinates or follows.
    shares: BTreeSet<Segment>,
    /// The epoch that `shares` belongs to.
    divided: Option<Epoch>,
    /// Whether the owner may have to be told something.
    stale: bool,
    /// What the owner was last told.
    told: Option<(Epoch, BTreeSet<Segment>)>,
    present: BTreeSet<NodeId>,
    speakers: BTreeMap<Segment, Speaker>,
    duplicate: Option<u128>,
    withdrawn: bool,
    sends: VecDeque<(NodeId, Frame)>,
}

/// Who this node is and with whom it talks.
#[derive(Clone, Debug)]
pub struct Config {
    /// This node.
    pub id: NodeId,
    /// The nodes it has links to: every other node of the cluster.
    pub peers: BTreeSet<NodeId>,
    /// The cold segments; the same at every node, like all that follows.
    pub cold: BTreeMap<Segment, Cold>,
    /// How long things take.
    pub timing: Timing,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The nodes and cold segments of the cluster have changed.
    Configured {
        /// Every other node.
        peers: BTreeSet<NodeId>,
        /// The cold segments.
        cold: BTreeMap<Segment, Cold>,
    },
    /// A frame came on the link to a peer. Frames of others are ignored.
    Frame {
        /// Whose link it is.
        from: NodeId,
        /// What came.
        frame: Frame,
    },
    /// What [`Output::Persist`] of this number asked for, and all before it, is on disk.
    Persisted(u64),
    /// The coordinator's owner has found that a segment serves in this epoch, because it promised
    /// it, or that it does not, because it drains or does not answer.
    Serving {
        /// The segment.
        segment: Segment,
        /// Whether it serves.
        serving: bool,
    },
    /// The partner of this node can do nothing any more, which whoever fences it has made sure of:
    /// this node speaks for the segment, sooner than the silence would tell.
    Fenced,
}

/// What the machine asks of its owner, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Write this to disk, durably and in the order asked, then answer with [`Input::Persisted`].
    /// Until then nothing else comes out, heartbeats included: a node whose disk hangs can neither
    /// promise nor lead.
    Persist {
        /// The number to answer with.
        serial: u64,
        /// What to write.
        stored: Stored,
    },
    /// Send a frame to a peer; one that cannot be sent now is dropped.
    Send {
        /// The peer.
        to: NodeId,
        /// The frame.
        frame: Frame,
    },
    /// This node coordinates. Comes again, with the same epoch, when other segments get shares.
    Lead {
        /// The epoch and its members.
        mandate: Mandate,
        /// The members' segments that get a share: all hot ones, and cold ones that are needed.
        shares: BTreeSet<Segment>,
    },
    /// Another node coordinates. Comes again, with the same epoch, when other segments get shares.
    Follow {
        /// The epoch and its members.
        mandate: Mandate,
        /// The segments that get a share, as far as that has been told here.
        shares: BTreeSet<Segment>,
    },
    /// The electable nodes of this node's island are now these.
    Present(BTreeSet<NodeId>),
    /// These now speak for the segments of this node's island. Of two nodes of a segment the one that
    /// spoke goes on; one that returns never takes the part of its living partner.
    Speakers(BTreeMap<Segment, Speaker>),
    /// Another living process has this node's id. One of them must be stopped.
    Duplicate {
        /// The other process.
        instance: u128,
        /// Whether this process has withdrawn for good: it must admit nothing any more.
        withdrawn: bool,
    },
}

impl Elector {
    /// Starts a life. `stored` is what the disk holds of the life before, `None` if that is lost or
    /// was never written; without it the owner must admit nothing before it was granted a share.
    /// `instance` must be drawn at random for each start.
    pub fn new(config: Config, stored: Option<Stored>, instance: u128, now: Instant) -> Self {
        Self::with_rules(config, stored, instance, now, Rules::default())
    }

    pub(crate) fn with_rules(
        config: Config,
        stored: Option<Stored>,
        instance: u128,
        now: Instant,
        rules: Rules,
    ) -> Self {
        let Config { id, peers, cold, timing } = config;
        let bully = Bully::new(id, stored, instance, timing, rules, now);
        let mut elector = Self {
            id,
            peers: BTreeSet::new(),
            timing,
            detector: Detector::new(id, timing.silence()),
            routes: Routes::default(),
            rivals: Rivals::default(),
            sites: Sites::new(timing.stability()),
            rules,
            heard: BTreeSet::new(),
            up: BTreeSet::new(),
            beats: 0,
            beat_at: now,
            repeat_at: now + timing.refresh(),
            suspect_until: None,
            next_silence: None,
            asked: bully.stored(),
            serial: 1,
            asking: true,
            kept: 0,
            beat_waits: false,
            shares: BTreeSet::new(),
            divided: None,
            stale: true,
            told: None,
            present: BTreeSet::new(),
            speakers: BTreeMap::new(),
            duplicate: None,
            withdrawn: false,
            sends: VecDeque::new(),
            bully,
        };
        elector.configure(peers, cold);
        elector
    }

    /// Takes in what happened at `now`.
    pub fn handle_input(&mut self, now: Instant, input: Input) {
        if self.withdrawn {
            return;
        }
        self.notice_pause(now);
        match input {
            Input::Configured { peers, cold } => {
                self.configure(peers, cold);
                self.relink(now);
            }
            Input::Frame { from, frame } => {
                if self.peers.contains(&from) && frame.is_sound() {
                    self.hear(now, from, frame);
                }
            }
            Input::Persisted(serial) => {
                self.kept = self.kept.max(serial.min(self.serial));
                if self.beat_waits {
                    self.beat(now);
                }
            }
            Input::Serving { segment, serving } => self.sites.set_serving(segment, serving),
            Input::Fenced => self.bully.take_over(now),
        }
        self.finish(now);
    }

    /// Does whatever is due at `now`; does nothing when nothing is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_none_or(|due| now < due) {
            return;
        }
        self.notice_pause(now);
        if self.suspect_until.is_some_and(|until| until <= now) {
            self.suspect_until = None;
            self.bully.set_suspect(now, false);
        }
        self.relink(now);
        self.bully.handle_timeout(now);
        if self.repeat_at <= now {
            self.repeat_at = now + self.timing.refresh();
            self.bully.repeat();
        }
        if self.beat_at <= now {
            self.bully.reevaluate(now);
            self.beat(now);
        }
        self.finish(now);
    }

    /// Returns the next thing to do. Drain until `None` after every other call.
    pub fn poll_output(&mut self) -> Option<Output> {
        if std::mem::take(&mut self.asking) {
            return Some(Output::Persist { serial: self.serial, stored: self.asked });
        }
        if let Some(instance) = self.duplicate.take() {
            return Some(Output::Duplicate { instance, withdrawn: self.withdrawn });
        }
        if self.kept < self.serial || self.withdrawn {
            return None;
        }
        if let Some((to, frame)) = self.sends.pop_front() {
            return Some(Output::Send { to, frame });
        }
        let role = if self.stale { self.poll_role() } else { None };
        self.stale = role.is_some();
        role
    }

    /// Returns when `handle_timeout` is next needed; `None` once this process has withdrawn.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.withdrawn {
            return None;
        }
        let timers = self.bully.timers().map(|(at, _)| at);
        let rest = [
            self.suspect_until,
            self.next_silence,
            self.sites.next_at().filter(|_| self.coordinates()),
            Some(self.beat_at),
            Some(self.repeat_at),
        ];
        timers.chain(rest.into_iter().flatten()).min()
    }

    /// Returns the division that this node follows or leads since its start.
    pub fn mandate(&self) -> Option<&Mandate> {
        self.bully.mandate()
    }

    /// Returns whether this node coordinates.
    pub fn leads(&self) -> bool {
        self.bully.leads()
    }

    /// Returns the nodes of this node's island, itself included.
    pub fn island(&self) -> &BTreeSet<NodeId> {
        self.bully.links().component()
    }

    /// Returns the peers to which the link is up: both ends hear each other.
    pub fn neighbours(&self) -> &BTreeSet<NodeId> {
        &self.up
    }

    /// Returns the neighbour over which to send to a node of this island; `None` to any other.
    pub fn next_hop(&self, to: NodeId) -> Option<NodeId> {
        self.bully.links().next_hop(to)
    }

    /// Tells the owner what has changed for it, one thing at a time.
    fn poll_role(&mut self) -> Option<Output> {
        let present = self.bully.links().electable();
        if present != self.present {
            self.present.clone_from(&present);
            return Some(Output::Present(present));
        }
        let speakers = self.bully.speakers();
        if speakers != self.speakers {
            self.speakers.clone_from(&speakers);
            return Some(Output::Speakers(speakers));
        }
        let mandate = self.bully.mandate()?;
        let role = (mandate.epoch, self.shares.clone());
        if self.told.as_ref() == Some(&role) {
            return None;
        }
        let mandate = mandate.clone();
        let shares = role.1.clone();
        self.told = Some(role);
        Some(if self.coordinates() {
            Output::Lead { mandate, shares }
        } else {
            Output::Follow { mandate, shares }
        })
    }

    /// Returns whether this node declared the division that it has.
    fn coordinates(&self) -> bool {
        self.bully.mandate().is_some_and(|mandate| mandate.epoch.coordinator == self.id)
    }

    fn configure(&mut self, mut peers: BTreeSet<NodeId>, cold: BTreeMap<Segment, Cold>) {
        peers.insert(self.id);
        self.sites.configure(&segments(&peers), cold);
        peers.remove(&self.id);
        self.detector.retain(&peers);
        self.peers = peers;
    }

    /// A node that did not run cannot tell whether the others did.
    fn notice_pause(&mut self, now: Instant) {
        let late = self.beat_at + self.timing.period() < now;
        if late && self.rules.keep(Rule::SelfSuspicion) {
            let until = now + self.timing.silence();
            self.detector.forgive(now, self.beat_at);
            self.suspect_until = Some(until);
            self.beat_at = now;
            self.bully.set_suspect(now, true);
        }
    }

    fn beat(&mut self, now: Instant) {
        // Counted from `now`: a process that was suspended must not send its backlog of beats.
        self.beat_at = now + self.timing.period();
        self.beat_waits = self.kept < self.serial;
        if self.beat_waits {
            return;
        }
        self.beats += 1;
        let beat = Heartbeat {
            life: self.bully.life(),
            seq: self.beats,
            heard: self.detector.heard(now),
            digest: self.bully.links().digest(),
        };
        for peer in self.peers.clone() {
            self.send(peer, Frame::Heartbeat(beat.clone()));
        }
    }

    fn send(&mut self, to: NodeId, frame: Frame) {
        if self.sends.len() < SENDS_MAX {
            self.sends.push_back((to, frame));
        }
    }
}

/// Frames that wait for the disk. What is more is lost, as on a bad network.
const SENDS_MAX: usize = 4096;

#[cfg(test)]
mod tests;
