//! Parts that segments lend each other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;
use quota_split::handover::{
    Coordinator, CoordinatorInput, CoordinatorOutput, Epoch, Member, MemberInput, MemberOutput,
    Timing, ToCoordinator, ToMember, Verdict,
};
use quota_split::{
    Call, CallId, Counter, Direction, Document, Lending, Limits, Method, Node, Part, Partition,
    SegmentId, Tree,
};

use crate::cluster::Cluster;

const DELAY: Duration = Duration::from_millis(40);
const EVEN: [(u32, u32); 3] = [(1, 1), (2, 1), (3, 1)];

#[test]
fn a_call_waits_while_a_unit_is_borrowed_from_whoever_has_room() {
    let mut cluster = three(Lending::Hold, 90);
    cluster.fill(1, "T");
    assert_eq!(cluster.used("T"), 30);
    cluster.run(Duration::from_millis(165));
    assert_eq!(cluster.decided.len(), 1, "the one that found it full has waited");
    cluster.decided.clear();
    let (call, verdict) = cluster.call(1, "T");
    assert_eq!(verdict, Verdict::Held);
    assert!(cluster.decided.is_empty());
    cluster.run(Duration::from_millis(165));
    assert!(cluster.decided.iter().any(|(id, verdict)| *id == call && verdict.is_ok()));
    assert_eq!((cluster.used("T"), cluster.held("T")), (32, 90));
}

#[test]
fn a_unit_from_the_pool_takes_one_round_trip() {
    let mut cluster = three(Lending::Hold, 90);
    let calls: Vec<CallId> = (0..2).map(|_| cluster.call(2, "T").0).collect();
    cluster.run(Duration::from_secs(2));
    assert!(cluster.held("T") < 90, "segment 2 has given back what it does not need");
    cluster.fill(1, "T");
    cluster.run(Duration::from_millis(85));
    assert_eq!(cluster.decided.len(), 1);
    assert!(cluster.decided[0].1.is_ok());
    assert!(calls.into_iter().all(|call| cluster.hang_up(2, call)));
}

#[test]
fn a_replay_while_parts_are_lent_never_passes_the_limit() {
    for backwards in [false, true] {
        let mut cluster = three(Lending::Hold, 30);
        let calls = cluster.fill(1, "T");
        cluster.run(Duration::from_secs(3));
        for call in &calls[..calls.len() / 2] {
            cluster.hang_up(1, *call);
        }
        cluster.fill(2, "T");
        cluster.run(Duration::from_secs(3));
        let used = cluster.used("T");

        for _ in 0..50 {
            cluster.replay(backwards);
            assert_eq!(cluster.used("T"), used);
            assert!(cluster.held("T") <= 30, "{:?}", cluster.caps("T"));
            cluster.run(Duration::from_millis(30));
            assert!(cluster.held("T") <= 30, "{:?}", cluster.caps("T"));
        }
    }
}

#[test]
fn nobody_waits_when_everything_is_used_up() {
    let mut cluster = three(Lending::Hold, 9);
    for segment in 1..4 {
        while let (_, Verdict::Admitted(_)) = cluster.call(segment, "T") {}
        cluster.run(Duration::from_millis(400));
    }
    assert_eq!((cluster.used("T"), cluster.held("T")), (9, 9));
    cluster.decided.clear();
    let (_, verdict) = cluster.call(1, "T");
    if verdict == Verdict::Held {
        cluster.run(Duration::from_millis(301));
        assert!(cluster.decided.iter().all(|(_, verdict)| verdict.is_err()));
    }
    let (_, verdict) = cluster.call(1, "T");
    assert!(matches!(verdict, Verdict::Refused(_)), "the hint is fresh: {verdict:?}");
}

/// Ten seconds, and twenty calls a second at each segment: one is tried a second, not one after the other.
#[test]
fn a_flood_of_calls_beyond_a_limit_that_is_used_up_hardly_makes_any_of_them_wait() {
    let mut cluster = three(Lending::Hold, 90);
    for segment in 1..4 {
        while let (_, Verdict::Admitted(_)) = cluster.call(segment, "T") {}
    }
    cluster.run(Duration::from_secs(2));
    assert_eq!((cluster.used("T"), cluster.held("T")), (90, 90));

    let sent = cluster.sent;
    let mut waited = 0;
    for _ in 0..200 {
        for segment in 1..4 {
            waited += u32::from(cluster.call(segment, "T").1 == Verdict::Held);
        }
        cluster.run(Duration::from_millis(50));
    }
    // The hint takes a round trip or two, in which up to eight more calls wait.
    assert!(waited <= 3 * 10 * 5, "{waited} of 600 calls waited");
    let sent = cluster.sent - sent;
    assert!(sent <= 10 * 60, "{sent} messages");
}

