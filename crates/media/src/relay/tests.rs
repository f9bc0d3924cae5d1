#![expect(clippy::disallowed_methods, reason = "tests need a first instant")]

use proptest::prelude::*;

use super::*;
use crate::frame::LatchedSource;

const ONE: &str = "192.0.2.10:4000";
const OTHER: &str = "198.51.100.7:6000";
const STRANGER: &str = "203.0.113.66:1234";

#[test]
fn rtp_goes_to_the_other_phone_from_its_own_port() {
    let mut run = Run::talking();

    assert_eq!(run.rtp(20_000, ONE, 1), to(20_002, OTHER));
    assert_eq!(run.rtp(20_002, OTHER, 7), to(20_000, ONE));
    let counters = run.relay.counters();
    assert_eq!((counters.forwarded, counters.octets), (2, 2 * 172));
}

#[test]
fn a_new_call_opens_its_ports_and_its_end_closes_them() {
    let mut run = Run::new();
    run.apply(1, &[leg(20_000, Some(ONE)), leg(20_002, Some(OTHER))]);
    assert_eq!(run.outputs(), [open(20_000), open(20_002)]);
    assert_eq!(run.relay.legs(), 2);

    run.relay.close(CallId(1));
    assert_eq!(run.outputs(), [close(20_000), close(20_002)]);
    assert_eq!(run.rtp(20_000, ONE, 1), None);
    assert_eq!(run.relay.poll_timeout(), None);
}

#[test]
fn the_same_command_again_changes_nothing() {
    let mut run = Run::talking();
    run.rtp(20_000, ONE, 1);
    run.outputs();
    let timeout = run.relay.poll_timeout();

    run.apply(1, &[leg(20_000, Some(ONE)), leg(20_002, Some(OTHER))]);
    assert_eq!(run.outputs(), []);
    assert_eq!(run.relay.poll_timeout(), timeout);
}

#[test]
fn a_leg_keeps_its_port_whatever_sdp_comes() {
    let mut run = Run::talking();
    run.rtp(20_002, OTHER, 1);
    run.outputs();

    let moved = "198.51.100.7:9000";
    run.apply(1, &[leg(20_000, Some(ONE)), leg(20_002, Some(moved))]);
    assert_eq!(run.outputs(), [RelayOutput::Disconnect { port: 20_002 }]);
    assert_eq!(run.rtp(20_000, ONE, 1), to(20_002, moved));
}

#[test]
fn a_leg_moves_to_another_port_when_told_and_the_other_leg_stays() {
    let mut run = Run::talking();

    run.apply(1, &[leg(20_000, Some(ONE)), leg(20_006, Some(OTHER))]);
    assert_eq!(run.outputs(), [close(20_002), open(20_006)]);
    assert_eq!(run.rtp(20_000, ONE, 1), to(20_006, OTHER));
    assert_eq!(run.rtp(20_006, OTHER, 1), to(20_000, ONE));
}

#[test]
fn nothing_goes_to_a_phone_that_has_said_no_address_yet() {
    let mut run = Run::new();
    run.apply(1, &[leg(20_000, Some(ONE)), leg(20_002, None)]);

    assert_eq!(run.rtp(20_000, ONE, 1), None);
    assert_eq!(run.relay.counters().untargeted, 1);
}

#[test]
fn a_stranger_is_dropped_and_counted() {
    let mut run = Run::talking();
    run.rtp(20_000, ONE, 1);

    assert_eq!(run.rtp(20_000, STRANGER, 2), None);
    assert_eq!(run.relay.counters().foreign, 1);
}

#[test]
fn what_is_neither_rtp_nor_rtcp_is_dropped_and_counted() {
    let mut run = Run::talking();
    run.rtp(20_000, ONE, 1);

    for bytes in [&b""[..], b"\r\n\r\n", &[0; 200], &[0x80; 11]] {
        assert_eq!(run.relay.forward(run.now, 20_000, addr(ONE), bytes), None);
    }
    assert_eq!(run.relay.counters().malformed, 4);
}

