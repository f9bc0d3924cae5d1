//! How much each source may send, and who is banned.

use std::hash::Hasher;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;
use std::time::{Duration, Instant};

use siphasher::sip::SipHasher13;

/// What a source that is not trusted may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Messages a second without a tag of ours, in the long run. Fifty times as many with one.
    pub per_second: u32,
    /// Messages at once.
    pub burst: u32,
    /// After so many bad or refused messages a source is banned; one is forgiven each second.
    pub strikes_max: u32,
    /// How long a ban lasts. Messages that carry a tag of ours pass during a ban.
    pub ban: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_second: 20, burst: 100, strikes_max: 50, ban: Duration::from_secs(300) }
    }
}

/// A range of addresses: `192.0.2.0/24`, `2001:db8::/32`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    addr: IpAddr,
    prefix_len: u8,
}

impl Network {
    /// Returns the network of all addresses that share the first `prefix_len` bits of `addr`.
    ///
    /// # Errors
    /// The prefix is longer than an address.
    pub fn new(addr: IpAddr, prefix_len: u8) -> Result<Self, NetworkError> {
        let bits = if addr.is_ipv4() { 32 } else { 128 };
        if bits < prefix_len {
            return Err(NetworkError::PrefixTooLong);
        }
        Ok(Self { addr, prefix_len })
    }

    /// Returns whether an address belongs to both.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains(other.addr) || other.contains(self.addr)
    }

    /// Returns whether `addr` belongs to it.
    pub fn contains(&self, addr: IpAddr) -> bool {
        match (self.addr, addr.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                let differ = u32::from(ours) ^ u32::from(theirs);
                differ.checked_shr(32 - u32::from(self.prefix_len)).unwrap_or(0) == 0
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                let differ = u128::from(ours) ^ u128::from(theirs);
                differ.checked_shr(128 - u32::from(self.prefix_len)).unwrap_or(0) == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (addr, prefix_len) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let addr: IpAddr = addr.parse().map_err(|_| NetworkError::Address)?;
        let prefix_len = match prefix_len {
            Some(text) => text.parse().map_err(|_| NetworkError::Prefix)?,
            None if addr.is_ipv4() => 32,
            None => 128,
        };
        Self::new(addr, prefix_len)
    }
}

/// Why a text names no network. Whoever wrote it is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// The part before the slash is no address.
    #[error("not an address")]
    Address,
    /// The part after the slash is no number.
    #[error("the prefix length is not a number")]
    Prefix,
    /// The prefix is longer than an address.
    #[error("the prefix is longer than the address")]
    PrefixTooLong,
}

/// Whether a message may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Pass,
    Limited,
    Banned,
}

/// A table of fixed size: who has not been heard for longest gives place, and starts anew when it
/// comes again. So no flood of forged sources can make it grow.
#[derive(Debug)]
pub(super) struct Sources {
    limits: Limits,
    seed: u64,
    /// Sets of [`WAYS`] places; a source stands in the set that its address hashes to.
    places: Vec<Option<Source>>,
}

#[derive(Clone, Copy, Debug)]
struct Source {
    addr: IpAddr,
    heard_at: Instant,
    new: Meter,
    named: Meter,
    strikes: Meter,
    banned_until: Option<Instant>,
}

/// A token bucket as one point in time: when it will be full again.
#[derive(Clone, Copy, Debug)]
struct Meter {
    full_at: Instant,
}

impl Sources {
    pub(super) fn new(limits: Limits, seed: u64) -> Self {
        Self { limits, seed, places: Vec::new() }
    }

    /// Counts a message of `source`; `named`: it carries a tag of ours.
    pub(super) fn admit(&mut self, now: Instant, source: IpAddr, named: bool) -> Admission {
        let Limits { per_second, burst, .. } = self.limits;
        let source = self.source(now, source);
        if named {
            let fits = source.named.take(
                now,
                per_second.saturating_mul(NAMED_FACTOR),
                burst.saturating_mul(NAMED_FACTOR),
            );
            return if fits { Admission::Pass } else { Admission::Limited };
        }
        if source.banned_until.is_some_and(|until| now < until) {
            return Admission::Banned;
        }
        if source.new.take(now, per_second, burst) { Admission::Pass } else { Admission::Limited }
    }

    /// Counts something bad of `source`. Returns whether that begins a ban.
    pub(super) fn strike(&mut self, now: Instant, source: IpAddr) -> bool {
        let Limits { strikes_max, ban, .. } = self.limits;
        let source = self.source(now, source);
        if source.banned_until.is_some_and(|until| now < until) {
            return false;
        }
        if source.strikes.take(now, 1, strikes_max) {
            return false;
        }
        source.banned_until = Some(now + ban);
        source.strikes = Meter { full_at: now };
        true
    }

    fn source(&mut self, now: Instant, addr: IpAddr) -> &mut Source {
        if self.places.is_empty() {
            self.places = vec![None; SETS * WAYS];
        }
        let addr = network_of(addr);
        let set = self.set(addr) * WAYS;
        let set = &mut self.places[set..set + WAYS];
        let is_ours = |place: &Option<Source>| place.is_some_and(|source| source.addr == addr);
        let at = set.iter().position(is_ours).unwrap_or_else(|| {
            // `None` sorts before everybody who was heard.
            let oldest = (0..WAYS).min_by_key(|at| set[*at].map(|source| source.heard_at));
            let at = oldest.unwrap_or(0);
            set[at] = None;
            at
        });
        let source = set[at].get_or_insert_with(|| {
            let full = Meter { full_at: now };
            Source {
                addr,
                heard_at: now,
                new: full,
                named: full,
                strikes: full,
                banned_until: None,
            }
        });
        source.heard_at = now;
        source
    }

    #[expect(clippy::cast_possible_truncation, reason = "only the low bits count")]
    fn set(&self, addr: IpAddr) -> usize {
        let mut hasher = SipHasher13::new_with_keys(self.seed, u64::from_be_bytes(*b"sources\0"));
        match addr {
            IpAddr::V4(addr) => hasher.write(&addr.octets()),
            IpAddr::V6(addr) => hasher.write(&addr.octets()),
        }
        hasher.finish() as usize % SETS
    }
}

impl Meter {
    /// Takes one token of `burst`, refilled at `per_second`; `false` when there is none.
    fn take(&mut self, now: Instant, per_second: u32, burst: u32) -> bool {
        let interval = Duration::from_secs(1) / per_second.max(1);
        let full_at = self.full_at.max(now) + interval;
        if now + interval * burst < full_at {
            return false;
        }
        self.full_at = full_at;
        true
    }
}

/// Whoever has one IPv6 address has the rest of its /64.
fn network_of(addr: IpAddr) -> IpAddr {
    match addr.to_canonical() {
        IpAddr::V4(addr) => IpAddr::V4(addr),
        IpAddr::V6(addr) => IpAddr::V6(Ipv6Addr::from(u128::from(addr) >> 64 << 64)),
    }
}

/// A trunk answers every call we send it; a stranger needs little.
const NAMED_FACTOR: u32 = 50;

const WAYS: usize = 4;

const SETS: usize = 1 << 12;

#[cfg(test)]
mod tests;
