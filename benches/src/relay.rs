//! `relay`: calls of G.711 audio through our gateway, rtpengine and a bare forwarder.

use std::net::{SocketAddrV4, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::Serialize;

use crate::audio::{Audio, PACKET_LEN, PHASES, Phone, RATE, Tally};
use crate::child::Child;
use crate::counters::{Counters, Counts};
use crate::forward::{SOCKETS, at, loopback};
use crate::ours;
use crate::peers::{self, Scratch};
use crate::procfs;
use crate::report::{self, Table, Target, number};

const RELAY: SocketAddrV4 = SocketAddrV4::new(loopback(1, 1), 10000);
const LINK: SocketAddrV4 = SocketAddrV4::new(loopback(1, 1), 7131);
const CALLER: SocketAddrV4 = SocketAddrV4::new(loopback(1, 2), 20000);
const CALLEE: SocketAddrV4 = SocketAddrV4::new(loopback(1, 3), 20000);

/// A slice is measured again, so many times in all, while others use more than
/// so much of a core or the phones send more than so many packets late.
const ATTEMPTS: usize = 3;
const OTHERS_PERCENT_MAX: f64 = 10.0;
const LATE_PERCENT_MAX: f64 = 1.0;

const WARM: usize = 0;
const MEASURED: usize = 1;
const COUNTED: usize = 2;
const _: () = assert!(COUNTED < PHASES, "every phase has a tally");

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Two-way calls at once.
    #[arg(long, default_value_t = 500)]
    calls: u16,
    /// Seconds of each slice.
    #[arg(long, default_value_t = 6.0)]
    seconds: f64,
    /// Slices of each relay.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Lets relays and generator run on any core.
    #[arg(long)]
    unpinned: bool,
    /// Prints one JSON object on standard output, the table on standard error.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Mediagate,
    Rtpengine,
    Forwarder,
    ConnectedForwarder,
}

const KINDS: [Kind; 4] =
    [Kind::Mediagate, Kind::Rtpengine, Kind::Forwarder, Kind::ConnectedForwarder];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Mediagate => "mediagate",
            Self::Rtpengine => "rtpengine",
            Self::Forwarder => "bare forwarder",
            Self::ConnectedForwarder => "bare forwarder, connected",
        }
    }
}

/// The sum of a relay's slices.
#[derive(Debug, Default)]
struct Sum {
    tally: Tally,
    cpu: Duration,
    wake_ups: u64,
    counts: Option<Counts>,
    counted_packets: f64,
    /// Of all slices.
    memory: u64,
    /// Slices that count although the machine was not quiet.
    disturbed: usize,
}

#[derive(Debug, Serialize)]
struct Row {
    relay: Kind,
    packets: u64,
    cpu_seconds_per_million_packets: f64,
    ratio_to_rtpengine: Option<f64>,
    ratio_to_forwarder: Option<f64>,
    syscalls_per_packet: Option<f64>,
    wake_ups_per_packet: f64,
    allocations_per_packet: Option<f64>,
    loss_percent: f64,
    latency_p50_ms: f64,
    latency_p99_ms: f64,
    memory_per_call_bytes: f64,
    generator_late_percent: f64,
    disturbed_slices: usize,
}

#[derive(Debug, Serialize)]
struct Report {
    how: &'static str,
    calls: u16,
    packet_len: usize,
    seconds: f64,
    rounds: usize,
    pinned: bool,
    relays: Vec<Row>,
    targets: Vec<Target>,
}

/// Measures and prints.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    crate::raise_file_limit()?;
    let mut scratch = Scratch::new()?;
    let counters = Counters::new();
    let mut sums: Vec<Sum> = KINDS.iter().map(|_| Sum::default()).collect();
    for round in 0..args.rounds {
        for index in crate::turns(round, KINDS.len()) {
            let kind = KINDS[index];
            report::progress(format_args!("round {}: {}", round + 1, kind.name()));
            for attempt in 1..=ATTEMPTS {
                let slice = slice(kind, args, &counters, scratch.path(), &mut sums[index]);
                let slice = slice.with_context(|| {
                    scratch.keep();
                    format!("{}, logs in {}", kind.name(), scratch.path().display())
                })?;
                let Some(why) = slice.disturbed(args) else {
                    sums[index].add(&slice);
                    break;
                };
                report::progress(format_args!("  attempt {attempt} is disturbed: {why}"));
                if attempt == ATTEMPTS {
                    sums[index].add(&slice);
                    sums[index].disturbed += 1;
                }
            }
        }
    }
    let report = summary(args, &sums);
    report::finish(args.json, &tables(&report), &report)
}

