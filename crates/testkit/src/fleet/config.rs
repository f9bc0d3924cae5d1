//! What a fleet is made of, and which socket is whose.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use driver::SocketId;
use driver::tls::SipTls;

use crate::journal::PhoneId;
use crate::manners::Manners;
use crate::offer::{Codec, DIGITS, PCMA, PCMU};

/// What a fleet is made of.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address of all its sockets.
    pub ip: IpAddr,
    /// How many phones it has.
    pub phones: u32,
    /// How many of them have a voice, the first ones; all without it. The
    /// others name one RTP port that they share, send no RTP and hear none:
    /// a host has not enough ports for many thousand phones.
    pub voices: Option<u32>,
    /// The user name of the first phone; the others count on from it.
    pub first_user: u32,
    /// The domain of their addresses of record.
    pub domain: String,
    /// Where REGISTERs and new calls go; without it to the address in the URI.
    pub server: Option<SocketAddr>,
    /// The phones that have another server than the rest.
    pub servers: BTreeMap<PhoneId, SocketAddr>,
    /// The first SIP port. The phones share `sip_sockets` of them, and one
    /// more is for [`AnswersFrom::OtherSocket`](crate::AnswersFrom).
    pub sip_port: u16,
    /// How many SIP sockets the phones share.
    pub sip_sockets: u16,
    /// How many of the phones, the first ones, speak SIP over connections, which they make to their
    /// server and take at the address of their SIP socket. Not in a [`Studio`](crate::Studio).
    pub streams: u32,
    /// With it those connections carry TLS, and their server is reached at the port after its own.
    pub tls: Option<SipTls>,
    /// The RTP port of the first phone. Each has four: RTP, RTCP (not opened),
    /// another RTP port for [`SpeaksFrom::OtherPort`](crate::SpeaksFrom), none.
    pub rtp_port: u16,
    /// What they offer, best first.
    pub codecs: Vec<Codec>,
    /// How they behave until told otherwise.
    pub manners: Manners,
    /// What their RTP does.
    pub speech: Speech,
    /// T1 of RFC 3261 §17.1.1.1.
    pub t1: Duration,
    /// T2 of RFC 3261 §17.1.2.2.
    pub t2: Duration,
    /// What their REGISTERs ask for, in seconds; refreshed at half of it.
    pub expires: u32,
    /// Whether the journal keeps messages, not only events and faults.
    pub messages: bool,
    /// Whether a [`Studio`](crate::Studio) tries for a real-time class. It
    /// should have one where the measured system has: then its late ticks
    /// tell when the machine was too busy to measure.
    pub realtime: bool,
}

impl Config {
    /// Returns the configuration of one phone, user 1000, with SIP port 5060
    /// and RTP ports from 34000 at `ip`.
    pub fn new(ip: IpAddr) -> Self {
        Self {
            ip,
            phones: 1,
            voices: None,
            first_user: 1000,
            domain: "example.org".to_owned(),
            server: None,
            servers: BTreeMap::new(),
            sip_port: 5060,
            sip_sockets: 1,
            streams: 0,
            tls: None,
            rtp_port: 34000,
            codecs: vec![PCMU, PCMA, DIGITS],
            manners: Manners::default(),
            speech: Speech::Stamps,
            t1: Duration::from_millis(500),
            t2: Duration::from_secs(4),
            expires: 3600,
            messages: true,
            realtime: true,
        }
    }

    /// Returns the user name of a phone.
    pub fn user(&self, phone: PhoneId) -> String {
        (self.first_user + phone.0).to_string()
    }

    /// Returns the address of record of a phone.
    pub fn aor(&self, phone: PhoneId) -> String {
        format!("sip:{}@{}", self.user(phone), self.domain)
    }

    /// Returns where a phone listens for SIP.
    pub fn sip_addr(&self, phone: PhoneId) -> SocketAddr {
        SocketAddr::new(self.ip, self.sip_port + self.sip_index(phone))
    }

    /// Returns whether a phone speaks SIP over connections.
    pub fn has_streams(&self, phone: PhoneId) -> bool {
        phone.0 < self.streams
    }

    /// Returns what carries the SIP of a phone, as a Via says it.
    pub fn transport(&self, phone: PhoneId) -> &'static str {
        match (self.has_streams(phone), &self.tls) {
            (false, _) => "UDP",
            (true, None) => "TCP",
            (true, Some(_)) => "TLS",
        }
    }

    /// Returns where REGISTERs and new calls of a phone go.
    pub fn server_of(&self, phone: PhoneId) -> Option<SocketAddr> {
        let mut server = self.servers.get(&phone).copied().or(self.server)?;
        if self.has_streams(phone) && self.tls.is_some() {
            server.set_port(server.port() + 1);
        }
        Some(server)
    }

    /// Returns whether a phone sends RTP and hears it.
    pub fn has_voice(&self, phone: PhoneId) -> bool {
        self.voices.is_none_or(|voices| phone.0 < voices)
    }

    /// Returns where a phone listens for RTP.
    pub fn rtp_addr(&self, phone: PhoneId) -> SocketAddr {
        let port = self.voices.map_or(phone.0, |voices| phone.0.min(voices));
        let offset = u16::try_from(4 * port).unwrap_or(u16::MAX);
        SocketAddr::new(self.ip, self.rtp_port.saturating_add(offset))
    }

    /// How many RTP ports the phones have.
    pub(crate) fn rtp_ports(&self) -> u32 {
        self.voices.map_or(self.phones, |voices| self.phones.min(voices + 1))
    }

    pub(crate) fn sip_socket(&self, phone: PhoneId) -> SocketId {
        SocketId(u32::from(self.sip_index(phone)))
    }

    /// The socket for answers from elsewhere.
    pub(crate) fn other_sip_socket(&self) -> SocketId {
        SocketId(u32::from(self.sip_sockets))
    }

    pub(crate) fn rtp_socket(&self, phone: PhoneId, other: bool) -> SocketId {
        let first = u32::from(self.sip_sockets) + 1;
        SocketId(first + phone.0 + if other { self.phones } else { 0 })
    }

    /// Returns whose RTP a socket hears; `None` for a SIP socket.
    pub(crate) fn rtp_phone(&self, socket: SocketId) -> Option<PhoneId> {
        let index = socket.0.checked_sub(u32::from(self.sip_sockets) + 1)?;
        Some(PhoneId(index % self.phones))
    }

    fn sip_index(&self, phone: PhoneId) -> u16 {
        u16::try_from(phone.0 % u32::from(self.sip_sockets)).unwrap_or(0)
    }
}

/// What a phone's RTP is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speech {
    /// A packet every 20 ms that carries its number and time.
    Stamps,
    /// What it hears, sent back at once.
    Echo,
    /// A tone of 400 Hz.
    Tone,
}
