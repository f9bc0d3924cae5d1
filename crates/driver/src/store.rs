//! Records on the local disk, for the restart of an only server.
//!
//! A [`Store`] is written by a thread of its own: [`Store::put`] never waits for the disk. What was put
//! in the last [`GROUP`], plus what one commit takes, is lost with the power or the kernel; nothing
//! older. A disk that is full or gone read-only stops nothing: what could not be written stays in memory
//! and is tried again each second, and [`Store::health`] says so. A file that is taken away while it is
//! written is written anew as a whole, with the next change, and an error line says so.
//!
//! Each value lies in the file in an envelope with its key, its cluster and a checksum, so a file that the
//! database cannot open any more is searched for whole ones; it is kept under another name. A value that
//! was removed before may come back that way.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::metrics::Metrics;

mod disk;
mod envelope;
mod memory;
mod pending;
mod salvage;
#[cfg(test)]
mod tests;

pub use memory::MemoryDisk;
use pending::Pending;

/// What is put within this time is written with one commit.
pub const GROUP: Duration = Duration::from_millis(15);

/// The longest key, in bytes.
pub const KEY_MAX: usize = 1 << 10;

/// The longest value, in bytes.
pub const VALUE_MAX: usize = 1 << 20;

/// The longest name of a cluster, in bytes.
pub const CLUSTER_MAX: usize = 64;

/// Keys and values that outlive the process.
#[derive(Debug)]
pub struct Store(Kind);

#[derive(Debug)]
enum Kind {
    Disk { pending: Arc<Pending>, thread: Option<std::thread::JoinHandle<()>> },
    Memory(MemoryDisk),
}

/// What a store held when it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Every whole key and value of this cluster, by key.
    pub values: Vec<(Bytes, Bytes)>,
    /// What is not among them, and why; the first [`FAULTS_MAX`].
    pub faults: Vec<Fault>,
    /// How many faults are not listed.
    pub more_faults: usize,
}

/// The most faults that are listed.
pub const FAULTS_MAX: usize = 100;

/// Something that is wrong with a store. Printed for an operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The database could not be opened; what was whole in it was restored.
    #[error(
        "the store is damaged: {values} whole values were restored, what else was in it is lost; \
         it is kept as {}", .kept.display()
    )]
    Broken {
        /// How many whole values were found.
        values: usize,
        /// Where the damaged file is now.
        kept: PathBuf,
    },
    /// The disk does not take the store, or does not give it; values that can be read are restored.
    #[error("the disk of the store fails: {0}")]
    Disk(Trouble),
    /// A value is not what was written.
    #[error("the value of {0} is damaged")]
    Damaged(Name),
    /// A value of another cluster.
    #[error("{key} is of another cluster, {cluster}")]
    OtherCluster {
        /// The key.
        key: Name,
        /// The name of its cluster.
        cluster: Name,
    },
    /// A value that another version of this program wrote.
    #[error("{key} was written by another version, in format {version}")]
    OtherVersion {
        /// The key.
        key: Name,
        /// The format's number.
        version: u16,
    },
}

/// A key or a name from a file, printed so that a terminal can take it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(pub Bytes);

/// Why a disk does not do what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Trouble {
    /// No space is left, or a quota is used up.
    #[error("it is full")]
    Full,
    /// The file is as long as this process may write one (`ulimit -f`), or the file system keeps one.
    #[error("the file may not grow any more")]
    Limit,
    /// It is read-only.
    #[error("it is read-only")]
    ReadOnly,
    /// The system says so, as an errno.
    #[error("system error {0}")]
    System(i32),
    /// The database says that its file is damaged.
    #[error("the file is damaged")]
    Damaged,
}

/// Why a store cannot be opened. The configuration is at fault; nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has it.
    #[error("the store {} is in use by another process", .0.display())]
    InUse(PathBuf),
    /// There can be no file at this path.
    #[error("the store {} cannot be opened", .path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The name of the cluster is longer than [`CLUSTER_MAX`].
    #[error("the name of the cluster is longer than {CLUSTER_MAX} bytes")]
    Cluster,
}

