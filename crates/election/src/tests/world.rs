//! Processes, their disks and the network between them, in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::invariants::{Watchdog, unrest};
use super::random::Random;
use super::{cold, origin};
use crate::rules::Rules;
use crate::{
    Cold, Config, Elector, Epoch, Frame, Input, Mandate, NodeId, Output, Segment, Speaker, Stored,
    Timing,
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
    pub(super) cold: BTreeMap<Segment, Cold>,
    /// Segments that take no new calls.
    pub(super) draining: BTreeSet<Segment>,
    pub(super) processes: Vec<Process>,
    /// Ways on which nothing arrives.
    pub(super) cuts: BTreeSet<(NodeId, NodeId)>,
    events: BTreeMap<(Ms, u64), Event>,
    events_made: u64,
    fifo: BTreeMap<(usize, usize), Ms>,
    pub(super) watchdog: Watchdog,
    /// Whether something has happened that may break or end the rest.
    changed: bool,
}

pub(super) struct Process {
    pub(super) id: NodeId,
    pub(super) elector: Option<Elector>,
    pub(super) paused_at: Option<Ms>,
    /// How far this process's clock is behind, since it stood still.
    behind: Ms,
    held: Vec<Event>,
    pub(super) disk: Option<Stored>,
    /// What the disk held once, as a copy from before would.
    pub(super) backup: Option<Stored>,
    pub(super) instance: u128,
    written_at: Ms,
    /// Whether writes are asked for and never end.
    pub(super) disk_hangs: bool,
    hung: Vec<(u64, Stored)>,
    life: u64,
    wake_at: Option<Ms>,
    /// What its owner was last told.
    pub(super) role: Option<Role>,
    pub(super) shares: BTreeSet<Segment>,
    /// Segments that had a share, those included that have gone away with it.
    pub(super) counted: BTreeSet<Segment>,
    /// Promises since its owner was last told: of several the owner hears of the last one only.
    pub(super) promises: u32,
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
    Deliver {
        to: usize,
        from: NodeId,
        frame: Frame,
    },
    Wake {
        process: usize,
        life: u64,
    },
    Written {
        process: usize,
        life: u64,
        serial: u64,
        stored: Stored,
    },
    Resume {
        process: usize,
        clock_ran: bool,
    },
    /// The hand-over asks a segment for its promise, or whether it drains.
    Ask {
        process: usize,
        life: u64,
        epoch: Epoch,
        segment: Segment,
    },
    /// The writes that hang end.
    Release {
        process: usize,
        life: u64,
    },
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
            cold: BTreeMap::new(),
            draining: BTreeSet::new(),
            processes: ids.iter().copied().map(Process::new).collect(),
            cuts: BTreeSet::new(),
            events: BTreeMap::new(),
            events_made: 0,
            fifo: BTreeMap::new(),
            watchdog: Watchdog::default(),
            changed: false,
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
        let cold = self.cold.clone();
        let config = Config { id: process.id, peers, cold, timing: Timing::default() };
        process.life += 1;
        process.instance = instance;
        process.behind = 0;
        process.paused_at = None;
        process.held.clear();
        process.wake_at = None;
        process.role = None;
        process.shares.clear();
        process.counted.clear();
        process.promises = 0;
        process.speakers.clear();
        process.disk_hangs = false;
        process.hung.clear();
        self.changed = true;
        let now = self.origin + Duration::from_millis(self.now);
        let elector = Elector::with_rules(config, process.disk, instance, now, self.rules);
        process.elector = Some(elector);
        self.watchdog.started(at, instance, process.disk.is_some());
        self.drain(at);
    }

    pub(super) fn crash(&mut self, at: usize) {
        self.processes[at].elector = None;
        self.processes[at].role = None;
        self.processes[at].shares.clear();
        self.processes[at].counted.clear();
        self.changed = true;
    }

    /// Stops a process for a while; its clock may stand still too, as a virtual machine's does.
    pub(super) fn pause(&mut self, at: usize, span: Ms, clock_ran: bool) {
        self.processes[at].paused_at = Some(self.now);
        self.changed = true;
        self.post(self.now + span, Event::Resume { process: at, clock_ran });
    }

    /// Tells a process that its partner can do nothing any more.
    pub(super) fn fence(&mut self, at: usize) {
        let now = self.origin + Duration::from_millis(self.now);
        let elector = self.processes[at].elector.as_mut().unwrap();
        elector.handle_input(now, Input::Fenced);
        self.drain(at);
    }

    /// Lets no write end for a while.
    pub(super) fn hang_disk(&mut self, at: usize, span: Ms) {
        self.processes[at].disk_hangs = true;
        let life = self.processes[at].life;
        self.post(self.now + span, Event::Release { process: at, life });
    }

    /// Tells the coordinators that a segment drains, or serves again.
    pub(super) fn tell_drain(&mut self, segment: Segment) {
        for at in 0..self.processes.len() {
            let process = &self.processes[at];
            if let Some(Role::Lead(mandate)) = &process.role {
                let (life, epoch) = (process.life, mandate.epoch);
                let due = self.now + self.dice.range(5, 600);
                self.post(due, Event::Ask { process: at, life, epoch, segment });
            }
        }
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
            if std::mem::take(&mut self.changed) {
                self.judge();
            }
        }
        self.now = until;
    }

    /// Looks whether the cluster is at rest.
    pub(super) fn judge(&mut self) {
        let (unrest, cold) = (unrest(self), cold::unrest(self));
        self.watchdog.judged(self.now, unrest, cold);
    }

    pub(super) fn run_for(&mut self, span: Ms) {
        self.run_until(self.now + span);
    }

    fn happen(&mut self, event: Event) {
        let at = match event {
            Event::Deliver { to, .. } => to,
            Event::Wake { process, .. }
            | Event::Written { process, .. }
            | Event::Ask { process, .. }
            | Event::Release { process, .. }
            | Event::Resume { process, .. } => process,
        };
        let process = &mut self.processes[at];
        match event {
            Event::Resume { clock_ran, .. } => return self.resume(at, clock_ran),
            Event::Release { life, .. } if life == process.life => return self.release_disk(at),
            Event::Release { .. } => return,
            Event::Deliver { .. }
            | Event::Wake { .. }
            | Event::Written { .. }
            | Event::Ask { .. } => {}
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
                // A copy is made now and then.
                if stored.promised.is_some_and(|it| it.term.is_multiple_of(3)) {
                    process.backup = process.disk;
                }
                process.disk = Some(stored);
                elector.handle_input(now, Input::Persisted(serial));
            }
            Event::Ask { life: of, epoch, segment, .. } if of == life => {
                return self.ask(at, epoch, segment);
            }
            Event::Wake { .. }
            | Event::Written { .. }
            | Event::Ask { .. }
            | Event::Resume { .. }
            | Event::Release { .. } => return,
        }
        self.drain(at);
    }

    /// Tells a coordinator whether a segment serves, once somebody of it follows.
    fn ask(&mut self, at: usize, epoch: Epoch, segment: Segment) {
        let process = &self.processes[at];
        let leads = |process: &Process| {
            process.role.as_ref().is_some_and(|role| role.mandate().epoch == epoch)
        };
        if !leads(process) {
            return;
        }
        let promised =
            |process: &Process| process.id.segment == segment && process.runs() && leads(process);
        if !self.processes.iter().any(promised) {
            let life = process.life;
            self.post(self.now + 500, Event::Ask { process: at, life, epoch, segment });
            return;
        }
        let serving = !self.draining.contains(&segment);
        self.watchdog.asked(at, epoch, segment, serving);
        let now = self.origin + Duration::from_millis(self.now - process.behind);
        let elector = self.processes[at].elector.as_mut().expect("it leads");
        elector.handle_input(now, Input::Serving { segment, serving });
        self.drain(at);
    }

    fn resume(&mut self, at: usize, clock_ran: bool) {
        let process = &mut self.processes[at];
        let Some(since) = process.paused_at.take() else { return };
        if process.elector.is_none() {
            return;
        }
        self.changed = true;
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
                process.promises += 1;
                self.watchdog.promised(process.id, stored.promised);
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
            Output::Lead { mandate, shares } => self.lead(at, &mandate, &shares),
            Output::Follow { mandate, shares } => {
                self.watchdog.followed(at, &mandate);
                process.role = Some(Role::Follow(mandate));
                process.counted.clone_from(&shares);
                process.promises = 0;
                process.shares = shares;
                self.changed = true;
            }
            Output::Present(_) => {}
            Output::Speakers(speakers) => {
                process.speakers = speakers;
                self.changed = true;
            }
            Output::Duplicate { instance, withdrawn } => {
                process.withdrawn |= withdrawn;
                self.changed = true;
                self.watchdog.named(at, process.id, instance);
            }
        }
    }

    fn lead(&mut self, at: usize, mandate: &Mandate, shares: &BTreeSet<Segment>) {
        self.watchdog.led(self.now, at, mandate);
        if let Some(fault) = cold::fault(self, at, mandate, shares) {
            self.watchdog.faults.push(fault);
        }
        // What another coordinator gave to a segment that is yet to follow from there.
        let leads = self.processes.iter().filter(|process| process.leads());
        let given: BTreeSet<Segment> =
            leads.flat_map(|process| process.shares.iter().copied()).collect();
        let process = &mut self.processes[at];
        let before = process.role.replace(Role::Lead(mandate.clone()));
        let members = mandate.segments();
        process.counted.extend(given);
        if 1 < process.promises {
            // It may go on from a decision that was outdone before it was told.
            process.counted.extend(self.cold.keys());
        }
        process.counted.retain(|segment| !members.contains(segment));
        process.counted.extend(shares);
        process.shares.clone_from(shares);
        process.promises = 0;
        let is_new = before != process.role;
        self.changed = true;
        if is_new {
            let (life, epoch) = (self.processes[at].life, mandate.epoch);
            for segment in mandate.segments() {
                let due = self.now + self.dice.range(5, 600);
                self.post(due, Event::Ask { process: at, life, epoch, segment });
            }
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
            backup: None,
            instance: 0,
            written_at: 0,
            disk_hangs: false,
            hung: Vec::new(),
            life: 0,
            wake_at: None,
            role: None,
            shares: BTreeSet::new(),
            counted: BTreeSet::new(),
            promises: 0,
            speakers: BTreeMap::new(),
            withdrawn: false,
        }
    }

    pub(super) fn runs(&self) -> bool {
        self.elector.is_some() && self.paused_at.is_none()
    }

    pub(super) fn takes_part(&self) -> bool {
        self.runs() && !self.withdrawn
    }

    pub(super) fn leads(&self) -> bool {
        matches!(self.role, Some(Role::Lead(_)))
    }
}
