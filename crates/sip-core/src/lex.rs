//! The small scanners that all views share. Inside a header value CR and LF
//! only stand where a line was folded, so they count as white space.

use std::borrow::Cow;

/// Space, tab, or part of a fold.
pub(crate) const fn is_lws(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

const TOKEN: u8 = 1;
const HOST: u8 = 2;
const URI: u8 = 4;
const PARAM_NAME: u8 = 8;
const PARAM_VALUE: u8 = 16;
/// Of a URI's user part: all that may stand in a URI, up to an escape or the
/// password.
const USER: u8 = 32;
/// Of a URI's parameters: up to an escape, or an `@`.
const URI_PARAM_NAME: u8 = 64;
const URI_PARAM_VALUE: u8 = 128;

static CLASS: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut class = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "counts to 256")]
        let b = byte as u8;
        if b > b' ' && !matches!(b, 0x7f | b'<' | b'>' | b'"') {
            class[byte] |= URI;
            if !matches!(b, b':' | b'%') {
                class[byte] |= USER;
            }
            let is_plain = !matches!(b, b'%' | b'@');
            if !matches!(b, b';' | b',') {
                class[byte] |= if is_plain { PARAM_VALUE | URI_PARAM_VALUE } else { PARAM_VALUE };
            }
            if !matches!(b, b';' | b',' | b'=') {
                class[byte] |= if is_plain { PARAM_NAME | URI_PARAM_NAME } else { PARAM_NAME };
            }
        }
        if b.is_ascii_alphanumeric() {
            class[byte] |= TOKEN | HOST;
        }
        if matches!(b, b'-' | b'.' | b'!' | b'%' | b'*' | b'_' | b'+' | b'`' | b'\'' | b'~') {
            class[byte] |= TOKEN;
        }
        if matches!(b, b'-' | b'.' | b'_') {
            class[byte] |= HOST;
        }
        byte += 1;
    }
    class
}

/// A character of `token` (RFC 3261 §25.1).
pub(crate) fn is_token_byte(byte: u8) -> bool {
    CLASS[byte as usize] & TOKEN != 0
}

/// True for a `token` of at least one character.
pub(crate) fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|&b| is_token_byte(b))
}

/// A character of a host name; `_` is not one by the RFC, but is in use.
pub(crate) fn is_host_byte(byte: u8) -> bool {
    CLASS[byte as usize] & HOST != 0
}

/// Anything visible that does not end a URI in a header.
pub(crate) fn is_uri_byte(byte: u8) -> bool {
    CLASS[byte as usize] & URI != 0
}

/// A character of a URI's user part: all that may stand in a URI but an escape
/// and the colon before a password.
pub(crate) fn is_user_byte(byte: u8) -> bool {
    CLASS[byte as usize] & USER != 0
}

/// A character of a parameter's name; more than the RFC's token.
pub(crate) fn is_param_name_byte(byte: u8) -> bool {
    CLASS[byte as usize] & PARAM_NAME != 0
}

/// A character of a parameter's unquoted value; more than the RFC's token and
/// host, since `=` and others stand in real values.
pub(crate) fn is_param_value_byte(byte: u8) -> bool {
    CLASS[byte as usize] & PARAM_VALUE != 0
}

/// True when no byte is a space, a control character or part of a fold.
pub(crate) fn is_visible(text: &[u8]) -> bool {
    // Without an early end, so that many bytes are looked at together.
    text.iter().fold(true, |visible, &b| visible & (b > b' ') & (b != 0x7f))
}

#[inline]
pub(crate) fn trim_start(mut text: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = text
        && is_lws(*first)
    {
        text = rest;
    }
    text
}

pub(crate) fn trim_end(mut text: &[u8]) -> &[u8] {
    while let [rest @ .., last] = text
        && is_lws(*last)
    {
        text = rest;
    }
    text
}

pub(crate) fn trim(text: &[u8]) -> &[u8] {
    trim_end(trim_start(text))
}

/// What a byte may be part of, for [`split_class`].
pub(crate) mod class {
    pub(crate) const HOST: u8 = super::HOST;
    pub(crate) const PARAM_NAME: u8 = super::PARAM_NAME;
    pub(crate) const PARAM_VALUE: u8 = super::PARAM_VALUE;
    pub(crate) const USER: u8 = super::USER;
    pub(crate) const URI_PARAM_NAME: u8 = super::URI_PARAM_NAME;
    pub(crate) const URI_PARAM_VALUE: u8 = super::URI_PARAM_VALUE;
}

