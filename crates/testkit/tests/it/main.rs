//! Phones that call each other without a server between them.
#![allow(clippy::disallowed_methods, reason = "any first instant does")]

mod calls;
mod manners;
mod run;
mod simulated;
mod studio;
