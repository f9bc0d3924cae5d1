//! Stream sockets for SIP: one TCP connection carries many messages.
//!
//! A connection is cut, and counted by its reason, when its peer breaks the limits of its listener.
//! What could not be said is given back to the node. Nothing here waits for a peer: a turn reads once
//! from each readable connection and writes once to each that has something to say.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nix::sys::epoll::EpollFlags;
use sip_core::framer::{self, Crowd, CrowdConfig, CrowdError, FramerError};
use socket2::Socket;
use tracing::warn;

use self::connection::Connection;
use self::ending::{Ending, Endings, Refusal};
use crate::metrics::Metrics;
use crate::node::{BindError, ConnectionId, Input, SocketId};
use crate::sockets::bind_error;
use crate::sys::{Poller, files_max};

mod connection;
mod ending;
mod tcp;

/// What peers may do with the connections of one listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// Connections at one time that peers made, and as many that were made to peers. Fewer if the
    /// process may not have so many files.
    pub connections_max: usize,
    /// Connections at one time that one source made: an IPv4 address, or a network of 64 bits for
    /// IPv6.
    pub per_source_max: usize,
    /// Bytes of a message's start line and headers, and as many of its body.
    pub message_len_max: usize,
    /// From the first byte of a message to its last. A connection that was made to us has to say
    /// something within that time, and what is sent has to be acknowledged by the peer's host.
    pub message_time_max: Duration,
    /// How long a connection may carry nothing in either direction.
    pub idle_max: Duration,
    /// Bytes that may wait for a peer that does not read them.
    pub unsent_len_max: usize,
    /// How long making a connection may take.
    pub connect_time_max: Duration,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            per_source_max: 256,
            message_len_max: 65_535,
            message_time_max: Duration::from_secs(10),
            // Longer than the longest registration of a phone that sends no keep-alive.
            idle_max: Duration::from_secs(4000),
            unsent_len_max: 256 * 1024,
            connect_time_max: Duration::from_secs(4),
        }
    }
}

impl StreamLimits {
    /// How messages are cut out of a stream.
    pub(crate) fn framer(&self) -> framer::Config {
        framer::Config {
            head_len_max: self.message_len_max,
            headers_max: HEADERS_MAX,
            body_len_max: self.message_len_max,
            message_time_max: self.message_time_max,
        }
    }
}

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
    events: VecDeque<Input>,
    connection_last: u32,
    scratch: Vec<u8>,
    counters: Counters,
    endings: Endings,
}

/// What is added to a name to make a token of the poller.
#[derive(Clone, Copy)]
pub(crate) struct Tokens {
    pub(crate) listeners: u64,
    pub(crate) connections: u64,
}

struct Listener {
    socket: Socket,
    local: SocketAddr,
    limits: StreamLimits,
    /// The connections that peers made.
    crowd: Crowd,
    /// How many connections were made to peers.
    made: usize,
    /// Out of file descriptors: nothing is accepted until then.
    paused_until: Option<Instant>,
}

#[derive(Default)]
struct Counters {
    accepted: u64,
    made: u64,
    messages_in: u64,
    messages_out: u64,
    bytes_in: u64,
    bytes_out: u64,
    reads: u64,
    writes: u64,
    pings: u64,
    unsent: u64,
}

impl Streams {
    pub(crate) fn new(poller: Rc<Poller>, tokens: Tokens) -> Self {
        Self {
            poller,
            tokens,
            listeners: BTreeMap::new(),
            connections: BTreeMap::new(),
            by_remote: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            unwritten: Vec::new(),
            events: VecDeque::new(),
            connection_last: 0,
            scratch: vec![0; READ_LEN_MAX],
            counters: Counters::default(),
            endings: Endings::default(),
        }
    }

