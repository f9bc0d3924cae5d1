//! The four servers: their processes and what each is told.

use std::fmt::{self, Write as _};
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::survive::account::wait_for;
use crate::survive::args::{Args, Role};

/// A process of the layout. One gate with a standby controller beside the
/// mediagate, as the four servers of the design: 1 gate, 2 b2b, 3 mediagate
/// and standby controller, 4 controller and standby mediagate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    Gate,
    B2b,
    Controller,
    StandbyController,
    Mediagate,
    StandbyMediagate,
}

const ALL: [Server; 6] = [
    Server::Mediagate,
    Server::StandbyMediagate,
    Server::Controller,
    Server::StandbyController,
    Server::Gate,
    Server::B2b,
];

/// Where phones register and call.
pub(crate) const GATE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 1), 5060);

impl Server {
    /// The number of the process, unique in the segment.
    fn id(self) -> u16 {
        match self {
            Self::Gate => 1,
            Self::B2b => 2,
            Self::Controller => 3,
            Self::StandbyController => 4,
            Self::Mediagate => 31,
            Self::StandbyMediagate => 41,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Gate => "gate",
            Self::B2b => "b2b",
            Self::Controller => "controller",
            Self::StandbyController => "standby-controller",
            Self::Mediagate => "mediagate",
            Self::StandbyMediagate => "standby-mediagate",
        }
    }

    pub(crate) fn ip(self) -> Ipv4Addr {
        let server = match self {
            Self::Gate => 1,
            Self::B2b => 2,
            Self::Mediagate | Self::StandbyController => 3,
            Self::Controller | Self::StandbyMediagate => 4,
        };
        Ipv4Addr::new(127, 0, 0, server)
    }

    fn role(self) -> Role {
        match self {
            Self::Gate => Role::Gate,
            Self::B2b => Role::B2b,
            Self::Controller | Self::StandbyController => Role::Controller,
            Self::Mediagate | Self::StandbyMediagate => Role::Mediagate,
        }
    }

    fn is_mediagate(self) -> bool {
        self.role() == Role::Mediagate
    }

    fn address(self, port: u16) -> SocketAddr {
        SocketAddr::from((self.ip(), port + self.id()))
    }

    fn link(self) -> SocketAddr {
        self.address(7100)
    }

    fn beat(self) -> SocketAddr {
        self.address(7200)
    }

    fn http(self) -> SocketAddr {
        self.address(7300)
    }

    /// Returns the configuration file.
    fn config(self, realtime: bool) -> String {
        let mut text = format!(
            "[node]\nid = {}\nhost = \"server{}\"\naddress = \"{}\"\nrealtime = {realtime}\n",
            self.id(),
            self.ip().octets()[3],
            self.ip(),
        );
        // Writing to a `String` cannot fail.
        if !self.is_mediagate() {
            let _ = writeln!(text, "roles = [\"{}\"]", self.role().name());
            text.push_str("\n[segment]\nkey = \"68f4a1d2c07b935e\"\n");
        }
        let (link, http) = (self.link(), self.http());
        let _ = write!(text, "\n[links]\nlisten = \"{link}\"\nplaintext = true\n");
        let _ = write!(text, "\n[http]\nlisten = \"{http}\"\n\n[log]\nlevel = \"info\"\n");
        match self {
            Self::Gate => {
                let _ = write!(
                    text,
                    "\n[[listener]]\ntransport = \"udp\"\nlisten = \"{GATE}\"\nadvertise = \"{GATE}\"\n"
                );
            }
            Self::Mediagate | Self::StandbyMediagate => {
                let (ip, beat) = (self.ip(), self.beat());
                let standby = self == Self::StandbyMediagate;
                let _ = write!(
                    text,
                    "\n[beat]\nlisten = \"{beat}\"\n\n[media]\nlisten = \"{ip}\"\n\
                     ports = \"10000-32767\"\nworkers = 1\nstandby = {standby}\n"
                );
            }
            Self::B2b | Self::Controller | Self::StandbyController => {}
        }
        for peer in ALL {
            if self.talks_to(peer) {
                text.push_str(&peer.as_peer());
            }
        }
        text
    }

    /// Returns whether the two know each other: every link has a b2b at one
    /// end, and controllers hear the beats of the mediagates.
    fn talks_to(self, peer: Self) -> bool {
        match self.role() {
            Role::B2b => peer != self,
            Role::Gate => peer.role() == Role::B2b,
            Role::Controller => matches!(peer.role(), Role::B2b | Role::Mediagate),
            Role::Mediagate => false,
        }
    }

    fn as_peer(self) -> String {
        let (id, role, link) = (self.id(), self.role().name(), self.link());
        format!("\n[[peer]]\nid = {id}\nroles = [\"{role}\"]\nlink = \"{link}\"\n")
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.role().name(), self.ip())
    }
}

/// The processes that run.
#[derive(Debug)]
pub(crate) struct Servers {
    dir: PathBuf,
    bin_dir: Option<PathBuf>,
    realtime: bool,
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
            realtime: !args.no_realtime,
            running: Vec::new(),
        };
        for server in ALL {
            servers.spawn(server)?;
        }
        for server in ALL {
            servers.wait_until_up(server)?;
        }
        Ok(servers)
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

    /// Sends a signal to a process and lets it be.
    pub(crate) fn signal(&self, server: Server, signal: Signal) -> anyhow::Result<()> {
        kill(self.pid(server)?, signal).with_context(|| format!("cannot signal {server}"))
    }

    pub(crate) fn pid(&self, server: Server) -> anyhow::Result<Pid> {
        let child = self.running.iter().find(|(running, _)| *running == server);
        let (_, child) = child.with_context(|| format!("{server} does not run"))?;
        Ok(Pid::from_raw(i32::try_from(child.id())?))
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
        let judges = [Server::B2b, Server::Controller, Server::Mediagate, Server::StandbyMediagate];
        judges.into_iter().all(|server| {
            let classes = ["driver_realtime", "mediagate_worker_realtime"];
            classes.into_iter().all(|name| figure(server, name).is_none_or(|value| value == "1"))
        })
    }

    fn spawn(&mut self, server: Server) -> anyhow::Result<()> {
        let name = server.name();
        let config = self.dir.join(format!("{name}.toml"));
        fs::write(&config, server.config(self.realtime))?;
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
            self.check().is_err() || get(server.http(), "/healthz").is_ok()
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
    let text = get(server.http(), "/metrics").ok()?;
    text.lines().find_map(|line| {
        let (sample, value) = line.rsplit_once(' ')?;
        (sample.split('{').next() == Some(name)).then(|| value.to_owned())
    })
}

/// Fetches a page from a process; fails unless its status is 200.
fn get(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_millis(200))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    if !page.starts_with("HTTP/1.1 200") {
        bail!("{address}{path} says {}", page.lines().next().unwrap_or_default());
    }
    Ok(page)
}
