//! Registrations (RFC 3261 §10.3, RFC 3327).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use bytes::Bytes;
use failover::record::Target;
use failover::replica::Key;
use failover::{Aor, Binding, Flow, Slot, UnixMs};
use sip_core::transactions::ServerKey;
use sip_core::{Message, Name, Uri};

use crate::call;
use crate::core::{Core, Way};
use crate::io::Event;
use crate::routing;

/// Who can be reached where.
#[derive(Debug, Default)]
pub(crate) struct Registrar {
    /// With the slot that an address lives in.
    aors: BTreeMap<Aor, (Slot, Vec<Binding>)>,
    slots: BTreeMap<Slot, BTreeSet<Aor>>,
    expiries: BTreeSet<(UnixMs, Aor)>,
}

/// What a REGISTER asks of one contact.
struct Change {
    uri: Bytes,
    expires: u32,
    q: u16,
}

impl Registrar {
    /// Answers a REGISTER: all of it takes effect or nothing.
    pub(crate) fn register(
        &mut self,
        core: &mut Core,
        key: ServerKey,
        (flow, slot): Way,
        request: &Message,
    ) {
        let to = request.to().and_then(|to| to.parsed_uri().ok());
        let Some(aor) = to.map(|uri| routing::address(&uri)).filter(|aor| !aor.user.is_empty())
        else {
            return core.answer(key, request, 400);
        };
        match self.apply(core, (flow, slot), request, &aor) {
            Ok(()) => self.grant(core, key, request, &aor),
            Err(423) => {
                let least = core.config.expires_min;
                core.answer_with(key, request, 423, |answer| {
                    answer.number(Name::MIN_EXPIRES, least)
                });
            }
            Err(503) => core.put_off(key, request, 503),
            Err(status) => core.answer(key, request, status),
        }
    }

    fn apply(
        &mut self,
        core: &mut Core,
        (flow, slot): Way,
        request: &Message,
        aor: &Aor,
    ) -> Result<(), u16> {
        let changes = self.changes(core, request)?;
        let cseq = request.cseq().map_or(0, |cseq| cseq.number);
        let call_id = Bytes::copy_from_slice(request.call_id());
        let path: Vec<_> = request.elements(Name::PATH).map(Bytes::copy_from_slice).collect();
        if PATH_MAX < path.len() {
            return Err(400);
        }
        let old = self.contacts(aor);
        let Some(changes) = changes else {
            let newer = |binding: &Binding| binding.call_id == call_id && cseq < binding.cseq;
            if old.iter().any(newer) {
                return Err(500);
            }
            self.write(core, slot, aor, Vec::new());
            core.changes.note(slot, Key::Aor(Box::new(aor.clone())), true);
            return Ok(());
        };
        if old.is_empty() && core.config.aors_max <= self.aors.len() {
            return Err(503);
        }
        let mut bindings: Vec<_> =
            old.iter().filter(|binding| core.unix < binding.expires_at).cloned().collect();
        for change in changes {
            let found = bindings.iter().position(|binding| same_uri(&binding.uri, &change.uri));
            if let Some(index) = found {
                let binding = &bindings[index];
                // RFC 3261 §10.3 step 7, but for a copy of the same request.
                if binding.call_id == call_id && cseq < binding.cseq {
                    return Err(500);
                }
                bindings.remove(index);
            }
            if change.expires == 0 {
                continue;
            }
            let flow = way(core, flow, &change.uri);
            bindings.push(Binding {
                uri: change.uri,
                call_id: call_id.clone(),
                cseq,
                expires_at: UnixMs(core.unix.0 + 1000 * u64::from(change.expires)),
                flow,
                path: path.clone(),
                q: change.q,
            });
        }
        // Phones that come back with another contact each time push out their oldest.
        while core.config.contacts_max < bindings.len() {
            bindings.remove(0);
        }
        self.write(core, slot, aor, bindings);
        core.changes.note(slot, Key::Aor(Box::new(aor.clone())), true);
        Ok(())
    }

