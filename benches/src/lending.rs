//! Calls that a limit turns away under static shares, under lending, and under an oracle.
//!
//! One seeded list of calls (Poisson arrivals, exponential durations) is played to each. The machines
//! are those that `rm` runs, on a clock that jumps from event to event; the oracle is a single counter
//! that everybody could read at once. That the limit is never passed is checked after every event.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use quota_split::handover::{
    Coordinator, CoordinatorInput, CoordinatorOutput, Epoch, Member, MemberInput, MemberOutput,
    Timing, ToCoordinator, ToMember, Verdict,
};
use quota_split::{
    Call, CallId, Counter, Direction, Document, Lending, Limits, Method, Node, NodeId, Part,
    SegmentId, Tree,
};
use serde::Serialize;

use crate::report::{self, Table, Target, number};

/// Options of this measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Simulated seconds of calls, per scenario.
    #[arg(long, default_value_t = 50_000)]
    seconds: u32,
    /// Round trip between two segments, in milliseconds.
    #[arg(long, default_value_t = 80)]
    round_trip: u64,
    /// Seed of the calls.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object on standard output, and the table on standard error.
    #[arg(long)]
    json: bool,
}

/// Who calls where.
struct Scenario {
    name: &'static str,
    limit: u32,
    /// Calls at a time that are wanted at each segment.
    load: Vec<f64>,
    /// How far the load moves around the segments in a day, from 0 to 1.
    swing: f64,
    /// Whether it counts for the targets.
    judged: bool,
}

#[derive(Clone, Copy, Debug)]
struct Arrival {
    at: Duration,
    segment: usize,
    span: Duration,
}

#[derive(Debug, Default, Serialize)]
struct Outcome {
    scenario: &'static str,
    how: &'static str,
    blocked_percent: f64,
    false_refusals_percent: f64,
    held_percent: f64,
    messages_per_second: f64,
    most_held: u32,
    limit: u32,
}

#[derive(Debug, Serialize)]
struct Report {
    seconds: u32,
    round_trip_milliseconds: u64,
    outcomes: Vec<Outcome>,
    targets: Vec<Target>,
}

/// The mean duration of a call.
const HOLD: f64 = 180.0;

/// A day, for loads that follow the sun.
const DAY: f64 = 86_400.0;

/// Measures and prints.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut outcomes = Vec::new();
    let mut targets = Vec::new();
    for scenario in scenarios() {
        report::progress(format_args!("scenario {}", scenario.name));
        let arrivals = arrivals(&scenario, args);
        let oracle = oracle(&scenario, &arrivals);
        let blocked = oracle.blocked_percent;
        outcomes.push(oracle);
        for (how, lending) in
            [("static", Lending::Off), ("tick", Lending::Tick), ("hold", Lending::Hold)]
        {
            let outcome = World::new(&scenario, lending, args)?.play(how, &scenario, &arrivals)?;
            if lending == Lending::Hold && scenario.judged {
                let name = scenario.name;
                let refused = outcome.false_refusals_percent;
                let apart = (outcome.blocked_percent - blocked).abs();
                targets.push(Target::at_most(
                    format!("{name}: false refusals under hold, %"),
                    0.1,
                    Some(refused),
                ));
                targets.push(Target::at_most(
                    format!("{name}: blocking under hold from the oracle's, points"),
                    0.3,
                    Some(apart),
                ));
            }
            outcomes.push(outcome);
        }
    }
    let over = outcomes.iter().map(|outcome| outcome.most_held.saturating_sub(outcome.limit)).max();
    let over = over.map(f64::from);
    targets.push(Target::at_most("calls above a limit, at any time", 0.0, over));
    let title =
        format!("{} s of calls of {HOLD} s, {} ms round trip", args.seconds, args.round_trip);
    let heads =
        ["scenario", "how", "blocked %", "falsely %", "waited %", "messages/s", "most", "limit"];
    let mut table = Table::new(title, &heads);
    for outcome in &outcomes {
        table.row(vec![
            outcome.scenario.to_owned(),
            outcome.how.to_owned(),
            number(Some(outcome.blocked_percent), 2),
            number(Some(outcome.false_refusals_percent), 3),
            number(Some(outcome.held_percent), 1),
            number(Some(outcome.messages_per_second), 1),
            outcome.most_held.to_string(),
            outcome.limit.to_string(),
        ]);
    }
    let report = Report {
        seconds: args.seconds,
        round_trip_milliseconds: args.round_trip,
        outcomes,
        targets,
    };
    report::finish(args.json, &[table, report::targets(&report.targets)], &report)?;
    report::judge(&report.targets)
}

