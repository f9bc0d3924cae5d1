use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::{Kind, Limits, Node};

#[test]
fn a_call_counts_at_its_profile_and_every_tenant_above_or_nowhere() {
    let mut run = Run::new(&[("top", None, 2), ("t1", Some("top"), 5), ("ivr", Some("t1"), 5)]);

    assert!(run.admit(1, "ivr").is_ok());
    assert!(run.admit(2, "t1").is_ok());
    assert_eq!(run.used(), [2, 2, 1]);

    let refusal = run.admit(3, "ivr").unwrap_err();
    assert_eq!(
        (refusal.node, refusal.limit, refusal.share, refusal.used),
        (run.id("top"), 2, 2, 2)
    );
    assert_eq!(run.used(), [2, 2, 1]);
    assert_eq!(run.ledger.peak_and_refused(run.id("top")), (2, 1));
}

#[test]
fn a_call_is_released_once_whatever_ends_it() {
    let mut run = Run::new(&[("top", None, 2)]);
    run.admit(1, "top").unwrap();

    assert!(run.ledger.release(CallId(1)));
    assert!(!run.ledger.release(CallId(1)));
    assert!(!run.ledger.release(CallId(9)));
    assert_eq!((run.used(), run.ledger.underflows()), (vec![0], 0));
}

#[test]
fn a_call_let_in_twice_counts_once() {
    let mut run = Run::new(&[("top", None, 1)]);
    assert!(!run.admit(1, "top").unwrap().again);
    assert!(run.admit(1, "top").unwrap().again);
    assert_eq!(run.used(), [1]);
}

#[test]
fn an_unset_limit_lets_everything_in_and_zero_nothing() {
    let mut run = Run::of(vec![node("open", None, None), node("zero", None, Some(0))]);
    for call in 0..100 {
        run.admit(call, "open").unwrap();
    }
    assert!(run.admit(100, "zero").is_err());
    assert_eq!(run.ledger.view(run.id("open"), Counter::Calls).share, None);
    assert_eq!(run.ledger.view(run.id("zero"), Counter::Calls).share, Some(0));
}

#[test]
fn a_refusal_says_where_and_what_and_how_much() {
    let mut run = Run::new(&[("top", None, 30)]);
    let top = run.id("top");
    run.ledger.set_share(top, Counter::Calls, 1);
    run.ledger.set_elsewhere(top, Counter::Calls, Some(17));
    run.admit(1, "top").unwrap();

    let refusal = run.admit(2, "top").unwrap_err();
    let what = Full::Counter(Counter::Calls);
    let expected = Refusal { node: top, what, limit: 30, share: 1, used: 1, elsewhere: Some(17) };
    assert_eq!(refusal, expected);
}

#[test]
fn inbound_and_outbound_calls_have_limits_of_their_own() {
    let limits = Limits { inbound: Some(1), outbound: Some(2), ..Limits::default() };
    let mut run = Run::of(vec![Node { limits, ..node("top", None, None) }]);

    assert!(run.admit(1, "top").is_ok());
    let refusal = run.admit(2, "top").unwrap_err();
    assert_eq!(refusal.what, Full::Counter(Counter::Inbound));
    for call in [3, 4] {
        assert!(run.admit_as(call, "top", Direction::Outbound, false).is_ok());
    }
    assert!(run.admit_as(5, "top", Direction::Outbound, false).is_err());
}

#[test]
fn an_emergency_call_passes_every_limit_and_is_counted() {
    let mut run = Run::new(&[("top", None, 0)]);
    assert!(run.admit_as(1, "top", Direction::Inbound, true).is_ok());
    assert_eq!(run.used(), [1]);
    assert!(run.ledger.release(CallId(1)));
    assert_eq!(run.used(), [0]);
}

#[test]
fn a_call_above_a_soft_limit_is_let_in_and_told_about() {
    let limits = Limits { calls: Some(1), soft: true, ..Limits::default() };
    let mut run = Run::of(vec![Node { limits, ..node("top", None, None) }]);
    assert_eq!(run.admit(1, "top").unwrap().over, None);
    assert_eq!(run.admit(2, "top").unwrap().over, Some(run.id("top")));
    assert_eq!(run.used(), [2]);
}

