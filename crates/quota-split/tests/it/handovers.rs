//! Shares that move between segments.

use std::sync::Arc;
use std::time::Duration;

use quota_split::handover::{
    Alarm, CoordinatorInput, Epoch, Grow, Member, MemberInput, Stamp, Timing, ToMember, Verdict,
};
use quota_split::{
    Call, CallId, Direction, Document, Full, Lending, Limits, Method, Node, Part, Partition,
    SegmentId, Tree,
};

use crate::cluster::Cluster;

const DELAY: Duration = Duration::from_millis(40);
const WEIGHTS: [(u32, u32); 3] = [(1, 300), (2, 100), (3, 50)];
const EVEN: [(u32, u32); 3] = [(1, 1), (2, 1), (3, 1)];

#[test]
fn every_segment_grows_to_the_documents_share() {
    let mut cluster = three(&[("T1", 100), ("T2", 500), ("T2.2.1", 20)]);
    cluster.lead(&WEIGHTS, &[]);
    assert_eq!(cluster.caps("T1"), [0, 0, 0]);
    cluster.run(Duration::from_secs(1));
    assert_eq!(cluster.caps("T1"), [67, 22, 11]);
    assert_eq!(cluster.caps("T2"), [334, 111, 55]);
    assert_eq!(cluster.caps("T2.2.1"), [14, 4, 2]);

    cluster.lead(&WEIGHTS, &[3]);
    cluster.reached = vec![1, 2];
    cluster.run(Duration::from_secs(1));
    assert_eq!(cluster.caps("T1")[..2], [75, 25]);
    assert!(cluster.alarms.is_empty() && cluster.outranked.is_empty());
}

#[test]
fn who_joins_a_full_cluster_gets_its_share_as_calls_end() {
    let mut cluster = three(&[("T1", 100)]);
    cluster.lead(&EVEN, &[3]);
    cluster.run(Duration::from_secs(1));
    let calls = [cluster.fill(1, "T1"), cluster.fill(2, "T1")];
    assert_eq!(cluster.caps("T1"), [50, 50, 0]);

    cluster.lead(&EVEN, &[]);
    cluster.run(Duration::from_secs(1));
    assert_eq!((cluster.caps("T1"), cluster.used("T1")), (vec![34, 33, 0], 100));
    for (count, (first, second)) in calls[0].iter().zip(&calls[1]).enumerate() {
        assert!(cluster.hang_up(1, *first) && cluster.hang_up(2, *second));
        cluster.run(Duration::from_millis(300));
        assert!(cluster.held("T1") <= 100, "after {count} pairs");
        if count == 7 {
            assert_eq!(cluster.caps("T1"), [34, 33, 16], "what is free so far");
        }
    }
    assert_eq!(cluster.caps("T1"), [34, 33, 33]);
}

#[test]
fn a_call_beyond_the_limit_does_not_come_back_as_a_cap_when_it_ends() {
    let mut cluster = three(&[("T1", 30)]);
    cluster.lead(&EVEN, &[3]);
    cluster.run(Duration::from_secs(1));
    cluster.fill(1, "T1");
    cluster.fill(2, "T1");
    let node = cluster.document.tree().find("T1").unwrap();
    let (id, direction) = (CallId(1 << 40), Direction::Inbound);
    let emergency = Call { id, node, direction };
    let now = cluster.now;
    cluster.members.get_mut(&3).unwrap().request(now, emergency, true);

    cluster.lead(&EVEN, &[]);
    cluster.run(Duration::from_secs(1));
    assert_eq!((cluster.caps("T1"), cluster.used("T1")), (vec![10, 10, 0], 31));
    assert!(cluster.hang_up(3, id));
    cluster.run(Duration::from_secs(1));

    assert_eq!(cluster.fill(3, "T1").len(), 0, "30 calls live already");
}

