//! The repository checks itself: who may import whom, and how files look.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Lines of a source file without its tests.
const LINES_MAX: usize = 600;

/// Which packages of ours each package may import, and nothing else.
const LAYERS: [(&str, &[&str]); 14] = [
    ("sip-core", &[]),
    ("quota-split", &[]),
    ("election", &[]),
    ("lb-policy", &[]),
    ("media", &[]),
    ("failover", &["sip-core"]),
    ("b2bua", &["sip-core", "failover"]),
    ("driver", &["sip-core"]),
    ("testkit", &["sip-core", "media", "driver"]),
    ("rm", LIBRARIES),
    ("mediagate", LIBRARIES),
    ("callbridge", LIBRARIES),
    ("examples", EVERYTHING),
    ("benches", EVERYTHING),
];

const LIBRARIES: &[&str] =
    &["sip-core", "quota-split", "election", "lb-policy", "media", "failover", "b2bua", "driver"];

const EVERYTHING: &[&str] = &[
    "sip-core",
    "quota-split",
    "election",
    "lb-policy",
    "media",
    "failover",
    "b2bua",
    "driver",
    "testkit",
    "rm",
    "mediagate",
    "callbridge",
];

/// What tests may import beyond the layers.
const TESTS: [(&str, &[&str]); 5] = [
    ("failover", &["testkit"]),
    ("b2bua", &["testkit"]),
    ("rm", &["testkit", "mediagate", "callbridge"]),
    ("mediagate", &["testkit"]),
    ("callbridge", &["testkit"]),
];

