//! What all nodes of a cluster agree on: tenants, limits, weights, gateways, routes.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use b2bua::Route;
use b2bua::gate::Network;
use driver::config::{Fault, Faults, read};
use election::{Cold, Segment};
use failover::NodeId;
use quota_split::{Answer, Matched, Matcher, Numbers, Policies, Signs, Tree, Unmatched, Violation};
use siphasher::sip::SipHasher24;

pub use fit::Claim;
pub use harm::Harm;
use harm::Lines;

mod fit;
mod harm;
mod segments;
mod tenants;
#[cfg(test)]
mod tests;

/// One version of what a cluster agrees on. Whoever holds the same version computes the same shares.
#[derive(Clone, Debug)]
pub struct ClusterDocument {
    /// Rises with every change.
    pub version: u64,
    /// The file as it was written.
    pub text: Arc<str>,
    /// Tells apart documents of one version: the same for the same text, in every release.
    pub digest: u64,
    /// The tenants and their limits.
    pub division: Arc<quota_split::Document>,
    /// Whether shares grow at once, over-used or not.
    pub eager: bool,
    /// The segments, hot and cold.
    pub segments: BTreeMap<Segment, SegmentPlan>,
    /// What tenants and profiles may do.
    pub policies: Policies,
    /// Whose numbers are whose.
    pub matcher: Matcher,
    /// Where calls to who is not registered go, after the routes of a node itself.
    pub routes: Vec<SegmentRoute>,
    /// Networks of gateways and the tenants that own them; no address has two owners.
    pub gateways: Vec<(Network, quota_split::NodeId)>,
    /// Networks that may name any tenant.
    pub trusted: Vec<Network>,
    /// Whether a call that finds its share or the media here used up goes to another segment.
    pub sharing: bool,
    /// Numbers whose calls pass every limit.
    pub emergency: Vec<Numbers>,
    /// What is sound but probably not meant, by line.
    pub warnings: Vec<Fault>,
    lines: Lines,
}

/// One segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentPlan {
    /// Where it stands.
    pub site: String,
    /// How large its part is against the others'.
    pub weight: u32,
    /// Whether it has a part only while others are away.
    pub mode: Mode,
    /// Where other segments send calls for it.
    pub sip: Vec<SocketAddr>,
    /// Which segments of other sites its calls go to first.
    pub prefer: Vec<Segment>,
    /// Its nodes by their numbers in the election.
    pub rms: BTreeMap<u8, NodeId>,
}

/// When a segment has a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Always.
    Hot,
    /// While a hot one that it covers is away.
    Cold(Cold),
}

/// A route of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentRoute {
    /// The segment whose calls take it; all of them if none is named.
    pub segment: Option<Segment>,
    /// Where they go.
    pub route: Route,
}

/// The highest version. Above are as many again that no program reads, and below it a clock of nanoseconds until
/// 2116.
pub const VERSION_MAX: u64 = 1 << 62;

/// The longest document, in bytes.
pub const TEXT_MAX: usize = 16 << 20;

impl ClusterDocument {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// Everything that is wrong in it, with lines and remedies.
    pub fn parse(text: &str) -> Result<Self, Faults> {
        read(text, |root| {
            if TEXT_MAX < text.len() {
                root.fault(format!("the document is longer than {TEXT_MAX} bytes"));
            }
            let number = "a number that rises with every change of this file";
            let version = root.key("version").required(number).integer(1..=VERSION_MAX);
            let mut warnings = Vec::new();
            let mut lines = Lines { version: root.key("version").line(), ..Lines::default() };
            let sharing = root.key("sharing").boolean().unwrap_or(false);
            let (segments, routes) = segments::read(root, &mut warnings, &mut lines);
            let tenants = tenants::read(root, version.unwrap_or(0), &segments)?;
            Some(Self {
                version: version?,
                text: text.into(),
                digest: digest(text.as_bytes()),
                division: Arc::new(tenants.division),
                eager: tenants.eager,
                segments,
                policies: tenants.policies,
                matcher: tenants.matcher,
                routes,
                gateways: tenants.gateways,
                trusted: tenants.trusted,
                sharing,
                emergency: tenants.emergency,
                warnings,
                lines,
            })
        })
    }

