//! Whom one leg listens to, and where it sends.
//!
//! A phone behind a NAT sends from another address than its SDP names, so a relay has to learn the address; and a
//! relay that learns from anybody lets anybody take a call over (CVE-2017-14114). Seven rules hold the balance:
//!
//! 1. A leg is open for learning for five seconds after its SDP address changed, counted from the first packet that
//!    could be learned from; then it is locked. The same SDP again changes nothing.
//! 2. The SDP's own address is accepted at once.
//! 3. Four packets in sequence, of one SSRC and a negotiated payload type, within 200 ms, are accepted from the SDP's
//!    IP address and another port; from another IP address only if that of the SDP is private or the leg is marked
//!    as behind a NAT. Streams that compete reset each other's count.
//! 4. Never accepted: a relay's own port, the other party of the call, an address that is not one host's, a payload
//!    type that was not negotiated.
//! 5. Once locked, others are dropped. Only the port may change: after 25 packets that continue SSRC and sequence,
//!    while the old source has been silent for 500 ms.
//! 6. That happens at most four times in a call.
//! 7. What another gateway had learned is taken over: its address is accepted at once, and so is a first packet from
//!    anywhere that continues the known SSRC and sequence.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use crate::frame::LatchedSource;
use crate::rtp::Rtp;

/// Locks to another source without a new SDP, in one call.
pub(crate) const RELOCKS_MAX: u8 = 4;

/// A source that is silent for longer has lost its claim to the port (rule 5), and its socket its connection.
pub(crate) const SILENCE: Duration = Duration::from_millis(500);

/// Rule 1.
const LEARNING: Duration = Duration::from_secs(5);
/// Rule 3.
const PROBATION: Duration = Duration::from_millis(200);
const PROBATION_PACKETS: u8 = 4;
/// Rule 5.
const RELOCK_PACKETS: u8 = 25;
/// Rules 5 and 7: RFC 3550 A.1 takes a jump of up to this for loss.
const SEQ_JUMP_MAX: u16 = 3000;

/// The source of one leg's RTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Latch {
    /// By SDP. A usable address, or `None` before there is one.
    remote: Option<SocketAddr>,
    /// The SDP asks for silence by an address of zeros (RFC 3264 §8.4).
    muted: bool,
    nat: bool,
    state: State,
    /// When the source was last heard.
    heard_at: Option<Instant>,
    /// The stream of the source, once heard or taken over.
    stream: Option<Stream>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stream {
    ssrc: u32,
    seq: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Learns, by rules 2, 3 and 7.
    Open {
        /// Once something came that could be learned from.
        until: Option<Instant>,
        /// Known from another gateway: its source.
        inherited: Option<SocketAddr>,
        /// The source before the SDP changed, with the end of the time for which its last packets are not learned.
        former: Option<(SocketAddr, Instant)>,
        candidate: Option<Candidate>,
    },
    /// Listens to one source only.
    Locked {
        source: SocketAddr,
        /// Until then the SDP's own address may still replace a learned one.
        contested_until: Option<Instant>,
        rival: Option<Candidate>,
    },
}

/// A source on probation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Candidate {
    source: SocketAddr,
    ssrc: u32,
    seq: u16,
    packets: u8,
    since: Instant,
}

/// What a packet's source is to a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The one that the leg is locked to.
    Known,
    /// It has just become that one.
    Locked,
    /// It has just become that one without a new SDP, in place of another.
    Relocked,
    /// A stranger, as yet or for ever: drop the packet.
    Foreign,
}

/// What rules 4 and 6 need to know beyond the leg.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings {
    /// The packet's payload type was negotiated.
    pub(crate) negotiated: bool,
    /// The source is a relay's own port, or the other party of this call.
    pub(crate) barred: bool,
    /// The call has had [`RELOCKS_MAX`] re-locks.
    pub(crate) relocks_spent: bool,
}

impl Latch {
    /// A leg that listens to nobody yet, unless it takes over what another gateway had learned.
    pub(crate) fn new(
        remote: Option<SocketAddr>,
        nat: bool,
        inherited: Option<LatchedSource>,
    ) -> Self {
        let inherited = inherited.filter(|known| is_one_host(known.addr));
        Self {
            remote: remote.filter(|remote| is_one_host(*remote)),
            muted: is_mute(remote),
            nat,
            state: State::Open {
                until: None,
                inherited: inherited.map(|known| known.addr),
                former: None,
                candidate: None,
            },
            heard_at: None,
            stream: inherited.map(|known| Stream { ssrc: known.ssrc, seq: known.seq }),
        }
    }

