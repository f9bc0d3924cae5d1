//! Whole segments from one seed: b2bs, gates and a witness, with links that break, datagrams that are
//! lost, processes that die, pause and come back, and clocks of their own speed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use super::super::*;
use crate::UnixMs;
use crate::voter::{Bid, Vote, Voter};

mod harm;

/// Who is there. Numbers are node ids; a node can be a b2b and a gate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// With whether it starts as a standby.
    pub(super) b2bs: &'static [(u16, bool)],
    pub(super) gates: &'static [u16],
    pub(super) witness: Option<u16>,
}

pub(super) struct World {
    origin: Instant,
    /// The time of nobody's clock.
    us: u64,
    numbers: u64,
    events: BTreeMap<(u64, u64), Event>,
    layout: Layout,
    nodes: BTreeMap<NodeId, Node>,
    links: BTreeMap<(NodeId, NodeId), Link>,
    /// Nothing goes from the one to the other, since when.
    cuts: BTreeMap<(NodeId, NodeId), u64>,
    random: u64,
    /// Datagrams lost, in a thousand.
    pub(super) loss: u64,
    /// The longest way of a datagram or frame.
    pub(super) delay_max_us: u64,
    /// What happened, for a failing seed.
    pub(super) story: Vec<String>,
    /// Whether b2bs look at their lease.
    pub(super) checks_lease: bool,
}

struct Node {
    boot: u64,
    life: Life,
    inbox: VecDeque<(Item, Option<u64>)>,
    voter: Option<Voter>,
    b2b: Option<Ownership>,
    /// How much faster its clock runs, in a million.
    skew: i64,
    timer_us: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Runs,
    Paused,
    /// The process is gone, and its host says so.
    Killed,
    /// The host is gone too.
    Unplugged,
}

/// A control link.
#[derive(Default)]
struct Link {
    is_up: bool,
    /// Which connection this is.
    number: u64,
    /// What waits for a cut to heal, and when the last frame arrives, of either direction.
    waiting: BTreeMap<NodeId, VecDeque<Item>>,
    last_us: BTreeMap<NodeId, u64>,
}

#[derive(Clone, Debug)]
enum Event {
    /// With the connection that carries it, if one does.
    Arrive {
        to: NodeId,
        item: Item,
        number: Option<u64>,
    },
    Timer(NodeId),
    Resume(NodeId),
    Restart(NodeId),
    Heal(NodeId, NodeId),
    /// A link that was cut for so long ends.
    Expire(NodeId, NodeId),
    Connect,
}

#[derive(Clone, Debug)]
enum Item {
    Pulse(Pulse),
    Back(PulseBack),
    Refused(NodeId),
    Bid(NodeId, Bid),
    Vote(NodeId, Vote),
    Map(NodeId, SlotMap),
    LinkUp(NodeId, Boot),
    LinkDown(NodeId),
    Synced(NodeId, SlotSet),
    HandOver(NodeId, SlotSet, Epoch),
}

impl World {
    #[expect(clippy::disallowed_methods, reason = "an origin for the test")]
    pub(super) fn new(layout: Layout, seed: u64) -> Self {
        let mut world = Self {
            origin: Instant::now(),
            us: 0,
            numbers: 0,
            events: BTreeMap::new(),
            layout,
            nodes: BTreeMap::new(),
            links: BTreeMap::new(),
            cuts: BTreeMap::new(),
            random: seed,
            loss: 0,
            delay_max_us: 1000,
            story: Vec::new(),
            checks_lease: true,
        };
        let b2bs = layout.b2bs.iter().map(|(id, _)| *id);
        let ids: BTreeSet<NodeId> =
            b2bs.chain(layout.gates.iter().copied()).chain(layout.witness).map(NodeId).collect();
        for &id in &ids {
            let skew = i64::try_from(world.draw(10_000)).unwrap() - 5000;
            let node = Node {
                boot: 0,
                life: Life::Killed,
                inbox: VecDeque::new(),
                voter: None,
                b2b: None,
                skew,
                timer_us: None,
            };
            world.nodes.insert(id, node);
            world.start(id);
        }
        for &a in &ids {
            for &b in ids.iter().filter(|b| a < **b) {
                world.links.insert((a, b), Link::default());
            }
        }
        world.schedule(0, Event::Connect);
        world
    }