fn scenarios() -> Vec<Scenario> {
    let steady =
        |name, limit, load: Vec<f64>| Scenario { name, limit, load, swing: 0.0, judged: true };
    let mut hot = vec![20.0 / 19.0; 20];
    hot[0] = 40.0;
    vec![
        steady("A balanced", 100, vec![80.0 / 3.0; 3]),
        steady("B 70/20/10", 100, vec![56.0, 16.0, 8.0]),
        Scenario { swing: 1.0, ..steady("C follows the sun", 500, vec![20.0; 20]) },
        Scenario { judged: false, ..steady("D limit of 5", 5, vec![0.1; 20]) },
        steady("E one hot", 100, hot),
        Scenario { judged: false, ..steady("F overload", 100, vec![91.0, 26.0, 13.0]) },
    ]
}

/// Draws the calls of a scenario, in order.
fn arrivals(scenario: &Scenario, args: &Args) -> Vec<Arrival> {
    let mut random = Random(args.seed);
    let total: f64 = scenario.load.iter().sum();
    let count = scenario.load.len();
    let mut arrivals = Vec::new();
    let mut at = 0.0;
    loop {
        at += random.exponential(HOLD / total);
        if f64::from(args.seconds) < at {
            return arrivals;
        }
        let weight = |segment: usize| {
            let turn = at / DAY - segment as f64 / count as f64;
            scenario.load[segment] * (1.0 + scenario.swing * (std::f64::consts::TAU * turn).cos())
        };
        let mut draw = random.uniform() * (0..count).map(weight).sum::<f64>();
        let segment = (0..count).find(|&segment| {
            draw -= weight(segment);
            draw <= 0.0
        });
        let span = Duration::from_secs_f64(random.exponential(HOLD));
        let segment = segment.unwrap_or(count - 1);
        arrivals.push(Arrival { at: Duration::from_secs_f64(at), segment, span });
    }
}

/// Plays the calls to one counter that everybody reads at once.
fn oracle(scenario: &Scenario, arrivals: &[Arrival]) -> Outcome {
    let mut ends = BinaryHeap::new();
    let (mut blocked, mut most) = (0_u64, 0);
    for arrival in arrivals {
        while ends.peek().is_some_and(|Reverse(end)| *end <= arrival.at) {
            ends.pop();
        }
        if ends.len() < scenario.limit as usize {
            ends.push(Reverse(arrival.at + arrival.span));
            most = most.max(ends.len());
        } else {
            blocked += 1;
        }
    }
    Outcome {
        scenario: scenario.name,
        how: "oracle",
        blocked_percent: percent(blocked, arrivals.len()),
        most_held: most as u32,
        limit: scenario.limit,
        ..Outcome::default()
    }
}

/// The machines, and a network with a delay between them.
struct World {
    start: Instant,
    now: Instant,
    node: NodeId,
    delay: Duration,
    limit: u32,
    members: Vec<Member>,
    due: Vec<Option<Instant>>,
    coordinator: Coordinator,
    flying: VecDeque<(Instant, Packet)>,
    ends: BinaryHeap<Reverse<(Instant, usize, CallId)>>,
    used: u32,
    held: Vec<u32>,
    most: u32,
    messages: u64,
    blocked: u64,
    falsely: u64,
    waited: u64,
}

enum Packet {
    Down(usize, ToMember),
    Up(usize, ToCoordinator),
}

impl World {
    fn new(scenario: &Scenario, lending: Lending, args: &Args) -> anyhow::Result<Self> {
        let start = Instant::now();
        let limits = Limits { calls: Some(scenario.limit), ..Limits::default() };
        let tenant =
            Node { name: "t".to_owned(), limits, lending: Some(lending), ..Node::default() };
        let document = Arc::new(Document::new(1, Tree::new(vec![tenant])?, Method::Dhondt));
        let node = document.tree().iter().next().map(|(id, _)| id);
        let count = scenario.load.len();
        let member = |place| {
            let id = SegmentId(place as u32);
            Member::new(start, id, Timing::WAN, document.clone(), None, 7)
        };
        let mut world = Self {
            start,
            now: start,
            node: node.ok_or_else(|| anyhow::anyhow!("a tree of one has a node"))?,
            delay: Duration::from_millis(args.round_trip) / 2,
            limit: scenario.limit,
            members: (0..count).map(member).collect(),
            due: vec![None; count],
            coordinator: Coordinator::new(Timing::WAN, false, document.clone()),
            flying: VecDeque::new(),
            ends: BinaryHeap::new(),
            used: 0,
            held: vec![0; count],
            most: 0,
            messages: 0,
            blocked: 0,
            falsely: 0,
            waited: 0,
        };
        let part = |segment| Part { segment, weight: 1, usual: 1, present: true };
        let parts = (0..count as u32).map(part).collect();
        let epoch = Epoch { term: 1, ..Epoch::default() };
        world.coordinator.handle_input(start, CoordinatorInput::Lead { epoch, parts });
        world.drain_coordinator();
        world.until(start + Duration::from_secs(1), &[])?;
        Ok(world)
    }

