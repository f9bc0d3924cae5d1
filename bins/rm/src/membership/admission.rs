//! From a call that asks to its counters, and back.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use b2bua::admission::{Ask, Elsewhere, Goes, Refused, Shared};
use b2bua::{Charge, Input};
use bytes::Bytes;
use election::Segment;
use failover::CallId;
use quota_split::{Admission, Answer, Call, Direction, Kind, NodeId, Signs, Unmatched, Violation};
use tracing::{info, warn};

use super::Membership;
use crate::b2b_role::B2bRole;
use crate::cluster::{self, ClusterDocument, Why};

/// A call about which nothing is decided.
pub(super) struct Asked {
    document: Arc<ClusterDocument>,
    node: NodeId,
    outbound: bool,
    exempt: bool,
    /// The segments that did not take it, if it comes from one of them.
    tried: Vec<u16>,
}

impl Membership {
    /// Asks whether a call may be. What needs no counter to be refused is answered at once.
    pub(crate) fn admit(&mut self, now: Instant, call: CallId, ask: &Ask) -> Option<Input> {
        match self.matched(now, call, ask) {
            Err((violation, answer)) => {
                if violation == NO_DOCUMENT && self.complains(now, NO_DOCUMENT) {
                    warn!(
                        segment = self.own.segment.0,
                        "calls are refused with 480, as this node has no document of its cluster: \
                         give it one with `holdline-rm apply DOCUMENT --config FILE`"
                    );
                }
                *self.counters.refused.entry(violation).or_default() += 1;
                Some(not_admitted(call, &answer))
            }
            Ok(asked) if ask.draining => Some(self.refuse(now, call, &asked, Why::Drains)),
            Ok(asked) => {
                let direction = direction(asked.outbound);
                let (node, exempt) = (asked.node, asked.exempt);
                self.asks.insert(call, asked);
                let call = Call { id: quota_split::CallId(call.0), node, direction };
                self.cluster.handle_input(now, cluster::Input::Admit { call, exempt });
                None
            }
        }
    }

    /// Finds what a call counts at, and what it may do there.
    fn matched(
        &mut self,
        now: Instant,
        call: CallId,
        ask: &Ask,
    ) -> Result<Asked, (&'static str, Answer)> {
        let Some(document) = self.documents.current().cloned() else {
            let answer = answer(480, "this segment has no document of its cluster yet");
            return Err((NO_DOCUMENT, answer));
        };
        let source = ask.source.ip();
        let number = text(&ask.user);
        // Anybody can write that header.
        let shared = ask.shared.as_ref().filter(|_| document.is_of_segment(source));
        let node = match shared.filter(|shared| !shared.profile.is_empty()) {
            Some(shared) => {
                document.tree().find(text(&shared.profile)).ok_or(Unmatched::UnknownProfile)
            }
            None => {
                let profile = ask.profile_id.as_ref().or(ask.profile_name.as_ref());
                let (tenant, profile) = (ask.tenant.as_ref().map(text), profile.map(text));
                let signs = Signs { tenant, profile, number, ..Signs::default() };
                document.find_profile(source, &signs).map(|found| found.node)
            }
        };
        let node = node.map_err(|why| {
            let (answer, name) = (document.answer_unmatched(source, why), unmatched_name(why));
            let told = self.complains(now, name);
            if answer.alarm {
                self.counters.alarm(name);
            }
            match answer.alarm {
                true if told => warn!(%call, %source, number, %why, "a call belongs to nobody"),
                false if told => info!(%call, %source, number, %why, "a call belongs to nobody"),
                true | false => {}
            }
            (name, answer)
        })?;
        let exempt = document.is_emergency(number);
        let policies = &document.policies;
        let service = if ask.goes == Goes::Trunk { "gateway" } else { "phone" };
        let violated = match () {
            () if exempt => None,
            () if !policies.allows_service(node, service) => Some((Violation::Service, "service")),
            () if !policies.allows_number(node, number) => Some((Violation::Number, "number")),
            () => None,
        };
        if let Some((violation, name)) = violated {
            let answer = policies.answer(node, violation);
            let profile = &document.tree().node(node).name;
            if answer.alarm {
                self.counters.alarm(POLICY);
                warn!(%call, profile, number, service, "a policy forbids a call");
            } else {
                info!(%call, profile, number, service, "a policy forbids a call");
            }
            return Err((name, answer));
        }
        if ask.goes == Goes::Nowhere && !self.passive {
            return Err(("nobody", answer(404, "nobody here has that address")));
        }
        let outbound = match shared {
            Some(shared) => shared.outbound,
            None => ask.goes == Goes::Trunk && document.gateway(source).is_none(),
        };
        let tried = shared.map(|shared| shared.tried.clone()).unwrap_or_default();
        Ok(Asked { document, node, outbound, exempt, tried })
    }