    /// Reads what is to change; `None` when all contacts go.
    fn changes(&self, core: &Core, request: &Message) -> Result<Option<Vec<Change>>, u16> {
        let config = &core.config;
        let default = request.expires();
        let mut changes = Vec::new();
        for contact in request.contacts() {
            if contact.is_star() {
                let alone = request.contacts().count() == 1 && default == Some(0);
                return if alone { Ok(None) } else { Err(400) };
            }
            let uri = contact.parsed_uri().map_err(|_| 400_u16)?;
            let asked = contact.expires().or(default).unwrap_or(config.expires_default);
            if asked != 0 && asked < config.expires_min {
                return Err(423);
            }
            changes.push(Change {
                uri: Bytes::copy_from_slice(uri.as_bytes()),
                expires: asked.min(config.expires_max),
                q: contact.param(b"q").map_or(1000, thousandths),
            });
            if CHANGES_MAX < changes.len() {
                return Err(400);
            }
        }
        Ok(Some(changes))
    }

    fn write(&mut self, core: &mut Core, slot: Slot, aor: &Aor, bindings: Vec<Binding>) {
        if let Some(at) = earliest(self.contacts(aor)) {
            self.expiries.remove(&(at, aor.clone()));
        }
        let before = self.aors.remove(aor);
        if let Some(its) = before.as_ref().and_then(|(slot, _)| self.slots.get_mut(slot)) {
            its.remove(aor);
        }
        let Some(at) = earliest(&bindings) else {
            if before.is_some() && core.owns(slot) {
                core.event(Event::Unregistered { aor: text(aor) });
            }
            return;
        };
        self.expiries.insert((at, aor.clone()));
        self.slots.entry(slot).or_default().insert(aor.clone());
        self.aors.insert(aor.clone(), (slot, bindings));
    }

    /// Answers 200 with all contacts there now are.
    fn grant(&self, core: &mut Core, key: ServerKey, request: &Message, aor: &Aor) {
        core.counters.registers += 1;
        let bindings = self.contacts(aor);
        let now = core.unix;
        let left = |binding: &Binding| binding.expires_at.0.saturating_sub(now.0).div_ceil(1000);
        let cseq = request.cseq().map_or(0, |cseq| cseq.number);
        for binding in bindings {
            if binding.call_id == request.call_id() && binding.cseq == cseq {
                core.event(Event::Registered {
                    aor: text(aor),
                    contact: binding.uri.clone(),
                    from: binding.flow.remote,
                    expires: u32::try_from(left(binding)).unwrap_or(u32::MAX),
                });
            }
        }
        core.answer_with(key, request, 200, |mut answer| {
            for binding in bindings {
                let expires = format!(";expires={}", left(binding));
                let value = [b"<", &binding.uri[..], b">", expires.as_bytes()].concat();
                answer = answer.header(Name::CONTACT, value);
            }
            answer.copy(request, Name::PATH)
        });
    }

    /// Drops what has run out.
    pub(crate) fn handle_timeout(&mut self, core: &mut Core) {
        while let Some((at, aor)) = self.expiries.first()
            && *at <= core.unix
        {
            let aor = aor.clone();
            let (slot, mut bindings) = self.aors.get(&aor).cloned().unwrap_or_default();
            bindings.retain(|binding| core.unix < binding.expires_at);
            self.write(core, slot, &aor, bindings);
            // What another b2b owns is only read here.
            if core.owns(slot) {
                core.changes.note(slot, Key::Aor(Box::new(aor)), false);
            }
        }
    }

    pub(crate) fn poll_timeout(&self, core: &Core) -> Option<Instant> {
        self.expiries.first().map(|(at, _)| core.clock.instant_at(*at))
    }

