//! The same nodes without a socket: a seeded simulation of their network,
//! their clock and their deaths.
//!
//! ```
//! # use std::time::{Duration, Instant};
//! # use driver::{Class, Input, Metrics, Node, NodeId, Output, Start, sim};
//! # struct Idle;
//! # impl Node for Idle {
//! #     fn handle_input(&mut self, _: Instant, _: Input) {}
//! #     fn handle_timeout(&mut self, _: Instant) {}
//! #     fn poll_output(&mut self) -> Option<Output> { None }
//! #     fn poll_timeout(&self) -> Option<Instant> { None }
//! #     fn metrics(&self, _: &mut Metrics) {}
//! # }
//! let mut sim = sim::Sim::new(42, sim::Config::default());
//! let (gate, b2b) = (NodeId(1), NodeId(2));
//! sim.add(gate, [10, 0, 0, 1].into(), &[], |_start: Start| Idle);
//! sim.add(b2b, [10, 0, 0, 2].into(), &[(gate, Class::Calls)], |_start: Start| Idle);
//! sim.run_for(Duration::from_secs(1));
//! sim.crash(gate);
//! sim.run_for(Duration::from_secs(1));
//! sim.restart(gate);
//! ```
//!
//! What is simulated, and how far:
//!
//! - **Datagrams** take a path's delay, and are lost, doubled and reordered as
//!   it says. One that finds no socket on a living host is refused.
//! - **Links** keep their order; loss there is delay, as with TCP. They end
//!   with their process at once, and by silence after a cut or a pause.
//! - **Streams of SIP** do the same, but for what is under way: a connection ends
//!   when its process does, and when what was sent is not acknowledged in time.
//!   Slow, idle and greedy peers are not simulated.
//! - **A cut** is one-way. Frames wait for its end and then for the next
//!   retransmission; datagrams are lost.
//! - **A pause** is that of SIGSTOP: what comes waits in bounded buffers and is
//!   handled, before any timer, when the process goes on. It may begin in the
//!   middle of a turn, after which what was said there leaves first.
//! - **Lines** that a node asks to have written are written after up to 20 ms, or
//!   wait, or are lost, as [`Sim::set_pen`] says; a death takes those that wait.
//! - **Computing takes no time**; timers are late by up to
//!   [`Config::lateness_max`].

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;

use self::calendar::Calendar;
use self::journal::Journal;
pub use self::journal::Pen;
use self::link::Link;
pub use self::net::Path;
use self::net::Route;
use self::random::Random;
use self::stream::{Listening, Stream};
use self::trace::Trace;
use crate::node::{
    Class, Input, Node, NodeId, Output, Reply, Request, SocketId, Start, StopReason,
};

mod calendar;
mod fault;
mod journal;
mod link;
mod net;
mod random;
mod stream;
#[cfg(test)]
mod tests;
mod trace;

/// How a simulated world is.
#[derive(Clone, Debug)]
pub struct Config {
    /// The path between any two nodes for which none is set.
    pub path: Path,
    /// How late a timer may be, at most.
    pub lateness_max: Duration,
    /// The wall-clock time at the start, in milliseconds since 1970.
    pub unix_ms: u64,
    /// What nodes learn about their real-time class.
    pub realtime: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            path: Path::default(),
            lateness_max: Duration::from_micros(100),
            unix_ms: 1_800_000_000_000,
            realtime: false,
        }
    }
}

/// Nodes of one type in a simulated world. A cluster of several types is one
/// of an enum of them, or of `Box<dyn Node>`.
pub struct Sim<N> {
    config: Config,
    random: Random,
    trace: Trace,
    /// The instant at which simulated time is zero.
    base: Instant,
    /// Nanoseconds since then.
    now: u64,
    calendar: Calendar<Event>,
    nodes: Vec<Slot<N>>,
    index: BTreeMap<NodeId, usize>,
    /// When each node's timer fires; `u64::MAX` for never.
    timers: Vec<u64>,
    /// By sender, then receiver.
    routes: Vec<Vec<Route>>,
    bound: BTreeMap<SocketAddr, (usize, SocketId)>,
    links: Vec<Link>,
    /// By node, peer and class: the link and which of its ends the node is.
    ends: BTreeMap<(usize, NodeId, Class), (usize, usize)>,
    /// All connections of SIP there ever were.
    streams: Vec<Stream>,
}

