use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::*;
use crate::NodeId;

#[test]
fn what_is_sent_waits_until_the_standby_holds_the_barrier_before_it() {
    let mut run = Run::synced();

    run.owner.send(SLOT, "before");
    assert_eq!(run.passed(), ["before"]);

    run.put(1, "ringing", Barrier::Yes);
    run.owner.send(SLOT, "180");
    run.owner.send(SLOT, "more");
    run.owner.send(Slot(9), "other");
    assert_eq!(run.passed(), ["other"]);
    run.exchange();
    assert_eq!(run.passed(), ["180", "more"]);
    assert_eq!(run.standby.held(SLOT), Held::Whole);
    assert_eq!(run.content_of_standby(SLOT), run.content_of_owner(SLOT));
}

#[test]
fn nothing_waits_longer_than_5_ms_for_a_standby_that_answers_late() {
    let mut run = Run::synced();

    run.put(1, "ringing", Barrier::Yes);
    run.owner.send(SLOT, "180");
    run.advance(4);
    assert_eq!(run.passed(), [] as [&str; 0]);
    run.advance(1);
    assert_eq!(run.passed(), ["180"]);
    assert_eq!(run.seen(), [Seen::Late]);
    assert!(!run.owner.is_protected(SLOT));

    run.put(1, "talking", Barrier::Yes);
    run.owner.send(SLOT, "200");
    assert_eq!(run.passed(), ["200"], "nothing waits for a standby that is late");

    run.exchange();
    run.advance(1000);
    run.exchange();
    assert_eq!(run.seen(), [Seen::Caught]);
    assert!(run.owner.is_protected(SLOT));
}

/// One owner and one standby, and the link between them.
struct Run {
    now: Instant,
    owner: Replicator<&'static str>,
    standby: Replica,
    content: BTreeMap<(Slot, Key), Bytes>,
    is_up: bool,
    passed: Vec<&'static str>,
    seen: Vec<Seen>,
    batches: VecDeque<Batch>,
    acks: VecDeque<Ack>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Synced(Vec<Slot>),
    Unsynced(Vec<Slot>),
    Late,
    Caught,
    Refused(Slot, Refusal),
}

impl Seen {
    fn synced(self) -> Vec<Slot> {
        let Self::Synced(slots) = self else { panic!("{self:?}") };
        slots
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Barrier {
    Yes,
    No,
}

const OWNER: NodeId = NodeId(1);
const STANDBY: NodeId = NodeId(2);
const SLOT: Slot = Slot(7);
const KIND: u16 = 0x0110;

fn slots() -> Vec<Slot> {
    (0..=u8::MAX).map(Slot).collect()
}

fn value(text: &str) -> Bytes {
    [&KIND.to_be_bytes()[..], text.as_bytes()].concat().into()
}

impl Run {
    /// The owner of all slots, not linked to its standby yet.
    fn new() -> Self {
        #[expect(clippy::disallowed_methods, reason = "an origin for the test")]
        let now = Instant::now();
        let mut owner = Replicator::new(Boot(1));
        owner.standby(now, &slots(), Some(STANDBY), Epoch(5));
        Self {
            now,
            owner,
            standby: Replica::new([KIND]),
            content: BTreeMap::new(),
            is_up: false,
            passed: vec![],
            seen: vec![],
            batches: VecDeque::new(),
            acks: VecDeque::new(),
        }
    }

    /// The standby has everything.
    fn synced() -> Self {
        let mut run = Self::new();
        run.put(1, "invited", Barrier::No);
        run.up();
        run.exchange();
        let synced: Vec<Slot> = run.seen().into_iter().flat_map(Seen::synced).collect();
        assert_eq!(synced, slots());
        run
    }

    fn up(&mut self) {
        self.batches.clear();
        self.acks.clear();
        self.is_up = true;
        self.owner.peer_up(self.now, STANDBY);
        self.drain();
    }

    fn put(&mut self, call: u64, text: &str, barrier: Barrier) {
        let (slot, key) = (SLOT, Key::Call(CallId(call)));
        let value = Some(value(text));
        self.content.insert((slot, key.clone()), value.clone().expect("it is there"));
        let barrier = barrier == Barrier::Yes;
        self.owner.change(self.now, Change { slot, key, value, barrier });
    }

    fn advance(&mut self, ms: u64) {
        let until = self.now + Duration::from_millis(ms);
        while let Some(at) = self.owner.poll_timeout().filter(|&at| at <= until) {
            self.now = self.now.max(at);
            self.owner.handle_timeout(self.now);
            self.drain();
            assert!(self.owner.poll_timeout().is_none_or(|at| self.now < at));
        }
        self.now = until;
    }

    /// Carries frames to and fro until there are none.
    fn exchange(&mut self) {
        self.drain();
        loop {
            if let Some(batch) = self.batches.pop_front() {
                self.acks.extend(self.standby.copy(OWNER, batch));
            } else if let Some(ack) = self.acks.pop_front() {
                self.owner.ack(self.now, STANDBY, &ack);
                self.drain();
            } else {
                break;
            }
        }
    }

    /// Ends a turn.
    fn drain(&mut self) {
        self.settle();
        self.owner.flush(self.now);
        self.settle();
    }

    fn settle(&mut self) {
        while let Some(output) = self.owner.poll_output() {
            match output {
                Output::Pass(what) => self.passed.push(what),
                Output::Copy { batch, .. } => {
                    assert!(self.is_up, "a frame without a link");
                    self.batches.push_back(batch);
                }
                Output::Whole { slot } => {
                    let records = self.content_of_owner(slot);
                    self.owner.provide(self.now, slot, records);
                }
                Output::Synced { slots, .. } => self.seen.push(Seen::Synced(slots)),
                Output::Unsynced { slots, .. } => self.seen.push(Seen::Unsynced(slots)),
                Output::Late { .. } => self.seen.push(Seen::Late),
                Output::Caught { .. } => self.seen.push(Seen::Caught),
                Output::Refused { slot, refusal, .. } => {
                    self.seen.push(Seen::Refused(slot, refusal));
                }
            }
        }
    }

    fn passed(&mut self) -> Vec<&'static str> {
        self.drain();
        std::mem::take(&mut self.passed)
    }

    fn seen(&mut self) -> Vec<Seen> {
        self.drain();
        std::mem::take(&mut self.seen)
    }

    fn content_of_owner(&self, slot: Slot) -> Vec<(Key, Bytes)> {
        let its = self.content.iter().filter(|((of, _), _)| *of == slot);
        its.map(|((_, key), value)| (key.clone(), value.clone())).collect()
    }

    fn content_of_standby(&self, slot: Slot) -> Vec<(Key, Bytes)> {
        self.standby.records(slot).map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}
