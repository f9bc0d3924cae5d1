//! What the user asks for.

use std::path::PathBuf;

use clap::Parser;
use examples::child::Child;

/// Divides the limits of a tree of tenants over three segments of real processes, fills them with
/// calls, and prints the document's tables beside what the segments do.
#[derive(Debug, Parser)]
#[command(name = "islands")]
pub(crate) struct Args {
    /// How many times the third segment dies.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub(crate) kills: u32,
    /// Decides the phones' tags and branches.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Prints one JSON object on standard output, and the account on standard error.
    #[arg(long)]
    pub(crate) json: bool,
    /// Uses `holdline-rm` and `holdline-mediagate` from this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) bin_dir: Option<PathBuf>,
    /// Makes limits of time N times as wide, for machines with other work. Counts of calls, shares and
    /// messages stay as they are.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10))]
    pub(crate) slack: u32,
    #[command(subcommand)]
    pub(crate) child: Option<Child>,
}
