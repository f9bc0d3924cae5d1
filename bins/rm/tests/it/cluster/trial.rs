//! Runs one seed and says what was wrong.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use driver::NodeId;
use driver::sim::Pen;
use driver::store::MemoryDisk;
use testkit::scenario::{PHONES, Problem};
use testkit::{Command, Fault, Manners, PhoneId, State};

use super::details::{Details, Told};
use super::laws;
use super::plan::{Fate, Harm, Plan, PlannedCall, SPARE, Second, When};
use super::world::{
    B2B, FIRST_MEDIAGATE, Layout, OTHER_B2B, OTHER_MEDIAGATE, Setup, World, host, nodes,
};

/// Runs a seed to its end.
///
/// # Errors
/// Everything that is wrong at the first check that fails, with the plan and the phones' journal.
pub(crate) fn run(seed: u64) -> Result<u64, String> {
    let plan = Plan::new(seed);
    let details = Details::listen();
    let disk = MemoryDisk::default();
    let setup = Setup {
        disk: plan.has_disk().then(|| disk.clone()),
        streams: plan.streams,
        hops: plan.hops,
        elsewhere: plan.elsewhere.clone(),
        ..Setup::new(plan.layout)
    };
    let world = World::build(seed, setup);
    let mut trial =
        Trial { world, plan, seed, details, disk, begun_at: Duration::ZERO, outages: Vec::new() };
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
    /// What phones saw that no cluster may let them see.
    #[expect(dead_code, reason = "for the message")]
    Law(String),
}

struct Trial {
    seed: u64,
    plan: Plan,
    world: World,
    details: Details,
    disk: MemoryDisk,
    /// When the calls began, on the world's clock.
    begun_at: Duration,
    /// Since and until when something that carries SIP was harmed.
    outages: Vec<(Instant, Option<Instant>)>,
}

impl Trial {
    fn run(&mut self) -> Result<u64, String> {
        self.world.start();
        self.set_paths();
        self.begin_calls();
        self.world.scenario.run_until_message(Duration::from_secs(6), self.plan.at_message);
        let probe = PlannedCall {
            from: SPARE,
            to: PhoneId(SPARE.0 + 1),
            manners: [Manners::default(), Manners::default()],
            acts: Vec::new(),
            fate: Fate::Talks,
        };
        let pair = (probe.from, probe.to);
        self.first(pair)?;
        self.eventually("the new call talks", self.settled(), |trial| trial.not_talking(&[pair]))?;
        self.plan.calls.push(probe);
        if let Some(Second { at: When::After(after), harm, outage }) = self.plan.second {
            self.eventually("every slot has a copy", SETTLE, |trial| {
                left(trial.unprotected_slots())
            })?;
            self.world.run(after);
            self.do_harm(harm, outage, self.plan.harm.hits_a_mediagate());
            self.world.run(outage);
            self.heal(harm);
            if !self.plan.serves_during(harm) {
                self.world.run(BACK);
            }
        }
        self.eventually("every call is as it should be", self.settled(), Self::wrong_calls)?;
        self.end()
    }

    /// Does the first harm, and the second if that comes meanwhile; begins a new call.
    fn first(&mut self, probe: (PhoneId, PhoneId)) -> Result<(), String> {
        let Plan { harm, mut outage, second, .. } = self.plan;
        self.set_pens(self.plan.pen);
        let meanwhile = match second {
            Some(Second { at: When::Meanwhile(after), harm, .. }) => Some((after, harm)),
            Some(Second { at: When::After(_), .. }) | None => None,
        };
        self.do_harm(harm, outage, false);
        if let Some((after, other)) = meanwhile {
            self.world.run(after);
            self.do_harm(other, outage, true);
        } else if self.plan.serves_during(harm) {
            if harm.hits_a_b2b() || !harm.hits_a_mediagate() {
                self.world.run(PROBE);
            }
            self.probe(probe)?;
            outage = outage.saturating_sub(PROBE);
        }
        self.world.run(outage);
        self.heal(harm);
        if let Some((_, other)) = meanwhile {
            self.heal(other);
        }
        self.set_pens(Pen::Writes);
        if meanwhile.is_some() || !self.plan.serves_during(harm) {
            self.world.run(BACK);
            self.world.call(probe.0, probe.1);
        }
        Ok(())
    }

