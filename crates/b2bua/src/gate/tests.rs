use std::time::Duration;

use failover::pulse::Pulse;
use failover::slots::Reign;
use failover::voter::{Answer, Bid, Gone, Vote};
use failover::{Epoch, SlotMap, Transport};
use proptest::prelude::*;

use super::*;

mod streams;
mod ways;

#[test]
fn a_request_goes_to_the_owner_of_its_slot_with_its_source_in_via() {
    let mut run = Run::started();
    let invite = request("INVITE", "rport;branch=z9hG4bKphone", "");

    let Some(Output::Sip { to, frame }) = run.datagram(PHONE, &invite) else { panic!() };

    assert_eq!(to, B2B);
    assert_eq!(frame.slot, SLOTS.of_call_id(b"call-1@phone"));
    assert_eq!(frame.hops, 0);
    assert_eq!(frame.flow, flow(PHONE));
    let message = Message::parse(frame.bytes).unwrap();
    let via = message.via().unwrap();
    assert_eq!(
        (via.received(), via.rport()),
        (Some(addr(PHONE).ip()), Some(Some(addr(PHONE).port())))
    );
}

#[test]
fn answers_go_to_the_port_in_via_when_the_peer_asked_for_no_other() {
    for (sent_by, params, port) in [
        ("10.9.9.9:5077", "branch=z9hG4bKphone", 5077),
        ("10.9.9.9", "branch=z9hG4bKphone", 5060),
        ("10.9.9.9:5077", "rport;branch=z9hG4bKphone", addr(PHONE).port()),
    ] {
        let mut run = Run::started();
        let text = request("OPTIONS", params, "").replace("192.0.2.7:5060", sent_by);

        let Some(Output::Sip { frame, .. }) = run.datagram(PHONE, &text) else { panic!() };

        assert_eq!(frame.flow.remote, SocketAddr::new(addr(PHONE).ip(), port));
    }
}

#[test]
fn a_request_that_names_its_true_source_passes_byte_for_byte() {
    let mut run = Run::started();
    let text = request("OPTIONS", "branch=z9hG4bKphone", "").replace("192.0.2.7", "127.0.0.9");

    let Some(Output::Sip { frame, .. }) = run.datagram(PHONE, &text) else { panic!() };

    assert_eq!(frame.bytes, text.as_bytes());
}

#[test]
fn a_received_that_the_peer_wrote_itself_is_not_believed() {
    let mut run = Run::started();
    let text = request("OPTIONS", "received=203.0.113.1;branch=z9hG4bKphone", "")
        .replace("192.0.2.7", "127.0.0.9");

    let Some(Output::Sip { frame, .. }) = run.datagram(PHONE, &text) else { panic!() };

    assert_eq!(Message::parse(frame.bytes).unwrap().via().unwrap().received(), None);
}

#[test]
fn a_response_goes_where_our_branch_says_and_a_stray_one_nowhere() {
    let mut run = Run::started();
    let ours = response("z9hG4bK2a0123456789abcdef");

    let Some(Output::Sip { frame, .. }) = run.datagram(PHONE, &ours) else { panic!() };
    assert_eq!(frame.slot, Slot(0x2a));
    assert_eq!(frame.bytes, ours.as_bytes());
    assert_eq!(run.datagram(PHONE, &response("z9hG4bKsomebody")), None);
    assert_eq!(run.gate.counters().stray, 1);
}

#[test]
fn bad_requests_are_answered_without_a_b2b_and_bad_responses_are_dropped() {
    let cases = [
        ("OPTIONS sip:us@example.com SIP/3.0", "505"),
        ("OPTIONS weird:us SIP/2.0", "416"),
        ("OPTIONS sip:us@example.com  SIP/2.0", "400"),
    ];
    for (start, status) in cases {
        let mut run = Run::started();
        let text = request("OPTIONS", "rport;branch=z9hG4bKphone", "")
            .replace("OPTIONS sip:bob@example.com SIP/2.0", start);

        let answer = run.answered(PHONE, &text);

        assert!(answer.starts_with(&format!("SIP/2.0 {status} ")), "{answer}");
        assert!(answer.contains(";tag=-"), "{answer}");
        assert!(answer.contains("rport=5062"), "{answer}");
        assert_eq!(run.gate.counters().rejected, 1);
    }
    let mut run = Run::started();
    assert_eq!(
        run.datagram(PHONE, &response("z9hG4bK2a0123456789abcdef").replace("200", "2x0")),
        None
    );
    assert_eq!(run.gate.counters().discarded, 1);
    assert_eq!(run.datagram(PHONE, "hello"), None);
    assert_eq!(run.gate.counters().malformed, 1);
}

