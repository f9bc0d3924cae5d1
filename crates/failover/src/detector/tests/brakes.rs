//! What keeps silence from being believed, and what comes of a false verdict.

use super::*;

#[test]
fn one_gateway_at_most_is_judged_in_two_seconds() {
    let mut run = Run::started(PLAIN, 5, 1);
    run.silent.extend([(1, 0), (2, 0)]);

    run.advance(1900);
    assert_eq!(run.said().len(), 1);
    assert_eq!(run.detector.counters().withheld, 1);
    run.advance(300);
    assert_eq!(run.said().len(), 1);
}

#[test]
fn nobody_is_judged_while_more_than_half_look_silent() {
    for (gateways, silent) in [(3, 2), (4, 3), (5, 3), (5, 5), (2, 2), (1, 1)] {
        let mut run = Run::started(PLAIN, gateways, 1);
        run.silent.extend((1..=silent).map(|id| (id, 0)));
        run.advance(10_000);

        assert_eq!(run.said(), [], "{silent} of {gateways}");
    }
}

#[test]
fn half_of_four_and_one_of_two_may_be_judged() {
    for (gateways, silent) in [(2, 1), (4, 2), (3, 1)] {
        let mut run = Run::started(PLAIN, gateways, 1);
        run.silent.extend((1..=silent).map(|id| (id, 0)));
        run.advance(10_000);

        assert_eq!(run.said().len(), usize::from(silent), "{silent} of {gateways}");
    }
}

#[test]
fn a_cut_cable_judges_nobody_though_the_last_beats_came_at_different_moments() {
    for config in [PLAIN, REALTIME] {
        for cut_at in 0..20 {
            let mut run = Run::started(config, 4, 1);
            run.advance(cut_at);
            run.silent.extend((1..=4).map(|id| (id, 0)));
            run.advance(5000);

            assert_eq!(run.said(), []);
        }
    }
}

#[test]
fn a_mended_cable_judges_nobody_though_the_first_beats_come_at_different_moments() {
    for config in [PLAIN, REALTIME] {
        for gateways in [2, 3, 5] {
            let mut run = Run::started(config, gateways, 1);
            for time in ["the first time", "and again"] {
                run.silent.extend((1..=gateways).map(|id| (id, 0)));
                run.advance(3600);
                for id in 1..=gateways {
                    run.silent.remove(&(id, 0));
                    run.advance(20 / u64::from(gateways));
                }
                run.advance(5000);

                assert_eq!(run.said(), [], "{gateways}, {time}");
            }
        }
    }
}

#[test]
fn who_died_while_the_cable_was_broken_is_judged_once_it_is_mended() {
    let mut run = Run::started(PLAIN, 2, 1);
    run.silent.extend([(1, 0), (2, 0)]);
    run.advance(3600);
    run.silent.remove(&(2, 0));
    run.advance(90);
    assert_eq!(run.said(), []);
    run.advance(40);

    assert_eq!(run.said().len(), 1);
}

#[test]
fn a_gateway_that_stutters_does_not_hide_the_death_of_the_other() {
    let mut run = Run::started(PLAIN, 2, 1);
    run.silent.insert((1, 0));
    for _ in 0..5 {
        run.silent.insert((2, 0));
        run.advance(90);
        run.silent.remove(&(2, 0));
        run.advance(10);
    }

    assert_eq!(run.said().len(), 1);
}

#[test]
fn proof_is_not_braked() {
    let mut run = Run::started(PLAIN, 3, 1);
    run.silent.extend((1..=3).map(|id| (id, 0)));
    run.advance(300);

    (1..=3).for_each(|id| run.refuse(id));

    assert_eq!(run.said().len(), 3);
}

#[test]
fn a_gateway_that_speaks_again_was_judged_falsely_and_gets_twice_the_time() {
    let mut run = judged(3);
    assert_eq!(run.detector.counters().falses, 0);

    run.silent.clear();
    run.advance(10);
    assert_eq!(run.detector.counters().falses, 1);
    run.advance(2020);
    assert_eq!(run.said(), [Output::Alive(NodeId(2), Boot(1))]);
    assert_eq!(run.detector.counters().falses, 1);

    run.silence_after_beat(2);
    run.advance(199);
    assert_eq!(run.said(), []);
    run.advance(1);
    assert_eq!(run.said().len(), 1);
}

#[test]
fn the_doubt_about_a_boot_ends_after_ten_minutes() {
    let mut run = judged(3);
    run.silent.clear();
    run.advance(600_100);
    run.said();

    run.silence_after_beat(2);
    run.advance(100);

    assert_eq!(run.said().len(), 1);
}

#[test]
fn a_gateway_that_was_judged_falsely_counts_again_at_once_when_no_other_lives() {
    let mut run = judged(2);
    run.silent.clear();
    run.advance(50);
    assert_eq!(run.said(), []);

    run.silent.insert((1, 0));
    run.refuse(1);
    assert_eq!(run.said(), [Output::Dead(dead(1, Cause::Refused))]);
    run.advance(10);
    assert_eq!(run.said(), [Output::Alive(NodeId(2), Boot(1))]);

    run.refuse(2);
    assert_eq!(run.said(), [Output::Dead(dead(2, Cause::Refused))]);
    run.advance(1000);
    assert_eq!(run.said(), [], "proof is proof");
}

#[test]
fn a_gateway_that_stutters_does_not_count_as_living_again() {
    let mut run = judged(3);

    for _ in 0..10 {
        run.silent.clear();
        run.advance(1000);
        run.silent.insert((2, 0));
        run.advance(300);
    }

    assert_eq!(run.said(), []);
}

/// Of so many gateways the second was silent for as long as is believed.
fn judged(gateways: u16) -> Run {
    let mut run = Run::started(PLAIN, gateways, 1);
    run.silence_after_beat(2);
    run.advance(100);
    assert_eq!(run.said().len(), 1);
    run
}
