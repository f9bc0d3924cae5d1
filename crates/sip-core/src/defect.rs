//! What is wrong with a message, and what to do about it.

use std::fmt;

use crate::Name;

/// Where and why bytes are no SIP message at all. The peer is at fault, and
/// there is nothing to answer: drop a datagram, close a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} at byte {offset}")]
pub struct ParseError {
    /// What was found.
    pub kind: ParseErrorKind,
    /// Where, counted from the first byte given.
    pub offset: usize,
}

/// Why bytes are no SIP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseErrorKind {
    /// Nothing but line breaks.
    #[error("no message")]
    Empty,
    /// The first line is neither a request line nor a status line, or it does
    /// not end with CR LF.
    #[error("no start line")]
    StartLine,
    /// Start line and headers are longer than [`crate::HEAD_LEN_MAX`].
    #[error("too long a head")]
    HeadTooLong,
    /// There are more header lines than [`crate::HEADERS_MAX`].
    #[error("too many headers")]
    TooManyHeaders,
}

/// One thing that is wrong with a message that can still be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defect {
    /// The header concerned; `None` for the start line, the body, or a line
    /// without a readable name.
    pub header: Option<Name<'static>>,
    /// What is wrong.
    pub kind: DefectKind,
    /// Where, counted from the start of the message.
    pub offset: usize,
}

/// What can be wrong with a message that can still be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DefectKind {
    /// The start line has spaces too many, a method that is no token, or a
    /// version that is none.
    StartLine,
    /// The message speaks another version of SIP than 2.0.
    Version,
    /// The status code is not a number from 100 to 699.
    StatusCode,
    /// The Request-URI is no URI, stands in brackets, or carries headers.
    RequestUri,
    /// A header line has no colon, or its name is no token.
    HeaderLine,
    /// A CR or LF stands alone instead of as CR LF.
    BareLineBreak,
    /// The empty line after the headers is missing.
    Unterminated,
    /// A header that every message must have is missing.
    Missing,
    /// A header that may stand once stands twice.
    Duplicate,
    /// The value does not follow the header's grammar.
    Malformed,
    /// CSeq names another method than the request line.
    MethodMismatch,
    /// CSeq names another method than the request line, which names an unknown one.
    UnknownMethodMismatch,
    /// Content-Length announces more than there is.
    BodyTooShort,
    /// Content-Length announces more than a stream's reader takes.
    BodyTooLong,
    /// A value is odd but can be read without doubt; nothing needs to be done.
    Odd,
}

impl DefectKind {
    /// Returns the status to answer a request with that has this defect, or
    /// `None` when the defect alone does not make it unacceptable.
    #[must_use]
    pub const fn status(self) -> Option<u16> {
        match self {
            Self::Odd => None,
            Self::Version => Some(505),
            Self::UnknownMethodMismatch => Some(501),
            Self::BodyTooLong => Some(513),
            Self::StartLine
            | Self::StatusCode
            | Self::RequestUri
            | Self::HeaderLine
            | Self::BareLineBreak
            | Self::Unterminated
            | Self::Missing
            | Self::Duplicate
            | Self::Malformed
            | Self::MethodMismatch
            | Self::BodyTooShort => Some(400),
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::StartLine => "start line",
            Self::Version => "version",
            Self::StatusCode => "status code",
            Self::RequestUri => "request uri",
            Self::HeaderLine => "header line",
            Self::BareLineBreak => "bare line break",
            Self::Unterminated => "unterminated head",
            Self::Missing => "missing",
            Self::Duplicate => "duplicate",
            Self::Malformed => "malformed",
            Self::MethodMismatch => "method mismatch",
            Self::UnknownMethodMismatch => "unknown method mismatch",
            Self::BodyTooShort => "body too short",
            Self::BodyTooLong => "body too long",
            Self::Odd => "odd",
        }
    }
}

impl fmt::Display for DefectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// What to do with a message as it came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Process it.
    Ok,
    /// Answer the request with this status, and do nothing else with it.
    Answer(u16),
    /// Drop it: it is a response, an ACK, or there is no Via to answer along.
    Discard,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok => f.write_str("ok"),
            Self::Answer(status) => write!(f, "answer:{status}"),
            Self::Discard => f.write_str("discard"),
        }
    }
}
