//! The one that knows what is free, and grants it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use super::{Epoch, Stamp, Timing, ToCoordinator, ToMember};
use crate::{Document, Part, Recipe, SegmentId, Sight};

use round::Round;

mod pool;
mod round;

/// Divides the limits while this node coordinates: asks every member to shrink, waits for every
/// promise, and grants what is then known to be free.
///
/// A coordinator that dies leaves nothing to recover: caps are only lower than before, and the next
/// one learns all from the promises. Drain [`poll_output`](Self::poll_output) after every other call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Coordinator {
    timing: Timing,
    eager: bool,
    document: Arc<Document>,
    /// Who gets its shares in words, since it computes others, and when somebody must be told of it:
    /// not of those who have got the newest document a little sooner or later. `None` once that is done.
    in_words: BTreeMap<SegmentId, Option<Instant>>,
    round: Option<Round>,
    outputs: VecDeque<CoordinatorOutput>,
}

/// What the owner tells the coordinator.
#[derive(Clone, Debug)]
pub enum CoordinatorInput {
    /// This node leads this epoch. Given again for the same epoch, weights have changed.
    Lead {
        /// The epoch; nobody else ever leads it.
        epoch: Epoch,
        /// Every configured segment, and which of them are members.
        parts: Vec<Part>,
    },
    /// This node leads no longer.
    Retire,
    /// Tenants or limits have changed, or how shares grow.
    Document {
        /// The document.
        document: Arc<Document>,
        /// Whether shares grow at once, as with [`Coordinator::new`].
        eager: bool,
    },
    /// A member sent this.
    Received {
        /// Whose speaker it is.
        from: SegmentId,
        /// What it said.
        message: ToCoordinator,
    },
}

/// What the coordinator asks of its owner, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CoordinatorOutput {
    /// Send this to the speaker of a segment, which may be this node.
    Send {
        /// The segment.
        to: SegmentId,
        /// The message.
        message: ToMember,
    },
    /// Every member has promised and the first grants are on their way.
    Opened(Stamp),
    /// A member obeys this division, or has not answered for a while.
    Serves {
        /// The segment.
        segment: SegmentId,
        /// Whether it obeys.
        serves: bool,
    },
    /// A member takes no new calls any more: lead again, without a weight for it. It says so in each
    /// division that gives it one.
    Drains(SegmentId),
    /// A member has promised a higher epoch: tell the election.
    Outranked(Epoch),
    /// Tell an operator.
    Alarm(Alarm),
    /// The cause of an alarm that was told may be gone: if it is not, it is told again.
    Ceased(Alarm),
}

/// What an operator must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Alarm {
    /// This segment has another document; it is sent its shares in words.
    DocumentDiffers(SegmentId),
    /// This segment computed other shares from the same document; it is sent them in words.
    DigestDiffers(SegmentId),
    /// The members' weights are all zero: they get equal parts.
    WeightsZero,
}

/// A segment that lacks the document for so many questions has another one.
const DIFFERS: u32 = 5;

/// No epoch has so many rounds: who says that it promised such a one is not believed.
const ROUNDS_MAX: u32 = 1 << 31;

impl Coordinator {
    /// Starts without leading. `eager` grows shares at once, as the document has it.
    pub fn new(timing: Timing, eager: bool, document: Arc<Document>) -> Self {
        let in_words = BTreeMap::new();
        Self { timing, eager, document, in_words, round: None, outputs: VecDeque::new() }
    }

    /// Takes in what arrived at `now`. What belongs to another division is ignored.
    pub fn handle_input(&mut self, now: Instant, input: CoordinatorInput) {
        match input {
            CoordinatorInput::Lead { epoch, mut parts } => {
                parts.sort_unstable();
                let last = self.round.as_ref().filter(|last| last.stamp().epoch == epoch);
                let sight = last.and_then(|last| last.sight_with(&parts));
                let round = last.map_or(0, |last| last.stamp().round + 1);
                self.begin(now, Stamp { epoch, round }, parts, sight);
            }
            CoordinatorInput::Retire => {
                self.round = None;
                self.forget_words();
            }
            CoordinatorInput::Document { document, eager } => {
                (self.document, self.eager) = (document, eager);
                self.forget_words();
                self.begin_again(now, None);
            }
            CoordinatorInput::Received { from, message } => self.receive(now, from, message),
        }
    }

