use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use driver::{Input, Node, Reply, Start, Verb};
use failover::NodeId;
use serde_json::Value;

use super::*;
use crate::cluster::{ClusterDocument, MADE};
use crate::config::{ClusterConfig, Config, Roles};

/// A node that counts the calls of its segment alone, with so many tenants.
fn counting(tenants: usize) -> (Rm, Instant) {
    let mut text = "version = 1
[[segment]]
id = 1
site = \"london\"
sip = [\"10.0.1.1:5060\"]
nodes = [{ rm = 1, id = 11 }]
"
    .to_owned();
    for number in 0..tenants {
        let limits = "calls = 9\ninbound = 8\noutbound = 7";
        writeln!(text, "[[tenant]]\nname = \"tenant-{number}\"\n{limits}").unwrap();
    }
    let mut config = Config::new(NodeId(11), Ipv4Addr::LOCALHOST.into());
    config.roles = Roles { b2b: true, ..Roles::default() };
    config.cluster = Some(ClusterConfig {
        id: election::NodeId { segment: election::Segment(1), rm: 1 },
        site: "london".to_owned(),
        document: Some(Arc::new(ClusterDocument::parse(&text).unwrap())),
        timing: election::Timing::default(),
    });
    #[expect(clippy::disallowed_methods, reason = "an origin for the test")]
    let instant = Instant::now();
    let waker = std::task::Waker::noop().clone();
    let start = Start { seed: 1, instant, unix_ms: 1, boot: 1, epoch: 1, realtime: false, waker };
    let mut rm = Rm::with_stores(&config, &start, None, None);
    let mut now = instant;
    for _ in 0..150 {
        while rm.poll_output().is_some() {}
        now += Duration::from_millis(100);
        rm.handle_timeout(now);
    }
    while rm.poll_output().is_some() {}
    (rm, now)
}

fn ask(rm: &mut Rm, now: Instant, query: &str) -> Reply {
    get(rm, now, "tenants", query)
}

fn get(rm: &mut Rm, now: Instant, path: &str, query: &str) -> Reply {
    let (verb, path, query) = (Verb::Get, path.to_owned(), query.to_owned());
    let request = Request { verb, path, query, body: Bytes::new() };
    rm.handle_input(now, Input::Request { id: 1, request });
    loop {
        if let Output::Reply { reply, .. } = rm.poll_output().expect("an answer") {
            return reply;
        }
    }
}

#[test]
fn a_hundred_thousand_tenants_are_told_of_in_pages_that_no_request_makes_longer() {
    const TENANTS: usize = 100_000;
    let (mut rm, now) = counting(TENANTS);
    let (mut from, mut names, mut asked) = (0, BTreeSet::new(), 0);
    loop {
        let reply = ask(&mut rm, now, &format!("from={from}&limit={TENANTS}"));
        let page: Value = serde_json::from_str(&reply.body.into_text()).unwrap();
        let rows = page["tenants"].as_array().unwrap();
        assert!((1..=200).contains(&rows.len()), "{} rows from {from}", rows.len());
        for row in rows {
            assert!(names.insert(row["name"].as_str().unwrap().to_owned()), "{row} again");
        }
        asked += 1;
        let Some(next) = page["next"].as_u64() else { break };
        from = next;
    }
    assert_eq!((names.len(), asked), (TENANTS, TENANTS / 200));

    let reply = ask(&mut rm, now, &format!("from={}", usize::MAX));
    let page: Value = serde_json::from_str(&reply.body.into_text()).unwrap();
    assert_eq!((&page["tenants"], &page["next"]), (&Value::Array(Vec::new()), &Value::Null));
}

#[test]
fn a_page_costs_what_it_shows_however_deep_it_is() {
    const TENANTS: usize = 1000;
    let (mut rm, now) = counting(TENANTS);
    for from in [0, TENANTS / 2, TENANTS - 10, TENANTS, usize::MAX] {
        let before = MADE.get();
        let page: Value = serde_json::from_str(
            &ask(&mut rm, now, &format!("from={from}&limit=10")).body.into_text(),
        )
        .unwrap();
        let rows = page["tenants"].as_array().unwrap().len();
        assert_eq!((rows, MADE.get() - before), (10.min(TENANTS.saturating_sub(from)), rows));
    }
}

/// Megabytes of text, of which the loop only hands a pointer on.
#[test]
fn a_document_is_written_out_by_the_thread_that_sends_it() {
    let (mut rm, now) = counting(1);

    let reply = get(&mut rm, now, "cluster/document", "");

    assert_eq!(format!("{:?}", reply.body), "later");
    let value: Value = serde_json::from_str(&reply.body.into_text()).unwrap();
    assert_eq!(value["version"], 1);
    assert!(value["text"].as_str().unwrap().ends_with("outbound = 7\n"));
}
