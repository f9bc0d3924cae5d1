//! Inputs that parsers of this language are known to get wrong, one test each.

use bytes::Bytes;
use sip_core::{
    DefectKind, Edit, Message, Method, Name, ParseErrorKind, Scheme, Uri, Verdict, Writer,
};

use crate::sample::{Sample, defects, text};

#[test]
fn a_bare_ipv6_address_is_a_received_parameter() {
    let via = "Via: SIP/2.0/UDP [2001:db8::9:1]:5070;received=2001:db8::9:255;rport=5071;branch=z9hG4bKas3";
    let message = Sample::request("OPTIONS").set("Via", via).accepted();
    let via = message.via().expect("a Via");
    assert_eq!((via.host().as_bytes(), via.port()), (&b"[2001:db8::9:1]"[..], Some(5070)));
    assert_eq!(via.received(), "2001:db8::9:255".parse().ok());
    assert_eq!((via.rport(), message.branch()), (Some(Some(5071)), Some(&b"z9hG4bKas3"[..])));
}

#[test]
fn bytes_behind_the_body_of_a_datagram_are_no_body() {
    let first = Sample::request("OPTIONS").body("abc").bytes();
    for rest in [&b"0123456789"[..], b"\r\n", &Sample::request("BYE").bytes()] {
        let bytes = Bytes::from([&first[..], rest].concat());
        let message = Message::parse(bytes).expect("a message");
        assert_eq!((message.verdict(), message.body()), (Verdict::Ok, &b"abc"[..]));
        assert_eq!(message.bytes(), &first);
    }
}

#[test]
fn a_body_of_any_bytes_stays_as_it_is() {
    let body: Vec<u8> = (0..=255).chain(*b"\r\n\r\n\0\xff\xfe").collect();
    let message = Sample::request("MESSAGE").body(&body).accepted();
    assert_eq!(message.body(), body);
    let forwarded = Edit::new(&message).push_via("SIP/2.0/UDP p;branch=z9hG4bKp").finish();
    assert_eq!(Message::parse(forwarded).expect("a message").body(), body);
    let written = Writer::answer(&message, 200, b"OK", Some(b"t")).body(b"a/b", body.clone());
    assert_eq!(written.finish().body(), body);
}

#[test]
fn every_transport_is_a_transport() {
    let vias = [
        "Via: SIP/2.0/UDP t1.example.com;branch=z9hG4bK1",
        "Via: SIP/2.0/SCTP t2.example.com;branch=z9hG4bK2",
        "Via: SIP/2.0/TLS t3.example.com;branch=z9hG4bK3",
        "Via: SIP/2.0/UNKNOWN t4.example.com;branch=z9hG4bK4",
        "Via: SIP / 2.0 / TCP t5.example.com : 5070 ; branch = z9hG4bK5",
    ];
    let sample = Sample::request("OPTIONS").without("Via");
    let message = vias.iter().fold(sample, |sample, via| sample.with(via)).accepted();
    let transports: Vec<_> = message.vias().map(|via| text(via.transport())).collect();
    assert_eq!(transports, ["UDP", "SCTP", "TLS", "UNKNOWN", "TCP"]);
    assert_eq!(message.vias().last().and_then(|via| via.port()), Some(5070));
}

#[test]
fn a_user_part_may_hold_what_separates_elsewhere() {
    let uri = |uri: &str| {
        let message =
            Sample::request("OPTIONS").start(&format!("OPTIONS {uri} SIP/2.0")).accepted();
        let uri = Uri::parse(message.request_uri().expect("a request")).expect("a URI");
        let user = uri.user_unescaped().map(text).unwrap_or_default();
        (user, text(uri.host().expect("a host").name()), uri.params().into_iter().count())
    };
    let is = |user: &str, params| (user.to_owned(), "example.com".to_owned(), params);
    assert_eq!(uri("sip:user;par=u%40example.net@example.com"), is("user;par=u@example.net", 0));
    assert_eq!(uri("sip:a?b@example.com"), is("a?b", 0));
    assert_eq!(uri("sip:a#b@example.com;lr"), is("a#b", 1));
    assert_eq!(uri("sip:%61;x=y:pass@example.com;lr;maddr=[2001:db8::1]"), is("a;x=y", 2));
    assert_eq!(uri("sip:null-%00-null@example.com"), is("null-\0-null", 0));
    assert_eq!(uri("sip:3402000000@example.com"), is("3402000000", 0));
}

