//! Two b2bs: one dies, hangs or is cut off, and the other goes on.

use std::time::Duration;

use driver::{Input, NodeId, StopReason};
use testkit::scenario::DEAF;
use testkit::{Command, Incoming, Manners, PhoneId, State};

use super::world::{
    B2B, CONTROLLER, FIRST_MEDIAGATE, GATE, Layout, OTHER_B2B, OTHER_GATE, OTHER_MEDIAGATE, Setup,
    World,
};

const A: PhoneId = PhoneId(0);
const B: PhoneId = PhoneId(1);
const C: PhoneId = PhoneId(2);
const D: PhoneId = PhoneId(3);

#[test]
fn the_b2b_of_a_call_dies_and_nobody_notices() {
    let (mut world, owner, other) = talking(1, Layout::Pair);
    let before = sip_seen(&world);
    forget_heard(&mut world);
    world.scenario.sim().crash(owner);
    world.run(Duration::from_millis(500));

    assert_eq!(world.owner(), Some(other));
    assert_eq!(sip_seen(&world), before, "{}", world.scenario);
    hears_without_loss(&mut world);
    hold_resume_and_end(&mut world);
}

#[test]
fn a_second_b2b_takes_back_what_it_had_when_the_first_comes_and_goes() {
    let (mut world, owner, other) = talking(2, Layout::Pair);
    let before = sip_seen(&world);
    world.scenario.sim().crash(owner);
    world.run(Duration::from_secs(1));
    world.scenario.sim().restart(owner);
    world.run(Duration::from_secs(5));
    assert_eq!(world.owner(), Some(other), "no slot goes back by itself");
    world.scenario.sim().crash(other);
    world.run(Duration::from_secs(1));

    assert_eq!(world.owner(), Some(owner));
    assert_eq!(sip_seen(&world), before, "{}", world.scenario);
    hold_resume_and_end(&mut world);
}

/// Each had one of a mediagate's two blocks.
#[test]
fn a_b2b_that_went_on_with_calls_has_the_rest_of_their_block_after_a_minute() {
    let setup = Setup { ports: 10_000..=10_255, ..Setup::new(Layout::Pair) };
    let mut world = World::build(3, setup);
    world.start();
    world.call(A, B);
    world.run(Duration::from_secs(3));
    let owner = world.owner().expect("one b2b has the call");
    let other = if owner == B2B { OTHER_B2B } else { B2B };
    world.scenario.sim().crash(owner);
    world.run(Duration::from_secs(1));
    world.scenario.sim().restart(owner);
    world.call(C, D);
    world.run(Duration::from_secs(50));
    world.scenario.assert_talking(&[(A, B), (C, D)]);
    let ports = format!("rm_mediagate_ports{{gateway=\"{FIRST_MEDIAGATE}\"}}");
    assert_eq!(world.figure(other, &ports), 62);

    world.run(Duration::from_secs(15));
    assert_eq!((world.figure(owner, &ports), world.figure(other, &ports)), (0, 62 + 62));
    assert_eq!(world.ports_of_two(), []);
}

#[test]
fn a_cut_between_the_b2bs_alone_moves_nothing() {
    let (mut world, owner, other) = talking(3, Layout::Pair);
    let before = sip_seen(&world);
    world.scenario.sim().cut_both(owner, other);
    world.run(Duration::from_secs(10));

    assert_eq!(takeovers(&world), 0);
    assert_eq!((world.owner(), sip_seen(&world)), (Some(owner), before));
    world.call(C, D);
    world.run(Duration::from_secs(2));
    world.scenario.assert_talking(&[(A, B), (C, D)]);
    world.scenario.sim().heal_all();
    world.run(Duration::from_secs(5));
    assert_eq!(takeovers(&world), 0);
}

/// The copies of the other are as old as the cut: whoever hung up meanwhile is asked, held or not.
#[test]
fn a_call_that_ended_while_its_b2bs_were_cut_apart_ends_again_when_its_owner_dies() {
    for (seed, held) in [(23, false), (24, true)] {
        let (mut world, owner, other) = talking(seed, Layout::Pair);
        if held {
            world.scenario.plan(Duration::ZERO, B, Command::Hold);
            world.run(Duration::from_secs(1));
        }
        world.call(C, D);
        world.run(Duration::from_secs(2));
        world.scenario.sim().cut_both(owner, other);
        world.run(Duration::from_secs(70));
        world.hang_up(A);
        world.run(Duration::from_secs(2));
        world.scenario.sim().crash(owner);
        world.run(Duration::from_secs(35));

        let states = [A, B].map(|phone| world.scenario.fleet().state(phone));
        assert_eq!(states, [State::Idle; 2], "held: {held}\n{}", world.scenario);
        // Nobody can ask a phone for a call but in the dialog that is over there.
        world.scenario.assert_none(&world.scenario.not_talking(&[(C, D)]));
        assert_eq!(world.live_calls(), 1, "held: {held}");
    }
}

