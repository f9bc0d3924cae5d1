use std::collections::BTreeSet;
use std::net::SocketAddr;

use proptest::prelude::*;

use super::*;
use crate::controller::{self, Controller, Introduce};

mod returns;

#[test]
fn proof_is_believed_at_once_and_acted_on_once_whoever_says_it_first() {
    let mut world = World::started();
    world.refuse_at_b2b(10);
    assert_eq!(world.deaths(), [10]);

    world.refuse_at_controller(1, 10);
    world.refuse_at_controller(2, 10);
    world.advance(3000);
    assert_eq!(world.deaths(), []);

    world.refuse_at_controller(2, 11);
    world.refuse_at_b2b(11);
    assert_eq!(world.deaths(), [11]);
}

#[test]
fn a_gateway_that_nobody_hears_is_dead_after_its_silence() {
    let mut world = World::started();
    world.beat(10);
    world.stopped.insert(10);

    world.advance(99);
    assert_eq!(world.deaths(), []);
    world.advance(21);
    assert_eq!(world.deaths(), [10]);
    world.advance(5000);
    assert_eq!(world.deaths(), []);
}

#[test]
fn a_b2b_alone_calls_nobody_dead_for_silence() {
    let mut world = World::started();
    world.lose_controller(1);
    world.lose_controller(2);
    world.stopped.insert(10);

    world.advance(5000);

    assert_eq!(world.deaths(), []);
    assert_eq!(world.living(), [11, 12]);
}

#[test]
fn a_verdict_counts_only_while_this_b2b_too_hears_nothing() {
    let mut world = World::started();
    world.deaf.insert((1, 10));
    world.deaf.insert((2, 10));

    world.advance(5000);

    assert_eq!(world.deaths(), []);
    assert_eq!(
        world.living(),
        [11, 12],
        "no new calls go where the leading controller hears nobody"
    );
}

#[test]
fn a_verdict_that_this_b2b_could_not_share_counts_when_made_anew() {
    let mut world = World::started();
    world.deaf.insert((1, 10));
    world.deaf.insert((2, 10));
    world.advance(60_000);
    assert_eq!(world.deaths(), []);

    world.stopped.insert(10);
    world.advance(1500);

    assert_eq!(world.deaths(), [10]);
}

#[test]
fn what_a_cut_controller_says_at_healing_moves_nothing() {
    let mut world = World::started();
    world.lose_controller(2);
    world.cut(1);
    world.deaf.insert((1, 10));
    world.advance(1500);

    // It heals in the very moment in which this b2b has not heard that gateway either.
    world.stopped.insert(10);
    world.advance(150);
    assert!(world.to_b2b.iter().any(|(_, held)| matches!(held, Input::Verdict(..))));
    world.heal_towards_b2b();
    assert_eq!(world.deaths(), []);
}

#[test]
fn a_verdict_waits_for_this_b2bs_own_silence() {
    let mut world = World::started();
    world.beat(10);
    world.stopped.insert(10);
    world.advance(50);

    let verdict = world.verdict(10, world.ms - 250);
    world.input(Input::Verdict(NodeId(1), verdict));
    assert_eq!(world.deaths(), []);
    world.advance(50);
    assert_eq!(world.deaths(), [10]);
}

#[test]
fn a_verdict_counts_within_a_second_of_being_made() {
    let mut world = World::started();
    world.lose_controller(1);
    world.lose_controller(2);
    world.stopped.insert(10);
    world.advance(5000);

    for age in [1000, 5000] {
        let verdict = world.verdict(10, world.ms - age);
        world.input(Input::Verdict(NodeId(1), verdict));
        assert_eq!(world.deaths(), []);
    }
    let verdict = world.verdict(10, world.ms - 999);
    world.input(Input::Verdict(NodeId(1), verdict));
    assert_eq!(world.deaths(), [10]);
}

#[test]
fn a_stamp_from_the_future_is_no_stamp() {
    let mut world = World::started();
    world.lose_controller(1);
    world.lose_controller(2);
    world.stopped.insert(10);
    world.advance(200);

    for stamp_ms in [world.ms + 1, u64::MAX] {
        let verdict = world.verdict(10, stamp_ms);
        world.input(Input::Verdict(NodeId(1), verdict));
    }

    assert_eq!(world.deaths(), []);
}

#[test]
fn a_b2b_that_was_late_itself_believes_no_silence() {
    let mut world = World::started();
    world.beat(10);
    let stamp_ms = world.ms;
    world.sleep(500);

    let verdict = world.verdict(10, stamp_ms);
    world.input(Input::Verdict(NodeId(1), verdict));
    world.advance(2);

    assert_eq!(world.deaths(), []);
}

