//! The nodes of a cluster of segments: this one, its partner and those elsewhere.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use driver::config::{LoadError, Table, load};
use election::{Segment, Timing};

use super::super::{ClusterConfig, Config, PeerRoles};
use crate::cluster::document::TEXT_MAX;
use crate::cluster::{Claim, ClusterDocument};

/// Reads this node's part.
pub(super) fn read(
    segment: &Table<'_>,
    cluster: &Table<'_>,
    store: &Table<'_>,
    config: &mut Config,
) {
    let id = segment.key("id").integer(1..=u16::MAX);
    let rm = segment.key("rm").integer(1..=2_u8);
    let site = segment.key("site").string();
    let timing = timing(cluster);
    let path = cluster.key("document").string();
    let document = path.and_then(|path| match document(Path::new(&path)) {
        Ok(document) => Some(Arc::new(document)),
        Err(why) => {
            cluster.key("document").fault(why);
            None
        }
    });
    let Some(id) = id else {
        for key in ["rm", "site"] {
            if segment.key(key).is_present() && !segment.key("id").is_present() {
                segment.key(key).fault("belongs to a node of a cluster: write its segment as `id`");
            }
        }
        let keys = ["document", "heartbeat", "heartbeats_missed", "timeout", "stability"];
        let is_used = keys.into_iter().any(|key| cluster.key(key).is_present());
        if is_used && !segment.key("id").is_present() {
            cluster.fault("needs a segment: write `id` in [segment]");
        }
        return;
    };
    if !config.roles.b2b {
        segment.key("id").fault("belongs to nodes with the role \"b2b\", which count calls");
    }
    if config.store.is_none() && !store.key("path").is_present() {
        segment.key("id").fault("needs `path` in [store]: what was promised outlives the process");
    }
    let id = election::NodeId { segment: Segment(id), rm: rm.unwrap_or(1) };
    let site = site.unwrap_or_default();
    config.cluster = Some(ClusterConfig { id, site, document, timing });
}

/// Holds this node's file against the document that it names.
pub(super) fn check(segment: &Table<'_>, config: &Config) {
    let Some(cluster) = &config.cluster else { return };
    let Some(document) = &cluster.document else { return };
    let advertised: Vec<SocketAddr> = config.listeners.iter().map(|one| one.advertise).collect();
    let peers = config.peers.iter().filter_map(|peer| Some((peer.node, peer.member?)));
    let peers: Vec<_> = peers.collect();
    let claim = Claim {
        id: cluster.id,
        node: config.node,
        site: &cluster.site,
        advertised: &advertised,
        peers: &peers,
    };
    for misfit in document.misfits(&claim) {
        segment.fault(misfit);
    }
}

/// Reads and checks a file.
fn document(path: &Path) -> Result<ClusterDocument, String> {
    let shown = path.display();
    let len = path.metadata().map_err(|error| format!("{shown} cannot be read: {error}"))?.len();
    if u64::try_from(TEXT_MAX).is_ok_and(|max| max < len) {
        return Err(format!("{shown} is longer than {TEXT_MAX} bytes"));
    }
    load(path, ClusterDocument::parse).map_err(|error| {
        if let LoadError::Unread { source, .. } = &error {
            format!("{shown} cannot be read: {source}")
        } else {
            format!("is wrong: {error}")
        }
    })
}

fn timing(cluster: &Table<'_>) -> Timing {
    let usual = Timing::default();
    let range = Duration::from_millis(50)..=Duration::from_secs(300);
    let span = |name, usual| cluster.key(name).seconds(range.clone()).unwrap_or(usual);
    let misses = cluster.key("heartbeats_missed").integer(2..=100_u32).unwrap_or(3);
    let misses = NonZeroU32::new(misses).unwrap_or(NonZeroU32::MIN);
    let timing = Timing::new(
        span("heartbeat", usual.period()),
        misses,
        span("timeout", usual.timeout()),
        span("stability", usual.stability()),
    );
    timing.unwrap_or_else(|error| {
        cluster.fault(format!("does not fit together: {error}"));
        usual
    })
}

/// Reads the segment of a peer and its number there, where they are written.
pub(super) fn of_peer(peer: &Table<'_>, config: &Config) -> Option<election::NodeId> {
    let segment = peer.key("segment").integer(1..=u16::MAX);
    let rm = peer.key("rm").integer(1..=2_u8);
    let Some(own) = &config.cluster else {
        for key in ["segment", "rm"] {
            if peer.key(key).is_present() {
                peer.key(key).fault("belongs to a cluster: write the `id` of this [segment]");
            }
        }
        return None;
    };
    let segment = segment.map_or(own.id.segment, Segment);
    let is_written = peer.key("segment").is_present() || peer.key("rm").is_present();
    let usual = if segment == own.id.segment { 3 - own.id.rm } else { 1 };
    is_written.then(|| election::NodeId { segment, rm: rm.unwrap_or(usual) })
}

/// Whether a peer is of another segment.
pub(super) fn is_foreign(member: Option<election::NodeId>, config: &Config) -> bool {
    let own = config.cluster.as_ref().map(|cluster| cluster.id.segment);
    member.is_some_and(|member| Some(member.segment) != own)
}

/// Returns which node of the cluster a peer is; a b2b of this segment is one, written or not.
pub(super) fn of_b2b(
    peer: &Table<'_>,
    member: Option<election::NodeId>,
    roles: PeerRoles,
    config: &Config,
) -> Option<election::NodeId> {
    let own = config.cluster.as_ref()?.id;
    let member = match member {
        Some(member) if member.segment == own.segment && !roles.b2b => {
            peer.fault("counts no calls, as it has not the role \"b2b\": `rm` belongs to b2bs");
            return None;
        }
        None if roles.b2b => election::NodeId { rm: 3 - own.rm, ..own },
        None => return None,
        Some(member) => member,
    };
    let others = config.peers.iter().filter_map(|peer| peer.member);
    if others.chain([own]).any(|other| other == member) {
        let (segment, rm) = (member.segment, member.rm);
        peer.fault(format!("is {rm} of segment {segment}, which another node is already"));
    }
    Some(member)
}