#[test]
fn an_owner_cut_from_its_standby_and_from_a_gate_is_reached_through_the_other_gate() {
    let (mut world, owner, other) = talking(4, Layout::Pair);
    world.scenario.sim().cut_both(owner, other);
    world.scenario.sim().cut_both(owner, GATE);
    world.run(Duration::from_secs(8));

    assert_eq!(world.owner(), Some(owner));
    assert_eq!(takeovers(&world), 0);
    hold_resume_and_end(&mut world);
    assert!(0 < world.figure(OTHER_GATE, "rm_gate_relayed_total"));
}

#[test]
fn what_no_longer_reaches_a_gate_or_leaves_it_goes_through_the_other_at_once() {
    for leaves in [false, true] {
        let (mut world, owner, other) = talking(14, Layout::Pair);
        for b2b in [owner, other] {
            let (from, to) = if leaves { (GATE, b2b) } else { (b2b, GATE) };
            world.scenario.sim().cut(from, to);
        }
        world.run(Duration::from_millis(250));
        world.call(C, D);
        world.run(Duration::from_secs(1));

        world.scenario.assert_talking(&[(A, B), (C, D)]);
        assert_eq!(takeovers(&world), 0);
    }
}

/// Seeds 4704 and 5505: the INVITEs waited in a link that nobody answered on.
#[test]
fn new_calls_are_answered_while_their_gate_and_their_owner_are_cut_from_each_other() {
    for (to_gate, to_owner) in [(true, true), (true, false), (false, true)] {
        let (mut world, owner, _) = talking(21, Layout::Pair);
        for (from, to, is_cut) in [(owner, GATE, to_gate), (GATE, owner, to_owner)] {
            if is_cut {
                world.scenario.sim().cut(from, to);
            }
        }
        world.run(Duration::from_millis(250));
        calls_pass_by(&mut world);
    }
}

/// Holds new calls to what they must be while their gate and their owner are cut from each other, and
/// after that.
fn calls_pass_by(world: &mut World) {
    let calls: Vec<_> = (2..10).step_by(2).map(|from| (PhoneId(from), PhoneId(from + 1))).collect();
    for (from, to) in &calls {
        world.call(*from, *to);
    }
    world.run(Duration::from_secs(1));

    world.scenario.assert_talking(&calls);
    assert_eq!(takeovers(world), 0);
    let detoured = world.figure(GATE, "rm_gate_detoured_total");
    assert!(0 < detoured && 0 < world.figure(OTHER_GATE, "rm_gate_relayed_total"));
    world.scenario.sim().heal_all();
    world.run(Duration::from_secs(1));
    for (_, phone) in calls.into_iter().chain([(A, B)]) {
        world.hang_up(phone);
    }
    world.run(Duration::from_secs(2));
    world.scenario.assert_idle();
    assert_eq!(world.figure(GATE, "rm_gate_detoured_total"), detoured, "the way is free again");
}

#[test]
fn only_gates_that_can_be_reached_are_counted() {
    let (mut world, owner, _) = talking(22, Layout::Pair);
    assert_eq!(world.figure(owner, "rm_gates"), 2);
    world.scenario.sim().crash(GATE);
    world.run(Duration::from_secs(1));
    assert_eq!(world.figure(owner, "rm_gates"), 1);
    world.scenario.sim().restart(GATE);
    world.run(Duration::from_secs(3));
    assert_eq!(world.figure(owner, "rm_gates"), 2);
}

#[test]
fn two_servers_that_lose_the_witness_go_on() {
    let (mut world, owner, _) = talking(5, Layout::Two);
    let before = sip_seen(&world);
    world.scenario.sim().crash(CONTROLLER);
    world.run(Duration::from_secs(5));

    assert_eq!((world.owner(), sip_seen(&world)), (Some(owner), before));
    assert_eq!(takeovers(&world), 0);
    hold_resume_and_end(&mut world);
}

#[test]
fn a_short_pause_of_the_owner_is_nothing_and_a_long_one_a_takeover() {
    let (mut world, owner, other) = talking(6, Layout::Pair);
    let before = sip_seen(&world);
    world.scenario.sim().pause(owner);
    world.run(Duration::from_millis(200));
    world.scenario.sim().resume(owner);
    world.run(Duration::from_secs(2));
    assert_eq!((world.owner(), takeovers(&world)), (Some(owner), 0));

    world.scenario.sim().pause(owner);
    world.run(Duration::from_secs(1));
    world.scenario.sim().resume(owner);
    world.run(Duration::from_secs(2));
    assert_eq!((world.owner(), sip_seen(&world)), (Some(other), before), "{}", world.scenario);
    hold_resume_and_end(&mut world);
}

