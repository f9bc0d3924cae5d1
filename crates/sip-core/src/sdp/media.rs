//! One medium of a description.

use std::net::IpAddr;

use super::{Connection, Direction, Line, Rtpmap, Sdp, Section, ip, words};
use crate::lex;

/// What an `m=` line says.
#[derive(Clone, Copy, Debug)]
pub(super) struct MediaLine<'a> {
    pub(super) kind: &'a [u8],
    pub(super) port_text: &'a [u8],
    pub(super) port: u16,
    pub(super) proto: &'a [u8],
    pub(super) formats: &'a [u8],
}

pub(super) fn media_line(value: &[u8]) -> Option<MediaLine<'_>> {
    let (kind, rest) = word(value);
    let (port_text, rest) = word(rest);
    let (proto, formats) = word(rest);
    let formats = lex::trim(formats);
    let digits = port_text.split(|&b| b == b'/').next()?;
    let port = u16::try_from(lex::number(digits)?).ok()?;
    let is_whole = !kind.is_empty() && !proto.is_empty() && !formats.is_empty();
    is_whole.then_some(MediaLine { kind, port_text: digits, port, proto, formats })
}

pub(super) fn word(text: &[u8]) -> (&[u8], &[u8]) {
    lex::split_while(lex::trim_start(text), |b| b != b' ')
}

/// One medium of a description.
#[derive(Clone, Copy, Debug)]
pub struct Media<'s, 'a> {
    pub(super) sdp: &'s Sdp<'a>,
    pub(super) section: Section,
    pub(super) line: MediaLine<'a>,
}

impl<'s, 'a> Media<'s, 'a> {
    /// Returns the kind: `audio`, `video`, or one never heard of.
    #[must_use]
    pub const fn kind(&self) -> &'a [u8] {
        self.line.kind
    }

    /// Returns the port; 0 refuses the medium or switches it off.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.line.port
    }

    /// Returns the protocol: `RTP/AVP`.
    #[must_use]
    pub const fn proto(&self) -> &'a [u8] {
        self.line.proto
    }

    /// Iterates over the formats; for RTP these are payload type numbers.
    pub fn formats(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        words(self.line.formats)
    }

    /// Iterates over those formats that are payload type numbers.
    pub fn payload_types(&self) -> impl Iterator<Item = u8> + use<'a> {
        self.formats().filter_map(|format| {
            lex::number(format).and_then(|number| u8::try_from(number).ok()).filter(|&n| n < 128)
        })
    }

    /// Returns the medium's own `c=` line, else that above all media.
    #[must_use]
    pub fn connection(&self) -> Option<Connection<'a>> {
        self.sdp.connection_in(self.lines()).or_else(|| self.sdp.connection())
    }

    /// Returns the direction: its own, else that above all media, else both ways.
    #[must_use]
    pub fn direction(&self) -> Direction {
        self.sdp
            .direction_in(self.lines())
            .or_else(|| self.sdp.direction())
            .unwrap_or(Direction::SendRecv)
    }

    /// True when the sender wants nothing sent to it: `sendonly`, `inactive`, or
    /// the address 0.0.0.0 of old phones (RFC 3264 §8.4).
    #[must_use]
    pub fn is_hold(&self) -> bool {
        !self.direction().receives()
            || self
                .connection()
                .and_then(|connection| connection.ip())
                .is_some_and(|ip| ip.is_unspecified())
    }

    /// Returns the codec of a payload type: what `a=rtpmap` says, or what a
    /// static type (0, 8, 9 …) means without one (RFC 3551 §6).
    #[must_use]
    pub fn codec(&self, payload_type: u8) -> Option<Rtpmap<'a>> {
        self.rtpmap(payload_type).or_else(|| Rtpmap::of_static(payload_type))
    }

    /// Returns what `a=rtpmap` says of a payload type; see also [`Media::codec`].
    #[must_use]
    pub fn rtpmap(&self, payload_type: u8) -> Option<Rtpmap<'a>> {
        self.attributes("rtpmap").find_map(|value| {
            let (number, rest) = word(value);
            if lex::number(number) != Some(u32::from(payload_type)) {
                return None;
            }
            let mut parts = lex::trim(rest).split(|&b| b == b'/');
            let encoding = parts.next()?;
            let clock = lex::number(parts.next()?)?;
            let channels = parts.next().and_then(lex::number).unwrap_or(1);
            Some(Rtpmap { encoding, clock, channels })
        })
    }

    /// Returns what `a=fmtp` says of a payload type.
    #[must_use]
    pub fn fmtp(&self, payload_type: u8) -> Option<&'a [u8]> {
        self.attributes("fmtp").find_map(|value| {
            let (number, rest) = word(value);
            (lex::number(number) == Some(u32::from(payload_type))).then(|| lex::trim(rest))
        })
    }

    /// Returns port and address of `a=rtcp` (RFC 3605).
    #[must_use]
    pub fn rtcp(&self) -> Option<(u16, Option<IpAddr>)> {
        let value = self.attributes("rtcp").next()?;
        let mut fields = words(value);
        let port = u16::try_from(lex::number(fields.next()?)?).ok()?;
        Some((port, fields.nth(2).and_then(ip)))
    }

    /// Iterates over the values of `a=name` and `a=name:value` of this medium;
    /// empty for the former.
    pub fn attributes(&self, name: &'static str) -> impl Iterator<Item = &'a [u8]> + use<'s, 'a> {
        self.sdp.attributes_in(self.lines(), name)
    }

    pub(super) fn lines(&self) -> &'s [Line] {
        &self.sdp.lines[self.section.first..self.section.end]
    }
}
