//! Runs one seed and says what was wrong.

use std::fmt::Write as _;
use std::time::Duration;

use driver::sim::Pen;
use testkit::scenario::{PHONES, Problem};
use testkit::{Command, Fault, PhoneId, State};

use super::details::{Details, Told};
use super::plan::{Fate, Harm, Plan, PlannedCall};
use super::world::{B2B, FIRST_MEDIAGATE, OTHER_B2B, OTHER_MEDIAGATE, World, nodes};

/// Runs a seed to its end.
///
/// # Errors
/// Everything that is wrong at the first check that fails, with the plan and the phones' journal.
pub(crate) fn run(seed: u64) -> Result<u64, String> {
    let plan = Plan::new(seed);
    let details = Details::listen();
    let mut trial = Trial { world: World::new(seed, plan.layout), plan, seed, details };
    trial.run()
}

/// What is wrong with a cluster or its phones.
#[derive(Debug)]
enum Wrong {
    #[expect(dead_code, reason = "for the message")]
    Phone(Problem),
    /// Who holds and who is held, as each side says.
    #[expect(dead_code, reason = "for the message")]
    Disagree([(PhoneId, State); 2]),
    /// The b2bs have calls, or mediagates legs, of which no phone knows; or slots have no owner, or
    /// two.
    #[expect(dead_code, reason = "for the message")]
    Left(usize),
    /// An answered call that ended has no detail record, or a call has two.
    #[expect(dead_code, reason = "for the message")]
    Detail(String, Told),
}

struct Trial {
    seed: u64,
    plan: Plan,
    world: World,
    details: Details,
}

impl Trial {
    fn run(&mut self) -> Result<u64, String> {
        self.world.start();
        self.set_paths();
        self.begin_calls();
        self.world.scenario.run_until_message(Duration::from_secs(6), self.plan.at_message);
        self.harm(self.plan.harm);
        if self.plan.harm.hits_a_b2b() {
            self.world.run(PROBE);
        }
        let probe = (FIRST_SPARE, PhoneId(FIRST_SPARE.0 + 1));
        self.probe(probe)?;
        self.world.run(self.plan.outage.saturating_sub(PROBE));
        self.heal();
        self.eventually("the new call talks", SETTLE, |trial| trial.not_talking(&[probe]))?;
        if let Some(after) = self.plan.second {
            self.world.run(after);
            self.kill_the_other();
        }
        self.eventually("every call is as it should be", SETTLE, Self::wrong_calls)?;
        self.end(probe)
    }

    /// Ends everything, and looks for what is left.
    fn end(&mut self, probe: (PhoneId, PhoneId)) -> Result<u64, String> {
        for phone in self.plan.calls.iter().map(|call| call.from).chain([probe.1]) {
            self.world.scenario.plan(Duration::ZERO, phone, Command::Hangup);
        }
        self.eventually("every phone is idle", SETTLE, |trial| {
            trial.world.scenario.not_idle().into_iter().map(Wrong::Phone).collect()
        })?;
        self.eventually("the b2b holds no call", SETTLE, |trial| left(trial.world.live_calls()))?;
        self.eventually("no leg is open", SETTLE, |trial| {
            let legs =
                trial.world.open_legs(FIRST_MEDIAGATE) + trial.world.open_legs(OTHER_MEDIAGATE);
            left(legs)
        })?;
        self.eventually("every slot has one owner", SETTLE, |trial| {
            left(trial.world.slots().abs_diff(failover::slots::SLOTS))
        })?;
        let last = (PhoneId(FIRST_SPARE.0 + 2), PhoneId(FIRST_SPARE.0 + 3));
        self.world.call(last.0, last.1);
        self.eventually("a last call talks", Duration::from_secs(8), |trial| {
            trial.not_talking(&[last])
        })?;
        self.check("no rule is broken", &self.broken())?;
        let may_repeat = self.plan.harm.hits_a_b2b();
        let wrong = self.details.wrong(&self.world, &self.world.calls(), may_repeat).into_iter();
        let wrong: Vec<Wrong> = wrong.map(|(call, told)| Wrong::Detail(call, told)).collect();
        self.check("each call has one detail record", &wrong)?;
        Ok(self.world.scenario.sim().trace())
    }

