//! Slots and their records: what is kept elsewhere, what comes from there, and what is not ours.

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
        let calls = self.calls.values().filter(|call| call.record.slot == slot);
        let stones = self.graves.iter().filter(|stone| stone.slot == slot);
        let calls = calls.map(|call| call.id()).chain(stones.map(|stone| stone.call));
        let aors = self.registrar.aors_of(slot).cloned();
        calls.map(Key::Call).chain(aors.map(Key::Aor)).collect()
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
        self.calls.insert(id, Box::new(call));
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
            self.graves.insert(stone);
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
        for id in self.calls_of(&[slot]) {
            self.with_call(id, |call, _| call.enter(epoch));
        }
    }

    /// Takes in that slots are another b2b's.
    pub(super) fn lose(&mut self, slots: &[Slot]) {
        for slot in slots {
            self.core.set_epoch(*slot, Epoch::default());
        }
        self.drop_waiting(slots);
        let at = self.core.now + LOST_PORTS;
        for id in self.calls_of(slots) {
            let Some(mut call) = self.calls.remove(&id) else { continue };
            let places = call.drop_silently(&mut self.core);
            self.lost.extend(places.into_iter().map(|place| (at, place)));
        }
        let stones = self.graves.iter().filter(|stone| slots.contains(&stone.slot));
        for id in stones.map(|stone| stone.call).collect::<Vec<_>>() {
            self.graves.remove(id);
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

    fn calls_of(&self, slots: &[Slot]) -> Vec<CallId> {
        let calls = self.calls.values().filter(|call| slots.contains(&call.record.slot));
        calls.map(|call| call.id()).collect()
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
