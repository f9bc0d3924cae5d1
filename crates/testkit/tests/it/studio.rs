//! Phones over real sockets.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use testkit::cut::Deaf;
use testkit::{Command, Config, Fleet, PhoneId, Speech, State, Studio};

/// Waits until `done` says so, at most 30 seconds.
fn wait(studio: &Studio, done: impl Fn(&Fleet, Instant) -> bool + Copy + Send + 'static) {
    for _ in 0..3000 {
        if studio.with(move |fleet, now| done(fleet, now)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{}", studio.with(|fleet, now| fleet.journal().text(now)));
}

#[test]
fn ten_calls_run_over_real_sockets() {
    let ip = Ipv4Addr::new(127, 0, 9, 1);
    let config = Config { phones: 20, sip_sockets: 4, sip_port: 5070, ..Config::new(ip.into()) };
    let studio = Studio::open(config, 1).unwrap();
    studio.with(|fleet, now| {
        for caller in 0..10 {
            let callee = PhoneId(caller + 10);
            let config = fleet.config();
            let to = format!("sip:{}@{}", config.user(callee), config.sip_addr(callee));
            fleet.plan(now, PhoneId(caller), Command::Call { to });
        }
    });
    let all_hear =
        |fleet: &Fleet, now| fleet.phones().all(|phone| 25 < fleet.ear(phone).heard(now).received);
    wait(&studio, all_hear);
    assert_eq!(studio.take_pace().unsent, 0);
    assert_eq!(testkit::drops_at(ip).unwrap(), 0);

    studio.with(|fleet, now| {
        for caller in 0..10 {
            fleet.plan(now, PhoneId(caller), Command::Hangup);
        }
    });
    wait(&studio, |fleet, _| fleet.phones().all(|phone| fleet.state(phone) == State::Idle));
    let fleet = studio.close();
    assert_eq!(fleet.journal().faults().count(), 0);
    assert!(
        fleet.phones().all(|phone| fleet.journal().events().any(|(_, of, _)| of == Some(phone)))
    );
}

#[test]
fn a_deafened_studio_hears_no_more() {
    let ip = Ipv4Addr::new(127, 0, 9, 2);
    let config = Config { phones: 2, sip_sockets: 2, ..Config::new(ip.into()) };
    let studio = Studio::open(config, 1).unwrap();
    studio.with(|fleet, now| {
        let to = format!("sip:1001@{}", fleet.config().sip_addr(PhoneId(1)));
        fleet.plan(now, PhoneId(0), Command::Call { to });
    });
    wait(&studio, |fleet, now| fleet.ear(PhoneId(0)).heard(now).received > 5);

    studio.deafen(Some(Deaf::To { ip, ports: vec![0..=u16::MAX] })).unwrap();
    wait(&studio, |fleet, now| Duration::from_millis(200) < fleet.ear(PhoneId(0)).silence(now));
    studio.deafen(None).unwrap();
    wait(&studio, |fleet, now| fleet.ear(PhoneId(0)).silence(now) < Duration::from_millis(40));
}

/// A studio of one phone at 127.0.9.`host`.
fn phone(host: u8, speech: Speech) -> Studio {
    let config = Config { speech, ..Config::new([127, 0, 9, host].into()) };
    Studio::open(config, host.into()).unwrap()
}

#[test]
fn a_phone_hears_an_echo_and_a_tone() {
    for (host, speech) in [(4, Speech::Echo), (5, Speech::Tone)] {
        let (other, caller) = (phone(host, speech), phone(3, Speech::Stamps));
        caller.with(move |fleet, now| {
            let to = format!("sip:1000@127.0.9.{host}:5060");
            fleet.plan(now, PhoneId(0), Command::Call { to });
        });
        wait(&caller, |fleet, now| 20 < fleet.ear(PhoneId(0)).heard(now).received);
        let heard = caller.with(|fleet, now| fleet.ear(PhoneId(0)).heard(now));
        assert_eq!(heard.foreign == 0, speech == Speech::Echo, "an echo is what the phone said");
        assert!(other.with(|fleet, now| 20 < fleet.ear(PhoneId(0)).heard(now).received));
    }
}
