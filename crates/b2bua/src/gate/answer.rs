//! Answers of a gate that remembers nothing (RFC 3261 §8.2.7).

use std::hash::Hasher;

use bytes::Bytes;
use sip_core::{Message, Name, Writer};
use siphasher::sip::SipHasher24;

use crate::message;

/// Makes answers. The same request gets the same answer, byte for byte, however often it comes.
#[derive(Debug)]
pub(super) struct Answers {
    seed: u64,
}

impl Answers {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Returns the answer; a 503 tells when to come again, which differs per request so that not
    /// all come again at once.
    pub(super) fn answer(&self, request: &Message, status: u16) -> Bytes {
        let hash = self.hash(request);
        let tag = tag(hash);
        let mut writer =
            Writer::answer(request, status, message::reason(status), Some(tag.as_bytes()));
        if status == 503 {
            writer = writer.header(Name::RETRY_AFTER, (1 + hash % RETRY_AFTER_MAX).to_string());
        }
        writer.finish().bytes().clone()
    }

    /// Whether this ACK names the tag with which its request is answered here.
    pub(super) fn gave_tag_of(&self, ack: &Message) -> bool {
        ack.to_tag().is_some_and(|to| is_own_tag(to) && to == tag(self.hash(ack)).as_bytes())
    }

    fn hash(&self, request: &Message) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.seed, u64::from_be_bytes(*b"answers\0"));
        for part in [request.call_id(), request.from_tag().unwrap_or_default()] {
            hasher.write(part);
            hasher.write(b"\n");
        }
        hasher.write_u32(request.cseq().map_or(0, |cseq| cseq.number));
        hasher.finish()
    }
}

fn tag(hash: u64) -> String {
    format!("-{hash:016x}")
}

/// Returns whether this may be the tag of an answer that a gate made.
pub(super) fn is_own_tag(tag: &[u8]) -> bool {
    tag.starts_with(b"-")
}

/// Seconds after which the last of those refused comes again.
const RETRY_AFTER_MAX: u64 = 5;
