//! Requests inside the dialogs of a call.

use failover::Flow;
use failover::record::{LegState, Phase, ServerState};
use sip_core::transactions::ServerKey;
use sip_core::{Message, Method, Name};

use super::{Call, reach};
use crate::core::{ClientUse, Core, Way};
use crate::{message, timer};

impl Call {
    /// Takes in a request whose To tag is that of `leg`.
    pub(crate) fn requested(
        &mut self,
        core: &mut Core,
        leg: usize,
        key: ServerKey,
        way: Way,
        request: &Message,
    ) {
        let method = request.method();
        let party = &mut self.record.legs[leg];
        if !party.dialog.owns(request) {
            return core.answer(key, request, 481);
        }
        if party.dialog.accept(request).is_err() {
            return core.put_off(key, request, 500);
        }
        if method == Method::Bye {
            return self.bye(core, leg, key, request);
        }
        if self.record.is_ended() {
            return core.answer(key, request, 481);
        }
        match method {
            Method::Invite => self.reinvited(core, leg, key, way, request),
            Method::Options => answer_options(core, key, request),
            Method::Update => self.updated(core, leg, key, way.0, request),
            Method::Info | Method::Message => self.pass_on(core, leg, key, request),
            Method::Prack => core.answer(key, request, 481),
            Method::Ack | Method::Bye | Method::Cancel => {}
            Method::Notify
            | Method::Publish
            | Method::Refer
            | Method::Register
            | Method::Subscribe => core.answer(key, request, 405),
            Method::Other(_) => core.answer(key, request, 501),
        }
    }

    /// Answers an UPDATE. We allow none, but one without an offer does no harm (RFC 3311 §5.2).
    fn updated(
        &mut self,
        core: &mut Core,
        leg: usize,
        key: ServerKey,
        source: Flow,
        update: &Message,
    ) {
        let party = &mut self.record.legs[leg];
        if update.body().is_empty() {
            // What an open INVITE asked for is another matter.
            let pending = party.session.pending;
            if timer::ask(&core.config, &mut party.session, update).is_err() {
                return core.answer_short(key, update, party.session.min);
            }
            let asked = std::mem::replace(&mut party.session.pending, pending);
            if let Some(terms) = asked.filter(|_| party.dialog.confirmed) {
                party.session.start(core.unix, terms);
                // A next owner that thinks it older would end the call too early.
                self.barrier = true;
            }
            party.dialog.refresh(update);
            party.flow = reach::flow(core, party, source, reach::is_honest(party, update, &source));
            let (contact, session) = (message::contact(party), party.session);
            return core.answer_with(key, update, 200, |answer| {
                timer::granting(answer.header(Name::CONTACT, contact), &session)
            });
        }
        let waits = party.incoming.iter().any(|invite| {
            matches!(invite.state, ServerState::Proceeding { .. } | ServerState::Accepted { .. })
        });
        if !party.offer_in.is_empty() || waits {
            core.put_off(key, update, 500);
        } else if party.offer_out.is_some() {
            core.answer(key, update, 491);
        } else {
            core.answer(key, update, 488);
        }
    }

    /// Sends a request on to the other leg.
    fn pass_on(&mut self, core: &mut Core, leg: usize, key: ServerKey, request: &Message) {
        let other = 1 - leg;
        let slot = self.record.slot;
        let way = self.way(other);
        let to = &self.record.legs[other];
        if self.record.phase != Phase::Talking || to.state != LegState::Confirmed {
            return core.answer(key, request, 480);
        }
        if request.max_forwards() == Some(0) {
            return core.answer(key, request, 483);
        }
        self.lease_cseq(other);
        let to = &mut self.record.legs[other];
        let via = message::via(to, &core.names.branch(slot));
        let mut writer = to.dialog.request(request.method(), &via);
        writer = writer.copy(request, Name::INFO_PACKAGE);
        if !request.body().is_empty() {
            let kind = request.content_type().unwrap_or(b"application/octet-stream");
            writer = writer.body(kind, request.bytes().slice_ref(request.body()));
        }
        let message = writer.finish();
        let registered = to.registered;
        match core.request(way, registered, &message) {
            Ok(client) => {
                let user = ClientUse::Pass(key, Box::new(request.clone()));
                core.set_client(client, user);
            }
            Err(_) => core.put_off(key, request, 503),
        }
    }
}

/// Answers what we can do.
pub(crate) fn answer_options(core: &mut Core, key: ServerKey, request: &Message) {
    core.answer_with(key, request, 200, |answer| {
        answer.header(Name::ALLOW, message::ALLOW).header(Name::ACCEPT, message::SDP)
    });
}
