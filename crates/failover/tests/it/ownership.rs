//! All interleavings of one slot with two b2bs and two to four voters, at the promises and the lease of
//! the product: one to three gates, with and without a witness.
//!
//! Any pulse, answer, bid, vote or map may be lost: cuts of any kind, and pauses, are runs of losses.
//! Time goes in steps of 150 ms, a whole lease; the state holds ages only, so it is finite without a last moment.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use failover::ownership::{answers_needed, lease_until, majority};
use failover::pulse::{Pulse, Standing};
use failover::voter::{Bid, Gone, Promise, SILENCE};
use failover::{Boot, Epoch, NodeId, SlotSet};
use stateright::{Checker, Model, Property};

#[test]
fn phones_never_hear_two_b2bs_for_one_slot() {
    for (bids_max, restarts_max) in [(2, 0), (1, 1)] {
        assert_one(Segment::new(THREE, bids_max, restarts_max, None));
    }
}

/// Who restarts has forgotten what it promised, and takes frames of no slot for 300 ms.
#[test]
fn a_forgetful_voter_of_two_or_four_lets_no_second_b2b_be_heard() {
    assert_one(Segment::new(ONE_GATE, 2, 1, None));
    assert_one(Segment::new(FOUR, 1, 1, None));
}

/// Why two b2bs with two gates need a witness.
#[test]
fn two_gates_alone_would_let_two_b2bs_be_heard_when_one_of_them_forgets() {
    let checker = Segment::new(TWO, 1, 1, None).checker().spawn_bfs().join();
    assert!(checker.discovery(ONE).is_some());
    assert_one(Segment::new(TWO, 2, 0, None));
}

#[test]
fn two_b2bs_would_be_heard_if_owners_did_not_look_at_their_lease() {
    assert_caught(THREE, 1, 0, Mutant::NoLease);
}

#[test]
fn two_b2bs_would_be_heard_if_gates_promised_nothing() {
    assert_caught(THREE, 2, 0, Mutant::NoPromise);
}

#[test]
fn two_b2bs_would_be_heard_if_a_standby_acted_early() {
    assert_caught(THREE, 1, 0, Mutant::Early);
}

#[test]
fn two_b2bs_would_be_heard_if_any_answer_prolonged_a_lease() {
    assert_caught(THREE, 1, 0, Mutant::AnyAnswer);
}

#[test]
fn two_b2bs_would_be_heard_if_a_voter_that_restarts_took_frames_at_once() {
    for layout in [TWO, THREE, FOUR] {
        assert_caught(layout, 1, 1, Mutant::Hasty);
    }
}

fn assert_one(segment: Segment) {
    segment.checker().spawn_bfs().join().assert_properties();
}

fn assert_caught(layout: Layout, bids_max: u8, restarts_max: u8, mutant: Mutant) {
    let segment = Segment::new(layout, bids_max, restarts_max, Some(mutant));
    let checker = segment.checker().spawn_bfs().join();
    assert!(checker.discovery(ONE).is_some(), "{mutant:?} was not caught in {layout:?}");
}

/// The first voters are gates.
#[derive(Clone, Copy, Debug)]
struct Layout {
    voters: usize,
    gates: usize,
}

/// One gate and a witness.
const ONE_GATE: Layout = Layout { voters: 2, gates: 1 };
const TWO: Layout = Layout { voters: 2, gates: 2 };
const THREE: Layout = Layout { voters: 3, gates: 2 };
const FOUR: Layout = Layout { voters: 4, gates: 3 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    /// An owner acts without a lease.
    NoLease,
    /// Voters grant and go on as before.
    NoPromise,
    /// Voters do not wait until the owner is silent.
    Early,
    /// What a voter says of the claim does not matter.
    AnyAnswer,
    /// Voters that restart do not listen first.
    Hasty,
}

