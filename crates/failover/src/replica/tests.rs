use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::peer::GATHER_MAX;
use super::standby::SAMPLE;
use super::*;
use crate::NodeId;

mod interleavings;
mod refusals;

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
fn barriers_of_one_turn_share_a_frame_and_its_answer() {
    let mut run = Run::synced();
    let frames = run.owner.counters().batches;

    for (call, what) in [(1, "180"), (2, "200"), (3, "bye")] {
        run.put(call, "changed", Barrier::Yes);
        run.owner.send(SLOT, what);
        run.settle();
        run.owner.flush(run.now, |_| None);
    }
    assert_eq!(run.owner.counters().batches, frames, "more may come");
    assert_eq!(run.owner.poll_timeout(), Some(run.now));
    run.exchange();

    assert_eq!(run.owner.counters().batches, frames + 1);
    assert_eq!(run.passed(), ["180", "200", "bye"]);
}

#[test]
fn barriers_that_come_close_together_gather_until_there_is_a_turn_for_them() {
    let mut run = Run::synced();
    let frames = run.owner.counters().batches;

    // The first one leaves at once.
    run.put(1, "ringing", Barrier::Yes);
    run.exchange();
    assert_eq!(run.owner.counters().batches, frames + 1);
    // The next ones wait for the turn that something else causes.
    run.advance(1);
    run.put(2, "ringing", Barrier::Yes);
    run.owner.send(SLOT, "180");
    run.exchange();
    assert_eq!(run.owner.counters().batches, frames + 1);
    run.now += Duration::from_millis(2);
    run.put(3, "ringing", Barrier::Yes);
    run.exchange();
    assert_eq!(run.owner.counters().batches, frames + 2);
    assert_eq!(run.passed(), ["180"]);
    // If there is none, they wait until their time is over.
    run.put(2, "talking", Barrier::Yes);
    run.owner.send(SLOT, "200");
    run.drain();
    let due_at = run.owner.poll_timeout().expect("it waits");
    assert!(run.now + GATHER_MAX / 2 < due_at && due_at <= run.now + GATHER_MAX);
    run.advance(4);
    run.exchange();
    assert_eq!(run.owner.counters().batches, frames + 3);
    assert_eq!(run.passed(), ["200"]);
    // So many that a frame is full wait for nothing.
    for call in 0..1000 {
        run.put(call, "talking", Barrier::Yes);
    }
    run.drain();
    assert!(frames + 3 < run.owner.counters().batches);
}

