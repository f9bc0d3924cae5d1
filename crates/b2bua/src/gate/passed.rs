//! Which new requests were handed on not long ago.
//!
//! A gate that begins to refuse for load must not refuse the copy of a request that its b2b is still
//! at work on: the phone would take the refusal, and the b2b would answer into nothing.

use std::hash::Hasher;
use std::time::Instant;

use sip_core::Message;
use siphasher::sip::SipHasher13;

/// A table of fixed size; of two requests that fall on one place the later stays.
#[derive(Debug)]
pub(super) struct Passed {
    seed: u64,
    origin: Instant,
    places: Vec<Place>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    hash: u64,
    /// Milliseconds from the origin, wrapping.
    at: u32,
}

impl Passed {
    pub(super) fn new(now: Instant, seed: u64) -> Self {
        Self { seed, origin: now, places: Vec::new() }
    }

    pub(super) fn note(&mut self, now: Instant, request: &Message) {
        if self.places.is_empty() {
            self.places = vec![Place::default(); PLACES];
        }
        let (hash, at) = (self.hash(request), self.millis(now));
        self.places[index(hash)] = Place { hash, at };
    }

    pub(super) fn contains(&self, now: Instant, request: &Message) -> bool {
        let hash = self.hash(request);
        self.places.get(index(hash)).is_some_and(|place| {
            place.hash == hash && self.millis(now).wrapping_sub(place.at) < TRANSACTION_MS
        })
    }

    fn hash(&self, request: &Message) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.seed, u64::from_be_bytes(*b"passed\0\0"));
        for part in [request.branch().unwrap_or_default(), request.call_id()] {
            hasher.write(part);
            hasher.write(b"\n");
        }
        hasher.write_u32(request.cseq().map_or(0, |cseq| cseq.number));
        // Zero is what an empty place has.
        hasher.finish().max(1)
    }

    #[expect(clippy::cast_possible_truncation, reason = "compared by wrapping difference")]
    fn millis(&self, now: Instant) -> u32 {
        now.saturating_duration_since(self.origin).as_millis() as u32
    }
}

#[expect(clippy::cast_possible_truncation, reason = "only the low bits count")]
fn index(hash: u64) -> usize {
    hash as usize % PLACES
}

/// Enough for the new requests of a few seconds at the highest rate a gate carries.
const PLACES: usize = 1 << 14;

/// 64*T1: for so long a client repeats a request (RFC 3261 §17.1).
const TRANSACTION_MS: u32 = 32_000;
