use std::time::{Duration, Instant};

use super::{Config, Crowd, CrowdConfig, CrowdError, Framer, FramerError, Output};
use crate::{ParseErrorKind, Verdict};

const CONFIG: Config = Config {
    head_len_max: 1000,
    headers_max: 20,
    body_len_max: 100,
    message_time_max: Duration::from_secs(5),
};

const HEAD: &str = "OPTIONS sip:bob@example.com SIP/2.0\r\n\
    Via: SIP/2.0/TCP h.example.com;branch=z9hG4bKx1\r\n\
    From: <sip:a@example.com>;tag=1\r\n\
    To: <sip:bob@example.com>\r\n\
    Call-ID: c1\r\n\
    CSeq: 1 OPTIONS\r\n";

#[test]
fn messages_come_out_whole_however_the_stream_is_cut() {
    let stream = format!("\r\n{HEAD}Content-Length: 3\r\n\r\nabc{HEAD}l: 0\r\n\r\n");
    for size in 1..stream.len() {
        let mut run = Run::new();
        let mut outputs = Vec::new();
        for part in stream.as_bytes().chunks(size) {
            outputs.extend(run.hear(part));
        }
        let [Output::Pong, Output::Message(first), Output::Message(second)] = &outputs[..] else {
            panic!("cut by {size}: {outputs:?}");
        };
        assert_eq!((first.body(), first.verdict()), (&b"abc"[..], Verdict::Ok));
        assert_eq!((second.body(), second.verdict()), (&b""[..], Verdict::Ok));
        assert_eq!(run.framer.poll_timeout(), None);
    }
}

#[test]
fn double_breaks_are_pings_and_single_ones_pongs() {
    let mut run = Run::new();
    assert_eq!(run.hear(b"\r\n\r\n"), [Output::Ping]);
    assert_eq!(run.hear(b"\r\n"), [Output::Pong]);
    assert_eq!(run.hear(b"\r"), []);
    assert_eq!(run.hear(b"\n"), [Output::Ping]);
    assert_eq!(run.hear(b"\r\n\r\n\r\n"), [Output::Ping, Output::Pong]);
    // As many as there may be are one.
    assert_eq!(run.hear(&b"\r\n".repeat(1001)), [Output::Ping]);
}

#[test]
fn a_head_that_others_may_read_differently_is_answered_and_ends_the_stream() {
    for hidden in ["X: a\nl: 5\r\n", "X: a\rl: 5\r\n", "X: a\r\r\n"] {
        let mut run = Run::new();
        let outputs =
            run.hear(format!("{HEAD}{hidden}l: 2\r\n\r\nab{HEAD}l: 0\r\n\r\n").as_bytes());
        let [Output::Message(message), Output::Failed(FramerError::LineBreak)] = &outputs[..]
        else {
            panic!("{hidden:?}: {outputs:?}");
        };
        assert_eq!((message.verdict(), message.body()), (Verdict::Answer(400), &b"ab"[..]));
    }
}

#[test]
fn a_length_that_nobody_can_know_is_answered_and_ends_the_stream() {
    for length in
        ["", "Content-Length: 1\r\nl: 1\r\n", "Content-Length: +1\r\n", "l: -1\r\n", "l: 1, 1\r\n"]
    {
        let mut run = Run::new();
        let outputs = run.hear(format!("{HEAD}{length}\r\nabc").as_bytes());
        let [Output::Message(message), Output::Failed(FramerError::Length)] = &outputs[..] else {
            panic!("{length:?}: {outputs:?}");
        };
        assert_eq!(message.verdict(), Verdict::Answer(400), "{length:?}");
        assert_eq!(run.hear(HEAD.as_bytes()), []);
    }
}

#[test]
fn four_gigabytes_are_refused_before_they_come() {
    for length in ["4000000000", "101"] {
        let mut run = Run::new();
        let outputs = run.hear(format!("{HEAD}Content-Length: {length}\r\n\r\n").as_bytes());
        let [Output::Message(message), Output::Failed(FramerError::BodyTooLong)] = &outputs[..]
        else {
            panic!("{outputs:?}");
        };
        assert_eq!(message.verdict(), Verdict::Answer(513));
    }
}

#[test]
fn a_head_without_end_is_cut_off_at_its_limit() {
    let mut run = Run::new();
    assert_eq!(run.hear(HEAD.as_bytes()), []);
    let outputs = run.hear(&b"X: y\r\n".repeat(200));
    let [Output::Failed(FramerError::Parse(error))] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!(error.kind, ParseErrorKind::HeadTooLong);
}

