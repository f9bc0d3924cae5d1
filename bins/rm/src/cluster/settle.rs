//! Routes what one machine says to the next.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use election::{Mandate, NodeId, Segment, Speaker};
use quota_split::handover::{
    CoordinatorInput, CoordinatorOutput, Epoch, PairInput, PairMessage, PairOutput, Role, Stamp,
    ToCoordinator, ToMember,
};
use quota_split::{CallId, Part, SegmentId};

use super::frame::{ClusterFrame, Kept, Routed};
use super::pieces::Came;
use super::{Alarm, Cluster, Output, Why};

#[cfg(test)]
mod tests;

impl Cluster {
    /// Drains all machines until none has anything to say.
    pub(super) fn settle(&mut self, now: Instant) {
        while !self.counting {
            if let Some(output) = self.elector.poll_output() {
                self.obey_elector(now, output);
            } else if let Some(output) = self.coordinator.poll_output() {
                self.obey_coordinator(now, output);
            } else if let Some(output) = self.pair.poll_output() {
                self.obey_pair(now, output);
            } else if let Some((to, message)) = self.disk.ready() {
                self.send_up(now, to, message);
            } else if let Some((to, frame)) = self.pieces.poll_send() {
                self.outputs.push_back(Output::Send { to, frame });
            } else {
                break;
            }
        }
        self.due_at = [
            self.elector.poll_timeout(),
            self.coordinator.poll_timeout(),
            self.pair.poll_timeout(),
            self.usage.poll_timeout(),
            self.pieces.poll_timeout(),
        ]
        .into_iter()
        .flatten()
        .min();
    }

    pub(super) fn receive(&mut self, now: Instant, from: NodeId, frame: ClusterFrame) {
        if !self.config.peers.contains(&from) {
            return self.alarm(Alarm::Misdirected(from));
        }
        match frame {
            ClusterFrame::Election(frame) => {
                self.elector.handle_input(now, election::Input::Frame { from, frame });
            }
            ClusterFrame::ToMember(Routed { origin, to, body, .. }) if to == self.config.id => {
                self.hear_coordinator(now, from, origin, body);
            }
            ClusterFrame::ToCoordinator(Routed { origin, to, body, .. })
                if to == self.config.id =>
            {
                self.hear_member(now, origin, body);
            }
            ClusterFrame::ToMember(routed) => self.tell_on(now, routed, ClusterFrame::ToMember),
            ClusterFrame::ToCoordinator(routed) => {
                self.tell_on(now, routed, ClusterFrame::ToCoordinator);
            }
            ClusterFrame::Piece(piece) => match self.pieces.take(from, piece) {
                Came::Nothing => {}
                Came::Frame(frame) => self.receive(now, from, frame),
                Came::Garbled => self.alarm(Alarm::Garbled(from)),
            },
            ClusterFrame::Pieces(taken) => self.pieces.taken(now, from, taken),
            ClusterFrame::Pair(message) => {
                if self.config.partner() == Some(from) {
                    if let PairMessage::Release { call } = message {
                        self.note_end(now, CallId(call));
                    }
                    let binds = matches!(message, PairMessage::Bases(_));
                    self.pair.handle_input(now, PairInput::Received(message));
                    if binds {
                        // Its speaker may be gone when this node starts anew.
                        self.persist();
                    }
                } else {
                    self.alarm(Alarm::Misdirected(from));
                }
            }
        }
    }

