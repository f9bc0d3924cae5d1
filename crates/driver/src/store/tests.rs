use std::cell::RefCell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use redb::StorageBackend;
use redb::backends::FileBackend;

use super::*;
use crate::run::clock;

#[test]
fn what_was_put_is_there_when_the_store_is_opened_again() {
    let place = Place::new();
    let (mut store, loaded) = place.open();
    assert_eq!(loaded, Loaded::default());
    put(&mut store, "a", "first");
    put(&mut store, "b", "removed");
    put(&mut store, "a", "second");
    written(&store);
    store.put(clock(), Bytes::from_static(b"b"), None);
    put(&mut store, "c", "last");
    drop(store);

    let (_store, loaded) = place.open();
    assert_eq!(loaded, values(&[("a", "second"), ("c", "last")]));
}

#[test]
fn what_is_put_together_is_written_together_and_survives_a_crash_from_then_on() {
    let place = Place::new();
    let (mut store, _) = place.open();
    let many: Vec<(String, String)> =
        (0..1000).map(|i| (format!("call {i:04}"), "x".repeat(1500))).collect();
    for (key, value) in &many {
        put(&mut store, key, value);
    }
    written(&store);
    assert!(store.health().commits <= 20, "{:?}", store.health());

    // What a killed process leaves behind.
    let crashed = Place::new();
    std::fs::copy(&place.path, &crashed.path).unwrap();
    let (_store, loaded) = crashed.open();
    let many: Vec<_> = many.iter().map(|(key, value)| (&**key, &**value)).collect();
    assert_eq!(loaded, values(&many));
}

#[test]
fn a_full_disk_stops_nothing_and_is_written_once_it_has_room() {
    for (errno, trouble) in FAILURES {
        let place = Place::new();
        let (mut store, _) = place.open();
        put(&mut store, "a", "before");
        written(&store);

        place.fail(errno);
        put(&mut store, "a", "meanwhile");
        put(&mut store, "b", "meanwhile");
        until(|| store.health().trouble == Some(trouble));
        put(&mut store, "c", "meanwhile");
        assert_eq!(store.health().pending, 3);

        place.fail(0);
        until(|| store.health().trouble.is_none());
        drop(store);
        let (_store, loaded) = place.open();
        let all = [("a", "meanwhile"), ("b", "meanwhile"), ("c", "meanwhile")];
        assert_eq!(loaded, values(&all));
    }
}

#[test]
fn a_store_that_is_taken_away_while_it_is_written_is_written_anew_as_a_whole() {
    type Takes = fn(&Path);
    let ways: [Takes; 4] = [
        |path| std::fs::remove_file(path).unwrap(),
        |path| std::fs::rename(path, path.with_extension("moved")).unwrap(),
        |path| {
            std::fs::remove_file(path).unwrap();
            File::create(path).unwrap();
        },
        |path| std::fs::remove_dir_all(path.parent().unwrap()).unwrap(),
    ];
    for (index, takes) in ways.into_iter().enumerate() {
        let place = Place::new();
        let inner = place.path.with_extension("folder").join("store");
        let (mut store, _) = Store::open(&inner, "cluster").unwrap();
        put(&mut store, "a", "before");
        put(&mut store, "b", "before");
        written(&store);

        takes(&inner);
        put(&mut store, "b", "after");
        written(&store);
        assert!(matches!(Store::open(&inner, "cluster"), Err(OpenError::InUse(_))), "{index}");
        drop(store);
        let (store, loaded) = Store::open(&inner, "cluster").unwrap();
        assert_eq!(loaded, values(&[("a", "before"), ("b", "after")]), "{index}");
        drop(store);
        std::fs::remove_dir_all(inner.parent().unwrap()).unwrap();
    }
}

