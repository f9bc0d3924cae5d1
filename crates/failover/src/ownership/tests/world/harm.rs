//! What is done to a world.

use super::*;

impl World {
    /// Kills a process; `host`: and pulls the plug of its host.
    pub(in super::super) fn kill(&mut self, id: NodeId, host: bool) {
        self.tell(&format!("kill {id} host {host}"));
        let node = self.node(id);
        node.life = if host { Life::Unplugged } else { Life::Killed };
        (node.voter, node.b2b, node.timer_us) = (None, None, None);
        node.inbox.clear();
        for (a, b) in self.links_of(id) {
            let other = if a == id { b } else { a };
            if host || self.cuts.contains_key(&(id, other)) {
                self.schedule(LINK_TIMEOUT_US, Event::Expire(a, b));
            } else {
                self.end_link(a, b);
            }
        }
    }

    pub(in super::super) fn restart(&mut self, id: NodeId) {
        let is_dead = matches!(self.node(id).life, Life::Killed | Life::Unplugged);
        if is_dead {
            self.tell(&format!("restart {id}"));
            for (a, b) in self.links_of(id) {
                self.end_link(a, b);
            }
            self.start(id);
        }
    }

    pub(in super::super) fn restart_after(&mut self, id: NodeId, ms: u64) {
        self.schedule(ms * 1000, Event::Restart(id));
    }

    pub(in super::super) fn pause(&mut self, id: NodeId, ms: u64) {
        if self.node(id).life == Life::Runs {
            self.tell(&format!("pause {id} for {ms}"));
            self.node(id).life = Life::Paused;
            self.schedule(ms * 1000, Event::Resume(id));
        }
    }

    /// Nothing goes from `from` to `to` any more.
    pub(in super::super) fn cut(&mut self, from: NodeId, to: NodeId) {
        self.tell(&format!("cut {from} -> {to}"));
        self.cuts.insert((from, to), self.us);
        let (a, b) = (from.min(to), from.max(to));
        self.schedule(LINK_TIMEOUT_US, Event::Expire(a, b));
    }

    pub(in super::super) fn cut_both(&mut self, a: u16, b: u16) {
        self.cut(NodeId(a), NodeId(b));
        self.cut(NodeId(b), NodeId(a));
    }

    pub(in super::super) fn heal(&mut self, from: NodeId, to: NodeId) {
        self.tell(&format!("heal {from} -> {to}"));
        self.cuts.remove(&(from, to));
        let key = (from.min(to), from.max(to));
        let waiting = self.links.get_mut(&key).and_then(|link| link.waiting.remove(&to));
        for item in waiting.into_iter().flatten() {
            self.frame(from, to, item);
        }
    }

    pub(in super::super) fn heal_after(&mut self, from: NodeId, to: NodeId, ms: u64) {
        self.schedule(ms * 1000, Event::Heal(from, to));
    }

    pub(in super::super) fn heal_all(&mut self) {
        let cuts: Vec<_> = self.cuts.keys().copied().collect();
        cuts.into_iter().for_each(|(from, to)| self.heal(from, to));
        self.loss = 0;
    }

    pub(in super::super) fn drain(&mut self, id: NodeId) {
        self.tell(&format!("drain {id}"));
        self.input(id, Input::Drain);
    }
}
