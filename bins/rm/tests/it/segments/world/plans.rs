//! What is divided, and the dice.

use std::collections::BTreeMap;
use std::sync::Arc;

use election::{Cold, Segment};
use quota_split::{Document, Kind, Lending, Limits, Method, Partition, Tree};
use rm::cluster::{Plan, Share};

/// The tenants below the top one: their limits over all segments come from the plan.
pub(in super::super) const LIMITED: [&str; 5] = ["full", "full-one", "frozen", "majority", "lent"];

/// Where they stand in the tree.
pub(in super::super) const PLACES: [usize; 5] = [1, 2, 4, 6, 8];

/// Where calls count.
pub(super) const PROFILES: [&str; 5] =
    ["full-one", "full-two", "frozen-one", "majority-one", "lent-one"];

/// Returns a plan with limits of [`LIMITED`].
pub(in super::super) fn plan(
    version: u64,
    limits: [u32; 5],
    segments: BTreeMap<Segment, Share>,
) -> Plan {
    plan_lending(version, limits, segments, Lending::Hold)
}

/// The same, where the last of them is lent so.
pub(in super::super) fn plan_lending(
    version: u64,
    limits: [u32; 5],
    segments: BTreeMap<Segment, Share>,
    lending: Lending,
) -> Plan {
    let node = |name: &str, parent: Option<&str>, limit: Option<u32>| quota_split::Node {
        name: name.into(),
        parent: parent.map(Into::into),
        kind: if name.contains('-') { Kind::Profile } else { Kind::Tenant },
        limits: Limits { calls: limit, ..Limits::default() },
        partition: match name {
            "frozen" => Some(Partition::Frozen),
            "majority" => Some(Partition::WeightMajority),
            _ => None,
        },
        lending: (name == "lent").then_some(lending),
        ..quota_split::Node::default()
    };
    let [full, one, frozen, majority, lent] = limits.map(Some);
    let tree = Tree::new(vec![
        node("top", None, None),
        node("full", Some("top"), full),
        node("full-one", Some("full"), one),
        node("full-two", Some("full"), None),
        node("frozen", Some("top"), frozen),
        node("frozen-one", Some("frozen"), None),
        node("majority", Some("top"), majority),
        node("majority-one", Some("majority"), None),
        node("lent", Some("top"), lent),
        node("lent-one", Some("lent"), None),
    ]);
    let division = Arc::new(Document::new(version, tree.unwrap(), Method::Dhondt));
    Plan { division, eager: false, segments }
}

/// What a node has that never had a document.
pub(in super::super) fn nothing() -> Plan {
    let division = Arc::new(Document::new(0, Tree::new(Vec::new()).unwrap(), Method::default()));
    Plan { division, eager: false, segments: BTreeMap::new() }
}

pub(in super::super) fn share(weight: u32, cold: bool) -> Share {
    Share { weight, cold: cold.then(Cold::default) }
}

/// SplitMix64.
#[derive(Clone, Debug)]
pub(in super::super) struct Dice(u64);

impl Dice {
    pub(in super::super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d))
    }

    pub(in super::super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// A number from `low` to less than `high`.
    pub(in super::super) fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low)
    }

    /// True in `percent` of all throws.
    pub(in super::super) fn hits(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    pub(in super::super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.next() % from.len() as u64).unwrap()]
    }
}
