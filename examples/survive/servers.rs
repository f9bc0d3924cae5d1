//! The processes of the layout.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use examples::account::wait_for;
use examples::process::{Process as _, Processes};

use crate::survive::args::{Args, Role};
use crate::survive::layout::{Layout, Server, Terms};
use crate::survive::stage::VOICED_ALL_MAX;

/// Parts that the calls of a segment are dealt into.
const SLOTS: u32 = 256;

/// The processes that run.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) processes: Processes<Server>,
    layout: Layout,
    realtime: bool,
    some_are_mute: bool,
    all: Vec<Server>,
}

impl Servers {
    /// Starts all of them and waits until each answers.
    pub(crate) fn start(args: &Args) -> anyhow::Result<Self> {
        let mut servers = Self {
            processes: Processes::new("survive", args.bin_dir.clone())?,
            layout: args.layout,
            realtime: !args.no_realtime,
            some_are_mute: VOICED_ALL_MAX < args.calls,
            all: args.layout.servers(args.calls),
        };
        servers.start_all()?;
        Ok(servers)
    }

    /// Starts all that do not run and waits until each answers.
    pub(crate) fn start_all(&mut self) -> anyhow::Result<()> {
        let runs = |server: &Server| self.processes.all().any(|running| running == *server);
        let missing: Vec<Server> = self.all.iter().copied().filter(|one| !runs(one)).collect();
        for server in &missing {
            self.spawn(*server)?;
        }
        missing.into_iter().try_for_each(|server| self.processes.wait_until_up(server))
    }

    /// Returns how many mediagates there are.
    pub(crate) fn mediagates(&self) -> usize {
        self.all.iter().filter(|server| server.is_mediagate()).count()
    }

    /// Starts a process anew in the place of one that has died.
    pub(crate) fn restart(&mut self, server: Server) -> anyhow::Result<()> {
        self.kill(server)?;
        self.spawn(server)?;
        self.processes.wait_until_up(server)?;
        let linked = wait_for(Duration::from_secs(30), || {
            self.processes.check().is_err()
                || server.figure("driver_links_up").is_some_and(|up| up != "0")
        });
        self.processes.check()?;
        if !linked {
            bail!("{server} was not taken in again; see {}", self.processes.dir().display());
        }
        Ok(())
    }

    /// Kills a process and forgets it.
    pub(crate) fn kill(&mut self, server: Server) -> anyhow::Result<()> {
        self.processes.kill(|running| running == server)
    }

    /// Returns the mediagate at an address.
    pub(crate) fn mediagate_at(&self, ip: IpAddr) -> Option<Server> {
        self.processes.all().find(|server| server.is_mediagate() && IpAddr::from(server.ip()) == ip)
    }

    /// Returns the running process of a role that leads: the controller with
    /// the lowest number, the first gate, the b2b with the most calls.
    pub(crate) fn leading(&self, role: Role) -> anyhow::Result<Server> {
        let calls = |server: Server| match role {
            Role::B2b => server.figure("rm_calls").and_then(|calls| calls.parse().ok()),
            Role::Gate | Role::Controller | Role::Mediagate => Some(0_u32),
        };
        self.processes
            .all()
            .filter(|server| server.role() == role)
            .max_by_key(|&server| (calls(server), Reverse(server.id())))
            .with_context(|| format!("no {} runs", role.name()))
    }

    /// Waits until every slot has an owner, and a standby that has copies of all its calls.
    pub(crate) fn wait_until_protected(&mut self) -> anyhow::Result<()> {
        let b2bs: Vec<Server> =
            self.processes.all().filter(|server| server.role() == Role::B2b).collect();
        if b2bs.len() < 2 {
            return Ok(());
        }
        let sum = |name| -> Option<u32> {
            b2bs.iter().map(|b2b| b2b.figure(name)?.parse::<u32>().ok()).sum()
        };
        let protected = wait_for(Duration::from_secs(30), || {
            sum("rm_slots") == Some(SLOTS) && sum("rm_slots_unprotected") == Some(0)
        });
        self.processes.check()?;
        if !protected {
            bail!("some calls have no standby b2b; see {}", self.processes.dir().display());
        }
        Ok(())
    }

    /// Returns the processes that run beside `server`.
    pub(crate) fn others(&self, server: Server) -> impl Iterator<Item = Server> + '_ {
        self.processes.all().filter(move |running| *running != server)
    }

    /// Returns whether every judge and every judged thread has a real-time
    /// class, so that silence is judged the faster way.
    pub(crate) fn is_realtime(&self) -> bool {
        self.processes.all().filter(|server| server.role() != Role::Gate).all(|server| {
            let classes = ["driver_realtime", "mediagate_worker_realtime"];
            classes.into_iter().all(|name| server.figure(name).is_none_or(|value| value == "1"))
        })
    }

    fn spawn(&mut self, server: Server) -> anyhow::Result<()> {
        let terms = Terms {
            layout: self.layout,
            all: &self.all,
            realtime: self.realtime,
            some_are_mute: self.some_are_mute,
            dir: self.processes.dir(),
        };
        let config = server.config(&terms);
        self.processes.spawn(server, &config)
    }
}
