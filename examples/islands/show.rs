//! What every stage of the show is made of.

use std::time::{Duration, Instant};

use examples::account::{Account, clock, wait_for};
use examples::check::Check;
use examples::process::raise_file_limit;

use crate::islands::args::Args;
use crate::islands::cluster::Cluster;
use crate::islands::layout::SEGMENTS;
use crate::islands::phones::{Calls, Phones};
use crate::islands::readings::{Readings, coordinators, write_down};
use crate::islands::report::Report;
use crate::islands::tables::Table;
use crate::islands::tree::PROFILES;

/// New shares must be there within this time; how long they took is told.
const DIVIDED_MAX: Duration = Duration::from_secs(30);
/// Caps follow calls that end, and counters calls, within this time.
const FOLLOWED_MAX: Duration = Duration::from_secs(10);

/// The segments, their phones, and what is told about them.
pub(crate) struct Show<'a> {
    pub(crate) args: &'a Args,
    pub(crate) account: &'a Account,
    pub(crate) report: &'a mut Report,
    pub(crate) cluster: Cluster,
    pub(crate) phones: Phones,
}

/// Shows everything.
pub(crate) fn run(args: &Args, account: &Account, report: &mut Report) -> anyhow::Result<()> {
    raise_file_limit()?;
    let begun_at = clock();
    let cluster = Cluster::start(args)?;
    let dir = cluster.processes.dir().to_owned();
    account.say(&format!("three segments, twelve processes run; logs in {}", dir.display()));
    report.dir = Some(dir);
    let phones = Phones::open(args.seed)?;
    let mut show = Show { args, account, report, cluster, phones };
    let shown = show.all_stages(begun_at);
    if shown.is_err() {
        write_down(show.cluster.processes.dir())?;
    }
    shown?;
    show.report.finish();
    if show.report.is_met() {
        show.cluster.processes.forget_logs();
    }
    Ok(())
}

