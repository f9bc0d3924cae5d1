use std::time::{Duration, Instant};

use super::{Config, Framer, FramerError, Output};
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
