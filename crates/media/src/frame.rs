//! What a b2b and a media gateway say to each other over their link.
//!
//! Each struct is one frame with its own [`Frame::KIND`], frozen once released: a changed shape is a new struct under a
//! new kind. The owner encodes them with its codec; this crate does not.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Legs in one block of port numbers. A leg has an even port for RTP and the next one for RTCP.
pub const BLOCK_LEGS: u16 = 64;

/// Port numbers in one block.
pub const BLOCK_PORTS: u16 = 2 * BLOCK_LEGS;

/// A value that travels as the payload of one frame.
pub trait Frame: Serialize + DeserializeOwned {
    /// The type number in the frame's header, between 0x0200 and 0x02ff.
    const KIND: u16;
}

/// Names one call for its whole life, on every gateway that ever carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CallId(pub u64);

/// Gateway to b2b, first frame of each link: who the gateway is and what it can carry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// Counts the starts of this gateway. Leases of another boot are void.
    pub boot: u64,
    /// The machine it runs on, as configured: a call's media and signalling should not share one.
    pub host: String,
    /// The address that belongs into a phone's SDP.
    pub advertise: IpAddr,
    /// Legs that its ports and its file limit can carry at once.
    pub legs_max: u32,
    /// Forwarding threads. Both legs of a call lie in one of them.
    pub workers: u16,
    /// Where it hears [`Hear`](crate::beat::Hear) and whence it beats.
    pub beat: SocketAddr,
    /// Takes new calls only when no gateway without this mark lives.
    pub standby: bool,
    /// It is draining: no new calls, please.
    pub draining: bool,
    /// The blocks that this lessee still holds here.
    pub blocks: Vec<Block>,
}

/// B2b to gateway: asks for more port numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// How many blocks are wanted.
    pub blocks: u16,
    /// The node that will carry on this lessee's calls; its blocks stay while either lives.
    pub standby: Option<u16>,
}

/// Gateway to b2b: the answer to one [`Lease`], with as many blocks as there were, perhaps none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leased {
    /// The boot in which these blocks are valid.
    pub boot: u64,
    /// The new blocks only.
    pub blocks: Vec<Block>,
}

/// [`BLOCK_LEGS`] legs' port numbers, all in one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Its number on this gateway.
    pub index: u16,
    /// The worker that will open its ports.
    pub worker: u16,
    /// The lowest port, even.
    pub first_port: u16,
    /// Milliseconds for which the lessee keeps all of it back, so that no packet meant for an earlier call is heard.
    pub rest_ms: u16,
}

/// B2b to gateway: this block is not needed any more; none of its ports is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Return {
    /// The boot in which it was leased; ignored in another one.
    pub boot: u64,
    /// [`Block::index`].
    pub block: u16,
}

/// B2b to gateway, before the first [`Lease`] of each link: the sender keeps back every number that a call of
/// its own names, also where an earlier life of it, or another node, had leased the block. It may be given
/// blocks in which its calls are open; without this frame nobody is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inherit;

/// B2b to gateway: carry this call. The whole wanted state; repeating it changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// The call.
    pub call: CallId,
    /// The epoch of the call's slot. A lower one than the highest seen for this call is ignored.
    pub epoch: u32,
    /// The first leg is the caller's.
    pub legs: [LegSpec; 2],
}

/// B2b to gateway: the wanted state of a call has changed. As [`Open`], which it replaces should that have been lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Update {
    /// The call.
    pub call: CallId,
    /// As in [`Open`].
    pub epoch: u32,
    /// As in [`Open`].
    pub legs: [LegSpec; 2],
}

/// What one leg shall be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegSpec {
    /// The local RTP port, even, out of a leased block; RTCP is on the next one.
    pub port: u16,
    /// The phone's RTP address by its SDP; `None` before it sent one.
    pub remote: Option<SocketAddr>,
    /// The phone's RTCP address, if its SDP names one; else the port after `remote`.
    pub remote_rtcp: Option<SocketAddr>,
    /// The payload types agreed, 0–127. Empty: any.
    pub payload_types: Vec<u8>,
    /// Nothing need come from this phone: its media timeout pauses.
    pub held: bool,
    /// The phone is behind a NAT: its packets may come from another address than its SDP names.
    pub nat: bool,
    /// What another gateway had learned about this leg. Looked at only when the leg is new here.
    pub latched: Option<LatchedSource>,
}

/// The source that a gateway has learned for a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatchedSource {
    /// Where the phone's packets come from.
    pub addr: SocketAddr,
    /// The synchronisation source of its stream.
    pub ssrc: u32,
    /// A recent sequence number of it.
    pub seq: u16,
}

/// B2b to gateway: the call is over; its ports are closed. Unknown calls are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Close {
    /// The call.
    pub call: CallId,
    /// As in [`Open`].
    pub epoch: u32,
}

/// B2b to gateway, every 30 s: the calls that the sender holds open here at this point of the stream.
///
/// Keep one up to date with [`Digest::add`] for each [`Open`] and [`Digest::remove`] for each [`Close`] sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// Number of calls.
    pub count: u32,
    /// Does not depend on their order.
    pub digest: u64,
}

