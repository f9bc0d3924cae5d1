//! A peer, written by hand, that breaks the rules one by one.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use driver::{Input, Node, Output, SocketId};
use testkit::{Config, Event, Fault, Fleet, Incoming, Manners, PhoneId, State};

const PHONE: PhoneId = PhoneId(0);

/// One phone and a peer at 10.0.0.1 that calls it.
struct Peer {
    fleet: Fleet,
    now: Instant,
    /// The phone's tag.
    tag: String,
}

impl Peer {
    /// Calls the phone, which answers.
    fn new() -> Self {
        let incoming = Incoming::Answer { ring_after: None, answer_after: Duration::ZERO };
        let manners = Manners { incoming, ..Manners::default() };
        let config = Config { manners, ..Config::new([10, 0, 0, 9].into()) };
        let now = Instant::now();
        let mut peer = Self { fleet: Fleet::new(config, 1, now), now, tag: String::new() };
        let answer = peer.send("INVITE", 1, &description(1, "10.0.0.3", 4000));
        let to = answer.lines().find(|line| line.starts_with("To:")).unwrap();
        peer.tag = to.split(";tag=").nth(1).unwrap().to_owned();
        peer.send("ACK", 1, "");
        assert_eq!(peer.fleet.state(PHONE), State::Talking { holds: false, held: false });
        peer
    }

