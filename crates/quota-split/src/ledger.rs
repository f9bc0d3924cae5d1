//! Counts calls at their profile and every tenant above it, and says no.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use siphasher::sip::SipHasher13;

use crate::{NodeId, Tree};

use check::{Cell, Extra, Rate, State, check, count};

pub use audit::{Drift, View};

mod audit;
mod check;

/// The calls of one segment, counted at every node they touch.
///
/// A call counts at its profile and at every tenant above, everywhere or nowhere, once, until
/// [`release`](Self::release). What this segment may carry at a node is its *share*; it is zero
/// until [`set_share`](Self::set_share), and endless where the tree sets no limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ledger {
    nodes: Vec<State>,
    extras: Vec<Extra>,
    limits: Vec<[Option<u32>; 3]>,
    elsewhere: Vec<[Option<u32>; 3]>,
    calls: Vec<Option<Call>>,
    free: Vec<u32>,
    places: Places,
    started_at: Instant,
    underflows: u64,
}

/// A call by a number that its owner gives it and to no other call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// A live call and where it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// Its number.
    pub id: CallId,
    /// Its profile, or its tenant when it has none.
    pub node: NodeId,
    /// Which way it goes.
    pub direction: Direction,
}

/// Which way a call goes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub enum Direction {
    /// It came in from a gateway.
    Inbound,
    /// It goes out to one.
    Outbound,
}

/// What is counted at a node.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub enum Counter {
    /// Calls both ways.
    Calls,
    /// Calls that came in.
    Inbound,
    /// Calls that go out.
    Outbound,
}

/// How a call was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Admission {
    /// The highest burst level that it reached at a node: 1, 2 or 3. Belongs on its record.
    pub level: u8,
    /// The first node whose soft limit it passes.
    pub over: Option<NodeId>,
    /// Whether it had been let in before; then it was not counted again.
    pub again: bool,
}

/// Why a call was refused. Nothing was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("node {}: {what} of this segment is {share} of {limit}, used {used} here", .node.0)]
pub struct Refusal {
    /// The node that is full.
    pub node: NodeId,
    /// What is full there.
    pub what: Full,
    /// The limit over all segments.
    pub limit: u32,
    /// The part of it that this segment has.
    pub share: u32,
    /// How much of its part this segment uses.
    pub used: u32,
    /// How much the others were last known to use.
    pub elsewhere: Option<u32>,
}

/// What stopped a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Full {
    /// Calls at a time.
    Counter(Counter),
    /// New calls a second.
    PerSecond,
}

/// Where a call stands in `Ledger::calls`; never iterated, and no part of what a ledger is.
#[derive(Clone, Debug)]
struct Places(HashMap<CallId, u32, Key>);

#[derive(Clone, Copy, Debug)]
struct Key(u64);

const NONE: u32 = u32::MAX;

/// No segment can carry so many calls: a call needs more than a byte.
const ENDLESS: u32 = u32::MAX;

impl Ledger {
    /// Starts with no call and no share of any limit. `seed` keys the look-up of calls.
    pub fn new(tree: &Tree, seed: u64, now: Instant) -> Self {
        let mut ledger = Self {
            nodes: Vec::with_capacity(tree.len()),
            extras: Vec::new(),
            limits: Vec::with_capacity(tree.len()),
            elsewhere: vec![[None; 3]; tree.len()],
            calls: Vec::new(),
            free: Vec::new(),
            places: Places(HashMap::with_hasher(Key(seed))),
            started_at: now,
            underflows: 0,
        };
        for (id, node) in tree.iter() {
            let limits = [node.limits.hard(), node.limits.inbound, node.limits.outbound];
            let cell = |limit: Option<u32>| Cell { share: limit.map_or(ENDLESS, |_| 0), used: 0 };
            let rate = node.limits.per_second;
            let rate = rate.map(|limit| Rate { limit, share: 0, opened: Duration::ZERO, count: 0 });
            let levels = [0, 1].map(|level| node.limits.burst[level].map_or(ENDLESS, |_| 0));
            let plain = !node.limits.soft && levels == [ENDLESS; 2] && rate.is_none();
            let extra = if plain { NONE } else { narrow(ledger.extras.len()) };
            if !plain {
                ledger.extras.push(Extra { soft: node.limits.soft, levels, rate });
            }
            let parent = tree.parent(id).map_or(NONE, |parent| parent.0);
            ledger.nodes.push(State {
                parent,
                extra,
                cells: limits.map(cell),
                peak: 0,
                refused: 0,
            });
            ledger.limits.push(limits);
        }
        ledger
    }