impl Show<'_> {
    /// Waits until the targets are those of the table, and prints everything beside it.
    pub(crate) fn divided(
        &mut self,
        name: &str,
        table: &Table,
        since: Instant,
    ) -> anyhow::Result<()> {
        let mut readings = Readings::default();
        let is_divided = wait_for(DIVIDED_MAX * self.args.slack, || {
            readings = Readings::take();
            readings.has_targets(table)
        });
        let took = clock().saturating_duration_since(since);
        self.print(name, is_divided.then_some(took), table, &readings);
        self.cluster.processes.check()?;
        let as_wanted = if is_divided { "as the document says" } else { "other" };
        let check = Check::compared(
            &format!("{name}: targets"),
            &as_wanted,
            &"as the document says",
            is_divided,
        );
        Ok(self.report.must(check)?)
    }

    /// Waits until the caps are the targets.
    pub(crate) fn grown(&mut self, name: &str, table: &Table) -> anyhow::Result<()> {
        let mut readings = Readings::default();
        let has_grown = wait_for(FOLLOWED_MAX * self.args.slack, || {
            readings = Readings::take();
            readings.has_caps(table)
        });
        if !has_grown {
            self.print(name, None, table, &readings);
        }
        let measured = if has_grown { "the targets" } else { "other" };
        let check = Check::compared(&format!("{name}: caps"), &measured, &"the targets", has_grown);
        Ok(self.report.must(check)?)
    }

    /// Lets calls end that are above their segment's share, waits until the caps are the targets, and
    /// makes calls up to them.
    pub(crate) fn drained_and_filled(&mut self, name: &str, table: &Table) -> anyhow::Result<()> {
        let ended = self.phones.end_down_to(calls(table))?;
        self.account.say(&format!("{ended} calls above the new shares have ended"));
        self.filled(name, table)
    }

    /// Waits until the caps are the targets, makes calls up to them, and tries one more of each
    /// profile.
    pub(crate) fn filled(&mut self, name: &str, table: &Table) -> anyhow::Result<()> {
        self.grown(name, table)?;
        let refused = self.phones.fill(calls(table))?;
        let mut readings = Readings::default();
        let is_full = wait_for(FOLLOWED_MAX * self.args.slack, || {
            readings = Readings::take();
            readings.is_full(table)
        });
        self.print(&format!("{name}, filled by calls"), None, table, &readings);
        let wanted: u32 = calls(table).iter().flatten().flatten().sum();
        let stand = self.standing(table);
        let check = Check::compared(
            &format!("{name}: calls that stand and fill every limit"),
            &stand,
            &wanted,
            is_full && stand == wanted,
        );
        self.report.check(check);
        let text = format!("{name}: calls within the limits that were refused");
        self.report.check(Check::at_most(&text, refused as u64, 0));
        let all = (0..SEGMENTS).filter(|segment| table.has(*segment));
        self.one_more(name, &all.collect::<Vec<_>>())
    }

    /// Tries one call more of each profile in these segments: each must be refused as its policy says.
    pub(crate) fn one_more(&mut self, name: &str, segments: &[usize]) -> anyhow::Result<()> {
        let (mut tried, mut as_policy) = (0, 0);
        let mut others = Vec::new();
        for segment in segments {
            for (profile, status) in PROFILES.iter().zip(self.phones.one_more(*segment)?) {
                tried += 1;
                if status == Some(profile.status) {
                    as_policy += 1;
                } else {
                    others.push(format!("{}: {status:?}", profile.name()));
                }
            }
        }
        for other in others {
            self.account.say(&format!("not refused as its policy says: {other}"));
        }
        let text = format!(
            "{name}: calls above a limit that were refused with 486 or 480 as its policy says"
        );
        self.report.check(Check::at_least(&text, as_policy, tried));
        Ok(())
    }

    /// Returns how many calls stand in the segments of a table.
    fn standing(&self, table: &Table) -> u32 {
        let there = (0..SEGMENTS).filter(|segment| table.has(*segment));
        there.flat_map(|segment| self.phones.standing(segment)).sum()
    }

    /// Begins to watch phones that are told nothing.
    pub(crate) fn watch(&mut self) -> Watch {
        self.phones.begin();
        Watch(std::array::from_fn(|segment| self.phones.standing(segment)))
    }

    /// Checks that no call of these segments has changed, nor any of their phones heard a message.
    pub(crate) fn untouched(&mut self, name: &str, segments: &[usize], watch: &Watch) {
        let before: u32 = segments.iter().flat_map(|segment| watch.0[*segment]).sum();
        let after: u32 = segments.iter().flat_map(|segment| self.phones.standing(*segment)).sum();
        let text = format!("{name}: calls that go on");
        self.report.check(Check::compared(&text, &after, &before, after == before));
        let heard: Vec<(String, u64)> =
            segments.iter().flat_map(|segment| self.phones.received(*segment)).collect();
        for (kind, count) in &heard {
            self.account.say(&format!("{name}: phones saw {count} {kind}"));
        }
        let heard = heard.iter().map(|(_, count)| count).sum();
        let text = format!("{name}: SIP messages that their phones saw");
        self.report.check(Check::at_most(&text, heard, 0));
    }

    pub(crate) fn print(
        &mut self,
        name: &str,
        divided: Option<Duration>,
        table: &Table,
        readings: &Readings,
    ) {
        let text = self.report.stage(name, divided, table, readings, coordinators());
        self.account.table(&text);
    }
}

/// The calls that stood when a watch began.
#[derive(Debug)]
pub(crate) struct Watch([Calls; SEGMENTS]);

/// Returns the calls that fill the segments that are there.
pub(crate) fn calls(table: &Table) -> [Option<Calls>; SEGMENTS] {
    std::array::from_fn(|segment| table.has(segment).then(|| table.calls(segment)))
}
