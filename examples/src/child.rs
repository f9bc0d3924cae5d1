//! What an example is when it has started itself again.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;
use clap::Subcommand;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

/// What a process that an example started is.
#[derive(Debug, Subcommand)]
pub enum Child {
    /// Signalling roles.
    #[command(hide = true)]
    Rm {
        /// The configuration file.
        config: PathBuf,
    },
    /// A media gateway.
    #[command(hide = true)]
    Mediagate {
        /// The configuration file.
        config: PathBuf,
    },
    /// An installed program.
    #[command(hide = true)]
    Installed {
        /// The program.
        program: PathBuf,
        /// The configuration file.
        config: PathBuf,
    },
    /// A busy loop.
    #[command(hide = true)]
    Hog,
}

impl Child {
    /// Is that process until it ends, at the latest with its parent.
    ///
    /// # Errors
    /// Why it cannot run or go on.
    pub fn run(&self) -> anyhow::Result<()> {
        set_pdeathsig(Signal::SIGKILL)?;
        match self {
            Self::Rm { config } => rm::serve(config),
            Self::Mediagate { config } => mediagate::serve(config),
            Self::Installed { program, config } => {
                let error = Command::new(program).arg("--config").arg(config).exec();
                Err(error).with_context(|| format!("cannot start {}", program.display()))
            }
            Self::Hog => burn(),
        }
    }
}

/// Takes all the time it can get.
fn burn() -> ! {
    let mut number = 1_u64;
    loop {
        number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005) + 1);
    }
}
