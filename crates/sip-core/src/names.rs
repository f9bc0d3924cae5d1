//! Header names: known ones by number, all others by their text.

use std::fmt;

/// A header name. Two names are equal when RFC 3261 §7.3.1 says so: compact
/// and long forms are one name, and letters of both cases are one letter.
///
/// Common names are constants (`Name::VIA`); any other is made by [`Name::new`].
#[derive(Clone, Copy)]
pub struct Name<'a> {
    /// Index in `KNOWN` plus one, or [`OTHER`].
    pub(crate) id: u8,
    text: &'a [u8],
}

/// The id of a name that `KNOWN` does not list.
pub(crate) const OTHER: u8 = 0;
/// The id of a line that has no readable name; it equals no name.
pub(crate) const GARBLED: u8 = 255;

impl<'a> Name<'a> {
    /// Returns the name that `text` spells, in long or compact form.
    #[must_use]
    pub fn new(text: &'a [u8]) -> Self {
        let id = classify(text);
        Self { id, text: known_text(id).unwrap_or(text) }
    }

    /// Returns the long form of a known name, else the text it was made of.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.text
    }

    pub(crate) fn from_id(id: u8) -> Option<Name<'static>> {
        known_text(id).map(|text| Name { id, text })
    }

    #[expect(clippy::cast_possible_truncation, reason = "fewer than 255 names are known")]
    const fn known(text: &'static str) -> Name<'static> {
        let mut i = 0;
        while i < KNOWN.len() {
            if is_same(text.as_bytes(), KNOWN[i].0.as_bytes()) {
                return Name { id: i as u8 + 1, text: text.as_bytes() };
            }
            i += 1;
        }
        panic!("a constant's name is in the table")
    }
}

impl PartialEq for Name<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && (self.id != OTHER || self.text.eq_ignore_ascii_case(other.text))
    }
}

impl Eq for Name<'_> {}

impl fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.text.escape_ascii())
    }
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.text.escape_ascii())
    }
}

/// Long and compact forms. A new name goes to the end of its letter.
static KNOWN: [(&str, u8); 80] = [
    ("Accept", 0),
    ("Accept-Contact", b'a'),
    ("Accept-Encoding", 0),
    ("Accept-Language", 0),
    ("Alert-Info", 0),
    ("Allow", 0),
    ("Allow-Events", b'u'),
    ("Authentication-Info", 0),
    ("Authorization", 0),
    ("Call-ID", b'i'),
    ("Call-Info", 0),
    ("Contact", b'm'),
    ("Content-Disposition", 0),
    ("Content-Encoding", b'e'),
    ("Content-Language", 0),
    ("Content-Length", b'l'),
    ("Content-Type", b'c'),
    ("CSeq", 0),
    ("Date", 0),
    ("Diversion", 0),
    ("Error-Info", 0),
    ("Event", b'o'),
    ("Expires", 0),
    ("Flow-Timer", 0),
    ("From", b'f'),
    ("Geolocation", 0),
    ("History-Info", 0),
    ("Identity", b'y'),
    ("In-Reply-To", 0),
    ("Join", 0),
    ("Max-Forwards", 0),
    ("MIME-Version", 0),
    ("Min-Expires", 0),
    ("Min-SE", 0),
    ("Organization", 0),
    ("P-Access-Network-Info", 0),
    ("P-Asserted-Identity", 0),
    ("P-Associated-URI", 0),
    ("P-Charging-Vector", 0),
    ("P-Preferred-Identity", 0),
    ("Path", 0),
    ("Priority", 0),
    ("Privacy", 0),
    ("Proxy-Authenticate", 0),
    ("Proxy-Authorization", 0),
    ("Proxy-Require", 0),
    ("RAck", 0),
    ("Reason", 0),
    ("Record-Route", 0),
    ("Recv-Info", 0),
    ("Refer-Sub", 0),
    ("Refer-To", b'r'),
    ("Referred-By", b'b'),
    ("Reject-Contact", b'j'),
    ("Remote-Party-ID", 0),
    ("Replaces", 0),
    ("Reply-To", 0),
    ("Request-Disposition", b'd'),
    ("Require", 0),
    ("Retry-After", 0),
    ("Route", 0),
    ("RSeq", 0),
    ("Server", 0),
    ("Service-Route", 0),
    ("Session-Expires", b'x'),
    ("SIP-ETag", 0),
    ("SIP-If-Match", 0),
    ("Subject", b's'),
    ("Subscription-State", 0),
    ("Supported", b'k'),
    ("Target-Dialog", 0),
    ("Timestamp", 0),
    ("To", b't'),
    ("Unsupported", 0),
    ("User-Agent", 0),
    ("User-to-User", 0),
    ("Via", b'v'),
    ("Warning", 0),
    ("WWW-Authenticate", 0),
    ("Info-Package", 0),
];

