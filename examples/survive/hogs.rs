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
