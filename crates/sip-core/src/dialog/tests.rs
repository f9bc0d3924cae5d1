use super::*;

#[test]
fn the_callee_goes_the_recorded_way_forwards() {
    let dialog = Dialog::uas(&invite(), b"ours").expect("the invite makes a dialog");

    assert_eq!(dialog.call_id, "call-1");
    assert_eq!(dialog.local_tag, "ours");
    assert_eq!(dialog.remote_tag, "ann");
    assert_eq!(dialog.local, "<sip:bob@callee.example>");
    assert_eq!(dialog.remote, "\"Ann <3\" <sip:ann@caller.example>");
    assert_eq!(dialog.remote_cseq, Some(7));
    assert_eq!(dialog.remote_target, "sip:ann@10.0.0.1:5070;transport=tcp");
    assert_eq!(dialog.route_set, ["<sip:p2.example;lr>", "<sip:p1.example;lr>;x=1"]);
    assert!(!dialog.confirmed && !dialog.secure);
}

#[test]
fn the_caller_goes_the_recorded_way_backwards() {
    let dialog = Dialog::uac(&invite(), &answer(200, "desk")).expect("a 2xx makes a dialog");

    assert_eq!(dialog.local_tag, "ann");
    assert_eq!(dialog.remote_tag, "desk");
    assert_eq!(dialog.local, "\"Ann <3\" <sip:ann@caller.example>");
    assert_eq!(dialog.remote, "<sip:bob@callee.example>");
    assert_eq!((dialog.local_cseq, dialog.remote_cseq), (7, None));
    assert_eq!(dialog.remote_target, "sip:bob@10.0.0.2");
    assert_eq!(dialog.route_set, ["<sip:p1.example;lr>;x=1", "<sip:p2.example;lr>"]);
    assert!(dialog.confirmed);
}

#[test]
fn each_tag_of_a_fork_makes_a_dialog_of_its_own() {
    let calling = Dialog::calling(&invite()).expect("the invite can be read");
    let desk = calling.answered(&answer(180, "desk")).expect("a ringing phone is early");
    let mobile = desk.answered(&answer(200, "mobile")).expect("another fork answers");

    assert!(!desk.confirmed && mobile.confirmed);
    assert_eq!((desk.remote_tag, mobile.remote_tag), ("desk".into(), "mobile".into()));
}

#[test]
fn no_dialog_comes_from_a_100_a_refusal_or_a_tagless_180() {
    let tagless = Writer::answer(&invite(), 180, b"Ringing", None).finish();

    for response in [answer(100, ""), answer(486, "desk"), tagless] {
        assert_eq!(Dialog::uac(&invite(), &response), Err(DialogError::NoDialog));
    }
}

#[test]
fn a_callee_of_rfc_2543_answers_without_a_tag() {
    let tagless = Writer::answer(&invite(), 200, b"OK", None).finish();
    let mut dialog = Dialog::uac(&invite(), &tagless).expect("a 2xx makes a dialog");

    assert_eq!(dialog.remote_target, "sip:bob@callee.example", "there is no contact");
    let bye = dialog.request(Method::Bye, b"SIP/2.0/UDP us;branch=z9hG4bK1").finish();
    assert_eq!(bye.header(Name::TO), Some(&b"<sip:bob@callee.example>"[..]));
}

#[test]
fn an_invite_without_a_contact_that_can_be_called_makes_no_dialog() {
    for contact in ["", "Contact: *\r\n", "m: <tel:1>\r\n", "Contact: <mailto:a@c>\r\n"] {
        let made = Dialog::uas(&invite_with(contact), b"ours");
        assert_eq!(made, Err(DialogError::NoContact), "{contact}");
    }
}

#[test]
fn headers_of_a_contact_do_not_reach_a_request_uri() {
    let invite = invite_with("Contact: <sip:a?b@c:5070;ob?Replaces=1&body=x>\r\n");
    let dialog = Dialog::uas(&invite, b"ours").expect("the invite makes a dialog");
    assert_eq!(dialog.remote_target, "sip:a?b@c:5070;ob");
}

