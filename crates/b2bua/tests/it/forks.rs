//! A user who is rung at several places at once; what the ladders `rings_…` do not show.

use std::time::Duration;

use b2bua::Config;
use failover::record::RECORD_LEN_MAX;

use crate::phone::Text;
use crate::script;
use crate::world::World;

#[test]
fn the_next_owner_goes_on_with_every_branch_of_a_fork() {
    let mut world = ringing();
    world.advance(Duration::from_millis(100));
    world.take_over();
    world.steps(&["desk answers 200 with sdp", "alice acks"]);
    for loser in ["bob", "cell"] {
        assert_eq!(heard(&world, loser, "CANCEL"), 1, "{loser}");
    }
    world.advance(Duration::from_millis(100));
    world.take_over();
    // It was picked up at the moment of the CANCEL, and hears goodbye from whoever owns the call.
    world.steps(&["cell answers cancel", "cell answers 200 with sdp", "cell answers 200"]);
    assert_eq!((heard(&world, "cell", "ACK"), heard(&world, "cell", "BYE")), (1, 1));
    world.steps(&["bob answers cancel", "bob answers 487", "desk says BYE", "alice answers 200"]);
    world.advance(Duration::from_secs(70));
    assert_eq!(world.b2b.records().count(), 0);
}

#[test]
fn the_best_refusal_outlives_its_owner() {
    let mut world = ringing();
    world.step("desk answers 486");
    world.take_over();
    world.steps(&["cell answers 480", "bob answers 503"]);
    assert_eq!(world.phone("alice").inbox.last().unwrap().status(), 486);
}

#[test]
fn a_phone_that_cannot_be_reached_stops_no_other_from_ringing() {
    let mut world = ringing();
    world.steps(&["cell answers 430", "bob answers 408"]);
    assert_eq!(world.b2b.figures().calls, 1);
    world.steps(&["desk answers 200 with sdp", "alice acks"]);
    assert_eq!(world.b2b.records().next().unwrap().fork, None, "nothing is left of it");
}

#[test]
fn a_talking_winner_is_held_while_a_loser_says_nothing() {
    let mut world = ringing();
    world.steps(&["bob answers 200 with sdp", "alice acks", "alice holds"]);
    let hold = world.phone("bob").asked.clone().unwrap();
    assert_eq!((hold.method(), hold.direction()), ("INVITE", "sendonly"));
    world.steps(&["bob answers 200 with sdp", "alice acks", "alice says BYE", "bob answers 200"]);
    world.advance(Duration::from_secs(100));
    assert_eq!(world.b2b.records().count(), 0, "the others answered nothing at all");
}

#[test]
fn as_many_phones_ring_as_may_register_and_the_record_has_room_for_them() {
    let (world, names) = team();
    for name in &names {
        assert_eq!(world.invites(name), 1, "{name}");
    }
    let invites: Vec<&Text> = names.iter().map(|name| &world.phone(name).inbox[1]).collect();
    let cseqs: std::collections::BTreeSet<u32> = invites.iter().map(|it| it.cseq()).collect();
    assert_eq!(cseqs.len(), names.len(), "each is an INVITE of its own");
    assert!(invites.iter().all(|it| it.body() == invites[0].body()), "with the same offer");
    assert!(world.b2b.records().next().unwrap().len_bound() < RECORD_LEN_MAX / 4);
    assert_eq!(world.b2b.figures().unprotected, 0);
}

#[test]
fn each_phone_that_rings_is_asked_for_the_session_that_it_wants() {
    for step in [0, 1] {
        let (mut world, names) = team();
        for (name, more) in names.iter().zip(1..) {
            world.step(&format!("{name} answers 422 at least {}", 3600 + step * more));
        }
        for name in &names {
            assert_eq!(world.invites(name), 2, "{name}: {:?}", world.log);
        }
        // Who never has enough stops no other.
        for more in 1..9 {
            if world.invites("phone3") == 1 + more {
                world.step(&format!("phone3 answers 422 at least {}", 4000 + more));
            }
        }
        assert_eq!(world.invites("phone3"), 5);
        world.step("phone4 answers 422 at least 5000");
        assert_eq!(world.invites("phone4"), 3);
        world.steps(&["phone4 answers 200 with sdp", "alice acks"]);
        assert_eq!(world.b2b.figures().calls, 1);
    }
}

#[test]
fn a_phone_that_cannot_be_rung_again_for_want_of_room_has_refused() {
    for last in 0..3 {
        let config = Config { session_expires: 1800, calls_max: 1, ..script::config() };
        let mut world = ringing_with(config);
        for _ in 0..80 {
            let options = world.phone_mut("alice").say("OPTIONS", None);
            world.send(world.phone("alice").addr, &options);
        }
        let mut names = ["bob", "desk", "cell"];
        names.swap(last, 2);
        for name in names {
            for min in 1801..1810 {
                if !world.phone(name).todo.is_empty() {
                    world.step(&format!("{name} answers 422 at least {min}"));
                }
            }
        }
        assert!(world.phone("alice").final_answer().is_some(), "{last}: {:?}", world.log);
    }
}

/// Alice calls a team of as many phones as may register.
fn team() -> (World, Vec<String>) {
    let mut world = World::new(Config { session_expires: 1800, ..script::config() });
    world.steps(&["gateway 31", "phone alice 192.0.2.1:5060"]);
    let names: Vec<String> = (0..8).map(|number| format!("phone{number}")).collect();
    for (name, host) in names.iter().zip(10..) {
        world.step(&format!("phone {name} 192.0.2.{host}:5060"));
        world.step(&format!("{name} registers as team"));
    }
    world.step("alice calls team");
    (world, names)
}

/// Alice calls bob, who has three phones.
fn ringing() -> World {
    ringing_with(script::config())
}

fn ringing_with(config: Config) -> World {
    let mut world = script::ready(config);
    world.steps(&[
        "phone desk 192.0.2.3:5060",
        "phone cell 192.0.2.4:5060",
        "desk registers as bob",
        "cell registers as bob",
        "alice calls bob",
        "bob answers 180",
        "desk answers 180",
        "cell answers 180",
    ]);
    world
}

fn heard(world: &World, name: &str, method: &str) -> usize {
    let inbox = world.phone(name).inbox.iter();
    inbox.filter(|text| text.is_request() && text.method() == method).count()
}
