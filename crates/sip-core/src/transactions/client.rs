//! The client transaction of every request but INVITE: RFC 3261 §17.1.2.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::entry::{Expired, Turn};

/// One request that was sent.
pub(super) struct Client {
    /// Empty once it need not be sent again.
    request: Bytes,
    state: State,
}

enum State {
    /// A CANCEL that waits for its INVITE to be answered provisionally.
    Held,
    /// Timer E resends, timer F gives up. After a provisional response the
    /// copies come every T2.
    Trying { resend_at: Option<Instant>, interval: Duration, expires_at: Instant },
    /// Answered. Timer K absorbs copies of the answer.
    Completed { until: Instant },
    /// Nothing is left to do.
    Terminated,
}

impl Client {
    /// Sends the request for the first time.
    pub(super) fn new<F: Clone>(turn: &mut Turn<'_, F>, request: Bytes) -> Self {
        let mut client = Self::held(request);
        client.start(turn);
        client
    }

    /// Keeps the request until [`Client::start`].
    pub(super) fn held(request: Bytes) -> Self {
        Self { request, state: State::Held }
    }

    /// Sends a request that was held. Does nothing to another.
    pub(super) fn start<F: Clone>(&mut self, turn: &mut Turn<'_, F>) {
        let State::Held = self.state else { return };
        let interval = turn.config.t1;
        let resend_at = if turn.reliable { None } else { Some(turn.now + interval) };
        let expires_at = turn.end();
        self.state = State::Trying { resend_at, interval, expires_at };
        turn.send(self.request.clone());
    }

    /// Takes in a response and tells whether the owner must see it.
    pub(super) fn handle_response<F: Clone>(
        &mut self,
        turn: &mut Turn<'_, F>,
        status: u16,
    ) -> bool {
        match &mut self.state {
            State::Trying { interval, .. } if status < 200 => {
                // The wait that runs goes on; the next one is T2
                // (RFC 3261 §17.1.2.2).
                *interval = turn.config.t2;
                true
            }
            State::Trying { .. } => {
                self.request = Bytes::new();
                self.state = if turn.reliable {
                    State::Terminated
                } else {
                    State::Completed { until: turn.now + turn.config.t4 }
                };
                true
            }
            State::Held | State::Completed { .. } | State::Terminated => false,
        }
    }

    /// Sends again what has no final answer.
    pub(super) fn repeat<F: Clone>(&self, turn: &mut Turn<'_, F>) {
        if matches!(self.state, State::Trying { .. }) {
            turn.send(self.request.clone());
        }
    }

    pub(super) fn handle_timeout<F: Clone>(&mut self, turn: &mut Turn<'_, F>) -> Expired {
        match self.state {
            State::Trying { expires_at, .. } if expires_at <= turn.now => {
                self.state = State::Terminated;
                return Expired::Unanswered;
            }
            State::Trying { resend_at: Some(resend_at), interval, expires_at }
                if resend_at <= turn.now =>
            {
                turn.send(self.request.clone());
                let interval = (2 * interval).min(turn.config.t2);
                let resend_at = Some(turn.now + interval);
                self.state = State::Trying { resend_at, interval, expires_at };
            }
            State::Completed { until } if until <= turn.now => self.state = State::Terminated,
            State::Held | State::Trying { .. } | State::Completed { .. } | State::Terminated => {}
        }
        Expired::Nothing
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Trying { resend_at: Some(resend_at), expires_at, .. } => {
                Some(resend_at.min(expires_at))
            }
            State::Trying { resend_at: None, expires_at, .. } => Some(expires_at),
            State::Completed { until } => Some(until),
            State::Held | State::Terminated => None,
        }
    }

    pub(super) fn is_terminated(&self) -> bool {
        matches!(self.state, State::Terminated)
    }
}
