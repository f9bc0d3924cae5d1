//! What waits for a standby, slot by slot.

use std::collections::VecDeque;

use crate::slots::SLOTS;
use crate::{Slot, SlotSet};

/// A queue for each slot. Those of a busy node fill and empty all the time: each keeps its memory.
#[derive(Clone, Debug)]
pub(super) struct Queues<T> {
    slots: Vec<VecDeque<Waiting<T>>>,
    /// Those that are not empty.
    busy: SlotSet,
}

#[derive(Clone, Debug)]
struct Waiting<T> {
    after: u64,
    what: T,
}

impl<T> Queues<T> {
    pub(super) fn new() -> Self {
        Self { slots: (0..SLOTS).map(|_| VecDeque::new()).collect(), busy: SlotSet::EMPTY }
    }

    /// Lets `what` of `slot` wait for the item `after` of the stream, and for all that waits already.
    pub(super) fn push(&mut self, slot: Slot, after: u64, what: T) {
        self.busy.insert(slot);
        self.slots[usize::from(slot.0)].push_back(Waiting { after, what });
    }

    /// Takes out what waits for nothing behind item `acked`, in order.
    pub(super) fn pass(&mut self, slot: Slot, acked: u64, mut pass: impl FnMut(T)) {
        if !self.busy.contains(slot) {
            return;
        }
        let queue = &mut self.slots[usize::from(slot.0)];
        while queue.front().is_some_and(|first| first.after <= acked) {
            queue.pop_front().into_iter().for_each(|first| pass(first.what));
        }
        if queue.is_empty() {
            queue.shrink_to(KEPT);
            self.busy.remove(slot);
        }
    }

    /// Drops what waits of `slot`.
    pub(super) fn clear(&mut self, slot: Slot) {
        self.pass(slot, u64::MAX, drop);
    }

    /// Returns the slots of which something waits.
    pub(super) fn busy(&self) -> SlotSet {
        self.busy
    }

    /// Returns how many things of `slot` wait.
    pub(super) fn len_of(&self, slot: Slot) -> usize {
        self.slots[usize::from(slot.0)].len()
    }
}

/// An empty queue keeps room for so many.
const KEPT: usize = 8;
