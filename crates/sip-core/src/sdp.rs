//! Session descriptions (RFC 8866) as an index of their lines: read what an
//! offer or answer needs, change single lines, keep every other byte.
//!
//! ```
//! use sip_core::sdp::{Direction, Edit, Sdp};
//!
//! let offer = b"v=0\r\no=- 7 7 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\n\
//!     m=audio 4000 RTP/AVP 0 8\r\na=sendonly\r\ny=kept as it is\r\n";
//! let sdp = Sdp::parse(offer)?;
//! assert_eq!(sdp.medium(0).map(|audio| audio.direction()), Some(Direction::SendOnly));
//!
//! let mut edit = Edit::new(&sdp);
//! edit.next_version();
//! edit.all_connections("203.0.113.9".parse()?);
//! edit.port(0, 10_000);
//! assert!(edit.finish().starts_with(b"v=0\r\no=- 7 8 IN IP4 192.0.2.1\r\n"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::net::IpAddr;

use crate::lex;
use crate::uri::{ipv4, ipv6};

mod codec;
mod direction;
mod edit;
mod media;
mod offer;

pub use codec::Rtpmap;
pub use direction::Direction;
pub use edit::Edit;
pub use media::Media;
pub use offer::{AnswerError, NextError, check_answer, check_next};

/// A description may have this many lines.
pub const LINES_MAX: usize = 2048;
/// A description may have this many media.
pub const MEDIA_MAX: usize = 64;

/// Why a body is no session description. The peer is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} at byte {offset}")]
pub struct SdpError {
    /// What was found.
    pub kind: SdpErrorKind,
    /// Where.
    pub offset: usize,
}

/// Why a body is no session description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SdpErrorKind {
    /// The first line is not `v=0`.
    #[error("no version line")]
    Version,
    /// A line is not a letter, `=` and a value.
    #[error("a line without a type")]
    Line,
    /// There is no `o=` line of six fields.
    #[error("no origin line")]
    Origin,
    /// An `m=` line has no port, protocol or format.
    #[error("malformed media line")]
    Media,
    /// More than [`LINES_MAX`] lines or [`MEDIA_MAX`] media.
    #[error("too long")]
    TooLong,
}

/// One line: `kind=value`, and where the next one starts.
#[derive(Clone, Copy, Debug)]
struct Line {
    kind: u8,
    at: usize,
    end: usize,
    next: usize,
}

/// The lines of one medium: its `m=` line and those up to the next one.
#[derive(Clone, Copy, Debug)]
struct Section {
    first: usize,
    end: usize,
}

/// A session description, indexed where it stands. Lines may end with LF alone,
/// and the last one with nothing (RFC 8866 §5); lines of unknown kind, in any
/// order, are kept.
#[derive(Clone, Debug)]
pub struct Sdp<'a> {
    text: &'a [u8],
    lines: Vec<Line>,
    media: Vec<Section>,
}

impl<'a> Sdp<'a> {
    /// Indexes a body.
    ///
    /// # Errors
    /// See [`SdpErrorKind`]; missing `s=`, `t=` and `c=` lines are no error.
    pub fn parse(text: &'a [u8]) -> Result<Self, SdpError> {
        let error = |kind, offset| SdpError { kind, offset };
        let mut sdp = Self { text, lines: Vec::with_capacity(24), media: Vec::new() };
        let mut at = 0;
        while at < text.len() {
            let stop = memchr::memchr(b'\n', &text[at..]).map_or(text.len(), |len| at + len);
            let next = text.len().min(stop + 1);
            let end = if text[at..stop].ends_with(b"\r") { stop - 1 } else { stop };
            match text[at..end] {
                // Empty lines behind the last one are common and mean nothing.
                [] if text[at..].iter().all(|&b| lex::is_lws(b)) => break,
                [kind, b'=', ..] if kind.is_ascii_alphabetic() => {
                    sdp.lines.push(Line { kind, at, end, next });
                }
                _ => return Err(error(SdpErrorKind::Line, at)),
            }
            if sdp.lines.len() > LINES_MAX {
                return Err(error(SdpErrorKind::TooLong, at));
            }
            at = next;
        }
        if sdp.lines.first().map(|line| sdp.value(*line)) != Some(b"0") || text[0] != b'v' {
            return Err(error(SdpErrorKind::Version, 0));
        }
        sdp.index_media()?;
        if sdp.origin_line().is_none() {
            return Err(error(SdpErrorKind::Origin, 0));
        }
        Ok(sdp)
    }

    fn index_media(&mut self) -> Result<(), SdpError> {
        for (index, line) in self.lines.iter().enumerate() {
            if line.kind != b'm' {
                continue;
            }
            let error = |kind| SdpError { kind, offset: line.at };
            if media::media_line(self.value(*line)).is_none() {
                return Err(error(SdpErrorKind::Media));
            }
            if self.media.len() == MEDIA_MAX {
                return Err(error(SdpErrorKind::TooLong));
            }
            if let Some(last) = self.media.last_mut() {
                last.end = index;
            }
            self.media.push(Section { first: index, end: self.lines.len() });
        }
        Ok(())
    }

