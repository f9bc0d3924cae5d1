//! The program `holdline-mediagate`.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Media gateway of Holdline: forwards the calls' RTP.
#[derive(Debug, Parser)]
#[command(name = "holdline-mediagate", version, args_conflicts_with_subcommands = true)]
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
        (Some(Command::Check { file }), _) => mediagate::check(&file),
        (None, Some(file)) => mediagate::serve(&file),
        (None, None) => unreachable!("clap requires one of both"),
    }
}
