//! Links without TCP: ordered, late instead of lossy, and mortal.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use super::fault::retransmitted_at;
use super::{Event as SimEvent, Sim, Watch, nanos};
use crate::frame::{HEADER_LEN, PAYLOAD_MAX};
use crate::node::{Class, Input, Node, NodeId};
use crate::patience::{BACKOFF_MAX, BACKOFF_MIN, GREETING_MAX, KEEPALIVE, SILENCE_MAX};
use crate::queue::{CONGESTED_AFTER, QUEUE_LEN_MAX};

/// What a lost segment costs.
const LOSS_DELAY: Duration = Duration::from_millis(200);
/// What both kernels hold of a link; only what is beyond waits in a queue
/// whose age is known.
const KERNEL_LEN: usize = 1 << 18;

/// A link that one node keeps to another.
pub(super) struct Link {
    dialler: usize,
    peer: NodeId,
    class: Class,
    backoff: Duration,
    /// Counts the connections tried.
    connection: u32,
    /// The dialler's, then the listener's.
    ends: [End; 2],
}

/// One end, and what is under way to it.
#[derive(Default)]
struct End {
    /// The connection that is up here.
    up: Option<u32>,
    /// When the last frame so far arrives.
    last_at: u64,
    /// What waits for the end of a cut, and when it was sent.
    held: Vec<(u64, Event)>,
    /// Frames that were sent to here and not handled: when, and how long.
    unhandled: VecDeque<(u64, usize)>,
    unhandled_len: usize,
    /// Whether the other end was told that its queue is too old.
    is_congested: bool,
    /// Whether that is being looked at.
    is_watched: bool,
    /// Counts the beginnings and ends of silences.
    silence: u32,
    /// When the last silence began.
    silent_since: u64,
}

/// What happens to a link.
pub(super) enum Event {
    /// The dialler tries.
    Dial { link: usize, boot: u64 },
    /// The peer's hello reaches an end.
    Hello { link: usize, end: usize, connection: u32, boot: u64, until: u64 },
    /// The dialler gives up waiting.
    GiveUp { link: usize, connection: u32 },
    /// A frame reaches an end.
    Frame { link: usize, end: usize, connection: u32, kind: u16, payload: Bytes },
    /// The other end closed or its process died.
    Fin { link: usize, end: usize, connection: u32 },
    /// TCP next sends after a cut to an end, which ends the silence there.
    Heard { link: usize, end: usize, connection: u32, silence: u32 },
    /// An end has heard nothing for long, if the silence still lasts.
    Silence { link: usize, end: usize, connection: u32, silence: u32 },
    /// The oldest frame under way to an end may be too old.
    Old { link: usize, end: usize, connection: u32 },
}

impl Event {
    fn place(&self) -> (usize, usize) {
        match *self {
            Self::Dial { link, .. } | Self::GiveUp { link, .. } => (link, 0),
            Self::Hello { link, end, .. }
            | Self::Frame { link, end, .. }
            | Self::Fin { link, end, .. }
            | Self::Heard { link, end, .. }
            | Self::Silence { link, end, .. } => (link, end),
            // The sender finds out.
            Self::Old { link, end, .. } => (link, 1 - end),
        }
    }
}

impl<N: Node> Sim<N> {
    pub(super) fn add_link(&mut self, dialler: usize, peer: NodeId, class: Class) {
        let link = self.links.len();
        let crossed = self.links.iter().any(|link| {
            link.class == class
                && link.peer == self.nodes[dialler].id
                && self.nodes[link.dialler].id == peer
        });
        assert!(!crossed, "nodes {} and {peer} dial each other", self.nodes[dialler].id);
        let ends = Default::default();
        self.links.push(Link { dialler, peer, class, backoff: BACKOFF_MIN, connection: 0, ends });
        self.ends.insert((dialler, peer, class), (link, 0));
    }

    pub(super) fn dial_all(&mut self, node: usize) {
        let boot = self.nodes[node].boot;
        for (link, state) in self.links.iter_mut().enumerate() {
            if state.dialler == node {
                state.backoff = BACKOFF_MIN;
                self.calendar.schedule(self.now, SimEvent::Link(Event::Dial { link, boot }));
            }
        }
    }

    /// Sends a frame; drops it without a link or without room.
    pub(super) fn frame(
        &mut self,
        node: usize,
        peer: NodeId,
        class: Class,
        kind: u16,
        payload: Bytes,
    ) {
        let Some(&(link, from)) = self.ends.get(&(node, peer, class)) else { return };
        let Some(connection) = self.links[link].ends[from].up else { return };
        let len = payload.len() + HEADER_LEN;
        let end = 1 - from;
        let state = &mut self.links[link].ends[end];
        if PAYLOAD_MAX < payload.len() || KERNEL_LEN + QUEUE_LEN_MAX < state.unhandled_len + len {
            return;
        }
        state.unhandled.push_back((self.now, len));
        state.unhandled_len += len;
        if KERNEL_LEN < state.unhandled_len && !state.is_watched {
            state.is_watched = true;
            let old = Event::Old { link, end, connection };
            self.calendar.schedule(self.now + nanos(CONGESTED_AFTER), SimEvent::Link(old));
        }
        self.carry(Event::Frame { link, end, connection, kind, payload });
    }

