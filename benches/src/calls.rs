//! `calls`: whole calls through `rm` and its gateway, and through Kamailio and rtpengine.

mod surcharge;

use std::net::SocketAddrV4;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::Serialize;

use self::surcharge::Copies;
use crate::child::Child;
use crate::counters::{Counters, Counts};
use crate::forward::loopback;
use crate::ours::{self, Layout};
use crate::overload;
use crate::peers::{self, Scratch};
use crate::procfs;
use crate::report::{self, Table, Target, number};
use crate::sipp::{self, Caller, Counted, Load, Manner};

pub(crate) const PROXY: SocketAddrV4 = SocketAddrV4::new(loopback(2, 1), 5060);
pub(crate) const CALLER: SocketAddrV4 = SocketAddrV4::new(loopback(2, 2), 5060);
pub(crate) const CALLEE: SocketAddrV4 = SocketAddrV4::new(loopback(2, 3), 5060);

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Calls begun in a second; each rate is a run of its own.
    #[arg(long, value_delimiter = ',', default_values_t = [200, 1000])]
    rates: Vec<u32>,
    /// Seconds of each slice [default: 10], or of the overload [default: 60].
    #[arg(long)]
    seconds: Option<u32>,
    /// Slices of each side at each rate.
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Milliseconds from ACK to BYE.
    #[arg(long, default_value_t = 1000)]
    hold: u64,
    /// Kamailio's children on its one socket.
    #[arg(long, default_value_t = 4)]
    children: usize,
    /// Instead: three times the rate that our side carries on one core, for a minute.
    #[arg(long)]
    overload: bool,
    /// Our roles' processes under `--overload`.
    #[arg(long, value_enum, default_value_t = Layout::One)]
    layout: Layout,
    /// Instead: our layout of three without and with a second b2b that holds copies of all calls.
    #[arg(long, conflicts_with = "overload")]
    standby: bool,
    /// Instead: our layout of three, with a store, without and with limits on every call.
    #[arg(long, conflicts_with_all = ["overload", "standby"])]
    limits: bool,
    /// Prints one JSON object on standard output, the table on standard error.
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Of each slice.
    fn seconds(&self) -> u32 {
        self.seconds.unwrap_or(10)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Peers,
    One,
    Three,
    Standby,
    Stored,
    Limits,
}

const KINDS: [Kind; 3] = [Kind::Peers, Kind::One, Kind::Three];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Peers => "Kamailio + rtpengine",
            Self::One => "rm + mediagate",
            Self::Three => "gate, b2b + controller, mediagate",
            Self::Standby => "the same and a standby b2b",
            Self::Stored => "gate, b2b with a store + controller, mediagate",
            Self::Limits => "the same with limits on every call",
        }
    }
}

/// The processes that carry the calls.
#[derive(Debug)]
struct Side {
    /// The one that forwards audio stands last.
    processes: Vec<Child>,
}

impl Side {
    fn start(kind: Kind, args: &Args, folder: &Path) -> anyhow::Result<Self> {
        match kind {
            Kind::Peers => {
                let (relay, _) = peers::rtpengine(folder, 2, None)?;
                let proxy = peers::kamailio(folder, PROXY, CALLEE, args.children, None)?;
                Ok(Self { processes: vec![proxy, relay] })
            }
            Kind::One => Self::ours(Layout::One, folder),
            Kind::Three => Self::ours(Layout::Three, folder),
            Kind::Standby => Self::ours(Layout::Standby, folder),
            Kind::Stored => Self::ours(Layout::Stored, folder),
            Kind::Limits => Self::ours(Layout::Limits, folder),
        }
    }

    fn ours(layout: Layout, folder: &Path) -> anyhow::Result<Self> {
        Ok(Self { processes: ours::system(layout, folder, CALLEE, None)? })
    }

    fn check(&mut self) -> anyhow::Result<()> {
        self.processes.iter_mut().try_for_each(Child::check)
    }

