//! Limits over two segments, with real nodes and calls: what phones and operators see.

mod world;

use std::time::Duration;

use driver::{Input, StopReason, Verb};
use testkit::State;

use crate::cluster::details::Warnings;
use world::{FIRST, OTHER, SECOND, World};

#[test]
fn a_limit_is_filled_by_calls_over_both_segments_and_never_passed() {
    let mut world = World::new(1, &document("", 10));
    assert_eq!([world.counter(1, "all", "cap"), world.counter(2, "all", "cap")], [5, 5]);

    assert_eq!([world.calls(0..8, 1), world.calls(8..16, 2)], [5, 5]);
    assert_eq!([world.used(1, "welcome"), world.used(2, "welcome")], [5, 5]);
    assert_eq!(world.live(), 10);
    let refused: u64 = [FIRST, SECOND, OTHER]
        .map(|node| world.figure(node, "rm_cluster_refused_total{why=\"full\"}"))
        .iter()
        .sum();
    assert_eq!(refused, 6);
    world.hang_up();
    world.assert_nothing_counts("all");
}

/// For all that a node knows it alone has started, beside others whom it has not heard yet.
#[test]
fn a_cluster_all_of_which_starts_lets_its_first_calls_in_once_it_has_been_stable() {
    for again in [false, true] {
        let mut world = World::starting(7, &document("", 10));
        if again {
            world.run(Duration::from_secs(15));
            world.restart_everything();
        }
        world.run(Duration::from_secs(2));
        let mut first = [None; 2];
        for tenths in 20..90 {
            let calls = [(0, 1), (8, 2)].map(|(number, segment)| world.call(number, segment));
            world.run(Duration::from_millis(100));
            for (call, first) in calls.into_iter().zip(&mut first) {
                if first.is_none() && world.scenario.not_talking(&[call]).is_empty() {
                    *first = Some(tenths);
                }
            }
        }
        let in_time = |tenths: &Option<i32>| tenths.is_some_and(|it| (60..=70).contains(&it));
        assert!(first.iter().all(in_time), "again: {again}, {first:?}");
        assert!(30 <= world.figure(OTHER, "rm_cluster_refused_total{why=\"unheard\"}"));
    }
}

#[test]
fn a_node_without_a_document_says_once_a_minute_why_it_refuses_and_what_helps() {
    let warnings = Warnings::listen();
    let mut world = World::without_document(5);
    assert_eq!(world.calls(8..12, 2), 0);
    assert_eq!(world.figure(OTHER, "rm_cluster_refused_total{why=\"no_document\"}"), 4);
    let told = || warnings.count("`holdline-rm apply DOCUMENT --config FILE`");
    assert_eq!(told(), 1);

    world.run(Duration::from_secs(60));
    world.calls(12..14, 2);
    assert_eq!(told(), 2);
    assert_eq!(world.ask(OTHER, Verb::Put, "cluster/document", &document("", 10)).status, 200);
    world.run(Duration::from_secs(12));
    assert_eq!(world.calls(14..16, 2), 2);
}

#[test]
fn a_pair_loses_its_speaker_and_no_counter_or_call_changes() {
    let mut world = World::new(2, &document("", 10));
    assert_eq!([world.calls(0..3, 1), world.calls(8..10, 2)], [3, 2]);
    let (speaker, partner) = world.speaker();
    world.scenario.sim().crash(speaker);
    world.run(Duration::from_secs(2));

    assert_eq!([world.used(1, "all"), world.used(2, "all")], [3, 2], "{}", world.scenario);
    assert_eq!([world.counter(1, "all", "cap"), world.counter(2, "all", "cap")], [5, 5]);
    assert_eq!(world.live(), 5);
    // The partner goes on with what is left of the share.
    assert_eq!(world.calls(3..8, 1), 2);
    world.scenario.sim().restart(speaker);
    world.run(Duration::from_secs(15));
    assert_eq!(world.speaker().0, partner, "who comes back takes nothing from its partner");
    assert_eq!([world.used(1, "all"), world.used(2, "all")], [5, 2]);
    world.hang_up();
    world.assert_nothing_counts("all");
}

