//! The phone's own requests: resent until answered (RFC 3261 §17.1).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::fleet::Desk;
use crate::journal::{Ended, Event};
use crate::phone::call::Stage;
use crate::phone::{Phone, via};
use crate::sip::{Draft, Sip};

/// One request on its way.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) method: &'static str,
    pub(crate) branch: String,
    pub(crate) cseq: u32,
    pub(crate) purpose: Purpose,
    bytes: Bytes,
    to: SocketAddr,
    state: State,
    /// A CANCEL is to follow as soon as a provisional answer has come
    /// (RFC 3261 §9.1).
    cancel: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Register,
    Call,
    Reinvite,
    Bye,
    Cancel,
    Options,
}

#[derive(Debug)]
enum State {
    /// No answer yet: resent.
    Sent { resend_at: Instant, interval: Duration, expires_at: Instant },
    /// An INVITE with a provisional answer. A deadline stands once it is
    /// cancelled (RFC 3261 §9.1).
    Proceeding { expires_at: Option<Instant> },
    /// An INVITE with its final answer: copies of it get the same ACK.
    Acknowledged { ack: Option<(SocketAddr, Bytes)>, until: Instant },
}

impl Client {
    pub(crate) fn new(
        method: &'static str,
        branch: String,
        cseq: u32,
        purpose: Purpose,
        bytes: Bytes,
        to: SocketAddr,
    ) -> Self {
        let state = State::Proceeding { expires_at: None };
        Self { method, branch, cseq, purpose, bytes, to, state, cancel: false }
    }

    /// Sends the request for the first time.
    pub(crate) fn begin(&mut self, desk: &mut Desk<'_>) {
        let interval = desk.config.t1;
        let expires_at = desk.now + 64 * interval;
        // A connection delivers by itself: RFC 3261 §17.1.1.2.
        let is_reliable = desk.config.has_streams(desk.phone);
        let resend_at = if is_reliable { expires_at } else { desk.now + interval };
        self.state = State::Sent { resend_at, interval, expires_at };
        desk.send(desk.config.sip_socket(desk.phone), self.to, &self.bytes);
    }

    pub(crate) fn due_at(&self) -> Option<Instant> {
        match self.state {
            State::Sent { resend_at, expires_at, .. } => Some(resend_at.min(expires_at)),
            State::Proceeding { expires_at } => expires_at,
            State::Acknowledged { until, .. } => Some(until),
        }
    }

    /// Whether the request has no final answer.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.state, State::Acknowledged { .. })
    }

    fn resend(&mut self, desk: &mut Desk<'_>) {
        if let State::Sent { resend_at, interval, expires_at } = &mut self.state
            && *resend_at <= desk.now
            && *resend_at < *expires_at
        {
            // RFC 3261 §17.1.1.2 and §17.1.2.2: doubled each time, and for
            // other methods than INVITE up to T2.
            *interval *= 2;
            if self.method != "INVITE" {
                *interval = (*interval).min(desk.config.t2);
            }
            *resend_at = desk.now + *interval;
            desk.send(desk.config.sip_socket(desk.phone), self.to, &self.bytes);
        }
    }
}

impl Phone {
    /// Takes in an answer.
    pub(crate) fn answered(&mut self, desk: &mut Desk<'_>, sip: &Sip, status: u16) {
        let Some((cseq, method)) = sip.cseq() else { return };
        let branch = sip.branch().unwrap_or_default();
        let found = self.clients.iter().position(|client| {
            client.branch == branch && client.method == method && client.cseq == cseq
        });
        let Some(found) = found else { return };
        let client = &mut self.clients[found];
        if let State::Acknowledged { ack, .. } = &client.state {
            if 200 <= status
                && let Some((to, ack)) = ack
            {
                desk.send(desk.config.sip_socket(desk.phone), *to, ack);
            }
            return;
        }
        let purpose = client.purpose;
        if status < 200 {
            if method == "INVITE" {
                if matches!(client.state, State::Sent { .. }) {
                    client.state = State::Proceeding { expires_at: None };
                }
                let (cancel, branch) = (client.cancel, client.branch.clone());
                if cancel {
                    self.cancel_client(desk, &branch);
                }
                self.invite_proceeds(desk, sip, status, purpose);
            }
            return;
        }
        if method == "INVITE" {
            let to = client.to;
            let until = desk.now + 64 * desk.config.t1;
            // Everything but a 2xx is acknowledged inside the transaction.
            let ack = (300 <= status)
                .then(|| (to, ack_of_refusal(desk, sip, &client.branch, &client.bytes)));
            if let Some((to, ack)) = &ack {
                desk.send(desk.config.sip_socket(desk.phone), *to, ack);
            }
            client.state = State::Acknowledged { ack, until };
            let branch = client.branch.clone();
            self.invite_answered(desk, sip, status, purpose, &branch);
        } else {
            self.clients.remove(found);
            self.request_answered(desk, sip, status, purpose);
        }
    }

