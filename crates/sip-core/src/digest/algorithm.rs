//! The algorithms of RFC 8760.

use md5::Md5;
use sha2::{Sha256, Sha512_256};

/// A hash function of digest authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hash {
    /// MD5, for phones that know nothing else.
    Md5,
    /// SHA-256.
    Sha256,
    /// SHA-512 cut to 256 bits with initial values of its own (FIPS 180-4).
    Sha512Trunc256,
}

impl Hash {
    /// Returns the hash of all `parts`, joined with `:`, as lower-case hex
    /// digits: 32 for MD5, 64 for the others.
    pub(super) fn hex(self, parts: &[&[u8]]) -> String {
        match self {
            Self::Md5 => hex(&hashed::<Md5>(parts)),
            Self::Sha256 => hex(&hashed::<Sha256>(parts)),
            Self::Sha512Trunc256 => hex(&hashed::<Sha512_256>(parts)),
        }
    }
}

fn hashed<D: sha2::Digest>(parts: &[&[u8]]) -> Vec<u8> {
    let mut hash = D::new();
    for (index, part) in parts.iter().enumerate() {
        if 0 < index {
            hash.update(b":");
        }
        hash.update(part);
    }
    hash.finalize().to_vec()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// What `algorithm=` names: a hash, and whether its key is bound to one nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Algorithm {
    /// The hash function.
    pub hash: Hash,
    /// True for the `-sess` variants (RFC 7616 §3.4.2).
    pub session: bool,
}

impl Algorithm {
    /// `MD5`, what an absent `algorithm` means.
    pub const MD5: Self = Self { hash: Hash::Md5, session: false };
    /// `SHA-256`.
    pub const SHA_256: Self = Self { hash: Hash::Sha256, session: false };
    /// `SHA-512-256`.
    pub const SHA_512_256: Self = Self { hash: Hash::Sha512Trunc256, session: false };

    /// Returns the algorithm of this name, in letters of either case; `None`
    /// for one that is not supported, such as `AKAv1-MD5`.
    #[must_use]
    pub fn new(name: &[u8]) -> Option<Self> {
        ALL.into_iter().find(|known| name.eq_ignore_ascii_case(known.as_str().as_bytes()))
    }

    /// Returns the name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match (self.hash, self.session) {
            (Hash::Md5, false) => "MD5",
            (Hash::Md5, true) => "MD5-sess",
            (Hash::Sha256, false) => "SHA-256",
            (Hash::Sha256, true) => "SHA-256-sess",
            (Hash::Sha512Trunc256, false) => "SHA-512-256",
            (Hash::Sha512Trunc256, true) => "SHA-512-256-sess",
        }
    }
}

const ALL: [Algorithm; 6] = [
    Algorithm::MD5,
    Algorithm { hash: Hash::Md5, session: true },
    Algorithm::SHA_256,
    Algorithm { hash: Hash::Sha256, session: true },
    Algorithm::SHA_512_256,
    Algorithm { hash: Hash::Sha512Trunc256, session: true },
];
