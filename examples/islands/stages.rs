//! The stages of the show.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use examples::account::{clock, pause, wait_for};
use examples::check::Check;

use crate::islands::cable::Cable;
use crate::islands::layout::{SEGMENTS, Version, pair};
use crate::islands::readings::{Readings, is_passive, speaker};
use crate::islands::show::Show;
use crate::islands::tables::{AWAKE, EVEN, ISLANDS, RESTING, TWO, Table, WEIGHTED};

/// From a segment's death to the new shares of the others, half of the times.
const DIVIDED_ANEW_P50_MAX: Duration = Duration::from_secs(4);
/// How long the death, or return, of one of a pair is watched: longer than elections take.
const WATCHED: Duration = Duration::from_secs(10);
/// From the death of who counts to its partner's first answer.
const COUNTED_MAX: Duration = Duration::from_secs(4);
/// How long after its last message a call is in the middle of nothing.
const SETTLED: Duration = Duration::from_millis(500);
/// Who takes a call over sends its ACK again if that is younger than 2 s, for it may be lost.
const ACK_DOUBT: Duration = Duration::from_millis(2500);
/// The ports of a new mediagate rest for 2 s.
const PORTS_REST: Duration = Duration::from_millis(2500);

const ALL: [usize; SEGMENTS] = [0, 1, 2];
/// The segment that dies, becomes an island, and is cold.
const THIRD: usize = 2;

const WEIGHTS: [u32; SEGMENTS] = [300, 100, 50];

