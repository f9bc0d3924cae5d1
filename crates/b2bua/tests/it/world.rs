//! A b2b with one gate, some mediagates and scripted phones around it, without any network.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use b2bua::admission::{Ask, Elsewhere, Refused};
use b2bua::frame::{SipIn, SipOut};
use b2bua::slot::SlotHash;
use b2bua::{
    B2b, Charge, Config, Detail, Epoch, Event, Flow, Input, Key, Listener, Output, Slot, Transport,
    Value, ValueRef,
};
use bytes::Bytes;
use failover::record::{Fork, Session};
use failover::{Admission, Boot, CallId, Clock, NodeId, UnixMs};
use sip_core::Writer;

use crate::observer::Observer;
use crate::phone::{Phone, Phones, Text};
use crate::script;
use gateways::Gateway;

mod gateways;

pub(crate) struct World {
    pub(crate) now: Instant,
    start: Instant,
    config: Config,
    seed: u64,
    epoch: u32,
    /// What phones acknowledged their answers with, by Call-ID and CSeq.
    acks: BTreeMap<(String, u32), String>,
    replies: Vec<(SocketAddr, String)>,
    /// The mediagates that died.
    pub(crate) deaths: Vec<(NodeId, Boot)>,
    /// What the standby holds.
    pub(crate) standby: BTreeMap<Key, (Slot, Bytes)>,
    /// Changes that it is told without haste.
    late: Vec<(Slot, Key)>,
    /// Every change that was reported, and whether it was a barrier.
    pub(crate) stored: Vec<(Key, bool)>,
    pub(crate) b2b: B2b,
    pub(crate) phones: Phones,
    pub(crate) gateways: BTreeMap<NodeId, Gateway>,
    /// What happened, line by line.
    pub(crate) log: Vec<String>,
    pub(crate) details: Vec<Detail>,
    /// Calls that machines before this one began, and that nobody knew of after one.
    begun: u64,
    lost: u64,
    /// Those that came again, equal in every field.
    pub(crate) repeated_details: usize,
    /// Whether details are written down, or the b2b dies before.
    pub(crate) writes_details: bool,
    pub(crate) events: Vec<Event>,
    /// Messages on their way to phones, when they are not delivered at once.
    pub(crate) rebuilds: bool,
    pub(crate) record_len_max: usize,
    /// Legs whose phones send no media.
    pub(crate) silent_legs: BTreeSet<usize>,
    /// What mediagates have heard.
    heard: BTreeSet<(NodeId, Boot, CallId, usize)>,
    /// Phones that hear nothing.
    pub(crate) deaf: BTreeSet<String>,
    /// What was said over connections.
    pub(crate) streams: Vec<(SocketAddr, Text)>,
    /// Nobody takes a connection: the gate says so in their place.
    pub(crate) refuses_streams: bool,
    /// What the standby holds may be old, and its next owner knows that.
    pub(crate) doubts: bool,
    refused: Vec<(SocketAddr, Text)>,
    pub(crate) observer: Observer,
    pub(crate) desk: Desk,
}

/// Who decides about new calls.
#[derive(Default)]
pub(crate) struct Desk {
    /// Calls wait for a step that decides; otherwise each may be at once.
    pub(crate) waits: bool,
    pub(crate) asks: Vec<(CallId, Ask)>,
    pub(crate) counted: BTreeSet<CallId>,
    pub(crate) released: Vec<CallId>,
    /// Where calls go that find no ports.
    pub(crate) elsewhere: Option<Elsewhere>,
}

/// A record and what is kept beside it.
type Stored = (Admission, Option<Detail>, Option<Fork>, [Session; 2], Value);

pub(crate) const GATE: &str = "192.0.2.100:5060";

