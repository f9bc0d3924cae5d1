//! System calls and allocations of other processes, counted by `perf`.
//!
//! Counting slows the counted process down, so it has a time of its own in
//! which no processor time is taken.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;

const ALLOCATORS: [&str; 3] = ["malloc", "calloc", "realloc"];

/// What was counted; `None` where this machine cannot count it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// System calls entered.
    pub(crate) syscalls: Option<u64>,
    /// Calls of the C library's allocator. Kamailio's own pools are not seen.
    pub(crate) allocations: Option<u64>,
}

/// Probes on the C library's allocator; removed when dropped.
#[derive(Debug)]
pub(crate) struct Counters {
    syscalls: bool,
    allocations: bool,
}

impl Counters {
    /// Finds out what can be counted here.
    pub(crate) fn new() -> Self {
        let syscalls = perf(&["stat", "-e", "raw_syscalls:sys_enter", "true"]);
        let allocations = syscalls
            && libc_path().is_some_and(|libc| {
                ALLOCATORS.iter().all(|function| {
                    let probe = format!("holdline:{function}={function}");
                    perf(&["probe", "--quiet", "--force", "-x", &libc, "--add", &probe])
                })
            });
        Self { syscalls, allocations }
    }

    /// Returns whether anything can be counted here.
    pub(crate) fn any(&self) -> bool {
        self.syscalls
    }

    /// Counts for `time` what `pids` do.
    pub(crate) fn count(
        &self,
        pids: &[u32],
        time: Duration,
        folder: &Path,
    ) -> anyhow::Result<Counts> {
        if !self.syscalls {
            std::thread::sleep(time);
            return Ok(Counts::default());
        }
        let out = folder.join("perf.csv");
        let pids: Vec<String> = pids.iter().map(ToString::to_string).collect();
        let mut command = Command::new("perf");
        command.args(["stat", "-x", ",", "-e", "raw_syscalls:sys_enter"]);
        if self.allocations {
            for function in ALLOCATORS {
                command.arg("-e").arg(format!("holdline:{function}"));
            }
        }
        command.arg("-o").arg(&out).arg("-p").arg(pids.join(","));
        command.args(["--", "sleep"]).arg(time.as_secs_f64().to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().context("cannot run perf")?;
        let text = fs::read_to_string(&out).context("perf wrote nothing")?;
        let allocations = ALLOCATORS.iter().map(|function| value(&text, function)).sum();
        Ok(Counts { syscalls: value(&text, "raw_syscalls:sys_enter"), allocations })
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        if self.allocations {
            perf(&["probe", "--quiet", "--del", "holdline:*"]);
        }
    }
}

fn perf(arguments: &[&str]) -> bool {
    Command::new("perf")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn libc_path() -> Option<String> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("/libc.so.6"))?;
    let path = line.split_ascii_whitespace().last().map(PathBuf::from)?;
    Some(path.to_str()?.to_owned())
}

/// The figure in the line of `event`; what was never reached is zero.
fn value(text: &str, event: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.split(',').any(|field| field.ends_with(event)))?;
    let figure = line.split(',').next()?;
    if figure == "<not counted>" { Some(0) } else { figure.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_the_lines_of_their_events() {
        let text = "# started on\n\n1200,,raw_syscalls:sys_enter,1,100.00,,\n\
                    <not counted>,,holdline:malloc,0,0.00,,\n";

        assert_eq!(value(text, "raw_syscalls:sys_enter"), Some(1200));
        assert_eq!(value(text, "malloc"), Some(0));
        assert_eq!(value(text, "calloc"), None);
    }
}
