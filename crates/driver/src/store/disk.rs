//! The store's file, and the thread that writes it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use nix::fcntl::{Flock, FlockArg};
#[cfg(not(test))]
use redb::backends::FileBackend;
use redb::backends::InMemoryBackend;
use redb::{
    Builder, Database, ReadableTable as _, ReadableTableMetadata as _, StorageBackend,
    TableDefinition,
};
use tracing::{error, info, warn};

use super::envelope::{self, Envelope};
use super::pending::{Changes, Pending};
use super::salvage::{Newest, scan};
use super::{CLUSTER_MAX, Fault, Kind, Loaded, Name, OpenError, Store, Trouble};
use crate::logging::expecting_panics;
use crate::run::clock;

pub(super) const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("values");

/// How much of the file is kept in memory, in bytes.
const CACHE_LEN: usize = 16 << 20;

/// How many damaged files are kept.
const KEPT_MAX: u32 = 9;

/// The file at a path, whether it can be written or not.
#[derive(Debug)]
pub(super) struct Disk {
    path: PathBuf,
    cluster: String,
    /// `None` while the disk fails.
    database: Option<Database>,
    /// The device and inode of its file.
    inode: Option<(u64, u64)>,
    /// The number of the next value.
    number: u64,
    /// What is to be written before anything else.
    first: Changes,
    trouble: Option<Trouble>,
    /// The database found its file damaged while it wrote.
    suspect: bool,
    /// Held as long as this lives, unless the disk is read-only.
    lock: Option<Flock<File>>,
    #[cfg(test)]
    pub(super) errno: super::tests::Errno,
}

/// What the database said when it was opened.
struct Opened {
    database: Database,
    inode: Option<(u64, u64)>,
    loaded: Loaded,
    /// Keys whose values are damaged.
    damaged: Vec<Bytes>,
    number: u64,
}

impl Disk {
    pub(super) fn open(path: &Path, cluster: &str) -> Result<(Self, Loaded), OpenError> {
        if CLUSTER_MAX < cluster.len() {
            return Err(OpenError::Cluster);
        }
        let (lock, trouble) = lock(path)?;
        let mut disk = Self {
            path: path.to_owned(),
            cluster: cluster.to_owned(),
            database: None,
            inode: None,
            number: 0,
            first: Changes::new(),
            trouble,
            suspect: false,
            lock,
            #[cfg(test)]
            errno: super::tests::Errno::of_this_test(),
        };
        let loaded = match disk.load() {
            Ok(loaded) => loaded,
            Err(Failure::Disk(trouble)) => {
                disk.trouble = Some(trouble);
                disk.read_only(trouble)
            }
            Err(Failure::Path(error)) if error.kind() == io::ErrorKind::ResourceBusy => {
                return Err(OpenError::InUse(path.to_owned()));
            }
            Err(Failure::Path(source)) => {
                return Err(OpenError::Path { path: path.to_owned(), source });
            }
        };
        Ok((disk, loaded))
    }

    /// Starts the thread.
    pub(super) fn run(mut self, loaded: Loaded) -> (Store, Loaded) {
        let pending = Arc::new(Pending::default());
        if let Some(trouble) = self.trouble {
            pending.failed(Changes::new(), trouble);
        }
        let of_thread = pending.clone();
        let started = std::thread::Builder::new().name("store".into()).spawn(move || {
            if catch_unwind(AssertUnwindSafe(|| self.write_all(&of_thread))).is_err() {
                of_thread.failed(Changes::new(), Trouble::Damaged);
            }
            // The file is free again when the store says that it is closed.
            guarded(|| drop(self));
            of_thread.end();
        });
        let thread = match started {
            Ok(thread) => Some(thread),
            Err(reason) => {
                error!(%reason, "no thread for the store");
                pending.failed(Changes::new(), Trouble::from(&reason));
                None
            }
        };
        (Store(Kind::Disk { pending, thread }), loaded)
    }

