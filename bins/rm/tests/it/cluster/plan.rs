//! What a seed decides: phones, calls, what people do in them, and what is done to the cluster.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use driver::NodeId;
use driver::sim::{Path, Pen};
use testkit::{
    AnswersFrom, Command, DIGITS, Incoming, Manners, PCMA, PCMU, PhoneId, Reinvite, SameVersion,
    SpeaksFrom,
};

use super::world::{
    B2B, CONTROLLER, FIRST_MEDIAGATE, GATE, Layout, OTHER_B2B, OTHER_GATE, OTHER_MEDIAGATE,
};

/// A run that follows from its seed.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) layout: Layout,
    /// The path between phones and everything else.
    pub(crate) path: Path,
    pub(crate) calls: Vec<PlannedCall>,
    /// The message at which the harm is done, from the first call on.
    pub(crate) at_message: u32,
    pub(crate) harm: Harm,
    /// How long it lasts.
    pub(crate) outage: Duration,
    pub(crate) second: Option<Second>,
    /// What becomes of the b2bs' lines as long as the outage lasts.
    pub(crate) pen: Pen,
    /// How many phones, the first ones, speak SIP over connections.
    pub(crate) streams: u32,
    /// How many addresses the phones share.
    pub(crate) hops: u16,
    /// The phones at another gate than the first.
    pub(crate) elsewhere: BTreeMap<PhoneId, NodeId>,
}

/// Another harm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Second {
    pub(crate) at: When,
    pub(crate) harm: Harm,
    /// How long it lasts, if it comes after the first.
    pub(crate) outage: Duration,
}

/// When a second harm is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// This long after the first, and over with it.
    Meanwhile(Duration),
    /// This long after the first is over and every slot has a copy again.
    After(Duration),
}

/// One call and what is done in it.
#[derive(Debug)]
pub(crate) struct PlannedCall {
    pub(crate) from: PhoneId,
    pub(crate) to: PhoneId,
    pub(crate) manners: [Manners; 2],
    /// When, from the first call on, who does what.
    pub(crate) acts: Vec<(Duration, PhoneId, Command)>,
    pub(crate) fate: Fate,
}

/// What may become of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It goes on, each side hears the other unless held.
    Talks,
    /// Somebody ends it, or a phone refuses to move for good: it hears nothing then, and the
    /// mediagate's silence ends the call. Gone on both sides, or on none.
    Free,
    /// It changed when the only b2b died, whose disk had not been told: nobody knows of it but its phones.
    Lost,
}

/// What is done to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
    /// SIGKILL; started again after the outage.
    Crash(NodeId),
    /// SIGKILL, and started again at once.
    Restart(NodeId),
    /// SIGKILL of every process; all are started again after the outage.
    Everything,
    /// Its host loses power.
    PowerOff(NodeId),
    /// SIGSTOP, then SIGCONT.
    Pause(NodeId),
    /// The same, in the middle of its next turn.
    PauseInTurn(NodeId),
    /// Nothing comes or goes.
    Isolate(NodeId),
    /// Nothing that it sends arrives.
    Mute(NodeId),
    /// Nothing reaches it.
    Deafen(NodeId),
    /// The way from one node to another is cut, and back if so.
    Cut(NodeId, NodeId, bool),
}

