//! The media of the call moves to another gateway.

use std::time::Duration;

use bytes::Bytes;
use failover::moves::{Answer, Offer, PENDING_PATIENCE, Verdict};
use failover::pacing::{LegId, Outcome, Peer, Urgency};
use failover::record::{ClientState, Direction, LegState, Phase, Purpose};
use failover::{Boot, Cause, Latched, NodeId, UnixMs};
use sip_core::Message;

use super::Call;
use super::outgoing::Refusal;
use crate::core::Core;
use crate::io::Event;
use crate::{message, sdp};

impl Call {
    /// Takes in the death of a gateway at which the call has ports: the standby is told at once.
    /// The phones are told by [`Call::settle`].
    pub(crate) fn gateway_died(&mut self, core: &mut Core, gateway: NodeId, boot: Boot) {
        let dead = |place: &failover::Place| place.gateway == gateway && place.boot == boot;
        if let Some(standby) = self.record.standby.take_if(|place| dead(place)) {
            core.release(self.record.call, &standby);
            super::ports::free(core, [standby]);
            self.foreign = false;
        }
        if let Some(holder) = self.record.holder.take_if(|place| dead(place)) {
            core.release(self.record.call, &holder);
            // Should it live after all, its ports are not lost.
            super::ports::free(core, [holder]);
            self.told = None;
            self.leave(core, gateway);
        }
    }

    /// Goes to the standby, or without one waits for new ports.
    fn leave(&mut self, core: &mut Core, from: NodeId) {
        if self.record.is_ended() {
            return;
        }
        self.media_changed = true;
        for leg in &mut self.record.legs {
            leg.moving.restart();
            let at = core.after(PENDING_PATIENCE);
            for invite in &mut leg.outgoing {
                let open = matches!(invite.state, ClientState::Calling | ClientState::Proceeding);
                if open && invite.purpose != Purpose::Call {
                    invite.cancel_at = Some(invite.cancel_at.map_or(at, |old| old.min(at)));
                }
            }
        }
        if let Some(standby) = self.record.standby.take() {
            self.foreign = false;
            self.set_holder(standby);
            self.moved(core, from, standby.gateway);
            self.sync_media(core);
        } else {
            self.left = Some(from);
        }
    }

    /// Notes that the media is at another gateway.
    pub(super) fn moved(&mut self, core: &mut Core, from: NodeId, to: NodeId) {
        self.record.moves = self.record.moves.saturating_add(1);
        core.counters.moves += 1;
        core.event(Event::Moved { call: self.record.call, from, to });
    }

    /// Asks for what is missing after a death.
    pub(crate) fn replace_ports(&mut self, core: &mut Core) {
        if self.record.phase != Phase::Placing {
            self.ask_for_ports(core);
        }
    }

    /// Takes in that a gateway could not open the call's ports: others are taken.
    pub(crate) fn open_failed(&mut self, core: &mut Core, gateway: NodeId, boot: Boot) {
        let failed = |place: &failover::Place| place.gateway == gateway && place.boot == boot;
        let Some(holder) = self.record.holder.take_if(|place| failed(place)) else { return };
        core.release(self.record.call, &holder);
        self.close_media(core);
        super::ports::free(core, [holder]);
        self.open_failures = self.open_failures.saturating_add(1);
        if OPEN_FAILURES_MAX < self.open_failures {
            return self.end(core, Cause::MediaTimeout, 503);
        }
        if self.record.standby.is_some() {
            return self.leave(core, gateway);
        }
        self.ask_for_ports(core);
    }

    /// Takes in the source that a gateway locked a leg to.
    pub(crate) fn latched(&mut self, leg: usize, latched: Latched) {
        if let Some(leg) = self.record.legs.get_mut(leg) {
            leg.latched = Some(latched);
        }
        if let Some(arrival) = self.arrivals.get_mut(leg) {
            arrival.heard();
        }
    }

    /// Takes in that a leg sends nothing although it should.
    pub(crate) fn fell_silent(&mut self, core: &mut Core) {
        if self.record.phase == Phase::Talking {
            self.end(core, Cause::MediaTimeout, 480);
        }
    }

    /// Puts a leg that must be told its media address in the queue, if it may be told now.
    pub(super) fn queue_move(&mut self, core: &mut Core, leg: usize) {
        if self.may_move(core, leg) {
            let peer = match self.record.legs[leg].registered {
                true => Peer::Phone,
                false => Peer::Trunk,
            };
            let hop = self.record.legs[leg].flow.remote;
            let urgency = self.urgency();
            core.pacer.push(self.pacer_id(leg), hop, peer, urgency);
        }
    }

    /// Returns whether the leg is to be told now, but for the windows.
    fn may_move(&self, core: &Core, leg: usize) -> bool {
        let party = &self.record.legs[leg];
        self.record.phase == Phase::Talking
            && party.state == LegState::Confirmed
            && self.record.is_stale(leg)
            && !party.moving.apart
            && party.moving.wait_until.is_none_or(|until| until <= core.unix)
            && party.is_free()
    }

    /// Returns how urgent the voice of the call is.
    pub(crate) fn urgency(&self) -> Urgency {
        let talks = |leg: usize| {
            sdp::audio(&self.record.legs[leg].received)
                .is_some_and(|audio| audio.direction == Direction::SendRecv)
        };
        if talks(0) && talks(1) { Urgency::Talking } else { Urgency::Held }
    }

