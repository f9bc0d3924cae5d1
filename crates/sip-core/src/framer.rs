//! Messages out of a stream (RFC 3261 §18.3), within limits.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use sip_core::framer::{Config, Framer, Output};
//!
//! # fn example(now: Instant) {
//! let mut framer = Framer::new(Config {
//!     head_len_max: 16 * 1024,
//!     headers_max: 200,
//!     body_len_max: 64 * 1024,
//!     message_time_max: Duration::from_secs(10),
//! });
//! framer.handle_input(now, b"\r\n\r\nOPTIONS sip:a@example.com SI");
//! assert_eq!(framer.poll_output(), Some(Output::Ping));
//! assert_eq!(framer.poll_output(), None);
//! assert_eq!(framer.poll_timeout(), Some(now + Duration::from_secs(10)));
//! # }
//! ```

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};

use crate::defect::{Defect, DefectKind, ParseError, ParseErrorKind};
use crate::message::Message;
use crate::names::Name;
use crate::parse::{self, BodyLen, HEAD_LEN_MAX, Head, Limits};

mod crowd;

pub use crowd::{Crowd, CrowdConfig, CrowdError};

/// What a peer may send over one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bytes of start line and headers; never more than [`HEAD_LEN_MAX`].
    pub head_len_max: usize,
    /// Header lines.
    pub headers_max: usize,
    /// Bytes of body.
    pub body_len_max: usize,
    /// Time from the first byte of a message to its last.
    pub message_time_max: Duration,
}

/// What a stream held, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "nearly every output is a message")]
pub enum Output {
    /// A message; look at its verdict.
    Message(Message),
    /// A double line break, which a client sends to keep the connection open:
    /// answer with a single one (RFC 5626 §4.4.1). Several in a row that were
    /// not taken yet are one.
    Ping,
    /// A single line break, the answer to our own double one. It is reported
    /// at once, so the first half of a ping that comes in two parts looks like
    /// one; a server, which sends no pings, ignores it.
    Pong,
    /// Nothing more can be read: close the connection. Comes once and last,
    /// behind the message to answer if there is one.
    Failed(FramerError),
}

/// Why a stream cannot be read on. The peer is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FramerError {
    /// What came is no SIP message.
    #[error("no sip message: {0}")]
    Parse(ParseError),
    /// Content-Length is missing, stands twice or is no number, so nobody
    /// knows where the next message starts.
    #[error("no usable content length")]
    Length,
    /// A CR or LF stood alone in a head: who takes it for a line break reads
    /// other headers, and finds another end.
    #[error("a bare line break")]
    LineBreak,
    /// A body is announced that is longer than [`Config::body_len_max`].
    #[error("too long a body")]
    BodyTooLong,
    /// A message took longer than [`Config::message_time_max`].
    #[error("too slow a message")]
    TooSlow,
}

/// For how many outputs memory is kept while there are none.
const OUTPUTS_KEPT: usize = 4;

/// Cuts a stream into messages. Agrees with [`Message::parse`] on the length of
/// every message, since both use one reader.
#[derive(Debug)]
pub struct Framer {
    config: Config,
    buffer: BytesMut,
    state: State,
    outputs: VecDeque<Output>,
}

#[derive(Debug)]
enum State {
    /// Between two messages; `after_break` when a line break was the last.
    /// Something must come by `until`, when that is set.
    Idle { after_break: bool, until: Option<Instant> },
    /// A head has begun and must be whole by `until`; no end of it is in the
    /// first `searched` bytes.
    Head { until: Instant, searched: usize },
    /// The head is whole, the body is not.
    Body { until: Instant, head: Box<(Head, Vec<Defect>)>, message_len: usize },
    /// The stream is beyond use.
    Failed,
}

