//! Re-INVITEs from either side, and the answers to our own.

use std::time::Duration;

use bytes::Bytes;
use failover::moves::PENDING_PATIENCE;
use failover::record::{Base, ClientState, LegState, Phase, Purpose, ServerState};
use failover::{Cause, Flow};
use sip_core::Message;
use sip_core::transactions::ServerKey;

use super::{Call, reach, setup};
use crate::core::{Core, InviteId, Way};
use crate::{message, sdp, timer};

impl Call {
    /// Takes in a re-INVITE.
    pub(super) fn reinvited(
        &mut self,
        core: &mut Core,
        leg: usize,
        key: ServerKey,
        (flow, _): Way,
        invite: &Message,
    ) {
        let party = &self.record.legs[leg];
        let open = party.incoming.iter().any(|invite| match invite.state {
            ServerState::Proceeding { .. } | ServerState::Accepted { .. } => true,
            ServerState::Refused { .. } => false,
        });
        let ours = party.outgoing.iter().any(|invite| match invite.state {
            ClientState::Calling | ClientState::Proceeding => true,
            ClientState::Accepted { acked, .. } => !acked,
        });
        if open {
            // RFC 3261 §14.2: the first one has no final answer yet, or its ACK is lost.
            return self.refuse_new(core, leg, key, flow, invite, 500);
        }
        if ours || self.record.phase != Phase::Talking {
            return self.refuse_new(core, leg, key, flow, invite, 491);
        }
        let Some(body) = message::sdp_of(invite) else {
            return self.refuse_new(core, leg, key, flow, invite, 415);
        };
        if !body.is_empty() && (sdp::audio(body).is_none() || !self.can_reach(body)) {
            return self.refuse_new(core, leg, key, flow, invite, 488);
        }
        let party = &mut self.record.legs[leg];
        if timer::ask(&core.config, &mut party.session, invite).is_err() {
            return self.refuse_new(core, leg, key, flow, invite, 422);
        }
        party.dialog.refresh(invite);
        party.flow = reach::flow(core, party, flow, reach::is_honest(party, invite, &flow));
        party.offer_in = Bytes::copy_from_slice(body);
        let index = self.note_invite(core, leg, key, flow, invite);
        if self.is_refresh(leg) {
            return self.answer_refresh(core, leg, index, false);
        }
        self.answer_invite(core, leg, index, 100, None);
    }

    /// Notes an INVITE of a leg; returns where.
    fn note_invite(
        &mut self,
        core: &mut Core,
        leg: usize,
        key: ServerKey,
        flow: Flow,
        invite: &Message,
    ) -> usize {
        let noted = setup::server_invite(core, flow, invite);
        let cseq = noted.cseq;
        self.record.legs[leg].incoming.push(noted);
        self.add_server_key(core, leg, cseq, key);
        self.record.legs[leg].incoming.len() - 1
    }

    /// Refuses a re-INVITE. It is noted, since until its ACK no INVITE may go the other way.
    fn refuse_new(
        &mut self,
        core: &mut Core,
        leg: usize,
        key: ServerKey,
        flow: Flow,
        invite: &Message,
        status: u16,
    ) {
        if INCOMING_MAX <= self.record.legs[leg].incoming.len() {
            return core.put_off(key, invite, 500);
        }
        let index = self.note_invite(core, leg, key, flow, invite);
        self.answer_invite(core, leg, index, status, None);
    }

    /// Returns whether the phone's offer changes nothing for the other leg.
    fn is_refresh(&self, leg: usize) -> bool {
        let party = &self.record.legs[leg];
        let other = 1 - leg;
        !party.offer_in.is_empty()
            && party.agreed.is_some()
            && !self.record.is_stale(other)
            && (sdp::same_session(&party.offer_in, &party.received)
                || self.knows(other, Base::PeerOffer))
    }

