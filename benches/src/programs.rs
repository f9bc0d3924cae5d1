//! Our programs inside this one, so that one command measures them.

use std::net::Ipv4Addr;

use driver::NodeId;
use mediagate::{Config, Mediagate};

use crate::ours::GATEWAY;

/// Which gateway to be.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct MediagateArgs {
    /// Its address for everything.
    #[arg(long)]
    pub(crate) address: Ipv4Addr,
}

/// Runs a media gateway.
pub(crate) fn mediagate(args: &MediagateArgs) -> anyhow::Result<()> {
    let config = Config::new(NodeId(GATEWAY), args.address.into(), 7131, 7231);
    driver::logging(&config.log);
    driver::run(&config.run(), |start| Mediagate::new(&config, start))?;
    Ok(())
}
