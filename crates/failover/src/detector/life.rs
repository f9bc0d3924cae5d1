//! What is known of one boot of a mediagate.

use std::time::{Duration, Instant};

use super::{Beat, Cause, Counters, DOUBT, STEADY};
use crate::Boot;

#[derive(Clone, Debug)]
pub(super) struct Life {
    pub(super) boot: Boot,
    pub(super) latest: Beat,
    /// Whether a datagram was sent since this boot was first heard, so that a refusal is about it.
    pub(super) asked: bool,
    standing: Standing,
    workers: Vec<Worker>,
    /// How many false verdicts weigh on the threshold, and until when.
    doubts: u32,
    doubts_until: Instant,
}

#[derive(Clone, Copy, Debug)]
enum Standing {
    /// Not every worker has been heard yet.
    Starting,
    /// Every worker has been heard.
    Alive,
    /// Judged. `risen`: it spoke again and that was counted. `steady_from`: since when nothing
    /// was missed.
    Dead { cause: Cause, risen: bool, steady_from: Option<Instant> },
}

#[derive(Clone, Copy, Debug)]
struct Worker {
    heard_at: Instant,
    seq: Option<u32>,
}

/// What a beat meant.
pub(super) enum Heard {
    /// Older than one heard before.
    Stale,
    /// One more.
    Fresh,
    /// The last worker that was missing at the start.
    Started,
    /// The first of a worker whose silence had been judged.
    Risen,
}

impl Life {
    pub(super) fn new(now: Instant, beat: &Beat) -> Self {
        Self {
            boot: beat.boot,
            latest: *beat,
            asked: false,
            standing: Standing::Starting,
            workers: vec![Worker { heard_at: now, seq: None }; usize::from(beat.workers)],
            doubts: 0,
            doubts_until: now,
        }
    }

    pub(super) fn hear(&mut self, now: Instant, beat: &Beat) -> Heard {
        let Some(worker) = self.workers.get_mut(usize::from(beat.worker)) else {
            return Heard::Stale;
        };
        if worker.seq.is_some_and(|seq| !is_newer(beat.seq, seq)) {
            return Heard::Stale;
        }
        *worker = Worker { heard_at: now, seq: Some(beat.seq) };
        self.latest = *beat;
        match &mut self.standing {
            Standing::Starting if self.workers.iter().all(|worker| worker.seq.is_some()) => {
                self.standing = Standing::Alive;
                Heard::Started
            }
            Standing::Dead { cause: Cause::Silent { worker, .. }, risen, .. }
                if *worker == beat.worker && !*risen =>
            {
                *risen = true;
                self.doubt_more(now);
                Heard::Risen
            }
            Standing::Starting | Standing::Alive | Standing::Dead { .. } => Heard::Fresh,
        }
    }

    pub(super) fn die(&mut self, cause: Cause) {
        if !self.is_dead() {
            self.standing = Standing::Dead { cause, risen: false, steady_from: None };
        }
    }

    /// Follows a dead gateway that speaks. Returns whether it has done so for long enough to count
    /// as living again.
    pub(super) fn rise(&mut self, now: Instant, steady: bool, counters: &mut Counters) -> bool {
        let Standing::Dead { risen, steady_from, .. } = &mut self.standing else { return false };
        if !steady {
            *steady_from = None;
            return false;
        }
        let from = *steady_from.get_or_insert(now);
        if now < from + STEADY {
            return false;
        }
        if !*risen {
            counters.falses += 1;
            self.doubt_more(now);
        }
        self.standing = Standing::Alive;
        true
    }

    /// Lets one count as living again that was judged by silence and has spoken since. Returns
    /// whether it did.
    pub(super) fn rise_at_once(&mut self) -> bool {
        let risen = matches!(
            self.standing,
            Standing::Dead { cause: Cause::Silent { .. }, risen: true, .. }
        );
        if risen {
            self.standing = Standing::Alive;
        }
        risen
    }

    /// Returns the longest silence of a worker, and whose it is.
    pub(super) fn quiet(&self, now: Instant, window_from: Instant) -> (Duration, u16) {
        let mut longest = (Duration::ZERO, 0);
        for (index, worker) in (0..).zip(&self.workers) {
            let quiet = now.saturating_duration_since(worker.heard_at.max(window_from));
            if longest.0 < quiet {
                longest = (quiet, index);
            }
        }
        longest
    }

    /// Returns whether every worker was heard after `at`.
    pub(super) fn is_heard_since(&self, at: Instant) -> bool {
        self.workers.iter().all(|worker| at < worker.heard_at)
    }

    /// Returns by how much the threshold of this boot is multiplied.
    pub(super) fn doubt(&self, now: Instant) -> u32 {
        if now < self.doubts_until { 1 << self.doubts } else { 1 }
    }

    pub(super) fn last_seq(&self, worker: u16) -> Option<u32> {
        self.workers.get(usize::from(worker))?.seq
    }

    pub(super) fn workers(&self) -> usize {
        self.workers.len()
    }

    pub(super) fn is_alive(&self) -> bool {
        matches!(self.standing, Standing::Alive)
    }

    pub(super) fn is_dead(&self) -> bool {
        self.cause().is_some()
    }

    pub(super) fn cause(&self) -> Option<Cause> {
        match self.standing {
            Standing::Dead { cause, .. } => Some(cause),
            Standing::Starting | Standing::Alive => None,
        }
    }

    fn doubt_more(&mut self, now: Instant) {
        let doubts = if now < self.doubts_until { self.doubts } else { 0 };
        self.doubts = (doubts + 1).min(DOUBTS_MAX);
        self.doubts_until = now + DOUBT;
    }
}

/// Whether `seq` was counted after `other`, in numbers that wrap.
fn is_newer(seq: u32, other: u32) -> bool {
    (1..=u32::MAX / 2).contains(&seq.wrapping_sub(other))
}

/// More false verdicts of one boot do not make its threshold longer than 16 times.
const DOUBTS_MAX: u32 = 4;
