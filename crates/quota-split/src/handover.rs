//! Moving shares between segments so that their sum never passes the limit.
//!
//! Whoever loses shrinks first and says so; only what is known to be free is granted. No call is
//! ended for it. See the crate's README for the rules and what they cost.
//!
//! Words that are used throughout: a *counter* is one limit of calls by its number in a document, a
//! *column* one member's shares of all of them, a *seat* what the coordinator knows of one member, a
//! *place* a member's own number of a counter. A *cap* is what a member may carry now, its *target* what
//! it may grow to, and it *holds* its cap or its live calls, whichever is more.

mod bases;
mod coordinator;
mod member;
mod message;
mod pair;
#[cfg(test)]
mod tests;
mod timing;

pub use bases::Bases;
pub use coordinator::{Alarm, Coordinator, CoordinatorInput, CoordinatorOutput};
use member::News;
pub use member::{Member, MemberChange, MemberInput, MemberOutput, MemberState, Verdict};
pub use message::{
    Ask, Column, ColumnCell, ColumnPart, Epoch, Grow, Held, Prepare, Promise, Recall, Report,
    Stamp, ToCoordinator, ToMember,
};
pub use pair::{
    Denial, Denied, Granted, Pair, PairConfig, PairInput, PairMessage, PairOutput, Role, Told,
};
pub use timing::Timing;

/// Digests a column, so that two nodes can tell whether they computed the same.
fn column_digest(targets: impl Iterator<Item = u32>) -> u64 {
    use std::hash::Hasher as _;
    let mut hasher = siphasher::sip::SipHasher13::new();
    for target in targets {
        hasher.write(&target.to_le_bytes());
    }
    hasher.finish()
}
