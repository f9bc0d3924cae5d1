//! `calls --limits`: what it costs to ask for each call whether it may be.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde::Serialize;
use testkit::program::{figure, page};

use super::{Args, Kind, Sum, measure};
use crate::ours::B2B_HTTP;
use crate::peers::Scratch;
use crate::report::{self, Table, Target, number};

/// By how much the CPU per call may grow.
const RATIO_MAX: f64 = 1.05;

/// Milliseconds of CPU for each call.
#[derive(Debug, Serialize)]
struct Row {
    rate: u32,
    side: Kind,
    gate: f64,
    b2b: f64,
    mediagate: f64,
    calls: u64,
    failed: u64,
    retransmitted: u64,
    others_cores: f64,
}

impl Row {
    fn new(rate: u32, side: Kind, sum: &Sum) -> Self {
        let calls = sum.counted.succeeded as f64;
        let of = |name| {
            let found = sum.cpu.iter().find(|(process, _)| *process == name);
            found.map_or(f64::NAN, |(_, cpu)| cpu.as_secs_f64() * 1000.0 / calls)
        };
        Self {
            rate,
            side,
            gate: of("gate"),
            b2b: of("b2b"),
            mediagate: of("mediagate"),
            calls: sum.counted.created,
            failed: sum.counted.failed,
            retransmitted: sum.counted.retransmitted,
            others_cores: sum.others.as_secs_f64() / sum.time.as_secs_f64(),
        }
    }

    fn all(&self) -> f64 {
        self.gate + self.b2b + self.mediagate
    }
}

#[derive(Debug, Serialize)]
struct Report {
    how: &'static str,
    seconds: u32,
    rounds: usize,
    hold_ms: u64,
    rows: Vec<Row>,
    targets: Vec<Target>,
}

/// Measures and prints.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let mut scratch = Scratch::new()?;
    let kinds = [Kind::Stored, Kind::Limits];
    let (mut tables, mut rows, mut targets) = (Vec::new(), Vec::new(), Vec::new());
    for rate in &args.rates {
        let sums = measure(&kinds, *rate, args, &mut scratch)?;
        let of_rate: Vec<Row> =
            kinds.iter().zip(&sums).map(|(kind, sum)| Row::new(*rate, *kind, sum)).collect();
        tables.push(table(args, *rate, &of_rate));
        targets.extend(promises(&of_rate));
        rows.extend(of_rate);
    }
    tables.push(report::targets(&targets));
    let report = Report {
        how: "calls --limits",
        seconds: args.seconds(),
        rounds: args.rounds,
        hold_ms: args.hold,
        rows,
        targets,
    };
    report::finish(args.json, &tables, &report)
}

/// Waits until the only segment has the whole of every limit: a node that starts leads nobody before it
/// has been there for a while.
pub(super) fn wait_for_shares() -> anyhow::Result<()> {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let metrics = page(B2B_HTTP.into(), "/metrics")?;
        let members = figure(&metrics, "rm_cluster_members").context("it counts no calls")?;
        if members == "1" {
            // The share follows the division at once.
            std::thread::sleep(Duration::from_secs(1));
            return Ok(());
        }
        ensure!(Instant::now() < until, "no limit is divided");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn promises(rows: &[Row]) -> Vec<Target> {
    let [bare, limited] = rows else { return Vec::new() };
    let rate = bare.rate;
    let mut targets = vec![Target::at_most(
        format!("CPU per call at {rate}/s, all processes, with / without limits"),
        RATIO_MAX,
        Some(limited.all() / bare.all()),
    )];
    for row in rows {
        let name = format!("failed calls at {rate}/s, {}", row.side.name());
        targets.push(Target::at_most(name, 0.0, Some(row.failed as f64)));
    }
    targets
}

fn table(args: &Args, rate: u32, rows: &[Row]) -> Table {
    let title = format!(
        "{rate} calls/s through SIPp, {} slices of {} s each, {} ms from ACK to BYE; CPU ms/call",
        args.rounds,
        args.seconds(),
        args.hold,
    );
    let heads = [
        "",
        "gate",
        "b2b",
        "/without",
        "mediagate",
        "all",
        "/without",
        "calls",
        "failed",
        "resent",
        "others, cores",
    ];
    let mut table = Table::new(title, &heads);
    let bare = rows.first();
    for row in rows {
        table.row(vec![
            row.side.name().to_owned(),
            number(Some(row.gate), 3),
            number(Some(row.b2b), 3),
            number(bare.map(|bare| row.b2b / bare.b2b), 2),
            number(Some(row.mediagate), 3),
            number(Some(row.all()), 3),
            number(bare.map(|bare| row.all() / bare.all()), 2),
            row.calls.to_string(),
            row.failed.to_string(),
            row.retransmitted.to_string(),
            number(Some(row.others_cores), 2),
        ]);
    }
    table
}
