//! Shows what `sip-core` reads in SIP messages, and why it refuses one.
//!
//! `sipdump [--stream] [FILE…]` reads files, or standard input, with one message
//! each, or with `--stream` as many as follow each other, and prints one JSON
//! object per message.

use std::error::Error;
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::Serialize;
use sha2::{Digest, Sha256};
use sip_core::framer::{Config, Framer, Output};
use sip_core::{Defect, Edit, HEAD_LEN_MAX, HEADERS_MAX, Message, Method, Name, Uri};

fn main() -> Result<(), Box<dyn Error>> {
    let (options, files): (Vec<_>, Vec<_>) =
        std::env::args().skip(1).partition(|arg| arg.starts_with("--"));
    let is_stream = match &options[..] {
        [] => false,
        [option] if option == "--stream" => true,
        _ => return Err("usage: sipdump [--stream] [FILE…]".into()),
    };
    let mut out = io::stdout().lock();
    let mut show = |input: Vec<u8>| -> Result<(), Box<dyn Error>> {
        let dumps = if is_stream { dump_stream(&input) } else { vec![dump_datagram(input)] };
        for dump in dumps {
            serde_json::to_writer(&mut out, &dump)?;
            writeln!(out)?;
        }
        Ok(())
    };
    if files.is_empty() {
        let mut input = Vec::new();
        io::stdin().read_to_end(&mut input)?;
        show(input)?;
    }
    for file in files {
        show(std::fs::read(&file).map_err(|error| format!("{file}: {error}"))?)?;
    }
    Ok(())
}

/// Everything known of one message; `null` where there is nothing.
#[derive(Default, Serialize)]
struct Dump {
    kind: Option<&'static str>,
    method: Option<String>,
    status: Option<u16>,
    reason: Option<String>,
    request_uri: Option<String>,
    ruri_scheme: Option<String>,
    ruri_user: Option<String>,
    ruri_host: Option<String>,
    ruri_port: Option<u16>,
    from_uri: Option<String>,
    from_display: Option<String>,
    from_tag: Option<String>,
    to_uri: Option<String>,
    to_tag: Option<String>,
    call_id: Option<String>,
    cseq_number: Option<u32>,
    cseq_method: Option<String>,
    via_count: Option<usize>,
    via_branch: Option<String>,
    via_sent_by: Option<String>,
    via_received: Option<String>,
    via_rport: Option<u16>,
    contact_count: Option<usize>,
    contact_uris: Option<Vec<String>>,
    route_count: Option<usize>,
    max_forwards: Option<u32>,
    expires: Option<u32>,
    content_length: Option<u32>,
    body_len: Option<usize>,
    body_sha256: Option<String>,
    roundtrip: Option<bool>,
    verdict: String,
    defects: Vec<DefectDump>,
}

#[derive(Serialize)]
struct DefectDump {
    header: Option<String>,
    kind: String,
    offset: usize,
}

fn dump_datagram(input: Vec<u8>) -> Dump {
    let input = Bytes::from(input);
    match Message::parse(input.clone()) {
        Ok(message) => dump(&message, &input),
        Err(error) => unreadable(error.kind.to_string(), error.offset),
    }
}

fn dump_stream(input: &[u8]) -> Vec<Dump> {
    // All of a file is there at once, so no time passes.
    #[expect(clippy::disallowed_methods, reason = "an instant can be had no other way")]
    let now = Instant::now();
    let mut framer = Framer::new(Config {
        head_len_max: HEAD_LEN_MAX,
        headers_max: HEADERS_MAX,
        body_len_max: input.len(),
        message_time_max: Duration::from_secs(1),
    });
    framer.handle_input(now, input);
    let mut at = 0;
    let mut dumps = Vec::new();
    while let Some(output) = framer.poll_output() {
        match output {
            Output::Message(message) => {
                dumps.push(dump(&message, &input[at..]));
                at += breaks_len(&input[at..]) + message.bytes().len();
            }
            Output::Ping | Output::Pong => {}
            Output::Failed(error) => dumps.push(unreadable(error.to_string(), at)),
        }
    }
    if framer.poll_timeout().is_some() {
        dumps.push(unreadable("the stream ends within a message".to_owned(), at));
    }
    dumps
}

