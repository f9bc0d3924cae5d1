//! What the mediagate is told of the call.

use failover::record::{Direction, Phase};
use failover::{Boot, NodeId, Place};

use super::Call;
use crate::core::Core;
use crate::io::{MediaCall, MediaCommand, MediaLeg, Output};
use crate::sdp::{self, Audio};

/// What a mediagate was told last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    place: Place,
    call: MediaCall,
}

impl Call {
    /// Tells the holder what has changed since it was told last.
    pub(super) fn sync_media(&mut self, core: &mut Core) {
        if !self.media_changed {
            return;
        }
        self.media_changed = false;
        let Some(place) = self.record.holder else { return };
        if self.record.is_ended() {
            return;
        }
        let call = self.media_call(core, &place);
        let known = self.told.as_ref().filter(|told| told.place == place);
        let command = match known {
            Some(told) if told.call == call => return,
            Some(_) => MediaCommand::Update(Box::new(call.clone())),
            None => {
                let Some((_, _, open)) = self.open_command(core) else { return };
                open
            }
        };
        self.told = Some(Told { place, call });
        core.outputs.push_back(Output::Media { gateway: place.gateway, boot: place.boot, command });
    }

    /// Closes the call where it is open.
    pub(super) fn close_media(&mut self, core: &mut Core) {
        if let Some(told) = self.told.take() {
            let (call, epoch) = (self.record.call, core.epoch(self.record.slot));
            core.outputs.push_back(Output::Media {
                gateway: told.place.gateway,
                boot: told.place.boot,
                command: MediaCommand::Close { call, epoch },
            });
        }
    }

    /// Returns whether the call is open at its holder.
    pub(crate) fn is_open_at(&self, gateway: NodeId, boot: Boot) -> bool {
        self.told
            .as_ref()
            .is_some_and(|told| told.place.gateway == gateway && told.place.boot == boot)
    }

    fn media_call(&self, core: &Core, place: &Place) -> MediaCall {
        let audio = [self.audio(0), self.audio(1)];
        let mut payload_types = Vec::new();
        for format in audio.iter().flatten().flat_map(|audio| &audio.formats) {
            if !payload_types.contains(format) {
                payload_types.push(*format);
            }
        }
        let legs = [0, 1].map(|leg| {
            let sends = sends(&audio, leg);
            let talking = self.record.phase == Phase::Talking;
            let audio = audio[leg].as_ref();
            MediaLeg {
                port: place.ports[leg],
                remote: audio.and_then(|audio| audio.rtp),
                remote_rtcp: audio.and_then(|audio| audio.rtcp),
                payload_types: payload_types.clone(),
                held: !(talking && sends),
                nat: self.is_behind_nat(leg, audio),
                latched: None,
            }
        });
        MediaCall { call: self.record.call, epoch: core.epoch(self.record.slot), legs }
    }

    /// Returns whether a phone sends and the other wants to receive.
    pub(super) fn sends(&self, leg: usize) -> bool {
        sends(&[self.audio(0), self.audio(1)], leg)
    }

    /// Returns the audio stream of the phone, as it is or, before any took effect, as it offers.
    fn audio(&self, leg: usize) -> Option<Audio> {
        let party = &self.record.legs[leg];
        match party.received.is_empty() {
            true => sdp::audio(&party.offer_in),
            false => sdp::audio(&party.received),
        }
    }

    /// Returns whether the holder can reach the media address that an SDP names: a gateway has
    /// addresses of one family.
    pub(super) fn can_reach(&self, sdp: &[u8]) -> bool {
        let rtp = sdp::audio(sdp).and_then(|audio| audio.rtp);
        match (self.record.holder, rtp) {
            (Some(holder), Some(rtp)) => holder.address.is_ipv4() == rtp.is_ipv4(),
            (None, _) | (_, None) => true,
        }
    }

    /// A phone whose SDP names another address than it signals from may send from a third.
    fn is_behind_nat(&self, leg: usize, audio: Option<&Audio>) -> bool {
        let signals_from = self.record.legs[leg].flow.remote.ip();
        let rtp = audio.and_then(|audio| audio.rtp);
        rtp.is_some_and(|rtp| !rtp.ip().is_unspecified() && rtp.ip() != signals_from)
    }

    /// Returns the command that opens the call at its holder.
    pub(crate) fn open_command(&self, core: &Core) -> Option<(NodeId, Boot, MediaCommand)> {
        let place = self.record.holder?;
        let mut call = self.media_call(core, &place);
        for (media, leg) in call.legs.iter_mut().zip(&self.record.legs) {
            media.latched = leg.latched;
        }
        Some((place.gateway, place.boot, MediaCommand::Open(Box::new(call))))
    }
}

fn sends(audio: &[Option<Audio>; 2], leg: usize) -> bool {
    let direction = |leg: usize| audio[leg].as_ref().map(|audio| audio.direction);
    direction(leg).is_some_and(Direction::sends)
        && direction(1 - leg).is_some_and(Direction::receives)
}