    fn write_all(&mut self, pending: &Pending) {
        if !self.first.is_empty() {
            let trouble = self.trouble.unwrap_or(Trouble::Damaged);
            pending.failed(std::mem::take(&mut self.first), trouble);
        }
        while let Some(changes) = pending.take() {
            let begun_at = clock();
            let written = guarded(|| self.write(&changes)).unwrap_or(Err(Trouble::Damaged));
            let took = clock().saturating_duration_since(begun_at);
            match written {
                Ok(bytes) => {
                    if self.trouble.take().is_some() {
                        info!(path = %self.path.display(), "the store is written again");
                    }
                    pending.written(changes.len(), bytes, took);
                }
                Err(trouble) => {
                    if self.trouble != Some(trouble) {
                        error!(path = %self.path.display(), %trouble, "the store is not written");
                        self.trouble = Some(trouble);
                    }
                    // A database that failed must be opened anew; its end may meet the damage again.
                    let failed = self.database.take();
                    guarded(|| drop(failed));
                    pending.failed(changes, trouble);
                    // A damaged file is put aside at once; anything else may pass.
                    let renews = trouble == Trouble::Damaged && !self.suspect;
                    self.suspect |= renews;
                    if !renews && !pending.rest() {
                        return;
                    }
                }
            }
        }
    }

    /// Writes `changes` where a restart finds them; returns how many bytes of values there were.
    fn write(&mut self, changes: &Changes) -> Result<u64, Trouble> {
        let bytes = self.commit(changes)?;
        if self.is_there() {
            return Ok(bytes);
        }
        let path = self.path.display();
        error!(%path, "the store was taken away while it was written: all of it is written anew");
        self.begin_anew().map_err(Failure::trouble)?;
        self.commit(changes)
    }

    /// Whether the name is still that of the file that is written.
    fn is_there(&self) -> bool {
        match std::fs::metadata(&self.path) {
            Ok(file) => self.inode == Some(inode(&file)),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// Keeps what the file has that is not found any more, for one in its place.
    fn begin_anew(&mut self) -> Result<(), Failure> {
        if let Some(database) = self.database.take() {
            let values = Reading::of(&self.cluster, &database)?.loaded.values;
            self.first.extend(values.into_iter().map(|(key, value)| (key, Some(value))));
        }
        self.lock = None;
        let in_use = |_| Failure::Path(io::ErrorKind::ResourceBusy.into());
        let (lock, trouble) = lock(&self.path).map_err(in_use)?;
        self.lock = lock;
        trouble.map_or(Ok(()), |trouble| Err(Failure::Disk(trouble)))
    }

    /// Writes `changes` with one commit; returns how many bytes of values there were.
    fn commit(&mut self, changes: &Changes) -> Result<u64, Trouble> {
        if self.database.is_none() {
            let loaded = self.load().map_err(Failure::trouble)?;
            for fault in &loaded.faults {
                warn!(%fault, "store");
            }
        }
        let older = self.first.iter().filter(|(key, _)| !changes.contains_key(*key));
        let mut bytes = 0;
        let database = self.database.as_ref().ok_or(Trouble::Damaged)?;
        let transaction = database.begin_write().map_err(trouble)?;
        let mut table = transaction.open_table(TABLE).map_err(trouble)?;
        for (key, value) in older.chain(changes) {
            if let Some(value) = value {
                let sealed = envelope::seal(&self.cluster, self.number, key, value);
                self.number += 1;
                bytes += sealed.len() as u64;
                table.insert(key.as_ref(), sealed.as_slice()).map_err(trouble)?;
            } else {
                table.remove(key.as_ref()).map_err(trouble)?;
            }
        }
        drop(table);
        transaction.commit().map_err(trouble)?;
        self.first.clear();
        Ok(bytes)
    }

    /// Opens the database and reads it; puts a damaged file aside and takes what is whole in it.
    fn load(&mut self) -> Result<Loaded, Failure> {
        let is_cut_off = std::fs::metadata(&self.path).is_ok_and(|file| file.len() == 0);
        match guarded(|| self.read()).filter(|_| !is_cut_off) {
            Some(Ok(opened)) if !self.suspect => Ok(self.loaded(opened)),
            Some(Ok(opened)) => {
                let Opened { database, loaded, number, .. } = opened;
                self.number = self.number.max(number);
                guarded(|| drop(database));
                self.renew(loaded)
            }
            Some(Err(Failure::Disk(Trouble::Damaged))) | None => {
                let loaded = self.search();
                self.renew(loaded)
            }
            Some(Err(failure)) => Err(failure),
        }
    }

    fn loaded(&mut self, opened: Opened) -> Loaded {
        (self.database, self.inode) = (Some(opened.database), opened.inode);
        self.number = self.number.max(opened.number);
        self.first.extend(opened.damaged.into_iter().map(|key| (key, None)));
        opened.loaded
    }

    fn read(&self) -> Result<Opened, Failure> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&self.path)?;
        let inode = inode(&file.metadata()?);
        #[cfg(test)]
        let backend = self.errno.file(file).map_err(failed)?;
        #[cfg(not(test))]
        let backend = FileBackend::new(file).map_err(failed)?;
        Ok(Opened { inode: Some(inode), ..self.read_from(backend)? })
    }

