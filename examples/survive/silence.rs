//! Cuts a process off the network without its help.
//!
//! Every socket of the process gets a filter that drops what arrives, and every
//! socket of the others, phones included, one that drops what comes from it.
//! The sockets are taken by `pidfd_getfd`, which a parent may do with its
//! children. Nobody gets an error or a reset.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd as _, OwnedFd};

use anyhow::Context as _;
use nix::sys::socket::{SockaddrStorage, getpeername, getsockname};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use testkit::Studio;
use testkit::cut::{Deaf, cut, heal, ranges};

use crate::survive::layout::Server;
use crate::survive::servers::Servers;

/// A process that is cut off, and the sockets that know it.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    /// Sockets that have a filter, by process and file number with the
    /// socket's own number: a file number may be used again.
    done: BTreeSet<(i32, String)>,
    /// The victim's own addresses.
    addresses: BTreeSet<SocketAddr>,
}

impl Silence {
    /// Cuts `victim` off, or does so again for sockets opened since.
    pub(crate) fn cut(
        &mut self,
        servers: &Servers,
        victim: Server,
        phones: &Studio,
    ) -> anyhow::Result<()> {
        let known = self.addresses.len();
        for socket in self.sockets(servers.pid(victim)?)? {
            self.addresses.extend(local_address(&socket));
            cut(&socket, &Deaf::ToAll).context("cannot cut a socket off")?;
        }
        let ports = self.addresses.iter().map(SocketAddr::port).collect();
        let to_victim = Deaf::To { ip: victim.ip(), ports: ranges(&ports) };
        for other in servers.others(victim) {
            for socket in self.sockets(servers.pid(other)?)? {
                let deaf = match peer_address(&socket) {
                    // A connected socket hears nobody else.
                    Some(peer) if self.addresses.contains(&peer) => &Deaf::ToAll,
                    Some(_) => continue,
                    None => &to_victim,
                };
                cut(&socket, deaf).context("cannot deafen a socket")?;
            }
        }
        if known < self.addresses.len() {
            phones.deafen(Some(to_victim))?;
        }
        Ok(())
    }

    /// Lets everybody hear again.
    pub(crate) fn heal(&mut self, servers: &Servers, phones: &Studio) -> anyhow::Result<()> {
        self.done.clear();
        for server in servers.all() {
            for socket in self.sockets(servers.pid(server)?)? {
                // Fails for a socket that never had a filter.
                let _ = heal(&socket);
            }
        }
        *self = Self::default();
        phones.deafen(None)?;
        Ok(())
    }

    /// Takes the sockets of a process that were not taken before.
    fn sockets(&mut self, pid: Pid) -> anyhow::Result<Vec<OwnedFd>> {
        let process =
            rustix::process::Pid::from_raw(pid.as_raw()).context("a process has a number")?;
        let pidfd = pidfd_open(process, PidfdFlags::empty()).context("cannot open a process")?;
        let mut sockets = Vec::new();
        for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
            let entry = entry?;
            let Ok(target) = fs::read_link(entry.path()) else { continue };
            let Some(target) = target.to_str().filter(|target| target.starts_with("socket:"))
            else {
                continue;
            };
            let number: i32 = entry.file_name().to_string_lossy().parse()?;
            if !self.done.insert((pid.as_raw(), format!("{number} {target}"))) {
                continue;
            }
            let socket = match pidfd_getfd(&pidfd, number, PidfdGetfdFlags::empty()) {
                Ok(socket) => socket,
                // It was closed meanwhile.
                Err(rustix::io::Errno::BADF) => continue,
                Err(error) => return Err(error).context("cannot take a socket of a child"),
            };
            if local_address(&socket).is_some() {
                sockets.push(socket);
            }
        }
        Ok(sockets)
    }
}

/// `None` for what is no socket of IPv4.
fn local_address(socket: &OwnedFd) -> Option<SocketAddr> {
    getsockname(socket.as_raw_fd()).ok().as_ref().and_then(address)
}

/// `None` for what is not connected.
fn peer_address(socket: &OwnedFd) -> Option<SocketAddr> {
    getpeername(socket.as_raw_fd()).ok().as_ref().and_then(address)
}

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    let address = storage.as_sockaddr_in()?;
    Some(SocketAddr::new(IpAddr::V4(address.ip()), address.port()))
}
