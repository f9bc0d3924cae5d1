//! Who gets a place among the connections of a listener.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::{Duration, Instant};

use sip_core::framer::{Crowd, CrowdError};
use tracing::warn;

use super::connection::Connection;
use super::ending::{Ending, Refusal};
use super::securing::Securing;
use super::{PAUSE, Streams, is_passing};
use crate::node::SocketId;
use crate::sys::files_max;

impl Streams {
    /// Takes in connections that were made to a listener: not all at once, so that nobody else waits.
    pub(crate) fn accept(&mut self, now: Instant, id: SocketId) {
        let share = self.share();
        for _ in 0..ACCEPTS_MAX {
            let Some(listener) = self.listeners.get_mut(&id) else { return };
            if listener.securing.as_ref().is_some_and(Securing::is_behind) {
                self.poller.remove(&listener.socket);
                listener.paused_until = Some(now + BREATH);
                return;
            }
            let (socket, remote) = match listener.socket.accept() {
                Ok((socket, remote)) => (socket, remote.as_socket()),
                Err(error) if is_passing(&error) => return,
                Err(error) => {
                    // It would be ready again at once, and fail again.
                    self.poller.remove(&listener.socket);
                    listener.paused_until = Some(now + PAUSE);
                    if self.endings.refuse(now, Refusal::Files) {
                        warn!(%error, local = %listener.local, "cannot accept a connection");
                    }
                    return;
                }
            };
            let Some(remote) = remote else { continue };
            let (limits, is_tls) = (listener.limits, listener.securing.is_some());
            if let Err(full) = self.enter(now, id, remote.ip(), share) {
                let refusal = match full {
                    CrowdError::Source => Refusal::Source,
                    CrowdError::All | _ => Refusal::All,
                };
                if self.endings.refuse(now, refusal) {
                    warn!(%remote, why = %full, "connection refused");
                }
                continue;
            }
            let connection = Connection::accepted(now, id, socket, remote, limits, is_tls);
            self.counters.accepted += 1;
            self.insert(now, connection);
        }
    }

    /// Finds a place for a connection that a peer made, if need be that of another one of its source.
    fn enter(
        &mut self,
        now: Instant,
        id: SocketId,
        ip: IpAddr,
        share: usize,
    ) -> Result<(), CrowdError> {
        let entered = self.enter_crowd(id, ip, share);
        if entered != Err(CrowdError::Source) {
            return entered;
        }
        let Some(silent) = self.longest_silent(id, ip) else { return entered };
        self.close(now, silent, &Ending::Displaced);
        self.enter_crowd(id, ip, share)
    }

    fn enter_crowd(&mut self, id: SocketId, ip: IpAddr, share: usize) -> Result<(), CrowdError> {
        let Some(listener) = self.listeners.get_mut(&id) else { return Err(CrowdError::All) };
        enter(&mut listener.crowd, ip, share)
    }

    /// Finds the connection of a source that carried nothing for longest, first among those that never
    /// carried a message.
    fn longest_silent(&self, id: SocketId, ip: IpAddr) -> Option<u32> {
        let its = self.by_remote.range((id, source_first(ip))..=(id, source_last(ip)));
        let its = its.filter_map(|(_, own)| {
            let connection = self.connections.get(own).filter(|it| !it.is_made)?;
            Some((connection.first_until.is_none(), connection.moved_at, *own))
        });
        its.min().map(|(_, _, own)| own)
    }

    /// How many connections of each kind a listener may have because of the limit of open files.
    pub(super) fn share(&self) -> usize {
        (self.files / (2 * self.listeners.len().max(1))).max(1)
    }
}

/// Takes a place, of which there may be fewer than the crowd allows.
pub(super) fn enter(crowd: &mut Crowd, ip: IpAddr, share: usize) -> Result<(), CrowdError> {
    let entered = crowd.enter(ip);
    if entered.is_ok() && share < crowd.len() {
        crowd.leave(ip);
        return Err(CrowdError::All);
    }
    entered
}

/// The first address that a source as [`Crowd`] knows it may have.
fn source_first(ip: IpAddr) -> SocketAddr {
    match ip {
        IpAddr::V4(_) => SocketAddr::new(ip, 0),
        IpAddr::V6(ip) => SocketAddrV6::new((u128::from(ip) >> 64 << 64).into(), 0, 0, 0).into(),
    }
}

/// The last one.
fn source_last(ip: IpAddr) -> SocketAddr {
    match ip {
        IpAddr::V4(_) => SocketAddr::new(ip, u16::MAX),
        IpAddr::V6(ip) => {
            let last = u128::from(ip) | u128::from(u64::MAX);
            SocketAddrV6::new(last.into(), u16::MAX, u32::MAX, u32::MAX).into()
        }
    }
}

/// How many connections the limit of open files leaves room for.
pub(super) fn files() -> usize {
    let files = usize::try_from(files_max().unwrap_or(FILES_KEPT)).unwrap_or(usize::MAX);
    let kept = usize::try_from(FILES_KEPT).unwrap_or(usize::MAX);
    files.saturating_sub(kept)
}

/// How long nothing is accepted while handshakes that were given up are to come back.
const BREATH: Duration = Duration::from_millis(10);
/// How many connections one turn accepts.
const ACCEPTS_MAX: usize = 64;
/// Files that SIP streams leave to links, HTTP and the store.
const FILES_KEPT: u64 = 512;
