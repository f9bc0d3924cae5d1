//! The bytes of a frame: length, version, kind, payload.

/// The longest payload of a frame, in bytes.
///
/// A SIP message over UDP is at most 64 kB; a batch of records is cut to fit.
pub const PAYLOAD_MAX: usize = 1 << 20;
