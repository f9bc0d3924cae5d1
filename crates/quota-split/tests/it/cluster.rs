//! Segments, a coordinator, and a network with a delay, on a clock that jumps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quota_split::handover::{
    Alarm, Coordinator, CoordinatorInput, CoordinatorOutput, Epoch, Member, MemberInput,
    MemberOutput, Stamp, Timing, ToCoordinator, ToMember, Verdict,
};
use quota_split::{
    Admission, Call, CallId, Counter, Direction, Document, Part, Refusal, SegmentId,
};

pub(crate) struct Cluster {
    pub(crate) now: Instant,
    pub(crate) members: BTreeMap<u32, Member>,
    pub(crate) coordinator: Coordinator,
    pub(crate) document: Arc<Document>,
    pub(crate) alarms: Vec<Alarm>,
    pub(crate) outranked: Vec<Epoch>,
    /// Segments that said that they take no new calls.
    pub(crate) drains: Vec<u32>,
    pub(crate) decided: Vec<(CallId, Result<Admission, Refusal>)>,
    pub(crate) unknown: Vec<CallId>,
    pub(crate) lapsed: Vec<u32>,
    /// Messages sent so far.
    pub(crate) sent: u64,
    /// Whom the network reaches.
    pub(crate) reached: Vec<u32>,
    /// How many of the next messages are lost.
    pub(crate) lose: u32,
    delay: Duration,
    flying: BTreeMap<(Instant, u64), Packet>,
    /// Everything that has arrived.
    arrived: Vec<Packet>,
    term: u64,
    calls: u64,
}

#[derive(Clone)]
enum Packet {
    Down(u32, ToMember),
    Up(u32, ToCoordinator),
}

impl Cluster {
    /// Starts segments with weights; nobody leads yet.
    pub(crate) fn new(document: Document, segments: &[u32], delay: Duration) -> Self {
        Self::with(document, segments, delay, false)
    }

    pub(crate) fn with(document: Document, segments: &[u32], delay: Duration, eager: bool) -> Self {
        #[expect(clippy::disallowed_methods, reason = "where time starts does not matter")]
        let now = Instant::now();
        let document = Arc::new(document);
        let member = |&id: &u32| {
            let document = document.clone();
            (id, Member::new(now, SegmentId(id), Timing::WAN, document, None, 7))
        };
        Self {
            now,
            members: segments.iter().map(member).collect(),
            coordinator: Coordinator::new(Timing::WAN, eager, document.clone()),
            document,
            alarms: Vec::new(),
            outranked: Vec::new(),
            drains: Vec::new(),
            decided: Vec::new(),
            unknown: Vec::new(),
            lapsed: Vec::new(),
            sent: 0,
            reached: segments.to_vec(),
            lose: 0,
            delay,
            flying: BTreeMap::new(),
            arrived: Vec::new(),
            term: 0,
            calls: 0,
        }
    }

    /// Lets the coordinator lead a new epoch; those with a weight of `None` are away.
    pub(crate) fn lead(&mut self, weights: &[(u32, u32)], away: &[u32]) {
        self.term += 1;
        self.lead_on(weights, away);
    }

    /// Leads a further round of the same epoch.
    pub(crate) fn lead_on(&mut self, weights: &[(u32, u32)], away: &[u32]) {
        let part = |&(segment, weight): &(u32, u32)| Part {
            segment,
            weight,
            usual: weight,
            present: !away.contains(&segment),
        };
        self.hand(weights.iter().map(part).collect());
    }

    pub(crate) fn lead_parts(&mut self, parts: Vec<Part>) {
        self.term += 1;
        self.hand(parts);
    }

    /// Leads a further round of the same epoch.
    pub(crate) fn hand(&mut self, parts: Vec<Part>) {
        let epoch = Epoch { term: self.term, ..Epoch::default() };
        self.coordinator.handle_input(self.now, CoordinatorInput::Lead { epoch, parts });
        self.drain();
    }

    pub(crate) fn call(&mut self, segment: u32, node: &str) -> (CallId, Verdict) {
        self.calls += 1;
        let id = CallId(self.calls);
        let node = self.document.tree().find(node).unwrap();
        let call = Call { id, node, direction: Direction::Inbound };
        let verdict = self.members.get_mut(&segment).unwrap().request(self.now, call, false);
        self.drain();
        (id, verdict)
    }

    /// Fills a segment until it refuses.
    pub(crate) fn fill(&mut self, segment: u32, node: &str) -> Vec<CallId> {
        let mut calls = Vec::new();
        while let (id, Verdict::Admitted(_)) = self.call(segment, node) {
            calls.push(id);
        }
        calls
    }

    pub(crate) fn hang_up(&mut self, segment: u32, id: CallId) -> bool {
        let released = self.members.get_mut(&segment).unwrap().release(self.now, id);
        self.drain();
        released
    }

