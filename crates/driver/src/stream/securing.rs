//! How connections get their TLS: on the thread of the handshakes of their listener.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rustls::Connection as Session;

use super::ending::Ending;
use super::{Connection, Streams};
use crate::metrics::Metrics;
use crate::node::SocketId;
use crate::sys::Bell;
use crate::tls::handshakes::Handshakes;
use crate::tls::{Expiry, HandshakeFault, SipTls};

/// The TLS of one listener.
pub(super) struct Securing {
    handshakes: Handshakes<SipTls>,
    connects: bool,
    /// Handshakes that are still to come back though their connections are gone; they hold files.
    pub(super) given_up: usize,
}

impl Securing {
    /// Starts the thread, which rings `done` when there is something to be told.
    pub(super) fn start(tls: SipTls, done: Arc<Bell>) -> io::Result<Self> {
        let connects = tls.connects();
        Ok(Self { handshakes: Handshakes::start(tls, done)?, connects, given_up: 0 })
    }

    /// Whether connections can be made.
    pub(super) fn connects(&self) -> bool {
        self.connects
    }

    /// Whether it is so far behind that nothing more should be begun.
    pub(super) fn is_behind(&self) -> bool {
        GIVEN_UP_MAX <= self.given_up
    }
}

impl Streams {
    /// Lends a connection to the handshakes.
    pub(super) fn secure(&mut self, now: Instant, id: u32) {
        let Some(connection) = self.connections.get(&id) else { return };
        let socket = connection.wire.socket.clone();
        self.poller.remove(&*socket);
        let peer = connection.is_made.then_some(connection.remote);
        let listener = self.listeners.get_mut(&connection.listener);
        match listener.and_then(|listener| listener.securing.as_mut()) {
            Some(securing) => securing.handshakes.begin(id.into(), socket, peer),
            None => self.close(now, id, &Ending::Unlistened),
        }
    }

    /// Takes back what the handshakes are done with.
    pub(crate) fn handshaken(&mut self, now: Instant) {
        self.handshaken.hush();
        for listener in self.listeners.keys().copied().collect::<Vec<_>>() {
            while let Some((id, ended)) = self.next_ended(listener) {
                match ended {
                    Ok(session) => self.secured(now, id, session),
                    Err(fault) => self.refuse(now, id, fault),
                }
            }
        }
    }

    /// Lets connections that begin from now on have the certificates that the files now hold.
    pub(crate) fn reload(&self) {
        for securing in self.listeners.values().filter_map(|listener| listener.securing.as_ref()) {
            securing.handshakes.reload();
        }
    }

    /// Ends a connection whose peer has no TLS that is believed, or breaks its rules.
    pub(super) fn refuse(&mut self, now: Instant, id: u32, fault: HandshakeFault) {
        let Some(connection) = self.connections.get(&id) else { return };
        let (remote, why) = (connection.remote, Ending::Tls(fault));
        self.endings.tell(now, remote, &why);
        self.close(now, id, &why);
    }

    /// Finds a connection with a peer. With TLS only one that we made, where the peer had to show who it is,
    /// will do.
    pub(super) fn with_peer(&self, socket: SocketId, remote: SocketAddr) -> Option<u32> {
        let id = *self.by_remote.get(&(socket, remote))?;
        let connection = self.connections.get(&id)?;
        (connection.is_made || !connection.is_tls).then_some(id)
    }

    /// Whether there is a connection with a peer that we made.
    pub(super) fn has_made(&self, place: (SocketId, SocketAddr)) -> bool {
        let id = self.by_remote.get(&place);
        let connection = id.and_then(|id| self.connections.get(id));
        connection.is_some_and(|connection| connection.is_made)
    }

    /// Returns the next handshake of a listener that has ended, unless it was given up before.
    fn next_ended(&mut self, listener: SocketId) -> Option<(u32, Ended)> {
        let securing = self.listeners.get_mut(&listener)?.securing.as_mut()?;
        loop {
            let (id, ended) = securing.handshakes.poll_ended()?;
            let id = u32::try_from(id).unwrap_or_default();
            let waits = |it: &Connection| it.listener == listener && it.is_securing();
            if self.connections.get(&id).is_some_and(waits) {
                return Some((id, ended));
            }
            securing.given_up = securing.given_up.saturating_sub(1);
        }
    }

    /// Goes on with a connection whose handshake is done.
    fn secured(&mut self, now: Instant, id: u32, session: Box<Session>) {
        let token = self.token(id);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let Err(error) = self.poller.add(&*connection.wire.socket, token, false) {
            return self.close(now, id, &Ending::Io(error));
        }
        connection.secured(now, session);
        self.counters.secured += 1;
        self.unwritten.push(id);
        self.arm(id);
        // The first message may have come with the end of the handshake.
        self.put_off(id);
    }

    /// Adds the figures of `unix_ms` milliseconds since 1970.
    pub(super) fn securing_metrics(&self, unix_ms: u64, out: &mut Metrics) {
        let all = || self.listeners.values().filter_map(|listener| listener.securing.as_ref());
        if all().next().is_none() {
            return;
        }
        let (name, help) = (
            "driver_stream_certificate_days_left",
            "Whole days until a certificate of SIP over TLS expires; below zero once it has.",
        );
        // Listeners may have files in common.
        let ends: BTreeMap<(&Path, usize), &Expiry> = all()
            .flat_map(|securing| securing.handshakes.expiries())
            .map(|end| ((end.path.as_path(), end.number), end))
            .collect();
        for end in ends.values() {
            end.metrics(unix_ms, name, help, out);
        }
        let (name, help) = (
            "driver_stream_certificate_reloads_failed_total",
            "Times that the files of SIP over TLS were of no use.",
        );
        let failed = all().map(|securing| securing.handshakes.reloads_failed()).sum();
        out.counter(name, help, &[], failed);
        let running: usize = all().map(|securing| securing.handshakes.running()).sum();
        let running = u32::try_from(running).unwrap_or(u32::MAX);
        let (name, help) = ("driver_stream_handshakes", "Handshakes of SIP over TLS at this time.");
        out.gauge(name, help, &[], f64::from(running));
        let (name, help) = ("driver_stream_secured_total", "Handshakes of SIP over TLS so far.");
        out.counter(name, help, &[], self.counters.secured);
    }
}

type Ended = Result<Box<Session>, HandshakeFault>;

/// How many given up handshakes may be under way: so many files more than connections.
const GIVEN_UP_MAX: usize = 64;
