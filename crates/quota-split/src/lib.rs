#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod divider;
mod division;
mod document;
pub mod handover;
mod ledger;
mod matcher;
mod method;
mod numbers;
mod plan;
mod policy;
mod tree;
mod weights;

pub use divider::{Divider, ROWS_MAX};
pub use division::{DivideError, Division, Segment, SegmentId, divide};
pub use document::{Document, Limited};
pub use ledger::{Admission, Call, CallId, Counter, Direction, Drift, Full, Ledger, Refusal, View};
pub use matcher::{Matched, Matcher, MatcherError, Sign, Signs, Unmatched};
pub use method::{Method, split, spread_key};
pub use numbers::{NUMBER_LEN_MAX, Numbers, NumbersError};
pub use plan::{Part, Recipe, Sight};
pub use policy::{Answer, NumberRule, Policies, Policy, PolicyError, Violation};
pub use tree::{
    DEPTH_MAX, Kind, Lending, Limits, NODES_MAX, Node, NodeId, Partition, Tree, TreeError,
};
pub use weights::{Weights, WeightsError};
