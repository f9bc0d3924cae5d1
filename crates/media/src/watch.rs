//! Notices that one worker hangs while the process runs.

use std::fs;
use std::time::{Duration, Instant};

/// Between two looks.
pub(crate) const TICK: Duration = Duration::from_millis(20);

/// A worker without a turn for so long, while every look was in time, hangs.
const HANG_REALTIME: Duration = Duration::from_millis(200);

/// So long without a real-time class: another thread that has to wait for a processor may hold what the
/// worker needs, and the beats already tell of it.
const HANG: Duration = Duration::from_secs(2);

/// Looks at the workers' turns. A late look means that the process, or the host, was paused: that is no worker's
/// fault, and everything counts from then on. Nor does time count in which a worker could have run and got no
/// processor: it is starved then, and will go on.
#[derive(Debug)]
pub(crate) struct Watch {
    looked_at: Instant,
    workers: Vec<Seen>,
    hang: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    turns: u64,
    /// For how long the same number of turns was seen.
    stuck: Duration,
    /// The processor time that the worker had at the last look, if it was asked for.
    ran: Option<Duration>,
}

/// What a thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Doing {
    /// It has a processor, or waits for one and for nothing else.
    pub(crate) runnable: bool,
    /// The processor time that it had so far.
    pub(crate) ran: Duration,
}

impl Doing {
    /// Returns what the thread `id` of this process is doing; `None` where the system does not tell.
    pub(crate) fn of(id: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/self/task/{id}/stat")).ok()?;
        // A name may hold anything, brackets too.
        let (_, fields) = text.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace();
        let runnable = fields.next()? == "R";
        let mut ticks = fields.skip(10).map(str::parse::<u64>);
        let ticks = ticks.next()?.ok()? + ticks.next()?.ok()?;
        Some(Self { runnable, ran: Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND) })
    }
}

/// Returns the number of the calling thread; `None` where the system does not tell.
pub(crate) fn thread_id() -> Option<u32> {
    fs::read_link("/proc/thread-self").ok()?.file_name()?.to_str()?.parse().ok()
}

/// `USER_HZ`, the same on every Linux that we run on.
const TICKS_PER_SECOND: u64 = 100;

impl Watch {
    /// `realtime`: this thread and the workers run in a real-time class.
    pub(crate) fn new(now: Instant, workers: usize, realtime: bool) -> Self {
        let hang = if realtime { HANG_REALTIME } else { HANG };
        Self { looked_at: now, workers: vec![Seen::default(); workers], hang }
    }

    /// Looks at each worker's number of turns; returns one that hangs. `doing` is asked about those that had none.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        turns: impl IntoIterator<Item = u64>,
        doing: impl Fn(usize) -> Option<Doing>,
    ) -> Option<usize> {
        let paused = 2 * TICK < now.saturating_duration_since(self.looked_at);
        self.looked_at = now;
        let mut hangs = None;
        for (worker, (seen, turns)) in self.workers.iter_mut().zip(turns).enumerate() {
            if paused || seen.turns != turns {
                *seen = Seen { turns, ..Seen::default() };
                continue;
            }
            seen.stuck += match doing(worker) {
                Some(Doing { runnable: true, ran }) => {
                    // The first time it is not known what it had since the last look.
                    let had = seen.ran.map_or(Duration::ZERO, |before| ran.saturating_sub(before));
                    seen.ran = Some(ran);
                    had
                }
                Some(Doing { runnable: false, .. }) | None => TICK,
            };
            if self.hang <= seen.stuck {
                hangs = hangs.or(Some(worker));
            }
        }
        hangs
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests need a first instant")]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_worker_that_waits_for_something_for_200_ms_hangs() {
        let mut run = Run::new(true);

        for turns in 0..30 {
            assert_eq!(run.look(TICK, [turns, 2 * turns]), None);
        }
        for turns in 30..39 {
            assert_eq!(run.look(TICK, [turns, 58]), None);
        }
        assert_eq!(run.look(TICK, [39, 58]), Some(1));
    }

    #[test]
    fn without_a_real_time_class_a_worker_gets_2_s() {
        let mut run = Run::new(false);

        for _ in 0..99 {
            assert_eq!(run.look(TICK, [7, 7]), None);
        }
        assert_eq!(run.look(TICK, [7, 8]), None);
        assert_eq!(run.look(TICK, [7, 9]), Some(0));
    }

    #[test]
    fn a_worker_that_spins_for_200_ms_of_its_own_hangs() {
        let mut run = Run::new(true);
        run.look(TICK, [7, 7]);

        for half in 0..20 {
            run.doing[0] = Some(running(10 * half));
            assert_eq!(run.look(TICK, [7, half]), None, "{half} times 10 ms in 20");
        }
        run.doing[0] = Some(running(200));
        assert_eq!(run.look(TICK, [7, 99]), Some(0));
    }

    #[test]
    fn a_worker_that_gets_no_processor_is_starved_and_does_not_hang() {
        let mut run = Run::new(true);
        run.look(TICK, [7, 7]);
        run.doing[0] = Some(running(4000));

        for turns in 0..500 {
            assert_eq!(run.look(TICK, [7, turns]), None);
        }
    }

    #[test]
    fn a_pause_of_the_process_is_no_workers_fault() {
        let mut run = Run::new(true);

        for _ in 0..10 {
            assert_eq!(run.look(TICK, [7, 7]), None);
        }
        assert_eq!(run.look(Duration::from_secs(3), [7, 7]), None);
        for _ in 0..9 {
            assert_eq!(run.look(TICK, [7, 7]), None);
        }
        assert_eq!(run.look(TICK, [7, 8]), Some(0));
    }

    #[test]
    fn the_system_tells_one_that_waits_from_one_that_runs() {
        let (tell, told) = channel();
        let (end, ended) = channel::<()>();
        let waiting = std::thread::spawn(move || {
            tell.send(thread_id().unwrap()).unwrap();
            ended.recv().unwrap_err();
        });
        let id = told.recv().unwrap();
        while Doing::of(id).unwrap().runnable {
            std::thread::yield_now();
        }
        drop(end);
        waiting.join().unwrap();
        while Doing::of(id).is_some() {
            std::thread::yield_now();
        }

        let own = thread_id().unwrap();
        let before = Doing::of(own).unwrap();
        assert!(before.runnable);
        while Doing::of(own).unwrap().ran < before.ran + Duration::from_millis(20) {}
    }

    fn running(ms: u64) -> Doing {
        Doing { runnable: true, ran: Duration::from_millis(ms) }
    }

    struct Run {
        now: Instant,
        watch: Watch,
        doing: [Option<Doing>; 2],
    }

    impl Run {
        fn new(realtime: bool) -> Self {
            let now = Instant::now();
            let blocked = Some(Doing { runnable: false, ran: Duration::ZERO });
            Self { now, watch: Watch::new(now, 2, realtime), doing: [blocked; 2] }
        }

        fn look(&mut self, after: Duration, turns: [u64; 2]) -> Option<usize> {
            self.now += after;
            self.watch.look(self.now, turns, |worker| self.doing[worker])
        }
    }
}
