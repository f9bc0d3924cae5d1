//! What the kernel tells about running processes.

use std::fs;
use std::time::Duration;

/// `USER_HZ`, the same on every Linux that we run on.
const TICKS_PER_SECOND: u64 = 100;

/// Returns the processor time that `pids` have used, all threads together.
///
/// The kernel scales these ticks to the exact run time, also of threads that
/// have ended; a process that is gone counts as zero.
pub(crate) fn cpu(pids: &[u32]) -> Duration {
    let ticks: u64 = pids.iter().filter_map(|pid| ticks(*pid)).sum();
    Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
}

/// Returns the processor time that the whole machine has used.
pub(crate) fn busy() -> Duration {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields: Vec<u64> = text
        .lines()
        .next()
        .into_iter()
        .flat_map(|line| line.split_ascii_whitespace().skip(1).take(8))
        .filter_map(|field| field.parse().ok())
        .collect();
    // The fourth and fifth are idle time.
    let idle: u64 = fields.iter().skip(3).take(2).sum();
    Duration::from_millis((fields.iter().sum::<u64>() - idle) * 1000 / TICKS_PER_SECOND)
}

/// Returns the memory that `pids` have filled, in bytes; what they share is counted once.
///
/// Code and other mapped files are left out: they are not what calls take.
pub(crate) fn memory(pids: &[u32]) -> u64 {
    let of = |pid: &u32| {
        let path = format!("/proc/{pid}/smaps_rollup");
        Some(field(&path, "Pss_Anon:")? + field(&path, "Pss_Shmem:")?)
    };
    pids.iter().filter_map(of).sum::<u64>() * 1024
}

/// Returns how often the threads of `pids` went to sleep until something came.
pub(crate) fn wake_ups(pids: &[u32]) -> u64 {
    pids.iter()
        .flat_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten())
        .filter_map(|task| {
            let path = task.path().join("status");
            field(path.to_str()?, "voluntary_ctxt_switches:")
        })
        .sum()
}

/// Returns `pid` and every process that descends from it.
pub(crate) fn family(pid: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, parent(pid)?)))
        .collect();
    let mut family = vec![pid];
    let mut next = 0;
    while let Some(&member) = family.get(next) {
        family.extend(parents.iter().filter(|(_, parent)| *parent == member).map(|(pid, _)| pid));
        next += 1;
    }
    family
}

fn ticks(pid: u32) -> Option<u64> {
    let after_name = after_name(pid)?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn parent(pid: u32) -> Option<u32> {
    after_name(pid)?.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The fields of `/proc/PID/stat` from the state on: a name may hold spaces.
fn after_name(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')').map(|(_, rest)| rest.to_owned())
}

fn field(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_in_its_own_family_and_has_memory() {
        let me = std::process::id();

        assert_eq!(family(me).first(), Some(&me));
        assert!(memory(&[me]) > 0);
    }

    #[test]
    fn work_shows_as_processor_time() {
        let me = [std::process::id()];
        let before = cpu(&me);
        let mut sum = 0u64;
        while cpu(&me) < before + Duration::from_millis(20) {
            sum = sum.wrapping_mul(31).wrapping_add(std::hint::black_box(1));
        }
        std::hint::black_box(sum);

        assert!(cpu(&me) >= before + Duration::from_millis(20));
    }
}
