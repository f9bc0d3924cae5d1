//! How one leg is told that its media moved: the answers to the re-INVITE and what follows each.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::UnixMs;

/// What a leg has tried since its media last moved. Part of the call record.
///
/// It decides nothing about *whether* the leg must be told, which follows from the address in the
/// last SDP sent, nor whether an INVITE may be sent now, which follows from the open INVITEs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Move {
    /// When the first re-INVITE of this move went out.
    pub since: Option<UnixMs>,
    /// What the next re-INVITE offers.
    pub offer: Offer,
    /// No re-INVITE before this.
    pub wait_until: Option<UnixMs>,
    /// How many re-INVITEs were cut off by our own CANCEL.
    cut_offs: u8,
    /// The CSeq was raised far, for a phone that thought ours too low.
    jumped: bool,
    /// The phone refused for good. Only a new move or the phone's own INVITE helps.
    pub apart: bool,
}

/// The body of a re-INVITE that moves media.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Offer {
    /// The last SDP sent, its codecs narrowed to those agreed.
    #[default]
    Narrowed,
    /// The last SDP sent, but for the address.
    Whole,
    /// None: the phone offers.
    Absent,
}

/// A final answer to a re-INVITE that moves media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status; 408 also when nothing came in time.
    pub status: u16,
    /// What the answer's Retry-After said.
    pub retry_after: Option<Duration>,
    /// Our CANCEL of this INVITE went out before.
    pub cancelled: bool,
    /// The dialog's Call-ID is of our making: the longer of the two waits after a collision.
    pub owns_call_id: bool,
}

/// What follows an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The leg is told.
    Told,
    /// The leg is to be told again, not before this. [`Move::wait_until`] says the same.
    Again(UnixMs),
    /// As `Again`, at once, with a CSeq that is 1000 higher.
    Jump,
    /// As `Again`, and the peer asked for less: its window is halved, and only probes go there for
    /// so long.
    Slower(Duration),
    /// The phone keeps its session and will not move. Voice is gone on this leg, the call is not.
    Apart,
    /// The phone knows the dialog no more: the other leg ends, this one needs no BYE.
    Gone,
    /// The phone answers nothing: both legs end.
    Lost,
}

impl Move {
    /// Notes that a re-INVITE goes out.
    pub fn sent(&mut self, now: UnixMs) {
        self.since.get_or_insert(now);
        self.wait_until = None;
    }

    /// Returns how long the next re-INVITE may stay without a final answer once a provisional one
    /// came: twice as long after each that was cut off, for phones that ask their user first.
    pub fn patience(&self) -> Duration {
        MOVE_PATIENCE * (1 << self.cut_offs.min(CUT_OFFS_MAX))
    }

    /// Begins anew: the media moved again, or the phone learned the address another way.
    pub fn restart(&mut self) {
        *self = Self::default();
    }

    /// Takes in the final answer to the re-INVITE. `random` draws the wait after a collision.
    ///
    /// The rows are those of the answers table: the phone's session stays as it is on every
    /// refusal that does not say that the dialog is gone (RFC 3261 §14.1, RFC 5057 §5.1).
    pub fn answered(&mut self, now: UnixMs, answer: Answer, random: u64) -> Verdict {
        match answer.status {
            200..300 => {
                self.restart();
                Verdict::Told
            }
            481 | 603 => Verdict::Gone,
            // RFC 3261 §12.2.1.2, and what RFC 5057 §5.1 says to destroy the dialog.
            408 | 404 | 410 | 416 | 482..=485 | 502 | 604 => Verdict::Lost,
            _ if self.is_over(now) => self.give_up(),
            487 if answer.cancelled && self.cut_offs < CUT_OFFS_MAX => {
                self.cut_offs += 1;
                self.again(now, Duration::ZERO)
            }
            488 | 606 | 415 => match self.offer {
                Offer::Narrowed => self.step_down(now, Offer::Whole),
                Offer::Whole => self.step_down(now, Offer::Absent),
                Offer::Absent => self.give_up(),
            },
            491 => self.again(now, collision_wait(answer.owns_call_id, random)),
            500 => match answer.retry_after {
                Some(wait) => self.again(now, wait.min(RETRY_AFTER_MAX)),
                None if !self.jumped => {
                    self.jumped = true;
                    self.again(now, Duration::ZERO);
                    Verdict::Jump
                }
                None => self.give_up(),
            },
            503 => {
                self.wait_until = Some(now);
                Verdict::Slower(answer.retry_after.unwrap_or(RETRY_AFTER_DEFAULT))
            }
            // 401 and 407 until there are credentials; 405, 420, 501: the phone cannot; the rest
            // is refused for reasons that another try does not change.
            _ => self.give_up(),
        }
    }

    /// Returns whether the move has been tried for so long that the leg is left as it is.
    pub fn is_over(&self, now: UnixMs) -> bool {
        self.since.is_some_and(|since| since.0.saturating_add(MOVE_MAX_MS) <= now.0)
    }

    fn step_down(&mut self, now: UnixMs, offer: Offer) -> Verdict {
        self.offer = offer;
        self.again(now, Duration::ZERO)
    }

    fn again(&mut self, now: UnixMs, wait: Duration) -> Verdict {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let at = UnixMs(now.0.saturating_add(wait_ms));
        self.wait_until = Some(at);
        Verdict::Again(at)
    }

    fn give_up(&mut self) -> Verdict {
        self.apart = true;
        self.wait_until = None;
        Verdict::Apart
    }
}

