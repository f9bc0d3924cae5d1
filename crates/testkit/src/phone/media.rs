//! The one audio stream of a call: offers and answers of RFC 3264.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::fleet::{Config, Desk};
use crate::journal::{Fault, PhoneId};
use crate::manners::SameVersion;
use crate::offer::{Codec, DIGITS, Direction, Own, PCMA, PCMU, Theirs};

/// Both descriptions of a call.
#[derive(Debug)]
pub(crate) struct Media {
    session: u64,
    rtp: SocketAddr,
    /// What the next offer has.
    pub(crate) codecs: Vec<Codec>,
    pub(crate) wanted: Direction,
    pub(crate) wants_other_port: bool,
    /// The last description that was sent, agreed or not.
    sent: Option<Own>,
    /// The own description in force.
    agreed: Option<Own>,
    theirs: Option<Theirs>,
    /// The highest o= version that came, agreed or not.
    version_max: u64,
    /// What each payload type number has ever meant.
    meanings: BTreeMap<u8, String>,
    /// RTP goes out from the other port.
    pub(crate) on_other_port: bool,
}

impl Media {
    pub(crate) fn new(config: &Config, phone: PhoneId, session: u64) -> Self {
        Self {
            session,
            rtp: config.rtp_addr(phone),
            codecs: config.codecs.clone(),
            wanted: Direction::SendRecv,
            wants_other_port: false,
            sent: None,
            agreed: None,
            theirs: None,
            version_max: 0,
            meanings: BTreeMap::new(),
            on_other_port: false,
        }
    }

    /// Writes an offer.
    pub(crate) fn offer(&mut self) -> String {
        self.write(self.codecs.clone(), self.wanted)
    }

    /// Agrees to `theirs` and writes the answer; `None` if nothing fits.
    pub(crate) fn answer(&mut self, theirs: Theirs, same_version: SameVersion) -> Option<String> {
        let codecs: Vec<Codec> =
            theirs.formats.iter().filter_map(|&number| self.fitting(&theirs, number)).collect();
        if !codecs.iter().any(|codec| codec.name != DIGITS.name) {
            return None;
        }
        let direction = theirs.direction.answered(self.wanted);
        self.take(theirs, same_version);
        let text = self.write(codecs, direction);
        self.agree();
        Some(text)
    }

    /// Agrees to the answer to the own offer.
    pub(crate) fn answered(&mut self, theirs: Theirs, same_version: SameVersion) {
        self.take(theirs, same_version);
        self.agree();
    }

    /// Wants again what is in force: the own offer was refused.
    pub(crate) fn give_up(&mut self) {
        if let Some(agreed) = &self.agreed {
            self.wanted = agreed.direction;
        }
        self.wants_other_port = self.on_other_port;
    }

    /// Holds `theirs` against the description before it (RFC 3264 §8).
    pub(crate) fn check(&mut self, desk: &mut Desk<'_>, theirs: &Theirs) {
        let (_, now) = theirs.origin;
        if let Some(before) = &self.theirs {
            let version = before.origin.1;
            if before.origin.0 != theirs.origin.0 {
                desk.fault(Fault::OriginChanged);
            }
            if before.rest != theirs.rest {
                // A description that the phone refused has used up a version.
                if now <= version || self.version_max + 1 < now {
                    desk.fault(Fault::OriginVersion { before: version, now });
                }
            } else if version != now && self.version_max == version {
                // After one that the phone refused, the same description is a change again.
                desk.fault(Fault::OriginVersionIdle { now });
            }
            if !theirs.media.starts_with(&before.media) {
                desk.fault(Fault::MediaLines);
            }
        }
        self.version_max = self.version_max.max(now);
        for &number in &theirs.formats {
            let meaning = meaning(theirs, number);
            let known = self.meanings.entry(number).or_insert_with(|| meaning.clone());
            if *known != meaning {
                desk.fault(Fault::PayloadType { number });
            }
        }
    }

    /// Notes the version of a description that comes to nothing: the next one has a higher one.
    pub(crate) fn pass_over(&mut self, theirs: &Theirs) {
        self.version_max = self.version_max.max(theirs.origin.1);
    }

    /// Whether `theirs` sends the phone's RTP to another address than now.
    pub(crate) fn is_moved_by(&self, theirs: &Theirs) -> bool {
        self.theirs.as_ref().is_some_and(|now| now.rtp != theirs.rtp)
    }

    /// Returns where RTP goes, if it may.
    pub(crate) fn speaks_to(&self) -> Option<SocketAddr> {
        let (own, theirs) = (self.agreed.as_ref()?, self.theirs.as_ref()?);
        (own.direction.sends() && theirs.direction.receives()).then_some(theirs.rtp).flatten()
    }

    /// Whether RTP should come.
    pub(crate) fn hears(&self) -> bool {
        let (Some(own), Some(theirs)) = (&self.agreed, &self.theirs) else { return false };
        own.direction.receives() && theirs.direction.sends() && theirs.rtp.is_some()
    }

    pub(crate) fn own_direction(&self) -> Direction {
        self.agreed.as_ref().map_or(Direction::SendRecv, |own| own.direction)
    }

    /// Whether the other side holds the phone.
    pub(crate) fn is_held(&self) -> bool {
        self.theirs.as_ref().is_some_and(|theirs| !theirs.direction.receives())
    }

    /// Returns the payload type to send with.
    pub(crate) fn payload_type(&self) -> Option<u8> {
        let theirs = self.theirs.as_ref()?;
        theirs.formats.iter().copied().find(|&number| {
            self.fitting(theirs, number).is_some_and(|codec| codec.name != DIGITS.name)
        })
    }

    fn take(&mut self, theirs: Theirs, same_version: SameVersion) {
        let same = self.theirs.as_ref().is_some_and(|before| before.origin.1 == theirs.origin.1);
        if !same || same_version == SameVersion::Followed {
            self.theirs = Some(theirs);
        }
    }

    fn agree(&mut self) {
        self.agreed.clone_from(&self.sent);
        self.on_other_port = self.wants_other_port;
    }

    /// Writes a description; its version grows by one if it differs from the
    /// last one that was sent.
    fn write(&mut self, codecs: Vec<Codec>, direction: Direction) -> String {
        let mut rtp = self.rtp;
        if self.wants_other_port {
            rtp.set_port(rtp.port() + 2);
        }
        let mut own = Own { session: self.session, version: 1, rtp, codecs, direction };
        if let Some(sent) = &self.sent {
            own.version = sent.version;
            if own != *sent {
                own.version += 1;
            }
        }
        let text = own.text();
        self.sent = Some(own);
        text
    }

    /// Returns the own codec that one of their numbers means.
    fn fitting(&self, theirs: &Theirs, number: u8) -> Option<Codec> {
        let meaning = meaning(theirs, number);
        let own = self.codecs.iter().find(|codec| codec.name.to_ascii_lowercase() == meaning)?;
        Some(Codec { number, name: own.name })
    }
}

/// What a payload type number means in a description (RFC 3551 §6 for those
/// that need no line).
fn meaning(theirs: &Theirs, number: u8) -> String {
    match theirs.names.get(&number) {
        // RFC 8866 §6.6: one channel is the default.
        Some(name) => name.strip_suffix("/1").unwrap_or(name).to_owned(),
        None => [PCMU, PCMA]
            .into_iter()
            .find(|codec| codec.number == number)
            .map_or_else(String::new, |codec| codec.name.to_ascii_lowercase()),
    }
}
