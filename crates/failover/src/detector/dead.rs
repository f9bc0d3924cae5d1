//! Deaths, and how they are known.

use serde::{Deserialize, Serialize};

use crate::{Boot, NodeId};

/// One boot of a mediagate is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dead {
    /// The gateway.
    pub gateway: NodeId,
    /// The boot that died.
    pub boot: Boot,
    /// How that is known.
    pub cause: Cause,
}

/// How a death is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// A living host refused a datagram for it.
    Refused,
    /// A later boot of the same gateway was met.
    Restarted,
    /// A worker said nothing for too long.
    Silent {
        /// The worker.
        worker: u16,
        /// The last beat heard of it; tells a listener elsewhere how old the verdict is.
        seq: u32,
    },
}

impl Cause {
    /// Returns whether the death cannot be doubted.
    pub fn is_proof(self) -> bool {
        match self {
            Self::Refused | Self::Restarted => true,
            Self::Silent { .. } => false,
        }
    }
}
