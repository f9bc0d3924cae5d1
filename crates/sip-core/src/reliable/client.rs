//! The caller's side.

use bytes::Bytes;

use super::OPTION;
use crate::{Message, Name};

/// The reliable provisional responses that came to one INVITE: which of them
/// to acknowledge, and which to pass over (RFC 3262 §4). A fork counts its
/// responses by itself.
#[derive(Clone, Debug)]
pub struct Client {
    /// The CSeq number of the INVITE.
    cseq: u32,
    /// To tag and newest RSeq number of each fork.
    forks: Vec<(Bytes, u32)>,
}

/// What to do with a provisional response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It is not reliable: process it.
    Unreliable,
    /// Process it, and acknowledge it with a PRACK in its early dialog.
    New {
        /// The value of the PRACK's RAck.
        rack: String,
    },
    /// A copy of one that came before: do nothing, its PRACK is on its way.
    Copy,
    /// One before it is missing, or it belongs to no dialog: do nothing. It
    /// will come again.
    Gap,
}

impl Client {
    /// Forks that are told apart; responses of more are [`Arrival::Gap`].
    pub const FORKS_MAX: usize = 64;

    /// Begins with nothing received.
    #[must_use]
    pub fn new(invite: &Message) -> Self {
        Self { cseq: invite.cseq().map_or(0, |cseq| cseq.number), forks: Vec::new() }
    }

    /// Takes in a response to the INVITE.
    pub fn handle_response(&mut self, response: &Message) -> Arrival {
        let is_provisional = response.status().is_some_and(|s| (101..200).contains(&s));
        if !is_provisional || !response.lists(Name::REQUIRE, OPTION.as_bytes()) {
            return Arrival::Unreliable;
        }
        let (Some(rseq), Some(tag)) = (response.rseq(), response.to_tag()) else {
            return Arrival::Gap;
        };
        let is_full = Self::FORKS_MAX <= self.forks.len();
        match self.forks.iter_mut().find(|(known, _)| known == tag) {
            Some((_, newest)) if rseq <= *newest => return Arrival::Copy,
            Some((_, newest)) if rseq == *newest + 1 => *newest = rseq,
            Some(_) => return Arrival::Gap,
            None if is_full => return Arrival::Gap,
            None => self.forks.push((Bytes::copy_from_slice(tag), rseq)),
        }
        Arrival::New { rack: format!("{rseq} {} INVITE", self.cseq) }
    }
}