#[test]
fn a_call_talks_to_nobody_of_another_call() {
    let mut run = Run::talking();
    run.apply(2, &[leg(20_004, Some("192.0.2.20:4000")), leg(20_006, Some("192.0.2.21:4000"))]);

    assert_eq!(run.rtp(20_004, ONE, 1), None);
    assert_eq!(run.rtp(20_004, "192.0.2.20:4000", 1), to(20_006, "192.0.2.21:4000"));
}

#[test]
fn the_other_party_of_a_call_is_never_learned_as_this_one() {
    let mut run = Run::new();
    let mut legs = [leg(20_000, Some(ONE)), leg(20_002, Some(OTHER))];
    legs[1].nat = true;
    run.apply(1, &legs);

    // The caller sends to the callee's port: forwarding that would be its own echo, without end.
    for seq in 0..20 {
        assert_eq!(run.rtp(20_002, ONE, seq), None);
    }
    assert_eq!(run.rtp(20_002, OTHER, 0), to(20_000, ONE));
}

#[test]
fn a_relays_own_port_is_no_target_and_no_source() {
    let mut run = Run::new();
    let mut legs = [leg(20_000, Some(ONE)), leg(20_002, Some("10.1.1.1:20000"))];
    legs[1].nat = true;
    run.apply(1, &legs);

    assert_eq!(run.rtp(20_000, ONE, 1), None);
    for seq in 0..20 {
        assert_eq!(run.rtp(20_002, "10.1.1.1:20000", seq), None);
    }
    assert_eq!(run.relay.counters().forwarded, 0);
}

#[test]
fn rtcp_goes_from_the_next_port_to_the_next_port() {
    let mut run = Run::talking();

    assert_eq!(run.rtcp(20_001, "192.0.2.10:4001", 5), to(20_003, "198.51.100.7:6001"));
}

#[test]
fn rtcp_goes_where_the_sdp_says() {
    let mut run = Run::new();
    let mut legs = [leg(20_000, Some(ONE)), leg(20_002, Some(OTHER))];
    legs[1].remote_rtcp = Some(addr("198.51.100.8:7777"));
    run.apply(1, &legs);

    assert_eq!(run.rtcp(20_001, "192.0.2.10:4001", 5), to(20_003, "198.51.100.8:7777"));
}

#[test]
fn rtcp_of_a_phone_that_muxes_goes_to_its_rtp_port() {
    let mut run = Run::new();
    let mut legs = [leg(20_000, Some(ONE)), leg(20_002, Some(OTHER))];
    legs[1].remote_rtcp = Some(addr(OTHER));
    run.apply(1, &legs);

    assert_eq!(run.rtcp(20_001, "192.0.2.10:4001", 5), to(20_002, OTHER));
    run.rtp(20_002, OTHER, 1);
    assert_eq!(run.rtcp(20_002, OTHER, 9), to(20_001, "192.0.2.10:4001"));
}

#[test]
fn rtcp_through_a_nat_is_learned_from_the_host_that_sends_the_rtp() {
    let mut run = Run::talking();
    let natted = "192.0.2.10:55555";
    assert_eq!(run.rtcp(20_001, natted, SSRC), None);

    run.rtp(20_000, ONE, 1);
    assert_eq!(run.rtcp(20_001, natted, SSRC), to(20_003, "198.51.100.7:6001"));
    assert_eq!(run.rtcp(20_003, "198.51.100.7:6001", 5), to(20_001, natted));

    assert_eq!(run.rtcp(20_001, "192.0.2.10:55556", 99), None);
    assert_eq!(run.rtcp(20_001, STRANGER, SSRC), None);
}

#[test]
fn rtp_is_not_taken_on_an_rtcp_port() {
    let mut run = Run::talking();

    assert_eq!(run.rtp(20_001, ONE, 1), None);
    assert_eq!(run.relay.counters().malformed, 1);
}

#[test]
fn a_locked_leg_gets_its_socket_connected_and_loses_that_after_500_ms_of_silence() {
    let mut run = Run::talking();
    run.rtp(20_000, ONE, 1);
    assert_eq!(run.outputs()[1..], [connect(20_000, ONE)]);

    run.advance(400);
    run.rtp(20_000, ONE, 2);
    assert_eq!(run.advance(499), []);
    assert_eq!(run.advance(1), [RelayOutput::Disconnect { port: 20_000 }]);

    run.rtp(20_000, ONE, 3);
    assert_eq!(run.outputs(), [connect(20_000, ONE)]);
}

