//! The INVITE client transaction: RFC 3261 §17.1.1 with RFC 6026 §7.2.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::entry::{Expired, Turn};
use super::restore::Phase;
use super::{ClientKey, derived};
use crate::Message;

/// One INVITE that was sent.
pub(super) struct ClientInvite {
    /// The INVITE, for its copies, its ACK and its CANCEL. Empty once none of
    /// them can be needed any more.
    request: Bytes,
    state: State,
    /// The CANCEL that waits for the first provisional response.
    cancel: Option<ClientKey>,
    /// It must not go out again.
    hushed: bool,
}

enum State {
    /// Nothing came back. Timer A resends, timer B gives up.
    Calling { resend_at: Option<Instant>, interval: Duration, expires_at: Instant },
    /// The callee's side answers, or we restored a transaction of which
    /// nothing may be resent. Only a CANCEL sets a limit.
    Proceeding { expires_at: Option<Instant> },
    /// Refused. Timer D answers copies of the refusal with ACK.
    Completed { ack: Bytes, until: Instant },
    /// Accepted. Timer M shows further 2xx to the owner (RFC 6026 §7.2).
    Accepted { until: Instant },
    /// Nothing is left to do.
    Terminated,
}

/// What is to be done about the CANCEL that was held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// There is none, or it still waits.
    Nothing,
    /// A provisional response came: send it.
    Start(ClientKey),
    /// A final response came, or none in time: forget it.
    Drop(ClientKey),
}

impl ClientInvite {
    /// Sends the INVITE for the first time.
    pub(super) fn new<F: Clone>(turn: &mut Turn<'_, F>, request: Bytes) -> Self {
        let interval = turn.config.t1;
        let resend_at = if turn.reliable { None } else { Some(turn.now + interval) };
        let expires_at = turn.end();
        turn.send(request.clone());
        let state = State::Calling { resend_at, interval, expires_at };
        Self { request, state, cancel: None, hushed: false }
    }

    /// Goes on where another process stopped. A request that nothing answered
    /// is due at once.
    pub(super) fn restored<F: Clone>(turn: &Turn<'_, F>, request: Bytes, phase: Phase) -> Self {
        let (request, state) = match phase {
            Phase::Calling { expires_at } => {
                // The first wait after this one is T1 again.
                let interval = turn.config.t1 / 2;
                (request, State::Calling { resend_at: Some(turn.now), interval, expires_at })
            }
            Phase::Proceeding => (request, State::Proceeding { expires_at: None }),
            Phase::Accepted { until } => (Bytes::new(), State::Accepted { until }),
        };
        Self { request, state, cancel: None, hushed: false }
    }

    /// Takes in a response and tells whether the owner must see it.
    pub(super) fn handle_response<F: Clone>(
        &mut self,
        turn: &mut Turn<'_, F>,
        response: &Message,
        status: u16,
    ) -> bool {
        match (&self.state, status) {
            (State::Calling { .. }, 100..=199) => {
                self.state = State::Proceeding { expires_at: None };
                true
            }
            (State::Proceeding { .. }, 100..=199) => true,
            (State::Calling { .. } | State::Proceeding { .. }, 200..=299) => {
                self.request = Bytes::new();
                self.state = State::Accepted { until: turn.end() };
                true
            }
            (State::Calling { .. } | State::Proceeding { .. }, _) => {
                self.refuse(turn, response);
                true
            }
            (State::Accepted { .. }, 200..=299) => true,
            (State::Completed { ack, .. }, 300..) => {
                turn.send(ack.clone());
                false
            }
            (State::Accepted { .. } | State::Completed { .. } | State::Terminated, _) => false,
        }
    }

