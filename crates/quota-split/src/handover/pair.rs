//! The two nodes of a segment: one speaks and counts, the other asks it and can go on in its place.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Bases, Epoch, Member, MemberChange, Stamp, Timing, ToCoordinator, ToMember};
use crate::{Admission, Call, CallId, Document, Drift, Refusal, SegmentId};

pub use message::{Denied, Granted, PairMessage, Told};

use listener::Listener;
use message::TOLD_LEN_MAX;
use speaker::Speaker;

mod listener;
mod message;
mod speaker;
#[cfg(test)]
mod tests;

/// One node of a segment, of which there are one or two.
///
/// The one that speaks has a [`Member`] and counts all calls of the segment. The other asks it, and
/// holds its state, without which nothing that depends on the state reaches the coordinator. When the
/// other is told to speak it counts first what lives, then goes on with the state that it holds; one
/// that may have been left behind it does not trust, and then it has no share until the next division.
/// Drain [`poll_output`](Self::poll_output) after every other call.
#[derive(Clone, Debug)]
pub struct Pair {
    config: PairConfig,
    seed: u64,
    document: Arc<Document>,
    /// No division up to this one is obeyed anew.
    floor: Option<Stamp>,
    /// By which weights its segment tells majorities, while this node does not speak.
    bases: Bases,
    linked: bool,
    present: bool,
    copy: Option<Copy>,
    /// Whether this node is about to leave.
    leaves: bool,
    /// Until when the other hands its part to this node.
    handed_until: Option<Instant>,
    part: Part,
    outputs: VecDeque<PairOutput>,
}

/// What seldom changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairConfig {
    /// The segment.
    pub segment: SegmentId,
    /// Whether it has a second node; [`PairInput::Paired`] tells it anew.
    pub paired: bool,
    /// How long things take between sites.
    pub timing: Timing,
    /// The speaker says this often that its last state still is the last.
    pub period: Duration,
    /// How long the speaker waits for a partner that is in the island and does not hold its state. It
    /// must be longer than any silence after which the partner may be told to speak.
    pub patience: Duration,
    /// How long a call waits for the speaker's answer.
    pub answer: Duration,
}

/// Who speaks for the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// This node.
    Speaker,
    /// The other node.
    Partner,
    /// Nobody that is known.
    Nobody,
}

/// What the owner tells.
#[derive(Clone, Debug)]
pub enum PairInput {
    /// Who speaks has been decided. A node that is told to speak while the other lives and may carry
    /// calls must know that the other was told too.
    Role(Role),
    /// The segment has a second node from now on, or no longer; what is known of that one follows. To be
    /// told to be without one in between, where another one takes its place.
    Paired(bool),
    /// What is known of the other node.
    Other {
        /// Whether the link to it is up. Messages of an earlier connection never arrive on the next.
        linked: bool,
        /// Whether it is in the island, over whatever links.
        present: bool,
    },
    /// The other node sent this.
    Received(PairMessage),
    /// A coordinator sent this to the speaker.
    Coordinator(ToMember),
    /// Tenants or limits have changed.
    Document(Arc<Document>),
    /// The answer to [`PairOutput::NeedLive`].
    Live(Vec<Call>),
    /// This node is about to leave: it hands its part to the other, if that can take it. If there is
    /// nobody that it reaches, or the other is about to leave too, the segment takes no new calls any
    /// more.
    Leave,
    /// An operator wants the counters compared with what lives.
    Audit,
}

