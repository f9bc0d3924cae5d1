//! Whether a node's own file says what the document says.

use std::net::SocketAddr;

use election::Segment;
use failover::NodeId;

use super::{ClusterDocument, SegmentPlan};

/// What a node's own file says of its place in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim<'a> {
    /// Its segment and its number there.
    pub id: election::NodeId,
    /// Its id among all nodes.
    pub node: NodeId,
    /// Where it stands.
    pub site: &'a str,
    /// The addresses that phones and trunks reach it at.
    pub advertised: &'a [SocketAddr],
    /// Every other node of the cluster that it has a link to.
    pub peers: &'a [(NodeId, election::NodeId)],
}

impl ClusterDocument {
    /// Returns everything in which a node's own file and this document differ, in words for people.
    pub fn misfits(&self, claim: &Claim<'_>) -> Vec<String> {
        let mut misfits = Vec::new();
        let Segment(segment) = claim.id.segment;
        match self.segments.get(&claim.id.segment) {
            None => misfits.push(format!("segment {segment} is not in the cluster document")),
            Some(plan) if plan.site != claim.site => misfits.push(format!(
                "this node stands in \"{}\", and segment {segment} in \"{}\" as the cluster document has it",
                claim.site, plan.site
            )),
            Some(_) => {}
        }
        misfits.extend(self.misplaced(claim.node, claim.id));
        for addr in claim.advertised {
            let others = self.segments.iter().filter(|(id, _)| **id != claim.id.segment);
            // On another site it is the host that must be another, whatever the port.
            let same = |sip: &SocketAddr, plan: &SegmentPlan| {
                let host = addr.ip().to_canonical();
                let moved = plan.site != claim.site && !host.is_loopback();
                sip == addr || moved && sip.ip().to_canonical() == host
            };
            let has = |plan: &SegmentPlan| plan.sip.iter().any(|sip| same(sip, plan));
            for (other, _) in others.filter(|(_, plan)| has(plan)) {
                misfits.push(format!(
                    "{addr} is advertised here, and is an address of segment {} in the cluster document",
                    other.0
                ));
            }
        }
        misfits.extend(claim.peers.iter().filter_map(|(node, id)| self.misplaced(*node, *id)));
        for (segment, plan) in &self.segments {
            for (rm, node) in &plan.rms {
                let known = claim.peers.iter().any(|(peer, _)| peer == node);
                if *node != claim.node && !known {
                    misfits.push(format!(
                        "node {node} is `rm = {rm}` of segment {} in the cluster document, and no [[peer]] here",
                        segment.0
                    ));
                }
            }
        }
        misfits
    }

    fn misplaced(&self, node: NodeId, id: election::NodeId) -> Option<String> {
        let place = self.segments.get(&id.segment).and_then(|plan| plan.rms.get(&id.rm));
        let (segment, rm) = (id.segment.0, id.rm);
        match place {
            Some(other) if *other == node => None,
            Some(other) => Some(format!(
                "node {node} has `segment = {segment}` and `rm = {rm}` here, which node {other} has in the cluster document"
            )),
            None => Some(format!(
                "node {node} has `segment = {segment}` and `rm = {rm}` here, which the cluster document does not name"
            )),
        }
    }
}
