//! The media gateway dies: scenarios of call survival by their number, and each row of the table of
//! answers.

use std::time::Duration;

use b2bua::{Cause, Config, Event};

use crate::phone::Text;
use crate::script;
use crate::world::World;

#[test]
fn t01_both_phones_are_told_in_the_same_turn_with_a_higher_cseq() {
    let mut world = talking();
    let before = world.phone("bob").asked.clone().unwrap().cseq();

    world.step("g31 dies");
    let log = world.log.clone();
    assert!(log[0].starts_with("  g32 open"), "the gateway hears first: {log:?}");
    assert!(log[1].starts_with("  alice < INVITE") && log[2].starts_with("  bob < INVITE"));
    assert!(before < world.phone("bob").asked.clone().unwrap().cseq());

    world.steps(&["alice answers 200 with sdp", "bob answers 200 with sdp"]);
    for name in ["alice", "bob"] {
        let cseq = world.phone(name).asked.clone().unwrap().cseq();
        assert_eq!(world.phone(name).acks.last(), Some(&cseq));
    }
}

#[test]
fn t02_no_address_of_the_dead_gateway_is_left_in_the_sdp() {
    let mut world = talking();
    world.step("g31 dies");

    for name in ["alice", "bob"] {
        let invite = world.phone(name).asked.clone().unwrap();
        assert!(!invite.0.contains("203.0.113.31"), "{}", invite.0);
        assert!(invite.sdp("c=").contains("203.0.113.32"));
    }
}

#[test]
fn t03_the_origin_is_the_same_but_for_a_version_one_higher() {
    let mut world = talking();
    let before = world.phone("alice").inbox.last().cloned().unwrap();
    world.step("g31 dies");
    let after = world.phone("alice").asked.clone().unwrap();

    assert_eq!(after.version(), before.version() + 1);
    let strip = |text: &Text| text.sdp("o=").replace(&format!(" {} ", text.version()), " ");
    assert_eq!(strip(&before), strip(&after));
    assert_eq!(before.body().lines().count(), after.body().lines().count());
}

#[test]
fn t09_after_a_collision_the_phone_that_comes_first_is_told_with_its_200() {
    let mut world = talking();
    world.steps(&["g31 dies", "bob answers 200 with sdp", "alice holds"]);
    assert_eq!(world.phone("alice").inbox.last().unwrap().status(), 491);
    world.steps(&["alice acks", "alice answers 491", "alice holds", "bob turns recvonly"]);
    world.steps(&["bob answers 200 with sdp", "alice acks"]);
    assert!(world.phone("alice").inbox.last().unwrap().sdp("c=").contains("203.0.113.32"));

    let before = world.invites("alice");
    world.advance(Duration::from_secs(10));
    assert_eq!(world.invites("alice"), before, "ours is not sent again");
}

#[test]
fn t09_after_a_collision_each_side_waits_in_its_band() {
    // The caller made its Call-ID: we wait up to two seconds. The callee's is ours: 2.1 to 4 s.
    for (name, other, least, most) in [("alice", "bob", 0, 2000), ("bob", "alice", 2100, 4000)] {
        let mut world = talking();
        world.steps(&["g31 dies", &format!("{other} answers 200 with sdp")]);
        world.step(&format!("{name} answers 491"));
        let before = world.invites(name);
        if 0 < least {
            world.advance(Duration::from_millis(least - 1));
            assert_eq!(world.invites(name), before, "{name} is asked too early");
            world.advance(Duration::from_millis(most - least + 1));
        } else {
            world.advance(Duration::from_millis(most));
        }
        assert_eq!(world.invites(name), before + 1, "{name} is asked again");
        world.step(&format!("{name} answers 200 with sdp"));
        assert!(world.details.is_empty());
    }
}

#[test]
fn t10_a_500_ends_nothing_and_is_tried_again_when_it_says() {
    let mut world = talking();
    world.steps(&["g31 dies", "alice answers 200 with sdp", "bob answers 500 after 3"]);
    let before = world.invites("bob");
    world.advance(Duration::from_millis(2999));
    assert_eq!(world.invites("bob"), before);
    world.advance(Duration::from_millis(1));
    assert_eq!(world.invites("bob"), before + 1);
    world.step("bob answers 200 with sdp");
    assert!(world.details.is_empty());
}

