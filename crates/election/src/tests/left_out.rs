//! Each rule left out, one at a time: the tests must notice.

use super::invariants::unrest;
use super::seeds::live;
use super::world::World;
use super::{node, origin};
use crate::bully::{Bully, Message, Timer};
use crate::message::{LinkState, Nack};
use crate::rules::{Rule, Rules};
use crate::{Epoch, Segment, Timing};

#[test]
fn random_worlds_notice_the_rules_without_which_something_breaks() {
    let rules = [Rule::TwoWayLinks, Rule::ToldLinks, Rule::TermPerVictory, Rule::StoredPromise];
    for rule in rules {
        let failing =
            (0..200).find(|seed| !live(*seed, Rules::without(rule)).watchdog.faults.is_empty());
        println!("without {rule:?}: {failing:?}");
        assert!(failing.is_some(), "nothing broke without {rule:?}");
    }
}

#[test]
fn without_the_life_in_an_epoch_a_lost_file_makes_one_number_name_two_divisions() {
    let faults = |rules| {
        let mut world = started(3, &[(1, 1), (2, 1)], rules);
        world.crash(0);
        world.crash(1);
        world.processes[0].disk = None;
        world.start(0);
        world.run_for(10_000);
        world.watchdog.faults.len()
    };

    assert_eq!(faults(Rules::default()), 0);
    assert_ne!(faults(Rules::without(Rule::EpochOfOneLife)), 0);
}

#[test]
fn without_the_stability_time_a_flapping_node_costs_far_more_epochs() {
    let (kept, left_out) = flaps(&[(1, 1), (2, 1), (3, 1)], Rule::Stability);
    println!("{kept} {left_out}");
    assert!(3 * kept < 2 * left_out, "{kept} epochs, {left_out} without");
}

#[test]
fn when_outsiders_follow_a_flapping_node_costs_more_epochs() {
    let (kept, left_out) = flaps(&[(1, 1), (2, 1), (3, 1), (4, 1), (5, 1)], Rule::Member);
    println!("{kept} {left_out}");
    assert!(5 * kept < 4 * left_out, "{kept} epochs, {left_out} without");
}

#[test]
fn when_changes_alone_are_acted_on_one_that_came_too_soon_is_never_seen_again() {
    let lost = |rules| {
        let [mut lead, mut other] = two(rules);
        lead.fire(origin(), Timer::Boot);
        refuse(&mut lead, &mut other);
        // It has campaigned as often as it may for now, when the other one is lost.
        lead.set_links(origin(), [].into(), [].into());
        assert!(lead.mandate().unwrap().has(Segment(2)));
        lead.fire(origin(), Timer::Budget);
        !lead.mandate().unwrap().has(Segment(2))
    };

    assert!(lost(Rules::default()));
    assert!(!lost(Rules::without(Rule::Level)));
}

#[test]
fn when_everybody_campaigns_the_death_of_a_coordinator_costs_many_more_messages() {
    let frames = |rules| {
        let mut frames = 0;
        for seed in 0..5 {
            let mut world = started(seed, &[(1, 1), (2, 1), (3, 1), (4, 1), (5, 1)], rules);
            let before = world.watchdog.election_frames_sent;
            world.crash(0);
            world.run_for(15_000);
            frames += world.watchdog.election_frames_sent - before;
        }
        frames
    };

    let (kept, left_out) =
        (frames(Rules::default()), frames(Rules::without(Rule::LowestCampaigns)));
    println!("{kept} {left_out}");
    assert!(2 * kept < left_out, "{kept} frames, {left_out} without");
}

#[test]
fn without_the_exchange_of_databases_a_newcomer_learns_late_who_is_there() {
    let rests = |rules| {
        let mut world = World::new(3, &[node(1, 1), node(2, 1), node(3, 1)], rules);
        // The first hears of the third through the second alone, and just after the third has
        // repeated itself.
        world.cuts.insert((node(1, 1), node(3, 1)));
        world.cuts.insert((node(3, 1), node(1, 1)));
        world.start(1);
        world.start(2);
        world.run_for(10_500);
        world.start(0);
        world.run_for(8_100);
        unrest(&world)
    };

    assert_eq!(rests(Rules::default()), None);
    assert_ne!(rests(Rules::without(Rule::Database)), None);
}