    /// Returns the tenants and profiles.
    pub fn tree(&self) -> &Tree {
        self.division.tree()
    }

    /// Returns where a call from `source` counts, given what else is known of it; its gateway, and
    /// whether it is trusted, are looked up here.
    ///
    /// # Errors
    /// Why it belongs to nobody.
    pub fn find_profile(&self, source: IpAddr, signs: &Signs<'_>) -> Result<Matched, Unmatched> {
        let (gateway, trusted) = (self.gateway(source), self.trusts(source));
        self.matcher.find(self.tree(), &self.policies, &Signs { gateway, trusted, ..*signs })
    }

    /// Returns how a call from `source` that belongs to nobody is answered.
    pub fn answer_unmatched(&self, source: IpAddr, why: Unmatched) -> Answer {
        let usual = why.usual_answer();
        match self.gateway(source).or_else(|| self.tree().top()) {
            Some(node) if why != Unmatched::Forged => {
                let answer = self.policies.answer(node, Violation::Profile);
                Answer { alarm: answer.alarm || usual.alarm, ..answer }
            }
            Some(_) | None => usual,
        }
    }

    /// Returns the tenant that owns the gateway at an address.
    pub fn gateway(&self, addr: IpAddr) -> Option<quota_split::NodeId> {
        self.gateways.iter().find(|(network, _)| network.contains(addr)).map(|(_, tenant)| *tenant)
    }

    /// Whether calls from an address may name any tenant: that of a trusted network, or of another
    /// segment.
    pub fn trusts(&self, addr: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(addr)) || self.is_of_segment(addr)
    }

    /// Whether a segment sends its calls from this address.
    pub fn is_of_segment(&self, addr: IpAddr) -> bool {
        let mut sip = self.segments.values().flat_map(|segment| &segment.sip);
        sip.any(|sip| sip.ip().to_canonical() == addr.to_canonical())
    }

    /// Whether calls to a number pass every limit.
    pub fn is_emergency(&self, number: &str) -> bool {
        self.emergency.iter().any(|numbers| numbers.has(number))
    }

    /// Returns where calls of a segment go when it cannot take them, in order: the other segments of
    /// its site, those it prefers, then all others. None without sharing.
    pub fn elsewhere(&self, segment: Segment) -> Vec<(Segment, &[SocketAddr])> {
        let Some(own) = self.segments.get(&segment).filter(|_| self.sharing) else {
            return Vec::new();
        };
        let near = |(_, other): &(&Segment, &SegmentPlan)| other.site == own.site;
        let others =
            || self.segments.iter().filter(|(id, other)| **id != segment && !other.sip.is_empty());
        let preferred = own.prefer.iter().filter_map(|id| self.segments.get_key_value(id));
        let order = others().filter(near).chain(preferred).chain(others());
        let mut seen = BTreeSet::from([segment]);
        let order = order.filter(|(id, other)| !other.sip.is_empty() && seen.insert(**id));
        order.map(|(id, other)| (*id, &other.sip[..])).collect()
    }

    /// Returns the routes of a segment's calls, in order.
    pub fn routes_of(&self, segment: Segment) -> Vec<Route> {
        let own = self.routes.iter().filter(|one| one.segment.is_none_or(|id| id == segment));
        own.map(|one| one.route.clone()).collect()
    }
}

/// Documents are the same when their texts are.
impl PartialEq for ClusterDocument {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for ClusterDocument {}

/// Digests a text, the same in every release.
pub(super) fn digest(text: &[u8]) -> u64 {
    let mut hasher = SipHasher24::new();
    hasher.write(text);
    hasher.finish()
}
