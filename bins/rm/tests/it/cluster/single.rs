//! Single deaths, and what phones see of them.

use std::time::Duration;

use testkit::scenario::DEAF;
use testkit::{Command, Event, Incoming, Manners, PhoneId, Reinvite, SameVersion, State, What};

use super::world::{CONTROLLER, FIRST_MEDIAGATE, Layout, OTHER_MEDIAGATE, World, host};

const A: PhoneId = PhoneId(0);
const B: PhoneId = PhoneId(1);
const C: PhoneId = PhoneId(2);
const D: PhoneId = PhoneId(3);

#[test]
fn t05_a_dead_controller_is_not_noticed_and_a_mediagate_that_dies_next_is() {
    let mut world = talking(51, &Manners::default());
    let before = sip_seen(&world);
    let heard = |world: &mut World| {
        world.scenario.with_fleet(|fleet, now| [A, B].map(|phone| fleet.take_heard(now, phone)))
    };
    heard(&mut world);
    world.scenario.sim().crash(CONTROLLER);
    world.run(Duration::from_secs(5));
    assert_eq!(sip_seen(&world), before);
    for heard in heard(&mut world) {
        assert_eq!((heard.lost, heard.duplicated, heard.late), (0, 0, 0));
        assert!(heard.silence < Duration::from_millis(25), "{heard:?}");
    }

    world.scenario.sim().crash(FIRST_MEDIAGATE);
    world.run(Duration::from_millis(300));
    world.scenario.assert_talking(&[(A, B)]);
    assert_eq!(moves(&world, A), 1);
    assert_eq!(moves(&world, B), 1);
}

#[test]
fn both_phones_are_told_at_once_and_never_hear_of_the_dead_address_again() {
    let same_version = SameVersion::Ignored;
    let mut world = talking(1, &Manners { same_version, ..Manners::default() });
    let dead_at = world.scenario.now();
    world.scenario.with_fleet(|fleet, _| fleet.forbid(host(Layout::Three, FIRST_MEDIAGATE)));
    world.scenario.sim().crash(FIRST_MEDIAGATE);
    world.run(Duration::from_secs(2));

    let told: Vec<Duration> = [A, B]
        .map(|phone| {
            let events = world.scenario.fleet().journal().events();
            let mut moved = events.filter(|&(_, at, event)| {
                at == Some(phone) && event == Event::Reinvite { moves: true }
            });
            moved.next().map(|(at, ..)| at.duration_since(dead_at)).expect("it is told")
        })
        .into();
    assert!(told.iter().all(|after| *after <= Duration::from_millis(100)), "{told:?}");
    assert!(told[0].abs_diff(told[1]) <= Duration::from_millis(5), "{told:?}");
    world.scenario.assert_talking(&[(A, B)]);
}

#[test]
fn a_mediagate_that_hangs_is_left_and_sees_no_old_call_when_it_goes_on() {
    for power_cut in [false, true] {
        let mut world = talking(4, &Manners::default());
        if power_cut {
            world.scenario.sim().power_off(host(Layout::Three, FIRST_MEDIAGATE));
        } else {
            world.scenario.sim().pause(FIRST_MEDIAGATE);
        }
        world.run(Duration::from_millis(500));
        world.scenario.assert_talking(&[(A, B)]);
        let before = sip_seen(&world);
        if power_cut {
            world.scenario.sim().restart(FIRST_MEDIAGATE);
        } else {
            world.scenario.sim().resume(FIRST_MEDIAGATE);
        }
        world.run(Duration::from_secs(5));
        assert_eq!(sip_seen(&world), before);
        assert_eq!(world.open_legs(FIRST_MEDIAGATE), 0);
        assert_eq!(world.open_legs(OTHER_MEDIAGATE), 2);
    }
}

#[test]
fn a_hold_that_crosses_the_move_is_answered_with_the_new_address() {
    let mut world = talking(9, &Manners { glares: 1, ..Manners::default() });
    world.scenario.sim().crash(FIRST_MEDIAGATE);
    world.run(Duration::from_secs(6));
    world.scenario.assert_talking(&[(A, B)]);
}

#[test]
fn a_phone_that_answers_500_is_asked_again_when_it_said() {
    let refuse =
        Reinvite::Refuse { status: 500, retry_after: Some(2), after: Duration::ZERO, times: 1 };
    let mut world = talking(10, &Manners { reinvite: refuse, ..Manners::default() });
    let dead_at = world.scenario.now();
    world.scenario.sim().crash(FIRST_MEDIAGATE);
    world.run(Duration::from_secs(4));
    world.scenario.assert_talking(&[(A, B)]);
    let events = world.scenario.fleet().journal().events();
    let told: Vec<Duration> = events
        .filter(|&(at, phone, event)| {
            dead_at < at && phone == Some(A) && event == Event::Reinvite { moves: true }
        })
        .map(|(at, ..)| at.duration_since(dead_at))
        .collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(Duration::from_secs(2) <= told[1] - told[0], "{told:?}");
}

