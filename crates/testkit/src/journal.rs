//! Everything that phones sent, got and noticed, in order of time.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use bytes::Bytes;

/// A phone of a fleet, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PhoneId(pub u32);

impl fmt::Display for PhoneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When it happened.
    pub at: Instant,
    /// To whom; `None` for a message that no phone of the fleet is named in.
    pub phone: Option<PhoneId>,
    /// What.
    pub what: What,
}

/// What happened to a phone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It sent a SIP message.
    Sent {
        /// To this address.
        to: SocketAddr,
        /// The whole message.
        bytes: Bytes,
    },
    /// A SIP message came.
    Received {
        /// From this address.
        from: SocketAddr,
        /// The whole message.
        bytes: Bytes,
    },
    /// Something changed at the phone.
    Event(Event),
    /// The other side broke a rule.
    Fault(Fault),
}

/// What changed at a phone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Its REGISTER was accepted.
    Registered,
    /// Its REGISTER was refused with this status.
    NotRegistered(u16),
    /// A new call came in.
    Called,
    /// The called side rings: a provisional answer above 100 came.
    Ringing(u16),
    /// The call stands: the phone sent its ACK, or got it.
    Answered,
    /// Its own call was refused with this status.
    Refused(u16),
    /// An INVITE inside a call came for the first time.
    Reinvite {
        /// Whether it moves the phone's media to another address.
        moves: bool,
    },
    /// An INVITE inside a call that the other side sent is over: its ACK came.
    Reinvited,
    /// Its own INVITE inside a call was accepted.
    ReinviteAccepted,
    /// Its own INVITE inside a call was refused with this status.
    ReinviteRefused(u16),
    /// Its OPTIONS was answered with this status.
    Options(u16),
    /// The call is over.
    Ended(Ended),
    /// A request of its own found no final answer in 64 T1.
    TimedOut,
}

/// Who or what ended a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The phone itself hung up or gave up.
    Here,
    /// A BYE or CANCEL came.
    There,
    /// The phone refused it.
    Refused,
    /// Its 2xx was never acknowledged (RFC 3261 §13.3.1.4).
    Unacknowledged,
    /// The other side does not know the call: 481 or 408 (RFC 3261 §12.2.1.2).
    Unknown,
}

/// A rule that the other side broke.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// What came is no SIP message.
    Unreadable,
    /// A request inside a dialog with a CSeq not above the last one
    /// (RFC 3261 §12.2.2).
    CSeqNotRising {
        /// The highest one before.
        before: u32,
        /// The one that came.
        now: u32,
    },
    /// An ACK for no INVITE that was answered, or with another CSeq than its
    /// INVITE's (RFC 3261 §13.2.2.4).
    StrangeAck {
        /// The CSeq in the ACK.
        cseq: u32,
    },
    /// An INVITE inside a dialog although the last one is not answered, or its
    /// 2xx not acknowledged (RFC 3261 §14.1).
    InviteTooEarly {
        /// The CSeq of the new one.
        cseq: u32,
    },
    /// The o= line changed in more than its version (RFC 3264 §8).
    OriginChanged,
    /// The description changed and its version did not grow by one
    /// (RFC 3264 §8).
    OriginVersion {
        /// The version before.
        before: u64,
        /// The version of the changed description.
        now: u64,
    },
    /// The version grew although the description is the same.
    OriginVersionIdle {
        /// The new version.
        now: u64,
    },
    /// Media lines were taken away or reordered (RFC 3264 §8).
    MediaLines,
    /// A payload type number changed its meaning (RFC 3264 §8.3.2).
    PayloadType {
        /// The number.
        number: u8,
    },
    /// An address that must not be used any more stands outside the o= line.
    Forbidden(IpAddr),
    /// A request or an answer for a call that the phone does not know.
    UnknownCall,
    /// A second BYE, or any other request, in a call that has ended.
    AfterEnd {
        /// Its method.
        method: String,
    },
    /// A 2xx or ACK without the description it must carry.
    NoDescription,
}

