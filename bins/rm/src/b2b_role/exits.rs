//! What leaves this process, if the lease lets it.

use std::time::Instant;

use b2bua::frame::SipOut;
use b2bua::{Detail, Input};
use failover::Slot;

use super::{B2bRole, Wish};

/// What may have to wait: for the standby, which must hold what it follows from, then for the end of the
/// turn, and then for the lease.
#[derive(Clone, Debug)]
pub(crate) enum Exit {
    /// A message.
    Sip(SipOut),
    /// A call that ended.
    Detail(Box<Detail>),
}

impl Exit {
    pub(super) fn slot(&self) -> Slot {
        match self {
            Self::Sip(message) => message.slot,
            Self::Detail(detail) => detail.slot,
        }
    }
}

impl B2bRole {
    /// Lets out what waited for the end of the turn, which is now; returns whether there was anything.
    pub(crate) fn end_turn(&mut self, now: Instant) -> bool {
        let exits = std::mem::take(&mut self.exits);
        let any = !exits.is_empty();
        exits.into_iter().for_each(|exit| self.exit(now, exit));
        any
    }

    /// Lets something out of the process, as far as the lease goes. What would be repeated anyhow is
    /// lost then, as it could be in the network; what nobody would repeat waits.
    fn exit(&mut self, now: Instant, exit: Exit) {
        match exit {
            Exit::Sip(message) => {
                if self.ownership.may_act(now) && !self.given().contains(message.slot) {
                    self.wishes.push_back(Wish::Sip(message));
                } else if !message.flow.transport.is_reliable() || !self.held.say(now, message) {
                    self.muted += 1;
                }
            }
            Exit::Detail(detail) => self.write(now, detail),
        }
    }

    /// Writes the detail of a call down. Without a lease, or while its slot is being given away, it
    /// waits: for the next owner to do it, or for the slot to be ours again.
    fn write(&mut self, now: Instant, detail: Box<Detail>) {
        if self.ownership.may_act(now) && !self.given().contains(detail.slot) {
            self.details.write(detail);
        } else if let Some(call) = self.held.detail(detail) {
            self.details.lost += 1;
            self.b2b.handle_input(now, Input::Written { call });
        }
    }

    /// Says what waited for the lease; returns whether there was anything.
    pub(super) fn release(&mut self, now: Instant) -> bool {
        if self.held.is_empty() || !self.ownership.may_act(now) {
            return false;
        }
        let mut busy = false;
        for ((_, gateway, boot), command) in self.held.commands() {
            busy = true;
            self.mediagates.command(gateway, boot, &command);
        }
        for detail in self.held.details_but(self.given()) {
            busy = true;
            self.exits.push_back(Exit::Detail(detail));
        }
        for message in self.held.said_but(now, self.given()) {
            busy = true;
            // Its slot may have been won anew meanwhile.
            let reign = self.ownership.map().get(message.slot);
            let epoch = reign.map_or(message.epoch, |reign| reign.epoch);
            self.exits.push_back(Exit::Sip(SipOut { epoch, ..message }));
        }
        let ours = self.ownership.own().without(self.yielded);
        for frame in self.held.heard_of(now, ours) {
            busy = true;
            self.sip(now, frame);
        }
        busy
    }

    /// The line of a detail has left this process: it needs no next owner.
    pub(crate) fn written(&mut self, now: Instant, number: u64) {
        if let Some(call) = self.details.written(number) {
            self.b2b.handle_input(now, Input::Written { call });
        }
    }

    /// The line of a detail was lost. It comes again, unless too many wait: then nobody writes it.
    pub(crate) fn unwritten(&mut self, now: Instant, number: u64) {
        if let Some(call) = self.details.unwritten(now, number) {
            self.b2b.handle_input(now, Input::Written { call });
        }
    }
}
