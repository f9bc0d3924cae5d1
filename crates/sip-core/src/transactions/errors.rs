//! What the owner can ask wrongly.

/// Why [`Transactions::request`](super::Transactions::request) sent nothing. The caller is at fault, except
/// for `Full`. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The message is a response, or an ACK, which is no transaction.
    #[error("neither a response nor an ACK starts a transaction")]
    NotARequest,
    /// The topmost Via has no branch that starts with the magic cookie.
    #[error("the topmost via has no rfc 3261 branch")]
    NoBranch,
    /// A transaction with this branch and method is alive.
    #[error("the branch is in use")]
    BranchInUse,
    /// The table is full.
    #[error("the transaction table is full")]
    Full,
}

/// Why [`Transactions::respond`](super::Transactions::respond) sent nothing. The caller is at fault, except
/// for `Ended`. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RespondError {
    /// The transaction ended, or the key is of another table. A request other
    /// than INVITE ends by itself after 64 T1, when no answer can reach its
    /// client any more.
    #[error("the transaction has ended")]
    Ended,
    /// A final answer was sent before.
    #[error("the request has its final answer")]
    Answered,
    /// The message is a request.
    #[error("a request is no answer")]
    NotAResponse,
    /// Provisional answers to requests other than INVITE are forbidden by
    /// RFC 4320 §4.1, but for the 100 that the machine sends by itself.
    #[error("only an invite has provisional answers")]
    Provisional,
    /// A 408 to a request other than INVITE comes too late by definition and
    /// is forbidden by RFC 4320 §4.2.
    #[error("a request other than invite is never answered with 408")]
    Timeout,
}

/// Why [`Transactions::cancel`](super::Transactions::cancel) did nothing. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CancelError {
    /// The transaction ended, or its INVITE is not whole (its verdict was not
    /// to process it), so that no CANCEL can be made of it.
    #[error("the transaction has ended")]
    Ended,
    /// Only an INVITE can be cancelled.
    #[error("only an invite can be cancelled")]
    NotInvite,
    /// The final response is here. After a 2xx the owner sends ACK and BYE.
    #[error("the invite has its final response")]
    Answered,
    /// A CANCEL of this INVITE is on its way.
    #[error("the invite is being cancelled")]
    Cancelling,
    /// The table is full.
    #[error("the transaction table is full")]
    Full,
}