/// A place for the lives of one node.
struct Slot<N> {
    id: NodeId,
    ips: Vec<IpAddr>,
    make: Box<dyn FnMut(Start) -> N>,
    node: Option<N>,
    /// Counts the starts.
    boot: u64,
    /// The first epoch that no life so far may use.
    epoch: u32,
    /// How far the host's wall clock jumped, in milliseconds.
    jumped_ms: i64,
    host_is_down: bool,
    is_paused: bool,
    /// Whether it is to be paused in the turn in which it is told this.
    pauses_when: Option<Meant>,
    /// It is paused in the middle of a turn.
    is_in_turn: bool,
    /// What came while it was paused.
    inbox: VecDeque<Event>,
    inbox_len: usize,
    /// What the node said last about its timer.
    timeout: Option<Instant>,
    sockets: BTreeMap<SocketId, Binding>,
    listening: BTreeMap<SocketId, Listening>,
    makes_no_streams: bool,
    port_next: u16,
    bell: Arc<Bell>,
    stopped: Option<StopReason>,
    /// What it answered over HTTP, by the number of the request.
    replies: BTreeMap<u64, Reply>,
    journal: Journal,
}

struct Binding {
    local: SocketAddr,
    peer: Option<SocketAddr>,
}

#[derive(Default)]
struct Bell(AtomicBool);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What is going to happen.
enum Event {
    /// A node is told something, if it is still in this boot.
    Tell { node: usize, boot: u64, input: Input },
    /// A datagram reaches the host of its receiver.
    Datagram { sender: usize, socket: SocketId, from: SocketAddr, to: SocketAddr, bytes: Bytes },
    /// A node's line is written, if it is still in this boot.
    Line { node: usize, boot: u64, number: u64, line: String },
    /// Something of a link.
    Link(link::Event),
    /// Something of a connection of SIP.
    Stream(stream::Event),
}

/// Whether an input is the one that is meant.
type Meant = Box<dyn Fn(&Input) -> bool>;

type Watch<'a> = &'a mut dyn FnMut(NodeId, &Input) -> bool;

impl<N: Node> Sim<N> {
    /// Returns an empty world. The same seed and the same calls give the same
    /// run; another seed gives another.
    #[expect(clippy::disallowed_methods, reason = "an instant to count from; no other is read")]
    pub fn new(seed: u64, config: Config) -> Self {
        Self {
            config,
            random: Random::new(seed),
            trace: Trace::default(),
            base: Instant::now(),
            now: 0,
            calendar: Calendar::new(),
            nodes: Vec::new(),
            index: BTreeMap::new(),
            timers: Vec::new(),
            routes: Vec::new(),
            bound: BTreeMap::new(),
            links: Vec::new(),
            ends: BTreeMap::new(),
            streams: Vec::new(),
        }
    }

    /// Adds a node on the host with this address, which may have others, and
    /// starts it. It keeps links to those in `dial`, who may be added later.
    ///
    /// # Panics
    /// When the id is taken, or two nodes dial each other.
    pub fn add(
        &mut self,
        id: NodeId,
        ip: IpAddr,
        dial: &[(NodeId, Class)],
        make: impl FnMut(Start) -> N + 'static,
    ) {
        let node = self.nodes.len();
        assert!(self.index.insert(id, node).is_none(), "node {id} is added twice");
        self.nodes.push(Slot {
            id,
            ips: vec![ip],
            make: Box::new(make),
            node: None,
            boot: 0,
            epoch: 0,
            jumped_ms: 0,
            host_is_down: false,
            is_paused: false,
            pauses_when: None,
            is_in_turn: false,
            inbox: VecDeque::new(),
            inbox_len: 0,
            timeout: None,
            sockets: BTreeMap::new(),
            listening: BTreeMap::new(),
            makes_no_streams: false,
            port_next: 0,
            bell: Arc::default(),
            stopped: None,
            replies: BTreeMap::new(),
            journal: Journal::default(),
        });
        self.timers.push(u64::MAX);
        self.add_routes(node);
        for &(peer, class) in dial {
            self.add_link(node, peer, class);
        }
        self.start(node);
    }

    /// Runs until this long after the beginning of the world.
    pub fn run_until(&mut self, elapsed: Duration) {
        self.advance(nanos(elapsed), &mut |_, _| false);
    }

    /// Runs for this long.
    pub fn run_for(&mut self, span: Duration) {
        self.advance(self.now + nanos(span), &mut |_, _| false);
    }

