//! The server transaction of every request but INVITE: RFC 3261 §17.2.2 with
//! RFC 4320.

use std::time::Instant;

use bytes::Bytes;

use super::entry::{Expired, Turn};
use super::{RespondError, derived};

/// One request that was received.
pub(super) struct Server {
    state: State,
}

enum State {
    /// The owner has said nothing. When its client has slowed down to T2 a
    /// 100 is sent (RFC 4320 §4.1).
    Trying { request: Bytes, trying_at: Instant, expires_at: Instant },
    /// The 100 was sent; copies of the request get it again.
    Proceeding { answer: Bytes, expires_at: Instant },
    /// Answered. Timer J answers copies.
    Completed { answer: Bytes, until: Instant },
    /// Nothing is left to do.
    Terminated,
}

impl Server {
    pub(super) fn new<F: Clone>(turn: &Turn<'_, F>, request: Bytes) -> Self {
        let trying_at = turn.now + turn.config.slowed();
        // RFC 4320 §4.2: nothing may be said to a client that has given up.
        let expires_at = turn.end();
        Self { state: State::Trying { request, trying_at, expires_at } }
    }

    /// Takes in another copy of the request.
    pub(super) fn handle_copy<F: Clone>(&self, turn: &mut Turn<'_, F>) {
        match &self.state {
            State::Proceeding { answer, .. } | State::Completed { answer, .. } => {
                turn.send(answer.clone());
            }
            State::Trying { .. } | State::Terminated => {}
        }
    }

    pub(super) fn respond<F: Clone>(
        &mut self,
        turn: &mut Turn<'_, F>,
        status: u16,
        answer: Bytes,
    ) -> Result<(), RespondError> {
        match self.state {
            State::Trying { .. } | State::Proceeding { .. } => {}
            State::Completed { .. } => return Err(RespondError::Answered),
            State::Terminated => return Err(RespondError::Ended),
        }
        match status {
            ..200 => return Err(RespondError::Provisional),
            408 => return Err(RespondError::Timeout),
            200.. => {}
        }
        turn.send(answer.clone());
        self.state = if turn.reliable {
            State::Terminated
        } else {
            State::Completed { answer, until: turn.end() }
        };
        Ok(())
    }

    pub(super) fn handle_timeout<F: Clone>(&mut self, turn: &mut Turn<'_, F>) -> Expired {
        match &self.state {
            State::Trying { expires_at, .. } | State::Proceeding { expires_at, .. }
                if *expires_at <= turn.now =>
            {
                self.state = State::Terminated;
            }
            State::Trying { request, trying_at, expires_at } if *trying_at <= turn.now => {
                let answer = derived::trying(request);
                turn.send(answer.clone());
                self.state = State::Proceeding { answer, expires_at: *expires_at };
            }
            State::Completed { until, .. } if *until <= turn.now => {
                self.state = State::Terminated;
            }
            State::Trying { .. }
            | State::Proceeding { .. }
            | State::Completed { .. }
            | State::Terminated => {}
        }
        Expired::Nothing
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Trying { trying_at, expires_at, .. } => Some(trying_at.min(expires_at)),
            State::Proceeding { expires_at, .. } => Some(expires_at),
            State::Completed { until, .. } => Some(until),
            State::Terminated => None,
        }
    }

    pub(super) fn is_terminated(&self) -> bool {
        matches!(self.state, State::Terminated)
    }
}