    /// Gives the members their shares anew, when this node leads.
    pub(super) fn lead_again(&mut self, now: Instant) {
        let Some((mandate, shares)) = &self.followed else { return };
        if mandate.epoch.coordinator != self.config.id {
            return;
        }
        let members = mandate.segments();
        let speaker = |segment| self.speakers.get(segment).copied();
        self.divided_for = members.iter().map(speaker).collect();
        let takes = |it| shares.contains(&it) && !self.drains(it);
        let mut parts = self.plan.parts(&members, takes);
        if !has_weight(&parts) {
            // Nobody else could take what they have.
            parts = self.plan.parts(&members, |it| shares.contains(&it));
        }
        let zero = !has_weight(&parts) && !shares.is_empty();
        if zero {
            let named = |it| self.plan.segments.contains_key(&it);
            let some = shares.iter().any(|it| named(*it) && takes(*it));
            // A cold one that is not needed would get a part too, were they left at zero.
            for part in &mut parts {
                let it = segment(SegmentId(part.segment));
                let gets = if some { takes(it) } else { shares.contains(&it) };
                part.weight = u32::from(named(it) && gets);
            }
        }
        let epoch = of_division(mandate.epoch);
        self.coordinator.handle_input(now, CoordinatorInput::Lead { epoch, parts });
        // Without a document nobody has a weight yet, and each call that is refused says why.
        if zero && !self.plan.segments.is_empty() {
            self.alarm(Alarm::WeightsZero);
        }
    }

    /// Whether the node that speaks for a segment said that it takes no new calls.
    fn drains(&self, segment: Segment) -> bool {
        let speaker = self.speakers.get(&segment);
        self.draining.get(&segment).is_some_and(|drains| Some(drains) == speaker)
    }

    /// The speaker of a segment says that nobody there takes new calls.
    fn note_drain(&mut self, now: Instant, segment: Segment) {
        let Some(speaker) = self.speakers.get(&segment).copied() else { return };
        let before = self.draining.insert(segment, speaker);
        self.elector.handle_input(now, election::Input::Serving { segment, serving: false });
        if before != Some(speaker) {
            self.lead_again(now);
        }
    }

    fn follow(&mut self, now: Instant, mandate: Mandate, shares: BTreeSet<Segment>) {
        let before = self.followed.as_ref().map(|(mandate, _)| mandate.epoch);
        if before != Some(mandate.epoch) {
            self.followed_at = now;
            // Each says it again.
            self.draining.clear();
        }
        self.followed = Some((mandate, shares));
    }

    /// Whether a message is of a division that is over, and was when the last of it can have been on its way.
    fn is_stale(&self, now: Instant, stamp: Stamp) -> bool {
        let followed = self.followed.as_ref().map(|(mandate, _)| of_division(mandate.epoch));
        Some(stamp.epoch) < followed && self.followed_at + UNDER_WAY_MAX <= now
    }

    fn obey_elector(&mut self, now: Instant, output: election::Output) {
        match output {
            election::Output::Persist { serial, stored } => {
                self.found.election = stored;
                let kept = self.kept();
                let (serial, bytes) = self.disk.want_for_elector(kept, serial);
                self.outputs.push_back(Output::Persist { serial, bytes });
            }
            election::Output::Send { to, frame } => {
                self.send(now, to, ClusterFrame::Election(frame));
            }
            election::Output::Lead { mandate, shares } => {
                self.follow(now, mandate, shares);
                self.look_at_shares();
                self.lead_again(now);
            }
            election::Output::Follow { mandate, shares } => {
                self.follow(now, mandate, shares);
                self.look_at_shares();
                self.coordinator.handle_input(now, CoordinatorInput::Retire);
            }
            election::Output::Present(present) => {
                self.present = present;
                self.look_at_partner(now);
            }
            election::Output::Speakers(speakers) => {
                self.speakers = speakers;
                self.look_at_speakers(now);
            }
            election::Output::Duplicate { withdrawn, .. } => {
                self.alarm(Alarm::Duplicate { withdrawn });
                if withdrawn {
                    self.withdrawn = true;
                    self.flush_usage();
                    self.pair.handle_input(now, PairInput::Role(Role::Nobody));
                }
            }
        }
    }

    /// Rests or wakes, as shares and plan say; either may come first.
    pub(super) fn look_at_shares(&mut self) {
        let segment = self.config.id.segment;
        let Some((_, shares)) = &self.followed else { return };
        let passive = self.plan.is_cold(segment) && !shares.contains(&segment);
        if passive != self.passive {
            self.passive = passive;
            self.outputs.push_back(Output::Passive(passive));
        }
    }

