//! The checks of `checks`, on bytes that are nearly messages.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use sip_core::{Message, Method, Name, Verdict, Writer};

use crate::checks;
use crate::sample::{SDP, Sample};

/// Pieces that mean something, or nearly so.
const PIECES: &[&[u8]] = &[
    b"\r\n",
    b"\r\n\r\n",
    b"\r\n ",
    b"\n",
    b"\r",
    b" ",
    b"\t",
    b":",
    b",",
    b";",
    b"=",
    b"\"",
    b"\\",
    b"<",
    b">",
    b"@",
    b"?",
    b"&",
    b"%00",
    b"%",
    b"[",
    b"]",
    b"[::1]",
    b"/",
    b"\0",
    b"\xff",
    b"*",
    b"SIP/2.0",
    b"sip:",
    b"tel:",
    b"Content-Length: 3\r\n",
    b"l: 0\r\n",
    b"Via: SIP/2.0/UDP x;branch=z9hG4bKy\r\n",
    b"v:",
    b"Contact: *\r\n",
    b";rport",
    b";received=1.2.3.4",
    b";tag=x",
    b";branch=",
    b"CSeq",
    b"INVITE",
    b"4294967296",
    b"-1",
    b"m=audio 1 RTP/AVP 0\r\n",
    b"a=sendonly\r\n",
    b"c=IN IP4 1.2.3.4\r\n",
    b"a=rtpmap:0 x/1\r\n",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parsing_and_printing_any_near_message_is_the_identity(data in near(messages())) {
        checks::message(&data);
    }

    #[test]
    fn framer_and_parser_agree_on_any_near_stream(size: u8, data in near(messages())) {
        checks::stream(&[&[size], &data[..]].concat());
    }

    #[test]
    fn any_near_uri_is_read_without_harm(data in near(uris())) {
        checks::uri(&data);
    }

    #[test]
    fn any_near_description_is_edited_without_harm(data in near(vec![SDP.as_bytes().to_vec()])) {
        checks::description(&data);
    }

    #[test]
    fn any_near_challenge_is_answered_without_harm(data in near(challenges())) {
        checks::digest(&data);
    }

    #[test]
    fn any_bytes_are_read_without_harm(data in vec(any::<u8>(), 0..300)) {
        checks::message(&data);
        checks::stream(&data);
        checks::uri(&data);
        checks::description(&data);
        checks::digest(&data);
    }

    #[test]
    fn a_written_message_says_what_was_said_and_no_more(
        method in vec(any::<u8>(), 0..10),
        uri in vec(any::<u8>(), 0..20),
        headers in vec((vec(any::<u8>(), 0..10), vec(any::<u8>(), 0..30)), 0..50),
        body in vec(any::<u8>(), 0..50),
    ) {
        let mut writer = Writer::request(Method::new(&method), &uri);
        let mut expected = 1;
        for (name, value) in &headers {
            expected += usize::from(Name::new(name) != Name::CONTENT_LENGTH);
            writer = writer.header(Name::new(name), value);
        }
        let message = writer.body(b"text/plain", body.clone()).finish();
        prop_assert_eq!(message.lines().count(), expected + 1);
        prop_assert_eq!(message.body(), &body[..]);
        prop_assert!(message.lines().all(|line| line.name().is_some()));
        checks::message(message.bytes());
    }
}

#[test]
fn a_written_request_is_accepted() {
    let invite = Writer::request(Method::Invite, b"sip:omar@example.org")
        .header(Name::VIA, "SIP/2.0/UDP a.example.com;branch=z9hG4bKa")
        .number(Name::MAX_FORWARDS, 70)
        .header(Name::FROM, "<sip:nina@example.com>;tag=n")
        .header(Name::TO, "<sip:omar@example.org>")
        .header(Name::CALL_ID, "c1")
        .header(Name::CSEQ, "1 INVITE")
        .body(b"application/sdp", SDP)
        .finish();
    assert_eq!(invite.verdict(), Verdict::Ok, "{:?}", invite.defects());
    assert_eq!(invite.content_length().map(|len| len as usize), Some(SDP.len()));

    let ringing = Writer::answer(&invite, 180, b"Ringing", Some(b"o")).finish();
    assert_eq!(ringing.verdict(), Verdict::Ok, "{:?}", ringing.defects());
    assert_eq!((ringing.status(), ringing.to_tag()), (Some(180), Some(&b"o"[..])));
    let trying = Writer::answer(&invite, 100, b"Trying", Some(b"o")).finish();
    assert_eq!(trying.to_tag(), None);
}

pub(crate) fn messages() -> Vec<Vec<u8>> {
    vec![
        Sample::request("INVITE")
            .with("Contact: \"N\" <sip:nina@[::1]:5070;ob>;q=1")
            .body(SDP)
            .bytes(),
        Sample::request("REGISTER").with("Route: <sip:a;lr>, <sip:b;lr>").bytes(),
        Sample::response("200 OK").with("Record-Route: <sip:a;lr>").body("abc").bytes(),
        [Sample::request("OPTIONS").body("abc").bytes(), Sample::request("BYE").bytes()].concat(),
    ]
}

fn uris() -> Vec<Vec<u8>> {
    let texts = [
        "sip:user;x=y%40:pass@example.com:5060;transport=tcp;lr?a=b&c=d",
        "sips:[2001:db8::1]:5061;maddr=[::1]",
        "tel:+1-201-555-0123;phone-context=example.com",
        "urn:service:sos",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn challenges() -> Vec<Vec<u8>> {
    let texts = [
        "Digest realm=\"a \\\"b\\\"\", nonce=\"n=\", qop=\"auth,auth-int\", algorithm=SHA-256",
        "Digest realm=\"r\", nonce=n, opaque=\"\", algorithm=MD5-sess, stale=true",
        "Digest username=\"u\", realm=\"r\", nonce=\"n\", uri=\"sip:example.com\", \
         response=\"00\", qop=auth, nc=00000001, cnonce=\"c\"",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// One of `seeds` with a few pieces put in, taken out or put elsewhere.
pub(crate) fn near(seeds: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let edit = (any::<prop::sample::Index>(), 0..60usize, 0..PIECES.len(), 0..4u8);
    (prop::sample::select(seeds), vec(edit, 0..8)).prop_map(|(mut data, edits)| {
        for (at, len, piece, what) in edits {
            let at = at.index(data.len() + 1);
            let end = data.len().min(at + len);
            match what {
                0 => drop(data.splice(at..at, PIECES[piece].iter().copied())),
                1 => drop(
                    data.splice(at..data.len().min(at + len / 20), PIECES[piece].iter().copied()),
                ),
                2 => drop(data.drain(at..end)),
                _ => {
                    let copy = data[at..end].to_vec();
                    let to = (at * 7 + len) % (data.len() + 1);
                    data.splice(to..to, copy);
                }
            }
        }
        data
    })
}

#[test]
fn a_message_of_many_headers_is_indexed_like_a_small_one() {
    let mut sample = Sample::request("OPTIONS");
    for number in 0..1000 {
        sample = sample.with(format!("X-{number}: v{number}"));
    }
    let message = sample.accepted();
    assert_eq!(message.header(Name::new(b"x-999")), Some(&b"v999"[..]));
    assert_eq!(message.lines().count(), 1007);
    checks::message(&sample.bytes());
    let endless = [&b"OPTIONS sip:a SIP/2.0\r\n"[..], &b"a:\r\n".repeat(5000)].concat();
    assert!(Message::parse(Bytes::from(endless)).is_err());
}
