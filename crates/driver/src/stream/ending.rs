//! Why connections of SIP streams end or are refused: counted, and logged without letting a peer fill
//! the log.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use sip_core::ParseErrorKind;
use sip_core::framer::FramerError;
use tracing::info;

use crate::metrics::Metrics;
use crate::tls::{CertificateFault, HandshakeFault};

/// The same reason is logged once in this time.
const LOG_PERIOD: Duration = Duration::from_secs(60);

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ending {
    #[error(transparent)]
    Framer(#[from] FramerError),
    #[error(transparent)]
    Tls(#[from] HandshakeFault),
    #[error("it carried nothing for too long")]
    Idle,
    #[error("no message came over it")]
    Wordless,
    #[error("its source has made too many others")]
    Displaced,
    #[error("its peer does not read")]
    Unread,
    #[error("it could not be made: {0}")]
    NotMade(io::Error),
    #[error("{0}")]
    Io(io::Error),
    #[error("the peer closed")]
    Closed,
    #[error("the listener was closed")]
    Unlistened,
}

/// Why a connection is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There are as many as there may be.
    All,
    /// Its source has as many as it may have, and none of them can end.
    Source,
    /// As many were made as may be, to all peers or to this one.
    Made,
    /// The process or the host has no file left.
    Files,
}

impl Ending {
    /// Its name in the metrics.
    fn label(&self) -> &'static str {
        match self {
            Self::Framer(error) => framer_label(*error),
            Self::Tls(HandshakeFault::Certificate(CertificateFault::WrongNode { .. })) => {
                "certificate_of_another_name"
            }
            Self::Tls(fault) => fault.label(),
            Self::Idle => "idle",
            Self::Wordless => "wordless",
            Self::Displaced => "displaced",
            Self::Unread => "unread",
            Self::NotMade(_) => "not_made",
            Self::Io(_) => "error",
            Self::Closed => "closed",
            Self::Unlistened => "unlistened",
        }
    }
}

fn framer_label(error: FramerError) -> &'static str {
    match error {
        FramerError::Parse(error) if error.kind == ParseErrorKind::HeadTooLong => "head_too_long",
        FramerError::Length => "no_length",
        FramerError::BodyTooLong => "body_too_long",
        FramerError::TooSlow => "slow",
        FramerError::Parse(_) | FramerError::LineBreak | _ => "no_sip",
    }
}

impl Refusal {
    fn label(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Source => "source",
            Self::Made => "made",
            Self::Files => "files",
        }
    }
}

/// What came of connections so far.
#[derive(Default)]
pub(super) struct Endings {
    endings: BTreeMap<&'static str, u64>,
    refusals: BTreeMap<&'static str, u64>,
    logged: BTreeMap<&'static str, Instant>,
}

impl Endings {
    pub(super) fn count(&mut self, why: &Ending) {
        *self.endings.entry(why.label()).or_default() += 1;
    }

    /// Counts a peer that broke the limits, and logs it now and then.
    pub(super) fn note(&mut self, now: Instant, remote: SocketAddr, why: &Ending) {
        self.count(why);
        self.tell(now, remote, why);
    }

    /// Logs, now and then, that a peer broke the rules.
    pub(super) fn tell(&mut self, now: Instant, remote: SocketAddr, why: &Ending) {
        if self.logs(now, why.label()) {
            info!(%remote, %why, "connection cut; the next ones for this are only counted for a while");
        }
    }

    /// Counts a refusal; returns whether it is to be logged.
    pub(super) fn refuse(&mut self, now: Instant, why: Refusal) -> bool {
        *self.refusals.entry(why.label()).or_default() += 1;
        self.logs(now, why.label())
    }

    pub(super) fn metrics(&self, out: &mut Metrics) {
        let (name, help) = ("driver_stream_ends_total", "Connections of SIP streams that ended.");
        for (why, count) in &self.endings {
            out.counter(name, help, &[("why", why)], *count);
        }
        let (name, help) =
            ("driver_stream_refused_total", "Connections of SIP streams that were not taken.");
        for (why, count) in &self.refusals {
            out.counter(name, help, &[("why", why)], *count);
        }
    }

    fn logs(&mut self, now: Instant, label: &'static str) -> bool {
        let last = self.logged.get(label);
        let due = last.is_none_or(|at| *at + LOG_PERIOD <= now);
        if due {
            self.logged.insert(label, now);
        }
        due
    }
}
