//! URIs: `sip`, `sips` and `tel` taken apart, all others kept as they are.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::lex::{self, class};
use crate::params::{Malformed, Params};

mod compare;

/// What a URI's scheme says about its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `sip:` (RFC 3261 §19.1).
    Sip,
    /// `sips:` (RFC 3261 §19.1).
    Sips,
    /// `tel:` (RFC 3966).
    Tel,
    /// Any other; the URI is opaque.
    Other,
}

/// A URI, read where it stands.
#[derive(Clone, Copy, Debug)]
pub struct Uri<'a> {
    text: &'a [u8],
    scheme_len: usize,
    scheme: Scheme,
    user: Option<&'a [u8]>,
    password: Option<&'a [u8]>,
    host: Option<Host<'a>>,
    port: Option<u16>,
    params: Params<'a>,
    headers: Option<&'a [u8]>,
}

/// A host: a name, an IPv4 address, or an IPv6 reference in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host<'a>(&'a [u8]);

impl<'a> Host<'a> {
    /// Reads `text`, which is the host and nothing else.
    ///
    /// # Errors
    /// `text` is empty, holds a character that no host has, or brackets around
    /// what is no IPv6 address.
    pub fn parse(text: &'a [u8]) -> Result<Self, Malformed> {
        match text {
            [b'[', inner @ .., b']'] => ipv6(inner).map(|_| Self(text)),
            [] => None,
            _ => text.iter().all(|&b| lex::is_host_byte(b)).then_some(Self(text)),
        }
        .ok_or(Malformed)
    }

    /// Takes what was read as a host before.
    pub(crate) const fn known(text: &'a [u8]) -> Self {
        Self(text)
    }

    /// Returns the host as written, an IPv6 reference with its brackets.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    /// Returns the host without brackets.
    #[must_use]
    pub const fn name(&self) -> &'a [u8] {
        match self.0 {
            [b'[', inner @ .., b']'] => inner,
            name => name,
        }
    }

    /// Returns the address when the host is one.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        match self.0 {
            [b'[', inner @ .., b']'] => ipv6(inner).map(IpAddr::V6),
            name => ipv4(name).map(IpAddr::V4),
        }
    }

    /// Splits `host [":" port]` off the front of `text`; white space around
    /// the colon is taken along (RFC 3261 §25.1 COLON).
    #[inline]
    pub(crate) fn split(text: &'a [u8]) -> Result<(Self, Option<u16>, &'a [u8]), Malformed> {
        let (host, rest) = match text.first() {
            Some(b'[') => {
                let end = memchr::memchr(b']', text).ok_or(Malformed)? + 1;
                let (host, rest) = text.split_at(end);
                (Self::parse(host)?, rest)
            }
            _ => {
                let (host, rest) = lex::split_class(text, class::HOST);
                if host.is_empty() {
                    return Err(Malformed);
                }
                (Self(host), rest)
            }
        };
        let [b':', after @ ..] = lex::trim_start(rest) else {
            return Ok((host, None, rest));
        };
        let (digits, rest) = lex::split_while(lex::trim_start(after), |b| b.is_ascii_digit());
        let port = lex::number(digits).and_then(|port| u16::try_from(port).ok());
        Ok((host, Some(port.ok_or(Malformed)?), rest))
    }
}

pub(crate) fn ipv6(text: &[u8]) -> Option<Ipv6Addr> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

