//! Typed views of headers, right and wrong ones.

use bytes::Bytes;
use sip_core::digest::Algorithm;
use sip_core::{
    Event, MediaRange, Message, Method, Name, RAck, ReferTo, Replaces, RetryAfter, Scheme,
    SubscriptionState,
};

use crate::sample::{Sample, text};

#[test]
fn a_prack_names_the_response_it_acknowledges() {
    let message = Sample::request("PRACK").with("RAck: 776656 1 INVITE").accepted();
    let rack = message.rack().expect("a RAck");
    assert_eq!((rack.rseq, rack.cseq, rack.method), (776_656, 1, Method::Invite));
    let ringing = Sample::response("180 Ringing").with("RSeq: 4294967295").accepted();
    assert_eq!(ringing.rseq(), Some(u32::MAX));
    for value in [
        "",
        "1",
        "1 2",
        "1 2 ",
        "0 1 INVITE",
        "1,2 INVITE",
        "-1 1 INVITE",
        "1 2147483648 INVITE",
        "4294967296 1 INVITE",
        "1 1 IN VITE",
    ] {
        assert!(RAck::parse(value.as_bytes()).is_err(), "{value}");
    }
    for value in ["0", "-1", "4294967296", "1 2", "x"] {
        let line = format!("RSeq: {value}");
        assert_eq!(Sample::response("180 Ringing").with(line).accepted().rseq(), None, "{value}");
    }
    let folded = RAck::parse(b"1\r\n  1\t INVITE").map(|rack| rack.cseq);
    assert_eq!(folded, Ok(1));
}

#[test]
fn a_refer_says_what_to_do() {
    let refer = Sample::request("REFER")
        .with("r: \"Bob <x>\" <sip:bob@example.com;method=INVITE?Replaces=90%40h%3Bto-tag%3Dt%3Bfrom-tag%3Df&Subject=a%20b>;q=1")
        .with("b: <sip:ann@example.com>;cid=\"1.2@example.com\"")
        .accepted();
    let target = refer.refer_to().expect("a Refer-To");
    assert_eq!(text(target.uri.host().expect("a host").name()), "example.com");
    assert_eq!(target.method(), Method::Invite);
    assert_eq!(target.header(Name::SUBJECT).as_deref(), Some(&b"a b"[..]));
    let value = target.replaces().expect("an attended transfer");
    let replaces = Replaces::parse(&value).expect("it can be read");
    assert_eq!(
        (replaces.call_id, replaces.to_tag, replaces.from_tag),
        (&b"90@h"[..], &b"t"[..], &b"f"[..])
    );
    let by = refer.referred_by().expect("a Referred-By");
    assert_eq!(
        (by.uri(), by.param(b"cid")),
        (&b"sip:ann@example.com"[..], Some(&b"\"1.2@example.com\""[..]))
    );

    let other = ReferTo::parse(b"tel:+1-201;method=MESSAGE").expect("bare");
    // RFC 3261 §20: without brackets the parameter is the header's.
    assert_eq!((other.method(), other.uri.scheme()), (Method::Invite, Scheme::Tel));
    let message = ReferTo::parse(b"<sip:a@b;method=MESSAGE>").expect("in brackets");
    assert_eq!(message.method(), Method::Message);
    for value in ["", "<>", "<sip:>", "sip:a@b?Replaces=x", "bob"] {
        assert!(ReferTo::parse(value.as_bytes()).is_err(), "{value}");
    }
    Sample::request("REFER").with("Refer-To: sip:a@b").with("r: sip:c@d").refused(400);
}

