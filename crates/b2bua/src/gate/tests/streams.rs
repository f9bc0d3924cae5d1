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
fn who_asks_in_a_dialog_over_a_connection_is_answered_when_no_owner_can_be_reached() {
    let tag = ";tag=2a0123456789abcdef";
    for method in ["INVITE", "BYE", "INFO", "CANCEL", "OPTIONS", "ACK"] {
        let mut run = Run::started();
        run.input(Input::B2bDown(B2B));

        let said = run.message(
            &over_tcp(method)
                .replace("<sip:bob@example.com>", &format!("<sip:bob@example.com>{tag}")),
        );

        let counters = run.gate.counters();
        assert_eq!((counters.unowned, counters.overloaded), (1, 0), "{method}");
        let Some(Output::Stream { connection: 7, bytes, .. }) = said else {
            assert_eq!((said, method), (None, "ACK"));
            continue;
        };
        let answer = Message::parse(bytes).unwrap();
        assert_eq!((answer.status(), answer.to_tag()), (Some(503), Some(&tag.as_bytes()[5..])));
        assert!(answer.retry_after().is_some(), "{method}");
    }
    // An answer needs none.
    let mut run = Run::started();
    run.input(Input::B2bDown(B2B));
    assert_eq!(run.message(&response("z9hG4bK2a0123456789abcdef")), None);
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
        let message = Box::new(Message::parse(text.to_owned().into()).unwrap());
        self.input(Input::Message { listener: 1, connection: 7, from: addr(FROM), message })
    }

    fn unsent(&mut self, to: &str, text: &str) -> Option<Output> {
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        self.input(Input::Unsent { listener: 1, to: addr(to), bytes })
    }
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
