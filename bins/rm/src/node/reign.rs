//! Who owns which slots: votes, pulses and maps between b2bs and those who vote.

use std::net::SocketAddr;
use std::time::Instant;

use b2bua::gate;
use bytes::Bytes;
use driver::{Class, SocketId};
use failover::ownership::{self, Output};
use failover::pulse::{Datagram, Pulse, PulseBack};
use failover::voter::{Bid, Vote, Voter};
use failover::{Boot, Epoch, NodeId, SlotMap, SlotSet};

use super::Rm;
use crate::frames::{Frame, send};

impl Rm {
    /// Asks for the lease anew if that is due: it may not wait behind work.
    pub(super) fn keep_lease(&mut self, now: Instant) {
        let Some(role) = &mut self.b2b else { return };
        if role.ownership.poll_timeout().is_some_and(|at| at <= now) {
            role.ownership.handle_timeout(now);
            self.drain_ownership(now);
        }
    }

    /// A datagram came to one of the sockets for pulses.
    pub(super) fn pulse(
        &mut self,
        now: Instant,
        socket: SocketId,
        from: SocketAddr,
        bytes: &Bytes,
    ) -> Option<()> {
        match self.pulses.read(socket, bytes)? {
            Datagram::Pulse(pulse) => {
                let is_known = self.peers.get(&pulse.node).is_some_and(|peer| {
                    peer.roles.b2b && peer.links.is_none_or(|links| links.ip() == from.ip())
                });
                if !is_known {
                    return None;
                }
                let back = self.answer(now, &pulse);
                self.pulses.answer(from, back, &mut self.outputs);
                self.tell_ownership(now, ownership::Input::Pulse(pulse));
            }
            Datagram::Back(back) => self.tell_ownership(now, ownership::Input::Back(back)),
        }
        Some(())
    }

    /// The host of a node lives, and nobody listens there.
    pub(super) fn pulse_refused(&mut self, now: Instant, peer: NodeId) {
        self.tell_ownership(now, ownership::Input::Refused(peer));
    }

    /// The control link to a node came up or went down.
    pub(super) fn segment_link(&mut self, now: Instant, peer: NodeId, boot: Option<Boot>) {
        if boot.is_some()
            && let Some(voter) = self.voter()
        {
            let map = voter.map().clone();
            self.outputs.push_back(send(driver::NodeId(peer.0), Class::Control, &map));
        }
        let input = match boot {
            Some(boot) => ownership::Input::LinkUp { peer, boot },
            None => ownership::Input::LinkDown(peer),
        };
        self.tell_ownership(now, input);
    }

    /// A node wants slots.
    pub(super) fn bid_frame(&mut self, now: Instant, peer: NodeId, payload: &[u8]) -> Option<()> {
        let bid: Bid = driver::codec::decode(payload).ok()?;
        if bid.node != peer {
            return None;
        }
        let vote = self.voter()?.bid(now, &bid);
        self.outputs.push_back(send(driver::NodeId(peer.0), Class::Control, &vote));
        Some(())
    }

    /// A voter answered.
    pub(super) fn vote_frame(&mut self, now: Instant, from: NodeId, payload: &[u8]) -> Option<()> {
        let vote: Vote = driver::codec::decode(payload).ok()?;
        self.b2b.as_ref()?;
        self.tell_ownership(now, ownership::Input::Vote { from, vote });
        Some(())
    }

    /// A node says who owns what.
    pub(super) fn map_frame(&mut self, now: Instant, from: NodeId, payload: &[u8]) -> Option<()> {
        let map: SlotMap = driver::codec::decode(payload).ok()?;
        self.name(now, from, &map);
        self.tell_ownership(now, ownership::Input::Map { from, map });
        if let Some(role) = &mut self.b2b {
            role.forget_left();
        }
        Some(())
    }

    /// Carries what the ownership asks for to where it is taken in; returns whether there was anything.
    pub(super) fn drain_ownership(&mut self, now: Instant) -> bool {
        let mut busy = false;
        while let Some(output) = self.b2b.as_mut().and_then(|role| role.ownership.poll_output()) {
            busy = true;
            match output {
                Output::Pulse { to, pulse } if to == self.id => {
                    let back = self.answer(now, &pulse);
                    self.tell_ownership(now, ownership::Input::Back(back));
                }
                Output::Pulse { to, pulse } => self.pulses.send(to, &pulse, &mut self.outputs),
                Output::Bid { to, bid } if to == self.id => {
                    if let Some(vote) = self.voter().map(|voter| voter.bid(now, &bid)) {
                        self.tell_ownership(now, ownership::Input::Vote { from: to, vote });
                    }
                }
                Output::Bid { to, bid } => self.say(to, &bid),
                Output::Map { to, map } if to == self.id => self.name(now, to, &map),
                Output::Map { to, map } => self.say(to, &map),
                Output::Own { slots, epoch } => self.own(now, slots, epoch),
                Output::Lose { slots } => {
                    self.b2b.iter_mut().for_each(|role| role.lose(now, slots));
                }
                Output::Standby { slots, standby, epoch } => {
                    self.b2b.iter_mut().for_each(|role| role.protect(now, slots, standby, epoch));
                }
                Output::HandOver { slots, .. } => {
                    if let Some(role) = &mut self.b2b {
                        role.hand_over(now, slots);
                    }
                }
            }
        }
        busy
    }

    fn own(&mut self, now: Instant, slots: SlotSet, epoch: Epoch) {
        let Some(role) = &mut self.b2b else { return };
        role.own(now, slots, epoch);
        if let Some(membership) = &mut self.membership {
            membership.took_over(now, role.ownership.counters().takeovers);
        }
    }

    fn say<F: Frame>(&mut self, to: NodeId, frame: &F) {
        self.outputs.push_back(send(driver::NodeId(to.0), Class::Control, frame));
    }

    /// Tells who votes here what a node holds to be true of slots.
    fn name(&mut self, now: Instant, from: NodeId, map: &SlotMap) {
        if let Some(gate) = &mut self.gate {
            gate.handle_input(now, gate::Input::Slots { from, map: map.clone() });
        } else if let Some(witness) = &mut self.witness {
            witness.name(now, from, map);
        }
    }

    fn answer(&mut self, now: Instant, pulse: &Pulse) -> PulseBack {
        let (id, boot) = (self.id, self.boot);
        self.voter().map_or_else(|| pulse.back(id, boot), |voter| voter.pulse(now, pulse))
    }

    fn tell_ownership(&mut self, now: Instant, input: ownership::Input) {
        if let Some(role) = &mut self.b2b {
            role.ownership.handle_input(now, input);
        }
    }

    /// The vote of this node: its gate's, or that of a witness.
    fn voter(&mut self) -> Option<&mut Voter> {
        match &mut self.gate {
            Some(gate) => Some(gate.voter()),
            None => self.witness.as_mut(),
        }
    }
}
