//! What RFC 3264 asks of an answer, and of every later description.

use super::edit::one_higher;
use super::{Media, Origin, Sdp};

/// Why a description is no answer to an offer. The side that answered is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// It has more or fewer media (RFC 3264 §6).
    #[error("{answered} media in answer to {offered}")]
    MediaCount {
        /// Media of the offer.
        offered: usize,
        /// Media of the answer.
        answered: usize,
    },
    /// A medium is of another kind or protocol than the offered one.
    #[error("medium {0} is of another kind")]
    Kind(usize),
    /// A medium was offered with port 0 and accepted all the same.
    #[error("medium {0} was not offered")]
    NotOffered(usize),
    /// A medium flows a way that the offer excludes (RFC 3264 §6.1).
    #[error("medium {0} flows the wrong way")]
    Direction(usize),
    /// An accepted RTP medium has no format of the offer.
    #[error("medium {0} has no format in common")]
    NoFormat(usize),
}

/// Checks that `answer` can answer `offer`.
///
/// # Errors
/// The first medium that does not fit, and why.
pub fn check_answer(offer: &Sdp<'_>, answer: &Sdp<'_>) -> Result<(), AnswerError> {
    let (offered, answered) = (offer.media_len(), answer.media_len());
    if offered != answered {
        return Err(AnswerError::MediaCount { offered, answered });
    }
    for (index, (asked, given)) in offer.media().zip(answer.media()).enumerate() {
        if asked.kind() != given.kind() {
            return Err(AnswerError::Kind(index));
        }
        if given.port() == 0 {
            continue;
        }
        if asked.port() == 0 {
            return Err(AnswerError::NotOffered(index));
        }
        if !asked.proto().eq_ignore_ascii_case(given.proto()) {
            return Err(AnswerError::Kind(index));
        }
        let flow = given.direction();
        if flow != asked.direction().answered_with(flow) {
            return Err(AnswerError::Direction(index));
        }
        let is_rtp = asked.proto().windows(3).any(|part| part.eq_ignore_ascii_case(b"RTP"));
        if is_rtp && !have_common_format(&asked, &given) {
            return Err(AnswerError::NoFormat(index));
        }
    }
    Ok(())
}

/// RFC 3264 §6.1: the codecs must meet; their numbers should, and need not. A
/// number that one side does not explain means what it means to the other.
fn have_common_format(asked: &Media<'_, '_>, given: &Media<'_, '_>) -> bool {
    given.payload_types().any(|ours| {
        asked.payload_types().any(|theirs| match (given.codec(ours), asked.codec(theirs)) {
            (Some(given), Some(asked)) => given.is_same(&asked),
            (None, _) | (_, None) => ours == theirs,
        })
    })
}

/// Why a description cannot follow the one before it. Its maker is at fault;
/// answer an offer with 488.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NextError {
    /// The `o=` line names another maker or session.
    #[error("another origin")]
    Origin,
    /// The version is the same and the text is not, or the version is not one
    /// higher.
    #[error("a version that does not follow")]
    Version,
    /// There are fewer media than before; one that is over keeps its place with
    /// port 0.
    #[error("fewer media than before")]
    FewerMedia,
    /// A payload type from 96 to 127 names another codec than before.
    #[error("a payload type of medium {0} names another codec")]
    Codec(usize),
}

/// Checks that `next` can follow `last`, the description that the same side
/// made before in the same session, as offer or as answer (RFC 3264 §8).
///
/// # Errors
/// The first thing that may not have changed. Peers exist that do not count
/// their versions; an owner may let [`NextError::Version`] pass.
pub fn check_next(last: &Sdp<'_>, next: &Sdp<'_>) -> Result<(), NextError> {
    let (old, new) = (last.origin(), next.origin());
    if (Origin { version: &[], ..old }) != (Origin { version: &[], ..new }) {
        return Err(NextError::Origin);
    }
    if next.media_len() < last.media_len() {
        return Err(NextError::FewerMedia);
    }
    for (index, (before, after)) in last.media().zip(next.media()).enumerate() {
        if before.port() == 0 {
            // RFC 3264 §8.1: the place of a medium that is over is free.
            continue;
        }
        let is_changed =
            |payload_type: u8| match (before.rtpmap(payload_type), after.rtpmap(payload_type)) {
                (Some(before), Some(after)) => !before.is_same(&after),
                _ => false,
            };
        if after.payload_types().any(|payload_type| 96 <= payload_type && is_changed(payload_type))
        {
            return Err(NextError::Codec(index));
        }
    }
    let is_same_text = last.as_bytes() == next.as_bytes();
    let follows = match trimmed(old.version) == trimmed(new.version) {
        true => is_same_text,
        false => trimmed(&one_higher(old.version)) == trimmed(new.version),
    };
    if follows { Ok(()) } else { Err(NextError::Version) }
}

/// Takes leading zeros off.
fn trimmed(mut number: &[u8]) -> &[u8] {
    while let [b'0', rest @ ..] = number {
        number = rest;
    }
    number
}
