//! A call is rebuilt from its record.

use std::time::Duration;

use bytes::Bytes;
use failover::pacing::Peer;
use failover::record::{
    CallRecord, ClientInvite, ClientState, Leg, LegState, Phase, Purpose, ServerInvite, ServerState,
};
use sip_core::transactions::{Answer, OpenClientInvite, OpenServerInvite, Phase as Sent};
use sip_core::{Elements, Message, Name};

use super::Call;
use crate::core::{Core, Way};
use crate::io::Output;
use crate::message;

impl Call {
    /// Goes on with a call from its record.
    pub(crate) fn restored(core: &mut Core, mut record: CallRecord) -> Self {
        // Not every number used is stored: above the ceiling none was.
        let unstored = record.legs.each_mut().map(|leg| {
            let cseq = &mut leg.dialog.local_cseq;
            let stored = std::mem::replace(cseq, leg.cseq_ceiling.max(*cseq));
            stored.saturating_add(1)..cseq.saturating_add(1)
        });
        // The blocks of ports of a process that is gone are given to others.
        let epoch = core.epoch(record.slot);
        let foreign = record.epoch != epoch && record.standby.is_some();
        let mut call = Self { unstored, ..Self::with_record(record) };
        call.enter(epoch);
        call.foreign = foreign && !call.record.is_ended();
        for leg in 0..2 {
            core.set_tag(&call.record.legs[leg].dialog.local_tag, call.leg_id(leg));
            call.restore_incoming(core, leg);
            call.restore_outgoing(core, leg);
        }
        call.restore_fork(core);
        if call.record.is_ended() {
            // The old owner may not have come to it.
            call.release(core);
            // Who wrote the record may have died before it wrote that down.
            core.outputs.extend(call.record.detail.clone().map(Output::Detail));
            call.repeat_byes(core);
            return call;
        }
        call.repeat_acks(core);
        call.refresh_anew(core);
        core.live += 1;
        core.charged += usize::from(call.record.admission.charge.is_some());
        for place in [call.record.holder, call.record.standby].into_iter().flatten() {
            core.hold(call.record.call, &place);
            core.outputs.push_back(Output::Named(place));
        }
        if call.record.phase == Phase::Placing || call.record.holder.is_none() {
            call.ask_for_ports(core);
        } else if call.record.standby.is_none() || call.foreign {
            call.ask_later(core);
        }
        call
    }

    /// Acknowledges again what was accepted just before the old owner died: it may not have come to
    /// it, and before its ACK a phone takes no other INVITE (RFC 3261 §14.1).
    fn repeat_acks(&mut self, core: &mut Core) {
        let newest = core.after(core.patience().saturating_sub(ACK_DOUBT));
        for leg in 0..2 {
            for index in 0..self.record.legs[leg].outgoing.len() {
                if let ClientState::Accepted { until, acked: true } =
                    self.record.legs[leg].outgoing[index].state
                    && newest <= until
                {
                    self.ack(core, leg, index);
                }
            }
        }
    }

    fn repeat_byes(&mut self, core: &mut Core) {
        for leg in 0..2 {
            if self.record.legs[leg].state == LegState::Leaving {
                self.send_bye(core, leg);
            }
        }
    }

    fn restore_incoming(&mut self, core: &mut Core, leg: usize) {
        let mut lost = Vec::new();
        for index in 0..self.record.legs[leg].incoming.len() {
            let answer = self.last_answer(core, leg, index);
            let party = &self.record.legs[leg];
            let invite = &party.incoming[index];
            let via = invite.vias.first().map(|via| &via[..]).unwrap_or_default();
            let open = OpenServerInvite {
                flow: (invite.flow, self.record.slot),
                reliable: invite.flow.transport.is_reliable(),
                via: Elements::new(via).next().unwrap_or_default(),
                request_uri: &self.record.called,
                call_id: &party.dialog.call_id,
                from_tag: &party.dialog.remote_tag,
                to_tag: match invite.initial {
                    true => b"",
                    false => &party.dialog.local_tag,
                },
                cseq: invite.cseq,
                answer,
            };
            let cseq = invite.cseq;
            match core.transactions.restore_server(core.now, open) {
                Ok(key) => self.add_server_key(core, leg, cseq, key),
                Err(_) => lost.push(cseq),
            }
        }
        // What cannot be answered any more must not hold up the leg.
        self.record.legs[leg].incoming.retain(|invite| !lost.contains(&invite.cseq));
    }

