//! Ladders: text files that hold what a transaction layer is told, and all
//! that it must do, each with its time in milliseconds.
//!
//! `> …` is told to it, every other line is what it does:
//!
//! - `> request METHOD` the owner sends a request; it is called `c1`, `c2` …
//! - `> cancel c1`, `> abandon c1`, `> respond s1 STATUS`
//! - `> get METHOD` a request arrives, `> get STATUS c1` a response does
//! - `> end` nothing more happens; how many transactions are left
//!
//! Words after these say what differs from the ordinary: `on=F` the flow,
//! `tag=T` the To tag, `from=T` the From tag, `branch=B`, `host=H` the sent-by,
//! `cseq=N`, `uri=U`, `call=C`, `route=U`. The head of a file names the
//! transport, `udp` or `tcp`, and settings such as `t1=500`.
//!
//! With `UPDATE_LADDERS` set, what was done is written into the files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sip_core::transactions::{ClientKey, Config, Input, Output, ServerKey, Transactions};
use sip_core::{Message, Method, Name, Writer};

#[test]
fn every_ladder_is_climbed_as_written() {
    let mut failed = Vec::new();
    let files = ladders("ladders");
    assert!(40 <= files.len(), "the ladders are found");
    for (path, written) in files {
        let climbed = climb(&written);
        if climbed != written {
            if std::env::var_os("UPDATE_LADDERS").is_some() {
                std::fs::write(&path, &climbed).expect("the ladder is written");
            }
            failed.push(format!("{}:\n{}", path.display(), difference(&written, &climbed)));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Returns all text files of a folder in `testdata`, in order.
pub(crate) fn ladders(folder: &str) -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/testdata").join(folder);
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder is there")
        .map(|entry| entry.expect("the folder can be read").path())
        .collect();
    files.sort();
    files
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(&path).expect("a ladder is text");
            (path, text)
        })
        .collect()
}

/// Shows the first line that differs.
pub(crate) fn difference(written: &str, climbed: &str) -> String {
    let mut pairs =
        written.lines().map(Some).chain([None]).zip(climbed.lines().map(Some).chain([None]));
    match pairs.find(|(a, b)| a != b) {
        Some((a, b)) => {
            format!("  written: {}\n  climbed: {}", a.unwrap_or("(end)"), b.unwrap_or("(end)"))
        }
        None => "  one is longer".to_owned(),
    }
}

/// Tells a layer what the ladder says and returns the ladder with what the
/// layer did.
fn climb(written: &str) -> String {
    let (head, orders) = written.split_once("\n\n").expect("an empty line follows the settings");
    let settings = head.lines().find(|line| !line.starts_with('#')).expect("the settings");
    let mut climber = Climber::new(settings, format!("{head}\n\n"));
    let mut notes = String::new();
    for line in orders.lines() {
        match line.split_once(" > ") {
            _ if line.starts_with('#') => notes += &format!("{line}\n"),
            Some((at, order)) => {
                climber.advance(at.trim().parse().expect("a time"));
                climber.text += &std::mem::take(&mut notes);
                climber.text += &format!("{line}\n");
                climber.obey(&Order::read(order));
            }
            None => {}
        }
    }
    climber.text
}

/// One line that starts with `>`.
struct Order<'a> {
    words: Vec<&'a str>,
    named: HashMap<&'a str, &'a str>,
}

impl<'a> Order<'a> {
    fn read(text: &'a str) -> Self {
        let text = text.split('#').next().expect("there is always a first part");
        let (named, words): (Vec<_>, Vec<_>) =
            text.split_whitespace().partition(|word| word.contains('='));
        Self { words, named: named.iter().filter_map(|word| word.split_once('=')).collect() }
    }

