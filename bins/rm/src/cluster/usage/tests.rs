use std::collections::BTreeSet;

use election::{NodeId as Member, Segment};
use quota_split::handover::Timing;
use quota_split::{CallId, Direction, Limits, Method, Node, Tree};

use super::*;
use crate::cluster::{Cluster, Config, Input, Output, PIECE_LEN, Plan, Share};

#[test]
fn a_second_that_begins_with_an_end_has_the_use_before_it_as_its_peak() {
    let mut node = Alone::new();
    for id in 0..10 {
        node.admit(id, "t");
    }
    node.pass(2_000);
    assert_eq!(node.told("t"), [(10, 10)]);

    node.release(0);
    node.pass(2_000);
    assert_eq!(node.told("t"), [(9, 10)]);
}

/// Nothing else happens then: heartbeats of an election go out at other times.
#[test]
fn what_changes_is_told_a_second_after_the_first_change_and_not_before() {
    let mut node = Alone::new();
    node.pass(317);
    for round in 0..3 {
        node.admit(2 * round, "t");
        node.pass(600);
        node.admit(2 * round + 1, "t");
        node.pass(399);
        assert_eq!(node.told("t"), []);
        node.pass(1);
        let used = u32::try_from(2 * round + 2).unwrap();
        assert_eq!(node.told("t"), [(used, used)]);
        node.pass(5_000);
        assert_eq!(node.told("t"), [], "once");
    }
}

#[test]
fn what_is_due_is_told_before_a_document_numbers_nodes_anew() {
    let mut node = Alone::new();
    node.admit(1, "t");
    node.plan(2, &["first", "t"]);
    assert_eq!(node.told("t"), [(1, 1)]);

    node.release(1);
    node.plan(3, &["first"]);
    node.pass(2_000);
    assert_eq!(node.told("t"), [(0, 1)], "and never again: it is gone");
}

#[test]
fn counters_that_an_audit_sets_right_are_told_too() {
    let mut node = Alone::new();
    for id in 0..3 {
        node.admit(id, "t");
    }
    node.pass(2_000);
    node.told("t");

    node.live.retain(|call| call.id == CallId(1));
    node.input(Input::Audit);
    node.pass(2_000);
    assert_eq!(node.told("t"), [(1, 1)]);
}

#[test]
fn who_begins_to_count_voids_what_was_told_and_tells_what_there_is() {
    let mut before = Alone::new();
    let counts = before.begun();
    assert_eq!(counts, [(true, 0)], "of its own start");
    before.admit(0, "t");
    before.admit(1, "t");

    // The next life finds one of the two, or none.
    for left in [1, 0] {
        let live = before.live.iter().copied().take(left).collect();
        let mut next = Alone::with(live);
        assert_eq!(next.begun(), [(true, left)], "first, and at once");
    }
}

#[test]
fn who_told_something_that_is_lost_begins_again_with_all_that_counts() {
    let mut node = Alone::new();
    node.admit(0, "t");
    node.pass(2_000);
    node.events.clear();

    // Nothing else is due just then.
    node.pass(317);
    node.input(Input::UsageLost);
    node.pass(999);
    assert_eq!(node.begun(), []);
    node.pass(1);
    assert_eq!(node.begun(), [(true, 1)]);
    node.pass(60_000);
    assert_eq!(node.begun(), [], "once");
}

/// The only node of a cluster.
struct Alone {
    now: Instant,
    cluster: Cluster,
    tree: Arc<Document>,
    live: Vec<Call>,
    events: Vec<UsageEvent>,
}

impl Alone {
    fn new() -> Self {
        Self::with(Vec::new())
    }

    fn with(live: Vec<Call>) -> Self {
        let document = document(1, &["t"]);
        let config = Config {
            id: Member { segment: Segment(1), rm: 1 },
            peers: BTreeSet::new(),
            timing: election::Timing::default(),
            handover: Timing::WAN,
            piece_len: PIECE_LEN,
        };
        let (now, plan) = (now(), Arc::new(plan(&document)));
        let cluster = Cluster::new(config, plan, None, 1, now);
        let mut node = Self { now, cluster, tree: document, live, events: Vec::new() };
        node.drain();
        node.pass(20_000);
        node
    }

