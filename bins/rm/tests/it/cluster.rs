//! Whole clusters in the simulator: phones call through gate, b2b, controller and mediagates.

mod deaths;
pub(crate) mod details;
mod emitters;
mod gates;
mod hardship;
mod held;
mod laws;
pub(crate) mod next;
mod owners;
mod pair;
mod plan;
mod restart;
mod secure;
mod seeds;
mod single;
mod streams;
mod trial;
mod upgrade;
mod world;
mod written;

use std::time::Duration;

use testkit::PhoneId;
use world::{Layout, World};

#[test]
fn a_call_through_one_process_talks_and_ends() {
    talk_and_end(Layout::One);
}

#[test]
fn a_call_through_three_processes_talks_and_ends() {
    talk_and_end(Layout::Three);
}

fn talk_and_end(layout: Layout) {
    let mut world = World::new(1, layout);
    world.start();
    let call = world.call(PhoneId(0), PhoneId(1));
    world.run(Duration::from_secs(3));
    world.scenario.assert_talking(&[call]);
    world.hang_up(PhoneId(0));
    world.run(Duration::from_secs(2));
    world.scenario.assert_idle();
    assert_eq!(world.live_calls(), 0);
}

#[test]
fn a_call_goes_on_when_its_mediagate_dies() {
    let mut world = World::new(2, Layout::Three);
    world.start();
    let call = world.call(PhoneId(0), PhoneId(1));
    world.run(Duration::from_secs(3));
    world.scenario.sim().crash(world::FIRST_MEDIAGATE);
    world.run(Duration::from_secs(2));
    world.scenario.assert_talking(&[call]);
    world.hang_up(PhoneId(1));
    world.run(Duration::from_secs(2));
    world.scenario.assert_idle();
}
