//! One call of two legs.

use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::Bytes;
use failover::pacing::Outcome;
use failover::record::{
    CallRecord, ClientInvite, ClientState, LegState, Phase, Purpose, RECORD_LEN_MAX, SentSdp,
    ServerState, Target,
};
use failover::replica::Key;
use failover::{CallId, Cause, Epoch, NodeId, Place, Tombstone, UnixMs};
use sip_core::transactions::{ClientKey, ServerKey};

use crate::changes::Reported;
use crate::core::{ClientUse, Core, InviteId, LegId, Way};
use crate::graves::tombstone;
use crate::message;
use arrival::Arrival;
use media::Told;

mod arrival;
mod change;
mod ending;
mod fork;
mod media;
mod moving;
mod outgoing;
mod ports;
mod reach;
mod refresh;
pub(crate) use reach::towards;
mod request;
pub(crate) use request::answer_options;
pub(crate) use setup::Proposal;
mod restore;
mod session;
mod setup;

/// A call: its record, and what follows from it in this process.
pub(crate) struct Call {
    pub(crate) record: CallRecord,
    /// The transactions of the open INVITEs.
    keys: Vec<OpenInvite>,
    /// What the mediagate was told last.
    told: Option<Told>,
    /// Something that the mediagate is told has changed.
    media_changed: bool,
    armed: Option<Instant>,
    /// Ports are asked for and the answer is not here.
    placing: bool,
    /// The gateway that died without a standby, until there are other ports.
    left: Option<NodeId>,
    /// How often ports could not be opened.
    open_failures: u8,
    arrivals: [Arrival; 2],
    /// CSeqs that the owner before may have used although the record does not say so, by leg.
    unstored: [Range<u32>; 2],
    /// How often the phone that an open INVITE calls has found the session too short, by its CSeq.
    asked_anew: Vec<(u32, u8)>,
    /// The standby was leased by another process, and may be given to a third one.
    foreign: bool,
    /// Where the call goes if there are no ports for it, until it has some.
    pub(crate) otherwise: Option<Otherwise>,
    /// What is known of the record as it was reported last.
    reported: Reported,
    /// The record is too long to be kept elsewhere.
    oversized: bool,
    /// What the record says now must be kept elsewhere before anything more is said.
    barrier: bool,
}

/// Where a call may go that finds no ports here.
#[derive(Clone, Debug)]
pub(crate) struct Otherwise {
    pub(crate) targets: Vec<Target>,
    /// What is said there of it.
    pub(crate) shared: Bytes,
}

/// The transaction of an INVITE in the record.
#[derive(Clone, Copy, Debug)]
struct OpenInvite {
    leg: usize,
    cseq: u32,
    key: Side,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Server(ServerKey),
    Client(ClientKey),
}

impl Call {
    fn with_record(record: CallRecord) -> Self {
        Self {
            record,
            keys: Vec::new(),
            told: None,
            media_changed: true,
            armed: None,
            placing: false,
            left: None,
            open_failures: 0,
            arrivals: [Arrival::default(); 2],
            unstored: [0..0, 0..0],
            asked_anew: Vec::new(),
            foreign: false,
            otherwise: None,
            reported: Reported::News,
            oversized: false,
            barrier: false,
        }
    }

    pub(crate) fn id(&self) -> CallId {
        self.record.call
    }

    fn leg_id(&self, leg: usize) -> LegId {
        LegId { call: self.record.call, leg }
    }

    /// Returns the way to the phone of a leg.
    fn way(&self, leg: usize) -> Way {
        (self.record.legs[leg].flow, self.record.slot)
    }

    /// Does what the state of the call asks for after anything happened, and sets its deadline.
    /// Returns whether the call is over, so that a tombstone does instead of it.
    pub(crate) fn settle(&mut self, core: &mut Core) -> bool {
        if self.record.is_ended() {
            for leg in 0..2 {
                self.say_farewell(core, leg);
            }
        } else if self.record.phase == Phase::Talking {
            for leg in 0..2 {
                self.relay_waiting(core, leg);
            }
            for leg in 0..2 {
                self.queue_move(core, leg);
                self.refresh_session(core, leg);
            }
        }
        self.sync_media(core);
        self.tidy_fork();
        let at = self.next_deadline(core);
        core.arm(self.record.call, &mut self.armed, at);
        matches!(self.record.phase, Phase::Ended { until } if until <= core.unix || self.is_over())
    }

