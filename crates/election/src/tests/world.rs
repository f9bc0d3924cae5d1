//! Processes, their disks and the network between them, in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::invariants::Watchdog;
use super::origin;
use super::random::Random;
use crate::rules::Rules;
use crate::{
    Config, Elector, Frame, Input, Mandate, NodeId, Output, Segment, Speaker, Stored, Timing,
};

/// Milliseconds since the start of the world.
pub(super) type Ms = u64;

pub(super) struct World {
    pub(super) now: Ms,
    origin: Instant,
    pub(super) dice: Random,
    rules: Rules,
    /// Loses, doubles and reorders frames.
    pub(super) bad: bool,
    ids: BTreeSet<NodeId>,
    pub(super) processes: Vec<Process>,
    /// Ways on which nothing arrives.
    pub(super) cuts: BTreeSet<(NodeId, NodeId)>,
    events: BTreeMap<(Ms, u64), Event>,
    events_made: u64,
    fifo: BTreeMap<(usize, usize), Ms>,
    pub(super) watchdog: Watchdog,
}

pub(super) struct Process {
    pub(super) id: NodeId,
    pub(super) elector: Option<Elector>,
    pub(super) paused_at: Option<Ms>,
    /// How far this process's clock is behind, since it stood still.
    behind: Ms,
    held: Vec<Event>,
    pub(super) disk: Option<Stored>,
    pub(super) instance: u128,
    written_at: Ms,
    /// Whether writes are asked for and never end.
    pub(super) disk_hangs: bool,
    hung: Vec<(u64, Stored)>,
    life: u64,
    wake_at: Option<Ms>,
    /// What its owner was last told.
    pub(super) role: Option<Role>,
    pub(super) speakers: BTreeMap<Segment, Speaker>,
    pub(super) withdrawn: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Lead(Mandate),
    Follow(Mandate),
}

#[derive(Clone, Debug)]
enum Event {
    Deliver { to: usize, from: NodeId, frame: Frame },
    Wake { process: usize, life: u64 },
    Written { process: usize, life: u64, serial: u64, stored: Stored },
    Resume { process: usize, clock_ran: bool },
}

impl Role {
    pub(super) fn mandate(&self) -> &Mandate {
        match self {
            Self::Lead(mandate) | Self::Follow(mandate) => mandate,
        }
    }
}

impl World {
    pub(super) fn new(seed: u64, ids: &[NodeId], rules: Rules) -> Self {
        Self {
            now: 0,
            origin: origin(),
            dice: Random::new(seed),
            rules,
            bad: false,
            ids: ids.iter().copied().collect(),
            processes: ids.iter().copied().map(Process::new).collect(),
            cuts: BTreeSet::new(),
            events: BTreeMap::new(),
            events_made: 0,
            fifo: BTreeMap::new(),
            watchdog: Watchdog::default(),
        }
    }

    /// Adds a process, not yet started, with an id that another one may have too.
    pub(super) fn add(&mut self, id: NodeId) -> usize {
        self.processes.push(Process::new(id));
        self.processes.len() - 1
    }

    pub(super) fn start(&mut self, at: usize) {
        let instance = u128::from(self.dice.next()) << 64 | u128::from(self.dice.next());
        let mut peers = self.ids.clone();
        let process = &mut self.processes[at];
        peers.remove(&process.id);
        let config =
            Config { id: process.id, peers, cold: BTreeMap::new(), timing: Timing::default() };
        process.life += 1;
        process.instance = instance;
        process.behind = 0;
        process.paused_at = None;
        process.held.clear();
        process.wake_at = None;
        process.role = None;
        process.speakers.clear();
        let now = self.origin + Duration::from_millis(self.now);
        let elector = Elector::with_rules(config, process.disk, instance, now, self.rules);
        process.elector = Some(elector);
        self.watchdog.started(at, process.disk.is_some());
        self.drain(at);
    }

    pub(super) fn crash(&mut self, at: usize) {
        self.processes[at].elector = None;
        self.processes[at].role = None;
    }

    /// Stops a process for a while; its clock may stand still too, as a virtual machine's does.
    pub(super) fn pause(&mut self, at: usize, span: Ms, clock_ran: bool) {
        self.processes[at].paused_at = Some(self.now);
        self.post(self.now + span, Event::Resume { process: at, clock_ran });
    }

    /// Tells a process that its partner can do nothing any more.
    pub(super) fn fence(&mut self, at: usize) {
        let now = self.origin + Duration::from_millis(self.now);
        let elector = self.processes[at].elector.as_mut().unwrap();
        elector.handle_input(now, Input::Fenced);
        self.drain(at);
    }

    /// Lets the writes end that hang.
    pub(super) fn release_disk(&mut self, at: usize) {
        self.processes[at].disk_hangs = false;
        let life = self.processes[at].life;
        for (serial, stored) in std::mem::take(&mut self.processes[at].hung) {
            self.obey(at, life, Output::Persist { serial, stored });
        }
    }

    pub(super) fn run_until(&mut self, until: Ms) {
        while let Some(entry) = self.events.first_entry() {
            let at = entry.key().0;
            if until < at {
                break;
            }
            let event = entry.remove();
            self.now = at;
            self.happen(event);
        }
        self.now = until;
    }

    pub(super) fn run_for(&mut self, span: Ms) {
        self.run_until(self.now + span);
    }

