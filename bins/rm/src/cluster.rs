//! Many segments under one document: what is divided, and who divides it.

pub mod document;

pub use document::{ClusterDocument, SegmentPlan};
