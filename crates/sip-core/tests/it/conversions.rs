//! To rsip and sdp-rs and back: what comes back says what went in, and what
//! does not fit is named.

use proptest::prelude::*;
use rsip::prelude::{HeadersExt as _, ToTypedHeader as _};
use sdp_rs::SessionDescription;
use sip_core::sdp::Sdp;
use sip_core::{
    DefectKind, LineNotRepresentable, Message, Name, NotRepresentable, Uri, Verdict, from_sdp_rs,
};

use crate::sample::{SDP, Sample, text};

#[test]
fn a_request_goes_to_rsip_and_back() {
    let message = Sample::request("INVITE")
        .start("INVITE sip:omar:pw@example.org:5070;transport=tcp;lr SIP/2.0")
        .set("Via", "v: SIP/2.0/UDP a.example.com;branch=z9hG4bKa , SIP/2.0/TCP b.example.com;branch=z9hG4bKb")
        .with("m: \"N, N\" <sip:nina@192.0.2.1>,\r\n <sip:nina@192.0.2.2>;q=0.5")
        .with("X-Unknown:  a\r\n   b")
        .with("c: application/sdp")
        .body(SDP)
        .accepted();
    let theirs = rsip::SipMessage::try_from(&message).expect("it fits");
    let rsip::SipMessage::Request(request) = &theirs else { panic!("it is a request") };
    assert_eq!(request.method, rsip::Method::Invite);
    assert_eq!(request.uri.to_string(), "sip:omar:pw@example.org:5070;transport=TCP;lr");
    assert_eq!(request.body, SDP.as_bytes());
    let via = request.via_header().expect("a Via").typed().expect("rsip reads it now");
    assert_eq!(via.branch().map(|branch| branch.value()), Some("z9hG4bKa"));
    let lines: Vec<_> = request.headers.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines[..2],
        [
            "Via: SIP/2.0/UDP a.example.com;branch=z9hG4bKa",
            "Via: SIP/2.0/TCP b.example.com;branch=z9hG4bKb",
        ]
    );
    assert!(lines.contains(&"Contact: \"N, N\" <sip:nina@192.0.2.1>".to_owned()));
    assert!(lines.contains(&"X-Unknown: a b".to_owned()));

    let back = Message::try_from(&theirs).expect("it came from here");
    assert_same(&message, &back);
    assert_eq!(rsip::SipMessage::try_from(&back), Ok(theirs));
}

#[test]
fn a_response_goes_to_rsip_and_back() {
    for (line, code) in
        [("486 Busy Here", 486), ("299 Very Well", 299), ("183 Session Progress", 183)]
    {
        let message = Sample::response(line).accepted();
        let theirs = rsip::SipMessage::try_from(&message).expect("it fits");
        let rsip::SipMessage::Response(response) = &theirs else { panic!("it is a response") };
        assert_eq!(response.status_code.code(), code);
        let back = Message::try_from(&theirs).expect("it came from here");
        assert_eq!(back.reason(), message.reason());
        assert_same(&message, &back);
    }
}

#[test]
fn what_rsip_cannot_hold_is_named() {
    let refused = |message: &Message| rsip::SipMessage::try_from(message).err();
    let start = |start: &str| refused(&Sample::request("OPTIONS").start(start).accepted());
    for uri in [
        "sip:[2001:db8::1]",
        "tel:+1-201-555-0123",
        "urn:service:sos",
        "sip:a@b;transport=carrier-pigeon",
        "sip:a@b;method=FOO",
    ] {
        let line = format!("OPTIONS {uri} SIP/2.0");
        assert_eq!(start(&line), Some(NotRepresentable::Uri), "{uri}");
    }
    assert_eq!(refused(&Sample::request("FOO").accepted()), Some(NotRepresentable::Method));
    let custom = Sample::response("200 Fine By Me").accepted();
    assert_eq!(refused(&custom), Some(NotRepresentable::Status));
    let latin = Sample::request("OPTIONS").set("From", b"From: \"Ni\xf1a\" <sip:n@a>;tag=1");
    assert_eq!(refused(&latin.accepted()), Some(NotRepresentable::Header(2)));
    let bad = Sample::request("OPTIONS").with("Content-Length: 5").parse();
    let Some(NotRepresentable::Defect(defect)) = refused(&bad) else { panic!("it is refused") };
    assert_eq!((defect.header, defect.kind), (Some(Name::CONTENT_LENGTH), DefectKind::Duplicate));
    let uri = Uri::parse(b"sip:a@b?Subject=x").expect("a URI");
    assert_eq!(rsip::Uri::try_from(&uri), Err(NotRepresentable::Uri));
}

