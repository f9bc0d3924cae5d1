//! What the call machine reads of session descriptions and changes in them.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use failover::record::{Direction, SdpIdentity, SentSdp};
use sip_core::sdp::{self, Edit, Media, Sdp};

/// The audio stream of a session: the first one that is not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Audio {
    /// Where the party wants its RTP; the unspecified address of old phones on hold wants none.
    /// None with a host name.
    pub(crate) rtp: Option<SocketAddr>,
    /// Where it wants its RTCP.
    pub(crate) rtcp: Option<SocketAddr>,
    /// Its payload types.
    pub(crate) formats: Vec<u8>,
    /// Who sends, as the party says it.
    pub(crate) direction: Direction,
}

/// Returns the audio stream of a description; `None` when there is none that we can carry.
pub(crate) fn audio(body: &[u8]) -> Option<Audio> {
    if body.is_empty() {
        return None;
    }
    let sdp = Sdp::parse(body).ok()?;
    let (_, media) = stream(&sdp)?;
    let ip = media.connection().and_then(|connection| connection.ip());
    let said = Direction::new(media.direction().sends(), media.direction().receives());
    let direction = match ip {
        // RFC 3264 §8.4: nothing is to be sent to it.
        Some(ip) if ip.is_unspecified() => said.narrowed(Direction::SendOnly),
        Some(_) | None => said,
    };
    let rtp = ip.map(|ip| SocketAddr::new(ip, media.port()));
    let rtcp = rtp.and_then(|rtp| match media.rtcp() {
        Some((port, ip)) => Some(SocketAddr::new(ip.unwrap_or_else(|| rtp.ip()), port)),
        None => Some(SocketAddr::new(rtp.ip(), rtp.port().checked_add(1)?)),
    });
    Some(Audio { rtp, rtcp, formats: media.payload_types().collect(), direction })
}

fn stream<'s, 'a>(sdp: &'s Sdp<'a>) -> Option<(usize, Media<'s, 'a>)> {
    sdp.media().enumerate().find(|(_, media)| {
        media.kind() == b"audio" && media.port() != 0 && media.proto().starts_with(b"RTP/")
    })
}

/// Writes the description that a leg is sent: that of the other party with our own o= line and
/// media address. Streams that we do not carry are refused; the number and order of streams stays.
pub(crate) fn render(base: &[u8], identity: &SdpIdentity, sent: &SentSdp) -> Bytes {
    let Ok(sdp) = Sdp::parse(base) else { return Bytes::new() };
    let Some((index, _)) = stream(&sdp) else { return Bytes::new() };
    let mut edit = Edit::new(&sdp);
    let family = match identity.address {
        IpAddr::V4(_) => "IP4",
        IpAddr::V6(_) => "IP6",
    };
    let origin = format!("- {} {} IN {family} {}", identity.id, sent.version, identity.address);
    edit.origin(origin.as_bytes());
    edit.all_connections(sent.address.ip());
    for (other, media) in sdp.media().enumerate() {
        if other == index {
            edit.port(index, sent.address.port());
            if media.rtcp().is_some() {
                edit.rtcp(index, Some((sent.address.port().saturating_add(1), None)));
            }
        } else {
            edit.port(other, 0);
        }
    }
    if let Some(direction) = sent.direction {
        edit.direction(index, line(direction));
    } else if audio_is_on_old_hold(&sdp, index) {
        // The address that said so is replaced.
        edit.direction(index, sdp::Direction::SendOnly);
    }
    if !sent.formats.is_empty() {
        edit.narrow(index, &sent.formats);
    }
    for name in ICE {
        edit.remove_all_attributes(name);
    }
    Bytes::from(edit.finish())
}

fn audio_is_on_old_hold(sdp: &Sdp<'_>, index: usize) -> bool {
    sdp.medium(index).is_some_and(|media| {
        media.direction() == sdp::Direction::SendRecv
            && media
                .connection()
                .and_then(|connection| connection.ip())
                .is_some_and(|ip| ip.is_unspecified())
    })
}

fn line(direction: Direction) -> sdp::Direction {
    sdp::Direction::of(direction.sends(), direction.receives())
}

/// Returns whether two descriptions differ in nothing but their o= lines.
pub(crate) fn same_session(one: &[u8], other: &[u8]) -> bool {
    let lines = |body| <[u8]>::split(body, |byte| *byte == b'\n').filter(|l| !l.starts_with(b"o="));
    !one.is_empty() && lines(one).eq(lines(other))
}

/// Candidates would lead the phones past the mediagate.
const ICE: [&str; 8] = [
    "candidate",
    "remote-candidates",
    "end-of-candidates",
    "ice-ufrag",
    "ice-pwd",
    "ice-lite",
    "ice-options",
    "ice-pacing",
];
