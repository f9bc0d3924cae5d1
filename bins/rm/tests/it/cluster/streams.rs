//! Phones that speak SIP over TCP.

use std::time::Duration;

use driver::NodeId;
use driver::store::MemoryDisk;
use testkit::scenario::PHONES;
use testkit::{Command, Event, PhoneId};

use super::world::{
    B2B, FIRST_MEDIAGATE, GATE, Layout, OTHER_B2B, OTHER_GATE, OTHER_MEDIAGATE, Setup, World, host,
    nodes,
};

/// These speak over connections, the others by datagrams.
const STREAMS: u32 = 4;

#[test]
fn calls_between_phones_on_tcp_and_on_udp_talk_are_held_and_end_from_either_side() {
    for layout in [Layout::One, Layout::Three] {
        let mut world = started(1, layout);
        let calls = [(0, 1), (2, 5), (6, 3)].map(|(from, to)| world.call(id(from), id(to)));
        world.run(Duration::from_secs(3));
        world.scenario.assert_talking(&calls);
        for phone in [0, 5, 3] {
            world.scenario.plan(Duration::ZERO, id(phone), Command::Hold);
            world.scenario.plan(Duration::from_secs(2), id(phone), Command::Resume);
        }
        world.run(Duration::from_secs(4));
        world.scenario.assert_talking(&calls);
        for phone in [0, 5, 3] {
            world.hang_up(id(phone));
        }
        ended(&mut world);
    }
}

#[test]
fn a_call_on_tcp_moves_its_media_when_its_mediagate_dies() {
    let mut world = started(2, Layout::Three);
    let calls = [(0, 1), (2, 5)].map(|(from, to)| world.call(id(from), id(to)));
    world.run(Duration::from_secs(3));
    world.scenario.sim().crash(FIRST_MEDIAGATE);
    world.run(Duration::from_secs(2));
    world.scenario.assert_talking(&calls);
    world.hang_up(id(0));
    world.hang_up(id(5));
    ended(&mut world);
}

#[test]
fn connections_are_the_gates_and_outlive_the_b2b() {
    for seed in 0..8 {
        let mut world = started(seed, Layout::Pair);
        let calls = [(0, 1), (2, 5), (6, 3)].map(|(from, to)| world.call(id(from), id(to)));
        world.run(Duration::from_secs(3));
        world.scenario.assert_talking(&calls);
        // No phone can be reached but over what it has made.
        for gate in [GATE, OTHER_GATE] {
            world.scenario.sim().refuse_streams(gate);
        }
        // Each of them has some of the slots.
        let victim = if seed % 2 == 0 { B2B } else { OTHER_B2B };
        world.scenario.sim().crash(victim);
        world.run(Duration::from_secs(2));
        world.scenario.assert_talking(&calls);
        assert_eq!(world.live_calls(), calls.len());

        // The phones' own requests reach the new owner, and its reach them.
        world.scenario.plan(Duration::ZERO, id(0), Command::Hold);
        world.scenario.plan(Duration::from_secs(2), id(0), Command::Resume);
        world.run(Duration::from_secs(4));
        world.scenario.assert_talking(&calls);
        for phone in [1, 2, 6] {
            world.hang_up(id(phone));
        }
        ended(&mut world);
    }
}

#[test]
fn a_call_whose_connections_break_ends_from_either_side_and_the_next_one_finds_its_phone() {
    let mut world = started(3, Layout::Three);
    let calls = [(0, 1), (2, 5)].map(|(from, to)| world.call(id(from), id(to)));
    world.run(Duration::from_secs(3));
    world.scenario.sim().break_streams(PHONES, GATE);
    world.run(Duration::from_secs(2));
    world.scenario.assert_talking(&calls);
    world.hang_up(id(0));
    world.hang_up(id(5));
    ended(&mut world);

    world.scenario.sim().break_streams(PHONES, GATE);
    let call = world.call(id(6), id(3));
    world.run(Duration::from_secs(3));
    world.scenario.assert_talking(&[call]);
    world.hang_up(id(6));
    ended(&mut world);
}

/// No timer repeats what goes over a connection, and what was on its way to the gate is lost with the link.
#[test]
fn a_phone_on_tcp_whose_gate_was_cut_off_hears_of_the_end_once_the_gate_is_back() {
    for (layout, gate) in [(Layout::Pair, OTHER_GATE), (Layout::Two, OTHER_B2B)] {
        for seed in 0..4 {
            let elsewhere = [(id(1), gate), (id(3), gate)].into();
            let setup = Setup { streams: STREAMS, elsewhere, ..Setup::new(layout) };
            let mut world = World::build(seed, setup);
            world.start();
            let call = world.call(id(0), id(1));
            world.run(Duration::from_secs(3));
            world.scenario.assert_talking(&[call]);
            let others = nodes(layout).into_iter().filter(|node| *node != gate);
            others.for_each(|node| world.scenario.sim().cut_both(node, gate));
            world.run(Duration::from_secs(1));
            world.hang_up(id(0));
            world.run(Duration::from_secs(5));
            world.scenario.sim().heal_all();
            world.run(Duration::from_secs(4));
            ended(&mut world);
        }
    }
}