    fn set_paths(&mut self) {
        let path = self.plan.path;
        for node in nodes(self.plan.layout) {
            self.world.scenario.sim().set_path(PHONES, node, path);
            self.world.scenario.sim().set_path(node, PHONES, path);
        }
    }

    fn begin_calls(&mut self) {
        let scenario = &mut self.world.scenario;
        for call in &self.plan.calls {
            for (phone, manners) in [call.from, call.to].into_iter().zip(&call.manners) {
                let behave = Command::Behave(Box::new(manners.clone()));
                scenario.plan(Duration::ZERO, phone, behave);
            }
            for (at, phone, command) in &call.acts {
                if let Command::Call { .. } = command {
                    scenario.call(*at, call.from, call.to);
                } else {
                    scenario.plan(*at, *phone, command.clone());
                }
            }
        }
    }

    fn harm(&mut self, harm: Harm) {
        self.set_pens(self.plan.pen);
        let ids: Vec<_> = nodes(self.plan.layout).into_iter().chain([PHONES]).collect();
        let sim = self.world.scenario.sim();
        match harm {
            Harm::Crash(node) => sim.crash(node),
            Harm::Restart(node) => sim.restart(node),
            Harm::PowerOff(node) => sim.power_off(super::world::host(node)),
            Harm::Pause(node) => sim.pause(node),
            Harm::PauseInTurn(node) => sim.pause_in_turn(node, |_| true),
            Harm::Isolate(node) => {
                ids.into_iter().filter(|id| *id != node).for_each(|id| sim.cut_both(node, id));
            }
            Harm::Mute(node) => {
                ids.into_iter().filter(|id| *id != node).for_each(|id| sim.cut(node, id));
            }
            Harm::Deafen(node) => {
                ids.into_iter().filter(|id| *id != node).for_each(|id| sim.cut(id, node));
            }
            Harm::Cut(one, other, true) => sim.cut_both(one, other),
            Harm::Cut(one, other, false) => sim.cut(one, other),
        }
    }

    fn set_pens(&mut self, pen: Pen) {
        for b2b in nodes(self.plan.layout).into_iter().filter(|id| [B2B, OTHER_B2B].contains(id)) {
            self.world.scenario.sim().set_pen(b2b, pen);
        }
    }

    fn heal(&mut self) {
        self.set_pens(Pen::Writes);
        let sim = self.world.scenario.sim();
        match self.plan.harm {
            Harm::Crash(node) | Harm::PowerOff(node) => sim.restart(node),
            Harm::Pause(node) | Harm::PauseInTurn(node) => sim.resume(node),
            Harm::Restart(_) => {}
            Harm::Isolate(_) | Harm::Mute(_) | Harm::Deafen(_) | Harm::Cut(..) => sim.heal_all(),
        }
    }

    fn kill_the_other(&mut self) {
        self.world.scenario.sim().crash(OTHER_MEDIAGATE);
        self.world.run(Duration::from_secs(1));
        self.world.scenario.sim().restart(OTHER_MEDIAGATE);
    }

    /// Begins a new call while something is wrong: it is answered within a second.
    fn probe(&mut self, (from, to): (PhoneId, PhoneId)) -> Result<(), String> {
        self.world.run(Duration::from_millis(200));
        self.world.call(from, to);
        self.world.run(PROBE.saturating_sub(Duration::from_millis(200)));
        if !self.plan.is_clean() {
            return Ok(());
        }
        let talks = |phone| matches!(self.state(phone), State::Talking { .. });
        let answered = talks(from) && talks(to);
        let problem = Wrong::Phone(Problem::Lost { phone: from, state: self.state(from) });
        let problems = if answered { Vec::new() } else { vec![problem] };
        self.check("a new call is answered", &problems)
    }

