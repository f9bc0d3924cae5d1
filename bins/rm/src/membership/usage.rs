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
    /// When to look again whether lines were dropped.
    look_at: Instant,
}

impl UsageSpool {
    fn new(now: Instant, lines: Spool<Change>) -> Self {
        Self { lines, mended: 0, look_at: now + LOOK_PERIOD }
    }

    /// Looks when that is due; returns whether readers miss lines that were dropped: once, and not before
    /// lines are written again.
    pub(super) fn has_lost(&mut self, now: Instant) -> bool {
        if now < self.look_at {
            return false;
        }
        let dropped = self.lines.dropped();
        let lost = dropped != self.mended && !self.lines.is_in_trouble();
        if lost {
            self.mended = dropped;
        }
        self.look_at = now + if lost { MEND_PERIOD } else { LOOK_PERIOD };
        lost
    }

    /// Returns when [`has_lost`](Self::has_lost) is next to be asked.
    pub(super) fn poll_timeout(&self) -> Instant {
        self.look_at
    }
}

/// One change of use, as the thread that writes it gets it.
#[derive(Debug)]
pub(super) struct Change {
    at: u64,
    event: UsageEvent,
}

/// Opens the spool in the folder of the store. Who cannot have one goes on without.
pub(super) fn open(
    now: Instant,
    store: &Path,
    node: election::NodeId,
    boot: u64,
) -> Option<UsageSpool> {
    let folder = store.join(FOLDER);
    let numbers = std::cell::Cell::new(0_u64);
    let render = move |change: &Change, line: &mut String| {
        numbers.set(numbers.get() + 1);
        render(node, boot, numbers.get(), change, line);
    };
    let spool = Spool::open(&folder, Bounds::default(), render);
    let spool = spool.inspect_err(|error| error!(%error, "changes of use are told nowhere"));
    spool.ok().map(|lines| UsageSpool::new(now, lines))
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

/// How often to look whether lines were dropped.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// All counters are told anew this often at the most: where they are more than may wait for the disk,
/// some of them are dropped each time.
const MEND_PERIOD: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::task::Waker;

    use driver::Start;

    use super::*;
    use crate::cluster::{Input, Output};
    use crate::config::{ClusterConfig, Config};

    #[test]
    fn lines_that_were_dropped_are_mended_once_when_lines_are_written_again() {
        let mut run = Run::new("mended");
        let due = |run: &mut Run| {
            let usage = run.membership.usage.as_mut().unwrap();
            run.now = usage.poll_timeout();
            usage.has_lost(run.now)
        };

        run.block();
        run.put();
        wait(|| run.usage().lines.dropped() == 1);
        assert!(!due(&mut run), "nothing can be written yet");
        run.unblock();
        assert!(due(&mut run));
        assert!(!due(&mut run));
        assert_eq!(run.usage().poll_timeout(), run.now + LOOK_PERIOD);
    }

    #[test]
    fn lines_that_are_dropped_all_the_time_are_mended_every_ten_seconds() {
        let mut run = Run::new("often");
        let mut mended = 0;
        for _ in 0..31 {
            run.block();
            run.put();
            wait(|| run.usage().lines.is_in_trouble());
            run.unblock();
            run.now += LOOK_PERIOD;
            mended += usize::from(run.membership.usage.as_mut().unwrap().has_lost(run.now));
        }
        assert_eq!(mended, 4, "after 1, 11, 21 and 31 seconds");
    }

    #[test]
    fn a_node_whose_lines_were_dropped_begins_again_within_two_seconds() {
        let mut run = Run::new("begins");
        run.block();
        assert_eq!(run.pass(20), 1, "it counts from its start on");
        wait(|| run.usage().lines.dropped() == 1);
        assert_eq!(run.pass(60), 0, "nothing can be written");

        run.unblock();
        assert_eq!(run.pass(2), 1);
        assert_eq!(run.pass(60), 0);
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

    /// The only node of a cluster, and its spool in a folder of its own.
    struct Run {
        now: Instant,
        membership: Membership,
        store: PathBuf,
    }

    impl Run {
        fn new(name: &str) -> Self {
            let name = format!("holdline-usage-{name}-{}", std::process::id());
            let (now, store) = (now(), std::env::temp_dir().join(name));
            std::fs::create_dir_all(&store).unwrap();
            let config = Config::new(failover::NodeId(21), Ipv4Addr::LOCALHOST.into());
            let part = ClusterConfig {
                id: MEMBER,
                site: "a".into(),
                document: Some(Arc::new(document())),
                timing: election::Timing::default(),
            };
            let start = Start {
                seed: 1,
                instant: now,
                unix_ms: 1,
                boot: 1,
                epoch: 1,
                realtime: false,
                waker: Waker::noop().clone(),
            };
            let mut membership = Membership::new(&config, &part, &start, None);
            membership.usage = open(now, &store, MEMBER, 1);
            Self { now, membership, store }
        }

        fn usage(&self) -> &UsageSpool {
            self.membership.usage.as_ref().unwrap()
        }

        /// Nothing can be written from now on.
        fn block(&self) {
            // Nothing is there before the first line.
            let _ = std::fs::remove_dir_all(self.store.join(FOLDER));
            std::fs::write(self.store.join(FOLDER), "a file is in the way").unwrap();
        }

        /// A line is written again.
        fn unblock(&self) {
            std::fs::remove_file(self.store.join(FOLDER)).unwrap();
            self.put();
            wait(|| !self.usage().lines.is_in_trouble());
        }

        fn put(&self) {
            let document = Arc::clone(&document().division);
            self.membership.keep_usage(self.now, UsageEvent::Begun { document });
        }

        /// Lets so many seconds pass; returns how often the node began to count.
        fn pass(&mut self, seconds: u64) -> usize {
            let until = self.now + Duration::from_secs(seconds);
            let mut begun = 0;
            while let Some(at) = self.membership.poll_timeout().filter(|at| *at <= until) {
                self.now = self.now.max(at);
                self.membership.handle_timeout(self.now);
                while let Some(output) = self.membership.cluster.poll_output() {
                    let answer = match output {
                        Output::Persist { serial, .. } => Input::Persisted(serial),
                        Output::NeedLive { .. } => Input::Live(Vec::new()),
                        Output::Usage(event) => {
                            begun += usize::from(matches!(event, UsageEvent::Begun { .. }));
                            self.membership.keep_usage(self.now, event);
                            continue;
                        }
                        Output::Send { .. }
                        | Output::Decided { .. }
                        | Output::Passive(_)
                        | Output::Divided { .. }
                        | Output::Alarm(_)
                        | Output::Drifted(_) => continue,
                    };
                    self.membership.cluster.handle_input(self.now, answer);
                }
            }
            self.now = until;
            begun
        }
    }

    impl Drop for Run {
        fn drop(&mut self) {
            // What was put last may still be written into it.
            self.membership.usage = None;
            std::fs::remove_dir_all(&self.store).unwrap();
        }
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
