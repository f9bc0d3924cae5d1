//! Phones that behave in other ways than most.

use std::time::Duration;

use testkit::{AnswersFrom, Command, Ended, Event, Incoming, Manners, Reinvite, SpeaksFrom, State};

use crate::run::{A, B, Run};

fn behaving(manners: Manners) -> Run {
    let mut run = Run::new(2);
    run.plan(0, B, Command::Behave(Box::new(manners)));
    run.call(1, A, B);
    run
}

#[test]
fn a_phone_refuses_a_call() {
    let incoming = Incoming::Refuse { status: 503, after: Duration::from_millis(50) };
    let mut run = behaving(Manners { incoming, ..Manners::default() });
    run.until(40_000);

    assert_eq!(run.events(A), [Event::Refused(503), Event::Ended(Ended::There)]);
    assert_eq!(run.events(B), [Event::Called, Event::Ended(Ended::Refused)]);
    assert_eq!(run.faults(), []);
}

#[test]
fn a_phone_that_says_nothing_lets_the_caller_time_out() {
    let mut run = behaving(Manners { incoming: Incoming::Ignore, ..Manners::default() });
    run.until(40_000);

    let expected = [Event::TimedOut, Event::Refused(408), Event::Ended(Ended::Unknown)];
    assert_eq!(run.events(A), expected);
    // RFC 3261 §17.1.1.2: the INVITE and six copies.
    assert_eq!(run.fleet.journal().messages_count().0, 7);
}

#[test]
fn early_media_is_heard_before_the_answer() {
    let incoming = Incoming::EarlyMedia {
        progress_after: Duration::from_millis(100),
        answer_after: Duration::from_secs(2),
    };
    let mut run = behaving(Manners { incoming, ..Manners::default() });
    run.until(1000);
    assert!(30 < run.fleet.ear(A).heard(run.now()).received);

    run.until(3000);
    assert_eq!(run.fleet.state(A), State::Talking { holds: false, held: false });
    assert_eq!(run.faults(), []);
}

#[test]
fn crossing_holds_both_succeed_in_the_end() {
    let mut run = behaving(Manners { glares: 1, ..Manners::default() });
    run.plan(1000, A, Command::Reinvite);
    run.until(6000);

    assert!(run.events(A).contains(&Event::ReinviteRefused(491)), "{}", run.ladder());
    assert!(run.events(A).contains(&Event::ReinviteAccepted), "{}", run.ladder());
    assert_eq!(run.fleet.state(A), State::Talking { holds: false, held: true });
    assert_eq!(run.fleet.state(B), State::Talking { holds: true, held: false });
    assert_eq!(run.faults(), []);
}

#[test]
fn a_refused_reinvite_leaves_the_call_as_it_was() {
    let reinvite =
        Reinvite::Refuse { status: 488, retry_after: None, after: Duration::ZERO, times: 1 };
    let mut run = behaving(Manners { reinvite, ..Manners::default() });
    run.plan(1000, A, Command::Hold);
    run.until(5000);

    assert!(run.events(A).contains(&Event::ReinviteRefused(488)));
    assert_eq!(run.fleet.state(A), State::Talking { holds: false, held: false });
    assert_eq!(run.faults(), []);
}

#[test]
fn a_phone_that_ignores_a_reinvite_loses_the_call() {
    let mut run =
        behaving(Manners { reinvite: Reinvite::Ignore { times: 1 }, ..Manners::default() });
    run.plan(1000, A, Command::Hold);
    run.until(60_000);

    assert_eq!(run.events(A).last(), Some(&Event::Ended(Ended::Unknown)));
    assert_eq!(run.events(B).last(), Some(&Event::Ended(Ended::There)));
}

#[test]
fn a_call_that_nobody_acknowledges_ends() {
    let mut run = Run::new(2);
    run.plan(0, A, Command::Behave(Box::new(Manners { acks: false, ..Manners::default() })));
    run.call(1, A, B);
    run.until(60_000);

    assert_eq!(run.events(B), [Event::Called, Event::Ended(Ended::Unacknowledged)]);
    assert_eq!((run.fleet.state(A), run.fleet.state(B)), (State::Idle, State::Idle));
}

#[test]
fn a_phone_answers_and_speaks_from_elsewhere() {
    let mut run = behaving(Manners {
        answers_from: AnswersFrom::OtherSocket,
        speaks_from: SpeaksFrom::OtherPort,
        ..Manners::default()
    });
    run.plan(1000, A, Command::Reinvite);
    run.until(3000);

    assert_eq!(run.fleet.state(A), State::Talking { holds: false, held: false });
    assert_eq!(run.fleet.ear(A).heard(run.now()).lost, 0);
    assert_eq!(run.faults(), []);
}
