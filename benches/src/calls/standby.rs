//! `calls --standby`: what it costs to keep a copy of every call at a second b2b.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde::Serialize;
use testkit::program::{figure, page};

use super::{Args, Kind, Sum, measure};
use crate::ours::B2B_HTTP;
use crate::peers::Scratch;
use crate::report::{self, Table, Target, number};

/// By how much the CPU per call may grow.
const RATIO_MAX: f64 = 1.15;

/// Milliseconds of CPU for each call.
#[derive(Debug, Serialize)]
struct Row {
    rate: u32,
    side: Kind,
    gate: f64,
    b2b: f64,
    /// The second b2b.
    standby: Option<f64>,
    mediagate: f64,
    /// Of all processes; they say more than times where other work disturbs.
    syscalls_per_call: Option<f64>,
    /// The same.
    wake_ups_per_call: f64,
    copies_per_call: f64,
    /// How often the second b2b was too slow to be waited for.
    copies_late: u64,
    calls: u64,
    failed: u64,
    retransmitted: u64,
    others_cores: f64,
}

impl Row {
    fn new(rate: u32, side: Kind, sum: &Sum) -> Self {
        let calls = sum.counted.succeeded;
        let of = |name| {
            let (_, cpu) = sum.cpu.iter().find(|(process, _)| *process == name)?;
            Some(cpu.as_secs_f64() * 1000.0 / calls as f64)
        };
        Self {
            rate,
            side,
            gate: of("gate").unwrap_or(f64::NAN),
            b2b: of("b2b").unwrap_or(f64::NAN),
            standby: of("standby"),
            mediagate: of("mediagate").unwrap_or(f64::NAN),
            syscalls_per_call: sum
                .counts
                .and_then(|counts| Some(counts.syscalls? as f64 / sum.counted_calls)),
            wake_ups_per_call: sum.wake_ups as f64 / calls as f64,
            copies_per_call: sum.copies.sent as f64 / calls as f64,
            copies_late: sum.copies.late,
            calls: sum.counted.created,
            failed: sum.counted.failed,
            retransmitted: sum.counted.retransmitted,
            others_cores: sum.others.as_secs_f64() / sum.time.as_secs_f64(),
        }
    }

    /// Of the gate and the b2b that has the calls.
    fn first(&self) -> f64 {
        self.gate + self.b2b
    }

    /// Of every `rm` process; mediagates know nothing of copies.
    fn rm(&self) -> f64 {
        self.first() + self.standby.unwrap_or(0.0)
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
    let kinds = [Kind::Three, Kind::Standby];
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
        how: "calls --standby",
        seconds: args.seconds(),
        rounds: args.rounds,
        hold_ms: args.hold,
        rows,
        targets,
    };
    report::finish(args.json, &tables, &report)
}

/// What the first b2b has sent to its standby since it was started.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Copies {
    /// Records and changes.
    sent: u64,
    /// Times that calls went on without waiting any longer.
    late: u64,
}

impl Copies {
    /// Waits until each slot of the first b2b has its copy, and reads the counters.
    ///
    /// Without copies the side that has a standby would look cheap.
    pub(super) fn of_all() -> anyhow::Result<Self> {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            let metrics = page(B2B_HTTP.into(), "/metrics")?;
            let value = |name| {
                let value = figure(&metrics, name).and_then(|value| value.parse::<u64>().ok());
                value.with_context(|| format!("no figure {name}"))
            };
            let (slots, bare) = (value("rm_slots")?, value("rm_slots_unprotected")?);
            if slots == 256 && bare == 0 {
                let sent = value("rm_copies_total")?;
                return Ok(Self { sent, late: value("rm_copies_late_total")? });
            }
            ensure!(Instant::now() < until, "the b2b owns {slots} slots, {bare} have no copy");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Adds what was sent between two readings.
    pub(super) fn add(&mut self, before: Self, after: Self) {
        self.sent += after.sent.saturating_sub(before.sent);
        self.late += after.late.saturating_sub(before.late);
    }
}

fn promises(rows: &[Row]) -> Vec<Target> {
    let Some((bare, others)) = rows.split_first() else { return Vec::new() };
    let mut targets = Vec::new();
    for row in others {
        let name = format!("CPU per call at {}/s, all rm processes, with / without", row.rate);
        targets.push(Target::at_most(name, RATIO_MAX, Some(row.rm() / bare.rm())));
    }
    for row in rows {
        let name = format!("failed calls at {}/s, {}", row.rate, row.side.name());
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
        "gate + b2b",
        "/without",
        "standby b2b",
        "all rm",
        "/without",
        "mediagate",
        "syscalls/call",
        "wake-ups/call",
        "copies/call",
        "late",
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
            number(Some(row.first()), 3),
            number(bare.map(|bare| row.first() / bare.first()), 2),
            number(row.standby, 3),
            number(Some(row.rm()), 3),
            number(bare.map(|bare| row.rm() / bare.rm()), 2),
            number(Some(row.mediagate), 3),
            number(row.syscalls_per_call, 1),
            number(Some(row.wake_ups_per_call), 1),
            number(Some(row.copies_per_call), 1),
            row.copies_late.to_string(),
            row.calls.to_string(),
            row.failed.to_string(),
            row.retransmitted.to_string(),
            number(Some(row.others_cores), 2),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(side: Kind, b2b: f64, standby: Option<f64>) -> Row {
        Row {
            rate: 200,
            side,
            gate: 1.0,
            b2b,
            standby,
            mediagate: 9.0,
            syscalls_per_call: None,
            wake_ups_per_call: 0.0,
            copies_per_call: 0.0,
            copies_late: 0,
            calls: 10,
            failed: 0,
            retransmitted: 0,
            others_cores: 0.0,
        }
    }

    #[test]
    fn the_standby_counts_and_the_mediagate_does_not() {
        let bare = row(Kind::Three, 1.0, None);
        let copied = row(Kind::Standby, 1.25, Some(0.25));

        let targets = promises(&[bare, copied]);

        let expected = Target::at_most(
            "CPU per call at 200/s, all rm processes, with / without",
            RATIO_MAX,
            Some(1.25),
        );
        assert_eq!(format!("{:?}", targets[0]), format!("{expected:?}"));
    }
}
