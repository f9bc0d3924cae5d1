//! Limits of many tenants, divided among segments.
//!
//! The same memory is written again and again, as `rm` does, beside the memset of it: what the
//! machine can write at all. The least of many rounds counts, since everything else is noise of others.

use std::hint::black_box;
use std::time::{Duration, Instant};

use quota_split::{Limits, Method, Node, NodeId, Segment, SegmentId, Tree, divide};
use serde::Serialize;

use crate::report::{self, Table, Target, number};

/// Options of this measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Tenants; one in ten has no limit.
    #[arg(long, default_value_t = 100_000)]
    tenants: u32,
    /// Segments.
    #[arg(long, default_value_t = 20)]
    segments: u32,
    /// Rounds of each.
    #[arg(long, default_value_t = 100)]
    rounds: u32,
    /// Print one JSON object on standard output, and the table on standard error.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    how: &'static str,
    tenants: u32,
    segments: u32,
    nanoseconds_per_cell: f64,
    memset_nanoseconds_per_cell: f64,
    first_milliseconds: f64,
    one_limit_nanoseconds: f64,
    targets: Vec<Target>,
}

/// Measures and prints.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let tree = tree(args.tenants)?;
    // Weights as they are in use: hundreds, all different; their sum is far below the table's bound.
    let segments: Vec<Segment> = (1..=args.segments)
        .map(|id| Segment { id: SegmentId(id), weight: 50 + 7 * (id % 17) + id })
        .collect();
    let started = Instant::now();
    let mut division = divide(&tree, &segments, Method::Dhondt)?;
    let first = started.elapsed();

    let ids: Vec<NodeId> = tree.iter().map(|(id, _)| id).collect();
    let cells = ids.len() * segments.len();
    let mut filled = vec![0_u32; cells];
    let (mut whole, mut fill, mut one) = (Duration::MAX, Duration::MAX, Duration::MAX);
    for round in 0..args.rounds {
        let started = Instant::now();
        division.refresh();
        whole = whole.min(started.elapsed());
        black_box(&division);

        let started = Instant::now();
        black_box(&mut filled[..]).fill(0);
        fill = fill.min(started.elapsed());

        // A thousand at a time, so that the clock's own cost does not show.
        let started = Instant::now();
        for place in 0..1000_u32 {
            let id = ids[(place as usize * 97) % ids.len()];
            black_box(division.set_limit(id, Some(1 + (place * 7 + round) % 2000)));
        }
        one = one.min(started.elapsed());
    }
    let each = |span: Duration, count: usize| span.as_secs_f64() * 1e9 / count as f64;
    let (cell, plain) = (each(whole, cells), each(fill, cells));
    let one = each(one, 1000);
    let report = Report {
        how: "the least of all rounds; dhondt over a table",
        tenants: args.tenants,
        segments: args.segments,
        nanoseconds_per_cell: cell,
        memset_nanoseconds_per_cell: plain,
        first_milliseconds: first.as_secs_f64() * 1e3,
        one_limit_nanoseconds: one,
        targets: vec![
            Target::at_most("nanoseconds per cell", 1.0, Some(cell)),
            Target::at_most("times the memset", 4.0, Some(cell / plain)).of_times(),
            Target::at_most("one limit changed, nanoseconds", 100.0, Some(one)),
        ],
    };
    let title = format!("{} tenants over {} segments", args.tenants, args.segments);
    let mut table = Table::new(title, &["", "ns per cell"]);
    let mut row = |name: &str, value| table.row(vec![name.to_owned(), number(Some(value), 2)]);
    row("division", cell);
    row("memset of as much memory", plain);
    let mut others = Table::new("beside".to_owned(), &["", ""]);
    let mut row = |name: &str, value| others.row(vec![name.to_owned(), number(Some(value), 1)]);
    row("the first division, with its memory and table, ms", report.first_milliseconds);
    row("one limit changed, ns", one);
    report::finish(args.json, &[table, others, report::targets(&report.targets)], &report)?;
    report::judge(&report.targets)
}

fn tree(tenants: u32) -> anyhow::Result<Tree> {
    let node = |place: u32| Node {
        name: format!("t{place}"),
        limits: Limits {
            calls: (!place.is_multiple_of(10)).then(|| 1 + place * 31 % 2000),
            ..Limits::default()
        },
        ..Node::default()
    };
    Ok(Tree::new((0..tenants).map(node).collect())?)
}
