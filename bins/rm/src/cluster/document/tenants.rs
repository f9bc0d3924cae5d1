//! The tenants and profiles of a document.

use std::collections::{BTreeMap, BTreeSet};

use b2bua::gate::Network;
use driver::config::{Key, Table};
use election::Segment;
use quota_split::{
    Answer, Document, Kind, Lending, Limits, Matcher, Method, Node, NodeId, NumberRule, Numbers,
    Partition, Policies, Policy, SegmentId, Tree, TreeError, Violation,
};

use super::SegmentPlan;

/// What the tables about tenants come to.
pub(super) struct Tenants {
    pub(super) division: Document,
    pub(super) eager: bool,
    pub(super) policies: Policies,
    pub(super) matcher: Matcher,
    pub(super) gateways: Vec<(Network, NodeId)>,
    pub(super) trusted: Vec<Network>,
    pub(super) emergency: Vec<Numbers>,
}

/// One table of a tenant or profile.
struct Entry<'a> {
    table: Table<'a>,
    node: Node,
    numbers: Vec<Numbers>,
    id: Option<String>,
}

const NUMBERS: &str = "a number, a range such as \"300-400\" or a start such as \"45*\"";
const NETWORK: &str = "a network, such as \"192.0.2.0/24\"";

/// Returns `None` after a fault that leaves nothing to go on with.
pub(super) fn read(
    root: &Table<'_>,
    version: u64,
    segments: &BTreeMap<Segment, SegmentPlan>,
) -> Option<Tenants> {
    let methods = [("dhondt", Method::Dhondt), ("spread", Method::Spread)];
    let method = root.key("method").choice(&methods).unwrap_or_default();
    let eager = root.key("handover").choice(&[("strict", false), ("eager", true)]);
    let trusted = root.key("trusted").list(network).unwrap_or_default();
    let emergency = root.key("emergency").list(numbers).unwrap_or_default();
    let mut policies = BTreeMap::new();
    let tenants = root.tables("tenant").into_iter();
    let tenants = tenants.map(|table| read_node(table, Kind::Tenant, segments, &mut policies));
    let mut entries: Vec<Entry<'_>> = tenants.collect();
    for table in root.tables("profile") {
        entries.push(read_node(table, Kind::Profile, segments, &mut policies));
    }
    if entries.is_empty() {
        root.fault("there is no [[tenant]]: calls belong to one");
    }
    let gateways: Vec<_> = root.tables("gateway").into_iter().map(read_gateway).collect();
    let tree = build_tree(root, &entries)?;
    let policies = Policies::check(&tree, &policies);
    let policies = policies.map_err(|errors| {
        for error in errors {
            at(root, &entries, error.node()).fault(&error);
        }
    });
    let matcher = build_matcher(&tree, &entries);
    let gateways = own_gateways(&tree, &gateways);
    let division = Document::new(version, tree, method);
    let (eager, policies) = (eager.unwrap_or(false), policies.ok()?);
    Some(Tenants { division, eager, policies, matcher, gateways, trusted, emergency })
}

fn read_node<'a>(
    table: Table<'a>,
    kind: Kind,
    segments: &BTreeMap<Segment, SegmentPlan>,
    policies: &mut BTreeMap<String, Policy>,
) -> Entry<'a> {
    let name = table.key("name").required("a name of its own").string().unwrap_or_default();
    let (parent, id) = match kind {
        Kind::Tenant => (table.key("parent").string(), None),
        Kind::Profile => {
            let tenant = table.key("tenant").required("the name of the tenant that it belongs to");
            (tenant.string(), table.key("id").string())
        }
    };
    let partitions = [
        ("full", Partition::Full),
        ("frozen", Partition::Frozen),
        ("weight_majority", Partition::WeightMajority),
    ];
    let lendings = [("off", Lending::Off), ("tick", Lending::Tick), ("hold", Lending::Hold)];
    let node = Node {
        name: name.clone(),
        parent,
        kind,
        limits: read_limits(&table),
        manual: read_shares(&table, segments),
        partition: table.key("partition").choice(&partitions),
        lending: table.key("lending").choice(&lendings),
        reserve: table.key("reserve").integer(0..=100_u8),
    };
    let mut policy = read_policy(&table);
    if kind == Kind::Tenant {
        policy.default_profile = table.key("default_profile").string();
        for below in table.tables("override") {
            let child =
                below.key("child").required("the name of a tenant or profile below this one");
            let over = read_policy(&below);
            policy.overrides.insert(child.string().unwrap_or_default(), over);
        }
    }
    if policy != Policy::default() {
        policies.insert(name, policy);
    }
    let numbers = table.key("numbers").list(numbers).unwrap_or_default();
    Entry { table, node, numbers, id }
}

fn read_limits(table: &Table<'_>) -> Limits {
    let limit = |key: &'static str| table.key(key).integer(0..=u32::MAX);
    let mut burst = [None; 2];
    if let Some(levels) = table.key("burst").list(|key| key.integer(0..=u32::MAX)) {
        if burst.len() < levels.len() {
            table.key("burst").fault("has more than two values: where levels 2 and 3 end");
        }
        for (level, value) in burst.iter_mut().zip(levels) {
            *level = Some(value);
        }
    }
    Limits {
        calls: limit("calls"),
        burst,
        inbound: limit("inbound"),
        outbound: limit("outbound"),
        per_second: limit("per_second"),
        soft: table.key("soft").boolean().unwrap_or(false),
    }
}

