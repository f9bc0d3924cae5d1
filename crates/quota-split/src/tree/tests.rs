use super::*;

#[test]
fn a_call_counts_at_its_profile_and_at_every_tenant_above() {
    let tree = Tree::new(vec![
        Node { kind: Kind::Profile, ..node("ivr", Some("T1")) },
        node("T1", Some("Environment")),
        node("Environment", None),
    ])
    .unwrap();
    let ivr = tree.find("ivr").unwrap();

    let names: Vec<&str> = tree.path(ivr).map(|id| tree.node(id).name.as_str()).collect();
    assert_eq!(names, ["ivr", "T1", "Environment"]);
}

#[test]
fn a_cycle_is_named_by_a_node_that_lies_on_it() {
    let nodes = vec![node("leaf", Some("a")), node("a", Some("b")), node("b", Some("a"))];
    let Err(TreeError::Cycle(on)) = Tree::new(nodes) else { panic!("no cycle seen") };
    assert!(on == "a" || on == "b", "{on}");
}

#[test]
fn a_long_chain_is_too_deep_and_no_cycle() {
    let name = |n: usize| format!("t{n}");
    let chain = |len: usize| -> Vec<Node> {
        (0..len).map(|n| node(&name(n), (0 < n).then(|| name(n - 1)).as_deref())).collect()
    };
    assert!(Tree::new(chain(DEPTH_MAX + 1)).is_ok());
    assert_eq!(Tree::new(chain(DEPTH_MAX + 2)), Err(TreeError::TooDeep(name(DEPTH_MAX + 1))));
}

#[test]
fn names_that_do_not_fit_are_refused() {
    let twice = vec![node("a", None), node("a", None)];
    assert_eq!(Tree::new(twice), Err(TreeError::Duplicate("a".into())));

    let (child, parent) = ("a".to_owned(), "nobody".to_owned());
    assert_eq!(
        Tree::new(vec![node("a", Some("nobody"))]),
        Err(TreeError::UnknownParent { node: child, parent })
    );
    let profile = Node { kind: Kind::Profile, ..node("ivr", None) };
    let (child, parent) = ("a".to_owned(), "ivr".to_owned());
    assert_eq!(
        Tree::new(vec![profile, node("a", Some("ivr"))]),
        Err(TreeError::BelowProfile { node: child, parent })
    );
}

#[test]
fn burst_levels_rise_without_a_gap() {
    let with = |calls, burst| {
        let limits = Limits { calls, burst, ..Limits::default() };
        Tree::new(vec![Node { limits, ..node("a", None) }])
    };
    assert!(with(Some(5), [Some(5), Some(9)]).is_ok());
    assert_eq!(with(Some(5), [Some(4), None]), Err(TreeError::Burst("a".into())));
    assert_eq!(with(None, [Some(4), None]), Err(TreeError::Burst("a".into())));
    assert_eq!(with(Some(5), [None, Some(9)]), Err(TreeError::Burst("a".into())));
}

#[test]
fn manual_shares_add_up_to_the_limit() {
    let with = |calls, shares: [u32; 2]| {
        let manual = (1..).map(SegmentId).zip(shares).collect();
        let limits = Limits { calls, ..Limits::default() };
        Tree::new(vec![Node { limits, manual, ..node("a", None) }])
    };
    assert!(with(Some(10), [7, 3]).is_ok());
    let error = TreeError::ManualSum { node: "a".into(), sum: 11 };
    assert_eq!(with(Some(10), [8, 3]), Err(error.clone()));
    assert_eq!(with(None, [8, 3]), Err(error));
}

fn node(name: &str, parent: Option<&str>) -> Node {
    Node { name: name.into(), parent: parent.map(Into::into), ..Node::default() }
}
