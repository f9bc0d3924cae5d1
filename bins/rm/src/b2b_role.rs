//! The b2b role: the call machine, the mediagates it uses and what it believes about them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use b2bua::admission::Ask;
use b2bua::frame::{SipIn, SipOut};
use b2bua::{B2b, Input, MediaCommand, NotPlaced, Wanted};
use driver::{Class, Output};
use failover::controller::Introduce;
use failover::ownership::Ownership;
use failover::replica::{Replica, Replicator};
use failover::verdicts::{self, Verdicts};
use failover::{Boot, CallId, CallRecord, Clock, NodeId, Place, SlotSet};
use tracing::{debug, error, info, warn};

use self::details::Details;
use self::exits::Exit;
use self::held::Held;
use self::restoring::Restoring;
use crate::beats::Beats;
use crate::clocks::Clocks;
use crate::frames::{self, send};
use crate::kept::Kept;
use crate::mediagates::{Mediagates, Told};

mod copies;
mod details;
mod exits;
mod held;
mod restoring;

/// What this role asks of the rest of the process.
#[derive(Debug)]
pub(crate) enum Wish {
    /// Hand a SIP message to its gate.
    Sip(SipOut),
    /// Hand a message of a slot that is not ours to its owner.
    PassOn(SipIn),
    /// May this call be?
    Admit(CallId, Box<Ask>),
    /// A call counts no more.
    Released(CallId),
    /// Tell the controller of this process.
    Introduce(Introduce),
    /// Tell the controller of this process.
    Ask(failover::controller::Ask),
}

pub(crate) struct B2bRole {
    own: NodeId,
    pub(crate) b2b: B2b,
    pub(crate) ownership: Ownership,
    pub(crate) verdicts: Verdicts,
    pub(crate) mediagates: Mediagates,
    /// Controllers that can be reached, this process among them.
    controllers: Vec<NodeId>,
    introduced: Vec<Introduce>,
    pub(crate) replicator: Replicator<Exit>,
    pub(crate) replica: Replica,
    /// Which other gate last handed on something of a gate, and when.
    ways: BTreeMap<NodeId, (NodeId, Instant)>,
    pub(crate) clocks: Clocks,
    /// Slots given away and not taken yet.
    yielded: SlotSet,
    /// Until when a role that drains tries to give its slots away.
    pub(crate) gives_until: Option<Instant>,
    /// So long after slots were lost, messages for them still come and are passed on.
    lingers_until: Option<Instant>,
    /// The local store, where there is one.
    pub(crate) kept: Option<Kept>,
    /// What is known of slots that were won and is not gone on with.
    restoring: Restoring,
    /// Of those that are given away, slots in which something is still under way: their taker is not told.
    giving: SlotSet,
    /// When it is told all the same.
    under_way_until: Option<Instant>,
    /// What leaves at the end of this turn.
    exits: VecDeque<Exit>,
    /// What waits for the lease, or for the slots that are being given away.
    held: Held,
    pub(crate) details: Details,
    /// The operator was told that another process runs as this node.
    is_replaced: bool,
    /// Slots of others that were taken without a whole copy, as far as that was said.
    bare: u64,
    /// Copies that were taken and cannot be read.
    pub(crate) unread: u64,
    /// How often a call found no place for its media since that was said.
    unplaced: u64,
    unplaced_told_at: Option<Instant>,
    /// Messages that were not sent for want of a lease.
    pub(crate) muted: u64,
    /// Messages of phones that were dropped because too many waited for the owners of their slots.
    pub(crate) crowded_out: u64,
    pub(crate) wishes: VecDeque<Wish>,
}

impl B2bRole {
    pub(crate) fn new(
        own: NodeId,
        (boot, clock): (Boot, Clock),
        b2b: B2b,
        ownership: Ownership,
        verdicts: Verdicts,
        mediagates: Mediagates,
    ) -> Self {
        Self {
            own,
            b2b,
            ownership,
            verdicts,
            mediagates,
            controllers: Vec::new(),
            introduced: Vec::new(),
            replicator: Replicator::new(boot),
            replica: Replica::new(frames::VALUE_KINDS, frames::is_readable),
            ways: BTreeMap::new(),
            clocks: Clocks::new(clock, boot),
            yielded: SlotSet::EMPTY,
            gives_until: None,
            kept: None,
            restoring: Restoring::default(),
            lingers_until: None,
            giving: SlotSet::EMPTY,
            under_way_until: None,
            exits: VecDeque::new(),
            held: Held::default(),
            details: Details::default(),
            is_replaced: false,
            bare: 0,
            unread: 0,
            unplaced: 0,
            unplaced_told_at: None,
            muted: 0,
            crowded_out: 0,
            wishes: VecDeque::new(),
        }
    }

