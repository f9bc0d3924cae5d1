//! Parts of a cluster that is cut and whose segments do not all know the same document.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quota_split::handover::{
    Coordinator, CoordinatorInput, CoordinatorOutput, Epoch, Member, MemberInput, MemberOutput,
    Timing, ToMember, Verdict,
};
use quota_split::{
    Call, CallId, Counter, Direction, Document, Limits, Method, Node, Part, Partition, SegmentId,
    Tree,
};

const EVEN: [u32; 3] = [1, 1, 1];
/// By these the first segment has the majority alone.
const FIRST: [u32; 3] = [4, 1, 1];
const LIMIT: u32 = 90;

#[test]
fn weights_that_one_part_alone_knows_give_it_no_majority() {
    let mut run = Run::new(Partition::WeightMajority);
    run.lead(1, EVEN, &[1, 2, 3]);
    run.pass(Duration::from_secs(1));
    assert_eq!(run.caps(), [30, 30, 30]);

    run.lead(1, FIRST, &[1]);
    run.lead(2, EVEN, &[2, 3]);
    run.pass(2 * Timing::WAN.majority_wait());
    assert_eq!(run.caps(), [0, 45, 45]);
    // Together again, all promise it.
    run.lead(1, FIRST, &[1, 2, 3]);
    run.pass(Duration::from_secs(1));
    assert_eq!(run.caps(), [60, 15, 15]);
    run.lead(1, FIRST, &[1]);
    run.lead(2, FIRST, &[2, 3]);
    run.pass(2 * Timing::WAN.majority_wait());
    assert_eq!(run.caps(), [90, 0, 0]);
}

#[test]
fn who_has_promised_other_weights_and_was_granted_nothing_has_a_majority_by_both_or_none() {
    for (part, caps) in [(&[2, 3], [90, 0, 0]), (&[1, 2], [72, 18, 0])] {
        let mut run = Run::new(Partition::WeightMajority);
        run.lead(1, EVEN, &[1, 2, 3]);
        run.pass(Duration::from_secs(1));
        // The grants reach the first alone.
        run.lost = vec![2, 3];
        run.lead(1, FIRST, &[1, 2, 3]);
        run.pass(Duration::from_millis(500));
        run.lost.clear();
        let rest: Vec<u32> = (1..=3).filter(|id| !part.contains(id)).collect();
        // Whoever leads the second and third has the old document.
        run.lead(part[0], if part[0] == 1 { FIRST } else { EVEN }, part);
        run.lead(rest[0], if rest[0] == 1 { FIRST } else { EVEN }, &rest);
        run.pass(2 * Timing::WAN.majority_wait());
        assert_eq!(run.caps(), caps, "{part:?}");
    }
}

#[test]
fn no_lease_is_granted_before_every_member_has_said_that_this_is_a_majority() {
    let mut run = Run::new(Partition::WeightMajority);
    run.lead(1, EVEN, &[1, 2, 3]);
    run.pass(Duration::from_secs(1));
    // What the third says is lost: it may know better.
    run.mute = Some(3);
    run.lead(1, EVEN, &[1, 3]);
    run.pass(Timing::WAN.lease + Duration::from_secs(1));
    assert_eq!(run.caps()[0], 0);
}

#[test]
fn a_segment_that_is_left_out_has_no_say_any_more() {
    let mut run = Run::new(Partition::WeightMajority);
    run.lead(1, FIRST, &[1, 2, 3]);
    run.pass(Duration::from_secs(1));
    run.lead(2, EVEN, &[2, 3]);
    run.pass(2 * Timing::WAN.majority_wait());
    assert_eq!(run.caps()[1..], [0, 0], "the first has the majority");
    let parts = [2, 3].map(|segment| Part { segment, weight: 1, usual: 1, present: true });
    run.hand(2, parts.to_vec());
    run.pass(Duration::from_secs(1));
    assert_eq!(run.caps()[1..], [45, 45]);
}