#[test]
fn a_reference_to_an_ipv6_address_is_a_host() {
    let uri = |text: &'static str| Uri::parse(text.as_bytes());
    let port = |text| uri(text).map(|uri| (uri.host().and_then(|host| host.ip()), uri.port()));
    let ip = "2001:db8::10".parse().ok();
    assert_eq!(port("sip:[2001:db8::10]"), Ok((ip, None)));
    assert_eq!(port("sip:[2001:db8::10]:5070"), Ok((ip, Some(5070))));
    assert_eq!(port("sip:[2001:db8::10:5070]").map(|(_, port)| port), Ok(None));
    for wrong in
        ["sip:2001:db8::10", "sip:[2001:db8::10", "sip:[]", "sip:[x]", "sip:[::1]x", "sip:a@"]
    {
        assert!(Uri::parse(wrong.as_bytes()).is_err(), "{wrong}");
    }
}

#[test]
fn a_scope_means_nothing_elsewhere_and_is_no_part_of_an_address() {
    for host in ["[fe80::1%eth0]", "[fe80::1%25eth0]", "[::1%1]"] {
        assert!(Uri::parse(format!("sip:a@{host}").as_bytes()).is_err(), "{host}");
        let from = format!("From: <sip:a@{host}>;tag=1");
        Sample::request("OPTIONS").set("From", from).refused(400);
        let via = format!("Via: SIP/2.0/UDP {host};branch=z9hG4bK1");
        Sample::request("OPTIONS").set("Via", via).dropped();
    }
    // What a peer claims to have been seen from is replaced anyhow.
    let via = "Via: SIP/2.0/UDP a;received=fe80::1%eth0;branch=z9hG4bK1";
    let message = Sample::request("OPTIONS").set("Via", via).accepted();
    assert_eq!(message.via().and_then(|via| via.received()), None);
    let stamped = Edit::new(&message).via_received([192, 0, 2, 1].into(), 5060).finish();
    assert!(text(&stamped).contains("Via: SIP/2.0/UDP a;branch=z9hG4bK1;received=192.0.2.1\r\n"));
}

#[test]
fn any_scheme_is_kept_as_it_is() {
    for (uri, scheme) in [
        ("nobodyKnowsThisScheme:totallyopaquecontent", Scheme::Other),
        ("soap.beep://192.0.2.103:3002", Scheme::Other),
        ("SIPS:a@b", Scheme::Sips),
        ("TEL:+1-201-555-0123;phone-context=example.com", Scheme::Tel),
        ("urn:service:sos", Scheme::Other),
    ] {
        let message =
            Sample::request("OPTIONS").start(&format!("OPTIONS {uri} SIP/2.0")).accepted();
        assert_eq!(message.request_uri(), Some(uri.as_bytes()));
        assert_eq!(Uri::parse(uri.as_bytes()).map(|uri| uri.scheme()), Ok(scheme), "{uri}");
    }
    let to = Sample::request("OPTIONS").set("To", "To: isbn:2983792873").accepted();
    assert_eq!(to.to().map(|to| text(to.uri())), Some("isbn:2983792873".to_owned()));
}

#[test]
fn without_brackets_parameters_belong_to_the_header() {
    let message = Sample::request("OPTIONS")
        .set("From", "From: sip:nina@example.com;tag=n1;x=y")
        .with("Contact: sip:nina@192.0.2.1;transport=tcp")
        .accepted();
    let from = message.from().expect("a From");
    assert_eq!((from.uri(), from.tag()), (&b"sip:nina@example.com"[..], Some(&b"n1"[..])));
    let contact = message.contact().expect("a Contact");
    assert_eq!(
        (contact.uri(), contact.param(b"transport")),
        (&b"sip:nina@192.0.2.1"[..], Some(&b"tcp"[..]))
    );
}

#[test]
fn a_parameter_may_hold_a_colon_quotes_and_escapes() {
    let message = Sample::request("REGISTER")
        .with("Contact: <sip:a@h>;x=a:b;+sip.instance=\"<urn:uuid:1;2,3>\";y=\"\\\"\\\\\";expires=600")
        .accepted();
    let contact = message.contact().expect("a Contact");
    assert_eq!(message.contacts().count(), 1);
    assert_eq!(contact.param(b"x"), Some(&b"a:b"[..]));
    assert_eq!(contact.param(b"+SIP.instance"), Some(&b"\"<urn:uuid:1;2,3>\""[..]));
    let unquoted = contact.params().into_iter().find(|param| param.name == b"y");
    assert_eq!(unquoted.and_then(|param| param.unquoted()).as_deref(), Some(&b"\"\\"[..]));
    assert_eq!(contact.expires(), Some(600));
}

