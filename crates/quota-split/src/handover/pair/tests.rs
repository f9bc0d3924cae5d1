use super::*;
use crate::handover::{Grow, Recall};

use two::{Two, call, call_at, document, prepare, stamp, wide};

mod two;

#[test]
fn a_call_of_either_node_counts_once_at_the_speaker() {
    let mut pair = Two::with_share(2);

    pair.request(0, 1, false);
    pair.request(1, 2, false);
    pair.request(1, 2, false);
    pair.request(0, 3, false);

    assert!(pair.verdicts[&1].is_ok() && pair.verdicts[&2].is_ok());
    assert!(matches!(pair.verdicts[&3], Err(Denial::Full(Refusal { used: 2, share: 2, .. }))));
    assert_eq!(pair.used(0), Some(2));
    pair.release(1, 2);
    pair.release(1, 2);
    assert_eq!(pair.used(0), Some(1));
}

#[test]
fn a_refusal_is_told_where_it_is_counted_whoever_asked() {
    let mut pair = Two::with_share(1);

    for (at, id) in [(0, 1), (1, 2), (0, 3)] {
        pair.request(at, id, false);
    }

    assert_eq!(pair.refused, [0, 0], "by the speaker, for the other's call and its own");
}

#[test]
fn nothing_reaches_the_coordinator_before_the_partner_holds_the_state() {
    let mut pair = Two::with_share(2);
    pair.sent.clear();
    pair.deaf = true;

    pair.hear_coordinator(0, ToMember::Prepare(prepare(2)));
    assert_eq!(pair.sent, []);
    pair.pass(7_000);
    assert_eq!(pair.sent, []);
    pair.pass(2_000);

    assert!(matches!(pair.sent[..], [ToCoordinator::Promise(_)]), "alone in the end");
}

#[test]
fn who_takes_over_counts_what_lives_and_goes_on_with_the_share() {
    let mut pair = Two::with_share(3);
    pair.request(0, 1, false);
    pair.request(1, 2, false);

    pair.die(0);
    pair.live = vec![call(1), call(2)];
    pair.pass(4_000);
    pair.input(1, PairInput::Role(Role::Speaker));

    assert_eq!((pair.used(1), pair.share(1)), (Some(2), Some(3)));
    pair.request(1, 3, false);
    pair.request(1, 4, false);
    assert!(pair.verdicts[&3].is_ok());
    assert!(matches!(pair.verdicts[&4], Err(Denial::Full(_))));
}

#[test]
fn a_copy_that_may_be_old_is_not_trusted() {
    let mut pair = Two::with_share(3);

    pair.unlink();
    pair.pass(8_500);
    pair.live = vec![call(1)];
    pair.input(1, PairInput::Role(Role::Speaker));

    assert_eq!((pair.used(1), pair.share(1)), (Some(1), Some(0)));
    assert_eq!(pair.nodes[1].promised(), Some(stamp(1)), "and no older division is obeyed");
}

#[test]
fn a_call_that_hears_no_speaker_is_refused_by_name_and_never_counted() {
    let mut pair = Two::with_share(3);
    pair.deaf = true;

    pair.request(1, 1, false);
    assert_eq!(pair.verdicts.get(&1), None);
    pair.pass(200);
    pair.deaf = false;
    pair.deliver();

    assert_eq!(pair.verdicts[&1], Err(Denial::Unheard));
    assert_eq!(pair.used(0), Some(0), "the release came behind the question");
    pair.unlink();
    pair.request(1, 2, false);
    pair.request(1, 3, true);
    assert_eq!(pair.verdicts[&2], Err(Denial::Unheard));
    assert!(pair.verdicts[&3].is_ok(), "an emergency call asks nobody");
}

