//! What every message to a phone must be, and when it may come, as the phones' journal has it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use driver::sim::Path;
use testkit::{Config, Entry, Event, Fault, PhoneId, What};

/// A phone that does not answer a move for so long is left alone, and its next hop is free again.
const PATIENCE: Duration = Duration::from_secs(4);

/// One that says nothing at all gives its place up after this.
const SILENCE: Duration = Duration::from_secs(2);

/// What it saw first may have been the third copy, 1.5 s after the first.
const COPIES: Duration = Duration::from_millis(1600);

/// What a message may take longer than another from a b2b to its gate.
const HOP: Duration = Duration::from_millis(5);

/// Returns for how long at least a phone that says nothing keeps its place, as it sees that itself. `is_whole`:
/// nothing that carries SIP is harmed.
pub(crate) fn silence(path: Path, is_whole: bool) -> Duration {
    let loses = path.loss != 0.0 || path.reorder != 0.0;
    let late = if loses || !is_whole { COPIES } else { path.jitter + HOP };
    SILENCE - late
}

/// Returns what was wrong with each message that came to a phone: a request has exactly one Via, which
/// is ours, nothing to a phone has a Record-Route, and Via, Contact and transport are those of the
/// phone's gate and of the phone.
pub(crate) fn strange_messages(entries: &[Entry], config: &Config) -> Vec<String> {
    let received = entries.iter().filter_map(|entry| match &entry.what {
        What::Received { bytes, .. } => Some((entry.phone?, bytes)),
        What::Sent { .. } | What::Event(_) | What::Fault(_) => None,
    });
    let wrong = received.filter_map(|(phone, bytes)| {
        let text = String::from_utf8_lossy(bytes);
        let law = broken_by(&text, phone, config)?;
        Some(format!("{phone}: {law}\n{text}"))
    });
    wrong.collect()
}

fn broken_by(text: &str, phone: PhoneId, config: &Config) -> Option<&'static str> {
    let all = |names: [&str; 2]| -> Vec<&str> {
        let lines = text.lines().skip(1).take_while(|line| !line.is_empty());
        let named = lines.filter_map(|line| line.split_once(':'));
        let ours = named.filter(|(name, _)| names.iter().any(|one| name.eq_ignore_ascii_case(one)));
        ours.map(|(_, value)| value.trim()).collect()
    };
    let gate = config.server_of(phone)?;
    let transport = config.transport(phone);
    if !all(["Record-Route", "Record-Route"]).is_empty() {
        return Some("a gate is no part of the route");
    }
    let answers = text.starts_with("SIP/2.0 ");
    if !answers {
        let vias = all(["Via", "v"]);
        let [via] = vias[..] else { return Some("one Via") };
        if via.contains(',') {
            return Some("one Via");
        }
        let ours = format!("SIP/2.0/{transport} {gate};");
        if !via.starts_with(&ours) {
            return Some("the Via is the gate's");
        }
    }
    let is_invite = all(["CSeq", "CSeq"]).first()?.ends_with("INVITE");
    let has_contact = if answers { makes_dialog(text) } else { text.starts_with("INVITE ") };
    let contacts = all(["Contact", "m"]);
    if !is_invite || !has_contact {
        return None;
    }
    let [contact] = contacts[..] else { return Some("one Contact") };
    let address = contact.split_once('@').map_or(contact, |(_, rest)| rest);
    let address = address.trim_start_matches("<sip:").split(['>', ';']).next().unwrap_or_default();
    if address.parse::<SocketAddr>() != Ok(gate) {
        return Some("the Contact is the gate's");
    }
    let lower = contact.to_ascii_lowercase();
    let named = lower.split_once("transport=").map(|(_, rest)| rest.split(['>', ';']).next());
    match named.flatten().unwrap_or("udp").eq_ignore_ascii_case(transport) {
        true => None,
        false => Some("the Contact has the phone's transport"),
    }
}

fn makes_dialog(text: &str) -> bool {
    let status = text.split(' ').nth(1).and_then(|word| word.parse::<u16>().ok()).unwrap_or(0);
    (200..300).contains(&status)
}

/// Returns the moments at which more moves were open at one next hop than its window can be: it begins
/// with one at each of `owners`, and each success adds one. What the other side of a call asked for is
/// handed on at once. A phone that is silent keeps its place for `silence`.
pub(crate) fn overfull_hops(
    entries: &[Entry],
    config: &Config,
    owners: usize,
    silence: Duration,
) -> Vec<String> {
    let mut hops = BTreeMap::<SocketAddr, Hop>::new();
    let mut asking = BTreeSet::new();
    let mut wrong = Vec::new();
    for Entry { at, phone, what } in entries {
        let Some(phone) = *phone else { continue };
        let addr = config.sip_addr(phone);
        let hop = hops.entry(addr).or_default();
        match what {
            What::Event(Event::Reinvite { moves: true }) if !asking.contains(&(phone.0 ^ 1)) => {
                hop.open.retain(|_, (since, patience)| *at < *since + *patience);
                hop.open.insert(phone, (*at, silence));
                let (open, room) = (hop.open.len(), owners * (1 + hop.successes));
                if room < open {
                    wrong.push(format!("{addr}: {open} moves are open in a window of {room}"));
                }
            }
            What::Sent { bytes, .. } => match invite(bytes) {
                Some(0) => drop(asking.insert(phone.0)),
                Some(status) if status < 200 => {
                    hop.open.entry(phone).and_modify(|(_, patience)| *patience = PATIENCE);
                }
                Some(status) if hop.open.remove(&phone).is_some() => {
                    hop.successes += usize::from(status < 300);
                }
                Some(_) | None => {}
            },
            What::Received { bytes, .. } => {
                if invite(bytes).is_some_and(|status| 200 <= status) {
                    asking.remove(&phone.0);
                }
            }
            What::Event(_) | What::Fault(_) => {}
        }
    }
    wrong
}

