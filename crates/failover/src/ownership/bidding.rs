use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::{ORPHANED, Output, Ownership};
use crate::pulse::{CLAIMS_MAX, Standing};
use crate::slots::{Reign, SlotSet};
use crate::voter::{Answer, Bid, Gone, SILENCE, Vote};
use crate::{Epoch, NodeId, Slot};

/// One question to all voters.
#[derive(Clone, Debug)]
pub(super) struct Round {
    bid: Bid,
    sent_at: Instant,
    answers: BTreeMap<NodeId, Answer>,
}

impl Round {
    /// Who has not answered by then is not waited for.
    pub(super) fn ends_at(&self) -> Instant {
        self.sent_at + WAIT
    }
}

impl Ownership {
    /// Counts an answer to the question that is open.
    pub(super) fn count(&mut self, from: NodeId, vote: Vote) {
        let is_voter = self.votes(from);
        if let Some(round) = &mut self.round
            && round.bid.round == vote.round
            && is_voter
        {
            round.answers.insert(from, vote.answer);
        }
    }

    /// Ends the open question if it is decided.
    pub(super) fn settle(&mut self, now: Instant) {
        let Some(round) = self.round.take() else { return };
        let refused = round.answers.iter().any(|(voter, answer)| {
            let refuses = !matches!(answer, Answer::Granted | Answer::Starting);
            refuses && self.config.gates.contains(voter)
        });
        let granted = round.answers.values().filter(|answer| **answer == Answer::Granted).count();
        let suffices = self.promises_needed() <= granted;
        // Whom nobody has heard lately is waited for only while others do not suffice.
        let mut voters = self.peers.iter().filter(|(id, _)| self.votes(**id));
        let is_awaited = voters.any(|(id, peer)| {
            let is_there = if suffices { peer.is_reached(now) } else { peer.is_linked() };
            // The voter of this process needs no link.
            (is_there || self.is_self(*id)) && !round.answers.contains_key(id)
        });
        if !refused && is_awaited && now < round.ends_at() {
            self.round = Some(round);
            return;
        }
        let won = !refused && suffices && now <= round.sent_at + VALID;
        match (won, round.bid.trial) {
            (true, true) => self.ask(now, Bid { trial: false, ..round.bid }),
            (true, false) => self.take(now, &round),
            (false, _) => self.fail(now, &round),
        }
    }

    /// Asks for slots, if there are some to ask for and no question is open.
    pub(super) fn bid(&mut self, now: Instant) {
        if self.round.is_some() {
            return;
        }
        let Some((owner, gone, slots)) = self.wanted(now) else { return };
        let known = |slot: Slot| self.known[usize::from(slot.0)];
        let highest = slots.iter().map(known).max().unwrap_or_default();
        let Some(epoch) = self.next_epoch(now, highest) else { return };
        let bid = Bid {
            node: self.config.node,
            boot: self.config.boot,
            round: 0,
            trial: true,
            slots,
            epoch,
            known: slots.iter().map(known).min().unwrap_or_default(),
            owner,
            gone,
        };
        self.ask(now, bid);
    }

    fn ask(&mut self, now: Instant, bid: Bid) {
        self.rounds += 1;
        let bid = Bid { round: self.rounds, ..bid };
        let voters = self.peers.iter().filter(|(id, _)| self.votes(**id));
        let linked = voters.filter(|(id, peer)| self.is_self(**id) || peer.is_linked());
        let bids: Vec<Output> = linked.map(|(to, _)| Output::Bid { to: *to, bid }).collect();
        self.outputs.extend(bids);
        self.round = Some(Round { bid, sent_at: now, answers: BTreeMap::new() });
    }

