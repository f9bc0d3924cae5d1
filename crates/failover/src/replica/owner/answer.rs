//! What a standby says about what it was sent.

use std::time::Instant;

use super::super::peer::{Expected, Phase};
use super::super::{Ack, Refusal, Refused};
use super::{Output, Progress, Replicator};
use crate::NodeId;

impl<T> Replicator<T> {
    /// Takes in what a standby acknowledges.
    pub fn ack(&mut self, now: Instant, from: NodeId, ack: &Ack) {
        let Some(peer) = self.peers.get_mut(&from).filter(|peer| peer.stream() == ack.stream)
        else {
            self.counters.stale_acks += 1;
            return;
        };
        let (phase, is_true) = (peer.phase, peer.acknowledged(now, ack.taken));
        match phase {
            Phase::Down | Phase::Resting => self.counters.stale_acks += 1,
            Phase::Stalled => {
                if is_true && peer.is_idle() {
                    self.peer_up(now, from);
                }
            }
            Phase::Streaming if !is_true => {
                self.counters.lies += 1;
                self.end_stream(now, from, Phase::Resting);
            }
            Phase::Streaming if ack.broken => {
                self.counters.broken += 1;
                self.end_stream(now, from, Phase::Resting);
            }
            Phase::Streaming => {
                self.refused(now, from, ack);
                self.confirm(now, from, ack);
                self.release(from);
                self.ask_for_content();
            }
        }
    }

    /// Takes in which slots the standby will not have.
    fn refused(&mut self, now: Instant, from: NodeId, ack: &Ack) {
        let mut unsynced = Vec::new();
        for &Refused { slot, item, refusal } in &ack.refused {
            let copied = &mut self.slots[usize::from(slot.0)];
            let is_over = copied.progress == Progress::None || item < copied.begun;
            if copied.standby != Some(from) || is_over {
                continue;
            }
            let was_synced = copied.progress == Progress::Done;
            copied.progress = Progress::None;
            self.counters.refused += 1;
            self.outputs.push_back(Output::Refused { peer: from, slot, refusal });
            unsynced.extend(was_synced.then_some(slot));
            if let Some(peer) = self.forget(slot)
                && !matches!(refusal, Refusal::OlderEpoch(_) | Refusal::NotBegun)
            {
                peer.failed.insert(slot);
                peer.retry_later(now);
            }
            self.unprotect(slot);
        }
        self.unsynced(from, unsynced);
    }

    /// Compares what the standby says that it holds with what it must.
    fn confirm(&mut self, now: Instant, from: NodeId, ack: &Ack) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        let (mut synced, mut unsynced) = (Vec::new(), Vec::new());
        while let Some(&Expected { number, slot, sum }) = peer.sums.front()
            && number <= peer.acked
        {
            peer.sums.pop_front();
            let copied = &mut self.slots[usize::from(slot.0)];
            if ack.held.contains(&(slot, sum)) {
                if copied.progress == (Progress::Sent { end: number }) {
                    copied.progress = Progress::Done;
                    synced.push(slot);
                }
                continue;
            }
            self.counters.differed += 1;
            if copied.progress == Progress::Done {
                unsynced.push(slot);
            }
            copied.progress = Progress::None;
            peer.forget(slot);
            peer.failed.insert(slot);
            peer.retry_later(now);
        }
        if peer.queued.is_empty() && peer.failed.is_empty() && peer.sums.is_empty() {
            peer.forgive();
        }
        if !synced.is_empty() {
            self.outputs.push_back(Output::Synced { peer: from, slots: synced });
        }
        unsynced.iter().for_each(|&slot| self.unprotect(slot));
        self.unsynced(from, unsynced);
    }
}
