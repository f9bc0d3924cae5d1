//! Request methods.

use std::fmt;

/// A request method. Methods are case-sensitive (RFC 3261 §7.1), so `invite`
/// is not `INVITE` but an unknown method of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method<'a> {
    /// `ACK` (RFC 3261).
    Ack,
    /// `BYE` (RFC 3261).
    Bye,
    /// `CANCEL` (RFC 3261).
    Cancel,
    /// `INFO` (RFC 6086).
    Info,
    /// `INVITE` (RFC 3261).
    Invite,
    /// `MESSAGE` (RFC 3428).
    Message,
    /// `NOTIFY` (RFC 6665).
    Notify,
    /// `OPTIONS` (RFC 3261).
    Options,
    /// `PRACK` (RFC 3262).
    Prack,
    /// `PUBLISH` (RFC 3903).
    Publish,
    /// `REFER` (RFC 3515).
    Refer,
    /// `REGISTER` (RFC 3261).
    Register,
    /// `SUBSCRIBE` (RFC 6665).
    Subscribe,
    /// `UPDATE` (RFC 3311).
    Update,
    /// Any other; never the text of one above, when made by [`Method::new`].
    Other(&'a [u8]),
}

impl<'a> Method<'a> {
    /// Returns the method that `text` spells.
    #[must_use]
    pub fn new(text: &'a [u8]) -> Self {
        match text {
            b"ACK" => Self::Ack,
            b"BYE" => Self::Bye,
            b"CANCEL" => Self::Cancel,
            b"INFO" => Self::Info,
            b"INVITE" => Self::Invite,
            b"MESSAGE" => Self::Message,
            b"NOTIFY" => Self::Notify,
            b"OPTIONS" => Self::Options,
            b"PRACK" => Self::Prack,
            b"PUBLISH" => Self::Publish,
            b"REFER" => Self::Refer,
            b"REGISTER" => Self::Register,
            b"SUBSCRIBE" => Self::Subscribe,
            b"UPDATE" => Self::Update,
            other => Self::Other(other),
        }
    }

    /// Returns the text of the method as it stands in a message.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        match self {
            Self::Ack => b"ACK",
            Self::Bye => b"BYE",
            Self::Cancel => b"CANCEL",
            Self::Info => b"INFO",
            Self::Invite => b"INVITE",
            Self::Message => b"MESSAGE",
            Self::Notify => b"NOTIFY",
            Self::Options => b"OPTIONS",
            Self::Prack => b"PRACK",
            Self::Publish => b"PUBLISH",
            Self::Refer => b"REFER",
            Self::Register => b"REGISTER",
            Self::Subscribe => b"SUBSCRIBE",
            Self::Update => b"UPDATE",
            Self::Other(text) => text,
        }
    }
}

impl fmt::Debug for Method<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Method<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_bytes().escape_ascii())
    }
}