    /// Returns whether both dialogs are over and no INVITE is open or waits for an ACK.
    fn is_over(&self) -> bool {
        let is_done = |invite: &ClientInvite| match invite.state {
            ClientState::Accepted { acked, .. } => acked,
            ClientState::Calling | ClientState::Proceeding => false,
        };
        let mut branches = self.record.fork.iter().flat_map(|fork| &fork.branches);
        branches.all(|branch| is_done(&branch.invite))
            && self.record.legs.iter().all(|leg| {
                leg.state == LegState::Gone
                    && leg.incoming.is_empty()
                    && leg.outgoing.iter().all(is_done)
            })
    }

    /// Reports the record if it has changed; `over` says that a tombstone takes its place.
    pub(crate) fn report(&mut self, core: &mut Core, over: bool) {
        let barrier = std::mem::take(&mut self.barrier);
        // Of a call whose phones were told nothing, the caller's own copies of its INVITE tell.
        if !core.changes.is_on() || self.record.phase == Phase::Placing {
            return;
        }
        // What a barrier or a tombstone stands for is news anyway, and soon followed by more.
        let before = std::mem::take(&mut self.reported);
        let is_news = barrier || over || {
            self.reported = before.next(&self.record);
            self.reported != before
        };
        if is_news {
            let oversized = !over && RECORD_LEN_MAX < self.record.len_bound();
            core.unprotected += usize::from(oversized);
            core.unprotected -= usize::from(self.oversized);
            self.oversized = oversized;
            core.changes.note(self.record.slot, Key::Call(self.record.call), barrier);
        }
    }

    /// Takes over the epoch in which the slot is owned now.
    pub(crate) fn enter(&mut self, epoch: Epoch) {
        self.media_changed |= self.record.epoch != epoch;
        self.record.epoch = epoch;
    }

    /// Takes the call out of all tables without a word to anybody; returns its ports.
    pub(crate) fn drop_silently(&mut self, core: &mut Core) -> Vec<Place> {
        if !self.record.is_ended() {
            core.live -= 1;
            core.charged -= usize::from(self.record.admission.charge.is_some());
        }
        if self.record.phase == Phase::Placing {
            // Nobody else has the record: what it counts would be counted for ever.
            self.release(core);
        }
        core.shortage.remove(self.record.call);
        core.unprotected -= usize::from(self.oversized);
        for leg in 0..2 {
            core.pacer.finish(core.now, self.pacer_id(leg), Outcome::Other);
        }
        let places = [self.record.holder.take(), self.record.standby.take()];
        let places: Vec<Place> = places.into_iter().flatten().collect();
        places.iter().for_each(|place| core.release(self.record.call, place));
        self.forget(core);
        places
    }

    /// Returns what is left of a call that is over; `None` when its time is over, too.
    pub(crate) fn tombstone(&self, core: &Core) -> Option<Tombstone> {
        match self.record.phase {
            Phase::Ended { until } if core.unix < until => Some(tombstone(&self.record, until)),
            Phase::Placing | Phase::Calling | Phase::Talking | Phase::Ended { .. } => None,
        }
    }

    /// Takes the call out of all tables.
    pub(crate) fn forget(&mut self, core: &mut Core) {
        core.arm(self.record.call, &mut self.armed, None);
        for leg in 0..2 {
            core.clear_tag(&self.record.legs[leg].dialog.local_tag);
        }
        for open in std::mem::take(&mut self.keys) {
            match open.key {
                Side::Server(key) => core.clear_server(key),
                Side::Client(key) => drop(core.clear_client(key)),
            }
        }
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, core: &mut Core) {
        match self.record.phase {
            Phase::Calling if self.record.ends_at <= core.unix => {
                self.end(core, Cause::NoAnswer, 408);
            }
            Phase::Talking if self.record.ends_at <= core.unix => {
                self.end(core, Cause::TooLong, 480);
            }
            Phase::Placing | Phase::Calling | Phase::Talking | Phase::Ended { .. } => {}
        }
        self.expire(core);
        for leg in 0..2 {
            self.cancel_overdue(core, leg);
            self.refuse_overdue(core, leg);
            self.miss_media(core, leg);
            self.prune(core, leg);
        }
        self.prune_fork(core);
    }

