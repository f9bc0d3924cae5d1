//! The only server restarts, whole or in parts: its calls are still there.

use std::ops::RangeInclusive;
use std::time::Duration;

use driver::NodeId;
use driver::sim::Path;
use driver::store::MemoryDisk;
use testkit::{Command, Manners, PhoneId, State};

use super::details::Warnings;
use super::world::{B2B, CONTROLLER, FIRST_MEDIAGATE, GATE, Layout, OTHER_MEDIAGATE, Setup, World};

const A: PhoneId = PhoneId(0);
const B: PhoneId = PhoneId(1);
const C: PhoneId = PhoneId(2);
const D: PhoneId = PhoneId(3);

/// What the store may lose: a group, and a commit.
const WINDOW: Duration = Duration::from_millis(30);

#[test]
fn t39_each_service_restarts_and_calls_go_on() {
    for (node, seed) in EVERYTHING.into_iter().zip(10..) {
        let disk = MemoryDisk::default();
        let mut world = talking(seed, &disk);
        world.scenario.sim().crash(node);
        disk.crash(world.scenario.now(), WINDOW);
        world.run(Duration::from_secs(2));
        world.scenario.sim().restart(node);
        world.run(Duration::from_secs(3));

        world.scenario.assert_talking(&[(A, B)]);
        assert_eq!(world.live_calls(), 1, "{node:?}");
        end(&mut world);
    }
}

#[test]
fn t39_everything_restarts_and_calls_and_registrations_are_there() {
    let disk = MemoryDisk::default();
    let mut world = talking(2, &disk);
    crash_everything(&mut world);
    disk.crash(world.scenario.now(), WINDOW);
    come_back(&mut world);
}

#[test]
fn slots_whose_records_lie_on_a_disk_are_protected_and_those_of_a_lone_b2b_without_one_are_not() {
    let world = talking(6, &MemoryDisk::default());
    assert_eq!(
        (world.figure(B2B, "rm_slots"), world.figure(B2B, "rm_slots_unprotected")),
        (256, 0)
    );
    assert_eq!(world.figure(B2B, "rm_calls_unprotected"), 0);

    let mut bare = World::new(6, Layout::Three);
    bare.start();
    assert_eq!(bare.figure(B2B, "rm_slots_unprotected"), 256);
}

#[test]
fn a_clock_set_back_an_hour_over_a_restart_ends_nothing() {
    let disk = MemoryDisk::default();
    let mut world = talking(4, &disk);
    crash_everything(&mut world);
    for node in EVERYTHING {
        world.scenario.sim().jump_clock(node, -3_600_000);
    }
    come_back(&mut world);
}

#[test]
fn t39_a_call_whose_phones_hung_up_meanwhile_ends_and_nothing_rings() {
    let disk = MemoryDisk::default();
    let mut world = talking(3, &disk);
    crash_everything(&mut world);
    world.hang_up(A);
    world.run(Duration::from_secs(1));
    restart_everything(&mut world);
    world.run(Duration::from_secs(35));

    let states = [A, B].map(|phone| world.scenario.fleet().state(phone));
    assert_eq!(states, [State::Idle, State::Idle], "{}", world.scenario);
    assert_eq!(world.live_calls(), 0);
}

#[test]
fn mediagates_of_the_fewest_ports_serve_the_next_life_of_a_b2b_and_a_refusal_is_told() {
    let warnings = Warnings::listen();
    let disk = MemoryDisk::default();
    let setup = Setup { disk: Some(disk), ports: 10_000..=10_127, ..Setup::new(Layout::Three) };
    let mut world = World::build(11, setup);
    world.start();
    world.run(Duration::from_secs(3));
    let no_place = || warnings.count("no place for the media of a call");
    assert_eq!(no_place(), 0);

    world.scenario.sim().crash(B2B);
    world.scenario.sim().restart(B2B);
    world.run(Duration::from_secs(1));
    for _ in 0..2 {
        world.call(A, B);
        world.run(Duration::from_millis(100));
        assert_eq!(world.scenario.fleet().state(A), State::Idle, "{}", world.scenario);
    }
    assert_eq!(no_place(), 1, "once a minute");
    world.run(Duration::from_secs(5));
    world.call(A, B);
    world.run(Duration::from_secs(2));
    world.scenario.assert_talking(&[(A, B)]);
    end(&mut world);
}

