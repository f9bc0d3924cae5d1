//! Changes of use, for whoever adds them up over all segments later.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use driver::spool::{Bounds, Spool};
use serde_json::json;
use tracing::error;

use super::Membership;
use crate::cluster::UsageEvent;

pub(super) type UsageSpool = Spool<Change>;

/// One change of use, as the thread that writes it gets it.
#[derive(Debug)]
pub(super) struct Change {
    at: u64,
    event: UsageEvent,
}

/// Opens the spool in the folder of the store. Who cannot have one goes on without.
pub(super) fn open(store: &Path, node: election::NodeId, boot: u64) -> Option<UsageSpool> {
    let folder = store.join(FOLDER);
    let numbers = std::cell::Cell::new(0_u64);
    let render = move |change: &Change, line: &mut String| {
        numbers.set(numbers.get() + 1);
        render(node, boot, numbers.get(), change, line);
    };
    let spool = Spool::open(&folder, Bounds::default(), render);
    spool.inspect_err(|error| error!(%error, "changes of use are told nowhere")).ok()
}

fn render(node: election::NodeId, boot: u64, number: u64, change: &Change, line: &mut String) {
    let Change { at, event } = change;
    let (UsageEvent::Begun { document } | UsageEvent::Changed { document, .. }) = event;
    let mut value = json!({
        "id": format!("{}/{}-{boot}-{number}", node.segment.0, node.rm),
        "at": at,
        "segment": node.segment.0,
        "rm": node.rm,
        "document": document.version(),
    });
    match event {
        UsageEvent::Begun { .. } => value["begins"] = json!(true),
        UsageEvent::Changed { node, counter, used, peak, .. } => {
            value["name"] = json!(document.tree().node(*node).name);
            value["counter"] = json!(format!("{counter:?}").to_lowercase());
            value["use"] = json!(used);
            value["peak"] = json!(peak);
        }
    }
    // Writing to text cannot fail.
    let _ = write!(line, "{value}");
}

impl Membership {
    pub(super) fn keep_usage(&self, now: Instant, event: UsageEvent) {
        let Some(spool) = &self.usage else { return };
        let (since, unix_ms) = self.wall;
        let passed = now.saturating_duration_since(since).as_millis();
        let at = unix_ms + u64::try_from(passed).unwrap_or(u64::MAX - unix_ms);
        spool.put(Change { at, event });
    }
}

/// The folder of the spool, in that of the store.
const FOLDER: &str = "usage";

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn lines_say_who_counts_and_what_where_and_when() {
        let text = "version = 7\n[[segment]]\nid = 2\nsite = \"a\"\nsip = [\"192.0.2.2:5060\"]\n\
                    nodes = [{ rm = 1, id = 21 }]\n\
                    [[tenant]]\nname = \"shop\"\ncalls = 10\n";
        let document = crate::cluster::ClusterDocument::parse(text).unwrap();
        let node = document.tree().find("shop").unwrap();
        let counter = quota_split::Counter::Calls;
        let document = Arc::clone(&document.division);
        let begun = UsageEvent::Begun { document: Arc::clone(&document) };
        let changed = UsageEvent::Changed { document, node, counter, used: 4, peak: 9 };

        let member = election::NodeId { segment: election::Segment(2), rm: 1 };
        let lines = [begun, changed].into_iter().zip(14..).map(|(event, number)| {
            let mut line = String::new();
            let change = Change { at: 1_796_028_000_123, event };
            render(member, 1_796_020_000_000, number, &change, &mut line);
            line
        });

        let readme = include_str!("../../README.md");
        let (_, shown) = readme.split_once("```json\n").unwrap();
        assert!(lines.eq(shown.lines().take(2)), "{shown}");
    }
}
