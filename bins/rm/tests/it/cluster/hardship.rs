//! What should not happen and does: disks that take nothing, standbys that are late or lie, frames
//! that come twice, two processes of one node. Calls go on, and somebody is told.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use driver::sim::{Path, Pen};
use driver::store::{MemoryDisk, Trouble};
use driver::{Class, Input, NodeId};
use failover::pulse::{Datagram, Pulse};
use failover::replica::Ack;
use testkit::{Command, Event, PhoneId};

use super::details::Warnings;
use super::pair::{hold_resume_and_end, sip_seen, takeovers, talking};
use super::world::{B2B, Layout, OTHER_GATE, World};

const A: PhoneId = PhoneId(0);
const B: PhoneId = PhoneId(1);
const C: PhoneId = PhoneId(2);
const D: PhoneId = PhoneId(3);

#[test]
fn calls_with_media_go_on_unprotected_on_a_disk_that_is_full_or_read_only() {
    for (trouble, seed) in [(Trouble::Full, 61), (Trouble::ReadOnly, 62)] {
        let warnings = Warnings::listen();
        let disk = MemoryDisk::default();
        let mut world = World::with_disk(seed, Layout::Three, Some(&disk));
        world.start();
        world.call(C, D);
        world.run(Duration::from_secs(2));
        disk.refuse(Some(trouble));
        world.scenario.sim().set_pen(B2B, Pen::Fails);
        world.call(A, B);
        world.run(Duration::from_secs(3));
        world.scenario.assert_talking(&[(A, B), (C, D)]);
        let figures = ["store_ok", "rm_slots", "rm_slots_unprotected"];
        assert_eq!(figures.map(|name| world.figure(B2B, name)), [0, 256, 256], "{trouble:?}");
        assert_eq!(warnings.count("calls would not outlive a restart"), 1);
        world.hang_up(D);
        world.run(Duration::from_secs(1));
        hold_resume_and_end(&mut world);
        assert_eq!(world.figure(B2B, "rm_details_waiting"), 2);
        assert_eq!(warnings.count("call details cannot be written"), 1);
        // It stands when the disk takes records again.
        world.call(C, D);
        world.run(Duration::from_secs(3));

        disk.refuse(None);
        world.scenario.sim().set_pen(B2B, Pen::Writes);
        world.call(A, B);
        world.run(Duration::from_secs(3));
        let figures = ["store_ok", "rm_slots_unprotected", "rm_details_waiting"];
        assert_eq!(figures.map(|name| world.figure(B2B, name)), [1, 0, 0], "{trouble:?}");
        world.scenario.sim().crash(B2B);
        disk.crash(world.scenario.now(), Duration::from_millis(30));
        world.scenario.sim().restart(B2B);
        world.run(Duration::from_secs(4));
        end_both(&mut world);
    }
}

#[test]
fn a_standby_that_is_late_delays_no_call_and_costs_none() {
    let (mut world, owner, other) = talking(63, Layout::Pair);
    let path = Path { delay: Duration::from_millis(40), ..Path::default() };
    for (from, to) in [(owner, other), (other, owner)] {
        world.scenario.sim().set_path(from, to, path);
    }
    let asked_at = world.scenario.now();
    for phone in [A, B] {
        world.scenario.plan(Duration::ZERO, phone, Command::Hold);
        world.run(Duration::from_secs(1));
        world.scenario.plan(Duration::ZERO, phone, Command::Resume);
        world.run(Duration::from_secs(1));
    }
    let events: Vec<_> = world.scenario.fleet().journal().events().collect();
    let accepted =
        |&&(at, _, event): &&(_, _, _)| asked_at <= at && event == Event::ReinviteAccepted;
    let after: Vec<Duration> = events
        .iter()
        .filter(accepted)
        .map(|(at, ..)| at.duration_since(asked_at))
        .map(|after| after - Duration::from_secs(after.as_secs()))
        .collect();
    // Three messages of each wait for the standby, no longer than 5 ms.
    assert!(
        after.len() == 4 && after.iter().all(|it| *it < Duration::from_millis(20)),
        "{after:?}"
    );
    assert!(0 < world.figure(owner, "rm_copies_late_total"));
    assert_eq!((takeovers(&world), world.owner()), (0, Some(owner)));
    world.run(Duration::from_secs(1));
    world.scenario.sim().crash(owner);
    world.run(Duration::from_secs(1));
    hold_resume_and_end(&mut world);
}

