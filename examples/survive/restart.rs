//! The only server: a part of it, or all, is killed and started again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use examples::account::{clock, pause, wait_for};
use examples::figures::Figures;
use serde::Serialize;
use testkit::{Command, Event, Manners, PhoneId, What};

use crate::survive::args::Role;
use crate::survive::controls::{Controls, Groups};
use crate::survive::outage::{NewCalls, faults, millis_or_null};
use crate::survive::show::Show;
use crate::survive::stage::{NEW_CALL_EVERY, Seen, call_of, callee_of, caller_of};

/// How long what was killed stays away.
const AWAY: Duration = Duration::from_secs(1);
/// Calls must be back, or ended, within this time after the start.
const BACK_MAX: Duration = Duration::from_secs(35);
/// How long nothing else may happen after that.
const AFTER: Duration = Duration::from_secs(3);
/// Longer than the loss window of the local store, also on a busy machine.
const STORED: Duration = Duration::from_secs(1);
/// One call in so many is lost at one of its phones meanwhile.
const FORGOTTEN_EVERY: u32 = 5;
/// What such a phone answers when it is asked. Who says nothing at all takes 32 s to be given up: that
/// is tried where everything was away, and comes last here.
const ANSWERS: [Option<u16>; 3] = [Some(481), Some(603), None];

/// What the phones saw of one restart.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Restart {
    /// What was restarted; without it everything.
    pub(crate) role: Option<Role>,
    /// Calls whose phones both waited, and those that talk again.
    pub(crate) waiting: u32,
    pub(crate) back: u32,
    /// Calls that a phone has forgotten, and those that ended at the other in time.
    pub(crate) forgotten: u32,
    pub(crate) ended: u32,
    /// Of each direction of each call that is back, the longest silence.
    pub(crate) gap: Figures,
    /// From the start to the first new call that is heard on both sides.
    #[serde(serialize_with = "millis_or_null")]
    pub(crate) new_call: Option<Duration>,
    /// Phones of standing calls that rang.
    pub(crate) rang: u32,
    /// SIP messages that came to the phones of the calls, by kind.
    pub(crate) messages: BTreeMap<String, u64>,
    /// What was tried with calls that are back.
    pub(crate) controls: Controls,
    /// Rules that the phones saw broken.
    pub(crate) faults: Vec<String>,
}

impl Show<'_> {
    /// Kills a role, or everything, starts it again, and waits until every call is back or over.
    pub(crate) fn restart(&mut self, role: Option<Role>) -> anyhow::Result<Restart> {
        let again = self.stage.settle()?;
        if 0 < again {
            self.account.say(&format!("{again} calls were made again"));
        }
        let calls = self.args.calls;
        // Who forgets its call while its b2b is there says so nowhere.
        let forgotten = match role {
            None | Some(Role::B2b) => calls / FORGOTTEN_EVERY,
            Some(Role::Mediagate | Role::Controller | Role::Gate) => 0,
        };
        // What ended last is on disk within 15 ms and a commit; before that it would come back.
        pause(STORED);
        self.stage.begin()?;
        let at = clock();
        match role {
            Some(role) => {
                let victim = self.servers.leading(role)?;
                self.servers.kill(victim)?;
            }
            None => self.servers.processes.kill(|_| true)?,
        }
        let answers = if role.is_none() { &ANSWERS[..] } else { &ANSWERS[..2] };
        // Callers and callees take turns, so each answer comes from both.
        let answers = answers.iter().flat_map(|answer| [*answer; 2]).cycle();
        let lost = (0..forgotten).zip(answers).flat_map(|(index, answer)| {
            let phone = forgets(calls, index);
            [(at, phone, lost_call(answer)), (at, phone, Command::Forget)]
        });
        self.stage.plan(lost.collect());
        pause(AWAY);
        let back_at = clock();
        self.servers.start_all()?;
        // The port numbers of a fresh mediagate rest for 2 s.
        self.stage.call_anew(back_at, 4 * NEW_CALL_EVERY * self.args.slack);
        wait_for(BACK_MAX * self.args.slack, || {
            self.stage.talking() == calls - forgotten && self.stage.idle() == forgotten
        });
        pause(AFTER);
        let ended = self.stage.idle();
        let seen = self.stage.end(calls - forgotten)?;
        let asked = |index| (clock(), forgets(calls, index), lost_call(ANSWERS[0]));
        self.stage.plan((0..forgotten).map(asked).collect());
        self.servers.processes.check()?;
        if self.args.ladder {
            self.tell_ladder(at, &seen.entries);
        }
        self.stage.hang_up_new()?;
        let controls = self.controls(calls - forgotten)?;
        let counts = (calls - forgotten, forgotten, ended);
        let restart = Restart::new(role, counts, (at, back_at), &seen, controls);
        let what = role.map_or("everything", Role::name);
        self.account.say(&format!("{what} was killed and started again: {}", restart.line()));
        Ok(restart)
    }

    /// Tries to hold, resume and end a sample of the calls that are back.
    fn controls(&mut self, back: u32) -> anyhow::Result<Controls> {
        let groups = Groups::tried_only(self.args.calls, self.args.slack);
        self.stage.begin()?;
        let at = clock();
        self.stage.plan(groups.after(at));
        pause(groups.done_after());
        let seen = self.stage.end(back - groups.tried())?;
        Ok(Controls::new(groups, at, &seen))
    }
}

impl Restart {
    fn new(
        role: Option<Role>,
        (waiting, forgotten, ended): (u32, u32, u32),
        (at, back_at): (Instant, Instant),
        seen: &Seen,
        controls: Controls,
    ) -> Self {
        let mut gap = Figures::default();
        for caller in &seen.kept {
            for phone in [*caller, callee_of(*caller)] {
                if let Some(Some(heard)) = seen.heard.get(&phone) {
                    gap.push(heard.silence);
                }
            }
        }
        let mut messages = BTreeMap::new();
        for ((phone, kind), count) in &seen.received {
            if call_of(*phone).is_some() {
                *messages.entry(kind.clone()).or_default() += count;
            }
        }
        let rings = seen.entries.iter().filter(|entry| {
            entry.what == What::Event(Event::Called) && entry.phone.and_then(call_of).is_some()
        });
        Self {
            role,
            waiting,
            back: u32::try_from(seen.kept.len()).unwrap_or(u32::MAX),
            forgotten,
            ended,
            gap,
            new_call: NewCalls::of(back_at, seen).first,
            rang: u32::try_from(rings.count()).unwrap_or(u32::MAX),
            messages,
            controls,
            faults: faults(at, &seen.entries),
        }
    }

    /// Returns it in one line.
    pub(crate) fn line(&self) -> String {
        let Self { waiting, back, forgotten, ended, rang, gap, controls, .. } = self;
        format!(
            "{back} of {waiting} calls are back, voice gap p50 {}, max {} ms; \
             {ended} of {forgotten} forgotten ones ended; {rang} phones rang; {}",
            gap.text(50),
            gap.text(100),
            controls.line()
        )
    }
}

/// How a phone takes questions about a call that it has lost.
fn lost_call(answer: Option<u16>) -> Command {
    Command::Behave(Box::new(Manners { lost_call: answer, ..Manners::default() }))
}

/// The phone that forgets, of the last calls, as the first ones are tried: callers and callees in turn.
fn forgets(calls: u32, index: u32) -> PhoneId {
    let caller = caller_of(calls - 1 - index);
    if index.is_multiple_of(2) { caller } else { callee_of(caller) }
}
