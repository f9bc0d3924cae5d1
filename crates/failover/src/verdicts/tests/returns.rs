//! Who comes back: gateways, and a b2b that owned nothing.

use super::*;

#[test]
fn a_gateway_that_returns_in_a_new_boot_gets_calls_again() {
    let mut world = World::started();
    world.prove_dead(10);
    assert_eq!(world.living(), [11, 12]);

    world.boots[0] = 2;
    world.advance(20);
    assert_eq!(world.living(), [10, 11, 12]);
    assert!(world.verdicts.is_dead(NodeId(10), Boot(1)));
    assert!(!world.verdicts.is_dead(NodeId(10), Boot(2)));
}

#[test]
fn a_gateway_that_was_stopped_for_a_while_stays_out_until_it_is_steady_and_can_die_again() {
    let mut world = World::started();
    world.stopped.insert(10);
    world.advance(1000);
    assert_eq!(world.deaths(), [10]);

    world.stopped.clear();
    world.advance(1900);
    assert_eq!(world.living(), [11, 12]);
    world.advance(400);
    assert_eq!(world.living(), [10, 11, 12]);
    assert_eq!(world.verdicts.counters().falses, 1);

    world.stopped.insert(10);
    world.advance(1000);
    assert_eq!(world.deaths(), [10]);
}

#[test]
fn a_gateway_that_was_judged_falsely_gets_calls_at_once_when_the_last_other_dies() {
    let mut world = World::started();
    world.prove_dead(12);
    world.stopped.insert(10);
    world.advance(200);
    assert_eq!(world.deaths(), [12, 10]);
    world.stopped.clear();
    world.stopped.insert(12);
    world.advance(100);
    assert_eq!(world.living(), [11]);

    world.stopped.insert(11);
    world.prove_dead(11);
    world.advance(20);
    assert_eq!(world.deaths(), [11]);
    assert_eq!(world.living(), [10]);

    world.refuse_at_b2b(10);
    assert_eq!(world.deaths(), [10], "it can die again");
}

#[test]
fn a_b2b_admits_for_itself_while_no_controller_is_heard() {
    let mut world = World::new();
    world.lose_controller(1);
    world.lose_controller(2);
    world.advance(100);

    assert_eq!(world.living(), [10, 11, 12]);
}

#[test]
fn a_b2b_that_owns_nothing_asks_for_no_beats_and_has_no_ticks() {
    let mut world = World::started();
    world.input(Input::Owns(false));
    world.hears = 0;
    world.turns = 0;

    world.advance(4000);

    assert_eq!(world.hears, 0);
    assert_eq!(world.turns, 16, "only the controllers are asked");
    assert_eq!(world.living(), [10, 11, 12]);
    assert_eq!(world.deaths(), []);
}

#[test]
fn a_b2b_that_owns_nothing_listens_when_a_controller_calls_a_gateway_silent() {
    let mut world = World::started();
    world.input(Input::Owns(false));
    world.advance(5000);

    world.stopped.insert(10);
    world.advance(240);
    assert_eq!(world.deaths(), [10]);

    world.deaf.insert((1, 11));
    world.deaf.insert((2, 11));
    world.hears = 0;
    world.advance(5000);
    assert_eq!(world.deaths(), [], "it hears that one");
    assert_ne!(world.hears, 0);

    world.deaf.clear();
    world.advance(5000);
    world.hears = 0;
    world.advance(5000);
    assert_eq!(world.hears, 0, "nobody doubts any more");
}

#[test]
fn a_b2b_that_gets_slots_knows_the_gateways_at_once_and_hears_them_from_then_on() {
    let mut world = World::started();
    world.input(Input::Owns(false));
    world.advance(5000);
    world.stopped.insert(12);
    world.boots[1] = 2;
    world.input(Input::LinkUp(NodeId(11), Boot(2)));
    assert_eq!(world.deaths(), [11], "its boot before");
    world.advance(20);

    world.input(Input::Owns(true));

    assert_eq!(world.living(), [10, 11, 12]);
    assert!(!world.verdicts.is_dead(NodeId(11), Boot(2)));
    world.advance(240);
    assert_eq!(world.living(), [10, 11]);
    assert_eq!(world.deaths(), [12]);
}

#[test]
fn a_boot_not_heard_here_that_was_refused_elsewhere_counts_once_it_speaks_steadily() {
    let mut world = World::started();
    world.input(Input::Owns(false));
    world.advance(1200);
    world.boots[1] = 2;
    world.advance(200);
    world.refuse_at_controller(1, 11);
    assert!(world.verdicts.is_dead(NodeId(11), Boot(2)));

    world.input(Input::Owns(true));
    world.advance(1900);
    assert!(world.verdicts.is_dead(NodeId(11), Boot(2)), "a late beat is no proof of life");
    world.advance(2200);
    assert_eq!(world.living(), [10, 11, 12]);
}
