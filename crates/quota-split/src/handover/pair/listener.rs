//! The node of a pair that does not speak.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::message::{Denied, Granted, heard};
use super::{Denial, PLAIN, PairConfig, PairMessage, PairOutput, Told};
use crate::{Call, CallId, Document};

type Outputs = std::collections::VecDeque<PairOutput>;

/// Calls that wait for the speaker's answer.
#[derive(Clone, Debug)]
pub(super) struct Listener {
    answer: Duration,
    hold: Duration,
    pending: BTreeMap<CallId, Pending>,
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
        Self { answer: *answer, hold: timing.hold, pending: BTreeMap::new() }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant, outputs: &mut Outputs) {
        let late = |pending: &Pending| pending.until <= now;
        let late: Vec<CallId> =
            self.pending.iter().filter(|(_, it)| late(it)).map(|(id, _)| *id).collect();
        for id in late {
            self.refuse(id, outputs);
            // Whatever the answer will be, it comes too late.
            outputs.push_back(PairOutput::Partner(PairMessage::Release { call: id.0 }));
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.pending.values().map(|pending| pending.until).min()
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
            self.pending.insert(call.id, Pending { call, until: now + self.answer });
        }
    }

    pub(super) fn wait_longer(&mut self, now: Instant, id: CallId) {
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.until = now + self.hold + self.answer;
        }
    }

    pub(super) fn answer(
        &mut self,
        id: CallId,
        verdict: Result<Granted, Denied>,
        document: &Document,
        outputs: &mut Outputs,
    ) {
        if let Some(Pending { call, .. }) = self.pending.remove(&id) {
            let verdict = heard(document, call, verdict);
            outputs.push_back(PairOutput::Decided { call: id, verdict });
        }
    }

    pub(super) fn forget(&mut self, id: CallId) {
        self.pending.remove(&id);
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

    fn refuse(&mut self, id: CallId, outputs: &mut Outputs) {
        self.pending.remove(&id);
        outputs.push_back(PairOutput::Decided { call: id, verdict: Err(Denial::Unheard) });
    }
}
