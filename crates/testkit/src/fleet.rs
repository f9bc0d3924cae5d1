//! Any number of phones in one machine.

mod config;
mod metronome;

use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::Bytes;
use driver::{Input, Metrics, Node, Output, SocketId, StreamLimits};

use crate::ear::{Ear, Heard};
pub use crate::fleet::config::{Config, Speech};
use crate::fleet::metronome::Metronome;
use crate::journal::{Event, Fault, Journal, PhoneId, What};
use crate::phone::{Command, Phone, State};
use crate::random::Random;
use crate::sip::{Draft, Sip, user_of};
use crate::voice::{self, PACKET_LEN};

/// The machine: a `driver::Node` of phones.
///
/// It asks for its sockets when it is made. Commands are given by
/// [`plan`](Self::plan); ask for outputs and the deadline after it.
#[derive(Debug)]
pub struct Fleet {
    config: Config,
    start: Instant,
    phones: Vec<Phone>,
    random: Random,
    /// The deadline of each phone that has one.
    deadlines: BTreeSet<(Instant, PhoneId)>,
    next_at: Vec<Option<Instant>>,
    metronome: Metronome,
    outputs: VecDeque<Output>,
    journal: Journal,
    forbidden: BTreeSet<IpAddr>,
}

/// One RTP packet to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Speaks {
    pub(crate) phone: PhoneId,
    pub(crate) socket: SocketId,
    pub(crate) to: SocketAddr,
}

/// What a phone may use of its fleet.
pub(crate) struct Desk<'a> {
    pub(crate) now: Instant,
    pub(crate) phone: PhoneId,
    pub(crate) config: &'a Config,
    pub(crate) random: &'a mut Random,
    pub(crate) forbidden: &'a BTreeSet<IpAddr>,
    outputs: &'a mut VecDeque<Output>,
    journal: &'a mut Journal,
}

impl Desk<'_> {
    pub(crate) fn send(&mut self, socket: SocketId, to: SocketAddr, bytes: &Bytes) {
        let what = What::Sent { to, bytes: bytes.clone() };
        self.journal.note(self.now, Some(self.phone), what);
        self.outputs.push_back(output(self.config, self.phone, socket, to, bytes.clone()));
    }

    pub(crate) fn bind(&mut self, socket: SocketId, local: SocketAddr) {
        self.outputs.push_back(Output::Bind { socket, local, peer: None });
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.journal.note(self.now, Some(self.phone), What::Event(event));
    }

    pub(crate) fn fault(&mut self, fault: Fault) {
        self.journal.note(self.now, Some(self.phone), What::Fault(fault));
    }
}

impl Fleet {
    /// Makes the phones; they do nothing until told to. `seed` decides their
    /// tags, branches and jitter.
    ///
    /// # Panics
    /// When a port would be above 65535, or there is no SIP socket.
    pub fn new(config: Config, seed: u64, now: Instant) -> Self {
        assert!(0 < config.sip_sockets, "phones need a SIP socket");
        let ports = u32::from(config.rtp_port) + 4 * config.rtp_ports();
        assert!(ports <= 65536, "the RTP ports of all phones must exist");
        let mut outputs = VecDeque::new();
        let mut bind = |socket, port| {
            let local = SocketAddr::new(config.ip, port);
            outputs.push_back(Output::Bind { socket, local, peer: None });
        };
        for index in 0..=config.sip_sockets {
            bind(SocketId(u32::from(index)), config.sip_port + index);
        }
        let phones: Vec<Phone> =
            (0..config.phones).map(|id| Phone::new(PhoneId(id), &config)).collect();
        if 0 < config.streams {
            outputs.extend((0..config.sip_sockets).map(|index| Output::Listen {
                socket: stream_of(SocketId(u32::from(index))),
                local: SocketAddr::new(config.ip, config.sip_port + index),
                limits: StreamLimits::default(),
                tls: config.tls.clone(),
            }));
        }
        let mut bind = |socket, port| {
            let local = SocketAddr::new(config.ip, port);
            outputs.push_back(Output::Bind { socket, local, peer: None });
        };
        for phone in (0..config.rtp_ports()).map(PhoneId) {
            bind(config.rtp_socket(phone, false), config.rtp_addr(phone).port());
        }
        Self {
            start: now,
            random: Random::new(seed),
            deadlines: BTreeSet::new(),
            next_at: vec![None; phones.len()],
            metronome: Metronome::new(phones.len()),
            journal: Journal::new(config.messages),
            forbidden: BTreeSet::new(),
            phones,
            outputs,
            config,
        }
    }

    /// Lets `phone` do `command` at `at`, or as soon as time is asked for if
    /// that has passed. A command that makes no sense then is ignored.
    ///
    /// # Panics
    /// When the fleet has no such phone.
    pub fn plan(&mut self, at: Instant, phone: PhoneId, command: Command) {
        self.phones[index(phone)].plan(at, command);
        self.settle(phone);
    }

