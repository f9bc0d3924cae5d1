//! The examples do what they say.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use sip_core::digest::{Client, Password};
use sip_core::{Edit, Message, Name};

use crate::sample::{Sample, text};

#[expect(dead_code, reason = "its `main` is not called here")]
#[path = "../../examples/registrar.rs"]
mod registrar;
#[expect(dead_code, reason = "its `main` is not called here")]
#[path = "../../examples/stateless_proxy.rs"]
mod stateless_proxy;

const NOW: Duration = Duration::from_secs(1_700_000_000);

#[test]
fn a_request_goes_through_the_proxy_and_its_response_comes_back() {
    let proxy = proxy();
    let request = Sample::request("INVITE").set("Via", "Via: SIP/2.0/UDP h;branch=z9hG4bKa;rport");
    let (bytes, to) = proxy.handle(address("198.51.100.1:7"), sent(&request)).expect("it goes on");
    assert_eq!(to, address("192.0.2.99:5080"), "the Request-URI names no address");
    let forwarded = Message::parse(bytes).expect("a message");
    assert_eq!((forwarded.max_forwards(), forwarded.vias().count()), (Some(69), 2));

    let ok = sip_core::Writer::answer(&forwarded, 200, b"OK", Some(b"t")).finish();
    let (bytes, to) = proxy.handle(to, ok.bytes().clone()).expect("it goes back");
    assert_eq!(to, address("198.51.100.1:7"));
    assert_eq!(Message::parse(bytes).expect("a message").branch(), Some(&b"z9hG4bKa"[..]));
}

#[test]
fn a_copy_and_the_cancel_go_the_way_of_their_invite() {
    let proxy = proxy();
    let branch = |sample: &Sample| {
        let (bytes, _) = proxy.handle(address("198.51.100.1:7"), sent(sample)).expect("it goes on");
        text(Message::parse(bytes).expect("a message").branch().expect("a branch"))
    };
    let first = branch(&Sample::request("INVITE"));
    assert_eq!(first, branch(&Sample::request("INVITE")));
    assert_eq!(first, branch(&Sample::request("CANCEL")));
    assert_eq!(first, branch(&Sample::request("ACK")));
    assert_ne!(first, branch(&Sample::request("INVITE").set("Call-ID", "Call-ID: other")));
}

#[test]
fn a_request_goes_where_route_and_uri_say() {
    let proxy = proxy();
    let to = |sample: &Sample| {
        proxy.handle(address("198.51.100.1:7"), sent(sample)).map(|(bytes, to)| {
            let routes = Message::parse(bytes).expect("a message").routes().count();
            (to, routes)
        })
    };
    let request = Sample::request("BYE").start("BYE sip:omar@[2001:db8::5]:5090 SIP/2.0");
    assert_eq!(to(&request), Some((address("[2001:db8::5]:5090"), 0)));
    let own = request.clone().with("Route: <sip:192.0.2.1:5060;lr>");
    assert_eq!(to(&own), Some((address("[2001:db8::5]:5090"), 0)));
    let next = request.with("Route: <sip:192.0.2.1:5060;lr>, <sip:192.0.2.2;lr>");
    assert_eq!(to(&next), Some((address("192.0.2.2:5060"), 1)));
}

#[test]
fn what_the_proxy_cannot_forward_it_refuses_or_drops() {
    let proxy = proxy();
    let status = |sample: &Sample| {
        let answer = proxy.handle(address("198.51.100.1:7"), sent(sample));
        answer.and_then(|(bytes, _)| Message::parse(bytes).ok()?.status())
    };
    let tired = |method| Sample::request(method).set("Max-Forwards", "Max-Forwards: 0");
    assert_eq!(status(&tired("OPTIONS")), Some(483));
    assert_eq!(status(&tired("ACK")), None);
    assert_eq!(status(&Sample::request("OPTIONS").with("Content-Length: 1")), Some(400));
    assert_eq!(status(&Sample::response("200 OK")), None, "its Via is not ours");
}