/// Of 64 legs' numbers it has two.
#[test]
fn a_call_that_is_back_leaves_the_rest_of_its_block_to_new_calls() {
    let mut world = back_with_a_call(12, 10_000..=10_127);
    world.call(C, D);
    world.run(Duration::from_secs(2));
    world.scenario.assert_talking(&[(A, B), (C, D)]);
    assert_eq!((world.open_legs(FIRST_MEDIAGATE), world.has_standby()), (4, true));

    world.scenario.sim().crash(FIRST_MEDIAGATE);
    world.run(Duration::from_secs(1));
    world.scenario.assert_talking(&[(A, B), (C, D)]);
    world.hang_up(C);
    end(&mut world);
}

/// There are two blocks, one of them without a call: only the standby numbers of the first call lie in it.
#[test]
fn what_a_call_that_is_back_names_is_given_to_no_other() {
    let mut world = back_with_a_call(13, 10_000..=10_255);
    // The number that has rested longest is taken first: all have had their turn after 64 calls.
    for call in 0..70 {
        world.call(C, D);
        world.run(Duration::from_millis(300));
        assert_eq!((call, world.ports_of_two()), (call, vec![]));
        world.hang_up(C);
        world.run(Duration::from_millis(300));
    }
    assert!(world.has_standby());
    end(&mut world);
}

/// What a mediagate does not hear of for 30 s it closes.
#[test]
fn a_call_that_is_back_before_its_mediagate_has_named_itself_keeps_its_voice() {
    let disk = MemoryDisk::default();
    let mut world = talking(5, &disk);
    let path = Path { delay: Duration::from_secs(1), ..Path::default() };
    for (from, to) in [(B2B, FIRST_MEDIAGATE), (FIRST_MEDIAGATE, B2B)] {
        world.scenario.sim().set_path(from, to, path);
    }
    world.scenario.sim().crash(B2B);
    world.scenario.sim().restart(B2B);
    world.run(Duration::from_secs(1));
    assert_eq!(world.live_calls(), 1, "the gate is near");
    world.run(Duration::from_secs(70));

    world.scenario.assert_talking(&[(A, B)]);
    end(&mut world);
}

#[test]
fn a_b2b_that_is_back_before_its_gate_ends_no_voice() {
    let disk = MemoryDisk::default();
    let mut world = talking(6, &disk);
    for node in [GATE, B2B] {
        world.scenario.sim().crash(node);
    }
    world.scenario.sim().restart(B2B);
    world.run(Duration::from_secs(70));
    assert_eq!(world.live_calls(), 0, "nobody says whose slots are whose");
    world.scenario.assert_talking(&[(A, B)]);

    world.scenario.sim().restart(GATE);
    world.run(Duration::from_secs(5));
    assert_eq!(world.live_calls(), 1);
    world.scenario.assert_talking(&[(A, B)]);
    end(&mut world);
}

#[test]
fn t39_a_phone_that_forgot_its_call_while_only_the_b2b_was_away_is_found_out() {
    let answers = [Some(481), Some(603), None];
    let runs = answers.into_iter().flat_map(|answer| [(answer, false), (answer, true)]);
    for ((lost_call, held), seed) in runs.zip(70..) {
        let disk = MemoryDisk::default();
        let mut world = talking(seed, &disk);
        let manners = Manners { lost_call, ..Manners::default() };
        world.scenario.plan(Duration::ZERO, A, Command::Behave(Box::new(manners)));
        if held {
            world.scenario.plan(Duration::ZERO, B, Command::Hold);
            world.run(Duration::from_secs(1));
        }
        world.scenario.sim().crash(B2B);
        world.scenario.plan(Duration::ZERO, A, Command::Forget);
        world.run(Duration::from_secs(1));
        world.scenario.sim().restart(B2B);
        world.run(Duration::from_secs(35));

        let states = [A, B].map(|phone| world.scenario.fleet().state(phone));
        let how = format!("{lost_call:?}, held: {held}");
        assert_eq!(states, [State::Idle, State::Idle], "{how}\n{}", world.scenario);
        assert_eq!(world.live_calls(), 0);
    }
}