#[test]
fn halves_that_are_named_to_each_other_later_count_together() {
    let mut pair = Two::with_share(3);
    for at in 0..2 {
        pair.input(at, PairInput::Paired(false));
    }
    pair.request(0, 1, false);
    pair.request(1, 2, false);
    assert_eq!(pair.verdicts[&2], Err(Denial::Unheard));

    pair.lives_at[0] = vec![call(1)];
    for at in 0..2 {
        pair.input(at, PairInput::Paired(true));
    }
    pair.link();
    pair.request(1, 3, false);
    assert!(pair.verdicts[&3].is_ok());
    assert_eq!(pair.used(0), Some(2));

    pair.lives_at[1] = vec![call(3)];
    pair.input(1, PairInput::Role(Role::Speaker));
    assert_eq!(pair.share(1), Some(3), "it holds the state too");
}

#[test]
fn a_new_connection_sets_the_counters_right() {
    let mut pair = Two::with_share(3);
    pair.request(1, 1, false);
    pair.request(1, 2, false);

    pair.unlink();
    pair.release(1, 1);
    assert_eq!(pair.used(0), Some(2));
    pair.lives_at[1] = vec![call(2)];
    pair.link();

    assert_eq!(pair.used(0), Some(1));
}

#[test]
fn a_question_that_waits_for_its_answer_is_not_counted_by_the_list() {
    let mut pair = Two::with_share(1);
    pair.request(0, 1, false);
    pair.deaf = true;
    pair.request(1, 2, false);

    pair.lives_at[0] = vec![call(1)];
    pair.input(0, PairInput::Audit);
    pair.deaf = false;
    pair.deliver();

    assert_eq!(pair.used(0), Some(1));
    assert!(matches!(pair.verdicts[&2], Err(Denial::Full(_))));
}

#[test]
fn a_question_that_is_answered_while_the_list_comes_counts() {
    let mut pair = Two::with_share(3);
    let told = |id| vec![Told::new(&document(), call(id))];
    let list = |calls, pending, last| PairMessage::Calls { calls, pending, last };

    pair.input(0, PairInput::Received(list(told(1), true, false)));
    pair.input(0, PairInput::Received(list(told(2), true, false)));
    pair.request(0, 1, false);
    pair.lives_at[0] = Vec::new();
    pair.input(0, PairInput::Received(list(Vec::new(), false, true)));

    assert_eq!(pair.used(0), Some(1), "the first was let in meanwhile, the second waits");
}

#[test]
fn a_list_that_nobody_asked_for_voids_what_was_told_although_another_was_asked_for_before() {
    let mut pair = Two::with_share(3);
    pair.deaf = true;
    pair.input(0, PairInput::Audit);
    pair.input(0, PairInput::Live(Vec::new()));
    pair.mail.clear();
    pair.deaf = false;
    pair.begun = 0;

    let list = PairMessage::Calls { calls: Vec::new(), pending: false, last: true };
    pair.input(0, PairInput::Received(list));

    assert_eq!(pair.begun, 1, "the partner may have counted until now");
}

#[test]
fn who_leaves_hands_its_part_over_and_no_call_is_refused_or_forgotten() {
    let mut pair = Two::with_share(3);
    pair.request(0, 1, false);
    pair.request(1, 2, false);
    pair.lives_at = [vec![call(1)], vec![call(2)]];

    pair.deaf = true;
    pair.input(0, PairInput::Leave);
    pair.request(1, 3, false);
    pair.request(0, 4, false);
    assert_eq!((pair.verdicts.get(&3), pair.verdicts.get(&4)), (None, None), "they wait");
    assert_eq!(pair.used(0), Some(2), "and nothing is let in meanwhile");
    pair.deaf = false;
    pair.deliver();

    assert_eq!((pair.used(0), pair.used(1), pair.share(1)), (None, Some(3), Some(3)));
    assert!(pair.verdicts[&3].is_ok());
    assert!(matches!(pair.verdicts[&4], Err(Denial::Full(Refusal { used: 3, share: 3, .. }))));
    pair.release(0, 1);
    assert_eq!(pair.used(1), Some(2));
}