    fn take(&mut self, now: Instant, round: &Round) {
        let Bid { slots, epoch, owner, .. } = round.bid;
        let overtaken = |slot: &Slot| epoch < self.known[usize::from(slot.0)];
        let slots = slots.without(slots.iter().filter(overtaken).collect());
        if slots.is_empty() {
            return;
        }
        if self.own.is_subset(slots) {
            // A promise says of all our slots what an answer to a pulse would.
            for (voter, answer) in &round.answers {
                if *answer == Answer::Granted {
                    self.peer(*voter, |peer| peer.stands(now, round.sent_at, Standing::Passes));
                }
            }
        }
        let yields = matches!(round.bid.gone, Gone::Yields(_));
        let is_bare = |slot: &Slot| self.is_bare(*slot) || !yields && self.is_old(now, *slot);
        let bare: SlotSet = slots.iter().filter(is_bare).collect();
        self.counters.bare += u64::try_from(bare.len()).unwrap_or(u64::MAX);
        self.bare = self.bare.without(slots).union(bare);
        for slot in slots.iter() {
            self.map.set(slot, Reign { owner: self.config.node, standby: None, epoch });
            self.known[usize::from(slot.0)] = epoch;
            self.acted_at[usize::from(slot.0)] = now;
        }
        self.own = self.own.union(slots);
        self.yielded = self.yielded.map(|(yielded, at)| (yielded.without(slots), at));
        for offered in self.offered.values_mut() {
            *offered = offered.without(slots);
        }
        self.offered.retain(|_, slots| !slots.is_empty());
        self.retry_at.clear();
        self.counters.wins += 1;
        let is_takeover = owner.is_some_and(|owner| owner != self.config.node);
        self.counters.takeovers += u64::from(is_takeover);
        self.outputs.push_back(Output::Own { slots, epoch });
        self.send_maps();
        self.send_pulses(now);
        self.choose_standby();
        self.copy_to_standby(slots);
    }

    /// Returns whether another owns a slot whose standby is not this b2b.
    fn is_bare(&self, slot: Slot) -> bool {
        let own = self.config.node;
        self.map.get(slot).is_some_and(|it| it.owner != own && it.standby != Some(own))
    }

    /// Returns whether another owns a slot who was not heard here for so long that it has dropped this
    /// b2b as its standby: voters must have heard it.
    fn is_old(&self, now: Instant, slot: Slot) -> bool {
        let is_anothers = self.map.get(slot).is_some_and(|it| it.owner != self.config.node);
        is_anothers && self.acted_at[usize::from(slot.0)] + ORPHANED <= now
    }

    fn fail(&mut self, now: Instant, round: &Round) {
        let Bid { slots, owner, trial, .. } = round.bid;
        self.counters.failures += u64::from(!trial);
        let (mut wait, mut learned) = (None, false);
        for answer in round.answers.values() {
            match *answer {
                Answer::Stale { promised } => {
                    for slot in slots.iter() {
                        let known = &mut self.known[usize::from(slot.0)];
                        learned |= *known < promised;
                        *known = (*known).max(promised);
                    }
                }
                Answer::Heard { ms } => {
                    let left = SILENCE.saturating_sub(Duration::from_millis(ms.into()));
                    wait = wait.max(Some(left.max(Duration::from_millis(1))));
                }
                Answer::Granted | Answer::Starting | Answer::Replaced => {}
            }
        }
        // Another bid at the same time, or nobody answers. Bids that met must not meet again.
        let knows_better = trial && (learned || wait.is_some());
        let apart = if knows_better { Duration::ZERO } else { STAGGER + self.turn() };
        self.retry_at.insert(owner, now + wait.unwrap_or_default() + apart);
    }

    /// Returns whose slots to ask for next, and why they are free.
    fn wanted(&self, now: Instant) -> Option<(Option<NodeId>, Gone, SlotSet)> {
        let is_due = |owner| self.retry_at.get(&owner).is_none_or(|at| *at <= now);
        let own = Some(self.config.node);
        if is_due(own) && self.is_contested(now) {
            return Some((own, Gone::Silent, self.own));
        }
        if let Some((yielded, back_at)) = self.yielded
            && back_at <= now
            && is_due(own)
            && !yielded.is_empty()
        {
            return Some((own, Gone::Silent, yielded));
        }
        if self.draining {
            return None;
        }
        for ((from, epoch), offered) in &self.offered {
            let reign = |slot: &Slot| self.map.get(*slot);
            let is_theirs =
                |slot: &Slot| reign(slot).is_some_and(|it| it.owner == *from && it.epoch == *epoch);
            let slots: SlotSet = offered.iter().filter(is_theirs).collect();
            if is_due(Some(*from)) && !slots.is_empty() {
                return Some((Some(*from), Gone::Yields(*epoch), slots));
            }
        }
        let mut wanted: BTreeMap<Option<NodeId>, (Gone, SlotSet)> = BTreeMap::new();
        let yielded = self.yielded.map_or(SlotSet::EMPTY, |(yielded, _)| yielded);
        // Slots mostly come in runs of one owner that were heard of at the same time.
        let mut before = None;
        for slot in SlotSet::ALL.without(self.own.union(yielded)).iter() {
            let known = (self.map.get(slot), self.acted_at[usize::from(slot.0)]);
            let free = match before {
                Some((same, free)) if same == known && known.0.is_some() => free,
                _ => self.is_free(now, slot),
            };
            before = Some((known, free));
            if let Some((owner, gone)) = free
                && is_due(owner)
            {
                wanted.entry(owner).or_insert((gone, SlotSet::EMPTY)).1.insert(slot);
            }
        }
        wanted.into_iter().map(|(owner, (gone, slots))| (owner, gone, slots)).next()
    }

