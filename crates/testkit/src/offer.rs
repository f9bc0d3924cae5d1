//! The session descriptions of a phone: its own, and those it reads.
//!
//! Written from RFC 8866 and RFC 3264 alone and apart from `sip_core::sdp`, so
//! that a misreading there shows here.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

/// A codec by its RTP payload type number and its `a=rtpmap` text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codec {
    /// The payload type number.
    pub number: u8,
    /// Encoding name and clock rate.
    pub name: &'static str,
}

/// G.711 with µ-law.
pub const PCMU: Codec = Codec { number: 0, name: "PCMU/8000" };
/// G.711 with A-law.
pub const PCMA: Codec = Codec { number: 8, name: "PCMA/8000" };
/// Digits of RFC 4733.
pub const DIGITS: Codec = Codec { number: 101, name: "telephone-event/8000" };

/// Which way a stream runs, seen from whoever wrote the line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Both ways.
    #[default]
    SendRecv,
    /// The writer only sends: it holds the other side.
    SendOnly,
    /// The writer only receives: it is held.
    RecvOnly,
    /// Neither.
    Inactive,
}

impl Direction {
    /// Whether the writer may send.
    pub fn sends(self) -> bool {
        matches!(self, Self::SendRecv | Self::SendOnly)
    }

    /// Whether the writer wants to receive.
    pub fn receives(self) -> bool {
        matches!(self, Self::SendRecv | Self::RecvOnly)
    }

    /// Returns the widest answer to an offer of `self` by somebody who wants
    /// `own` (RFC 3264 §6.1).
    pub fn answered(self, own: Self) -> Self {
        Self::from_parts(own.sends() && self.receives(), own.receives() && self.sends())
    }

    fn from_parts(sends: bool, receives: bool) -> Self {
        match (sends, receives) {
            (true, true) => Self::SendRecv,
            (true, false) => Self::SendOnly,
            (false, true) => Self::RecvOnly,
            (false, false) => Self::Inactive,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::SendRecv => "sendrecv",
            Self::SendOnly => "sendonly",
            Self::RecvOnly => "recvonly",
            Self::Inactive => "inactive",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::SendRecv, Self::SendOnly, Self::RecvOnly, Self::Inactive]
            .into_iter()
            .find(|direction| direction.name() == name)
    }
}

/// What a phone writes: one audio stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Own {
    pub(crate) session: u64,
    pub(crate) version: u64,
    pub(crate) rtp: SocketAddr,
    pub(crate) codecs: Vec<Codec>,
    pub(crate) direction: Direction,
}

impl Own {
    pub(crate) fn text(&self) -> String {
        let family = if self.rtp.is_ipv4() { "IP4" } else { "IP6" };
        let ip = self.rtp.ip();
        let mut text = format!(
            "v=0\r\no=phone {} {} IN {family} {ip}\r\ns=-\r\nc=IN {family} {ip}\r\nt=0 0\r\n\
             m=audio {} RTP/AVP",
            self.session,
            self.version,
            self.rtp.port(),
        );
        // Writing to a `String` cannot fail.
        for codec in &self.codecs {
            let _ = write!(text, " {}", codec.number);
        }
        text.push_str("\r\n");
        for codec in &self.codecs {
            let _ = write!(text, "a=rtpmap:{} {}\r\n", codec.number, codec.name);
        }
        if self.codecs.contains(&DIGITS) {
            let _ = write!(text, "a=fmtp:{} 0-15\r\n", DIGITS.number);
        }
        let _ = write!(text, "a=ptime:20\r\na={}\r\n", self.direction.name());
        text
    }
}

/// What a phone reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Theirs {
    /// The o= line without its version, and the version.
    pub(crate) origin: (String, u64),
    /// Everything but the o= line.
    pub(crate) rest: String,
    /// Media kinds in order.
    pub(crate) media: Vec<String>,
    /// Where the first audio stream is to be sent; `None` if refused or held
    /// the old way, by the address 0.0.0.0 (RFC 2543).
    pub(crate) rtp: Option<SocketAddr>,
    /// The payload type numbers of the first audio stream, best first.
    pub(crate) formats: Vec<u8>,
    /// The meaning of each number that is said.
    pub(crate) names: BTreeMap<u8, String>,
    pub(crate) direction: Direction,
}

