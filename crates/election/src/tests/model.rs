//! The election of three nodes, every order of events: a model check.
//!
//! Heartbeats carry the link states along and arrive or not; messages of the election wait in a net
//! that loses, reorders and doubles them; a timer may end at any time. What is left out is the
//! clock, and with it the suspicion that follows a pause. A run is followed for one campaign of each
//! node and one new epoch, and from each of its states a quiet network must come to rest.
//!
//! `HOLDLINE_MODELS=all cargo test --release -p election model` runs the larger ones.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model, Property};

use super::{node, origin};
use crate::bully::{Bully, Message, Timer};
use crate::rules::{Rule, Rules};
use crate::{Epoch, Life, Mandate, NodeId, Segment, Stored, Timing, segments};

mod search;

/// What may happen, and how often.
#[derive(Clone, Debug)]
struct Cluster {
    ids: [NodeId; 3],
    rules: Rules,
    faults: Faults,
    /// Campaigns of one node, and divisions in all, after which a run is not followed further.
    campaigns_max: u64,
    epochs_max: usize,
    /// Heartbeats of two nodes that hear each other arrive together.
    meet: bool,
    /// Of so many states one is asked whether a quiet network would come to rest from there.
    every: u64,
    now: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Faults {
    crashes: u8,
    restarts: u8,
    /// Restarts that find no file.
    losses: u8,
    cuts: u8,
    one_way_cuts: u8,
    heals: u8,
    doubles: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    nodes: [Option<Bully>; 3],
    disks: [Option<Stored>; 3],
    /// `heard[a][b]`: a hears b. `hears[a][b]`: b's last heartbeat said that it hears a.
    heard: [[bool; 3]; 3],
    hears: [[bool; 3]; 3],
    cut: [[bool; 3]; 3],
    net: BTreeSet<Packet>,
    left: Faults,
    lives: u128,
    epochs: BTreeMap<Epoch, (u128, Mandate)>,
    /// The highest epoch that each node promised, as long as it has its file.
    promised: [Option<Epoch>; 3],
    clash: bool,
    fell: bool,
    /// Campaigns and divisions of the start, which do not count.
    campaigns_before: [u64; 3],
    epochs_before: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Packet {
    from: usize,
    incarnation: u64,
    to: usize,
    message: Message,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    Beat { from: usize, to: usize },
    Silence { at: usize, of: usize },
    Deliver(Packet),
    Double(Packet),
    Timer(usize, Timer),
    Cut { from: usize, to: usize, both: bool },
    Heal,
    Crash(usize),
    Restart { at: usize, file: bool },
}

const UNIQUE: &str = "no epoch names two divisions";
const KEPT: &str = "a promise never falls";
const REST: &str = "a quiet network comes to rest";
const SPLIT: &str = "two nodes lead one island";
const HEALED: &str = "a cluster is at rest again after a fault";

impl Cluster {
    fn new(ids: [(u16, u8); 3], faults: Faults) -> Self {
        Self {
            ids: ids.map(|(segment, rm)| node(segment, rm)),
            rules: Rules::default(),
            faults,
            campaigns_max: 1,
            epochs_max: 1,
            meet: false,
            every: 1,
            now: origin(),
        }
    }

    fn without(self, rule: Rule) -> Self {
        Self { rules: Rules::without(rule), ..self }
    }

    fn start(&self, world: &mut World, at: usize, file: bool) {
        world.lives += 1;
        if !file {
            world.disks[at] = None;
            world.promised[at] = None;
        }
        let stored = world.disks[at];
        let bully =
            Bully::new(self.ids[at], stored, world.lives, Timing::default(), self.rules, self.now);
        world.nodes[at] = Some(bully);
        world.heard[at] = [false; 3];
        world.hears[at] = [false; 3];
        self.step(world, at, |bully, now| bully.evaluate(now));
    }

    /// Lets a node do something, and takes from it what it tells.
    fn step(&self, world: &mut World, at: usize, act: impl FnOnce(&mut Bully, Instant)) {
        let Some(bully) = world.nodes[at].as_mut() else { return };
        let before = bully.mandate().map(|mandate| mandate.epoch);
        act(bully, self.now);
        let _ = bully.take_said();
        let stored = bully.stored();
        world.disks[at] = Some(stored);
        world.fell |= stored.promised < world.promised[at];
        world.promised[at] = world.promised[at].max(stored.promised);
        if let Some(mandate) = bully.mandate()
            && before != Some(mandate.epoch)
            && mandate.epoch.coordinator == self.ids[at]
        {
            let made = (bully.life().instance, mandate.clone());
            let other = world.epochs.insert(mandate.epoch, made.clone());
            world.clash |= other.is_some_and(|other| other != made);
        }
        let incarnation = bully.life().incarnation;
        while let Some((to, message)) = bully.poll_message() {
            if let Some(to) = self.ids.iter().position(|id| *id == to) {
                world.net.insert(Packet { from: at, incarnation, to, message });
            }
        }
    }

    /// Tells a node which links it has.
    fn relink(&self, world: &mut World, at: usize) {
        let two_way = self.rules.keep(Rule::TwoWayLinks);
        let nodes = |is: &dyn Fn(usize) -> bool| -> BTreeSet<NodeId> {
            (0..3).filter(|of| is(*of)).map(|of| self.ids[of]).collect()
        };
        let heard = nodes(&|of| world.heard[at][of]);
        let up = nodes(&|of| world.heard[at][of] && (world.hears[at][of] || !two_way));
        self.step(world, at, |bully, now| bully.set_links(now, heard, up));
    }

    /// A heartbeat arrives, and with it what its sender knows.
    fn beat(&self, world: &mut World, from: usize, to: usize) {
        let Some(sender) = world.nodes[from].clone() else { return };
        let Some(bully) = &world.nodes[to] else { return };
        let known = bully.links().get(self.ids[from]).map(|state| state.life);
        if known.is_some_and(|known| sender.life() < known) {
            // A life without its file learns of the one before it.
            let incarnation = known.map_or(0, |known: Life| known.incarnation);
            if known.map(|known| known.instance) != Some(sender.life().instance) {
                self.step(world, from, |bully, now| bully.outlive(now, incarnation));
            }
            return;
        }
        world.heard[to][from] = true;
        world.hears[to][from] = world.heard[from][to];
        self.relink(world, to);
        let told = self.rules.keep(Rule::ToldLinks);
        for state in sender.links().all() {
            let (own, ids) = (world.nodes[to].as_ref().map(Bully::life), self.ids);
            let Some(own) = own else { return };
            if state.origin == ids[to] {
                let other = state.life.instance != own.instance;
                if other && own.incarnation <= state.life.incarnation {
                    let incarnation = state.life.incarnation;
                    self.step(world, to, |bully, now| bully.outlive(now, incarnation));
                }
            } else if told || state.origin == ids[from] {
                let state = state.clone();
                self.step(world, to, |bully, now| {
                    bully.learn(now, state);
                });
            }
        }
    }

    fn silence(&self, world: &mut World, at: usize, of: usize) {
        world.heard[at][of] = false;
        world.hears[at][of] = false;
        self.relink(world, at);
    }

    fn arrives(&self, world: &World, packet: &Packet) -> bool {
        let Packet { from, to, .. } = *packet;
        if world.nodes[to].is_none() {
            return false;
        }
        let Some(sender) = &world.nodes[from] else { return !world.cut[from][to] };
        let up = |bully: &Bully, to: usize| bully.links().own().neighbours.contains(&self.ids[to]);
        if up(sender, to) || !self.rules.keep(Rule::ToldLinks) {
            return !world.cut[from][to];
        }
        let by = 3 - from - to;
        let Some(between) = &world.nodes[by] else { return false };
        up(sender, by) && !world.cut[from][by] && up(between, to) && !world.cut[by][to]
    }

    fn deliver(&self, world: &mut World, packet: &Packet) {
        let from = self.ids[packet.from];
        let Some(bully) = &world.nodes[packet.to] else { return };
        let known = bully.links().get(from).map_or(0, |state| state.life.incarnation);
        if known <= packet.incarnation {
            let message = packet.message.clone();
            self.step(world, packet.to, |bully, now| bully.hear(now, from, message));
        }
    }

    fn fire(&self, world: &mut World, at: usize, timer: Timer) {
        self.step(world, at, |bully, now| bully.fire(now, timer));
    }

    fn timers(world: &World, at: usize) -> Vec<Timer> {
        world.nodes[at].iter().flat_map(Bully::timers).map(|(_, timer)| timer).collect()
    }

    /// Numbers the link states anew: how often a node has changed its own does not matter, only
    /// which of those that are known is newer.
    fn renumber(world: &mut World) {
        let mut versions: BTreeMap<(NodeId, Life), BTreeSet<u64>> = BTreeMap::new();
        for state in world.nodes.iter().flatten().flat_map(|bully| bully.links().all()) {
            versions.entry((state.origin, state.life)).or_default().insert(state.version);
        }
        for bully in world.nodes.iter_mut().flatten() {
            bully.links_mut().renumber(|state| {
                let versions = &versions[&(state.origin, state.life)];
                let below = versions.range(..state.version).count();
                u64::try_from(below).unwrap()
            });
        }
    }

    fn islands(&self, world: &World) -> Vec<Vec<usize>> {
        let mut left: BTreeSet<usize> = (0..3).filter(|at| world.nodes[*at].is_some()).collect();
        let mut islands = Vec::new();
        while let Some(first) = left.pop_first() {
            let mut island = vec![first];
            let mut next = 0;
            while let Some(&at) = island.get(next) {
                let joins = |to: &usize| !world.cut[at][*to] && !world.cut[*to][at];
                let new: Vec<usize> = left.iter().copied().filter(joins).collect();
                left.retain(|at| !new.contains(at));
                island.extend(new);
                next += 1;
            }
            islands.push(island);
        }
        islands
    }

    fn leads(world: &World, island: &[usize]) -> Vec<usize> {
        let leads = |at: &usize| world.nodes[*at].as_ref().is_some_and(Bully::leads);
        island.iter().copied().filter(leads).collect()
    }

    fn is_at_rest(&self, world: &World) -> bool {
        self.islands(world).iter().all(|island| {
            let ids: BTreeSet<NodeId> = island.iter().map(|at| self.ids[*at]).collect();
            let [lead] = Self::leads(world, island)[..] else { return false };
            let Some(mandate) = world.nodes[lead].as_ref().and_then(Bully::mandate) else {
                return false;
            };
            let lowest: Option<Segment> = segments(&ids).first().copied();
            let followed = |at: &usize| {
                let other = world.nodes[*at].as_ref().and_then(Bully::mandate);
                other.is_some_and(|other| other.epoch == mandate.epoch)
            };
            Some(self.ids[lead].segment) == lowest
                && mandate.segments() == segments(&ids)
                && island.iter().all(followed)
        })
    }

    /// Lets every heartbeat and message arrive and every wait end, in the order that `seed` picks,
    /// until nothing more happens; `None` if that never comes.
    fn settle(&self, world: &World, drop: bool, seed: u64) -> Option<World> {
        let mut world = world.clone();
        let mut dice = super::random::Random::new(seed);
        if drop {
            world.net.clear();
        }
        for _ in 0..SETTLE_MAX {
            self.beat_until_known(&mut world);
            while let Some(packet) = pick(&mut dice, &world.net) {
                world.net.remove(&packet);
                if self.arrives(&world, &packet) {
                    self.deliver(&mut world, &packet);
                }
            }
            let before = world.clone();
            (0..3).for_each(|at| self.step(&mut world, at, |bully, now| bully.evaluate(now)));
            self.beat_until_known(&mut world);
            if world != before {
                continue;
            }
            let armed: Vec<(usize, Timer)> = (0..3)
                .flat_map(|at| Self::timers(&world, at).into_iter().map(move |it| (at, it)))
                .collect();
            match dice.pick(&armed) {
                Some((at, timer)) => self.fire(&mut world, at, timer),
                None => return Some(world),
            }
        }
        None
    }

    fn beat_until_known(&self, world: &mut World) {
        for _ in 0..8 {
            let before = world.clone();
            for (to, from) in PAIRS {
                let arrives = world.nodes[from].is_some() && !world.cut[from][to];
                if arrives {
                    self.beat(world, from, to);
                } else if world.heard[to][from] {
                    self.silence(world, to, from);
                }
            }
            if *world == before {
                break;
            }
        }
    }

    fn comes_to_rest(&self, world: &World) -> bool {
        let mut hasher = DefaultHasher::new();
        world.hash(&mut hasher);
        let hash = hasher.finish();
        let settled = |drop| self.settle(world, drop, hash);
        !hash.is_multiple_of(self.every)
            || [false, true]
                .into_iter()
                .all(|drop| settled(drop).is_some_and(|world| self.is_at_rest(&world)))
    }
}

/// Picks one of the packets.
fn pick(dice: &mut super::random::Random, net: &BTreeSet<Packet>) -> Option<Packet> {
    let packets: Vec<usize> = (0..net.len()).collect();
    dice.pick(&packets).and_then(|at| net.iter().nth(at).cloned())
}

const PAIRS: [(usize, usize); 6] = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)];