    /// Opens a listener and returns its local address.
    pub(crate) fn listen(
        &mut self,
        id: SocketId,
        local: SocketAddr,
        limits: StreamLimits,
    ) -> Result<SocketAddr, BindError> {
        if self.listeners.contains_key(&id) {
            return Err(BindError::InUse);
        }
        let socket = tcp::listen(local).map_err(|error| bind_error(&error))?;
        let added = self.poller.add(&socket, self.tokens.listeners + u64::from(id.0), false);
        added.map_err(|error| bind_error(&error))?;
        let local = socket.local_addr().ok().and_then(|local| local.as_socket()).unwrap_or(local);
        let connections_max = limits.connections_max.min(connections_max());
        if connections_max < limits.connections_max {
            warn!(%local, connections_max, "the limit of open files allows fewer connections");
        }
        let limits = StreamLimits { connections_max, ..limits };
        let per_source_max = limits.per_source_max;
        let crowd = Crowd::new(CrowdConfig { connections_max, per_source_max });
        self.listeners
            .insert(id, Listener { socket, local, limits, crowd, made: 0, paused_until: None });
        Ok(local)
    }

    /// Whether a name is that of a listener.
    pub(crate) fn has(&self, id: SocketId) -> bool {
        self.listeners.contains_key(&id)
    }

    /// Writes once what waits, and closes a listener with its connections.
    pub(crate) fn unlisten(&mut self, now: Instant, id: SocketId) {
        let its =
            |(own, connection): (&u32, &Connection)| (connection.listener == id).then_some(*own);
        for connection in self.connections.iter().filter_map(its).collect::<Vec<_>>() {
            self.write(now, connection);
            self.close(connection, &Ending::Unlistened);
        }
        if let Some(listener) = self.listeners.remove(&id) {
            self.poller.remove(&listener.socket);
        }
    }

    /// Takes in connections that were made to a listener: not all at once, so that nobody else waits.
    pub(crate) fn accept(&mut self, now: Instant, id: SocketId) {
        for _ in 0..ACCEPTS_MAX {
            let Some(listener) = self.listeners.get_mut(&id) else { return };
            let (socket, remote) = match listener.socket.accept() {
                Ok((socket, remote)) => (socket, remote.as_socket()),
                Err(error) if is_passing(&error) => return,
                Err(error) => {
                    // It would be ready again at once, and fail again.
                    self.poller.remove(&listener.socket);
                    listener.paused_until = Some(now + PAUSE);
                    if self.endings.refuse(now, Refusal::Files) {
                        warn!(%error, local = %listener.local, "cannot accept a connection");
                    }
                    return;
                }
            };
            let Some(remote) = remote else { continue };
            if let Err(full) = listener.crowd.enter(remote.ip()) {
                let refusal = match full {
                    CrowdError::Source => Refusal::Source,
                    CrowdError::All | _ => Refusal::All,
                };
                if self.endings.refuse(now, refusal) {
                    warn!(%remote, local = %listener.local, why = %full, "connection refused");
                }
                continue;
            }
            let (config, limits) = (listener.limits.framer(), listener.limits);
            let connection = Connection::accepted(now, id, socket, remote, config, limits);
            self.counters.accepted += 1;
            self.insert(connection);
        }
    }

