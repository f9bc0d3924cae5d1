//! Two nodes that a test drives, and what they are told.

use super::super::*;
use crate::handover::{Grow, Prepare};
use crate::{Counter, Direction, Limits, Method, Node, Part, Recipe, Sight, Tree};

/// Both nodes of a segment, the first of which speaks, and the link between them.
pub(super) struct Two {
    pub(super) now: Instant,
    pub(super) nodes: [Pair; 2],
    dead: [bool; 2],
    linked: bool,
    /// Keeps what is on its way.
    pub(super) deaf: bool,
    pub(super) mail: VecDeque<(usize, PairMessage)>,
    pub(super) sent: Vec<ToCoordinator>,
    takes_over: Option<usize>,
    /// Who told of refusals.
    pub(super) refused: Vec<usize>,
    /// Loses what hands a part over.
    pub(super) loses_offers: bool,
    pub(super) loses_changes: bool,
    /// Whether only who takes a part over hears of it.
    pub(super) uncertain: bool,
    /// How often the whole state arrived.
    pub(super) whole: u32,
    /// How often a node told that it counts from now on.
    pub(super) begun: u32,
    pub(super) verdicts: std::collections::BTreeMap<u64, Result<Admission, Denial>>,
    /// What lives on each node, and on both where copies count.
    pub(super) lives_at: [Vec<Call>; 2],
    pub(super) live: Vec<Call>,
}

impl Two {
    pub(super) fn with_share(cap: u32) -> Self {
        let config = PairConfig {
            segment: SegmentId(1),
            paired: true,
            timing: Timing::WAN,
            period: Duration::from_secs(1),
            patience: Duration::from_secs(8),
            answer: Duration::from_millis(150),
        };
        let node = || Pair::new(config, document(), None, 7);
        let mut two = Self {
            now: now(),
            nodes: [node(), node()],
            dead: [false; 2],
            linked: false,
            deaf: false,
            mail: VecDeque::new(),
            sent: Vec::new(),
            takes_over: None,
            refused: Vec::new(),
            loses_offers: false,
            loses_changes: false,
            uncertain: false,
            whole: 0,
            begun: 0,
            verdicts: std::collections::BTreeMap::new(),
            lives_at: [Vec::new(), Vec::new()],
            live: Vec::new(),
        };
        two.link();
        two.input(0, PairInput::Role(Role::Speaker));
        two.input(1, PairInput::Role(Role::Partner));
        two.hear_coordinator(0, ToMember::Prepare(prepare(1)));
        let grow = Grow { stamp: stamp(1), seq: 1, rest: false, cells: vec![(0, cap)] };
        two.hear_coordinator(0, ToMember::Grow(grow));
        two
    }

    pub(super) fn link(&mut self) {
        self.linked = true;
        self.tell_link();
    }

    pub(super) fn unlink(&mut self) {
        self.linked = false;
        self.mail.clear();
        self.tell_link();
    }

    fn tell_link(&mut self) {
        for at in 0..2 {
            let present = !self.dead[1 - at];
            self.input(at, PairInput::Other { linked: self.linked, present });
        }
    }

    pub(super) fn die(&mut self, at: usize) {
        self.dead[at] = true;
        self.unlink();
    }

    pub(super) fn hear_coordinator(&mut self, at: usize, message: ToMember) {
        self.input(at, PairInput::Coordinator(message));
    }

    pub(super) fn request(&mut self, at: usize, id: u64, exempt: bool) {
        self.nodes[at].request(self.now, call(id), exempt);
        self.deliver();
    }

    pub(super) fn release(&mut self, at: usize, id: u64) {
        self.nodes[at].release(self.now, CallId(id));
        self.deliver();
    }

    pub(super) fn pass(&mut self, ms: u64) {
        let until = self.now + Duration::from_millis(ms);
        loop {
            let due = (0..2).filter(|at| !self.dead[*at]);
            let due = due.filter_map(|at| Some((self.nodes[at].poll_timeout()?, at))).min();
            let Some((at, node)) = due.filter(|(at, _)| *at <= until) else { break };
            self.now = at;
            self.nodes[node].handle_timeout(at);
            assert!(self.nodes[node].poll_timeout().is_none_or(|due| at < due));
            self.deliver();
        }
        self.now = until;
    }