#[test]
fn every_package_imports_only_what_its_layer_may() {
    let layers: BTreeMap<&str, &[&str]> = LAYERS.into_iter().collect();
    let tests: BTreeMap<&str, &[&str]> = TESTS.into_iter().collect();
    let packages = packages();
    let ours: BTreeSet<&str> = packages.iter().map(Package::name).collect();
    let mut faults = Vec::new();
    for package in &packages {
        let name = package.name();
        let Some(allowed) = layers.get(name) else {
            faults.push(format!("{name} stands in no layer: a new crate needs a decision"));
            continue;
        };
        for (import, only_for_tests) in package.imports() {
            let for_tests = tests.get(name).copied().unwrap_or_default();
            // A package may import itself for its tests, with all its features.
            let may_test = only_for_tests && (import == name || for_tests.contains(&import));
            let fine = allowed.contains(&import) || may_test;
            if ours.contains(import) && !fine {
                faults.push(format!("{name} may not import {import}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_package_uses_what_it_imports() {
    let mut faults = Vec::new();
    for package in packages() {
        let folder = package.folder();
        let texts = files_in(folder.clone(), "rs").into_iter().chain([folder.join("README.md")]);
        let text: String = texts.filter_map(|path| std::fs::read_to_string(path).ok()).collect();
        for (import, _) in package.imports() {
            let path = format!("{}::", import.replace('-', "_"));
            if !text.contains(&path) {
                faults.push(format!("{} does not use {import}", package.name()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_package_inherits_the_lints() {
    for package in packages() {
        let text = std::fs::read_to_string(package.folder().join("Cargo.toml"));
        let inherits = text.expect("a manifest").contains("[lints]\nworkspace = true\n");
        assert!(inherits, "{} has lints of its own", package.name());
    }
}

#[test]
fn no_source_file_is_longer_than_the_wall() {
    let mut faults = Vec::new();
    for path in files("rs").into_iter().filter(|path| !is_test(path)) {
        let text = std::fs::read_to_string(&path).expect("a source file");
        let lines = text.lines().take_while(|line| *line != "#[cfg(test)]").count();
        if LINES_MAX < lines {
            faults.push(format!("{}: {lines} lines without tests", path.display()));
        }
    }
    assert!(faults.is_empty(), "split these:\n{}", faults.join("\n"));
}

#[test]
fn nothing_is_left_for_later_or_switched_off() {
    // Put together here, or this file would find itself.
    let marks = [
        ["TO", "DO"].concat(),
        ["FIX", "ME"].concat(),
        ["XX", "X"].concat(),
        ["todo", "!("].concat(),
        ["unimplemented", "!("].concat(),
        ["#[ig", "nore"].concat(),
    ];
    let mut faults = Vec::new();
    for path in ["rs", "toml", "sh", "py"].into_iter().flat_map(files) {
        let text = std::fs::read_to_string(&path).expect("a text file");
        for (number, line) in text.lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark.as_str())) {
                faults.push(format!("{}:{}: {line}", path.display(), number + 1));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn no_kind_of_frame_is_used_twice_on_one_class_of_links() {
    let rows = frame_rows();
    let mut faults = Vec::new();
    let mut taken: BTreeMap<(String, u16), String> = BTreeMap::new();
    for (file, kind) in frame_kinds() {
        let fits = |row: &&FrameRow| row.file == file && row.kinds.contains(&kind);
        let classes: Vec<&str> = rows.iter().filter(fits).map(|row| row.class.as_str()).collect();
        let [class] = classes[..] else {
            faults.push(format!(
                "{kind:#06x} of {file} stands in {} rows of the table",
                classes.len()
            ));
            continue;
        };
        if let Some(other) = taken.insert((class.to_owned(), kind), file.clone()) {
            faults.push(format!("{kind:#06x} is of {other} and of {file}, both on {class} links"));
        }
    }
    for row in &rows {
        let is_used =
            taken.keys().any(|(class, kind)| *class == row.class && row.kinds.contains(kind));
        if !is_used && !row.is_of_links() {
            faults.push(format!("nothing is of {:#06x?} in {}", row.kinds, row.file));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A row of the table of frames in the README of the crates.
struct FrameRow {
    kinds: RangeInclusive<u16>,
    class: String,
    file: String,
}

impl FrameRow {
    /// Whether these are frames of the links themselves, which have constants of their own.
    fn is_of_links(&self) -> bool {
        self.class == "every"
    }
}

fn frame_rows() -> Vec<FrameRow> {
    let text = std::fs::read_to_string(root().join("crates/README.md")).expect("the README");
    let rows = text.lines().filter(|line| line.starts_with("| 0x"));
    let rows: Vec<FrameRow> = rows
        .map(|row| {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let [_, kinds, _, class, file, _] = cells[..] else { panic!("{row}") };
            let (first, last) = kinds.split_once('–').unwrap_or((kinds, kinds));
            FrameRow {
                kinds: hex(first)..=hex(last),
                class: class.to_owned(),
                file: file.trim_matches('`').to_owned(),
            }
        })
        .collect();
    assert!(!rows.is_empty(), "the table of frames is gone");
    rows
}

/// Every kind of frame in the sources, with its file.
fn frame_kinds() -> Vec<(String, u16)> {
    let mut kinds = Vec::new();
    for path in files("rs").into_iter().filter(|path| !is_test(path)) {
        let text = std::fs::read_to_string(&path).expect("a source file");
        let lines = text.lines().filter_map(|line| line.split_once("const KIND: u16 = "));
        let path = path.strip_prefix(root()).expect("a file of the workspace");
        let file = path.display().to_string();
        kinds.extend(lines.map(|(_, kind)| (file.clone(), hex(kind.trim_end_matches(';')))));
    }
    kinds
}

fn hex(text: &str) -> u16 {
    let digits = text.strip_prefix("0x").expect("a number in hex");
    u16::from_str_radix(digits, 16).expect("a number of 16 bits")
}

struct Package(serde_json::Value);

impl Package {
    fn name(&self) -> &str {
        self.0["name"].as_str().expect("a name")
    }

    fn folder(&self) -> PathBuf {
        let manifest = Path::new(self.0["manifest_path"].as_str().expect("a path"));
        manifest.parent().expect("a manifest lies in a folder").to_owned()
    }

    /// What it imports, and whether for its tests alone.
    fn imports(&self) -> impl Iterator<Item = (&str, bool)> {
        let imports = self.0["dependencies"].as_array().expect("a list");
        imports.iter().map(|import| {
            // Code says the name that the manifest gives.
            let name = import["rename"].as_str().or_else(|| import["name"].as_str());
            (name.expect("a name"), import["kind"].as_str() == Some("dev"))
        })
    }
}

fn packages() -> Vec<Package> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("a list");
    packages.iter().cloned().map(Package).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

/// The workspace's files with this extension.
fn files(extension: &str) -> Vec<PathBuf> {
    files_in(root(), extension)
}

/// The files with this extension below a folder, build output left out.
fn files_in(folder: PathBuf, extension: &str) -> Vec<PathBuf> {
    let mut folders = vec![folder];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() {
                if name != "target" && name != ".git" {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|other| other == extension) {
                files.push(path);
            }
        }
    }
    files
}

fn is_test(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "tests.rs")
        || path.components().any(|part| part.as_os_str() == "tests")
}
