//! What the headers of digest authentication say.

use std::borrow::Cow;

use super::Algorithm;
use crate::lex;
use crate::params::{Malformed, Param};

/// What of a message the digest protects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Qop {
    /// Method and URI.
    Auth,
    /// Method, URI and body.
    AuthInt,
}

impl Qop {
    fn new(token: &[u8]) -> Option<Self> {
        match token {
            token if token.eq_ignore_ascii_case(b"auth") => Some(Self::Auth),
            token if token.eq_ignore_ascii_case(b"auth-int") => Some(Self::AuthInt),
            _ => None,
        }
    }

    /// Returns the token: `auth` or `auth-int`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::AuthInt => "auth-int",
        }
    }
}

/// Which kinds of protection a challenge offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Qops {
    /// `auth` is among them.
    pub auth: bool,
    /// `auth-int` is among them.
    pub auth_int: bool,
}

/// A challenge: one WWW-Authenticate or Proxy-Authenticate header (RFC 3261
/// §22.2). Quoted values are given without their quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge<'a> {
    /// Whose users are meant.
    pub realm: Cow<'a, [u8]>,
    /// What the answer must be made with.
    pub nonce: Cow<'a, [u8]>,
    /// What the answer must repeat.
    pub opaque: Option<Cow<'a, [u8]>>,
    /// The answer before was right but for the age of its nonce.
    pub stale: bool,
    /// `None` for one that is not supported.
    pub algorithm: Option<Algorithm>,
    /// `None` when no `qop` is given, as by servers of RFC 2069.
    pub qops: Option<Qops>,
}

impl<'a> Challenge<'a> {
    /// Reads one header's value.
    ///
    /// # Errors
    /// The scheme is not Digest, realm or nonce is missing, a parameter cannot
    /// be read or one of those above stands twice.
    pub fn parse(value: &'a [u8]) -> Result<Self, Malformed> {
        let [realm, nonce, opaque, stale, algorithm, qop] = AuthParams::new(value)?.gather([
            b"realm",
            b"nonce",
            b"opaque",
            b"stale",
            b"algorithm",
            b"qop",
        ])?;
        Ok(Self {
            realm: realm.map(lex::unquote).ok_or(Malformed)?,
            nonce: nonce.map(lex::unquote).ok_or(Malformed)?,
            opaque: opaque.map(lex::unquote),
            stale: stale.is_some_and(|stale| lex::unquote(stale).eq_ignore_ascii_case(b"true")),
            algorithm: algorithm_of(algorithm),
            qops: qop.map(|qop| {
                let list = lex::unquote(qop);
                let has =
                    |qop| list.split(|&b| b == b',').any(|t| Qop::new(lex::trim(t)) == Some(qop));
                Qops { auth: has(Qop::Auth), auth_int: has(Qop::AuthInt) }
            }),
        })
    }
}

/// The answer to a challenge: one Authorization or Proxy-Authorization header
/// (RFC 3261 §22.4). Quoted values are given without their quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials<'a> {
    /// The user.
    pub username: Cow<'a, [u8]>,
    /// The realm of the challenge.
    pub realm: Cow<'a, [u8]>,
    /// The nonce of the challenge.
    pub nonce: Cow<'a, [u8]>,
    /// The Request-URI when the answer was made.
    pub uri: Cow<'a, [u8]>,
    /// The proof, in hex digits.
    pub response: Cow<'a, [u8]>,
    /// `None` for one that is not supported.
    pub algorithm: Option<Algorithm>,
    /// What the client adds to the nonce.
    pub cnonce: Option<Cow<'a, [u8]>>,
    /// What the challenge asked to repeat.
    pub opaque: Option<Cow<'a, [u8]>>,
    /// What is protected; `None` for a client of RFC 2069.
    pub qop: Option<Qop>,
    /// How many requests the client has made with this nonce.
    pub nonce_count: Option<u32>,
    /// `nc` as written, which goes into the proof.
    pub(super) nc: &'a [u8],
}

