use super::*;

#[test]
fn every_b2b_is_told_of_a_death_once() {
    let mut run = Run::started(3);
    run.asks(B2B_1, true);
    run.asks(B2B_2, false);
    run.outputs();

    run.input(Input::Refused(NodeId(11)));
    run.input(Input::Refused(NodeId(11)));
    run.advance(900);

    assert_eq!(run.told(), [(B2B_1, Cause::Refused), (B2B_2, Cause::Refused)]);
}

#[test]
fn a_verdict_carries_the_stamp_of_the_b2b_it_goes_to() {
    let mut run = Run::started(3);
    run.input(Input::Asked { b2b: B2B_1, ask: Ask { lead: true, stamp_ms: 71 } });
    run.input(Input::Asked { b2b: B2B_2, ask: Ask { lead: true, stamp_ms: 9_000 } });
    run.outputs();

    run.input(Input::Refused(NodeId(11)));

    let stamps: Vec<u64> = run
        .outputs()
        .iter()
        .filter_map(|output| match output {
            Output::Verdict { verdict, .. } => Some(verdict.stamp_ms),
            Output::Hear { .. } | Output::Publish { .. } | Output::Here { .. } => None,
        })
        .collect();
    assert_eq!(stamps, [71, 9_000]);
}

#[test]
fn a_b2b_that_comes_later_is_told_of_proven_deaths() {
    let mut run = Run::started(3);
    run.input(Input::Refused(NodeId(11)));
    run.outputs();

    run.input(Input::B2bDown(B2B_1));
    run.input(Input::B2bUp(B2B_1));
    run.asks(B2B_1, false);
    run.asks(B2B_1, false);

    assert_eq!(run.told(), [(B2B_1, Cause::Refused)]);
}

#[test]
fn a_silence_that_lasts_is_judged_anew_every_second_for_those_who_ask() {
    let mut run = Run::started(3);
    run.asks(B2B_1, true);
    run.silent.push(11);
    run.outputs();
    for _ in 0..40 {
        run.advance(100);
        run.asks(B2B_1, true);
    }
    let told = run.told().len();
    assert!((3..=4).contains(&told), "{told}");

    run.silent.clear();
    run.advance(100);
    run.outputs();
    for _ in 0..15 {
        run.advance(100);
        run.asks(B2B_1, true);
    }
    assert_eq!(run.told(), []);
}

#[test]
fn only_those_it_leads_get_the_list() {
    let mut run = Run::started(2);
    run.outputs();

    run.asks(B2B_1, true);
    run.asks(B2B_2, false);

    let outputs = run.outputs();
    assert!(matches!(
        &outputs[..],
        [Output::Publish { b2b: B2B_1, .. }, Output::Here { b2b: B2B_2 }]
    ));
}

#[test]
fn the_list_names_load_host_and_version_and_no_dead_gateway() {
    let mut run = Run::started(2);
    run.input(Input::Refused(NodeId(10)));

    assert_eq!(
        run.controller.gateways().0,
        [Published {
            gateway: NodeId(11),
            boot: Boot(1),
            host: "host 11".into(),
            version: "0.1.0".into(),
            standby: false,
            draining: false,
            legs: 5,
            legs_max: 100,
        }]
    );
}

#[test]
fn a_death_and_a_return_are_published_at_once() {
    let mut run = Run::started(3);
    run.asks(B2B_1, true);
    run.outputs();

    run.input(Input::Refused(NodeId(11)));
    assert_eq!(run.published(), [2]);
    run.boots[1] = 2;
    run.advance(10);
    assert_eq!(run.published(), [3]);
}

#[test]
fn a_controller_that_starts_publishes_nothing_until_it_had_time_to_hear() {
    let mut run = Run::new(2);
    run.silent.push(11);
    run.asks(B2B_1, true);
    run.advance(400);
    run.asks(B2B_1, true);
    assert_eq!(run.published(), []);

    run.advance(100);
    run.asks(B2B_1, true);
    assert_eq!(run.published(), [1]);
}

#[test]
fn a_controller_that_hears_everybody_publishes_before_its_time() {
    let mut run = Run::new(2);
    run.advance(20);
    run.asks(B2B_1, true);

    assert_eq!(run.published(), [2]);
}