#[test]
fn a_bad_ack_is_never_answered() {
    let mut run = Run::started();
    let ack = request("ACK", "branch=z9hG4bKphone", "")
        .replace("sip:bob@example.com SIP", "weird:bob SIP");

    assert_eq!(run.datagram(PHONE, &ack), None);
    assert_eq!(run.gate.counters().discarded, 1);
}

#[test]
fn the_same_request_gets_the_same_answer() {
    let mut run = Run::new();
    run.advance(2000);
    let invite = request("INVITE", "rport;branch=z9hG4bKphone", "");

    assert_eq!(run.answered(PHONE, &invite), run.answered(PHONE, &invite));
}

#[test]
fn the_ack_to_an_own_answer_ends_in_the_gate() {
    let mut run = Run::started();
    run.datagram(PHONE, &request("ACK", "branch=z9hG4bKphone", ";tag=-0123456789abcdef"));

    assert_eq!(run.gate.counters().acknowledged, 1);
    assert_eq!(run.gate.counters().passed, 0);
}

#[test]
fn strangers_may_neither_register_nor_call() {
    let mut run = Run::started();
    for method in ["INVITE", "REGISTER"] {
        let text = request(method, "rport;branch=z9hG4bKphone", "");
        assert!(run.answered(STRANGER, &text).starts_with("SIP/2.0 403 "));
        assert!(matches!(run.datagram(PHONE, &text), Some(Output::Sip { .. })));
        assert!(matches!(run.datagram("10.1.2.3:5060", &text), Some(Output::Sip { .. })));
    }
    assert_eq!(run.gate.counters().strangers, 2);
}

#[test]
fn no_forged_tag_lets_a_stranger_register_or_call() {
    let mut run = Run::started();
    let register = request("REGISTER", "rport;branch=z9hG4bKphone", ";tag=2a0123456789abcdef");
    let replaces = "Replaces: old@phone;to-tag=2a0123456789abcdef;from-tag=x\r\nContent-Length";
    let invite =
        request("INVITE", "rport;branch=z9hG4bKphone", "").replace("Content-Length", replaces);
    let foreign = request("INVITE", "rport;branch=z9hG4bKphone", ";tag=theirs");

    for text in [register, invite, foreign] {
        assert!(run.answered(STRANGER, &text).starts_with("SIP/2.0 403 "), "{text}");
    }
}

#[test]
fn a_call_that_stands_is_heard_whoever_sends() {
    let mut run = Run::started();
    for method in ["INVITE", "BYE", "ACK", "INFO"] {
        let text = request(method, "rport;branch=z9hG4bKphone", ";tag=2a0123456789abcdef");
        let Some(Output::Sip { frame, .. }) = run.datagram(STRANGER, &text) else { panic!() };
        assert_eq!(frame.slot, Slot(0x2a));
    }
}

#[test]
fn a_gate_that_has_just_started_leaves_new_requests_to_be_repeated_until_owners_are_known() {
    let mut run = Run::new();
    for call in 0..4 {
        assert_eq!(run.invite(call), None, "at {} ms", run.ms);
        run.advance(500);
    }
    assert_eq!(run.gate.counters().unowned, 4);
    let Some(Output::Datagram { bytes, .. }) = run.invite(4) else { panic!("it is awake") };
    assert!(bytes.starts_with(b"SIP/2.0 503 "), "{bytes:?}");
    assert_eq!(run.gate.counters().overloaded, 1);
}

