//! What the user asks for.

use std::path::PathBuf;

use anyhow::bail;
use clap::{Parser, ValueEnum};
use examples::child::Child;
use serde::Serialize;

use crate::survive::layout::Layout;

/// Lets phones talk through several servers, lets one role after the other die,
/// and measures at the phones what became of their calls.
#[derive(Debug, Parser)]
#[command(name = "survive")]
pub(crate) struct Args {
    /// The role that dies; without it every role whose survival is built, in turn.
    #[arg(long, value_enum)]
    kill: Option<Role>,
    /// How the roles are spread over servers.
    #[arg(long, value_enum, default_value_t = Layout::Four)]
    pub(crate) layout: Layout,
    /// How it dies.
    #[arg(long, value_enum, default_value_t = How::Kill)]
    pub(crate) how: How,
    /// How many calls there are.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=5000))]
    pub(crate) calls: u32,
    /// How many times each role dies.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) kills: u32,
    /// Decides the phones' tags, branches and jitter.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Prints one JSON object on standard output, and the account on standard error.
    #[arg(long)]
    pub(crate) json: bool,
    /// Kills nothing: so many busy processes for a minute must move no call.
    #[arg(long, value_name = "N", conflicts_with = "kill")]
    pub(crate) hogs: Option<u32>,
    /// Gives no process a real-time class, so that silence is judged the slower way.
    #[arg(long)]
    pub(crate) no_realtime: bool,
    /// Uses `holdline-rm` and `holdline-mediagate` from this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) bin_dir: Option<PathBuf>,
    /// Makes every span N times as wide: limits, spaces between new calls, how long is watched.
    /// For machines with other work. What must be kept, and the messages and packets
    /// that may be seen or lost, stay as they are; but a measure in which only the latter
    /// and times were missed is repeated if the phones themselves were late.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10))]
    pub(crate) slack: u32,
    /// Prints every SIP message that phones saw in an outage.
    #[arg(long)]
    pub(crate) ladder: bool,
    #[command(subcommand)]
    pub(crate) child: Option<Child>,
}

/// What can die.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// The media gateway that carries the calls.
    Mediagate,
    /// The media gateway controller that leads.
    Controller,
    /// The gate that the phones know.
    Gate,
    /// The back-to-back user agent that owns the calls.
    B2b,
}

/// How a role dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum How {
    /// SIGKILL: the kernel tells everybody at once.
    Kill,
    /// SIGSTOP: the kernel goes on answering for it.
    Stop,
    /// Silence both ways, as when a cable is pulled.
    Cut,
}

impl Role {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Mediagate => "mediagate",
            Self::Controller => "controller",
            Self::Gate => "gate",
            Self::B2b => "b2b",
        }
    }

    /// Returns whether calls are built to survive its death.
    fn is_survivable(self) -> bool {
        match self {
            Self::Mediagate | Self::Controller | Self::B2b => true,
            Self::Gate => false,
        }
    }
}

impl How {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Stop => "stop",
            Self::Cut => "cut",
        }
    }
}

impl Args {
    /// Returns whether everything is killed at once and started again.
    pub(crate) fn restarts_everything(&self) -> bool {
        self.layout == Layout::One && self.kill.is_none() && self.hogs.is_none()
    }

    /// Returns the roles that die, in order.
    pub(crate) fn roles(&self) -> anyhow::Result<Vec<Role>> {
        match self.kill {
            Some(role) if role.is_survivable() => Ok(vec![role]),
            Some(role) => bail!(
                "calls do not survive the death of a {} yet: that is not built. \
                 --kill mediagate, --kill controller and --kill b2b are",
                role.name()
            ),
            None if self.hogs.is_some() => Ok(Vec::new()),
            None => Ok(Role::value_variants()
                .iter()
                .copied()
                .filter(|role| role.is_survivable())
                .collect()),
        }
    }
}
