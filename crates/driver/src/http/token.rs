//! The secret that a write must know.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::config::Table;

/// The shortest token, in bytes.
pub const TOKEN_MIN: usize = 16;

/// The longest token, in bytes.
pub const TOKEN_MAX: usize = 512;

/// What the operator's programs send with a write: `Authorization: Bearer …` (RFC 6750).
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Box<str>);

/// Why a file holds no token. Its author is at fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be read.
    #[error("the token file {} cannot be read", .path.display())]
    Read {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Everybody on the host can read it.
    #[error("everybody may read the token file {}: take the right away with chmod o-r", .0.display())]
    Public(PathBuf),
    /// It holds no word of a fitting length.
    #[error(
        "the token file {} must hold one word of {TOKEN_MIN} to {TOKEN_MAX} letters, digits or -._~+/=",
        .0.display()
    )]
    Word(PathBuf),
}

impl Token {
    /// Reads the token of a file: one word, with or without a line end.
    ///
    /// # Errors
    /// When the file cannot be read, can be read by everybody, or holds something else.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let failed = |source| TokenError::Read { path: path.to_owned(), source };
        let meta = std::fs::metadata(path).map_err(failed)?;
        if meta.mode() & 0o004 != 0 {
            return Err(TokenError::Public(path.to_owned()));
        }
        if LEN_MAX < meta.len() {
            return Err(TokenError::Word(path.to_owned()));
        }
        let text = std::fs::read_to_string(path).map_err(failed)?;
        Self::new(text.trim()).ok_or_else(|| TokenError::Word(path.to_owned()))
    }

    /// Reads the token of the file that the key `token` of a table names, if it is there; what is wrong
    /// with it is a fault.
    pub fn of(table: &Table<'_>) -> Option<Self> {
        let file = table.key("token").string()?;
        Self::read(Path::new(&file))
            .map_err(|error| table.key("token").fault(format!("is of no use: {error}")))
            .ok()
    }

    /// Returns a token if `word` can be one.
    pub fn new(word: &str) -> Option<Self> {
        let sound = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        let fits = (TOKEN_MIN..=TOKEN_MAX).contains(&word.len()) && word.bytes().all(sound);
        fits.then(|| Self(word.into()))
    }

    /// Returns whether `word` is this token, in a time that does not tell how much of it is right.
    pub(super) fn is(&self, word: &[u8]) -> bool {
        let token = self.0.as_bytes();
        let differs = word.iter().zip(token.iter().cycle()).fold(0, |all, (a, b)| all | (a ^ b));
        std::hint::black_box(differs) == 0 && word.len() == token.len()
    }

    pub(super) fn word(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// A token with white space around it.
const LEN_MAX: u64 = 2 * TOKEN_MAX as u64;