    /// Whether the log is told now of a refusal that anybody can bring about as often as he likes.
    fn complains(&mut self, now: Instant, name: &'static str) -> bool {
        let due = self.complaints.get(name).is_none_or(|at| *at <= now);
        if due {
            self.complaints.insert(name, now + COMPLAINTS);
        }
        due
    }

    /// Takes in what became of a call.
    pub(super) fn decided(
        &mut self,
        now: Instant,
        call: CallId,
        verdict: Result<Admission, Why>,
        role: &mut B2bRole,
    ) {
        let Some(asked) = self.asks.remove(&call) else { return };
        let input = match verdict {
            Ok(admission) => {
                self.counters.admitted += 1;
                if let Some(over) = admission.over {
                    let node = &asked.document.tree().node(over).name;
                    info!(%call, node, "a call passes a soft limit");
                }
                let elsewhere = self.elsewhere(now, &asked);
                Input::Admitted { call, charge: asked.charge(admission.level), elsewhere }
            }
            Err(why) => self.refuse(now, call, &asked, why),
        };
        role.b2b.handle_input(now, input);
    }

    /// Refuses a call, or sends it to a segment that may take it.
    fn refuse(&mut self, now: Instant, call: CallId, asked: &Asked, why: Why) -> Input {
        let elsewhere = self.elsewhere(now, asked);
        let answer = asked.document.policies.answer(asked.node, Violation::Usage);
        asked.log_refusal(call, why, self.own.segment, elsewhere.is_some(), answer.alarm);
        if answer.alarm {
            self.counters.alarm(POLICY);
        }
        *self.counters.refused.entry(why_name(why)).or_default() += 1;
        self.counters.shared += u64::from(elsewhere.is_some());
        // Another address of the caller's takes it at once.
        let status = if why == Why::Drains { 503 } else { answer.status };
        let reason = reason(&answer, why).into();
        Input::NotAdmitted { call, refused: Refused { status, reason, elsewhere } }
    }

    /// Returns where a call may go that this segment does not take: to segments that are there, have a
    /// share, and were not tried.
    fn elsewhere(&mut self, now: Instant, asked: &Asked) -> Option<Elsewhere> {
        if !asked.document.sharing {
            return None;
        }
        if self.takers.as_ref().is_none_or(|(at, _)| *at + TAKERS_KNOWN <= now) {
            let view = self.cluster.view();
            let present: BTreeSet<Segment> = view.present.iter().map(|node| node.segment).collect();
            let takers = view.segments.iter();
            let takers = takers.filter(|(id, segment)| segment.shares && present.contains(id));
            self.takers = Some((now, takers.map(|(id, _)| *id).collect()));
        }
        let (_, takers) = self.takers.as_ref()?;
        let takes = |(segment, _): &(Segment, &[SocketAddr])| {
            takers.contains(segment) && !asked.tried.contains(&segment.0)
        };
        let order = asked.document.elsewhere(self.own.segment).into_iter().filter(takes);
        let targets = order.flat_map(|(_, sip)| sip.iter().copied()).take(ELSEWHERE_MAX);
        let targets: Vec<SocketAddr> = targets.collect();
        let tried = asked.tried.iter().copied().chain([self.own.segment.0]).collect();
        let profile = asked.document.tree().node(asked.node).name.clone().into();
        let shared = Shared { tried, profile, outbound: asked.outbound };
        (!targets.is_empty()).then_some(Elsewhere { targets, shared })
    }
}

impl Asked {
    /// Finds its node in a new document, by name; what has none there is refused, and counts nowhere.
    pub(super) fn move_to(&mut self, document: &Arc<ClusterDocument>) {
        if let Some(node) = document.tree().find_from(self.document.tree(), self.node) {
            (self.node, self.document) = (node, Arc::clone(document));
        }
    }

