//! Whether mediagates live: proof first, then silence.
//!
//! Every worker of a mediagate sends beats from its forwarding loop to everyone that asked by a
//! datagram ([`Output::Hear`]) in the last second. A refused datagram, or a new boot, proves a death
//! at once. Silence is weaker: it counts only while this process itself ran in time, and it is braked
//! (see [`Config::judges`]), because a listener that hears nobody has most likely gone deaf.

mod beat;
mod dead;
mod gateway;
mod life;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::{Boot, NodeId};
pub use beat::{Beat, Living};
pub use dead::{Cause, Dead};
use gateway::Gateway;
use life::Life;

/// How a detector hears and judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Whether this process runs in a real-time class, so that short silences mean something.
    pub realtime: bool,
    /// Whether silence makes verdicts here, as at a controller: at most one in [`BRAKE`], none while
    /// more than half of three or more gateways look silent, or all do. Without it only proof does,
    /// and silence is asked for by [`Detector::is_silent`].
    pub judges: bool,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Hear this gateway from now on. Beats of others are ignored.
    Watch(NodeId),
    /// A worker of a gateway spoke.
    Beat(Beat),
    /// The host of a gateway answered that nobody listens where the beats come from.
    Refused(NodeId),
    /// A link to a gateway came up, and its hello named this boot.
    LinkUp(NodeId, Boot),
    /// A link to a gateway ended. Proves nothing, but asks the gateway at once.
    LinkDown(NodeId),
}

/// What the detector asks of its owner, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send the datagram that asks this gateway for beats.
    Hear(NodeId),
    /// This boot of a gateway lives: heard for the first time, or steadily again after a false verdict.
    Alive(NodeId, Boot),
    /// This boot of a gateway is dead.
    Dead(Dead),
}

/// What an operator may want to know; all counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Deaths known by proof.
    pub proofs: u64,
    /// Deaths judged by silence.
    pub silences: u64,
    /// Verdicts after which the same boot spoke again.
    pub falses: u64,
    /// Times a verdict was due and a brake held it back.
    pub withheld: u64,
    /// Times this process was late itself and forgot how long anybody was silent.
    pub voided: u64,
    /// Beats of gateways not watched, of dead boots, overtaken or malformed.
    pub ignored: u64,
}

/// Hears mediagates and tells when one has died. See the [module](self).
#[derive(Clone, Debug)]
pub struct Detector {
    config: Config,
    gateways: BTreeMap<NodeId, Gateway>,
    /// When the own next tick is due; late by more than a period, it voids every window.
    tick_at: Instant,
    /// When all gateways are asked for beats again, at one moment: they stop a second after the last
    /// time, and should that be because no question arrives any more, they must fall silent together.
    hear_at: Instant,
    /// The first silence that will be too long before the next tick, if any.
    crossing_at: Option<Instant>,
    /// Nothing before this counts as silence.
    window_from: Instant,
    /// No silence verdict before this.
    brake_until: Instant,
    withholding: bool,
    /// So many have been silent for too long that this process must have been deaf.
    was_deaf: bool,
    /// When it last turned out to be deaf no more.
    mended_at: Option<Instant>,
    /// No beats are asked for, and none is missed.
    resting: bool,
    counters: Counters,
    outputs: VecDeque<Output>,
}

impl Detector {
    /// Returns a detector that watches nobody yet.
    pub fn new(now: Instant, config: Config) -> Self {
        Self {
            config,
            gateways: BTreeMap::new(),
            tick_at: now,
            hear_at: now,
            crossing_at: None,
            window_from: now,
            brake_until: now,
            withholding: false,
            was_deaf: false,
            mended_at: None,
            resting: false,
            counters: Counters::default(),
            outputs: VecDeque::new(),
        }
    }

    /// Takes in what happened at `now`. What concerns a gateway that is not watched is ignored.
    pub fn handle_input(&mut self, now: Instant, input: Input) {
        match input {
            Input::Watch(id) => self.watch(now, id),
            Input::Beat(beat) => self.handle_beat(now, beat),
            Input::Refused(id) => self.handle_refused(id),
            Input::LinkUp(id, boot) => {
                if self.gateways.get(&id).is_some_and(|gateway| gateway.is_new(boot)) {
                    self.end_life(id);
                    self.hear(id);
                }
            }
            Input::LinkDown(id) => self.hear(id),
        }
    }

