//! Changes of use, for whoever adds them up over all segments later.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use driver::spool::{Bounds, Spool};
use serde_json::json;
use tracing::error;

use super::Membership;
use crate::cluster::UsageEvent;

/// Where changes of use go.
pub(super) struct UsageSpool {
    pub(super) lines: Spool<Change>,
    /// How many of those that were dropped readers need not miss any more.
    mended: u64,
    /// Before then readers are told nothing anew.
    mend_at: Option<Instant>,
}

impl UsageSpool {
    fn new(lines: Spool<Change>) -> Self {
        Self { lines, mended: 0, mend_at: None }
    }

    /// Returns once whether lines were dropped that readers still miss, as soon as lines are written again.
    pub(super) fn has_lost(&mut self, now: Instant) -> bool {
        let dropped = self.lines.dropped();
        let early = self.mend_at.is_some_and(|at| now < at);
        if dropped == self.mended || early || self.lines.is_in_trouble() {
            return false;
        }
        (self.mended, self.mend_at) = (dropped, Some(now + MEND_PERIOD));
        true
    }
}

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
    let spool = spool.inspect_err(|error| error!(%error, "changes of use are told nowhere"));
    spool.ok().map(UsageSpool::new)
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
        let Some(usage) = &self.usage else { return };
        let (since, unix_ms) = self.wall;
        let passed = now.saturating_duration_since(since).as_millis();
        let at = unix_ms + u64::try_from(passed).unwrap_or(u64::MAX - unix_ms);
        usage.lines.put(Change { at, event });
    }
}

/// The folder of the spool, in that of the store.
const FOLDER: &str = "usage";

/// All counters are told anew this often at the most: where they are more than may wait for the disk,
/// some of them are dropped each time.
const MEND_PERIOD: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn lines_that_were_dropped_are_mended_once_when_lines_are_written_again() {
        let name = format!("holdline-usage-{}", std::process::id());
        let store = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&store).unwrap();
        std::fs::write(store.join(FOLDER), "a file is in the way").unwrap();
        let mut usage = open(&store, MEMBER, 1).unwrap();
        let document = Arc::clone(&document().division);
        let put = |usage: &UsageSpool| {
            let event = UsageEvent::Begun { document: Arc::clone(&document) };
            usage.lines.put(Change { at: 0, event });
        };
        let mut now = now();

        put(&usage);
        wait(|| usage.lines.dropped() == 1);
        assert!(!usage.has_lost(now), "nothing can be written yet");
        std::fs::remove_file(store.join(FOLDER)).unwrap();
        put(&usage);
        wait(|| usage.has_lost(now));
        now += MEND_PERIOD;
        assert!(!usage.has_lost(now));

        drop(usage);
        std::fs::remove_dir_all(store).unwrap();
    }

    #[test]
    fn lines_say_who_counts_and_what_where_and_when() {
        let document = document();
        let node = document.tree().find("shop").unwrap();
        let counter = quota_split::Counter::Calls;
        let document = Arc::clone(&document.division);
        let begun = UsageEvent::Begun { document: Arc::clone(&document) };
        let changed = UsageEvent::Changed { document, node, counter, used: 4, peak: 9 };

        let lines = [begun, changed].into_iter().zip(14..).map(|(event, number)| {
            let mut line = String::new();
            let change = Change { at: 1_796_028_000_123, event };
            render(MEMBER, 1_796_020_000_000, number, &change, &mut line);
            line
        });

        let readme = include_str!("../../README.md");
        let (_, shown) = readme.split_once("```json\n").unwrap();
        assert!(lines.eq(shown.lines().take(2)), "{shown}");
    }

    const MEMBER: election::NodeId = election::NodeId { segment: election::Segment(2), rm: 1 };

    fn document() -> crate::cluster::ClusterDocument {
        let text = "version = 7\n[[segment]]\nid = 2\nsite = \"a\"\nsip = [\"192.0.2.2:5060\"]\n\
                    nodes = [{ rm = 1, id = 21 }]\n\
                    [[tenant]]\nname = \"shop\"\ncalls = 10\n";
        crate::cluster::ClusterDocument::parse(text).unwrap()
    }

    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    fn now() -> Instant {
        Instant::now()
    }

    #[expect(clippy::disallowed_methods, reason = "another thread works meanwhile")]
    fn wait(mut done: impl FnMut() -> bool) {
        for _ in 0..1000 {
            if done() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("not within 5 s");
    }
}