#[test]
fn barriers_gather_as_long_as_the_time_that_a_standby_takes_to_answer_allows() {
    let us = Duration::from_micros;
    for (answer, gathers) in [(0, 4250), (250, 4250), (500, 3500), (1000, 2000), (4000, 0)] {
        let mut run = Run::synced();
        for round in 0..100 {
            run.put(1, &format!("round {round}"), Barrier::Yes);
            run.drain();
            let sent_at = run.now;
            assert_eq!(run.batches.len(), 1, "answer {answer}");
            run.now += us(answer);
            run.exchange();
            // What comes next waits so long after the last frame, or a little less if something
            // else happens.
            let from = run.now;
            run.put(2, &format!("round {round}"), Barrier::Yes);
            while run.batches.is_empty() {
                run.now += us(50);
                if run.owner.poll_timeout().is_some_and(|at| at <= run.now) {
                    run.owner.handle_timeout(run.now);
                    run.drain();
                }
            }
            let (left_at, expected) = (run.now, from.max(sent_at + us(gathers)));
            // Once a second a question after a slot goes at once, and takes it along.
            if 60 < round && run.batches[0].items.len() == 1 {
                assert!(left_at <= expected + us(100), "answer {answer}");
                assert!(expected <= left_at + us(500), "answer {answer}");
            }
            run.now += us(answer);
            run.exchange();
            run.advance(10);
            run.exchange();
        }
        assert_eq!(run.seen(), [], "an answer after {answer} us");
    }
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

#[test]
fn a_lost_link_lets_everything_pass_and_the_next_one_brings_a_whole_copy() {
    let mut run = Run::synced();
    run.put(1, "ringing", Barrier::Yes);
    run.owner.send(SLOT, "180");
    run.down();
    assert_eq!(run.passed(), ["180"]);
    assert_eq!(run.seen(), [Seen::Unsynced(slots())]);
    run.put(1, "talking", Barrier::Yes);
    run.put(2, "invited", Barrier::No);
    run.owner.send(SLOT, "200");
    assert_eq!(run.passed(), ["200"], "without a link nothing waits");

    run.up();
    assert!(!run.owner.is_protected(SLOT));
    run.exchange();
    assert_eq!(run.synced_slots(), slots());
    assert_eq!(run.content_of_standby(SLOT), run.content_of_owner(SLOT));
}

#[test]
fn changes_that_nothing_waits_for_are_sent_once_in_50_ms() {
    let mut run = Run::synced();
    let items = run.owner.counters().items;

    for text in ["one", "two", "three"] {
        run.put(1, text, Barrier::No);
        run.advance(10);
    }
    assert_eq!(run.owner.counters().items, items);
    run.advance(20);
    assert_eq!(run.owner.counters().items, items + 1);
    run.exchange();
    assert_eq!(run.content_of_standby(SLOT), run.content_of_owner(SLOT));

    run.put(1, "four", Barrier::No);
    run.put(1, "five", Barrier::Yes);
    run.exchange();
    run.advance(100);
    assert_eq!(
        run.owner.counters().items,
        items + 2,
        "a barrier takes what was to be said later along"
    );
}

#[test]
fn an_acknowledgement_of_what_was_never_sent_ends_the_stream_for_a_second() {
    let mut run = Run::synced();
    run.put(1, "ringing", Barrier::Yes);
    run.owner.send(SLOT, "180");
    run.drain();
    let stream = run.batches.pop_front().expect("the barrier").stream;

    let lie = Ack { stream, taken: 1 << 40, broken: false, held: vec![], refused: vec![] };
    run.owner.ack(run.now, STANDBY, &lie);
    assert_eq!(run.passed(), ["180"]);
    assert_eq!(run.seen(), [Seen::Unsynced(slots())]);
    assert_eq!(run.owner.counters().lies, 1);
    assert!(!run.owner.is_protected(SLOT));

    run.advance(999);
    assert!(run.batches.is_empty());
    run.advance(1);
    run.exchange();
    assert_eq!(run.synced_slots(), slots());
}

#[test]
fn a_standby_that_holds_something_else_than_it_was_sent_is_not_synced() {
    let mut run = Run::new();
    run.put(1, "invited", Barrier::No);
    run.up();
    let mut tries = vec![];
    for _ in 0..3 {
        let mut wrong = Sum::default();
        wrong.add(&Key::Call(CallId(1)), b"something else");
        while let Some(batch) = run.batches.pop_front() {
            let mut ack = run.standby.copy(OWNER, batch).expect("a fresh batch");
            for held in ack.held.iter_mut().filter(|held| held.0 == SLOT) {
                tries.push(run.now);
                held.1 = wrong;
            }
            run.owner.ack(run.now, STANDBY, &ack);
            run.drain();
        }
        assert!(!run.owner.is_protected(SLOT));
        assert!(run.owner.is_protected(Slot(8)));
        run.advance(4000);
    }
    assert_eq!(run.owner.counters().differed, 3);
    assert_eq!(tries.len(), 3, "it is tried again each time, but not at once");
}

#[test]
fn a_change_that_its_owner_forgot_to_tell_is_found_and_copied() {
    let mut run = Run::synced();
    run.content.insert((SLOT, Key::Call(CallId(3))), value("never told"));

    run.advance_exchanging(256);
    assert_eq!(run.owner.counters().differed, 1);
    assert_eq!(run.seen()[0], Seen::Unsynced(vec![SLOT]));
    run.advance_exchanging(2);
    assert_eq!(run.content_of_standby(SLOT), run.content_of_owner(SLOT));
    assert!(run.owner.is_protected(SLOT));
}

#[test]
fn bindings_are_shown_as_they_come_and_go() {
    let mut run = Run::new();
    let aor = |user: &'static str| {
        Key::Aor(Box::new(Aor { user: Bytes::from_static(user.as_bytes()), domain: Bytes::new() }))
    };
    let shown = |user, text: Option<&str>| {
        let value = text.map(value);
        Some(ReplicaOutput::Copied { slot: SLOT, key: aor(user), value })
    };
    run.content.insert((SLOT, aor("alice")), value("at home"));
    run.up();
    run.exchange();
    assert_eq!(run.standby.poll_output(), shown("alice", Some("at home")));

    let change = Change { slot: SLOT, key: aor("alice"), value: None, barrier: true };
    run.owner.change(run.now, change);
    run.exchange();
    assert_eq!(run.standby.poll_output(), shown("alice", None));

    // She is back while the link is down.
    run.down();
    run.content.insert((SLOT, aor("alice")), value("on the road"));
    run.up();
    run.exchange();
    assert_eq!(run.standby.poll_output(), shown("alice", Some("on the road")));
    // They are read for as long as nothing newer comes.
    run.content.insert((SLOT, Key::Call(CallId(1))), value("talking"));
    run.owner.standby(run.now, &slots(), None, Epoch(5));
    run.exchange();
    assert_eq!(run.standby.poll_output(), None);
    assert_eq!(run.standby.held(SLOT), Held::Nothing);
    run.content.remove(&(SLOT, aor("alice")));
    run.owner.standby(run.now, &slots(), Some(STANDBY), Epoch(5));
    run.exchange();
    assert_eq!(run.standby.poll_output(), shown("alice", None));
    run.owner.standby(run.now, &slots(), None, Epoch(5));
    run.exchange();
    assert_eq!(run.standby.held_len(), 0);
}

