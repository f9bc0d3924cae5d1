//! The forwarding threads of a gateway: the one part of this crate that does I/O.

mod mailbox;
mod thread;

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use parking_lot::Mutex;

use crate::beat::Hearers;
use crate::frame::{CallId, LegSpec, Notice};
use crate::network::Network;
use crate::relay::{Counters, Relay, RelayConfig};
use crate::sys;
use crate::watch::{Doing, TICK, Watch};
pub use mailbox::Full;
use mailbox::Mailbox;
use thread::Worker;

/// What the forwarding threads have to know from the start.
#[derive(Clone, Debug)]
pub struct WorkersConfig {
    /// Threads; at least one.
    pub workers: u16,
    /// The address to which every media socket is bound.
    pub listen: IpAddr,
    /// Where hearers ask for beats, and whence those come.
    pub beat: SocketAddr,
    /// Whose asking counts.
    pub hearers: Vec<Network>,
    /// Node id, for the beats.
    pub gateway: u16,
    /// For the beats.
    pub boot: u64,
    /// For the beats.
    pub standby: bool,
    /// For the beats.
    pub legs_max: u32,
    /// Try for a real-time class.
    pub realtime: bool,
    /// Of each worker.
    pub relay: RelayConfig,
}

/// The forwarding threads, and the one that watches them.
///
/// A worker that hangs for 200 ms while the watching thread does not ends the process: only a dead process is proof for
/// the others. Time in which it only lacked a processor does not count. Without a real-time class, where it may wait
/// for another thread that lacks one, it is 2 s. Dropping this stops the threads and closes every socket.
#[derive(Debug)]
pub struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// Tells one worker what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerCommand {
    /// [`Relay::apply`].
    Apply {
        /// The call.
        call: CallId,
        /// Its epoch.
        epoch: u32,
        /// Its wanted state.
        legs: Box<[LegSpec; 2]>,
    },
    /// [`Relay::close`].
    Close {
        /// The call.
        call: CallId,
    },
}

/// The figures of one worker, at most one beat old.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerFigures {
    /// Packets by what became of them.
    pub counters: Counters,
    /// Open legs.
    pub legs: u32,
    /// Packets that the kernel had no room for on their way out.
    pub send_full: u64,
    /// Packets not sent because an earlier one was refused by the phone's host.
    pub send_refused: u64,
    /// Packets not sent for any other reason.
    pub send_failed: u64,
    /// Errors read from sockets: mostly phones that have closed their port.
    pub receive_failed: u64,
    /// Beats sent, each counted once whoever heard it.
    pub beats: u64,
    /// Turns of the loop.
    pub turns: u64,
    /// Notices left out because nobody had read the earlier ones.
    pub notices_dropped: u64,
    /// The thread has a real-time class.
    pub realtime: bool,
}

/// What the threads share.
struct Shared {
    config: WorkersConfig,
    beat_socket: UdpSocket,
    hearers: Mutex<Hearers>,
    draining: AtomicBool,
    legs: AtomicU32,
    stop: AtomicBool,
    mailboxes: Vec<Mailbox>,
    wake: Box<dyn Fn() + Send + Sync>,
    hang: Box<dyn Fn(usize) + Send + Sync>,
}

impl Workers {
    /// Opens the beat socket and starts the threads. `wake` is called, from any of them, when there is something to
    /// [`Workers::poll`]. `hang` is told which worker hangs, to log it; when it returns, the process is aborted.
    ///
    /// # Errors
    /// When the beat address cannot be had, or the system has no more files or threads.
    ///
    /// # Panics
    /// When no workers are asked for.
    pub fn start(
        config: WorkersConfig,
        wake: impl Fn() + Send + Sync + 'static,
        hang: impl Fn(usize) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        assert!(config.workers != 0, "a gateway has a worker");
        let beat_socket = UdpSocket::bind(config.beat)?;
        beat_socket.set_nonblocking(true)?;
        let mailboxes =
            (0..config.workers).map(|_| Mailbox::new()).collect::<io::Result<Vec<_>>>()?;
        let shared = Arc::new(Shared {
            hearers: Mutex::new(Hearers::new(config.hearers.clone())),
            config,
            beat_socket,
            draining: AtomicBool::new(false),
            legs: AtomicU32::new(0),
            stop: AtomicBool::new(false),
            mailboxes,
            wake: Box::new(wake),
            hang: Box::new(hang),
        });
        let mut workers = Self { shared: Arc::clone(&shared), threads: Vec::new() };
        for index in 0..shared.config.workers {
            let worker = Worker::new(Arc::clone(&shared), index)?;
            let name = format!("media {index}");
            workers.threads.push(Builder::new().name(name).spawn(move || worker.run())?);
        }
        let watch = Builder::new().name("media watch".into()).spawn(move || watch(&shared))?;
        workers.threads.push(watch);
        Ok(workers)
    }

    /// Hands a command to a worker, which obeys within a turn.
    ///
    /// # Errors
    /// When too many wait already; a [`WorkerCommand::Close`] is always taken.
    ///
    /// # Panics
    /// When there is no such worker.
    pub fn send(&self, worker: u16, command: WorkerCommand) -> Result<(), Full> {
        self.shared.mailboxes[usize::from(worker)].send(command)
    }

    /// Returns what a worker has to say, if anything.
    pub fn poll(&self) -> Option<Notice> {
        self.shared.mailboxes.iter().find_map(Mailbox::poll)
    }

    /// Says in every beat from now on that the gateway is draining.
    pub fn drain(&self) {
        self.shared.draining.store(true, Ordering::Relaxed);
    }

    /// Returns the figures of each worker.
    pub fn figures(&self) -> Vec<WorkerFigures> {
        self.shared.mailboxes.iter().map(Mailbox::figures).collect()
    }

    /// The address of the beat socket, with the port that the system chose if 0 was asked for.
    ///
    /// # Errors
    /// When the system will not say.
    pub fn beat_addr(&self) -> io::Result<SocketAddr> {
        self.shared.beat_socket.local_addr()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for mailbox in &self.shared.mailboxes {
            mailbox.ring();
        }
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // A worker that panicked has already said so.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("config", &self.config).finish_non_exhaustive()
    }
}

#[expect(clippy::disallowed_methods, reason = "the watching thread lives by the clock")]
fn watch(shared: &Shared) {
    // Above the workers: one that spins must not hide from it. Without the class it does what it can.
    let realtime = shared.config.realtime && sys::be_realtime(PRIORITY + 1).is_ok();
    let mut watch = Watch::new(Instant::now(), shared.mailboxes.len(), realtime);
    while !shared.stop.load(Ordering::Relaxed) {
        std::thread::park_timeout(TICK);
        let turns = shared.mailboxes.iter().map(Mailbox::turns);
        let doing = |worker: usize| Doing::of(shared.mailboxes[worker].thread()?);
        let hanging = watch.look(Instant::now(), turns, doing);
        if let Some(worker) = hanging.filter(|_| !shared.stop.load(Ordering::Relaxed)) {
            (shared.hang)(worker);
            std::process::abort();
        }
    }
}

/// Of the workers, in the real-time class.
const PRIORITY: i32 = 10;

#[cfg(test)]
mod tests;
