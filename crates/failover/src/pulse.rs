//! The datagrams by which a b2b keeps its slots.
//!
//! A b2b sends a [`Pulse`] every [`PERIOD`] to every voter and every other b2b; each answers at once
//! with a [`PulseBack`]. A voter's answer says whether the b2b still holds what it claims: an owner's
//! lease is made of such answers.

use std::time::Duration;

use crate::slots::SlotSet;
use crate::{Boot, Epoch, NodeId};

/// From a b2b: it lives, and claims slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulse {
    /// The b2b.
    pub node: NodeId,
    /// Its boot.
    pub boot: Boot,
    /// When it was sent, on the sender's own clock, in microseconds. Comes back in the answer.
    pub stamp: u64,
    /// Whether the sender's lease runs: it acts for what it claims.
    pub holds: bool,
    /// Whether the sender gives its slots away and wants none.
    pub draining: bool,
    /// Whether nothing of the receiver has reached the sender lately: the way to it is cut.
    pub deaf: bool,
    /// The slots it owns, at most [`CLAIMS_MAX`] groups.
    pub claims: Vec<Claim>,
}

/// Slots that a b2b owns at one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The epoch.
    pub epoch: Epoch,
    /// The slots.
    pub slots: SlotSet,
}

/// The answer to a [`Pulse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PulseBack {
    /// Who answers.
    pub node: NodeId,
    /// Its boot.
    pub boot: Boot,
    /// The boot of the b2b that it answers.
    pub asker: Boot,
    /// The pulse's stamp.
    pub stamp: u64,
    /// What the answerer holds of the claims; [`Standing::Passes`] from a node without a vote.
    pub standing: Standing,
}

/// What a voter holds of a b2b's claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// All claimed slots are the b2b's here.
    Passes,
    /// They are the b2b's, but it had no lease for so long that it must win them anew.
    Lapsed,
    /// Some are promised to another, or not known to be the b2b's.
    Fenced {
        /// The highest epoch promised of those; zero when none is.
        promised: Epoch,
    },
    /// The voter has just started, or has just been told of the b2b: not yet.
    Starting,
    /// A later boot of the same b2b was heard.
    Replaced,
}

/// What a datagram at a node's pulse port can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Datagram {
    /// A question.
    Pulse(Pulse),
    /// An answer.
    Back(PulseBack),
}

impl Datagram {
    /// Reads a datagram; `None` for what is none of these.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&MAGIC)?;
        let (&kind, mut rest) = rest.split_first()?;
        let rest = &mut rest;
        let (node, boot) = (NodeId(u16::from_be_bytes(take(rest)?)), Boot(take_u64(rest)?));
        let (stamp, [flags]) = (take_u64(rest)?, take(rest)?);
        let read = match kind {
            PULSE => {
                let [count] = take(rest)?;
                if CLAIMS_MAX < usize::from(count) {
                    return None;
                }
                let claims = (0..count).map(|_| take_claim(rest)).collect::<Option<_>>()?;
                let [holds, draining, deaf] = [HOLDS, DRAINING, DEAF].map(|one| flags & one != 0);
                Self::Pulse(Pulse { node, boot, stamp, holds, draining, deaf, claims })
            }
            BACK => {
                let asker = Boot(take_u64(rest)?);
                let promised = Epoch(u32::from_be_bytes(take(rest)?));
                let standing = match flags {
                    0 => Standing::Passes,
                    1 => Standing::Lapsed,
                    2 => Standing::Fenced { promised },
                    3 => Standing::Starting,
                    4 => Standing::Replaced,
                    _ => return None,
                };
                Self::Back(PulseBack { node, boot, asker, stamp, standing })
            }
            _ => return None,
        };
        rest.is_empty().then_some(read)
    }
}

impl Pulse {
    /// Returns the datagram. Claims beyond [`CLAIMS_MAX`] are left out.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = head(PULSE, self.node, self.boot, self.stamp);
        let flags = [(self.holds, HOLDS), (self.draining, DRAINING), (self.deaf, DEAF)];
        bytes.push(flags.into_iter().map(|(is_set, flag)| u8::from(is_set) * flag).sum());
        let claims = &self.claims[..self.claims.len().min(CLAIMS_MAX)];
        bytes.push(u8::try_from(claims.len()).unwrap_or(u8::MAX));
        for claim in claims {
            bytes.extend(claim.epoch.0.to_be_bytes());
            bytes.extend(claim.slots.words().into_iter().flat_map(u64::to_be_bytes));
        }
        bytes
    }

    /// Returns the answer of a node that has no vote.
    pub fn back(&self, node: NodeId, boot: Boot) -> PulseBack {
        let standing = Standing::Passes;
        PulseBack { node, boot, asker: self.boot, stamp: self.stamp, standing }
    }
}

