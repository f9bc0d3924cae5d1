//! The end of a call.

use std::time::Duration;

use failover::pacing::Outcome;
use failover::record::{ClientState, LegState, Phase, Purpose, ServerState};
use failover::{Cause, Detail};
use sip_core::transactions::ServerKey;
use sip_core::{Message, Method};

use super::Call;
use crate::core::{ClientUse, Core, LegId};
use crate::io::Output;
use crate::message;

impl Call {
    /// Ends the call: open INVITEs are refused with `status` or cancelled, media and ports are
    /// given back, the call detail record is written. Confirmed legs get their BYE when
    /// RFC 3261 §15 allows it. Does nothing when the call has ended.
    pub(super) fn end(&mut self, core: &mut Core, cause: Cause, status: u16) {
        if self.record.is_ended() {
            return;
        }
        self.barrier = true;
        self.record.phase = Phase::Ended { until: core.after(TOMBSTONE) };
        core.live -= 1;
        core.charged -= usize::from(self.record.admission.charge.is_some());
        self.record.targets.clear();
        core.shortage.remove(self.record.call);
        for leg in 0..2 {
            self.refuse_open(core, leg, status);
            core.pacer.finish(core.now, self.pacer_id(leg), Outcome::Other);
        }
        if self.record.legs[0].state == LegState::Early {
            self.record.legs[0].state = LegState::Gone;
        }
        for index in 0..self.record.legs[1].outgoing.len() {
            let invite = &self.record.legs[1].outgoing[index];
            let open = matches!(invite.state, ClientState::Calling | ClientState::Proceeding);
            if open && invite.purpose == Purpose::Call {
                self.cancel_invite(core, 1, index);
            }
        }
        self.cancel_others(core);
        self.hush(core);
        if !self.is_ringing() && !self.record.legs[1].dialog.confirmed {
            self.record.legs[1].state = LegState::Gone;
        }
        self.close_media(core);
        for place in [self.record.holder.take(), self.record.standby.take()].into_iter().flatten() {
            core.release(self.record.call, &place);
            core.outputs.push_back(Output::Freed(place));
        }
        self.release(core);
        let detail = Box::new(self.detail(core, cause));
        self.record.detail = Some(detail.clone());
        core.outputs.push_back(Output::Detail(detail));
    }

    /// Lets the call count no more.
    pub(super) fn release(&self, core: &mut Core) {
        if self.record.admission.charge.is_some() {
            core.outputs.push_back(Output::Released { call: self.record.call });
        }
    }

    /// Lets no INVITE inside a dialog go out again: the BYE ends it, answered or not.
    pub(super) fn hush(&self, core: &mut Core) {
        for (leg, party) in self.record.legs.iter().enumerate() {
            let inside = party.outgoing.iter().filter(|invite| invite.purpose != Purpose::Call);
            for key in inside.filter_map(|invite| self.client_key(leg, invite.cseq)) {
                core.transactions.hush(core.now, key);
            }
        }
    }

    fn refuse_open(&mut self, core: &mut Core, leg: usize, status: u16) {
        let open = self.record.legs[leg]
            .incoming
            .iter()
            .position(|invite| matches!(invite.state, ServerState::Proceeding { .. }));
        if let Some(index) = open {
            // Inside a dialog it ends because of the BYE (RFC 3261 §15.1.2).
            let status = if self.record.legs[leg].dialog.confirmed { 487 } else { status };
            self.refuse_invite(core, leg, index, status);
        }
    }

    fn detail(&self, core: &Core, cause: Cause) -> Detail {
        let caller = &self.record.legs[0].dialog;
        Detail {
            slot: self.record.slot,
            call: self.record.call,
            call_id: caller.call_id.clone(),
            from: caller.remote.clone(),
            to: self.record.called.clone(),
            started_at: self.record.started_at,
            answered_at: self.record.answered_at,
            ended_at: core.unix,
            cause,
            moves: self.record.moves,
            charge: self.record.admission.charge.clone(),
        }
    }

    /// Takes in a BYE.
    pub(super) fn bye(&mut self, core: &mut Core, leg: usize, key: ServerKey, bye: &Message) {
        core.answer(key, bye, 200);
        let party = &mut self.record.legs[leg];
        if party.state == LegState::Early {
            // Only a caller may leave an early dialog so (RFC 3261 §15).
            return self.end(core, Cause::Caller, 487);
        }
        party.state = LegState::Gone;
        let cause = if leg == 0 { Cause::Caller } else { Cause::Callee };
        self.end(core, cause, 487);
    }

    /// Says BYE on a leg of an ended call, once nothing forbids it.
    pub(super) fn say_farewell(&mut self, core: &mut Core, leg: usize) {
        if self.record.legs[leg].state != LegState::Confirmed {
            return;
        }
        let waits = self.record.legs[leg]
            .incoming
            .iter()
            .any(|invite| matches!(invite.state, ServerState::Accepted { .. }));
        if waits {
            // RFC 3261 §15: not before the ACK of our 2xx.
            return;
        }
        let unacked = self.record.legs[leg]
            .outgoing
            .iter()
            .position(|invite| matches!(invite.state, ClientState::Accepted { acked: false, .. }));
        if let Some(index) = unacked {
            self.ack(core, leg, index);
        }
        self.send_bye(core, leg);
    }

    pub(super) fn send_bye(&mut self, core: &mut Core, leg: usize) {
        let slot = self.record.slot;
        let way = self.way(leg);
        self.lease_cseq(leg);
        let party = &mut self.record.legs[leg];
        party.state = LegState::Leaving;
        let via = message::via(party, &core.names.branch(slot));
        let bye = party.dialog.request(Method::Bye, &via).finish();
        let registered = party.registered;
        match core.request(way, registered, &bye) {
            Ok(key) => core.set_client(key, ClientUse::Bye(self.leg_id(leg))),
            // Without room for a transaction it is said once; the phone may miss it.
            Err(_) => {
                core.send(way, bye.bytes().clone());
                self.record.legs[leg].state = LegState::Gone;
            }
        }
    }

    /// Takes in the answer to our BYE, whatever it is, or that none came.
    pub(crate) fn bye_answered(&mut self, id: LegId) {
        self.record.legs[id.leg].state = LegState::Gone;
    }
}

/// RFC 3261: twice the 32 s in which a phone may repeat a request.
const TOMBSTONE: Duration = Duration::from_secs(64);
