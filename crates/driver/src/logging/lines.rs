//! Lines of the log on their way to a thread of their own, which may wait for whoever reads them.

use std::cell::Cell;
use std::io::{self, ErrorKind, Write};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::run::clock;

/// Lines that wait to be written; who adds one never waits for who reads them.
pub(super) struct Lines {
    queue: Mutex<Queue>,
    changed: Condvar,
}

struct Queue {
    /// Whole lines.
    text: Vec<u8>,
    /// A thread writes them.
    is_open: bool,
    /// That thread has some in hand.
    is_writing: bool,
    /// How many want everything written at once.
    hurried: u32,
    /// How many lines were added and have room.
    added: u64,
    /// How many of them the thread has done with, once what it has in hand is written.
    taken: u64,
    /// How many of them it has done with.
    done: u64,
    /// Lines that nobody will read.
    lost: u64,
    /// Those of them that were not told of.
    untold: u64,
}

impl Lines {
    pub(super) const fn new() -> Self {
        let queue = Queue {
            text: Vec::new(),
            is_open: false,
            is_writing: false,
            hurried: 0,
            added: 0,
            taken: 0,
            done: 0,
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

    /// Adds a line, unless too much waits; returns a mark behind it, for [`is_done`](Self::is_done).
    pub(super) fn add(&self, line: &[u8]) -> u64 {
        let mut queue = self.queue.lock();
        if WAITING_MAX < queue.text.len() + line.len() {
            queue.lose(1);
            // For a line that is lost nobody need wait.
            return 0;
        }
        queue.added += 1;
        if queue.text.is_empty() {
            self.changed.notify_all();
        }
        queue.text.extend_from_slice(line);
        queue.added
    }

    /// Whether what was added before a mark is written, or lost.
    pub(super) fn is_done(&self, mark: u64) -> bool {
        let queue = self.queue.lock();
        !queue.is_open || mark <= queue.done
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
        let mut text = Vec::new();
        loop {
            self.take(&mut text);
            let left = write(&mut out, &text);
            text.clear();
            if let Some(lost) = self.written(left) {
                tell(lost);
            }
        }
    }

    /// Waits for lines, and then for others to join them, so that many cost one call.
    fn take(&self, text: &mut Vec<u8>) {
        let mut queue = self.queue.lock();
        while queue.text.is_empty() {
            self.changed.wait(&mut queue);
        }
        if queue.hurried == 0 {
            self.changed.wait_for(&mut queue, GROUP);
        }
        std::mem::swap(&mut queue.text, text);
        queue.is_writing = true;
        queue.taken = queue.added;
    }

    /// Counts the lines that could not be written; returns how many are to be told of.
    fn written(&self, left: u64) -> Option<u64> {
        let mut queue = self.queue.lock();
        queue.is_writing = false;
        queue.done = queue.taken;
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

/// Writes as much as is taken; returns how many lines are left.
fn write(out: &mut impl Write, mut text: &[u8]) -> u64 {
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
    text.iter().filter(|&&byte| byte == b'\n').count() as u64
}

/// One line on its way in.
pub(super) struct Line(pub(super) &'static Lines);

impl Line {
    /// Adds words as a line.
    pub(super) fn say(&mut self, words: &str) {
        // Nobody is left to tell should this fail.
        let _ = self.write_all(format!("{words}\n").as_bytes());
    }

    /// Returns the mark behind the last line of this thread.
    pub(super) fn mark() -> u64 {
        MARK.get()
    }
}

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.0.is_open() {
            MARK.set(self.0.add(line));
            Ok(line.len())
        } else {
            io::stderr().write(line)
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

thread_local! {
    static MARK: Cell<u64> = const { Cell::new(0) };
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

    use super::*;

    #[test]
    fn lines_wait_for_a_reader_in_order_and_nobody_waits_for_them() {
        let log = Log::new();
        let marks = ["one\n", "two\n", "three\n"].map(|line| log.lines.add(line.as_bytes()));
        let mark = marks[2];
        log.lines.flush();
        assert_eq!(log.lines.lost(), 0, "a reader that stalls loses nothing yet");
        assert!(!log.lines.is_done(mark));
        assert_eq!(log.read(3), ["one", "two", "three"]);
        log.lines.flush();
        assert!(log.lines.is_done(mark));
    }

    #[test]
    fn lines_beyond_the_bound_are_counted_and_told_of_once_it_flows_again() {
        let log = Log::new();
        let line = format!("{}\n", "x".repeat(1023));
        // Some are in hand, the others wait.
        let sent = 5 * WAITING_MAX / line.len();
        for _ in 0..sent {
            log.lines.add(line.as_bytes());
        }
        let lost = log.lines.lost();
        let kept = sent as u64 - lost;
        assert!((1024..=2048).contains(&kept), "{kept} of {sent}");

        let read = log.read(usize::try_from(kept).unwrap());
        assert!(read.iter().all(|one| one.len() == 1023));
        assert_eq!(log.read(1), [format!("lost {lost}")]);
        log.lines.add(b"after\n");
        assert_eq!(log.read(1), ["after"]);
    }

    #[test]
    fn lines_that_cannot_be_written_are_lost_and_those_after_them_are_not() {
        let log = Log::new();
        log.fail.send(2).unwrap();
        log.lines.add(b"one\n");
        log.lines.flush();
        log.lines.add(b"two\n");
        log.lines.flush();
        assert_eq!(log.lines.lost(), 2);
        log.lines.add(b"three\n");
        assert_eq!(log.read(2), ["three", "lost 2"]);
    }

    #[test]
    fn a_line_that_waits_is_not_done_because_another_thread_lost_one() {
        let lines = nobody_writes();
        Line(lines).write_all(b"a call's detail\n").unwrap();

        std::thread::spawn(|| Line(lines).write_all(&[b'x'; WAITING_MAX]).unwrap()).join().unwrap();

        assert_eq!(lines.lost(), 1);
        assert!(!lines.is_done(Line::mark()));
        Line(lines).write_all(&[b'x'; WAITING_MAX]).unwrap();
        assert!(lines.is_done(Line::mark()), "nobody waits for a line that is lost");
    }

    #[test]
    fn nothing_comes_between_words_and_the_end_of_their_line() {
        let lines = nobody_writes();

        Line(lines).say("a panic\nand its calls");

        assert_eq!(lines.queue.lock().text, b"a panic\nand its calls\n");
        assert_eq!(lines.queue.lock().added, 1, "at once");
    }

    fn nobody_writes() -> &'static Lines {
        let lines = Box::leak(Box::new(Lines::new()));
        lines.open();
        lines
    }

    /// Lines, the thread that writes them, and who reads them, one at a time.
    struct Log {
        lines: Arc<Lines>,
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
                    told.add(format!("lost {lost}\n").as_bytes());
                });
            });
            Self { lines, fail, written }
        }

        fn read(&self, count: usize) -> Vec<String> {
            let line = |_| self.written.recv_timeout(Duration::from_secs(60)).unwrap();
            (0..count).map(line).collect()
        }
    }

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.failing += self.fail.try_iter().sum::<u32>();
            if 0 < self.failing {
                self.failing -= 1;
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