impl World {
    pub(crate) fn new(config: Config) -> Self {
        #[expect(clippy::disallowed_methods, reason = "an origin for the test")]
        let start = Instant::now();
        // Real turns begin between two milliseconds of the wall clock, too.
        let now = start + Duration::from_micros(300);
        let mut world = Self {
            now,
            start,
            b2b: B2b::new(config.clone(), NodeId(1), clock(start, now), 1),
            config,
            seed: 1,
            epoch: 1,
            acks: BTreeMap::new(),
            replies: Vec::new(),
            deaths: Vec::new(),
            standby: BTreeMap::new(),
            late: Vec::new(),
            stored: Vec::new(),
            phones: Phones::new(),
            gateways: BTreeMap::new(),
            log: Vec::new(),
            details: Vec::new(),
            begun: 0,
            lost: 0,
            repeated_details: 0,
            writes_details: true,
            events: Vec::new(),
            rebuilds: false,
            record_len_max: 0,
            silent_legs: BTreeSet::new(),
            heard: BTreeSet::new(),
            deaf: BTreeSet::new(),
            streams: Vec::new(),
            refuses_streams: false,
            doubts: false,
            refused: Vec::new(),
            observer: Observer::default(),
            desk: Desk::default(),
        };
        world.introduce();
        world
    }

    pub(crate) fn add_phone(&mut self, name: &str, addr: &str) {
        let gate = GATE.parse().unwrap();
        self.phones.insert(name.to_owned(), Phone::new(name, addr.parse().unwrap(), gate));
    }

    /// Says which slots are owned and that the gate is up.
    pub(crate) fn introduce(&mut self) {
        for slot in 0..=255 {
            let owned = Input::Owned { slot: Slot(slot), epoch: Epoch(self.epoch) };
            self.b2b.handle_input(self.now, owned);
        }
        let listeners = [Transport::Udp, Transport::Tcp]
            .into_iter()
            .zip(0..)
            .map(|(it, id)| Listener { id, transport: it, advertise: GATE.parse().unwrap() });
        let listeners = listeners.collect();
        let up = Input::GateUp { gate: NodeId(2), boot: Boot(5), listeners };
        self.b2b.handle_input(self.now, up);
        self.drain();
    }

    /// Encodes every record and binding, drops the machine, and builds another one from the bytes.
    pub(crate) fn rebuild(&mut self) {
        trace(|| "rebuild".to_owned());
        let mut records = Vec::new();
        for slot in (0..=255).map(Slot) {
            for key in self.b2b.keys_of(slot) {
                records.extend(self.encoded(&key).map(|bytes| (slot, key, bytes)));
            }
        }
        self.observer.rebuilt(true);
        self.go_on(records);
    }

    /// The owner dies. The standby goes on with what it held when the last message left, and of what
    /// is sent to it without haste it has only what is older than 50 ms.
    pub(crate) fn take_over(&mut self) {
        trace(|| "takeover".to_owned());
        self.epoch += 1;
        // Another process has leased other blocks.
        self.gateways.values_mut().for_each(|gateway| gateway.taken.clear());
        let records = self.standby.iter();
        let records =
            records.map(|(key, (slot, bytes))| (*slot, key.clone(), bytes.clone())).collect();
        self.observer.rebuilt(false);
        self.go_on(records);
    }

    /// Builds the machine from these records, and counts what is not among them.
    fn go_on(&mut self, records: Vec<(Slot, Key, Bytes)>) {
        self.begun += self.b2b.figures().counters.calls;
        let calls: Vec<CallId> = self.b2b.records().map(|record| record.call).collect();
        self.restart(records);
        let known: BTreeSet<CallId> = self.b2b.records().map(|record| record.call).collect();
        let ended: BTreeSet<CallId> = self.details.iter().map(|detail| detail.call).collect();
        let lost = calls.iter().filter(|call| !known.contains(call) && !ended.contains(call));
        self.lost += u64::try_from(lost.count()).unwrap();
    }

    fn restart(&mut self, records: Vec<(Slot, Key, Bytes)>) {
        self.late.clear();
        self.seed += 1;
        // A clock pair of another process: the same times, read at another moment.
        let clock = clock(self.start, self.now);
        self.b2b = B2b::new(self.config.clone(), NodeId(1), clock, self.seed);
        self.introduce();
        for (gateway, boot) in self.deaths.clone() {
            self.b2b.handle_input(self.now, Input::GatewayDead { gateway, boot });
        }
        for (slot, key, bytes) in records {
            let (admission, detail, fork, sessions, value): Stored =
                testkit::codec::decode(&bytes).unwrap();
            let mut value = value.with_admission(admission).with_sessions(sessions);
            if let Some(fork) = fork {
                value = value.with_fork(fork);
            }
            if let Some(detail) = detail {
                value = value.with_detail(detail);
            }
            if let Value::Call(record) = &mut value
                && self.doubts
            {
                record.doubt();
            }
            self.b2b.restore(self.now, slot, &key, Some(value));
            self.drain();
        }
        // What waited is asked anew with the next copy of its INVITE, and what was counted and
        // stored nowhere is found by an audit.
        self.desk.asks.clear();
        let audited = self.b2b.charges().map(|(call, _)| call);
        self.desk.counted = audited.collect();
    }