    /// Answers an offer that repeats the last one; the other leg hears nothing of it.
    fn answer_refresh(&mut self, core: &mut Core, leg: usize, index: usize, narrow: bool) {
        let offer = std::mem::take(&mut self.record.legs[leg].offer_in);
        self.take_offer(leg, offer);
        let Some((sent, bytes)) = self.prepare_answer(leg, narrow) else {
            return self.refuse_invite(core, leg, index, 488);
        };
        self.record.legs[leg].agreed = Some(sent);
        self.record.legs[leg].resync = false;
        self.pass_direction(leg);
        self.pass_direction(1 - leg);
        self.told(core, leg);
        self.answer_invite(core, leg, index, 200, Some(bytes));
    }

    /// Answers the offer of a phone that must be told where its media is, and whose offer the other
    /// phone takes too long to judge. The other one is told later if it is held now. Returns false
    /// for an offer that we cannot answer: without a codec of those agreed, or one that resumes.
    fn answer_alone(&mut self, core: &mut Core, leg: usize, index: usize) -> bool {
        let party = &self.record.legs[leg];
        let formats = |body: &[u8]| sdp::audio(body).map(|audio| audio.formats).unwrap_or_default();
        let (offered, known) = (formats(&party.offer_in), formats(&party.received));
        let fits = known.iter().any(|format| offered.contains(format));
        if !self.record.is_stale(leg) || !fits || self.widens(leg) {
            return false;
        }
        self.answer_refresh(core, leg, index, true);
        true
    }

    /// Returns whether the open offer of `leg` asks for a direction that was not there before.
    fn widens(&self, leg: usize) -> bool {
        let party = &self.record.legs[leg];
        sdp::audio(&party.offer_in)
            .is_none_or(|offer| offer.direction.narrowed(party.wish) != offer.direction)
    }

    /// Sends a waiting re-INVITE of `leg` on, as soon as the other leg is free.
    pub(super) fn relay_waiting(&mut self, core: &mut Core, leg: usize) {
        let waiting = self.record.legs[leg].incoming.iter().position(|invite| {
            matches!(invite.state, ServerState::Proceeding { .. }) && !invite.relayed
        });
        let other = 1 - leg;
        let Some(index) = waiting else { return };
        let has_media = self.record.holder.is_some() || self.is_direct();
        if !self.record.legs[other].is_free() || !has_media {
            return;
        }
        let sdp = match self.record.legs[leg].incoming[index].offered {
            true => self.prepare(other, Base::PeerOffer, Vec::new(), None),
            false => None,
        };
        self.record.legs[leg].incoming[index].relayed = true;
        // Until it has its answer, a leg whose media moved cannot be told.
        let moving = self.record.is_stale(leg) || self.record.is_stale(other);
        let patience = match (moving, self.widens(leg)) {
            (true, false) => PENDING_PATIENCE,
            (true, true) => RESUME_PATIENCE,
            (false, _) => RELAY_PATIENCE,
        };
        if !self.send_invite(core, other, Purpose::Relay, sdp, Some(patience)) {
            self.refuse_invite(core, leg, index, 500);
        }
    }

    /// Passes the 2xx of `leg` back to the leg that asked.
    pub(super) fn relay_accepted(
        &mut self,
        core: &mut Core,
        leg: usize,
        index: usize,
        answer: &Message,
    ) {
        let other = 1 - leg;
        let offered = self.record.legs[leg].outgoing[index].offered;
        let body = Bytes::copy_from_slice(message::sdp_of(answer).unwrap_or_default());
        let asker = self.relayed_from(other);
        if self.record.is_ended() || asker.is_none() {
            return self.orphan_accepted(core, leg, index, body);
        }
        let Some(asker) = asker else { return };
        let sdp = if offered {
            self.ack(core, leg, index);
            self.take_answer(leg, body);
            self.record.legs[leg].resync = false;
            self.commit_offer(other);
            self.told(core, leg);
            self.prepare(other, Base::Peer, Vec::new(), None).map(|(sent, bytes)| {
                self.record.legs[other].agreed = Some(sent);
                bytes
            })
        } else {
            self.record.legs[leg].offer_in = body;
            self.prepare(other, Base::PeerOffer, Vec::new(), None).map(|(sent, bytes)| {
                self.record.legs[other].offer_out = Some(sent);
                bytes
            })
        };
        if offered {
            self.told(core, other);
        }
        self.answer_invite(core, other, asker, 200, sdp);
    }

