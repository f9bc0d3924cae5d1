//! Ports for the media of the call.

use failover::record::Phase;
use failover::{Admission, Cause, Place};

use super::arrival::Arrival;
use super::{Call, Otherwise};
use crate::core::Core;
use crate::io::{Output, Wanted};

impl Call {
    /// Asks for what the call lacks: ports for both legs, or a standby's.
    pub(crate) fn ask_for_ports(&mut self, core: &mut Core) {
        if self.record.is_ended() || self.placing || self.is_direct() {
            return;
        }
        let wanted = match self.record.holder {
            None => Wanted::Both,
            Some(holder) if self.record.standby.is_none() || self.foreign => {
                Wanted::Standby { holder: holder.gateway }
            }
            Some(_) => return,
        };
        self.placing = true;
        core.outputs.push_back(Output::Place { call: self.record.call, wanted });
    }

    /// Takes in ports.
    pub(crate) fn placed(
        &mut self,
        core: &mut Core,
        holder: Option<Place>,
        standby: Option<Place>,
    ) {
        self.placing = false;
        core.shortage.remove(self.record.call);
        if self.record.is_ended() {
            return free(core, holder.into_iter().chain(standby));
        }
        match (self.record.holder, holder) {
            (None, Some(place)) => {
                self.set_holder(place);
                core.hold(self.record.call, &place);
                if let Some(from) = self.left.take() {
                    self.moved(core, from, place.gateway);
                }
            }
            (None, None) => return self.not_placed(core),
            (Some(_), Some(place)) => free(core, [place]),
            (Some(_), None) => {}
        }
        match (self.record.standby, standby) {
            (None, Some(place)) => {
                self.record.standby = Some(place);
                core.hold(self.record.call, &place);
                core.shortage.relieved(core.now);
            }
            (Some(old), Some(place)) if self.foreign => {
                core.release(self.record.call, &old);
                free(core, [old]);
                self.foreign = false;
                self.record.standby = Some(place);
                core.hold(self.record.call, &place);
                core.shortage.relieved(core.now);
            }
            (Some(_), Some(place)) => free(core, [place]),
            (_, None) => {}
        }
        if self.record.standby.is_none() || self.foreign {
            self.ask_later(core);
        }
        if self.record.phase == Phase::Placing && !self.can_reach(&self.record.legs[0].offer_in) {
            core.counters.refused += 1;
            return self.end(core, Cause::Refused(488), 488);
        }
        if self.record.phase == Phase::Placing {
            self.otherwise = None;
            self.record.phase = Phase::Calling;
            // The gateway hears of the call before any phone does.
            self.sync_media(core);
            self.answer_invite(core, 0, 0, 100, None);
            self.call_target(core);
        }
    }

    /// Asks for ports again after a while: soon without any, at leisure when only a standby lacks.
    pub(super) fn ask_later(&self, core: &mut Core) {
        core.shortage.add(core.now, self.record.call, self.record.holder.is_some());
    }

    pub(super) fn set_holder(&mut self, place: Place) {
        self.record.holder = Some(place);
        self.arrivals = [Arrival::moved(); 2];
        // Who takes over must know where the call is open, to close it there one day.
        self.barrier = true;
        for (index, leg) in self.record.legs.iter_mut().enumerate() {
            leg.rtp = Some(place.rtp(index));
        }
        self.media_changed = true;
    }

    /// Takes in that there are no ports.
    pub(crate) fn not_placed(&mut self, core: &mut Core) {
        self.placing = false;
        match self.record.phase {
            Phase::Placing => match self.otherwise.take() {
                Some(otherwise) => self.go_elsewhere(core, otherwise),
                None if !self.record.admission.shared.is_empty() => self.go_direct(core),
                None => {
                    core.counters.refused += 1;
                    self.end(core, Cause::Refused(503), 503);
                }
            },
            // Voice waits for a gateway, signalling goes on.
            Phase::Calling | Phase::Talking => self.ask_later(core),
            Phase::Ended { .. } => {}
        }
    }
}

impl Call {
    /// Returns whether the phones send each other their media without us: the call went on to another
    /// segment when there were no ports here. It has none later, either.
    pub(super) fn is_direct(&self) -> bool {
        let record = &self.record;
        record.phase != Phase::Placing
            && record.legs[0].rtp.is_none()
            && !record.admission.shared.is_empty()
    }

    /// Sends the call to another segment: it counts no more here.
    fn go_elsewhere(&mut self, core: &mut Core, otherwise: Otherwise) {
        self.release(core);
        core.charged -= usize::from(self.record.admission.charge.is_some());
        self.record.admission = Admission { charge: None, shared: otherwise.shared };
        self.record.targets = otherwise.targets;
        self.record.phase = Phase::Calling;
        self.answer_invite(core, 0, 0, 100, None);
        self.next_target(core);
    }

    /// Goes on without ports to the segment that the call is on its way to.
    fn go_direct(&mut self, core: &mut Core) {
        self.record.phase = Phase::Calling;
        self.answer_invite(core, 0, 0, 100, None);
        self.call_target(core);
    }
}

/// Gives ports back.
pub(super) fn free(core: &mut Core, places: impl IntoIterator<Item = Place>) {
    core.outputs.extend(places.into_iter().map(Output::Freed));
}
