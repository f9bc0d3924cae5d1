//! Tables for people, one JSON object for programs.

use std::fmt;
use std::io::Write as _;

use serde::Serialize;

/// A table whose first column is text and whose others are figures.
#[derive(Debug)]
pub(crate) struct Table {
    title: String,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Starts a table under `title` with these column heads.
    pub(crate) fn new(title: String, heads: &[&str]) -> Self {
        Self { title, rows: vec![heads.iter().map(|head| (*head).to_owned()).collect()] }
    }

    /// Appends a row.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        for row in &self.rows {
            let mut line = String::from(" ");
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let width = *width;
                line += &if column == 0 {
                    format!(" {cell:<width$}")
                } else {
                    format!("  {cell:>width$}")
                };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Something that was promised, and whether it was kept.
#[derive(Debug, Serialize)]
pub(crate) struct Target {
    name: String,
    limit: f64,
    value: Option<f64>,
    met: Option<bool>,
    /// Whether it fails the program when it is missed.
    #[serde(skip)]
    binds: bool,
}

impl Target {
    /// `value` must not pass `limit`; `None` is a value that could not be measured.
    pub(crate) fn at_most(name: impl Into<String>, limit: f64, value: Option<f64>) -> Self {
        let met = value.map(|value| value <= limit);
        Self { name: name.into(), limit, value, met, binds: true }
    }

    /// `value` must reach `limit`.
    pub(crate) fn at_least(name: impl Into<String>, limit: f64, value: Option<f64>) -> Self {
        let met = value.map(|value| limit <= value);
        Self { name: name.into(), limit, value, met, binds: true }
    }

    /// Of two times, which other work on the machine moves apart: shown, and no failure.
    pub(crate) fn of_times(self) -> Self {
        Self { binds: false, ..self }
    }
}

/// Fails where a target was missed, unless it only sets two times against each other. A time by itself
/// binds: whoever runs this by hand leaves the machine nothing else to do. What must not fail where that
/// is slow, as all that `.ci/run` calls, and whole programs beside other work, are not judged.
pub(crate) fn judge(targets: &[Target]) -> anyhow::Result<()> {
    let missed = targets.iter().filter(|target| target.binds && target.met == Some(false));
    let missed: Vec<&str> = missed.map(|target| &*target.name).collect();
    anyhow::ensure!(missed.is_empty(), "missed: {}", missed.join("; "));
    Ok(())
}

/// Shows targets as a table.
pub(crate) fn targets(targets: &[Target]) -> Table {
    let mut table = Table::new("targets".to_owned(), &["", "limit", "measured", ""]);
    for target in targets {
        let verdict = match target.met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "not measured",
        };
        table.row(vec![
            target.name.clone(),
            number(Some(target.limit), 2),
            number(target.value, 2),
            verdict.to_owned(),
        ]);
    }
    table
}

/// Formats a figure, or a dash where there is none.
pub(crate) fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

/// Tells what is being done, on standard error.
pub(crate) fn progress(what: impl fmt::Display) {
    // A closed standard error is no reason to stop measuring.
    let _ = writeln!(std::io::stderr(), "{what}");
}

/// Prints the tables to standard output; or, for `json`, the tables to
/// standard error and `value` as one object to standard output.
pub(crate) fn finish(json: bool, tables: &[Table], value: &impl Serialize) -> anyhow::Result<()> {
    let tables: Vec<String> = tables.iter().map(ToString::to_string).collect();
    let text = tables.join("\n");
    if json {
        progress(text);
        writeln!(std::io::stdout(), "{}", serde_json::to_string(value)?)?;
    } else {
        write!(std::io::stdout(), "{text}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_under_their_heads() {
        let mut table = Table::new("title".to_owned(), &["", "ms"]);
        table.row(vec!["a long name".to_owned(), "1.25".to_owned()]);

        assert_eq!(table.to_string(), "title\n                 ms\n  a long name  1.25\n");
    }

    #[test]
    fn a_target_that_was_missed_is_an_error_and_names_itself() {
        let met = Target::at_most("met", 1.0, Some(1.0));
        assert!(judge(&[met, Target::at_most("none", 1.0, None)]).is_ok());
        let missed = judge(&[Target::at_least("calls", 1.0, Some(0.5))]);
        assert_eq!(missed.unwrap_err().to_string(), "missed: calls");
        assert!(judge(&[Target::at_least("ratio", 1.0, Some(0.5)).of_times()]).is_ok());
    }

    #[test]
    fn what_runs_on_machines_that_may_be_slow_is_not_judged() {
        let called: Vec<&str> = include_str!("../../.ci/run")
            .lines()
            .filter_map(|line| line.split_once("\"$bin/benches\" ")?.1.split(' ').next())
            .collect();
        assert_eq!(called, ["relay", "calls"], "others are here as soon as they are not judged");
        for source in [include_str!("relay.rs"), include_str!("calls.rs")] {
            assert!(!source.contains("judge("));
        }
    }

    #[test]
    fn what_measures_no_other_program_ends_with_its_judgement() {
        for source in [
            include_str!("admission.rs"),
            include_str!("division.rs"),
            include_str!("lending.rs"),
            include_str!("sip_parse.rs"),
            include_str!("sip_transactions.rs"),
        ] {
            assert_eq!(source.matches("\n    report::judge(&report.targets)\n}\n").count(), 1);
        }
    }

    #[test]
    fn a_target_that_was_not_measured_is_neither_met_nor_missed() {
        assert_eq!(Target::at_most("x", 1.0, None).met, None);
        assert_eq!(Target::at_most("x", 1.0, Some(1.0)).met, Some(true));
        assert_eq!(Target::at_most("x", 1.0, Some(1.5)).met, Some(false));
        assert_eq!(Target::at_least("x", 1.0, Some(1.0)).met, Some(true));
        assert_eq!(Target::at_least("x", 1.0, Some(0.5)).met, Some(false));
    }
}
