//! The cluster and its tenants as JSON.

use std::sync::Arc;
use std::time::Instant;

use driver::{Body, Reply, Request, Verb};
use election::Segment;
use quota_split::{Full, Refusal, Tree};
use serde_json::{Map, Value, json};

use super::Membership;
use crate::cluster::{self, ClusterView, TenantView, documents};

impl Membership {
    /// Answers a request; `None` when the answer comes later.
    pub(crate) fn asked(&mut self, now: Instant, id: u64, request: &Request) -> Option<Reply> {
        match (request.verb, &*request.path) {
            (Verb::Get, "cluster") => Some(ok(&self.cluster_json())),
            (Verb::Get, "tenants") => Some(self.tenants_json(&request.query)),
            (Verb::Get, "cluster/document") => Some(self.document_json()),
            (Verb::Put, "cluster/document") => {
                let force = match &*request.query {
                    "" => false,
                    crate::FORCE => true,
                    other => return Some(unknown(other, "force, or nothing")),
                };
                let text = request.body.clone();
                self.documents.handle_input(now, documents::Input::Put { id, text, force });
                None
            }
            (Verb::Post, "tenants/repair") => {
                self.cluster.handle_input(now, cluster::Input::Audit);
                Some(ok(&json!({ "audited": true })))
            }
            _ => Some(nothing(request)),
        }
    }

    fn cluster_json(&self) -> Value {
        let view = self.cluster.view();
        let peers = self.documents.peers().map(|(peer, version, same)| {
            let node = self.members.get(&peer).map(node_name);
            json!({ "id": peer.0, "node": node, "document": version, "same_document": same })
        });
        let ClusterView { node, mandate, present, linked, document, passive, withdrawn, segments } =
            &view;
        let sites = self.documents.current().map(|document| &document.segments);
        let segments: Map<String, Value> = segments
            .iter()
            .map(|(id, segment)| {
                let site = sites.and_then(|sites| sites.get(id)).map(|plan| &plan.site);
                let value = json!({
                    "site": site,
                    "weight": segment.weight,
                    "mode": if segment.cold { "cold" } else { "hot" },
                    "member": segment.member,
                    "has_share": segment.shares,
                    "speaker": segment.speaker.as_ref().map(|speaker| node_name(&speaker.node)),
                });
                (id.0.to_string(), value)
            })
            .collect();
        json!({
            "node": node_name(node),
            "document": document,
            "passive": passive,
            "withdrawn": withdrawn,
            "mandate": mandate.as_ref().map(|mandate| json!({
                "term": mandate.epoch.term,
                "coordinator": node_name(&mandate.epoch.coordinator),
                "members": mandate.members.iter().map(node_name).collect::<Vec<_>>(),
            })),
            "island": present.iter().map(node_name).collect::<Vec<_>>(),
            "linked": linked.iter().map(node_name).collect::<Vec<_>>(),
            "peers": peers.collect::<Vec<_>>(),
            "segments": segments,
            "calls": {
                "admitted": self.counters.admitted,
                "refused": self.counters.refused,
                "sent_elsewhere": self.counters.shared,
            },
        })
    }

    /// One page: `from=N` skips as many, `limit=N` shows as many at the most.
    fn tenants_json(&self, query: &str) -> Reply {
        let (mut from, mut limit) = (0_usize, PAGE);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=').map(|(key, value)| (key, value.parse::<usize>())) {
                Some(("from", Ok(value))) => from = value,
                Some(("limit", Ok(value))) => limit = value.clamp(1, PAGE),
                _ => {
                    return unknown(pair, "from=NUMBER or limit=NUMBER");
                }
            }
        }
        let document = self.documents.current();
        let tree = document.map(|document| document.tree());
        let rows = page(self.cluster.tenants_from(from), limit);
        let rows: Vec<Value> = rows.map(|row| tenant(&row)).collect();
        let all = tree.map_or(0, Tree::len);
        let next = (from + rows.len() < all && !rows.is_empty()).then_some(from + rows.len());
        let speaker =
            self.cluster.view().segments.get(&self.own.segment).and_then(|own| own.speaker);
        ok(&json!({
            "segment": self.own.segment.0,
            "document": document.map(|document| document.version),
            "counted_by": speaker.as_ref().map(|speaker| node_name(&speaker.node)),
            "tenants": rows,
            "next": next,
        }))
    }

    fn document_json(&self) -> Reply {
        let Some(document) = self.documents.current().map(Arc::clone) else {
            return Reply { status: 404, body: "there is no document yet\n".to_owned().into() };
        };
        // It may be megabytes long, and calls would wait.
        let body = Body::later(move || {
            let value = json!({ "version": document.version, "text": &*document.text });
            format!("{value}\n")
        });
        Reply { status: 200, body }
    }
}

