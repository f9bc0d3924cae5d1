//! Which way media flows.

/// Which way media flows, seen from the maker of the description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Both ways.
    SendRecv,
    /// Only from the maker.
    SendOnly,
    /// Only to the maker.
    RecvOnly,
    /// Neither way.
    Inactive,
}

impl Direction {
    pub(super) fn new(text: &[u8]) -> Option<Self> {
        match text {
            b"sendrecv" => Some(Self::SendRecv),
            b"sendonly" => Some(Self::SendOnly),
            b"recvonly" => Some(Self::RecvOnly),
            b"inactive" => Some(Self::Inactive),
            _ => None,
        }
    }

    /// Makes one of both halves.
    #[must_use]
    pub const fn of(sends: bool, receives: bool) -> Self {
        match (sends, receives) {
            (true, true) => Self::SendRecv,
            (true, false) => Self::SendOnly,
            (false, true) => Self::RecvOnly,
            (false, false) => Self::Inactive,
        }
    }

    /// True when the maker sends.
    #[must_use]
    pub const fn sends(self) -> bool {
        matches!(self, Self::SendRecv | Self::SendOnly)
    }

    /// True when the maker receives.
    #[must_use]
    pub const fn receives(self) -> bool {
        matches!(self, Self::SendRecv | Self::RecvOnly)
    }

    /// Returns the same flow seen from the other side.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self::of(self.receives(), self.sends())
    }

    /// Returns what an answer may say at most that itself wishes `wish`
    /// (RFC 3264 §6.1).
    #[must_use]
    pub const fn answered_with(self, wish: Self) -> Self {
        Self::of(self.receives() && wish.sends(), self.sends() && wish.receives())
    }

    /// Returns the attribute's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SendRecv => "sendrecv",
            Self::SendOnly => "sendonly",
            Self::RecvOnly => "recvonly",
            Self::Inactive => "inactive",
        }
    }
}
