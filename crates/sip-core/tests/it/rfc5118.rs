//! The 12 messages of RFC 5118, each with one of our own that does the same.

use std::net::IpAddr;

use sip_core::Uri;
use sip_core::sdp::Sdp;

use crate::sample::{Sample, text};

#[test]
fn an_ipv6_reference_may_stand_everywhere() {
    // §4.1
    let message = request_to("sip:[2001:db8::10]")
        .set("Via", "Via: SIP/2.0/UDP [2001:db8::9:1];branch=z9hG4bKv6")
        .with("Contact: \"Nina\" <sip:nina@[2001:db8::1]>")
        .accepted();
    assert_eq!(host_and_port(message.request_uri()), ("2001:db8::10".to_owned(), None));
    let via = message.via().expect("a Via");
    assert_eq!((via.host().ip(), via.port()), (Some(ip("2001:db8::9:1")), None));
    assert_eq!(via.host().as_bytes(), b"[2001:db8::9:1]");
    assert_eq!(via.branch(), Some(&b"z9hG4bKv6"[..]));
    assert_eq!(host_and_port(message.contact().map(|c| c.uri())).0, "2001:db8::1");
}

#[test]
fn an_ipv6_address_without_brackets_is_refused() {
    // §4.2
    request_to("sip:2001:db8::10").refused(400);
}

#[test]
fn a_port_inside_the_brackets_is_part_of_the_address() {
    // §4.3
    let message = request_to("sip:[2001:db8::10:5070]").accepted();
    assert_eq!(host_and_port(message.request_uri()), ("2001:db8::10:5070".to_owned(), None));
}

#[test]
fn a_port_behind_the_brackets_is_a_port() {
    // §4.4
    let message = request_to("sip:[2001:db8::10]:5070").accepted();
    assert_eq!(host_and_port(message.request_uri()), ("2001:db8::10".to_owned(), Some(5070)));
}

#[test]
fn a_received_address_may_stand_with_and_without_brackets() {
    // §4.5, both messages
    for received in ["2001:db8::9:255", "[2001:db8::9:255]"] {
        let via = format!("Via: SIP/2.0/UDP [2001:db8::9:1];received={received}; branch=z9hG4bKv6");
        let message = request_to("sip:[2001:db8::10]").set("Via", via).accepted();
        let via = message.via().expect("a Via");
        assert_eq!(via.received(), Some(ip("2001:db8::9:255")));
        assert_eq!(message.branch(), Some(&b"z9hG4bKv6"[..]));
    }
}

#[test]
fn a_description_may_use_ipv6() {
    // §4.6
    let body = "v=0\r\no=nina 971731711378798081 0 IN IP6 2001:db8::20\r\ns=-\r\n\
        c=IN IP6 2001:db8::20\r\nt=0 0\r\nm=audio 6000 RTP/AVP 2\r\n";
    let message = Sample::request("INVITE").body(body).accepted();
    let sdp = Sdp::parse(message.body()).expect("a description");
    assert_eq!(sdp.connection().and_then(|c| c.ip()), Some(ip("2001:db8::20")));
    assert_eq!(sdp.origin().addr_type, b"IP6");
}

#[test]
fn both_families_may_stand_in_the_vias_of_one_message() {
    // §4.7
    let message = Sample::request("BYE")
        .set("Via", "Via: SIP/2.0/UDP [2001:db8::9:1]:6050;branch=z9hG4bKa")
        .with("Via: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bKb")
        .with("Via: SIP/2.0/TCP [2001:db8::9:255];branch=z9hG4bKc; received=192.0.2.200")
        .accepted();
    let hosts: Vec<_> = message.vias().filter_map(|via| via.host().ip()).collect();
    assert_eq!(hosts, [ip("2001:db8::9:1"), ip("192.0.2.1"), ip("2001:db8::9:255")]);
    assert_eq!(message.via().and_then(|via| via.port()), Some(6050));
    let last = message.vias().last().expect("three");
    assert_eq!(last.received(), Some(ip("192.0.2.200")));
}

#[test]
fn both_families_may_stand_in_one_description() {
    // §4.8
    let body = "v=0\r\no=nina 1 2 IN IP4 a.example.com\r\ns=\r\nt=0 0\r\n\
        m=audio 22334 RTP/AVP 0\r\nc=IN IP4 192.0.2.1\r\n\
        m=video 6024 RTP/AVP 107\r\nc=IN IP6 2001:db8::1\r\na=rtpmap:107 H263-1998/90000\r\n";
    let message = Sample::request("INVITE").body(body).accepted();
    let sdp = Sdp::parse(message.body()).expect("a description");
    let addresses: Vec<_> = sdp.media().filter_map(|media| media.connection()?.ip()).collect();
    assert_eq!(addresses, [ip("192.0.2.1"), ip("2001:db8::1")]);
}

#[test]
fn a_mapped_address_is_an_ipv6_address() {
    // §4.9
    let message = Sample::request("INVITE")
        .set("Via", "Via: SIP/2.0/UDP [::ffff:192.0.2.10]:19823;branch=z9hG4bKm")
        .with("Contact: \"N. desk phone\" <sip:nina@[::ffff:192.0.2.2]>")
        .accepted();
    let via = message.via().expect("a Via");
    assert_eq!((via.host().ip(), via.port()), (Some(ip("::ffff:192.0.2.10")), Some(19823)));
    assert_eq!(host_and_port(message.contact().map(|c| c.uri())).0, "::ffff:192.0.2.2");
}

#[test]
fn three_colons_are_refused_and_two_are_not() {
    // §4.10, both messages: RFC 3261's grammar had one colon too many.
    request_to("sip:omar@[2001:db8:::192.0.2.1]").refused(400);
    let message = request_to("sip:omar@[2001:db8::192.0.2.1]").accepted();
    assert_eq!(host_and_port(message.request_uri()).0, "2001:db8::192.0.2.1");
}

fn request_to(uri: &str) -> Sample {
    Sample::request("REGISTER").start(&format!("REGISTER {uri} SIP/2.0"))
}

fn host_and_port(uri: Option<&[u8]>) -> (String, Option<u16>) {
    let uri = Uri::parse(uri.expect("a uri")).expect("a good uri");
    (text(uri.host().expect("a host").name()), uri.port())
}

fn ip(address: &str) -> IpAddr {
    address.parse().expect("an address")
}