#[test]
fn when_those_who_start_are_waited_for_a_loss_meanwhile_is_noticed_late() {
    let epochs = |rules| {
        let mut world = started(3, &[(1, 1), (2, 1), (3, 1), (4, 1)], rules);
        world.crash(0);
        world.run_for(10_000);
        world.start(0);
        world.run_for(1_000);
        world.crash(2);
        world.run_for(4_500);
        let mandate = world.processes[3].role.as_ref().unwrap().mandate();
        mandate.segments()
    };

    assert_eq!(epochs(Rules::default()), [Segment(2), Segment(4)].into());
    assert_ne!(epochs(Rules::without(Rule::Electable)), [Segment(2), Segment(4)].into());
}

#[test]
fn a_wait_for_stability_that_was_broken_off_and_never_begins_again_leaves_a_newcomer_out() {
    let rests = |rules| {
        let mut world = World::new(3, &[node(1, 1), node(2, 1), node(3, 1)], rules);
        world.start(0);
        world.start(1);
        world.run_for(10_000);
        isolate(&mut world, 0);
        world.run_for(10_000);
        world.cuts.retain(|(a, b)| *a == node(1, 1) || *b == node(1, 1));
        world.start(2);
        world.run_for(3_000);
        // The lowest is seen for a moment, while the newcomer is watched.
        world.cuts.clear();
        world.run_for(2_500);
        isolate(&mut world, 0);
        world.run_for(40_000);
        unrest(&world)
    };

    assert_eq!(rests(Rules::default()), None);
    assert_ne!(rests(Rules::without(Rule::StabilityGoesOn)), None);
}

#[test]
fn when_starts_are_not_watched_a_newcomer_waits_twice() {
    let rests = |rules| {
        let mut world = World::new(3, &[node(1, 1), node(2, 1), node(3, 1)], rules);
        world.start(0);
        world.start(1);
        world.run_for(10_000);
        world.start(2);
        world.run_for(6_500);
        unrest(&world)
    };

    assert_eq!(rests(Rules::default()), None);
    assert_ne!(rests(Rules::without(Rule::StartsAreWatched)), None);
}

#[test]
fn a_candidate_that_missed_the_victory_learns_of_it_by_asking() {
    let follows = |rules| {
        let [mut lead, mut other] = two(rules);
        lead.fire(origin(), Timer::Boot);
        let asked = tell(&mut lead, &mut other);
        assert!(matches!(asked[..], [Message::Election(_)]));
        tell(&mut other, &mut lead);
        assert!(lead.leads());
        // The victory is lost, and no link state comes.
        while lead.poll_message().is_some() {}
        other.fire(origin(), Timer::Patience);
        let asked = tell(&mut other, &mut lead);
        assert!(matches!(asked[..], [Message::Election(_)]));
        tell(&mut lead, &mut other);
        other.mandate() == lead.mandate()
    };

    assert!(follows(Rules::default()));
    assert!(!follows(Rules::without(Rule::RepeatedVictory)));
}

#[test]
fn without_a_budget_refusals_make_a_storm_of_campaigns() {
    let campaigns = |rules| {
        let [mut lead, mut other] = two(rules);
        lead.fire(origin(), Timer::Boot);
        refuse(&mut lead, &mut other);
        lead.campaigns()
    };

    assert!(campaigns(Rules::default()) <= 4);
    assert!(30 < campaigns(Rules::without(Rule::Budget)));
}