#[test]
fn new_requests_are_refused_while_their_b2b_is_congested() {
    let mut run = Run::started();
    run.input(Input::Congested(B2B, true));

    for method in ["INVITE", "REGISTER"] {
        let answer = run.answered(PHONE, &request(method, "rport;branch=z9hG4bKphone", ""));
        assert!(answer.starts_with("SIP/2.0 503 "), "{answer}");
    }
    assert_eq!(run.gate.counters().overloaded, 2);
    run.input(Input::Congested(B2B, false));
    assert!(matches!(run.invite(1), Some(Output::Sip { .. })));
}

#[test]
fn new_requests_alone_are_refused_while_their_b2b_has_no_lease_for_long() {
    let mut run = Run::started();
    let bye = request("BYE", "branch=z9hG4bKphone", ";tag=2a0123456789abcdef");
    for call in 0..=20 {
        run.pulse_with(B2B, false, false);
        let said = run.invite(call);
        if call < 20 {
            assert!(matches!(said, Some(Output::Sip { .. })), "a pause of {call} pulses");
        } else {
            assert!(matches!(said, Some(Output::Datagram { .. })));
        }
        assert!(matches!(run.datagram(PHONE, &bye), Some(Output::Sip { .. })));
        run.advance(50);
    }
    assert!(matches!(run.invite(0), Some(Output::Sip { .. })), "it may be at work on that");
    run.pulse(B2B);
    assert!(matches!(run.invite(21), Some(Output::Sip { .. })));
}

#[test]
fn what_carries_our_tag_passes_a_congested_b2b() {
    let mut run = Run::started();
    run.input(Input::Congested(B2B, true));
    let replaces = "Replaces: old@phone;to-tag=2a0123456789abcdef;from-tag=x\r\nContent-Length";

    for text in [
        request("INVITE", "branch=z9hG4bKphone", ";tag=2a0123456789abcdef"),
        request("BYE", "branch=z9hG4bKphone", ";tag=2a0123456789abcdef"),
        request("CANCEL", "branch=z9hG4bKphone", ""),
        request("INVITE", "branch=z9hG4bKphone", "").replace("Content-Length", replaces),
        response("z9hG4bK2a0123456789abcdef"),
    ] {
        assert!(matches!(run.datagram(PHONE, &text), Some(Output::Sip { .. })), "{text}");
    }
    assert_eq!(run.gate.counters().overloaded, 0);
}

#[test]
fn the_copy_of_a_request_that_passed_is_not_refused() {
    let mut run = Run::started();
    assert!(matches!(run.invite(1), Some(Output::Sip { .. })));
    run.input(Input::Congested(B2B, true));

    assert!(matches!(run.invite(1), Some(Output::Sip { .. })));
    assert!(matches!(run.invite(2), Some(Output::Datagram { .. })));
    run.advance(32_000);
    assert!(matches!(run.invite(1), Some(Output::Datagram { .. })));
}

#[test]
fn those_refused_come_again_after_one_to_five_seconds() {
    let mut run = Run::started();
    run.input(Input::Congested(B2B, true));
    let mut seen = [0; 7];
    for call in 0..500 {
        let Some(Output::Datagram { bytes, .. }) = run.invite(call) else { panic!() };
        let after = Message::parse(bytes).unwrap().retry_after().unwrap();
        seen[after as usize] += 1;
    }

    assert_eq!((seen[0], seen[6]), (0, 0));
    assert!(seen[1..6].iter().all(|seen| (60..=140).contains(seen)), "{seen:?}");
}

#[test]
fn without_a_b2b_new_requests_are_refused_and_the_rest_is_left_to_be_repeated() {
    let mut run = Run::started();
    run.advance(2000);
    run.input(Input::B2bDown(B2B));

    assert!(matches!(run.invite(1), Some(Output::Datagram { .. })));
    let bye = request("BYE", "branch=z9hG4bKphone", ";tag=2a0123456789abcdef");
    assert_eq!(run.datagram(PHONE, &bye), None);
    assert_eq!((run.gate.counters().overloaded, run.gate.counters().unowned), (1, 1));
}

