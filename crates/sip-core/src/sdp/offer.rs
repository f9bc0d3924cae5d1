//! What RFC 3264 asks of an answer.

use super::Sdp;

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
        let is_rtp = asked.proto().windows(3).any(|part| part == b"RTP");
        if is_rtp && !given.formats().any(|format| asked.formats().any(|f| f == format)) {
            return Err(AnswerError::NoFormat(index));
        }
    }
    Ok(())
}
