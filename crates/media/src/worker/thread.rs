//! The loop of one worker: one epoll, and every socket of its calls in it.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use socket2::{Domain, Socket as RawSocket, Type};

use super::{Mailbox, PRIORITY, Relay, Shared, WorkerCommand, WorkerFigures};
use crate::beat::{BEAT_PERIOD, Beat};
use crate::frame::FailReason;
use crate::relay::RelayOutput;
use crate::{sys, watch};

pub(super) struct Worker {
    shared: Arc<Shared>,
    index: u16,
    relay: Relay,
    epoll: Epoll,
    sockets: Sockets,
    buffer: Box<[u8]>,
    commands: Vec<WorkerCommand>,
    /// The legs that this worker has added to the gateway's.
    legs: u32,
    beat_at: Instant,
    /// When the last turn that forwarded something began.
    forwarded_at: Instant,
    figures: WorkerFigures,
}

struct Sockets {
    first_port: u16,
    /// By port, counted from the lowest.
    slots: Vec<Option<Socket>>,
}

struct Socket {
    udp: UdpSocket,
    connected: bool,
}

impl Worker {
    #[expect(clippy::disallowed_methods, reason = "a thread of its own has a clock of its own")]
    pub(super) fn new(shared: Arc<Shared>, index: u16) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(shared.mailboxes[usize::from(index)].bell(), event(BELL))?;
        if index == 0 {
            epoll.add(shared.beat_socket.as_fd(), event(BEAT))?;
        }
        let sockets = Sockets::new(&shared.config.relay.ports);
        Ok(Self {
            relay: Relay::new(shared.config.relay.clone()),
            index,
            epoll,
            sockets,
            buffer: vec![0; DATAGRAM_MAX].into_boxed_slice(),
            commands: Vec::with_capacity(COMMANDS_A_TURN),
            legs: 0,
            beat_at: Instant::now(),
            forwarded_at: Instant::now(),
            figures: WorkerFigures::default(),
            shared,
        })
    }

    pub(super) fn run(mut self) {
        if self.shared.config.realtime {
            self.figures.realtime = sys::be_realtime(PRIORITY).is_ok();
        }
        if let Some(id) = watch::thread_id() {
            self.mailbox().runs_in(id);
        }
        let mut events = [EpollEvent::empty(); EVENTS_A_TURN];
        while !self.shared.stop.load(Ordering::Relaxed) {
            self.turn(&mut events);
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a thread of its own has a clock of its own")]
    fn turn(&mut self, events: &mut [EpollEvent]) {
        let now = Instant::now();
        // Under load a packet comes every few microseconds; going to sleep and being woken for each costs more than
        // forwarding it. At a low rate this never waits.
        let early = GAP.saturating_sub(now.saturating_duration_since(self.forwarded_at));
        if !early.is_zero() {
            std::thread::sleep(early);
        }
        let timeout = self.timeout(now + early);
        // Interrupted is as good as nothing to read.
        let count = self.epoll.wait(events, timeout).unwrap_or(0);
        let now = Instant::now();
        self.mailbox().turn();
        self.figures.turns += 1;
        let mut rung = false;
        for event in &events[..count] {
            match event.data() {
                BELL => rung = true,
                BEAT => self.hear(now),
                port => {
                    self.receive(now, port);
                    self.forwarded_at = now;
                }
            }
        }
        if self.relay.poll_timeout().is_some_and(|at| at <= now) {
            self.relay.handle_timeout(now);
        }
        self.do_outputs();
        if rung {
            self.obey(now);
        }
        if self.beat_at <= now {
            self.beat(now);
        }
    }

    /// Until the next beat or deadline, in whole milliseconds, rounded up: never a turn for nothing.
    fn timeout(&self, now: Instant) -> EpollTimeout {
        let at = self.relay.poll_timeout().map_or(self.beat_at, |at| at.min(self.beat_at));
        let left = at.saturating_duration_since(now).as_micros().div_ceil(1000);
        EpollTimeout::from(u16::try_from(left).unwrap_or(u16::MAX))
    }

    /// Reads one datagram and sends it on.
    fn receive(&mut self, now: Instant, port: u64) {
        let Some(port) = u16::try_from(port).ok() else { return };
        let Some(socket) = self.sockets.get(port) else { return };
        let received = socket.udp.recv_from(&mut self.buffer);
        let (len, from) = match received {
            Ok(received) => received,
            Err(error) => {
                self.figures.receive_failed += u64::from(error.kind() != ErrorKind::WouldBlock);
                return;
            }
        };
        if let Some(forward) = self.relay.forward(now, port, from, &self.buffer[..len]) {
            self.send(forward.port, forward.to, len);
        }
    }

    fn send(&mut self, port: u16, to: SocketAddr, len: usize) {
        let Some(socket) = self.sockets.get(port) else { return };
        let bytes = &self.buffer[..len];
        let sent =
            if socket.connected { socket.udp.send(bytes) } else { socket.udp.send_to(bytes, to) };
        if let Err(error) = sent {
            let figure = if error.kind() == ErrorKind::WouldBlock {
                &mut self.figures.send_full
            } else if error.kind() == ErrorKind::ConnectionRefused {
                &mut self.figures.send_refused
            } else {
                &mut self.figures.send_failed
            };
            *figure += 1;
        }
    }

    fn do_outputs(&mut self) {
        while let Some(output) = self.relay.poll_output() {
            match output {
                RelayOutput::Open { port } => {
                    if let Err(error) = self.open(port) {
                        self.close(port);
                        self.relay.refuse(port, reason(&error));
                    }
                }
                RelayOutput::Close { port } => self.close(port),
                RelayOutput::Connect { port, to } => {
                    if let Some(socket) = self.sockets.get_mut(port) {
                        // Unconnected it costs more and works as well.
                        socket.connected = socket.udp.connect(to).is_ok();
                    }
                }
                RelayOutput::Disconnect { port } => {
                    if let Some(socket) = self.sockets.get_mut(port)
                        && std::mem::take(&mut socket.connected)
                    {
                        socket.connected = sys::disconnect(&socket.udp).is_err();
                    }
                }
                RelayOutput::Notice(notice) => match self.mailbox().tell(notice) {
                    Some(true) => (self.shared.wake)(),
                    Some(false) => {}
                    None => self.figures.notices_dropped += 1,
                },
            }
        }
    }

    /// Obeys some commands; packets come between the rest.
    fn obey(&mut self, now: Instant) {
        let mut commands = std::mem::take(&mut self.commands);
        self.mailbox().answer();
        if self.mailbox().take(COMMANDS_A_TURN, &mut commands) {
            self.mailbox().ring();
        }
        for command in commands.drain(..) {
            match command {
                WorkerCommand::Apply { call, epoch, legs } => {
                    self.relay.apply(now, call, epoch, &legs);
                }
                WorkerCommand::Close { call } => self.relay.close(call),
            }
            self.do_outputs();
        }
        self.commands = commands;
        let legs = u32::try_from(self.relay.legs()).expect("there are 32,768 even ports");
        self.shared.legs.fetch_add(legs.wrapping_sub(self.legs), Ordering::Relaxed);
        self.legs = legs;
    }

    fn open(&mut self, port: u16) -> io::Result<()> {
        for port in [port, port + 1] {
            let local = SocketAddr::new(self.shared.config.listen, port);
            let socket =
                RawSocket::new(Domain::for_address(local), Type::DGRAM.nonblocking(), None)?;
            socket.bind(&local.into())?;
            self.epoll.add(socket.as_fd(), event(port.into()))?;
            let socket = Socket { udp: socket.into(), connected: false };
            self.sockets.set(port, Some(socket));
        }
        Ok(())
    }

    /// Closing a descriptor takes it out of the epoll.
    fn close(&mut self, port: u16) {
        for port in [port, port + 1] {
            self.sockets.set(port, None);
        }
    }

    /// Takes in who wants beats.
    fn hear(&mut self, now: Instant) {
        if let Ok((len, from)) = self.shared.beat_socket.recv_from(&mut self.buffer) {
            self.shared.hearers.lock().hear(now, from, &self.buffer[..len]);
        }
    }

    fn beat(&mut self, now: Instant) {
        // Kept in step, unless a whole beat was missed: no backlog of beats.
        let next = self.beat_at + BEAT_PERIOD;
        self.beat_at = if now < next { next } else { now + BEAT_PERIOD };
        self.figures.beats += 1;
        let config = &self.shared.config;
        let beat = Beat {
            gateway: config.gateway,
            boot: config.boot,
            worker: self.index,
            workers: config.workers,
            seq: u32::try_from(self.figures.beats & u64::from(u32::MAX)).expect("masked"),
            realtime: self.figures.realtime,
            standby: config.standby,
            draining: self.shared.draining.load(Ordering::Relaxed),
            legs: self.shared.legs.load(Ordering::Relaxed),
            legs_max: config.legs_max,
        };
        let beat = beat.encode();
        for hearer in self.shared.hearers.lock().recent(now) {
            // The next one comes soon.
            let _ = self.shared.beat_socket.send_to(&beat, hearer);
        }
        self.figures.counters = self.relay.counters();
        self.figures.legs = self.legs;
        self.mailbox().publish(self.figures);
    }

    fn mailbox(&self) -> &Mailbox {
        &self.shared.mailboxes[usize::from(self.index)]
    }
}

impl Sockets {
    fn new(ports: &RangeInclusive<u16>) -> Self {
        let slots = std::iter::repeat_with(|| None).take(ports.len()).collect();
        Self { first_port: *ports.start(), slots }
    }

    fn set(&mut self, port: u16, socket: Option<Socket>) {
        let slot = self.slot(port);
        if let Some(slot) = self.slots.get_mut(slot) {
            *slot = socket;
        }
    }

    fn get(&self, port: u16) -> Option<&Socket> {
        self.slots.get(self.slot(port))?.as_ref()
    }

    fn get_mut(&mut self, port: u16) -> Option<&mut Socket> {
        let slot = self.slot(port);
        self.slots.get_mut(slot)?.as_mut()
    }

    fn slot(&self, port: u16) -> usize {
        usize::from(port.wrapping_sub(self.first_port))
    }
}

fn event(data: u64) -> EpollEvent {
    EpollEvent::new(EpollFlags::EPOLLIN, data)
}

/// What the holder of a call can make of a system's error.
fn reason(error: &io::Error) -> FailReason {
    if matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::PermissionDenied) {
        FailReason::PortInUse
    } else {
        FailReason::Exhausted
    }
}

/// Beyond every port.
const BELL: u64 = 1 << 16;
const BEAT: u64 = BELL + 1;

/// From one turn to the next, at least, as long as packets come: what a packet may have to wait.
const GAP: Duration = Duration::from_micros(500);

const EVENTS_A_TURN: usize = 256;

/// Four sockets take about as long to open as 20 packets to forward.
const COMMANDS_A_TURN: usize = 16;

/// The longest that UDP carries.
const DATAGRAM_MAX: usize = 65_536;
