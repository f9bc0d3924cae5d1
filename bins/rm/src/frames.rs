//! The frames that roles of `rm` send each other, beside SIP and media frames.
//!
//! A struct is frozen once released: a changed shape is a new struct under a new kind. The files in
//! `tests/it/testdata/frames` hold one encoding of each.

use std::net::SocketAddr;

use bytes::Bytes;
use driver::NodeId;
use failover::controller::{Ask, Gateways, Here, Introduce, Verdict};
use failover::record::{Fork, Session, Value, ValueRef};
use failover::replica::{Ack, Batch, Key};
use failover::voter::{Bid, Vote};
use failover::{Admission, Boot, Detail, Slot, SlotMap, Transport, UnixMs};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A value that travels as the payload of one frame.
pub trait Frame: Serialize + DeserializeOwned {
    /// The type number in the frame's header.
    const KIND: u16;
}

/// Gate to b2b, first frame of each link: where phones reach it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateHello {
    /// The gate's boot.
    pub boot: u64,
    /// Its listeners in the order of their numbers.
    pub listeners: Vec<(Transport, SocketAddr)>,
}

/// B2b to b2b, first frame of each bulk link: what time it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WallClock {
    /// The boot of who says it.
    pub boot: Boot,
    /// Its wall-clock time now.
    pub unix_ms: UnixMs,
}

impl Frame for GateHello {
    const KIND: u16 = 0x0103;
}
impl Frame for SlotMap {
    const KIND: u16 = 0x0104;
}
impl Frame for Bid {
    const KIND: u16 = 0x0105;
}
impl Frame for Vote {
    const KIND: u16 = 0x0106;
}
impl Frame for Batch {
    const KIND: u16 = 0x0201;
}
impl Frame for Ack {
    const KIND: u16 = 0x0202;
}
impl Frame for WallClock {
    const KIND: u16 = 0x0203;
}
impl Frame for Introduce {
    const KIND: u16 = 0x0301;
}
impl Frame for Ask {
    const KIND: u16 = 0x0302;
}
impl Frame for Here {
    const KIND: u16 = 0x0303;
}
impl Frame for Gateways {
    const KIND: u16 = 0x0304;
}
impl Frame for Verdict {
    const KIND: u16 = 0x0305;
}

/// The kinds of values that this version can read.
pub(crate) const VALUE_KINDS: [u16; 5] = [VALUE, ADMITTED, DETAILED, FORKED, TIMED];

/// Writes a value as standbys and stores keep it: its kind, then itself. A call of which it is known
/// how it was let in has a kind of its own: that, then the call as the other kind has it. So has
/// one that ended and is not written down, one whose callee is rung at several places, and one whose
/// sessions have timers: all of them, unless `session_expires` is 0. Releases before a kind read no call of it.
pub fn value_bytes(value: ValueRef<'_>) -> Bytes {
    let admission = value.admission();
    if let Some(sessions) = value.sessions() {
        let admission = admission.cloned().unwrap_or_default();
        let beside = (admission, value.detail(), value.fork(), sessions, value);
        return driver::codec::encode_after(&TIMED.to_be_bytes(), &beside);
    }
    if let Some(fork) = value.fork() {
        let admission = admission.cloned().unwrap_or_default();
        let beside = (admission, value.detail(), fork, value);
        return driver::codec::encode_after(&FORKED.to_be_bytes(), &beside);
    }
    match (value.detail(), admission) {
        (None, None) => driver::codec::encode_after(&VALUE.to_be_bytes(), &value),
        (None, Some(admission)) => {
            driver::codec::encode_after(&ADMITTED.to_be_bytes(), &(admission, value))
        }
        (Some(detail), _) => {
            let admission = admission.cloned().unwrap_or_default();
            driver::codec::encode_after(&DETAILED.to_be_bytes(), &(admission, detail, value))
        }
    }
}

