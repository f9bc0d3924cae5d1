#![doc = include_str!("../README.md")]

mod b2b_role;
mod beats;
mod clocks;
pub mod cluster;
mod config;
mod figures;
pub mod frames;
mod journal;
mod kept;
mod mediagates;
mod membership;
mod node;
mod pulses;

use std::collections::BTreeMap;
use std::io::{Write as _, stderr};
use std::net::SocketAddr;
use std::path::Path;

use cluster::ClusterDocument;
use cluster::document::Harm;
use driver::config::{Fault, load, without_mark};
use driver::http::Token;

pub use config::{ClusterConfig, Config, ListenerConfig, Peer, PeerRoles, Roles};
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

/// Says everything that is wrong in the file: the configuration of a process, or, where `version`
/// stands at its top or segments and tenants are listed without a node, a cluster document.
///
/// # Errors
/// Everything that is wrong in the file.
pub fn check(file: &Path) -> anyhow::Result<()> {
    let text = load(file, |text| Ok(text.to_owned()))?;
    if is_document(&text) {
        let document = load(file, ClusterDocument::parse)?;
        warn(file, &document);
        doubt(file, &document);
    } else {
        load(file, Config::parse)?;
    }
    Ok(())
}

/// Whether a text is a cluster document and not the configuration of a process.
fn is_document(text: &str) -> bool {
    let lines = || without_mark(text).lines().map(str::trim_start);
    let has = |table: &str| lines().any(|line| line.starts_with(table));
    let mut top = lines().take_while(|line| !line.starts_with('['));
    top.any(|line| line.starts_with("version"))
        || !has("[node]") && (has("[[segment]]") || has("[[tenant]]"))
}

/// Tells what is sound in a document but probably not meant.
fn warn(file: &Path, document: &ClusterDocument) {
    for Fault { line, text } in &document.warnings {
        // Nobody is left to tell should this fail.
        let _ = writeln!(stderr(), "{}: line {line}: warning: {text}", file.display());
    }
}

/// Tells what the process that is given a document would refuse without force, whatever cluster it is of. What no
/// force helps, without a node that runs, the document's reader has refused.
fn doubt(file: &Path, document: &ClusterDocument) {
    for Harm { fault: Fault { line, text }, .. } in document.harms(None, &BTreeMap::new()) {
        let _ = writeln!(stderr(), "{}: line {line}: warning: {text}", file.display());
    }
}

/// Tells the process that runs with this file to drain, as SIGTERM does.
///
/// # Errors
/// Everything that is wrong in the file, or why the process does not take the order.
pub fn drain(file: &Path) -> anyhow::Result<()> {
    let (addr, token) = orders(file)?;
    Ok(driver::http::drain(addr, &token)?)
}

/// Gives a cluster document to the process that runs with the configuration `file`, which stores it and
/// spreads it to every other node; with `force` whatever harm it does, as far as that may be meant.
///
/// # Errors
/// Everything that is wrong in either, or why the process does not take the document: its version must
/// be higher than that in force, and it must do no harm to what runs.
pub fn apply(document: &Path, file: &Path, force: bool) -> anyhow::Result<()> {
    let (addr, token) = orders(file)?;
    let path = document;
    let document = load(path, ClusterDocument::parse)?;
    warn(path, &document);
    let by_force = format!("{DOCUMENT_PATH}?{FORCE}");
    let at = if force { &by_force } else { DOCUMENT_PATH };
    let answer = driver::http::put(addr, &token, at, document.text.as_bytes())?;
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap_or_default();
    for warning in answer["warnings"].as_array().into_iter().flatten() {
        let text = warning.as_str().unwrap_or_default();
        let _ = writeln!(stderr(), "{}: warning: {text}", path.display());
    }
    Ok(())
}

/// Returns where the process with this file takes orders, and what it must be shown.
fn orders(file: &Path) -> anyhow::Result<(SocketAddr, Token)> {
    let config = load(file, Config::parse)?;
    let (Some(http), Some(token)) = (config.http, config.token) else {
        anyhow::bail!("{}: [http] has to name `listen` and `token` for orders", file.display());
    };
    Ok((http, token))
}

/// Where a document is put, below `/api/v1/`.
pub const DOCUMENT_PATH: &str = "cluster/document";

/// The query with which it is taken whatever harm it does, as far as that may be meant.
pub const FORCE: &str = "force";
