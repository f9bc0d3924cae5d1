//! What must hold after every event: I1 to I12 of the protocol's notes, as far as they can be seen from
//! outside.

use std::collections::{BTreeMap, BTreeSet};

use election::{NodeId, Segment};
use quota_split::handover::{Epoch, PairMessage, Stamp, Timing, ToMember};
use quota_split::{CallId, Recipe, Sight};
use rm::cluster::{Alarm, Cluster, ClusterFrame, Kept, Output, Plan, Why};

use super::halves::Halves;
use super::lines::Lines;
use super::traffic::Traffic;
use super::world::{Calls, LIMITED, Live, Ms, Node, PLACES};

pub(super) use rest::{all_follow_one, rest};

mod rest;

#[derive(Debug, Default)]
pub(super) struct Judge {
    pub(super) fault: Option<String>,
    /// The highest limits that may still be in force somewhere.
    limits: [u32; 5],
    /// How many whole limits islands may have given out since all was last well.
    islands: u32,
    /// The islands that there are.
    parts: Vec<Vec<usize>>,
    /// Whether the halves of a pair were cut from each other without a fence since all was last well.
    pub(super) torn: bool,
    /// Calls under a weight majority that lived elsewhere when a majority took the whole limit.
    beyond: BTreeSet<CallId>,
    /// Calls of segments that the newest document does not name, where it may not reach them.
    outside: BTreeSet<CallId>,
    /// When an epoch was first divided, and whether its majority has taken the whole limit.
    reigns: BTreeMap<Epoch, (Ms, bool)>,
    /// What each node that coordinates and speaks last counted as held: anything, when it has just divided.
    ledgers: Vec<Option<[u32; 5]>>,
    recipes: BTreeMap<Stamp, Recipe>,
    kept: Vec<Option<Kept>>,
    used: Vec<[u32; 5]>,
    /// What each node that speaks may have and has.
    cells: Vec<Option<[(u32, u32); 5]>>,
    /// Whether a node let a call in, or counted anew, in this event.
    decided: Vec<bool>,
    counted: Vec<bool>,
    lines: Lines,
    halves: Halves,
    /// Calls that pass every limit.
    pub(super) exempt: BTreeSet<CallId>,
    pub(super) traffic: Traffic,
    pub(super) trace: u64,
    pub(super) admitted: u64,
    pub(super) divided: u64,
    pub(super) drifted: u64,
    /// Calls refused because nobody counted.
    pub(super) unheard: u64,
}

impl Judge {
    pub(super) fn new(plan: &Plan, ids: &[NodeId]) -> Self {
        let count = ids.len();
        Self {
            limits: limits(plan),
            kept: vec![None; count],
            used: vec![[0; 5]; count],
            cells: vec![None; count],
            ledgers: vec![None; count],
            decided: vec![false; count],
            counted: vec![false; count],
            traffic: Traffic::new(ids),
            ..Self::default()
        }
    }

    pub(super) fn fail(&mut self, now: Ms, text: impl std::fmt::Display) {
        self.fault.get_or_insert_with(|| format!("at {now} ms: {text}"));
    }

    pub(super) fn started(&mut self, at: usize, has_disk: bool) {
        self.used[at] = [0; 5];
        if !has_disk {
            self.kept[at] = None;
        }
    }

    pub(super) fn crashed(&mut self, at: usize) {
        self.used[at] = [0; 5];
        self.cells[at] = None;
        self.ledgers[at] = None;
    }

    pub(super) fn changed(&mut self, plan: &Plan) {
        if plan.segments.is_empty() {
            return;
        }
        for (limit, new) in self.limits.iter_mut().zip(limits(plan)) {
            *limit = new.max(*limit);
        }
    }

    /// Every part into which an island falls may give out a limit of its own, and what it has when the
    /// next is formed stays: `full` lets k islands carry k times the limit (§2.7, I4).
    pub(super) fn topology(&mut self, islands: &[Vec<usize>]) {
        let touches = |a: &[usize], b: &[usize]| a.iter().any(|node| b.contains(node));
        let parts = |old: &Vec<usize>| islands.iter().filter(|new| touches(old, new)).count();
        let torn: usize = self.parts.iter().map(|old| parts(old).saturating_sub(1)).sum();
        let begun = islands.iter().filter(|new| !self.parts.iter().any(|old| touches(old, new)));
        self.islands += u32::try_from(torn + begun.count()).unwrap();
        self.parts = islands.to_vec();
    }

