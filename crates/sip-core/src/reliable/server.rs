//! The callee's side.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::OPTION;
use crate::{Message, Name, SPREAD, Writer};

/// The reliable provisional responses to one INVITE: one at a time, each
/// repeated until its PRACK comes (RFC 3262 §3).
#[derive(Debug)]
pub struct Server {
    t1: Duration,
    /// The CSeq number of the INVITE.
    cseq: u32,
    next_rseq: u32,
    state: State,
    queue: VecDeque<Writer>,
    outputs: VecDeque<Output>,
}

#[derive(Debug)]
enum State {
    /// All are acknowledged.
    Idle,
    /// One is not acknowledged, and is repeated.
    Waiting {
        rseq: u32,
        response: Box<Message>,
        resend_at: Instant,
        interval: Duration,
        until: Instant,
    },
    /// The INVITE has its final answer; this one may still be acknowledged.
    Finished { rseq: Option<u32> },
    /// Nobody acknowledged; the call has failed.
    GaveUp,
}

/// What the owner must do, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "nearly every output is a message")]
pub enum Output {
    /// Give this response to the INVITE's transaction, also when it had it
    /// before.
    Respond(Message),
    /// No PRACK came within 64 T1. Refuse the INVITE with 504. Comes last.
    GaveUp,
}

/// Why a response was not taken. The caller is at fault. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RespondError {
    /// Only 101 to 199 can be reliable.
    #[error("only a provisional response above 100 can be reliable")]
    NotProvisional,
    /// [`Server::QUEUE_MAX`] responses wait for the PRACK of one before them.
    #[error("too many responses wait")]
    Full,
    /// The INVITE has its final answer, or nobody acknowledged in time.
    #[error("the invite is answered")]
    Ended,
}

/// Why a PRACK acknowledges nothing. The peer is at fault. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrackError {
    /// It has no RAck that can be read: answer 400.
    #[error("no rack that can be read")]
    Malformed,
    /// It names no response that waits for it: answer 481.
    #[error("no such response waits")]
    Unknown,
}

impl PrackError {
    /// Returns the status to answer the PRACK with.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::Malformed => 400,
            Self::Unknown => 481,
        }
    }
}

impl Server {
    /// Responses that may wait for the PRACK of one before them.
    pub const QUEUE_MAX: usize = 8;

    /// Begins with nothing sent. `t1` is that of the transaction layer; the
    /// first RSeq number is drawn from `seed`, which has to be new for each.
    #[must_use]
    pub fn new(invite: &Message, t1: Duration, seed: u64) -> Self {
        // RFC 3262 §3: from 1 to 2^31 - 1. The high bits of a product are the
        // well mixed ones.
        let drawn = seed.wrapping_mul(SPREAD) >> 34;
        Self {
            t1,
            cseq: invite.cseq().map_or(0, |cseq| cseq.number),
            next_rseq: u32::try_from(drawn).unwrap_or(0) + 1,
            state: State::Idle,
            queue: VecDeque::new(),
            outputs: VecDeque::new(),
        }
    }

    /// Sends a response, once those before it are acknowledged. `Require:
    /// 100rel` and RSeq are added here.
    ///
    /// # Errors
    /// See [`RespondError`].
    pub fn respond(&mut self, now: Instant, response: Writer) -> Result<(), RespondError> {
        if !response.clone().finish().status().is_some_and(|status| (101..200).contains(&status)) {
            return Err(RespondError::NotProvisional);
        }
        match self.state {
            State::Idle => self.send(now, response),
            State::Waiting { .. } if Self::QUEUE_MAX <= self.queue.len() => {
                return Err(RespondError::Full);
            }
            State::Waiting { .. } => self.queue.push_back(response),
            State::Finished { .. } | State::GaveUp => return Err(RespondError::Ended),
        }
        Ok(())
    }

    /// Takes in a PRACK of the dialog. Answer it with 200, which holds the
    /// answer when the PRACK holds an offer.
    ///
    /// # Errors
    /// See [`PrackError`].
    pub fn acknowledge(&mut self, now: Instant, prack: &Message) -> Result<(), PrackError> {
        let rack = prack.rack().ok_or(PrackError::Malformed)?;
        let waiting = match self.state {
            State::Waiting { rseq, .. } => Some(rseq),
            State::Finished { rseq } => rseq,
            State::Idle | State::GaveUp => None,
        };
        let is_ours = rack.cseq == self.cseq && rack.method == crate::Method::Invite;
        if !is_ours || waiting != Some(rack.rseq) {
            return Err(PrackError::Unknown);
        }
        if let State::Finished { rseq } = &mut self.state {
            *rseq = None;
            return Ok(());
        }
        self.state = State::Idle;
        if let Some(next) = self.queue.pop_front() {
            self.send(now, next);
        }
        Ok(())
    }

    /// True when a 2xx may go out: while a response with a description is not
    /// acknowledged, it must wait (RFC 3262 §3). Any refusal may go out at once.
    #[must_use]
    pub fn may_accept(&self) -> bool {
        match &self.state {
            State::Waiting { response, .. } => {
                response.body().is_empty() && self.queue.iter().all(|next| next.body_is_empty())
            }
            State::Idle | State::Finished { .. } | State::GaveUp => true,
        }
    }

    /// Ends all repeating: the INVITE got its final answer.
    pub fn finish(&mut self) {
        let rseq = match self.state {
            State::Waiting { rseq, .. } | State::Finished { rseq: Some(rseq) } => Some(rseq),
            State::Idle | State::GaveUp | State::Finished { rseq: None } => None,
        };
        self.state = State::Finished { rseq };
        self.queue.clear();
    }

    /// Does whatever is due at `now`; does nothing when nothing is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        match &mut self.state {
            State::Waiting { until, .. } if *until <= now => {
                self.state = State::GaveUp;
                self.queue.clear();
                self.outputs.push_back(Output::GaveUp);
            }
            State::Waiting { response, resend_at, interval, .. } if *resend_at <= now => {
                self.outputs.push_back(Output::Respond((**response).clone()));
                // RFC 3262 §3: each wait is twice the one before, without an end.
                *interval *= 2;
                *resend_at = now + *interval;
            }
            State::Waiting { .. } | State::Idle | State::Finished { .. } | State::GaveUp => {}
        }
    }

    /// Returns the next thing to do. Drain until `None` after every other call.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns when `handle_timeout` is next needed.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Waiting { resend_at, until, .. } => Some(resend_at.min(until)),
            State::Idle | State::Finished { .. } | State::GaveUp => None,
        }
    }

    fn send(&mut self, now: Instant, response: Writer) {
        let rseq = self.next_rseq;
        self.next_rseq += 1;
        let response = response.header(Name::REQUIRE, OPTION).number(Name::RSEQ, rseq).finish();
        self.outputs.push_back(Output::Respond(response.clone()));
        self.state = State::Waiting {
            rseq,
            response: Box::new(response),
            resend_at: now + self.t1,
            interval: self.t1,
            until: now + 64 * self.t1,
        };
    }
}