#[test]
fn a_pair_loses_the_node_that_does_not_count_and_its_calls_still_count_once() {
    let mut world = World::new(3, &document("", 10));
    assert_eq!(world.calls(0..4, 1), 4);
    let (speaker, partner) = world.speaker();
    world.scenario.sim().crash(partner);
    world.run(Duration::from_secs(2));
    assert_eq!((world.speaker().0, world.used(1, "all"), world.live()), (speaker, 4, 4));
    assert_eq!(world.calls(4..8, 1), 1);
    world.hang_up();
    world.scenario.sim().restart(partner);
    world.run(Duration::from_secs(10));
    world.assert_nothing_counts("all");
}

#[test]
fn calls_stay_charged_while_each_node_of_a_pair_is_replaced_by_the_next_version() {
    let mut world = World::new(16, &document("", 10));
    assert_eq!([world.calls(0..3, 1), world.calls(8..10, 2)], [3, 2]);
    let (speaker, partner) = world.speaker();
    for node in [partner, speaker] {
        world.upgrade(node);
        assert_eq!([world.used(1, "welcome"), world.used(2, "welcome")], [3, 2]);
        assert_eq!([world.counter(1, "all", "cap"), world.counter(2, "all", "cap")], [5, 5]);
        assert_eq!(world.live(), 5, "{}", world.scenario);
    }
    assert_eq!(world.speaker().0, partner, "it spoke while the other was replaced");
    let unknown = world.figure(OTHER, "rm_frames_dropped_total");
    assert!(0 < unknown, "the next version says things that nobody knows");

    // One of the next version dies: the other has its calls, and what they count.
    world.scenario.sim().crash(partner);
    world.run(Duration::from_secs(2));
    assert_eq!((world.speaker().0, world.live()), (speaker, 5), "{}", world.scenario);
    assert_eq!([world.calls(3..8, 1), world.calls(10..15, 2)], [2, 3]);
    assert_eq!([world.used(1, "all"), world.used(2, "all")], [5, 5]);
    world.scenario.sim().restart(partner);
    world.run(Duration::from_secs(15));
    world.hang_up();
    world.assert_nothing_counts("all");
}

#[test]
fn a_passive_segment_takes_no_call_not_even_of_a_tenant_without_a_limit() {
    let text = document("", 10).replace("calls = 10\n", "").replacen(COLD, "mode = \"cold\"", 1);
    let mut world = World::new(4, &text);
    assert_eq!(world.figure(OTHER, "rm_cluster_passive"), 1);
    assert_eq!([world.calls(0..2, 1), world.calls(8..10, 2)], [2, 0]);
    assert_eq!(world.figure(OTHER, "rm_cluster_refused_total{why=\"passive\"}"), 2);

    // The first segment is gone: the cold one takes its calls.
    for node in [FIRST, SECOND] {
        world.scenario.sim().crash(node);
    }
    world.run(Duration::from_secs(15));
    assert_eq!(world.figure(OTHER, "rm_cluster_passive"), 0);
    assert_eq!(world.calls(10..12, 2), 2);
}

#[test]
fn a_segment_that_drains_gives_its_share_away_and_the_cold_one_takes_its_place() {
    for (first, sent_on) in [("sharing = true\n", 2), ("", 0)] {
        let text = document(first, 10).replacen(COLD, "mode = \"cold\"", 1);
        let mut world = World::new(17, &text);
        assert_eq!((world.calls(0..2, 1), world.figure(OTHER, "rm_cluster_passive")), (2, 1));
        for node in [FIRST, SECOND] {
            world.scenario.sim().tell(node, Input::Drain);
        }
        world.run(Duration::from_secs(6));

        assert_eq!(world.figure(OTHER, "rm_cluster_passive"), 0);
        let caps = [world.counter(1, "all", "cap"), world.counter(2, "all", "cap")];
        assert_eq!((caps, world.used(1, "all")), ([0, 8], 2), "its calls still count");
        assert_eq!([world.calls(2..4, 1), world.calls(8..10, 2)], [sent_on, 2]);
        assert_eq!(world.used(2, "all"), 2 + u64::try_from(sent_on).unwrap());
        assert_eq!(world.live(), 4 + 2 * sent_on, "what is sent on lives in both");

        world.hang_up();
        world.run(Duration::from_secs(3));
        for node in [FIRST, SECOND] {
            assert_eq!(world.scenario.sim().stopped(node), Some(&StopReason::Drained));
        }
        world.run(Duration::from_secs(10));
        assert_eq!((world.live(), world.used(2, "all")), (0, 0));
        assert_eq!(world.counter(2, "all", "cap"), 10);
    }
}

