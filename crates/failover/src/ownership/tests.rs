mod world;
mod worlds;

use super::*;
use crate::UnixMs;
use crate::voter::Voter;

#[test]
fn a_b2b_that_starts_owns_every_slot_when_its_gate_has_listened() {
    let mut run = Run::new();

    assert_eq!(run.owns(299), None);
    assert_eq!(run.owns(450), Some(SlotSet::ALL));
    assert!(run.b2b.may_act(run.now()));
    let reign = run.voter.map().get(Slot(7));
    assert_eq!(reign.map(|reign| reign.owner), Some(B2B));
    assert!(run.voter.accepts(run.now(), Slot(7), reign.map(|it| it.epoch).unwrap_or_default()));
}

/// Its pulse of the same moment is answered before its bid, and does not end the bid.
#[test]
fn a_b2b_whose_only_voter_is_in_its_process_wins_with_its_first_bid() {
    let mut run = Run::with_gate(B2B);

    assert_eq!(run.owns(350), Some(SlotSet::ALL));
    assert_eq!((run.b2b.counters().failures, run.b2b.counters().wins), (0, 1));
}

#[test]
fn an_owner_whose_pulses_are_not_answered_may_not_act_after_150_ms() {
    let mut run = Run::new();
    run.owns(1000);
    let epoch = run.b2b.map().get(Slot(0)).map(|reign| reign.epoch);

    run.is_cut = true;
    run.advance(100);
    assert!(run.b2b.may_act(run.now()));
    run.advance(51);
    assert!(!run.b2b.may_act(run.now()));
    assert_eq!(run.b2b.own(), SlotSet::ALL);

    run.is_cut = false;
    run.advance(60);
    assert!(run.b2b.may_act(run.now()));
    assert_eq!(run.b2b.map().get(Slot(0)).map(|reign| reign.epoch), epoch);
}

#[test]
fn pulses_say_when_nothing_comes_back_of_who_gets_them() {
    let mut run = Run::new();
    run.owns(1000);
    assert_eq!(run.said_deaf, Some(false));
    run.is_cut = true;
    run.advance(140);
    assert_eq!(run.said_deaf, Some(false));
    run.advance(61);
    assert_eq!(run.said_deaf, Some(true));
    run.is_cut = false;
    run.advance(101);
    assert_eq!(run.said_deaf, Some(false));

    // Not before there was time for an answer.
    run.is_cut = true;
    run.restart();
    run.advance(140);
    assert_eq!(run.said_deaf, Some(false));
    run.advance(61);
    assert_eq!(run.said_deaf, Some(true));
}

#[test]
fn an_owner_without_a_lease_for_300_ms_wins_its_slots_anew() {
    let mut run = Run::new();
    run.owns(1000);
    let before = run.b2b.map().get(Slot(0)).map(|reign| reign.epoch);

    run.is_cut = true;
    run.advance(400);
    run.is_cut = false;
    run.advance(60);

    assert!(run.b2b.may_act(run.now()));
    assert!(before < run.b2b.map().get(Slot(0)).map(|reign| reign.epoch));
    assert_eq!((run.b2b.counters().wins, run.b2b.counters().takeovers), (2, 0));
}

#[test]
fn a_b2b_that_comes_back_leaves_its_slots_to_its_standby() {
    let mut run = Run::new();
    run.owns(1000);
    let reign = Reign { owner: B2B, standby: Some(OTHER), epoch: Epoch(1_800_000_500) };
    run.voter.name(run.now(), B2B, &SlotMap::whole(reign));

    run.restart();
    assert_eq!(run.owns(900), None);
    assert_eq!(run.owns(400), Some(SlotSet::ALL));
}