/// What it asks of its owner, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PairOutput {
    /// Send this over the link to the other node, in this order.
    Partner(PairMessage),
    /// Send this to the coordinator of an epoch, once [`Pair::promised`] is on disk.
    Coordinator {
        /// Whose division it belongs to.
        epoch: Epoch,
        /// The message.
        message: ToCoordinator,
    },
    /// A call is decided.
    Decided {
        /// The call.
        call: CallId,
        /// Whether it was let in.
        verdict: Result<Admission, Denial>,
    },
    /// This segment has a call more at a node and all above it. That one ends is known to whoever tells
    /// it, and to [`Pair::call`] before.
    Counted(Call),
    /// This node counts the calls of the segment from now on, and [`Pair::member`] what there is. Said
    /// again after the other one has counted too.
    Begun,
    /// Counters changed at once, with a document or what lives.
    Recounted(Vec<Drift>),
    /// A call of this segment, asked for by either node, did not fit.
    Refused(Refusal),
    /// Say at once, before anything else, which calls live, with [`PairInput::Live`].
    NeedLive {
        /// Whether those count that this node only holds copies of.
        copied: bool,
    },
    /// The other, which speaks, is about to leave: tell the election that this node speaks from now on.
    TakeOver,
    /// Counters were wrong and have been set right.
    Drifted(Vec<Drift>),
    /// The speaker goes on without its partner, or no longer: while it does, its death costs the
    /// segment its share until the next division.
    Alone(bool),
    /// The coordinator was not heard for a lease: limits under a weight majority are closed.
    Lapsed,
}

/// Why a call is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Denial {
    /// It does not fit.
    #[error(transparent)]
    Full(Refusal),
    /// Nobody can count it now: the segment's speaker does not answer, or there is none.
    #[error("nobody counts the calls of this segment now")]
    Unheard,
    /// The speaker's document does not have its profile, or has it no longer.
    #[error("the speaker has another document, without this profile")]
    Unknown,
}

/// What the other node would go on with.
#[derive(Clone, Debug)]
struct Copy {
    serial: u64,
    state: super::MemberState,
    /// When it was last known to be the last.
    current_at: Instant,
}

#[derive(Clone, Debug)]
enum Part {
    Nobody,
    Speaker(Box<Speaker>),
    Listener(Listener),
}

impl Copy {
    /// Takes in what has become other since; tells whether it does follow on what is held.
    fn change(&mut self, now: Instant, serial: u64, change: &MemberChange) -> bool {
        if self.serial.checked_add(1) != Some(serial) || !self.state.change(change) {
            return false;
        }
        (self.serial, self.current_at) = (serial, now);
        true
    }
}

impl Pair {
    /// Starts as a node that does not speak. `promised` is what an earlier life promised last, from
    /// disk. `seed` keys the look-up of calls.
    pub fn new(
        config: PairConfig,
        document: Arc<Document>,
        promised: Option<Stamp>,
        seed: u64,
    ) -> Self {
        let (part, outputs) = (Part::Nobody, VecDeque::new());
        Self {
            config,
            seed,
            document,
            floor: promised,
            bases: Bases::default(),
            linked: false,
            present: false,
            copy: None,
            leaves: false,
            handed_until: None,
            part,
            outputs,
        }
    }

    /// Tells majorities by these weights from now on, as [`Member::bind`].
    pub fn bind(&mut self, bases: Bases) {
        match &mut self.part {
            Part::Speaker(speaker) => speaker.bind(bases),
            Part::Nobody | Part::Listener(_) => self.bases = bases,
        }
    }

    /// Takes in what happened at `now`.
    pub fn handle_input(&mut self, now: Instant, input: PairInput) {
        match input {
            PairInput::Role(role) => self.set_role(now, role),
            PairInput::Paired(paired) => self.set_paired(now, paired),
            PairInput::Other { linked, present } => self.set_other(now, linked, present),
            PairInput::Received(message) => self.receive(now, message),
            PairInput::Coordinator(message) => {
                if let Part::Speaker(speaker) = &mut self.part {
                    speaker.obey(now, message);
                }
            }
            PairInput::Document(document) => {
                let before = std::mem::replace(&mut self.document, Arc::clone(&document));
                let (before, after) = (before.tree(), self.document.tree());
                match &mut self.part {
                    Part::Nobody => {}
                    Part::Speaker(speaker) => {
                        speaker.set_document(now, document, before, &mut self.outputs);
                    }
                    Part::Listener(listener) => {
                        listener.set_document(before, after, &mut self.outputs);
                    }
                }
            }
            PairInput::Live(calls) => self.live(now, calls),
            PairInput::Leave => self.leaves = true,
            PairInput::Audit => {
                if let Part::Speaker(speaker) = &mut self.part {
                    speaker.want_audit(now, self.linked, self.present, &mut self.outputs);
                }
            }
        }
        self.settle(now);
    }

