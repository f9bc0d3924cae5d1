//! What the phone answers: answers are kept and sent again (RFC 3261 §17.2).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use driver::SocketId;

use crate::fleet::Desk;
use crate::journal::{Ended, Event, Fault};
use crate::manners::AnswersFrom;
use crate::offer::{Theirs, forbidden_in};
use crate::phone::call::Stage;
use crate::phone::{ALLOW, Phone, contact};
use crate::sip::{Draft, Sip};

/// One request that came.
#[derive(Debug)]
pub(crate) struct Server {
    key: String,
    request: Sip,
    socket: SocketId,
    /// The source of the newest copy.
    from: SocketAddr,
    local_tag: String,
    /// The last answer and its status.
    last: Option<(u16, Bytes)>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// No final answer yet.
    Open,
    /// An INVITE whose final answer is resent until the ACK (timers G and H,
    /// and §13.3.1.4 for a 2xx).
    Unacknowledged { resend_at: Instant, interval: Duration, until: Instant },
    /// Only copies of the request, or of the ACK, can come.
    Done { until: Instant },
}

impl Server {
    pub(crate) fn due_at(&self) -> Option<Instant> {
        match self.state {
            State::Open => None,
            State::Unacknowledged { resend_at, until, .. } => Some(resend_at.min(until)),
            State::Done { until } => Some(until),
        }
    }

    fn is_invite(&self) -> bool {
        self.request.method() == "INVITE"
    }

    fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    fn status(&self) -> u16 {
        self.last.as_ref().map_or(0, |(status, _)| *status)
    }
}

impl Phone {
    /// Takes in a request.
    pub(crate) fn requested(
        &mut self,
        desk: &mut Desk<'_>,
        sip: &Sip,
        socket: SocketId,
        from: SocketAddr,
    ) {
        if sip.method() == "ACK" {
            return self.acknowledged(desk, sip);
        }
        let key = sip.server_key();
        let known = self
            .servers
            .iter_mut()
            .find(|server| server.key == key && server.request.method() == sip.method());
        if let Some(server) = known {
            // The answer goes to where the newest copy came from.
            (server.socket, server.from) = (socket, from);
            if let Some((_, bytes)) = server.last.clone() {
                self.send_answer(desk, socket, from, &bytes);
            }
            return;
        }
        let in_call = sip.tag("to").is_some();
        let local_tag = match sip.tag("to") {
            Some(tag) => tag.to_owned(),
            None => self.new_tag(desk),
        };
        let state = State::Open;
        let request = sip.clone();
        self.servers.push(Server {
            key: key.clone(),
            request,
            socket,
            from,
            local_tag,
            last: None,
            state,
        });
        match sip.method() {
            "CANCEL" => self.cancelled(desk, &key),
            _ if in_call => self.requested_in_call(desk, sip, &key),
            "INVITE" => self.called(desk, sip, &key),
            "OPTIONS" | "INFO" | "MESSAGE" | "NOTIFY" => self.answer(desk, &key, sip.method(), 200),
            _ => self.answer(desk, &key, sip.method(), 501),
        }
    }

    /// Answers anything but an INVITE.
    pub(crate) fn answer(&mut self, desk: &mut Desk<'_>, key: &str, method: &str, status: u16) {
        let found = self.servers.iter_mut().find(|server| {
            server.key == key && server.request.method() == method && server.is_open()
        });
        let Some(server) = found else { return };
        let bytes = Draft::answer(&server.request, status, &server.local_tag)
            .header("Allow", ALLOW)
            .finish(None);
        server.last = Some((status, bytes.clone()));
        server.state = State::Done { until: desk.now + 64 * desk.config.t1 };
        let (socket, from) = (server.socket, server.from);
        self.send_answer(desk, socket, from, &bytes);
    }

    /// Drops a request without an answer; its copies too are not answered.
    pub(crate) fn keep_silent(&mut self, desk: &Desk<'_>, key: &str, method: &str) {
        let found = self
            .servers
            .iter_mut()
            .find(|server| server.key == key && server.request.method() == method);
        if let Some(server) = found {
            server.state = State::Done { until: desk.now + 64 * desk.config.t1 };
        }
    }

