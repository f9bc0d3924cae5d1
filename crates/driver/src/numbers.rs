//! The numbers that must never come twice, in one small file that is on disk before they show.
//!
//! A node's boot and the epochs that it may use are higher in each life, whatever the clock says: it may
//! have been set back. The file holds two copies of 64 bytes, 4096 bytes apart,
//! of which the one with the higher count is valid, so a write that is cut off harms neither:
//!
//! | bytes | field, little endian |
//! |---|---|
//! | 8 | magic |
//! | 8 | count of writes |
//! | 2 | node |
//! | 8 | boot |
//! | 8 | epoch: every lower one may have been used |
//! | 26 | zero |
//! | 4 | CRC-32 of all before |

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use crate::NodeId;

/// The numbers of one life of a node. Another process of the same node cannot have its own meanwhile.
#[derive(Debug)]
pub struct Numbers {
    /// Higher than in every life before.
    pub boot: u64,
    /// The first epoch of this life: no earlier one used it or a higher one. This life may use a
    /// thousand.
    pub epoch: u32,
    /// What was wrong with the file, if anything. The numbers then come from the clock alone.
    pub fault: Option<NumbersFault>,
    _lock: Option<Flock<File>>,
}

/// Why the numbers of earlier lives are not known, or those of this life will not be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NumbersFault {
    /// The file holds something else, or was damaged.
    #[error("the file is empty or damaged; it is written anew")]
    Damaged,
    /// The disk does not take it. If the clock is set back before the next start, that start is not
    /// told from this one.
    #[error("the file cannot be written")]
    Disk(#[source] io::Error),
}

/// Why a node cannot have its numbers. The configuration is at fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NumbersError {
    /// Another process runs with this file.
    #[error("another process has {}: two nodes with one identity?", .0.display())]
    InUse(PathBuf),
    /// The file is of another node.
    #[error("{} is of node {node}", .path.display())]
    OtherNode {
        /// The path.
        path: PathBuf,
        /// Whose file it is.
        node: NodeId,
    },
    /// There can be no file at this path.
    #[error("{} cannot be opened", .path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Numbers {
    /// Begins another life of `node` at `unix_ms`: reads the file at `path`, or makes one, and has the
    /// new numbers on disk when it returns.
    ///
    /// A disk that fails or a damaged file is no error but a [`fault`](Self::fault).
    ///
    /// # Errors
    /// When another process has the file, it is of another node, or there can be none at this path.
    pub fn begin(path: &Path, node: NodeId, unix_ms: u64) -> Result<Self, NumbersError> {
        let first = Copy { count: 0, node, boot: unix_ms, epoch: seconds(unix_ms) };
        let (file, is_new) = match open(path) {
            Ok(opened) => opened,
            Err(source) if is_of_disk(&source) => return Ok(first.life(None, Some(source))),
            Err(source) => return Err(NumbersError::Path { path: path.to_owned(), source }),
        };
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock)
            .map_err(|_| NumbersError::InUse(path.to_owned()))?;
        let (next, damaged) = match Copy::read(&lock) {
            Read::Nothing => (first, !is_new),
            Read::Damaged => (first, true),
            Read::Whole(last) if last.node != node => {
                return Err(NumbersError::OtherNode { path: path.to_owned(), node: last.node });
            }
            Read::Whole(last) => {
                let (boot, epoch) = (last.boot.saturating_add(1), u64::from(last.epoch));
                let epoch = epoch.max(seconds(unix_ms).into());
                let epoch = u32::try_from(epoch).unwrap_or(u32::MAX);
                let count = last.count.wrapping_add(1);
                let next = Copy { count, node, boot: boot.max(unix_ms), epoch };
                (next, false)
            }
        };
        // What the next life begins with is on disk before this one uses any.
        let written = Copy { epoch: next.epoch.saturating_add(EPOCHS), ..next }.write(&lock);
        let mut life = next.life(Some(lock), written.err());
        if life.fault.is_none() && damaged {
            life.fault = Some(NumbersFault::Damaged);
        }
        Ok(life)
    }
}

/// The content of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Copy {
    count: u64,
    node: NodeId,
    boot: u64,
    epoch: u32,
}

enum Read {
    /// The file is empty.
    Nothing,
    Damaged,
    Whole(Copy),
}

impl Copy {
    fn life(self, lock: Option<Flock<File>>, error: Option<io::Error>) -> Numbers {
        let Self { boot, epoch, .. } = self;
        Numbers { boot, epoch, fault: error.map(NumbersFault::Disk), _lock: lock }
    }

    fn read(file: &File) -> Read {
        let copies = OFFSETS.map(|offset| {
            let mut bytes = [0; LEN];
            file.read_exact_at(&mut bytes, offset).ok().and_then(|()| Self::parse(&bytes))
        });
        match copies.into_iter().flatten().max_by_key(|copy| copy.count) {
            Some(newest) => Read::Whole(newest),
            None if file.metadata().is_ok_and(|file| file.len() == 0) => Read::Nothing,
            None => Read::Damaged,
        }
    }

