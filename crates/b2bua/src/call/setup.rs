//! From the caller's INVITE to the callee's answer.

use std::net::SocketAddr;

use bytes::Bytes;
use failover::moves::Move;
use failover::record::{
    Base, CallRecord, Direction, Leg, LegState, Phase, Purpose, SdpIdentity, SentSdp, ServerInvite,
    ServerState, Session, Target,
};
use failover::{Admission, CallId, Cause, Flow, Slot};
use sip_core::dialog::Dialog;
use sip_core::transactions::ServerKey;
use sip_core::{Message, Name, Uri};

use super::{Call, reach};
use crate::core::{Core, Way};
use crate::io::Event;
use crate::registrar::Registrar;
use crate::{message, routing, sdp, timer};

impl Call {
    /// Takes in a caller's INVITE. Fails with the status that refuses it.
    pub(crate) fn invited(
        core: &mut Core,
        (call, admission): (CallId, Admission),
        key: ServerKey,
        (flow, slot): Way,
        invite: &Message,
        proposal: Proposal,
    ) -> Result<Box<Self>, u16> {
        let Proposal { sdp, contact, registered, mut targets, session } = proposal;
        let tag = core.names.tag(slot);
        let dialog = Dialog::uas(invite, tag.as_bytes()).map_err(|_| 400_u16)?;
        let target = match targets.is_empty() {
            true => return Err(404),
            false => targets.remove(0),
        };
        let callee = callee(core, call, slot, &dialog, target, contact);
        let mut caller = new_leg(core, dialog, flow, contact, registered, false);
        caller.offer_in = sdp;
        caller.session = session;
        caller.flow = reach::flow(core, &caller, flow, reach::is_honest(&caller, invite, &flow));
        caller.incoming.push(server_invite(core, flow, invite));
        let cseq = caller.incoming[0].cseq;
        let hops = invite.max_forwards().unwrap_or(71).clamp(1, 71) - 1;
        let mut new = Box::new(Self::with_record(CallRecord {
            call,
            slot,
            epoch: core.epoch(slot),
            phase: Phase::Placing,
            started_at: core.unix,
            answered_at: None,
            ends_at: core.after(core.config.ring),
            called: Bytes::copy_from_slice(invite.request_uri().unwrap_or_default()),
            max_forwards: u8::try_from(hops).unwrap_or(70),
            legs: [caller, callee],
            targets,
            holder: None,
            standby: None,
            moves: 0,
            admission,
            detail: None,
            fork: None,
        }));
        new.add_server_key(core, 0, cseq, key);
        for leg in 0..2 {
            core.set_tag(&new.record.legs[leg].dialog.local_tag, new.leg_id(leg));
        }
        core.live += 1;
        core.charged += usize::from(new.record.admission.charge.is_some());
        core.counters.calls += 1;
        core.event(Event::Started {
            call,
            from: new.record.legs[0].dialog.remote.clone(),
            to: new.record.called.clone(),
        });
        new.ask_for_ports(core);
        Ok(new)
    }

    pub(super) fn call_target(&mut self, core: &mut Core) {
        let offered = !self.record.legs[0].offer_in.is_empty();
        let base = match self.record.legs[0].agreed {
            // An early answer has made the offer effective.
            Some(_) => Base::Peer,
            None if offered => Base::PeerOffer,
            None => {
                self.start_call(core, None);
                return;
            }
        };
        let sdp = self.prepare(1, base, Vec::new(), None);
        self.start_call(core, sdp);
    }

    fn start_call(&mut self, core: &mut Core, sdp: Option<(SentSdp, Bytes)>) {
        let bytes = sdp.as_ref().map(|(_, bytes)| bytes.clone());
        if !self.send_invite(core, 1, Purpose::Call, sdp, None) {
            core.counters.refused += 1;
            return self.end(core, Cause::Refused(503), 503);
        }
        self.ring_others(core, bytes.as_ref());
    }

    /// Calls the same target once more: it refused nothing but the timer of the session.
    pub(super) fn call_again(&mut self, core: &mut Core) {
        let offer = self.record.legs[1].offer_out.take();
        if self.record.legs[1].agreed.is_some() {
            return self.target_failed(core, 422);
        }
        let sdp = offer.map(|offer| {
            let bytes = self.render(1, &offer);
            (offer, bytes)
        });
        if !self.send_invite(core, 1, Purpose::Call, sdp, None) {
            self.target_failed(core, 503);
        }
    }

