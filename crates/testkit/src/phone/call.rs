//! One call of a phone: a dialog of RFC 3261 §12 and its INVITEs.

use std::net::SocketAddr;
use std::time::Duration;

use crate::fleet::Desk;
use crate::journal::{Ended, Event, Fault};
use crate::manners::{Incoming, SameVersion};
use crate::offer::{Theirs, forbidden_in};
use crate::phone::client::{Client, Purpose};
use crate::phone::media::Media;
use crate::phone::{ALLOW, Phone, Reaction, contact, via};
use crate::sip::{Draft, Sip, address_of, uri_of};

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) local_tag: String,
    pub(crate) remote_tag: Option<String>,
    local: String,
    remote: String,
    target: String,
    routes: Vec<String>,
    pub(crate) cseq: u32,
    pub(crate) remote_cseq: Option<u32>,
    /// Whether the phone began the call, and so owns its Call-ID.
    caller: bool,
    pub(crate) stage: Stage,
    /// The ACK of the first 2xx was sent or came.
    pub(crate) acknowledged: bool,
    pub(crate) hang_up_at_ack: bool,
    /// An INVITE inside the call was accepted.
    pub(crate) reinvited: bool,
    pub(crate) media: Media,
    /// Where requests go when neither route nor target is an IP address.
    fallback: SocketAddr,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The own INVITE is not answered.
    Calling {
        branch: String,
        cancelled: bool,
    },
    /// Their INVITE is not answered; `early` once a 183 went out.
    Ringing {
        key: String,
        early: bool,
    },
    Standing,
    /// The own BYE is not answered.
    Ending,
}

impl Call {
    pub(crate) fn outgoing(
        desk: &mut Desk<'_>,
        user: &str,
        local_tag: String,
        to: &str,
        peer: SocketAddr,
    ) -> Self {
        let id = format!("{:016x}@{}", desk.random.next(), desk.config.ip);
        let local = format!("<sip:{user}@{}>", desk.config.domain);
        Self::new(desk, id, local_tag, (local, format!("<{to}>")), to.to_owned(), peer)
    }

    pub(crate) fn incoming(
        desk: &mut Desk<'_>,
        invite: &Sip,
        local_tag: String,
        from: SocketAddr,
    ) -> Option<Self> {
        let remote = format!("<{}>", uri_of(invite.get("from")?));
        let local = format!("<{}>", uri_of(invite.get("to")?));
        let target = invite.contact()?.to_owned();
        let id = invite.call_id().to_owned();
        let mut call = Self::new(desk, id, local_tag, (local, remote), target, from);
        call.caller = false;
        call.acknowledged = false;
        call.remote_tag = invite.tag("from").map(str::to_owned);
        call.remote_cseq = invite.cseq().map(|(number, _)| number);
        // RFC 3261 §12.1.1: the callee takes the Record-Routes as they stand.
        call.routes = invite.all("record-route").into_iter().map(str::to_owned).collect();
        call.stage = Stage::Ringing { key: invite.server_key(), early: false };
        Some(call)
    }

    fn new(
        desk: &mut Desk<'_>,
        id: String,
        local_tag: String,
        (local, remote): (String, String),
        target: String,
        fallback: SocketAddr,
    ) -> Self {
        let session = desk.random.below(1 << 31);
        Self {
            id,
            local_tag,
            remote_tag: None,
            local,
            remote,
            target,
            routes: Vec::new(),
            cseq: u32::try_from(desk.random.below(10_000)).unwrap_or(0),
            remote_cseq: None,
            caller: true,
            stage: Stage::Standing,
            acknowledged: true,
            hang_up_at_ack: false,
            reinvited: false,
            media: Media::new(desk.config, desk.phone, session),
            fallback,
        }
    }

    /// Begins a request of the dialog with the next CSeq.
    pub(crate) fn request(&mut self, desk: &Desk<'_>, method: &str, branch: &str) -> Draft {
        self.cseq += 1;
        let cseq = self.cseq;
        self.draft(desk, method, branch, cseq)
    }

    fn draft(&self, desk: &Desk<'_>, method: &str, branch: &str, cseq: u32) -> Draft {
        let mut to = self.remote.clone();
        if let Some(tag) = &self.remote_tag {
            to.push_str(&format!(";tag={tag}"));
        }
        let mut draft = Draft::request(method, &self.target)
            .header("Via", &via(desk, branch))
            .header("Max-Forwards", "70");
        for route in &self.routes {
            draft = draft.header("Route", route);
        }
        draft
            .header("From", &format!("{};tag={}", self.local, self.local_tag))
            .header("To", &to)
            .header("Call-ID", &self.id)
            .header("CSeq", &format!("{cseq} {method}"))
            .header("Contact", &contact(desk))
    }

