//! The node of a pair that does not speak.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::message::{Denied, Granted, heard};
use super::{Denial, PLAIN, PairConfig, PairMessage, PairOutput, Told};
use crate::{Call, CallId, Document, Tree};

type Outputs = std::collections::VecDeque<PairOutput>;

/// Calls that wait for the speaker's answer.
#[derive(Clone, Debug)]
pub(super) struct Listener {
    answer: Duration,
    hold: Duration,
    pending: BTreeMap<CallId, Pending>,
    /// When each of them has waited long enough.
    due: BTreeSet<(Instant, CallId)>,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    call: Call,
    until: Instant,
}

/// Calls that wait at a time; the next is refused.
const PENDING_MAX: usize = 4096;

impl Listener {
    pub(super) fn new(config: &PairConfig) -> Self {
        let PairConfig { answer, timing, .. } = config;
        let (pending, due) = (BTreeMap::new(), BTreeSet::new());
        Self { answer: *answer, hold: timing.hold, pending, due }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant, outputs: &mut Outputs) {
        while let Some(&(_, id)) = self.due.first().filter(|(until, _)| *until <= now) {
            self.refuse(id, outputs);
            // Whatever the answer will be, it comes too late.
            outputs.push_back(PairOutput::Partner(PairMessage::Release { call: id.0 }));
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.due.first().map(|(until, _)| *until)
    }

    pub(super) fn request(
        &mut self,
        now: Instant,
        call: Call,
        exempt: bool,
        document: &Document,
        outputs: &mut Outputs,
    ) {
        if PENDING_MAX <= self.pending.len() && !exempt {
            return self.refuse(call.id, outputs);
        }
        let ask = PairMessage::Ask { call: Told::new(document, call), exempt };
        outputs.push_back(PairOutput::Partner(ask));
        if exempt {
            outputs.push_back(PairOutput::Decided { call: call.id, verdict: Ok(PLAIN) });
        } else {
            self.wait(call, now + self.answer);
        }
    }

    pub(super) fn wait_longer(&mut self, now: Instant, id: CallId) {
        if let Some(Pending { call, .. }) = self.take(id) {
            self.wait(call, now + self.hold + self.answer);
        }
    }

    /// Numbers what waits as the new document does. What that knows nothing of is refused.
    pub(super) fn set_document(&mut self, before: &Tree, after: &Tree, outputs: &mut Outputs) {
        let mut gone = Vec::new();
        for (id, pending) in &mut self.pending {
            match pending.call.moved(before, after) {
                Some(call) => pending.call = call,
                None => gone.push(*id),
            }
        }
        for call in gone {
            self.take(call);
            outputs.push_back(PairOutput::Decided { call, verdict: Err(Denial::Unknown) });
            outputs.push_back(PairOutput::Partner(PairMessage::Release { call: call.0 }));
        }
    }

    pub(super) fn answer(
        &mut self,
        id: CallId,
        verdict: Result<Granted, Denied>,
        document: &Document,
        outputs: &mut Outputs,
    ) {
        if let Some(Pending { call, .. }) = self.take(id) {
            let verdict = heard(document, call, verdict);
            outputs.push_back(PairOutput::Decided { call: id, verdict });
        }
    }

    pub(super) fn forget(&mut self, id: CallId) {
        self.take(id);
    }

    /// Returns the calls that wait for an answer.
    pub(super) fn pending(&self) -> impl Iterator<Item = Call> {
        self.pending.values().map(|pending| pending.call)
    }

    /// The speaker cannot be reached: what waits for it waits in vain.
    pub(super) fn unlink(&mut self, outputs: &mut Outputs) {
        while let Some((&id, _)) = self.pending.first_key_value() {
            self.refuse(id, outputs);
        }
    }

    fn wait(&mut self, call: Call, until: Instant) {
        self.take(call.id);
        self.pending.insert(call.id, Pending { call, until });
        self.due.insert((until, call.id));
    }

    fn take(&mut self, id: CallId) -> Option<Pending> {
        let pending = self.pending.remove(&id)?;
        self.due.remove(&(pending.until, id));
        Some(pending)
    }

    fn refuse(&mut self, id: CallId, outputs: &mut Outputs) {
        self.take(id);
        outputs.push_back(PairOutput::Decided { call: id, verdict: Err(Denial::Unheard) });
    }
}
