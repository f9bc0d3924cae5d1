use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

mod brakes;

#[test]
fn a_gateway_lives_once_each_of_its_workers_was_heard() {
    let mut run = Run::new(PLAIN, 1, 2);
    run.silent.insert((1, 1));
    run.advance(500);
    assert_eq!(run.said(), []);

    run.silent.clear();
    run.advance(10);

    assert_eq!(run.said(), [Output::Alive(NodeId(1), Boot(1))]);
}

#[test]
fn a_refused_datagram_is_a_death_at_once() {
    let mut run = Run::started(PLAIN, 3, 1);

    run.refuse(2);

    assert_eq!(run.said(), [Output::Dead(dead(2, Cause::Refused))]);
}

#[test]
fn a_refusal_is_reported_once() {
    let mut run = Run::started(PLAIN, 3, 1);
    run.silent.insert((2, 0));
    run.refuse(2);
    run.refuse(2);
    run.advance(5000);

    assert_eq!(run.said(), [Output::Dead(dead(2, Cause::Refused))]);
}

#[test]
fn a_refusal_that_may_be_about_the_time_before_this_boot_is_asked_again() {
    let mut run = Run::new(PLAIN, 1, 1);
    run.advance(0);
    run.beat(1, 0);
    assert_eq!(run.said(), [Output::Alive(NodeId(1), Boot(1))]);

    run.refuse(1);
    assert_eq!(run.said(), []);
    assert_eq!(run.asked(1), 2);
    run.refuse(1);
    assert_eq!(run.said(), [Output::Dead(dead(1, Cause::Refused))]);
}

#[test]
fn the_end_of_a_link_proves_nothing_and_asks_at_once() {
    let mut run = Run::started(PLAIN, 2, 1);
    let asked = run.asked(1);

    run.input(Input::LinkDown(NodeId(1)));

    assert_eq!(run.asked(1), asked + 1);
    assert_eq!(run.said(), []);
}

#[test]
fn a_plain_gateway_is_silent_after_five_periods_of_20_ms() {
    let mut run = Run::started(PLAIN, 3, 1);
    run.silence_after_beat(2);

    run.advance(99);
    assert_eq!(run.said(), []);
    run.advance(1);
    assert!(matches!(
        run.said()[..],
        [Output::Dead(Dead { gateway: NodeId(2), cause: Cause::Silent { worker: 0, .. }, .. })]
    ));
}

#[test]
fn three_periods_of_10_ms_are_enough_where_both_ends_are_real_time() {
    let mut run = Run::started(REALTIME, 3, 1);
    run.silence_after_beat(2);

    run.advance(29);
    assert_eq!(run.said(), []);
    run.advance(1);
    assert_eq!(run.said().len(), 1);
}

#[test]
fn one_end_without_a_real_time_class_makes_the_long_threshold_count() {
    let mut run = Run::started(Config { realtime: false, ..REALTIME }, 3, 1);
    run.realtime = true;
    run.silence_after_beat(2);
    run.advance(99);
    assert_eq!(run.said(), []);

    let mut run = Run::started(REALTIME, 3, 1);
    run.realtime = false;
    run.advance(20);
    run.silence_after_beat(2);
    run.advance(99);
    assert_eq!(run.said(), []);
}

#[test]
fn one_hung_worker_is_a_silent_gateway() {
    let mut run = Run::started(PLAIN, 3, 4);
    run.silent.insert((2, 3));
    run.advance(200);

    assert!(matches!(
        run.said()[..],
        [Output::Dead(Dead { gateway: NodeId(2), cause: Cause::Silent { worker: 3, .. }, .. })]
    ));
}

#[test]
fn a_late_own_tick_voids_the_window() {
    let mut run = Run::started(PLAIN, 3, 1);
    run.silence_after_beat(2);
    run.advance(60);

    run.sleep(61);
    run.advance(99);
    assert_eq!(run.said(), []);
    assert_eq!(run.detector.counters().voided, 1);
    run.advance(1);
    assert_eq!(run.said().len(), 1);
}

