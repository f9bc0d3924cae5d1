use std::sync::mpsc::channel;
use std::time::Duration;

use super::*;

const SMALL: Bounds = Bounds { file_len: 20, files_max: 3, waiting_max: 64 };

#[test]
fn every_event_is_a_line_and_full_files_are_followed_by_the_next() {
    let folder = folder("lines");
    let spool = open(&folder, SMALL);

    for number in 0..6 {
        spool.put(number);
        wait(|| spool.written() == number + 1);
    }

    // The third reaches the length of a file.
    let files = ["000000000001.jsonl", "000000000002.jsonl"];
    assert_eq!(names(&folder), files);
    let text = files.map(|name| fs::read_to_string(folder.join(name)).unwrap()).concat();
    assert_eq!(text, "event 0\nevent 1\nevent 2\nevent 3\nevent 4\nevent 5\n");
    assert_eq!((spool.dropped(), spool.troubles()), (0, 0));
}

#[test]
fn what_finds_no_room_is_dropped_and_counted_until_somebody_takes_files_away() {
    let folder = folder("full");
    let spool = open(&folder, SMALL);
    let mut put = 0;
    while spool.dropped() == 0 {
        spool.put(put);
        put += 1;
        wait(|| spool.written() + spool.dropped() == put);
    }
    assert_eq!((spool.written(), spool.troubles()), (9, 1), "three files of three lines");
    spool.put(0);
    wait(|| spool.dropped() == 2);
    assert_eq!(spool.troubles(), 1, "it is told once");

    fs::remove_file(folder.join("000000000001.jsonl")).unwrap();
    spool.put(77);
    wait(|| spool.written() == 10);

    let last = folder.join("000000000004.jsonl");
    assert_eq!(fs::read_to_string(last).unwrap(), "event 77\n");
}

#[test]
fn a_folder_that_cannot_be_written_drops_and_is_tried_again() {
    let folder = folder("unwritable");
    fs::remove_dir_all(&*folder).unwrap();
    fs::write(&*folder, "a file is in the way").unwrap();
    let spool = open(&folder, SMALL);

    spool.put(1);
    wait(|| spool.dropped() == 1);
    assert_eq!((spool.written(), spool.troubles()), (0, 1));
    fs::remove_file(&*folder).unwrap();
    spool.put(2);
    wait(|| spool.written() == 1);

    assert_eq!(names(&folder), ["000000000001.jsonl"]);
}

#[test]
fn a_folder_that_cannot_be_synced_is_not_filled_with_empty_files() {
    let folder = folder("unsynced");
    let mut files = Files {
        folder: folder.to_owned(),
        bounds: SMALL,
        sync_folder: Some(|_| Err(io::Error::other("input or output error"))),
        current: None,
        last: 0,
    };

    for _ in 0..=SMALL.files_max {
        let error = files.write(b"a line\n").unwrap_err();
        assert_eq!(error.to_string(), "input or output error");
    }
    assert_eq!(names(&folder), [""; 0]);

    files.sync_folder = Some(sync_folder);
    files.write(b"a line\n").unwrap();
    assert_eq!(names(&folder), ["000000000005.jsonl"]);
}

#[test]
fn what_is_written_after_the_newest_file_or_the_folder_was_taken_away_is_found() {
    for taken in ["file", "moved", "replaced", "folder"] {
        let folder = folder(&format!("taken-{taken}"));
        let path = folder.to_owned();
        let (gives, given) = channel();
        let done = move |number: u64| {
            let text: String =
                names(&path).iter().map(|it| fs::read_to_string(path.join(it)).unwrap()).collect();
            let _ = gives.send((number, text.contains(&format!("event {number}\n"))));
        };
        let render = |number: &u64, line: &mut String| line.push_str(&format!("event {number}"));
        let spool = Spool::open_synced(&folder, Bounds::default(), render, done).unwrap();
        spool.put(1);
        assert_eq!(given.recv().unwrap(), (1, true));

        let first = folder.join("000000000001.jsonl");
        match taken {
            "file" => fs::remove_file(&first).unwrap(),
            "moved" => fs::rename(&first, folder.join("taken")).unwrap(),
            "replaced" => {
                fs::remove_file(&first).unwrap();
                fs::write(&first, "").unwrap();
            }
            _ => fs::remove_dir_all(&*folder).unwrap(),
        }
        for number in 2..5 {
            spool.put(number);
            assert_eq!(given.recv().unwrap(), (number, true), "{taken}");
        }
        assert_eq!((spool.written(), spool.dropped()), (4, 0));
        let newest = folder.join("000000000002.jsonl");
        assert_eq!(fs::read_to_string(newest).unwrap(), "event 2\nevent 3\nevent 4\n", "{taken}");
    }
}

#[test]
fn a_newest_file_whose_name_cannot_be_looked_up_is_not_taken_for_gone() {
    let folder = folder("unseen");
    let file = File::create(folder.join("000000000001.jsonl")).unwrap();
    // As a disk that does not answer for a moment: nobody can say what has this name.
    let path = folder.join("x".repeat(300));
    let mut files = Files {
        folder: folder.to_owned(),
        bounds: SMALL,
        sync_folder: None,
        current: Some(Current { file, path, len: 0 }),
        last: 1,
    };

    files.write(b"a line\n").unwrap();

    assert_eq!(names(&folder), ["000000000001.jsonl"]);
}