    fn get(&self, name: &str, usual: &'a str) -> &'a str {
        self.named.get(name).copied().unwrap_or(usual)
    }
}

struct Climber {
    start: Instant,
    now: u64,
    is_reliable: bool,
    layer: Transactions<String>,
    clients: Vec<(ClientKey, Message)>,
    servers: Vec<(ServerKey, Message)>,
    text: String,
}

impl Climber {
    fn new(settings: &str, text: String) -> Self {
        let settings = Order::read(settings);
        let number = |name, usual| settings.get(name, usual).parse::<u64>().expect("a number");
        let config = Config {
            t1: Duration::from_millis(number("t1", "500")),
            t2: Duration::from_millis(number("t2", "4000")),
            t4: Duration::from_millis(number("t4", "5000")),
            trying_after: match settings.get("trying", "200") {
                "never" => None,
                wait => Some(Duration::from_millis(wait.parse().expect("a number"))),
            },
            transactions_max: usize::try_from(number("max", "100")).expect("a small number"),
        };
        Self {
            start: an_instant(),
            now: 0,
            is_reliable: settings.words == ["tcp"],
            layer: Transactions::new(config, 1),
            clients: Vec::new(),
            servers: Vec::new(),
            text,
        }
    }

    /// Lets time pass, and writes down what is done meanwhile.
    fn advance(&mut self, until: u64) {
        while let Some(at) = self.layer.poll_timeout() {
            let at = u64::try_from((at - self.start).as_millis()).expect("a test is short");
            if until < at {
                break;
            }
            self.now = self.now.max(at);
            let now = self.instant();
            self.layer.handle_timeout(now);
            assert!(self.layer.poll_timeout().is_none_or(|next| now < next), "due again");
            self.drain();
        }
        self.now = self.now.max(until);
    }

    fn obey(&mut self, order: &Order<'_>) {
        let now = self.instant();
        let flow = order.get("on", "f1").to_owned();
        match *order.words {
            ["request", method] => {
                let branch = format!("z9hG4bKc{}", self.clients.len() + 1);
                let request = request(method, order, order.get("branch", &branch), "us.example");
                match self.layer.request(now, flow, self.is_reliable, &request) {
                    Ok(key) => self.clients.push((key, request)),
                    Err(error) => self.note(&error.to_string()),
                }
            }
            ["cancel", client] => match self.layer.cancel(now, self.clients[index(client)].0) {
                Ok(key) => {
                    let sent = cancel(&self.clients[index(client)].1);
                    self.clients.push((key, sent));
                }
                Err(error) => self.note(&error.to_string()),
            },
            ["abandon", client] => self.layer.abandon(self.clients[index(client)].0),
            ["respond", server, status] => {
                let (key, request) = &self.servers[index(server)];
                let answer = response(status, order, request);
                if let Err(error) = self.layer.respond(now, *key, &answer) {
                    self.note(&error.to_string());
                }
            }
            ["get", status, client] => {
                let sent = &self.clients[index(client)].1;
                let message = response(status, order, sent);
                self.get(now, flow, message);
            }
            ["get", method] => {
                let host = order.get("host", "them.example");
                let message = request(method, order, order.get("branch", "z9hG4bKpeer"), host);
                self.get(now, flow, message);
            }
            ["end"] => {
                let alive = self.layer.len();
                self.note(&format!("{alive} left"));
            }
            ref words => panic!("{words:?} is no order"),
        }
        self.drain();
    }

    fn get(&mut self, now: Instant, flow: String, message: Message) {
        let reliable = self.is_reliable;
        self.layer.handle_input(now, Input::Message { flow, reliable, message });
    }

    fn instant(&self) -> Instant {
        self.start + Duration::from_millis(self.now)
    }

    fn note(&mut self, what: &str) {
        let line = format!("{:>6}   {what}", self.now);
        self.text += line.trim_end();
        self.text += "\n";
    }

    /// Writes down all that the layer wants done.
    fn drain(&mut self) {
        while let Some(output) = self.layer.poll_output() {
            let line = match output {
                Output::Send { flow, bytes } => {
                    format!("send {flow} {}", outline(&Message::parse(bytes).expect("it is SIP")))
                }
                Output::Request { key, flow, message, cancels, merged } => {
                    self.servers.push((key, message.clone()));
                    let cancels = match (message.method(), cancels) {
                        (Method::Cancel, Some(key)) => format!(" cancels {}", self.server(key)),
                        (Method::Cancel, None) => " cancels nothing".to_owned(),
                        _ => String::new(),
                    };
                    let merged = if merged { " merged" } else { "" };
                    let key = self.server(key);
                    format!("request {key} on {flow}: {}{cancels}{merged}", outline(&message))
                }
                Output::Ack { flow, message, key } => {
                    let key = key.map_or_else(|| "stray".to_owned(), |key| self.server(key));
                    format!("ack {key} on {flow}: {}", outline(&message))
                }
                Output::Response { key, flow, message } => {
                    format!("response {} on {flow}: {}", self.client(key), outline(&message))
                }
                Output::Acknowledged { key } => format!("acknowledged {}", self.server(key)),
                Output::TimedOut { key } => format!("timed out {}", self.client(key)),
                Output::Unacknowledged { key } => format!("unacknowledged {}", self.server(key)),
                Output::Overload { flow, message } => {
                    format!("overload on {flow}: {}", outline(&message))
                }
            };
            self.note(&line);
        }
    }