/// Ids from 0 up to the last known name.
pub(crate) const NAMES: usize = KNOWN.len() + 1;

/// Open addressing, four slots a name, filled when the crate is compiled.
const SLOTS: usize = 512;
static TABLE: [u8; SLOTS] = table();
static COMPACT: [u8; 256] = compact();

const fn slot(text: &[u8]) -> usize {
    let len = text.len();
    let first = text[0].to_ascii_lowercase() as usize;
    let middle = text[len / 2].to_ascii_lowercase() as usize;
    let last = text[len - 1].to_ascii_lowercase() as usize;
    (len * 37 + first * 5 + middle * 67 + last * 11) % SLOTS
}

#[expect(clippy::cast_possible_truncation, reason = "fewer than 255 names are known")]
const fn table() -> [u8; SLOTS] {
    let mut table = [OTHER; SLOTS];
    let mut i = 0;
    while i < KNOWN.len() {
        let mut at = slot(KNOWN[i].0.as_bytes());
        while table[at] != OTHER {
            at = (at + 1) % SLOTS;
        }
        table[at] = i as u8 + 1;
        i += 1;
    }
    table
}

#[expect(clippy::cast_possible_truncation, reason = "fewer than 255 names are known")]
const fn compact() -> [u8; 256] {
    let mut compact = [OTHER; 256];
    let mut i = 0;
    while i < KNOWN.len() {
        let letter = KNOWN[i].1;
        if letter != 0 {
            compact[letter as usize] = i as u8 + 1;
            compact[letter.to_ascii_uppercase() as usize] = i as u8 + 1;
        }
        i += 1;
    }
    compact
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Returns the long form of a known name.
fn known_text(id: u8) -> Option<&'static [u8]> {
    Some(KNOWN.get(usize::from(id).checked_sub(1)?)?.0.as_bytes())
}

/// Returns the id of the name that `text` spells.
#[inline]
pub(crate) fn classify(text: &[u8]) -> u8 {
    match text {
        [] => return OTHER,
        [letter] => return COMPACT[usize::from(*letter)],
        _ => {}
    }
    let mut at = slot(text);
    loop {
        let id = TABLE[at];
        match known_text(id) {
            None => return OTHER,
            // Nearly everybody writes the name as the RFC does.
            Some(known) if text == known || text.eq_ignore_ascii_case(known) => return id,
            Some(_) => at = (at + 1) % SLOTS,
        }
    }
}

/// Returns id and length of the name that a line begins with, when it is one
/// that nearly every message has, written as nearly everybody does.
#[inline]
pub(crate) fn usual(line: &[u8]) -> Option<(u8, usize)> {
    match line {
        [b'V', b'i', b'a', b':', ..] => Some((Name::VIA.id, 3)),
        [b'T', b'o', b':', ..] => Some((Name::TO.id, 2)),
        [b'F', b'r', b'o', b'm', b':', ..] => Some((Name::FROM.id, 4)),
        [b'C', b'S', b'e', b'q', b':', ..] => Some((Name::CSEQ.id, 4)),
        [b'C', b'a', b'l', b'l', b'-', b'I', b'D', b':', ..] => Some((Name::CALL_ID.id, 7)),
        [b'C', b'o', b'n', b't', rest @ ..] => match rest {
            [b'a', b'c', b't', b':', ..] => Some((Name::CONTACT.id, 7)),
            [b'e', b'n', b't', b'-', rest @ ..] => match rest {
                [b'L', b'e', b'n', b'g', b't', b'h', b':', ..] => {
                    Some((Name::CONTENT_LENGTH.id, 14))
                }
                [b'T', b'y', b'p', b'e', b':', ..] => Some((Name::CONTENT_TYPE.id, 12)),
                _ => None,
            },
            _ => None,
        },
        [b'M', b'a', b'x', b'-', b'F', b'o', b'r', b'w', b'a', b'r', b'd', b's', b':', ..] => {
            Some((Name::MAX_FORWARDS.id, 12))
        }
        [b'A', b'l', b'l', b'o', b'w', b':', ..] => Some((Name::ALLOW.id, 5)),
        [b'R', b'e', b'c', b'o', b'r', b'd', b'-', b'R', b'o', b'u', b't', b'e', b':', ..] => {
            Some((Name::RECORD_ROUTE.id, 12))
        }
        [b'R', b'o', b'u', b't', b'e', b':', ..] => Some((Name::ROUTE.id, 5)),
        [b'S', b'u', b'p', b'p', b'o', b'r', b't', b'e', b'd', b':', ..] => {
            Some((Name::SUPPORTED.id, 9))
        }
        [b'U', b's', b'e', b'r', b'-', b'A', b'g', b'e', b'n', b't', b':', ..] => {
            Some((Name::USER_AGENT.id, 10))
        }
        _ => None,
    }
}

