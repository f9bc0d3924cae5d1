//! Any order of changes, messages, late and lost frames, broken links and restarts.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A record changes, or is gone.
    Change { slot: u8, call: u64, gone: bool, how: How },
    /// A message is sent.
    Send { slot: u8 },
    /// The standby takes in some batches.
    Copy { batches: usize },
    /// The owner hears some of the acknowledgements.
    Ack { acks: usize },
    /// A batch is lost: the link had no room.
    Lose,
    /// An earlier batch comes again.
    Replay,
    /// Time passes.
    Wait { ms: u64 },
    /// The link ends.
    Down,
    /// It is there again.
    Up,
    /// The standby's process starts anew.
    Restart,
}

/// How a change is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// With what waits for it.
    Barrier,
    /// As what it became.
    Value,
    /// As a change, of whatever it leads to.
    Touch,
}

fn step() -> impl Strategy<Value = Step> {
    let how = prop_oneof![2 => Just(How::Barrier), 1 => Just(How::Value), 1 => Just(How::Touch)];
    let change = (0..3_u8, 0..3_u64, any::<bool>(), how);
    let change = change.prop_map(|(slot, call, gone, how)| {
        let gone = gone && how != How::Barrier;
        Step::Change { slot, call, gone, how }
    });
    prop_oneof![
        6 => change,
        6 => (0..3_u8).prop_map(|slot| Step::Send { slot }),
        4 => (1..4_usize).prop_map(|batches| Step::Copy { batches }),
        4 => (1..4_usize).prop_map(|acks| Step::Ack { acks }),
        3 => prop_oneof![0..3_u64, 0..60_u64, 0..2000_u64].prop_map(|ms| Step::Wait { ms }),
        1 => Just(Step::Lose),
        1 => Just(Step::Replay),
        1 => Just(Step::Down),
        2 => Just(Step::Up),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn what_passes_is_in_order_in_time_and_held_by_the_standby(
        steps in prop::collection::vec(step(), 1..120)
    ) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        world.calm();
    }
}

#[test]
fn what_gathers_is_due_once_when_its_owner_wakes_for_something_else() {
    let mut world = World::new();
    let barrier = || Step::Change { slot: 0, call: 0, gone: false, how: How::Barrier };
    world.step(Step::Up);
    world.step(Step::Change { slot: 0, call: 0, gone: false, how: How::Value });
    world.step(barrier());
    world.step(Step::Wait { ms: 0 });
    world.step(barrier());
    for ms in [1, 2] {
        world.step(Step::Wait { ms });
    }
    world.step(barrier());
    world.step(Step::Wait { ms: 2 });
    world.calm();
}

/// An owner and its standby, with what must be true of them.
struct World {
    now: Instant,
    owner: Replicator<Message>,
    standby: Replica,
    content: BTreeMap<(Slot, Key), Bytes>,
    is_up: bool,
    batches: VecDeque<Batch>,
    acks: VecDeque<Ack>,
    last: Option<Batch>,
    versions: u64,
    /// The version of each record that its newest barrier has.
    barriers: BTreeMap<(Slot, Key), u64>,
    sent: BTreeMap<Slot, VecDeque<Message>>,
    messages: u64,
}

/// A message, and what the standby must hold when it leaves under protection.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Message {
    slot: Slot,
    number: u64,
    at: Instant,
    after: Vec<(Key, u64)>,
}

impl World {
    fn new() -> Self {
        #[expect(clippy::disallowed_methods, reason = "an origin for the test")]
        let now = Instant::now();
        let mut owner = Replicator::new(Boot(1));
        owner.standby(now, &slots()[..3], Some(STANDBY), Epoch(5));
        Self {
            now,
            owner,
            standby: Replica::new([KIND], is_readable),
            content: BTreeMap::new(),
            is_up: false,
            batches: VecDeque::new(),
            acks: VecDeque::new(),
            last: None,
            versions: 0,
            barriers: BTreeMap::new(),
            sent: BTreeMap::new(),
            messages: 0,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Change { slot, call, gone, how } => self.change(slot, call, gone, how),
            Step::Send { slot } => self.send(Slot(slot)),
            Step::Copy { batches } => (0..batches).for_each(|_| self.copy()),
            Step::Ack { acks } => (0..acks).for_each(|_| self.ack()),
            Step::Lose => self.last = self.batches.pop_front(),
            Step::Replay => {
                if let Some(batch) = self.last.clone().filter(|_| self.is_up) {
                    self.acks.extend(self.standby.copy(OWNER, batch));
                }
            }
            Step::Wait { ms } => self.wait(ms),
            Step::Down => self.down(),
            Step::Up => self.up(),
            Step::Restart => {
                self.down();
                self.standby = Replica::new([KIND], is_readable);
            }
        }
        self.drain();
    }

