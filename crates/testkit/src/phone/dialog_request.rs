//! Requests inside a call.

use std::time::Duration;

use crate::fleet::Desk;
use crate::journal::{Ended, Event, Fault};
use crate::manners::Reinvite;
use crate::offer::{Direction, Theirs, forbidden_in};
use crate::phone::call::Stage;
use crate::phone::{Phone, Reaction};
use crate::sip::Sip;

impl Phone {
    /// Takes in a new request with a To tag.
    pub(crate) fn requested_in_call(&mut self, desk: &mut Desk<'_>, sip: &Sip, key: &str) {
        let call = self.call.as_mut().filter(|call| {
            call.id == sip.call_id()
                && Some(call.local_tag.as_str()) == sip.tag("to")
                && call.remote_tag.as_deref() == sip.tag("from")
        });
        let method = sip.method();
        let Some(call) = call else {
            self.note_unknown(desk, sip);
            return match self.manners.lost_call {
                Some(status) => self.refuse(desk, sip, key, status),
                None => self.keep_silent(desk, key, method),
            };
        };
        let now = sip.cseq().map_or(0, |(number, _)| number);
        if let Some(before) = call.remote_cseq
            && now <= before
        {
            desk.fault(Fault::CSeqNotRising { before, now });
            return self.refuse(desk, sip, key, 500);
        }
        call.remote_cseq = Some(now);
        match method {
            "INVITE" => self.reinvited(desk, sip, key, now),
            "BYE" => {
                if self.manners.answers_bye {
                    self.answer(desk, key, method, 200);
                } else {
                    self.keep_silent(desk, key, method);
                }
                self.refuse_open_invites(desk);
                self.end_call(desk, Ended::There);
            }
            "OPTIONS" | "INFO" | "MESSAGE" | "NOTIFY" => self.answer(desk, key, method, 200),
            _ => self.answer(desk, key, method, 501),
        }
    }

    fn refuse(&mut self, desk: &mut Desk<'_>, sip: &Sip, key: &str, status: u16) {
        if sip.method() == "INVITE" {
            self.answer_invite(desk, key, status, None);
        } else {
            self.answer(desk, key, sip.method(), status);
        }
    }

    /// Takes in an INVITE inside the call (RFC 3261 §14.2).
    fn reinvited(&mut self, desk: &mut Desk<'_>, sip: &Sip, key: &str, cseq: u32) {
        let Some(call) = &mut self.call else { return };
        let theirs = sip.description().and_then(Theirs::read);
        let moves = theirs.as_ref().is_some_and(|theirs| call.media.is_moved_by(theirs));
        let (stands, ending) = (call.stage == Stage::Standing, call.stage == Stage::Ending);
        if let Some(theirs) = &theirs {
            call.media.check(desk, theirs);
        }
        if let Some(ip) = forbidden_in(&sip.body, desk.forbidden) {
            desk.fault(Fault::Forbidden(ip));
        }
        desk.event(Event::Reinvite { moves });
        let (open, unacknowledged) = self.other_invites(key);
        // One that meets the phone's own BYE on the way is nobody's fault.
        if open || unacknowledged || !(stands || ending) {
            desk.fault(Fault::InviteTooEarly { cseq });
        }
        if open || !stands {
            let seconds = u32::try_from(desk.random.below(11)).unwrap_or(0);
            return self.answer_invite(desk, key, 500, Some(seconds));
        }
        if 0 < self.manners.glares {
            self.manners.glares -= 1;
            self.cross(desk);
        }
        if self.reinvite_is_open() {
            return self.answer_invite(desk, key, 491, None);
        }
        self.plan_reinvite_answer(desk, key);
    }

    /// Sends a hold, or a resume, that crosses their INVITE.
    fn cross(&mut self, desk: &mut Desk<'_>) {
        if let Some(call) = &mut self.call {
            call.media.wanted = match call.media.wanted {
                Direction::SendRecv | Direction::RecvOnly => Direction::SendOnly,
                Direction::SendOnly | Direction::Inactive => Direction::SendRecv,
            };
        }
        self.send_reinvite(desk);
    }

    fn plan_reinvite_answer(&mut self, desk: &mut Desk<'_>, key: &str) {
        let (status, retry_after, after) = match &mut self.manners.reinvite {
            Reinvite::Accept { after } => (200, None, *after),
            Reinvite::Refuse { status, retry_after, after, times } if 0 < *times => {
                *times -= 1;
                (*status, *retry_after, *after)
            }
            Reinvite::Stall { times } if 0 < *times => {
                *times -= 1;
                (100, None, Duration::ZERO)
            }
            Reinvite::Ignore { times } if 0 < *times => {
                *times -= 1;
                // RFC 3261 §17.2.1 knows no such phone; people do.
                return self.keep_silent(desk, key, "INVITE");
            }
            Reinvite::Refuse { .. } | Reinvite::Stall { .. } | Reinvite::Ignore { .. } => {
                (200, None, Duration::ZERO)
            }
        };
        if after.is_zero() {
            self.answer_invite(desk, key, status, retry_after);
        } else {
            self.answer_invite(desk, key, 100, None);
            let answer = Reaction::Answer { key: key.to_owned(), status, retry_after };
            self.react(desk.now + after, answer);
        }
    }
}