#[test]
fn a_request_goes_to_the_target_along_loose_routes() {
    let mut dialog = Dialog::uas(&invite(), b"ours").expect("the invite makes a dialog");
    let bye = dialog.request(Method::Bye, b"SIP/2.0/UDP us.example;branch=z9hG4bK1").finish();

    assert_eq!(
        text(&bye),
        "BYE sip:ann@10.0.0.1:5070;transport=tcp SIP/2.0\r\n\
         Via: SIP/2.0/UDP us.example;branch=z9hG4bK1\r\n\
         Route: <sip:p2.example;lr>\r\n\
         Route: <sip:p1.example;lr>;x=1\r\n\
         Max-Forwards: 70\r\n\
         From: <sip:bob@callee.example>;tag=ours\r\n\
         To: \"Ann <3\" <sip:ann@caller.example>;tag=ann\r\n\
         Call-ID: call-1\r\n\
         CSeq: 1 BYE\r\n\
         Content-Length: 0\r\n\r\n"
    );
    assert_eq!(dialog.next_hop(), b"sip:p2.example;lr");
    assert_eq!(dialog.local_cseq, 1);
}

#[test]
fn a_strict_router_gets_the_request_uri_and_the_target_comes_last() {
    let mut dialog = Dialog::uas(&invite(), b"ours").expect("the invite makes a dialog");
    dialog.route_set[0] = "<sip:old.example;method=INVITE;x=y?Subject=no>".into();
    let bye = dialog.request(Method::Bye, b"SIP/2.0/UDP us.example;branch=z9hG4bK1").finish();
    let routes: Vec<_> = bye.headers(Name::ROUTE).map(String::from_utf8_lossy).collect();

    assert_eq!(bye.request_uri(), Some(&b"sip:old.example;x=y"[..]));
    assert_eq!(routes, ["<sip:p1.example;lr>;x=1", "<sip:ann@10.0.0.1:5070;transport=tcp>"]);
    assert_eq!(dialog.next_hop(), b"sip:old.example;method=INVITE;x=y?Subject=no");
}

#[test]
fn the_ack_of_a_2xx_has_the_number_of_its_invite_and_is_not_counted() {
    let mut dialog = Dialog::uac(&invite(), &answer(200, "desk")).expect("a 2xx makes a dialog");
    let _ = dialog.request(Method::Info, b"SIP/2.0/UDP us;branch=z9hG4bK1");
    let ack = dialog.ack(7, b"SIP/2.0/UDP us;branch=z9hG4bK2").finish();

    assert_eq!(ack.header(Name::CSEQ), Some(&b"7 ACK"[..]));
    assert_eq!(ack.to_tag(), Some(&b"desk"[..]));
    assert_eq!(dialog.local_cseq, 8);
}

#[test]
fn a_lower_cseq_is_out_of_order_and_a_gap_is_none() {
    let mut dialog = Dialog::uas(&invite(), b"ours").expect("the invite makes a dialog");

    assert_eq!(dialog.accept(&request("INFO", 6)), Err(OutOfOrder));
    assert_eq!(dialog.accept(&request("ACK", 7)), Ok(()));
    assert_eq!(dialog.accept(&request("INFO", 20)), Ok(()));
    assert_eq!(dialog.accept(&request("INFO", 20)), Ok(()), "a copy after a restart");
    assert_eq!(dialog.accept(&request("CANCEL", 7)), Ok(()));
    assert_eq!(dialog.accept(&request("INFO", 19)), Err(OutOfOrder));
    assert_eq!(dialog.remote_cseq, Some(20));
}

#[test]
fn a_refresh_moves_the_target_and_never_the_route() {
    let mut dialog = Dialog::uac(&invite(), &answer(180, "desk")).expect("it is early");
    let routes = dialog.route_set.clone();
    dialog.confirmed = true;
    dialog.confirm(&moved("sip:bob@10.9.9.9"));

    assert_eq!(dialog.remote_target, "sip:bob@10.9.9.9");
    assert_eq!(dialog.route_set, routes);
    dialog.refresh(&request("INVITE", 9));
    assert_eq!(dialog.remote_target, "sip:bob@10.9.9.9", "no contact, no change");
}