#[test]
fn the_burst_level_of_a_call_is_the_band_it_falls_into() {
    let limits = Limits { calls: Some(1), burst: [Some(3), Some(4)], ..Limits::default() };
    let mut run = Run::of(vec![Node { limits, ..node("top", None, None) }]);
    let levels: Vec<u8> = (0..4).map(|call| run.admit(call, "top").unwrap().level).collect();
    assert_eq!(levels, [1, 2, 2, 3]);
    assert!(run.admit(4, "top").is_err());
}

#[test]
fn a_call_in_one_band_of_two_never_has_the_third_level() {
    let limits = Limits { calls: Some(1), burst: [Some(2), None], ..Limits::default() };
    let mut run = Run::of(vec![Node { limits, ..node("top", None, None) }]);
    let levels: Vec<u8> = (0..2).map(|call| run.admit(call, "top").unwrap().level).collect();
    assert_eq!(levels, [1, 2]);
}

#[test]
fn calls_a_second_are_limited_in_windows_of_one_second() {
    let limits = Limits { per_second: Some(2), ..Limits::default() };
    let mut run = Run::of(vec![Node { limits, ..node("top", None, None) }]);
    assert!(run.admit(1, "top").is_ok());
    assert!(run.admit(2, "top").is_ok());
    assert_eq!(run.admit(3, "top").unwrap_err().what, Full::PerSecond);
    run.now += Duration::from_millis(999);
    assert!(run.admit(3, "top").is_err());
    run.now += Duration::from_millis(1);
    assert!(run.admit(3, "top").is_ok());
}

#[test]
fn a_refused_call_takes_no_part_of_the_rate_above() {
    let rate = Limits { per_second: Some(1), ..Limits::default() };
    let top = Node { limits: rate, ..node("top", None, None) };
    let mut run =
        Run::of(vec![top, node("full", Some("top"), Some(0)), node("t", Some("top"), None)]);
    assert!(run.admit(1, "full").is_err());
    assert!(run.admit(2, "t").is_ok());
}

#[test]
fn an_audit_counts_from_the_calls_that_live() {
    let mut run = Run::new(&[("top", None, 9), ("t1", Some("top"), 9)]);
    for call in 1..4 {
        run.admit(call, "t1").unwrap();
    }
    let top = run.id("top");
    assert_eq!(run.ledger.repair(top, Counter::Calls, 0), 3);
    run.ledger.release(CallId(1));
    assert_eq!(run.ledger.underflows(), 1);

    let live = [call(&run, 2, "t1"), call(&run, 2, "t1"), call(&run, 3, "top")];
    let drifts = run.ledger.audit(live);
    assert_eq!(run.used(), [2, 1]);
    assert!(drifts.contains(&Drift { node: top, counter: Counter::Calls, was: 0, is: 2 }));
    assert!(run.ledger.audit(live).is_empty());
    assert!(run.ledger.release(CallId(3)) && !run.ledger.release(CallId(1)));
}