#[test]
fn the_loss_of_a_controller_changes_nothing() {
    let mut world = World::started();
    assert_eq!(world.verdicts.leader(), Some(NodeId(1)));

    world.lose_controller(1);
    for _ in 0..30 {
        world.advance(100);
        assert_eq!(world.living(), [10, 11, 12]);
    }

    assert_eq!(world.verdicts.leader(), Some(NodeId(2)));
    assert_eq!(world.deaths(), []);
}

#[test]
fn a_controller_that_hangs_leads_no_longer_than_a_second_and_a_half() {
    let mut world = World::started();
    world.cut(1);
    world.advance(1800);

    assert_eq!(world.verdicts.leader(), Some(NodeId(2)));
    assert_eq!(world.living(), [10, 11, 12]);
    world.heal(1);
    world.advance(300);
    assert_eq!(world.verdicts.leader(), Some(NodeId(1)));
    assert_eq!(world.deaths(), []);
}

#[test]
fn a_handled_timeout_is_never_due_again() {
    let mut world = World::started();
    world.stopped.insert(10);
    for _ in 0..500 {
        world.advance(7);
        world.verdicts.handle_timeout(world.now());
        assert!(world.verdicts.poll_timeout().is_none_or(|due_at| world.now() < due_at));
    }
}

proptest! {
    #[test]
    fn no_silence_is_acted_on_while_this_b2b_hears_the_gateway(steps in script()) {
        let mut world = World::started();
        for step in steps {
            world.step(step);
            for (gateway, quiet_ms) in std::mem::take(&mut world.silences) {
                prop_assert!(100 <= quiet_ms, "{gateway} was quiet for {quiet_ms} ms");
            }
        }
    }

    #[test]
    fn one_boot_dies_once_unless_it_speaks_for_two_seconds_or_was_the_last_between(steps in script()) {
        let mut world = World::started();
        let mut died_at: BTreeMap<(u16, u64), u64> = BTreeMap::new();
        for step in steps {
            world.step(step);
            for (gateway, boot, at, none_lived_at) in std::mem::take(&mut world.history) {
                if let Some(before) = died_at.insert((gateway, boot), at) {
                    let risen = before + 2000 <= at || before <= none_lived_at;
                    prop_assert!(risen, "{gateway} died at {before} and at {at}");
                }
            }
        }
    }

    #[test]
    fn one_that_is_silent_for_good_is_dead_in_the_end_whatever_was_before(steps in script()) {
        let mut world = World::started();
        for step in steps {
            world.step(step);
        }
        world.heal(1);
        world.heal(2);
        world.deaf.clear();
        world.stopped.clear();
        world.input(Input::Owns(true));
        world.advance(3000);

        world.stopped.insert(10);
        world.advance(6000);
        prop_assert!(world.verdicts.is_dead(NodeId(10), Boot(world.boots[0])));
        prop_assert_eq!(world.living(), [11, 12]);
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Advance(u64),
    Sleep(u64),
    Stop(u16),
    Go(u16),
    Reboot(u16),
    Deafen(u16, u16),
    Cut(u16),
    Heal(u16),
    Refuse(u16, u16),
    Own(bool),
}

fn script() -> impl Strategy<Value = Vec<Step>> {
    let (controller, gateway) = (1..=2_u16, 10..=12_u16);
    let step = prop_oneof![
        4 => (0..600_u64).prop_map(Step::Advance),
        1 => (0..300_u64).prop_map(Step::Sleep),
        2 => gateway.clone().prop_map(Step::Stop),
        2 => gateway.clone().prop_map(Step::Go),
        1 => gateway.clone().prop_map(Step::Reboot),
        1 => (controller.clone(), gateway.clone()).prop_map(|(id, gateway)| Step::Deafen(id, gateway)),
        1 => controller.clone().prop_map(Step::Cut),
        1 => controller.clone().prop_map(Step::Heal),
        1 => (controller, gateway).prop_map(|(id, gateway)| Step::Refuse(id, gateway)),
        1 => any::<bool>().prop_map(Step::Own),
    ];
    proptest::collection::vec(step, 0..40)
}

/// One b2b, controllers 1 and 2, gateways 10 to 12; frames arrive at once.
struct World {
    origin: Instant,
    ms: u64,
    verdicts: Verdicts,
    controllers: BTreeMap<u16, Controller>,
    boots: [u64; 3],
    stopped: BTreeSet<u16>,
    /// Controllers that do not hear a gateway.
    deaf: BTreeSet<(u16, u16)>,
    /// Controllers whose frames wait, both ways.
    cut: BTreeSet<u16>,
    to_controller: Vec<(u16, controller::Input)>,
    to_b2b: Vec<(u16, Input)>,
    seq: u32,
    deaths: Vec<u16>,
    /// Who died when, and when nobody had lived last; and how long those had been quiet that
    /// were called silent.
    history: Vec<(u16, u64, u64, u64)>,
    none_lived_at: u64,
    silences: Vec<(u16, u64)>,
    heard_at: BTreeMap<u16, u64>,
    /// When the b2b last asked a gateway for beats, how often it asked any, and how often its time came.
    asked_at: BTreeMap<u16, u64>,
    hears: usize,
    turns: usize,
}

impl World {
    #[expect(clippy::disallowed_methods, reason = "an origin for the test")]
    fn new() -> Self {
        let origin = Instant::now();
        let controllers = [1, 2].map(|id| (id, Controller::new(origin, false)));
        let mut world = Self {
            origin,
            ms: 0,
            verdicts: Verdicts::new(origin, false),
            controllers: BTreeMap::from(controllers),
            boots: [1; 3],
            stopped: BTreeSet::new(),
            deaf: BTreeSet::new(),
            cut: BTreeSet::new(),
            to_controller: Vec::new(),
            to_b2b: Vec::new(),
            seq: 0,
            deaths: Vec::new(),
            history: Vec::new(),
            none_lived_at: 0,
            silences: Vec::new(),
            heard_at: BTreeMap::new(),
            asked_at: BTreeMap::new(),
            hears: 0,
            turns: 0,
        };
        world.input(Input::Owns(true));
        for id in [1, 2] {
            world.tell_controller(id, controller::Input::B2bUp(B2B));
        }
        for id in 10..=12 {
            let introduce = Introduce {
                gateway: NodeId(id),
                beat: SocketAddr::from(([127, 0, 0, 1], id)),
                host: String::new(),
                version: String::new(),
            };
            world.tell_controller(1, controller::Input::Introduced(introduce.clone()));
            world.tell_controller(2, controller::Input::Introduced(introduce));
            world.input(Input::Watch(NodeId(id)));
        }
        world.input(Input::ControllerUp(NodeId(2)));
        world.input(Input::ControllerUp(NodeId(1)));
        world
    }

    fn started() -> Self {
        let mut world = Self::new();
        world.advance(1003);
        assert_eq!(world.living(), [10, 11, 12]);
        world
    }

    fn now(&self) -> Instant {
        self.origin + Duration::from_millis(self.ms)
    }

    fn advance(&mut self, ms: u64) {
        for _ in 0..ms {
            self.ms += 1;
            if self.ms.is_multiple_of(10) {
                (10..=12)
                    .filter(|id| !self.stopped.contains(id))
                    .collect::<Vec<_>>()
                    .into_iter()
                    .for_each(|id| self.beat(id));
            }
            self.timeouts();
        }
    }

    fn sleep(&mut self, ms: u64) {
        self.ms += ms;
    }

    fn timeouts(&mut self) {
        let now = self.now();
        let due = |due_at: Option<Instant>| due_at.is_some_and(|due_at| due_at <= now);
        for id in [1, 2] {
            if let Some(controller) = self.controllers.get_mut(&id)
                && due(controller.poll_timeout())
            {
                controller.handle_timeout(now);
                self.drain_controller(id);
            }
        }
        if due(self.verdicts.poll_timeout()) {
            self.turns += 1;
            self.verdicts.handle_timeout(now);
            self.drain_b2b();
        }
    }

    fn beat(&mut self, id: u16) {
        self.seq += 1;
        let beat = Beat {
            gateway: NodeId(id),
            boot: Boot(self.boots[usize::from(id) - 10]),
            worker: 0,
            workers: 1,
            seq: self.seq,
            realtime: false,
            standby: false,
            draining: false,
            legs: 0,
            legs_max: 100,
        };
        for controller in [1, 2] {
            if !self.deaf.contains(&(controller, id)) {
                self.tell_controller(controller, controller::Input::Beat(beat));
            }
        }
        if self.asked_at.get(&id).is_some_and(|at| self.ms < at + 1000) {
            self.heard_at.insert(id, self.ms);
            self.input(Input::Beat(beat));
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Advance(ms) => self.advance(ms),
            Step::Sleep(ms) => self.sleep(ms),
            Step::Stop(id) => {
                self.stopped.insert(id);
            }
            Step::Go(id) => {
                self.stopped.remove(&id);
            }
            Step::Reboot(id) => self.boots[usize::from(id) - 10] += 1,
            Step::Deafen(controller, id) => {
                self.deaf.insert((controller, id));
            }
            Step::Cut(controller) => self.cut(controller),
            Step::Heal(controller) => self.heal(controller),
            Step::Refuse(controller, id) => self.refuse_at_controller(controller, id),
            Step::Own(owns) => self.input(Input::Owns(owns)),
        }
    }

    fn refuse_at_b2b(&mut self, id: u16) {
        self.stopped.insert(id);
        self.input(Input::Refused(NodeId(id)));
        self.stopped.clear();
    }

    /// Everybody has proof that a gateway is dead.
    fn prove_dead(&mut self, id: u16) {
        self.refuse_at_b2b(id);
        self.refuse_at_controller(1, id);
    }

    fn refuse_at_controller(&mut self, controller: u16, id: u16) {
        self.tell_controller(controller, controller::Input::Refused(NodeId(id)));
    }

    fn lose_controller(&mut self, id: u16) {
        self.controllers.remove(&id);
        self.input(Input::ControllerDown(NodeId(id)));
    }

    fn cut(&mut self, id: u16) {
        self.cut.insert(id);
    }

    /// What waited for the b2b arrives; what it sends to cut controllers still waits.
    fn heal_towards_b2b(&mut self) {
        for (_, input) in std::mem::take(&mut self.to_b2b) {
            self.input(input);
        }
    }

    fn heal(&mut self, id: u16) {
        self.cut.remove(&id);
        self.heal_towards_b2b();
        for (id, input) in std::mem::take(&mut self.to_controller) {
            self.tell_controller(id, input);
        }
    }

    fn verdict(&self, gateway: u16, stamp_ms: u64) -> Verdict {
        let cause = Cause::Silent { worker: 0, seq: 0 };
        let dead = Dead { gateway: NodeId(gateway), boot: Boot(1), cause };
        Verdict { dead, stamp_ms }
    }

    fn input(&mut self, input: Input) {
        self.verdicts.handle_input(self.now(), input);
        self.drain_b2b();
    }

    fn tell_b2b(&mut self, from: u16, input: Input) {
        if self.cut.contains(&from) {
            self.to_b2b.push((from, input));
        } else {
            self.input(input);
        }
    }

    fn tell_controller(&mut self, id: u16, input: controller::Input) {
        let over_link = matches!(input, controller::Input::Asked { .. });
        if over_link && self.cut.contains(&id) {
            self.to_controller.push((id, input));
            return;
        }
        let now = self.now();
        if let Some(controller) = self.controllers.get_mut(&id) {
            controller.handle_input(now, input);
            self.drain_controller(id);
        }
    }

    fn drain_controller(&mut self, id: u16) {
        while let Some(output) = self.controllers.get_mut(&id).and_then(Controller::poll_output) {
            let input = match output {
                controller::Output::Hear { .. } => continue,
                controller::Output::Verdict { verdict, .. } => Input::Verdict(NodeId(id), verdict),
                controller::Output::Publish { gateways, .. } => {
                    Input::Gateways(NodeId(id), gateways)
                }
                controller::Output::Here { .. } => Input::Here(NodeId(id)),
            };
            self.tell_b2b(id, input);
        }
    }

    fn drain_b2b(&mut self) {
        while let Some(output) = self.verdicts.poll_output() {
            match output {
                Output::Hear(id) => {
                    self.hears += 1;
                    self.asked_at.insert(id.0, self.ms);
                }
                Output::Ask { controller, ask } => {
                    self.tell_controller(controller.0, controller::Input::Asked { b2b: B2B, ask });
                }
                Output::Dead { gateway, boot, cause } => {
                    self.deaths.push(gateway.0);
                    self.history.push((gateway.0, boot.0, self.ms, self.none_lived_at));
                    if !cause.is_proof() {
                        let heard_at = self.heard_at.get(&gateway.0).copied().unwrap_or(0);
                        self.silences.push((gateway.0, self.ms - heard_at));
                    }
                }
            }
        }
        if self.verdicts.detector.living().next().is_none() {
            self.none_lived_at = self.ms;
        }
    }

    fn deaths(&mut self) -> Vec<u16> {
        std::mem::take(&mut self.deaths)
    }

    fn living(&self) -> Vec<u16> {
        self.verdicts.living(self.now()).map(|living| living.gateway.0).collect()
    }
}

const B2B: NodeId = NodeId(5);
