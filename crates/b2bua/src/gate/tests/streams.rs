//! Messages over connections.

use super::*;

/// The end of a connection that the phone made.
const FROM: &str = "127.0.0.9:41234";

#[test]
fn a_request_over_a_connection_names_it_and_where_its_peer_is_once_that_is_gone() {
    for (sent_by, remote) in [
        ("127.0.0.9:5077", "127.0.0.9:5077"),
        ("127.0.0.9", "127.0.0.9:5060"),
        ("phone.example.com:5077", "127.0.0.9:5077"),
        // A NAT stands between.
        ("192.168.1.7:5077", "127.0.0.9:0"),
    ] {
        let mut run = Run::started();
        let text = over_tcp("OPTIONS").replace("192.0.2.7:5060", sent_by);

        let Some(Output::Sip { frame, .. }) = run.message(&text) else { panic!() };

        assert_eq!(frame.flow, stream(7, remote), "{sent_by}");
        let sent = run.frame(out(frame.flow, "SIP/2.0 200 OK\r\n\r\n"));
        assert_eq!(sent, Some(said(7, remote, "SIP/2.0 200 OK\r\n\r\n")));
    }
}

#[test]
fn a_sips_uri_is_called_over_tls_alone_where_ports_are_others() {
    for (listener, transport) in [(1, "TCP"), (2, "TLS")] {
        let mut run = Run::started();
        let text = over_tcp("INVITE")
            .replace("INVITE sip:", "INVITE sips:")
            .replace("SIP/2.0/TCP 192.0.2.7:5060", &format!("SIP/2.0/{transport} 127.0.0.9"));
        let message = Box::new(Message::parse(text.into()).unwrap());
        let from = addr(FROM);
        let output = run.input(Input::Message { listener, connection: 7, from, message });
        match output {
            Some(Output::Stream { bytes, .. }) if listener == 1 => {
                assert!(bytes.starts_with(b"SIP/2.0 403 "));
            }
            Some(Output::Sip { frame, .. }) if listener == 2 => {
                let remote = addr("127.0.0.9:5061");
                let flow = Flow { listener, transport: Transport::Tls, ..stream(7, PHONE) };
                assert_eq!(frame.flow, Flow { remote, ..flow });
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_gate_answers_by_itself_over_the_connection() {
    let mut run = Run::new();
    let invite = over_tcp("INVITE");

    let Some(Output::Stream { listener: 1, connection: 7, bytes, .. }) = run.message(&invite)
    else {
        panic!()
    };

    assert!(bytes.starts_with(b"SIP/2.0 503 "));
}

#[test]
fn what_belongs_to_a_call_waits_for_its_owner_in_order_and_is_answered_by_nobody_else() {
    let mut run = Run::started();
    run.input(Input::B2bDown(B2B));
    let methods = ["INVITE", "ACK", "INFO", "BYE"];
    for method in methods {
        assert_eq!(run.message(&in_dialog(method)), None, "{method}");
    }
    assert_eq!(run.message(&response("z9hG4bK2a0123456789abcdef")), None);
    let counters = run.gate.counters();
    assert_eq!((run.gate.waiting(), counters.unowned, counters.passed), (5, 0, 0));

    run.advance(31_000);
    run.gate.handle_input(run.now(), Input::B2bUp(B2B));
    let taken: Vec<String> = run.taken();
    let first = |text: &String| text.split(' ').next().map(str::to_owned);
    let firsts: Vec<String> = taken.iter().filter_map(first).collect();
    assert_eq!(firsts, ["INVITE", "ACK", "INFO", "BYE", "SIP/2.0"]);
    assert_eq!((run.gate.waiting(), run.gate.counters().passed), (0, 5));
    assert_eq!(run.gate.poll_timeout(), None);
}

#[test]
fn what_belongs_to_no_call_is_answered_when_no_owner_can_be_reached() {
    for method in ["CANCEL", "OPTIONS", "INFO"] {
        let mut run = Run::started();
        run.input(Input::B2bDown(B2B));

        let Some(Output::Stream { connection: 7, bytes, .. }) = run.message(&over_tcp(method))
        else {
            panic!("{method}")
        };

        let answer = Message::parse(bytes).unwrap();
        assert!(answer.status() == Some(503) && answer.retry_after().is_some(), "{method}");
        assert_eq!((run.gate.waiting(), run.gate.counters().unowned), (0, 1));
    }
}

/// A link ends only after seconds of silence, and what it holds is lost with a host that died.
#[test]
fn what_belongs_to_a_call_waits_until_the_pulses_of_an_owner_come_again() {
    let mut run = Run::started();
    run.pulse(B2B);
    run.advance(150);
    assert_eq!(run.message(&in_dialog("INFO")), None);
    run.pulse(B2B);
    assert_eq!(run.message(&in_dialog("BYE")), None, "not before the one that waits");
    assert_eq!(run.gate.poll_timeout(), Some(run.now() + Duration::from_millis(100)));

    run.advance(100);
    run.gate.handle_timeout(run.now());
    let taken = run.taken();
    assert!(taken[0].starts_with("INFO ") && taken[1].starts_with("BYE "), "{taken:?}");
    assert!(matches!(run.message(&in_dialog("INFO")), Some(Output::Sip { to: B2B, .. })));
}

#[test]
fn nothing_waits_for_longer_than_its_peer_and_a_handled_timeout_is_never_due_again() {
    let mut run = Run::started();
    run.input(Input::B2bDown(B2B));
    run.message(&in_dialog("BYE"));
    while run.gate.poll_timeout().is_some() {
        run.advance(1);
        run.gate.handle_timeout(run.now());
        assert!(run.gate.poll_timeout().is_none_or(|at| run.now() < at));
    }
    assert_eq!((run.ms, run.gate.counters().unowned), (300 + 32_000, 1));
    run.gate.handle_input(run.now(), Input::B2bUp(B2B));
    assert_eq!(run.taken(), [""; 0]);
}

#[test]
fn what_waits_is_bounded_in_number_and_bytes_and_strangers_take_half_of_it() {
    for (from, part) in [(FROM, 1), ("198.51.100.7:41234", 2)] {
        for (body_len, count_max) in [(0, (1 << 14) / part), (60_000, (16 << 20) / 60_500 / part)] {
            let mut run = Run::started();
            run.input(Input::B2bDown(B2B));
            let body = "x".repeat(body_len);
            let length = format!("Content-Length: {body_len}");
            let text = in_dialog("INFO").replace("Content-Length: 0", &length) + &body;
            // A thousand messages a second are what a stranger may say.
            let mut refused = (0..1 << 15).filter_map(|_| {
                run.advance(1);
                run.message_from(from, &text)
            });
            let Some(Output::Stream { bytes, .. }) = refused.next() else { panic!("{from}") };
            assert!(bytes.starts_with(b"SIP/2.0 503 "));
            let waiting = run.gate.waiting();
            assert!((count_max..count_max + 3).contains(&waiting), "{from} {body_len}: {waiting}");
            if body_len == 0 {
                // An answer that finds no room has none.
                assert_eq!(run.message_from(from, &response("z9hG4bK2a0123456789abcdef")), None);
                assert_eq!(run.gate.counters().unowned, 2);
            }
        }
    }
}

#[test]
fn what_a_gate_gives_back_waits_too_if_it_was_said_once() {
    let mut run = Run::started();
    run.input(Input::B2bDown(B2B));
    run.input(Input::GateUp(GATE));
    for is_once in [true, false] {
        let sent = if is_once {
            run.message(&in_dialog("BYE"))
        } else {
            run.advance(1000);
            run.message(&over_tcp("OPTIONS"))
        };
        let Some(Output::Sip { to: GATE, frame }) = sent else { panic!("{sent:?}") };
        let frame = SipIn { hops: frame.hops + 1, ..frame };
        assert_eq!(run.input(Input::Relay { from: GATE, frame }), None);
        assert_eq!(run.gate.waiting(), usize::from(is_once));
        assert_eq!(run.gate.counters().unowned, u64::from(!is_once));
        if is_once {
            run.advance(1000);
            run.gate.handle_timeout(run.now());
            let [Output::Sip { to: GATE, frame }] = &run.drain()[..] else { panic!() };
            assert_eq!(frame.hops, 3, "the way is tried anew, and counted");
        }
    }
}

#[test]
fn a_message_that_announces_too_long_a_body_is_answered_and_a_bad_answer_is_dropped() {
    let config = sip_core::framer::Config {
        head_len_max: 1000,
        headers_max: 100,
        body_len_max: 1000,
        message_time_max: Duration::from_secs(1),
    };
    for (text, answer) in
        [(over_tcp("INVITE"), true), (response("z9hG4bK2a0123456789abcdef"), false)]
    {
        let mut run = Run::started();
        let text = text.replace("Content-Length: 0", "Content-Length: 4294967295");
        let mut framer = sip_core::framer::Framer::new(config);
        framer.handle_input(run.now(), text.as_bytes());
        let Some(sip_core::framer::Output::Message(message)) = framer.poll_output() else {
            panic!()
        };
        let from = addr(FROM);
        let message = Box::new(message);
        let output = run.input(Input::Message { listener: 1, connection: 7, from, message });
        let is_answered = matches!(output, Some(Output::Stream { bytes, .. })
            if bytes.starts_with(b"SIP/2.0 513 "));
        assert_eq!(is_answered, answer);
        assert_eq!(run.gate.counters().passed, 0);
    }
}

#[test]
fn a_flow_of_an_earlier_life_is_not_taken_for_another_connection_with_its_number() {
    let mut run = Run::started();
    let flow = Flow { boot: Boot(4), ..stream(7, PHONE) };

    assert_eq!(run.frame(out(flow, "BYE")), Some(said(0, PHONE, "BYE")));

    // Nor is a listener for datagrams one for connections.
    for flow in [Flow { listener: 0, ..flow }, Flow { transport: Transport::Udp, ..flow }] {
        assert_eq!(run.frame(out(flow, "BYE")), None);
    }
    assert_eq!(run.gate.counters().stale_flows, 2);
}

#[test]
fn a_request_that_no_connection_takes_is_refused_in_its_peers_place() {
    let branch = "branch=z9hG4bK2a0123456789abcdef";
    for (remote, status) in [(PHONE, "SIP/2.0 503 "), ("127.0.0.9:0", "SIP/2.0 430 ")] {
        for method in ["INVITE", "BYE"] {
            let mut run = Run::started();

            let Some(Output::Sip { to, frame }) = run.unsent(remote, &request(method, branch, ""))
            else {
                panic!()
            };

            assert_eq!((to, frame.slot), (B2B, Slot(0x2a)));
            // By this its b2b knows that no peer said it.
            assert_eq!(frame.flow.connection, 0);
            let answer = Message::parse(frame.bytes).unwrap();
            assert!(answer.bytes().starts_with(status.as_bytes()));
            assert_eq!(answer.branch(), Some(&b"z9hG4bK2a0123456789abcdef"[..]));
            // Its ACK ends here: it would open one more connection.
            let tag = String::from_utf8(answer.to_tag().unwrap().to_vec()).unwrap();
            let ack = request("ACK", branch, &format!(";tag={tag}"));
            assert_eq!(run.frame(out(stream(7, remote), &ack)), None);
            // No peer said any of this.
            let counters = run.gate.counters();
            assert_eq!((counters.unsent, counters.ended), (1, 1));
            assert_eq!((counters.passed, counters.acknowledged), (0, 0));
        }
    }
}

#[test]
fn an_ack_to_a_peer_whose_tag_looks_like_ours_is_sent() {
    let mut run = Run::started();
    for tag in ["-abc", "-0123456789abcdef"] {
        let ack = request("ACK", "branch=z9hG4bK2a0123456789abcdef", &format!(";tag={tag}"));
        let said = run.frame(out(stream(7, PHONE), &ack));
        assert!(matches!(said, Some(Output::Stream { connection: 7, .. })), "{tag}: {said:?}");
    }
}

#[test]
fn nobody_answers_for_a_lost_answer_or_ack() {
    let mut run = Run::started();
    let ack = request("ACK", "branch=z9hG4bK2a0123456789abcdef", ";tag=phone");
    for text in [ack.as_str(), &response("z9hG4bKphone"), "\r\n", "nonsense"] {
        assert_eq!(run.unsent(PHONE, text), None, "{text}");
    }
    assert_eq!(run.gate.counters().unsent, 4);
}

impl Run {
    fn message(&mut self, text: &str) -> Option<Output> {
        self.message_from(FROM, text)
    }

    fn message_from(&mut self, from: &str, text: &str) -> Option<Output> {
        let message = Box::new(Message::parse(text.to_owned().into()).unwrap());
        self.input(Input::Message { listener: 1, connection: 7, from: addr(from), message })
    }

    /// What was handed to the b2b.
    fn taken(&mut self) -> Vec<String> {
        let outputs = self.drain().into_iter();
        let texts = outputs.map(|output| {
            let Output::Sip { to: B2B, frame } = output else { panic!() };
            String::from_utf8(frame.bytes.to_vec()).unwrap()
        });
        texts.collect()
    }

    fn unsent(&mut self, to: &str, text: &str) -> Option<Output> {
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        self.input(Input::Unsent { listener: 1, to: addr(to), bytes })
    }
}

/// A request in a dialog that stands.
fn in_dialog(method: &str) -> String {
    let to = "<sip:bob@example.com>";
    over_tcp(method).replace(to, &format!("{to};tag=2a0123456789abcdef"))
}

fn over_tcp(method: &str) -> String {
    request(method, "branch=z9hG4bKphone", "").replace("SIP/2.0/UDP", "SIP/2.0/TCP")
}

fn stream(connection: u32, remote: &str) -> Flow {
    Flow { listener: 1, transport: Transport::Tcp, connection, ..flow(remote) }
}

fn said(connection: u32, to: &str, text: &'static str) -> Output {
    let bytes = Bytes::from_static(text.as_bytes());
    Output::Stream { listener: 1, connection, to: addr(to), bytes }
}

fn out(flow: Flow, text: &str) -> SipOut {
    let bytes = Bytes::copy_from_slice(text.as_bytes());
    SipOut { slot: Slot(0x2a), epoch: Epoch(1), flow, bytes }
}