    /// Ends everything, and looks for what is left.
    fn end(&mut self) -> Result<u64, String> {
        for call in &self.plan.calls {
            self.world.scenario.plan(Duration::ZERO, call.from, Command::Hangup);
            if call.fate == Fate::Lost {
                self.world.scenario.plan(Duration::ZERO, call.to, Command::Hangup);
            }
        }
        self.eventually("every phone is idle", self.settled(), |trial| {
            trial.world.scenario.not_idle().into_iter().map(Wrong::Phone).collect()
        })?;
        // A disk that was not told how ringing ended has its b2b wait for as long as phones may ring.
        let lost = self.plan.calls.iter().any(|call| call.fate == Fate::Lost);
        let held = if lost { SETTLE + RING } else { SETTLE };
        self.eventually("the b2b holds no call", held, |trial| left(trial.world.live_calls()))?;
        self.eventually("no leg is open", SETTLE, |trial| {
            let legs =
                trial.world.open_legs(FIRST_MEDIAGATE) + trial.world.open_legs(OTHER_MEDIAGATE);
            left(legs)
        })?;
        self.eventually("every slot has one owner", SETTLE, |trial| {
            left(trial.world.slots().abs_diff(failover::slots::SLOTS))
        })?;
        let last = (PhoneId(SPARE.0 + 2), PhoneId(SPARE.0 + 3));
        self.world.call(last.0, last.1);
        self.eventually("a last call talks", Duration::from_secs(8), |trial| {
            trial.not_talking(&[last])
        })?;
        self.check("no rule is broken", &self.broken())?;
        self.check("phones see what they may", &self.broken_laws())?;
        let may_repeat = self.harms().any(Harm::hits_a_b2b);
        let wrong = self.details.wrong(&self.world, &self.world.calls(), may_repeat).into_iter();
        let wrong = wrong.filter(|(_, told)| !self.is_excused(told));
        let wrong: Vec<Wrong> = wrong.map(|(call, told)| Wrong::Detail(call, told)).collect();
        self.check("each call has one detail record", &wrong)?;
        Ok(self.world.scenario.sim().trace())
    }

    /// What the disk was not told (design.md §10: its loss window), no detail record can be of; nor can
    /// its b2b know that a call has ended already.
    fn is_excused(&self, told: &Told) -> bool {
        let config = self.world.scenario.fleet().config();
        let mut lost = self.plan.calls.iter().filter(|call| call.fate == Fate::Lost);
        let is_it = lost.any(|call| told.to.starts_with(&format!("sip:{}@", config.user(call.to))));
        is_it && told.details.len() <= 2
    }

    fn harms(&self) -> impl Iterator<Item = Harm> {
        std::iter::once(self.plan.harm).chain(self.plan.second.map(|second| second.harm))
    }

    /// No ghost is left after this: a phone on a connection gives up what nobody repeats after 32 s, and
    /// silence ends what the other side does not know of.
    fn settled(&self) -> Duration {
        if self.plan.streams == 0 { SETTLE } else { SETTLE + Duration::from_secs(40) }
    }

    fn unprotected_slots(&self) -> usize {
        let b2bs = b2bs(self.plan.layout).into_iter();
        let slots: u64 = b2bs.map(|b2b| self.world.figure(b2b, "rm_slots_unprotected")).sum();
        usize::try_from(slots).expect("there are few")
    }

