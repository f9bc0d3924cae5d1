//! What is going to happen, in order of time and then of scheduling.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Events by time. The heap moves small entries; the events stay in place.
#[derive(Debug)]
pub(super) struct Calendar<E> {
    heap: BinaryHeap<Reverse<Entry>>,
    events: Vec<Option<E>>,
    free: Vec<u32>,
    scheduled: u64,
}

/// Time, order of scheduling, place of the event.
type Entry = (u64, u64, u32);

impl<E> Calendar<E> {
    pub(super) fn new() -> Self {
        Self { heap: BinaryHeap::new(), events: Vec::new(), free: Vec::new(), scheduled: 0 }
    }

    pub(super) fn schedule(&mut self, at: u64, event: E) {
        let place = match self.free.pop() {
            Some(place) => {
                self.events[place as usize] = Some(event);
                place
            }
            None => {
                let place = u32::try_from(self.events.len()).expect("four billion events wait");
                self.events.push(Some(event));
                place
            }
        };
        self.heap.push(Reverse((at, self.scheduled, place)));
        self.scheduled += 1;
    }

    pub(super) fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    pub(super) fn pop(&mut self) -> Option<E> {
        let Reverse((_, _, place)) = self.heap.pop()?;
        self.free.push(place);
        self.events[place as usize].take()
    }
}