#[test]
fn a_grant_of_an_older_division_changes_nothing() {
    let mut cluster = three(&[("T1", 100)]);
    cluster.lead(&EVEN, &[3]);
    cluster.run(Duration::from_secs(1));
    let older = cluster.coordinator.stamp().unwrap();
    cluster.lead(&EVEN, &[]);
    cluster.run(Duration::from_secs(1));
    let now = cluster.now;
    let stamp = cluster.coordinator.stamp().unwrap();
    assert!(older < stamp && older.epoch != stamp.epoch);

    let newer = Stamp { epoch: Epoch { term: stamp.epoch.term + 1, ..stamp.epoch }, ..stamp };
    for stamp in [older, Stamp { round: stamp.round + 1, ..stamp }, newer] {
        let grow = Grow { stamp, seq: 99, rest: true, cells: vec![(0, 100)] };
        let message = MemberInput::Received(ToMember::Grow(grow));
        cluster.members.get_mut(&1).unwrap().handle_input(now, message);
        cluster.run(Duration::from_secs(1));
        assert_eq!(cluster.caps("T1"), [34, 33, 33], "{stamp:?}");
    }
}

#[test]
fn eager_growth_passes_the_limit_by_what_is_over_used() {
    let mut cluster = Cluster::with(document(&[("T1", 100)]), &[1, 2, 3], DELAY, true);
    cluster.lead(&EVEN, &[3]);
    cluster.run(Duration::from_secs(1));
    cluster.fill(1, "T1");
    cluster.fill(2, "T1");
    cluster.lead(&EVEN, &[]);
    cluster.run(Duration::from_secs(1));
    assert_eq!(cluster.caps("T1"), [34, 33, 33]);
    assert_eq!(cluster.held("T1"), 133);
}

#[test]
fn nothing_grows_before_the_last_promise() {
    let mut cluster = three(&[("T1", 90)]);
    cluster.reached = vec![1, 2];
    cluster.lead(&EVEN, &[]);
    cluster.run(Duration::from_secs(20));
    assert_eq!(cluster.caps("T1"), [0, 0, 0]);
    cluster.reached = vec![1, 2, 3];
    cluster.run(Duration::from_secs(3));
    assert_eq!(cluster.caps("T1"), [30, 30, 30]);
}

#[test]
fn whatever_message_is_lost_is_made_good() {
    for lost in 0..9 {
        let mut cluster = three(&[("T1", 90)]);
        cluster.lead(&EVEN, &[]);
        for _ in 0..lost {
            if let Some(at) = cluster.next_at() {
                cluster.run(at - cluster.now);
            }
        }
        cluster.lose = 3;
        cluster.run(Duration::from_secs(5));
        assert_eq!(cluster.caps("T1"), [30, 30, 30], "after {lost}");
    }
}

#[test]
fn a_lost_report_is_repeated_until_it_is_heard() {
    let mut cluster = three(&[("T1", 4)]);
    cluster.lead(&[(1, 1), (2, 1)], &[2]);
    cluster.run(Duration::from_secs(1));
    let calls = cluster.fill(1, "T1");
    cluster.lead(&[(1, 1), (2, 1)], &[]);
    cluster.run(Duration::from_secs(1));
    assert_eq!(cluster.caps("T1"), [2, 0, 0]);
    cluster.lose = 2;
    for call in calls {
        cluster.hang_up(1, call);
    }
    cluster.run(Duration::from_secs(5));
    assert_eq!(cluster.caps("T1"), [2, 2, 0]);
}

