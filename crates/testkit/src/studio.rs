//! A fleet over real sockets: one thread, one epoll.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use driver::{Output, SocketId};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{setsockopt, sockopt::RcvBuf};

use crate::cut::{Deaf, cut, heal};
use crate::fleet::{Config, Fleet};
use crate::voice::PACKET_LEN;

/// A fleet that runs in a thread of its own until dropped or closed.
#[derive(Debug)]
pub struct Studio {
    jobs: Sender<Job>,
    wake: Arc<EventFd>,
    thread: Option<JoinHandle<Fleet>>,
}

/// How well the studio itself kept its time since it was last asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// The latest RTP tick came this long after its time. Above 20 ms the
    /// phones' measures tell more of the studio than of anything else.
    pub late_max: Duration,
    /// Packets that the kernel did not take, so nobody could receive them.
    pub unsent: u64,
}

/// Why a studio could not open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StudioError {
    /// The phones' address is not on this host, a port is taken, or the
    /// process has too few files (`ulimit -n`).
    #[error("cannot open {0}: {1}")]
    Bind(SocketAddr, #[source] io::Error),
    /// The system gave no epoll, event or thread.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

type Job = Box<dyn FnOnce(&mut Room) + Send>;

/// What the thread owns.
struct Room {
    fleet: Fleet,
    sockets: BTreeMap<SocketId, UdpSocket>,
    epoll: Epoll,
    pace: Pace,
    deaf: Option<Deaf>,
    error: Option<(SocketAddr, io::Error)>,
}

/// The epoll name of the event that tells of a job.
const JOB: u64 = u64::MAX;
/// Enough for the SIP of 1,000 calls at once.
const RECEIVE_BUFFER: usize = 4 << 20;

impl Studio {
    /// Opens the sockets of a new fleet and starts its thread.
    ///
    /// # Errors
    /// When a socket or the thread cannot be had.
    pub fn open(config: Config, seed: u64) -> Result<Self, StudioError> {
        let fleet = Fleet::new(config, seed, clock());
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(io::Error::from)?;
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let wake = Arc::new(wake.map_err(io::Error::from)?);
        let event = EpollEvent::new(EpollFlags::EPOLLIN, JOB);
        epoll.add(&*wake, event).map_err(io::Error::from)?;
        let sockets = BTreeMap::new();
        let mut room =
            Room { fleet, sockets, epoll, pace: Pace::default(), deaf: None, error: None };
        room.do_outputs();
        if let Some((address, error)) = room.error {
            return Err(StudioError::Bind(address, error));
        }
        let (jobs, queue) = channel();
        let thread = std::thread::Builder::new().name("phones".to_owned()).spawn({
            let wake = Arc::clone(&wake);
            move || {
                if room.fleet.config().realtime {
                    // Without the right to it the phones are late now and
                    // then, and their pace tells.
                    let _ = driver::realtime();
                }
                room.run(&queue, &wake)
            }
        })?;
        Ok(Self { jobs, wake, thread: Some(thread) })
    }

    /// Lets `act` see and change the fleet between two of its turns, and
    /// returns its result. The time is that of the turn.
    ///
    /// # Panics
    /// When the studio's thread has panicked.
    pub fn with<R: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Fleet, Instant) -> R + Send + 'static,
    ) -> R {
        self.ask(|room| act(&mut room.fleet, clock()))
    }

    /// Returns how the studio kept its time, and begins anew.
    ///
    /// # Panics
    /// When the studio's thread has panicked.
    pub fn take_pace(&self) -> Pace {
        self.ask(|room| std::mem::take(&mut room.pace))
    }

    /// Makes all phones deaf to something, or to nothing.
    ///
    /// # Errors
    /// When the kernel does not take the filter.
    ///
    /// # Panics
    /// When the studio's thread has panicked.
    pub fn deafen(&self, to: Option<Deaf>) -> io::Result<()> {
        self.ask(move |room| room.deafen(to))
    }

    /// Ends the thread and returns the fleet as it is.
    ///
    /// # Panics
    /// When the studio's thread has panicked.
    pub fn close(mut self) -> Fleet {
        self.stop().expect("the studio's thread runs until it is stopped")
    }

    fn ask<R: Send + 'static>(&self, act: impl FnOnce(&mut Room) -> R + Send + 'static) -> R {
        let (sender, answer) = channel();
        let job = Box::new(move |room: &mut Room| {
            // Nobody waits any more only if the asking thread has panicked.
            let _ = sender.send(act(room));
        });
        let sent = self.jobs.send(job).is_ok() && self.wake.write(1).is_ok();
        assert!(sent, "the studio's thread runs");
        answer.recv().expect("the studio's thread answers")
    }

    /// Ends the queue of jobs, and with it the thread.
    fn stop(&mut self) -> Option<Fleet> {
        let thread = self.thread.take()?;
        drop(std::mem::replace(&mut self.jobs, channel().0));
        let _ = self.wake.write(1);
        thread.join().ok()
    }
}