    /// Finishes an exchange whose asker has gone: the leg's session is put right by a re-INVITE.
    fn orphan_accepted(&mut self, core: &mut Core, leg: usize, index: usize, body: Bytes) {
        if self.record.legs[leg].outgoing[index].offered {
            self.take_answer(leg, body);
            self.record.legs[leg].resync = true;
        } else {
            self.answer_offer(leg, body, false);
        }
        self.ack(core, leg, index);
    }

    /// Lets the offer in a 2xx of `leg` take effect; its answer, which the ACK carries, repeats what
    /// was agreed, holds included.
    pub(super) fn answer_offer(&mut self, leg: usize, offer: Bytes, narrow: bool) {
        if sdp::audio(&offer).is_some() {
            self.take_offer(leg, offer);
        }
        if let Some((sent, _)) = self.prepare_answer(leg, narrow) {
            self.record.legs[leg].agreed = Some(sent);
        }
    }

    pub(super) fn relay_refused(
        &mut self,
        core: &mut Core,
        leg: usize,
        status: u16,
        cancelled: bool,
    ) {
        let other = 1 - leg;
        self.record.legs[leg].offer_out = None;
        if self.record.is_ended() {
            return;
        }
        if let Some(asker) = self.relayed_from(other)
            && !(cancelled && status == 487 && self.answer_alone(core, other, asker))
        {
            let status = match status {
                // We cut it off to move the leg's media: the asker is to come again.
                487 if cancelled => 491,
                481 | 408 => 481,
                488 | 491 | 606 => status,
                500..600 => 500,
                _ => 488,
            };
            self.refuse_invite(core, other, asker, status);
        }
        match status {
            481 => {
                self.record.legs[leg].state = LegState::Gone;
                self.end(core, Cause::LegLost, 481);
            }
            408 => self.end(core, Cause::LegLost, 481),
            _ => {}
        }
    }

    /// Lets the leg that asked be asked for again: what was sent on was refused for its timer alone.
    pub(super) fn relay_again(&mut self, leg: usize) {
        self.record.legs[leg].offer_out = None;
        if let Some(asker) = self.relayed_from(1 - leg) {
            self.record.legs[1 - leg].incoming[asker].relayed = false;
        }
    }

    /// Returns the INVITE of `leg` that was sent on and has no final answer.
    fn relayed_from(&self, leg: usize) -> Option<usize> {
        self.record.legs[leg].incoming.iter().position(|invite| {
            invite.relayed && matches!(invite.state, ServerState::Proceeding { .. })
        })
    }

    /// Takes in the ACK of a 2xx of ours.
    pub(crate) fn acked(&mut self, core: &mut Core, leg: usize, ack: &Message) {
        let cseq = ack.cseq().map_or(0, |cseq| cseq.number);
        let incoming = &self.record.legs[leg].incoming;
        let Some(index) = incoming.iter().position(|invite| {
            invite.cseq == cseq && matches!(invite.state, ServerState::Accepted { .. })
        }) else {
            return;
        };
        let invite = self.record.legs[leg].incoming.remove(index);
        self.drop_key(core, leg, cseq, true);
        if !invite.offered {
            let answer = message::sdp_of(ack).unwrap_or_default();
            self.late_answer(core, leg, answer);
        }
    }