#[test]
fn changes_that_failed_are_written_below_later_ones() {
    let place = Place::new();
    let (mut store, _) = place.open();
    place.fail(libc::ENOSPC);
    put(&mut store, "a", "old");
    put(&mut store, "b", "old");
    until(|| store.health().trouble == Some(Trouble::Full));
    store.put(clock(), Bytes::from_static(b"a"), None);
    put(&mut store, "b", "new");
    assert_eq!(store.health().pending, 2);
    place.fail(0);
    until(|| store.health().trouble.is_none());
    drop(store);
    let (_store, loaded) = place.open();
    assert_eq!(loaded, values(&[("b", "new")]));
}

#[test]
fn a_disk_that_takes_nothing_gives_what_it_has() {
    for (errno, trouble) in FAILURES {
        let place = Place::new();
        let (mut store, _) = place.open();
        put(&mut store, "a", "old");
        put(&mut store, "b", "removed");
        written(&store);
        store.put(clock(), Bytes::from_static(b"b"), None);
        put(&mut store, "a", "new");
        drop(store);

        place.fail(errno);
        let (mut store, loaded) = place.open();
        assert_eq!(loaded.values, values(&[("a", "new")]).values);
        assert_eq!(loaded.faults, [Fault::Disk(trouble)]);
        assert_eq!(store.health().trouble, Some(trouble));
        put(&mut store, "c", "later");
        drop(store);

        place.fail(0);
        let (_store, loaded) = place.open();
        assert_eq!(loaded, values(&[("a", "new")]), "nothing was written");
    }
}

#[test]
fn a_file_cut_off_anywhere_gives_what_is_whole_in_it() {
    let place = Place::filled(60);
    let whole = std::fs::read(&place.path).unwrap();
    for len in [0, 1, 64, 320, 4096, 5000, 40_000, 80_000, whole.len() / 2, whole.len() - 1] {
        let cut = Place::new();
        std::fs::write(&cut.path, &whole[..len.min(whole.len())]).unwrap();
        cut.comes_back(60, &format!("cut off at {len}"));
    }
}

#[test]
fn a_file_with_wrong_bytes_anywhere_gives_what_is_whole_in_it() {
    let place = Place::filled(60);
    let whole = std::fs::read(&place.path).unwrap();
    let mut draw = 1_u64;
    let mut restored = 0;
    for (round, filling) in (0..60_u8).enumerate() {
        let mut wrong = whole.clone();
        for _ in 0..=round % 8 {
            draw = draw
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let at = usize::try_from(draw >> 33).unwrap() % whole.len();
            let end = whole.len().min(at + 1 + round * 20);
            wrong[at..end].fill(filling);
        }
        let broken = Place::new();
        std::fs::write(&broken.path, wrong).unwrap();
        restored += broken.comes_back(60, &format!("round {round}"));
    }
    assert!(60 * 60 * 2 / 3 < restored, "only {restored} values of {} were whole", 60 * 60);
}

#[test]
fn a_file_of_something_else_is_kept_and_said() {
    let place = Place::new();
    std::fs::write(&place.path, "no database at all").unwrap();
    let (_store, loaded) = place.open();
    let kept = PathBuf::from(format!("{}.broken-1", place.path.display()));
    assert_eq!(loaded.faults, [Fault::Broken { values: 0, kept: kept.clone() }]);
    assert_eq!(std::fs::read_to_string(kept).unwrap(), "no database at all");
}

