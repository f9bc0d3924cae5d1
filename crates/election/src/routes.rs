//! Numbers messages, and knows which of the others' were seen before.

use std::collections::BTreeMap;

use crate::message::{Envelope, NODES_MAX};
use crate::{Life, NodeId};

/// The messages sent and seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes {
    sent: u64,
    seen: BTreeMap<NodeId, Window>,
}

/// The last messages of one life of one node.
#[derive(Clone, Copy, Debug)]
struct Window {
    life: Life,
    top: u64,
    /// Bit `n` stands for the message `top − n`.
    seen: u64,
}

impl Routes {
    /// Addresses a message of this node.
    pub(crate) fn envelope(&mut self, origin: NodeId, life: Life, to: NodeId) -> Envelope {
        self.sent += 1;
        Envelope { origin, life, seq: self.sent, to }
    }

    /// Returns whether a message is seen for the first time, and marks it as seen. One of an earlier
    /// life, or more than 63 behind, counts as seen.
    pub(crate) fn is_first(&mut self, envelope: &Envelope) -> bool {
        let Envelope { origin, life, seq, .. } = *envelope;
        let Some(window) = self.seen.get_mut(&origin) else {
            if self.seen.len() == NODES_MAX {
                self.seen.pop_last();
            }
            self.seen.insert(origin, Window { life, top: seq, seen: 1 });
            return true;
        };
        if life.instance != window.life.instance {
            if life < window.life {
                return false;
            }
            *window = Window { life, top: seq, seen: 1 };
            return true;
        }
        window.life = window.life.max(life);
        if window.top < seq {
            window.seen = shifted(window.seen, seq - window.top) | 1;
            window.top = seq;
            return true;
        }
        let bit = shifted(1, window.top - seq);
        let first = bit != 0 && window.seen & bit == 0;
        window.seen |= bit;
        first
    }
}

fn shifted(bits: u64, by: u64) -> u64 {
    u32::try_from(by).ok().and_then(|by| bits.checked_shl(by)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(incarnation: u64, instance: u128, seq: u64) -> Envelope {
        let life = Life { incarnation, instance };
        Envelope { origin: NodeId::default(), life, seq, to: NodeId::default() }
    }

    #[test]
    fn a_message_is_seen_once_in_whatever_order_it_comes() {
        let mut routes = Routes::default();

        let seen: Vec<bool> = [3, 1, 3, 2, 1, 70, 70, 6, 7, 7]
            .into_iter()
            .map(|seq| routes.is_first(&envelope(1, 1, seq)))
            .collect();

        let first = [true, true, false, true, false, true, false, false, true, false];
        assert_eq!(seen, first, "6 lies too far behind 70, 7 does not");
    }

    #[test]
    fn a_new_life_starts_anew_and_ends_the_old_one() {
        let mut routes = Routes::default();

        assert!(routes.is_first(&envelope(1, 1, 9)));
        assert!(routes.is_first(&envelope(2, 2, 1)));
        assert!(!routes.is_first(&envelope(1, 1, 10)));
        assert!(!routes.is_first(&envelope(2, 2, 1)));
        assert!(!routes.is_first(&envelope(3, 2, 1)), "a raised boot counter is the same life");
    }
}
