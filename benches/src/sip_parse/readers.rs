//! One function per parser and kind of work. Each reads what all others read.

use std::hint::black_box;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use ezk_sip_types::header::typed::{CSeq, CallID, FromTo, Via};
use ezk_sip_types::msg::{Line, MessageLine, PullParser};
use ezk_sip_types::parse::Parse as _;
use ezk_sip_types::print::{AppendCtx as _, PrintCtx};
use ezk_sip_types::uri::SipUri;
use ezk_sip_types::{Headers, Name};
use rsip::prelude::{HeadersExt as _, ToTypedHeader as _, UntypedHeader as _};
use rsipstack::sip::prelude::{HeadersExt as _, ToTypedHeader as _};
use sip_core::{Edit, Message};

/// Something that reads or prints one message again and again.
pub(super) struct Reader {
    pub(super) name: &'static str,
    /// Does what is not measured; tells nothing where the message does not fit.
    pub(super) ready: fn(&Bytes) -> Option<Work>,
}

/// One reading or printing; tells how many bytes it printed.
pub(super) type Work = Box<dyn FnMut() -> usize>;

pub(super) const SCAN: &str = "line scan";
pub(super) const OURS: &str = "sip-core";

pub(super) const PARSERS: [Reader; 5] = [
    Reader { name: SCAN, ready: |text| again(text, scan) },
    Reader { name: OURS, ready: |text| again(text, |text| read(ours(text, drop_fields))) },
    Reader { name: "rsip", ready: |text| again(text, |text| read(rsip(text, drop_fields))) },
    Reader {
        name: "rsipstack",
        ready: |text| again(text, |text| read(rsipstack(text, drop_fields))),
    },
    Reader {
        name: "ezk-sip-types",
        ready: |text| again(text, |text| read(ezk(text, drop_fields))),
    },
];

/// Parse, push a Via, replace the Request-URI, print.
pub(super) const FORWARDERS: [Reader; 4] = [
    Reader { name: OURS, ready: |text| again(text, |text| written(forward_ours(text))) },
    Reader { name: "rsip", ready: |text| again(text, |text| written(forward_rsip(text))) },
    Reader {
        name: "rsipstack",
        ready: |text| again(text, |text| written(forward_rsipstack(text))),
    },
    Reader { name: "ezk-sip-types", ready: |text| again(text, |text| written(forward_ezk(text))) },
];

/// Push a Via, replace the Request-URI, print: of a message that is parsed already.
pub(super) const PRINTERS: [Reader; 3] = [
    Reader { name: OURS, ready: print_ours },
    Reader { name: "rsip", ready: print_rsip },
    Reader { name: "rsipstack", ready: print_rsipstack },
];

/// What a transaction is found by.
#[derive(Clone, Copy)]
struct Fields<'a> {
    branch: &'a [u8],
    from_tag: &'a [u8],
    to_tag: &'a [u8],
    call_id: &'a [u8],
    cseq: u32,
}

type Owned = [Vec<u8>; 5];

const VIA: &str = "SIP/2.0/UDP gw.example.com:5060;branch=z9hG4bKabcdef0123456789";
const TARGET: &str = "sip:bob@192.0.2.4:5060";

/// Makes sure that nobody is quick by reading or writing something else.
pub(super) fn check(text: &Bytes) -> anyhow::Result<()> {
    let fields = ours(text, keep).context("sip-core cannot read it")?;
    for (name, theirs) in [
        ("rsip", rsip(text, keep)),
        ("rsipstack", rsipstack(text, keep)),
        ("ezk-sip-types", ezk(text, keep)),
    ] {
        ensure!(theirs.as_ref() == Some(&fields), "{name} reads something else");
    }
    Ok(())
}

/// Makes sure that all forward the same request.
pub(super) fn check_forwarding(text: &Bytes) -> anyhow::Result<()> {
    for (name, sent) in [
        ("sip-core", forward_ours(text)),
        ("rsip", forward_rsip(text)),
        ("rsipstack", forward_rsipstack(text)),
        ("ezk-sip-types", forward_ezk(text)),
    ] {
        let sent = sent.with_context(|| format!("{name} cannot forward"))?;
        let sent = Message::parse(sent).with_context(|| format!("{name} writes no message"))?;
        ensure!(sent.request_uri() == Some(TARGET.as_bytes()), "{name} keeps the Request-URI");
        ensure!(sent.vias().count() == 3, "{name} pushes no Via");
    }
    for (forwarder, printer) in FORWARDERS.iter().zip(&PRINTERS) {
        // The second time, so that a printer that keeps its message has to leave it as it was.
        let second = |reader: &Reader| (reader.ready)(text).map(|mut work| (work(), work()).1);
        ensure!(second(printer) == second(forwarder), "{} prints something else", printer.name);
    }
    Ok(())
}

