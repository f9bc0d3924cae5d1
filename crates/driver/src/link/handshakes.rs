//! TLS handshakes, on a thread of their own: their arithmetic keeps no link waiting.
//!
//! The loop owns every connection and its deadline. It lends the socket for the handshake, and ends
//! one that takes too long by shutting the socket down. Whatever is lent comes back once.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::task::Wake as _;
use std::time::Duration;

use rustls::Connection as Session;
use socket2::Socket;
use tracing::{error, info, warn};

use crate::metrics::Metrics;
use crate::node::NodeId;
use crate::run::unix_ms;
use crate::sys::{Bell, Poller};
use crate::tls::{Expiry, HandshakeFault, Tls, Watch};

/// Handshakes at once, those included that the loop has given up.
const HANDSHAKES_MAX: usize = 1024;
/// How often the certificates are looked at.
const LOOK_PERIOD: Duration = Duration::from_secs(600);
const BELL_TOKEN: u64 = u64::MAX;

/// The loop's side.
pub(super) struct Handshakes {
    orders: Sender<Order>,
    outcomes: Receiver<Outcome>,
    bell: Arc<Bell>,
    /// Rung by the thread.
    pub(super) done: Arc<Bell>,
    lent: usize,
    /// When the certificates in use end.
    expiries: Vec<Expiry>,
    reloads_failed: u64,
}

/// How a handshake ended.
pub(super) type Ended = (u64, Result<Box<Session>, HandshakeFault>);

enum Order {
    Begin(Lent),
    Reload,
    End,
}

/// A connection whose handshake is to be made.
struct Lent {
    id: u64,
    socket: Arc<Socket>,
    /// Who was dialled; `None` if it came in.
    dialled: Option<NodeId>,
}

enum Outcome {
    Ended(Ended),
    Reloaded(Option<Vec<Expiry>>),
}

impl Handshakes {
    pub(super) fn start(tls: Tls) -> io::Result<Self> {
        let (orders, from_loop) = channel();
        let (to_loop, outcomes) = channel();
        let (bell, done) = (Arc::new(Bell::new()?), Arc::new(Bell::new()?));
        let expiries = tls.expiries().to_vec();
        let poller = Poller::new()?;
        poller.add(&*bell, BELL_TOKEN, false)?;
        let worker = Worker {
            tls,
            poller,
            orders: from_loop,
            outcomes: to_loop,
            bell: bell.clone(),
            done: done.clone(),
            running: BTreeMap::new(),
            watch: Watch::default(),
        };
        std::thread::Builder::new().name("handshakes".into()).spawn(move || worker.run())?;
        Ok(Self { orders, outcomes, bell, done, lent: 0, expiries, reloads_failed: 0 })
    }

    /// Begins a handshake; returns false if there are too many.
    pub(super) fn begin(&mut self, id: u64, socket: Arc<Socket>, dialled: Option<NodeId>) -> bool {
        if HANDSHAKES_MAX <= self.lent {
            return false;
        }
        self.lent += 1;
        self.order(Order::Begin(Lent { id, socket, dialled }));
        true
    }

    /// Lets new connections have the certificates that are now in the files.
    pub(super) fn reload(&self) {
        self.order(Order::Reload);
    }

    /// Returns the next handshake that has ended.
    pub(super) fn poll_ended(&mut self) -> Option<Ended> {
        loop {
            match self.outcomes.try_recv().ok()? {
                Outcome::Ended(ended) => {
                    self.lent -= 1;
                    return Some(ended);
                }
                Outcome::Reloaded(Some(expiries)) => self.expiries = expiries,
                Outcome::Reloaded(None) => self.reloads_failed += 1,
            }
        }
    }

    /// Adds the figures of `unix_ms` milliseconds since 1970.
    pub(super) fn metrics(&self, unix_ms: u64, out: &mut Metrics) {
        let (name, help) = (
            "driver_certificate_days_left",
            "Whole days until a certificate of a file expires; below zero once it has.",
        );
        for end in &self.expiries {
            let (file, number) = (end.path.display().to_string(), end.number.to_string());
            let labels = [("file", file.as_str()), ("number", number.as_str())];
            let days = i32::try_from(end.days_left(unix_ms)).unwrap_or(i32::MAX);
            out.gauge(name, help, &labels, f64::from(days));
        }
        let (name, help) =
            ("driver_certificate_reloads_failed_total", "Times that the files were of no use.");
        out.counter(name, help, &[], self.reloads_failed);
        let lent = u32::try_from(self.lent).unwrap_or(u32::MAX);
        out.gauge("driver_handshakes", "Handshakes of TLS at this time.", &[], f64::from(lent));
    }

    #[cfg(test)]
    pub(super) fn running(&self) -> usize {
        self.lent
    }

    fn order(&self, order: Order) {
        // The thread ends after this, or with the process.
        let _ = self.orders.send(order);
        self.bell.wake_by_ref();
    }
}