#[test]
fn a_lost_word_that_a_division_holds_no_more_is_repeated_until_another_comes() {
    let mut cluster = three(&[("T1", 90)]);
    cluster.lead(&EVEN, &[]);
    cluster.run(Duration::from_secs(1));
    let newer = Arc::new(with(Partition::Full, &[("T1", 60)], 2));
    cluster.lose = 1;
    let member = cluster.members.get_mut(&3).unwrap();
    member.handle_input(cluster.now, MemberInput::Document(newer));
    cluster.drain();
    cluster.run(Duration::from_secs(3));
    assert_eq!(cluster.members[&3].target(0), Some(30), "in words, of the document of all others");

    let node = cluster.document.tree().find("T1").unwrap();
    let call = |id| Call { id: CallId(1000 + id), node, direction: Direction::Inbound };
    let member = cluster.members.get_mut(&3).unwrap();
    member.audit(cluster.now, (0..50_u64).map(call));
    cluster.lose = 2;
    cluster.drain();
    cluster.run(Duration::from_secs(3));
    assert_eq!(cluster.coordinator.held(SegmentId(3), 0), Some(50), "found, and told of");
    let stamp = cluster.coordinator.stamp();
    cluster.run(Duration::from_secs(10));
    assert_eq!(cluster.coordinator.stamp(), stamp, "and it is at rest");
}

#[test]
fn a_changed_limit_shrinks_before_it_grows_and_drops_no_call() {
    let mut cluster = three(&[("T1", 90), ("T2", 10)]);
    cluster.lead(&EVEN, &[]);
    cluster.run(Duration::from_secs(1));
    cluster.fill(1, "T1");

    let changed = Arc::new(document(&[("T2", 30), ("T1", 30), ("T3", 6)]));
    cluster.document = changed.clone();
    for member in cluster.members.values_mut() {
        member.handle_input(cluster.now, MemberInput::Document(changed.clone()));
    }
    let input = CoordinatorInput::Document { document: changed, eager: false };
    cluster.coordinator.handle_input(cluster.now, input);
    cluster.drain();
    cluster.run(Duration::from_secs(1));
    assert_eq!(cluster.caps("T1"), [10, 10, 10]);
    assert_eq!(cluster.used("T1"), 30, "all at segment 1, which had 30");
    assert_eq!((cluster.caps("T2"), cluster.caps("T3")), (vec![10; 3], vec![2; 3]));
    assert!(cluster.alarms.is_empty());
}

#[test]
fn a_member_with_another_document_is_told_its_shares_in_words() {
    let mut cluster = three(&[("T1", 90), ("T2", 10)]);
    let stale = Arc::new(document(&[("T2", 70), ("T1", 9), ("old", 6)]));
    let stranger = cluster.members.get_mut(&3).unwrap();
    stranger.handle_input(cluster.now, MemberInput::Document(stale));
    cluster.lead(&EVEN, &[]);
    cluster.run(Duration::from_secs(2));
    assert_eq!(cluster.caps("T1"), [30, 30, 30]);
    assert_eq!(cluster.caps("T2"), [4, 3, 3]);
    cluster.run(Duration::from_secs(4));
    assert_eq!(cluster.alarms, [Alarm::DocumentDiffers(SegmentId(3))]);
}

/// Nobody has a new document at the same moment as all others.
#[test]
fn only_a_document_that_goes_on_to_differ_is_told_of_and_each_time_that_one_does() {
    let mut cluster = three(&[("T1", 90)]);
    cluster.lead(&EVEN, &[]);
    cluster.run(Duration::from_secs(1));
    let versions = [2, 3].map(|version| Arc::new(with(Partition::Full, &[("T1", 60)], version)));
    let coordinator = |cluster: &mut Cluster, version: usize| {
        let document = Arc::clone(&versions[version]);
        let input = CoordinatorInput::Document { document, eager: false };
        cluster.coordinator.handle_input(cluster.now, input);
        cluster.drain();
    };
    let member = |cluster: &mut Cluster, id: u32, version: usize| {
        let document = MemberInput::Document(Arc::clone(&versions[version]));
        let now = cluster.now;
        cluster.members.get_mut(&id).unwrap().handle_input(now, document);
        cluster.drain();
    };
    for first in [1, 3] {
        member(&mut cluster, first, 0);
        cluster.run(Duration::from_secs(1));
    }
    coordinator(&mut cluster, 0);
    cluster.run(Duration::from_secs(1));
    member(&mut cluster, 2, 0);
    cluster.run(Duration::from_secs(30));
    assert_eq!((cluster.caps("T1"), &*cluster.alarms), (vec![20; 3], &[][..]));

    for id in [1, 2] {
        member(&mut cluster, id, 1);
    }
    coordinator(&mut cluster, 1);
    cluster.run(Duration::from_secs(10));
    assert_eq!(cluster.alarms, [Alarm::DocumentDiffers(SegmentId(3))]);
    member(&mut cluster, 3, 1);
    cluster.run(Duration::from_secs(10));
    assert_eq!(cluster.alarms, [], "it has ceased");
    member(&mut cluster, 3, 0);
    cluster.run(Duration::from_secs(10));
    assert_eq!(cluster.alarms, [Alarm::DocumentDiffers(SegmentId(3))]);
}

