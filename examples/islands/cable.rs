//! Takes the cables between segments away and puts them back, without any right but a parent's.
//!
//! The links of RMs in different islands get a filter in the kernel that drops what arrives, at both
//! ends, and those of the smaller island hear nobody who dials. No process gets an error or a reset.

use std::net::IpAddr;
use std::os::fd::{AsFd as _, OwnedFd};

use anyhow::Context as _;
use examples::sockets::{Taken, local_address, peer_address};
use nix::sys::socket::{getsockopt, sockopt::AcceptConn};
use testkit::cut::{Deaf, cut, heal};

use crate::islands::cluster::Cluster;
use crate::islands::layout::{LINK, Part, SEGMENTS, pair};

/// The cables of one segment to all others.
#[derive(Debug)]
pub(crate) struct Cable {
    segment: usize,
    taken: Taken,
}

impl Cable {
    /// Cuts a segment off.
    pub(crate) fn pull(cluster: &Cluster, segment: usize) -> anyhow::Result<Self> {
        let mut cable = Self { segment, taken: Taken::default() };
        cable.hold(cluster)?;
        Ok(cable)
    }

    /// Cuts what was opened since.
    pub(crate) fn hold(&mut self, cluster: &Cluster) -> anyhow::Result<()> {
        for rm in rms() {
            for socket in self.taken.take(cluster.processes.pid(rm)?)? {
                if self.leads_out(rm, &socket) {
                    cut(&socket, &Deaf::ToAll).context("cannot cut a link")?;
                }
            }
        }
        Ok(())
    }

    /// Connects the segment again.
    pub(crate) fn plug_in(mut self, cluster: &Cluster) -> anyhow::Result<()> {
        self.taken.clear();
        for rm in rms() {
            for socket in self.taken.take(cluster.processes.pid(rm)?)? {
                // Fails for a socket that never had a filter.
                let _ = heal(&socket);
            }
        }
        Ok(())
    }

    /// Whether the other end of an RM's socket is, or may be, in the other island. Inside a segment
    /// nobody dials any more; between segments it is the lower one that does.
    fn leads_out(&self, rm: Part, socket: &OwnedFd) -> bool {
        let is_away = |segment: usize| segment == self.segment;
        if let Some(peer) = peer_address(socket) {
            let mut others = rms().filter(|one| is_away(one.segment()) != is_away(rm.segment()));
            return others.any(|other| IpAddr::V4(other.ip()) == peer.ip());
        }
        let listens = getsockopt(&socket.as_fd(), AcceptConn).unwrap_or(false);
        let at_link = local_address(socket).is_some_and(|local| local.port() == LINK);
        listens && at_link && is_away(rm.segment())
    }
}

fn rms() -> impl Iterator<Item = Part> {
    (0..SEGMENTS).flat_map(pair)
}