    fn change(&mut self, slot: u8, call: u64, gone: bool, how: How) {
        // A name is one of one slot.
        let (slot, key) = (Slot(slot), Key::Call(CallId(3 * call + u64::from(slot))));
        self.versions += 1;
        let value = (!gone).then(|| value(&self.versions.to_string()));
        let record = (slot, key.clone());
        match value.clone() {
            Some(value) => self.content.insert(record.clone(), value),
            None => self.content.remove(&record),
        };
        let barrier = how == How::Barrier;
        if barrier {
            self.barriers.insert(record, self.versions);
        } else if gone {
            self.barriers.remove(&record);
        }
        match how {
            How::Barrier | How::Value => {
                self.owner.change(self.now, Change { slot, key, value, barrier });
            }
            How::Touch => self.owner.touch(self.now, slot, key),
        }
    }

    fn send(&mut self, slot: Slot) {
        self.messages += 1;
        let its = self.barriers.iter().filter(|((of, _), _)| *of == slot);
        let after = its.map(|((_, key), &version)| (key.clone(), version)).collect();
        let message = Message { slot, number: self.messages, at: self.now, after };
        self.sent.entry(slot).or_default().push_back(message.clone());
        self.owner.send(slot, message);
    }

    fn copy(&mut self) {
        let Some(batch) = self.batches.pop_front() else { return };
        self.last = Some(batch.clone());
        self.acks.extend(self.standby.copy(OWNER, batch));
    }

    fn ack(&mut self) {
        let Some(ack) = self.acks.pop_front() else { return };
        self.owner.ack(self.now, STANDBY, &ack);
        self.drain();
    }

    fn wait(&mut self, ms: u64) {
        let until = self.now + Duration::from_millis(ms);
        while let Some(at) = self.owner.poll_timeout().filter(|&at| at <= until) {
            self.now = self.now.max(at);
            self.owner.handle_timeout(self.now);
            self.drain();
            assert!(self.owner.poll_timeout().is_none_or(|at| self.now < at), "due again");
        }
        self.now = until;
    }

    fn down(&mut self) {
        self.batches.clear();
        self.acks.clear();
        self.is_up = false;
        self.owner.peer_down(self.now, STANDBY);
        self.drain();
    }

    fn up(&mut self) {
        if !self.is_up {
            self.is_up = true;
            self.owner.peer_up(self.now, STANDBY);
        }
    }

    fn drain(&mut self) {
        for _ in 0..2 {
            while let Some(output) = self.owner.poll_output() {
                self.output(output);
            }
            let slots = || (0..3).map(Slot);
            let record = |key: &Key| {
                slots().find_map(|slot| self.content.get(&(slot, key.clone())).cloned())
            };
            self.owner.flush(self.now, record);
        }
        assert_eq!(self.owner.poll_output(), None);
    }

    fn output(&mut self, output: Output<Message>) {
        match output {
            Output::Pass(message) => self.passed(&message),
            Output::Copy { batch, .. } => {
                assert!(self.is_up, "a frame without a link");
                self.batches.push_back(batch);
            }
            Output::Whole { slot } => {
                let its = self.content.iter().filter(|((of, _), _)| *of == slot);
                let records = its.map(|((_, key), value)| (key.clone(), value.clone()));
                self.owner.provide(self.now, slot, records.collect::<Vec<_>>());
            }
            Output::Synced { slots, .. } => {
                for slot in slots {
                    assert_eq!(self.standby.held(slot), Held::Whole);
                }
            }
            Output::Refused { refusal, .. } => panic!("{refusal}"),
            Output::Unsynced { .. } | Output::Late { .. } | Output::Caught { .. } => {}
        }
    }

    fn passed(&mut self, message: &Message) {
        let next = self.sent.get_mut(&message.slot).and_then(VecDeque::pop_front);
        assert_eq!(next.as_ref(), Some(message), "out of order, or twice");
        assert!(self.now <= message.at + BARRIER_MAX, "a message waited too long");
        if !self.owner.is_protected(message.slot) {
            return;
        }
        let held: BTreeMap<_, _> = self.standby.records(message.slot).collect();
        for (key, version) in &message.after {
            let text = held.get(key).map(|value| String::from_utf8_lossy(&value[2..]).into_owned());
            let held = text.and_then(|text| text.parse::<u64>().ok());
            // Later the record may have gone.
            let is_gone = !self.content.contains_key(&(message.slot, key.clone()));
            assert!(is_gone || Some(*version) <= held, "{version} is not held: {held:?}");
        }
    }

    /// Nothing breaks any more: soon the copy is whole, and nothing waits.
    fn calm(&mut self) {
        self.up();
        for _ in 0..200 {
            self.drain();
            while !self.batches.is_empty() || !self.acks.is_empty() {
                self.copy();
                self.ack();
            }
            self.wait(1000);
        }
        assert_eq!(self.owner.waiting(), 0);
        assert!(self.sent.values().all(VecDeque::is_empty), "a message is lost");
        assert_eq!(self.owner.counters().lies, 0);
        for slot in (0..3).map(Slot) {
            assert!(self.owner.is_protected(slot), "slot {slot} has no copy");
            assert_eq!(self.standby.held(slot), Held::Whole);
            let its = self.content.iter().filter(|((of, _), _)| *of == slot);
            let its: Vec<_> = its.map(|((_, key), value)| (key, &value[..])).collect();
            assert_eq!(self.standby.records(slot).collect::<Vec<_>>(), its);
        }
    }
}
