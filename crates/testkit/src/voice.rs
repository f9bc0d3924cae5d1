//! The RTP that phones send to each other: PCMU silence with a stamp in it.

use std::time::Duration;

/// The length of every packet: an RTP header and 20 ms of PCMU.
pub const PACKET_LEN: usize = 12 + 160;

/// How often a phone sends a packet.
pub const PERIOD: Duration = Duration::from_millis(20);

const MAGIC: [u8; 4] = *b"HLv1";
/// Header, magic, phone, number, time.
const STAMP_END: usize = 12 + 4 + 4 + 8 + 8;

/// One period, 20 samples, of a sine of 400 Hz at half of the full scale.
const TONE_MU_LAW: [u8; 20] = [
    0xff, 0xac, 0x9d, 0x96, 0x92, 0x90, 0x92, 0x96, 0x9d, 0xac, 0xff, 0x2c, 0x1d, 0x16, 0x12, 0x10,
    0x12, 0x16, 0x1d, 0x2c,
];
const TONE_A_LAW: [u8; 20] = [
    0xd5, 0x86, 0xb7, 0xbc, 0xb8, 0xba, 0xb8, 0xbc, 0xb7, 0x86, 0xd5, 0x06, 0x37, 0x3c, 0x38, 0x3a,
    0x38, 0x3c, 0x37, 0x06,
];

/// The sending half of one stream.
#[derive(Clone, Debug)]
pub(crate) struct Mouth {
    phone: u32,
    ssrc: u32,
    number: u64,
}

/// What an arrived packet says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The stream: it changes with each call.
    pub(crate) ssrc: u32,
    /// Counts the packets of the stream from 0; never wraps.
    pub(crate) number: u64,
    /// When it was sent, since the sender's beginning. `None` if no phone of
    /// ours sent it; then `number` is the RTP sequence number.
    pub(crate) sent: Option<Duration>,
}

impl Mouth {
    pub(crate) fn new(phone: u32, ssrc: u32) -> Self {
        Self { phone, ssrc, number: 0 }
    }

    /// Writes the next packet; its number is used up, sent or not.
    pub(crate) fn speak(
        &mut self,
        since_start: Duration,
        payload_type: u8,
        packet: &mut [u8; PACKET_LEN],
    ) {
        let number = self.number;
        self.number += 1;
        packet[0] = 0x80;
        // RFC 3551 §4.1: the marker bit begins a talkspurt.
        packet[1] = payload_type | if number == 0 { 0x80 } else { 0 };
        packet[2..4].copy_from_slice(&number.to_be_bytes()[6..]);
        packet[4..8].copy_from_slice(&number.wrapping_mul(160).to_be_bytes()[4..]);
        packet[8..12].copy_from_slice(&self.ssrc.to_be_bytes());
        packet[12..16].copy_from_slice(&MAGIC);
        packet[16..20].copy_from_slice(&self.phone.to_be_bytes());
        packet[20..28].copy_from_slice(&number.to_be_bytes());
        let nanos = u64::try_from(since_start.as_nanos()).unwrap_or(u64::MAX);
        packet[28..STAMP_END].copy_from_slice(&nanos.to_be_bytes());
        packet[STAMP_END..].fill(0xff);
    }

    /// Puts 20 ms of a tone of 400 Hz into the packet that was just spoken.
    pub(crate) fn sing(&self, payload_type: u8, packet: &mut [u8; PACKET_LEN]) {
        let tone = if payload_type == 8 { TONE_A_LAW } else { TONE_MU_LAW };
        for (sample, tone) in packet[12..].iter_mut().zip(tone.iter().cycle()) {
            *sample = *tone;
        }
    }
}

/// Reads an RTP packet; `None` if it is none.
pub(crate) fn hear(packet: &[u8]) -> Option<Stamp> {
    let header = packet.first_chunk::<12>()?;
    // RFC 5761 §4: payload types 64 to 95 with the marker are RTCP.
    if header[0] >> 6 != 2 || (192..=223).contains(&header[1]) {
        return None;
    }
    let ssrc = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
    let Some(stamp) = packet.get(12..STAMP_END).filter(|stamp| stamp.starts_with(&MAGIC)) else {
        let number = u64::from(u16::from_be_bytes([header[2], header[3]]));
        return Some(Stamp { ssrc, number, sent: None });
    };
    let word = |at: usize| stamp[at..].first_chunk().map_or(0, |word| u64::from_be_bytes(*word));
    Some(Stamp { ssrc, number: word(8), sent: Some(Duration::from_nanos(word(16))) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spoken_is_heard() {
        let mut mouth = Mouth::new(7, 0xabcd);
        let mut packet = [0; PACKET_LEN];
        mouth.speak(Duration::ZERO, 0, &mut packet);
        mouth.speak(Duration::from_millis(20), 8, &mut packet);

        let stamp = Stamp { ssrc: 0xabcd, number: 1, sent: Some(Duration::from_millis(20)) };
        assert_eq!(hear(&packet), Some(stamp));
        assert_eq!(packet[1], 8);
    }

    #[test]
    fn rtcp_and_noise_are_not_voice() {
        assert_eq!(hear(b"short"), None);
        assert_eq!(hear(&[0x80, 200, 0, 6, 0, 0, 0, 1, 0, 0, 0, 0]), None);
        assert_eq!(hear(&[0; PACKET_LEN]), None);
    }
}
