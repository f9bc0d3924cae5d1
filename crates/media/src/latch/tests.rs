#![expect(clippy::disallowed_methods, reason = "tests need a first instant")]

use proptest::prelude::*;

use super::*;

const PUBLIC: &str = "192.0.2.10:4000";
const PRIVATE: &str = "10.0.0.9:4000";
const OTHER_PORT: &str = "192.0.2.10:61000";
const ELSEWHERE: &str = "198.51.100.7:61000";

#[test]
fn rule_1_learning_ends_five_seconds_after_the_first_packet_to_learn_from() {
    let mut run = Run::new(PUBLIC);
    run.advance(60_000);

    // Never four in a row, so that nothing is learned meanwhile.
    for seq in 0..250 {
        assert_eq!(run.hear(OTHER_PORT, 9, 2 * seq), Verdict::Foreign);
    }
    run.hear(OTHER_PORT, 9, 1000);
    run.hear(OTHER_PORT, 9, 1001);
    run.hear(OTHER_PORT, 9, 1002);

    assert_eq!(run.hear(OTHER_PORT, 9, 1003), Verdict::Foreign);
    assert_eq!(run.latch.source(), Some(addr(PUBLIC)));
}

#[test]
fn rule_1_the_same_sdp_again_changes_nothing() {
    let mut run = Run::new(PUBLIC);
    run.learn(OTHER_PORT, 9);

    assert!(!run.offer(PUBLIC));

    assert_eq!(run.latch.source(), Some(addr(OTHER_PORT)));
    assert_eq!(run.latch.target(), Some(addr(OTHER_PORT)));
}

#[test]
fn rule_1_another_address_in_the_sdp_opens_the_leg_again() {
    let mut run = Run::new(PUBLIC);
    run.learn(OTHER_PORT, 9);

    assert!(run.offer("192.0.2.10:5000"));

    assert_eq!(run.latch.target(), Some(addr("192.0.2.10:5000")));
    assert_eq!(run.hear("192.0.2.10:5000", 9, 5), Verdict::Locked);
}

#[test]
fn a_hold_by_an_address_of_zeros_stops_sending_and_keeps_the_source() {
    let mut run = Run::new(PRIVATE);
    run.learn(ELSEWHERE, 9);

    assert!(!run.offer("0.0.0.0:4000"));
    assert_eq!(run.latch.target(), None);
    assert_eq!(run.hear(ELSEWHERE, 9, 5), Verdict::Known);

    assert!(!run.offer(PRIVATE));
    assert_eq!(run.latch.target(), Some(addr(ELSEWHERE)));
}

#[test]
fn the_last_packets_of_a_stream_that_moves_are_not_learned() {
    let mut run = Run::new(PUBLIC);
    run.hear(PUBLIC, 9, 0);
    run.offer("192.0.2.10:5000");

    for seq in 1..20 {
        assert_eq!(run.hear(PUBLIC, 9, seq), Verdict::Foreign);
    }
    assert_eq!(run.hear("192.0.2.10:5000", 9, 20), Verdict::Locked);
}

#[test]
fn a_phone_that_says_it_moves_and_does_not_is_heard_after_half_a_second() {
    let mut run = Run::new(PUBLIC);
    run.hear(PUBLIC, 9, 0);
    run.offer("192.0.2.10:5000");

    run.advance(500);
    run.learn(PUBLIC, 9);
}

#[test]
fn rule_2_the_address_of_the_sdp_is_accepted_at_once() {
    let mut run = Run::new(PUBLIC);

    assert_eq!(run.hear(PUBLIC, 9, 0), Verdict::Locked);
    assert_eq!(run.hear(PUBLIC, 9, 1), Verdict::Known);
    assert_eq!(run.latch.target(), Some(addr(PUBLIC)));
}

