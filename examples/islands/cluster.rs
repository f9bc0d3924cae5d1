//! The segments that run.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use examples::account::{clock, wait_for};
use examples::process::{Process as _, Processes};

use crate::islands::args::Args;
use crate::islands::layout::{FIRST, Files, Part, SEGMENTS, Version, pair, parts};

/// Parts that the calls of a segment are dealt into.
const SLOTS: u32 = 256;

/// All processes of all segments.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) processes: Processes<Part>,
}

impl Cluster {
    /// Starts every segment with the first document.
    pub(crate) fn start(args: &Args) -> anyhow::Result<Self> {
        let processes = Processes::new("islands", args.bin_dir.clone())?;
        let token = processes.dir().join("token");
        fs::write(&token, "only-this-run-of-islands")?;
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600))?;
        fs::write(document_path(processes.dir(), FIRST), FIRST.document())?;
        let mut cluster = Self { processes };
        for segment in 0..SEGMENTS {
            cluster.spawn(&parts(segment))?;
        }
        (0..SEGMENTS).try_for_each(|segment| cluster.wait_until_up(&parts(segment)))?;
        Ok(cluster)
    }

    /// Starts a segment that was killed.
    pub(crate) fn start_segment(&mut self, segment: usize) -> anyhow::Result<()> {
        self.spawn(&parts(segment))?;
        self.wait_until_up(&parts(segment))
    }

    /// Starts one process that was killed, and waits until it has a part in its segment again.
    pub(crate) fn start_rm(&mut self, part: Part) -> anyhow::Result<()> {
        self.spawn(&[part])?;
        self.wait_until_up(&[part])?;
        self.wait_until_protected(part.segment())
    }

    /// Kills every process of a segment; returns when.
    pub(crate) fn kill_segment(&mut self, segment: usize) -> anyhow::Result<Instant> {
        let at = clock();
        self.processes.kill(|part| part.segment() == segment)?;
        Ok(at)
    }

    /// Gives a new document to an RM, as `holdline-rm apply` does; returns when.
    pub(crate) fn apply(&self, version: Version, rm: Part) -> anyhow::Result<Instant> {
        let dir = self.processes.dir();
        let document = document_path(dir, version);
        fs::write(&document, version.document())?;
        let at = clock();
        rm::apply(&document, &dir.join(format!("{}.toml", rm.name())), false)?;
        Ok(at)
    }

    /// Waits until each RM of a segment has copies of the other's calls.
    pub(crate) fn wait_until_protected(&mut self, segment: usize) -> anyhow::Result<()> {
        let sum = |name| -> Option<u32> {
            pair(segment).into_iter().map(|rm| rm.figure(name)?.parse::<u32>().ok()).sum()
        };
        let protected = wait_for(Duration::from_secs(60), || {
            self.processes.check().is_err()
                || sum("rm_slots") == Some(SLOTS) && sum("rm_slots_unprotected") == Some(0)
        });
        self.processes.check()?;
        if !protected {
            bail!("calls of segment {} have no standby", segment + 1);
        }
        Ok(())
    }

    fn spawn(&mut self, new: &[Part]) -> anyhow::Result<()> {
        let dir = self.processes.dir().to_owned();
        let (document, token) = (document_path(&dir, FIRST), dir.join("token"));
        let files = Files { dir: &dir, document: &document, token: &token };
        for part in new {
            let text = part.config(&files);
            self.processes.spawn(*part, &text).with_context(|| format!("cannot start {part}"))?;
        }
        Ok(())
    }

    fn wait_until_up(&mut self, new: &[Part]) -> anyhow::Result<()> {
        new.iter().try_for_each(|part| self.processes.wait_until_up(*part))
    }
}

fn document_path(dir: &Path, version: Version) -> PathBuf {
    dir.join(format!("cluster-{}.toml", version.number))
}
