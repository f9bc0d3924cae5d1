//! Typed values of headers that not every message has. Each is made when it is
//! asked for; one that cannot be read counts as absent.

use crate::digest::{AuthenticationInfo, Challenge, Credentials};
use crate::fields::{
    self, Diversion, Event, Join, MediaRange, RAck, Reason, ReferTo, Replaces, RetryAfter,
    SessionExpires, SubscriptionState,
};
use crate::message::Message;
use crate::{Name, NameAddr};

impl Message {
    /// Returns Max-Forwards, from 0 to 255.
    #[must_use]
    pub fn max_forwards(&self) -> Option<u32> {
        fields::hops(self.header(Name::MAX_FORWARDS)?)
    }

    /// Returns Expires in seconds; too large a number is as large as fits.
    #[must_use]
    pub fn expires(&self) -> Option<u32> {
        fields::leading_seconds(self.header(Name::EXPIRES)?)
    }

    /// Returns Retry-After in seconds.
    #[must_use]
    pub fn retry_after(&self) -> Option<u32> {
        fields::leading_seconds(self.header(Name::RETRY_AFTER)?)
    }

    /// Returns Min-SE in seconds (RFC 4028 §5).
    #[must_use]
    pub fn min_se(&self) -> Option<u32> {
        fields::leading_seconds(self.header(Name::MIN_SE)?)
    }

    /// Returns Session-Expires, when it can be read.
    #[must_use]
    pub fn session_expires(&self) -> Option<SessionExpires> {
        SessionExpires::parse(self.header(Name::SESSION_EXPIRES)?).ok()
    }

    /// Returns Replaces, when it can be read. One that is there and cannot be
    /// read calls for 400 (RFC 3891 §3).
    #[must_use]
    pub fn replaces(&self) -> Option<Replaces<'_>> {
        Replaces::parse(self.header(Name::REPLACES)?).ok()
    }

    /// Iterates over the reasons of a Reason header (not the reason phrase).
    pub fn reasons(&self) -> impl Iterator<Item = Reason<'_>> + use<'_> {
        self.elements(Name::REASON).filter_map(|element| Reason::parse(element).ok())
    }

    /// Returns Join, when it can be read (RFC 3911).
    #[must_use]
    pub fn join(&self) -> Option<Join<'_>> {
        Join::parse(self.header(Name::JOIN)?).ok()
    }

    /// Returns Min-Expires in seconds (RFC 3261 §20.23).
    #[must_use]
    pub fn min_expires(&self) -> Option<u32> {
        fields::leading_seconds(self.header(Name::MIN_EXPIRES)?)
    }

    /// Returns Retry-After with its comment and parameters.
    #[must_use]
    pub fn retry(&self) -> Option<RetryAfter<'_>> {
        RetryAfter::parse(self.header(Name::RETRY_AFTER)?).ok()
    }

    /// Returns RAck of a PRACK (RFC 3262).
    #[must_use]
    pub fn rack(&self) -> Option<RAck<'_>> {
        RAck::parse(self.header(Name::RACK)?).ok()
    }

    /// Returns RSeq of a reliable provisional response (RFC 3262); never 0.
    #[must_use]
    pub fn rseq(&self) -> Option<u32> {
        fields::rseq(self.header(Name::RSEQ)?)
    }

    /// Returns Event (RFC 6665).
    #[must_use]
    pub fn event(&self) -> Option<Event<'_>> {
        Event::parse(self.header(Name::EVENT)?).ok()
    }

    /// Returns Subscription-State (RFC 6665).
    #[must_use]
    pub fn subscription_state(&self) -> Option<SubscriptionState<'_>> {
        SubscriptionState::parse(self.header(Name::SUBSCRIPTION_STATE)?).ok()
    }

    /// Returns Refer-To of a REFER (RFC 3515). A REFER must have one, and no
    /// more; of two the message has a defect.
    #[must_use]
    pub fn refer_to(&self) -> Option<ReferTo<'_>> {
        ReferTo::parse(self.header(Name::REFER_TO)?).ok()
    }

    /// Returns Referred-By (RFC 3892).
    #[must_use]
    pub fn referred_by(&self) -> Option<NameAddr<'_>> {
        NameAddr::parse(self.header(Name::REFERRED_BY)?).ok()
    }

    /// Iterates over the Path of a registration, next hop first (RFC 3327).
    pub fn paths(&self) -> impl Iterator<Item = NameAddr<'_>> + use<'_> {
        self.addresses(Name::PATH)
    }

    /// Iterates over P-Asserted-Identity (RFC 3325): at most a SIP and a
    /// telephone URI. Believe it of a trusted peer only.
    pub fn asserted_identities(&self) -> impl Iterator<Item = NameAddr<'_>> + use<'_> {
        self.addresses(Name::P_ASSERTED_IDENTITY)
    }

    /// Iterates over the diversions of a call, the last one first (RFC 5806).
    pub fn diversions(&self) -> impl Iterator<Item = Diversion<'_>> + use<'_> {
        self.elements(Name::DIVERSION).filter_map(|element| Diversion::parse(element).ok())
    }

    /// Iterates over Accept, as it stands.
    pub fn accept(&self) -> impl Iterator<Item = MediaRange<'_>> + use<'_> {
        self.elements(Name::ACCEPT).filter_map(|element| MediaRange::parse(element).ok())
    }

    /// True when the sender takes a body of this type, such as
    /// `application/sdp`, in the answer. Without Accept that type alone is
    /// taken, and an empty Accept takes nothing (RFC 3261 §20.1).
    #[must_use]
    pub fn accepts(&self, media_type: &[u8]) -> bool {
        let Ok(wanted) = MediaRange::parse(media_type) else { return false };
        if self.header(Name::ACCEPT).is_none() {
            return wanted.covers(b"application", b"sdp") == Some(2);
        }
        // The closest range decides, also when it says no.
        let ranges = self.accept().filter_map(|range| {
            range.covers(wanted.kind, wanted.subtype).map(|closeness| (closeness, range.quality()))
        });
        ranges.max().is_some_and(|(_, quality)| 0 < quality)
    }

    /// Iterates over the Digest challenges of a refusal, topmost first, each
    /// with its header: WWW-Authenticate or Proxy-Authenticate.
    pub fn challenges(&self) -> impl Iterator<Item = (Name<'static>, Challenge<'_>)> + use<'_> {
        [Name::WWW_AUTHENTICATE, Name::PROXY_AUTHENTICATE].into_iter().flat_map(|name| {
            let challenges = self.headers(name).filter_map(|value| Challenge::parse(value).ok());
            challenges.map(move |challenge| (name, challenge))
        })
    }

    /// Iterates over the Digest credentials of a request, each with its
    /// header: Authorization or Proxy-Authorization.
    pub fn credentials(&self) -> impl Iterator<Item = (Name<'static>, Credentials<'_>)> + use<'_> {
        [Name::AUTHORIZATION, Name::PROXY_AUTHORIZATION].into_iter().flat_map(|name| {
            let credentials = self.headers(name).filter_map(|value| Credentials::parse(value).ok());
            credentials.map(move |credentials| (name, credentials))
        })
    }

    /// Returns Authentication-Info.
    #[must_use]
    pub fn authentication_info(&self) -> Option<AuthenticationInfo<'_>> {
        AuthenticationInfo::parse(self.header(Name::AUTHENTICATION_INFO)?).ok()
    }
}
