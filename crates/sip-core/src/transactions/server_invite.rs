//! The INVITE server transaction: RFC 3261 §17.2.1 with RFC 6026 §7.1, and
//! the repetition of a 2xx until its ACK (RFC 3261 §13.3.1.4).

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::entry::{Expired, Turn};
use super::restore::Answer;
use super::{RespondError, derived};

/// One INVITE that was received.
pub(super) struct ServerInvite {
    state: State,
}

enum State {
    /// The owner has said nothing. The INVITE is kept for the 100 that is
    /// sent when the owner is slow.
    Received { request: Bytes, trying_at: Option<Instant> },
    /// Provisionally answered; copies of the INVITE get the answer again.
    Proceeding { answer: Bytes },
    /// Refused. Timer G resends, timer H gives up.
    Completed { answer: Bytes, resend_at: Option<Instant>, interval: Duration, expires_at: Instant },
    /// The refusal was acknowledged. Timer I absorbs further copies.
    Confirmed { until: Instant },
    /// Accepted, and the ACK is not here yet. The 2xx is sent again on every
    /// transport, since a later hop may lose it.
    Answered { answer: Bytes, resend_at: Instant, interval: Duration, expires_at: Instant },
    /// Accepted and acknowledged. Timer L absorbs copies of the INVITE and
    /// shows those of the ACK.
    Accepted { until: Instant },
    /// Nothing is left to do.
    Terminated,
}

/// What an ACK did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acknowledged {
    /// It ended a refusal.
    Refusal,
    /// It belongs to a 2xx; the owner sees it.
    Success,
    /// It is one more copy, or came when nothing was to be acknowledged.
    Nothing,
}

impl ServerInvite {
    pub(super) fn new<F: Clone>(turn: &Turn<'_, F>, request: Bytes) -> Self {
        let trying_at = turn.config.trying_after.map(|wait| turn.now + wait);
        let request = if trying_at.is_some() { request } else { Bytes::new() };
        Self { state: State::Received { request, trying_at } }
    }

    /// Goes on where another process stopped. An unacknowledged final answer
    /// is due at once.
    pub(super) fn restored<F: Clone>(turn: &Turn<'_, F>, answer: Answer) -> Self {
        // The first wait after the copy that is due now is T1 again.
        let interval = turn.config.t1 / 2;
        let state = match answer {
            Answer::Nothing => State::Received { request: Bytes::new(), trying_at: None },
            Answer::Provisional { bytes } => State::Proceeding { answer: bytes },
            Answer::Refused { bytes, expires_at } => {
                State::Completed { answer: bytes, resend_at: Some(turn.now), interval, expires_at }
            }
            Answer::Accepted { bytes, expires_at } => {
                State::Answered { answer: bytes, resend_at: turn.now, interval, expires_at }
            }
        };
        Self { state }
    }

    /// Takes in another copy of the INVITE.
    pub(super) fn handle_copy<F: Clone>(&self, turn: &mut Turn<'_, F>) {
        match &self.state {
            State::Proceeding { answer } | State::Completed { answer, .. } => {
                turn.send(answer.clone());
            }
            // RFC 6026 §7.1: copies are absorbed; the 2xx has its own timer.
            State::Received { .. }
            | State::Confirmed { .. }
            | State::Answered { .. }
            | State::Accepted { .. }
            | State::Terminated => {}
        }
    }

    /// Sends again what nobody acknowledged and no timer repeats.
    pub(super) fn repeat<F: Clone>(&self, turn: &mut Turn<'_, F>) {
        if let State::Proceeding { answer } | State::Completed { answer, .. } = &self.state {
            turn.send(answer.clone());
        }
    }

    pub(super) fn handle_ack<F: Clone>(&mut self, turn: &Turn<'_, F>) -> Acknowledged {
        match self.state {
            State::Completed { .. } => {
                self.state = if turn.reliable {
                    State::Terminated
                } else {
                    State::Confirmed { until: turn.now + turn.config.t4 }
                };
                Acknowledged::Refusal
            }
            State::Answered { expires_at, .. } => {
                self.state = State::Accepted { until: expires_at };
                Acknowledged::Success
            }
            State::Accepted { .. } => Acknowledged::Success,
            State::Received { .. }
            | State::Proceeding { .. }
            | State::Confirmed { .. }
            | State::Terminated => Acknowledged::Nothing,
        }
    }

    pub(super) fn respond<F: Clone>(
        &mut self,
        turn: &mut Turn<'_, F>,
        status: u16,
        answer: Bytes,
    ) -> Result<(), RespondError> {
        match self.state {
            State::Received { .. } | State::Proceeding { .. } => {}
            // Only a proxy, which passes on each 2xx of a fork, says more
            // after a 2xx. Repeating it is the business of the callee.
            State::Answered { .. } | State::Accepted { .. } if (200..300).contains(&status) => {
                turn.send(answer);
                return Ok(());
            }
            State::Completed { .. }
            | State::Confirmed { .. }
            | State::Answered { .. }
            | State::Accepted { .. } => return Err(RespondError::Answered),
            State::Terminated => return Err(RespondError::Ended),
        }
        turn.send(answer.clone());
        let interval = turn.config.t1;
        let next = turn.now + interval;
        let expires_at = turn.end();
        self.state = match status {
            ..200 => State::Proceeding { answer },
            200..300 => State::Answered { answer, resend_at: next, interval, expires_at },
            300.. => {
                let resend_at = if turn.reliable { None } else { Some(next) };
                State::Completed { answer, resend_at, interval, expires_at }
            }
        };
        Ok(())
    }

    pub(super) fn handle_timeout<F: Clone>(&mut self, turn: &mut Turn<'_, F>) -> Expired {
        match &mut self.state {
            State::Received { request, trying_at: Some(at) } if *at <= turn.now => {
                let answer = derived::trying(request);
                turn.send(answer.clone());
                self.state = State::Proceeding { answer };
            }
            State::Completed { expires_at, .. } | State::Answered { expires_at, .. }
                if *expires_at <= turn.now =>
            {
                self.state = State::Terminated;
                return Expired::Unacknowledged;
            }
            State::Completed { answer, resend_at, interval, .. }
                if resend_at.is_some_and(|at| at <= turn.now) =>
            {
                turn.send(answer.clone());
                *interval = (2 * *interval).min(turn.config.t2);
                *resend_at = (!turn.reliable).then(|| turn.now + *interval);
            }
            State::Answered { answer, resend_at, interval, .. } if *resend_at <= turn.now => {
                turn.send(answer.clone());
                *interval = (2 * *interval).min(turn.config.t2);
                *resend_at = turn.now + *interval;
            }
            State::Confirmed { until } | State::Accepted { until } if *until <= turn.now => {
                self.state = State::Terminated;
            }
            State::Received { .. }
            | State::Proceeding { .. }
            | State::Completed { .. }
            | State::Confirmed { .. }
            | State::Answered { .. }
            | State::Accepted { .. }
            | State::Terminated => {}
        }
        Expired::Nothing
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Received { trying_at, .. } => trying_at,
            State::Completed { resend_at: None, expires_at, .. } => Some(expires_at),
            State::Completed { resend_at: Some(resend_at), expires_at, .. }
            | State::Answered { resend_at, expires_at, .. } => Some(resend_at.min(expires_at)),
            State::Confirmed { until } | State::Accepted { until } => Some(until),
            State::Proceeding { .. } | State::Terminated => None,
        }
    }

    pub(super) fn is_terminated(&self) -> bool {
        matches!(self.state, State::Terminated)
    }
}
