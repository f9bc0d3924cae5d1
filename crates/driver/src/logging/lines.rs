//! Lines of the log on their way to a thread of their own, which may wait for whoever reads them.

use std::cell::Cell;
use std::io::{self, ErrorKind, Write};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::receipt::Receipt;
use crate::run::clock;

/// Lines that wait to be written; who adds one never waits for who reads them.
pub(super) struct Lines {
    queue: Mutex<Queue>,
    changed: Condvar,
}

struct Queue {
    /// Whole lines.
    text: Vec<u8>,
    /// For which of them somebody waits, and where each of those ends.
    receipts: Vec<(usize, Receipt)>,
    /// A thread writes them.
    is_open: bool,
    /// That thread has some in hand.
    is_writing: bool,
    /// How many want everything written at once.
    hurried: u32,
    /// Lines that nobody will read.
    lost: u64,
    /// Those of them that were not told of.
    untold: u64,
}

impl Lines {
    pub(super) const fn new() -> Self {
        let queue = Queue {
            text: Vec::new(),
            receipts: Vec::new(),
            is_open: false,
            is_writing: false,
            hurried: 0,
            lost: 0,
            untold: 0,
        };
        Self { queue: Mutex::new(queue), changed: Condvar::new() }
    }

    /// From now on a thread writes what is added.
    pub(super) fn open(&self) {
        self.queue.lock().is_open = true;
    }

    /// Whether a thread writes what is added.
    pub(super) fn is_open(&self) -> bool {
        self.queue.lock().is_open
    }

    /// Adds a line, unless too much waits: then it is lost with its receipt.
    pub(super) fn add(&self, line: &[u8], receipt: Option<Receipt>) {
        let mut queue = self.queue.lock();
        if WAITING_MAX < queue.text.len() + line.len() {
            queue.lose(1);
            // Its news is told without the lock.
            drop(queue);
            return drop(receipt);
        }
        if queue.text.is_empty() {
            self.changed.notify_all();
        }
        queue.text.extend_from_slice(line);
        let end = queue.text.len();
        queue.receipts.extend(receipt.map(|receipt| (end, receipt)));
    }

    /// Returns how many lines nobody will read.
    pub(super) fn lost(&self) -> u64 {
        self.queue.lock().lost
    }

    /// Waits until everything is written, or nobody has read anything for too long.
    pub(super) fn flush(&self) {
        let mut queue = self.queue.lock();
        if !queue.is_open {
            return;
        }
        queue.hurried += 1;
        self.changed.notify_all();
        let until = clock() + FLUSH_MAX;
        while (queue.is_writing || !queue.text.is_empty()) && clock() < until {
            self.changed.wait_until(&mut queue, until);
        }
        queue.hurried -= 1;
    }

    /// Writes what is added, for ever; after lines were lost and others could be written, `tell` is told
    /// how many.
    pub(super) fn write(&self, mut out: impl Write, tell: impl Fn(u64)) -> ! {
        let (mut text, mut receipts) = (Vec::new(), Vec::new());
        loop {
            self.take(&mut text, &mut receipts);
            let left = write(&mut out, &text);
            let written = text.len() - left.len();
            let lost = left.iter().filter(|&&byte| byte == b'\n').count() as u64;
            for (end, receipt) in receipts.drain(..) {
                if end <= written {
                    receipt.written();
                }
            }
            text.clear();
            if let Some(lost) = self.written(lost) {
                tell(lost);
            }
        }
    }

    /// Waits for lines, and then for others to join them, so that many cost one call.
    fn take(&self, text: &mut Vec<u8>, receipts: &mut Vec<(usize, Receipt)>) {
        let mut queue = self.queue.lock();
        while queue.text.is_empty() {
            self.changed.wait(&mut queue);
        }
        if queue.hurried == 0 {
            self.changed.wait_for(&mut queue, GROUP);
        }
        std::mem::swap(&mut queue.text, text);
        std::mem::swap(&mut queue.receipts, receipts);
        queue.is_writing = true;
    }

    /// Counts the lines that could not be written; returns how many are to be told of.
    fn written(&self, left: u64) -> Option<u64> {
        let mut queue = self.queue.lock();
        queue.is_writing = false;
        queue.lose(left);
        self.changed.notify_all();
        // What is told is a line, too, and needs room.
        let flows = left == 0 && queue.text.len() < WAITING_MAX / 2;
        (flows && 0 < queue.untold).then(|| std::mem::take(&mut queue.untold))
    }
}

