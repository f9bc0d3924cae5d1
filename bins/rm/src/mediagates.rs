//! The mediagates as the b2b of this process uses them: who lives, whose port numbers are free, and
//! which calls are open where.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use b2bua::{MediaCall, MediaCommand, MediaEvent, MediaLeg, NotPlaced, Wanted};
use driver::Output;
use failover::controller::Introduce;
use failover::verdicts::Verdicts;
use failover::{Boot, CallId, Epoch, NodeId, Place};
use lb_policy::mediagate::{Choice, Gateway, choose, choose_standby};
use media::{Digest, Lessee, LesseeInput, LesseeOutput, Notice, Welcome};
use tracing::info;

use crate::frames::send_media;

/// Every mediagate that this b2b dials.
#[derive(Debug)]
pub(crate) struct Mediagates {
    host: String,
    gateways: BTreeMap<NodeId, Mediagate>,
    digest_at: Instant,
    outputs: VecDeque<Output>,
}

#[derive(Debug)]
struct Mediagate {
    lessee: Lessee,
    welcome: Option<Welcome>,
    linked: bool,
    /// A link to it has ended, and it has not named itself since.
    broken: bool,
    /// The calls that we hold open there, with the epoch of the last command.
    open: BTreeMap<CallId, Epoch>,
    digest: Digest,
    /// When it is told which calls are not its own any more.
    sync_at: Option<Instant>,
}

/// What a notice of a gateway means for the rest of the process.
#[derive(Debug)]
pub(crate) enum Told {
    /// Nothing more.
    Nothing,
    /// The gateway named itself: hear it, and tell the controllers. It may have missed the last
    /// commands for these calls.
    Introduced(Introduce, Boot, BTreeSet<CallId>),
    /// The b2b is to know.
    Event(Boot, MediaEvent),
    /// These calls are not open there although they should be.
    Missing(Vec<CallId>),
}

impl Mediagates {
    /// Returns mediagates of which nothing is known yet. `host` is where this b2b runs.
    pub(crate) fn new(now: Instant, host: &str, ids: impl IntoIterator<Item = NodeId>) -> Self {
        let gateways = ids.into_iter().map(|id| (id, Mediagate::new())).collect();
        let digest_at = now + DIGEST_PERIOD;
        Self { host: host.to_owned(), gateways, digest_at, outputs: VecDeque::new() }
    }

    /// Returns whether `id` is one of the mediagates.
    pub(crate) fn knows(&self, id: NodeId) -> bool {
        self.gateways.contains_key(&id)
    }

    /// Returns whether one of them is linked and has named itself.
    pub(crate) fn is_any_there(&self) -> bool {
        self.gateways.values().any(|gateway| gateway.linked && gateway.welcome.is_some())
    }

    /// The link came up; the gateway says who it is next.
    pub(crate) fn link_up(&mut self, id: NodeId) {
        let Some(gateway) = self.gateways.get_mut(&id) else { return };
        gateway.linked = true;
    }

    /// The link ended. Calls that are open there go on.
    pub(crate) fn link_down(&mut self, now: Instant, id: NodeId) {
        let Some(gateway) = self.gateways.get_mut(&id) else { return };
        gateway.linked = false;
        gateway.broken = true;
        gateway.lessee.handle_input(now, LesseeInput::LinkDown);
        gateway.drain(id, &mut self.outputs);
    }

    /// The gateway is believed to be dead: its calls are not open there any more. Should it live, it
    /// closes them before their ports can have rested, and after most phones have left it.
    pub(crate) fn buried(&mut self, now: Instant, id: NodeId, boot: Boot) {
        let Some(gateway) = self.gateways.get_mut(&id) else { return };
        if gateway.boot() == Some(boot) {
            gateway.open.clear();
            gateway.digest = Digest::default();
            gateway.sync_at = Some(now + SYNC_AFTER);
        }
    }

    /// These calls are another's from now on.
    pub(crate) fn forget(&mut self, calls: &[CallId]) {
        for gateway in self.gateways.values_mut() {
            calls.iter().for_each(|call| gateway.drops(*call));
        }
    }

