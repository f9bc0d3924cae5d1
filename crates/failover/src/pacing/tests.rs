use super::*;

#[test]
fn both_legs_of_a_call_go_at_once_and_talking_goes_before_held() {
    let mut run = Run::new(Config::default());
    run.push(1, Urgency::Held);
    run.push(2, Urgency::Talking);

    assert_eq!(run.drain(), [leg(2, 0), leg(2, 1), leg(1, 0), leg(1, 1)]);
}

#[test]
fn no_more_than_the_common_window_is_in_flight_and_each_answer_lets_one_out() {
    let mut run = Run::new(Config { in_flight_max: 3, ..Config::default() });
    for call in 0..4 {
        run.push(call, Urgency::Talking);
    }

    assert_eq!(run.drain(), [leg(0, 0), leg(0, 1), leg(1, 0)]);
    run.finish(leg(0, 1), Outcome::Success);
    assert_eq!(run.drain(), [leg(1, 1)]);
    assert_eq!(run.pacer.in_flight(), 3);
}

#[test]
fn a_phone_gets_one_at_a_time_and_more_with_each_success() {
    let mut run = Run::new(Config::default());
    for call in 0..6 {
        run.pacer.push(leg(call, 0), addr(1), Peer::Phone, Urgency::Talking);
    }

    assert_eq!(run.drain(), [leg(0, 0)]);
    run.finish(leg(0, 0), Outcome::Success);
    assert_eq!(run.drain(), [leg(1, 0), leg(2, 0)]);
    run.finish(leg(1, 0), Outcome::Other);
    assert_eq!(run.drain(), [leg(3, 0)]);
}

#[test]
fn a_peer_that_asks_for_quiet_gets_one_probe_a_second_until_it_answers_well() {
    let mut run = Run::new(Config::default());
    for call in 0..40 {
        run.pacer.push(leg(call, 0), addr(1), Peer::Trunk, Urgency::Talking);
    }
    assert_eq!(run.drain().len(), 32);

    for call in 0..32 {
        run.finish(leg(call, 0), Outcome::Overload(Duration::from_secs(5)));
    }
    assert_eq!(run.drain(), []);
    run.advance(999);
    assert_eq!(run.drain(), []);
    run.advance(1);
    assert_eq!(run.drain(), [leg(32, 0)]);
    run.advance(1000);
    assert_eq!(run.drain(), []);
    run.finish(leg(32, 0), Outcome::Success);
    assert_eq!(run.drain(), [leg(33, 0), leg(34, 0)]);
}

#[test]
fn a_leg_that_is_told_another_way_leaves_the_queue() {
    let mut run = Run::new(Config { in_flight_max: 1, ..Config::default() });
    run.push(1, Urgency::Talking);
    assert_eq!(run.drain(), [leg(1, 0)]);

    run.finish(leg(1, 1), Outcome::Other);
    run.finish(leg(1, 0), Outcome::Success);
    assert_eq!(run.drain(), []);
    assert!(run.pacer.hops.is_empty() && run.pacer.legs.is_empty());
}

#[test]
fn a_leg_in_flight_before_a_rebuild_counts() {
    let mut run = Run::new(Config { in_flight_max: 1, ..Config::default() });
    run.pacer.resume(run.now, leg(1, 0), addr(1), Peer::Phone, Urgency::Talking);
    run.push(2, Urgency::Talking);

    assert_eq!(run.drain(), []);
    run.finish(leg(1, 0), Outcome::Success);
    assert_eq!(run.drain(), [leg(2, 0)]);
}

#[test]
fn a_frozen_hop_without_legs_is_forgotten_when_it_thaws() {
    let mut run = Run::new(Config::default());
    run.push(1, Urgency::Talking);
    run.drain();
    run.finish(leg(1, 0), Outcome::Overload(Duration::from_secs(3)));
    run.finish(leg(1, 1), Outcome::Success);
    assert_eq!(run.pacer.hops.len(), 1);

    run.advance(3000);
    assert!(run.pacer.hops.is_empty());
    assert_eq!(run.pacer.poll_timeout(), None);
}

#[test]
fn a_silent_phone_gives_its_place_to_the_next_one_behind_its_address() {
    let mut run = Run::new(Config { in_flight_max: 1, ..Config::default() });
    for call in 0..3 {
        run.pacer.push(leg(call, 0), addr(1), Peer::Phone, Urgency::Talking);
    }
    assert_eq!(run.drain(), [leg(0, 0)]);

    run.advance(1999);
    assert_eq!(run.drain(), []);
    run.advance(1);
    assert_eq!(run.drain(), [leg(1, 0)]);
    // What ends after all makes no second room.
    run.finish(leg(0, 0), Outcome::Other);
    assert_eq!(run.drain(), []);
    run.finish(leg(1, 0), Outcome::Other);
    assert_eq!(run.drain(), [leg(2, 0)]);
    run.finish(leg(2, 0), Outcome::Other);
    assert!(run.pacer.hops.is_empty() && run.pacer.places.is_empty());
}

#[test]
fn a_phone_that_asks_its_user_keeps_its_place_for_as_long_as_that_may_take() {
    let mut run = Run::new(Config::default());
    run.pacer.push(leg(0, 0), addr(1), Peer::Phone, Urgency::Talking);
    run.pacer.push(leg(1, 0), addr(1), Peer::Phone, Urgency::Talking);
    assert_eq!(run.drain(), [leg(0, 0)]);

    run.pacer.proceed(leg(0, 0), run.now + Duration::from_secs(4));
    run.advance(5999);
    assert_eq!(run.drain(), []);
    run.advance(1);
    assert_eq!(run.drain(), [leg(1, 0)]);
}

#[test]
fn a_silent_trunk_is_asked_for_less_and_less() {
    let mut run = Run::new(Config::default());
    for call in 0..80 {
        run.pacer.push(leg(call, 0), addr(1), Peer::Trunk, Urgency::Talking);
    }
    assert_eq!(run.drain().len(), 32);

    run.advance(2000);
    assert_eq!(run.drain(), [leg(32, 0)]);
    run.advance(2000);
    assert_eq!(run.drain(), [leg(33, 0)]);
}

struct Run {
    now: Instant,
    pacer: Pacer,
}

impl Run {
    fn new(config: Config) -> Self {
        #[expect(clippy::disallowed_methods, reason = "an origin for the test")]
        let now = Instant::now();
        Self { now, pacer: Pacer::new(config) }
    }

    fn push(&mut self, call: u64, urgency: Urgency) {
        self.pacer.push(leg(call, 0), addr(1000 + call), Peer::Phone, urgency);
        self.pacer.push(leg(call, 1), addr(2000 + call), Peer::Phone, urgency);
    }

    fn drain(&mut self) -> Vec<LegId> {
        std::iter::from_fn(|| self.pacer.next(self.now)).collect()
    }

    fn finish(&mut self, leg: LegId, outcome: Outcome) {
        self.pacer.finish(self.now, leg, outcome);
    }

    fn advance(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        self.pacer.handle_timeout(self.now);
        assert!(self.pacer.poll_timeout().is_none_or(|at| self.now < at), "due again");
    }
}

fn leg(call: u64, leg: u8) -> LegId {
    (CallId(call), leg)
}

fn addr(n: u64) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], u16::try_from(n).unwrap()))
}
