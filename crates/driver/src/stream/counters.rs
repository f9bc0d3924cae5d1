//! What streams did so far.

use super::Streams;
use crate::metrics::Metrics;

#[derive(Default)]
pub(super) struct Counters {
    pub(super) accepted: u64,
    pub(super) made: u64,
    pub(super) messages_in: u64,
    pub(super) messages_out: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) pings: u64,
    pub(super) unsent: u64,
    pub(super) secured: u64,
}

impl Streams {
    /// Adds the figures of `unix_ms` milliseconds since 1970.
    pub(crate) fn metrics(&self, unix_ms: u64, out: &mut Metrics) {
        if self.listeners.is_empty() {
            return;
        }
        let counters = &self.counters;
        let (name, help) = ("driver_stream_connections_total", "Connections of SIP streams.");
        out.counter(name, help, &[("made_by", "peer")], counters.accepted);
        out.counter(name, help, &[("made_by", "us")], counters.made);
        let (name, help) = ("driver_stream_messages_total", "Messages on SIP streams.");
        out.counter(name, help, &[("direction", "in")], counters.messages_in);
        out.counter(name, help, &[("direction", "out")], counters.messages_out);
        let (name, help) = ("driver_stream_bytes_total", "Bytes on SIP streams.");
        out.counter(name, help, &[("direction", "in")], counters.bytes_in);
        out.counter(name, help, &[("direction", "out")], counters.bytes_out);
        let (name, help) = ("driver_stream_calls_total", "System calls on SIP streams.");
        out.counter(name, help, &[("call", "read")], counters.reads);
        out.counter(name, help, &[("call", "write")], counters.writes);
        let (name, help) = ("driver_stream_pings_total", "Keep-alives that were answered.");
        out.counter(name, help, &[], counters.pings);
        let (name, help) =
            ("driver_stream_unsent_total", "Messages for which there was no connection.");
        out.counter(name, help, &[], counters.unsent);
        let open = u32::try_from(self.connections.len()).unwrap_or(u32::MAX);
        let (name, help) = ("driver_streams", "Connections of SIP streams that are open.");
        out.gauge(name, help, &[], f64::from(open));
        self.endings.metrics(out);
        self.securing_metrics(unix_ms, out);
    }
}