impl Plan {
    /// Draws a run.
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5eed);
        let layout = match dice.below(8) {
            0 => Layout::One,
            1 | 2 => Layout::Three,
            3 | 4 => Layout::Two,
            _ => Layout::Pair,
        };
        let path = dice.path();
        let count = 1 + dice.below(3);
        let mut calls: Vec<PlannedCall> = (0..count)
            .map(|index| {
                let first = u32::try_from(2 * index).unwrap_or_default();
                dice.call(PhoneId(first), PhoneId(first + 1))
            })
            .collect();
        let harm = dice.harm(layout);
        let streams = if dice.one_in(3) { dice.times(SPARE.0.into()) } else { 0 };
        for PlannedCall { from, to, manners, .. } in &mut calls {
            for (phone, manners) in [from, to].into_iter().zip(manners) {
                if phone.0 < streams {
                    // There is no other than its connection.
                    manners.answers_from = AnswersFrom::OwnSocket;
                }
            }
        }
        let mut plan = Self {
            layout,
            path,
            calls,
            at_message: u32::try_from(1 + dice.below(30 * count)).unwrap_or_default(),
            harm,
            outage: dice.ms(50, 6000),
            second: dice.one_in(3).then(|| dice.second(layout, harm)),
            pen: dice.pick(&[Pen::Writes, Pen::Writes, Pen::Stalls, Pen::Fails]),
            streams,
            hops: if streams == 0 && dice.one_in(4) { 2 } else { 10 },
            elsewhere: BTreeMap::new(),
        };
        if let Some(other) = other_gate(layout) {
            let spread = dice.one_in(2);
            let odd = (0..SPARE.0).filter(|phone| spread && phone % 2 == 1);
            plan.elsewhere = odd.map(|phone| (PhoneId(phone), other)).collect();
            if harm.hits(first_gate(layout)) && !matches!(harm, Harm::Cut(..)) {
                plan.elsewhere.extend((SPARE.0..SPARES_END).map(|phone| (PhoneId(phone), other)));
            }
        }
        plan
    }

    /// The gate that a phone signals through.
    fn gate_of(&self, phone: PhoneId) -> NodeId {
        self.elsewhere.get(&phone).copied().unwrap_or_else(|| first_gate(self.layout))
    }

    /// Whether the only b2b keeps its records on a disk: without one its death ends every call.
    pub(crate) fn has_disk(&self) -> bool {
        self.is_alone()
    }

    fn is_alone(&self) -> bool {
        matches!(self.layout, Layout::One | Layout::Three)
    }

    /// Whether new calls of the spare phones find their way while a harm lasts.
    pub(crate) fn serves_during(&self, harm: Harm) -> bool {
        !self.takes_the_way(harm, SPARE)
    }

    /// Whether nothing of a phone reaches any b2b, or not that of each slot, while a harm lasts.
    fn takes_the_way(&self, harm: Harm, phone: PhoneId) -> bool {
        let gate = self.gate_of(phone);
        let Harm::Cut(from, to, _) = harm else {
            return harm.hits(gate) || (self.is_alone() && harm.hits(B2B));
        };
        let ends = [from, to];
        let apart = |one, other| ends.contains(&one) && ends.contains(&other);
        match self.layout {
            Layout::Three => apart(GATE, B2B),
            Layout::Two => apart(B2B, OTHER_B2B),
            Layout::One | Layout::Pair | Layout::Gates | Layout::Trio => false,
        }
    }

    /// Whether what a call has under way may be gone for good by a harm: phones do not repeat what they
    /// said over a connection, and hear what a b2b said through a gate that is away when that is back.
    pub(crate) fn may_cost(&self, call: &PlannedCall, harm: Harm) -> bool {
        let phones = [call.from, call.to];
        let streams = phones.iter().any(|phone| phone.0 < self.streams);
        let signals = harm.hits_signalling();
        phones.into_iter().any(|phone| self.takes_the_way(harm, phone)) || (streams && signals)
    }

    /// Whether the network between phones and cluster neither loses nor reorders.
    pub(crate) fn is_clean(&self) -> bool {
        self.path.loss == 0.0 && self.path.reorder == 0.0
    }
}

impl Harm {
    /// Whether another b2b may have to go on with calls.
    pub(crate) fn hits_a_b2b(self) -> bool {
        self.hits_one_of([B2B, OTHER_B2B])
    }

    /// Whether a gate or a b2b is harmed.
    pub(crate) fn hits_signalling(self) -> bool {
        self.hits_one_of([B2B, OTHER_B2B]) || self.hits_one_of([GATE, OTHER_GATE])
    }

    fn hits_one_of(self, nodes: [NodeId; 2]) -> bool {
        nodes.into_iter().any(|node| self.hits(node))
    }

    /// Whether this node is harmed, or a way from it or to it.
    pub(crate) fn hits(self, node: NodeId) -> bool {
        match self {
            Self::Everything => true,
            Self::Crash(victim)
            | Self::Restart(victim)
            | Self::PowerOff(victim)
            | Self::Pause(victim)
            | Self::PauseInTurn(victim)
            | Self::Isolate(victim)
            | Self::Mute(victim)
            | Self::Deafen(victim) => victim == node,
            Self::Cut(from, to, _) => [from, to].contains(&node),
        }
    }

    /// Whether a process loses what it had in memory.
    pub(crate) fn kills(self, node: NodeId) -> bool {
        match self {
            Self::Everything | Self::Crash(_) | Self::Restart(_) | Self::PowerOff(_) => {
                self.hits(node)
            }
            Self::Pause(_)
            | Self::PauseInTurn(_)
            | Self::Isolate(_)
            | Self::Mute(_)
            | Self::Deafen(_)
            | Self::Cut(..) => false,
        }
    }

