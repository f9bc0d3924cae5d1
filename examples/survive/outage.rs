//! What the phones saw of one death.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use examples::figures::{Figures, millis, millis_text};
use serde::Serialize;
use testkit::{Entry, Event, PhoneId, What};

use crate::survive::args::{Args, How, Role};
use crate::survive::controls::{Controls, Group, Groups};
use crate::survive::stage::{NEW_CALL_EVERY, Seen, call_of, callee_of, new_callers};
use crate::survive::targets::NEW_CALL_MAX;

/// What the phones saw of one death.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Outage {
    pub(crate) calls: u32,
    /// Calls whose media was at a mediagate that died.
    pub(crate) to_move: u32,
    pub(crate) kept: u32,
    /// Of each call, from the death to its first re-INVITE.
    pub(crate) first_reinvite: Figures,
    /// Of each direction of each call, the longest silence.
    pub(crate) gap: Figures,
    /// RTP packets lost outside the longest silence of their direction, those
    /// that the example itself dropped subtracted.
    pub(crate) lost_beyond_gap: u64,
    /// RTP packets lost at all, likewise.
    pub(crate) lost: u64,
    /// RTP packets that the example itself dropped.
    pub(crate) own_drops: u64,
    /// SIP messages that the phones of kept calls received.
    pub(crate) sip_seen: u64,
    /// From the death to the first new call that is heard on both sides.
    #[serde(serialize_with = "millis_or_null")]
    pub(crate) new_call: Option<Duration>,
    /// New calls that were tried, and those that are heard on both sides.
    pub(crate) new_tried: u32,
    pub(crate) new_heard: u32,
    /// New calls that are not heard although they were tried when new calls must work.
    pub(crate) new_late_failed: u32,
    /// What was tried after the death of a b2b.
    pub(crate) controls: Option<Controls>,
    /// Rules that the phones saw broken.
    pub(crate) faults: Vec<String>,
    /// The latest tick of the example's own clock.
    #[serde(serialize_with = "as_millis")]
    pub(crate) own_lateness: Duration,
}

/// The calls by which an outage is judged, beside whether each was kept.
#[derive(Clone, Debug)]
pub(crate) enum Watched {
    All,
    /// Those whose media was at the mediagate that died.
    These(BTreeSet<u32>),
    /// Those that did nothing meanwhile; what others were told to do is tried.
    Groups(Groups),
}

impl Outage {
    pub(crate) fn new(args: &Args, at: Instant, seen: &Seen, watched: &Watched) -> Self {
        let calls = args.calls;
        let quiet = |phone| match (call_of(phone), watched) {
            (Some(_), Watched::All) => true,
            (Some(call), Watched::These(calls)) => calls.contains(&call),
            (Some(_), Watched::Groups(groups)) => groups.of(phone) == Group::Quiet,
            (None, _) => false,
        };
        let controls = match watched {
            Watched::Groups(groups) => Some(Controls::new(*groups, at, seen)),
            Watched::All | Watched::These(_) => None,
        };
        let to_move = match watched {
            Watched::These(calls) => u32::try_from(calls.len()).unwrap_or(u32::MAX),
            Watched::All | Watched::Groups(_) => 0,
        };
        let obeyed = controls.as_ref().map_or(0, |controls| controls.obeyed);
        let (mut gap, mut lost, mut lost_beyond_gap) = (Figures::default(), 0, 0);
        let voiced = seen.heard.iter().filter(|(phone, heard)| quiet(**phone) && heard.is_some());
        for heard in voiced.filter_map(|(_, heard)| heard.as_ref()) {
            gap.push(heard.silence);
            lost += heard.lost;
            lost_beyond_gap += heard.lost_beyond_silence();
        }
        // What a filter drops is no loss of the example's own.
        let dropped = if args.how == How::Cut { 0 } else { seen.dropped };
        let own_drops = seen.pace.unsent + dropped;
        let new = NewCalls::of(at, seen);
        Self {
            calls,
            to_move,
            kept: u32::try_from(seen.kept.len()).unwrap_or(u32::MAX).saturating_add(obeyed),
            first_reinvite: first_reinvites(at, &seen.entries, quiet),
            gap,
            lost_beyond_gap: lost_beyond_gap.saturating_sub(own_drops),
            lost: lost.saturating_sub(own_drops),
            own_drops,
            sip_seen: seen.sip_seen(quiet),
            new_call: new.first,
            new_tried: new.tried,
            new_heard: new.heard,
            new_late_failed: new.late_failed,
            controls,
            faults: faults(at, &seen.entries),
            own_lateness: seen.pace.late_max,
        }
    }

