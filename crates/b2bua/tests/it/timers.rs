//! Session timers (RFC 4028) beyond what the ladders show: next owners, copies, and nonsense.

use std::time::Duration;

use b2bua::Config;

use crate::phone::Text;
use crate::script;
use crate::world::World;

#[test]
fn t18_the_next_owner_keeps_interval_and_refresher_and_refreshes_when_it_is_due() {
    for (updates, method) in [("INVITE", "INVITE"), ("INVITE,UPDATE", "UPDATE")] {
        let mut world = talking(&[&format!("bob allows {updates}")], "uac");
        wait(&mut world, 600);
        world.take_over();
        wait(&mut world, 299);
        assert_eq!(heard(&world, "bob", "INVITE") + heard(&world, "bob", "UPDATE"), 1);
        wait(&mut world, 2);
        let refresh = asked(&world, "bob");
        assert_eq!(refresh.method(), method);
        assert_eq!(refresh.header("Session-Expires"), "1800;refresher=uac");
        assert_eq!(heard(&world, "alice", "BYE") + heard(&world, "bob", "BYE"), 0);
        world.step("bob answers 200 with sdp");
        wait(&mut world, 899);
        assert_eq!(world.b2b.figures().calls, 1, "{:?}", world.log);
    }
}

#[test]
fn t18_what_the_next_owner_says_for_other_reasons_keeps_the_refresher_too() {
    for (granted, repeated) in [("uac", "uac"), ("uas", "uas")] {
        let mut world = talking(&[], granted);
        wait(&mut world, 600);
        world.take_over();
        world.steps(&["alice holds", "bob knows timers"]);
        let hold = asked(&world, "bob");
        assert_eq!(hold.header("Session-Expires"), format!("1800;refresher={repeated}"));
        assert_eq!(hold.header("Min-SE"), "90");
        world.phone_mut("bob").timer =
            format!("Supported: timer\r\nSession-Expires: 1800;refresher={repeated}\r\n");
        world.steps(&["bob answers 200 with sdp", "alice acks"]);
        // It counts from the hold now.
        wait(&mut world, 899);
        assert_eq!(heard(&world, "bob", "INVITE"), 2);
        wait(&mut world, 2);
        let refreshes = heard(&world, "bob", "INVITE") - 2;
        assert_eq!(refreshes, usize::from(granted == "uac"), "{:?}", world.log);
        if granted == "uac" {
            world.step("bob answers 200 with sdp");
        }
        wait(&mut world, 800);
        assert_eq!(world.b2b.figures().calls, 1, "{granted}: {:?}", world.log);
        wait(&mut world, 69);
        let byes = heard(&world, "bob", "BYE");
        assert_eq!(byes, usize::from(granted == "uas"), "{granted}: {:?}", world.log);
    }
}

#[test]
fn t34_a_session_that_runs_out_at_the_next_owner_ends_with_one_bye_to_each_phone() {
    for when in [1, 900, 1700] {
        let mut world = talking(&[], "uas");
        wait(&mut world, when);
        world.take_over();
        wait(&mut world, 1767 - when);
        assert_eq!((world.b2b.figures().calls, world.details.len()), (1, 0));
        wait(&mut world, 3);
        world.steps(&["alice answers 200", "bob answers 200"]);
        wait(&mut world, 200);
        for name in ["alice", "bob"] {
            assert_eq!(heard(&world, name, "BYE"), 1, "{name}: {:?}", world.log);
        }
        assert_eq!((world.b2b.figures().calls, world.details.len()), (0, 1));
    }
}

#[test]
fn a_session_that_ran_out_while_nobody_owned_the_call_ends_at_once() {
    let mut world = talking(&[], "uas");
    wait(&mut world, 1);
    let kept = world.standby.clone();
    world.b2b = World::new(script::config()).b2b;
    wait(&mut world, 3000);
    world.standby = kept;
    world.take_over();
    wait(&mut world, 1);
    assert_eq!((heard(&world, "alice", "BYE"), heard(&world, "bob", "BYE")), (1, 1));
}

