//! The server's side.

use std::hash::Hasher as _;
use std::time::Duration;

use siphasher::sip128::{Hasher128 as _, SipHasher24};

use super::algorithm::hex;
use super::client::quote;
use super::response::Parts;
use super::{Algorithm, Credentials, Password, Qop, Qops};
use crate::{Message, Name, Uri};

/// What a server asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Whose users are meant: what phones show and users of a database belong to.
    pub realm: Vec<u8>,
    /// What is offered, best first; a client may use nothing else.
    pub algorithms: Vec<Algorithm>,
    /// Which protection is offered.
    pub qops: Qops,
    /// How long a nonce serves. After a clock was set back it serves that much
    /// longer, but at most twice as long.
    pub nonce_life: Duration,
    /// True for a proxy, which asks with 407, false for a user agent server or
    /// registrar, which asks with 401.
    pub is_proxy: bool,
}

impl ServerConfig {
    /// What suits a registrar: SHA-256 before MD5 (RFC 8760 §2.3), `auth`, and
    /// nonces that serve five minutes.
    #[must_use]
    pub fn new(realm: impl AsRef<[u8]>) -> Self {
        Self {
            realm: realm.as_ref().to_vec(),
            algorithms: vec![Algorithm::SHA_256, Algorithm::MD5],
            qops: Qops { auth: true, auth_int: false },
            nonce_life: Duration::from_secs(300),
            is_proxy: false,
        }
    }
}

/// The side that asks and checks. It keeps no state: a nonce holds the time it
/// was made at, and a keyed hash that proves who made it.
#[derive(Clone)]
pub struct Server {
    config: ServerConfig,
    keys: (u64, u64),
}

/// Credentials that are right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The client's count of requests with this nonce; `None` for a client of
    /// RFC 2069. Within the life of a nonce a request can be replayed from the
    /// same place; an owner that cares keeps the highest count per user and
    /// nonce, and refuses what is not higher.
    pub nonce_count: Option<u32>,
    /// When the nonce was made, on the clock of [`Server::challenges`].
    pub nonce_made_at: Duration,
    /// What is protected.
    pub qop: Option<Qop>,
}

/// Why credentials are not accepted. The client is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The proof is wrong: another password, or a changed message. Ask again
    /// without `stale`, and count it against the peer.
    #[error("wrong proof")]
    Wrong,
    /// The proof is right but its nonce has aged, or was made for another
    /// place. Ask again with `stale`; no user needs to type anything.
    #[error("stale nonce")]
    Stale,
    /// An algorithm or protection that was not offered, or one that the stored
    /// password cannot serve. Ask again without `stale`.
    #[error("not what was offered")]
    NotOffered,
    /// The proof is made for another URI than the Request-URI: answer 400
    /// (RFC 7616 §3.4.6).
    #[error("made for another uri")]
    OtherUri,
}

impl Server {
    /// Makes a server. All servers that share `key` accept each other's
    /// nonces; whoever knows it can forge them.
    #[must_use]
    pub fn new(config: ServerConfig, key: [u8; 16]) -> Self {
        let [a, b, c, d, e, f, g, h, rest @ ..] = key;
        let keys = (u64::from_be_bytes([a, b, c, d, e, f, g, h]), u64::from_be_bytes(rest));
        Self { config, keys }
    }

    /// Returns the values of the WWW-Authenticate or Proxy-Authenticate
    /// headers to refuse with, one per algorithm, best first. `now` is the time
    /// since a moment that all servers with this key count from; `place` is
    /// what the credentials will be good for, such as the peer's address: made
    /// for one place they count as stale in another. It may be empty.
    #[must_use]
    pub fn challenges(&self, now: Duration, place: &[u8], stale: bool) -> Vec<Vec<u8>> {
        let nonce = self.nonce(now, place);
        let qop = match self.config.qops {
            Qops { auth: true, auth_int: true } => "\"auth,auth-int\"",
            Qops { auth: false, auth_int: true } => "\"auth-int\"",
            Qops { auth: _, auth_int: false } => "\"auth\"",
        };
        let challenge = |algorithm: &Algorithm| {
            let mut out = b"Digest realm=".to_vec();
            quote(&mut out, &self.config.realm);
            out.extend_from_slice(b", nonce=\"");
            out.extend_from_slice(nonce.as_bytes());
            out.extend_from_slice(b"\", algorithm=");
            out.extend_from_slice(algorithm.as_str().as_bytes());
            out.extend_from_slice(b", qop=");
            out.extend_from_slice(qop.as_bytes());
            if stale {
                out.extend_from_slice(b", stale=true");
            }
            out
        };
        self.config.algorithms.iter().map(challenge).collect()
    }

    /// Returns the header to put challenges into, and the status to refuse with.
    #[must_use]
    pub const fn refusal(&self) -> (Name<'static>, u16) {
        match self.config.is_proxy {
            true => (Name::PROXY_AUTHENTICATE, 407),
            false => (Name::WWW_AUTHENTICATE, 401),
        }
    }