    pub(crate) fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(at) = self.next_at().filter(|&at| at <= end) {
            self.now = self.now.max(at);
            self.step();
        }
        self.now = end;
    }

    pub(crate) fn next_at(&self) -> Option<Instant> {
        let flying = self.flying.keys().next().map(|(at, _)| *at);
        let members = self.members.values().filter_map(Member::poll_timeout);
        members.chain(flying).chain(self.coordinator.poll_timeout()).min()
    }

    /// Does what is due now.
    pub(crate) fn step(&mut self) {
        while let Some(entry) = self.flying.first_entry().filter(|e| e.key().0 <= self.now) {
            let packet = entry.remove();
            let (Packet::Down(other, _) | Packet::Up(other, _)) = &packet;
            if self.reached.contains(other) {
                self.arrived.push(packet.clone());
                self.arrive(packet);
            }
        }
        for member in self.members.values_mut() {
            if member.poll_timeout().is_some_and(|at| at <= self.now) {
                member.handle_timeout(self.now);
                let due = member.poll_timeout().is_some_and(|at| at <= self.now);
                assert!(!due, "a handled timeout is due again: {member:?}");
            }
        }
        if self.coordinator.poll_timeout().is_some_and(|at| at <= self.now) {
            self.coordinator.handle_timeout(self.now);
            let due = self.coordinator.poll_timeout().is_some_and(|at| at <= self.now);
            assert!(!due, "a handled timeout is due again: {:?}", self.coordinator);
        }
        self.drain();
    }

    fn arrive(&mut self, packet: Packet) {
        match packet {
            Packet::Down(to, message) => {
                let member = self.members.get_mut(&to).unwrap();
                member.handle_input(self.now, MemberInput::Received(message));
            }
            Packet::Up(from, message) => {
                let from = SegmentId(from);
                let input = CoordinatorInput::Received { from, message };
                self.coordinator.handle_input(self.now, input);
            }
        }
        self.drain();
    }

    /// Lets everything that has ever arrived arrive once more, the last first, or the first.
    pub(crate) fn replay(&mut self, backwards: bool) -> usize {
        let mut packets = self.arrived.clone();
        if backwards {
            packets.reverse();
        }
        let count = packets.len();
        packets.into_iter().for_each(|packet| self.arrive(packet));
        count
    }

    pub(crate) fn drain(&mut self) {
        let ids: Vec<u32> = self.members.keys().copied().collect();
        for id in ids {
            while let Some(output) = self.members.get_mut(&id).and_then(Member::poll_output) {
                match output {
                    MemberOutput::Send { message, .. } => self.fly(Packet::Up(id, message)),
                    MemberOutput::Decided { call, verdict } => self.decided.push((call, verdict)),
                    MemberOutput::Recounted(_) => {}
                    MemberOutput::Unknown(call) => self.unknown.push(call),
                    MemberOutput::Lapsed => self.lapsed.push(id),
                }
            }
        }
        while let Some(output) = self.coordinator.poll_output() {
            match output {
                CoordinatorOutput::Send { to, message } => self.fly(Packet::Down(to.0, message)),
                CoordinatorOutput::Alarm(alarm) => self.alarms.push(alarm),
                CoordinatorOutput::Ceased(alarm) => self.alarms.retain(|told| *told != alarm),
                CoordinatorOutput::Drains(segment) => self.drains.push(segment.0),
                CoordinatorOutput::Outranked(epoch) => self.outranked.push(epoch),
                CoordinatorOutput::Opened(_) | CoordinatorOutput::Serves { .. } => {}
            }
        }
    }

    fn fly(&mut self, packet: Packet) {
        self.sent += 1;
        if 0 < self.lose {
            self.lose -= 1;
            return;
        }
        self.flying.insert((self.now + self.delay, self.sent), packet);
    }

    /// Replaces a member by a new life that remembers its promise.
    pub(crate) fn restart(&mut self, segment: u32) {
        let promised: Option<Stamp> = self.members[&segment].promised();
        let document = self.document.clone();
        let (id, now) = (SegmentId(segment), self.now);
        let member = Member::new(now, id, Timing::WAN, document, promised, 8);
        self.members.insert(segment, member);
    }

    /// Gives everybody another document.
    pub(crate) fn change(&mut self, document: Document) {
        self.document = Arc::new(document);
        for member in self.members.values_mut() {
            let document = MemberInput::Document(Arc::clone(&self.document));
            member.handle_input(self.now, document);
        }
        let document = Arc::clone(&self.document);
        let told = CoordinatorInput::Document { document, eager: false };
        self.coordinator.handle_input(self.now, told);
        self.drain();
    }

    /// Returns the caps of all segments at a node.
    pub(crate) fn caps(&self, node: &str) -> Vec<u32> {
        self.views(node).map(|(cap, _)| cap).collect()
    }

    /// Returns cap or use, whichever is more, of all segments together.
    pub(crate) fn held(&self, node: &str) -> u32 {
        self.views(node).map(|(cap, used)| cap.max(used)).sum()
    }

    pub(crate) fn used(&self, node: &str) -> u32 {
        self.views(node).map(|(_, used)| used).sum()
    }

    fn views(&self, node: &str) -> impl Iterator<Item = (u32, u32)> {
        self.members.values().map(move |member| {
            let node = member.document().tree().find(node).unwrap();
            let view = member.ledger().view(node, Counter::Calls);
            (view.share.unwrap(), view.used)
        })
    }
}