#[test]
fn t36_a_call_that_ended_at_the_taker_does_not_come_back_with_the_old_owner() {
    for pauses in [false, true] {
        let (mut world, owner, taker) = talking(7, Layout::Pair);
        if pauses {
            world.scenario.sim().pause(owner);
        } else {
            world.scenario.sim().crash(owner);
        }
        world.run(Duration::from_secs(1));
        world.hang_up(A);
        world.run(Duration::from_secs(2));
        world.scenario.assert_idle();
        let before = sip_seen(&world);
        if pauses {
            world.scenario.sim().resume(owner);
        } else {
            world.scenario.sim().restart(owner);
        }
        world.run(Duration::from_secs(10));
        // What it holds of the call by now it would go on with.
        world.scenario.sim().crash(taker);
        world.run(Duration::from_secs(5));

        assert_eq!(world.figure(owner, "rm_slots"), 256, "pauses: {pauses}");
        world.scenario.assert_idle();
        assert_eq!((world.live_calls(), sip_seen(&world)), (0, before), "pauses: {pauses}");
    }
}

#[test]
fn a_b2b_and_the_mediagate_of_its_call_die_together() {
    let (mut world, owner, _) = talking(8, Layout::Pair);
    world.scenario.sim().crash(owner);
    world.scenario.sim().crash(FIRST_MEDIAGATE);
    world.run(Duration::from_secs(2));
    world.scenario.assert_talking(&[(A, B)]);
    assert_eq!(world.open_legs(OTHER_MEDIAGATE), 2);
    hold_resume_and_end(&mut world);
}

#[test]
fn new_calls_work_a_second_after_the_death_of_any_b2b() {
    for (seed, victim) in [(9, B2B), (10, OTHER_B2B)] {
        let (mut world, _, _) = talking(seed, Layout::Pair);
        world.scenario.sim().crash(victim);
        world.run(Duration::from_secs(1));
        world.call(C, D);
        world.run(Duration::from_secs(2));
        world.scenario.assert_talking(&[(A, B), (C, D)]);
    }
}

#[test]
fn a_b2b_that_drains_gives_its_calls_away_and_ends() {
    let (mut world, owner, other) = talking(11, Layout::Pair);
    let before = sip_seen(&world);
    forget_heard(&mut world);
    world.scenario.sim().tell(owner, Input::Drain);
    world.run(Duration::from_millis(500));

    assert_eq!(world.scenario.sim().stopped(owner), Some(&StopReason::Drained));
    assert_eq!((world.owner(), sip_seen(&world)), (Some(other), before));
    hears_without_loss(&mut world);
    world.scenario.sim().restart(owner);
    world.run(Duration::from_secs(3));
    assert_eq!(world.figure(other, "rm_slots_unprotected"), 0);
    hold_resume_and_end(&mut world);
}

#[test]
fn a_server_that_drains_keeps_its_gate_for_the_calls_it_gave_away() {
    let (mut world, owner, other) = talking(29, Layout::Two);
    let before = sip_seen(&world);
    world.scenario.sim().tell(owner, Input::Drain);
    world.run(Duration::from_secs(6));

    assert_eq!(world.scenario.sim().stopped(owner), None);
    assert_eq!((world.owner(), sip_seen(&world)), (Some(other), before));
    world.call(C, D);
    world.run(Duration::from_secs(2));
    world.scenario.assert_talking(&[(A, B), (C, D)]);
}

#[test]
fn every_slot_has_one_owner_and_a_copy_soon_after_a_death() {
    let (mut world, owner, other) = talking(12, Layout::Pair);
    world.scenario.sim().crash(owner);
    world.run(Duration::from_millis(500));
    assert_eq!(world.figure(other, "rm_slots"), 256);
    assert_eq!(world.figure(other, "rm_slots_unprotected"), 256);
    world.scenario.sim().restart(owner);
    world.run(Duration::from_secs(2));
    assert_eq!((world.figure(owner, "rm_slots"), world.figure(other, "rm_slots")), (0, 256));
    assert_eq!(world.figure(other, "rm_slots_unprotected"), 0);
}

