//! §3.2 to §3.4: what only the layers above the parser have to think about.
//! For those the parser's part is to read every value right.

use sip_core::{DefectKind, Method, Name, Scheme, Uri};

use crate::sample::{SDP, Sample, defects, text};

#[test]
fn a_bare_magic_cookie_is_a_branch_that_is_read_as_written() {
    // §3.2.1
    let message = Sample::request("OPTIONS")
        .set("Via", "Via: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK")
        .accepted();
    assert_eq!(message.branch(), Some(&b"z9hG4bK"[..]));
}

#[test]
fn missing_headers_are_all_named() {
    // §3.3.1
    let message =
        Sample::request("INVITE").without("Call-ID").without("From").without("To").refused(400);
    let missing = |name: &str| (name.to_owned(), DefectKind::Missing);
    assert_eq!(defects(&message), [missing("From"), missing("To"), missing("Call-ID")]);
    Sample::request("INVITE").without("CSeq").refused(400);
    // Without a Via there is nowhere to send an answer.
    Sample::request("INVITE").without("Via").dropped();
    Sample::response("200 OK").without("Call-ID").dropped();
}

#[test]
fn an_unknown_scheme_is_kept_for_whoever_routes() {
    // §3.3.2
    let message =
        Sample::request("OPTIONS").start("OPTIONS nobodyKnows:totallyopaque SIP/2.0").accepted();
    let uri = Uri::parse(message.request_uri().expect("a request")).expect("a uri");
    assert_eq!((uri.scheme(), uri.scheme_text()), (Scheme::Other, &b"nobodyKnows"[..]));
    assert_eq!((uri.user(), uri.host()), (None, None));
}

#[test]
fn an_unknown_scheme_that_looks_like_a_known_one_stays_opaque() {
    // §3.3.3
    let start = "OPTIONS soap.beep://192.0.2.103:3002 SIP/2.0";
    let message = Sample::request("OPTIONS").start(start).accepted();
    let uri = Uri::parse(message.request_uri().expect("a request")).expect("a uri");
    assert_eq!((uri.scheme(), uri.port()), (Scheme::Other, None));
}

#[test]
fn unknown_schemes_may_stand_in_every_address() {
    // §3.3.4
    let message = Sample::request("REGISTER")
        .set("To", "To: isbn:2983792873")
        .set("From", "From: <http://www.example.com>;tag=3")
        .with("Contact: <name:Nina_Smith>")
        .accepted();
    assert_eq!(message.to().map(|to| text(to.uri())), Some("isbn:2983792873".to_owned()));
    assert_eq!(
        message.from().map(|from| text(from.uri())),
        Some("http://www.example.com".to_owned())
    );
    assert_eq!(message.contact().map(|c| text(c.uri())), Some("name:Nina_Smith".to_owned()));
}

#[test]
fn required_extensions_are_listed_for_whoever_knows_them() {
    // §3.3.5
    let message = Sample::request("OPTIONS")
        .with("Require: nothing, nothingEither")
        .with("Proxy-Require: noProxy, norAnyProxy")
        .accepted();
    assert!(message.lists(Name::REQUIRE, b"nothingeither"));
    assert!(message.lists(Name::PROXY_REQUIRE, b"noProxy"));
    assert!(!message.lists(Name::REQUIRE, b"noProxy"));
}

#[test]
fn a_body_of_unknown_type_is_kept() {
    // §3.3.6
    let body = "<audio>\r\n <pcmu port=\"443\"/>\r\n</audio>";
    let message = Sample::request("INVITE")
        .with("Content-Type: application/unknownformat")
        .body(body)
        .accepted();
    assert_eq!(message.body(), body.as_bytes());
    assert_eq!(message.content_type(), Some(&b"application/unknownformat"[..]));
}

#[test]
fn an_unknown_authorization_scheme_is_kept() {
    // §3.3.7
    let message =
        Sample::request("REGISTER").with("Authorization: NoOneKnows opaque=here").accepted();
    assert_eq!(message.header(Name::AUTHORIZATION), Some(&b"NoOneKnows opaque=here"[..]));
}

