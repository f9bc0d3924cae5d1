//! Offers and answers: which SDP a leg knows, and what changes in it.

use std::hash::Hasher;

use bytes::Bytes;
use failover::record::{Base, Direction, SentSdp};
use siphasher::sip::SipHasher13;

use super::Call;
use crate::sdp;

impl Call {
    /// Makes the SDP that `leg` is sent next. The version of its o= line rises if, and only if, the
    /// SDP differs from the last one sent (RFC 3264 §8).
    pub(super) fn prepare(
        &mut self,
        leg: usize,
        base: Base,
        formats: Vec<u8>,
        direction: Option<Direction>,
    ) -> Option<(SentSdp, Bytes)> {
        // Between two holders the phone is told the old address: it is moved as soon as there are
        // ports, while an exchange cannot wait.
        let address = self.record.legs[leg].rtp?;
        let identity = self.record.legs[leg].identity;
        let version = identity.version;
        let mut sent = SentSdp { base, address, formats, direction, version };
        let mut bytes = self.render(leg, &sent);
        let mut digest = digest(&bytes);
        if identity.digest != 0 && identity.digest != digest {
            sent.version += 1;
            bytes = self.render(leg, &sent);
            digest = self::digest(&bytes);
        }
        let identity = &mut self.record.legs[leg].identity;
        identity.version = sent.version;
        identity.digest = digest;
        Some((sent, bytes))
    }

    /// Returns whether the phone of `leg` has agreed to exactly this SDP.
    pub(super) fn knows(&self, leg: usize, base: Base) -> bool {
        let Some(holder) = self.record.holder else { return false };
        let party = &self.record.legs[leg];
        let identity = party.identity;
        if party.agreed.as_ref().is_none_or(|agreed| agreed.version != identity.version) {
            // What it was sent last was refused.
            return false;
        }
        let sent = SentSdp {
            base,
            address: holder.rtp(leg),
            formats: Vec::new(),
            direction: None,
            version: identity.version,
        };
        identity.digest == digest(&self.render(leg, &sent))
    }

    /// Writes an SDP that was or is to be sent to `leg`.
    pub(super) fn render(&self, leg: usize, sent: &SentSdp) -> Bytes {
        sdp::render(self.record.base(leg, sent), &self.record.legs[leg].identity, sent)
    }

    /// Makes the offer or answer that repeats what `leg` agreed on, narrowed to what its phone
    /// takes, at the present media address.
    pub(super) fn prepare_agreed(&mut self, leg: usize, narrow: bool) -> Option<(SentSdp, Bytes)> {
        let party = &self.record.legs[leg];
        let agreed = party.agreed.clone()?;
        let base = match party.resync {
            true => Base::Peer,
            false => agreed.base.clone(),
        };
        let sent = SentSdp { base, ..agreed };
        let ours = sdp::audio(self.record.base(leg, &sent))?;
        let theirs = sdp::audio(&party.received);
        let now = match &theirs {
            Some(_) if party.resync => self.wishes(1 - leg),
            Some(theirs) => {
                let was = sent.direction.unwrap_or(ours.direction);
                was.narrowed(theirs.direction.mirrored())
            }
            None => sent.direction.unwrap_or(ours.direction),
        };
        let direction = (now != ours.direction).then_some(now);
        let all = match sent.formats.is_empty() {
            true => &ours.formats,
            false => &sent.formats,
        };
        let formats = match theirs {
            Some(theirs) if narrow => {
                all.iter().copied().filter(|format| theirs.formats.contains(format)).collect()
            }
            Some(_) | None => Vec::new(),
        };
        let formats = if formats == ours.formats { Vec::new() } else { formats };
        self.prepare(leg, sent.base, formats, direction)
    }

    /// Returns the direction in the last SDP sent to a leg that took effect.
    fn told_direction(&self, leg: usize) -> Direction {
        let agreed = self.record.legs[leg].agreed.as_ref();
        let direction = agreed.and_then(|sent| {
            sent.direction.or_else(|| Some(sdp::audio(self.record.base(leg, sent))?.direction))
        });
        direction.unwrap_or_default()
    }

    /// Returns who sends, as the phone of `leg` says it and as far as it was allowed to.
    fn wishes(&self, leg: usize) -> Direction {
        let said = sdp::audio(&self.record.legs[leg].received);
        let said = said.map(|audio| audio.direction).unwrap_or_default();
        said.narrowed(self.told_direction(leg).mirrored())
    }

    /// Has the other leg told when the phone of `leg` answered our re-INVITE with another direction
    /// than before: someone held or resumed in the same moment.
    pub(super) fn pass_direction(&mut self, leg: usize) {
        let other = 1 - leg;
        if self.record.legs[other].agreed.is_none() {
            return;
        }
        let takes = self.wishes(other).mirrored();
        if self.told_direction(other).narrowed(takes) != self.wishes(leg).narrowed(takes) {
            self.record.legs[other].resync = true;
        }
    }

    /// Takes over the phone's SDP although the other leg is not told of it.
    pub(super) fn set_received(&mut self, leg: usize, body: Bytes) {
        let other = 1 - leg;
        let old = std::mem::replace(&mut self.record.legs[leg].received, body);
        self.media_changed = true;
        let [one, two] = &mut self.record.legs;
        let (party, other) = if other == 1 { (one, two) } else { (two, one) };
        for sent in [&mut other.agreed, &mut other.offer_out].into_iter().flatten() {
            let changes = sent.base == Base::Peer
                && sdp::render(&old, &other.identity, sent)
                    != sdp::render(&party.received, &other.identity, sent);
            if changes {
                sent.base = Base::Own(old.clone());
            }
        }
    }

    /// Lets the phone's open offer take effect; what the other leg was sent of it stays the same.
    pub(super) fn commit_offer(&mut self, leg: usize) {
        let party = &mut self.record.legs[leg];
        party.received = std::mem::take(&mut party.offer_in);
        self.media_changed = true;
        let other = &mut self.record.legs[1 - leg];
        for sent in [&mut other.agreed, &mut other.offer_out].into_iter().flatten() {
            if sent.base == Base::PeerOffer {
                sent.base = Base::Peer;
            }
        }
    }

    /// Drops the phone's open offer; what the other leg was sent of it keeps a copy.
    pub(super) fn withdraw_offer(&mut self, leg: usize) {
        let offer = std::mem::take(&mut self.record.legs[leg].offer_in);
        if let Some(sent) = &mut self.record.legs[1 - leg].offer_out
            && sent.base == Base::PeerOffer
        {
            sent.base = Base::Own(offer);
        }
    }
}

/// Returns a hash of an SDP that is never 0.
fn digest(sdp: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(sdp);
    hasher.finish().max(1)
}
