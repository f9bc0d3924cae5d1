//! The bytes of a frame, and the frames that links keep to themselves.
//!
//! A frame is a header of eight bytes in network order, then the payload:
//!
//! | bytes | field |
//! |---|---|
//! | 4 | length of the payload |
//! | 2 | version of the protocol, agreed on by [`HelloV1`] |
//! | 2 | kind of the payload |
//!
//! Kinds below [`KIND_FIRST`] belong to the links. Of those, a receiver
//! counts and skips the ones it does not know.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::tls::CertificateFault;

/// The longest payload of a frame, in bytes.
///
/// A SIP message over UDP is at most 64 kB; a batch of records is cut to fit.
pub const PAYLOAD_MAX: usize = 1 << 20;
/// The longest payload of a peer that has not said who it is.
pub const HELLO_MAX: usize = 512;
/// The first kind that a node may use.
pub const KIND_FIRST: u16 = 0x0100;
/// The kind of [`HelloV1`].
pub const HELLO_V1: u16 = 0x0001;
/// The kind of a frame without payload, sent when there was nothing to say.
pub const KEEPALIVE: u16 = 0x0002;
/// The only version so far.
pub const VERSION: u16 = 1;
/// The length of a header, in bytes.
pub const HEADER_LEN: usize = 8;

/// The first frame on a link, from both ends at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelloV1 {
    /// The sender.
    pub node: u16,
    /// What the sender is, for people.
    pub role: String,
    /// The sender's boot.
    pub boot: u64,
    /// 0 control, 1 calls, 2 bulk.
    pub class: u8,
    /// The lowest version that the sender speaks.
    pub version_min: u16,
    /// The highest version that the sender speaks. The highest one that both
    /// speak is used by every later frame.
    pub version_max: u16,
}

/// Returns the header of a payload of `len` bytes, which is at most
/// [`PAYLOAD_MAX`].
pub fn header(len: u32, version: u16, kind: u16) -> [u8; HEADER_LEN] {
    let [a, b, c, d] = len.to_be_bytes();
    let [e, f] = version.to_be_bytes();
    let [g, h] = kind.to_be_bytes();
    [a, b, c, d, e, f, g, h]
}

/// Why the bytes of a link are no frames. The peer is at fault and the link
/// must close, since the next frame's start is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A payload longer than it may be.
    #[error("frame longer than {PAYLOAD_MAX} bytes, or a hello longer than {HELLO_MAX}")]
    TooLong,
    /// A version that was not agreed on.
    #[error("frame of a version not agreed on")]
    Version,
    /// The first frame is no hello, or a later one is.
    #[error("hello expected and not sent, or sent twice")]
    NoHello,
    /// A hello that cannot be read.
    #[error("hello cannot be read")]
    BadHello,
    /// No version that both ends speak.
    #[error("no common version")]
    NoVersion,
    /// The peer is not the one that was dialled, or has no id or our own.
    #[error("not the node that was expected")]
    WrongNode,
    /// The peer's certificate is not of the node that it says it is.
    #[error("the peer's certificate {0}")]
    Certificate(CertificateFault),
    /// The peer speaks TLS where links are without.
    #[error("the peer speaks TLS, and links here are without")]
    SpeaksTls,
    /// The configuration has no node with this id.
    #[error("a node that the configuration does not name")]
    UnknownNode,
    /// The configuration says that the node with this id is elsewhere.
    #[error("not the address that the configuration gives this node")]
    WrongAddress,
    /// A process with this id and a later boot is connected.
    #[error("another process with the same id is connected")]
    Duplicate,
    /// Nothing came for too long.
    #[error("silence")]
    Silence,
}

impl Fault {
    /// Its name in the metrics.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::TooLong => "too_long",
            Self::Version => "version",
            Self::NoHello => "no_hello",
            Self::BadHello => "bad_hello",
            Self::NoVersion => "no_common_version",
            Self::WrongNode => "wrong_node",
            Self::Certificate(fault) => fault.label(),
            Self::SpeaksTls => "speaks_tls",
            Self::UnknownNode => "unknown_node",
            Self::WrongAddress => "wrong_address",
            Self::Duplicate => "duplicate",
            Self::Silence => "silence",
        }
    }

    /// Whether an operator has to do something, or somebody tries what he may not.
    pub(crate) fn alarms(&self) -> bool {
        match self {
            Self::Version
            | Self::NoVersion
            | Self::WrongNode
            | Self::Certificate(_)
            | Self::SpeaksTls
            | Self::UnknownNode
            | Self::WrongAddress
            | Self::Duplicate => true,
            Self::TooLong | Self::NoHello | Self::BadHello | Self::Silence => false,
        }
    }
}

