//! The gateway as the loop runs it.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use driver::codec::{self, DecodeError};
use driver::{Class, Input, Metrics, Node, NodeId, Output, Start, StopReason};
use media::beat::Beat;
use media::{
    BLOCK_LEGS, BLOCK_PORTS, Close, Command, Digest, FailReason, Failed, Frame, Inherit, Lease,
    Lessor, LessorConfig, LessorInput, LessorOutput, Notice, Open, Peer, RelayConfig, Return, Sync,
    Update, WorkerCommand, Workers, WorkersConfig,
};
use tracing::{error, info, warn};

use crate::config::{Config, Forwarding};
use crate::plant::{Inline, Plant};

/// A media gateway: leases ports to b2bs and carries their calls.
#[derive(Debug)]
pub struct Mediagate {
    lessor: Lessor,
    /// `None` when it could not be built; then the process is about to stop.
    plant: Option<Plant>,
    draining: bool,
    stopped: bool,
    malformed_frames: u64,
    unknown_frames: u64,
    outputs: VecDeque<Output>,
}

impl Mediagate {
    /// A gateway without calls. What cannot be had from the system makes it stop at once, with the reason.
    pub fn new(config: &Config, start: Start) -> Self {
        let files = match config.forwarding {
            Forwarding::Threads => media::files_max().unwrap_or(FILES_GUESS),
            Forwarding::Inline => u64::MAX,
        };
        let blocks = blocks(config, files);
        let first_port = config.ports.start().next_multiple_of(2);
        let lessor = Lessor::new(
            start.instant,
            LessorConfig {
                boot: start.boot,
                host: config.host.clone(),
                advertise: config.advertise,
                beat: config.beat,
                standby: config.standby,
                first_port,
                blocks,
                workers: config.workers,
            },
        );
        let mut gateway = Self {
            lessor,
            plant: None,
            draining: false,
            stopped: false,
            malformed_frames: 0,
            unknown_frames: 0,
            outputs: VecDeque::new(),
        };
        if blocks < config.workers {
            gateway.stop(StopReason::Failed(format!(
                "{files} open files and ports {}-{} are too few for {} workers: \
                 each needs {BLOCK_PORTS} ports and as many files",
                config.ports.start(),
                config.ports.end(),
                config.workers
            )));
            return gateway;
        }
        let legs_max = gateway.lessor.legs_max();
        match plant(config, start, legs_max) {
            Ok(plant) => {
                info!(legs_max, workers = config.workers, files, "media gateway is ready");
                gateway.plant = Some(plant);
            }
            Err(error) => {
                let why = format!("cannot open the beat socket {}: {error}", config.beat);
                gateway.stop(StopReason::Failed(why));
            }
        }
        gateway
    }

    fn frame(&mut self, now: Instant, peer: NodeId, kind: u16, payload: &[u8]) {
        match command(kind, payload) {
            Some(Ok(command)) => {
                let peer = Peer(peer.0);
                self.lessor.handle_input(now, LessorInput::Command { peer, command });
            }
            Some(Err(error)) => {
                self.malformed_frames += 1;
                // The counter tells the rest: a peer that sends one sends many.
                if self.malformed_frames.is_power_of_two() {
                    let count = self.malformed_frames;
                    warn!(%peer, kind, %error, count, "malformed frame");
                }
            }
            None => self.unknown_frames += 1,
        }
    }

    /// Carries what the lessor wants to the workers and the peers, and the workers' answers back, until all is quiet.
    fn settle(&mut self, now: Instant) {
        loop {
            while let Some(output) = self.lessor.poll_output() {
                self.lessor_output(now, output);
            }
            let Some(notice) = self.plant.as_mut().and_then(Plant::poll_notice) else { break };
            self.lessor.handle_input(now, LessorInput::Notice(notice));
        }
        if let Some(Plant::Inline(inline)) = &mut self.plant {
            self.outputs.extend(std::iter::from_fn(|| inline.poll_output()));
            if let Some(error) = inline.failed() {
                self.stop(StopReason::Failed(format!("cannot open the beat socket: {error}")));
            }
        }
        if self.draining && self.lessor.legs() == 0 {
            self.stop(StopReason::Drained);
        }
    }

    fn lessor_output(&mut self, now: Instant, output: LessorOutput) {
        match output {
            LessorOutput::Notice { peer, notice } => {
                let (kind, payload) = encode(&notice);
                let peer = NodeId(peer.0);
                self.outputs.push_back(Output::Frame { peer, class: Class::Calls, kind, payload });
            }
            LessorOutput::Apply { worker, call, epoch, legs } => {
                let command = WorkerCommand::Apply { call, epoch, legs };
                if !self.command(now, worker, command) {
                    let reason = FailReason::Exhausted;
                    let failed = Notice::Failed(Failed { call, epoch, leg: 0, reason });
                    self.lessor.handle_input(now, LessorInput::Notice(failed));
                }
            }
            LessorOutput::Close { worker, call } => {
                self.command(now, worker, WorkerCommand::Close { call });
            }
        }
    }

    /// Returns whether the worker had room for it.
    fn command(&mut self, now: Instant, worker: u16, command: WorkerCommand) -> bool {
        self.plant.as_mut().is_some_and(|plant| plant.command(now, worker, command))
    }

    fn stop(&mut self, reason: StopReason) {
        if !self.stopped {
            self.stopped = true;
            self.outputs.push_back(Output::Stop(reason));
        }
    }
}

