//! A small world for the model checker: the real machines, and a network that loses, repeats and
//! reorders whatever it likes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quota_split::handover::{
    Coordinator, CoordinatorInput, CoordinatorOutput, Epoch, Member, MemberInput, MemberOutput,
    Stamp, Timing, ToCoordinator, ToMember, Verdict,
};
use quota_split::{
    Call, CallId, Counter, Direction, Document, Lending, Limits, Method, Node, Part, Partition,
    SegmentId, Tree,
};
use stateright::{Model, Property};

/// The property that every mutant of the rules must break.
pub(crate) const LIMIT: &str = "the limit holds while the network is whole";

/// The property that holds each document to its own limit.
pub(crate) const FALLS: &str = "a division all promised only falls to the limit of its document";

/// What members tell only for refusals' sake is told after so long: a world does not explore it, since
/// it is a report like any other.
const TIMING: Timing = Timing { tick: Duration::from_secs(10), ..Timing::WAN };

/// What is explored.
#[derive(Clone, Debug)]
pub(crate) struct Small {
    /// The limit under each document; what a coordinator or a member learns next is one later.
    pub(crate) limits: Vec<u32>,
    /// The weights of the segments in epochs of odd and even terms.
    pub(crate) weights: [Vec<u32>; 2],
    /// How the world begins: cap and calls of each segment.
    pub(crate) begin: Vec<(u32, u32)>,
    pub(crate) lending: Lending,
    pub(crate) partition: Partition,
    /// How often each thing may happen.
    pub(crate) leads: u8,
    pub(crate) crashes: u8,
    pub(crate) calls: u8,
    pub(crate) reports: u8,
    pub(crate) ticks: u8,
    /// How often coordinators, and members, learn of the next document.
    pub(crate) documents: u8,
    pub(crate) learns: u8,
    /// Whether the network repeats messages.
    pub(crate) repeats: bool,
    /// Whether the network is cut once, and healed.
    pub(crate) cut: bool,
    pub(crate) mutant: Mutant,
}

/// A rule broken on purpose: the checker must see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    None,
    /// Grants are given before every member has promised.
    GrowEarly,
    /// A promise says the cap where the use is more.
    CapForHeld,
    /// A grant of another division is applied.
    StaleGrow,
    /// What is held is counted less while a grant is on its way.
    BelowGrant,
    /// A coordinator goes on with the old limit under the new document.
    OldLimit,
}