    /// Does whatever is due at `now`; does nothing when nothing is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        for (segment, tell_at) in &mut self.in_words {
            if tell_at.take_if(|at| *at <= now).is_some() {
                let alarm = Alarm::DocumentDiffers(*segment);
                self.outputs.push_back(CoordinatorOutput::Alarm(alarm));
            }
        }
        let Some(round) = &mut self.round else { return };
        if round.majority_at().is_some_and(|at| at <= now) {
            self.begin_again(now, Some(Sight::Majority));
        } else {
            round.handle_timeout(now, &self.document, &self.timing, &mut self.outputs);
        }
    }

    /// Returns the next thing to do.
    pub fn poll_output(&mut self) -> Option<CoordinatorOutput> {
        self.outputs.pop_front()
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next needed.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let round = self.round.as_ref().and_then(Round::poll_timeout);
        // Hardly ever anybody, and never more than there are segments.
        self.in_words.values().copied().flatten().chain(round).min()
    }

    /// Returns the division it leads.
    pub fn stamp(&self) -> Option<Stamp> {
        self.round.as_ref().map(Round::stamp)
    }

    /// Returns what it counts as held by a member, at least what is held; `None` before every member
    /// promised. For operators.
    pub fn held(&self, segment: SegmentId, counter: u32) -> Option<u32> {
        self.round.as_ref()?.held(segment, counter)
    }

    fn receive(&mut self, now: Instant, from: SegmentId, message: ToCoordinator) {
        let Some(round) = &mut self.round else { return };
        let (document, timing, outputs) = (&self.document, &self.timing, &mut self.outputs);
        match message {
            ToCoordinator::Promise(promise) => {
                if round.promise(now, from, &promise, document, timing, outputs).is_err() {
                    outputs.push_back(CoordinatorOutput::Alarm(Alarm::DigestDiffers(from)));
                    self.in_words.insert(from, None);
                    self.begin_again(now, None);
                }
            }
            ToCoordinator::NeedColumn { stamp } if stamp == round.stamp() && round.has(from) => {
                let tell_at = now + DIFFERS * timing.resend;
                self.in_words.entry(from).or_insert(Some(tell_at));
                round.send_column(from, document, outputs);
            }
            ToCoordinator::NeedColumn { .. } => {}
            ToCoordinator::Report(report) => {
                round.report(now, from, &report, document, timing, outputs);
            }
            ToCoordinator::Ask(ask) => round.ask(now, from, &ask, document, timing, outputs),
            ToCoordinator::Drains { stamp } if stamp == round.stamp() && round.has(from) => {
                outputs.push_back(CoordinatorOutput::Drains(from));
            }
            ToCoordinator::Drains { .. } => {}
            ToCoordinator::Outweighed { stamp }
                if stamp == round.stamp() && round.outweighs(from) =>
            {
                self.begin_again(now, Some(Sight::Minority));
            }
            ToCoordinator::Outweighed { .. } => {}
            ToCoordinator::Refuse { stamp, promised } if stamp == round.stamp() => {
                if stamp < promised && stamp.epoch != promised.epoch {
                    outputs.push_back(CoordinatorOutput::Outranked(promised.epoch));
                } else if round.has(from) && promised.round < ROUNDS_MAX {
                    // Promised by a life that is forgotten: only a new round can tell its grants
                    // from those of before. It may have our document by now.
                    self.in_words
                        .remove(&from)
                        .into_iter()
                        .for_each(|told| ceased(from, told, outputs));
                    let next = promised.round.max(stamp.round);
                    self.begin_after(now, next, None);
                }
            }
            ToCoordinator::Refuse { .. } => {}
        }
    }

    fn forget_words(&mut self) {
        for (segment, tell_at) in std::mem::take(&mut self.in_words) {
            ceased(segment, tell_at, &mut self.outputs);
        }
    }

    fn begin_again(&mut self, now: Instant, sight: Option<Sight>) {
        let Some(round) = &self.round else { return };
        self.begin_after(now, round.stamp().round, sight);
    }

    fn begin_after(&mut self, now: Instant, round: u32, sight: Option<Sight>) {
        let Some(last) = &self.round else { return };
        let stamp = Stamp { epoch: last.stamp().epoch, round: round + 1 };
        let sight = sight.or_else(|| last.settled_sight());
        self.begin(now, stamp, last.parts().to_vec(), sight);
    }

    fn begin(&mut self, now: Instant, stamp: Stamp, parts: Vec<Part>, sight: Option<Sight>) {
        let weights = || parts.iter().filter(|part| part.present).map(|part| part.weight);
        if weights().next().is_some() && weights().all(|weight| weight == 0) {
            self.outputs.push_back(CoordinatorOutput::Alarm(Alarm::WeightsZero));
        }
        let document = &self.document;
        let recipe = Recipe {
            document: document.version(),
            digest: document.digest(),
            sight: sight.unwrap_or_else(|| Sight::of(&parts)),
            parts,
            eager: self.eager,
        };
        let (timing, outputs) = (&self.timing, &mut self.outputs);
        self.round =
            Some(Round::new(now, stamp, recipe, &self.in_words, document, timing, outputs));
    }
}

/// Takes back what was told of a segment that had another document.
fn ceased(segment: SegmentId, tell_at: Option<Instant>, outputs: &mut VecDeque<CoordinatorOutput>) {
    if tell_at.is_none() {
        let alarm = Alarm::DocumentDiffers(segment);
        outputs.push_back(CoordinatorOutput::Ceased(alarm));
    }
}
