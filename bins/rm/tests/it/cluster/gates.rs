//! Three gates, of which the owner of a call reaches only some.

use std::time::Duration;

use driver::NodeId;
use testkit::{PhoneId, seeds};

use super::pair::{hold_resume_and_end, takeovers, talking};
use super::world::{GATE, Layout, OTHER_GATE, THIRD_GATE, World};

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
