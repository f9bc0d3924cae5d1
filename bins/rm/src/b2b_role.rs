//! The b2b role: the call machine, the mediagates it uses and what it believes about them.

use std::collections::VecDeque;
use std::time::Instant;

use b2bua::{B2b, Input, MediaCommand, NotPlaced, Output as Asked};
use driver::{Class, Output};
use failover::controller::Introduce;
use failover::verdicts::{self, Verdicts};
use failover::{Boot, NodeId};
use tracing::{debug, warn};

use crate::beats::Beats;
use crate::frames::send;
use crate::journal;
use crate::mediagates::{Mediagates, Told};

/// What this role asks of the rest of the process.
#[derive(Debug)]
pub(crate) enum Wish {
    /// Hand a SIP message to its gate.
    Sip(b2bua::frame::SipOut),
    /// Tell the controller of this process.
    Introduce(Introduce),
    /// Tell the controller of this process.
    Ask(failover::controller::Ask),
}

pub(crate) struct B2bRole {
    own: NodeId,
    pub(crate) b2b: B2b,
    pub(crate) verdicts: Verdicts,
    pub(crate) mediagates: Mediagates,
    /// Controllers that can be reached, this process among them.
    controllers: Vec<NodeId>,
    introduced: Vec<Introduce>,
    pub(crate) wishes: VecDeque<Wish>,
}

impl B2bRole {
    pub(crate) fn new(own: NodeId, b2b: B2b, verdicts: Verdicts, mediagates: Mediagates) -> Self {
        let (controllers, introduced) = (Vec::new(), Vec::new());
        let wishes = VecDeque::new();
        Self { own, b2b, verdicts, mediagates, controllers, introduced, wishes }
    }

    pub(crate) fn controller_up(&mut self, now: Instant, id: NodeId, out: &mut VecDeque<Output>) {
        self.controllers.push(id);
        for introduce in self.introduced.clone() {
            self.introduce(id, &introduce, out);
        }
        self.verdicts.handle_input(now, verdicts::Input::ControllerUp(id));
    }

    pub(crate) fn controller_down(&mut self, now: Instant, id: NodeId) {
        self.controllers.retain(|known| *known != id);
        self.verdicts.handle_input(now, verdicts::Input::ControllerDown(id));
    }

    /// Takes in what a mediagate says.
    pub(crate) fn notice(
        &mut self,
        now: Instant,
        id: NodeId,
        notice: media::Notice,
        beats: &mut Beats,
        out: &mut VecDeque<Output>,
    ) {
        match self.mediagates.notice(now, id, notice) {
            Told::Nothing => {}
            Told::Introduced(introduce, boot, unsure) => {
                beats.watch(id, introduce.beat, out);
                self.verdicts.handle_input(now, verdicts::Input::Watch(id));
                self.verdicts.handle_input(now, verdicts::Input::LinkUp(id, boot));
                self.introduced.retain(|known| known.gateway != id);
                self.introduced.push(introduce.clone());
                for controller in self.controllers.clone() {
                    self.introduce(controller, &introduce, out);
                }
                self.reopen(id, &unsure);
            }
            Told::Event(boot, event) => {
                self.b2b.handle_input(now, Input::Media { gateway: id, boot, event });
            }
            Told::Missing(calls) => self.reopen(id, &calls),
        }
    }

    /// Sends again what a mediagate should carry and does not.
    fn reopen(&mut self, id: NodeId, calls: &[failover::CallId]) {
        for call in calls {
            let Some((gateway, boot, command)) = self.b2b.media_call(*call) else { continue };
            if gateway == id {
                self.mediagates.command(gateway, boot, &command);
            }
        }
    }

    fn introduce(&mut self, controller: NodeId, introduce: &Introduce, out: &mut VecDeque<Output>) {
        if controller == self.own {
            self.wishes.push_back(Wish::Introduce(introduce.clone()));
        } else {
            out.push_back(send(driver::NodeId(controller.0), Class::Control, introduce));
        }
    }

    /// Carries out what the machines of this role ask for; returns whether there was anything.
    pub(crate) fn drain(
        &mut self,
        now: Instant,
        beats: &Beats,
        out: &mut VecDeque<Output>,
    ) -> bool {
        let mut busy = false;
        while let Some(output) = self.verdicts.poll_output() {
            busy = true;
            self.believe(now, output, beats, out);
        }
        while let Some(output) = self.b2b.poll_output() {
            busy = true;
            self.carry_out(now, output);
        }
        while let Some(output) = self.mediagates.poll_output() {
            busy = true;
            out.push_back(output);
        }
        busy
    }

    fn believe(
        &mut self,
        now: Instant,
        output: verdicts::Output,
        beats: &Beats,
        out: &mut VecDeque<Output>,
    ) {
        match output {
            verdicts::Output::Hear(gateway) => beats.ask(gateway, out),
            verdicts::Output::Ask { controller, ask } if controller == self.own => {
                self.wishes.push_back(Wish::Ask(ask));
            }
            verdicts::Output::Ask { controller, ask } => {
                out.push_back(send(driver::NodeId(controller.0), Class::Control, &ask));
            }
            verdicts::Output::Dead { gateway, boot, cause } => {
                warn!(
                    gateway = gateway.0,
                    boot = boot.0,
                    ?cause,
                    "mediagate is dead, its calls move"
                );
                self.mediagates.buried(now, gateway, boot);
                self.b2b.handle_input(now, Input::GatewayDead { gateway, boot });
            }
        }
    }

    fn carry_out(&mut self, now: Instant, output: Asked) {
        match output {
            Asked::Sip(message) => self.wishes.push_back(Wish::Sip(message)),
            Asked::Place { call, wanted } => {
                let answer = match self.mediagates.place(now, call, wanted, &self.verdicts) {
                    Ok((holder, standby)) => Input::Placed { call, holder, standby },
                    Err(why) => {
                        let why_text = match why {
                            NotPlaced::NoGateway => "no mediagate lives",
                            NotPlaced::Full => "ports or files of the mediagates are exhausted",
                        };
                        debug!(%call, why = why_text, "no place for the media");
                        Input::NotPlaced { call, why }
                    }
                };
                self.b2b.handle_input(now, answer);
            }
            Asked::Media { gateway, boot, command } => self.command(gateway, boot, &command),
            Asked::Freed(place) => self.mediagates.free(now, &place),
            Asked::Detail(detail) => journal::detail(&detail),
            // One b2b owns every slot, and its records are kept nowhere else.
            Asked::Stored { .. } | Asked::PassOn(_) => {}
            Asked::Event(event) => journal::event(&event),
        }
    }

    fn command(&mut self, gateway: NodeId, boot: Boot, command: &MediaCommand) {
        self.mediagates.command(gateway, boot, command);
    }
}