#[test]
fn without_waiting_for_a_segment_that_starts_others_get_its_share_while_its_calls_live() {
    // The one that spoke dies while its partner starts: in another segment, and in the lowest.
    for (dies, starts) in [(2, 3), (0, 1)] {
        let evicted = |rules| {
            let ids = [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1)];
            let mut world = started(3, &ids, rules);
            let segment = world.processes[dies].id.segment;
            world.crash(starts);
            world.run_for(5_000);
            world.start(starts);
            world.run_for(1_000);
            world.crash(dies);
            world.run_for(15_000);
            assert_eq!(unrest(&world), None);
            world.watchdog.epochs.values().any(|mandate| !mandate.has(segment))
        };

        assert!(!evicted(Rules::default()), "{dies}");
        assert!(evicted(Rules::without(Rule::Vacancy)), "{dies}");
    }
}

#[test]
fn a_segment_that_never_comes_up_is_not_waited_for_beyond_the_time_of_a_start() {
    let mut world = started(3, &[(1, 1), (2, 1), (3, 1), (3, 2)], Rules::default());
    world.crash(3);
    world.run_for(5_000);
    let since = world.now;
    let is_member = |world: &World| {
        let mandate = world.processes[0].role.as_ref().map(super::world::Role::mandate);
        mandate.unwrap().has(Segment(3))
    };

    world.crash(2);
    for at in [3, 2, 3, 2, 3, 2] {
        // One of the two is always starting.
        world.start(at);
        world.run_for(2_000);
        world.crash(5 - at);
        world.run_for(1_000);
        assert!(8_300 < world.now - since || is_member(&world), "after {} ms", world.now - since);
    }

    assert!(!is_member(&world));
}

#[test]
fn without_self_suspicion_a_pause_costs_more_epochs() {
    let (kept, left_out) = pauses(Rule::SelfSuspicion, true);
    println!("{kept} {left_out}");
    assert!(3 * kept < 2 * left_out, "{kept} epochs, {left_out} without");
}

#[test]
fn without_waiting_for_those_who_do_not_hear_an_unseen_pause_costs_more_epochs() {
    let (kept, left_out) = pauses(Rule::Away, false);
    println!("{kept} {left_out}");
    assert!(3 * kept < 2 * left_out, "{kept} epochs, {left_out} without");
}

#[test]
fn without_the_incumbent_a_return_costs_an_epoch() {
    let epochs = |rules| {
        let mut world = started(3, &[(1, 1), (1, 2), (2, 1)], rules);
        world.crash(0);
        world.run_for(10_000);
        world.start(0);
        world.run_for(20_000);
        world.watchdog.epochs.len()
    };

    assert_eq!(epochs(Rules::default()), 2);
    assert_eq!(epochs(Rules::without(Rule::Incumbent)), 3);
}

#[test]
fn without_turns_a_return_changes_who_counts() {
    let turn = |rules| {
        let mut world = started(3, &[(1, 1), (2, 1), (2, 2)], rules);
        world.crash(1);
        world.run_for(10_000);
        world.start(1);
        world.run_for(20_000);
        world.processes[0].speakers[&Segment(2)].turn
    };

    assert_eq!(turn(Rules::default()), 2);
    assert_eq!(turn(Rules::without(Rule::Turn)), 3);
}

#[test]
fn without_leading_while_it_campaigns_a_coordinator_loses_the_role_to_its_partner() {
    let moved = |rules| {
        let is_moved = |seed: &u64| {
            let mut world = started(*seed, &[(1, 1), (1, 2), (2, 1), (3, 1)], rules);
            world.crash(0);
            world.run_for(10_000);
            world.start(0);
            world.run_for(20_000);
            world.crash(2);
            world.run_for(20_000);
            let mandate = world.processes[0].role.as_ref().unwrap().mandate();
            mandate.epoch.coordinator != node(1, 2)
        };
        (0..10).filter(is_moved).count()
    };

    assert_eq!(moved(Rules::default()), 0);
    assert_ne!(moved(Rules::without(Rule::LeadWhileCampaigning)), 0);
}

