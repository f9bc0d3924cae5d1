//! INVITE with Replaces: which dialog it takes the place of, and whether it may
//! (RFC 3891 §3).

use super::Dialog;
use crate::{Message, Method, Name, Replaces};

/// How far a dialog is that an INVITE could replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// We called and the peer has not accepted.
    Calling,
    /// The peer called and we have not accepted.
    Ringing,
    /// Accepted, also while the ACK is not here yet.
    Confirmed,
    /// Ended; known for a while longer.
    Ended,
}

/// What the owner knows about one of its dialogs that
/// [`Replaces::names`] has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// How far it is.
    pub phase: Phase,
    /// Whether an INVITE made it; a subscription cannot be replaced.
    pub by_invite: bool,
}

/// What to do with the INVITE that replaces, and with the dialog it replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// Accept the INVITE at once, without ringing; then end the old dialog with
    /// BYE. When the INVITE cannot be accepted for another reason, refuse it
    /// and leave the old dialog as it is.
    ThenBye,
    /// The same, but our own INVITE of the old dialog is still open: end it
    /// with CANCEL.
    ThenCancel,
}

/// Why an INVITE with Replaces is refused. The old dialog stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Replaces cannot be read, stands twice, in another request than INVITE,
    /// or beside Join: 400.
    #[error("malformed or contradictory replaces")]
    Malformed,
    /// It names no dialog, several, one that no INVITE made, or one in which
    /// the receiver is ringing: 481.
    #[error("no dialog that could be replaced")]
    NoDialog,
    /// The dialog has ended: 603.
    #[error("the dialog has ended")]
    Ended,
    /// The sender may not replace this dialog: 403, or a challenge.
    #[error("not authorised")]
    Forbidden,
    /// It asks for an early dialog, and the dialog is confirmed: 486.
    #[error("the dialog is no longer early")]
    NotEarly,
}

impl Refusal {
    /// Returns the status to refuse with.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::Malformed => 400,
            Self::NoDialog => 481,
            Self::Ended => 603,
            Self::Forbidden => 403,
            Self::NotEarly => 486,
        }
    }
}

impl<'a> Replaces<'a> {
    /// Returns the Replaces of a request: the first of the RFC's checks.
    /// `Ok(None)` when there is none.
    ///
    /// # Errors
    /// [`Refusal::Malformed`].
    pub fn of(request: &'a Message) -> Result<Option<Self>, Refusal> {
        let mut values = request.headers(Name::REPLACES);
        let Some(value) = values.next() else { return Ok(None) };
        let is_alone = values.next().is_none()
            && request.method() == Method::Invite
            && request.header(Name::JOIN).is_none();
        let replaces = Self::parse(value).map_err(|_| Refusal::Malformed)?;
        if is_alone { Ok(Some(replaces)) } else { Err(Refusal::Malformed) }
    }

    /// Tells whether this names `dialog`, as its own peer would name it: the
    /// to-tag is our tag and the from-tag the peer's, whoever called. A tag of
    /// `0` also names one that is absent (RFC 3891 §6.1).
    #[must_use]
    pub fn names(&self, dialog: &Dialog) -> bool {
        let is_tag = |named: &[u8], tag: &[u8]| named == tag || (named == b"0" && tag.is_empty());
        self.call_id == dialog.call_id
            && is_tag(self.to_tag, &dialog.local_tag)
            && is_tag(self.from_tag, &dialog.remote_tag)
    }

