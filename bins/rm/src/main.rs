//! The program `holdline-rm`.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Gate, back-to-back user agent and media gateway controller of Holdline.
#[derive(Debug, Parser)]
#[command(name = "holdline-rm", version, args_conflicts_with_subcommands = true)]
struct Args {
    /// The configuration file.
    #[arg(long, value_name = "FILE", required = true)]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Says everything that is wrong in a configuration file, and does nothing else.
    Check {
        /// The configuration file.
        file: PathBuf,
    },
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    match (args.command, args.config) {
        (Some(Command::Check { file }), _) => rm::check(&file),
        (None, Some(file)) => rm::serve(&file),
        (None, None) => unreachable!("clap requires one of both"),
    }
}
