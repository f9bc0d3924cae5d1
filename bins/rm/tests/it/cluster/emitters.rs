//! Who speaks for a slot, as phones hear it: one owner at a time, whatever happens between the nodes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use b2bua::frame::SipOut;
use driver::{Class, Input, Metrics, Node, Output};
use failover::{Boot, Epoch, NodeId, Slot};
use rm::Rm;

/// What all gates of a cluster have sent to phones, by slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Emitters(Arc<Mutex<Book>>);

#[derive(Debug, Default)]
struct Book {
    newest: BTreeMap<Slot, Epoch>,
    /// Whose frames those were that came without a detour.
    owners: BTreeMap<(Slot, Epoch), Life>,
    wrong: Vec<String>,
}

impl Emitters {
    /// What phones heard that only one of two owners may have said.
    pub(crate) fn wrong(&self) -> Vec<String> {
        self.0.lock().unwrap().wrong.clone()
    }

    fn note(&self, gate: NodeId, said: &Said) {
        let mut book = self.0.lock().unwrap();
        let (slot, epoch) = (said.slot, said.epoch);
        let newest = *book.newest.entry(slot).or_insert(epoch);
        // An owner that won its slot anew has said this before, and it was long under way. Of another life of
        // its node nothing may be.
        let owner = |epoch| book.owners.get(&(slot, epoch)).copied();
        let is_late = owner(newest).is_some() && owner(newest) == said.by.or_else(|| owner(epoch));
        if epoch < newest && !is_late {
            let text = format!("gate {gate}: slot {slot}: {epoch:?} after {newest:?}: {said:?}");
            book.wrong.push(text);
        }
        book.newest.insert(slot, epoch.max(newest));
        if let Some(by) = said.by {
            let owner = *book.owners.entry((slot, epoch)).or_insert(by);
            if owner != by {
                book.wrong.push(format!("gate {gate}: slot {slot}: {owner} and {by} in {epoch:?}"));
            }
        }
    }
}

/// A node whose gate is listened to.
pub(crate) struct Watched {
    pub(crate) rm: Rm,
    id: NodeId,
    /// This life of the node, and those of the b2bs whose frames come without a detour.
    lives: BTreeMap<NodeId, Boot>,
    /// The b2bs.
    b2bs: [NodeId; 3],
    emitters: Emitters,
    /// The frame that it was told last.
    told: Option<Said>,
}

/// A message on its way to a phone.
#[derive(Clone, Debug)]
struct Said {
    slot: Slot,
    epoch: Epoch,
    by: Option<Life>,
}

/// One process of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Life {
    node: NodeId,
    boot: Boot,
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in boot {}", self.node, self.boot.0)
    }
}

impl Watched {
    pub(crate) fn new(
        rm: Rm,
        (id, boot): (NodeId, Boot),
        b2bs: [NodeId; 3],
        emitters: Emitters,
    ) -> Self {
        Self { rm, id, lives: BTreeMap::from([(id, boot)]), b2bs, emitters, told: None }
    }

    fn life(&self, node: NodeId) -> Option<Life> {
        Some(Life { node, boot: *self.lives.get(&node)? })
    }

    /// Who says what is sent now: who told the gate to, or the b2b of this process.
    fn said(&self, slot: Slot) -> Option<Said> {
        self.told.clone().filter(|told| told.slot == slot).or_else(|| {
            let epoch = self.rm.reign(slot)?.epoch;
            Some(Said { slot, epoch, by: self.life(self.id) })
        })
    }
}

impl Node for Watched {
    fn handle_input(&mut self, now: Instant, input: Input) {
        self.told = None;
        if let Input::LinkUp { peer, class: Class::Calls, boot } = &input {
            self.lives.insert(NodeId(peer.0), Boot(*boot));
        }
        if let Input::Frame { peer, kind: SipOut::KIND, payload, .. } = &input
            && let Ok(SipOut { slot, epoch, .. }) = SipOut::decode(payload.clone())
        {
            let peer = NodeId(peer.0);
            let by = self.life(peer).filter(|life| self.b2bs.contains(&life.node));
            self.told = Some(Said { slot, epoch, by });
        }
        self.rm.handle_input(now, input);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.told = None;
        self.rm.handle_timeout(now);
    }

    fn end_turn(&mut self, now: Instant) {
        self.rm.end_turn(now);
    }

    fn poll_output(&mut self) -> Option<Output> {
        let output = self.rm.poll_output()?;
        if let Output::Datagram { bytes, .. } | Output::Stream { bytes, .. } = &output
            && let Some(slot) = slot_of(bytes)
            && let Some(said) = self.said(slot)
        {
            self.emitters.note(self.id, &said);
        }
        Some(output)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.rm.poll_timeout()
    }

    fn metrics(&self, out: &mut Metrics) {
        self.rm.metrics(out);
    }
}

#[test]
fn an_owner_of_before_is_excused_in_the_same_life_only() {
    let (slot, node) = (Slot(7), NodeId(1));
    let said = |epoch, boot| {
        let by = Some(Life { node, boot: Boot(boot) });
        Said { slot, epoch: Epoch(epoch), by }
    };
    for (next, wrong) in [(1, 0), (2, 1)] {
        let emitters = Emitters::default();
        for said in [said(5, 1), said(6, next), said(5, 1)] {
            emitters.note(node, &said);
        }
        assert_eq!(emitters.wrong().len(), wrong, "{:?}", emitters.wrong());
    }
}

#[test]
fn two_lives_of_a_node_are_two_owners_and_may_not_share_an_epoch() {
    for (boot, wrong) in [(1, 0), (2, 1)] {
        let emitters = Emitters::default();
        for boot in [1, boot] {
            let by = Some(Life { node: NodeId(1), boot: Boot(boot) });
            emitters.note(NodeId(1), &Said { slot: Slot(7), epoch: Epoch(5), by });
        }
        assert_eq!(emitters.wrong().len(), wrong, "{:?}", emitters.wrong());
    }
}

/// The slot that a message to a phone names: a request in its branch, an answer in the tag that is ours.
/// What a gate answers by itself names none.
fn slot_of(bytes: &[u8]) -> Option<Slot> {
    if bytes.len() < 16 || !bytes.is_ascii() {
        return None;
    }
    let text = std::str::from_utf8(bytes).ok()?;
    let begins = if text.starts_with("SIP/2.0 ") {
        let to = text.lines().find(|line| line.starts_with("To:"))?;
        to.split_once(";tag=")?.1
    } else if text.lines().next()?.ends_with(" SIP/2.0") {
        let via = text.lines().find(|line| line.starts_with("Via:"))?;
        via.split_once("branch=z9hG4bK")?.1
    } else {
        return None;
    };
    u8::from_str_radix(begins.get(..2)?, 16).ok().map(Slot)
}