#[test]
fn a_new_life_takes_no_grant_of_the_last_one_and_gets_a_round_of_its_own() {
    let mut cluster = three(&[("T1", 90)]);
    cluster.lead(&EVEN, &[]);
    cluster.run(Duration::from_secs(1));
    let before = cluster.coordinator.stamp().unwrap();
    cluster.restart(3);
    cluster.coordinator.handle_input(
        cluster.now,
        CoordinatorInput::Lead { epoch: before.epoch, parts: parts(&EVEN) },
    );
    cluster.drain();
    cluster.run(Duration::from_secs(1));
    assert_eq!(cluster.caps("T1"), [30, 30, 30]);
    assert!(before < cluster.coordinator.stamp().unwrap());
}

#[test]
fn a_partner_goes_on_with_the_share_and_the_calls() {
    let mut cluster = three(&[("T1", 90)]);
    cluster.lead(&EVEN, &[]);
    cluster.run(Duration::from_secs(1));
    let calls = cluster.fill(3, "T1");
    let state = cluster.members[&3].state();
    let live: Vec<Call> =
        calls.iter().filter_map(|call| cluster.members[&3].ledger().call(*call)).collect();

    let mut partner =
        Member::new(cluster.now, SegmentId(3), Timing::WAN, cluster.document.clone(), None, 9);
    assert!(partner.take_over(cluster.now, &state, live));
    // It may be told what lives while it handles a timeout, which is never due again.
    assert!(partner.poll_timeout().is_none_or(|due| cluster.now < due));
    cluster.members.insert(3, partner);
    assert_eq!((cluster.caps("T1"), cluster.used("T1")), (vec![30; 3], 30));
    cluster.run(Duration::from_secs(1));
    assert_eq!(cluster.caps("T1"), [30, 30, 30], "nothing is divided anew");
    assert!(cluster.hang_up(3, calls[0]) && !cluster.hang_up(3, calls[0]));

    let other = Arc::new(document(&[("T1", 80)]));
    let mut stranger = Member::new(cluster.now, SegmentId(3), Timing::WAN, other, None, 9);
    assert!(!stranger.take_over(cluster.now, &state, []));
    assert_eq!(stranger.promised(), cluster.members[&3].promised());
}

#[test]
fn a_coordinator_that_is_outranked_says_so_and_moves_nothing() {
    let mut cluster = three(&[("T1", 90)]);
    cluster.lead(&EVEN, &[]);
    cluster.lead(&EVEN, &[]);
    cluster.run(Duration::from_secs(1));
    let stale = Epoch { term: 1, ..Epoch::default() };
    let input = CoordinatorInput::Lead { epoch: stale, parts: parts(&[(1, 9), (2, 1), (3, 1)]) };
    cluster.coordinator.handle_input(cluster.now, input);
    cluster.drain();
    cluster.run(Duration::from_millis(100));
    assert_eq!(cluster.caps("T1"), [30, 30, 30]);
    assert_eq!(cluster.outranked, vec![Epoch { term: 2, ..Epoch::default() }; 3]);
}

