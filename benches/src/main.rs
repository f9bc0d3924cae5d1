//! Measures what the README claims, beside the programs it is compared with.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock and waits")]
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "figures of a benchmark are rounded when shown"
)]

mod admission;
mod allocations;
mod audio;
mod calls;
mod child;
mod counters;
mod dealer;
mod division;
mod forward;
mod lending;
mod ng;
mod ours;
mod overload;
mod peers;
mod procfs;
mod relay;
mod report;
mod sip_parse;
mod sip_transactions;
mod sipp;

use anyhow::Context as _;
use clap::Parser;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Measures what the README claims, beside the programs it is compared with.
#[derive(Debug, Parser)]
enum Args {
    /// Whole calls through `rm` and its gateway, and through Kamailio and rtpengine.
    Calls(calls::Args),
    /// Audio through our media gateway, rtpengine and a bare forwarder.
    Relay(relay::Args),
    /// Single messages through `sip-core`, rsip, rsipstack and ezk.
    SipParse(sip_parse::Args),
    /// Limits of many tenants divided among segments.
    Division(division::Args),
    /// Calls let in and ended among many tenants.
    Admission(admission::Args),
    /// Calls turned away under static shares, lent ones, and one counter for all.
    Lending(lending::Args),
    /// Calls through the transaction machines of `sip-core`.
    SipTransactions(sip_transactions::Args),
    /// Holds calls open at a media gateway; started by `relay`.
    #[command(hide = true)]
    Deal(dealer::Args),
    /// Gate, b2b and controller; started by `calls`.
    #[command(hide = true)]
    Rm(ours::Args),
    /// A media gateway; started by `relay` and `calls`.
    #[command(hide = true)]
    Mediagate(ours::Args),
    /// The bare forwarder; started by `relay`.
    #[command(hide = true)]
    Forward(forward::Args),
}

fn main() -> anyhow::Result<()> {
    match Args::parse() {
        Args::Calls(args) => calls::run(&args),
        Args::Relay(args) => relay::run(&args),
        Args::SipParse(args) => sip_parse::run(&args),
        Args::Division(args) => division::run(&args),
        Args::Admission(args) => admission::run(&args),
        Args::Lending(args) => lending::run(&args),
        Args::SipTransactions(args) => sip_transactions::run(&args),
        Args::Deal(args) => dealer::run(&args),
        Args::Rm(args) => rm::serve(&args.config),
        Args::Mediagate(args) => mediagate::serve(&args.config),
        Args::Forward(args) => forward::run(&args),
    }
}

/// Whose turn it is in a round: forth and back, so that a machine that slows down slows all alike.
fn turns(round: usize, count: usize) -> Vec<usize> {
    let mut turns: Vec<usize> = (0..count).collect();
    if round % 2 == 1 {
        turns.reverse();
    }
    turns
}

/// Allows this process as many open files as it may have at all.
fn raise_file_limit() -> anyhow::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).context("cannot raise the file limit")
}