    /// Lets every message from now on be searched for `ip`: in a call that
    /// stands, no INVITE and no answer to one may name it outside its o= line.
    pub fn forbid(&mut self, ip: IpAddr) {
        self.forbidden.insert(ip);
    }

    /// Takes back [`forbid`](Self::forbid).
    pub fn allow(&mut self, ip: IpAddr) {
        self.forbidden.remove(&ip);
    }

    /// Returns what the phone heard since this was last asked, and begins anew.
    pub fn take_heard(&mut self, now: Instant, phone: PhoneId) -> Heard {
        self.phones[index(phone)].ear.take(now)
    }

    /// Returns the journal, to be read and emptied.
    pub fn journal_mut(&mut self) -> &mut Journal {
        &mut self.journal
    }

    /// Returns the journal.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the phones' names.
    pub fn phones(&self) -> impl Iterator<Item = PhoneId> + use<> {
        (0..self.config.phones).map(PhoneId)
    }

    /// Returns what the phone is doing.
    pub fn state(&self, phone: PhoneId) -> State {
        self.phones[index(phone)].state()
    }

    /// Returns the phone's ear.
    pub fn ear(&self, phone: PhoneId) -> &Ear {
        &self.phones[index(phone)].ear
    }

    /// Returns where the phone sends its RTP, if it sends any.
    pub fn speaks_to(&self, phone: PhoneId) -> Option<SocketAddr> {
        self.phones[index(phone)].speaks_to()
    }

    /// Returns where the phone was told to send its RTP, whether or not it has
    /// a voice.
    pub fn media_at(&self, phone: PhoneId) -> Option<SocketAddr> {
        self.phones[index(phone)].media_at()
    }

    /// Takes in a SIP datagram.
    pub(crate) fn hear_sip(
        &mut self,
        now: Instant,
        socket: SocketId,
        from: SocketAddr,
        bytes: &Bytes,
    ) {
        // RFC 5626 §3.5.1: empty lines keep a NAT open.
        if bytes.iter().all(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            return;
        }
        let Some(sip) = Sip::read(bytes) else {
            self.journal.note(now, None, What::Received { from, bytes: bytes.clone() });
            self.journal.note(now, None, What::Fault(Fault::Unreadable));
            return;
        };
        let phone = self.addressee(&sip);
        self.journal.note(now, phone, What::Received { from, bytes: bytes.clone() });
        match phone {
            Some(phone) => {
                self.touch(now, phone, |phone, desk| phone.receive(desk, &sip, socket, from));
            }
            None => self.reject(now, &sip, socket, from),
        }
    }

    /// Takes in an RTP packet; returns where an echo of it is to go.
    pub(crate) fn hear_voice(
        &mut self,
        now: Instant,
        phone: PhoneId,
        packet: &[u8],
    ) -> Option<SocketAddr> {
        let stamp = voice::hear(packet).filter(|_| self.config.has_voice(phone))?;
        let since_start = now.saturating_duration_since(self.start);
        let phone = &mut self.phones[index(phone)];
        phone.ear.hear(now, since_start, &stamp);
        (self.config.speech == Speech::Echo).then(|| phone.speaks_to()).flatten()
    }

    /// Does what is due of the phones' SIP.
    pub(crate) fn do_due(&mut self, now: Instant) {
        while let Some(&(at, phone)) = self.deadlines.first()
            && at <= now
        {
            self.touch(now, phone, Phone::do_due);
        }
    }