    /// Returns whether voters keep what is ours from us although nobody took it.
    fn is_contested(&self, now: Instant) -> bool {
        if self.own.is_empty() {
            return false;
        }
        let mutes = !self.may_act(now);
        let epoch = |slot: Slot| self.map.get(slot).map(|reign| reign.epoch);
        let lowest = self.own.iter().filter_map(epoch).min();
        let contests = |standing| match standing {
            Standing::Fenced { promised } => lowest < Some(promised),
            Standing::Lapsed => mutes,
            Standing::Passes | Standing::Starting | Standing::Replaced => false,
        };
        let mut voters = self.peers.iter().filter(|(id, _)| self.votes(**id));
        CLAIMS_MAX < self.claims(self.own).len()
            || voters.any(|(_, peer)| {
                peer.standing(now, STAGGER).is_some_and(contests)
                    || (mutes && peer.standing(now, Duration::ZERO) == Some(Standing::Lapsed))
            })
    }

    /// Returns whose a slot was, and why it is this b2b's turn to ask for it; `None` while it is not.
    fn is_free(&self, now: Instant, slot: Slot) -> Option<(Option<NodeId>, Gone)> {
        let index = usize::from(slot.0);
        let Some(reign) = self.map.get(slot) else {
            let is_ours = self.known[index] == Epoch(0) && self.meant_for(slot) == self.config.node;
            let wait = if is_ours { Duration::ZERO } else { ORPHANED + self.turn() };
            return (self.started_at + wait <= now).then_some((None, Gone::Silent));
        };
        let owner = Some(reign.owner);
        if reign.owner == self.config.node {
            // Ours in an earlier life: what its standby holds is fresher.
            let wait = if reign.standby.is_some() { ORPHANED } else { Duration::ZERO };
            return (self.acted_at[index] + wait <= now).then_some((owner, Gone::Silent));
        }
        let acted_at = self.acted_at[index];
        let death = self.peers.get(&reign.owner).and_then(|peer| peer.died(acted_at));
        let (gone, since) = match death {
            Some((boot, at)) => (Gone::Dead(boot), at),
            None => (Gone::Silent, acted_at + QUIET),
        };
        let wait = match reign.standby {
            Some(standby) if standby == self.config.node => Duration::ZERO,
            Some(_) => ORPHANED + self.turn(),
            None => self.turn(),
        };
        (since + wait <= now).then_some((owner, gone))
    }

    /// Returns the b2b that a slot goes to when nobody ever owned it: they share the slots evenly.
    fn meant_for(&self, slot: Slot) -> NodeId {
        let active = || self.config.b2bs.iter().filter(|(_, member)| !member.standby);
        let index = usize::from(slot.0) * active().count() / crate::slots::SLOTS;
        active().nth(index).map_or(self.config.node, |(id, _)| *id)
    }

    /// Two b2bs that want the same try one after the other.
    fn turn(&self) -> Duration {
        STAGGER * u32::try_from(self.rank()).unwrap_or(u32::MAX)
    }

    fn rank(&self) -> usize {
        self.config.b2bs.keys().position(|id| self.is_self(*id)).unwrap_or_default()
    }

    /// Returns an epoch above `known` that no other b2b would bid. Mediagates keep epochs for longer
    /// than anybody else may remember, so it is the time at least. `None` when there are no more.
    fn next_epoch(&self, now: Instant, known: Epoch) -> Option<Epoch> {
        let (count, rank) = (self.config.b2bs.len(), self.rank());
        let (count, rank) = (u32::try_from(count).ok()?, u32::try_from(rank).ok()?);
        let seconds = u32::try_from(self.config.clock.unix_at(now).0 / 1000).unwrap_or(0);
        let least = known.max(self.stored).0.checked_add(1)?.max(seconds);
        least.checked_add((count + rank - least % count) % count).map(Epoch)
    }
}

/// How long to wait for voters that seem to be there.
const WAIT: Duration = Duration::from_millis(75);

/// An answer that takes longer is worth nothing: the promise may have gone to another since.
const VALID: Duration = Duration::from_millis(100);

/// After which silence of an owner to ask whether the voters hear it.
const QUIET: Duration = Duration::from_millis(150);

/// Between bidders of neighbouring rank, and before a failed bid is repeated.
const STAGGER: Duration = Duration::from_millis(100);
