//! Whether a call fits, at every node that it touches.

use std::time::Duration;

use super::{Admission, Call, Counter, Direction, Full, NONE};
use crate::NodeId;

/// What every call touches, small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) parent: u32,
    /// The place of what few nodes have.
    pub(super) extra: u32,
    pub(super) cells: [Cell; 3],
    pub(super) peak: u32,
    pub(super) refused: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Cell {
    /// `ENDLESS` without a limit.
    pub(super) share: u32,
    pub(super) used: u32,
}

/// What few nodes have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Extra {
    pub(super) soft: bool,
    /// Where burst levels 1 and 2 end on this segment.
    pub(super) levels: [u32; 2],
    pub(super) rate: Option<Rate>,
}

/// A window of one second that the first call after the last one opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Rate {
    pub(super) limit: u32,
    pub(super) share: u32,
    pub(super) opened: Duration,
    pub(super) count: u32,
}

const SECOND: Duration = Duration::from_secs(1);

/// Says where a call does not fit, and what is full there.
pub(super) fn check(
    nodes: &[State],
    extras: &[Extra],
    since: Duration,
    call: Call,
) -> Result<Admission, (NodeId, Full)> {
    let mut admission = Admission { level: 1, over: None, again: false };
    let mut at = call.node.0;
    while at != NONE {
        let state = &nodes[at as usize];
        let extra = extras.get(state.extra as usize);
        if let Some(what) = state.full(extra, since, call.direction) {
            if !extra.is_some_and(|extra| extra.soft) {
                return Err((NodeId(at), what));
            }
            admission.over = admission.over.or(Some(NodeId(at)));
        }
        if let Some(extra) = extra {
            admission.level = admission.level.max(extra.level(state.cells[0].used));
        }
        at = state.parent;
    }
    Ok(admission)
}

/// Counts a call at its node and everything above; tells whether one of them has what few have.
pub(super) fn count(nodes: &mut [State], call: Call) -> bool {
    let mut rare = false;
    let mut at = call.node.0;
    while at != NONE {
        let state = &mut nodes[at as usize];
        for counter in [Counter::Calls, call.direction.counter()] {
            let used = &mut state.cells[counter.index()].used;
            *used = used.saturating_add(1);
        }
        state.peak = state.peak.max(state.cells[0].used);
        rare |= state.extra != NONE;
        at = state.parent;
    }
    rare
}

impl State {
    /// Returns what stops a call here.
    pub(super) fn full(
        &self,
        extra: Option<&Extra>,
        since: Duration,
        direction: Direction,
    ) -> Option<Full> {
        for counter in [Counter::Calls, direction.counter()] {
            let cell = self.cells[counter.index()];
            if cell.share <= cell.used {
                return Some(Full::Counter(counter));
            }
        }
        let rate = extra?.rate?;
        let full = if rate.is_over(since) { rate.share == 0 } else { rate.share <= rate.count };
        full.then_some(Full::PerSecond)
    }
}

impl Extra {
    /// Returns the burst level of one call more.
    pub(super) fn level(&self, used: u32) -> u8 {
        match self.levels {
            [first, _] if used < first => 1,
            [_, second] if used < second => 2,
            [_, _] => 3,
        }
    }
}

impl Rate {
    pub(super) fn is_over(&self, since: Duration) -> bool {
        self.count == 0 || self.opened + SECOND <= since
    }
}