impl Show<'_> {
    pub(crate) fn all_stages(&mut self, begun_at: Instant) -> anyhow::Result<()> {
        self.divided("even", &EVEN, begun_at)?;
        pause(PORTS_REST);
        self.filled("even", &EVEN)?;
        self.weighted()?;
        self.one_of_a_pair()?;
        self.failures()?;
        self.island()?;
        self.cold_site()?;
        self.end()
    }

    fn weighted(&mut self) -> anyhow::Result<()> {
        let name = "weights 300/100/50";
        let watch = self.watch();
        // To any RM, here one that neither coordinates nor counts.
        let [_, second] = pair(1);
        let at =
            self.cluster.apply(Version { number: 2, weights: WEIGHTS, cold: false }, second)?;
        self.divided(name, &WEIGHTED, at)?;
        self.untouched(name, &ALL, &watch);
        self.drained_and_filled(name, &WEIGHTED)
    }

    /// Kills who counts the calls of the first segment.
    fn one_of_a_pair(&mut self) -> anyhow::Result<()> {
        let name = "one RM of a pair killed";
        self.cluster.wait_until_protected(0)?;
        pause(ACK_DOUBT);
        let before = Readings::take();
        let victim = speaker(0).context("nobody counts the calls of the first segment")?;
        let watch = self.watch();
        self.cluster.processes.kill(|part| part == victim)?;
        let (changes, counted) = self.changes(&before);
        self.account.say(&format!("{victim} was killed, which counted the calls of its segment"));
        self.print(name, None, &WEIGHTED, &Readings::take());
        self.untouched(name, &ALL, &watch);
        self.report.check(Check::at_most(&format!("{name}: counters that changed"), changes, 0));
        let limit = COUNTED_MAX * self.args.slack;
        self.report.check(Check::within(&format!("{name}: its partner counts"), counted, limit));
        self.one_more(name, &[0])?;

        let name = "the RM returns";
        let partner = speaker(0);
        let watch = self.watch();
        self.cluster.start_rm(victim)?;
        let (changes, _) = self.changes(&before);
        self.untouched(name, &ALL, &watch);
        self.report.check(Check::at_most(&format!("{name}: counters that changed"), changes, 0));
        let stays = partner.is_some() && speaker(0) == partner;
        let text = format!("{name}: its partner still counts");
        self.report.check(Check::at_least(&text, stays.into(), 1));
        Ok(())
    }

    /// Watches all counters; returns how often one was seen that is not as `before`, and after what
    /// time those of the first segment were seen.
    fn changes(&self, before: &Readings) -> (u64, Option<Duration>) {
        let begun_at = clock();
        let (mut changes, mut counted) = (0, None);
        while clock() < begun_at + WATCHED {
            let now = Readings::take();
            let seen = ALL.into_iter().filter(|segment| now.has(*segment));
            changes += seen.filter(|segment| !now.is_same(before, *segment)).count() as u64;
            if now.has(0) {
                counted.get_or_insert_with(|| clock().saturating_duration_since(begun_at));
            }
            pause(Duration::from_millis(50));
        }
        (changes, counted)
    }

    /// Kills the third segment again and again.
    fn failures(&mut self) -> anyhow::Result<()> {
        for death in 0..self.args.kills {
            let name = "segment failure";
            pause(SETTLED);
            let watch = self.watch();
            let at = self.cluster.kill_segment(THIRD)?;
            let took = self.shares_are(&TWO, at);
            self.untouched(name, &[0, 1], &watch);
            self.divided(name, &TWO, at)?;
            self.report.divided_anew.extend(&took.into_iter().collect());
            self.phones.forget(THIRD)?;
            if death == 0 {
                self.filled(name, &TWO)?;
            }

            let name = "segment recovery";
            let watch = self.watch();
            let at = clock();
            self.cluster.start_segment(THIRD)?;
            self.divided(name, &WEIGHTED, at)?;
            self.untouched(name, &ALL, &watch);
            if death == 0 || death + 1 == self.args.kills {
                pause(PORTS_REST);
                self.drained_and_filled(name, &WEIGHTED)?;
            } else {
                self.grown(name, &WEIGHTED)?;
            }
        }
        let limit = DIVIDED_ANEW_P50_MAX * self.args.slack;
        let median = self.report.divided_anew.percentile(50);
        self.report.check(Check::within("segment failure: new shares, p50", median, limit));
        Ok(())
    }

    /// Waits until targets and caps are those of the table; returns how long that took from `since`.
    fn shares_are(&self, table: &Table, since: Instant) -> Option<Duration> {
        let are = wait_for(Duration::from_secs(30) * self.args.slack, || {
            let readings = Readings::take();
            readings.has_targets(table) && readings.has_caps(table)
        });
        are.then(|| clock().saturating_duration_since(since))
    }

    /// Takes the third segment's cables away and puts them back.
    fn island(&mut self) -> anyhow::Result<()> {
        let name = "two islands";
        let watch = self.watch();
        let at = clock();
        let mut cable = Cable::pull(&self.cluster, THIRD)?;
        pause(Duration::from_millis(200));
        cable.hold(&self.cluster)?;
        self.divided(name, &ISLANDS, at)?;
        self.untouched(name, &ALL, &watch);
        self.filled(name, &ISLANDS)?;

        let name = "islands healed";
        let watch = self.watch();
        let at = clock();
        cable.plug_in(&self.cluster)?;
        self.divided(name, &WEIGHTED, at)?;
        self.untouched(name, &ALL, &watch);
        self.drained_and_filled(name, &WEIGHTED)
    }

    /// Lets the third segment rest, take over for the first, and rest again.
    fn cold_site(&mut self) -> anyhow::Result<()> {
        let name = "cold site at rest";
        let watch = self.watch();
        let [first, _] = pair(0);
        let at = self.cluster.apply(Version { number: 3, weights: WEIGHTS, cold: true }, first)?;
        self.divided(name, &RESTING, at)?;
        self.untouched(name, &ALL, &watch);
        self.is_passive(name, true);
        self.drained_and_filled(name, &RESTING)?;

        let name = "cold site in use";
        pause(SETTLED);
        let watch = self.watch();
        let at = self.cluster.kill_segment(0)?;
        self.divided(name, &AWAKE, at)?;
        self.untouched(name, &[1, 2], &watch);
        self.phones.forget(0)?;
        self.filled(name, &AWAKE)?;
        self.is_passive(name, false);

        let name = "cold site at rest again";
        let watch = self.watch();
        let at = clock();
        self.cluster.start_segment(0)?;
        self.divided(name, &RESTING, at)?;
        self.untouched(name, &ALL, &watch);
        self.is_passive(name, true);
        pause(PORTS_REST);
        self.drained_and_filled(name, &RESTING)
    }

    fn is_passive(&mut self, name: &str, wanted: bool) {
        let passive = wait_for(Duration::from_secs(5) * self.args.slack, || {
            is_passive(THIRD) == Some(wanted)
        });
        let what = if wanted { "takes no calls" } else { "takes calls" };
        let text = format!("{name}: the third segment {what}");
        self.report.check(Check::at_least(&text, passive.into(), 1));
    }

    /// Ends every call.
    fn end(&mut self) -> anyhow::Result<()> {
        self.phones.end_down_to([Some([0; 6]); SEGMENTS])?;
        let idle = wait_for(Duration::from_secs(10) * self.args.slack, || {
            let readings = Readings::take();
            ALL.into_iter().all(|segment| readings.is_idle(segment))
        });
        self.report.check(Check::at_least(
            "all calls ended: every counter is zero",
            idle.into(),
            1,
        ));
        self.phones.begin();
        for fault in &self.phones.faults {
            self.account.say(fault);
        }
        let faults = self.phones.faults.len() as u64;
        self.report.check(Check::at_most("rules that phones saw broken", faults, 0));
        self.cluster.processes.check()
    }
}
