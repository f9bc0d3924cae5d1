//! Details of calls on their way out of the process.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use b2bua::Detail;
use driver::Output;
use failover::{CallId, SlotSet};
use tracing::{error, info, warn};

use crate::journal;

/// Details that are to be written, until it is known that they are. One that was lost on its way is
/// tried again as long as its slot is ours.
#[derive(Debug, Default)]
pub(crate) struct Details {
    /// They go into files of their own, not into the log.
    pub(crate) has_files: bool,
    /// The number that was given last.
    last: u64,
    /// What became of them is not known yet.
    writing: BTreeMap<u64, Box<Detail>>,
    /// They were lost on their way.
    refused: VecDeque<Box<Detail>>,
    /// When these are tried again.
    again_at: Option<Instant>,
    /// The operator was told that nothing is written.
    is_in_trouble: bool,
    /// Since when nothing but these keeps the process from ending, and whether that was said.
    kept_since: Option<(Instant, bool)>,
    /// How many were given up, as too many waited.
    pub(crate) lost: u64,
    outputs: VecDeque<Output>,
}

impl Details {
    /// Has a detail written.
    pub(super) fn write(&mut self, detail: Box<Detail>) {
        self.last += 1;
        let object = journal::detail(&detail);
        let line = if self.has_files { object } else { format!("call ended {object}") };
        self.outputs.push_back(Output::Write { number: self.last, line });
        self.writing.insert(self.last, detail);
    }

    /// A line has left the process. Returns whose detail it is.
    pub(super) fn written(&mut self, number: u64) -> Option<CallId> {
        let detail = self.writing.remove(&number)?;
        if self.is_in_trouble && self.refused.is_empty() {
            self.is_in_trouble = false;
            info!("call details are written again");
        }
        Some(detail.call)
    }

    /// A line was lost. Returns whose detail is given up, if too many wait.
    pub(super) fn unwritten(&mut self, now: Instant, number: u64) -> Option<CallId> {
        self.refused.push_back(self.writing.remove(&number)?);
        self.again_at = Some(now + PAUSE);
        if !self.is_in_trouble {
            self.is_in_trouble = true;
            error!("call details cannot be written: they are kept and tried again");
        }
        if self.refused.len() <= REFUSED_MAX {
            return None;
        }
        self.lost += 1;
        self.refused.pop_front().map(|detail| detail.call)
    }

    /// Returns those that are to be tried again now.
    pub(super) fn due(&mut self, now: Instant) -> VecDeque<Box<Detail>> {
        if self.again_at.is_none_or(|at| now < at) {
            return VecDeque::new();
        }
        let left = self.refused.split_off(TRIED_MAX.min(self.refused.len()));
        let due = std::mem::replace(&mut self.refused, left);
        self.again_at = (!self.refused.is_empty()).then_some(now + NEXT);
        due
    }

    /// Leaves the details of these slots to their next owner.
    pub(super) fn forget(&mut self, slots: SlotSet) {
        self.writing.retain(|_, detail| !slots.contains(detail.slot));
        self.refused.retain(|detail| !slots.contains(detail.slot));
    }

    /// Returns the slots of those that are not known to be written.
    pub(super) fn slots(&self) -> SlotSet {
        self.writing.values().chain(&self.refused).map(|detail| detail.slot).collect()
    }

    /// Returns how many are not known to be written.
    pub(crate) fn waiting(&self) -> usize {
        self.writing.len() + self.refused.len()
    }

    /// Returns whether these keep a process from ending that has nothing else to do. Tells of it when that
    /// is for long.
    pub(super) fn keep_the_end(&mut self, now: Instant) -> bool {
        let waiting = self.waiting();
        if waiting == 0 {
            return false;
        }
        let (since, is_told) = self.kept_since.get_or_insert((now, false));
        if !*is_told && *since + PAUSE <= now {
            *is_told = true;
            warn!(
                waiting,
                "the end waits until details of calls are written; a second SIGTERM ends without them"
            );
        }
        true
    }

    pub(super) fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns when [`due`](Self::due) is next needed.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.again_at
    }
}

/// After a line was lost, nothing is tried again for so long, and so long an end waits without a word.
const PAUSE: Duration = Duration::from_secs(1);
/// Between what is tried again and the next part of it.
const NEXT: Duration = Duration::from_millis(100);
/// How many are tried again at a time.
const TRIED_MAX: usize = 256;
/// How many that were lost are kept, about 20 MB of them.
const REFUSED_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests;