#[test]
fn a_file_of_the_last_number_there_is_is_not_followed_and_nothing_is_overwritten() {
    let folder = folder("last");
    let last = folder.join(format!("{}.jsonl", u64::MAX));
    let zero = folder.join("000000000000.jsonl");
    for path in [&last, &zero] {
        fs::write(path, "kept").unwrap();
    }
    let spool = open(&folder, SMALL);
    spool.put(1);
    wait(|| spool.dropped() == 1);
    assert_eq!(fs::read_to_string(&zero).unwrap(), "kept");
    fs::remove_file(last).unwrap();
    spool.put(2);
    wait(|| spool.written() == 1);
    assert_eq!(names(&folder), ["000000000000.jsonl", "000000000001.jsonl"]);
}

#[test]
fn the_name_of_a_folder_that_is_made_is_synced_too() {
    thread_local! {
        static SYNCED: std::cell::RefCell<Vec<PathBuf>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    let folder = folder("parent");
    let inner = folder.join("details");
    let mut files = Files {
        folder: inner.clone(),
        bounds: SMALL,
        sync_folder: Some(|path| {
            SYNCED.with_borrow_mut(|synced| synced.push(path.to_owned()));
            sync_folder(path)
        }),
        current: None,
        last: 0,
    };
    files.write(b"a line\n").unwrap();
    assert_eq!(SYNCED.take(), [inner, folder.to_owned()]);
}

#[test]
fn what_is_given_back_is_on_disk_and_what_is_dropped_is_not_given_back() {
    let folder = folder("given-back");
    let (gives, given) = channel();
    let path = folder.to_owned();
    let done = move |number: u64| {
        let text: String =
            names(&path).iter().map(|it| fs::read_to_string(path.join(it)).unwrap()).collect();
        let _ = gives.send((number, text.contains(&format!("event {number}\n"))));
    };
    let render = |number: &u64, line: &mut String| line.push_str(&format!("event {number}"));
    let spool = Spool::open_synced(&folder, SMALL, render, done).unwrap();
    for number in 10..30 {
        spool.put(number);
        wait(|| spool.written() + spool.dropped() == number - 9);
    }
    let written = spool.written();
    drop(spool);

    let given: Vec<_> = given.iter().collect();
    assert!((1..20).contains(&written), "three files are full: {written}");
    let expected: Vec<_> = (10..10 + written).map(|number| (number, true)).collect();
    assert_eq!(given, expected);
}

#[test]
fn the_next_life_goes_on_in_a_file_of_its_own() {
    let folder = folder("lives");
    for life in 1..3 {
        let spool = open(&folder, Bounds::default());
        spool.put(life);
        wait(|| spool.written() == 1);
    }

    assert_eq!(names(&folder), ["000000000001.jsonl", "000000000002.jsonl"]);
}

#[test]
fn who_puts_never_waits_for_a_slow_disk() {
    let (release, held) = channel::<()>();
    let render = move |_: &u64, _: &mut String| {
        let _ = held.recv();
    };
    let folder = folder("slow");
    let spool = Spool::open(&folder, SMALL, render).unwrap();

    for number in 0..1000 {
        spool.put(number);
    }

    // One is being written, and as many as may wait.
    assert!((1000 - 65..1000).contains(&spool.dropped()), "{}", spool.dropped());
    assert_eq!(spool.troubles(), 1, "it is told while the disk hangs, and once");
    drop(release);
    wait(|| spool.written() + spool.dropped() == 1000);
}

#[test]
fn what_waits_at_the_end_of_a_process_is_written_first() {
    let folder = folder("end");
    let (release, held) = channel::<()>();
    let render = move |_: &u64, line: &mut String| {
        let _ = held.recv();
        line.push_str("event");
    };
    let bounds = Bounds { file_len: 1 << 20, ..SMALL };
    let spool = Spool::open(&folder, bounds, render).unwrap();
    (0..10).for_each(|number| spool.put(number));

    // Each takes a while.
    let disk = std::thread::spawn(move || {
        for _ in 0..10 {
            std::thread::park_timeout(Duration::from_millis(1));
            let _ = release.send(());
        }
    });
    drop(spool);

    let text = fs::read_to_string(folder.join("000000000001.jsonl")).unwrap();
    assert_eq!(text, "event\n".repeat(10));
    disk.join().unwrap();
}

#[test]
fn the_end_of_a_process_does_not_wait_for_a_disk_that_hangs() {
    let folder = folder("hangs");
    let (release, held) = channel::<()>();
    let (writes, ended) = channel::<()>();
    let render = move |_: &u64, _: &mut String| {
        let _ = (held.recv(), &writes);
    };
    let spool = Spool::open(&folder, SMALL, render).unwrap();
    spool.put(1);

    // A wait without an end would never come back: nobody releases the disk before.
    drop(spool);
    drop(release);
    // It writes into the folder until then.
    assert!(ended.recv().is_err());
}

fn open(folder: &Path, bounds: Bounds) -> Spool<u64> {
    let render = |number: &u64, line: &mut String| line.push_str(&format!("event {number}"));
    Spool::open(folder, bounds, render).unwrap()
}

/// A folder of one test, gone with it.
struct Folder(PathBuf);

fn folder(name: &str) -> Folder {
    let folder = std::env::temp_dir().join(format!("holdline-spool-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    Folder(folder)
}

impl std::ops::Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[expect(clippy::disallowed_methods, reason = "another thread works meanwhile")]
fn wait(done: impl Fn() -> bool) {
    for _ in 0..1000 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("not within 5 s");
}
