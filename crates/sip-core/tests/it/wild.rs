//! What real peers and hostile ones send, beyond the RFCs' own examples.

use bytes::Bytes;
use sip_core::{
    DefectKind, Message, Method, Name, ParseErrorKind, Refresher, Scheme, Uri, Verdict, unfold,
};

use crate::sample::{Sample, defects, text};

#[test]
fn compact_names_are_names_in_every_lookup() {
    let message = Message::parse(Bytes::from_static(
        b"OPTIONS sip:omar@example.org SIP/2.0\r\nv: SIP/2.0/UDP h;branch=z9hG4bKx\r\n\
          f: <sip:nina@example.com>;tag=f1\r\nt: <sip:omar@example.org>\r\ni: c@h\r\nCSeq: 1 OPTIONS\r\n\
          m: <sip:nina@192.0.2.1>\r\nl: 3\r\nk: timer\r\nx: 1800;refresher=uas\r\n\r\nabc",
    ))
    .expect("a message");
    assert_eq!(message.verdict(), Verdict::Ok);
    assert_eq!((message.branch(), message.from_tag()), (Some(&b"z9hG4bKx"[..]), Some(&b"f1"[..])));
    assert_eq!((message.call_id(), message.content_length()), (&b"c@h"[..], Some(3)));
    assert!(message.lists(Name::SUPPORTED, b"Timer"));
    let session = message.session_expires().expect("a Session-Expires");
    assert_eq!((session.interval, session.refresher), (1800, Some(Refresher::Uas)));
}

#[test]
fn a_folded_challenge_is_one_value() {
    let message = Sample::response("401 Unauthorized")
        .with("WWW-Authenticate: Digest realm=\"one\",\r\n   nonce=\"abc=\",\r\n\tqop=\"auth\"")
        .accepted();
    let value = message.header(Name::WWW_AUTHENTICATE).expect("a challenge");
    assert_eq!(text(unfold(value)), "Digest realm=\"one\", nonce=\"abc=\", qop=\"auth\"");
}

#[test]
fn two_vias_in_one_line_are_two_vias() {
    let message = Sample::response("200 OK")
        .set("Via", "Via: SIP/2.0/UDP 192.0.2.8:5062;rport=5062;received=192.0.2.8;branch=z9hG4bKa,SIP/2.0/TCP 10.0.0.7:5060;branch=z9hG4bKb")
        .accepted();
    let branches: Vec<_> = message.vias().filter_map(|via| via.branch().map(text)).collect();
    assert_eq!(branches, ["z9hG4bKa", "z9hG4bKb"]);
    assert_eq!(message.via().and_then(|via| via.rport()), Some(Some(5062)));
}

#[test]
fn commas_inside_quotes_separate_nothing() {
    let message = Sample::response("200 OK")
        .with("Contact: <sip:a@192.0.2.1>;expires=60, \"B, C\" <sip:b@192.0.2.2;transport=tcp>;expires=30")
        .accepted();
    let contacts: Vec<_> =
        message.contacts().map(|contact| (text(contact.uri()), contact.expires())).collect();
    let expected = [("sip:a@192.0.2.1", Some(60)), ("sip:b@192.0.2.2;transport=tcp", Some(30))];
    assert_eq!(contacts, expected.map(|(uri, expires)| (uri.to_owned(), expires)));
}

#[test]
fn a_display_name_can_never_be_taken_for_the_address() {
    let uri_of = |value: &str| {
        let message = Sample::request("OPTIONS").set("From", format!("From: {value}")).parse();
        let uri = message.from().map(|from| text(from.uri()));
        (uri, message.verdict())
    };
    let evil = || Some("sip:evil@example.net".to_owned());
    for name in [
        "\"<sip:admin@corp.example>\"",
        "\"A <b> \\\"C\\\"\"",
        "\"\\\" <sip:admin@corp.example>;tag=a \\\"\"",
        "\"a\\\\\"",
    ] {
        let value = format!("{name} <sip:evil@example.net>;tag=t");
        assert_eq!(uri_of(&value), (evil(), Verdict::Ok), "{value}");
    }
    for value in [
        "sip:admin@corp.example <sip:evil@example.net>;tag=t",
        "<sip:admin@corp.example> <sip:evil@example.net>;tag=t",
        "<sip:admin@corp.example>, <sip:evil@example.net>;tag=t",
        "\"admin\" sip:admin@corp.example <sip:evil@example.net>;tag=t",
        "\"admin <sip:evil@example.net>;tag=t",
        "admin\" <sip:admin@corp.example>\" <sip:evil@example.net>;tag=t",
        "sip:evil@example.net;tag=t;tag=u",
        "<sip:evil@example.net",
        "<>;tag=t",
        "",
    ] {
        assert_eq!(uri_of(value).1, Verdict::Answer(400), "{value}");
    }
}