#[test]
fn who_leaves_goes_on_while_nobody_takes_its_part() {
    let mut pair = Two::with_share(3);
    pair.loses_offers = true;
    pair.input(0, PairInput::Leave);
    pair.request(0, 1, false);
    assert_eq!(pair.verdicts.get(&1), None, "it waits");
    pair.input(0, PairInput::Received(PairMessage::Declined));
    assert!(pair.verdicts[&1].is_ok(), "it was declined");

    pair.pass(1_000);
    pair.request(0, 2, false);
    assert_eq!(pair.verdicts.get(&2), None, "it tries again");
    pair.pass(1_000);
    assert!(pair.verdicts[&2].is_ok(), "nobody answers");

    pair.loses_offers = false;
    pair.nodes[1].leaves = true;
    pair.pass(2_000);
    assert!(pair.used(0).is_some(), "who leaves too declines");
    pair.nodes[1].leaves = false;
    pair.pass(2_000);
    assert_eq!(pair.used(1), Some(0), "who can takes it in the end");
}

/// What an election says of it can be lost, and is told again a second or two later.
#[test]
fn who_has_handed_its_part_over_lets_nothing_in_before_it_hears_who_speaks() {
    let mut pair = Two::with_share(3);
    pair.uncertain = true;
    pair.input(0, PairInput::Leave);
    assert!(pair.nodes.iter().all(|node| node.member().is_some()), "both speak");

    pair.request(0, 1, false);
    pair.pass(2_500);
    assert_eq!(pair.verdicts.get(&1), None, "it waits");
    pair.request(1, 2, false);
    assert!(pair.verdicts[&2].is_ok());

    pair.lives_at[1] = vec![call(2)];
    pair.input(0, PairInput::Role(Role::Partner));
    assert!(pair.verdicts[&1].is_ok());
    assert_eq!((pair.used(0), pair.used(1)), (None, Some(2)));
}

#[test]
fn no_more_than_so_many_wait_to_hear_who_goes_on() {
    let mut pair = Two::with_share(3);
    pair.deaf = true;
    pair.input(0, PairInput::Leave);
    let most = u64::try_from(speaker::ASKS_MAX).unwrap();
    for id in 0..=most {
        pair.request(0, id, false);
    }
    assert_eq!(pair.verdicts, [(most, Err(Denial::Unheard))].into());

    pair.release(0, 0);
    pair.request(0, most + 1, false);
    assert_eq!(pair.verdicts.len(), 1, "there is room again");
}

/// The partner says each second that it speaks, and no election tells this node.
#[test]
fn who_asks_a_node_that_has_handed_its_part_over_waits_only_so_long() {
    let mut pair = Two::with_share(3);
    pair.uncertain = true;
    pair.input(0, PairInput::Leave);
    (1..=3).for_each(|id| pair.request(0, id, false));
    pair.release(0, 2);
    pair.pass(1_000);
    pair.request(0, 4, false);
    pair.request(0, 5, true);
    assert_eq!(pair.verdicts.len(), 1, "an exempt one does not wait");
    pair.pass(6_999);
    assert_eq!(pair.verdicts.len(), 1);

    pair.pass(1);
    assert_eq!(pair.verdicts[&1], Err(Denial::Unheard));
    assert_eq!(pair.verdicts[&3], Err(Denial::Unheard));
    assert_eq!(pair.verdicts.len(), 3);
    pair.pass(1_000);
    assert_eq!(pair.verdicts[&4], Err(Denial::Unheard));
}

#[test]
fn until_a_node_knows_what_lives_so_many_calls_wait_and_no_partner_takes_their_room() {
    let mut pair = Two::with_share(3);
    let serial = pair.nodes[1].copy.as_ref().unwrap().serial;
    pair.nodes[1].handle_input(pair.now, PairInput::Received(PairMessage::HandOver { serial }));
    pair.deaf = true;
    pair.input(1, PairInput::Role(Role::Speaker));
    let most = u64::try_from(speaker::ASKS_MAX).unwrap();
    for id in 0..=most {
        let ask = PairMessage::Ask { call: Told::new(&document(), call(id)), exempt: false };
        pair.nodes[1].handle_input(pair.now, PairInput::Received(ask));
    }
    let own = 2 * most;
    (own..=own + most).for_each(|id| pair.nodes[1].request(pair.now, call(id), false));
    pair.request(1, own + most + 1, true);

    let decided: Vec<_> = pair.verdicts.iter().map(|(id, it)| (*id, it.is_ok())).collect();
    assert_eq!(decided, [(own + most, false), (own + most + 1, true)]);
}

