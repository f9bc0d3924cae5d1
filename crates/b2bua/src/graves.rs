//! Calls that ended: what still answers their late messages.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;

use bytes::Bytes;
use failover::record::CallRecord;
use failover::{CallId, EndedLeg, Slot, Tombstone, UnixMs};
use sip_core::dialog::Dialog;
use sip_core::transactions::{ClientKey, ServerKey};
use sip_core::{Message, Method};
use siphasher::sip::SipHasher13;

use crate::core::{Core, Way, tag_key};
use crate::message;

/// The tombstones of a b2b.
pub(crate) struct Graves {
    max: usize,
    calls: BTreeMap<CallId, Tombstone>,
    slots: BTreeSet<(Slot, CallId)>,
    /// Which leg has a tag of ours, by the tag's random part.
    tags: BTreeMap<u64, (CallId, usize)>,
    /// When each may go; those are missing that have only their detail's writing to wait for.
    until: BTreeSet<(UnixMs, CallId)>,
    /// BYEs in dialogs that belong to no call of ours.
    byes: BTreeSet<ClientKey>,
}

impl Graves {
    /// Returns room for `max` tombstones.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max,
            calls: BTreeMap::new(),
            slots: BTreeSet::new(),
            tags: BTreeMap::new(),
            until: BTreeSet::new(),
            byes: BTreeSet::new(),
        }
    }

    /// Puts up a tombstone, unless the call has one. Returns which one must go for it, if there are too
    /// many: the one that would have gone first.
    pub(crate) fn insert(&mut self, stone: Tombstone) -> Option<(Slot, CallId)> {
        if self.calls.contains_key(&stone.call) {
            return None;
        }
        for (leg, ended) in stone.legs.iter().enumerate() {
            self.tags.insert(ended.local_tag, (stone.call, leg));
        }
        self.until.insert((stone.until, stone.call));
        self.slots.insert((stone.slot, stone.call));
        self.calls.insert(stone.call, stone);
        if self.calls.len() <= self.max {
            return None;
        }
        let first = self.until.first().map(|(_, call)| *call);
        let first = first.or_else(|| self.calls.keys().next().copied())?;
        let slot = self.calls.get(&first)?.slot;
        self.remove(first);
        Some((slot, first))
    }

    /// Takes a tombstone away.
    pub(crate) fn remove(&mut self, call: CallId) {
        let Some(stone) = self.calls.remove(&call) else { return };
        self.slots.remove(&(stone.slot, call));
        self.until.remove(&(stone.until, call));
        for ended in stone.legs {
            self.tags.remove(&ended.local_tag);
        }
    }

    /// Returns a tombstone that has stood long enough, and whose detail needs nobody to write it.
    pub(crate) fn due(&mut self, now: UnixMs) -> Option<(Slot, CallId)> {
        while let Some(&(until, call)) = self.until.first()
            && until <= now
        {
            match self.calls.get(&call) {
                Some(stone) if stone.detail.is_none() => return Some((stone.slot, call)),
                Some(_) | None => self.until.remove(&(until, call)),
            };
        }
        None
    }

    /// The detail of a call is written down. Returns its slot if that is news.
    pub(crate) fn written(&mut self, call: CallId) -> Option<Slot> {
        let stone = self.calls.get_mut(&call)?;
        stone.detail.take()?;
        self.until.insert((stone.until, call));
        Some(stone.slot)
    }

    /// Returns when the next tombstone is to go.
    pub(crate) fn first_until(&self) -> Option<UnixMs> {
        self.until.first().map(|&(until, _)| until)
    }

    pub(crate) fn get(&self, call: CallId) -> Option<&Tombstone> {
        self.calls.get(&call)
    }

    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Returns the calls of a slot.
    pub(crate) fn of(&self, slot: Slot) -> impl Iterator<Item = CallId> {
        let all = (slot, CallId(0))..=(slot, CallId(u64::MAX));
        self.slots.range(all).map(|(_, call)| *call)
    }

    /// Answers a request inside a dialog that is over or was never there: a BYE may have crossed
    /// ours, or be a copy of one that another process answered.
    pub(crate) fn answer(&self, core: &mut Core, key: ServerKey, request: &Message) {
        let ended = request.to_tag().and_then(|tag| self.leg(tag));
        let peer = fingerprint(request.call_id(), request.from_tag().unwrap_or_default());
        let is_ours = ended.is_some_and(|ended| ended.peer == peer);
        let status = if is_ours && request.method() == Method::Bye { 200 } else { 481 };
        core.answer(key, request, status);
    }

    /// Acknowledges a 2xx to an INVITE of an ended call, or of one that was never known here, from
    /// what it says itself. A copy needs no more; another branch of a fork has a dialog of its own,
    /// which ends with BYE (RFC 3261 §13.2.2.4).
    pub(crate) fn accepted(&mut self, core: &mut Core, way: Way, answer: &Message) {
        let Some(Ok(mut dialog)) = dialog_of(answer).map(|dialog| dialog.answered(answer)) else {
            return;
        };
        if dialog.remote_target.is_empty() {
            return;
        }
        let peer = fingerprint(&dialog.call_id, &dialog.remote_tag);
        let is_copy = self.leg(&dialog.local_tag).is_some_and(|ended| ended.peer == peer);
        if !is_copy && BYES_MAX <= self.byes.len() {
            self.byes.retain(|key| core.transactions.has_client(*key));
            if BYES_MAX <= self.byes.len() {
                // Without an ACK its phone asks again.
                return;
            }
        }
        let Some(via) = core.via(&way) else { return };
        let ack = dialog.ack(dialog.local_cseq, &via).finish();
        core.send(way, ack.bytes().clone());
        let Some(addr) = core.advertised(&way.0).filter(|_| !is_copy) else { return };
        // The same for each copy of the answer: while the first BYE is open there is no other.
        let branch = message::branch(way.1, peer);
        let via = message::via_at(addr, way.0.transport, &branch);
        let bye = dialog.request(Method::Bye, &via).finish();
        let reliable = way.0.transport.is_reliable();
        self.byes.extend(core.transactions.request(core.now, way, reliable, &bye));
    }

    fn leg(&self, tag: &[u8]) -> Option<&EndedLeg> {
        let &(call, leg) = self.tags.get(&tag_key(tag)?)?;
        self.calls.get(&call)?.legs.get(leg)
    }
}

