//! Comparison of URIs (RFC 3261 §19.1.4, RFC 5954 §4.2, RFC 3966 §4).

use std::borrow::Cow;

use super::{Scheme, Uri, hex};

impl Uri<'_> {
    /// True when both name the same thing by the rules of their scheme:
    /// RFC 3261 §19.1.4 for `sip` and `sips`, RFC 3966 §4 for `tel`, byte by
    /// byte for all others. A `sip` URI never equals a `sips` URI.
    #[must_use]
    pub fn is_equivalent(&self, other: &Uri<'_>) -> bool {
        if self.scheme != other.scheme {
            return false;
        }
        match self.scheme {
            Scheme::Sip | Scheme::Sips => self.is_same_sip(other),
            Scheme::Tel => is_same_number(self, other) && has_same_params(self, other, |_| true),
            Scheme::Other => {
                self.scheme_text().eq_ignore_ascii_case(other.scheme_text())
                    && self.text[self.scheme_len..] == other.text[other.scheme_len..]
            }
        }
    }

    fn is_same_sip(&self, other: &Uri<'_>) -> bool {
        let same_host = match (self.host, other.host) {
            (Some(a), Some(b)) => match (a.ip(), b.ip()) {
                (None, None) => a.as_bytes().eq_ignore_ascii_case(b.as_bytes()),
                (a, b) => a == b,
            },
            _ => false,
        };
        same_host
            && self.port == other.port
            && self.user.map(canonical) == other.user.map(canonical)
            && self.password.map(canonical) == other.password.map(canonical)
            && has_same_params(self, other, is_never_defaulted)
            && has_same_headers(self, other)
    }
}

/// Resolves those `%` escapes that change nothing: RFC 3261 §19.1.4 has a
/// character equal its escape unless it is a reserved one. What stays escaped
/// has digits in upper case.
fn canonical(text: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'%', text).is_none() {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        rest = after;
        let escaped = match after {
            [high, low, ..] if *first == b'%' => hex(*high).zip(hex(*low)),
            _ => None,
        };
        let Some((high, low)) = escaped else {
            out.push(*first);
            continue;
        };
        match high << 4 | low {
            b'%' | b';' | b'/' | b'?' | b':' | b'@' | b'&' | b'=' | b'+' | b'$' | b',' => {
                out.push(b'%');
                out.extend(after[..2].iter().map(u8::to_ascii_uppercase));
            }
            byte => out.push(byte),
        }
        rest = &after[2..];
    }
    Cow::Owned(out)
}

/// These must stand in both URIs or in neither.
fn is_never_defaulted(name: &[u8]) -> bool {
    [&b"user"[..], b"ttl", b"method", b"maddr", b"transport"]
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known))
}

/// True when parameters in both agree, and those in one only may be missing.
fn has_same_params(a: &Uri<'_>, b: &Uri<'_>, must_match: impl Fn(&[u8]) -> bool) -> bool {
    let agrees = |one: &Uri<'_>, two: &Uri<'_>| {
        one.params.into_iter().all(|param| {
            let name = canonical(param.name);
            let twin =
                two.params.into_iter().find(|p| canonical(p.name).eq_ignore_ascii_case(&name));
            match twin {
                Some(twin) => is_same_value(one.scheme, &name, param.value, twin.value),
                None => !must_match(&name),
            }
        })
    };
    agrees(a, b) && agrees(b, a)
}

fn is_same_value(scheme: Scheme, name: &[u8], a: Option<&[u8]>, b: Option<&[u8]>) -> bool {
    let (a, b) = (canonical(a.unwrap_or_default()), canonical(b.unwrap_or_default()));
    let is_number = scheme == Scheme::Tel
        && (name.eq_ignore_ascii_case(b"ext")
            || name.eq_ignore_ascii_case(b"phone-context") && a.starts_with(b"+"));
    if is_number { digits(&a).eq(digits(&b)) } else { a.eq_ignore_ascii_case(&b) }
}

/// Header components are never ignored; their order does not matter.
fn has_same_headers(a: &Uri<'_>, b: &Uri<'_>) -> bool {
    let holds = |one: &Uri<'_>, two: &Uri<'_>| {
        one.header_pairs().all(|(name, value)| {
            two.header_pairs().any(|(other, twin)| {
                canonical(name).eq_ignore_ascii_case(&canonical(other))
                    && canonical(value) == canonical(twin)
            })
        })
    };
    a.header_pairs().count() == b.header_pairs().count() && holds(a, b) && holds(b, a)
}

fn is_same_number(a: &Uri<'_>, b: &Uri<'_>) -> bool {
    digits(a.user.unwrap_or_default()).eq(digits(b.user.unwrap_or_default()))
}

/// Iterates over a telephone number without what only helps the eye.
fn digits(number: &[u8]) -> impl Iterator<Item = u8> + '_ {
    number
        .iter()
        .filter(|byte| !matches!(byte, b'-' | b'.' | b'(' | b')'))
        .map(u8::to_ascii_lowercase)
}