    /// Calls of a dead node live on in another island, where they count from now on: its own has a whole
    /// limit to give out again, as that one has.
    pub(super) fn calls_change_islands(&mut self) {
        self.islands += 1;
    }

    /// A division of node `at` is in force. Once it is one of a majority, all that lives elsewhere counts
    /// beyond the limit (§2.7); nothing may come to that, since every lease there has run out.
    pub(super) fn divided(&mut self, now: Ms, at: usize, stamp: Stamp, calls: &Calls) {
        self.ledgers[at] = Some([u32::MAX; 5]);
        let (since, taken) = self.reigns.entry(stamp.epoch).or_insert((now, false));
        let sight = self.recipes.get(&stamp).map(|recipe| recipe.sight);
        // One that divides with itself alone says to nobody what it sees.
        let waited = u128::from(now - *since) >= Timing::WAN.majority_wait().as_millis();
        if *taken || sight.map_or(!waited, |sight| sight != Sight::Majority) {
            return;
        }
        *taken = true;
        let island = self.parts.iter().find(|part| part.contains(&at));
        let elsewhere = |live: &&Live| !island.is_some_and(|island| island.contains(&live.owner));
        self.beyond.extend(calls.iter().filter(elsewhere).map(|live| live.call.id));
    }

    pub(super) fn written(&mut self, at: usize, bytes: &[u8]) {
        let (kind, rest) = bytes.split_at(2);
        let kept: Kept = driver::codec::decode(rest).unwrap();
        assert_eq!(kind, <Kept as rm::frames::Frame>::KIND.to_be_bytes());
        if let Some(before) = &self.kept[at] {
            let back = kept.promised < before.promised
                || kept.election.promised < before.election.promised
                || kept.election.incarnation < before.election.incarnation;
            if back {
                self.fail(0, format!("node {at} goes back from {before:?} to {kept:?}"));
            }
        }
        self.kept[at] = Some(kept);
    }

    pub(super) fn saw(&mut self, now: Ms, at: usize, segment: Segment, output: &Output) {
        let mark = match output {
            Output::Send { to, frame } => {
                self.saw_frame(now, at, frame);
                u64::from(to.rm) + 7
            }
            Output::Decided { call, verdict } => {
                self.decide(at, *call, verdict.is_ok());
                self.admitted += u64::from(verdict.is_ok());
                self.unheard += u64::from(*verdict == Err(Why::Unheard));
                call.0 << 1 | u64::from(verdict.is_ok())
            }
            Output::NeedLive { .. } => {
                self.counted[at] = true;
                2
            }
            Output::Divided { stamp, .. } => {
                self.divided += 1;
                stamp.epoch.term << 8 | u64::from(stamp.round)
            }
            Output::Alarm(
                alarm @ (Alarm::DigestDiffers(_)
                | Alarm::Misdirected(_)
                | Alarm::Garbled(_)
                | Alarm::Unreadable),
            ) => {
                self.fail(now, format!("node {at} of segment {segment} alarms: {alarm:?}"));
                3
            }
            Output::Drifted(_) => {
                self.drifted += 1;
                4
            }
            Output::Persist { serial, .. } => *serial,
            Output::Usage(event) => {
                self.lines.hear(at, segment, event);
                5
            }
            Output::Passive(_) | Output::Alarm(_) => 5,
        };
        self.trace = (self.trace ^ mark ^ now << 8 ^ at as u64).wrapping_mul(0x0100_0000_01b3);
    }

    fn saw_frame(&mut self, now: Ms, at: usize, frame: &ClusterFrame) {
        if let Some(text) = self.traffic.says(now, at, frame) {
            self.fail(now, text);
        }
        match frame {
            ClusterFrame::ToMember(routed) => {
                let ToMember::Prepare(prepare) = &routed.body else { return };
                let recipe = prepare.recipe.clone();
                let known = self.recipes.entry(prepare.stamp).or_insert_with(|| recipe.clone());
                if *known != recipe {
                    let text = format!("{:?} names {known:?} and {recipe:?}", prepare.stamp);
                    self.fail(now, text);
                }
            }
            ClusterFrame::Pair(PairMessage::Answer { call, verdict }) => {
                self.decide(at, CallId(*call), verdict.is_ok());
            }
            ClusterFrame::Election(_)
            | ClusterFrame::ToCoordinator(_)
            | ClusterFrame::Pair(_)
            | ClusterFrame::Piece(_)
            | ClusterFrame::Pieces(_) => {}
        }
    }