    /// Returns several as one: counts added up, samples together, and of
    /// times that stand alone the worst.
    pub(crate) fn pooled(outages: &[Self]) -> Self {
        let mut pooled = Self { new_call: Some(Duration::ZERO), ..Self::default() };
        for outage in outages {
            pooled.calls += outage.calls;
            pooled.to_move += outage.to_move;
            pooled.kept += outage.kept;
            pooled.first_reinvite.extend(&outage.first_reinvite);
            pooled.gap.extend(&outage.gap);
            pooled.lost_beyond_gap += outage.lost_beyond_gap;
            pooled.lost += outage.lost;
            pooled.own_drops += outage.own_drops;
            pooled.sip_seen += outage.sip_seen;
            pooled.new_call =
                pooled.new_call.zip(outage.new_call).map(|(one, other)| one.max(other));
            pooled.new_tried += outage.new_tried;
            pooled.new_heard += outage.new_heard;
            pooled.new_late_failed += outage.new_late_failed;
            if let Some(controls) = &outage.controls {
                pooled.controls.get_or_insert_default().add(controls);
            }
            pooled.faults.extend_from_slice(&outage.faults);
            pooled.own_lateness = pooled.own_lateness.max(outage.own_lateness);
        }
        pooled
    }

    /// Returns whether no call was lost and no rule broken.
    pub(crate) fn is_harmless(&self) -> bool {
        self.kept == self.calls && self.faults.is_empty()
    }

    /// Returns the outage in one line.
    pub(crate) fn line(&self, role: Role) -> String {
        let kept = format!("{} of {} calls kept; ", self.kept, self.calls);
        let seen = if role == Role::Mediagate {
            format!(
                "first re-INVITE p99 {} ms; voice gap p50 {}, p99 {}, max {} ms",
                self.first_reinvite.text(99),
                self.gap.text(50),
                self.gap.text(99),
                self.gap.text(100),
            )
        } else {
            format!("phones saw {} SIP messages and lost {} packets", self.sip_seen, self.lost)
        };
        let seen = match &self.controls {
            Some(controls) => format!("{seen}; {}", controls.line()),
            None => seen,
        };
        kept + &seen + &format!("; new call after {} ms", millis_text(self.new_call))
    }
}

/// What became of the calls that were new after a death.
pub(crate) struct NewCalls {
    pub(crate) first: Option<Duration>,
    tried: u32,
    heard: u32,
    late_failed: u32,
}

impl NewCalls {
    pub(crate) fn of(at: Instant, seen: &Seen) -> Self {
        let mut new = Self { first: None, tried: 0, heard: 0, late_failed: 0 };
        for (index, caller) in (0..).zip(new_callers()) {
            new.tried += 1;
            let first = |phone| seen.heard.get(&phone).and_then(|heard| heard.as_ref()?.first_at);
            let both = first(caller).zip(first(callee_of(caller)));
            if let Some((here, there)) = both {
                new.heard += 1;
                let span = here.max(there).saturating_duration_since(at);
                new.first = Some(new.first.map_or(span, |first| first.min(span)));
            } else if NEW_CALL_MAX <= NEW_CALL_EVERY * index {
                new.late_failed += 1;
            }
        }
        new
    }
}

/// Of each call that counts, when its first re-INVITE came to either phone.
fn first_reinvites(at: Instant, entries: &[Entry], counts: impl Fn(PhoneId) -> bool) -> Figures {
    let mut first = BTreeMap::new();
    for entry in entries {
        if let What::Event(Event::Reinvite { .. }) = entry.what
            && let Some(call) = entry.phone.filter(|phone| counts(*phone)).and_then(call_of)
        {
            first.entry(call).or_insert(entry.at);
        }
    }
    let mut figures = Figures::default();
    for came_at in first.into_values() {
        figures.push(came_at.saturating_duration_since(at));
    }
    figures
}

pub(crate) fn faults(at: Instant, entries: &[Entry]) -> Vec<String> {
    let fault = |entry: &&Entry| matches!(entry.what, What::Fault(_));
    entries.iter().filter(fault).map(|entry| entry.line(at).trim().to_owned()).collect()
}

fn as_millis<S: serde::Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(millis(*span))
}

pub(crate) fn millis_or_null<S: serde::Serializer>(
    span: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    span.map(millis).serialize(serializer)
}
