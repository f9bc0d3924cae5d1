//! §3.1.1: odd, but right.

use bytes::Bytes;
use sip_core::{Message, Method, Name, Scheme, Uri, unfold};

use crate::sample::{SDP, Sample, text};

#[test]
fn a_short_tortuous_invite_is_read() {
    // §3.1.1.1: folds and spaces wherever the grammar lets them stand.
    let message = Sample::request("INVITE")
        .start("INVITE sip:omar@h-1.example.org;oddparam SIP/2.0")
        .set("To", "TO :\r\n sip:omar@h-1.example.org ;   tag    = o-7")
        .set("From", "from   : \"N \\\\\\\"\"       <sip:nina@example.com>\r\n  ;\r\n  tag = n9")
        .set("Max-Forwards", "MaX-fOrWaRdS: 0068")
        .set("CSeq", "cseq: 0009\r\n  INVITE")
        .set("Via", "Via  : SIP  /   2.0\r\n /UDP\r\n    192.0.2.9;branch=old1")
        .with("s :")
        .with("NewHeader:   one\r\n two   three")
        .with("UnknownHeader: ;;,,;;,;")
        .with("Route:\r\n <sip:r.example.com;lr;a=b;c>")
        .with("v:  SIP  / 2.0  / TCP     p.example.com   ;\r\n  branch  =   z9hG4bKp  ,\r\n SIP  /    2.0   / UDP  192.168.0.5   ; branch=\r\n z9hG4bKq")
        .with("m:\"Q \\\"\\\"\" <sip:nina@example.com> ; newparam =\r\n      v ;\r\n  second ; q = 0.33")
        .set("Content-Length", format!("Content-Length   : {}", SDP.len()))
        .body(SDP)
        .accepted();
    assert_eq!(message.to_tag(), Some(&b"o-7"[..]));
    assert_eq!(message.from_tag(), Some(&b"n9"[..]));
    assert_eq!(message.from().and_then(|from| from.display()).map(text), Some("N \\\"".to_owned()));
    assert_eq!(message.max_forwards(), Some(68));
    let cseq = message.cseq().expect("a CSeq");
    assert_eq!((cseq.number, cseq.method), (9, Method::Invite));
    let vias: Vec<_> = message
        .vias()
        .map(|via| (text(via.transport()), text(via.host().name()), via.branch().map(text)))
        .collect();
    let via = |transport: &str, host: &str, branch: &str| {
        (transport.to_owned(), host.to_owned(), Some(branch.to_owned()))
    };
    assert_eq!(
        vias,
        [
            via("UDP", "192.0.2.9", "old1"),
            via("TCP", "p.example.com", "z9hG4bKp"),
            via("UDP", "192.168.0.5", "z9hG4bKq")
        ]
    );
    assert_eq!(message.header(Name::SUBJECT), Some(&b""[..]));
    let folded = message.header(Name::new(b"newheader")).expect("there is one");
    assert_eq!(text(unfold(folded)), "one two   three");
    assert_eq!(
        message.routes().map(|route| text(route.uri())).collect::<Vec<_>>(),
        ["sip:r.example.com;lr;a=b;c"]
    );
    let contact = message.contact().expect("a Contact");
    assert_eq!(contact.display().map(text), Some("Q \"\"".to_owned()));
    assert_eq!(contact.param(b"q"), Some(&b"0.33"[..]));
    assert_eq!(contact.param(b"second"), Some(&b""[..]));
    assert_eq!(message.body(), SDP.as_bytes());
}

#[test]
fn every_character_of_the_grammar_is_taken() {
    // §3.1.1.2
    let method = "!Odd-Method09_*+`.%indeed'~";
    let user = "1_odd.URI~(to-be!sure)&isn't+it$/crazy?,/;;*";
    let message = Sample::request(method)
        .start(&format!("{method} sip:{user}:&it+has=1,*pas$wo~d(x)@example.org SIP/2.0"))
        .set(
            "To",
            format!("To: \"BEL:\\\x07 NUL:\\\0 DEL:\\\x7f\" <sip:{user}@example.org>").as_bytes(),
        )
        .set(
            "From",
            "From: t1~` t2'+_ t3*%!.- <sip:x@example.com>;p''~+*_!.-%=\"мир\";tag=_t~1'+`*%!-.",
        )
        .set("Call-ID", "Call-ID: word%ZK-!.*_+'@word`~)(><:\\/\"][?}{")
        .set("Via", "Via: SIP/2.0/TCP a.example.com;branch=z9hG4bK-.!%66*_+`'~")
        .with("ext-!.%*+_`'~: \u{feff}大停電")
        .accepted();
    assert_eq!(message.method(), Method::Other(method.as_bytes()));
    let uri = Uri::parse(message.request_uri().expect("a request")).expect("a uri");
    assert_eq!(uri.user(), Some(user.as_bytes()));
    assert_eq!(uri.password(), Some(&b"&it+has=1,*pas$wo~d(x)"[..]));
    assert_eq!(message.from_tag(), Some(&b"_t~1'+`*%!-."[..]));
    assert_eq!(message.branch(), Some(&b"z9hG4bK-.!%66*_+`'~"[..]));
    let display = message.to().and_then(|to| to.display()).expect("a display name");
    assert_eq!(&*display, b"BEL:\x07 NUL:\0 DEL:\x7f");
    assert!(message.header(Name::new(b"EXT-!.%*+_`'~")).is_some());
}

