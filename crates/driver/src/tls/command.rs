//! The command `certificates`, which every program has.

use std::error::Error;
use std::io::{Write as _, stdout};
use std::path::PathBuf;

use clap::{Arg, ArgGroup, ArgMatches, Command, value_parser};

use super::Domain;
use super::authority::{DAYS, DAYS_MAX, issue, issue_sip};
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
        .help("The ids of the nodes, for their links");
    let domains = Arg::new(DOMAINS)
        .long("sip")
        .value_name("NAME,NAME,…")
        .value_delimiter(',')
        .value_parser(value_parser!(Domain))
        .help("Names or addresses of hosts, for their SIP over TLS");
    let days = Arg::new(VALID)
        .long("days")
        .value_name("N")
        .value_parser(value_parser!(u32).range(1..=i64::from(DAYS_MAX)))
        .help(format!("How long a certificate holds: {DAYS} days unless told otherwise"));
    Command::new(NAME)
        .about("Makes certificates and keys, and their authority if there is none")
        .arg(folder)
        .group(ArgGroup::new("who").args([NODES, DOMAINS]).required(true).multiple(true))
        .arg(nodes)
        .arg(domains)
        .arg(days)
}

/// Makes what was asked for, and says which files that is.
pub(crate) fn run(arguments: &ArgMatches) -> Result<(), Box<dyn Error + Send + Sync>> {
    let folder: &PathBuf = arguments.get_one(FOLDER).expect("the argument is required");
    let nodes: Vec<NodeId> =
        arguments.get_many(NODES).into_iter().flatten().copied().map(NodeId).collect();
    let domains: Vec<Domain> = arguments.get_many(DOMAINS).into_iter().flatten().cloned().collect();
    let days = arguments.get_one(VALID).copied().unwrap_or(DAYS);
    let links = issue(folder, &nodes, days, unix_ms())?;
    let sip = issue_sip(folder, &domains, days, unix_ms())?;
    let links = links.iter().map(|files| (&files.certificate, &files.key));
    for (certificate, key) in links.chain(sip.iter().map(|files| (&files.certificate, &files.key)))
    {
        writeln!(stdout(), "{} {}", certificate.display(), key.display())?;
    }
    Ok(())
}

const FOLDER: &str = "folder";
const NODES: &str = "nodes";
const DOMAINS: &str = "sip";
const VALID: &str = "days";