impl Drop for Studio {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Room {
    fn run(mut self, queue: &Receiver<Job>, wake: &EventFd) -> Fleet {
        let mut events = [EpollEvent::empty(); 256];
        let mut buffer = [0; 65_536];
        loop {
            self.do_due();
            let count = self.epoll.wait(&mut events, self.timeout()).unwrap_or(0);
            for event in &events[..count] {
                if event.data() != JOB {
                    self.receive(event.data(), &mut buffer);
                    continue;
                }
                let _ = wake.read();
                loop {
                    match queue.try_recv() {
                        Ok(job) => job(&mut self),
                        Err(std::sync::mpsc::TryRecvError::Empty) => break,
                        Err(std::sync::mpsc::TryRecvError::Disconnected) => return self.fleet,
                    }
                }
            }
        }
    }

    fn do_due(&mut self) {
        self.fleet.do_due(clock());
        self.do_outputs();
        let mut packet = [0; PACKET_LEN];
        loop {
            let now = clock();
            // Asked before, because turns long past are skipped.
            self.pace.late_max = self.pace.late_max.max(self.fleet.lateness(now));
            let Some(speaks) = self.fleet.speak(now, &mut packet) else { break };
            self.send(speaks.socket, speaks.to, &packet);
        }
    }

    /// Rounded up to the millisecond, as the deadlines of RTP are.
    fn timeout(&self) -> EpollTimeout {
        let next = [self.fleet.sip_due_at(), self.fleet.voice_due_at()].into_iter().flatten().min();
        let Some(next) = next else { return EpollTimeout::NONE };
        let wait = next.saturating_duration_since(clock()).as_micros().div_ceil(1000);
        EpollTimeout::from(u16::try_from(wait).unwrap_or(u16::MAX))
    }

    fn receive(&mut self, name: u64, buffer: &mut [u8]) {
        let id = SocketId(u32::try_from(name).unwrap_or(u32::MAX));
        let Some(socket) = self.sockets.get(&id) else { return };
        let Ok((length, from)) = socket.recv_from(buffer) else { return };
        let now = clock();
        match self.fleet.config().rtp_phone(id) {
            Some(phone) => {
                if let Some(to) = self.fleet.hear_voice(now, phone, &buffer[..length]) {
                    self.send(id, to, &buffer[..length]);
                }
            }
            None => {
                let bytes = Bytes::copy_from_slice(&buffer[..length]);
                self.fleet.hear_sip(now, id, from, &bytes);
                self.do_outputs();
            }
        }
    }

    fn do_outputs(&mut self) {
        while let Some(output) = self.fleet.pop_output() {
            match output {
                Output::Bind { socket, local, .. } => match self.bind(socket, local) {
                    Ok(()) => {}
                    Err(error) => self.error = Some((local, error)),
                },
                Output::Datagram { socket, to, bytes } => self.send(socket, to, &bytes),
                Output::Unbind { socket } => {
                    self.sockets.remove(&socket);
                }
                Output::Listen { .. }
                | Output::Stream { .. }
                | Output::Frame { .. }
                | Output::Reply { .. }
                | Output::Write { .. }
                | Output::Stop(_) => {}
            }
        }
    }

    fn bind(&mut self, id: SocketId, local: SocketAddr) -> io::Result<()> {
        let socket = UdpSocket::bind(local)?;
        socket.set_nonblocking(true)?;
        if self.fleet.config().rtp_phone(id).is_none() {
            setsockopt(&socket, RcvBuf, &RECEIVE_BUFFER)?;
        }
        if let Some(deaf) = &self.deaf {
            cut(&socket, deaf)?;
        }
        self.epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, u64::from(id.0)))?;
        self.sockets.insert(id, socket);
        Ok(())
    }

    fn send(&mut self, socket: SocketId, to: SocketAddr, bytes: &[u8]) {
        let Some(socket) = self.sockets.get(&socket) else { return };
        // A refusal that came back for an earlier packet says nothing about
        // this one, but has used up the call.
        let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        let mut sent = socket.send_to(bytes, to);
        if sent.as_ref().is_err_and(refused) {
            sent = socket.send_to(bytes, to);
        }
        if sent.is_err() {
            self.pace.unsent += 1;
        }
    }

    fn deafen(&mut self, to: Option<Deaf>) -> io::Result<()> {
        let before = std::mem::replace(&mut self.deaf, to);
        for socket in self.sockets.values() {
            match &self.deaf {
                Some(deaf) => cut(socket, deaf)?,
                None if before.is_some() => heal(socket)?,
                None => {}
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Room").finish_non_exhaustive()
    }
}

/// Returns how many packets the kernel has dropped at this host's UDP sockets
/// with local address `ip` since they were opened, for want of room or by a
/// filter.
///
/// # Errors
/// When `/proc/net/udp` cannot be read.
pub fn drops_at(ip: Ipv4Addr) -> io::Result<u64> {
    let table = std::fs::read_to_string("/proc/net/udp")?;
    // The table shows the address as the host's own number.
    let local = format!("{:08X}:", u32::from_ne_bytes(ip.octets()));
    let drops = |line: &str| {
        let mut words = line.split_whitespace();
        let ours = words.nth(1)?.starts_with(&local);
        ours.then(|| words.last()?.parse::<u64>().ok()).flatten()
    };
    Ok(table.lines().filter_map(drops).sum())
}

#[expect(clippy::disallowed_methods, reason = "the studio is a driver of its own")]
fn clock() -> Instant {
    Instant::now()
}
