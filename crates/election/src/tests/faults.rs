//! The faults of the random world.

use super::random::Random;
use super::world::{Ms, World};
use crate::{NodeId, Segment};

/// One kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    ColdStart,
    CrashLead,
    Crash,
    Restart,
    RestartWithoutFile,
    Pause,
    PauseLead,
    OneWayCut,
    Cut,
    Partition,
    Heal,
    Flap,
    /// Two to four of them within six seconds.
    Several,
}

/// All but the cold start and several at once; healing often, or all would end in pieces.
pub(super) const FAULTS: [Fault; 14] = [
    Fault::CrashLead,
    Fault::Crash,
    Fault::Restart,
    Fault::Restart,
    Fault::RestartWithoutFile,
    Fault::Pause,
    Fault::PauseLead,
    Fault::OneWayCut,
    Fault::Cut,
    Fault::Partition,
    Fault::Heal,
    Fault::Heal,
    Fault::Heal,
    Fault::Flap,
];

/// Two to five segments with one or two nodes each, three to eight nodes in all.
pub(super) fn cluster(dice: &mut Random) -> Vec<NodeId> {
    loop {
        let mut ids = Vec::new();
        for segment in 1..=u16::try_from(dice.range(2, 6)).unwrap() {
            ids.push(NodeId { segment: Segment(segment), rm: 1 });
            if dice.hits(50) {
                ids.push(NodeId { segment: Segment(segment), rm: 2 });
            }
        }
        if (3..=8).contains(&ids.len()) {
            return ids;
        }
    }
}

/// Does one fault; returns when it is over, or `None` if there is nothing to break.
pub(super) fn strike(world: &mut World, fault: Fault) -> Option<Ms> {
    let all: Vec<usize> = (0..world.processes.len()).collect();
    let running: Vec<usize> =
        all.iter().copied().filter(|at| world.processes[*at].runs()).collect();
    let dead: Vec<usize> =
        all.iter().copied().filter(|at| world.processes[*at].elector.is_none()).collect();
    let lead = running.iter().copied().find(|at| world.processes[*at].leads());
    if running.len() < 2 {
        return None;
    }
    match fault {
        Fault::CrashLead if 2 < running.len() => world.crash(lead?),
        Fault::Crash if 2 < running.len() => {
            let others: Vec<usize> =
                running.iter().copied().filter(|at| Some(*at) != lead).collect();
            let at = world.dice.pick(&others)?;
            world.crash(at);
        }
        Fault::CrashLead | Fault::Crash => return None,
        Fault::Restart | Fault::RestartWithoutFile => {
            let at = world.dice.pick(&dead)?;
            if fault == Fault::RestartWithoutFile {
                world.processes[at].disk = None;
            }
            world.start(at);
        }
        Fault::Pause | Fault::PauseLead => {
            let picked = world.dice.pick(&running);
            let at = if fault == Fault::Pause { picked? } else { lead? };
            let (span, clock_ran) = (world.dice.range(1_000, 20_000), world.dice.hits(50));
            world.pause(at, span, clock_ran);
            return Some(world.now + span);
        }
        Fault::OneWayCut | Fault::Cut => {
            let (a, b) = (world.dice.pick(&running)?, world.dice.pick(&running)?);
            let (a, b) = (world.processes[a].id, world.processes[b].id);
            if a == b {
                return None;
            }
            world.cuts.insert((a, b));
            if fault == Fault::Cut {
                world.cuts.insert((b, a));
            }
        }
        Fault::Partition => {
            let sides = world.dice.next();
            let side = |at: usize| sides >> at & 1;
            for &a in &all {
                for &b in all.iter().filter(|b| side(a) != side(**b)) {
                    world.cuts.insert((world.processes[a].id, world.processes[b].id));
                }
            }
        }
        Fault::Heal if world.cuts.is_empty() => return None,
        Fault::Heal => world.cuts.clear(),
        Fault::Flap => flap(world, &running)?,
        Fault::ColdStart | Fault::Several => unreachable!("these are made of others"),
    }
    Some(world.now)
}

/// One node is cut off and comes back, six times, about four seconds each.
fn flap(world: &mut World, running: &[usize]) -> Option<()> {
    let at = world.dice.pick(running)?;
    let id = world.processes[at].id;
    let others: Vec<NodeId> = world.processes.iter().map(|process| process.id).collect();
    for _ in 0..6 {
        for &other in others.iter().filter(|other| **other != id) {
            world.cuts.insert((id, other));
            world.cuts.insert((other, id));
        }
        let off = world.dice.range(3_500, 5_000);
        world.run_for(off);
        world.cuts.retain(|(a, b)| *a != id && *b != id);
        let on = world.dice.range(3_500, 5_000);
        world.run_for(on);
    }
    Some(())
}
