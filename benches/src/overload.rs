//! `calls --overload`: three times the rate that our side carries.
//!
//! All our processes share one core, SIPp has the other. First the carried
//! rate is found, then three times as much is offered for a minute, then a
//! moderate load shows whether all is well again.

use std::net::SocketAddrV4;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::Serialize;

use crate::calls::{CALLEE, CALLER, PROXY};
use crate::child::Child;
use crate::forward::loopback;
use crate::ours::{self, Layout};
use crate::peers::Scratch;
use crate::procfs;
use crate::report::{self, Table, Target, number};
use crate::sipp::{self, Caller, Counted, Load, Manner};

/// A second caller, for the time after.
const LATER: SocketAddrV4 = SocketAddrV4::new(loopback(2, 6), 5060);
const SYSTEM_CORE: usize = 0;
const PHONES_CORE: usize = 1;
/// The first rate tried; each further one is a quarter higher.
const FIRST_RATE: u32 = 300;
const STEP_TIME: u32 = 5;
const FACTOR: u32 = 3;
const CALM: Duration = Duration::from_secs(5);
/// What a log says when a link ended or a node took over.
const MISHAPS: [&str; 3] = ["link down", "takeover", "gateway dead"];

#[derive(Debug, Serialize)]
struct Report {
    how: &'static str,
    layout: Layout,
    seconds: u32,
    hold_ms: u128,
    carried_rate: u32,
    carried_calls_per_second: f64,
    offered_rate: f64,
    offered: Counted,
    completed_calls_per_second: f64,
    refused: u64,
    byes: u64,
    byes_answered: u64,
    memory_fourth_fifth_bytes: u64,
    memory_last_fifth_bytes: u64,
    mishaps: usize,
    after: Counted,
    targets: Vec<Target>,
}

/// Measures and prints.
pub(crate) fn run(layout: Layout, hold: Duration, seconds: u32, json: bool) -> anyhow::Result<()> {
    let mut scratch = Scratch::new()?;
    let report = measure(layout, hold, seconds, scratch.path()).with_context(|| {
        scratch.keep();
        format!("logs in {}", scratch.path().display())
    })?;
    report::finish(json, &tables(&report), &report)
}

fn measure(layout: Layout, hold: Duration, time: u32, folder: &Path) -> anyhow::Result<Report> {
    let mut processes = ours::system(layout, folder, CALLEE, Some(SYSTEM_CORE))?;
    let _callee = sipp::callee(folder, CALLEE, Some(PHONES_CORE))?;
    let (carried_rate, carried) = carried(hold, folder)?;
    processes.iter_mut().try_for_each(Child::check)?;

    let pids: Vec<u32> = processes.iter().flat_map(Child::family).collect();
    let mishaps_before = mishaps(&processes);
    let rate = FACTOR * carried_rate;
    report::progress(format_args!("{rate} calls/s for {time} s"));
    let load = Load { rate, calls: rate * time, hold };
    let start = Instant::now();
    let caller = Caller::start(folder, CALLER, PROXY, &load, Manner::Impatient, Some(PHONES_CORE))?;
    let mut memory = [0; 2];
    for second in 1..=time {
        std::thread::sleep(Duration::from_secs(second.into()).saturating_sub(start.elapsed()));
        // Transactions are remembered for 32 s: until then memory has to grow.
        if let Some(fifth) = [3, 4].iter().position(|fifth| second * 5 / (time + 1) == *fifth) {
            memory[fifth] = memory[fifth].max(procfs::memory(&pids));
        }
    }
    let during = caller.so_far();
    let seconds = start.elapsed().as_secs_f64();

    std::thread::sleep(CALM);
    report::progress(format_args!("{} calls/s after {CALM:?}", carried_rate / 2));
    let moderate = Load { rate: carried_rate / 2, calls: carried_rate / 2 * 10, hold };
    let later = Caller::start(folder, LATER, PROXY, &moderate, Manner::Strict, Some(PHONES_CORE))?;
    let after = later.finish()?;
    let all = caller.finish()?;
    processes.iter_mut().try_for_each(Child::check)?;

    let mut report = Report {
        how: "calls --overload",
        layout,
        seconds: time,
        hold_ms: hold.as_millis(),
        carried_rate,
        carried_calls_per_second: carried,
        offered_rate: during.created as f64 / seconds,
        offered: all,
        completed_calls_per_second: during.byes_answered as f64 / seconds,
        refused: all.refused,
        byes: all.byes,
        byes_answered: all.byes_answered,
        memory_fourth_fifth_bytes: memory[0],
        memory_last_fifth_bytes: memory[1],
        mishaps: mishaps(&processes).saturating_sub(mishaps_before),
        after,
        targets: Vec::new(),
    };
    report.targets = promises(&report);
    Ok(report)
}

