//! Every order of everything, in small worlds. `HOLDLINE_MODELS=all` explores the large ones too:
//! `HOLDLINE_MODELS=all cargo test --release -p quota-split --test it models -- --nocapture`.
#![expect(clippy::print_stdout, reason = "the sizes of what was explored are worth seeing")]

use quota_split::{Lending, Partition};
use stateright::{Checker as _, HasDiscoveries, Model as _};

use crate::world::{FALLS, LIMIT, Mutant, Small};

/// Two segments, one full with calls, weights that differ between epochs.
fn two() -> Small {
    Small {
        limits: vec![3],
        weights: [vec![1, 1], vec![1, 3]],
        begin: vec![(3, 2), (0, 0)],
        lending: Lending::Off,
        partition: Partition::Full,
        leads: 2,
        crashes: 0,
        calls: if all() { 1 } else { 0 },
        reports: 1,
        ticks: 0,
        documents: 0,
        learns: 0,
        repeats: false,
        cut: false,
        mutant: Mutant::None,
    }
}

/// Two segments that lend, and calls at both.
fn lent() -> Small {
    Small {
        limits: vec![4],
        weights: [vec![1, 1], vec![1, 1]],
        begin: vec![(2, 0), (2, 0)],
        lending: Lending::Hold,
        leads: 1,
        calls: if all() { 3 } else { 2 },
        reports: 0,
        ticks: 1,
        ..two()
    }
}

/// Two segments of an even share each, and a cut.
fn cut() -> Small {
    let begin = vec![(1, 1), (1, 0)];
    let leads = if all() { 3 } else { 2 };
    Small { limits: vec![2], begin, leads, cut: true, reports: 0, calls: 0, ..two() }
}

/// Two segments, and a limit that falls from one document to the next.
fn lowered() -> Small {
    let (leads, learns) = if all() { (2, 0) } else { (1, 1) };
    Small { limits: vec![3, 2], leads, learns, documents: 1, reports: 0, calls: 0, ..two() }
}

#[test]
fn the_limit_holds_under_two_coordinators() {
    holds("two epochs", &two());
}

#[test]
fn the_limit_holds_when_a_coordinator_dies() {
    holds("two epochs and a death", &Small { crashes: 1, reports: 0, ..two() });
}

#[test]
fn the_limit_holds_when_the_network_repeats_itself() {
    let repeated = |leads, calls, reports| {
        let name = format!("repeated, {leads} epochs, {calls} calls, {reports} reports");
        holds(&name, &Small { leads, calls, reports, repeats: true, ..two() });
    };
    repeated(1, 1, 1);
    if all() {
        repeated(1, 2, 1);
        repeated(2, 1, 1);
        repeated(2, 2, 0);
    }
}

#[test]
fn the_limit_holds_among_three_segments() {
    let weights = [vec![1, 1, 1], vec![3, 1, 1]];
    let begin = vec![(2, 1), (1, 1), (0, 0)];
    let leads = if all() { 2 } else { 1 };
    holds("three segments", &Small { weights, begin, leads, reports: 0, calls: 0, ..two() });
}

#[test]
fn a_changed_document_moves_shares_within_the_limit() {
    let small = Small { limits: vec![2, 3], begin: vec![(2, 2), (0, 0)], ..two() };
    holds("a document", &Small { leads: 1, documents: 1, ..small });
}

#[test]
fn a_lowered_limit_holds_from_the_division_on_that_all_promised() {
    holds("a lowered limit", &lowered());
    if all() {
        let begin = vec![(2, 0), (1, 0)];
        let small = Small { leads: 2, learns: 1, begin, ..lowered() };
        holds("a lowered limit that members learn of, two epochs", &small);
    }
}

#[test]
fn a_coordinator_that_goes_on_with_the_old_limit_is_seen() {
    let mutant = Mutant::OldLimit;
    let small = Small { mutant, begin: vec![(3, 1), (0, 0)], leads: 1, learns: 0, ..lowered() };
    breaks_what(FALLS, &small);
}

#[test]
fn islands_hold_a_limit_each_and_come_together_again() {
    holds("islands", &cut());
}

#[test]
fn frozen_islands_hold_one_limit_together() {
    holds("frozen islands", &Small { partition: Partition::Frozen, ..cut() });
}

#[test]
fn lending_holds_the_limit() {
    holds("lending", &lent());
}

#[test]
fn lending_holds_the_limit_under_two_coordinators() {
    let weights = [vec![1, 1], vec![1, 3]];
    let begin = if all() { vec![(2, 1), (1, 1)] } else { vec![(2, 0), (1, 1)] };
    let small = Small { limits: vec![3], begin, weights, ..lent() };
    holds("lending, two epochs", &Small { leads: 2, calls: u8::from(all()), ticks: 0, ..small });
}

#[test]
fn grants_before_all_promises_break_the_limit() {
    breaks(&Small { mutant: Mutant::GrowEarly, leads: 1, ..two() });
}

#[test]
fn a_promise_of_the_cap_where_use_is_more_breaks_the_limit() {
    breaks(&Small { mutant: Mutant::CapForHeld, calls: 1, leads: 1, ..two() });
}

#[test]
fn a_grant_of_another_division_breaks_the_limit() {
    breaks(&Small { mutant: Mutant::StaleGrow, begin: vec![(3, 0), (0, 0)], ..two() });
}

#[test]
fn counting_less_while_a_grant_is_on_its_way_breaks_the_limit_once_parts_are_lent() {
    breaks(&Small { mutant: Mutant::BelowGrant, calls: 3, ticks: 2, ..lent() });
}

#[test]
fn counting_less_while_a_grant_is_on_its_way_is_harmless_while_targets_stand_still() {
    holds(
        "below a grant, not lent",
        &Small { mutant: Mutant::BelowGrant, calls: 1, leads: 1, ..two() },
    );
}

/// Tells whether the large worlds are wanted too.
fn all() -> bool {
    std::env::var_os("HOLDLINE_MODELS").is_some_and(|models| models == "all")
}

/// Depth first: what is still to be looked at is few states then, and what was seen a number of each.
fn holds(name: &str, small: &Small) {
    let checker = small.clone().checker().threads(2).spawn_dfs().join();
    println!("{name}: {} states, depth {}", checker.unique_state_count(), checker.max_depth());
    checker.assert_properties();
}

/// Checks that a broken rule is seen.
fn breaks(small: &Small) {
    breaks_what(LIMIT, small);
}

fn breaks_what(property: &'static str, small: &Small) {
    let seen = HasDiscoveries::AnyOf([property].into());
    let checker = small.clone().checker().finish_when(seen).spawn_dfs().join();
    let found = checker.discovery(property);
    println!("{:?}: {} states", small.mutant, checker.unique_state_count());
    assert!(found.is_some(), "{:?} was not caught", small.mutant);
}