/// Splits before the first byte that is not of `class`, which is one of the
/// classes above. Eight bytes are looked at together while all of them are.
#[inline]
pub(crate) fn split_class(text: &[u8], class: u8) -> (&[u8], &[u8]) {
    let mut at = 0;
    for chunk in text.chunks_exact(8) {
        if chunk.iter().fold(class, |all, &b| all & CLASS[usize::from(b)]) == 0 {
            break;
        }
        at += 8;
    }
    while text.get(at).is_some_and(|&b| CLASS[usize::from(b)] & class != 0) {
        at += 1;
    }
    text.split_at(at)
}

/// Splits before the first byte that fails `test`.
pub(crate) fn split_while(text: &[u8], test: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    let at = text.iter().position(|&b| !test(b)).unwrap_or(text.len());
    text.split_at(at)
}

/// Returns the length of the quoted string `text` begins with, both quotes
/// included; `None` when it never ends.
#[inline]
pub(crate) fn quoted_len(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        let found = at + memchr::memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[found] == b'"' {
            return Some(found + 1);
        }
        at = found + 2;
    }
}

/// Reads digits and nothing else; `None` for anything more or less, and for a
/// number that does not fit.
#[inline]
pub(crate) fn number(text: &[u8]) -> Option<u32> {
    if text.is_empty() {
        return None;
    }
    if 9 < text.len() {
        return number_saturating(text).and_then(|value| u32::try_from(value).ok());
    }
    // Nine digits always fit.
    text.iter()
        .try_fold(0, |value, &b| b.is_ascii_digit().then(|| value * 10 + u32::from(b - b'0')))
}

/// Reads digits and nothing else; a number that does not fit becomes the largest.
pub(crate) fn number_saturating(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |value, &b| {
        b.is_ascii_digit().then(|| value.saturating_mul(10).saturating_add(u64::from(b - b'0')))
    })
}

/// Seconds as RFC 4475 §3.1.2.4 advises: too many are as many as fit.
pub(crate) fn seconds(text: &[u8]) -> Option<u32> {
    number_saturating(text).map(|value| u32::try_from(value).unwrap_or(u32::MAX))
}

/// Returns `value` with each fold made one space (RFC 3261 §7.3.1). Borrows
/// when there is no fold.
#[must_use]
pub fn unfold(value: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr2(b'\r', b'\n', value).is_none() {
        return Cow::Borrowed(value);
    }
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some(at) = memchr::memchr2(b'\r', b'\n', rest) {
        out.extend_from_slice(trim_end(&rest[..at]));
        out.push(b' ');
        rest = trim_start(&rest[at..]);
    }
    out.extend_from_slice(rest);
    Cow::Owned(out)
}

/// Returns what a quoted string says: quotes and backslashes gone, folds made
/// spaces. Anything that is no quoted string is returned as it is.
#[must_use]
pub fn unquote(value: &[u8]) -> Cow<'_, [u8]> {
    let [b'"', inner @ .., b'"'] = value else {
        return unfold(value);
    };
    if !inner.contains(&b'\\') {
        return unfold(inner);
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'\\' => out.extend(bytes.next()),
            byte => out.push(byte),
        }
    }
    Cow::Owned(unfold(&out).into_owned())
}

/// The elements of a comma-separated header value, trimmed; a comma inside
/// quotes or angle brackets separates nothing. Empty elements are left out.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Elements<'a> {
    /// Splits `value`.
    #[must_use]
    pub const fn new(value: &'a [u8]) -> Self {
        Self { rest: Some(value) }
    }

    /// Returns the next element even when it is empty.
    #[inline]
    pub(crate) fn next_any(&mut self) -> Option<&'a [u8]> {
        let value = self.rest?;
        // Most values are one element, and most of those have no comma at all.
        if memchr::memchr(b',', value).is_none() {
            self.rest = None;
            return Some(trim(value));
        }
        let mut at = 0;
        while let Some(found) = memchr::memchr3(b',', b'"', b'<', &value[at..]) {
            at += found;
            match value[at] {
                b',' => {
                    self.rest = Some(&value[at + 1..]);
                    return Some(trim(&value[..at]));
                }
                b'"' => match quoted_len(&value[at..]) {
                    Some(len) => at += len,
                    None => break,
                },
                _ => match memchr::memchr(b'>', &value[at..]) {
                    Some(len) => at += len + 1,
                    None => break,
                },
            }
        }
        self.rest = None;
        Some(trim(value))
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            let element = self.next_any()?;
            if !element.is_empty() {
                return Some(element);
            }
        }
    }
}
