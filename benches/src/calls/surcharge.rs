//! `calls --standby` and `calls --limits`: what something costs each call, as the same system without
//! and with it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde::Serialize;
use testkit::program::{figure, page};

use super::{Args, Kind, Report, Sum, measure};
use crate::ours::B2B_HTTP;
use crate::peers::Scratch;
use crate::report::{self, Table, Target, number};

/// Something that costs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surcharge {
    how: &'static str,
    /// Without it, and with it.
    kinds: [Kind; 2],
    /// By how much the CPU per call may grow.
    ratio_max: f64,
    /// The process that knows nothing of it and would only hide it.
    aside: Option<&'static str>,
}

/// A copy of every call at a second b2b, which counts too.
pub(super) const STANDBY: Surcharge = Surcharge {
    how: "calls --standby",
    kinds: [Kind::Three, Kind::Standby],
    ratio_max: 1.15,
    aside: Some("mediagate"),
};

/// The question for each call whether it may be.
pub(super) const LIMITS: Surcharge = Surcharge {
    how: "calls --limits",
    kinds: [Kind::Stored, Kind::Limits],
    ratio_max: 1.05,
    aside: None,
};

/// One side at one rate.
#[derive(Debug, Serialize)]
struct Row {
    rate: u32,
    side: Kind,
    processes: Vec<Process>,
    /// Of all processes; they say more than times where other work disturbs.
    syscalls_per_call: Option<f64>,
    copies_per_call: f64,
    frames_per_call: f64,
    /// How often the second b2b was too slow to be waited for.
    copies_late: u64,
    calls: u64,
    failed: u64,
    retransmitted: u64,
    others_cores: f64,
}

/// What one process did for each call.
#[derive(Debug, Serialize)]
struct Process {
    name: &'static str,
    cpu_ms: f64,
    wake_ups: f64,
}

impl Row {
    fn new(rate: u32, side: Kind, sum: &Sum) -> Self {
        let calls = sum.counted.succeeded as f64;
        let processes = sum.used.iter().map(|used| Process {
            name: used.process,
            cpu_ms: used.cpu.as_secs_f64() * 1000.0 / calls,
            wake_ups: used.wake_ups as f64 / calls,
        });
        Self {
            rate,
            side,
            processes: processes.collect(),
            syscalls_per_call: sum
                .counts
                .and_then(|counts| Some(counts.syscalls? as f64 / sum.counted_calls)),
            copies_per_call: sum.copies.sent as f64 / calls,
            frames_per_call: sum.copies.frames as f64 / calls,
            copies_late: sum.copies.late,
            calls: sum.counted.created,
            failed: sum.counted.failed,
            retransmitted: sum.counted.retransmitted,
            others_cores: sum.others.as_secs_f64() / sum.time.as_secs_f64(),
        }
    }

    /// Returns CPU and wake-ups of `name`, `None` where there is no such process.
    fn of(&self, name: &str) -> Option<[f64; 2]> {
        let process = self.processes.iter().find(|process| process.name == name)?;
        Some([process.cpu_ms, process.wake_ups])
    }

    /// Returns CPU and wake-ups of all processes but `aside`.
    fn all(&self, aside: Option<&str>) -> [f64; 2] {
        let counted = self.processes.iter().filter(|process| Some(process.name) != aside);
        counted.fold([0.0, 0.0], |sum, one| [sum[0] + one.cpu_ms, sum[1] + one.wake_ups])
    }
}

impl Surcharge {
    /// Measures and prints.
    pub(super) fn run(&self, args: &Args) -> anyhow::Result<()> {
        let mut scratch = Scratch::new()?;
        let (mut tables, mut rows, mut targets) = (Vec::new(), Vec::new(), Vec::new());
        for rate in &args.rates {
            let sums = measure(&self.kinds, *rate, args, &mut scratch)?;
            let sides = self.kinds.iter().zip(&sums);
            let of_rate: Vec<Row> = sides.map(|(kind, sum)| Row::new(*rate, *kind, sum)).collect();
            let [without, with] = &of_rate[..] else { continue };
            tables.push(self.costs(args, *rate, without, with));
            tables.push(sides_table([without, with]));
            targets.extend(self.promises([without, with]));
            rows.extend(of_rate);
        }
        tables.push(report::targets(&targets));
        let report = Report {
            how: self.how,
            seconds: args.seconds(),
            rounds: args.rounds,
            hold_ms: args.hold,
            rows,
            targets,
        };
        report::finish(args.json, &tables, &report)
    }