    /// Counts a call, or says where it does not fit. An `exempt` call (emergency) is counted
    /// whatever the limits say. A call that is counted already stays so, once.
    ///
    /// # Panics
    ///
    /// Panics when the call's node comes from a larger tree.
    pub fn admit(&mut self, now: Instant, call: Call, exempt: bool) -> Result<Admission, Refusal> {
        let Self { nodes, extras, places, calls, free, .. } = self;
        let Entry::Vacant(entry) = places.0.entry(call.id) else {
            return Ok(Admission { level: 1, over: None, again: true });
        };
        let since = now.saturating_duration_since(self.started_at);
        let admission = match check(nodes, extras, since, call) {
            Ok(admission) => admission,
            Err(_) if exempt => Admission { level: 1, over: None, again: false },
            Err((node, what)) => {
                let refused = &mut nodes[node.index()].refused;
                *refused = refused.saturating_add(1);
                return Err(self.refusal(node, what));
            }
        };
        let place = free.pop().unwrap_or_else(|| {
            calls.push(None);
            narrow(calls.len() - 1)
        });
        calls[place as usize] = Some(call);
        entry.insert(place);
        if count(nodes, call) {
            self.count_rates(since, call.node);
        }
        Ok(admission)
    }

    /// Tells whether a call would fit, without counting it.
    ///
    /// # Panics
    ///
    /// Panics when the call's node comes from a larger tree.
    pub fn probe(&self, now: Instant, call: Call) -> Result<Admission, Refusal> {
        let since = now.saturating_duration_since(self.started_at);
        let checked = check(&self.nodes, &self.extras, since, call);
        checked.map_err(|(node, what)| self.refusal(node, what))
    }

    /// Ends a call, whatever ended it; tells whether it was counted until now.
    pub fn release(&mut self, id: CallId) -> bool {
        let Some(place) = self.places.0.remove(&id) else { return false };
        let Some(call) = self.calls[place as usize].take() else { return false };
        self.free.push(place);
        let mut at = call.node.0;
        while at != NONE {
            let state = &mut self.nodes[at as usize];
            for counter in [Counter::Calls, call.direction.counter()] {
                let used = &mut state.cells[counter.index()].used;
                match used.checked_sub(1) {
                    Some(less) => *used = less,
                    None => self.underflows += 1,
                }
            }
            at = state.parent;
        }
        true
    }

    /// Returns a call that is counted.
    pub fn call(&self, id: CallId) -> Option<Call> {
        self.calls[*self.places.0.get(&id)? as usize]
    }

    /// Sets what this segment may carry at a node. Does nothing where the tree sets no limit.
    ///
    /// # Panics
    ///
    /// Panics when `node` comes from a larger tree.
    pub fn set_share(&mut self, node: NodeId, counter: Counter, share: u32) {
        if self.limits[node.index()][counter.index()].is_some() {
            self.nodes[node.index()].cells[counter.index()].share = share.min(ENDLESS - 1);
        }
    }

    /// Sets where burst levels 1 and 2 end on this segment, where the tree sets them at all.
    ///
    /// # Panics
    ///
    /// Panics when `node` comes from a larger tree.
    pub fn set_levels(&mut self, node: NodeId, levels: [u32; 2]) {
        if let Some(extra) = self.extra_mut(node) {
            for (old, new) in extra.levels.iter_mut().zip(levels) {
                *old = if *old == ENDLESS { ENDLESS } else { new.min(ENDLESS - 1) };
            }
        }
    }

    /// Sets how many new calls a second this segment may take at a node, where the tree limits them.
    ///
    /// # Panics
    ///
    /// Panics when `node` comes from a larger tree.
    pub fn set_rate(&mut self, node: NodeId, share: u32) {
        if let Some(rate) = self.extra_mut(node).and_then(|extra| extra.rate.as_mut()) {
            rate.share = share;
        }
    }

