//! What the machines ask for, to where it is taken in.

use std::time::Instant;

use b2bua::admission::Ask;
use b2bua::frame::{SipIn, SipOut};
use b2bua::gate::{self, Gate};
use driver::{Class, ConnectionId, Output, SocketId, StopReason};
use failover::controller::{self, Controller, Here};
use failover::{CallId, NodeId, verdicts};

use super::Rm;
use crate::b2b_role::Wish;
use crate::frames::{Frame, send};
use crate::membership::Membership;

impl Rm {
    /// Carries every output to where it is taken in, until nothing moves any more.
    pub(super) fn settle(&mut self, now: Instant) {
        loop {
            let mut busy = self.drain_controller(now);
            busy |= self.drain_ownership(now);
            if let Some(role) = &mut self.b2b {
                busy |= role.drain(now, &self.beats, &mut self.outputs);
            }
            if let (Some(membership), Some(role)) = (&mut self.membership, &mut self.b2b) {
                if role.has_restored() {
                    membership.audit(now);
                }
                busy |= membership.drain(now, role, &mut self.outputs);
            }
            while let Some(wish) = self.b2b.as_mut().and_then(|role| role.wishes.pop_front()) {
                busy = true;
                self.grant(now, wish);
            }
            busy |= self.drain_gate(now);
            if !busy {
                break;
            }
        }
        let has_gate = self.gate.is_some();
        if self.draining
            && !self.stopped
            && self.b2b.as_mut().is_none_or(|role| role.is_drained(now, has_gate))
            && self.membership.as_ref().is_none_or(Membership::may_leave)
        {
            self.stopped = true;
            self.outputs.push_back(Output::Stop(StopReason::Drained));
        }
    }

    fn grant(&mut self, now: Instant, wish: Wish) {
        match wish {
            Wish::Sip(message) => self.sip_to_gate(now, message),
            Wish::PassOn(frame) => self.sip_to_owner(&frame),
            Wish::Admit(call, ask) => self.admit(now, call, &ask),
            Wish::Released(call) => {
                if let Some(membership) = &mut self.membership {
                    membership.release(now, call);
                }
            }
            Wish::Introduce(introduce) => {
                if let Some(controller) = &mut self.controller {
                    controller.handle_input(now, controller::Input::Introduced(introduce));
                }
            }
            Wish::Ask(ask) => {
                if let Some(controller) = &mut self.controller {
                    controller.handle_input(now, controller::Input::Asked { b2b: self.id, ask });
                }
            }
        }
    }

    fn admit(&mut self, now: Instant, call: CallId, ask: &Ask) {
        let (Some(membership), Some(role)) = (&mut self.membership, &mut self.b2b) else { return };
        if let Some(answer) = membership.admit(now, call, ask) {
            role.b2b.handle_input(now, answer);
        }
    }

    /// Hands a message to the gate of its flow, through another gate if that one is out of reach.
    fn sip_to_gate(&mut self, now: Instant, frame: SipOut) {
        let gate = frame.flow.gate;
        if gate == self.id {
            if let Some(gate) = &mut self.gate {
                gate.handle_input(now, gate::Input::Sip { from: self.id, frame });
            }
        } else if let Some(next) = self.gate_towards(now, gate) {
            self.outputs.push_back(sip_out(next, &frame));
        }
    }

    /// Returns the gate itself or, while it does not answer, another that does and can pass on.
    fn gate_towards(&self, now: Instant, gate: NodeId) -> Option<NodeId> {
        let ownership = self.b2b.as_ref().map(|role| &role.ownership);
        let answers = |id: &NodeId| ownership.is_some_and(|ownership| ownership.hears_us(now, *id));
        let direct = self.gates_up.get(&gate);
        let way = self.b2b.as_ref().and_then(|role| role.way_to(now, gate));
        direct
            .filter(|id| answers(id))
            .or_else(|| self.gates_up.get(&way?).filter(|id| answers(id)))
            .or_else(|| self.gates_up.iter().find(|id| answers(id)))
            .or(direct)
            .or_else(|| self.gates_up.first())
            .copied()
    }

    /// Hands a message to the b2b that owns its slot, if that can be reached.
    fn sip_to_owner(&mut self, frame: &SipIn) {
        let Some(role) = &self.b2b else { return };
        let owner = role.ownership.map().get(frame.slot).map(|reign| reign.owner);
        if let Some(owner) = owner.filter(|owner| *owner != self.id) {
            self.outputs.push_back(sip_in(owner, frame));
        }
    }

    fn drain_gate(&mut self, now: Instant) -> bool {
        let mut busy = false;
        while let Some(output) = self.gate.as_mut().and_then(Gate::poll_output) {
            busy = true;
            match output {
                gate::Output::Datagram { listener, to, bytes } => {
                    let socket = SocketId(u32::from(listener));
                    self.outputs.push_back(Output::Datagram { socket, to, bytes });
                }
                gate::Output::Stream { listener, connection, to, bytes } => {
                    let socket = SocketId(u32::from(listener));
                    let over = (connection != 0).then_some(ConnectionId(connection));
                    self.outputs.push_back(Output::Stream { socket, over, to, bytes });
                }
                gate::Output::Sip { to, frame } if to == self.id => {
                    if let Some(role) = &mut self.b2b {
                        role.sip(now, frame);
                    }
                }
                gate::Output::Sip { to, frame } => self.outputs.push_back(sip_in(to, &frame)),
                gate::Output::Relay { gate, frame } => {
                    self.outputs.push_back(sip_out(gate, &frame));
                }
            }
        }
        busy
    }

    fn drain_controller(&mut self, now: Instant) -> bool {
        let mut busy = false;
        while let Some(output) = self.controller.as_mut().and_then(Controller::poll_output) {
            busy = true;
            match output {
                controller::Output::Hear { gateway, .. } => {
                    self.beats.ask(gateway, &mut self.outputs);
                }
                controller::Output::Verdict { b2b, verdict } => {
                    let input = verdicts::Input::Verdict(self.id, verdict);
                    self.tell_b2b(now, b2b, input, &verdict);
                }
                controller::Output::Publish { b2b, gateways } => {
                    let input = verdicts::Input::Gateways(self.id, gateways.clone());
                    self.tell_b2b(now, b2b, input, &gateways);
                }
                controller::Output::Here { b2b } => {
                    self.tell_b2b(now, b2b, verdicts::Input::Here(self.id), &Here);
                }
            }
        }
        busy
    }

    fn tell_b2b<F: Frame>(&mut self, now: Instant, b2b: NodeId, input: verdicts::Input, frame: &F) {
        if b2b != self.id {
            self.outputs.push_back(send(driver::NodeId(b2b.0), Class::Control, frame));
        } else if let Some(role) = &mut self.b2b {
            role.verdicts.handle_input(now, input);
        }
    }
}

fn sip_in(to: NodeId, frame: &SipIn) -> Output {
    let (peer, payload) = (driver::NodeId(to.0), frame.encode());
    Output::Frame { peer, class: Class::Calls, kind: SipIn::KIND, payload }
}

fn sip_out(gate: NodeId, frame: &SipOut) -> Output {
    let (peer, payload) = (driver::NodeId(gate.0), frame.encode());
    Output::Frame { peer, class: Class::Calls, kind: SipOut::KIND, payload }
}
