//! The node of a segment that counts its calls.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::message::told;
use super::{Denial, PLAIN, PairConfig, PairMessage, PairOutput, Told};
use crate::handover::{
    Bases, Epoch, Member, MemberInput, MemberOutput, MemberState, News, ToCoordinator, ToMember,
    Verdict,
};
use crate::{Admission, Call, CallId, Document, Tree};

use leaving::Leaving;

mod leaving;

type Outputs = VecDeque<PairOutput>;

/// A member, and what its partner knows of it.
#[derive(Clone, Debug)]
pub(super) struct Speaker {
    config: PairConfig,
    member: Member,
    /// Set until it knows what lives: the state to go on with, and who asked meanwhile.
    counting: Option<Counting>,
    /// The partner's calls that wait for a borrowed unit.
    held: BTreeSet<CallId>,
    /// The partner's calls, while it lists them, those that still wait for an answer apart, and
    /// whether the list is whole.
    list: BTreeMap<CallId, Call>,
    pending: BTreeMap<CallId, Call>,
    listed: bool,
    /// Whether it asked for that list: else the partner has just ceased to speak, or was not linked.
    asked: bool,
    audit_at: Instant,
    /// Until then calls of a partner that is gone count, of which only copies are known.
    copies_until: Instant,
    serial: u64,
    /// The number of the state that the partner holds; zero for none.
    stored: u64,
    /// The number of the last state that was sent whole.
    whole: u64,
    /// By which weights majorities are told, as the partner last heard on this connection.
    told: Option<Bases>,
    /// The partner seems to read no changes, as releases before them: it gets whole states on this
    /// connection.
    plain: bool,
    /// Since when the partner lacks a state that something waits for.
    lacking_since: Option<Instant>,
    /// Whether nothing waits for the partner.
    alone: bool,
    /// What waits until the partner holds the state of a number.
    waiting: VecDeque<(u64, Epoch, ToCoordinator)>,
    /// When the partner is next told that its state is the last; set while linked.
    beat_at: Option<Instant>,
    greets: bool,
    /// While it has handed its part over, and nobody has it yet: it lets nothing in.
    leaving: Option<Leaving>,
    /// Not before then it hands its part over again.
    leave_at: Option<Instant>,
    /// Whether it ever handed its part over: the partner may take that up much later.
    offered: bool,
}

#[derive(Clone, Debug)]
struct Counting {
    state: Option<MemberState>,
    asks: Vec<(Call, bool, bool)>,
    /// Until when it waits for the list of a partner that handed its part over.
    list_until: Option<Instant>,
}

/// It compares its counters with what lives this often.
const AUDIT: Duration = Duration::from_secs(60);

/// Questions that wait until this node knows what lives, or hears who goes on in its place. Until it knows what lives
/// own ones have as much room again: a partner takes none of it.
pub(super) const ASKS_MAX: usize = 4096;

/// Calls that the partner has at the most, however many it tells of.
const CALLS_MAX: usize = 1 << 20;

/// Messages that wait for the partner. A coordinator repeats what is not answered.
const WAITING_MAX: usize = 1024;

impl Speaker {
    pub(super) fn new(
        now: Instant,
        config: PairConfig,
        member: Member,
        state: Option<MemberState>,
        list_until: Option<Instant>,
    ) -> Self {
        Self {
            config,
            member,
            counting: Some(Counting { state, asks: Vec::new(), list_until }),
            held: BTreeSet::new(),
            list: BTreeMap::new(),
            pending: BTreeMap::new(),
            listed: false,
            asked: false,
            audit_at: now + AUDIT,
            copies_until: now + AUDIT,
            serial: 0,
            stored: 0,
            whole: 0,
            told: None,
            plain: false,
            lacking_since: None,
            alone: false,
            waiting: VecDeque::new(),
            beat_at: None,
            greets: false,
            leaving: None,
            leave_at: None,
            offered: false,
        }
    }

    pub(super) fn member(&self) -> &Member {
        &self.member
    }