#[test]
fn a_segment_rests_and_wakes_as_a_new_document_says_whatever_comes_first() {
    // What the coordinator says of shares may come before the document, or after it.
    for seed in 20..24 {
        let mut world = World::new(seed, &document("", 10));
        for (version, mode, passive) in [(2, "cold", 1), (3, "hot", 0)] {
            let text = document("", 10).replace("version = 1", &format!("version = {version}"));
            let text = text.replacen(COLD, &format!("mode = \"{mode}\""), 1);
            assert_eq!(world.ask(FIRST, Verb::Put, "cluster/document", &text).status, 200);
            world.run(Duration::from_secs(5));
            let told = world.figure(OTHER, "rm_cluster_passive");
            assert_eq!(told, passive, "seed {seed}, {mode}");
        }
    }
}

#[test]
fn a_passive_segment_sends_its_calls_on_where_that_is_wanted() {
    let text = document("sharing = true\n", 10).replacen(COLD, "mode = \"cold\"", 1);
    let mut world = World::new(5, &text);
    assert_eq!(world.calls(0..2, 2), 2);
    assert_eq!([world.used(1, "all"), world.used(2, "all")], [2, 0]);
    assert_eq!(world.figure(OTHER, "rm_cluster_shared_total"), 2);
    world.hang_up();
    world.assert_nothing_counts("all");
}

#[test]
fn a_call_beyond_the_share_goes_to_the_other_segment_and_counts_there_once() {
    let mut world = World::new(6, &document("sharing = true\n", 6));
    // Three here, three there; for the others each segment has been tried.
    assert_eq!(world.calls(0..8, 1), 6, "{}", world.scenario);
    assert_eq!([world.used(1, "all"), world.used(2, "all")], [3, 3]);
    assert_eq!(world.figure(OTHER, "rm_cluster_shared_total"), 0, "nothing goes back");
    assert_eq!(world.figure(OTHER, "rm_cluster_refused_total{why=\"full\"}"), 2);
    let busy = (6..8).map(|number| world.scenario.fleet().state(testkit::PhoneId(number)));
    assert!(busy.into_iter().all(|state| state == State::Idle));
    world.hang_up();
    world.assert_nothing_counts("all");
}

#[test]
fn a_segment_without_media_sends_its_calls_on_and_counts_none_of_them() {
    let mut world = World::new(11, &document("sharing = true\n", 10));
    world.scenario.sim().crash(world::MEDIAGATE);
    world.scenario.sim().crash(world::STANDBY_MEDIAGATE);
    world.run(Duration::from_secs(2));
    assert_eq!(world.calls(0..3, 1), 3, "{}", world.scenario);
    assert_eq!([world.used(1, "all"), world.used(2, "all")], [0, 3]);
    world.hang_up();
    world.assert_nothing_counts("all");
}

#[test]
fn an_emergency_call_passes_a_limit_that_is_used_up_and_counts() {
    let text = document("emergency = [\"1023\"]\n", 4);
    let mut world = World::new(12, &text);
    // The eighth call goes to the number 1023.
    assert_eq!(world.calls(0..8, 1), 3);
    assert_eq!(world.used(1, "all"), 3);
    world.hang_up();
    world.assert_nothing_counts("all");
}

#[test]
fn what_a_policy_forbids_counts_nowhere() {
    let rules = "default_profile = \"welcome\"\ndial = [\"!1017\"]\n\
                 answers = { number = { status = 488, text = \"not from here\" } }\n";
    let text = document("", 10).replace("default_profile = \"welcome\"\n", rules);
    let mut world = World::new(13, &text);
    assert_eq!(world.calls(0..3, 2), 2);
    assert_eq!(world.figure(OTHER, "rm_cluster_refused_total{why=\"number\"}"), 1);
    assert_eq!(world.used(2, "all"), 2);

    let text = document("", 10).replace(
        "default_profile = \"welcome\"\n",
        "default_profile = \"welcome\"\nservices = [\"phone\"]\n",
    );
    let mut world = World::new(14, &text);
    assert_eq!(world.calls(0..2, 2), 0);
    assert_eq!(world.figure(OTHER, "rm_cluster_refused_total{why=\"service\"}"), 2);
    assert_eq!(world.used(2, "all"), 0);
}

