//! SIPp as caller and callee.

use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::Serialize;

use crate::child::Child;

const CALLER: &str = include_str!("../peers/caller.xml");
const IMPATIENT: &str = include_str!("../peers/impatient.xml");
const CALLEE: &str = include_str!("../peers/callee.xml");
/// The scenarios know each other's ports by heart, to see whether anything relays.
const CALLER_MEDIA: u16 = 6000;
const CALLEE_MEDIA: u16 = 7000;

/// Calls to make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Calls begun in a second.
    pub(crate) rate: u32,
    /// Calls in all.
    pub(crate) calls: u32,
    /// From ACK to BYE.
    pub(crate) hold: Duration,
}

impl Load {
    /// Returns how long it takes to begin all calls.
    pub(crate) fn time(&self) -> Duration {
        Duration::from_secs_f64(f64::from(self.calls) / f64::from(self.rate))
    }

    /// Returns how many calls stand at once.
    pub(crate) fn standing(&self) -> f64 {
        f64::from(self.rate) * self.hold.as_secs_f64()
    }
}

/// How the caller takes a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Any refusal is a failed call.
    Strict,
    /// A 503 is counted as such.
    Impatient,
}

/// What SIPp counted at the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counted {
    pub(crate) created: u64,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    pub(crate) retransmitted: u64,
    /// The next three only from an impatient caller.
    #[serde(skip)]
    pub(crate) byes: u64,
    #[serde(skip)]
    pub(crate) byes_answered: u64,
    #[serde(skip)]
    pub(crate) refused: u64,
}

impl Counted {
    /// Adds what another run counted.
    pub(crate) fn add(&mut self, other: Self) {
        self.created += other.created;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.retransmitted += other.retransmitted;
    }
}

/// A caller at work.
#[derive(Debug)]
pub(crate) struct Caller {
    child: Child,
    statistics: PathBuf,
    limit: Duration,
}

impl Caller {
    /// Starts to call `target` from `own`.
    pub(crate) fn start(
        folder: &Path,
        own: SocketAddrV4,
        target: SocketAddrV4,
        load: &Load,
        manner: Manner,
        core: Option<usize>,
    ) -> anyhow::Result<Self> {
        let (name, scenario) = match manner {
            Manner::Strict => ("caller", CALLER),
            Manner::Impatient => ("impatient", IMPATIENT),
        };
        let statistics = folder.join(format!("{name}-{}.csv", own.ip()));
        if statistics.exists() {
            std::fs::remove_file(&statistics)?;
        }
        let mut command = command(folder, name, scenario, own, CALLER_MEDIA)?;
        // So many at once that the limit never holds a call back.
        command.arg(target.to_string()).args(["-s", "1001", "-l", "1000000"]);
        command.arg("-r").arg(load.rate.to_string()).arg("-m").arg(load.calls.to_string());
        command.arg("-d").arg(load.hold.as_millis().to_string());
        command.args(["-trace_stat", "-fd", "1", "-stf"]).arg(&statistics);
        let errors = folder.join(format!("{name}-errors.log"));
        command.arg("-trace_err").arg("-error_file").arg(errors);
        let child = Child::start(name, &mut command, folder, core)?;
        // A call that gets no answer at all ends after 32 s.
        let limit = load.time() + load.hold + Duration::from_secs(70);
        Ok(Self { child, statistics, limit })
    }

    /// Returns whether it still calls.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.runs()
    }

    /// Returns the ids of its processes.
    pub(crate) fn family(&self) -> Vec<u32> {
        self.child.family()
    }

    /// Returns what it has counted up to the last second, nothing before the first.
    pub(crate) fn so_far(&self) -> Counted {
        let text = std::fs::read_to_string(&self.statistics).unwrap_or_default();
        // The last line may be half written.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        last_row(whole).unwrap_or_default()
    }

    /// Waits until all calls have ended.
    pub(crate) fn finish(mut self) -> anyhow::Result<Counted> {
        // Its exit code is 1 when any call failed; the counts say that better.
        self.child.wait(self.limit)?;
        let text = std::fs::read_to_string(&self.statistics)
            .with_context(|| format!("no statistics, see {}", self.child.log().display()))?;
        last_row(&text)
    }
}

/// Starts a callee at `own`.
pub(crate) fn callee(
    folder: &Path,
    own: SocketAddrV4,
    core: Option<usize>,
) -> anyhow::Result<Child> {
    let mut command = command(folder, "callee", CALLEE, own, CALLEE_MEDIA)?;
    let mut child = Child::start("callee", &mut command, folder, core)?;
    std::thread::sleep(Duration::from_millis(300));
    child.check()?;
    Ok(child)
}

fn command(
    folder: &Path,
    name: &str,
    scenario: &str,
    own: SocketAddrV4,
    media: u16,
) -> anyhow::Result<Command> {
    let path = folder.join(format!("{name}.xml"));
    std::fs::write(&path, scenario)?;
    let mut command = Command::new("sipp");
    command.arg("-sf").arg(path).arg("-nostdin").args(["-buff_size", "4000000"]);
    command.arg("-i").arg(own.ip().to_string()).arg("-p").arg(own.port().to_string());
    command.arg("-mi").arg(own.ip().to_string()).arg("-mp").arg(media.to_string());
    Ok(command)
}

fn last_row(text: &str) -> anyhow::Result<Counted> {
    let mut lines = text.lines();
    let heads: Vec<&str> = lines.next().context("empty statistics")?.split(';').collect();
    let Some(row) = lines.next_back() else { bail!("statistics without a row") };
    let row: Vec<&str> = row.split(';').collect();
    let cell = |head: &str| {
        let column = heads.iter().position(|other| *other == head)?;
        row.get(column)?.parse().ok()
    };
    let value =
        |head: &str| cell(head).with_context(|| format!("no figure {head} in the statistics"));
    let counter = |number: u8| cell(&format!("GenericCounter{number}(C)")).unwrap_or(0);
    Ok(Counted {
        created: value("TotalCallCreated")?,
        succeeded: value("SuccessfulCall(C)")?,
        failed: value("FailedCall(C)")?,
        retransmitted: value("Retransmissions(C)")?,
        byes: counter(2),
        byes_answered: counter(3),
        refused: counter(4),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_row_counts() {
        let text = "TotalCallCreated;SuccessfulCall(C);FailedCall(C);Retransmissions(C);\n\
                    1;0;0;0;\n100;98;2;5;\n";

        let counted = last_row(text).expect("well formed");

        let expected = Counted {
            created: 100,
            succeeded: 98,
            failed: 2,
            retransmitted: 5,
            ..Counted::default()
        };
        assert_eq!(counted, expected);
    }
}
