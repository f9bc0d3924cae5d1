#![doc = include_str!("../README.md")]

mod b2b_role;
mod beats;
pub mod cluster;
mod config;
mod figures;
pub mod frames;
mod journal;
mod kept;
mod mediagates;
mod node;
mod pulses;

use std::path::Path;

use driver::config::load;

pub use config::{Config, ListenerConfig, Peer, PeerRoles, Roles};
pub use node::Rm;

/// Runs the process that the file describes, until it is told to end.
///
/// # Errors
/// Everything that is wrong in the file, or why the process cannot run or go on.
pub fn serve(file: &Path) -> anyhow::Result<()> {
    let config = load(file, Config::parse)?;
    driver::logging(&config.log);
    Ok(driver::run(&config.run(), |start| Rm::new(&config, &start))?)
}

/// Says everything that is wrong in the file.
///
/// # Errors
/// Everything that is wrong in the file.
pub fn check(file: &Path) -> anyhow::Result<()> {
    load(file, Config::parse)?;
    Ok(())
}

/// Tells the process that runs with this file to drain, as SIGTERM does.
///
/// # Errors
/// Everything that is wrong in the file, or why the process does not take the order.
pub fn drain(file: &Path) -> anyhow::Result<()> {
    let config = load(file, Config::parse)?;
    let (Some(http), Some(token)) = (config.http, &config.token) else {
        anyhow::bail!("{}: [http] has to name `listen` and `token` for orders", file.display());
    };
    Ok(driver::http::drain(http, token)?)
}
