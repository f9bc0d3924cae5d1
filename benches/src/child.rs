//! Processes under measurement, started and ended by their id.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::procfs;

/// A child process; ends when the value is dropped.
#[derive(Debug)]
pub(crate) struct Child {
    name: &'static str,
    process: std::process::Child,
    log: PathBuf,
}

impl Child {
    /// Starts `command` with its output in `folder/NAME.log`, on one core if `core` is given.
    pub(crate) fn start(
        name: &'static str,
        command: &mut Command,
        folder: &Path,
        core: Option<usize>,
    ) -> anyhow::Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let out = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        let program = command.get_program().to_string_lossy().into_owned();
        let process = on_core(core, || command.spawn())?
            .with_context(|| format!("cannot start {program}; is it installed?"))?;
        Ok(Self { name, process, log })
    }

    /// Fails, with the end of its log, when the process has ended.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        let Some(status) = self.process.try_wait()? else { return Ok(()) };
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let tail: Vec<&str> = log.lines().rev().take(8).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        bail!("{} ended early ({status}):\n{}", self.name, tail.join("\n"));
    }

    /// Waits for the process to end by itself; kills it and fails after `limit`.
    pub(crate) fn wait(&mut self, limit: Duration) -> anyhow::Result<bool> {
        let until = Instant::now() + limit;
        loop {
            if let Some(status) = self.process.try_wait()? {
                return Ok(status.success());
            }
            if until <= Instant::now() {
                bail!("{} did not end within {limit:?}", self.name);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns whether the process still runs.
    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// Sends `signal` to the process.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Ok(id) = i32::try_from(self.process.id()) {
            // It may have ended by itself.
            let _ = kill(Pid::from_raw(id), signal);
        }
    }

    /// Returns the name it was started under.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Returns where its output goes.
    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    /// Returns the ids of the process and its descendants.
    pub(crate) fn family(&self) -> Vec<u32> {
        procfs::family(self.process.id())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.runs() {
            self.signal(Signal::SIGTERM);
            if self.wait(Duration::from_secs(3)).is_err() {
                let _ = self.process.kill();
            }
        }
        let _ = self.process.wait();
    }
}

/// Runs `work` with this thread bound to `core`: what it starts inherits that.
pub(crate) fn on_core<T>(core: Option<usize>, work: impl FnOnce() -> T) -> anyhow::Result<T> {
    let Some(core) = core else { return Ok(work()) };
    let this = Pid::from_raw(0);
    let before = sched_getaffinity(this).context("cannot read the cores of this thread")?;
    let mut set = CpuSet::new();
    set.set(core)?;
    sched_setaffinity(this, &set).with_context(|| format!("cannot bind to core {core}"))?;
    let result = work();
    sched_setaffinity(this, &before).context("cannot go back to all cores")?;
    Ok(result)
}