#[test]
fn a_leg_on_hold_by_zeros_is_not_connected() {
    let mut run = Run::talking();
    run.apply(1, &[leg(20_000, Some(ONE)), leg(20_002, Some("0.0.0.0:6000"))]);
    run.outputs();

    run.rtp(20_002, OTHER, 1);
    assert_eq!(run.rtp(20_000, ONE, 1), None);
    assert!(!run.outputs().contains(&connect(20_002, OTHER)));
}

#[test]
fn a_learned_source_is_reported_and_again_before_it_is_too_old_to_be_of_use() {
    let mut run = Run::talking();
    run.rtp(20_000, ONE, 100);
    assert_eq!(run.latched(), [(0, 100, 0)]);

    for seq in 101..1599 {
        run.advance(20);
        run.rtp(20_000, ONE, seq);
    }
    assert_eq!(run.latched(), []);
    run.rtp(20_000, ONE, 1599);
    assert_eq!(run.latched(), [(0, 1599, 0)]);
}

#[test]
fn a_port_that_changes_is_followed_four_times_in_a_call() {
    let mut run = Run::talking();
    run.rtp(20_000, ONE, 0);
    run.outputs();

    let mut seq = 0;
    for port in 1..=5_u8 {
        let from = format!("192.0.2.10:500{port}");
        run.advance(500);
        run.outputs();
        for _ in 0..30 {
            seq += 1;
            run.rtp(20_000, &from, seq);
        }
        let relocked: Vec<u8> = run.latched().iter().map(|(.., relocks)| *relocks).collect();
        assert_eq!(relocked, if port <= 4 { vec![port] } else { vec![] });
    }
    assert_eq!(run.relay.counters().relocks, 4);
}

#[test]
fn what_another_gateway_had_learned_is_sent_to_at_once() {
    let mut run = Run::new();
    let mut legs = [leg(20_000, Some(ONE)), leg(20_002, Some("10.0.0.9:6000"))];
    legs[1].latched = Some(LatchedSource { addr: addr(OTHER), ssrc: SSRC, seq: 5 });
    run.apply(1, &legs);

    assert_eq!(run.rtp(20_000, ONE, 1), to(20_002, OTHER));
    assert_eq!(run.rtp(20_002, STRANGER, 6), to(20_000, ONE));
}

#[test]
fn a_phone_that_should_send_and_does_not_is_reported_once() {
    let mut run = Run::talking();
    run.rtp(20_000, ONE, 1);
    run.outputs();

    run.advance(30_000);
    run.rtp(20_002, OTHER, 1);
    run.outputs();
    assert_eq!(run.advance(29_999), [RelayOutput::Disconnect { port: 20_002 }]);
    assert_eq!(run.advance(1), [silent(0)]);
    assert_eq!(run.advance(30_000), [silent(1)]);
    assert_eq!(run.advance(600_000), []);

    run.rtp(20_000, ONE, 2);
    run.outputs();
    assert_eq!(run.advance(60_000), [silent(0), RelayOutput::Disconnect { port: 20_000 }]);
}

#[test]
fn a_phone_on_hold_may_be_silent_and_its_time_counts_from_the_resumption() {
    let mut run = Run::talking();
    let mut held = leg(20_002, Some(OTHER));
    held.held = true;
    run.apply(1, &[leg(20_000, Some(ONE)), held]);

    assert_eq!(run.advance(3_600_000), [silent(0)]);

    run.apply(1, &[leg(20_000, Some(ONE)), leg(20_002, Some(OTHER))]);
    assert_eq!(run.advance(59_999), []);
    assert_eq!(run.advance(1), [silent(1)]);
}

