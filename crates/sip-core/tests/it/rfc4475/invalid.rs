//! §3.1.2: wrong. Requests are answered, responses dropped; what can still be
//! read is read right.

use bytes::Bytes;
use sip_core::{DefectKind, Message, Uri, Verdict};

use crate::sample::{SDP, Sample, defects, text};

#[test]
fn separators_with_nothing_between_them_are_refused() {
    // §3.1.2.1
    let message = Sample::request("INVITE")
        .set("Via", "Via: SIP/2.0/UDP 192.0.2.15;;,;,,")
        .with("Contact: \"Nina\" <sip:nina@example.com>;;;;")
        .refused(400);
    let malformed = |name: &str| (name.to_owned(), DefectKind::Malformed);
    assert_eq!(defects(&message), [malformed("Via"), malformed("Contact")]);
    // There is a way back for the answer all the same.
    assert_eq!(message.via().map(|via| text(via.host().name())), Some("192.0.2.15".to_owned()));
}

#[test]
fn a_length_beyond_the_datagram_is_refused() {
    // §3.1.2.2
    let too_long = |sample: Sample| sample.set("Content-Length", "Content-Length: 9999");
    let request = Sample::request("INVITE").body(SDP);
    let message = too_long(request).refused(400);
    assert_eq!(defects(&message), [("Content-Length".to_owned(), DefectKind::BodyTooShort)]);
    too_long(Sample::response("200 OK").body(SDP)).dropped();
}

#[test]
fn a_negative_length_is_refused() {
    // §3.1.2.3, and its relatives.
    for length in ["-999", "+5", "5x", "5 5", "5, 5", "0x5", "", "4294967296"] {
        let line = format!("Content-Length: {length}");
        let message = Sample::request("INVITE").set("Content-Length", line).refused(400);
        assert_eq!(message.content_length(), None, "{length}");
    }
}

#[test]
fn numbers_too_large_for_a_request_are_refused() {
    // §3.1.2.4: a CSeq must fit, seconds are taken as the largest that fit.
    let message = Sample::request("REGISTER")
        .set("CSeq", "CSeq: 36893488147419103232 REGISTER")
        .with(format!("Expires: 1{}", "0".repeat(100)))
        .with("Contact: <sip:nina@a.example.com>\r\n  ;expires=280297596632815")
        .refused(400);
    assert_eq!(defects(&message), [("CSeq".to_owned(), DefectKind::Malformed)]);
    assert_eq!(message.cseq(), None);
    assert_eq!(message.expires(), Some(u32::MAX));
    assert_eq!(message.contact().and_then(|contact| contact.expires()), Some(u32::MAX));
}

#[test]
fn numbers_too_large_for_a_response_drop_it() {
    // §3.1.2.5
    let message = Sample::response("503 Service Unavailable")
        .set("CSeq", "CSeq: 9292394834772304023312 OPTIONS")
        .with("Retry-After: 949302838503028349304023988")
        .with("Warning: 1812 a \"b\"")
        .dropped();
    assert_eq!(message.retry_after(), Some(u32::MAX));
    assert_eq!(message.status(), Some(503));
}

#[test]
fn an_open_quote_is_refused() {
    // §3.1.2.6
    let message =
        Sample::request("INVITE").set("To", "To: \"Mr. Omar <sip:omar@example.org>").refused(400);
    assert_eq!(message.to(), None);
    assert_eq!(defects(&message), [("To".to_owned(), DefectKind::Malformed)]);
}

#[test]
fn a_request_uri_in_brackets_is_refused() {
    // §3.1.2.7
    let message =
        Sample::request("INVITE").start("INVITE <sip:omar@example.org> SIP/2.0").refused(400);
    assert_eq!(defects(&message), [(String::new(), DefectKind::RequestUri)]);
}

#[test]
fn spaces_inside_a_request_uri_are_refused() {
    // §3.1.2.8
    let message =
        Sample::request("INVITE").start("INVITE sip:omar@example.org; lr SIP/2.0").refused(400);
    assert_eq!(message.request_uri(), Some(&b"sip:omar@example.org; lr"[..]));
}