    /// Returns how many calls have begun and were not lost with the machine that knew them.
    pub(crate) fn begun(&self) -> u64 {
        self.begun + self.b2b.figures().counters.calls - self.lost
    }

    /// Starts anew with somebody who decides about each call.
    pub(crate) fn count_calls(&mut self) {
        self.config.admits = true;
        self.restart(Vec::new());
    }

    /// Starts anew with these session timers.
    pub(crate) fn set_timers(&mut self, expires: u32, min: u32) {
        self.config.session_expires = expires;
        self.config.min_se = min;
        self.restart(Vec::new());
    }

    /// Decides about the call that has waited longest.
    pub(crate) fn decide(&mut self, refused: Option<Refused>) {
        let (call, _) = self.desk.asks.remove(0);
        let answer = self.decision(call, refused);
        self.input(answer);
    }

    fn decision(&mut self, call: CallId, refused: Option<Refused>) -> Input {
        if let Some(refused) = refused {
            return Input::NotAdmitted { call, refused };
        }
        assert!(self.desk.counted.insert(call), "{call} is counted twice");
        Input::Admitted { call, charge: charge(), elsewhere: self.desk.elsewhere.clone() }
    }

    fn release(&mut self, call: CallId) {
        let asked = self.desk.asks.iter().position(|(asked, _)| *asked == call);
        let known = asked.map(|index| self.desk.asks.remove(index)).is_some()
            || self.desk.counted.remove(&call);
        assert!(known || 0 < self.observer.rebuilds, "{call} is released and was not counted");
        self.desk.released.push(call);
    }

    fn encoded(&mut self, key: &Key) -> Option<Bytes> {
        let value = self.b2b.stored(key)?;
        let admission = value.admission().cloned().unwrap_or_default();
        let sessions = value.sessions().unwrap_or_default();
        let beside = (admission, value.detail(), value.fork(), sessions, value);
        let bytes = testkit::codec::encode(&beside);
        if let ValueRef::Call(record) = value {
            let bound = record.len_bound();
            assert!(bytes.len() <= bound && bound <= 2 * bytes.len() + 2000, "{bound}");
            self.record_len_max = self.record_len_max.max(bytes.len());
        }
        Some(bytes)
    }

    /// Takes a change to the standby.
    fn copy(&mut self, slot: Slot, key: Key) {
        match self.encoded(&key) {
            Some(bytes) => drop(self.standby.insert(key, (slot, bytes))),
            None => drop(self.standby.remove(&key)),
        }
    }

    pub(crate) fn phone(&self, name: &str) -> &Phone {
        &self.phones[name]
    }

    pub(crate) fn phone_mut(&mut self, name: &str) -> &mut Phone {
        self.phones.get_mut(name).unwrap()
    }

    pub(crate) fn step(&mut self, line: &str) {
        script::step(self, line);
    }

    pub(crate) fn steps(&mut self, lines: &[&str]) {
        for line in lines {
            self.step(line);
        }
    }

    /// Returns how many INVITEs a phone has got, copies not counted.
    pub(crate) fn invites(&self, name: &str) -> usize {
        self.phone(name).inbox.iter().filter(|m| m.is_request() && m.method() == "INVITE").count()
    }

    /// Lets a phone send something; returns the first thing it hears then.
    pub(crate) fn ask(&mut self, name: &str, text: &str) -> Text {
        let (from, before) = (self.phone(name).addr, self.phone(name).inbox.len());
        self.send(from, text);
        self.phone(name).inbox[before].clone()
    }

    /// Lets anybody send anything.
    pub(crate) fn send_raw(&mut self, from: SocketAddr, bytes: &[u8]) {
        let flow = Flow {
            gate: NodeId(2),
            boot: Boot(5),
            listener: 0,
            transport: Transport::Udp,
            connection: 0,
            remote: from,
        };
        let bytes = Bytes::copy_from_slice(bytes);
        self.input(Input::Sip(SipIn { slot: Slot(0), hops: 0, flow, bytes }));
    }

