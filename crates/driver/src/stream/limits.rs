//! What peers may do with connections.

use std::time::Duration;

use sip_core::framer;

/// What peers may do with the connections of one listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// Connections at one time that peers made, and as many that were made to peers. Fewer if the
    /// process may not have so many files, which all listeners share.
    pub connections_max: usize,
    /// Connections at one time that one source made, and as many that were made to it: an IPv4
    /// address, or a network of 64 bits for IPv6. A source's next one ends its longest silent one, or
    /// first one that has carried no message.
    pub per_source_max: usize,
    /// Bytes of a message's start line and headers, and as many of its body.
    pub message_len_max: usize,
    /// From the first byte of a message to its last. A connection that was made to us has to say
    /// something within that time and a message within 32 s or, if longer, that time; and what is sent
    /// has to be acknowledged by the peer's host.
    pub message_time_max: Duration,
    /// How long a connection may carry nothing in either direction.
    pub idle_max: Duration,
    /// Bytes that may wait for a peer that does not read them; one message may, however long.
    pub unsent_len_max: usize,
    /// How long making a connection may take.
    pub connect_time_max: Duration,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            per_source_max: 256,
            message_len_max: 65_535,
            message_time_max: Duration::from_secs(10),
            // Longer than the longest registration of a phone that sends no keep-alive.
            idle_max: Duration::from_secs(4000),
            unsent_len_max: 256 * 1024,
            connect_time_max: Duration::from_secs(4),
        }
    }
}

impl StreamLimits {
    /// How messages are cut out of a stream.
    pub(crate) fn framer(&self) -> framer::Config {
        framer::Config {
            head_len_max: self.message_len_max,
            headers_max: HEADERS_MAX,
            body_len_max: self.message_len_max,
            message_time_max: self.message_time_max,
        }
    }
}

/// Header lines of a message.
const HEADERS_MAX: usize = 256;
