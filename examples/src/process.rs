//! The processes that an example starts.

use std::fmt;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testkit::program::{figure, page};

use crate::account::wait_for;

/// What an example knows a process by.
pub trait Process: Copy + PartialEq + fmt::Display {
    /// The name of its files.
    fn name(self) -> String;
    /// What it runs.
    fn program(self) -> Program;
    /// Where it serves HTTP.
    fn http(self) -> SocketAddr;

    /// Returns the first sample of one of its figures; `None` if it has none.
    fn figure(self, name: &str) -> Option<String> {
        let metrics = page(self.http(), "/metrics").ok()?;
        figure(&metrics, name).map(str::to_owned)
    }
}

/// A program of this workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `holdline-rm`.
    Rm,
    /// `holdline-mediagate`.
    Mediagate,
}

/// The processes that run, until dropped.
#[derive(Debug)]
pub struct Processes<P> {
    dir: PathBuf,
    bin_dir: Option<PathBuf>,
    running: Vec<(P, Child)>,
}

impl<P: Process> Processes<P> {
    /// Makes the folder of an example; no process runs yet. With `bin_dir` the programs in it are
    /// started, without it the example itself.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn new(example: &str, bin_dir: Option<PathBuf>) -> anyhow::Result<Self> {
        let dir = std::env::temp_dir().join(format!("{example}-{}", std::process::id()));
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(Self { dir, bin_dir, running: Vec::new() })
    }

    /// Returns where the logs and configuration files are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Ends what still runs, which would write its files anew, and removes logs and configuration files:
    /// everything went well.
    pub fn forget_logs(&mut self) {
        // One that cannot be waited for leaves its files.
        let _ = self.kill(|_| true);
        // What is left behind is in the way of nobody.
        let _ = fs::remove_dir_all(&self.dir);
    }

    /// Starts a process with this configuration.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(&mut self, process: P, text: &str) -> anyhow::Result<()> {
        let name = process.name();
        let config = self.dir.join(format!("{name}.toml"));
        fs::write(&config, text)?;
        let log =
            File::options().create(true).append(true).open(self.dir.join(format!("{name}.log")))?;
        let mut command = self.command(process.program(), &config)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        self.running.push((process, child));
        Ok(())
    }

    /// Waits until a process answers.
    ///
    /// # Errors
    /// When it does not, or a process has ended.
    pub fn wait_until_up(&mut self, process: P) -> anyhow::Result<()> {
        let up = wait_for(Duration::from_secs(10), || {
            self.check().is_err() || page(process.http(), "/healthz").is_ok()
        });
        self.check()?;
        if !up {
            bail!("{process} does not answer; see {}", self.dir.display());
        }
        Ok(())
    }

    /// Kills processes, all before the first is waited for, and forgets them.
    ///
    /// # Errors
    /// When one cannot be waited for.
    pub fn kill(&mut self, is_meant: impl Fn(P) -> bool) -> anyhow::Result<()> {
        let meant = self.running.extract_if(.., |(process, _)| is_meant(*process));
        let mut meant: Vec<(P, Child)> = meant.collect();
        for (_, child) in &mut meant {
            // Fails only for a process that is gone.
            let _ = child.kill();
        }
        for (_, mut child) in meant {
            child.wait()?;
        }
        Ok(())
    }

    /// Sends a signal to a process and lets it be.
    ///
    /// # Errors
    /// When it does not run.
    pub fn signal(&self, process: P, signal: Signal) -> anyhow::Result<()> {
        kill(self.pid(process)?, signal).with_context(|| format!("cannot signal {process}"))
    }

    /// Returns its number.
    ///
    /// # Errors
    /// When it does not run.
    pub fn pid(&self, process: P) -> anyhow::Result<Pid> {
        let child = self.running.iter().find(|(running, _)| *running == process);
        let (_, child) = child.with_context(|| format!("{process} does not run"))?;
        Ok(Pid::from_raw(i32::try_from(child.id())?))
    }

    /// Returns the processes that run.
    pub fn all(&self) -> impl Iterator<Item = P> + '_ {
        self.running.iter().map(|(running, _)| *running)
    }

    /// Checks that none has ended by itself.
    ///
    /// # Errors
    /// When one has, with the last line of its log.
    pub fn check(&mut self) -> anyhow::Result<()> {
        for (process, child) in &mut self.running {
            if let Some(status) = child.try_wait()? {
                let log = self.dir.join(format!("{}.log", process.name()));
                let text = fs::read_to_string(&log).unwrap_or_default();
                let last = text.trim_end().lines().next_back().unwrap_or_default();
                bail!("{process} ended by itself ({status}): {last}\nsee {}", log.display());
            }
        }
        Ok(())
    }

    fn command(&self, program: Program, config: &Path) -> anyhow::Result<Command> {
        let (program, own) = match program {
            Program::Rm => ("holdline-rm", "rm"),
            Program::Mediagate => ("holdline-mediagate", "mediagate"),
        };
        let mut command = Command::new(std::env::current_exe()?);
        match &self.bin_dir {
            Some(dir) => command.arg("installed").arg(dir.join(program)),
            None => command.arg(own),
        };
        command.arg(config);
        Ok(command)
    }
}

impl<P> Drop for Processes<P> {
    fn drop(&mut self) {
        for (_, child) in &mut self.running {
            // Both fail only for a process that is gone.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Lets the example and its children open as many files as they may at all.
///
/// # Errors
/// When the system does not say how many that are.
pub fn raise_file_limit() -> anyhow::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(())
}
