//! The sockets of child processes, taken by `pidfd_getfd`, which a parent may do.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd as _, OwnedFd};

use anyhow::Context as _;
use nix::sys::socket::{SockaddrStorage, getpeername, getsockname};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// Which sockets were taken: a file number may be used again, so by process and file number with the
/// socket's own number.
#[derive(Debug, Default)]
pub struct Taken(BTreeSet<(i32, String)>);

impl Taken {
    /// Takes the IPv4 sockets of a process that were not taken before.
    ///
    /// # Errors
    /// When the process is gone, or its sockets cannot be had.
    pub fn take(&mut self, pid: Pid) -> anyhow::Result<Vec<OwnedFd>> {
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
            if !self.0.insert((pid.as_raw(), format!("{number} {target}"))) {
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

    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Returns where a socket is bound; `None` for what is no socket of IPv4.
pub fn local_address(socket: &OwnedFd) -> Option<SocketAddr> {
    getsockname(socket.as_raw_fd()).ok().as_ref().and_then(address)
}

/// Returns whom a socket is connected to; `None` for one that is not.
pub fn peer_address(socket: &OwnedFd) -> Option<SocketAddr> {
    getpeername(socket.as_raw_fd()).ok().as_ref().and_then(address)
}

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    let address = storage.as_sockaddr_in()?;
    Some(SocketAddr::new(IpAddr::V4(address.ip()), address.port()))
}