    /// Lets copies of the 2xx to this INVITE get `ack` again.
    pub(crate) fn keep_ack(&mut self, branch: &str, to: SocketAddr, bytes: Bytes) {
        let client = self
            .clients
            .iter_mut()
            .find(|client| client.method == "INVITE" && client.branch == branch);
        if let Some(Client { state: State::Acknowledged { ack, .. }, .. }) = client {
            *ack = Some((to, bytes));
        }
    }

    /// Cancels an INVITE as soon as that is allowed.
    pub(crate) fn cancel_client(&mut self, desk: &mut Desk<'_>, branch: &str) {
        let client = self.clients.iter_mut().find(|client| {
            client.method == "INVITE" && client.branch == branch && client.is_open()
        });
        let Some(client) = client else { return };
        client.cancel = true;
        let State::Proceeding { expires_at: None } = client.state else { return };
        client.state = State::Proceeding { expires_at: Some(desk.now + 64 * desk.config.t1) };
        let cancel = cancel_of(desk, &client.bytes, &client.branch);
        let (cseq, to, branch) = (client.cseq, client.to, client.branch.clone());
        self.send_request(desk, Client::new("CANCEL", branch, cseq, Purpose::Cancel, cancel, to));
    }

    /// Whether an INVITE of its own inside the call has no final answer.
    pub(crate) fn reinvite_is_open(&self) -> bool {
        self.clients.iter().any(|client| client.purpose == Purpose::Reinvite && client.is_open())
    }

    pub(crate) fn clients_due(&mut self, desk: &mut Desk<'_>) {
        let mut expired = Vec::new();
        self.clients.retain_mut(|client| {
            client.resend(desk);
            let over_at = match client.state {
                State::Sent { expires_at, .. } => Some(expires_at),
                State::Proceeding { expires_at } => expires_at,
                State::Acknowledged { until, .. } => Some(until),
            };
            let over = over_at.is_some_and(|at| at <= desk.now);
            if over && client.is_open() {
                expired.push(client.purpose);
            }
            !over
        });
        for purpose in expired {
            self.timed_out(desk, purpose);
        }
    }

    fn timed_out(&mut self, desk: &mut Desk<'_>, purpose: Purpose) {
        desk.event(Event::TimedOut);
        match purpose {
            Purpose::Register => desk.event(Event::NotRegistered(408)),
            Purpose::Call => {
                if matches!(self.call, Some(ref call) if matches!(call.stage, Stage::Calling { .. }))
                {
                    desk.event(Event::Refused(408));
                    self.end_call(desk, Ended::Unknown);
                }
            }
            // RFC 3261 §12.2.1.2: as if a 408 had come.
            Purpose::Reinvite => self.bye_and_end(desk, Ended::Unknown),
            Purpose::Bye => self.end_call(desk, Ended::Here),
            Purpose::Cancel | Purpose::Options => {}
        }
    }

    fn request_answered(&mut self, desk: &mut Desk<'_>, sip: &Sip, status: u16, purpose: Purpose) {
        match purpose {
            Purpose::Register => self.registered(desk, sip, status),
            Purpose::Bye => self.end_call(desk, Ended::Here),
            Purpose::Options => desk.event(Event::Options(status)),
            Purpose::Call | Purpose::Reinvite | Purpose::Cancel => {}
        }
    }
}

/// RFC 3261 §17.1.1.3: the INVITE's own branch, and the To of the answer.
fn ack_of_refusal(desk: &Desk<'_>, answer: &Sip, branch: &str, invite: &Bytes) -> Bytes {
    derived(desk, "ACK", invite, branch, answer.get("to"))
}

/// RFC 3261 §9.1: the INVITE's branch and To.
fn cancel_of(desk: &Desk<'_>, invite: &Bytes, branch: &str) -> Bytes {
    derived(desk, "CANCEL", invite, branch, None)
}

/// Writes a request with an INVITE's URI, ids and Routes, and its To or another.
fn derived(desk: &Desk<'_>, method: &str, invite: &Bytes, branch: &str, to: Option<&str>) -> Bytes {
    let invite = Sip::read(invite).expect("the phone wrote it");
    let mut draft = Draft::request(method, invite.request_uri())
        .header("Via", &via(desk, branch))
        .header("Max-Forwards", "70");
    for route in invite.all("route") {
        draft = draft.header("Route", route);
    }
    let cseq = invite.cseq().map_or(0, |(number, _)| number);
    draft
        .header("From", invite.get("from").unwrap_or_default())
        .header("To", to.or_else(|| invite.get("to")).unwrap_or_default())
        .header("Call-ID", invite.call_id())
        .header("CSeq", &format!("{cseq} {method}"))
        .finish(None)
}