#[test]
fn calls_move_to_a_changed_tree_and_shares_with_them() {
    let mut run = Run::new(&[("top", None, 9), ("t1", Some("top"), 8), ("ivr", Some("t1"), 7)]);
    run.admit(1, "ivr").unwrap();
    run.admit(2, "t1").unwrap();
    let new = Tree::new(vec![
        node("t1", Some("top"), Some(100)),
        node("new", Some("top"), Some(5)),
        node("top", None, None),
    ])
    .unwrap();

    let mut moved = run.ledger.moved(&run.tree, &new);
    let view = |ledger: &Ledger, name| ledger.view(new.find(name).unwrap(), Counter::Calls);
    let t1 = view(&moved, "t1");
    assert_eq!((t1.limit, t1.share, t1.used), (Some(100), Some(8), 2));
    assert_eq!(view(&moved, "new").share, Some(0));
    assert_eq!((view(&moved, "top").share, view(&moved, "top").used), (None, 2));
    assert!(moved.release(CallId(1)) && moved.release(CallId(2)));
    assert!(moved.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn counters_equal_the_live_calls_after_any_script(
        script in vec((0_u64..12, 0_usize..4, any::<bool>(), 0_u8..8), 1..60),
    ) {
        let mut run = Run::new(&[
            ("top", None, 6), ("t1", Some("top"), 4), ("ivr", Some("t1"), 2), ("t2", Some("top"), 3),
        ]);
        let mut live: BTreeMap<u64, Call> = BTreeMap::new();
        for (id, node, outbound, what) in script {
            let name = ["top", "t1", "ivr", "t2"][node];
            let direction = if outbound { Direction::Outbound } else { Direction::Inbound };
            match what {
                0..=4 => {
                    let admitted = run.admit_as(id, name, direction, what == 0);
                    if admitted.is_ok_and(|admission| !admission.again) {
                        live.insert(id, Call { direction, ..call(&run, id, name) });
                    }
                }
                5 | 6 => prop_assert_eq!(run.ledger.release(CallId(id)), live.remove(&id).is_some()),
                _ => prop_assert_eq!(run.ledger.audit(live.values().copied()), []),
            }
            for (place, _) in run.tree.iter() {
                for counter in Counter::ALL {
                    let counted = live.values().filter(|call| {
                        run.tree.path(call.node).any(|above| above == place)
                            && (counter == Counter::Calls || counter == call.direction.counter())
                    });
                    prop_assert_eq!(
                        run.ledger.view(place, counter).used as usize, counted.count()
                    );
                }
            }
            prop_assert_eq!(run.ledger.len(), live.len());
        }
        prop_assert_eq!(run.ledger.underflows(), 0);
    }

    #[test]
    fn use_never_grows_above_the_share(script in vec((0_u64..20, any::<bool>(), 0_u32..6), 1..60)) {
        let mut run = Run::new(&[("top", None, 6)]);
        let top = run.id("top");
        for (id, admit, share) in script {
            let before = run.used()[0];
            if admit {
                let _ = run.admit(id, "top");
            } else if id < 4 {
                run.ledger.set_share(top, Counter::Calls, share);
            } else {
                run.ledger.release(CallId(id));
            }
            let share = run.ledger.view(top, Counter::Calls).share.unwrap();
            prop_assert!(run.used()[0] <= before.max(share));
        }
    }
}

struct Run {
    tree: Tree,
    ledger: Ledger,
    now: Instant,
}

impl Run {
    fn new(nodes: &[(&str, Option<&str>, u32)]) -> Self {
        Self::of(
            nodes.iter().map(|&(name, parent, limit)| node(name, parent, Some(limit))).collect(),
        )
    }

    fn of(nodes: Vec<Node>) -> Self {
        #[expect(clippy::disallowed_methods, reason = "where time starts does not matter")]
        let now = Instant::now();
        let tree = Tree::new(nodes).expect("a tree");
        let mut ledger = Ledger::new(&tree, 7, now);
        ledger.take_everything(&tree);
        Self { tree, ledger, now }
    }

    fn id(&self, name: &str) -> NodeId {
        self.tree.find(name).expect("a node of this name")
    }

    fn admit(&mut self, id: u64, name: &str) -> Result<Admission, Refusal> {
        self.admit_as(id, name, Direction::Inbound, false)
    }

    fn admit_as(
        &mut self,
        id: u64,
        name: &str,
        direction: Direction,
        exempt: bool,
    ) -> Result<Admission, Refusal> {
        let call = Call { id: CallId(id), node: self.id(name), direction };
        self.ledger.admit(self.now, call, exempt)
    }

    fn used(&self) -> Vec<u32> {
        self.tree.iter().map(|(id, _)| self.ledger.view(id, Counter::Calls).used).collect()
    }
}

fn call(run: &Run, id: u64, name: &str) -> Call {
    Call { id: CallId(id), node: run.id(name), direction: Direction::Inbound }
}

fn node(name: &str, parent: Option<&str>, calls: Option<u32>) -> Node {
    Node {
        name: name.into(),
        parent: parent.map(Into::into),
        kind: Kind::Tenant,
        limits: Limits { calls, ..Limits::default() },
        ..Node::default()
    }
}