/// Gateway to b2b: the [`Digest`] is not that of the calls here. The b2b answers with [`Sync`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DigestDiffers {
    /// What the gateway found instead.
    pub held: Digest,
}

/// B2b to gateway: every call that the sender holds open here, with its epoch.
///
/// Calls that only the sender held and that are not listed are closed; a listed call belongs to the sender unless
/// another one holds it at a higher epoch; calls that are listed but not open come back in [`Missing`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sync {
    /// In any order.
    pub calls: Vec<(CallId, u32)>,
}

/// Gateway to b2b: these calls of a [`Sync`] are not open here. The b2b opens them again or drops them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The calls.
    pub calls: Vec<CallId>,
}

/// Gateway to b2b: the call is not carried; none of its ports is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// The call.
    pub call: CallId,
    /// The epoch of the command that failed.
    pub epoch: u32,
    /// 0 or 1: the leg whose port is at fault.
    pub leg: u8,
    /// Why.
    pub reason: FailReason,
}

/// Why a call could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FailReason {
    /// Something else on the machine has the port, or another call: take another number.
    PortInUse,
    /// Out of file descriptors, memory or room for commands: take another gateway.
    Exhausted,
    /// The port lies in no block, or the two legs lie in different workers.
    BadPort,
}

/// Gateway to b2b: the leg's source was learned, changed, or went on for a while. Worth keeping in the call's record,
/// for [`LegSpec::latched`] on the next gateway; nothing has to be done at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latched {
    /// The call.
    pub call: CallId,
    /// 0 or 1.
    pub leg: u8,
    /// What is known now.
    pub source: LatchedSource,
    /// Locks to another source so far in this call, beyond the first of each leg and without a new SDP.
    pub relocks: u8,
}

/// Gateway to b2b: no RTP came from this leg's phone for the configured time, though it should. Said once per silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silent {
    /// The call.
    pub call: CallId,
    /// 0 or 1.
    pub leg: u8,
}

/// Any frame from a b2b to a gateway, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// More numbers, please.
    Lease(Lease),
    /// A block comes back.
    Return(Return),
    /// Blocks in which our calls are open will do.
    Inherit(Inherit),
    /// A new call, or one known.
    Open(Open),
    /// A call changes.
    Update(Update),
    /// A call ends.
    Close(Close),
    /// Are we of one mind?
    Digest(Digest),
    /// The sender's whole mind.
    Sync(Sync),
}

/// Any frame from a gateway to a b2b, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// First of each link, and again when something in it changed.
    Welcome(Welcome),
    /// Answers a lease.
    Leased(Leased),
    /// A call is not carried.
    Failed(Failed),
    /// A source was learned.
    Latched(Latched),
    /// A phone is silent.
    Silent(Silent),
    /// The digests differ.
    DigestDiffers(DigestDiffers),
    /// Calls the gateway does not know.
    Missing(Missing),
}

impl Digest {
    /// Counts in one call.
    pub fn add(&mut self, call: CallId) {
        self.count = self.count.wrapping_add(1);
        self.digest ^= mix(call.0);
    }

    /// Counts out one call that was counted in.
    pub fn remove(&mut self, call: CallId) {
        self.count = self.count.wrapping_sub(1);
        self.digest ^= mix(call.0);
    }
}

impl FromIterator<CallId> for Digest {
    fn from_iter<I: IntoIterator<Item = CallId>>(calls: I) -> Self {
        let mut digest = Self::default();
        for call in calls {
            digest.add(call);
        }
        digest
    }
}

impl Frame for Welcome {
    const KIND: u16 = 0x0201;
}
impl Frame for Lease {
    const KIND: u16 = 0x0202;
}
impl Frame for Leased {
    const KIND: u16 = 0x0203;
}
impl Frame for Return {
    const KIND: u16 = 0x0204;
}
impl Frame for Inherit {
    const KIND: u16 = 0x0205;
}
impl Frame for Open {
    const KIND: u16 = 0x0210;
}
impl Frame for Update {
    const KIND: u16 = 0x0211;
}
impl Frame for Close {
    const KIND: u16 = 0x0212;
}
impl Frame for Digest {
    const KIND: u16 = 0x0220;
}
impl Frame for DigestDiffers {
    const KIND: u16 = 0x0221;
}
impl Frame for Sync {
    const KIND: u16 = 0x0222;
}
impl Frame for Missing {
    const KIND: u16 = 0x0223;
}
impl Frame for Failed {
    const KIND: u16 = 0x0230;
}
impl Frame for Latched {
    const KIND: u16 = 0x0231;
}
impl Frame for Silent {
    const KIND: u16 = 0x0232;
}

/// Spreads a call's number over 64 bits (the finaliser of SplitMix64), so that sums of neighbours do not cancel.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_does_not_depend_on_the_order_and_a_removed_call_leaves_no_trace() {
        let one: Digest = [CallId(1), CallId(2), CallId(3)].into_iter().collect();
        let mut other: Digest = [CallId(3), CallId(9), CallId(2), CallId(1)].into_iter().collect();

        assert_ne!(one, other);
        other.remove(CallId(9));
        assert_eq!(one, other);
    }
}
