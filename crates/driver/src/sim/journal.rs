//! Lines that nodes ask to have written.

use std::time::Duration;

use super::random::Random;
use super::{Event, Sim, Watch, nanos};
use crate::node::{Input, Node, NodeId};

/// What becomes of a node's lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pen {
    /// They are written, within 20 ms and in order.
    #[default]
    Writes,
    /// Nobody reads them: 16 wait, and those beyond are lost.
    Stalls,
    /// They cannot be written and are lost.
    Fails,
}

/// The lines of one node in all its lives.
#[derive(Default)]
pub(super) struct Journal {
    pen: Pen,
    written: Vec<String>,
    waiting: Vec<(u64, String)>,
    /// When the last line that is under way is written.
    last_at: u64,
}

impl Journal {
    /// What waits ends with its process; what is under way is held to its boot.
    pub(super) fn forget(&mut self) {
        self.waiting.clear();
    }
}

impl<N: Node> Sim<N> {
    /// Lets another thing become of a node's lines from now on.
    pub fn set_pen(&mut self, id: NodeId, pen: Pen) {
        let node = self.place(id);
        self.nodes[node].journal.pen = pen;
        for (number, line) in std::mem::take(&mut self.nodes[node].journal.waiting) {
            self.write_line(node, number, line);
        }
    }

    /// Returns the lines that a node has written in all its lives.
    pub fn lines(&self, id: NodeId) -> &[String] {
        &self.nodes[self.place(id)].journal.written
    }

    pub(super) fn write_line(&mut self, node: usize, number: u64, line: String) {
        let boot = self.nodes[node].boot;
        let journal = &mut self.nodes[node].journal;
        match journal.pen {
            Pen::Writes => {
                // Of its own, so that a line more changes nothing else of a run.
                let mut dice = Random::new(self.now ^ number << 32);
                let at = self.now + dice.below(nanos(GROUP));
                journal.last_at = journal.last_at.max(at);
                let at = journal.last_at;
                self.calendar.schedule(at, Event::Line { node, boot, number, line });
            }
            Pen::Stalls if journal.waiting.len() < WAITING_MAX => {
                journal.waiting.push((number, line));
            }
            Pen::Stalls | Pen::Fails => {
                self.tell_later(node, self.now, Input::Unwritten { number });
            }
        }
    }

    /// A line has left its process, whether that goes on or hangs.
    pub(super) fn line_written(
        &mut self,
        node: usize,
        boot: u64,
        number: u64,
        line: String,
        watch: Watch<'_>,
    ) -> bool {
        let slot = &mut self.nodes[node];
        if slot.boot != boot || slot.node.is_none() {
            return false;
        }
        slot.journal.written.push(line);
        self.dispatch(Event::Tell { node, boot, input: Input::Written { number } }, watch)
    }
}

/// What is said within this time is written together.
const GROUP: Duration = Duration::from_millis(20);
/// How many lines wait where nobody reads them.
const WAITING_MAX: usize = 16;
