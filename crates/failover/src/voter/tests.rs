use super::*;
use crate::pulse::Claim;
use crate::slots::Reign;

const SLOT: Slot = Slot(0x2a);
const OWNER: NodeId = NodeId(1);
const OTHER: NodeId = NodeId(2);

#[test]
fn a_voter_that_starts_takes_no_frame_for_300_ms_and_then_only_the_highest_epoch_named() {
    let mut run = Run::new();
    run.name(OWNER, 3);
    run.name(OTHER, 4);
    run.name(OWNER, 3);

    assert!(!run.accepts(299, 4));
    assert!(run.accepts(300, 4));
    assert!(!run.accepts(300, 3));
    assert!(!run.accepts(300, 5));
}

#[test]
fn a_b2b_is_heard_until_no_pulse_of_it_has_come_for_150_ms() {
    let mut run = Run::new();
    assert!(run.voter.reaches(run.at(run.ms), OWNER), "it never said anything");
    run.pulse(OWNER, 7, 5, true);
    let ms = run.ms;
    assert!(run.voter.reaches(run.at(ms + 149), OWNER));
    assert!(!run.voter.reaches(run.at(ms + 150), OWNER));
    run.advance(150);
    run.pulse(OWNER, 6, 5, true);
    assert!(!run.voter.reaches(run.at(run.ms), OWNER), "that was an earlier boot");
    run.pulse(OWNER, 7, 5, true);
    assert!(run.voter.reaches(run.at(run.ms), OWNER));
}

#[test]
fn a_b2b_is_mute_once_all_its_pulses_of_a_second_have_said_so() {
    let mut run = Run::owned();
    for holds in [false, true, false] {
        for _ in 0..20 {
            run.pulse(OWNER, 7, 5, holds);
            assert!(!run.voter.is_mute(run.at(run.ms), OWNER), "a pause is no reason");
            run.advance(50);
        }
    }
    run.pulse(OWNER, 7, 5, false);
    assert!(run.voter.is_mute(run.at(run.ms), OWNER));
    run.pulse(OWNER, 7, 5, true);
    assert!(!run.voter.is_mute(run.at(run.ms), OWNER));
}

#[test]
fn a_slot_that_nobody_named_takes_no_frame() {
    assert!(!Run::new().accepts(300, 0));
}

#[test]
fn an_owner_heard_not_long_ago_keeps_its_slot() {
    let mut run = Run::owned();

    assert_eq!(run.bid(run.by(OTHER, 6)), Answer::Heard { ms: 0 });
    for _ in 0..2 {
        run.advance(149);
        assert_eq!(run.bid(run.by(OTHER, 6)), Answer::Heard { ms: run.since() });
    }
    assert!(run.accepts(run.ms, 5));
    run.advance(2);
    assert_eq!(run.bid(run.by(OTHER, 6)), Answer::Granted);
    assert!(!run.accepts(run.ms, 5));
    assert!(run.accepts(run.ms, 6));
}

#[test]
fn proof_counts_for_the_boot_that_died_and_not_for_a_later_one() {
    let mut run = Run::owned();
    let dead = |boot| Gone::Dead(Boot(boot));

    assert_ne!(run.bid(Bid { gone: dead(6), ..run.by(OTHER, 6) }), Answer::Granted);
    let other = Bid { owner: Some(NodeId(3)), gone: dead(7), ..run.by(OTHER, 6) };
    assert_ne!(run.bid(other), Answer::Granted);
    assert_eq!(run.bid(Bid { gone: dead(7), ..run.by(OTHER, 6) }), Answer::Granted);
}

#[test]
fn consent_counts_for_the_epoch_it_was_given_at() {
    let mut run = Run::owned();

    assert_ne!(run.bid(Bid { gone: Gone::Yields(Epoch(4)), ..run.by(OTHER, 6) }), Answer::Granted);
    assert_eq!(run.bid(Bid { gone: Gone::Yields(Epoch(5)), ..run.by(OTHER, 6) }), Answer::Granted);
}