#[test]
fn a_replay_of_everything_that_ever_came_changes_no_counter() {
    for backwards in [false, true] {
        let mut cluster = three(&[("T1", 90), ("T2", 7)]);
        cluster.lead(&EVEN, &[3]);
        cluster.run(Duration::from_secs(1));
        let calls = cluster.fill(1, "T1");
        cluster.lead(&WEIGHTS, &[]);
        cluster.run(Duration::from_secs(1));
        for call in &calls[..20] {
            cluster.hang_up(1, *call);
            cluster.run(Duration::from_millis(100));
        }
        cluster.lead(&EVEN, &[]);
        cluster.run(Duration::from_secs(2));
        let counters =
            |cluster: &Cluster| ["T1", "T2"].map(|node| (cluster.caps(node), cluster.used(node)));
        let before = counters(&cluster);
        assert_eq!(before[0], (vec![30, 30, 30], 25));

        assert!(30 < cluster.replay(backwards));

        assert_eq!(counters(&cluster), before);
        cluster.run(Duration::from_secs(5));
        assert_eq!(counters(&cluster), before);
        assert_eq!((&cluster.alarms[..], &cluster.outranked[..]), (&[][..], &[][..]));
    }
}

#[test]
fn weights_of_zero_get_equal_parts_and_an_alarm() {
    let mut cluster = three(&[("T1", 9)]);
    cluster.lead(&[(1, 0), (2, 0), (3, 0)], &[]);
    cluster.run(Duration::from_secs(1));
    assert_eq!(cluster.caps("T1"), [3, 3, 3]);
    assert_eq!(cluster.alarms, [Alarm::WeightsZero]);
}

#[test]
fn nobody_is_no_member_of_weight_zero() {
    let mut cluster = three(&[("T1", 9)]);
    cluster.lead(&[], &[]);
    cluster.run(Duration::from_secs(1));
    assert_eq!(cluster.alarms, []);
}

#[test]
fn a_cold_segment_gets_a_share_while_it_has_a_weight() {
    let cold = |weight, third_away: bool| {
        let mut parts = parts(&WEIGHTS);
        parts[2].present = !third_away;
        parts.push(Part { segment: 4, weight, usual: 0, present: true });
        parts
    };
    let mut cluster = Cluster::new(document(&[("T1", 100)]), &[1, 2, 3, 4], DELAY);
    cluster.lead_parts(cold(0, false));
    cluster.run(Duration::from_secs(1));
    assert_eq!(cluster.caps("T1"), [67, 22, 11, 0]);
    cluster.reached = vec![1, 2, 4];
    cluster.lead_parts(cold(100, true));
    cluster.run(Duration::from_secs(1));
    assert_eq!((cluster.caps("T1")[0], cluster.caps("T1")[1], cluster.caps("T1")[3]), (60, 20, 20));
    cluster.reached = vec![1, 2, 3, 4];
    cluster.lead_parts(cold(0, false));
    cluster.run(Duration::from_secs(1));
    assert_eq!(cluster.caps("T1"), [67, 22, 11, 0]);
}

#[test]
fn a_member_that_takes_no_new_calls_says_so_until_a_division_gives_it_no_weight() {
    let mut cluster = three(&[("T1", 90)]);
    cluster.lead(&EVEN, &[]);
    cluster.run(Duration::from_secs(1));
    let now = cluster.now;
    cluster.lose = 1;
    cluster.members.get_mut(&1).unwrap().handle_input(now, MemberInput::Drain);
    cluster.drain();
    cluster.run(Duration::from_secs(1));
    assert_eq!(cluster.drains, [0; 0], "it was lost");
    cluster.run(Duration::from_millis(200));
    assert_eq!(cluster.drains, [1]);

    let mut without = parts(&EVEN);
    without[0].weight = 0;
    cluster.hand(without);
    cluster.run(Duration::from_secs(5));
    assert_eq!((cluster.caps("T1"), &cluster.drains[..]), (vec![0, 45, 45], &[1][..]));

    // Another coordinator knows nothing of it yet.
    cluster.lead(&EVEN, &[]);
    cluster.run(Duration::from_millis(500));
    assert_eq!(cluster.drains, [1, 1]);
}