/// The only b2b is away, and comes back with its records.
#[test]
fn what_a_phone_on_tcp_says_in_its_call_while_no_b2b_is_there_is_heard_by_the_next_one() {
    for (seed, power) in [(0, false), (1, true), (2, false), (3, true)] {
        let disk = Some(MemoryDisk::default());
        let setup = Setup { disk, streams: STREAMS, ..Setup::new(Layout::Three) };
        let mut world = World::build(seed, setup);
        world.start();
        let calls = [(0, 1), (2, 5)].map(|(from, to)| world.call(id(from), id(to)));
        world.run(Duration::from_secs(3));
        world.scenario.assert_talking(&calls);
        if power {
            world.scenario.sim().power_off(host(Layout::Three, B2B));
        } else {
            world.scenario.sim().crash(B2B);
        }
        world.run(Duration::from_millis(200));
        received(&mut world);
        world.hang_up(id(0));
        world.hang_up(id(2));
        world.run(Duration::from_secs(4));
        assert_eq!(received(&mut world), [], "{}", world.scenario);
        world.scenario.sim().restart(B2B);
        world.run(Duration::from_secs(1));
        let heard = received(&mut world);
        for phone in [0, 2] {
            let answer = (id(phone), "200 to BYE".to_owned());
            assert!(heard.contains(&answer), "{heard:?}\n{}", world.scenario);
        }
        ended(&mut world);
    }
}

/// Nobody proves the death of a host, so its slots have no owner for a while.
#[test]
fn what_a_phone_on_tcp_says_between_two_owners_of_its_call_is_heard_by_the_second() {
    for seed in 0..6 {
        let mut world = started(seed, Layout::Pair);
        let call = world.call(id(0), id(1));
        world.run(Duration::from_secs(3));
        world.scenario.assert_talking(&[call]);
        let owner = world.owner().expect("one b2b has the call");
        world.scenario.sim().power_off(host(Layout::Pair, owner));
        world.run(Duration::from_millis(200));
        assert_eq!(world.owner(), None, "{seed}");
        world.hang_up(id(0));
        ended(&mut world);
    }
}

/// Its owner hears the phone, which says it once, and no voter: somebody else has the call already.
#[test]
fn what_a_phone_on_tcp_says_to_an_owner_without_a_lease_reaches_the_next_one() {
    for seed in 0..6 {
        let mut world = World::with_streams(seed, Layout::Two, STREAMS);
        world.start();
        let calls = [(0, 1), (2, 3)].map(|(from, to)| world.call(id(from), id(to)));
        world.run(Duration::from_secs(3));
        world.scenario.assert_talking(&calls);
        let others = nodes(Layout::Two).into_iter().filter(|node| *node != B2B);
        others.for_each(|node| world.scenario.sim().cut(node, B2B));
        world.run(Duration::from_millis(1200));
        world.hang_up(id(0));
        world.run(Duration::from_millis(500));
        assert_eq!(world.figure(B2B, "rm_unheard_waiting"), 1, "{seed}");
        world.scenario.sim().heal_all();
        world.hang_up(id(3));
        world.run(Duration::from_secs(6));
        ended(&mut world);
        assert_eq!(unheard(&world, B2B), [0; 3], "{seed}");
    }
}

#[test]
fn what_a_phone_on_tcp_says_where_no_owner_is_found_while_it_waits_is_counted() {
    let mut world = World::with_streams(7, Layout::Two, STREAMS);
    world.start();
    let call = world.call(id(0), id(1));
    world.run(Duration::from_secs(3));
    world.scenario.assert_talking(&[call]);
    let others = nodes(Layout::Two).into_iter().filter(|node| *node != B2B);
    others.for_each(|node| world.scenario.sim().cut_both(node, B2B));
    world.run(Duration::from_millis(1200));
    world.hang_up(id(0));
    world.run(Duration::from_secs(31));
    assert_eq!(unheard(&world, B2B), [1, 0, 0]);
    world.run(Duration::from_secs(2));
    assert_eq!(unheard(&world, B2B), [0, 0, 1]);
}