#[test]
fn frozen_limits_stay_where_they_were_in_an_island() {
    let mut run = Run::new(Partition::Frozen);
    run.lead(1, EVEN, &[1, 2, 3]);
    run.pass(Duration::from_secs(1));
    run.lead(1, EVEN, &[1, 2]);
    run.pass(Duration::from_secs(60));
    assert_eq!(run.caps(), [30, 30, 30]);
}

#[test]
fn frozen_limits_of_another_document_grow_only_when_all_are_there() {
    let mut run = Run::new(Partition::Frozen);
    run.lead(1, EVEN, &[1, 2, 3]);
    run.pass(Duration::from_secs(1));
    run.lead(1, EVEN, &[1, 2]);
    run.change(&[1, 2], 2, 30);
    run.pass(Duration::from_secs(5));
    assert_eq!(run.caps(), [10, 10, 30]);

    run.change(&[1, 2], 3, 120);
    run.pass(Duration::from_secs(5));
    assert_eq!(run.caps(), [10, 10, 30], "segment 3 may still hold any part");
}

/// Who is away may have got its part by another document, too.
#[test]
fn frozen_limits_of_a_cluster_that_was_never_whole_follow_its_first_document() {
    let mut run = Run::new(Partition::Frozen);
    run.lead(1, EVEN, &[1, 2]);
    run.pass(Duration::from_secs(5));
    assert_eq!(run.caps(), [30, 30, 0]);
    run.change(&[1, 2], 2, 120);
    run.pass(Duration::from_secs(5));
    assert_eq!(run.caps(), [30, 30, 0]);
}

#[test]
fn calls_that_passed_a_frozen_limit_are_no_part_of_it_in_the_next_division() {
    let mut run = Run::new(Partition::Frozen);
    run.lead(1, EVEN, &[1, 2, 3]);
    run.pass(Duration::from_secs(1));
    run.change(&[1, 2], 2, LIMIT);
    run.lead(1, FIRST, &[1, 2]);
    run.pass(Duration::from_secs(1));
    assert_eq!(run.caps(), [30, 15, 30]);
    run.call(1, 0, 30, false);
    run.call(1, 30, 5, true);
    for _ in 0..2 {
        run.lead(1, FIRST, &[1, 2]);
        run.pass(Duration::from_secs(5));
        assert_eq!(run.caps(), [30, 15, 30]);
    }

    // Whichever calls end first, what is left of the others is still above the cap.
    let member = run.members.get_mut(&1).unwrap();
    (0..3).for_each(|id| assert!(member.release(run.now, CallId(id))));
    run.lead(1, FIRST, &[1, 2]);
    run.pass(Duration::from_secs(5));
    assert_eq!(run.caps(), [30, 15, 30]);
}

/// What was above the cap when that shrank was granted, and goes to others as it ends.
#[test]
fn calls_above_a_frozen_cap_that_shrank_stay_a_part_of_the_limit() {
    let mut run = Run::new(Partition::Frozen);
    run.lead(1, EVEN, &[1, 2, 3]);
    run.pass(Duration::from_secs(1));
    run.call(2, 0, 30, false);
    run.change(&[1, 2], 2, LIMIT);
    for _ in 0..2 {
        run.lead(1, FIRST, &[1, 2]);
        run.pass(Duration::from_secs(1));
        assert_eq!(run.caps(), [30, 15, 30]);
    }
    let member = run.members.get_mut(&2).unwrap();
    (0..30).for_each(|id| assert!(member.release(run.now, CallId(id))));
    run.pass(Duration::from_secs(5));
    assert_eq!(run.caps(), [45, 15, 30]);
}

#[test]
fn calls_of_who_starts_anew_are_no_part_of_a_limit_that_must_not_grow() {
    let mut run = Run::new(Partition::Frozen);
    run.lead(1, EVEN, &[1, 2, 3]);
    run.pass(Duration::from_secs(1));
    let mut again = run.member(1);
    again.bind(run.members[&1].bases().clone());
    let document = run.document(1, LIMIT);
    again.audit(run.now, (0..5).map(|id| call(&document, id)));
    run.members.insert(1, again);
    run.change(&[1, 2], 2, LIMIT);
    run.lead(2, FIRST, &[1, 2]);
    run.pass(Duration::from_secs(5));
    assert_eq!(run.caps(), [0, 15, 30]);
}

