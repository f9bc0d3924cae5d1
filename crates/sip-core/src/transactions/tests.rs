use std::ops::Range;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::{Name, Writer};

#[test]
fn an_idle_layer_wants_no_turn() {
    let run = Run::new(false);

    assert_eq!(run.layer.poll_timeout(), None);
    assert!(run.layer.is_empty());
}

#[test]
fn a_restored_call_is_sent_again_and_answered_here() {
    let mut run = Run::new(false);
    let expires_at = run.at(20_000);
    run.restore_client(Phase::Calling { expires_at }).expect("it is new");

    assert_eq!(run.advance(0), ["0 INVITE"]);
    assert_eq!(run.advance(1600), ["500 INVITE", "1500 INVITE"]);
    assert_eq!(run.respond_to_invite(486), ["1600 ACK", "1600 response 486"]);
}

#[test]
fn what_is_not_retained_is_never_heard_of_again() {
    let mut run = Run::new(false);
    let expires_at = run.at(20_000);
    let key = run.restore_client(Phase::Calling { expires_at }).expect("it is new");
    run.layer.retain(|_| true);
    assert!(run.layer.has_client(key));

    run.layer.retain(|_| false);
    assert!(!run.layer.has_client(key) && run.layer.is_empty());
    assert_eq!(run.advance(60_000), [""; 0]);
    assert_eq!(run.layer.poll_timeout(), None);
}

#[test]
fn a_hushed_invite_is_sent_no_more_and_its_answer_is_awaited_as_long_as_ever() {
    for answers in [true, false] {
        let mut run = Run::new(false);
        let expires_at = run.at(20_000);
        let key = run.restore_client(Phase::Calling { expires_at }).expect("it is new");
        assert_eq!(run.advance(600), ["0 INVITE", "500 INVITE"]);
        run.layer.hush(run.now, key);

        assert_eq!(run.advance(10_000), [""; 0]);
        if answers {
            assert_eq!(run.respond_to_invite(486), ["10000 ACK", "10000 response 486"]);
        } else {
            assert_eq!(run.advance(60_000), ["20000 timed out"]);
        }
    }
}

/// The process before may have ended before it said it.
#[test]
fn a_restored_call_is_sent_once_more_where_nothing_repeats_it_and_keeps_its_deadline() {
    let mut run = Run::new(true);
    let expires_at = run.at(20_000);
    run.restore_client(Phase::Calling { expires_at }).expect("it is new");

    assert_eq!(run.advance(60_000), ["0 INVITE", "20000 timed out"]);
}

#[test]
fn a_restored_refusal_is_sent_once_more_where_nothing_repeats_it() {
    let mut run = Run::new(true);
    let (bytes, expires_at) = (answer(486).bytes().clone(), run.at(20_000));
    run.restore_server(Answer::Refused { bytes, expires_at }).expect("it is new");

    assert_eq!(run.advance(600), ["0 486"]);
    assert_eq!(run.get(&ack("z9hG4bKpeer")), ["600 acknowledged"]);
    assert!(run.layer.is_empty());
}

#[test]
fn what_a_broken_way_may_have_lost_is_said_again_until_its_peer_has_it() {
    let mut run = Run::new(true);
    let options = request("OPTIONS", "z9hG4bKother", 2, "");
    run.layer.request(run.now, 0, true, &options).expect("it is new");
    let call = request("INVITE", "z9hG4bKours", 1, "");
    let call = run.layer.request(run.now, 0, true, &call).expect("it is new");
    assert_eq!(run.get(&invite()), ["0 OPTIONS", "0 INVITE", "0 request"]);
    let (key, _) = *run.servers.first().expect("it was shown");
    run.layer.respond(run.now, key, &answer(486)).expect("it is open");
    assert_eq!(run.drain(), ["0 486"]);

    run.layer.repeat(run.now, |flow| *flow == 1);
    assert_eq!(run.drain(), [""; 0], "another way broke off");
    run.layer.repeat(run.now, |flow| *flow == 0);
    let mut again = run.drain();
    again.sort();
    assert_eq!(again, ["0 486", "0 INVITE", "0 OPTIONS"]);

    run.get(&Writer::answer(&options, 200, b"OK", Some(b"bob")).finish());
    run.get(&ack("z9hG4bKpeer"));
    run.layer.hush(run.now, call);
    run.layer.repeat(run.now, |flow| *flow == 0);
    assert_eq!(run.drain(), [""; 0]);
}

