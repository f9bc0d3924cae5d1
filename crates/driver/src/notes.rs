//! Small values that must be on disk before what they say shows, such as what a node has promised.
//!
//! Each value is a file of its own, written anew as a whole beside the old one and put in its place, so
//! a write that is cut off harms nothing. A thread writes; [`Notes::write`] never waits, and
//! [`Notes::poll`] says what is on disk. A disk that fails is tried again each second; until it takes a
//! value, nobody is told that it is there.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tracing::{error, info};

/// The values of one process.
#[derive(Debug)]
pub struct Notes(Kind);

#[derive(Debug)]
enum Kind {
    Disk { orders: Sender<Order>, done: Receiver<Done>, waiting: usize },
    Memory { pad: MemoryNotes, done: Vec<Done> },
}

/// The values that a process found at its start, by name.
pub type Found = BTreeMap<&'static str, Bytes>;

/// What was written: its name and the number it was ordered with.
pub type Done = (&'static str, u64);

/// The values of a simulated process, which outlive it.
#[derive(Clone, Debug, Default)]
pub struct MemoryNotes(Arc<Mutex<Found>>);

#[derive(Debug)]
struct Order {
    name: &'static str,
    serial: u64,
    bytes: Bytes,
}

impl Notes {
    /// Reads the values of these names, and starts the thread that writes them from now on. `waker` is
    /// used whenever one is written. What is damaged is named in the log and taken for absent.
    ///
    /// # Errors
    /// When there can be no files in the folder, or one cannot be read.
    pub fn open(folder: &Path, names: &[&'static str], waker: Waker) -> io::Result<(Self, Found)> {
        fs::create_dir_all(folder)?;
        let mut found = Found::new();
        for &name in names {
            let path = folder.join(name);
            match fs::read(&path) {
                Ok(bytes) => match unsealed(&bytes) {
                    Some(value) => drop(found.insert(name, value)),
                    None => error!(path = %path.display(), "the file is damaged"),
                },
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let (orders, ordered) = mpsc::channel();
        let (told, done) = mpsc::channel();
        let folder = folder.to_owned();
        std::thread::Builder::new()
            .name("notes".into())
            .spawn(move || write_all(&folder, &ordered, &told, &waker))?;
        Ok((Self(Kind::Disk { orders, done, waiting: 0 }), found))
    }

    /// Returns the values of a simulated process: what is written is there at once.
    pub fn memory(pad: &MemoryNotes) -> (Self, Found) {
        let found = pad.0.lock().clone();
        (Self(Kind::Memory { pad: pad.clone(), done: Vec::new() }), found)
    }

    /// Whether these are the values of a simulated process.
    pub fn is_simulated(&self) -> bool {
        matches!(self.0, Kind::Memory { .. })
    }

    /// Orders a value to be written. Of several orders for one name the last one counts; all are
    /// reported.
    pub fn write(&mut self, name: &'static str, serial: u64, bytes: Bytes) {
        match &mut self.0 {
            // The thread lives as long as this does.
            Kind::Disk { orders, waiting, .. } => {
                *waiting += 1;
                drop(orders.send(Order { name, serial, bytes }));
            }
            Kind::Memory { pad, done } => {
                pad.0.lock().insert(name, bytes);
                done.push((name, serial));
            }
        }
    }

    /// Returns the next value that is on disk, in the order of the orders.
    pub fn poll(&mut self) -> Option<Done> {
        match &mut self.0 {
            Kind::Disk { waiting: 0, .. } => None,
            Kind::Disk { done, waiting, .. } => {
                let written = done.try_recv().ok()?;
                *waiting -= 1;
                Some(written)
            }
            Kind::Memory { done, .. } => (!done.is_empty()).then(|| done.remove(0)),
        }
    }
}

fn write_all(folder: &Path, orders: &Receiver<Order>, done: &Sender<Done>, waker: &Waker) {
    while let Ok(first) = orders.recv() {
        let mut ordered = vec![first];
        ordered.extend(orders.try_iter());
        let newest: BTreeMap<&str, &Bytes> =
            ordered.iter().map(|order| (order.name, &order.bytes)).collect();
        for (name, bytes) in newest {
            write_until_done(&folder.join(name), bytes);
        }
        for order in &ordered {
            if done.send((order.name, order.serial)).is_err() {
                return;
            }
        }
        waker.wake_by_ref();
    }
}

fn write_until_done(path: &Path, bytes: &[u8]) {
    let mut failed = false;
    while let Err(error) = write(path, bytes) {
        if !failed {
            error!(path = %path.display(), %error, "cannot be written");
        }
        failed = true;
        pause();
    }
    if failed {
        info!(path = %path.display(), "is written again");
    }
}

#[expect(clippy::disallowed_methods, reason = "a thread that only waits for its disk")]
fn pause() {
    std::thread::sleep(Duration::from_secs(1));
}

fn write(path: &Path, value: &[u8]) -> io::Result<()> {
    let new: PathBuf = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(&MAGIC)?;
    file.write_all(&crc32fast::hash(value).to_le_bytes())?;
    file.write_all(value)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(path.parent().unwrap_or_else(|| Path::new(".")))?.sync_all()
}

/// Returns the value in a whole file.
fn unsealed(bytes: &[u8]) -> Option<Bytes> {
    let rest = bytes.strip_prefix(&MAGIC)?;
    let (sum, value) = rest.split_first_chunk()?;
    (crc32fast::hash(value) == u32::from_le_bytes(*sum)).then(|| Bytes::copy_from_slice(value))
}

const MAGIC: [u8; 8] = *b"HLnote1\n";

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;

    const NAMES: [&str; 2] = ["one", "two"];

    #[test]
    fn what_is_reported_is_found_at_the_next_start() {
        let run = Run::new("found");
        let (mut notes, found) = run.open();
        assert_eq!(found, Found::new());
        for serial in 1..=20 {
            notes.write("one", serial, Bytes::from(serial.to_string()));
        }
        notes.write("two", 21, Bytes::new());
        let mut done = Vec::new();
        while done.len() < 21 {
            done.extend(notes.poll().map(|(_, serial)| serial));
            std::thread::yield_now();
        }
        assert_eq!(done, (1..=21).collect::<Vec<_>>());
        assert!(0 < run.bell.0.load(Ordering::Relaxed));
        drop(notes);
        let (_, found) = run.open();
        let expected = Found::from([("one", Bytes::from("20")), ("two", Bytes::new())]);
        assert_eq!(found, expected);
    }

    #[test]
    fn a_damaged_value_is_none_and_a_half_written_one_is_not_looked_at() {
        let run = Run::new("damaged");
        fs::create_dir_all(&run.folder).unwrap();
        write(&run.folder.join("one"), b"value").unwrap();
        fs::write(run.folder.join("one.new"), "half").unwrap();
        assert_eq!(run.open().1, Found::from([("one", Bytes::from("value"))]));
        let mut bytes = fs::read(run.folder.join("one")).unwrap();
        for len in 0..bytes.len() {
            assert_eq!(unsealed(&bytes[..len]), None, "{len}");
        }
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(run.folder.join("one"), bytes).unwrap();
        assert_eq!(run.open().1, Found::new());
    }

    #[test]
    fn a_simulated_process_finds_what_it_wrote() {
        let pad = MemoryNotes::default();
        let (mut notes, _) = Notes::memory(&pad);
        notes.write("one", 7, Bytes::from("a"));
        assert_eq!((notes.poll(), notes.poll()), (Some(("one", 7)), None));
        assert_eq!(Notes::memory(&pad).1, Found::from([("one", Bytes::from("a"))]));
    }

    #[derive(Default)]
    struct Bell(AtomicU32);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct Run {
        folder: PathBuf,
        bell: Arc<Bell>,
    }

    impl Run {
        fn new(name: &str) -> Self {
            let name = format!("holdline-notes-{name}-{}", std::process::id());
            Self { folder: std::env::temp_dir().join(name), bell: Arc::default() }
        }

        fn open(&self) -> (Notes, Found) {
            Notes::open(&self.folder, &NAMES, self.bell.clone().into()).unwrap()
        }
    }

    impl Drop for Run {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}