#[test]
fn a_frozen_part_that_promised_another_document_does_not_grow_back_under_the_old_one() {
    let mut run = Run::new(Partition::Frozen);
    run.lead(1, EVEN, &[1, 2, 3]);
    run.pass(Duration::from_secs(1));
    run.lost = vec![2, 3];
    run.change(&[1], 2, LIMIT);
    run.lead(1, FIRST, &[1, 2, 3]);
    run.pass(Duration::from_millis(500));
    assert_eq!(run.caps(), [60, 15, 15]);
    run.lost.clear();

    run.lead(2, EVEN, &[2, 3]);
    run.pass(Duration::from_secs(5));
    assert_eq!(run.caps(), [60, 15, 15], "they promised to shrink to that");
}

/// Those that are away may hold all that they had by the document before.
#[test]
fn a_frozen_part_does_not_grow_by_another_document_at_who_starts_anew() {
    let mut run = Run::new(Partition::Frozen);
    run.lead(1, EVEN, &[1, 2, 3]);
    run.pass(Duration::from_secs(1));
    assert_eq!(run.caps(), [30, 30, 30]);

    let mut again = run.member(1);
    again.bind(run.members[&1].bases().clone());
    run.members.insert(1, again);
    let coordinator = Coordinator::new(Timing::WAN, false, run.document(1, LIMIT));
    run.coordinators.insert(1, coordinator);
    run.change(&[1], 2, LIMIT);
    run.lead(1, FIRST, &[1]);
    run.pass(Duration::from_secs(5));
    assert_eq!(run.caps(), [0, 30, 30]);
}

#[test]
fn what_a_segment_is_bound_to_outlives_it() {
    let mut run = Run::new(Partition::WeightMajority);
    run.lead(1, EVEN, &[1, 2, 3]);
    run.pass(Duration::from_secs(1));
    let bases = run.members[&1].bases().clone();
    assert!(!bases.is_empty());
    let mut again = run.member(1);
    again.bind(bases);
    run.members.insert(1, again);
    run.lead(1, FIRST, &[1]);
    run.pass(2 * Timing::WAN.majority_wait());
    assert_eq!(run.caps()[0], 0);
}

fn call(document: &Document, id: u64) -> Call {
    let node = document.tree().find("T1").unwrap();
    Call { id: CallId(id), node, direction: Direction::Inbound }
}

/// Members, and a coordinator at each of them. What is said in a part arrives at once.
struct Run {
    now: Instant,
    partition: Partition,
    members: BTreeMap<u32, Member>,
    coordinators: BTreeMap<u32, Coordinator>,
    /// Who belongs to the division that each leads.
    parts: BTreeMap<u32, Vec<u32>>,
    /// Whom no grant reaches, and of whom nothing is heard.
    lost: Vec<u32>,
    mute: Option<u32>,
    term: u64,
}

impl Run {
    fn new(partition: Partition) -> Self {
        #[expect(clippy::disallowed_methods, reason = "where time starts does not matter")]
        let now = Instant::now();
        let mut run = Self {
            now,
            partition,
            members: BTreeMap::new(),
            coordinators: BTreeMap::new(),
            parts: BTreeMap::new(),
            lost: Vec::new(),
            mute: None,
            term: 0,
        };
        for id in 1..=3 {
            let member = run.member(id);
            run.members.insert(id, member);
            let document = run.document(1, LIMIT);
            run.coordinators.insert(id, Coordinator::new(Timing::WAN, false, document));
        }
        run
    }

    fn document(&self, version: u64, limit: u32) -> Arc<Document> {
        let limits = Limits { calls: Some(limit), ..Limits::default() };
        let partition = Some(self.partition);
        let node = Node { name: "T1".into(), limits, partition, ..Node::default() };
        Arc::new(Document::new(version, Tree::new(vec![node]).unwrap(), Method::Dhondt))
    }

    fn member(&self, id: u32) -> Member {
        Member::new(self.now, SegmentId(id), Timing::WAN, self.document(1, LIMIT), None, 7)
    }

