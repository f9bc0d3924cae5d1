use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::message::{Addressed, Answer, Election, Envelope, LinkState, LinkStates, Victory};
use crate::tests::{node, origin};
use crate::{Life, segments};

#[test]
fn nothing_leaves_before_the_boot_counter_is_on_disk() {
    let mut run = Run::new(None);

    let stored = Stored { incarnation: 1, promised: None };
    assert_eq!(run.drain(), [Output::Persist { serial: 1, stored }]);
    run.advance(3_000);
    assert_eq!(run.drain(), []);
    run.input(Input::Persisted(1));
    assert!(matches!(run.drain()[..], [Output::Send { frame: Frame::Heartbeat(_), .. }, ..]));
}

#[test]
fn each_life_counts_its_boot() {
    let promised = Some(epoch(7, node(1, 1)));
    let mut run = Run::new(Some(Stored { incarnation: 4, promised }));

    let stored = Stored { incarnation: 5, promised };
    assert_eq!(run.drain(), [Output::Persist { serial: 1, stored }]);
}

#[test]
fn a_victory_is_followed_once_the_promise_is_on_disk() {
    let mut run = Run::settled(&[node(1, 1)]);

    run.victory(epoch(7, node(1, 1)), &[node(1, 1), node(2, 1)]);

    let outputs = run.drain();
    let [Output::Persist { serial, stored }] = outputs[..] else { panic!("{outputs:?}") };
    assert_eq!(stored.promised, Some(epoch(7, node(1, 1))));
    run.input(Input::Persisted(serial));
    let members = [node(1, 1), node(2, 1)].into();
    let mandate = Mandate { epoch: epoch(7, node(1, 1)), members };
    let follow = Output::Follow { mandate, shares: BTreeSet::new() };
    assert!(run.drain().contains(&follow));
}

#[test]
fn an_epoch_below_the_promise_is_refused_and_the_promised_one_named() {
    let mut run = Run::settled(&[node(1, 1)]);
    run.victory(epoch(7, node(1, 1)), &[node(1, 1), node(2, 1)]);
    run.keep();

    run.victory(epoch(6, node(1, 1)), &[node(1, 1), node(2, 1)]);

    let nacks: Vec<_> = run
        .keep()
        .into_iter()
        .filter_map(|output| {
            let Output::Send { frame: Frame::Nack(nack), .. } = output else { return None };
            Some(nack.body)
        })
        .collect();
    let [nack] = nacks[..] else { panic!("{nacks:?}") };
    assert_eq!((nack.epoch.term, nack.promised.term), (6, 7));
}

#[test]
fn a_victory_from_outside_the_island_changes_nothing() {
    let mut run = Run::settled(&[node(1, 1)]);
    run.advance(6_000);
    run.keep();

    let origin = node(3, 1);
    let mandate = Mandate { epoch: epoch(7, origin), members: [origin, node(2, 1)].into() };
    run.told(node(1, 1), origin, |envelope| {
        Frame::Victory(Addressed { envelope, body: Victory(mandate) })
    });

    assert_eq!(run.elector.mandate().map(|mandate| mandate.epoch.term), Some(1));
}

#[test]
fn an_election_of_a_lower_node_is_answered_and_starts_nothing() {
    let mut run = Run::settled(&[node(1, 1)]);

    run.told(node(1, 1), node(1, 1), |envelope| {
        Frame::Election(Addressed { envelope, body: Election { nonce: 5 } })
    });

    let sends: Vec<_> = run
        .keep()
        .into_iter()
        .filter_map(|output| {
            let Output::Send { to, frame } = output else { return None };
            let Frame::Answer(answer) = frame else { panic!("{frame:?} is no answer") };
            Some((to, answer.body))
        })
        .collect();
    assert_eq!(sends, [(node(1, 1), Answer { nonce: 5, promised: None, lower: false })]);
}

#[test]
fn a_message_is_obeyed_once_and_an_earlier_life_never() {
    let mut run = Run::settled(&[node(1, 1)]);
    let election = |incarnation, seq| {
        let life = Life { incarnation, instance: 11 };
        let envelope = Envelope { origin: node(1, 1), life, seq, to: node(2, 1) };
        Frame::Election(Addressed { envelope, body: Election { nonce: 5 } })
    };
    let answers = |run: &mut Run, frame| {
        run.input(Input::Frame { from: node(1, 1), frame });
        let outputs = run.keep();
        let is_answer = |it: &&Output| matches!(it, Output::Send { frame: Frame::Answer(_), .. });
        outputs.iter().filter(is_answer).count()
    };

    assert_eq!(answers(&mut run, election(1, 100)), 1);
    assert_eq!(answers(&mut run, election(1, 100)), 0);
    assert_eq!(answers(&mut run, election(0, 101)), 0);
}

