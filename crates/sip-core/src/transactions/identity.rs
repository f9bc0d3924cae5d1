//! By what a message finds its transaction.

use std::hash::{BuildHasher, Hasher};

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::{Message, Method, Name, SPREAD};

/// A keyed 128-bit hash of whatever identifies a transaction. Two different
/// transactions have the same one with a chance of 2^-128, and nobody without
/// the key can search for such a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    high: u64,
    low: u64,
}

/// Makes identities under one key.
pub(super) struct Hashing {
    keyed: SipHasher13,
}

/// Fields of an identity, named so that equal bytes in different roles differ.
#[derive(Clone, Copy)]
enum Role {
    Client = 1,
    Server = 2,
    Server2543 = 3,
    Merged = 4,
    Ack = 5,
}

impl Hashing {
    pub(super) fn new(seed: u64) -> Self {
        // The second half only has to differ from the first.
        Self { keyed: SipHasher13::new_with_keys(seed, seed.rotate_left(32) ^ SPREAD) }
    }

    /// RFC 3261 §17.1.3: branch and CSeq method.
    pub(super) fn client(&self, branch: &[u8], method: Method<'_>) -> Identity {
        let mut parts = self.parts(Role::Client);
        parts.add(branch);
        parts.add(method.as_bytes());
        parts.finish()
    }

    /// RFC 3261 §17.2.3: branch, sent-by and method, or what an RFC 2543
    /// client has instead. `method` is INVITE for an ACK, and for the INVITE
    /// that a CANCEL looks for.
    pub(super) fn server(&self, request: &ServerParts<'_>) -> Identity {
        match request.branch.filter(|branch| branch.starts_with(COOKIE)) {
            Some(branch) => {
                let mut parts = self.parts(Role::Server);
                parts.add(branch);
                parts.add_lowercase(request.sent_by_host);
                parts.number(request.sent_by_port.map_or(0, u32::from));
                parts.add(request.method);
                parts.finish()
            }
            None => {
                let mut parts = self.parts(Role::Server2543);
                parts.add(request.request_uri);
                parts.add(request.to_tag);
                parts.add(request.from_tag);
                parts.add(request.call_id);
                parts.number(request.cseq);
                parts.add(request.via);
                parts.add(request.method);
                parts.finish()
            }
        }
    }

    /// RFC 3261 §8.2.2.2: From tag, Call-ID and CSeq of a request without a
    /// To tag.
    pub(super) fn merged(&self, request: &ServerParts<'_>) -> Identity {
        let mut parts = self.parts(Role::Merged);
        parts.add(request.from_tag);
        parts.add(request.call_id);
        parts.number(request.cseq);
        parts.add(request.method);
        parts.finish()
    }

    /// The ACK of a 2xx: the dialog and the CSeq number of its INVITE.
    pub(super) fn ack(&self, ack: &AckParts<'_>) -> Identity {
        let mut parts = self.parts(Role::Ack);
        parts.add(ack.call_id);
        parts.add(ack.from_tag);
        parts.add(ack.to_tag);
        parts.number(ack.cseq);
        parts.finish()
    }

    fn parts(&self, role: Role) -> Parts {
        let mut hasher = self.keyed;
        hasher.write_u8(role as u8);
        Parts { hasher }
    }
}

/// What a server transaction is found by.
#[derive(Clone, Copy)]
pub(super) struct ServerParts<'a> {
    pub(super) branch: Option<&'a [u8]>,
    pub(super) sent_by_host: &'a [u8],
    pub(super) sent_by_port: Option<u16>,
    /// The whole topmost Via.
    pub(super) via: &'a [u8],
    pub(super) method: &'a [u8],
    pub(super) request_uri: &'a [u8],
    /// Empty when absent.
    pub(super) to_tag: &'a [u8],
    /// Empty when absent.
    pub(super) from_tag: &'a [u8],
    pub(super) call_id: &'a [u8],
    pub(super) cseq: u32,
}

/// What the ACK of a 2xx is found by.
#[derive(Clone, Copy)]
pub(super) struct AckParts<'a> {
    pub(super) call_id: &'a [u8],
    pub(super) from_tag: &'a [u8],
    pub(super) to_tag: &'a [u8],
    pub(super) cseq: u32,
}

impl<'a> ServerParts<'a> {
    /// Reads a request; `None` when its Via or its CSeq cannot be read.
    pub(super) fn read(request: &'a Message) -> Option<Self> {
        let element = request.elements(Name::VIA).next()?;
        let (host, sent_by_port) = request.sent_by()?;
        Some(Self {
            branch: request.branch(),
            sent_by_host: host.as_bytes(),
            sent_by_port,
            via: element,
            method: request.method().as_bytes(),
            request_uri: request.request_uri()?,
            to_tag: request.to_tag().unwrap_or_default(),
            from_tag: request.from_tag().unwrap_or_default(),
            call_id: request.call_id(),
            cseq: request.cseq()?.number,
        })
    }

    /// The same, looking for the INVITE.
    pub(super) fn of_invite(self) -> Self {
        Self { method: Method::Invite.as_bytes(), ..self }
    }

    pub(super) fn ack(&self) -> AckParts<'a> {
        let Self { call_id, from_tag, to_tag, cseq, .. } = *self;
        AckParts { call_id, from_tag, to_tag, cseq }
    }
}

impl<'a> AckParts<'a> {
    /// Reads a response to INVITE; `None` when it has no CSeq.
    pub(super) fn read(response: &'a Message) -> Option<Self> {
        Some(Self {
            call_id: response.call_id(),
            from_tag: response.from_tag().unwrap_or_default(),
            to_tag: response.to_tag().unwrap_or_default(),
            cseq: response.cseq()?.number,
        })
    }
}

struct Parts {
    hasher: SipHasher13,
}

impl Parts {
    /// Adds bytes and where they end.
    fn add(&mut self, bytes: &[u8]) {
        self.hasher.write(bytes);
        self.hasher.write_usize(bytes.len());
    }

    fn add_lowercase(&mut self, bytes: &[u8]) {
        let mut chunk = [0; 32];
        for part in bytes.chunks(chunk.len()) {
            let lower = &mut chunk[..part.len()];
            lower.copy_from_slice(part);
            lower.make_ascii_lowercase();
            self.hasher.write(lower);
        }
        self.hasher.write_usize(bytes.len());
    }

    fn number(&mut self, number: u32) {
        self.hasher.write_u32(number);
    }

    fn finish(self) -> Identity {
        let hash = self.hasher.finish128();
        Identity { high: hash.h1, low: hash.h2 }
    }
}

/// Takes an identity's own bits: they are a keyed hash already.
#[derive(Clone, Copy, Default)]
pub(super) struct IdentityState;

/// See [`IdentityState`].
#[derive(Default)]
pub(super) struct IdentityHasher(u64);

impl BuildHasher for IdentityState {
    type Hasher = IdentityHasher;

    fn build_hasher(&self) -> IdentityHasher {
        IdentityHasher::default()
    }
}

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 ^= number;
    }
}

/// The magic cookie that starts a branch of RFC 3261 §8.1.1.7.
pub(super) const COOKIE: &[u8] = b"z9hG4bK";