    /// A message of a gate came from that gate itself or through another node.
    pub(crate) fn came_by(&mut self, now: Instant, gate: NodeId, peer: NodeId) {
        if gate == peer {
            self.ways.remove(&gate);
        } else {
            self.ways.insert(gate, (peer, now));
        }
    }

    /// Returns the node through which something of a gate just came.
    pub(crate) fn way_to(&self, now: Instant, gate: NodeId) -> Option<NodeId> {
        self.ways.get(&gate).filter(|(_, at)| now < *at + WAY).map(|(way, _)| *way)
    }

    pub(crate) fn controller_up(&mut self, now: Instant, id: NodeId, out: &mut VecDeque<Output>) {
        self.controllers.push(id);
        for introduce in self.introduced.clone() {
            self.introduce(id, &introduce, out);
        }
        self.verdicts.handle_input(now, verdicts::Input::ControllerUp(id));
    }

    pub(crate) fn controller_down(&mut self, now: Instant, id: NodeId) {
        self.controllers.retain(|known| *known != id);
        self.verdicts.handle_input(now, verdicts::Input::ControllerDown(id));
    }

    /// Takes in what a mediagate says.
    pub(crate) fn notice(
        &mut self,
        now: Instant,
        id: NodeId,
        notice: media::Notice,
        beats: &mut Beats,
        out: &mut VecDeque<Output>,
    ) {
        match self.mediagates.notice(now, id, notice) {
            Told::Nothing => {}
            Told::Introduced(introduce, boot, mut unsure) => {
                beats.watch(id, introduce.beat, out);
                self.verdicts.handle_input(now, verdicts::Input::Watch(id));
                self.verdicts.handle_input(now, verdicts::Input::LinkUp(id, boot));
                self.introduced.retain(|known| known.gateway != id);
                self.introduced.push(introduce.clone());
                for controller in self.controllers.clone() {
                    self.introduce(controller, &introduce, out);
                }
                unsure.extend(self.unopened(id, boot));
                self.reopen(now, id, unsure);
                self.leave(now, id, boot);
            }
            Told::Event(boot, event) => {
                self.b2b.handle_input(now, Input::Media { gateway: id, boot, event });
            }
            Told::Missing(calls) => self.reopen(now, id, calls),
        }
    }

    /// A mediagate that names itself proves the death of its earlier lives, also of those that only a
    /// record knows.
    fn leave(&mut self, now: Instant, gateway: NodeId, boot: Boot) {
        let records = self.b2b.records();
        let places = records.flat_map(|record| record.holder.iter().chain(&record.standby));
        let former = places.filter(|place| place.gateway == gateway && place.boot != boot);
        let former: BTreeSet<Boot> = former.map(|place| place.boot).collect();
        for boot in former {
            self.b2b.handle_input(now, Input::GatewayDead { gateway, boot });
        }
    }

    /// Returns the calls whose media is at a gateway that was not told so: of one that has not named
    /// itself nobody knows whether it is the one that the record means.
    fn unopened(&self, id: NodeId, boot: Boot) -> Vec<CallId> {
        let is_there = |record: &&CallRecord| {
            let is_holder = |place: Place| (place.gateway, place.boot) == (id, boot);
            record.holder.is_some_and(is_holder) && !record.is_ended()
        };
        let calls = self.b2b.records().filter(is_there).map(|record| record.call);
        calls.filter(|call| !self.mediagates.is_open(id, *call)).collect()
    }

    /// Sends again what a mediagate should carry and does not.
    fn reopen(&mut self, now: Instant, id: NodeId, calls: impl IntoIterator<Item = CallId>) {
        for call in calls {
            let Some((gateway, boot, command)) = self.b2b.media_call(call) else { continue };
            if gateway == id {
                self.media(now, gateway, boot, command);
            }
        }
    }

    /// Tells a mediagate something as soon as we may.
    fn media(&mut self, now: Instant, gateway: NodeId, boot: Boot, command: MediaCommand) {
        if self.ownership.may_act(now) {
            self.mediagates.command(gateway, boot, &command);
        } else {
            self.held.command(gateway, boot, command);
        }
    }

    /// Does what the mediagates wait for. Nothing that this b2b asks for may be under way.
    pub(crate) fn serve_mediagates(&mut self, now: Instant) {
        let map = self.ownership.map();
        let is_anothers = |slot| map.get(slot).is_some_and(|reign| reign.owner != self.own);
        let knows_all = self.held.is_empty()
            && self.restoring.is_empty()
            && SlotSet::ALL.without(self.ownership.own()).iter().all(is_anothers);
        self.mediagates.handle_timeout(now, knows_all);
    }

