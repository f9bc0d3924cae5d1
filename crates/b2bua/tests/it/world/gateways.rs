//! The mediagates of a world, and who leases their ports.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use b2bua::{Input, Latched, MediaCall, MediaCommand, MediaEvent, NotPlaced, Place, Wanted};
use failover::{Boot, CallId, NodeId};

use super::World;

pub(crate) struct Gateway {
    pub(crate) boot: Boot,
    pub(crate) ip: IpAddr,
    pub(crate) alive: bool,
    pub(crate) full: bool,
    next_port: u16,
    pub(crate) open: BTreeMap<CallId, MediaCall>,
    pub(crate) taken: BTreeSet<u16>,
}

impl World {
    pub(crate) fn add_gateway(&mut self, id: u16) {
        let gateway = Gateway {
            boot: Boot(u64::from(id)),
            ip: format!("203.0.113.{id}").parse().unwrap(),
            alive: true,
            full: false,
            next_port: 20_000,
            open: BTreeMap::new(),
            taken: BTreeSet::new(),
        };
        self.gateways.insert(NodeId(id), gateway);
    }

    /// Mediagates report the phones that they hear.
    pub(super) fn hear_media(&mut self) {
        let mut heard = Vec::new();
        for (&gateway, it) in self.gateways.iter().filter(|(_, it)| it.alive) {
            for (&call, open) in &it.open {
                for (leg, media) in open.legs.iter().enumerate() {
                    let key = (gateway, it.boot, call, leg);
                    let Some(addr) = media.remote.filter(|_| !media.held) else { continue };
                    if !self.silent_legs.contains(&leg) && self.heard.insert(key) {
                        let latched = Latched { addr, ssrc: 7, seq: 1 };
                        let event = MediaEvent::Latched { call, epoch: open.epoch, leg, latched };
                        heard.push(Input::Media { gateway, boot: it.boot, event });
                    }
                }
            }
        }
        heard.into_iter().for_each(|event| self.input(event));
    }

    pub(super) fn place(&mut self, call: CallId, wanted: Wanted) -> Input {
        let living: Vec<NodeId> = self
            .gateways
            .iter()
            .filter(|(_, gateway)| gateway.alive && !gateway.full)
            .map(|(id, _)| *id)
            .collect();
        let (holder, standby) = match wanted {
            Wanted::Both => (living.first().copied(), living.get(1).copied()),
            Wanted::Standby { holder } => (None, living.into_iter().find(|id| *id != holder)),
        };
        if holder.is_none() && standby.is_none() {
            return Input::NotPlaced { call, why: NotPlaced::NoGateway };
        }
        let holder = holder.map(|id| self.take(id));
        let standby = standby.map(|id| self.take(id));
        Input::Placed { call, holder, standby }
    }

    fn take(&mut self, id: NodeId) -> Place {
        let gateway = self.gateways.get_mut(&id).unwrap();
        let ports = [gateway.next_port, gateway.next_port + 2];
        gateway.next_port += 4;
        gateway.taken.extend(ports);
        Place { gateway: id, boot: gateway.boot, address: gateway.ip, ports }
    }

    pub(super) fn command(&mut self, id: NodeId, boot: Boot, command: MediaCommand) {
        let gateway = self.gateways.get_mut(&id).unwrap();
        let (word, call) = match command {
            MediaCommand::Open(call) => ("open", call),
            MediaCommand::Update(call) => ("update", call),
            MediaCommand::Close { call, .. } => {
                self.log.push(format!("  g{id} close"));
                if gateway.boot == boot {
                    gateway.open.remove(&call);
                }
                return;
            }
        };
        let legs: Vec<String> = call
            .legs
            .iter()
            .map(|leg| {
                let remote = leg.remote.map_or_else(|| "?".to_owned(), |remote| remote.to_string());
                let held = if leg.held { " held" } else { "" };
                format!("{}->{remote}{held}", leg.port)
            })
            .collect();
        self.log.push(format!("  g{id} {word} {}", legs.join(" ")));
        if gateway.boot == boot && gateway.alive {
            for leg in &call.legs {
                let known = gateway.taken.contains(&leg.port);
                assert!(known || 1 < self.epoch, "{} is not taken", leg.port);
            }
            gateway.open.insert(call.call, *call);
        }
    }
}
