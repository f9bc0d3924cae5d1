//! The gateway's figures, in Prometheus' words.

use driver::Metrics;
use media::{Lessor, WorkerFigures};

use crate::plant::Plant;

pub(crate) fn write(out: &mut Metrics, lessor: &Lessor, plant: Option<&Plant>) {
    out.gauge("mediagate_legs", "Open legs.", &[], f64::from(lessor.legs()));
    let help = "Legs that ports and files allow.";
    out.gauge("mediagate_legs_max", help, &[], f64::from(lessor.legs_max()));
    let free = u32::try_from(lessor.blocks_free()).unwrap_or(u32::MAX);
    out.gauge("mediagate_blocks_free", "Port blocks that nobody holds.", &[], f64::from(free));
    let figures = plant.map(Plant::figures).unwrap_or_default();
    let realtime = !figures.is_empty() && figures.iter().all(|figures| figures.realtime);
    let (name, help) = ("mediagate_realtime", "Whether every worker has a real-time class.");
    out.gauge(name, help, &[], f64::from(u8::from(realtime)));
    for (worker, figures) in figures.iter().enumerate() {
        write_worker(out, &worker.to_string(), figures);
    }
}

fn write_worker(out: &mut Metrics, worker: &str, figures: &WorkerFigures) {
    let counters = &figures.counters;
    let labels: &[(&str, &str)] = &[("worker", worker)];
    let (name, help) = ("mediagate_worker_legs", "Open legs.");
    out.gauge(name, help, labels, f64::from(figures.legs));
    let (name, help) = ("mediagate_worker_realtime", "Whether it has a real-time class.");
    out.gauge(name, help, labels, f64::from(u8::from(figures.realtime)));
    let (name, help) = ("mediagate_packets_total", "RTP and RTCP packets forwarded.");
    out.counter(name, help, labels, counters.forwarded);
    let (name, help) = ("mediagate_octets_total", "Bytes of those, without UDP and IP headers.");
    out.counter(name, help, labels, counters.octets);
    let dropped = [
        ("foreign", counters.foreign),
        ("malformed", counters.malformed),
        ("untargeted", counters.untargeted),
        ("send_full", figures.send_full),
        ("send_refused", figures.send_refused),
        ("send_failed", figures.send_failed),
    ];
    for (why, count) in dropped {
        let (name, help) = ("mediagate_packets_dropped_total", "Packets not sent, by cause.");
        out.counter(name, help, &[("worker", worker), ("why", why)], count);
    }
    let (name, help) = ("mediagate_relocks_total", "Sources that changed without a new SDP.");
    out.counter(name, help, labels, counters.relocks);
    let (name, help) = ("mediagate_receive_errors_total", "Errors read from media sockets.");
    out.counter(name, help, labels, figures.receive_failed);
    let (name, help) = ("mediagate_notices_dropped_total", "Latch reports left out.");
    out.counter(name, help, labels, figures.notices_dropped);
    out.counter("mediagate_beats_total", "Beats.", labels, figures.beats);
    out.counter("mediagate_turns_total", "Turns of the loop.", labels, figures.turns);
}
