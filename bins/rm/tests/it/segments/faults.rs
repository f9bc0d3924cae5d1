//! What happens to a random world.

use std::collections::BTreeMap;

use election::{NodeId, Segment};
use quota_split::Lending;
use rm::cluster::{Input, Share};

use super::joins;
use super::world::{Dice, Kind, Ms, World, plan_lending, share};

#[derive(Clone, Copy, Debug)]
enum Fault {
    Crash,
    CrashSpeaker,
    CrashSegment,
    Restart,
    RestartWithoutDisk,
    Pause,
    Leave,
    OneWayCut,
    PairCut,
    Partition,
    Tear,
    Heal,
    Change,
    DiskHangs,
    DiskIsFree,
    OneWayPartition,
    Changes,
    Mute,
    Join,
    Remove,
}

/// Healing and returning often, or all would end in pieces.
const FAULTS: [Fault; 20] = [
    Fault::Crash,
    Fault::CrashSpeaker,
    Fault::CrashSpeaker,
    Fault::CrashSegment,
    Fault::Restart,
    Fault::Restart,
    Fault::Restart,
    Fault::RestartWithoutDisk,
    Fault::Pause,
    Fault::Leave,
    Fault::OneWayCut,
    Fault::PairCut,
    Fault::Partition,
    Fault::Tear,
    Fault::Heal,
    Fault::Heal,
    Fault::Heal,
    Fault::Change,
    Fault::DiskHangs,
    Fault::DiskIsFree,
];

/// What strikes wider worlds too.
const MORE: [Fault; 4] = [Fault::OneWayPartition, Fault::Changes, Fault::Changes, Fault::Mute];

/// What strikes worlds in which segments come and go.
const JOINS: [Fault; 4] = [Fault::Join, Fault::Join, Fault::Join, Fault::Remove];

/// Two to five segments with one or two nodes each, eight nodes at the most; sometimes one is cold.
pub(super) fn cluster(dice: &mut Dice) -> (Vec<NodeId>, BTreeMap<Segment, Share>) {
    loop {
        let mut ids = Vec::new();
        let mut segments = BTreeMap::new();
        for segment in (1..=u16::try_from(dice.range(2, 6)).unwrap()).map(Segment) {
            ids.push(NodeId { segment, rm: 1 });
            if dice.hits(60) {
                ids.push(NodeId { segment, rm: 2 });
            }
            segments.insert(segment, share(weight(dice), false));
        }
        if ids.len() <= 8 {
            let last = segments.len() - 1;
            if 1 < last && dice.hits(30) {
                segments.values_mut().nth(last).unwrap().cold = Some(Default::default());
            }
            return (ids, segments);
        }
    }
}

fn weight(dice: &mut Dice) -> u32 {
    u32::try_from(dice.range(1, 7)).unwrap() * 50
}

pub(super) fn limits(dice: &mut Dice) -> [u32; 5] {
    [(10, 40), (4, 20), (4, 20), (4, 20), (1, 20)]
        .map(|(low, high)| u32::try_from(dice.range(low, high)).unwrap())
}

/// Does one fault, or nothing where there is nothing to break. Returns for how long it goes on.
pub(super) fn strike(world: &mut World) -> Ms {
    let all: Vec<usize> = (0..world.nodes.len()).collect();
    let is_dead = |at: &usize| world.nodes[*at].cluster.is_none() && world.nodes[*at].enrolled;
    let working: Vec<usize> = all.iter().copied().filter(|at| world.nodes[*at].works()).collect();
    let dead: Vec<usize> = all.iter().copied().filter(is_dead).collect();
    if working.len() < 2 {
        for at in dead {
            world.start(at);
        }
        if let Some(&at) = working.first().filter(|_| world.joins()) {
            joins::join(world, at);
        }
        world.topology();
        return 0;
    }
    let at = world.dice.pick(&working);
    let other = world.dice.pick(&all);
    let fault = choose(world);
    match fault {
        Fault::Crash => world.crash(at),
        Fault::CrashSpeaker => {
            let speaker = speakers(world, &working);
            if !speaker.is_empty() {
                let at = world.dice.pick(&speaker);
                world.crash(at);
            }
        }
        Fault::CrashSegment => crash_segment(world, at),
        Fault::Restart | Fault::RestartWithoutDisk if dead.is_empty() => return 0,
        Fault::Restart | Fault::RestartWithoutDisk => {
            let at = world.dice.pick(&dead);
            if matches!(fault, Fault::RestartWithoutDisk) {
                world.nodes[at].disk = None;
            }
            world.start(at);
        }
        Fault::Pause => {
            let (span, clock_ran) = (world.dice.range(200, 12_000), world.dice.hits(50));
            world.pause(at, span, clock_ran);
            return span;
        }
        Fault::Leave => leave(world, at),
        Fault::OneWayCut => {
            if at != other {
                world.cut(at, other);
            }
        }
        Fault::PairCut => cut_pair(world, at),
        Fault::Partition => partition(world, false, true),
        Fault::Tear => partition(world, true, true),
        Fault::OneWayPartition => partition(world, false, false),
        Fault::Heal => world.heal(),
        Fault::Change => change(world, at),
        // Wherever they are given, perhaps in two islands.
        Fault::Changes => {
            change(world, at);
            let other = world.dice.pick(&working);
            change(world, other);
        }
        Fault::Mute => {
            let until = world.now + world.dice.range(1_000, 8_000);
            world.muted.insert(at, until);
        }
        Fault::Join => joins::join(world, at),
        Fault::Remove => joins::remove(world, &working),
        Fault::DiskHangs => world.nodes[at].disk_hangs = true,
        Fault::DiskIsFree => all.iter().for_each(|at| world.release_disk(*at)),
    }
    world.topology();
    0
}