#[test]
fn nobody_need_send_while_the_callee_rings() {
    let mut run = Run::new();
    run.apply(1, &[leg(20_000, Some(ONE)), leg(20_002, None)]);
    assert_eq!(run.relay.poll_timeout(), None);

    run.advance(100_000);
    run.apply(1, &[leg(20_000, Some(ONE)), leg(20_002, Some(OTHER))]);
    run.outputs();
    assert_eq!(run.advance(59_999), []);
    assert_eq!(run.advance(1), [silent(0), silent(1)]);
}

#[test]
fn a_port_of_another_call_fails_the_new_call_and_not_the_old_one() {
    let mut run = Run::talking();

    run.apply(2, &[leg(20_010, Some(ONE)), leg(20_002, Some(OTHER))]);
    assert_eq!(run.outputs(), [failed(2, 1, FailReason::PortInUse)]);
    assert_eq!(run.rtp(20_000, ONE, 1), to(20_002, OTHER));
    assert!(!run.relay.has(20_010));
}

#[test]
fn a_port_that_is_none_of_the_relays_fails_the_call() {
    let mut run = Run::new();

    for port in [20_001, 19_998, 20_200, 0, 20_000] {
        run.apply(2, &[leg(20_000, Some(ONE)), leg(port, Some(OTHER))]);
        let leg = u8::from(port != 20_000);
        assert_eq!(run.outputs(), [failed(2, leg, FailReason::BadPort)], "{port}");
    }
    assert_eq!(run.relay.legs(), 0);
}

#[test]
fn a_socket_that_cannot_be_opened_fails_its_call() {
    let mut run = Run::talking();

    run.relay.refuse(20_003, FailReason::Exhausted);
    assert_eq!(run.outputs(), [close(20_000), close(20_002), failed(1, 1, FailReason::Exhausted)]);
}

proptest! {
    /// Nothing is ever sent to a relay's own port or from a port that is not open, and a handled timeout is not due
    /// again, whatever phones say and send.
    #[test]
    fn no_packet_is_reflected_and_no_timeout_is_due_twice(
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let mut run = Run::new();
        for step in steps {
            match step {
                Step::Apply(call, legs) => run.apply(call, &legs),
                Step::Close(call) => run.relay.close(CallId(call)),
                Step::Packet(port, from, bytes) => {
                    let forward = run.relay.forward(run.now, port, from, &bytes);
                    if let Some(Forward { port, to }) = forward {
                        prop_assert!(run.relay.has(port));
                        prop_assert!(!run.relay.is_relay(to), "{to}");
                    }
                }
                Step::Wait(ms) => {
                    run.now += Duration::from_millis(ms);
                    run.relay.handle_timeout(run.now);
                    prop_assert!(run.relay.poll_timeout().is_none_or(|at| run.now < at));
                }
            }
            run.outputs();
            let open = (20_000..20_200).filter(|port| run.relay.has(*port)).count();
            prop_assert_eq!(open, 2 * run.relay.legs());
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Apply(u64, Box<[LegSpec; 2]>),
    Close(u64),
    Packet(u16, SocketAddr, Vec<u8>),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_u64..3, any_leg(), any_leg())
            .prop_map(|(call, one, two)| Step::Apply(call, Box::new([one, two]))),
        (0_u64..3).prop_map(Step::Close),
        (20_000_u16..20_014, any_addr(), 0_u8..4, 0_u8..5).prop_map(|(port, from, kind, seq)| {
            let bytes = match kind {
                0 => rtcp_bytes(SSRC),
                1 => vec![seq; 20],
                _ => rtp_bytes(seq.into()),
            };
            Step::Packet(port, from, bytes)
        }),
        (0_u64..70_000).prop_map(Step::Wait),
    ]
}

fn any_leg() -> impl Strategy<Value = LegSpec> {
    let remotes = (proptest::option::of(any_addr()), proptest::option::of(any_addr()));
    (0_u16..6, remotes, any::<bool>(), any::<bool>(), proptest::option::of(any_addr())).prop_map(
        |(pair, (remote, remote_rtcp), held, nat, known)| LegSpec {
            port: 20_000 + 2 * pair,
            remote,
            remote_rtcp,
            payload_types: vec![8],
            held,
            nat,
            latched: known.map(|addr| LatchedSource { addr, ssrc: SSRC, seq: 1 }),
        },
    )
}