#[test]
fn all_gateways_are_asked_at_one_moment_and_so_fall_silent_together_when_no_question_arrives() {
    let mut run = Run::started(PLAIN, 2, 1);
    run.advance(37);
    run.input(Input::LinkDown(NodeId(2)));
    run.input(Input::Watch(NodeId(3)));

    let mut rounds = Vec::new();
    for _ in 0..500 {
        run.hears.clear();
        run.advance(1);
        rounds.extend((!run.hears.is_empty()).then(|| run.hears.clone()));
    }
    assert_eq!(rounds, vec![[1, 2, 3].map(NodeId); 5]);
}

#[test]
fn a_dead_gateway_of_two_is_found_though_the_other_stutters() {
    for heard_ms in [1, 20, 60, 90] {
        let mut run = Run::started(PLAIN, 2, 1);
        run.silence_after_beat(1);
        for _ in 0..4 {
            run.silence_after_beat(2);
            run.advance(130);
            run.silent.remove(&(2, 0));
            run.beat(2, 0);
            run.advance(heard_ms);
        }

        let found = run.said();
        assert!(
            matches!(found[..], [Output::Dead(Dead { gateway: NodeId(1), .. })]),
            "heard for {heard_ms} ms: {found:?}"
        );
    }
}

#[test]
fn a_cable_that_is_broken_again_and_again_is_no_death() {
    for whole_ms in [40, 60, 90, 130] {
        let mut run = Run::started(PLAIN, 2, 1);
        for _ in 0..20 {
            run.silent.extend([(1, 0), (2, 0)]);
            run.advance(200);
            run.silent.clear();
            run.advance(whole_ms);
        }

        assert_eq!(run.said(), [], "whole for {whole_ms} ms");
    }
}

#[test]
fn a_missed_beat_asks_at_every_tick() {
    let mut run = Run::started(PLAIN, 3, 1);
    run.silence_after_beat(2);
    let asked = run.asked(2);

    run.advance(99);

    assert!(asked + 2 <= run.asked(2));
}

#[test]
fn a_new_boot_is_a_new_gateway_and_proves_the_death_of_the_old_one() {
    let mut run = Run::started(PLAIN, 3, 1);

    run.boots[1] = 2;
    run.advance(10);

    assert_eq!(
        run.said(),
        [Output::Dead(dead(2, Cause::Restarted)), Output::Alive(NodeId(2), Boot(2))]
    );
}

#[test]
fn a_late_beat_of_a_dead_boot_starts_no_life() {
    let mut run = Run::started(PLAIN, 3, 1);
    run.boots[1] = 2;
    run.advance(10);
    run.said();

    run.boots[1] = 1;
    run.beat(2, 0);
    run.boots[1] = 2;
    run.advance(100);

    assert_eq!(run.said(), []);
}

#[test]
fn the_hello_of_a_new_boot_is_proof_before_its_first_beat() {
    let mut run = Run::started(PLAIN, 3, 1);
    run.silent.insert((2, 0));

    run.input(Input::LinkUp(NodeId(2), Boot(1)));
    assert_eq!(run.said(), []);
    run.input(Input::LinkUp(NodeId(2), Boot(2)));

    assert_eq!(run.said(), [Output::Dead(dead(2, Cause::Restarted))]);
}

#[test]
fn a_beat_that_another_overtook_is_not_heard() {
    let mut run = Run::started(PLAIN, 3, 1);
    run.silence_after_beat(2);
    run.advance(60);
    let old = Beat { seq: 1, ..run.next_beat(2, 0) };
    run.input(Input::Beat(old));
    run.advance(40);

    assert_eq!(run.said().len(), 1);
}

#[test]
fn beats_are_counted_in_numbers_that_wrap() {
    let mut run = Run::new(PLAIN, 3, 1);
    run.seq = u32::MAX - 20;
    run.advance(1000);
    run.said();

    run.advance(2000);

    assert_eq!(run.said(), []);
}

#[test]
fn a_beat_that_names_no_possible_worker_is_ignored() {
    let mut run = Run::started(PLAIN, 1, 1);
    let beat = run.next_beat(1, 0);
    for (worker, workers) in [(0, 0), (1, 1), (0, 2), (0, WORKERS_MAX + 1)] {
        run.input(Input::Beat(Beat { worker, workers, ..beat }));
    }
    run.input(Input::Beat(Beat { gateway: NodeId(9), ..beat }));

    assert_eq!(run.detector.counters().ignored, 5);
}