/// What is stored with the partner is old by then, so that the part cannot be handed over again.
#[test]
fn who_took_its_part_back_lets_nothing_in_once_the_partner_took_it_up_all_the_same() {
    let mut pair = Two::with_share(3);
    (pair.uncertain, pair.deaf) = (true, true);
    pair.input(0, PairInput::Leave);
    pair.pass(1_200);
    let grow = Grow { stamp: stamp(1), seq: 2, rest: false, cells: vec![(0, 4)] };
    pair.hear_coordinator(0, ToMember::Grow(grow));
    pair.pass(1_200);
    pair.request(0, 1, false);
    assert!(pair.verdicts[&1].is_ok(), "nobody is known to speak in its place");

    pair.deaf = false;
    pair.deliver();
    assert!(pair.nodes.iter().all(|node| node.member().is_some()), "both speak");
    pair.request(0, 2, false);
    pair.pass(2_500);
    assert_eq!(pair.verdicts.get(&2), None, "it waits");
    pair.input(0, PairInput::Role(Role::Partner));
    assert!(pair.verdicts[&2].is_ok());
}

#[test]
fn who_takes_a_part_over_and_hears_no_list_counts_what_it_holds_copies_of() {
    let mut pair = Two::with_share(3);
    pair.request(0, 1, false);
    pair.request(1, 2, false);
    pair.live = vec![call(1), call(2)];
    let serial = pair.nodes[1].copy.as_ref().unwrap().serial;
    pair.nodes[1].handle_input(pair.now, PairInput::Received(PairMessage::HandOver { serial }));
    pair.deaf = true;
    pair.input(1, PairInput::Role(Role::Speaker));
    pair.request(1, 3, false);
    assert_eq!(pair.verdicts.get(&3), None, "nothing is counted yet");

    pair.die(0);

    assert_eq!(pair.used(1), Some(3));
}

#[test]
fn calls_of_a_dead_partner_count_for_a_minute_however_often_they_are_counted_anew() {
    let mut pair = Two::with_share(3);
    pair.request(0, 1, false);
    pair.request(1, 2, false);
    (pair.lives_at, pair.live) = ([vec![call(1)], vec![call(2)]], vec![call(1), call(2)]);

    // Its usual audit is due a second after the death, an operator asks for another.
    pair.pass(59_000);
    pair.die(1);
    pair.pass(2_000);
    assert_eq!(pair.used(0), Some(2));
    pair.input(0, PairInput::Audit);
    assert_eq!(pair.used(0), Some(2));

    pair.pass(58_500);
    assert_eq!(pair.used(0), Some(1), "what nobody has taken over by then is gone");
}

#[test]
fn calls_found_beyond_the_share_cost_a_new_round() {
    let mut pair = Two::with_share(1);
    pair.sent.clear();

    pair.lives_at = [vec![call(1)], vec![call(2), call(3)]];
    pair.input(0, PairInput::Audit);

    assert_eq!(pair.used(0), Some(3));
    let refuse = ToCoordinator::Refuse { stamp: stamp(1), promised: stamp(1) };
    assert!(pair.sent.contains(&refuse), "{:?}", pair.sent);
}

/// Halves that were apart each counted what they let in. In one island again only one of them speaks, and
/// hears of the other's calls once the link is back.
#[test]
fn who_spoke_alone_promises_nothing_before_it_knows_the_calls_of_a_partner_that_is_back() {
    let mut pair = Two::with_share(3);
    pair.unlink();
    pair.input(0, PairInput::Other { linked: false, present: false });
    pair.hear_coordinator(0, ToMember::Prepare(prepare(2)));
    assert!(
        matches!(pair.sent.last(), Some(ToCoordinator::Promise(_))),
        "alone it waits for nobody"
    );
    pair.sent.clear();

    pair.input(0, PairInput::Other { linked: false, present: true });
    pair.hear_coordinator(0, ToMember::Prepare(prepare(3)));
    pair.pass(4_000);
    assert_eq!(pair.sent, []);
    pair.lives_at[1] = vec![call(1)];
    pair.link();

    assert!(!pair.sent.is_empty());
    assert_eq!(pair.used(0), Some(1));
}

