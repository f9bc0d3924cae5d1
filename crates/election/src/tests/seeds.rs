//! Random worlds: faults, one after the other or several at once, and after each of them quiet.
//!
//! `HOLDLINE_SEEDS=FIRST..END` runs other seeds, `HOLDLINE_SEEDS=N` a single one.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::cold;
use super::faults::{FAULTS, Fault, cluster, strike};
use super::invariants::Unrest;
use super::random::Random;
use super::world::{Ms, World};
use crate::NodeId;
use crate::rules::Rules;

/// Without the variable.
const SEEDS: Range<u64> = 0..300;

/// How long the network is quiet after a bound is over.
const QUIET: Ms = 13_000;

/// However often links break meanwhile.
const QUIET_MAX: Ms = 60_000;

/// A cold segment gives its share back so long after an epoch: the promises, and the stability.
const COLD: Ms = 7_500;

/// Until of two processes with one id one has withdrawn.
const DOUBLED: Ms = 20_000;

/// After it every fault is known to both ends of each link.
const DETECTION: Ms = 5_500;

/// Frames of elections that one node sends in one election timeout, per other node: four campaigns
/// of its own and as many victories, and answers to those of all others.
const ELECTION_FRAMES_MAX: usize = 12;

#[test]
fn random_worlds_come_to_rest_within_the_bounds() {
    let seeds = seeds();
    let next = AtomicU64::new(seeds.start);
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let mut failures: Vec<(u64, String)> = thread::scope(|scope| {
        let work = || {
            let mut failures = Vec::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seeds.end <= seed {
                    return failures;
                }
                let faults = live(seed, Rules::default()).watchdog.faults;
                failures.extend(faults.into_iter().map(|fault| (seed, fault)));
            }
        };
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    failures.sort();
    let texts: Vec<String> =
        failures.iter().map(|(seed, text)| format!("seed {seed}: {text}")).collect();
    assert!(texts.is_empty(), "{} faults\n{}", texts.len(), texts.join("\n"));
}

#[test]
fn a_world_lives_again_as_it_did() {
    for seed in [0, 1, 2] {
        assert_eq!(
            live(seed, Rules::default()).watchdog.trace,
            live(seed, Rules::default()).watchdog.trace
        );
    }
}

/// Lives one world; its watchdog holds what went wrong.
pub(super) fn live(seed: u64, rules: Rules) -> World {
    let mut dice = Random::new(seed);
    let ids = cluster(&mut dice);
    let mut world = World::new(seed, &ids, rules);
    world.cold = cold::pick(&mut dice, &ids);
    // Every third network loses, doubles and reorders.
    world.bad = seed % 3 == 2;
    for burst in 0..6 {
        let whole = world.cuts.is_empty();
        let Some((fault, over_at)) = strike_burst(&mut world, burst) else { continue };
        world.run_until(over_at);
        let doubled = if is_doubled(&world) { DOUBLED } else { 0 };
        let bound = bound(fault, whole, world.bad) + doubled;
        rest(&mut world, fault, bound);
        if !world.watchdog.faults.is_empty() {
            break;
        }
    }
    world.watchdog.check_terms();
    let frames = world.watchdog.election_frames_max;
    if ELECTION_FRAMES_MAX * ids.len() < frames {
        world.watchdog.faults.push(format!("{frames} frames of elections in one timeout"));
    }
    world
}

/// Returns what struck and when it is over.
fn strike_burst(world: &mut World, burst: u32) -> Option<(Fault, Ms)> {
    if burst == 0 {
        for at in 0..world.processes.len() {
            let pause = world.dice.range(0, 300);
            world.run_for(pause);
            world.start(at);
        }
        return Some((Fault::ColdStart, world.now));
    }
    if world.dice.hits(60) {
        let fault = world.dice.pick(&FAULTS)?;
        return Some((fault, strike(world, fault)?));
    }
    let mut over_at = world.now;
    for _ in 0..world.dice.range(2, 5) {
        let fault = world.dice.pick(&FAULTS)?;
        over_at = over_at.max(strike(world, fault).unwrap_or(0));
        let pause = world.dice.range(0, 2_000);
        world.run_for(pause);
    }
    Some((Fault::Several, over_at.max(world.now)))
}

/// Whether two processes with one id are there.
fn is_doubled(world: &World) -> bool {
    let there = |at: &usize| {
        let process = &world.processes[*at];
        process.elector.is_some() && !process.withdrawn
    };
    let there: Vec<usize> = (0..world.processes.len()).filter(there).collect();
    let ids: BTreeSet<NodeId> = there.iter().map(|at| world.processes[*at].id).collect();
    ids.len() < there.len()
}

/// The cluster must be at rest within the bound, and stay so.
fn rest(world: &mut World, fault: Fault, bound: Ms) {
    let struck_at = world.now;
    let mut over_at = struck_at;
    world.judge();
    while world.now < (over_at + bound + QUIET).min(struck_at + QUIET_MAX) {
        world.run_for(50);
        // A network that loses heartbeats breaks a link now and then: another fault.
        if world.bad && struck_at + DETECTION < world.watchdog.relinked_at {
            over_at = world.watchdog.relinked_at;
        }
    }
    world.judge();
    let late = |unrest: &Unrest, bound: Ms| {
        let late = unrest.until.saturating_sub(over_at);
        let text = unrest.last.clone().filter(|_| bound < late)?;
        Some(format!("{late} ms after {fault:?} ended at {over_at}: {text}"))
    };
    let texts =
        [late(&world.watchdog.unrest, bound), late(&world.watchdog.cold_unrest, bound + COLD)];
    world.watchdog.faults.extend(texts.into_iter().flatten());
    if over_at + bound < world.watchdog.declared_at {
        let late = world.watchdog.declared_at - over_at;
        world.watchdog.faults.push(format!("an epoch {late} ms after {fault:?}"));
    }
}

/// How long a cluster may take until it is at rest. `whole`: nothing was cut before.
fn bound(fault: Fault, whole: bool, bad: bool) -> Ms {
    let bound = match fault {
        Fault::Crash | Fault::CrashLead | Fault::Cut | Fault::Partition if whole => 3_300,
        Fault::Crash | Fault::CrashLead | Fault::Cut | Fault::Partition => 5_300,
        Fault::OneWayCut => 5_300,
        Fault::ColdStart
        | Fault::Restart
        | Fault::RestartWithoutFile
        | Fault::RestartWithOldFile
        | Fault::Duplicate
            if whole =>
        {
            6_500
        }
        Fault::ColdStart
        | Fault::Restart
        | Fault::RestartWithoutFile
        | Fault::RestartWithOldFile
        | Fault::Duplicate => 8_100,
        Fault::Heal
        | Fault::Pause
        | Fault::PauseLead
        | Fault::DiskHangs
        | Fault::Flap
        | Fault::FlapLink => 8_200,
        Fault::Drain => 0,
        // The longest of 20,000 worlds, in which each write takes up to 15 ms, was 9,315.
        Fault::Several => 9_400,
    };
    // A message of an election that is lost costs one timeout; so much bad luck is allowed for.
    if bad { bound + 11_000 } else { bound }
}

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("HOLDLINE_SEEDS") else { return SEEDS };
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let range = match text.split_once("..") {
        Some((first, end)) => number(first).zip(number(end)).map(|(first, end)| first..end),
        None => number(&text).map(|seed| seed..seed + 1),
    };
    range.expect("HOLDLINE_SEEDS is FIRST..END or one number")
}
