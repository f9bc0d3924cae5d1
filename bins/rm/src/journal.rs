//! What an operator reads about calls and registrations, one line each.

use b2bua::{Cause, Detail, Event};
use bytes::Bytes;
use serde_json::json;
use tracing::{debug, info, warn};

pub(crate) fn event(event: &Event) {
    match event {
        Event::Registered { aor, contact, from, expires } => {
            debug!(aor = %text(aor), contact = %text(contact), %from, expires, "registered");
        }
        Event::Unregistered { aor } => debug!(aor = %text(aor), "unregistered"),
        Event::Started { call, from, to } => {
            debug!(%call, from = %text(from), to = %text(to), "call began");
        }
        Event::Answered { call } => debug!(%call, "call answered"),
        Event::Moved { call, from, to } => {
            debug!(%call, from = from.0, to = to.0, "media moved");
        }
        Event::Unheard { call, leg } => {
            warn!(%call, leg, "a phone accepted that its media moved, and sends none");
        }
        Event::KeptApart { call, leg, status } => {
            info!(%call, leg, status, "a phone would not follow its media");
        }
    }
}

/// Returns the call detail record as an object in one line, with times in milliseconds since 1970.
pub(crate) fn detail(detail: &Detail) -> String {
    let charge = detail.charge.as_ref();
    let (cause, status) = cause(detail.cause);
    json!({
        "call": detail.call.to_string(),
        "call_id": text(&detail.call_id),
        "from": text(&detail.from),
        "to": text(&detail.to),
        "started_at": detail.started_at.0,
        "answered_at": detail.answered_at.map(|at| at.0),
        "ended_at": detail.ended_at.0,
        "talked_ms": detail.answered_at.map_or(0, |at| detail.ended_at.0.saturating_sub(at.0)),
        "cause": cause,
        "status": status,
        "moves": detail.moves,
        "tenant": charge.map(|charge| text(&charge.tenant)),
        "profile": charge.map(|charge| text(&charge.profile)),
        "level": charge.map(|charge| charge.level),
        "exempt": charge.map(|charge| charge.exempt),
    })
    .to_string()
}

fn cause(cause: Cause) -> (&'static str, Option<u16>) {
    match cause {
        Cause::Caller => ("caller", None),
        Cause::Callee => ("callee", None),
        Cause::Refused(status) => ("refused", Some(status)),
        Cause::NoAnswer => ("no_answer", None),
        Cause::TooLong => ("too_long", None),
        Cause::MediaTimeout => ("media_timeout", None),
        Cause::LegLost => ("leg_lost", None),
    }
}

/// A peer's bytes may be anything; what is no UTF-8 is replaced.
fn text(bytes: &Bytes) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

#[cfg(test)]
mod tests {
    use failover::{CallId, Slot, UnixMs};

    use super::*;

    #[test]
    fn a_line_says_who_called_whom_how_long_and_what_ended_it_whatever_a_peer_wrote() {
        let line = detail(&Detail {
            slot: Slot(7),
            call: CallId(0x2a),
            call_id: Bytes::from_static(b"8f2c@192.0.2.5"),
            from: Bytes::from_static(b"\"Anna\" <sip:1001@example.com>"),
            to: Bytes::from_static(b"sip:1002@example.com"),
            started_at: UnixMs(1_796_028_000_000),
            answered_at: Some(UnixMs(1_796_028_002_000)),
            ended_at: UnixMs(1_796_028_062_500),
            cause: Cause::Callee,
            moves: 1,
            charge: None,
        });

        let readme = include_str!("../README.md");
        let (_, shown) = readme.split_once("call ended {").unwrap();
        assert_eq!(line, format!("{{{}", shown.lines().next().unwrap()));
    }
}