pub(crate) fn ipv4(text: &[u8]) -> Option<Ipv4Addr> {
    if !text.first()?.is_ascii_digit() {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

impl<'a> Uri<'a> {
    /// Reads a URI that fills `text`, without brackets or white space.
    ///
    /// # Errors
    /// `text` has no scheme, or a `sip`, `sips` or `tel` URI does not follow
    /// its grammar.
    #[inline]
    pub fn parse(text: &'a [u8]) -> Result<Self, Malformed> {
        let (scheme, scheme_len) = match text {
            [b's', b'i', b'p', b':', ..] => (Scheme::Sip, 3),
            [b's', b'i', b'p', b's', b':', ..] => (Scheme::Sips, 4),
            other => scheme(other)?,
        };
        let mut uri = Self {
            text,
            scheme_len,
            scheme,
            user: None,
            password: None,
            host: None,
            port: None,
            params: Params::new(&[]),
            headers: None,
        };
        let rest = &text[scheme_len + 1..];
        match scheme {
            Scheme::Sip | Scheme::Sips => uri.set_sip(rest)?,
            Scheme::Tel => uri.set_tel(rest)?,
            Scheme::Other if rest.is_empty() || !is_uri_text(rest) => return Err(Malformed),
            Scheme::Other => {}
        }
        Ok(uri)
    }

    #[inline(always)]
    fn set_sip(&mut self, mut rest: &'a [u8]) -> Result<(), Malformed> {
        // Host, parameters and headers hold no `@` unless escaped, while the
        // user part may hold `;` and `?`: the first `@` ends it.
        if let Some(at) = memchr::memchr(b'@', rest) {
            let user_info = &rest[..at];
            let (mut user, more) = lex::split_while(user_info, lex::is_user_byte);
            if !more.is_empty() {
                (user, self.password) = user_and_password(user_info)?;
            }
            if user.is_empty() {
                return Err(Malformed);
            }
            self.user = Some(user);
            rest = &rest[at + 1..];
        }
        let (host, port, rest) = Host::split(rest)?;
        self.host = Some(host);
        self.port = port;
        if rest.is_empty() {
            return Ok(());
        }
        let params_len = memchr::memchr(b'?', rest).unwrap_or(rest.len());
        let (params, headers) = rest.split_at(params_len);
        self.set_params(params)?;
        self.headers = headers.get(1..);
        if self.headers.is_some_and(|headers| !is_escaped_text(headers)) {
            return Err(Malformed);
        }
        Ok(())
    }

    fn set_tel(&mut self, rest: &'a [u8]) -> Result<(), Malformed> {
        let (number, params) = lex::split_while(rest, |b| b != b';');
        if number.is_empty() || !number.iter().all(|&b| is_phone_byte(b)) {
            return Err(Malformed);
        }
        self.user = Some(number);
        self.set_params(params)
    }

    /// Takes parameters that fill `text`; neither spaces nor quotes stand in a
    /// URI, and no `@` that somebody else could take for the one before the host.
    fn set_params(&mut self, text: &'a [u8]) -> Result<(), Malformed> {
        self.params = Params::new(text);
        if are_params(text, lex::split_class) || are_escaped_params(text) {
            Ok(())
        } else {
            Err(Malformed)
        }
    }

    /// Returns the whole URI as written.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.text
    }

    /// Returns the kind of URI.
    #[must_use]
    pub const fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Returns the scheme as written, without the colon.
    #[must_use]
    pub fn scheme_text(&self) -> &'a [u8] {
        &self.text[..self.scheme_len]
    }

    /// Returns the user part, or a `tel` URI's number, as written.
    #[must_use]
    pub const fn user(&self) -> Option<&'a [u8]> {
        self.user
    }

    /// Returns the user part with its `%` escapes resolved. Such bytes may be
    /// anything, NUL included.
    #[must_use]
    pub fn user_unescaped(&self) -> Option<Cow<'a, [u8]>> {
        self.user.map(unescape)
    }

    /// Returns the password, which no one should send.
    #[must_use]
    pub const fn password(&self) -> Option<&'a [u8]> {
        self.password
    }

    /// Returns the host of a `sip` or `sips` URI.
    #[must_use]
    pub const fn host(&self) -> Option<Host<'a>> {
        self.host
    }

    /// Returns the port, when one is written.
    #[must_use]
    pub const fn port(&self) -> Option<u16> {
        self.port
    }

    /// Returns the URI parameters.
    #[must_use]
    pub const fn params(&self) -> Params<'a> {
        self.params
    }

    /// Returns the value of a URI parameter; empty when it has none.
    #[must_use]
    pub fn param(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.params.get(name)
    }

    /// Returns what stands after `?`, still escaped.
    #[must_use]
    pub const fn headers(&self) -> Option<&'a [u8]> {
        self.headers
    }

    /// Iterates over the `name=value` pairs after `?`, still escaped.
    pub fn header_pairs(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        self.headers.into_iter().flat_map(|headers| headers.split(|&b| b == b'&')).map(|pair| {
            match memchr::memchr(b'=', pair) {
                Some(at) => (&pair[..at], &pair[at + 1..]),
                None => (pair, &[][..]),
            }
        })
    }
}

