//! From bytes to an index, in one pass over the head.

use crate::check::{Checks, Fields};
use crate::defect::{Defect, DefectKind, ParseError, ParseErrorKind};
use crate::index::{HeaderRef, Refs, Span};
use crate::lex;
use crate::names::{self, GARBLED, OTHER};

/// Start line and headers together may have this many bytes.
pub const HEAD_LEN_MAX: usize = 65_535;
/// A message may have this many header lines.
pub const HEADERS_MAX: usize = 4096;

/// The first line.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Start {
    Request {
        method: Span,
        uri: Span,
    },
    /// A status of 0 could not be read.
    Response {
        status: u16,
        reason: Span,
    },
}

/// What Content-Length says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum BodyLen {
    #[default]
    Absent,
    Is(u32),
    /// Twice, or no number: nobody knows where the body ends.
    Unknown,
}

/// Everything known about a message's head.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) start: Start,
    pub(crate) refs: Refs,
    /// Where the empty line begins, and where the body does.
    pub(crate) headers_end: u32,
    pub(crate) len: u32,
    pub(crate) fields: Fields,
}

impl Head {
    /// Nothing, for [`parse`] to fill: a head is large, and is made where it stays.
    pub(crate) fn new() -> Self {
        let start = Start::Response { status: 0, reason: Span::default() };
        Self { start, refs: Refs::new(), headers_end: 0, len: 0, fields: Fields::default() }
    }
}

/// What the caller of [`parse`] allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) head_len_max: usize,
    pub(crate) headers_max: usize,
}

/// What a message from outside may have.
pub(crate) const FROM_PEERS: Limits =
    Limits { head_len_max: HEAD_LEN_MAX, headers_max: HEADERS_MAX };

/// Returns how many bytes of line breaks stand before the start line
/// (RFC 3261 §7.5).
pub(crate) fn leading_breaks(bytes: &[u8]) -> usize {
    let mut at = 0;
    while bytes[at..].starts_with(b"\r\n") {
        at += 2;
    }
    at
}

/// Where a line ends: `end` before its CR LF, `next` after it.
struct Line {
    end: usize,
    next: usize,
    has_break: bool,
}

/// Finds the CR LF that ends the line at `at`; a CR or LF alone ends nothing and
/// its place is noted.
#[inline]
fn line(bytes: &[u8], at: usize, bare: &mut Option<usize>) -> Line {
    let mut from = at;
    while let Some(found) = memchr::memchr2(b'\r', b'\n', &bytes[from..]) {
        let end = from + found;
        if bytes[end..].starts_with(b"\r\n") {
            return Line { end, next: end + 2, has_break: true };
        }
        bare.get_or_insert(end);
        from = end + 1;
    }
    Line { end: bytes.len(), next: bytes.len(), has_break: false }
}

/// Reads the head of the message that `bytes` begin with, and lists what is
/// wrong with it. Bytes behind the head are not looked at. `head` comes empty.
pub(crate) fn parse(
    bytes: &[u8],
    limits: Limits,
    head: &mut Head,
) -> Result<Vec<Defect>, ParseError> {
    let error = |kind, offset| ParseError { kind, offset };
    if bytes.is_empty() {
        return Err(error(ParseErrorKind::Empty, 0));
    }
    let bytes = &bytes[..bytes.len().min(u32::MAX as usize)];
    let mut checks = Checks::new(&mut head.fields);
    let mut bare = None;
    let first = line(bytes, 0, &mut bare);
    if let Some(offset) = bare {
        return Err(error(ParseErrorKind::StartLine, offset));
    }
    if !first.has_break {
        return Err(error(ParseErrorKind::StartLine, first.end));
    }
    let start = start_line(bytes, first.end, &mut checks)
        .ok_or_else(|| error(ParseErrorKind::StartLine, 0))?;
    head.start = start;
    let (headers_end, len) = header_lines(bytes, first.next, limits, &mut head.refs, &mut checks)?;
    checks.finish(bytes, start, headers_end);
    let defects = checks.defects;
    #[expect(clippy::cast_possible_truncation, reason = "cut to 4 GB above")]
    {
        head.headers_end = headers_end as u32;
        head.len = len as u32;
    }
    Ok(defects)
}

/// Reads header lines from `at` up to the empty line; returns where that and
/// the body begin.
fn header_lines(
    bytes: &[u8],
    mut at: usize,
    limits: Limits,
    refs: &mut Refs,
    checks: &mut Checks<'_>,
) -> Result<(usize, usize), ParseError> {
    let mut spilled = Vec::new();
    let mut count = 0;
    let ends = loop {
        if limits.head_len_max < at {
            let offset = limits.head_len_max;
            return Err(ParseError { kind: ParseErrorKind::HeadTooLong, offset });
        }
        if bytes[at..].starts_with(b"\r\n") {
            break (at, at + 2);
        }
        if bytes.len() <= at {
            checks.defect(None, DefectKind::Unterminated, at);
            break (at, at);
        }
        if count == limits.headers_max {
            return Err(ParseError { kind: ParseErrorKind::TooManyHeaders, offset: at });
        }
        let mut bare = None;
        let mut end = line(bytes, at, &mut bare);
        while end.has_break && matches!(bytes.get(end.next), Some(b' ' | b'\t')) {
            end = line(bytes, end.next, &mut bare);
        }
        if let Some(offset) = bare {
            checks.defect(None, DefectKind::BareLineBreak, offset);
        }
        let header = header_line(bytes, at, end.end);
        checks.header(bytes, header);
        refs.push(header, &mut spilled);
        count += 1;
        at = end.next;
    };
    refs.finish(spilled);
    Ok(ends)
}

