//! The client's side.

use siphasher::sip128::{Hasher128 as _, SipHasher24};
use std::hash::Hasher as _;

use super::algorithm::hex;
use super::response::Parts;
use super::{Algorithm, AuthenticationInfo, Challenge, Password, Qop};
use crate::{Message, Name};

/// One user's side of digest authentication: keeps the newest challenge of
/// each realm and answers it in every request that follows.
#[derive(Clone, Debug)]
pub struct Client {
    username: Vec<u8>,
    password: Password,
    spaces: Vec<Space>,
    seed: u64,
    cnonces: u64,
}

/// What one realm asked for.
#[derive(Clone, Debug)]
struct Space {
    is_proxy: bool,
    realm: Vec<u8>,
    nonce: Vec<u8>,
    opaque: Option<Vec<u8>>,
    algorithm: Algorithm,
    qop: Option<Qop>,
    /// Requests answered for with this nonce.
    count: u32,
    /// The nonce before it was called stale the first time it served.
    after_stale: bool,
}

/// Why a 401 or 407 cannot be answered. What was known before still stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChallengeError {
    /// The response carries no Digest challenge that can be read.
    #[error("no challenge that can be read")]
    NoChallenge,
    /// No challenge asks for an algorithm and a protection that are known here.
    #[error("no algorithm in common")]
    Unsupported,
    /// The server saw credentials made with a new nonce and wants others: user
    /// or password is wrong, or it calls each new nonce stale. Asking again
    /// would not help.
    #[error("the credentials were refused")]
    Refused,
    /// More than [`Client::REALMS_MAX`] realms have asked.
    #[error("too many realms")]
    TooManyRealms,
}

impl Client {
    /// Realms remembered at most.
    pub const REALMS_MAX: usize = 16;

    /// Makes a client that was never asked. `seed` has to be new for each, as
    /// the client's own nonces are drawn from it.
    #[must_use]
    pub fn new(username: impl AsRef<[u8]>, password: Password, seed: u64) -> Self {
        let username = username.as_ref().to_vec();
        Self { username, password, spaces: Vec::new(), seed, cnonces: 0 }
    }

    /// Takes in a 401 or 407: of each realm the topmost challenge that can be
    /// answered (RFC 8760 §2.4). Then send the request again, with a new
    /// branch, the next CSeq number and what [`Client::authorize`] gives.
    ///
    /// # Errors
    /// See [`ChallengeError`]; give the request up.
    pub fn handle_challenge(&mut self, response: &Message) -> Result<(), ChallengeError> {
        let mut found = Err(ChallengeError::NoChallenge);
        let mut asked: Vec<(bool, Vec<u8>)> = Vec::new();
        for (is_proxy, name) in [(false, Name::WWW_AUTHENTICATE), (true, Name::PROXY_AUTHENTICATE)]
        {
            for challenge in response.headers(name).filter_map(|v| Challenge::parse(v).ok()) {
                let key = (is_proxy, challenge.realm.to_vec());
                if asked.contains(&key) {
                    continue;
                }
                let Some(space) = self.space(is_proxy, &challenge) else {
                    found = found.or(Err(ChallengeError::Unsupported));
                    continue;
                };
                self.remember(space, challenge.stale)?;
                asked.push(key);
                found = Ok(());
            }
        }
        found
    }

    /// Takes in a response that was no challenge: a server may name the nonce
    /// to use next (RFC 7616 §3.5).
    pub fn handle_success(&mut self, response: &Message) {
        let info = response.header(Name::AUTHENTICATION_INFO).map(AuthenticationInfo::parse);
        let Some(Ok(AuthenticationInfo { next_nonce: Some(nonce), .. })) = info else { return };
        // It names no realm, so it is clear only when there is but one.
        let mut servers = self.spaces.iter_mut().filter(|space| !space.is_proxy);
        if let (Some(space), None) = (servers.next(), servers.next()) {
            (space.nonce, space.count) = (nonce.into_owned(), 0);
        }
    }