    pub(super) fn handle_timeout<F: Clone>(&mut self, turn: &mut Turn<'_, F>) -> Expired {
        match self.state {
            State::Calling { expires_at, .. }
            | State::Proceeding { expires_at: Some(expires_at) }
                if expires_at <= turn.now =>
            {
                self.state = State::Terminated;
                return Expired::Unanswered;
            }
            State::Calling { resend_at: Some(resend_at), interval, expires_at }
                if resend_at <= turn.now =>
            {
                turn.send(self.request.clone());
                // RFC 3261 §17.1.1.2: each wait is twice the one before.
                let interval = 2 * interval;
                let resend_at = (!turn.reliable).then(|| turn.now + interval);
                self.state = State::Calling { resend_at, interval, expires_at };
            }
            State::Completed { until, .. } | State::Accepted { until } if until <= turn.now => {
                self.state = State::Terminated;
            }
            State::Calling { .. }
            | State::Proceeding { .. }
            | State::Completed { .. }
            | State::Accepted { .. }
            | State::Terminated => {}
        }
        Expired::Nothing
    }

    /// Sends again what nothing answered.
    pub(super) fn repeat<F: Clone>(&self, turn: &mut Turn<'_, F>) {
        if matches!(self.state, State::Calling { .. }) && !self.hushed {
            turn.send(self.request.clone());
        }
    }

    /// Lets the INVITE go out no more.
    pub(super) fn hush(&mut self) {
        self.hushed = true;
        if let State::Calling { resend_at, .. } = &mut self.state {
            *resend_at = None;
        }
    }

    /// Remembers the CANCEL that must wait for a provisional response
    /// (RFC 3261 §9.1).
    pub(super) fn hold(&mut self, cancel: ClientKey) {
        self.cancel = Some(cancel);
    }

    /// Says what the last turn meant for a CANCEL that was held back. When it
    /// goes out the callee has until `until` to end what was cancelled
    /// (RFC 3261 §9.1).
    pub(super) fn release(&mut self, until: Instant) -> Held {
        let Some(cancel) = self.cancel else { return Held::Nothing };
        match &mut self.state {
            State::Calling { .. } => Held::Nothing,
            State::Proceeding { expires_at } => {
                *expires_at = Some(until);
                self.cancel = None;
                Held::Start(cancel)
            }
            State::Completed { .. } | State::Accepted { .. } | State::Terminated => {
                self.cancel = None;
                Held::Drop(cancel)
            }
        }
    }

    pub(super) fn held(&self) -> Option<ClientKey> {
        self.cancel
    }

    pub(super) fn request(&self) -> &Bytes {
        &self.request
    }

    /// Tells whether a CANCEL can be sent, now or later.
    pub(super) fn cancellable(&self) -> Cancellable {
        match self.state {
            _ if self.cancel.is_some() => Cancellable::Already,
            State::Calling { .. } | State::Proceeding { expires_at: None } => Cancellable::Yes,
            State::Proceeding { expires_at: Some(_) } => Cancellable::Already,
            State::Completed { .. } | State::Accepted { .. } | State::Terminated => {
                Cancellable::Answered
            }
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Calling { resend_at: Some(resend_at), expires_at, .. } => {
                Some(resend_at.min(expires_at))
            }
            State::Calling { resend_at: None, expires_at, .. } => Some(expires_at),
            State::Proceeding { expires_at } => expires_at,
            State::Completed { until, .. } | State::Accepted { until } => Some(until),
            State::Terminated => None,
        }
    }

    pub(super) fn is_terminated(&self) -> bool {
        matches!(self.state, State::Terminated)
    }

    /// Acknowledges a final response other than 2xx.
    fn refuse<F: Clone>(&mut self, turn: &mut Turn<'_, F>, response: &Message) {
        let Some(ack) = derived::ack(&self.request, response) else {
            // Only a request that the owner wrote without From or Call-ID
            // has no ACK.
            self.state = State::Terminated;
            return;
        };
        self.request = Bytes::new();
        turn.send(ack.clone());
        // Timer D: nothing is repeated on a transport that delivers.
        self.state = if turn.reliable {
            State::Terminated
        } else {
            State::Completed { ack, until: turn.now + turn.config.refusals() }
        };
    }
}

/// Whether a CANCEL can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cancellable {
    Yes,
    Already,
    Answered,
}
