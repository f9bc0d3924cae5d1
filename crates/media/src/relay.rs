//! The legs of one worker: what is forwarded whereto.

mod leg;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use crate::frame::{CallId, FailReason, Failed, Latched, LegSpec, Notice, Silent};
use crate::latch::{SILENCE, Surroundings, Verdict};
use crate::rtp::{Packet, Rtcp, Rtp};
use leg::Leg;

/// What a [`Relay`] has to know from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayConfig {
    /// The ports of all workers of this gateway, RTP and RTCP.
    pub ports: RangeInclusive<u16>,
    /// Every address under which those ports can be reached: nothing is ever sent there, nor learned from there.
    pub addresses: Vec<IpAddr>,
    /// A phone that should send and does not for this long is reported.
    pub silence_max: Duration,
}

/// Forwards the RTP and RTCP of the calls of one worker.
///
/// A port is named by its number: an even one carries RTP, the next one RTCP. Packets are forwarded unchanged. The
/// owner receives them, asks [`Relay::forward`] and sends; it opens, connects and closes the sockets when an output
/// says so.
#[derive(Debug)]
pub struct Relay {
    config: RelayConfig,
    /// By RTP port, counted from the lowest.
    legs: Vec<Option<Box<Leg>>>,
    calls: BTreeMap<CallId, Call>,
    /// One entry for each leg that waits for something.
    timers: BTreeSet<(Instant, u16)>,
    counters: Counters,
    outputs: VecDeque<RelayOutput>,
}

/// What a [`Relay`] asks of its owner, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelayOutput {
    /// Open the sockets of this RTP port and of the next one; say [`Relay::refuse`] if that fails.
    Open {
        /// Even.
        port: u16,
    },
    /// Close both sockets.
    Close {
        /// Even.
        port: u16,
    },
    /// Connect the RTP socket: sending gets cheaper and strangers are kept out. Worth nothing where sockets cost nothing.
    Connect {
        /// Even.
        port: u16,
        /// The phone.
        to: SocketAddr,
    },
    /// Undo that, so that others can be heard again.
    Disconnect {
        /// Even.
        port: u16,
    },
    /// Tell the call's holder.
    Notice(Notice),
}

/// Where one packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The local port to send from.
    pub port: u16,
    /// The phone.
    pub to: SocketAddr,
}

/// Packets of one worker, each counted once on its way in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Forwarded.
    pub forwarded: u64,
    /// Bytes of those, without UDP and IP headers.
    pub octets: u64,
    /// From a source that the leg does not listen to.
    pub foreign: u64,
    /// Neither RTP nor RTCP, or to a port that is not open.
    pub malformed: u64,
    /// Well, but the other phone has no address yet, or is on hold.
    pub untargeted: u64,
    /// Sources that changed without a new SDP.
    pub relocks: u64,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    epoch: u32,
    /// RTP ports.
    ports: [u16; 2],
    relocks: u8,
}

impl Relay {
    /// A worker without calls.
    pub fn new(config: RelayConfig) -> Self {
        let pairs = config.ports.len().div_ceil(2);
        Self {
            config,
            legs: std::iter::repeat_with(|| None).take(pairs).collect(),
            calls: BTreeMap::new(),
            timers: BTreeSet::new(),
            counters: Counters::default(),
            outputs: VecDeque::new(),
        }
    }

    /// Makes the call what `legs` say, whether it is new, known or just the same. All of it, or nothing: a port that
    /// cannot be had closes the call and is reported.
    pub fn apply(&mut self, now: Instant, call: CallId, epoch: u32, legs: &[LegSpec; 2]) {
        if let Some((leg, reason)) = self.fault(call, legs) {
            self.close(call);
            self.fail(call, epoch, leg, reason);
            return;
        }
        let ports = [legs[0].port, legs[1].port];
        let before = self.calls.get(&call).copied();
        for old in before.iter().flat_map(|before| before.ports) {
            if !ports.contains(&old) {
                self.remove(old);
            }
        }
        let relocks = before.map_or(0, |before| before.relocks);
        self.calls.insert(call, Call { epoch, ports, relocks });
        for (side, spec) in (0_u8..).zip(legs) {
            let partner = ports[usize::from(side ^ 1)];
            self.apply_leg(now, call, side, partner, spec);
        }
        // Only when both are known is either one's silence a fault.
        for port in ports {
            self.arm(now, port);
        }
    }