    /// Returns the whole description.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.text
    }

    /// Returns the `o=` line.
    #[must_use]
    pub fn origin(&self) -> Origin<'a> {
        let (_, origin) = self.origin_line().expect("`parse` found an origin line");
        origin
    }

    fn origin_line(&self) -> Option<(Line, Origin<'a>)> {
        let line = self.session().iter().find(|line| line.kind == b'o')?;
        let mut fields = words(self.value(*line));
        let mut field = || fields.next();
        let origin = Origin {
            username: field()?,
            session_id: field()?,
            version: field()?,
            net_type: field()?,
            addr_type: field()?,
            address: field()?,
        };
        let is_number = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
        is_number(origin.version).then_some((*line, origin))
    }

    /// Returns the `c=` line above all media.
    #[must_use]
    pub fn connection(&self) -> Option<Connection<'a>> {
        self.connection_in(self.session())
    }

    /// Returns the direction stated above all media.
    #[must_use]
    pub fn direction(&self) -> Option<Direction> {
        self.direction_in(self.session())
    }

    /// Iterates over the values of `a=name` and `a=name:value` above all media;
    /// empty for the former.
    pub fn attributes(&self, name: &'static str) -> impl Iterator<Item = &'a [u8]> + '_ {
        self.attributes_in(self.session(), name)
    }

    /// Iterates over the media, in order.
    pub fn media(&self) -> impl Iterator<Item = Media<'_, 'a>> {
        (0..self.media.len()).filter_map(|index| self.medium(index))
    }

    /// Returns the number of media.
    #[must_use]
    pub const fn media_len(&self) -> usize {
        self.media.len()
    }

    /// Returns one medium, counted from 0.
    #[must_use]
    pub fn medium(&self, index: usize) -> Option<Media<'_, 'a>> {
        let section = *self.media.get(index)?;
        let line = media::media_line(self.value(self.lines[section.first]))?;
        Some(Media { sdp: self, section, line })
    }

    fn session(&self) -> &[Line] {
        let end = self.media.first().map_or(self.lines.len(), |section| section.first);
        &self.lines[..end]
    }

    fn value(&self, line: Line) -> &'a [u8] {
        &self.text[line.at + 2..line.end]
    }

    fn connection_in(&self, lines: &[Line]) -> Option<Connection<'a>> {
        let line = lines.iter().find(|line| line.kind == b'c')?;
        let mut fields = words(self.value(*line));
        let (_net, addr_type, address) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Connection { addr_type, address })
    }

    fn direction_in(&self, lines: &[Line]) -> Option<Direction> {
        lines
            .iter()
            .filter(|line| line.kind == b'a')
            .find_map(|line| Direction::new(self.value(*line)))
    }

    fn attributes_in<'s>(
        &'s self,
        lines: &'s [Line],
        name: &'static str,
    ) -> impl Iterator<Item = &'a [u8]> + use<'s, 'a> {
        lines.iter().filter_map(move |line| attribute(self, *line, name.as_bytes()))
    }
}

/// Returns the value of the line when it is `a=name` or `a=name:…`.
fn attribute<'a>(sdp: &Sdp<'a>, line: Line, name: &[u8]) -> Option<&'a [u8]> {
    if line.kind != b'a' {
        return None;
    }
    match sdp.value(line).strip_prefix(name)? {
        [b':', value @ ..] => Some(value),
        [] => Some(&[]),
        _ => None,
    }
}

fn words(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b' ').filter(|word| !word.is_empty())
}

/// Who made a description, and which version of it this is (RFC 8866 §5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin<'a> {
    /// The user name, or `-`.
    pub username: &'a [u8],
    /// The session, a number that may be longer than 64 bits.
    pub session_id: &'a [u8],
    /// The version, a number that may be longer than 64 bits.
    pub version: &'a [u8],
    /// `IN`.
    pub net_type: &'a [u8],
    /// `IP4` or `IP6`.
    pub addr_type: &'a [u8],
    /// The address or name of the maker's host.
    pub address: &'a [u8],
}

/// Where media is to be sent (RFC 8866 §5.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection<'a> {
    /// `IP4` or `IP6`.
    pub addr_type: &'a [u8],
    /// An address, with `/ttl` when it is a multicast one, or a host name.
    pub address: &'a [u8],
}

impl Connection<'_> {
    /// Returns the address; `None` for a host name or a multicast group with TTL.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        ip(self.address)
    }
}

fn ip(text: &[u8]) -> Option<IpAddr> {
    ipv4(text).map(IpAddr::V4).or_else(|| ipv6(text).map(IpAddr::V6))
}

#[cfg(test)]
mod tests;