/// One frame as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) version: u16,
    pub(crate) kind: u16,
    pub(crate) payload: Bytes,
}

/// Cuts a stream into frames.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// A frame whose end has not come yet.
    partial: Vec<u8>,
}

impl Reader {
    /// Whether the next byte begins a frame.
    pub(crate) fn is_empty(&self) -> bool {
        self.partial.is_empty()
    }

    /// Takes in what was read next and gives every whole frame to `take`,
    /// until that returns a fault.
    ///
    /// Nothing is allocated for a payload before its length was checked
    /// against `max`, and not more than what came.
    pub(crate) fn read(
        &mut self,
        mut bytes: &[u8],
        mut max: usize,
        mut take: impl FnMut(Frame) -> Result<usize, Fault>,
    ) -> Result<(), Fault> {
        while !self.partial.is_empty() && !bytes.is_empty() {
            let wanted = match self.partial.first_chunk() {
                None => HEADER_LEN,
                Some(header) => HEADER_LEN + payload_len(header, max)?,
            };
            let (more, rest) = bytes.split_at(bytes.len().min(wanted - self.partial.len()));
            self.partial.extend_from_slice(more);
            bytes = rest;
            if let Some((frame, _)) = whole(&self.partial, max)? {
                max = take(frame)?;
                self.partial.clear();
                self.partial.shrink_to(1 << 16);
            }
        }
        while let Some((frame, rest)) = whole(bytes, max)? {
            bytes = rest;
            max = take(frame)?;
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }
}

/// Splits a whole frame off the start of `bytes`.
fn whole(bytes: &[u8], max: usize) -> Result<Option<(Frame, &[u8])>, Fault> {
    let Some((header, rest)) = bytes.split_first_chunk() else { return Ok(None) };
    let Some((payload, rest)) = rest.split_at_checked(payload_len(header, max)?) else {
        return Ok(None);
    };
    let [.., e, f, g, h] = *header;
    let frame = Frame {
        version: u16::from_be_bytes([e, f]),
        kind: u16::from_be_bytes([g, h]),
        payload: Bytes::copy_from_slice(payload),
    };
    Ok(Some((frame, rest)))
}

fn payload_len(header: &[u8; HEADER_LEN], max: usize) -> Result<usize, Fault> {
    let [a, b, c, d, ..] = *header;
    match usize::try_from(u32::from_be_bytes([a, b, c, d])) {
        Ok(len) if len <= max => Ok(len),
        Ok(_) | Err(_) => Err(Fault::TooLong),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u16, payload: &[u8]) -> Vec<u8> {
        let len = u32::try_from(payload.len()).unwrap();
        [&header(len, VERSION, kind)[..], payload].concat()
    }

    #[test]
    fn frames_come_out_whole_however_the_stream_is_cut() {
        let stream = [frame(0x101, b"one"), frame(0x102, b""), frame(0x103, &[7; 300])].concat();
        for piece in 1..stream.len() {
            let mut reader = Reader::default();
            let mut kinds = Vec::new();
            for bytes in stream.chunks(piece) {
                let read = reader.read(bytes, PAYLOAD_MAX, |frame| {
                    kinds.push((frame.kind, frame.payload.len()));
                    Ok(PAYLOAD_MAX)
                });
                assert_eq!(read, Ok(()));
            }
            assert_eq!(kinds, [(0x101, 3), (0x102, 0), (0x103, 300)], "in pieces of {piece}");
        }
    }

    #[test]
    fn a_length_beyond_the_limit_is_a_fault_as_soon_as_the_header_is_there() {
        let bytes = header(u32::MAX, VERSION, 0x101);
        for piece in 1..=HEADER_LEN {
            let mut reader = Reader::default();
            let results: Vec<_> =
                bytes.chunks(piece).map(|bytes| reader.read(bytes, 10, |_| Ok(10))).collect();
            assert_eq!(results.last(), Some(&Err(Fault::TooLong)));
            assert!(reader.partial.capacity() < 100);
        }
    }

    #[test]
    fn the_limit_grows_with_the_first_frame() {
        let stream = [frame(HELLO_V1, b"hi"), frame(0x101, &[0; 600])].concat();
        let mut reader = Reader::default();
        assert_eq!(reader.read(&stream, HELLO_MAX, |_| Ok(PAYLOAD_MAX)), Ok(()));
        assert_eq!(reader.read(&stream, HELLO_MAX, |_| Ok(HELLO_MAX)), Err(Fault::TooLong));
    }
}
