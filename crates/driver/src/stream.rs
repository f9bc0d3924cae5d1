//! Stream sockets for SIP: one TCP connection, with TLS or without, carries many messages.
//!
//! A connection is cut, and counted by its reason, when its peer breaks the limits of its listener.
//! What could not be said is given back to the node. Nothing here waits for a peer: a turn reads once
//! from each readable connection, up to a bound for all, and writes once to each that has something to
//! say.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nix::sys::epoll::EpollFlags;
use sip_core::framer::{self, Crowd, CrowdConfig, FramerError};
use socket2::Socket;
use tracing::warn;

use self::accept::{enter, files};
use self::connection::{Connection, Unsent};
use self::counters::Counters;
use self::ending::{Ending, Endings, Refusal};
use self::securing::Securing;
use crate::config::is_one_host;
use crate::node::{BindError, ConnectionId, Input, SocketId};
use crate::sockets::bind_error;
use crate::sys::{Bell, Poller};
use crate::tls::wire::{ReadError, Scratch};
use crate::tls::{HandshakeFault, SipTls};

mod accept;
mod connection;
mod counters;
mod ending;
mod limits;
mod securing;
mod tcp;

pub use self::limits::StreamLimits;

/// All stream sockets of a process.
pub(crate) struct Streams {
    poller: Rc<Poller>,
    tokens: Tokens,
    listeners: BTreeMap<SocketId, Listener>,
    connections: BTreeMap<u32, Connection>,
    /// The newest usable connection with a peer's address.
    by_remote: BTreeMap<(SocketId, SocketAddr), u32>,
    /// When each connection is to be looked after; maybe too early.
    deadlines: BTreeSet<(Instant, u32)>,
    /// Connections that are to be written in this turn.
    unwritten: Vec<u32>,
    /// Connections that have something to read, the one that waits longest first.
    unread: VecDeque<u32>,
    /// What may still be read in this turn.
    budget: Budget,
    /// How many connections the limit of open files leaves room for.
    files: usize,
    events: VecDeque<Input>,
    connection_last: u32,
    scratch: Scratch,
    /// Rung when a handshake has ended.
    handshaken: Arc<Bell>,
    counters: Counters,
    endings: Endings,
}

/// What is added to a name to make a token of the poller.
#[derive(Clone, Copy)]
pub(crate) struct Tokens {
    pub(crate) listeners: u64,
    pub(crate) connections: u64,
    /// Nothing is added to it.
    pub(crate) handshakes: u64,
}

#[derive(Clone, Copy)]
struct Budget {
    bytes: usize,
    messages: usize,
}

struct Listener {
    socket: Socket,
    local: SocketAddr,
    limits: StreamLimits,
    /// The connections that peers made.
    crowd: Crowd,
    /// The connections that were made to peers.
    made: Crowd,
    /// Where connections carry TLS.
    securing: Option<Securing>,
    /// Out of file descriptors, or behind with handshakes: nothing is accepted until then.
    paused_until: Option<Instant>,
}

impl Streams {
    /// # Errors
    /// When the system has no file left.
    pub(crate) fn new(poller: Rc<Poller>, tokens: Tokens) -> io::Result<Self> {
        let handshaken = Arc::new(Bell::new()?);
        poller.add(&*handshaken, tokens.handshakes, false)?;
        Ok(Self {
            poller,
            tokens,
            listeners: BTreeMap::new(),
            connections: BTreeMap::new(),
            by_remote: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            unwritten: Vec::new(),
            unread: VecDeque::new(),
            budget: TURN,
            files: 0,
            events: VecDeque::new(),
            connection_last: 0,
            scratch: Scratch::new(READ_LEN_MAX),
            handshaken,
            counters: Counters::default(),
            endings: Endings::default(),
        })
    }

    /// Opens a listener and returns its local address.
    pub(crate) fn listen(
        &mut self,
        id: SocketId,
        local: SocketAddr,
        limits: StreamLimits,
        tls: Option<SipTls>,
    ) -> Result<SocketAddr, BindError> {
        if self.listeners.contains_key(&id) {
            return Err(BindError::InUse);
        }
        let securing = tls.map(|tls| Securing::start(tls, self.handshaken.clone())).transpose();
        let securing = securing.map_err(|error| bind_error(&error))?;
        let socket = tcp::listen(local).map_err(|error| bind_error(&error))?;
        let added = self.poller.add(&socket, self.tokens.listeners + u64::from(id.0), false);
        added.map_err(|error| bind_error(&error))?;
        let local = socket.local_addr().ok().and_then(|local| local.as_socket()).unwrap_or(local);
        let StreamLimits { connections_max, per_source_max, .. } = limits;
        let crowd = Crowd::new(CrowdConfig { connections_max, per_source_max });
        let made = crowd.clone();
        let listener =
            Listener { socket, local, limits, crowd, made, securing, paused_until: None };
        self.listeners.insert(id, listener);
        self.files = files();
        let share = self.share();
        if share < connections_max {
            warn!(%local, share, "the limit of open files allows fewer connections");
        }
        Ok(local)
    }

