//! Changes to a description that leave all other bytes as they are.

use std::net::IpAddr;

use super::media::word;
use super::{Direction, Line, Media, Sdp, attribute};
use crate::splice::Splices;

/// Changes single lines of a description. Media are counted from 0; a call for
/// a medium that is not there does nothing. Of two calls that set the same
/// thing the later one counts.
#[derive(Clone, Debug)]
pub struct Edit<'s, 'a> {
    sdp: &'s Sdp<'a>,
    splices: Splices,
    added: Vec<Added>,
}

/// A line that stands at the end of a medium's section, one per key.
#[derive(Clone, Debug)]
struct Added {
    medium: usize,
    key: &'static str,
    text: Vec<u8>,
}

impl<'s, 'a> Edit<'s, 'a> {
    /// Begins with nothing changed.
    #[must_use]
    pub fn new(sdp: &'s Sdp<'a>) -> Self {
        Self { sdp, splices: Splices::default(), added: Vec::new() }
    }

    /// Replaces the value of the `o=` line: `- 1 1 IN IP4 192.0.2.1`.
    pub fn origin(&mut self, value: &[u8]) {
        if let Some((line, _)) = self.sdp.origin_line() {
            self.set_value(line, value);
        }
    }

    /// Replaces the version in the `o=` line.
    pub fn version(&mut self, version: u64) {
        self.set_version(version.to_string().as_bytes());
    }

    /// Makes the version in the `o=` line one higher than it came, as RFC 3264
    /// §8 asks of every changed description; however long the number is.
    pub fn next_version(&mut self) {
        let digits = one_higher(self.sdp.origin().version);
        self.set_version(&digits);
    }

    fn set_version(&mut self, version: &[u8]) {
        self.replace(self.sdp.origin().version, version);
    }

    /// Replaces the address in every `c=` line, above and in the media, and
    /// drops TTLs. Adds one above the media when some medium has none.
    pub fn all_connections(&mut self, ip: IpAddr) {
        let is_connection = |line: &&Line| line.kind == b'c';
        for line in self.sdp.lines.iter().filter(is_connection) {
            self.set_value(*line, &connection(ip));
        }
        let session = self.sdp.session();
        let is_covered = |media: Media<'_, '_>| media.lines().iter().any(|line| line.kind == b'c');
        if session.iter().any(|line| line.kind == b'c')
            || (0 < self.sdp.media_len() && self.sdp.media().all(is_covered))
        {
            return;
        }
        // RFC 8866 §5 puts it behind v, o, s, i, u, e and p.
        let is_before = |line: &&Line| b"vosiuep".contains(&line.kind);
        let at = session.iter().take_while(is_before).last().map_or(0, |line| line.next);
        self.insert(at, b"c=", &connection(ip));
    }

    /// Sets the address of one medium. One that relied on the `c=` line above
    /// all media gets a line of its own.
    pub fn connection(&mut self, medium: usize, ip: IpAddr) {
        let Some(lines) = self.lines(medium) else { return };
        if let Some(line) = lines.iter().find(|line| line.kind == b'c') {
            self.set_value(*line, &connection(ip));
            return;
        }
        let last = lines.iter().take_while(|line| matches!(line.kind, b'm' | b'i')).last();
        if let Some(at) = last.map(|line| line.next) {
            self.insert(at, b"c=", &connection(ip));
        }
    }

    /// Sets the port of one medium; 0 refuses it.
    pub fn port(&mut self, medium: usize, port: u16) {
        if let Some(media) = self.sdp.medium(medium) {
            self.replace(media.line.port_text, port.to_string().as_bytes());
        }
    }

    /// Sets `a=rtcp` of one medium, with the address when one is given, or
    /// takes it away.
    pub fn rtcp(&mut self, medium: usize, rtcp: Option<(u16, Option<IpAddr>)>) {
        let text = rtcp.map(|(port, ip)| match ip {
            Some(ip) => [port.to_string().as_bytes(), b" ", &connection(ip)].concat(),
            None => port.to_string().into_bytes(),
        });
        match text {
            Some(value) => self.set_attribute(medium, "rtcp", &value),
            None => self.remove_attributes(medium, "rtcp"),
        }
    }

    /// Sets the direction of one medium.
    pub fn direction(&mut self, medium: usize, direction: Direction) {
        let Some(lines) = self.lines(medium) else { return };
        let mut found = lines
            .iter()
            .filter(|line| line.kind == b'a' && Direction::new(self.sdp.value(**line)).is_some());
        match found.next() {
            Some(line) => self.set_value(*line, direction.as_str().as_bytes()),
            None => self.add(medium, "direction", direction.as_str().as_bytes()),
        }
    }

    /// Keeps only these payload types of one medium, in the order of its line,
    /// and takes away `rtpmap`, `fmtp` and `rtcp-fb` of the others. Does nothing
    /// when none would be left.
    pub fn narrow(&mut self, medium: usize, keep: &[u8]) {
        let Some(media) = self.sdp.medium(medium) else { return };
        let is_kept = |format: &[u8]| {
            crate::lex::number(format).is_some_and(|n| keep.iter().any(|&k| u32::from(k) == n))
        };
        let kept: Vec<_> = media.formats().filter(|format| is_kept(format)).collect();
        if kept.is_empty() || kept.len() == media.formats().count() {
            return;
        }
        self.replace(media.line.formats, &kept.join(&b' '));
        for line in media.lines() {
            let of = [&b"rtpmap"[..], b"fmtp", b"rtcp-fb"]
                .iter()
                .find_map(|name| attribute(self.sdp, *line, name));
            if let Some(value) = of {
                let (format, _) = word(value);
                if format != b"*" && !is_kept(format) {
                    self.splices.remove(line.at, line.next);
                }
            }
        }
    }