#[test]
fn rule_2_the_address_of_the_sdp_replaces_a_learned_one_while_learning() {
    let mut run = Run::new(PUBLIC);
    run.learn(OTHER_PORT, 9);

    assert_eq!(run.hear(PUBLIC, 4, 0), Verdict::Locked);
}

#[test]
fn rule_2_the_address_of_the_sdp_is_a_stranger_once_learning_is_over() {
    let mut run = Run::new(PUBLIC);
    run.learn(OTHER_PORT, 9);

    run.advance(5000);
    assert_eq!(run.hear(PUBLIC, 4, 0), Verdict::Foreign);
}

#[test]
fn rule_3_four_packets_in_sequence_are_learned_from_another_port() {
    let mut run = Run::new(PUBLIC);

    assert_eq!(run.hear(OTHER_PORT, 9, 65_534), Verdict::Foreign);
    assert_eq!(run.hear(OTHER_PORT, 9, 65_535), Verdict::Foreign);
    assert_eq!(run.hear(OTHER_PORT, 9, 0), Verdict::Foreign);
    assert_eq!(run.hear(OTHER_PORT, 9, 1), Verdict::Locked);
    assert_eq!(run.latch.target(), Some(addr(OTHER_PORT)));
}

#[test]
fn rule_3_a_gap_or_another_ssrc_starts_the_count_again() {
    let mut run = Run::new(PUBLIC);

    for (ssrc, seq) in [(9, 0), (9, 1), (9, 2), (9, 4), (9, 5), (9, 6), (8, 7), (8, 8), (8, 9)] {
        assert_eq!(run.hear(OTHER_PORT, ssrc, seq), Verdict::Foreign);
    }
    assert_eq!(run.hear(OTHER_PORT, 8, 10), Verdict::Locked);
}

#[test]
fn rule_3_four_packets_spread_over_more_than_200_ms_are_not_enough() {
    let mut run = Run::new(PUBLIC);

    for seq in 0..20 {
        assert_eq!(run.hear_after(70, OTHER_PORT, 9, seq), Verdict::Foreign);
    }
}

#[test]
fn rule_3_streams_that_compete_keep_each_other_out() {
    let mut run = Run::new(PUBLIC);

    for seq in 0..50 {
        assert_eq!(run.hear(OTHER_PORT, 9, seq), Verdict::Foreign);
        assert_eq!(run.hear("192.0.2.10:62000", 8, seq), Verdict::Foreign);
    }
}

#[test]
fn rule_3_another_host_is_learned_only_for_a_private_address_or_behind_a_nat() {
    let mut run = Run::new(PUBLIC);
    for seq in 0..20 {
        assert_eq!(run.hear(ELSEWHERE, 9, seq), Verdict::Foreign);
    }

    Run::new(PRIVATE).learn(ELSEWHERE, 9);

    let mut run = Run::new(PUBLIC);
    run.latch = Latch::new(Some(addr(PUBLIC)), true, None);
    run.learn(ELSEWHERE, 9);
}

#[test]
fn rule_3_nothing_is_learned_before_there_is_an_sdp() {
    let mut run = Run::new(PUBLIC);
    run.latch = Latch::new(None, true, None);

    for seq in 0..20 {
        assert_eq!(run.hear(ELSEWHERE, 9, seq), Verdict::Foreign);
    }
    assert_eq!(run.latch.target(), None);
}

#[test]
fn rule_4_a_barred_source_is_never_accepted() {
    let mut run = Run::new(PUBLIC);
    run.surroundings.barred = true;

    for seq in 0..20 {
        assert_eq!(run.hear(PUBLIC, 9, seq), Verdict::Foreign);
        assert_eq!(run.hear(OTHER_PORT, 9, seq), Verdict::Foreign);
    }
}

#[test]
fn rule_4_a_payload_type_that_was_not_negotiated_is_not_learned_from() {
    let mut run = Run::new(PUBLIC);
    run.surroundings.negotiated = false;

    for seq in 0..20 {
        assert_eq!(run.hear(PUBLIC, 9, seq), Verdict::Foreign);
    }
}

