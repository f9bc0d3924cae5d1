//! Frame payloads that are serde structs.
//!
//! The only file that names `bincode`, at version 2.0.1 exactly: little
//! endian, variable-length integers. It has no defaults for missing fields, so
//! a changed struct is a new frame kind and never an edited one.

use std::cell::RefCell;

use bincode::config::{Configuration, Limit, LittleEndian, Varint, standard};
use bincode::enc::write::Writer;
use bincode::error::{DecodeError as Inner, EncodeError};
use bytes::{Bytes, BytesMut};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

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
/// They share memory with what else is encoded at the time, which is as good as free for what is sent and
/// forgotten: who keeps them for long keeps a copy.
///
/// # Panics
/// When the type cannot be encoded at all (a map of unknown length), which
/// every golden file shows.
pub fn encode<T: Serialize>(value: &T) -> Bytes {
    encode_after(&[], value)
}

/// Returns `prefix`, then `value` as bytes, which are like those of [`encode`].
///
/// # Panics
/// As [`encode`] does.
pub fn encode_after<T: Serialize>(prefix: &[u8], value: &T) -> Bytes {
    SCRATCH.with_borrow_mut(|Scratch { bytes, shared }| {
        // What a panic left.
        bytes.clear();
        bytes.extend_from_slice(prefix);
        // An encoder of our own, without bincode's large errors, would save a b2b 17,000 of its 1,000,000
        // instructions a call: too few to have a second one.
        bincode::serde::encode_into_writer(value, Append(bytes), CONFIG)
            .expect("a frame's type can be encoded");
        let encoded = if SHARED_LEN / 4 < bytes.len() {
            Bytes::copy_from_slice(bytes)
        } else {
            shared.extend_from_slice(bytes);
            shared.split().freeze()
        };
        bytes.clear();
        bytes.shrink_to(KEPT_LEN);
        encoded
    })
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        bytes: Vec::new(),
        shared: BytesMut::with_capacity(SHARED_LEN),
    });
}

/// Where values are encoded, and where they are copied to: most are of a length that an allocator has not
/// at hand, and are gone soon.
struct Scratch {
    bytes: Vec<u8>,
    /// The rest of what is filled at present.
    shared: BytesMut,
}

/// So much is allocated at a time, and freed when the last of what lies there is: the queue of a stalled
/// link may hold a whole block for one small frame.
const SHARED_LEN: usize = 64 << 10;

/// So much of what was too long for that is kept for the next time.
const KEPT_LEN: usize = 64 << 10;

/// The end of what is written so far.
struct Append<'a>(&'a mut Vec<u8>);

impl Writer for Append<'_> {
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

/// Reads a value that takes all of `bytes`, and parts of it where they lie.
///
/// # Errors
/// As [`decode`] does.
pub fn decode_borrowed<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, DecodeError> {
    if PAYLOAD_MAX < bytes.len() {
        return Err(DecodeError::TooLong);
    }
    whole(bincode::serde::borrow_decode_from_slice(bytes, CONFIG), bytes)
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
    whole(bincode::serde::decode_from_slice(bytes, config), bytes)
}

/// Checks that a value took all bytes.
fn whole<T>(read: Result<(T, usize), Inner>, bytes: &[u8]) -> Result<T, DecodeError> {
    match read {
        Ok((value, used)) if used == bytes.len() => Ok(value),
        Ok(_) => Err(DecodeError::Trailing),
        Err(Inner::LimitExceeded) => Err(DecodeError::TooLong),
        Err(Inner::UnexpectedEnd { .. }) => Err(DecodeError::Short),
        Err(_) => Err(DecodeError::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_encoded_stays_as_it_is_when_more_is() {
        let lens = [0, 1, 100, SHARED_LEN / 8, SHARED_LEN / 4, SHARED_LEN / 2, 1, 2 * SHARED_LEN];
        let values: Vec<Vec<u8>> =
            (1..=255).zip(lens.iter().cycle()).map(|(n, &len)| vec![n; len]).collect();

        let encoded: Vec<Bytes> = values.iter().map(encode).collect();

        for (bytes, value) in encoded.iter().zip(values) {
            assert_eq!(decode_long::<Vec<u8>>(bytes), Ok(value));
        }
    }
}