#[test]
fn t11_each_copy_of_a_200_gets_the_same_ack_also_after_a_further_reinvite() {
    let mut world = talking();
    let first = world.phone("bob").acks[0];
    let copy = world.phone("bob").last.clone().unwrap();
    world.steps(&["bob repeats", "bob repeats", "bob repeats"]);
    assert_eq!(world.phone("bob").acks, [first; 4]);

    world.steps(&["alice holds", "bob turns recvonly", "bob answers 200 with sdp", "alice acks"]);
    let second = *world.phone("bob").acks.last().unwrap();
    assert!(first < second);
    let from = world.phone("bob").addr;
    world.send(from, &copy);
    assert_eq!(world.phone("bob").acks.last(), Some(&first));
}

#[test]
fn t20_a_party_on_hold_stays_on_hold() {
    let mut world = talking();
    world.steps(&["bob holds", "alice turns recvonly", "alice answers 200 with sdp", "bob acks"]);
    world.step("g31 dies");

    // Bob holds: what he sends still goes to Alice, and nothing comes back.
    assert_eq!(world.phone("alice").asked.clone().unwrap().direction(), "sendonly");
    assert_eq!(world.phone("bob").asked.clone().unwrap().direction(), "recvonly");
}

#[test]
fn t21_a_holder_is_never_offered_sendrecv_and_can_resume() {
    let mut world = talking();
    world.steps(&["alice turns inactive", "alice reinvites", "bob turns inactive"]);
    world.steps(&["bob answers 200 with sdp", "alice acks", "g31 dies"]);
    assert_eq!(world.phone("alice").asked.clone().unwrap().direction(), "inactive");
    world.steps(&["alice answers 200 with sdp", "bob answers 200 with sdp", "alice resumes"]);
    assert_eq!(world.phone("bob").asked.clone().unwrap().direction(), "sendrecv");
    world.steps(&["bob turns sendrecv", "bob answers 200 with sdp", "alice acks"]);
    assert_eq!(world.phone("alice").inbox.last().unwrap().direction(), "sendrecv");
}

#[test]
fn t26_a_death_between_200_and_ack_costs_no_call() {
    for rebuild in [false, true] {
        let mut world = ringing();
        world.step("bob answers 200 with sdp");
        if rebuild {
            world.rebuild();
        }
        world.steps(&["g31 dies", "bob answers 200 with sdp"]);
        world.advance(Duration::from_millis(1000));
        world.steps(&["alice acks", "alice answers 200 with sdp"]);
        world.advance(Duration::from_secs(60));
        assert!(world.details.is_empty(), "no BYE at 32 s");
    }
}

#[test]
fn t30_after_a_move_a_bye_from_either_side_reaches_the_other_once() {
    for (one, other) in [("alice", "bob"), ("bob", "alice")] {
        let mut world = talking();
        world.steps(&["g31 dies", "alice answers 200 with sdp", "bob answers 200 with sdp"]);
        world.step(&format!("{one} says BYE"));
        assert_eq!(world.phone(other).asked.clone().unwrap().method(), "BYE");
        world.step(&format!("{other} answers 200"));
        world.advance(Duration::from_secs(120));
        assert_eq!(world.details.len(), 1);
        assert_eq!(world.details[0].moves, 1);
        assert_eq!(world.b2b.records().count(), 0);
    }
}

#[test]
fn answer_200_is_acknowledged_and_ends_the_move() {
    let mut world = moving();
    world.step("bob answers 200 with sdp");
    let record = world.b2b.records().next().unwrap();
    assert!(!record.is_stale(0) && !record.is_stale(1));
    assert!(record.legs.iter().all(|leg| leg.moving == failover::moves::Move::default()));
}

