use std::time::{Duration, Instant};

use crate::Boot;
use crate::pulse::Standing;

/// What a b2b knows of another node: a voter, a b2b, or both.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    boot: Option<Boot>,
    /// Whether the control link is up.
    linked: bool,
    /// The last datagram of this boot.
    heard_at: Option<Instant>,
    /// Since when something of it should be heard.
    expected_at: Instant,
    /// The last boot known to be dead, and since when.
    dead: Option<(Boot, Instant)>,
    /// The peer wants no slots.
    pub(super) draining: bool,
    /// When the newest pulse was sent whose answer counts for the lease.
    pub(super) acked_at: Option<Instant>,
    /// What it last said of our claims, as a voter, and since when it says that.
    standing: (Standing, Instant),
}

impl Peer {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            boot: None,
            linked: false,
            heard_at: None,
            expected_at: now,
            dead: None,
            draining: false,
            acked_at: None,
            standing: (Standing::Starting, now),
        }
    }

    /// Takes in a datagram; returns whether it is of the present life.
    pub(super) fn heard(&mut self, now: Instant, boot: Boot) -> bool {
        if !self.meets(now, boot) {
            return false;
        }
        self.heard_at = Some(now);
        true
    }

    pub(super) fn link_up(&mut self, now: Instant, boot: Boot) {
        self.meets(now, boot);
        self.linked = true;
    }

    pub(super) fn link_down(&mut self) {
        self.linked = false;
    }

    /// A refusal proves the death of a boot whose datagrams were heard before.
    pub(super) fn refused(&mut self, now: Instant) {
        if let Some(boot) = self.boot.filter(|_| self.heard_at.is_some()) {
            self.heard_at = None;
            self.dead = Some((boot, now));
        }
    }

    pub(super) fn stands(&mut self, now: Instant, sent_at: Instant, standing: Standing) {
        if standing == Standing::Passes {
            self.acked_at = self.acked_at.max(Some(sent_at));
        }
        if self.standing.0 != standing {
            self.standing = (standing, now);
        }
    }

    pub(super) fn is_linked(&self) -> bool {
        self.linked
    }

    /// Returns whether the peer would answer a frame.
    pub(super) fn is_reached(&self, now: Instant) -> bool {
        self.linked && self.heard_at.is_some_and(|heard_at| now < heard_at + REACH)
    }

    /// Returns whether nothing of the peer has come for so long that what it sends does not arrive.
    pub(super) fn is_silent(&self, now: Instant) -> bool {
        self.heard_at.unwrap_or(self.expected_at) + REACH <= now
    }

    /// Returns which boot is known to have died at or after `since`, and when.
    pub(super) fn died(&self, since: Instant) -> Option<(Boot, Instant)> {
        self.dead.filter(|(_, at)| since <= *at)
    }

    /// Returns what the peer has said of our claims for at least `span`.
    pub(super) fn standing(&self, now: Instant, span: Duration) -> Option<Standing> {
        let (standing, since) = self.standing;
        (since + span <= now).then_some(standing)
    }

    /// Returns whether `boot` is the present life of the peer, noting the end of an earlier one.
    fn meets(&mut self, now: Instant, boot: Boot) -> bool {
        match self.boot {
            Some(known) if boot < known => return false,
            Some(known) if known < boot => {
                self.dead = Some((known, now));
                (self.heard_at, self.expected_at) = (None, now);
                self.draining = false;
            }
            Some(_) | None => {}
        }
        self.boot = Some(boot);
        true
    }
}

/// After such a silence nobody waits for an answer of the peer.
const REACH: Duration = Duration::from_millis(150);
