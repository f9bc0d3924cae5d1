//! A hold or a resume meets a media move: whatever comes first and whatever is lost, in the end each
//! side knows what the other one wishes.

use std::time::Duration;

use crate::phone::Text;
use crate::script;
use crate::world::World;

/// How the phone that changes its mind treats our re-INVITE, which crosses its own.
const CROSSINGS: [&[u16]; 5] = [
    // It answers, and its own INVITE was refused.
    &[200],
    &[491],
    // It takes none of our offers, and makes its own.
    &[491, 488, 488],
    // Its answers are lost until ours is cut off.
    &[0],
    &[491, 0],
];

#[test]
fn a_resume_that_meets_a_move_ends_the_hold_on_the_other_side() {
    each_meeting(|world, one, other, crossing| {
        hold(world, one, other);
        meet(world, one, other, crossing, Wants { one: "sendrecv", other: "sendrecv" });
    });
}

#[test]
fn a_hold_that_meets_a_move_holds_the_other_side() {
    each_meeting(|world, one, other, crossing| {
        meet(world, one, other, crossing, Wants { one: "sendonly", other: "sendrecv" });
    });
}

#[test]
fn a_resume_of_one_that_meets_a_move_leaves_the_hold_of_the_other() {
    each_meeting(|world, one, other, crossing| {
        hold(world, one, other);
        world.step(&format!("{other} turns inactive"));
        world.steps(&[&format!("{other} reinvites"), &format!("{one} turns inactive")]);
        world.steps(&[&format!("{one} answers 200 with sdp"), &format!("{other} acks")]);
        meet(world, one, other, crossing, Wants { one: "sendrecv", other: "sendonly" });
    });
}

/// What the users want in the end.
#[derive(Clone, Copy)]
struct Wants {
    one: &'static str,
    other: &'static str,
}

fn each_meeting(run: impl Fn(&mut World, &str, &str, Crossing)) {
    for (one, other) in [("alice", "bob"), ("bob", "alice")] {
        for answers in CROSSINGS {
            for first in [true, false] {
                for rebuilds in [false, true] {
                    let mut world = talking();
                    run(&mut world, one, other, Crossing { answers, first, rebuilds });
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Crossing {
    answers: &'static [u16],
    /// The other phone answers first.
    first: bool,
    rebuilds: bool,
}

fn meet(world: &mut World, one: &str, other: &str, crossing: Crossing, wants: Wants) {
    world.step("g31 dies");
    if crossing.first {
        answer(world, other, wants.other);
    }
    world.phone_mut(one).direction = wants.one;
    world.step(&format!("{one} reinvites"));
    assert_eq!(world.phone(one).inbox.last().unwrap().status(), 491, "{crossing:?}");
    for status in crossing.answers {
        match status {
            0 => world.advance(Duration::from_millis(4100)),
            200 => answer(world, one, wants.one),
            _ => world.step(&format!("{one} answers {status}")),
        }
        if crossing.rebuilds {
            world.rebuild();
        }
        if *status == 491 {
            world.step(&format!("{one} acks"));
            world.advance(Duration::from_millis(4000));
        }
    }
    if world.phone(one).owes_ack() {
        world.step(&format!("{one} acks"));
    }
    let again = !matches!(crossing.answers, [.., 488]);
    settle(world, [(one, wants.one), (other, wants.other)]);
    if again {
        // A phone asks again for what was refused in the crossing.
        world.phone_mut(one).direction = wants.one;
        world.step(&format!("{one} reinvites"));
        settle(world, [(one, wants.one), (other, wants.other)]);
    }
    let context = format!("{one} {crossing:?}\n{}", world.log.join("\n"));
    for (name, own, others) in [(one, wants.one, wants.other), (other, wants.other, wants.one)] {
        let said = last_sdp(world, name).direction();
        assert_eq!(answered(own, said), answered(own, others), "{name} is told {said}, {context}");
    }
    assert!(world.details.is_empty(), "{context}");
}

/// All phones answer everything as their users want, for a while.
fn settle(world: &mut World, users: [(&str, &'static str); 2]) {
    for _ in 0..20 {
        for (name, wants) in users {
            while !world.phone(name).todo.is_empty() {
                let asked = world.phone(name).todo[0].clone();
                world.phone_mut(name).asked = Some(asked.clone());
                match asked.method() {
                    "INVITE" => answer(world, name, wants),
                    _ => world.step(&format!("{name} answers 200")),
                }
            }
            if world.phone(name).owes_ack() {
                world.step(&format!("{name} acks"));
            }
        }
        world.advance(Duration::from_millis(1000));
    }
}

/// Lets a phone answer an INVITE as far as the offer allows what its user wants.
fn answer(world: &mut World, name: &str, wants: &'static str) {
    let asked = world.phone(name).asked.clone().unwrap();
    let offered = if asked.body().is_empty() { "sendrecv" } else { asked.direction() };
    world.phone_mut(name).direction = answered(offered, wants);
    world.step(&format!("{name} answers 200 with sdp"));
}

fn hold(world: &mut World, one: &str, other: &str) {
    world.step(&format!("{one} holds"));
    answer(world, other, "sendrecv");
    world.step(&format!("{one} acks"));
    assert_eq!(last_sdp(world, one).direction(), "recvonly");
}

fn last_sdp<'a>(world: &'a World, name: &str) -> &'a Text {
    let mut inbox = world.phone(name).inbox.iter().rev();
    inbox.find(|message| !message.body().is_empty()).unwrap()
}

/// RFC 3264 §6.1.
fn answered(offered: &str, wants: &str) -> &'static str {
    let sends = |direction: &str| matches!(direction, "sendrecv" | "sendonly");
    let receives = |direction: &str| matches!(direction, "sendrecv" | "recvonly");
    named(sends(wants) && receives(offered), receives(wants) && sends(offered))
}

fn named(sends: bool, receives: bool) -> &'static str {
    match (sends, receives) {
        (true, true) => "sendrecv",
        (true, false) => "sendonly",
        (false, true) => "recvonly",
        (false, false) => "inactive",
    }
}

fn talking() -> World {
    let mut world = script::ready(script::config());
    world.steps(&["alice calls bob", "bob answers 200 with sdp", "alice acks"]);
    world.log.clear();
    world
}
