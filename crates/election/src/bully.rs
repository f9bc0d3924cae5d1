//! The election itself: who of an island coordinates it.
//!
//! Every condition is evaluated anew after every event. Nothing is triggered by a change alone, so
//! nothing that was lost, late or suppressed is lost for good.

mod timer;
mod turn;
mod vote;

use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

#[cfg(test)]
pub(crate) use timer::Timer;
use timer::{Budget, Wait};
use turn::Turn;

use crate::links::Links;
use crate::message::{Answer, Election, LinkState, Nack, Victory};
use crate::rules::{Rule, Rules};
use crate::{Epoch, Life, Mandate, NodeId, Segment, Stored, Timing, segments};

/// One node's part in the election. It knows what others say of themselves, and no clock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Bully {
    id: NodeId,
    life: Life,
    timing: Timing,
    rules: Rules,
    promised: Option<Epoch>,
    /// What this node follows or leads since its start.
    mandate: Option<Mandate>,
    state: State,
    links: Links,
    heard: BTreeSet<NodeId>,
    suspect: bool,
    away: Wait,
    /// Runs while a segment of the mandate has nobody there but who has just started.
    vacancy: Wait,
    turn: Turn,
    /// The segments that get a share while this node leads.
    shares: Option<BTreeSet<Segment>>,
    budget: Budget,
    /// The highest term that others told beside their link states.
    term_seen: u64,
    nonce: u64,
    tell: VecDeque<(NodeId, Message)>,
    said: bool,
}

/// What one node tells another in an election.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Message {
    Election(Election),
    Answer(Answer),
    Victory(Victory),
    Nack(Nack),
}

/// What a node is doing in an election.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    /// Has just started: answers and follows, and cannot win.
    Boot { until: Instant },
    /// Follows a coordinator, or has none yet.
    Follow,
    /// Has asked the island who is there. After `until` silence counts as consent.
    Elect { until: Instant, consents: BTreeSet<NodeId> },
    /// A lower node is there and should lead; when its time is over this one campaigns.
    Await { on: NodeId, patience: Wait },
    /// Coordinates the members of its mandate.
    Lead(Watch),
    /// Another process with this id has the better right. For good.
    Retired,
}

/// What a coordinator watches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Watch {
    /// Who has been in the island since the last stability mark.
    settled: BTreeSet<NodeId>,
    /// Who has come since; ready to be taken in at `stable_at`.
    newcomers: BTreeSet<NodeId>,
    /// Whether somebody in the island has promised a higher epoch.
    outbid: bool,
    /// Whether that has been so for the whole time of stability: a new epoch is due.
    overdue: bool,
    stable_at: Option<Instant>,
    /// Runs while a lower node is there that should lead.
    patience: Wait,
}

impl Bully {
    pub(crate) fn new(
        id: NodeId,
        stored: Option<Stored>,
        instance: u128,
        timing: Timing,
        rules: Rules,
        now: Instant,
    ) -> Self {
        let stored = stored.unwrap_or_default();
        let life = Life { incarnation: stored.incarnation.saturating_add(1), instance };
        let own = LinkState { promised: stored.promised, ..LinkState::empty(id, life) };
        let boots = rules.keep(Rule::Boot);
        Self {
            id,
            life,
            timing,
            rules,
            promised: stored.promised,
            mandate: None,
            state: if boots {
                State::Boot { until: now + timing.stability() }
            } else {
                State::Follow
            },
            links: Links::new(own, rules),
            heard: BTreeSet::new(),
            suspect: false,
            away: Wait::Idle,
            vacancy: Wait::Idle,
            turn: Turn::default(),
            shares: None,
            budget: Budget::default(),
            term_seen: 0,
            nonce: 0,
            tell: VecDeque::new(),
            said: true,
        }
    }

    /// Takes in which peers are heard, and which links are up.
    pub(crate) fn set_links(
        &mut self,
        now: Instant,
        heard: BTreeSet<NodeId>,
        up: BTreeSet<NodeId>,
    ) {
        self.heard = heard;
        let own = self.links.own();
        if own.neighbours != up {
            let own = LinkState { neighbours: up, ..own.clone() };
            self.said |= self.links.say(own);
        }
        self.evaluate(now);
    }

    /// Takes in what another node says of itself; returns whether that was news.
    pub(crate) fn learn(&mut self, now: Instant, state: LinkState) -> bool {
        let news = self.links.learn(state);
        if news {
            self.evaluate(now);
        }
        news
    }

