//! `;name=value` parameters of headers and URIs.

use std::borrow::Cow;

use crate::lex::{self, class};

/// One parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param<'a> {
    /// Its name as written; names compare without regard to case.
    pub name: &'a [u8],
    /// Its value as written, quotes included; `None` when there is no `=`.
    pub value: Option<&'a [u8]>,
}

impl<'a> Param<'a> {
    /// Returns the value without quotes and backslashes.
    #[must_use]
    pub fn unquoted(&self) -> Option<Cow<'a, [u8]>> {
        self.value.map(lex::unquote)
    }
}

/// The parameters after a header value, in order. Iterates over those that can
/// be read and stops at the first byte that belongs to none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Params<'a> {
    rest: &'a [u8],
}

impl<'a> Params<'a> {
    /// Reads `text`, which begins with `;`, with white space, or is empty.
    #[must_use]
    pub const fn new(text: &'a [u8]) -> Self {
        Self { rest: text }
    }

    /// Returns the value of the first parameter called `name`: empty when it
    /// has none, `None` when there is no such parameter.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.into_iter()
            .find(|param| param.name.eq_ignore_ascii_case(name))
            .map(|param| param.value.unwrap_or_default())
    }

    /// Returns the text as it stands in the message.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.rest
    }

    /// Takes the next parameter off: `Ok(None)` at the end, `Err` when what
    /// follows is no parameter. An empty one (`;;`) is an error too.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Result<Option<Param<'a>>, Malformed> {
        match self.rest {
            [] => return Ok(None),
            // Nearly all of them: a name and a value, and nothing around them.
            [b';', rest @ ..] => {
                let (name, after) = lex::split_while(rest, lex::is_param_name_byte);
                if let [b'=', after @ ..] = after
                    && let (value @ [_, ..], rest @ ([] | [b';', ..])) =
                        lex::split_class(after, class::PARAM_VALUE)
                    && !name.is_empty()
                {
                    self.rest = rest;
                    return Ok(Some(Param { name, value: Some(value) }));
                }
            }
            _ => {}
        }
        self.take_any()
    }

    /// As [`Params::take`], with white space, quotes, and faults.
    #[cold]
    fn take_any(&mut self) -> Result<Option<Param<'a>>, Malformed> {
        let rest = lex::trim_start(self.rest);
        self.rest = rest;
        let [b';', rest @ ..] = rest else {
            return if rest.is_empty() { Ok(None) } else { Err(Malformed) };
        };
        let rest = lex::trim_start(rest);
        // Set at once, so that a caller who goes on after an error gets on.
        self.rest = rest;
        let (name, rest) = lex::split_class(rest, class::PARAM_NAME);
        if name.is_empty() {
            return Err(Malformed);
        }
        let after = lex::trim_start(rest);
        let [b'=', after @ ..] = after else {
            self.rest = rest;
            return Ok(Some(Param { name, value: None }));
        };
        let after = lex::trim_start(after);
        let len = match after.first() {
            Some(b'"') => lex::quoted_len(after).ok_or(Malformed)?,
            _ => lex::split_class(after, class::PARAM_VALUE).0.len(),
        };
        if len == 0 {
            return Err(Malformed);
        }
        let (value, rest) = after.split_at(len);
        self.rest = rest;
        Ok(Some(Param { name, value: Some(value) }))
    }
}

impl<'a> IntoIterator for Params<'a> {
    type Item = Param<'a>;
    type IntoIter = ParamsIter<'a>;

    fn into_iter(self) -> ParamsIter<'a> {
        ParamsIter { params: self }
    }
}

/// Iterates over [`Params`].
#[derive(Clone, Debug)]
pub struct ParamsIter<'a> {
    params: Params<'a>,
}

impl<'a> Iterator for ParamsIter<'a> {
    type Item = Param<'a>;

    fn next(&mut self) -> Option<Param<'a>> {
        loop {
            match self.params.take() {
                Ok(param) => return param,
                // An empty parameter is skipped; anything else ends the list.
                Err(Malformed) if self.params.rest.first() == Some(&b';') => {}
                Err(Malformed) => {
                    self.params.rest = &[];
                    return None;
                }
            }
        }
    }
}

/// The text does not follow its grammar. The peer is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed")]
pub struct Malformed;
