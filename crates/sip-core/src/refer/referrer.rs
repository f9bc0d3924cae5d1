//! The side that asks.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::declines_subscription;
use crate::{Message, Method};

/// One REFER that was sent, and the subscription that comes with it.
#[derive(Debug)]
pub struct Referrer {
    /// The CSeq number of the REFER.
    id: u32,
    state: State,
    outputs: VecDeque<ReferrerOutput>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Neither answer nor NOTIFY is here, or the first NOTIFY is missing; it
    /// has to come by `until` (RFC 6665 §4.1.2.4, timer N).
    Waiting { until: Instant },
    /// Notifications come; without another one all is over at `until`, when the
    /// last one said so.
    Active { until: Option<Instant> },
    /// Nothing more comes.
    Ended,
}

/// What the owner learns, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReferrerOutput {
    /// The other side got a response to the request it was asked to send.
    Progress(Progress),
    /// Nothing more will be told. Comes last.
    Ended {
        /// The last final response that was told; `None` when nobody knows how
        /// it went.
        status: Option<u16>,
    },
}

/// The start line that a NOTIFY carried (RFC 3420).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The status, from 100 to 699.
    pub status: u16,
    /// The reason phrase.
    pub reason: Vec<u8>,
}

/// Why a NOTIFY is refused. The peer is at fault. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotifyError {
    /// It belongs to no subscription that lives: answer 481.
    #[error("no such subscription")]
    Unknown,
    /// It is no NOTIFY, or Subscription-State or body cannot be read: answer 400.
    #[error("cannot be read")]
    Malformed,
}

impl NotifyError {
    /// Returns the status to answer the NOTIFY with.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::Unknown => 481,
            Self::Malformed => 400,
        }
    }
}

impl Referrer {
    /// Begins when `refer` is sent at `now`. The first NOTIFY must come within
    /// `patience`; RFC 6665 asks for 64 T1.
    #[must_use]
    pub fn new(now: Instant, refer: &Message, patience: Duration) -> Self {
        let id = refer.cseq().map_or(0, |cseq| cseq.number);
        Self { id, state: State::Waiting { until: now + patience }, outputs: VecDeque::new() }
    }

    /// Takes in the final response to the REFER, or 408 when none came.
    /// `response` is `None` for the latter.
    pub fn handle_response(&mut self, response: Option<&Message>) {
        let status = response.and_then(Message::status).unwrap_or(408);
        let is_refused = 300 <= status;
        let is_silent = response.is_some_and(declines_subscription);
        if 200 <= status && (is_refused || is_silent) {
            self.end(None);
        }
    }

    /// Tells whether a NOTIFY of the dialog is about this REFER: its event is
    /// `refer`, and its id this REFER's number or absent.
    #[must_use]
    pub fn owns(&self, notify: &Message) -> bool {
        let Some(event) = notify.event().filter(|event| event.package == b"refer") else {
            return false;
        };
        event.id().is_none_or(|id| crate::lex::number(id) == Some(self.id))
    }

    /// Takes in a NOTIFY of the dialog, at `now`. It may come before the response to the
    /// REFER. Answer it with 200.
    ///
    /// # Errors
    /// See [`NotifyError`].
    pub fn handle_notify(&mut self, now: Instant, notify: &Message) -> Result<(), NotifyError> {
        if notify.method() != Method::Notify {
            return Err(NotifyError::Malformed);
        }
        if !self.owns(notify) || matches!(self.state, State::Ended) {
            return Err(NotifyError::Unknown);
        }
        let state = notify.subscription_state().ok_or(NotifyError::Malformed)?;
        let progress = match notify.body() {
            [] => None,
            body => Some(start_line(body).ok_or(NotifyError::Malformed)?),
        };
        let status = progress.as_ref().map(|progress| progress.status);
        self.outputs.extend(progress.map(ReferrerOutput::Progress));
        if state.is_terminated() {
            self.end(status.filter(|status| 200 <= *status));
        } else {
            let until = state.expires().map(|seconds| now + Duration::from_secs(seconds.into()));
            self.state = State::Active { until };
        }
        Ok(())
    }

    /// Ends a subscription that went silent; does nothing before its time.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_some_and(|until| until <= now) {
            self.end(None);
        }
    }

    /// Returns the next thing to learn. Drain until `None` after every other call.
    pub fn poll_output(&mut self) -> Option<ReferrerOutput> {
        self.outputs.pop_front()
    }

    /// Returns when `handle_timeout` is next needed.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Waiting { until } | State::Active { until: Some(until) } => Some(until),
            State::Active { until: None } | State::Ended => None,
        }
    }

    fn end(&mut self, status: Option<u16>) {
        if !matches!(self.state, State::Ended) {
            self.state = State::Ended;
            self.outputs.push_back(ReferrerOutput::Ended { status });
        }
    }
}

/// Reads the status line that a `message/sipfrag` body begins with.
fn start_line(body: &[u8]) -> Option<Progress> {
    let end = memchr::memchr2(b'\r', b'\n', body).unwrap_or(body.len());
    let (version, rest) = body[..end].split_at_checked(8)?;
    let (status, reason) = rest.split_at_checked(3)?;
    let status = crate::lex::number(status).and_then(|status| u16::try_from(status).ok())?;
    let is_line = version.eq_ignore_ascii_case(b"SIP/2.0 ")
        && (100..700).contains(&status)
        && reason.first().is_none_or(|byte| *byte == b' ');
    is_line.then(|| Progress { status, reason: crate::lex::trim(reason).to_vec() })
}
