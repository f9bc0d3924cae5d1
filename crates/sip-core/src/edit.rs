//! Changes to a message that leave all other bytes as they are.

use std::io::Write;
use std::net::IpAddr;

use bytes::Bytes;

use crate::lex::{self, Elements};
use crate::message::Message;
use crate::splice::Splices;
use crate::writer::{write_filtered, write_header, write_line};
use crate::{Name, Via};

/// Changes one message into another, by splicing: every byte that no call
/// touches is the byte that came in. Calls speak of the original message and
/// may come in any order; of two that set the same thing the later one counts.
#[derive(Clone, Debug)]
pub struct Edit<'a> {
    message: &'a Message,
    splices: Splices,
    vias_popped: usize,
    via_seen_from: Option<(IpAddr, u16)>,
    body: Option<Bytes>,
}

impl<'a> Edit<'a> {
    /// Begins with nothing changed.
    #[must_use]
    pub fn new(message: &'a Message) -> Self {
        let splices = Splices::default();
        Self { message, splices, vias_popped: 0, via_seen_from: None, body: None }
    }

    /// Like [`Edit::new`], in memory that the caller keeps: what `buffer` held
    /// goes, and [`Edit::finish_vec`] returns it with the changed message. A
    /// sender that hands in the same one again and again allocates nothing.
    #[must_use]
    pub fn new_in(message: &'a Message, buffer: Vec<u8>) -> Self {
        Self { splices: Splices::in_buffer(buffer), ..Self::new(message) }
    }

    /// Replaces the Request-URI; does nothing to a response.
    #[must_use]
    pub fn set_request_uri(mut self, uri: &[u8]) -> Self {
        if let Some(span) = self.message.request_uri_span() {
            self.splices.replace(span.at as usize, span.end as usize, |out| {
                write_filtered(out, uri, lex::is_uri_byte);
            });
        }
        self
    }

    /// Puts a Via above all others: `SIP/2.0/UDP host;branch=…`.
    #[must_use]
    pub fn push_via(mut self, value: impl AsRef<[u8]>) -> Self {
        let at = match self.message.find(Name::VIA, 0) {
            Some(index) => self.message.line_at(index).offset(),
            None => self.message.headers_at(),
        };
        self.splices.insert_first(at, |out| write_header(out, Name::VIA, value.as_ref()));
        self
    }

    /// Takes the top Via of the original away; called again, the next one.
    #[must_use]
    pub const fn pop_via(mut self) -> Self {
        self.vias_popped += 1;
        self
    }

    /// Notes in the top Via that is left of the original where the message
    /// came from (RFC 3261 §18.2.1, RFC 3581 §4): `received` when the sender
    /// asked with `rport` or names another host, and `rport` when it asked.
    /// What a peer wrote there itself is replaced.
    #[must_use]
    pub const fn via_received(mut self, ip: IpAddr, port: u16) -> Self {
        self.via_seen_from = Some((ip, port));
        self
    }

    /// Makes this the only header of its name, where the first one stood, or
    /// below all others. Not for Via or Content-Length.
    #[must_use]
    pub fn set(mut self, name: Name<'_>, value: impl AsRef<[u8]>) -> Self {
        let Some(first) = self.message.find(name, 0) else {
            return self.append(name, value);
        };
        self.remove_from(name, first + 1);
        let line = self.message.line_at(first);
        let whole = line.as_bytes();
        let prefix = &whole[..offset_in(whole, line.value())];
        self.splices.replace(line.offset(), line.offset() + whole.len(), |out| {
            out.extend_from_slice(prefix);
            if prefix.ends_with(b":") {
                out.push(b' ');
            }
            write_line(out, value.as_ref());
        });
        self
    }

    /// Adds a header below all others.
    #[must_use]
    pub fn append(mut self, name: Name<'_>, value: impl AsRef<[u8]>) -> Self {
        let at = self.message.headers_end();
        self.splices.insert(at, |out| write_header(out, name, value.as_ref()));
        self
    }