    /// Gives segments and their coordinators another document.
    fn change(&mut self, ids: &[u32], version: u64, limit: u32) {
        let document = self.document(version, limit);
        for id in ids {
            let member = self.members.get_mut(id).unwrap();
            member.handle_input(self.now, MemberInput::Document(Arc::clone(&document)));
            let input =
                CoordinatorInput::Document { document: Arc::clone(&document), eager: false };
            self.coordinators.get_mut(id).unwrap().handle_input(self.now, input);
        }
    }

    /// Lets calls in at a segment, numbered from `first`.
    fn call(&mut self, at: u32, first: u64, count: u64, exempt: bool) {
        let member = self.members.get_mut(&at).unwrap();
        for id in first..first + count {
            let verdict = member.request(self.now, call(member.document(), id), exempt);
            assert!(matches!(verdict, Verdict::Admitted(_)), "{verdict:?}");
        }
    }

    /// Lets a segment lead these in an epoch of its own.
    fn lead(&mut self, at: u32, weights: [u32; 3], here: &[u32]) {
        self.term += 1;
        let part = |(segment, weight)| Part {
            segment,
            weight,
            usual: weight,
            present: here.contains(&segment),
        };
        self.hand(at, (1..).zip(weights).map(part).collect());
    }

    fn hand(&mut self, at: u32, parts: Vec<Part>) {
        let here = parts.iter().filter(|part| part.present).map(|part| part.segment);
        let here: Vec<u32> = here.collect();
        for (other, part) in &mut self.parts {
            if *other != at && part.iter().any(|id| here.contains(id)) {
                self.coordinators
                    .get_mut(other)
                    .unwrap()
                    .handle_input(self.now, CoordinatorInput::Retire);
            }
        }
        self.parts.insert(at, here);
        let epoch = Epoch { term: self.term, rank: at.into(), ..Epoch::default() };
        let input = CoordinatorInput::Lead { epoch, parts };
        self.coordinators.get_mut(&at).unwrap().handle_input(self.now, input);
        self.talk();
    }

    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            let members = self.members.values().filter_map(Member::poll_timeout);
            let coordinators = self.coordinators.values().filter_map(Coordinator::poll_timeout);
            let Some(at) = members.chain(coordinators).min().filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            self.members.values_mut().for_each(|member| member.handle_timeout(self.now));
            self.coordinators.values_mut().for_each(|one| one.handle_timeout(self.now));
            self.talk();
        }
        self.now = end;
    }

    fn talk(&mut self) {
        while self.tell_down() | self.tell_up() {}
    }

    fn tell_down(&mut self) -> bool {
        let mut told = false;
        for (at, coordinator) in &mut self.coordinators {
            while let Some(output) = coordinator.poll_output() {
                let CoordinatorOutput::Send { to, message } = output else { continue };
                let here = self.parts.get(at).is_some_and(|part| part.contains(&to.0));
                let grows = matches!(message, ToMember::Grow(_)) && self.lost.contains(&to.0);
                if here && !grows {
                    let member = self.members.get_mut(&to.0).unwrap();
                    member.handle_input(self.now, MemberInput::Received(message));
                    told = true;
                }
            }
        }
        told
    }

    fn tell_up(&mut self) -> bool {
        let mut told = false;
        for (id, member) in &mut self.members {
            while let Some(output) = member.poll_output() {
                let MemberOutput::Send { epoch, message } = output else { continue };
                let at = u32::try_from(epoch.rank).unwrap();
                let here = self.parts.get(&at).is_some_and(|part| part.contains(id));
                if let Some(to) =
                    self.coordinators.get_mut(&at).filter(|_| here && self.mute != Some(*id))
                {
                    let from = SegmentId(*id);
                    to.handle_input(self.now, CoordinatorInput::Received { from, message });
                    told = true;
                }
            }
        }
        told
    }

    fn caps(&self) -> Vec<u32> {
        let cap = |member: &Member| {
            let node = member.document().tree().find("T1").unwrap();
            member.ledger().view(node, Counter::Calls).share.unwrap()
        };
        self.members.values().map(cap).collect()
    }
}
