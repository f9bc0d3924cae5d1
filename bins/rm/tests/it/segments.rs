//! Clusters of segments made of `Cluster` machines alone, in virtual time and over a bad network.
//!
//! `HOLDLINE_SEEDS=0..20000 cargo test -p rm --test it segments` runs more of them; a seed takes some 80 ms of
//! CPU.

mod faults;
mod frames;
mod halves;
mod joins;
mod judge;
mod leave;
mod lines;
mod long;
mod named;
mod seeds;
mod starts;
mod traffic;
mod weights;
mod world;
