//! Many seeds of one test, on all processors.
//!
//! `HOLDLINE_SEEDS=FIRST..END` in the environment runs other seeds than a test does by itself, and
//! `HOLDLINE_SEEDS=N` a single one.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Runs every seed of `default`, or those that the environment asks for.
///
/// # Panics
/// When a seed fails or panics, with what the first one says, the first line of each, and their
/// numbers; or when the environment asks for what are no seeds.
pub fn each(default: Range<u64>, run: impl Fn(u64) -> Result<(), String> + Sync) {
    let seeds = match std::env::var("HOLDLINE_SEEDS") {
        Ok(text) => parse(&text).expect("HOLDLINE_SEEDS is FIRST..END or one number"),
        Err(_) => default,
    };
    let failures = failures(seeds.clone(), run);
    if let Some((_, text)) = failures.first() {
        let heads: Vec<&str> =
            failures.iter().filter_map(|(_, text)| text.lines().next()).collect();
        let numbers: Vec<u64> = failures.iter().map(|(seed, _)| *seed).collect();
        panic!(
            "{text}\n{}\n{} of {} seeds fail: {numbers:?}",
            heads.join("\n"),
            numbers.len(),
            seeds.end - seeds.start,
        );
    }
}

/// Returns what went wrong, by seed.
fn failures(
    seeds: Range<u64>,
    run: impl Fn(u64) -> Result<(), String> + Sync,
) -> Vec<(u64, String)> {
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let mut failures = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seeds.end <= seed {
                return failures;
            }
            failures.extend(outcome(seed, &run).err().map(|text| (seed, text)));
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let mut failures: Vec<(u64, String)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("panics are caught")).collect()
    });
    failures.sort();
    failures
}

/// Runs a seed; a panic in it is a failure of it.
fn outcome(seed: u64, run: impl Fn(u64) -> Result<(), String>) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| run(seed))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
        Err(format!("seed {seed}: panic: {text}"))
    })
}

fn parse(text: &str) -> Option<Range<u64>> {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    match text.split_once("..") {
        Some((first, end)) => Some(number(first)?..number(end)?),
        None => number(text).map(|seed| seed..seed + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_or_one_number_is_asked_for() {
        assert_eq!(parse("3..7"), Some(3..7));
        assert_eq!(parse("5"), Some(5..6));
        assert_eq!(parse("3..x"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn every_seed_runs_once_and_each_that_fails_or_panics_is_told() {
        let run = |seed| match seed {
            4 => Err("seed 4: wrong".to_owned()),
            7 => panic!("worse"),
            _ => Ok(()),
        };

        let expected = [(4, "seed 4: wrong".to_owned()), (7, "seed 7: panic: worse".to_owned())];
        assert_eq!(failures(0..20, run), expected);
    }
}
