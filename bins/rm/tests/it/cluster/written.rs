//! The detail record of each call is written, whoever dies and whatever becomes of the log.

use std::time::Duration;

use driver::Input;
use driver::sim::Pen;
use driver::store::MemoryDisk;
use testkit::{PhoneId, State};

use super::details::{Details, Warnings};
use super::pair::talking;
use super::world::{B2B, CONTROLLER, GATE, Layout, OTHER_GATE, World};

const A: PhoneId = PhoneId(0);
const B: PhoneId = PhoneId(1);
const C: PhoneId = PhoneId(2);
const D: PhoneId = PhoneId(3);

#[test]
fn a_detail_that_cannot_be_written_is_written_once_the_log_takes_it() {
    for pen in [Pen::Fails, Pen::Stalls] {
        let details = Details::listen();
        let (mut world, owner, _) = talking(31, Layout::Pair);
        world.scenario.sim().set_pen(owner, pen);
        world.hang_up(A);
        world.run(Duration::from_secs(20));
        assert_eq!((details.count(&world), world.figure(owner, "rm_details_waiting")), (0, 1));

        world.scenario.sim().set_pen(owner, Pen::Writes);
        world.run(Duration::from_secs(2));

        assert_eq!((details.count(&world), world.figure(owner, "rm_details_waiting")), (1, 0));
        assert!(details.wrong(&world, &[], false).is_empty());
    }
}

/// More calls than lines that wait: those beyond are lost on their way, and come again.
#[test]
fn calls_that_end_while_nobody_reads_the_log_have_their_details_afterwards() {
    let details = Details::listen();
    let (mut world, owner, other) = talking(32, Layout::Pair);
    for b2b in [owner, other] {
        world.scenario.sim().set_pen(b2b, Pen::Stalls);
    }
    world.hang_up(A);
    for _ in 0..29 {
        world.run(Duration::from_secs(1));
        world.call(C, D);
        world.run(Duration::from_secs(2));
        world.hang_up(C);
    }
    world.run(Duration::from_secs(1));
    assert_eq!(details.count(&world), 0);

    for b2b in [owner, other] {
        world.scenario.sim().set_pen(b2b, Pen::Writes);
    }
    world.run(Duration::from_secs(3));

    assert_eq!(details.count(&world), 30);
    assert!(details.wrong(&world, &[], false).is_empty());
}

#[test]
fn a_detail_that_nobody_reads_is_written_by_the_next_owner() {
    for pen in [Pen::Fails, Pen::Stalls] {
        let details = Details::listen();
        let (mut world, owner, _) = talking(33, Layout::Pair);
        world.scenario.sim().set_pen(owner, pen);
        world.hang_up(B);
        world.run(Duration::from_secs(3));
        assert_eq!(details.count(&world), 0);

        world.scenario.sim().crash(owner);
        world.run(Duration::from_secs(1));

        assert_eq!(details.count(&world), 1);
        assert!(details.wrong(&world, &[], false).is_empty());
    }
}

/// No other b2b would ever write them.
#[test]
fn the_only_b2b_ends_when_its_details_are_written() {
    let (details, warnings) = (Details::listen(), Warnings::listen());
    let mut world = World::new(34, Layout::Three);
    world.start();
    world.call(A, B);
    world.run(Duration::from_secs(2));
    world.scenario.sim().set_pen(B2B, Pen::Fails);
    world.hang_up(A);
    world.run(Duration::from_secs(1));
    world.scenario.sim().tell(B2B, Input::Drain);
    world.run(Duration::from_secs(70));
    assert!(world.scenario.sim().is_running(B2B));
    assert_eq!(warnings.count("the end waits until details of calls are written"), 1);

    world.scenario.sim().set_pen(B2B, Pen::Writes);
    world.run(Duration::from_secs(2));

    assert!(!world.scenario.sim().is_running(B2B));
    assert_eq!(details.count(&world), 1);
}