#[test]
fn an_escaped_at_sign_belongs_to_the_user() {
    // §3.1.1.3
    let message = Sample::request("INVITE")
        .start("INVITE sip:sips%3Aomar%40example.org@example.net SIP/2.0")
        .set("From", "From: <sip:I%20have%20spaces@example.net>;tag=1")
        .with("Contact:\r\n  <sip:n%69na@example.com;%6C%72;n%61me=v%61lue%25%34%31>")
        .accepted();
    let uri = Uri::parse(message.request_uri().expect("a request")).expect("a uri");
    assert_eq!(uri.user_unescaped().map(text), Some("sips:omar@example.org".to_owned()));
    assert_eq!(uri.host().map(|host| text(host.name())), Some("example.net".to_owned()));
    let contact = message.contact().expect("a Contact");
    let contact = contact.parsed_uri().expect("a uri");
    // `%6C%72` is `lr` in letters only; parameters are compared, not guessed.
    assert_eq!(contact.param(b"lr"), None);
    assert!(
        contact
            .is_equivalent(&Uri::parse(b"sip:nina@example.com;lr;name=value%2541").expect("a uri"))
    );
}

#[test]
fn an_escaped_null_is_a_character_like_others() {
    // §3.1.1.4
    let message = Sample::request("REGISTER")
        .start("REGISTER sip:example.com SIP/2.0")
        .set("To", "To: sip:a-%00-b@example.com")
        .with("Contact: <sip:%00@a.example.com>")
        .with("Contact: <sip:%00%00@a.example.com>")
        .accepted();
    let users: Vec<_> = message
        .contacts()
        .filter_map(|contact| {
            contact.parsed_uri().ok()?.user_unescaped().map(std::borrow::Cow::into_owned)
        })
        .collect();
    assert_eq!(users, [b"\0".to_vec(), b"\0\0".to_vec()]);
    assert_eq!(message.to().map(|to| text(to.uri())), Some("sip:a-%00-b@example.com".to_owned()));
}

#[test]
fn a_percent_outside_a_uri_escapes_nothing() {
    // §3.1.1.5: neither in methods, nor in header names, nor in display names.
    let message = Sample::request("RE%47IST%45R")
        .set("From", "From: \"%Z%45\" <sip:nina@example.com>;tag=n1")
        .with("Contact: <sip:one@example.com>")
        .with("C%6Fntact: <sip:two@example.com>")
        .with("Contact: <sip:three@example.com>")
        .accepted();
    assert_eq!(message.method(), Method::Other(b"RE%47IST%45R"));
    assert_eq!(message.from().and_then(|from| from.display()).map(text), Some("%Z%45".to_owned()));
    assert_eq!(message.contacts().count(), 2);
}

#[test]
fn a_display_name_may_touch_its_bracket() {
    // §3.1.1.6
    let message =
        Sample::request("OPTIONS").set("From", "From: nina<sip:nina@example.com>;tag=3").accepted();
    let from = message.from().expect("a From");
    assert_eq!(from.display().map(text), Some("nina".to_owned()));
    assert_eq!(from.uri(), b"sip:nina@example.com");
    assert_eq!(message.from_tag(), Some(&b"3"[..]));
}

