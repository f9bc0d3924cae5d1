//! The 2xx of an INVITE that is not known here: the slot's owner before us sent it and died before
//! its standby heard of it.

use sip_core::{Message, Method};

use super::B2b;
use crate::core::Way;
use crate::slot;

impl B2b {
    /// Returns whether a message is a 2xx to an INVITE that no transaction of ours sent.
    pub(super) fn is_stray(&self, message: &Message) -> bool {
        let is_success = message.status().is_some_and(|status| (200..300).contains(&status));
        is_success && message.method() == Method::Invite && !self.core.transactions.expects(message)
    }

    /// Acknowledges a stray 2xx, so that its phone does not repeat it for 32 s and hang up then: in a
    /// dialog that is known the leg is told its media anew, since nobody knows what was offered. A
    /// dialog of which nobody knows ends with BYE (RFC 3261 §13.2.2.4). What does not carry a branch
    /// and a tag of ours is dropped, as RFC 6026 §8.4 wants it.
    pub(super) fn handle_stray(&mut self, way: Way, answer: &Message) {
        let tag = answer.from_tag().unwrap_or_default();
        let is_ours = slot::named(answer) == Some(way.1) && slot::of_tag(tag) == Some(way.1);
        if !is_ours {
            self.core.counters.discarded += 1;
            return;
        }
        self.core.counters.strays += 1;
        let known = self.core.leg_of(tag).filter(|leg| {
            let call = self.calls.get(&leg.call);
            call.is_some_and(|call| call.has_dialog(leg.leg, answer))
        });
        match known {
            Some(leg) => self.with_call(leg.call, |call, core| {
                call.stray_accepted(core, leg.leg, answer);
            }),
            None => self.graves.accepted(&mut self.core, way, answer),
        }
    }
}