impl Drop for Handshakes {
    fn drop(&mut self) {
        self.order(Order::End);
    }
}

/// The thread's side.
struct Worker {
    tls: Tls,
    poller: Poller,
    orders: Receiver<Order>,
    outcomes: Sender<Outcome>,
    bell: Arc<Bell>,
    done: Arc<Bell>,
    running: BTreeMap<u64, Handshake>,
    watch: Watch,
}

struct Handshake {
    lent: Lent,
    session: Box<Session>,
    /// Watched for writing.
    blocked: bool,
}

impl Worker {
    fn run(mut self) {
        let mut ready = Vec::new();
        loop {
            self.look_at_certificates();
            ready.clear();
            if let Err(error) = self.poller.wait(Some(LOOK_PERIOD), &mut ready) {
                error!(%error, "handshakes ended: no new link can be made");
                return;
            }
            for &(token, _) in &ready {
                if token != BELL_TOKEN {
                    self.go_on(token);
                } else if !self.take_orders() {
                    return;
                }
            }
        }
    }

    /// Returns whether to go on.
    fn take_orders(&mut self) -> bool {
        self.bell.hush();
        loop {
            match self.orders.try_recv() {
                Ok(Order::Begin(lent)) => self.begin(lent),
                Ok(Order::Reload) => self.reload(),
                Ok(Order::End) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    fn begin(&mut self, lent: Lent) {
        let id = lent.id;
        let session =
            lent.dialled.map_or_else(|| self.tls.accepted(), |peer| self.tls.dialled(peer));
        let session = session.map_err(HandshakeFault::of);
        let added = session.and_then(|session| {
            let added = self.poller.add(&*lent.socket, id, false);
            added.map(|()| session).map_err(|error| HandshakeFault::Failed(error.kind()))
        });
        match added {
            Ok(session) => {
                let session = Box::new(session);
                self.running.insert(id, Handshake { lent, session, blocked: false });
                self.go_on(id);
            }
            Err(fault) => self.tell(Outcome::Ended((id, Err(fault)))),
        }
    }

    fn go_on(&mut self, id: u64) {
        let Some(handshake) = self.running.get_mut(&id) else { return };
        let step = handshake.step().and_then(|done| {
            let blocked = handshake.session.wants_write();
            if !done && blocked != handshake.blocked {
                handshake.blocked = blocked;
                let modified = self.poller.modify(&*handshake.lent.socket, id, blocked);
                modified.map_err(|error| HandshakeFault::Failed(error.kind()))?;
            }
            Ok(done)
        });
        if let Ok(false) = step {
            return;
        }
        let Some(handshake) = self.running.remove(&id) else { return };
        self.poller.remove(&*handshake.lent.socket);
        self.tell(Outcome::Ended((id, step.map(|_| handshake.session))));
    }

    fn reload(&mut self) {
        let expiries = match self.tls.reload(unix_ms()) {
            Ok(tls) => {
                info!("new links take the certificates that are now in the files");
                self.watch = Watch::default();
                self.tls = tls;
                Some(self.tls.expiries().to_vec())
            }
            Err(errors) => {
                for why in errors {
                    error!(%why, "certificates not reloaded: new links take the old ones");
                }
                None
            }
        };
        self.tell(Outcome::Reloaded(expiries));
    }

    fn look_at_certificates(&mut self) {
        let now = unix_ms();
        for end in self.watch.due(now, self.tls.expiries()) {
            let (file, days) = (end.path.display(), end.days_left(now));
            if days < 0 {
                error!(%file, "a certificate has expired: links that end will not come back");
            } else {
                warn!(%file, days, "a certificate expires soon: issue another and send SIGHUP");
            }
        }
    }

    fn tell(&self, outcome: Outcome) {
        // The loop ends with the process.
        let _ = self.outcomes.send(outcome);
        self.done.wake_by_ref();
    }
}

impl Handshake {
    /// Reads once and writes what there is to write; returns whether the handshake is done.
    fn step(&mut self) -> Result<bool, HandshakeFault> {
        let mut socket = &*self.lent.socket;
        match self.session.read_tls(&mut socket) {
            Ok(0) => return Err(HandshakeFault::Closed),
            Ok(_) => {
                if let Err(error) = self.session.process_new_packets() {
                    // The peer is told why, if there is room.
                    let _ = self.session.write_tls(&mut socket);
                    return Err(HandshakeFault::of(error));
                }
            }
            Err(error) if super::is_transient(&error) => {}
            Err(error) => return Err(HandshakeFault::Failed(error.kind())),
        }
        while self.session.wants_write() {
            match self.session.write_tls(&mut socket) {
                Ok(_) => {}
                Err(error) if super::is_transient(&error) => return Ok(false),
                Err(error) => return Err(HandshakeFault::Failed(error.kind())),
            }
        }
        Ok(!self.session.is_handshaking())
    }
}
