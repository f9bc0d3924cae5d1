//! The answers to our INVITEs, whatever they were sent for.

use failover::record::{ClientState, Purpose};
use sip_core::Message;

use super::{Call, reach};
use crate::core::{Core, InviteId};
use crate::message;

/// Why an INVITE or UPDATE of ours was refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    /// The status; 408 also when nothing came.
    pub(super) status: u16,
    /// What its Retry-After says.
    pub(super) retry_after: Option<u32>,
    /// What its Min-SE says.
    pub(super) min_se: Option<u32>,
}

impl Refusal {
    pub(super) fn new(status: u16, answer: Option<&Message>) -> Self {
        let retry_after = answer.and_then(Message::retry_after);
        let min_se = answer.filter(|_| status == 422).and_then(Message::min_se);
        Self { status, retry_after, min_se }
    }
}

impl Call {
    /// Takes in an answer to an INVITE of ours.
    pub(crate) fn invite_answered(&mut self, core: &mut Core, id: InviteId, answer: &Message) {
        let leg = id.leg.leg;
        let outgoing = &self.record.legs[leg].outgoing;
        let Some(index) = outgoing.iter().position(|invite| invite.cseq == id.cseq) else {
            return self.branch_answered(core, id.cseq, answer);
        };
        match answer.status().unwrap_or(0) {
            status @ 100..200 => self.provisional(core, leg, index, status, answer),
            200..300 => self.accepted(core, leg, index, answer),
            status => self.refused(core, leg, index, Refusal::new(status, Some(answer))),
        }
    }

    /// Takes in that an INVITE of ours got no final answer.
    pub(crate) fn invite_timed_out(&mut self, core: &mut Core, id: InviteId) {
        let leg = id.leg.leg;
        let outgoing = &self.record.legs[leg].outgoing;
        if let Some(index) = outgoing.iter().position(|invite| invite.cseq == id.cseq) {
            self.refused(core, leg, index, Refusal::new(408, None));
        } else {
            self.branch_refused(core, id.cseq, Refusal::new(408, None));
        }
    }

    /// Returns whether an answer belongs to the dialog of a leg.
    pub(crate) fn has_dialog(&self, leg: usize, answer: &Message) -> bool {
        let dialog = &self.record.legs[leg].dialog;
        dialog.confirmed
            && dialog.call_id == answer.call_id()
            && dialog.remote_tag == answer.to_tag().unwrap_or_default()
    }

    /// Acknowledges the 2xx of a re-INVITE that the record does not have. If the owner before may have
    /// sent it, nobody knows what it offered; else it is a copy that took very long.
    pub(crate) fn stray_accepted(&mut self, core: &mut Core, leg: usize, answer: &Message) {
        let Some(cseq) = answer.cseq().map(|cseq| cseq.number) else { return };
        let (slot, way) = (self.record.slot, self.way(leg));
        let party = &mut self.record.legs[leg];
        party.dialog.refresh(answer);
        party.resync |= self.unstored[leg].contains(&cseq);
        let via = message::via(party, &core.names.branch(slot));
        let ack = party.dialog.ack(cseq, &via).finish();
        core.send(way, ack.bytes().clone());
    }

    fn provisional(
        &mut self,
        core: &mut Core,
        leg: usize,
        index: usize,
        status: u16,
        answer: &Message,
    ) {
        let invite = &mut self.record.legs[leg].outgoing[index];
        if invite.state == ClientState::Calling {
            invite.state = ClientState::Proceeding;
        }
        let (purpose, cancel_at) = (invite.purpose, invite.cancel_at);
        match purpose {
            Purpose::Call if 100 < status => self.ringing(core, status, answer),
            Purpose::Call | Purpose::Relay => {}
            Purpose::Move => self.keep_place(core, leg, cancel_at),
        }
    }

    pub(super) fn accepted(&mut self, core: &mut Core, leg: usize, index: usize, answer: &Message) {
        let until = core.after(core.patience());
        let party = &mut self.record.legs[leg];
        let invite = &mut party.outgoing[index];
        if let ClientState::Accepted { acked, .. } = invite.state {
            let tag = answer.to_tag().unwrap_or_default();
            if invite.purpose == Purpose::Call && tag != party.dialog.remote_tag {
                let (leg, cseq) = (party.clone(), party.outgoing[index].cseq);
                self.shed_fork(core, &leg, cseq, answer);
            } else if acked {
                self.ack(core, leg, index);
            }
            return;
        }
        invite.state = ClientState::Accepted { until, acked: false };
        let (purpose, cseq) = (invite.purpose, invite.cseq);
        // A standby that thought it open would wait for an answer that has gone.
        self.barrier = true;
        if purpose != Purpose::Call {
            party.dialog.refresh(answer);
            party.flow = reach::flow(core, party, party.flow, !party.registered);
        }
        self.session_granted(core, leg, answer);
        match purpose {
            Purpose::Call => self.answered(core, index, answer),
            Purpose::Relay => self.relay_accepted(core, leg, index, answer),
            Purpose::Move if self.record.legs[leg].session.refreshing == Some(cseq) => {
                self.refresh_accepted(core, leg, index, answer);
            }
            Purpose::Move => self.move_accepted(core, leg, index, answer),
        }
    }

    fn refused(&mut self, core: &mut Core, leg: usize, index: usize, refusal: Refusal) {
        let invite = self.record.legs[leg].outgoing.remove(index);
        self.drop_key(core, leg, invite.cseq, false);
        if self.refresh_refused(core, leg, invite.cseq, refusal) {
            return;
        }
        self.barrier = true;
        if let ClientState::Accepted { .. } = invite.state {
            return;
        }
        let again = self.asks_for_more(core, leg, &invite, refusal);
        let status = refusal.status;
        match invite.purpose {
            Purpose::Call if again => self.call_again(core),
            Purpose::Call => self.target_failed(core, status),
            Purpose::Relay if again => self.relay_again(leg),
            Purpose::Relay => self.relay_refused(core, leg, status, invite.cancelled),
            Purpose::Move if again => self.move_again(core, leg),
            Purpose::Move => self.move_refused(core, leg, refusal, invite.cancelled),
        }
    }
}
