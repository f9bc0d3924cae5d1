//! What a b2b believes about the mediagates.
//!
//! A b2b hears the gateways itself. Proof it believes at once, from whoever has it. Silence is judged
//! by controllers and believed only while this b2b, too, has heard nothing for as long, and within
//! [`VERDICT_AGE`] of the verdict: what a controller says that was cut off moves nothing.
//!
//! A b2b without slots has no calls to move. It asks for no beats, which would wake it a hundred times
//! a second for each worker, until it gets slots or a controller calls a gateway silent: then it hears
//! for itself before it believes.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::controller::{ASK_PERIOD, Ask, Gateways, Verdict};
use crate::detector::{self, Beat, Cause, Counters, Dead, Detector, Living};
use crate::{Boot, NodeId};

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Hear this gateway from now on: its beat address is known.
    Watch(NodeId),
    /// A worker of a gateway spoke.
    Beat(Beat),
    /// The host of a gateway answered that nobody listens where the beats come from.
    Refused(NodeId),
    /// A link to a gateway came up, and its hello named this boot.
    LinkUp(NodeId, Boot),
    /// A link to a gateway ended.
    LinkDown(NodeId),
    /// The link to a controller came up.
    ControllerUp(NodeId),
    /// The link to a controller ended.
    ControllerDown(NodeId),
    /// A controller says that a gateway is dead.
    Verdict(NodeId, Verdict),
    /// A controller says which gateways live.
    Gateways(NodeId, Gateways),
    /// A controller says that it is there.
    Here(NodeId),
    /// This b2b owns slots from now on, or none.
    Owns(bool),
}

/// What is asked of the owner, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send the datagram that asks this gateway for beats.
    Hear(NodeId),
    /// Send the frame to the controller.
    Ask {
        /// The controller.
        controller: NodeId,
        /// The frame.
        ask: Ask,
    },
    /// This boot of a gateway is dead: move its calls. Said once, until the gateway counts again.
    Dead {
        /// The gateway.
        gateway: NodeId,
        /// The boot that died.
        boot: Boot,
        /// How that is known.
        cause: Cause,
    },
}

/// Decides for one b2b which mediagates are dead and which may get calls. See the [module](self).
#[derive(Clone, Debug)]
pub struct Verdicts {
    origin: Instant,
    detector: Detector,
    controllers: BTreeMap<NodeId, Instant>,
    leader: Option<NodeId>,
    ask_at: Instant,
    owns: bool,
    /// Verdicts of silence that this b2b cannot share yet.
    pending: BTreeMap<NodeId, Pending>,
    /// What the leading controller admits, and when it said so.
    admitted: Option<(Instant, BTreeMap<NodeId, Boot>)>,
    outputs: VecDeque<Output>,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    dead: Dead,
    until: Instant,
}

impl Verdicts {
    /// Returns what a b2b believes at its start, when it owns nothing: nothing. `realtime`: this process
    /// runs in a real-time class.
    pub fn new(now: Instant, realtime: bool) -> Self {
        Self {
            origin: now,
            detector: Detector::new(now, detector::Config { realtime, judges: false }),
            controllers: BTreeMap::new(),
            leader: None,
            ask_at: now,
            owns: false,
            pending: BTreeMap::new(),
            admitted: None,
            outputs: VecDeque::new(),
        }
    }

    /// Takes in what happened at `now`. What concerns a gateway that is not watched is ignored.
    pub fn handle_input(&mut self, now: Instant, input: Input) {
        match input {
            Input::Watch(id) => self.detector.handle_input(now, detector::Input::Watch(id)),
            Input::Beat(beat) => self.detector.handle_input(now, detector::Input::Beat(beat)),
            Input::Refused(id) => self.detector.handle_input(now, detector::Input::Refused(id)),
            Input::LinkUp(id, boot) => {
                self.detector.handle_input(now, detector::Input::LinkUp(id, boot));
            }
            Input::LinkDown(id) => self.detector.handle_input(now, detector::Input::LinkDown(id)),
            Input::ControllerUp(id) => {
                self.controllers.insert(id, now);
                self.lead(now);
                self.ask(now, id);
            }
            Input::ControllerDown(id) => {
                self.controllers.remove(&id);
                self.lead(now);
            }
            Input::Verdict(controller, verdict) => {
                self.hear_controller(now, controller);
                self.believe(now, verdict);
            }
            Input::Gateways(controller, gateways) => {
                self.hear_controller(now, controller);
                if self.leader == Some(controller) {
                    let admitted = gateways.0.iter().map(|listed| (listed.gateway, listed.boot));
                    self.admitted = Some((now, admitted.collect()));
                }
            }
            Input::Here(controller) => self.hear_controller(now, controller),
            Input::Owns(owns) => self.owns = owns,
        }
        self.attend(now);
        self.drain();
    }

