//! Session timers (RFC 4028): each leg has its own, as each is a dialog of its own.
//!
//! Whatever INVITE succeeds on a leg refreshes it. When we are the refresher and none did, an UPDATE
//! without an offer does it, or a re-INVITE that repeats the SDP. A leg that its phone has to refresh ends
//! the call when it does not.

use std::time::Duration;

use bytes::Bytes;
use failover::moves::collision_wait;
use failover::record::{ClientInvite, Leg, LegState, Purpose, Session, Side, Terms};
use failover::{Cause, UnixMs};
use sip_core::{Message, Method, Name};

use super::Call;
use super::outgoing::Refusal;
use crate::core::{ClientUse, Core};
use crate::{message, sdp, timer};

impl Call {
    /// Refreshes the session of a leg if that is due and nothing else is about to do it.
    pub(super) fn refresh_session(&mut self, core: &mut Core, leg: usize) {
        let party = &self.record.legs[leg];
        let session = &party.session;
        let due = session.next_refresh().is_some_and(|at| at <= core.unix);
        let told_soon = self.record.is_stale(leg) && !party.moving.apart;
        let open = session.refreshing.is_some() || !party.is_free();
        if !due || open || told_soon || party.state != LegState::Confirmed {
            return;
        }
        let cseq = match session.updates {
            true => self.send_update(core, leg),
            false => self.send_refresh(core, leg),
        };
        let session = &mut self.record.legs[leg].session;
        session.refreshing = cseq;
        session.postpone(core.unix);
    }

    fn send_update(&mut self, core: &mut Core, leg: usize) -> Option<u32> {
        let (slot, way) = (self.record.slot, self.way(leg));
        self.lease_cseq(leg);
        let party = &mut self.record.legs[leg];
        let via = message::via(party, &core.names.branch(slot));
        let contact = message::contact(party);
        let update = party.dialog.request(Method::Update, &via).header(Name::CONTACT, contact);
        let update = timer::asking(update, &party.session).finish();
        let (registered, cseq) = (party.registered, party.dialog.local_cseq);
        let key = core.request(way, registered, &update).ok()?;
        core.set_client(key, ClientUse::Update(self.leg_id(leg)));
        Some(cseq)
    }

    /// Sends a re-INVITE with the SDP that the phone has already.
    fn send_refresh(&mut self, core: &mut Core, leg: usize) -> Option<u32> {
        if self.record.holder.is_none() && !self.is_direct() {
            return None;
        }
        let agreed = self.record.legs[leg].agreed.clone()?;
        let sdp = self.prepare(leg, agreed.base, agreed.formats, agreed.direction)?;
        let patience = Some(REFRESH_PATIENCE);
        let sent = self.send_invite(core, leg, Purpose::Move, Some(sdp), patience);
        sent.then_some(self.record.legs[leg].dialog.local_cseq)
    }

    /// Takes in the 2xx to a request of ours that refreshes the session, whatever else it is for.
    pub(super) fn session_granted(&mut self, core: &Core, leg: usize, answer: &Message) {
        let session = &mut self.record.legs[leg].session;
        if let Some(terms) = timer::granted(&core.config, session, answer) {
            session.start(core.unix, terms);
        }
    }

    /// Takes in that a re-INVITE refreshed the session.
    pub(super) fn refresh_accepted(
        &mut self,
        core: &mut Core,
        leg: usize,
        index: usize,
        answer: &Message,
    ) {
        let body = Bytes::copy_from_slice(message::sdp_of(answer).unwrap_or_default());
        self.record.legs[leg].session.refreshing = None;
        if !self.record.is_ended() {
            let party = &self.record.legs[leg];
            let is_news = sdp::audio(&body).is_some() && !sdp::same_session(&body, &party.received);
            self.take_answer(leg, if is_news { body } else { Bytes::new() });
            // Either phone may have held or resumed meanwhile.
            self.pass_direction(leg);
            self.pass_direction(1 - leg);
            self.told(core, leg);
        }
        self.ack(core, leg, index);
    }

    /// Takes in that a re-INVITE that refreshes the session was refused; tells whether it was one.
    pub(super) fn refresh_refused(
        &mut self,
        core: &mut Core,
        leg: usize,
        cseq: u32,
        refusal: Refusal,
    ) -> bool {
        let party = &mut self.record.legs[leg];
        if party.session.refreshing != Some(cseq) {
            return false;
        }
        party.session.refreshing = None;
        party.offer_out = None;
        if self.record.is_ended() {
            return true;
        }
        match refusal.status {
            481 => {
                self.record.legs[leg].state = LegState::Gone;
                self.end(core, Cause::LegLost, 481);
            }
            // RFC 4028 §10, and what RFC 5057 §5.1 says to destroy the dialog.
            408 | 404 | 410 | 416 | 482..=485 | 502 | 604 => self.end(core, Cause::LegLost, 408),
            _ => self.refresh_later(core, leg, refusal),
        }
        true
    }

