//! The programs we are measured against, installed by the machine's packager.

use std::fs::File;
use std::net::{SocketAddrV4, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::fcntl::{Flock, FlockArg};

use crate::child::Child;
use crate::forward::loopback;
use crate::ng;

const KAMAILIO: &str = include_str!("../peers/kamailio.cfg");
const MODULES: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/kamailio/modules/",
    "/usr/lib/aarch64-linux-gnu/kamailio/modules/",
    "/usr/lib/kamailio/modules/",
];

/// Where rtpengine takes orders.
pub(crate) const NG: SocketAddrV4 = SocketAddrV4::new(loopback(1, 1), 2223);

/// Starts rtpengine in user space; it frees ports as soon as a call ends.
pub(crate) fn rtpengine(
    folder: &Path,
    threads: usize,
    core: Option<usize>,
) -> anyhow::Result<(Child, ng::Client)> {
    let mut command = Command::new("rtpengine");
    command.args(["--table=-1", "--foreground", "--log-stderr", "--log-level=3"]);
    command.args(["--port-min=10000", "--port-max=60000", "--delete-delay=0"]);
    command.arg(format!("--interface={}", NG.ip()));
    command.arg(format!("--listen-ng={NG}"));
    command.arg(format!("--num-threads={threads}"));
    command.arg(format!("--pidfile={}", folder.join("rtpengine.pid").display()));
    let mut child = Child::start("rtpengine", &mut command, folder, core)?;
    let client = ng::Client::connect(NG);
    child.check()?;
    Ok((child, client?))
}

/// Starts Kamailio at `address`; it sends every call on to `callee`.
pub(crate) fn kamailio(
    folder: &Path,
    address: SocketAddrV4,
    callee: SocketAddrV4,
    children: usize,
    core: Option<usize>,
) -> anyhow::Result<Child> {
    let modules = MODULES.iter().find(|path| Path::new(path).exists());
    let modules = modules.context("Kamailio's modules are not installed")?;
    let config = KAMAILIO
        .replace("@ADDRESS@", &address.ip().to_string())
        .replace("@NG@", &NG.to_string())
        .replace("@CALLEE@", &callee.to_string())
        .replace("@CHILDREN@", &children.to_string())
        .replace("@MODULES@", modules);
    let path = folder.join("kamailio.cfg");
    std::fs::write(&path, config)?;
    let mut command = Command::new("kamailio");
    command.args(["-DD", "-E", "-m", "1024", "-M", "16"]);
    command.arg("-f").arg(&path).arg("-w").arg(folder).arg("-Y").arg(folder);
    let mut child = Child::start("kamailio", &mut command, folder, core)?;
    let answers = wait_for_sip(address);
    child.check()?;
    answers?;
    Ok(child)
}

/// Waits until something at `address` answers OPTIONS with 200.
pub(crate) fn wait_for_sip(address: SocketAddrV4) -> anyhow::Result<()> {
    let socket = UdpSocket::bind((*address.ip(), 0))?;
    let own = socket.local_addr()?;
    socket.connect(address)?;
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    let until = Instant::now() + Duration::from_secs(15);
    for number in 1.. {
        let message = format!(
            "OPTIONS sip:{address} SIP/2.0\r\n\
             Via: SIP/2.0/UDP {own};branch=z9hG4bK-probe-{number};rport\r\n\
             Max-Forwards: 70\r\nFrom: <sip:probe@{own}>;tag=probe\r\nTo: <sip:{address}>\r\n\
             Call-ID: probe-{number}@{own}\r\nCSeq: 1 OPTIONS\r\nContact: <sip:probe@{own}>\r\n\
             Content-Length: 0\r\n\r\n"
        );
        // Refused while nobody listens yet.
        let answered =
            socket.send(message.as_bytes()).is_ok() && socket.recv(&mut [0; 4096]).is_ok();
        if answered {
            return Ok(());
        }
        if until <= Instant::now() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    bail!("nothing answers SIP at {address}");
}

/// A folder for configs and logs; removed at the end unless something failed.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    keep: bool,
    /// Held so that no other run measures, or takes our addresses, at the same time.
    _alone: Flock<File>,
}

impl Scratch {
    /// Waits until no other run measures on this machine; makes an empty folder.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("holdline-benches-{}", std::process::id()));
        std::fs::create_dir_all(&path)
            .with_context(|| format!("cannot make {}", path.display()))?;
        // All runs of the machine share it, and nothing is left behind.
        let lock = File::open("/")?;
        let alone = Flock::lock(lock, FlockArg::LockExclusive)
            .map_err(|(_, error)| error)
            .context("cannot wait for other runs")?;
        Ok(Self { path, keep: false, _alone: alone })
    }

    /// Returns where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps a copy of what is in the folder now; returns where.
    pub(crate) fn keep_copy(&self) -> anyhow::Result<PathBuf> {
        let copy = (1..).map(|number| self.path.with_extension(number.to_string()));
        let copy = copy.into_iter().find(|copy| !copy.exists()).unwrap_or_default();
        copy_folder(&self.path, &copy)?;
        Ok(copy)
    }

    /// Keeps the folder for whoever looks into the failure.
    pub(crate) fn keep(&mut self) {
        self.keep = true;
    }
}

/// Copies a folder with all that is in it.
fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let copy = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &copy)?;
        } else {
            std::fs::copy(entry.path(), copy)?;
        }
    }
    Ok(())
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_a_folder_has_what_the_folders_in_it_have() {
        let scratch = std::env::temp_dir().join(format!("holdline-copy-{}", std::process::id()));
        let (from, to) = (scratch.join("from"), scratch.join("to"));
        std::fs::create_dir_all(from.join("store/deep")).unwrap();
        std::fs::write(from.join("rm.log"), "a").unwrap();
        std::fs::write(from.join("store/deep/records"), "b").unwrap();

        let copied = copy_folder(&from, &to);
        let read = ["rm.log", "store/deep/records"].map(|name| std::fs::read(to.join(name)));
        let _ = std::fs::remove_dir_all(&scratch);

        copied.unwrap();
        assert_eq!(read.map(Result::unwrap), [b"a".to_vec(), b"b".to_vec()]);
    }
}
