//! What waits while an owner may not speak, or while its slots change hands.

use std::time::Duration;

use driver::{Input, NodeId, StopReason};
use failover::replica::Ack;
use rm::frames::Frame as _;
use testkit::scenario::Problem;
use testkit::{Command, Event, Fault, PhoneId, State};

use super::world::{B2B, CONTROLLER, FIRST_MEDIAGATE, Layout, OTHER_B2B, OTHER_MEDIAGATE, World};

/// These phones speak over connections, the others by datagrams.
const STREAMS: u32 = 4;
/// Two of those, and two that use datagrams.
const PAIRS: [(u32, u32); 2] = [(0, 1), (4, 5)];

#[test]
fn what_an_owner_has_to_say_over_connections_after_a_short_pause_is_not_lost() {
    for (layout, hangs_up) in
        [Layout::Three, Layout::Pair].iter().flat_map(|it| [(*it, 0), (*it, 1)])
    {
        let (mut world, owner) = talking(1, layout, PAIRS[0]);
        pause(&mut world, owner, Command::Hold, 1 - hangs_up);
        assert_eq!(world.scenario.fleet().state(PhoneId(1 - hangs_up)), HOLDS);
        pause(&mut world, owner, Command::Hangup, hangs_up);
        ended(&mut world);
        assert_eq!((world.slots(), world.figure(owner, "rm_slots_lost_total")), (256, 0));
    }
}

#[test]
fn what_an_owner_says_in_a_turn_that_is_longer_than_its_lease_does_not_leave_without_one() {
    for (pair, pause, is_taken) in [(PAIRS[1], 1000, true), (PAIRS[0], 200, false)] {
        let (mut world, owner) = talking(6, Layout::Two, pair);
        assert_eq!(owner, B2B, "the gate of the phones is its own");
        let lets_go = |input: &Input| matches!(input, Input::Frame { kind: Ack::KIND, .. });
        world.scenario.sim().pause_in_turn(owner, lets_go);
        world.hang_up(PhoneId(pair.0));
        world.run(Duration::from_millis(pause));
        world.scenario.sim().resume(owner);
        // Neither another owner's answer nor a new lease comes as soon.
        world.run(Duration::from_micros(300));
        let answer = (PhoneId(pair.0), "200 to BYE".to_owned());
        let heard = world.scenario.with_fleet(|fleet, _| fleet.journal_mut().take_received());
        assert!(!heard.contains_key(&answer), "{}", world.scenario);
        world.run(Duration::from_millis(400));
        ended(&mut world);
        // What is said over connections waits.
        assert_eq!(0 < world.figure(owner, "rm_muted_total"), is_taken);
        assert_eq!(0 < world.figure(owner, "rm_slots_lost_total"), is_taken);
    }
}

/// Holds the owner up while a phone says something, for as long as nobody takes its slots.
fn pause(world: &mut World, owner: NodeId, command: Command, phone: u32) {
    world.scenario.sim().pause(owner);
    world.scenario.plan(Duration::ZERO, PhoneId(phone), command);
    world.run(Duration::from_millis(200));
    world.scenario.sim().resume(owner);
    world.run(Duration::from_millis(400));
}

#[test]
fn what_phones_say_while_slots_are_given_away_is_done_at_once() {
    for pair in PAIRS {
        for micros in (0..2400).step_by(200) {
            let (mut world, owner) = talking(2, Layout::Pair, pair);
            world.scenario.plan(Duration::from_micros(1000), PhoneId(pair.0), Command::Hold);
            world.run(Duration::from_micros(micros));
            world.scenario.sim().tell(owner, Input::Drain);
            // A datagram that was lost would be repeated after 500 ms.
            world.run(Duration::from_millis(400));
            let state = world.scenario.fleet().state(PhoneId(pair.0));
            assert_eq!(state, HOLDS, "{pair:?} after {micros} µs {}", world.scenario);
            assert_eq!(world.scenario.sim().stopped(owner), Some(&StopReason::Drained));
            world.hang_up(PhoneId(pair.1));
            ended(&mut world);
        }
    }
}

#[test]
fn who_hangs_up_while_slots_are_given_away_ends_the_call_at_once() {
    for pair in PAIRS {
        for micros in (0..2400).step_by(200) {
            let (mut world, owner) = talking(3, Layout::Pair, pair);
            world.scenario.plan(Duration::from_micros(1000), PhoneId(pair.0), Command::Hangup);
            world.run(Duration::from_micros(micros));
            world.scenario.sim().tell(owner, Input::Drain);
            world.run(Duration::from_millis(400));
            assert_eq!(world.live_calls(), 0, "{pair:?} after {micros} µs {}", world.scenario);
            ended(&mut world);
        }
    }
}

#[test]
fn new_calls_are_refused_while_their_owner_has_no_lease_and_nobody_else_can_take_them() {
    let mut world = World::with_streams(4, Layout::Two, STREAMS);
    world.start();
    for other in [CONTROLLER, OTHER_B2B, FIRST_MEDIAGATE, OTHER_MEDIAGATE] {
        world.scenario.sim().cut_both(B2B, other);
    }
    world.run(Duration::from_secs(2));
    let callers = (0..10).step_by(2);
    for from in callers.clone() {
        world.call(PhoneId(from), PhoneId(from + 1));
    }
    world.run(Duration::from_millis(100));
    for from in callers {
        let mut events = world.scenario.fleet().journal().events();
        let is_refused = events
            .any(|(_, phone, event)| phone == Some(PhoneId(from)) && event == Event::Refused(503));
        assert!(is_refused, "phone {from}: {}", world.scenario);
    }
    world.scenario.sim().heal_all();
    world.run(Duration::from_secs(5));
    let call = world.call(PhoneId(0), PhoneId(5));
    world.run(Duration::from_secs(3));
    world.scenario.assert_talking(&[call]);
}

const HOLDS: State = State::Talking { holds: true, held: false };

/// A cluster with one call, and who has it.
fn talking(seed: u64, layout: Layout, (from, to): (u32, u32)) -> (World, NodeId) {
    let mut world = World::with_streams(seed, layout, STREAMS);
    world.start();
    let call = world.call(PhoneId(from), PhoneId(to));
    world.run(Duration::from_secs(3));
    world.scenario.assert_talking(&[call]);
    let owner = world.owner().expect("one b2b has the call");
    (world, owner)
}

/// Checks that no call is left, and that every rule was kept.
fn ended(world: &mut World) {
    world.run(Duration::from_millis(400));
    world.scenario.assert_none(&world.scenario.not_idle());
    assert_eq!(world.live_calls(), 0);
    let is_repeated = |problem: &Problem| {
        let Problem::Broken { fault: Fault::AfterEnd { method }, .. } = problem else {
            return false;
        };
        method == "BYE"
    };
    // The next owner repeats, once, a BYE whose answer it has not heard.
    let (repeated, broken): (Vec<_>, Vec<_>) =
        world.scenario.broken().into_iter().partition(is_repeated);
    assert!(repeated.len() <= 1, "{repeated:?} {}", world.scenario);
    world.scenario.assert_none(&broken);
}