#[test]
fn bindings_that_are_left_are_their_owners_until_the_slot_has_another() {
    let key = Key::Aor(Box::new(Aor { user: "alice".into(), domain: Bytes::new() }));
    let whole = || -> Vec<Item<Bytes>> {
        let mut sum = Sum::default();
        sum.add(&key, &value("at home"));
        let record = Item::Record { slot: SLOT, key: key.clone(), value: Some(value("at home")) };
        let begin = Item::Begin { slot: SLOT, epoch: Epoch(5) };
        vec![begin, record, Item::End { slot: SLOT, sum }, Item::Leave { slot: SLOT }]
    };
    let stream = |boot| StreamId { boot: Boot(boot), number: 1 };
    let left = || {
        let mut standby = Replica::new([KIND], is_readable);
        standby.copy(OWNER, Batch { stream: stream(7), first: 1, items: whole() });
        assert_eq!((standby.held(SLOT), standby.records(SLOT).count()), (Held::Nothing, 1));
        assert_eq!(standby.source(SLOT), Some((OWNER, Boot(7))));
        while standby.poll_output().is_some() {}
        standby
    };

    let late = Item::Record::<Bytes> { slot: SLOT, key: key.clone(), value: None };
    let mut standby = left();
    standby.copy(OWNER, Batch { stream: stream(7), first: 5, items: vec![late] });
    assert_eq!(standby.records(SLOT).count(), 1, "it has to begin anew");
    assert_eq!(standby.take(&[SLOT], Epoch(9)).len(), 1);
    assert_eq!(standby.source(SLOT), None);

    for (from, boot) in [(OWNER, 8), (NodeId(3), 7)] {
        let mut standby = left();
        let items = vec![Item::Begin { slot: SLOT, epoch: Epoch(6) }];
        standby.copy::<Bytes>(from, Batch { stream: stream(boot), first: 1, items });
        assert_eq!(standby.source(SLOT), Some((from, Boot(boot))));
        assert_eq!((standby.records(SLOT).count(), standby.held_len()), (0, 0));
        let gone = ReplicaOutput::Copied { slot: SLOT, key: key.clone(), value: None };
        assert_eq!(standby.poll_output(), Some(gone));
    }

    let mut standby = left();
    standby.reigns(SLOT, OWNER);
    assert_eq!(standby.records(SLOT).count(), 1);
    standby.reigns(SLOT, NodeId(3));
    assert_eq!((standby.records(SLOT).count(), standby.held_len()), (0, 0));
}

#[test]
fn a_standby_that_takes_nothing_in_fills_no_memory() {
    let mut run = Run::synced();
    run.advance(100);
    let long = "x".repeat(VALUE_MAX - 100);
    for call in 0..1000 {
        run.put(call, &long, Barrier::Yes);
        run.drain();
    }
    assert_eq!(run.owner.counters().stalled, 1);
    assert_eq!(run.seen(), [Seen::Unsynced(slots())]);
    let sent: usize = run.batches.iter().map(|batch| batch.items.len()).sum();
    assert!((150..220).contains(&sent), "{sent} records were sent");

    // It is tried again, less and less often, with the content of one slot each time.
    run.content.retain(|(_, key), _| *key < Key::Call(CallId(50)));
    run.advance(60_000);
    let tries: BTreeSet<StreamId> = run.batches.iter().map(|batch| batch.stream).collect();
    assert!((3..8).contains(&tries.len()), "{} tries in a minute", tries.len());

    run.exchange();
    run.advance_exchanging(64);
    assert!(slots().into_iter().all(|slot| run.owner.is_protected(slot)));
    assert_eq!(run.content_of_standby(SLOT), run.content_of_owner(SLOT));
}