#[test]
fn what_rsip_holds_and_no_message_may_is_named() {
    let good = rsip::SipMessage::try_from(&Sample::request("OPTIONS").accepted()).expect("it fits");
    let with = |change: &dyn Fn(&mut rsip::Request)| {
        let rsip::SipMessage::Request(mut request) = good.clone() else { panic!("a request") };
        change(&mut request);
        Message::try_from(&rsip::SipMessage::Request(request)).err()
    };
    let other = |name: &str, value: &str| {
        with(&|request| {
            let header = rsip::Header::Other(name.to_owned(), value.to_owned());
            request.headers = vec![header].into();
        })
    };
    assert_eq!(with(&|_| {}), None);
    assert_eq!(other("X", "a\r\nEvil: b"), Some(NotRepresentable::Header(0)));
    assert_eq!(other("X Y", "a"), Some(NotRepresentable::Header(0)));
    assert_eq!(other("X", "a\0"), Some(NotRepresentable::Header(0)));
    assert!(matches!(other("X", "a"), Some(NotRepresentable::Defect(_))), "no Via");
    assert_eq!(
        with(&|request| request.version = rsip::Version::V1),
        Some(NotRepresentable::Version)
    );
    assert_eq!(with(&|request| request.uri.scheme = None), Some(NotRepresentable::Uri));
    assert_eq!(with(&|request| request.uri.headers = vec![1]), Some(NotRepresentable::Uri));
    let longer = with(&|request| request.body = b"x".to_vec());
    assert_eq!(longer, Some(NotRepresentable::Header(6)), "Content-Length says 0");
    let host = with(&|request| request.uri.host_with_port = "a b".try_into().unwrap_or_default());
    assert!(host.is_none_or(|error| error == NotRepresentable::Uri));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_went_to_rsip_comes_back(sample in samples()) {
        let message = sample.accepted();
        let theirs = rsip::SipMessage::try_from(&message).expect("it is made to fit");
        let back = Message::try_from(&theirs).expect("it came from here");
        assert_same(&message, &back);
        prop_assert_eq!(rsip::SipMessage::try_from(&back), Ok(theirs));
    }

    #[test]
    fn what_rsip_reads_goes_there_unchanged(sample in samples()) {
        let message = sample.accepted();
        let normal = rsip::SipMessage::try_from(&message).expect("it is made to fit");
        let normal = Message::try_from(&normal).expect("it came from here");
        // rsip's own reader is lossy in places: what it reads right is the same.
        if let Ok(theirs) = rsip::SipMessage::try_from(normal.bytes().clone())
            && let Ok(ours) = Message::try_from(&theirs)
        {
            prop_assert_eq!(rsip::SipMessage::try_from(&ours), Ok(theirs));
            assert_same(&normal, &ours);
        }
    }

    #[test]
    fn what_went_to_sdp_rs_comes_back(text in descriptions()) {
        let sdp = Sdp::parse(text.as_bytes()).expect("a description");
        let theirs = SessionDescription::try_from(&sdp).expect("it is made to fit");
        let back = from_sdp_rs(&theirs).expect("it came from here");
        prop_assert_eq!(String::from_utf8_lossy(&back), text);
        let again = Sdp::parse(&back).expect("it is a description");
        prop_assert_eq!(SessionDescription::try_from(&again), Ok(theirs));
    }
}

#[test]
fn what_sdp_rs_cannot_hold_is_named() {
    let refused = |text: &str| {
        let sdp = Sdp::parse(text.as_bytes()).expect("a description");
        SessionDescription::try_from(&sdp).err().map(|LineNotRepresentable { line }| line)
    };
    let head = "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\n";
    let audio = "m=audio 4000 RTP/AVP 0 96\r\n";
    assert_eq!(refused(&format!("{head}t=0 0\r\n{audio}a=rtpmap:96 opus/48000/2\r\n")), None);
    assert_eq!(refused(&format!("{head}t=0 0\r\n{audio}y=0100\r\n{audio}")), Some(5));
    assert_eq!(refused(&format!("{head}t=0 0\r\n{audio}a=ptime:20\r\nb=AS:64\r\n")), Some(6));
    assert_eq!(refused(&format!("{head}c=IN IP4 media.example.com\r\nt=0 0\r\n{audio}")), Some(3));
    assert_eq!(refused(&format!("{head}{audio}")), Some(0), "a line is missing");
    // Line feeds alone and a last line without one mean the same.
    let bare = format!("{head}t=0 0\r\n{audio}").replace("\r\n", "\n");
    assert_eq!(refused(bare.trim_end()), None);
}

#[test]
fn what_sdp_rs_holds_and_cannot_say_is_named() {
    let sdp = Sdp::parse(SDP.as_bytes()).expect("a description");
    let mut theirs = SessionDescription::try_from(&sdp).expect("it fits");
    assert_eq!(from_sdp_rs(&theirs).map(text), Ok(SDP.to_owned()));
    theirs.session_name = "a\r\nm=audio 1 RTP/AVP 0".to_owned().into();
    assert!(from_sdp_rs(&theirs).is_err());
}