    fn look_at_speakers(&mut self, now: Instant) {
        let role = match self.speakers.get(&self.config.id.segment) {
            Some(Speaker { node, .. }) if *node == self.config.id => Role::Speaker,
            Some(_) => Role::Partner,
            None => Role::Nobody,
        };
        if role != Role::Speaker {
            self.flush_usage();
        }
        self.pair.handle_input(now, PairInput::Role(role));
        // Another speaker, or another life of it, says it again.
        let speakers = &self.speakers;
        self.draining.retain(|segment, drains| speakers.get(segment) == Some(drains));
        let Some((mandate, _)) = &self.followed else { return };
        let members = mandate.segments();
        let speakers: Vec<_> = members.iter().map(|it| self.speakers.get(it).copied()).collect();
        let before = std::mem::replace(&mut self.divided_for, speakers.clone());
        let known = before.len() == speakers.len();
        let mut pairs = speakers.iter().zip(&before);
        // Where nobody speaks nobody can promise: what was granted stays as it is meanwhile.
        if !known || pairs.any(|(now, before)| now.is_some() && now != before) {
            // Who speaks anew knows nothing of what the other was granted last.
            self.lead_again(now);
        }
    }

    fn obey_coordinator(&mut self, now: Instant, output: CoordinatorOutput) {
        match output {
            CoordinatorOutput::Send { to, message } => self.send_down(now, segment(to), message),
            CoordinatorOutput::Opened(stamp) => {
                let mandate = self.followed.as_ref().map(|(mandate, _)| mandate);
                let members = mandate.map(Mandate::segments).unwrap_or_default();
                self.outputs.push_back(Output::Divided { stamp, members });
            }
            CoordinatorOutput::Serves { segment: id, serves } => {
                let segment = segment(id);
                let serving = serves && !self.drains(segment);
                self.elector.handle_input(now, election::Input::Serving { segment, serving });
            }
            CoordinatorOutput::Drains(id) => self.note_drain(now, segment(id)),
            // The link states of the election tell it too.
            CoordinatorOutput::Outranked(_) => {}
            CoordinatorOutput::Alarm(alarm) => self.alarm(alarm.into()),
            CoordinatorOutput::Ceased(alarm) => {
                self.alarms.remove(&alarm.into());
            }
        }
    }

    fn obey_pair(&mut self, now: Instant, output: PairOutput) {
        match output {
            PairOutput::Partner(message) => {
                if let Some(partner) = self.config.partner() {
                    self.send(now, partner, ClusterFrame::Pair(message));
                }
            }
            PairOutput::Coordinator { epoch, message } => {
                self.persist();
                if let Some(coordinator) = coordinator_of(epoch) {
                    self.disk.after((coordinator, message));
                }
            }
            PairOutput::Decided { call, verdict } => {
                let verdict = verdict.map_err(Why::from);
                self.outputs.push_back(Output::Decided { call, verdict });
            }
            PairOutput::Counted(call) => {
                if let Some(member) = self.pair.member() {
                    self.usage.note(now, member, call);
                }
            }
            PairOutput::Begun => self.begin_usage(now),
            PairOutput::Recounted(drifts) => self.usage.recount(now, &drifts),
            PairOutput::Refused(refusal) => {
                self.refusals.insert(refusal.node, refusal);
            }
            PairOutput::NeedLive { copied } => {
                self.counting = true;
                self.outputs.push_back(Output::NeedLive { copied });
            }
            PairOutput::TakeOver => self.elector.handle_input(now, election::Input::Fenced),
            PairOutput::Drifted(drifts) => {
                self.usage.recount(now, &drifts);
                self.outputs.push_back(Output::Drifted(drifts));
            }
            PairOutput::Alone(true) => self.alarm(Alarm::Alone),
            PairOutput::Alone(false) => {
                self.alarms.remove(&Alarm::Alone);
            }
            PairOutput::Lapsed => {
                self.alarms.remove(&Alarm::Lapsed);
                self.alarm(Alarm::Lapsed);
            }
        }
    }

