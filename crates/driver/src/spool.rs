//! Events that somebody takes away: files of whole lines in a folder, until they are deleted.
//!
//! A thread writes; [`Spool::put`] never waits. The files are named by a number that rises,
//! `000000000001.jsonl`, over restarts too; the newest is the one being written, and the others change no
//! more. Whoever has taken in one of those deletes it. What finds no room, since nobody takes anything
//! away or the disk refuses or hangs, is dropped and counted: what is there is not overwritten, and every
//! line is whole, but for the last one of a file during which the machine lost its power. If the newest
//! file, or the folder, is taken away, the next line begins another one. If it was only moved while it was
//! written, what was written last stands in both. Who drops the spool waits until what was put is written,
//! half a second at most.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use tracing::{error, info};

#[cfg(test)]
mod tests;

/// Where events of type `T` go.
#[derive(Debug)]
pub struct Spool<T> {
    /// `None` at the end.
    events: Option<SyncSender<T>>,
    /// Nothing comes: it closes when the thread has ended.
    ended: Receiver<()>,
    folder: PathBuf,
    counts: Arc<Counts>,
}

/// How much a spool holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// A file that is this long, in bytes, is followed by the next.
    pub file_len: u64,
    /// How many files there may be.
    pub files_max: usize,
    /// How many events may wait for the disk.
    pub waiting_max: usize,
}

impl Default for Bounds {
    /// At most 128 MiB on disk.
    fn default() -> Self {
        Self { file_len: 8 << 20, files_max: 16, waiting_max: 1 << 16 }
    }
}

/// Counts since the start.
#[derive(Debug, Default)]
struct Counts {
    written: AtomicU64,
    dropped: AtomicU64,
    troubles: AtomicU64,
    /// What came last was dropped.
    in_trouble: AtomicBool,
}

impl Counts {
    /// Counts events that are dropped; tells of the first.
    fn lose(&self, count: u64, folder: &Path, why: &dyn std::fmt::Display) {
        if !self.in_trouble.swap(true, Ordering::Relaxed) {
            self.troubles.fetch_add(1, Ordering::Relaxed);
            error!(folder = %folder.display(), error = %why, "events are dropped: they find no room");
        }
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }
}

impl<T: Send + 'static> Spool<T> {
    /// Writes to files in `folder`, which is made if it is not there; `render` appends an event's line,
    /// without its end, and runs in the thread that writes.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn open(
        folder: &Path,
        bounds: Bounds,
        render: impl Fn(&T, &mut String) + Send + 'static,
    ) -> io::Result<Self> {
        Self::begin(folder, bounds, render, None)
    }

    /// The same, and gives every event that not even a power cut takes away any more to `done`, in that
    /// thread. One that is dropped is just that.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn open_synced(
        folder: &Path,
        bounds: Bounds,
        render: impl Fn(&T, &mut String) + Send + 'static,
        done: impl Fn(T) + Send + 'static,
    ) -> io::Result<Self> {
        Self::begin(folder, bounds, render, Some(Box::new(done)))
    }

    fn begin(
        folder: &Path,
        bounds: Bounds,
        render: impl Fn(&T, &mut String) + Send + 'static,
        done: Option<Done<T>>,
    ) -> io::Result<Self> {
        let (events, coming) = sync_channel(bounds.waiting_max);
        let (ends, ended) = sync_channel(0);
        let counts = Arc::new(Counts::default());
        let shared = Arc::clone(&counts);
        let sync_folder = done.is_some().then_some(sync_folder as fn(&Path) -> io::Result<()>);
        let files =
            Files { folder: folder.to_owned(), bounds, sync_folder, current: None, last: 0 };
        std::thread::Builder::new().name("spool".into()).spawn(move || {
            let _ends: SyncSender<()> = ends;
            write_all(files, &coming, &shared, &render, done.as_ref());
        })?;
        Ok(Self { events: Some(events), ended, folder: folder.to_owned(), counts })
    }

    /// Has an event written; drops it when too many wait.
    pub fn put(&self, event: T) {
        if self.events.as_ref().is_none_or(|events| events.try_send(event).is_err()) {
            self.counts.lose(1, &self.folder, &"too many wait for the disk");
        }
    }
}

impl<T> Spool<T> {
    /// Returns how many events are on disk.
    pub fn written(&self) -> u64 {
        self.counts.written.load(Ordering::Relaxed)
    }

    /// Returns how many events were dropped.
    pub fn dropped(&self) -> u64 {
        self.counts.dropped.load(Ordering::Relaxed)
    }

    /// Returns whether what came last was dropped: nothing has been written since, or much still waits.
    pub fn is_in_trouble(&self) -> bool {
        self.counts.in_trouble.load(Ordering::Relaxed)
    }

    /// Returns how often events began to be dropped for want of room or because the disk refused.
    pub fn troubles(&self) -> u64 {
        self.counts.troubles.load(Ordering::Relaxed)
    }
}

impl<T> Drop for Spool<T> {
    fn drop(&mut self) {
        self.events = None;
        if self.ended.recv_timeout(END_MAX) == Err(RecvTimeoutError::Timeout) {
            error!(folder = %self.folder.display(), "the last events are not written: the disk hangs");
        }
    }
}

