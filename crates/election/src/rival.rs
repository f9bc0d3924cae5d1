//! Tells another living process with the same id from a former life of one's own.

use std::collections::BTreeMap;

use crate::Life;

/// What this node has seen of other lives with its id.
///
/// A former life is met once or twice, in what others still tell of it. Only a living process
/// raises its boot counter above one that was raised because of it, and does so again and again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rivals {
    seen: BTreeMap<u128, Rival>,
}

#[derive(Clone, Copy, Debug)]
struct Rival {
    incarnation: u64,
    raises: u32,
}

impl Rivals {
    /// Meets a life with this node's id that is not below its `own`; returns whether it lives too.
    pub(crate) fn meet(&mut self, own: Life, other: Life) -> bool {
        if self.seen.len() == RIVALS_MAX && !self.seen.contains_key(&other.instance) {
            self.seen.pop_first();
        }
        let incarnation = other.incarnation;
        let rival = self.seen.entry(other.instance).or_insert(Rival { incarnation, raises: 0 });
        if rival.incarnation < incarnation && own.incarnation < incarnation {
            rival.raises += 1;
        }
        rival.incarnation = rival.incarnation.max(incarnation);
        RAISES_MAX <= rival.raises
    }
}

/// Lives of one id that are remembered.
const RIVALS_MAX: usize = 16;

/// Raises that only a living process makes.
const RAISES_MAX: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn life(incarnation: u64, instance: u128) -> Life {
        Life { incarnation, instance }
    }

    #[test]
    fn a_former_life_is_no_rival() {
        let mut rivals = Rivals::default();

        assert!(!rivals.meet(life(1, 9), life(7, 8)), "this life lost its file");
        assert!(!rivals.meet(life(8, 9), life(8, 8)), "somebody still tells of the other");
        assert!(!rivals.meet(life(9, 9), life(12, 7)));
    }

    #[test]
    fn a_process_that_answers_each_raise_with_a_raise_is_a_rival() {
        let mut rivals = Rivals::default();

        assert!(!rivals.meet(life(5, 9), life(6, 8)));
        assert!(!rivals.meet(life(7, 9), life(8, 8)));
        assert!(rivals.meet(life(9, 9), life(10, 8)));
    }
}
