//! The two frames in which whole SIP messages travel between a gate and a b2b: a header of fixed
//! layout, then the message byte for byte. All numbers are big-endian.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::{Bytes, BytesMut};
use failover::{Boot, Epoch, Flow, NodeId, Slot, Transport};

/// A message that a peer sent, on its way from a gate to the owner of its slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SipIn {
    /// The slot the gate found for it.
    pub slot: Slot,
    /// How many nodes passed it on before; a message is passed on once. One that a gate gave back was
    /// passed on twice for each way tried: see [`is_returned`](Self::is_returned).
    pub hops: u8,
    /// Where it came from.
    pub flow: Flow,
    /// The message, with `received` and `rport` filled in.
    pub bytes: Bytes,
}

/// A message to a peer, on its way from the owner of its slot to a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SipOut {
    /// The slot of the call or binding it belongs to.
    pub slot: Slot,
    /// The epoch in which the sender owns the slot; a gate refuses an older one.
    pub epoch: Epoch,
    /// Where it goes.
    pub flow: Flow,
    /// The message.
    pub bytes: Bytes,
}

/// Why a frame is no SIP frame. The sending node is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed sip frame")]
pub struct FrameError;

impl SipIn {
    /// Frame kind of the fixed layout below.
    pub const KIND: u16 = 0x0101;

    /// Whether another gate gave it back to its own, since it does not reach the owner either.
    pub fn is_returned(&self) -> bool {
        0 < self.hops && self.hops.is_multiple_of(2)
    }

    /// Writes the frame's payload; the message is copied once.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(2 + FLOW_LEN_MAX + self.bytes.len());
        out.extend_from_slice(&[self.slot.0, self.hops]);
        put_flow(&mut out, &self.flow);
        out.extend_from_slice(&self.bytes);
        out.freeze()
    }

    /// Reads a payload; the message shares its memory.
    pub fn decode(mut payload: Bytes) -> Result<Self, FrameError> {
        let mut reader = Reader(&payload);
        let [slot, hops] = reader.take()?;
        let flow = take_flow(&mut reader)?;
        let header_len = payload.len() - reader.0.len();
        let bytes = payload.split_off(header_len);
        Ok(Self { slot: Slot(slot), hops, flow, bytes })
    }
}

impl SipOut {
    /// Frame kind of the fixed layout below.
    pub const KIND: u16 = 0x0102;

    /// Writes the frame's payload; the message is copied once.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(5 + FLOW_LEN_MAX + self.bytes.len());
        out.extend_from_slice(&[self.slot.0]);
        out.extend_from_slice(&self.epoch.0.to_be_bytes());
        put_flow(&mut out, &self.flow);
        out.extend_from_slice(&self.bytes);
        out.freeze()
    }

    /// Reads a payload; the message shares its memory.
    pub fn decode(mut payload: Bytes) -> Result<Self, FrameError> {
        let mut reader = Reader(&payload);
        let [slot] = reader.take()?;
        let epoch = Epoch(u32::from_be_bytes(reader.take()?));
        let flow = take_flow(&mut reader)?;
        let header_len = payload.len() - reader.0.len();
        let bytes = payload.split_off(header_len);
        Ok(Self { slot: Slot(slot), epoch, flow, bytes })
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(FrameError)?;
        self.0 = rest;
        Ok(*head)
    }
}

fn put_flow(out: &mut BytesMut, flow: &Flow) {
    out.extend_from_slice(&flow.gate.0.to_be_bytes());
    out.extend_from_slice(&flow.boot.0.to_be_bytes());
    out.extend_from_slice(&flow.connection.to_be_bytes());
    let transport = match flow.transport {
        Transport::Udp => 0,
        Transport::Tcp => 1,
        Transport::Tls => 2,
    };
    out.extend_from_slice(&[flow.listener, transport]);
    match flow.remote.ip() {
        IpAddr::V4(ip) => {
            out.extend_from_slice(&[4]);
            out.extend_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out.extend_from_slice(&[6]);
            out.extend_from_slice(&ip.octets());
        }
    }
    out.extend_from_slice(&flow.remote.port().to_be_bytes());
}

fn take_flow(reader: &mut Reader<'_>) -> Result<Flow, FrameError> {
    let gate = NodeId(u16::from_be_bytes(reader.take()?));
    let boot = Boot(u64::from_be_bytes(reader.take()?));
    let connection = u32::from_be_bytes(reader.take()?);
    let [listener, transport, family] = reader.take()?;
    let transport = match transport {
        0 => Transport::Udp,
        1 => Transport::Tcp,
        2 => Transport::Tls,
        _ => return Err(FrameError),
    };
    let ip = match family {
        4 => IpAddr::V4(Ipv4Addr::from(reader.take::<4>()?)),
        6 => IpAddr::V6(Ipv6Addr::from(reader.take::<16>()?)),
        _ => return Err(FrameError),
    };
    let remote = SocketAddr::new(ip, u16::from_be_bytes(reader.take()?));
    Ok(Flow { gate, boot, listener, transport, connection, remote })
}

/// Gate, boot, connection, listener, transport, family, address, port.
const FLOW_LEN_MAX: usize = 2 + 8 + 4 + 1 + 1 + 1 + 16 + 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_frames_come_back_as_they_went() {
        for remote in ["192.0.2.7:5060", "[2001:db8::7]:5061"] {
            let flow = flow(remote);
            let coming =
                SipIn { slot: Slot(0xa7), hops: 1, flow, bytes: Bytes::from_static(b"OPTIONS") };
            let going = SipOut { slot: Slot(0), epoch: Epoch(77), flow, bytes: Bytes::new() };
            assert_eq!(SipIn::decode(coming.encode()), Ok(coming));
            assert_eq!(SipOut::decode(going.encode()), Ok(going));
        }
    }

    #[test]
    fn a_cut_header_is_refused_at_every_length() {
        let frame = SipOut {
            slot: Slot(1),
            epoch: Epoch(2),
            flow: flow("[2001:db8::7]:5061"),
            bytes: Bytes::new(),
        };
        let payload = frame.encode();
        for len in 0..payload.len() {
            assert_eq!(SipOut::decode(payload.slice(..len)), Err(FrameError));
        }
    }

    #[test]
    fn the_layout_is_fixed() {
        let frame = SipIn {
            slot: Slot(0xa7),
            hops: 1,
            flow: flow("192.0.2.7:5060"),
            bytes: Bytes::from_static(b"X"),
        };
        assert_eq!(
            frame.encode()[..],
            [
                0xa7, 1, 0, 3, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 5, 2, 0, 4, 192, 0, 2, 7, 0x13,
                0xc4, b'X'
            ]
        );
    }

    fn flow(remote: &str) -> Flow {
        Flow {
            gate: NodeId(3),
            boot: Boot(9),
            listener: 2,
            transport: Transport::Udp,
            connection: 5,
            remote: remote.parse().unwrap(),
        }
    }
}