impl Queue {
    fn lose(&mut self, lines: u64) {
        self.lost += lines;
        self.untold += lines;
    }
}

/// Writes as much as is taken; returns what is left.
fn write<'a>(out: &mut impl Write, mut text: &'a [u8]) -> &'a [u8] {
    while !text.is_empty() {
        match out.write(text) {
            Ok(0) => break,
            Ok(len) => text = &text[len..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Whoever shares the file with this process made it so.
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::park_timeout(GROUP),
            Err(_) => break,
        }
    }
    text
}

/// One line on its way in.
pub(super) struct Line(pub(super) &'static Lines);

impl Line {
    /// Adds words as a line.
    pub(super) fn say(&mut self, words: &str) {
        // Nobody is left to tell should this fail.
        let _ = self.write_all(format!("{words}\n").as_bytes());
    }
}

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let receipt = RECEIPT.take();
        if self.0.is_open() {
            self.0.add(line, receipt);
            return Ok(line.len());
        }
        let written = io::stderr().write(line)?;
        if let Some(receipt) = receipt.filter(|_| written == line.len()) {
            receipt.written();
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Lets `say` log a line that takes the receipt along; where it logs nothing, nobody wants the line, and
/// it is done.
pub(super) fn with_receipt(receipt: Receipt, say: impl FnOnce()) {
    RECEIPT.set(Some(receipt));
    say();
    if let Some(receipt) = RECEIPT.take() {
        receipt.written();
    }
}

thread_local! {
    static RECEIPT: Cell<Option<Receipt>> = const { Cell::new(None) };
}

/// The most that waits, in bytes, beside as much that is being written.
const WAITING_MAX: usize = 1 << 20;
/// What is said within this time is written together.
const GROUP: Duration = Duration::from_millis(20);
/// How long the end of a process waits for who reads the last lines.
const FLUSH_MAX: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

    use std::task::Waker;

    use super::*;
    use crate::node::Input;
    use crate::receipt::Receipts;

    #[test]
    fn lines_wait_for_a_reader_in_order_and_nobody_waits_for_them() {
        let log = Log::new();
        for (number, line) in (1..).zip(["one\n", "two\n", "three\n"]) {
            log.add(line, number);
        }
        log.lines.flush();
        assert_eq!(log.lines.lost(), 0, "a reader that stalls loses nothing yet");
        assert_eq!(log.receipts.take(), []);
        assert_eq!(log.read(3), ["one", "two", "three"]);
        log.lines.flush();
        assert_eq!(log.receipts.take(), [1, 2, 3].map(|number| Input::Written { number }));
    }

    #[test]
    fn lines_beyond_the_bound_are_counted_and_told_of_once_it_flows_again() {
        let log = Log::new();
        let line = format!("{}\n", "x".repeat(1023));
        // Some are in hand, the others wait.
        let sent = 5 * WAITING_MAX / line.len();
        for _ in 0..sent {
            log.lines.add(line.as_bytes(), None);
        }
        let lost = log.lines.lost();
        let kept = sent as u64 - lost;
        assert!((1024..=2048).contains(&kept), "{kept} of {sent}");

        let read = log.read(usize::try_from(kept).unwrap());
        assert!(read.iter().all(|one| one.len() == 1023));
        assert_eq!(log.read(1), [format!("lost {lost}")]);
        log.lines.add(b"after\n", None);
        assert_eq!(log.read(1), ["after"]);
    }

    #[test]
    fn lines_that_cannot_be_written_are_lost_and_those_after_them_are_not() {
        let log = Log::new();
        log.fail.send(2).unwrap();
        log.add("one\n", 1);
        log.lines.flush();
        log.add("two\n", 2);
        log.lines.flush();
        assert_eq!(log.lines.lost(), 2);
        assert_eq!(log.receipts.take(), [1, 2].map(|number| Input::Unwritten { number }));
        log.add("three\n", 3);
        assert_eq!(log.read(2), ["three", "lost 2"]);
        assert_eq!(log.receipts.take(), [Input::Written { number: 3 }]);
    }

    #[test]
    fn of_lines_that_are_written_in_part_each_is_told_its_own_fate() {
        let log = Log::new();
        log.lines.add(b"first\n", None);
        // While nobody reads that one, the others gather.
        while !log.lines.queue.lock().text.is_empty() {
            std::thread::yield_now();
        }
        // Of the second only the beginning can be written.
        for (number, line) in (1..).zip(["one\n", "a panic\n!and its calls\n", "three\n"]) {
            log.add(line, number);
        }
        assert_eq!(log.read(3), ["first", "one", "a panic"]);
        log.lines.flush();

        let [one, two, three] = log.receipts.take().try_into().unwrap();
        assert_eq!(one, Input::Written { number: 1 });
        assert_eq!([two, three], [2, 3].map(|number| Input::Unwritten { number }));
    }

    #[test]
    fn a_line_that_waits_is_not_done_because_another_thread_lost_one() {
        let (lines, receipts) = (nobody_writes(), Receipts::new(Waker::noop().clone()));
        let say = |number, line: &[u8]| {
            with_receipt(Receipt::new(number, &receipts), || Line(lines).write_all(line).unwrap());
        };
        say(1, b"a call's detail\n");

        std::thread::spawn(|| Line(lines).write_all(&[b'x'; WAITING_MAX]).unwrap()).join().unwrap();

        assert_eq!((lines.lost(), receipts.take()), (1, vec![]));
        say(2, &[b'x'; WAITING_MAX]);
        assert_eq!(receipts.take(), [Input::Unwritten { number: 2 }]);
    }

    #[test]
    fn a_line_that_the_filter_leaves_out_is_waited_for_by_nobody() {
        let receipts = Receipts::new(Waker::noop().clone());

        with_receipt(Receipt::new(1, &receipts), || {});

        assert_eq!(receipts.take(), [Input::Written { number: 1 }]);
        Line(nobody_writes()).say("another line");
        assert_eq!(receipts.take(), []);
    }

    #[test]
    fn nothing_comes_between_words_and_the_end_of_their_line() {
        let lines = nobody_writes();

        Line(lines).say("a panic\nand its calls");

        assert_eq!(lines.queue.lock().text, b"a panic\nand its calls\n");
    }

    fn nobody_writes() -> &'static Lines {
        let lines = Box::leak(Box::new(Lines::new()));
        lines.open();
        lines
    }

    /// Lines, the thread that writes them, and who reads them, one at a time.
    struct Log {
        lines: Arc<Lines>,
        receipts: Arc<Receipts>,
        /// How many of the next writes fail.
        fail: Sender<u32>,
        written: Receiver<String>,
    }

    /// Takes a line once somebody reads it.
    struct Pipe {
        fail: Receiver<u32>,
        failing: u32,
        written: SyncSender<String>,
    }

    impl Log {
        fn new() -> Self {
            let lines = Arc::new(Lines::new());
            let (fail, failures) = channel();
            let (sender, written) = sync_channel(0);
            let pipe = Pipe { fail: failures, failing: 0, written: sender };
            let of_thread = lines.clone();
            lines.open();
            // It ends with the process.
            std::thread::spawn(move || {
                let told = of_thread.clone();
                of_thread.write(pipe, |lost| {
                    told.add(format!("lost {lost}\n").as_bytes(), None);
                });
            });
            Self { lines, receipts: Receipts::new(Waker::noop().clone()), fail, written }
        }

        fn add(&self, line: &str, number: u64) {
            self.lines.add(line.as_bytes(), Some(Receipt::new(number, &self.receipts)));
        }

        fn read(&self, count: usize) -> Vec<String> {
            let line = |_| self.written.recv_timeout(Duration::from_secs(60)).unwrap();
            (0..count).map(line).collect()
        }
    }

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.failing += self.fail.try_iter().sum::<u32>();
            if 0 < self.failing || bytes.starts_with(b"!") {
                self.failing = self.failing.saturating_sub(1);
                return Err(ErrorKind::StorageFull.into());
            }
            let line = bytes.split_inclusive(|&byte| byte == b'\n').next().unwrap_or(bytes);
            // Whoever reads has gone when this fails.
            let _ = self.written.send(String::from_utf8_lossy(line).trim_end().to_owned());
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}
