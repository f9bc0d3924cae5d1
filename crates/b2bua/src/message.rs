//! The messages of a call, written from its record alone, so that a rebuild repeats them byte for
//! byte.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use failover::record::{CallRecord, ClientInvite, Leg, Purpose, ServerInvite};
use failover::{CallId, Slot, Transport};
use sip_core::{Message, Method, Name, Writer};

use crate::admission::Shared;
use crate::timer;

/// Everything a phone may send us, in or out of a dialog.
pub(crate) const ALLOW: &[u8] = b"INVITE, ACK, BYE, CANCEL, OPTIONS, INFO, REGISTER";

/// The one kind of body that describes a session.
pub(crate) const SDP: &[u8] = b"application/sdp";

/// Writes an INVITE to a leg.
pub(crate) fn invite(
    record: &CallRecord,
    to: &Leg,
    invite: &ClientInvite,
    sdp: Option<Bytes>,
) -> Message {
    let via = via(to, &branch(record.slot, invite.branch));
    let writer = match invite.purpose {
        Purpose::Call => first_invite(record, to, invite.cseq, &via),
        Purpose::Relay | Purpose::Move => {
            let mut dialog = to.dialog.clone();
            dialog.local_cseq = invite.cseq - 1;
            dialog.request(Method::Invite, &via)
        }
    };
    let writer = writer.header(Name::CONTACT, contact(to)).header(Name::ALLOW, ALLOW);
    with_sdp(timer::asking(writer, &to.session), sdp).finish()
}

fn first_invite(record: &CallRecord, to: &Leg, cseq: u32, via: &[u8]) -> Writer {
    let dialog = &to.dialog;
    let mut writer = Writer::request(Method::Invite, &dialog.remote_target).header(Name::VIA, via);
    for route in &dialog.route_set {
        writer = writer.header(Name::ROUTE, route);
    }
    let shared = &record.admission.shared;
    if !shared.is_empty() {
        writer = writer.header(Name::new(Shared::NAME), shared);
    }
    writer
        .number(Name::MAX_FORWARDS, u32::from(record.max_forwards))
        .header(Name::FROM, tagged(&dialog.local, &dialog.local_tag))
        .header(Name::TO, &dialog.remote)
        .header(Name::CALL_ID, &dialog.call_id)
        .header(Name::CSEQ, format!("{cseq} INVITE"))
}

/// Writes the answer to an INVITE of `leg`.
pub(crate) fn answer(leg: &Leg, invite: &ServerInvite, status: u16, sdp: Option<Bytes>) -> Writer {
    let mut writer = Writer::response(status, reason(status));
    for via in &invite.vias {
        writer = writer.header(Name::VIA, via);
    }
    let makes_dialog = (101..300).contains(&status);
    if makes_dialog {
        for route in &invite.record_routes {
            writer = writer.header(Name::RECORD_ROUTE, route);
        }
    }
    let dialog = &leg.dialog;
    writer = writer.header(Name::FROM, tagged(&dialog.remote, &dialog.remote_tag));
    writer = match status {
        100 if !dialog.confirmed => writer.header(Name::TO, &dialog.local),
        _ => writer.header(Name::TO, tagged(&dialog.local, &dialog.local_tag)),
    };
    writer = writer
        .header(Name::CALL_ID, &dialog.call_id)
        .header(Name::CSEQ, format!("{} INVITE", invite.cseq));
    if makes_dialog {
        writer = writer.header(Name::CONTACT, contact(leg));
    }
    if (200..300).contains(&status) {
        writer = timer::granting(writer.header(Name::ALLOW, ALLOW), &leg.session);
    }
    if status == 422 {
        writer = writer.number(Name::MIN_SE, leg.session.min);
    }
    with_sdp(writer, sdp)
}

fn with_sdp(writer: Writer, sdp: Option<Bytes>) -> Writer {
    match sdp {
        Some(sdp) => writer.body(SDP, sdp),
        None => writer,
    }
}

/// Returns the Via value of a request to `leg`.
pub(crate) fn via(leg: &Leg, branch: &str) -> Vec<u8> {
    via_at(leg.contact, leg.flow.transport, branch)
}