impl PulseBack {
    /// Returns the datagram.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = head(BACK, self.node, self.boot, self.stamp);
        let (code, promised) = match self.standing {
            Standing::Passes => (0, Epoch(0)),
            Standing::Lapsed => (1, Epoch(0)),
            Standing::Fenced { promised } => (2, promised),
            Standing::Starting => (3, Epoch(0)),
            Standing::Replaced => (4, Epoch(0)),
        };
        bytes.push(code);
        bytes.extend(self.asker.0.to_be_bytes());
        bytes.extend(promised.0.to_be_bytes());
        bytes
    }
}

fn head(kind: u8, node: NodeId, boot: Boot, stamp: u64) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.push(kind);
    bytes.extend(node.0.to_be_bytes());
    bytes.extend(boot.0.to_be_bytes());
    bytes.extend(stamp.to_be_bytes());
    bytes
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(*taken)
}

fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    take(rest).map(u64::from_be_bytes)
}

fn take_claim(rest: &mut &[u8]) -> Option<Claim> {
    let epoch = Epoch(u32::from_be_bytes(take(rest)?));
    let words = [take_u64(rest)?, take_u64(rest)?, take_u64(rest)?, take_u64(rest)?];
    Some(Claim { epoch, slots: SlotSet::of_words(words) })
}

/// How often a b2b sends its pulse.
pub const PERIOD: Duration = Duration::from_millis(50);

/// Groups of slots of one pulse. An owner with more epochs than that wins all its slots anew at one.
pub const CLAIMS_MAX: usize = 8;

/// A name and a version: neither SIP nor a mediagate's beat starts so.
const MAGIC: [u8; 3] = *b"HP\x01";
const PULSE: u8 = 1;
const BACK: u8 = 2;
const HOLDS: u8 = 1;
const DRAINING: u8 = 2;
const DEAF: u8 = 4;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Slot;

    #[test]
    fn datagrams_arrive_as_they_were_sent() {
        let claim =
            |epoch, slot| Claim { epoch: Epoch(epoch), slots: [Slot(slot)].into_iter().collect() };
        let pulse = Pulse {
            node: NodeId(12),
            boot: Boot(7),
            stamp: 1_234_567,
            holds: true,
            draining: false,
            deaf: true,
            claims: vec![claim(5, 0), claim(1_800_000_000, 255)],
        };
        assert_eq!(Datagram::decode(&pulse.encode()), Some(Datagram::Pulse(pulse.clone())));

        for standing in [
            Standing::Passes,
            Standing::Lapsed,
            Standing::Fenced { promised: Epoch(9) },
            Standing::Starting,
            Standing::Replaced,
        ] {
            let back = PulseBack { standing, ..pulse.back(NodeId(3), Boot(4)) };
            assert_eq!(Datagram::decode(&back.encode()), Some(Datagram::Back(back)));
        }
    }

    #[test]
    fn a_datagram_has_the_bytes_written_here() {
        let pulse = Pulse {
            node: NodeId(0x0102),
            boot: Boot(3),
            stamp: 4,
            holds: true,
            draining: true,
            deaf: false,
            claims: vec![Claim { epoch: Epoch(5), slots: [Slot(0)].into_iter().collect() }],
        };
        let mut bytes = b"HP\x01\x01\x01\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04\x03\x01".to_vec();
        bytes.extend(b"\0\0\0\x05\0\0\0\0\0\0\0\x01");
        bytes.extend([0; 24]);
        assert_eq!(pulse.encode(), bytes);
    }

    proptest! {
        #[test]
        fn what_is_cut_off_or_foreign_is_not_read(
            bytes in proptest::collection::vec(any::<u8>(), 0..80), cut in 0_usize..60,
        ) {
            let pulse = Pulse {
                node: NodeId(1), boot: Boot(1), stamp: 1, holds: false, draining: false, deaf: false,
                claims: vec![Claim { epoch: Epoch(1), slots: SlotSet::ALL }],
            };
            let whole = pulse.encode();
            prop_assert_eq!(Datagram::decode(&whole[..cut.min(whole.len() - 1)]), None);
            if let Some(Datagram::Pulse(pulse)) = Datagram::decode(&bytes) {
                prop_assert_eq!(Datagram::decode(&pulse.encode()), Some(Datagram::Pulse(pulse)));
            }
        }
    }
}
