//! Many segments under one document: what is divided, and who divides it.

pub mod document;
pub mod documents;

pub use document::{ClusterDocument, SegmentPlan};
pub use documents::Documents;