    fn next_deadline(&self, core: &Core) -> Option<Instant> {
        let record = &self.record;
        let mut at = match record.phase {
            Phase::Placing => None,
            Phase::Calling | Phase::Talking => Some(record.ends_at),
            Phase::Ended { until } => Some(until),
        };
        let mut sooner = |other: UnixMs| at = Some(at.map_or(other, |at| at.min(other)));
        self.session_deadline(core).map(&mut sooner);
        for (index, leg) in record.legs.iter().enumerate() {
            for invite in &leg.outgoing {
                match invite.state {
                    ClientState::Calling | ClientState::Proceeding => {
                        invite.cancel_at.filter(|_| !invite.cancelled).map(&mut sooner);
                    }
                    ClientState::Accepted { until, acked: true } => sooner(until),
                    // It waits for the ACK of the other leg, or for that leg's patience to end.
                    ClientState::Accepted { acked: false, .. } => {}
                }
            }
            for invite in &leg.incoming {
                match invite.state {
                    ServerState::Proceeding { .. } if !invite.relayed && leg.dialog.confirmed => {
                        sooner(UnixMs(invite.came_at.0 + DEFERRED_MAX_MS));
                    }
                    ServerState::Refused { until, .. } => sooner(until),
                    ServerState::Proceeding { .. } | ServerState::Accepted { .. } => {}
                }
            }
            self.arrivals[index].due_at().map(&mut sooner);
            if let Some(until) = leg.moving.wait_until
                && core.unix < until
                && !record.is_ended()
                && record.is_stale(index)
            {
                sooner(until);
            }
        }
        for branch in record.fork.iter().flat_map(|fork| &fork.branches) {
            if let ClientState::Accepted { until, .. } = branch.invite.state {
                sooner(until);
            }
        }
        at.map(|at| core.clock.instant_at(at))
    }

    /// Cancels INVITEs of ours that took too long.
    fn cancel_overdue(&mut self, core: &mut Core, leg: usize) {
        for index in 0..self.record.legs[leg].outgoing.len() {
            let invite = &self.record.legs[leg].outgoing[index];
            let open = matches!(invite.state, ClientState::Calling | ClientState::Proceeding);
            if open && invite.cancel_at.is_some_and(|at| at <= core.unix) {
                self.cancel_invite(core, leg, index);
            }
        }
    }

    /// Refuses re-INVITEs that waited too long for the other leg.
    fn refuse_overdue(&mut self, core: &mut Core, leg: usize) {
        let oldest = UnixMs(core.unix.0.saturating_sub(DEFERRED_MAX_MS));
        let overdue = self.record.legs[leg].incoming.iter().position(|invite| {
            matches!(invite.state, ServerState::Proceeding { .. })
                && !invite.relayed
                && invite.came_at <= oldest
        });
        if let Some(index) = overdue
            && self.record.legs[leg].dialog.confirmed
        {
            self.refuse_invite(core, leg, index, 491);
        }
    }

    /// Drops what no late copy can ask for any more.
    fn prune(&mut self, core: &mut Core, leg: usize) {
        let now = core.unix;
        let party = &mut self.record.legs[leg];
        let mut over = Vec::new();
        party.outgoing.retain(|invite| {
            let keep = !matches!(invite.state, ClientState::Accepted { until, acked: true }
                if until <= now);
            if !keep {
                over.push((invite.cseq, false));
            }
            keep
        });
        party.incoming.retain(|invite| {
            let keep = !matches!(invite.state, ServerState::Refused { until, .. } if until <= now);
            if !keep {
                over.push((invite.cseq, true));
            }
            keep
        });
        for (cseq, server) in over {
            self.drop_key(core, leg, cseq, server);
        }
    }