/// Reads a value; `None` for another kind, or one that is malformed.
pub fn value(bytes: &[u8]) -> Option<Value> {
    let (kind, rest) = bytes.split_first_chunk()?;
    match u16::from_be_bytes(*kind) {
        VALUE => driver::codec::decode(rest).ok(),
        ADMITTED => {
            let (admission, value): (Admission, Value) = driver::codec::decode(rest).ok()?;
            Some(value.with_admission(admission))
        }
        DETAILED => {
            let (admission, detail, value): (Admission, Detail, Value) =
                driver::codec::decode(rest).ok()?;
            Some(value.with_admission(admission).with_detail(detail))
        }
        FORKED => {
            let (admission, detail, fork, value): (Admission, Option<Detail>, Fork, Value) =
                driver::codec::decode(rest).ok()?;
            let value = value.with_admission(admission).with_fork(fork);
            Some(match detail {
                Some(detail) => value.with_detail(detail),
                None => value,
            })
        }
        TIMED => {
            let (admission, detail, fork, sessions, mut value): Timed =
                driver::codec::decode(rest).ok()?;
            value = value.with_admission(admission).with_sessions(sessions);
            if let Some(detail) = detail {
                value = value.with_detail(detail);
            }
            if let Some(fork) = fork {
                value = value.with_fork(fork);
            }
            Some(value)
        }
        _ => None,
    }
}

/// Reads the record of this name and slot; `None` for anything else.
pub(crate) fn value_of(slot: Slot, key: &Key, bytes: &[u8]) -> Option<Value> {
    let value = value(bytes)?;
    let is_it = match (key, &value) {
        (Key::Call(call), Value::Call(record)) => (record.call, record.slot) == (*call, slot),
        (Key::Call(call), Value::Ended(stone)) => (stone.call, stone.slot) == (*call, slot),
        (Key::Aor(_), Value::Bindings(_)) => true,
        (Key::Call(_) | Key::Aor(_), _) => false,
    };
    is_it.then_some(value)
}

/// Returns whether a value is a record of this name and slot.
pub(crate) fn is_readable(slot: Slot, key: &Key, bytes: &[u8]) -> bool {
    value_of(slot, key, bytes).is_some()
}

/// What the kind [`TIMED`] has.
type Timed = (Admission, Option<Detail>, Option<Fork>, [Session; 2], Value);

const VALUE: u16 = 0x0210;
const ADMITTED: u16 = 0x0211;
const DETAILED: u16 = 0x0212;
const FORKED: u16 = 0x0213;
const TIMED: u16 = 0x0214;

/// Returns the output that sends `frame` to `peer`.
pub(crate) fn send<F: Frame>(peer: NodeId, class: driver::Class, frame: &F) -> driver::Output {
    driver::Output::Frame { peer, class, kind: F::KIND, payload: driver::codec::encode(frame) }
}

/// Returns the output that sends a frame of the media crate to the gateway `peer`.
pub(crate) fn send_media<F: media::Frame>(peer: NodeId, frame: &F) -> driver::Output {
    let payload = driver::codec::encode(frame);
    driver::Output::Frame { peer, class: driver::Class::Calls, kind: F::KIND, payload }
}

/// Reads a frame that a mediagate sent; `None` for another kind, or one that is malformed.
pub(crate) fn notice(kind: u16, payload: &[u8]) -> Option<media::Notice> {
    fn read<F: media::Frame>(payload: &[u8]) -> Option<F> {
        driver::codec::decode(payload).ok()
    }
    use media::Frame as _;
    Some(match kind {
        media::Welcome::KIND => media::Notice::Welcome(read(payload)?),
        media::Leased::KIND => media::Notice::Leased(read(payload)?),
        media::Failed::KIND => media::Notice::Failed(read(payload)?),
        media::Latched::KIND => media::Notice::Latched(read(payload)?),
        media::Silent::KIND => media::Notice::Silent(read(payload)?),
        media::DigestDiffers::KIND => media::Notice::DigestDiffers(read(payload)?),
        media::Missing::KIND => media::Notice::Missing(read(payload)?),
        _ => return None,
    })
}