    /// Takes in the address of an SDP, new or repeated. Returns whether the leg opened for learning.
    pub(crate) fn offer(&mut self, now: Instant, remote: Option<SocketAddr>, nat: bool) -> bool {
        self.nat = nat;
        self.muted = is_mute(remote);
        // An address of zeros is a hold, not a move: the source stays, and so does the address to compare with.
        let remote = remote.filter(|remote| is_one_host(*remote));
        if self.muted || remote == self.remote {
            return false;
        }
        let former = self.source().map(|source| (source, now + SILENCE));
        self.remote = remote;
        self.state = State::Open { until: None, inherited: None, former, candidate: None };
        self.heard_at = None;
        self.stream = None;
        true
    }

    /// Judges a packet's source at `now`, and learns from it.
    pub(crate) fn judge(
        &mut self,
        now: Instant,
        from: SocketAddr,
        rtp: Rtp,
        surroundings: Surroundings,
    ) -> Verdict {
        if let State::Locked { source, rival, .. } = &mut self.state
            && *source == from
        {
            *rival = None;
            self.hear(now, rtp);
            return Verdict::Known;
        }
        if surroundings.barred || !surroundings.negotiated || !is_one_host(from) {
            return Verdict::Foreign;
        }
        self.close_when_due(now);
        match self.state {
            State::Open { .. } => self.learn(now, from, rtp),
            State::Locked { contested_until: Some(until), .. }
                if now < until && self.remote == Some(from) =>
            {
                self.lock(now, from, rtp, None);
                Verdict::Locked
            }
            State::Locked { .. } => self.rebind(now, from, rtp, surroundings.relocks_spent),
        }
    }

    /// Where to send: to the source once there is one, before that by the SDP.
    pub(crate) fn target(&self) -> Option<SocketAddr> {
        if self.muted {
            return None;
        }
        match self.state {
            State::Open { inherited, .. } => inherited.or(self.remote),
            State::Locked { source, .. } => Some(source),
        }
    }

    /// The source that the leg is locked to.
    pub(crate) fn source(&self) -> Option<SocketAddr> {
        match self.state {
            State::Open { .. } => None,
            State::Locked { source, .. } => Some(source),
        }
    }