/// Returns what is left of a call that is over on both sides and asks for no more ACKs.
pub(crate) fn tombstone(record: &CallRecord, until: UnixMs) -> Tombstone {
    let leg = |index: usize| {
        let dialog = &record.legs[index].dialog;
        EndedLeg {
            local_tag: tag_key(&dialog.local_tag).unwrap_or_default(),
            peer: fingerprint(&dialog.call_id, &dialog.remote_tag),
        }
    };
    let (call, slot, detail) = (record.call, record.slot, record.detail.clone());
    Tombstone { call, slot, until, legs: [leg(0), leg(1)], detail }
}

/// Returns the dialog of an INVITE of ours before its answer, as the answer repeats it.
fn dialog_of(answer: &Message) -> Option<Dialog> {
    let from = answer.header(sip_core::Name::FROM)?;
    let tag = answer.from_tag()?;
    // We wrote it with the tag last.
    let local = from.strip_suffix(tag)?.strip_suffix(b";tag=")?;
    Some(Dialog {
        call_id: Bytes::copy_from_slice(answer.call_id()),
        local_tag: Bytes::copy_from_slice(tag),
        remote_tag: Bytes::new(),
        local: Bytes::copy_from_slice(local),
        remote: Bytes::new(),
        local_cseq: answer.cseq()?.number,
        remote_cseq: None,
        route_set: Vec::new(),
        remote_target: Bytes::new(),
        secure: false,
        confirmed: false,
    })
}

/// Returns a hash of a Call-ID and a peer's tag that is the same at every node.
fn fingerprint(call_id: &[u8], tag: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    for part in [call_id, tag] {
        hasher.write_usize(part.len());
        hasher.write(part);
        // No Call-ID or tag has one.
        hasher.write(&[0]);
    }
    hasher.finish()
}

/// BYEs of that kind at once: whoever makes up answers gets no more out of us.
const BYES_MAX: usize = 256;