fn choose(world: &mut World) -> Fault {
    match world.kind {
        Kind::Joining if world.dice.hits(25) => world.dice.pick(&JOINS),
        Kind::Wide | Kind::Joining if world.dice.hits(15) => world.dice.pick(&MORE),
        Kind::First | Kind::Wide | Kind::Joining => world.dice.pick(&FAULTS),
    }
}

pub(super) fn leave(world: &mut World, at: usize) {
    world.nodes[at].leaves_in = Some(world.nodes[at].life);
    world.feed(at, Input::Leave);
}

fn crash_segment(world: &mut World, at: usize) {
    let partner = world.nodes[at].partner.filter(|it| world.nodes[*it].works());
    world.crash(at);
    partner.into_iter().for_each(|partner| world.crash(partner));
}

/// Lets the halves of a pair hear no more of each other.
fn cut_pair(world: &mut World, at: usize) {
    if let Some(partner) = world.nodes[at].partner {
        world.cut(at, partner);
        world.cut(partner, at);
    }
}

/// Ends what can end, so that all come together again.
pub(super) fn mend(world: &mut World) {
    for at in 0..world.nodes.len() {
        if world.nodes[at].disk_hangs {
            world.release_disk(at);
        }
        if world.nodes[at].cluster.is_none() && world.nodes[at].enrolled {
            world.start(at);
        }
    }
    world.heal();
}

/// Cuts the nodes into two parts, one way or both; halves of a pair stay together unless they are torn apart.
fn partition(world: &mut World, tears: bool, both: bool) {
    let sides = world.dice.next();
    let side = |world: &World, at: usize| {
        let id = world.nodes[at].id;
        let number = if tears { u32::try_from(at).unwrap() } else { u32::from(id.segment.0) };
        sides >> number & 1
    };
    for a in 0..world.nodes.len() {
        for b in 0..world.nodes.len() {
            let (from, to) = (side(world, a), side(world, b));
            if from < to || both && to < from {
                world.cut(a, b);
            }
            if both && from != to {
                world.cut(b, a);
            }
        }
    }
}

/// Gives a node a document.
fn change(world: &mut World, at: usize) {
    let segments = world.plan.segments.clone();
    change_among(world, at, segments);
}

/// Gives a node a document that names these segments.
pub(super) fn change_among(world: &mut World, at: usize, mut segments: BTreeMap<Segment, Share>) {
    for share in segments.values_mut() {
        if world.dice.hits(40) {
            let none = world.kind.is_wide() && world.dice.hits(15);
            share.weight = if none { 0 } else { weight(&mut world.dice) };
        }
    }
    // No document says that nobody has a part: `check_weights` of its reader refuses that.
    let is_hot = |share: &&mut Share| share.cold.is_none();
    if segments.values().all(|share| share.cold.is_some() || share.weight == 0)
        && let Some(share) = segments.values_mut().find(is_hot)
    {
        share.weight = 50;
    }
    let limits = limits(&mut world.dice);
    let version = world.plan.division.version() + 1;
    // One document may say otherwise than the next.
    let ticks = world.kind.is_wide() && world.dice.hits(30);
    let lending = if ticks { Lending::Tick } else { Lending::Hold };
    world.change(at, plan_lending(version, limits, segments, lending));
}

fn speakers(world: &World, working: &[usize]) -> Vec<usize> {
    let speaks = |at: &usize| {
        world.nodes[*at].cluster.as_ref().is_some_and(|it| it.tenants_from(0).next().is_some())
    };
    working.iter().copied().filter(speaks).collect()
}
