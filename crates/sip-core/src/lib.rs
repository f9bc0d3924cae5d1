#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod fields;
mod lex;
mod method;
mod name_addr;
mod names;
mod params;
pub mod uri;
mod via;

pub use fields::{CSeq, Reason, Refresher, Replaces, SessionExpires};
pub use lex::{Elements, unfold, unquote};
pub use method::Method;
pub use name_addr::NameAddr;
pub use names::Name;
pub use params::{Malformed, Param, Params, ParamsIter};
pub use uri::{Host, Scheme, Uri};
pub use via::Via;
