//! Reads documents beside the protocol thread: a hundred thousand tenants take seconds.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::Waker;

use bytes::Bytes;

use super::{Input, read};

/// Carries out what [`Output::Read`](super::Output::Read) asks for.
#[derive(Debug)]
pub struct Reader {
    waker: Option<Waker>,
    told: Sender<Input>,
    done: Receiver<Input>,
    /// How many are being read.
    reading: usize,
}

impl Reader {
    /// Reads on threads of their own, one a document, and uses `waker` when one is done. Without one,
    /// as in a simulation, it reads at once.
    pub fn new(waker: Option<Waker>) -> Self {
        let (told, done) = channel();
        Self { waker, told, done, reading: 0 }
    }

    /// Begins to read.
    pub fn read(&mut self, serial: u64, bytes: Bytes) {
        let (told, waker) = (self.told.clone(), self.waker.clone());
        self.reading += 1;
        let in_thread = waker.is_some();
        let work = move || {
            // Nobody waits any more when the node is gone.
            let _ = told.send(Input::Read { serial, document: read(&bytes) });
            waker.into_iter().for_each(Waker::wake);
        };
        if in_thread {
            std::thread::spawn(work);
        } else {
            work();
        }
    }

    /// Returns what was read since the last time, as inputs.
    pub fn poll(&mut self) -> Option<Input> {
        if self.reading == 0 {
            return None;
        }
        let read = self.done.try_recv().ok()?;
        self.reading -= 1;
        Some(read)
    }
}
