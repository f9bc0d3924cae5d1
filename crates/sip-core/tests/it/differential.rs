//! The same bytes through rsip, wherever rsip can hold what they say: where a
//! value that it has read prints back as it stood, both have to read the same.

use bytes::Bytes;
use proptest::prelude::*;
use rsip::prelude::{HeadersExt as _, ToTypedHeader as _, UntypedHeader as _};
use sip_core::{Host, Message, Name, Scheme, Uri, Verdict};

use crate::properties::{messages, near};
use crate::sample::{Sample, text};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_near_message_is_read_as_rsip_reads_it(data in near(messages())) {
        compare(&data);
    }
}

#[test]
fn every_message_of_the_corpora_is_read_as_rsip_reads_it() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/message");
    let mut compared = 0;
    for seed in std::fs::read_dir(folder).expect("the corpus is in the tree") {
        let path = seed.expect("a folder can be listed").path();
        compared += compare(&std::fs::read(path).expect("a seed can be read"));
    }
    for method in ["INVITE", "REGISTER", "ACK", "BYE", "CANCEL", "OPTIONS", "PRACK", "UPDATE"] {
        let contact = "Contact: <sip:nina@192.0.2.1:5070;ob>;expires=60";
        compared += compare(&Sample::request(method).with(contact).body("v=0\r\n").bytes());
    }
    for status in ["100 Trying", "180 Ringing", "200 OK", "404 Not Found", "603 Decline"] {
        let sample = Sample::response(status).set("To", "To: <sip:omar@example.org>;tag=o1");
        compared += compare(&sample.bytes());
    }
    assert!(100 < compared, "rsip can hold most of these values, and held {compared}");
}

/// Returns how many values both have read.
fn compare(data: &[u8]) -> usize {
    let Ok(ours) = Message::parse(Bytes::copy_from_slice(data)) else { return 0 };
    // What was read with lenience, rsip reads otherwise or not at all.
    if ours.verdict() != Verdict::Ok || !ours.defects().is_empty() {
        return 0;
    }
    let Ok(theirs) = rsip::SipMessage::try_from(ours.bytes().clone()) else { return 0 };
    let mut compared = 0;
    let mut same = |one: String, other: String| {
        // White space between two parts goes to one of them in rsip.
        if !other.bytes().any(|byte| byte.is_ascii_whitespace()) {
            assert_eq!(one, other, "{ours:?}");
            compared += 1;
        }
    };
    compare_start(&ours, &theirs, &mut same);
    compare_headers(&ours, &theirs, &mut same);
    compared
}

fn compare_start(ours: &Message, theirs: &rsip::SipMessage, same: &mut dyn FnMut(String, String)) {
    match theirs {
        rsip::SipMessage::Request(request) => {
            let uri = ours.request_uri().map(text).unwrap_or_default();
            same(ours.method().to_string(), request.method.to_string());
            let view = Uri::parse(uri.as_bytes()).expect("it is accepted");
            let host = request.uri.host().to_string();
            // Of another scheme rsip takes the name for a user, and some users
            // for a part of the host.
            let is_held = request.uri.to_string() == uri
                && matches!(view.scheme(), Scheme::Sip | Scheme::Sips)
                && Host::parse(host.as_bytes()).is_ok();
            if is_held {
                let user = request.uri.user().unwrap_or_default().to_owned();
                same(view.user().map(text).unwrap_or_default(), user);
                same(view.host().map(|host| text(host.as_bytes())).unwrap_or_default(), host);
            }
        }
        rsip::SipMessage::Response(response) => {
            let status = response.status_code.code().to_string();
            same(ours.status().unwrap_or(0).to_string(), status);
        }
    }
}

fn compare_headers(
    ours: &Message,
    theirs: &rsip::SipMessage,
    same: &mut dyn FnMut(String, String),
) {
    // rsip finds no compact name, so a header may be missing there.
    if let (Ok(theirs), Some(value)) = (theirs.via_header(), held(ours, Name::VIA))
        && theirs.value() == value
        && let Ok(typed) = theirs.typed()
        && typed.to_string() == value
    {
        let branch = typed.branch().map(|branch| branch.value().to_owned()).unwrap_or_default();
        same(ours.branch().map(text).unwrap_or_default(), branch);
        let host = ours.via().map(|via| text(via.host().as_bytes())).unwrap_or_default();
        same(host, typed.uri.host().to_string());
    }
    if let (Ok(theirs), Some(value)) = (theirs.from_header(), held(ours, Name::FROM))
        && theirs.value() == value
        && let Ok(typed) = theirs.typed()
        && typed.to_string() == value
    {
        let tag = typed.tag().map(|tag| tag.value().to_owned()).unwrap_or_default();
        same(ours.from_tag().map(text).unwrap_or_default(), tag);
        same(ours.from().map(|from| text(from.uri())).unwrap_or_default(), typed.uri.to_string());
    }
    if let (Ok(theirs), Some(value)) = (theirs.to_header(), held(ours, Name::TO))
        && theirs.value() == value
        && let Ok(typed) = theirs.typed()
        && typed.to_string() == value
    {
        let tag = typed.tag().map(|tag| tag.value().to_owned()).unwrap_or_default();
        same(ours.to_tag().map(text).unwrap_or_default(), tag);
        same(ours.to().map(|to| text(to.uri())).unwrap_or_default(), typed.uri.to_string());
    }
    if let (Ok(theirs), Some(value)) = (theirs.cseq_header(), held(ours, Name::CSEQ))
        && theirs.value() == value
        && let Ok(typed) = theirs.typed()
        && typed.to_string() == value
    {
        let cseq = ours.cseq().expect("an accepted message has one");
        same(cseq.number.to_string(), typed.seq.to_string());
        same(cseq.method.to_string(), typed.method.to_string());
    }
    if let (Ok(theirs), Some(value)) = (theirs.call_id_header(), held(ours, Name::CALL_ID)) {
        same(value, theirs.value().trim().to_owned());
    }
}

/// The first header of this name, when it is spelt out in full.
fn held(message: &Message, name: Name<'static>) -> Option<String> {
    let line = message.lines().find(|line| line.name() == Some(name))?;
    (line.name_text().len() == name.as_bytes().len()).then(|| text(line.value()))
}
