//! Who may change a session now: INVITE, UPDATE and offers that cross
//! (RFC 3261 §14, RFC 3311 §5, RFC 3264 §4).

use std::time::Duration;

use crate::Method;

/// Which INVITE, UPDATE and offer of one dialog is under way, on either side.
///
/// Tell it what is sent and what arrives; it says what must wait, and how to
/// refuse a peer whose request crosses ours. Requests that change no session,
/// such as BYE, INFO or an UPDATE without an offer while only an INVITE is
/// under way, never wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Exchange {
    invite: Option<Side>,
    our_update: bool,
    their_update: bool,
    offer: Option<Side>,
}

/// Whose request or offer it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
enum Side {
    Ours,
    Theirs,
}

/// The dialog is busy: wait until what is under way has ended. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another change of the session is under way")]
pub struct Busy;

/// How to refuse a request that crosses another. The peer is not at fault, and
/// nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Glare {
    /// It crosses ours: answer 491. Both wait for a while, see
    /// [`Exchange::retry_wait`].
    #[error("it crosses a request of ours")]
    Pending,
    /// The peer's own request before it has no answer yet: answer 500 with
    /// this Retry-After.
    #[error("another request of the peer is not answered yet")]
    TooSoon {
        /// Seconds, from 0 to 10.
        retry_after: u32,
    },
}

impl Glare {
    /// Returns the status to refuse with.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::Pending => 491,
            Self::TooSoon { .. } => 500,
        }
    }
}

impl Exchange {
    /// Begins with nothing under way: a confirmed dialog that rests. For one
    /// that an INVITE is just making, tell of that INVITE first.
    #[must_use]
    pub const fn new() -> Self {
        Self { invite: None, our_update: false, their_update: false, offer: None }
    }

    /// Notes that we send a request, or says that it must wait.
    ///
    /// # Errors
    /// See [`Busy`]: an INVITE waits for every INVITE of either side (RFC 3261
    /// §14.1), and what brings an offer for every offer (RFC 3311 §5.1).
    pub fn send(&mut self, method: Method<'_>, has_offer: bool) -> Result<(), Busy> {
        let is_busy = if method == Method::Invite {
            self.invite.is_some() || self.our_update || self.their_update
        } else {
            method == Method::Update && self.our_update
        };
        if is_busy || (has_offer && self.offer.is_some()) {
            return Err(Busy);
        }
        self.begin(method, has_offer, Side::Ours);
        Ok(())
    }

    /// Notes a request of the peer, or says how to refuse it. `draw` is any
    /// random number.
    ///
    /// # Errors
    /// See [`Glare`].
    pub fn receive(&mut self, method: Method<'_>, has_offer: bool, draw: u64) -> Result<(), Glare> {
        // RFC 3261 §14.2: a random time of up to ten seconds.
        let too_soon = Glare::TooSoon { retry_after: u32::try_from(draw % 11).unwrap_or(0) };
        let earlier = if method == Method::Invite {
            self.invite
        } else if method == Method::Update && self.their_update {
            Some(Side::Theirs)
        } else {
            None
        };
        let refusal = match (earlier, self.offer.filter(|_| has_offer)) {
            (Some(Side::Theirs), _) => Some(too_soon),
            (Some(Side::Ours), _) => Some(Glare::Pending),
            (None, Some(Side::Ours)) => Some(Glare::Pending),
            (None, Some(Side::Theirs)) => Some(too_soon),
            (None, None) => None,
        };
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        self.begin(method, has_offer, Side::Theirs);
        Ok(())
    }

    /// Notes that we offer in something that is no request of its own: in the
    /// 2xx, or in a reliable provisional response, to an INVITE without one.
    pub const fn offer_sent(&mut self) {
        self.offer = Some(Side::Ours);
    }

    /// Notes that the peer does so.
    pub const fn offer_received(&mut self) {
        self.offer = Some(Side::Theirs);
    }

    /// Notes that the open offer, whoever made it, has its answer: in a 2xx, a
    /// reliable provisional response, a PRACK or an ACK.
    pub const fn answered(&mut self) {
        self.offer = None;
    }

    /// Notes the end of a request of ours: its final response, or none in
    /// time. An offer that it brought and that was not answered is void.
    pub fn sent_ended(&mut self, method: Method<'_>) {
        self.end(method, Side::Ours);
    }

    /// Notes the end of a request of the peer: our final answer to an UPDATE
    /// or another request, the ACK of our final answer to an INVITE (RFC 3261
    /// §14.1), or that none came in time.
    pub fn received_ended(&mut self, method: Method<'_>) {
        self.end(method, Side::Theirs);
    }

    /// True when an INVITE of either side is under way.
    #[must_use]
    pub const fn has_invite(&self) -> bool {
        self.invite.is_some()
    }

    /// True when an offer of either side waits for its answer.
    #[must_use]
    pub const fn has_offer(&self) -> bool {
        self.offer.is_some()
    }

    /// Returns how long to wait after a 491 before trying again (RFC 3261
    /// §14.1): who chose the Call-ID waits 2.1 to 4 s, the other side 0 to 2 s,
    /// in steps of 10 ms. `draw` is any random number.
    #[must_use]
    pub const fn retry_wait(owns_call_id: bool, draw: u64) -> Duration {
        match owns_call_id {
            true => Duration::from_millis(2100 + 10 * (draw % 191)),
            false => Duration::from_millis(10 * (draw % 201)),
        }
    }