    fn client(&self, key: ClientKey) -> String {
        let at = self.clients.iter().position(|(known, _)| *known == key);
        format!("c{}", at.expect("the ladder named it") + 1)
    }

    fn server(&self, key: ServerKey) -> String {
        let at = self.servers.iter().position(|(known, _)| *known == key);
        format!("s{}", at.expect("the ladder named it") + 1)
    }
}

/// Returns what tells one message of a ladder from another.
fn outline(message: &Message) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let what = match message.status() {
        Some(status) => format!("{status} {}", message.method()),
        None => message.method().to_string(),
    };
    let tag = message.to_tag().map_or(String::new(), |tag| format!(" tag={}", text(tag)));
    let routes: Vec<_> = message.headers(Name::ROUTE).map(text).collect();
    let route =
        if routes.is_empty() { String::new() } else { format!(" route={}", routes.join(",")) };
    let vias = message.elements(Name::VIA).count();
    let vias = if vias == 1 { String::new() } else { format!(" vias={vias}") };
    format!("{what}{tag}{route}{vias}")
}

fn index(name: &str) -> usize {
    name[1..].parse::<usize>().expect("a name is a letter and a number") - 1
}

fn request(method: &str, order: &Order<'_>, branch: &str, host: &str) -> Message {
    let uri = order.get("uri", "sip:bob@callee.example");
    let mut writer = Writer::request(Method::new(method.as_bytes()), uri.as_bytes());
    let branch = if branch == "none" { String::new() } else { format!(";branch={branch}") };
    writer = writer.header(Name::VIA, format!("SIP/2.0/UDP {host}{branch}"));
    if order.named.contains_key("via2") {
        writer = writer
            .header(Name::VIA, format!("SIP/2.0/UDP {};branch=z9hG4bKold", order.get("via2", "")));
    }
    if order.named.contains_key("route") {
        writer = writer.header(Name::ROUTE, format!("<{}>", order.get("route", "")));
    }
    let to = match order.get("tag", "") {
        "" => "<sip:bob@callee.example>".to_owned(),
        tag => format!("<sip:bob@callee.example>;tag={tag}"),
    };
    let from = format!("<sip:ann@caller.example>;tag={}", order.get("from", "ann"));
    writer
        .header(Name::MAX_FORWARDS, "70")
        .header(Name::FROM, from)
        .header(Name::TO, to)
        .header(Name::CALL_ID, order.get("call", "call-1"))
        .header(Name::CSEQ, format!("{} {method}", order.get("cseq", "1")))
        .finish()
}

/// Returns the CANCEL of `invite`, as far as an answer needs it.
fn cancel(invite: &Message) -> Message {
    let number = invite.cseq().expect("it has one").number;
    Writer::request(Method::Cancel, b"sip:bob@callee.example")
        .copy(invite, Name::VIA)
        .copy(invite, Name::FROM)
        .copy(invite, Name::TO)
        .copy(invite, Name::CALL_ID)
        .header(Name::CSEQ, format!("{number} CANCEL"))
        .finish()
}

fn response(status: &str, order: &Order<'_>, request: &Message) -> Message {
    let status = status.parse().expect("a status");
    let tag = match order.get("tag", "bob") {
        "none" => None,
        tag => Some(tag.as_bytes()),
    };
    Writer::answer(request, status, b"As Written", tag).finish()
}

#[expect(clippy::disallowed_methods, reason = "any instant will do to count from")]
pub(crate) fn an_instant() -> Instant {
    Instant::now()
}