    /// Returns where the phones of a user are, the most wanted first, then the newest.
    pub(crate) fn targets(&self, core: &Core, aor: &Aor) -> Vec<Target> {
        let bindings = self.contacts(aor);
        let mut living: Vec<_> =
            bindings.iter().rev().filter(|binding| core.unix < binding.expires_at).collect();
        living.sort_by_key(|binding| std::cmp::Reverse(binding.q));
        let target = |binding: &Binding| Target {
            uri: binding.uri.clone(),
            routes: binding.path.clone(),
            flow: binding.flow,
            registered: true,
        };
        living.into_iter().map(target).collect()
    }

    /// Returns whether a request comes from a phone that is registered as its From says.
    pub(crate) fn knows(&self, core: &Core, request: &Message, flow: &Flow) -> bool {
        let from = request.from().and_then(|from| from.parsed_uri().ok());
        let bindings = from.and_then(|uri| self.aors.get(&routing::address(&uri)));
        bindings.is_some_and(|(_, bindings)| {
            bindings
                .iter()
                .any(|binding| is_same_peer(&binding.flow, flow) && core.unix < binding.expires_at)
        })
    }

    pub(crate) fn bindings(&self) -> impl Iterator<Item = (&Aor, &Binding)> {
        self.aors.iter().flat_map(|(aor, (_, bindings))| bindings.iter().map(move |b| (aor, b)))
    }

    /// Returns the contacts of an address.
    pub(crate) fn contacts(&self, aor: &Aor) -> &[Binding] {
        self.aors.get(aor).map(|(_, bindings)| &bindings[..]).unwrap_or_default()
    }

    /// Returns the addresses that live in a slot.
    pub(crate) fn aors_of(&self, slot: Slot) -> impl Iterator<Item = &Aor> {
        self.slots.get(&slot).into_iter().flatten()
    }

    /// Takes over the contacts of an address as another process has them.
    pub(crate) fn restore(
        &mut self,
        core: &mut Core,
        slot: Slot,
        aor: &Aor,
        bindings: Vec<Binding>,
    ) {
        self.write(core, slot, aor, bindings);
    }

    pub(crate) fn len(&self) -> usize {
        self.aors.len()
    }
}

/// Returns the way to a contact that was registered on `source`: with datagrams the way back, unless the
/// contact wants a stream; else the connection, and once that is gone where the contact says.
fn way(core: &Core, source: Flow, contact: &[u8]) -> Flow {
    let Ok(uri) = Uri::parse(contact) else { return source };
    let flow = call::towards(core, &uri, source, false);
    if flow.transport.is_reliable() { flow } else { source }
}

/// Returns whether what came on a flow is from the phone that has the other: by its connection, or by the
/// address where it can be reached. Port 0 is none: of those behind one NAT each has its connection only.
fn is_same_peer(binding: &Flow, flow: &Flow) -> bool {
    let connection = |flow: &Flow| (flow.gate, flow.boot, flow.connection);
    let is_stream = binding.transport == flow.transport && flow.transport.is_reliable();
    (is_stream && connection(binding) == connection(flow))
        || (binding.remote == flow.remote && flow.remote.port() != 0)
}

fn earliest(bindings: &[Binding]) -> Option<UnixMs> {
    bindings.iter().map(|binding| binding.expires_at).min()
}

fn same_uri(one: &[u8], other: &[u8]) -> bool {
    one == other
        || matches!((Uri::parse(one), Uri::parse(other)), (Ok(one), Ok(other))
            if one.is_equivalent(&other))
}

/// Reads a q value: 0 to 1 with at most three decimals.
fn thousandths(text: &[u8]) -> u16 {
    let text = std::str::from_utf8(text).unwrap_or_default();
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    if whole != "0" {
        return 1000;
    }
    let digits = rest.bytes().filter(u8::is_ascii_digit).take(3);
    let value = digits
        .fold((0, 100), |(sum, unit), digit| (sum + unit * u16::from(digit - b'0'), unit / 10));
    value.0
}

fn text(aor: &Aor) -> Bytes {
    match aor.domain.is_empty() {
        true => aor.user.clone(),
        false => Bytes::from([&aor.user[..], b"@", &aor.domain[..]].concat()),
    }
}

const CHANGES_MAX: usize = 16;
const PATH_MAX: usize = 8;
