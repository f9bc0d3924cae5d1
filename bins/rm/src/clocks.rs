//! How far the wall clocks of the b2bs are apart.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use driver::{Class, Metrics, Output};
use failover::{Boot, Clock, NodeId};
use tracing::warn;

use crate::frames::{WallClock, send};

/// What the wall clocks of other b2bs say, against ours. No process looks at its wall clock after the
/// start, so one comparison holds for the life of both.
#[derive(Debug)]
pub(crate) struct Clocks {
    own: Clock,
    boot: Boot,
    /// By node, newest boot last: how far ours is ahead of it, in milliseconds.
    ahead: BTreeMap<NodeId, VecDeque<(Boot, i64)>>,
}

impl Clocks {
    /// Returns the clocks of a b2b that has met no other.
    pub(crate) fn new(own: Clock, boot: Boot) -> Self {
        Self { own, boot, ahead: BTreeMap::new() }
    }

    /// Returns what another b2b is told before it gets any copy.
    pub(crate) fn tell(&self, now: Instant, peer: NodeId) -> Output {
        let clock = WallClock { boot: self.boot, unix_ms: self.own.unix_at(now) };
        send(driver::NodeId(peer.0), Class::Bulk, &clock)
    }

    /// Another b2b says what time it is there.
    pub(crate) fn hear(&mut self, now: Instant, peer: NodeId, clock: WallClock) {
        let (here, there) = (self.own.unix_at(now).0, clock.unix_ms.0);
        let millis = i64::try_from(here.abs_diff(there)).unwrap_or(i64::MAX);
        let ahead = if there <= here { millis } else { -millis };
        let lives = self.ahead.entry(peer).or_default();
        lives.retain(|(boot, _)| *boot != clock.boot);
        lives.push_back((clock.boot, ahead));
        if LIVES_MAX < lives.len() {
            lives.pop_front();
        }
        if APART_MAX_MS < millis.unsigned_abs() {
            warn!(peer = peer.0, ahead_ms = ahead, "the clock of this host and a peer's differ");
        }
    }

    /// Returns by how much the times are moved that this life of a node wrote. What may be the way
    /// between both is nothing.
    pub(crate) fn shift(&self, (node, boot): (NodeId, Boot)) -> i64 {
        let lives = self.ahead.get(&node).into_iter().flatten();
        let ahead = lives.filter(|(life, _)| *life == boot).map(|(_, ahead)| *ahead).next();
        ahead.filter(|ahead| APART_MAX_MS < ahead.unsigned_abs()).unwrap_or(0)
    }

    /// Writes the figures.
    pub(crate) fn metrics(&self, out: &mut Metrics) {
        let help = "By how much this host's clock was ahead of another b2b's, in seconds.";
        for (node, lives) in &self.ahead {
            let Some((_, ahead)) = lives.back() else { continue };
            let label = node.to_string();
            let seconds = std::time::Duration::from_millis(ahead.unsigned_abs()).as_secs_f64();
            let seconds = if *ahead < 0 { -seconds } else { seconds };
            out.gauge("rm_clock_ahead_seconds", help, &[("peer", label.as_str())], seconds);
        }
    }
}

/// Clocks that are kept right differ by less, and no frame takes longer while a link is well.
const APART_MAX_MS: u64 = 1000;

/// Copies of earlier lives of a node are taken soon, or replaced.
const LIVES_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use failover::UnixMs;

    use super::*;

    const OTHER: NodeId = NodeId(15);

    #[test]
    fn times_move_by_the_difference_of_the_clocks_in_the_life_that_wrote_them() {
        let (mut clocks, now) = clocks();
        for (boot, there) in [(1, NOON - 3_600_000), (2, NOON + 3_600_000), (3, NOON - 900)] {
            let clock = WallClock { boot: Boot(boot), unix_ms: UnixMs(there + 5000) };
            clocks.hear(now + Duration::from_secs(5), OTHER, clock);
        }
        let shifts = [1, 2, 3, 4].map(|boot| clocks.shift((OTHER, Boot(boot))));
        assert_eq!(shifts, [3_600_000, -3_600_000, 0, 0]);
        assert_eq!(clocks.shift((NodeId(16), Boot(1))), 0);
    }

    #[test]
    fn a_node_that_starts_again_and_again_takes_no_more_room() {
        let (mut clocks, now) = clocks();
        for boot in (0..20).map(Boot) {
            clocks.hear(now, OTHER, WallClock { boot, unix_ms: UnixMs(0) });
        }
        assert_eq!(clocks.ahead[&OTHER].len(), LIVES_MAX);
        assert_ne!(clocks.shift((OTHER, Boot(19))), 0);
    }

    fn clocks() -> (Clocks, Instant) {
        #[expect(clippy::disallowed_methods, reason = "an instant to count from")]
        let instant = Instant::now();
        (Clocks::new(Clock { instant, unix_ms: UnixMs(NOON) }, Boot(7)), instant)
    }

    const NOON: u64 = 1_800_000_000_000;
}
