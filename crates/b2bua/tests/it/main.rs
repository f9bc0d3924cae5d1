//! The call machine as phones, gates and mediagates see it.

mod ladders;
mod phone;
mod script;
mod world;