#[test]
fn an_owner_that_dies_while_it_refreshes_leaves_a_call_that_goes_on() {
    for (updates, stored) in [("INVITE", true), ("UPDATE", false), ("UPDATE", true)] {
        let mut world = talking(&[&format!("bob allows {updates}")], "uac");
        wait(&mut world, 898);
        let before = world.standby.clone();
        wait(&mut world, 3);
        let first = asked(&world, "bob");
        assert_eq!(first.method(), updates);
        if !stored {
            world.standby = before;
        }
        world.take_over();
        world.step("bob answers 200 with sdp");
        // Its answer may find nobody: then it is asked again.
        for _ in 0..3 {
            wait(&mut world, 1);
            if !world.phone("bob").todo.is_empty() {
                world.step("bob answers 200 with sdp");
            }
        }
        wait(&mut world, 890);
        assert!(heard(&world, "bob", updates) <= 4, "{updates} {stored}: {:?}", world.log);
        assert_eq!(world.b2b.figures().calls, 1, "{updates} {stored}: {:?}", world.log);
    }
}

#[test]
fn a_leg_that_was_refreshed_at_a_takeover_is_moved_when_its_mediagate_dies() {
    for (dies_first, answer) in [(false, "500"), (true, "487"), (true, "200 with sdp")] {
        let mut world = talking(&[], "uac");
        wait(&mut world, 901);
        assert_eq!(heard(&world, "bob", "INVITE"), 2);
        world.take_over();
        if dies_first {
            world.step("g31 dies");
        }
        world.step(&format!("bob answers {answer}"));
        if !dies_first {
            world.step("g31 dies");
        }
        wait(&mut world, 5);
        assert_eq!(heard(&world, "bob", "INVITE"), 3, "{answer}: {:?}", world.log);
        assert!(asked(&world, "bob").body().contains("203.0.113.32"), "{answer}");
    }
}

#[test]
fn an_update_of_a_phone_counts_at_the_next_owner_too() {
    let mut world = talking(&[], "uas");
    wait(&mut world, 900);
    world.step("bob asks for 1800;refresher=uac");
    let update = world.phone_mut("bob").say("UPDATE", None);
    assert_eq!(world.ask("bob", &update).status(), 200);
    world.take_over();
    wait(&mut world, 1767);
    assert_eq!(world.b2b.figures().calls, 1, "{:?}", world.log);
    wait(&mut world, 2);
    assert_eq!(heard(&world, "bob", "BYE"), 1);
}

#[test]
fn a_peer_that_wants_to_be_asked_at_once_is_asked_now_and_then() {
    for refusal in ["503 after 0", "500 after 1", "480 after 0", "491"] {
        for updates in ["INVITE", "INVITE,UPDATE"] {
            for name in ["alice", "bob"] {
                let mut world = ready();
                world.phone_mut(name).timer =
                    "Supported: timer\r\nSession-Expires: 1800;refresher=uac\r\n".to_owned();
                if name == "alice" {
                    world.phone_mut(name).timer =
                        "Supported: timer\r\nSession-Expires: 1800;refresher=uas\r\n".to_owned();
                }
                world.step(&format!("{name} allows {updates}"));
                world.steps(&["alice calls bob", "bob answers 200 with sdp", "alice acks"]);
                wait(&mut world, 899);
                world.log.clear();
                for _ in 0..120 {
                    while let Some(asked) = world.phone(name).todo.first().cloned() {
                        world.phone_mut(name).asked = Some(asked);
                        world.step(&format!("{name} answers {refusal}"));
                        assert!(world.log.len() < 200, "a storm: {refusal} {updates} {name}");
                    }
                    wait(&mut world, 1);
                }
                let asked = format!("  {name} < ");
                let is_ask = |line: &&String| {
                    line.starts_with(&asked) && (line.contains("INVITE") || line.contains("UPDATE"))
                };
                let tries = world.log.iter().filter(is_ask).count();
                assert!((1..=26).contains(&tries), "{refusal} {updates} {name}: {tries}");
            }
        }
    }
}

/// Each INVITE of ours is waited for, since a next owner must know of it; an UPDATE is not.
#[test]
fn a_refresh_is_copied_and_waited_for_only_when_it_is_an_invite() {
    for (updates, waited) in [("INVITE", 2), ("UPDATE", 0)] {
        let mut world = talking(&[&format!("bob allows {updates}")], "uac");
        wait(&mut world, 890);
        world.stored.clear();
        wait(&mut world, 15);
        assert_eq!(asked(&world, "bob").method(), updates);
        world.step("bob answers 200 with sdp");
        wait(&mut world, 60);
        let barriers = world.stored.iter().filter(|(_, barrier)| *barrier).count();
        assert_eq!(barriers, waited, "{updates}: {:?}", world.stored);
        assert!((1..=4).contains(&world.stored.len()), "{updates}: {:?}", world.stored);
    }
}

