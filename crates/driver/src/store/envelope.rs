//! A value as it lies on disk: it says what it is, and whether it is whole.
//!
//! | bytes | field, little endian |
//! |---|---|
//! | 8 | magic |
//! | 2 | format, 1 |
//! | 2 | length of the cluster's name |
//! | 4 | length of the key |
//! | 4 | length of the value |
//! | 8 | number: a later value of the same key has a higher one |
//! | … | name, key, value |
//! | 4 | CRC-32 of all before but the magic |

use bytes::Bytes;

use super::{CLUSTER_MAX, KEY_MAX, VALUE_MAX};

/// Begins every envelope; unlikely in text, broken by a transfer as text.
pub(super) const MAGIC: [u8; 8] = *b"\xf1HLrec\r\n";
const FORMAT: u16 = 1;
const HEADER_LEN: usize = 28;

/// The longest envelope, in bytes.
pub(super) const LEN_MAX: usize = HEADER_LEN + CLUSTER_MAX + KEY_MAX + VALUE_MAX + 4;

/// A whole envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Envelope<'a> {
    pub(super) version: u16,
    pub(super) number: u64,
    pub(super) cluster: &'a [u8],
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
    /// How long it is.
    pub(super) len: usize,
}

/// Returns the envelope of a value; all lengths are within their bounds.
pub(super) fn seal(cluster: &str, number: u64, key: &Bytes, value: &Bytes) -> Vec<u8> {
    let len = |part: usize| u32::try_from(part).expect("a length within its bound");
    let cluster_len = u16::try_from(cluster.len()).expect("a length within its bound");
    let mut bytes = Vec::with_capacity(HEADER_LEN + cluster.len() + key.len() + value.len() + 4);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    bytes.extend_from_slice(&cluster_len.to_le_bytes());
    bytes.extend_from_slice(&len(key.len()).to_le_bytes());
    bytes.extend_from_slice(&len(value.len()).to_le_bytes());
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(cluster.as_bytes());
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(value);
    let sum = crc32fast::hash(&bytes[MAGIC.len()..]);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// Reads the envelope with which `bytes` begin; `None` when it is not whole.
pub(super) fn open(bytes: &[u8]) -> Option<Envelope<'_>> {
    let header = bytes.first_chunk::<HEADER_LEN>()?;
    let short = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| header[at + i]));
    let number = u64::from_le_bytes(std::array::from_fn(|i| header[20 + i]));
    let cluster_len = usize::from(short(10));
    let (key_len, value_len) = (usize::try_from(word(12)).ok()?, usize::try_from(word(16)).ok()?);
    let fits = cluster_len <= CLUSTER_MAX && key_len <= KEY_MAX && value_len <= VALUE_MAX;
    if header[..MAGIC.len()] != MAGIC || !fits {
        return None;
    }
    let rest = &bytes[HEADER_LEN..];
    let (cluster, rest) = rest.split_at_checked(cluster_len)?;
    let (key, rest) = rest.split_at_checked(key_len)?;
    let (value, rest) = rest.split_at_checked(value_len)?;
    let sum = u32::from_le_bytes(*rest.first_chunk()?);
    let len = HEADER_LEN + cluster_len + key_len + value_len;
    (crc32fast::hash(&bytes[MAGIC.len()..len]) == sum).then_some(Envelope {
        version: short(8),
        number,
        cluster,
        key,
        value,
        len: len + 4,
    })
}

impl Envelope<'_> {
    /// Returns whether this program can read it.
    pub(super) fn is_known(&self) -> bool {
        self.version == FORMAT
    }
}