/// Its share may be less than what it uses, and a call has just ended there of which the coordinator is
/// still to hear.
#[test]
fn a_call_that_waits_where_one_has_just_ended_is_found_a_unit() {
    let mut cluster = three(Lending::Hold, 90);
    let mut calls = Vec::new();
    while cluster.used("T") < 40 {
        calls.push(cluster.call(1, "T").0);
        cluster.run(Duration::from_millis(400));
    }
    // Others want their parts and have them; then they end their calls, and what is idle is lent again.
    let others: Vec<_> = [2, 3].map(|at| (at, cluster.fill(at, "T"))).into();
    cluster.run(Duration::from_secs(3));
    let (cap, used) = (cluster.caps("T")[0], cluster.used("T"));
    assert!(cap < 40, "{cap} of {used}: it uses more than its share by now");
    for (at, ended) in others {
        for call in ended.into_iter().take(9) {
            cluster.hang_up(at, call);
        }
    }
    cluster.run(Duration::from_secs(1));
    cluster.decided.clear();

    cluster.hang_up(1, calls[0]);
    let (call, verdict) = cluster.call(1, "T");
    assert_eq!(verdict, Verdict::Held);
    cluster.run(Duration::from_millis(301));
    assert!(cluster.decided.iter().any(|(id, verdict)| *id == call && verdict.is_ok()));
}

#[test]
fn a_waiting_call_that_is_given_up_is_not_counted() {
    let mut cluster = three(Lending::Hold, 90);
    cluster.fill(1, "T");
    let (call, _) = cluster.call(1, "T");
    assert!(!cluster.hang_up(1, call));
    cluster.run(Duration::from_secs(1));
    assert!(cluster.decided.iter().all(|(id, _)| *id != call));
}

#[test]
fn who_waits_too_long_is_refused() {
    let mut cluster = three(Lending::Hold, 90);
    cluster.fill(1, "T");
    cluster.reached.clear();
    let (call, verdict) = cluster.call(1, "T");
    assert_eq!(verdict, Verdict::Held);
    cluster.run(Duration::from_millis(301));
    assert!(cluster.decided.iter().any(|(id, verdict)| *id == call && verdict.is_err()));
}

#[test]
fn an_owner_gets_its_part_back_as_the_borrowers_calls_end() {
    let mut cluster = three(Lending::Hold, 90);
    let mut borrowed = Vec::new();
    for _ in 0..80 {
        let (call, _) = cluster.call(1, "T");
        borrowed.push(call);
        cluster.run(Duration::from_millis(400));
    }
    assert!(70 <= cluster.used("T"), "{} borrowed", cluster.used("T"));
    for _ in 0..40 {
        cluster.call(2, "T");
        cluster.run(Duration::from_millis(100));
    }
    for call in borrowed {
        cluster.hang_up(1, call);
        cluster.call(2, "T");
        cluster.run(Duration::from_millis(500));
        assert!(cluster.held("T") <= 90);
    }
    assert!(30 <= cluster.caps("T")[1], "{:?}", cluster.caps("T"));
}

#[test]
fn idle_shares_return_to_where_the_division_has_them() {
    let mut cluster = three(Lending::Tick, 90);
    let call = cluster.call(1, "T").0;
    cluster.run(Duration::from_secs(2));
    assert_eq!(cluster.caps("T"), [3, 30, 30]);
    cluster.hang_up(1, call);
    cluster.run(Duration::from_secs(70));
    assert_eq!(cluster.caps("T"), [30, 30, 30]);
}

