//! The life of one connection: connecting, greeting, up, closed.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use rustls::Connection as Session;
use tracing::{debug, error, info, warn};

use super::ending::Ending;
use super::{Identity, Links, SEALED_LEN_MAX};
use crate::codec;
use crate::frame::{
    Fault, Frame, HELLO_MAX, HELLO_V1, HelloV1, KEEPALIVE as KEEPALIVE_KIND, KIND_FIRST,
    PAYLOAD_MAX, Reader, VERSION,
};
use crate::node::{Class, Input, NodeId};
use crate::patience::{BACKOFF_MIN, GREETING_MAX, KEEPALIVE, SILENCE_MAX};
use crate::queue::{CONGESTED_AFTER, Queue};
use crate::tls::wire::{ReadError, Wire, is_transient};
use crate::tls::{CertificateFault, check_name};

pub(super) struct Connection {
    pub(super) wire: Wire,
    pub(super) remote: SocketAddr,
    /// Which of the targets was dialled.
    pub(super) target: Option<usize>,
    pub(super) state: State,
    pub(super) reader: Reader,
    pub(super) queue: Queue,
    pub(super) heard_at: Instant,
    pub(super) said_at: Instant,
    /// Watched for writing: the kernel took no more, or is connecting.
    pub(super) blocked: bool,
}

#[derive(Clone, Copy)]
pub(super) enum State {
    /// The dialled peer has not answered.
    Connecting { until: Instant },
    /// TLS is not there yet; the socket is lent to the handshakes.
    Handshaking { until: Instant },
    /// One hello at least is missing.
    Greeting { until: Instant },
    /// Frames flow.
    Up { peer: NodeId, class: Class, boot: u64, version: u16 },
}

impl Connection {
    /// When it must be looked after; later than `now` if that was just done.
    pub(super) fn deadline(&self, now: Instant) -> Instant {
        match self.state {
            State::Connecting { until }
            | State::Handshaking { until }
            | State::Greeting { until } => until,
            State::Up { .. } => {
                let at = (self.said_at + KEEPALIVE).min(self.heard_at + SILENCE_MAX);
                match self.queue.oldest().map(|oldest| oldest + CONGESTED_AFTER) {
                    None => at,
                    Some(congested_at) if now < congested_at => at.min(congested_at),
                    // It is congested; soon something in it will be too old.
                    Some(_) => at.min(now + CONGESTED_AFTER),
                }
            }
        }
    }

    /// Whether all that was queued is with the kernel.
    pub(super) fn is_flushed(&self) -> bool {
        self.queue.is_empty() && self.wire.is_flushed()
    }

    /// Queues a frame of the links' own.
    fn say(&mut self, now: Instant, kind: u16, payload: &[u8]) {
        let pushed = self.queue.push(now, VERSION, kind, payload);
        debug_assert!(pushed, "an empty queue has room");
        self.said_at = now;
    }
}

impl Links {
    /// The dialled peer answered, or nobody did.
    pub(super) fn connected(&mut self, now: Instant, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let socket = &*connection.wire.socket;
        let outcome = match socket.take_error() {
            Ok(None) => self.poller.modify(socket, id, false),
            Ok(Some(error)) | Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            self.close(now, id, &error.into());
            return;
        }
        connection.blocked = false;
        connection.state = State::Greeting { until: now + GREETING_MAX };
        self.greet(now, id);
    }

    /// Begins what comes before frames: with TLS the handshake, then the dialler's hello.
    pub(super) fn greet(&mut self, now: Instant, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let target = connection.target.map(|target| &self.targets[target]);
        if let Some(handshakes) = &mut self.handshakes {
            let socket = connection.wire.socket.clone();
            self.poller.remove(&*socket);
            connection.state = State::Handshaking { until: now + GREETING_MAX };
            if handshakes.running() < HANDSHAKES_MAX {
                handshakes.begin(id, socket, target.map(|target| target.peer));
            } else {
                self.close(now, id, &Ending::Crowded);
            }
        } else if let Some(target) = target {
            connection.say(now, HELLO_V1, &hello(&self.identity, target.class));
            self.unwritten.push(id);
        }
    }

    /// Goes on with a connection whose handshake is done, unless it was given up before.
    pub(super) fn secured(&mut self, now: Instant, id: u64, session: Box<Session>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let State::Handshaking { until } = connection.state else { return };
        if let Err(error) = self.poller.add(&*connection.wire.socket, id, false) {
            self.close(now, id, &error.into());
            return;
        }
        connection.wire.secure(session, SEALED_LEN_MAX);
        connection.state = State::Greeting { until };
        if let Some(target) = connection.target {
            connection.say(now, HELLO_V1, &hello(&self.identity, self.targets[target].class));
            self.unwritten.push(id);
        }
        // The dialler's hello may have come with the end of its handshake.
        self.read(now, id);
    }

