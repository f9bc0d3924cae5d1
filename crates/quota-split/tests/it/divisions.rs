//! Whole trees.

use quota_split::{
    DivideError, Limits, Method, Node, Segment, SegmentId, Tree, WeightsError, divide,
};

#[test]
fn columns_stand_in_the_order_of_the_numbers_of_segments() {
    let tree = tree(&[("T1", Some(100)), ("T2", None)]);
    let division =
        divide(&tree, &[segment(3, 50), segment(1, 300), segment(2, 100)], Method::Dhondt);
    let division = division.unwrap();

    assert_eq!(division.segments(), [1, 2, 3].map(SegmentId));
    assert_eq!(division.shares(tree.find("T1").unwrap()), Some(&[67, 22, 11][..]));
    let column: Vec<Option<u32>> = division.column(SegmentId(2)).unwrap().collect();
    assert_eq!(column, [Some(22), None]);
    assert!(division.column(SegmentId(4)).is_none());
}

#[test]
fn one_limit_changed_changes_its_own_row_alone() {
    let tree = tree(&[("T1", Some(100)), ("T2", Some(500))]);
    let mut division = divide(&tree, &[segment(1, 1), segment(2, 1)], Method::Dhondt).unwrap();
    let [first, second] = ["T1", "T2"].map(|name| tree.find(name).unwrap());

    assert_eq!(division.set_limit(first, Some(11)), Some(&[6, 5][..]));
    assert_eq!(division.shares(second), Some(&[250, 250][..]));
    assert_eq!(division.set_limit(first, None), None);
    assert_eq!(division.shares(first), None);
}

#[test]
fn shares_fixed_by_hand_stay_where_they_are_when_a_segment_goes() {
    let manual = (1..).map(SegmentId).zip([70, 20, 10]).collect();
    let limits = Limits { calls: Some(100), ..Limits::default() };
    let tree = Tree::new(vec![Node { limits, manual, ..node("T1") }]).unwrap();
    let shares = |segments: &[Segment]| {
        divide(&tree, segments, Method::Dhondt)
            .unwrap()
            .shares(tree.find("T1").unwrap())
            .unwrap()
            .to_vec()
    };

    assert_eq!(shares(&[segment(1, 1), segment(2, 1), segment(3, 1)]), [70, 20, 10]);
    assert_eq!(shares(&[segment(1, 1), segment(3, 1), segment(9, 1)]), [70, 10, 0]);
}

#[test]
fn the_highest_burst_level_is_what_is_divided() {
    let limits = Limits { calls: Some(10), burst: [Some(20), Some(40)], ..Limits::default() };
    let tree = Tree::new(vec![Node { limits, ..node("T1") }]).unwrap();
    let division = divide(&tree, &[segment(1, 3), segment(2, 1)], Method::Dhondt).unwrap();
    assert_eq!(division.shares(tree.find("T1").unwrap()), Some(&[30, 10][..]));
}

#[test]
fn segments_that_make_no_columns_are_refused() {
    let tree = tree(&[("T1", Some(100))]);
    let fault =
        |segments: &[Segment]| divide(&tree, segments, Method::Dhondt).map(drop).unwrap_err();

    assert_eq!(fault(&[]), DivideError::Weights(WeightsError::Empty));
    assert_eq!(fault(&[segment(1, 0)]), DivideError::Weights(WeightsError::AllZero));
    assert_eq!(fault(&[segment(1, 5), segment(1, 6)]), DivideError::Duplicate(SegmentId(1)));
}

fn tree(limits: &[(&str, Option<u32>)]) -> Tree {
    let node = |&(name, calls): &(&str, Option<u32>)| Node {
        limits: Limits { calls, ..Limits::default() },
        ..node(name)
    };
    Tree::new(limits.iter().map(node).collect()).unwrap()
}

fn node(name: &str) -> Node {
    Node { name: name.into(), ..Node::default() }
}

fn segment(id: u32, weight: u32) -> Segment {
    Segment { id: SegmentId(id), weight }
}
