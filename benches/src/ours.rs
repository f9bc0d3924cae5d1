//! Our own programs, as processes of their own.

use std::net::SocketAddrV4;
use std::path::Path;
use std::process::Command;

use crate::child::Child;
use crate::dealer;

/// Starts a media gateway with one worker; `link` is where it listens for links.
pub(crate) fn mediagate(
    folder: &Path,
    link: SocketAddrV4,
    core: Option<usize>,
) -> anyhow::Result<Child> {
    let ip = link.ip();
    let config = format!(
        "[node]\nid = {id}\nhost = \"media\"\naddress = \"{ip}\"\n\
         [links]\nlisten = \"{link}\"\nplaintext = true\n\
         [log]\nlevel = \"warn\"\n\
         [beat]\nlisten = \"{ip}:7231\"\n\
         [media]\nlisten = \"{ip}\"\nports = \"10000-32767\"\nworkers = 1\n",
        id = dealer::GATEWAY,
    );
    start("mediagate", &config, folder, core)
}

/// Starts one of our programs: this one, told to be that.
fn start(
    name: &'static str,
    config: &str,
    folder: &Path,
    core: Option<usize>,
) -> anyhow::Result<Child> {
    let path = folder.join(format!("{name}.toml"));
    std::fs::write(&path, config)?;
    let program = std::env::current_exe()?.with_file_name(format!("holdline-{name}"));
    let mut child =
        Child::start(name, Command::new(program).arg("--config").arg(path), folder, core)?;
    child.check()?;
    Ok(child)
}
