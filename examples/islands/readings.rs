//! What the RMs tell over HTTP.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use examples::process::Process as _;
use serde::Deserialize;
use testkit::program::page;

use crate::islands::layout::{Part, SEGMENTS, pair};
use crate::islands::tables::Table;
use crate::islands::tree::{TENANTS, Tenant};

/// What one segment counts at a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Counter {
    pub(crate) target: Option<u32>,
    pub(crate) cap: Option<u32>,
    #[serde(rename = "use")]
    pub(crate) used: u32,
}

/// What all segments count, by tenant; nothing of a segment of which nobody counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Readings([BTreeMap<String, Counter>; SEGMENTS]);

#[derive(Deserialize)]
struct Page {
    tenants: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    counters: Vec<Counter>,
}

#[derive(Deserialize)]
struct View {
    mandate: Option<Mandate>,
    passive: bool,
    segments: BTreeMap<String, Segment>,
}

#[derive(Deserialize)]
struct Mandate {
    coordinator: String,
}

#[derive(Deserialize)]
struct Segment {
    speaker: Option<String>,
}

impl Readings {
    /// Asks who counts in each segment.
    pub(crate) fn take() -> Self {
        Self(std::array::from_fn(|segment| {
            let pages = pair(segment).into_iter().filter_map(tenants);
            pages.into_iter().find(|rows| !rows.is_empty()).unwrap_or_default()
        }))
    }

    pub(crate) fn counter(&self, tenant: Tenant, segment: usize) -> Option<Counter> {
        self.0[segment].get(tenant.name).copied()
    }

    /// Whether the targets of every segment that is there are those of the table.
    pub(crate) fn has_targets(&self, table: &Table) -> bool {
        self.all(table, |counter, share| counter.target == share)
    }

    /// Whether the caps are.
    pub(crate) fn has_caps(&self, table: &Table) -> bool {
        self.all(table, |counter, share| counter.cap == share)
    }

    /// Whether all limits are used up as the table says.
    pub(crate) fn is_full(&self, table: &Table) -> bool {
        self.all(table, |counter, share| share.is_none_or(|share| counter.used == share))
    }

    /// Whether a segment counts no calls.
    pub(crate) fn is_idle(&self, segment: usize) -> bool {
        !self.0[segment].is_empty() && self.0[segment].values().all(|counter| counter.used == 0)
    }

    /// Whether somebody counts in a segment.
    pub(crate) fn has(&self, segment: usize) -> bool {
        !self.0[segment].is_empty()
    }

    /// Whether both tell the same of a segment.
    pub(crate) fn is_same(&self, other: &Self, segment: usize) -> bool {
        self.0[segment] == other.0[segment]
    }

    fn all(&self, table: &Table, holds: impl Fn(Counter, Option<u32>) -> bool) -> bool {
        let there = (0..SEGMENTS).filter(|segment| table.has(*segment));
        there.into_iter().all(|segment| {
            TENANTS.into_iter().all(|tenant| {
                let counter = self.counter(tenant, segment);
                counter.is_some_and(|counter| holds(counter, table.share(tenant, segment)))
            })
        })
    }
}

/// Returns who coordinates, as each segment sees it.
pub(crate) fn coordinators() -> [Option<String>; SEGMENTS] {
    std::array::from_fn(|segment| {
        let mut views = pair(segment).into_iter().filter_map(view);
        views.find_map(|view| Some(view.mandate?.coordinator))
    })
}

/// Returns the RM that counts the calls of a segment.
pub(crate) fn speaker(segment: usize) -> Option<Part> {
    let view = pair(segment).into_iter().find_map(view)?;
    let speaker = view.segments.get(&(segment + 1).to_string())?.speaker.as_ref()?;
    pair(segment).into_iter().find(|rm| rm.member() == *speaker)
}

/// Whether a segment takes no calls.
pub(crate) fn is_passive(segment: usize) -> Option<bool> {
    let [one, other] = pair(segment).map(view);
    Some(one?.passive && other?.passive)
}

/// Writes what every RM tells to files, for who wants to know why a target was missed.
pub(crate) fn write_down(dir: &Path) -> anyhow::Result<()> {
    for rm in (0..SEGMENTS).flat_map(pair) {
        for path in ["cluster", "tenants"] {
            // Of one that does not answer there is nothing to tell.
            if let Ok(page) = page(rm.http(), &format!("/api/v1/{path}")) {
                fs::write(dir.join(format!("{}-{path}.json", rm.name())), page)?;
            }
        }
    }
    Ok(())
}

fn tenants(rm: Part) -> Option<BTreeMap<String, Counter>> {
    let page: Page = serde_json::from_str(&page(rm.http(), "/api/v1/tenants").ok()?).ok()?;
    let rows = page.tenants.into_iter();
    Some(rows.filter_map(|row| Some((row.name, row.counters.first().copied()?))).collect())
}

fn view(rm: Part) -> Option<View> {
    serde_json::from_str(&page(rm.http(), "/api/v1/cluster").ok()?).ok()
}
