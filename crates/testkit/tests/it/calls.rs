//! Whole calls between two phones.

use std::time::Duration;

use testkit::{Command, Config, DIGITS, Ended, Event, PCMA, PhoneId, State};

use crate::run::{A, B, Run};

#[test]
fn two_phones_talk_and_hang_up() {
    let mut run = Run::new(2);
    run.call(0, A, B);
    run.plan(5000, B, Command::Hangup);
    run.until(4900);

    let talking = State::Talking { holds: false, held: false };
    assert_eq!((run.fleet.state(A), run.fleet.state(B)), (talking, talking));
    for phone in [A, B] {
        let heard = run.fleet.ear(phone).heard(run.now());
        assert!(235 < heard.received, "{heard:?}");
        assert_eq!((heard.lost, heard.duplicated, heard.late), (0, 0, 0));
        assert_eq!(heard.silence, Duration::from_millis(20));
    }

    run.until(60_000);
    assert_eq!((run.fleet.state(A), run.fleet.state(B)), (State::Idle, State::Idle));
    assert_eq!(run.events(A), [Event::Ringing(180), Event::Answered, Event::Ended(Ended::There)]);
    assert_eq!(run.events(B), [Event::Called, Event::Answered, Event::Ended(Ended::Here)]);
    assert_eq!(run.faults(), []);
    // INVITE 180 200 ACK BYE 200.
    assert_eq!(run.fleet.journal().messages_count(), (6, 6), "{}", run.ladder());
}

#[test]
fn a_held_phone_hears_nothing_and_misses_nothing() {
    let mut run = Run::new(2);
    run.call(0, A, B);
    run.plan(1000, A, Command::Hold);
    run.plan(3000, A, Command::Resume);
    run.until(2000);

    assert_eq!(run.fleet.state(A), State::Talking { holds: true, held: false });
    assert_eq!(run.fleet.state(B), State::Talking { holds: false, held: true });
    assert_eq!((run.fleet.speaks_to(A).is_some(), run.fleet.speaks_to(B)), (true, None));
    assert_eq!((run.fleet.ear(A).is_open(), run.fleet.ear(B).is_open()), (false, true));

    run.until(4000);
    let heard = run.fleet.take_heard(run.now(), A);
    assert_eq!((heard.lost, heard.silence), (0, Duration::from_millis(20)));
    assert_eq!(run.fleet.state(A), State::Talking { holds: false, held: false });
    assert_eq!(run.faults(), []);
}

#[test]
fn a_caller_gives_up_a_ringing_call() {
    let mut run = Run::new(2);
    let manners = testkit::Manners { incoming: testkit::Incoming::Ring, ..Default::default() };
    run.plan(0, B, Command::Behave(Box::new(manners)));
    run.call(1, A, B);
    run.plan(1000, A, Command::Cancel);
    run.until(60_000);

    assert_eq!(
        run.events(A),
        [Event::Ringing(180), Event::Refused(487), Event::Ended(Ended::Here)]
    );
    assert_eq!(run.events(B), [Event::Called, Event::Ended(Ended::There)]);
    assert_eq!(run.faults(), []);
}

#[test]
fn a_phone_that_talks_is_busy() {
    let mut run = Run::new(3);
    let third = PhoneId(2);
    run.call(0, A, B);
    run.call(1000, third, B);
    run.until(2000);

    assert_eq!(run.events(third), [Event::Refused(486), Event::Ended(Ended::There)]);
    assert_eq!(run.fleet.state(B), State::Talking { holds: false, held: false });
    assert_eq!(run.faults(), []);
}

#[test]
fn a_call_changes_its_codec_and_moves_its_media() {
    let mut run = Run::new(2);
    run.call(0, A, B);
    run.plan(1000, B, Command::Codecs(vec![PCMA, DIGITS]));
    run.plan(2000, B, Command::Move);
    run.until(3000);

    let mut moved = run.fleet.config().rtp_addr(B);
    moved.set_port(moved.port() + 2);
    assert_eq!(run.fleet.speaks_to(A), Some(moved));
    assert_eq!(run.fleet.ear(B).heard(run.now()).lost, 0);
    let moves: Vec<Event> =
        run.events(A).into_iter().filter(|event| matches!(event, Event::Reinvite { .. })).collect();
    assert_eq!(moves, [Event::Reinvite { moves: false }, Event::Reinvite { moves: true }]);
    assert_eq!(run.faults(), []);
}

#[test]
fn requests_and_answers_survive_a_lossy_wire() {
    for seed in 0..50_u64 {
        let mut run = Run::new(2);
        run.lossy = Some(seed);
        run.call(0, A, B);
        run.plan(20_000, A, Command::Hold);
        run.plan(60_000, A, Command::Hangup);
        run.until(59_999);
        assert_eq!(
            run.fleet.state(B),
            State::Talking { holds: false, held: true },
            "{}",
            run.ladder()
        );
        run.until(200_000);
        assert_eq!((run.fleet.state(A), run.fleet.state(B)), (State::Idle, State::Idle));
    }
}

#[test]
fn phones_without_a_voice_signal_and_say_nothing() {
    let config = Config { phones: 4, voices: Some(2), ..Config::new([127, 0, 0, 9].into()) };
    let mut run = Run::with(Config { sip_sockets: 2, ..config });
    run.call(0, A, B);
    run.call(0, PhoneId(2), PhoneId(3));
    run.until(2000);

    let talking = State::Talking { holds: false, held: false };
    assert!(run.fleet.phones().all(|phone| run.fleet.state(phone) == talking));
    let heard = |phone| run.fleet.ear(phone).heard(run.start).received;
    assert!(50 < heard(A) && 50 < heard(B));
    assert_eq!([heard(PhoneId(2)), heard(PhoneId(3))], [0, 0]);
    let config = run.fleet.config();
    assert_eq!(config.rtp_addr(PhoneId(2)), config.rtp_addr(PhoneId(3)));
}

#[test]
fn what_came_is_counted_by_kind() {
    let mut run = Run::new(2);
    run.call(0, A, B);
    run.plan(1000, A, Command::Hangup);
    run.until(2000);

    let received = run.fleet.journal_mut().take_received();
    let of = |phone, kind: &str| received.get(&(phone, kind.to_owned())).copied();
    assert_eq!(of(B, "INVITE"), Some(1));
    assert_eq!(of(A, "200 to BYE"), Some(1));
    assert_eq!(of(A, "BYE"), None);
}

#[test]
fn a_phone_that_forgot_its_call_says_nothing_until_it_is_asked() {
    let mut run = Run::new(2);
    run.call(0, A, B);
    run.plan(1000, A, Command::Forget);
    run.until(3000);
    let talking = State::Talking { holds: false, held: false };
    assert_eq!((run.fleet.state(A), run.fleet.state(B)), (State::Idle, talking));

    run.plan(3000, B, Command::Reinvite);
    run.until(4000);
    assert_eq!(run.fleet.state(B), State::Idle);
    assert!(run.events(B).contains(&Event::ReinviteRefused(481)));
    assert_eq!(run.faults(), []);
}
