use super::*;

#[test]
fn a_burst_passes_and_then_as_many_as_the_rate_says() {
    let mut run = Run::new();
    let passed = |run: &mut Run, count| {
        (0..count).filter(|_| run.admit(1, false) == Admission::Pass).count()
    };

    assert_eq!(passed(&mut run, 500), 100);
    run.advance(1000);
    assert_eq!(passed(&mut run, 500), 20);
    run.advance(3_600_000);
    assert_eq!(passed(&mut run, 500), 100);
}

#[test]
fn one_source_does_not_use_up_what_another_may_send() {
    let mut run = Run::new();
    (0..500).for_each(|_| {
        run.admit(1, false);
    });

    assert_eq!(run.admit(2, false), Admission::Pass);
}

#[test]
fn what_carries_a_tag_of_ours_is_counted_apart_and_fifty_times_as_much() {
    let mut run = Run::new();
    (0..500).for_each(|_| {
        run.admit(1, false);
    });

    assert_eq!((0..9000).filter(|_| run.admit(1, true) == Admission::Pass).count(), 5000);
}

#[test]
fn a_ban_begins_once_and_ends_by_itself() {
    let mut run = Run::new();
    let bans = (0..200).filter(|_| run.strike(1)).count();

    assert_eq!(bans, 1);
    assert_eq!(run.admit(1, false), Admission::Banned);
    assert_eq!(run.admit(1, true), Admission::Pass);
    run.advance(300_000);
    assert_eq!(run.admit(1, false), Admission::Pass);
}

#[test]
fn one_bad_message_a_second_is_forgiven_for_ever() {
    let mut run = Run::new();
    for _ in 0..10_000 {
        assert!(!run.strike(1));
        run.advance(1000);
    }
}

#[test]
fn a_flood_of_forged_sources_takes_no_more_memory() {
    let mut run = Run::new();
    for source in 0..100_000 {
        run.admit(source, false);
    }

    assert_eq!(run.sources.places.len(), SETS * WAYS);
}

#[test]
fn all_of_an_ipv6_64_is_one_source() {
    let mut run = Run::new();
    let (now, one) = (run.now(), "2001:db8:0:1::7".parse().unwrap());
    (0..200).for_each(|_| {
        run.sources.admit(now, one, false);
    });

    let beside = "2001:db8:0:1:ffff::1".parse().unwrap();
    assert_eq!(run.sources.admit(now, beside, false), Admission::Limited);
    let elsewhere = "2001:db8:0:2::7".parse().unwrap();
    assert_eq!(run.sources.admit(now, elsewhere, false), Admission::Pass);
}

#[test]
fn a_network_contains_what_shares_its_prefix() {
    for (network, inside, outside) in [
        ("10.0.0.0/8", "10.255.1.2", "11.0.0.1"),
        ("192.0.2.7", "192.0.2.7", "192.0.2.6"),
        ("192.0.2.0/24", "::ffff:192.0.2.9", "::ffff:192.0.3.9"),
        ("2001:db8::/32", "2001:db8:1::1", "2001:db9::1"),
        ("0.0.0.0/0", "203.0.113.9", "2001:db8::1"),
    ] {
        let network: Network = network.parse().unwrap();
        assert!(network.contains(inside.parse().unwrap()));
        assert!(!network.contains(outside.parse().unwrap()));
    }
    assert_eq!("10.0.0.0/33".parse::<Network>(), Err(NetworkError::PrefixTooLong));
    assert_eq!("10.0.0.0/x".parse::<Network>(), Err(NetworkError::Prefix));
    assert_eq!("ten/8".parse::<Network>(), Err(NetworkError::Address));
}

struct Run {
    origin: Instant,
    ms: u64,
    sources: Sources,
}

impl Run {
    #[expect(clippy::disallowed_methods, reason = "an origin for the test")]
    fn new() -> Self {
        Self { origin: Instant::now(), ms: 0, sources: Sources::new(Limits::default(), 1) }
    }

    fn now(&self) -> Instant {
        self.origin + Duration::from_millis(self.ms)
    }

    fn advance(&mut self, ms: u64) {
        self.ms += ms;
    }

    fn admit(&mut self, source: u32, named: bool) -> Admission {
        let addr = IpAddr::V4(source.into());
        self.sources.admit(self.now(), addr, named)
    }

    fn strike(&mut self, source: u32) -> bool {
        let addr = IpAddr::V4(source.into());
        self.sources.strike(self.now(), addr)
    }
}