    /// The laws of `laws`, and one speaker a slot.
    fn broken_laws(&self) -> Vec<Wrong> {
        let (fleet, owners) = (self.world.scenario.fleet(), b2bs(self.plan.layout).len());
        let (entries, config) = (fleet.journal().entries(), fleet.config());
        let mut wrong = laws::strange_messages(entries, config);
        let is_whole = !self.harms().any(Harm::hits_signalling);
        let silence = laws::silence(self.plan.path, is_whole);
        wrong.extend(laws::overfull_hops(entries, config, owners, silence));
        wrong.extend(self.world.emitters.wrong());
        if !self.harms().any(Harm::hits_a_mediagate) {
            let moved = laws::moved(entries).into_iter();
            wrong.extend(moved.map(|phone| format!("{phone} is moved though no mediagate died")));
        }
        // The next owner repeats a BYE whose answer only the one before it heard.
        let takeovers = self.harms().filter(|harm| harm.hits_a_b2b()).count();
        let byes = laws::repeated_byes(entries).into_iter();
        let byes = byes.filter(|(_, repeats)| takeovers < *repeats);
        wrong.extend(byes.map(|(phone, repeats)| format!("{phone}: {repeats} BYEs again")));
        wrong.into_iter().map(Wrong::Law).collect()
    }

    fn set_paths(&mut self) {
        let path = self.plan.path;
        for node in nodes(self.plan.layout) {
            self.world.scenario.sim().set_path(PHONES, node, path);
            self.world.scenario.sim().set_path(node, PHONES, path);
        }
    }