#[derive(Default)]
struct Hop {
    /// Since when, and for how long each keeps its place.
    open: BTreeMap<PhoneId, (Instant, Duration)>,
    successes: usize,
}

/// The status of an answer to an INVITE; 0 for one itself.
fn invite(bytes: &[u8]) -> Option<u16> {
    let text = String::from_utf8_lossy(bytes);
    let is_invite = text.lines().any(|line| line.starts_with("CSeq:") && line.ends_with("INVITE"));
    let Some(answer) = text.strip_prefix("SIP/2.0 ") else {
        return text.starts_with("INVITE ").then_some(0);
    };
    answer.get(..3)?.parse().ok().filter(|_| is_invite)
}

/// Returns the INVITEs that came before the ACK of a 2xx, by phone and CSeq number, and when that was
/// first sent.
pub(crate) fn unacknowledged(entries: &[Entry]) -> Vec<(PhoneId, u32, Instant)> {
    let mut waiting = BTreeMap::<PhoneId, (Instant, u32)>::new();
    let mut early = Vec::new();
    for Entry { at, phone, what } in entries {
        let Some(phone) = *phone else { continue };
        match what {
            What::Sent { bytes, .. }
                if invite(bytes).is_some_and(|it| (200..300).contains(&it)) =>
            {
                let answered = cseq(bytes);
                if waiting.get(&phone).is_none_or(|(_, cseq)| *cseq != answered) {
                    waiting.insert(phone, (*at, answered));
                }
            }
            What::Received { bytes, .. } if bytes.starts_with(b"ACK ") => {
                let acknowledged = cseq(bytes);
                waiting.retain(|other, (_, cseq)| *other != phone || *cseq != acknowledged);
            }
            What::Fault(Fault::InviteTooEarly { cseq }) => {
                early.extend(waiting.get(&phone).map(|(since, _)| (phone, *cseq, *since)));
            }
            What::Sent { .. } | What::Received { .. } | What::Event(_) | What::Fault(_) => {}
        }
    }
    early
}

fn cseq(bytes: &[u8]) -> u32 {
    let text = String::from_utf8_lossy(bytes);
    let value = text.lines().find_map(|line| line.strip_prefix("CSeq: "));
    value.and_then(|value| value.split(' ').next()?.parse().ok()).unwrap_or(0)
}

/// Returns the phones whose media were moved.
pub(crate) fn moved(entries: &[Entry]) -> Vec<PhoneId> {
    let moves = |entry: &&Entry| entry.what == What::Event(Event::Reinvite { moves: true });
    entries.iter().filter(moves).filter_map(|entry| entry.phone).collect()
}

/// Returns how many BYEs came to each phone for a call that another BYE had ended.
pub(crate) fn repeated_byes(entries: &[Entry]) -> BTreeMap<PhoneId, usize> {
    let mut repeats = BTreeMap::new();
    for Entry { phone, what, .. } in entries {
        let What::Fault(Fault::AfterEnd { method }) = what else { continue };
        if let Some(phone) = phone
            && method == "BYE"
        {
            *repeats.entry(*phone).or_default() += 1;
        }
    }
    repeats
}

#[test]
fn a_silent_phone_keeps_its_place_for_two_seconds_where_nothing_is_lost_or_late() {
    #[expect(clippy::disallowed_methods, reason = "an origin for the test")]
    let begun_at = Instant::now();
    let config = Config { sip_sockets: 1, ..Config::new([127, 0, 0, 9].into()) };
    let moves = |phone, ms| Entry {
        at: begun_at + Duration::from_millis(ms),
        phone: Some(PhoneId(phone)),
        what: What::Event(Event::Reinvite { moves: true }),
    };
    let lossy = Path { loss: 0.04, ..Path::default() };
    for (path, is_whole, apart, wrong) in [
        (Path::default(), true, 1900, 1),
        (Path::default(), true, 2000, 0),
        (Path::default(), false, 500, 0),
        (lossy, true, 500, 0),
        (lossy, true, 300, 1),
    ] {
        let silence = silence(path, is_whole);
        let found = overfull_hops(&[moves(0, 0), moves(2, apart)], &config, 1, silence);
        assert_eq!(found.len(), wrong, "{path:?}, {is_whole}, {apart} ms: {found:?}");
    }
}