    /// Takes in that the final answer to an INVITE was acknowledged or its time is over.
    pub(crate) fn refusal_acked(&mut self, core: &mut Core, id: InviteId) {
        let incoming = &mut self.record.legs[id.leg.leg].incoming;
        incoming.retain(|invite| {
            invite.cseq != id.cseq || !matches!(invite.state, ServerState::Refused { .. })
        });
        self.drop_key(core, id.leg.leg, id.cseq, true);
    }

    /// Takes in the answer that the ACK of `leg` brought to the other leg's offer.
    fn late_answer(&mut self, core: &mut Core, leg: usize, answer: &[u8]) {
        let other = 1 - leg;
        let usable = sdp::audio(answer).is_some();
        if usable && self.record.legs[leg].offer_out.is_some() {
            self.take_answer(leg, Bytes::copy_from_slice(answer));
            self.commit_offer(other);
            self.told(core, leg);
            if let Some((sent, _)) = self.prepare(other, Base::Peer, Vec::new(), None) {
                self.record.legs[other].agreed = Some(sent);
            }
            self.told(core, other);
        } else {
            self.record.legs[leg].offer_out = None;
            self.record.legs[other].offer_in = Bytes::new();
        }
        let unacked = self.record.legs[other]
            .outgoing
            .iter()
            .position(|invite| matches!(invite.state, ClientState::Accepted { acked: false, .. }));
        if let Some(index) = unacked {
            self.ack(core, other, index);
        }
    }

    /// Takes in that a 2xx of ours was never acknowledged, or forgets a refusal.
    pub(crate) fn unacknowledged(&mut self, core: &mut Core, id: InviteId) {
        let leg = id.leg.leg;
        let incoming = &mut self.record.legs[leg].incoming;
        let Some(index) = incoming.iter().position(|invite| invite.cseq == id.cseq) else {
            return;
        };
        let invite = incoming.remove(index);
        self.drop_key(core, leg, id.cseq, true);
        if matches!(invite.state, ServerState::Accepted { .. }) {
            // RFC 3261 §13.3.1.4: the session ends with BYE.
            self.end(core, Cause::LegLost, 408);
        }
    }

    /// Takes in the CANCEL of an INVITE; the CANCEL itself is answered already.
    pub(crate) fn cancelled(&mut self, core: &mut Core, id: InviteId) {
        let leg = id.leg.leg;
        let Some(index) = self.record.legs[leg].incoming.iter().position(|invite| {
            invite.cseq == id.cseq && matches!(invite.state, ServerState::Proceeding { .. })
        }) else {
            return;
        };
        if self.record.phase != Phase::Talking {
            return self.end(core, Cause::Caller, 487);
        }
        let other = 1 - leg;
        self.withdraw_offer(leg);
        if self.record.legs[leg].incoming[index].relayed {
            let outgoing = &self.record.legs[other].outgoing;
            let relay = outgoing.iter().position(|invite| {
                invite.purpose == Purpose::Relay
                    && matches!(invite.state, ClientState::Calling | ClientState::Proceeding)
            });
            if let Some(relay) = relay {
                self.cancel_invite(core, other, relay);
            }
        }
        self.answer_invite(core, leg, index, 487, None);
    }

    /// Notes that a leg knows where its media is, however it learned it.
    pub(super) fn told(&mut self, core: &mut Core, leg: usize) {
        self.media_changed = true;
        if !self.record.is_stale(leg) {
            self.record.legs[leg].moving.restart();
            core.pacer.finish(core.now, self.pacer_id(leg), failover::pacing::Outcome::Other);
        }
    }
}

/// A phone that asks its user about a re-INVITE is given this long.
const RELAY_PATIENCE: Duration = Duration::from_secs(60);

/// What only the other phone can answer waits for longer even while voice is gone.
const RESUME_PATIENCE: Duration = Duration::from_secs(8);

/// INVITEs of a phone that are noted at one time.
const INCOMING_MAX: usize = 4;
