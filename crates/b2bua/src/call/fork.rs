//! A callee that is rung at several places at once (RFC 3261 §16.6, §16.7).
//!
//! The callee's leg stands for the first of them, and a branch for each further one: an INVITE with the
//! Call-ID, tag and offer of the leg, a CSeq of its own and a way of its own. Who accepts first becomes
//! the leg. The others are cancelled; who accepts all the same is told goodbye, as any branch of a proxy
//! behind the leg is.

use bytes::Bytes;
use failover::record::{Branch, ClientInvite, ClientState, Phase, Purpose, Target};
use sip_core::Message;

use super::Call;
use super::outgoing::Refusal;
use crate::core::Core;
use crate::message;

impl Call {
    /// Rings the callee's other phones.
    pub(super) fn ring_others(&mut self, core: &mut Core, sdp: Option<&Bytes>) {
        if !self.record.legs[1].registered {
            return;
        }
        let targets = std::mem::take(&mut self.record.targets);
        let (others, rest) = targets.into_iter().partition(|target| target.registered);
        self.record.targets = rest;
        let others: Vec<_> = others;
        for target in others {
            self.ring(core, target, sdp);
        }
    }

    /// Rings one more phone of the callee, if there is room for its transaction: tells whether it rings.
    fn ring(&mut self, core: &mut Core, target: Target, sdp: Option<&Bytes>) -> bool {
        let contact = core.advertised(&target.flow).unwrap_or(self.record.legs[1].contact);
        let invite = self.new_invite(core, 1, Purpose::Call);
        let invite = ClientInvite { offered: sdp.is_some(), ..invite };
        let branch = Branch { invite, target, contact };
        let leg = self.record.leg_on(&branch);
        let message = message::invite(&self.record, &leg, &branch.invite, sdp.cloned());
        let way = (leg.flow, self.record.slot);
        let Ok(key) = core.request(way, true, &message) else { return false };
        self.add_client_key(core, 1, branch.invite.cseq, key);
        self.record.fork.get_or_insert_default().branches.push(branch);
        true
    }

    /// Rings a phone again that refused nothing but the timer of the session.
    fn ring_again(&mut self, core: &mut Core, target: Target) -> bool {
        let offer = self.record.legs[1].offer_out.as_ref();
        let sdp = offer.map(|offer| self.render(1, offer));
        self.ring(core, target, sdp.as_ref())
    }

    /// Takes in an answer to the INVITE of a branch.
    pub(super) fn branch_answered(&mut self, core: &mut Core, cseq: u32, answer: &Message) {
        let is_confirmed = self.record.legs[1].dialog.confirmed;
        let until = core.after(core.patience());
        let Some(branch) = self.branch(cseq) else { return };
        match answer.status().unwrap_or(0) {
            status @ 100..200 => {
                if branch.invite.state == ClientState::Calling {
                    branch.invite.state = ClientState::Proceeding;
                }
                if 100 < status {
                    self.ringing(core, status, answer);
                }
            }
            200..300 if is_confirmed => {
                branch.invite.state = ClientState::Accepted { until, acked: true };
                let branch = branch.clone();
                self.barrier = true;
                self.shed_fork(core, &self.record.leg_on(&branch), cseq, answer);
            }
            200..300 => {
                let index = self.take_place(cseq);
                self.accepted(core, 1, index, answer);
            }
            status => self.branch_refused(core, cseq, Refusal::new(status, Some(answer))),
        }
    }

    /// Takes in that a branch refused or never answered.
    pub(super) fn branch_refused(&mut self, core: &mut Core, cseq: u32, refusal: Refusal) {
        let Some(fork) = &mut self.record.fork else { return };
        let branches = &mut fork.branches;
        let Some(index) = branches.iter().position(|branch| branch.invite.cseq == cseq) else {
            return;
        };
        let Branch { invite, target, .. } = branches.remove(index);
        self.barrier = true;
        self.drop_key(core, 1, cseq, false);
        match invite.state {
            ClientState::Calling | ClientState::Proceeding => {
                if !self.asks_for_more(core, 1, &invite, refusal) {
                    self.target_failed(core, refusal.status);
                } else if !self.ring_again(core, target) {
                    self.target_failed(core, 503);
                }
            }
            ClientState::Accepted { .. } => {}
        }
    }

    /// Returns the refusal that counts once nobody is left to accept; `None` as long as there is, or when
    /// somebody has.
    pub(super) fn best_refusal(&mut self, core: &mut Core, status: u16) -> Option<u16> {
        if self.record.legs[1].dialog.confirmed {
            return None;
        }
        let is_ringing = self.is_ringing();
        let Some(fork) = &mut self.record.fork else { return Some(status) };
        if fork.refused == 0 || rank(status) < rank(fork.refused) {
            fork.refused = status;
        }
        let best = fork.refused;
        if is_ringing && 600 <= best && !self.record.is_ended() {
            self.end(core, failover::Cause::Refused(best), best);
        }
        (!is_ringing).then_some(best)
    }