    /// Does whatever is due at `now`; does nothing when nothing is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        match &mut self.part {
            Part::Nobody => {}
            Part::Speaker(speaker) => {
                speaker.handle_timeout(now, self.linked, self.present, &mut self.outputs);
            }
            Part::Listener(listener) => listener.handle_timeout(now, &mut self.outputs),
        }
        self.settle(now);
    }

    /// Returns the next thing to do.
    pub fn poll_output(&mut self) -> Option<PairOutput> {
        self.outputs.pop_front()
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next needed.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match &self.part {
            Part::Nobody => None,
            Part::Speaker(speaker) => speaker.poll_timeout(),
            Part::Listener(listener) => listener.poll_timeout(),
        }
    }

    /// Counts a call, here or at the speaker; [`PairOutput::Decided`] follows. An `exempt` call passes
    /// every limit and is let in whoever counts it.
    ///
    /// # Panics
    ///
    /// Panics when the call's node comes from a larger tree than the last document's.
    pub fn request(&mut self, now: Instant, call: Call, exempt: bool) {
        match &mut self.part {
            Part::Speaker(speaker) => speaker.request(now, call, exempt, true, &mut self.outputs),
            Part::Listener(listener) if self.linked => {
                listener.request(now, call, exempt, &self.document, &mut self.outputs);
            }
            Part::Listener(_) | Part::Nobody => {
                let verdict = if exempt { Ok(PLAIN) } else { Err(Denial::Unheard) };
                self.outputs.push_back(PairOutput::Decided { call: call.id, verdict });
            }
        }
        self.settle(now);
    }

    /// Ends a call, counted or not, whatever ended it. No decision about it follows.
    pub fn release(&mut self, now: Instant, id: CallId) {
        match &mut self.part {
            Part::Speaker(speaker) => speaker.release(now, id),
            Part::Listener(listener) => {
                listener.forget(id);
                if self.linked {
                    let message = PairMessage::Release { call: id.0 };
                    self.outputs.push_back(PairOutput::Partner(message));
                }
            }
            Part::Nobody if self.linked => self.reply(PairMessage::Release { call: id.0 }),
            // Whoever speaks next counts what lives then.
            Part::Nobody => {}
        }
        self.settle(now);
    }

    /// Returns the counters, while this node speaks.
    pub fn member(&self) -> Option<&Member> {
        match &self.part {
            Part::Speaker(speaker) => Some(speaker.member()),
            Part::Nobody | Part::Listener(_) => None,
        }
    }

    /// Returns a call that is counted here.
    pub fn call(&self, id: CallId) -> Option<Call> {
        self.member()?.ledger().call(id)
    }

    /// Returns the highest division that this node knows to be promised; to be on disk before
    /// anything is sent to a coordinator.
    pub fn promised(&self) -> Option<Stamp> {
        self.member().and_then(Member::promised).max(self.floor)
    }

    /// Returns by which weights this node tells majorities; to be on disk before anything is sent to a
    /// coordinator.
    pub fn bases(&self) -> &Bases {
        self.member().map_or(&self.bases, Member::bases)
    }

    fn set_role(&mut self, now: Instant, role: Role) {
        let part = match (role, &self.part) {
            (Role::Speaker, Part::Speaker(_))
            | (Role::Partner, Part::Listener(_))
            | (Role::Nobody, Part::Nobody) => return,
            (Role::Speaker, _) => Part::Speaker(Box::new(self.begin(now))),
            (Role::Partner, _) => Part::Listener(Listener::new(&self.config)),
            (Role::Nobody, _) => Part::Nobody,
        };
        (self.floor, self.bases) = (self.promised(), self.bases().clone());
        match std::mem::replace(&mut self.part, part) {
            Part::Nobody => {}
            Part::Speaker(speaker) => {
                self.copy = None;
                for (call, exempt) in speaker.end() {
                    self.request(now, call, exempt);
                }
            }
            Part::Listener(listener) => {
                for call in listener.pending() {
                    self.request(now, call, false);
                }
            }
        }
        self.greet(now);
    }

    /// Starts to speak, with the other's state if that can be trusted.
    fn begin(&mut self, now: Instant) -> Speaker {
        let patience = self.config.patience;
        let copy = self.copy.take();
        let known = copy.as_ref().and_then(|copy| copy.state.promised());
        let fresh = copy.filter(|copy| now < copy.current_at + patience && self.floor <= known);
        if fresh.is_none() {
            self.floor = self.floor.max(known);
        }
        let (document, floor) = (Arc::clone(&self.document), self.floor);
        let Self { config, seed, .. } = *self;
        let mut member = Member::new(now, config.segment, config.timing, document, floor, seed);
        member.bind(self.bases.clone());
        let state = fresh.map(|copy| copy.state);
        let handed = self.handed_until.take().is_some_and(|until| now < until) && self.linked;
        if handed && state.is_some() {
            // The other lives, lets nothing in, and says which calls it has as soon as it knows.
            let until = now + config.period;
            return Speaker::new(now, config, member, state, Some(until));
        }
        self.outputs.push_back(PairOutput::NeedLive { copied: true });
        Speaker::new(now, config, member, state, None)
    }

    fn set_paired(&mut self, now: Instant, paired: bool) {
        if !paired {
            self.set_other(now, false, false);
        }
        self.config.paired = paired;
        if let Part::Speaker(speaker) = &mut self.part {
            speaker.set_paired(paired, &mut self.outputs);
        }
    }

    fn set_other(&mut self, now: Instant, linked: bool, present: bool) {
        let before = std::mem::replace(&mut self.linked, linked && self.config.paired);
        let gone = (before || self.present) && !self.linked && !present;
        let back = !before && !self.present && !self.linked && present;
        self.present = present;
        if let Part::Speaker(speaker) = &mut self.part
            && back
        {
            speaker.await_partner(now);
        }
        if let Part::Speaker(speaker) = &mut self.part
            && gone
        {
            speaker.miss_partner(now, &mut self.outputs);
        }
        if before == self.linked {
            return;
        }
        if self.linked {
            return self.greet(now);
        }
        match &mut self.part {
            Part::Nobody => {}
            Part::Speaker(speaker) => speaker.unlink(now),
            Part::Listener(listener) => listener.unlink(&mut self.outputs),
        }
    }

    /// A connection begins, or a role on it.
    fn greet(&mut self, now: Instant) {
        if !self.linked {
            return;
        }
        match &mut self.part {
            Part::Nobody => {}
            Part::Speaker(speaker) => speaker.greet(now),
            // Its calls may be new to whoever speaks.
            Part::Listener(_) => self.outputs.push_back(PairOutput::NeedLive { copied: false }),
        }
    }

    fn receive(&mut self, now: Instant, message: PairMessage) {
        match (&mut self.part, message) {
            (Part::Speaker(speaker), message) => {
                speaker.receive(now, message, &mut self.outputs);
            }
            (Part::Listener(_) | Part::Nobody, PairMessage::State { serial, state }) => {
                self.copy = Some(Copy { serial, state: *state, current_at: now });
                self.reply(PairMessage::Stored { serial });
            }
            (Part::Listener(_) | Part::Nobody, PairMessage::Change { serial, change }) => {
                let changed =
                    self.copy.as_mut().is_some_and(|copy| copy.change(now, serial, &change));
                let stored = PairMessage::Stored { serial };
                self.reply(if changed { stored } else { PairMessage::Missing });
            }
            (Part::Listener(_) | Part::Nobody, PairMessage::Current { serial }) => {
                match self.copy.as_mut().filter(|copy| copy.serial == serial) {
                    Some(copy) => {
                        copy.current_at = now;
                        self.reply(PairMessage::Stored { serial });
                    }
                    None => self.reply(PairMessage::Missing),
                }
            }
            (Part::Listener(listener), PairMessage::Waits { call }) => {
                listener.wait_longer(now, CallId(call));
            }
            (Part::Listener(listener), PairMessage::Answer { call, verdict }) => {
                listener.answer(CallId(call), verdict, &self.document, &mut self.outputs);
            }
            (Part::Listener(_) | Part::Nobody, PairMessage::List) => {
                self.outputs.push_back(PairOutput::NeedLive { copied: false });
            }
            (Part::Listener(_) | Part::Nobody, PairMessage::HandOver { serial }) => {
                if self.leaves {
                    self.reply(PairMessage::Declined);
                } else if self.copy.as_ref().is_some_and(|copy| copy.serial == serial) {
                    self.handed_until = Some(now + self.config.period);
                    self.outputs.push_back(PairOutput::TakeOver);
                } else {
                    self.reply(PairMessage::Missing);
                }
            }
            (Part::Listener(_) | Part::Nobody, PairMessage::Bases(bases)) => self.bases = bases,
            // Both wait to hear who speaks, or this node has just ceased to.
            (
                Part::Listener(_) | Part::Nobody,
                PairMessage::Stored { .. }
                | PairMessage::Declined
                | PairMessage::Missing
                | PairMessage::Waits { .. }
                | PairMessage::Answer { .. }
                | PairMessage::Release { .. }
                | PairMessage::Calls { .. },
            ) => {}
            (Part::Listener(_) | Part::Nobody, PairMessage::Ask { call, .. }) => {
                let verdict = Err(Denied::Unheard);
                self.reply(PairMessage::Answer { call: call.call, verdict });
            }
        }
    }

    fn live(&mut self, now: Instant, calls: Vec<Call>) {
        let pending = match &mut self.part {
            Part::Nobody => Vec::new(),
            Part::Listener(listener) => listener.pending().collect(),
            Part::Speaker(speaker) => return speaker.live(now, calls, &mut self.outputs),
        };
        // To the speaker: all calls here.
        self.tell(&pending, true);
        self.tell(&calls, false);
        self.reply(PairMessage::Calls { calls: Vec::new(), pending: false, last: true });
    }

    fn tell(&mut self, calls: &[Call], pending: bool) {
        let (mut some, mut len) = (Vec::new(), 0);
        for call in calls {
            let told = Told::new(&self.document, *call);
            let more = told.len_max();
            if TOLD_LEN_MAX < len + more && !some.is_empty() {
                let calls = std::mem::take(&mut some);
                self.reply(PairMessage::Calls { calls, pending, last: false });
                len = 0;
            }
            some.push(told);
            len += more;
        }
        if !some.is_empty() {
            self.reply(PairMessage::Calls { calls: some, pending, last: false });
        }
    }

    fn settle(&mut self, now: Instant) {
        if let Part::Speaker(speaker) = &mut self.part {
            if self.leaves && !self.linked {
                speaker.drain(now);
            }
            speaker.settle(now, self.linked, self.present, &mut self.outputs);
            if self.leaves && self.linked {
                speaker.hand_over(now, &mut self.outputs);
            }
        }
    }

    fn reply(&mut self, message: PairMessage) {
        self.outputs.push_back(PairOutput::Partner(message));
    }
}

/// How a call is let in that no limit was asked about.
const PLAIN: Admission = Admission { level: 1, over: None, again: false };
