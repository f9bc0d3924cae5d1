//! Slots and their records: what is kept elsewhere, what comes from there, and what is not ours.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use failover::record::{RECORD_LEN_MAX, Value, ValueRef};
use failover::replica::Key;
use failover::{CallId, CallRecord, Epoch, Slot, Tombstone};
use sip_core::transactions::ServerKey;
use sip_core::{Message, Method};

use super::B2b;
use crate::call::Call;
use crate::core::Way;
use crate::frame::SipIn;
use crate::io::Output;

/// Calls that follow their slots into a later epoch, a part at a time: until then a record names the
/// one before.
#[derive(Default)]
pub(super) struct Entering {
    calls: VecDeque<CallId>,
    next_at: Option<Instant>,
}

impl Entering {
    /// Returns when the next part is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.next_at
    }
}

impl B2b {
    /// Returns the record of this name as it is to be kept elsewhere: at the slot's standby and on
    /// disk. `None` when there is none, or when it is longer than [`RECORD_LEN_MAX`]: such a call is
    /// served and not protected.
    pub fn stored(&self, key: &Key) -> Option<ValueRef<'_>> {
        match key {
            Key::Call(id) => match self.calls.get(id) {
                Some(call) => (call.record.len_bound() <= RECORD_LEN_MAX)
                    .then_some(ValueRef::Call(&call.record)),
                None => self.graves.get(*id).map(ValueRef::Ended),
            },
            Key::Aor(aor) => {
                let contacts = self.registrar.contacts(aor);
                (!contacts.is_empty()).then_some(ValueRef::Bindings(contacts))
            }
        }
    }

    /// Returns the names of all records of a slot.
    pub fn keys_of(&self, slot: Slot) -> Vec<Key> {
        let calls = self.calls_of(slot).chain(self.graves.of(slot));
        let aors = self.registrar.aors_of(slot).cloned();
        calls.map(Key::Call).chain(aors.map(|aor| Key::Aor(Box::new(aor)))).collect()
    }

    /// Goes on with a record of another process, or of an earlier life of this one. Deadlines that
    /// have passed meanwhile are due at once.
    ///
    /// Calls and tombstones are taken after [`crate::Input::Owned`] of their slot; one that is here
    /// already is left as it is. Bindings replace those that are here, also in slots of others: these
    /// are read for calls and never changed by us. `None` says that the address has none any more.
    pub fn restore(&mut self, now: Instant, slot: Slot, key: &Key, value: Option<Value>) {
        self.core.set_time(now);
        match (key, value) {
            (_, Some(Value::Call(record))) => self.restore_call(*record),
            (_, Some(Value::Ended(stone))) => self.restore_tombstone(stone),
            (Key::Aor(aor), Some(Value::Bindings(bindings))) => {
                self.registrar.restore(&mut self.core, slot, aor, bindings);
            }
            (Key::Aor(aor), None) => {
                self.registrar.restore(&mut self.core, slot, aor, Vec::new());
            }
            (Key::Call(_), Some(Value::Bindings(_)) | None) => {}
        }
        self.pump();
    }

    fn restore_call(&mut self, record: CallRecord) {
        let id = record.call;
        if self.is_here(id) || !self.core.owns(record.slot) {
            return;
        }
        let call = Call::restored(&mut self.core, record);
        let places = [call.record.standby, call.record.holder];
        self.put_call(Box::new(call));
        for place in places.into_iter().flatten() {
            // Who wrote the record may not have heard of it, or not had the time.
            if self.core.is_dead(place.gateway, place.boot) {
                self.with_call(id, |call, core| {
                    call.gateway_died(core, place.gateway, place.boot);
                });
            }
        }
        self.with_call(id, |_, _| {});
        self.with_call(id, Call::replace_ports);
    }

    fn restore_tombstone(&mut self, stone: Tombstone) {
        if !self.is_here(stone.call) && self.core.owns(stone.slot) {
            self.core.outputs.extend(stone.detail.clone().map(Output::Detail));
            self.bury(stone);
        }
    }

    pub(super) fn put_call(&mut self, call: Box<Call>) {
        self.slots.insert((call.record.slot, call.id()));
        self.calls.insert(call.id(), call);
    }

    pub(super) fn take_call(&mut self, id: CallId) -> Option<Box<Call>> {
        let call = self.calls.remove(&id)?;
        self.slots.remove(&(call.record.slot, id));
        Some(call)
    }

    /// Puts up a tombstone. Of too many the one that would have gone first goes.
    pub(super) fn bury(&mut self, stone: Tombstone) {
        if let Some((slot, call)) = self.graves.insert(stone) {
            self.core.counters.forgotten += 1;
            self.core.changes.note(slot, Key::Call(call), false);
        }
    }

    /// Takes in that the detail of a call is written down.
    pub(super) fn written(&mut self, call: CallId) {
        if let Some(slot) = self.graves.written(call) {
            self.core.changes.note(slot, Key::Call(call), false);
        }
        self.with_call(call, |call, _| call.record.detail = None);
    }

    fn is_here(&self, call: CallId) -> bool {
        self.calls.contains_key(&call) || self.graves.get(call).is_some()
    }

    /// Takes in that a slot is ours, perhaps in a later epoch than before.
    pub(super) fn own(&mut self, slot: Slot, epoch: Epoch) {
        let before = self.core.epoch(slot);
        self.core.set_epoch(slot, epoch);
        if before == epoch || before == Epoch::default() {
            return;
        }
        let calls: Vec<CallId> = self.calls_of(slot).collect();
        self.entering.calls.extend(calls);
        self.entering.next_at.get_or_insert(self.core.now);
    }

    /// Lets the next calls take over the epoch of their slot.
    pub(super) fn enter_some(&mut self, now: Instant) {
        if self.entering.next_at.is_none_or(|at| now < at) {
            return;
        }
        let left = self.entering.calls.split_off(ENTERING.min(self.entering.calls.len()));
        for id in std::mem::replace(&mut self.entering.calls, left) {
            self.with_call(id, |call, core| call.enter(core.epoch(call.record.slot)));
        }
        self.entering.next_at = (!self.entering.calls.is_empty()).then_some(now + ENTERING_PAUSE);
    }

    /// Takes in that slots are another b2b's.
    pub(super) fn lose(&mut self, slots: &[Slot]) {
        for slot in slots {
            self.core.set_epoch(*slot, Epoch::default());
        }
        self.drop_waiting(slots);
        let at = self.core.now + LOST_PORTS;
        for slot in slots {
            for id in self.calls_of(*slot).collect::<Vec<_>>() {
                let Some(mut call) = self.take_call(id) else { continue };
                let places = call.drop_silently(&mut self.core);
                self.lost.extend(places.into_iter().map(|place| (at, place)));
            }
            for id in self.graves.of(*slot).collect::<Vec<_>>() {
                self.graves.remove(id);
            }
        }
        self.core.drop_lost();
    }

    /// Gives back the ports of calls that were lost some time ago.
    pub(super) fn free_lost(&mut self, now: Instant) {
        while self.lost.front().is_some_and(|(at, _)| *at <= now) {
            let freed = self.lost.pop_front().map(|(_, place)| Output::Freed(place));
            self.core.outputs.extend(freed);
        }
    }

    fn calls_of(&self, slot: Slot) -> impl Iterator<Item = CallId> {
        let all = (slot, CallId(0))..=(slot, CallId(u64::MAX));
        self.slots.range(all).map(|(_, call)| *call)
    }

    /// Returns the slot in which a message is handled here. One of another b2b is passed on once.
    pub(super) fn slot_of(&mut self, sip: &SipIn, message: &Message) -> Option<Slot> {
        if self.core.owns(sip.slot) {
            return Some(sip.slot);
        }
        let (first, _) = self.core.owned();
        if sip.hops == 0 {
            self.core.outputs.push_back(Output::PassOn(SipIn { hops: 1, ..sip.clone() }));
        } else if message.is_request() && message.method() == Method::Cancel && first.is_some() {
            // Its INVITE may have come here for the sake of a Replaces header.
            return first;
        } else {
            self.core.counters.discarded += 1;
        }
        None
    }

    /// Answers a CANCEL whose INVITE is not known. It may be at another b2b, since a CANCEL carries
    /// no Replaces header: then that one answers.
    pub(super) fn stray_cancel(&mut self, key: ServerKey, (flow, slot): Way, cancel: &Message) {
        let (_, all) = self.core.owned();
        if all || 0 < self.core.hops {
            return self.core.answer(key, cancel, 481);
        }
        self.core.transactions.dismiss(key);
        let bytes = cancel.bytes().clone();
        self.core.outputs.push_back(Output::PassOn(SipIn { slot, hops: 1, flow, bytes }));
    }
}

/// Ports of a call that moved to another b2b stay taken for so long: by then it has others for its
/// standby, and whatever of the old ones it still uses is open at its mediagate.
const LOST_PORTS: Duration = Duration::from_secs(64);

/// So many calls take over an epoch at a time: some milliseconds of work.
const ENTERING: usize = 1024;

/// Between two parts of those, for what came meanwhile.
const ENTERING_PAUSE: Duration = Duration::from_millis(1);