    /// Returns how long RTP has been due.
    pub(crate) fn lateness(&self, now: Instant) -> Duration {
        let due_at = self.voice_due_at().filter(|_| !self.metronome.is_fresh());
        due_at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at))
    }

    /// Writes the next RTP packet that is due; `None` if none is.
    pub(crate) fn speak(&mut self, now: Instant, packet: &mut [u8; PACKET_LEN]) -> Option<Speaks> {
        let now_tick = self.tick_of(now);
        self.metronome.catch_up(now_tick);
        while self.metronome.tick() <= now_tick {
            while let Some(phone) = self.metronome.next_phone() {
                let since_start = now.saturating_duration_since(self.start);
                let speaker = &mut self.phones[index(phone)];
                if let Some(to) = speaker.speak(since_start, self.config.speech, packet) {
                    let socket = self.config.rtp_socket(phone, speaker.speaks_from_other());
                    return Some(Speaks { phone, socket, to });
                }
            }
            self.metronome.end_tick();
        }
        None
    }

    /// Returns when SIP is next due.
    pub(crate) fn sip_due_at(&self) -> Option<Instant> {
        self.deadlines.first().map(|&(at, _)| at)
    }

    /// Returns when RTP is next due.
    pub(crate) fn voice_due_at(&self) -> Option<Instant> {
        let tick = self.metronome.next_tick()?;
        Some(self.start + Duration::from_millis(tick))
    }

    /// Returns the next output of the phones' SIP.
    pub(crate) fn pop_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Finds the phone that a message is for: our branches and tags begin with
    /// its number, and a new request names it in its Request-URI.
    fn addressee(&self, sip: &Sip) -> Option<PhoneId> {
        let number = if sip.status().is_some() {
            sip.branch()?.strip_prefix(crate::phone::BRANCH_PREFIX)?.split('.').next()?
        } else if let Some(tag) = sip.tag("to") {
            tag.split('.').next()?
        } else {
            let user: u32 = user_of(sip.request_uri()).parse().ok()?;
            let number = user.checked_sub(self.config.first_user)?;
            return (number < self.config.phones).then_some(PhoneId(number));
        };
        let number = u32::from_str_radix(number, 16).ok()?;
        (number < self.config.phones).then_some(PhoneId(number))
    }

    /// Answers a message that is for no phone.
    fn reject(&mut self, now: Instant, sip: &Sip, socket: SocketId, from: SocketAddr) {
        if sip.status().is_some() || sip.method() == "ACK" {
            return;
        }
        let status = if sip.tag("to").is_some() {
            self.journal.note(now, None, What::Fault(Fault::UnknownCall));
            481
        } else if sip.method() == "OPTIONS" {
            200
        } else {
            404
        };
        let bytes = Draft::answer(sip, status, "-").finish(None);
        self.journal.note(now, None, What::Sent { to: from, bytes: bytes.clone() });
        self.outputs.push_back(Output::Datagram { socket, to: from, bytes });
    }

    fn touch(&mut self, now: Instant, id: PhoneId, act: impl FnOnce(&mut Phone, &mut Desk<'_>)) {
        let mut desk = Desk {
            now,
            phone: id,
            config: &self.config,
            random: &mut self.random,
            forbidden: &self.forbidden,
            outputs: &mut self.outputs,
            journal: &mut self.journal,
        };
        act(&mut self.phones[index(id)], &mut desk);
        self.settle(id);
    }

    /// Brings the indexes up to date with one phone.
    fn settle(&mut self, id: PhoneId) {
        let phone = &self.phones[index(id)];
        let speaks = phone.speaks_to().is_some() && self.config.speech != Speech::Echo;
        self.metronome.set(id, speaks);
        let at = phone.poll_timeout();
        let known = &mut self.next_at[index(id)];
        if *known != at {
            if let Some(known) = *known {
                self.deadlines.remove(&(known, id));
            }
            if let Some(at) = at {
                self.deadlines.insert((at, id));
            }
            *known = at;
        }
    }

    fn tick_of(&self, now: Instant) -> u64 {
        let since_start = now.saturating_duration_since(self.start);
        u64::try_from(since_start.as_millis()).unwrap_or(u64::MAX)
    }
}

impl Node for Fleet {
    fn handle_input(&mut self, now: Instant, input: Input) {
        match input {
            Input::Datagram { socket, from, bytes } => match self.config.rtp_phone(socket) {
                None => self.hear_sip(now, socket, from, &bytes),
                Some(phone) => {
                    if let Some(to) = self.hear_voice(now, phone, &bytes) {
                        self.outputs.push_back(Output::Datagram { socket, to, bytes });
                    }
                }
            },
            Input::Message { socket, from, message, .. } => {
                self.hear_sip(now, SocketId(socket.0 - STREAMS), from, message.bytes());
            }
            Input::Bound { .. }
            | Input::BindFailed { .. }
            | Input::Refused { .. }
            | Input::LinkUp { .. }
            | Input::LinkDown { .. }
            | Input::Frame { .. }
            | Input::Congested { .. }
            | Input::Request { .. }
            | Input::Written { .. }
            | Input::Unwritten { .. }
            | Input::Woken
            | Input::Drain
            | Input::Unsent { .. }
            | Input::Reload => {}
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.do_due(now);
        let mut packet = [0; PACKET_LEN];
        while let Some(Speaks { socket, to, .. }) = self.speak(now, &mut packet) {
            let bytes = Bytes::copy_from_slice(&packet);
            self.outputs.push_back(Output::Datagram { socket, to, bytes });
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.pop_output()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.sip_due_at(), self.voice_due_at()].into_iter().flatten().min()
    }

    fn metrics(&self, _out: &mut Metrics) {}
}

/// Sends a message of a phone as that phone does.
fn output(
    config: &Config,
    phone: PhoneId,
    socket: SocketId,
    to: SocketAddr,
    bytes: Bytes,
) -> Output {
    match config.has_streams(phone) {
        true => Output::Stream { socket: stream_of(socket), over: None, to, bytes },
        false => Output::Datagram { socket, to, bytes },
    }
}

/// Returns the stream socket at the address of a SIP socket.
fn stream_of(socket: SocketId) -> SocketId {
    SocketId(STREAMS + socket.0)
}

/// Sockets from this number on are for streams.
const STREAMS: u32 = 1 << 30;

fn index(phone: PhoneId) -> usize {
    usize::try_from(phone.0).unwrap_or(usize::MAX)
}