/// Phones, the relay itself, and addresses that are none.
fn any_addr() -> impl Strategy<Value = SocketAddr> {
    let ips = ["192.0.2.10", "10.0.0.9", "10.1.1.1", "203.0.113.1", "0.0.0.0", "224.0.0.1"];
    let ip = proptest::sample::select(ips.to_vec());
    let port = proptest::sample::select(vec![20_000_u16, 20_001, 20_003, 4000, 4001, 65_535]);
    (ip, port).prop_map(|(ip, port)| SocketAddr::new(ip.parse().unwrap(), port))
}

struct Run {
    now: Instant,
    relay: Relay,
}

impl Run {
    /// Known as 10.1.1.1 inside and as 203.0.113.1 outside.
    fn new() -> Self {
        let relay = Relay::new(RelayConfig {
            ports: 20_000..=20_199,
            addresses: vec!["10.1.1.1".parse().unwrap(), "203.0.113.1".parse().unwrap()],
            silence_max: Duration::from_secs(60),
        });
        Self { now: Instant::now(), relay }
    }

    /// Call 1 between the two phones, open.
    fn talking() -> Self {
        let mut run = Self::new();
        run.apply(1, &[leg(20_000, Some(ONE)), leg(20_002, Some(OTHER))]);
        run.outputs();
        run
    }

    fn apply(&mut self, call: u64, legs: &[LegSpec; 2]) {
        self.relay.apply(self.now, CallId(call), 1, legs);
    }

    fn rtp(&mut self, port: u16, from: &str, seq: u16) -> Option<Forward> {
        self.relay.forward(self.now, port, addr(from), &rtp_bytes(seq))
    }

    fn rtcp(&mut self, port: u16, from: &str, ssrc: u32) -> Option<Forward> {
        self.relay.forward(self.now, port, addr(from), &rtcp_bytes(ssrc))
    }

    fn advance(&mut self, ms: u64) -> Vec<RelayOutput> {
        self.now += Duration::from_millis(ms);
        self.relay.handle_timeout(self.now);
        self.outputs()
    }

    fn outputs(&mut self) -> Vec<RelayOutput> {
        std::iter::from_fn(|| self.relay.poll_output()).collect()
    }

    /// Leg, sequence number and relocks of what was reported.
    fn latched(&mut self) -> Vec<(u8, u16, u8)> {
        let outputs = self.outputs();
        let latched = outputs.iter().filter_map(|output| {
            let RelayOutput::Notice(Notice::Latched(latched)) = output else { return None };
            Some((latched.leg, latched.source.seq, latched.relocks))
        });
        latched.collect()
    }
}

fn leg(port: u16, remote: Option<&str>) -> LegSpec {
    LegSpec {
        port,
        remote: remote.map(addr),
        remote_rtcp: None,
        payload_types: vec![8, 101],
        held: false,
        nat: false,
        latched: None,
    }
}

fn to(port: u16, to: &str) -> Option<Forward> {
    Some(Forward { port, to: addr(to) })
}

fn open(port: u16) -> RelayOutput {
    RelayOutput::Open { port }
}

fn close(port: u16) -> RelayOutput {
    RelayOutput::Close { port }
}

fn connect(port: u16, to: &str) -> RelayOutput {
    RelayOutput::Connect { port, to: addr(to) }
}

fn silent(leg: u8) -> RelayOutput {
    RelayOutput::Notice(Notice::Silent(Silent { call: CallId(1), leg }))
}

fn failed(call: u64, leg: u8, reason: FailReason) -> RelayOutput {
    let call = CallId(call);
    RelayOutput::Notice(Notice::Failed(Failed { call, epoch: 1, leg, reason }))
}

fn rtp_bytes(seq: u16) -> Vec<u8> {
    let mut bytes = vec![0x80, 8];
    bytes.extend(seq.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(SSRC.to_be_bytes());
    bytes.extend([0x55; 160]);
    bytes
}

fn rtcp_bytes(ssrc: u32) -> Vec<u8> {
    let mut bytes = vec![0x80, 200, 0, 1];
    bytes.extend(ssrc.to_be_bytes());
    bytes
}

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

const SSRC: u32 = 0x1234_5678;
