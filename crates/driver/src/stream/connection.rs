//! One connection of a SIP stream.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustls::Connection as Session;
use sip_core::framer::Framer;
use socket2::Socket;

use super::StreamLimits;
use crate::node::SocketId;
use crate::tls::wire::{ReadError, Scratch, Wire};

pub(super) struct Connection {
    pub(super) wire: Wire,
    pub(super) listener: SocketId,
    pub(super) remote: SocketAddr,
    pub(super) limits: StreamLimits,
    /// We made it; else the peer did.
    pub(super) is_made: bool,
    /// Nothing is said or heard before a handshake.
    pub(super) is_tls: bool,
    state: State,
    pub(super) framer: Framer,
    /// Whole messages that are not, or not wholly, with the kernel, and where else they may go.
    queue: VecDeque<Unsent>,
    /// What they cost.
    queue_len: usize,
    /// How much of the first one is.
    begun: usize,
    /// How much more is encrypted, and not wholly with the kernel.
    sealed: usize,
    /// When anything last went either way.
    pub(super) moved_at: Instant,
    /// A peer that made it must have said a message until then.
    pub(super) first_until: Option<Instant>,
    /// We made it and have nothing to say over it but answers.
    pub(super) answers_only: bool,
    /// It has something to read, and its turn comes.
    pub(super) is_unread: bool,
    /// When the connection will be looked after.
    pub(super) armed: Instant,
    /// Watched for writing: the kernel took no more, or is connecting.
    pub(super) blocked: bool,
}

/// What waits to be said.
pub(super) struct Unsent {
    /// Where it was to go; nowhere if it is a [`PONG`].
    pub(super) to: Option<SocketAddr>,
    pub(super) bytes: Bytes,
}

#[derive(Clone, Copy)]
enum State {
    /// The peer has not answered.
    Connecting { until: Instant },
    /// TLS is not there yet; the socket is lent to the handshakes.
    Securing { until: Instant },
    /// Messages flow.
    Open,
    /// The peer broke the limits, and may read what is said until then.
    Closing { until: Instant },
}

impl Connection {
    /// A connection that a peer made.
    pub(super) fn accepted(
        now: Instant,
        listener: SocketId,
        socket: Socket,
        remote: SocketAddr,
        limits: StreamLimits,
        is_tls: bool,
    ) -> Self {
        let state = match is_tls {
            true => State::Securing { until: now + limits.message_time_max },
            false => State::Open,
        };
        Self { is_tls, ..Self::new(now, listener, socket, remote, limits, state) }
    }

    /// A connection that we make.
    pub(super) fn made(
        now: Instant,
        listener: SocketId,
        socket: Socket,
        remote: SocketAddr,
        limits: StreamLimits,
        is_tls: bool,
    ) -> Self {
        let state = State::Connecting { until: now + limits.connect_time_max };
        Self { is_tls, ..Self::new(now, listener, socket, remote, limits, state) }
    }

    fn new(
        now: Instant,
        listener: SocketId,
        socket: Socket,
        remote: SocketAddr,
        limits: StreamLimits,
        state: State,
    ) -> Self {
        let is_made = matches!(state, State::Connecting { .. });
        let framer = match is_made {
            true => Framer::new(limits.framer()),
            false => Framer::accepted(limits.framer(), now),
        };
        let mut connection = Self {
            wire: Wire::new(socket),
            listener,
            remote,
            limits,
            is_made,
            is_tls: false,
            state,
            framer,
            queue: VecDeque::new(),
            queue_len: 0,
            begun: 0,
            sealed: 0,
            moved_at: now,
            first_until: (!is_made).then_some(now + limits.message_time_max.max(FIRST_MAX)),
            answers_only: is_made,
            is_unread: false,
            armed: now,
            blocked: is_made,
        };
        connection.armed = connection.deadline();
        connection
    }

    pub(super) fn is_connecting(&self) -> bool {
        matches!(self.state, State::Connecting { .. })
    }

    /// Whether its socket is lent to the handshakes.
    pub(super) fn is_securing(&self) -> bool {
        matches!(self.state, State::Securing { .. })
    }

    pub(super) fn is_closing(&self) -> bool {
        matches!(self.state, State::Closing { .. })
    }