#[test]
fn values_of_another_cluster_or_version_or_with_wrong_bytes_are_named() {
    let place = Place::new();
    let (mut store, _) = Store::open(&place.path, "elsewhere").unwrap();
    put(&mut store, "a", "theirs");
    drop(store);
    let (mut store, loaded) = place.open();
    let name = |text: &'static str| Name(Bytes::from_static(text.as_bytes()));
    let other = Fault::OtherCluster { key: name("a"), cluster: name("elsewhere") };
    assert_eq!((loaded.values, loaded.faults), (vec![], vec![other.clone()]));
    put(&mut store, "b", "ours");
    drop(store);

    // By hand: a later format, and a value that is none.
    let mut later = envelope::seal("here", 9, &Bytes::from_static(b"c"), &Bytes::new());
    later[8] = 2;
    let end = later.len() - 4;
    let sum = crc32fast::hash(&later[8..end]);
    later[end..].copy_from_slice(&sum.to_le_bytes());
    let database = redb::Database::create(&place.path).unwrap();
    let transaction = database.begin_write().unwrap();
    let mut table = transaction.open_table(disk::TABLE).unwrap();
    table.insert(&b"c"[..], &later[..]).unwrap();
    table.insert(&b"d"[..], &b"nothing"[..]).unwrap();
    drop(table);
    transaction.commit().unwrap();
    drop(database);

    let (store, loaded) = place.open();
    let later = Fault::OtherVersion { key: name("c"), version: 2 };
    assert_eq!(loaded.faults, [other, later.clone(), Fault::Damaged(name("d"))]);
    assert_eq!(loaded.values, values(&[("b", "ours")]).values);
    assert_eq!(later.to_string(), "c was written by another version, in format 2");
    drop(store);
    let (_store, loaded) = place.open();
    assert_eq!(loaded.faults.len(), 2, "a damaged value is said once");
}

#[test]
fn a_store_is_open_in_one_process_only() {
    let place = Place::new();
    let (store, _) = place.open();
    let error = Store::open(&place.path, "here").unwrap_err();
    let text = format!("the store {} is in use by another process", place.path.display());
    assert_eq!(error.to_string(), text);
    drop(store);
    place.open();
}

#[test]
fn a_path_that_no_file_can_have_is_refused() {
    let place = Place::new();
    std::fs::write(&place.path, "a file").unwrap();
    let error = Store::open(&place.path.join("store"), "here").unwrap_err();
    assert!(matches!(error, OpenError::Path { .. }), "{error:?}");
}

#[test]
fn what_is_too_long_is_refused_and_counted() {
    let place = Place::new();
    let (mut store, _) = place.open();
    store.put(clock(), Bytes::from(vec![0; KEY_MAX + 1]), None);
    store.put(clock(), Bytes::from_static(b"a"), Some(Bytes::from(vec![0; VALUE_MAX + 1])));
    store.put(clock(), Bytes::from(vec![1; KEY_MAX]), Some(Bytes::from(vec![0; VALUE_MAX])));
    assert_eq!(store.health().refused, 2);
    drop(store);
    let (_store, loaded) = place.open();
    assert_eq!(loaded.values.len(), 1);
}

#[test]
fn a_simulated_disk_loses_what_was_put_shortly_before_the_crash() {
    let disk = MemoryDisk::default();
    let (mut store, _) = Store::memory(&disk);
    let now = clock();
    let later = |ms| now + Duration::from_millis(ms);
    store.put(now, Bytes::from_static(b"a"), Some(Bytes::from_static(b"first")));
    store.put(later(90), Bytes::from_static(b"a"), Some(Bytes::from_static(b"second")));
    store.put(later(95), Bytes::from_static(b"b"), Some(Bytes::from_static(b"third")));
    disk.crash(later(110), Duration::from_millis(20));

    let (_store, loaded) = Store::memory(&disk);
    assert_eq!(loaded, values(&[("a", "second")]));
}

/// What a disk says to every write, and what it then suffers from.
const FAILURES: [(i32, Trouble); 5] = [
    (libc::ENOSPC, Trouble::Full),
    (libc::EDQUOT, Trouble::Full),
    (libc::EFBIG, Trouble::Limit),
    (libc::EROFS, Trouble::ReadOnly),
    (libc::EIO, Trouble::System(libc::EIO)),
];

/// A directory of one test, gone with it.
struct Place {
    directory: PathBuf,
    path: PathBuf,
}

impl Place {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("holdline-store-{}-{count}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        Self { path: directory.join("store"), directory }
    }

