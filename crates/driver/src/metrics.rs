//! Counters and gauges, and their text form.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A copy of a node's figures at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    families: BTreeMap<&'static str, Family>,
}

#[derive(Clone, Debug, PartialEq)]
struct Family {
    kind: &'static str,
    help: &'static str,
    /// Labels in text form, and the value.
    samples: Vec<(String, Value)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    Counter(u64),
    Gauge(f64),
}

impl Metrics {
    /// Adds one sample of a figure that only grows. Its name ends in `_total`.
    pub fn counter(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &[(&str, &str)],
        value: u64,
    ) {
        self.add(name, "counter", help, labels, Value::Counter(value));
    }

    /// Adds one sample of a figure that goes up and down.
    pub fn gauge(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &[(&str, &str)],
        value: f64,
    ) {
        self.add(name, "gauge", help, labels, Value::Gauge(value));
    }

    fn add(
        &mut self,
        name: &'static str,
        kind: &'static str,
        help: &'static str,
        labels: &[(&str, &str)],
        value: Value,
    ) {
        self.families
            .entry(name)
            .or_insert_with(|| Family { kind, help, samples: Vec::new() })
            .samples
            .push((label_text(labels), value));
    }

    /// Returns the figures in the Prometheus text format 0.0.4.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, family) in &self.families {
            // Writing to a `String` cannot fail.
            let _ = writeln!(text, "# HELP {name} {}", family.help);
            let _ = writeln!(text, "# TYPE {name} {}", family.kind);
            for (labels, value) in &family.samples {
                let _ = match value {
                    Value::Counter(value) => writeln!(text, "{name}{labels} {value}"),
                    Value::Gauge(value) => writeln!(text, "{name}{labels} {value}"),
                };
            }
        }
        text
    }
}

/// `{a="b",c="d"}`, or nothing.
fn label_text(labels: &[(&str, &str)]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let mut text = String::from("{");
    for (index, (name, value)) in labels.iter().enumerate() {
        if index != 0 {
            text.push(',');
        }
        text.push_str(name);
        text.push_str("=\"");
        for character in value.chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                other => text.push(other),
            }
        }
        text.push('"');
    }
    text.push('}');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_one_name_stand_together_under_one_heading() {
        let mut metrics = Metrics::default();
        metrics.counter("calls_total", "Calls.", &[("end", "kept")], 7);
        metrics.gauge("load", "Load.", &[], 0.5);
        metrics.counter("calls_total", "Calls.", &[("end", "lost")], 0);

        assert_eq!(
            metrics.text(),
            "# HELP calls_total Calls.\n\
             # TYPE calls_total counter\n\
             calls_total{end=\"kept\"} 7\n\
             calls_total{end=\"lost\"} 0\n\
             # HELP load Load.\n\
             # TYPE load gauge\n\
             load 0.5\n"
        );
    }

    #[test]
    fn a_label_cannot_break_out_of_its_quotes() {
        assert_eq!(label_text(&[("a", "x\"} 1\n\\")]), "{a=\"x\\\"} 1\\n\\\\\"}");
    }
}