    /// Sends an INVITE to a leg. Returns false when there is no room for its transaction.
    fn send_invite(
        &mut self,
        core: &mut Core,
        leg: usize,
        purpose: Purpose,
        sdp: Option<(SentSdp, Bytes)>,
        patience: Option<Duration>,
    ) -> bool {
        self.make_room(core, leg);
        let (offer, bytes) = sdp.unzip();
        let cancel_at = patience.map(|span| core.after(span));
        let invite = ClientInvite {
            offered: offer.is_some(),
            cancel_at,
            ..self.new_invite(core, leg, purpose)
        };
        let party = &self.record.legs[leg];
        let message = message::invite(&self.record, party, &invite, bytes);
        let Ok(key) = core.request(self.way(leg), party.registered, &message) else {
            return false;
        };
        self.add_client_key(core, leg, invite.cseq, key);
        let party = &mut self.record.legs[leg];
        party.offer_out = offer;
        party.outgoing.push(invite);
        true
    }

    /// Returns an INVITE of a leg that is not sent yet, and carries no offer.
    fn new_invite(&mut self, core: &mut Core, leg: usize, purpose: Purpose) -> ClientInvite {
        self.barrier = true;
        ClientInvite {
            cseq: self.next_cseq(leg),
            branch: core.names.random(),
            purpose,
            sent_at: core.unix,
            offered: false,
            state: ClientState::Calling,
            cancel_at: None,
            cancelled: false,
        }
    }

    /// Forgets the oldest INVITEs that only wait for late copies of their 2xx, when there are many.
    fn make_room(&mut self, core: &mut Core, leg: usize) {
        while OUTGOING_MAX <= self.record.legs[leg].outgoing.len() {
            let outgoing = &self.record.legs[leg].outgoing;
            let over = outgoing.iter().position(|invite| {
                matches!(invite.state, ClientState::Accepted { acked: true, .. })
            });
            let Some(index) = over else { return };
            let cseq = self.record.legs[leg].outgoing.remove(index).cseq;
            self.drop_key(core, leg, cseq, false);
        }
    }

    /// Cancels an INVITE of ours; the CANCEL goes out once a provisional answer has come
    /// (RFC 3261 §9.1).
    fn cancel_invite(&mut self, core: &mut Core, leg: usize, index: usize) {
        let invite = &mut self.record.legs[leg].outgoing[index];
        if invite.cancelled {
            return;
        }
        invite.cancelled = true;
        let cseq = invite.cseq;
        if let Some(key) = self.client_key(leg, cseq) {
            // Its final response may be on its way already: then that one counts.
            let _ = core.transactions.cancel(core.now, key);
        }
    }

    /// Takes in that an INVITE of ours has another transaction now.
    pub(crate) fn sent_again(&mut self, core: &mut Core, id: InviteId, again: ClientKey) {
        let leg = id.leg.leg;
        self.keys.retain(|open| {
            let is_it = open.leg == leg && open.cseq == id.cseq;
            !is_it || matches!(open.key, Side::Server(_))
        });
        self.keys.push(OpenInvite { leg, cseq: id.cseq, key: Side::Client(again) });
        // A branch goes to a registered phone, which has one way.
        let mut outgoing = self.record.legs[leg].outgoing.iter();
        if outgoing.any(|invite| invite.cseq == id.cseq && invite.cancelled) {
            let _ = core.transactions.cancel(core.now, again);
        }
    }

    /// Sends the ACK of a 2xx, with the SDP that the leg now has when the 2xx carried an offer.
    fn ack(&mut self, core: &mut Core, leg: usize, index: usize) {
        let slot = self.record.slot;
        let way = self.way(leg);
        let party = &self.record.legs[leg];
        let invite = &party.outgoing[index];
        let sdp = match (invite.offered, &party.agreed) {
            (false, Some(agreed)) => Some(self.render(leg, agreed)),
            (true, _) | (false, None) => None,
        };
        let via = message::via(party, &core.names.branch(slot));
        let mut ack = party.dialog.ack(invite.cseq, &via);
        if let Some(sdp) = sdp {
            ack = ack.body(message::SDP, sdp);
            self.barrier = true;
        }
        let bytes = ack.finish().bytes().clone();
        core.send(way, bytes);
        let invite = &mut self.record.legs[leg].outgoing[index];
        if let ClientState::Accepted { acked, .. } = &mut invite.state {
            *acked = true;
        }
    }

