//! Whole calls between two transaction layers on a wire that loses one
//! message: each in turn. What crosses the wire is compared with a text file
//! per kind of call; that the call ends as it should is checked as well.
//!
//! With `UPDATE_LADDERS` set, what crossed the wire is written into the files.

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sip_core::dialog::Dialog;
use sip_core::transactions::{ClientKey, Config, Input, Output, ServerKey, Transactions};
use sip_core::{Message, Method, Name, Writer};

use crate::ladders::{an_instant, difference};

#[test]
fn an_accepted_call_survives_the_loss_of_each_message() {
    lose_each(Plan::Accept, 6);
}

#[test]
fn a_refused_call_survives_the_loss_of_each_message() {
    lose_each(Plan::Refuse, 4);
}

#[test]
fn a_cancelled_call_survives_the_loss_of_each_message() {
    lose_each(Plan::Cancel, 6);
}

#[test]
fn a_call_cancelled_too_late_survives_the_loss_of_each_message() {
    lose_each(Plan::CancelLate, 8);
}

/// What the two ends do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    /// The callee rings, accepts after a second, and the caller hangs up.
    Accept,
    /// The callee rings and refuses after a second.
    Refuse,
    /// The caller gives up while the callee rings.
    Cancel,
    /// The caller gives up while the 2xx is on its way, and hangs up.
    CancelLate,
}

/// Plays a call without loss and once with each of its messages lost.
fn lose_each(plan: Plan, messages: usize) {
    let mut text = String::new();
    for lost in 0..=messages {
        let call = Call::play(plan, lost);
        assert!(lost != 0 || call.sent == messages, "{plan:?} takes {} messages", call.sent);
        call.check(plan, lost);
        text += &match lost {
            0 => "nothing is lost\n".to_owned(),
            lost => format!("\nmessage {lost} is lost\n"),
        };
        text += &call.text;
    }
    let name = format!("tests/it/testdata/losses/{plan:?}.txt").to_lowercase();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    if std::env::var_os("UPDATE_LADDERS").is_some() {
        std::fs::write(&path, &text).expect("the file is written");
    }
    let written = std::fs::read_to_string(&path).expect("the file is there");
    assert!(written == text, "{plan:?}:\n{}", difference(&written, &text));
}

/// The two ends of a call and the wire between them.
struct Call {
    now: Instant,
    start: Instant,
    ends: [End; 2],
    /// What is on the wire: when it arrives, at which end, and what it is.
    wire: Vec<(Instant, usize, Message)>,
    /// Messages that entered the wire so far, and the one to lose.
    sent: usize,
    lost: usize,
    text: String,
}

/// One end, with what its user does.
struct End {
    layer: Transactions<()>,
    invite: Option<Message>,
    server: Option<ServerKey>,
    client: Option<ClientKey>,
    dialog: Option<Dialog>,
    /// What the user does next, and when.
    next: Vec<(Instant, Action)>,
    seen: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Call,
    Cancel,
    Ring,
    Accept,
    Refuse,
    HangUp,
}

const CALLER: usize = 0;
const CALLEE: usize = 1;

impl Call {
    fn play(plan: Plan, lost: usize) -> Self {
        let start = an_instant();
        let ends = [End::new(), End::new()];
        let mut call =
            Self { now: start, start, ends, wire: Vec::new(), sent: 0, lost, text: String::new() };
        call.ends[CALLER].next.push((start, Action::Call));
        match plan {
            Plan::Accept | Plan::Refuse => {}
            Plan::Cancel => call.ends[CALLER].next.push((call.at(700), Action::Cancel)),
            Plan::CancelLate => call.ends[CALLER].next.push((call.at(1030), Action::Cancel)),
        }
        while let Some(at) = call.next_at() {
            assert!(at < call.at(200_000), "a call ends");
            call.now = at;
            call.step(plan);
        }
        call
    }

