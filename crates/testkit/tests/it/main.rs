//! Phones that call each other without a server between them.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests: any first instant does, real sockets take real time, a failure may panic"
)]

mod calls;
mod faults;
mod manners;
mod run;
mod simulated;
mod studio;
