//! What the examples share; they themselves are in the folder above.
//!
//! They start real processes, of themselves or of installed programs, look at these from outside, and
//! tell what they saw.

pub mod account;
pub mod check;
pub mod child;
pub mod figures;
pub mod process;
pub mod sockets;