    /// Checks what the users saw, whatever was lost.
    fn check(&self, plan: Plan, lost: usize) {
        let [caller, callee] = &self.ends;
        let end = format!("{plan:?} without message {lost}: {:?} {:?}", caller.seen, callee.seen);
        assert!(caller.layer.is_empty() && callee.layer.is_empty(), "{end}");
        let requests: Vec<_> = callee.seen.iter().filter(|what| !what.contains("ACK")).collect();
        match plan {
            Plan::Accept => {
                assert_eq!(requests, ["INVITE", "BYE"], "{end}");
                assert!(callee.seen.contains(&"ACK".to_owned()), "{end}");
                assert_eq!(caller.seen.last().map(String::as_str), Some("200 BYE"), "{end}");
            }
            Plan::Refuse => {
                assert_eq!(requests, ["INVITE"], "{end}");
                assert_eq!(caller.seen.last().map(String::as_str), Some("486 INVITE"), "{end}");
            }
            Plan::Cancel => {
                assert_eq!(requests, ["INVITE", "CANCEL"], "{end}");
                assert!(caller.seen.contains(&"200 CANCEL".to_owned()), "{end}");
                assert!(caller.seen.contains(&"487 INVITE".to_owned()), "{end}");
            }
            // Whichever came first at the callee; never both.
            Plan::CancelLate => {
                let hung_up = caller.seen.contains(&"200 BYE".to_owned());
                let cancelled = caller.seen.contains(&"487 INVITE".to_owned());
                assert!(hung_up != cancelled, "{end}");
            }
        }
    }

    fn at(&self, millis: u64) -> Instant {
        self.start + Duration::from_millis(millis)
    }

    fn next_at(&self) -> Option<Instant> {
        let layers = self.ends.iter().filter_map(|end| end.layer.poll_timeout());
        let users = self.ends.iter().flat_map(|end| end.next.iter().map(|(at, _)| *at));
        layers.chain(users).chain(self.wire.iter().map(|(at, ..)| *at)).min()
    }

    /// Does all that is due now.
    fn step(&mut self, plan: Plan) {
        let now = self.now;
        while let Some(due) = self.wire.iter().position(|(at, ..)| *at <= now) {
            let (_, to, message) = self.wire.remove(due);
            self.ends[to]
                .layer
                .handle_input(now, Input::Message { flow: (), reliable: false, message });
            self.drain(to, plan);
        }
        for end in [CALLER, CALLEE] {
            while let Some(due) = self.ends[end].next.iter().position(|(at, _)| *at <= now) {
                let (_, action) = self.ends[end].next.remove(due);
                self.ends[end].act(now, action);
                self.drain(end, plan);
            }
            self.ends[end].layer.handle_timeout(now);
            self.drain(end, plan);
        }
    }

    fn drain(&mut self, end: usize, plan: Plan) {
        while let Some(output) = self.ends[end].layer.poll_output() {
            if let Output::Send { bytes, .. } = output {
                self.send(end, Message::parse(bytes).expect("it is SIP"));
            } else {
                for message in self.ends[end].see(self.now, plan, output) {
                    self.send(end, message);
                }
            }
        }
    }

    fn send(&mut self, from: usize, message: Message) {
        self.sent += 1;
        let (arrow, is_lost) = (["->", "<-"][from], self.sent == self.lost);
        let lost = if is_lost { "  lost" } else { "" };
        let at = (self.now - self.start).as_millis();
        self.text += &format!("{at:>6} {arrow} {}{lost}\n", outline(&message));
        if !is_lost {
            self.wire.push((self.now + Duration::from_millis(50), 1 - from, message));
        }
    }
}

impl End {
    fn new() -> Self {
        let config = Config {
            t1: Duration::from_millis(500),
            t2: Duration::from_secs(4),
            t4: Duration::from_secs(5),
            trying_after: Some(Duration::from_millis(200)),
            transactions_max: 10,
        };
        Self {
            layer: Transactions::new(config, 7),
            invite: None,
            server: None,
            client: None,
            dialog: None,
            next: Vec::new(),
            seen: Vec::new(),
        }
    }