    fn parse(bytes: &[u8; LEN]) -> Option<Self> {
        let (body, sum) = bytes.split_last_chunk::<4>()?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| body[at + i]));
        if body[..8] != MAGIC || crc32fast::hash(body) != u32::from_le_bytes(*sum) {
            return None;
        }
        Some(Self {
            count: word(8),
            node: NodeId(u16::from_le_bytes([body[16], body[17]])),
            boot: word(18),
            epoch: u32::try_from(word(26)).unwrap_or(u32::MAX),
        })
    }

    fn write(self, file: &File) -> io::Result<()> {
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.count.to_le_bytes());
        bytes[16..18].copy_from_slice(&self.node.0.to_le_bytes());
        bytes[18..26].copy_from_slice(&self.boot.to_le_bytes());
        bytes[26..34].copy_from_slice(&u64::from(self.epoch).to_le_bytes());
        let sum = crc32fast::hash(&bytes[..LEN - 4]);
        bytes[LEN - 4..].copy_from_slice(&sum.to_le_bytes());
        let offset = OFFSETS[usize::from(self.count % 2 == 1)];
        file.write_all_at(&bytes, offset)?;
        file.sync_all()
    }
}

/// Opens the file, which is then sure to be found again, and returns whether it was made for that.
fn open(path: &Path) -> io::Result<(File, bool)> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent {
        std::fs::create_dir_all(parent)?;
    }
    let is_new = !path.exists();
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    if is_new {
        File::open(parent.unwrap_or_else(|| Path::new(".")))?.sync_all()?;
    }
    Ok((file, is_new))
}

/// Whether the disk is at fault and not the path.
fn is_of_disk(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    let errno = error.raw_os_error();
    matches!(error.kind(), StorageFull | ReadOnlyFilesystem | QuotaExceeded)
        || errno == Some(libc::EIO)
}

fn seconds(unix_ms: u64) -> u32 {
    u32::try_from(unix_ms / 1000).unwrap_or(u32::MAX)
}

const MAGIC: [u8; 8] = *b"\xf1HLnum\r\n";
const LEN: usize = 64;
const OFFSETS: [u64; 2] = [0, 4096];
/// How many epochs one life may use.
const EPOCHS: u32 = 1000;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const NODE: NodeId = NodeId(7);
    const MS: u64 = 1_800_000_000_000;

    #[test]
    fn numbers_rise_though_the_clock_is_set_back() {
        let place = Place::new();
        let first = place.begin(MS);
        assert_eq!((first.boot, first.epoch), (MS, 1_800_000_000));
        assert!(first.fault.is_none());
        drop(first);
        let second = place.begin(MS - 3_600_000);
        assert_eq!((second.boot, second.epoch), (MS + 1, 1_800_001_000));
        drop(second);
        let third = place.begin(MS + 3_600_000);
        assert_eq!((third.boot, third.epoch), (MS + 3_600_000, 1_800_003_600));
    }

    #[test]
    fn a_node_lives_in_one_process_only() {
        let place = Place::new();
        let life = place.begin(MS);
        let error = Numbers::begin(&place.path, NODE, MS).unwrap_err();
        assert!(matches!(error, NumbersError::InUse(_)), "{error}");
        drop(life);
        place.begin(MS);
    }

    #[test]
    fn the_file_of_another_node_is_refused() {
        let place = Place::new();
        drop(place.begin(MS));
        let error = Numbers::begin(&place.path, NodeId(8), MS).unwrap_err();
        assert_eq!(error.to_string(), format!("{} is of node 7", place.path.display()));
    }

    #[test]
    fn one_copy_is_enough_and_none_is_said() {
        let place = Place::new();
        drop(place.begin(MS));
        drop(place.begin(MS));
        let whole = std::fs::read(&place.path).unwrap();

        let mut torn = whole.clone();
        torn[4096 + 20] ^= 1;
        std::fs::write(&place.path, torn).unwrap();
        let life = place.begin(0);
        assert_eq!(life.boot, MS + 1, "of the copy before");
        assert!(life.fault.is_none());
        drop(life);

        for damaged in [&whole[..40], &whole[1..], b"something else", b""] {
            std::fs::write(&place.path, damaged).unwrap();
            let life = place.begin(MS);
            assert!(matches!(life.fault, Some(NumbersFault::Damaged)));
            assert_eq!(life.boot, MS);
            drop(life);
            assert!(place.begin(MS).fault.is_none());
        }
    }

    #[test]
    fn a_path_that_no_file_can_have_is_refused() {
        let place = Place::new();
        std::fs::write(&place.path, "").unwrap();
        let error = Numbers::begin(&place.path.join("numbers"), NODE, MS).unwrap_err();
        assert!(matches!(error, NumbersError::Path { .. }), "{error}");
    }

    /// A file of one test, gone with it.
    struct Place {
        path: PathBuf,
    }

    impl Place {
        fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("holdline-numbers-{}-{count}", std::process::id());
            Self { path: std::env::temp_dir().join(name) }
        }

        fn begin(&self, unix_ms: u64) -> Numbers {
            Numbers::begin(&self.path, NODE, unix_ms).unwrap()
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