#[test]
fn without_the_boot_time_starts_cost_epochs() {
    let epochs = |rules| {
        let world = started(3, &[(1, 1), (2, 1), (3, 1)], rules);
        world.watchdog.epochs.len()
    };

    assert_eq!(epochs(Rules::default()), 1);
    assert!(3 < epochs(Rules::without(Rule::Boot)));
}

/// Two nodes that know each other; the second has started, and waits for the first.
fn two(rules: Rules) -> [Bully; 2] {
    let now = origin();
    let ids = [node(1, 1), node(2, 1)];
    let mut two = ids.map(|id| Bully::new(id, None, 1, Timing::default(), rules, now));
    two[1].fire(now, Timer::Boot);
    for (at, other) in [(0, 1), (1, 0)] {
        two[at].set_links(now, [ids[other]].into(), [ids[other]].into());
    }
    let state = two[1].links().own().clone();
    two[0].learn(now, state);
    // What the first will say once it has started tells the second to wait.
    let electable = LinkState { electable: true, ..two[0].links().own().clone() };
    two[1].learn(now, electable);
    two
}

/// Lets a coordinator be refused again and again, by somebody who has promised more.
fn refuse(lead: &mut Bully, other: &mut Bully) {
    for _ in 0..40 {
        tell(lead, other);
        tell(other, lead);
        let epoch = lead.mandate().unwrap().epoch;
        let promised = Epoch { term: epoch.term + 1, ..epoch };
        lead.hear(origin(), node(2, 1), Message::Nack(Nack { epoch, promised }));
    }
    tell(lead, other);
    tell(other, lead);
}

/// Lets one hear all that the other tells; returns what that was.
fn tell(from: &mut Bully, to: &mut Bully) -> Vec<Message> {
    let sender = from.links().own().origin;
    let messages: Vec<Message> =
        std::iter::from_fn(|| from.poll_message()).map(|(_, message)| message).collect();
    for message in messages.clone() {
        to.hear(origin(), sender, message);
    }
    messages
}

/// Epochs declared while the lowest node is cut off and comes back six times, in five worlds, with all
/// rules and without one.
fn flaps(ids: &[(u16, u8)], rule: Rule) -> (usize, usize) {
    let epochs = |rules| {
        let mut epochs = 0;
        for seed in 0..5 {
            let mut world = started(seed, ids, rules);
            for _ in 0..6 {
                isolate(&mut world, 0);
                world.run_for(4_000);
                world.cuts.clear();
                world.run_for(4_000);
            }
            world.run_for(10_000);
            epochs += world.watchdog.epochs.len();
        }
        epochs
    };
    (epochs(Rules::default()), epochs(Rules::without(rule)))
}

/// Epochs declared when each node pauses once, with all rules and without one.
fn pauses(rule: Rule, clock_ran: bool) -> (usize, usize) {
    let epochs = |rules| {
        let mut epochs = 0;
        for seed in 0..5 {
            let mut world = started(seed, &[(1, 1), (1, 2), (2, 1), (2, 2)], rules);
            let before = world.watchdog.epochs.len();
            for at in 0..4 {
                world.pause(at, 10_000, clock_ran);
                world.run_for(30_000);
            }
            epochs += world.watchdog.epochs.len() - before;
        }
        epochs
    };
    (epochs(Rules::default()), epochs(Rules::without(rule)))
}

fn started(seed: u64, ids: &[(u16, u8)], rules: Rules) -> World {
    let ids: Vec<_> = ids.iter().map(|(segment, rm)| node(*segment, *rm)).collect();
    let mut world = World::new(seed, &ids, rules);
    (0..ids.len()).for_each(|at| world.start(at));
    world.run_for(10_000);
    world
}

/// Cuts a node off from all others.
fn isolate(world: &mut World, at: usize) {
    let id = world.processes[at].id;
    let others: Vec<_> = world.processes.iter().map(|process| process.id).collect();
    for other in others.into_iter().filter(|other| *other != id) {
        world.cuts.insert((id, other));
        world.cuts.insert((other, id));
    }
}