#[test]
fn a_notification_says_how_its_subscription_stands() {
    let notify = Sample::request("NOTIFY")
        .with("o: refer;id=93809824")
        .with("Subscription-State: Terminated ;reason=noresource;retry-after=5")
        .accepted();
    let event = notify.event().expect("an Event");
    assert_eq!((event.package, event.id()), (&b"refer"[..], Some(&b"93809824"[..])));
    let state = notify.subscription_state().expect("a state");
    assert!(state.is_terminated());
    assert_eq!(
        (state.reason().as_deref(), state.retry_after()),
        (Some(&b"noresource"[..]), Some(5))
    );
    let active = SubscriptionState::parse(b"active;expires=60").expect("a state");
    assert_eq!((active.is_terminated(), active.expires()), (false, Some(60)));
    assert!(Event::parse(b"").is_err() && Event::parse(b"a b").is_err());
    assert!(SubscriptionState::parse(b";expires=1").is_err());
    assert_eq!(
        Event::parse(b"presence.winfo").map(|e| (e.package, e.id())),
        Ok((&b"presence.winfo"[..], None))
    );
}

#[test]
fn the_closest_range_decides_what_is_taken() {
    let accept = |value: &str| {
        let message = Sample::request("INVITE").with(format!("Accept: {value}")).accepted();
        (message.accepts(b"application/sdp"), message.accepts(b"text/plain"))
    };
    assert_eq!(accept("application/sdp;level=1, application/x-private, text/html"), (true, false));
    assert_eq!(accept("*/*;q=0.5, text/*;q=0"), (true, false));
    assert_eq!(accept("text/*;q=0, text/PLAIN ; q=0.001"), (false, true));
    assert_eq!(accept("application / sdp"), (true, false));
    assert_eq!(accept(""), (false, false));
    let without = Sample::request("INVITE").accepted();
    assert!(without.accepts(b"application/SDP") && !without.accepts(b"text/plain"));
    let quality = |value: &str| MediaRange::parse(value.as_bytes()).map(|range| range.quality());
    assert_eq!(quality("a/b;q=0.75"), Ok(750));
    assert_eq!(quality("a/b;q=1.000"), Ok(1000));
    assert_eq!(quality("a/b;q=1.5"), Ok(1000));
    assert!(quality("a").is_err() && quality("*/b").is_err() && quality("a/").is_err());
}

#[test]
fn identities_paths_and_diversions_are_lists() {
    let message = Sample::request("INVITE")
        .with("P-Asserted-Identity: \"<sip:boss@corp.example>\" <sip:eve@example.net>, tel:+12015550123")
        .with("Path: <sip:p1.example.com;lr>, <sip:p2.example.com;lr;ob>")
        .with("Diversion: \"Bob, B\" <sip:bob@example.com>;reason=user-busy;counter=2;privacy=\"full\"")
        .with("Diversion: <sip:carol@example.com>;reason=\"no-answer\"")
        .accepted();
    let identities: Vec<_> = message.asserted_identities().map(|a| text(a.uri())).collect();
    assert_eq!(identities, ["sip:eve@example.net", "tel:+12015550123"]);
    let paths: Vec<_> = message.paths().map(|path| text(path.uri())).collect();
    assert_eq!(paths, ["sip:p1.example.com;lr", "sip:p2.example.com;lr;ob"]);
    let diversions: Vec<_> = message
        .diversions()
        .map(|d| (text(d.address.uri()), d.reason().map(text), d.counter(), d.privacy().map(text)))
        .collect();
    assert_eq!(
        diversions[0],
        (
            "sip:bob@example.com".to_owned(),
            Some("user-busy".to_owned()),
            2,
            Some("full".to_owned())
        )
    );
    assert_eq!(
        diversions[1],
        ("sip:carol@example.com".to_owned(), Some("no-answer".to_owned()), 1, None)
    );
}

