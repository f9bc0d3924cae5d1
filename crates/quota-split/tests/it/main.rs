//! What users see: the document's tables, and laws that hold for every weight and limit.
#![expect(clippy::unwrap_used, reason = "helpers of tests unwrap too")]

mod counterexamples;
mod divisions;
mod laws;
mod reference;
mod vectors;
