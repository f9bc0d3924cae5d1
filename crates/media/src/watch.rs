//! Notices that one worker hangs while the process runs.

use std::time::{Duration, Instant};

/// Between two looks.
pub(crate) const TICK: Duration = Duration::from_millis(20);

/// A worker without a turn for this long, while every look was in time, hangs.
const TICKS_MAX_REALTIME: u32 = 10;

/// So many without a real-time class: on a busy machine one thread may wait long for a processor
/// that another gets at once, and the beats already tell of it.
const TICKS_MAX: u32 = 100;

/// Counts looks at the workers' turns. A late look means that the process, or the host, was paused: that is no
/// worker's fault, and everything counts from then on.
#[derive(Debug)]
pub(crate) struct Watch {
    looked_at: Instant,
    workers: Vec<Seen>,
    ticks_max: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    turns: u64,
    /// Looks in a row that saw the same number of turns.
    ticks: u32,
}

impl Watch {
    /// `realtime`: this thread and the workers run in a real-time class.
    pub(crate) fn new(now: Instant, workers: usize, realtime: bool) -> Self {
        let ticks_max = if realtime { TICKS_MAX_REALTIME } else { TICKS_MAX };
        Self { looked_at: now, workers: vec![Seen::default(); workers], ticks_max }
    }

    /// Looks at each worker's number of turns; returns one that hangs.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        turns: impl IntoIterator<Item = u64>,
    ) -> Option<usize> {
        let paused = 2 * TICK < now.saturating_duration_since(self.looked_at);
        self.looked_at = now;
        let mut hangs = None;
        for (worker, (seen, turns)) in self.workers.iter_mut().zip(turns).enumerate() {
            seen.ticks = if paused || seen.turns != turns { 0 } else { seen.ticks + 1 };
            seen.turns = turns;
            if self.ticks_max <= seen.ticks {
                hangs = hangs.or(Some(worker));
            }
        }
        hangs
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests need a first instant")]
mod tests {
    use super::*;

    #[test]
    fn a_worker_without_a_turn_for_200_ms_hangs() {
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

    struct Run {
        now: Instant,
        watch: Watch,
    }

    impl Run {
        fn new(realtime: bool) -> Self {
            let now = Instant::now();
            Self { now, watch: Watch::new(now, 2, realtime) }
        }

        fn look(&mut self, after: Duration, turns: [u64; 2]) -> Option<usize> {
            self.now += after;
            self.watch.look(self.now, turns)
        }
    }
}