    /// Returns the request's credentials for this realm, when it has any that
    /// can be read. Their proof is not checked yet.
    #[must_use]
    pub fn credentials<'a>(&self, request: &'a Message) -> Option<Credentials<'a>> {
        let name =
            if self.config.is_proxy { Name::PROXY_AUTHORIZATION } else { Name::AUTHORIZATION };
        request
            .headers(name)
            .filter_map(|value| Credentials::parse(value).ok())
            .find(|credentials| *credentials.realm == self.config.realm)
    }

    /// Checks the proof of `credentials`, which are those of `request`, with
    /// the password of their user. For a user that does not exist, check with
    /// a password nobody knows: that takes as long.
    ///
    /// # Errors
    /// See [`VerifyError`].
    pub fn verify(
        &self,
        now: Duration,
        place: &[u8],
        request: &Message,
        credentials: &Credentials<'_>,
        password: &Password,
    ) -> Result<Verified, VerifyError> {
        let algorithm = credentials
            .algorithm
            .filter(|algorithm| self.config.algorithms.contains(algorithm))
            .filter(|algorithm| password.serves(*algorithm))
            .ok_or(VerifyError::NotOffered)?;
        let is_offered = match credentials.qop {
            Some(Qop::Auth) => self.config.qops.auth,
            Some(Qop::AuthInt) => self.config.qops.auth_int,
            // RFC 2069 knew MD5 alone.
            None => self.config.qops.auth && algorithm == Algorithm::MD5,
        };
        if !is_offered {
            return Err(VerifyError::NotOffered);
        }
        let method = request.method();
        let parts = Parts {
            algorithm,
            username: &credentials.username,
            realm: &credentials.realm,
            nonce: &credentials.nonce,
            qop: credentials.qop,
            nc: credentials.nc,
            cnonce: credentials.cnonce.as_deref().unwrap_or_default(),
            method: method.as_bytes(),
            uri: &credentials.uri,
            body: request.body(),
        };
        if !is_same_hex(parts.response(password).as_bytes(), &credentials.response) {
            return Err(VerifyError::Wrong);
        }
        // Only who knows the password learns more than that it is wrong.
        let asked = request.request_uri().unwrap_or_default();
        if !is_same_uri(asked, &credentials.uri) {
            return Err(VerifyError::OtherUri);
        }
        if credentials.nonce_count == Some(0) {
            return Err(VerifyError::Wrong);
        }
        let nonce_made_at =
            self.nonce_made_at(&credentials.nonce, place).ok_or(VerifyError::Stale)?;
        // A clock that was set back makes no nonce older, and none live on and on.
        let (age, lead) = (now.saturating_sub(nonce_made_at), nonce_made_at.saturating_sub(now));
        if self.config.nonce_life <= age || self.config.nonce_life < lead {
            return Err(VerifyError::Stale);
        }
        let nonce_count = credentials.qop.and(credentials.nonce_count);
        Ok(Verified { nonce_count, nonce_made_at, qop: credentials.qop })
    }

    /// A nonce: 16 hex digits of time in milliseconds, 32 of a keyed hash.
    fn nonce(&self, now: Duration, place: &[u8]) -> String {
        let millis = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        hex(&millis.to_be_bytes()) + &self.seal(millis, place)
    }

    /// Returns when a nonce of this server was made; `None` when none made it.
    fn nonce_made_at(&self, nonce: &[u8], place: &[u8]) -> Option<Duration> {
        let (time, seal) = nonce.split_at_checked(16)?;
        let is_hex = time.iter().all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase());
        let time = std::str::from_utf8(time).ok().filter(|_| is_hex)?;
        let millis = u64::from_str_radix(time, 16).ok()?;
        let expected = self.seal(millis, place);
        is_same_hex(expected.as_bytes(), seal).then(|| Duration::from_millis(millis))
    }

    fn seal(&self, millis: u64, place: &[u8]) -> String {
        let mut hasher = SipHasher24::new_with_keys(self.keys.0, self.keys.1);
        hasher.write(&millis.to_be_bytes());
        hasher.write(&(self.config.realm.len() as u64).to_be_bytes());
        hasher.write(&self.config.realm);
        hasher.write(place);
        hex(&hasher.finish128().as_bytes())
    }
}

impl std::fmt::Debug for Server {
    /// Leaves the key out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Compares hex digits of either case, in a time that tells nothing about
/// where they differ.
fn is_same_hex(ours: &[u8], theirs: &[u8]) -> bool {
    ours.len() == theirs.len()
        && ours.iter().zip(theirs).fold(0, |differ, (a, b)| differ | (a ^ b.to_ascii_lowercase()))
            == 0
}

fn is_same_uri(asked: &[u8], proven: &[u8]) -> bool {
    asked == proven
        || match (Uri::parse(asked), Uri::parse(proven)) {
            (Ok(asked), Ok(proven)) => asked.is_equivalent(&proven),
            _ => false,
        }
}