#[test]
fn a_call_to_a_phone_that_can_be_reached_no_more_is_refused_at_once() {
    let mut world = started(4, Layout::Three);
    world.scenario.sim().break_streams(PHONES, GATE);
    world.scenario.sim().refuse_streams(GATE);
    world.call(id(6), id(0));
    world.run(Duration::from_secs(1));
    // Its Contact names a place where it listens, so this is no 480 as for one behind a NAT, but the
    // 503 of RFC 3261 §8.1.3.1, which becomes a 500 for the caller (§16.7).
    let refused = world
        .scenario
        .fleet()
        .journal()
        .events()
        .any(|(_, phone, event)| phone == Some(id(6)) && matches!(event, Event::Refused(500)));
    assert!(refused, "{}", world.scenario);
    ended(&mut world);
}

#[test]
fn a_call_on_tcp_goes_on_when_its_gate_starts_anew() {
    let mut world = started(5, Layout::Three);
    let calls = [(0, 1), (2, 5)].map(|(from, to)| world.call(id(from), id(to)));
    world.run(Duration::from_secs(3));
    world.scenario.sim().restart(GATE);
    world.run(Duration::from_secs(3));
    world.scenario.assert_talking(&calls);
    // One phone says so itself; the others hear of it over connections that the new gate makes.
    world.hang_up(id(0));
    world.hang_up(id(5));
    ended(&mut world);
}

#[test]
fn connections_that_a_cut_holds_up_break_and_no_ghost_is_left() {
    let mut world = started(6, Layout::Three);
    world.call(id(0), id(1));
    world.call(id(2), id(5));
    world.run(Duration::from_secs(3));
    let others: [NodeId; 3] = [GATE, FIRST_MEDIAGATE, OTHER_MEDIAGATE];
    for other in others {
        world.scenario.sim().cut_both(PHONES, other);
    }
    world.hang_up(id(0));
    world.hang_up(id(5));
    world.run(Duration::from_secs(60));
    world.scenario.sim().heal_all();
    world.run(Duration::from_secs(60));
    assert_eq!(world.live_calls(), 0);
    let call = world.call(id(0), id(1));
    world.run(Duration::from_secs(3));
    world.scenario.assert_talking(&[call]);
}

#[test]
fn calls_over_ipv6_talk_are_held_move_their_media_and_end_on_tcp_and_on_udp() {
    for layout in [Layout::One, Layout::Three] {
        let mut world = World::with_ipv6(7, layout, STREAMS);
        world.start();
        let calls = [(0, 1), (2, 5), (6, 3), (7, 8)].map(|(from, to)| world.call(id(from), id(to)));
        world.run(Duration::from_secs(3));
        world.scenario.assert_talking(&calls);
        for phone in [0, 5] {
            world.scenario.plan(Duration::ZERO, id(phone), Command::Hold);
            world.scenario.plan(Duration::from_secs(2), id(phone), Command::Resume);
        }
        world.run(Duration::from_secs(4));
        world.scenario.sim().crash(FIRST_MEDIAGATE);
        world.run(Duration::from_secs(2));
        world.scenario.assert_talking(&calls);
        for phone in [0, 5, 3, 7] {
            world.hang_up(id(phone));
        }
        ended(&mut world);
    }
}

#[test]
fn a_phone_on_ipv6_is_called_over_a_new_connection_when_the_old_one_is_lost() {
    let mut world = World::with_ipv6(8, Layout::Three, STREAMS);
    world.start();
    world.scenario.sim().break_streams(PHONES, GATE);
    let calls = [(6, 3), (0, 1)].map(|(from, to)| world.call(id(from), id(to)));
    world.run(Duration::from_secs(3));
    world.scenario.assert_talking(&calls);
    world.hang_up(id(3));
    world.hang_up(id(0));
    ended(&mut world);
}

fn started(seed: u64, layout: Layout) -> World {
    let mut world = World::with_streams(seed, layout, STREAMS);
    world.start();
    world
}

/// Waits until what was hung up is over everywhere, and checks that every rule was kept.
fn ended(world: &mut World) {
    world.run(Duration::from_secs(2));
    world.scenario.assert_idle();
    assert_eq!(world.live_calls(), 0);
    let broken = world.scenario.broken();
    world.scenario.assert_none(&broken);
}

/// Returns what waits at a b2b, and what was dropped there meanwhile.
fn unheard(world: &World, b2b: NodeId) -> [u64; 3] {
    ["waiting", "total{why=\"too_many\"}", "total{why=\"too_old\"}"]
        .map(|figure| world.figure(b2b, &format!("rm_unheard_{figure}")))
}

/// What came to phones since this was last asked.
fn received(world: &mut World) -> Vec<(PhoneId, String)> {
    let kinds = world.scenario.with_fleet(|fleet, _| fleet.journal_mut().take_received());
    kinds.into_keys().collect()
}

fn id(phone: u32) -> PhoneId {
    PhoneId(phone)
}
