//! The slot of a SIP message, found without state, and the tags and branches that make it so.
//!
//! Every local tag made by a b2b starts with its slot as two lower-case hex digits, and every branch
//! has them right after `z9hG4bK`; 64 random bits follow. So the answer to a request, and each
//! later request of a dialog, says by itself which b2b owns it.

use std::hash::Hasher;

use failover::Slot;
use sip_core::{Message, Method, Name, Replaces, Uri};
use siphasher::sip::SipHasher24;

/// Maps what has no tag of ours to a slot. Every node of a segment must have the same key, and keep
/// it: with another key, registrations and retransmissions land elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotHash {
    key: u64,
}

impl SlotHash {
    /// Returns the hash of a segment.
    pub const fn new(key: u64) -> Self {
        Self { key }
    }

    /// Returns the slot of a message, the first of these that there is: of a response, our top
    /// branch; the To-tag; of an INVITE with Replaces or Join, the `to-tag` in it; of a REGISTER, the
    /// address of record in To; the Call-ID.
    pub fn of_message(&self, message: &Message) -> Slot {
        named(message).unwrap_or_else(|| self.of_unnamed(message))
    }

    /// Returns the slot of a message of which [`named`] knows none.
    pub(crate) fn of_unnamed(&self, message: &Message) -> Slot {
        if message.is_request()
            && message.method() == Method::Register
            && let Some(to) = message.to()
        {
            return self.of_uri(to.uri());
        }
        self.of_call_id(message.call_id())
    }

    /// Returns the slot of the address of record that `uri` names.
    pub fn of_uri(&self, uri: &[u8]) -> Slot {
        match Uri::parse(uri) {
            Ok(parsed) => match (parsed.user_unescaped(), parsed.host()) {
                (Some(user), Some(host)) => self.of_address(&user, host.name()),
                (None, Some(host)) => self.of_address(b"", host.name()),
                (_, None) => self.of_address(uri, b""),
            },
            Err(_) => self.of_address(uri, b""),
        }
    }

    /// Returns the slot of a Call-ID, in which an INVITE, its copies and its CANCEL meet.
    pub fn of_call_id(&self, call_id: &[u8]) -> Slot {
        self.hash(b"call-id", |hasher| hasher.write(call_id))
    }

    /// Returns the slot of an address of record. The user part is compared as it is, the host
    /// without regard to case (RFC 3261 §19.1.4); port and parameters are no part of the address.
    pub fn of_address(&self, user: &[u8], host: &[u8]) -> Slot {
        self.hash(b"address", |hasher| {
            hasher.write(user);
            hasher.write(b"@");
            for byte in host {
                hasher.write_u8(byte.to_ascii_lowercase());
            }
        })
    }

    fn hash(&self, domain: &[u8], write: impl FnOnce(&mut SipHasher24)) -> Slot {
        let mut hasher = SipHasher24::new_with_keys(self.key, 0);
        hasher.write(domain);
        write(&mut hasher);
        Slot(hasher.finish().to_be_bytes()[0])
    }
}

/// Returns the slot that a message names by something we made: a response by our branch, a request
/// by our tag in To, an INVITE by our tag in Replaces or Join. Such a message belongs to a call that
/// we know, and is never refused for load.
pub fn named(message: &Message) -> Option<Slot> {
    if !message.is_request() {
        return of_branch(message.branch()?);
    }
    if let Some(tag) = message.to_tag() {
        return of_tag(tag);
    }
    if message.method() != Method::Invite {
        return None;
    }
    let replaced = message.header(Name::REPLACES).or_else(|| message.header(Name::JOIN))?;
    of_tag(Replaces::parse(replaced).ok()?.to_tag)
}

/// Returns the slot that a tag made by a b2b names; `None` for any other tag.
pub fn of_tag(tag: &[u8]) -> Option<Slot> {
    let (digits, random) = tag.split_first_chunk::<2>()?;
    let ours = RANDOM_LEN <= random.len() && random.iter().all(|byte| hex_value(*byte).is_some());
    if !ours {
        return None;
    }
    Some(Slot(hex_value(digits[0])? << 4 | hex_value(digits[1])?))
}

/// Returns the slot that a branch made by a b2b names; `None` for any other branch.
pub fn of_branch(branch: &[u8]) -> Option<Slot> {
    of_tag(branch.strip_prefix(MAGIC_COOKIE)?)
}

/// Makes the tags and branches of one b2b.
#[derive(Clone, Debug)]
pub struct Naming {
    seed: u64,
    made: u64,
}

impl Naming {
    /// Returns a source of names. `seed` must be random and differ per start of the process:
    /// who guesses a tag can end the call.
    pub fn new(seed: u64) -> Self {
        Self { seed, made: 0 }
    }

    /// Returns a new local tag in `slot`.
    pub fn tag(&mut self, slot: Slot) -> String {
        let random = self.random();
        format!("{slot}{random:016x}")
    }

    /// Returns a new Via branch in `slot`.
    pub fn branch(&mut self, slot: Slot) -> String {
        let random = self.random();
        format!("z9hG4bK{slot}{random:016x}")
    }

    /// Returns 64 bits that nobody can foretell without the seed.
    pub fn random(&mut self) -> u64 {
        self.made += 1;
        let mut hasher = SipHasher24::new_with_keys(self.seed, u64::from_be_bytes(*b"holdline"));
        hasher.write_u64(self.made);
        hasher.finish()
    }
}

fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

/// Marks a branch as unique over space and time (RFC 3261 §8.1.1.7).
const MAGIC_COOKIE: &[u8] = b"z9hG4bK";

/// 64 bits as hex digits.
const RANDOM_LEN: usize = 16;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_tag_and_branch_names_the_slot_it_was_made_in() {
        let mut naming = Naming::new(1);

        for slot in (0..=255).map(Slot) {
            assert_eq!(of_tag(naming.tag(slot).as_bytes()), Some(slot));
            assert_eq!(of_branch(naming.branch(slot).as_bytes()), Some(slot));
        }
    }

    #[test]
    fn no_tag_is_made_twice() {
        let mut naming = Naming::new(1);
        let tags: BTreeSet<String> = (0..10_000).map(|_| naming.tag(Slot(0))).collect();

        assert_eq!(tags.len(), 10_000);
    }

    #[test]
    fn a_tag_of_somebody_else_names_no_slot() {
        for tag in [
            "",
            "a",
            "ab",
            "-2a0123456789abcdef",
            "2A0123456789abcdef",
            "2a0123456789abcde",
            "2a0123456789abcdeg",
        ] {
            assert_eq!(of_tag(tag.as_bytes()), None, "{tag}");
        }
        for branch in [
            "",
            "z9hG4bK",
            "2a0123456789abcdef",
            "z9hG4bK-2a0123456789abcdef",
            "z9hg4bk2a0123456789abcdef",
        ] {
            assert_eq!(of_branch(branch.as_bytes()), None, "{branch}");
        }
    }

    #[test]
    fn an_address_is_the_same_in_any_case_of_its_host_and_another_in_another_case_of_its_user() {
        let hash = SlotHash::new(7);

        assert_eq!(
            hash.of_address(b"alice", b"Example.COM"),
            hash.of_address(b"alice", b"example.com")
        );
        assert_ne!(
            hash.of_address(b"alice", b"example.com"),
            hash.of_address(b"Alice", b"example.com")
        );
    }

    #[test]
    fn a_registration_is_in_the_slot_of_its_address_whatever_its_call_id() {
        let hash = SlotHash::new(7);
        let slot = hash.of_uri(b"sip:alice@example.com");

        for (to, call_id) in [
            ("<sip:alice@example.com>", "1"),
            ("Alice <sip:%61lice@EXAMPLE.com:5060;transport=udp>", "2"),
            ("sip:alice@example.com", "3"),
        ] {
            assert_eq!(hash.of_message(&request("REGISTER", to, call_id, "")), slot, "{to}");
        }
        assert_eq!(
            hash.of_message(&request("OPTIONS", "<sip:alice@example.com>", "1", "")),
            hash.of_call_id(b"1")
        );
    }

    #[test]
    fn the_first_of_the_five_rules_that_fits_decides() {
        let hash = SlotHash::new(7);
        let to = "<sip:bob@example.com>";
        let tagged = "<sip:bob@example.com>;tag=2a0123456789abcdef";
        let replaces = "Replaces: x@y;to-tag=3b0123456789abcdef;from-tag=z\r\n";
        let join = "Join: x@y;from-tag=z;to-tag=4c0123456789abcdef\r\n";

        for (method, to, extra, slot) in [
            ("INVITE", tagged, "", Slot(0x2a)),
            ("INVITE", tagged, replaces, Slot(0x2a)),
            ("REGISTER", tagged, "", Slot(0x2a)),
            ("INVITE", to, replaces, Slot(0x3b)),
            ("INVITE", to, join, Slot(0x4c)),
            ("REFER", to, replaces, hash.of_call_id(b"1")),
            ("INVITE", to, "Replaces: x@y;to-tag=theirs;from-tag=z\r\n", hash.of_call_id(b"1")),
            ("INVITE", "<sip:bob@example.com>;tag=theirs", "", hash.of_call_id(b"1")),
        ] {
            assert_eq!(
                hash.of_message(&request(method, to, "1", extra)),
                slot,
                "{method} {to} {extra}"
            );
        }
    }

    #[test]
    fn the_hash_is_the_same_in_every_version() {
        let hash = SlotHash::new(7);

        assert_eq!(hash.of_call_id(b"a84b4c76e66710@pc33.example.com"), Slot(59));
        assert_eq!(hash.of_address(b"alice", b"example.com"), Slot(231));
    }

    #[test]
    fn calls_spread_over_all_slots() {
        let hash = SlotHash::new(7);
        let slots: BTreeSet<Slot> =
            (0..4096).map(|call| hash.of_call_id(format!("{call}@host").as_bytes())).collect();

        assert_eq!(slots.len(), 256);
    }

    fn request(method: &str, to: &str, call_id: &str, extra: &str) -> Message {
        let text = format!(
            "{method} sip:bob@example.com SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.7;branch=z9hG4bK1\r\n\
             From: <sip:alice@example.com>;tag=a\r\nTo: {to}\r\nCall-ID: {call_id}\r\n\
             CSeq: 1 {method}\r\nMax-Forwards: 70\r\n{extra}Content-Length: 0\r\n\r\n"
        );
        Message::parse(text.into()).unwrap()
    }
}
