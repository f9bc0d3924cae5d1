//! Who was called before.

use std::borrow::Cow;

use crate::lex;
use crate::name_addr::NameAddr;
use crate::params::Malformed;

/// A callee who sent the call on (RFC 5806); the topmost is the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Diversion<'a> {
    /// Who, with all parameters.
    pub address: NameAddr<'a>,
}

impl<'a> Diversion<'a> {
    /// Reads one element of a Diversion header.
    ///
    /// # Errors
    /// It is no address.
    pub fn parse(element: &'a [u8]) -> Result<Self, Malformed> {
        NameAddr::parse(element).map(|address| Self { address })
    }

    /// Returns why: `user-busy`, `no-answer`, `unconditional` …
    #[must_use]
    pub fn reason(&self) -> Option<Cow<'a, [u8]>> {
        self.address.param(b"reason").map(lex::unquote)
    }

    /// Returns how many diversions this one stands for, 1 when not stated.
    #[must_use]
    pub fn counter(&self) -> u32 {
        self.address.param(b"counter").and_then(lex::number).unwrap_or(1)
    }

    /// Returns how much of it may be shown: `full`, `name`, `uri`, `off`.
    #[must_use]
    pub fn privacy(&self) -> Option<Cow<'a, [u8]>> {
        self.address.param(b"privacy").map(lex::unquote)
    }
}