    /// Ticks, and judges those silent for too long; does nothing when nothing is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_none_or(|due_at| now < due_at) {
            return;
        }
        if self.tick_at <= now {
            self.tick(now);
        }
        if self.config.judges {
            self.judge(now);
        }
        self.crossing_at = self.next_crossing(now);
    }

    /// Returns the next thing to do. Drain until `None` after every other call.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next needed.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.gateways.is_empty() || self.resting {
            return None;
        }
        Some(self.crossing_at.map_or(self.tick_at, |at| at.min(self.tick_at)))
    }

    /// Learns that this boot is dead from elsewhere, without saying so again.
    pub fn bury(&mut self, dead: Dead) {
        let Some(gateway) = self.gateways.get_mut(&dead.gateway) else { return };
        match &mut gateway.life {
            Some(life) if life.boot == dead.boot => life.die(dead.cause),
            Some(_) | None if dead.cause == Cause::Restarted => gateway.bury(dead.boot),
            Some(_) | None => gateway.presumed = Some((dead.boot, dead.cause)),
        }
    }

    /// Asks for no more beats and judges nobody, until [`wake`](Self::wake). Who is watched anew, or
    /// met in another boot, is still asked once: for a second it beats, and is known then.
    pub fn rest(&mut self) {
        self.resting = true;
    }

    /// Asks every gateway for beats, if it rested: nothing before this counts as silence.
    pub fn wake(&mut self, now: Instant) {
        if !std::mem::take(&mut self.resting) {
            return;
        }
        self.window_from = now;
        self.tick_at = now + self.period();
        self.hear_at = now + HEAR_PERIOD;
        self.crossing_at = None;
        let ids: Vec<NodeId> = self.gateways.keys().copied().collect();
        ids.into_iter().for_each(|id| self.hear(id));
    }

    /// Returns whether this process, too, has heard nothing of some worker of that boot for as long
    /// as a verdict takes. A boot that was never heard, or that another followed, is silent. Nobody
    /// is while this process rests, or while the own tick is late: what was heard meanwhile is still
    /// unread.
    pub fn is_silent(&self, now: Instant, gateway: NodeId, boot: Boot) -> bool {
        if self.resting || self.tick_at + self.period() < now {
            return false;
        }
        let Some(gateway) = self.gateways.get(&gateway) else { return false };
        match &gateway.life {
            Some(life) if life.boot == boot => {
                self.threshold(now, life) <= life.quiet(now, self.window_from).0
            }
            Some(_) => true,
            None => SILENCE.span() <= now.duration_since(gateway.watched_at.max(self.window_from)),
        }
    }

    /// Returns whether this boot of the gateway is known to be dead.
    pub fn is_dead(&self, gateway: NodeId, boot: Boot) -> bool {
        self.gateways.get(&gateway).is_some_and(|gateway| match &gateway.life {
            Some(life) if life.boot == boot => life.is_dead(),
            Some(_) | None => {
                gateway.presumed.is_some_and(|(presumed, _)| presumed == boot)
                    || gateway.buried.contains(&boot)
            }
        })
    }

    /// Returns whether this gateway is heard.
    pub fn is_watched(&self, gateway: NodeId) -> bool {
        self.gateways.contains_key(&gateway)
    }

    /// Returns the gateways that live, in ascending order.
    pub fn living(&self) -> impl Iterator<Item = Living> + '_ {
        self.gateways.iter().filter_map(|(id, gateway)| {
            let life = gateway.life.as_ref().filter(|life| life.is_alive())?;
            let Beat { standby, draining, legs, legs_max, .. } = life.latest;
            Some(Living { gateway: *id, boot: life.boot, standby, draining, legs, legs_max })
        })
    }

    /// Returns the boots that are dead and of which nothing newer was heard.
    pub fn dead(&self) -> impl Iterator<Item = Dead> + '_ {
        self.gateways.iter().filter_map(|(id, gateway)| {
            let life = gateway.life.as_ref()?;
            Some(Dead { gateway: *id, boot: life.boot, cause: life.cause()? })
        })
    }

    /// Returns what was counted since the start.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn watch(&mut self, now: Instant, id: NodeId) {
        if self.gateways.contains_key(&id) {
            return;
        }
        if self.gateways.is_empty() {
            self.tick_at = now + self.period();
            self.hear_at = now + HEAR_PERIOD;
            self.crossing_at = None;
        }
        self.gateways.insert(id, Gateway::new(now));
        self.hear(id);
    }

    fn hear(&mut self, id: NodeId) {
        let Some(gateway) = self.gateways.get_mut(&id) else { return };
        if let Some(life) = &mut gateway.life {
            life.asked = true;
        }
        self.outputs.push_back(Output::Hear(id));
    }

    fn handle_beat(&mut self, now: Instant, beat: Beat) {
        if !self.gateways.get(&beat.gateway).is_some_and(|gateway| gateway.takes(&beat)) {
            self.counters.ignored += 1;
            return;
        }
        if self.gateways.get(&beat.gateway).is_some_and(|gateway| gateway.is_new(beat.boot)) {
            self.end_life(beat.gateway);
        }
        let Some(gateway) = self.gateways.get_mut(&beat.gateway) else { return };
        let presumed = gateway.presumed.take_if(|(boot, _)| *boot == beat.boot);
        let life = gateway.life.get_or_insert_with(|| Life::new(now, &beat));
        match presumed {
            Some((_, Cause::Silent { .. })) => self.counters.falses += 1,
            // Sent before it died, for all that is known: it has to go on speaking.
            Some((_, cause)) => life.die(cause),
            None => {}
        }
        match life.hear(now, &beat) {
            life::Heard::Stale => self.counters.ignored += 1,
            life::Heard::Fresh => {}
            life::Heard::Started => self.outputs.push_back(Output::Alive(beat.gateway, beat.boot)),
            life::Heard::Risen => self.counters.falses += 1,
        }
        self.rise_for_want_of_others(now, beat.gateway);
    }

    /// Lets a gateway that was judged falsely count again at once if no other lives: one that may
    /// stutter is better than none.
    fn rise_for_want_of_others(&mut self, now: Instant, id: NodeId) {
        let mut lives = self.gateways.values().filter_map(|gateway| gateway.life.as_ref());
        if lives.any(Life::is_alive) {
            return;
        }
        let Some(life) = self.gateways.get(&id).and_then(|gateway| gateway.life.as_ref()) else {
            return;
        };
        let (quiet, threshold) = (life.quiet(now, self.window_from).0, self.threshold(now, life));
        let Some(life) = self.gateways.get_mut(&id).and_then(|gateway| gateway.life.as_mut())
        else {
            return;
        };
        if quiet < threshold && life.rise_at_once() {
            self.outputs.push_back(Output::Alive(id, life.boot));
        }
    }

    fn handle_refused(&mut self, id: NodeId) {
        let Some(life) = self.gateways.get_mut(&id).and_then(|gateway| gateway.life.as_mut())
        else {
            return;
        };
        if life.is_dead() {
            return;
        }
        if !life.asked {
            // The refused datagram may have met the gap before this boot.
            self.hear(id);
            return;
        }
        life.die(Cause::Refused);
        self.counters.proofs += 1;
        let boot = life.boot;
        self.outputs.push_back(Output::Dead(Dead { gateway: id, boot, cause: Cause::Refused }));
    }

    /// Another boot was met: the one known before is over, which is proof.
    fn end_life(&mut self, id: NodeId) {
        let Some(gateway) = self.gateways.get_mut(&id) else { return };
        let Some(life) = gateway.life.take() else { return };
        gateway.bury(life.boot);
        if !life.is_dead() {
            self.counters.proofs += 1;
            let dead = Dead { gateway: id, boot: life.boot, cause: Cause::Restarted };
            self.outputs.push_back(Output::Dead(dead));
        }
    }

    fn tick(&mut self, now: Instant) {
        let period = self.period();
        let late = self.tick_at + period < now;
        if late {
            self.window_from = now;
            self.counters.voided += 1;
        }
        self.tick_at = now + period;
        let asks_all = self.hear_at <= now;
        if asks_all {
            self.hear_at = now + HEAR_PERIOD;
        }
        for (id, gateway) in &mut self.gateways {
            let mut asks = asks_all;
            if let Some(life) = &mut gateway.life {
                let silence = silence(self.config, life);
                let quiet = life.quiet(now, self.window_from).0;
                // Somebody who missed a beat is asked at every tick: a refusal is worth more than
                // any silence.
                asks |= !life.is_dead() && silence.span() <= 2 * quiet;
                life.asked |= asks;
                let steady = !late && quiet < silence.span();
                if life.rise(now, steady, &mut self.counters) {
                    self.outputs.push_back(Output::Alive(*id, life.boot));
                }
            }
            if asks {
                self.outputs.push_back(Output::Hear(*id));
            }
        }
    }

    fn judge(&mut self, now: Instant) {
        let (mut living, mut look_silent, mut fell_silent, mut worst) =
            (0_usize, 0_usize, 0_usize, None);
        for (id, gateway) in &self.gateways {
            let Some(life) = gateway.life.as_ref().filter(|life| life.is_alive()) else { continue };
            let silence = silence(self.config, life);
            let (quiet, worker) = life.quiet(now, self.window_from);
            living += 1;
            // One beat before its time: when a cable breaks, all beats stop, but the last ones came
            // at different moments of a period, and the first verdict must not outrun the doubt.
            look_silent += usize::from(silence.span() <= quiet + silence.period);
            let due = self.threshold(now, life) <= quiet;
            fell_silent += usize::from(due && self.has_spoken(life));
            if due && worst.is_none_or(|(longest, _, _)| longest < quiet) {
                worst = Some((quiet, *id, worker));
            }
        }
        let is_deaf = |silent| silent == living || (3 <= living && living < 2 * silent);
        if !is_deaf(look_silent) && std::mem::take(&mut self.was_deaf) {
            // When a cable is mended, the first beats come at different moments, too.
            self.window_from = now;
            self.mended_at = Some(now);
            worst = None;
        }
        let Some((_, id, worker)) = worst else {
            self.withholding = false;
            return;
        };
        if is_deaf(look_silent) || now < self.brake_until {
            self.was_deaf |= is_deaf(fell_silent);
            self.counters.withheld += u64::from(!self.withholding);
            self.withholding = true;
            return;
        }
        self.withholding = false;
        self.condemn(now, id, worker);
    }

    /// Returns whether every worker of a gateway was heard since this process was last deaf. One that was
    /// not has had its time: its silence is no sign that this process is deaf again, whenever another
    /// stutters.
    fn has_spoken(&self, life: &Life) -> bool {
        self.mended_at.is_none_or(|at| life.is_heard_since(at))
    }

    /// Says that a gateway is dead one of whose workers was silent for too long.
    fn condemn(&mut self, now: Instant, id: NodeId, worker: u16) {
        self.brake_until = now + BRAKE;
        let Some(life) = self.gateways.get_mut(&id).and_then(|gateway| gateway.life.as_mut())
        else {
            return;
        };
        let cause = Cause::Silent { worker, seq: life.last_seq(worker).unwrap_or_default() };
        life.die(cause);
        self.counters.silences += 1;
        self.outputs.push_back(Output::Dead(Dead { gateway: id, boot: life.boot, cause }));
    }

    /// When the next silence becomes too long, if before the next tick: a tick is no moment too late.
    fn next_crossing(&self, now: Instant) -> Option<Instant> {
        self.gateways
            .values()
            .filter_map(|gateway| gateway.life.as_ref().filter(|life| life.is_alive()))
            .filter_map(|life| {
                (now + self.threshold(now, life)).checked_sub(life.quiet(now, self.window_from).0)
            })
            .filter(|at| now < *at && *at < self.tick_at)
            .min()
    }

    fn threshold(&self, now: Instant, life: &Life) -> Duration {
        silence(self.config, life).span() * life.doubt(now)
    }

    fn period(&self) -> Duration {
        if self.config.realtime { SILENCE_REALTIME.period } else { SILENCE.period }
    }
}

