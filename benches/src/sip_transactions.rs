//! Calls through the four transaction machines of `sip-core`.
//!
//! Two layers, a caller's and a callee's, play INVITE–200–ACK–BYE–200 over
//! and over: four transactions and an ACK a call. A clock that we set moves on
//! so far with each call that a given number of transactions, which live on
//! for their last timers, stays alive. Beside it the same messages are written
//! and parsed with no transactions at all.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use serde::Serialize;
use sip_core::transactions::{Config, Input, Output, ServerKey, Transactions};
use sip_core::{Message, Name, Writer};

use crate::allocations;
use crate::report::{self, Table, Target, number};

/// Options of this measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Calls per round and size.
    #[arg(long, default_value_t = 30_000)]
    calls: u64,
    /// Rounds; every size has its turn in each.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Print one JSON object on standard output, and the table on standard error.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Row {
    live_transactions: usize,
    microseconds_per_call: f64,
    /// Less what the messages alone take.
    microseconds_per_transaction: f64,
    transactions_per_second: f64,
    allocations_per_call: f64,
    /// Nearly all of them have their final answer.
    bytes_per_transaction: f64,
}

/// A pair of layers and what was measured of it.
struct Size {
    pair: Pair,
    bytes: f64,
    allocations: f64,
    spent: Duration,
}

#[derive(Debug, Serialize)]
struct Report {
    how: &'static str,
    calls: u64,
    rounds: u32,
    microseconds_of_messages_per_call: f64,
    allocations_of_messages_per_call: f64,
    rows: Vec<Row>,
    bytes_per_open_client_invite: f64,
    bytes_per_open_server_invite: f64,
    targets: Vec<Target>,
}

/// Measures and prints.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let templates = Templates::new();
    let (client_bytes, server_bytes) = open_invites(&templates);
    let mut sizes: Vec<Size> = Vec::new();
    for live in LIVE {
        report::progress(format_args!("filling {live} transactions"));
        let mut pair = Pair::new(live);
        let ((), grown) = allocations::count(|| pair.play(&templates, live / 2));
        let bytes = grown.bytes as f64 / pair.live() as f64;
        let ((), more) = allocations::count(|| pair.play(&templates, COUNTED));
        let allocations = more.calls as f64 / COUNTED as f64;
        sizes.push(Size { pair, bytes, allocations, spent: Duration::ZERO });
    }
    let ((), alone) =
        allocations::count(|| (0..COUNTED).for_each(|n| templates.write_and_parse(n)));
    let mut messages = Duration::ZERO;
    for round in 0..args.rounds {
        report::progress(format_args!("round {}", round + 1));
        let start = cpu()?;
        for n in 0..args.calls {
            templates.write_and_parse(n);
        }
        messages += cpu()? - start;
        for size in &mut sizes {
            let start = cpu()?;
            size.pair.play(&templates, args.calls);
            size.spent += cpu()? - start;
        }
    }
    let calls = args.calls as f64 * f64::from(args.rounds);
    let messages = micros(messages) / calls;
    let row = |size: &Size| {
        let per_call = micros(size.spent) / calls;
        Row {
            live_transactions: size.pair.live(),
            microseconds_per_call: per_call,
            microseconds_per_transaction: (per_call - messages) / TRANSACTIONS_PER_CALL,
            transactions_per_second: TRANSACTIONS_PER_CALL * 1e6 / per_call,
            allocations_per_call: size.allocations,
            bytes_per_transaction: size.bytes,
        }
    };
    let rows: Vec<Row> = sizes.iter().map(row).collect();
    let targets = targets(&rows, client_bytes, server_bytes);
    let report = Report {
        how: "processor time of one thread; transactions count on both sides",
        calls: args.calls,
        rounds: args.rounds,
        microseconds_of_messages_per_call: messages,
        allocations_of_messages_per_call: alone.calls as f64 / COUNTED as f64,
        rows,
        bytes_per_open_client_invite: client_bytes,
        bytes_per_open_server_invite: server_bytes,
        targets,
    };
    report::finish(args.json, &tables(&report), &report)?;
    report::judge(&report.targets)
}

fn targets(rows: &[Row], client_bytes: f64, server_bytes: f64) -> Vec<Target> {
    let (few, many) = (&rows[0], &rows[rows.len() - 1]);
    let ratio = many.microseconds_per_call / few.microseconds_per_call;
    vec![
        Target::at_most("cost of a call at 1,000,000 live / at 1,000", 2.0, Some(ratio)).of_times(),
        Target::at_most("bytes per finished transaction", 1500.0, Some(many.bytes_per_transaction)),
        Target::at_most("bytes per open client INVITE", 4096.0, Some(client_bytes)),
        Target::at_most("bytes per open server INVITE", 4096.0, Some(server_bytes)),
    ]
}