    fn promises(&self, [without, with]: [&Row; 2]) -> Vec<Target> {
        let ratio = with.all(self.aside)[0] / without.all(self.aside)[0];
        let name = format!("CPU per call at {}/s, with / without", with.rate);
        let mut targets = vec![Target::at_most(name, self.ratio_max, Some(ratio))];
        for row in [without, with] {
            let name = format!("failed calls at {}/s, {}", row.rate, row.side.name());
            targets.push(Target::at_most(name, 0.0, Some(row.failed as f64)));
        }
        targets
    }

    /// Where the CPU goes, process by process.
    fn costs(&self, args: &Args, rate: u32, without: &Row, with: &Row) -> Table {
        let (rounds, seconds) = (args.rounds, args.seconds());
        let title = format!(
            "{rate} calls/s through SIPp, {rounds} slices of {seconds} s each, {} ms from ACK to BYE",
            args.hold,
        );
        let heads = ["", "CPU ms/call without", "with", "ratio", "wake-ups/call without", "with"];
        let mut table = Table::new(title, &heads);
        let mut row = |name: String, before: Option<[f64; 2]>, after: Option<[f64; 2]>| {
            let cpu = |figures: Option<[f64; 2]>| figures.map(|figures| figures[0]);
            let wake_ups = |figures: Option<[f64; 2]>| figures.map(|figures| figures[1]);
            let ratio = cpu(after).zip(cpu(before)).map(|(after, before)| after / before);
            table.row(vec![
                name,
                number(cpu(before), 3),
                number(cpu(after), 3),
                number(ratio, 2),
                number(wake_ups(before), 1),
                number(wake_ups(after), 1),
            ]);
        };
        for process in &with.processes {
            let name = process.name;
            row(name.to_owned(), without.of(name), with.of(name));
        }
        let all = self.aside.map_or_else(|| "all".to_owned(), |name| format!("all but {name}"));
        row(all, Some(without.all(self.aside)), Some(with.all(self.aside)));
        table
    }
}

fn sides_table(rows: [&Row; 2]) -> Table {
    let heads = [
        "",
        "calls",
        "failed",
        "resent",
        "syscalls/call",
        "copies/call",
        "frames/call",
        "late",
        "others, cores",
    ];
    let mut table = Table::new(format!("the sides at {}/s", rows[0].rate), &heads);
    for row in rows {
        table.row(vec![
            row.side.name().to_owned(),
            row.calls.to_string(),
            row.failed.to_string(),
            row.retransmitted.to_string(),
            number(row.syscalls_per_call, 1),
            number(Some(row.copies_per_call), 1),
            number(Some(row.frames_per_call), 1),
            row.copies_late.to_string(),
            number(Some(row.others_cores), 2),
        ]);
    }
    table
}

/// What the first b2b has sent to its standby since it was started.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Copies {
    /// Records and changes.
    sent: u64,
    /// Frames with them; each is answered.
    frames: u64,
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
                return Ok(Self {
                    sent: value("rm_copies_total")?,
                    frames: value("rm_copies_frames_total")?,
                    late: value("rm_copies_late_total")?,
                });
            }
            ensure!(Instant::now() < until, "the b2b owns {slots} slots, {bare} have no copy");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Adds what was sent between two readings.
    pub(super) fn add(&mut self, before: Self, after: Self) {
        self.sent += after.sent.saturating_sub(before.sent);
        self.frames += after.frames.saturating_sub(before.frames);
        self.late += after.late.saturating_sub(before.late);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn row(side: Kind, processes: &[(&'static str, f64)]) -> Row {
        let process = |&(name, cpu_ms)| Process { name, cpu_ms, wake_ups: 1.0 };
        Row {
            rate: 200,
            side,
            processes: processes.iter().map(process).collect(),
            syscalls_per_call: None,
            copies_per_call: 0.0,
            frames_per_call: 0.0,
            copies_late: 0,
            calls: 10,
            failed: 0,
            retransmitted: 0,
            others_cores: 0.0,
        }
    }

    #[test]
    fn the_standby_counts_and_the_mediagate_does_not() {
        let without = row(Kind::Three, &[("gate", 1.0), ("b2b", 1.0), ("mediagate", 9.0)]);
        let with = row(
            Kind::Standby,
            &[("gate", 1.0), ("b2b", 1.25), ("standby", 0.25), ("mediagate", 8.0)],
        );

        let targets = STANDBY.promises([&without, &with]);

        let name = "CPU per call at 200/s, with / without";
        let expected = Target::at_most(name, 1.15, Some(1.25));
        assert_eq!(format!("{:?}", targets[0]), format!("{expected:?}"));
    }
}
