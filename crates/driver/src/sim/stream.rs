//! Streams of SIP without TCP: ordered, late instead of lossy, and mortal.
//!
//! TLS costs nothing here and fails only where the other end has none, or has it alone.
//! A message is cut out of what comes by the same framer as with real sockets. Every message comes whole,
//! so of a listener's limits only the time to connect and that to acknowledge play a part.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use sip_core::framer::{self, Framer};

use super::fault::retransmitted_at;
use super::{Event as SimEvent, Sim, Watch, nanos};
use crate::node::{BindError, ConnectionId, Input, Node, SocketId};
use crate::stream::StreamLimits;

/// What a lost segment costs.
const LOSS_DELAY: Duration = Duration::from_millis(200);
/// The first port that a connection is made from.
const EPHEMERAL_FIRST: u16 = 49_152;

/// A stream socket.
pub(super) struct Listening {
    local: SocketAddr,
    limits: StreamLimits,
    is_tls: bool,
}

/// A connection: who made it, and whom it was made to.
pub(super) struct Stream {
    ends: [End; 2],
}

/// One end, and what is under way to it.
struct End {
    node: usize,
    socket: SocketId,
    /// The other end's address.
    remote: SocketAddr,
    state: State,
    framer: Framer,
    unacknowledged_max: u64,
    /// When what was sent last so far arrives.
    last_at: u64,
    /// What waits for the end of a cut, and when it was sent.
    held: Vec<(u64, Event)>,
}

enum State {
    /// The peer's host has not answered; what is to be said then.
    Connecting(Vec<Bytes>),
    Open,
    Closed,
}

/// What happens to a connection.
pub(super) enum Event {
    /// It reaches the host that it is made to.
    Connect { stream: usize },
    /// The host's answer reaches the one who made it.
    Connected { stream: usize, accepted: bool },
    /// The one who made it waits no longer.
    GiveUp { stream: usize },
    /// Bytes reach an end.
    Bytes { stream: usize, end: usize, bytes: Bytes },
    /// The other end closed, or its process died.
    Fin { stream: usize, end: usize },
    /// What left an end may have been under way for too long.
    Stall { stream: usize, end: usize, sent: u64 },
}

impl Event {
    /// The connection, and the end that it happens to.
    fn place(&self) -> (usize, usize) {
        match *self {
            Self::Connect { stream } => (stream, 1),
            Self::Connected { stream, .. } | Self::GiveUp { stream } => (stream, 0),
            Self::Bytes { stream, end, .. }
            | Self::Fin { stream, end }
            | Self::Stall { stream, end, .. } => (stream, end),
        }
    }
}

impl<N: Node> Sim<N> {
    pub(super) fn listen(
        &mut self,
        node: usize,
        socket: SocketId,
        local: SocketAddr,
        limits: StreamLimits,
        is_tls: bool,
    ) -> Result<SocketAddr, BindError> {
        let slot = &self.nodes[node];
        if slot.listening.contains_key(&socket) || slot.sockets.contains_key(&socket) {
            return Err(BindError::InUse);
        }
        if !slot.ips.contains(&local.ip()) {
            return Err(BindError::NotHere);
        }
        let taken = self.nodes.iter().flat_map(|slot| slot.listening.values());
        if taken.into_iter().any(|other| other.local == local) {
            return Err(BindError::InUse);
        }
        self.nodes[node].listening.insert(socket, Listening { local, limits, is_tls });
        Ok(local)
    }

    pub(super) fn unlisten(&mut self, node: usize, socket: SocketId) {
        if self.nodes[node].listening.remove(&socket).is_some() {
            self.close_streams(|end| end.node == node && end.socket == socket);
        }
    }

    /// Says a message over a connection.
    pub(super) fn stream_message(
        &mut self,
        node: usize,
        socket: SocketId,
        over: Option<ConnectionId>,
        to: SocketAddr,
        bytes: Bytes,
    ) {
        let stands = |(stream, end): (usize, usize)| {
            let end = &self.streams.get(stream)?.ends[end];
            let is_its = end.node == node && end.socket == socket;
            (is_its && matches!(end.state, State::Open)).then_some(())
        };
        let known = over.map(place).filter(|place| stands(*place).is_some());
        let known = known.or_else(|| self.stream_with(node, socket, to));
        let Some((stream, end)) = known.or_else(|| self.make_stream(node, socket, to)) else {
            return self.tell_later(node, self.now, Input::Unsent { socket, to, bytes });
        };
        match &mut self.streams[stream].ends[end].state {
            State::Connecting(waiting) => waiting.push(bytes),
            State::Open => self.carry_stream(Event::Bytes { stream, end: 1 - end, bytes }),
            State::Closed => {}
        }
    }

