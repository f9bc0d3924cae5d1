use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::{Bid, Gone, SILENCE};
use crate::pulse::{Pulse, Standing};
use crate::{Boot, Epoch, NodeId};

/// What a voter has promised of one slot: the rules of a [`Voter`](super::Voter), alone. They stand
/// open for models that check them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Promise {
    epoch: Epoch,
    /// To whom. Nobody, while nothing was promised or named.
    holder: Option<NodeId>,
    /// Which life of it, once that was heard.
    boot: Option<Boot>,
    /// When it last claimed the slot in such a way that it may count on the answer.
    heard_at: Option<Instant>,
    /// When it last claimed the slot and had a lease.
    held_at: Option<Instant>,
    /// A former holder may count on an answer until then.
    passes_from: Option<Instant>,
}

impl Promise {
    /// Gives the slot to a bidder, without asking whether it may have it.
    pub fn promise(&mut self, now: Instant, bid: &Bid) {
        *self = Self {
            epoch: bid.epoch,
            holder: Some(bid.node),
            boot: Some(bid.boot),
            heard_at: Some(now),
            held_at: Some(now),
            passes_from: self.passes_from,
        };
    }

    /// Takes in that `owner` owns the slot. A higher epoch binds whoever names it. The former holder
    /// may be counting on an answer that it got from here: only a bid asks for that, so the new one
    /// waits.
    pub fn name(&mut self, now: Instant, owner: NodeId, epoch: Epoch) {
        if self.epoch < epoch {
            let former = self.heard_at.filter(|_| self.holder != Some(owner));
            let passes_from = former.map(|heard_at| heard_at + SILENCE).max(self.passes_from);
            let (heard_at, held_at) = (Some(now), Some(now));
            let holder = Some(owner);
            *self = Self { epoch, holder, boot: None, heard_at, held_at, passes_from };
        }
    }

    /// Takes in that a pulse claims the slot at `epoch`.
    pub fn claim(&mut self, now: Instant, pulse: &Pulse, epoch: Epoch) -> Standing {
        if pulse.holds && self.holder != Some(pulse.node) {
            // Won where this voter was not reached. The map that says so may be late: it comes over a
            // link, behind all that waited there for the end of a cut.
            self.name(now, pulse.node, epoch);
        }
        let is_holder = self.holder == Some(pulse.node)
            && self.boot.map_or(self.epoch == epoch, |boot| boot == pulse.boot);
        if !is_holder {
            return Standing::Fenced { promised: self.epoch };
        }
        self.boot = Some(pulse.boot);
        // What the holder won elsewhere binds here too: an older consent of its must not count.
        self.epoch = self.epoch.max(epoch);
        if pulse.holds {
            self.held_at = Some(now);
        } else if self.held_at.is_none_or(|held_at| held_at + SILENCE <= now) {
            // Who has no lease for so long reaches too few to serve, and must not keep others from it.
            return Standing::Lapsed;
        }
        self.heard_at = Some(now);
        if epoch < self.epoch {
            // A bid of its own failed elsewhere.
            Standing::Fenced { promised: self.epoch }
        } else if self.is_open(now) {
            Standing::Passes
        } else {
            Standing::Starting
        }
    }

    /// Takes in that this boot of a b2b lives: what an earlier one held is free.
    pub fn outlive(&mut self, node: NodeId, boot: Boot) {
        if self.holder == Some(node) && self.boot.is_some_and(|old| old < boot) {
            self.heard_at = None;
            self.held_at = None;
        }
    }

    /// Returns for how long the slot is still kept from a bidder; `None` if it is free. Nothing before
    /// `window_from` counts as silence; `boots` are the latest heard of b2bs.
    pub fn kept_for(
        &self,
        now: Instant,
        window_from: Instant,
        bid: &Bid,
        boots: &BTreeMap<NodeId, Boot>,
    ) -> Option<Duration> {
        let holder = self.holder.filter(|holder| *holder != bid.node)?;
        let is_named = bid.owner == Some(holder);
        let boot = self.boot.max(boots.get(&holder).copied());
        let is_gone = match bid.gone {
            Gone::Silent => false,
            Gone::Dead(dead) => is_named && boot.is_none_or(|boot| boot <= dead),
            Gone::Yields(epoch) => is_named && self.epoch == epoch,
        };
        let heard_at = self.heard_at.filter(|_| !is_gone)?.max(window_from);
        let left = SILENCE.checked_sub(now.saturating_duration_since(heard_at))?;
        Some(left).filter(|left| !left.is_zero())
    }

    /// Returns the highest epoch promised or named; zero when there is none.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns whether frames of this epoch pass.
    pub fn passes(&self, now: Instant, epoch: Epoch) -> bool {
        self.epoch == epoch && self.is_open(now)
    }

    /// Returns what this is when it is older by `span` at the same `now`, without what is then too old
    /// to matter: for models whose states hold ages.
    #[must_use]
    pub fn aged(&self, now: Instant, span: Duration) -> Self {
        let older = |at: Option<Instant>| at.and_then(|at| at.checked_sub(span));
        let recent = |at: Option<Instant>| older(at).filter(|at| now < *at + SILENCE);
        Self {
            heard_at: recent(self.heard_at),
            held_at: recent(self.held_at),
            passes_from: older(self.passes_from).filter(|at| now < *at),
            ..*self
        }
    }

    fn is_open(&self, now: Instant) -> bool {
        self.epoch != Epoch(0) && self.passes_from.is_none_or(|from| from <= now)
    }
}
