#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod lex;
mod method;
mod names;
mod params;
pub mod uri;

pub use lex::{Elements, unfold, unquote};
pub use method::Method;
pub use names::Name;
pub use params::{Malformed, Param, Params, ParamsIter};
pub use uri::{Host, Scheme, Uri};