#[test]
fn a_retry_time_may_say_why() {
    let retry = RetryAfter::parse(b"18000;duration=3600").expect("a time");
    assert_eq!((retry.seconds, retry.comment, retry.duration()), (18000, None, Some(3600)));
    let retry =
        RetryAfter::parse(b"120 (I'm (really) in a \\) meeting);duration=5").expect("a time");
    assert_eq!(
        (retry.comment, retry.duration()),
        (Some(&b"I'm (really) in a \\) meeting"[..]), Some(5))
    );
    let long = RetryAfter::parse(b"99999999999").map(|retry| retry.seconds);
    assert_eq!(long, Ok(u32::MAX));
    for value in ["", "x", "1 (", "1 x", "-1", "1 (\\)"] {
        assert!(RetryAfter::parse(value.as_bytes()).is_err(), "{value}");
    }
    let message =
        Sample::response("503 Service Unavailable").with("Retry-After: 5 (soon)").accepted();
    assert_eq!((message.retry_after(), message.retry().map(|r| r.seconds)), (Some(5), Some(5)));
}

#[test]
fn joining_names_a_dialog_as_replacing_does() {
    let message = Sample::request("INVITE").with("Join: 12adf2@h;from-tag=a;to-tag=b").accepted();
    let join = message.join().expect("a Join");
    assert_eq!(
        (join.call_id, join.to_tag, join.from_tag),
        (&b"12adf2@h"[..], &b"b"[..], &b"a"[..])
    );
    for value in [
        "",
        "c",
        "c;to-tag=a",
        "c;to-tag=a;from-tag=b;to-tag=c",
        ";to-tag=a;from-tag=b",
        "a b;to-tag=a;from-tag=b",
    ] {
        assert!(Replaces::parse(value.as_bytes()).is_err(), "{value}");
    }
    Sample::request("INVITE")
        .with("Join: a;to-tag=b;from-tag=c")
        .with("Join: d;to-tag=b;from-tag=c")
        .refused(400);
}

#[test]
fn challenges_and_their_answers_are_read_where_they_stand() {
    let refusal = Sample::response("407 Proxy Authentication Required")
        .with(
            "Proxy-Authenticate: Digest realm=\"p\", nonce=\"1\", algorithm=SHA-256, qop=\"auth\"",
        )
        .with("Proxy-Authenticate: Basic realm=\"p\"")
        .with("WWW-Authenticate: Digest realm=\"w\", nonce=\"2\"")
        .accepted();
    let challenges: Vec<_> =
        refusal.challenges().map(|(name, c)| (name, text(c.realm), c.algorithm)).collect();
    assert_eq!(
        challenges,
        [
            (Name::WWW_AUTHENTICATE, "w".to_owned(), Some(Algorithm::MD5)),
            (Name::PROXY_AUTHENTICATE, "p".to_owned(), Some(Algorithm::SHA_256)),
        ]
    );
    // The example of RFC 4475 §3.1.2.1's family: credentials of another scheme.
    let request = Sample::request("REGISTER")
        .with("Authorization: NoOneKnowsThisScheme opaque-data=here")
        .with("Authorization: Digest username=\"u\", realm=\"r\", nonce=\"n\", uri=\"sip:a\", response=\"0\"")
        .accepted();
    let users: Vec<_> = request.credentials().map(|(_, c)| text(c.username)).collect();
    assert_eq!(users, ["u"]);
    let ok = Sample::response("200 OK").with("Authentication-Info: nextnonce=\"47\"").accepted();
    let next = ok.authentication_info().and_then(|info| info.next_nonce).map(text);
    assert_eq!(next, Some("47".to_owned()));
}

#[test]
fn views_of_headers_that_are_not_there_are_nothing() {
    let bytes = Bytes::from(Sample::request("OPTIONS").bytes());
    let message = Message::parse(bytes).expect("a message");
    assert!(message.rack().is_none() && message.rseq().is_none() && message.join().is_none());
    assert!(message.event().is_none() && message.subscription_state().is_none());
    assert!(message.refer_to().is_none() && message.referred_by().is_none());
    assert!(message.retry().is_none() && message.min_expires().is_none());
    assert_eq!((message.paths().count(), message.diversions().count()), (0, 0));
    assert_eq!((message.challenges().count(), message.credentials().count()), (0, 0));
}
