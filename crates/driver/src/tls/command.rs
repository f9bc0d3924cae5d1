//! The command `certificates`, which every program has.

use std::error::Error;
use std::io::{Write as _, stdout};
use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, value_parser};

use super::authority::{DAYS, DAYS_MAX, issue};
use crate::node::NodeId;
use crate::run::unix_ms;

/// The word for it.
pub(crate) const NAME: &str = "certificates";

/// Returns what it takes.
pub(crate) fn command() -> Command {
    let folder = Arg::new(FOLDER)
        .value_name("DIR")
        .value_parser(value_parser!(PathBuf))
        .required(true)
        .help("Where the files are; nothing in it is overwritten");
    let nodes = Arg::new(NODES)
        .long("nodes")
        .value_name("ID,ID,…")
        .value_delimiter(',')
        .value_parser(value_parser!(u16).range(1..))
        .required(true)
        .help("The ids of the nodes");
    let days = Arg::new(VALID)
        .long("days")
        .value_name("N")
        .value_parser(value_parser!(u32).range(1..=i64::from(DAYS_MAX)))
        .help(format!("How long a certificate holds: {DAYS} days unless told otherwise"));
    Command::new(NAME)
        .about("Makes certificates and keys for node links, and their authority if there is none")
        .arg(folder)
        .arg(nodes)
        .arg(days)
}

/// Makes what was asked for, and says which files that is.
pub(crate) fn run(arguments: &ArgMatches) -> Result<(), Box<dyn Error + Send + Sync>> {
    let folder: &PathBuf = arguments.get_one(FOLDER).expect("the argument is required");
    let nodes: Vec<NodeId> =
        arguments.get_many(NODES).into_iter().flatten().copied().map(NodeId).collect();
    let days = arguments.get_one(VALID).copied().unwrap_or(DAYS);
    for files in issue(folder, &nodes, days, unix_ms())? {
        let (certificate, key) = (files.certificate.display(), files.key.display());
        writeln!(stdout(), "{certificate} {key}")?;
    }
    Ok(())
}

const FOLDER: &str = "folder";
const NODES: &str = "nodes";
const VALID: &str = "days";
