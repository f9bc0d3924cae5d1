use std::net::SocketAddr;

use b2bua::{Flow, MediaCall, Transport};
use bytes::Bytes;
use failover::{Epoch, Slot};

use super::*;

const GATEWAY: NodeId = NodeId(31);

#[test]
fn of_each_call_the_newest_command_to_a_mediagate_is_kept() {
    let mut held = Held::default();
    for epoch in 1..1000 {
        held.command(GATEWAY, Boot(1), MediaCommand::Open(media(7, epoch)));
        held.command(GATEWAY, Boot(1), MediaCommand::Update(media(7, epoch + 1)));
        let close = MediaCommand::Close { call: CallId(8), epoch: Epoch(epoch) };
        held.command(GATEWAY, Boot(1), close);
    }

    let commands: Vec<_> = held.commands().into_values().collect();
    // The first was never told of the call: what follows is its beginning.
    let close = MediaCommand::Close { call: CallId(8), epoch: Epoch(999) };
    assert_eq!(commands, [MediaCommand::Open(media(7, 1000)), close]);
    assert!(held.is_empty());
}

#[test]
fn messages_that_wait_are_bounded_in_number_and_bytes_and_room_comes_back() {
    let now = now();
    for (len, count_max) in [(1, MESSAGES_MAX), (60_000, MESSAGES_LEN_MAX / 60_000)] {
        let mut held = Held::default();
        for _ in 0..2 {
            let kept = (0..MESSAGES_MAX + 1).filter(|_| held.say(now, message(1, len))).count();
            assert_eq!(kept, count_max);
            assert_eq!(held.said_but(now, SlotSet::EMPTY).len(), count_max);
        }
    }
}

#[test]
fn what_nobody_waits_for_any_more_makes_room_for_what_comes() {
    let mut held = Held::default();
    for seconds in [0, 32] {
        let now = now() + Duration::from_secs(seconds);
        let kept = (0..MESSAGES_MAX + 1).filter(|_| held.await_owner(now, heard(1))).count();
        assert_eq!(kept, MESSAGES_MAX);
    }
    // It is for others to wait for.
    assert!(held.is_empty());
}

#[test]
fn what_waits_is_shown_until_its_phone_gave_up_and_is_counted_once_then() {
    let (mut held, later) = (Held::default(), now() + Duration::from_secs(1));
    let shown = |held: &Held, now| (held.waiting(now), held.outdated(now));
    assert!(held.await_owner(now(), heard(1)) && held.await_owner(later, heard(2)));
    assert!(held.hear(now(), heard(3)));
    assert!(held.say(now(), message(3, 10)), "no phone said that");
    assert_eq!(shown(&held, later), (3, 0));
    assert_eq!(shown(&held, now() + WAIT_MAX), (1, 2), "though nothing came since");

    assert_eq!(held.awaited_of(now() + WAIT_MAX, SlotSet::ALL), [heard(2)]);
    assert!(held.hear(now() + WAIT_MAX, heard(3)));
    held.lose(now() + WAIT_MAX, SlotSet::ALL, &[]);
    assert_eq!(shown(&held, now() + WAIT_MAX), (1, 2));
    assert_eq!(held.heard_of(later + WAIT_MAX, SlotSet::ALL), [heard(3)]);
    assert_eq!(shown(&held, later + WAIT_MAX), (0, 2));
}

#[test]
fn what_waits_for_owners_of_slots_is_given_to_each_in_order() {
    let mut held = Held::default();
    for slot in [1, 2, 1] {
        assert!(held.await_owner(now(), heard(slot)));
    }
    let set = |slot| SlotSet::from_iter([Slot(slot)]);
    assert_eq!(held.awaited(), set(1).union(set(2)));
    assert_eq!(held.awaited_of(now(), set(1)), [heard(1), heard(1)]);
    assert_eq!(held.awaited(), set(2));
    assert_eq!(held.awaited_of(now() + WAIT_MAX, set(2)), [], "its peer gave up");
}

#[test]
fn what_nobody_waits_for_any_more_is_not_said() {
    let mut held = Held::default();
    held.say(now(), message(1, 10));
    held.say(now() + Duration::from_secs(1), message(1, 20));

    let said = held.said_but(now() + WAIT_MAX, SlotSet::EMPTY);
    assert_eq!(said, [message(1, 20)]);
    assert!(held.is_empty());
}

#[test]
fn slots_that_are_lost_leave_nothing_to_say_and_the_others_keep_their_order() {
    let mut held = Held::default();
    for (slot, len) in [(1, 10), (2, 11), (1, 12), (2, 13)] {
        held.say(now(), message(slot, len));
    }
    for call in [7, 8] {
        held.command(GATEWAY, Boot(1), MediaCommand::Open(media(call, 1)));
    }
    held.lose(now(), SlotSet::from_iter([Slot(1)]), &[CallId(7)]);

    assert_eq!(held.said_but(now(), SlotSet::EMPTY), [message(2, 11), message(2, 13)]);
    assert_eq!(held.commands().into_keys().map(|key| key.0).collect::<Vec<_>>(), [CallId(8)]);
}

fn media(call: u64, epoch: u32) -> Box<MediaCall> {
    let leg = || b2bua::MediaLeg {
        port: 10_000,
        remote: None,
        remote_rtcp: None,
        payload_types: vec![],
        held: false,
        nat: false,
        latched: None,
    };
    Box::new(MediaCall { call: CallId(call), epoch: Epoch(epoch), legs: [leg(), leg()] })
}

fn message(slot: u8, len: usize) -> SipOut {
    let bytes = Bytes::from(vec![b'a'; len]);
    SipOut { slot: Slot(slot), epoch: Epoch(1), flow: flow(), bytes }
}

fn heard(slot: u8) -> SipIn {
    SipIn { slot: Slot(slot), hops: 0, flow: flow(), bytes: Bytes::from_static(b"a") }
}

fn flow() -> Flow {
    Flow {
        gate: NodeId(1),
        boot: Boot(1),
        listener: 0,
        transport: Transport::Tcp,
        connection: 1,
        remote: SocketAddr::from(([127, 0, 0, 1], 5060)),
    }
}

#[expect(clippy::disallowed_methods, reason = "an origin for the tests")]
fn now() -> Instant {
    static NOW: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *NOW.get_or_init(Instant::now)
}