#[test]
fn the_2xx_gives_an_early_dialog_its_final_route() {
    let mut dialog = Dialog::uac(&invite(), &answer(180, "desk")).expect("it is early");
    dialog.confirm(&moved("sip:bob@10.9.9.9"));

    assert!(dialog.confirmed);
    assert_eq!(dialog.route_set, ["<sip:p3.example;lr>"]);
}

#[test]
fn a_dialog_owns_what_has_its_call_id_and_both_tags() {
    let dialog = Dialog::uac(&invite(), &answer(200, "desk")).expect("a 2xx makes a dialog");
    let mut theirs = dialog.clone();
    (theirs.local_tag, theirs.remote_tag) = (dialog.remote_tag.clone(), dialog.local_tag.clone());
    let bye = theirs.request(Method::Bye, b"SIP/2.0/UDP them;branch=z9hG4bK9").finish();

    assert!(dialog.owns(&bye) && dialog.owns(&answer(200, "desk")));
    assert!(!theirs.owns(&bye) && !dialog.owns(&answer(200, "mobile")));
}

#[test]
fn a_sips_call_makes_a_secure_dialog() {
    let invite =
        Message::parse(Bytes::from(text(&invite()).replacen("INVITE sip:", "INVITE sips:", 1)));
    let invite = invite.expect("it can be read");

    assert!(Dialog::uas(&invite, b"ours").expect("a dialog").secure);
    assert!(Dialog::calling(&invite).expect("a dialog").secure);
}

#[cfg(feature = "serde")]
#[test]
fn a_stored_dialog_comes_back_as_it_was() {
    let dialog = Dialog::uac(&invite(), &answer(200, "desk")).expect("a 2xx makes a dialog");
    let stored = serde_json::to_vec(&dialog).expect("it can be stored");

    assert_eq!(serde_json::from_slice::<Dialog>(&stored).expect("it can be read"), dialog);
}

/// An INVITE that came through two proxies.
fn invite() -> Message {
    Writer::request(Method::Invite, b"sip:bob@callee.example")
        .header(Name::VIA, "SIP/2.0/UDP caller.example;branch=z9hG4bKinvite")
        .header(Name::FROM, "\"Ann <3\" <sip:ann@caller.example>;tag=ann")
        .header(Name::TO, "sip:bob@callee.example")
        .header(Name::CALL_ID, "call-1")
        .header(Name::CSEQ, "7 INVITE")
        .header(Name::CONTACT, "<sip:ann@10.0.0.1:5070;transport=tcp>;q=1")
        .header(Name::RECORD_ROUTE, "<sip:p2.example;lr>, \"One, 1\" <sip:p1.example;lr>;x=1")
        .finish()
}

fn answer(status: u16, tag: &str) -> Message {
    Writer::answer(&invite(), status, b"Whatever", Some(tag.as_bytes()))
        .header(Name::CONTACT, "<sip:bob@10.0.0.2>")
        .finish()
}

/// A 2xx from another address, that came another way.
fn moved(contact: &str) -> Message {
    Writer::response(200, b"OK")
        .header(Name::TO, "<sip:bob@callee.example>;tag=desk")
        .header(Name::CONTACT, format!("<{contact}>"))
        .header(Name::RECORD_ROUTE, "<sip:p3.example;lr>")
        .finish()
}

/// A request of the peer inside the dialog.
fn request(method: &str, number: u32) -> Message {
    Writer::request(Method::new(method.as_bytes()), b"sip:bob@callee.example")
        .header(Name::CSEQ, format!("{number} {method}"))
        .finish()
}

fn text(message: &Message) -> String {
    String::from_utf8_lossy(message.bytes()).into_owned()
}

/// Returns an INVITE with this header, or without one.
fn invite_with(header: &str) -> Message {
    let text = format!(
        "INVITE sip:b@c SIP/2.0\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: <sip:a@c>;tag=1\r\n\
         To: <sip:b@c>\r\nCall-ID: 1\r\nCSeq: 1 INVITE\r\n{header}Content-Length: 0\r\n\r\n",
    );
    Message::parse(Bytes::from(text)).expect("it can be read")
}