/// Compares all that a message means: start line, headers in order, body.
fn assert_same(one: &Message, other: &Message) {
    assert_eq!(other.verdict(), Verdict::Ok);
    let facts = |message: &Message| {
        (
            text(message.method().as_bytes()),
            (message.status(), text(message.reason())),
            (message.branch().map(text), message.vias().count()),
            message
                .vias()
                .map(|via| (text(via.transport()), text(via.host().name()), via.port()))
                .collect::<Vec<_>>(),
            (message.from().map(|from| text(from.uri())), message.from_tag().map(text)),
            (message.to().map(|to| text(to.uri())), message.to_tag().map(text)),
            (text(message.call_id()), message.cseq().map(|cseq| cseq.number)),
            message
                .contacts()
                .map(|contact| (text(contact.uri()), contact.expires()))
                .collect::<Vec<_>>(),
            message.routes().map(|route| text(route.uri())).collect::<Vec<_>>(),
            (message.max_forwards(), message.expires(), text(message.body())),
        )
    };
    assert_eq!(facts(one), facts(other));
    match (one.request_uri().map(Uri::parse), other.request_uri().map(Uri::parse)) {
        (Some(Ok(one)), Some(Ok(other))) => assert!(one.is_equivalent(&other)),
        (None, None) => {}
        _ => panic!("a Request-URI is lost"),
    }
    let values = |message: &Message| -> Vec<String> {
        let name = Name::new(b"X-Extra");
        message.headers(name).map(|value| text(sip_core::unfold(value))).collect()
    };
    assert_eq!(values(one), values(other));
}

/// Messages that rsip can hold, in every spelling that means the same.
fn samples() -> impl Strategy<Value = Sample> {
    let name = "[a-z][a-z0-9]{0,8}";
    let start = (
        prop::sample::select(vec!["INVITE", "REGISTER", "PRACK", "MESSAGE", "BYE"]),
        (name, prop::option::of("[a-z0-9]{1,5}"), "[a-z]{1,5}\\.example\\.com"),
        (
            prop::option::of(1024u16..),
            prop::sample::subsequence(
                vec![";lr", ";transport=tcp", ";user=phone", ";x=y", ";ob"],
                0..4,
            ),
        ),
        prop::option::of(prop::sample::select(vec!["200 OK", "404 Not Found", "299 So So"])),
    );
    let rest = (
        prop::sample::subsequence(
            vec![
                "Contact: <sip:a@192.0.2.1>;expires=60, \"B, C\" <sip:b@192.0.2.2>",
                "m: sip:c@192.0.2.3",
                "Route: <sip:p1.example.com;lr>,<sip:p2.example.com;lr>",
                "Record-Route: <sip:p3.example.com;lr>",
                "Expires  : 3600",
                "s: a folded\r\n  line",
                "k:timer,\r\n\t100rel",
                "X-Extra: \u{e9}t\u{e9};a=\"b\\\"c\"",
                "x-extra:",
            ],
            0..9,
        ),
        prop::collection::vec(any::<u8>(), 0..40),
        any::<bool>(),
    );
    (start, rest).prop_map(|((method, (user, password, host), (port, params), status), rest)| {
        let password = password.map_or_else(String::new, |password| format!(":{password}"));
        let port = port.map_or_else(String::new, |port| format!(":{port}"));
        let line = match status {
            Some(status) => format!("SIP/2.0 {status}"),
            None => format!("{method} sip:{user}{password}@{host}{port}{} SIP/2.0", params.concat()),
        };
        let mut sample = Sample::request(method).start(&line);
        let (lines, body, is_compact) = rest;
        if is_compact {
            sample = sample.set("Via", "v:SIP/2.0/TCP [2001:db8::1]:5070;branch=z9hG4bKx ,\r\n SIP/2.0/UDP b;branch=z9hG4bKy");
        }
        lines.into_iter().fold(sample, |sample, line| sample.with(line)).body(body)
    })
}

/// Descriptions of lines that sdp-rs knows.
fn descriptions() -> impl Strategy<Value = String> {
    let attributes = vec![
        "a=rtpmap:0 PCMU/8000\r\n",
        "a=rtpmap:96 opus/48000/2\r\n",
        "a=fmtp:101 0-15\r\n",
        "a=sendonly\r\n",
        "a=ptime:20\r\n",
        "a=ice-ufrag:abcd\r\n",
        "a=candidate:1 1 UDP 2130706431 192.0.2.1 5000 typ host\r\n",
    ];
    let media = (
        prop::sample::select(vec!["audio", "video"]),
        any::<u16>(),
        prop::option::of(prop::sample::select(vec![
            "c=IN IP4 192.0.2.7\r\n",
            "c=IN IP6 2001:db8::1\r\n",
        ])),
        prop::sample::subsequence(attributes, 0..7),
    );
    (any::<u64>(), prop::collection::vec(media, 0..4)).prop_map(|(version, media)| {
        let mut text = format!("v=0\r\no=- 1 {version} IN IP4 192.0.2.1\r\ns=-\r\nt=0 0\r\n");
        for (kind, port, connection, attributes) in media {
            text += &format!("m={kind} {port} RTP/AVP 0 96 101\r\n{}", connection.unwrap_or(""));
            attributes.into_iter().for_each(|attribute| text += attribute);
        }
        text
    })
}
