//! What a standby does not take, and what becomes of it.

use super::*;

#[test]
fn an_owner_of_an_older_epoch_is_refused() {
    let mut run = Run::synced();
    let taken = run.standby.take(&[SLOT], Epoch(6));
    assert_eq!(taken, [(SLOT, Key::Call(CallId(1)), value("invited"))]);
    assert_eq!(run.standby.held(SLOT), Held::Nothing);

    // The old owner does not know yet.
    run.put(1, "ringing", Barrier::Yes);
    run.owner.send(SLOT, "180");
    run.exchange();
    assert_eq!(run.seen()[0], Seen::Refused(SLOT, Refusal::NotBegun));
    assert_eq!(run.passed(), ["180"], "the fence is at the gates, not here");
    run.down();
    run.up();
    run.exchange();
    assert!(run.seen().contains(&Seen::Refused(SLOT, Refusal::OlderEpoch(Epoch(7)))));
    assert_eq!(run.standby.held(SLOT), Held::Nothing);
    assert!(run.owner.is_protected(Slot(8)));

    // Later it is the owner again.
    run.owner.standby(run.now, &[SLOT], Some(STANDBY), Epoch(8));
    run.exchange();
    assert!(run.owner.is_protected(SLOT));
}

#[test]
fn a_batch_that_comes_again_changes_nothing() {
    let mut run = Run::synced();
    run.put(1, "ringing", Barrier::Yes);
    run.drain();
    let ringing = run.batches[0].clone();
    run.exchange();
    run.advance(3);
    run.put(1, "talking", Barrier::Yes);
    run.exchange();

    let ack = run.standby.copy(OWNER, ringing.clone()).expect("it says how far it is");
    assert_eq!((ack.broken, ack.held.len(), ack.refused.len()), (false, 0, 0));
    assert_eq!(run.content_of_standby(SLOT), run.content_of_owner(SLOT));

    // The same from the life before: a record of an older boot.
    let before = StreamId { boot: Boot(0), number: 9 };
    assert_eq!(run.standby.copy(OWNER, Batch { stream: before, ..ringing }), None);
    assert_eq!(run.standby.counters().replayed, 2);
    assert_eq!(run.content_of_standby(SLOT), run.content_of_owner(SLOT));
}

#[test]
fn a_stream_with_a_gap_is_begun_anew() {
    let mut run = Run::synced();
    run.put(1, "ringing", Barrier::Yes);
    run.drain();
    run.batches.clear();
    run.advance(3);
    run.put(1, "talking", Barrier::Yes);
    run.owner.send(SLOT, "200");
    run.exchange();
    assert_eq!(run.passed(), ["200"]);
    assert_eq!(run.seen(), [Seen::Unsynced(slots())]);

    run.advance_exchanging(1);
    assert_eq!(run.synced_slots(), slots());
    assert_eq!(run.content_of_standby(SLOT), run.content_of_owner(SLOT));
}

#[test]
fn slots_are_handed_over_behind_their_last_record() {
    let mut run = Run::new();
    assert_eq!(run.owner.hand_over(&[SLOT], |_| None), Err(NotSyncedError(SLOT)));
    run = Run::synced();
    run.owner.standby(run.now, &[Slot(9)], Some(STANDBY), Epoch(6));
    run.exchange();
    run.put(1, "told later", Barrier::No);
    let record = |key: &Key| run.content.get(&(SLOT, key.clone())).cloned();
    run.owner.hand_over(&[SLOT, Slot(8), Slot(9)], record).expect("all are synced");
    run.put(1, "too late", Barrier::No);
    run.exchange();

    // Each at the epoch of its copy: no other reign of the owner gave it away.
    let handed = |epoch, slots| Some(ReplicaOutput::HandOver { from: OWNER, epoch, slots });
    assert_eq!(run.standby.poll_output(), handed(Epoch(5), vec![SLOT, Slot(8)]));
    assert_eq!(run.standby.poll_output(), handed(Epoch(6), vec![Slot(9)]));
    let taken = run.standby.take(&[SLOT], Epoch(6));
    assert_eq!(taken, [(SLOT, Key::Call(CallId(1)), value("told later"))]);
}

#[test]
fn a_copy_follows_its_record_however_long_that_becomes() {
    let mut run = Run::synced();

    for len in [10, 2000, 1900, 900, 30, 5000, 0, 5000, 2499] {
        run.put(1, &"x".repeat(len), Barrier::Yes);
        run.exchange();
        run.advance(100);

        assert_eq!(run.content_of_standby(SLOT), run.content_of_owner(SLOT));
        assert_eq!(run.standby.held_len(), weight(&Key::Call(CallId(1)), Some(&vec![0; 2 + len])));
    }
}