    /// Returns whether a call was opened there.
    pub(crate) fn is_open(&self, id: NodeId, call: CallId) -> bool {
        self.gateways.get(&id).is_some_and(|gateway| gateway.open.contains_key(&call))
    }

    /// Returns the boot of a gateway that has named itself.
    pub(crate) fn boot(&self, id: NodeId) -> Option<Boot> {
        self.gateways.get(&id)?.boot()
    }

    /// Takes in what the gateway `id` says.
    pub(crate) fn notice(&mut self, now: Instant, id: NodeId, notice: Notice) -> Told {
        let Some(gateway) = self.gateways.get_mut(&id) else { return Told::Nothing };
        let told = gateway.notice(now, id, notice);
        gateway.drain(id, &mut self.outputs);
        told
    }

    /// Sends a command, and remembers that the call is open there.
    pub(crate) fn command(&mut self, id: NodeId, boot: Boot, command: &MediaCommand) {
        let Some(gateway) = self.gateways.get_mut(&id) else { return };
        if gateway.boot() != Some(boot) {
            return;
        }
        let output = match command {
            MediaCommand::Open(call) => {
                gateway.holds(call);
                let (call, epoch, legs) = open_parts(call);
                send_media(driver::NodeId(id.0), &media::Open { call, epoch, legs })
            }
            MediaCommand::Update(call) => {
                gateway.holds(call);
                let (call, epoch, legs) = open_parts(call);
                send_media(driver::NodeId(id.0), &media::Update { call, epoch, legs })
            }
            MediaCommand::Close { call, epoch } => {
                gateway.drops(*call);
                let close = media::Close { call: media::CallId(call.0), epoch: epoch.0 };
                send_media(driver::NodeId(id.0), &close)
            }
        };
        self.outputs.push_back(output);
    }

    /// Chooses ports for a call.
    pub(crate) fn place(
        &mut self,
        now: Instant,
        call: CallId,
        wanted: Wanted,
        verdicts: &Verdicts,
    ) -> Result<(Option<Place>, Option<Place>), NotPlaced> {
        let mut alive: Vec<Gateway<'_>> = Vec::new();
        let mut lives = false;
        for living in verdicts.living(now) {
            let Some(gateway) = self.gateways.get(&living.gateway) else { continue };
            let Some(welcome) = &gateway.welcome else { continue };
            if !gateway.linked || welcome.boot != living.boot.0 || living.draining {
                continue;
            }
            lives = true;
            let own = u32::try_from(2 * gateway.open.len()).unwrap_or(u32::MAX);
            // One that has room but no numbers for us yet, such as a restarted one whose ports rest,
            // is passed over; one that is full keeps its calls off the standbys.
            let room = living.legs.saturating_add(2) <= living.legs_max;
            let dry = gateway.lessee.ready(now) < 2;
            alive.push(Gateway {
                id: living.gateway.0,
                host: &welcome.host,
                standby: living.standby,
                alive: !(dry && room),
                legs: living.legs.max(own),
                legs_max: living.legs_max,
            });
        }
        let none = if lives { NotPlaced::Full } else { NotPlaced::NoGateway };
        let choice = match wanted {
            Wanted::Both => choose(&alive, &self.host, call.0).ok_or(none)?,
            Wanted::Standby { holder } => {
                let standby = choose_standby(&alive, holder.0, &self.host, call.0).ok_or(none)?;
                let place = self.allocate(now, NodeId(standby)).ok_or(none)?;
                return Ok((None, Some(place)));
            }
        };
        let Choice { holder, standby } = choice;
        let holder = self.allocate(now, NodeId(holder)).ok_or(none)?;
        let standby = standby.and_then(|standby| self.allocate(now, NodeId(standby)));
        Ok((Some(holder), standby))
    }

    /// Keeps back ports that a call names which did not get them here.
    pub(crate) fn keep_back(&mut self, place: &Place) {
        let Some(gateway) = self.gateways.get_mut(&place.gateway) else { return };
        for port in place.ports {
            gateway.lessee.keep_back(place.boot.0, port);
        }
    }

