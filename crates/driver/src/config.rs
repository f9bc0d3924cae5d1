//! A reader of configuration files that finds everything wrong at once.
//!
//! A file is walked table by table. Each reader asks a [`Table`] for the keys
//! that it knows; wrong types, values out of range, missing keys, and keys
//! that nobody asked for become [`Faults`], each with its line. A file whose
//! syntax is wrong is told that alone.
//!
//! ```
//! use driver::config;
//!
//! let text = "[node]\nid = 0\nadress = '127.0.0.1'\n";
//! let faults = config::read(text, |root| {
//!     let node = root.table("node");
//!     let id = node.key("id").required("an id of its own, 1 to 65535").integer(1..=65535_u16);
//!     let address = node.key("address").ip();
//!     Some((id?, address))
//! })
//! .unwrap_err();
//! assert_eq!(
//!     faults.to_string(),
//!     "line 2: `id` in [node] is 0; use 1 to 65535\n\
//!      line 3: `adress` in [node] is unknown; did you mean `address`?\n"
//! );
//! ```

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

#[cfg(test)]
mod tests;

/// One thing that is wrong in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// Where, counted from 1.
    pub line: usize,
    /// What, and what to do about it.
    pub text: String,
}

/// Everything that is wrong in a file, by line. Its author is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// Puts faults together that were found beside reading; `None` where there are none.
    pub fn new(mut faults: Vec<Fault>) -> Option<Self> {
        faults.sort();
        (!faults.is_empty()).then_some(Self(faults))
    }

    /// Returns the faults, by line; there is at least one.
    pub fn list(&self) -> &[Fault] {
        &self.0
    }
}

impl Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|fault| writeln!(f, "line {}: {}", fault.line, fault.text))
    }
}

/// Why a configuration could not be had from a file. Its author is at fault,
/// or whoever named it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file could not be read.
    #[error("{}", path.display())]
    Unread {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something is wrong in it.
    #[error("{}:\n{faults}", path.display())]
    Faulty {
        /// The file.
        path: PathBuf,
        /// Everything that is.
        faults: Faults,
    },
}

/// Reads a file with `parse`.
///
/// # Errors
/// Why the file cannot be read, or everything that is wrong in it.
pub fn load<T>(path: &Path, parse: impl FnOnce(&str) -> Result<T, Faults>) -> Result<T, LoadError> {
    let bytes = std::fs::read(path)
        .map_err(|source| LoadError::Unread { path: path.to_owned(), source })?;
    let text = String::from_utf8(bytes).map_err(|error| no_text(&error));
    text.and_then(|text| parse(&text))
        .map_err(|faults| LoadError::Faulty { path: path.to_owned(), faults })
}

fn no_text(error: &FromUtf8Error) -> Faults {
    let (before, _) = error.as_bytes().split_at(error.utf8_error().valid_up_to());
    let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
    let text = "what stands here is no text; save the file as UTF-8".into();
    Faults(vec![Fault { line, text }])
}

/// Returns a text without the byte order mark that some editors write before it.
pub fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Reads a file's text with `read`, which returns `None` only after a fault.
///
/// # Errors
/// Everything that is wrong in the text.
///
/// # Panics
/// When `read` returns `None` and no fault was found.
pub fn read<T>(text: &str, read: impl FnOnce(&Table<'_>) -> Option<T>) -> Result<T, Faults> {
    let (root, errors) = DeTable::parse_recoverable(text);
    let file = File { text, faults: RefCell::default() };
    for error in &errors {
        file.fault(error.span().map_or(0, |span| span.start), error.message());
    }
    if !errors.is_empty() {
        return Err(file.into_faults());
    }
    let table = Table::new(&file, Some(root.get_ref()), String::new(), 0);
    let value = read(&table);
    drop(table);
    match value {
        _ if !file.faults.borrow().is_empty() => Err(file.into_faults()),
        value => Ok(value.expect("a value is missing only after a fault")),
    }
}

struct File<'a> {
    text: &'a str,
    faults: RefCell<Vec<Fault>>,
}