    /// Sends an answer to an INVITE of a leg and notes it.
    fn answer_invite(
        &mut self,
        core: &mut Core,
        leg: usize,
        index: usize,
        status: u16,
        sdp: Option<Bytes>,
    ) {
        let until = core.after(core.patience());
        let party = &mut self.record.legs[leg];
        let dialog_is_confirmed = party.dialog.confirmed;
        let invite = &mut party.incoming[index];
        let first = invite.state == ServerState::Proceeding { status: 0, sdp: false };
        self.barrier |= first || sdp.is_some() || 200 <= status;
        let retry_after = match status {
            // RFC 3261 §14.2 asks for it in a 500, where it is drawn from 0 to 10 s.
            500 if dialog_is_confirmed => Some(core.random_seconds()),
            503 => Some(core.random_seconds()),
            _ => None,
        };
        if (200..300).contains(&status) {
            match party.session.pending.take() {
                Some(terms) => party.session.start(core.unix, terms),
                None => party.session.stop(),
            }
        }
        invite.state = match status {
            100..200 => ServerState::Proceeding { status, sdp: sdp.is_some() },
            200..300 => ServerState::Accepted { until },
            _ => ServerState::Refused { status, retry_after, until },
        };
        let mut answer = message::answer(party, &party.incoming[index], status, sdp);
        if let Some(seconds) = retry_after {
            answer = answer.number(sip_core::Name::RETRY_AFTER, seconds);
        }
        let cseq = party.incoming[index].cseq;
        if let Some(key) = self.server_key(leg, cseq) {
            core.respond(key, &answer.finish());
        }
    }

    /// Takes the next CSeq number of a leg.
    fn next_cseq(&mut self, leg: usize) -> u32 {
        self.lease_cseq(leg);
        let dialog = &mut self.record.legs[leg].dialog;
        dialog.local_cseq += 1;
        dialog.local_cseq
    }

    /// Raises the ceiling that a rebuild starts at when the leg's next CSeq number would pass it.
    fn lease_cseq(&mut self, leg: usize) {
        let leg = &mut self.record.legs[leg];
        let next = leg.dialog.local_cseq + 1;
        if leg.cseq_ceiling < next {
            leg.cseq_ceiling = next + CSEQ_LEASE;
            self.barrier = true;
        }
    }

    fn refuse_invite(&mut self, core: &mut Core, leg: usize, index: usize, status: u16) {
        self.withdraw_offer(leg);
        self.answer_invite(core, leg, index, status, None);
    }

    fn add_server_key(&mut self, core: &mut Core, leg: usize, cseq: u32, key: ServerKey) {
        core.set_server(key, InviteId { leg: self.leg_id(leg), cseq });
        self.keys.push(OpenInvite { leg, cseq, key: Side::Server(key) });
    }

    fn add_client_key(&mut self, core: &mut Core, leg: usize, cseq: u32, key: ClientKey) {
        core.set_client(key, ClientUse::Invite(InviteId { leg: self.leg_id(leg), cseq }));
        self.keys.push(OpenInvite { leg, cseq, key: Side::Client(key) });
    }

    fn server_key(&self, leg: usize, cseq: u32) -> Option<ServerKey> {
        self.keys.iter().find_map(|open| match open.key {
            Side::Server(key) if open.leg == leg && open.cseq == cseq => Some(key),
            Side::Server(_) | Side::Client(_) => None,
        })
    }

    fn client_key(&self, leg: usize, cseq: u32) -> Option<ClientKey> {
        self.keys.iter().find_map(|open| match open.key {
            Side::Client(key) if open.leg == leg && open.cseq == cseq => Some(key),
            Side::Client(_) | Side::Server(_) => None,
        })
    }

    fn drop_key(&mut self, core: &mut Core, leg: usize, cseq: u32, server: bool) {
        self.keys.retain(|open| {
            if open.leg != leg || open.cseq != cseq {
                return true;
            }
            match open.key {
                Side::Server(key) if server => core.clear_server(key),
                Side::Client(key) if !server => drop(core.clear_client(key)),
                Side::Server(_) | Side::Client(_) => return true,
            }
            false
        });
    }
}

/// How many CSeq numbers a leg may use before its record must be stored again.
const CSEQ_LEASE: u32 = 15;

/// INVITEs of ours that a leg keeps.
const OUTGOING_MAX: usize = 4;

/// How long a re-INVITE waits for an INVITE that is open on the other leg.
const DEFERRED_MAX_MS: u64 = 2_000;
