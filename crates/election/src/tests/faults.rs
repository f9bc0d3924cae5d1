//! The faults of the random world.

use std::collections::BTreeSet;

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
    RestartWithOldFile,
    Duplicate,
    DiskHangs,
    Pause,
    PauseLead,
    OneWayCut,
    Cut,
    Partition,
    Heal,
    Flap,
    FlapLink,
    /// A segment takes no new calls, or takes them again.
    Drain,
    /// Two to four of them within six seconds.
    Several,
}

/// All but the cold start and several at once; healing often, or all would end in pieces.
pub(super) const FAULTS: [Fault; 20] = [
    Fault::CrashLead,
    Fault::Crash,
    Fault::Restart,
    Fault::Restart,
    Fault::RestartWithoutFile,
    Fault::RestartWithOldFile,
    Fault::Duplicate,
    Fault::DiskHangs,
    Fault::Pause,
    Fault::PauseLead,
    Fault::OneWayCut,
    Fault::Cut,
    Fault::Partition,
    Fault::Heal,
    Fault::Heal,
    Fault::Heal,
    Fault::Flap,
    Fault::FlapLink,
    Fault::Drain,
    Fault::Drain,
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
    let all = 0..world.processes.len();
    let running: Vec<usize> = all.filter(|at| world.processes[*at].takes_part()).collect();
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
        Fault::Restart | Fault::RestartWithoutFile | Fault::RestartWithOldFile => {
            restart(world, fault)?;
        }
        Fault::Duplicate => double(world, &running)?,
        Fault::DiskHangs => {
            let at = world.dice.pick(&running)?;
            let span = world.dice.range(1_000, 20_000);
            world.hang_disk(at, span);
            return Some(world.now + span);
        }
        Fault::Pause | Fault::PauseLead => {
            let picked = world.dice.pick(&running);
            let at = if fault == Fault::Pause { picked? } else { lead? };
            let (span, clock_ran) = (world.dice.range(1_000, 20_000), world.dice.hits(50));
            world.pause(at, span, clock_ran);
            return Some(world.now + span);
        }
        Fault::OneWayCut | Fault::Cut | Fault::FlapLink => {
            let (a, b) = (world.dice.pick(&running)?, world.dice.pick(&running)?);
            let (a, b) = (world.processes[a].id, world.processes[b].id);
            if a == b {
                return None;
            }
            let ways = [(a, b), (b, a)];
            let one_way =
                fault == Fault::OneWayCut || fault == Fault::FlapLink && world.dice.hits(50);
            let ways = if one_way { &ways[..1] } else { &ways };
            if fault == Fault::FlapLink {
                flap(world, ways);
            } else {
                world.cuts.extend(ways);
            }
        }
        Fault::Partition => split(world),
        Fault::Heal if world.cuts.is_empty() => return None,
        Fault::Heal => world.cuts.clear(),
        Fault::Flap => {
            let at = world.dice.pick(&running)?;
            let id = world.processes[at].id;
            let others = world.processes.iter().map(|process| process.id);
            let others = others.filter(|other| *other != id);
            let ways: Vec<_> = others.flat_map(|other| [(id, other), (other, id)]).collect();
            flap(world, &ways);
        }
        Fault::Drain => {
            let at = world.dice.pick(&running)?;
            let segment = world.processes[at].id.segment;
            if !world.draining.remove(&segment) {
                world.draining.insert(segment);
            }
            world.tell_drain(segment);
        }
        Fault::ColdStart | Fault::Several => unreachable!("these are made of others"),
    }
    Some(world.now)
}

/// Starts a process that is dead, with its file, without it, or with what that once held.
fn restart(world: &mut World, fault: Fault) -> Option<()> {
    let all = 0..world.processes.len();
    let dead: Vec<usize> = all.filter(|at| world.processes[*at].elector.is_none()).collect();
    let at = world.dice.pick(&dead)?;
    let process = &mut world.processes[at];
    if fault == Fault::RestartWithoutFile {
        process.disk = None;
    } else if fault == Fault::RestartWithOldFile {
        process.disk = process.backup;
        world.watchdog.forgets(at);
    }
    world.start(at);
    Some(())
}

/// Starts a second process with the id of one that runs, often with a copy of its file.
fn double(world: &mut World, running: &[usize]) -> Option<()> {
    let at = world.dice.pick(running)?;
    if PROCESSES_MAX <= world.processes.len() {
        return None;
    }
    let copy = world.add(world.processes[at].id);
    if world.dice.hits(60) {
        world.processes[copy].disk = world.processes[at].disk;
    }
    world.start(copy);
    Some(())
}

/// Cuts the nodes into two sides.
fn split(world: &mut World) {
    let sides = world.dice.next();
    let ids: BTreeSet<NodeId> = world.processes.iter().map(|process| process.id).collect();
    let side = |at: usize| sides >> at & 1;
    for (a, one) in ids.iter().enumerate() {
        for (b, other) in ids.iter().enumerate() {
            if side(a) != side(b) {
                world.cuts.insert((*one, *other));
            }
        }
    }
}

/// Ways are cut and healed, six times, about four seconds each.
fn flap(world: &mut World, ways: &[(NodeId, NodeId)]) {
    for _ in 0..6 {
        world.cuts.extend(ways);
        let off = world.dice.range(3_500, 5_000);
        world.run_for(off);
        world.cuts.retain(|way| !ways.contains(way));
        let on = world.dice.range(3_500, 5_000);
        world.run_for(on);
    }
}

/// Processes that a world may have, those of doubled ids among them.
const PROCESSES_MAX: usize = 11;
