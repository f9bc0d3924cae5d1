//! Which legs may be told now: self-clocked windows over all peers and per next hop.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::CallId;

/// Lets out re-INVITEs in order of urgency, no more at a time than the windows allow.
///
/// There is no rate: each answer makes room for the next. The window of a next hop grows by one
/// with each success and halves with each sign of overload. An idle next hop is forgotten. A leg of
/// which nothing is heard for 2 s gives its place to the next one: a phone that is silent must not hold
/// up the others behind its address.
#[derive(Debug)]
pub struct Pacer {
    config: Config,
    legs: BTreeMap<LegId, Entry>,
    /// Waiting legs whose next hop is not known to be full.
    ready: BTreeSet<Turn>,
    hops: BTreeMap<SocketAddr, Hop>,
    /// When frozen hops let the next probe out.
    thaws: BTreeSet<(Instant, SocketAddr)>,
    /// Until when legs in flight keep their places.
    places: BTreeSet<(Instant, LegId)>,
    in_flight: usize,
    sequence: u64,
}

/// Bounds of a [`Pacer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Re-INVITEs open at one time, over all next hops.
    pub in_flight_max: usize,
    /// The window of any next hop never grows beyond this.
    pub window_max: u32,
}

/// A leg of a call: 0 is the caller's, 1 the callee's.
pub type LegId = (CallId, u8);

/// Who goes first when not all can. Both legs of a call are given the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Two people talk.
    Talking,
    /// One holds the other.
    Held,
}

/// The window that a next hop starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A registered phone: one.
    Phone,
    /// Anything else: 32.
    Trunk,
}

/// How a re-INVITE ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered with 2xx.
    Success,
    /// Answered with 503 or 486, or not at all: the peer has too much to do. After a 503 only one
    /// probe a second goes there for this long.
    Overload(Duration),
    /// Anything else, which says nothing about the peer's load.
    Other,
}

type Turn = (Urgency, u64, LegId);

#[derive(Debug)]
struct Entry {
    hop: SocketAddr,
    turn: Turn,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// In a queue.
    Waiting,
    /// In flight, with a place in the windows until then.
    Open { until: Instant, proceeds: bool },
    /// In flight for so long that the place is another's.
    Overdue,
}

#[derive(Debug)]
struct Hop {
    window: u32,
    start: u32,
    in_flight: u32,
    /// Legs that wait for this hop, in either queue, or are in flight.
    legs: u32,
    frozen_until: Option<Instant>,
    probe_at: Option<Instant>,
    armed: Option<Instant>,
    waiting: BTreeSet<Turn>,
}