    fn decide(&mut self, at: usize, call: CallId, counted: bool) {
        if self.exempt.contains(&call) {
            self.counted[at] |= counted;
        } else {
            self.decided[at] |= counted;
        }
    }

    /// A document that no longer names a segment says that it is gone: its part is given to others. Where it
    /// is cut off, and lives, nobody there can know what it carries, so that this counts beyond a frozen
    /// limit.
    pub(super) fn watch_outside(&mut self, plan: &Plan, nodes: &[Node], calls: &Calls) {
        if 1 < self.islands {
            let is_named = |live: &&Live| plan.segments.contains_key(&nodes[live.owner].id.segment);
            let strangers = calls.iter().filter(|live| !is_named(live));
            self.outside.extend(strangers.map(|live| live.call.id));
        }
    }

    /// Use is never above the limit, for each island that there may be.
    pub(super) fn watch_calls(&mut self, now: Ms, calls: &Calls) {
        let used = calls.counted();
        self.beyond.retain(|call| calls.get(*call).is_some());
        let beyond = calls.count(self.beyond.iter().filter_map(|call| calls.get(*call)));
        self.outside.retain(|call| calls.get(*call).is_some());
        let outside = calls.count(self.outside.iter().filter_map(|call| calls.get(*call)));
        for (index, name) in LIMITED.iter().enumerate() {
            let bound = match *name {
                "frozen" if !self.torn => self.limits[index] + outside[index],
                "majority" if !self.torn => self.limits[index] + beyond[index] + outside[index],
                _ => self.limits[index] * self.islands,
            };
            if bound < used[index] {
                let text = format!("{} calls of {name}, at most {bound} may be", used[index]);
                self.fail(now, text);
            }
        }
    }

    /// While nothing was cut since all was last well, what all hold never passes the limit (I2). Calls that
    /// pass every limit are in no share, so this is looked at where there are none.
    pub(super) fn watch_cells(&mut self, now: Ms, at: usize, nodes: &[Node]) {
        if 1 < self.islands || !self.is_strict() {
            return;
        }
        let cells = nodes[at].cluster.as_ref().and_then(cells);
        if self.cells[at] == cells {
            return;
        }
        self.cells[at] = cells;
        // Elections, after which nobody looks, may have changed others.
        if self.excess(nodes).is_some() {
            self.look_at_cells(nodes);
            if let Some(text) = self.excess(nodes) {
                self.fail(now, text);
            }
        }
    }

    fn look_at_cells(&mut self, nodes: &[Node]) {
        self.cells = nodes.iter().map(|node| node.cluster.as_ref().and_then(cells)).collect();
    }

    /// Says what is held above its limit, if anything is.
    fn excess(&self, nodes: &[Node]) -> Option<String> {
        for (index, name) in LIMITED.iter().enumerate() {
            let mut segments: BTreeMap<Segment, (u32, u32)> = BTreeMap::new();
            for (node, cells) in nodes.iter().zip(&self.cells) {
                let Some(cells) = cells else { continue };
                let hands_over = hands_over(nodes, node, |partner| self.cells[partner].is_some());
                // Who has only just started may count the calls of a partner that speaks; they are the same.
                let (caps, used) = segments.entry(node.id.segment).or_default();
                let cap = if hands_over { 0 } else { cells[index].0 };
                (*caps, *used) = (*caps + cap, cells[index].1.max(*used));
            }
            let held: u32 = segments.values().map(|(caps, used)| caps.max(used)).sum();
            if self.limits[index] < held {
                return Some(format!("{held} of {} of {name} are held", self.limits[index]));
            }
        }
        None
    }

    /// In any history: once all have promised, what is held rises to the limit at the most, and where more
    /// was held it only falls (I3). Looked at whenever a call is let in.
    fn watch_ledger(&mut self, now: Ms, at: usize, nodes: &[Node]) {
        let Some(before) = self.ledgers[at] else { return };
        self.ledgers[at] = nodes[at].cluster.as_ref().and_then(ledger);
        let Some(ledger) = self.ledgers[at] else { return };
        for (index, name) in LIMITED.iter().enumerate() {
            if self.limits[index].max(before[index]) < ledger[index] {
                let text = format!("{} of {name} are held, {} were", ledger[index], before[index]);
                self.fail(now, text);
            }
        }
    }