/// Finds the highest rate of which no call fails; returns also the calls completed in a second.
fn carried(hold: Duration, folder: &Path) -> anyhow::Result<(u32, f64)> {
    let mut best = None;
    let mut rate = FIRST_RATE;
    loop {
        let load = Load { rate, calls: rate * STEP_TIME, hold };
        let start = Instant::now();
        let caller =
            Caller::start(folder, CALLER, PROXY, &load, Manner::Impatient, Some(PHONES_CORE))?;
        let counted = caller.finish()?;
        let late = start.elapsed().saturating_sub(load.time() + hold);
        let fine = counted.byes_answered == u64::from(load.calls) && late < Duration::from_secs(1);
        report::progress(format_args!(
            "{rate} calls/s: {} of {} completed, {} refused, {} ms late",
            counted.byes_answered,
            load.calls,
            counted.refused,
            late.as_millis(),
        ));
        if !fine {
            break;
        }
        best = Some((rate, counted.byes_answered as f64 / load.time().as_secs_f64()));
        rate = rate * 5 / 4;
        std::thread::sleep(Duration::from_secs(3));
    }
    // What the last, too high rate left behind.
    std::thread::sleep(Duration::from_secs(5));
    best.with_context(|| format!("not even {FIRST_RATE} calls/s are carried"))
}

fn mishaps(processes: &[Child]) -> usize {
    processes
        .iter()
        .filter_map(|process| std::fs::read_to_string(process.log()).ok())
        .map(|log| {
            log.lines().filter(|line| MISHAPS.iter().any(|mishap| line.contains(mishap))).count()
        })
        .sum()
}

fn promises(report: &Report) -> Vec<Target> {
    let share = report.completed_calls_per_second / report.carried_calls_per_second;
    let unanswered = report.byes - report.byes_answered;
    let growth = report.memory_last_fifth_bytes as f64 / report.memory_fourth_fifth_bytes as f64;
    vec![
        Target::at_least("calls completed per second, share of the carried rate", 0.8, Some(share)),
        Target::at_most("in-dialog requests without a final answer", 0.0, Some(unanswered as f64)),
        Target::at_most("links closed and takeovers", 0.0, Some(report.mishaps as f64)),
        Target::at_most("memory, last fifth of the time / the fifth before", 1.1, Some(growth)),
        Target::at_most("failed calls 5 s after", 0.0, Some(report.after.failed as f64)),
    ]
}

fn tables(report: &Report) -> [Table; 2] {
    let title = format!(
        "overload: all of ours on core {SYSTEM_CORE}, SIPp on core {PHONES_CORE}, \
         {} ms from ACK to BYE",
        report.hold_ms,
    );
    let mut table = Table::new(title, &["", "calls/s", "calls", "refused", "failed"]);
    table.row(vec![
        "carried, none refused or failed".to_owned(),
        number(Some(report.carried_calls_per_second), 0),
    ]);
    table.row(vec![
        format!("offered for {} s", report.seconds),
        number(Some(report.offered_rate), 0),
        report.offered.created.to_string(),
        report.refused.to_string(),
        report.offered.failed.to_string(),
    ]);
    table.row(vec![
        "completed in that time".to_owned(),
        number(Some(report.completed_calls_per_second), 0),
    ]);
    table.row(vec![
        format!("from {} s after", CALM.as_secs()),
        (report.carried_rate / 2).to_string(),
        report.after.created.to_string(),
        "0".to_owned(),
        report.after.failed.to_string(),
    ]);
    [table, report::targets(&report.targets)]
}
