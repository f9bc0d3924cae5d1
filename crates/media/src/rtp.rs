//! As much of a packet as a forwarder looks at.

/// What a datagram on a media port is (RFC 5761 §4 tells the two kinds apart).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packet {
    Rtp(Rtp),
    Rtcp(Rtcp),
}

/// The fixed header of RFC 3550 §5.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rtp {
    pub(crate) payload_type: u8,
    pub(crate) seq: u16,
    pub(crate) ssrc: u32,
}

/// The first packet of a compound one, RFC 3550 §6.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rtcp {
    pub(crate) ssrc: u32,
}

impl Packet {
    /// Reads the header; `None` for what is neither RTP nor RTCP.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (&first, &second) = (bytes.first()?, bytes.get(1)?);
        if first >> 6 != 2 {
            return None;
        }
        if (192..=223).contains(&second) {
            let ssrc = bytes.get(4..8)?.try_into().ok()?;
            return Some(Self::Rtcp(Rtcp { ssrc: u32::from_be_bytes(ssrc) }));
        }
        let header: &[u8; 12] = bytes.first_chunk()?;
        Some(Self::Rtp(Rtp {
            payload_type: second & 0x7f,
            seq: u16::from_be_bytes([header[2], header[3]]),
            ssrc: u32::from_be_bytes([header[8], header[9], header[10], header[11]]),
        }))
    }
}

/// Payload types, 0–127; an empty set allows all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PayloadTypes(u128);

impl PayloadTypes {
    pub(crate) fn allow(self, payload_type: u8) -> bool {
        self.0 == 0 || self.0 >> (payload_type & 0x7f) & 1 == 1
    }
}

impl FromIterator<u8> for PayloadTypes {
    fn from_iter<I: IntoIterator<Item = u8>>(types: I) -> Self {
        Self(types.into_iter().filter(|at| *at < 128).fold(0, |set, at| set | 1 << at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_rtp_header_is_read_and_a_marker_is_no_payload_type() {
        let packet = [0x80, 0x88, 0x12, 0x34, 0, 0, 0, 0, 0xde, 0xad, 0xbe, 0xef, 1];

        assert_eq!(
            Packet::parse(&packet),
            Some(Packet::Rtp(Rtp { payload_type: 8, seq: 0x1234, ssrc: 0xdead_beef }))
        );
    }

    #[test]
    fn a_sender_report_is_rtcp() {
        let packet = [0x80, 200, 0, 1, 0, 0, 0, 9];

        assert_eq!(Packet::parse(&packet), Some(Packet::Rtcp(Rtcp { ssrc: 9 })));
    }

    #[test]
    fn what_is_short_or_of_another_version_is_neither() {
        assert_eq!(Packet::parse(b""), None);
        assert_eq!(Packet::parse(b"\r\n\r\n"), None);
        assert_eq!(Packet::parse(&[0x80; 11]), None);
        assert_eq!(Packet::parse(&[0x80, 200, 0, 1, 0, 0, 0]), None);
        assert_eq!(Packet::parse(&[0x40; 40]), None);
    }

    #[test]
    fn an_empty_set_of_payload_types_allows_all() {
        assert!(PayloadTypes::default().allow(96));

        let types: PayloadTypes = [8, 101].into_iter().collect();
        assert!(types.allow(8) && types.allow(101));
        assert!(!types.allow(0) && !types.allow(96));
    }
}