#[test]
fn without_waiting_a_refused_call_makes_the_share_grow_for_the_next() {
    let mut cluster = three(Lending::Tick, 90);
    cluster.call(2, "T");
    cluster.run(Duration::from_secs(2));
    cluster.fill(1, "T");
    assert_eq!(cluster.caps("T")[0], 30);
    cluster.run(Duration::from_secs(2));
    assert!(30 < cluster.caps("T")[0]);
    assert!(cluster.decided.is_empty(), "nobody waits");
}

#[test]
fn small_limits_stay_in_the_pool() {
    let mut cluster = three(Lending::Hold, 5);
    assert_eq!(cluster.caps("T"), [0, 0, 0]);
    let mut calls = Vec::new();
    for _ in 0..6 {
        calls.push(cluster.call(3, "T").0);
        cluster.run(Duration::from_millis(200));
    }
    assert_eq!(cluster.used("T"), 5);
    for call in calls {
        cluster.hang_up(3, call);
    }
    cluster.run(Duration::from_secs(3));
    assert_eq!(cluster.held("T"), 0);
    cluster.call(1, "T");
    cluster.run(Duration::from_millis(200));
    assert_eq!(cluster.used("T"), 1);
}

#[test]
fn nothing_is_lent_unless_asked_for_and_frozen_limits_never() {
    let mut cluster = three(Lending::Off, 90);
    cluster.fill(1, "T");
    cluster.run(Duration::from_secs(5));
    assert_eq!((cluster.caps("T"), cluster.decided.len()), (vec![30; 3], 0));

    let frozen = Node { partition: Some(Partition::Frozen), ..node(Lending::Hold, 90) };
    let tree = Tree::new(vec![frozen]).unwrap();
    assert_eq!(tree.lending(tree.find("T").unwrap()), Lending::Off);
}

#[test]
fn refusals_know_what_the_others_use() {
    let mut cluster = three(Lending::Tick, 90);
    for _ in 0..7 {
        cluster.call(2, "T");
    }
    cluster.run(Duration::from_secs(3));
    cluster.fill(1, "T");
    let (_, Verdict::Refused(refusal)) = cluster.call(1, "T") else { panic!("it fits") };
    assert_eq!((refusal.limit, refusal.elsewhere), (90, Some(7)));
}

#[test]
fn refusals_know_what_the_others_use_of_what_is_not_lent() {
    let mut cluster = three(Lending::Off, 90);
    let mut calls: Vec<CallId> = (0..7).map(|_| cluster.call(2, "T").0).collect();
    let elsewhere = |cluster: &mut Cluster| {
        cluster.run(Duration::from_secs(3));
        cluster.fill(1, "T");
        let (_, Verdict::Refused(refusal)) = cluster.call(1, "T") else { panic!("it fits") };
        (refusal.share, refusal.used, refusal.elsewhere)
    };
    assert_eq!(elsewhere(&mut cluster), (30, 30, Some(7)));
    cluster.hang_up(2, calls.swap_remove(3));
    assert_eq!(elsewhere(&mut cluster), (30, 30, Some(6)));

    // Another coordinator learns it anew.
    cluster.lead(&EVEN, &[]);
    assert_eq!(elsewhere(&mut cluster), (30, 30, Some(6)));
    for call in calls {
        cluster.hang_up(2, call);
    }
    assert_eq!(elsewhere(&mut cluster), (30, 30, Some(0)));
    let sent = cluster.sent;
    cluster.run(Duration::from_secs(60));
    assert_eq!(cluster.sent, sent, "nothing is told while nothing changes");
}