#[test]
fn a_list_of_calls_is_cut_by_what_it_takes_and_loses_none() {
    let mut pair = Two::with_share(3);
    pair.nodes[1].handle_input(pair.now, PairInput::Live((0..10_000).map(call).collect()));

    let mut listed = Vec::new();
    let mut lists = 0;
    while let Some(PairOutput::Partner(PairMessage::Calls { calls, last, .. })) =
        pair.nodes[1].poll_output()
    {
        assert!(calls.iter().map(Told::len_max).sum::<usize>() <= TOLD_LEN_MAX);
        assert_eq!(calls.is_empty(), last);
        lists += 1;
        listed.extend(calls.into_iter().map(|told| told.call));
    }

    assert_eq!(listed, (0..10_000).collect::<Vec<u64>>());
    assert!(4 < lists, "{lists}");
}

#[test]
fn what_waits_for_an_answer_is_numbered_as_the_new_document_does() {
    let mut pair = Two::with_share(3);
    let wide = wide();
    for at in 0..2 {
        pair.input(at, PairInput::Document(Arc::clone(&wide)));
    }
    pair.deaf = true;
    for (id, name) in [(1, "t"), (2, "first")] {
        pair.nodes[1].request(pair.now, call_at(&wide, id, name), false);
    }
    pair.input(1, PairInput::Document(document()));
    assert_eq!(pair.verdicts.get(&2), Some(&Err(Denial::Unknown)), "its tenant is gone");
    pair.input(1, PairInput::Received(PairMessage::List));
    pair.deaf = false;
    pair.deliver();

    pair.input(0, PairInput::Document(document()));
    assert_eq!((pair.verdicts[&1].is_ok(), pair.used(0)), (true, Some(1)));
}

#[test]
fn whoever_asks_before_the_speaker_knows_what_lives_is_numbered_as_a_new_document_does() {
    let wide = wide();
    let mut pair = Two::with_share(3);
    pair.input(1, PairInput::Document(Arc::clone(&wide)));
    let node = &mut pair.nodes[1];
    node.handle_input(pair.now, PairInput::Role(Role::Speaker));
    for (id, name) in [(1, "t"), (2, "first")] {
        node.request(pair.now, call_at(&wide, id, name), false);
    }
    node.handle_input(pair.now, PairInput::Document(document()));
    node.handle_input(pair.now, PairInput::Live(Vec::new()));
    pair.drain();

    assert_eq!(pair.verdicts[&2], Err(Denial::Unknown));
    assert!(pair.verdicts[&1].is_ok(), "with the share of which it has a copy");
}

#[test]
fn the_partner_is_sent_a_state_that_changed_and_none_with_a_report_alone() {
    let mut pair = Two::with_share(2);
    let state = |pair: &Two| pair.nodes[1].copy.as_ref().unwrap().serial;
    let before = state(&pair);
    pair.sent.clear();

    for id in 0..20 {
        pair.request(0, id, false);
        pair.pass(1_500);
        pair.release(0, id);
    }
    assert!(15 < pair.sent.len(), "{:?}", pair.sent);
    assert_eq!(state(&pair), before);

    let grow = Grow { stamp: stamp(1), seq: 2, rest: false, cells: vec![(0, 3)] };
    pair.hear_coordinator(0, ToMember::Grow(grow));
    assert_eq!(state(&pair), before + 1);
}