    /// Whether a message can be said over it, also the answer to what was cut.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Open | State::Closing { .. })
    }

    pub(super) fn is_flushed(&self) -> bool {
        self.queue.is_empty() && self.wire.is_flushed()
    }

    /// When it has carried nothing for too long.
    pub(super) fn idle_at(&self) -> Instant {
        let idle_max = self.limits.idle_max;
        self.moved_at + if self.answers_only { idle_max.min(ANSWERED_MAX) } else { idle_max }
    }

    /// When it must be looked after.
    pub(super) fn deadline(&self) -> Instant {
        match self.state {
            State::Connecting { until } | State::Securing { until } | State::Closing { until } => {
                until
            }
            State::Open => {
                let due = [self.framer.poll_timeout(), self.first_until];
                due.into_iter().flatten().fold(self.idle_at(), Instant::min)
            }
        }
    }

    /// The peer answered, or nobody did.
    pub(super) fn connected(&mut self, now: Instant) -> io::Result<()> {
        if let Some(error) = self.wire.socket.take_error()? {
            return Err(error);
        }
        self.state = match self.state {
            State::Connecting { until } if self.is_tls => State::Securing { until },
            State::Connecting { .. }
            | State::Securing { .. }
            | State::Open
            | State::Closing { .. } => State::Open,
        };
        self.moved_at = now;
        Ok(())
    }

    /// The handshake is done.
    pub(super) fn secured(&mut self, now: Instant, session: Box<Session>) {
        self.wire.secure(session, SEALED_LEN_MAX);
        self.state = State::Open;
        self.moved_at = now;
        self.blocked = false;
        if !self.is_made {
            self.framer = Framer::accepted(self.limits.framer(), now);
        }
    }

    /// Reads nothing more.
    pub(super) fn begin_closing(&mut self, until: Instant) {
        self.state = State::Closing { until };
    }

    /// Keeps a message until it is written; returns false if there is no room. There is for one.
    pub(super) fn push(&mut self, to: SocketAddr, bytes: Bytes) -> bool {
        let len = self.queue_len + cost(&bytes);
        if !self.queue.is_empty() && self.limits.unsent_len_max < len {
            return false;
        }
        self.queue_len = len;
        self.answers_only &= bytes.starts_with(b"SIP/2.0 ");
        self.queue.push_back(Unsent { to: Some(to), bytes });
        true
    }

    /// Keeps the answer to a keep-alive, unless a peer that does not read has one to come.
    pub(super) fn push_pong(&mut self) {
        let bytes = Bytes::from_static(PONG);
        if self.queue.iter().all(|unsent| unsent.to.is_some()) {
            self.queue_len += cost(&bytes);
            self.queue.push_back(Unsent { to: None, bytes });
        }
    }

    /// Reads once into the framer; returns how much came.
    pub(super) fn read(&mut self, now: Instant, scratch: &mut Scratch) -> Result<usize, ReadError> {
        let (len, bytes) = self.wire.read(scratch)?;
        if 0 < len {
            self.moved_at = now;
            self.framer.handle_input(now, bytes);
        }
        Ok(len)
    }

    /// Writes once; returns how much the kernel took.
    pub(super) fn write(&mut self, now: Instant) -> io::Result<usize> {
        let mut begun = self.begun;
        let slices: Vec<IoSlice<'_>> = self
            .queue
            .iter()
            .take(SLICES_MAX)
            .map(|unsent| IoSlice::new(&unsent.bytes[std::mem::take(&mut begun)..]))
            .collect();
        let written = self.wire.write(&slices)?;
        if 0 < written.sent {
            self.moved_at = now;
        }
        self.sealed += written.taken;
        if self.wire.is_flushed() {
            self.begun += std::mem::take(&mut self.sealed);
        }
        while let Some(Unsent { bytes, .. }) = self.queue.front()
            && bytes.len() <= self.begun
        {
            self.begun -= bytes.len();
            self.queue_len -= cost(bytes);
            self.queue.pop_front();
        }
        if self.queue.is_empty() && SLICES_MAX < self.queue.capacity() {
            self.queue = VecDeque::new();
        }
        Ok(written.sent)
    }

    /// Takes what was not wholly said.
    pub(super) fn take_unsent(&mut self) -> VecDeque<Unsent> {
        std::mem::take(&mut self.queue)
    }
}

/// What keeping a message costs.
fn cost(bytes: &Bytes) -> usize {
    bytes.len() + size_of::<Unsent>()
}

/// How much is encrypted and not yet taken by the kernel.
const SEALED_LEN_MAX: usize = 1 << 15;
/// How many messages one write takes.
const SLICES_MAX: usize = 64;
/// How long a peer may take to its first message, whatever else it says; not less than for any message.
const FIRST_MAX: Duration = Duration::from_secs(32);
/// 64*T1: for so long there may be more to say of a request that came over another connection.
const ANSWERED_MAX: Duration = Duration::from_secs(32);
/// RFC 5626 §4.4.1.
const PONG: &[u8] = b"\r\n";