fn slice(
    kind: Kind,
    args: &Args,
    counters: &Counters,
    folder: &Path,
    sum: &mut Sum,
) -> anyhow::Result<Slice> {
    let mut relay = Relay::start(kind, args, folder)?;
    let phones = &relay.phones;
    let pids = relay.child.family();
    let audio = Audio::start(phones, (!args.unpinned).then_some(1))?;
    audio.phase(WARM);
    std::thread::sleep(Duration::from_secs(1));

    let own = [std::process::id()];
    let before = (procfs::cpu(&pids), procfs::cpu(&own), procfs::busy(), procfs::wake_ups(&pids));
    audio.phase(MEASURED);
    std::thread::sleep(Duration::from_secs_f64(args.seconds));
    audio.phase(COUNTED);
    let cpu = procfs::cpu(&pids).saturating_sub(before.0);
    let wake_ups = procfs::wake_ups(&pids).saturating_sub(before.3);
    let others = procfs::busy()
        .saturating_sub(before.2 + cpu)
        .saturating_sub(procfs::cpu(&own).saturating_sub(before.1));

    if counters.any() && sum.counts.is_none() {
        let time = Duration::from_secs(2);
        sum.counts = Some(counters.count(&pids, time, folder)?);
        sum.counted_packets = time.as_secs_f64() * RATE as f64 * phones.len() as f64;
    }
    let memory = procfs::memory(&pids).saturating_sub(relay.memory_before);
    let mut tallies = audio.stop()?;
    relay.child.check()?;
    Ok(Slice { tally: tallies.swap_remove(MEASURED), cpu, wake_ups, memory, others })
}

/// What one slice gave.
struct Slice {
    tally: Tally,
    cpu: Duration,
    wake_ups: u64,
    memory: u64,
    /// Processor time of everybody else on the machine.
    others: Duration,
}

impl Slice {
    /// Returns why it should not count, if it should not.
    fn disturbed(&self, args: &Args) -> Option<String> {
        let others = 100.0 * self.others.as_secs_f64() / args.seconds;
        let late = 100.0 * self.tally.late as f64 / self.tally.sent.max(1) as f64;
        (OTHERS_PERCENT_MAX < others || LATE_PERCENT_MAX < late).then(|| {
            format!("others used {others:.0} % of a core, {late:.1} % of the packets went out late")
        })
    }
}

impl Sum {
    fn add(&mut self, slice: &Slice) {
        self.tally.add(&slice.tally);
        self.cpu += slice.cpu;
        self.wake_ups += slice.wake_ups;
        self.memory += slice.memory;
    }
}

/// A relay with its calls.
struct Relay {
    child: Child,
    phones: Vec<Phone>,
    /// What it had before the calls.
    memory_before: u64,
    /// Holds the calls open, where that takes a process.
    _dealer: Option<Child>,
}