#[test]
fn what_cannot_be_meant_makes_no_storm_and_ends_no_call_at_once() {
    let values = [
        "0",
        "1",
        "89",
        "4294967295",
        "99999999999999999999999",
        "-1",
        "soon",
        "",
        "1800;refresher=me",
        "1;refresher=uac",
        "0;refresher=uas",
        "4294967295;refresher=uac",
        "4294967295;refresher=uas",
        ";refresher=uac",
        "90;refresher=uac;refresher=uas",
    ];
    for value in values {
        for name in ["alice", "bob", "both"] {
            let mut world = ready();
            for phone in ["alice", "bob"] {
                if name == phone || name == "both" {
                    let extra = "Supported: timer, timer\r\nMin-SE: 4294967295;x\r\n";
                    world.phone_mut(phone).timer = format!("{extra}Session-Expires: {value}\r\n");
                }
            }
            world.step("alice calls bob");
            if world.phone("alice").final_answer().is_some() {
                assert_eq!(world.phone("alice").final_answer().unwrap().status(), 422, "{value}");
                world.phone_mut("alice").timer.clear();
                world.steps(&["alice acks", "alice calls bob"]);
            }
            world.steps(&["bob answers 200 with sdp", "alice acks"]);
            let says_update = world.phone_mut("alice").say("UPDATE", None);
            let from = world.phone("alice").addr;
            world.send(from, &says_update);
            wait(&mut world, 29);
            assert_eq!(world.b2b.figures().calls, 1, "{value} of {name}: {:?}", world.log);
            world.log.clear();
            for _ in 0..300 {
                for phone in ["alice", "bob"] {
                    if let Some(asked) = world.phone(phone).todo.first().cloned() {
                        let with_sdp = asked.method() == "INVITE";
                        let ok = world.phone_mut(phone).answer_to(&asked, 200, with_sdp, "", None);
                        let from = world.phone(phone).addr;
                        world.send(from, &ok);
                    }
                }
                wait(&mut world, 10);
            }
            // Of each leg a request and its answer, and an ACK, at most every 45 s.
            let new = world.log.iter().filter(|line| !line.ends_with(" again")).count();
            assert!(new < 300, "{value} of {name}: {new}");
        }
    }
}

#[test]
fn an_update_that_comes_to_nothing_is_followed_by_an_invite() {
    let runs =
        [("405", 0, "INVITE"), ("481", 0, "INVITE"), ("491", 4, "UPDATE"), ("503", 450, "UPDATE")];
    for (status, seconds, next) in runs {
        let mut world = talking(&["bob allows INVITE,UPDATE"], "uac");
        wait(&mut world, 901);
        assert_eq!(asked(&world, "bob").method(), "UPDATE");
        world.step(&format!("bob answers {status}"));
        wait(&mut world, seconds);
        assert_eq!(heard(&world, "bob", next), 2, "{status}: {:?}", world.log);
        world.step("bob answers 200 with sdp");
        wait(&mut world, 890);
        assert_eq!(world.b2b.figures().calls, 1);
    }
    let mut world = talking(&["bob allows INVITE,UPDATE"], "uac");
    world.step("bob deaf");
    wait(&mut world, 975);
    assert_eq!((heard(&world, "alice", "BYE"), world.details.len()), (1, 1), "{:?}", world.log);
}

#[test]
fn a_422_that_nobody_can_please_is_tried_a_few_times() {
    for (min, expected) in [(90, 1), (1801, 5), (4_294_967_290_u64, 5)] {
        let mut world = ready();
        world.step("alice calls bob");
        let mut tries = 1;
        while heard(&world, "bob", "INVITE") == tries {
            let more = min + tries as u64;
            world.step(&format!("bob answers 422 at least {more}"));
            tries += 1;
        }
        assert_eq!(heard(&world, "bob", "INVITE"), expected, "{min}");
        // What was wrong with our request is not wrong with the caller's.
        assert_eq!(world.phone("alice").final_answer().unwrap().status(), 502);
    }
}

