//! One mediagate that is watched, over all its boots.

use std::collections::VecDeque;
use std::time::Instant;

use super::life::Life;
use super::{Beat, Cause, WORKERS_MAX};
use crate::Boot;

#[derive(Clone, Debug)]
pub(super) struct Gateway {
    pub(super) watched_at: Instant,
    pub(super) life: Option<Life>,
    /// Boots known to be over, the latest last: what arrives of them late starts no life.
    pub(super) buried: VecDeque<Boot>,
    /// A boot not heard here that others called silent or refused. If it speaks, they were wrong, or it
    /// is late.
    pub(super) presumed: Option<(Boot, Cause)>,
}

impl Gateway {
    pub(super) fn new(now: Instant) -> Self {
        Self { watched_at: now, life: None, buried: VecDeque::new(), presumed: None }
    }

    /// Whether this boot is another than the one known, and not one that is over.
    pub(super) fn is_new(&self, boot: Boot) -> bool {
        !self.buried.contains(&boot) && self.life.as_ref().is_some_and(|life| life.boot != boot)
    }

    pub(super) fn takes(&self, beat: &Beat) -> bool {
        let formed = beat.worker < beat.workers && beat.workers <= WORKERS_MAX;
        formed
            && match &self.life {
                Some(life) if life.boot == beat.boot => life.workers() == usize::from(beat.workers),
                Some(_) | None => !self.buried.contains(&beat.boot),
            }
    }

    pub(super) fn bury(&mut self, boot: Boot) {
        if self.buried.contains(&boot) {
            return;
        }
        if self.buried.len() == BURIED_MAX {
            self.buried.pop_front();
        }
        self.buried.push_back(boot);
    }
}

/// Boots of one gateway that are remembered to be over.
const BURIED_MAX: usize = 8;