impl Relay {
    fn start(kind: Kind, args: &Args, folder: &Path) -> anyhow::Result<Self> {
        let core = (!args.unpinned).then_some(0);
        match kind {
            Kind::Mediagate => {
                let mut child = ours::mediagate(folder, LINK, core)?;
                wait_for_link(&mut child)?;
                let memory_before = procfs::memory(&child.family());
                let (dealer, ports) = dealer(args.calls, folder)?;
                let mut ports = ports.into_iter();
                let phones =
                    phones(args.calls, |_, _, _| ports.next().context("a call without ports"))?;
                Ok(Self { child, phones, memory_before, _dealer: Some(dealer) })
            }
            Kind::Rtpengine => {
                let threads = if args.unpinned { 2 } else { 1 };
                let (child, mut client) = peers::rtpengine(folder, threads, core)?;
                let memory_before = procfs::memory(&child.family());
                let phones = phones(args.calls, |call, caller, callee| {
                    client.call(usize::from(call), caller, callee)
                })?;
                Ok(Self { child, phones, memory_before, _dealer: None })
            }
            Kind::Forwarder | Kind::ConnectedForwarder => {
                let connected = kind == Kind::ConnectedForwarder;
                let child = forwarder(args.calls, connected, folder, core)?;
                let phones = phones(args.calls, |call, _, _| {
                    Ok((at(RELAY, call, 0).port(), at(RELAY, call, 2).port()))
                })?;
                Ok(Self { child, phones, memory_before: 0, _dealer: None })
            }
        }
    }
}