#[test]
fn lengths_are_digits_and_stand_once() {
    for line in ["+5", "-5", "5 5", "5,5", "0x5", "5.", "", "five", "99999999999"] {
        let sample = Sample::request("OPTIONS").body("12345");
        let message = sample.set("Content-Length", format!("Content-Length: {line}")).refused(400);
        assert_eq!(message.content_length(), None, "{line}");
    }
    for second in ["Content-Length: 5", "l: 5", "L: 3", "content-LENGTH : 5"] {
        let message = Sample::request("OPTIONS").body("12345").with(second).refused(400);
        let length = ("Content-Length".to_owned(), DefectKind::Duplicate);
        assert_eq!(defects(&message), [length], "{second}");
    }
    for length in ["5", "05", " 5 ", "\t5\r\n "] {
        let sample = Sample::request("OPTIONS").body("12345");
        let message = sample.set("Content-Length", format!("l:{length}")).accepted();
        assert_eq!(message.body(), b"12345", "{length:?}");
    }
    let short = Sample::request("OPTIONS").body("1234").set("Content-Length", "l: 5").refused(400);
    assert_eq!(defects(&short)[0].1, DefectKind::BodyTooShort);
    Sample::response("200 OK").body("1234").set("Content-Length", "l: 5").dropped();
}

#[test]
fn a_header_of_one_value_stands_once() {
    for line in [
        "Call-ID: other",
        "i: other",
        "CSeq: 18 OPTIONS",
        "f: <sip:eve@example.net>;tag=e",
        "t: <sip:eve@example.net>",
        "Max-Forwards: 1",
        "Content-Type: a/b\r\nc: a/b",
        "Date: Sat, 01 Jan 2000 00:00:00 GMT\r\nDATE: Sat, 01 Jan 2000 00:00:00 GMT",
        "Subject: one\r\ns: two",
        "Expires: 1\r\nExpires: 1",
        "Event: refer\r\no: refer",
        "Refer-To: <sip:a@b>\r\nr: <sip:c@d>",
        "Contact: *\r\nm: <sip:a@b>",
        "Contact: <sip:a@b>\r\nm: *",
        "Contact: *\r\nContact: *",
    ] {
        let message = Sample::request("OPTIONS").with(line).refused(400);
        let wanted = if line.contains('*') { DefectKind::Malformed } else { DefectKind::Duplicate };
        assert!(defects(&message).iter().any(|(_, kind)| *kind == wanted), "{line}");
    }
}

#[test]
fn a_status_has_three_digits_from_100_to_699() {
    for (line, status) in [
        ("100 Trying", Some(100)),
        ("699 High", Some(699)),
        ("200", Some(200)),
        ("200 ", Some(200)),
        ("099 Low", None),
        ("99 Low", None),
        ("700 High", None),
        ("4294967301 better not break the receiver", None),
        ("+20 x", None),
        ("2OO OK", None),
    ] {
        let message = Sample::response(line).parse();
        assert_eq!(message.status(), status, "{line}");
        let verdict = if status.is_some() { Verdict::Ok } else { Verdict::Discard };
        assert_eq!(message.verdict(), verdict, "{line}");
    }
}

#[test]
fn one_space_and_nothing_else_stands_between_the_parts_of_a_status_line() {
    for start in ["SIP/2.0\t200 OK", "SIP/2.0  200 OK", "SIP/2.0 \t200 OK", "SIP/2.0 200\tOK"] {
        let message = Sample::response("200 OK").start(start).dropped();
        assert_ne!(defects(&message), [], "{start:?}");
    }
}

#[test]
fn hops_are_counted_from_0_to_255() {
    for (value, hops) in
        [("0", Some(0)), ("255", Some(255)), ("0070", Some(70)), ("\r\n 9", Some(9))]
    {
        let line = format!("Max-Forwards: {value}");
        let message = Sample::request("OPTIONS").set("Max-Forwards", line).accepted();
        assert_eq!(message.max_forwards(), hops, "{value}");
    }
    for value in ["256", "300", "99999999999", "-1", "+1", "70, 70", "70;x", "x", ""] {
        let line = format!("Max-Forwards: {value}");
        let message = Sample::request("OPTIONS").set("Max-Forwards", &line).refused(400);
        assert_eq!(message.max_forwards(), None, "{value}");
        Sample::response("200 OK").with(line).accepted();
    }
}