    fn happen(&mut self, event: Event) {
        let at = match event {
            Event::Deliver { to, .. } => to,
            Event::Wake { process, .. }
            | Event::Written { process, .. }
            | Event::Resume { process, .. } => process,
        };
        let process = &mut self.processes[at];
        if let Event::Resume { clock_ran, .. } = event {
            return self.resume(at, clock_ran);
        }
        if process.paused_at.is_some() {
            process.held.push(event);
            return;
        }
        let now = self.origin + Duration::from_millis(self.now - process.behind);
        let life = process.life;
        let Some(elector) = process.elector.as_mut() else { return };
        match event {
            Event::Deliver { from, frame, .. } => {
                elector.handle_input(now, Input::Frame { from, frame });
            }
            Event::Wake { life: of, .. } if of == life => {
                process.wake_at = None;
                elector.handle_timeout(now);
                let due = elector.poll_timeout();
                assert!(due.is_none_or(|due| now < due), "a handled timeout is due again");
            }
            Event::Written { life: of, serial, stored, .. } if of == life => {
                process.disk = Some(stored);
                elector.handle_input(now, Input::Persisted(serial));
            }
            Event::Wake { .. } | Event::Written { .. } | Event::Resume { .. } => return,
        }
        self.drain(at);
    }

    fn resume(&mut self, at: usize, clock_ran: bool) {
        let process = &mut self.processes[at];
        let Some(since) = process.paused_at.take() else { return };
        if process.elector.is_none() {
            return;
        }
        if !clock_ran {
            process.behind += self.now - since;
        }
        process.wake_at = None;
        // The clock strikes before the mail is read.
        let held = std::mem::take(&mut process.held);
        let (wakes, rest): (Vec<Event>, Vec<Event>) =
            held.into_iter().partition(|event| matches!(event, Event::Wake { .. }));
        for event in wakes.into_iter().chain(rest) {
            self.happen(event);
        }
        self.drain(at);
    }

    /// Does what a process asks for.
    fn drain(&mut self, at: usize) {
        let process = &mut self.processes[at];
        let Some(elector) = process.elector.as_mut() else { return };
        self.watchdog.linked(self.now, at, elector.neighbours());
        let mut outputs = Vec::new();
        while let Some(output) = elector.poll_output() {
            outputs.push(output);
        }
        let (life, behind) = (process.life, process.behind);
        if let Some(due) = elector.poll_timeout() {
            let due = due.saturating_duration_since(self.origin);
            // Rounded up: a process never wakes before it is due.
            let due = u64::try_from(due.as_micros().div_ceil(1000)).unwrap() + behind;
            let due = due.max(self.now);
            if process.wake_at.is_none_or(|wake_at| due < wake_at) {
                process.wake_at = Some(due);
                self.post(due, Event::Wake { process: at, life });
            }
        }
        for output in outputs {
            self.obey(at, life, output);
        }
    }

    fn obey(&mut self, at: usize, life: u64, output: Output) {
        let process = &mut self.processes[at];
        match output {
            Output::Persist { serial, stored } => {
                if process.disk_hangs {
                    process.hung.push((serial, stored));
                    return;
                }
                // One write after the other.
                let due = (self.now + self.dice.range(1, 15)).max(process.written_at);
                process.written_at = due;
                self.post(due, Event::Written { process: at, life, serial, stored });
            }
            Output::Send { to, frame } => {
                self.watchdog.sent(self.now, at, process.id, process.disk, &frame);
                self.transmit(at, to, &frame);
            }
            Output::Lead { mandate, .. } => {
                self.watchdog.led(self.now, at, &mandate);
                process.role = Some(Role::Lead(mandate));
            }
            Output::Follow { mandate, .. } => {
                self.watchdog.followed(at, &mandate);
                process.role = Some(Role::Follow(mandate));
            }
            Output::Present(_) => {}
            Output::Speakers(speakers) => process.speakers = speakers,
            Output::Duplicate { withdrawn, .. } => process.withdrawn |= withdrawn,
        }
    }

    fn transmit(&mut self, at: usize, to: NodeId, frame: &Frame) {
        let from = self.processes[at].id;
        for target in 0..self.processes.len() {
            if self.processes[target].id != to || self.cuts.contains(&(from, to)) {
                continue;
            }
            let copies = match self.bad {
                true if self.dice.hits(2) => 0,
                true if self.dice.hits(2) => 2,
                true | false => 1,
            };
            for copy in 0..copies {
                let span = match self.bad {
                    true if copy == 1 => self.dice.range(5, 2000),
                    true => self.dice.range(5, 300),
                    false => self.dice.range(5, 50),
                };
                let mut due = self.now + span;
                if !self.bad {
                    let last = self.fifo.entry((at, target)).or_insert(0);
                    due = due.max(*last);
                    *last = due;
                }
                self.post(due, Event::Deliver { to: target, from, frame: frame.clone() });
            }
        }
    }

    fn post(&mut self, at: Ms, event: Event) {
        self.events_made += 1;
        self.events.insert((at, self.events_made), event);
    }
}

impl Process {
    fn new(id: NodeId) -> Self {
        Self {
            id,
            elector: None,
            paused_at: None,
            behind: 0,
            held: Vec::new(),
            disk: None,
            instance: 0,
            written_at: 0,
            disk_hangs: false,
            hung: Vec::new(),
            life: 0,
            wake_at: None,
            role: None,
            speakers: BTreeMap::new(),
            withdrawn: false,
        }
    }

    pub(super) fn runs(&self) -> bool {
        self.elector.is_some() && self.paused_at.is_none()
    }

    pub(super) fn leads(&self) -> bool {
        matches!(self.role, Some(Role::Lead(_)))
    }
}
