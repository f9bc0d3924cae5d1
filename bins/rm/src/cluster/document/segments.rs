//! The segments of a document, and what leads to them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use b2bua::Route;
use driver::config::{Fault, Key, Table};
use election::{Cold, Segment};
use failover::NodeId;

use super::harm::Lines;
use super::{Mode, SegmentPlan, SegmentRoute};

/// How many segments a cluster may have.
pub(crate) const SEGMENTS_MAX: usize = 100;

/// What was read so far, with the lines where it stands.
#[derive(Default)]
struct Seen {
    segments: BTreeMap<Segment, usize>,
    nodes: BTreeMap<NodeId, usize>,
    sip: BTreeMap<SocketAddr, (Segment, String, usize)>,
    /// The same, whatever the port.
    hosts: BTreeMap<IpAddr, (Segment, String, usize)>,
}

pub(super) fn read(
    root: &Table<'_>,
    warnings: &mut Vec<Fault>,
    lines: &mut Lines,
) -> (BTreeMap<Segment, SegmentPlan>, Vec<SegmentRoute>) {
    let tables = root.tables("segment");
    let mut seen = Seen::default();
    let mut plans = Vec::new();
    for table in &tables {
        let id = table.key("id").required("a number of its own, 1 to 65535");
        let id = id.integer(1..=u16::MAX).map(Segment);
        let plan = read_segment(table, id.unwrap_or_default(), &mut seen, warnings);
        if let Some(id) = id
            && let Some(line) = seen.segments.insert(id, table.line())
        {
            table.key("id").fault(format!("is {}, which the segment in line {line} has", id.0));
        }
        plans.push((id, plan));
    }
    let named = plans.iter().filter_map(|(id, plan)| Some(((*id)?, plan.clone())));
    let segments: BTreeMap<Segment, SegmentPlan> = named.collect();
    for (table, (_, plan)) in tables.iter().zip(&plans) {
        check_names(table, plan, &segments);
    }
    match tables.first() {
        None => root.fault("there is no [[segment]]"),
        Some(_) if SEGMENTS_MAX < tables.len() => {
            tables[SEGMENTS_MAX].fault(format!("a cluster has {SEGMENTS_MAX} segments at most"));
        }
        Some(first) => check_weights(first, &segments),
    }
    let routes = read_routes(root, &segments);
    (lines.segments, lines.nodes) = (seen.segments, seen.nodes);
    (segments, routes)
}

fn read_segment(
    table: &Table<'_>,
    id: Segment,
    seen: &mut Seen,
    warnings: &mut Vec<Fault>,
) -> SegmentPlan {
    let site =
        table.key("site").required("where it stands: segments of one site help each other first");
    let site = site.string().unwrap_or_default();
    let weight = table.key("weight").integer(0..=u32::MAX).unwrap_or(100);
    let cold = table.key("mode").choice(&[("hot", false), ("cold", true)]).unwrap_or(false);
    let covers = table.key("covers").list(segment);
    let witness = table.key("witness").boolean();
    if !cold && (covers.is_some() || witness.is_some()) {
        table.fault("`covers` and `witness` belong to a segment with `mode = \"cold\"`");
    }
    let covers = covers.map(BTreeSet::from_iter);
    let mode = if cold {
        Mode::Cold(Cold { covers, witness: witness.unwrap_or(false) })
    } else {
        Mode::Hot
    };
    let sip = table.key("sip").list(Key::remote).unwrap_or_default();
    for addr in &sip {
        let ip = addr.ip().to_canonical();
        let here = (id, site.clone(), table.line());
        let moved = seen.hosts.entry(ip).or_insert_with(|| here.clone());
        if moved.1 != site && !ip.is_loopback() && !seen.sip.contains_key(addr) {
            let (other, _, line) = moved;
            table.key("sip").fault(format!(
                "has {ip}, as segment {} in line {line} has, on another site: no address can be moved there",
                other.0
            ));
        }
        let other = seen.sip.insert(*addr, here);
        let Some((other, at, line)) = other else { continue };
        let what = if at == site { "" } else { ", on another site: no address can be moved there" };
        table
            .key("sip")
            .fault(format!("has {addr}, as segment {} in line {line} has{what}", other.0));
    }
    let prefer = table.key("prefer").list(segment).unwrap_or_default();
    let rms = read_nodes(table, seen);
    if rms.len() == 1 {
        let text = format!("segment {} has one node: when it dies the segment is gone", id.0);
        warnings.push(Fault { line: table.line(), text });
    }
    SegmentPlan { site, weight, mode, sip, prefer, rms }
}

