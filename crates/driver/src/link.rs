//! Links between nodes: one TCP connection per peer and class.
//!
//! A link is dialled until it stands and again when it ends. The dialler says
//! hello, the other answers with its own, and the link is up. It closes when the peer
//! breaks the protocol or is silent for [`SILENCE_MAX`], never because there
//! is much to carry: then the queue drops, and says so before.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::epoll::EpollFlags;
use socket2::Socket;
use tracing::{debug, warn};

use self::connection::{Connection, State};
use self::ending::{Ending, Faults};
use crate::frame::Reader;
use crate::metrics::Metrics;
use crate::node::{Class, Input, NodeId};
use crate::patience::{BACKOFF_MAX, BACKOFF_MIN, GREETING_MAX, SILENCE_MAX};
use crate::queue::{QUEUE_LEN_MAX, Queue};
use crate::sys::{Bell, Poller};
use crate::tls::Tls;
use crate::tls::handshakes::Handshakes;
use crate::tls::wire::{Scratch, Wire};

mod config;
mod connection;
mod ending;
mod tcp;
#[cfg(test)]
mod tests;

pub use config::{Dial, LinksConfig, LinksError, Security};

/// Connections at once, those that have not said who they are included.
const CONNECTIONS_MAX: usize = 1024;
/// Connections at once that came in and have not said who they are: fewer than a process may have files.
const STRANGERS_MAX: usize = 256;
/// How much one turn reads from one link.
const READ_LEN_MAX: usize = 1 << 18;
/// How much of a link is encrypted and not yet taken by the kernel. It has no age, so it is kept small.
const SEALED_LEN_MAX: usize = 1 << 17;
/// Rung when a handshake has ended.
pub(crate) const HANDSHAKES_TOKEN: u64 = u64::MAX - 3;

/// Who this process is to its peers.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) node: NodeId,
    pub(crate) role: String,
    pub(crate) boot: u64,
}

/// All links of a process.
pub(crate) struct Links {
    poller: Rc<Poller>,
    identity: Identity,
    local: Option<IpAddr>,
    peers: Option<BTreeMap<NodeId, Option<IpAddr>>>,
    listener: Option<Listener>,
    targets: Vec<Target>,
    connections: BTreeMap<u64, Connection>,
    /// Those that came in and have not said who they are.
    strangers: BTreeSet<u64>,
    /// With TLS.
    handshakes: Option<Handshakes<Tls>>,
    /// Rung when one has ended.
    handshaken: Arc<Bell>,
    /// The connections that are links.
    up: BTreeMap<(NodeId, Class), u64>,
    /// Connections whose queues are to be written in this turn.
    unwritten: Vec<u64>,
    events: VecDeque<Input>,
    connection_next: u64,
    /// When `handle_timeout` has something to look at; maybe too early.
    look_at: Instant,
    scratch: Scratch,
    counters: Counters,
    faults: Faults,
}

struct Listener {
    socket: Socket,
    token: u64,
    /// Out of file descriptors: nothing is accepted until then.
    paused_until: Option<Instant>,
}

struct Target {
    peer: NodeId,
    addr: SocketAddr,
    class: Class,
    backoff: Duration,
    state: TargetState,
}

#[derive(Clone, Copy)]
enum TargetState {
    Waiting { dial_at: Instant },
    Dialled,
}

#[derive(Default)]
struct Counters {
    frames_in: u64,
    frames_out: u64,
    bytes_in: u64,
    bytes_out: u64,
    reads: u64,
    writes: u64,
    dropped_down: u64,
    dropped_full: u64,
    dropped_old: u64,
    unknown: u64,
    congested: u64,
    dials: u64,
}