    fn charge(&self, level: u8) -> Charge {
        let tree = self.document.tree();
        let name = |node| Bytes::copy_from_slice(tree.node(node).name.as_bytes());
        let is_tenant = |node: &NodeId| tree.node(*node).kind == Kind::Tenant;
        let tenant = tree.path(self.node).find(is_tenant).map(name).unwrap_or_default();
        let (profile, outbound, exempt) = (name(self.node), self.outbound, self.exempt);
        Charge { profile, tenant, outbound, level, exempt }
    }

    /// Says which limit, segment and share refused a call.
    fn log_refusal(&self, call: CallId, why: Why, own: Segment, shared: bool, alarm: bool) {
        let tree = self.document.tree();
        let profile = &tree.node(self.node).name;
        if let Why::Full(full) = why {
            let node = &tree.node(full.node).name;
            let (limit, share, used) = (full.limit, full.share, full.used);
            let elsewhere = full.elsewhere;
            info!(
                %call, profile, node, what = %full.what, limit, share, used, elsewhere,
                segment = own.0, shared, "a limit refuses a call"
            );
        } else {
            info!(%call, profile, %why, segment = own.0, shared, "a call is refused");
        }
        if alarm {
            warn!(%call, profile, %why, "a refusal of which somebody wants to know");
        }
    }
}

/// The refusal of a node that was never told what it may let in.
const NO_DOCUMENT: &str = "no_document";

/// The alarm of policies that want one.
const POLICY: &str = "policy";

/// How often refusals are told of that anybody can bring about.
const COMPLAINTS: Duration = Duration::from_secs(60);

/// How long the segments that take calls are remembered.
const TAKERS_KNOWN: Duration = Duration::from_millis(200);

/// Addresses that one call tries.
const ELSEWHERE_MAX: usize = 8;

/// Returns which way a call goes, as the ledger says it.
pub(super) fn direction(outbound: bool) -> Direction {
    if outbound { Direction::Outbound } else { Direction::Inbound }
}

fn not_admitted(call: CallId, answer: &Answer) -> Input {
    let (status, reason) = (answer.status, answer.reason().into());
    Input::NotAdmitted { call, refused: Refused { status, reason, elsewhere: None } }
}

/// Returns the Reason header of a refusal: the policy's words where a limit is reached, and else why.
fn reason(answer: &Answer, why: Why) -> String {
    match why {
        Why::Full(_) => answer.reason(),
        Why::Passive | Why::Unheard | Why::Unknown | Why::Withdrawn | Why::Drains => {
            Answer { text: why.to_string(), ..answer.clone() }.reason()
        }
    }
}

fn answer(status: u16, text: &str) -> Answer {
    Answer { status, text: text.to_owned(), alarm: false }
}

/// Names and numbers of tenants are text; what is none names nobody.
fn text(bytes: &Bytes) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

fn unmatched_name(why: Unmatched) -> &'static str {
    match why {
        Unmatched::Forged => "forged",
        Unmatched::UnknownTenant => "unknown_tenant",
        Unmatched::UnknownProfile => "unknown_profile",
        Unmatched::NoProfile | _ => "no_profile",
    }
}

fn why_name(why: Why) -> &'static str {
    match why {
        Why::Full(_) => "full",
        Why::Passive => "passive",
        Why::Unheard => "unheard",
        Why::Unknown => "unknown",
        Why::Withdrawn => "withdrawn",
        Why::Drains => "drains",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_for_no_limit_does_not_say_that_one_is_reached() {
        let usual = || Violation::Usage.usual_answer();
        let one = quota_split::Node { name: "all".to_owned(), ..Default::default() };
        let full = quota_split::Refusal {
            node: quota_split::Tree::new(vec![one]).unwrap().top().unwrap(),
            what: quota_split::Full::PerSecond,
            limit: 1,
            share: 1,
            used: 1,
            elsewhere: None,
        };
        assert_eq!(reason(&usual(), Why::Full(full)), usual().reason());
        for why in [Why::Passive, Why::Unheard, Why::Unknown, Why::Withdrawn, Why::Drains] {
            let told = reason(&usual(), why);
            assert!(told.contains(&why.to_string()) && !told.contains("limit"), "{told}");
        }
    }
}