    /// Sends to the speaker of a segment.
    fn send_down(&mut self, now: Instant, to: Segment, message: ToMember) {
        let Some(Speaker { node, .. }) = self.speakers.get(&to).copied() else { return };
        let origin = self.config.id;
        if node == origin {
            return self.hear_coordinator(now, origin, origin, message);
        }
        let routed = Routed { origin, to: node, hops: HOPS_MAX, body: message };
        self.tell_on(now, routed, ClusterFrame::ToMember);
    }

    fn send_up(&mut self, now: Instant, to: NodeId, message: ToCoordinator) {
        let origin = self.config.id;
        if to == origin {
            return self.hear_member(now, origin, message);
        }
        let routed = Routed { origin, to, hops: HOPS_MAX, body: message };
        self.tell_on(now, routed, ClusterFrame::ToCoordinator);
    }

    fn hear_coordinator(&mut self, now: Instant, from: NodeId, origin: NodeId, message: ToMember) {
        // Of a coordinator that is not followed, or not yet: it asks again.
        let epoch = self.elector.mandate().map(|mandate| of_division(mandate.epoch));
        if coordinator_of(message.stamp().epoch) != Some(origin) {
            // Of whom it came: anybody can be named in it.
            self.alarm(Alarm::Misdirected(from));
        } else if epoch == Some(message.stamp().epoch) {
            self.pair.handle_input(now, PairInput::Coordinator(message));
        } else if self.is_stale(now, message.stamp()) {
            self.alarm(Alarm::Stale(origin));
        }
    }

    fn hear_member(&mut self, now: Instant, origin: NodeId, message: ToCoordinator) {
        if self.is_stale(now, message.stamp()) {
            return self.alarm(Alarm::Stale(origin));
        }
        let speaker = self.speakers.get(&origin.segment).map(|speaker| speaker.node);
        if speaker == Some(origin) {
            let from = SegmentId(u32::from(origin.segment.0));
            self.coordinator.handle_input(now, CoordinatorInput::Received { from, message });
        }
    }

    fn tell_on<T>(
        &mut self,
        now: Instant,
        mut routed: Routed<T>,
        frame: impl Fn(Routed<T>) -> ClusterFrame,
    ) {
        let Some(hops) = routed.hops.checked_sub(1) else { return };
        routed.hops = hops;
        if let Some(next) = self.elector.next_hop(routed.to) {
            self.send(now, next, frame(routed));
        }
    }

    fn send(&mut self, now: Instant, to: NodeId, frame: ClusterFrame) {
        if let Some(frame) = self.pieces.send(now, to, frame) {
            self.outputs.push_back(Output::Send { to, frame });
        }
    }

    /// Writes what must be found again, if it has changed.
    fn persist(&mut self) {
        let kept = self.kept();
        if let Some((serial, bytes)) = self.disk.want(kept) {
            self.outputs.push_back(Output::Persist { serial, bytes });
        }
    }

    fn kept(&self) -> Kept {
        let (promised, bases) = (self.pair.promised(), self.pair.bases().clone());
        Kept { election: self.found.election, promised, bases }
    }
}

/// How often a message is told on at the most.
const HOPS_MAX: u8 = 8;

fn has_weight(parts: &[Part]) -> bool {
    parts.iter().any(|part| part.present && 0 < part.weight)
}

fn segment(id: SegmentId) -> Segment {
    Segment(u16::try_from(id.0).unwrap_or(u16::MAX))
}

/// After a division nothing of the one before is on its way for longer: links that fall silent end sooner.
const UNDER_WAY_MAX: Duration = Duration::from_secs(10);

/// Returns the number of an election's epoch in divisions, which order them alike.
fn of_division(epoch: election::Epoch) -> Epoch {
    let election::Epoch { term, coordinator: NodeId { segment, rm }, life } = epoch;
    let rank = !(u64::from(segment.0) << 8 | u64::from(rm));
    let election::Life { incarnation, instance } = life;
    Epoch { term, rank, incarnation, instance }
}

fn coordinator_of(epoch: Epoch) -> Option<NodeId> {
    let rank = !epoch.rank;
    let segment = Segment(u16::try_from(rank >> 8).ok()?);
    Some(NodeId { segment, rm: rank.to_le_bytes()[0] })
}
