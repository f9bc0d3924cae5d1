//! What a payload type stands for.

/// A codec (RFC 8866 §6.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rtpmap<'a> {
    /// The encoding's name; names compare without regard to case.
    pub encoding: &'a [u8],
    /// Ticks of the RTP clock in a second.
    pub clock: u32,
    /// Channels, 1 when not stated.
    pub channels: u32,
}

impl Rtpmap<'_> {
    /// True for the same codec, whatever numbers it goes by.
    #[must_use]
    pub fn is_same(&self, other: &Rtpmap<'_>) -> bool {
        self.encoding.eq_ignore_ascii_case(other.encoding)
            && (self.clock, self.channels) == (other.clock, other.channels)
    }

    /// Returns the codec that RFC 3551 §6 gives a payload type for good.
    pub(super) const fn of_static(payload_type: u8) -> Option<Self> {
        let (encoding, clock, channels): (&[u8], _, _) = match payload_type {
            0 => (b"PCMU", 8000, 1),
            3 => (b"GSM", 8000, 1),
            4 => (b"G723", 8000, 1),
            5 => (b"DVI4", 8000, 1),
            6 => (b"DVI4", 16_000, 1),
            7 => (b"LPC", 8000, 1),
            8 => (b"PCMA", 8000, 1),
            9 => (b"G722", 8000, 1),
            10 => (b"L16", 44_100, 2),
            11 => (b"L16", 44_100, 1),
            12 => (b"QCELP", 8000, 1),
            13 => (b"CN", 8000, 1),
            14 => (b"MPA", 90_000, 1),
            15 => (b"G728", 8000, 1),
            16 => (b"DVI4", 11_025, 1),
            17 => (b"DVI4", 22_050, 1),
            18 => (b"G729", 8000, 1),
            25 => (b"CelB", 90_000, 1),
            26 => (b"JPEG", 90_000, 1),
            28 => (b"nv", 90_000, 1),
            31 => (b"H261", 90_000, 1),
            32 => (b"MPV", 90_000, 1),
            33 => (b"MP2T", 90_000, 1),
            34 => (b"H263", 90_000, 1),
            _ => return None,
        };
        Some(Self { encoding, clock, channels })
    }
}
