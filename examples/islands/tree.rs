//! The tenants of the document, the profiles below them, and which phones call for which.

use std::fmt::Write as _;
use std::ops::Range;

/// A row of the tables: a tenant and its limit, `None` where it is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tenant {
    pub(crate) name: &'static str,
    parent: Option<&'static str>,
    pub(crate) limit: Option<u32>,
}

/// The tree.
pub(crate) const TENANTS: [Tenant; 8] = [
    tenant("Environment", None, None),
    tenant("T1", Some("Environment"), Some(100)),
    tenant("T2", Some("Environment"), Some(500)),
    tenant("T2.1", Some("T2"), None),
    tenant("T2.2", Some("T2"), Some(100)),
    tenant("T2.2.1", Some("T2.2"), Some(20)),
    tenant("T2.2.2", Some("T2.2"), Some(20)),
    tenant("T2.2.3", Some("T2.2"), Some(20)),
];

/// Whose number is dialled. Its calls count at a tenant and above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Profile {
    tenant: &'static str,
    /// Pairs of phones in each segment: more than ever may talk.
    pairs: u32,
    /// How a call above the limit is refused: as T1 or T2 says, which differ.
    pub(crate) status: u16,
}

pub(crate) const PROFILES: [Profile; 6] = [
    profile("T1", 110, BUSY),
    profile("T2.2.1", 30, UNAVAILABLE),
    profile("T2.2.2", 30, UNAVAILABLE),
    profile("T2.2.3", 30, UNAVAILABLE),
    profile("T2.2", 60, UNAVAILABLE),
    // Not limited itself: its calls fill what T2.2 leaves of T2.
    profile("T2.1", 420, UNAVAILABLE),
];

/// Pairs of phones in each segment.
pub(crate) const PAIRS: u32 = 680;
/// The user name of the first phone; behind the callers of all pairs come their callees.
pub(crate) const FIRST_USER: u32 = 10_000;

const BUSY: u16 = 486;
const UNAVAILABLE: u16 = 480;

/// How many calls of each profile fill shares of 100, 500 and 20.
pub(crate) fn calls_that_fill(hundred: u32, five_hundred: u32, twenty: u32) -> [u32; 6] {
    [hundred, twenty, twenty, twenty, hundred - 3 * twenty, five_hundred - hundred]
}

impl Profile {
    pub(crate) fn name(self) -> String {
        format!("calls of {}", self.tenant)
    }
}

/// The pairs of phones of the profile with this index.
pub(crate) fn pairs_of(index: usize) -> Range<u32> {
    let first: u32 = PROFILES[..index].iter().map(|profile| profile.pairs).sum();
    first..first + PROFILES[index].pairs
}

/// Returns the tables of tenants and profiles for a cluster document.
pub(crate) fn as_toml() -> String {
    let mut text = String::new();
    for Tenant { name, parent, limit } in TENANTS {
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "\n[[tenant]]\nname = \"{name}\"");
        if let Some(parent) = parent {
            let _ = writeln!(text, "parent = \"{parent}\"");
        }
        if let Some(limit) = limit {
            let _ = writeln!(text, "calls = {limit}");
        }
        if let Some((_, status)) =
            [("T1", BUSY), ("T2", UNAVAILABLE)].iter().find(|one| one.0 == name)
        {
            let _ = writeln!(
                text,
                "answers = {{ usage = {{ status = {status}, text = \"{name} is full\" }} }}"
            );
        }
    }
    for (index, profile) in PROFILES.iter().enumerate() {
        let pairs = pairs_of(index);
        let (name, tenant) = (profile.name(), profile.tenant);
        let callees = FIRST_USER + PAIRS;
        let (first, last) = (callees + pairs.start, callees + pairs.end - 1);
        let _ = writeln!(
            text,
            "\n[[profile]]\nname = \"{name}\"\ntenant = \"{tenant}\"\nnumbers = [\"{first}-{last}\"]"
        );
    }
    text
}

const fn tenant(name: &'static str, parent: Option<&'static str>, limit: Option<u32>) -> Tenant {
    Tenant { name, parent, limit }
}

const fn profile(tenant: &'static str, pairs: u32, status: u16) -> Profile {
    Profile { tenant, pairs, status }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a profile's call counts at a tenant.
    fn counts_at(profile: Profile, tenant: Tenant) -> bool {
        let mut at = Some(profile.tenant);
        while let Some(name) = at {
            if name == tenant.name {
                return true;
            }
            at = TENANTS.iter().find(|one| one.name == name).and_then(|one| one.parent);
        }
        false
    }

    #[test]
    fn calls_that_fill_shares_count_at_every_tenant_what_it_may_carry() {
        let calls = calls_that_fill(67, 334, 14);
        let used = |tenant: Tenant| -> u32 {
            let counted = PROFILES.iter().zip(calls).filter(|(one, _)| counts_at(**one, tenant));
            counted.map(|(_, calls)| calls).sum()
        };
        assert_eq!(TENANTS.map(used), [401, 67, 334, 267, 67, 14, 14, 14]);
    }

    #[test]
    fn every_pair_of_phones_has_a_profile() {
        assert_eq!(pairs_of(PROFILES.len() - 1).end, PAIRS);
    }
}