    /// Reads once what has come, all frames in it.
    pub(super) fn read(&mut self, now: Instant, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut reader = std::mem::take(&mut connection.reader);
        let (max, greeting) = match connection.state {
            State::Connecting { .. } | State::Handshaking { .. } | State::Greeting { .. } => {
                (HELLO_MAX, true)
            }
            State::Up { .. } => (PAYLOAD_MAX, false),
        };
        self.counters.reads += 1;
        match connection.wire.read(&mut scratch) {
            Ok((0, _)) => self.close(now, id, &Ending::Closed),
            Ok((len, bytes)) => {
                connection.heard_at = now;
                self.counters.bytes_in += len as u64;
                let read = if greeting && reader.is_empty() && is_tls(bytes) {
                    Err(Fault::SpeaksTls)
                } else {
                    reader.read(bytes, max, |frame| self.take(now, id, frame))
                };
                match (read, self.connections.get_mut(&id)) {
                    (Ok(()), Some(connection)) => connection.reader = reader,
                    (Ok(()), None) => {}
                    (Err(fault), _) => self.close(now, id, &fault.into()),
                }
            }
            Err(ReadError::Io(error)) if is_transient(&error) => connection.reader = reader,
            Err(error) => self.close(now, id, &error.into()),
        }
        self.scratch = scratch;
    }

    /// Takes in one frame; returns how long the next payload may be.
    fn take(&mut self, now: Instant, id: u64, frame: Frame) -> Result<usize, Fault> {
        let Some(connection) = self.connections.get(&id) else { return Ok(PAYLOAD_MAX) };
        let State::Up { peer, class, version, .. } = connection.state else {
            return self.greeted(now, id, &frame).map(|()| PAYLOAD_MAX);
        };
        if frame.version != version {
            return Err(Fault::Version);
        }
        match frame.kind {
            HELLO_V1 => return Err(Fault::NoHello),
            KEEPALIVE_KIND => {}
            ..KIND_FIRST => self.counters.unknown += 1,
            KIND_FIRST.. => {
                self.counters.frames_in += 1;
                let Frame { kind, payload, .. } = frame;
                self.events.push_back(Input::Frame { peer, class, kind, payload });
            }
        }
        Ok(PAYLOAD_MAX)
    }

    /// Takes in the frame that must be the peer's hello.
    fn greeted(&mut self, now: Instant, id: u64, frame: &Frame) -> Result<(), Fault> {
        if frame.kind != HELLO_V1 || frame.version != VERSION {
            return Err(Fault::NoHello);
        }
        let theirs: HelloV1 = codec::decode(&frame.payload).map_err(|_| Fault::BadHello)?;
        let class = class(theirs.class).ok_or(Fault::BadHello)?;
        if !(theirs.version_min..=theirs.version_max).contains(&VERSION) {
            return Err(Fault::NoVersion);
        }
        let peer = NodeId(theirs.node);
        let Some(connection) = self.connections.get(&id) else { return Ok(()) };
        let (target, remote) = (connection.target, connection.remote.ip());
        let expected = target.is_none_or(|target| {
            self.targets[target].peer == peer && self.targets[target].class == class
        });
        if peer.0 == 0 || peer == self.identity.node || !expected {
            return Err(Fault::WrongNode);
        }
        if self.handshakes.is_some() {
            let shown = connection.wire.shown();
            let checked = shown.ok_or(CertificateFault::Unsound);
            checked.and_then(|shown| check_name(shown, peer)).map_err(Fault::Certificate)?;
        }
        if let (None, Some(peers)) = (target, &self.peers) {
            let known = peers.get(&peer).ok_or(Fault::UnknownNode)?;
            if known.is_some_and(|ip| ip != remote) {
                return Err(Fault::WrongAddress);
            }
        }
        self.displace(now, peer, class, theirs.boot, target.is_some())?;

        let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
        match target {
            Some(target) => self.targets[target].backoff = BACKOFF_MIN,
            None => {
                connection.say(now, HELLO_V1, &hello(&self.identity, class));
                self.unwritten.push(id);
            }
        }
        connection.state = State::Up { peer, class, boot: theirs.boot, version: VERSION };
        self.look_at = self.look_at.min(connection.deadline(now));
        self.strangers.remove(&id);
        self.up.insert((peer, class), id);
        self.events.push_back(Input::LinkUp { peer, class, boot: theirs.boot });
        let (role, remote) = (&theirs.role, connection.remote);
        info!(%peer, %role, ?class, boot = theirs.boot, %remote, "link up");
        Ok(())
    }

    /// Makes room for a new link of `peer`, or refuses it.
    fn displace(
        &mut self,
        now: Instant,
        peer: NodeId,
        class: Class,
        boot: u64,
        dialled: bool,
    ) -> Result<(), Fault> {
        let links = self.up.range((peer, Class::Control)..=(peer, Class::Bulk));
        let mut gone = Vec::new();
        for (&(_, other), &id) in links {
            let Some(connection) = self.connections.get(&id) else { continue };
            let State::Up { boot: known, .. } = connection.state else { continue };
            if boot < known {
                return Err(Fault::Duplicate);
            }
            if known < boot {
                gone.push(id);
            } else if other == class {
                // Both dialled at once: the lower id's link stands. Else the
                // same end dialled again, and knows why.
                let crossed = connection.target.is_some() != dialled;
                if crossed && dialled != (self.identity.node < peer) {
                    return Err(Fault::Duplicate);
                }
                gone.push(id);
            }
        }
        for id in gone {
            self.close(now, id, &Ending::Replaced);
        }
        Ok(())
    }