    /// Adds a header above the first of its name (a Record-Route, a Route), or
    /// below all others when there is none.
    #[must_use]
    pub fn prepend(mut self, name: Name<'_>, value: impl AsRef<[u8]>) -> Self {
        let at = match self.message.find(name, 0) {
            Some(index) => self.message.line_at(index).offset(),
            None => self.message.headers_end(),
        };
        self.splices.insert_first(at, |out| write_header(out, name, value.as_ref()));
        self
    }

    /// Takes all headers of this name away.
    #[must_use]
    pub fn remove(mut self, name: Name<'_>) -> Self {
        self.remove_from(name, 0);
        self
    }

    /// Takes the first element of a header that lists several (Route) away.
    #[must_use]
    pub fn pop(mut self, name: Name<'_>) -> Self {
        self.pop_elements(name, 1);
        self
    }

    /// Replaces the body and Content-Length. Content-Type stays; see [`Edit::set`].
    #[must_use]
    pub fn set_body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Returns the changed message.
    #[must_use]
    pub fn finish(self) -> Bytes {
        let message = self.message;
        Bytes::from(self.complete().apply(message.bytes()))
    }

    /// Returns the changed message in the memory that came with
    /// [`Edit::new_in`], grown where it was too small.
    #[must_use]
    pub fn finish_vec(self) -> Vec<u8> {
        let message = self.message;
        self.complete().apply_in_place(message.bytes())
    }

    /// Adds what can only be told at the end.
    fn complete(mut self) -> Splices {
        if let Some((ip, port)) = self.via_seen_from {
            self.stamp(ip, port);
        }
        self.pop_elements(Name::VIA, self.vias_popped);
        if let Some(body) = self.body.take() {
            self = self.set(Name::CONTENT_LENGTH, body.len().to_string());
            let (at, end) = (self.message.body_at(), self.message.bytes().len());
            self.splices.replace(at, end, |out| out.extend_from_slice(&body));
        }
        self.splices
    }

    /// Rewrites `received` and `rport` of the top Via that stays.
    fn stamp(&mut self, ip: IpAddr, port: u16) {
        let Some(element) = self.message.elements(Name::VIA).nth(self.vias_popped) else { return };
        let Ok(via) = Via::parse(element) else { return };
        let asked = via.param(b"rport").is_some();
        let params = via.params().as_bytes();
        let end = offset_in(self.message.bytes(), element) + element.len();
        self.splices.replace(end - params.len(), end, |out| {
            let mut rest = via.params();
            loop {
                let before = rest.as_bytes();
                let Ok(Some(param)) = rest.take() else { break };
                let is_ours = param.name.eq_ignore_ascii_case(b"received")
                    || param.name.eq_ignore_ascii_case(b"rport");
                if !is_ours {
                    out.extend_from_slice(&before[..before.len() - rest.as_bytes().len()]);
                }
            }
            // Writing to a vector cannot fail.
            if asked || via.host().ip() != Some(ip) {
                let _ = write!(out, ";received={ip}");
            }
            if asked {
                let _ = write!(out, ";rport={port}");
            }
            out.extend_from_slice(rest.as_bytes());
        });
    }

    fn remove_from(&mut self, name: Name<'_>, mut from: usize) {
        while let Some(index) = self.message.find(name, from) {
            let line = self.message.line_at(index);
            self.splices.remove(line.offset(), line.offset() + line.as_bytes().len());
            from = index + 1;
        }
    }

    /// Takes the first `count` elements away, whole lines where none is left.
    fn pop_elements(&mut self, name: Name<'_>, mut count: usize) {
        let mut from = 0;
        while 0 < count {
            let Some(index) = self.message.find(name, from) else { return };
            from = index + 1;
            let line = self.message.line_at(index);
            if let Some(first_left) = Elements::new(line.value()).nth(count) {
                let value_at = line.offset() + offset_in(line.as_bytes(), line.value());
                let end = line.offset() + offset_in(line.as_bytes(), first_left);
                self.splices.remove(value_at, end);
                return;
            }
            count -= Elements::new(line.value()).count().min(count);
            self.splices.remove(line.offset(), line.offset() + line.as_bytes().len());
        }
    }
}

/// Returns where `part`, a slice of `whole`, starts in it.
fn offset_in(whole: &[u8], part: &[u8]) -> usize {
    crate::index::Span::of(whole, part).at as usize
}

#[cfg(test)]
mod tests;