    /// Whether the calls of a mediagate have to move.
    pub(crate) fn hits_a_mediagate(self) -> bool {
        self.hits_one_of([FIRST_MEDIAGATE, OTHER_MEDIAGATE])
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layout, path, calls, at_message, harm, outage, second, pen, .. } = self;
        let Self { streams, hops, elsewhere, .. } = self;
        writeln!(f, "layout {layout:?}, {path:?}")?;
        writeln!(f, "{harm:?} at message {at_message} for {outage:?}, then {second:?}, {pen:?}")?;
        writeln!(f, "{streams} phones on TCP, {hops} addresses, at another gate {elsewhere:?}")?;
        for PlannedCall { from, to, manners, acts, fate } in calls {
            writeln!(f, "{from} calls {to}: {fate:?}, {acts:?}")?;
            writeln!(f, "  {:?}\n  {:?}", manners[0], manners[1])?;
        }
        Ok(())
    }
}

/// The gate of phones of which nothing else is said.
fn first_gate(layout: Layout) -> NodeId {
    match layout {
        Layout::One | Layout::Two => B2B,
        Layout::Three | Layout::Pair | Layout::Gates | Layout::Trio => GATE,
    }
}

fn other_gate(layout: Layout) -> Option<NodeId> {
    match layout {
        Layout::One | Layout::Three => None,
        Layout::Two => Some(OTHER_B2B),
        Layout::Pair | Layout::Gates | Layout::Trio => Some(OTHER_GATE),
    }
}

/// The first of the phones that begin calls of their own during an outage.
pub(crate) const SPARE: PhoneId = PhoneId(6);