    /// What keeps the calls from being as they should be.
    fn wrong_calls(&self) -> Vec<Wrong> {
        let mut problems = Vec::new();
        for call in &self.plan.calls {
            let pair = (call.from, call.to);
            let missing = self.world.scenario.not_talking(&[pair]);
            let is_deaf = |problem: &Problem| matches!(problem, Problem::Deaf { .. });
            match call.fate {
                Fate::Talks => {
                    problems.extend(missing.into_iter().map(Wrong::Phone));
                    problems.extend(self.disagree(call));
                }
                Fate::Free if self.is_idle(call) => {}
                Fate::Free => {
                    let lost = missing.into_iter().filter(|problem| !is_deaf(problem));
                    problems.extend(lost.map(Wrong::Phone));
                }
            }
        }
        problems
    }

    fn is_idle(&self, call: &PlannedCall) -> bool {
        [call.from, call.to].into_iter().all(|phone| self.state(phone) == State::Idle)
    }

    /// One side thinks that it holds, and the other does not feel held.
    fn disagree(&self, call: &PlannedCall) -> Option<Wrong> {
        let [state, other] = [call.from, call.to].map(|phone| self.state(phone));
        let State::Talking { holds, held } = state else { return None };
        let mirrored = State::Talking { holds: held, held: holds };
        (other != mirrored).then_some(Wrong::Disagree([(call.from, state), (call.to, other)]))
    }

    fn not_talking(&self, calls: &[(PhoneId, PhoneId)]) -> Vec<Wrong> {
        self.world.scenario.not_talking(calls).into_iter().map(Wrong::Phone).collect()
    }

    /// The rules that were broken, but for those that a network may seem to break.
    fn broken(&self) -> Vec<Wrong> {
        let clean = self.plan.is_clean();
        let blames_the_network = |problem: &Problem| {
            let Problem::Broken { fault, .. } = problem else { return false };
            matches!(
                fault,
                // The version that came before is lost.
                Fault::OriginVersion { .. }
                    | Fault::InviteTooEarly { .. }
                    | Fault::CSeqNotRising { .. }
                    | Fault::AfterEnd { .. }
                    | Fault::UnknownCall
            )
        };
        // The next owner repeats a BYE whose answer only the one before it heard.
        let repeats_byes = self.plan.harm.hits_a_b2b();
        let is_repeated = |problem: &Problem| {
            let Problem::Broken { fault: Fault::AfterEnd { method }, .. } = problem else {
                return false;
            };
            repeats_byes && method == "BYE"
        };
        let broken = self.world.scenario.broken().into_iter();
        let broken = broken.filter(|problem| clean || !blames_the_network(problem));
        broken.filter(|problem| !is_repeated(problem)).map(Wrong::Phone).collect()
    }

    fn state(&self, phone: PhoneId) -> State {
        self.world.scenario.fleet().state(phone)
    }

    /// Lets time pass until nothing has been wrong for a second.
    fn eventually(
        &mut self,
        what: &str,
        within: Duration,
        wrong: impl Fn(&Self) -> Vec<Wrong>,
    ) -> Result<(), String> {
        let (mut waited, mut right) = (Duration::ZERO, Duration::ZERO);
        loop {
            let problems = wrong(self);
            right = if problems.is_empty() { right + STEP } else { Duration::ZERO };
            if SURE <= right || within <= waited {
                return self.check(what, &problems);
            }
            self.world.run(STEP);
            waited += STEP;
        }
    }

    fn check(&self, what: &str, problems: &[Wrong]) -> Result<(), String> {
        if problems.is_empty() {
            return Ok(());
        }
        let mut text = format!("seed {}: not so: {what}\n", self.seed);
        for problem in problems {
            let _ = writeln!(text, "  {problem:?}");
        }
        let _ = writeln!(text, "{}\n{}", self.plan, self.world.scenario);
        Err(text)
    }
}

fn left(count: usize) -> Vec<Wrong> {
    (0 < count).then_some(Wrong::Left(count)).into_iter().collect()
}

/// The phones that begin calls of their own during an outage.
const FIRST_SPARE: PhoneId = PhoneId(6);

/// New calls work this long after a death.
const PROBE: Duration = Duration::from_secs(1);

/// No ghost is left after this.
const SETTLE: Duration = Duration::from_secs(60);

/// What was right for so long stays right.
const SURE: Duration = Duration::from_secs(1);

const STEP: Duration = Duration::from_millis(200);