/// Returns the rows of one answer: fewer than `limit` where there are many segments.
fn page<'a>(
    rows: impl Iterator<Item = TenantView<'a>>,
    limit: usize,
) -> impl Iterator<Item = TenantView<'a>> {
    let mut figures = 0;
    rows.take(limit).map_while(move |row| {
        if FIGURES_MAX <= figures {
            return None;
        }
        // Of each counter its own, and one of each segment.
        figures += row.counters.iter().map(|counter| 1 + counter.held.len()).sum::<usize>();
        Some(row)
    })
}

fn tenant(row: &TenantView<'_>) -> Value {
    let counters = row.counters.iter().map(|counter| {
        let held = |(segment, held): (&Segment, &u32)| (segment.0.to_string(), json!(held));
        let held: Map<String, Value> = counter.held.iter().map(held).collect();
        json!({
            "counter": format!("{:?}", counter.counter).to_lowercase(),
            "limit": counter.limit,
            "target": counter.target,
            "cap": counter.cap,
            "use": counter.used,
            "elsewhere": counter.elsewhere,
            "held": held,
        })
    });
    json!({
        "name": row.name,
        "parent": row.parent,
        "counters": counters.collect::<Vec<_>>(),
        "peak": row.peak,
        "refused": row.refused,
        "last_refusal": row.last_refusal.map(|refusal| refusal_json(&refusal, row.name)),
    })
}

/// Shows the last refusal at a node, by its name.
fn refusal_json(refusal: &Refusal, at: &str) -> Value {
    let what = match refusal.what {
        Full::Counter(counter) => format!("{counter:?}").to_lowercase(),
        Full::PerSecond => "per_second".to_owned(),
    };
    json!({
        "at": at,
        "what": what,
        "limit": refusal.limit,
        "share": refusal.share,
        "use": refusal.used,
        "elsewhere": refusal.elsewhere,
    })
}

/// Answers what nobody here knows.
pub(crate) fn nothing(request: &Request) -> Reply {
    Reply { status: 404, body: format!("there is no {}\n", request.path).into() }
}

/// Answers a query that nobody here understands.
fn unknown(query: &str, write: &str) -> Reply {
    Reply { status: 400, body: format!("{query}: write {write}\n").into() }
}

fn ok(value: &Value) -> Reply {
    Reply { status: 200, body: format!("{value}\n").into() }
}

fn node_name(node: &election::NodeId) -> String {
    format!("{}/{}", node.segment.0, node.rm)
}

/// Figures of counters after which an answer ends.
const FIGURES_MAX: usize = 2400;

/// Tenants of one answer at the most, and when nothing else is asked for. Calls and leases wait while
/// it is written: about 2 ms without a release's optimizations, and five times as long for 1,000.
const PAGE: usize = 200;

#[cfg(test)]
mod tests {
    use quota_split::Counter;

    use super::*;
    use crate::cluster::CounterView;

    #[test]
    fn an_answer_shows_fewer_tenants_where_there_are_many_segments() {
        for (segments, shown) in [(0, 200), (3, 200), (59, 14), (1000, 1)] {
            let counter = |counter| CounterView {
                counter,
                limit: Some(9),
                target: None,
                cap: None,
                used: 0,
                elsewhere: None,
                held: (0..segments).map(|id| (Segment(id), 1)).collect(),
            };
            let row = TenantView {
                name: "shop",
                parent: None,
                counters: Counter::ALL.map(counter).to_vec(),
                peak: 0,
                refused: 0,
                last_refusal: None,
            };
            assert_eq!(page(std::iter::repeat_n(row, 5000), PAGE).count(), shown, "{segments}");
        }
    }
}