fn unreadable(kind: String, offset: usize) -> Dump {
    let defects = vec![DefectDump { header: None, kind, offset }];
    Dump { verdict: "discard".to_owned(), defects, ..Dump::default() }
}

/// `input` is what the message was read from, and what may follow it.
fn dump(message: &Message, input: &[u8]) -> Dump {
    let mut dump = Dump {
        kind: Some(if message.is_request() { "request" } else { "response" }),
        status: message.status(),
        call_id: message.header(Name::CALL_ID).map(text),
        cseq_number: message.cseq().map(|cseq| cseq.number),
        cseq_method: message.cseq().map(|cseq| method(cseq.method)),
        max_forwards: message.max_forwards(),
        expires: message.expires(),
        content_length: message.content_length(),
        body_len: Some(message.body().len()),
        body_sha256: Some(hex(&Sha256::digest(message.body()))),
        roundtrip: Some(input[breaks_len(input)..].starts_with(&printed(message))),
        verdict: message.verdict().to_string(),
        defects: message.defects().iter().map(defect).collect(),
        ..Dump::default()
    };
    if message.is_request() {
        dump.method = Some(method(message.method()));
        dump.request_uri = message.request_uri().map(text);
        dump_request_uri(&mut dump, message);
    } else {
        dump.reason = Some(text(message.reason()));
    }
    dump_parties(&mut dump, message);
    dump_lists(&mut dump, message);
    dump
}

fn dump_request_uri(dump: &mut Dump, message: &Message) {
    let Some(Ok(uri)) = message.request_uri().map(Uri::parse) else { return };
    dump.ruri_scheme = Some(text(uri.scheme_text()));
    dump.ruri_user = uri.user_unescaped().map(|user| text(&user));
    dump.ruri_host = uri.host().map(|host| text(host.name()));
    dump.ruri_port = uri.port();
}

fn dump_parties(dump: &mut Dump, message: &Message) {
    if let Some(from) = message.from() {
        dump.from_uri = Some(text(from.uri()));
        dump.from_display = from.display().map(|display| text(&display));
    }
    dump.from_tag = message.from_tag().map(text);
    dump.to_uri = message.to().map(|to| text(to.uri()));
    dump.to_tag = message.to_tag().map(text);
}

fn dump_lists(dump: &mut Dump, message: &Message) {
    dump.via_count = Some(message.vias().count());
    if let Some(via) = message.via() {
        dump.via_branch = via.branch().map(text);
        let host = text(via.host().as_bytes());
        dump.via_sent_by = Some(match via.port() {
            Some(port) => format!("{host}:{port}"),
            None => host,
        });
        dump.via_received = via.received().map(|ip| ip.to_string());
        dump.via_rport = via.rport().flatten();
    }
    let contacts: Vec<_> = message.contacts().map(|contact| text(contact.uri())).collect();
    dump.contact_count = Some(contacts.len());
    dump.contact_uris = Some(contacts);
    dump.route_count = Some(message.routes().count());
}

/// Prints the message from its parts.
fn printed(message: &Message) -> Vec<u8> {
    let untouched = Edit::new(message).finish();
    let body_at = untouched.len() - message.body().len();
    let mut out = Vec::with_capacity(untouched.len());
    let headers_at = message.lines().next().map_or(body_at, |line| line.offset());
    out.extend_from_slice(&untouched[..headers_at]);
    message.lines().for_each(|line| out.extend_from_slice(line.as_bytes()));
    out.extend_from_slice(&untouched[out.len()..body_at]);
    out.extend_from_slice(message.body());
    out
}

/// Line breaks before a message are no part of it.
fn breaks_len(input: &[u8]) -> usize {
    input.chunks(2).take_while(|pair| pair == b"\r\n").count() * 2
}

fn defect(defect: &Defect) -> DefectDump {
    DefectDump {
        header: defect.header.map(|name| name.to_string()),
        kind: defect.kind.to_string(),
        offset: defect.offset,
    }
}

fn method(method: Method<'_>) -> String {
    text(method.as_bytes())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