fn again(text: &Bytes, mut work: impl FnMut(&Bytes) -> usize + 'static) -> Option<Work> {
    let text = text.clone();
    Some(Box::new(move || work(black_box(&text))))
}

fn read(result: Option<()>) -> usize {
    black_box(result);
    0
}

fn written(result: Option<Bytes>) -> usize {
    black_box(result).map_or(0, |bytes| bytes.len())
}

fn drop_fields(fields: Fields<'_>) {
    let Fields { branch, from_tag, to_tag, call_id, cseq } = fields;
    black_box((branch, from_tag, to_tag, call_id, cseq));
}

fn keep(fields: Fields<'_>) -> Owned {
    let Fields { branch, from_tag, to_tag, call_id, cseq } = fields;
    let number = cseq.to_string().into_bytes();
    [branch.to_vec(), from_tag.to_vec(), to_tag.to_vec(), call_id.to_vec(), number]
}

fn scan(text: &Bytes) -> usize {
    let lines = memchr::memchr_iter(b'\n', text);
    black_box(lines.fold(0, |last, at| black_box(at - last)));
    0
}

fn ours<T>(text: &Bytes, see: impl FnOnce(Fields<'_>) -> T) -> Option<T> {
    let message = Message::parse(text.clone()).ok()?;
    let cseq = message.cseq()?;
    // The rest of a transaction's key.
    black_box((message.sent_by()?, cseq.method));
    Some(see(Fields {
        branch: message.branch()?,
        from_tag: message.from_tag()?,
        to_tag: message.to_tag().unwrap_or_default(),
        call_id: message.call_id(),
        cseq: cseq.number,
    }))
}

fn rsip<T>(text: &Bytes, see: impl FnOnce(Fields<'_>) -> T) -> Option<T> {
    let message = rsip::SipMessage::try_from(&text[..]).ok()?;
    let via = message.via_header().ok()?.typed().ok()?;
    black_box(via.uri.host());
    let from = message.from_header().ok()?.typed().ok()?;
    let to = message.to_header().ok()?.typed().ok()?;
    let cseq = message.cseq_header().ok()?.typed().ok()?;
    black_box(cseq.method);
    Some(see(Fields {
        branch: via.branch()?.value().as_bytes(),
        from_tag: from.tag()?.value().as_bytes(),
        to_tag: to.tag().map(|tag| tag.value().as_bytes()).unwrap_or_default(),
        call_id: message.call_id_header().ok()?.value().as_bytes(),
        cseq: cseq.seq,
    }))
}

fn rsipstack<T>(text: &Bytes, see: impl FnOnce(Fields<'_>) -> T) -> Option<T> {
    let message = rsipstack::sip::SipMessage::try_from(&text[..]).ok()?;
    let via = message.via_header().ok()?.typed().ok()?;
    let from = message.from_header().ok()?.typed().ok()?;
    let to = message.to_header().ok()?.typed().ok()?;
    let cseq = message.cseq_header().ok()?.typed().ok()?;
    black_box((&via.uri.host_with_port, &cseq.method));
    Some(see(Fields {
        branch: via.branch()?.value().as_bytes(),
        from_tag: from.tag()?.value().as_bytes(),
        to_tag: to.tag().map(|tag| tag.value().as_bytes()).unwrap_or_default(),
        call_id: message.call_id_header().ok()?.value().as_bytes(),
        cseq: cseq.seq,
    }))
}

/// Changes the message that it keeps, as [`print_rsip`] does.
fn print_rsipstack(text: &Bytes) -> Option<Work> {
    let mut request = rsipstack::sip::Request::try_from(&text[..]).ok()?;
    Some(Box::new(move || {
        let Ok(uri) = rsipstack::sip::Uri::try_from(TARGET) else { return 0 };
        request.uri = uri;
        request.headers.push_front(rsipstack::sip::Header::Via(VIA.into()));
        let sent = black_box(request.to_bytes()).len();
        request.headers.remove_first(|header| matches!(header, rsipstack::sip::Header::Via(_)));
        sent
    }))
}

/// Reads a message as this crate's user, ezk-sip-core, does.
fn ezk_message(text: &Bytes) -> Option<(MessageLine, Headers, usize)> {
    let mut lines = PullParser::new(text, 0);
    let first = std::str::from_utf8(lines.next()?.ok()?).ok()?;
    let (_, first) = MessageLine::parse(text)(first).ok()?;
    let mut headers = Headers::with_capacity(16);
    for line in &mut lines {
        let (_, line) = Line::parse(text, std::str::from_utf8(line.ok()?).ok()?).ok()?;
        headers.insert(line.name, line.value);
    }
    Some((first, headers, lines.head_end()))
}

fn ezk<T>(text: &Bytes, see: impl FnOnce(Fields<'_>) -> T) -> Option<T> {
    let (first, headers, _) = ezk_message(text)?;
    black_box(&first);
    let via: Via = headers.get_named().ok()?;
    black_box(&via.sent_by);
    let from: FromTo = headers.get(Name::FROM).ok()?;
    let to: FromTo = headers.get(Name::TO).ok()?;
    let call_id: CallID = headers.get_named().ok()?;
    let cseq: CSeq = headers.get_named().ok()?;
    Some(see(Fields {
        branch: via.params.get_val("branch")?.as_bytes(),
        from_tag: from.tag.as_ref()?.as_bytes(),
        to_tag: to.tag.as_ref().map(|tag| tag.as_bytes()).unwrap_or_default(),
        call_id: call_id.0.as_bytes(),
        cseq: cseq.cseq,
    }))
}

fn forward_ours(text: &Bytes) -> Option<Bytes> {
    let message = Message::parse(text.clone()).ok()?;
    Some(Edit::new(&message).set_request_uri(TARGET.as_bytes()).push_via(VIA).finish())
}

/// Prints into memory that it keeps, as a sender does.
fn print_ours(text: &Bytes) -> Option<Work> {
    let message = Message::parse(text.clone()).ok()?;
    let mut sent = Vec::new();
    Some(Box::new(move || {
        let edit = Edit::new_in(black_box(&message), std::mem::take(&mut sent));
        sent = edit.set_request_uri(TARGET.as_bytes()).push_via(VIA).finish_vec();
        black_box(&sent).len()
    }))
}

fn forward_rsip(text: &Bytes) -> Option<Bytes> {
    let mut request = rsip::Request::try_from(&text[..]).ok()?;
    request.uri = rsip::Uri::try_from(TARGET).ok()?;
    let mut headers: Vec<_> = vec![rsip::Header::Via(VIA.into())];
    headers.extend(request.headers);
    request.headers = headers.into();
    Some(request.into())
}

/// Changes the message that it keeps and takes the Via out again, so that nothing is copied but what is printed.
fn print_rsip(text: &Bytes) -> Option<Work> {
    let mut request = rsip::Request::try_from(&text[..]).ok()?;
    Some(Box::new(move || {
        let Ok(uri) = rsip::Uri::try_from(TARGET) else { return 0 };
        request.uri = uri;
        let mut headers: Vec<_> = std::mem::take(&mut request.headers).into_iter().collect();
        headers.insert(0, rsip::Header::Via(VIA.into()));
        request.headers = headers.into();
        let sent = black_box(request.to_string()).len();
        let mut headers: Vec<_> = std::mem::take(&mut request.headers).into_iter().collect();
        headers.remove(0);
        request.headers = headers.into();
        sent
    }))
}

fn forward_rsipstack(text: &Bytes) -> Option<Bytes> {
    let mut request = rsipstack::sip::Request::try_from(&text[..]).ok()?;
    request.uri = rsipstack::sip::Uri::try_from(TARGET).ok()?;
    request.headers.push_front(rsipstack::sip::Header::Via(VIA.into()));
    Some(request.to_bytes().into())
}

fn forward_ezk(text: &Bytes) -> Option<Bytes> {
    let (mut first, mut headers, head_end) = ezk_message(text)?;
    let MessageLine::Request(line) = &mut first else { return None };
    line.uri = SipUri::parse_str(TARGET).ok()?;
    headers.insert_front(Name::VIA, VIA);
    let mut out = format!("{}\r\n{headers}\r\n", first.print_ctx(PrintCtx::default())).into_bytes();
    out.extend_from_slice(&text[head_end..]);
    Some(out.into())
}