#[test]
fn a_percent_sign_in_a_uri_begins_an_escape() {
    let places = |part: &str| {
        [
            format!("sip:a{part}@example.com"),
            format!("sip:a:p{part}@example.com"),
            format!("sip:a@example.com;n{part}"),
            format!("sip:a@example.com;n=v{part}"),
            format!("sip:a@example.com;n{part}=v;lr"),
            format!("tel:+1201;n={part}"),
        ]
    };
    for part in ["%41", "%4a%4A", "%00", "%25zz", "x%20y"] {
        for uri in places(part) {
            let start = format!("OPTIONS {uri} SIP/2.0");
            Sample::request("OPTIONS").start(&start).accepted();
            Sample::request("OPTIONS").set("From", format!("From: <{uri}>;tag=1")).accepted();
        }
    }
    for part in ["%", "%4", "%zz", "%4g", "%%41", "%41%", "%\u{e4}"] {
        for uri in places(part) {
            let start = format!("OPTIONS {uri} SIP/2.0");
            Sample::request("OPTIONS").start(&start).refused(400);
            Sample::request("OPTIONS").set("From", format!("From: <{uri}>;tag=1")).refused(400);
        }
        let contact = format!("Contact: <sip:a@example.com?Subject={part}>");
        Sample::request("REGISTER").with(contact).refused(400);
    }
}

#[test]
fn behind_the_host_no_second_at_sign_can_name_another_one() {
    for uri in
        ["sip:a@b;x=@c", "sip:a@b;x=y@c", "sip:a@b;x@c", "sips:a@b:5061;lr;x=y@c", "sip:a@b@c"]
    {
        let start = format!("OPTIONS {uri} SIP/2.0");
        Sample::request("OPTIONS").start(&start).refused(400);
        Sample::request("OPTIONS").set("From", format!("From: <{uri}>;tag=1")).refused(400);
        Sample::request("OPTIONS").with(format!("Route: <{uri}>")).refused(400);
    }
    let start = "OPTIONS sip:b;x=y@c;z=%40d SIP/2.0";
    let message = Sample::request("OPTIONS").start(start).accepted();
    let uri = Uri::parse(message.request_uri().expect("a request")).expect("a URI");
    assert_eq!(
        (uri.user(), uri.host().map(|host| host.name())),
        (Some(&b"b;x=y"[..]), Some(&b"c"[..]))
    );
}

#[test]
fn a_reason_phrase_is_kept_byte_for_byte() {
    for phrase in [&b"Fine By Me"[..], b"= 2**3 * 5**2 \xd0\xbd\xd0\xbe", b"", b" two  spaces "] {
        let mut bytes = Sample::response("200 OK").bytes();
        bytes.splice(12..14, phrase.iter().copied());
        let message = Message::parse(Bytes::from(bytes)).expect("a message");
        assert_eq!((message.reason(), message.verdict()), (phrase, Verdict::Ok));
    }
}

#[test]
fn a_request_with_a_garbled_start_line_can_be_answered() {
    for start in [
        " OPTIONS sip:a@b SIP/2.0",
        "OPTIONS  sip:a@b SIP/2.0",
        "OPTIONS sip:a@b SIP/2.0 ",
        "OPTIONS\tsip:a@b\tSIP/2.0",
        "OPTIONS sip:a@b SIP/2",
        "OPTIONS sip:a@b SIP/2.0.1",
        "OPTIONS sip:a@b sip/",
        "OPTIONS SIP/2.0",
    ] {
        let message = Sample::request("OPTIONS").start(start).refused(400);
        assert_eq!(defects(&message)[0], (String::new(), DefectKind::StartLine), "{start:?}");
        let at = message.defects()[0].offset;
        assert!(start[at..].starts_with([' ', '\t']), "{start:?} {at}");
        assert_eq!(message.method(), Method::Options);
        let uri = message.request_uri().expect("a request");
        assert!(uri == b"sip:a@b" || uri.is_empty(), "{start:?}");
    }
}

#[test]
fn nothing_but_parameters_stands_behind_an_address() {
    let name = Name::P_ASSERTED_IDENTITY;
    for value in ["<sip:a@b> <sip:c@d>", "<sip:a@b>x;y", "\"a\" <sip:a@b> sip:c@d", "<sip:a@b>>"] {
        let line = format!("P-Asserted-Identity: {value}, <sip:e@f>\t;x");
        let message = Sample::request("INVITE").with(line).accepted();
        let found: Vec<_> = message.addresses(name).map(|found| text(found.uri())).collect();
        assert_eq!(found, ["sip:e@f"], "{value}");
        let from = format!("From: {value};tag=1");
        let message = Sample::request("INVITE").set("From", from).refused(400);
        assert_eq!(message.from(), None, "{value}");
    }
}