#[test]
fn long_values_and_many_vias_are_read() {
    // §3.1.1.7
    let long = |word: &str| word.repeat(40);
    let mut sample = Sample::request("INVITE")
        .set(
            "To",
            format!(
                "To: \"{}\"<sip:omar@example.org:6000;a={};{}=b>",
                long("very "),
                long("long"),
                long("name")
            ),
        )
        .set("From", format!("F: sip:{0}@example.net;tag={1};{0}={1}", long("nina"), long("982")))
        .set("Call-ID", format!("Call-ID: {}", long("really")))
        .set("Via", "Via: SIP/2.0/TCP h33.example.com")
        .with(format!("{}-Name: {}; {} = {}", long("Unknown"), long("v"), long("p"), long("w")))
        .with(format!("Contact: <sip:{}@h.example.net>", long("nina")));
    for (index, name) in
        (1..33).rev().zip(["v", "V", "Via", "ViA", "VIA", "via", "vIa", "V ", "v\t"].iter().cycle())
    {
        sample = sample.with(format!("{name}: SIP/2.0/TCP h{index}.example.com"));
    }
    let message = sample
        .with(format!(
            "Via: SIP/2.0/TCP h0.example.com;received=192.0.2.5;branch={}",
            long("branch")
        ))
        .body(SDP)
        .accepted();
    assert_eq!(message.vias().count(), 34);
    let hosts: Vec<_> = message.vias().map(|via| text(via.host().name())).collect();
    assert_eq!((&*hosts[0], &*hosts[33]), ("h33.example.com", "h0.example.com"));
    assert_eq!(message.from_tag().map(text), Some(long("982")));
    assert_eq!(message.call_id(), long("really").as_bytes());
    assert_eq!(message.body(), SDP.as_bytes());
}

#[test]
fn bytes_behind_the_body_of_a_datagram_are_cut_off() {
    // §3.1.1.8: a second request behind a REGISTER of length 0.
    let first = Sample::request("REGISTER").bytes();
    let second = Sample::request("INVITE").body(SDP).bytes();
    let both = [&first[..], b"\r\n\r\n", &second].concat();
    let message = Message::parse(Bytes::from(both)).expect("a message");
    assert_eq!(message.bytes(), &first);
    assert_eq!(message.method(), Method::Register);
    assert_eq!(message.body(), b"");
}

#[test]
fn a_semicolon_may_stand_in_a_user_part() {
    // §3.1.1.9
    let message = Sample::request("OPTIONS")
        .start("OPTIONS sip:omar;x=u%40example.net@example.org SIP/2.0")
        .with("Accept: application/sdp, application/x,\r\n        multipart/mixed")
        .accepted();
    let uri = Uri::parse(message.request_uri().expect("a request")).expect("a uri");
    assert_eq!(uri.user_unescaped().map(text), Some("omar;x=u@example.net".to_owned()));
    assert_eq!(uri.host().map(|host| text(host.name())), Some("example.org".to_owned()));
    assert_eq!(uri.params().into_iter().count(), 0);
    assert_eq!(message.elements(Name::ACCEPT).count(), 3);
}

#[test]
fn any_transport_may_stand_in_a_via() {
    // §3.1.1.10
    let mut sample = Sample::request("OPTIONS");
    for transport in ["SCTP", "TLS", "NEVERHEARD", "TCP"] {
        sample = sample
            .with(format!("Via: SIP/2.0/{transport} x.example.com;branch=z9hG4bK{transport}"));
    }
    let message = sample.accepted();
    let transports: Vec<_> = message.vias().map(|via| text(via.transport())).collect();
    assert_eq!(transports, ["UDP", "SCTP", "TLS", "NEVERHEARD", "TCP"]);
}

#[test]
fn a_binary_multipart_body_is_kept_byte_by_byte() {
    // §3.1.1.11
    let mut body = b"--b7\r\nContent-Type: application/octet-stream\r\n\r\n".to_vec();
    body.extend((0..=255).rev());
    body.extend_from_slice(b"\r\n\0\r\n\r\n--b7--");
    let message = Sample::request("MESSAGE")
        .with("Content-Type: multipart/mixed;boundary=b7")
        .with("Route: <sip:127.0.0.1:5080>")
        .body(&body)
        .accepted();
    assert_eq!(message.body(), body);
    assert_eq!(message.content_type(), Some(&b"multipart/mixed"[..]));
    assert_eq!(message.routes().count(), 1);
}

#[test]
fn a_reason_phrase_may_say_anything() {
    // §3.1.1.12
    let phrase = "= 2**3 * 5**2 что-то простое";
    let message = Sample::response(&format!("200 {phrase}")).accepted();
    assert_eq!(message.status(), Some(200));
    assert_eq!(message.reason(), phrase.as_bytes());
}

#[test]
fn a_reason_phrase_may_be_missing() {
    // §3.1.1.13: with the space before it, and, leniently, without.
    for status in ["100 ", "100"] {
        let message = Sample::response(status).accepted();
        assert_eq!((message.status(), message.reason()), (Some(100), &b""[..]));
    }
}

#[test]
fn schemes_are_told_apart_without_regard_to_case() {
    let scheme = |text: &str| Uri::parse(text.as_bytes()).map(|uri| uri.scheme());
    assert_eq!(scheme("SIP:omar@example.org"), Ok(Scheme::Sip));
    assert_eq!(scheme("sIpS:omar@example.org"), Ok(Scheme::Sips));
}