/// Waits until the gateway listens for links.
fn wait_for_link(gateway: &mut Child) -> anyhow::Result<()> {
    let until = Instant::now() + Duration::from_secs(5);
    while TcpStream::connect(LINK).is_err() {
        gateway.check()?;
        anyhow::ensure!(Instant::now() < until, "the gateway does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Opens calls at the gateway; returns its ports of each.
fn dealer(calls: u16, folder: &Path) -> anyhow::Result<(Child, Vec<(u16, u16)>)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("deal").arg("--link").arg(LINK.to_string());
    command.arg("--caller").arg(CALLER.to_string()).arg("--callee").arg(CALLEE.to_string());
    command.arg("--calls").arg(calls.to_string());
    let child = start_and_wait("dealer", &mut command, folder, None)?;
    let text = std::fs::read_to_string(child.log())?;
    let ports = text.lines().filter_map(|line| {
        let (caller, callee) = line.split_once(' ')?;
        Some((caller.parse().ok()?, callee.parse().ok()?))
    });
    let ports = ports.collect();
    Ok((child, ports))
}

fn phones(
    calls: u16,
    mut set_up: impl FnMut(u16, SocketAddrV4, SocketAddrV4) -> anyhow::Result<(u16, u16)>,
) -> anyhow::Result<Vec<Phone>> {
    let mut phones = Vec::new();
    for call in 0..calls {
        let (caller, callee) = (at(CALLER, call, 0), at(CALLEE, call, 0));
        let (to_caller, to_callee) = set_up(call, caller, callee)?;
        let relay = |port| SocketAddrV4::new(*RELAY.ip(), port);
        phones.push(Phone { own: caller, relay: relay(to_caller) });
        phones.push(Phone { own: callee, relay: relay(to_callee) });
    }
    Ok(phones)
}

fn forwarder(
    calls: u16,
    connected: bool,
    folder: &Path,
    core: Option<usize>,
) -> anyhow::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("forward").arg("--listen").arg(RELAY.to_string());
    command.arg("--caller").arg(CALLER.to_string()).arg("--callee").arg(CALLEE.to_string());
    command.arg("--calls").arg(calls.to_string());
    if connected {
        command.arg("--connected");
    }
    start_and_wait("forwarder", &mut command, folder, core)
}

/// Starts a process that says `ready` on its standard output.
fn start_and_wait(
    name: &'static str,
    command: &mut Command,
    folder: &Path,
    core: Option<usize>,
) -> anyhow::Result<Child> {
    let mut child = Child::start(name, command, folder, core)?;
    let until = Instant::now() + Duration::from_secs(10);
    while !std::fs::read_to_string(child.log())?.ends_with("ready\n") {
        child.check()?;
        anyhow::ensure!(Instant::now() < until, "{name} is not ready");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(child)
}

fn summary(args: &Args, sums: &[Sum]) -> Report {
    let cost = |kind: Kind| {
        let index = KINDS.iter().position(|other| *other == kind)?;
        let sum = &sums[index];
        Some(sum.cpu.as_secs_f64() / (sum.tally.received as f64 / 1e6))
    };
    let rows: Vec<Row> = KINDS
        .iter()
        .zip(sums)
        .map(|(kind, sum)| {
            let packets = sum.tally.received as f64;
            let own = sum.cpu.as_secs_f64() / (packets / 1e6);
            let per_packet = |count: Option<u64>| Some(count? as f64 / sum.counted_packets);
            let counts = sum.counts.unwrap_or_default();
            Row {
                relay: *kind,
                packets: sum.tally.received,
                cpu_seconds_per_million_packets: own,
                ratio_to_rtpengine: cost(Kind::Rtpengine).map(|cost| own / cost),
                ratio_to_forwarder: cost(Kind::Forwarder).map(|cost| own / cost),
                syscalls_per_packet: per_packet(counts.syscalls),
                wake_ups_per_packet: sum.wake_ups as f64 / packets,
                allocations_per_packet: per_packet(counts.allocations),
                loss_percent: sum.tally.loss_percent(),
                latency_p50_ms: sum.tally.latency(0.5),
                latency_p99_ms: sum.tally.latency(0.99),
                memory_per_call_bytes: sum.memory as f64
                    / f64::from(args.calls)
                    / args.rounds as f64,
                generator_late_percent: 100.0 * sum.tally.late as f64 / sum.tally.sent as f64,
                disturbed_slices: sum.disturbed,
            }
        })
        .collect();
    Report {
        how: "relay",
        calls: args.calls,
        packet_len: PACKET_LEN,
        seconds: args.seconds,
        rounds: args.rounds,
        pinned: !args.unpinned,
        targets: promises(&rows),
        relays: rows,
    }
}

fn promises(rows: &[Row]) -> Vec<Target> {
    // What was measured on a machine with other work proves nothing.
    let quiet = |row: &&Row| row.disturbed_slices == 0;
    let of = |kind: Kind| rows.iter().find(|row| row.relay == kind).filter(quiet);
    let ours = of(Kind::Mediagate);
    vec![
        Target::at_most(
            "CPU per packet, mediagate / rtpengine",
            0.6,
            of(Kind::Rtpengine).and(ours).and_then(|row| row.ratio_to_rtpengine),
        ),
        Target::at_most(
            "CPU per packet, mediagate / bare forwarder",
            1.5,
            of(Kind::Forwarder).and(ours).and_then(|row| row.ratio_to_forwarder),
        ),
        Target::at_most(
            "mediagate's memory, kB per call",
            8.0,
            rows.iter()
                .find(|row| row.relay == Kind::Mediagate)
                .map(|row| row.memory_per_call_bytes / 1000.0),
        ),
    ]
}

fn tables(report: &Report) -> [Table; 2] {
    let title = format!(
        "{} two-way calls of G.711, {} bytes each 20 ms ({} packets/s, {} sockets in the relay), \
         {} slices of {} s each{}",
        report.calls,
        report.packet_len,
        u64::from(report.calls) * 2 * RATE,
        report.calls * SOCKETS,
        report.rounds,
        report.seconds,
        if report.pinned { "; relay on core 0, phones on core 1" } else { "" },
    );
    let heads = [
        "",
        "CPU s/M packets",
        "/rtpengine",
        "/forwarder",
        "syscalls/p",
        "wake-ups/p",
        "allocs/p",
        "loss %",
        "p50 ms",
        "p99 ms",
        "kB/call",
        "disturbed",
    ];
    let mut table = Table::new(title, &heads);
    for row in &report.relays {
        table.row(vec![
            row.relay.name().to_owned(),
            number(Some(row.cpu_seconds_per_million_packets), 2),
            number(row.ratio_to_rtpengine, 2),
            number(row.ratio_to_forwarder, 2),
            number(row.syscalls_per_packet, 2),
            number(Some(row.wake_ups_per_packet), 3),
            number(row.allocations_per_packet, 3),
            number(Some(row.loss_percent), 3),
            number(Some(row.latency_p50_ms), 2),
            number(Some(row.latency_p99_ms), 2),
            number(Some(row.memory_per_call_bytes / 1000.0), 1),
            format!("{}/{}", row.disturbed_slices, report.rounds),
        ]);
    }
    [table, report::targets(&report.targets)]
}