    /// Decides, in the order of RFC 3891 §3, about an INVITE with this header.
    /// `found` are all dialogs that it names; `may_replace` tells whether the
    /// sender is authorised, and is asked only when the dialog lives.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn judge(
        &self,
        found: &[Target],
        may_replace: impl FnOnce() -> bool,
    ) -> Result<Replacement, Refusal> {
        let [Target { phase, by_invite: true }] = *found else { return Err(Refusal::NoDialog) };
        if phase == Phase::Ended {
            return Err(Refusal::Ended);
        }
        if !may_replace() {
            return Err(Refusal::Forbidden);
        }
        match phase {
            Phase::Confirmed if self.early_only => Err(Refusal::NotEarly),
            Phase::Confirmed => Ok(Replacement::ThenBye),
            Phase::Ringing => Err(Refusal::NoDialog),
            Phase::Calling => Ok(Replacement::ThenCancel),
            Phase::Ended => Err(Refusal::Ended),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn it_names_a_dialog_as_the_peer_of_its_receiver_does() {
        let theirs = invite("");
        let dialog = Dialog::uas(&theirs, b"ours").expect("an INVITE makes one");
        let names = |value: &[u8]| Replaces::parse(value).is_ok_and(|r| r.names(&dialog));
        assert!(names(b"old@h;to-tag=ours;from-tag=ann"));
        assert!(!names(b"old@h;to-tag=ann;from-tag=ours"), "the wrong way round");
        assert!(!names(b"OLD@h;to-tag=ours;from-tag=ann"));
        assert!(!names(b"old@h;to-tag=ours;from-tag=0"));

        let called = Dialog::calling(&theirs).expect("it can be read");
        let names = |value: &[u8]| Replaces::parse(value).is_ok_and(|r| r.names(&called));
        assert!(names(b"old@h;to-tag=ann;from-tag=0"), "a peer without a tag");
        assert!(!names(b"old@h;to-tag=0;from-tag=0"));
    }

    #[test]
    fn what_contradicts_itself_is_malformed() {
        let of = |more: &str| {
            let message = invite(more);
            Replaces::of(&message).map(|replaces| replaces.is_some())
        };
        let one = "Replaces: a;to-tag=b;from-tag=c\r\n";
        assert_eq!(of(""), Ok(false));
        assert_eq!(of(one), Ok(true));
        assert_eq!(of(&one.repeat(2)), Err(Refusal::Malformed));
        assert_eq!(of(&format!("{one}Join: a;to-tag=b;from-tag=c\r\n")), Err(Refusal::Malformed));
        assert_eq!(of("Replaces: a;to-tag=b\r\n"), Err(Refusal::Malformed));
        assert_eq!(of("Replaces: a;to-tag=b;from-tag=c, d\r\n"), Err(Refusal::Malformed));
        let bytes = invite(one).bytes().escape_ascii().to_string().replace("INVITE", "UPDATE");
        let update = bytes.replace("\\r\\n", "\r\n").replace("\\\"", "\"");
        let update = Message::parse(Bytes::from(update)).expect("a message");
        assert_eq!(Replaces::of(&update), Err(Refusal::Malformed));
    }

    #[test]
    fn the_checks_come_in_the_order_of_the_rfc() {
        let judge = |early_only: bool, found: &[Target], may: bool| {
            let text: &[u8] = if early_only {
                b"a;to-tag=b;from-tag=c;early-only"
            } else {
                b"a;to-tag=b;from-tag=c"
            };
            let replaces = Replaces::parse(text).expect("it can be read");
            let mut was_asked = false;
            let judged = replaces.judge(found, || {
                was_asked = true;
                may
            });
            (judged, was_asked)
        };
        let of = |phase| Target { phase, by_invite: true };
        let (calling, ringing) = (of(Phase::Calling), of(Phase::Ringing));
        let (confirmed, ended) = (of(Phase::Confirmed), of(Phase::Ended));
        let subscription = Target { phase: Phase::Confirmed, by_invite: false };

        // Nothing is told about a dialog that is not there, has ended, or is
        // none of an INVITE, and nobody is asked who may replace it.
        assert_eq!(judge(false, &[], true), (Err(Refusal::NoDialog), false));
        assert_eq!(judge(false, &[confirmed, ended], true), (Err(Refusal::NoDialog), false));
        assert_eq!(judge(false, &[subscription], true), (Err(Refusal::NoDialog), false));
        assert_eq!(judge(true, &[ended], false), (Err(Refusal::Ended), false));
        // Then comes the right to do it, and only then what is wrong with it.
        assert_eq!(judge(true, &[confirmed], false), (Err(Refusal::Forbidden), true));
        assert_eq!(judge(false, &[ringing], false), (Err(Refusal::Forbidden), true));
        assert_eq!(judge(true, &[confirmed], true), (Err(Refusal::NotEarly), true));
        assert_eq!(judge(false, &[ringing], true), (Err(Refusal::NoDialog), true));
        assert_eq!(judge(true, &[ringing], true), (Err(Refusal::NoDialog), true));
        assert_eq!(judge(true, &[calling], true), (Ok(Replacement::ThenCancel), true));
        assert_eq!(judge(false, &[calling], true), (Ok(Replacement::ThenCancel), true));
        assert_eq!(judge(false, &[confirmed], true), (Ok(Replacement::ThenBye), true));
    }

    #[test]
    fn every_refusal_has_its_status() {
        let statuses = [
            (Refusal::Malformed, 400),
            (Refusal::NoDialog, 481),
            (Refusal::Ended, 603),
            (Refusal::Forbidden, 403),
            (Refusal::NotEarly, 486),
        ];
        assert!(statuses.iter().all(|(refusal, status)| refusal.status() == *status));
    }

    fn invite(more: &str) -> Message {
        let text = format!(
            "INVITE sip:bob@example.com SIP/2.0\r\n\
             Via: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1\r\n\
             From: <sip:ann@example.com>;tag=ann\r\n\
             To: <sip:bob@example.com>\r\n\
             Contact: <sip:ann@192.0.2.1>\r\n\
             Call-ID: old@h\r\n\
             CSeq: 7 INVITE\r\n{more}\r\n"
        );
        Message::parse(Bytes::from(text)).expect("an INVITE")
    }
}