    /// Names a leg in the windows.
    pub(super) fn pacer_id(&self, leg: usize) -> LegId {
        (self.record.call, u8::from(leg == 1))
    }

    /// Lets a leg keep its place in the windows: its INVITE, which is cancelled at `cancel_at`, has a
    /// provisional answer.
    pub(super) fn keep_place(&self, core: &mut Core, leg: usize, cancel_at: Option<UnixMs>) {
        let until = core.clock.instant_at(cancel_at.unwrap_or(core.unix));
        core.pacer.proceed(self.pacer_id(leg), until);
    }

    /// Tells a leg its media address; the windows have room for it.
    pub(crate) fn move_leg(&mut self, core: &mut Core, leg: usize) {
        if !self.may_move(core, leg) || !self.send_move(core, leg) {
            core.pacer.finish(core.now, self.pacer_id(leg), Outcome::Other);
        }
    }

    fn send_move(&mut self, core: &mut Core, leg: usize) -> bool {
        let sdp = match self.record.legs[leg].moving.offer {
            Offer::Narrowed => self.prepare_offer(leg, true),
            Offer::Whole => self.prepare_offer(leg, false),
            Offer::Absent => None,
        };
        if sdp.is_none() && self.record.legs[leg].moving.offer != Offer::Absent {
            return false;
        }
        let patience = self.record.legs[leg].moving.patience();
        let sent = self.send_invite(core, leg, Purpose::Move, sdp, Some(patience));
        if sent {
            self.record.legs[leg].moving.sent(core.unix);
            core.counters.move_invites += 1;
        }
        sent
    }

    pub(super) fn move_accepted(
        &mut self,
        core: &mut Core,
        leg: usize,
        index: usize,
        answer: &Message,
    ) {
        let offered = self.record.legs[leg].outgoing[index].offered;
        let body = Bytes::copy_from_slice(message::sdp_of(answer).unwrap_or_default());
        if self.record.is_ended() {
            return self.ack(core, leg, index);
        }
        if offered {
            let usable = sdp::audio(&body).is_some();
            self.take_answer(leg, if usable { body } else { Bytes::new() });
        } else {
            self.answer_offer(leg, body, true);
        }
        self.record.legs[leg].resync = false;
        self.pass_direction(leg);
        // The other phone may have held or resumed while this INVITE was open.
        self.pass_direction(1 - leg);
        self.ack(core, leg, index);
        self.await_media(core, leg);
        self.judge(core, leg, 200, None, false);
    }

    /// Has the leg told once more: only the timer of its session was refused.
    pub(super) fn move_again(&mut self, core: &mut Core, leg: usize) {
        self.record.legs[leg].offer_out = None;
        core.pacer.finish(core.now, self.pacer_id(leg), Outcome::Other);
    }

    pub(super) fn move_refused(
        &mut self,
        core: &mut Core,
        leg: usize,
        Refusal { status, retry_after, .. }: Refusal,
        cancelled: bool,
    ) {
        self.record.legs[leg].offer_out = None;
        if self.record.is_ended() {
            let id = self.pacer_id(leg);
            return core.pacer.finish(core.now, id, Outcome::Other);
        }
        self.judge(core, leg, status, retry_after, cancelled);
    }

    /// Does what the answers table says.
    fn judge(
        &mut self,
        core: &mut Core,
        leg: usize,
        status: u16,
        retry_after: Option<u32>,
        cancelled: bool,
    ) {
        let random = core.names.random();
        let id = self.pacer_id(leg);
        let party = &mut self.record.legs[leg];
        let answer = Answer {
            status,
            retry_after: retry_after.map(|seconds| Duration::from_secs(seconds.into())),
            cancelled,
            owns_call_id: party.owns_call_id,
        };
        let verdict = party.moving.answered(core.unix, answer, random);
        let outcome = match verdict {
            Verdict::Told => Outcome::Success,
            Verdict::Slower(quiet) => Outcome::Overload(quiet),
            Verdict::Lost if status == 408 => Outcome::Overload(Duration::ZERO),
            Verdict::Again(_) | Verdict::Jump | Verdict::Apart | Verdict::Gone | Verdict::Lost => {
                Outcome::Other
            }
        };
        core.pacer.finish(core.now, id, outcome);
        match verdict {
            Verdict::Told | Verdict::Again(_) | Verdict::Slower(_) => {}
            Verdict::Jump => {
                party.dialog.local_cseq += CSEQ_JUMP;
                party.cseq_ceiling = party.cseq_ceiling.max(party.dialog.local_cseq);
                self.barrier = true;
            }
            Verdict::Apart => {
                core.counters.apart += 1;
                core.event(Event::KeptApart { call: self.record.call, leg, status });
            }
            Verdict::Gone => {
                // One that declines may still have its session, and gets a BYE.
                if status == 481 {
                    party.state = LegState::Gone;
                }
                self.end(core, Cause::LegLost, 481);
            }
            Verdict::Lost => self.end(core, Cause::LegLost, 408),
        }
    }
}

/// What a phone that thinks our CSeq too low is given.
const CSEQ_JUMP: u32 = 1000;

const OPEN_FAILURES_MAX: u8 = 4;