    /// Answers an INVITE; does nothing if it has its final answer.
    pub(crate) fn answer_invite(
        &mut self,
        desk: &mut Desk<'_>,
        key: &str,
        status: u16,
        retry_after: Option<u32>,
    ) {
        let Some(index) = self.open_invite(key) else { return };
        let in_call = self.servers[index].request.tag("to").is_some();
        let same_version = self.manners.same_version;
        let mut status = status;
        let mut description = None;
        if status == 183 || status == 200 {
            let theirs = self.servers[index].request.description().map(Theirs::read);
            let Some(call) = &mut self.call else { return };
            description = match theirs {
                Some(Some(theirs)) => call.media.answer(theirs, same_version),
                Some(None) => None,
                // RFC 3261 §13.2.1: without an offer, the 2xx makes one.
                None => Some(call.media.offer()),
            };
            if description.is_none() {
                status = 488;
            }
        }
        let server = &mut self.servers[index];
        let mut draft = Draft::answer(&server.request, status, &server.local_tag);
        if (101..300).contains(&status) {
            draft = draft.header("Contact", &contact(desk)).header("Allow", ALLOW);
        }
        if let Some(seconds) = retry_after {
            draft = draft.header("Retry-After", &seconds.to_string());
        }
        let bytes = draft.finish(description.as_deref());
        server.last = Some((status, bytes.clone()));
        if 200 <= status {
            let interval = desk.config.t1;
            let (resend_at, until) = (desk.now + interval, desk.now + 64 * interval);
            server.state = State::Unacknowledged { resend_at, interval, until };
        }
        let (socket, from, request) = (server.socket, server.from, server.request.clone());
        self.send_answer(desk, socket, from, &bytes);
        self.note_answer(desk, &request, key, in_call, status);
    }

    /// Whether an INVITE that came is without its final answer, or without the
    /// ACK of a 2xx.
    pub(crate) fn their_invite_is_open(&self) -> bool {
        self.servers.iter().any(|server| {
            server.is_invite()
                && match server.state {
                    State::Open => true,
                    State::Unacknowledged { .. } => server.status() < 300,
                    State::Done { .. } => false,
                }
        })
    }

    /// Whether another INVITE than this one is without its final answer, and
    /// whether one is without the ACK of its 2xx.
    pub(crate) fn other_invites(&self, key: &str) -> (bool, bool) {
        let mut invites = (false, false);
        for server in self.servers.iter().filter(|server| server.is_invite() && server.key != key) {
            match server.state {
                State::Open => invites.0 = true,
                State::Unacknowledged { .. } => invites.1 |= server.status() < 300,
                State::Done { .. } => {}
            }
        }
        invites
    }

    /// Ends every INVITE that has no final answer with a 487.
    pub(crate) fn refuse_open_invites(&mut self, desk: &mut Desk<'_>) {
        let keys: Vec<String> = self
            .servers
            .iter()
            .filter(|server| server.is_invite() && server.is_open())
            .map(|server| server.key.clone())
            .collect();
        for key in keys {
            self.answer_invite(desk, &key, 487, None);
        }
    }

    pub(crate) fn server_tag(&self, key: &str) -> String {
        self.open_invite(key)
            .map_or_else(String::new, |index| self.servers[index].local_tag.clone())
    }

    pub(crate) fn server_source(&self, key: &str) -> Option<SocketAddr> {
        self.open_invite(key).map(|index| self.servers[index].from)
    }

    pub(crate) fn servers_due(&mut self, desk: &mut Desk<'_>) {
        let mut unacknowledged = false;
        let mut resent = Vec::new();
        self.servers.retain_mut(|server| match &mut server.state {
            State::Open => true,
            State::Done { until } => desk.now < *until,
            State::Unacknowledged { until, .. } if *until <= desk.now => {
                unacknowledged |= server.status() < 300;
                false
            }
            State::Unacknowledged { resend_at, interval, until } => {
                if *resend_at <= desk.now
                    && 300 <= server.last.as_ref().map_or(0, |last| last.0)
                    && desk.config.has_streams(desk.phone)
                {
                    // A connection delivers a refusal by itself: RFC 3261 §17.2.1.
                    *resend_at = *until;
                } else if *resend_at <= desk.now {
                    *interval = (*interval * 2).min(desk.config.t2);
                    *resend_at = desk.now + *interval;
                    resent.extend(
                        server.last.clone().map(|(_, bytes)| (server.socket, server.from, bytes)),
                    );
                }
                true
            }
        });
        for (socket, from, bytes) in resent {
            self.send_answer(desk, socket, from, &bytes);
        }
        // RFC 3261 §13.3.1.4: a call whose 2xx is never acknowledged ends.
        if unacknowledged && self.call.is_some() {
            self.bye_and_end(desk, Ended::Unacknowledged);
        }
    }