#[test]
fn the_end_of_somebodys_link_asks_the_gateway_at_once() {
    let mut run = Run::started(2);
    run.outputs();

    run.input(Input::LinkLost(NodeId(11)));

    assert_eq!(run.outputs(), [Output::Hear { gateway: NodeId(11), beat: beat_addr(11) }]);
}

#[test]
fn a_handled_timeout_is_never_due_again() {
    let mut run = Run::started(3);
    for _ in 0..500 {
        run.advance(7);
        run.controller.handle_timeout(run.now());
        assert!(run.controller.poll_timeout().is_none_or(|due_at| run.now() < due_at));
    }
}

const B2B_1: NodeId = NodeId(1);
const B2B_2: NodeId = NodeId(2);

/// A controller, two b2bs and gateways numbered from 10.
struct Run {
    origin: Instant,
    ms: u64,
    controller: Controller,
    boots: Vec<u64>,
    silent: Vec<u16>,
    seq: u32,
    unread: Vec<Output>,
}

impl Run {
    #[expect(clippy::disallowed_methods, reason = "an origin for the test")]
    fn new(gateways: u16) -> Self {
        let origin = Instant::now();
        let mut run = Self {
            origin,
            ms: 0,
            controller: Controller::new(origin, false),
            boots: vec![1; usize::from(gateways)],
            silent: Vec::new(),
            seq: 0,
            unread: Vec::new(),
        };
        run.input(Input::B2bUp(B2B_1));
        run.input(Input::B2bUp(B2B_2));
        for id in 10..10 + gateways {
            run.input(Input::Introduced(Introduce {
                gateway: NodeId(id),
                beat: beat_addr(id),
                host: format!("host {id}"),
                version: "0.1.0".into(),
            }));
        }
        run
    }

    fn started(gateways: u16) -> Self {
        let mut run = Self::new(gateways);
        run.advance(1000);
        run
    }

    fn now(&self) -> Instant {
        self.origin + Duration::from_millis(self.ms)
    }

    fn advance(&mut self, ms: u64) {
        for _ in 0..ms {
            self.ms += 1;
            for (id, boot) in (10..).zip(self.boots.clone()) {
                if self.ms.is_multiple_of(10) && !self.silent.contains(&id) {
                    self.seq += 1;
                    self.input(Input::Beat(beat(id, boot, self.seq)));
                }
            }
            if self.controller.poll_timeout().is_some_and(|due_at| due_at <= self.now()) {
                self.controller.handle_timeout(self.now());
                self.unread.extend(std::iter::from_fn(|| self.controller.poll_output()));
            }
        }
    }

    fn input(&mut self, input: Input) {
        self.controller.handle_input(self.now(), input);
        self.unread.extend(std::iter::from_fn(|| self.controller.poll_output()));
    }

    fn asks(&mut self, b2b: NodeId, lead: bool) {
        self.input(Input::Asked { b2b, ask: Ask { lead, stamp_ms: self.ms } });
    }

    fn outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.unread)
    }

    fn told(&mut self) -> Vec<(NodeId, Cause)> {
        let told = |output| match output {
            Output::Verdict { b2b, verdict } => Some((b2b, verdict.dead.cause)),
            Output::Hear { .. } | Output::Publish { .. } | Output::Here { .. } => None,
        };
        self.outputs().into_iter().filter_map(told).collect()
    }

    /// How many gateways each published list has.
    fn published(&mut self) -> Vec<usize> {
        let published = |output| match output {
            Output::Publish { gateways, .. } => Some(gateways.0.len()),
            Output::Hear { .. } | Output::Verdict { .. } | Output::Here { .. } => None,
        };
        self.outputs().into_iter().filter_map(published).collect()
    }
}

fn beat(id: u16, boot: u64, seq: u32) -> Beat {
    Beat {
        gateway: NodeId(id),
        boot: Boot(boot),
        worker: 0,
        workers: 1,
        seq,
        realtime: false,
        standby: false,
        draining: false,
        legs: 5,
        legs_max: 100,
    }
}

fn beat_addr(id: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], id))
}