    /// Lets a phone send something.
    pub(crate) fn send(&mut self, from: SocketAddr, text: &str) {
        self.send_by(Transport::Udp, from, text);
    }

    /// Lets a gate answer in the place of a peer with which there is no connection.
    pub(crate) fn unsent(&mut self, to: SocketAddr, request: &Text) {
        let request =
            sip_core::Message::parse(Bytes::copy_from_slice(request.0.as_bytes())).unwrap();
        if request.is_request() && request.method() != sip_core::Method::Ack {
            let answer = Writer::answer(&request, 503, b"Service Unavailable", Some(b"-5ca1ab1e"));
            let bytes = answer.finish().bytes().to_vec();
            self.send_by(Transport::Tcp, to, &String::from_utf8(bytes).unwrap());
        }
    }

    fn send_by(&mut self, transport: Transport, from: SocketAddr, text: &str) {
        let flow = Flow {
            gate: NodeId(2),
            boot: Boot(5),
            listener: u8::from(transport.is_reliable()),
            transport,
            connection: 0,
            remote: from,
        };
        self.send_over(flow, text);
    }

    /// Lets a phone send something over this flow.
    pub(crate) fn send_over(&mut self, flow: Flow, text: &str) {
        trace(|| format!("<-- {}\n{text}", flow.remote));
        let sent = Text(text.to_owned());
        self.observer.sent(flow.remote, &sent);
        if sent.method() == "ACK" {
            self.acks.insert((sent.header("Call-ID").to_owned(), sent.cseq()), sent.0);
        }
        let message = sip_core::Message::parse(Bytes::copy_from_slice(text.as_bytes())).unwrap();
        let slot = SlotHash::new(7).of_message(&message);
        let input = Input::Sip(SipIn { slot, hops: 0, flow, bytes: message.bytes().clone() });
        self.input(input);
    }

    pub(crate) fn input(&mut self, input: Input) {
        self.b2b.handle_input(self.now, input);
        self.drain();
        self.reply();
    }

    /// Phones acknowledge each copy of an answer to their INVITE.
    fn reply(&mut self) {
        while let Some((from, ack)) = self.replies.pop() {
            self.send(from, &ack);
        }
        for (to, request) in std::mem::take(&mut self.refused) {
            self.unsent(to, &request);
        }
    }