/// I6.
#[test]
fn each_call_has_one_detail_record_whichever_b2b_it_ended_at() {
    let details = Details::listen();
    let (mut world, owner, other) = talking(14, Layout::Pair);
    let (e, f) = (PhoneId(4), PhoneId(5));
    world.call(C, D);
    world.call(e, f);
    world.run(Duration::from_secs(2));
    world.hang_up(A);
    world.run(Duration::from_millis(500));
    world.scenario.sim().crash(owner);
    world.run(Duration::from_secs(1));
    world.hang_up(D);
    world.run(Duration::from_secs(1));
    world.scenario.sim().restart(owner);
    world.run(Duration::from_secs(3));
    assert_eq!(details.count(&world), 2);

    world.scenario.sim().tell(other, Input::Drain);
    world.run(Duration::from_secs(1));
    world.hang_up(e);
    world.run(Duration::from_secs(70));
    world.scenario.assert_idle();
    assert_eq!((details.count(&world), world.live_calls()), (3, 0));
    let wrong = details.wrong(&world, &[], false);
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// I6. A second copy, where the owner dies before the news of the first left it, is the same.
#[test]
fn a_call_has_a_detail_record_whenever_its_owner_dies_while_it_ends() {
    let mut repeats = 0;
    for step in 0..40 {
        let details = Details::listen();
        let (mut world, owner, _) = talking(17, Layout::Pair);
        world.hang_up(A);
        world.run(Duration::from_micros(100 * step));
        world.scenario.sim().crash(owner);
        world.run(Duration::from_secs(5));
        assert_ended_once(&world, &details, true, step);
        repeats += details.repeats(&world);
    }
    assert!(repeats < 40, "not every death is in the window: {repeats}");
}

/// Seed 3162: the owner could not reach its standby any more and wrote it down before its lease ended; the
/// next one, where the call went on until the phone's BYE came again, wrote it down too.
#[test]
fn a_call_that_ends_at_an_owner_that_is_cut_off_has_one_detail_record() {
    for step in 0..20 {
        let details = Details::listen();
        let (mut world, owner, other) = talking(20, Layout::Pair);
        world.hang_up(A);
        world.run(Duration::from_micros(150 * step));
        for node in [GATE, OTHER_GATE, other, CONTROLLER] {
            world.scenario.sim().cut_both(owner, node);
        }
        world.run(Duration::from_secs(2));
        world.scenario.sim().heal_all();
        world.run(Duration::from_secs(10));
        assert_ended_once(&world, &details, true, step);
    }
}

/// What is written while slots are given away is written by one of the two.
#[test]
fn a_call_has_one_detail_record_whenever_its_owner_drains_while_it_ends() {
    for step in 0..20 {
        let details = Details::listen();
        let (mut world, owner, _) = talking(18, Layout::Pair);
        world.hang_up(B);
        world.run(Duration::from_micros(200 * step));
        world.scenario.sim().tell(owner, Input::Drain);
        world.run(Duration::from_secs(5));
        assert_ended_once(&world, &details, false, step);
    }
}

/// The only b2b, too: its next life finds the call in its store, or what is to be written of it. Where
/// the store lost the end, the call ends again, and its second line names another time.
#[test]
fn a_call_has_its_detail_once_or_twice_whenever_the_only_b2b_dies_while_it_ends() {
    let mut repeats = 0;
    for step in 0..40 {
        let details = Details::listen();
        let disk = MemoryDisk::default();
        let mut world = World::with_disk(35, Layout::Three, Some(&disk));
        world.start();
        world.call(A, B);
        world.run(Duration::from_secs(2));
        world.hang_up(A);
        world.run(Duration::from_millis(step));
        world.scenario.sim().crash(B2B);
        disk.crash(world.scenario.now(), Duration::from_millis(30));
        world.scenario.sim().restart(B2B);
        world.run(Duration::from_secs(40));

        assert_eq!([A, B].map(|phone| world.scenario.fleet().state(phone)), [State::Idle; 2]);
        let (count, again) = (details.count(&world), details.repeats(&world));
        assert!(count == 1 && again < 2 && world.live_calls() == 0, "{step}: {}", world.scenario);
        repeats += again;
    }
    assert!((1..40).contains(&repeats), "some deaths are in the window, not all: {repeats}");
}

/// Both phones are idle, and the only call there was has one detail record.
fn assert_ended_once(world: &World, details: &Details, may_repeat: bool, step: u64) {
    assert_eq!([A, B].map(|phone| world.scenario.fleet().state(phone)), [State::Idle; 2]);
    let told = (details.count(world), world.live_calls());
    assert_eq!(told, (1, 0), "{step}: {}", world.scenario);
    let wrong = details.wrong(world, &[], may_repeat);
    assert!(wrong.is_empty(), "{step}: {wrong:?}");
}
