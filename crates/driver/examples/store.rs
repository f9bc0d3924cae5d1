//! What the local store costs: `cargo run --release -p driver --example store [-- DIRECTORY [CALLS]]`.
//!
//! Calls with a record of 1.2 kB come at 100 a second. Each changes its record six times and is removed
//! ten seconds after it came. Printed is what a change costs the thread that puts it, the process and the
//! disk, and how long it takes to open the store again.
#![expect(clippy::disallowed_methods, reason = "an example reads the clock and waits")]
#![expect(clippy::print_stdout, reason = "an example prints")]
#![expect(clippy::cast_precision_loss, reason = "figures are rounded when shown")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use driver::store::Store;
use nix::sys::resource::{UsageWho, getrusage};

const RECORD_LEN: usize = 1200;
const CHANGES: u64 = 6;
const LIVES: u64 = 1000;
const PERIOD: Duration = Duration::from_millis(10);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let directory = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let calls: u64 = args.next().map_or(Ok(2000), |calls| calls.parse())?;
    let path = directory.join(format!("store-{}", std::process::id()));
    let (mut store, _) = Store::open(&path, "example")?;

    let (mut putting, mut puts) = (Duration::ZERO, 0_u64);
    let mut put = |store: &mut Store, call: u64, value: Option<Bytes>| {
        let now = Instant::now();
        store.put(now, Bytes::copy_from_slice(&call.to_be_bytes()), value);
        putting += now.elapsed();
        puts += 1;
    };
    let (began_at, used) = (Instant::now(), cpu());
    for call in 0..calls {
        // Changes of one call lie apart, so each is written.
        let changed = (0..CHANGES).filter_map(|change| call.checked_sub(change * 20));
        changed.for_each(|call| put(&mut store, call, Some(vec![b'0'; RECORD_LEN].into())));
        if let Some(over) = call.checked_sub(LIVES) {
            put(&mut store, over, None);
        }
        let next = began_at + PERIOD * u32::try_from(call)?;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    while 0 < store.health().pending {
        std::thread::sleep(PERIOD);
    }
    let (took, used) = (began_at.elapsed(), cpu() - used);
    let health = store.health();
    drop(store);

    let disk = std::fs::metadata(&path)?.len();
    let opening_at = Instant::now();
    let (store, loaded) = Store::open(&path, "example")?;
    let opened = opening_at.elapsed();
    drop(store);
    std::fs::remove_file(&path)?;
    std::fs::remove_file(path.with_extension("lock"))?;

    let each = |span: Duration| span.as_secs_f64() * 1e6 / puts as f64;
    let mean = health.commit_total / u32::try_from(health.commits)?;
    let grouped = health.written as f64 / health.commits as f64;
    println!("changes      {puts} in {:.1} s", took.as_secs_f64());
    println!("caller       {:.2} us a change", each(putting));
    println!("process      {:.1} us of CPU a change", each(used));
    println!("values       {} bytes a change, with envelope", health.bytes / puts);
    println!("commits      {} of {grouped:.1} changes", health.commits);
    println!("a commit     {:.1} ms, at most {:.1} ms", ms(mean), ms(health.commit_max));
    println!("file         {} kB for {} records", disk / 1024, loaded.values.len());
    println!("open again   {:.1} ms", ms(opened));
    Ok(())
}

/// Returns how much CPU this process has used.
fn cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("a process may ask for its own usage");
    let span = |time: nix::sys::time::TimeVal| {
        let micros = time.tv_sec() * 1_000_000 + time.tv_usec();
        Duration::from_micros(u64::try_from(micros).unwrap_or_default())
    };
    span(usage.user_time()) + span(usage.system_time())
}

fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}