#[test]
fn a_message_to_another_is_told_on_where_its_receiver_is() {
    let mut run = Run::settled(&[node(1, 1), node(3, 1)]);
    let life = Life { incarnation: 1, instance: 11 };
    let envelope = Envelope { origin: node(1, 1), life, seq: 100, to: node(3, 1) };
    let frame = Frame::Election(Addressed { envelope, body: Election { nonce: 5 } });

    run.input(Input::Frame { from: node(1, 1), frame: frame.clone() });

    assert_eq!(run.keep(), [Output::Send { to: node(3, 1), frame }]);
}

#[test]
fn frames_of_strangers_and_frames_that_name_too_much_are_ignored() {
    let mut run = Run::settled(&[node(1, 1)]);
    let before = run.elector.bully.clone();
    let state = |origin: NodeId, neighbours, promised| {
        let life = Life { incarnation: 9, instance: 9 };
        LinkState { neighbours, promised, ..LinkState::empty(origin, life) }
    };
    let many: BTreeSet<NodeId> = (0..300).map(|segment| node(segment, 1)).collect();
    let frames = [
        (node(77, 1), state(node(77, 1), BTreeSet::new(), None)),
        (node(1, 1), state(node(1, 1), many, None)),
        (node(1, 1), state(node(1, 1), BTreeSet::new(), Some(epoch(u64::MAX, node(1, 1))))),
    ];

    for (from, state) in frames {
        run.input(Input::Frame { from, frame: Frame::LinkStates(LinkStates(vec![state])) });
    }
    let forged = epoch(7, node(1, 1));
    run.told(node(1, 1), node(3, 1), |envelope| {
        let mandate = Mandate { epoch: forged, members: [node(2, 1)].into() };
        Frame::Victory(Addressed { envelope, body: Victory(mandate) })
    });

    assert_eq!(run.elector.bully, before);
}

#[test]
fn a_late_heartbeat_does_not_bring_an_old_list_back() {
    let mut run = Run::settled(&[node(1, 1)]);

    run.beat(node(1, 1), 50, &[node(2, 1)]);
    run.beat(node(1, 1), 49, &[]);
    assert!(run.elector.neighbours().contains(&node(1, 1)));
    run.beat(node(1, 1), 51, &[]);
    assert!(!run.elector.neighbours().contains(&node(1, 1)), "it does not hear this node");
}

#[test]
fn a_life_that_lost_its_file_is_told_of_one_that_was_only_heard() {
    let mut run = Run::settled(&[node(1, 1)]);
    let beat = |life| Act::Beat { from: node(3, 1), life, seq: 1, heard: BTreeSet::new() };

    // The second life dies before it has said more, the third starts to count anew.
    let second = Life { incarnation: 2, instance: 12 };
    run.play(beat(second));
    run.keep();
    run.play(beat(Life { incarnation: 1, instance: 13 }));

    let state = LinkState::empty(node(3, 1), second);
    let frame = Frame::LinkStates(LinkStates(vec![state]));
    assert_eq!(run.keep(), [Output::Send { to: node(3, 1), frame }]);
}

#[test]
fn cold_segments_get_shares_when_their_coordinator_decides_so() {
    let mut run = Run::new(None);
    let peers: BTreeSet<NodeId> = [node(1, 1), node(3, 1)].into();
    let cold = [(Segment(2), Cold::default())].into();
    run.input(Input::Configured { peers, cold });
    run.keep();

    run.advance(12_000);
    let leads = |outputs: Vec<Output>| {
        let lead = outputs.into_iter().find_map(|output| {
            let Output::Lead { mandate, shares } = output else { return None };
            Some((mandate, shares))
        });
        lead.unwrap()
    };
    let (mandate, shares) = leads(run.keep());
    assert_eq!(segments(&mandate.members), [Segment(2)].into());
    assert_eq!(shares, [Segment(2)].into(), "the hot segments are away");
}

