//! What operators see of a cluster.

use std::collections::{BTreeMap, BTreeSet};

use election::{Mandate, NodeId, Segment, Speaker};
use quota_split::{Counter, Refusal};

use super::Cluster;

/// The cluster as one node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterView {
    /// The node.
    pub node: NodeId,
    /// The division that it leads or follows; its epoch names the coordinator.
    pub mandate: Option<Mandate>,
    /// The nodes of its island that may coordinate, itself included once it has started.
    pub present: BTreeSet<NodeId>,
    /// The peers to which its links are up.
    pub linked: BTreeSet<NodeId>,
    /// The version of its document.
    pub document: u64,
    /// Whether its segment is passive.
    pub passive: bool,
    /// Whether it has given way to another process with its id.
    pub withdrawn: bool,
    /// Every segment of its plan.
    pub segments: BTreeMap<Segment, SegmentView>,
}

/// One segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentView {
    /// How large its part is against the others'.
    pub weight: u32,
    /// Whether it gets a part only while others are away.
    pub cold: bool,
    /// Whether it is a member of the division.
    pub member: bool,
    /// Whether it gets a share of it.
    pub shares: bool,
    /// Who counts its calls.
    pub speaker: Option<Speaker>,
}

/// One tenant or profile as the speaker of a segment counts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantView<'a> {
    /// Its name.
    pub name: &'a str,
    /// The tenant that it belongs to.
    pub parent: Option<&'a str>,
    /// What is counted there; a direction only where it has a limit.
    pub counters: Vec<CounterView>,
    /// The most calls of this segment that counted there at a time.
    pub peak: u32,
    /// How many calls were refused there.
    pub refused: u32,
    /// The last refusal.
    pub last_refusal: Option<Refusal>,
}

/// One counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterView {
    /// What is counted.
    pub counter: Counter,
    /// The limit over all segments.
    pub limit: Option<u32>,
    /// What this segment may grow to in the division that it follows.
    pub target: Option<u32>,
    /// What it may carry now.
    pub cap: Option<u32>,
    /// What it carries.
    pub used: u32,
    /// What the others were last known to carry, where that is told.
    pub elsewhere: Option<u32>,
    /// What each member may hold at the most, while this node coordinates and all have promised.
    pub held: BTreeMap<Segment, u32>,
}

impl Cluster {
    /// Returns what this node knows of the cluster.
    pub fn view(&self) -> ClusterView {
        let mandate = self.elector.mandate().cloned();
        let shares = self.followed.as_ref().map(|(_, shares)| shares);
        let segment = |(&segment, share): (&Segment, &super::Share)| {
            let view = SegmentView {
                weight: share.weight,
                cold: share.cold.is_some(),
                member: mandate.as_ref().is_some_and(|mandate| mandate.has(segment)),
                shares: shares.is_some_and(|shares| shares.contains(&segment)),
                speaker: self.speakers.get(&segment).copied(),
            };
            (segment, view)
        };
        ClusterView {
            node: self.config.id,
            present: self.present.clone(),
            linked: self.linked.clone(),
            document: self.plan.division.version(),
            passive: self.passive,
            withdrawn: self.withdrawn,
            segments: self.plan.segments.iter().map(segment).collect(),
            mandate,
        }
    }

    /// Returns the tenants and profiles, in the order of the document, while this node counts the
    /// calls of its segment; nothing otherwise: its partner knows. No view is made of the `first`
    /// ones, nor of one that is not taken.
    pub fn tenants_from(&self, first: usize) -> impl Iterator<Item = TenantView<'_>> {
        let member = self.pair.member().into_iter();
        member.flat_map(move |member| {
            let (document, ledger) = (member.document(), member.ledger());
            document.tree().iter().skip(first).map(move |(id, node)| {
                #[cfg(test)]
                MADE.set(MADE.get() + 1);
                let counter = |counter| {
                    let view = ledger.view(id, counter);
                    let place = document.place(id, counter);
                    let shown = counter == Counter::Calls || view.limit.is_some();
                    shown.then(|| CounterView {
                        counter,
                        limit: view.limit,
                        target: place.and_then(|place| member.target(place)),
                        cap: view.share,
                        used: view.used,
                        elsewhere: view.elsewhere,
                        held: place.map(|place| self.held(place)).unwrap_or_default(),
                    })
                };
                let (peak, refused) = ledger.peak_and_refused(id);
                TenantView {
                    name: &node.name,
                    parent: node.parent.as_deref(),
                    counters: Counter::ALL.into_iter().filter_map(counter).collect(),
                    peak,
                    refused,
                    last_refusal: self.refusals.get(&id).copied(),
                }
            })
        })
    }

    /// Returns how many counters of this node are below zero, as it were.
    pub fn underflows(&self) -> u64 {
        self.pair.member().map_or(0, |member| member.ledger().underflows())
    }

    fn held(&self, place: u32) -> BTreeMap<Segment, u32> {
        let held = |&segment: &Segment| {
            let id = quota_split::SegmentId(u32::from(segment.0));
            Some((segment, self.coordinator.held(id, place)?))
        };
        let leads = self.coordinator.stamp().and_then(|_| self.elector.mandate());
        leads.map(Mandate::segments).unwrap_or_default().iter().filter_map(held).collect()
    }
}

#[cfg(test)]
thread_local! {
    /// How many views of tenants were made in this thread.
    pub(crate) static MADE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
