//! Via: the way a response goes back (RFC 3261 §20.42).

use std::net::IpAddr;

use crate::lex;
use crate::params::{Malformed, Params};
use crate::uri::{self, Host};

/// One hop of the way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Via<'a> {
    transport: &'a [u8],
    host: Host<'a>,
    port: Option<u16>,
    params: Params<'a>,
}

impl<'a> Via<'a> {
    /// Reads one element of a Via header. Any version is taken; spaces may
    /// stand around the slashes and the colon, and lines may be folded.
    ///
    /// # Errors
    /// The element does not say `protocol/version/transport host[:port]`.
    pub fn parse(element: &'a [u8]) -> Result<Self, Malformed> {
        Self::read(element)
    }

    /// As [`Via::parse`], for the check of every message.
    #[inline(always)]
    pub(crate) fn read(element: &'a [u8]) -> Result<Self, Malformed> {
        let rest = match element {
            [b'S', b'I', b'P', b'/', b'2', b'.', b'0', b'/', rest @ ..] => rest,
            other => after_slash(after_slash(other)?)?,
        };
        let (transport, rest) = lex::split_while(lex::trim_start(rest), lex::is_token_byte);
        let sent_by = lex::trim_start(rest);
        if transport.is_empty() || sent_by.len() == rest.len() {
            return Err(Malformed);
        }
        let (host, port, params) = Host::split(sent_by)?;
        Ok(Self { transport, host, port, params: Params::new(params) })
    }

    /// Returns the transport as written: `UDP`, `TLS`, or one never heard of.
    #[must_use]
    pub const fn transport(&self) -> &'a [u8] {
        self.transport
    }

    /// Returns the host of sent-by.
    #[must_use]
    pub const fn host(&self) -> Host<'a> {
        self.host
    }

    /// Returns the port of sent-by, when one is written.
    #[must_use]
    pub const fn port(&self) -> Option<u16> {
        self.port
    }

    /// Returns the branch; empty ones count as none.
    #[must_use]
    pub fn branch(&self) -> Option<&'a [u8]> {
        self.param(b"branch").filter(|branch| !branch.is_empty())
    }

    /// Returns `received`, in brackets or not, when it is an address.
    #[must_use]
    pub fn received(&self) -> Option<IpAddr> {
        let text = self.param(b"received")?;
        match text {
            [b'[', inner @ .., b']'] => uri::ipv6(inner).map(IpAddr::V6),
            text => uri::ipv4(text).map(IpAddr::V4).or_else(|| uri::ipv6(text).map(IpAddr::V6)),
        }
    }

    /// Returns what stands as `rport`: `Some(None)` for the bare parameter by
    /// which a client asks for it (RFC 3581 §3).
    #[must_use]
    pub fn rport(&self) -> Option<Option<u16>> {
        let text = self.param(b"rport")?;
        Some(lex::number(text).and_then(|port| u16::try_from(port).ok()))
    }

    /// Returns the value of a parameter; empty when it has none.
    #[must_use]
    pub fn param(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.params.get(name)
    }

    /// Returns all parameters.
    #[must_use]
    pub const fn params(&self) -> Params<'a> {
        self.params
    }
}

/// Skips a token and the slash after it.
fn after_slash(text: &[u8]) -> Result<&[u8], Malformed> {
    let (token, rest) = lex::split_while(lex::trim_start(text), lex::is_token_byte);
    match lex::trim_start(rest) {
        [b'/', rest @ ..] if !token.is_empty() => Ok(rest),
        _ => Err(Malformed),
    }
}
