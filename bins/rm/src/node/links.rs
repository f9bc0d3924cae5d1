//! Who can be reached: a link that comes or goes tells the roles that talk over it.

use std::time::Instant;

use b2bua::gate;
use driver::Class;
use failover::{Boot, NodeId, controller, verdicts};

use super::Rm;
use crate::config::PeerRoles;
use crate::frames::{GateHello, send};

impl Rm {
    /// A link to this boot of `peer` came up, or one to it went down.
    pub(super) fn link(&mut self, now: Instant, peer: NodeId, class: Class, boot: Option<Boot>) {
        let Some(roles) = self.peers.get(&peer).map(|peer| peer.roles) else { return };
        let up = boot.is_some();
        if class == Class::Control
            && let Some(membership) = &mut self.membership
        {
            membership.link(now, peer, up);
        }
        if roles == PeerRoles::default() {
            // Of another segment: it takes no part in what follows.
            return;
        }
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
                self.segment_link(now, peer, boot);
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
            Class::Bulk => {
                if let Some(role) = self.b2b.as_mut().filter(|_| roles.b2b) {
                    role.bulk_link(now, peer, up, &mut self.outputs);
                }
            }
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
        // One that comes says where phones reach it, and is up then.
        if roles.gate && !up {
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
