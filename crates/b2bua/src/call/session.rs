//! Offers and answers: which SDP a leg knows, and what changes in it.

use std::hash::Hasher;
use std::net::SocketAddr;

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
        let address = self.media_address(leg, &base)?;
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

    /// Returns the media address that a phone is told: ours, or the other phone's own.
    fn media_address(&self, leg: usize, base: &Base) -> Option<SocketAddr> {
        let other = &self.record.legs[1 - leg];
        match (self.record.legs[leg].rtp, base) {
            (None, Base::Peer) if self.is_direct() => sdp::audio(&other.received)?.rtp,
            (None, Base::PeerOffer) if self.is_direct() => sdp::audio(&other.offer_in)?.rtp,
            (None, Base::Own(sdp)) if self.is_direct() => sdp::audio(sdp)?.rtp,
            (rtp, _) => rtp,
        }
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

    /// Makes the offer that repeats what `leg` agreed on at the present media address, with each
    /// side's holds; `narrow` leaves only the codecs that its phone takes.
    pub(super) fn prepare_offer(&mut self, leg: usize, narrow: bool) -> Option<(SentSdp, Bytes)> {
        self.prepare_agreed(leg, narrow, self.owed_direction(leg))
    }

    /// Makes the answer to the phone's [`Leg::received`] that repeats what `leg` agreed on.
    ///
    /// [`Leg::received`]: failover::record::Leg::received
    pub(super) fn prepare_answer(&mut self, leg: usize, narrow: bool) -> Option<(SentSdp, Bytes)> {
        let offered = direction(&self.record.legs[leg].received).unwrap_or_default();
        self.prepare_agreed(leg, narrow, self.owed_direction(leg).narrowed(offered.mirrored()))
    }

    fn prepare_agreed(
        &mut self,
        leg: usize,
        narrow: bool,
        now: Direction,
    ) -> Option<(SentSdp, Bytes)> {
        let party = &self.record.legs[leg];
        let agreed = party.agreed.clone()?;
        let base = match party.resync {
            true => Base::Peer,
            false => agreed.base.clone(),
        };
        let sent = SentSdp { base, ..agreed };
        let ours = sdp::audio(self.record.base(leg, &sent))?;
        let theirs = sdp::audio(&party.received);
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

    /// Returns the direction in an SDP sent to a leg.
    fn direction_in(&self, leg: usize, sent: &SentSdp) -> Direction {
        let said = sent.direction.or_else(|| direction(self.record.base(leg, sent)));
        said.unwrap_or_default()
    }

    /// Returns the direction that a leg is to be told: the other phone's wish, as far as its own
    /// phone wants to hear of it. One that holds is never asked to talk.
    fn owed_direction(&self, leg: usize) -> Direction {
        self.record.legs[1 - leg].wish.narrowed(self.record.legs[leg].wish.mirrored())
    }

    /// Has the other leg told when it does not know what the phone of `leg` wishes: someone held or
    /// resumed while an INVITE of ours was open.
    pub(super) fn pass_direction(&mut self, leg: usize) {
        let other = 1 - leg;
        let Some(agreed) = &self.record.legs[other].agreed else { return };
        let takes = self.record.legs[other].wish.mirrored();
        if self.direction_in(other, agreed).narrowed(takes) != self.owed_direction(other) {
            self.record.legs[other].resync = true;
        }
    }

    /// Lets an answer to our open offer take effect, and the offer too. An empty one says that what
    /// the phone said before still counts.
    pub(super) fn take_answer(&mut self, leg: usize, answer: Bytes) {
        let party = &self.record.legs[leg];
        let offer = party.offer_out.as_ref().or(party.agreed.as_ref());
        if let (Some(offer), Some(said)) = (offer, direction(&answer)) {
            let allowed = self.direction_in(leg, offer).mirrored();
            self.record.legs[leg].wish = party.wish.answered(allowed, said);
        }
        if !answer.is_empty() {
            self.set_received(leg, answer);
        }
        let party = &mut self.record.legs[leg];
        if let Some(offer) = party.offer_out.take() {
            party.agreed = Some(offer);
        }
    }

    /// Lets an offer of the phone take effect although the other leg is not told of it.
    pub(super) fn take_offer(&mut self, leg: usize, offer: Bytes) {
        self.heed_offer(leg, &offer);
        self.set_received(leg, offer);
    }

    /// Notes who sends, as the phone offers it. One that says no more than its SDP before wishes
    /// nothing new: that one may have been an answer, limited by our offer. And one that is held
    /// may offer not to send for that reason alone.
    fn heed_offer(&mut self, leg: usize, offer: &[u8]) {
        let party = &self.record.legs[leg];
        let Some(said) = direction(offer) else { return };
        if Some(said) == direction(&party.received) {
            return;
        }
        let told = party.agreed.as_ref().map(|sent| self.direction_in(leg, sent));
        let is_held = told.is_some_and(|told| !told.receives());
        let sends = said.sends() || is_held && party.wish.sends();
        self.record.legs[leg].wish = Direction::new(sends, said.receives());
    }

    /// Takes over an SDP of the phone; what the other leg was sent stays the same.
    fn set_received(&mut self, leg: usize, body: Bytes) {
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
        let offer = std::mem::take(&mut self.record.legs[leg].offer_in);
        self.heed_offer(leg, &offer);
        self.record.legs[leg].received = offer;
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

/// Returns who sends in the audio stream of a description, as its party says it.
fn direction(body: &[u8]) -> Option<Direction> {
    sdp::audio(body).map(|audio| audio.direction)
}

/// Returns a hash of an SDP that is never 0.
fn digest(sdp: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(sdp);
    hasher.finish().max(1)
}