#[test]
fn a_held_call_stays_held_through_a_move_and_is_resumed_later() {
    for holder in [A, B] {
        let mut world = talking(20, &Manners::default());
        world.scenario.plan(Duration::ZERO, holder, Command::Hold);
        world.run(Duration::from_secs(1));
        let states = [A, B].map(|phone| world.scenario.fleet().state(phone));
        world.scenario.sim().crash(FIRST_MEDIAGATE);
        world.run(Duration::from_secs(2));
        assert_eq!([A, B].map(|phone| world.scenario.fleet().state(phone)), states);
        assert!(states.contains(&State::Talking { holds: true, held: false }));
        world.scenario.assert_talking(&[(A, B)]);

        world.scenario.plan(Duration::ZERO, holder, Command::Resume);
        world.run(Duration::from_secs(1));
        let free = State::Talking { holds: false, held: false };
        assert_eq!([A, B].map(|phone| world.scenario.fleet().state(phone)), [free, free]);
        world.scenario.assert_talking(&[(A, B)]);
    }
}

#[test]
fn without_a_mediagate_new_calls_are_put_off_and_old_ones_keep_their_signalling() {
    let mut world = talking(60, &Manners::default());
    world.scenario.sim().crash(FIRST_MEDIAGATE);
    world.scenario.sim().crash(OTHER_MEDIAGATE);
    world.run(Duration::from_secs(1));
    world.call(C, D);
    world.run(Duration::from_secs(1));
    let refusal = world.scenario.fleet().journal().entries().iter().find_map(|entry| {
        let What::Received { bytes, .. } = &entry.what else { return None };
        let text = String::from_utf8_lossy(bytes).into_owned();
        (entry.phone == Some(C) && text.starts_with("SIP/2.0 503 ")).then_some(text)
    });
    assert!(refusal.expect("a 503").contains("\r\nRetry-After: "));

    world.scenario.plan(Duration::ZERO, A, Command::Options);
    world.run(Duration::from_secs(1));
    let answered = Event::Options(200);
    assert!(world.scenario.fleet().journal().events().any(|(_, _, event)| event == answered));
    world.hang_up(A);
    world.run(Duration::from_secs(1));
    world.scenario.assert_idle();
    assert_eq!(world.live_calls(), 0);
}

#[test]
fn a_call_without_any_mediagate_hears_again_when_one_returns() {
    let mut world = talking(61, &Manners::default());
    world.scenario.sim().crash(FIRST_MEDIAGATE);
    world.scenario.sim().crash(OTHER_MEDIAGATE);
    world.run(Duration::from_secs(3));
    world.scenario.sim().restart(OTHER_MEDIAGATE);
    world.run(Duration::from_secs(6));
    world.scenario.assert_talking(&[(A, B)]);
}

#[test]
fn a_mediagate_that_returns_gets_new_calls_only() {
    let mut world = talking(62, &Manners::default());
    world.scenario.sim().crash(FIRST_MEDIAGATE);
    world.run(Duration::from_secs(1));
    world.scenario.sim().restart(FIRST_MEDIAGATE);
    world.run(Duration::from_secs(5));
    let before = sip_seen(&world);
    world.run(Duration::from_secs(2));
    assert_eq!(sip_seen(&world), before);
    world.call(C, D);
    world.run(Duration::from_secs(2));
    world.scenario.assert_talking(&[(A, B), (C, D)]);
    assert_eq!(world.open_legs(FIRST_MEDIAGATE), 2);
    assert_eq!(world.open_legs(OTHER_MEDIAGATE), 2);
}

#[test]
fn a_call_has_a_standby_again_soon_after_a_gateway_returns() {
    let mut world = talking(63, &Manners::default());
    world.scenario.sim().crash(FIRST_MEDIAGATE);
    world.run(Duration::from_secs(2));
    assert!(!world.has_standby());
    world.scenario.sim().restart(FIRST_MEDIAGATE);
    // Its ports rest for 2 s; the next death may come right after.
    world.run(Duration::from_secs(5));
    assert!(world.has_standby());
    world.scenario.sim().crash(OTHER_MEDIAGATE);
    world.run(Duration::from_millis(500));
    world.scenario.assert_talking(&[(A, B)]);
}

/// A cluster in which A and B talk.
fn talking(seed: u64, manners: &Manners) -> World {
    let mut world = World::new(seed, Layout::Three);
    world.start();
    let answer_after = Duration::from_millis(50);
    let incoming = Incoming::Answer { ring_after: Some(Duration::ZERO), answer_after };
    for phone in [A, B] {
        let manners = Manners { incoming: incoming.clone(), ..manners.clone() };
        world.scenario.plan(Duration::ZERO, phone, Command::Behave(Box::new(manners)));
    }
    world.call(A, B);
    world.run(Duration::from_secs(3));
    world.scenario.assert_talking(&[(A, B)]);
    world.run(DEAF);
    world
}

/// How many SIP messages came to phones.
fn sip_seen(world: &World) -> u64 {
    world.scenario.fleet().journal().messages_count().1
}

/// How often a phone was told another media address.
fn moves(world: &World, phone: PhoneId) -> usize {
    let events = world.scenario.fleet().journal().events();
    let moved = Event::Reinvite { moves: true };
    events.filter(|&(_, at, event)| at == Some(phone) && event == moved).count()
}