#[test]
fn a_reserve_is_kept_for_the_owners_own_calls() {
    let reserve = Some(10);
    let mut cluster = three_with(Node { reserve, ..node(Lending::Hold, 90) });
    for _ in 0..90 {
        cluster.call(1, "T");
        cluster.run(Duration::from_millis(400));
    }

    // A tenth of the 30 calls of each of the others.
    assert_eq!((cluster.used("T"), cluster.caps("T")), (84, vec![84, 3, 3]));
    for _ in 0..3 {
        let (_, verdict) = cluster.call(2, "T");
        assert!(matches!(verdict, Verdict::Admitted(_)), "at once: {verdict:?}");
    }
    cluster.run(Duration::from_secs(2));
    assert!(cluster.held("T") <= 90);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn the_limit_holds_whatever_is_lent_lost_or_divided_anew(
        hold: bool,
        reserve in prop_oneof![Just(0_u8), 0_u8..100],
        limit in 2_u32..20,
        script in vec((0_u8..10, 1_u32..4, 1_u16..600), 1..80),
    ) {
        let lending = if hold { Lending::Hold } else { Lending::Tick };
        let mut cluster = three_with(Node { reserve: Some(reserve), ..node(lending, limit) });
        let mut calls: Vec<(u32, CallId)> = Vec::new();
        for (what, segment, span) in script {
            match what {
                0..=4 => {
                    let (call, _) = cluster.call(segment, "T");
                    calls.push((segment, call));
                }
                5 | 6 if !calls.is_empty() => {
                    let (segment, call) = calls.swap_remove(usize::from(span) % calls.len());
                    cluster.hang_up(segment, call);
                }
                7 => cluster.lose = segment,
                8 => cluster.lead(&[(1, 1), (2, segment), (3, 1)], &[]),
                _ => {}
            }
            prop_assert!(cluster.held("T") <= limit);
            cluster.run(Duration::from_millis(span.into()));
            prop_assert!(cluster.held("T") <= limit);
        }
        for (segment, call) in calls {
            cluster.hang_up(segment, call);
        }
        cluster.run(Duration::from_secs(90));
        prop_assert_eq!(cluster.used("T"), 0);
        prop_assert!(cluster.held("T") <= limit);
    }
}

/// Nodes have other numbers in another document, and some are gone: who waits is found again by name, at
/// its profile or at what is left above it.
#[test]
fn a_call_that_waits_while_the_document_changes_counts_where_it_belongs_or_is_refused() {
    for profile in ["T", "below", "first"] {
        let tenant = |name: &str| Node { name: name.into(), ..node(Lending::Hold, 3) };
        let below = Node { name: "below".into(), parent: Some("T".into()), ..Node::default() };
        let tree = Tree::new(vec![tenant("first"), tenant("second"), below, tenant("T")]).unwrap();
        let mut cluster = Cluster::new(Document::new(1, tree, Method::Dhondt), &[1], DELAY);
        cluster.lead(&[(1, 1)], &[]);
        cluster.run(Duration::from_millis(200));
        let counted = cluster.fill(1, profile);
        let waiting = cluster.members[&1].held_calls().next().unwrap().id;
        cluster.hang_up(1, counted[0]);
        let (waiting_too, verdict) = cluster.call(1, profile);
        assert_eq!((counted.len(), verdict), (3, Verdict::Held), "the first has what was free");

        let tree = Tree::new(vec![node(Lending::Hold, 3)]).unwrap();
        cluster.change(Document::new(2, tree, Method::Dhondt));

        assert!(cluster.decided.iter().any(|(call, verdict)| *call == waiting && verdict.is_ok()));
        let left = profile != "first";
        let why = cluster.decided.iter().find(|(call, _)| *call == waiting_too);
        assert_eq!(why.is_some_and(|(_, verdict)| verdict.is_err()), left, "{profile}");
        assert_eq!(cluster.unknown.contains(&waiting_too), !left, "{profile}");
        assert_eq!(cluster.used("T"), if left { 3 } else { 0 }, "{profile}");
    }
}