    /// Returns where the next request of the dialog goes: a new call to the
    /// server, everything else to the first route or the other side's Contact.
    pub(crate) fn peer(&self) -> SocketAddr {
        if self.remote_tag.is_none() {
            return self.fallback;
        }
        let next = self.routes.first().map_or(self.target.as_str(), |route| uri_of(route));
        address_of(next).unwrap_or(self.fallback)
    }

    /// Whether RTP may run: the call stands, or has early media.
    pub(crate) fn has_media(&self) -> bool {
        match self.stage {
            Stage::Calling { .. } | Stage::Standing => true,
            Stage::Ringing { early, .. } => early,
            Stage::Ending => false,
        }
    }

    /// RFC 3261 §12.1.2: the caller's half of the dialog, from a 2xx.
    fn establish(&mut self, answer: &Sip) {
        self.remote_tag = answer.tag("to").map(str::to_owned);
        self.routes = answer.all("record-route").into_iter().rev().map(str::to_owned).collect();
        self.refresh(answer);
    }

    /// RFC 3261 §12.2: each INVITE and its 2xx refresh the target.
    pub(crate) fn refresh(&mut self, message: &Sip) {
        if let Some(contact) = message.contact() {
            contact.clone_into(&mut self.target);
        }
    }

    /// Takes in the description in an answer to the own offer.
    fn take_answer(&mut self, desk: &mut Desk<'_>, answer: &Sip, same_version: SameVersion) {
        match answer.description().and_then(Theirs::read) {
            Some(theirs) => {
                self.media.check(desk, &theirs);
                self.media.answered(theirs, same_version);
            }
            None => desk.fault(Fault::NoDescription),
        }
    }
}

impl Phone {
    /// Takes in an INVITE that begins a call.
    pub(crate) fn called(&mut self, desk: &mut Desk<'_>, sip: &Sip, key: &str) {
        if self.call.is_some() {
            return self.answer_invite(desk, key, 486, None);
        }
        let tag = self.server_tag(key);
        let from = self.server_source(key).unwrap_or_else(|| desk.config.sip_addr(self.id));
        let Some(mut call) = Call::incoming(desk, sip, tag, from) else {
            return self.answer_invite(desk, key, 400, None);
        };
        if let Some(theirs) = sip.description().and_then(Theirs::read) {
            call.media.check(desk, &theirs);
        }
        self.call = Some(call);
        desk.event(Event::Called);
        let incoming = self.manners.incoming.clone();
        let mut plan = |after: Duration, status| {
            let answer = Reaction::Answer { key: key.to_owned(), status, retry_after: None };
            self.react(desk.now + after, answer);
        };
        match incoming {
            Incoming::Answer { ring_after, answer_after } => {
                plan(
                    ring_after.unwrap_or(Duration::ZERO),
                    if ring_after.is_some() { 180 } else { 100 },
                );
                plan(answer_after, 200);
            }
            Incoming::EarlyMedia { progress_after, answer_after } => {
                plan(progress_after, 183);
                plan(answer_after, 200);
            }
            Incoming::Ring => plan(Duration::ZERO, 180),
            Incoming::Refuse { status, after } => plan(after, status),
            Incoming::Ignore => {}
        }
    }

    /// Answers the call that rings.
    pub(crate) fn answer_ringing(&mut self, desk: &mut Desk<'_>, status: u16) {
        if let Some(Call { stage: Stage::Ringing { key, .. }, .. }) = &self.call {
            let key = key.clone();
            self.answer_invite(desk, &key, status, None);
        }
    }

    /// Changes what the call wants and sends an INVITE inside it, as soon as
    /// no other is open.
    pub(crate) fn reinvite_as(&mut self, desk: &mut Desk<'_>, change: impl FnOnce(&mut Call)) {
        let Some(call) = &mut self.call else { return };
        if call.stage == Stage::Standing {
            change(call);
            self.retry_reinvite(desk);
        }
    }

    pub(crate) fn retry_reinvite(&mut self, desk: &mut Desk<'_>) {
        let stands = self
            .call
            .as_ref()
            .is_some_and(|call| call.stage == Stage::Standing && call.acknowledged);
        if self.call.is_none()
            || (stands && !self.reinvite_is_open() && !self.their_invite_is_open())
        {
            self.send_reinvite(desk);
        } else {
            self.react(desk.now + Duration::from_millis(20), Reaction::Retry);
        }
    }

