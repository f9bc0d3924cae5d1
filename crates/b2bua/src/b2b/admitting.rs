//! New calls that wait for somebody's decision whether they may be.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use failover::record::Target;
use failover::{Admission, CallId, Charge, Slot};
use sip_core::transactions::ServerKey;
use sip_core::{Message, Name, Uri, Writer};

use super::B2b;
use crate::admission::{self, Elsewhere, Goes, Refused, Waiting};
use crate::call::{Call, Otherwise, Proposal};
use crate::config::Trunk;
use crate::core::Way;
use crate::io::Output;
use crate::{message, routing};

/// The INVITEs that wait. Nothing of them is kept elsewhere: nobody answered them, so their callers
/// repeat them.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: BTreeMap<CallId, Waiting>,
    keys: BTreeMap<ServerKey, CallId>,
    /// Until when each waits, in order; some wait no more.
    until: VecDeque<(Instant, CallId)>,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    fn insert(&mut self, until: Instant, waiting: Waiting) {
        self.keys.insert(waiting.key, waiting.call);
        self.until.push_back((until, waiting.call));
        self.waiting.insert(waiting.call, waiting);
    }

    fn take(&mut self, call: CallId) -> Option<Waiting> {
        let waiting = self.waiting.remove(&call)?;
        self.keys.remove(&waiting.key);
        while self.until.front().is_some_and(|(_, call)| !self.waiting.contains_key(call)) {
            self.until.pop_front();
        }
        Some(waiting)
    }

    fn due(&self, now: Instant) -> Option<CallId> {
        self.until.front().filter(|(at, _)| *at <= now).map(|(_, call)| *call)
    }

    /// Returns when the first has waited for too long.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.until.front().map(|(at, _)| *at)
    }
}