fn tables(report: &Report) -> Vec<Table> {
    let mut table = Table::new(
        format!(
            "INVITE–200–ACK–BYE–200 through both sides' machines; \
             writing and parsing alone: {} µs and {} allocations a call",
            number(Some(report.microseconds_of_messages_per_call), 2),
            number(Some(report.allocations_of_messages_per_call), 1)
        ),
        &[
            "live transactions",
            "µs/call",
            "µs/transaction",
            "transactions/s",
            "allocs/call",
            "bytes each",
        ],
    );
    for row in &report.rows {
        table.row(vec![
            row.live_transactions.to_string(),
            number(Some(row.microseconds_per_call), 2),
            number(Some(row.microseconds_per_transaction), 2),
            number(Some(row.transactions_per_second), 0),
            number(Some(row.allocations_per_call), 1),
            number(Some(row.bytes_per_transaction), 0),
        ]);
    }
    vec![table, report::targets(&report.targets)]
}

/// How many bytes an open INVITE takes on either side, message included.
fn open_invites(templates: &Templates) -> (f64, f64) {
    let mut pair = Pair::new(1_000_000);
    let ((), at_caller) = allocations::count(|| {
        for n in 0..OPEN {
            let invite = templates.invite.fill(n);
            pair.caller.request(pair.now, n, false, &invite).expect("its branch is new");
            drain(&mut pair.caller);
        }
    });
    let ((), at_callee) = allocations::count(|| {
        for n in 0..OPEN {
            hear(&mut pair.callee, pair.now, n, templates.invite.fill(n));
        }
    });
    (at_caller.bytes as f64 / OPEN as f64, at_callee.bytes as f64 / OPEN as f64)
}

/// A caller's layer and a callee's.
struct Pair {
    caller: Transactions<u64>,
    callee: Transactions<u64>,
    now: Instant,
    /// How far the clock moves on with a call.
    step: Duration,
    calls: u64,
}

impl Pair {
    fn new(live: u64) -> Self {
        let config = Config {
            t1: Duration::from_millis(500),
            t2: Duration::from_secs(4),
            t4: Duration::from_secs(5),
            trying_after: Some(Duration::from_millis(200)),
            transactions_max: 4_000_000,
        };
        Self {
            caller: Transactions::new(config, 1),
            callee: Transactions::new(config, 2),
            now: Instant::now(),
            // Of a call's four transactions three live on for 32 s and one,
            // the caller's BYE, for 5 s.
            step: Duration::from_nanos((3 * 32 + 5) * 1_000_000_000 / live),
            calls: 0,
        }
    }

    fn live(&self) -> usize {
        self.caller.len() + self.callee.len()
    }

    fn play(&mut self, templates: &Templates, calls: u64) {
        for _ in 0..calls {
            self.calls += 1;
            self.call(templates, self.calls);
            self.now += self.step;
            self.caller.handle_timeout(self.now);
            self.callee.handle_timeout(self.now);
        }
    }

    fn call(&mut self, templates: &Templates, n: u64) {
        let invite = templates.invite.fill(n);
        self.caller.request(self.now, n, false, &invite).expect("its branch is new");
        self.answer(n, |invite| templates.accept(invite, n));
        hear(&mut self.callee, self.now, n, templates.ack.fill(n));
        let bye = templates.bye.fill(n);
        self.caller.request(self.now, n, false, &bye).expect("its branch is new");
        self.answer(n, |bye| templates.agree(bye));
    }

    /// Carries a request to the callee and its answer back.
    fn answer(&mut self, n: u64, write: impl FnOnce(&Message) -> Message) {
        let sent = drain(&mut self.caller).bytes.expect("the request is sent");
        let heard = hear(&mut self.callee, self.now, n, parse(sent));
        let (key, request) = heard.request.expect("the request is shown");
        self.callee.respond(self.now, key, &write(&request)).expect("it is open");
        let sent = drain(&mut self.callee).bytes.expect("the answer is sent");
        let heard = hear(&mut self.caller, self.now, n, parse(sent));
        assert!(heard.is_answer, "the answer is shown");
    }
}

/// What a layer wanted to be done.
#[derive(Default)]
struct Done {
    bytes: Option<Bytes>,
    request: Option<(ServerKey, Message)>,
    is_answer: bool,
}

fn hear(layer: &mut Transactions<u64>, now: Instant, flow: u64, message: Message) -> Done {
    layer.handle_input(now, Input::Message { flow, reliable: false, message });
    drain(layer)
}

fn drain(layer: &mut Transactions<u64>) -> Done {
    let mut done = Done::default();
    while let Some(output) = layer.poll_output() {
        match output {
            Output::Send { bytes, .. } => done.bytes = Some(bytes),
            Output::Request { key, message, .. } => done.request = Some((key, message)),
            Output::Response { .. } => done.is_answer = true,
            Output::Ack { .. }
            | Output::Acknowledged { .. }
            | Output::TimedOut { .. }
            | Output::Unacknowledged { .. }
            | Output::Overload { .. } => {}
        }
    }
    done
}

/// The messages of a call, to be filled with its number.
struct Templates {
    invite: Template,
    ack: Template,
    bye: Template,
    answer_sdp: Bytes,
}

