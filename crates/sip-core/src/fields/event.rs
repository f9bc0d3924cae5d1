//! What a subscription is about, and how it stands (RFC 6665).

use std::borrow::Cow;

use crate::lex;
use crate::params::{Malformed, Params};

use super::head_and_params;

/// The event of a subscription (RFC 6665 §8.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// The package with its templates: `refer`, `presence.winfo`. Packages
    /// compare byte by byte.
    pub package: &'a [u8],
    /// All parameters.
    pub params: Params<'a>,
}

impl<'a> Event<'a> {
    /// Reads an Event value, or one element of Allow-Events.
    ///
    /// # Errors
    /// The package is no token.
    pub fn parse(value: &'a [u8]) -> Result<Self, Malformed> {
        let (package, params) = head_and_params(value);
        if lex::is_token(package) { Ok(Self { package, params }) } else { Err(Malformed) }
    }

    /// Returns what tells this subscription from others of the same dialog and
    /// package.
    #[must_use]
    pub fn id(&self) -> Option<&'a [u8]> {
        self.params.get(b"id").filter(|id| !id.is_empty())
    }
}

/// How a subscription stands (RFC 6665 §8.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriptionState<'a> {
    /// `active`, `pending`, `terminated`, or one never heard of.
    pub state: &'a [u8],
    /// All parameters.
    pub params: Params<'a>,
}

impl<'a> SubscriptionState<'a> {
    /// Reads a Subscription-State value.
    ///
    /// # Errors
    /// The state is no token.
    pub fn parse(value: &'a [u8]) -> Result<Self, Malformed> {
        let (state, params) = head_and_params(value);
        if lex::is_token(state) { Ok(Self { state, params }) } else { Err(Malformed) }
    }

    /// True when no more notifications will come.
    #[must_use]
    pub fn is_terminated(&self) -> bool {
        self.state.eq_ignore_ascii_case(b"terminated")
    }

    /// Returns how many seconds the subscription still lives.
    #[must_use]
    pub fn expires(&self) -> Option<u32> {
        self.params.get(b"expires").and_then(lex::seconds)
    }

    /// Returns why it ended: `noresource`, `timeout`, `rejected` …
    #[must_use]
    pub fn reason(&self) -> Option<Cow<'a, [u8]>> {
        self.params.get(b"reason").map(lex::unquote)
    }

    /// Returns after how many seconds it may be asked for again.
    #[must_use]
    pub fn retry_after(&self) -> Option<u32> {
        self.params.get(b"retry-after").and_then(lex::seconds)
    }
}
