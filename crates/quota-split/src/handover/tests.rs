use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::member::{Followed, MemberState};
use super::*;
use crate::{
    Call, CallId, Counter, Direction, Document, Full, Lending, Limits, Method, Node, NodeId, Part,
    Partition, Recipe, SegmentId, Sight, Tree,
};

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// What a peer sends decodes, and says whatever it likes.
    #[test]
    fn no_script_of_messages_ends_a_node_or_keeps_it_busy(seed in any::<u64>()) {
        let mut script = Script::new(seed);
        for _ in 0..60 {
            script.step();
        }
    }
}

/// A member, a coordinator and both roles of a pair, all of which hear the same nonsense.
struct Script {
    dice: u64,
    now: Instant,
    document: Arc<Document>,
    member: Member,
    coordinator: Coordinator,
    pair: Pair,
}

/// Numbers that a peer may send, most of them within bounds.
const NUMBERS: [u32; 12] = [0, 0, 1, 1, 2, 3, 4, 5, 9, 1 << 20, u32::MAX - 1, u32::MAX];

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "stranger"];

/// What one input makes a machine say at the most.
const OUTPUTS_MAX: usize = 5_000;

impl Script {
    fn new(seed: u64) -> Self {
        let (now, document) = (now(), document(1));
        let config = PairConfig {
            segment: SegmentId(1),
            paired: true,
            timing: Timing::WAN,
            period: Duration::from_secs(1),
            patience: Duration::from_secs(8),
            answer: Duration::from_millis(150),
        };
        Self {
            dice: seed,
            now,
            member: Member::new(now, SegmentId(1), Timing::WAN, Arc::clone(&document), None, 7),
            coordinator: Coordinator::new(
                Timing::WAN,
                seed.is_multiple_of(5),
                Arc::clone(&document),
            ),
            pair: Pair::new(config, Arc::clone(&document), None, 7),
            document,
        }
    }

    fn step(&mut self) {
        match self.below(14) {
            0..=3 => {
                let message = self.message_to_member();
                self.hear(&message);
            }
            4 | 5 => {
                let message = self.message_to_coordinator();
                let from = SegmentId(self.below(4));
                let input = CoordinatorInput::Received { from, message };
                self.coordinator.handle_input(self.now, input);
            }
            6..=8 => {
                let message = self.pair_message();
                self.pair.handle_input(self.now, PairInput::Received(message));
            }
            9 => self.change(),
            10 => self.call(),
            11 => self.lead(),
            12 => self.turn_pair(),
            _ => self.pass(),
        }
        self.drain();
    }

    fn hear(&mut self, message: &ToMember) {
        self.member.handle_input(self.now, MemberInput::Received(message.clone()));
        self.pair.handle_input(self.now, PairInput::Coordinator(message.clone()));
    }

    fn change(&mut self) {
        let document = document(u64::from(self.below(4)));
        self.document = Arc::clone(&document);
        self.member.handle_input(self.now, MemberInput::Document(Arc::clone(&document)));
        self.pair.handle_input(self.now, PairInput::Document(Arc::clone(&document)));
        let told = CoordinatorInput::Document { document, eager: false };
        self.coordinator.handle_input(self.now, told);
    }

    fn call(&mut self) {
        let calls = self.document.tree().len();
        let node = NodeId(self.below(u32::try_from(calls).unwrap()));
        let id = CallId(u64::from(self.below(9)));
        if self.below(3) == 0 {
            self.member.release(self.now, id);
            self.pair.release(self.now, id);
        } else {
            let call = Call { id, node, direction: Direction::Inbound };
            self.member.request(self.now, call, false);
            self.pair.request(self.now, call, self.dice.is_multiple_of(7));
        }
    }

    fn lead(&mut self) {
        if self.below(6) == 0 {
            return self.coordinator.handle_input(self.now, CoordinatorInput::Retire);
        }
        let (epoch, parts) = (self.stamp().epoch, self.parts());
        self.coordinator.handle_input(self.now, CoordinatorInput::Lead { epoch, parts });
    }

    fn turn_pair(&mut self) {
        let input = match self.below(7) {
            0 => PairInput::Role(Role::Nobody),
            1 => PairInput::Role(Role::Partner),
            2 | 3 => PairInput::Role(Role::Speaker),
            4 => PairInput::Audit,
            5 => PairInput::Leave,
            _ => PairInput::Other { linked: self.below(4) != 0, present: self.below(2) == 0 },
        };
        self.pair.handle_input(self.now, input);
    }

