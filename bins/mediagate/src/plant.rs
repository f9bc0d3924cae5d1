//! Whatever forwards the packets: threads, or the node itself.

use std::collections::VecDeque;
use std::time::Instant;

use driver::{BindError, Input, Output, SocketId};
use media::beat::{BEAT_PERIOD, Beat, Hearers};
use media::{
    FailReason, Notice, Relay, RelayConfig, RelayOutput, WorkerCommand, WorkerFigures, Workers,
};

use crate::config::Config;

/// The forwarding side of a gateway.
#[derive(Debug)]
pub(crate) enum Plant {
    Threads(Workers),
    Inline(Box<Inline>),
}

/// Relays that forward by the outputs of the node.
#[derive(Debug)]
pub(crate) struct Inline {
    config: Config,
    relays: Vec<Relay>,
    hearers: Hearers,
    beat: Beat,
    /// `None` while nobody listens.
    beat_at: Option<Instant>,
    beats: u64,
    outputs: VecDeque<Output>,
    notices: VecDeque<Notice>,
    /// Why the gateway cannot go on.
    failed: Option<BindError>,
}

impl Plant {
    /// Hands a command to a worker. Returns whether there was room for it.
    pub(crate) fn command(&mut self, now: Instant, worker: u16, command: WorkerCommand) -> bool {
        match self {
            Self::Threads(workers) => workers.send(worker, command).is_ok(),
            Self::Inline(inline) => {
                inline.command(now, worker, command);
                true
            }
        }
    }

    /// What a worker has to say.
    pub(crate) fn poll_notice(&mut self) -> Option<Notice> {
        match self {
            Self::Threads(workers) => workers.poll(),
            Self::Inline(inline) => inline.notices.pop_front(),
        }
    }

    pub(crate) fn drain(&mut self) {
        match self {
            Self::Threads(workers) => workers.drain(),
            Self::Inline(inline) => inline.beat.draining = true,
        }
    }

    pub(crate) fn figures(&self) -> Vec<WorkerFigures> {
        match self {
            Self::Threads(workers) => workers.figures(),
            Self::Inline(inline) => inline.figures(),
        }
    }
}

impl Inline {
    pub(crate) fn new(config: Config, relay: &RelayConfig, beat: Beat) -> Self {
        let relays = (0..config.workers).map(|_| Relay::new(relay.clone())).collect();
        let bind = Output::Bind { socket: BEAT, local: config.beat, peer: None };
        Self {
            hearers: Hearers::new(config.hearers.clone()),
            config,
            relays,
            beat,
            beat_at: None,
            beats: 0,
            outputs: VecDeque::from([bind]),
            notices: VecDeque::new(),
            failed: None,
        }
    }

    /// Takes in what happened to the sockets.
    pub(crate) fn handle_input(&mut self, now: Instant, input: Input) {
        match input {
            Input::Datagram { socket: BEAT, from, bytes } => {
                if self.hearers.hear(now, from, &bytes) {
                    self.beat_at.get_or_insert(now);
                }
            }
            Input::Datagram { socket, from, bytes } => {
                let Ok(port) = u16::try_from(socket.0) else { return };
                let forwards = self.relays.iter_mut().find(|relay| relay.has(port));
                let forward = forwards.and_then(|relay| relay.forward(now, port, from, &bytes));
                if let Some(forward) = forward {
                    let socket = SocketId(forward.port.into());
                    self.outputs.push_back(Output::Datagram { socket, to: forward.to, bytes });
                }
            }
            Input::BindFailed { socket: BEAT, error } => self.failed = Some(error),
            Input::BindFailed { socket, error } => {
                let Ok(port) = u16::try_from(socket.0) else { return };
                let reason = if error == BindError::FilesExhausted {
                    FailReason::Exhausted
                } else {
                    FailReason::PortInUse
                };
                for relay in &mut self.relays {
                    relay.refuse(port, reason);
                }
            }
            Input::Bound { .. }
            | Input::Refused { .. }
            | Input::LinkUp { .. }
            | Input::LinkDown { .. }
            | Input::Frame { .. }
            | Input::Congested { .. }
            | Input::Request { .. }
            | Input::Written { .. }
            | Input::Unwritten { .. }
            | Input::Woken
            | Input::Drain
            | Input::Message { .. }
            | Input::Unsent { .. }
            | Input::Reload => {}
        }
        self.collect();
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        for relay in &mut self.relays {
            relay.handle_timeout(now);
        }
        self.collect();
        if self.beat_at.is_some_and(|at| at <= now) {
            self.send_beats(now);
        }
    }

    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let relays = self.relays.iter().filter_map(Relay::poll_timeout);
        relays.chain(self.beat_at).min()
    }

    pub(crate) fn failed(&self) -> Option<BindError> {
        self.failed
    }

    fn command(&mut self, now: Instant, worker: u16, command: WorkerCommand) {
        let relay = &mut self.relays[usize::from(worker)];
        match command {
            WorkerCommand::Apply { call, epoch, legs } => relay.apply(now, call, epoch, &legs),
            WorkerCommand::Close { call } => relay.close(call),
        }
        self.collect();
    }

    /// Does what the relays ask.
    fn collect(&mut self) {
        while let Some(output) = self.relays.iter_mut().find_map(Relay::poll_output) {
            match output {
                RelayOutput::Open { port } => {
                    self.outputs.extend([port, port + 1].map(|port| Output::Bind {
                        socket: SocketId(port.into()),
                        local: (self.config.listen, port).into(),
                        peer: None,
                    }));
                }
                RelayOutput::Close { port } => {
                    let socket = |port: u16| SocketId(port.into());
                    self.outputs.extend(
                        [port, port + 1].map(|port| Output::Unbind { socket: socket(port) }),
                    );
                }
                // What a connection would save is not counted here.
                RelayOutput::Connect { .. } | RelayOutput::Disconnect { .. } => {}
                RelayOutput::Notice(notice) => self.notices.push_back(notice),
            }
        }
    }

    fn send_beats(&mut self, now: Instant) {
        let hearers: Vec<_> = self.hearers.recent(now).collect();
        self.beat_at = (!hearers.is_empty()).then_some(now + BEAT_PERIOD);
        self.beat.seq = self.beat.seq.wrapping_add(1);
        self.beats += 1;
        let legs: usize = self.relays.iter().map(Relay::legs).sum();
        self.beat.legs = u32::try_from(legs).expect("there are 32,768 even ports");
        for worker in 0..self.config.workers {
            let bytes = bytes::Bytes::copy_from_slice(&Beat { worker, ..self.beat }.encode());
            for to in &hearers {
                let bytes = bytes.clone();
                self.outputs.push_back(Output::Datagram { socket: BEAT, to: *to, bytes });
            }
        }
    }

    fn figures(&self) -> Vec<WorkerFigures> {
        let figures = |relay: &Relay| WorkerFigures {
            counters: relay.counters(),
            legs: u32::try_from(relay.legs()).expect("there are 32,768 even ports"),
            beats: self.beats,
            ..WorkerFigures::default()
        };
        self.relays.iter().map(figures).collect()
    }
}

/// Beyond every port.
const BEAT: SocketId = SocketId(1 << 16);