    pub(super) fn input(&mut self, at: usize, input: PairInput) {
        if !self.dead[at] {
            self.nodes[at].handle_input(self.now, input);
            self.deliver();
        }
    }

    pub(super) fn deliver(&mut self) {
        loop {
            self.drain();
            if self.deaf {
                return;
            }
            if let Some(at) = self.takes_over.take() {
                self.input(at, PairInput::Role(Role::Speaker));
                if !self.uncertain {
                    self.input(1 - at, PairInput::Role(Role::Partner));
                }
            }
            let Some((to, message)) = self.mail.pop_front() else { return };
            self.whole += u32::from(matches!(message, PairMessage::State { .. }));
            if self.loses_offers && matches!(message, PairMessage::HandOver { .. }) {
                continue;
            }
            if self.loses_changes && matches!(message, PairMessage::Change { .. }) {
                continue;
            }
            self.nodes[to].handle_input(self.now, PairInput::Received(message));
        }
    }

    pub(super) fn drain(&mut self) {
        for at in 0..2 {
            while let Some(output) = self.nodes[at].poll_output() {
                match output {
                    PairOutput::Partner(message) if self.linked => {
                        self.mail.push_back((1 - at, message));
                    }
                    PairOutput::Coordinator { message, .. } => self.sent.push(message),
                    PairOutput::Decided { call, verdict } => {
                        self.verdicts.insert(call.0, verdict);
                    }
                    PairOutput::NeedLive { copied } => {
                        let own = self.lives_at[at].clone();
                        let live = if copied { self.live.clone() } else { own };
                        self.nodes[at].handle_input(self.now, PairInput::Live(live));
                    }
                    PairOutput::TakeOver => self.takes_over = Some(at),
                    PairOutput::Begun => self.begun += 1,
                    PairOutput::Refused(_) => self.refused.push(at),
                    PairOutput::Partner(_)
                    | PairOutput::Counted(_)
                    | PairOutput::Recounted(_)
                    | PairOutput::Drifted(_)
                    | PairOutput::Alone(_)
                    | PairOutput::Lapsed => {}
                }
            }
        }
    }

    pub(super) fn used(&self, at: usize) -> Option<u32> {
        let member = self.nodes[at].member()?;
        Some(member.ledger().view(call(0).node, Counter::Calls).used)
    }

    pub(super) fn share(&self, at: usize) -> Option<u32> {
        let member = self.nodes[at].member()?;
        member.ledger().view(call(0).node, Counter::Calls).share
    }
}

pub(super) fn prepare(round: u32) -> Prepare {
    let part = Part { segment: 1, weight: 1, usual: 1, present: true };
    let document = document();
    let recipe = Recipe {
        document: document.version(),
        digest: document.digest(),
        parts: vec![part],
        sight: Sight::Whole,
        eager: false,
    };
    Prepare { stamp: stamp(round), recipe, column: None }
}

pub(super) fn stamp(round: u32) -> Stamp {
    Stamp { epoch: Epoch { term: 1, ..Epoch::default() }, round }
}

pub(super) fn call(id: u64) -> Call {
    let node = document().tree().find("t").unwrap();
    Call { id: CallId(id), node, direction: Direction::Inbound }
}

pub(super) fn call_at(document: &Document, id: u64, name: &str) -> Call {
    let node = document.tree().find(name).unwrap();
    Call { id: CallId(id), node, direction: Direction::Inbound }
}

/// Has another tenant before the one.
pub(super) fn wide() -> Arc<Document> {
    let limits = Limits { calls: Some(10), ..Limits::default() };
    let node = |name: &str| Node { name: name.into(), limits, ..Node::default() };
    let tree = Tree::new(vec![node("first"), node("t")]).unwrap();
    Arc::new(Document::new(2, tree, Method::Dhondt))
}

pub(super) fn document() -> Arc<Document> {
    let limits = Limits { calls: Some(10), ..Limits::default() };
    let tree = Tree::new(vec![Node { name: "t".into(), limits, ..Node::default() }]).unwrap();
    Arc::new(Document::new(1, tree, Method::Dhondt))
}

#[expect(clippy::disallowed_methods, reason = "where time starts does not matter")]
fn now() -> Instant {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *START.get_or_init(Instant::now)
}