    /// Does what the user wants.
    fn act(&mut self, now: Instant, action: Action) {
        let answer = |end: &Self, status| {
            let invite = end.invite.as_ref().expect("there is a call");
            Writer::answer(invite, status, b"Whatever", Some(b"bob")).finish()
        };
        match action {
            Action::Call => {
                self.client = Some(self.layer.request(now, (), false, &invite()).expect("sent"));
            }
            // The callee may have answered meanwhile.
            Action::Cancel => {
                let _ = self.layer.cancel(now, self.client.expect("there is a call"));
            }
            Action::Ring => self.respond(now, &answer(self, 180)),
            Action::Accept => self.respond(now, &answer(self, 200)),
            Action::Refuse => self.respond(now, &answer(self, 486)),
            Action::HangUp => {
                let dialog = self.dialog.as_mut().expect("there is a call");
                let bye = dialog.request(Method::Bye, b"SIP/2.0/UDP ann;branch=z9hG4bKbye");
                self.layer.request(now, (), false, &bye.finish()).expect("sent");
            }
        }
    }

    fn respond(&mut self, now: Instant, answer: &Message) {
        // A call that was cancelled meanwhile has its answer.
        let _ = self.layer.respond(now, self.server.expect("there is a call"), answer);
    }

    /// Shows the user what came; returns what has no transaction.
    fn see(&mut self, now: Instant, plan: Plan, output: Output<()>) -> Vec<Message> {
        let mut untracked = Vec::new();
        let wait = |millis| now + Duration::from_millis(millis);
        match output {
            Output::Request { key, message, cancels, .. } => {
                self.seen.push(outline(&message));
                if message.method() == Method::Invite {
                    self.invite = Some(message);
                    self.server = Some(key);
                    self.next.push((now, Action::Ring));
                    let (after, last) = match plan {
                        Plan::Accept | Plan::CancelLate => (1000, Action::Accept),
                        Plan::Refuse => (1000, Action::Refuse),
                        Plan::Cancel => (9000, Action::Accept),
                    };
                    self.next.push((wait(after), last));
                    return untracked;
                }
                let is_known = cancels.is_some() || message.method() == Method::Bye;
                let status = if is_known { 200 } else { 481 };
                let answer = Writer::answer(&message, status, b"Whatever", Some(b"bob")).finish();
                self.layer.respond(now, key, &answer).expect("it is new");
                if let (Some(cancelled), Some(invite)) = (cancels, &self.invite) {
                    let answer = Writer::answer(invite, 487, b"Gone", Some(b"bob")).finish();
                    let _ = self.layer.respond(now, cancelled, &answer);
                }
            }
            Output::Ack { message, .. } => self.seen.push(outline(&message)),
            Output::Response { message, .. } => {
                self.seen.push(outline(&message));
                if message.method() == Method::Invite && message.status() == Some(200) {
                    if self.dialog.is_none() {
                        self.dialog = Dialog::uac(&invite(), &message).ok();
                        self.next.push((wait(2000), Action::HangUp));
                    }
                    let dialog = self.dialog.as_ref().expect("a 2xx makes a dialog");
                    let ack = dialog.ack(1, b"SIP/2.0/UDP ann;branch=z9hG4bKack");
                    untracked.push(ack.finish());
                }
            }
            Output::Acknowledged { .. } => {}
            Output::TimedOut { .. } => self.seen.push("timed out".to_owned()),
            Output::Unacknowledged { .. } => self.seen.push("unacknowledged".to_owned()),
            Output::Send { .. } | Output::Overload { .. } => panic!("{output:?} is not for users"),
        }
        untracked
    }
}

fn outline(message: &Message) -> String {
    match message.status() {
        Some(status) => format!("{status} {}", message.method()),
        None => message.method().to_string(),
    }
}

fn invite() -> Message {
    Writer::request(Method::Invite, b"sip:bob@callee.example")
        .header(Name::VIA, "SIP/2.0/UDP ann;branch=z9hG4bKinvite")
        .header(Name::FROM, "<sip:ann@caller.example>;tag=ann")
        .header(Name::TO, "<sip:bob@callee.example>")
        .header(Name::CALL_ID, "call-1")
        .header(Name::CSEQ, "1 INVITE")
        .header(Name::CONTACT, "<sip:ann@ann>")
        .body(b"application/sdp", Bytes::from_static(b"v=0\r\n"))
        .finish()
}