#[test]
fn rule_4_groups_of_hosts_and_unnamed_ones_are_no_sources_and_no_targets() {
    for odd in ["224.0.0.1:4000", "255.255.255.255:4000", "192.0.2.10:0", "[ff02::1]:4000"] {
        let mut run = Run::new(PUBLIC);
        run.latch = Latch::new(Some(addr(odd)), true, None);

        assert_eq!(run.latch.target(), None, "{odd}");
        assert_eq!(run.hear(odd, 9, 0), Verdict::Foreign, "{odd}");
    }
}

#[test]
fn rule_5_a_stranger_is_dropped_once_the_leg_is_locked() {
    let mut run = Run::new(PRIVATE);
    run.learn(ELSEWHERE, 9);

    for seq in 0..100 {
        assert_eq!(run.hear("198.51.100.7:7000", 8, seq), Verdict::Foreign);
        assert_eq!(run.hear("203.0.113.1:61000", 9, 4 + seq), Verdict::Foreign);
    }
}

#[test]
fn rule_5_a_nat_may_give_the_same_stream_another_port() {
    let mut run = Run::new(PUBLIC);
    run.hear(PUBLIC, 9, 0);
    run.advance(20);

    for seq in 1..25 {
        assert_eq!(run.hear(OTHER_PORT, 9, seq), Verdict::Foreign);
    }
    assert_eq!(run.hear(OTHER_PORT, 9, 25), Verdict::Relocked);
    assert_eq!(run.latch.target(), Some(addr(OTHER_PORT)));
}

#[test]
fn rule_5_not_before_the_old_source_was_silent_for_500_ms() {
    let mut run = Run::new(PUBLIC);
    run.hear(PUBLIC, 9, 0);

    for seq in 1..100 {
        assert_eq!(run.hear_after(5, OTHER_PORT, 9, seq), Verdict::Foreign);
    }
    assert_eq!(run.hear_after(5, OTHER_PORT, 9, 100), Verdict::Relocked);
}

#[test]
fn rule_5_a_packet_of_the_old_source_starts_the_count_again() {
    let mut run = Run::new(PUBLIC);
    run.hear(PUBLIC, 9, 0);

    for seq in (0..200).step_by(20) {
        for seq in seq + 1..seq + 20 {
            assert_eq!(run.hear(OTHER_PORT, 9, seq), Verdict::Foreign);
        }
        assert_eq!(run.hear(PUBLIC, 9, seq + 20), Verdict::Known);
    }
}

#[test]
fn rule_5_another_stream_is_no_rebound_one() {
    let mut run = Run::new(PUBLIC);
    run.hear(PUBLIC, 9, 0);
    run.advance(1000);

    for seq in 1..100 {
        assert_eq!(run.hear(OTHER_PORT, 8, seq), Verdict::Foreign);
    }
    for seq in 3100..3200 {
        assert_eq!(run.hear(OTHER_PORT, 9, seq), Verdict::Foreign);
    }
}

#[test]
fn rule_6_a_call_whose_relocks_are_spent_stays_where_it_is() {
    let mut run = Run::new(PUBLIC);
    run.hear(PUBLIC, 9, 0);
    run.surroundings.relocks_spent = true;

    for seq in 1..100 {
        assert_eq!(run.hear(OTHER_PORT, 9, seq), Verdict::Foreign);
    }
}

#[test]
fn rule_7_the_address_of_another_gateway_is_accepted_at_once_and_sent_to() {
    let mut run = Run::inheriting(PRIVATE, ELSEWHERE);

    assert_eq!(run.latch.target(), Some(addr(ELSEWHERE)));
    assert_eq!(run.hear(ELSEWHERE, 8, 0), Verdict::Locked);
}

