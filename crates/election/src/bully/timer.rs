//! The times that a node waits for.

use std::time::Instant;

use super::{Bully, State};

/// Something that a node waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Timer {
    /// The end of the start.
    Boot,
    /// Answers to the campaign.
    Answers,
    /// The lower node that should lead.
    Patience,
    /// The stability of the island.
    Stability,
    /// The nodes that are heard and do not hear.
    Away,
    /// The segment of which nobody is there but who starts.
    Vacancy,
    /// The partner that is heard and does not hear.
    Turn,
    /// The right to further campaigns.
    Budget,
}

/// A wait that, once over, stays over until its condition ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Wait {
    #[default]
    Idle,
    Until(Instant),
    Over,
}

/// Campaigns that a node may start one after the other: one, and three more before the first
/// timeout without any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    left: u8,
    refill_at: Option<Instant>,
}

impl Bully {
    /// Returns when each wait ends, in no order.
    pub(crate) fn timers(&self) -> impl Iterator<Item = (Instant, Timer)> + use<> {
        let (boot, answers, patience, stability) = match &self.state {
            State::Boot { until } => (Some(*until), None, Wait::Idle, None),
            State::Follow | State::Retired => (None, None, Wait::Idle, None),
            State::Elect { until, .. } => (None, Some(*until), Wait::Idle, None),
            State::Await { patience, .. } => (None, None, *patience, None),
            State::Lead(watch) => (None, None, watch.patience, watch.stable_at),
        };
        let timers = [
            (boot, Timer::Boot),
            (answers, Timer::Answers),
            (patience.at(), Timer::Patience),
            (stability, Timer::Stability),
            (self.away.at(), Timer::Away),
            (self.vacancy.at(), Timer::Vacancy),
            (self.turn.wait().at(), Timer::Turn),
            (self.budget.refill_at, Timer::Budget),
        ];
        timers.into_iter().filter_map(|(at, timer)| Some((at?, timer)))
    }

    /// Does what is due at `now`.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while let Some((_, timer)) = self.timers().filter(|(at, _)| *at <= now).min() {
            self.fire(now, timer);
        }
    }

    /// Ends one wait.
    pub(crate) fn fire(&mut self, now: Instant, timer: Timer) {
        match (timer, &mut self.state) {
            (Timer::Boot, State::Boot { .. }) => self.state = State::Follow,
            (Timer::Answers, State::Elect { .. }) => self.declare(now),
            (Timer::Patience, State::Await { patience, .. }) => *patience = Wait::Over,
            (Timer::Patience, State::Lead(watch)) => watch.patience = Wait::Over,
            (Timer::Stability, State::Lead(watch)) => {
                watch.stable_at = None;
                watch.newcomers.clear();
                let outbid = std::mem::take(&mut watch.outbid);
                if !self.suspect {
                    watch.settled.clone_from(self.links.component());
                    watch.overdue = outbid;
                }
            }
            (Timer::Away, _) => self.away = Wait::Over,
            (Timer::Vacancy, _) => self.vacancy = Wait::Over,
            (Timer::Turn, _) => self.turn.end_wait(),
            (Timer::Budget, _) => {
                self.budget = Budget::default();
                return self.reevaluate(now);
            }
            (Timer::Boot | Timer::Answers | Timer::Patience | Timer::Stability, _) => {}
        }
        self.evaluate(now);
    }
}

impl Wait {
    pub(super) fn at(self) -> Option<Instant> {
        match self {
            Self::Until(at) => Some(at),
            Self::Idle | Self::Over => None,
        }
    }
}

impl Budget {
    /// Takes one campaign, if one is left; the next timeout without any ends at `refill_at`.
    pub(super) fn spend(&mut self, refill_at: Instant) -> bool {
        let Some(left) = self.left.checked_sub(1) else { return false };
        *self = Self { left, refill_at: Some(refill_at) };
        true
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self { left: CAMPAIGNS_MAX, refill_at: None }
    }
}

const CAMPAIGNS_MAX: u8 = 4;
