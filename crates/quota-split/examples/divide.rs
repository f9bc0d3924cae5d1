//! Divides the limits of a file.
//!
//! A JSON list of `{"limit": 100, "weights": [300, 100, 50], "method": "dhondt"}` is printed again
//! with `shares`. A TOML file of tenants prints tables, a column per segment; see
//! `testdata/document.toml`.
#![expect(clippy::print_stderr, reason = "an example prints")]

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use quota_split::{
    Division, Kind, Limits, Method, Node, Segment, SegmentId, Tree, Weights, divide, split,
    spread_key,
};
use serde::Deserialize;
use serde_json::{Value, json};

/// A file of tenants.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tenants {
    #[serde(default)]
    method: Option<String>,
    tenant: Vec<Tenant>,
    #[serde(default)]
    table: Vec<Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tenant {
    name: String,
    #[serde(default)]
    parent: Option<String>,
    #[serde(default)]
    limit: Option<u32>,
    #[serde(default)]
    profile: bool,
    #[serde(default)]
    shares: BTreeMap<String, u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    title: String,
    segment: Vec<Column>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Column {
    id: u32,
    #[serde(default = "usual_weight")]
    weight: u32,
    /// Segments of different islands do not see each other.
    #[serde(default)]
    island: u32,
    #[serde(default)]
    down: bool,
}

fn usual_weight() -> u32 {
    100
}

fn main() -> anyhow::Result<ExitCode> {
    let path = std::env::args().nth(1).context("usage: divide FILE.json | FILE.toml")?;
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    if text.trim_start().starts_with('[') && serde_json::from_str::<Value>(&text).is_ok()
        || path.ends_with(".json")
    {
        rows(&text, &mut std::io::stdout().lock())
    } else {
        tables(&text, &mut std::io::stdout().lock())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints a list of divisions with their shares. A row that cannot be divided gets an `error`.
fn rows(text: &str, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let mut rows: Vec<Value> = serde_json::from_str(text).context("not a list of divisions")?;
    let mut code = ExitCode::SUCCESS;
    for row in &mut rows {
        let (field, value) = match shares(row) {
            Ok(shares) => ("shares", shares),
            Err(error) => {
                eprintln!("{error:#}: {row}");
                code = ExitCode::FAILURE;
                ("error", Value::String(format!("{error:#}")))
            }
        };
        if let Some(row) = row.as_object_mut() {
            row.insert(field.to_owned(), value);
        }
    }
    writeln!(out, "{}", serde_json::to_string_pretty(&rows)?)?;
    Ok(code)
}

fn shares(row: &Value) -> anyhow::Result<Value> {
    let weights = row.get("weights").context("no weights")?.clone();
    let weights: Vec<u32> = serde_json::from_value(weights).context("unfit weights")?;
    let method = match row.get("method") {
        None | Some(Value::Null) => Method::default(),
        Some(name) => named(name.as_str().context("the method is no text")?)?,
    };
    let limit: Option<u32> = match row.get("limit") {
        None => None,
        Some(limit) => serde_json::from_value(limit.clone()).context("unfit limit")?,
    };
    let Some(limit) = limit else {
        return Ok(json!(vec![Value::Null; weights.len()]));
    };
    // What `spread` rounds by: a key of its own, else the row's name.
    let key = row.get("key").or_else(|| row.get("name"));
    let key = match key {
        Some(Value::Number(key)) => key.as_u64().context("the key is no whole number")?,
        Some(Value::String(key)) => spread_key(key),
        Some(_) | None => 0,
    };
    Ok(json!(split(limit, &Weights::new(weights)?, method, key)))
}

fn named(name: &str) -> anyhow::Result<Method> {
    let name = name.replace('-', "_");
    Method::from_name(&name).with_context(|| format!("there is no method {name:?}"))
}

/// Prints every table of a file of tenants.
fn tables(text: &str, out: &mut impl Write) -> anyhow::Result<()> {
    let file: Tenants = toml::from_str(text)?;
    let method = file.method.as_deref().map(named).transpose()?.unwrap_or_default();
    let nodes: Vec<Node> = file.tenant.into_iter().map(node).collect::<anyhow::Result<_>>()?;
    let tree = Tree::new(nodes)?;
    if file.table.is_empty() {
        bail!("there is no [[table]]");
    }
    for table in &file.table {
        print_table(&tree, table, method, out)?;
    }
    Ok(())
}

fn node(tenant: Tenant) -> anyhow::Result<Node> {
    let mut manual = BTreeMap::new();
    for (segment, share) in tenant.shares {
        let segment = segment.parse().with_context(|| format!("{segment:?} is no segment"))?;
        manual.insert(SegmentId(segment), share);
    }
    Ok(Node {
        name: tenant.name,
        parent: tenant.parent,
        kind: if tenant.profile { Kind::Profile } else { Kind::Tenant },
        limits: Limits { calls: tenant.limit, ..Limits::default() },
        manual,
        ..Node::default()
    })
}

fn print_table(
    tree: &Tree,
    table: &Table,
    method: Method,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let mut islands: BTreeMap<u32, Vec<Segment>> = BTreeMap::new();
    for column in table.segment.iter().filter(|column| !column.down) {
        let segment = Segment { id: SegmentId(column.id), weight: column.weight };
        islands.entry(column.island).or_default().push(segment);
    }
    let divide_island = |segments: &Vec<Segment>| divide(tree, segments, method);
    let divisions: BTreeMap<u32, Division> = islands
        .iter()
        .map(|(&island, segments)| Ok((island, divide_island(segments)?)))
        .collect::<anyhow::Result<_>>()
        .with_context(|| format!("table {:?}", table.title))?;

    writeln!(out, "{}", table.title)?;
    write!(out, "| Tenant |")?;
    for column in &table.segment {
        let island =
            if 1 < islands.len() { format!("island {}, ", column.island) } else { String::new() };
        match column.down {
            true => write!(out, " Segment {} (down) |", column.id)?,
            false => write!(out, " Segment {} ({island}weight {}) |", column.id, column.weight)?,
        }
    }
    writeln!(out, "\n|---|{}", "---|".repeat(table.segment.len()))?;
    for (id, node) in tree.iter() {
        write!(out, "| {} |", node.name)?;
        for column in &table.segment {
            let division = divisions.get(&column.island).filter(|_| !column.down);
            let Some(division) = division else {
                write!(out, " -- |")?;
                continue;
            };
            let place = division.segments().iter().position(|segment| segment.0 == column.id);
            match (division.shares(id), place) {
                (Some(shares), Some(place)) => write!(out, " {} |", shares[place])?,
                (Some(_) | None, _) => write!(out, " Not set |")?,
            }
        }
        writeln!(out)?;
    }
    writeln!(out)?;
    Ok(())
}
