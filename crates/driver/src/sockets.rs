//! Datagram sockets: one recvmmsg and one sendmmsg per socket and turn.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use socket2::{Domain, Protocol, Socket, Type};

use crate::metrics::Metrics;
use crate::mmsg::{self, Arena};
use crate::node::{BindError, Input, SocketId};
use crate::sys::Poller;

/// The receive buffer that is asked for; the system may give less.
const RECEIVE_BUFFER_LEN: usize = 4 << 20;
/// What one socket may have to send at the end of a turn.
const UNSENT_MAX: usize = 1 << 14;

/// All datagram sockets of a process.
pub(crate) struct Sockets {
    poller: Rc<Poller>,
    /// Added to a socket's id to make its token.
    token_base: u64,
    sockets: BTreeMap<SocketId, UdpSocket>,
    /// Sockets with something to send in this turn.
    unsent: Vec<SocketId>,
    arena: Arena,
    counters: Counters,
}

struct UdpSocket {
    socket: Socket,
    is_ipv4: bool,
    is_connected: bool,
    unsent: Vec<(SocketAddr, Bytes)>,
}

#[derive(Default)]
struct Counters {
    datagrams_in: u64,
    datagrams_out: u64,
    receives: u64,
    sends: u64,
    refused: u64,
    receive_errors: u64,
    send_errors: u64,
    send_full: u64,
    no_socket: u64,
}

impl Sockets {
    pub(crate) fn new(poller: Rc<Poller>, token_base: u64) -> Self {
        Self {
            poller,
            token_base,
            sockets: BTreeMap::new(),
            unsent: Vec::new(),
            arena: Arena::new(),
            counters: Counters::default(),
        }
    }

    /// Opens a socket and returns its local address.
    pub(crate) fn bind(
        &mut self,
        id: SocketId,
        local: SocketAddr,
        peer: Option<SocketAddr>,
    ) -> Result<SocketAddr, BindError> {
        let Entry::Vacant(entry) = self.sockets.entry(id) else { return Err(BindError::InUse) };
        let open = || {
            let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
            socket.set_nonblocking(true)?;
            if local.is_ipv6() {
                socket.set_only_v6(true)?;
            }
            // More than the system allows is cut to what it does.
            socket.set_recv_buffer_size(RECEIVE_BUFFER_LEN)?;
            socket.bind(&local.into())?;
            if let Some(peer) = peer {
                socket.connect(&peer.into())?;
            }
            self.poller.add(&socket, self.token_base + u64::from(id.0), false)?;
            let local = socket.local_addr()?.as_socket().unwrap_or(local);
            Ok((socket, local))
        };
        let (socket, local) = open().map_err(|error| bind_error(&error))?;
        entry.insert(UdpSocket {
            socket,
            is_ipv4: local.is_ipv4(),
            is_connected: peer.is_some(),
            unsent: Vec::new(),
        });
        Ok(local)
    }

    /// Whether a name is that of a socket.
    pub(crate) fn has(&self, id: SocketId) -> bool {
        self.sockets.contains_key(&id)
    }

    /// Sends what waits and closes a socket.
    pub(crate) fn unbind(&mut self, id: SocketId, inputs: &mut Vec<Input>) {
        self.send_all(id, inputs);
        if let Some(socket) = self.sockets.remove(&id) {
            self.poller.remove(&socket.socket);
        }
    }