    /// Takes in that a target refused or never answered.
    pub(super) fn target_failed(&mut self, core: &mut Core, status: u16) {
        let Some(status) = self.best_refusal(core, status) else { return };
        self.record.legs[1].state = LegState::Gone;
        self.record.legs[1].offer_out = None;
        if self.record.is_ended() {
            return;
        }
        if matches!(status, 408 | 430 | 503) && !self.record.targets.is_empty() {
            return self.next_target(core);
        }
        self.end(core, Cause::Refused(status), passed_on(status));
    }

    pub(super) fn next_target(&mut self, core: &mut Core) {
        let target = self.record.targets.remove(0);
        let (call, slot) = (self.record.call, self.record.slot);
        let (dialog, contact) = (&self.record.legs[0].dialog, self.record.legs[0].contact);
        let callee = callee(core, call, slot, dialog, target, contact);
        self.record.fork = None;
        self.asked_anew.clear();
        let old = std::mem::replace(&mut self.record.legs[1], callee);
        self.record.legs[1].rtp = old.rtp;
        core.clear_tag(&old.dialog.local_tag);
        if let Some(told) = &mut self.record.legs[0].agreed
            && told.base == Base::Peer
        {
            told.base = Base::Own(old.received);
        }
        core.set_tag(&self.record.legs[1].dialog.local_tag, self.leg_id(1));
        self.media_changed = true;
        self.call_target(core);
    }

    /// Passes a provisional answer of the callee on.
    pub(super) fn ringing(&mut self, core: &mut Core, status: u16, answer: &Message) {
        let Some(index) = self.open_call() else { return };
        let tag = answer.to_tag().unwrap_or_default();
        let sdp = message::sdp_of(answer).unwrap_or_default();
        let offered = !self.record.legs[0].offer_in.is_empty();
        let early = if offered && !sdp.is_empty() && self.record.legs[1].agreed.is_none() {
            self.early_answer(sdp, tag)
        } else {
            None
        };
        self.answer_invite(core, 0, index, status, early);
    }

    /// Lets an SDP in a provisional answer take effect, and makes the caller's.
    fn early_answer(&mut self, sdp: &[u8], tag: &[u8]) -> Option<Bytes> {
        sdp::audio(sdp)?;
        self.take_answer(1, Bytes::copy_from_slice(sdp));
        self.record.legs[1].early_tag = Bytes::copy_from_slice(tag);
        if self.record.legs[0].agreed.is_none() {
            self.commit_offer(0);
        }
        let (sent, bytes) = self.prepare(0, Base::Peer, Vec::new(), None)?;
        self.record.legs[0].agreed = Some(sent);
        Some(bytes)
    }

    /// Takes in the callee's first 2xx.
    pub(super) fn answered(&mut self, core: &mut Core, index: usize, answer: &Message) {
        let offered = self.record.legs[1].outgoing[index].offered;
        let tag = answer.to_tag().unwrap_or_default();
        let callee = &mut self.record.legs[1];
        if let Ok(dialog) = callee.dialog.answered(answer) {
            callee.dialog = dialog;
            callee.flow = reach::flow(core, callee, callee.flow, !callee.registered);
        }
        callee.state = LegState::Confirmed;
        if self.record.is_ended() {
            return self.ack(core, 1, index);
        }
        let Some(caller_invite) = self.open_call() else { return };
        let body = message::sdp_of(answer).unwrap_or_default();
        let body = if sdp::audio(body).is_some() { body } else { &[] };
        let sdp = match offered {
            true => self.final_answer(core, body, tag),
            false => self.late_offer(body),
        };
        if offered || sdp.is_none() {
            self.ack(core, 1, index);
        }
        let Some(sdp) = sdp else {
            // It answered with nothing to talk by.
            return self.end(core, Cause::Refused(502), 502);
        };
        let caller = &mut self.record.legs[0];
        caller.state = LegState::Confirmed;
        caller.dialog.confirmed = true;
        self.record.phase = Phase::Talking;
        self.record.answered_at = Some(core.unix);
        self.record.ends_at = core.after(core.config.call);
        self.record.targets.clear();
        self.media_changed = true;
        self.cancel_others(core);
        self.answer_invite(core, 0, caller_invite, 200, Some(sdp));
        core.counters.answered += 1;
        core.event(Event::Answered { call: self.record.call });
    }

