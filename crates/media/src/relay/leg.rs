//! One leg of a call: a phone, and the two ports it talks to.

use std::net::SocketAddr;
use std::time::Instant;

use crate::frame::{CallId, LegSpec};
use crate::latch::{Latch, is_one_host};
use crate::rtp::PayloadTypes;

#[derive(Debug)]
pub(super) struct Leg {
    pub(super) call: CallId,
    /// 0 or 1.
    pub(super) side: u8,
    /// The RTP port of the other leg.
    pub(super) partner: u16,
    pub(super) latch: Latch,
    pub(super) payload_types: PayloadTypes,
    pub(super) held: bool,
    /// The owner was told to connect the RTP socket.
    pub(super) connected: bool,
    pub(super) reported_silent: bool,
    /// Since when packets have been expected; `None` while they are not.
    pub(super) active_since: Option<Instant>,
    opened_at: Instant,
    /// The one entry among the relay's timers.
    pub(super) timer_at: Option<Instant>,
    /// RTP packets accepted.
    pub(super) packets: u32,
    pub(super) reported_at_packet: u32,
    pub(super) reported_ssrc: u32,
    /// By SDP, or the port after the one of RTP.
    rtcp_remote: Option<SocketAddr>,
    rtcp_source: Option<SocketAddr>,
}

impl Leg {
    pub(super) fn new(now: Instant, call: CallId, side: u8, partner: u16, spec: &LegSpec) -> Self {
        Self {
            call,
            side,
            partner,
            latch: Latch::new(spec.remote, spec.nat, spec.latched),
            payload_types: spec.payload_types.iter().copied().collect(),
            held: spec.held,
            connected: false,
            reported_silent: false,
            active_since: None,
            opened_at: now,
            timer_at: None,
            packets: 0,
            reported_at_packet: 0,
            reported_ssrc: 0,
            rtcp_remote: rtcp_remote(spec),
            rtcp_source: None,
        }
    }

    /// Takes in the wanted state, new or repeated. Returns whether the phone may have moved.
    pub(super) fn update(&mut self, now: Instant, spec: &LegSpec) -> bool {
        self.payload_types = spec.payload_types.iter().copied().collect();
        if self.held && !spec.held {
            // Resumed: its silence counts from now.
            self.active_since = None;
            self.reported_silent = false;
        }
        self.held = spec.held;
        let moved = self.latch.offer(now, spec.remote, spec.nat);
        if moved {
            self.reported_silent = false;
            self.rtcp_source = None;
        }
        let rtcp_remote = rtcp_remote(spec);
        if rtcp_remote.is_some() {
            self.rtcp_remote = rtcp_remote;
        }
        moved
    }

    /// Whether the phone takes RTCP on its RTP port (RFC 5761).
    pub(super) fn muxes(&self) -> bool {
        self.rtcp_remote.is_some() && self.rtcp_remote == self.latch.remote()
    }

    /// Where this phone's RTCP goes when it does not.
    pub(super) fn rtcp_target(&self) -> Option<SocketAddr> {
        self.latch.target()?;
        self.rtcp_source.or(self.rtcp_remote)
    }

    /// Judges the source of an RTCP packet: that of the SDP, or of the same host as the RTP.
    ///
    /// A NAT gives RTCP a port of its own, so the host's first one is learned; another one needs the stream's SSRC.
    pub(super) fn accept_rtcp(
        &mut self,
        from: SocketAddr,
        ssrc: u32,
        muxed: bool,
        barred: bool,
    ) -> bool {
        if muxed {
            return self.latch.source() == Some(from);
        }
        if self.rtcp_source == Some(from) {
            return true;
        }
        if barred || !is_one_host(from) {
            return false;
        }
        let same_host = self.latch.source().is_some_and(|source| source.ip() == from.ip());
        let same_stream = self.latch.known().is_some_and(|known| known.ssrc == ssrc);
        let learned = same_host && (self.rtcp_source.is_none() || same_stream);
        if self.rtcp_remote == Some(from) || learned {
            self.rtcp_source = Some(from);
            return true;
        }
        false
    }

    /// Whether `addr` is this phone.
    pub(super) fn is_at(&self, addr: SocketAddr) -> bool {
        let known = [self.latch.remote(), self.latch.source(), self.rtcp_remote, self.rtcp_source];
        known.contains(&Some(addr))
    }

    /// Whether the holder's copy of the stream is about to be of no use: another SSRC, or a sequence number so old that
    /// the next gateway would not take the stream for the same one.
    pub(super) fn is_report_due(&self) -> bool {
        let packets = self.packets.wrapping_sub(self.reported_at_packet);
        REPORT_PACKETS <= packets
            || (REPORT_PACKETS_MIN <= packets
                && self.latch.known().is_some_and(|known| known.ssrc != self.reported_ssrc))
    }

    /// Since when nothing has come, as far as something should have.
    pub(super) fn quiet_since(&self) -> Instant {
        let since = self.active_since.unwrap_or(self.opened_at);
        self.latch.heard_at().map_or(since, |at| at.max(since))
    }
}

fn rtcp_remote(spec: &LegSpec) -> Option<SocketAddr> {
    let remote = spec.remote?;
    let port = remote.port().checked_add(1)?;
    let remote = spec.remote_rtcp.unwrap_or_else(|| SocketAddr::new(remote.ip(), port));
    is_one_host(remote).then_some(remote)
}

/// Half of the jump that the latch forgives.
const REPORT_PACKETS: u32 = 1500;

/// Not for each packet of a phone that changes its SSRC with each.
const REPORT_PACKETS_MIN: u32 = 50;
