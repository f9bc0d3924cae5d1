//! The times of a record, as the wall clock of another node has them.

use super::{CallRecord, ClientState, Leg, Phase, ServerState, Value};
use crate::UnixMs;

impl Value {
    /// Moves every time by `by_ms`: how far this node's wall clock is ahead of that of the node which
    /// wrote the value. The detail of a call that ended stays as it is, since every copy of it must be
    /// the same.
    pub fn shift(&mut self, by_ms: i64) {
        let shift = |at: &mut UnixMs| at.0 = at.0.saturating_add_signed(by_ms);
        match self {
            Self::Call(record) => record.each_time(shift),
            Self::Ended(stone) => shift(&mut stone.until),
            Self::Bindings(bindings) => {
                bindings.iter_mut().map(|binding| &mut binding.expires_at).for_each(shift);
            }
        }
    }
}

impl CallRecord {
    fn each_time(&mut self, mut change: impl FnMut(&mut UnixMs)) {
        change(&mut self.started_at);
        change(&mut self.ends_at);
        self.answered_at.iter_mut().for_each(&mut change);
        match &mut self.phase {
            Phase::Placing | Phase::Calling | Phase::Talking => {}
            Phase::Ended { until } => change(until),
        }
        self.legs.iter_mut().for_each(|leg| leg.each_time(&mut change));
    }
}

impl Leg {
    fn each_time(&mut self, change: &mut impl FnMut(&mut UnixMs)) {
        self.moving.since.iter_mut().chain(&mut self.moving.wait_until).for_each(&mut *change);
        self.session.each_time(change);
        for invite in &mut self.incoming {
            change(&mut invite.came_at);
            match &mut invite.state {
                ServerState::Proceeding { .. } => {}
                ServerState::Accepted { until } | ServerState::Refused { until, .. } => {
                    change(until);
                }
            }
        }
        for invite in &mut self.outgoing {
            change(&mut invite.sent_at);
            invite.cancel_at.iter_mut().for_each(&mut *change);
            match &mut invite.state {
                ClientState::Calling | ClientState::Proceeding => {}
                ClientState::Accepted { until, .. } => change(until),
            }
        }
    }
}