    fn introduce(&mut self, controller: NodeId, introduce: &Introduce, out: &mut VecDeque<Output>) {
        if controller == self.own {
            self.wishes.push_back(Wish::Introduce(introduce.clone()));
        } else {
            out.push_back(send(driver::NodeId(controller.0), Class::Control, introduce));
        }
    }

    /// Carries out what the machines of this role ask for; returns whether there was anything.
    pub(crate) fn drain(
        &mut self,
        now: Instant,
        beats: &Beats,
        out: &mut VecDeque<Output>,
    ) -> bool {
        let mut busy = false;
        self.keep_the_rest(now);
        self.tell_replaced();
        self.lingers_until.take_if(|until| *until <= now);
        self.exits.extend(self.details.due(now).into_iter().map(Exit::Detail));
        busy |= self.restore_due(now);
        busy |= self.hear_awaited(now);
        busy |= self.release(now);
        while let Some(output) = self.verdicts.poll_output() {
            busy = true;
            self.believe(now, output, beats, out);
        }
        while let Some(output) = self.b2b.poll_output() {
            busy = true;
            self.let_out(now, output);
        }
        busy |= self.drain_copies(now, out);
        busy |= self.give(now);
        let lines = std::iter::from_fn(|| self.details.poll_output());
        let outputs = lines.chain(std::iter::from_fn(|| self.mediagates.poll_output()));
        for output in outputs {
            busy = true;
            out.push_back(output);
        }
        busy
    }

    fn believe(
        &mut self,
        now: Instant,
        output: verdicts::Output,
        beats: &Beats,
        out: &mut VecDeque<Output>,
    ) {
        match output {
            verdicts::Output::Hear(gateway) => beats.ask(gateway, out),
            verdicts::Output::Ask { controller, ask } if controller == self.own => {
                self.wishes.push_back(Wish::Ask(ask));
            }
            verdicts::Output::Ask { controller, ask } => {
                out.push_back(send(driver::NodeId(controller.0), Class::Control, &ask));
            }
            verdicts::Output::Dead { gateway, boot, cause } => {
                warn!(
                    gateway = gateway.0,
                    boot = boot.0,
                    ?cause,
                    "mediagate is dead, its calls move"
                );
                self.mediagates.buried(now, gateway, boot);
                self.b2b.handle_input(now, Input::GatewayDead { gateway, boot });
            }
        }
    }

    /// Nothing else shows why a process with two of its kind is mute.
    fn tell_replaced(&mut self) {
        let is_replaced = self.ownership.is_replaced();
        if is_replaced == self.is_replaced {
            return;
        }
        self.is_replaced = is_replaced;
        let node = self.own.0;
        if is_replaced {
            error!(
                node,
                "another process that was started later runs as this node: this one is mute, end one of them"
            );
        } else {
            info!(node, "no other process runs as this node any more");
        }
    }

    /// Chooses ports for a call.
    fn place(&mut self, now: Instant, call: CallId, wanted: Wanted) {
        let answer = match self.mediagates.place(now, call, wanted, &self.verdicts) {
            Ok((holder, standby)) => Input::Placed { call, holder, standby },
            Err(why) => {
                match wanted {
                    Wanted::Both => self.tell_unplaced(now, call, why),
                    Wanted::Standby { .. } => {
                        debug!(%call, "no other mediagate that has room lives: no standby");
                    }
                }
                Input::NotPlaced { call, why }
            }
        };
        self.b2b.handle_input(now, answer);
    }

    /// Says that a call has no place for its media, at most once a minute.
    fn tell_unplaced(&mut self, now: Instant, call: CallId, why: NotPlaced) {
        let why = match why {
            NotPlaced::NoGateway => "no mediagate lives",
            NotPlaced::Full => "ports or files of the mediagates are exhausted",
        };
        self.unplaced += 1;
        if self.unplaced_told_at.is_some_and(|at| now < at + UNPLACED_PERIOD) {
            debug!(%call, why, "no place for the media");
            return;
        }
        self.unplaced_told_at = Some(now);
        let times = std::mem::take(&mut self.unplaced);
        warn!(%call, times, why, "no place for the media of a call");
    }
}

/// How long what is under way in slots that are given away is waited for.
const GIVING_MAX: Duration = Duration::from_millis(500);

/// By then every gate knows who owns slots that were given away.
const LINGER: Duration = Duration::from_millis(200);

/// How often it is said that calls find no place for their media.
const UNPLACED_PERIOD: Duration = Duration::from_secs(60);

/// How long the way by which something of a gate came is taken back to it.
const WAY: Duration = Duration::from_secs(1);