    fn begin(&mut self, method: Method<'_>, has_offer: bool, side: Side) {
        if method == Method::Invite {
            self.invite = Some(side);
        } else if method == Method::Update {
            *self.update(side) = true;
        }
        if has_offer {
            self.offer = Some(side);
        }
    }

    fn end(&mut self, method: Method<'_>, side: Side) {
        if method == Method::Invite && self.invite == Some(side) {
            self.invite = None;
        } else if method == Method::Update && *self.update(side) {
            *self.update(side) = false;
        } else {
            return;
        }
        // The other request of this side may have brought the offer.
        let is_other_open = self.invite == Some(side) || *self.update(side);
        if self.offer == Some(side) && !is_other_open {
            self.offer = None;
        }
    }

    const fn update(&mut self, side: Side) -> &mut bool {
        match side {
            Side::Ours => &mut self.our_update,
            Side::Theirs => &mut self.their_update,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INVITE: Method<'_> = Method::Invite;
    const UPDATE: Method<'_> = Method::Update;

    #[test]
    fn an_invite_that_crosses_ours_gets_491() {
        let mut exchange = Exchange::new();
        exchange.send(INVITE, true).expect("it rests");
        assert_eq!(exchange.receive(INVITE, true, 0), Err(Glare::Pending));
        assert_eq!(exchange.receive(INVITE, false, 0), Err(Glare::Pending));
        assert_eq!(Glare::Pending.status(), 491);
        exchange.answered();
        exchange.sent_ended(INVITE);
        exchange.receive(INVITE, true, 0).expect("ours has ended");
    }

    #[test]
    fn a_second_invite_of_the_peer_gets_500_until_the_first_is_acknowledged() {
        let mut exchange = Exchange::new();
        exchange.receive(INVITE, true, 0).expect("it rests");
        for draw in 0..40 {
            let Err(Glare::TooSoon { retry_after }) = exchange.receive(INVITE, true, draw) else {
                panic!("the first is not answered");
            };
            assert!(retry_after <= 10);
        }
        exchange.answered();
        assert_eq!(exchange.send(INVITE, true), Err(Busy), "the ACK is not here");
        exchange.received_ended(INVITE);
        exchange.send(INVITE, true).expect("it rests");
    }

    #[test]
    fn an_offer_waits_for_every_offer() {
        let mut exchange = Exchange::new();
        exchange.send(INVITE, true).expect("it rests");
        assert_eq!(exchange.receive(UPDATE, true, 3), Err(Glare::Pending));
        exchange.receive(UPDATE, false, 3).expect("it offers nothing");
        assert_eq!(exchange.send(UPDATE, true), Err(Busy));
        exchange.received_ended(UPDATE);
        // The answer came in a reliable provisional response.
        exchange.answered();
        exchange.send(UPDATE, true).expect("no offer is open");
        assert_eq!(exchange.send(UPDATE, false), Err(Busy));
        exchange.sent_ended(INVITE);
        assert!(exchange.has_offer(), "that of the UPDATE");
        exchange.sent_ended(UPDATE);
        assert!(!exchange.has_offer() && !exchange.has_invite());
    }

    #[test]
    fn an_offer_of_the_peer_that_is_open_puts_its_next_one_off() {
        let mut exchange = Exchange::new();
        exchange.receive(INVITE, true, 0).expect("it rests");
        let too_soon = Err(Glare::TooSoon { retry_after: 7 });
        assert_eq!(exchange.receive(UPDATE, true, 7), too_soon);
        exchange.receive(UPDATE, false, 7).expect("it offers nothing");
        assert_eq!(exchange.receive(UPDATE, false, 7), too_soon, "the one before is open");
    }

    #[test]
    fn an_offer_in_an_answer_is_open_until_it_is_answered_itself() {
        let mut callee = Exchange::new();
        callee.receive(INVITE, false, 0).expect("it rests");
        callee.offer_sent();
        assert_eq!(callee.receive(UPDATE, true, 0), Err(Glare::Pending));
        callee.answered();
        callee.received_ended(INVITE);
        assert_eq!(callee, Exchange::new());

        let mut caller = Exchange::new();
        caller.send(INVITE, false).expect("it rests");
        caller.offer_received();
        caller.sent_ended(INVITE);
        assert!(caller.has_offer(), "our ACK answers it");
        caller.answered();
        assert_eq!(caller, Exchange::new());
    }

    #[test]
    fn a_refused_request_takes_its_offer_along() {
        let mut exchange = Exchange::new();
        exchange.receive(INVITE, true, 0).expect("it rests");
        exchange.received_ended(INVITE);
        exchange.send(UPDATE, true).expect("it rests");
        exchange.sent_ended(UPDATE);
        assert_eq!(exchange, Exchange::new());
        exchange.sent_ended(UPDATE);
        assert_eq!(exchange, Exchange::new());
    }

    #[test]
    fn what_changes_no_session_never_waits() {
        let mut exchange = Exchange::new();
        exchange.send(INVITE, true).expect("it rests");
        for method in [Method::Bye, Method::Info, Method::Prack, Method::Refer] {
            exchange.send(method, false).expect("it never waits");
            exchange.receive(method, false, 0).expect("it never waits");
        }
    }

    #[test]
    fn who_chose_the_call_id_waits_longer() {
        for draw in (0..1000).chain([u64::MAX]) {
            let millis = |owns| Exchange::retry_wait(owns, draw).as_millis();
            assert!((2100..=4000).contains(&millis(true)) && millis(true) % 10 == 0);
            assert!((0..=2000).contains(&millis(false)) && millis(false) % 10 == 0);
        }
    }
}