struct Segment {
    /// The present moment of every state.
    now: Instant,
    layout: Layout,
    bids_max: u8,
    restarts_max: u8,
    mutant: Option<Mutant>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    voters: Vec<Voter>,
    b2bs: [B2b; 2],
    /// Which b2b gave the slot away, and the epoch at which it had it.
    yielded: Option<(usize, Epoch)>,
    bids: u8,
    restarts: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Voter {
    promise: Promise,
    opens_at: Option<Instant>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct B2b {
    owns: Option<Epoch>,
    acked_at: Vec<Option<Instant>>,
    round: Option<Round>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Round {
    epoch: Epoch,
    sent_at: Instant,
    gone: Gone,
    asked: Vec<bool>,
    granted: Vec<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// Time passes.
    Tick,
    /// An owner's pulse arrives at a voter, and its answer does, or is lost.
    Pulse {
        b2b: usize,
        voter: usize,
        answered: bool,
    },
    Bid {
        b2b: usize,
    },
    /// A bid arrives at a voter, and the vote does, or is lost.
    Vote {
        b2b: usize,
        voter: usize,
        answered: bool,
    },
    Win {
        b2b: usize,
    },
    /// An owner tells a voter what it owns.
    Name {
        b2b: usize,
        voter: usize,
    },
    /// A b2b learns that the other owns its slot.
    Lose {
        b2b: usize,
    },
    Yield {
        b2b: usize,
    },
    Restart {
        voter: usize,
    },
}

impl Segment {
    #[expect(clippy::disallowed_methods, reason = "an origin for the test")]
    fn new(layout: Layout, bids_max: u8, restarts_max: u8, mutant: Option<Mutant>) -> Self {
        Self { now: Instant::now(), layout, bids_max, restarts_max, mutant }
    }

    fn voters(&self) -> std::ops::Range<usize> {
        0..self.layout.voters
    }

    fn may_act(&self, b2b: &B2b) -> bool {
        let until =
            lease_until(b2b.acked_at.iter().flatten().copied(), answers_needed(self.layout.voters));
        self.mutant == Some(Mutant::NoLease) || until.is_some_and(|until| self.now < until)
    }

    fn is_open(&self, voter: &Voter) -> bool {
        voter.opens_at.is_none_or(|at| at <= self.now)
    }

    /// Returns whether phones hear a b2b.
    fn is_heard(&self, state: &State, b2b: &B2b) -> bool {
        let Some(epoch) = b2b.owns.filter(|_| self.may_act(b2b)) else { return false };
        state.voters[..self.layout.gates].iter().any(|gate| {
            let passes = gate.promise.passes(self.now, epoch);
            self.is_open(gate) && (passes || self.mutant == Some(Mutant::NoPromise))
        })
    }

    fn pulse(&self, state: &mut State, b2b: usize, voter: usize, answered: bool) {
        let Some(epoch) = state.b2bs[b2b].owns else { return };
        let pulse = Pulse {
            node: id(b2b),
            boot: Boot(1),
            stamp: 0,
            holds: self.may_act(&state.b2bs[b2b]),
            draining: false,
            deaf: false,
            claims: Vec::new(),
        };
        let is_open = self.is_open(&state.voters[voter]);
        let standing = state.voters[voter].promise.claim(self.now, &pulse, epoch);
        let passes = is_open && standing == Standing::Passes;
        if answered && (passes || self.mutant == Some(Mutant::AnyAnswer)) {
            state.b2bs[b2b].acked_at[voter] = Some(self.now);
        }
    }

    fn vote(&self, state: &mut State, b2b: usize, voter: usize, answered: bool) {
        let Some(round) = &mut state.b2bs[b2b].round else { return };
        round.asked[voter] = true;
        let bid = Bid {
            node: id(b2b),
            boot: Boot(1),
            round: 1,
            trial: false,
            slots: SlotSet::EMPTY,
            epoch: round.epoch,
            known: round.epoch,
            owner: Some(id(1 - b2b)),
            gone: round.gone,
        };
        let asked = &mut state.voters[voter];
        if !self.is_open(asked) || bid.epoch <= asked.promise.epoch() {
            return;
        }
        let left = asked.promise.kept_for(self.now, self.now - 2 * SILENCE, &bid, &BTreeMap::new());
        let left = match self.mutant {
            Some(Mutant::Early) => None,
            Some(Mutant::NoLease | Mutant::NoPromise | Mutant::AnyAnswer | Mutant::Hasty)
            | None => left,
        };
        if left.is_some() {
            return;
        }
        if self.mutant != Some(Mutant::NoPromise) {
            asked.promise.promise(self.now, &bid);
        }
        round.granted[voter] = answered;
    }

    fn win(&self, state: &mut State, b2b: usize) {
        let Some(round) = state.b2bs[b2b].round.take() else { return };
        state.b2bs[b2b].owns = Some(round.epoch);
        for voter in self.voters().filter(|voter| round.granted[*voter]) {
            let acked_at = &mut state.b2bs[b2b].acked_at[voter];
            *acked_at = (*acked_at).max(Some(round.sent_at));
        }
    }

    /// Makes everything one step older, and forgets what is too old to matter.
    fn tick(&self, state: &mut State) {
        for voter in &mut state.voters {
            voter.promise = voter.promise.aged(self.now, TICK);
            voter.opens_at = voter.opens_at.map(|at| at - TICK).filter(|at| self.now < *at);
        }
        for b2b in &mut state.b2bs {
            for acked_at in &mut b2b.acked_at {
                let until = |at: &Instant| lease_until([*at], 1);
                *acked_at = acked_at
                    .map(|at| at - TICK)
                    .filter(|at| until(at).is_some_and(|until| self.now < until));
            }
            b2b.round = b2b.round.take().and_then(|round| {
                let sent_at = round.sent_at - TICK;
                (self.now <= sent_at + VALID).then_some(Round { sent_at, ..round })
            });
        }
    }
}

impl Model for Segment {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut state = State {
            voters: vec![Voter::default(); self.layout.voters],
            b2bs: [(); 2]
                .map(|()| B2b { acked_at: vec![None; self.layout.voters], ..B2b::default() }),
            yielded: None,
            bids: 0,
            restarts: 0,
        };
        state.b2bs[0].round = Some(Round {
            epoch: Epoch(1),
            sent_at: self.now,
            gone: Gone::Silent,
            asked: vec![false; self.layout.voters],
            granted: vec![false; self.layout.voters],
        });
        self.voters().for_each(|voter| self.vote(&mut state, 0, voter, true));
        self.win(&mut state, 0);
        if self.mutant == Some(Mutant::NoPromise) {
            self.voters()
                .for_each(|voter| state.voters[voter].promise.name(self.now, id(0), Epoch(1)));
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.push(Action::Tick);
        for (b2b, it) in state.b2bs.iter().enumerate() {
            if let Some(epoch) = it.owns {
                for voter in self.voters() {
                    let pulse = |answered| Action::Pulse { b2b, voter, answered };
                    actions.extend([pulse(true), pulse(false), Action::Name { b2b, voter }]);
                }
                if state.b2bs[1 - b2b].owns.is_some_and(|other| epoch < other) {
                    actions.push(Action::Lose { b2b });
                }
                if state.yielded.is_none() {
                    actions.push(Action::Yield { b2b });
                }
            }
            if state.bids < self.bids_max && it.round.is_none() {
                actions.push(Action::Bid { b2b });
            }
            if let Some(round) = &it.round {
                for voter in self.voters().filter(|voter| !round.asked[*voter]) {
                    let vote = |answered| Action::Vote { b2b, voter, answered };
                    actions.extend([vote(true), vote(false)]);
                }
                if majority(self.layout.voters)
                    <= round.granted.iter().filter(|granted| **granted).count()
                {
                    actions.push(Action::Win { b2b });
                }
            }
        }
        if state.restarts < self.restarts_max {
            actions.extend(self.voters().map(|voter| Action::Restart { voter }));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => self.tick(&mut state),
            Action::Pulse { b2b, voter, answered } => self.pulse(&mut state, b2b, voter, answered),
            Action::Bid { b2b } => {
                state.bids += 1;
                // Above all that is known, and no other's.
                let epoch = Epoch(u32::from(state.bids) + 1);
                let given = state.yielded.filter(|(from, _)| *from != b2b);
                let gone = given.map_or(Gone::Silent, |(_, epoch)| Gone::Yields(epoch));
                let none = vec![false; self.layout.voters];
                let (asked, granted) = (none.clone(), none);
                let round = Round { epoch, sent_at: self.now, gone, asked, granted };
                state.b2bs[b2b].round = Some(round);
            }
            Action::Vote { b2b, voter, answered } => self.vote(&mut state, b2b, voter, answered),
            Action::Win { b2b } => self.win(&mut state, b2b),
            Action::Name { b2b, voter } => {
                let epoch = state.b2bs[b2b].owns?;
                state.voters[voter].promise.name(self.now, id(b2b), epoch);
            }
            Action::Lose { b2b } => state.b2bs[b2b].owns = None,
            Action::Yield { b2b } => {
                state.yielded = Some((b2b, state.b2bs[b2b].owns.take()?));
            }
            Action::Restart { voter } => {
                state.restarts += 1;
                let opens_at =
                    Some(self.now + SILENCE).filter(|_| self.mutant != Some(Mutant::Hasty));
                state.voters[voter] = Voter { promise: Promise::default(), opens_at };
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE, |model: &Self, state: &State| {
                state.b2bs.iter().filter(|b2b| model.is_heard(state, b2b)).count() < 2
            }),
            Property::sometimes("the standby takes over", |model: &Self, state: &State| {
                model.is_heard(state, &state.b2bs[1])
            }),
        ]
    }
}

fn id(b2b: usize) -> NodeId {
    NodeId(u16::try_from(b2b).unwrap() + 1)
}

const ONE: &str = "phones hear one b2b at most";
const TICK: Duration = Duration::from_millis(150);
const VALID: Duration = Duration::from_millis(100);