#[test]
fn a_detector_that_does_not_judge_can_be_asked() {
    let mut run = Run::started(Config { judges: false, ..PLAIN }, 1, 1);
    run.silence_after_beat(1);

    run.advance(99);
    assert!(!run.is_silent(1));
    run.advance(1);
    assert!(run.is_silent(1));
    run.advance(5000);
    assert_eq!(run.said(), []);
}

#[test]
fn a_boot_that_others_called_silent_before_it_was_heard_here_lives_when_it_speaks() {
    let mut run = Run::new(Config { judges: false, ..PLAIN }, 1, 1);
    run.detector.bury(dead(1, Cause::Silent { worker: 0, seq: 9 }));
    assert!(run.detector.is_dead(NodeId(1), Boot(1)));

    run.beat(1, 0);

    assert!(!run.detector.is_dead(NodeId(1), Boot(1)));
    assert_eq!(run.said(), [Output::Alive(NodeId(1), Boot(1))]);
    assert_eq!(run.detector.counters().falses, 1);
}

#[test]
fn a_boot_that_others_proved_dead_before_it_was_heard_here_stays_dead() {
    let mut run = Run::new(Config { judges: false, ..PLAIN }, 1, 1);
    run.detector.bury(dead(1, Cause::Refused));

    run.beat(1, 0);

    assert!(run.detector.is_dead(NodeId(1), Boot(1)));
    assert_eq!(run.said(), []);
}

#[test]
fn nothing_is_due_while_nobody_is_watched() {
    let run = Run::new(PLAIN, 0, 1);

    assert_eq!(run.detector.poll_timeout(), None);
}

proptest! {
    #[test]
    fn a_handled_timeout_is_never_due_again(steps in script()) {
        let mut run = Run::started(REALTIME, 3, 2);
        for step in steps {
            run.step(step);
            run.detector.handle_timeout(run.now());
            let due_at = run.detector.poll_timeout();
            prop_assert!(due_at.is_none_or(|due_at| run.now() < due_at));
        }
    }

    #[test]
    fn no_silence_is_judged_within_a_threshold_of_a_late_own_tick(steps in script()) {
        let mut run = Run::started(REALTIME, 3, 2);
        for step in steps {
            run.step(step);
        }
        for (at, said) in &run.history {
            let silent = matches!(said, Output::Dead(Dead { cause: Cause::Silent { .. }, .. }));
            let late = run.late.iter().any(|late| late <= at && *at < late + 30);
            prop_assert!(!silent || !late, "{said:?} at {at}, late {:?}", run.late);
        }
    }

    #[test]
    fn two_silence_verdicts_are_two_seconds_apart(steps in script()) {
        let mut run = Run::started(REALTIME, 3, 2);
        for step in steps {
            run.step(step);
        }
        let silences: Vec<u64> = run
            .history
            .iter()
            .filter(|(_, said)| matches!(said, Output::Dead(Dead { cause: Cause::Silent { .. }, .. })))
            .map(|(at, _)| *at)
            .collect();
        prop_assert!(silences.windows(2).all(|pair| pair[0] + 2000 <= pair[1]));
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Advance(u64),
    Sleep(u64),
    Silence(u16, u16),
    Speak(u16, u16),
    Refuse(u16),
    Reboot(u16),
    Link(u16),
}

fn script() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..400_u64).prop_map(Step::Advance),
        1 => (0..80_u64).prop_map(Step::Sleep),
        2 => (1..=3_u16, 0..2_u16).prop_map(|(id, worker)| Step::Silence(id, worker)),
        2 => (1..=3_u16, 0..2_u16).prop_map(|(id, worker)| Step::Speak(id, worker)),
        1 => (1..=3_u16).prop_map(Step::Refuse),
        1 => (1..=3_u16).prop_map(Step::Reboot),
        1 => (1..=3_u16).prop_map(Step::Link),
    ];
    proptest::collection::vec(step, 0..60)
}

/// A detector, and gateways that beat every 10 ms, each at its own moment.
struct Run {
    origin: Instant,
    ms: u64,
    detector: Detector,
    workers: u16,
    boots: Vec<u64>,
    silent: BTreeSet<(u16, u16)>,
    realtime: bool,
    seq: u32,
    hears: Vec<NodeId>,
    unread: Vec<Output>,
    history: Vec<(u64, Output)>,
    late: Vec<u64>,
}