    /// Sends a request in the dialog; returns the last answer.
    fn send(&mut self, method: &str, cseq: u32, body: &str) -> String {
        let tag = if self.tag.is_empty() { String::new() } else { format!(";tag={}", self.tag) };
        let kind = if body.is_empty() { "" } else { "Content-Type: application/sdp\r\n" };
        let request = format!(
            "{method} sip:1000@10.0.0.9:5060 SIP/2.0\r\n\
             Via: SIP/2.0/UDP 10.0.0.1:5060;branch=z9hG4bK{method}{cseq}\r\n\
             From: <sip:peer@10.0.0.1>;tag=peer\r\nTo: <sip:1000@10.0.0.9>{tag}\r\n\
             Call-ID: call\r\nCSeq: {cseq} {method}\r\nContact: <sip:peer@10.0.0.1>\r\n{kind}\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let bytes = Bytes::from(request);
        let from: SocketAddr = "10.0.0.1:5060".parse().unwrap();
        self.fleet.handle_input(self.now, Input::Datagram { socket: SocketId(0), from, bytes });
        self.fleet.handle_timeout(self.now);
        let mut answer = String::new();
        while let Some(output) = self.fleet.poll_output() {
            if let Output::Datagram { socket: SocketId(0), bytes, .. } = output {
                answer = String::from_utf8(bytes.to_vec()).unwrap();
            }
        }
        answer
    }

    fn reinvite(&mut self, cseq: u32, body: &str) -> String {
        let answer = self.send("INVITE", cseq, body);
        self.send("ACK", cseq, "");
        answer
    }

    fn faults(&self) -> Vec<Fault> {
        self.fleet.journal().faults().map(|(_, _, fault)| fault.clone()).collect()
    }

    fn speaks_to(&self) -> String {
        self.fleet.speaks_to(PHONE).unwrap().to_string()
    }
}

fn description(version: u64, ip: &str, port: u16) -> String {
    format!(
        "v=0\r\no=- 5 {version} IN IP4 10.0.0.3\r\ns=-\r\nc=IN IP4 {ip}\r\nt=0 0\r\n\
         m=audio {port} RTP/AVP 0 101\r\na=rtpmap:101 telephone-event/8000\r\n"
    )
}

#[test]
fn a_move_by_the_rules_is_no_fault() {
    let mut peer = Peer::new();
    peer.fleet.forbid([10, 0, 0, 3].into());
    peer.reinvite(2, &description(2, "10.0.0.4", 4002));

    assert_eq!(peer.speaks_to(), "10.0.0.4:4002");
    assert_eq!(peer.faults(), []);
    let moved = peer.fleet.journal().events().any(|(_, _, e)| e == Event::Reinvite { moves: true });
    assert!(moved);
}

#[test]
fn a_move_under_the_same_version_is_a_fault_and_moves_nothing() {
    let mut peer = Peer::new();
    peer.reinvite(2, &description(1, "10.0.0.4", 4002));

    assert_eq!(peer.faults(), [Fault::OriginVersion { before: 1, now: 1 }]);
    assert_eq!(peer.speaks_to(), "10.0.0.3:4000");
}

#[test]
fn versions_neither_jump_nor_grow_for_nothing() {
    let mut peer = Peer::new();
    peer.reinvite(2, &description(3, "10.0.0.4", 4002));
    peer.reinvite(3, &description(4, "10.0.0.4", 4002));

    let jump = Fault::OriginVersion { before: 1, now: 3 };
    assert_eq!(peer.faults(), [jump, Fault::OriginVersionIdle { now: 4 }]);
}

#[test]
fn a_version_that_was_refused_is_used_up() {
    let mut peer = Peer::new();
    let manners = Manners {
        reinvite: testkit::Reinvite::Refuse {
            status: 500,
            retry_after: None,
            after: Duration::ZERO,
            times: 1,
        },
        ..Manners::default()
    };
    peer.fleet.plan(peer.now, PHONE, testkit::Command::Behave(Box::new(manners)));
    peer.fleet.handle_timeout(peer.now);
    assert!(peer.reinvite(2, &description(2, "10.0.0.4", 4002)).starts_with("SIP/2.0 500"));
    peer.reinvite(3, &description(3, "10.0.0.4", 4004));

    assert_eq!(peer.faults(), []);
    assert_eq!(peer.speaks_to(), "10.0.0.4:4004");
}

#[test]
fn another_origin_is_a_fault() {
    let mut peer = Peer::new();
    let body = description(2, "10.0.0.4", 4002).replace("o=- 5", "o=- 6");
    peer.reinvite(2, &body);

    assert_eq!(peer.faults(), [Fault::OriginChanged]);
}

#[test]
fn the_address_of_a_dead_gateway_is_a_fault_outside_the_origin() {
    let mut peer = Peer::new();
    peer.fleet.forbid([10, 0, 0, 3].into());
    peer.reinvite(2, &(description(2, "10.0.0.4", 4002) + "a=rtcp:4003 IN IP4 10.0.0.3\r\n"));

    assert_eq!(peer.faults(), [Fault::Forbidden([10, 0, 0, 3].into())]);
}

#[test]
fn media_lines_and_payload_types_keep_their_meaning() {
    let mut peer = Peer::new();
    let added = description(2, "10.0.0.3", 4000) + "m=video 0 RTP/AVP 96\r\n";
    peer.reinvite(2, &added);
    assert_eq!(peer.faults(), []);
    peer.reinvite(
        3,
        &description(3, "10.0.0.3", 4000).replace("telephone-event/8000", "G722/8000"),
    );

    assert_eq!(peer.faults(), [Fault::MediaLines, Fault::PayloadType { number: 101 }]);
}

#[test]
fn a_cseq_that_does_not_rise_is_refused() {
    let mut peer = Peer::new();
    peer.send("OPTIONS", 5, "");
    assert!(peer.send("BYE", 5, "").starts_with("SIP/2.0 500"));

    assert_eq!(peer.faults(), [Fault::CSeqNotRising { before: 5, now: 5 }]);
}

#[test]
fn an_invite_before_the_ack_of_the_last_is_too_early() {
    let mut peer = Peer::new();
    peer.send("INVITE", 2, &description(2, "10.0.0.4", 4002));
    peer.send("INVITE", 3, &description(3, "10.0.0.4", 4004));

    assert_eq!(peer.faults(), [Fault::InviteTooEarly { cseq: 3 }]);
}

#[test]
fn an_ack_has_the_cseq_of_its_invite() {
    let mut peer = Peer::new();
    peer.send("INVITE", 2, &description(2, "10.0.0.4", 4002));
    peer.send("ACK", 3, "");

    assert_eq!(peer.faults(), [Fault::StrangeAck { cseq: 3 }]);
}

#[test]
fn nothing_comes_after_the_end() {
    let mut peer = Peer::new();
    assert!(peer.send("BYE", 2, "").starts_with("SIP/2.0 200"));
    assert!(peer.send("BYE", 3, "").starts_with("SIP/2.0 481"));

    assert!(peer.send("INVITE", 4, "").starts_with("SIP/2.0 481"));

    let after_end = |method: &str| Fault::AfterEnd { method: method.to_owned() };
    assert_eq!(peer.faults(), [after_end("BYE"), after_end("INVITE")]);
}

#[test]
fn a_copy_gets_a_copy_of_the_answer() {
    let mut peer = Peer::new();
    let first = peer.send("INVITE", 2, &description(2, "10.0.0.4", 4002));
    let again = peer.send("INVITE", 2, &description(2, "10.0.0.4", 4002));

    assert_eq!(first, again);
    assert_eq!(peer.faults(), []);
}
