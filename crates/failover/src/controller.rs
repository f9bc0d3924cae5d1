//! The media gateway controller: hears the mediagates, judges them, and tells every b2b.
//!
//! It stands on no call's path. Every controller listens and judges all the time; which one leads
//! is each b2b's own choice ([`Ask::lead`]), so there is no election, and the loss of a controller
//! changes nothing: a b2b hears the gateways too and acts on a death once, whoever says it first.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::detector::{self, Beat, Cause, Counters, Dead, Detector};
use crate::{Boot, NodeId};

/// From a b2b: there is a mediagate. Sent when the link to a controller comes up and when one of the
/// facts changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Introduce {
    /// The gateway.
    pub gateway: NodeId,
    /// Where to ask it for beats.
    pub beat: SocketAddr,
    /// The server it runs on.
    pub host: String,
    /// The version of its program.
    pub version: String,
}

/// From a b2b, every [`ASK_PERIOD`] and when `lead` changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// Whether this controller leads for the b2b: its list of gateways counts.
    pub lead: bool,
    /// The b2b's own time, which comes back in a [`Verdict`].
    pub stamp_ms: u64,
}

/// From a controller that does not lead, or does not know enough yet: it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Here;

/// From the leading controller: the gateways that live and may get new calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gateways(pub Vec<Published>);

/// One gateway of a [`Gateways`] list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// The gateway.
    pub gateway: NodeId,
    /// Its boot.
    pub boot: Boot,
    /// The server it runs on.
    pub host: String,
    /// The version of its program.
    pub version: String,
    /// Whether it wants new calls only when no other lives.
    pub standby: bool,
    /// Whether it wants no new calls at all.
    pub draining: bool,
    /// Legs it carries.
    pub legs: u32,
    /// Legs it can carry.
    pub legs_max: u32,
}

/// From any controller: a gateway is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Who died, and how that is known.
    pub dead: Dead,
    /// The last [`Ask::stamp_ms`] of the b2b it goes to: the verdict was made later than that, and
    /// a verdict that waited behind a cut shows its age.
    pub stamp_ms: u64,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A b2b introduced a gateway, or the configuration did.
    Introduced(Introduce),
    /// A worker of a gateway spoke.
    Beat(Beat),
    /// The host of a gateway answered that nobody listens where the beats come from.
    Refused(NodeId),
    /// Somebody's link to a gateway ended. Proves nothing, but asks the gateway at once.
    LinkLost(NodeId),
    /// The link to a b2b came up.
    B2bUp(NodeId),
    /// The link to a b2b ended.
    B2bDown(NodeId),
    /// A b2b asks.
    Asked {
        /// The b2b.
        b2b: NodeId,
        /// What it asks.
        ask: Ask,
    },
}

/// What the controller asks of its owner, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send the datagram that asks this gateway for beats.
    Hear {
        /// The gateway.
        gateway: NodeId,
        /// Its beat address.
        beat: SocketAddr,
    },
    /// Send the verdict to the b2b.
    Verdict {
        /// The b2b.
        b2b: NodeId,
        /// The frame.
        verdict: Verdict,
    },
    /// Send the list to the b2b.
    Publish {
        /// The b2b.
        b2b: NodeId,
        /// The frame.
        gateways: Gateways,
    },
    /// Send [`Here`] to the b2b.
    Here {
        /// The b2b.
        b2b: NodeId,
    },
}

/// Judges mediagates for every b2b. See the [module](self).
#[derive(Clone, Debug)]
pub struct Controller {
    detector: Detector,
    profiles: BTreeMap<NodeId, Introduce>,
    b2bs: BTreeMap<NodeId, B2b>,
    /// No list goes out before: a controller that starts knows of nobody that lives.
    settled_at: Instant,
    outputs: VecDeque<Output>,
}

#[derive(Clone, Debug, Default)]
struct B2b {
    /// The latest; none came yet over this link.
    ask: Option<Ask>,
    /// Which deaths it was told, and when last.
    told: BTreeMap<NodeId, (Boot, Instant)>,
}

impl Controller {
    /// Returns a controller that knows nobody yet. `realtime`: this process runs in a real-time class.
    pub fn new(now: Instant, realtime: bool) -> Self {
        Self {
            detector: Detector::new(now, detector::Config { realtime, judges: true }),
            profiles: BTreeMap::new(),
            b2bs: BTreeMap::new(),
            settled_at: now + SETTLING,
            outputs: VecDeque::new(),
        }
    }

    /// Takes in what happened at `now`. What strangers say is ignored.
    pub fn handle_input(&mut self, now: Instant, input: Input) {
        match input {
            Input::Introduced(introduce) => self.introduce(now, introduce),
            Input::Beat(beat) => self.detector.handle_input(now, detector::Input::Beat(beat)),
            Input::Refused(id) => self.detector.handle_input(now, detector::Input::Refused(id)),
            Input::LinkLost(id) => self.detector.handle_input(now, detector::Input::LinkDown(id)),
            Input::B2bUp(b2b) => {
                self.b2bs.insert(b2b, B2b::default());
            }
            Input::B2bDown(b2b) => {
                self.b2bs.remove(&b2b);
            }
            Input::Asked { b2b, ask } => self.answer(now, b2b, ask),
        }
        self.drain(now);
    }