    fn play(
        mut self,
        how: &'static str,
        scenario: &Scenario,
        arrivals: &[Arrival],
    ) -> anyhow::Result<Outcome> {
        let first = self.now;
        let before = self.messages;
        for (place, arrival) in arrivals.iter().enumerate() {
            self.until(first + arrival.at, arrivals)?;
            self.arrive(CallId(place as u64), arrival)?;
        }
        let span = self.now.duration_since(first).as_secs_f64();
        Ok(Outcome {
            scenario: scenario.name,
            how,
            blocked_percent: percent(self.blocked, arrivals.len()),
            false_refusals_percent: percent(self.falsely, arrivals.len()),
            held_percent: percent(self.waited, arrivals.len()),
            messages_per_second: (self.messages - before) as f64 / span,
            most_held: self.most,
            limit: scenario.limit,
        })
    }

    fn arrive(&mut self, id: CallId, arrival: &Arrival) -> anyhow::Result<()> {
        let call = Call { id, node: self.node, direction: Direction::Inbound };
        match self.members[arrival.segment].request(self.now, call, false) {
            Verdict::Admitted(_) => self.admitted(id, arrival),
            Verdict::Held => self.waited += 1,
            Verdict::Refused(_) => self.refused(),
        }
        self.drain_member(arrival.segment, &[])
    }

    fn admitted(&mut self, id: CallId, arrival: &Arrival) {
        self.used += 1;
        self.ends.push(Reverse((self.now + arrival.span, arrival.segment, id)));
    }

    fn refused(&mut self) {
        self.blocked += 1;
        self.falsely += u64::from(self.used < self.limit);
    }

    /// Lets everything happen that is due until `end`.
    fn until(&mut self, end: Instant, arrivals: &[Arrival]) -> anyhow::Result<()> {
        loop {
            let flying = self.flying.front().map(|(at, _)| *at);
            let ends = self.ends.peek().map(|Reverse((at, _, _))| *at);
            let due = self.due.iter().flatten().copied().min();
            let next = [flying, ends, due, self.coordinator.poll_timeout()];
            let Some(at) = next.into_iter().flatten().min().filter(|&at| at <= end) else { break };
            self.now = self.now.max(at);
            self.step(arrivals)?;
        }
        self.now = end;
        Ok(())
    }

    fn step(&mut self, arrivals: &[Arrival]) -> anyhow::Result<()> {
        let now = self.now;
        if self.ends.peek().is_some_and(|Reverse((at, _, _))| *at <= now) {
            if let Some(Reverse((_, segment, id))) = self.ends.pop() {
                self.members[segment].release(now, id);
                self.used -= 1;
                self.drain_member(segment, arrivals)?;
            }
        } else if self.flying.front().is_some_and(|(at, _)| *at <= now) {
            match self.flying.pop_front() {
                Some((_, Packet::Down(to, message))) => {
                    self.members[to].handle_input(now, MemberInput::Received(message));
                    self.drain_member(to, arrivals)?;
                }
                Some((_, Packet::Up(from, message))) => {
                    let from = SegmentId(from as u32);
                    let input = CoordinatorInput::Received { from, message };
                    self.coordinator.handle_input(now, input);
                    self.drain_coordinator();
                }
                None => {}
            }
        } else if let Some(member) = self.due.iter().position(|at| at.is_some_and(|at| at <= now)) {
            self.members[member].handle_timeout(now);
            self.drain_member(member, arrivals)?;
        } else {
            self.coordinator.handle_timeout(now);
            self.drain_coordinator();
        }
        Ok(())
    }

    fn drain_member(&mut self, member: usize, arrivals: &[Arrival]) -> anyhow::Result<()> {
        while let Some(output) = self.members[member].poll_output() {
            match output {
                MemberOutput::Send { message, .. } => self.fly(Packet::Up(member, message)),
                MemberOutput::Decided { call, verdict: Ok(_) } => {
                    self.admitted(call, &arrivals[call.0 as usize]);
                }
                MemberOutput::Decided { verdict: Err(_), .. } => self.refused(),
                MemberOutput::Recounted(_) | MemberOutput::Unknown(_) | MemberOutput::Lapsed => {}
            }
        }
        self.due[member] = self.members[member].poll_timeout();
        let view = self.members[member].ledger().view(self.node, Counter::Calls);
        self.held[member] = view.share.unwrap_or(0).max(view.used);
        let held: u32 = self.held.iter().sum();
        self.most = self.most.max(held);
        let when = self.now.duration_since(self.start);
        ensure!(held <= self.limit, "{held} of {} are held after {when:?}", self.limit);
        Ok(())
    }

    fn drain_coordinator(&mut self) {
        while let Some(output) = self.coordinator.poll_output() {
            if let CoordinatorOutput::Send { to, message } = output {
                self.fly(Packet::Down(to.0 as usize, message));
            }
        }
    }

    fn fly(&mut self, packet: Packet) {
        self.messages += 1;
        self.flying.push_back((self.now + self.delay, packet));
    }
}

/// A small generator, the same on every machine (SplitMix64).
struct Random(u64);

impl Random {
    /// Returns a number above 0, up to 1.
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        ((mixed >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.uniform().ln()
    }
}

fn percent(part: u64, whole: usize) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}
