//! One message: its bytes, and where things stand in them.

use std::fmt;
use std::sync::Arc;

use bytes::{Buf, Bytes};

use crate::check::{self, Fields};
use crate::defect::{Defect, DefectKind, ParseError, Verdict};
use crate::fields::CSeq;
use crate::index::Span;
use crate::lex::{self, Elements};
use crate::line::Line;
use crate::name_addr::NameAddr;
use crate::names::{Name, OTHER};
use crate::parse::{self, BodyLen, FROM_PEERS, Head, Limits, Start};
use crate::uri::Host;
use crate::via::Via;
use crate::{Method, lex::trim_end};

/// A SIP message as it came in or will go out: the bytes, and an index of them.
///
/// Nothing is lost or changed: [`Message::bytes`] are the bytes that were
/// parsed. Parsing an ordinary message (up to 32 header lines, nothing wrong)
/// takes no heap memory, and a clone shares the bytes.
///
/// A message with defects can still be read and answered; look at
/// [`Message::verdict`] before acting on one from outside. Values are borrowed
/// as they stand, so one that was folded over lines still has its line breaks:
/// typed views skip them, [`crate::unfold`] removes them.
#[derive(Clone)]
pub struct Message {
    bytes: Bytes,
    head: Head,
    defects: Option<Arc<[Defect]>>,
    verdict: Verdict,
}

impl Message {
    /// Reads a datagram: one message. Line breaks before it are skipped, and
    /// bytes behind the body that Content-Length announces are cut off
    /// (RFC 3261 §7.5, §18.3); without Content-Length all the rest is body.
    ///
    /// # Errors
    /// There is no start line, or the head passes [`crate::HEAD_LEN_MAX`] or
    /// [`crate::HEADERS_MAX`]. Everything else is a defect of the message.
    pub fn parse(bytes: Bytes) -> Result<Self, ParseError> {
        let skipped = parse::leading_breaks(&bytes);
        let mut bytes = bytes;
        bytes.advance(skipped);
        Self::parse_behind(bytes, FROM_PEERS, skipped)
    }

    pub(crate) fn parse_within(bytes: Bytes, limits: Limits) -> Result<Self, ParseError> {
        Self::parse_behind(bytes, limits, 0)
    }

    /// Reads a message behind so many bytes that were skipped.
    #[inline]
    fn parse_behind(bytes: Bytes, limits: Limits, skipped: usize) -> Result<Self, ParseError> {
        let mut message =
            Self { bytes, head: Head::new(), defects: None, verdict: Verdict::Discard };
        match parse::parse(&message.bytes, limits, &mut message.head) {
            Ok(defects) => {
                message.settle(defects);
                Ok(message)
            }
            Err(error) => Err(ParseError { offset: error.offset + skipped, ..error }),
        }
    }

    /// Takes the head of `bytes` as read, and finds the body.
    pub(crate) fn with_head(bytes: Bytes, head: Head, defects: Vec<Defect>) -> Self {
        let mut message = Self { bytes, head, defects: None, verdict: Verdict::Discard };
        message.settle(defects);
        message
    }

    /// Finds the body, and decides what to do with the message.
    fn settle(&mut self, mut defects: Vec<Defect>) {
        let head_len = self.head.len as usize;
        if let BodyLen::Is(len) = self.head.fields.body_len {
            if (len as usize) <= self.bytes.len() - head_len {
                self.bytes.truncate(head_len + len as usize);
            } else if defects.iter().all(|defect| defect.kind != DefectKind::BodyTooLong) {
                let header = Some(Name::CONTENT_LENGTH);
                let kind = DefectKind::BodyTooShort;
                defects.push(Defect { header, kind, offset: self.bytes.len() });
            }
        }
        let method = match self.head.start {
            Start::Request { method, .. } => method.get(&self.bytes),
            Start::Response { .. } => &[],
        };
        self.verdict = check::verdict(&self.head, &defects, method);
        self.defects = (!defects.is_empty()).then(|| defects.into());
    }

    /// Returns the whole message.
    #[must_use]
    pub const fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns what is wrong, in the order found: of one defect in one header the
    /// first few.
    #[must_use]
    pub fn defects(&self) -> &[Defect] {
        self.defects.as_deref().unwrap_or_default()
    }

    /// Returns what to do with the message.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// True for a request, false for a response.
    #[must_use]
    pub const fn is_request(&self) -> bool {
        matches!(self.head.start, Start::Request { .. })
    }