#[derive(Clone, Debug, PartialEq, Hash)]
pub(crate) struct World {
    pub(crate) members: Vec<Member>,
    pub(crate) coordinators: Vec<Coordinator>,
    network: BTreeSet<Packet>,
    used: Counts,
    /// Which segments each one sees.
    sees: Vec<u8>,
    was_cut: bool,
    /// Who belongs to the division that each coordinator leads.
    masks: Vec<u8>,
    /// Which document each coordinator has.
    versions: Vec<usize>,
    /// The highest division that all its members promised, and the least that was held since, or the
    /// limit of its document.
    settled: Option<(Stamp, u32)>,
    went_back: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Counts {
    leads: u8,
    crashes: u8,
    calls: u8,
    reports: u8,
    ticks: u8,
    documents: u8,
    learns: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Packet {
    Down { from: usize, to: usize, message: ToMember },
    Up { from: usize, to: usize, message: ToCoordinator },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    Lead(usize),
    Deliver(Packet),
    Call(usize),
    Hang(usize),
    Report(usize),
    Tick(usize),
    Crash(usize),
    /// A coordinator gets the next document.
    Change(usize),
    /// A member gets it.
    Learn(usize),
    Cut,
    Heal,
}

impl Small {
    pub(crate) fn count(&self) -> usize {
        self.begin.len()
    }

    /// Returns the most that may be held at any time.
    fn limit(&self) -> u32 {
        self.limits.iter().copied().max().unwrap()
    }

    fn everybody(&self) -> u8 {
        (1 << self.count()) - 1
    }

    fn document(&self, version: usize) -> Arc<Document> {
        let limits = Limits { calls: Some(self.limits[version]), ..Limits::default() };
        let (lending, partition) = (Some(self.lending), Some(self.partition));
        let node = Node { name: "t".into(), limits, lending, partition, ..Node::default() };
        let tree = Tree::new(vec![node]).unwrap();
        Arc::new(Document::new(version as u64 + 1, tree, Method::Dhondt))
    }

    /// Gives the segments what they begin with, by divisions of epoch zero.
    fn start(&self) -> World {
        let now = now();
        let document = self.document(0);
        let count = self.count();
        let mut world = World {
            members: Vec::new(),
            coordinators: (0..count)
                .map(|_| Coordinator::new(TIMING, false, document.clone()))
                .collect(),
            network: BTreeSet::new(),
            used: Counts::default(),
            sees: vec![self.everybody(); count],
            was_cut: false,
            masks: vec![0; count],
            versions: vec![0; count],
            settled: None,
            went_back: false,
        };
        for (index, &(cap, calls)) in self.begin.iter().enumerate() {
            let segment = SegmentId(u32::try_from(index).unwrap());
            let mut member = Member::new(now, segment, TIMING, document.clone(), None, 0);
            let part = Part { segment: segment.0, weight: 1, usual: 1, present: true };
            let recipe = quota_split::Recipe {
                document: 1,
                digest: document.digest(),
                parts: vec![part],
                sight: quota_split::Sight::Whole,
                eager: false,
            };
            let stamp = Stamp::default();
            let prepare = quota_split::handover::Prepare { stamp, recipe, column: None };
            let grow = quota_split::handover::Grow {
                stamp,
                seq: 1,
                rest: false,
                cells: vec![(0, cap.max(calls))],
            };
            for message in [ToMember::Prepare(prepare), ToMember::Grow(grow)] {
                member.handle_input(now, MemberInput::Received(message));
            }
            for id in 0..calls {
                member.request(now, call(u64::from(id), &document), false);
            }
            let shrink = quota_split::handover::Recall { stamp, counter: 0, cap, drain: true };
            member.handle_input(now, MemberInput::Received(ToMember::Recall(shrink)));
            while member.poll_output().is_some() {}
            world.members.push(member);
        }
        world
    }

    /// Routes what the machines have to say.
    fn drain(&self, world: &mut World) {
        for index in 0..self.count() {
            while let Some(output) = world.members[index].poll_output() {
                if let MemberOutput::Send { epoch, mut message } = output {
                    if let (Mutant::CapForHeld, ToCoordinator::Promise(promise)) =
                        (self.mutant, &mut message)
                    {
                        let (cap, _) = cell(&world.members[index]);
                        promise.held = vec![(0, cap)];
                    }
                    let to = usize::try_from(epoch.rank).unwrap();
                    world.network.insert(Packet::Up { from: index, to, message });
                }
            }
            while let Some(output) = world.coordinators[index].poll_output() {
                if let CoordinatorOutput::Send { to, message } = output {
                    let to = to.0 as usize;
                    world.network.insert(Packet::Down { from: index, to, message });
                }
            }
        }
    }

    /// Takes out what nobody would do anything about any more: it is the same whether it arrives.
    fn forget(&self, world: &mut World) {
        if self.mutant == Mutant::StaleGrow {
            return;
        }
        let World { members, coordinators, network, .. } = world;
        network.retain(|packet| match packet {
            // A coordinator hears what is about its division, and those only rise.
            Packet::Up { to, message, .. } => {
                coordinators[*to].stamp().is_none_or(|stamp| stamp <= message.stamp())
            }
            Packet::Down { from, to, message } => {
                let stamp = message.stamp();
                let refused = matches!(message, ToMember::Prepare(_))
                    && coordinators[*from].stamp() == Some(stamp);
                refused || members[*to].promised() <= Some(stamp)
            }
        });
    }

    fn lead(&self, world: &mut World, index: usize) {
        let here = world.sees[index];
        world.masks[index] = here;
        let terms = (0..self.count()).filter(|other| here >> other & 1 == 1);
        let terms = terms.filter_map(|other| Some(world.members[other].promised()?.epoch.term));
        let own = world.coordinators[index].stamp().map_or(0, |stamp| stamp.epoch.term);
        let term = terms.max().unwrap_or(0).max(own) + 1;
        let epoch = Epoch { term, rank: index as u64, ..Epoch::default() };
        let weights = &self.weights[usize::from(term % 2 == 0)];
        let part = |(segment, &weight): (u32, &u32)| Part {
            segment,
            weight,
            usual: self.weights[0][segment as usize],
            present: here >> segment & 1 == 1,
        };
        let parts = (0..).zip(weights).map(part).collect();
        world.coordinators[index].handle_input(now(), CoordinatorInput::Lead { epoch, parts });
    }

    fn deliver(&self, world: &mut World, packet: &Packet) -> Option<()> {
        if !self.repeats {
            world.network.remove(packet);
        }
        let (Packet::Down { from, to, .. } | Packet::Up { from, to, .. }) = *packet;
        if world.sees[to] >> from & 1 == 0 {
            return None;
        }
        match packet.clone() {
            Packet::Down { mut message, .. } => {
                let member = &mut world.members[to];
                if let (Mutant::StaleGrow, ToMember::Grow(grow)) = (self.mutant, &mut message) {
                    grow.stamp = member.promised()?;
                    grow.seq = u32::MAX;
                }
                let promised = member.promised();
                member.handle_input(now(), MemberInput::Received(message));
                world.went_back |= world.members[to].promised() < promised;
            }
            Packet::Up { mut message, .. } => {
                if let (Mutant::BelowGrant, ToCoordinator::Report(report)) =
                    (self.mutant, &mut message)
                {
                    report.applied = u32::MAX;
                }
                let forged = match (self.mutant, &message) {
                    (Mutant::GrowEarly, ToCoordinator::Promise(promise)) => Some(promise.clone()),
                    _ => None,
                };
                let from = SegmentId(u32::try_from(from).unwrap());
                let coordinator = &mut world.coordinators[to];
                coordinator.handle_input(now(), CoordinatorInput::Received { from, message });
                for other in (0..self.begin.len()).filter(|_| forged.is_some()) {
                    let _ = self.forge(world, to, other);
                }
            }
        }
        Some(())
    }

    /// Makes a coordinator believe that a member promised its target, if it was not asked yet.
    fn forge(&self, world: &mut World, to: usize, other: usize) -> Option<()> {
        let stamp = world.coordinators[to].stamp()?;
        let prepare = world.network.iter().find_map(|packet| match packet {
            Packet::Down { from, to: member, message: ToMember::Prepare(prepare) }
                if (*from, *member) == (to, other) && prepare.stamp == stamp =>
            {
                Some(prepare.clone())
            }
            Packet::Down { .. } | Packet::Up { .. } => None,
        })?;
        // A newborn computes what the member would.
        let from = SegmentId(u32::try_from(other).unwrap());
        let document = world.members[other].document().clone();
        let mut newborn = Member::new(now(), from, TIMING, document, None, 0);
        newborn.handle_input(now(), MemberInput::Received(ToMember::Prepare(prepare)));
        while let Some(output) = newborn.poll_output() {
            if let MemberOutput::Send { message, .. } = output {
                let input = CoordinatorInput::Received { from, message };
                world.coordinators[to].handle_input(now(), input);
            }
        }
        Some(())
    }

    /// Returns what a segment reaches when the network is whole and nothing happens any more.
    fn goal(&self, index: usize, world: &World) -> Option<u32> {
        world.members[index].target(0)
    }
}

impl Model for Small {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![self.start()]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        let used = world.used;
        for index in 0..self.count() {
            let member = &world.members[index];
            let (cap, calls) = cell(member);
            let may_call = calls < cap || self.lending == Lending::Hold;
            if used.leads < self.leads {
                steps.push(Step::Lead(index));
            }
            if used.calls < self.calls && may_call {
                steps.push(Step::Call(index));
            }
            if 0 < calls {
                steps.push(Step::Hang(index));
            }
            let due = member.poll_timeout();
            let reports = due.is_some_and(|at| at < now() + TIMING.tick);
            if reports && self.lending == Lending::Off && used.reports < self.reports {
                steps.push(Step::Report(index));
            }
            if due.is_some() && self.lending != Lending::Off && used.ticks < self.ticks {
                steps.push(Step::Tick(index));
            }
            if used.crashes < self.crashes && world.coordinators[index].stamp().is_some() {
                steps.push(Step::Crash(index));
            }
            let last = self.limits.len() - 1;
            if used.documents < self.documents && world.versions[index] < last {
                steps.push(Step::Change(index));
            }
            if used.learns < self.learns && version(member) < last {
                steps.push(Step::Learn(index));
            }
        }
        steps.extend(world.network.iter().cloned().map(Step::Deliver));
        if self.cut && !world.was_cut {
            steps.push(Step::Cut);
        }
        if world.was_cut && world.sees[0].count_ones() as usize != self.count() {
            steps.push(Step::Heal);
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        let now = now();
        match step {
            Step::Lead(index) => {
                next.used.leads += 1;
                self.lead(&mut next, index);
            }
            Step::Deliver(packet) => self.deliver(&mut next, &packet)?,
            Step::Call(index) => {
                next.used.calls += 1;
                let member = &mut next.members[index];
                let id = (0..).find(|&id| member.ledger().call(CallId(id)).is_none())?;
                let call = call(id, &member.document().clone());
                if let Verdict::Refused(_) = member.request(now, call, false) {
                    return None;
                }
            }
            Step::Hang(index) => {
                let member = &mut next.members[index];
                let id = (0..8).find(|&id| member.ledger().call(CallId(id)).is_some())?;
                member.release(now, CallId(id));
            }
            Step::Report(index) | Step::Tick(index) => {
                if self.lending == Lending::Off {
                    next.used.reports += 1;
                } else {
                    next.used.ticks += 1;
                }
                let member = &mut next.members[index];
                let due = member.poll_timeout()?;
                member.handle_timeout(due);
            }
            Step::Crash(index) => {
                next.used.crashes += 1;
                next.coordinators[index].handle_input(now, CoordinatorInput::Retire);
            }
            Step::Change(index) => {
                next.used.documents += 1;
                next.versions[index] += 1;
                let document = self.document(next.versions[index]);
                let input = CoordinatorInput::Document { document, eager: false };
                if self.mutant != Mutant::OldLimit {
                    next.coordinators[index].handle_input(now, input);
                }
            }
            Step::Learn(index) => {
                next.used.learns += 1;
                let member = &mut next.members[index];
                let document = self.document(version(member) + 1);
                member.handle_input(now, MemberInput::Document(document));
            }
            Step::Cut => {
                next.was_cut = true;
                next.settled = None;
                for (index, sees) in next.sees.iter_mut().enumerate() {
                    *sees = if index == 0 { 1 } else { *sees & !1 };
                }
            }
            Step::Heal => {
                next.sees.fill(self.everybody());
            }
        }
        self.drain(&mut next);
        self.forget(&mut next);
        next.settle(&self.limits);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(LIMIT, |model: &Self, world: &World| {
                world.was_cut || world.held() <= model.limit()
            }),
            Property::always(
                "islands hold a limit each at the most",
                |model: &Self, world: &World| {
                    let islands = match model.partition {
                        Partition::Frozen => 1,
                        Partition::Full | Partition::WeightMajority => 2,
                    };
                    !world.was_cut || world.held() <= islands * model.limit()
                },
            ),
            Property::always(FALLS, |_, world: &World| {
                let Some((stamp, bound)) = world.settled else { return true };
                world.held_under(stamp).is_none_or(|held| held <= bound)
            }),
            Property::always("nobody goes back on a promise", |_, world: &World| !world.went_back),
            Property::sometimes("everybody reaches the target", |model: &Self, world: &World| {
                (0..model.count()).all(|index| {
                    let (cap, _) = cell(&world.members[index]);
                    let promised = world.members[index].promised();
                    model.goal(index, world) == Some(cap)
                        && promised.is_some_and(|stamp| 0 < stamp.epoch.term)
                })
            }),
            Property::sometimes("two divisions live at once", |model: &Self, world: &World| {
                model.leads < 2 || world.members[0].promised() != world.members[1].promised()
            }),
        ]
    }
}

impl World {
    /// Returns cap or use, whichever is more, of all segments together.
    pub(crate) fn held(&self) -> u32 {
        self.members.iter().map(held).sum()
    }