    /// Lets time pass.
    pub(crate) fn advance(&mut self, span: Duration) {
        trace(|| format!("wait {span:?}"));
        self.hear_media();
        let end = self.now + span;
        while let Some(at) = self.b2b.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.b2b.handle_timeout(self.now);
            assert!(
                self.b2b.poll_timeout().is_none_or(|at| self.now < at),
                "a handled timeout is due again"
            );
            self.drain();
            self.reply();
        }
        self.now = end;
        if Duration::from_millis(50) <= span {
            for (slot, key) in std::mem::take(&mut self.late) {
                self.copy(slot, key);
            }
        }
    }

    fn drain(&mut self) {
        while let Some(output) = self.b2b.poll_output() {
            match output {
                Output::Sip(sip) => self.deliver(&sip),
                Output::Stored { slot, key, barrier } => {
                    self.stored.push((key.clone(), barrier));
                    match barrier {
                        true => self.copy(slot, key),
                        false => self.late.push((slot, key)),
                    }
                }
                Output::PassOn(sip) => panic!("all slots are ours: {sip:?}"),
                Output::Admit { call, ask } if self.desk.waits => {
                    self.desk.asks.push((call, *ask));
                }
                Output::Admit { call, ask: _ } => {
                    let answer = self.decision(call, None);
                    self.b2b.handle_input(self.now, answer);
                }
                Output::Released { call } => self.release(call),
                Output::Place { call, wanted } => {
                    let answer = self.place(call, wanted);
                    self.b2b.handle_input(self.now, answer);
                }
                Output::Media { gateway, boot, command } => self.command(gateway, boot, command),
                Output::Named(place) => {
                    let gateway = self.gateways.get_mut(&place.gateway).unwrap();
                    if gateway.boot == place.boot {
                        gateway.taken.extend(place.ports);
                    }
                }
                Output::Freed(place) => {
                    let gateway = self.gateways.get_mut(&place.gateway).unwrap();
                    if gateway.boot == place.boot {
                        for port in place.ports {
                            assert!(gateway.taken.remove(&port), "{port} was not taken");
                        }
                    }
                }
                Output::Detail(detail) => {
                    if self.writes_details {
                        self.b2b.handle_input(self.now, Input::Written { call: detail.call });
                    }
                    let known = self.details.iter().find(|known| known.call == detail.call);
                    if let Some(known) = known.filter(|_| 1 < self.epoch) {
                        // The next owner may not have heard that it was written.
                        assert_eq!(*known, *detail);
                        self.repeated_details += 1;
                        continue;
                    }
                    self.log.push(format!("  detail {:?} moves={}", detail.cause, detail.moves));
                    self.observer.ended(&detail);
                    self.details.push(*detail);
                }
                Output::Event(event) => self.events.push(event),
            }
        }
    }

    fn deliver(&mut self, sip: &SipOut) {
        assert_eq!(sip.epoch, Epoch(self.epoch));
        let text = Text(String::from_utf8(sip.bytes.to_vec()).unwrap());
        trace(|| format!("--> {}\n{}", sip.flow.remote, text.0));
        if sip.flow.transport == Transport::Tcp {
            self.streams.push((sip.flow.remote, text.clone()));
            if self.refuses_streams {
                return self.refused.push((sip.flow.remote, text));
            }
        }
        self.observer.received(sip.flow.remote, &text);
        let Some(phone) = self.phones.values_mut().find(|phone| phone.addr == sip.flow.remote)
        else {
            self.log.push(format!("  {} < {}", sip.flow.remote, summary(&text)));
            return;
        };
        if self.deaf.contains(&phone.name) {
            return;
        }
        let name = phone.name.clone();
        let is_new = phone.hear(text.clone());
        let key = (text.header("Call-ID").to_owned(), text.cseq());
        if let Some(ack) = self.acks.get(&key)
            && !text.is_request()
            && text.method() == "INVITE"
            && 1 < self.epoch
        {
            self.replies.push((sip.flow.remote, ack.clone()));
        }
        let again = if is_new { "" } else { " again" };
        self.log.push(format!("  {name} < {}{again}", summary(&text)));
    }
}

pub(crate) fn charge() -> Charge {
    Charge {
        profile: Bytes::from_static(b"menu"),
        tenant: Bytes::from_static(b"acme"),
        outbound: false,
        level: 1,
        exempt: false,
    }
}

/// One line of a message: what phones can tell apart, but for numbers that may have gaps.
pub(crate) fn summary(text: &Text) -> String {
    let mut line = match text.is_request() {
        true => text.method().to_owned(),
        false => format!("{} {}", text.status(), text.method()),
    };
    if !text.header("Retry-After").is_empty() {
        line += " retry-after";
    }
    for (header, word) in [("Session-Expires", "expires"), ("Min-SE", "min")] {
        if !text.header(header).is_empty() {
            line += &format!(" {word} {}", text.header(header));
        }
    }
    if text.headers("Require").any(|tag| tag == "timer") {
        line += " requires timer";
    }
    if !text.body().is_empty() && text.header("Content-Type") == "application/sdp" {
        let port = text.sdp("m=audio ").split(' ').next().unwrap_or_default().to_owned();
        let formats = text.sdp("m=audio ").split(' ').skip(2).collect::<Vec<_>>().join(",");
        let ip = text.sdp("c=IN IP4 ");
        line += &format!(" v{} {ip}:{port} {formats} {}", text.version(), text.direction());
    }
    line
}

fn clock(start: Instant, at: Instant) -> Clock {
    let ms = u64::try_from((at - start).as_millis()).unwrap();
    let rest = (at - start) - Duration::from_millis(ms);
    Clock { instant: at - rest, unix_ms: UnixMs(1_700_000_000_000 + ms) }
}

/// Shows every step and message with `TRACE=1`.
#[expect(clippy::print_stdout, reason = "for whoever looks for the cause of a failed seed")]
pub(crate) fn trace(line: impl FnOnce() -> String) {
    if std::env::var_os("TRACE").is_some() {
        println!("{}", line());
    }
}
