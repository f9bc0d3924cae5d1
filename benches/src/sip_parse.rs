//! Reading and forwarding single messages with `sip-core` and with other
//! parsers of this language.
//!
//! Everybody reads the same bytes and then the same fields: top Via with its
//! branch, From and To tag, Call-ID and CSeq. A line scan that only looks for
//! line breaks is the least that any parser has to do; the figure of PJSIP,
//! which is written in C, was taken beside such a scan once and is scaled by
//! the scan of this run.

use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use nix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::allocations;
use crate::report::{self, Table, Target, number};

mod readers;

use readers::{Reader, Work};

/// Options of this measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Messages in one batch of one reader.
    #[arg(long, default_value_t = 1000)]
    batch: u32,
    /// Rounds; every reader has a batch in each, and its best one counts.
    #[arg(long, default_value_t = 100)]
    rounds: u32,
    /// Print one JSON object on standard output, and the table on standard error.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Row {
    message: &'static str,
    bytes: usize,
    work: &'static str,
    reader: &'static str,
    nanoseconds: f64,
    allocations: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    how: &'static str,
    batch: u32,
    rounds: u32,
    rows: Vec<Row>,
    targets: Vec<Target>,
}

/// One message, and what PJSIP took for it in line scans of the same run.
struct Subject {
    name: &'static str,
    text: Bytes,
    /// 4,412 ns beside a scan of 161 ns for an INVITE of this size, 2,612 ns
    /// beside one of 85 ns for such a 200.
    pjsip_in_scans: f64,
}

/// Measures and prints.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (invite, ok) = messages();
    let subjects = [
        Subject { name: "INVITE", text: invite, pjsip_in_scans: 4412.0 / 161.0 },
        Subject { name: "200 OK", text: ok, pjsip_in_scans: 2612.0 / 85.0 },
    ];
    let mut rows = Vec::new();
    let mut targets = Vec::new();
    for subject in &subjects {
        readers::check(&subject.text)?;
        let parsed = measure(args, subject, "parse + fields", &readers::PARSERS)?;
        targets.extend(targets_of(subject.name, &parsed));
        targets.push(pjsip_target(subject, &parsed));
        rows.extend(parsed);
        if subject.name == "INVITE" {
            readers::check_forwarding(&subject.text)?;
            rows.extend(measure(args, subject, "parse + print", &readers::FORWARDERS)?);
            let printed = measure(args, subject, "print forwarded", &readers::PRINTERS)?;
            targets.extend(targets_of("INVITE forwarded", &printed));
            rows.extend(printed);
        }
    }
    let report = Report {
        how: "processor time of one thread, best batch; all readers take turns",
        batch: args.batch,
        rounds: args.rounds,
        rows,
        targets,
    };
    report::finish(args.json, &tables(&report), &report)?;
    report::judge(&report.targets)
}

/// Gives every reader a batch in each round.
fn measure(
    args: &Args,
    subject: &Subject,
    work: &'static str,
    readers: &[Reader],
) -> anyhow::Result<Vec<Row>> {
    report::progress(format_args!("{}: {work}", subject.name));
    let mut works = Vec::new();
    for reader in readers {
        works.push(
            (reader.ready)(&subject.text).with_context(|| format!("{} cannot", reader.name))?,
        );
    }
    let mut best = vec![Duration::MAX; readers.len()];
    for _ in 0..args.rounds {
        for (work, best) in works.iter_mut().zip(&mut best) {
            let start = cpu()?;
            for _ in 0..args.batch {
                work();
            }
            *best = (*best).min(cpu()?.saturating_sub(start));
        }
    }
    let row = |((reader, ready), best): ((&Reader, &mut Work), Duration)| {
        let (_, counted) = allocations::count(ready);
        Row {
            message: subject.name,
            bytes: subject.text.len(),
            work,
            reader: reader.name,
            nanoseconds: best.as_nanos() as f64 / f64::from(args.batch),
            allocations: counted.calls as f64,
        }
    };
    Ok(readers.iter().zip(&mut works).zip(best).map(row).collect())
}

/// What holds for reading and for printing: no allocation, and rsip's time.
fn targets_of(name: &str, rows: &[Row]) -> Vec<Target> {
    let of = |name: &str| rows.iter().find(|row| row.reader == name);
    let ours = of(readers::OURS);
    let faster = of("rsip").zip(ours).map(|(rsip, ours)| rsip.nanoseconds / ours.nanoseconds);
    let allocations = ours.map(|row| row.allocations);
    vec![
        Target::at_most(format!("{name}: allocations of sip-core"), 0.0, allocations),
        Target::at_least(format!("{name}: rsip / sip-core"), 8.0, faster).of_times(),
    ]
}