/// A grant says again what the one before it said, as long as that is not known to be applied. Whatever is
/// given back in between is undone by it.
#[test]
fn what_a_grant_on_its_way_says_again_is_not_taken_back() {
    let plain = Node { name: "P".into(), lending: None, ..node(Lending::Hold, 4) };
    let tree = Tree::new(vec![node(Lending::Hold, 4), plain]).unwrap();
    let (lent, plain) = (tree.find("T").unwrap(), tree.find("P").unwrap());
    let document = Arc::new(Document::new(1, tree, Method::Dhondt));
    let place = document.place(lent, Counter::Calls).unwrap();
    let mut now = crate::world::now();
    let mut coordinator = Coordinator::new(Timing::WAN, false, Arc::clone(&document));
    let [mut one, mut two] = [1, 2].map(|segment| {
        Member::new(now, SegmentId(segment), Timing::WAN, Arc::clone(&document), None, 7)
    });
    let call = |id, node| Call { id: CallId(id), node, direction: Direction::Inbound };
    for id in 0..3 {
        one.request(now, call(id, plain), true);
    }
    let parts = [1, 2].map(|segment| Part { segment, weight: 1, usual: 1, present: true });
    let epoch = Epoch { term: 1, ..Epoch::default() };
    coordinator.handle_input(now, CoordinatorInput::Lead { epoch, parts: parts.to_vec() });
    for _ in 0..3 {
        for (segment, message) in down(&mut coordinator) {
            let member = if segment == SegmentId(1) { &mut one } else { &mut two };
            member.handle_input(now, MemberInput::Received(message));
        }
        up(now, SegmentId(1), &mut one, &mut coordinator);
        up(now, SegmentId(2), &mut two, &mut coordinator);
    }

    // The first gives a unit back, which the second borrows.
    one.request(now, call(3, lent), false);
    one.release(now, CallId(3));
    now += Timing::WAN.tick;
    one.handle_timeout(now);
    up(now, SegmentId(1), &mut one, &mut coordinator);
    for id in 4..7 {
        two.request(now, call(id, lent), false);
    }
    up(now, SegmentId(2), &mut two, &mut coordinator);
    for (_, message) in down(&mut coordinator).into_iter().filter(|(to, _)| *to == SegmentId(2)) {
        two.handle_input(now, MemberInput::Received(message));
    }
    assert_eq!(two.ledger().view(lent, Counter::Calls).used, 3);

    // Before that is known something else is granted, and on its way while the unit comes back.
    one.release(now, CallId(0));
    one.handle_timeout(now + Timing::WAN.report);
    up(now, SegmentId(1), &mut one, &mut coordinator);
    let late = down(&mut coordinator);
    for id in 4..7 {
        two.release(now, CallId(id));
    }
    now += Timing::WAN.tick;
    two.handle_timeout(now);
    up(now, SegmentId(2), &mut two, &mut coordinator);
    for (_, message) in late.into_iter().filter(|(to, _)| *to == SegmentId(2)) {
        two.handle_input(now, MemberInput::Received(message));
    }
    let share = two.ledger().view(lent, Counter::Calls).share;
    assert!(share <= coordinator.held(SegmentId(2), place), "{share:?} are held");

    // Once it is known to be applied the unit comes back.
    for _ in 0..3 {
        up(now, SegmentId(2), &mut two, &mut coordinator);
        now += Timing::WAN.tick;
        two.handle_timeout(now);
    }
    up(now, SegmentId(2), &mut two, &mut coordinator);
    let share = two.ledger().view(lent, Counter::Calls).share;
    assert_eq!(share, coordinator.held(SegmentId(2), place));
}

fn down(coordinator: &mut Coordinator) -> Vec<(SegmentId, ToMember)> {
    let outputs = std::iter::from_fn(|| coordinator.poll_output());
    outputs
        .filter_map(|output| match output {
            CoordinatorOutput::Send { to, message } => Some((to, message)),
            CoordinatorOutput::Opened(_)
            | CoordinatorOutput::Serves { .. }
            | CoordinatorOutput::Outranked(_)
            | CoordinatorOutput::Drains(_)
            | CoordinatorOutput::Alarm(_)
            | CoordinatorOutput::Ceased(_) => None,
        })
        .collect()
}

fn up(now: Instant, from: SegmentId, member: &mut Member, coordinator: &mut Coordinator) {
    let outputs: Vec<MemberOutput> = std::iter::from_fn(|| member.poll_output()).collect();
    for output in outputs {
        let MemberOutput::Send { message, .. } = output else { continue };
        let message: ToCoordinator = message;
        coordinator.handle_input(now, CoordinatorInput::Received { from, message });
    }
}

/// Three segments of equal weight that have their shares.
fn three(lending: Lending, limit: u32) -> Cluster {
    three_with(node(lending, limit))
}

fn three_with(node: Node) -> Cluster {
    let tree = Tree::new(vec![node]).unwrap();
    let mut cluster = Cluster::new(Document::new(1, tree, Method::Dhondt), &[1, 2, 3], DELAY);
    cluster.lead(&EVEN, &[]);
    cluster.run(Duration::from_millis(200));
    cluster
}

fn node(lending: Lending, limit: u32) -> Node {
    Node {
        name: "T".into(),
        limits: Limits { calls: Some(limit), ..Limits::default() },
        lending: Some(lending),
        ..Node::default()
    }
}
