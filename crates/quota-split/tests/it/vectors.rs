//! The document's tables and more, row by row.

use std::collections::BTreeMap;

use quota_split::{
    Limits, Method, Node, Segment, SegmentId, Tree, Weights, divide, split, spread_key,
};
use serde::Deserialize;

#[derive(Deserialize)]
struct Row {
    name: String,
    limit: Option<u32>,
    weights: Vec<u32>,
    method: Option<String>,
    shares: Vec<Option<u32>>,
}

#[derive(Deserialize)]
struct Trees {
    tenants: Vec<Tenant>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Tenant {
    name: String,
    parent: Option<String>,
    limit: Option<u32>,
}

#[derive(Deserialize)]
struct Case {
    weights: BTreeMap<u32, u32>,
    shares: BTreeMap<String, Vec<Option<u32>>>,
}

#[test]
fn every_row_of_the_division_vectors_holds() {
    let rows: Vec<Row> =
        serde_json::from_str(include_str!("../../testdata/division.json")).unwrap();
    for row in &rows {
        let method = row
            .method
            .as_deref()
            .map_or(Method::Dhondt, |method| Method::from_name(method).expect("a known method"));
        let shares: Vec<Option<u32>> = match row.limit {
            Some(limit) => {
                let weights = Weights::new(row.weights.clone()).unwrap();
                let shares = split(limit, &weights, method, spread_key(&row.name));
                shares.into_iter().map(Some).collect()
            }
            None => vec![None; row.weights.len()],
        };
        assert_eq!(shares, row.shares, "{}", row.name);
    }
    assert_eq!(rows.len(), 26);
}

#[test]
fn every_case_of_the_tree_vectors_holds() {
    let trees: Trees =
        serde_json::from_str(include_str!("../../testdata/division_tree.json")).unwrap();
    let nodes = trees.tenants.into_iter().map(|tenant| Node {
        name: tenant.name,
        parent: tenant.parent,
        limits: Limits { calls: tenant.limit, ..Limits::default() },
        ..Node::default()
    });
    let tree = Tree::new(nodes.collect()).unwrap();
    for case in &trees.cases {
        let segments = case.weights.iter();
        let segments: Vec<Segment> =
            segments.map(|(&id, &weight)| Segment { id: SegmentId(id), weight }).collect();
        let division = divide(&tree, &segments, Method::Dhondt).unwrap();
        for (name, shares) in &case.shares {
            let id = tree.find(name).unwrap();
            let divided: Vec<Option<u32>> = match division.shares(id) {
                Some(shares) => shares.iter().copied().map(Some).collect(),
                None => vec![None; segments.len()],
            };
            assert_eq!(&divided, shares, "{name} over {:?}", case.weights);
        }
        assert_eq!(case.shares.len(), tree.len());
    }
    assert_eq!(trees.cases.len(), 4);
}