/// RFC 3261 §14.1: who made the Call-ID waits 2.1 to 4 s, the other up to 2 s, in steps of 10 ms.
pub fn collision_wait(owns_call_id: bool, random: u64) -> Duration {
    let ms = if owns_call_id { 2100 + 10 * (random % 191) } else { 10 * (random % 201) };
    Duration::from_millis(ms)
}

/// The first re-INVITE of a move is cancelled after this long without a final answer.
const MOVE_PATIENCE: Duration = Duration::from_secs(4);

/// An INVITE of ours that was open when the media moved is cancelled after this long.
pub const PENDING_PATIENCE: Duration = Duration::from_secs(2);

/// Timer B of a WAN: a leg is told, apart or gone by then.
const MOVE_MAX_MS: u64 = 32_000;

const CUT_OFFS_MAX: u8 = 2;

/// RFC 3261 §14.2 draws the Retry-After of a 500 from 0 to 10 s.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(10);

const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_200_ends_the_move() {
        let mut leg = started();
        assert_eq!(leg.answered(NOW, plain(200), 0), Verdict::Told);
        assert_eq!(leg, Move::default());
    }

    #[test]
    fn a_collision_waits_in_the_band_of_who_made_the_call_id() {
        for random in 0..1000 {
            let mut leg = started();
            let owner = Answer { owns_call_id: true, ..plain(491) };
            let Verdict::Again(at) = leg.answered(NOW, owner, random) else { panic!() };
            assert!((2100..=4000).contains(&(at.0 - NOW.0)) && at.0 % 10 == 0, "{at:?}");

            let mut leg = started();
            let Verdict::Again(at) = leg.answered(NOW, plain(491), random) else { panic!() };
            assert!((0..=2000).contains(&(at.0 - NOW.0)) && at.0 % 10 == 0, "{at:?}");
        }
    }

    #[test]
    fn a_challenge_leaves_the_leg_apart() {
        assert_eq!(started().answered(NOW, plain(401), 0), Verdict::Apart);
        assert_eq!(started().answered(NOW, plain(407), 0), Verdict::Apart);
    }

    #[test]
    fn silence_ends_both_legs() {
        assert_eq!(started().answered(NOW, plain(408), 0), Verdict::Lost);
    }

    #[test]
    fn a_481_or_603_ends_the_other_leg_without_a_bye_here() {
        assert_eq!(started().answered(NOW, plain(481), 0), Verdict::Gone);
        assert_eq!(started().answered(NOW, plain(603), 0), Verdict::Gone);
    }

    #[test]
    fn a_488_or_606_steps_down_to_the_whole_sdp_then_to_none_then_stops() {
        for status in [488, 606] {
            let mut leg = started();
            assert_eq!(leg.answered(NOW, plain(status), 0), Verdict::Again(NOW));
            assert_eq!(leg.offer, Offer::Whole);
            assert_eq!(leg.answered(NOW, plain(status), 0), Verdict::Again(NOW));
            assert_eq!(leg.offer, Offer::Absent);
            assert_eq!(leg.answered(NOW, plain(status), 0), Verdict::Apart);
            assert!(leg.apart);
        }
    }

    #[test]
    fn a_500_waits_as_long_as_it_says_but_ten_seconds_at_most() {
        let mut leg = started();
        let answer = |s| Answer { retry_after: Some(Duration::from_secs(s)), ..plain(500) };
        assert_eq!(leg.answered(NOW, answer(3), 0), Verdict::Again(UnixMs(NOW.0 + 3000)));
        assert_eq!(leg.answered(NOW, answer(300), 0), Verdict::Again(UnixMs(NOW.0 + 10_000)));
    }

    #[test]
    fn a_500_without_a_time_jumps_the_cseq_once() {
        let mut leg = started();
        assert_eq!(leg.answered(NOW, plain(500), 0), Verdict::Jump);
        assert_eq!(leg.answered(NOW, plain(500), 0), Verdict::Apart);
    }

    #[test]
    fn a_503_slows_its_next_hop_down_and_is_tried_again() {
        let mut leg = started();
        let answer = Answer { retry_after: Some(Duration::from_secs(5)), ..plain(503) };
        assert_eq!(leg.answered(NOW, answer, 0), Verdict::Slower(Duration::from_secs(5)));
        assert!(!leg.apart);
    }

    #[test]
    fn a_phone_without_the_method_stays_as_it_is() {
        for status in [405, 420, 501] {
            assert_eq!(started().answered(NOW, plain(status), 0), Verdict::Apart);
        }
    }

    #[test]
    fn our_own_cancel_is_followed_by_another_try_twice() {
        let mut leg = started();
        let answer = Answer { cancelled: true, ..plain(487) };
        assert_eq!(leg.answered(NOW, answer, 0), Verdict::Again(NOW));
        assert_eq!(leg.answered(NOW, answer, 0), Verdict::Again(NOW));
        assert_eq!(leg.answered(NOW, answer, 0), Verdict::Apart);
    }

    #[test]
    fn no_leg_is_in_doubt_after_32_seconds() {
        for status in [487, 491, 500, 503] {
            let mut leg = started();
            let late = UnixMs(NOW.0 + 32_000);
            assert_eq!(leg.answered(late, plain(status), 0), Verdict::Apart);
        }
    }

    const NOW: UnixMs = UnixMs(1_700_000_000_000);

    fn started() -> Move {
        let mut leg = Move::default();
        leg.sent(NOW);
        leg
    }

    fn plain(status: u16) -> Answer {
        Answer { status, retry_after: None, cancelled: false, owns_call_id: false }
    }
}