    /// Returns whether an INVITE that calls the callee has no final answer yet.
    pub(super) fn is_ringing(&self) -> bool {
        let own = self.record.legs[1].outgoing.iter();
        own.chain(self.branches().map(|branch| &branch.invite)).any(is_open)
    }

    /// Cancels all branches.
    pub(super) fn cancel_others(&mut self, core: &mut Core) {
        let mut cancelled = Vec::new();
        for branch in self.record.fork.iter_mut().flat_map(|fork| &mut fork.branches) {
            if is_open(&branch.invite) && !branch.invite.cancelled {
                branch.invite.cancelled = true;
                cancelled.push(branch.invite.cseq);
            }
        }
        for key in cancelled.into_iter().filter_map(|cseq| self.client_key(1, cseq)) {
            // Its final answer may be on its way already: then that one counts.
            let _ = core.transactions.cancel(core.now, key);
        }
    }

    /// Forgets those that accepted too late, once no copy of that can come.
    pub(super) fn prune_fork(&mut self, core: &mut Core) {
        let now = core.unix;
        let is_past = |branch: &&Branch| match branch.invite.state {
            ClientState::Accepted { until, .. } => until <= now,
            ClientState::Calling | ClientState::Proceeding => false,
        };
        let past: Vec<u32> = self.branches().filter(is_past).map(|it| it.invite.cseq).collect();
        for cseq in past {
            self.branch_refused(core, cseq, Refusal::new(408, None));
        }
    }

    /// Forgets the fork when nothing of it is left.
    pub(super) fn tidy_fork(&mut self) {
        if self.record.phase != Phase::Calling && self.branches().next().is_none() {
            self.record.fork = None;
        }
    }

    /// Goes on with the INVITEs of all branches. Of those that lost none is said again: nobody knows any
    /// more what was offered, and a CANCEL does no harm where it came to nothing.
    pub(super) fn restore_fork(&mut self, core: &mut Core) {
        let have_lost = self.record.legs[1].dialog.confirmed;
        let branches: Vec<Branch> = self.branches().cloned().collect();
        let mut lost = Vec::new();
        for Branch { mut invite, target, contact } in branches {
            let cseq = invite.cseq;
            if have_lost && is_open(&invite) {
                invite = ClientInvite { state: ClientState::Proceeding, offered: false, ..invite };
            }
            let branch = Branch { invite, target, contact };
            let leg = self.record.leg_on(&branch);
            let request = self.repeated(1, &leg, &branch.invite);
            let way = (leg.flow, self.record.slot);
            if !self.restore_invite(core, 1, way, &branch.invite, request) {
                lost.push(cseq);
            }
        }
        if let Some(fork) = &mut self.record.fork {
            fork.branches.retain(|branch| !lost.contains(&branch.invite.cseq));
        }
    }

    /// Lets a branch and the leg change places; returns the index of its INVITE among the leg's.
    fn take_place(&mut self, cseq: u32) -> usize {
        let leg = &mut self.record.legs[1];
        let calls = |invite: &ClientInvite| invite.purpose == Purpose::Call;
        let own = leg.outgoing.iter().position(calls);
        let branches = self.record.fork.iter_mut().flat_map(|fork| &mut fork.branches);
        let mut branches = branches.filter(|branch| branch.invite.cseq == cseq);
        let Some(branch) = branches.next() else { return 0 };
        let (target, contact) = leg.place(branch.target.clone(), branch.contact);
        let invite = branch.invite.clone();
        match own {
            Some(index) => {
                let own = std::mem::replace(&mut leg.outgoing[index], invite);
                *branch = Branch { invite: own, target, contact };
                index
            }
            // The leg's own place has refused.
            None => {
                leg.outgoing.push(invite);
                let index = leg.outgoing.len() - 1;
                let fork = self.record.fork.iter_mut();
                fork.for_each(|fork| fork.branches.retain(|branch| branch.invite.cseq != cseq));
                index
            }
        }
    }

    fn branches(&self) -> impl Iterator<Item = &Branch> {
        self.record.fork.iter().flat_map(|fork| &fork.branches)
    }

    fn branch(&mut self, cseq: u32) -> Option<&mut Branch> {
        let branches = self.record.fork.iter_mut().flat_map(|fork| &mut fork.branches);
        branches.into_iter().find(|branch| branch.invite.cseq == cseq)
    }
}

fn is_open(invite: &ClientInvite) -> bool {
    matches!(invite.state, ClientState::Calling | ClientState::Proceeding)
}

/// Orders refusals by RFC 3261 §16.7 step 6, the best first. We follow no redirection, and silence or an
/// absence says less than a person.
fn rank(status: u16) -> u8 {
    match status {
        600.. => 0,
        401 | 407 | 415 | 420 | 484 => 1,
        408 | 430 | 480 | 487 | 300..400 => 3,
        400..500 => 2,
        503 => 5,
        _ => 4,
    }
}