impl Framer {
    /// Begins with nothing received.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::in_state(config, State::Idle { after_break: false, until: None })
    }

    /// Begins with a connection that a peer opened at `now`, and that has to say
    /// something within [`Config::message_time_max`]. After that it may be
    /// silent as long as it likes.
    #[must_use]
    pub fn accepted(config: Config, now: Instant) -> Self {
        let until = Some(now + config.message_time_max);
        Self::in_state(config, State::Idle { after_break: false, until })
    }

    fn in_state(config: Config, state: State) -> Self {
        Self { config, buffer: BytesMut::new(), state, outputs: VecDeque::new() }
    }

    /// Takes in what arrived at `now`; ignored once the stream has failed.
    pub fn handle_input(&mut self, now: Instant, bytes: &[u8]) {
        if matches!(self.state, State::Failed) {
            return;
        }
        self.buffer.extend_from_slice(bytes);
        while self.step(now) {}
        if self.buffer.is_empty() {
            // A peer that says nothing for long costs no more than it has to.
            self.buffer = BytesMut::new();
        }
    }

    /// Gives up on a message that took too long; does nothing before its time.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_some_and(|until| until <= now) {
            self.fail(FramerError::TooSlow);
        }
    }

    /// Returns the next thing found. Drain until `None` after every other call.
    pub fn poll_output(&mut self) -> Option<Output> {
        let found = self.outputs.pop_front();
        if found.is_none() && OUTPUTS_KEPT < self.outputs.capacity() {
            self.outputs = VecDeque::new();
        }
        found
    }

    /// Returns when `handle_timeout` is next needed.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Head { until, .. } | State::Body { until, .. } => Some(until),
            State::Idle { until, .. } => until,
            State::Failed => None,
        }
    }

    /// Gets one thing out of the buffer; false when more bytes are needed.
    fn step(&mut self, now: Instant) -> bool {
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Failed => false,
            State::Idle { after_break, until } => self.step_idle(now, after_break, until),
            State::Head { until, searched } => self.step_head(until, searched),
            State::Body { until, head, message_len } => {
                if self.buffer.len() < message_len {
                    self.state = State::Body { until, head, message_len };
                    return false;
                }
                let bytes = self.buffer.split_to(message_len).freeze();
                let (head, defects) = *head;
                let is_doubtful = defects.iter().any(|d| d.kind == DefectKind::BareLineBreak);
                self.outputs.push_back(Output::Message(Message::with_head(bytes, head, defects)));
                if is_doubtful {
                    self.fail(FramerError::LineBreak);
                    return false;
                }
                self.state = State::Idle { after_break: false, until: None };
                true
            }
        }
    }

    fn step_idle(
        &mut self,
        now: Instant,
        mut after_break: bool,
        mut until: Option<Instant>,
    ) -> bool {
        let mut has_new_break = false;
        while self.buffer.starts_with(b"\r\n") {
            self.buffer.advance(2);
            until = None;
            if after_break && !matches!(self.outputs.back(), Some(Output::Ping)) {
                self.outputs.push_back(Output::Ping);
            }
            has_new_break = !after_break;
            after_break = !after_break;
        }
        if has_new_break {
            self.outputs.push_back(Output::Pong);
        }
        let is_idle = self.buffer.is_empty() || self.buffer[..] == b"\r"[..];
        self.state = if is_idle {
            State::Idle { after_break, until }
        } else {
            State::Head { until: now + self.config.message_time_max, searched: 0 }
        };
        !is_idle
    }

    fn step_head(&mut self, until: Instant, searched: usize) -> bool {
        let head_len_max = self.config.head_len_max.min(HEAD_LEN_MAX);
        let Some(found) = memchr::memmem::find(&self.buffer[searched..], b"\r\n\r\n") else {
            if head_len_max < self.buffer.len() {
                self.fail_parse(ParseErrorKind::HeadTooLong, head_len_max);
                return false;
            }
            let searched = self.buffer.len().saturating_sub(3);
            self.state = State::Head { until, searched };
            return false;
        };
        let head_len = searched + found + 4;
        if head_len_max < head_len {
            self.fail_parse(ParseErrorKind::HeadTooLong, head_len_max);
            return false;
        }
        let limits = Limits { head_len_max, headers_max: self.config.headers_max };
        let mut head = Head::new();
        let mut defects = match parse::parse(&self.buffer[..head_len], limits, &mut head) {
            Ok(defects) => defects,
            Err(error) => {
                self.fail(FramerError::Parse(error));
                return false;
            }
        };
        debug_assert_eq!(head.len as usize, head_len, "reader and framer find one end");
        let header = Some(Name::CONTENT_LENGTH);
        let error = match head.fields.body_len {
            BodyLen::Is(len) if len as usize <= self.config.body_len_max => {
                let message_len = head_len + len as usize;
                self.state = State::Body { until, head: Box::new((head, defects)), message_len };
                return true;
            }
            BodyLen::Is(_) => {
                defects.push(Defect { header, kind: DefectKind::BodyTooLong, offset: head_len });
                FramerError::BodyTooLong
            }
            BodyLen::Absent => {
                defects.push(Defect { header, kind: DefectKind::Missing, offset: head_len });
                FramerError::Length
            }
            BodyLen::Unknown => FramerError::Length,
        };
        let bytes = self.buffer.split_to(head_len).freeze();
        self.outputs.push_back(Output::Message(Message::with_head(bytes, head, defects)));
        self.fail(error);
        false
    }

    fn fail_parse(&mut self, kind: ParseErrorKind, offset: usize) {
        self.fail(FramerError::Parse(ParseError { kind, offset }));
    }

    fn fail(&mut self, error: FramerError) {
        self.state = State::Failed;
        self.buffer = BytesMut::new();
        self.outputs.push_back(Output::Failed(error));
    }
}

#[cfg(test)]
mod tests;
