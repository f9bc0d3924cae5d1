//! What the messages of an election do.

use std::time::Instant;

use super::{Answer, Bully, Message, Nack, State, Victory};
use crate::rules::Rule;
use crate::{Epoch, Mandate, NodeId};

impl Bully {
    /// Takes in a message of `from`, which may be anywhere.
    pub(crate) fn hear(&mut self, now: Instant, from: NodeId, message: Message) {
        match message {
            Message::Election(election) => self.hear_election(now, from, election.nonce),
            Message::Answer(answer) => self.hear_answer(now, from, answer),
            Message::Victory(Victory(mandate)) => self.hear_victory(from, mandate),
            Message::Nack(nack) => self.hear_nack(now, nack),
        }
        self.reevaluate(now);
    }

    /// Somebody campaigns. That alone starts nothing here: whether this node should lead is
    /// evaluated all the time.
    fn hear_election(&mut self, now: Instant, from: NodeId, nonce: u64) {
        let before = self.rank(self.id) < self.rank(from);
        let lower = before && self.is_electable() && !self.suspect;
        let answer = Answer { nonce, promised: self.promised, lower };
        self.tell.push_back((from, Message::Answer(answer)));
        let repeats = self.rules.keep(Rule::RepeatedVictory);
        if lower && repeats && matches!(self.state, State::Lead(_)) {
            // The candidate may have missed the victory.
            let mandate = self.mandate.clone().expect("a coordinator has a mandate");
            self.tell.push_back((from, Message::Victory(Victory(mandate))));
        }
        let after = self.rank(from) < self.rank(self.id);
        if after && matches!(self.state, State::Elect { .. }) {
            self.state = State::wait(from, now + self.timing.patience());
        }
    }

    fn hear_answer(&mut self, now: Instant, from: NodeId, answer: Answer) {
        self.see(answer.promised);
        let State::Elect { consents, .. } = &mut self.state else { return };
        if answer.nonce != self.nonce {
            return;
        }
        if answer.lower {
            self.state = State::wait(from, now + self.timing.patience());
        } else {
            consents.insert(from);
            self.count(now);
        }
    }

    /// Whether the winner is the lowest is not asked: what counts is the epoch.
    fn hear_victory(&mut self, from: NodeId, mandate: Mandate) {
        let here = self.links.component().contains(&from);
        match self.promised {
            _ if self.state == State::Retired => {}
            Some(promised) if mandate.epoch < promised => {
                let nack = Nack { epoch: mandate.epoch, promised };
                self.tell.push_back((from, Message::Nack(nack)));
            }
            Some(promised) if mandate.epoch == promised => {}
            Some(_) | None if here || matches!(self.state, State::Boot { .. }) => {
                self.links.note_lead(&mandate);
                self.follow(mandate);
            }
            Some(_) | None => {}
        }
    }

    fn hear_nack(&mut self, now: Instant, nack: Nack) {
        let mine = self.mandate.as_ref().map(|mandate| mandate.epoch);
        self.see(Some(nack.promised));
        let leads = matches!(self.state, State::Lead(_));
        if leads
            && mine == Some(nack.epoch)
            && nack.epoch < nack.promised
            && self.low() == Some(self.id)
        {
            self.try_campaign(now);
        }
    }

    fn see(&mut self, promised: Option<Epoch>) {
        self.term_seen = self.term_seen.max(promised.map_or(0, |epoch| epoch.term));
    }
}
