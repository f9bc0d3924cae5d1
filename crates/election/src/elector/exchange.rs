//! How frames are heard, told on and sent.

use std::time::Instant;

use super::Elector;
use crate::NodeId;
use crate::bully::Message;
use crate::message::{
    Addressed, Envelope, Frame, Heartbeat, LINK_STATES_MAX, LinkState, LinkStates,
};
use crate::rules::Rule;

impl Elector {
    pub(super) fn hear(&mut self, now: Instant, from: NodeId, frame: Frame) {
        match frame {
            Frame::Heartbeat(beat) => self.hear_beat(now, from, &beat),
            Frame::LinkStates(LinkStates(states)) => {
                for state in states {
                    self.learn(now, from, state);
                }
            }
            Frame::Election(Addressed { envelope, body }) => {
                self.hear_message(now, from, envelope, Message::Election(body));
            }
            Frame::Answer(Addressed { envelope, body }) => {
                self.hear_message(now, from, envelope, Message::Answer(body));
            }
            Frame::Victory(Addressed { envelope, body }) => {
                self.hear_message(now, from, envelope, Message::Victory(body));
            }
            Frame::Nack(Addressed { envelope, body }) => {
                self.hear_message(now, from, envelope, Message::Nack(body));
            }
        }
    }

    fn hear_beat(&mut self, now: Instant, from: NodeId, beat: &Heartbeat) {
        let state = self.bully.links().get(from);
        let known = state.map(|state| state.life).max(self.detector.life(from));
        if let Some(known) = known.filter(|known| beat.life < *known) {
            if known.instance != beat.life.instance {
                // A life that lost its file, or a second process: it must learn of the other, even
                // where nothing but heartbeats was heard of that.
                let state = LinkState::empty(from, known);
                self.send(from, Frame::LinkStates(LinkStates(vec![state])));
            }
            return;
        }
        if self.detector.hear(now, from, beat) {
            self.relink(now);
            if self.up.contains(&from) && beat.digest != self.bully.links().digest() {
                self.send_database(from);
            }
        }
    }

    fn learn(&mut self, now: Instant, from: NodeId, state: LinkState) {
        let own = self.bully.life();
        if state.origin == self.id {
            if state.life.instance != own.instance && own.incarnation <= state.life.incarnation {
                self.meet_rival(now, &state);
            }
            return;
        }
        let neighbours = state.neighbours.clone();
        let origin = state.origin;
        if self.bully.learn(now, state) {
            // Its neighbours have it from itself.
            let others = self.up.iter().copied();
            let targets: Vec<NodeId> = others
                .filter(|to| *to != from && *to != origin && !neighbours.contains(to))
                .collect();
            self.tell_on(origin, &targets);
        }
    }

    /// Sends the link state of `origin` as this node knows it.
    fn tell_on(&mut self, origin: NodeId, targets: &[NodeId]) {
        let Some(state) = self.bully.links().get(origin).cloned() else { return };
        for to in targets {
            self.send(*to, Frame::LinkStates(LinkStates(vec![state.clone()])));
        }
    }

    fn meet_rival(&mut self, now: Instant, state: &LinkState) {
        let own = self.bully.life();
        let rival = state.life.instance;
        if self.rivals.meet(own, state.life) {
            self.duplicate = Some(rival);
            // Both decide alike: the lower instance stays.
            self.withdrawn = rival < own.instance;
            let until = (!self.withdrawn).then(|| now + self.timing.away());
            self.bully.retire(now, until);
        }
        if !self.withdrawn {
            self.bully.outlive(now, state.life.incarnation);
            self.beat_at = now;
        }
    }

    fn hear_message(&mut self, now: Instant, from: NodeId, envelope: Envelope, message: Message) {
        let Envelope { origin, life, to, .. } = envelope;
        let known = self.bully.links().get(origin).map(|state| state.life.incarnation);
        let stale = known.is_some_and(|known| life.incarnation < known);
        if origin == self.id || stale || !self.routes.is_first(&envelope) {
            return;
        }
        if to == self.id {
            self.bully.hear(now, origin, message);
            return;
        }
        let frame = address(envelope, message);
        if self.up.contains(&to) {
            self.send(to, frame);
            return;
        }
        for other in self.up.clone() {
            if other != from && other != origin {
                self.send(other, frame.clone());
            }
        }
    }

    /// Takes over which links are up.
    pub(super) fn relink(&mut self, now: Instant) {
        let heard = self.detector.heard(now);
        let up =
            if self.rules.keep(Rule::TwoWayLinks) { self.detector.up(now) } else { heard.clone() };
        if up == self.up && heard == self.heard {
            return;
        }
        let new: Vec<NodeId> = up.difference(&self.up).copied().collect();
        if heard != self.heard {
            self.beat_at = now;
        }
        self.heard.clone_from(&heard);
        self.up.clone_from(&up);
        self.bully.set_links(now, heard, up);
        for peer in new {
            self.send_database(peer);
        }
    }

    /// Ends each call: what must be durable is asked for, and everything else waits for it.
    pub(super) fn finish(&mut self, now: Instant) {
        let mut stored = self.bully.stored();
        if !self.rules.keep(Rule::StoredPromise) {
            stored.promised = None;
        }
        if stored != self.asked {
            self.asked = stored;
            self.serial += 1;
            self.asking = true;
        }
        self.divide(now);
        self.stale = true;
        while let Some((to, message)) = self.bully.poll_message() {
            let envelope = self.routes.envelope(self.id, self.bully.life(), to);
            let frame = address(envelope, message);
            if self.up.contains(&to) {
                self.send(to, frame);
            } else {
                for other in self.up.clone() {
                    self.send(other, frame.clone());
                }
            }
        }
        if self.bully.take_said() {
            let targets: Vec<NodeId> = self.up.union(&self.heard).copied().collect();
            self.tell_on(self.id, &targets);
        }
        self.next_silence = self.detector.next_silence(now);
    }

    /// Decides which segments get a share of what this node coordinates, or hears it.
    fn divide(&mut self, now: Instant) {
        let Some(mandate) = self.bully.mandate() else { return };
        let (epoch, segments) = (mandate.epoch, mandate.segments());
        if self.divided != Some(epoch) {
            self.divided = Some(epoch);
            self.sites.begin();
            for shares in self.bully.shares_of_others() {
                self.sites.keep(shares);
            }
        }
        if self.coordinates() {
            self.shares = self.sites.decide(now, &segments);
            self.bully.set_shares(&self.shares);
        } else if let Some(lead) = self.bully.links().get(epoch.coordinator)
            && lead.leads.as_ref().is_some_and(|leads| leads.epoch == epoch)
            && let Some(shares) = &lead.shares
        {
            self.shares.clone_from(shares);
            self.sites.adopt(shares);
        }
    }

    fn send_database(&mut self, to: NodeId) {
        if !self.rules.keep(Rule::Database) {
            return;
        }
        let states: Vec<LinkState> = self.bully.links().all().cloned().collect();
        for states in states.chunks(LINK_STATES_MAX) {
            self.send(to, Frame::LinkStates(LinkStates(states.to_vec())));
        }
    }
}

fn address(envelope: Envelope, message: Message) -> Frame {
    match message {
        Message::Election(body) => Frame::Election(Addressed { envelope, body }),
        Message::Answer(body) => Frame::Answer(Addressed { envelope, body }),
        Message::Victory(body) => Frame::Victory(Addressed { envelope, body }),
        Message::Nack(body) => Frame::Nack(Addressed { envelope, body }),
    }
}
