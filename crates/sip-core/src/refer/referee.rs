//! The side that was asked.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::declines_subscription;
use crate::{Message, Method, Name, Writer};

/// One REFER that came in, and the subscription that tells its sender how the
/// request went which it asked for.
#[derive(Debug)]
pub struct Referee {
    /// The CSeq number of the REFER, which names the subscription.
    id: u32,
    state: State,
    outputs: VecDeque<RefereeOutput>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The sender wants to be told until `until`, or until the last report.
    Active { until: Instant },
    /// The sender wanted no subscription.
    Silent,
    /// The last word was said.
    Ended,
}

/// What the owner must do, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefereeOutput {
    /// Send a NOTIFY in the dialog of the REFER.
    Notify(Notice),
}

/// What a NOTIFY says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    event: String,
    state: String,
    body: Vec<u8>,
}

/// Why a REFER cannot be accepted. The peer is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReferError {
    /// There is not exactly one Refer-To, or it cannot be read: answer 400.
    #[error("not exactly one refer-to that can be read")]
    ReferTo,
    /// The message is no REFER, or has no CSeq. The caller is at fault.
    #[error("no refer")]
    NotRefer,
}

impl Referee {
    /// Takes in a REFER that is about to be accepted at `now`; the
    /// subscription lives for `life` unless it ends before.
    ///
    /// # Errors
    /// See [`ReferError`].
    pub fn new(now: Instant, refer: &Message, life: Duration) -> Result<Self, ReferError> {
        let cseq = refer.cseq().filter(|cseq| cseq.method == Method::Refer);
        let id = cseq.ok_or(ReferError::NotRefer)?.number;
        let is_one = refer.headers(Name::REFER_TO).count() == 1;
        refer.refer_to().filter(|_| is_one).ok_or(ReferError::ReferTo)?;
        let is_silent = declines_subscription(refer);
        let state = if is_silent { State::Silent } else { State::Active { until: now + life } };
        let mut referee = Self { id, state, outputs: VecDeque::new() };
        // RFC 3515 §2.4.4: the first NOTIFY comes at once.
        let seconds = life.as_secs();
        referee.notify(&format!("active;expires={seconds}"), b"SIP/2.0 100 Trying\r\n");
        Ok(referee)
    }

    /// Returns whether a subscription is alive.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        matches!(self.state, State::Active { .. })
    }

    /// Writes the 202 to the REFER; the owner adds Contact. It says when no
    /// subscription was made (RFC 4488 §4).
    #[must_use]
    pub fn answer(&self, refer: &Message, to_tag: &[u8]) -> Writer {
        let answer = Writer::answer(refer, 202, b"Accepted", Some(to_tag));
        match self.state {
            State::Silent => answer.header(Name::REFER_SUB, "false"),
            State::Active { .. } | State::Ended => answer,
        }
    }

    /// Tells the sender of a response to the request that it asked for. A
    /// final one ends the subscription. What comes after that is not told.
    pub fn report(&mut self, status: u16, reason: &[u8]) {
        let State::Active { .. } = self.state else { return };
        let mut body = format!("SIP/2.0 {status} ").into_bytes();
        crate::writer::write_line(&mut body, reason);
        if status < 200 {
            self.notify("active", &body);
        } else {
            self.end("noresource", &body);
        }
    }

    /// Takes in a SUBSCRIBE for this subscription at `now`: it may be refreshed
    /// for up to `life`, or ended with `Expires: 0`. Answer it with 200 and the
    /// seconds that this returns; or with 481 when it returns `None`, since the
    /// subscription has ended.
    pub fn refresh(&mut self, now: Instant, subscribe: &Message, life: Duration) -> Option<u32> {
        let State::Active { .. } = self.state else { return None };
        let most = u32::try_from(life.as_secs()).unwrap_or(u32::MAX);
        let seconds = subscribe.expires().unwrap_or(most).min(most);
        if seconds == 0 {
            self.end("timeout", b"SIP/2.0 100 Trying\r\n");
        } else {
            self.state = State::Active { until: now + Duration::from_secs(seconds.into()) };
            self.notify(&format!("active;expires={seconds}"), b"SIP/2.0 100 Trying\r\n");
        }
        Some(seconds)
    }

    /// Takes in the response to a NOTIFY, or 408 when none came: a refusal that
    /// says the subscription is gone ends it (RFC 6665 §4.2.2).
    pub const fn handle_response(&mut self, status: u16) {
        if matches!(status, 404 | 405 | 408 | 410 | 416 | 480..=485 | 489 | 501 | 604) {
            self.state = State::Ended;
        }
    }

    /// Ends a subscription whose time is over; does nothing before.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_some_and(|until| until <= now) {
            self.end("timeout", b"SIP/2.0 100 Trying\r\n");
        }
    }

    /// Returns the next thing to do. Drain until `None` after every other call.
    pub fn poll_output(&mut self) -> Option<RefereeOutput> {
        self.outputs.pop_front()
    }

    /// Returns when `handle_timeout` is next needed.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Active { until } => Some(until),
            State::Silent | State::Ended => None,
        }
    }

    fn end(&mut self, reason: &str, body: &[u8]) {
        self.notify(&format!("terminated;reason={reason}"), body);
        self.state = State::Ended;
    }

    fn notify(&mut self, state: &str, body: &[u8]) {
        let State::Active { .. } = self.state else { return };
        // RFC 3515 §2.4.6: only a second REFER of a dialog needs the id, and
        // every one may have it.
        let event = format!("refer;id={}", self.id);
        let notice = Notice { event, state: state.to_owned(), body: body.to_vec() };
        self.outputs.push_back(RefereeOutput::Notify(notice));
    }
}

impl Notice {
    /// Completes a NOTIFY that [`Dialog::request`](crate::dialog::Dialog::request)
    /// has started.
    #[must_use]
    pub fn write(&self, notify: Writer) -> Writer {
        notify
            .header(Name::EVENT, &self.event)
            .header(Name::SUBSCRIPTION_STATE, &self.state)
            .body(b"message/sipfrag;version=2.0", self.body.clone())
    }

    /// True for the last one.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.state.starts_with("terminated")
    }
}