#[test]
fn consent_of_an_owner_that_has_won_its_slot_anew_elsewhere_counts_no_more() {
    let mut run = Run::owned();
    assert_eq!(run.pulse(OWNER, 7, 6, true), Standing::Passes);

    let bid = Bid { gone: Gone::Yields(Epoch(5)), known: Epoch(6), ..run.by(OTHER, 7) };
    assert_eq!(run.bid(bid), Answer::Heard { ms: 0 });
}

#[test]
fn an_epoch_is_promised_once_and_only_to_who_knows_the_last() {
    let mut run = Run::owned();
    let bid = Bid { gone: Gone::Dead(Boot(7)), ..run.by(OTHER, 6) };

    assert_eq!(run.bid(Bid { known: Epoch(4), ..bid }), Answer::Stale { promised: Epoch(5) });
    assert_eq!(run.bid(Bid { epoch: Epoch(5), ..bid }), Answer::Stale { promised: Epoch(5) });
    assert_eq!(run.bid(bid), Answer::Granted);
    let again = Bid { known: Epoch(6), ..bid };
    assert_eq!(run.bid(again), Answer::Stale { promised: Epoch(6) });
}

#[test]
fn a_trial_promises_nothing() {
    let mut run = Run::owned();
    let bid = Bid { gone: Gone::Dead(Boot(7)), ..run.by(OTHER, 6) };

    assert_eq!(run.bid(Bid { trial: true, ..bid }), Answer::Granted);
    assert!(run.accepts(run.ms, 5));
    assert_eq!(run.pulse(OWNER, 7, 5, true), Standing::Passes);
}

#[test]
fn who_was_fenced_off_is_told_by_the_answer_to_its_pulse() {
    let mut run = Run::owned();
    run.bid(Bid { gone: Gone::Dead(Boot(7)), ..run.by(OTHER, 6) });

    assert_eq!(run.pulse(OWNER, 7, 5, true), Standing::Fenced { promised: Epoch(6) });
    assert_eq!(run.pulse(OTHER, 1, 6, true), Standing::Passes);
}

#[test]
fn an_owner_whose_own_bid_failed_is_told_to_bid_again_and_keeps_its_slot_meanwhile() {
    let mut run = Run::owned();
    run.bid(Bid { boot: Boot(7), ..run.by(OWNER, 6) });
    run.advance(100);

    assert_eq!(run.pulse(OWNER, 7, 5, true), Standing::Fenced { promised: Epoch(6) });
    assert_eq!(run.bid(Bid { known: Epoch(6), ..run.by(OTHER, 7) }), Answer::Heard { ms: 0 });
}

#[test]
fn a_promise_that_nobody_uses_lapses() {
    let mut run = Run::owned();
    run.bid(Bid { gone: Gone::Dead(Boot(7)), ..run.by(OTHER, 6) });

    let back = Bid { known: Epoch(6), boot: Boot(7), owner: Some(OTHER), ..run.by(OWNER, 8) };
    assert_eq!(run.bid(back), Answer::Heard { ms: 0 });
    run.advance(140);
    assert_eq!(run.bid(back), Answer::Heard { ms: 140 });
    run.advance(140);
    assert_eq!(run.bid(back), Answer::Heard { ms: 280 });
    run.advance(20);
    assert_eq!(run.bid(back), Answer::Granted);
}

#[test]
fn an_owner_without_a_lease_keeps_its_slot_for_300_ms_and_may_then_only_bid_again() {
    let mut run = Run::owned();

    run.advance(140);
    assert_eq!(run.pulse(OWNER, 7, 5, false), Standing::Passes);
    run.advance(140);
    assert_eq!(run.pulse(OWNER, 7, 5, false), Standing::Passes);
    run.advance(20);
    assert_eq!(run.pulse(OWNER, 7, 5, false), Standing::Lapsed);
    assert_eq!(run.bid(run.by(OTHER, 6)), Answer::Heard { ms: 20 });
    let again = Bid { boot: Boot(7), ..run.by(OWNER, 6) };
    assert_eq!(run.bid(again), Answer::Granted);
    assert_eq!(run.pulse(OWNER, 7, 6, true), Standing::Passes);
}