#[test]
fn an_unknown_method_can_be_answered() {
    let odd = "!interesting-Method0123456789_*+`.%indeed'~";
    let message = Sample::request(odd).accepted();
    assert_eq!(message.method(), Method::Other(odd.as_bytes()));
    let answer = Writer::answer(&message, 501, b"Not Implemented", Some(b"t")).finish();
    assert_eq!(
        (answer.verdict(), answer.cseq().map(|c| c.method)),
        (Verdict::Ok, message.cseq().map(|c| c.method))
    );
    // The method of CSeq differs: 501 where nobody knows the method anyhow.
    Sample::request("NEWMETHOD").set("CSeq", "CSeq: 8 INVITE").refused(501);
    Sample::request("OPTIONS").set("CSeq", "CSeq: 8 INVITE").refused(400);
}

#[test]
fn another_version_is_answered_with_505() {
    for version in ["SIP/7.0", "SIP/3.0", "SIP/2.1", "SIP/02.0"] {
        let start = format!("OPTIONS sip:a@b {version}");
        Sample::request("OPTIONS").start(&start).refused(505);
    }
    Sample::request("OPTIONS").start("OPTIONS sip:a@b sip/2.0").accepted();
    Sample::response("200 OK").start("SIP/3.0 200 OK").dropped();
}

#[test]
fn a_nul_ends_nothing() {
    let message = Sample::request("OPTIONS")
        .set("From", b"From: \"a\0b\" <sip:nina@example.com>;tag=n1")
        .with(b"Subject: x\0Evil: y")
        .accepted();
    let display = message.from().and_then(|from| from.display()).expect("a display name");
    assert_eq!(&*display, b"a\0b");
    assert_eq!(message.header(Name::SUBJECT), Some(&b"x\0Evil: y"[..]));
    for line in [
        &b"Call-ID: a\0b"[..],
        b"Via: SIP/2.0/UDP h\0;branch=z9hG4bKx",
        b"From: <sip:a\0@b>;tag=x",
        b"To: <sip:a@b>;tag=x\0",
    ] {
        let name = text(&line[..memchr_colon(line)]);
        let message = Sample::request("OPTIONS").set(&name, line).parse();
        assert_ne!(message.verdict(), Verdict::Ok, "{}", line.escape_ascii());
    }
    let start = Sample::request("OPTIONS").start("OPTIONS sip:a\0@b SIP/2.0").parse();
    assert_eq!(start.verdict(), Verdict::Answer(400));
}

#[test]
fn names_are_read_in_any_spelling_and_kept_as_written() {
    let message = Sample::request("OPTIONS")
        .set("Call-ID", "cAlL-iD\t :c1")
        .with("K:a")
        .with("sUPPORTED: b")
        .accepted();
    assert_eq!((message.call_id(), message.lists(Name::SUPPORTED, b"B")), (&b"c1"[..], true));
    assert_eq!(message.elements(Name::SUPPORTED).count(), 2);
    let names: Vec<_> = message.lines().map(|line| text(line.name_text())).collect();
    assert!(names.contains(&"cAlL-iD".to_owned()) && names.contains(&"K".to_owned()));
    let edited = Edit::new(&message).set(Name::SUPPORTED, "c").finish();
    assert!(text(&edited).contains("K: c\r\n") && !text(&edited).contains("sUPPORTED"));
}

#[test]
fn a_stream_of_line_feeds_is_no_sip() {
    let bytes = text(Sample::request("OPTIONS").bytes()).replace("\r\n", "\n");
    let error = Message::parse(Bytes::from(bytes)).expect_err("no CR LF at all");
    assert_eq!(error.kind, ParseErrorKind::StartLine);
}

#[test]
fn lists_are_split_outside_quotes_and_brackets_only() {
    let message = Sample::request("INVITE")
        .with("Route: <sip:a,b@h;lr>, \"x, <y>\" <sip:c@h>, <sip:d@h>;p=\"1,2\"")
        .parse();
    let routes: Vec<_> = message.routes().map(|route| text(route.uri())).collect();
    assert_eq!(routes, ["sip:a,b@h;lr", "sip:c@h", "sip:d@h"]);
}

fn memchr_colon(line: &[u8]) -> usize {
    line.iter().position(|&byte| byte == b':').expect("a header line")
}