    pub(super) fn link_event(&mut self, event: Event, watch: Watch<'_>) -> bool {
        let (link, end) = event.place();
        let Some(node) = self.end_node(link, end) else { return false };
        if self.nodes[node].is_paused {
            self.nodes[node].inbox.push_back(SimEvent::Link(event));
            return false;
        }
        match event {
            Event::Dial { boot, .. } => {
                if self.nodes[node].boot == boot && self.nodes[node].node.is_some() {
                    self.dial(link);
                }
                false
            }
            Event::Hello { connection, boot, until, .. } => {
                let is_it = self.links[link].connection == connection && self.now <= until;
                is_it && self.hello(link, end, boot, until, watch)
            }
            Event::GiveUp { connection, .. } => {
                let state = &self.links[link];
                if state.connection == connection && state.ends[0].up.is_none() {
                    self.redial(link);
                }
                false
            }
            Event::Frame { connection, kind, payload, .. } => {
                if self.links[link].ends[end].up != Some(connection) {
                    return false;
                }
                self.handled(link, end);
                let (peer, class) = (self.peer_id(link, end), self.links[link].class);
                self.deliver(node, Input::Frame { peer, class, kind, payload }, watch)
            }
            Event::Fin { connection, .. } => {
                let is_it = self.links[link].ends[end].up == Some(connection);
                is_it && self.close(link, end, false, watch)
            }
            Event::Heard { connection, silence, .. } => {
                let state = &mut self.links[link].ends[end];
                if state.up == Some(connection) && state.silence == silence {
                    state.silence += 1;
                }
                false
            }
            Event::Silence { connection, silence, .. } => {
                let state = &self.links[link].ends[end];
                let is_it = state.up == Some(connection) && state.silence == silence;
                is_it && self.close(link, end, true, watch)
            }
            Event::Old { connection, .. } => self.check_age(link, 1 - end, connection, watch),
        }
    }

    /// For every end that is up, whether the other end is silent now.
    pub(super) fn silences(&self) -> Vec<[bool; 2]> {
        let silent = |link, end| match (self.end_node(link, 1 - end), self.end_node(link, end)) {
            (Some(from), Some(to)) => self.is_silent(from, to),
            (None, _) | (_, None) => false,
        };
        (0..self.links.len()).map(|link| [silent(link, 0), silent(link, 1)]).collect()
    }

    /// Begins or ends the silences that differ from `before`.
    pub(super) fn silence_changed(&mut self, before: &[[bool; 2]]) {
        let after = self.silences();
        for (link, (before, after)) in before.iter().zip(after).enumerate() {
            for end in 0..2 {
                let state = &mut self.links[link].ends[end];
                if before[end] != after[end] {
                    state.silence += 1;
                }
                if !before[end] && after[end] {
                    state.silent_since = self.now;
                    self.expect_silence(link, end);
                }
            }
        }
    }

    /// The kernel of a process that ended closes its links.
    pub(super) fn end_links(&mut self, node: usize) {
        for link in 0..self.links.len() {
            for end in 0..2 {
                if self.end_node(link, end) == Some(node)
                    && let Some(connection) = self.links[link].ends[end].up
                {
                    self.carry(Event::Fin { link, end: 1 - end, connection });
                }
            }
        }
    }

    /// A host is back without the processes that others think are linked:
    /// it resets their links as soon as it hears a keep-alive.
    pub(super) fn reset_links(&mut self, node: usize) {
        for link in 0..self.links.len() {
            for end in 0..2 {
                if self.end_node(link, end) == Some(node)
                    && let Some(connection) = self.links[link].ends[1 - end].up
                    && self.links[link].ends[end].up.is_none()
                {
                    let at = self.now + self.random.below(nanos(KEEPALIVE));
                    let event = Event::Fin { link, end: 1 - end, connection };
                    self.calendar.schedule(at, SimEvent::Link(event));
                }
            }
        }
    }

    /// A process is gone, and its ends with it.
    pub(super) fn forget_links(&mut self, node: usize) {
        for link in 0..self.links.len() {
            for end in 0..2 {
                if self.end_node(link, end) == Some(node) {
                    self.down(link, end);
                }
            }
        }
    }