    fn families(&self) -> Vec<Vec<u32>> {
        self.processes.iter().map(Child::family).collect()
    }
}

/// The sum of a side's slices at one rate.
#[derive(Debug, Default)]
struct Sum {
    counted: Counted,
    /// Of each process.
    used: Vec<Used>,
    /// Of everybody else on the machine but SIPp.
    others: Duration,
    time: Duration,
    counts: Option<Counts>,
    counted_calls: f64,
    memory_per_call: f64,
    relay_memory_per_call: f64,
    copies: Copies,
}

/// What one process used.
#[derive(Clone, Copy, Debug)]
struct Used {
    process: &'static str,
    cpu: Duration,
    wake_ups: u64,
}

#[derive(Debug, Serialize)]
struct Row {
    side: Kind,
    rate: u32,
    cpu_ms_per_call: f64,
    ratio_to_peers: Option<f64>,
    cpu_ms_per_call_of: Vec<(&'static str, f64)>,
    syscalls_per_call: Option<f64>,
    wake_ups_per_call: f64,
    allocations_per_call: Option<f64>,
    memory_per_standing_call_bytes: f64,
    relay_memory_per_standing_call_bytes: f64,
    others_cores: f64,
    #[serde(flatten)]
    counted: Counted,
}

#[derive(Debug, Serialize)]
struct Report<R> {
    how: &'static str,
    seconds: u32,
    rounds: usize,
    hold_ms: u64,
    rows: Vec<R>,
    targets: Vec<Target>,
}

/// Measures and prints.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    crate::raise_file_limit()?;
    if args.overload {
        let hold = Duration::from_millis(args.hold);
        return overload::run(args.layout, hold, args.seconds.unwrap_or(60), args.json);
    }
    if args.standby {
        return surcharge::STANDBY.run(args);
    }
    if args.limits {
        return surcharge::LIMITS.run(args);
    }
    let mut scratch = Scratch::new()?;
    let mut rows = Vec::new();
    for rate in &args.rates {
        let sums = measure(&KINDS, *rate, args, &mut scratch)?;
        rows.extend(summary(*rate, &sums));
    }
    let report = Report {
        how: "calls",
        seconds: args.seconds(),
        rounds: args.rounds,
        hold_ms: args.hold,
        targets: promises(&rows),
        rows,
    };
    report::finish(args.json, &tables(args, &report), &report)
}

/// Measures each of `kinds` in turn, as often as there are rounds.
fn measure(
    kinds: &[Kind],
    rate: u32,
    args: &Args,
    scratch: &mut Scratch,
) -> anyhow::Result<Vec<Sum>> {
    let counters = Counters::new();
    let mut sums: Vec<Sum> = kinds.iter().map(|_| Sum::default()).collect();
    for round in 0..args.rounds {
        for index in crate::turns(round, kinds.len()) {
            let kind = kinds[index];
            let name = kind.name();
            report::progress(format_args!("{rate} calls/s, round {}: {name}", round + 1));
            let slice = slice(kind, rate, args, &counters, scratch, &mut sums[index]);
            slice.with_context(|| {
                scratch.keep();
                format!("{name}, logs in {}", scratch.path().display())
            })?;
        }
    }
    Ok(sums)
}