    /// Lets the answer in a 2xx take effect, and makes the caller's.
    fn final_answer(&mut self, core: &mut Core, body: &[u8], tag: &[u8]) -> Option<Bytes> {
        self.take_answer(1, Bytes::copy_from_slice(body));
        if self.record.legs[1].received.is_empty() {
            return None;
        }
        let same_branch = self.record.legs[1].early_tag == tag;
        match self.record.legs[0].agreed.clone() {
            // RFC 3261 §13.2.1: the 2xx repeats the SDP of the provisional answer.
            Some(told) if same_branch => return Some(self.render(0, &told)),
            // Another branch of a fork answered: towards the caller it is one too, with a tag of
            // its own, since one dialog has one answer.
            Some(_) => self.rename_caller(core),
            None => self.commit_offer(0),
        }
        let (sent, bytes) = self.prepare(0, Base::Peer, Vec::new(), None)?;
        self.record.legs[0].agreed = Some(sent);
        Some(bytes)
    }

    /// Passes the callee's offer to a caller that made none.
    fn late_offer(&mut self, body: &[u8]) -> Option<Bytes> {
        if body.is_empty() {
            return None;
        }
        self.record.legs[1].offer_in = Bytes::copy_from_slice(body);
        let (sent, bytes) = self.prepare(0, Base::PeerOffer, Vec::new(), None)?;
        self.record.legs[0].offer_out = Some(sent);
        Some(bytes)
    }

    fn rename_caller(&mut self, core: &mut Core) {
        let tag = core.names.tag(self.record.slot);
        let caller = &mut self.record.legs[0];
        core.clear_tag(&caller.dialog.local_tag);
        caller.dialog.local_tag = Bytes::from(tag.into_bytes());
        core.set_tag(&self.record.legs[0].dialog.local_tag, self.leg_id(0));
    }

    /// Ends the dialog of a further branch of a fork: its 2xx is acknowledged, then BYE. `leg` is the
    /// callee's as it is there.
    pub(super) fn shed_fork(&mut self, core: &mut Core, leg: &Leg, cseq: u32, answer: &Message) {
        let slot = self.record.slot;
        let way = (leg.flow, slot);
        let Ok(mut dialog) = leg.dialog.answered(answer) else { return };
        let ack_via = message::via(leg, &core.names.branch(slot));
        let ack = dialog.ack(cseq, &ack_via).finish();
        let bye_via = message::via(leg, &core.names.branch(slot));
        core.send(way, ack.bytes().clone());
        let shed = &self.record.legs[1].shed;
        if shed.contains(&dialog.remote_tag) || FORKS_MAX <= shed.len() {
            return;
        }
        let bye = dialog.request(sip_core::Method::Bye, &bye_via).finish();
        let reliable = way.0.transport.is_reliable();
        // Without room for the transaction the branch is left to its own time-out.
        let _ = core.transactions.request(core.now, way, reliable, &bye);
        self.record.legs[1].shed.push(dialog.remote_tag);
    }

    /// Returns the caller's INVITE while it waits for its final answer.
    fn open_call(&self) -> Option<usize> {
        if self.record.phase != Phase::Calling {
            return None;
        }
        let mut incoming = self.record.legs[0].incoming.iter();
        incoming.position(|invite| matches!(invite.state, ServerState::Proceeding { .. }))
    }
}

/// What an INVITE asks for that is refused to nobody.
#[derive(Debug)]
pub(crate) struct Proposal {
    /// Its SDP, perhaps none.
    pub(crate) sdp: Bytes,
    /// Our address towards the caller.
    pub(crate) contact: SocketAddr,
    /// A registered phone of ours calls.
    pub(crate) registered: bool,
    /// Where it may go.
    pub(crate) targets: Vec<Target>,
    /// What the timer of the caller's session is to be.
    pub(crate) session: Session,
}

