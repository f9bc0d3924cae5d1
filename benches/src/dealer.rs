//! A b2b that knows nothing but how to have calls' audio forwarded.
//!
//! Dials a media gateway, leases port numbers, opens its calls and holds them
//! until it is killed. It is a process of its own, as a b2b is.

use std::collections::VecDeque;
use std::io::Write as _;
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use driver::{
    Class, Dial, Input, LinksConfig, Metrics, Node, NodeId, Output, RunConfig, Security, StopReason,
};
use media::{Block, CallId, Failed, Frame, Lease, Leased, LegSpec, Open, Welcome};

use crate::forward::at;
use crate::ours::GATEWAY;

/// How long the gateway may still say that a call failed.
const PATIENCE: Duration = Duration::from_millis(500);

/// Which calls to open, and where.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the gateway listens for links.
    #[arg(long)]
    pub(crate) link: SocketAddrV4,
    /// Address of the first call's caller; each further call has ports 4 higher.
    #[arg(long)]
    pub(crate) caller: SocketAddrV4,
    /// Address of the first call's callee.
    #[arg(long)]
    pub(crate) callee: SocketAddrV4,
    /// Number of calls.
    #[arg(long)]
    pub(crate) calls: u16,
}

/// Opens the calls, prints the gateway's two ports of each, then `ready`.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let config = RunConfig {
        node: NodeId(1),
        role: "dealer".to_owned(),
        links: LinksConfig {
            listen: None,
            local: Some((*args.link.ip()).into()),
            dial: vec![Dial {
                peer: NodeId(GATEWAY),
                addr: args.link.into(),
                classes: vec![Class::Control, Class::Calls],
            }],
            peers: None,
            security: Security::Plaintext,
        },
        http: None,
        token: None,
        api: false,
        numbers: None,
        journal: None,
        realtime: false,
    };
    let dealer = Dealer { args: args.clone(), ready_at: None, outputs: VecDeque::new() };
    driver::run(&config, |_| dealer).context("the dealer ended")
}

struct Dealer {
    args: Args,
    ready_at: Option<Instant>,
    outputs: VecDeque<Output>,
}

impl Dealer {
    fn send<T: Frame>(&mut self, frame: &T) {
        self.outputs.push_back(Output::Frame {
            peer: NodeId(GATEWAY),
            class: Class::Calls,
            kind: T::KIND,
            payload: driver::codec::encode(frame),
        });
    }

    fn fail(&mut self, why: &str) {
        self.outputs.push_back(Output::Stop(StopReason::Failed(why.to_owned())));
    }

    fn frame(&mut self, now: Instant, kind: u16, payload: &Bytes) {
        if kind == Welcome::KIND {
            let legs = 2 * u32::from(self.args.calls);
            let blocks = legs.div_ceil(media::BLOCK_LEGS.into());
            self.send(&Lease { blocks: u16::try_from(blocks).unwrap_or(u16::MAX), standby: None });
        } else if kind == Leased::KIND && self.ready_at.is_none() {
            match driver::codec::decode::<Leased>(payload) {
                Ok(leased) => self.open(now, &leased.blocks),
                Err(_) => self.fail("the gateway's lease cannot be read"),
            }
        } else if kind == Failed::KIND {
            self.fail("the gateway could not open a call");
        }
    }

    fn open(&mut self, now: Instant, blocks: &[Block]) {
        let ports: Vec<u16> = blocks
            .iter()
            .flat_map(|block| (0..media::BLOCK_LEGS).map(|leg| block.first_port + 2 * leg))
            .collect();
        if ports.len() < 2 * usize::from(self.args.calls) {
            return self.fail("the gateway has too few ports");
        }
        for (call, pair) in (0..self.args.calls).zip(ports.chunks_exact(2)) {
            let phones = [self.args.caller, self.args.callee];
            let leg = |index: usize| LegSpec {
                port: pair[index],
                remote: Some(at(phones[index], call, 0).into()),
                remote_rtcp: None,
                payload_types: vec![0],
                held: false,
                nat: false,
                latched: None,
            };
            let legs = [leg(0), leg(1)];
            self.send(&Open { call: CallId(u64::from(call) + 1), epoch: 1, legs });
            // Nobody reads any more when the bench is gone, which ends this process soon.
            let _ = writeln!(std::io::stdout(), "{} {}", pair[0], pair[1]);
        }
        self.ready_at = Some(now + PATIENCE);
    }
}

impl Node for Dealer {
    fn handle_input(&mut self, now: Instant, input: Input) {
        match input {
            Input::Frame { kind, payload, .. } => self.frame(now, kind, &payload),
            Input::LinkDown { .. } => self.fail("the gateway ended the link"),
            Input::Drain => self.outputs.push_back(Output::Stop(StopReason::Drained)),
            Input::Bound { .. }
            | Input::BindFailed { .. }
            | Input::Datagram { .. }
            | Input::Refused { .. }
            | Input::LinkUp { .. }
            | Input::Congested { .. }
            | Input::Request { .. }
            | Input::Written { .. }
            | Input::Unwritten { .. }
            | Input::Woken
            | Input::Message { .. }
            | Input::Unsent { .. }
            | Input::Reload => {}
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.ready_at.is_some_and(|at| at <= now) {
            self.ready_at = None;
            let _ = writeln!(std::io::stdout(), "ready");
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.ready_at
    }

    fn metrics(&self, _: &mut Metrics) {}
}