/// An hour is longer than a registration lasts, and than any deadline of a call that rings.
#[test]
fn b2bs_whose_clocks_differ_by_an_hour_keep_each_others_calls_and_registrations() {
    for (seed, by_ms) in [(25, 3_600_000), (26, -3_600_000)] {
        let (mut world, owner, other) = talking(seed, Layout::Pair);
        let before = sip_seen(&world);
        world.scenario.sim().crash(other);
        world.scenario.sim().jump_clock(other, by_ms);
        world.run(Duration::from_secs(1));
        world.scenario.sim().restart(other);
        world.run(Duration::from_secs(5));
        for (dying, taker) in [(owner, other), (other, owner)] {
            world.scenario.sim().crash(dying);
            world.run(Duration::from_secs(2));
            assert_eq!((world.owner(), sip_seen(&world)), (Some(taker), before), "{by_ms}");
            assert_eq!(world.figure(taker, "rm_registered"), 10, "{by_ms}");
            world.scenario.sim().restart(dying);
            world.run(Duration::from_secs(5));
        }
        world.scenario.assert_talking(&[(A, B)]);
        world.call(C, D);
        world.run(Duration::from_secs(2));
        world.scenario.assert_talking(&[(A, B), (C, D)]);
    }
}

#[test]
fn a_b2b_reads_the_registrations_of_one_whose_clock_is_an_hour_apart() {
    for (seed, by_ms) in [(27, 3_600_000), (28, -3_600_000)] {
        let mut world = World::new(seed, Layout::Pair);
        world.run(Duration::from_secs(2));
        world.scenario.sim().crash(OTHER_B2B);
        world.scenario.sim().crash(B2B);
        world.scenario.sim().jump_clock(OTHER_B2B, by_ms);
        world.scenario.sim().restart(OTHER_B2B);
        world.scenario.sim().restart(B2B);
        world.run(Duration::from_secs(5));
        let slots = [B2B, OTHER_B2B].map(|b2b| world.figure(b2b, "rm_slots"));
        assert_eq!(slots, [128, 128], "each reads what the other writes");
        world.scenario.register_all();
        world.run(Duration::from_secs(1));
        let calls: Vec<_> =
            (0..10).step_by(2).map(|from| (PhoneId(from), PhoneId(from + 1))).collect();
        for (from, to) in &calls {
            world.call(*from, *to);
        }
        world.run(Duration::from_secs(2));
        world.scenario.assert_talking(&calls);
    }
}

/// A cluster in which A and B talk, the b2b that owns their call, and the other one.
pub(super) fn talking(seed: u64, layout: Layout) -> (World, NodeId, NodeId) {
    let mut world = World::new(seed, layout);
    world.start();
    let answer_after = Duration::from_millis(50);
    let incoming = Incoming::Answer { ring_after: Some(Duration::ZERO), answer_after };
    for phone in [A, B] {
        let manners = Manners { incoming: incoming.clone(), ..Manners::default() };
        world.scenario.plan(Duration::ZERO, phone, Command::Behave(Box::new(manners)));
    }
    world.call(A, B);
    world.run(Duration::from_secs(3));
    world.scenario.assert_talking(&[(A, B)]);
    world.run(DEAF);
    let owner = world.owner().expect("one b2b has the call");
    let other = if owner == B2B { OTHER_B2B } else { B2B };
    (world, owner, other)
}

/// Whoever has the call now serves it whole.
pub(super) fn hold_resume_and_end(world: &mut World) {
    let held = State::Talking { holds: true, held: false };
    let free = State::Talking { holds: false, held: false };
    for phone in [A, B] {
        for (command, state) in [(Command::Hold, held), (Command::Resume, free)] {
            world.scenario.plan(Duration::ZERO, phone, command);
            world.run(Duration::from_secs(1));
            assert_eq!(world.scenario.fleet().state(phone), state, "{}", world.scenario);
        }
    }
    world.run(Duration::from_secs(1));
    world.scenario.assert_talking(&[(A, B)]);
    world.hang_up(B);
    world.run(Duration::from_secs(2));
    world.scenario.assert_idle();
    assert_eq!(world.live_calls(), 0);
}

fn forget_heard(world: &mut World) {
    world.scenario.with_fleet(|fleet, now| {
        for phone in [A, B] {
            fleet.take_heard(now, phone);
        }
    });
}

fn hears_without_loss(world: &mut World) {
    let heard =
        world.scenario.with_fleet(|fleet, now| [A, B].map(|phone| fleet.take_heard(now, phone)));
    for heard in heard {
        assert_eq!((heard.lost, heard.duplicated, heard.late), (0, 0, 0));
        assert!(heard.silence < Duration::from_millis(25), "{heard:?}");
    }
}

/// How many SIP messages came to phones.
pub(super) fn sip_seen(world: &World) -> u64 {
    world.scenario.fleet().journal().messages_count().1
}

pub(super) fn takeovers(world: &World) -> u64 {
    [B2B, OTHER_B2B].map(|b2b| world.figure(b2b, "rm_takeovers_total")).iter().sum()
}
