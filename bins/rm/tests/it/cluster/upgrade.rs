//! The b2bs are replaced in turn by the next version, and by this one again.

use std::time::Duration;

use driver::{Input, NodeId, StopReason};
use testkit::PhoneId;

use super::pair::{hold_resume_and_end, sip_seen, talking};
use super::world::{GATE, Layout, World};

#[test]
fn calls_stay_up_while_each_b2b_is_replaced_by_the_next_version() {
    let (mut world, owner, other) = talking(15, Layout::Pair);
    let before = sip_seen(&world);
    let dropped = world.figure(GATE, "rm_frames_dropped_total");
    for (old, taker) in [(other, owner), (owner, other)] {
        world.replace(old, true);
        assert_eq!(world.owner(), Some(taker));
        assert_eq!(unprotected(&world, taker), 0);
    }
    assert_eq!(sip_seen(&world), before, "{}", world.scenario);
    assert!(dropped < world.figure(GATE, "rm_frames_dropped_total"), "news are counted");

    // The last of the old version is gone, and both know the new form.
    world.scenario.sim().crash(other);
    world.run(Duration::from_secs(1));
    assert_eq!((world.owner(), sip_seen(&world)), (Some(owner), before));
    hold_resume_and_end(&mut world);
}

#[test]
fn slots_of_which_the_standby_cannot_read_the_records_are_unprotected_and_not_given_away() {
    let (mut world, old, owner) = talking(16, Layout::Pair);
    let before = sip_seen(&world);
    world.replace(owner, true);
    world.replace(old, true);
    // Back to the version before: what the owner keeps is unreadable there.
    assert_eq!(world.owner(), Some(owner));
    world.replace(old, false);
    let slots = unprotected(&world, owner);
    assert!((1..=11).contains(&slots), "those of ten phones and of their call: {slots}");
    assert!(0 < world.figure(owner, "rm_copies_refused_total"));
    assert_eq!((world.owner(), sip_seen(&world)), (Some(owner), before));

    world.scenario.sim().tell(owner, Input::Drain);
    world.run(Duration::from_secs(5));
    assert_eq!(world.scenario.sim().stopped(owner), None);
    assert_eq!(world.figure(owner, "rm_slots"), slots);
    assert_eq!(world.figure(old, "rm_slots"), 256 - slots);
    assert_eq!((world.owner(), sip_seen(&world)), (Some(owner), before), "{}", world.scenario);
    hold_resume_and_end(&mut world);
    world.run(Duration::from_secs(1));
    let stopped = world.scenario.sim().stopped(owner);
    assert_eq!(stopped, Some(&StopReason::Drained), "the last call has ended");
}

/// Nobody can save those calls; that they are lost is said, and the segment goes on.
#[test]
fn slots_whose_records_the_standby_cannot_read_are_counted_as_bare_when_their_owner_dies() {
    let (mut world, old, owner) = talking(19, Layout::Pair);
    world.replace(owner, true);
    world.replace(old, true);
    world.replace(old, false);
    let slots = unprotected(&world, owner);
    assert!(0 < slots);
    world.scenario.sim().crash(owner);
    world.run(Duration::from_secs(1));

    assert_eq!((world.figure(old, "rm_slots"), world.live_calls()), (256, 0));
    assert_eq!(world.figure(old, "rm_slots_bare_total"), slots);
    assert_eq!(world.figure(old, "rm_copies_unread_total"), 0, "none was taken in");
    world.scenario.register_all();
    let call = world.call(PhoneId(2), PhoneId(3));
    world.run(Duration::from_secs(2));
    world.scenario.assert_talking(&[call]);
}

fn unprotected(world: &World, node: NodeId) -> u64 {
    world.figure(node, "rm_slots_unprotected")
}