    /// Raises the boot counter above that of another life with this id.
    pub(crate) fn outlive(&mut self, now: Instant, incarnation: u64) {
        self.life.incarnation = incarnation.saturating_add(1);
        self.evaluate(now);
    }

    /// Tells the others which segments get a share.
    pub(crate) fn set_shares(&mut self, shares: &BTreeSet<Segment>) {
        if self.shares.as_ref() != Some(shares) {
            self.shares = Some(shares.clone());
            self.say();
        }
    }

    /// Says whether this node's own clock jumped: then it judges nobody.
    pub(crate) fn set_suspect(&mut self, now: Instant, suspect: bool) {
        self.suspect = suspect;
        if suspect && matches!(self.state, State::Elect { .. }) {
            self.state = if self.is_mine() { State::Lead(Watch::default()) } else { State::Follow };
        }
        self.reevaluate(now);
    }

    /// Makes this node a mere listener, until `until` or for good.
    pub(crate) fn retire(&mut self, now: Instant, until: Option<Instant>) {
        self.state = match until {
            Some(until) => State::Boot { until },
            None => State::Retired,
        };
        self.evaluate(now);
    }

    /// Returns the next message to send.
    pub(crate) fn poll_message(&mut self) -> Option<(NodeId, Message)> {
        self.tell.pop_front()
    }

    /// Returns whether this node's own link state has changed since the last call.
    pub(crate) fn take_said(&mut self) -> bool {
        std::mem::take(&mut self.said)
    }

    /// Gives this node's own link state a new version, so that it is told anew.
    pub(crate) fn repeat(&mut self) {
        self.links.repeat();
        self.said = true;
    }

    pub(crate) fn links(&self) -> &Links {
        &self.links
    }

