//! What a sound document would do to a cluster that its author hardly means.

use std::collections::BTreeMap;

use driver::config::Fault;
use election::Segment;
use failover::NodeId;

use super::{ClusterDocument, Mode, VERSION_MAX};

/// Something that a document would do to the cluster that it is given to. It is refused, and nothing has
/// changed: its author is at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Harm {
    /// Where in the document, what, and what to do about it.
    pub fault: Fault,
    /// Whether an operator may mean it: given by force such a document is taken.
    pub may_be_meant: bool,
}

/// Where in its text a document says what.
#[derive(Clone, Debug, Default)]
pub(super) struct Lines {
    pub(super) version: usize,
    pub(super) segments: BTreeMap<Segment, usize>,
    pub(super) nodes: BTreeMap<NodeId, usize>,
}

/// With fewer higher versions left, one is more likely mistyped than meant: nothing leads back.
const VERSIONS_LEFT: u64 = 1 << 20;

impl ClusterDocument {
    /// Returns everything that this document would do in the place of `before` to a cluster in which
    /// these nodes run, each in the place that its own file says.
    pub fn harms(
        &self,
        before: Option<&Self>,
        running: &BTreeMap<NodeId, election::NodeId>,
    ) -> Vec<Harm> {
        let mut harms: Vec<Harm> = self.last().into_iter().chain(self.silent()).collect();
        harms.extend(before.into_iter().flat_map(|before| self.left_out(before)));
        harms.extend(self.moved(running));
        harms.extend(self.unnamed(running));
        harms.sort_by_key(|harm| harm.fault.line);
        harms
    }

    /// A version that leaves hardly any for what comes after it.
    fn last(&self) -> Option<Harm> {
        let left = VERSION_MAX - self.version;
        (left < VERSIONS_LEFT).then(|| {
            let text =
                format!("`version` leaves {left} higher ones, of which each change needs one");
            meant(true, self.lines.version, text)
        })
    }

    /// Segments that others cannot send calls to where they should.
    fn silent(&self) -> impl Iterator<Item = Harm> + '_ {
        let others = 1 < self.segments.len() && self.sharing;
        let silent = self.segments.iter().filter(move |(_, plan)| others && plan.sip.is_empty());
        silent.map(|(segment, _)| {
            let text = format!(
                "segment {} has no `sip`: with `sharing` no call can be sent on to it, and nobody knows \
                 the calls that it sends on",
                segment.0
            );
            meant(true, self.line_of(*segment), text)
        })
    }

    /// Segments of `before` that are not here any more and still have a part there. One that does not hear of
    /// this goes on with its part.
    fn left_out<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = Harm> + 'a {
        let has_part = |plan: &super::SegmentPlan| plan.mode == Mode::Hot && 0 < plan.weight;
        let gone = before.segments.iter().filter(|(id, _)| !self.segments.contains_key(id));
        gone.filter(move |(_, plan)| has_part(plan)).map(|(id, plan)| {
            let text = format!(
                "segment {} is left out, which has the weight {} in version {}: first give it `weight = 0` \
                 in a version of its own, so that its part is with the others when it goes",
                id.0, plan.weight, before.version
            );
            meant(true, self.lines.version, text)
        })
    }

    /// Nodes that run in another place than here.
    fn moved<'a>(
        &'a self,
        running: &'a BTreeMap<NodeId, election::NodeId>,
    ) -> impl Iterator<Item = Harm> + 'a {
        let places = self.segments.iter().flat_map(|(segment, plan)| {
            let place = |(&rm, &node)| (node, election::NodeId { segment: *segment, rm });
            plan.rms.iter().map(place)
        });
        let places = places.filter_map(|(node, here)| Some((node, here, *running.get(&node)?)));
        places.filter(|(_, here, there)| here != there).map(|(node, here, there)| {
            let text = format!(
                "node {node} is `rm = {}` of segment {} here, and runs as `rm = {}` of segment {}: end it \
                 before it gets another number",
                here.rm, here.segment.0, there.rm, there.segment.0
            );
            meant(false, self.lines.nodes.get(&node).copied().unwrap_or(1), text)
        })
    }

    /// Segments some of whose nodes run, but none of those that are named here.
    fn unnamed<'a>(
        &'a self,
        running: &'a BTreeMap<NodeId, election::NodeId>,
    ) -> impl Iterator<Item = Harm> + 'a {
        self.segments.iter().filter_map(move |(segment, plan)| {
            let run = running.iter().filter(|(_, place)| place.segment == *segment);
            let run: Vec<NodeId> = run.map(|(node, _)| *node).collect();
            let named = |node: &NodeId| plan.rms.values().any(|other| other == node);
            if run.is_empty() || run.iter().any(named) {
                return None;
            }
            let run: Vec<String> = run.iter().map(NodeId::to_string).collect();
            let text = format!(
                "segment {} has none of the nodes that run there in its `nodes`: {}",
                segment.0,
                run.join(", ")
            );
            Some(meant(true, self.line_of(*segment), text))
        })
    }

    fn line_of(&self, segment: Segment) -> usize {
        self.lines.segments.get(&segment).copied().unwrap_or(1)
    }
}

fn meant(may_be_meant: bool, line: usize, text: String) -> Harm {
    let text = if may_be_meant { format!("{text}; --force takes it all the same") } else { text };
    Harm { fault: Fault { line, text }, may_be_meant }
}