    fn read_from(&self, backend: impl StorageBackend) -> Result<Opened, Failure> {
        let mut builder = Builder::new();
        builder.set_cache_size(CACHE_LEN).create_with_file_format_v3(true);
        let database = builder.create_with_backend(backend).map_err(failed)?;
        Ok(Reading::of(&self.cluster, &database)?.end(database))
    }

    /// Puts the file aside and writes what is whole in it to a new one.
    fn renew(&mut self, mut whole: Loaded) -> Result<Loaded, Failure> {
        let kept = self.put_aside()?;
        whole.faults.insert(0, Fault::Broken { values: whole.values.len(), kept });
        let opened = self.read()?;
        self.loaded(opened);
        self.suspect = false;
        let values = whole.values.iter().cloned();
        self.first.extend(values.map(|(key, value)| (key, Some(value))));
        Ok(whole)
    }

    /// Returns what can be read of a disk that cannot be written: a copy in memory can be.
    fn read_only(&mut self, trouble: Trouble) -> Loaded {
        let copied = || -> Result<Opened, Failure> {
            let content = std::fs::read(&self.path)?;
            let backend = InMemoryBackend::new();
            backend.set_len(content.len() as u64)?;
            backend.write(0, &content)?;
            self.read_from(backend)
        };
        let mut loaded = if let Some(Ok(opened)) = guarded(copied) {
            self.number = opened.number;
            opened.loaded
        } else {
            self.search()
        };
        loaded.fault(Fault::Disk(trouble));
        loaded
    }

    /// Searches the file for whole values.
    fn search(&mut self) -> Loaded {
        let (mut newest, mut loaded) = (Newest::default(), Loaded::default());
        let scanned = scan(&self.path, |envelope| {
            self.number = self.number.max(envelope.number + 1);
            match fault_of(&self.cluster, envelope) {
                None => newest.add(envelope),
                Some(fault) => loaded.fault(fault),
            }
        });
        if let Err(error) = scanned
            && error.kind() != io::ErrorKind::NotFound
        {
            loaded.fault(Fault::Disk(Trouble::from(&error)));
        }
        loaded.values = newest.into_values();
        loaded
    }

    /// Gives the damaged file another name.
    fn put_aside(&self) -> Result<PathBuf, Failure> {
        let name = |count: u32| beside(&self.path, &format!("broken-{count}"));
        let free = (1..KEPT_MAX).map(name).find(|kept| !kept.exists());
        let kept = free.unwrap_or_else(|| name(KEPT_MAX));
        std::fs::rename(&self.path, &kept)?;
        Ok(kept)
    }
}

/// What is read from a database.
struct Reading<'a> {
    cluster: &'a str,
    loaded: Loaded,
    damaged: Vec<Bytes>,
    number: u64,
}