#[test]
fn a_later_boot_frees_what_the_earlier_held_and_silences_it() {
    let mut run = Run::owned();

    run.pulse(OWNER, 8, 0, false);

    assert_eq!(run.pulse(OWNER, 7, 5, true), Standing::Replaced);
    assert_eq!(run.bid(Bid { boot: Boot(7), ..run.by(OWNER, 6) }), Answer::Replaced);
    assert_eq!(run.bid(run.by(OTHER, 6)), Answer::Granted);
}

#[test]
fn who_is_only_named_waits_until_the_former_owner_counts_on_no_answer() {
    let mut run = Run::owned();

    run.name(OTHER, 6);

    assert_eq!(run.pulse(OTHER, 1, 6, true), Standing::Starting);
    assert!(!run.accepts(run.ms + 299, 6));
    assert!(run.accepts(run.ms + 300, 6));
}

#[test]
fn a_pulse_names_what_its_sender_won_where_this_voter_was_not_reached() {
    let mut run = Run::owned();
    run.advance(2000);

    assert_eq!(run.pulse(OTHER, 1, 6, true), Standing::Passes);
    assert!(run.accepts(run.ms, 6));
    // Only who has a lease is sure to have won it, and who held it before waits for its answers.
    assert_eq!(run.pulse(OWNER, 7, 7, false), Standing::Fenced { promised: Epoch(6) });
    assert_eq!(run.pulse(OWNER, 7, 7, true), Standing::Starting);
    run.advance(300);
    assert_eq!(run.pulse(OWNER, 7, 7, true), Standing::Passes);
}

#[test]
fn a_voter_that_was_suspended_does_not_take_its_own_silence_for_that_of_others() {
    let mut run = Run::owned();

    run.advance(5000);

    assert_eq!(run.bid(run.by(OTHER, 6)), Answer::Heard { ms: 0 });
}

/// A voter of one slot.
struct Run {
    origin: Instant,
    ms: u64,
    claimed_ms: u64,
    voter: Voter,
}

impl Run {
    #[expect(clippy::disallowed_methods, reason = "an origin for the test")]
    fn new() -> Self {
        let origin = Instant::now();
        Self { origin, ms: 0, claimed_ms: 0, voter: Voter::new(origin, NodeId(11), Boot(1)) }
    }

    /// The owner's boot 7 claims the slot at epoch 5.
    fn owned() -> Self {
        let mut run = Self::new();
        run.ms = 1000;
        run.name(OWNER, 5);
        assert_eq!(run.pulse(OWNER, 7, 5, true), Standing::Passes);
        run
    }

    fn at(&self, ms: u64) -> Instant {
        self.origin + Duration::from_millis(ms)
    }

    fn advance(&mut self, ms: u64) {
        self.ms += ms;
    }

    fn since(&self) -> u16 {
        u16::try_from(self.ms - self.claimed_ms).unwrap()
    }

    fn name(&mut self, owner: NodeId, epoch: u32) {
        let mut map = SlotMap::empty();
        map.set(SLOT, Reign { owner, standby: None, epoch: Epoch(epoch) });
        self.voter.name(self.at(self.ms), owner, &map);
    }

    fn pulse(&mut self, node: NodeId, boot: u64, epoch: u32, holds: bool) -> Standing {
        let claim = Claim { epoch: Epoch(epoch), slots: [SLOT].into_iter().collect() };
        let claims = if epoch == 0 { Vec::new() } else { vec![claim] };
        let pulse =
            Pulse { node, boot: Boot(boot), stamp: 0, holds, draining: false, deaf: false, claims };
        self.claimed_ms = self.ms;
        self.voter.pulse(self.at(self.ms), &pulse).standing
    }

    fn by(&self, node: NodeId, epoch: u32) -> Bid {
        Bid {
            node,
            boot: Boot(1),
            round: 1,
            trial: false,
            slots: [SLOT].into_iter().collect(),
            epoch: Epoch(epoch),
            known: Epoch(5),
            owner: Some(OWNER),
            gone: Gone::Silent,
        }
    }

    fn bid(&mut self, bid: Bid) -> Answer {
        self.voter.bid(self.at(self.ms), &bid).answer
    }

    fn accepts(&self, ms: u64, epoch: u32) -> bool {
        self.voter.accepts(self.at(ms), SLOT, Epoch(epoch))
    }
}