    /// The address by SDP, for sending in both directions; a hold by zeros does not hide it.
    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        self.remote
    }

    /// When the source was last heard; `None` if it never was since the SDP changed.
    pub(crate) fn heard_at(&self) -> Option<Instant> {
        self.heard_at
    }

    /// What another gateway would need to go on with this leg.
    pub(crate) fn known(&self) -> Option<LatchedSource> {
        let Stream { ssrc, seq } = self.stream?;
        Some(LatchedSource { addr: self.source()?, ssrc, seq })
    }

    /// Rules 2, 3 and 7.
    fn learn(&mut self, now: Instant, from: SocketAddr, rtp: Rtp) -> Verdict {
        let State::Open { until, inherited, former, candidate } = self.state else {
            return Verdict::Foreign;
        };
        let continues = self.stream.is_some_and(|stream| {
            stream.ssrc == rtp.ssrc && distance(stream.seq, rtp.seq) <= SEQ_JUMP_MAX
        });
        if self.remote == Some(from) {
            self.lock(now, from, rtp, None);
            return Verdict::Locked;
        }
        let is_former = former.is_some_and(|(source, until)| source == from && now < until);
        if is_former || !(continues || inherited == Some(from) || self.may_learn(from)) {
            return Verdict::Foreign;
        }
        let until = until.unwrap_or(now + LEARNING);
        let candidate = Candidate::next(candidate, now, from, rtp);
        if continues || inherited == Some(from) || PROBATION_PACKETS <= candidate.packets {
            self.lock(now, from, rtp, Some(until));
            return Verdict::Locked;
        }
        self.state =
            State::Open { until: Some(until), inherited, former, candidate: Some(candidate) };
        Verdict::Foreign
    }

    /// Rule 5: a NAT has given the same stream another port.
    fn rebind(&mut self, now: Instant, from: SocketAddr, rtp: Rtp, spent: bool) -> Verdict {
        let State::Locked { source, contested_until, rival } = self.state else {
            return Verdict::Foreign;
        };
        let last = rival.filter(|rival| rival.source == from).map(|rival| (rival.ssrc, rival.seq));
        let stream = last.or_else(|| self.stream.map(|stream| (stream.ssrc, stream.seq)));
        let continues = stream.is_none_or(|(ssrc, seq)| {
            ssrc == rtp.ssrc && rtp.seq.wrapping_sub(seq) <= SEQ_JUMP_MAX && rtp.seq != seq
        });
        if spent || source.ip() != from.ip() || !continues {
            return Verdict::Foreign;
        }
        let packets = rival.filter(|rival| rival.source == from).map_or(0, |rival| rival.packets);
        let since = rival.map_or(now, |rival| rival.since);
        let rival = Candidate {
            source: from,
            ssrc: rtp.ssrc,
            seq: rtp.seq,
            packets: packets.saturating_add(1),
            since,
        };
        let silent = self.heard_at.is_none_or(|at| at + SILENCE <= now);
        if silent && RELOCK_PACKETS <= rival.packets {
            self.lock(now, from, rtp, None);
            return Verdict::Relocked;
        }
        self.state = State::Locked { source, contested_until, rival: Some(rival) };
        Verdict::Foreign
    }

    /// Rule 1: who has not been heard by the end of the window is found where the SDP says, or nowhere.
    fn close_when_due(&mut self, now: Instant) {
        if let State::Open { until: Some(until), inherited, .. } = self.state
            && until <= now
            && let Some(source) = inherited.or(self.remote)
        {
            self.state = State::Locked { source, contested_until: None, rival: None };
            self.stream = None;
        }
    }

    /// Rule 3: whether four packets in sequence would do.
    fn may_learn(&self, from: SocketAddr) -> bool {
        self.remote
            .is_some_and(|remote| remote.ip() == from.ip() || self.nat || is_private(remote.ip()))
    }

    fn lock(
        &mut self,
        now: Instant,
        source: SocketAddr,
        rtp: Rtp,
        contested_until: Option<Instant>,
    ) {
        self.state = State::Locked { source, contested_until, rival: None };
        self.hear(now, rtp);
    }

    fn hear(&mut self, now: Instant, rtp: Rtp) {
        self.heard_at = Some(now);
        self.stream = Some(Stream { ssrc: rtp.ssrc, seq: rtp.seq });
    }
}

impl Candidate {
    /// One more packet of the same stream, or the first of another.
    fn next(candidate: Option<Self>, now: Instant, source: SocketAddr, rtp: Rtp) -> Self {
        let follows = candidate.filter(|candidate| {
            candidate.source == source
                && candidate.ssrc == rtp.ssrc
                && candidate.seq.wrapping_add(1) == rtp.seq
                && now.saturating_duration_since(candidate.since) <= PROBATION
        });
        Self {
            source,
            ssrc: rtp.ssrc,
            seq: rtp.seq,
            packets: follows.map_or(0, |candidate| candidate.packets).saturating_add(1),
            since: follows.map_or(now, |candidate| candidate.since),
        }
    }
}

/// Whether packets may go to, and come from, `addr`: no group of hosts, no unnamed host, no port 0.
pub(crate) fn is_one_host(addr: SocketAddr) -> bool {
    let ip = addr.ip();
    addr.port() != 0
        && !ip.is_unspecified()
        && !ip.is_multicast()
        && ip != IpAddr::V4(Ipv4Addr::BROADCAST)
}

fn is_mute(remote: Option<SocketAddr>) -> bool {
    remote.is_some_and(|remote| remote.ip().is_unspecified())
}

/// Addresses that mean another host elsewhere: RFC 1918, 3927, 6598, 4193, 4291 §2.5.6.
fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let [first, second, ..] = ip.octets();
            ip.is_private() || ip.is_link_local() || (first == 100 && second & 0xc0 == 64)
        }
        IpAddr::V6(ip) => ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

/// How far apart two sequence numbers are, either way round.
fn distance(one: u16, other: u16) -> u16 {
    one.wrapping_sub(other).min(other.wrapping_sub(one))
}

#[cfg(test)]
mod tests;
