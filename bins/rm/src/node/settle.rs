//! What the machines ask for, to where it is taken in.

use std::time::Instant;

use b2bua::frame::{SipIn, SipOut};
use b2bua::gate::{self, Gate};
use driver::{Class, Output, SocketId, StopReason};
use failover::controller::{self, Controller, Here};
use failover::{NodeId, verdicts};

use super::Rm;
use crate::b2b_role::Wish;
use crate::frames::{Frame, send};

impl Rm {
    /// Carries every output to where it is taken in, until nothing moves any more.
    pub(super) fn settle(&mut self, now: Instant) {
        loop {
            let mut busy = self.drain_controller(now);
            if let Some(role) = &mut self.b2b {
                busy |= role.drain(now, &self.beats, &mut self.outputs);
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
        let drained = self.b2b.as_ref().is_none_or(|role| role.b2b.is_drained());
        if self.draining && drained {
            self.draining = false;
            self.outputs.push_back(Output::Stop(StopReason::Drained));
        }
    }

    fn grant(&mut self, now: Instant, wish: Wish) {
        match wish {
            Wish::Sip(message) if message.flow.gate == self.id => {
                if let Some(gate) = &mut self.gate {
                    gate.handle_input(now, gate::Input::Sip { b2b: self.id, frame: message });
                }
            }
            Wish::Sip(message) => self.outputs.push_back(Output::Frame {
                peer: driver::NodeId(message.flow.gate.0),
                class: Class::Calls,
                kind: SipOut::KIND,
                payload: message.encode(),
            }),
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

    fn drain_gate(&mut self, now: Instant) -> bool {
        let mut busy = false;
        while let Some(output) = self.gate.as_mut().and_then(Gate::poll_output) {
            busy = true;
            match output {
                gate::Output::Datagram { listener, to, bytes } => {
                    let socket = SocketId(u32::from(listener));
                    self.outputs.push_back(Output::Datagram { socket, to, bytes });
                }
                gate::Output::Sip { b2b, frame } if b2b == self.id => {
                    if let Some(role) = &mut self.b2b {
                        role.b2b.handle_input(now, b2bua::Input::Sip(frame));
                    }
                }
                gate::Output::Sip { b2b, frame } => self.outputs.push_back(Output::Frame {
                    peer: driver::NodeId(b2b.0),
                    class: Class::Calls,
                    kind: SipIn::KIND,
                    payload: frame.encode(),
                }),
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