#[test]
fn whoever_is_trusted_names_a_profile_and_one_that_exists() {
    let text = document("trusted = [\"10.0.9.0/24\"]\n", 10);
    let mut world = World::new(15, &text);
    let named = world.call_with(0, 2, ";gvp-tenant-id=welcome");
    let unknown = world.call_with(1, 2, ";gvp-tenant-id=all.menu");
    world.run(Duration::from_secs(2));
    world.scenario.assert_talking(&[named]);
    assert!(!world.scenario.not_talking(&[unknown]).is_empty());
    assert_eq!(world.used(2, "welcome"), 1);
    assert_eq!(world.figure(OTHER, "rm_cluster_refused_total{why=\"unknown_profile\"}"), 1);
}

#[test]
fn what_a_stranger_says_of_a_call_is_not_believed_and_raises_an_alarm() {
    let mut world = World::new(7, &document("", 10));
    let calls = [";gvp-tenant-id=welcome", ";gvp-tenant-id=nobody"];
    refused_with(&mut world, "forged", &calls);
}

#[test]
fn a_tenant_that_nobody_knows_raises_an_alarm_of_its_own() {
    // With a default profile such a call would count there.
    let text = document("trusted = [\"10.0.9.0/24\"]\n", 10);
    let text = text.replace("default_profile = \"welcome\"\n", "");
    let mut world = World::new(7, &text);
    refused_with(&mut world, "unknown_tenant", &[";gvp-tenant-id=nobody"; 3]);
}

/// Checks that each of these calls is refused for this and counts nowhere, with an alarm and one line.
fn refused_with(world: &mut World, why: &str, calls: &[&str]) {
    let warnings = Warnings::listen();
    for (number, params) in (0..).zip(calls) {
        let call = world.call_with(number, 2, params);
        world.run(Duration::from_secs(1));
        assert!(!world.scenario.not_talking(&[call]).is_empty());
        for name in ["refused_total{why", "alarms_total{alarm"] {
            let name = format!("rm_cluster_{name}=\"{why}\"}}");
            assert_eq!(world.figure(OTHER, &name), u64::from(number) + 1, "{name}");
        }
    }
    assert_eq!(warnings.count("a call belongs to nobody"), 1);
    assert_eq!(world.used(2, "all"), 0);
}

#[test]
fn a_document_given_to_one_node_is_in_force_at_all_of_them() {
    let mut world = World::new(8, &document("", 10));
    assert_eq!(world.calls(0..4, 1), 4);
    let newer = document("", 20).replace("version = 1", "version = 2");
    let reply = world.ask(OTHER, Verb::Put, "cluster/document", &newer);
    assert_eq!(
        (reply.status, reply.body.into_text()),
        (200, "{\"version\":2,\"warnings\":[]}\n".to_owned())
    );
    let reply = world.ask(FIRST, Verb::Put, "cluster/document", "version = 1");
    assert_eq!(reply.status, 400, "{:?}", reply.body);
    world.run(Duration::from_secs(3));
    for node in [FIRST, SECOND, OTHER] {
        assert_eq!(world.json(node, "cluster")["document"], 2);
    }
    let caps = [world.counter(1, "all", "cap"), world.counter(2, "all", "cap")];
    assert_eq!((caps, world.used(1, "all")), ([10, 10], 4));
    world.hang_up();
    world.assert_nothing_counts("all");
}

#[test]
fn calls_of_a_profile_that_left_the_document_go_on_counting_at_its_tenant() {
    let mut world = World::new(16, &document("", 10));
    assert_eq!([world.calls(0..3, 1), world.calls(8..10, 2)], [3, 2]);
    let renamed =
        document("", 10).replace("version = 1", "version = 2").replace("welcome", "hello");
    assert_eq!(world.ask(FIRST, Verb::Put, "cluster/document", &renamed).status, 200);
    world.run(Duration::from_secs(3));
    // Each segment has compared its counters with the calls that live by then.
    world.run(Duration::from_secs(65));
    assert_eq!([world.used(1, "all"), world.used(2, "all")], [3, 2]);
    assert_eq!([world.used(1, "hello"), world.used(2, "hello")], [0, 0]);
    world.hang_up();
    world.assert_nothing_counts("all");
}

