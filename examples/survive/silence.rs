//! Cuts a process off the network without its help.
//!
//! Every socket of the process gets a filter that drops what arrives, and every
//! socket of the others, phones included, one that drops what comes from it.
//! The sockets are taken by `pidfd_getfd`, which a parent may do with its
//! children. Nobody gets an error or a reset.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use anyhow::Context as _;
use examples::sockets::{Taken, local_address, peer_address};
use testkit::Studio;
use testkit::cut::{Deaf, cut, heal, ranges};

use crate::survive::layout::Server;
use crate::survive::servers::Servers;

/// A process that is cut off, and the sockets that know it.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    /// Sockets that have a filter.
    taken: Taken,
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
        for socket in self.taken.take(servers.processes.pid(victim)?)? {
            self.addresses.extend(local_address(&socket));
            cut(&socket, &Deaf::ToAll).context("cannot cut a socket off")?;
        }
        let ports = self.addresses.iter().map(SocketAddr::port).collect();
        let to_victim = Deaf::To { ip: victim.ip(), ports: ranges(&ports) };
        for other in servers.others(victim) {
            for socket in self.taken.take(servers.processes.pid(other)?)? {
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
        self.taken.clear();
        for server in servers.processes.all() {
            for socket in self.taken.take(servers.processes.pid(server)?)? {
                // Fails for a socket that never had a filter.
                let _ = heal(&socket);
            }
        }
        *self = Self::default();
        phones.deafen(None)?;
        Ok(())
    }
}
