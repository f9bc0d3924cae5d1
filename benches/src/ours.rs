//! Our own programs, as processes of their own.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Serialize;

use crate::child::Child;
use crate::forward::loopback;
use crate::peers;

/// The node id of a gateway.
pub(crate) const GATEWAY: u16 = 31;

const RM: Ipv4Addr = loopback(2, 1);
const B2B: Ipv4Addr = loopback(2, 4);
const MEDIA: Ipv4Addr = loopback(2, 5);
const STANDBY: Ipv4Addr = loopback(2, 6);

/// Where the first b2b of the layouts with one apart tells its figures.
pub(crate) const B2B_HTTP: SocketAddrV4 = SocketAddrV4::new(B2B, 9101);

/// What to be.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The configuration file.
    #[arg(long)]
    pub(crate) config: PathBuf,
}

/// How the roles are spread over processes, beside one media gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Layout {
    /// gate, b2b and controller in one process.
    One,
    /// The gate apart from b2b and controller.
    Three,
    /// The same, and a second b2b to which the first copies its records.
    #[value(skip)]
    Standby,
    /// As [`Layout::Three`], with a store.
    #[value(skip)]
    Stored,
    /// The same with a limit at a profile and two tenants.
    #[value(skip)]
    Limits,
}

/// Starts a media gateway with one worker; `link` is where it listens for links.
pub(crate) fn mediagate(
    folder: &Path,
    link: SocketAddrV4,
    core: Option<usize>,
) -> anyhow::Result<Child> {
    let ip = link.ip();
    let config = format!(
        r#"
[node]
id = {GATEWAY}
host = "media"
address = "{ip}"
[links]
listen = "{link}"
plaintext = true
[log]
level = "warn,driver=info,rm::node=info"
[beat]
listen = "{ip}:7231"
[media]
listen = "{ip}"
ports = "10000-32767"
workers = 1
"#
    );
    start("mediagate", "mediagate", &config, folder, core)
}

/// Starts all roles and a gateway, which stands last; every call goes on to `callee`.
///
/// Phones call port 5060 of the first loopback address of net 2.
pub(crate) fn system(
    layout: Layout,
    folder: &Path,
    callee: SocketAddrV4,
    core: Option<usize>,
) -> anyhow::Result<Vec<Child>> {
    let media = mediagate(folder, SocketAddrV4::new(MEDIA, 7131), core)?;
    let mut processes = Vec::new();
    match layout {
        Layout::One => {
            let roles = r#""gate", "b2b", "controller""#;
            let config = node(1, RM, roles) + &listener() + &route(callee) + &gateway();
            processes.push(start("rm", "rm", &config, folder, core)?);
        }
        Layout::Three | Layout::Standby | Layout::Stored | Layout::Limits => {
            let pair = layout == Layout::Standby;
            let mut gate = node(1, RM, r#""gate""#) + &listener() + &first_b2b();
            let mut b2b = node(2, B2B, r#""b2b", "controller""#)
                + &format!("[http]\nlisten = \"{B2B_HTTP}\"\n")
                + &peer(1, r#""gate""#, RM)
                + &route(callee)
                + &gateway();
            if matches!(layout, Layout::Stored | Layout::Limits) {
                b2b += &store(folder)?;
            }
            if layout == Layout::Limits {
                b2b = limited(&b2b, folder)?;
            }
            if pair {
                gate += &second_b2b();
                b2b += &second_b2b();
            }
            processes.push(start("gate", "rm", &gate, folder, core)?);
            processes.push(start("b2b", "rm", &b2b, folder, core)?);
            if pair {
                let standby = node(3, STANDBY, r#""b2b""#)
                    + "[b2b]\nstandby = true\n"
                    + &peer(1, r#""gate""#, RM)
                    + &first_b2b()
                    + &route(callee)
                    + &gateway();
                processes.push(start("standby", "rm", &standby, folder, core)?);
            }
        }
    }
    processes.push(media);
    let answers = peers::wait_for_sip(SocketAddrV4::new(RM, 5060));
    processes.iter_mut().try_for_each(Child::check)?;
    answers?;
    // The gateway's port numbers rest for 2 s before their first use.
    std::thread::sleep(Duration::from_millis(2500));
    processes.iter_mut().try_for_each(Child::check)?;
    Ok(processes)
}

fn node(id: u16, ip: Ipv4Addr, roles: &str) -> String {
    format!(
        r#"
[node]
id = {id}
host = "{ip}"
address = "{ip}"
roles = [{roles}]
[segment]
key = "68f4a1d2c07b935e"
[links]
listen = "{ip}:7101"
plaintext = true
[log]
level = "warn,driver=info,rm::node=info"
"#
    )
}

/// An empty store.
fn store(folder: &Path) -> anyhow::Result<String> {
    let path = folder.join("store");
    if path.exists() {
        std::fs::remove_dir_all(&path)?;
    }
    Ok(format!("[store]\npath = \"{}\"\n", path.display()))
}

/// Makes a b2b the only node of a cluster in which each call counts three times.
fn limited(config: &str, folder: &Path) -> anyhow::Result<String> {
    let path = folder.join("cluster.toml");
    std::fs::write(
        &path,
        format!(
            r#"
version = 1
[[segment]]
id = 1
site = "here"
sip = ["{RM}:5060"]
nodes = [{{ rm = 1, id = 2 }}]
[[tenant]]
name = "all"
calls = 100000
[[tenant]]
name = "shop"
parent = "all"
calls = 100000
default_profile = "orders"
[[profile]]
name = "orders"
tenant = "shop"
calls = 100000
[[gateway]]
network = "127.0.0.0/8"
tenant = "shop"
"#
        ),
    )?;
    let part = format!(
        "[cluster]\ndocument = \"{}\"\n[segment]\nid = 1\nsite = \"here\"\n",
        path.display()
    );
    Ok(config.replace("[segment]\n", &part))
}

fn peer(id: u16, roles: &str, ip: Ipv4Addr) -> String {
    format!("[[peer]]\nid = {id}\nroles = [{roles}]\nlink = \"{ip}:7101\"\n")
}

fn first_b2b() -> String {
    peer(2, r#""b2b", "controller""#, B2B) + &format!("host = \"{B2B}\"\n")
}

fn second_b2b() -> String {
    peer(3, r#""b2b""#, STANDBY) + &format!("host = \"{STANDBY}\"\nstandby = true\n")
}

fn gateway() -> String {
    format!("[[peer]]\nid = {GATEWAY}\nroles = [\"mediagate\"]\nlink = \"{MEDIA}:7131\"\n")
}

fn listener() -> String {
    format!("[[listener]]\ntransport = \"udp\"\nlisten = \"{RM}:5060\"\n")
}

fn route(callee: SocketAddrV4) -> String {
    format!("[[route]]\nprefix = \"\"\ntargets = [\"{callee}\"]\n")
}

/// Starts this program again as one of ours, so that one command measures them.
fn start(
    name: &'static str,
    program: &str,
    config: &str,
    folder: &Path,
    core: Option<usize>,
) -> anyhow::Result<Child> {
    let path = folder.join(format!("{name}.toml"));
    std::fs::write(&path, config)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(program).arg("--config").arg(path);
    let mut child = Child::start(name, &mut command, folder, core)?;
    child.check()?;
    Ok(child)
}
