//! The figures that `/metrics` shows.

use std::time::Instant;

use b2bua::gate::Gate;
use driver::Metrics;
use failover::detector::Counters;

use crate::b2b_role::B2bRole;

pub(crate) fn gate(gate: &Gate, out: &mut Metrics) {
    let counters = gate.counters();
    let (name, help) = ("rm_gate_datagrams_total", "Messages from peers, by what became of them.");
    for (fate, value) in [
        ("passed", counters.passed),
        ("keepalive", counters.keepalives),
        ("malformed", counters.malformed),
        ("discarded", counters.discarded),
        ("rejected", counters.rejected),
        ("stray", counters.stray),
        ("acknowledged", counters.acknowledged),
        ("stranger", counters.strangers),
        ("limited", counters.limited),
        ("banned", counters.banned),
        ("overloaded", counters.overloaded),
        ("unowned", counters.unowned),
    ] {
        out.counter(name, help, &[("fate", fate)], value);
    }
    let help = "Messages over connections that wait for somebody to take them.";
    out.gauge("rm_gate_waiting", help, &[], gauge(gate.waiting()));
    let help = "Of those passed, to another b2b than the owner, which could not be reached.";
    out.counter("rm_gate_detoured_total", help, &[], counters.detoured);
    out.counter("rm_gate_received_total", "Messages from peers.", &[], counters.received);
    out.counter("rm_gate_bans_total", "Sources that were banned.", &[], counters.bans);
    let help = "Messages handed on for another gate, or to another for a b2b.";
    out.counter("rm_gate_relayed_total", help, &[], counters.relayed);
    let help =
        "Messages given back to another gate, as the owner cannot be reached from here either.";
    out.counter("rm_gate_returned_total", help, &[], counters.returned);
    let (name, help) = ("rm_gate_frames_total", "Messages of b2bs, by what became of them.");
    for (fate, value) in [
        ("sent", counters.sent),
        ("ended", counters.ended),
        ("fenced", counters.fenced),
        ("stale_flow", counters.stale_flows),
    ] {
        out.counter(name, help, &[("fate", fate)], value);
    }
    let help = "Messages sent, or answered by the gate itself, that no connection took.";
    out.counter("rm_gate_unsent_total", help, &[], counters.unsent);
}

pub(crate) fn b2b(role: &B2bRole, now: Instant, out: &mut Metrics) {
    let figures = role.b2b.figures();
    for (name, help, value) in [
        ("rm_calls", "Calls that have not ended.", figures.calls),
        ("rm_gates", "Gates that can be reached.", figures.gates),
        (
            "rm_calls_ended",
            "Ended calls whose late messages are still answered.",
            figures.tombstones,
        ),
        ("rm_registered", "Addresses of record with a binding.", figures.aors),
        ("rm_moves_open", "Media-move INVITEs that are open.", figures.moves_in_flight),
    ] {
        out.gauge(name, help, &[], gauge(value));
    }
    let counters = figures.counters;
    for (name, help, value) in [
        ("rm_calls_total", "Calls that got as far as a record.", counters.calls),
        ("rm_calls_answered_total", "Calls that were answered.", counters.answered),
        (
            "rm_calls_refused_total",
            "New calls without ports or room, or while draining.",
            counters.refused,
        ),
        (
            "rm_calls_not_admitted_total",
            "New calls that a limit or a policy refused.",
            counters.not_admitted,
        ),
        ("rm_moves_total", "Moves of a call's media to another mediagate.", counters.moves),
        ("rm_move_invites_total", "Re-INVITEs because media moved.", counters.move_invites),
        ("rm_legs_apart_total", "Legs whose phone would not move.", counters.apart),
        (
            "rm_legs_unheard_total",
            "Legs whose phone accepted a move twice and was not heard.",
            counters.unheard,
        ),
        ("rm_discarded_total", "Messages that belong to nothing.", counters.discarded),
        (
            "rm_strays_total",
            "Answers to INVITEs of an owner before us that no record tells of.",
            counters.strays,
        ),
        (
            "rm_calls_forgotten_total",
            "Ended calls whose late messages found no room any more.",
            counters.forgotten,
        ),
        ("rm_registers_total", "REGISTER requests granted.", counters.registers),
    ] {
        out.counter(name, help, &[], value);
    }
    details(role, out);
    slots(role, out);
    heard(role, now, out);
    copies(role, out);
    role.clocks.metrics(out);
    if let Some(kept) = &role.kept {
        kept.store.metrics(out);
    }
    mediagates(role, now, out);
    detector("b2b", &role.verdicts.counters(), out);
}

/// Writes what we hold at each mediagate.
fn mediagates(role: &B2bRole, now: Instant, out: &mut Metrics) {
    for (id, linked, open, ready) in role.mediagates.figures(now) {
        let label = id.to_string();
        let labels = [("gateway", label.as_str())];
        out.gauge(
            "rm_mediagate_linked",
            "Whether the link is up.",
            &labels,
            f64::from(u8::from(linked)),
        );
        out.gauge("rm_mediagate_calls", "Calls that we hold open there.", &labels, gauge(open));
        out.gauge(
            "rm_mediagate_ports",
            "Port numbers that we can use there.",
            &labels,
            gauge(ready),
        );
    }
}

