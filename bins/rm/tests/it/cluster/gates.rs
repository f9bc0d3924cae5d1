//! Two or three gates, of which the owner of a call reaches only some.

use std::time::Duration;

use driver::NodeId;
use testkit::{Command, PhoneId, State, seeds};

use super::pair::{hold_resume_and_end, takeovers, talking};
use super::world::{B2B, GATE, Layout, OTHER_B2B, OTHER_GATE, Setup, THIRD_GATE, World};

/// Of two other gates one is cut from the owner, too: it gives back what it cannot hand on.
#[test]
fn calls_pass_by_the_gate_that_reaches_their_owner_though_another_does_not_and_no_phone_repeats_itself()
 {
    let quiet = {
        let (mut world, ..) = talking(23, Layout::Gates);
        world.run(Duration::from_millis(250));
        four_calls(&mut world)
    };
    let ways = [(true, true), (true, false), (false, true)];
    for far in [OTHER_GATE, THIRD_GATE] {
        for (one, other) in ways.into_iter().flat_map(|one| ways.map(|other| (one, other))) {
            let (mut world, owner, _) = talking(23, Layout::Gates);
            cut(&mut world, owner, GATE, one);
            cut(&mut world, owner, far, other);
            world.run(Duration::from_millis(250));

            assert_eq!(four_calls(&mut world), quiet, "{far}: {one:?} {other:?}");
            assert_eq!(takeovers(&world), 0);
            assert!(0 < world.figure(GATE, "rm_gate_detoured_total"));
        }
    }
}

/// Cuts the ways from the owner to a gate and back, each if so.
fn cut(world: &mut World, owner: NodeId, gate: NodeId, (to_gate, to_owner): (bool, bool)) {
    for (from, to, is_cut) in [(owner, gate, to_gate), (gate, owner, to_owner)] {
        if is_cut {
            world.scenario.sim().cut(from, to);
        }
    }
}

/// Has four calls made, and returns how many messages came from phones for that.
fn four_calls(world: &mut World) -> u64 {
    let calls: Vec<_> = (2..10).step_by(2).map(|from| (PhoneId(from), PhoneId(from + 1))).collect();
    let before = world.scenario.fleet().journal().messages_count().0;
    for (from, to) in &calls {
        world.call(*from, *to);
    }
    world.run(Duration::from_secs(1));
    world.scenario.assert_talking(&calls);
    world.scenario.fleet().journal().messages_count().0 - before
}

/// Whichever two gates the owner is cut from, in whichever direction and at whichever moment of new calls.
#[test]
fn calls_on_every_gate_go_on_while_their_owner_reaches_but_one() {
    seeds::each(0..45, |seed| {
        let (mut world, owner, _) = talking(1000 + seed, Layout::Gates);
        let gates = [GATE, OTHER_GATE, THIRD_GATE];
        let reached = gates[usize::try_from(seed % 3).unwrap()];
        let ways = [(true, true), (true, false), (false, true)];
        let calls = [2, 4, 6].map(|from| (PhoneId(from), PhoneId(from + 1)));
        for (from, to) in calls {
            world.call(from, to);
            world.run(Duration::from_millis(37 * (seed % 11)));
        }
        for (place, gate) in gates.into_iter().filter(|gate| *gate != reached).enumerate() {
            let choice = (seed / 3).checked_div(3_u64.pow(u32::try_from(place).unwrap())).unwrap();
            cut(&mut world, owner, gate, ways[usize::try_from(choice % 3).unwrap()]);
        }
        world.run(Duration::from_secs(4));

        let wrong = world.scenario.not_talking(&calls);
        if !wrong.is_empty() {
            return Err(format!("{wrong:?}\n{}", world.scenario));
        }
        for (_, phone) in calls {
            world.hang_up(phone);
        }
        hold_resume_and_end(&mut world);
        match takeovers(&world) {
            0 => Ok(()),
            taken => Err(format!("{taken} takeovers")),
        }
    });
}

#[test]
fn an_owner_cut_from_its_standby_and_from_one_of_two_gates_serves_the_phones_of_both() {
    for (seed, far) in [(40, GATE), (41, OTHER_GATE), (42, GATE), (43, OTHER_GATE)] {
        let odd = (1..10).step_by(2).map(|phone| (PhoneId(phone), OTHER_GATE)).collect();
        let mut world = World::build(seed, Setup { elsewhere: odd, ..Setup::new(Layout::Pair) });
        world.start();
        // Both at the first gate, both at the second, and one at each.
        let mut calls = [(0, 2), (1, 3), (4, 5)].map(|(from, to)| (PhoneId(from), PhoneId(to)));
        for (from, to) in calls {
            world.call(from, to);
        }
        world.run(Duration::from_secs(3));
        world.scenario.assert_talking(&calls);
        let owned = [B2B, OTHER_B2B].map(|b2b| world.figure(b2b, "rm_slots"));
        for gate_or_standby in [OTHER_B2B, far] {
            world.scenario.sim().cut_both(B2B, gate_or_standby);
        }
        world.run(Duration::from_secs(8));

        assert_eq!(takeovers(&world), 0);
        assert_eq!([B2B, OTHER_B2B].map(|b2b| world.figure(b2b, "rm_slots")), owned);
        for turn in 0..2 {
            for (one, other) in &mut calls {
                hold_and_resume(&mut world, *one);
                std::mem::swap(one, other);
            }
            world.scenario.assert_talking(&calls);
            let call = if turn == 0 { (6, 7) } else { (9, 8) };
            let call = world.call(PhoneId(call.0), PhoneId(call.1));
            world.run(Duration::from_secs(1));
            world.scenario.assert_talking(&[call]);
            world.hang_up(call.0);
        }
        for (one, _) in calls {
            world.hang_up(one);
        }
        world.run(Duration::from_secs(1));
        world.scenario.assert_idle();
        assert_eq!(world.live_calls(), 0);
        assert_eq!(world.emitters.wrong(), Vec::<String>::new());
    }
}

fn hold_and_resume(world: &mut World, phone: PhoneId) {
    for (command, holds) in [(Command::Hold, true), (Command::Resume, false)] {
        world.scenario.plan(Duration::ZERO, phone, command);
        world.run(Duration::from_millis(500));
        let state = State::Talking { holds, held: false };
        assert_eq!(world.scenario.fleet().state(phone), state, "{}", world.scenario);
    }
}