    /// Ends a call. An unknown one is ignored.
    pub fn close(&mut self, call: CallId) {
        if let Some(Call { ports, .. }) = self.calls.remove(&call) {
            for port in ports {
                self.remove(port);
            }
        }
    }

    /// Takes in that the sockets of an [`RelayOutput::Open`] could not be opened: the call is closed and reported.
    pub fn refuse(&mut self, port: u16, reason: FailReason) {
        let Some(leg) = self.leg(port) else { return };
        let (call, side) = (leg.call, leg.side);
        let epoch = self.calls.get(&call).map_or(0, |call| call.epoch);
        self.close(call);
        self.fail(call, epoch, side, reason);
    }

    /// Says what becomes of a packet that came from `from` to a local `port`; `None` drops it.
    pub fn forward(
        &mut self,
        now: Instant,
        port: u16,
        from: SocketAddr,
        packet: &[u8],
    ) -> Option<Forward> {
        let forward = match Packet::parse(packet) {
            Some(Packet::Rtp(rtp)) if port.is_multiple_of(2) => self.rtp(now, port, from, rtp),
            Some(Packet::Rtcp(rtcp)) => self.rtcp(port, from, rtcp),
            Some(Packet::Rtp(_)) | None => {
                self.counters.malformed += 1;
                return None;
            }
        }?;
        self.counters.forwarded += 1;
        self.counters.octets += packet.len() as u64;
        Some(forward)
    }

