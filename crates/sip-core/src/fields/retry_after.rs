//! When to come again.

use crate::lex;
use crate::params::{Malformed, Params};

/// When a refused request may be tried again (RFC 3261 §20.33).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryAfter<'a> {
    /// After so many seconds; too large a number is as large as fits.
    pub seconds: u32,
    /// What it says about that in words, without the outer brackets.
    pub comment: Option<&'a [u8]>,
    /// All parameters.
    pub params: Params<'a>,
}

impl<'a> RetryAfter<'a> {
    /// Reads a Retry-After value.
    ///
    /// # Errors
    /// It does not begin with a number, or a comment is not closed.
    pub fn parse(value: &'a [u8]) -> Result<Self, Malformed> {
        let (digits, rest) = lex::split_while(value, |b| b.is_ascii_digit());
        let seconds = lex::seconds(digits).ok_or(Malformed)?;
        let rest = lex::trim_start(rest);
        let (comment, rest) = match rest.first() {
            Some(b'(') => {
                let len = comment_len(rest).ok_or(Malformed)?;
                (Some(&rest[1..len - 1]), lex::trim_start(&rest[len..]))
            }
            _ => (None, rest),
        };
        match rest.first() {
            None | Some(b';') => Ok(Self { seconds, comment, params: Params::new(rest) }),
            Some(_) => Err(Malformed),
        }
    }

    /// Returns for how many seconds the callee will then be there.
    #[must_use]
    pub fn duration(&self) -> Option<u32> {
        self.params.get(b"duration").and_then(lex::seconds)
    }
}

/// Returns the length of the comment `text` begins with; comments nest, and a
/// backslash takes the next byte's meaning away (RFC 3261 §25.1).
fn comment_len(text: &[u8]) -> Option<usize> {
    let (mut depth, mut at) = (0, 0);
    loop {
        match text.get(at)? {
            b'\\' => at += 1,
            b'(' => depth += 1,
            b')' if depth == 1 => return Some(at + 1),
            b')' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
}
