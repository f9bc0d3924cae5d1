//! Random worlds: faults, one after the other or several at once, and after each of them quiet.
//!
//! `HOLDLINE_SEEDS=FIRST..END` runs other seeds, `HOLDLINE_SEEDS=N` a single one.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::faults::{FAULTS, Fault, cluster, strike};
use super::invariants::unrest;
use super::random::Random;
use super::world::{Ms, World};
use crate::rules::Rules;

/// Without the variable.
const SEEDS: Range<u64> = 0..300;

/// Longer than any bound.
const QUIET: Ms = 22_000;

/// However often links break meanwhile.
const QUIET_MAX: Ms = 60_000;

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
    // Every third network loses, doubles and reorders.
    world.bad = seed % 3 == 2;
    for burst in 0..6 {
        let whole = world.cuts.is_empty();
        let Some((fault, over_at)) = strike_burst(&mut world, burst) else { continue };
        world.run_until(over_at);
        let bound = bound(fault, whole, world.bad);
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

/// The cluster must be at rest within the bound, and stay so.
fn rest(world: &mut World, fault: Fault, bound: Ms) {
    let struck_at = world.now;
    let mut over_at = struck_at;
    let mut unrest_at = None;
    while world.now < (over_at + QUIET).min(struck_at + QUIET_MAX) {
        if let Some(unrest) = unrest(world) {
            unrest_at = Some((world.now, unrest));
        }
        world.run_for(50);
        // A network that loses heartbeats breaks a link now and then: another fault.
        if world.bad && struck_at + DETECTION < world.watchdog.relinked_at {
            over_at = world.watchdog.relinked_at;
        }
    }
    if let Some((at, unrest)) = unrest_at.filter(|(at, _)| over_at + bound < *at) {
        let late = at - over_at;
        let text = format!("{late} ms after {fault:?} ended at {over_at}: {unrest}");
        world.watchdog.faults.push(text);
    }
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
        Fault::ColdStart | Fault::Restart | Fault::RestartWithoutFile if whole => 6_500,
        Fault::ColdStart | Fault::Restart | Fault::RestartWithoutFile => 8_100,
        Fault::Heal | Fault::Pause | Fault::PauseLead | Fault::Flap => 8_200,
        Fault::Several => 9_300,
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