const SPARES_END: u32 = 8;

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    fn ms(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }

    fn times(&mut self, max: u64) -> u32 {
        u32::try_from(1 + self.below(max)).unwrap_or(1)
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        let index = self.below(u64::try_from(from.len()).unwrap_or(1));
        from[usize::try_from(index).unwrap_or(0)].clone()
    }

    fn path(&mut self) -> Path {
        let delay = self.pick(&[0.15, 5.0, 20.0, 60.0]);
        let delay = Duration::from_secs_f64(delay / 1e3);
        let path = Path { delay, jitter: delay / self.pick(&[3, 10]), ..Path::default() };
        match self.below(4) {
            0 => Path { loss: 0.04, duplicate: 0.03, reorder: 0.05, ..path },
            1 => Path { duplicate: 0.1, ..path },
            _ => path,
        }
    }

    fn call(&mut self, from: PhoneId, to: PhoneId) -> PlannedCall {
        let mut fate = Fate::Talks;
        let manners = [self.manners(&mut fate), self.manners(&mut fate)];
        let begin = self.ms(0, 600);
        let mut acts = Vec::new();
        for _ in 0..self.below(4) {
            let phone = if self.one_in(2) { from } else { to };
            let command = match self.below(8) {
                0..=2 => Command::Hold,
                3 => Command::Resume,
                4 => Command::Reinvite,
                5 => Command::Codecs(self.pick(&[vec![PCMA, DIGITS], vec![PCMU, PCMA, DIGITS]])),
                6 => Command::Move,
                _ => Command::Options,
            };
            acts.push((begin + self.ms(200, 4500), phone, command));
        }
        if self.one_in(5) {
            let phone = if self.one_in(2) { from } else { to };
            let command = if self.one_in(3) { Command::Cancel } else { Command::Hangup };
            acts.push((begin + self.ms(0, 5000), phone, command));
        }
        let ends = |(_, _, act): &(_, _, Command)| matches!(act, Command::Hangup | Command::Cancel);
        if acts.iter().any(ends) || matches!(manners[1].incoming, Incoming::Refuse { .. }) {
            fate = Fate::Free;
        }
        acts.push((begin, from, Command::Call { to: String::new() }));
        PlannedCall { from, to, manners, acts, fate }
    }

    fn manners(&mut self, fate: &mut Fate) -> Manners {
        let incoming = match self.below(12) {
            0 => Incoming::Refuse {
                status: self.pick(&[404, 486, 503, 603]),
                after: self.ms(0, 1500),
            },
            1..=3 => Incoming::EarlyMedia {
                progress_after: self.ms(0, 300),
                answer_after: self.ms(300, 1500),
            },
            _ => Incoming::Answer {
                ring_after: (!self.one_in(4)).then(|| self.ms(0, 300)),
                answer_after: self.ms(300, 1500),
            },
        };
        let pick_version = [SameVersion::Ignored, SameVersion::Followed];
        Manners {
            incoming,
            reinvite: self.reinvite(fate),
            same_version: self.pick(&pick_version),
            answers_from: match self.below(8) {
                0 => AnswersFrom::OtherSocket,
                _ => AnswersFrom::OwnSocket,
            },
            speaks_from: SpeaksFrom::OwnPort,
            glares: u32::from(self.one_in(6)),
            ..Manners::default()
        }
    }

    fn reinvite(&mut self, fate: &mut Fate) -> Reinvite {
        let after = self.pick(&[0, 0, 30, 300, 2500, 5000]);
        let after = Duration::from_millis(after);
        match self.below(16) {
            0 => Reinvite::Refuse { status: 491, retry_after: None, after, times: self.times(2) },
            1 => {
                let retry_after = Some(self.times(3));
                Reinvite::Refuse { status: 500, retry_after, after, times: self.times(2) }
            }
            2 => {
                let times = self.times(2);
                if 1 < times {
                    *fate = Fate::Free;
                }
                Reinvite::Refuse { status: 500, retry_after: None, after, times }
            }
            3 => {
                let retry_after = self.pick(&[None, Some(1), Some(3)]);
                Reinvite::Refuse { status: 503, retry_after, after, times: self.times(2) }
            }
            4 => {
                let times = self.times(4);
                if 2 < times {
                    *fate = Fate::Free;
                }
                Reinvite::Refuse { status: 488, retry_after: None, after, times }
            }
            5 => {
                *fate = Fate::Free;
                let status = self.pick(&[481, 603, 408]);
                Reinvite::Refuse { status, retry_after: None, after, times: 1 }
            }
            6 => Reinvite::Stall { times: self.times(2) },
            7 => {
                *fate = Fate::Free;
                Reinvite::Ignore { times: 1 }
            }
            _ => Reinvite::Accept { after },
        }
    }

    fn second(&mut self, layout: Layout, first: Harm) -> Second {
        let harm = self.harm(layout);
        let of_media = [first, harm].map(Harm::hits_a_mediagate);
        let at = match (of_media[0] != of_media[1] && self.one_in(2), first) {
            (true, first) if ![first, harm].iter().any(|one| one.hits(CONTROLLER)) => {
                When::Meanwhile(self.ms(0, 1000))
            }
            _ => When::After(self.ms(0, 3000)),
        };
        Second { at, harm, outage: self.ms(50, 3000) }
    }

    fn victim(&mut self, layout: Layout) -> NodeId {
        let gateway =
            self.pick(&[FIRST_MEDIAGATE, FIRST_MEDIAGATE, FIRST_MEDIAGATE, OTHER_MEDIAGATE]);
        match layout {
            Layout::One => self.pick(&[B2B, B2B, gateway]),
            Layout::Three => self.pick(&[GATE, B2B, B2B, CONTROLLER, gateway, gateway]),
            Layout::Two => self.pick(&[B2B, B2B, OTHER_B2B, OTHER_B2B, CONTROLLER, gateway]),
            Layout::Pair | Layout::Gates | Layout::Trio => {
                let b2b = self.pick(&[B2B, OTHER_B2B]);
                let gate = self.pick(&[GATE, GATE, OTHER_GATE]);
                self.pick(&[b2b, b2b, b2b, gate, CONTROLLER, gateway, gateway])
            }
        }
    }

    fn harm(&mut self, layout: Layout) -> Harm {
        if matches!(layout, Layout::One | Layout::Three) && self.one_in(8) {
            return Harm::Everything;
        }
        let node = self.victim(layout);
        match self.below(12) {
            0..=3 => Harm::Crash(node),
            4 => Harm::Restart(node),
            5 => Harm::PowerOff(node),
            6 => Harm::Pause(node),
            7 => Harm::PauseInTurn(node),
            8 => Harm::Isolate(node),
            9 => Harm::Mute(node),
            10 => Harm::Deafen(node),
            _ => {
                let mut others = super::world::nodes(layout);
                others.retain(|other| *other != node);
                let other = self.pick(&others);
                match self.below(4) {
                    0 | 1 => Harm::Cut(node, other, true),
                    2 => Harm::Cut(node, other, false),
                    _ => Harm::Cut(other, node, false),
                }
            }
        }
    }
}
