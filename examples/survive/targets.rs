//! What must hold, and whether it did.

use std::time::Duration;

use examples::check::Check;

use crate::survive::args::{How, Role};
use crate::survive::outage::Outage;
use crate::survive::restart::Restart;

/// Above so many calls the times are published, not held to a limit.
const TIMED_CALLS_MAX: u32 = 100;

const FIRST_REINVITE_P99_MAX: Duration = Duration::from_millis(50);
const GAP_P50_MAX: Duration = Duration::from_millis(60);
const GAP_P99_MAX: Duration = Duration::from_millis(100);
pub(crate) const NEW_CALL_MAX: Duration = Duration::from_secs(1);
const CONTROLS_MAX: Duration = Duration::from_millis(500);
const CONTROLS_OF_MANY_MAX: Duration = Duration::from_secs(1);
/// What silence takes longer to judge than proof, with a real-time class.
const SILENCE_REALTIME: Duration = Duration::from_millis(60);
/// And without.
const SILENCE: Duration = Duration::from_millis(150);

/// What the limits depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) how: How,
    pub(crate) calls: u32,
    pub(crate) realtime: bool,
    /// How many times as wide the limits of time are.
    pub(crate) slack: u32,
}

/// Returns the checks of one outage, or of several pooled.
pub(crate) fn checks(role: Role, terms: Terms, outage: &Outage) -> Vec<Check> {
    let Terms { how, calls, realtime, slack } = terms;
    let late_after = NEW_CALL_MAX * slack;
    let mut checks = vec![
        Check::at_least("calls kept", outage.kept.into(), outage.calls.into()),
        Check::within("time to a new call", outage.new_call, late_after),
        Check::at_most(
            &format!("new calls after {} s that failed", late_after.as_secs()),
            outage.new_late_failed.into(),
            0,
        ),
        Check::at_most("rules broken", outage.faults.len() as u64, 0),
    ];
    match role {
        Role::Mediagate => {
            let extra = match (how, realtime) {
                (How::Kill, _) => Duration::ZERO,
                (How::Stop | How::Cut, true) => SILENCE_REALTIME,
                (How::Stop | How::Cut, false) => SILENCE,
            };
            let moved = outage.first_reinvite.count() as u64;
            checks.push(Check::at_least("calls moved", moved, outage.to_move.into()));
            if calls <= TIMED_CALLS_MAX {
                checks.extend(times(outage, extra, slack));
            }
        }
        Role::Controller | Role::Gate | Role::B2b => {
            checks.push(Check::at_most("SIP messages that phones saw", outage.sip_seen, 0));
            checks.push(Check::at_most("RTP packets lost", outage.lost, 0));
        }
    }
    if let Some(controls) = &outage.controls {
        let limit = if calls <= TIMED_CALLS_MAX { CONTROLS_MAX } else { CONTROLS_OF_MANY_MAX };
        checks.push(Check::at_least(
            "calls that obeyed",
            controls.obeyed.into(),
            controls.calls.into(),
        ));
        checks.push(Check::within(
            "controls accepted again",
            controls.accepted_again,
            slack * limit,
        ));
        checks.push(Check::at_most("messages that no hold is made of", controls.strange(), 0));
    }
    checks
}

/// Returns the checks of one restart.
pub(crate) fn restart_checks(restart: &Restart) -> Vec<Check> {
    vec![
        Check::at_least("calls back", restart.back.into(), restart.waiting.into()),
        Check::at_least("forgotten calls ended", restart.ended.into(), restart.forgotten.into()),
        Check::at_most("phones that rang", restart.rang.into(), 0),
        Check::at_least(
            "calls that obeyed",
            restart.controls.obeyed.into(),
            restart.controls.calls.into(),
        ),
        Check::at_least("a new call was heard", restart.new_call.is_some().into(), 1),
        Check::at_most("rules broken", restart.faults.len() as u64, 0),
    ]
}

/// Returns the checks of busy processes: nothing may be moved.
pub(crate) fn hog_checks(outage: &Outage) -> Vec<Check> {
    vec![
        Check::at_least("calls kept", outage.kept.into(), outage.calls.into()),
        Check::at_most("calls moved", outage.first_reinvite.count() as u64, 0),
        Check::at_most("rules broken", outage.faults.len() as u64, 0),
    ]
}

fn times(outage: &Outage, extra: Duration, slack: u32) -> [Check; 3] {
    let Outage { first_reinvite, gap, .. } = outage;
    [
        Check::within(
            "first re-INVITE p99",
            first_reinvite.percentile(99),
            slack * (FIRST_REINVITE_P99_MAX + extra),
        ),
        Check::within("voice gap p50", gap.percentile(50), slack * (GAP_P50_MAX + extra)),
        Check::within("voice gap p99", gap.percentile(99), slack * (GAP_P99_MAX + extra)),
    ]
}
