//! The session timers of a call (RFC 4028), as far as its next owner has to know them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{CallRecord, LegState, Phase, Value, ValueRef};
use crate::UnixMs;

/// The session timer of one leg: a session that nobody refreshes in time is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Session {
    /// How long the session lasts without a refresh, in seconds: as agreed, or as we ask for it. 0 when
    /// there is no timer.
    pub interval: u32,
    /// The shortest interval that we or the peer take, as far as that is known, in seconds.
    pub min: u32,
    /// Who refreshes; `None` as long as nothing is agreed.
    pub refresher: Option<Side>,
    /// When we refresh next, if we do.
    pub refresh_at: UnixMs,
    /// When the session is over.
    pub ends_at: UnixMs,
    /// What our 2xx to the phone's open INVITE is going to say.
    pub pending: Option<Terms>,
    /// The peer knows session timers, and ends a session of its own accord.
    pub known: bool,
    /// The peer takes UPDATE.
    pub updates: bool,
    /// The CSeq of our open request that does nothing but refresh: a re-INVITE or an UPDATE.
    pub refreshing: Option<u32>,
    /// How often one phone found our interval too short.
    pub raises: u8,
}

/// One of the two ends of a dialog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Side {
    /// Ours.
    Us,
    /// The phone's.
    Peer,
}

/// What two sides agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Terms {
    /// How long the session lasts without a refresh, in seconds.
    pub interval: u32,
    /// Who refreshes.
    pub refresher: Side,
}

impl Session {
    /// Between two refreshes of which the first was refused, at least.
    pub const PAUSE_MS: u64 = 5_000;

    /// Lets the interval begin anew at `now`.
    pub fn start(&mut self, now: UnixMs, terms: Terms) {
        self.interval = terms.interval;
        self.refresher = Some(terms.refresher);
        let span = u64::from(terms.interval) * 1000;
        let spared = match terms.refresher {
            Side::Us => 0,
            // RFC 4028 §10: its BYE is there before the peer forgets the session.
            Side::Peer => (span / 3).min(SPARED_MAX_MS),
        };
        self.refresh_at = UnixMs(now.0.saturating_add(span / 2));
        self.ends_at = UnixMs(now.0.saturating_add(span - spared));
    }

    /// Ends the timer: nobody refreshes any more, and nothing is awaited.
    pub fn stop(&mut self) {
        self.interval = 0;
        self.refresher = None;
        self.pending = None;
    }

    /// Puts the next refresh of ours off, each time by half of what is left.
    pub fn postpone(&mut self, now: UnixMs) {
        let left = self.ends_at.0.saturating_sub(now.0);
        self.refresh_at = UnixMs(now.0.saturating_add((left / 2).max(Self::PAUSE_MS)));
    }

    /// Returns for how long a refresh of ours has been due at `now`.
    pub fn overdue(&self, now: UnixMs) -> Duration {
        let half = u64::from(self.interval) * 500;
        Duration::from_millis(now.0.saturating_add(half).saturating_sub(self.ends_at.0))
    }

    /// Returns when the call ends for want of a refresh. A peer that knows no session timers keeps its
    /// session however late a refresh of ours is.
    pub fn deadline(&self) -> Option<UnixMs> {
        match self.refresher? {
            Side::Us if !self.known => None,
            Side::Us | Side::Peer => Some(self.ends_at),
        }
    }

    /// Returns when we refresh, if we do.
    pub fn next_refresh(&self) -> Option<UnixMs> {
        (self.refresher == Some(Side::Us)).then_some(self.refresh_at)
    }

    pub(super) fn each_time(&mut self, change: &mut impl FnMut(&mut UnixMs)) {
        if self.refresher.is_some() {
            change(&mut self.refresh_at);
            change(&mut self.ends_at);
        }
    }
}

impl CallRecord {
    /// Returns the leg whose session ended for want of a refresh before `now`.
    pub fn expired(&self, now: UnixMs) -> Option<usize> {
        self.timed().find(|&leg| self.legs[leg].session.deadline().is_some_and(|at| at <= now))
    }

    /// Returns the legs that talk: the timers of others do not run.
    pub fn timed(&self) -> impl Iterator<Item = usize> {
        let talks = self.phase == Phase::Talking;
        (0..2).filter(move |&leg| talks && self.legs[leg].state == LegState::Confirmed)
    }
}

impl<'a> ValueRef<'a> {
    /// Returns the session timers of the legs, where there is one: the serialized form has them not.
    pub fn sessions(self) -> Option<[Session; 2]> {
        match self {
            Self::Call(record) => Some(record.legs.each_ref().map(|leg| leg.session))
                .filter(|sessions| *sessions != [Session::default(); 2]),
            Self::Ended(_) | Self::Bindings(_) => None,
        }
    }
}

impl Value {
    /// Puts back what was kept beside the serialized form.
    #[must_use]
    pub fn with_sessions(mut self, sessions: [Session; 2]) -> Self {
        if let Self::Call(record) = &mut self {
            for (leg, session) in record.legs.iter_mut().zip(sessions) {
                leg.session = session;
            }
        }
        self
    }
}

/// RFC 4028 §10: 32 s, or a third of a short interval.
const SPARED_MAX_MS: u64 = 32_000;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMs = UnixMs(1_700_000_000_000);

    fn started(interval: u32, refresher: Side) -> Session {
        let mut session = Session { known: true, ..Session::default() };
        session.start(NOW, Terms { interval, refresher });
        session
    }

    #[test]
    fn a_peer_that_does_not_refresh_has_until_32_s_or_a_third_before_the_end() {
        for (interval, left) in [(90, 60), (96, 64), (97, 65), (1800, 1768)] {
            let session = started(interval, Side::Peer);
            assert_eq!(session.deadline(), Some(UnixMs(NOW.0 + left * 1000)), "{interval}");
            assert_eq!(session.next_refresh(), None);
        }
    }

    #[test]
    fn we_refresh_at_half_time_and_then_ever_sooner_but_not_at_once() {
        let mut session = started(1800, Side::Us);
        let mut tries = Vec::new();
        while let Some(at) = session.next_refresh().filter(|at| *at < session.ends_at) {
            tries.push((at.0 - NOW.0) / 1000);
            session.postpone(at);
        }
        assert_eq!(tries[..3], [900, 1350, 1575]);
        assert!(tries.windows(2).all(|two| 5 <= two[1] - two[0]) && tries.len() < 12, "{tries:?}");
    }

    #[test]
    fn the_longest_interval_there_is_overflows_nothing() {
        for now in [NOW, UnixMs(u64::MAX)] {
            for refresher in [Side::Us, Side::Peer] {
                let mut session = Session { known: true, ..Session::default() };
                session.start(now, Terms { interval: u32::MAX, refresher });
                session.postpone(now);
                assert!(session.deadline() >= Some(now));
            }
        }
    }
}