#[test]
fn a_slot_whose_standby_changes_leaves_the_old_one_and_is_copied_to_the_new() {
    let mut run = Run::synced();
    let other = NodeId(3);
    run.put(1, "ringing", Barrier::Yes);
    run.owner.send(SLOT, "180");
    run.owner.standby(run.now, &[SLOT], Some(other), Epoch(5));
    assert_eq!(run.passed(), ["180"], "no standby is there to wait for");
    run.exchange();
    assert_eq!(run.standby.held(SLOT), Held::Nothing);
    assert_eq!(run.standby.held(Slot(8)), Held::Whole);

    run.owner.peer_up(run.now, other);
    run.settle();
    run.owner.flush(run.now, |_| None);
    let Some(Output::Copy { peer, batch }) = run.owner.poll_output() else { panic!("no copy") };
    let mut standby = Replica::new([KIND], is_readable);
    let ack = standby.copy(OWNER, batch).expect("a fresh batch");
    run.owner.ack(run.now, peer, &ack);
    assert_eq!((peer, standby.held(SLOT)), (other, Held::Whole));
    assert!(run.owner.is_protected(SLOT) && run.owner.is_protected(Slot(8)));
}

#[test]
fn what_is_to_be_done_once_waits_for_a_late_standby_too_and_for_none_that_is_gone() {
    let mut run = Run::synced();
    run.put(1, "ended", Barrier::Yes);
    run.owner.send_patiently(SLOT, "detail");
    run.owner.send(SLOT, "200");
    run.advance(100);
    assert_eq!(run.passed(), ["200"], "a message waits 5 ms");
    run.owner.send_patiently(SLOT, "another");
    run.exchange();
    assert_eq!(run.passed(), ["detail", "another"]);

    run.put(1, "gone", Barrier::Yes);
    run.owner.send_patiently(SLOT, "third");
    assert_eq!(run.passed(), [] as [&str; 0]);
    run.down();
    assert_eq!(run.passed(), ["third"]);
    run.owner.send_patiently(SLOT, "fourth");
    assert_eq!(run.passed(), ["fourth"]);
}

#[test]
fn a_slot_that_is_lost_sends_nothing_more() {
    let mut run = Run::synced();
    run.put(1, "ringing", Barrier::Yes);
    run.owner.send(SLOT, "180");
    run.owner.lose(&[SLOT]);
    run.exchange();
    assert_eq!(run.passed(), [] as [&str; 0]);
    assert_eq!(run.owner.waiting(), 0);
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

fn is_readable(_: Slot, _: &Key, value: &[u8]) -> bool {
    value[2..] != *STRANGE
}

const STRANGE: &[u8] = b"strange";

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
            standby: Replica::new([KIND], is_readable),
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
        assert_eq!(run.synced_slots(), slots());
        run
    }

    fn up(&mut self) {
        self.batches.clear();
        self.acks.clear();
        self.is_up = true;
        self.owner.peer_up(self.now, STANDBY);
        self.drain();
    }

    fn down(&mut self) {
        self.batches.clear();
        self.acks.clear();
        self.owner.peer_down(self.now, STANDBY);
        self.drain();
        self.is_up = false;
    }

    fn advance_exchanging(&mut self, seconds: u64) {
        for _ in 0..seconds * 10 {
            self.advance(100);
            self.exchange();
        }
    }

    fn synced_slots(&mut self) -> Vec<Slot> {
        self.seen().into_iter().flat_map(Seen::synced).collect()
    }

    fn put(&mut self, call: u64, text: &str, barrier: Barrier) {
        let (slot, key) = (SLOT, Key::Call(CallId(call)));
        let value = Some(value(text));
        self.content.insert((slot, key.clone()), value.clone().expect("it is there"));
        match barrier {
            Barrier::Yes => {
                self.owner.change(self.now, Change { slot, key, value, barrier: true });
            }
            Barrier::No => self.owner.touch(self.now, slot, key),
        }
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
        self.flush();
        if self.owner.poll_timeout().is_some_and(|at| at <= self.now) {
            self.owner.handle_timeout(self.now);
            self.settle();
            self.flush();
        }
        self.settle();
    }

    fn flush(&mut self) {
        let record = |key: &Key| self.content.get(&(SLOT, key.clone())).cloned();
        self.owner.flush(self.now, record);
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
        let records = self.standby.records(slot);
        records.map(|(key, value)| (key.clone(), Bytes::copy_from_slice(value))).collect()
    }
}