#[test]
fn bytes_that_are_no_utf_8_are_kept() {
    let message = Sample::request("OPTIONS")
        .set("From", b"From: \"Ni\xf1a\" <sip:nina@example.com>;tag=n1")
        .accepted();
    let display = message.from().and_then(|from| from.display()).expect("a display name");
    assert_eq!(&*display, b"Ni\xf1a");
    assert_eq!(message.call_id(), b"call-1@a.example.com");
}

#[test]
fn a_bare_line_break_hides_nothing() {
    for line in [
        "Subject: x\nContent-Length: 5",
        "Subject: x\rContent-Length: 5",
        "Subject: x\r\r\nX: y",
        "Subject: x\n\nX: y",
    ] {
        let message = Sample::request("OPTIONS").with(line).refused(400);
        assert_eq!(defects(&message)[0].1, DefectKind::BareLineBreak, "{line:?}");
        assert_eq!(message.content_length(), Some(0), "{line:?}");
    }
    let with_line_feeds = text(Sample::request("OPTIONS").bytes()).replace('\r', "");
    let error = Message::parse(Bytes::from(with_line_feeds)).expect_err("no CR LF at all");
    assert_eq!(error.kind, ParseErrorKind::StartLine);
}

#[test]
fn breaks_before_a_message_are_skipped() {
    let bytes = Sample::request("OPTIONS").bytes();
    let message =
        Message::parse(Bytes::from([b"\r\n\r\n", &bytes[..]].concat())).expect("a message");
    assert_eq!((message.verdict(), message.bytes()), (Verdict::Ok, &Bytes::from(bytes)));
    let error = Message::parse(Bytes::from_static(b"\r\n\r\n")).expect_err("a keep-alive");
    assert_eq!(error.kind, ParseErrorKind::Empty);
}

#[test]
fn without_a_length_a_datagram_is_body_to_its_end() {
    let sample = Sample::request("OPTIONS").without("Content-Length").body("v=0\r\n");
    let message = sample.accepted();
    assert_eq!((message.body(), message.content_length()), (&b"v=0\r\n"[..], None));
}

#[test]
fn a_cseq_must_be_below_two_to_the_31() {
    for (number, verdict) in [
        ("2147483647", Verdict::Ok),
        ("2147483648", Verdict::Answer(400)),
        ("4294967296", Verdict::Answer(400)),
        ("-1", Verdict::Answer(400)),
        ("", Verdict::Answer(400)),
    ] {
        let line = format!("CSeq: {number} OPTIONS");
        assert_eq!(Sample::request("OPTIONS").set("CSeq", line).parse().verdict(), verdict);
    }
}

#[test]
fn methods_are_matched_whole_and_by_case() {
    for method in ["invite", "INVITEX", "INVIT", "FOO"] {
        let message = Sample::request(method).accepted();
        assert_eq!(message.method(), Method::Other(method.as_bytes()));
    }
}

#[test]
fn a_star_is_a_contact_of_its_own() {
    let message = Sample::request("REGISTER").with("Contact: *").with("Expires: 0").accepted();
    assert!(message.contact().is_some_and(|contact| contact.is_star()));
    assert_eq!(message.expires(), Some(0));
    Sample::request("REGISTER").with("Contact: *, <sip:nina@example.com>").refused(400);
}

#[test]
fn quoted_parameters_and_odd_tokens_are_read_whole() {
    let message = Sample::request("REGISTER")
        .set("From", "From: <sip:nina@example.com>;tag=a!b%c*d_e+f`g'h~i.j-k")
        .set("Via", "Via: SIP/2.0/TLS-SCTP h.example.com;branch=z9hG4bK=abc=;rport")
        .with("Contact: <sip:a@192.0.2.1;ob>;reg-id=1;+sip.instance=\"<urn:uuid:0>\";expires=600")
        .accepted();
    assert_eq!(message.from_tag(), Some(&b"a!b%c*d_e+f`g'h~i.j-k"[..]));
    assert_eq!(message.branch(), Some(&b"z9hG4bK=abc="[..]));
    let via = message.via().expect("a Via");
    assert_eq!((via.transport(), via.rport()), (&b"TLS-SCTP"[..], Some(None)));
    let contact = message.contact().expect("a Contact");
    assert_eq!(contact.param(b"+sip.instance"), Some(&b"\"<urn:uuid:0>\""[..]));
    assert_eq!(contact.expires(), Some(600));
}

#[test]
fn white_space_around_a_value_is_no_part_of_it() {
    let message = Sample::request("OPTIONS")
        .set("Call-ID", "Call-ID: c1@h  \t")
        .with("Supported: ")
        .with("Subject:")
        .accepted();
    assert_eq!(message.call_id(), b"c1@h");
    assert_eq!(message.header(Name::SUPPORTED), Some(&b""[..]));
    assert_eq!(message.elements(Name::SUPPORTED).count(), 0);
}

