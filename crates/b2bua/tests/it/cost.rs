//! What a call costs in the machine alone.
//!
//! `cargo test --release -p b2bua --test it cost -- --ignored --nocapture`

use std::time::{Duration, Instant};

use b2bua::frame::SipIn;
use b2bua::slot::SlotHash;
use b2bua::{
    B2b, Config, Epoch, Flow, Input, Listener, Output, Place, Route, Slot, Transport, Wanted,
};
use bytes::Bytes;
use failover::{Boot, Clock, NodeId, UnixMs};

use crate::phone::Text;

#[test]
#[ignore = "a measurement, for a release build"]
#[expect(clippy::disallowed_methods, reason = "a measurement")]
fn cost_of_a_call_from_invite_to_bye() {
    let calls = std::env::var("CALLS").ok().and_then(|calls| calls.parse().ok());
    let calls: u32 = calls.unwrap_or(20_000);
    let start = Instant::now();
    let mut bench = Bench::new(start);
    for call in 0..calls {
        bench.call(call);
    }
    let each = bench.spent / calls;
    println!("{each:?} a call, {} messages in, {} out", bench.inputs, bench.outputs);
    let records: Vec<_> = bench.b2b.records().map(testkit::codec::encode).collect();
    let longest = records.iter().map(Bytes::len).max();
    println!("{} records left, longest {longest:?}", records.len());
}

struct Bench {
    b2b: B2b,
    now: Instant,
    spent: Duration,
    inputs: u32,
    outputs: u32,
    sent: Vec<(u16, Bytes)>,
    next_port: u16,
}

impl Bench {
    fn new(now: Instant) -> Self {
        let clock = Clock { instant: now, unix_ms: UnixMs(1_700_000_000_000) };
        let targets = vec!["192.0.2.2:5060".parse().unwrap()];
        let config =
            Config { routes: vec![Route { prefix: Vec::new(), targets }], ..Config::default() };
        let mut b2b = B2b::new(config, NodeId(1), clock, 1);
        for slot in 0..=255 {
            b2b.handle_input(now, Input::Owned { slot: Slot(slot), epoch: Epoch(1) });
        }
        let advertise = "192.0.2.100:5060".parse().unwrap();
        let listener = Listener { id: 0, transport: Transport::Udp, advertise };
        let up = Input::GateUp { gate: NodeId(2), boot: Boot(5), listeners: vec![listener] };
        b2b.handle_input(now, up);
        Self {
            b2b,
            now,
            spent: Duration::ZERO,
            inputs: 0,
            outputs: 0,
            sent: Vec::new(),
            next_port: 0,
        }
    }