    /// Takes ports back that a call needs no more.
    pub(crate) fn free(&mut self, now: Instant, place: &Place) {
        let Some(gateway) = self.gateways.get_mut(&place.gateway) else { return };
        for port in place.ports {
            gateway.lessee.free(now, place.boot.0, port);
        }
        gateway.drain(place.gateway, &mut self.outputs);
    }

    /// Does whatever is due at `now`. `knows_all`: it is known which calls are ours. A gateway closes
    /// what it does not hear of, so until then it hears nothing.
    pub(crate) fn handle_timeout(&mut self, now: Instant, knows_all: bool) {
        let digest_due = self.digest_at <= now;
        if digest_due {
            self.digest_at = now + DIGEST_PERIOD;
        }
        for (id, gateway) in &mut self.gateways {
            gateway.lessee.handle_timeout(now);
            let is_there = gateway.linked && gateway.welcome.is_some();
            if gateway.sync_at.is_some_and(|at| at <= now) {
                gateway.sync_at = (!knows_all).then(|| now + SYNC_AFTER);
                if is_there && knows_all {
                    self.outputs.push_back(send_media(driver::NodeId(id.0), &gateway.sync()));
                }
            }
            if digest_due && is_there && knows_all {
                self.outputs.push_back(send_media(driver::NodeId(id.0), &gateway.digest));
            }
            gateway.drain(*id, &mut self.outputs);
        }
    }

    /// Returns the next thing to do.
    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next needed.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let gateways = self.gateways.values();
        let due = gateways.flat_map(|gateway| [gateway.lessee.poll_timeout(), gateway.sync_at]);
        due.flatten().chain([self.digest_at]).min()
    }

    /// Returns calls open and port numbers ready, per gateway.
    pub(crate) fn figures(
        &self,
        now: Instant,
    ) -> impl Iterator<Item = (NodeId, bool, usize, usize)> {
        self.gateways.iter().map(move |(id, gateway)| {
            (*id, gateway.linked, gateway.open.len(), gateway.lessee.ready(now))
        })
    }

    fn allocate(&mut self, now: Instant, id: NodeId) -> Option<Place> {
        let gateway = self.gateways.get_mut(&id)?;
        let ports = gateway.lessee.allocate(now);
        gateway.drain(id, &mut self.outputs);
        let ports = ports?;
        let address = gateway.welcome.as_ref()?.advertise;
        Some(Place { gateway: id, boot: Boot(ports.boot), address, ports: ports.ports })
    }
}

impl Mediagate {
    fn new() -> Self {
        Self {
            // No standby is named, for whose sake a gateway would keep what this b2b had open when it
            // died: calls that another took over are that one's by then, and those that it had no copy
            // of shall end.
            lessee: Lessee::new(None),
            welcome: None,
            linked: false,
            broken: false,
            open: BTreeMap::new(),
            digest: Digest::default(),
            sync_at: None,
        }
    }

    fn boot(&self) -> Option<Boot> {
        self.welcome.as_ref().map(|welcome| Boot(welcome.boot))
    }

    fn notice(&mut self, now: Instant, id: NodeId, notice: Notice) -> Told {
        let boot = self.boot();
        match notice {
            Notice::Welcome(welcome) => self.welcome(now, id, welcome),
            Notice::Leased(leased) => {
                self.lessee.handle_input(now, LesseeInput::Leased(leased));
                Told::Nothing
            }
            Notice::Failed(failed) => {
                let (call, epoch) = (CallId(failed.call.0), Epoch(failed.epoch));
                self.drops(call);
                event(boot, MediaEvent::Failed { call, epoch, leg: usize::from(failed.leg) })
            }
            Notice::Latched(latched) => {
                let call = CallId(latched.call.0);
                let media::LatchedSource { addr, ssrc, seq } = latched.source;
                let source = failover::Latched { addr, ssrc, seq };
                let Some(epoch) = self.open.get(&call).copied() else { return Told::Nothing };
                let leg = usize::from(latched.leg);
                event(boot, MediaEvent::Latched { call, epoch, leg, latched: source })
            }
            Notice::Silent(silent) => {
                let call = CallId(silent.call.0);
                let Some(epoch) = self.open.get(&call).copied() else { return Told::Nothing };
                event(boot, MediaEvent::Silent { call, epoch, leg: usize::from(silent.leg) })
            }
            Notice::DigestDiffers(_) => {
                self.sync_at = Some(now);
                Told::Nothing
            }
            Notice::Missing(missing) => {
                Told::Missing(missing.calls.into_iter().map(|call| CallId(call.0)).collect())
            }
        }
    }