/// How long nothing must be heard, in beats that may be missed.
#[derive(Clone, Copy, Debug)]
struct Silence {
    period: Duration,
    misses_max: u32,
}

impl Silence {
    const fn span(self) -> Duration {
        self.period.saturating_mul(self.misses_max)
    }
}

/// A short silence means something only where neither end waits for a processor.
fn silence(config: Config, life: &Life) -> Silence {
    if config.realtime && life.latest.realtime { SILENCE_REALTIME } else { SILENCE }
}

/// How often a listener asks for beats.
pub const HEAR_PERIOD: Duration = Duration::from_millis(100);

/// How often a worker beats.
pub const BEAT_PERIOD: Duration = Duration::from_millis(10);

/// The time in which one gateway at most is judged by silence.
pub const BRAKE: Duration = Duration::from_secs(2);

/// How long a gateway that was judged falsely must be heard without a break before it counts again.
pub const STEADY: Duration = Duration::from_secs(2);

/// How long a false verdict makes its gateway's threshold twice as long.
pub const DOUBT: Duration = Duration::from_secs(600);

/// Workers of one gateway; a beat that names more is ignored.
pub const WORKERS_MAX: u16 = 256;

const SILENCE_REALTIME: Silence = Silence { period: BEAT_PERIOD, misses_max: 3 };

const SILENCE: Silence = Silence { period: Duration::from_millis(20), misses_max: 5 };

#[cfg(test)]
mod tests;
