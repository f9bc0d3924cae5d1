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
    let UsageEvent { document, node: counted, counter, used, peak } = event;
    let name = &document.tree().node(*counted).name;
    let value = json!({
        "id": format!("{}/{}-{boot}-{number}", node.segment.0, node.rm),
        "at": at,
        "segment": node.segment.0,
        "rm": node.rm,
        "document": document.version(),
        "name": name,
        "counter": format!("{counter:?}").to_lowercase(),
        "use": used,
        "peak": peak,
    });
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
    fn a_line_says_who_counted_what_where_and_when() {
        let text = "version = 7\n[[segment]]\nid = 2\nsite = \"a\"\nsip = [\"192.0.2.2:5060\"]\n\
                    nodes = [{ rm = 1, id = 21 }]\n\
                    [[tenant]]\nname = \"shop\"\ncalls = 10\n";
        let document = crate::cluster::ClusterDocument::parse(text).unwrap();
        let node = document.tree().find("shop").unwrap();
        let counter = quota_split::Counter::Calls;
        let document = Arc::clone(&document.division);
        let event = UsageEvent { document, node, counter, used: 4, peak: 9 };
        let change = Change { at: 1_796_028_000_123, event };

        let mut line = String::new();
        let member = election::NodeId { segment: election::Segment(2), rm: 1 };
        render(member, 1_796_020_000_000, 15, &change, &mut line);

        let readme = include_str!("../../README.md");
        let (_, shown) = readme.split_once("```json\n").unwrap();
        assert_eq!(Some(&*line), shown.lines().next());
    }
}
