//! What an operator reads about calls and registrations, one line each.

use b2bua::{Detail, Event};
use bytes::Bytes;
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

/// The call detail record: one line at info for each call, times in milliseconds since 1970.
pub(crate) fn detail(detail: &Detail) {
    let charge = detail.charge.as_ref();
    let talked = detail.answered_at.map_or(0, |at| detail.ended_at.0.saturating_sub(at.0));
    info!(
        call = %detail.call,
        call_id = %text(&detail.call_id),
        from = %text(&detail.from),
        to = %text(&detail.to),
        started_at = detail.started_at.0,
        answered_at = detail.answered_at.map(|at| at.0),
        ended_at = detail.ended_at.0,
        talked_ms = talked,
        cause = ?detail.cause,
        moves = detail.moves,
        tenant = charge.map(|charge| text(&charge.tenant)).as_deref(),
        profile = charge.map(|charge| text(&charge.profile)).as_deref(),
        level = charge.map(|charge| charge.level),
        exempt = charge.map(|charge| charge.exempt),
        "call ended"
    );
}

/// A peer's bytes may be anything; what is no UTF-8 is replaced.
fn text(bytes: &Bytes) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}