/// Returns the Via value of a request that leaves from `addr`.
pub(crate) fn via_at(addr: SocketAddr, transport: Transport, branch: &str) -> Vec<u8> {
    format!("SIP/2.0/{} {addr};branch={branch};rport", transport.name()).into_bytes()
}

/// Returns the branch with this random part.
pub(crate) fn branch(slot: Slot, random: u64) -> String {
    format!("z9hG4bK{slot}{random:016x}")
}

/// Returns the Contact value towards `leg`.
pub(crate) fn contact(leg: &Leg) -> Vec<u8> {
    let addr = leg.contact;
    match leg.flow.transport {
        Transport::Udp => format!("<sip:{addr}>"),
        Transport::Tcp => format!("<sip:{addr};transport=tcp>"),
        // RFC 3261 §8.1.1.8, §12.1.1.
        Transport::Tls if leg.dialog.secure => format!("<sips:{addr}>"),
        Transport::Tls => format!("<sip:{addr};transport=tls>"),
    }
    .into_bytes()
}

fn tagged(address: &[u8], tag: &[u8]) -> Vec<u8> {
    match tag {
        [] => address.to_vec(),
        tag => [address, b";tag=", tag].concat(),
    }
}

/// Writes a Call-ID that names the call, so that we know it when it comes back.
pub(crate) fn call_id(call: CallId, random: u64, host: IpAddr) -> Bytes {
    Bytes::from(format!("{call}{random:016x}@{host}").into_bytes())
}

/// Returns the call that a Call-ID of ours names.
pub(crate) fn call_of(call_id: &[u8]) -> Option<CallId> {
    let digits = std::str::from_utf8(call_id.get(..16)?).ok()?;
    u64::from_str_radix(digits, 16).ok().map(CallId)
}

/// Returns whether a message carries an SDP and nothing else; `None` when it has another body.
pub(crate) fn sdp_of(message: &Message) -> Option<&[u8]> {
    let body = message.body();
    if body.is_empty() {
        return Some(body);
    }
    let kind = message.content_type().unwrap_or(SDP);
    let kind = kind.split(|&byte| byte == b';').next().unwrap_or_default();
    (kind.trim_ascii().eq_ignore_ascii_case(SDP)
        && message.header(Name::CONTENT_ENCODING).is_none())
    .then_some(body)
}

/// Returns the phrase of RFC 3261 §21 for a status.
pub(crate) fn reason(status: u16) -> &'static [u8] {
    match status {
        100 => b"Trying",
        180 => b"Ringing",
        181 => b"Call Is Being Forwarded",
        182 => b"Queued",
        183 => b"Session Progress",
        200 => b"OK",
        202 => b"Accepted",
        400 => b"Bad Request",
        401 => b"Unauthorized",
        402 => b"Payment Required",
        403 => b"Forbidden",
        404 => b"Not Found",
        405 => b"Method Not Allowed",
        406 => b"Not Acceptable",
        407 => b"Proxy Authentication Required",
        408 => b"Request Timeout",
        410 => b"Gone",
        413 => b"Request Entity Too Large",
        414 => b"Request-URI Too Long",
        415 => b"Unsupported Media Type",
        416 => b"Unsupported URI Scheme",
        420 => b"Bad Extension",
        421 => b"Extension Required",
        422 => b"Session Interval Too Small",
        423 => b"Interval Too Brief",
        430 => b"Flow Failed",
        480 => b"Temporarily Unavailable",
        481 => b"Call/Transaction Does Not Exist",
        482 => b"Loop Detected",
        483 => b"Too Many Hops",
        484 => b"Address Incomplete",
        485 => b"Ambiguous",
        486 => b"Busy Here",
        487 => b"Request Terminated",
        488 => b"Not Acceptable Here",
        491 => b"Request Pending",
        493 => b"Undecipherable",
        500 => b"Server Internal Error",
        501 => b"Not Implemented",
        502 => b"Bad Gateway",
        503 => b"Service Unavailable",
        504 => b"Server Time-out",
        505 => b"Version Not Supported",
        513 => b"Message Too Large",
        600 => b"Busy Everywhere",
        603 => b"Decline",
        604 => b"Does Not Exist Anywhere",
        606 => b"Not Acceptable",
        _ => match status / 100 {
            1 => b"Progress",
            2 => b"OK",
            3 => b"Redirected",
            5 => b"Server Error",
            _ => b"Refused",
        },
    }
}