    /// Returns the headers that `request` needs, one for each realm that has
    /// asked so far. Their proof covers its method, its Request-URI and, where
    /// a realm wants that, its body. Each call counts as one request.
    pub fn authorize(&mut self, request: &Message) -> Vec<(Name<'static>, Vec<u8>)> {
        let (method, uri) = (request.method(), request.request_uri().unwrap_or_default());
        let mut lines = Vec::new();
        for index in 0..self.spaces.len() {
            let cnonce = self.cnonce();
            let space = &mut self.spaces[index];
            space.count += 1;
            let nc = format!("{:08x}", space.count);
            let parts = Parts {
                algorithm: space.algorithm,
                username: &self.username,
                realm: &space.realm,
                nonce: &space.nonce,
                qop: space.qop,
                nc: nc.as_bytes(),
                cnonce: cnonce.as_bytes(),
                method: method.as_bytes(),
                uri,
                body: request.body(),
            };
            lines.push((space.header(), space.credentials(&parts, &self.password)));
        }
        lines
    }

    /// Returns what can be kept of a challenge; `None` when it cannot be answered.
    fn space(&self, is_proxy: bool, challenge: &Challenge<'_>) -> Option<Space> {
        let algorithm = challenge.algorithm.filter(|known| self.password.serves(*known))?;
        let qop = match challenge.qops {
            None => None,
            // Of two, the one that survives a change of the body on the way.
            Some(qops) if qops.auth => Some(Qop::Auth),
            Some(qops) if qops.auth_int => Some(Qop::AuthInt),
            Some(_) => return None,
        };
        Some(Space {
            is_proxy,
            realm: challenge.realm.to_vec(),
            nonce: challenge.nonce.to_vec(),
            opaque: challenge.opaque.as_ref().map(|opaque| opaque.to_vec()),
            algorithm,
            qop,
            count: 0,
            after_stale: false,
        })
    }

    fn remember(&mut self, space: Space, stale: bool) -> Result<(), ChallengeError> {
        let is_full = Self::REALMS_MAX <= self.spaces.len();
        let known = self
            .spaces
            .iter_mut()
            .find(|old| (old.is_proxy, &old.realm) == (space.is_proxy, &space.realm));
        match known {
            // A nonce that served before may have aged without the server
            // saying so; one that never served has not. It may have aged on
            // its way, but two in a row are a server that nothing pleases.
            Some(old) if old.count == 1 && (!stale || old.after_stale) => {
                Err(ChallengeError::Refused)
            }
            Some(old) => {
                let after_stale = old.count == 1;
                *old = Space { after_stale, ..space };
                Ok(())
            }
            None if is_full => Err(ChallengeError::TooManyRealms),
            None => {
                self.spaces.push(space);
                Ok(())
            }
        }
    }

    fn cnonce(&mut self) -> String {
        self.cnonces += 1;
        let mut hasher = SipHasher24::new_with_keys(self.seed, 0);
        hasher.write_u64(self.cnonces);
        hex(&hasher.finish128().as_bytes())
    }
}

impl Space {
    const fn header(&self) -> Name<'static> {
        if self.is_proxy { Name::PROXY_AUTHORIZATION } else { Name::AUTHORIZATION }
    }

    fn credentials(&self, parts: &Parts<'_>, password: &Password) -> Vec<u8> {
        let mut out = b"Digest username=".to_vec();
        quote(&mut out, parts.username);
        for (name, value) in [
            (&b", realm="[..], parts.realm),
            (b", nonce=", parts.nonce),
            (b", uri=", parts.uri),
            (b", response=", parts.response(password).as_bytes()),
        ] {
            out.extend_from_slice(name);
            quote(&mut out, value);
        }
        out.extend_from_slice(b", algorithm=");
        out.extend_from_slice(self.algorithm.as_str().as_bytes());
        if self.qop.is_some() || self.algorithm.session {
            out.extend_from_slice(b", cnonce=");
            quote(&mut out, parts.cnonce);
        }
        if let Some(qop) = self.qop {
            out.extend_from_slice(b", qop=");
            out.extend_from_slice(qop.as_str().as_bytes());
            out.extend_from_slice(b", nc=");
            out.extend_from_slice(parts.nc);
        }
        if let Some(opaque) = &self.opaque {
            out.extend_from_slice(b", opaque=");
            quote(&mut out, opaque);
        }
        out
    }
}

/// Writes a quoted string.
pub(super) fn quote(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for &byte in text {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'"');
}