#[test]
fn a_frame_is_sent_only_at_the_epoch_promised_and_on_a_flow_of_this_boot() {
    let mut run = Run::started();
    let frame = SipOut {
        slot: Slot(7),
        epoch: Epoch(1),
        flow: flow(PHONE),
        bytes: Bytes::from_static(b"x"),
    };

    let sent = run.frame(frame.clone());
    assert_eq!(
        sent,
        Some(Output::Datagram { listener: 0, to: addr(PHONE), bytes: Bytes::from_static(b"x") })
    );
    for epoch in [0, 2] {
        assert_eq!(run.frame(SipOut { epoch: Epoch(epoch), ..frame.clone() }), None);
    }
    assert_eq!(run.gate.counters().fenced, 2);
    for flow in [
        Flow { gate: NodeId(9), ..flow(PHONE) },
        Flow { boot: Boot(4), ..flow(PHONE) },
        Flow { listener: 3, ..flow(PHONE) },
    ] {
        assert_eq!(run.frame(SipOut { flow, ..frame.clone() }), None);
    }
    assert_eq!(run.gate.counters().stale_flows, 3);
}

#[test]
fn a_gate_that_starts_sends_nothing_for_300_ms() {
    let mut run = Run::new();
    run.input(Input::B2bUp(B2B));
    run.input(Input::Slots { from: B2B, map: SlotMap::whole(reign(1)) });
    let frame = SipOut { slot: Slot(7), epoch: Epoch(1), flow: flow(PHONE), bytes: Bytes::new() };

    run.advance(299);
    assert_eq!(run.frame(frame.clone()), None);
    run.advance(1);
    assert!(run.frame(frame).is_some());
}

#[test]
fn a_promise_of_the_next_epoch_fences_the_owner_off() {
    let mut run = Run::started();
    let frame = SipOut { slot: Slot(7), epoch: Epoch(1), flow: flow(PHONE), bytes: Bytes::new() };
    assert!(run.frame(frame.clone()).is_some());

    let bid = Bid {
        node: NodeId(8),
        boot: Boot(1),
        round: 1,
        trial: false,
        slots: [Slot(7)].into_iter().collect(),
        epoch: Epoch(2),
        known: Epoch(1),
        owner: Some(B2B),
        gone: Gone::Silent,
    };
    for ms in [0, 100, 200] {
        let now = run.now();
        assert_eq!(run.gate.voter().bid(now, &bid).answer, Answer::Heard { ms });
        run.advance(100);
    }
    let now = run.now();
    assert_eq!(run.gate.voter().bid(now, &bid), Vote { round: 1, answer: Answer::Granted });

    assert_eq!(run.frame(frame.clone()), None);
    assert!(run.frame(SipOut { slot: Slot(8), ..frame }).is_some());
}

#[test]
fn line_breaks_keep_a_binding_open_and_mean_nothing() {
    let mut run = Run::started();
    for text in ["", "\r\n", "\r\n\r\n", "\0\0\0\0"] {
        assert_eq!(run.datagram(STRANGER, text), None);
    }

    assert_eq!(run.gate.counters().keepalives, 4);
}

#[test]
fn a_stranger_that_sends_too_much_is_limited_and_then_banned() {
    let mut run = Run::started();
    for _ in 0..1000 {
        run.datagram(STRANGER, &request("OPTIONS", "branch=z9hG4bKphone", ""));
    }
    let counters = run.gate.counters();
    assert_eq!((counters.passed, counters.bans), (100, 1));
    assert_eq!(counters.limited + counters.banned, 900);

    assert!(
        run.datagram("198.51.100.8:5060", &request("OPTIONS", "branch=z9hG4bKphone", "")).is_some()
    );
    let bye = request("BYE", "branch=z9hG4bKphone", ";tag=2a0123456789abcdef");
    assert!(run.datagram(STRANGER, &bye).is_some(), "a call that stands goes on");
    run.advance(300_000);
    assert!(run.datagram(STRANGER, &request("OPTIONS", "branch=z9hG4bKphone", "")).is_some());
}

#[test]
fn nobody_trusted_is_limited() {
    let mut run = Run::started();
    for _ in 0..10_000 {
        run.datagram(PHONE, &request("OPTIONS", "branch=z9hG4bKphone", ""));
        run.datagram("10.1.2.3:5060", "garbage");
    }

    assert_eq!(run.gate.counters().passed, 10_000);
    assert_eq!(run.gate.counters().bans, 0);
}

