//! What all segments must agree on before they divide anything.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use siphasher::sip::SipHasher24;

use crate::{Call, Counter, Lending, Method, NodeId, Partition, SegmentId, Tree};

/// One version of the tenants and their limits.
///
/// Everybody who holds the same document derives the same shares from the same recipe, so only the
/// recipe travels; [`digest`](Self::digest) tells documents apart.
#[derive(Clone, Debug)]
pub struct Document {
    version: u64,
    method: Method,
    tree: Tree,
    counters: Box<[Limited]>,
    places: Box<[[Option<u32>; 3]]>,
    digest: u64,
}

/// One limit of calls at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limited {
    /// Where it stands.
    pub node: NodeId,
    /// What it counts there.
    pub counter: Counter,
    /// The limit over all segments.
    pub limit: u32,
    /// What islands do with it.
    pub partition: Partition,
    /// Whether it is lent.
    pub lending: Lending,
    /// How much of what is idle of its own part a segment keeps back from lending, in percent.
    pub reserve: u8,
    pub(crate) key: u64,
}

impl Document {
    /// Lists the limits of `tree`. The version of a document that segments divide by is above zero.
    pub fn new(version: u64, tree: Tree, method: Method) -> Self {
        let mut counters = Vec::new();
        let mut places = Vec::with_capacity(tree.len());
        for (id, node) in tree.iter() {
            let limits = [node.limits.hard(), node.limits.inbound, node.limits.outbound];
            let mut place = [None; 3];
            for (counter, limit) in Counter::ALL.into_iter().zip(limits) {
                let Some(limit) = limit else { continue };
                place[counter.index()] = u32::try_from(counters.len()).ok();
                counters.push(Limited {
                    node: id,
                    counter,
                    limit,
                    partition: tree.partition(id),
                    lending: tree.lending(id),
                    reserve: tree.reserve(id),
                    key: tree.key(id),
                });
            }
            places.push(place);
        }
        let digest = digest(&tree, method, version);
        Self { version, method, tree, counters: counters.into(), places: places.into(), digest }
    }

    /// Returns its version.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the method that divides its limits.
    pub fn method(&self) -> Method {
        self.method
    }

    /// Returns its tenants.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Returns its limits of calls at a time, in the order that messages number them by.
    pub fn counters(&self) -> &[Limited] {
        &self.counters
    }

    /// Returns the number of a limit; `None` where there is none.
    ///
    /// # Panics
    ///
    /// Panics when `node` comes from a larger tree.
    pub fn place(&self, node: NodeId, counter: Counter) -> Option<u32> {
        self.places[node.index()][counter.index()]
    }

    /// Returns the numbers of all limits that a call of it counts at.
    pub(crate) fn places(&self, call: Call) -> impl Iterator<Item = u32> {
        let counters = [Counter::Calls, call.direction.counter()];
        let at = move |node| counters.into_iter().filter_map(move |one| self.place(node, one));
        self.tree.path(call.node).flat_map(at)
    }

    /// Returns a digest of all that decides a share; the same on every machine and in every release.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Returns the shares that are fixed by hand for a limit.
    pub(crate) fn manual(&self, limited: &Limited) -> Option<&BTreeMap<SegmentId, u32>> {
        let manual = &self.tree.node(limited.node).manual;
        (limited.counter == Counter::Calls && !manual.is_empty()).then_some(manual)
    }
}

impl Limited {
    /// Returns what a segment that uses so much of its part lends nothing of: what it uses, and the
    /// reserve of its own idle part, at least one call.
    pub(crate) fn kept(&self, used: u32, part: u32) -> u32 {
        let idle = u64::from(part.saturating_sub(used));
        let reserve = (idle * u64::from(self.reserve)).div_ceil(100).min(idle);
        used.saturating_add(u32::try_from(reserve).expect("no more than what is idle"))
    }
}

/// Documents are taken for the same when their digests are.
impl PartialEq for Document {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for Document {}

impl Hash for Document {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

fn digest(tree: &Tree, method: Method, version: u64) -> u64 {
    let mut hasher = SipHasher24::new();
    let text = |hasher: &mut SipHasher24, text: &str| {
        hasher.write(&(text.len() as u64).to_le_bytes());
        hasher.write(text.as_bytes());
    };
    let number = |hasher: &mut SipHasher24, number: u64| hasher.write(&number.to_le_bytes());
    number(&mut hasher, version);
    text(&mut hasher, method.name());
    for (id, node) in tree.iter() {
        text(&mut hasher, &node.name);
        text(&mut hasher, node.parent.as_deref().unwrap_or_default());
        let limits = node.limits;
        let all = [limits.calls, limits.burst[0], limits.burst[1]];
        for limit in all.into_iter().chain([limits.inbound, limits.outbound, limits.per_second]) {
            number(&mut hasher, limit.map_or(u64::MAX, u64::from));
        }
        number(&mut hasher, u64::from(limits.soft));
        number(&mut hasher, tree.partition(id) as u64);
        number(&mut hasher, tree.lending(id) as u64);
        number(&mut hasher, tree.reserve(id).into());
        number(&mut hasher, node.manual.len() as u64);
        for (segment, share) in &node.manual {
            number(&mut hasher, u64::from(segment.0));
            number(&mut hasher, u64::from(*share));
        }
    }
    hasher.finish()
}