#[test]
fn a_peer_that_never_finishes_is_cut_off_in_time() {
    let mut run = Run::new();
    for byte in &HEAD.as_bytes()[..5] {
        assert_eq!(run.hear(&[*byte]), []);
        run.advance(1000);
    }
    assert_eq!(run.outputs(), [Output::Failed(FramerError::TooSlow)]);
    assert_eq!(run.framer.poll_timeout(), None);
}

#[test]
fn what_is_no_sip_ends_the_stream() {
    let mut run = Run::new();
    let outputs = run.hear(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(matches!(&outputs[..], [Output::Failed(FramerError::Parse(_))]), "{outputs:?}");
}

#[test]
fn a_peer_that_connects_and_says_nothing_is_cut_off_in_time() {
    let mut run = Run::new();
    run.framer = Framer::accepted(CONFIG, run.now);
    run.advance(4999);
    assert_eq!(run.outputs(), []);
    run.advance(1);
    assert_eq!(run.outputs(), [Output::Failed(FramerError::TooSlow)]);

    let mut run = Run::new();
    run.framer = Framer::accepted(CONFIG, run.now);
    assert_eq!(run.hear(b"\r\n\r\n"), [Output::Ping]);
    run.advance(3_600_000);
    assert_eq!(run.outputs(), [], "who has spoken may be silent");
}

#[test]
fn ten_thousand_connections_of_one_peer_keep_nobody_out() {
    let mut crowd = Crowd::new(CrowdConfig { connections_max: 1000, per_source_max: 100 });
    let ip = |text: &str| text.parse().expect("an address");
    let refused = (0..10_000).filter(|_| crowd.enter(ip("192.0.2.1")).is_err()).count();
    assert_eq!((refused, crowd.len()), (9_900, 100));
    crowd.enter(ip("192.0.2.2")).expect("another source");
    for host in 0..200 {
        let _ = crowd.enter(ip(&format!("2001:db8::{host:x}")));
    }
    assert_eq!(crowd.len(), 201, "one network of IPv6 is one source");
    crowd.enter(ip("2001:db8:0:1::1")).expect("another network");
    assert_eq!(crowd.enter(ip("::ffff:192.0.2.1")), Err(CrowdError::Source));

    for _ in 0..150 {
        crowd.leave(ip("192.0.2.1"));
    }
    assert_eq!(crowd.len(), 102);
    crowd.enter(ip("192.0.2.1")).expect("there is room again");
    let full = (0..2000u32).map(|n| crowd.enter(std::net::Ipv4Addr::from(n).into()));
    assert_eq!(full.last(), Some(Err(CrowdError::All)));
    assert_eq!((crowd.len(), crowd.is_empty()), (1000, false));
}

#[test]
fn a_thousand_slow_peers_cost_their_neighbour_nothing() {
    let mut slow: Vec<_> = (0..1000).map(|_| Run::new()).collect();
    let mut neighbour = Run::new();
    for second in 0..5 {
        for peer in &mut slow {
            assert_eq!(peer.hear(&HEAD.as_bytes()[second..=second]), []);
            peer.advance(1000);
        }
        let outputs = neighbour.hear(format!("{HEAD}l: 0\r\n\r\n").as_bytes());
        assert!(matches!(&outputs[..], [Output::Message(_)]), "{outputs:?}");
        neighbour.advance(1000);
    }
    for peer in &mut slow {
        assert_eq!(peer.outputs(), [Output::Failed(FramerError::TooSlow)]);
    }
    assert_eq!(neighbour.outputs(), []);
}

struct Run {
    framer: Framer,
    now: Instant,
}

impl Run {
    fn new() -> Self {
        #[expect(clippy::disallowed_methods, reason = "an instant can be had no other way")]
        let now = Instant::now();
        Self { framer: Framer::new(CONFIG), now }
    }

    fn hear(&mut self, bytes: &[u8]) -> Vec<Output> {
        self.framer.handle_input(self.now, bytes);
        self.outputs()
    }

    fn advance(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
        self.framer.handle_timeout(self.now);
        assert!(self.framer.poll_timeout().is_none_or(|until| self.now < until));
    }

    fn outputs(&mut self) -> Vec<Output> {
        std::iter::from_fn(|| self.framer.poll_output()).collect()
    }
}
