//! How many connections may be open.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// How many stream connections peers may hold open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrowdConfig {
    /// From everybody together.
    pub connections_max: usize,
    /// From one source: an IPv4 address, or a network of 64 bits for IPv6.
    pub per_source_max: usize,
}

/// Counts the connections that peers have opened, and says when one is too
/// many, so that no single source takes the places of all others.
#[derive(Clone, Debug)]
pub struct Crowd {
    config: CrowdConfig,
    by_source: BTreeMap<IpAddr, usize>,
    len: usize,
}

/// Why a connection is to be closed as soon as it was accepted. The peer is at
/// fault for `Source`. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CrowdError {
    /// All places are taken.
    #[error("too many connections")]
    All,
    /// The source has as many as it may have.
    #[error("too many connections from one source")]
    Source,
}

impl Crowd {
    /// Begins with no connection.
    #[must_use]
    pub const fn new(config: CrowdConfig) -> Self {
        Self { config, by_source: BTreeMap::new(), len: 0 }
    }

    /// Notes a connection that `peer` has opened.
    ///
    /// # Errors
    /// See [`CrowdError`].
    pub fn enter(&mut self, peer: IpAddr) -> Result<(), CrowdError> {
        let count = self.by_source.get(&source(peer)).copied().unwrap_or(0);
        if self.config.per_source_max <= count {
            return Err(CrowdError::Source);
        }
        if self.config.connections_max <= self.len {
            return Err(CrowdError::All);
        }
        self.by_source.insert(source(peer), count + 1);
        self.len += 1;
        Ok(())
    }

    /// Notes that a connection from `peer`, which had entered, is closed.
    pub fn leave(&mut self, peer: IpAddr) {
        let Some(count) = self.by_source.get_mut(&source(peer)) else { return };
        *count -= 1;
        self.len -= 1;
        if *count == 0 {
            self.by_source.remove(&source(peer));
        }
    }

    /// Returns how many connections are open.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no connection is open.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Whoever has one IPv6 address has 2^64 of them.
fn source(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(ip) => IpAddr::V4(ip),
        IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) >> 64 << 64).into()),
    }
}