#[test]
fn a_member_without_a_weight_that_takes_no_new_calls_says_so_to_each_coordinator() {
    let mut cluster = three(&[("T1", 90)]);
    let weights = [(1, 0), (2, 1), (3, 1)];
    cluster.lead(&weights, &[]);
    cluster.run(Duration::from_secs(1));
    let now = cluster.now;
    cluster.members.get_mut(&1).unwrap().handle_input(now, MemberInput::Drain);
    cluster.run(Duration::from_millis(200));
    assert_eq!(cluster.drains, [1]);

    cluster.lead(&weights, &[]);
    cluster.run(Duration::from_millis(500));
    assert_eq!(cluster.drains, [1, 1]);
}

#[test]
fn a_majority_waits_for_the_leases_elsewhere_and_a_minority_closes() {
    let mut cluster = three_with(Partition::WeightMajority, &[("T1", 90)]);
    cluster.lead(&EVEN, &[]);
    cluster.run(Duration::from_secs(30));
    assert_eq!(cluster.caps("T1"), [30, 30, 30], "the lease is renewed");

    cluster.reached = vec![1, 2];
    cluster.lead(&EVEN, &[3]);
    cluster.run(Timing::WAN.majority_wait() - Duration::from_secs(1));
    assert_eq!(cluster.caps("T1"), [30, 30, 0]);
    assert_eq!(cluster.lapsed, [3]);
    cluster.run(Duration::from_secs(2));
    assert_eq!(cluster.caps("T1"), [45, 45, 0]);

    // Of whoever is absent still, no lease has come back; that of another one has not run out.
    let heavy = [(1, 300), (2, 100), (3, 100)];
    cluster.lead_on(&heavy, &[3]);
    cluster.run(Duration::from_secs(1));
    assert_eq!(cluster.caps("T1"), [68, 22, 0]);
    // By weights that all have promised one may have the majority alone.
    cluster.reached = vec![1, 2, 3];
    cluster.lead(&heavy, &[]);
    cluster.run(Duration::from_secs(1));
    assert_eq!(cluster.caps("T1"), [54, 18, 18]);
    cluster.reached = vec![1, 2];
    cluster.lead(&heavy, &[3]);
    cluster.run(Timing::WAN.majority_wait() + Duration::from_secs(1));
    assert_eq!(cluster.caps("T1"), [68, 22, 0]);
    cluster.reached = vec![1];
    cluster.lead_on(&heavy, &[2, 3]);
    cluster.run(Duration::from_secs(1));
    assert_eq!(cluster.caps("T1")[0], 54);

    let mut minority = three_with(Partition::WeightMajority, &[("T1", 90)]);
    minority.lead(&EVEN, &[]);
    minority.run(Duration::from_secs(1));
    minority.reached = vec![3];
    minority.lead(&EVEN, &[1, 2]);
    minority.run(Duration::from_secs(1));
    assert_eq!(minority.caps("T1"), [30, 30, 0]);
}

#[test]
fn who_has_lapsed_uses_what_it_is_granted_after_that() {
    let mut cluster = three_with(Partition::WeightMajority, &[("T1", 90)]);
    cluster.lead(&EVEN, &[]);
    cluster.run(Duration::from_millis(30_500));
    cluster.reached = vec![1, 2];
    cluster.run(Duration::from_millis(9_700));
    assert_eq!((cluster.caps("T1"), &*cluster.lapsed), (vec![30, 30, 0], &[3][..]));

    cluster.reached = vec![1, 2, 3];
    // The next lease is further away than the next word of what was given back.
    cluster.run(Duration::from_millis(1_300));
    assert_eq!(cluster.caps("T1"), [30, 30, 30]);
}