    fn begin_calls(&mut self) {
        self.begun_at = self.world.scenario.sim().elapsed();
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

    /// Says what may become of each call by a harm of this length, and does it.
    fn do_harm(&mut self, harm: Harm, outage: Duration, is_busy: bool) {
        let elapsed = self.world.scenario.sim().elapsed().saturating_sub(self.begun_at);
        for place in 0..self.plan.calls.len() {
            let call = &self.plan.calls[place];
            let around = elapsed.saturating_sub(OPEN)..elapsed + outage + PROBE;
            let acts = call.acts.iter().any(|(at, ..)| around.contains(at));
            let is_call = |command: &Command| matches!(command, Command::Call { .. });
            let mut begins = call.acts.iter().filter(|(.., command)| is_call(command));
            let begins = begins.any(|(at, ..)| elapsed <= *at);
            let stands = self.not_talking(&[(call.from, call.to)]).is_empty();
            if !self.plan.may_cost(call, harm) || (stands && !acts && !is_busy) {
                continue;
            }
            let forgets = self.plan.has_disk() && harm.kills(B2B) && (stands || !begins);
            let fate = if forgets { Fate::Lost } else { Fate::Free };
            if call.fate != Fate::Lost {
                self.plan.calls[place].fate = fate;
            }
        }
        if harm.hits_signalling() {
            self.outages.push((self.world.scenario.now(), None));
        }
        self.harm(harm);
    }

    fn harm(&mut self, harm: Harm) {
        if harm.kills(B2B) {
            self.disk.crash(self.world.scenario.now(), WINDOW);
        }
        let ids: Vec<_> = nodes(self.plan.layout).into_iter().chain([PHONES]).collect();
        let layout = self.plan.layout;
        let sim = self.world.scenario.sim();
        match harm {
            Harm::Crash(node) => sim.crash(node),
            Harm::Restart(node) => sim.restart(node),
            Harm::Everything => nodes(layout).into_iter().for_each(|node| sim.crash(node)),
            Harm::PowerOff(node) => sim.power_off(host(layout, node)),
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
        for b2b in b2bs(self.plan.layout) {
            self.world.scenario.sim().set_pen(b2b, pen);
        }
    }

    fn heal(&mut self, harm: Harm) {
        let layout = self.plan.layout;
        let now = self.world.scenario.now();
        if harm.hits_signalling() {
            self.outages.iter_mut().for_each(|(_, until)| *until = until.or(Some(now)));
        }
        let sim = self.world.scenario.sim();
        match harm {
            Harm::Crash(node) => sim.restart(node),
            Harm::PowerOff(node) => {
                sim.restart(node);
                // By their keep-alives phones learn what of theirs ended there (RFC 5626 §4.4.1): their
                // reconnect is what is counted on (design.md §3, the gate's row).
                sim.break_streams(PHONES, node);
            }
            Harm::Everything => nodes(layout).into_iter().for_each(|node| sim.restart(node)),
            Harm::Pause(node) | Harm::PauseInTurn(node) => sim.resume(node),
            Harm::Restart(_) => {}
            Harm::Isolate(_) | Harm::Mute(_) | Harm::Deafen(_) | Harm::Cut(..) => sim.heal_all(),
        }
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
                Fate::Lost => {}
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
        // Those are counted: see `broken_laws`.
        let repeats_byes = self.harms().any(Harm::hits_a_b2b);
        let is_repeated = |problem: &Problem| {
            let Problem::Broken { fault: Fault::AfterEnd { method }, .. } = problem else {
                return false;
            };
            repeats_byes && method == "BYE"
        };
        // What a disk was not told, its b2b does not know.
        let lost = self.plan.calls.iter().filter(|call| call.fate == Fate::Lost);
        let lost: Vec<PhoneId> = lost.flat_map(|call| [call.from, call.to]).collect();
        let is_old = |problem: &Problem| {
            let Problem::Broken { phone: Some(phone), fault } = problem else { return false };
            // That an INVITE was sent, with which description, or that the call ended.
            let unknown = matches!(
                fault,
                Fault::InviteTooEarly { .. } | Fault::OriginVersion { .. } | Fault::AfterEnd { .. }
            );
            unknown && lost.contains(phone)
        };
        let early = self.invites_after_lost_acks();
        let is_early = |problem: &Problem| {
            let Problem::Broken { phone: Some(phone), fault } = problem else { return false };
            matches!(fault, Fault::InviteTooEarly { cseq } if early.contains(&(*phone, *cseq)))
        };
        let broken = self.world.scenario.broken().into_iter().filter(|problem| !is_old(problem));
        let broken = broken.filter(|problem| !is_early(problem));
        let broken = broken.filter(|problem| clean || !blames_the_network(problem));
        broken.filter(|problem| !is_repeated(problem)).map(Wrong::Phone).collect()
    }

    /// The INVITEs that came before an ACK which an outage of what carries SIP has swallowed: nobody
    /// learns of that before the phone repeats its 2xx (RFC 3261 §13.2.2.4), up to 4 s later.
    fn invites_after_lost_acks(&self) -> Vec<(PhoneId, u32)> {
        let early = laws::unacknowledged(self.world.scenario.fleet().journal().entries());
        let swallowed = |at: Instant| {
            let mut outages = self.outages.iter();
            outages.any(|(since, until)| {
                *since <= at + ROUND_TRIP && until.is_none_or(|until| at <= until)
            })
        };
        let early = early.into_iter().filter(|(.., answered_at)| swallowed(*answered_at));
        early.map(|(phone, cseq, _)| (phone, cseq)).collect()
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

fn b2bs(layout: Layout) -> Vec<NodeId> {
    nodes(layout).into_iter().filter(|id| [B2B, OTHER_B2B].contains(id)).collect()
}

fn left(count: usize) -> Vec<Wrong> {
    (0 < count).then_some(Wrong::Left(count)).into_iter().collect()
}

/// New calls work this long after a death.
const PROBE: Duration = Duration::from_secs(1);

/// What starts again serves this long after.
const BACK: Duration = Duration::from_secs(3);

/// What the store may lose: a group, and a commit.
const WINDOW: Duration = Duration::from_millis(30);

/// Nothing that a phone does is open for longer, as patient as the other is.
const OPEN: Duration = Duration::from_secs(6);

/// A phone hears our ACK so long after its 2xx, over the longest of the paths.
const ROUND_TRIP: Duration = Duration::from_millis(250);

/// No ghost is left after this.
const SETTLE: Duration = Duration::from_secs(60);

/// As long as a b2b lets phones ring.
const RING: Duration = Duration::from_secs(180);

/// What was right for so long stays right.
const SURE: Duration = Duration::from_secs(1);

const STEP: Duration = Duration::from_millis(200);