    /// Returns the method of a request; for a response that of its CSeq, empty
    /// when that cannot be read.
    #[must_use]
    pub fn method(&self) -> Method<'_> {
        Method::new(match self.head.start {
            Start::Request { method, .. } => method.get(&self.bytes),
            Start::Response { .. } => self.head.fields.cseq_method.get(&self.bytes),
        })
    }

    /// Returns the status of a response, from 100 to 699. `None` for a request,
    /// and for a response whose verdict is to discard it because of its status.
    #[must_use]
    pub const fn status(&self) -> Option<u16> {
        match self.head.start {
            Start::Response { status: 0, .. } | Start::Request { .. } => None,
            Start::Response { status, .. } => Some(status),
        }
    }

    /// Returns the reason phrase of a response.
    #[must_use]
    pub fn reason(&self) -> &[u8] {
        match self.head.start {
            Start::Response { reason, .. } => reason.get(&self.bytes),
            Start::Request { .. } => &[],
        }
    }

    /// Returns the Request-URI of a request.
    #[must_use]
    pub fn request_uri(&self) -> Option<&[u8]> {
        match self.head.start {
            Start::Request { uri, .. } => Some(uri.get(&self.bytes)),
            Start::Response { .. } => None,
        }
    }

    pub(crate) fn request_uri_span(&self) -> Option<Span> {
        match self.head.start {
            Start::Request { uri, .. } => Some(uri),
            Start::Response { .. } => None,
        }
    }

    /// Returns Call-ID; empty when there is none.
    #[must_use]
    pub fn call_id(&self) -> &[u8] {
        self.head.fields.call_id.get(&self.bytes)
    }

    /// Returns CSeq, when it can be read.
    #[must_use]
    pub fn cseq(&self) -> Option<CSeq<'_>> {
        let method = Method::new(self.head.fields.cseq_method.get_some(&self.bytes)?);
        Some(CSeq { number: self.head.fields.cseq_number, method })
    }

    /// Returns the branch of the top Via.
    #[must_use]
    pub fn branch(&self) -> Option<&[u8]> {
        self.head.fields.branch.get_some(&self.bytes)
    }

    /// Returns host and port of the top Via, when it can be read: with the branch
    /// and the method what a request is matched by (RFC 3261 §17.2.3).
    #[must_use]
    pub fn sent_by(&self) -> Option<(Host<'_>, Option<u16>)> {
        let Fields { sent_by_host, sent_by_port, .. } = self.head.fields;
        Some((Host::known(sent_by_host.get_some(&self.bytes)?), sent_by_port))
    }

    /// Returns From, when it can be read.
    #[must_use]
    pub fn from(&self) -> Option<NameAddr<'_>> {
        NameAddr::parse(self.header(Name::FROM)?).ok()
    }

    /// Returns the tag of From; old phones send none (RFC 2543).
    #[must_use]
    pub fn from_tag(&self) -> Option<&[u8]> {
        self.head.fields.from_tag.get_some(&self.bytes)
    }

    /// Returns To, when it can be read.
    #[must_use]
    pub fn to(&self) -> Option<NameAddr<'_>> {
        NameAddr::parse(self.header(Name::TO)?).ok()
    }

    /// Returns the tag of To.
    #[must_use]
    pub fn to_tag(&self) -> Option<&[u8]> {
        self.head.fields.to_tag.get_some(&self.bytes)
    }

    /// Returns the top Via, when it can be read.
    #[must_use]
    pub fn via(&self) -> Option<Via<'_>> {
        Via::parse(self.elements(Name::VIA).next()?).ok()
    }

    /// Iterates over all Vias that can be read, top first.
    pub fn vias(&self) -> impl Iterator<Item = Via<'_>> + use<'_> {
        self.elements(Name::VIA).filter_map(|element| Via::parse(element).ok())
    }

    /// Returns the first Contact, when it can be read.
    #[must_use]
    pub fn contact(&self) -> Option<NameAddr<'_>> {
        NameAddr::parse(self.elements(Name::CONTACT).next()?).ok()
    }

    /// Iterates over all Contacts that can be read; `*` is one
    /// ([`NameAddr::is_star`]).
    pub fn contacts(&self) -> impl Iterator<Item = NameAddr<'_>> + use<'_> {
        self.addresses(Name::CONTACT)
    }

    /// Iterates over all Routes that can be read, next hop first.
    pub fn routes(&self) -> impl Iterator<Item = NameAddr<'_>> + use<'_> {
        self.addresses(Name::ROUTE)
    }

    /// Iterates over all Record-Routes that can be read, as they stand.
    pub fn record_routes(&self) -> impl Iterator<Item = NameAddr<'_>> + use<'_> {
        self.addresses(Name::RECORD_ROUTE)
    }

    /// Iterates over the addresses of any header that lists them
    /// (P-Asserted-Identity, Diversion, Path …), leaving out what is malformed.
    pub fn addresses<'a>(&'a self, name: Name<'a>) -> impl Iterator<Item = NameAddr<'a>> + use<'a> {
        self.elements(name).filter_map(|element| NameAddr::parse(element).ok())
    }

    /// True when a header that lists tokens (Supported, Require, Allow …) lists
    /// this one. Methods compare by letter case, everything else does not.
    #[must_use]
    pub fn lists(&self, name: Name<'_>, token: &[u8]) -> bool {
        let is_method = name == Name::ALLOW;
        self.elements(name).any(|element| {
            if is_method { element == token } else { element.eq_ignore_ascii_case(token) }
        })
    }

    /// Returns the value of Content-Length, when it is one number.
    #[must_use]
    pub fn content_length(&self) -> Option<u32> {
        match self.head.fields.body_len {
            BodyLen::Is(len) => Some(len),
            BodyLen::Absent | BodyLen::Unknown => None,
        }
    }

    /// Returns the media type of the body, without parameters.
    #[must_use]
    pub fn content_type(&self) -> Option<&[u8]> {
        let value = self.header(Name::CONTENT_TYPE)?;
        Some(trim_end(&value[..memchr::memchr(b';', value).unwrap_or(value.len())]))
    }

    /// Returns the body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.bytes[self.head.len as usize..]
    }

    /// Returns the value of the first header of this name, without white space
    /// around it.
    #[must_use]
    pub fn header(&self, name: Name<'_>) -> Option<&[u8]> {
        Some(self.line_at(self.find(name, 0)?).value)
    }

    /// Iterates over the values of all headers of this name.
    pub fn headers<'a>(&'a self, name: Name<'a>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut from = 0;
        std::iter::from_fn(move || {
            let index = self.find(name, from)?;
            from = index + 1;
            Some(self.line_at(index).value)
        })
    }

    /// Iterates over the comma-separated elements of all headers of this name.
    pub fn elements<'a>(&'a self, name: Name<'a>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.headers(name).flat_map(Elements::new)
    }

    /// Iterates over all header lines, in order.
    pub fn lines(&self) -> impl Iterator<Item = Line<'_>> + use<'_> {
        (0..self.head.refs.len()).map(|index| self.line_at(index))
    }

    /// Returns the index of the first line of this name at or after `from`.
    pub(crate) fn find(&self, name: Name<'_>, from: usize) -> Option<usize> {
        if name.id != OTHER {
            return self.head.refs.find(name.id, from);
        }
        let mut from = from;
        loop {
            let index = self.head.refs.find(OTHER, from)?;
            if self.line_at(index).name_text.eq_ignore_ascii_case(name.as_bytes()) {
                return Some(index);
            }
            from = index + 1;
        }
    }

    /// Returns one header line.
    pub(crate) fn line_at(&self, index: usize) -> Line<'_> {
        let header = self.head.refs.get(index).expect("the index comes from `find`");
        let next = self.head.refs.get(index + 1).map_or(self.head.headers_end, |next| next.at);
        let whole = &self.bytes[header.at as usize..next as usize];
        let (name_text, _) = lex::split_while(whole, lex::is_token_byte);
        Line {
            id: header.id,
            name_text,
            value: header.value.get(&self.bytes),
            whole,
            at: header.at as usize,
        }
    }

    /// Returns where the line behind the start line begins.
    pub(crate) fn headers_at(&self) -> usize {
        self.head.refs.get(0).map_or_else(|| self.headers_end(), |first| first.at as usize)
    }

    /// Returns where the empty line before the body begins.
    pub(crate) const fn headers_end(&self) -> usize {
        self.head.headers_end as usize
    }

    /// Returns where the body begins.
    pub(crate) const fn body_at(&self) -> usize {
        self.head.len as usize
    }
}

impl PartialEq for Message {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Message {}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bytes.escape_ascii())
    }
}