impl Pacer {
    /// Returns a pacer with nothing to let out.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            legs: BTreeMap::new(),
            ready: BTreeSet::new(),
            hops: BTreeMap::new(),
            thaws: BTreeSet::new(),
            places: BTreeSet::new(),
            in_flight: 0,
            sequence: 0,
        }
    }

    /// Puts a leg in the queue. Does nothing when it waits or is in flight already.
    pub fn push(&mut self, leg: LegId, hop: SocketAddr, peer: Peer, urgency: Urgency) {
        if self.legs.contains_key(&leg) {
            return;
        }
        let turn = (urgency, self.sequence, leg);
        self.sequence += 1;
        let start = match peer {
            Peer::Phone => PHONE_WINDOW,
            Peer::Trunk => TRUNK_WINDOW,
        };
        self.hops.entry(hop).or_insert_with(|| Hop::new(start)).legs += 1;
        self.legs.insert(leg, Entry { hop, turn, stage: Stage::Waiting });
        self.ready.insert(turn);
    }

    /// Counts a leg as in flight that was so before a rebuild.
    pub fn resume(
        &mut self,
        now: Instant,
        leg: LegId,
        hop: SocketAddr,
        peer: Peer,
        urgency: Urgency,
    ) {
        self.push(leg, hop, peer, urgency);
        let Some(entry) = self.legs.get_mut(&leg) else { return };
        if entry.stage == Stage::Waiting {
            self.ready.remove(&entry.turn);
            self.in_flight += 1;
            if let Some(hop) = self.hops.get_mut(&hop) {
                hop.waiting.remove(&entry.turn);
                hop.in_flight += 1;
            }
            let until = now + SILENCE_MAX;
            entry.stage = Stage::Open { until, proceeds: false };
            self.places.insert((until, leg));
        }
    }

    /// Notes that a provisional answer of a leg came: the final one may take until `until`, and the leg
    /// keeps its place 2 s longer.
    pub fn proceed(&mut self, leg: LegId, until: Instant) {
        if let Some(Entry { stage: Stage::Open { until: end, proceeds }, .. }) =
            self.legs.get_mut(&leg)
        {
            self.places.remove(&(*end, leg));
            (*end, *proceeds) = (until + SILENCE_MAX, true);
            self.places.insert((*end, leg));
        }
    }

    /// Returns the next leg that may be told now; it is in flight from then on, until
    /// [`Pacer::finish`].
    pub fn next(&mut self, now: Instant) -> Option<LegId> {
        while self.in_flight < self.config.in_flight_max {
            let turn = self.ready.pop_first()?;
            let leg = turn.2;
            // A queued leg has an entry, and its hop is known.
            let Some(entry) = self.legs.get_mut(&leg) else { continue };
            let Some(hop) = self.hops.get_mut(&entry.hop) else { continue };
            if hop.admit(now) {
                self.in_flight += 1;
                let until = now + SILENCE_MAX;
                entry.stage = Stage::Open { until, proceeds: false };
                self.places.insert((until, leg));
                return Some(leg);
            }
            hop.waiting.insert(turn);
            let (addr, thaw_at) = (entry.hop, hop.thaw_at(now));
            self.arm(addr, thaw_at);
        }
        None
    }

    /// Takes a leg out of flight, or out of the queue.
    pub fn finish(&mut self, now: Instant, leg: LegId, outcome: Outcome) {
        let Some(entry) = self.legs.remove(&leg) else { return };
        self.ready.remove(&entry.turn);
        let hop = self.hops.get_mut(&entry.hop).expect("a leg's hop is known");
        hop.waiting.remove(&entry.turn);
        hop.legs -= 1;
        match entry.stage {
            Stage::Waiting => {}
            Stage::Open { until, .. } => {
                self.places.remove(&(until, leg));
                self.in_flight -= 1;
                hop.in_flight -= 1;
                hop.learn(now, outcome, self.config.window_max);
            }
            Stage::Overdue => hop.learn(now, outcome, self.config.window_max),
        }
        self.wake(now, entry.hop);
    }

    /// Lets out of the frozen hops' queues what may be probed at `now`, and gives the places of legs that
    /// are silent to others.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(at, leg)) = self.places.first()
            && at <= now
        {
            self.places.pop_first();
            self.displace(now, leg);
        }
        while let Some(&(at, addr)) = self.thaws.first()
            && at <= now
        {
            self.arm(addr, None);
            self.wake(now, addr);
        }
    }

    /// Returns when [`Pacer::handle_timeout`] is next needed.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let thaw_at = self.thaws.first().map(|&(at, _)| at);
        let place_until = self.places.first().map(|&(until, _)| until);
        thaw_at.into_iter().chain(place_until).min()
    }

    /// Returns how many legs are in flight and not overdue.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Takes the place of a leg in flight away.
    fn displace(&mut self, now: Instant, leg: LegId) {
        let Some(entry) = self.legs.get_mut(&leg) else { return };
        let stage = std::mem::replace(&mut entry.stage, Stage::Overdue);
        let addr = entry.hop;
        let hop = self.hops.get_mut(&addr).expect("a leg's hop is known");
        self.in_flight -= 1;
        hop.in_flight -= 1;
        if let Stage::Open { proceeds: false, .. } = stage {
            // It may have too much to do to say even that it tries.
            hop.learn(now, Outcome::Overload(Duration::ZERO), self.config.window_max);
        }
        self.wake(now, addr);
    }

    /// Moves as many waiting legs of a hop as it has room for back into the common queue, and
    /// forgets the hop when nothing is left of it.
    fn wake(&mut self, now: Instant, addr: SocketAddr) {
        let Some(hop) = self.hops.get_mut(&addr) else { return };
        for _ in 0..hop.room(now) {
            let Some(turn) = hop.waiting.pop_first() else { break };
            self.ready.insert(turn);
        }
        let thaw_at = if hop.legs == 0 {
            hop.frozen_until.filter(|until| now < *until)
        } else if hop.waiting.is_empty() {
            None
        } else {
            hop.thaw_at(now)
        };
        if hop.legs == 0 && thaw_at.is_none() {
            self.arm(addr, None);
            self.hops.remove(&addr);
        } else {
            self.arm(addr, thaw_at);
        }
    }

    fn arm(&mut self, addr: SocketAddr, at: Option<Instant>) {
        let Some(hop) = self.hops.get_mut(&addr) else { return };
        if let Some(old) = hop.armed.take() {
            self.thaws.remove(&(old, addr));
        }
        if let Some(at) = at {
            hop.armed = Some(at);
            self.thaws.insert((at, addr));
        }
    }
}

impl Hop {
    fn new(start: u32) -> Self {
        Self {
            window: start,
            start,
            in_flight: 0,
            legs: 0,
            frozen_until: None,
            probe_at: None,
            armed: None,
            waiting: BTreeSet::new(),
        }
    }

    fn is_frozen(&self, now: Instant) -> bool {
        self.frozen_until.is_some_and(|until| now < until)
    }

    fn room(&self, now: Instant) -> u32 {
        if self.is_frozen(now) {
            u32::from(self.in_flight == 0 && self.probe_at.is_none_or(|at| at <= now))
        } else {
            self.window.saturating_sub(self.in_flight)
        }
    }

    fn admit(&mut self, now: Instant) -> bool {
        if self.room(now) == 0 {
            return false;
        }
        if self.is_frozen(now) {
            self.probe_at = Some(now + PROBE_INTERVAL);
        }
        self.in_flight += 1;
        true
    }

    /// When a frozen hop has room again without an answer.
    fn thaw_at(&self, now: Instant) -> Option<Instant> {
        let until = self.frozen_until.filter(|until| now < *until)?;
        Some(self.probe_at.map_or(until, |at| at.min(until)).max(now + Duration::from_millis(1)))
    }

    fn learn(&mut self, now: Instant, outcome: Outcome, window_max: u32) {
        match outcome {
            Outcome::Success => {
                self.window = self.window.saturating_add(1).min(window_max.max(self.start));
                self.frozen_until = None;
                self.probe_at = None;
            }
            Outcome::Overload(frozen) => {
                self.window = (self.window / 2).max(1);
                if !frozen.is_zero() {
                    self.frozen_until = Some(now + frozen.min(FROZEN_MAX));
                    self.probe_at = Some(now + PROBE_INTERVAL);
                }
            }
            Outcome::Other => {}
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self { in_flight_max: 4000, window_max: 1024 }
    }
}

const PHONE_WINDOW: u32 = 1;
const TRUNK_WINDOW: u32 = 32;

/// How often a hop that asked for quiet is asked whether it still needs it: its calls have no voice.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// A leg of which nothing is heard gives its place up: timer B of 32 s is longer than a call without
/// voice lives.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// A peer that asks for more is not believed.
const FROZEN_MAX: Duration = Duration::from_secs(32);

#[cfg(test)]
mod tests;
