use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use election::NodeId as Member;
use quota_split::handover::Timing;
use quota_split::{Document, Method, Tree};

use super::*;
use crate::cluster::{Config, Input, PIECE_LEN, Plan, Share};

#[test]
fn weights_are_missing_where_a_document_has_none_and_not_before_there_is_one() {
    let config = Config {
        id: Member { segment: Segment(1), rm: 1 },
        peers: BTreeSet::new(),
        timing: election::Timing::default(),
        handover: Timing::WAN,
        piece_len: PIECE_LEN,
    };
    let plan = |version, weights: &[u32]| {
        let tree = Tree::new(Vec::new()).unwrap();
        let division = Arc::new(Document::new(version, tree, Method::Dhondt));
        let shares = weights.iter().map(|&weight| Share { weight, cold: None });
        let segments = (1..).map(Segment).zip(shares).collect();
        Arc::new(Plan { division, eager: false, segments })
    };
    let mut now = now();
    let mut cluster = Cluster::new(config, plan(0, &[]), None, 1, now);
    let mut alarms_with = |plan: Option<Arc<Plan>>| {
        plan.into_iter().for_each(|plan| cluster.handle_input(now, Input::Plan(plan)));
        let end = now + Duration::from_secs(20);
        let mut alarms = Vec::new();
        loop {
            while let Some(output) = cluster.poll_output() {
                match output {
                    Output::Persist { serial, .. } => {
                        cluster.handle_input(now, Input::Persisted(serial));
                    }
                    Output::NeedLive { .. } => cluster.handle_input(now, Input::Live(Vec::new())),
                    Output::Alarm(alarm) => alarms.push(alarm),
                    Output::Send { .. }
                    | Output::Decided { .. }
                    | Output::Passive(_)
                    | Output::Divided { .. }
                    | Output::Drifted(_)
                    | Output::Usage(_) => {}
                }
            }
            let Some(at) = cluster.poll_timeout().filter(|at| *at <= end) else { break };
            now = now.max(at);
            cluster.handle_timeout(now);
        }
        now = end;
        alarms
    };

    assert_eq!(alarms_with(None), []);
    assert_eq!(alarms_with(Some(plan(1, &[0]))), [Alarm::WeightsZero]);
    assert_eq!(alarms_with(Some(plan(2, &[1]))), []);
}

#[expect(clippy::disallowed_methods, reason = "any instant will do")]
fn now() -> Instant {
    Instant::now()
}
