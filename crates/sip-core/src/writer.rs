//! Messages from nothing.

use bytes::Bytes;

use crate::lex;
use crate::message::Message;
use crate::parse::Limits;
use crate::{Method, Name};

/// Writes a message line by line.
///
/// Whatever is passed in, one call writes one line: CR, LF and NUL become
/// spaces, so a value taken from one peer can never add a header towards
/// another.
#[derive(Clone, Debug)]
pub struct Writer {
    out: Vec<u8>,
    body: Bytes,
}

impl Writer {
    /// Begins a request. In the method what is no token, and in the URI what
    /// no URI may hold, is written as `_`.
    #[must_use]
    pub fn request(method: Method<'_>, uri: &[u8]) -> Self {
        let mut out = Vec::with_capacity(1024);
        write_filtered(&mut out, method.as_bytes(), lex::is_token_byte);
        out.push(b' ');
        write_filtered(&mut out, uri, lex::is_uri_byte);
        out.extend_from_slice(b" SIP/2.0\r\n");
        Self { out, body: Bytes::new() }
    }

    /// Begins a response.
    ///
    /// # Panics
    /// `status` is not from 100 to 699.
    #[must_use]
    pub fn response(status: u16, reason: &[u8]) -> Self {
        assert!((100..700).contains(&status), "a status is from 100 to 699");
        let mut out = Vec::with_capacity(1024);
        out.extend_from_slice(b"SIP/2.0 ");
        out.extend_from_slice(status.to_string().as_bytes());
        out.push(b' ');
        write_line(&mut out, reason);
        Self { out, body: Bytes::new() }
    }

    /// Begins the response to `request` (RFC 3261 §8.2.6): Via, From, To,
    /// Call-ID and CSeq as they came, Timestamp in a 100, Record-Route in what
    /// can make a dialog (§12.1.1). `to_tag` is added when To has none and the
    /// status is not 100.
    ///
    /// # Panics
    /// `status` is not from 100 to 699.
    #[must_use]
    pub fn answer(request: &Message, status: u16, reason: &[u8], to_tag: Option<&[u8]>) -> Self {
        let mut writer = Self::response(status, reason).copy(request, Name::VIA);
        if (101..300).contains(&status) {
            writer = writer.copy(request, Name::RECORD_ROUTE);
        }
        writer = writer.copy_first(request, Name::FROM);
        let to = request.header(Name::TO);
        writer = match (to, to_tag) {
            (Some(to), Some(tag)) if status != 100 && request.to_tag().is_none() => {
                writer.header(Name::TO, [to, b";tag=", tag].concat())
            }
            _ => writer.copy_first(request, Name::TO),
        };
        writer = writer.copy_first(request, Name::CALL_ID).copy_first(request, Name::CSEQ);
        if status == 100 {
            writer = writer.copy_first(request, Name::TIMESTAMP);
        }
        writer
    }

    /// Adds a header line.
    #[must_use]
    pub fn header(mut self, name: Name<'_>, value: impl AsRef<[u8]>) -> Self {
        self.push(name, value.as_ref());
        self
    }

    /// Adds a header line whose value is a number.
    #[must_use]
    pub fn number(self, name: Name<'_>, value: u32) -> Self {
        self.header(name, value.to_string())
    }

    /// Adds all headers of this name of another message, in order, unfolded.
    #[must_use]
    pub fn copy(mut self, from: &Message, name: Name<'_>) -> Self {
        for value in from.headers(name) {
            self.push(name, value);
        }
        self
    }

    fn copy_first(mut self, from: &Message, name: Name<'_>) -> Self {
        if let Some(value) = from.header(name) {
            self.push(name, value);
        }
        self
    }

    /// Adds Content-Type, and the body at the end. A second call replaces the
    /// body, not the header.
    #[must_use]
    pub fn body(mut self, content_type: &[u8], body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self.header(Name::CONTENT_TYPE, content_type)
    }

    /// Sets the body and leaves Content-Type to the caller.
    #[cfg(feature = "rsip")]
    pub(crate) fn raw_body(mut self, body: Vec<u8>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn body_is_empty(&self) -> bool {
        self.body.is_empty()
    }

    fn push(&mut self, name: Name<'_>, value: &[u8]) {
        // Written at the end, from the body alone.
        if name == Name::CONTENT_LENGTH {
            return;
        }
        write_header(&mut self.out, name, value);
    }

    /// Adds Content-Length and returns the message. A message that lacks
    /// mandatory headers comes back with defects, as a parsed one would.
    #[must_use]
    pub fn finish(self) -> Message {
        let mut out = self.out;
        write_header(&mut out, Name::CONTENT_LENGTH, self.body.len().to_string().as_bytes());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&self.body);
        // Answers are kept for half a minute, so they hold no spare memory.
        out.shrink_to_fit();
        // A start line is written from what was filtered, whatever a peer sent: see
        // the property `a_written_message_says_what_was_said_and_no_more`.
        let limits = Limits { head_len_max: usize::MAX, headers_max: usize::MAX };
        Message::parse_within(Bytes::from(out), limits)
            .expect("a written start line can be read, and no limit is set")
    }
}

/// Writes one header line.
pub(crate) fn write_header(out: &mut Vec<u8>, name: Name<'_>, value: &[u8]) {
    write_filtered(out, name.as_bytes(), lex::is_token_byte);
    out.extend_from_slice(b": ");
    write_line(out, value);
}

/// Writes the rest of a line and its break; folds and NUL become spaces.
pub(crate) fn write_line(out: &mut Vec<u8>, value: &[u8]) {
    let start = out.len();
    out.extend_from_slice(&lex::unfold(lex::trim(value)));
    for byte in &mut out[start..] {
        if *byte == 0 {
            *byte = b' ';
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes `text` with `_` for what does not pass; never nothing.
pub(crate) fn write_filtered(out: &mut Vec<u8>, text: &[u8], test: impl Fn(u8) -> bool) {
    if text.is_empty() {
        out.push(b'_');
    }
    out.extend(text.iter().map(|&byte| if test(byte) { byte } else { b'_' }));
}