#[test]
fn pulses_of_two_b2bs_fall_together_and_come_no_later_for_it() {
    let mut run = Run::new();
    run.owns(1000);
    let (node, boot) = (OTHER, Boot(1));
    let claims = vec![];
    let pulse = Pulse { node, boot, stamp: 0, holds: false, draining: false, deaf: false, claims };
    let due_at = |run: &Run| run.b2b.poll_timeout().expect("the next pulse");
    while due_at(&run) != run.now() + pulse::PERIOD {
        run.advance(1);
    }
    let due = due_at(&run);

    run.advance(25);
    run.b2b.handle_input(run.now(), Input::Pulse(pulse.clone()));
    assert_eq!(due_at(&run), due, "it has just sent its own");
    run.advance(1);
    run.b2b.handle_input(run.now(), Input::Pulse(pulse));
    assert_eq!(due_at(&run), run.now());
    run.b2b.handle_timeout(run.now());
    assert_eq!(due_at(&run), run.now() + pulse::PERIOD);
}

const B2B: NodeId = NodeId(1);
const OTHER: NodeId = NodeId(2);
const GATE: NodeId = NodeId(11);

/// One b2b and one gate, between which nothing takes any time.
struct Run {
    origin: Instant,
    ms: u64,
    /// [`GATE`], or the b2b's own node.
    gate: NodeId,
    b2b: Ownership,
    voter: Voter,
    is_cut: bool,
    /// What the last pulse to the gate said.
    said_deaf: Option<bool>,
    won: Option<SlotSet>,
}

impl Run {
    fn new() -> Self {
        Self::with_gate(GATE)
    }

    #[expect(clippy::disallowed_methods, reason = "an origin for the test")]
    fn with_gate(gate: NodeId) -> Self {
        let origin = Instant::now();
        let mut run = Self {
            origin,
            ms: 0,
            gate,
            b2b: Ownership::new(origin, config(origin, 1, gate)),
            voter: Voter::new(origin, gate, Boot(1)),
            is_cut: false,
            said_deaf: None,
            won: None,
        };
        run.link();
        run
    }

    fn restart(&mut self) {
        self.b2b = Ownership::new(self.now(), config(self.now(), 2, self.gate));
        self.won = None;
        self.link();
    }

    fn link(&mut self) {
        if self.gate != B2B {
            self.b2b.handle_input(self.now(), Input::LinkUp { peer: self.gate, boot: Boot(1) });
            let map = self.voter.map().clone();
            self.b2b.handle_input(self.now(), Input::Map { from: self.gate, map });
        }
        self.drain();
    }

    fn now(&self) -> Instant {
        self.origin + Duration::from_millis(self.ms)
    }

    fn owns(&mut self, ms: u64) -> Option<SlotSet> {
        self.advance(ms);
        self.won.take()
    }

    fn advance(&mut self, ms: u64) {
        for _ in 0..ms {
            self.ms += 1;
            self.b2b.handle_timeout(self.now());
            assert!(self.b2b.poll_timeout().is_some_and(|at| self.now() < at));
            self.drain();
        }
    }

    fn drain(&mut self) {
        while let Some(output) = self.b2b.poll_output() {
            let (now, gate, is_cut) = (self.now(), self.gate, self.is_cut);
            if let Output::Pulse { to, pulse } = &output
                && *to == gate
            {
                self.said_deaf = Some(pulse.deaf);
            }
            match output {
                Output::Own { slots, .. } => self.won = Some(slots),
                Output::Pulse { to, pulse } if to == gate && !is_cut => {
                    let back = self.voter.pulse(now, &pulse);
                    self.b2b.handle_input(now, Input::Back(back));
                }
                Output::Bid { to, bid } if to == gate && !is_cut => {
                    let vote = self.voter.bid(now, &bid);
                    self.b2b.handle_input(now, Input::Vote { from: gate, vote });
                }
                Output::Map { to, map } if to == gate && !is_cut => {
                    self.voter.name(now, B2B, &map);
                }
                Output::Pulse { .. }
                | Output::Bid { .. }
                | Output::Map { .. }
                | Output::Lose { .. }
                | Output::Standby { .. }
                | Output::HandOver { .. } => {}
            }
        }
    }
}

fn config(now: Instant, boot: u64, gate: NodeId) -> Config {
    let member = |standby| Member { standby, host: String::new() };
    Config {
        node: B2B,
        boot: Boot(boot),
        clock: Clock { instant: now, unix_ms: UnixMs(1_800_000_000_000) },
        gates: [gate].into(),
        witness: None,
        b2bs: [(B2B, member(false)), (OTHER, member(true))].into(),
    }
}
