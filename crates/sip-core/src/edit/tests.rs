use bytes::Bytes;

use super::Edit;
use crate::{Message, Name, Verdict};

const INVITE: &str = "INVITE sip:bob@example.com SIP/2.0\r\n\
    v: SIP/2.0/UDP 10.0.0.1;branch=z9hG4bKtop;rport, SIP/2.0/TCP h2;branch=z9hG4bK2\r\n\
    Via : SIP/2.0/UDP h3;branch=z9hG4bK3\r\n\
    fRoM: <sip:a@example.com>;tag=1\r\n\
    To: <sip:bob@example.com>\r\n\
    Call-ID: c1\r\n\
    CSeq: 1 INVITE\r\n\
    Route: <sip:p1;lr>, <sip:p2;lr>\r\n\
    Subject:\r\n\
    X-Odd:  kept  as\r\n  it is\r\n\
    Content-Length: 3\r\n\r\nabc";

fn edited(edit: impl Fn(Edit<'_>) -> Edit<'_>) -> String {
    let message = Message::parse(Bytes::from_static(INVITE.as_bytes())).expect("a message");
    assert_eq!(message.verdict(), Verdict::Ok);
    let bytes = edit(Edit::new(&message)).finish();
    Message::parse(bytes.clone()).expect("still a message");
    let kept = edit(Edit::new_in(&message, b"what was sent before".to_vec())).finish_vec();
    assert_eq!(kept, bytes);
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[test]
fn nothing_changed_is_nothing_changed() {
    assert_eq!(edited(|edit| edit), INVITE);
}

#[test]
fn memory_that_the_caller_keeps_is_used_again() {
    let message = Message::parse(Bytes::from_static(INVITE.as_bytes())).expect("a message");
    let kept = Vec::with_capacity(4096);
    let memory = kept.as_ptr();
    let once = Edit::new_in(&message, kept).push_via("SIP/2.0/UDP a").finish_vec();
    let twice = Edit::new_in(&message, once).set_request_uri(b"sip:c@h").finish_vec();
    assert_eq!(twice.as_ptr(), memory);
    assert_eq!(twice, INVITE.replacen("sip:bob@example.com", "sip:c@h", 1).as_bytes());
}

#[test]
fn a_via_pushed_and_popped_leaves_the_rest() {
    let pushed = edited(|edit| edit.push_via("SIP/2.0/UDP a").push_via("SIP/2.0/UDP b"));
    let vias = "Via: SIP/2.0/UDP b\r\nVia: SIP/2.0/UDP a\r\nv: SIP";
    assert_eq!(pushed, INVITE.replacen("v: SIP", vias, 1));
    let popped = "SIP/2.0/UDP 10.0.0.1;branch=z9hG4bKtop;rport, ";
    assert_eq!(edited(|edit| edit.pop_via()), INVITE.replace(popped, ""));
    let line = &INVITE[INVITE.find("v: ").expect("there")..INVITE.find("Via :").expect("there")];
    assert_eq!(edited(|edit| edit.pop_via().pop_via()), INVITE.replace(line, ""));
    let swapped = edited(|edit| edit.pop_via().pop_via().push_via("SIP/2.0/UDP b"));
    assert_eq!(swapped, INVITE.replace(line, "Via: SIP/2.0/UDP b\r\n"));
}

#[test]
fn the_top_via_says_where_the_message_came_from() {
    let stamped = edited(|edit| edit.via_received([192, 0, 2, 7].into(), 4444));
    let expected = "z9hG4bKtop;received=192.0.2.7;rport=4444, ";
    assert_eq!(stamped, INVITE.replace("z9hG4bKtop;rport, ", expected));
    // RFC 3581 §4: who asks is told, even what it knows.
    let same = edited(|edit| edit.via_received([10, 0, 0, 1].into(), 5060));
    assert!(same.contains(";received=10.0.0.1;rport=5060, "), "{same}");
    // The second does not ask, and names a host that is no address.
    let second = edited(|edit| edit.pop_via().via_received([192, 0, 2, 7].into(), 4444));
    assert!(second.contains("v: SIP/2.0/TCP h2;branch=z9hG4bK2;received=192.0.2.7\r\n"));
}

#[test]
fn what_a_peer_claims_about_itself_is_replaced() {
    let claim = INVITE.replace(";rport,", " ; rport=1 ;x=\"; received=no\"; Received=1.1.1.1,");
    let message = Message::parse(Bytes::from(claim.clone().into_bytes())).expect("a message");
    let bytes = Edit::new(&message).via_received([10, 0, 0, 1].into(), 5060).finish();
    let expected = claim.replace(
        " ; rport=1 ;x=\"; received=no\"; Received=1.1.1.1,",
        " ;x=\"; received=no\";received=10.0.0.1;rport=5060,",
    );
    assert_eq!(bytes, expected.as_bytes());
}

#[test]
fn single_headers_are_set_added_and_taken_away() {
    let uri = edited(|edit| edit.set_request_uri(b"sip:carol@example.net"));
    assert_eq!(uri, INVITE.replace("INVITE sip:bob@example.com", "INVITE sip:carol@example.net"));
    let set = edited(|edit| edit.set(Name::SUBJECT, "a").set(Name::SUBJECT, "hello"));
    assert_eq!(set, INVITE.replace("Subject:", "Subject: hello"));
    let set = edited(|edit| edit.set(Name::new(b"x-odd"), "new"));
    assert_eq!(set, INVITE.replace("kept  as\r\n  it is", "new"));
    let added = edited(|edit| edit.set(Name::MAX_FORWARDS, "70").append(Name::new(b"X-New"), "y"));
    assert_eq!(added, INVITE.replace("\r\n\r\n", "\r\nMax-Forwards: 70\r\nX-New: y\r\n\r\n"));
    let routes = edited(|edit| edit.pop(Name::ROUTE).prepend(Name::ROUTE, "<sip:p0;lr>"));
    assert_eq!(routes, INVITE.replace("Route: <sip:p1;lr>, ", "Route: <sip:p0;lr>\r\nRoute: "));
    assert_eq!(
        edited(|edit| edit.remove(Name::ROUTE).remove(Name::VIA).set(Name::SUBJECT, "z")),
        edited(|edit| edit.set(Name::SUBJECT, "z").remove(Name::VIA).remove(Name::ROUTE)),
    );
    let gone = edited(|edit| edit.set(Name::SUBJECT, "z").remove(Name::SUBJECT));
    assert_eq!(gone, INVITE.replace("Subject:\r\n", ""));
}

#[test]
fn a_body_brings_its_length() {
    let changed = edited(|edit| edit.set_body("twelve bytes").set(Name::SUBJECT, "x"));
    let expected = INVITE.replace("Length: 3\r\n\r\nabc", "Length: 12\r\n\r\ntwelve bytes");
    assert_eq!(changed, expected.replace("Subject:", "Subject: x"));
}

#[test]
fn no_value_can_bring_a_line_with_it() {
    let evil = "x\r\nEvil: y\0";
    let text = edited(|edit| {
        edit.set(Name::SUBJECT, evil)
            .append(Name::new(b"A\r\nEvil: b"), evil)
            .prepend(Name::ROUTE, evil)
            .push_via(evil)
            .set_request_uri(b"sip:a\r\nEvil:@b")
    });
    assert!(!text.contains("\nEvil"), "{text}");
    assert!(!text.contains('\0'));
}