#[test]
fn a_phone_that_accepts_a_move_and_sends_nothing_is_told_once_more_and_then_the_operator() {
    let mut world = moving();
    world.silent_legs.insert(0);
    world.steps(&["alice answers 200 with sdp", "bob answers 200 with sdp"]);
    let before = world.phone("alice").asked.clone().unwrap();
    let bobs = world.invites("bob");
    world.advance(Duration::from_millis(499));
    assert_eq!(asked(&world, "alice"), before);
    world.advance(Duration::from_millis(1));
    let again = asked(&world, "alice");
    assert!(before.cseq() < again.cseq());
    assert_eq!(before.body(), again.body(), "nothing has changed");

    world.step("alice answers 200 with sdp");
    world.advance(Duration::from_millis(499));
    assert!(!world.events.iter().any(|event| matches!(event, Event::Unheard { .. })));
    world.advance(Duration::from_secs(60));
    let unheard = |event: &&Event| matches!(event, Event::Unheard { leg: 0, .. });
    assert_eq!(world.events.iter().filter(unheard).count(), 1);
    assert_eq!((asked(&world, "alice"), world.invites("bob")), (again, bobs));
}

#[test]
fn a_phone_that_need_not_send_after_a_move_is_told_once() {
    let mut world = talking();
    world.silent_legs.extend([0, 1]);
    world.steps(&["alice holds", "bob turns recvonly", "bob answers 200 with sdp", "alice acks"]);
    world.steps(&["g31 dies", "alice answers 200 with sdp", "bob answers 200 with sdp"]);
    let before = world.invites("bob");
    world.advance(Duration::from_secs(60));
    assert_eq!(world.invites("bob"), before, "held, it sends nothing");
}

#[test]
fn answer_401_or_407_leaves_the_leg_apart_and_the_call_up() {
    for status in [401, 407] {
        apart(status);
    }
}

#[test]
fn answer_405_420_or_501_leaves_the_leg_apart_and_the_call_up() {
    for status in [405, 420, 501] {
        apart(status);
    }
}

#[test]
fn answer_408_ends_both_legs() {
    let mut world = moving();
    world.steps(&["bob answers 408", "alice answers 200", "bob answers 200"]);
    assert_eq!(world.details[0].cause, Cause::LegLost);
    assert_eq!(world.phone("bob").asked.clone().unwrap().method(), "BYE");
}

#[test]
fn answer_481_ends_the_other_leg_only() {
    let mut world = moving();
    world.step("bob answers 481");
    assert_eq!(world.phone("alice").asked.clone().unwrap().method(), "BYE");
    assert_eq!(world.phone("bob").asked.clone().unwrap().method(), "INVITE");
    assert_eq!(world.details[0].cause, Cause::LegLost);
}

#[test]
fn answer_603_ends_both_legs_since_the_phone_may_still_have_its_session() {
    let mut world = moving();
    world.step("bob answers 603");
    assert_eq!(world.phone("alice").asked.clone().unwrap().method(), "BYE");
    assert_eq!(world.phone("bob").asked.clone().unwrap().method(), "BYE");
    assert_eq!(world.details[0].cause, Cause::LegLost);
}

#[test]
fn answer_488_or_606_steps_down_to_the_whole_sdp_and_to_no_offer() {
    for status in [488, 606] {
        let mut world = moving();
        let narrowed = world.phone("bob").asked.clone().unwrap();
        world.step(&format!("bob answers {status}"));
        let whole = world.phone("bob").asked.clone().unwrap();
        assert!(narrowed.sdp("m=").ends_with(" 8 101"), "{}", narrowed.sdp("m="));
        assert!(whole.sdp("m=").ends_with(" 0 8 101"), "{}", whole.sdp("m="));
        world.step(&format!("bob answers {status}"));
        assert_eq!(world.phone("bob").asked.clone().unwrap().body(), "");
        world.step(&format!("bob answers {status}"));
        world.advance(Duration::from_secs(60));
        assert!(world.details.is_empty(), "the call is kept");
        assert_eq!(world.b2b.figures().counters.apart, 1);
    }
}

#[test]
fn answer_500_without_a_time_is_tried_at_once_with_a_cseq_a_thousand_higher() {
    let mut world = moving();
    let before = world.phone("bob").asked.clone().unwrap().cseq();
    world.step("bob answers 500");
    assert!(before + 1000 < world.phone("bob").asked.clone().unwrap().cseq());
    world.step("bob answers 500");
    world.advance(Duration::from_secs(60));
    assert!(world.details.is_empty());
    assert_eq!(world.b2b.figures().counters.apart, 1);
}

#[test]
fn answer_503_is_probed_once_a_second_until_the_peer_can() {
    let mut world = moving();
    world.step("bob answers 503 after 10");
    let before = world.invites("bob");
    world.advance(Duration::from_millis(999));
    assert_eq!(world.invites("bob"), before);
    world.advance(Duration::from_millis(2));
    assert_eq!(world.invites("bob"), before + 1);
    world.step("bob answers 200 with sdp");
    assert!(world.details.is_empty());
}

