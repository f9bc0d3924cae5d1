//! Calls let in and ended again, among many tenants.
//!
//! A call counts at its profile and at four tenants above it. Warm: a few tenants, over and over, as
//! a busy trunk has them. Cold: any of all tenants, so that most of what is touched is in no cache.

use std::hint::black_box;
use std::time::{Duration, Instant};

use quota_split::{Call, CallId, Direction, Kind, Ledger, Limits, Node, NodeId, Tree};
use serde::Serialize;

use crate::allocations;
use crate::report::{self, Table, Target, number};

/// Options of this measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Tenants and profiles.
    #[arg(long, default_value_t = 100_000)]
    tenants: u32,
    /// Calls per round.
    #[arg(long, default_value_t = 200_000)]
    calls: u32,
    /// Rounds of each.
    #[arg(long, default_value_t = 10)]
    rounds: u32,
    /// Print one JSON object on standard output, and the table on standard error.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    how: &'static str,
    tenants: u32,
    warm_nanoseconds: f64,
    cold_nanoseconds: f64,
    allocations_per_call: f64,
    targets: Vec<Target>,
}

/// Calls that live at any time.
const LIVE: usize = 1000;

/// Nodes that warm calls come from.
const BUSY: usize = 64;

/// Measures and prints.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let tree = tree(args.tenants)?;
    let leaves: Vec<NodeId> =
        tree.iter().filter(|(_, node)| node.kind == Kind::Profile).map(|(id, _)| id).collect();
    let mut ledger = Ledger::new(&tree, 7, Instant::now());
    ledger.take_everything(&tree);
    let busy = &leaves[..BUSY.min(leaves.len())];
    let (mut warm, mut cold) = (Duration::MAX, Duration::MAX);
    for _ in 0..args.rounds {
        warm = warm.min(play(&mut ledger, busy, args.calls));
        cold = cold.min(play(&mut ledger, &leaves, args.calls));
    }
    let (_, allocated) = allocations::count(|| play(&mut ledger, &leaves, args.calls));
    let each = |span: Duration| span.as_secs_f64() * 1e9 / f64::from(args.calls);
    let (warm, cold) = (each(warm), each(cold));
    let per_call = allocated.calls as f64 / f64::from(args.calls);
    let report = Report {
        how: "the least of all rounds, one core; a call is let in and ended",
        tenants: args.tenants,
        warm_nanoseconds: warm,
        cold_nanoseconds: cold,
        allocations_per_call: per_call,
        targets: vec![
            Target::at_most("a call with warm caches, nanoseconds", 200.0, Some(warm)),
            Target::at_most("allocations per call", 0.0, Some(per_call)),
        ],
    };
    let title = format!("{} tenants and profiles, four tenants above a profile", args.tenants);
    let mut table = Table::new(title, &["admit and release", "ns per call"]);
    table.row(vec![format!("{BUSY} profiles (warm)"), number(Some(warm), 0)]);
    table.row(vec![format!("{} profiles (cold)", leaves.len()), number(Some(cold), 0)]);
    report::finish(args.json, &[table, report::targets(&report.targets)], &report)?;
    report::judge(&report.targets)
}

/// Lets calls in at `nodes` in no order, and ends each when so many newer ones live.
fn play(ledger: &mut Ledger, nodes: &[NodeId], calls: u32) -> Duration {
    let now = Instant::now();
    let mut random: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut live = [None; LIVE];
    let started = Instant::now();
    for id in 0..u64::from(calls) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let node = nodes[random as usize % nodes.len()];
        let call = Call { id: CallId(id), node, direction: Direction::Inbound };
        if let Some(old) = live[id as usize % LIVE].replace(call.id) {
            black_box(ledger.release(old));
        }
        black_box(ledger.admit(now, call, false).is_ok());
    }
    for id in live.into_iter().flatten() {
        ledger.release(id);
    }
    started.elapsed()
}

/// Four levels of tenants, and profiles below them.
fn tree(count: u32) -> anyhow::Result<Tree> {
    let widths = [1, 10, 100, 1000];
    let mut nodes = Vec::new();
    for (level, width) in widths.into_iter().enumerate() {
        for place in 0..width {
            let parent =
                level.checked_sub(1).map(|above| format!("{above}.{}", place % widths[above]));
            nodes.push(node(format!("{level}.{place}"), parent, Kind::Tenant));
        }
    }
    for place in 0..count.saturating_sub(widths.iter().sum()) {
        nodes.push(node(format!("p{place}"), Some(format!("3.{}", place % 1000)), Kind::Profile));
    }
    Ok(Tree::new(nodes)?)
}

fn node(name: String, parent: Option<String>, kind: Kind) -> Node {
    let limits = Limits { calls: Some(100_000), ..Limits::default() };
    Node { name, parent, kind, limits, ..Node::default() }
}