impl File<'_> {
    fn fault(&self, at: usize, text: impl Into<String>) {
        let (line, text) = (self.line(at), text.into());
        self.faults.borrow_mut().push(Fault { line, text });
    }

    fn line(&self, at: usize) -> usize {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        1 + before.iter().filter(|&&byte| byte == b'\n').count()
    }

    fn into_faults(self) -> Faults {
        let mut faults = self.faults.into_inner();
        faults.sort();
        faults.dedup();
        Faults(faults)
    }
}

/// One table of a file. When it is dropped, keys that nobody asked for are
/// faults.
pub struct Table<'a> {
    file: &'a File<'a>,
    /// `None` if the file has no such table.
    entries: Option<&'a DeTable<'a>>,
    /// For people: empty for the root.
    name: String,
    /// Where it begins, in bytes.
    at: usize,
    asked: RefCell<BTreeSet<&'static str>>,
}

impl<'a> Table<'a> {
    fn new(file: &'a File<'a>, entries: Option<&'a DeTable<'a>>, name: String, at: usize) -> Self {
        Self { file, entries, name, at, asked: RefCell::default() }
    }

    /// Whether the file has this table.
    pub fn is_present(&self) -> bool {
        self.entries.is_some()
    }

    /// Returns the key, whether it is there or not.
    pub fn key(&self, key: &'static str) -> Key<'_> {
        self.asked.borrow_mut().insert(key);
        let entry = self.entries.and_then(|entries| entries.get_key_value(key));
        Key { file: self.file, table: &self.name, table_at: self.at, key, entry: entry.map(value) }
    }

    /// Returns the table below this key; an empty one if it is not there.
    pub fn table(&self, key: &'static str) -> Self {
        self.asked.borrow_mut().insert(key);
        let name = self.below(key);
        match self.entries.and_then(|entries| entries.get_key_value(key)) {
            None => Self::new(self.file, None, name, self.at),
            Some((key, value)) => {
                let DeValue::Table(entries) = value.get_ref() else {
                    let kind = kind(value.get_ref());
                    let text = format!("`{name}` is {kind}; make it a table: [{name}]");
                    self.file.fault(value.span().start, text);
                    return Self::new(self.file, None, name, self.at);
                };
                let entries = Some(entries);
                Self::new(self.file, entries, name, key.span().start)
            }
        }
    }

    /// Returns the tables of the array below this key, in order.
    pub fn tables(&self, key: &'static str) -> Vec<Self> {
        self.asked.borrow_mut().insert(key);
        let name = self.below(key);
        let Some(value) = self.entries.and_then(|entries| entries.get(key)) else {
            return Vec::new();
        };
        let wrong = |value: &Spanned<DeValue<'_>>| {
            let text = format!("`{name}` is {}; write [[{name}]]", kind(value.get_ref()));
            self.file.fault(value.span().start, text);
            None
        };
        let DeValue::Array(values) = value.get_ref() else {
            wrong(value);
            return Vec::new();
        };
        let table = |value: &'a Spanned<DeValue<'a>>| {
            let DeValue::Table(entries) = value.get_ref() else { return wrong(value) };
            Some(Self::new(self.file, Some(entries), name.clone(), value.span().start))
        };
        values.iter().filter_map(table).collect()
    }

    /// Returns the line where it begins, counted from 1; where the file has no such table, that of
    /// what it would stand in.
    pub fn line(&self) -> usize {
        self.file.line(self.at)
    }

    /// Reports a fault of the table as a whole.
    pub fn fault(&self, text: impl Display) {
        self.file.fault(self.at, text.to_string());
    }

    fn below(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }
}

impl Drop for Table<'_> {
    fn drop(&mut self) {
        let asked = self.asked.borrow();
        for key in self.entries.iter().flat_map(|entries| entries.keys()) {
            if asked.contains(key.get_ref().as_ref()) {
                continue;
            }
            let remedy = match nearest(key.get_ref(), &asked) {
                Some(near) => format!("did you mean `{near}`?"),
                None if asked.is_empty() => "nothing stands here".into(),
                None => {
                    let known: Vec<_> = asked.iter().map(|key| format!("`{key}`")).collect();
                    format!("known here: {}", known.join(", "))
                }
            };
            let place = Place(&self.name);
            let text = format!("`{}`{place} is unknown; {remedy}", key.get_ref());
            self.file.fault(key.span().start, text);
        }
    }
}

