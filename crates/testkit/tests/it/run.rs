//! Fleets on a network without loss, 5 ms from each to each.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::Bytes;
use driver::{Input, Node, Output, SocketId};
use testkit::{Command, Config, Event, Fault, Fleet, PhoneId};

pub(crate) const A: PhoneId = PhoneId(0);
pub(crate) const B: PhoneId = PhoneId(1);

/// One fleet of phones that call each other by their addresses.
pub(crate) struct Run {
    pub(crate) fleet: Fleet,
    pub(crate) start: Instant,
    now: Instant,
    sockets: BTreeMap<SocketAddr, SocketId>,
    addresses: BTreeMap<SocketId, SocketAddr>,
    flying: BTreeMap<(Instant, u64), (SocketAddr, SocketAddr, Bytes)>,
    sent: u64,
    /// Drops one SIP message of four, as this state decides.
    pub(crate) lossy: Option<u64>,
}

impl Run {
    pub(crate) fn new(phones: u32) -> Self {
        let ip = IpAddr::from([127, 0, 0, 9]);
        Self::with(Config { phones, sip_sockets: 2, ..Config::new(ip) })
    }

    pub(crate) fn with(config: Config) -> Self {
        let start = Instant::now();
        let mut run = Self {
            fleet: Fleet::new(config, 7, start),
            start,
            now: start,
            sockets: BTreeMap::new(),
            addresses: BTreeMap::new(),
            flying: BTreeMap::new(),
            sent: 0,
            lossy: None,
        };
        run.drain();
        run
    }

    /// Lets `phone` do `command` at `at` milliseconds after the start.
    pub(crate) fn plan(&mut self, at: u64, phone: PhoneId, command: Command) {
        self.fleet.plan(self.start + Duration::from_millis(at), phone, command);
    }

    /// Lets `from` call `to`.
    pub(crate) fn call(&mut self, at: u64, from: PhoneId, to: PhoneId) {
        let config = self.fleet.config();
        let to = format!("sip:{}@{}", config.user(to), config.sip_addr(to));
        self.plan(at, from, Command::Call { to });
    }

    /// Runs to `at` milliseconds after the start.
    pub(crate) fn until(&mut self, at: u64) {
        let end = self.start + Duration::from_millis(at);
        loop {
            let datagram = self.flying.first_key_value().map(|(&(at, _), _)| at);
            let next = [datagram, self.fleet.poll_timeout()].into_iter().flatten().min();
            let Some(next) = next.filter(|&next| next <= end) else { break };
            self.now = self.now.max(next);
            if let Some(entry) = self.flying.first_entry()
                && entry.key().0 <= self.now
            {
                let (from, to, bytes) = entry.remove();
                if let Some(&socket) = self.sockets.get(&to) {
                    self.fleet.handle_input(self.now, Input::Datagram { socket, from, bytes });
                }
            } else {
                self.fleet.handle_timeout(self.now);
                assert!(
                    self.fleet.poll_timeout().is_none_or(|at| self.now < at),
                    "a handled timeout is never due again"
                );
            }
            self.drain();
        }
        self.now = end;
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// Returns the events of one phone, without those of its registration.
    pub(crate) fn events(&self, phone: PhoneId) -> Vec<Event> {
        let events = self.fleet.journal().events();
        events.filter(|&(_, of, _)| of == Some(phone)).map(|(_, _, event)| event).collect()
    }

    pub(crate) fn faults(&self) -> Vec<Fault> {
        self.fleet.journal().faults().map(|(_, _, fault)| fault.clone()).collect()
    }

    /// Returns the ladder: who sent which first line.
    pub(crate) fn ladder(&self) -> String {
        self.fleet.journal().text(self.start)
    }

    fn drain(&mut self) {
        while let Some(output) = self.fleet.poll_output() {
            match output {
                Output::Bind { socket, local, .. } => {
                    self.sockets.insert(local, socket);
                    self.addresses.insert(socket, local);
                }
                Output::Datagram { socket, to, bytes } => {
                    if !self.is_lost(&bytes) {
                        self.sent += 1;
                        let at = self.now + Duration::from_millis(5);
                        self.flying.insert((at, self.sent), (self.addresses[&socket], to, bytes));
                    }
                }
                Output::Listen { .. }
                | Output::Stream { .. }
                | Output::Unbind { .. }
                | Output::Frame { .. }
                | Output::Reply { .. }
                | Output::Write { .. }
                | Output::Stop(_) => unreachable!(),
            }
        }
    }

    fn is_lost(&mut self, bytes: &[u8]) -> bool {
        let Some(state) = &mut self.lossy else { return false };
        *state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.len() != testkit::PACKET_LEN && (*state >> 33) % 4 == 0
    }
}
