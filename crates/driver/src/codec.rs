//! Frame payloads that are serde structs.
//!
//! The only file that names `bincode`, at version 2.0.1 exactly: little
//! endian, variable-length integers. It has no defaults for missing fields, so
//! a changed struct is a new frame kind and never an edited one.

use std::cell::RefCell;

use bincode::config::{Configuration, Limit, LittleEndian, Varint, standard};
use bincode::enc::write::Writer;
use bincode::error::{DecodeError as Inner, EncodeError};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::frame::PAYLOAD_MAX;

type Config<const MAX: usize> = Configuration<LittleEndian, Varint, Limit<MAX>>;

const CONFIG: Config<PAYLOAD_MAX> = standard().with_limit::<PAYLOAD_MAX>();
const LONG_CONFIG: Config<LONG_MAX> = standard().with_limit::<LONG_MAX>();

/// The longest value that [`decode_long`] reads, in bytes.
pub const LONG_MAX: usize = 64 << 20;

/// Why a payload is not the value it should be. The peer is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// More bytes than any frame may have, or a length inside that claims so.
    #[error("longer than a frame can be")]
    TooLong,
    /// The bytes end before the value does.
    #[error("ends early")]
    Short,
    /// The value ends before the bytes do.
    #[error("bytes left over")]
    Trailing,
    /// A tag, a boolean or a text that cannot be.
    #[error("malformed")]
    Malformed,
}

/// Returns `value` as bytes.
///
/// # Panics
/// When the type cannot be encoded at all (a map of unknown length), which
/// every golden file shows.
pub fn encode<T: Serialize>(value: &T) -> Bytes {
    encode_after(&[], value)
}

/// Returns `prefix`, then `value` as bytes.
///
/// # Panics
/// As [`encode`] does.
pub fn encode_after<T: Serialize>(prefix: &[u8], value: &T) -> Bytes {
    SCRATCH.with_borrow_mut(|bytes| {
        // What a panic left.
        bytes.clear();
        bytes.extend_from_slice(prefix);
        bincode::serde::encode_into_writer(value, Appending(bytes), CONFIG)
            .expect("a frame's type can be encoded");
        let encoded = Bytes::copy_from_slice(bytes);
        bytes.clear();
        bytes.shrink_to(KEPT_LEN);
        encoded
    })
}

thread_local! {
    /// What is encoded is copied out of here: then its memory fits it, which the allocator has at hand,
    /// and was not moved while it grew.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// So much of it is kept for the next time.
const KEPT_LEN: usize = 64 << 10;

struct Appending<'a>(&'a mut Vec<u8>);

impl Writer for Appending<'_> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        match bytes {
            // Most of what is written: small numbers, lengths and tags.
            [byte] => self.0.push(*byte),
            bytes => self.0.extend_from_slice(bytes),
        }
        Ok(())
    }
}

/// Reads a value that takes all of `bytes`.
///
/// # Errors
/// When the bytes are not exactly one value, or claim to be longer than a frame.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    read(bytes, CONFIG)
}

/// Reads a value that came in several frames, at most [`LONG_MAX`] bytes.
///
/// # Errors
/// When the bytes are not exactly one value, or claim to be longer than that.
pub fn decode_long<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    read(bytes, LONG_CONFIG)
}

fn read<T: DeserializeOwned, const MAX: usize>(
    bytes: &[u8],
    config: Config<MAX>,
) -> Result<T, DecodeError> {
    if MAX < bytes.len() {
        return Err(DecodeError::TooLong);
    }
    match bincode::serde::decode_from_slice(bytes, config) {
        Ok((value, used)) if used == bytes.len() => Ok(value),
        Ok(_) => Err(DecodeError::Trailing),
        Err(Inner::LimitExceeded) => Err(DecodeError::TooLong),
        Err(Inner::UnexpectedEnd { .. }) => Err(DecodeError::Short),
        Err(_) => Err(DecodeError::Malformed),
    }
}
