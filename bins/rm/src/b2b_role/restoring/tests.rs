use failover::{CallId, Tombstone, UnixMs};

use super::*;

#[test]
fn many_records_come_in_parts_of_whole_slots_until_none_is_left() {
    let (mut restoring, mut now) = (Restoring::default(), now());
    restoring.copied(
        now,
        (0..=19).flat_map(|turn| (0..50).map(move |slot| copy(50 * turn + u64::from(slot), slot))),
    );

    let (mut parts, mut slots) = (0, 0);
    while let Some(at) = restoring.poll_timeout() {
        now = now.max(at);
        let due = restoring.due(now);
        assert!(restoring.poll_timeout().is_none_or(|at| now < at));
        let counts = due.iter().map(|slot| restoring.take(*slot).len());
        assert_eq!(counts.collect::<Vec<_>>(), vec![20; due.len()]);
        parts += 1;
        slots += due.len();
    }
    assert_eq!((parts, slots, restoring.is_empty()), (4, 50, true));
}

#[test]
fn a_slot_that_is_asked_for_comes_at_once_and_not_again() {
    let (mut restoring, now) = (Restoring::default(), now());
    restoring.copied(now, vec![copy(1, 7), copy(2, 8)]);

    assert_eq!(restoring.take(Slot(8)), [(Key::Call(CallId(2)), stone(2, 8))]);
    assert_eq!(restoring.due(now), [Slot(7)]);
    assert_eq!(restoring.poll_timeout(), None);
}

#[test]
fn a_copy_is_newer_than_what_was_kept() {
    let (mut restoring, now) = (Restoring::default(), now());
    restoring.kept(now, vec![kept(1, 3), kept(2, 3)]);
    restoring.copied(now, vec![copy(1, 7), copy(2, 8)]);
    restoring.kept(now, vec![kept(1, 7), (Slot(7), Key::Call(CallId(9)), stone(9, 7))]);

    let records = restoring.take(Slot(7));
    assert_eq!(records, [1, 9].map(|call| (Key::Call(CallId(call)), stone(call, 7))));
}

#[test]
fn what_is_no_record_of_its_name_is_counted_and_left() {
    let (mut restoring, now) = (Restoring::default(), now());
    let (_, key, Copied { bytes, .. }) = copy(1, 7);
    let broken = (Slot(7), Key::Call(CallId(2)), copied(bytes.slice(1..)));
    let foreign = (Slot(7), Key::Call(CallId(3)), copied(bytes.clone()));
    restoring.copied(now, vec![(Slot(7), key.clone(), copied(bytes)), broken, foreign]);

    assert_eq!((restoring.take(Slot(7)), restoring.unread), (vec![(key, stone(1, 7))], 2));
}

fn copy(call: u64, slot: u8) -> (Slot, Key, Copied) {
    let value = stone(call, slot);
    let Value::Ended(stone) = &value else { unreachable!("it is one") };
    let bytes = frames::value_bytes(failover::record::ValueRef::Ended(stone));
    (Slot(slot), Key::Call(CallId(call)), copied(bytes))
}

fn copied(bytes: Bytes) -> Copied {
    Copied { bytes, by_ms: 0, is_old: false }
}

fn kept(call: u64, slot: u8) -> (Slot, Key, Value) {
    // Another time tells it from the copy.
    let Value::Ended(stone) = stone(call, slot) else { unreachable!("it is one") };
    let until = UnixMs(stone.until.0 - 1);
    (Slot(slot), Key::Call(CallId(call)), Value::Ended(Tombstone { until, ..stone }))
}

fn stone(call: u64, slot: u8) -> Value {
    let leg = || failover::EndedLeg { local_tag: call, peer: call };
    let (call, slot, until) = (CallId(call), Slot(slot), UnixMs(1_800_000_000_000));
    Value::Ended(Tombstone { call, slot, until, legs: [leg(), leg()], detail: None })
}

#[expect(clippy::disallowed_methods, reason = "an origin for the test")]
fn now() -> Instant {
    Instant::now()
}