impl<'a> Credentials<'a> {
    /// Reads one header's value.
    ///
    /// # Errors
    /// The scheme is not Digest, username, realm, nonce, uri or response is
    /// missing, `qop` is unknown or lacks `nc` or `cnonce`, `nc` is not eight
    /// hex digits, a parameter cannot be read or one of those above stands
    /// twice.
    pub fn parse(value: &'a [u8]) -> Result<Self, Malformed> {
        let params = AuthParams::new(value)?.gather([
            b"username",
            b"realm",
            b"nonce",
            b"uri",
            b"response",
            b"algorithm",
            b"cnonce",
            b"opaque",
            b"qop",
            b"nc",
        ])?;
        let [username, realm, nonce, uri, response, algorithm, cnonce, opaque, qop, nc] = params;
        let qop = match qop {
            // Some clients quote it.
            Some(qop) => Some(Qop::new(&lex::unquote(qop)).ok_or(Malformed)?),
            None => None,
        };
        let nonce_count = match nc {
            Some(digits) => Some(eight_hex_digits(digits).ok_or(Malformed)?),
            None => None,
        };
        if qop.is_some() && (nonce_count.is_none() || cnonce.is_none()) {
            return Err(Malformed);
        }
        let needed = |value: Option<&'a [u8]>| value.map(lex::unquote).ok_or(Malformed);
        Ok(Self {
            username: needed(username)?,
            realm: needed(realm)?,
            nonce: needed(nonce)?,
            uri: needed(uri)?,
            response: needed(response)?,
            algorithm: algorithm_of(algorithm),
            cnonce: cnonce.map(lex::unquote),
            opaque: opaque.map(lex::unquote),
            qop,
            nonce_count,
            nc: nc.unwrap_or_default(),
        })
    }
}

/// What a server says after accepting credentials (RFC 3261 §20.6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthenticationInfo<'a> {
    /// The nonce to use from now on.
    pub next_nonce: Option<Cow<'a, [u8]>>,
    /// The server's own proof that it knows the password, in hex digits.
    pub response: Option<Cow<'a, [u8]>>,
    /// What that proof protects.
    pub qop: Option<Qop>,
}

impl<'a> AuthenticationInfo<'a> {
    /// Reads the header's value.
    ///
    /// # Errors
    /// A parameter cannot be read, or one of those above stands twice.
    pub fn parse(value: &'a [u8]) -> Result<Self, Malformed> {
        let [next_nonce, response, qop] =
            AuthParams { rest: value }.gather([b"nextnonce", b"rspauth", b"qop"])?;
        Ok(Self {
            next_nonce: next_nonce.map(lex::unquote),
            response: response.map(lex::unquote),
            qop: qop.and_then(|qop| Qop::new(&lex::unquote(qop))),
        })
    }
}

fn algorithm_of(value: Option<&[u8]>) -> Option<Algorithm> {
    // Some servers quote it.
    value.map_or(Some(Algorithm::MD5), |name| Algorithm::new(&lex::unquote(name)))
}

fn eight_hex_digits(text: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(text).ok()?;
    let is_hex = text.len() == 8 && text.bytes().all(|b| b.is_ascii_hexdigit());
    if is_hex { u32::from_str_radix(text, 16).ok() } else { None }
}

/// `name=value` pairs between commas.
#[derive(Clone, Copy)]
struct AuthParams<'a> {
    rest: &'a [u8],
}

impl<'a> AuthParams<'a> {
    /// Begins behind the scheme, which has to be Digest.
    fn new(value: &'a [u8]) -> Result<Self, Malformed> {
        let (scheme, rest) = lex::split_while(lex::trim_start(value), lex::is_token_byte);
        let has_space = rest.first().copied().is_some_and(lex::is_lws);
        if scheme.eq_ignore_ascii_case(b"Digest") && has_space {
            Ok(Self { rest })
        } else {
            Err(Malformed)
        }
    }

    /// Takes the next pair off; empty elements are skipped (RFC 9110 §5.6.1).
    fn take(&mut self) -> Result<Option<Param<'a>>, Malformed> {
        let mut rest = lex::trim_start(self.rest);
        while let [b',', after @ ..] = rest {
            rest = lex::trim_start(after);
        }
        if rest.is_empty() {
            return Ok(None);
        }
        let (name, rest) = lex::split_while(rest, lex::is_token_byte);
        let [b'=', value @ ..] = lex::trim_start(rest) else { return Err(Malformed) };
        let value = lex::trim_start(value);
        let len = match value.first() {
            Some(b'"') => lex::quoted_len(value).ok_or(Malformed)?,
            // More than a token: nonces stand unquoted in the wild.
            _ => lex::split_while(value, lex::is_param_value_byte).0.len(),
        };
        let (value, rest) = value.split_at(len);
        let rest = lex::trim_start(rest);
        if name.is_empty() || value.is_empty() || !matches!(rest.first(), None | Some(b',')) {
            return Err(Malformed);
        }
        self.rest = rest;
        Ok(Some(Param { name, value: Some(value) }))
    }

    /// Returns the values of these parameters, quotes included.
    fn gather<const N: usize>(
        mut self,
        names: [&[u8]; N],
    ) -> Result<[Option<&'a [u8]>; N], Malformed> {
        let mut values = [None; N];
        while let Some(Param { name, value }) = self.take()? {
            let slot = names.iter().position(|known| name.eq_ignore_ascii_case(known));
            if slot.is_some_and(|slot| std::mem::replace(&mut values[slot], value).is_some()) {
                return Err(Malformed);
            }
        }
        Ok(values)
    }
}