/// Behind a NAT nobody can connect to it: it comes back by itself, with a request of its call. Whoever
/// lost its voice, too, has the minute that a silent leg has.
#[test]
fn t39_a_phone_on_tcp_that_nobody_can_connect_to_keeps_its_call_until_it_comes_back() {
    let ways = [
        (&EVERYTHING[..], 20, Command::Reinvite),
        (&EVERYTHING[..], 45, Command::Reinvite),
        (&[B2B][..], 150, Command::Reinvite),
        (&[GATE][..], 150, Command::Reinvite),
    ];
    for (restarts, away, comes_back) in ways {
        let disk = MemoryDisk::default();
        let mut world = World::build(
            9,
            Setup { disk: Some(disk.clone()), streams: 2, ..Setup::new(Layout::Three) },
        );
        world.start();
        world.call(A, C);
        world.run(Duration::from_secs(3));
        world.scenario.assert_talking(&[(A, C)]);
        for node in restarts {
            world.scenario.sim().crash(*node);
        }
        world.scenario.sim().refuse_streams(GATE);
        disk.crash(world.scenario.now(), WINDOW);
        world.run(Duration::from_secs(1));
        for node in restarts {
            world.scenario.sim().restart(*node);
        }
        world.run(Duration::from_secs(away));
        assert_eq!(world.live_calls(), 1);
        world.scenario.plan(Duration::ZERO, A, comes_back);
        world.run(Duration::from_secs(3));
        world.scenario.assert_talking(&[(A, C)]);

        world.scenario.plan(Duration::ZERO, A, Command::Hold);
        world.run(Duration::from_secs(2));
        let held = State::Talking { holds: false, held: true };
        assert_eq!(world.scenario.fleet().state(C), held, "{}", world.scenario);
        world.scenario.plan(Duration::ZERO, C, Command::Hangup);
        world.run(Duration::from_secs(2));
        let states = [A, C].map(|phone| world.scenario.fleet().state(phone));
        assert_eq!(states, [State::Idle; 2], "{}", world.scenario);
    }
}

const EVERYTHING: [NodeId; 5] = [GATE, B2B, CONTROLLER, FIRST_MEDIAGATE, OTHER_MEDIAGATE];

fn crash_everything(world: &mut World) {
    EVERYTHING.iter().for_each(|node| world.scenario.sim().crash(*node));
}

fn restart_everything(world: &mut World) {
    EVERYTHING.iter().for_each(|node| world.scenario.sim().restart(*node));
}

/// Restarts everything: the call goes on, and registered phones can be called.
fn come_back(world: &mut World) {
    world.run(Duration::from_secs(1));
    restart_everything(world);
    world.run(Duration::from_secs(8));

    world.scenario.assert_talking(&[(A, B)]);
    world.call(C, D);
    world.run(Duration::from_secs(2));
    world.scenario.assert_talking(&[(A, B), (C, D)]);
    world.hang_up(C);
    end(world);
}

/// A cluster of these ports whose b2b began anew while A and B talked, and has leased what it may.
fn back_with_a_call(seed: u64, ports: RangeInclusive<u16>) -> World {
    let disk = Some(MemoryDisk::default());
    let mut world = World::build(seed, Setup { disk, ports, ..Setup::new(Layout::Three) });
    world.start();
    world.call(A, B);
    world.run(Duration::from_secs(3));
    world.scenario.sim().crash(B2B);
    world.scenario.sim().restart(B2B);
    world.run(Duration::from_secs(6));
    world
}

/// A cluster with a disk, in which A and B talk.
fn talking(seed: u64, disk: &MemoryDisk) -> World {
    let mut world = World::with_disk(seed, Layout::Three, Some(disk));
    world.start();
    world.call(A, B);
    world.run(Duration::from_secs(3));
    world.scenario.assert_talking(&[(A, B)]);
    world
}

fn end(world: &mut World) {
    world.hang_up(B);
    world.run(Duration::from_secs(2));
    let states = [A, B].map(|phone| world.scenario.fleet().state(phone));
    assert_eq!(states, [State::Idle, State::Idle], "{}", world.scenario);
    assert_eq!(world.live_calls(), 0);
}
