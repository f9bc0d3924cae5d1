//! The 49 cases of RFC 4475, each with a message of our own that does the same.

mod invalid;
mod layers;
mod valid;
