use std::time::{Duration, Instant};

use super::{Arrival, Client, Output, PrackError, RespondError, Server, Support};
use crate::{Message, Method, Name, Writer};

const T1: Duration = Duration::from_millis(500);

#[test]
fn a_response_is_repeated_until_its_prack() {
    let mut run = Run::new();
    run.respond(183, "v=0").expect("it is taken");
    assert_eq!(run.sent(), [(0, 183)]);
    run.advance(3600);
    assert_eq!(run.sent(), [(500, 183), (1500, 183), (3500, 183)]);
    run.prack(0).expect("it waits");
    run.advance(60_000);
    assert_eq!(run.sent(), []);
}

#[test]
fn without_a_prack_the_call_fails_after_64_t1() {
    let mut run = Run::new();
    run.respond(183, "").expect("it is taken");
    run.respond(180, "").expect("it is queued");
    run.advance(31_999);
    assert_eq!(run.sent().len(), 7);
    run.advance(1);
    assert_eq!(run.take(), [Output::GaveUp]);
    assert_eq!(run.server.poll_timeout(), None);
    assert_eq!(run.respond(180, ""), Err(RespondError::Ended));
    assert_eq!(run.prack(0), Err(PrackError::Unknown));
}

#[test]
fn one_waits_for_the_prack_of_the_one_before() {
    let mut run = Run::new();
    run.respond(183, "v=0").expect("it is taken");
    for _ in 0..Server::QUEUE_MAX {
        run.respond(180, "").expect("it is queued");
    }
    assert_eq!(run.respond(180, ""), Err(RespondError::Full));
    assert_eq!(run.sent(), [(0, 183)]);
    assert_eq!(run.prack(1), Err(PrackError::Unknown), "the second is not sent yet");
    run.prack(0).expect("it waits");
    assert_eq!(run.sent(), [(0, 180)]);
    assert_eq!(run.prack(0), Err(PrackError::Unknown), "acknowledged before");
    run.prack(1).expect("it waits");
}

#[test]
fn a_2xx_waits_for_the_prack_of_a_description() {
    let mut run = Run::new();
    run.respond(180, "").expect("it is taken");
    assert!(run.server.may_accept());
    run.respond(183, "v=0").expect("it is queued");
    assert!(!run.server.may_accept());
    run.prack(0).expect("it waits");
    assert!(!run.server.may_accept());
    run.prack(1).expect("it waits");
    assert!(run.server.may_accept());
}

#[test]
fn a_prack_is_still_known_after_the_final_answer() {
    let mut run = Run::new();
    run.respond(180, "").expect("it is taken");
    run.respond(181, "").expect("it is queued");
    run.server.finish();
    run.server.finish();
    run.sent();
    run.advance(60_000);
    assert_eq!(run.sent(), [], "nothing is repeated");
    run.prack(0).expect("it waited");
    assert_eq!(run.prack(0), Err(PrackError::Unknown));
    assert_eq!(run.respond(180, ""), Err(RespondError::Ended));
}

#[test]
fn a_prack_must_name_invite_and_response() {
    let mut run = Run::new();
    run.respond(180, "").expect("it is taken");
    let rseq = run.first_rseq;
    for (rack, error) in [
        (String::new(), PrackError::Malformed),
        ("x".to_owned(), PrackError::Malformed),
        (format!("{rseq} 8 INVITE"), PrackError::Unknown),
        (format!("{rseq} 7 UPDATE"), PrackError::Unknown),
        (format!("{} 7 INVITE", rseq + 1), PrackError::Unknown),
    ] {
        let prack = Writer::request(Method::Prack, b"sip:a").header(Name::RACK, &rack).finish();
        assert_eq!(run.server.acknowledge(run.now, &prack), Err(error), "{rack}");
    }
    assert_eq!((PrackError::Malformed.status(), PrackError::Unknown.status()), (400, 481));
    for status in [100, 200, 404] {
        assert_eq!(run.respond(status, ""), Err(RespondError::NotProvisional));
    }
}

#[test]
fn the_first_number_is_drawn_and_leaves_room() {
    for seed in [0, 1, 2, u64::MAX, 0x5eed] {
        let mut server = Server::new(&invite(""), T1, seed);
        server.respond(an_instant(), ringing(180, "")).expect("it is taken");
        let Some(Output::Respond(response)) = server.poll_output() else { panic!("it is sent") };
        assert!((1..1 << 31).contains(&response.rseq().expect("an RSeq")));
    }
}

#[test]
fn a_caller_acknowledges_each_once_and_in_order() {
    let mut client = Client::new(&invite(""));
    let arrive = |client: &mut Client, tag: &str, rseq: u32| {
        let response = Writer::answer(&invite(""), 180, b"Ringing", Some(tag.as_bytes()))
            .header(Name::REQUIRE, "100rel")
            .number(Name::RSEQ, rseq)
            .finish();
        client.handle_response(&response)
    };
    let new = |rseq: u32| Arrival::New { rack: format!("{rseq} 7 INVITE") };
    assert_eq!(arrive(&mut client, "a", 10), new(10));
    assert_eq!(arrive(&mut client, "a", 10), Arrival::Copy);
    assert_eq!(arrive(&mut client, "a", 12), Arrival::Gap);
    assert_eq!(arrive(&mut client, "b", 500), new(500), "a fork counts by itself");
    assert_eq!(arrive(&mut client, "a", 11), new(11));
    assert_eq!(arrive(&mut client, "a", 12), new(12));
    assert_eq!(arrive(&mut client, "a", 10), Arrival::Copy);
    assert_eq!(arrive(&mut client, "c", u32::MAX), new(u32::MAX));
    assert_eq!(arrive(&mut client, "c", 1), Arrival::Copy);
    for fork in 3..Client::FORKS_MAX {
        assert_eq!(arrive(&mut client, &format!("f{fork}"), 1), new(1));
    }
    assert_eq!(arrive(&mut client, "one more", 1), Arrival::Gap);
}

