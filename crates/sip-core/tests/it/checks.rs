//! What must hold for any bytes whatever. The fuzz targets run the same
//! functions on bytes they invent.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sip_core::digest::{
    AuthenticationInfo, Challenge, Client, Credentials, Password, Server, ServerConfig,
};
use sip_core::framer::{Config, Framer, Output};
use sip_core::sdp::{self, Direction, Sdp, check_answer, check_next};
use sip_core::{
    DefectKind, Edit, HEAD_LEN_MAX, HEADERS_MAX, Message, Method, Name, Uri, Verdict, Writer,
};

/// One datagram: printing is the identity, edits touch what they say, answers
/// can be made and are right.
pub(crate) fn message(data: &[u8]) {
    let Ok(message) = Message::parse(Bytes::copy_from_slice(data)) else { return };
    read_all(&message);
    assert_eq!(message.bytes(), &printed(&message), "the parts make up the whole");
    assert_eq!(Edit::new(&message).finish(), message.bytes(), "no edit changes nothing");
    let at = data.len() - skip_breaks(data).len();
    assert!(data[at..].starts_with(message.bytes()), "the bytes are those that came");
    let again = Message::parse(message.bytes().clone()).expect("what was read can be read");
    assert_eq!(again.bytes(), message.bytes());
    assert_eq!((again.verdict(), again.defects()), (message.verdict(), message.defects()));
    if message.verdict() == Verdict::Ok {
        edits(&message);
    }
    if message.is_request() && message.verdict() != Verdict::Discard {
        let answer = Writer::answer(&message, 400, b"Bad Request", Some(b"tag")).finish();
        let is_sound = |name| message.defects().iter().all(|defect| defect.header != Some(name));
        if is_sound(Name::VIA) && is_sound(Name::CALL_ID) && is_sound(Name::CSEQ) {
            assert_eq!(answer.branch(), message.branch(), "the answer finds its way back");
            assert_eq!(answer.call_id(), message.call_id());
            assert_eq!(answer.cseq(), message.cseq());
        }
    }
}

fn edits(message: &Message) {
    let pushed = Edit::new(message).push_via("SIP/2.0/UDP x.example.com;branch=z9hG4bKx").finish();
    let pushed = Message::parse(pushed).expect("still a message");
    assert_eq!(pushed.branch(), Some(&b"z9hG4bKx"[..]));
    assert_eq!(pushed.vias().count(), message.vias().count() + 1);
    assert_eq!(Edit::new(&pushed).pop_via().finish(), message.bytes(), "pop undoes push");

    let stamped = Edit::new(message).via_received(Ipv4Addr::LOCALHOST.into(), 5060).finish();
    let stamped = Message::parse(stamped).expect("still a message");
    assert_eq!(stamped.verdict(), Verdict::Ok, "{:?}", stamped.defects());
    let via = stamped.via().expect("an accepted message has a Via");
    let is_told = via.received() == Some(Ipv4Addr::LOCALHOST.into());
    assert!(is_told || via.host().ip() == Some(Ipv4Addr::LOCALHOST.into()));
    assert_eq!(stamped.branch(), message.branch());

    let changed = Edit::new(message)
        .set_request_uri(b"sip:new@example.com")
        .set(Name::MAX_FORWARDS, "9")
        .set_body("body")
        .finish();
    let changed = Message::parse(changed).expect("still a message");
    assert_eq!(changed.verdict(), Verdict::Ok, "{:?}", changed.defects());
    assert_eq!((changed.max_forwards(), changed.body()), (Some(9), &b"body"[..]));
    assert_eq!(changed.content_length(), Some(4));
}

/// Calls every getter.
fn read_all(message: &Message) {
    let _ = (message.method(), message.status(), message.reason(), message.request_uri());
    let _ = (message.cseq(), message.from(), message.to(), message.contact());
    let _ = (message.expires(), message.retry_after(), message.min_se(), message.max_forwards());
    let _ = (message.session_expires(), message.replaces(), message.content_type());
    let _ = (message.reasons().count(), message.lists(Name::SUPPORTED, b"timer"));
    for via in message.vias() {
        let _ = (via.branch(), via.received(), via.rport(), via.host().ip());
    }
    for address in message.contacts().chain(message.routes()).chain(message.record_routes()) {
        let _ = (address.display(), address.expires(), address.params().into_iter().count());
        uri(address.uri());
    }
    for line in message.lines() {
        assert!(line.as_bytes().ends_with(b"\r\n") || message.verdict() != Verdict::Ok);
        if let Some(name) = line.name() {
            assert!(message.headers(name).any(|value| value == line.value()));
        }
    }
}