    fn pass(&mut self) {
        let span = [1, 150, 400, 5_000, 70_000][self.below(5) as usize];
        self.now += Duration::from_millis(span);
        self.member.handle_timeout(self.now);
        self.coordinator.handle_timeout(self.now);
        self.pair.handle_timeout(self.now);
        self.drain();
        let due = [self.member.poll_timeout(), self.pair.poll_timeout()];
        let due = due.into_iter().chain([self.coordinator.poll_timeout()]);
        assert!(due.flatten().all(|at| self.now < at), "a handled timeout is due again");
    }

    fn drain(&mut self) {
        for _ in 0..OUTPUTS_MAX {
            let own = self.member.poll_output().is_some();
            let led = self.coordinator.poll_output().is_some();
            let Some(output) = self.pair.poll_output() else {
                if !own && !led {
                    return;
                }
                continue;
            };
            if let PairOutput::NeedLive { .. } = output {
                self.pair.handle_input(self.now, PairInput::Live(Vec::new()));
            }
        }
        panic!("it never ends");
    }

    fn message_to_member(&mut self) -> ToMember {
        let stamp = self.stamp();
        match self.below(9) {
            0..=2 => {
                let column = (self.below(2) == 0).then(|| self.column());
                ToMember::Prepare(Prepare { stamp, recipe: self.recipe(), column })
            }
            3 | 4 => {
                let (seq, rest, cells) = (self.number(), self.below(2) == 0, self.cells());
                ToMember::Grow(Grow { stamp, seq, rest, cells })
            }
            5 => {
                let (counter, cap, drain) = (self.number(), self.number(), self.below(2) == 0);
                ToMember::Recall(Recall { stamp, counter, cap, drain })
            }
            6 => ToMember::Exhausted { stamp, counter: self.number() },
            7 => ToMember::Heard { stamp, report: self.number() },
            _ if self.below(2) == 0 => ToMember::Lease { stamp },
            _ => ToMember::Elsewhere { stamp, cells: self.cells() },
        }
    }

    fn message_to_coordinator(&mut self) -> ToCoordinator {
        let stamp = self.stamp();
        // What the division in force says is heard at all.
        let stamp = self.coordinator.stamp().filter(|_| self.below(5) != 0).unwrap_or(stamp);
        match self.below(8) {
            6 => ToCoordinator::Drains { stamp },
            7 => ToCoordinator::Outweighed { stamp },
            0 | 1 => {
                let own = self.document.counters().len();
                let targets = (0..own).map(|_| self.number()).collect::<Vec<_>>();
                let digest = column_digest(targets.into_iter());
                let settled = (self.below(2) == 0).then_some(1);
                ToCoordinator::Promise(Promise { stamp, held: self.cells(), digest, settled })
            }
            2 => ToCoordinator::Refuse { stamp, promised: self.stamp() },
            3 => ToCoordinator::NeedColumn { stamp },
            4 => {
                let (number, applied) = (self.number(), self.number());
                let cells = self.cells();
                let held = |(counter, held): (u32, u32)| Held { counter, held, used: held };
                let cells = cells.into_iter().map(held).collect();
                ToCoordinator::Report(Report { stamp, number, applied, cells })
            }
            _ => {
                let (cells, urgent) = (self.cells(), self.below(2) == 0);
                ToCoordinator::Ask(Ask { stamp, cells, urgent })
            }
        }
    }

    fn pair_message(&mut self) -> PairMessage {
        let (call, serial) = (u64::from(self.below(9)), u64::from(self.number()));
        match self.below(17) {
            16 => PairMessage::Bases(self.bases()),
            14 | 15 => PairMessage::Change { serial, change: self.member_change() },
            0..=2 => PairMessage::State { serial, state: Box::new(self.state()) },
            3 => PairMessage::Current { serial },
            4 => PairMessage::Stored { serial },
            5 => PairMessage::Missing,
            6 | 7 => PairMessage::Ask { call: self.told(), exempt: self.below(5) == 0 },
            8 => PairMessage::Waits { call },
            9 => PairMessage::Answer { call, verdict: self.verdict() },
            10 => PairMessage::Release { call },
            11 => PairMessage::List,
            12 => {
                let calls = (0..self.below(4)).map(|_| self.told()).collect();
                let (pending, last) = (self.below(2) == 0, self.below(2) == 0);
                PairMessage::Calls { calls, pending, last }
            }
            _ if self.below(2) == 0 => PairMessage::HandOver { serial },
            _ => PairMessage::Declined,
        }
    }

    fn bases(&mut self) -> Bases {
        let weights = (1..=self.below(4)).map(|segment| (segment, self.number()));
        Bases::new(weights.collect::<Vec<_>>())
    }