    /// Sends an INVITE inside the call now, whatever is open.
    pub(crate) fn send_reinvite(&mut self, desk: &mut Desk<'_>) {
        let branch = self.new_branch(desk);
        let Some(call) = &mut self.call else { return };
        let offer = call.media.offer();
        let invite =
            call.request(desk, "INVITE", &branch).header("Allow", ALLOW).finish(Some(&offer));
        let (cseq, peer) = (call.cseq, call.peer());
        self.send_request(
            desk,
            Client::new("INVITE", branch, cseq, Purpose::Reinvite, invite, peer),
        );
    }

    /// Takes in a provisional answer to an INVITE of its own.
    pub(crate) fn invite_proceeds(
        &mut self,
        desk: &mut Desk<'_>,
        sip: &Sip,
        status: u16,
        purpose: Purpose,
    ) {
        let same_version = self.manners.same_version;
        let Some(call) = self.call.as_mut().filter(|_| purpose == Purpose::Call && 100 < status)
        else {
            return;
        };
        if matches!(call.stage, Stage::Calling { .. }) {
            if sip.description().is_some() {
                call.take_answer(desk, sip, same_version);
            }
            desk.event(Event::Ringing(status));
        }
    }

    /// Takes in the final answer to an INVITE of its own.
    pub(crate) fn invite_answered(
        &mut self,
        desk: &mut Desk<'_>,
        sip: &Sip,
        status: u16,
        purpose: Purpose,
        branch: &str,
    ) {
        let same_version = self.manners.same_version;
        let Some(call) = &mut self.call else { return };
        let ours = match &call.stage {
            Stage::Calling { branch: own, .. } => own == branch,
            Stage::Standing => purpose == Purpose::Reinvite,
            Stage::Ringing { .. } | Stage::Ending => false,
        };
        if status < 300 {
            if ours && purpose == Purpose::Call {
                call.establish(sip);
            } else {
                call.refresh(sip);
                if let Some(ip) = forbidden_in(&sip.body, desk.forbidden) {
                    desk.fault(Fault::Forbidden(ip));
                }
            }
            if ours {
                call.take_answer(desk, sip, same_version);
            } else if let Some(theirs) = sip.description().and_then(Theirs::read) {
                // The call ends here already.
                call.media.pass_over(&theirs);
            }
            self.acknowledge(desk, sip, branch);
        }
        match (ours, purpose) {
            (false, _) => {}
            (true, Purpose::Reinvite) => self.reinvite_answered(desk, sip, status),
            (true, _) => self.call_answered(desk, status),
        }
    }

    fn call_answered(&mut self, desk: &mut Desk<'_>, status: u16) {
        let Some(call) = &mut self.call else { return };
        let cancelled = matches!(call.stage, Stage::Calling { cancelled: true, .. });
        if 300 <= status {
            desk.event(Event::Refused(status));
            return self.end_call(desk, if cancelled { Ended::Here } else { Ended::There });
        }
        call.stage = Stage::Standing;
        desk.event(Event::Answered);
        // RFC 3261 §15: the CANCEL came too late.
        if cancelled {
            self.bye(desk);
        }
    }

    fn reinvite_answered(&mut self, desk: &mut Desk<'_>, sip: &Sip, status: u16) {
        if status < 300 {
            return desk.event(Event::ReinviteAccepted);
        }
        desk.event(Event::ReinviteRefused(status));
        let Some(call) = &mut self.call else { return };
        match (status, sip.retry_after()) {
            (491, _) => {
                // RFC 3261 §14.1, in units of 10 ms.
                let tens =
                    if call.caller { 210 + desk.random.below(191) } else { desk.random.below(201) };
                self.react(desk.now + Duration::from_millis(10 * tens), Reaction::Retry);
            }
            (481, _) => self.end_call(desk, Ended::Unknown),
            (408, _) => self.bye_and_end(desk, Ended::Unknown),
            (500 | 503, Some(seconds)) => {
                self.react(desk.now + Duration::from_secs(u64::from(seconds)), Reaction::Retry);
            }
            _ => call.media.give_up(),
        }
    }

    /// Sends the ACK of a 2xx and keeps it for copies of that.
    fn acknowledge(&mut self, desk: &mut Desk<'_>, sip: &Sip, branch: &str) {
        if !self.manners.acks {
            return;
        }
        let ack_branch = self.new_branch(desk);
        let Some(call) = &self.call else { return };
        let cseq = sip.cseq().map_or(0, |(number, _)| number);
        let ack = call.draft(desk, "ACK", &ack_branch, cseq).finish(None);
        let peer = call.peer();
        desk.send(desk.config.sip_socket(desk.phone), peer, &ack);
        self.keep_ack(branch, peer, ack);
    }

    /// Sends a BYE and forgets the call at once.
    pub(crate) fn bye_and_end(&mut self, desk: &mut Desk<'_>, ended: Ended) {
        self.bye(desk);
        self.end_call(desk, ended);
    }
}