#[test]
fn rates_and_burst_levels_are_divided_as_limits_are() {
    let limits = Limits {
        calls: Some(30),
        burst: [Some(60), None],
        per_second: Some(50),
        ..Limits::default()
    };
    let tree = Tree::new(vec![Node { name: "T1".into(), limits, ..Node::default() }]).unwrap();
    let document = Document::new(1, tree, Method::Dhondt);
    let mut cluster = Cluster::new(document, &[1, 2, 3], DELAY);
    cluster.lead(&EVEN, &[]);
    cluster.run(Duration::from_secs(1));
    let mut levels = Vec::new();
    for _ in 0..17 {
        match cluster.call(1, "T1").1 {
            Verdict::Admitted(admission) => levels.push(admission.level),
            Verdict::Refused(_) | Verdict::Held => panic!("17 of a second fit"),
        }
    }
    assert_eq!(levels, [[1; 10].as_slice(), &[2; 7]].concat());
    let Verdict::Refused(refusal) = cluster.call(1, "T1").1 else { panic!("it fits") };
    assert_eq!((refusal.limit, refusal.share, refusal.used), (50, 17, 17));
    assert!(!cluster.hang_up(1, CallId(999)));
}

#[test]
fn a_member_with_another_document_is_told_its_rates_and_levels_in_words() {
    let limits = |calls, second, per_second| Limits {
        calls: Some(calls),
        burst: [Some(second), None],
        per_second: Some(per_second),
        ..Limits::default()
    };
    let document = |version, limits| {
        let node = Node { name: "T".into(), limits, ..Node::default() };
        Document::new(version, Tree::new(vec![node]).unwrap(), Method::Dhondt)
    };
    let mut cluster = Cluster::new(document(2, limits(60, 90, 30)), &[1, 2, 3], DELAY);
    let stale = Arc::new(document(1, limits(3, 6, 3)));
    let stranger = cluster.members.get_mut(&3).unwrap();
    stranger.handle_input(cluster.now, MemberInput::Document(stale));
    cluster.lead(&EVEN, &[]);
    cluster.run(Duration::from_secs(2));

    let mut levels = Vec::new();
    for _ in 0..3 {
        for _ in 0..10 {
            let (_, Verdict::Admitted(admission)) = cluster.call(3, "T") else { panic!("ten fit") };
            levels.push(admission.level);
        }
        let (_, Verdict::Refused(refusal)) = cluster.call(3, "T") else { panic!("it is too fast") };
        assert!(levels.len() == 30 || refusal.what == Full::PerSecond, "{refusal:?}");
        cluster.run(Duration::from_secs(1));
    }
    assert_eq!(levels, [vec![1; 20], vec![2; 10]].concat());
}

fn three(limits: &[(&str, u32)]) -> Cluster {
    Cluster::new(document(limits), &[1, 2, 3], DELAY)
}

fn three_with(partition: Partition, limits: &[(&str, u32)]) -> Cluster {
    Cluster::new(with(partition, limits, 1), &[1, 2, 3], DELAY)
}

fn document(limits: &[(&str, u32)]) -> Document {
    with(Partition::Full, limits, 1)
}

fn with(partition: Partition, limits: &[(&str, u32)], version: u64) -> Document {
    let node = |&(name, calls): &(&str, u32)| Node {
        name: name.into(),
        limits: Limits { calls: Some(calls), ..Limits::default() },
        partition: Some(partition),
        lending: Some(Lending::Off),
        ..Node::default()
    };
    let tree = Tree::new(limits.iter().map(node).collect()).unwrap();
    Document::new(version, tree, Method::Dhondt)
}

fn parts(weights: &[(u32, u32)]) -> Vec<Part> {
    let part = |&(segment, weight)| Part { segment, weight, usual: weight, present: true };
    weights.iter().map(part).collect()
}