    /// Takes every limit whole: for a segment that shares with nobody.
    pub fn take_everything(&mut self, tree: &Tree) {
        for (id, node) in tree.iter() {
            let limits = node.limits;
            let whole = [limits.hard(), limits.inbound, limits.outbound];
            for (counter, limit) in Counter::ALL.into_iter().zip(whole) {
                self.set_share(id, counter, limit.unwrap_or(0));
            }
            self.set_levels(id, [limits.calls, limits.burst[0]].map(|level| level.unwrap_or(0)));
            self.set_rate(id, limits.per_second.unwrap_or(0));
        }
    }

    /// Notes how many calls the other segments have, for refusals and views.
    ///
    /// # Panics
    ///
    /// Panics when `node` comes from a larger tree.
    pub fn set_elsewhere(&mut self, node: NodeId, counter: Counter, used: Option<u32>) {
        self.elsewhere[node.index()][counter.index()] = used;
    }

    /// Returns how many calls are counted.
    pub fn len(&self) -> usize {
        self.calls.len() - self.free.len()
    }

    /// Tells whether no call is counted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counts a call in the windows of the rates it touches.
    fn count_rates(&mut self, since: Duration, node: NodeId) {
        let mut at = node.0;
        while at != NONE {
            let state = &self.nodes[at as usize];
            let extra = self.extras.get_mut(state.extra as usize);
            if let Some(rate) = extra.and_then(|extra| extra.rate.as_mut()) {
                if rate.is_over(since) {
                    (rate.opened, rate.count) = (since, 0);
                }
                rate.count = rate.count.saturating_add(1);
            }
            at = state.parent;
        }
    }

    fn refusal(&self, node: NodeId, what: Full) -> Refusal {
        let state = &self.nodes[node.index()];
        match what {
            Full::Counter(counter) => {
                let View { limit, used, elsewhere, .. } = self.view(node, counter);
                let share = state.cells[counter.index()].share;
                Refusal { node, what, limit: limit.unwrap_or(ENDLESS), share, used, elsewhere }
            }
            Full::PerSecond => {
                let rate = self.extras.get(state.extra as usize).and_then(|extra| extra.rate);
                let (limit, share, used) =
                    rate.map_or((0, 0, 0), |rate| (rate.limit, rate.share, rate.count));
                Refusal { node, what, limit, share, used, elsewhere: None }
            }
        }
    }

    fn extra_mut(&mut self, node: NodeId) -> Option<&mut Extra> {
        self.extras.get_mut(self.nodes[node.index()].extra as usize)
    }
}

impl Call {
    /// Returns the call as another tree numbers its nodes; `None` where nothing is left that it counts at.
    pub(crate) fn moved(self, old: &Tree, new: &Tree) -> Option<Self> {
        Some(Self { node: new.find_from(old, self.node)?, ..self })
    }
}

impl Direction {
    /// Returns the counter of this direction alone.
    pub fn counter(self) -> Counter {
        match self {
            Self::Inbound => Counter::Inbound,
            Self::Outbound => Counter::Outbound,
        }
    }
}

impl Counter {
    /// All that is counted at a node.
    pub const ALL: [Self; 3] = [Self::Calls, Self::Inbound, Self::Outbound];

    pub(crate) fn index(self) -> usize {
        match self {
            Self::Calls => 0,
            Self::Inbound => 1,
            Self::Outbound => 2,
        }
    }
}

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Counter(Counter::Calls) => "the share of calls",
            Self::Counter(Counter::Inbound) => "the share of inbound calls",
            Self::Counter(Counter::Outbound) => "the share of outbound calls",
            Self::PerSecond => "the share of new calls a second",
        })
    }
}

impl BuildHasher for Key {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0, !self.0)
    }
}

impl PartialEq for Places {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Places {}

impl Hash for Places {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

fn narrow(len: usize) -> u32 {
    u32::try_from(len).expect("a ledger has fewer than 2^32 nodes and calls")
}

#[cfg(test)]
mod tests;
