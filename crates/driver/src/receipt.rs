//! Says of each line that a node asked to have written what became of it.

use std::sync::Arc;
use std::task::Waker;

use parking_lot::Mutex;

use crate::node::Input;

/// What became of a node's lines, until the loop looks.
#[derive(Debug)]
pub(crate) struct Receipts {
    ends: Mutex<Vec<Input>>,
    waker: Waker,
}

impl Receipts {
    /// `waker` is used when there is something after there was nothing.
    pub(crate) fn new(waker: Waker) -> Arc<Self> {
        Arc::new(Self { ends: Mutex::new(Vec::new()), waker })
    }

    /// Returns what has become known, in order.
    pub(crate) fn take(&self) -> Vec<Input> {
        std::mem::take(&mut *self.ends.lock())
    }

    fn add(&self, end: Input) {
        let mut ends = self.ends.lock();
        ends.push(end);
        if ends.len() == 1 {
            drop(ends);
            self.waker.wake_by_ref();
        }
    }
}

/// Goes with one line wherever that goes. One that is dropped says that the line is lost.
#[derive(Debug)]
pub(crate) struct Receipt {
    number: u64,
    is_written: bool,
    to: Arc<Receipts>,
}

impl Receipt {
    /// For the line with this number.
    pub(crate) fn new(number: u64, to: &Arc<Receipts>) -> Self {
        Self { number, is_written: false, to: Arc::clone(to) }
    }

    /// Says that the line is written.
    pub(crate) fn written(mut self) {
        self.is_written = true;
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        let number = self.number;
        self.to.add(match self.is_written {
            true => Input::Written { number },
            false => Input::Unwritten { number },
        });
    }
}