    pub(super) fn stream_event(&mut self, event: Event, watch: Watch<'_>) -> bool {
        let (stream, end) = event.place();
        let node = self.streams[stream].ends[end].node;
        let is_kernels = matches!(event, Event::Connect { .. } | Event::Stall { .. });
        if self.nodes[node].is_paused && !is_kernels {
            self.nodes[node].inbox.push_back(SimEvent::Stream(event));
            return false;
        }
        match event {
            Event::Connect { .. } => self.stream_reaches(stream),
            Event::Connected { accepted, .. } => self.stream_answered(stream, accepted),
            Event::GiveUp { .. } => {
                if matches!(self.streams[stream].ends[0].state, State::Connecting(_)) {
                    self.stream_answered(stream, false);
                }
            }
            Event::Bytes { bytes, .. } => return self.stream_bytes(stream, end, &bytes, watch),
            Event::Fin { .. } => self.streams[stream].ends[end].state = State::Closed,
            Event::Stall { sent, .. } => {
                let held = &self.streams[stream].ends[1 - end].held;
                if held.first().is_some_and(|(first, _)| *first <= sent) {
                    self.streams[stream].ends[1 - end].held.clear();
                    self.streams[stream].ends[end].state = State::Closed;
                }
            }
        }
        false
    }

    /// The kernel of a process that ended closes its connections.
    pub(super) fn end_streams(&mut self, node: usize) {
        self.close_streams(|end| end.node == node);
    }

    /// A process is gone, and its ends with it.
    pub(super) fn forget_streams(&mut self, node: usize) {
        self.nodes[node].listening.clear();
        for end in self.streams.iter_mut().flat_map(|stream| &mut stream.ends) {
            if end.node == node {
                end.state = State::Closed;
            }
        }
    }

    /// The connections between two processes are gone, and both know it.
    pub(super) fn forget_between(&mut self, one: usize, other: usize) {
        for Stream { ends } in &mut self.streams {
            let nodes = (ends[0].node, ends[1].node);
            if nodes == (one, other) || nodes == (other, one) {
                ends.iter_mut().for_each(|end| end.state = State::Closed);
            }
        }
    }

    /// Lets what waited for the end of a cut go on.
    pub(super) fn release_streams(&mut self, from: usize, to: usize) {
        for stream in 0..self.streams.len() {
            for end in 0..2 {
                let ends = &self.streams[stream].ends;
                if ends[end].node == to && ends[1 - end].node == from {
                    for (sent, event) in std::mem::take(&mut self.streams[stream].ends[end].held) {
                        let at = retransmitted_at(sent, self.now);
                        self.stream_arrives(at, event);
                    }
                }
            }
        }
    }

    /// Finds the newest usable end of a node whose peer has this address.
    fn stream_with(&self, node: usize, socket: SocketId, to: SocketAddr) -> Option<(usize, usize)> {
        let fits = |end: &End| {
            end.node == node
                && end.socket == socket
                && end.remote == to
                && !matches!(end.state, State::Closed)
        };
        (0..self.streams.len()).rev().find_map(|stream| {
            let end = self.streams[stream].ends.iter().position(fits)?;
            Some((stream, end))
        })
    }

    /// Begins to make a connection.
    fn make_stream(
        &mut self,
        node: usize,
        socket: SocketId,
        to: SocketAddr,
    ) -> Option<(usize, usize)> {
        let listening = self.nodes[node].listening.get(&socket)?;
        let (local, limits) = (listening.local, listening.limits);
        let peer = self.nodes.iter().position(|slot| {
            slot.listening.values().any(|other| other.local == to) || slot.ips.contains(&to.ip())
        })?;
        if to.port() == 0 || self.nodes[node].makes_no_streams {
            return None;
        }
        let stream = self.streams.len();
        let port = EPHEMERAL_FIRST + u16::try_from(stream % 16_000).unwrap_or(0);
        let end = |node, socket, remote, state| End {
            node,
            socket,
            remote,
            state,
            framer: Framer::new(limits.framer()),
            unacknowledged_max: nanos(limits.message_time_max),
            last_at: 0,
            held: Vec::new(),
        };
        let from = SocketAddr::new(local.ip(), port);
        self.streams.push(Stream {
            ends: [
                end(node, socket, to, State::Connecting(Vec::new())),
                // Whose socket it is shows when it gets there.
                end(peer, socket, from, State::Closed),
            ],
        });
        let give_up_at = self.now + nanos(limits.connect_time_max);
        self.calendar.schedule(give_up_at, SimEvent::Stream(Event::GiveUp { stream }));
        let is_lost = self.routes[node][peer].is_cut || self.nodes[peer].host_is_down;
        if !is_lost {
            self.stream_arrives(self.now, Event::Connect { stream });
        }
        Some((stream, 0))
    }

