//! TLS handshakes, on a thread of their own: their arithmetic keeps nobody else waiting.
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

use super::wire::is_transient;
use super::{Expiry, HandshakeFault, TlsError, Watch};
use crate::run::unix_ms;
use crate::sys::{Bell, Poller};

/// What one handshake may take in, in bytes: chains of certificates are shorter.
const HANDSHAKE_LEN_MAX: usize = 3 << 14;
/// How often the certificates are looked at.
const LOOK_PERIOD: Duration = Duration::from_secs(600);
const BELL_TOKEN: u64 = u64::MAX;

/// What is shown and asked for in handshakes.
pub(crate) trait Credentials: Sized + Send + 'static {
    /// Who is at the other end, as far as that is known.
    type Peer: Send;

    /// Begins a connection.
    fn begin(&self, peer: &Self::Peer) -> Result<Session, rustls::Error>;
    /// Reads the same files once more.
    fn reload(&self, unix_ms: u64) -> Result<Self, Vec<TlsError>>;
    /// When the certificates of the files end.
    fn expiries(&self) -> &[Expiry];
}

/// The loop's side.
pub(crate) struct Handshakes<C: Credentials> {
    orders: Sender<Order<C>>,
    outcomes: Receiver<Outcome>,
    bell: Arc<Bell>,
    lent: usize,
    /// When the certificates in use end.
    expiries: Vec<Expiry>,
    reloads_failed: u64,
}

/// How a handshake ended.
pub(crate) type Ended = (u64, Result<Box<Session>, HandshakeFault>);

enum Order<C: Credentials> {
    Begin(Lent, C::Peer),
    Reload,
    End,
}

/// A connection whose handshake is to be made.
struct Lent {
    id: u64,
    socket: Arc<Socket>,
}

enum Outcome {
    Ended(Ended),
    Reloaded(Option<Vec<Expiry>>),
}

impl<C: Credentials> Handshakes<C> {
    /// Starts the thread, which rings `done` when there is something to be told.
    pub(crate) fn start(credentials: C, done: Arc<Bell>) -> io::Result<Self> {
        let (orders, from_loop) = channel();
        let (to_loop, outcomes) = channel();
        let bell = Arc::new(Bell::new()?);
        let expiries = credentials.expiries().to_vec();
        let poller = Poller::new()?;
        poller.add(&*bell, BELL_TOKEN, false)?;
        let worker = Worker {
            credentials,
            poller,
            orders: from_loop,
            outcomes: to_loop,
            bell: bell.clone(),
            done,
            running: BTreeMap::new(),
            watch: Watch::default(),
        };
        std::thread::Builder::new().name("handshakes".into()).spawn(move || worker.run())?;
        Ok(Self { orders, outcomes, bell, lent: 0, expiries, reloads_failed: 0 })
    }

    /// Begins a handshake.
    pub(crate) fn begin(&mut self, id: u64, socket: Arc<Socket>, peer: C::Peer) {
        self.lent += 1;
        self.order(Order::Begin(Lent { id, socket }, peer));
    }

    /// Lets new connections have the certificates that are now in the files.
    pub(crate) fn reload(&self) {
        self.order(Order::Reload);
    }

    /// Returns the next handshake that has ended.
    pub(crate) fn poll_ended(&mut self) -> Option<Ended> {
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

    /// Handshakes at this time, those included that the loop has given up.
    pub(crate) fn running(&self) -> usize {
        self.lent
    }

    /// When the certificates in use end.
    pub(crate) fn expiries(&self) -> &[Expiry] {
        &self.expiries
    }

    /// How often the files were of no use.
    pub(crate) fn reloads_failed(&self) -> u64 {
        self.reloads_failed
    }

    fn order(&self, order: Order<C>) {
        // The thread ends after this, or with the process.
        let _ = self.orders.send(order);
        self.bell.wake_by_ref();
    }
}

impl<C: Credentials> Drop for Handshakes<C> {
    fn drop(&mut self) {
        self.order(Order::End);
    }
}

/// The thread's side.
struct Worker<C: Credentials> {
    credentials: C,
    poller: Poller,
    orders: Receiver<Order<C>>,
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
    /// How much has come.
    read_len: usize,
}

impl<C: Credentials> Worker<C> {
    fn run(mut self) {
        let mut ready = Vec::new();
        loop {
            self.look_at_certificates();
            ready.clear();
            if let Err(error) = self.poller.wait(Some(LOOK_PERIOD), &mut ready) {
                error!(%error, "handshakes ended: no new connection can be made");
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
                Ok(Order::Begin(lent, peer)) => self.begin(lent, &peer),
                Ok(Order::Reload) => self.reload(),
                Ok(Order::End) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    fn begin(&mut self, lent: Lent, peer: &C::Peer) {
        let id = lent.id;
        if Arc::strong_count(&lent.socket) == 1 {
            // The loop has given it up before its turn came.
            return self.tell(Outcome::Ended((id, Err(HandshakeFault::Closed))));
        }
        let session = self.credentials.begin(peer).map_err(HandshakeFault::of);
        let added = session.and_then(|session| {
            let added = self.poller.add(&*lent.socket, id, false);
            added.map(|()| session).map_err(|error| HandshakeFault::Failed(error.kind()))
        });
        match added {
            Ok(session) => {
                let session = Box::new(session);
                self.running.insert(id, Handshake { lent, session, blocked: false, read_len: 0 });
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
        let expiries = match self.credentials.reload(unix_ms()) {
            Ok(credentials) => {
                info!("new connections take the certificates that are now in the files");
                self.watch = Watch::default();
                self.credentials = credentials;
                Some(self.credentials.expiries().to_vec())
            }
            Err(errors) => {
                for why in errors {
                    error!(%why, "certificates not reloaded: new connections take the old ones");
                }
                None
            }
        };
        self.tell(Outcome::Reloaded(expiries));
    }

    fn look_at_certificates(&mut self) {
        let now = unix_ms();
        for end in self.watch.due(now, self.credentials.expiries()) {
            let (file, days) = (end.path.display(), end.days_left(now));
            if days < 0 {
                error!(%file, "a certificate has expired: no new connection is taken with it");
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
            Ok(len) => {
                self.read_len += len;
                if HANDSHAKE_LEN_MAX < self.read_len {
                    return Err(HandshakeFault::TooLong);
                }
                if let Err(error) = self.session.process_new_packets() {
                    // The peer is told why, if there is room.
                    let _ = self.session.write_tls(&mut socket);
                    return Err(HandshakeFault::of(error));
                }
            }
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(HandshakeFault::Failed(error.kind())),
        }
        while self.session.wants_write() {
            match self.session.write_tls(&mut socket) {
                Ok(_) => {}
                Err(error) if is_transient(&error) => return Ok(false),
                Err(error) => return Err(HandshakeFault::Failed(error.kind())),
            }
        }
        Ok(!self.session.is_handshaking())
    }
}