/// The journal of a fleet.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    entries: Vec<Entry>,
    /// Keeps messages too, not only events and faults.
    pub messages: bool,
    sent: u64,
    received: u64,
    received_by: BTreeMap<(PhoneId, String), u64>,
}

impl Journal {
    /// Returns all entries since the last [`take`](Self::take).
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns all entries and keeps none.
    pub fn take(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.entries)
    }

    /// Returns how many SIP messages were sent and how many came, ever.
    pub fn messages_count(&self) -> (u64, u64) {
        (self.sent, self.received)
    }

    /// Returns how many SIP messages came to each phone since this was last
    /// asked, by kind: `BYE`, or `200 to BYE`.
    pub fn take_received(&mut self) -> BTreeMap<(PhoneId, String), u64> {
        std::mem::take(&mut self.received_by)
    }

    /// Returns every fault with its phone.
    pub fn faults(&self) -> impl Iterator<Item = (Instant, Option<PhoneId>, &Fault)> {
        self.entries.iter().filter_map(|entry| match &entry.what {
            What::Fault(fault) => Some((entry.at, entry.phone, fault)),
            What::Sent { .. } | What::Received { .. } | What::Event(_) => None,
        })
    }

    /// Returns every event with its phone.
    pub fn events(&self) -> impl Iterator<Item = (Instant, Option<PhoneId>, Event)> {
        self.entries.iter().filter_map(|entry| match entry.what {
            What::Event(event) => Some((entry.at, entry.phone, event)),
            What::Sent { .. } | What::Received { .. } | What::Fault(_) => None,
        })
    }

    /// Returns the journal as text, one line an entry, times in milliseconds
    /// since `start`.
    pub fn text(&self, start: Instant) -> String {
        let mut text = String::new();
        for entry in &self.entries {
            text.push_str(&entry.line(start));
            text.push('\n');
        }
        text
    }

    pub(crate) fn new(messages: bool) -> Self {
        Self { messages, ..Self::default() }
    }

    pub(crate) fn note(&mut self, at: Instant, phone: Option<PhoneId>, what: What) {
        let kept = match what {
            What::Sent { .. } => {
                self.sent += 1;
                self.messages
            }
            What::Received { ref bytes, .. } => {
                self.received += 1;
                if let Some(phone) = phone {
                    *self.received_by.entry((phone, kind(bytes))).or_default() += 1;
                }
                self.messages
            }
            What::Event(_) | What::Fault(_) => true,
        };
        if kept {
            self.entries.push(Entry { at, phone, what });
        }
    }
}

impl Entry {
    /// Returns the entry as one line of text: time since `start`, phone, and
    /// the first line and CSeq of a message.
    pub fn line(&self, start: Instant) -> String {
        let at = self.at.saturating_duration_since(start).as_secs_f64() * 1e3;
        let phone = self.phone.map_or_else(|| "-".to_owned(), |phone| phone.to_string());
        let what = match &self.what {
            What::Sent { to, bytes } => format!("-> {to} {}", first_line(bytes)),
            What::Received { from, bytes } => format!("<- {from} {}", first_line(bytes)),
            What::Event(event) => format!("** {event:?}"),
            What::Fault(fault) => format!("!! {fault:?}"),
        };
        format!("{at:10.1} {phone:>5} {what}")
    }
}

/// The start line and the CSeq line of a message.
fn first_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let (first, cseq) = first_and_cseq(&text);
    format!("{first} | {cseq}")
}

/// The method of a request, the status and the method of an answer.
fn kind(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let (first, cseq) = first_and_cseq(&text);
    let mut words = first.split(' ');
    match (words.next(), words.next(), cseq.rsplit(' ').next()) {
        (Some("SIP/2.0"), Some(status), Some(method)) => format!("{status} to {method}"),
        (method, ..) => method.unwrap_or_default().to_owned(),
    }
}

fn first_and_cseq(text: &str) -> (&str, &str) {
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    let cseq = lines
        .take_while(|line| !line.is_empty())
        .find(|line| line.get(..5).is_some_and(|name| name.eq_ignore_ascii_case("cseq:")));
    (first, cseq.unwrap_or_default())
}