    /// A store with this many values, each put twice, that was closed.
    fn filled(count: usize) -> Self {
        let place = Self::new();
        let (mut store, _) = place.open();
        for version in ["old", "new"] {
            for i in 0..count {
                let (key, value) = record(i, version);
                store.put(clock(), key, Some(value));
            }
            written(&store);
        }
        place
    }

    fn open(&self) -> (Store, Loaded) {
        Store::open(&self.path, "here").unwrap()
    }

    fn fail(&self, errno: i32) {
        ERRNO.with(|one| one.borrow().0.store(errno, Ordering::Relaxed));
    }

    /// Holds a store of [`filled`](Self::filled) that was damaged to what it must give; returns how
    /// many values came back.
    fn comes_back(&self, count: usize, how: &str) -> usize {
        let (store, loaded) = self.open();
        let back = loaded.values.len();
        for (key, value) in &loaded.values {
            let versions =
                ["old", "new"].map(|version| (0..count).map(move |i| record(i, version)));
            let is_one =
                versions.into_iter().flatten().any(|one| one == (key.clone(), value.clone()));
            assert!(is_one, "{how}: {key:?} came back as something else");
        }
        assert!(back == count || !loaded.faults.is_empty(), "{how}: {back} values, nothing said");
        drop(store);
        let (mut store, again) = self.open();
        assert_eq!(again, Loaded { values: loaded.values, ..Loaded::default() }, "{how}, again");
        put(&mut store, "z", "goes on");
        written(&store);
        back
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn record(i: usize, version: &str) -> (Bytes, Bytes) {
    let value = format!("{version} {i} {}", "x".repeat(100 * (i % 40)));
    (Bytes::from(format!("call {i:04}")), Bytes::from(value))
}

fn put(store: &mut Store, key: &str, value: &str) {
    let (key, value) = (key.to_owned().into(), value.to_owned().into());
    store.put(clock(), key, Some(value));
}

fn values(values: &[(&str, &str)]) -> Loaded {
    let values = values.iter();
    let values = values.map(|(key, value)| (key.to_string().into(), value.to_string().into()));
    Loaded { values: values.collect(), ..Loaded::default() }
}

/// Waits until everything that was put is on disk.
fn written(store: &Store) {
    let before = store.health().commits;
    until(|| store.health().pending == 0 && before < store.health().commits);
}

fn until(is_so: impl Fn() -> bool) {
    let give_up_at = clock() + Duration::from_secs(60);
    while !is_so() {
        assert!(clock() < give_up_at, "it never comes");
        std::thread::yield_now();
    }
}

thread_local! {
    static ERRNO: RefCell<Errno> = RefCell::default();
}

/// What the disk of a test says to every write; zero for nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Errno(Arc<AtomicI32>);

impl Errno {
    pub(super) fn of_this_test() -> Self {
        ERRNO.with(|errno| errno.borrow().clone())
    }

    pub(super) fn file(&self, file: File) -> Result<FaultyFile, redb::DatabaseError> {
        Ok(FaultyFile { file: FileBackend::new(file)?, errno: self.clone() })
    }

    fn check(&self) -> std::io::Result<()> {
        match self.0.load(Ordering::Relaxed) {
            0 => Ok(()),
            errno => Err(std::io::Error::from_raw_os_error(errno)),
        }
    }
}

/// A file on a disk that fails when the test says so.
#[derive(Debug)]
pub(super) struct FaultyFile {
    file: FileBackend,
    errno: Errno,
}

impl StorageBackend for FaultyFile {
    fn len(&self) -> std::io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, len: usize) -> std::io::Result<Vec<u8>> {
        self.file.read(offset, len)
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.errno.check()?;
        self.file.set_len(len)
    }

    fn sync_data(&self, eventual: bool) -> std::io::Result<()> {
        self.errno.check()?;
        self.file.sync_data(eventual)
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.errno.check()?;
        self.file.write(offset, data)
    }
}
