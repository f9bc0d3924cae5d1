//! The datagrams by which a media gateway shows that its forwarding threads run.
//!
//! A hearer (a controller, a b2b) connects a UDP socket to the gateway's beat address and sends [`Hear`] every
//! 100 ms, and at once when its link to that gateway ends. Each worker of the gateway then sends a [`Beat`] every
//! 10 ms from its forwarding loop to everyone heard in the last second. A refused datagram on the connected socket
//! proves that the gateway's process is gone. Both datagrams have the same length, so that a forged [`Hear`] gains little.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::network::Network;

/// Between two beats of one worker.
pub const BEAT_PERIOD: Duration = Duration::from_millis(10);

/// Between two [`Hear`]s of one hearer.
pub const HEAR_PERIOD: Duration = Duration::from_millis(100);

/// A hearer not heard for this long gets no more beats.
pub const HEAR_EXPIRY: Duration = Duration::from_secs(1);

/// Hearers that a gateway serves at once; more are ignored.
pub const HEARERS_MAX: usize = 64;

/// Length of either datagram.
pub const DATAGRAM_LEN: usize = 40;

const BEAT_MAGIC: [u8; 4] = *b"HLB1";
const HEAR_MAGIC: [u8; 4] = *b"HLH1";
const REALTIME: u8 = 1;
const STANDBY: u8 = 2;
const DRAINING: u8 = 4;

/// One turn of one worker's loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// The node id of the gateway.
    pub gateway: u16,
    /// Counts the gateway's starts.
    pub boot: u64,
    /// The worker that sent this, counted from 0.
    pub worker: u16,
    /// Workers of this gateway. It is well only if each of them beats.
    pub workers: u16,
    /// Counts this worker's beats.
    pub seq: u32,
    /// The worker runs in a real-time scheduling class.
    pub realtime: bool,
    /// As in [`Welcome::standby`](crate::Welcome::standby).
    pub standby: bool,
    /// As in [`Welcome::draining`](crate::Welcome::draining).
    pub draining: bool,
    /// Open legs of the whole gateway.
    pub legs: u32,
    /// Legs that the whole gateway can carry.
    pub legs_max: u32,
}

/// A hearer wants beats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hear {
    /// The node id of the hearer.
    pub hearer: u16,
    /// The hearer runs in a real-time scheduling class.
    pub realtime: bool,
}

/// Who gets beats.
#[derive(Clone, Debug)]
pub struct Hearers {
    trusted: Vec<Network>,
    heard: Vec<(SocketAddr, Instant)>,
}

impl Hearers {
    /// Nobody as yet, and only those in `trusted` ever: a forged address must not bring beats upon a stranger.
    pub fn new(trusted: Vec<Network>) -> Self {
        Self { trusted, heard: Vec::new() }
    }

    /// Takes in a datagram that came to the beat address. Returns whether it was a [`Hear`] from somebody trusted, and
    /// there was room for one more hearer.
    pub fn hear(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) -> bool {
        let trusted = self.trusted.iter().any(|network| network.contains(from.ip()));
        if !trusted || Hear::decode(datagram).is_none() {
            return false;
        }
        self.heard.retain(|(addr, at)| *addr != from && now < *at + HEAR_EXPIRY);
        let room = self.heard.len() < HEARERS_MAX;
        if room {
            self.heard.push((from, now));
        }
        room
    }

    /// Returns those who were heard in the last [`HEAR_EXPIRY`].
    pub fn recent(&self, now: Instant) -> impl Iterator<Item = SocketAddr> + '_ {
        self.heard.iter().filter(move |(_, at)| now < *at + HEAR_EXPIRY).map(|(addr, _)| *addr)
    }
}

impl Beat {
    /// Writes the datagram.
    pub fn encode(&self) -> [u8; DATAGRAM_LEN] {
        let mut bytes = [0; DATAGRAM_LEN];
        bytes[..4].copy_from_slice(&BEAT_MAGIC);
        bytes[4] = flag(self.realtime, REALTIME)
            | flag(self.standby, STANDBY)
            | flag(self.draining, DRAINING);
        bytes[6..8].copy_from_slice(&self.gateway.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.boot.to_be_bytes());
        bytes[16..18].copy_from_slice(&self.worker.to_be_bytes());
        bytes[18..20].copy_from_slice(&self.workers.to_be_bytes());
        bytes[20..24].copy_from_slice(&self.seq.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.legs.to_be_bytes());
        bytes[28..32].copy_from_slice(&self.legs_max.to_be_bytes());
        bytes
    }