    /// A connection reaches the host that it is made to.
    fn stream_reaches(&mut self, stream: usize) {
        let to = self.streams[stream].ends[0].remote;
        let peer = self.streams[stream].ends[1].node;
        let slot = &self.nodes[peer];
        if slot.host_is_down {
            return;
        }
        let End { node, socket: from, .. } = &self.streams[stream].ends[0];
        let is_tls = self.nodes[*node].listening.get(from).is_some_and(|from| from.is_tls);
        let mut listening = slot.listening.iter().filter(|_| slot.node.is_some());
        let fits = |other: &Listening| other.local == to && other.is_tls == is_tls;
        let socket = listening.find(|(_, other)| fits(other)).map(|(socket, _)| *socket);
        if let Some(socket) = socket {
            let end = &mut self.streams[stream].ends[1];
            end.socket = socket;
            end.state = State::Open;
        }
        self.carry_stream(Event::Connected { stream, accepted: socket.is_some() });
    }

    fn stream_answered(&mut self, stream: usize, accepted: bool) {
        let end = &mut self.streams[stream].ends[0];
        let State::Connecting(waiting) = std::mem::replace(&mut end.state, State::Closed) else {
            return;
        };
        let (node, socket, to) = (end.node, end.socket, end.remote);
        if accepted {
            end.state = State::Open;
            for bytes in waiting {
                self.carry_stream(Event::Bytes { stream, end: 1, bytes });
            }
            return;
        }
        for bytes in waiting {
            self.tell_later(node, self.now, Input::Unsent { socket, to, bytes });
        }
    }

    fn stream_bytes(&mut self, stream: usize, at: usize, bytes: &Bytes, watch: Watch<'_>) -> bool {
        let now = self.now();
        let end = &mut self.streams[stream].ends[at];
        if !matches!(end.state, State::Open) {
            if !self.nodes[end.node].host_is_down {
                // Reset by its kernel.
                self.carry_stream(Event::Fin { stream, end: 1 - at });
            }
            return false;
        }
        end.framer.handle_input(now, bytes);
        let (node, socket, from) = (end.node, end.socket, end.remote);
        let mut seen = false;
        while let Some(found) = self.streams[stream].ends[at].framer.poll_output() {
            match found {
                framer::Output::Message(message) => {
                    let message = Box::new(message);
                    let connection = name(stream, at);
                    let input = Input::Message { socket, connection, from, message };
                    seen |= self.deliver(node, input, watch);
                }
                framer::Output::Ping => {
                    let bytes = Bytes::from_static(b"\r\n");
                    self.carry_stream(Event::Bytes { stream, end: 1 - at, bytes });
                }
                framer::Output::Pong => {}
                framer::Output::Failed(_) => {
                    self.streams[stream].ends[at].state = State::Closed;
                    self.carry_stream(Event::Fin { stream, end: 1 - at });
                }
            }
        }
        seen
    }

    fn close_streams(&mut self, is_it: impl Fn(&End) -> bool) {
        for stream in 0..self.streams.len() {
            for end in 0..2 {
                let closes = &mut self.streams[stream].ends[end];
                let is_open = matches!(closes.state, State::Open);
                if is_it(closes) {
                    closes.state = State::Closed;
                    if is_open {
                        self.carry_stream(Event::Fin { stream, end: 1 - end });
                    }
                }
            }
        }
    }

    /// Sends something to an end, after all that was sent before.
    fn carry_stream(&mut self, event: Event) {
        let (stream, end) = event.place();
        let ends = &self.streams[stream].ends;
        let (from, to) = (ends[1 - end].node, ends[end].node);
        let unacknowledged_max = ends[1 - end].unacknowledged_max;
        if self.routes[from][to].is_cut || self.nodes[to].host_is_down {
            let (end, sent) = (1 - end, self.now);
            let stall = Event::Stall { stream, end, sent };
            self.calendar.schedule(sent + unacknowledged_max, SimEvent::Stream(stall));
            self.streams[stream].ends[1 - end].held.push((sent, event));
        } else {
            self.stream_arrives(self.now, event);
        }
    }

    /// Draws when something that left at `sent` arrives, and schedules it.
    fn stream_arrives(&mut self, sent: u64, event: Event) {
        let (stream, end) = event.place();
        let ends = &self.streams[stream].ends;
        let path = self.routes[ends[1 - end].node][ends[end].node].path;
        let mut at = sent + nanos(path.delay) + self.random.below(nanos(path.jitter));
        while self.random.hits(path.loss.min(0.5)) {
            at += nanos(LOSS_DELAY);
        }
        let last_at = &mut self.streams[stream].ends[end].last_at;
        *last_at = at.max(*last_at);
        self.calendar.schedule(*last_at, SimEvent::Stream(event));
    }
}

/// Names an end of a connection.
fn name(stream: usize, end: usize) -> ConnectionId {
    ConnectionId(u32::try_from(2 * stream + end + 1).unwrap_or(u32::MAX))
}

/// Returns which end of which connection has a name.
fn place(ConnectionId(name): ConnectionId) -> (usize, usize) {
    let index = usize::try_from(name.saturating_sub(1)).unwrap_or(usize::MAX);
    (index / 2, index % 2)
}