    /// Use grows only within the cap.
    pub(super) fn watch_node(&mut self, now: Ms, at: usize, nodes: &[Node]) {
        let decided = std::mem::take(&mut self.decided[at]);
        let counted = std::mem::take(&mut self.counted[at]);
        if !decided && !counted {
            return;
        }
        self.watch_ledger(now, at, nodes);
        let Some(cluster) = &nodes[at].cluster else { return };
        let Some(cells) = cells(cluster) else { return };
        // A partner that has only just started counts too, by itself, and was handed nothing: until it is given
        // a part it lets nothing in, and who leaves has all there is, as its part of a frozen limit.
        let has_part = |at: usize| {
            let cells = nodes[at].cluster.as_ref().and_then(self::cells);
            cells.is_some_and(|cells| cells.iter().any(|(cap, _)| 0 < *cap))
        };
        if decided && !self.torn && self.islands == 1 && hands_over(nodes, &nodes[at], has_part) {
            self.fail(now, format!("node {at} lets a call in that its partner counts too"));
        }
        for (index, (cap, used)) in cells.into_iter().enumerate() {
            let grew = self.used[at][index] < used && !counted;
            // What was lent may be asked back in the moment in which it is used.
            if grew && cap < used && LIMITED[index] != "lent" {
                let text = format!("node {at} has {used} calls of {}, cap {cap}", LIMITED[index]);
                self.fail(now, text);
            }
            self.used[at][index] = used;
        }
    }

    /// Whether all that is held is in some share. What pairs that are torn apart count of each other's calls
    /// for a minute is not, nor are calls that pass every limit.
    fn is_strict(&self) -> bool {
        !self.torn && self.exempt.is_empty()
    }

    /// Returns how many divisions were ever asked for.
    pub(super) fn divisions(&self) -> usize {
        self.recipes.len()
    }

    /// All is well: from now on nothing may pass the limit, the highest that any node knows of, be it dead.
    fn settle(&mut self, nodes: &[Node]) {
        self.islands = 1;
        self.look_at_cells(nodes);
        self.torn = false;
        self.beyond.clear();
        self.outside.clear();
        self.reigns.clear();
        self.limits = [0; 5];
        for node in nodes.iter().filter(|node| !node.plan.segments.is_empty()) {
            self.changed(&node.plan);
        }
    }
}

/// Whether a node was told to leave, and its partner, which was not, `counts` already: then this one lets
/// nothing in, whatever it had.
fn hands_over(nodes: &[Node], node: &Node, counts: impl Fn(usize) -> bool) -> bool {
    let leaves = |node: &Node| node.leaves_in == Some(node.life);
    leaves(node) && node.partner.is_some_and(|it| counts(it) && !leaves(&nodes[it]))
}

/// Returns cap and use of the limited nodes, while this one speaks.
pub(super) fn cells(cluster: &Cluster) -> Option<[(u32, u32); 5]> {
    let mut cells = [(0, 0); 5];
    for ((cell, name), place) in cells.iter_mut().zip(LIMITED).zip(PLACES) {
        let tenant = cluster.tenants_from(place).next()?;
        assert_eq!(tenant.name, name);
        let calls = tenant.counters.first()?;
        *cell = (calls.cap?, calls.used);
    }
    Some(cells)
}

/// Returns what is counted as held of the limited nodes, while this one speaks, coordinates and has all
/// promises.
fn ledger(cluster: &Cluster) -> Option<[u32; 5]> {
    let mut ledger = [0; 5];
    for (sum, place) in ledger.iter_mut().zip(PLACES) {
        let tenant = cluster.tenants_from(place).next()?;
        let held = &tenant.counters.first()?.held;
        if held.is_empty() {
            return None;
        }
        *sum = held.values().sum();
    }
    Some(ledger)
}

fn limits(plan: &Plan) -> [u32; 5] {
    let tree = plan.division.tree();
    LIMITED.map(|name| tree.node(tree.find(name).unwrap()).limits.calls.unwrap())
}