impl<'a> Reading<'a> {
    /// Reads everything.
    fn of(cluster: &'a str, database: &Database) -> Result<Self, Failure> {
        let mut reading = Self { cluster, loaded: Loaded::default(), damaged: vec![], number: 0 };
        match database.begin_read().map_err(failed)?.open_table(TABLE) {
            Err(redb::TableError::TableDoesNotExist(_)) => {}
            Err(error) => return Err(failed(error)),
            Ok(table) => {
                let mut count = 0;
                for entry in table.iter().map_err(failed)? {
                    let (key, value) = entry.map_err(failed)?;
                    reading.entry(key.value(), value.value());
                    count += 1;
                }
                if count != table.len().map_err(failed)? {
                    return Err(Failure::Disk(Trouble::Damaged));
                }
            }
        }
        Ok(reading)
    }

    fn entry(&mut self, key: &[u8], bytes: &[u8]) {
        let envelope = envelope::open(bytes).filter(|it| it.key == key && it.len == bytes.len());
        let key = Bytes::copy_from_slice(key);
        let Some(envelope) = envelope else {
            self.damaged.push(key.clone());
            self.loaded.fault(Fault::Damaged(Name(key)));
            return;
        };
        self.number = self.number.max(envelope.number + 1);
        match fault_of(self.cluster, &envelope) {
            None => self.loaded.values.push((key, Bytes::copy_from_slice(envelope.value))),
            Some(fault) => self.loaded.fault(fault),
        }
    }

    fn end(self, database: Database) -> Opened {
        let Self { loaded, damaged, number, .. } = self;
        Opened { database, inode: None, loaded, damaged, number }
    }
}

/// Why nothing came of a file.
enum Failure {
    /// The disk is at fault.
    Disk(Trouble),
    /// The path is.
    Path(io::Error),
}

impl Failure {
    fn trouble(self) -> Trouble {
        match self {
            Self::Disk(trouble) => trouble,
            Self::Path(error) => Trouble::from(&error),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let trouble = Trouble::from(&error);
        let is_of_disk = !matches!(trouble, Trouble::System(errno) if errno != libc::EIO);
        if is_of_disk { Self::Disk(trouble) } else { Self::Path(error) }
    }
}

/// Takes the store for this process, beside the file, which a damaged one is moved away from.
fn lock(path: &Path) -> Result<(Option<Flock<File>>, Option<Trouble>), OpenError> {
    let name = beside(path, "lock");
    let made = match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => std::fs::create_dir_all(parent),
        None => Ok(()),
    };
    let options = OpenOptions::new().write(true).create(true).truncate(false).clone();
    match made.and_then(|()| options.open(name)).map_err(Failure::from) {
        Ok(file) => match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok((Some(lock), None)),
            Err(_) => Err(OpenError::InUse(path.to_owned())),
        },
        Err(Failure::Disk(trouble)) => Ok((None, Some(trouble))),
        Err(Failure::Path(source)) => Err(OpenError::Path { path: path.to_owned(), source }),
    }
}

fn inode(file: &std::fs::Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Returns the name of a file beside the one at `path`.
fn beside(path: &Path, extension: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    name.into()
}

/// Returns why a whole value is not one of ours, if so.
fn fault_of(cluster: &str, envelope: &Envelope<'_>) -> Option<Fault> {
    let key = || Name(Bytes::copy_from_slice(envelope.key));
    if !envelope.is_known() {
        return Some(Fault::OtherVersion { key: key(), version: envelope.version });
    }
    (envelope.cluster != cluster.as_bytes()).then(|| Fault::OtherCluster {
        key: key(),
        cluster: Name(Bytes::copy_from_slice(envelope.cluster)),
    })
}

/// Returns what the database's error says about the file.
fn failed(error: impl Into<redb::Error>) -> Failure {
    let error = error.into();
    if let redb::Error::Io(error) = error {
        Failure::from(error)
    } else if matches!(error, redb::Error::DatabaseAlreadyOpen) {
        Failure::Path(io::ErrorKind::ResourceBusy.into())
    } else {
        Failure::Disk(Trouble::Damaged)
    }
}

fn trouble(error: impl Into<redb::Error>) -> Trouble {
    failed(error).trouble()
}

/// Runs what meets a damaged file: the database checks its own pages by panicking.
fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    expecting_panics(work)
}
