//! Where the lines go that a node asks to have written: into the log, or into a folder of their own.

use std::io;
use std::path::Path;

use crate::logging::write_line;
use crate::metrics::Metrics;
use crate::receipt::Receipt;
use crate::spool::{Bounds, Spool};

/// Takes a node's lines.
#[derive(Debug)]
pub(crate) struct Journal(Option<Spool<Line>>);

#[derive(Debug)]
struct Line {
    text: String,
    receipt: Receipt,
}

impl Journal {
    /// Writes into files in `folder`, or into the log without one.
    ///
    /// # Errors
    /// When there can be no thread.
    pub(crate) fn open(folder: Option<&Path>) -> io::Result<Self> {
        let Some(folder) = folder else { return Ok(Self(None)) };
        let render = |line: &Line, out: &mut String| out.push_str(&line.text);
        let spool =
            Spool::open_synced(folder, Bounds::default(), render, |line| line.receipt.written())?;
        Ok(Self(Some(spool)))
    }

    /// Has a line written; the receipt says what became of it.
    pub(crate) fn write(&self, text: String, receipt: Receipt) {
        match &self.0 {
            Some(spool) => spool.put(Line { text, receipt }),
            None => write_line(&text, receipt),
        }
    }

    pub(crate) fn metrics(&self, out: &mut Metrics) {
        let Some(spool) = &self.0 else { return };
        let help = "Lines of the node's journal that are on disk for whoever takes them.";
        out.counter("driver_journal_lines_total", help, &[], spool.written());
        let help = "Lines that found no room there; the node was told so.";
        out.counter("driver_journal_refused_total", help, &[], spool.dropped());
    }
}