impl Templates {
    fn new() -> Self {
        let text = |first: &str, branch: &str, tag: &str, cseq: &str, rest: &str| {
            format!(
                "{first} SIP/2.0\r\n\
                 Via: SIP/2.0/UDP 192.0.2.1:5060;rport;branch=z9hG4bK{branch}{NUMBER}\r\n\
                 Max-Forwards: 70\r\n\
                 From: \"Ann Example\" <sip:ann@example.com>;tag=f{NUMBER}\r\n\
                 To: <sip:+442079460123@example.com>{tag}\r\n\
                 Call-ID: {NUMBER}@192.0.2.1\r\n\
                 CSeq: {cseq}\r\n\
                 {rest}"
            )
        };
        let tag = format!(";tag=t{NUMBER}");
        let rest = format!(
            "Contact: <sip:ann@192.0.2.1:5060>\r\n\
             Allow: INVITE, ACK, CANCEL, BYE, OPTIONS, UPDATE, INFO, REFER, NOTIFY\r\n\
             Supported: replaces, timer, 100rel\r\n\
             User-Agent: Example phone 1.2.3\r\n\
             Content-Type: application/sdp\r\n\
             Content-Length: {}\r\n\r\n{OFFER}",
            OFFER.len()
        );
        let empty = "Content-Length: 0\r\n\r\n";
        let target = "sip:+442079460123@192.0.2.10;user=phone";
        Self {
            invite: Template::new(text(&format!("INVITE {target}"), "i", "", "1 INVITE", &rest)),
            ack: Template::new(text(&format!("ACK {target}"), "a", &tag, "1 ACK", empty)),
            bye: Template::new(text(&format!("BYE {target}"), "b", &tag, "2 BYE", empty)),
            answer_sdp: Bytes::from_static(ANSWER.as_bytes()),
        }
    }

    /// The same messages as a call's, without transactions.
    fn write_and_parse(&self, n: u64) {
        let invite = parse(self.invite.fill(n).bytes().clone());
        black_box(parse(self.accept(&invite, n).bytes().clone()));
        black_box(self.ack.fill(n));
        let bye = parse(self.bye.fill(n).bytes().clone());
        black_box(parse(self.agree(&bye).bytes().clone()));
    }

    fn accept(&self, invite: &Message, n: u64) -> Message {
        Writer::answer(invite, 200, b"OK", Some(format!("t{n:012}").as_bytes()))
            .header(Name::CONTACT, "<sip:192.0.2.10>")
            .body(b"application/sdp", self.answer_sdp.clone())
            .finish()
    }

    #[expect(clippy::unused_self, reason = "it stands beside `accept`")]
    fn agree(&self, bye: &Message) -> Message {
        Writer::answer(bye, 200, b"OK", None).finish()
    }
}

/// A message and where in it the number of its call stands.
struct Template {
    text: String,
    places: Vec<usize>,
}

impl Template {
    fn new(text: String) -> Self {
        let places = text.match_indices(NUMBER).map(|(at, _)| at).collect();
        Self { text, places }
    }

    fn fill(&self, n: u64) -> Message {
        let number = format!("{n:012}");
        let mut text = self.text.as_bytes().to_vec();
        for at in &self.places {
            text[*at..*at + number.len()].copy_from_slice(number.as_bytes());
        }
        parse(Bytes::from(text))
    }
}

fn parse(bytes: Bytes) -> Message {
    Message::parse(bytes).expect("we wrote it")
}

/// The processor time of this process.
fn cpu() -> anyhow::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(u64::try_from(micros)?))
}

fn micros(span: Duration) -> f64 {
    span.as_secs_f64() * 1e6
}

/// Transactions that are alive at a time, on both sides together.
const LIVE: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];
const TRANSACTIONS_PER_CALL: f64 = 4.0;
const OPEN: u64 = 100_000;
/// Calls over which allocations are counted.
const COUNTED: u64 = 1000;
/// Stands where a call's number goes.
const NUMBER: &str = "000000000000";

const OFFER: &str = "v=0\r\no=ann 123456 123456 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\n\
t=0 0\r\nm=audio 40000 RTP/AVP 0 8 9 18 101\r\na=rtpmap:0 PCMU/8000\r\na=rtpmap:8 PCMA/8000\r\n\
a=rtpmap:9 G722/8000\r\na=rtpmap:18 G729/8000\r\na=fmtp:18 annexb=no\r\n\
a=rtpmap:101 telephone-event/8000\r\na=fmtp:101 0-16\r\na=ptime:20\r\na=maxptime:150\r\n\
a=sendrecv\r\na=rtcp:40001 IN IP4 192.0.2.1\r\na=ssrc:1234567890 cname:ann@example.com\r\n";
const ANSWER: &str = "v=0\r\no=bob 654321 654321 IN IP4 192.0.2.10\r\ns=-\r\nc=IN IP4 192.0.2.10\r\n\
t=0 0\r\nm=audio 50000 RTP/AVP 0 101\r\na=rtpmap:0 PCMU/8000\r\n\
a=rtpmap:101 telephone-event/8000\r\na=fmtp:101 0-16\r\na=ptime:20\r\na=sendrecv\r\n";