#[test]
fn a_telephone_number_is_a_user() {
    let start = "INVITE tel:+1-201-555-0123;phone-context=example.com SIP/2.0";
    let message = Sample::request("INVITE").start(start).accepted();
    let uri = Uri::parse(message.request_uri().expect("a request")).expect("a uri");
    assert_eq!((uri.scheme(), uri.user()), (Scheme::Tel, Some(&b"+1-201-555-0123"[..])));
    assert_eq!(uri.param(b"phone-context"), Some(&b"example.com"[..]));
}

#[test]
fn an_ack_is_never_answered() {
    Sample::request("ACK").with("Max-Forwards: 1").dropped();
    Sample::request("ACK").accepted();
}

#[test]
fn a_malformed_extra_does_not_cost_a_response() {
    let message = Sample::response("200 OK").with("Contact: <sip:nina@example.com").accepted();
    assert_eq!(defects(&message), [("Contact".to_owned(), DefectKind::Malformed)]);
    assert_eq!(message.contact(), None);
}

#[test]
fn no_number_of_harmless_faults_hides_the_one_that_decides() {
    let many = |line: &str, sample: Sample| (0..99).fold(sample, |sample, _| sample.with(line));
    let nameless = |sample| many("no colon at all", sample);
    for name in ["Via", "From", "To", "Call-ID", "CSeq"] {
        nameless(Sample::response("200 OK").without(name)).dropped();
        nameless(Sample::response("200 OK").set(name, format!("{name}:"))).dropped();
    }
    nameless(Sample::response("200 OK").without("Via")).with("Via: SIP/2.0/UDP").dropped();
    let odd = many("Contact: < sip:a@b >", Sample::request("OPTIONS"));
    assert!(odd.accepted().defects().len() < 10);
    odd.clone().with("Call-ID: another").refused(400);
    odd.clone().with("Route: <>").refused(400);
    let message = odd.with("bad line").with("Route: <>").with("Max-Forwards: -1").refused(400);
    for header in ["", "Route", "Max-Forwards"] {
        assert!(defects(&message).iter().any(|(name, _)| name == header), "{header:?} is told");
    }
}

#[test]
fn a_line_without_a_name_is_refused() {
    for line in ["no colon at all", ": no name", "two words: x", "ümlaut: x"] {
        let message = Sample::request("OPTIONS").with(line).refused(400);
        assert_eq!(defects(&message), [(String::new(), DefectKind::HeaderLine)], "{line}");
        assert_eq!(message.lines().last().map(|line| line.name()), Some(None));
    }
}

#[test]
fn a_head_that_breaks_off_is_refused() {
    let bytes = Sample::request("OPTIONS").bytes();
    for len in bytes.len() - 10..bytes.len() {
        let message = Message::parse(Bytes::copy_from_slice(&bytes[..len])).expect("readable");
        assert_eq!(message.verdict(), Verdict::Answer(400), "{len}");
    }
}

#[test]
fn what_was_never_sip_is_no_message() {
    for text in
        ["", "\0\0\0\0", "GET / HTTP/1.1\r\n\r\n", "SIP/2.0", "INVITE sip:a", "SIP/2 200 OK\r\n"]
    {
        assert!(Message::parse(Bytes::copy_from_slice(text.as_bytes())).is_err(), "{text}");
    }
    let long = [b"OPTIONS sip:a SIP/2.0\r\nX: ", &vec![b'x'; 70_000][..], b"\r\n\r\n"].concat();
    let error = Message::parse(Bytes::from(long)).expect_err("too long");
    assert_eq!(error.kind, ParseErrorKind::HeadTooLong);
}

#[test]
fn call_control_headers_are_read() {
    let message = Sample::request("INVITE")
        .with("Replaces: 98732@sip.example.com;from-tag=r33th4x0r;to-tag=ff87ff;early-only")
        .with("Reason: SIP;cause=200;text=\"Call completed elsewhere\", Q.850 ;cause = 16")
        .with("Min-SE: 90;x")
        .with("Retry-After: 120 (in a meeting);duration=3600")
        .with("Allow: INVITE, ACK,BYE")
        .accepted();
    let replaces = message.replaces().expect("a Replaces");
    assert_eq!((replaces.call_id, replaces.early_only), (&b"98732@sip.example.com"[..], true));
    assert_eq!((replaces.to_tag, replaces.from_tag), (&b"ff87ff"[..], &b"r33th4x0r"[..]));
    let causes: Vec<_> = message.reasons().map(|reason| reason.cause()).collect();
    assert_eq!(causes, [Some(200), Some(16)]);
    let said = message.reasons().next().and_then(|reason| reason.text()).map(text);
    assert_eq!(said, Some("Call completed elsewhere".to_owned()));
    assert_eq!((message.min_se(), message.retry_after()), (Some(90), Some(120)));
    assert!(message.lists(Name::ALLOW, b"BYE") && !message.lists(Name::ALLOW, b"bye"));
}