/// It says that it holds what it was never sent.
#[test]
fn a_standby_that_lies_is_found_out_and_copied_to_anew() {
    let (mut world, owner, other) = talking(64, Layout::Pair);
    world.scenario.plan(Duration::ZERO, A, Command::Hold);
    let told = heard(
        &mut world,
        Duration::from_secs(1),
        |at, input| matches!(input, Input::Frame { peer, class: Class::Bulk, .. } if at == owner && *peer == other),
    );
    // It owns slots of its own, and copies them here.
    let acks = told.into_iter().filter_map(|(_, input)| {
        let Input::Frame { kind, payload, .. } = input else { return None };
        Some((kind, driver::codec::decode::<Ack>(&payload).ok()?))
    });
    let (kind, ack) = acks.last().expect("it acknowledges copies");
    let lie = Ack { taken: ack.taken + 1000, ..ack };
    let (peer, class, payload) = (other, Class::Bulk, driver::codec::encode(&lie));
    world.scenario.sim().tell(owner, Input::Frame { peer, class, kind, payload });
    world.scenario.plan(Duration::ZERO, A, Command::Resume);
    world.run(Duration::from_secs(3));

    assert_eq!(world.figure(owner, "rm_copies_lies_total"), 1);
    assert_eq!((takeovers(&world), world.figure(owner, "rm_slots_unprotected")), (0, 0));
    world.scenario.sim().crash(owner);
    world.run(Duration::from_secs(1));
    hold_resume_and_end(&mut world);
}

/// All that a b2b said to anybody before it died comes again while another has its slots.
#[test]
fn frames_of_an_older_epoch_that_come_again_change_nothing() {
    let (mut world, owner, other) = talking(65, Layout::Pair);
    world.call(C, D);
    for (at, command) in [(500, Command::Hold), (1000, Command::Resume)] {
        world.scenario.plan(Duration::from_millis(at), B, command);
    }
    let said = heard(
        &mut world,
        Duration::from_secs(2),
        |_, input| matches!(input, Input::Frame { peer, .. } if *peer == owner),
    );
    world.scenario.sim().crash(owner);
    world.run(Duration::from_secs(1));
    world.scenario.sim().restart(owner);
    world.run(Duration::from_secs(5));
    let classes: BTreeMap<Class, usize> =
        said.iter().fold(BTreeMap::new(), |mut all, (_, input)| {
            if let Input::Frame { class, .. } = input {
                *all.entry(*class).or_default() += 1;
            }
            all
        });
    assert_eq!(classes.len(), 3, "links of each kind: {classes:?}");
    let before = (sip_seen(&world), takeovers(&world));
    for (node, input) in said {
        world.scenario.sim().tell(node, input);
    }
    world.run(Duration::from_secs(35));

    assert_eq!((sip_seen(&world), takeovers(&world)), before, "{}", world.scenario);
    assert_eq!((world.figure(other, "rm_slots"), world.slots()), (256, 256));
    end_both(&mut world);
}

/// A copy of its file is started on another machine: what voters hear then.
#[test]
fn of_two_processes_of_one_node_the_older_says_so_and_the_calls_live_on_elsewhere() {
    let warnings = Warnings::listen();
    let (mut world, owner, other) = talking(66, Layout::Pair);
    let is_pulse = |input: &Input| {
        let Input::Datagram { bytes, .. } = input else { return None };
        let Some(Datagram::Pulse(pulse)) = Datagram::decode(bytes) else { return None };
        (pulse.node.0 == owner.0).then_some(pulse)
    };
    let pulses =
        heard(&mut world, Duration::from_millis(100), |_, input| is_pulse(input).is_some());
    let last: BTreeMap<NodeId, Input> = pulses.into_iter().collect();
    assert!(last.len() == 4 && last.contains_key(&OTHER_GATE), "gates, witness, the other b2b");
    for stamp in 1..40 {
        for (node, input) in &last {
            let Input::Datagram { socket, from, .. } = input else { panic!("{input:?}") };
            let pulse = is_pulse(input).expect("it is one");
            let boot = failover::Boot(pulse.boot.0 + 1);
            let pulse = Pulse { boot, stamp, holds: false, claims: Vec::new(), ..pulse };
            let (socket, from, bytes) = (*socket, *from, Bytes::from(pulse.encode()));
            world.scenario.sim().tell(*node, Input::Datagram { socket, from, bytes });
        }
        world.run(Duration::from_millis(50));
    }

    assert_eq!(warnings.count("another process that was started later"), 1);
    assert_eq!([owner, other].map(|b2b| world.figure(b2b, "rm_replaced")), [1, 0]);
    assert_eq!((world.owner(), world.figure(other, "rm_slots")), (Some(other), 256));
    hold_resume_and_end(&mut world);
}

/// Two calls stand, and end.
fn end_both(world: &mut World) {
    world.scenario.assert_talking(&[(A, B), (C, D)]);
    world.hang_up(C);
    world.run(Duration::from_secs(1));
    hold_resume_and_end(world);
}

/// Everything of a kind that nodes are told within a time.
fn heard(
    world: &mut World,
    span: Duration,
    is_it: impl Fn(NodeId, &Input) -> bool,
) -> Vec<(NodeId, Input)> {
    let mut heard = Vec::new();
    world.scenario.sim().run_until_input(span, |node, input| {
        if is_it(node, input) {
            heard.push((node, input.clone()));
        }
        false
    });
    heard
}
