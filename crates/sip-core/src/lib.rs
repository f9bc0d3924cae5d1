#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod check;
#[cfg(any(feature = "rsip", feature = "sdp-rs"))]
mod convert;
mod defect;
pub mod dialog;
pub mod digest;
mod edit;
mod fields;
pub mod framer;
mod index;
mod lex;
mod line;
mod message;
mod method;
mod name_addr;
mod names;
mod params;
mod parse;
pub mod refer;
pub mod reliable;
pub mod sdp;
mod splice;
mod status;
pub mod transactions;
pub mod uri;
mod via;
mod views;
mod writer;

#[cfg(feature = "rsip")]
pub use convert::NotRepresentable;
#[cfg(feature = "sdp-rs")]
pub use convert::{LineNotRepresentable, from_sdp_rs};
pub use defect::{Defect, DefectKind, ParseError, ParseErrorKind, Verdict};
pub use edit::Edit;
pub use fields::{
    CSeq, Diversion, Event, Join, MediaRange, RAck, Reason, ReferTo, Refresher, Replaces,
    RetryAfter, SessionExpires, SubscriptionState,
};
pub use framer::Framer;
pub use lex::{Elements, unfold, unquote};
pub use line::Line;
pub use message::Message;
pub use method::Method;
pub use name_addr::NameAddr;
pub use names::Name;
pub use params::{Malformed, Param, Params, ParamsIter};
pub use parse::{HEAD_LEN_MAX, HEADERS_MAX};
pub use status::reason_phrase;
pub use uri::{Host, Scheme, Uri};
pub use via::Via;
pub use writer::Writer;

/// The golden ratio in 64 bits, which makes of one seed something unlike it.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