/// Splits a header line at its colon (RFC 3261 §7.3.1: white space may stand
/// on both sides of it).
#[expect(clippy::cast_possible_truncation, reason = "cut to 4 GB by the caller")]
fn header_line(bytes: &[u8], at: usize, end: usize) -> HeaderRef {
    let text = &bytes[at..end];
    let (id, value) = match names::usual(text) {
        Some((id, name_len)) => (id, &text[name_len + 1..]),
        None => split_name(text).unwrap_or((GARBLED, text)),
    };
    let value = if id == GARBLED { value } else { lex::trim(value) };
    HeaderRef { id, at: at as u32, value: Span::of(bytes, value) }
}

/// Returns the id of a line's name, and what stands behind its colon.
fn split_name(line: &[u8]) -> Option<(u8, &[u8])> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    let mut name = &line[..colon];
    while let [rest @ .., b' ' | b'\t'] = name {
        name = rest;
    }
    let id = names::classify(name);
    // What is known is a token.
    (id != OTHER || lex::is_token(name)).then_some((id, &line[colon + 1..]))
}

/// Reads the first line leniently and reports what is not exact. `None` when
/// the line is neither a request's nor a response's.
fn start_line(bytes: &[u8], end: usize, checks: &mut Checks<'_>) -> Option<Start> {
    let text = &bytes[..end];
    if text.get(..4).is_some_and(|proto| proto.eq_ignore_ascii_case(b"SIP/")) {
        return status_line(bytes, text, checks);
    }
    let at = text.len() - lex::trim_start(text).len();
    let trimmed = lex::trim(text);
    let mut is_exact = trimmed.len() == text.len();
    let method_end = memchr::memchr2(b' ', b'\t', trimmed)?;
    let version_at = memchr::memrchr2(b' ', b'\t', trimmed)? + 1;
    let (method, version) = (&trimmed[..method_end], &trimmed[version_at..]);
    let uri = if method_end < version_at { &trimmed[method_end..version_at] } else { &[][..] };
    let uri_trimmed = lex::trim(uri);
    is_exact &= uri.len() == uri_trimmed.len() + 2 && lex::is_token(method);
    is_exact &= trimmed[method_end] == b' ' && trimmed[version_at - 1] == b' ';
    if check_version(version, at + version_at, checks).is_none() {
        // `SIP/2` is no version, and still somebody who speaks SIP.
        version.get(..4).filter(|name| name.eq_ignore_ascii_case(b"SIP/"))?;
        is_exact = false;
    }
    if !is_exact {
        checks.defect(None, DefectKind::StartLine, at + method_end);
    }
    // An empty place still has a place.
    let uri = if uri_trimmed.is_empty() { &trimmed[method_end..method_end] } else { uri_trimmed };
    Some(Start::Request { method: Span::of(bytes, method), uri: Span::of(bytes, uri) })
}

fn status_line(bytes: &[u8], text: &[u8], checks: &mut Checks<'_>) -> Option<Start> {
    let (version, rest) = lex::split_while(text, |b| b != b' ' && b != b'\t');
    check_version(version, 0, checks)?;
    let code = lex::trim_start(rest);
    let code_at = text.len() - code.len();
    let (digits, rest) = lex::split_while(code, |b| b != b' ' && b != b'\t');
    let status = lex::number(digits)
        .filter(|status| digits.len() == 3 && (100..700).contains(status))
        .and_then(|status| u16::try_from(status).ok());
    if status.is_none() {
        checks.defect(None, DefectKind::StatusCode, code_at);
    } else if code_at != version.len() + 1 || text[version.len()] != b' ' || rest.starts_with(b"\t")
    {
        checks.defect(None, DefectKind::StartLine, version.len());
    }
    // RFC 3261 §7.2 wants a space even before an empty phrase; without one
    // nothing is in doubt.
    let reason = rest.get(1..).unwrap_or_default();
    let reason = if reason.is_empty() { &bytes[text.len()..text.len()] } else { reason };
    Some(Start::Response { status: status.unwrap_or(0), reason: Span::of(bytes, reason) })
}

/// `None` when this is no SIP version at all.
fn check_version(version: &[u8], at: usize, checks: &mut Checks<'_>) -> Option<()> {
    if version == b"SIP/2.0" {
        return Some(());
    }
    let (name, number) = version.split_at_checked(4)?;
    let dot = memchr::memchr(b'.', number)?;
    let is_digits = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    if !name.eq_ignore_ascii_case(b"SIP/")
        || !is_digits(&number[..dot])
        || !is_digits(&number[dot + 1..])
    {
        return None;
    }
    if number != b"2.0" {
        checks.defect(None, DefectKind::Version, at);
    }
    Some(())
}
