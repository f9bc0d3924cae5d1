#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod divider;
mod division;
mod ledger;
mod method;
mod tree;
mod weights;

pub use divider::{Divider, ROWS_MAX};
pub use division::{DivideError, Division, Segment, SegmentId, divide};
pub use ledger::{Admission, Call, CallId, Counter, Direction, Drift, Full, Ledger, Refusal, View};
pub use method::{Method, split, spread_key};
pub use tree::{DEPTH_MAX, Kind, Limits, NODES_MAX, Node, NodeId, Tree, TreeError};
pub use weights::{Weights, WeightsError};
