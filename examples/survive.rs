//! Real calls through four servers' worth of processes, one of which dies.
//!
//! `cargo run --release --example survive` starts gates, b2bs, controllers and
//! mediagates as processes on 127.0.0.1 to 127.0.0.4, lets phones talk through
//! them, kills one role after the other, and tells from what the phones
//! themselves heard whether every call was kept. `--layout two` does so on two
//! servers; `--layout one` starts again what it has killed on the only one,
//! each part and then all of it. It exits with 0 if every
//! target was met, with 1 if one was missed, with 2 if it could not measure, with
//! 3 if that was because the machine has too much other work.

mod survive {
    pub(crate) mod args;
    pub(crate) mod controls;
    pub(crate) mod hogs;
    pub(crate) mod layout;
    pub(crate) mod outage;
    pub(crate) mod report;
    pub(crate) mod restart;
    pub(crate) mod servers;
    pub(crate) mod show;
    pub(crate) mod silence;
    pub(crate) mod stage;
    pub(crate) mod targets;
}

use std::process::ExitCode;

use clap::Parser;
use examples::account::Account;

use survive::args::Args;
use survive::report::Report;
use survive::show;
use survive::show::TooBusy;

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match &args.child {
        Some(child) => child.run().map(|()| true),
        None => survive(&args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln_error(&error);
            ExitCode::from(if error.is::<TooBusy>() { 3 } else { 2 })
        }
    }
}

/// Runs all outages; returns whether every target was met.
fn survive(args: &Args) -> anyhow::Result<bool> {
    let roles = args.roles()?;
    let account = Account::new(args.json);
    let mut report = Report::new(args);
    let ran = show::run(args, &roles, &account, &mut report);
    if !report.is_empty() {
        account.table(&report.table());
    }
    ran?;
    if args.json {
        account.json(&report.json())?;
    }
    Ok(report.is_met())
}

#[expect(clippy::print_stderr, reason = "a command tells its user why it failed")]
fn eprintln_error(error: &anyhow::Error) {
    eprintln!("survive: {error:#}");
}