    /// Lets what waited for the end of a cut go on, and the silence end when the first of that arrives.
    pub(super) fn release_frames(&mut self, from: usize, to: usize) {
        for link in 0..self.links.len() {
            for end in 0..2 {
                if self.end_node(link, end) == Some(to)
                    && self.end_node(link, 1 - end) == Some(from)
                {
                    if !self.is_silent(from, to) {
                        self.end_silence(link, end);
                    }
                    for (sent, event) in std::mem::take(&mut self.links[link].ends[end].held) {
                        let at = retransmitted_at(sent, self.now);
                        self.arrive(from, to, at, event);
                    }
                }
            }
        }
    }

    /// After a cut an end hears of the other again when TCP sends again what that said first, at the
    /// latest a keep-alive.
    fn end_silence(&mut self, link: usize, end: usize) {
        let state = &self.links[link].ends[end];
        let Some(connection) = state.up else { return };
        let said = state.held.first().map_or(u64::MAX, |(sent, _)| *sent);
        let said = said.min(state.silent_since + nanos(KEEPALIVE));
        let (at, silence) = (retransmitted_at(said, self.now), state.silence);
        let event = Event::Heard { link, end, connection, silence };
        self.calendar.schedule(at, SimEvent::Link(event));
    }

    fn dial(&mut self, link: usize) {
        let dialler = self.links[link].dialler;
        let listener = self.end_node(link, 1).filter(|&node| self.nodes[node].node.is_some());
        if self.links[link].ends[0].up.is_some() {
            return;
        }
        let Some(listener) = listener else {
            self.redial(link);
            return;
        };
        let (there, back) = (self.routes[dialler][listener], self.routes[listener][dialler]);
        if there.is_cut || back.is_cut || self.nodes[dialler].host_is_down {
            // TCP tries again.
            let boot = self.nodes[dialler].boot;
            let at = self.now + nanos(BACKOFF_MAX);
            self.calendar.schedule(at, SimEvent::Link(Event::Dial { link, boot }));
            return;
        }
        let state = &mut self.links[link];
        state.connection += 1;
        let connection = state.connection;
        // It waits for nothing that is under way over the one before.
        state.ends.iter_mut().for_each(|end| end.last_at = 0);
        let until = self.now + nanos(GREETING_MAX);
        self.calendar.schedule(until, SimEvent::Link(Event::GiveUp { link, connection }));
        // Before the hello went there, TCP has shaken hands.
        let at = self.now + nanos(there.path.delay + back.path.delay);
        let boot = self.nodes[dialler].boot;
        self.arrive(dialler, listener, at, Event::Hello { link, end: 1, connection, boot, until });
    }

    fn redial(&mut self, link: usize) {
        let state = &mut self.links[link];
        let at = self.now + nanos(state.backoff);
        state.backoff = BACKOFF_MAX.min(2 * state.backoff);
        let boot = self.nodes[state.dialler].boot;
        self.calendar.schedule(at, SimEvent::Link(Event::Dial { link, boot }));
    }

    /// A hello of a process of this boot has come to an end.
    fn hello(&mut self, link: usize, end: usize, boot: u64, until: u64, watch: Watch<'_>) -> bool {
        let (Some(node), Some(other)) = (self.end_node(link, end), self.end_node(link, 1 - end))
        else {
            return false;
        };
        let connection = self.links[link].connection;
        if end == 1 {
            let dialler = &self.nodes[other];
            if dialler.boot != boot || dialler.node.is_none() {
                return false;
            }
            if self.nodes[node].node.is_none() {
                // Reset by its kernel.
                self.links[link].connection += 1;
                self.redial(link);
                return false;
            }
            let seen = self.close(link, end, false, watch);
            self.down(link, 0);
            let answer = self.nodes[node].boot;
            self.carry(Event::Hello { link, end: 0, connection, boot: answer, until });
            return self.up(link, end, boot, watch) | seen;
        }
        self.links[link].backoff = BACKOFF_MIN;
        self.up(link, end, boot, watch)
    }

    /// Makes a link usable at one end and tells that end.
    fn up(&mut self, link: usize, end: usize, boot: u64, watch: Watch<'_>) -> bool {
        let (Some(node), Some(other)) = (self.end_node(link, end), self.end_node(link, 1 - end))
        else {
            return false;
        };
        let (peer, class) = (self.nodes[other].id, self.links[link].class);
        self.ends.insert((node, peer, class), (link, end));
        self.links[link].ends[end].up = Some(self.links[link].connection);
        if self.is_silent(other, node) {
            let state = &mut self.links[link].ends[end];
            (state.silence, state.silent_since) = (state.silence + 1, self.now);
            self.expect_silence(link, end);
        }
        self.deliver(node, Input::LinkUp { peer, class, boot }, watch)
    }

