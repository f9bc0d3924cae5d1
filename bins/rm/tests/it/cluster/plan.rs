//! What a seed decides: phones, calls, what people do in them, and what is done to the cluster.

use std::fmt;
use std::time::Duration;

use driver::NodeId;
use driver::sim::{Path, Pen};
use testkit::{
    AnswersFrom, Command, DIGITS, Incoming, Manners, PCMA, PCMU, PhoneId, Reinvite, SameVersion,
    SpeaksFrom,
};

use super::world::{B2B, CONTROLLER, FIRST_MEDIAGATE, Layout, OTHER_B2B, OTHER_MEDIAGATE};

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
    /// The same mediagate's twin dies, too, this long after the first has healed.
    pub(crate) second: Option<Duration>,
    /// What becomes of the b2bs' lines as long as the outage lasts.
    pub(crate) pen: Pen,
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
}

/// What is done to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
    /// SIGKILL; started again after the outage.
    Crash(NodeId),
    /// SIGKILL, and started again at once.
    Restart(NodeId),
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
        let layout = match dice.below(6) {
            0 => Layout::One,
            1 | 2 => Layout::Three,
            3 => Layout::Two,
            _ => Layout::Pair,
        };
        let path = dice.path();
        let count = 1 + dice.below(3);
        let calls = (0..count)
            .map(|index| {
                let first = u32::try_from(2 * index).unwrap_or_default();
                dice.call(PhoneId(first), PhoneId(first + 1))
            })
            .collect();
        let harm = dice.harm(layout);
        Self {
            layout,
            path,
            calls,
            at_message: u32::try_from(1 + dice.below(30 * count)).unwrap_or_default(),
            harm,
            outage: dice.ms(50, 6000),
            second: (harm.hits_a_mediagate() && dice.one_in(5)).then(|| dice.ms(3000, 6000)),
            pen: dice.pick(&[Pen::Writes, Pen::Writes, Pen::Stalls, Pen::Fails]),
        }
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

    fn hits_one_of(self, nodes: [NodeId; 2]) -> bool {
        match self {
            Self::Crash(node)
            | Self::Restart(node)
            | Self::PowerOff(node)
            | Self::Pause(node)
            | Self::PauseInTurn(node)
            | Self::Isolate(node)
            | Self::Mute(node)
            | Self::Deafen(node) => nodes.contains(&node),
            Self::Cut(from, to, _) => nodes.contains(&from) || nodes.contains(&to),
        }
    }

    /// Whether the calls of a mediagate have to move.
    pub(crate) fn hits_a_mediagate(self) -> bool {
        self.hits_one_of([FIRST_MEDIAGATE, OTHER_MEDIAGATE])
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layout, path, calls, at_message, harm, outage, second, pen } = self;
        writeln!(f, "layout {layout:?}, {path:?}")?;
        writeln!(
            f,
            "{harm:?} at message {at_message} for {outage:?}, second death {second:?}, {pen:?}"
        )?;
        for PlannedCall { from, to, manners, acts, fate } in calls {
            writeln!(f, "{from} calls {to}: {fate:?}, {acts:?}")?;
            writeln!(f, "  {:?}\n  {:?}", manners[0], manners[1])?;
        }
        Ok(())
    }
}

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

    fn harm(&mut self, layout: Layout) -> Harm {
        let gateway =
            self.pick(&[FIRST_MEDIAGATE, FIRST_MEDIAGATE, FIRST_MEDIAGATE, OTHER_MEDIAGATE]);
        let node = match layout {
            Layout::Pair | Layout::Gates if !self.one_in(4) => self.pick(&[B2B, OTHER_B2B]),
            Layout::Three | Layout::Pair | Layout::Gates | Layout::Two if self.one_in(4) => {
                CONTROLLER
            }
            Layout::One | Layout::Three | Layout::Pair | Layout::Gates | Layout::Two => gateway,
        };
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
