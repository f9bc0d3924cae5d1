//! What session timers (RFC 4028) are agreed on, from what either side says.

use std::fmt;
use std::io::Write;

use failover::record::{Session, Side, Terms};
use sip_core::{Message, Name, Refresher, Writer};

use crate::config::Config;

/// The name of the extension in Supported and Require.
pub(crate) const TAG: &[u8] = b"timer";

/// Returns whether sessions have timers here.
pub(crate) fn is_on(config: &Config) -> bool {
    config.session_expires != 0
}

/// Returns the timer that we ask a callee for.
pub(crate) fn proposed(config: &Config) -> Session {
    if !is_on(config) {
        return Session::default();
    }
    let min = shortest(config);
    Session { interval: config.session_expires.max(min), min, ..Session::default() }
}

/// Reads what a phone's INVITE or UPDATE asks for: our 2xx says it, and lets it take effect.
///
/// # Errors
/// The session would be too short: the answer is 422 with [`Session::min`].
pub(crate) fn ask(config: &Config, session: &mut Session, request: &Message) -> Result<(), ()> {
    if !is_on(config) {
        session.pending = None;
        return Ok(());
    }
    let told_min = Some(session.min).filter(|min| *min != UNTOLD);
    session.min = told_min.unwrap_or(0).max(shortest(config));
    let known = request.lists(Name::SUPPORTED, TAG) || request.lists(Name::REQUIRE, TAG);
    let asked = request.session_expires();
    if known && asked.is_some_and(|asked| asked.interval < shortest(config)) {
        return Err(());
    }
    heed(session, request, known);
    let ours = match session.refresher {
        Some(_) => session.interval,
        None => config.session_expires,
    };
    let least = request.min_se().unwrap_or(0);
    if longest(config) < least {
        session.min = UNTOLD;
        session.known = false;
        let interval = ours.max(shortest(config));
        session.pending = Some(Terms { interval, refresher: Side::Us });
        return Ok(());
    }
    let ours = ours.max(least).max(shortest(config));
    // Nobody makes it longer than it was asked for; one that knows no timers did not ask.
    let interval = match asked {
        Some(asked) => asked.interval.min(config.session_expires.max(ours)).max(shortest(config)),
        None => ours,
    };
    let refresher = match (known, asked.and_then(|asked| asked.refresher)) {
        (false, _) => Side::Us,
        (true, Some(Refresher::Uac)) => Side::Peer,
        (true, Some(Refresher::Uas)) => Side::Us,
        (true, None) => session.refresher.unwrap_or(Side::Peer),
    };
    session.pending = Some(Terms { interval, refresher });
    Ok(())
}

/// Reads what the 2xx to an INVITE or UPDATE of ours grants; `None` when we asked for nothing.
pub(crate) fn granted(config: &Config, session: &mut Session, answer: &Message) -> Option<Terms> {
    if session.interval == 0 {
        return None;
    }
    // RFC 4028 §9: nobody grants more than was asked for. From who does nothing is expected.
    let granted = answer.session_expires().filter(|granted| granted.interval <= session.interval);
    let is_told = session.min != UNTOLD;
    let known = granted.is_some() || (is_told && answer.lists(Name::SUPPORTED, TAG));
    heed(session, answer, known);
    let (interval, refresher) = match granted {
        Some(granted) => (granted.interval, granted.refresher),
        // RFC 4028 §7.2: then it is ours to refresh.
        None => (session.interval, Some(Refresher::Uac)),
    };
    let refresher = match refresher {
        Some(Refresher::Uac) => Side::Us,
        Some(Refresher::Uas) => Side::Peer,
        None => session.refresher.unwrap_or(Side::Us),
    };
    Some(Terms { interval: interval.max(shortest(config)), refresher })
}

/// Takes in that the peer found our interval too short (422), after so many `tries` for more. Returns
/// whether to ask anew.
pub(crate) fn raise(config: &Config, session: &mut Session, min: Option<u32>, tries: u8) -> bool {
    let Some(min) = min.filter(|_| session.interval != 0) else { return false };
    // One place where the callee rings may have raised it while another was asked for less.
    if RAISES_MAX <= tries || (min <= session.interval && session.raises == 0) {
        return false;
    }
    session.raises = session.raises.max(tries + 1);
    if longest(config) < min {
        session.min = UNTOLD;
    } else {
        session.interval = session.interval.max(min);
        session.min = session.min.max(min);
    }
    true
}

/// Writes what a request of ours asks for.
pub(crate) fn asking(writer: Writer, session: &Session) -> Writer {
    if session.interval == 0 || session.min == UNTOLD {
        return writer;
    }
    let refresher = session.refresher.map(|side| match side {
        Side::Us => Refresher::Uac,
        Side::Peer => Refresher::Uas,
    });
    let writer = writer.header(Name::SUPPORTED, TAG);
    let min = session.min.min(session.interval);
    let writer = expires(writer, session.interval, refresher);
    header(writer, Name::MIN_SE, format_args!("{min}"))
}

/// Writes what a 2xx of ours grants.
pub(crate) fn granting(writer: Writer, session: &Session) -> Writer {
    let Some(side) = session.refresher.filter(|_| session.min != UNTOLD) else { return writer };
    let writer = writer.header(Name::SUPPORTED, TAG);
    match side {
        Side::Us => expires(writer, session.interval, Some(Refresher::Uas)),
        Side::Peer => {
            expires(writer, session.interval, Some(Refresher::Uac)).header(Name::REQUIRE, TAG)
        }
    }
}

fn expires(writer: Writer, interval: u32, refresher: Option<Refresher>) -> Writer {
    let name = Name::SESSION_EXPIRES;
    match refresher {
        Some(refresher) => {
            header(writer, name, format_args!("{interval};refresher={}", refresher.as_str()))
        }
        None => header(writer, name, format_args!("{interval}")),
    }
}

/// Writes a header whose value is short, which every INVITE has, without a string of its own.
fn header(writer: Writer, name: Name<'_>, value: fmt::Arguments<'_>) -> Writer {
    let mut text = [0_u8; 32];
    let mut rest = &mut text[..];
    rest.write_fmt(value).expect("ten digits and a refresher are less than 32 bytes");
    let len = 32 - rest.len();
    writer.header(name, &text[..len])
}

/// Notes what the peer can do.
fn heed(session: &mut Session, message: &Message, known: bool) {
    session.known = known;
    if message.header(Name::ALLOW).is_some() {
        session.updates = message.lists(Name::ALLOW, b"UPDATE");
    }
}

/// Returns the shortest interval that we take.
pub(crate) fn shortest(config: &Config) -> u32 {
    config.min_se.max(INTERVAL_MIN)
}

/// Returns the longest interval that a peer's Min-SE brings us to.
fn longest(config: &Config) -> u32 {
    config.session_expires.max(shortest(config)).saturating_mul(4)
}

/// In place of [`Session::min`]: the peer takes no interval that we would wait for. No message of ours
/// names a timer, and we refresh as often as we would have asked for.
const UNTOLD: u32 = u32::MAX;

/// RFC 4028 §4: no session is shorter than so many seconds.
const INTERVAL_MIN: u32 = 90;

/// How often a phone may find the interval that it is asked for too short.
const RAISES_MAX: u8 = 4;