/// Whether datagrams to `ip` reach one host: it is no group, no network and not "any".
pub fn is_one_host(ip: IpAddr) -> bool {
    !ip.is_unspecified() && !ip.is_multicast() && ip != IpAddr::V4(Ipv4Addr::BROADCAST)
}

/// Whether a socket of this host can have the address. One of a group could, too.
fn is_here(ip: IpAddr) -> bool {
    !ip.is_multicast() && UdpSocket::bind((ip, 0)).is_ok()
}

/// One key of a table, to be read once by a method that says its type. Those
/// return `None` if the key is not there or wrong; the latter is a fault.
pub struct Key<'t> {
    file: &'t File<'t>,
    table: &'t str,
    table_at: usize,
    key: &'static str,
    entry: Option<&'t Spanned<DeValue<'t>>>,
}

impl<'t> Key<'t> {
    /// Makes it a fault if the key is not there. `remedy` says what it is for.
    #[must_use]
    pub fn required(self, remedy: &str) -> Self {
        if self.entry.is_none() {
            let (key, place) = (self.key, Place(self.table));
            self.file.fault(self.table_at, format!("`{key}`{place} is missing: {remedy}"));
        }
        self
    }

    /// Makes it a fault if the key is a list of nothing. `remedy` says what belongs into it.
    #[must_use]
    pub fn not_empty(self, remedy: &str) -> Self {
        if let Some(DeValue::Array(values)) = self.entry.map(Spanned::get_ref)
            && values.is_empty()
        {
            self.fault(format!("is empty: {remedy}"));
        }
        self
    }

    /// Whether the key is there.
    pub fn is_present(&self) -> bool {
        self.entry.is_some()
    }

    /// Returns the line of its value, counted from 1; where it is not there, that of its table.
    pub fn line(&self) -> usize {
        self.file.line(self.entry.map_or(self.table_at, |value| value.span().start))
    }

    /// Reports a fault of the key's value.
    pub fn fault(&self, text: impl Display) {
        let at = self.entry.map_or(self.table_at, |value| value.span().start);
        self.file.fault(at, format!("`{}`{} {text}", self.key, Place(self.table)));
    }

    /// Reads an integer in `range`.
    pub fn integer<T>(self, range: RangeInclusive<T>) -> Option<T>
    where
        T: TryFrom<i64> + PartialOrd + Display,
    {
        let DeValue::Integer(integer) = self.entry?.get_ref() else {
            return self.wrong(&format!("an integer, {} to {}", range.start(), range.end()));
        };
        let value = i64::from_str_radix(integer.as_str(), integer.radix()).ok();
        let value = value.and_then(|value| T::try_from(value).ok());
        let value = value.filter(|value| range.contains(value));
        if value.is_none() {
            self.fault(format!("is {integer}; use {} to {}", range.start(), range.end()));
        }
        value
    }

    /// Reads `true` or `false`.
    pub fn boolean(self) -> Option<bool> {
        let DeValue::Boolean(value) = self.entry?.get_ref() else {
            return self.wrong("true or false");
        };
        Some(*value)
    }

    /// Reads a text.
    pub fn string(self) -> Option<String> {
        let DeValue::String(value) = self.entry?.get_ref() else { return self.wrong("a text") };
        Some(value.to_string())
    }

    /// Reads the path of a folder, which need not be there yet.
    pub fn folder(self) -> Option<PathBuf> {
        self.parsed("the path of a folder, which is made if it is not there", |text| {
            let path = Path::new(text);
            let there = path.ancestors().find(|part| part.exists());
            (!text.is_empty() && there.is_none_or(Path::is_dir)).then(|| path.to_owned())
        })
    }

    /// Reads an address with its port, such as `127.0.0.1:5060`.
    pub fn addr(self) -> Option<SocketAddr> {
        self.parsed("an address and port, such as \"127.0.0.1:5060\"", |text| text.parse().ok())
    }

    /// Reads an address and port at which one other host can be reached.
    pub fn remote(self) -> Option<SocketAddr> {
        self.parsed("the address and port of one host, such as \"192.0.2.1:5060\"", |text| {
            text.parse().ok().filter(|addr: &SocketAddr| addr.port() != 0 && is_one_host(addr.ip()))
        })
    }