    /// Whether a name is that of a listener.
    pub(crate) fn has(&self, id: SocketId) -> bool {
        self.listeners.contains_key(&id)
    }

    /// Writes once what waits, and closes a listener with its connections. Nothing more is told of it.
    pub(crate) fn unlisten(&mut self, now: Instant, id: SocketId) {
        let Some(listener) = self.listeners.remove(&id) else { return };
        self.poller.remove(&listener.socket);
        let its =
            |(own, connection): (&u32, &Connection)| (connection.listener == id).then_some(*own);
        for connection in self.connections.iter().filter_map(its).collect::<Vec<_>>() {
            self.write(now, connection);
            self.close(now, connection, &Ending::Unlistened);
        }
        self.events.retain(|event| {
            !matches!(event, Input::Message { socket, .. } | Input::Unsent { socket, .. }
                if *socket == id)
        });
    }

    /// Takes in that `poller` says a connection is ready.
    pub(crate) fn ready(&mut self, now: Instant, id: u32, flags: EpollFlags) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.is_connecting() {
            match connection.connected(now) {
                Ok(()) if connection.is_tls => self.secure(now, id),
                Ok(()) => self.unwritten.push(id),
                Err(error) => self.close(now, id, &Ending::NotMade(error)),
            }
            return;
        }
        if flags.contains(EpollFlags::EPOLLOUT) {
            self.unwritten.push(id);
        }
        if flags.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR) {
            self.put_off(id);
        }
    }

    /// Begins a turn.
    pub(crate) fn begin_turn(&mut self) {
        self.budget = TURN;
    }

    /// Reads the connection that waits longest for it; returns false once this turn has read enough, or
    /// all.
    pub(crate) fn read_next(&mut self, now: Instant) -> bool {
        if self.budget.bytes == 0 || self.budget.messages == 0 {
            return false;
        }
        let Some(id) = self.unread.pop_front() else { return false };
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.is_unread = false;
            if !connection.is_closing() {
                self.read(now, id);
            }
        }
        true
    }

    /// Notes that a connection has something to read.
    fn put_off(&mut self, id: u32) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if !std::mem::replace(&mut connection.is_unread, true) {
            self.unread.push_back(id);
        }
    }

    /// Keeps a message until [`flush`](Self::flush): for the connection `over`, if it stands, else for
    /// one with `to`, which is made if there is none.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        socket: SocketId,
        over: Option<ConnectionId>,
        to: SocketAddr,
        bytes: Bytes,
    ) {
        let stands = |id: &u32| {
            let connection = self.connections.get(id);
            connection.is_some_and(|it| it.listener == socket && it.is_open())
        };
        let known = over.map(|over| over.0).filter(stands);
        let known = known.or_else(|| self.with_peer(socket, to));
        let Some(id) = known.or_else(|| self.connect(now, socket, to)) else {
            return self.give_back(socket, to, bytes);
        };
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.push(to, bytes.clone()) {
            self.counters.messages_out += 1;
            self.unwritten.push(id);
        } else {
            self.give_back(socket, to, bytes);
            self.close(now, id, &Ending::Unread);
        }
    }

    /// Writes what was kept since the last time: once per connection.
    pub(crate) fn flush(&mut self, now: Instant) {
        let mut unwritten = std::mem::take(&mut self.unwritten);
        unwritten.sort_unstable();
        unwritten.dedup();
        for id in unwritten {
            self.write(now, id);
        }
    }

    /// Whether all that was kept is written.
    pub(crate) fn is_flushed(&self) -> bool {
        self.connections.values().all(Connection::is_flushed)
    }

    /// Returns what the node must be told next.
    pub(crate) fn poll_event(&mut self) -> Option<Input> {
        self.events.pop_front()
    }

    /// Returns when `handle_timeout` is next needed.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let paused = self.listeners.values().filter_map(|listener| listener.paused_until).min();
        let first = self.deadlines.first().map(|(at, _)| *at);
        [paused, first].into_iter().flatten().min()
    }

    /// Cuts what is too slow, accepts again, as is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.deadlines.first()
            && at <= now
        {
            self.deadlines.remove(&(at, id));
            self.look_after(now, id);
        }
        for (id, listener) in &mut self.listeners {
            if listener.paused_until.is_some_and(|until| until <= now) {
                let token = self.tokens.listeners + u64::from(id.0);
                let added = self.poller.add(&listener.socket, token, false);
                listener.paused_until = added.is_err().then_some(now + PAUSE);
            }
        }
    }

    /// Begins to make a connection; returns its name.
    fn connect(&mut self, now: Instant, id: SocketId, to: SocketAddr) -> Option<u32> {
        let share = self.share();
        let listener = self.listeners.get_mut(&id)?;
        let is_tls = listener.securing.is_some();
        if listener.securing.as_ref().is_some_and(|securing| !securing.connects()) {
            return None;
        }
        let is_one = to.port() != 0 && is_one_host(to.ip());
        if !is_one || to.is_ipv4() != listener.local.is_ipv4() {
            return None;
        }
        if let Err(full) = enter(&mut listener.made, to.ip(), share) {
            if self.endings.refuse(now, Refusal::Made) {
                warn!(%to, why = %full, "no connection is made");
            }
            return None;
        }
        let limits = listener.limits;
        match tcp::connect(listener.local.ip(), to) {
            Ok(socket) => {
                self.counters.made += 1;
                self.insert(now, Connection::made(now, id, socket, to, limits, is_tls))
            }
            Err(error) => {
                listener.made.leave(to.ip());
                self.endings.count(&Ending::NotMade(error));
                None
            }
        }
    }

    /// Takes in a connection; returns its name.
    fn insert(&mut self, now: Instant, connection: Connection) -> Option<u32> {
        loop {
            // After four billion connections the names of those that ended are free again.
            self.connection_last = self.connection_last.checked_add(1).unwrap_or(1);
            if !self.connections.contains_key(&self.connection_last) {
                break;
            }
        }
        let id = self.connection_last;
        let connecting = connection.is_connecting();
        let set_up = tcp::set_up(&connection.wire.socket, connection.limits.message_time_max);
        let added = set_up.and_then(|()| match connection.is_securing() {
            true => Ok(()),
            false => self.poller.add(&*connection.wire.socket, self.token(id), connecting),
        });
        let place = (connection.listener, connection.remote);
        if connection.is_made || !connection.is_tls || !self.has_made(place) {
            self.by_remote.insert(place, id);
        }
        self.deadlines.insert((connection.armed, id));
        let is_securing = connection.is_securing();
        self.connections.insert(id, connection);
        if let Err(error) = added {
            self.close(now, id, &Ending::Io(error));
            return None;
        }
        if is_securing {
            self.secure(now, id);
        }
        Some(id)
    }

    /// Reads once what has come, all messages in it.
    fn read(&mut self, now: Instant, id: u32) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        self.counters.reads += 1;
        match connection.read(now, &mut self.scratch) {
            Ok(0) => self.close(now, id, &Ending::Closed),
            Ok(len) => {
                self.budget.bytes = self.budget.bytes.saturating_sub(len);
                self.counters.bytes_in += len as u64;
                if !connection.wire.is_flushed() {
                    // TLS has something to say by itself.
                    self.unwritten.push(id);
                }
                let is_over = connection.wire.is_over();
                self.take(now, id);
                if is_over {
                    self.close(now, id, &Ending::Closed);
                }
            }
            Err(ReadError::Io(error)) if is_passing(&error) => {}
            Err(ReadError::Io(error)) => self.close(now, id, &Ending::Io(error)),
            Err(ReadError::Tls(fault)) => self.refuse(now, id, fault),
        }
    }

    /// Takes what the framer of a connection has found.
    fn take(&mut self, now: Instant, id: u32) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        while let Some(found) = connection.framer.poll_output() {
            match found {
                framer::Output::Message(message) => {
                    self.counters.messages_in += 1;
                    self.budget.messages = self.budget.messages.saturating_sub(1);
                    connection.first_until = None;
                    connection.answers_only = false;
                    self.events.push_back(Input::Message {
                        socket: connection.listener,
                        connection: ConnectionId(id),
                        from: connection.remote,
                        message: Box::new(message),
                    });
                }
                framer::Output::Ping => {
                    self.counters.pings += 1;
                    connection.push_pong();
                    self.unwritten.push(id);
                }
                framer::Output::Pong => {}
                framer::Output::Failed(error) => return self.cut(now, id, error),
            }
        }
        self.arm(id);
    }

    /// Reads nothing more from a peer that broke the limits. If there is a message to answer, it may
    /// hear why, for a moment.
    fn cut(&mut self, now: Instant, id: u32, error: FramerError) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let why = Ending::Framer(error);
        self.endings.note(now, connection.remote, &why);
        let is_answered = match error {
            FramerError::Length | FramerError::BodyTooLong | FramerError::LineBreak => true,
            FramerError::Parse(_) | FramerError::TooSlow | _ => false,
        };
        connection.begin_closing(now + LAST_WORDS_MAX);
        self.poller.remove(&*connection.wire.socket);
        let place = (connection.listener, connection.remote);
        self.forget_remote(place, id);
        if is_answered {
            self.arm(id);
        } else {
            self.write(now, id);
            self.close(now, id, &why);
        }
    }

    fn look_after(&mut self, now: Instant, id: u32) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.is_closing() && connection.deadline() <= now {
            return self.close(now, id, &Ending::Closed);
        }
        if connection.is_securing() && connection.deadline() <= now {
            return self.refuse(now, id, HandshakeFault::Late);
        }
        if connection.is_connecting() && connection.deadline() <= now {
            return self.close(now, id, &Ending::NotMade(io::ErrorKind::TimedOut.into()));
        }
        connection.framer.handle_timeout(now);
        if connection.is_open() && connection.idle_at() <= now {
            return self.close(now, id, &Ending::Idle);
        }
        if connection.is_open() && connection.first_until.is_some_and(|until| until <= now) {
            return self.close(now, id, &Ending::Wordless);
        }
        connection.armed = connection.deadline();
        self.deadlines.insert((connection.armed, id));
        self.take(now, id);
    }

    /// Writes once.
    fn write(&mut self, now: Instant, id: u32) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.is_connecting() || connection.is_securing() {
            return;
        }
        if !connection.is_flushed() {
            self.counters.writes += 1;
            match connection.write(now) {
                Ok(len) => self.counters.bytes_out += len as u64,
                Err(error) if is_passing(&error) => {}
                Err(error) => return self.close(now, id, &Ending::Io(error)),
            }
        }
        if connection.is_closing() {
            return;
        }
        let blocked = !connection.is_flushed();
        if std::mem::replace(&mut connection.blocked, blocked) != blocked {
            let token = self.tokens.connections + u64::from(id);
            if let Err(error) = self.poller.modify(&*connection.wire.socket, token, blocked) {
                self.close(now, id, &Ending::Io(error));
            }
        }
    }

    /// Ends a connection. What was not said goes where else it may go, or back.
    fn close(&mut self, now: Instant, id: u32, why: &Ending) {
        let Some(mut connection) = self.connections.remove(&id) else { return };
        self.deadlines.remove(&(connection.armed, id));
        self.poller.remove(&*connection.wire.socket);
        let (socket, remote) = (connection.listener, connection.remote);
        self.forget_remote((socket, remote), id);
        if connection.is_securing() {
            // The handshakes have the file, too: they are to see the end.
            let _ = connection.wire.socket.shutdown(std::net::Shutdown::Both);
        } else {
            connection.wire.say_over();
        }
        if let Some(listener) = self.listeners.get_mut(&socket) {
            if let Some(securing) = listener.securing.as_mut().filter(|_| connection.is_securing())
            {
                securing.given_up += 1;
            }
            if connection.is_made {
                listener.made.leave(remote.ip());
            } else {
                listener.crowd.leave(remote.ip());
            }
        }
        if !connection.is_closing() {
            self.endings.count(why);
        }
        for Unsent { to, bytes } in connection.take_unsent() {
            match to {
                None => {}
                Some(to) if to == remote => self.give_back(socket, to, bytes),
                // Over a connection with that peer, and if that ends, too, it comes back.
                Some(to) => self.send(now, socket, None, to, bytes),
            }
        }
    }

    fn give_back(&mut self, socket: SocketId, to: SocketAddr, bytes: Bytes) {
        self.counters.unsent += 1;
        self.events.push_back(Input::Unsent { socket, to, bytes });
    }

    fn forget_remote(&mut self, place: (SocketId, SocketAddr), id: u32) {
        if self.by_remote.get(&place) == Some(&id) {
            self.by_remote.remove(&place);
        }
    }

    /// Looks after a connection sooner, if that is needed.
    fn arm(&mut self, id: u32) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let at = connection.deadline();
        if at < connection.armed {
            self.deadlines.remove(&(connection.armed, id));
            connection.armed = at;
            self.deadlines.insert((at, id));
        }
    }

    fn token(&self, id: u32) -> u64 {
        self.tokens.connections + u64::from(id)
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
    )
}

/// How much one turn reads from one connection.
const READ_LEN_MAX: usize = 1 << 14;
/// After how much a turn reads from no other one.
const TURN: Budget = Budget { bytes: 1 << 17, messages: 256 };
/// How long nothing is accepted when there are no files.
const PAUSE: Duration = Duration::from_millis(200);
/// How long the answer to a peer that broke the limits may take, until that peer has read it.
const LAST_WORDS_MAX: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests;