    /// What a sent answer changes at the phone.
    fn note_answer(
        &mut self,
        desk: &mut Desk<'_>,
        request: &Sip,
        key: &str,
        in_call: bool,
        status: u16,
    ) {
        let Some(call) = &mut self.call else { return };
        if in_call {
            if status == 200 {
                call.refresh(request);
                call.reinvited = true;
            } else if status == 481 {
                // A phone that says so has no call any more.
                self.end_call(desk, Ended::Unknown);
            }
            return;
        }
        // A second call that is refused as busy leaves the first alone.
        let Stage::Ringing { key: own, early } = &mut call.stage else { return };
        if own != key {
            return;
        }
        match status {
            183 => *early = true,
            200..300 => call.stage = Stage::Standing,
            300.. => self.end_call(desk, if status == 487 { Ended::There } else { Ended::Refused }),
            _ => {}
        }
    }

    fn acknowledged(&mut self, desk: &mut Desk<'_>, sip: &Sip) {
        let cseq = sip.cseq().map_or(0, |(number, _)| number);
        let ours = |server: &&mut Server| {
            server.is_invite()
                && server.request.call_id() == sip.call_id()
                && server.request.cseq().map(|(number, _)| number) == Some(cseq)
                && Some(server.local_tag.as_str()) == sip.tag("to")
                && server.request.tag("from") == sip.tag("from")
                && 200 <= server.status()
        };
        let Some(server) = self.servers.iter_mut().find(ours) else {
            // An ACK that is resent for a call long over is no fault.
            if self.call.as_ref().is_some_and(|call| call.id == sip.call_id()) {
                desk.fault(Fault::StrangeAck { cseq });
            }
            return;
        };
        if !matches!(server.state, State::Unacknowledged { .. }) {
            return;
        }
        server.state = State::Done { until: desk.now + 64 * desk.config.t1 };
        if 300 <= server.status() {
            return;
        }
        let offered = server.request.description().is_none();
        let in_call = server.request.tag("to").is_some();
        let same_version = self.manners.same_version;
        let Some(call) = self.call.as_mut().filter(|call| call.id == sip.call_id()) else { return };
        if offered {
            match sip.description().and_then(Theirs::read) {
                Some(theirs) => {
                    call.media.check(desk, &theirs);
                    call.media.answered(theirs, same_version);
                }
                None => desk.fault(Fault::NoDescription),
            }
            if in_call && let Some(ip) = forbidden_in(&sip.body, desk.forbidden) {
                desk.fault(Fault::Forbidden(ip));
            }
        }
        desk.event(if in_call { Event::Reinvited } else { Event::Answered });
        call.acknowledged = true;
        if call.hang_up_at_ack {
            self.bye(desk);
        }
    }

    /// RFC 3261 §9.2.
    fn cancelled(&mut self, desk: &mut Desk<'_>, key: &str) {
        let known = self.servers.iter().any(|server| server.is_invite() && server.key == key);
        self.answer(desk, key, "CANCEL", if known { 200 } else { 481 });
        self.answer_invite(desk, key, 487, None);
    }

    fn open_invite(&self, key: &str) -> Option<usize> {
        self.servers
            .iter()
            .position(|server| server.key == key && server.is_invite() && server.is_open())
    }

    fn send_answer(&self, desk: &mut Desk<'_>, socket: SocketId, to: SocketAddr, bytes: &Bytes) {
        let socket = match self.manners.answers_from {
            AnswersFrom::OwnSocket => socket,
            AnswersFrom::OtherSocket => desk.config.other_sip_socket(),
        };
        desk.send(socket, to, bytes);
    }
}