    #[cfg(test)]
    pub(crate) fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }

    /// Returns how many campaigns this life has started.
    #[cfg(test)]
    pub(crate) fn campaigns(&self) -> u64 {
        self.nonce
    }

    pub(crate) fn life(&self) -> Life {
        self.life
    }

    pub(crate) fn mandate(&self) -> Option<&Mandate> {
        self.mandate.as_ref()
    }

    /// Returns whether this node coordinates, also while it campaigns for its next epoch.
    pub(crate) fn leads(&self) -> bool {
        match self.state {
            State::Lead(_) => true,
            State::Elect { .. } => self.rules.keep(Rule::LeadWhileCampaigning) && self.is_mine(),
            State::Boot { .. } | State::Follow | State::Await { .. } | State::Retired => false,
        }
    }

    pub(crate) fn stored(&self) -> Stored {
        Stored { incarnation: self.life.incarnation, promised: self.promised }
    }

    /// Evaluates all conditions anew. Harmless at any time.
    pub(crate) fn evaluate(&mut self, now: Instant) {
        self.say();
        self.watch_vacancy(now);
        match self.low() {
            Some(low) if low == self.id => self.evaluate_low(now),
            Some(low) => self.evaluate_high(now, low),
            None => {}
        }
        self.take_turn(now);
        self.say();
    }

    /// Evaluates them where neither a link nor what others say has changed.
    pub(crate) fn reevaluate(&mut self, now: Instant) {
        if self.rules.keep(Rule::Level) {
            self.evaluate(now);
        } else {
            self.say();
        }
    }

    /// This node should lead.
    fn evaluate_low(&mut self, now: Instant) {
        match &self.state {
            State::Boot { .. } | State::Retired => {}
            State::Follow | State::Await { .. } => self.try_campaign(now),
            State::Elect { .. } => self.count(now),
            State::Lead(_) => self.evaluate_lead(now),
        }
    }

    /// `low` should lead.
    fn evaluate_high(&mut self, now: Instant, low: NodeId) {
        let lead = self.links.get(low).and_then(|state| state.leads.as_ref());
        let epoch = lead.map(|lead| lead.epoch);
        let followed = epoch.is_some() && epoch == self.mandate.as_ref().map(|it| it.epoch);
        if let Some(lead) = lead
            && (lead.has(self.id.segment) || !self.rules.keep(Rule::Member))
            && self.promised <= Some(lead.epoch)
            && !(followed && matches!(self.state, State::Boot { .. } | State::Follow))
        {
            return self.follow(lead.clone());
        }
        let over = now + self.timing.patience();
        match &mut self.state {
            State::Boot { .. } | State::Elect { .. } | State::Retired => {}
            State::Follow if followed => {}
            State::Follow | State::Await { .. } if !self.rules.keep(Rule::LowestCampaigns) => {
                self.try_campaign(now);
            }
            State::Await { on, patience } if *on == low => {
                if *patience == Wait::Over {
                    self.try_campaign(now);
                }
            }
            State::Follow | State::Await { .. } => self.state = State::wait(low, over),
            State::Lead(watch) => {
                watch.stable_at = None;
                match watch.patience {
                    Wait::Idle => watch.patience = Wait::Until(over),
                    Wait::Until(_) => {}
                    Wait::Over => self.try_campaign(now),
                }
            }
        }
    }

    /// This node leads and should: does the island still have the segments of its mandate?
    fn evaluate_lead(&mut self, now: Instant) {
        let State::Lead(watch) = &self.state else { return };
        let mut watch = watch.clone();
        let component = self.links.component();
        let electable = self.links.electable();
        watch.patience = Wait::Idle;
        watch.settled.retain(|node| component.contains(node));
        let newcomers: BTreeSet<NodeId> = component
            .iter()
            .copied()
            .filter(|node| *node != self.id && !watch.settled.contains(node))
            .filter(|node| electable.contains(node) || self.rules.keep(Rule::StartsAreWatched))
            .collect();
        let outbid = self.outbid();
        let stability = self.rules.keep(Rule::Stability);
        let mandate = self.mandate.as_ref().expect("a coordinator has a mandate");
        let present = segments(&electable);
        let absent: BTreeSet<Segment> = mandate.segments().difference(&present).copied().collect();
        let lost = !absent.is_subset(&segments(&self.waited_for()));
        let ready = electable
            .iter()
            .any(|node| !mandate.has(node.segment) && (watch.settled.contains(node) || !stability));
        watch.overdue &= outbid;
        if lost || ready || watch.overdue || outbid && !stability {
            self.state = State::Lead(watch);
            return self.try_campaign(now);
        }
        let more = !newcomers.is_subset(&watch.newcomers) || outbid && !watch.outbid;
        if newcomers.is_empty() && !outbid {
            watch.stable_at = None;
        } else if more || watch.stable_at.is_none() && self.rules.keep(Rule::StabilityGoesOn) {
            watch.stable_at = Some(now + self.timing.stability());
        }
        watch.newcomers = newcomers;
        watch.outbid = outbid;
        self.state = State::Lead(watch);
    }

    /// Returns whether somebody in the island has promised an epoch above this node's.
    fn outbid(&self) -> bool {
        let mine = self.mandate.as_ref().map(|mandate| mandate.epoch);
        self.island().any(|state| mine < state.promised)
    }

    /// Campaigns, unless this node may be the one that is wrong, or has just done so too often.
    fn try_campaign(&mut self, now: Instant) {
        if self.suspect {
            return;
        }
        if self.heard.is_subset(self.links.component()) || !self.rules.keep(Rule::Away) {
            self.away = Wait::Idle;
        } else {
            // It hears nodes that its island lacks: it may be the one that was away.
            match self.away {
                Wait::Idle => {
                    self.away = Wait::Until(now + self.timing.away());
                    return;
                }
                Wait::Until(_) => return,
                Wait::Over => {}
            }
        }
        if self.budget.spend(now + self.timing.timeout()) || !self.rules.keep(Rule::Budget) {
            self.campaign(now);
        }
    }

    fn campaign(&mut self, now: Instant) {
        self.nonce += 1;
        if !self.rules.keep(Rule::TermPerVictory) {
            self.term_seen = self.next_term();
        }
        self.state = State::Elect { until: now + self.timing.timeout(), consents: BTreeSet::new() };
        self.tell_island(&Message::Election(Election { nonce: self.nonce }));
        self.count(now);
    }

    /// Wins at once when everybody present has consented.
    fn count(&mut self, now: Instant) {
        let State::Elect { consents, .. } = &self.state else { return };
        let component = self.links.component();
        // The first election waits for the others that are starting too.
        let complete = self.mandate.is_some() || self.links.electable() == *component;
        let all = component.iter().all(|node| *node == self.id || consents.contains(node));
        if complete && all {
            self.declare(now);
        }
    }

    fn declare(&mut self, now: Instant) {
        let component = self.links.component().clone();
        let mut members = self.links.electable();
        members.insert(self.id);
        members.extend(self.waited_for());
        let one_life = self.rules.keep(Rule::EpochOfOneLife);
        let life = if one_life { self.life } else { Life { instance: 0, ..self.life } };
        let epoch = Epoch { term: self.next_term(), coordinator: self.id, life };
        debug_assert!(self.promised < Some(epoch), "a new term is above every promise");
        let mandate = Mandate { epoch, members };
        self.promised = Some(epoch);
        self.mandate = Some(mandate.clone());
        self.away = Wait::Idle;
        self.state = State::Lead(Watch { settled: component, ..Watch::default() });
        self.say();
        self.tell_island(&Message::Victory(Victory(mandate)));
        self.evaluate(now);
    }

    fn follow(&mut self, mandate: Mandate) {
        self.promised = self.promised.max(Some(mandate.epoch));
        self.mandate = Some(mandate);
        self.away = Wait::Idle;
        if !matches!(self.state, State::Boot { .. }) {
            self.state = State::Follow;
        }
    }

    /// Waits for segments in which all have just started, as long as a start takes. They stay members:
    /// their calls may live on, and whoever got their shares would pass the limit although the network
    /// is whole.
    fn watch_vacancy(&mut self, now: Instant) {
        match self.vacancy {
            _ if self.vacant().is_empty() => self.vacancy = Wait::Idle,
            Wait::Idle => {
                self.vacancy = Wait::Until(now + self.timing.stability() + self.timing.away());
            }
            Wait::Until(_) | Wait::Over => {}
        }
    }

    fn waited_for(&self) -> BTreeSet<NodeId> {
        if self.vacancy == Wait::Over { BTreeSet::new() } else { self.vacant() }
    }

    /// Returns those who start in segments of this node's mandate that have nobody else.
    fn vacant(&self) -> BTreeSet<NodeId> {
        let Some(mandate) = self.mandate.as_ref().filter(|_| self.rules.keep(Rule::Vacancy)) else {
            return BTreeSet::new();
        };
        let present = segments(&self.links.electable());
        let is = |node: &NodeId| !present.contains(&node.segment) && mandate.has(node.segment);
        self.links.component().iter().copied().filter(is).collect()
    }

    fn next_term(&self) -> u64 {
        let promised = |promised: Option<Epoch>| promised.map_or(0, |epoch| epoch.term);
        let island = self.island().map(|state| promised(state.promised)).max();
        1 + self.term_seen.max(promised(self.promised)).max(island.unwrap_or(0))
    }

    /// Returns the node that should lead the island: of its lowest segment the one that leads
    /// already, else the lowest.
    fn low(&self) -> Option<NodeId> {
        if self.state == State::Retired {
            return None;
        }
        self.links.electable().into_iter().min_by_key(|node| self.rank(*node))
    }

    fn rank(&self, node: NodeId) -> impl Ord + use<> {
        let leads = self.links.get(node).and_then(|state| state.leads.as_ref());
        let epoch = leads.map(|lead| lead.epoch).filter(|_| self.rules.keep(Rule::Incumbent));
        (node.segment, Reverse(epoch), node.rm)
    }

    /// Returns what the others of the island say.
    fn island(&self) -> impl Iterator<Item = &LinkState> {
        let others = self.links.component().iter().filter(|node| **node != self.id);
        others.filter_map(|node| self.links.get(*node))
    }

    /// Returns the segments that get shares of what others in the island coordinate.
    pub(crate) fn shares_of_others(&self) -> impl Iterator<Item = &BTreeSet<Segment>> {
        self.island().filter_map(|state| state.shares.as_ref())
    }

    fn tell_island(&mut self, message: &Message) {
        let others = self.links.component().iter().filter(|node| **node != self.id);
        self.tell.extend(others.map(|node| (*node, message.clone())));
    }

    fn is_electable(&self) -> bool {
        match self.state {
            State::Boot { .. } | State::Retired => false,
            State::Follow | State::Elect { .. } | State::Await { .. } | State::Lead(_) => true,
        }
    }

    /// Returns whether this life declared the mandate that it has.
    fn is_mine(&self) -> bool {
        let epoch = self.mandate.as_ref().map(|mandate| mandate.epoch);
        epoch.is_some_and(|epoch| epoch.coordinator == self.id)
    }

    /// Brings this node's own link state up to date.
    fn say(&mut self) {
        let own = LinkState {
            neighbours: self.links.own().neighbours.clone(),
            electable: self.is_electable(),
            promised: self.promised,
            leads: self.mandate.clone().filter(|_| self.leads()),
            shares: self.shares.clone().filter(|_| self.leads()),
            turn: self.turn.own(),
            ..LinkState::empty(self.id, self.life)
        };
        self.said |= self.links.say(own);
    }
}

impl State {
    fn wait(on: NodeId, until: Instant) -> Self {
        Self::Await { on, patience: Wait::Until(until) }
    }
}
