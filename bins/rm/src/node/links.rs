//! Who can be reached: a link that comes or goes tells the roles that talk over it.

use std::time::Instant;

use b2bua::gate;
use driver::Class;
use failover::{NodeId, controller, verdicts};

use super::Rm;
use crate::config::PeerRoles;
use crate::frames::{GateHello, send};

impl Rm {
    /// A link to `peer` came up or went down.
    pub(super) fn link(&mut self, now: Instant, peer: NodeId, class: Class, up: bool) {
        let Some(roles) = self.peers.get(&peer).copied() else { return };
        match class {
            Class::Calls => {
                if roles.b2b {
                    self.gate_to_b2b(now, peer, up);
                }
                if roles.gate {
                    self.any_to_gate(now, peer, up);
                }
                self.b2b_to_others(now, peer, roles, up);
                if roles.mediagate
                    && !up
                    && let Some(controller) = &mut self.controller
                {
                    controller.handle_input(now, controller::Input::LinkLost(peer));
                }
            }
            Class::Control => {
                if roles.b2b
                    && let Some(controller) = &mut self.controller
                {
                    let input =
                        if up { controller::Input::B2bUp } else { controller::Input::B2bDown };
                    controller.handle_input(now, input(peer));
                }
                if roles.controller
                    && let Some(role) = &mut self.b2b
                {
                    if up {
                        role.controller_up(now, peer, &mut self.outputs);
                    } else {
                        role.controller_down(now, peer);
                    }
                }
            }
            Class::Bulk => {}
        }
    }

    fn gate_to_b2b(&mut self, now: Instant, b2b: NodeId, up: bool) {
        let Some(gate) = &mut self.gate else { return };
        if up {
            let listeners = self.listeners.iter();
            let listeners = listeners.map(|one| (one.transport, one.advertise)).collect();
            let hello = GateHello { boot: self.boot.0, listeners };
            self.outputs.push_back(send(driver::NodeId(b2b.0), Class::Calls, &hello));
            gate.handle_input(now, gate::Input::B2bUp(b2b));
        } else {
            gate.handle_input(now, gate::Input::B2bDown(b2b));
        }
    }

    fn any_to_gate(&mut self, now: Instant, peer: NodeId, up: bool) {
        let input = if up {
            self.gates_up.insert(peer);
            gate::Input::GateUp(peer)
        } else {
            self.gates_up.remove(&peer);
            gate::Input::GateDown(peer)
        };
        if let Some(gate) = &mut self.gate {
            gate.handle_input(now, input);
        }
    }

    fn b2b_to_others(&mut self, now: Instant, peer: NodeId, roles: PeerRoles, up: bool) {
        let Some(role) = &mut self.b2b else { return };
        if roles.gate && up {
            // It says where phones reach it, and is up then.
            self.outputs.push_back(send(driver::NodeId(peer.0), Class::Calls, &self.slots));
        } else if roles.gate {
            role.b2b.handle_input(now, b2bua::Input::GateDown { gate: peer });
        }
        if roles.mediagate && up {
            role.mediagates.link_up(peer);
        } else if roles.mediagate {
            role.mediagates.link_down(now, peer);
            role.verdicts.handle_input(now, verdicts::Input::LinkDown(peer));
        }
    }
}
