//! The loop that runs one node with real sockets, on one thread.
//!
//! A turn: wait; receive from every readable socket, link and stream, and give the
//! node each datagram, frame and message; tell it the time if it is due, and that the
//! turn ends; then one write per link and stream and one sendmmsg per socket.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::epoll::EpollFlags;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use tracing::{error, info, warn};

use crate::http::{self, Board, Token};
use crate::journal::Journal;
use crate::link::{HANDSHAKES_TOKEN, Identity, Links, LinksConfig, LinksError};
use crate::logging::{flush_log, lines_lost};
use crate::metrics::Metrics;
use crate::node::{BindError, Input, Node, NodeId, Output, SocketId, Start, StopReason};
use crate::numbers::{Numbers, NumbersError};
use crate::receipt::{Receipt, Receipts};
use crate::sockets::Sockets;
use crate::stream::{Streams, Tokens};
use crate::sys::{Bell, Poller, realtime};

/// How long a stopping process goes on writing what was said before.
const LAST_WORDS_MAX: Duration = Duration::from_secs(1);
const METRICS_PERIOD: Duration = Duration::from_secs(1);
/// Rounds of sending in one turn: what is sent may fail and be answered.
const ROUNDS_MAX: usize = 4;

// Below these, a token is the id of a link's connection. The links have one of their own.
const STREAM_TOKENS: u64 = 1 << 61;
const SOCKET_TOKENS: u64 = 1 << 62;
const LISTENER_TOKEN: u64 = u64::MAX;
const BELL_TOKEN: u64 = u64::MAX - 1;
const SIGNAL_TOKEN: u64 = u64::MAX - 2;
/// Beside that of the links' handshakes.
const STREAM_HANDSHAKES_TOKEN: u64 = HANDSHAKES_TOKEN - 1;

/// How a process is run, whatever its node does.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// Who it is.
    pub node: NodeId,
    /// What it is, for people; sent to its peers.
    pub role: String,
    /// How it is linked to others.
    pub links: LinksConfig,
    /// Where it serves `/healthz` and `/metrics`; `None` for nowhere.
    pub http: Option<SocketAddr>,
    /// What who gives orders over HTTP must know; `None` lets nobody.
    pub token: Option<Token>,
    /// Whether the node itself answers what is asked below `/api/v1/`.
    pub api: bool,
    /// The file of the numbers that rise from life to life ([`Numbers`]); without one they come from the
    /// clock, which must then not be set back.
    pub numbers: Option<PathBuf>,
    /// The folder of the lines that the node asks to have written ([`Output::Write`]), a
    /// [`Spool`](crate::spool::Spool) that whoever takes them empties; without one they go into the log.
    pub journal: Option<PathBuf>,
    /// Whether to try for a real-time class.
    pub realtime: bool,
}