    /// Reads an address and port of this host.
    pub fn own_addr(self) -> Option<SocketAddr> {
        self.parsed("an address and port of this host, such as \"127.0.0.1:5060\"", |text| {
            text.parse().ok().filter(|addr: &SocketAddr| addr.port() != 0 && is_here(addr.ip()))
        })
    }

    /// Reads an address that one interface of this host has.
    pub fn own_ip(self) -> Option<IpAddr> {
        self.parsed("an address of this host, such as \"127.0.0.1\"", |text| {
            text.parse().ok().filter(|ip| is_one_host(*ip) && is_here(*ip))
        })
    }

    /// Reads an address without a port.
    pub fn ip(self) -> Option<IpAddr> {
        self.parsed("an address, such as \"127.0.0.1\"", |text| text.parse().ok())
    }

    /// Reads a span in seconds, whole or not, that lies in `range`.
    pub fn seconds(self, range: RangeInclusive<Duration>) -> Option<Duration> {
        let value = self.entry?.get_ref();
        let number =
            value.as_integer().filter(|value| value.radix() == 10).map(|value| value.as_str());
        let number = number.or_else(|| value.as_float().map(|value| value.as_str()));
        let seconds = number.and_then(|number| number.parse().ok());
        let span = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let span = span.filter(|span| range.contains(span));
        if span.is_none() {
            let (start, end) = (range.start().as_secs_f64(), range.end().as_secs_f64());
            return self.wrong(&format!("a number of seconds, {start} to {end}"));
        }
        span
    }

    /// Reads a range of ports, such as `10000-32767`.
    pub fn ports(self) -> Option<RangeInclusive<u16>> {
        self.parsed("a range of ports, such as \"10000-32767\"", |text| {
            let (first, last) = text.split_once('-')?;
            let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            (0 < first && first <= last).then_some(first..=last)
        })
    }

    /// Reads one of these names.
    pub fn choice<T: Clone>(self, choices: &[(&str, T)]) -> Option<T> {
        let names: Vec<_> = choices.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        self.parsed(&names.join(" or "), |text| {
            choices.iter().find(|(name, _)| *name == text).map(|(_, value)| value.clone())
        })
    }

    /// Reads a text that `parse` understands; `what` tells what that is.
    pub fn parsed<T>(self, what: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let DeValue::String(text) = self.entry?.get_ref() else { return self.wrong(what) };
        let value = parse(text);
        if value.is_none() {
            self.fault(format!("is \"{text}\"; use {what}"));
        }
        value
    }

    /// Reads a list, each value of it with `read`; wrong ones are left out.
    pub fn list<T>(self, mut read: impl FnMut(Self) -> Option<T>) -> Option<Vec<T>> {
        let DeValue::Array(values) = self.entry?.get_ref() else { return self.wrong("a list") };
        let values = values.iter().filter_map(|value| read(Key { entry: Some(value), ..self }));
        Some(values.collect())
    }

    fn wrong<T>(&self, wanted: &str) -> Option<T> {
        let value = self.entry?.get_ref();
        self.fault(format!("is {}; use {wanted}", kind(value)));
        None
    }
}

/// ` in [name]`, or nothing for the root.
struct Place<'a>(&'a str);

impl Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " in [{}]", self.0) }
    }
}

fn value<'a, K, V>((_, value): (&'a K, &'a V)) -> &'a V {
    value
}

/// What a value is, for people: itself if it is short.
fn kind(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) if text.len() <= 40 => format!("\"{text}\""),
        DeValue::String(_) => "a text".into(),
        DeValue::Integer(integer) => integer.to_string(),
        DeValue::Float(float) => float.to_string(),
        DeValue::Boolean(boolean) => boolean.to_string(),
        DeValue::Datetime(_) => "a time".into(),
        DeValue::Array(_) => "a list".into(),
        DeValue::Table(_) => "a table".into(),
    }
}

/// Returns the known key that was probably meant.
fn nearest<'k>(key: &str, known: &BTreeSet<&'k str>) -> Option<&'k str> {
    let near = known.iter().map(|known| (distance(key, known), *known)).min()?;
    (near.0 <= 2 && near.0 < near.1.len()).then_some(near.1)
}

/// How many letters to add, remove or change (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in other.bytes().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}
