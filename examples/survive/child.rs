//! What the example is when it has started itself again.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::Context as _;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use crate::survive::args::Child;

/// Is that process until it ends, at the latest with its parent.
pub(crate) fn run(child: &Child) -> anyhow::Result<()> {
    set_pdeathsig(Signal::SIGKILL)?;
    match child {
        Child::Rm { config } => rm::serve(config),
        Child::Mediagate { config } => mediagate::serve(config),
        Child::Installed { program, config } => {
            let error = Command::new(program).arg("--config").arg(config).exec();
            Err(error).with_context(|| format!("cannot start {}", program.display()))
        }
        Child::Hog => burn(),
    }
}

/// Takes all the time it can get.
fn burn() -> ! {
    let mut number = 1_u64;
    loop {
        number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005) + 1);
    }
}
