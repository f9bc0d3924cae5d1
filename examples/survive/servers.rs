//! The processes of the layout.

use std::cmp::Reverse;
use std::fs::{self, File};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testkit::program::{self, page};

use crate::survive::account::wait_for;
use crate::survive::args::{Args, Role};
use crate::survive::layout::{Layout, Server, Terms};
use crate::survive::stage::VOICED_ALL_MAX;

/// Parts that the calls of a segment are dealt into.
const SLOTS: u32 = 256;

/// The processes that run.
#[derive(Debug)]
pub(crate) struct Servers {
    dir: PathBuf,
    bin_dir: Option<PathBuf>,
    layout: Layout,
    realtime: bool,
    some_are_mute: bool,
    all: Vec<Server>,
    running: Vec<(Server, Child)>,
}

impl Servers {
    /// Starts all of them and waits until each answers.
    pub(crate) fn start(args: &Args) -> anyhow::Result<Self> {
        let dir = std::env::temp_dir().join(format!("survive-{}", std::process::id()));
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let mut servers = Self {
            dir,
            bin_dir: args.bin_dir.clone(),
            layout: args.layout,
            realtime: !args.no_realtime,
            some_are_mute: VOICED_ALL_MAX < args.calls,
            all: args.layout.servers(args.calls),
            running: Vec::new(),
        };
        servers.start_all()?;
        Ok(servers)
    }

    /// Starts all that do not run and waits until each answers.
    pub(crate) fn start_all(&mut self) -> anyhow::Result<()> {
        let missing: Vec<Server> =
            self.all.iter().copied().filter(|server| self.pid(*server).is_err()).collect();
        for server in &missing {
            self.spawn(*server)?;
        }
        missing.into_iter().try_for_each(|server| self.wait_until_up(server))
    }

    /// Returns how many mediagates there are.
    pub(crate) fn mediagates(&self) -> usize {
        self.all.iter().filter(|server| server.is_mediagate()).count()
    }

    /// Returns where the logs and configuration files are.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Removes logs and configuration files: everything went well.
    pub(crate) fn forget_logs(&self) {
        // What is left behind is in the way of nobody.
        let _ = fs::remove_dir_all(&self.dir);
    }

    /// Starts a process anew in the place of one that has died.
    pub(crate) fn restart(&mut self, server: Server) -> anyhow::Result<()> {
        self.kill(server)?;
        self.spawn(server)?;
        self.wait_until_up(server)?;
        let linked = wait_for(Duration::from_secs(30), || {
            self.check().is_err() || figure(server, "driver_links_up").is_some_and(|up| up != "0")
        });
        self.check()?;
        if !linked {
            bail!("{server} was not taken in again; see {}", self.dir.display());
        }
        Ok(())
    }

    /// Kills a process and forgets it.
    pub(crate) fn kill(&mut self, server: Server) -> anyhow::Result<()> {
        while let Some(index) = self.running.iter().position(|(running, _)| *running == server) {
            let (_, mut child) = self.running.remove(index);
            // Both fail only for a process that is gone.
            let _ = child.kill();
            child.wait()?;
        }
        Ok(())
    }

    /// Kills all processes at once.
    pub(crate) fn kill_all(&mut self) -> anyhow::Result<()> {
        for (_, child) in &mut self.running {
            // Fails only for a process that is gone.
            let _ = child.kill();
        }
        for (_, mut child) in self.running.drain(..) {
            child.wait()?;
        }
        Ok(())
    }

    /// Sends a signal to a process and lets it be.
    pub(crate) fn signal(&self, server: Server, signal: Signal) -> anyhow::Result<()> {
        kill(self.pid(server)?, signal).with_context(|| format!("cannot signal {server}"))
    }

    pub(crate) fn pid(&self, server: Server) -> anyhow::Result<Pid> {
        let child = self.running.iter().find(|(running, _)| *running == server);
        let (_, child) = child.with_context(|| format!("{server} does not run"))?;
        Ok(Pid::from_raw(i32::try_from(child.id())?))
    }

    /// Returns the mediagate at an address.
    pub(crate) fn mediagate_at(&self, ip: IpAddr) -> Option<Server> {
        self.all().find(|server| server.is_mediagate() && IpAddr::from(server.ip()) == ip)
    }