    fn admit(&mut self, id: u64, name: &str) {
        let node = self.tree.tree().find(name).unwrap();
        let call = Call { id: CallId(id), node, direction: Direction::Inbound };
        self.live.push(call);
        self.input(Input::Admit { call, exempt: true });
    }

    fn release(&mut self, id: u64) {
        self.live.retain(|call| call.id != CallId(id));
        self.input(Input::Release(CallId(id)));
    }

    fn plan(&mut self, version: u64, names: &[&str]) {
        self.tree = document(version, names);
        self.input(Input::Plan(Arc::new(plan(&self.tree))));
    }

    /// Returns all beginnings told of, each with how many counters of calls were told of before the next.
    fn begun(&mut self) -> Vec<(bool, usize)> {
        let mut begun: Vec<(bool, usize)> = Vec::new();
        for event in std::mem::take(&mut self.events) {
            match event {
                UsageEvent::Begun { .. } => begun.push((true, 0)),
                UsageEvent::Changed { counter: Counter::Calls, .. } => match begun.last_mut() {
                    Some((_, count)) => *count += 1,
                    None => begun.push((false, 1)),
                },
                UsageEvent::Changed { .. } => {}
            }
        }
        begun
    }

    /// Returns use and peak of all that was told of a tenant since the last time.
    fn told(&mut self, name: &str) -> Vec<(u32, u32)> {
        let events = std::mem::take(&mut self.events).into_iter();
        let here = events.filter_map(|event| match event {
            UsageEvent::Changed { document, node, counter: Counter::Calls, used, peak }
                if document.tree().node(node).name == name =>
            {
                Some((used, peak))
            }
            UsageEvent::Changed { .. } | UsageEvent::Begun { .. } => None,
        });
        here.collect()
    }

    fn input(&mut self, input: Input) {
        self.cluster.handle_input(self.now, input);
        self.drain();
    }

    fn pass(&mut self, ms: u64) {
        let until = self.now + Duration::from_millis(ms);
        while let Some(at) = self.cluster.poll_timeout().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.cluster.handle_timeout(self.now);
            self.drain();
            assert!(self.cluster.poll_timeout().is_none_or(|at| self.now < at));
        }
        self.now = until;
    }

    fn drain(&mut self) {
        while let Some(output) = self.cluster.poll_output() {
            match output {
                Output::Persist { serial, .. } => {
                    self.cluster.handle_input(self.now, Input::Persisted(serial));
                }
                Output::NeedLive { .. } => {
                    self.cluster.handle_input(self.now, Input::Live(self.live.clone()));
                }
                Output::Decided { verdict, .. } => assert!(verdict.is_ok(), "{verdict:?}"),
                Output::Usage(event) => self.events.push(event),
                Output::Send { .. }
                | Output::Passive(_)
                | Output::Divided { .. }
                | Output::Alarm(_)
                | Output::Drifted(_) => {}
            }
        }
    }
}

fn plan(document: &Arc<Document>) -> Plan {
    let segments = [(Segment(1), Share { weight: 1, cold: None })].into();
    Plan { division: Arc::clone(document), eager: false, segments }
}

fn document(version: u64, names: &[&str]) -> Arc<Document> {
    let limits = Limits { calls: Some(50), ..Limits::default() };
    let node = |name: &&str| Node { name: (*name).to_owned(), limits, ..Node::default() };
    let tree = Tree::new(names.iter().map(node).collect()).unwrap();
    Arc::new(Document::new(version, tree, Method::Dhondt))
}

#[expect(clippy::disallowed_methods, reason = "any instant will do")]
fn now() -> Instant {
    Instant::now()
}