#[test]
fn rule_7_a_first_packet_from_anywhere_that_continues_the_stream_is_accepted() {
    let mut run = Run::inheriting(PUBLIC, PUBLIC);
    assert_eq!(run.hear(ELSEWHERE, 9, 65_000), Verdict::Locked);

    let mut run = Run::inheriting(PUBLIC, PUBLIC);
    assert_eq!(run.hear(ELSEWHERE, 9, 3100), Verdict::Locked);
}

#[test]
fn rule_7_a_packet_that_does_not_continue_it_is_not() {
    let mut run = Run::inheriting(PUBLIC, PUBLIC);

    assert_eq!(run.hear(ELSEWHERE, 8, 101), Verdict::Foreign);
    assert_eq!(run.hear(ELSEWHERE, 9, 3101), Verdict::Foreign);
    assert_eq!(run.hear(ELSEWHERE, 9, 62_635), Verdict::Foreign);
}

#[test]
fn what_is_known_of_a_leg_is_what_another_gateway_needs() {
    let mut run = Run::new(PRIVATE);
    assert_eq!(run.latch.known(), None);

    run.learn(ELSEWHERE, 9);
    assert_eq!(run.latch.known(), Some(LatchedSource { addr: addr(ELSEWHERE), ssrc: 9, seq: 3 }));
}

proptest! {
    /// Whatever comes from whomever: a source is one host, never barred, and only the SDP's IP address for a public
    /// one without NAT.
    #[test]
    fn nobody_but_the_host_of_a_public_sdp_is_ever_heard(
        packets in proptest::collection::vec((0_usize..4, 0_u32..2, 0_u16..6, 0_u64..300), 0..200),
    ) {
        let sources = [PUBLIC, OTHER_PORT, ELSEWHERE, "203.0.113.1:1"];
        let mut run = Run::new(PUBLIC);
        let mut seqs = [0_u16; 4];
        for (source, ssrc, step, wait) in packets {
            seqs[source] = seqs[source].wrapping_add(step);
            run.advance(wait);
            let verdict = run.hear(sources[source], ssrc, seqs[source]);
            prop_assert!(source < 2 || verdict == Verdict::Foreign);
            let target = run.latch.target().unwrap();
            prop_assert_eq!(target.ip(), addr(PUBLIC).ip());
        }
    }
}

struct Run {
    now: Instant,
    latch: Latch,
    surroundings: Surroundings,
}

impl Run {
    fn new(remote: &str) -> Self {
        Self {
            now: Instant::now(),
            latch: Latch::new(Some(addr(remote)), false, None),
            surroundings: Surroundings { negotiated: true, barred: false, relocks_spent: false },
        }
    }

    fn inheriting(remote: &str, known: &str) -> Self {
        let known = LatchedSource { addr: addr(known), ssrc: 9, seq: 100 };
        let latch = Latch::new(Some(addr(remote)), false, Some(known));
        Self { latch, ..Self::new(remote) }
    }

    fn advance(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    fn offer(&mut self, remote: &str) -> bool {
        self.latch.offer(self.now, Some(addr(remote)), false)
    }

    /// One packet, 20 ms after the one before.
    fn hear(&mut self, from: &str, ssrc: u32, seq: u16) -> Verdict {
        self.hear_after(20, from, ssrc, seq)
    }

    fn hear_after(&mut self, ms: u64, from: &str, ssrc: u32, seq: u16) -> Verdict {
        self.advance(ms);
        let rtp = Rtp { payload_type: 8, seq, ssrc };
        self.latch.judge(self.now, addr(from), rtp, self.surroundings)
    }

    /// Four packets in sequence from a stranger, and it is none any more.
    fn learn(&mut self, from: &str, ssrc: u32) {
        for seq in 0..3 {
            assert_eq!(self.hear(from, ssrc, seq), Verdict::Foreign);
        }
        assert_eq!(self.hear(from, ssrc, 3), Verdict::Locked);
    }
}

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}