    /// Writes once.
    pub(super) fn write(&mut self, now: Instant, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.is_flushed() || matches!(connection.state, State::Connecting { .. }) {
            return;
        }
        self.counters.writes += 1;
        match connection.wire.write(&[IoSlice::new(connection.queue.bytes())]) {
            Ok(written) => {
                connection.queue.written(written.taken);
                self.counters.bytes_out += written.sent as u64;
                if 0 < written.sent {
                    connection.said_at = now;
                }
            }
            Err(error) if is_transient(&error) => {}
            Err(error) => {
                self.close(now, id, &error.into());
                return;
            }
        }
        let blocked = !connection.is_flushed();
        if blocked != connection.blocked {
            connection.blocked = blocked;
            self.look_at = self.look_at.min(connection.deadline(now));
            if let Err(error) = self.poller.modify(&*connection.wire.socket, id, blocked) {
                self.close(now, id, &error.into());
                return;
            }
        }
        self.check_congestion(now, id);
    }

    /// Tells the node if a queue has become too old or no longer is.
    pub(super) fn check_congestion(&mut self, now: Instant, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let State::Up { peer, class, .. } = connection.state else { return };
        if let Some(on) = connection.queue.congestion(now) {
            self.counters.congested += u64::from(on);
            self.events.push_back(Input::Congested { peer, class, on });
        }
    }

    /// Does for one connection what is due.
    pub(super) fn look_after(&mut self, now: Instant, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        match connection.state {
            State::Connecting { until }
            | State::Handshaking { until }
            | State::Greeting { until } => {
                if until <= now {
                    self.close(now, id, &Ending::Late);
                }
            }
            State::Up { .. } => {
                if SILENCE_MAX <= now.saturating_duration_since(connection.heard_at) {
                    self.close(now, id, &Fault::Silence.into());
                    return;
                }
                if connection.said_at + KEEPALIVE <= now {
                    if connection.queue.is_empty() {
                        connection.say(now, KEEPALIVE_KIND, &[]);
                        self.unwritten.push(id);
                    }
                    connection.said_at = now;
                }
                self.check_congestion(now, id);
                if let Some(connection) = self.connections.get_mut(&id) {
                    self.counters.dropped_old += connection.queue.drop_old(now);
                }
            }
        }
    }

    /// Ends a connection, and tells the node if it was a link.
    pub(super) fn close(&mut self, now: Instant, id: u64, why: &Ending) {
        let Some(connection) = self.connections.remove(&id) else { return };
        self.strangers.remove(&id);
        self.poller.remove(&*connection.wire.socket);
        // Others may hold the file open; the peer is to see the end anyway.
        let _ = connection.wire.socket.shutdown(std::net::Shutdown::Both);
        let remote = connection.remote;
        match connection.state {
            State::Connecting { .. } => debug!(%remote, %why, "link not made"),
            State::Handshaking { .. } | State::Greeting { .. } => {
                self.faults.count(why);
                let peer = connection.target.map(|target| self.targets[target].peer);
                self.log_refusal(now, remote, peer, why);
            }
            State::Up { peer, class, .. } => {
                self.faults.count(why);
                if why.alarms() {
                    error!(%peer, ?class, %remote, %why, "link down");
                } else {
                    warn!(%peer, ?class, %remote, %why, "link down");
                }
                self.up.remove(&(peer, class));
                self.events.push_back(Input::LinkDown { peer, class });
            }
        }
        if let Some(target) = connection.target {
            self.redial(now, target);
        }
    }

    fn log_refusal(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        dialled: Option<NodeId>,
        why: &Ending,
    ) {
        let Some(before) = self.faults.logs(now, why, dialled) else { return };
        let peer = dialled.map(tracing::field::display);
        if why.alarms() {
            error!(peer, %remote, %why, before, "link refused");
        } else {
            warn!(peer, %remote, %why, before, "link refused");
        }
    }
}

fn hello(identity: &Identity, class: Class) -> Bytes {
    codec::encode(&HelloV1 {
        node: identity.node.0,
        role: identity.role.clone(),
        boot: identity.boot,
        class: match class {
            Class::Control => 0,
            Class::Calls => 1,
            Class::Bulk => 2,
        },
        version_min: VERSION,
        version_max: VERSION,
    })
}

fn class(number: u8) -> Option<Class> {
    match number {
        0 => Some(Class::Control),
        1 => Some(Class::Calls),
        2 => Some(Class::Bulk),
        _ => None,
    }
}

/// Whether bytes begin with a handshake or an alert of TLS, as no hello of ours can: RFC 8446 §5.1.
fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [0x15 | 0x16, 3, ..])
}

/// Handshakes at once, those included that were given up.
const HANDSHAKES_MAX: usize = 1024;