#[test]
fn headers_that_may_stand_once_and_stand_twice_are_refused() {
    // §3.3.8
    let message = Sample::request("INVITE")
        .with("CSeq: 59 INVITE")
        .with("i: other@a.example.com")
        .with("t: sip:other@example.net")
        .with("f: sip:nina@example.net;tag=2")
        .with("Max-Forwards: 5")
        .refused(400);
    let twice = |name: &str| (name.to_owned(), DefectKind::Duplicate);
    assert_eq!(
        defects(&message),
        [twice("CSeq"), twice("Call-ID"), twice("To"), twice("From"), twice("Max-Forwards")]
    );
    assert_eq!(message.from_tag(), Some(&b"n1"[..]));
}

#[test]
fn two_lengths_are_refused_even_when_they_agree() {
    // §3.3.9
    for second in ["Content-Length: 5", "l: 0", "CONTENT-LENGTH : 0"] {
        let message = Sample::request("OPTIONS").with(second).refused(400);
        assert_eq!(message.content_length(), None);
        assert_eq!(defects(&message), [("Content-Length".to_owned(), DefectKind::Duplicate)]);
    }
}

#[test]
fn a_response_that_names_the_broadcast_address_is_read() {
    // §3.3.10: where it may be sent is not the parser's to say.
    let message = Sample::response("200 OK")
        .with("Via: SIP/2.0/UDP 255.255.255.255;branch=z9hG4bK1s")
        .accepted();
    assert_eq!(message.vias().filter_map(|via| via.host().ip()).count(), 1);
    assert_eq!(message.vias().count(), 2);
}

#[test]
fn no_hops_left_is_a_number_like_others() {
    // §3.3.11
    let message = Sample::request("OPTIONS").set("Max-Forwards", "Max-Forwards: 0").accepted();
    assert_eq!(message.max_forwards(), Some(0));
}

#[test]
fn without_brackets_a_parameter_belongs_to_the_header() {
    // §3.3.12
    let message = Sample::request("REGISTER")
        .with("Contact: sip:+19725552222@gw1.example.net;unknownparam")
        .accepted();
    let contact = message.contact().expect("a Contact");
    assert_eq!(contact.uri(), b"sip:+19725552222@gw1.example.net");
    assert_eq!(contact.param(b"unknownparam"), Some(&b""[..]));
}

#[test]
fn inside_brackets_a_parameter_belongs_to_the_uri() {
    // §3.3.13
    let message = Sample::request("REGISTER")
        .with("Contact: <sip:+19725552222@gw1.example.net;unknownparam>")
        .accepted();
    let contact = message.contact().expect("a Contact");
    assert_eq!(contact.uri(), b"sip:+19725552222@gw1.example.net;unknownparam");
    assert_eq!(contact.param(b"unknownparam"), None);
}

#[test]
fn headers_escaped_in_a_contact_stay_in_its_uri() {
    // §3.3.14
    let message = Sample::request("REGISTER")
        .with("M: <sip:nina@example.com?Route=%3Csip:sip.example.com%3E>")
        .accepted();
    let contact = message.contact().expect("a Contact");
    assert_eq!(contact.uri(), b"sip:nina@example.com?Route=%3Csip:sip.example.com%3E");
    let uri = contact.parsed_uri().expect("a uri");
    assert_eq!(uri.header_pairs().map(|(name, _)| text(name)).collect::<Vec<_>>(), ["Route"]);
}

#[test]
fn a_body_that_the_sender_will_not_accept_back_is_no_defect() {
    // §3.3.15
    let message =
        Sample::request("INVITE").with("Accept: text/nobodyKnowsThis").body(SDP).accepted();
    assert!(message.lists(Name::ACCEPT, b"text/nobodyKnowsThis"));
}

#[test]
fn a_request_of_rfc_2543_is_read() {
    // §3.4.1: no branch, no From tag, no Max-Forwards, no Content-Length.
    let message = Sample::request("INVITE")
        .set("Via", "Via: SIP/2.0/UDP gw.example.com")
        .set("From", "From: <sip:+13035551111@example.net;user=phone>")
        .set("To", "To: sip:+16505552222@example.org;user=phone")
        .without("Max-Forwards")
        .without("Content-Length")
        .with("Record-Route: <sip:omar@example.org;maddr=ss1.example.org>")
        .body(SDP)
        .accepted();
    assert_eq!((message.branch(), message.from_tag()), (None, None));
    assert_eq!(
        message.to().map(|to| text(to.uri())),
        Some("sip:+16505552222@example.org".to_owned())
    );
    assert_eq!(message.body(), SDP.as_bytes());
    assert_eq!(message.method(), Method::Invite);
}
