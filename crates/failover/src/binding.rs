//! A registration: where a user's phone can be reached.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{Flow, UnixMs};

/// An address of record: whom a registration is for.
///
/// The host of an address that names no domain of its own, such as an IP address, is left out: the
/// user is the same at every gate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Aor {
    /// The user part, as written.
    pub user: Bytes,
    /// The domain in lower case; empty when the address names none.
    pub domain: Bytes,
}

/// One contact of an address of record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// The Contact URI.
    pub uri: Bytes,
    /// Call-ID of the REGISTER that wrote it.
    pub call_id: Bytes,
    /// CSeq number of that REGISTER.
    pub cseq: u32,
    /// When it runs out.
    pub expires_at: UnixMs,
    /// Where the REGISTER came from: calls leave the same way.
    pub flow: Flow,
    /// The Path of the REGISTER (RFC 3327), each in angle brackets.
    pub path: Vec<Bytes>,
    /// The q value in thousandths: the highest is called first.
    pub q: u16,
}
