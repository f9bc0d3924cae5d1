//! Who of a segment speaks for it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Instant;

use super::timer::Wait;
use super::{Bully, State};
use crate::message::LinkState;
use crate::rules::Rule;
use crate::{NodeId, Segment, Speaker};

/// This node's right to speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Turn {
    own: Option<u64>,
    /// The greatest number of the segment that was ever seen.
    seen: u64,
    /// Runs while a partner is heard that the island lacks.
    wait: Wait,
}

impl Turn {
    pub(super) fn own(self) -> Option<u64> {
        self.own
    }

    pub(super) fn wait(self) -> Wait {
        self.wait
    }

    pub(super) fn end_wait(&mut self) {
        self.wait = Wait::Over;
    }

    fn begin(&mut self) {
        self.own = Some(self.seen + 1);
        self.wait = Wait::Idle;
    }
}

impl Bully {
    /// Speaks for the segment in the place of a partner that is known to be gone for good.
    pub(crate) fn take_over(&mut self, now: Instant) {
        self.see_turns();
        if self.is_electable() && self.turn.own != Some(self.turn.seen) {
            self.turn.begin();
        }
        self.evaluate(now);
    }

    /// Returns who speaks for each segment of the island that has a speaker.
    pub(crate) fn speakers(&self) -> BTreeMap<Segment, Speaker> {
        let mut speakers: BTreeMap<Segment, Speaker> = BTreeMap::new();
        let states = self.links.component().iter().filter_map(|node| self.links.get(*node));
        for state in states {
            let Some(turn) = state.turn else { continue };
            let (node, rank) = (state.origin, self.turn_rank(state));
            let speaker = Speaker { node, turn, life: state.life };
            let best = speakers.entry(node.segment).or_insert(speaker);
            if self.links.get(best.node).and_then(|best| self.turn_rank(best)) < rank {
                *best = speaker;
            }
        }
        speakers
    }

    /// Speaks when nobody of the segment does, and lets go when another has the better right.
    pub(super) fn take_turn(&mut self, now: Instant) {
        self.see_turns();
        let partners = || self.island().filter(|state| state.origin.segment == self.id.segment);
        let other = partners().filter_map(|state| self.turn_rank(state)).max();
        let first = partners().filter(|state| state.electable).all(|it| self.id < it.origin);
        let own = self.turn_rank(self.links.own()).filter(|_| self.turn.own.is_some());
        let loses = other.is_some() && own < other;
        if self.state == State::Retired || own.is_some() && loses {
            self.turn.own = None;
        }
        let takes = self.turn.own.is_none() && (other.is_none() && first || self.usurps(other));
        if !takes || !self.is_electable() {
            self.turn.wait = Wait::Idle;
            return;
        }
        let component = self.links.component();
        let is_partner = |node: &&NodeId| node.segment == self.id.segment;
        let unheard = self.heard.iter().filter(is_partner).any(|node| !component.contains(node));
        match self.turn.wait {
            // It hears a partner that its island lacks: it may be the one that was away.
            Wait::Idle if unheard => self.turn.wait = Wait::Until(now + self.timing.away()),
            Wait::Until(_) if unheard => {}
            Wait::Idle | Wait::Until(_) | Wait::Over => self.turn.begin(),
        }
    }

    fn turn_rank(&self, state: &LinkState) -> Option<(u64, Reverse<NodeId>)> {
        state.turn.map(|turn| (turn, Reverse(state.origin)))
    }

    fn see_turns(&mut self) {
        let segment = self.id.segment;
        let states = self.links.all().filter(|state| state.origin.segment == segment);
        let seen = states.filter_map(|state| state.turn).max();
        self.turn.seen = self.turn.seen.max(seen.unwrap_or(0));
    }

    /// Returns whether a lower node takes the part of its partner, against the rule.
    fn usurps(&self, other: Option<(u64, Reverse<NodeId>)>) -> bool {
        let lower = other.is_some_and(|(_, Reverse(other))| self.id < other);
        lower && !self.rules.keep(Rule::Turn)
    }
}