    /// Returns what the members of a division hold, if all of them obey it.
    fn held_under(&self, stamp: Stamp) -> Option<u32> {
        let leader = usize::try_from(stamp.epoch.rank).unwrap();
        if self.coordinators[leader].stamp() != Some(stamp) {
            return None;
        }
        let mask = self.masks[leader];
        let members = self.members.iter().enumerate().filter(|(index, _)| mask >> index & 1 == 1);
        let mut sum = 0;
        for (_, member) in members {
            if member.promised() != Some(stamp) {
                return None;
            }
            sum += held(member);
        }
        Some(sum)
    }

    fn settle(&mut self, limits: &[u32]) {
        for index in 0..self.coordinators.len() {
            let Some(stamp) = self.coordinators[index].stamp() else { continue };
            let Some(held) = self.held_under(stamp) else { continue };
            let bound = held.max(limits[self.versions[index]]);
            match self.settled {
                Some((before, _)) if stamp < before => {}
                // What broke the bound is left to be seen.
                Some((before, least)) if stamp == before && least < held => {}
                _ => self.settled = Some((stamp, bound)),
            }
        }
    }
}

fn version(member: &Member) -> usize {
    usize::try_from(member.document().version()).unwrap() - 1
}

fn held(member: &Member) -> u32 {
    let (cap, used) = cell(member);
    cap.max(used)
}

/// Returns cap and use of the one counter.
pub(crate) fn cell(member: &Member) -> (u32, u32) {
    let node = member.document().tree().find("t").unwrap();
    let view = member.ledger().view(node, Counter::Calls);
    (view.share.unwrap(), view.used)
}

fn call(id: u64, document: &Document) -> Call {
    let node = document.tree().find("t").unwrap();
    Call { id: CallId(id), node, direction: Direction::Inbound }
}

/// Time stands still in a model: whatever is due may happen at any moment.
pub(crate) fn now() -> Instant {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "where time starts does not matter")]
    *START.get_or_init(Instant::now)
}