    /// Disconnects and reports phones that have been silent for too long.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(at, port)) = self.timers.first()
            && at <= now
        {
            self.timers.pop_first();
            if let Some(leg) = self.leg_mut(port) {
                leg.timer_at = None;
                self.look_after(now, port);
                self.arm(now, port);
            }
        }
    }

    /// Returns the next thing to do. Drain until `None` after every other call; after [`Relay::forward`] at leisure.
    pub fn poll_output(&mut self) -> Option<RelayOutput> {
        self.outputs.pop_front()
    }

    /// Returns when `handle_timeout` is next needed.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Whether a port, RTP or RTCP, belongs to an open leg.
    pub fn has(&self, port: u16) -> bool {
        self.leg(port).is_some()
    }

    /// Legs that are open.
    pub fn legs(&self) -> usize {
        2 * self.calls.len()
    }

    /// What has happened to packets so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Whether nothing is ever sent to, or learned from, `addr`.
    fn is_relay(&self, addr: SocketAddr) -> bool {
        self.config.ports.contains(&addr.port()) && self.config.addresses.contains(&addr.ip())
    }

    fn rtp(&mut self, now: Instant, port: u16, from: SocketAddr, rtp: Rtp) -> Option<Forward> {
        let Some(leg) = self.leg(port) else {
            self.counters.malformed += 1;
            return None;
        };
        let partner_port = leg.partner;
        let surroundings = if leg.latch.source() == Some(from) {
            Surroundings { negotiated: true, barred: false, relocks_spent: false }
        } else {
            self.surroundings(leg, from, rtp)
        };
        let leg = self.leg_mut(port)?;
        match leg.latch.judge(now, from, rtp, surroundings) {
            Verdict::Known => {}
            Verdict::Locked => self.locked(port, false),
            Verdict::Relocked => self.locked(port, true),
            Verdict::Foreign => {
                self.counters.foreign += 1;
                return None;
            }
        }
        self.heard(now, port, from);
        let to = self.leg(partner_port).and_then(|partner| partner.latch.target());
        self.sent_to(to.map(|to| Forward { port: partner_port, to }))
    }

    fn rtcp(&mut self, port: u16, from: SocketAddr, rtcp: Rtcp) -> Option<Forward> {
        let Some(leg) = self.leg(port) else {
            self.counters.malformed += 1;
            return None;
        };
        let barred = self.is_barred(leg, from);
        let partner_port = leg.partner;
        if !self.leg_mut(port)?.accept_rtcp(from, rtcp.ssrc, port.is_multiple_of(2), barred) {
            self.counters.foreign += 1;
            return None;
        }
        let forward = self.leg(partner_port).and_then(|partner| {
            if partner.muxes() {
                partner.latch.target().map(|to| Forward { port: partner_port, to })
            } else {
                let to = partner.rtcp_target()?;
                Some(Forward { port: partner_port + 1, to })
            }
        });
        self.sent_to(forward)
    }

    /// Nothing is ever reflected into a relay's port, whoever names it.
    fn sent_to(&mut self, forward: Option<Forward>) -> Option<Forward> {
        let forward = forward.filter(|forward| !self.is_relay(forward.to));
        if forward.is_none() {
            self.counters.untargeted += 1;
        }
        forward
    }

    fn surroundings(&self, leg: &Leg, from: SocketAddr, rtp: Rtp) -> Surroundings {
        Surroundings {
            negotiated: leg.payload_types.allow(rtp.payload_type),
            barred: self.is_barred(leg, from),
            relocks_spent: self
                .calls
                .get(&leg.call)
                .is_none_or(|call| crate::latch::RELOCKS_MAX <= call.relocks),
        }
    }

    /// A relay's own port, or the other party of the call.
    fn is_barred(&self, leg: &Leg, from: SocketAddr) -> bool {
        self.is_relay(from) || self.leg(leg.partner).is_some_and(|partner| partner.is_at(from))
    }

    /// The leg's source is new.
    fn locked(&mut self, port: u16, again: bool) {
        self.disconnect(port);
        let Some(leg) = self.leg(port) else { return };
        let call = leg.call;
        if again {
            self.counters.relocks += 1;
            if let Some(call) = self.calls.get_mut(&call) {
                call.relocks = call.relocks.saturating_add(1);
            }
        }
        self.report(port);
    }

    /// A packet was accepted from the leg's source.
    fn heard(&mut self, now: Instant, port: u16, from: SocketAddr) {
        let Some(leg) = self.leg_mut(port) else { return };
        leg.packets = leg.packets.wrapping_add(1);
        let worth_a_report = leg.is_report_due();
        let connect = !leg.connected && leg.latch.target() == Some(from);
        leg.connected |= connect;
        if std::mem::take(&mut leg.reported_silent) || connect {
            self.arm(now, port);
        }
        if connect {
            self.outputs.push_back(RelayOutput::Connect { port, to: from });
        }
        if worth_a_report {
            self.report(port);
        }
    }

    /// Tells the holder what another gateway would need.
    fn report(&mut self, port: u16) {
        let Some(leg) = self.leg_mut(port) else { return };
        let Some(source) = leg.latch.known() else { return };
        leg.reported_ssrc = source.ssrc;
        leg.reported_at_packet = leg.packets;
        let (call, side) = (leg.call, leg.side);
        let relocks = self.calls.get(&call).map_or(0, |call| call.relocks);
        let latched = Latched { call, leg: side, source, relocks };
        self.outputs.push_back(RelayOutput::Notice(Notice::Latched(latched)));
    }

    /// The leg whose timer was due has been silent, or not.
    fn look_after(&mut self, now: Instant, port: u16) {
        let silence_max = self.config.silence_max;
        let active = self.is_active(port);
        let Some(leg) = self.leg_mut(port) else { return };
        let quiet = now.saturating_duration_since(leg.quiet_since());
        let silent = active && !leg.reported_silent && silence_max <= quiet;
        leg.reported_silent |= silent;
        let (call, side) = (leg.call, leg.side);
        if silent {
            let silent = Silent { call, leg: side };
            self.outputs.push_back(RelayOutput::Notice(Notice::Silent(silent)));
        }
        if SILENCE <= quiet {
            self.disconnect(port);
        }
    }

    fn disconnect(&mut self, port: u16) {
        if let Some(leg) = self.leg_mut(port)
            && leg.connected
        {
            leg.connected = false;
            self.outputs.push_back(RelayOutput::Disconnect { port });
        }
    }

    /// Whether packets should come: both phones have said where they are, and this one is not on hold.
    fn is_active(&self, port: u16) -> bool {
        self.leg(port).is_some_and(|leg| {
            let partner = self.leg(leg.partner);
            !leg.held
                && leg.latch.remote().is_some()
                && partner.is_some_and(|partner| partner.latch.remote().is_some())
        })
    }

    /// Sets the leg's one timer to what is due first. Packets do not move it: it looks again when it is due.
    fn arm(&mut self, now: Instant, port: u16) {
        let silence_max = self.config.silence_max;
        let active = self.is_active(port);
        let Some(leg) = self.leg_mut(port) else { return };
        if !active {
            leg.active_since = None;
        } else if leg.active_since.is_none() {
            leg.active_since = Some(now);
        }
        let quiet_since = leg.quiet_since();
        let disconnect_at = leg.connected.then(|| quiet_since + SILENCE);
        let silent_at = (active && !leg.reported_silent).then(|| quiet_since + silence_max);
        let at = disconnect_at.into_iter().chain(silent_at).min();
        let before = std::mem::replace(&mut leg.timer_at, at);
        if before != at {
            self.timers.extend(at.map(|at| (at, port)));
            if let Some(before) = before {
                self.timers.remove(&(before, port));
            }
        }
    }

    fn apply_leg(&mut self, now: Instant, call: CallId, side: u8, partner: u16, spec: &LegSpec) {
        let Some(leg) = self.leg_mut(spec.port) else {
            let leg = Leg::new(now, call, side, partner, spec);
            if let Some(slot) = self.slot(spec.port) {
                self.legs[slot] = Some(Box::new(leg));
                self.outputs.push_back(RelayOutput::Open { port: spec.port });
            }
            return;
        };
        leg.partner = partner;
        if leg.update(now, spec) {
            self.disconnect(spec.port);
        }
    }

    /// Why a call's ports cannot be had, if so: the leg at fault.
    fn fault(&self, call: CallId, legs: &[LegSpec; 2]) -> Option<(u8, FailReason)> {
        (0_u8..).zip(legs).find_map(|(side, spec)| {
            let other = &legs[usize::from(side ^ 1)];
            if !spec.port.is_multiple_of(2)
                || spec.port == other.port
                || self.slot(spec.port).is_none()
                || spec.port == *self.config.ports.end()
            {
                return Some((side, FailReason::BadPort));
            }
            let taken = self.leg(spec.port).is_some_and(|leg| leg.call != call || leg.side != side);
            taken.then_some((side, FailReason::PortInUse))
        })
    }

    fn fail(&mut self, call: CallId, epoch: u32, leg: u8, reason: FailReason) {
        let failed = Failed { call, epoch, leg, reason };
        self.outputs.push_back(RelayOutput::Notice(Notice::Failed(failed)));
    }

    fn remove(&mut self, port: u16) {
        let leg = self.slot(port).and_then(|slot| self.legs[slot].take());
        if let Some(leg) = leg {
            if let Some(at) = leg.timer_at {
                self.timers.remove(&(at, port));
            }
            self.outputs.push_back(RelayOutput::Close { port });
        }
    }

    fn slot(&self, port: u16) -> Option<usize> {
        let first = *self.config.ports.start();
        self.config.ports.contains(&port).then(|| usize::from(port / 2 - first / 2))
    }

    /// The leg of an RTP port or of the RTCP port beside it.
    fn leg(&self, port: u16) -> Option<&Leg> {
        self.legs.get(self.slot(port)?)?.as_deref()
    }

    fn leg_mut(&mut self, port: u16) -> Option<&mut Leg> {
        let slot = self.slot(port)?;
        self.legs.get_mut(slot)?.as_deref_mut()
    }
}

#[cfg(test)]
mod tests;
