//! What users see: the document's tables, and laws that hold for every weight and limit.
#![expect(clippy::unwrap_used, reason = "helpers of tests unwrap too")]

mod bases;
mod cluster;
mod counterexamples;
mod divisions;
mod extremes;
mod handovers;
mod laws;
mod lendings;
mod models;
mod reference;
mod vectors;
mod world;