    fn welcome(&mut self, now: Instant, id: NodeId, welcome: Welcome) -> Told {
        let boot = Boot(welcome.boot);
        let mut unsure = BTreeSet::new();
        if self.boot() != Some(boot) {
            self.open.clear();
            self.digest = Digest::default();
            // It keeps the calls and port numbers of an earlier life of ours until it hears of them.
            self.sync_at = Some(now + SYNC_AFTER);
        } else if std::mem::take(&mut self.broken) {
            // Commands may have been lost with the link before.
            unsure.extend(self.open.keys().copied());
            self.sync_at = Some(now);
        }
        let introduce = Introduce {
            gateway: id,
            beat: welcome.beat,
            host: welcome.host.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let Welcome { boot: number, host, legs_max, draining, .. } = &welcome;
        info!(gateway = id.0, boot = number, host, legs_max, draining, "mediagate is there");
        self.lessee.handle_input(now, LesseeInput::Welcome(welcome.clone()));
        self.welcome = Some(welcome);
        Told::Introduced(introduce, boot, unsure)
    }

    fn sync(&self) -> media::Sync {
        let calls = self.open.iter().map(|(call, epoch)| (media::CallId(call.0), epoch.0));
        media::Sync { calls: calls.collect() }
    }

    fn holds(&mut self, call: &MediaCall) {
        if self.open.insert(call.call, call.epoch).is_none() {
            self.digest.add(media::CallId(call.call.0));
        }
    }

    fn drops(&mut self, call: CallId) {
        if self.open.remove(&call).is_some() {
            self.digest.remove(media::CallId(call.0));
        }
    }

    fn drain(&mut self, id: NodeId, outputs: &mut VecDeque<Output>) {
        while let Some(output) = self.lessee.poll_output() {
            outputs.push_back(match output {
                LesseeOutput::Inherit(inherit) => send_media(driver::NodeId(id.0), &inherit),
                LesseeOutput::Lease(lease) => send_media(driver::NodeId(id.0), &lease),
                LesseeOutput::Return(block) => send_media(driver::NodeId(id.0), &block),
            });
        }
    }
}

fn event(boot: Option<Boot>, event: MediaEvent) -> Told {
    boot.map_or(Told::Nothing, |boot| Told::Event(boot, event))
}

fn open_parts(call: &MediaCall) -> (media::CallId, u32, [media::LegSpec; 2]) {
    let [caller, callee] = &call.legs;
    (media::CallId(call.call.0), call.epoch.0, [leg_spec(caller), leg_spec(callee)])
}

fn leg_spec(leg: &MediaLeg) -> media::LegSpec {
    let latched = leg.latched.map(|failover::Latched { addr, ssrc, seq }| media::LatchedSource {
        addr,
        ssrc,
        seq,
    });
    media::LegSpec {
        port: leg.port,
        remote: leg.remote,
        remote_rtcp: leg.remote_rtcp,
        payload_types: leg.payload_types.clone(),
        held: leg.held,
        nat: leg.nat,
        latched,
    }
}

/// Less than the rest of a port, so that no new call meets an old one.
const SYNC_AFTER: Duration = Duration::from_millis(1500);

/// How often the b2b and a mediagate compare which calls are open.
const DIGEST_PERIOD: Duration = Duration::from_secs(30);