    fn last_answer(&self, core: &Core, leg: usize, index: usize) -> Answer {
        let party = &self.record.legs[leg];
        let invite = &party.incoming[index];
        match invite.state {
            ServerState::Proceeding { status: 0, .. } => Answer::Nothing,
            ServerState::Proceeding { status, sdp } => {
                let sdp = party.agreed.as_ref().filter(|_| sdp).map(|sent| self.render(leg, sent));
                let answer = message::answer(party, invite, status, sdp).finish();
                Answer::Provisional { bytes: answer.bytes().clone() }
            }
            ServerState::Accepted { until } => Answer::Accepted {
                bytes: self.success(leg, invite),
                expires_at: core.clock.instant_at(until),
            },
            ServerState::Refused { status, retry_after, until } => {
                let mut answer = message::answer(party, invite, status, None);
                if let Some(seconds) = retry_after {
                    answer = answer.number(Name::RETRY_AFTER, seconds);
                }
                Answer::Refused {
                    bytes: answer.finish().bytes().clone(),
                    expires_at: core.clock.instant_at(until),
                }
            }
        }
    }

    fn success(&self, leg: usize, invite: &ServerInvite) -> Bytes {
        let party = &self.record.legs[leg];
        let sent = match invite.offered {
            true => &party.agreed,
            false => &party.offer_out,
        };
        let sdp = sent.as_ref().map(|sent| self.render(leg, sent));
        message::answer(party, invite, 200, sdp).finish().bytes().clone()
    }

    fn restore_outgoing(&mut self, core: &mut Core, leg: usize) {
        let mut lost = Vec::new();
        for index in 0..self.record.legs[leg].outgoing.len() {
            let party = &self.record.legs[leg];
            let invite = party.outgoing[index].clone();
            let request = self.repeated(leg, party, &invite);
            if !self.restore_invite(core, leg, self.way(leg), &invite, request) {
                lost.push(invite.cseq);
                continue;
            }
            let open = matches!(invite.state, ClientState::Calling | ClientState::Proceeding);
            // What only refreshes the session has no place in the windows, which nobody would give back.
            let moves = invite.purpose == Purpose::Move
                && self.record.legs[leg].session.refreshing != Some(invite.cseq);
            if open && moves && !self.record.is_ended() {
                self.resume_move(core, leg, &invite);
            }
        }
        self.record.legs[leg].outgoing.retain(|invite| !lost.contains(&invite.cseq));
        if self.record.is_ended() {
            self.hush(core);
        }
    }

    /// Goes on with the transaction of an INVITE of ours; returns false if there is no room for it.
    pub(super) fn restore_invite(
        &mut self,
        core: &mut Core,
        leg: usize,
        way: Way,
        invite: &ClientInvite,
        request: Message,
    ) -> bool {
        let patience = u64::try_from(core.patience().as_millis()).unwrap_or(u64::MAX);
        let phase = match invite.state {
            ClientState::Calling => Sent::Calling {
                expires_at: core
                    .clock
                    .instant_at(failover::UnixMs(invite.sent_at.0.saturating_add(patience))),
            },
            ClientState::Proceeding => Sent::Proceeding,
            ClientState::Accepted { until, .. } => {
                Sent::Accepted { until: core.clock.instant_at(until) }
            }
        };
        let open = matches!(phase, Sent::Calling { .. } | Sent::Proceeding);
        let reliable = way.0.transport.is_reliable();
        let open_invite = OpenClientInvite { flow: way, reliable, request, phase };
        let Ok(key) = core.transactions.restore_client(core.now, open_invite) else {
            return false;
        };
        self.add_client_key(core, leg, invite.cseq, key);
        if open && invite.cancelled {
            let _ = core.transactions.cancel(core.now, key);
        }
        true
    }

    /// Writes an INVITE of ours again, byte for byte; `to` is the leg as it is where that went.
    pub(super) fn repeated(&self, leg: usize, to: &Leg, invite: &ClientInvite) -> Message {
        let party = &self.record.legs[leg];
        // What went to one phone may have an early answer of another.
        let early = party.agreed.as_ref().filter(|_| !party.dialog.confirmed);
        let offer = party.offer_out.as_ref().or(early).filter(|_| invite.offered);
        message::invite(&self.record, to, invite, offer.map(|offer| self.render(leg, offer)))
    }

    fn resume_move(&self, core: &mut Core, leg: usize, invite: &ClientInvite) {
        let party = &self.record.legs[leg];
        let peer = if party.registered { Peer::Phone } else { Peer::Trunk };
        let (hop, urgency) = (party.flow.remote, self.urgency());
        core.pacer.resume(core.now, self.pacer_id(leg), hop, peer, urgency);
        if invite.state == ClientState::Proceeding {
            self.keep_place(core, leg, invite.cancel_at);
        }
    }
}

/// A standby takes over within this time, unless it had to be started first.
const ACK_DOUBT: Duration = Duration::from_secs(2);
