//! Rebuilding INVITE transactions from what a call record keeps of them.

use std::time::Instant;

use bytes::Bytes;

use super::client_invite::ClientInvite;
use super::entry::{Entry, Machine};
use super::identity::{AckParts, Identity, ServerParts};
use super::server_invite::ServerInvite;
use super::{ClientKey, ServerKey, Transactions};
use crate::{Message, Method, Via};

/// An INVITE that was received before and is to be answered, or whose answer
/// is to be acknowledged, here.
#[derive(Clone, Debug)]
pub struct OpenServerInvite<'a, F> {
    /// Where its newest copy came from.
    pub flow: F,
    /// Whether that transport delivers by itself.
    pub reliable: bool,
    /// The value of its topmost Via as it arrived.
    pub via: &'a [u8],
    /// Its Request-URI. Only an RFC 2543 client, whose branch has no magic
    /// cookie, is matched by it; for others it may be empty.
    pub request_uri: &'a [u8],
    /// Its Call-ID.
    pub call_id: &'a [u8],
    /// Its From tag; empty when it had none.
    pub from_tag: &'a [u8],
    /// Its own To tag: empty for an INVITE that starts a dialog.
    pub to_tag: &'a [u8],
    /// Its CSeq number.
    pub cseq: u32,
    /// What was answered so far.
    pub answer: Answer,
}

/// What a restored INVITE was answered with so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing was sent.
    Nothing,
    /// A provisional answer, repeated for each copy of the INVITE.
    Provisional {
        /// The whole message.
        bytes: Bytes,
    },
    /// A 2xx that waits for its ACK.
    Accepted {
        /// The whole message.
        bytes: Bytes,
        /// When the ACK counts as lost: 64 T1 after the 2xx was first sent.
        expires_at: Instant,
    },
    /// Another final answer that waits for its ACK.
    Refused {
        /// The whole message.
        bytes: Bytes,
        /// When the ACK counts as lost: 64 T1 after it was first sent.
        expires_at: Instant,
    },
}

/// An INVITE that was sent before and whose responses are awaited here.
#[derive(Clone, Debug)]
pub struct OpenClientInvite<F> {
    /// Where it was sent.
    pub flow: F,
    /// Whether that transport delivers by itself.
    pub reliable: bool,
    /// The INVITE: the very bytes that were sent while it is
    /// [`Phase::Calling`], later as much of it as its ACK and its CANCEL need:
    /// Request-URI, topmost Via, From, To, Call-ID, CSeq and Route.
    pub request: Message,
    /// Where it stands.
    pub phase: Phase,
}

/// Where a restored INVITE stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing came back yet. A copy is due at once, as the process before may have ended before it
    /// was sent; where the transport does not deliver by itself others follow at T1 and doubling.
    Calling {
        /// When it counts as unanswered: 64 T1 after it was first sent.
        expires_at: Instant,
    },
    /// A provisional response came. Cancel it again when it was cancelled:
    /// the callee takes that for a copy of the same CANCEL.
    Proceeding,
    /// A 2xx came, whose copies the owner wants to see.
    Accepted {
        /// When the last copy may come: 64 T1 after the first.
        until: Instant,
    },
}

/// Why an INVITE was not restored. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The record lacks what matching needs: a Via that can be read, a branch
    /// with the magic cookie, or a CSeq. The caller is at fault.
    #[error("the record does not say how to match the invite")]
    Unmatchable,
    /// A transaction with this identity is alive: the peer was faster, or the
    /// record was restored before.
    #[error("the invite is here already")]
    Alive,
    /// The table is full.
    #[error("the transaction table is full")]
    Full,
}

impl<F: Clone> Transactions<F> {
    /// Goes on answering an INVITE that another process received. Sends
    /// nothing yet; an unacknowledged final answer is due at once.
    ///
    /// # Errors
    ///
    /// See [`RestoreError`].
    pub fn restore_server(
        &mut self,
        now: Instant,
        open: OpenServerInvite<'_, F>,
    ) -> Result<ServerKey, RestoreError> {
        let OpenServerInvite { flow, reliable, via: via_text, answer, .. } = open;
        let via = Via::parse(via_text).map_err(|_| RestoreError::Unmatchable)?;
        let parts = ServerParts {
            branch: via.branch(),
            sent_by_host: via.host().as_bytes(),
            sent_by_port: via.port(),
            via: via_text,
            method: Method::Invite.as_bytes(),
            request_uri: open.request_uri,
            to_tag: open.to_tag,
            from_tag: open.from_tag,
            call_id: open.call_id,
            cseq: open.cseq,
        };
        let identity = self.hashing.server(&parts);
        self.admit(identity)?;
        let ack = match &answer {
            Answer::Accepted { bytes, .. } | Answer::Refused { bytes, .. } => {
                let answer =
                    Message::parse(bytes.clone()).map_err(|_| RestoreError::Unmatchable)?;
                AckParts::read(&answer).map(|parts| self.hashing.ack(&parts))
            }
            Answer::Nothing | Answer::Provisional { .. } => None,
        };
        let merged = open.to_tag.is_empty().then(|| self.hashing.merged(&parts));
        let turn = self.first_turn(now, &flow, reliable);
        let machine = Machine::ServerInvite(ServerInvite::restored(&turn, answer));
        let mut entry = Entry::new(flow, reliable, machine, identity);
        entry.merged = merged.filter(|merged| !self.index.contains_key(merged));
        entry.ack = ack;
        Ok(ServerKey(self.insert(now, entry)))
    }

    /// Goes on waiting for the responses to an INVITE that another process
    /// sent. Sends nothing yet.
    ///
    /// # Errors
    ///
    /// See [`RestoreError`].
    pub fn restore_client(
        &mut self,
        now: Instant,
        open: OpenClientInvite<F>,
    ) -> Result<ClientKey, RestoreError> {
        let OpenClientInvite { flow, reliable, request, phase } = open;
        if request.method() != Method::Invite {
            return Err(RestoreError::Unmatchable);
        }
        let identity = self.client_identity(&request).ok_or(RestoreError::Unmatchable)?;
        self.admit(identity)?;
        let turn = self.first_turn(now, &flow, reliable);
        let invite = ClientInvite::restored(&turn, request.bytes().clone(), phase);
        let entry = Entry::new(flow, reliable, Machine::ClientInvite(invite), identity);
        Ok(ClientKey(self.insert(now, entry)))
    }

    fn admit(&self, identity: Identity) -> Result<(), RestoreError> {
        match self.index.contains_key(&identity) {
            true => Err(RestoreError::Alive),
            false if self.is_full() => Err(RestoreError::Full),
            false => Ok(()),
        }
    }
}