/// With one counter of a thousand moving, nobody wants to be told the others.
#[test]
fn a_partner_is_told_what_has_changed_and_holds_all_that_there_is() {
    let mut pair = Two::with_share(1);
    let grow = |seq| Grow { stamp: stamp(1), seq, rest: false, cells: vec![(0, seq)] };
    let state = |pair: &Two| pair.nodes[0].member().unwrap().state();
    let copy = |pair: &Two| pair.nodes[1].copy.as_ref().unwrap().state.clone();
    pair.whole = 0;
    for seq in 2..8 {
        pair.hear_coordinator(0, ToMember::Grow(grow(seq)));
        let recall = Recall { stamp: stamp(1), counter: 0, cap: seq - 1, drain: true };
        pair.hear_coordinator(0, ToMember::Recall(recall));
        assert_eq!((copy(&pair), pair.share(0)), (state(&pair), Some(seq - 1)));
    }
    assert_eq!(pair.whole, 0);

    // One that is lost is missed by the next one.
    pair.deaf = true;
    pair.hear_coordinator(0, ToMember::Grow(grow(8)));
    pair.mail.clear();
    pair.deaf = false;
    pair.hear_coordinator(0, ToMember::Grow(grow(9)));
    assert_eq!((copy(&pair), pair.whole), (state(&pair), 1));
    pair.hear_coordinator(0, ToMember::Grow(grow(10)));
    assert_eq!((copy(&pair), pair.whole), (state(&pair), 1));

    // So is the last one, by the next beat; and another division is told whole.
    pair.deaf = true;
    pair.hear_coordinator(
        0,
        ToMember::Recall(Recall { stamp: stamp(1), counter: 0, cap: 2, drain: true }),
    );
    pair.mail.clear();
    pair.deaf = false;
    pair.pass(2_000);
    assert_eq!((copy(&pair), pair.whole), (state(&pair), 2));
    pair.hear_coordinator(0, ToMember::Prepare(prepare(2)));
    assert_eq!((copy(&pair), pair.whole), (state(&pair), 3));
}

#[test]
fn a_partner_that_reads_no_changes_is_sent_whole_states_until_the_next_connection() {
    let mut pair = Two::with_share(1);
    let grow = |seq| Grow { stamp: stamp(1), seq, rest: false, cells: vec![(0, seq)] };
    let is_held = |pair: &Two| {
        let state = pair.nodes[0].member().unwrap().state();
        pair.nodes[1].copy.as_ref().unwrap().state == state
    };
    pair.unlink();
    pair.loses_changes = true;
    pair.link();
    pair.hear_coordinator(0, ToMember::Grow(grow(2)));
    assert!(!is_held(&pair), "until the next beat");
    pair.pass(1_000);
    assert!(is_held(&pair));

    pair.whole = 0;
    for seq in 3..6 {
        pair.hear_coordinator(0, ToMember::Grow(grow(seq)));
        assert!(is_held(&pair), "at once");
    }
    assert_eq!(pair.whole, 3);

    pair.unlink();
    pair.loses_changes = false;
    pair.link();
    pair.hear_coordinator(0, ToMember::Grow(grow(6)));
    assert!(is_held(&pair));
    assert_eq!(pair.whole, 4, "the new connection begins with one");
}

#[test]
fn who_leaves_and_whose_partner_has_no_copy_hands_its_part_over_later() {
    let mut pair = Two::with_share(3);
    pair.nodes[1].copy = None;

    pair.input(0, PairInput::Leave);
    pair.request(0, 1, false);
    assert!(pair.verdicts[&1].is_ok(), "it goes on");
    pair.lives_at[0] = vec![call(1)];
    pair.pass(2_000);

    assert_eq!((pair.used(0), pair.used(1), pair.share(1)), (None, Some(1), Some(3)));
    assert!(!pair.sent.contains(&ToCoordinator::Drains { stamp: stamp(1) }));
}

#[test]
fn a_segment_whose_nodes_all_leave_says_that_it_takes_no_new_calls() {
    let drains = |pair: &mut Two| {
        pair.pass(100);
        pair.sent.contains(&ToCoordinator::Drains { stamp: stamp(1) })
    };
    let mut pair = Two::with_share(3);
    pair.input(0, PairInput::Leave);
    assert!(!drains(&mut pair), "the other goes on");

    let mut pair = Two::with_share(3);
    pair.input(1, PairInput::Leave);
    pair.input(0, PairInput::Leave);
    assert!(drains(&mut pair), "the other leaves too");

    let mut pair = Two::with_share(3);
    pair.die(1);
    assert!(!drains(&mut pair));
    pair.input(0, PairInput::Leave);
    assert!(drains(&mut pair), "there is no other");
}