    /// Does whatever is due at `now`; does nothing when nothing is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.detector.handle_timeout(now);
        self.share(now);
        self.attend(now);
        self.drain();
        if self.ask_at <= now && !self.controllers.is_empty() {
            self.ask_at = now + ASK_PERIOD;
            self.lead(now);
            let ids: Vec<NodeId> = self.controllers.keys().copied().collect();
            ids.into_iter().for_each(|id| self.ask(now, id));
        }
    }

    /// Returns the next thing to do. Drain until `None` after every other call.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next needed.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let ask_at = (!self.controllers.is_empty()).then_some(self.ask_at);
        let until = self.pending.values().map(|pending| pending.until).min();
        [self.detector.poll_timeout(), ask_at, until].into_iter().flatten().min()
    }

    /// Returns the gateways that may get new calls: heard here, and admitted by the leading
    /// controller. While no controller is heard, a b2b admits for itself.
    pub fn living(&self, now: Instant) -> impl Iterator<Item = Living> + '_ {
        let admitted = match &self.admitted {
            Some((at, admitted)) if now < *at + CONTROLLER_SILENCE => Some(admitted),
            Some(_) | None => None,
        };
        self.detector.living().filter(move |living| {
            !self.detector.is_silent(now, living.gateway, living.boot)
                && admitted
                    .is_none_or(|admitted| admitted.get(&living.gateway) == Some(&living.boot))
        })
    }

    /// Returns whether this boot of the gateway is believed to be dead.
    pub fn is_dead(&self, gateway: NodeId, boot: Boot) -> bool {
        self.detector.is_dead(gateway, boot)
    }

    /// Returns the controller whose list counts here: the lowest id that is heard.
    pub fn leader(&self) -> Option<NodeId> {
        self.leader
    }

    /// Returns what was counted since the start.
    pub fn counters(&self) -> Counters {
        self.detector.counters()
    }

    fn believe(&mut self, now: Instant, verdict: Verdict) {
        let Verdict { dead, stamp_ms } = verdict;
        if !self.detector.is_watched(dead.gateway) || self.detector.is_dead(dead.gateway, dead.boot)
        {
            return;
        }
        match dead.cause {
            Cause::Refused | Cause::Restarted => self.act(dead),
            Cause::Silent { .. } => {
                // The verdict was made after the stamp, so this is never too long.
                let stamped = self.origin.checked_add(Duration::from_millis(stamp_ms));
                let Some(until) = stamped.and_then(|at| at.checked_add(VERDICT_AGE)) else {
                    return;
                };
                if now < until && stamped.is_some_and(|at| at <= now) {
                    self.pending.insert(dead.gateway, Pending { dead, until });
                    self.share(now);
                }
            }
        }
    }

    /// Acts on the verdicts of silence that this b2b shares by now, and drops those too old.
    fn share(&mut self, now: Instant) {
        let pending = std::mem::take(&mut self.pending);
        for (gateway, Pending { dead, until }) in pending {
            if until <= now || self.detector.is_dead(gateway, dead.boot) {
                continue;
            }
            if self.detector.is_silent(now, gateway, dead.boot) {
                self.act(dead);
            } else {
                self.pending.insert(gateway, Pending { dead, until });
            }
        }
    }

    /// Listens while that can matter.
    fn attend(&mut self, now: Instant) {
        if self.owns || !self.pending.is_empty() {
            self.detector.wake(now);
        } else {
            self.detector.rest();
        }
    }

    fn act(&mut self, dead: Dead) {
        self.detector.bury(dead);
        let Dead { gateway, boot, cause } = dead;
        self.outputs.push_back(Output::Dead { gateway, boot, cause });
    }

    fn hear_controller(&mut self, now: Instant, id: NodeId) {
        if let Some(heard_at) = self.controllers.get_mut(&id) {
            *heard_at = now;
            self.lead(now);
        }
    }

    /// Follows the lowest controller that is heard. Nobody elects it, and nothing but the list of
    /// gateways depends on it.
    fn lead(&mut self, now: Instant) {
        let heard = |heard_at: &Instant| now < *heard_at + CONTROLLER_SILENCE;
        let leader = self.controllers.iter().find(|(_, at)| heard(at)).map(|(id, _)| *id);
        let before = std::mem::replace(&mut self.leader, leader);
        if before != leader {
            [before, leader].into_iter().flatten().for_each(|id| self.ask(now, id));
        }
    }

    fn ask(&mut self, now: Instant, id: NodeId) {
        if !self.controllers.contains_key(&id) {
            return;
        }
        let stamp = now.saturating_duration_since(self.origin).as_millis();
        let stamp_ms = u64::try_from(stamp).unwrap_or(u64::MAX);
        let ask = Ask { lead: self.leader == Some(id), stamp_ms };
        self.outputs.push_back(Output::Ask { controller: id, ask });
    }

    fn drain(&mut self) {
        while let Some(output) = self.detector.poll_output() {
            match output {
                detector::Output::Hear(gateway) => self.outputs.push_back(Output::Hear(gateway)),
                detector::Output::Alive(..) => {}
                detector::Output::Dead(Dead { gateway, boot, cause }) => {
                    self.outputs.push_back(Output::Dead { gateway, boot, cause });
                }
            }
        }
    }
}

/// How old a verdict of silence may become before it counts no more.
pub const VERDICT_AGE: Duration = Duration::from_secs(1);

/// A controller that says nothing for this long is not heard.
pub const CONTROLLER_SILENCE: Duration = Duration::from_millis(1500);

#[cfg(test)]
mod tests;