/// How a store is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Why nothing is written at the moment, if so. What is put meanwhile would not survive a restart.
    pub trouble: Option<Trouble>,
    /// Changes that are not written yet.
    pub pending: usize,
    /// Changes refused: too long, or too many pending.
    pub refused: u64,
    /// Changes written.
    pub written: u64,
    /// Bytes of the values written, with their envelopes.
    pub bytes: u64,
    /// Commits.
    pub commits: u64,
    /// How long the longest commit took.
    pub commit_max: Duration,
    /// How long all commits took together.
    pub commit_total: Duration,
}

impl Store {
    /// Opens the store at `path`, or makes an empty one, and reads all of it. `cluster` tells its values
    /// from those of others.
    ///
    /// A disk that is full or read-only is a [`Fault`], no error: the store then holds what can be read
    /// and writes once it can.
    ///
    /// # Errors
    /// When another process has the store, or there can be none at this path.
    pub fn open(path: &Path, cluster: &str) -> Result<(Self, Loaded), OpenError> {
        disk::Disk::open(path, cluster).map(|(disk, loaded)| disk.run(loaded))
    }

    /// Returns a store in memory, for a simulated node, and what is on `disk`.
    pub fn memory(disk: &MemoryDisk) -> (Self, Loaded) {
        let loaded = Loaded { values: disk.values(), ..Loaded::default() };
        (Self(Kind::Memory(disk.clone())), loaded)
    }

    /// Writes a value soon, or removes it if `value` is `None`. A later change of the same key takes the
    /// place of one that is not written yet.
    ///
    /// A key longer than [`KEY_MAX`], a value longer than [`VALUE_MAX`], and what would let the changes
    /// that wait outgrow 256 MB, is refused and counted.
    pub fn put(&mut self, now: Instant, key: Bytes, value: Option<Bytes>) {
        match &self.0 {
            Kind::Disk { pending, .. } => pending.put(now, key, value),
            Kind::Memory(disk) => disk.put(now, key, value),
        }
    }

    /// Returns how the store is.
    pub fn health(&self) -> Health {
        match &self.0 {
            Kind::Disk { pending, .. } => pending.health(),
            Kind::Memory(disk) => disk.health(),
        }
    }

    /// Writes the store's figures.
    pub fn metrics(&self, out: &mut Metrics) {
        let health = self.health();
        let ok = f64::from(u8::from(health.trouble.is_none()));
        out.gauge("store_ok", "Whether the local store takes what is put into it.", &[], ok);
        let pending = f64::from(u32::try_from(health.pending).unwrap_or(u32::MAX));
        out.gauge("store_pending", "Changes that are not on disk yet.", &[], pending);
        let help = "Changes that the local store refused.";
        out.counter("store_refused_total", help, &[], health.refused);
        out.counter("store_written_total", "Changes on disk.", &[], health.written);
        out.counter("store_bytes_total", "Bytes of values written.", &[], health.bytes);
        out.counter("store_commits_total", "Commits to disk.", &[], health.commits);
        let (name, help) = ("store_commit_seconds_max", "How long a commit took at most.");
        out.gauge(name, help, &[], health.commit_max.as_secs_f64());
    }
}

impl Drop for Store {
    /// Writes what is pending, unless the disk fails or takes longer than two seconds.
    fn drop(&mut self) {
        if let Kind::Disk { pending, thread } = &mut self.0
            && let Some(thread) = thread.take()
            && pending.close()
        {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Loaded {
    fn fault(&mut self, fault: Fault) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(fault);
        } else {
            self.more_faults += 1;
        }
    }
}

impl From<&std::io::Error> for Trouble {
    fn from(error: &std::io::Error) -> Self {
        use nix::errno::Errno;
        let Some(errno) = error.raw_os_error() else { return Self::Damaged };
        let is = |one: Errno| Errno::from_raw(errno) == one;
        if is(Errno::ENOSPC) || is(Errno::EDQUOT) {
            Self::Full
        } else if is(Errno::EFBIG) {
            Self::Limit
        } else if is(Errno::EROFS) {
            Self::ReadOnly
        } else {
            Self::System(errno)
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.escape_ascii().fmt(f)
    }
}