#[test]
fn a_broken_way_brings_out_nothing_that_was_answered_or_waits_for_an_answer() {
    let mut run = Run::new(true);
    let expires_at = run.at(20_000);
    let key = run.restore_client(Phase::Calling { expires_at }).expect("it is new");
    assert_eq!(run.advance(0), ["0 INVITE"]);

    run.layer.cancel(run.now, key).expect("it calls");
    run.layer.repeat(run.now, |_| true);
    assert_eq!(run.drain(), ["0 INVITE"], "a CANCEL waits for a provisional answer");
    assert_eq!(run.respond_to_invite(180), ["0 CANCEL", "0 response 180"]);
    run.layer.repeat(run.now, |_| true);
    assert_eq!(run.drain(), ["0 CANCEL"]);
}

#[test]
fn a_ringing_that_a_broken_way_may_have_lost_is_said_again() {
    let mut run = Run::new(true);
    let bytes = answer(180).bytes().clone();
    run.restore_server(Answer::Provisional { bytes }).expect("it is new");

    run.layer.repeat(run.now, |_| true);
    assert_eq!(run.drain(), ["0 180"]);
}

#[test]
fn what_timers_repeat_is_said_no_more_often_for_a_broken_way() {
    let mut run = Run::new(false);
    run.restore_client(Phase::Calling { expires_at: run.at(20_000) }).expect("it is new");
    assert_eq!(run.advance(0), ["0 INVITE"]);

    run.layer.repeat(run.now, |_| true);
    assert_eq!(run.drain(), [""; 0]);
}

#[test]
fn a_restored_ringing_call_can_be_cancelled() {
    let mut run = Run::new(false);
    let key = run.restore_client(Phase::Proceeding).expect("it is new");

    assert_eq!(run.advance(60_000), [""; 0]);
    run.layer.cancel(run.now, key).expect("it rings");
    assert_eq!(run.drain(), ["60000 CANCEL"]);
    assert_eq!(run.respond_to_invite(487), ["60000 ACK", "60000 response 487"]);
}

#[test]
fn a_restored_accepted_call_shows_copies_of_its_2xx() {
    let mut run = Run::new(false);
    let until = run.at(5000);
    run.restore_client(Phase::Accepted { until }).expect("it is new");

    assert_eq!(run.respond_to_invite(200), ["0 response 200"]);
    assert_eq!(run.advance(5000), [""; 0]);
    assert!(run.layer.is_empty());
}

#[test]
fn a_restored_invite_is_answered_on_its_flow() {
    let mut run = Run::new(false);
    let key = run.restore_server(Answer::Nothing).expect("it is new");

    assert_eq!(run.get(&invite()), [""; 0], "the peer's copy is known");
    run.layer.respond(run.now, key, &answer(200)).expect("it is open");
    assert_eq!(run.drain(), ["0 200"]);
    assert_eq!(run.get(&ack("z9hG4bKack")), ["0 ack"]);
    assert_eq!(run.advance(60_000), [""; 0]);
    assert!(run.layer.is_empty());
}

#[test]
fn a_restored_ringing_invite_answers_copies() {
    let mut run = Run::new(false);
    let bytes = answer(180).bytes().clone();
    run.restore_server(Answer::Provisional { bytes }).expect("it is new");

    assert_eq!(run.get(&invite()), ["0 180"]);
}

