//! How a phone behaves when nobody tells it what to do, well or badly.

use std::time::Duration;

/// How a phone treats what comes to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manners {
    /// What it does with a new call.
    pub incoming: Incoming,
    /// What it does with an INVITE inside a call.
    pub reinvite: Reinvite,
    /// What it does with a description whose o= version is that of the one
    /// before. RFC 3264 §8: such a description is the one before.
    pub same_version: SameVersion,
    /// Whether it acknowledges a 2xx to its INVITE.
    pub acks: bool,
    /// Whether it answers a BYE.
    pub answers_bye: bool,
    /// What it answers to a request inside a call that it has lost; `None`: nothing at all.
    pub lost_call: Option<u16>,
    /// From which socket its answers go out.
    pub answers_from: AnswersFrom,
    /// From which port its RTP goes out once the call was re-INVITEd.
    pub speaks_from: SpeaksFrom,
    /// How many of the next INVITEs inside a call cross one of its own: it has
    /// just sent a hold, or a resume if it holds, and answers 491.
    pub glares: u32,
}

impl Default for Manners {
    /// Rings at once, answers after 100 ms, accepts each re-INVITE at once.
    fn default() -> Self {
        Self {
            incoming: Incoming::Answer {
                ring_after: Some(Duration::ZERO),
                answer_after: Duration::from_millis(100),
            },
            reinvite: Reinvite::Accept { after: Duration::ZERO },
            same_version: SameVersion::Ignored,
            acks: true,
            answers_bye: true,
            lost_call: Some(481),
            answers_from: AnswersFrom::OwnSocket,
            speaks_from: SpeaksFrom::OwnPort,
            glares: 0,
        }
    }
}

/// What a phone does with a new call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// Rings, then answers.
    Answer {
        /// When its 180 goes out; `None` sends none.
        ring_after: Option<Duration>,
        /// When its 200 goes out.
        answer_after: Duration,
    },
    /// Sends a 183 with a description and RTP, then answers.
    EarlyMedia {
        /// When its 183 goes out.
        progress_after: Duration,
        /// When its 200 goes out.
        answer_after: Duration,
    },
    /// Rings until told to answer or to refuse, or until the caller gives up.
    Ring,
    /// Refuses.
    Refuse {
        /// The final status, 300 to 699.
        status: u16,
        /// When it goes out.
        after: Duration,
    },
    /// Says nothing at all.
    Ignore,
}

/// What a phone does with an INVITE inside a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reinvite {
    /// Accepts it.
    Accept {
        /// When its 200 goes out.
        after: Duration,
    },
    /// Refuses the next `times`, then accepts at once.
    Refuse {
        /// The final status, 300 to 699.
        status: u16,
        /// The Retry-After header, in seconds.
        retry_after: Option<u32>,
        /// When it goes out.
        after: Duration,
        /// How many are refused.
        times: u32,
    },
    /// Sends a 100 and nothing else to the next `times`, then accepts at once.
    Stall {
        /// How many get no final answer.
        times: u32,
    },
    /// Says nothing at all to the next `times`, then accepts at once.
    Ignore {
        /// How many are ignored.
        times: u32,
    },
}

/// What a phone does with a description of the same o= version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SameVersion {
    /// Takes it for the one before and keeps its media where they are.
    Ignored,
    /// Reads it nevertheless, as many phones do.
    Followed,
}

/// From which socket a phone's answers go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswersFrom {
    /// The one that the request came to, as RFC 3581 wants it.
    OwnSocket,
    /// Another one.
    OtherSocket,
}

/// From which port a phone's RTP goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpeaksFrom {
    /// The one in its description, as RFC 4961 wants it.
    OwnPort,
    /// Another one, after the first re-INVITE of a call: a rebound NAT.
    OtherPort,
}