    pub(super) fn draw(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    pub(super) fn ms(&self) -> u64 {
        self.us / 1000
    }

    pub(super) fn ids(&self) -> Vec<NodeId> {
        self.nodes.keys().copied().collect()
    }

    pub(super) fn advance(&mut self, ms: u64) {
        let end = self.us + ms * 1000;
        while let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= end) {
            self.us = entry.key().0;
            let event = entry.remove();
            self.happen(event);
            self.check();
        }
        self.us = end;
    }

    pub(super) fn is_dead(&self, id: NodeId) -> bool {
        matches!(self.nodes[&id].life, Life::Killed | Life::Unplugged)
    }

    pub(super) fn is_running_b2b(&self, id: NodeId) -> bool {
        self.nodes[&id].life == Life::Runs && self.nodes[&id].b2b.is_some()
    }

    pub(super) fn b2b(&self, id: u16) -> &Ownership {
        self.nodes[&NodeId(id)].b2b.as_ref().expect("a living b2b")
    }

    pub(super) fn may_act(&self, id: u16) -> bool {
        self.b2b(id).may_act(self.local(NodeId(id)))
    }

    /// Returns the one that acts for `slot` and whom every living gate takes frames from.
    pub(super) fn owner(&self, slot: Slot) -> Option<NodeId> {
        let acting: Vec<_> = self.acting(slot).collect();
        let [(owner, epoch)] = acting[..] else { return None };
        let gates = self.layout.gates.iter().map(|id| NodeId(*id));
        let mut living = gates.filter(|gate| !self.is_dead(*gate));
        let agree = living.all(|gate| {
            let voter = self.nodes[&gate].voter.as_ref().expect("a living gate");
            voter.accepts(self.local(gate), slot, epoch)
                && voter.map().get(slot).is_some_and(|reign| reign.owner == owner)
        });
        agree.then_some(owner)
    }

    /// Returns how often any living b2b took what was another's.
    pub(super) fn takeovers(&self) -> u64 {
        let b2bs = self.nodes.values().filter_map(|node| node.b2b.as_ref());
        b2bs.map(|b2b| b2b.counters().takeovers).sum()
    }