impl Theirs {
    /// Reads a description; `None` if a line that must be there is not.
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(body).ok()?;
        let origin = text.lines().find_map(|line| line.strip_prefix("o="))?;
        let mut words: Vec<&str> = origin.split(' ').collect();
        let version = (words.len() == 6).then(|| words.remove(2))?.parse().ok()?;
        let rest = text.lines().filter(|line| !line.starts_with("o=")).collect::<Vec<_>>();
        let mut theirs = Self {
            origin: (words.join(" "), version),
            rest: rest.join("\n"),
            media: Vec::new(),
            rtp: None,
            formats: Vec::new(),
            names: BTreeMap::new(),
            direction: Direction::SendRecv,
        };
        let (mut ip, mut port) = (None, 0);
        // Before the first m= line everything is of the session; after it, of
        // that media; only the first audio counts here.
        let (mut audio, mut in_audio) = (false, false);
        for line in rest {
            if let Some(media) = line.strip_prefix("m=") {
                let mut words = media.split(' ');
                let kind = words.next()?;
                theirs.media.push(kind.to_owned());
                in_audio = kind == "audio" && !audio;
                if in_audio {
                    audio = true;
                    port = words.next()?.split('/').next()?.parse().ok()?;
                    theirs.formats = words.skip(1).filter_map(|word| word.parse().ok()).collect();
                }
            } else if in_audio || theirs.media.is_empty() {
                if let Some(connection) = line.strip_prefix("c=") {
                    ip = connection.split(' ').nth(2)?.parse::<IpAddr>().ok();
                } else if let Some(attribute) = line.strip_prefix("a=") {
                    theirs.attribute(attribute);
                }
            }
        }
        theirs.rtp =
            ip.filter(|ip| !ip.is_unspecified() && port != 0).map(|ip| SocketAddr::new(ip, port));
        Some(theirs)
    }

    fn attribute(&mut self, attribute: &str) {
        if let Some(direction) = Direction::from_name(attribute) {
            self.direction = direction;
        } else if let Some(map) = attribute.strip_prefix("rtpmap:")
            && let Some((number, name)) = map.split_once(' ')
            && let Ok(number) = number.parse()
        {
            self.names.insert(number, name.to_ascii_lowercase());
        }
    }
}

/// Returns the first of `addresses` that stands in `body` outside an o= line.
pub(crate) fn forbidden_in(
    body: &[u8],
    addresses: &std::collections::BTreeSet<IpAddr>,
) -> Option<IpAddr> {
    if addresses.is_empty() {
        return None;
    }
    let text = String::from_utf8_lossy(body);
    text.lines()
        .filter(|line| !line.starts_with("o="))
        .flat_map(|line| line.split(|c: char| !c.is_ascii_hexdigit() && c != '.' && c != ':'))
        .filter_map(|word| word.parse().ok())
        .find(|ip| addresses.contains(ip))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Own {
        Own {
            session: 5,
            version: 7,
            rtp: "127.0.0.9:4000".parse().unwrap(),
            codecs: vec![PCMU, DIGITS],
            direction: Direction::SendOnly,
        }
    }

    #[test]
    fn what_a_phone_writes_a_phone_reads() {
        let theirs = Theirs::read(own().text().as_bytes()).unwrap();

        assert_eq!(theirs.origin, ("phone 5 IN IP4 127.0.0.9".to_owned(), 7));
        assert_eq!(theirs.rtp, Some(own().rtp));
        assert_eq!(theirs.formats, [0, 101]);
        assert_eq!(theirs.names[&101], "telephone-event/8000");
        assert_eq!(theirs.direction, Direction::SendOnly);
        assert_eq!(theirs.media, ["audio"]);
    }

    #[test]
    fn a_media_address_stands_above_the_session_address() {
        let body = "v=0\r\no=- 1 1 IN IP4 10.0.0.1\r\ns=-\r\nc=IN IP4 10.0.0.2\r\nt=0 0\r\n\
                    m=video 0 RTP/AVP 96\r\nc=IN IP4 10.0.0.3\r\na=inactive\r\n\
                    m=audio 4000 RTP/AVP 0\r\nc=IN IP4 10.0.0.4\r\n";
        let theirs = Theirs::read(body.as_bytes()).unwrap();

        assert_eq!(theirs.rtp, Some("10.0.0.4:4000".parse().unwrap()));
        assert_eq!(theirs.direction, Direction::SendRecv);
        assert_eq!(theirs.media, ["video", "audio"]);
    }

    #[test]
    fn a_holder_is_answered_recvonly() {
        use Direction::{Inactive, RecvOnly, SendOnly, SendRecv};
        assert_eq!(SendOnly.answered(SendRecv), RecvOnly);
        assert_eq!(SendRecv.answered(SendOnly), SendOnly);
        assert_eq!(SendOnly.answered(SendOnly), Inactive);
        assert_eq!(Inactive.answered(SendRecv), Inactive);
    }

    #[test]
    fn an_address_is_found_whole_and_outside_the_origin() {
        let forbidden = |text: &str| {
            forbidden_in(text.as_bytes(), &["10.0.0.1".parse().unwrap()].into_iter().collect())
        };
        assert_eq!(forbidden("o=- 1 1 IN IP4 10.0.0.1\r\nc=IN IP4 10.0.0.10\r\n"), None);
        assert!(forbidden("c=IN IP4 10.0.0.1\r\n").is_some());
        assert!(forbidden("a=candidate:1 1 udp 1 10.0.0.1 4000 typ host\r\n").is_some());
    }
}
