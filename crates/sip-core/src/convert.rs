//! To and from the types of other crates. Nothing is lost on the way: what the
//! other side cannot hold is an error that names it.

#[cfg(feature = "rsip")]
mod rsip;
#[cfg(feature = "sdp-rs")]
mod sdp_rs;

#[cfg(feature = "rsip")]
pub use rsip::NotRepresentable;
#[cfg(feature = "sdp-rs")]
pub use sdp_rs::{LineNotRepresentable, from_sdp_rs};
