//! The calls that live.

use std::collections::BTreeMap;

use quota_split::{Call, CallId, Tree};

use super::{LIMITED, Ms, PROFILES};

/// The calls that live, and how many of them count at each of [`LIMITED`].
pub(in super::super) struct Calls {
    live: BTreeMap<CallId, Live>,
    counted: [u32; 5],
    /// Where a call counts, by its profile.
    places: BTreeMap<quota_split::NodeId, [bool; 5]>,
}

impl Calls {
    pub(super) fn new(tree: &Tree) -> Self {
        let places = PROFILES.iter().map(|profile| {
            let profile = tree.find(profile).unwrap();
            let path: Vec<&str> = tree.path(profile).map(|it| &*tree.node(it).name).collect();
            (profile, LIMITED.map(|name| path.contains(&name)))
        });
        Self { live: BTreeMap::new(), counted: [0; 5], places: places.collect() }
    }

    /// Returns how many calls count at each of [`LIMITED`], without those that pass every limit.
    pub(in super::super) fn counted(&self) -> [u32; 5] {
        self.counted
    }

    /// Returns how many of these calls count at each of [`LIMITED`].
    pub(in super::super) fn count<'a>(&self, calls: impl Iterator<Item = &'a Live>) -> [u32; 5] {
        let mut counts = [0; 5];
        for live in calls {
            for (count, here) in counts.iter_mut().zip(self.places[&live.call.node]) {
                *count += u32::from(here);
            }
        }
        counts
    }

    pub(in super::super) fn iter(&self) -> impl Iterator<Item = &Live> {
        self.live.values()
    }

    pub(in super::super) fn get(&self, call: CallId) -> Option<&Live> {
        self.live.get(&call)
    }

    pub(super) fn insert(&mut self, live: Live) {
        let before = self.live.insert(live.call.id, live);
        assert!(before.is_none(), "a call is let in once");
        self.note(live, u32::wrapping_add);
    }

    pub(super) fn remove(&mut self, call: CallId) {
        if let Some(live) = self.live.remove(&call) {
            self.note(live, u32::wrapping_sub);
        }
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&Live) -> bool) {
        self.live.retain(|_, live| keep(live));
        self.counted = self.count(self.live.values().filter(|live| !live.exempt));
    }

    pub(super) fn give(&mut self, from: usize, to: usize) {
        for live in self.live.values_mut().filter(|live| live.owner == from) {
            live.owner = to;
        }
    }

    fn note(&mut self, live: Live, step: fn(u32, u32) -> u32) {
        for (count, here) in self.counted.iter_mut().zip(self.places[&live.call.node]) {
            *count = step(*count, u32::from(here && !live.exempt));
        }
    }
}

/// A call that was let in.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Live {
    pub(in super::super) call: Call,
    pub(in super::super) owner: usize,
    pub(in super::super) exempt: bool,
    pub(super) since: Ms,
}
