//! What is asked about a new call before anybody hears of it, and what may be answered.

use std::net::SocketAddr;

use bytes::Bytes;
use failover::{CallId, Flow, Slot};
use sip_core::transactions::ServerKey;
use sip_core::{Message, Name, Uri};

use crate::call::Proposal;
use crate::core::Way;
use crate::routing;

/// What is known of a call that may not be yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The slot it will live in.
    pub slot: Slot,
    /// Where its INVITE came from.
    pub source: SocketAddr,
    /// A registered phone of ours calls.
    pub registered: bool,
    /// Where it would go.
    pub goes: Goes,
    /// The user part of the Request-URI without escapes: the number called.
    pub user: Bytes,
    /// The parameter `gvp-tenant-id` of the Request-URI.
    pub tenant: Option<Bytes>,
    /// The header `X-Genesys-gsw-ivr-profile-id`.
    pub profile_id: Option<Bytes>,
    /// The header `X-Genesys-gsw-ivr-profile-name`.
    pub profile_name: Option<Bytes>,
    /// This process drains: it counts no call any more, and sends this one on at the most.
    pub draining: bool,
    /// What another segment that sent the call on says of it; anybody can write that.
    pub shared: Option<Shared>,
}

/// Where a call would go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goes {
    /// Nobody here has that address.
    Nowhere,
    /// To a registered phone.
    Phone,
    /// To a gateway or another trunk.
    Trunk,
}

/// How a call that may not be is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The status of the answer, 400 to 699.
    pub status: u16,
    /// The value of its Reason header (RFC 3326); empty for none.
    pub reason: Bytes,
    /// Where the call goes instead, if anywhere.
    pub elsewhere: Option<Elsewhere>,
}

/// Other segments that may take a call, which is then not counted here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// Their addresses, at least one, in the order in which they are tried.
    pub targets: Vec<SocketAddr>,
    /// What is said there of the call.
    pub shared: Shared,
}

/// What segments tell each other of a call that one sends on to another.
///
/// It travels as the header [`Shared::NAME`]: `tried=1,2;outbound;profile=NAME`, where bytes of the
/// name other than letters, digits and `-._` are escaped as in a URI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shared {
    /// The segments that did not take it, in that order.
    pub tried: Vec<u16>,
    /// The profile or tenant that it counts at; empty where none was found.
    pub profile: Bytes,
    /// It goes out to a gateway.
    pub outbound: bool,
}

impl Shared {
    /// The name of the header.
    pub const NAME: &'static [u8] = b"X-Holdline-Shared";

    /// Reads the value of the header; `None` when it is malformed or names too many segments.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let value = std::str::from_utf8(value).ok()?;
        let mut shared = Self::default();
        for part in value.split(';') {
            let part = part.trim();
            match part.split_once('=').unwrap_or((part, "")) {
                ("tried", list) => {
                    let ids = list.split(',').map(str::parse);
                    shared.tried = ids.collect::<Result<_, _>>().ok()?;
                }
                ("profile", name) => {
                    shared.profile = sip_core::uri::unescape(name.as_bytes()).into_owned().into();
                }
                ("outbound", "") => shared.outbound = true,
                _ => {}
            }
        }
        (1..=TRIED_MAX).contains(&shared.tried.len()).then_some(shared)
    }

    /// Writes the value of the header.
    pub fn value(&self) -> Bytes {
        use std::fmt::Write as _;
        let ids: Vec<String> = self.tried.iter().map(u16::to_string).collect();
        let mut value = format!("tried={}", ids.join(","));
        if self.outbound {
            value += ";outbound";
        }
        value += ";profile=";
        for &byte in &self.profile {
            if byte.is_ascii_alphanumeric() || b"-._".contains(&byte) {
                value.push(char::from(byte));
            } else {
                let _ = write!(value, "%{byte:02X}");
            }
        }
        Bytes::from(value.into_bytes())
    }
}

/// An INVITE about which nothing is decided yet.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) key: ServerKey,
    pub(crate) way: Way,
    pub(crate) invite: Message,
    pub(crate) call: CallId,
    pub(crate) proposal: Proposal,
}

impl Waiting {
    /// Returns who is called.
    pub(crate) fn uri(&self) -> Uri<'_> {
        let uri = self.invite.request_uri().and_then(|uri| Uri::parse(uri).ok());
        uri.expect("it was read before anybody was asked")
    }
}

/// Returns what an INVITE says of the call it begins.
pub(crate) fn ask(
    invite: &Message,
    (flow, slot): (Flow, Slot),
    uri: &Uri<'_>,
    registered: bool,
    goes: Goes,
) -> Ask {
    let header = |name: &[u8]| invite.header(Name::new(name)).map(Bytes::copy_from_slice);
    Ask {
        slot,
        source: flow.remote,
        registered,
        goes,
        user: routing::address(uri).user,
        tenant: uri.param(TENANT).map(Bytes::copy_from_slice),
        profile_id: header(b"X-Genesys-gsw-ivr-profile-id"),
        profile_name: header(b"X-Genesys-gsw-ivr-profile-name"),
        draining: false,
        shared: invite.header(Name::new(Shared::NAME)).and_then(Shared::parse),
    }
}

/// The URI parameter that names a tenant or profile.
const TENANT: &[u8] = b"gvp-tenant-id";

/// Segments that a call may have tried: as many as a cluster has at the most.
const TRIED_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_segments_say_comes_back_as_it_went() {
        let profile = Bytes::from_static("Café; menu=1%".as_bytes());
        for shared in [
            Shared { tried: vec![2], profile: Bytes::new(), outbound: false },
            Shared { tried: vec![1, 65_535], profile, outbound: true },
        ] {
            assert_eq!(Shared::parse(&shared.value()), Some(shared));
        }
    }

    #[test]
    fn what_names_no_segment_or_too_many_says_nothing() {
        let many = vec!["1"; TRIED_MAX + 1].join(",");
        for value in ["", "tried=", "tried=x", "tried=70000", "profile=a", &format!("tried={many}")]
        {
            assert_eq!(Shared::parse(value.as_bytes()), None, "{value}");
        }
    }
}