/// The names that have a constant.
impl Name<'static> {
    /// `Accept`.
    pub const ACCEPT: Self = Self::known("Accept");
    /// `Accept-Contact`.
    pub const ACCEPT_CONTACT: Self = Self::known("Accept-Contact");
    /// `Accept-Encoding`.
    pub const ACCEPT_ENCODING: Self = Self::known("Accept-Encoding");
    /// `Accept-Language`.
    pub const ACCEPT_LANGUAGE: Self = Self::known("Accept-Language");
    /// `Alert-Info`.
    pub const ALERT_INFO: Self = Self::known("Alert-Info");
    /// `Allow`.
    pub const ALLOW: Self = Self::known("Allow");
    /// `Allow-Events`.
    pub const ALLOW_EVENTS: Self = Self::known("Allow-Events");
    /// `Authentication-Info`.
    pub const AUTHENTICATION_INFO: Self = Self::known("Authentication-Info");
    /// `Authorization`.
    pub const AUTHORIZATION: Self = Self::known("Authorization");
    /// `Call-ID`.
    pub const CALL_ID: Self = Self::known("Call-ID");
    /// `Call-Info`.
    pub const CALL_INFO: Self = Self::known("Call-Info");
    /// `Contact`.
    pub const CONTACT: Self = Self::known("Contact");
    /// `Content-Disposition`.
    pub const CONTENT_DISPOSITION: Self = Self::known("Content-Disposition");
    /// `Content-Encoding`.
    pub const CONTENT_ENCODING: Self = Self::known("Content-Encoding");
    /// `Content-Language`.
    pub const CONTENT_LANGUAGE: Self = Self::known("Content-Language");
    /// `Content-Length`.
    pub const CONTENT_LENGTH: Self = Self::known("Content-Length");
    /// `Content-Type`.
    pub const CONTENT_TYPE: Self = Self::known("Content-Type");
    /// `CSeq`.
    pub const CSEQ: Self = Self::known("CSeq");
    /// `Date`.
    pub const DATE: Self = Self::known("Date");
    /// `Diversion`.
    pub const DIVERSION: Self = Self::known("Diversion");
    /// `Error-Info`.
    pub const ERROR_INFO: Self = Self::known("Error-Info");
    /// `Event`.
    pub const EVENT: Self = Self::known("Event");
    /// `Expires`.
    pub const EXPIRES: Self = Self::known("Expires");
    /// `Flow-Timer`.
    pub const FLOW_TIMER: Self = Self::known("Flow-Timer");
    /// `From`.
    pub const FROM: Self = Self::known("From");
    /// `Geolocation`.
    pub const GEOLOCATION: Self = Self::known("Geolocation");
    /// `History-Info`.
    pub const HISTORY_INFO: Self = Self::known("History-Info");
    /// `Identity`.
    pub const IDENTITY: Self = Self::known("Identity");
    /// `In-Reply-To`.
    pub const IN_REPLY_TO: Self = Self::known("In-Reply-To");
    /// `Join`.
    pub const JOIN: Self = Self::known("Join");
    /// `Max-Forwards`.
    pub const MAX_FORWARDS: Self = Self::known("Max-Forwards");
    /// `MIME-Version`.
    pub const MIME_VERSION: Self = Self::known("MIME-Version");
    /// `Min-Expires`.
    pub const MIN_EXPIRES: Self = Self::known("Min-Expires");
    /// `Min-SE`.
    pub const MIN_SE: Self = Self::known("Min-SE");
    /// `Organization`.
    pub const ORGANIZATION: Self = Self::known("Organization");
    /// `P-Access-Network-Info`.
    pub const P_ACCESS_NETWORK_INFO: Self = Self::known("P-Access-Network-Info");
    /// `P-Asserted-Identity`.
    pub const P_ASSERTED_IDENTITY: Self = Self::known("P-Asserted-Identity");
    /// `P-Associated-URI`.
    pub const P_ASSOCIATED_URI: Self = Self::known("P-Associated-URI");
    /// `P-Charging-Vector`.
    pub const P_CHARGING_VECTOR: Self = Self::known("P-Charging-Vector");
    /// `P-Preferred-Identity`.
    pub const P_PREFERRED_IDENTITY: Self = Self::known("P-Preferred-Identity");
    /// `Path`.
    pub const PATH: Self = Self::known("Path");
    /// `Priority`.
    pub const PRIORITY: Self = Self::known("Priority");
    /// `Privacy`.
    pub const PRIVACY: Self = Self::known("Privacy");
    /// `Proxy-Authenticate`.
    pub const PROXY_AUTHENTICATE: Self = Self::known("Proxy-Authenticate");
    /// `Proxy-Authorization`.
    pub const PROXY_AUTHORIZATION: Self = Self::known("Proxy-Authorization");
    /// `Proxy-Require`.
    pub const PROXY_REQUIRE: Self = Self::known("Proxy-Require");
    /// `RAck`.
    pub const RACK: Self = Self::known("RAck");
    /// `Reason`.
    pub const REASON: Self = Self::known("Reason");
    /// `Record-Route`.
    pub const RECORD_ROUTE: Self = Self::known("Record-Route");
    /// `Recv-Info`.
    pub const RECV_INFO: Self = Self::known("Recv-Info");
    /// `Refer-Sub`.
    pub const REFER_SUB: Self = Self::known("Refer-Sub");
    /// `Refer-To`.
    pub const REFER_TO: Self = Self::known("Refer-To");
    /// `Referred-By`.
    pub const REFERRED_BY: Self = Self::known("Referred-By");
    /// `Reject-Contact`.
    pub const REJECT_CONTACT: Self = Self::known("Reject-Contact");
    /// `Remote-Party-ID`.
    pub const REMOTE_PARTY_ID: Self = Self::known("Remote-Party-ID");
    /// `Replaces`.
    pub const REPLACES: Self = Self::known("Replaces");
    /// `Reply-To`.
    pub const REPLY_TO: Self = Self::known("Reply-To");
    /// `Request-Disposition`.
    pub const REQUEST_DISPOSITION: Self = Self::known("Request-Disposition");
    /// `Require`.
    pub const REQUIRE: Self = Self::known("Require");
    /// `Retry-After`.
    pub const RETRY_AFTER: Self = Self::known("Retry-After");
    /// `Route`.
    pub const ROUTE: Self = Self::known("Route");
    /// `RSeq`.
    pub const RSEQ: Self = Self::known("RSeq");
    /// `Server`.
    pub const SERVER: Self = Self::known("Server");
    /// `Service-Route`.
    pub const SERVICE_ROUTE: Self = Self::known("Service-Route");
    /// `Session-Expires`.
    pub const SESSION_EXPIRES: Self = Self::known("Session-Expires");
    /// `SIP-ETag`.
    pub const SIP_ETAG: Self = Self::known("SIP-ETag");
    /// `SIP-If-Match`.
    pub const SIP_IF_MATCH: Self = Self::known("SIP-If-Match");
    /// `Subject`.
    pub const SUBJECT: Self = Self::known("Subject");
    /// `Subscription-State`.
    pub const SUBSCRIPTION_STATE: Self = Self::known("Subscription-State");
    /// `Supported`.
    pub const SUPPORTED: Self = Self::known("Supported");
    /// `Target-Dialog`.
    pub const TARGET_DIALOG: Self = Self::known("Target-Dialog");
    /// `Timestamp`.
    pub const TIMESTAMP: Self = Self::known("Timestamp");
    /// `To`.
    pub const TO: Self = Self::known("To");
    /// `Unsupported`.
    pub const UNSUPPORTED: Self = Self::known("Unsupported");
    /// `User-Agent`.
    pub const USER_AGENT: Self = Self::known("User-Agent");
    /// `User-to-User`.
    pub const USER_TO_USER: Self = Self::known("User-to-User");
    /// `Via`.
    pub const VIA: Self = Self::known("Via");
    /// `Warning`.
    pub const WARNING: Self = Self::known("Warning");
    /// `WWW-Authenticate`.
    pub const WWW_AUTHENTICATE: Self = Self::known("WWW-Authenticate");
    /// `Info-Package`.
    pub const INFO_PACKAGE: Self = Self::known("Info-Package");
}

#[cfg(test)]
mod tests;
