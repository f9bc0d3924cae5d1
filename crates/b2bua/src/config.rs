//! What an operator decides about calls and registrations.

use std::net::SocketAddr;
use std::time::Duration;

use failover::Transport;

/// Settings of a [`crate::B2b`]; `Default` has the values for a WAN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Tried in this order for what is not a registered user; the first match wins.
    pub routes: Vec<Route>,
    /// How long a callee may ring before the call ends with 408.
    pub ring: Duration,
    /// How long a call may last after its answer.
    pub call: Duration,
    /// The shortest registration in seconds; a shorter one is answered 423.
    pub expires_min: u32,
    /// The longest registration in seconds; a longer one is cut to it.
    pub expires_max: u32,
    /// The registration of a phone that asks for no time, in seconds.
    pub expires_default: u32,
    /// How long a session lasts that nobody refreshes (RFC 4028), in seconds: what we ask for, and the
    /// longest that we grant a phone that asks for no more. One whose Min-SE is more than four times this
    /// is told of no timer, and refreshed as often as one that knows none. 0: sessions have no timers.
    pub session_expires: u32,
    /// The shortest such interval that a phone may ask for, in seconds; a shorter one is answered 422.
    /// Never taken to be less than 90.
    pub min_se: u32,
    /// Calls at one time; a further one is refused with 503.
    pub calls_max: usize,
    /// Tombstones of ended calls at one time: of more the oldest goes. Each stands for 64 * `t1` and more.
    pub tombstones_max: usize,
    /// Addresses of record with a binding at one time.
    pub aors_max: usize,
    /// Contacts of one address of record.
    pub contacts_max: usize,
    /// Media-move INVITEs that are open at one time, over all peers.
    pub moves_max: usize,
    /// Whether records are kept elsewhere too: then [`crate::Output::Stored`] tells of each change.
    pub stores: bool,
    /// Whether somebody decides about each new call: then [`crate::Output::Admit`] asks.
    pub admits: bool,
    /// How long a caller waits for that decision; then it is refused with 480.
    pub admission: Duration,
    /// RFC 3261 timer T1.
    pub t1: Duration,
}

/// Where calls to some addresses go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The first bytes of the user part; empty matches everything.
    pub prefix: Vec<u8>,
    /// Tried in this order: the next one when one answers 503 or nothing.
    pub targets: Vec<Trunk>,
}

/// Somebody outside, and what carries messages there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trunk {
    /// The address.
    pub addr: SocketAddr,
    /// What carries messages there.
    pub transport: Transport,
}

impl From<SocketAddr> for Trunk {
    /// Returns the one that is reached by datagrams.
    fn from(addr: SocketAddr) -> Self {
        Self { addr, transport: Transport::Udp }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            routes: Vec::new(),
            ring: Duration::from_secs(180),
            call: Duration::from_secs(12 * 3600),
            expires_min: 60,
            expires_max: 3600,
            expires_default: 3600,
            session_expires: 1800,
            min_se: 90,
            calls_max: 50_000,
            tombstones_max: 1 << 18,
            aors_max: 100_000,
            contacts_max: 8,
            moves_max: 4_000,
            stores: false,
            admits: false,
            admission: Duration::from_secs(2),
            t1: Duration::from_millis(500),
        }
    }
}