/// Puts one slice of load on `kind` and adds what it cost to `sum`.
fn slice(
    kind: Kind,
    rate: u32,
    args: &Args,
    counters: &Counters,
    scratch: &Scratch,
    sum: &mut Sum,
) -> anyhow::Result<()> {
    let folder = scratch.path();
    let hold = Duration::from_millis(args.hold);
    let mut side = Side::start(kind, args, folder)?;
    if kind == Kind::Limits {
        surcharge::wait_for_shares()?;
    }
    let callee = sipp::callee(folder, CALLEE, None)?;
    // The first calls bring in code and memory that all later ones share.
    let few = Load { rate: 20, calls: 20, hold: Duration::from_millis(100) };
    let warm = Caller::start(folder, CALLER, PROXY, &few, Manner::Strict, None)?.finish()?;
    side.check()?;
    anyhow::ensure!(warm.failed == 0, "{} of the first {} calls failed", warm.failed, few.calls);

    let copies = (kind == Kind::Standby).then(Copies::of_all).transpose()?;

    let load = Load { rate, calls: rate * args.seconds(), hold };
    let families = side.families();
    let pids: Vec<u32> = families.concat();
    let relay = families.last().map_or(&[][..], Vec::as_slice);
    let before = (procfs::memory(&pids), procfs::memory(relay));
    let (start, busy, phones) = (Instant::now(), procfs::busy(), procfs::cpu(&callee.family()));
    let used_so_far = |family: &Vec<u32>| (procfs::cpu(family), procfs::wake_ups(family));
    let so_far: Vec<(Duration, u64)> = families.iter().map(used_so_far).collect();
    let mut caller = Caller::start(folder, CALLER, PROXY, &load, Manner::Strict, None)?;
    let (mut most, mut most_relay, mut calling) = (before.0, before.1, Duration::ZERO);
    while caller.runs() {
        calling = calling.max(procfs::cpu(&caller.family()));
        most = most.max(procfs::memory(&pids));
        most_relay = most_relay.max(procfs::memory(relay));
        std::thread::sleep(Duration::from_millis(500));
    }
    let counted = caller.finish()?;
    sum.counted.add(counted);
    if counted.failed != 0 {
        let kept = scratch.keep_copy()?;
        report::progress(format_args!("{} failed, logs in {}", counted.failed, kept.display()));
    }
    sum.time += start.elapsed();
    let phones = procfs::cpu(&callee.family()).saturating_sub(phones) + calling;
    let mut ours = phones;
    for (index, (process, family)) in side.processes.iter().zip(&families).enumerate() {
        let (cpu, wake_ups) = used_so_far(family);
        let cpu = cpu.saturating_sub(so_far[index].0);
        let wake_ups = wake_ups.saturating_sub(so_far[index].1);
        ours += cpu;
        match sum.used.get_mut(index) {
            Some(used) => {
                used.cpu += cpu;
                used.wake_ups += wake_ups;
            }
            None => sum.used.push(Used { process: process.name(), cpu, wake_ups }),
        }
    }
    sum.others += procfs::busy().saturating_sub(busy + ours);
    let slices = load.standing() * args.rounds as f64;
    sum.memory_per_call += most.saturating_sub(before.0) as f64 / slices;
    sum.relay_memory_per_call += most_relay.saturating_sub(before.1) as f64 / slices;
    side.check()?;
    if let Some(before) = copies {
        sum.copies.add(before, Copies::of_all()?);
    }

    if counters.any() && sum.counts.is_none() {
        let time = Duration::from_secs(2);
        sum.counts = Some(count(counters, time, &pids, &load, folder)?);
        sum.counted_calls = time.as_secs_f64() * f64::from(rate);
    }
    Ok(())
}

/// Counts for `time` what `pids` do once `load` stands.
fn count(
    counters: &Counters,
    time: Duration,
    pids: &[u32],
    load: &Load,
    folder: &Path,
) -> anyhow::Result<Counts> {
    let seconds = 5 + u32::try_from(load.hold.as_secs())?;
    let load = Load { calls: load.rate * seconds, ..*load };
    let caller = Caller::start(folder, CALLER, PROXY, &load, Manner::Strict, None)?;
    std::thread::sleep(load.hold + Duration::from_secs(1));
    let counts = counters.count(pids, time, folder)?;
    caller.finish()?;
    Ok(counts)
}

