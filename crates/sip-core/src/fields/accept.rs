//! What bodies a peer takes.

use crate::lex;
use crate::params::{Malformed, Params};

use super::head_and_params;

/// One element of Accept (RFC 3261 §20.1), or a media type, of which it is the
/// general case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaRange<'a> {
    /// The type; `*` for all.
    pub kind: &'a [u8],
    /// The subtype; `*` for all.
    pub subtype: &'a [u8],
    /// All parameters, those of the type and `q`.
    pub params: Params<'a>,
}

impl<'a> MediaRange<'a> {
    /// Reads one element.
    ///
    /// # Errors
    /// It is not two tokens with a slash between them, or a `*` stands before
    /// a subtype.
    pub fn parse(element: &'a [u8]) -> Result<Self, Malformed> {
        let (range, params) = head_and_params(element);
        let at = memchr::memchr(b'/', range).ok_or(Malformed)?;
        let (kind, subtype) = (lex::trim_end(&range[..at]), lex::trim_start(&range[at + 1..]));
        let is_whole = lex::is_token(kind) && lex::is_token(subtype);
        if !is_whole || (kind == b"*" && subtype != b"*") {
            return Err(Malformed);
        }
        Ok(Self { kind, subtype, params })
    }

    /// Returns the preference `q` in thousandths; 1000 when there is none that
    /// can be read.
    #[must_use]
    pub fn quality(&self) -> u16 {
        self.params.get(b"q").and_then(quality).unwrap_or(1000)
    }

    /// Returns how closely this range names a type: 2 for itself, 1 for all of
    /// its kind, 0 for everything, `None` when it does not.
    #[must_use]
    pub fn covers(&self, kind: &[u8], subtype: &[u8]) -> Option<u8> {
        match (self.kind, self.subtype) {
            (b"*", _) => Some(0),
            (ours, b"*") if ours.eq_ignore_ascii_case(kind) => Some(1),
            (ours, sub) if ours.eq_ignore_ascii_case(kind) && sub.eq_ignore_ascii_case(subtype) => {
                Some(2)
            }
            _ => None,
        }
    }
}

/// Reads a number from 0 to 1 with at most three decimals (RFC 3261 §25.1
/// qvalue), in thousandths.
pub(crate) fn quality(text: &[u8]) -> Option<u16> {
    let (whole, decimals) = match text {
        [whole, b'.', decimals @ ..] if decimals.len() <= 3 => (whole, decimals),
        [whole] => (whole, &[][..]),
        _ => return None,
    };
    if !decimals.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |at: usize| u16::from(decimals.get(at).map_or(0, |digit| digit - b'0'));
    let thousandths = digit(0) * 100 + digit(1) * 10 + digit(2);
    match whole {
        b'0' => Some(thousandths),
        b'1' if thousandths == 0 => Some(1000),
        _ => None,
    }
}