#[test]
fn an_invite_its_copy_and_its_cancel_meet_in_one_slot_through_any_gate() {
    let (mut one, mut other) = (Run::started(), Run::started());
    let slot = |output: Option<Output>| match output {
        Some(Output::Sip { frame, .. }) => frame.slot,
        Some(Output::Datagram { .. } | Output::Stream { .. } | Output::Relay { .. }) | None => {
            panic!("not passed")
        }
    };

    let invite = request("INVITE", "branch=z9hG4bKphone", "");
    let first = slot(one.datagram(PHONE, &invite));

    assert_eq!(slot(other.datagram(PHONE, &invite)), first);
    assert_eq!(slot(other.datagram(PHONE, &request("CANCEL", "branch=z9hG4bKphone", ""))), first);
}

proptest! {
    #[test]
    fn any_bytes_lead_to_one_output_at_most(bytes: Vec<u8>, trusted: bool) {
        let mut run = Run::started();
        run.gate.handle_input(run.now(), Input::Datagram {
            listener: 0,
            from: addr(if trusted { PHONE } else { STRANGER }),
            bytes: bytes.into(),
        });
        prop_assert!(run.drain().len() <= 1);
    }

    #[test]
    fn any_change_of_a_message_leads_to_one_output_at_most(
        base in 0..4_usize,
        cuts in proptest::collection::vec((0..600_usize, 0..8_usize, "[ -~\r\n\t\0]{0,6}"), 1..5),
        congested: bool,
        trusted: bool,
    ) {
        let bases = [
            request("INVITE", "rport;branch=z9hG4bKphone", ""),
            request("REGISTER", "branch=z9hG4bKphone", ""),
            request("BYE", "branch=z9hG4bKphone", ";tag=2a0123456789abcdef"),
            response("z9hG4bK2a0123456789abcdef"),
        ];
        let mut bytes = bases[base].clone().into_bytes();
        for (at, len, text) in cuts {
            let at = at.min(bytes.len());
            let end = (at + len).min(bytes.len());
            bytes.splice(at..end, text.into_bytes());
        }
        let mut run = Run::started();
        run.input(Input::Congested(B2B, congested));
        let from = addr(if trusted { PHONE } else { STRANGER });
        run.gate.handle_input(run.now(), Input::Datagram { listener: 0, from, bytes: bytes.into() });
        let outputs = run.drain();
        prop_assert!(outputs.len() <= 1);
        if let [Output::Datagram { bytes, to, .. }] = &outputs[..] {
            let answer = Message::parse(bytes.clone()).unwrap();
            prop_assert!(answer.status().is_some_and(|status| 400 <= status));
            prop_assert_eq!(to.ip(), from.ip());
        }
    }

    #[test]
    fn an_invite_and_its_cancel_meet_whatever_the_call_id(call_id in "[!-~]{1,40}") {
        let text = |method| request(method, "branch=z9hG4bKphone", "").replace("call-1@phone", &call_id);
        let message = |method| Message::parse(text(method).into()).unwrap();
        prop_assert_eq!(SLOTS.of_message(&message("INVITE")), SLOTS.of_message(&message("CANCEL")));
    }
}

const B2B: NodeId = NodeId(2);
const GATE: NodeId = NodeId(3);
const PHONE: &str = "127.0.0.9:5062";
const STRANGER: &str = "198.51.100.7:5060";
const SLOTS: SlotHash = SlotHash::new(77);

struct Run {
    origin: Instant,
    ms: u64,
    gate: Gate,
}

impl Run {
    /// A gate that has just started and knows nobody.
    #[expect(clippy::disallowed_methods, reason = "an origin for the test")]
    fn new() -> Self {
        let origin = Instant::now();
        let advertise = addr("127.0.0.1:5060");
        let listeners = [Transport::Udp, Transport::Tcp, Transport::Tls];
        let listener = |(id, transport)| Listener { id, transport, advertise };
        let config = Config {
            id: NodeId(1),
            boot: Boot(5),
            listeners: (0..).zip(listeners).map(listener).collect(),
            trusted: vec!["10.0.0.0/8".parse().unwrap()],
            limits: Limits::default(),
            slots: SLOTS,
        };
        Self { origin, ms: 0, gate: Gate::new(origin, config, 1) }
    }