fn printed(message: &Message) -> Vec<u8> {
    let bytes = message.bytes();
    let body_at = bytes.len() - message.body().len();
    let headers_at = message.lines().next().map_or(body_at, |line| line.offset());
    let mut out = bytes[..headers_at].to_vec();
    message.lines().for_each(|line| out.extend_from_slice(line.as_bytes()));
    out.extend_from_slice(&bytes[out.len()..body_at]);
    out.extend_from_slice(message.body());
    out
}

fn skip_breaks(mut data: &[u8]) -> &[u8] {
    while let Some(rest) = data.strip_prefix(b"\r\n") {
        data = rest;
    }
    data
}

/// A stream, cut into parts of a length that its first byte tells: the framer
/// finds the messages that the parser finds.
pub(crate) fn stream(data: &[u8]) {
    let Some((&size, data)) = data.split_first() else { return };
    let (outputs, is_waiting) = frame(data, usize::from(size).max(1));
    for output in &outputs {
        let Output::Message(message) = output else { continue };
        let again = Message::parse(message.bytes().clone()).expect("what was framed can be read");
        assert_eq!(again.bytes(), message.bytes(), "framer and parser find one end");
        if message.content_length().is_some() && message.verdict() != Verdict::Answer(513) {
            assert_eq!((again.verdict(), again.defects()), (message.verdict(), message.defects()));
        }
    }
    let (whole, _) = frame(data, data.len().max(1));
    // What came in one piece is asked and answered once.
    let said = |outputs: &[Output]| {
        let mut said: Vec<_> =
            outputs.iter().filter(|output| **output != Output::Pong).cloned().collect();
        said.dedup_by(|next, last| *next == Output::Ping && *last == Output::Ping);
        said
    };
    assert_eq!(said(&outputs), said(&whole), "cuts change nothing");
    let failed = outputs.iter().position(|output| matches!(output, Output::Failed(_)));
    assert!(failed.is_none_or(|at| at + 1 == outputs.len() && !is_waiting), "failing is the end");

    let Ok(message) = Message::parse(Bytes::copy_from_slice(data)) else { return };
    let is_whole = message.content_length().is_some()
        && !message.defects().iter().any(|defect| {
            matches!(defect.kind, DefectKind::BodyTooShort | DefectKind::Unterminated)
        });
    if is_whole {
        let first = outputs.iter().find(|output| matches!(output, Output::Message(_)));
        assert_eq!(first, Some(&Output::Message(message)), "the datagram's message comes first");
    }
}

fn frame(data: &[u8], size: usize) -> (Vec<Output>, bool) {
    #[expect(clippy::disallowed_methods, reason = "an instant can be had no other way")]
    let now = Instant::now();
    let mut framer = Framer::new(Config {
        head_len_max: HEAD_LEN_MAX,
        headers_max: HEADERS_MAX,
        body_len_max: usize::MAX / 2,
        message_time_max: Duration::from_secs(1),
    });
    for part in data.chunks(size) {
        framer.handle_input(now, part);
    }
    (std::iter::from_fn(|| framer.poll_output()).collect(), framer.poll_timeout().is_some())
}

/// A URI: its parts stand in it, and it equals itself.
pub(crate) fn uri(data: &[u8]) {
    let Ok(uri) = Uri::parse(data) else { return };
    assert_eq!(uri.as_bytes(), data);
    assert!(uri.is_equivalent(&uri) || has_twins(&uri), "{}", data.escape_ascii());
    let _ = (uri.user_unescaped(), uri.header_pairs().count(), uri.host().map(|host| host.ip()));
    for param in uri.params() {
        assert!(uri.param(param.name).is_some());
    }
}