impl Proposal {
    /// Reads an INVITE that came over `flow`.
    ///
    /// # Errors
    /// The status that refuses it, whoever is called.
    pub(crate) fn new(
        core: &Core,
        registrar: &Registrar,
        flow: Flow,
        invite: &Message,
        uri: &Uri<'_>,
    ) -> Result<Self, u16> {
        let body = message::sdp_of(invite).ok_or(415_u16)?;
        if !body.is_empty() && sdp::audio(body).is_none() {
            return Err(488);
        }
        let mut session = Session::default();
        timer::ask(&core.config, &mut session, invite).map_err(|()| 422_u16)?;
        let targets = routing::targets(core, registrar, uri, flow);
        let is_somewhere = !targets.is_empty();
        let targets = routing::fitting(uri, targets);
        if is_somewhere && targets.is_empty() {
            return Err(480);
        }
        Ok(Self {
            sdp: Bytes::copy_from_slice(body),
            contact: core.advertised(&flow).ok_or(500_u16)?,
            registered: registrar.knows(core, invite, &flow),
            targets,
            session,
        })
    }
}

/// Returns what a caller is told when the callee's side refused with `status`.
pub(super) fn passed_on(status: u16) -> u16 {
    match status {
        // We follow no redirection, and a challenge is ours to meet.
        300..400 => 480,
        // RFC 5626 §5.3.1: who we call cannot be reached on the way we know.
        430 => 480,
        401 | 407 => 403,
        // RFC 3261 §16.7: a 503 would say that we have too much to do.
        503 => 500,
        // What was wrong with our request is not wrong with the caller's.
        400 | 405 | 416 | 420 | 421 | 422 | 423 | 481 | 482 | 483 | 493 | 494 | 505 => 502,
        status => status,
    }
}

/// Notes what the answers to an INVITE need.
pub(super) fn server_invite(core: &Core, flow: Flow, invite: &Message) -> ServerInvite {
    ServerInvite {
        cseq: invite.cseq().map_or(0, |cseq| cseq.number),
        vias: invite.headers(Name::VIA).map(Bytes::copy_from_slice).collect(),
        record_routes: invite.headers(Name::RECORD_ROUTE).map(Bytes::copy_from_slice).collect(),
        flow,
        came_at: core.unix,
        initial: invite.to_tag().is_none(),
        offered: !invite.body().is_empty(),
        relayed: false,
        state: ServerState::Proceeding { status: 0, sdp: false },
    }
}

fn new_leg(
    core: &mut Core,
    dialog: Dialog,
    flow: Flow,
    contact: SocketAddr,
    registered: bool,
    owns_call_id: bool,
) -> Leg {
    Leg {
        dialog,
        state: LegState::Early,
        flow,
        contact,
        registered,
        owns_call_id,
        cseq_ceiling: 0,
        rtp: None,
        identity: SdpIdentity {
            // Some phones read it as a signed number.
            id: core.names.random() >> 2,
            address: contact.ip(),
            version: 1,
            digest: 0,
        },
        received: Bytes::new(),
        wish: Direction::default(),
        agreed: None,
        offer_in: Bytes::new(),
        offer_out: None,
        resync: false,
        incoming: Vec::new(),
        outgoing: Vec::new(),
        shed: Vec::new(),
        early_tag: Bytes::new(),
        moving: Move::default(),
        latched: None,
        session: Session::default(),
    }
}

/// Makes the callee's leg for a target.
fn callee(
    core: &mut Core,
    call: CallId,
    slot: Slot,
    caller: &Dialog,
    target: Target,
    contact: SocketAddr,
) -> Leg {
    let contact = core.advertised(&target.flow).unwrap_or(contact);
    let random = core.names.random();
    let dialog = Dialog {
        call_id: message::call_id(call, random, contact.ip()),
        local_tag: Bytes::from(core.names.tag(slot).into_bytes()),
        remote_tag: Bytes::new(),
        local: caller.remote.clone(),
        remote: caller.local.clone(),
        local_cseq: 0,
        remote_cseq: None,
        route_set: target.routes,
        secure: routing::is_secure(&target.uri),
        remote_target: target.uri,
        confirmed: false,
    };
    let session = timer::proposed(&core.config);
    Leg { session, ..new_leg(core, dialog, target.flow, contact, target.registered, true) }
}

const FORKS_MAX: usize = 8;