    /// A gate that has started, and whose b2b owns every slot.
    fn started() -> Self {
        let mut run = Self::new();
        run.input(Input::B2bUp(B2B));
        run.input(Input::Slots { from: B2B, map: SlotMap::whole(reign(1)) });
        run.advance(300);
        run
    }

    fn now(&self) -> Instant {
        self.origin + Duration::from_millis(self.ms)
    }

    fn advance(&mut self, ms: u64) {
        self.ms += ms;
    }

    fn input(&mut self, input: Input) -> Option<Output> {
        self.gate.handle_input(self.now(), input);
        let outputs = self.drain();
        assert!(outputs.len() <= 1, "{outputs:?}");
        outputs.into_iter().next()
    }

    fn datagram(&mut self, from: &str, text: &str) -> Option<Output> {
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        self.input(Input::Datagram { listener: 0, from: addr(from), bytes })
    }

    fn pulse(&mut self, node: NodeId) {
        self.pulse_of(node, false);
    }

    fn pulse_of(&mut self, node: NodeId, deaf: bool) {
        self.pulse_with(node, deaf, true);
    }

    fn pulse_with(&mut self, node: NodeId, deaf: bool, holds: bool) {
        let (boot, claims) = (Boot(1), Vec::new());
        let pulse = Pulse { node, boot, stamp: 0, holds, draining: false, deaf, claims };
        let now = self.now();
        self.gate.voter().pulse(now, &pulse);
    }

    fn relay(&mut self, frame: SipIn) -> Option<Output> {
        self.input(Input::Relay { from: GATE, frame })
    }

    fn frame(&mut self, frame: SipOut) -> Option<Output> {
        self.input(Input::Sip { from: B2B, frame })
    }

    fn invite(&mut self, call: u32) -> Option<Output> {
        let text = request("INVITE", "rport;branch=z9hG4bKphone", "");
        self.datagram(PHONE, &text.replace("call-1@phone", &format!("call-{call}@phone")))
    }

    fn answered(&mut self, from: &str, text: &str) -> String {
        match self.datagram(from, text) {
            Some(Output::Datagram { bytes, .. }) => String::from_utf8(bytes.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn drain(&mut self) -> Vec<Output> {
        std::iter::from_fn(|| self.gate.poll_output()).collect()
    }
}

fn request(method: &str, via: &str, to_tag: &str) -> String {
    format!(
        "{method} sip:bob@example.com SIP/2.0\r\n\
         Via: SIP/2.0/UDP 192.0.2.7:5060;{via}\r\n\
         Max-Forwards: 70\r\n\
         From: <sip:alice@example.com>;tag=alice\r\n\
         To: <sip:bob@example.com>{to_tag}\r\n\
         Call-ID: call-1@phone\r\n\
         CSeq: 1 {method}\r\n\
         Contact: <sip:alice@192.0.2.7>\r\n\
         Content-Length: 0\r\n\r\n"
    )
}

fn response(branch: &str) -> String {
    format!(
        "SIP/2.0 200 OK\r\n\
         Via: SIP/2.0/UDP 127.0.0.1:5060;branch={branch}\r\n\
         From: <sip:bob@example.com>;tag=2a0123456789abcdef\r\n\
         To: <sip:alice@example.com>;tag=phone\r\n\
         Call-ID: call-2@us\r\n\
         CSeq: 1 INVITE\r\n\
         Content-Length: 0\r\n\r\n"
    )
}

fn flow(remote: &str) -> Flow {
    Flow {
        gate: NodeId(1),
        boot: Boot(5),
        listener: 0,
        transport: Transport::Udp,
        connection: 0,
        remote: addr(remote),
    }
}

fn reign(epoch: u32) -> Reign {
    Reign { owner: B2B, standby: None, epoch: Epoch(epoch) }
}

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}