/// Rounds after which a network counts as never quiet.
const SETTLE_MAX: usize = 80;

/// What happens in one run, and what must come of it.
struct Run {
    name: &'static str,
    cluster: Cluster,
    /// States, the same one counted each time it is made, after which the search stops; a run that
    /// must be exhausted makes fewer.
    states_max: usize,
    exhausted: bool,
}

#[test]
fn the_election_of_three_nodes_keeps_its_promises() {
    let mut failures = Vec::new();
    for run in runs() {
        let started = origin();
        let (states, made, violated) = check(run.cluster, run.states_max);
        println!("{}: {states} states in {:.1?}", run.name, origin() - started);
        failures.extend(violated.map(|violated| format!("{}: {violated}", run.name)));
        if run.exhausted && run.states_max <= made {
            failures.push(format!("{}: not exhausted", run.name));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_model_notices_each_rule_that_is_left_out() {
    let mutants = [
        (Rule::TwoWayLinks, Faults { one_way_cuts: 2, ..NONE }, REST),
        (Rule::ToldLinks, Faults { cuts: 2, ..NONE }, REST),
        (Rule::EpochOfOneLife, Faults { crashes: 1, losses: 1, ..NONE }, UNIQUE),
    ];
    for (rule, faults, property) in mutants {
        let ids = [(1, 1), (2, 1), (3, 1)];
        let cluster = Cluster { meet: faults.losses != 0, ..Cluster::new(ids, faults) };
        let (states, _, violated) = check(cluster.without(rule), 100_000);
        let violated = violated.unwrap_or_default();
        println!("without {rule:?}: {states} states, {violated}");
        assert!(violated.starts_with(property), "without {rule:?}: {violated}");
    }
}

/// Those of `cargo test`, or with `HOLDLINE_MODELS=all` larger ones.
fn runs() -> Vec<Run> {
    let three = [(1, 1), (2, 1), (3, 1)];
    let pair = [(1, 1), (1, 2), (2, 1)];
    let run = |name, ids, faults, exhausted| Run {
        name,
        cluster: Cluster::new(ids, faults),
        states_max: 400_000,
        exhausted,
    };
    let mut runs = vec![
        run("a crash", three, Faults { crashes: 1, ..NONE }, true),
        run("a crash in a pair", pair, Faults { crashes: 1, ..NONE }, true),
        run("a crash, a doubled message", three, Faults { crashes: 1, doubles: 1, ..NONE }, true),
    ];
    if std::env::var("HOLDLINE_MODELS").is_ok_and(|text| text == "all") {
        runs.extend([
            run("two cuts", three, Faults { cuts: 2, ..NONE }, true),
            run("two cuts in a pair", pair, Faults { cuts: 2, ..NONE }, true),
            run("a one-way cut", three, Faults { one_way_cuts: 1, ..NONE }, true),
            run("a one-way cut in a pair", pair, Faults { one_way_cuts: 1, ..NONE }, true),
            run("a crash and a cut", three, Faults { crashes: 1, cuts: 1, ..NONE }, true),
            run("two crashes", three, Faults { crashes: 2, ..NONE }, true),
        ]);
        let large = [
            ("two one-way cuts", three, Faults { one_way_cuts: 2, ..NONE }),
            ("a restart", three, Faults { crashes: 1, restarts: 1, ..NONE }),
            ("a lost file", three, Faults { crashes: 1, losses: 1, ..NONE }),
            ("healing", three, Faults { cuts: 2, heals: 1, ..NONE }),
            ("a restart in a pair", pair, Faults { crashes: 1, restarts: 1, ..NONE }),
            ("healing in a pair", pair, Faults { cuts: 2, heals: 1, ..NONE }),
        ];
        // Too large to exhaust: the first so many states, breadth first.
        runs.extend(large.map(|(name, ids, faults)| {
            let mut run = run(name, ids, faults, false);
            run.cluster.meet = faults.one_way_cuts == 0;
            run.cluster.every = 20;
            run
        }));
    }
    runs
}

/// Returns the states seen, how often one was made, and, if a property was violated, which and how.
fn check(cluster: Cluster, states_max: usize) -> (usize, usize, Option<String>) {
    let checker = cluster
        .checker()
        .target_state_count(states_max)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let discoveries = checker.discoveries();
    let violated = [UNIQUE, KEPT, REST].into_iter().find_map(|property| {
        let path = discoveries.get(property)?.clone();
        Some(format!("{property}: not after {:?}", path.into_actions()))
    });
    (checker.unique_state_count(), checker.state_count(), violated)
}

const NONE: Faults =
    Faults { crashes: 0, restarts: 0, losses: 0, cuts: 0, one_way_cuts: 0, heals: 0, doubles: 0 };