#[test]
fn a_callee_that_grants_more_than_was_asked_for_is_refreshed_as_it_was_asked() {
    for granted in ["4294967295;refresher=uas", "4294967295;refresher=uac", "1801;refresher=uas"] {
        let mut world = ready();
        world.steps(&["alice asks for 1800;refresher=uac", "alice calls bob"]);
        world.step(&format!("bob asks for {granted}"));
        world.steps(&["bob answers 200 with sdp", "alice acks"]);
        wait(&mut world, 899);
        assert_eq!(heard(&world, "bob", "INVITE"), 1, "{granted}");
        wait(&mut world, 2);
        assert_eq!(asked(&world, "bob").header("Session-Expires"), "1800;refresher=uac");
        world.step("bob deaf");
        wait(&mut world, 74);
        let ended = (heard(&world, "alice", "BYE"), world.details.len());
        assert_eq!(ended, (1, 1), "{granted}: {:?}", world.log);
    }
}

#[test]
fn a_peer_that_takes_no_interval_that_we_would_wait_for_is_told_of_none_and_refreshed() {
    for (name, other, min) in [
        ("alice", "bob", 4_294_967_295_u64),
        ("alice", "bob", 7_201),
        ("bob", "alice", 4_294_967_295),
        ("bob", "alice", 7_201),
    ] {
        let mut world = ready();
        world.step("alice asks for 1800;refresher=uac");
        if name == "alice" {
            world.phone_mut("alice").timer = format!(
                "Supported: timer\r\nMin-SE: {min}\r\nSession-Expires: {min};refresher=uac\r\n"
            );
        }
        world.step("alice calls bob");
        if name == "bob" {
            world.step(&format!("bob answers 422 at least {min}"));
            assert_eq!(asked(&world, "bob").header("Session-Expires"), "", "{min}");
            assert_eq!(heard(&world, "bob", "INVITE"), 2);
        } else {
            world.step("bob asks for 1800;refresher=uas");
        }
        world.steps(&["bob answers 200 with sdp", "alice acks"]);
        let told =
            world.phone("alice").final_answer().unwrap().header("Session-Expires").to_owned();
        let expected = if name == "alice" { "" } else { "1800;refresher=uac" };
        assert_eq!(
            (world.phone("alice").final_answer().unwrap().status(), &told[..]),
            (200, expected)
        );

        world.phone_mut(name).asked = None;
        wait(&mut world, 901);
        let refresh = asked(&world, name);
        assert_eq!((refresh.method(), refresh.header("Session-Expires")), ("INVITE", ""));
        world.step(&format!("{name} deaf"));
        wait(&mut world, 74);
        let ended = (heard(&world, other, "BYE"), world.details.len());
        assert_eq!(ended, (1, 1), "{name} {min}: {:?}", world.log);
    }
}

#[test]
fn timer_is_not_refused_unless_timers_are_off() {
    for (expires, status) in [(1800, 100), (0, 420)] {
        let mut world = ready_for(expires);
        world.phone_mut("alice").timer =
            "Require: timer\r\nSession-Expires: 1800;refresher=uas\r\n".to_owned();
        let invite = world.phone_mut("alice").call("bob", true);
        let answer = world.ask("alice", &invite);
        assert_eq!(answer.status(), status);
        assert_eq!(answer.header("Unsupported"), if status == 420 { "timer" } else { "" });
    }
}

fn ready() -> World {
    ready_for(1800)
}

fn ready_for(session_expires: u32) -> World {
    script::ready(Config { session_expires, ..script::config() })
}

/// A call whose callee grants our 1800 s, with this refresher; the caller refreshes its own day-long one.
fn talking(steps: &[&str], refresher: &str) -> World {
    let mut world = ready_for(86_400);
    world.steps(steps);
    world.step("alice asks for 86400;refresher=uac");
    world.step("alice calls bob");
    world.step(&format!("bob asks for 1800;refresher={refresher}"));
    world.steps(&["bob answers 200 with sdp", "alice acks"]);
    world
}

fn wait(world: &mut World, seconds: u64) {
    world.advance(Duration::from_secs(seconds));
}

/// Returns how many requests of a method a phone has got, copies not counted.
fn heard(world: &World, name: &str, method: &str) -> usize {
    let inbox = &world.phone(name).inbox;
    inbox.iter().filter(|m| m.is_request() && m.method() == method).count()
}

fn asked(world: &World, name: &str) -> Text {
    world.phone(name).asked.clone().unwrap()
}
