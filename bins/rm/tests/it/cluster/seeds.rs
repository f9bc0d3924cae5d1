//! Clusters in which a media role or a b2b dies or misbehaves at a random message.
//!
//! `HOLDLINE_SEEDS=FIRST..END` runs other seeds, `HOLDLINE_SEEDS=N` a single one.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::trial;

/// Without the variable.
const SEEDS: Range<u64> = 0..300;

#[test]
fn no_call_is_lost_whatever_happens_to_a_media_role_or_a_b2b_at_any_message() {
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
                failures.extend(outcome(seed).err().map(|text| (seed, text)));
            }
        };
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    failures.sort();
    let numbers: Vec<u64> = failures.iter().map(|(seed, _)| *seed).collect();
    if let Some((_, text)) = failures.first() {
        let heads: Vec<&str> =
            failures.iter().filter_map(|(_, text)| text.lines().next()).collect();
        panic!(
            "{text}\n{}\n{} of {} seeds fail: {numbers:?}",
            heads.join("\n"),
            numbers.len(),
            seeds.end - seeds.start,
        );
    }
}

#[test]
fn a_seed_gives_the_same_run_each_time() {
    for seed in [3, 4, 5] {
        assert_eq!(trial::run(seed), trial::run(seed));
    }
    assert_ne!(trial::run(3), trial::run(4));
}

/// Runs a seed; a panic in it is a failure of it.
fn outcome(seed: u64) -> Result<u64, String> {
    catch_unwind(AssertUnwindSafe(|| trial::run(seed))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
        Err(format!("seed {seed}: panic: {text}"))
    })
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