#[test]
fn a_phone_registers_with_its_password_only() {
    let mut registrar = registrar::Registrar::new("example.com", "nina", "secret", [1; 16]);
    let register = registration().with("Contact: <sip:nina@192.0.2.7>;expires=60");
    let (refusal, _) = exchange(&mut registrar, NOW, sent(&register));
    assert_eq!(refusal.status(), Some(401));
    for (password, status) in [("wrong", 401), ("secret", 200)] {
        let mut client = Client::new("nina", Password::new(password), 1);
        client.handle_challenge(&refusal).expect("it can be answered");
        let (answer, contacts) = exchange(&mut registrar, NOW, authorized(&mut client, &register));
        assert_eq!(answer.status(), Some(status));
        assert_eq!(contacts.len(), usize::from(status == 200));
    }
    let mut client = Client::new("nina", Password::new("secret"), 1);
    client.handle_challenge(&refusal).expect("it can be answered");
    let (answer, _) = exchange(
        &mut registrar,
        NOW,
        authorized(&mut client, &register.clone().set("To", "To: <sip:omar@example.com>")),
    );
    assert_eq!(answer.status(), Some(403), "for somebody else");
    let asking = register.with("Require: pref, gruu");
    let (answer, _) = exchange(&mut registrar, NOW, sent(&asking));
    let unsupported: Vec<_> = answer.elements(Name::UNSUPPORTED).map(text).collect();
    assert_eq!((answer.status(), unsupported.join(" ")), (Some(420), "pref gruu".to_owned()));
}

#[test]
fn bindings_are_listed_replaced_removed_and_forgotten() {
    let mut registrar = registrar::Registrar::new("example.com", "nina", "secret", [1; 16]);
    let mut client = Client::new("nina", Password::new("secret"), 1);
    let (refusal, _) = exchange(&mut registrar, NOW, sent(&registration()));
    client.handle_challenge(&refusal).expect("it can be answered");
    let mut cseq = 17;
    let mut register = |now: Duration, lines: &[&str]| {
        cseq += 1;
        let sample = registration().set("CSeq", format!("CSeq: {cseq} REGISTER"));
        let sample = lines.iter().fold(sample, |sample, line| sample.with(line));
        let (answer, contacts) = exchange(&mut registrar, now, authorized(&mut client, &sample));
        (answer.status().expect("a response"), contacts)
    };
    let both = ["Contact: <sip:a@h>;expires=60", "Contact: <sip:b@h>", "Expires: 99999"];
    let listed = |contacts: &[&str]| contacts.iter().map(|c| (*c).to_owned()).collect::<Vec<_>>();
    let all = listed(&["<sip:a@h>;expires=60", "<sip:b@h>;expires=3600"]);
    assert_eq!(register(NOW, &both), (200, all.clone()));
    assert_eq!(register(NOW, &[]), (200, all), "asking changes nothing");
    let later = NOW + Duration::from_secs(60);
    assert_eq!(register(later, &[]), (200, listed(&["<sip:b@h>;expires=3540"])));
    let many: Vec<_> = (0..10).map(|n| format!("Contact: <sip:{n}@h>")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    assert_eq!(register(later, &many), (403, vec![]), "all or none");
    assert_eq!(register(later, &many[1..]).0, 200);
    assert_eq!(register(later, &["Contact: *"]), (400, vec![]));
    assert_eq!(register(later, &["Contact: *", "Expires: 0"]), (200, vec![]));
}

/// A REGISTER of Nina for herself.
fn registration() -> Sample {
    Sample::request("REGISTER").set("To", "To: <sip:nina@example.com>")
}

fn proxy() -> stateless_proxy::Proxy {
    let (address, next) = (address("192.0.2.1:5060"), address("192.0.2.99:5080"));
    stateless_proxy::Proxy { address, next }
}

/// Returns the answer, and the Contacts in it.
fn exchange(
    registrar: &mut registrar::Registrar,
    now: Duration,
    request: Bytes,
) -> (Message, Vec<String>) {
    let answer = registrar.handle(now, address("192.0.2.7:5060"), request).expect("an answer");
    let answer = Message::parse(answer).expect("a message");
    let contacts = answer.headers(Name::CONTACT).map(text).collect();
    (answer, contacts)
}

fn authorized(client: &mut Client, sample: &Sample) -> Bytes {
    let request = sample.accepted();
    let lines = client.authorize(&request);
    lines.iter().fold(Edit::new(&request), |edit, (name, value)| edit.append(*name, value)).finish()
}

fn sent(sample: &Sample) -> Bytes {
    Bytes::from(sample.bytes())
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}
