//! A display name, a URI and parameters: From, To, Contact, Route and others.

use std::borrow::Cow;

use crate::lex;
use crate::params::{Malformed, Params};
use crate::uri::Uri;

/// One address of a header, read so that nothing inside a display name can be
/// taken for the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameAddr<'a> {
    display: Option<&'a [u8]>,
    uri: &'a [u8],
    params: Params<'a>,
    is_bracketed: bool,
    is_odd: bool,
}

impl<'a> NameAddr<'a> {
    /// Reads one element: `"Bob" <sip:bob@host>;tag=x` or `sip:bob@host;tag=x`.
    /// Without angle brackets all parameters belong to the header (RFC 3261
    /// §20). `*` (RFC 3261 §20.10) is read as a URI of that one character.
    ///
    /// # Errors
    /// A quote or bracket is not closed, brackets hold nothing, a URI without
    /// brackets has a `?` or a `,`, or something stands between `>` and `;`.
    #[inline]
    pub fn parse(element: &'a [u8]) -> Result<Self, Malformed> {
        let element = lex::trim(element);
        let found = match element.first() {
            None => return Err(Malformed),
            Some(b'"') => {
                let (display, rest) = element.split_at(lex::quoted_len(element).ok_or(Malformed)?);
                let [b'<', rest @ ..] = lex::trim_start(rest) else { return Err(Malformed) };
                return Self::bracketed(Some(display), rest, false);
            }
            Some(_) => memchr::memchr3(b'<', b'"', b';', element),
        };
        match found {
            Some(at) if element[at] == b'<' => {
                let display = lex::trim_end(&element[..at]);
                if memchr::memchr2(b':', b'>', display).is_some() {
                    // `sip:a@b <sip:c@d>`: whoever reads the first is misled.
                    return Err(Malformed);
                }
                // RFC 4475 §3.1.2.15: unquoted specials can still be read.
                let is_odd = !display.iter().all(|&b| lex::is_token_byte(b) || lex::is_lws(b));
                let display = (!display.is_empty()).then_some(display);
                Self::bracketed(display, &element[at + 1..], is_odd)
            }
            Some(at) if element[at] == b'"' => Err(Malformed),
            Some(at) => Self::bare(element, at),
            None => Self::bare(element, element.len()),
        }
    }

    #[inline(always)]
    fn bracketed(
        display: Option<&'a [u8]>,
        rest: &'a [u8],
        is_odd: bool,
    ) -> Result<Self, Malformed> {
        let end = memchr::memchr(b'>', rest).ok_or(Malformed)?;
        let uri = lex::trim(&rest[..end]);
        if uri.is_empty() {
            return Err(Malformed);
        }
        // RFC 4475 §3.1.2.14: spaces inside the brackets can still be read.
        let is_odd = is_odd || uri.len() != end;
        let params = &rest[end + 1..];
        match params {
            [] | [b';', ..] => {}
            // Another address, say, which someone else might take.
            params if !matches!(lex::trim_start(params).first(), None | Some(b';')) => {
                return Err(Malformed);
            }
            _ => {}
        }
        Ok(Self { display, uri, params: Params::new(params), is_bracketed: true, is_odd })
    }

    fn bare(element: &'a [u8], end: usize) -> Result<Self, Malformed> {
        let uri = lex::trim_end(&element[..end]);
        // RFC 3261 §20: with a comma or question mark it needs brackets.
        if uri.is_empty() || memchr::memchr2(b'?', b',', uri).is_some() || !lex::is_visible(uri) {
            return Err(Malformed);
        }
        let params = Params::new(&element[end..]);
        Ok(Self { display: None, uri, params, is_bracketed: false, is_odd: false })
    }

    /// Returns the display name without quotes and escapes.
    #[must_use]
    pub fn display(&self) -> Option<Cow<'a, [u8]>> {
        self.display.map(lex::unquote)
    }

    /// Returns the display name as written, with its quotes.
    #[must_use]
    pub const fn display_raw(&self) -> Option<&'a [u8]> {
        self.display
    }

    /// Returns the URI as written, without brackets.
    #[must_use]
    pub const fn uri(&self) -> &'a [u8] {
        self.uri
    }

    /// Returns the URI taken apart.
    ///
    /// # Errors
    /// It is no URI.
    pub fn parsed_uri(&self) -> Result<Uri<'a>, Malformed> {
        Uri::parse(self.uri)
    }

    /// Returns the value of a header parameter; empty when it has none.
    #[must_use]
    pub fn param(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.params.get(name)
    }

    /// Returns all header parameters.
    #[must_use]
    pub const fn params(&self) -> Params<'a> {
        self.params
    }

    /// Returns the tag; an empty one counts as none.
    #[must_use]
    pub fn tag(&self) -> Option<&'a [u8]> {
        self.param(b"tag").filter(|tag| !tag.is_empty())
    }

    /// Returns `expires` in seconds; too large a number is as large as fits.
    #[must_use]
    pub fn expires(&self) -> Option<u32> {
        self.param(b"expires").and_then(lex::seconds)
    }

    /// True for the `*` of a REGISTER that removes all bindings.
    #[must_use]
    pub fn is_star(&self) -> bool {
        self.uri == b"*" && !self.is_bracketed
    }

    /// True when the URI stands in angle brackets.
    #[must_use]
    pub const fn is_bracketed(&self) -> bool {
        self.is_bracketed
    }

    /// True when it could be read only by being lenient: unquoted specials in
    /// the display name, or spaces inside the brackets.
    #[must_use]
    pub(crate) const fn is_odd(&self) -> bool {
        self.is_odd
    }
}
