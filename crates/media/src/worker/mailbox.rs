//! What passes between the protocol thread and one worker.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use nix::sys::eventfd::{EfdFlags, EventFd};
use parking_lot::Mutex;

use super::{WorkerCommand, WorkerFigures};
use crate::frame::Notice;

/// Too many commands wait for this worker already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the worker has too many commands to obey")]
pub struct Full;

#[derive(Debug)]
pub(super) struct Mailbox {
    commands: Mutex<VecDeque<WorkerCommand>>,
    /// Readable while there may be commands.
    bell: EventFd,
    notices: Mutex<VecDeque<Notice>>,
    figures: Mutex<WorkerFigures>,
    turns: AtomicU64,
    /// The number of the worker's thread; 0 while it is not known.
    thread: AtomicU32,
}

impl Mailbox {
    pub(super) fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        Ok(Self {
            commands: Mutex::default(),
            bell: EventFd::from_value_and_flags(0, flags)?,
            notices: Mutex::default(),
            figures: Mutex::default(),
            turns: AtomicU64::new(0),
            thread: AtomicU32::new(0),
        })
    }

    pub(super) fn send(&self, command: WorkerCommand) -> Result<(), Full> {
        let mut commands = self.commands.lock();
        match command {
            WorkerCommand::Apply { .. } if COMMANDS_MAX <= commands.len() => return Err(Full),
            WorkerCommand::Apply { .. } | WorkerCommand::Close { .. } => {}
        }
        let first = commands.is_empty();
        commands.push_back(command);
        drop(commands);
        if first {
            self.ring();
        }
        Ok(())
    }

    pub(super) fn poll(&self) -> Option<Notice> {
        self.notices.lock().pop_front()
    }

    pub(super) fn figures(&self) -> WorkerFigures {
        *self.figures.lock()
    }

    pub(super) fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// Says which thread the worker is.
    pub(super) fn runs_in(&self, thread: u32) {
        self.thread.store(thread, Ordering::Relaxed);
    }

    pub(super) fn thread(&self) -> Option<u32> {
        Some(self.thread.load(Ordering::Relaxed)).filter(|thread| *thread != 0)
    }

    /// Wakes the worker.
    pub(super) fn ring(&self) {
        // It fails only when the counter is near its end, and then it is readable anyway.
        let _ = self.bell.write(1);
    }

    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Silences the bell, before [`Mailbox::take`].
    pub(super) fn answer(&self) {
        let _ = self.bell.read();
    }

    /// Moves up to `max` commands into `into`. Returns whether more are left.
    pub(super) fn take(&self, max: usize, into: &mut Vec<WorkerCommand>) -> bool {
        let mut commands = self.commands.lock();
        let count = max.min(commands.len());
        into.extend(commands.drain(..count));
        !commands.is_empty()
    }

    /// Puts a notice where the owner finds it. Returns whether it is the only one there; `None` if it was dropped:
    /// what is learned about a source comes again, the rest cannot be more than there are legs.
    pub(super) fn tell(&self, notice: Notice) -> Option<bool> {
        let mut notices = self.notices.lock();
        if matches!(notice, Notice::Latched(_)) && NOTICES_MAX <= notices.len() {
            return None;
        }
        notices.push_back(notice);
        Some(notices.len() == 1)
    }

    pub(super) fn publish(&self, figures: WorkerFigures) {
        *self.figures.lock() = figures;
    }

    pub(super) fn turn(&self) {
        // One writer, so no read-modify-write is needed.
        self.turns.store(self.turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// As many as a gateway can have calls.
const COMMANDS_MAX: usize = 16_384;

/// Notices about sources that may wait.
const NOTICES_MAX: usize = 16_384;