#[test]
fn a_handled_timeout_is_never_due_again_and_calls_at_other_times_do_nothing() {
    let mut run = Run::settled(&[node(1, 1), node(3, 1)]);

    for _ in 0..200 {
        let due = run.elector.poll_timeout().unwrap();
        run.elector.handle_timeout(due - Duration::from_micros(1));
        run.keep();
        assert_eq!(run.elector.poll_timeout(), Some(due));
        run.now = due;
        run.elector.handle_timeout(due);
        run.keep();
        assert!(run.elector.poll_timeout().is_some_and(|next| due < next));
        let outputs = run.elector.sends.len();
        run.elector.handle_timeout(due);
        assert_eq!(run.elector.sends.len(), outputs);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_script_of_frames_breaks_the_promise_or_the_contract(
        script in proptest::collection::vec(step(), 1..80)
    ) {
        let mut run = Run::new(None);
        let mut told: Option<Epoch> = None;
        for step in script {
            run.advance(step.wait);
            run.play(step.act);
            for output in run.keep() {
                let (Output::Lead { mandate, .. } | Output::Follow { mandate, .. }) = output else {
                    continue;
                };
                let epoch = mandate.epoch;
                prop_assert!(told <= Some(epoch), "{told:?} then {epoch:?}");
                told = Some(epoch);
            }
            let due = run.elector.poll_timeout();
            prop_assert!(due.is_some() || run.elector.withdrawn);
            run.elector.handle_timeout(run.now);
            let due = run.elector.poll_timeout();
            prop_assert!(due.is_none_or(|due| run.now < due));
        }
    }
}

#[derive(Clone, Debug)]
struct Step {
    wait: u64,
    act: Act,
}

#[derive(Clone, Debug)]
enum Act {
    Beat { from: NodeId, life: Life, seq: u64, heard: BTreeSet<NodeId> },
    State(NodeId, LinkState),
    Election(NodeId, Life, u64),
    Answer(NodeId, Life, u64, Answer),
    Victory(NodeId, Life, u64, Mandate),
}

fn step() -> impl Strategy<Value = Step> {
    (prop_oneof![0..200_u64, Just(1_000), Just(5_000)], act())
        .prop_map(|(wait, act)| Step { wait, act })
}

fn act() -> impl Strategy<Value = Act> {
    let life = || {
        (1..4_u64, prop_oneof![Just(11_u128), Just(12), Just(99)])
            .prop_map(|(incarnation, instance)| Life { incarnation, instance })
    };
    let nodes = || proptest::collection::btree_set(any_node(), 0..4);
    let mandate = || {
        (any_node(), 1..6_u64, life(), nodes()).prop_map(|(coordinator, term, life, members)| {
            Mandate { epoch: Epoch { term, coordinator, life }, members }
        })
    };
    let promised = || proptest::option::of(mandate().prop_map(|mandate| mandate.epoch));
    let state = (any_node(), life(), 1..9_u64, nodes(), any::<bool>(), promised());
    prop_oneof![
        4 => (any_node(), life(), 1..99_u64, nodes())
            .prop_map(|(from, life, seq, heard)| Act::Beat { from, life, seq, heard }),
        3 => (any_node(), state, proptest::option::of(mandate())).prop_map(
            |(from, (origin, life, version, neighbours, electable, promised), leads)| {
                let leads = leads.filter(|leads| leads.epoch.coordinator == origin);
                let turn = (version % 3 == 0).then_some(version);
                let (said, empty) = (LinkState::empty(origin, life), leads);
                let state = LinkState { version, neighbours, electable, promised, turn, ..said };
                Act::State(from, LinkState { leads: empty, ..state })
            }
        ),
        1 => (any_node(), life(), 1..99_u64).prop_map(|(of, life, seq)| Act::Election(of, life, seq)),
        2 => (any_node(), life(), 1..99_u64, 1..4_u64, promised(), any::<bool>()).prop_map(
            |(of, life, seq, nonce, promised, lower)| {
                Act::Answer(of, life, seq, Answer { nonce, promised, lower })
            }
        ),
        2 => (any_node(), life(), 1..99_u64, mandate())
            .prop_map(|(of, life, seq, mandate)| Act::Victory(of, life, seq, mandate)),
    ]
}

fn any_node() -> impl Strategy<Value = NodeId> {
    (1..4_u16, 1..3_u8).prop_map(|(segment, rm)| node(segment, rm))
}

fn epoch(term: u64, coordinator: NodeId) -> Epoch {
    Epoch { term, coordinator, life: Life { incarnation: 1, instance: 11 } }
}

/// The node 2/1, whose peers the tests play.
struct Run {
    elector: Elector,
    now: Instant,
    seq: u64,
}

impl Run {
    fn new(stored: Option<Stored>) -> Self {
        let now = origin();
        let peers = [node(1, 1), node(1, 2), node(2, 2), node(3, 1), node(3, 2)].into();
        let config =
            Config { id: node(2, 1), peers, cold: BTreeMap::new(), timing: Timing::default() };
        Self { elector: Elector::new(config, stored, 21, now), now, seq: 0 }
    }

    /// Its boot is over, and links to these peers are up, which are not electable yet.
    fn settled(peers: &[NodeId]) -> Self {
        let mut run = Self::new(None);
        run.keep();
        for &peer in peers {
            run.beat(peer, 1, &[node(2, 1)]);
            let life = Life { incarnation: 1, instance: 11 };
            let neighbours = [node(2, 1)].into();
            let state = LinkState { neighbours, ..LinkState::empty(peer, life) };
            let frame = Frame::LinkStates(LinkStates(vec![state]));
            run.input(Input::Frame { from: peer, frame });
        }
        run.keep();
        run
    }

    fn input(&mut self, input: Input) {
        self.elector.handle_input(self.now, input);
    }

    fn advance(&mut self, ms: u64) {
        let until = self.now + Duration::from_millis(ms);
        while let Some(due) = self.elector.poll_timeout().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.elector.handle_timeout(self.now);
        }
        self.now = until;
    }

    fn drain(&mut self) -> Vec<Output> {
        std::iter::from_fn(|| self.elector.poll_output()).collect()
    }

    /// Writes what is asked for at once; returns everything else.
    fn keep(&mut self) -> Vec<Output> {
        let mut outputs = Vec::new();
        while let Some(output) = self.elector.poll_output() {
            if let Output::Persist { serial, .. } = output {
                self.input(Input::Persisted(serial));
            } else {
                outputs.push(output);
            }
        }
        outputs
    }

    fn beat(&mut self, from: NodeId, seq: u64, heard: &[NodeId]) {
        let life = Life { incarnation: 1, instance: 11 };
        self.play(Act::Beat { from, life, seq, heard: heard.iter().copied().collect() });
    }

    fn victory(&mut self, epoch: Epoch, members: &[NodeId]) {
        let mandate = Mandate { epoch, members: members.iter().copied().collect() };
        self.told(epoch.coordinator, epoch.coordinator, |envelope| {
            Frame::Victory(Addressed { envelope, body: Victory(mandate) })
        });
    }

    /// A message of `origin` comes on the link to `from`.
    fn told(&mut self, from: NodeId, origin: NodeId, frame: impl FnOnce(Envelope) -> Frame) {
        self.seq += 1;
        let life = Life { incarnation: 1, instance: 11 };
        let envelope = Envelope { origin, life, seq: self.seq, to: node(2, 1) };
        self.input(Input::Frame { from, frame: frame(envelope) });
    }

    fn play(&mut self, act: Act) {
        let envelope = |origin, life, seq| Envelope { origin, life, seq, to: node(2, 1) };
        let (from, frame) = match act {
            Act::Beat { from, life, seq, heard } => {
                let digest = self.elector.bully.links().digest();
                (from, Frame::Heartbeat(Heartbeat { life, seq, heard, digest }))
            }
            Act::State(from, state) => (from, Frame::LinkStates(LinkStates(vec![state]))),
            Act::Election(of, life, seq) => {
                let envelope = envelope(of, life, seq);
                (of, Frame::Election(Addressed { envelope, body: Election { nonce: 1 } }))
            }
            Act::Answer(of, life, seq, body) => {
                (of, Frame::Answer(Addressed { envelope: envelope(of, life, seq), body }))
            }
            Act::Victory(of, life, seq, mut mandate) => {
                mandate.epoch.coordinator = of;
                let envelope = envelope(of, life, seq);
                (of, Frame::Victory(Addressed { envelope, body: Victory(mandate) }))
            }
        };
        self.input(Input::Frame { from, frame });
    }
}