    /// Reads a datagram; `None` if it is no beat.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = checked(bytes, BEAT_MAGIC)?;
        Some(Self {
            gateway: u16_at(bytes, 6),
            boot: u64::from(u32_at(bytes, 8)) << 32 | u64::from(u32_at(bytes, 12)),
            worker: u16_at(bytes, 16),
            workers: u16_at(bytes, 18),
            seq: u32_at(bytes, 20),
            realtime: bytes[4] & REALTIME != 0,
            standby: bytes[4] & STANDBY != 0,
            draining: bytes[4] & DRAINING != 0,
            legs: u32_at(bytes, 24),
            legs_max: u32_at(bytes, 28),
        })
    }
}

impl Hear {
    /// Writes the datagram.
    pub fn encode(&self) -> [u8; DATAGRAM_LEN] {
        let mut bytes = [0; DATAGRAM_LEN];
        bytes[..4].copy_from_slice(&HEAR_MAGIC);
        bytes[4] = flag(self.realtime, REALTIME);
        bytes[6..8].copy_from_slice(&self.hearer.to_be_bytes());
        bytes
    }

    /// Reads a datagram; `None` if it is no such thing.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = checked(bytes, HEAR_MAGIC)?;
        Some(Self { hearer: u16_at(bytes, 6), realtime: bytes[4] & REALTIME != 0 })
    }
}

fn flag(on: bool, bit: u8) -> u8 {
    if on { bit } else { 0 }
}

fn checked(bytes: &[u8], magic: [u8; 4]) -> Option<&[u8; DATAGRAM_LEN]> {
    let bytes: &[u8; DATAGRAM_LEN] = bytes.try_into().ok()?;
    bytes.starts_with(&magic).then_some(bytes)
}

fn u16_at(bytes: &[u8; DATAGRAM_LEN], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8; DATAGRAM_LEN], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests need a first instant")]
mod tests {
    use super::*;

    const BEAT: Beat = Beat {
        gateway: 0x0102,
        boot: 0x0304_0506_0708_090a,
        worker: 1,
        workers: 2,
        seq: 0xfffe_fdfc,
        realtime: true,
        standby: false,
        draining: true,
        legs: 7,
        legs_max: 9000,
    };

    #[test]
    fn a_beat_is_read_as_it_was_written() {
        assert_eq!(Beat::decode(&BEAT.encode()), Some(BEAT));
    }

    #[test]
    fn a_hear_is_read_as_it_was_written_and_is_no_beat() {
        let hear = Hear { hearer: 4, realtime: true };

        assert_eq!(Hear::decode(&hear.encode()), Some(hear));
        assert_eq!(Beat::decode(&hear.encode()), None);
    }

    #[test]
    fn a_hearer_is_served_for_a_second_and_no_crowd_is() {
        let start = Instant::now();
        let hear = Hear { hearer: 4, realtime: true }.encode();
        let mut hearers = Hearers::new(vec!["127.0.0.0/8".parse().unwrap()]);

        assert!(!hearers.hear(start, SocketAddr::from(([192, 0, 2, 1], 1)), &hear));

        for port in 1..=64 {
            assert!(hearers.hear(start, SocketAddr::from(([127, 0, 0, 1], port)), &hear));
        }
        let late = SocketAddr::from(([127, 0, 0, 1], 65));
        assert!(!hearers.hear(start, late, &hear));
        assert!(!hearers.hear(start + HEAR_EXPIRY, late, &BEAT.encode()));

        assert_eq!(hearers.recent(start + HEAR_EXPIRY - HEAR_PERIOD).count(), HEARERS_MAX);
        assert_eq!(hearers.recent(start + HEAR_EXPIRY).count(), 0);
        assert!(hearers.hear(start + HEAR_EXPIRY, late, &hear));
    }

    #[test]
    fn what_is_too_short_or_too_long_is_no_beat() {
        let mut long = BEAT.encode().to_vec();
        long.push(0);

        assert_eq!(Beat::decode(&long), None);
        assert_eq!(Beat::decode(&long[..39]), None);
        assert_eq!(Beat::decode(b""), None);
    }
}