#[test]
fn double_spaces_in_a_request_line_are_refused() {
    // §3.1.2.9
    let message =
        Sample::request("INVITE").start("INVITE  sip:omar@example.org  SIP/2.0").refused(400);
    assert_eq!(message.request_uri(), Some(&b"sip:omar@example.org"[..]));
}

#[test]
fn spaces_behind_a_request_line_are_refused() {
    // §3.1.2.10
    let message =
        Sample::request("OPTIONS").start("OPTIONS sip:omar@example.org SIP/2.0  ").refused(400);
    assert_eq!(message.request_uri(), Some(&b"sip:omar@example.org"[..]));
}

#[test]
fn headers_in_a_request_uri_are_refused() {
    // §3.1.2.11
    let start = "INVITE sip:omar@example.org?Route=%3Csip:evil.example.com%3E SIP/2.0";
    let message = Sample::request("INVITE").start(start).refused(400);
    let uri = Uri::parse(message.request_uri().expect("a request")).expect("a uri");
    assert_eq!(uri.headers(), Some(&b"Route=%3Csip:evil.example.com%3E"[..]));
    assert_eq!(message.routes().count(), 0);
}

#[test]
fn a_date_in_a_wrong_zone_is_nobodys_business() {
    // §3.1.2.12
    Sample::request("INVITE").with("Date: Fri, 01 Jan 2010 16:00:00 EST").body(SDP).accepted();
}

#[test]
fn a_contact_with_headers_needs_brackets() {
    // §3.1.2.13
    let message = Sample::request("REGISTER")
        .with("Contact: sip:nina@example.com?Route=%3Csip:sip.example.com%3E")
        .refused(400);
    assert_eq!(message.contacts().count(), 0);
}

#[test]
fn spaces_inside_brackets_are_seen_through() {
    // §3.1.2.14
    let message = Sample::request("OPTIONS")
        .set("To", "To: \"Watson, Omar\" < sip:omar@example.org >")
        .accepted();
    assert_eq!(message.to().map(|to| text(to.uri())), Some("sip:omar@example.org".to_owned()));
    assert_eq!(defects(&message), [("To".to_owned(), DefectKind::Odd)]);
}

#[test]
fn an_unquoted_comma_in_a_display_name_is_seen_through() {
    // §3.1.2.15
    let message = Sample::request("OPTIONS")
        .set("From", "From:    Bell, Nina <sip:nina@example.com>;tag=43")
        .accepted();
    let from = message.from().expect("a From");
    assert_eq!((from.uri(), from.tag()), (&b"sip:nina@example.com"[..], Some(&b"43"[..])));
    assert_eq!(from.display().map(text), Some("Bell, Nina".to_owned()));
    assert_eq!(defects(&message), [("From".to_owned(), DefectKind::Odd)]);
}

#[test]
fn another_version_is_answered_with_505() {
    // §3.1.2.16
    let message = Sample::request("OPTIONS")
        .start("OPTIONS sip:omar@example.org SIP/7.0")
        .set("Via", "Via: SIP/7.0/UDP c.example.com;branch=z9hG4bKkdjuw")
        .refused(505);
    assert_eq!(message.branch(), Some(&b"z9hG4bKkdjuw"[..]));
    let response = Sample::response("200 OK").bytes();
    let other = [b"SIP/3.0", &response[7..]].concat();
    let message = Message::parse(Bytes::from(other)).expect("readable");
    assert_eq!(message.verdict(), Verdict::Discard);
}

#[test]
fn a_cseq_of_another_known_method_is_refused() {
    // §3.1.2.17
    let message = Sample::request("OPTIONS").set("CSeq", "CSeq: 8 INVITE").refused(400);
    assert_eq!(defects(&message), [("CSeq".to_owned(), DefectKind::MethodMismatch)]);
}

#[test]
fn a_cseq_of_another_method_than_an_unknown_one_is_answered_with_501() {
    // §3.1.2.18
    Sample::request("NEWMETHOD").set("CSeq", "CSeq: 8 INVITE").refused(501);
}

#[test]
fn a_status_that_is_none_drops_the_response() {
    // §3.1.2.19
    for status in
        ["4294967301 better not", "99 Low", "700 High", "20 Short", "2000 Long", "abc Word"]
    {
        let message = Sample::response(status).dropped();
        assert_eq!(message.status(), None, "{status}");
    }
}
