//! The proof that somebody knows a password (RFC 7616 §3.4).

use std::fmt;

use super::{Algorithm, Hash, Qop};

/// What proves that a user is who it says: the password, or what is left of it
/// in a user database.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Kind);

#[derive(Clone, PartialEq, Eq)]
enum Kind {
    Plain(Vec<u8>),
    /// H(user:realm:password) of one algorithm, in lower-case hex digits.
    Hashed(Hash, String),
}

impl Password {
    /// Takes a password as the user knows it.
    #[must_use]
    pub fn new(password: impl AsRef<[u8]>) -> Self {
        Self(Kind::Plain(password.as_ref().to_vec()))
    }

    /// Takes H(user ":" realm ":" password) in hex digits, which serves one
    /// algorithm and one realm.
    #[must_use]
    pub fn hashed(hash: Hash, hex: &str) -> Self {
        Self(Kind::Hashed(hash, hex.to_ascii_lowercase()))
    }

    /// Returns whether the algorithm can be computed with what is known.
    pub(super) fn serves(&self, algorithm: Algorithm) -> bool {
        match &self.0 {
            Kind::Plain(_) => true,
            Kind::Hashed(hash, _) => *hash == algorithm.hash,
        }
    }

    fn hash(&self, hash: Hash, username: &[u8], realm: &[u8]) -> String {
        match &self.0 {
            Kind::Plain(password) => hash.hex(&[username, realm, password]),
            Kind::Hashed(_, hex) => hex.clone(),
        }
    }
}

impl fmt::Debug for Password {
    /// Shows nothing of it, so that no log ever does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

/// All that goes into a proof but the password.
#[derive(Clone, Copy)]
pub(super) struct Parts<'a> {
    pub(super) algorithm: Algorithm,
    pub(super) username: &'a [u8],
    pub(super) realm: &'a [u8],
    pub(super) nonce: &'a [u8],
    /// `None` for RFC 2069, which has neither count nor client nonce.
    pub(super) qop: Option<Qop>,
    pub(super) nc: &'a [u8],
    pub(super) cnonce: &'a [u8],
    /// Empty for the server's own proof.
    pub(super) method: &'a [u8],
    pub(super) uri: &'a [u8],
    pub(super) body: &'a [u8],
}

impl Parts<'_> {
    /// Returns the proof in hex digits.
    pub(super) fn response(&self, password: &Password) -> String {
        let hash = self.algorithm.hash;
        let mut key = password.hash(hash, self.username, self.realm);
        if self.algorithm.session {
            key = hash.hex(&[key.as_bytes(), self.nonce, self.cnonce]);
        }
        let request = match self.qop {
            Some(Qop::AuthInt) => {
                hash.hex(&[self.method, self.uri, hash.hex(&[self.body]).as_bytes()])
            }
            Some(Qop::Auth) | None => hash.hex(&[self.method, self.uri]),
        };
        match self.qop {
            Some(qop) => hash.hex(&[
                key.as_bytes(),
                self.nonce,
                self.nc,
                self.cnonce,
                qop.as_str().as_bytes(),
                request.as_bytes(),
            ]),
            None => hash.hex(&[key.as_bytes(), self.nonce, request.as_bytes()]),
        }
    }
}