    /// Returns the running process of a role that leads: the controller with
    /// the lowest number, the first gate, the b2b with the most calls.
    pub(crate) fn leading(&self, role: Role) -> anyhow::Result<Server> {
        let calls = |server: Server| match role {
            Role::B2b => figure(server, "rm_calls").and_then(|calls| calls.parse().ok()),
            Role::Gate | Role::Controller | Role::Mediagate => Some(0_u32),
        };
        self.all()
            .filter(|server| server.role() == role)
            .max_by_key(|&server| (calls(server), Reverse(server.id())))
            .with_context(|| format!("no {} runs", role.name()))
    }

    /// Waits until every slot has an owner, and a standby that has copies of all its calls.
    pub(crate) fn wait_until_protected(&mut self) -> anyhow::Result<()> {
        let b2bs: Vec<Server> = self.all().filter(|server| server.role() == Role::B2b).collect();
        if b2bs.len() < 2 {
            return Ok(());
        }
        let sum = |name| -> Option<u32> {
            b2bs.iter().map(|b2b| figure(*b2b, name)?.parse::<u32>().ok()).sum()
        };
        let protected = wait_for(Duration::from_secs(30), || {
            sum("rm_slots") == Some(SLOTS) && sum("rm_slots_unprotected") == Some(0)
        });
        self.check()?;
        if !protected {
            bail!("some calls have no standby b2b; see {}", self.dir.display());
        }
        Ok(())
    }

    /// Returns the processes that run beside `server`.
    pub(crate) fn others(&self, server: Server) -> impl Iterator<Item = Server> + '_ {
        self.all().filter(move |running| *running != server)
    }

    /// Returns the processes that run.
    pub(crate) fn all(&self) -> impl Iterator<Item = Server> + '_ {
        self.running.iter().map(|(running, _)| *running)
    }

    /// Fails if a process has ended by itself.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        for (server, child) in &mut self.running {
            if let Some(status) = child.try_wait()? {
                let log = self.dir.join(format!("{}.log", server.name()));
                let text = fs::read_to_string(&log).unwrap_or_default();
                let last = text.trim_end().lines().next_back().unwrap_or_default();
                bail!("{server} ended by itself ({status}): {last}\nsee {}", log.display());
            }
        }
        Ok(())
    }

    /// Returns whether every judge and every judged thread has a real-time
    /// class, so that silence is judged the faster way.
    pub(crate) fn is_realtime(&self) -> bool {
        self.all().filter(|server| server.role() != Role::Gate).all(|server| {
            let classes = ["driver_realtime", "mediagate_worker_realtime"];
            classes.into_iter().all(|name| figure(server, name).is_none_or(|value| value == "1"))
        })
    }

    fn spawn(&mut self, server: Server) -> anyhow::Result<()> {
        let name = server.name();
        let config = self.dir.join(format!("{name}.toml"));
        let terms = Terms {
            layout: self.layout,
            all: &self.all,
            realtime: self.realtime,
            some_are_mute: self.some_are_mute,
            dir: &self.dir,
        };
        fs::write(&config, server.config(&terms))?;
        let log =
            File::options().create(true).append(true).open(self.dir.join(format!("{name}.log")))?;
        let mut command = self.command(server, &config)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        self.running.push((server, child));
        Ok(())
    }

    fn command(&self, server: Server, config: &Path) -> anyhow::Result<Command> {
        let (program, own) = if server.is_mediagate() {
            ("holdline-mediagate", "mediagate")
        } else {
            ("holdline-rm", "rm")
        };
        let mut command = Command::new(std::env::current_exe()?);
        match &self.bin_dir {
            Some(dir) => command.arg("installed").arg(dir.join(program)),
            None => command.arg(own),
        };
        command.arg(config);
        Ok(command)
    }

    fn wait_until_up(&mut self, server: Server) -> anyhow::Result<()> {
        let up = wait_for(Duration::from_secs(10), || {
            self.check().is_err() || page(server.http(), "/healthz").is_ok()
        });
        self.check()?;
        if !up {
            bail!("{server} does not answer; see {}", self.dir.display());
        }
        Ok(())
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for (_, child) in &mut self.running {
            // Both fail only for a process that is gone.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns the first sample of a figure of a process; `None` if it has none.
fn figure(server: Server, name: &str) -> Option<String> {
    let metrics = page(server.http(), "/metrics").ok()?;
    program::figure(&metrics, name).map(str::to_owned)
}