    pub(super) fn bind(&mut self, bases: Bases) {
        self.member.bind(bases);
    }

    /// Who has no partner is not alone without it.
    pub(super) fn set_paired(&mut self, paired: bool, outputs: &mut Outputs) {
        if self.config.paired && !paired && self.alone {
            outputs.push_back(PairOutput::Alone(false));
        }
        self.config.paired = paired;
    }

    pub(super) fn obey(&mut self, now: Instant, message: ToMember) {
        // Before it knows what lives it cannot say what is held; the coordinator asks again.
        // What it gives away must not change any more either.
        if self.counting.is_none() && self.leaving.is_none() {
            self.member.handle_input(now, MemberInput::Received(message));
        }
    }

    /// Numbers all that waits here as the new document does, whose number of it came from `before`. What
    /// that knows nothing of is refused.
    pub(super) fn set_document(
        &mut self,
        now: Instant,
        document: Arc<Document>,
        before: &Tree,
        outputs: &mut Outputs,
    ) {
        let after = document.tree();
        let mut gone = Vec::new();
        let mut moves = |call: &mut Call, own: bool| {
            let moved = call.moved(before, after);
            match moved {
                Some(moved) => *call = moved,
                None => gone.push((call.id, own)),
            }
            moved.is_some()
        };
        if let Some(counting) = &mut self.counting {
            counting.asks.retain_mut(|(call, _, own)| moves(call, *own));
        }
        if let Some(leaving) = &mut self.leaving {
            leaving.asks.retain_mut(|(_, call)| moves(call, true));
        }
        for list in [&mut self.list, &mut self.pending] {
            list.retain(|_, call| {
                let moved = call.moved(before, after);
                *call = moved.unwrap_or(*call);
                moved.is_some()
            });
        }
        self.member.handle_input(now, MemberInput::Document(document));
        for (call, own) in gone {
            self.decide(call, Err(Denial::Unknown), own, outputs);
        }
    }

    /// Asks which calls live; the partner first, if it can say so. Those of a partner that has just gone
    /// count as long as it is not known which of them died with it.
    pub(super) fn want_audit(
        &mut self,
        now: Instant,
        linked: bool,
        present: bool,
        outputs: &mut Outputs,
    ) {
        if self.counting.is_some() || self.leaving.is_some() {
            return;
        }
        if linked {
            self.asked = true;
            outputs.push_back(PairOutput::Partner(PairMessage::List));
        } else if !present {
            let copied = now < self.copies_until;
            outputs.push_back(PairOutput::NeedLive { copied });
        }
    }

    /// The partner has left the island. Whatever is counted next, its calls count too for a while.
    pub(super) fn miss_partner(&mut self, now: Instant, outputs: &mut Outputs) {
        self.copies_until = now + AUDIT;
        self.audit_at = self.copies_until;
        self.want_audit(now, false, false, outputs);
    }