    /// Ends a link at one end and tells that end.
    fn close(&mut self, link: usize, end: usize, says_so: bool, watch: Watch<'_>) -> bool {
        let Some(connection) = self.links[link].ends[end].up else { return false };
        let Some(node) = self.end_node(link, end) else { return false };
        if says_so {
            self.carry(Event::Fin { link, end: 1 - end, connection });
        }
        self.down(link, end);
        if end == 0 {
            self.redial(link);
        }
        let (peer, class) = (self.peer_id(link, end), self.links[link].class);
        self.deliver(node, Input::LinkDown { peer, class }, watch)
    }

    /// Forgets a connection at one end and what is under way to there.
    fn down(&mut self, link: usize, end: usize) {
        let state = &mut self.links[link].ends[end];
        let (last_at, silence, silent_since) = (state.last_at, state.silence, state.silent_since);
        *state = End { last_at, silence, silent_since, ..End::default() };
    }

    /// Sends something to an end of a link, after all that was sent before.
    fn carry(&mut self, event: Event) {
        let (link, end) = event.place();
        let (Some(from), Some(to)) = (self.end_node(link, 1 - end), self.end_node(link, end))
        else {
            return;
        };
        if self.routes[from][to].is_cut {
            self.links[link].ends[end].held.push((self.now, event));
        } else {
            self.arrive(from, to, self.now, event);
        }
    }

    /// Draws when something that left at `sent` arrives, and schedules it.
    fn arrive(&mut self, from: usize, to: usize, sent: u64, event: Event) {
        let (link, end) = event.place();
        let path = self.routes[from][to].path;
        let mut at = sent + nanos(path.delay) + self.random.below(nanos(path.jitter));
        while self.random.hits(path.loss.min(0.5)) {
            at += nanos(LOSS_DELAY);
        }
        let last_at = &mut self.links[link].ends[end].last_at;
        *last_at = at.max(*last_at);
        self.calendar.schedule(*last_at, SimEvent::Link(event));
    }

    /// Looks whether the oldest frame in the queue towards `end` is too old.
    fn check_age(&mut self, link: usize, end: usize, connection: u32, watch: Watch<'_>) -> bool {
        let state = &mut self.links[link].ends[end];
        if state.up != Some(connection) || !state.is_watched {
            return false;
        }
        let mut before = 0;
        let oldest = state.unhandled.iter().find(|(_, len)| {
            before += len;
            KERNEL_LEN < before
        });
        let Some(&(oldest, _)) = oldest else {
            state.is_watched = false;
            return false;
        };
        let old_at = oldest + nanos(CONGESTED_AFTER);
        if self.now < old_at {
            self.calendar.schedule(old_at, SimEvent::Link(Event::Old { link, end, connection }));
            return false;
        }
        state.is_congested = true;
        self.tell_congested(link, end, true, watch)
    }

    /// The oldest frame under way to an end is no longer.
    fn handled(&mut self, link: usize, end: usize) {
        let state = &mut self.links[link].ends[end];
        if let Some((_, len)) = state.unhandled.pop_front() {
            state.unhandled_len -= len;
        }
        if state.is_congested && state.unhandled_len <= KERNEL_LEN {
            state.is_congested = false;
            state.is_watched = false;
            self.tell_congested(link, end, false, &mut |_, _| false);
        }
    }

    fn tell_congested(&mut self, link: usize, end: usize, on: bool, watch: Watch<'_>) -> bool {
        let Some(node) = self.end_node(link, 1 - end) else { return false };
        let (peer, class) = (self.peer_id(link, 1 - end), self.links[link].class);
        let boot = self.nodes[node].boot;
        let input = Input::Congested { peer, class, on };
        self.dispatch(SimEvent::Tell { node, boot, input }, watch)
    }

    fn expect_silence(&mut self, link: usize, end: usize) {
        let heard = self.random.below(nanos(KEEPALIVE));
        let state = &self.links[link].ends[end];
        if let Some(connection) = state.up {
            let silence = state.silence;
            let at = self.now + nanos(SILENCE_MAX) - heard;
            let event = Event::Silence { link, end, connection, silence };
            self.calendar.schedule(at, SimEvent::Link(event));
        }
    }

    /// Whether nothing of `from` can be heard at `to`.
    fn is_silent(&self, from: usize, to: usize) -> bool {
        self.routes[from][to].is_cut || self.nodes[from].is_paused || self.nodes[from].host_is_down
    }

    /// Returns the node at an end, if it was ever added.
    fn end_node(&self, link: usize, end: usize) -> Option<usize> {
        let link = &self.links[link];
        if end == 0 { Some(link.dialler) } else { self.index.get(&link.peer).copied() }
    }

    /// Returns who is at the other end.
    fn peer_id(&self, link: usize, end: usize) -> NodeId {
        let link = &self.links[link];
        if end == 0 { link.peer } else { self.nodes[link.dialler].id }
    }
}