fn summary(rate: u32, sums: &[Sum]) -> Vec<Row> {
    let cost = |sum: &Sum| {
        let cpu: Duration = sum.used.iter().map(|used| used.cpu).sum();
        cpu.as_secs_f64() * 1000.0 / sum.counted.succeeded as f64
    };
    let peers = KINDS.iter().position(|kind| *kind == Kind::Peers).map(|index| cost(&sums[index]));
    KINDS
        .iter()
        .zip(sums)
        .map(|(kind, sum)| {
            let calls = sum.counted.succeeded as f64;
            let counts = sum.counts.unwrap_or_default();
            let per_call = |count: Option<u64>| Some(count? as f64 / sum.counted_calls);
            let of = |used: &Used| (used.process, used.cpu.as_secs_f64() * 1000.0 / calls);
            let wake_ups: u64 = sum.used.iter().map(|used| used.wake_ups).sum();
            Row {
                side: *kind,
                rate,
                cpu_ms_per_call: cost(sum),
                ratio_to_peers: peers.map(|peers| cost(sum) / peers),
                cpu_ms_per_call_of: sum.used.iter().map(of).collect(),
                syscalls_per_call: per_call(counts.syscalls),
                wake_ups_per_call: wake_ups as f64 / calls,
                allocations_per_call: per_call(counts.allocations),
                memory_per_standing_call_bytes: sum.memory_per_call,
                relay_memory_per_standing_call_bytes: sum.relay_memory_per_call,
                others_cores: sum.others.as_secs_f64() / sum.time.as_secs_f64(),
                counted: sum.counted,
            }
        })
        .collect()
}

fn promises(rows: &[Row]) -> Vec<Target> {
    let mut targets = Vec::new();
    for row in rows {
        let limit = match row.side {
            Kind::Peers | Kind::Standby | Kind::Stored | Kind::Limits => continue,
            Kind::One => 0.7,
            Kind::Three if row.rate < 1000 => 1.5,
            Kind::Three => 1.0,
        };
        let (side, rate) = (row.side.name(), row.rate);
        let name = format!("CPU per call at {rate}/s, {side} / peers");
        targets.push(Target::at_most(name, limit, row.ratio_to_peers));
        let name = format!("mediagate's memory at {rate}/s, {side}, kB per call");
        let memory = row.relay_memory_per_standing_call_bytes / 1000.0;
        targets.push(Target::at_most(name, 8.0, Some(memory)));
        let name = format!("failed calls at {rate}/s, {side}");
        targets.push(Target::at_most(name, 0.0, Some(row.counted.failed as f64)));
    }
    targets
}

fn tables(args: &Args, report: &Report<Row>) -> Vec<Table> {
    let mut tables = Vec::new();
    for rate in &args.rates {
        let title = format!(
            "{rate} calls/s through SIPp, {} slices of {} s each, {} ms from ACK to BYE",
            args.rounds, report.seconds, args.hold,
        );
        let heads = [
            "",
            "CPU ms/call",
            "/peers",
            "of which",
            "syscalls/call",
            "wake-ups/call",
            "allocs/call",
            "kB/call",
            "relay kB/call",
            "calls",
            "failed",
            "resent",
            "others, cores",
        ];
        let mut table = Table::new(title, &heads);
        for row in report.rows.iter().filter(|row| row.rate == *rate) {
            let of: Vec<String> =
                row.cpu_ms_per_call_of.iter().map(|(name, ms)| format!("{name} {ms:.2}")).collect();
            table.row(vec![
                row.side.name().to_owned(),
                number(Some(row.cpu_ms_per_call), 3),
                number(row.ratio_to_peers, 2),
                of.join(", "),
                number(row.syscalls_per_call, 1),
                number(Some(row.wake_ups_per_call), 1),
                number(row.allocations_per_call, 1),
                number(Some(row.memory_per_standing_call_bytes / 1000.0), 1),
                number(Some(row.relay_memory_per_standing_call_bytes / 1000.0), 1),
                row.counted.created.to_string(),
                row.counted.failed.to_string(),
                row.counted.retransmitted.to_string(),
                number(Some(row.others_cores), 2),
            ]);
        }
        tables.push(table);
    }
    if !report.targets.is_empty() {
        tables.push(report::targets(&report.targets));
    }
    tables
}