    fn call(&mut self, call: u32) {
        let sdp = "v=0\r\no=user1 53655765 2353687637 IN IP4 192.0.2.1\r\ns=-\r\n\
             c=IN IP4 192.0.2.1\r\nt=0 0\r\nm=audio 6000 RTP/AVP 8 0 101\r\n\
             a=rtpmap:8 PCMA/8000\r\na=rtpmap:0 PCMU/8000\r\na=rtpmap:101 telephone-event/8000\r\n\
             a=fmtp:101 0-16\r\na=ptime:20\r\na=sendrecv\r\n";
        let head = |method: &str, cseq: u32, branch: &str, to_tag: &str| {
            format!(
                "{method} sip:service@192.0.2.100:5060 SIP/2.0\r\n\
                 Via: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK-{call}-{branch};rport=5060;received=192.0.2.1\r\n\
                 From: sipp <sip:sipp@192.0.2.1:5060>;tag=tag{call}\r\n\
                 To: service <sip:service@192.0.2.100:5060>{to_tag}\r\nCall-ID: {call}-4711@192.0.2.1\r\n\
                 CSeq: {cseq} {method}\r\nContact: sip:sipp@192.0.2.1:5060\r\nMax-Forwards: 70\r\n\
                 Subject: Performance Test\r\n"
            )
        };
        let body = |text: String| {
            format!(
                "{text}Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{sdp}",
                sdp.len()
            )
        };
        let empty = |text: String| format!("{text}Content-Length: 0\r\n\r\n");
        self.send(1, body(head("INVITE", 1, "0", "")));
        let invite = self.find(2, "INVITE");
        let answer = |asked: &Text, status: &str| {
            format!(
                "SIP/2.0 {status}\r\nVia: {}\r\nFrom: {}\r\nTo: {};tag=callee{call}\r\nCall-ID: {}\r\n\
                 CSeq: {}\r\nContact: <sip:192.0.2.2:5060;transport=UDP>\r\n",
                asked.header("Via"),
                asked.header("From"),
                asked.header("To"),
                asked.header("Call-ID"),
                asked.header("CSeq")
            )
        };
        self.send(2, empty(answer(&invite, "180 Ringing")));
        self.send(2, body(answer(&invite, "200 OK")));
        let ok = self.find(1, "SIP/2.0 200");
        let to_tag = format!(";tag={}", ok.tag("To"));
        self.send(1, empty(head("ACK", 1, "1", &to_tag)));
        self.send(1, empty(head("BYE", 2, "2", &to_tag)));
        let bye = self.find(2, "BYE");
        let answer = answer(&bye, "200 OK").replace(&format!(";tag=callee{call}\r\n"), "\r\n");
        self.send(2, empty(answer));
        self.sent.clear();
        self.now += Duration::from_millis(1);
        let begin = clock();
        if self.b2b.poll_timeout().is_some_and(|at| at <= self.now) {
            self.b2b.handle_timeout(self.now);
        }
        self.spent += begin.elapsed();
        self.drain();
    }

    fn find(&self, host: u16, start: &str) -> Text {
        let found = self
            .sent
            .iter()
            .rev()
            .find(|(to, bytes)| *to == host && bytes.starts_with(start.as_bytes()));
        Text(String::from_utf8(found.unwrap().1.to_vec()).unwrap())
    }

    fn send(&mut self, host: u8, text: String) {
        let message = sip_core::Message::parse(Bytes::from(text.into_bytes())).unwrap();
        let slot = SlotHash::new(7).of_message(&message);
        let flow = Flow {
            gate: NodeId(2),
            boot: Boot(5),
            listener: 0,
            transport: Transport::Udp,
            connection: 0,
            remote: format!("192.0.2.{host}:5060").parse().unwrap(),
        };
        let input = Input::Sip(SipIn { slot, hops: 0, flow, bytes: message.bytes().clone() });
        self.inputs += 1;
        let begin = clock();
        self.b2b.handle_input(self.now, input);
        self.spent += begin.elapsed();
        self.drain();
    }

    fn drain(&mut self) {
        loop {
            let begin = clock();
            let output = self.b2b.poll_output();
            self.spent += begin.elapsed();
            match output {
                None => return,
                Some(Output::Sip(sip)) => {
                    self.outputs += 1;
                    let host = if sip.flow.remote.ip().to_string() == "192.0.2.1" { 1 } else { 2 };
                    self.sent.push((host, sip.bytes));
                }
                Some(Output::Place { call, wanted: Wanted::Both }) => {
                    self.next_port = self.next_port.wrapping_add(4);
                    let place = |id: u16| Place {
                        gateway: NodeId(id),
                        boot: Boot(1),
                        address: "203.0.113.1".parse().unwrap(),
                        ports: [self.next_port, self.next_port.wrapping_add(2)],
                    };
                    let (holder, standby) = (Some(place(31)), Some(place(32)));
                    let begin = clock();
                    self.b2b.handle_input(self.now, Input::Placed { call, holder, standby });
                    self.spent += begin.elapsed();
                }
                Some(_) => {}
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a measurement")]
fn clock() -> Instant {
    Instant::now()
}
