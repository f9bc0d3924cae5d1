//! What users of the crate see.

mod checks;
mod conversions;
mod corpus;
mod differential;
mod examples;
mod hard;
mod ladders;
mod losses;
mod properties;
mod rfc4475;
mod rfc5118;
mod sample;
mod views;
mod wild;
