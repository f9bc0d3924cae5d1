//! Processes that take all the time they can get.

use std::process::{Child, Command, Stdio};

/// Busy processes until dropped.
#[derive(Debug)]
pub(crate) struct Hogs(Vec<Child>);

impl Hogs {
    pub(crate) fn start(count: u32) -> anyhow::Result<Self> {
        let mut hogs = Self(Vec::new());
        for _ in 0..count {
            let program = std::env::current_exe()?;
            hogs.0.push(Command::new(program).arg("hog").stdin(Stdio::null()).spawn()?);
        }
        Ok(hogs)
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            // Both fail only for a process that is gone.
            let _ = hog.kill();
            let _ = hog.wait();
        }
    }
}

/// Is such a process.
pub(crate) fn burn() -> anyhow::Result<bool> {
    let mut number = 1_u64;
    // Ends with its parent, should that be killed.
    let parent = nix::unistd::getppid();
    while nix::unistd::getppid() == parent {
        for _ in 0..1_000_000 {
            number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005) + 1);
        }
    }
    Ok(true)
}