    /// Sets `a=name:value` of one medium, or `a=name` when the value is empty,
    /// in place of the first of its name, or behind all its lines.
    pub fn set_attribute(&mut self, medium: usize, name: &'static str, value: &[u8]) {
        let colon: &[u8] = if value.is_empty() { b"" } else { b":" };
        let text = [name.as_bytes(), colon, value].concat();
        let Some(lines) = self.lines(medium) else { return };
        let mut found =
            lines.iter().filter(|l| attribute(self.sdp, **l, name.as_bytes()).is_some());
        match found.next() {
            Some(line) => self.set_value(*line, &text),
            None => self.add(medium, name, &text),
        }
    }

    /// Takes `a=name` and `a=name:value` of one medium away.
    pub fn remove_attributes(&mut self, medium: usize, name: &'static str) {
        self.added.retain(|added| (added.medium, added.key) != (medium, name));
        let lines = self.lines(medium).unwrap_or_default();
        self.remove_in(lines, name);
    }

    /// Takes `a=name` and `a=name:value` away above the media and in all of them.
    pub fn remove_all_attributes(&mut self, name: &'static str) {
        self.added.retain(|added| added.key != name);
        self.remove_in(&self.sdp.lines, name);
    }

    fn remove_in(&mut self, lines: &[Line], name: &'static str) {
        for line in lines {
            if attribute(self.sdp, *line, name.as_bytes()).is_some() {
                self.splices.remove(line.at, line.next);
            }
        }
    }

    /// Returns the changed description.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        for added in std::mem::take(&mut self.added) {
            if let Some(last) = self.lines(added.medium).and_then(<[_]>::last) {
                let at = last.next;
                self.insert(at, b"a=", &added.text);
            }
        }
        self.splices.apply(self.sdp.text)
    }

    fn add(&mut self, medium: usize, key: &'static str, text: &[u8]) {
        self.added.retain(|added| (added.medium, added.key) != (medium, key));
        self.added.push(Added { medium, key, text: text.to_vec() });
    }

    fn lines(&self, medium: usize) -> Option<&'s [Line]> {
        let section = self.sdp.media.get(medium)?;
        Some(&self.sdp.lines[section.first..section.end])
    }

    /// Replaces everything behind `x=`, and keeps the line's own break.
    fn set_value(&mut self, line: Line, value: &[u8]) {
        let (kind, end) = (&self.sdp.text[line.at..line.at + 2], self.line_break(line));
        self.splices.replace(line.at, line.next, |out| write_line(out, kind, value, end));
    }

    fn replace(&mut self, part: &[u8], text: &[u8]) {
        let span = crate::index::Span::of(self.sdp.text, part);
        let (at, end) = (span.at as usize, span.end as usize);
        self.splices.replace(at, end, |out| out.extend_from_slice(text));
    }

    /// Inserts a whole line at the start of another, or behind the last one,
    /// which may have no break.
    fn insert(&mut self, at: usize, kind: &[u8], value: &[u8]) {
        let end = self.first_break();
        let needs_break = at == self.sdp.text.len()
            && !self.sdp.text.ends_with(b"\n")
            && !self.splices.removes_up_to(at);
        let half_break = self.sdp.text.ends_with(b"\r");
        self.splices.insert(at, |out| {
            if needs_break {
                // The new last line then has none either.
                out.extend_from_slice(if half_break { b"\n" } else { end });
                write_line(out, kind, value, b"");
            } else {
                write_line(out, kind, value, end);
            }
        });
    }

    fn line_break(&self, line: Line) -> &'a [u8] {
        &self.sdp.text[line.end..line.next]
    }

    /// The way this description ends its lines.
    fn first_break(&self) -> &'a [u8] {
        match self.sdp.lines.first().map(|line| self.line_break(*line)) {
            Some(found) if found.ends_with(b"\n") => found,
            _ => b"\r\n",
        }
    }
}

/// Writes one line; no value can bring a second one with it.
fn write_line(out: &mut Vec<u8>, kind: &[u8], value: &[u8], end: &[u8]) {
    out.extend_from_slice(kind);
    let is_break = |byte| matches!(byte, b'\r' | b'\n' | 0);
    out.extend(value.iter().map(|&byte| if is_break(byte) { b' ' } else { byte }));
    out.extend_from_slice(end);
}

/// Returns a number of any length, plus one.
pub(super) fn one_higher(number: &[u8]) -> Vec<u8> {
    let mut digits = number.to_vec();
    let is_carried = digits.iter_mut().rev().all(|digit| {
        *digit = if *digit == b'9' { b'0' } else { *digit + 1 };
        *digit == b'0'
    });
    if is_carried {
        digits.insert(0, b'1');
    }
    digits
}

fn connection(ip: IpAddr) -> Vec<u8> {
    let family = if ip.is_ipv4() { "IP4" } else { "IP6" };
    format!("IN {family} {ip}").into_bytes()
}