impl Links {
    /// Opens the listener, whose token in `poller` is `listener_token`.
    pub(crate) fn new(
        config: &LinksConfig,
        identity: Identity,
        now: Instant,
        poller: Rc<Poller>,
        listener_token: u64,
    ) -> Result<Self, LinksError> {
        config.check(identity.node)?;
        let listener = match config.listen {
            None => None,
            Some(addr) => Some(
                tcp::listen(addr)
                    .and_then(|socket| {
                        poller.add(&socket, listener_token, false)?;
                        Ok(Listener { socket, token: listener_token, paused_until: None })
                    })
                    .map_err(|source| LinksError::Listen { addr, source })?,
            ),
        };
        let handshaken = Arc::new(Bell::new().map_err(LinksError::Thread)?);
        let handshakes = match &config.security {
            Security::Undecided | Security::Plaintext => None,
            Security::Tls(tls) => Some(
                Handshakes::start(tls.clone(), handshaken.clone())
                    .and_then(|handshakes| {
                        poller.add(&*handshaken, HANDSHAKES_TOKEN, false)?;
                        Ok(handshakes)
                    })
                    .map_err(LinksError::Thread)?,
            ),
        };
        let mut targets = Vec::new();
        for dial in &config.dial {
            targets.extend(dial.classes.iter().map(|&class| Target {
                peer: dial.peer,
                addr: dial.addr,
                class,
                backoff: BACKOFF_MIN,
                state: TargetState::Waiting { dial_at: now },
            }));
        }
        Ok(Self {
            poller,
            identity,
            local: config.local,
            peers: config.peers.clone(),
            listener,
            targets,
            connections: BTreeMap::new(),
            strangers: BTreeSet::new(),
            handshakes,
            handshaken,
            up: BTreeMap::new(),
            unwritten: Vec::new(),
            events: VecDeque::new(),
            connection_next: 0,
            look_at: now,
            scratch: Scratch::new(READ_LEN_MAX),
            counters: Counters::default(),
            faults: Faults::default(),
        })
    }

    /// Takes in every connection that was made to the listener.
    pub(crate) fn accept(&mut self, now: Instant) {
        while let Some(listener) = &mut self.listener {
            let (socket, remote) = match listener.socket.accept() {
                Ok((socket, remote)) => (socket, remote.as_socket()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    // It would be ready again at once, and fail again.
                    warn!(%error, "cannot accept a link");
                    self.poller.remove(&listener.socket);
                    listener.paused_until = Some(now + BACKOFF_MAX);
                    self.look_at = self.look_at.min(now + BACKOFF_MAX);
                    return;
                }
            };
            let Some(remote) = remote else { continue };
            let full =
                STRANGERS_MAX <= self.strangers.len() || CONNECTIONS_MAX <= self.connections.len();
            if full && !self.make_room(now) {
                warn!(%remote, "link refused: too many connections");
                continue;
            }
            let state = State::Greeting { until: now + GREETING_MAX };
            match self.connection(now, socket, remote, None, state) {
                Ok(id) => {
                    self.strangers.insert(id);
                    self.greet(now, id);
                }
                Err(error) => warn!(%remote, %error, "link refused"),
            }
        }
    }

    /// Takes back what the handshakes are done with.
    pub(crate) fn handshaken(&mut self, now: Instant) {
        self.handshaken.hush();
        while let Some((id, ended)) = self.handshakes.as_mut().and_then(Handshakes::poll_ended) {
            match ended {
                Ok(session) => self.secured(now, id, session),
                Err(fault) => self.close(now, id, &fault.into()),
            }
        }
    }

    /// Lets connections that are made from now on have the certificates that the files now hold.
    pub(crate) fn reload(&self) {
        if let Some(handshakes) = &self.handshakes {
            handshakes.reload();
        }
    }