/// Resolves `%` escapes; a `%` without two hex digits stays as it is.
#[must_use]
pub fn unescape(text: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'%', text).is_none() {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        match after {
            [high, low, after @ ..] if *first == b'%' => {
                if let (Some(high), Some(low)) = (hex(*high), hex(*low)) {
                    out.push(high << 4 | low);
                    rest = after;
                    continue;
                }
            }
            _ => {}
        }
        out.push(*first);
        rest = after;
    }
    Cow::Owned(out)
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Returns the scheme and the length of its name.
fn scheme(text: &[u8]) -> Result<(Scheme, usize), Malformed> {
    let len = memchr::memchr(b':', text).ok_or(Malformed)?;
    let is_rest = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
    let scheme = match &text[..len] {
        name if name.eq_ignore_ascii_case(b"sip") => Scheme::Sip,
        name if name.eq_ignore_ascii_case(b"sips") => Scheme::Sips,
        name if name.eq_ignore_ascii_case(b"tel") => Scheme::Tel,
        [first, rest @ ..] if first.is_ascii_alphabetic() && rest.iter().all(is_rest) => {
            Scheme::Other
        }
        _ => return Err(Malformed),
    };
    Ok((scheme, len))
}

fn is_uri_text(text: &[u8]) -> bool {
    text.iter().all(|&b| lex::is_uri_byte(b))
}

/// True for what may stand in a SIP URI: every `%` begins an escape.
fn is_escaped_text(text: &[u8]) -> bool {
    is_uri_text(text) && memchr::memchr_iter(b'%', text).all(|at| begins_escape(&text[at..]))
}

fn begins_escape(text: &[u8]) -> bool {
    matches!(text, [b'%', high, low, ..] if hex(*high).is_some() && hex(*low).is_some())
}

/// Takes a user part apart that holds more than plain characters.
#[cold]
fn user_and_password(text: &[u8]) -> Result<(&[u8], Option<&[u8]>), Malformed> {
    match split_escaped(text, class::USER) {
        (user, []) => Ok((user, None)),
        (user, [b':', password @ ..]) if is_escaped_text(password) => Ok((user, Some(password))),
        _ => Err(Malformed),
    }
}

/// True when `text` is parameters and nothing else; `split` takes a name or a
/// value off.
#[inline(always)]
fn are_params(text: &[u8], split: impl Fn(&[u8], u8) -> (&[u8], &[u8])) -> bool {
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let (name, after) = split(after, class::URI_PARAM_NAME);
        if *first != b';' || name.is_empty() {
            return false;
        }
        rest = after;
        if let [b'=', after @ ..] = after {
            let (value, after) = split(after, class::URI_PARAM_VALUE);
            if value.is_empty() {
                return false;
            }
            rest = after;
        }
    }
    true
}

#[cold]
fn are_escaped_params(text: &[u8]) -> bool {
    are_params(text, split_escaped)
}

/// Splits before the first byte that is neither of `class` nor of an escape.
fn split_escaped(text: &[u8], class: u8) -> (&[u8], &[u8]) {
    let mut at = 0;
    loop {
        at += lex::split_class(&text[at..], class).0.len();
        if !begins_escape(&text[at..]) {
            return text.split_at(at);
        }
        at += 3;
    }
}

fn is_phone_byte(byte: u8) -> bool {
    byte.is_ascii_hexdigit() || matches!(byte, b'+' | b'-' | b'.' | b'(' | b')' | b'*' | b'#')
}

#[cfg(test)]
mod tests;