/// Takes the events that are on disk.
type Done<T> = Box<dyn Fn(T) + Send>;

/// How long the end waits for what was put.
const END_MAX: Duration = Duration::from_millis(500);

/// Events written at a time.
const BATCH_MAX: usize = 1024;

fn write_all<T>(
    mut files: Files,
    events: &Receiver<T>,
    counts: &Counts,
    render: &impl Fn(&T, &mut String),
    done: Option<&Done<T>>,
) {
    let folder = files.folder.clone();
    let (mut lines, mut batch) = (String::new(), Vec::new());
    while let Ok(first) = events.recv() {
        lines.clear();
        batch.extend(std::iter::once(first).chain(events.try_iter()).take(BATCH_MAX));
        for event in &batch {
            render(event, &mut lines);
            lines.push('\n');
        }
        let written = files.write(lines.as_bytes());
        let is_behind = batch.len() == BATCH_MAX;
        let count = batch.len() as u64;
        let events = batch.drain(..);
        match written {
            Ok(()) => {
                // While many wait, more may be dropped: that is the same trouble.
                if !is_behind && counts.in_trouble.swap(false, Ordering::Relaxed) {
                    info!(folder = %folder.display(), "events are written again");
                }
                counts.written.fetch_add(count, Ordering::Relaxed);
                if let Some(done) = done {
                    events.for_each(done);
                }
            }
            Err(error) => counts.lose(count, &folder, &error),
        }
    }
}

/// The files of one spool.
#[derive(Debug)]
struct Files {
    folder: PathBuf,
    bounds: Bounds,
    /// Puts the names in a folder on disk; set if nothing may be lost to a power cut.
    sync_folder: Option<fn(&Path) -> io::Result<()>>,
    current: Option<Current>,
    /// The highest number that this life has used.
    last: u64,
}

/// The file that is being written.
#[derive(Debug)]
struct Current {
    file: File,
    path: PathBuf,
    len: u64,
}

impl Current {
    /// Whether the name is that of nothing, or of another file: what is written is not found then. A disk
    /// that cannot tell has not taken the file away.
    fn is_gone(&self) -> bool {
        let place = |file: fs::Metadata| (file.dev(), file.ino());
        match (fs::metadata(&self.path), self.file.metadata()) {
            (Ok(named), Ok(own)) => place(named) != place(own),
            (Ok(_), Err(_)) => false,
            // The second: in the place of the folder is a file.
            (Err(error), _) => {
                matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
            }
        }
    }
}

impl Files {
    /// Writes lines where they are found.
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        self.write_once(lines)?;
        let Some(current) = &self.current else { return Ok(()) };
        if !current.is_gone() {
            return Ok(());
        }
        let file = current.path.display();
        error!(%file, "the newest file was taken away while it was written: its events may be lost");
        self.current = None;
        self.write_once(lines)
    }

    fn write_once(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.current.as_ref().is_some_and(|current| self.bounds.file_len <= current.len)
            && let Some(current) = self.current.take()
        {
            current.file.sync_data()?;
        }
        let current = match &mut self.current {
            Some(current) => current,
            None => {
                let current = self.begin()?;
                self.current.insert(current)
            }
        };
        match current.file.write_all(lines) {
            Ok(()) => {
                current.len += lines.len() as u64;
                if self.sync_folder.is_some() { current.file.sync_data() } else { Ok(()) }
            }
            Err(error) => {
                // Half a line must not stay; a file that cannot be mended is left.
                if current.file.set_len(current.len).is_err() {
                    self.current = None;
                }
                Err(error)
            }
        }
    }

    /// Makes the next file, if there is room for one.
    fn begin(&mut self) -> io::Result<Current> {
        fs::create_dir_all(&self.folder)?;
        let (mut count, mut last) = (0, self.last);
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
            let Some(number) = number.and_then(|number| number.parse::<u64>().ok()) else {
                continue;
            };
            count += 1;
            last = last.max(number);
        }
        if self.bounds.files_max <= count {
            return Err(io::Error::other(format!("{count} files wait to be taken away")));
        }
        let Some(next) = last.checked_add(1) else {
            let error = format!("no number is left after that of {last}{SUFFIX}: move it away");
            return Err(io::Error::other(error));
        };
        let path = self.folder.join(format!("{next:012}{SUFFIX}"));
        let file = fs::OpenOptions::new().append(true).create_new(true).open(&path)?;
        self.last = next;
        if let Some(Err(error)) = self.sync_folder.map(|sync| self.sync_names(sync)) {
            // Empty files must not fill the spool until the folder can be synced again.
            fs::remove_file(path)?;
            return Err(error);
        }
        Ok(Current { file, path, len: 0 })
    }

    /// Puts the names of the files and that of the folder itself, which may be new, on disk.
    fn sync_names(&self, sync: fn(&Path) -> io::Result<()>) -> io::Result<()> {
        sync(&self.folder)?;
        match self.folder.parent() {
            Some(parent) if parent.as_os_str().is_empty() => sync(Path::new(".")),
            Some(parent) => sync(parent),
            None => Ok(()),
        }
    }
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// What the name of each file ends with.
const SUFFIX: &str = ".jsonl";
