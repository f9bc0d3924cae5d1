//! One transaction as the table holds it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::client::Client;
use super::client_invite::{ClientInvite, Held};
use super::identity::Identity;
use super::server::Server;
use super::server_invite::ServerInvite;
use super::{ClientKey, Config, Output};

/// One transaction and what all four kinds share.
pub(super) struct Entry<F> {
    /// Where to send: where a request went, or where the newest copy of one
    /// came from.
    pub(super) flow: F,
    pub(super) reliable: bool,
    pub(super) machine: Machine,
    pub(super) identity: Identity,
    /// Found by a copy of the request that came on another path.
    pub(super) merged: Option<Identity>,
    /// Found by the ACK of a 2xx, which has a branch of its own.
    pub(super) ack: Option<Identity>,
    /// What the index of deadlines says of it.
    pub(super) armed: Option<Instant>,
}

/// The four kinds of transaction.
pub(super) enum Machine {
    ClientInvite(ClientInvite),
    Client(Client),
    ServerInvite(ServerInvite),
    Server(Server),
}

/// What a machine sees of its owner for the length of one call.
pub(super) struct Turn<'a, F> {
    pub(super) now: Instant,
    pub(super) config: &'a Config,
    pub(super) flow: &'a F,
    pub(super) reliable: bool,
    pub(super) outputs: &'a mut VecDeque<Output<F>>,
}

/// What a deadline brought, for the owner to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expired {
    /// Nothing, or something that only the machine needs to know.
    Nothing,
    /// A request got no final response.
    Unanswered,
    /// A final answer to INVITE got no ACK.
    Unacknowledged,
}

impl<F> Entry<F> {
    pub(super) fn new(flow: F, reliable: bool, machine: Machine, identity: Identity) -> Self {
        Self { flow, reliable, machine, identity, merged: None, ack: None, armed: None }
    }

    pub(super) fn machine(&mut self) -> &mut Machine {
        &mut self.machine
    }

    /// Lends the machine and what it sees of its surroundings.
    pub(super) fn split<'a>(
        &'a mut self,
        now: Instant,
        config: &'a Config,
        outputs: &'a mut VecDeque<Output<F>>,
    ) -> (&'a mut Machine, Turn<'a, F>) {
        let turn = Turn { now, config, flow: &self.flow, reliable: self.reliable, outputs };
        (&mut self.machine, turn)
    }
}

impl Machine {
    pub(super) fn handle_timeout<F: Clone>(&mut self, turn: &mut Turn<'_, F>) -> Expired {
        match self {
            Self::ClientInvite(invite) => invite.handle_timeout(turn),
            Self::Client(client) => client.handle_timeout(turn),
            Self::ServerInvite(invite) => invite.handle_timeout(turn),
            Self::Server(server) => server.handle_timeout(turn),
        }
    }

    /// Sends again what waits for the peer and is repeated by no timer where the transport delivers.
    pub(super) fn repeat<F: Clone>(&self, turn: &mut Turn<'_, F>) {
        match self {
            Self::ClientInvite(invite) => invite.repeat(turn),
            Self::Client(client) => client.repeat(turn),
            Self::ServerInvite(invite) => invite.repeat(turn),
            // Its answer has ended it there.
            Self::Server(_) => {}
        }
    }

    /// When `handle_timeout` is next needed.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::ClientInvite(invite) => invite.deadline(),
            Self::Client(client) => client.deadline(),
            Self::ServerInvite(invite) => invite.deadline(),
            Self::Server(server) => server.deadline(),
        }
    }

    /// Says what is to be done about a CANCEL that is held back, and gives the
    /// INVITE until `until` to end when it goes out.
    pub(super) fn release(&mut self, until: Instant) -> Held {
        match self {
            Self::ClientInvite(invite) => invite.release(until),
            Self::Client(_) | Self::ServerInvite(_) | Self::Server(_) => Held::Nothing,
        }
    }

    /// Returns the CANCEL that is held back and ends with this transaction.
    pub(super) fn held(&self) -> Option<ClientKey> {
        match self {
            Self::ClientInvite(invite) => invite.held(),
            Self::Client(_) | Self::ServerInvite(_) | Self::Server(_) => None,
        }
    }

    pub(super) fn is_terminated(&self) -> bool {
        match self {
            Self::ClientInvite(invite) => invite.is_terminated(),
            Self::Client(client) => client.is_terminated(),
            Self::ServerInvite(invite) => invite.is_terminated(),
            Self::Server(server) => server.is_terminated(),
        }
    }
}

impl<F: Clone> Turn<'_, F> {
    pub(super) fn send(&mut self, bytes: Bytes) {
        self.outputs.push_back(Output::Send { flow: self.flow.clone(), bytes });
    }

    /// The end of everything that starts now and lasts as long as a peer may
    /// retransmit.
    pub(super) fn end(&self) -> Instant {
        self.now + self.config.lifetime()
    }
}

impl Config {
    /// 64 T1: timers B, F, H, J, L and M.
    pub(super) fn lifetime(&self) -> Duration {
        64 * self.t1
    }

    /// Timer D: at least 32 s by RFC 3261 §17.1.1.2, and as long as the
    /// server may repeat its refusal.
    pub(super) fn refusals(&self) -> Duration {
        self.lifetime().max(REFUSALS_MIN)
    }

    /// How long after its first request a client starts to send every T2, when
    /// no answer comes: the earliest that RFC 4320 §4.1 permits a 100.
    pub(super) fn slowed(&self) -> Duration {
        let (mut elapsed, mut wait) = (Duration::ZERO, self.t1);
        while wait < self.t2 {
            elapsed += wait;
            wait *= 2;
        }
        elapsed
    }
}

const REFUSALS_MIN: Duration = Duration::from_secs(32);