impl B2b {
    /// Asks whether a call may be.
    pub(super) fn ask(
        &mut self,
        call: CallId,
        key: ServerKey,
        way: Way,
        (invite, uri): (&Message, &Uri<'_>),
        proposal: Proposal,
    ) {
        let goes = match proposal.targets.first() {
            None => Goes::Nowhere,
            Some(target) if target.registered => Goes::Phone,
            Some(_) => Goes::Trunk,
        };
        let mut ask = admission::ask(invite, way, uri, proposal.registered, goes);
        ask.draining = self.core.draining;
        let waiting = Waiting { key, way, invite: invite.clone(), call, proposal };
        self.admissions.insert(self.core.now + self.core.config.admission, waiting);
        self.core.outputs.push_back(Output::Admit { call, ask: Box::new(ask) });
    }

    /// Takes in that a call may be.
    pub(super) fn admitted(&mut self, call: CallId, charge: Charge, elsewhere: Option<Elsewhere>) {
        let Some(mut waiting) = self.admissions.take(call) else {
            if !self.calls.contains_key(&call) {
                self.core.outputs.push_back(Output::Released { call });
            }
            return;
        };
        let admission = Admission { charge: Some(charge), shared: Bytes::new() };
        // A phone may be gone meanwhile; a trunk is written down.
        if waiting.proposal.targets.iter().any(|target| target.registered) {
            let uri = waiting.uri();
            let targets = routing::targets(&self.core, &self.registrar, &uri, waiting.way.0);
            waiting.proposal.targets = routing::fitting(&uri, targets);
        }
        let otherwise = elsewhere.map(|elsewhere| Otherwise {
            targets: self.trunks(&waiting, &elsewhere.targets),
            shared: elsewhere.shared.value(),
        });
        self.begin_waiting(waiting, admission, otherwise);
    }

    /// Takes in that a call may not be, or not here.
    pub(super) fn not_admitted(&mut self, call: CallId, refused: &Refused) {
        let Some(mut waiting) = self.admissions.take(call) else { return };
        let Some(Elsewhere { targets, shared }) = &refused.elsewhere else {
            let tag = self.core.names.tag(waiting.way.1);
            let (status, reason) = (refused.status, &refused.reason);
            return self.refuse(waiting.key, &waiting.invite, &tag, status, reason);
        };
        waiting.proposal.targets = self.trunks(&waiting, targets);
        let admission = Admission { charge: None, shared: shared.value() };
        self.begin_waiting(waiting, admission, None);
    }

    fn trunks(&self, waiting: &Waiting, targets: &[SocketAddr]) -> Vec<Target> {
        let uri = waiting.uri();
        let targets = routing::trunks(&self.core, &uri, udp(targets), waiting.way.0);
        routing::fitting(&uri, targets)
    }

    /// Begins a call that waited. What refuses it now lets it count no more.
    fn begin_waiting(
        &mut self,
        waiting: Waiting,
        admission: Admission,
        otherwise: Option<Otherwise>,
    ) {
        let Waiting { key, way, invite, call, proposal } = waiting;
        self.core.slot = way.1;
        let is_charged = admission.charge.is_some();
        let core = &mut self.core;
        let begun = Call::invited(core, (call, admission), key, way, &invite, proposal);
        match begun {
            Ok(mut begun) => {
                begun.otherwise = otherwise;
                self.insert_call(begun);
            }
            Err(status) => {
                if is_charged {
                    self.core.outputs.push_back(Output::Released { call });
                }
                let tag = self.core.names.tag(way.1);
                self.refuse(key, &invite, &tag, status, &Bytes::new());
            }
        }
    }

    /// Answers a CANCEL of a call that waits, and its INVITE; returns whether there was one.
    pub(super) fn cancel_waiting(
        &mut self,
        key: ServerKey,
        cancel: &Message,
        invite: ServerKey,
    ) -> bool {
        let Some(call) = self.admissions.keys.get(&invite).copied() else { return false };
        let Some(waiting) = self.admissions.take(call) else { return false };
        // RFC 3261 §9.2 wants the same tag in both answers.
        let tag = self.core.names.tag(waiting.way.1);
        let answer = Writer::answer(cancel, 200, message::reason(200), Some(tag.as_bytes()));
        self.core.respond(key, &answer.finish());
        self.core.outputs.push_back(Output::Released { call });
        self.refuse(waiting.key, &waiting.invite, &tag, 487, &Bytes::new());
        true
    }

    /// Refuses the calls that waited for too long.
    pub(super) fn end_waiting(&mut self, now: Instant) {
        while let Some(waiting) =
            self.admissions.due(now).and_then(|call| self.admissions.take(call))
        {
            self.core.outputs.push_back(Output::Released { call: waiting.call });
            let reason =
                Bytes::from_static(b"SIP;cause=480;text=\"nobody decided about the call\"");
            let tag = self.core.names.tag(waiting.way.1);
            self.refuse(waiting.key, &waiting.invite, &tag, 480, &reason);
        }
    }

    /// Forgets the calls of slots that are another's: its owner gets the next copy of each INVITE.
    pub(super) fn drop_waiting(&mut self, slots: &[Slot]) {
        let waiting = self.admissions.waiting.values();
        let lost = waiting.filter(|waiting| slots.contains(&waiting.way.1));
        for call in lost.map(|waiting| waiting.call).collect::<Vec<_>>() {
            self.admissions.take(call);
            self.core.outputs.push_back(Output::Released { call });
        }
    }

    fn refuse(&mut self, key: ServerKey, invite: &Message, tag: &str, status: u16, reason: &Bytes) {
        self.core.counters.not_admitted += 1;
        let tag = Some(tag.as_bytes());
        let mut answer = Writer::answer(invite, status, message::reason(status), tag);
        if !reason.is_empty() {
            answer = answer.header(Name::REASON, reason);
        }
        if status == 503 {
            answer = answer.number(Name::RETRY_AFTER, self.core.random_seconds());
        }
        self.core.respond(key, &answer.finish());
    }
}

/// Segments take each other's calls by datagrams.
fn udp(targets: &[SocketAddr]) -> impl Iterator<Item = Trunk> {
    targets.iter().copied().map(Trunk::from)
}