#[test]
fn what_is_not_reliable_is_no_business_of_a_prack() {
    let mut client = Client::new(&invite(""));
    let answer = |status, tag| Writer::answer(&invite(""), status, b"x", tag);
    let plain = answer(180, Some(b"t")).finish();
    assert_eq!(client.handle_response(&plain), Arrival::Unreliable);
    let accepted = answer(200, Some(b"t")).header(Name::REQUIRE, "100rel").number(Name::RSEQ, 1);
    assert_eq!(client.handle_response(&accepted.finish()), Arrival::Unreliable);
    let no_number = answer(180, Some(b"t")).header(Name::REQUIRE, "100rel").finish();
    assert_eq!(client.handle_response(&no_number), Arrival::Gap);
    let no_tag = answer(180, None).header(Name::REQUIRE, "100rel").number(Name::RSEQ, 1).finish();
    assert_eq!(client.handle_response(&no_tag), Arrival::Gap);
}

#[test]
fn an_invite_says_what_it_wants() {
    assert_eq!(Support::of(&invite("Require: precondition, 100REL\r\n")), Support::Required);
    assert_eq!(Support::of(&invite("k: timer,100rel\r\n")), Support::Wanted);
    assert_eq!(Support::of(&invite("")), Support::None);
}

struct Run {
    server: Server,
    start: Instant,
    now: Instant,
    first_rseq: u32,
    outputs: Vec<(u128, Output)>,
}

impl Run {
    fn new() -> Self {
        let now = an_instant();
        let server = Server::new(&invite(""), T1, 1);
        let mut probe = Server::new(&invite(""), T1, 1);
        probe.respond(now, ringing(180, "")).expect("it is taken");
        let Some(Output::Respond(first)) = probe.poll_output() else { panic!("it is sent") };
        let first_rseq = first.rseq().expect("an RSeq");
        Self { server, start: now, now, first_rseq, outputs: Vec::new() }
    }

    fn respond(&mut self, status: u16, body: &'static str) -> Result<(), RespondError> {
        self.server.respond(self.now, ringing(status, body))?;
        self.drain();
        Ok(())
    }

    /// Acknowledges the response of this number, counted from 0.
    fn prack(&mut self, index: u32) -> Result<(), PrackError> {
        let rack = format!("{} 7 INVITE", self.first_rseq + index);
        let prack = Writer::request(Method::Prack, b"sip:a").header(Name::RACK, rack).finish();
        self.server.acknowledge(self.now, &prack)?;
        self.start = self.now;
        self.drain();
        Ok(())
    }

    fn advance(&mut self, millis: u64) {
        let until = self.now + Duration::from_millis(millis);
        while let Some(at) = self.server.poll_timeout().filter(|at| *at <= until) {
            self.now = at;
            self.server.handle_timeout(at);
            assert!(self.server.poll_timeout().is_none_or(|next| at < next), "due again");
            self.drain();
        }
        self.now = until;
    }

    fn drain(&mut self) {
        while let Some(output) = self.server.poll_output() {
            self.outputs.push(((self.now - self.start).as_millis(), output));
        }
    }

    fn take(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs).into_iter().map(|(_, output)| output).collect()
    }

    /// When each response was sent since the last PRACK, and its status.
    fn sent(&mut self) -> Vec<(u128, u16)> {
        let outputs = std::mem::take(&mut self.outputs);
        let sent = |(at, output)| match output {
            Output::Respond(message) => {
                assert!(message.lists(Name::REQUIRE, b"100rel"));
                (at, Message::status(&message).expect("a response"))
            }
            Output::GaveUp => panic!("it gave up"),
        };
        outputs.into_iter().map(sent).collect()
    }
}

fn invite(more: &str) -> Message {
    let text = format!(
        "INVITE sip:bob@example.com SIP/2.0\r\n\
         Via: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1\r\n\
         From: <sip:ann@example.com>;tag=a\r\n\
         To: <sip:bob@example.com>\r\n\
         Call-ID: 1\r\n\
         CSeq: 7 INVITE\r\n{more}\r\n"
    );
    Message::parse(text.into_bytes().into()).expect("an INVITE")
}

fn ringing(status: u16, body: &'static str) -> Writer {
    let writer = Writer::answer(&invite(""), status, b"As Written", Some(b"t"));
    if body.is_empty() { writer } else { writer.body(b"application/sdp", body) }
}

#[expect(clippy::disallowed_methods, reason = "any instant will do to count from")]
fn an_instant() -> Instant {
    Instant::now()
}