fn pjsip_target(subject: &Subject, rows: &[Row]) -> Target {
    let of = |name: &str| rows.iter().find(|row| row.reader == name).map(|row| row.nanoseconds);
    let pjsip = of(readers::SCAN).map(|scan| scan * subject.pjsip_in_scans);
    let faster = pjsip.zip(of(readers::OURS)).map(|(pjsip, ours)| pjsip / ours);
    Target::at_least(format!("{}: PJSIP, scaled / sip-core", subject.name), 2.0, faster).of_times()
}

fn tables(report: &Report) -> Vec<Table> {
    let mut table = Table::new(
        "one message at a time; relative to sip-core".to_owned(),
        &["", "bytes", "ns", "times sip-core", "allocations"],
    );
    for row in &report.rows {
        let is_ours = |other: &&Row| {
            (other.message, other.work, other.reader) == (row.message, row.work, readers::OURS)
        };
        let ours = report.rows.iter().find(is_ours).map(|ours| ours.nanoseconds);
        table.row(vec![
            format!("{} {}: {}", row.message, row.work, row.reader),
            row.bytes.to_string(),
            number(Some(row.nanoseconds), 0),
            number(ours.map(|ours| row.nanoseconds / ours), 2),
            number(Some(row.allocations), 0),
        ]);
    }
    vec![table, report::targets(&report.targets)]
}

fn cpu() -> anyhow::Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}

/// An INVITE of about 1.1 kB with a description, and its 200 OK without.
fn messages() -> (Bytes, Bytes) {
    let body = "v=0\r\no=ann 2890844526 2890844526 IN IP4 192.0.2.10\r\ns=-\r\n\
        c=IN IP4 192.0.2.10\r\nt=0 0\r\nm=audio 49170 RTP/AVP 0 8 97 101\r\n\
        a=rtpmap:0 PCMU/8000\r\na=rtpmap:8 PCMA/8000\r\na=rtpmap:97 iLBC/8000\r\n\
        a=fmtp:97 mode=30\r\na=rtpmap:101 telephone-event/8000\r\na=fmtp:101 0-15\r\n\
        a=ptime:20\r\na=sendrecv\r\n";
    let vias = "Via: SIP/2.0/UDP proxy.example.com:5060;branch=z9hG4bK74b43ab12c\r\n\
        Via: SIP/2.0/UDP 192.0.2.10:5060;branch=z9hG4bKnashds8a7b;rport=5060;received=192.0.2.10\r\n";
    let invite = format!(
        "INVITE sip:bob@biloxi.example.com;transport=udp SIP/2.0\r\n{vias}\
         Record-Route: <sip:proxy.example.com;lr>\r\n\
         Max-Forwards: 69\r\n\
         From: \"Ann Example\" <sip:ann@atlanta.example.com>;tag=9fxced76sl\r\n\
         To: \"Bob\" <sip:bob@biloxi.example.com>\r\n\
         Call-ID: 3848276298220188511@atlanta.example.com\r\n\
         CSeq: 314159 INVITE\r\n\
         Contact: <sip:ann@192.0.2.10:5060;transport=udp>\r\n\
         Allow: INVITE, ACK, CANCEL, OPTIONS, BYE, REFER, NOTIFY, UPDATE\r\n\
         Allow-Events: talk, hold, conference, refer, check-sync\r\n\
         Supported: replaces, timer, 100rel\r\n\
         Session-Expires: 1800;refresher=uac\r\n\
         User-Agent: Example Phone 12.4.1 (build 2231)\r\n\
         Content-Type: application/sdp\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let ok = format!(
        "SIP/2.0 200 OK\r\n{vias}\
         From: \"Ann Example\" <sip:ann@atlanta.example.com>;tag=9fxced76sl\r\n\
         To: \"Bob\" <sip:bob@biloxi.example.com>;tag=8321234356\r\n\
         Call-ID: 3848276298220188511@atlanta.example.com\r\n\
         CSeq: 314159 INVITE\r\n\
         Contact: <sip:bob@192.0.2.4>\r\n\
         Server: Example Phone 3.11.2 (build 4078)\r\n\
         Content-Length: 0\r\n\r\n"
    );
    (Bytes::from(invite), Bytes::from(ok))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reader_reads_the_same_fields() {
        let (invite, ok) = messages();
        assert!((1000..1200).contains(&invite.len()) && (400..600).contains(&ok.len()));
        readers::check(&invite).expect("all agree on the INVITE");
        readers::check(&ok).expect("all agree on the 200");
        readers::check_forwarding(&invite).expect("all forward the INVITE");
    }
}