#[test]
fn a_restored_2xx_goes_on_until_its_ack() {
    let mut run = Run::new(false);
    let (bytes, expires_at) = (answer(200).bytes().clone(), run.at(20_000));
    run.restore_server(Answer::Accepted { bytes, expires_at }).expect("it is new");

    assert_eq!(run.advance(2000), ["0 200", "500 200", "1500 200"]);
    assert_eq!(run.get(&ack("z9hG4bKack")), ["2000 ack"]);
    assert_eq!(run.advance(60_000), [""; 0]);
}

#[test]
fn a_restored_2xx_gives_up_when_the_first_process_would_have() {
    let mut run = Run::new(true);
    let (bytes, expires_at) = (answer(200).bytes().clone(), run.at(600));
    run.restore_server(Answer::Accepted { bytes, expires_at }).expect("it is new");

    assert_eq!(run.advance(60_000), ["0 200", "500 200", "600 unacknowledged"]);
}

#[test]
fn a_restored_refusal_goes_on_until_its_ack() {
    let mut run = Run::new(false);
    let (bytes, expires_at) = (answer(486).bytes().clone(), run.at(20_000));
    run.restore_server(Answer::Refused { bytes, expires_at }).expect("it is new");

    assert_eq!(run.advance(600), ["0 486", "500 486"]);
    assert_eq!(run.get(&ack("z9hG4bKpeer")), ["600 acknowledged"]);
    assert_eq!(run.advance(60_000), [""; 0]);
}

#[test]
fn nothing_is_restored_over_a_living_transaction() {
    let mut run = Run::new(false);
    assert_eq!(run.get(&invite()), ["0 request"]);
    run.restore_client(Phase::Proceeding).expect("it is new");

    assert_eq!(run.restore_server(Answer::Nothing), Err(RestoreError::Alive));
    assert_eq!(run.restore_client(Phase::Proceeding), Err(RestoreError::Alive));
}

#[test]
fn an_owner_may_answer_before_the_output_is_drained() {
    let mut run = Run::new(false);
    let message = invite();
    run.layer.handle_input(run.now, Input::Message { flow: 0, reliable: false, message });
    let Some(Output::Request { key, .. }) = run.layer.poll_output() else {
        panic!("the request is shown");
    };
    run.layer.respond(run.now, key, &answer(200)).expect("it is open");

    assert_eq!(run.drain(), ["0 200"]);
}

#[test]
fn an_old_key_never_names_a_new_transaction() {
    let mut run = Run::new(true);
    let sent = request("OPTIONS", "z9hG4bKours", 1, "");
    let old = run.layer.request(run.now, 0, true, &sent).expect("it is new");
    run.layer.abandon(old);
    let new = run.layer.request(run.now, 0, true, &sent).expect("the branch is free again");
    run.layer.abandon(old);

    assert_ne!(old, new);
    assert_eq!(run.layer.len(), 1);
}

