//! The tables, what was checked, and the JSON object.

use std::fmt::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use examples::check::Check;
use examples::figures::{Figures, millis};
use serde::Serialize;

use crate::islands::args::Args;
use crate::islands::layout::SEGMENTS;
use crate::islands::readings::Readings;
use crate::islands::tables::Table;
use crate::islands::tree::TENANTS;

/// Everything that was seen.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    kills: u32,
    seed: u64,
    /// How many times as wide as the targets the limits of time were.
    slack: u32,
    met: bool,
    stages: Vec<Stage>,
    /// From the death of the third segment to the new shares of the others.
    pub(crate) divided_anew: Figures,
    checks: Vec<Check>,
    #[serde(skip)]
    pub(crate) dir: Option<PathBuf>,
}

/// The tables at one moment.
#[derive(Debug, Serialize)]
struct Stage {
    name: String,
    /// From what happened to the targets of the table.
    divided_ms: Option<f64>,
    /// Who coordinates, as each segment sees it.
    coordinators: [Option<String>; SEGMENTS],
    rows: Vec<Row>,
}

/// A tenant; each value by segment, nothing for one that is away.
#[derive(Debug, Serialize)]
struct Row {
    tenant: &'static str,
    limit: Option<u32>,
    document: [Option<u32>; SEGMENTS],
    target: [Option<u32>; SEGMENTS],
    cap: [Option<u32>; SEGMENTS],
    r#use: [Option<u32>; SEGMENTS],
}

/// A target was missed without which nothing that follows makes sense.
#[derive(Debug)]
pub(crate) struct Missed;

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a target was missed")
    }
}

impl std::error::Error for Missed {}

impl Report {
    pub(crate) fn new(args: &Args) -> Self {
        Self {
            kills: args.kills,
            seed: args.seed,
            slack: args.slack,
            met: false,
            stages: Vec::new(),
            divided_anew: Figures::default(),
            checks: Vec::new(),
            dir: None,
        }
    }

    /// Notes a check.
    pub(crate) fn check(&mut self, check: Check) {
        self.checks.push(check);
    }

    /// Notes a check without which nothing that follows makes sense.
    pub(crate) fn must(&mut self, check: Check) -> Result<(), Missed> {
        let is_met = check.is_met;
        self.checks.push(check);
        if is_met { Ok(()) } else { Err(Missed) }
    }

    /// Notes that everything was shown.
    pub(crate) fn finish(&mut self) {
        self.met = self.checks.iter().all(|check| check.is_met);
    }

    /// Whether everything was shown and every target met.
    pub(crate) fn is_met(&self) -> bool {
        self.met
    }

    /// Notes the tables of a moment and returns them for people.
    pub(crate) fn stage(
        &mut self,
        name: &str,
        divided: Option<Duration>,
        table: &Table,
        readings: &Readings,
        coordinators: [Option<String>; SEGMENTS],
    ) -> String {
        let rows = TENANTS.map(|tenant| {
            let by_segment = |value: &dyn Fn(usize) -> Option<u32>| std::array::from_fn(value);
            let counter = |segment: usize| readings.counter(tenant, segment);
            Row {
                tenant: tenant.name,
                limit: tenant.limit,
                document: by_segment(&|segment| table.share(tenant, segment)),
                target: by_segment(&|segment| counter(segment)?.target),
                cap: by_segment(&|segment| counter(segment)?.cap),
                r#use: by_segment(&|segment| Some(counter(segment)?.used)),
            }
        });
        let stage = Stage {
            name: name.to_owned(),
            divided_ms: divided.map(millis),
            coordinators,
            rows: rows.into(),
        };
        let text = stage.text(table);
        self.stages.push(stage);
        text
    }

    /// Returns all checks, and what to do about those that were missed.
    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        if 1 < self.slack {
            // Writing to a `String` cannot fail.
            let _ = writeln!(text, "limits of time are {} times the targets\n", self.slack);
        }
        for Check { name, measured, limit, is_met } in &self.checks {
            let verdict = if *is_met { "met" } else { "MISSED" };
            let _ = writeln!(text, "{verdict:<7} {name}: {measured} (target {limit})");
        }
        if 0 < self.divided_anew.count() {
            let _ = writeln!(
                text,
                "\nthe third segment's death to new shares: p50 {}, max {} ms of {}",
                self.divided_anew.text(50),
                self.divided_anew.text(100),
                self.divided_anew.count()
            );
        }
        if !self.met {
            self.write_hints(&mut text);
        }
        text
    }

    fn write_hints(&self, text: &mut String) {
        let missed = || self.checks.iter().filter(|check| !check.is_met);
        if let Some(dir) = &self.dir {
            let _ = writeln!(
                text,
                "\nhint: configuration files, logs and what RMs told last (*.json) are in {}",
                dir.display()
            );
        }
        if missed().any(|check| check.limit.ends_with(" ms")) {
            let _ = writeln!(
                text,
                "hint: on a machine with other work give times more room: --slack 4; and build with --release"
            );
        }
        if self.stages.is_empty() {
            let _ = writeln!(
                text,
                "hint: 127.0.1.1 to 127.0.3.9 have to be free on ports 5060, 5061, 7100, 7200 and 7300"
            );
        }
    }
}

impl Stage {
    fn text(&self, table: &Table) -> String {
        let there = |segment: usize| table.has(segment);
        let cells = |row: &Row, values: &[Option<u32>; SEGMENTS], is_use: bool| -> String {
            if row.limit.is_none() && !is_use {
                return format!("{:<14}", "   not set");
            }
            let cell = |(segment, value): (usize, &Option<u32>)| match value {
                Some(value) if there(segment) => format!("{value:>4} "),
                Some(_) | None => format!("{:>4} ", "-"),
            };
            values.iter().enumerate().map(cell).collect::<String>()[..14].to_owned()
        };
        let divided =
            self.divided_ms.map(|ms| format!(", divided after {ms:.0} ms")).unwrap_or_default();
        let coordinators = self.coordinators.each_ref().map(|one| one.as_deref().unwrap_or("-"));
        let mut text = format!(
            "  {}{divided}; coordinators {}\n  {:<12}{:>6} | {:<14} | {:<14} | {:<14} | {:<14}\n",
            self.name,
            coordinators.join(" "),
            "tenant",
            "limit",
            "document",
            "target",
            "cap",
            "use"
        );
        for row in &self.rows {
            let limit = row.limit.map_or_else(|| "-".to_owned(), |limit| limit.to_string());
            let _ = writeln!(
                text,
                "  {:<12}{limit:>6} | {} | {} | {} | {}",
                row.tenant,
                cells(row, &row.document, false),
                cells(row, &row.target, false),
                cells(row, &row.cap, false),
                cells(row, &row.r#use, true)
            );
        }
        text
    }
}