fn read_nodes(table: &Table<'_>, seen: &mut Seen) -> BTreeMap<u8, NodeId> {
    let mut rms = BTreeMap::new();
    let nodes = table.tables("nodes");
    for node in &nodes {
        let rm = node.key("rm").required("1 or 2: its number in the segment").integer(1..=2_u8);
        let id = node.key("id").required("the `id` in [node] of its own file");
        let id = id.integer(1..=u16::MAX).map(NodeId);
        if let Some(id) = id
            && let Some(line) = seen.nodes.insert(id, node.line())
        {
            node.key("id").fault(format!("is {id}, which the node in line {line} has"));
        }
        let (Some(rm), Some(id)) = (rm, id) else { continue };
        if let Some(other) = rms.insert(rm, id) {
            node.key("rm").fault(format!("is {rm}, which node {other} of this segment is"));
        }
    }
    if nodes.is_empty() {
        table.fault("`nodes` is missing: write [{ rm = 1, id = 11 }, { rm = 2, id = 12 }]");
    }
    rms
}

/// Somebody must have a part.
fn check_weights(first: &Table<'_>, segments: &BTreeMap<Segment, SegmentPlan>) {
    let mut hot = segments.values().filter(|segment| segment.mode == Mode::Hot).peekable();
    if hot.peek().is_none() {
        first.fault("every segment is cold: nobody has a part of any limit");
    } else if hot.all(|segment| segment.weight == 0) {
        first.fault("the weights of all hot segments are zero: nobody has a part of any limit");
    }
}

/// A segment can name only others that are there, and be stood in for only when it is hot.
fn check_names(table: &Table<'_>, plan: &SegmentPlan, segments: &BTreeMap<Segment, SegmentPlan>) {
    for id in plan.prefer.iter().filter(|id| !segments.contains_key(id)) {
        table.key("prefer").fault(format!("has {}, which is no [[segment]]", id.0));
    }
    let Mode::Cold(Cold { covers: Some(covers), .. }) = &plan.mode else { return };
    for id in covers {
        match segments.get(id).map(|segment| &segment.mode) {
            Some(Mode::Hot) => {}
            Some(Mode::Cold(_)) => {
                table.key("covers").fault(format!("has {}, which is cold itself", id.0));
            }
            None => table.key("covers").fault(format!("has {}, which is no [[segment]]", id.0)),
        }
    }
    if covers.is_empty() {
        table.key("covers").fault("is empty: this segment would never have a part");
    }
}

fn read_routes(root: &Table<'_>, segments: &BTreeMap<Segment, SegmentPlan>) -> Vec<SegmentRoute> {
    let mut routes: Vec<SegmentRoute> = Vec::new();
    for table in root.tables("route") {
        let segment = table.key("segment").integer(1..=u16::MAX).map(Segment);
        if let Some(id) = segment.filter(|id| !segments.contains_key(id)) {
            table.key("segment").fault(format!("is {}, which is no [[segment]]", id.0));
        }
        let prefix = table.key("prefix").string().unwrap_or_default().into_bytes();
        let key = table.key("targets").required("one or more addresses with ports");
        let targets = key.list(crate::config::trunk).unwrap_or_default();
        if targets.is_empty() {
            table.fault("a route needs at least one target");
        }
        let covers = |one: &&SegmentRoute| {
            prefix.starts_with(&one.route.prefix)
                && (one.segment.is_none() || one.segment == segment)
        };
        if let Some(first) = routes.iter().find(covers) {
            let first = String::from_utf8_lossy(&first.route.prefix);
            table.fault(format!("is never taken: the one for \"{first}\" stands before it"));
        }
        routes.push(SegmentRoute { segment, route: Route { prefix, targets } });
    }
    routes
}

fn segment(key: Key<'_>) -> Option<Segment> {
    key.integer(1..=u16::MAX).map(Segment)
}
