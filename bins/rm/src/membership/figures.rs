//! What `/metrics` shows of a node of a cluster.

use driver::Metrics;
use driver::spool::Spool;

use super::Membership;

impl Membership {
    pub(crate) fn metrics(&self, out: &mut Metrics) {
        let view = self.cluster.view();
        let own = view.segments.get(&self.own.segment);
        let is = |is: bool| f64::from(u8::from(is));
        for (name, help, value) in [
            ("rm_cluster_passive", "Whether this segment takes no calls.", is(view.passive)),
            (
                "rm_cluster_withdrawn",
                "Whether another process has this node's id.",
                is(view.withdrawn),
            ),
            (
                "rm_cluster_leads",
                "Whether this node divides the limits.",
                is(view.mandate.as_ref().is_some_and(|one| one.epoch.coordinator == self.own)),
            ),
            (
                "rm_cluster_speaks",
                "Whether this node counts the calls of its segment.",
                is(own.and_then(|own| own.speaker).is_some_and(|one| one.node == self.own)),
            ),
        ] {
            out.gauge(name, help, &[], value);
        }
        let counted = |count: usize| u32::try_from(count).map_or(f64::MAX, f64::from);
        let version = usize::try_from(view.document).unwrap_or(usize::MAX);
        let help = "The version of the cluster's document.";
        out.gauge("rm_cluster_document_version", help, &[], counted(version));
        let help = "Nodes of the cluster that this one sees.";
        out.gauge("rm_cluster_island_nodes", help, &[], counted(view.present.len()));
        let help = "Members of the division that this node leads or follows.";
        let members = view.mandate.as_ref().map_or(0, |mandate| mandate.members.len());
        out.gauge("rm_cluster_members", help, &[], counted(members));
        let help = "Calls about which nothing is decided.";
        out.gauge("rm_cluster_calls_waiting", help, &[], counted(self.asks.len()));
        let counters = &self.counters;
        for (name, help, value) in [
            ("rm_cluster_admitted_total", "Calls that were let in.", counters.admitted),
            ("rm_cluster_shared_total", "Calls sent on to another segment.", counters.shared),
            ("rm_cluster_drifts_total", "Counters that were set right.", counters.drifts),
            (
                "rm_cluster_underflows_total",
                "Calls that ended more often than they began.",
                self.cluster.underflows(),
            ),
        ] {
            out.counter(name, help, &[], value);
        }
        let spool = self.usage.as_ref().map(|usage| &usage.lines);
        if let Some(spool) = spool {
            let help = "Changes of use that are on disk for whoever takes them.";
            out.counter("rm_usage_events_total", help, &[], spool.written());
            let help = "Changes of use that found no room there.";
            out.counter("rm_usage_events_dropped_total", help, &[], spool.dropped());
        }
        let help = "Calls that were not let in here, by the reason.";
        for (why, count) in &counters.refused {
            out.counter("rm_cluster_refused_total", help, &[("why", why)], *count);
        }
        let help = "Faults of which an operator must know, by what they are.";
        for (alarm, count) in &counters.alarms {
            out.counter("rm_cluster_alarms_total", help, &[("alarm", alarm)], *count);
        }
        if let Some(count) = spool.map(Spool::troubles).filter(|it| 0 < *it) {
            out.counter("rm_cluster_alarms_total", help, &[("alarm", "usage_dropped")], count);
        }
    }
}