fn read_shares(
    table: &Table<'_>,
    segments: &BTreeMap<Segment, SegmentPlan>,
) -> BTreeMap<SegmentId, u32> {
    let mut shares = BTreeMap::new();
    for share in table.tables("shares") {
        let segment = share.key("segment").required("the `id` of a segment").integer(1..=u16::MAX);
        let calls = share.key("calls").required("its part of the limit").integer(0..=u32::MAX);
        let (Some(segment), Some(calls)) = (segment, calls) else { continue };
        if !segments.contains_key(&Segment(segment)) {
            share.key("segment").fault(format!("is {segment}, which is no [[segment]]"));
        }
        if shares.insert(SegmentId(segment.into()), calls).is_some() {
            share.key("segment").fault(format!("is {segment}, which has a part already"));
        }
    }
    shares
}

fn read_policy(table: &Table<'_>) -> Policy {
    let known = [("phone", "phone"), ("gateway", "gateway")];
    let services = table.key("services").list(|key| key.choice(&known).map(str::to_owned));
    let rules = table.key("dial").list(|key| {
        let text = key.string()?;
        let (allow, pattern) = match text.strip_prefix('!') {
            Some(pattern) => (false, pattern),
            None => (true, text.as_str()),
        };
        Some(NumberRule { pattern: pattern.to_owned(), allow })
    });
    let answers = table.table("answers");
    let kinds = [
        ("usage", Violation::Usage),
        ("service", Violation::Service),
        ("number", Violation::Number),
        ("profile", Violation::Profile),
    ];
    let answers = kinds.into_iter().filter_map(|(key, violation)| {
        let table = answers.table(key);
        let usual = violation.usual_answer();
        let status = table.key("status").integer(400..=699_u16);
        let text = table.key("text").string();
        let alarm = table.key("alarm").boolean().unwrap_or(usual.alarm);
        let (status, text) = (status.unwrap_or(usual.status), text.unwrap_or(usual.text));
        table.is_present().then_some((violation, Answer { status, text, alarm }))
    });
    Policy {
        services: services.map(BTreeSet::from_iter),
        numbers: rules,
        answers: answers.collect(),
        ..Policy::default()
    }
}

fn build_tree(root: &Table<'_>, entries: &[Entry<'_>]) -> Option<Tree> {
    let nodes = entries.iter().map(|entry| entry.node.clone()).collect();
    let built = Tree::check(nodes).map_err(|errors| {
        for error in errors {
            let name = error.node().unwrap_or_default();
            let last = || entries.iter().rfind(|entry| entry.node.name == name);
            let second = matches!(error, TreeError::Duplicate(_)).then(last).flatten();
            second.map_or_else(|| at(root, entries, name), |entry| &entry.table).fault(&error);
        }
    });
    built.ok()
}

fn build_matcher(tree: &Tree, entries: &[Entry<'_>]) -> Matcher {
    let mut matcher = Matcher::default();
    for (entry, (id, _)) in entries.iter().zip(tree.iter()) {
        for numbers in &entry.numbers {
            if let Err(error) = matcher.give(tree, id, numbers.clone()) {
                entry.table.key("numbers").fault(format!("overlap: {error}"));
            }
        }
        if let Some(name) = &entry.id
            && let Err(error) = matcher.call(tree, id, name.clone())
        {
            entry.table.key("id").fault(format!("is taken: {error}"));
        }
    }
    matcher
}

type Gateway<'a> = (Table<'a>, Option<Network>, Option<String>);

fn read_gateway(table: Table<'_>) -> Gateway<'_> {
    let network = network(table.key("network").required(NETWORK));
    let tenant = table.key("tenant").required("the name of the tenant that owns it").string();
    (table, network, tenant)
}

fn own_gateways(tree: &Tree, gateways: &[Gateway<'_>]) -> Vec<(Network, NodeId)> {
    let mut owned: Vec<(Network, NodeId)> = Vec::new();
    for (table, network, tenant) in gateways {
        let (Some(network), Some(name)) = (network, tenant) else { continue };
        let tenant = tree.find(name).filter(|&id| tree.node(id).kind == Kind::Tenant);
        let Some(tenant) = tenant else {
            table.key("tenant").fault(format!("is \"{name}\", which is no [[tenant]]"));
            continue;
        };
        let other = owned.iter().find(|(other, owner)| *owner != tenant && other.overlaps(network));
        if let Some((_, owner)) = other {
            let owner = &tree.node(*owner).name;
            table.key("network").fault(format!("has addresses that are of \"{owner}\" already"));
        }
        owned.push((*network, tenant));
    }
    owned
}

/// Returns the table of a node; of two with its name the first.
fn at<'t, 'a>(root: &'t Table<'a>, entries: &'t [Entry<'a>], name: &str) -> &'t Table<'a> {
    let named = entries.iter().find(|entry| entry.node.name == name);
    named.map_or(root, |entry| &entry.table)
}

fn numbers(key: Key<'_>) -> Option<Numbers> {
    key.parsed(NUMBERS, |text| text.parse().ok())
}

fn network(key: Key<'_>) -> Option<Network> {
    key.parsed(NETWORK, |text| text.parse().ok())
}