    /// Runs until a node was told an input that `is_it` wants and its outputs
    /// are on their way; returns false if that did not happen for this long.
    pub fn run_until_input(
        &mut self,
        span: Duration,
        mut is_it: impl FnMut(NodeId, &Input) -> bool,
    ) -> bool {
        self.advance(self.now + nanos(span), &mut is_it)
    }

    /// Tells a running node something now, such as [`Input::Drain`].
    pub fn tell(&mut self, id: NodeId, input: Input) {
        let node = self.place(id);
        let boot = self.nodes[node].boot;
        self.dispatch(Event::Tell { node, boot, input }, &mut |_, _| false);
    }

    /// Asks a running node something over HTTP; returns the answer if it came at once. A later one
    /// is taken with [`Sim::take_reply`] and the same `id`.
    pub fn ask(&mut self, node: NodeId, id: u64, request: Request) -> Option<Reply> {
        self.tell(node, Input::Request { id, request });
        self.take_reply(node, id)
    }

    /// Returns what a node answered over HTTP.
    pub fn take_reply(&mut self, node: NodeId, id: u64) -> Option<Reply> {
        let place = self.place(node);
        self.nodes[place].replies.remove(&id)
    }

    /// Lets a test change a running node, and takes in its outputs.
    pub fn with<R>(&mut self, id: NodeId, change: impl FnOnce(&mut N, Instant) -> R) -> Option<R> {
        let (node, now) = (self.place(id), self.now());
        let result = change(self.nodes[node].node.as_mut()?, now);
        self.settle(node);
        Some(result)
    }

    /// Returns a node, if it runs.
    pub fn node(&self, id: NodeId) -> Option<&N> {
        self.nodes[self.place(id)].node.as_ref()
    }

    /// Returns why a node stopped by itself, if it did since it last started.
    pub fn stopped(&self, id: NodeId) -> Option<&StopReason> {
        self.nodes[self.place(id)].stopped.as_ref()
    }

    /// Returns the time as the nodes see it.
    pub fn now(&self) -> Instant {
        self.base + Duration::from_nanos(self.now)
    }

