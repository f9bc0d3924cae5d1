//! One limit over three sites: real processes, real calls, and the tables of the document.
//!
//! `cargo run --release --example islands` starts three segments, each a gate, a pair of RMs and a
//! mediagate, lets phones fill every limit of a tree of tenants, and shows how the limits are divided
//! anew: evenly, by weights, without a segment, with it again, in two islands, whole again, and with a
//! cold site. Beside what the document says stand the targets, the caps and the use that the RMs tell.
//! It exits with 0 if every target was met, with 1 if one was missed, with 2 if it could not measure.

mod islands {
    pub(crate) mod args;
    pub(crate) mod cable;
    pub(crate) mod cluster;
    pub(crate) mod layout;
    pub(crate) mod phones;
    pub(crate) mod readings;
    pub(crate) mod report;
    pub(crate) mod show;
    pub(crate) mod stages;
    pub(crate) mod tables;
    pub(crate) mod tree;
}

use std::process::ExitCode;

use clap::Parser;
use examples::account::Account;

use islands::args::Args;
use islands::report::{Missed, Report};
use islands::show;

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match &args.child {
        Some(child) => child.run().map(|()| true),
        None => islands(&args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln_error(&error);
            ExitCode::from(2)
        }
    }
}

/// Shows everything; returns whether every target was met.
fn islands(args: &Args) -> anyhow::Result<bool> {
    let account = Account::new(args.json);
    let mut report = Report::new(args);
    let ran = show::run(args, &account, &mut report);
    account.table(&report.table());
    match ran {
        Err(error) if !error.is::<Missed>() => return Err(error),
        Ok(()) | Err(_) => {}
    }
    if args.json {
        account.json(&report)?;
    }
    Ok(report.is_met())
}

#[expect(clippy::print_stderr, reason = "a command tells its user why it failed")]
fn eprintln_error(error: &anyhow::Error) {
    eprintln!("islands: {error:#}");
}