    /// Receives once, up to 64 datagrams.
    pub(crate) fn receive(&mut self, id: SocketId, inputs: &mut Vec<Input>) {
        let Some(socket) = self.sockets.get(&id) else { return };
        self.counters.receives += 1;
        let before = inputs.len();
        let received = self.arena.receive(&socket.socket, |from, bytes| {
            inputs.push(Input::Datagram { socket: id, from, bytes });
        });
        self.counters.datagrams_in += (inputs.len() - before) as u64;
        let Err(error) = received else { return };
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => {}
            Some(libc::ECONNREFUSED) => {
                self.counters.refused += 1;
                if socket.is_connected {
                    inputs.push(Input::Refused { socket: id });
                }
            }
            Some(_) | None => self.counters.receive_errors += 1,
        }
    }

    /// Keeps a datagram until [`flush`](Self::flush).
    pub(crate) fn send(&mut self, id: SocketId, to: SocketAddr, bytes: Bytes) {
        let Some(socket) = self.sockets.get_mut(&id) else {
            self.counters.no_socket += 1;
            return;
        };
        if socket.is_ipv4 != to.is_ipv4() {
            self.counters.send_errors += 1;
            return;
        }
        if UNSENT_MAX <= socket.unsent.len() {
            self.counters.send_full += 1;
            return;
        }
        if socket.unsent.is_empty() {
            self.unsent.push(id);
        }
        socket.unsent.push((to, bytes));
    }

    /// Sends what was kept since the last time: one call per socket and 64
    /// datagrams.
    pub(crate) fn flush(&mut self, inputs: &mut Vec<Input>) {
        for id in std::mem::take(&mut self.unsent) {
            self.send_all(id, inputs);
        }
    }

    pub(crate) fn metrics(&self, out: &mut Metrics) {
        let counters = &self.counters;
        let (name, help) = ("driver_datagrams_total", "Datagrams on sockets.");
        out.counter(name, help, &[("direction", "in")], counters.datagrams_in);
        out.counter(name, help, &[("direction", "out")], counters.datagrams_out);
        let (name, help) = ("driver_datagram_calls_total", "System calls on datagram sockets.");
        out.counter(name, help, &[("call", "recvmmsg")], counters.receives);
        out.counter(name, help, &[("call", "sendmmsg")], counters.sends);
        let (name, help) = ("driver_datagrams_dropped_total", "Datagrams that were not sent.");
        out.counter(name, help, &[("why", "error")], counters.send_errors);
        out.counter(name, help, &[("why", "full")], counters.send_full);
        out.counter(name, help, &[("why", "no_socket")], counters.no_socket);
        let (name, help) = ("driver_datagram_errors_total", "Errors read from datagram sockets.");
        out.counter(name, help, &[("error", "refused")], counters.refused);
        out.counter(name, help, &[("error", "other")], counters.receive_errors);
        let sockets = u32::try_from(self.sockets.len()).unwrap_or(u32::MAX);
        out.gauge("driver_sockets", "Open datagram sockets.", &[], f64::from(sockets));
    }

    fn send_all(&mut self, id: SocketId, inputs: &mut Vec<Input>) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        let mut rest = &socket.unsent[..];
        let mut retried = false;
        while !rest.is_empty() {
            self.counters.sends += 1;
            let error = match mmsg::send(&socket.socket, socket.is_connected, rest) {
                Ok(count) => {
                    self.counters.datagrams_out += count as u64;
                    rest = &rest[count..];
                    retried = false;
                    continue;
                }
                Err(error) => error,
            };
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN) => {
                    self.counters.send_full += rest.len() as u64;
                    break;
                }
                // The answer to an earlier datagram; this one was not tried.
                Some(libc::ECONNREFUSED) if socket.is_connected && !retried => {
                    self.counters.refused += 1;
                    inputs.push(Input::Refused { socket: id });
                    retried = true;
                }
                Some(_) | None => {
                    self.counters.send_errors += 1;
                    rest = &rest[1..];
                    retried = false;
                }
            }
        }
        socket.unsent.clear();
    }
}

pub(crate) fn bind_error(error: &io::Error) -> BindError {
    match error.raw_os_error() {
        Some(libc::EADDRINUSE) => BindError::InUse,
        Some(libc::EADDRNOTAVAIL) => BindError::NotHere,
        Some(libc::EACCES | libc::EPERM) => BindError::Denied,
        Some(libc::EMFILE | libc::ENFILE) => BindError::FilesExhausted,
        Some(number) => BindError::System(number),
        None => BindError::System(0),
    }
}