#[test]
fn a_provisional_answer_and_then_nothing_is_cut_off_after_four_seconds() {
    let mut world = moving();
    world.step("bob answers 100");
    world.advance(Duration::from_millis(4000));
    assert!(world.log.iter().any(|line| line == "  bob < CANCEL"));
    world.steps(&["bob answers cancel", "bob answers 487"]);
    assert_eq!(world.phone("bob").asked.clone().unwrap().method(), "INVITE");
    world.step("bob answers 200 with sdp");
    assert!(world.details.is_empty());
}

#[test]
fn no_answer_at_all_keeps_the_leg_until_timer_b() {
    let mut world = moving();
    world.advance(Duration::from_millis(31_999));
    assert!(world.details.is_empty());
    world.advance(Duration::from_millis(1));
    assert_eq!(world.details[0].cause, Cause::LegLost);
}

#[test]
fn no_more_moves_are_open_than_allowed_and_each_answer_lets_the_next_one_out() {
    let config = Config { moves_max: 3, ..script::config() };
    let mut world = World::new(config);
    world.steps(&["gateway 31", "gateway 32"]);
    for call in 1..=4 {
        world.step(&format!("phone a{call} 192.0.2.{}:5060", 10 + call));
        world.step(&format!("phone b{call} 192.0.2.{}:5060", 30 + call));
        world.step(&format!("b{call} registers"));
        world.step(&format!("a{call} calls b{call}"));
        world.step(&format!("b{call} answers 200 with sdp"));
        world.step(&format!("a{call} acks"));
    }
    world.log.clear();
    world.step("g31 dies");
    let opens = world.log.iter().position(|line| line.contains("INVITE")).unwrap();
    assert_eq!(opens, 4, "every call is open at the standby before any phone is told");
    assert_eq!(world.b2b.figures().moves_in_flight, 3);

    for _ in 0..20 {
        for call in 1..=4 {
            for name in [format!("a{call}"), format!("b{call}")] {
                if world.phone(&name).todo.iter().any(|asked| asked.method() == "INVITE") {
                    world.step(&format!("{name} answers 200 with sdp"));
                    assert!(world.b2b.figures().moves_in_flight <= 3);
                }
            }
        }
    }
    assert!(world.b2b.records().all(|record| !record.is_stale(0) && !record.is_stale(1)));
    assert_eq!(world.b2b.figures().moves_in_flight, 0);
}

#[test]
fn a_gateway_that_returns_gets_no_call_back() {
    let mut world = talking();
    world.steps(&["g31 dies", "alice answers 200 with sdp", "bob answers 200 with sdp"]);
    world.log.clear();
    world.step("g31 returns");
    world.advance(Duration::from_secs(60));
    assert!(world.log.is_empty(), "{:?}", world.log);
}

fn ringing() -> World {
    let mut world = script::ready(script::config());
    world.steps(&["alice calls bob", "bob answers 180"]);
    world
}

fn talking() -> World {
    let mut world = ringing();
    world.steps(&["bob answers 200 with sdp", "alice acks"]);
    world.log.clear();
    world
}

/// The caller has followed its media, the callee, who took fewer codecs, is asked to.
fn moving() -> World {
    let mut world = ringing();
    world.steps(&["bob takes 8,101", "bob answers 200 with sdp", "alice acks"]);
    world.steps(&["g31 dies", "alice answers 200 with sdp"]);
    world.log.clear();
    world
}

fn apart(status: u16) {
    let mut world = moving();
    world.step(&format!("bob answers {status}"));
    let before = world.invites("bob");
    world.advance(Duration::from_secs(60));
    assert_eq!(world.invites("bob"), before, "{status}: not tried again");
    assert!(world.details.is_empty(), "{status}: the call is kept");
    assert_eq!(world.b2b.figures().counters.apart, 1);
    let kept = |event: &Event| matches!(event, Event::KeptApart { leg: 1, .. });
    assert!(world.events.iter().any(kept));
}

fn asked(world: &World, name: &str) -> Text {
    world.phone(name).asked.clone().unwrap()
}