    /// Takes in the final answer to an UPDATE of ours, or that there is none.
    pub(crate) fn update_answered(
        &mut self,
        core: &mut Core,
        leg: usize,
        status: u16,
        answer: Option<&Message>,
    ) {
        self.record.legs[leg].session.refreshing = None;
        if self.record.is_ended() {
            return;
        }
        let party = &mut self.record.legs[leg];
        match (status, answer) {
            (200..300, Some(answer)) => {
                party.dialog.refresh(answer);
                self.session_granted(core, leg, answer);
            }
            (422 | 491 | 500 | 503, Some(answer)) => {
                self.refresh_later(core, leg, Refusal::new(status, Some(answer)));
            }
            // Some on the way pass on no UPDATE, so it is the re-INVITE that counts.
            (_, _) => {
                party.session.updates = false;
                party.session.refresh_at = core.unix;
            }
        }
    }

    /// Says when a refresh that was refused is tried again, which `postpone` has done for most.
    fn refresh_later(&mut self, core: &mut Core, leg: usize, refusal: Refusal) {
        let random = core.names.random();
        let party = &mut self.record.legs[leg];
        let (owns_call_id, session) = (party.owns_call_id, &mut party.session);
        let wait = match (refusal.status, refusal.retry_after) {
            (422, _) if timer::raise(&core.config, session, refusal.min_se, session.raises) => {
                Duration::ZERO
            }
            // Each wait as long as all before: two that collide for ever make no storm.
            (491, _) => collision_wait(owns_call_id, random).max(session.overdue(core.unix)),
            (_, Some(seconds)) => {
                Duration::from_millis(Session::PAUSE_MS.max(u64::from(seconds) * 1000))
            }
            // It will not have it, but it lives, and it is not the one to end the session.
            (_, None) if !session.known => {
                return session
                    .start(core.unix, Terms { interval: session.interval, refresher: Side::Us });
            }
            (_, None) => return,
        };
        session.refresh_at = session.refresh_at.min(core.after(wait));
    }

    /// Asks for the interval that the peer wants, if it found ours too short and may say so.
    pub(super) fn asks_for_more(
        &mut self,
        core: &Core,
        leg: usize,
        invite: &ClientInvite,
        refusal: Refusal,
    ) -> bool {
        if refusal.status != 422 || invite.cancelled || self.record.is_ended() {
            return false;
        }
        let Leg { session, dialog, .. } = &mut self.record.legs[leg];
        if invite.purpose != Purpose::Call {
            return timer::raise(&core.config, session, refusal.min_se, session.raises);
        }
        // Of the phones that ring each is counted by itself. The next INVITE is the one that asks anew.
        let asked = self.asked_anew.iter().position(|(cseq, _)| *cseq == invite.cseq);
        let tries = asked.map_or(0, |index| self.asked_anew.swap_remove(index).1);
        let again = timer::raise(&core.config, session, refusal.min_se, tries);
        if again {
            self.asked_anew.push((dialog.local_cseq + 1, tries + 1));
        }
        again
    }

    /// Ends the call when a session was not refreshed in time.
    pub(super) fn expire(&mut self, core: &mut Core) {
        if self.record.expired(core.unix).is_some() {
            self.end(core, Cause::LegLost, 408);
        }
    }

    /// Returns when a session ends or is to be refreshed next.
    pub(super) fn session_deadline(&self, core: &Core) -> Option<UnixMs> {
        let legs = self.record.timed().map(|leg| &self.record.legs[leg].session);
        legs.flat_map(|session| {
            // One that is overdue waits for something else to happen on the leg.
            let refresh = session.next_refresh().filter(|at| core.unix < *at);
            [session.deadline(), refresh].into_iter().flatten()
        })
        .min()
    }

    /// Asks anew what the owner before asked outside INVITE: its answer finds nobody.
    pub(super) fn refresh_anew(&mut self, core: &Core) {
        for leg in &mut self.record.legs {
            let open = leg.session.refreshing;
            if open.is_some() && !leg.outgoing.iter().any(|invite| Some(invite.cseq) == open) {
                leg.session.refreshing = None;
                leg.session.refresh_at = core.unix;
            }
        }
    }
}

/// A re-INVITE that refreshes a session is given so long for a final answer.
const REFRESH_PATIENCE: Duration = Duration::from_secs(32);