#[test]
fn a_call_with_too_long_a_record_goes_on_without_a_copy() {
    let mut run = Run::synced();
    run.put(1, &"x".repeat(VALUE_MAX), Barrier::Yes);
    run.owner.send(SLOT, "180");
    assert_eq!(run.passed(), ["180"]);
    run.advance(50);
    run.exchange();
    assert_eq!(run.content_of_standby(SLOT), [], "an old record is worse than none");
    assert_eq!(run.owner.counters().too_long, 1);
}

#[test]
fn a_standby_of_an_older_version_says_which_records_it_cannot_read() {
    let mut run = Run::synced();
    let newer = Bytes::from_static(b"\x01\x11newer");
    let change =
        Change { slot: SLOT, key: Key::Call(CallId(2)), value: Some(newer), barrier: true };
    run.owner.change(run.now, change);
    run.owner.send(SLOT, "180");
    run.exchange();
    assert_eq!(run.passed(), ["180"]);
    assert_eq!(run.seen()[0], Seen::Refused(SLOT, Refusal::Kind(0x0111)));
    assert!(!run.owner.is_protected(SLOT));
    assert!(run.owner.is_protected(Slot(8)));
    run.put(1, "ringing", Barrier::Yes);
    run.exchange();
    assert!(run.seen().is_empty(), "it is said once");
}

#[test]
fn what_an_earlier_stream_brought_stays_until_the_new_copy_is_complete() {
    let mut run = Run::synced();
    run.put(2, "second", Barrier::Yes);
    run.exchange();
    run.down();
    run.put(1, "ringing", Barrier::Yes);
    run.up();

    // The owner dies when half of the slot is over.
    let mut batch = run.batches.pop_front().expect("the new copy");
    while !batch.items.iter().any(|item| matches!(item, Item::Record { .. })) {
        let ack = run.standby.copy(OWNER, batch).expect("a fresh batch");
        run.owner.ack(run.now, STANDBY, &ack);
        run.drain();
        batch = run.batches.pop_front().expect("more of it");
    }
    let record = batch.items.iter().position(|item| matches!(item, Item::Record { .. }));
    batch.items.truncate(record.expect("it has one") + 1);
    run.standby.copy(OWNER, batch);
    assert_eq!(run.standby.held(SLOT), Held::Part);

    let taken = run.standby.take(&[SLOT], Epoch(6));
    let [one, two] = [(1, "ringing"), (2, "second")];
    let expected = [one, two].map(|(id, text)| (SLOT, Key::Call(CallId(id)), value(text)));
    assert_eq!(taken, expected);
    assert_eq!(run.standby.held_len(), 0);
}

#[test]
fn a_record_that_the_standby_cannot_read_unprotects_its_slot_until_it_is_gone() {
    let mut run = Run::synced();
    run.put(2, "strange", Barrier::Yes);
    run.owner.send(SLOT, "180");
    run.exchange();
    let refused = Seen::Refused(SLOT, Refusal::Unreadable);
    assert_eq!(run.seen(), [refused.clone(), Seen::Unsynced(vec![SLOT])]);
    assert_eq!(run.passed(), ["180"], "nothing waits for it");
    assert_eq!((run.standby.held(SLOT), run.owner.is_protected(SLOT)), (Held::Nothing, false));
    assert!(run.owner.is_protected(Slot(8)));

    // Tried again, it is found in the whole copy.
    run.advance_exchanging(2);
    assert_eq!(run.seen(), [refused]);
    assert_eq!((run.standby.held(SLOT), run.owner.is_protected(SLOT)), (Held::Nothing, false));
    run.content.remove(&(SLOT, Key::Call(CallId(2))));
    run.advance_exchanging(70);
    assert_eq!(run.seen().last(), Some(&Seen::Synced(vec![SLOT])));
    assert!(run.owner.is_protected(SLOT));
}

#[test]
fn changes_that_cannot_be_read_are_found_among_many_or_when_their_slot_is_checked() {
    let unreadable = Seen::Refused(SLOT, Refusal::Unreadable);
    for (changes, seconds) in [(1, 256), (u64::from(SAMPLE), 0)] {
        let mut run = Run::synced();
        run.put(1, "ringing", Barrier::Yes);
        run.exchange();
        run.advance(3);
        for call in 0..changes {
            run.put(2 + call, "strange", Barrier::Yes);
        }
        run.exchange();
        let found_at_once = 1 < changes;
        assert_eq!(run.seen().contains(&unreadable), found_at_once);
        run.advance_exchanging(seconds);
        assert_eq!(run.seen().contains(&unreadable), !found_at_once);
        assert!(!run.owner.is_protected(SLOT));
    }
}