#[test]
fn a_process_that_slept_does_not_send_what_it_missed() {
    let mut run = Run::new(false);
    let sent = request("OPTIONS", "z9hG4bKours", 1, "");
    run.layer.request(run.now, 0, false, &sent).expect("it is new");
    run.drain();
    run.now = run.at(20_000);
    run.layer.handle_timeout(run.now);

    assert_eq!(run.drain(), ["20000 OPTIONS"]);
    assert_eq!(run.layer.poll_timeout(), Some(run.at(21_000)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Also: a table that is left alone empties itself in every part.
    #[test]
    fn a_handled_timeout_is_never_due_again(
        reliable: bool,
        steps in vec((0..9_u8, 0..4_u8, 0..9_u8, WAITS), 0..60),
    ) {
        let mut run = Run::new(reliable);
        for (what, which, how, wait) in steps {
            run.step(what, which, how);
            run.drain();
            run.advance_checked(wait)?;
        }
        run.end_all();
        run.advance_checked(200_000)?;
        prop_assert!(run.layer.is_empty());
        prop_assert_eq!(run.layer.poll_timeout(), None);
        prop_assert_eq!(run.layer.index.len(), 0);
    }
}

const WAITS: Range<u64> = 0..7000;

/// A layer, its clock, and what its owner knows.
struct Run {
    start: Instant,
    now: Instant,
    reliable: bool,
    layer: Transactions<u8>,
    clients: Vec<ClientKey>,
    servers: Vec<(ServerKey, Message)>,
}

impl Run {
    #[expect(clippy::disallowed_methods, reason = "any instant will do to count from")]
    fn new(reliable: bool) -> Self {
        let config = Config {
            t1: Duration::from_millis(500),
            t2: Duration::from_secs(4),
            t4: Duration::from_secs(5),
            trying_after: Some(Duration::from_millis(200)),
            transactions_max: 16,
        };
        let start = Instant::now();
        let layer = Transactions::new(config, 3);
        Self { start, now: start, reliable, layer, clients: Vec::new(), servers: Vec::new() }
    }

    fn at(&self, millis: u64) -> Instant {
        self.start + Duration::from_millis(millis)
    }

    fn restore_client(&mut self, phase: Phase) -> Result<ClientKey, RestoreError> {
        let (flow, reliable) = (0, self.reliable);
        let request = request("INVITE", "z9hG4bKours", 1, "");
        self.layer.restore_client(self.now, OpenClientInvite { flow, reliable, request, phase })
    }

    fn restore_server(&mut self, answer: Answer) -> Result<ServerKey, RestoreError> {
        let open = OpenServerInvite {
            flow: 0,
            reliable: self.reliable,
            via: b"SIP/2.0/UDP host.example;branch=z9hG4bKpeer",
            request_uri: b"",
            call_id: b"call-1",
            from_tag: b"ann",
            to_tag: b"",
            cseq: 1,
            answer,
        };
        self.layer.restore_server(self.now, open)
    }

    fn get(&mut self, message: &Message) -> Vec<String> {
        let (message, reliable) = (message.clone(), self.reliable);
        self.layer.handle_input(self.now, Input::Message { flow: 0, reliable, message });
        self.drain()
    }

    /// The callee answers our INVITE.
    fn respond_to_invite(&mut self, status: u16) -> Vec<String> {
        let sent = request("INVITE", "z9hG4bKours", 1, "");
        self.get(&Writer::answer(&sent, status, b"Whatever", Some(b"bob")).finish())
    }

    fn advance(&mut self, millis: u64) -> Vec<String> {
        let until = self.at(millis);
        let mut done = Vec::new();
        while let Some(at) = self.layer.poll_timeout().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.layer.handle_timeout(self.now);
            done.extend(self.drain());
        }
        self.now = until;
        done
    }

    fn advance_checked(&mut self, wait: u64) -> Result<(), TestCaseError> {
        let until = self.now + Duration::from_millis(wait);
        while let Some(at) = self.layer.poll_timeout().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.layer.handle_timeout(self.now);
            let next = self.layer.poll_timeout();
            prop_assert!(next.is_none_or(|next| self.now < next));
            self.drain();
        }
        self.now = until;
        self.layer.handle_timeout(self.now);
        prop_assert!(self.layer.poll_timeout().is_none_or(|next| self.now < next));
        self.drain();
        Ok(())
    }

    /// One thing that peer or owner may do, in any order.
    fn step(&mut self, what: u8, which: u8, how: u8) {
        let methods = ["INVITE", "OPTIONS", "CANCEL", "ACK"];
        let branches = ["z9hG4bK0", "z9hG4bK1", "z9hG4bK2", "3"];
        let method = methods[usize::from(how) % methods.len()];
        let branch = branches[usize::from(which)];
        let statuses = [100, 180, 183, 200, 202, 302, 408, 486, 603];
        let status = statuses[usize::from(how)];
        let client = self.clients.get(usize::from(which)).copied();
        match what {
            0 | 1 => {
                let tag = if how < 5 { "" } else { "bob" };
                self.get(&request(method, branch, u32::from(which), tag));
            }
            2 => {
                let sent = request(method, branch, u32::from(which), "");
                let sent = self.layer.request(self.now, which, self.reliable, &sent);
                self.clients.extend(sent);
            }
            3 | 4 => {
                let sent = request(method, branch, u32::from(which), "");
                self.get(&Writer::answer(&sent, status, b"Whatever", Some(b"bob")).finish());
            }
            5 => {
                if let Some(cancel) = client.and_then(|key| self.layer.cancel(self.now, key).ok()) {
                    self.clients.push(cancel);
                }
            }
            6 if how == 0 => client.into_iter().for_each(|key| self.layer.abandon(key)),
            6 if how == 1 => client.into_iter().for_each(|key| self.layer.hush(self.now, key)),
            6 if how == 2 => self.layer.repeat(self.now, |flow| *flow == which),
            _ => {
                let at = usize::from(which) * 4 + usize::from(how);
                if let Some((key, request)) = self.servers.get(at % self.servers.len().max(1)) {
                    let answer = Writer::answer(request, status, b"Whatever", Some(b"bob"));
                    let _ = self.layer.respond(self.now, *key, &answer.finish());
                }
            }
        }
    }

    /// Answers all that is open, and gives up all that is not answered.
    fn end_all(&mut self) {
        for (key, request) in std::mem::take(&mut self.servers) {
            let answer = Writer::answer(&request, 500, b"Whatever", Some(b"bob")).finish();
            let _ = self.layer.respond(self.now, key, &answer);
        }
        for key in std::mem::take(&mut self.clients) {
            if self.layer.cancel(self.now, key) == Err(CancelError::Full) {
                self.layer.abandon(key);
            }
        }
        self.drain();
    }

    fn drain(&mut self) -> Vec<String> {
        let at = (self.now - self.start).as_millis();
        let mut lines = Vec::new();
        while let Some(output) = self.layer.poll_output() {
            let what = match output {
                Output::Send { bytes, .. } => {
                    let sent = Message::parse(bytes).expect("it is SIP");
                    sent.status().map_or_else(|| sent.method().to_string(), |it| it.to_string())
                }
                Output::Request { key, message, .. } => {
                    self.servers.push((key, message));
                    "request".to_owned()
                }
                Output::Ack { .. } => "ack".to_owned(),
                Output::Acknowledged { .. } => "acknowledged".to_owned(),
                Output::Response { message, .. } => {
                    format!("response {}", message.status().unwrap_or_default())
                }
                Output::TimedOut { .. } => "timed out".to_owned(),
                Output::Unacknowledged { .. } => "unacknowledged".to_owned(),
                Output::Overload { .. } => "overload".to_owned(),
            };
            lines.push(format!("{at} {what}"));
        }
        lines
    }
}

fn request(method: &str, branch: &str, number: u32, to_tag: &str) -> Message {
    let tag = if to_tag.is_empty() { String::new() } else { format!(";tag={to_tag}") };
    Writer::request(Method::new(method.as_bytes()), b"sip:bob@callee.example")
        .header(Name::VIA, format!("SIP/2.0/UDP host.example;branch={branch}"))
        .header(Name::FROM, "<sip:ann@caller.example>;tag=ann")
        .header(Name::TO, format!("<sip:bob@callee.example>{tag}"))
        .header(Name::CALL_ID, "call-1")
        .header(Name::CSEQ, format!("{number} {method}"))
        .finish()
}

/// The peer's INVITE, as [`Run::restore_server`] describes it.
fn invite() -> Message {
    request("INVITE", "z9hG4bKpeer", 1, "")
}

fn answer(status: u16) -> Message {
    Writer::answer(&invite(), status, b"Whatever", Some(b"bob")).finish()
}

fn ack(branch: &str) -> Message {
    request("ACK", branch, 1, "bob")
}