impl Run {
    #[expect(clippy::disallowed_methods, reason = "an origin for the test")]
    fn new(config: Config, gateways: u16, workers: u16) -> Self {
        let origin = Instant::now();
        let mut run = Self {
            origin,
            ms: 0,
            detector: Detector::new(origin, config),
            workers,
            boots: vec![1; usize::from(gateways)],
            silent: BTreeSet::new(),
            realtime: config.realtime,
            seq: 0,
            hears: Vec::new(),
            unread: Vec::new(),
            history: Vec::new(),
            late: Vec::new(),
        };
        (1..=gateways).for_each(|id| run.input(Input::Watch(NodeId(id))));
        run
    }

    /// All gateways are known and were heard for a second.
    fn started(config: Config, gateways: u16, workers: u16) -> Self {
        let mut run = Self::new(config, gateways, workers);
        run.advance(1000);
        assert_eq!(run.said().len(), usize::from(gateways));
        run
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Advance(ms) => self.advance(ms),
            Step::Sleep(ms) => self.sleep(ms),
            Step::Silence(id, worker) => {
                self.silent.insert((id, worker));
            }
            Step::Speak(id, worker) => {
                self.silent.remove(&(id, worker));
            }
            Step::Refuse(id) => self.refuse(id),
            Step::Reboot(id) => self.boots[usize::from(id) - 1] += 1,
            Step::Link(id) => self.input(Input::LinkDown(NodeId(id))),
        }
    }

    fn now(&self) -> Instant {
        self.origin + Duration::from_millis(self.ms)
    }

    fn advance(&mut self, ms: u64) {
        for _ in 0..ms {
            self.ms += 1;
            self.beats();
            self.timeout();
        }
    }

    /// The detector's process does not run; what comes meanwhile is read afterwards.
    fn sleep(&mut self, ms: u64) {
        let due_at = self.detector.tick_at;
        self.ms += ms;
        self.beats();
        if due_at + self.detector.period() < self.now() {
            self.late.push(self.ms);
        }
        self.timeout();
    }

    fn timeout(&mut self) {
        if self.detector.poll_timeout().is_some_and(|due_at| due_at <= self.now()) {
            self.detector.handle_timeout(self.now());
            self.drain();
        }
    }

    fn beats(&mut self) {
        for id in 1..=u16::try_from(self.boots.len()).unwrap() {
            for worker in 0..self.workers {
                let phase = u64::from(id * 3 + worker * 5) % 10;
                if self.ms % 10 == phase && !self.silent.contains(&(id, worker)) {
                    self.beat(id, worker);
                }
            }
        }
    }

    fn beat(&mut self, id: u16, worker: u16) {
        let beat = self.next_beat(id, worker);
        self.input(Input::Beat(beat));
    }

    fn next_beat(&mut self, id: u16, worker: u16) -> Beat {
        self.seq = self.seq.wrapping_add(1);
        Beat {
            gateway: NodeId(id),
            boot: Boot(self.boots[usize::from(id) - 1]),
            worker,
            workers: self.workers,
            seq: self.seq,
            realtime: self.realtime,
            standby: false,
            draining: false,
            legs: 0,
            legs_max: 100,
        }
    }

    /// Silences the gateway right after a beat, so that silence starts now.
    fn silence_after_beat(&mut self, id: u16) {
        self.beat(id, 0);
        self.silent.insert((id, 0));
    }

    fn refuse(&mut self, id: u16) {
        self.input(Input::Refused(NodeId(id)));
    }

    fn input(&mut self, input: Input) {
        self.detector.handle_input(self.now(), input);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.detector.poll_output() {
            match output {
                Output::Hear(id) => self.hears.push(id),
                Output::Alive(..) | Output::Dead(_) => {
                    self.history.push((self.ms, output));
                    self.unread.push(output);
                }
            }
        }
    }

    fn said(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.unread)
    }

    fn asked(&self, id: u16) -> usize {
        self.hears.iter().filter(|heard| **heard == NodeId(id)).count()
    }

    fn is_silent(&self, id: u16) -> bool {
        self.detector.is_silent(self.now(), NodeId(id), Boot(1))
    }
}

fn dead(gateway: u16, cause: Cause) -> Dead {
    Dead { gateway: NodeId(gateway), boot: Boot(1), cause }
}

const PLAIN: Config = Config { realtime: false, judges: true };

const REALTIME: Config = Config { realtime: true, judges: true };
