#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod divider;
mod division;
mod method;
mod tree;
mod weights;

pub use divider::{Divider, ROWS_MAX};
pub use division::{DivideError, Division, Segment, SegmentId, divide};
pub use method::{Method, split, spread_key};
pub use tree::{DEPTH_MAX, Kind, Limits, NODES_MAX, Node, NodeId, Tree, TreeError};
pub use weights::{Weights, WeightsError};