    /// Reads and writes a connection that `poller` says is ready.
    pub(crate) fn ready(&mut self, now: Instant, id: u64, flags: EpollFlags) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let State::Connecting { .. } = connection.state {
            self.connected(now, id);
            return;
        }
        if flags.contains(EpollFlags::EPOLLOUT) && !self.unwritten.contains(&id) {
            self.unwritten.push(id);
        }
        if flags.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR) {
            self.read(now, id);
        }
    }

    /// Dials, keeps alive, gives up, as is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if now < self.look_at {
            return;
        }
        let due: Vec<u64> = self.connections.keys().copied().collect();
        for id in due {
            self.look_after(now, id);
        }
        for target in 0..self.targets.len() {
            if let TargetState::Waiting { dial_at } = self.targets[target].state
                && dial_at <= now
            {
                self.dial(now, target);
            }
        }
        self.listen_again(now);
        let targets = self.targets.iter().filter_map(|target| match target.state {
            TargetState::Waiting { dial_at } => Some(dial_at),
            TargetState::Dialled => None,
        });
        let connections = self.connections.values().map(|connection| connection.deadline(now));
        // Without anything to look after, the next event sets this anew.
        let listener = self.listener.as_ref().and_then(|listener| listener.paused_until);
        self.look_at =
            targets.chain(connections).chain(listener).min().unwrap_or(now + SILENCE_MAX);
    }

    /// Queues a frame for a peer; drops it if there is no link or no room.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        peer: NodeId,
        class: Class,
        kind: u16,
        payload: &[u8],
    ) {
        let id = self.up.get(&(peer, class));
        let Some((&id, connection)) = id.and_then(|id| Some((id, self.connections.get_mut(id)?)))
        else {
            self.counters.dropped_down += 1;
            return;
        };
        let State::Up { version, .. } = connection.state else { return };
        let was_empty = connection.queue.is_empty();
        if connection.queue.push(now, version, kind, payload) {
            self.counters.frames_out += 1;
        } else {
            self.counters.dropped_full += 1;
        }
        if was_empty {
            self.unwritten.push(id);
        }
        self.check_congestion(now, id);
    }

    /// Writes what was queued since the last time: once per link.
    pub(crate) fn flush(&mut self, now: Instant) {
        for id in std::mem::take(&mut self.unwritten) {
            self.write(now, id);
        }
    }

    /// Whether all that was queued is written.
    pub(crate) fn is_flushed(&self) -> bool {
        self.connections.values().all(Connection::is_flushed)
    }

    /// Returns what the node must be told next.
    pub(crate) fn poll_event(&mut self) -> Option<Input> {
        self.events.pop_front()
    }

    /// Returns when `handle_timeout` is next needed.
    pub(crate) fn poll_timeout(&self) -> Instant {
        self.look_at
    }

    /// Where the listener listens.
    #[cfg(test)]
    pub(crate) fn listens_on(&self) -> Option<SocketAddr> {
        self.listener.as_ref()?.socket.local_addr().ok()?.as_socket()
    }

    /// Adds the figures of `unix_ms` milliseconds since 1970.
    pub(crate) fn metrics(&self, unix_ms: u64, out: &mut Metrics) {
        self.faults.metrics(out);
        if let Some(handshakes) = &self.handshakes {
            let (name, help) = (
                "driver_certificate_days_left",
                "Whole days until a certificate of a file expires; below zero once it has.",
            );
            for end in handshakes.expiries() {
                end.metrics(unix_ms, name, help, out);
            }
            let (name, help) =
                ("driver_certificate_reloads_failed_total", "Times that the files were of no use.");
            out.counter(name, help, &[], handshakes.reloads_failed());
            let lent = u32::try_from(handshakes.running()).unwrap_or(u32::MAX);
            out.gauge("driver_handshakes", "Handshakes of TLS at this time.", &[], f64::from(lent));
        }
        let counters = &self.counters;
        let name = "driver_link_frames_total";
        let help = "Frames on links, keep-alives excluded when sent.";
        out.counter(name, help, &[("direction", "in")], counters.frames_in);
        out.counter(name, help, &[("direction", "out")], counters.frames_out);
        let (name, help) = ("driver_link_bytes_total", "Bytes on links.");
        out.counter(name, help, &[("direction", "in")], counters.bytes_in);
        out.counter(name, help, &[("direction", "out")], counters.bytes_out);
        let (name, help) = ("driver_link_calls_total", "System calls on links.");
        out.counter(name, help, &[("call", "read")], counters.reads);
        out.counter(name, help, &[("call", "write")], counters.writes);
        let (name, help) = ("driver_link_dropped_total", "Frames dropped before they were sent.");
        out.counter(name, help, &[("why", "down")], counters.dropped_down);
        out.counter(name, help, &[("why", "full")], counters.dropped_full);
        out.counter(name, help, &[("why", "old")], counters.dropped_old);
        let (name, help) =
            ("driver_link_unknown_total", "Frames of the links' own kinds, skipped.");
        out.counter(name, help, &[], counters.unknown);
        let (name, help) = ("driver_link_congested_total", "Times that a queue became too old.");
        out.counter(name, help, &[], counters.congested);
        let (name, help) = ("driver_link_dials_total", "Connections tried.");
        out.counter(name, help, &[], counters.dials);
        let up = u32::try_from(self.up.len()).unwrap_or(u32::MAX);
        out.gauge("driver_links_up", "Links that are up.", &[], f64::from(up));
    }

    /// Closes the connection that has waited longest for its peer's hello: who means it says it at
    /// once. Returns whether there was one.
    fn make_room(&mut self, now: Instant) -> bool {
        let Some(&id) = self.strangers.first() else { return false };
        self.close(now, id, &Ending::Crowded);
        true
    }

    fn listen_again(&mut self, now: Instant) {
        if let Some(listener) = &mut self.listener
            && listener.paused_until.is_some_and(|until| until <= now)
        {
            let added = self.poller.add(&listener.socket, listener.token, false);
            listener.paused_until = added.is_err().then_some(now + BACKOFF_MAX);
        }
    }

    fn dial(&mut self, now: Instant, index: usize) {
        let target = &self.targets[index];
        let (addr, peer, class) = (target.addr, target.peer, target.class);
        if self.up.contains_key(&(peer, class)) {
            // It dialled us first.
            self.targets[index].state = TargetState::Waiting { dial_at: now + BACKOFF_MAX };
            return;
        }
        self.counters.dials += 1;
        let state = State::Connecting { until: now + GREETING_MAX };
        let dialled = tcp::connect(self.local, addr, class)
            .and_then(|socket| self.connection(now, socket, addr, Some(index), state));
        match dialled {
            Ok(_) => self.targets[index].state = TargetState::Dialled,
            Err(error) => {
                debug!(%peer, %addr, ?class, %error, "cannot dial");
                self.redial(now, index);
            }
        }
    }

    /// Lets a target wait for its next try.
    fn redial(&mut self, now: Instant, index: usize) {
        let target = &mut self.targets[index];
        target.state = TargetState::Waiting { dial_at: now + target.backoff };
        self.look_at = self.look_at.min(now + target.backoff);
        target.backoff = BACKOFF_MAX.min(2 * target.backoff);
    }

    /// Takes in a socket; returns its connection's id, which is its token.
    fn connection(
        &mut self,
        now: Instant,
        socket: Socket,
        remote: SocketAddr,
        target: Option<usize>,
        state: State,
    ) -> io::Result<u64> {
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        let id = self.connection_next;
        self.connection_next += 1;
        let connecting = matches!(state, State::Connecting { .. });
        self.poller.add(&socket, id, connecting)?;
        let connection = Connection {
            wire: Wire::new(socket),
            remote,
            target,
            state,
            reader: Reader::default(),
            queue: Queue::new(QUEUE_LEN_MAX),
            heard_at: now,
            said_at: now,
            blocked: connecting,
        };
        self.look_at = self.look_at.min(connection.deadline(now));
        self.connections.insert(id, connection);
        Ok(id)
    }
}