/// A URI with two parameters of one name but different values equals none.
fn has_twins(uri: &Uri<'_>) -> bool {
    let unescaped = |name| sip_core::uri::unescape(name).to_ascii_lowercase();
    let mut names: Vec<_> = uri.params().into_iter().map(|param| unescaped(param.name)).collect();
    names.sort();
    names.windows(2).any(|pair| pair[0] == pair[1])
}

/// A session description: no edit changes nothing, and an edited one is one.
pub(crate) fn description(data: &[u8]) {
    let Ok(parsed) = Sdp::parse(data) else { return };
    assert_eq!(sdp::Edit::new(&parsed).finish(), data);
    let _ = check_answer(&parsed, &parsed);
    assert_eq!(check_next(&parsed, &parsed), Ok(()));
    for media in parsed.media() {
        let _ = (media.direction(), media.is_hold(), media.rtcp(), media.connection());
        for payload_type in media.payload_types() {
            let _ = (media.rtpmap(payload_type), media.fmtp(payload_type));
        }
    }
    if data.len() > 4096 {
        // One more line could be one too many.
        return;
    }
    let mut edit = sdp::Edit::new(&parsed);
    edit.next_version();
    edit.all_connections(Ipv4Addr::LOCALHOST.into());
    edit.remove_all_attributes("candidate");
    for index in 0..parsed.media_len() {
        edit.port(index, 4000);
        edit.rtcp(index, Some((4001, None)));
        edit.direction(index, Direction::Inactive);
        edit.narrow(index, &[0, 8, 101]);
    }
    let edited = edit.finish();
    let again = Sdp::parse(&edited).expect("still a description");
    assert_eq!(again.media_len(), parsed.media_len());
    assert_eq!(again.origin().session_id, parsed.origin().session_id);
    assert_eq!(check_next(&parsed, &again), Ok(()), "an edited description follows");
    for (before, after) in parsed.media().zip(again.media()) {
        assert_eq!((after.kind(), after.proto()), (before.kind(), before.proto()));
        assert_eq!((after.port(), after.direction()), (4000, Direction::Inactive));
        assert_eq!(after.rtcp(), Some((4001, None)));
        assert_eq!(after.connection().and_then(|c| c.ip()), Some(Ipv4Addr::LOCALHOST.into()));
    }
}

/// A header of digest authentication: a challenge that can be read can be
/// answered, the answer says what was asked, and no bytes are let in.
pub(crate) fn digest(data: &[u8]) {
    let _ = AuthenticationInfo::parse(data);
    let request = Writer::request(Method::Register, b"sip:example.com")
        .header(Name::VIA, "SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1")
        .header(Name::FROM, "<sip:ann@example.com>;tag=1")
        .header(Name::TO, "<sip:ann@example.com>")
        .header(Name::CALL_ID, "1")
        .header(Name::CSEQ, "1 REGISTER")
        .header(Name::AUTHORIZATION, data)
        .finish();
    if let Ok(credentials) = Credentials::parse(data) {
        let server = Server::new(ServerConfig::new(&credentials.realm), [1; 16]);
        let password = Password::new("nobody knows it");
        assert!(server.verify(Duration::MAX, b"", &request, &credentials, &password).is_err());
    }
    let refusal = Writer::answer(&request, 401, b"Unauthorized", Some(b"tag"))
        .header(Name::WWW_AUTHENTICATE, data)
        .finish();
    let written = refusal.header(Name::WWW_AUTHENTICATE).unwrap_or_default();
    let mut client = Client::new("ann \"a\\", Password::new("secret"), 1);
    if client.handle_challenge(&refusal).is_err() {
        return;
    }
    let challenge = Challenge::parse(written).expect("the client could read it");
    let lines = client.authorize(&request);
    let [(name, line)] = &lines[..] else { panic!("one realm asked") };
    assert_eq!(*name, Name::AUTHORIZATION);
    let answer = Credentials::parse(line).expect("a client writes what can be read");
    assert_eq!(&*answer.username, b"ann \"a\\");
    assert_eq!((answer.realm, answer.nonce), (challenge.realm, challenge.nonce));
    assert_eq!((answer.opaque, answer.algorithm), (challenge.opaque, challenge.algorithm));
    assert_eq!(answer.qop.is_some(), challenge.qops.is_some());
}