    /// The partner is in the island again and not linked yet: it may have calls that nobody counts here.
    pub(super) fn await_partner(&mut self, now: Instant) {
        self.alone = false;
        self.lacking_since = Some(now);
    }

    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        linked: bool,
        present: bool,
        outputs: &mut Outputs,
    ) {
        if self.leaving.as_ref().is_some_and(|leaving| leaving.until <= now) {
            self.stay(now, outputs);
        }
        while let Some(call) = self.leaving.as_mut().and_then(|leaving| leaving.due(now)) {
            self.decide(call, Err(Denial::Unheard), true, outputs);
        }
        if self.leaving.is_none() {
            self.member.handle_timeout(now);
        }
        if self.leave_at.is_some_and(|at| at <= now) {
            self.leave_at = None;
        }
        if self.beat_at.is_some_and(|at| at <= now) {
            self.beat_at = Some(now + self.config.period);
            let message = PairMessage::Current { serial: self.serial };
            outputs.push_back(PairOutput::Partner(message));
        }
        if self.audit_at <= now {
            self.audit_at = now + AUDIT;
            self.want_audit(now, linked, present, outputs);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let lacking = self.lacking_since.filter(|_| !self.alone && !self.waiting.is_empty());
        let patience = lacking.map(|since| since + self.config.patience);
        let member = self.member.poll_timeout().filter(|_| self.leaving.is_none());
        let leaving = self.leaving.as_ref().map(Leaving::next_at);
        let list = self.counting.as_ref().and_then(|counting| counting.list_until);
        [member, leaving, self.leave_at, list, self.beat_at, patience, Some(self.audit_at)]
            .into_iter()
            .flatten()
            .min()
    }

    pub(super) fn request(
        &mut self,
        now: Instant,
        call: Call,
        exempt: bool,
        own: bool,
        outputs: &mut Outputs,
    ) {
        if let Some(counting) = &mut self.counting {
            let room = if own { 2 * ASKS_MAX } else { ASKS_MAX };
            if counting.asks.len() < room {
                counting.asks.push((call, exempt, own));
            } else {
                // An exempt one is let in whoever counts it: it is among what lives.
                let verdict = if own && exempt { Ok(PLAIN) } else { Err(Denial::Unheard) };
                self.decide(call.id, verdict, own, outputs);
            }
            return;
        }
        if let Some(leaving) = self.leaving.as_mut().filter(|_| !exempt) {
            // The partner asks itself, once it has the part.
            if own && leaving.asks.len() < ASKS_MAX {
                leaving.asks.push_back((now + self.config.patience, call));
            } else if own {
                self.decide(call.id, Err(Denial::Unheard), own, outputs);
            }
            return;
        }
        let verdict = match self.member.request(now, call, exempt) {
            Verdict::Admitted(admission) => {
                outputs.push_back(PairOutput::Counted(call));
                Ok(admission)
            }
            Verdict::Refused(refusal) => Err(Denial::Full(refusal)),
            Verdict::Held => {
                if !own {
                    self.held.insert(call.id);
                    let message = PairMessage::Waits { call: call.id.0 };
                    outputs.push_back(PairOutput::Partner(message));
                }
                return;
            }
        };
        self.decide(call.id, verdict, own, outputs);
    }

    pub(super) fn release(&mut self, now: Instant, id: CallId) {
        if let Some(counting) = &mut self.counting {
            counting.asks.retain(|(call, ..)| call.id != id);
        }
        if let Some(leaving) = &mut self.leaving {
            leaving.asks.retain(|(_, call)| call.id != id);
        }
        self.held.remove(&id);
        self.list.remove(&id);
        self.pending.remove(&id);
        self.member.release(now, id);
    }

    pub(super) fn receive(&mut self, now: Instant, message: PairMessage, outputs: &mut Outputs) {
        match message {
            PairMessage::Stored { serial } => {
                self.stored = self.stored.max(serial.min(self.serial));
            }
            PairMessage::Missing => {
                self.greets = true;
                self.plain |= self.stored <= self.whole && self.whole < self.serial;
                // What it was handed it cannot go on with.
                self.stay(now, outputs);
            }
            PairMessage::Ask { call, exempt } => match call.call(self.member.document()) {
                Some(call) if self.member.ledger().len() < CALLS_MAX => {
                    self.request(now, call, exempt, false, outputs);
                }
                Some(call) => self.decide(call.id, Err(Denial::Unheard), false, outputs),
                None => {
                    let verdict = Err(super::Denied::Unknown);
                    let answer = PairMessage::Answer { call: call.call, verdict };
                    outputs.push_back(PairOutput::Partner(answer));
                }
            },
            PairMessage::Release { call } => self.release(now, CallId(call)),
            PairMessage::Calls { calls, pending, last } => {
                self.take_list(&calls, pending, last, outputs);
            }
            PairMessage::Declined => {
                self.drain(now);
                self.stay(now, outputs);
            }
            // The other speaks by now, if it was handed the part: it holds all that was sent before.
            PairMessage::State { .. }
            | PairMessage::Change { .. }
            | PairMessage::Current { .. } => {
                self.give_way(now);
            }
            // The other was the speaker until now.
            PairMessage::HandOver { .. }
            | PairMessage::List
            | PairMessage::Bases(_)
            | PairMessage::Waits { .. }
            | PairMessage::Answer { .. } => {}
        }
    }

    /// Learns what lives on this node.
    pub(super) fn live(&mut self, now: Instant, calls: Vec<Call>, outputs: &mut Outputs) {
        let Some(Counting { state, asks, .. }) = self.counting.take() else {
            return self.audit(now, calls, outputs);
        };
        // Of a partner that handed its part over; what waits there has asked or asks again.
        let theirs: Vec<Call> = self.list.values().copied().collect();
        self.forget_list();
        let calls: Vec<Call> = calls.into_iter().chain(theirs).collect();
        outputs.push_back(PairOutput::Begun);
        match state {
            Some(state) => {
                self.member.take_over(now, &state, calls);
            }
            None => {
                let drifts = self.member.audit(now, calls);
                outputs.push_back(PairOutput::Recounted(drifts));
            }
        }
        for (call, exempt, own) in asks {
            self.request(now, call, exempt, own, outputs);
        }
    }

    /// A connection to the partner begins: it needs the state.
    pub(super) fn greet(&mut self, now: Instant) {
        self.greets = true;
        (self.plain, self.asked, self.told) = (false, false, None);
        self.beat_at = Some(now + self.config.period);
        self.forget_list();
    }

    pub(super) fn unlink(&mut self, now: Instant) {
        self.beat_at = None;
        self.stored = 0;
        self.lacking_since.get_or_insert(now);
        self.forget_list();
    }

    /// Ceases to speak; returns the calls of this node about which nothing is decided, and whether they
    /// pass every limit.
    pub(super) fn end(self) -> Vec<(Call, bool)> {
        let asks = self.counting.into_iter().flat_map(|counting| counting.asks);
        let asks = asks.filter(|(.., own)| *own).map(|(call, exempt, _)| (call, exempt));
        let held = self.member.held_calls().filter(|call| !self.held.contains(&call.id));
        let leaving = self.leaving.into_iter().flat_map(|leaving| leaving.asks);
        let leaving = leaving.map(|(_, call)| (call, false));
        asks.chain(held.map(|call| (call, false))).chain(leaving).collect()
    }

    /// Sends what may be sent.
    pub(super) fn settle(
        &mut self,
        now: Instant,
        linked: bool,
        present: bool,
        outputs: &mut Outputs,
    ) {
        if let Some(counting) = &mut self.counting
            && counting.list_until.is_some_and(|until| until <= now || !linked)
        {
            counting.list_until = None;
            outputs.push_back(PairOutput::NeedLive { copied: true });
        }
        let mut sends = Vec::new();
        while let Some(output) = self.member.poll_output() {
            match output {
                MemberOutput::Send { epoch, message } => sends.push((epoch, message)),
                MemberOutput::Decided { call, verdict } => {
                    let counted = self.member.ledger().call(call).map(PairOutput::Counted);
                    outputs.extend(counted.filter(|_| verdict.is_ok()));
                    let own = !self.held.remove(&call);
                    self.decide(call, verdict.map_err(Denial::Full), own, outputs);
                }
                MemberOutput::Recounted(drifts) => outputs.push_back(PairOutput::Recounted(drifts)),
                MemberOutput::Unknown(call) => {
                    let own = !self.held.remove(&call);
                    self.decide(call, Err(Denial::Unknown), own, outputs);
                }
                MemberOutput::Lapsed => outputs.push_back(PairOutput::Lapsed),
            }
        }
        let reachable = self.config.paired && (linked || present);
        let greets = std::mem::take(&mut self.greets) && linked;
        if reachable && (greets || !sends.is_empty()) {
            self.offer(now, greets, linked, outputs);
        }
        let room = WAITING_MAX.saturating_sub(self.waiting.len());
        self.waiting.extend(sends.into_iter().take(room).map(|(e, m)| (self.serial, e, m)));
        let held = self.stored == self.serial && 0 < self.serial;
        if held {
            self.lacking_since = None;
        }
        let late = self.lacking_since.is_some_and(|since| since + self.config.patience <= now);
        let alone = !reachable || !held && (self.alone || late);
        if alone != self.alone && self.config.paired {
            outputs.push_back(PairOutput::Alone(alone));
        }
        self.alone = alone;
        while self.waiting.front().is_some_and(|(serial, ..)| alone || *serial <= self.stored) {
            let Some((_, epoch, message)) = self.waiting.pop_front() else { break };
            outputs.push_back(PairOutput::Coordinator { epoch, message });
        }
    }

    /// Gives the partner the state, if that has changed or it has none.
    fn offer(&mut self, now: Instant, anew: bool, linked: bool, outputs: &mut Outputs) {
        let news = self.member.take_news();
        if !anew && news == News::Nothing && 0 < self.serial {
            return;
        }
        self.serial += 1;
        self.lacking_since.get_or_insert(now);
        if !linked {
            return;
        }
        if self.told.as_ref() != Some(self.member.bases()) {
            let bases = self.member.bases().clone();
            self.told = Some(bases.clone());
            outputs.push_back(PairOutput::Partner(PairMessage::Bases(bases)));
        }
        let serial = self.serial;
        // A whole state may take long, and what follows on it must not arrive before.
        let follows = !anew && !self.plain && 0 < self.whole && self.whole <= self.stored;
        let change = self.member.change(&news).filter(|_| follows);
        outputs.push_back(PairOutput::Partner(match change {
            Some(change) => PairMessage::Change { serial, change },
            None => {
                self.whole = serial;
                PairMessage::State { serial, state: Box::new(self.member.state()) }
            }
        }));
    }

    fn take_list(&mut self, calls: &[Told], pending: bool, last: bool, outputs: &mut Outputs) {
        if self.listed {
            self.forget_list();
        }
        let list = if pending { &mut self.pending } else { &mut self.list };
        let (document, ledger) = (self.member.document(), self.member.ledger());
        // What the partner knows by a name that is gone counts where it was moved to.
        let known = |told: &Told| told.call(document).or_else(|| ledger.call(CallId(told.call)));
        let room = CALLS_MAX.saturating_sub(list.len());
        list.extend(calls.iter().filter_map(known).take(room).map(|call| (call.id, call)));
        if last {
            self.listed = true;
            if let Some(counting) = &mut self.counting
                && counting.list_until.take().is_none()
            {
                // It is being asked which calls live already.
                return;
            }
            outputs.push_back(PairOutput::NeedLive { copied: false });
        }
    }

    fn forget_list(&mut self) {
        self.list.clear();
        self.pending.clear();
        self.listed = false;
    }

    fn audit(&mut self, now: Instant, own: Vec<Call>, outputs: &mut Outputs) {
        let (listed, asked) = (std::mem::take(&mut self.listed), std::mem::take(&mut self.asked));
        if listed && !asked {
            // It may have counted until now.
            outputs.push_back(PairOutput::Begun);
        }
        // Who waited when the list was made may have been let in since.
        let ledger = self.member.ledger();
        self.pending.retain(|id, _| ledger.call(*id).is_some());
        self.list.append(&mut self.pending);
        let theirs = std::mem::take(&mut self.list).into_values();
        let drifts = self.member.audit(now, own.into_iter().chain(theirs));
        if !drifts.is_empty() {
            outputs.push_back(PairOutput::Drifted(drifts));
        }
    }

    fn decide(
        &self,
        call: CallId,
        verdict: Result<Admission, Denial>,
        own: bool,
        outputs: &mut Outputs,
    ) {
        if let Err(Denial::Full(refusal)) = verdict {
            outputs.push_back(PairOutput::Refused(refusal));
        }
        outputs.push_back(if own {
            PairOutput::Decided { call, verdict }
        } else {
            let verdict = told(self.member.document(), verdict);
            PairOutput::Partner(PairMessage::Answer { call: call.0, verdict })
        });
    }
}