/// Writes whether details of calls are written.
fn details(role: &B2bRole, out: &mut Metrics) {
    let help = "Details of calls that are not known to be written.";
    out.gauge("rm_details_waiting", help, &[], gauge(role.details.waiting()));
    let help = "Details of calls that were given up, as too many waited.";
    out.counter("rm_details_lost_total", help, &[], role.details.lost);
}

/// Writes which slots this b2b owns, and how it came to them.
fn slots(role: &B2bRole, out: &mut Metrics) {
    let help = "Slots of the segment that this b2b owns.";
    out.gauge("rm_slots", help, &[], gauge(role.ownership.own().len()));
    let own = role.ownership.own().iter();
    let is_kept = role.kept.as_ref().is_some_and(|kept| kept.store.health().trouble.is_none());
    let unprotected = own.filter(|slot| !is_kept && !role.replicator.is_protected(*slot)).count();
    let help = "Of those, slots whose calls would not outlive this b2b.";
    out.gauge("rm_slots_unprotected", help, &[], gauge(unprotected));
    let help = "Whether a process that was started later runs as this node: this one is mute.";
    let is_replaced = f64::from(u8::from(role.ownership.is_replaced()));
    out.gauge("rm_replaced", help, &[], is_replaced);
    let help =
        "Calls whose record is too long to be kept elsewhere: they would not outlive this b2b.";
    out.gauge("rm_calls_unprotected", help, &[], gauge(role.b2b.figures().unprotected));
    let counters = role.ownership.counters();
    for (name, help, value) in [
        ("rm_slots_won_total", "Times that slots were won.", counters.wins),
        ("rm_takeovers_total", "Times that slots of another b2b were won.", counters.takeovers),
        (
            "rm_slots_bare_total",
            "Slots of another b2b that were won without a whole copy: its calls there are lost.",
            counters.bare,
        ),
        ("rm_bids_failed_total", "Bids that failed though a trial had not.", counters.failures),
        ("rm_slots_lost_total", "Times that slots were lost to another b2b.", counters.losses),
        (
            "rm_leases_lost_total",
            "Times that a lease ended while slots were owned.",
            counters.mutes,
        ),
        ("rm_muted_total", "Messages not sent for want of a lease.", role.muted),
    ] {
        out.counter(name, help, &[], value);
    }
}

/// Writes what phones said over connections that nobody could take in yet.
fn heard(role: &B2bRole, now: Instant, out: &mut Metrics) {
    let (waiting, outdated) = role.unheard(now);
    let help = "Messages over connections that wait for an owner of their slots that may act.";
    out.gauge("rm_unheard_waiting", help, &[], gauge(waiting));
    let (name, help) =
        ("rm_unheard_total", "Messages over connections that were dropped as they waited.");
    for (why, value) in [("too_many", role.crowded_out), ("too_old", outdated)] {
        out.counter(name, help, &[("why", why)], value);
    }
}

/// Writes what was copied to standbys, and what is held for others.
fn copies(role: &B2bRole, out: &mut Metrics) {
    let counters = role.replicator.counters();
    for (name, help, value) in [
        ("rm_copies_frames_total", "Frames with copies for a standby.", counters.batches),
        ("rm_copies_total", "Records and changes sent to a standby.", counters.items),
        ("rm_copies_bytes_total", "Bytes of those records.", counters.bytes),
        ("rm_copies_late_total", "Times that a standby was too slow.", counters.late),
        ("rm_copies_broken_total", "Times that a standby missed some.", counters.broken),
        ("rm_copies_differed_total", "Slots that a standby held otherwise.", counters.differed),
        ("rm_copies_refused_total", "Slots that a standby refused.", counters.refused),
        ("rm_copies_lies_total", "Times that a standby was caught in a lie.", counters.lies),
        ("rm_copies_unread_total", "Copies that were taken and cannot be read.", role.unread),
        ("rm_copies_too_long_total", "Records or slots too long to be copied.", counters.too_long),
    ] {
        out.counter(name, help, &[], value);
    }
    let help = "Bytes of records held for other b2bs.";
    out.gauge("rm_copies_held_bytes", help, &[], gauge(role.replica.held_len()));
}

/// Writes what the role's detector counted.
pub(crate) fn detector(role: &str, counters: &Counters, out: &mut Metrics) {
    let (name, help) =
        ("rm_mediagate_verdicts_total", "Deaths of mediagates, and what spoke against one.");
    for (kind, value) in [
        ("proof", counters.proofs),
        ("silence", counters.silences),
        ("false", counters.falses),
        ("withheld", counters.withheld),
        ("voided", counters.voided),
    ] {
        out.counter(name, help, &[("role", role), ("kind", kind)], value);
    }
    let help = "Beats that counted for nothing.";
    out.counter("rm_beats_ignored_total", help, &[("role", role)], counters.ignored);
}

#[expect(clippy::cast_precision_loss, reason = "no process has 2^53 calls")]
fn gauge(value: usize) -> f64 {
    value as f64
}
