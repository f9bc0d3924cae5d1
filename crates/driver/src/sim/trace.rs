//! A hash of everything that every node was told, and when.

use std::net::{IpAddr, SocketAddr};

use super::random::mix;
use crate::node::Input;

/// Two runs with the same hash are the same run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trace(u64);

impl Trace {
    pub(super) fn hash(self) -> u64 {
        self.0
    }

    pub(super) fn add(&mut self, value: u64) {
        self.0 = mix(self.0.rotate_left(5) ^ value);
    }

    pub(super) fn input(&mut self, input: &Input) {
        match input {
            Input::Bound { socket, local } => {
                self.add(1);
                self.add(socket.0.into());
                self.addr(*local);
            }
            Input::BindFailed { socket, .. } => {
                self.add(2);
                self.add(socket.0.into());
            }
            Input::Datagram { socket, from, bytes } => {
                self.add(3);
                self.add(socket.0.into());
                self.addr(*from);
                self.bytes(bytes);
            }
            Input::Refused { socket } => {
                self.add(4);
                self.add(socket.0.into());
            }
            Input::LinkUp { peer, class, boot } => {
                self.add(5);
                self.add(u64::from(peer.0) << 8 | *class as u64);
                self.add(*boot);
            }
            Input::LinkDown { peer, class } => {
                self.add(6);
                self.add(u64::from(peer.0) << 8 | *class as u64);
            }
            Input::Frame { peer, class, kind, payload } => {
                self.add(7);
                self.add(u64::from(peer.0) << 32 | u64::from(*kind) << 8 | *class as u64);
                self.bytes(payload);
            }
            Input::Congested { peer, class, on } => {
                self.add(8);
                self.add(u64::from(peer.0) << 32 | u64::from(*on) << 8 | *class as u64);
            }
            Input::Woken => self.add(9),
            Input::Request { id, request } => {
                self.add(12);
                self.add(*id);
                self.bytes(request.path.as_bytes());
                self.bytes(&request.body);
            }
            Input::Message { socket, connection, from, message } => {
                self.add(13);
                self.add(u64::from(socket.0) << 32 | u64::from(connection.0));
                self.addr(*from);
                self.bytes(message.bytes());
            }
            Input::Unsent { socket, to, bytes } => {
                self.add(14);
                self.add(socket.0.into());
                self.addr(*to);
                self.bytes(bytes);
            }
            Input::Written { number } => {
                self.add(15);
                self.add(*number);
            }
            Input::Unwritten { number } => {
                self.add(16);
                self.add(*number);
            }
            Input::Drain => self.add(10),
            Input::Reload => self.add(11),
        }
    }

    fn addr(&mut self, addr: SocketAddr) {
        match addr.ip() {
            IpAddr::V4(ip) => self.add(u64::from(ip.to_bits()) << 16 | u64::from(addr.port())),
            IpAddr::V6(ip) => {
                self.bytes(&ip.octets());
                self.add(addr.port().into());
            }
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.add(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        let mut sum = self.0;
        for word in words {
            sum = (sum ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            sum ^= sum >> 32;
        }
        self.0 = sum;
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.add(u64::from_le_bytes(last));
    }
}