    fn state(&mut self) -> MemberState {
        let followed = (self.below(4) != 0).then(|| {
            let names = (self.below(2) == 0).then(|| {
                let name = |script: &mut Self| {
                    let number = script.number();
                    (number != 0).then_some(number)
                };
                (0..self.below(5)).map(|_| name(self)).collect()
            });
            Followed {
                stamp: self.stamp(),
                sight: Sight::Whole,
                document: 1,
                seq: self.number(),
                targets: self.some_numbers(),
                names,
                places: Vec::new(),
            }
        });
        MemberState {
            document: self.document.digest(),
            floor: (self.below(3) == 0).then(|| self.stamp()),
            settled: None,
            followed,
            caps: self.some_numbers(),
            reports: self.number(),
        }
    }

    fn member_change(&mut self) -> MemberChange {
        let (seq, settled, reports) = (self.number(), None, self.number());
        MemberChange { seq, settled, reports, caps: self.cells() }
    }

    fn told(&mut self) -> Told {
        let call = u64::from(self.below(9));
        Told { call, node: self.name(), direction: Direction::Outbound }
    }

    fn verdict(&mut self) -> Result<Granted, Denied> {
        match self.below(4) {
            0 => Ok(Granted { level: 9, over: Some(self.name()), again: false }),
            1 => Err(Denied::Unheard),
            2 => Err(Denied::Unknown),
            _ => Err(Denied::Full {
                node: self.name(),
                what: Full::Counter(Counter::Calls),
                limit: self.number(),
                share: self.number(),
                used: self.number(),
                elsewhere: None,
            }),
        }
    }

    fn column(&mut self) -> Column {
        let cell = |script: &mut Self| ColumnCell {
            node: script.name(),
            counter: Counter::ALL[script.below(3) as usize],
            target: script.number(),
        };
        let part = |script: &mut Self| ColumnPart {
            node: script.name(),
            per_second: script.number(),
            levels: [script.number(), script.number()],
        };
        Column {
            cells: (0..self.below(9)).map(|_| cell(self)).collect(),
            parts: (0..self.below(3)).map(|_| part(self)).collect(),
        }
    }

    fn recipe(&mut self) -> Recipe {
        Recipe {
            document: self.document.version(),
            digest: self.document.digest(),
            parts: self.parts(),
            sight: [Sight::Whole, Sight::Majority, Sight::Waiting, Sight::Minority]
                [self.below(4) as usize],
            eager: self.below(4) == 0,
        }
    }

    /// Segments by number or not, some of them twice.
    fn parts(&mut self) -> Vec<Part> {
        let part = |script: &mut Self| Part {
            segment: script.below(4),
            weight: script.number(),
            usual: script.number(),
            present: script.below(4) != 0,
        };
        (0..self.below(5)).map(|_| part(self)).collect()
    }

    fn stamp(&mut self) -> Stamp {
        let epoch = Epoch { term: u64::from(self.below(3)), ..Epoch::default() };
        Stamp { epoch, round: self.number() }
    }

    fn cells(&mut self) -> Vec<(u32, u32)> {
        (0..self.below(5)).map(|_| (self.number(), self.number())).collect()
    }

    fn some_numbers(&mut self) -> Vec<u32> {
        let own = u32::try_from(self.document.counters().len()).unwrap();
        let count = if self.below(2) == 0 { own } else { self.below(9) };
        (0..count).map(|_| self.number()).collect()
    }

    fn name(&mut self) -> String {
        NAMES[self.below(6) as usize].to_owned()
    }

    fn number(&mut self) -> u32 {
        NUMBERS[self.below(12) as usize]
    }

    fn below(&mut self, end: u32) -> u32 {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.dice ^ self.dice >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        u32::try_from((mixed >> 33) % u64::from(end.max(1))).unwrap()
    }
}

/// Documents of one to four tenants, the later the more, each with every kind of limit somewhere.
fn document(version: u64) -> Arc<Document> {
    let node = |place: usize| Node {
        name: NAMES[place].into(),
        parent: (place == 3).then(|| NAMES[2].into()),
        limits: Limits {
            calls: Some([3, u32::MAX, 5, 1][place]),
            burst: [(place == 0).then_some(9), None],
            inbound: (place.is_multiple_of(2)).then_some(2),
            per_second: (place == 2).then_some(9),
            ..Limits::default()
        },
        lending: Some([Lending::Hold, Lending::Tick, Lending::Hold, Lending::Off][place]),
        partition: Some([Partition::Full, Partition::WeightMajority][place % 2]),
        ..Node::default()
    };
    let first = usize::from(version.is_multiple_of(2));
    let last = (2 + usize::try_from(version).unwrap()).min(4);
    let tree = Tree::new((first..last).map(node).collect()).unwrap();
    Arc::new(Document::new(version, tree, Method::Dhondt))
}

#[expect(clippy::disallowed_methods, reason = "where time starts does not matter")]
fn now() -> Instant {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *START.get_or_init(Instant::now)
}
