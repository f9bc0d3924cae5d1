//! The gateway's ports, cut into blocks.

use std::collections::BTreeSet;
use std::time::Instant;

use super::Peer;
use crate::frame::{BLOCK_PORTS, Block};
use crate::lessee::QUARANTINE;

/// One process of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Holder {
    pub(super) peer: Peer,
    pub(super) boot: u64,
}

#[derive(Debug)]
pub(super) struct Blocks {
    first_port: u16,
    workers: u16,
    /// The block that is given first; another one in each boot, since phones that were not told of
    /// the death of the last boot go on sending to its ports.
    first: u16,
    /// By index. Every `workers`-th one belongs to the same worker.
    states: Vec<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    tenure: Tenure,
    /// RTP ports that are open.
    open: u16,
    /// No packet for an earlier call is to be feared from then on.
    rested_at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tenure {
    Free,
    Held(Holder),
    /// Its holder is gone; a later boot of it, or another, carries on a call in it. Free when that has ended.
    Left,
}

impl Blocks {
    pub(super) fn new(now: Instant, first_port: u16, blocks: u16, workers: u16, boot: u64) -> Self {
        let last = u32::from(first_port) + u32::from(blocks) * u32::from(BLOCK_PORTS);
        assert!(workers != 0, "a gateway has a worker");
        assert!(last <= 1 << 16, "all ports are below 65,536");
        let state = State { tenure: Tenure::Free, open: 0, rested_at: now + QUARANTINE };
        let first = first_block(boot, blocks);
        Self { first_port, workers, first, states: vec![state; usize::from(blocks)] }
    }

    /// Gives up to `wanted` blocks, so that the holder has as many in each worker.
    pub(super) fn lease(&mut self, now: Instant, holder: Holder, wanted: u16) -> Vec<Block> {
        let is_free = |_, state: &State| state.tenure == Tenure::Free;
        let given = (0..wanted).map_while(|_| {
            let index = self.choose(holder, is_free)?;
            self.states[usize::from(index)].tenure = Tenure::Held(holder);
            Some(self.block(now, index))
        });
        given.collect()
    }

    /// Gives up to `wanted` blocks whose holders are gone, but for those in which `others` lie: ports of
    /// calls that are not the new holder's.
    pub(super) fn inherit(
        &mut self,
        now: Instant,
        holder: Holder,
        wanted: usize,
        others: impl Iterator<Item = u16>,
    ) -> Vec<Block> {
        let others: BTreeSet<u16> = others.filter_map(|port| self.index(port)).collect();
        let is_left =
            |index, state: &State| state.tenure == Tenure::Left && !others.contains(&index);
        let given = (0..wanted).map_while(|_| {
            let index = self.choose(holder, is_left)?;
            let state = &mut self.states[usize::from(index)];
            state.tenure = Tenure::Held(holder);
            // The Close of a call in it may be on its way.
            state.rested_at = now + QUARANTINE;
            Some(self.block(now, index))
        });
        given.collect()
    }

    /// Takes back one block from its holder.
    pub(super) fn give_back(&mut self, now: Instant, holder: Holder, index: u16) {
        if let Some(state) = self.states.get_mut(usize::from(index))
            && state.tenure == Tenure::Held(holder)
        {
            state.leave(now);
        }
    }

    /// Takes back all blocks of a holder that is gone.
    pub(super) fn take_back(&mut self, now: Instant, holder: Holder) {
        for state in &mut self.states {
            if state.tenure == Tenure::Held(holder) {
                state.leave(now);
            }
        }
    }

    /// A port of a block was opened.
    pub(super) fn open(&mut self, port: u16) {
        if let Some(state) = self.state_mut(port) {
            state.open += 1;
        }
    }

    /// A port of a block was closed.
    pub(super) fn close(&mut self, now: Instant, port: u16) {
        if let Some(state) = self.state_mut(port) {
            state.open = state.open.saturating_sub(1);
            state.rested_at = now + QUARANTINE;
            if state.tenure == Tenure::Left {
                state.leave(now);
            }
        }
    }

    /// What `holder` has.
    pub(super) fn of(&self, now: Instant, holder: Holder) -> Vec<Block> {
        let held = |index: &u16| self.states[usize::from(*index)].tenure == Tenure::Held(holder);
        (0..self.len()).filter(held).map(|index| self.block(now, index)).collect()
    }

    /// The worker of an RTP port that somebody has leased.
    pub(super) fn worker(&self, port: u16) -> Option<u16> {
        let index = self.index(port)?;
        let leased = self.states[usize::from(index)].tenure != Tenure::Free;
        (leased && port.is_multiple_of(2)).then_some(index % self.workers)
    }

    pub(super) fn free(&self) -> usize {
        self.states.iter().filter(|state| state.tenure == Tenure::Free).count()
    }

    pub(super) fn has_left(&self) -> bool {
        self.states.iter().any(|state| state.tenure == Tenure::Left)
    }

    /// A block that may be given, of the worker in which `holder` has fewest: the one with fewest open ports,
    /// rested longest.
    fn choose(&self, holder: Holder, may: impl Fn(u16, &State) -> bool) -> Option<u16> {
        let mut held = vec![0_u16; usize::from(self.workers)];
        for (index, state) in self.states.iter().enumerate() {
            if state.tenure == Tenure::Held(holder) {
                held[index % usize::from(self.workers)] += 1;
            }
        }
        let allowed =
            (0..self.len()).filter(|index| may(*index, &self.states[usize::from(*index)]));
        allowed.min_by_key(|index| {
            let state = &self.states[usize::from(*index)];
            let turn = (index + self.len() - self.first) % self.len();
            (held[usize::from(index % self.workers)], state.open, state.rested_at, turn)
        })
    }

    fn block(&self, now: Instant, index: u16) -> Block {
        let rest = self.states[usize::from(index)].rested_at.saturating_duration_since(now);
        // Rounded up: a part of a millisecond counts as one.
        let rest_ms = u16::try_from(rest.as_micros().div_ceil(1000))
            .expect("nothing rests for longer than the quarantine");
        Block {
            index,
            worker: index % self.workers,
            first_port: self.first_port + index * BLOCK_PORTS,
            rest_ms,
        }
    }

    fn index(&self, port: u16) -> Option<u16> {
        let index = port.checked_sub(self.first_port)? / BLOCK_PORTS;
        (index < self.len()).then_some(index)
    }

    fn state_mut(&mut self, port: u16) -> Option<&mut State> {
        let index = self.index(port)?;
        self.states.get_mut(usize::from(index))
    }

    fn len(&self) -> u16 {
        u16::try_from(self.states.len()).expect("made from a u16")
    }
}

impl State {
    /// Nobody holds the block any more. It is free at once, or when its last port is closed.
    fn leave(&mut self, now: Instant) {
        if self.open == 0 {
            self.tenure = Tenure::Free;
            self.rested_at = self.rested_at.max(now + QUARANTINE);
        } else {
            self.tenure = Tenure::Left;
        }
    }
}

/// Neighbouring boots begin far from each other, if there are blocks enough.
fn first_block(boot: u64, blocks: u16) -> u16 {
    let groups = u64::from(blocks / GROUP).max(1);
    let group = boot.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    u16::try_from(group % groups).expect("less than the blocks") * GROUP
}

/// About what one b2b leases at first.
const GROUP: u16 = 8;