    /// Returns how long the world has existed.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.now)
    }

    /// Returns a hash of all that every node was told, and when.
    pub fn trace(&self) -> u64 {
        self.trace.hash()
    }

    fn advance(&mut self, until: u64, watch: Watch<'_>) -> bool {
        loop {
            let (node, timer_at) = self.first_timer();
            let event_at = self.calendar.next_at().unwrap_or(u64::MAX);
            if until < event_at.min(timer_at) {
                self.now = self.now.max(until);
                return false;
            }
            // At the same time, what came is told before the timer.
            if event_at <= timer_at {
                self.now = self.now.max(event_at);
                if let Some(event) = self.calendar.pop()
                    && self.dispatch(event, watch)
                {
                    return true;
                }
            } else {
                self.now = self.now.max(timer_at);
                self.fire(node);
            }
        }
    }

    fn first_timer(&self) -> (usize, u64) {
        let mut first = (0, u64::MAX);
        for (node, &at) in self.timers.iter().enumerate() {
            if at < first.1 {
                first = (node, at);
            }
        }
        first
    }

    /// Handles an event; returns whether `watch` saw what it wanted.
    fn dispatch(&mut self, event: Event, watch: Watch<'_>) -> bool {
        match event {
            Event::Tell { node, boot, input } => {
                let slot = &mut self.nodes[node];
                if slot.boot != boot || slot.node.is_none() {
                    return false;
                }
                if slot.is_paused {
                    slot.inbox.push_back(Event::Tell { node, boot, input });
                    return false;
                }
                self.deliver(node, input, watch)
            }
            Event::Datagram { sender, socket, from, to, bytes } => {
                self.datagram_arrives(sender, socket, from, to, bytes, watch)
            }
            Event::Line { node, boot, number, line } => {
                self.line_written(node, boot, number, line, watch)
            }
            Event::Link(event) => self.link_event(event, watch),
            Event::Stream(event) => self.stream_event(event, watch),
        }
    }

    /// Tells a node that runs something.
    fn deliver(&mut self, node: usize, input: Input, watch: Watch<'_>) -> bool {
        let now = self.now();
        let slot = &mut self.nodes[node];
        let Some(running) = slot.node.as_mut() else { return false };
        self.trace.add(self.now);
        self.trace.add(node as u64);
        self.trace.input(&input);
        let seen = watch(slot.id, &input);
        let pauses = slot.pauses_when.take_if(|is_it| is_it(&input)).is_some();
        running.handle_input(now, input);
        if pauses {
            self.nodes[node].is_in_turn = true;
            self.pause_now(node);
        }
        self.settle(node);
        seen
    }

    fn fire(&mut self, node: usize) {
        let now = self.now();
        self.timers[node] = u64::MAX;
        let slot = &mut self.nodes[node];
        slot.timeout = None;
        let Some(running) = slot.node.as_mut() else { return };
        running.handle_timeout(now);
        self.settle(node);
        let slot = &self.nodes[node];
        assert!(
            slot.timeout.is_none_or(|at| now < at),
            "node {}: a handled timeout is due again",
            slot.id
        );
    }

    /// Ends a node's turn: takes in what it wants done, and when it wants to be called.
    fn settle(&mut self, node: usize) {
        if self.nodes[node].is_paused {
            return;
        }
        let now = self.now();
        if let Some(running) = &mut self.nodes[node].node {
            running.end_turn(now);
        }
        while let Some(output) = self.nodes[node].node.as_mut().and_then(Node::poll_output) {
            self.output(node, output);
        }
        let slot = &mut self.nodes[node];
        if slot.bell.0.swap(false, Ordering::Relaxed) {
            self.tell_later(node, self.now, Input::Woken);
        }
        let slot = &mut self.nodes[node];
        let timeout = slot.node.as_ref().and_then(Node::poll_timeout);
        if slot.timeout == timeout {
            return;
        }
        slot.timeout = timeout;
        self.timers[node] = match timeout {
            Some(at) if !slot.is_paused => {
                let at = nanos(at.saturating_duration_since(self.base)).max(self.now);
                at + self.random.below(nanos(self.config.lateness_max))
            }
            Some(_) | None => u64::MAX,
        };
    }

    fn output(&mut self, node: usize, output: Output) {
        match output {
            Output::Bind { socket, local, peer } => {
                let answer = match self.bind(node, socket, local, peer) {
                    Ok(local) => Input::Bound { socket, local },
                    Err(error) => Input::BindFailed { socket, error },
                };
                self.tell_later(node, self.now, answer);
            }
            Output::Listen { socket, local, limits, tls } => {
                let answer = match self.listen(node, socket, local, limits, tls.is_some()) {
                    Ok(local) => Input::Bound { socket, local },
                    Err(error) => Input::BindFailed { socket, error },
                };
                self.tell_later(node, self.now, answer);
            }
            Output::Stream { socket, over, to, bytes } => {
                self.stream_message(node, socket, over, to, bytes);
            }
            Output::Unbind { socket } => {
                self.unbind(node, socket);
                self.unlisten(node, socket);
            }
            Output::Datagram { socket, to, bytes } => self.datagram(node, socket, to, bytes),
            Output::Frame { peer, class, kind, payload } => {
                self.frame(node, peer, class, kind, payload);
            }
            Output::Reply { id, reply } => drop(self.nodes[node].replies.insert(id, reply)),
            Output::Write { number, line } => self.write_line(node, number, line),
            Output::Stop(reason) => {
                self.end(node);
                self.nodes[node].stopped = Some(reason);
            }
        }
    }

    fn tell_later(&mut self, node: usize, at: u64, input: Input) {
        let boot = self.nodes[node].boot;
        self.calendar.schedule(at, Event::Tell { node, boot, input });
    }

    fn start(&mut self, node: usize) {
        let (now, seed) = (self.now(), self.random.next());
        let slot = &mut self.nodes[node];
        slot.boot += 1;
        slot.stopped = None;
        slot.bell = Arc::default();
        let ms = self.config.unix_ms + self.now / 1_000_000;
        let unix_ms = ms.saturating_add_signed(slot.jumped_ms);
        let epoch = slot.epoch.max(u32::try_from(unix_ms / 1000).unwrap_or(u32::MAX));
        slot.epoch = epoch.saturating_add(EPOCHS);
        slot.node = Some((slot.make)(Start {
            seed,
            instant: now,
            unix_ms,
            boot: slot.boot,
            epoch,
            realtime: self.config.realtime,
            waker: Waker::from(slot.bell.clone()),
        }));
        self.dial_all(node);
        self.settle(node);
    }

    fn place(&self, id: NodeId) -> usize {
        *self.index.get(&id).unwrap_or_else(|| panic!("node {id} was never added"))
    }
}

/// Epochs that a life of a node may use, as a real one may.
const EPOCHS: u32 = 1000;

/// A span of simulated time; 584 years at most.
fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX / 2)
}
