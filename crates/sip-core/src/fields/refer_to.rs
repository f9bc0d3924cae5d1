//! What a REFER asks for.

use std::borrow::Cow;

use crate::Method;
use crate::name_addr::NameAddr;
use crate::names::Name;
use crate::params::Malformed;
use crate::uri::{Uri, unescape};

/// What a REFER asks its receiver to do (RFC 3515 §2.1).
#[derive(Clone, Copy, Debug)]
pub struct ReferTo<'a> {
    /// The address as it stands.
    pub address: NameAddr<'a>,
    /// Its URI.
    pub uri: Uri<'a>,
}

impl<'a> ReferTo<'a> {
    /// Reads a Refer-To value.
    ///
    /// # Errors
    /// It is no address, or its URI is none.
    pub fn parse(value: &'a [u8]) -> Result<Self, Malformed> {
        let address = NameAddr::parse(value)?;
        Ok(Self { address, uri: address.parsed_uri()? })
    }

    /// Returns the method to use: INVITE when the URI names none.
    #[must_use]
    pub fn method(&self) -> Method<'a> {
        match self.uri.param(b"method") {
            None | Some(b"") => Method::Invite,
            Some(method) => Method::new(method),
        }
    }

    /// Returns a header that the URI asks to put into the request, unescaped.
    /// Take what you know only: these bytes are the peer's (RFC 3261 §19.1.5).
    #[must_use]
    pub fn header(&self, name: Name<'_>) -> Option<Cow<'a, [u8]>> {
        self.uri
            .header_pairs()
            .find(|(found, _)| Name::new(&unescape(found)) == name)
            .map(|(_, value)| unescape(value))
    }

    /// Returns the value of the Replaces header to send along, for
    /// [`Replaces::parse`](crate::Replaces::parse): of an attended transfer.
    #[must_use]
    pub fn replaces(&self) -> Option<Cow<'a, [u8]>> {
        self.header(Name::REPLACES)
    }
}