impl Node for Mediagate {
    fn handle_input(&mut self, now: Instant, input: Input) {
        match input {
            Input::LinkUp { peer, class: Class::Calls, boot } => {
                self.lessor.handle_input(now, LessorInput::PeerUp { peer: Peer(peer.0), boot });
            }
            Input::LinkDown { peer, class: Class::Calls } => {
                self.lessor.handle_input(now, LessorInput::PeerDown { peer: Peer(peer.0) });
            }
            Input::Frame { peer, class: Class::Calls, kind, payload } => {
                self.frame(now, peer, kind, &payload);
            }
            Input::LinkUp { .. } | Input::LinkDown { .. } => {}
            Input::Frame { .. } => self.unknown_frames += 1,
            Input::Drain => {
                self.draining = true;
                self.lessor.handle_input(now, LessorInput::Drain);
                if let Some(plant) = &mut self.plant {
                    plant.drain();
                }
            }
            Input::Bound { .. }
            | Input::BindFailed { .. }
            | Input::Datagram { .. }
            | Input::Refused { .. } => {
                if let Some(Plant::Inline(inline)) = &mut self.plant {
                    inline.handle_input(now, input);
                }
            }
            // A worker has something to say; nothing of the configuration can change.
            Input::Message { .. }
            | Input::Unsent { .. }
            | Input::Written { .. }
            | Input::Unwritten { .. }
            | Input::Woken
            | Input::Request { .. }
            | Input::Congested { .. }
            | Input::Reload => {}
        }
        self.settle(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.lessor.handle_timeout(now);
        if let Some(Plant::Inline(inline)) = &mut self.plant {
            inline.handle_timeout(now);
        }
        self.settle(now);
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let inline_at = match &self.plant {
            Some(Plant::Inline(inline)) => inline.poll_timeout(),
            Some(Plant::Threads(_)) | None => None,
        };
        self.lessor.poll_timeout().into_iter().chain(inline_at).min()
    }

    fn metrics(&self, out: &mut Metrics) {
        crate::metrics::write(out, &self.lessor, self.plant.as_ref());
        let (name, help) = ("mediagate_frames_dropped_total", "Frames that were not obeyed.");
        out.counter(name, help, &[("why", "malformed")], self.malformed_frames);
        out.counter(name, help, &[("why", "unknown")], self.unknown_frames);
        out.counter(name, help, &[("why", "epoch")], self.lessor.stale_commands());
    }

    fn unready(&self) -> Option<&'static str> {
        self.draining.then_some("draining")
    }
}

/// Blocks that the port range and the file limit allow.
fn blocks(config: &Config, files: u64) -> u16 {
    let first_port = config.ports.start().next_multiple_of(2);
    let ports = u64::from(*config.ports.end()) + 1 - u64::from(first_port);
    let files = files.saturating_sub(FILES_KEPT) / u64::from(BLOCK_PORTS);
    let blocks = files.min(ports / u64::from(BLOCK_PORTS));
    u16::try_from(blocks).expect("there are 65,536 ports")
}

fn plant(config: &Config, start: Start, legs_max: u32) -> std::io::Result<Plant> {
    let relay = RelayConfig {
        ports: config.ports.clone(),
        addresses: vec![config.listen, config.advertise],
        silence_max: config.silence_max,
    };
    if config.forwarding == Forwarding::Inline {
        let beat = Beat {
            gateway: config.node.0,
            boot: start.boot,
            worker: 0,
            workers: config.workers,
            seq: 0,
            realtime: start.realtime,
            standby: config.standby,
            draining: false,
            legs: 0,
            legs_max,
        };
        return Ok(Plant::Inline(Box::new(Inline::new(config.clone(), &relay, beat))));
    }
    let config = WorkersConfig {
        workers: config.workers,
        listen: config.listen,
        beat: config.beat,
        hearers: config.hearers.clone(),
        gateway: config.node.0,
        boot: start.boot,
        standby: config.standby,
        legs_max,
        realtime: config.realtime,
        relay,
    };
    let waker = start.waker;
    let hang = |worker| {
        error!(worker, "a forwarding thread hangs: the process ends");
        driver::flush_log();
    };
    Ok(Plant::Threads(Workers::start(config, move || waker.wake_by_ref(), hang)?))
}

/// Reads a frame from a b2b. `None`: it is of no kind that we know.
fn command(kind: u16, payload: &[u8]) -> Option<Result<Command, DecodeError>> {
    Some(match kind {
        Lease::KIND => codec::decode(payload).map(Command::Lease),
        Return::KIND => codec::decode(payload).map(Command::Return),
        Inherit::KIND => codec::decode(payload).map(Command::Inherit),
        Open::KIND => codec::decode(payload).map(Command::Open),
        Update::KIND => codec::decode(payload).map(Command::Update),
        Close::KIND => codec::decode(payload).map(Command::Close),
        Digest::KIND => codec::decode(payload).map(Command::Digest),
        Sync::KIND => codec::decode(payload).map(Command::Sync),
        _ => return None,
    })
}

/// Writes a frame to a b2b.
fn encode(notice: &Notice) -> (u16, Bytes) {
    fn frame<F: Frame>(value: &F) -> (u16, Bytes) {
        (F::KIND, codec::encode(value))
    }
    match notice {
        Notice::Welcome(welcome) => frame(welcome),
        Notice::Leased(leased) => frame(leased),
        Notice::Failed(failed) => frame(failed),
        Notice::Latched(latched) => frame(latched),
        Notice::Silent(silent) => frame(silent),
        Notice::DigestDiffers(differs) => frame(differs),
        Notice::Missing(missing) => frame(missing),
    }
}

/// Files that are not media sockets: links, HTTP, the threads' own.
const FILES_KEPT: u64 = 256;

/// The usual soft limit, should the system not say.
const FILES_GUESS: u64 = 1024;

/// A block's legs are its ports: the file limit counts either.
const _: () = assert!(BLOCK_PORTS == 2 * BLOCK_LEGS);
