//! What the node that counts does when it is about to leave.

use std::collections::VecDeque;
use std::time::Instant;

use super::{Outputs, PairMessage, PairOutput, Speaker};
use crate::handover::MemberInput;
use crate::{Call, CallId};

/// Who asked while the part was on its way to the partner.
#[derive(Clone, Debug)]
pub(super) struct Leaving {
    /// Own calls, none of them exempt, and when each has waited long enough, the next one first.
    pub(super) asks: VecDeque<(Instant, Call)>,
    pub(super) until: Instant,
}

impl Leaving {
    pub(super) fn next_at(&self) -> Instant {
        self.asks.front().map_or(self.until, |(at, _)| self.until.min(*at))
    }

    /// Takes out a call that has waited long enough.
    pub(super) fn due(&mut self, now: Instant) -> Option<CallId> {
        self.asks.front().filter(|(at, _)| *at <= now)?;
        self.asks.pop_front().map(|(_, call)| call.id)
    }
}

impl Speaker {
    /// Hands its part to the partner, if that holds all that there is to hold.
    pub(in crate::handover::pair) fn hand_over(&mut self, now: Instant, outputs: &mut Outputs) {
        let held = self.stored == self.serial && 0 < self.serial && self.waiting.is_empty();
        if !held || self.counting.is_some() || self.leaving.is_some() || self.leave_at.is_some() {
            return;
        }
        self.leaving = Some(Leaving { asks: VecDeque::new(), until: now + self.config.period });
        self.offered = true;
        let serial = self.serial;
        outputs.push_back(PairOutput::Partner(PairMessage::HandOver { serial }));
    }

    /// This node is about to leave, and nobody goes on in its place.
    pub(in crate::handover::pair) fn drain(&mut self, now: Instant) {
        if self.counting.is_none() {
            self.member.handle_input(now, MemberInput::Drain);
        }
    }

    /// Nobody takes its part: it goes on, and tries again later.
    pub(super) fn stay(&mut self, now: Instant, outputs: &mut Outputs) {
        let Some(Leaving { asks, .. }) = self.leaving.take() else { return };
        self.leave_at = Some(now + self.config.period);
        for (_, call) in asks {
            self.request(now, call, false, true, outputs);
        }
    }

    /// The partner has the part that it was handed. The election may tell this node much later: until then it
    /// lets nothing in for two periods after each word of the partner.
    pub(super) fn give_way(&mut self, now: Instant) {
        if self.offered {
            let until = now + 2 * self.config.period;
            let asks = self.leaving.take().map(|leaving| leaving.asks).unwrap_or_default();
            self.leaving = Some(Leaving { asks, until });
        }
    }
}