#[test]
fn a_call_that_waits_while_the_document_changes_is_decided_by_the_new_one() {
    let lends = "lending = \"hold\"\ndefault_profile";
    let text = document("", 4).replacen("default_profile", lends, 1);
    // Nodes have other numbers in the second document, higher than any of the first.
    let newer = (0..20).map(|number| format!("[[tenant]]\nname = \"t{number}\"\n\n"));
    let newer = newer.collect::<String>() + "[[tenant]]\nname = \"all\"";
    let newer = text.replacen("[[tenant]]\nname = \"all\"", &newer, 1);
    let newer = newer.replace("version = 1", "version = 2");
    for (seed, segment) in [(17, 1), (18, 2)] {
        let mut world = World::new(seed, &text);
        assert_eq!([world.calls(0..2, 1), world.calls(8..10, 2)], [2, 2]);
        let (speaker, _) = world.speaker();
        world.call(5, segment);
        world.run(Duration::from_millis(60));
        let node = if segment == 1 { speaker } else { OTHER };
        assert_eq!(world.ask(node, Verb::Put, "cluster/document", &newer).status, 200);
        world.run(Duration::from_secs(5));
        assert_eq!([world.used(1, "all"), world.used(2, "all")], [2, 2]);
        assert_eq!(world.live(), 4, "nobody found room");
    }
}

#[test]
fn calls_that_come_back_from_the_disk_count_again() {
    let mut world = World::new(9, &document("", 10));
    assert_eq!(world.calls(0..3, 2), 3);
    world.run(Duration::from_secs(1));
    world.scenario.sim().crash(OTHER);
    world.run(Duration::from_secs(1));
    world.scenario.sim().restart(OTHER);
    world.run(Duration::from_secs(15));
    assert_eq!((world.live(), world.used(2, "all")), (3, 3), "{}", world.scenario);
    world.hang_up();
    assert_eq!((world.live(), world.used(2, "all")), (0, 0));
}

#[test]
fn an_operator_sees_the_cluster_and_its_tenants_and_can_have_them_counted_anew() {
    let mut world = World::new(10, &document("", 10));
    world.calls(0..7, 1);
    let (speaker, partner) = world.speaker();
    let view = world.json(OTHER, "cluster");
    assert_eq!(view["island"].as_array().unwrap().len(), 3, "{view}");
    assert_eq!(view["segments"]["1"]["site"], "london");
    let page = world.json(speaker, "tenants?limit=1");
    assert_eq!((page["tenants"].as_array().unwrap().len(), &page["next"]), (1, &1.into()));
    let page = world.json(speaker, "tenants?from=1");
    let row = &page["tenants"][0];
    assert_eq!((&row["name"], &row["counters"][0]["use"]), (&"welcome".into(), &5.into()));
    assert_eq!(world.json(speaker, "tenants")["tenants"][0]["refused"], 2);
    assert_eq!(world.json(partner, "tenants")["tenants"].as_array().unwrap().len(), 0);

    assert_eq!(world.ask(speaker, Verb::Post, "tenants/repair", "").status, 200);
    world.run(Duration::from_secs(1));
    assert_eq!(world.used(1, "all"), 5);
    assert_eq!(world.ask(speaker, Verb::Get, "tenants?limit=x", "").status, 400);
    assert_eq!(world.ask(speaker, Verb::Get, "weather", "").status, 404);
    assert_eq!(world.ask(world::GATE, Verb::Get, "cluster", "").status, 404);
}

/// What the second segment is.
const COLD: &str = "mode = \"hot\"";

/// A document with one limit.
fn document(first: &str, limit: u32) -> String {
    format!(
        "version = 1\n{first}
[[segment]]
id = 1
site = \"london\"
sip = [\"10.0.1.1:5060\"]
nodes = [{{ rm = 1, id = 11 }}, {{ rm = 2, id = 12 }}]

[[segment]]
id = 2
site = \"paris\"
{COLD}
sip = [\"10.0.2.1:5060\"]
nodes = [{{ rm = 1, id = 21 }}]

[[tenant]]
name = \"all\"
calls = {limit}
default_profile = \"welcome\"

[[profile]]
name = \"welcome\"
tenant = \"all\"
"
    )
}