    /// Does whatever is due at `now`; does nothing when nothing is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.detector.handle_timeout(now);
        self.drain(now);
    }

    /// Returns the next thing to do. Drain until `None` after every other call.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next needed.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.detector.poll_timeout()
    }

    /// Returns the list as it would be published now.
    pub fn gateways(&self) -> Gateways {
        let published = self.detector.living().filter_map(|living| {
            let profile = self.profiles.get(&living.gateway)?;
            Some(Published {
                gateway: living.gateway,
                boot: living.boot,
                host: profile.host.clone(),
                version: profile.version.clone(),
                standby: living.standby,
                draining: living.draining,
                legs: living.legs,
                legs_max: living.legs_max,
            })
        });
        Gateways(published.collect())
    }

    /// Returns what was counted since the start.
    pub fn counters(&self) -> Counters {
        self.detector.counters()
    }

    fn introduce(&mut self, now: Instant, introduce: Introduce) {
        let gateway = introduce.gateway;
        if self.profiles.len() == GATEWAYS_MAX && !self.profiles.contains_key(&gateway) {
            return;
        }
        if self.profiles.insert(gateway, introduce).is_none() {
            self.settled_at = self.settled_at.max(now + SETTLING);
            self.detector.handle_input(now, detector::Input::Watch(gateway));
        }
    }

    fn answer(&mut self, now: Instant, b2b: NodeId, ask: Ask) {
        let Some(known) = self.b2bs.get_mut(&b2b) else { return };
        known.ask = Some(ask);
        self.tell(now, b2b);
        self.publish(now, b2b);
    }

    fn publish(&mut self, now: Instant, b2b: NodeId) {
        let leads = self.b2bs.get(&b2b).and_then(|b2b| b2b.ask).is_some_and(|ask| ask.lead);
        let complete = self.detector.living().count() == self.profiles.len();
        let settled = self.settled_at <= now || (complete && !self.profiles.is_empty());
        self.outputs.push_back(if leads && settled {
            Output::Publish { b2b, gateways: self.gateways() }
        } else {
            Output::Here { b2b }
        });
    }

    /// Tells a b2b the deaths it was not told. A verdict of silence that still holds is made anew
    /// after a while: the b2b may have heard the gateway when it was told first.
    fn tell(&mut self, now: Instant, id: NodeId) {
        let Some(b2b) = self.b2bs.get_mut(&id) else { return };
        let Some(Ask { stamp_ms, .. }) = b2b.ask else { return };
        for dead in self.detector.dead() {
            let told = b2b.told.get(&dead.gateway).filter(|(boot, _)| *boot == dead.boot);
            let due = match (dead.cause, told) {
                (Cause::Refused | Cause::Restarted, told) => told.is_none(),
                (Cause::Silent { .. }, told) => {
                    told.is_none_or(|(_, at)| *at + AGAIN <= now)
                        && self.detector.is_silent(now, dead.gateway, dead.boot)
                }
            };
            if due {
                b2b.told.insert(dead.gateway, (dead.boot, now));
                let verdict = Verdict { dead, stamp_ms };
                self.outputs.push_back(Output::Verdict { b2b: id, verdict });
            }
        }
    }

    fn drain(&mut self, now: Instant) {
        while let Some(output) = self.detector.poll_output() {
            match output {
                detector::Output::Hear(gateway) => {
                    if let Some(Introduce { beat, .. }) = self.profiles.get(&gateway) {
                        self.outputs.push_back(Output::Hear { gateway, beat: *beat });
                    }
                }
                detector::Output::Alive(gateway, _) => {
                    for b2b in self.b2bs.values_mut() {
                        b2b.told.remove(&gateway);
                    }
                    self.publish_to_all(now);
                }
                detector::Output::Dead(dead) => {
                    self.tell_all(now, dead);
                    self.publish_to_all(now);
                }
            }
        }
    }

    fn tell_all(&mut self, now: Instant, dead: Dead) {
        for (id, b2b) in &mut self.b2bs {
            let Some(Ask { stamp_ms, .. }) = b2b.ask else { continue };
            b2b.told.insert(dead.gateway, (dead.boot, now));
            let verdict = Verdict { dead, stamp_ms };
            self.outputs.push_back(Output::Verdict { b2b: *id, verdict });
        }
    }

    fn publish_to_all(&mut self, now: Instant) {
        let leads = |b2b: &B2b| b2b.ask.is_some_and(|ask| ask.lead);
        let ids: Vec<NodeId> =
            self.b2bs.iter().filter(|(_, b2b)| leads(b2b)).map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.publish(now, id));
    }
}

/// How often a b2b asks a controller.
pub const ASK_PERIOD: Duration = Duration::from_millis(250);

/// How long a controller listens to a gateway it has just met before it may call it missing.
pub const SETTLING: Duration = Duration::from_millis(500);

/// Mediagates of one segment; a further one is not taken in.
pub const GATEWAYS_MAX: usize = 1024;

/// After which time a verdict of silence that still holds is made anew.
const AGAIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