    fn acting(&self, slot: Slot) -> impl Iterator<Item = (NodeId, Epoch)> + '_ {
        self.nodes.iter().filter_map(move |(id, node)| {
            let b2b = node.b2b.as_ref().filter(|_| node.life == Life::Runs)?;
            let acts =
                b2b.own().contains(slot) && (!self.checks_lease || b2b.may_act(self.local(*id)));
            acts.then(|| (*id, b2b.map().get(slot).expect("an owned slot").epoch))
        })
    }

    /// No two b2bs act for one slot and are heard by phones.
    fn check(&self) {
        for slot in SAMPLE {
            let acting: Vec<_> = self.acting(slot).collect();
            if acting.len() < 2 {
                continue;
            }
            let passes = |epoch| {
                let gates =
                    self.layout.gates.iter().map(|id| (NodeId(*id), &self.nodes[&NodeId(*id)]));
                gates
                    .filter_map(|(id, node)| Some((id, node.voter.as_ref()?)))
                    .any(|(id, voter)| voter.accepts(self.local(id), slot, epoch))
            };
            let heard: Vec<_> = acting.iter().filter(|(_, epoch)| passes(*epoch)).collect();
            assert!(
                heard.len() < 2,
                "two emitters of {slot} at {} ms: {heard:?}\n{}",
                self.ms(),
                self.story.join("\n")
            );
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive { to, item, number } => self.arrive(to, item, number),
            Event::Timer(id) => {
                let us = self.us;
                let node = self.node(id);
                if node.timer_us == Some(us) {
                    node.timer_us = None;
                    if node.life == Life::Runs {
                        self.time(id);
                    }
                }
            }
            Event::Resume(id) => self.resume(id),
            Event::Restart(id) => self.restart(id),
            Event::Heal(from, to) => self.heal(from, to),
            Event::Expire(a, b) => {
                let since = [(a, b), (b, a)].map(|way| self.cuts.get(&way).copied());
                let is_cut = since.iter().flatten().any(|since| since + LINK_TIMEOUT_US <= self.us);
                if is_cut || self.is_dead(a) || self.is_dead(b) {
                    self.end_link(a, b);
                }
            }
            Event::Connect => {
                let down = self.links.iter().filter(|(_, link)| !link.is_up);
                let down: Vec<_> = down.map(|(key, _)| *key).collect();
                down.into_iter().for_each(|(a, b)| self.connect(a, b));
                self.schedule(50_000, Event::Connect);
            }
        }
    }

    fn connect(&mut self, a: NodeId, b: NodeId) {
        let is_cut = self.cuts.contains_key(&(a, b)) || self.cuts.contains_key(&(b, a));
        let runs = |id: NodeId| self.nodes[&id].life == Life::Runs;
        if is_cut || !runs(a) || !runs(b) {
            return;
        }
        self.numbers += 1;
        let link = self.links.get_mut(&(a, b)).expect("a link");
        *link = Link { is_up: true, number: self.numbers, ..Link::default() };
        for (to, peer) in [(a, b), (b, a)] {
            let boot = Boot(self.nodes[&peer].boot);
            self.frame(peer, to, Item::LinkUp(peer, boot));
        }
    }

    fn end_link(&mut self, a: NodeId, b: NodeId) {
        let link = self.links.get_mut(&(a, b)).expect("a link");
        if std::mem::take(&mut link.is_up) {
            link.waiting.clear();
            link.number = 0;
            for (to, peer) in [(a, b), (b, a)] {
                let item = Item::LinkDown(peer);
                self.schedule(500, Event::Arrive { to, item, number: None });
            }
        }
    }

    fn links_of(&self, id: NodeId) -> Vec<(NodeId, NodeId)> {
        self.links.keys().copied().filter(|(a, b)| *a == id || *b == id).collect()
    }

    fn start(&mut self, id: NodeId) {
        let layout = self.layout;
        let now = self.local(id);
        let unix_ms = UnixMs(1_800_000_000_000 + self.us / 1000);
        let node = self.node(id);
        node.boot += 1;
        node.life = Life::Runs;
        let boot = Boot(node.boot);
        let gates: BTreeSet<NodeId> = layout.gates.iter().map(|id| NodeId(*id)).collect();
        let witness = layout.witness.map(NodeId);
        if gates.contains(&id) || witness == Some(id) {
            node.voter = Some(Voter::new(now, id, boot));
        }
        let member = |(id, standby): &(u16, bool)| {
            (NodeId(*id), Member { standby: *standby, host: format!("server{id}") })
        };
        let b2bs: BTreeMap<_, _> = layout.b2bs.iter().map(member).collect();
        if b2bs.contains_key(&id) {
            let clock = Clock { instant: now, unix_ms };
            let config = Config { node: id, boot, clock, gates, witness, b2bs };
            node.b2b = Some(Ownership::new(now, config));
        }
        self.drain_outputs(id);
    }

    fn resume(&mut self, id: NodeId) {
        if self.node(id).life != Life::Paused {
            return;
        }
        self.tell(&format!("resume {id}"));
        self.node(id).life = Life::Runs;
        if self.draw(2) == 0 {
            self.time(id);
        }
        while let Some((item, number)) = self.node(id).inbox.pop_front() {
            self.arrive(id, item, number);
        }
        self.time(id);
    }

    fn time(&mut self, id: NodeId) {
        let now = self.local(id);
        if let Some(b2b) = &mut self.node(id).b2b {
            b2b.handle_timeout(now);
            assert!(b2b.poll_timeout().is_some_and(|at| now < at));
        }
        self.drain_outputs(id);
    }

    fn arrive(&mut self, to: NodeId, item: Item, number: Option<u64>) {
        if let (Some(number), Some(from)) = (number, item.from()) {
            let link = &self.links[&(from.min(to), from.max(to))];
            if link.number != number {
                return;
            }
        }
        let node = self.node(to);
        match node.life {
            Life::Killed | Life::Unplugged => {}
            Life::Paused => node.inbox.push_back((item, number)),
            Life::Runs => {
                if let Item::Synced(peer, _) = item
                    && self.nodes[&peer].life == Life::Paused
                {
                    // Who is paused acknowledges nothing.
                    self.schedule(50_000, Event::Arrive { to, item, number });
                    return;
                }
                self.take(to, item);
            }
        }
    }

    fn take(&mut self, id: NodeId, item: Item) {
        let now = self.local(id);
        let node = self.node(id);
        let boot = Boot(node.boot);
        match item {
            Item::Pulse(pulse) => {
                let back = match &mut node.voter {
                    Some(voter) => voter.pulse(now, &pulse),
                    None => pulse.back(id, boot),
                };
                let to = pulse.node;
                self.datagram(id, to, Item::Back(back));
                self.input(id, Input::Pulse(pulse));
            }
            Item::Back(back) => self.input(id, Input::Back(back)),
            Item::Refused(peer) => self.input(id, Input::Refused(peer)),
            Item::Bid(from, bid) => {
                if let Some(voter) = &mut node.voter {
                    let vote = voter.bid(now, &bid);
                    self.frame(id, from, Item::Vote(id, vote));
                }
            }
            Item::Vote(from, vote) => self.input(id, Input::Vote { from, vote }),
            Item::Map(from, map) => {
                if let Some(voter) = &mut node.voter {
                    voter.name(now, from, &map);
                }
                self.input(id, Input::Map { from, map });
            }
            Item::LinkUp(peer, boot) => {
                if let Some(voter) = &node.voter {
                    let map = voter.map().clone();
                    self.frame(id, peer, Item::Map(id, map));
                }
                self.input(id, Input::LinkUp { peer, boot });
            }
            Item::LinkDown(peer) => {
                self.input(id, Input::LinkDown(peer));
                self.input(id, Input::Unsynced { peer, slots: SlotSet::ALL });
            }
            Item::Synced(peer, slots) => self.input(id, Input::Synced { peer, slots }),
            Item::HandOver(from, slots, epoch) => {
                self.input(id, Input::HandOver { from, slots, epoch });
            }
        }
    }

    fn input(&mut self, id: NodeId, input: Input) {
        let now = self.local(id);
        if let Some(b2b) = &mut self.node(id).b2b {
            b2b.handle_input(now, input);
        }
        self.drain_outputs(id);
    }

    fn drain_outputs(&mut self, id: NodeId) {
        while let Some(output) = self.node(id).b2b.as_mut().and_then(Ownership::poll_output) {
            let now = self.local(id);
            match output {
                Output::Pulse { to, pulse } if to == id => {
                    let voter = self.node(id).voter.as_mut().expect("a vote of its own");
                    let back = voter.pulse(now, &pulse);
                    self.input(id, Input::Back(back));
                }
                Output::Bid { to, bid } if to == id => {
                    let voter = self.node(id).voter.as_mut().expect("a vote of its own");
                    let vote = voter.bid(now, &bid);
                    self.input(id, Input::Vote { from: id, vote });
                }
                Output::Map { to, map } if to == id => {
                    let voter = self.node(id).voter.as_mut().expect("a vote of its own");
                    voter.name(now, id, &map);
                }
                Output::Pulse { to, pulse } => self.datagram(id, to, Item::Pulse(pulse)),
                Output::Bid { to, bid } => {
                    if !bid.trial {
                        self.tell(&format!(
                            "{id} bids {} for {} to {to}",
                            bid.epoch.0,
                            bid.slots.len()
                        ));
                    }
                    self.frame(id, to, Item::Bid(id, bid));
                }
                Output::Map { to, map } => self.frame(id, to, Item::Map(id, map)),
                Output::Own { slots, epoch } => {
                    self.tell(&format!("{id} owns {} at {}", slots.len(), epoch.0));
                }
                Output::Lose { slots } => self.tell(&format!("{id} loses {}", slots.len())),
                Output::Standby { slots, standby: Some(to), .. } => {
                    let number = self.links[&(id.min(to), id.max(to))].number;
                    let wait = 5000 + self.draw(50_000);
                    let item = Item::Synced(to, slots);
                    self.schedule(wait, Event::Arrive { to: id, item, number: Some(number) });
                }
                Output::Standby { standby: None, .. } => {}
                Output::HandOver { slots, to, epoch } => {
                    self.tell(&format!("{id} gives {} to {to}", slots.len()));
                    self.frame(id, to, Item::HandOver(id, slots, epoch));
                }
            }
        }
        self.arm(id);
    }

    /// Asks for the timeout of a b2b.
    fn arm(&mut self, id: NodeId) {
        let (origin, us) = (self.origin, self.us);
        let node = self.node(id);
        let Some(at) = node.b2b.as_ref().and_then(Ownership::poll_timeout) else { return };
        let local = u64::try_from((at - origin).as_micros()).unwrap();
        let wanted = (local * 1_000_000).div_ceil((1_000_000 + node.skew).unsigned_abs()) + 1;
        let wanted = wanted.max(us + 1);
        if node.timer_us.is_none_or(|timer_us| wanted < timer_us || timer_us <= us) {
            node.timer_us = Some(wanted);
            self.schedule(wanted - us, Event::Timer(id));
        }
    }

    fn datagram(&mut self, from: NodeId, to: NodeId, item: Item) {
        if self.draw(1000) < self.loss || self.cuts.contains_key(&(from, to)) {
            return;
        }
        let wait = self.delay();
        if self.nodes[&to].life == Life::Killed {
            if !self.cuts.contains_key(&(to, from)) {
                let item = Item::Refused(to);
                self.schedule(2 * wait, Event::Arrive { to: from, item, number: None });
            }
        } else {
            self.schedule(wait, Event::Arrive { to, item, number: None });
        }
    }

    fn frame(&mut self, from: NodeId, to: NodeId, item: Item) {
        let wait = self.delay();
        let is_cut = self.cuts.contains_key(&(from, to));
        let us = self.us;
        let link = self.links.get_mut(&(from.min(to), from.max(to))).expect("a link");
        if !link.is_up {
            return;
        }
        if is_cut {
            link.waiting.entry(to).or_default().push_back(item);
            return;
        }
        let at = (us + wait).max(link.last_us.get(&to).copied().unwrap_or(0));
        link.last_us.insert(to, at);
        let number = Some(link.number);
        self.schedule(at - us, Event::Arrive { to, item, number });
    }

    fn delay(&mut self) -> u64 {
        100 + self.draw(self.delay_max_us)
    }

    fn schedule(&mut self, wait: u64, event: Event) {
        self.numbers += 1;
        self.events.insert((self.us + wait, self.numbers), event);
    }

    fn tell(&mut self, what: &str) {
        self.story.push(format!("{:>6} ms: {what}", self.ms()));
    }

    fn node(&mut self, id: NodeId) -> &mut Node {
        self.nodes.get_mut(&id).expect("a node")
    }

    /// Returns what a node's clock says.
    fn local(&self, id: NodeId) -> Instant {
        let scale = (1_000_000 + self.nodes[&id].skew).unsigned_abs();
        self.origin + Duration::from_micros(self.us * scale / 1_000_000)
    }
}

impl Item {
    /// Returns at the other end of which link the item depends.
    fn from(&self) -> Option<NodeId> {
        match self {
            Self::Bid(from, _)
            | Self::Vote(from, _)
            | Self::Map(from, _)
            | Self::LinkUp(from, _)
            | Self::LinkDown(from)
            | Self::Synced(from, _)
            | Self::HandOver(from, ..) => Some(*from),
            Self::Pulse(_) | Self::Back(_) | Self::Refused(_) => None,
        }
    }
}

/// The slots that are looked at: all are moved in a few large groups.
pub(super) const SAMPLE: [Slot; 4] = [Slot(0), Slot(100), Slot(128), Slot(255)];

const LINK_TIMEOUT_US: u64 = 1_000_000;