    /// Reads and writes a connection that `poller` says is ready.
    pub(crate) fn ready(&mut self, now: Instant, id: u32, flags: EpollFlags) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.is_connecting() {
            match connection.connected(now) {
                Ok(()) => self.unwritten.push(id),
                Err(error) => self.close(id, &Ending::NotMade(error)),
            }
            return;
        }
        if flags.contains(EpollFlags::EPOLLOUT) {
            self.unwritten.push(id);
        }
        if flags.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR) {
            self.read(now, id);
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
        let known = known.or_else(|| self.by_remote.get(&(socket, to)).copied());
        let Some(id) = known.or_else(|| self.connect(now, socket, to)) else {
            return self.give_back(socket, to, bytes);
        };
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.push(bytes.clone()) {
            self.counters.messages_out += 1;
            self.unwritten.push(id);
        } else {
            self.give_back(socket, to, bytes);
            self.close(id, &Ending::Unread);
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
        self.connections.values().all(|it| it.is_flushed() || it.is_connecting())
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

    pub(crate) fn metrics(&self, out: &mut Metrics) {
        if self.listeners.is_empty() {
            return;
        }
        let counters = &self.counters;
        let (name, help) = ("driver_stream_connections_total", "Connections of SIP streams.");
        out.counter(name, help, &[("made_by", "peer")], counters.accepted);
        out.counter(name, help, &[("made_by", "us")], counters.made);
        let (name, help) = ("driver_stream_messages_total", "Messages on SIP streams.");
        out.counter(name, help, &[("direction", "in")], counters.messages_in);
        out.counter(name, help, &[("direction", "out")], counters.messages_out);
        let (name, help) = ("driver_stream_bytes_total", "Bytes on SIP streams.");
        out.counter(name, help, &[("direction", "in")], counters.bytes_in);
        out.counter(name, help, &[("direction", "out")], counters.bytes_out);
        let (name, help) = ("driver_stream_calls_total", "System calls on SIP streams.");
        out.counter(name, help, &[("call", "read")], counters.reads);
        out.counter(name, help, &[("call", "write")], counters.writes);
        let (name, help) = ("driver_stream_pings_total", "Keep-alives that were answered.");
        out.counter(name, help, &[], counters.pings);
        let (name, help) =
            ("driver_stream_unsent_total", "Messages for which there was no connection.");
        out.counter(name, help, &[], counters.unsent);
        let open = u32::try_from(self.connections.len()).unwrap_or(u32::MAX);
        let (name, help) = ("driver_streams", "Connections of SIP streams that are open.");
        out.gauge(name, help, &[], f64::from(open));
        self.endings.metrics(out);
    }

    /// Begins to make a connection; returns its name.
    fn connect(&mut self, now: Instant, id: SocketId, to: SocketAddr) -> Option<u32> {
        let listener = self.listeners.get_mut(&id)?;
        let fits = is_one_host(to) && to.is_ipv4() == listener.local.is_ipv4();
        if !fits || listener.limits.connections_max <= listener.made {
            return None;
        }
        let (config, limits) = (listener.limits.framer(), listener.limits);
        match tcp::connect(listener.local.ip(), to) {
            Ok(socket) => {
                listener.made += 1;
                self.counters.made += 1;
                self.insert(Connection::made(now, id, socket, to, config, limits))
            }
            Err(error) => {
                self.endings.count(&Ending::NotMade(error));
                None
            }
        }
    }

    /// Takes in a connection; returns its name.
    fn insert(&mut self, connection: Connection) -> Option<u32> {
        // After four billion connections the first names are free again.
        self.connection_last = self.connection_last.checked_add(1).unwrap_or(1);
        let id = self.connection_last;
        let (token, connecting) = (self.token(id), connection.is_connecting());
        let set_up = tcp::set_up(&connection.socket, connection.limits.message_time_max);
        let added = set_up.and_then(|()| self.poller.add(&connection.socket, token, connecting));
        self.by_remote.insert((connection.listener, connection.remote), id);
        self.deadlines.insert((connection.armed, id));
        self.connections.insert(id, connection);
        if let Err(error) = added {
            self.close(id, &Ending::Io(error));
            return None;
        }
        Some(id)
    }

    /// Reads once what has come, all messages in it.
    fn read(&mut self, now: Instant, id: u32) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        self.counters.reads += 1;
        match connection.read(now, &mut self.scratch) {
            Ok(0) => self.close(id, &Ending::Closed),
            Ok(len) => {
                self.counters.bytes_in += len as u64;
                self.take(now, id);
            }
            Err(error) if is_passing(&error) => {}
            Err(error) => self.close(id, &Ending::Io(error)),
        }
    }

    /// Takes what the framer of a connection has found.
    fn take(&mut self, now: Instant, id: u32) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        while let Some(found) = connection.framer.poll_output() {
            match found {
                framer::Output::Message(message) => {
                    self.counters.messages_in += 1;
                    self.events.push_back(Input::Message {
                        socket: connection.listener,
                        connection: ConnectionId(id),
                        from: connection.remote,
                        message: Box::new(message),
                    });
                }
                framer::Output::Ping => {
                    self.counters.pings += 1;
                    if connection.push(Bytes::from_static(PONG)) {
                        self.unwritten.push(id);
                    }
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
        self.poller.remove(&connection.socket);
        let place = (connection.listener, connection.remote);
        self.forget_remote(place, id);
        if is_answered {
            self.arm(id);
        } else {
            self.write(now, id);
            self.close(id, &why);
        }
    }

    fn look_after(&mut self, now: Instant, id: u32) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.is_closing() && connection.deadline() <= now {
            return self.close(id, &Ending::Closed);
        }
        if connection.is_connecting() && connection.deadline() <= now {
            return self.close(id, &Ending::NotMade(io::ErrorKind::TimedOut.into()));
        }
        connection.framer.handle_timeout(now);
        if connection.is_open() && connection.idle_at() <= now {
            return self.close(id, &Ending::Idle);
        }
        connection.armed = connection.deadline();
        self.deadlines.insert((connection.armed, id));
        self.take(now, id);
    }

    /// Writes once.
    fn write(&mut self, now: Instant, id: u32) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.is_connecting() {
            return;
        }
        if !connection.is_flushed() {
            self.counters.writes += 1;
            match connection.write(now) {
                Ok(len) => self.counters.bytes_out += len as u64,
                Err(error) if is_passing(&error) => {}
                Err(error) => return self.close(id, &Ending::Io(error)),
            }
        }
        if connection.is_closing() {
            return;
        }
        let blocked = !connection.is_flushed();
        if std::mem::replace(&mut connection.blocked, blocked) != blocked {
            let token = self.tokens.connections + u64::from(id);
            if let Err(error) = self.poller.modify(&connection.socket, token, blocked) {
                self.close(id, &Ending::Io(error));
            }
        }
    }

    /// Ends a connection and gives back what was not said.
    fn close(&mut self, id: u32, why: &Ending) {
        let Some(mut connection) = self.connections.remove(&id) else { return };
        self.deadlines.remove(&(connection.armed, id));
        self.poller.remove(&connection.socket);
        let (socket, remote) = (connection.listener, connection.remote);
        self.forget_remote((socket, remote), id);
        if let Some(listener) = self.listeners.get_mut(&socket) {
            if connection.is_made {
                listener.made -= 1;
            } else {
                listener.crowd.leave(remote.ip());
            }
        }
        if !connection.is_closing() {
            self.endings.count(why);
        }
        for bytes in connection.take_unsent() {
            if bytes != PONG {
                self.give_back(socket, remote, bytes);
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

/// How many connections the limit of open files leaves room for, both ways each.
fn connections_max() -> usize {
    let files = usize::try_from(files_max().unwrap_or(FILES_KEPT)).unwrap_or(usize::MAX);
    let kept = usize::try_from(FILES_KEPT).unwrap_or(usize::MAX);
    (files.saturating_sub(kept) / 2).max(1)
}

/// Whether a connection can go there, and to one host only.
fn is_one_host(addr: SocketAddr) -> bool {
    let ip = addr.ip();
    addr.port() != 0
        && !ip.is_unspecified()
        && !ip.is_multicast()
        && ip != IpAddr::V4(Ipv4Addr::BROADCAST)
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
    )
}

/// Header lines of a message.
const HEADERS_MAX: usize = 256;
/// How much one turn reads from one connection.
const READ_LEN_MAX: usize = 1 << 16;
/// How many connections one turn accepts.
const ACCEPTS_MAX: usize = 64;
/// How long nothing is accepted when there are no files.
const PAUSE: Duration = Duration::from_millis(200);
/// How long the answer to a peer that broke the limits may take, until that peer has read it.
const LAST_WORDS_MAX: Duration = Duration::from_millis(500);
/// Files that SIP streams leave to links, HTTP and the store.
const FILES_KEPT: u64 = 512;
/// RFC 5626 §4.4.1.
const PONG: &[u8] = b"\r\n";