/// Why a process could not start or had to end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The configuration of the links, or their listener.
    #[error(transparent)]
    Links(#[from] LinksError),
    /// The file of the node's numbers.
    #[error(transparent)]
    Numbers(#[from] NumbersError),
    /// The HTTP listener could not be opened.
    #[error("cannot serve HTTP on {addr}")]
    Http {
        /// The address.
        addr: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The kernel refused what no process can do without.
    #[error("the system refused what the loop needs")]
    System(#[from] io::Error),
    /// The node gave up and said why.
    #[error("{0}")]
    Failed(String),
}

/// Runs the node that `make` returns until it stops, or until the operator
/// says so twice.
///
/// Call it before starting any other thread, or signals may reach that one:
/// SIGTERM and SIGINT become [`Input::Drain`] and, the second time, the end;
/// SIGHUP becomes [`Input::Reload`]. A file that outgrows `ulimit -f` fails
/// like one on a full disk. `make` may start threads.
///
/// # Errors
/// When the process cannot start as configured, the system refuses what the
/// loop needs, or the node ends with [`StopReason::Failed`].
pub fn run<N: Node>(config: &RunConfig, make: impl FnOnce(Start) -> N) -> Result<(), RunError> {
    let signals = signals()?;
    let ended = run_with(signals, config, make);
    flush_log();
    ended
}

fn run_with<N: Node>(
    signals: SignalFd,
    config: &RunConfig,
    make: impl FnOnce(Start) -> N,
) -> Result<(), RunError> {
    let mut running = Loop::new(config, make)?;
    running.poller.add(&signals, SIGNAL_TOKEN, false)?;
    running.signals = Some(signals);
    running.run()
}

/// Takes signals away from their default actions, for this thread and those
/// that it starts from now on.
fn signals() -> io::Result<SignalFd> {
    let set: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect();
    set.thread_block()?;
    // A file that has reached the limit of this process fails as one on a full disk does.
    SigSet::from(Signal::SIGXFSZ).thread_block()?;
    Ok(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}

/// A node with everything around it.
pub(crate) struct Loop<N> {
    node: N,
    poller: Rc<Poller>,
    bell: Arc<Bell>,
    /// What became of the node's lines.
    receipts: Arc<Receipts>,
    journal: Journal,
    signals: Option<SignalFd>,
    links: Links,
    sockets: Sockets,
    streams: Streams,
    board: Option<Arc<Board>>,
    /// Held so that no other process of this node gets its own.
    _numbers: Option<Numbers>,
    metrics_at: Instant,
    /// What happened and was not told yet.
    inputs: Vec<Input>,
    /// What the node's own outputs led to.
    answers: VecDeque<Input>,
    draining: bool,
    /// The operator said so by a signal; the next one is the end.
    is_told: bool,
    stopping: Option<Stopping>,
    counters: Counters,
}

struct Stopping {
    reason: StopReason,
    until: Instant,
}

#[derive(Default)]
struct Counters {
    turns: u64,
    realtime: bool,
    late_max: Duration,
}

impl<N: Node> Loop<N> {
    pub(crate) fn new(config: &RunConfig, make: impl FnOnce(Start) -> N) -> Result<Self, RunError> {
        let poller = Rc::new(Poller::new()?);
        let bell = Arc::new(Bell::new()?);
        poller.add(&*bell, BELL_TOKEN, false)?;
        let (now, unix_ms) = (clock(), unix_ms());
        let numbers = numbers(config, unix_ms)?;
        let clock = (unix_ms, u32::try_from(unix_ms / 1000).unwrap_or(u32::MAX));
        let (boot, epoch) = numbers.as_ref().map_or(clock, |life| (life.boot, life.epoch));
        let identity = Identity { node: config.node, role: config.role.clone(), boot };
        let links = Links::new(&config.links, identity, now, poller.clone(), LISTENER_TOKEN)?;
        let board = match config.http {
            None => None,
            Some(addr) => {
                let served =
                    http::serve(addr, config.token.clone(), config.api, bell.clone().into());
                Some(served.map_err(|source| RunError::Http { addr, source })?)
            }
        };
        let realtime = config.realtime && try_realtime();
        let node = make(Start {
            seed: RandomState::new().build_hasher().finish(),
            instant: now,
            unix_ms,
            boot,
            epoch,
            realtime,
            waker: bell.clone().into(),
        });
        info!(node = %config.node, role = %config.role, boot, "started");
        Ok(Self {
            node,
            sockets: Sockets::new(poller.clone(), SOCKET_TOKENS),
            streams: Streams::new(
                poller.clone(),
                Tokens {
                    listeners: SOCKET_TOKENS,
                    connections: STREAM_TOKENS,
                    handshakes: STREAM_HANDSHAKES_TOKEN,
                },
            )?,
            poller,
            receipts: Receipts::new(bell.clone().into()),
            journal: Journal::open(config.journal.as_deref())?,
            bell,
            signals: None,
            links,
            board,
            _numbers: numbers,
            metrics_at: now,
            inputs: Vec::new(),
            answers: VecDeque::new(),
            draining: false,
            is_told: false,
            stopping: None,
            counters: Counters { realtime, ..Counters::default() },
        })
    }

    pub(crate) fn run(&mut self) -> Result<(), RunError> {
        self.drain(clock());
        self.deliver();
        let mut ready = Vec::new();
        let mut settled = self.settle();
        loop {
            let now = clock();
            if let Some(stopping) = &self.stopping
                && (stopping.until <= now || (self.links.is_flushed() && self.streams.is_flushed()))
            {
                return match &stopping.reason {
                    StopReason::Drained => Ok(()),
                    StopReason::Failed(why) => Err(RunError::Failed(why.clone())),
                };
            }
            let timeout = if settled { self.timeout(now) } else { Duration::ZERO };
            ready.clear();
            self.poller.wait(Some(timeout), &mut ready)?;
            self.counters.turns += 1;
            self.streams.begin_turn();
            for &(token, flags) in &ready {
                self.ready(token, flags);
                self.deliver();
            }
            while self.streams.read_next(clock()) {
                self.deliver();
            }
            self.handle_timeouts();
            settled = self.settle();
        }
    }

    /// How long nothing is to be done unless something happens.
    fn timeout(&self, now: Instant) -> Duration {
        let mut at = self.links.poll_timeout();
        at = at.min(self.node.poll_timeout().unwrap_or(at));
        at = at.min(self.streams.poll_timeout().unwrap_or(at));
        if self.board.is_some() {
            at = at.min(self.metrics_at);
        }
        if let Some(stopping) = &self.stopping {
            at = at.min(stopping.until);
        }
        at.saturating_duration_since(now)
    }

    /// Reads one file.
    fn ready(&mut self, token: u64, flags: EpollFlags) {
        match token {
            SIGNAL_TOKEN => self.signalled(),
            BELL_TOKEN => {
                self.bell.hush();
                let ordered = self.board.as_ref().is_some_and(|board| board.take_drain());
                if ordered {
                    info!("told to drain, over HTTP");
                    self.order_drain();
                }
                let asked = self.board.as_ref().map(|board| board.take_requests());
                let asked = asked.into_iter().flatten();
                self.inputs.extend(asked.map(|(id, request)| Input::Request { id, request }));
                self.inputs.extend(self.receipts.take());
                self.inputs.push(Input::Woken);
            }
            LISTENER_TOKEN => self.links.accept(clock()),
            HANDSHAKES_TOKEN => self.links.handshaken(clock()),
            STREAM_HANDSHAKES_TOKEN => self.streams.handshaken(clock()),
            SOCKET_TOKENS.. => {
                let Ok(id) = u32::try_from(token - SOCKET_TOKENS) else { return };
                if self.streams.has(SocketId(id)) {
                    self.streams.accept(clock(), SocketId(id));
                } else {
                    self.sockets.receive(SocketId(id), &mut self.inputs);
                }
            }
            STREAM_TOKENS.. => {
                if let Ok(id) = u32::try_from(token - STREAM_TOKENS) {
                    self.streams.ready(clock(), id, flags);
                }
            }
            connection => self.links.ready(clock(), connection, flags),
        }
    }

    fn signalled(&mut self) {
        while let Some(Ok(Some(signal))) = self.signals.as_ref().map(SignalFd::read_signal) {
            if i32::try_from(signal.ssi_signo) == Ok(libc::SIGHUP) {
                info!("told to reload");
                self.links.reload();
                self.streams.reload();
                self.inputs.push(Input::Reload);
            } else if self.is_told {
                warn!("told to end at once");
                self.stopping = Some(Stopping { reason: StopReason::Drained, until: clock() });
            } else {
                info!("told to drain");
                self.is_told = true;
                self.order_drain();
            }
        }
    }

    fn order_drain(&mut self) {
        if !self.draining {
            self.draining = true;
            self.inputs.push(Input::Drain);
        }
    }

    /// Does what is due, after everything that had come was told: a process
    /// that was suspended hears its peers before it judges them.
    fn handle_timeouts(&mut self) {
        let now = clock();
        self.links.handle_timeout(now);
        self.streams.handle_timeout(now);
        self.deliver();
        let now = clock();
        if let Some(at) = self.node.poll_timeout()
            && at <= now
        {
            self.counters.late_max = self.counters.late_max.max(now - at);
            self.node.handle_timeout(now);
            self.drain(now);
            self.deliver();
        }
        if let Some(board) = self.board.clone()
            && self.metrics_at <= now
        {
            self.metrics_at = now + METRICS_PERIOD;
            let mut metrics = Metrics::default();
            self.metrics(&mut metrics);
            board.post(now, metrics, self.node.unready());
        }
    }

    /// Sends what is to be sent; returns whether nothing is left to send.
    fn settle(&mut self) -> bool {
        for _ in 0..ROUNDS_MAX {
            let now = clock();
            self.node.end_turn(now);
            self.drain(now);
            self.sockets.flush(&mut self.inputs);
            self.links.flush(clock());
            self.streams.flush(clock());
            if !self.deliver() {
                return true;
            }
        }
        false
    }

    /// Tells the node what happened; returns whether there was anything.
    fn deliver(&mut self) -> bool {
        let mut any = false;
        loop {
            let mut inputs = std::mem::take(&mut self.inputs);
            for input in inputs.drain(..) {
                any = true;
                self.tell(input);
            }
            if self.inputs.is_empty() {
                // Keeps its memory.
                self.inputs = inputs;
            }
            let answer = self.answers.pop_front().or_else(|| self.links.poll_event());
            let Some(input) = answer.or_else(|| self.streams.poll_event()) else {
                if self.inputs.is_empty() {
                    return any;
                }
                continue;
            };
            any = true;
            self.tell(input);
        }
    }

    fn tell(&mut self, input: Input) {
        let now = clock();
        self.node.handle_input(now, input);
        self.drain(now);
    }

    /// Takes in what the node wants done.
    fn drain(&mut self, now: Instant) {
        while let Some(output) = self.node.poll_output() {
            match output {
                Output::Datagram { socket, to, bytes } => self.sockets.send(socket, to, bytes),
                Output::Frame { peer, class, kind, payload } => {
                    self.links.send(now, peer, class, kind, &payload);
                }
                Output::Bind { socket, local, peer } => {
                    let bound = match self.streams.has(socket) {
                        true => Err(BindError::InUse),
                        false => self.sockets.bind(socket, local, peer),
                    };
                    self.answers.push_back(answer(socket, bound));
                }
                Output::Listen { socket, local, limits, tls } => {
                    let bound = match self.sockets.has(socket) {
                        true => Err(BindError::InUse),
                        false => self.streams.listen(socket, local, limits, tls),
                    };
                    self.answers.push_back(answer(socket, bound));
                }
                Output::Stream { socket, over, to, bytes } => {
                    self.streams.send(now, socket, over, to, bytes);
                }
                Output::Unbind { socket } => {
                    self.sockets.unbind(socket, &mut self.inputs);
                    self.streams.unlisten(now, socket);
                }
                Output::Reply { id, reply } => {
                    if let Some(board) = &self.board {
                        board.reply(id, reply);
                    }
                }
                Output::Write { number, line } => {
                    self.journal.write(line, Receipt::new(number, &self.receipts));
                }
                Output::Stop(reason) => {
                    if self.stopping.is_none() {
                        info!(?reason, "stopping");
                        self.stopping = Some(Stopping { reason, until: now + LAST_WORDS_MAX });
                    }
                }
            }
        }
    }

    fn metrics(&mut self, out: &mut Metrics) {
        self.node.metrics(out);
        self.links.metrics(unix_ms(), out);
        self.sockets.metrics(out);
        self.streams.metrics(unix_ms(), out);
        self.journal.metrics(out);
        let counters = &mut self.counters;
        out.counter("driver_turns_total", "Turns of the loop.", &[], counters.turns);
        let (name, help) = ("driver_realtime", "Whether the loop has a real-time class.");
        out.gauge(name, help, &[], f64::from(u8::from(counters.realtime)));
        let (name, help) =
            ("driver_late_seconds_max", "How late a timer was at most, since the last time.");
        out.gauge(name, help, &[], std::mem::take(&mut counters.late_max).as_secs_f64());
        let (name, help) = ("driver_log_lines_lost_total", "Lines of the log that nobody took.");
        out.counter(name, help, &[], lines_lost());
    }

    /// Where others can dial this node.
    #[cfg(test)]
    fn listens_on(&self) -> Option<SocketAddr> {
        self.links.listens_on()
    }
}

/// What a node is told of a socket that it asked for.
fn answer(socket: SocketId, bound: Result<SocketAddr, BindError>) -> Input {
    match bound {
        Ok(local) => Input::Bound { socket, local },
        Err(error) => Input::BindFailed { socket, error },
    }
}

/// Begins a life of the node, if it keeps its numbers.
fn numbers(config: &RunConfig, unix_ms: u64) -> Result<Option<Numbers>, RunError> {
    let Some(path) = &config.numbers else { return Ok(None) };
    let life = Numbers::begin(path, config.node, unix_ms)?;
    if let Some(fault) = &life.fault {
        error!(path = %path.display(), %fault, "the node's numbers come from the clock");
    }
    Ok(Some(life))
}

fn try_realtime() -> bool {
    match realtime() {
        Ok(()) => {
            info!("the loop runs in a real-time class");
            true
        }
        Err(error) => {
            warn!(%error, "no real-time class for the loop");
            false
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the one clock of a running node")]
pub(crate) fn clock() -> Instant {
    Instant::now()
}

/// Milliseconds since 1970, zero before.
#[expect(clippy::disallowed_methods, reason = "the one clock of a running node")]
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
