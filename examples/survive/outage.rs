//! One death after the other, and what the phones saw of each.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::bail;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use serde::Serialize;
use testkit::{Entry, Event, PhoneId, What};

use crate::survive::account::{Account, clock, pause, pause_until};
use crate::survive::args::{Args, How, Role};
use crate::survive::figures::{Figures, millis, millis_text};
use crate::survive::hogs::Hogs;
use crate::survive::report::Report;
use crate::survive::servers::{Server, Servers};
use crate::survive::silence::Silence;
use crate::survive::stage::{
    NEW_CALL_EVERY, NEW_CALLS, Seen, Stage, callee_of, is_kept_phone, new_callers,
};
use crate::survive::targets::NEW_CALL_MAX;

/// How long each outage is watched.
const WATCHED: Duration = Duration::from_secs(3);
/// How long a returned process gets to be taken in again. The ports of a new
/// mediagate rest for 2 s.
const RETURN: Duration = Duration::from_secs(3);
/// How long busy processes run.
const HOGGED: Duration = Duration::from_secs(60);
/// The phones' own ticks must not come later than this.
const LATE: Duration = Duration::from_millis(20);
/// So many more measures than deaths may be void before the example gives up.
const VOID_MAX: u32 = 4;

/// Nothing could be measured: the phones themselves were late again and again.
#[derive(Debug)]
pub(crate) struct TooBusy {
    void: u32,
}

impl fmt::Display for TooBusy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this machine is too busy to measure: {} measures were void", self.void)
    }
}

impl std::error::Error for TooBusy {}

/// What the phones saw of one death.
#[derive(Debug, Serialize)]
pub(crate) struct Outage {
    pub(crate) calls: u32,
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
    /// Rules that the phones saw broken.
    pub(crate) faults: Vec<String>,
    /// The latest tick of the example's own clock.
    #[serde(serialize_with = "as_millis")]
    pub(crate) own_lateness: Duration,
}

/// Runs everything that was asked for.
pub(crate) fn run(
    args: &Args,
    roles: &[Role],
    account: &Account,
    report: &mut Report,
) -> anyhow::Result<()> {
    raise_file_limit(args.calls)?;
    let servers = Servers::start(args)?;
    account.say(&format!("four servers run; logs in {}", servers.dir().display()));
    pause(RETURN);
    report.realtime = servers.is_realtime();
    let class = if report.realtime { "with" } else { "without" };
    account.say(&format!("silence is judged {class} a real-time class"));
    let stage = Stage::open(args)?;
    let mut show = Show { args, account, servers, stage, wound: None };
    account.say("all phones are registered");
    let made = show.stage.settle()?;
    account.say(&format!("{made} calls stand, each heard on both sides"));
    for &role in roles {
        show.role(role, report)?;
    }
    if let Some(count) = args.hogs {
        let outage = show.hogs(count)?;
        report.hogs = Some(outage);
    }
    if report.is_met() {
        show.servers.forget_logs();
    }
    Ok(())
}

struct Show<'a> {
    args: &'a Args,
    account: &'a Account,
    servers: Servers,
    stage: Stage,
    /// Who died last and was not replaced yet.
    wound: Option<(Server, Silence)>,
}

impl Show<'_> {
    /// Lets a role die as often as asked.
    fn role(&mut self, role: Role, report: &mut Report) -> anyhow::Result<()> {
        let mut void = 0;
        let mut measured = 0;
        while measured < self.args.kills {
            let outage = self.outage(role)?;
            if self.is_void(role, &outage, report) {
                void += 1;
                self.account.say(&format!(
                    "void: the example's own clock came {:.1} ms late; once more",
                    millis(outage.own_lateness)
                ));
                if self.args.kills + VOID_MAX < void {
                    return Err(TooBusy { void }.into());
                }
                continue;
            }
            measured += 1;
            report.add(role, outage);
        }
        report.set_void(role, void);
        Ok(())
    }

    /// A measure is void if the phones themselves were late. With slack it counts all the same if
    /// it met its limits. A call that was lost was lost, whatever the clock says.
    fn is_void(&self, role: Role, outage: &Outage, report: &Report) -> bool {
        let counts = 1 < self.args.slack && report.meets(role, outage);
        LATE < outage.own_lateness && outage.is_harmless() && !counts
    }

    fn outage(&mut self, role: Role) -> anyhow::Result<Outage> {
        self.recover()?;
        let again = self.stage.settle()?;
        if 0 < again {
            self.account.say(&format!("{again} calls were made again"));
        }
        let victim = self.victim(role)?;
        let how = self.args.how;
        self.stage.begin()?;
        let mut silence = Silence::default();
        let at = clock();
        self.strike(victim, &mut silence)?;
        self.stage.call_anew(at);
        if role == Role::Mediagate {
            let ip = victim.ip().into();
            self.stage.studio.with(move |fleet, _| fleet.forbid(ip));
        }
        let until = at + WATCHED * self.args.slack;
        while clock() < until {
            pause_until((clock() + Duration::from_millis(50)).min(until));
            if how == How::Cut {
                silence.cut(&self.servers, victim, &self.stage.studio)?;
            }
        }
        let seen = self.stage.end()?;
        let outage = Outage::new(self.args, at, &seen);
        if self.args.ladder {
            self.tell_ladder(at, &seen.entries);
        }
        self.account.say(&format!("{} of the {victim}: {}", how.name(), outage.line(role)));
        self.wound = Some((victim, silence));
        self.stage.hang_up_new()?;
        Ok(outage)
    }

    fn victim(&self, role: Role) -> anyhow::Result<Server> {
        Ok(match role {
            Role::Mediagate => {
                let ip = self.stage.media_ip()?;
                if ip == Server::Mediagate.ip() {
                    Server::Mediagate
                } else {
                    Server::StandbyMediagate
                }
            }
            Role::Controller => Server::Controller,
            Role::Gate => Server::Gate,
            Role::B2b => Server::B2b,
        })
    }

    fn strike(&mut self, victim: Server, silence: &mut Silence) -> anyhow::Result<()> {
        match self.args.how {
            How::Kill => self.servers.kill(victim),
            How::Stop => self.servers.signal(victim, Signal::SIGSTOP),
            How::Cut => silence.cut(&self.servers, victim, &self.stage.studio),
        }
    }

    /// Ends the last outage: a new process takes the dead one's place.
    fn recover(&mut self) -> anyhow::Result<()> {
        let Some((victim, mut silence)) = self.wound.take() else { return Ok(()) };
        if self.args.how == How::Cut {
            // The network heals over a process that no longer acts, so that
            // its end is told as any other.
            self.servers.signal(victim, Signal::SIGSTOP)?;
            silence.heal(&self.servers, &self.stage.studio)?;
        }
        self.servers.restart(victim)?;
        let ip = victim.ip().into();
        self.stage.studio.with(move |fleet, _| fleet.allow(ip));
        pause(RETURN);
        self.servers.check()
    }

    /// Lets busy processes run beside the calls.
    fn hogs(&mut self, count: u32) -> anyhow::Result<Outage> {
        self.account.say(&format!("{count} busy processes for {} s", HOGGED.as_secs()));
        self.stage.begin()?;
        let at = clock();
        let hogs = Hogs::start(count)?;
        pause(HOGGED);
        drop(hogs);
        let seen = self.stage.end()?;
        let outage = Outage::new(self.args, at, &seen);
        self.account.say(&format!("busy processes: {}", outage.line(Role::Mediagate)));
        Ok(outage)
    }

    fn tell_ladder(&self, at: Instant, entries: &[Entry]) {
        for entry in entries {
            self.account.say(&entry.line(at));
        }
    }
}

impl Outage {
    fn new(args: &Args, at: Instant, seen: &Seen) -> Self {
        let calls = args.calls;
        let (mut gap, mut lost, mut lost_beyond_gap) = (Figures::default(), 0, 0);
        for (_, heard) in seen.heard.iter().filter(|(phone, _)| is_kept_phone(calls, **phone)) {
            gap.push(heard.silence);
            lost += heard.lost;
            lost_beyond_gap += heard.lost_beyond_silence();
        }
        // What a filter drops is no loss of the example's own.
        let dropped = if args.how == How::Cut { 0 } else { seen.dropped };
        let own_drops = seen.pace.unsent + dropped;
        let new = NewCalls::of(args, at, seen);
        Self {
            calls,
            kept: u32::try_from(seen.kept.len()).unwrap_or(u32::MAX),
            first_reinvite: first_reinvites(calls, at, &seen.entries),
            gap,
            lost_beyond_gap: lost_beyond_gap.saturating_sub(own_drops),
            lost: lost.saturating_sub(own_drops),
            own_drops,
            sip_seen: seen.sip_seen(calls),
            new_call: new.first,
            new_tried: new.tried,
            new_heard: new.heard,
            new_late_failed: new.late_failed,
            faults: faults(at, &seen.entries),
            own_lateness: seen.pace.late_max,
        }
    }

    /// Returns several as one: counts added up, samples together, and of
    /// times that stand alone the worst.
    pub(crate) fn pooled(outages: &[Self]) -> Self {
        let mut pooled = Self {
            calls: 0,
            kept: 0,
            first_reinvite: Figures::default(),
            gap: Figures::default(),
            lost_beyond_gap: 0,
            lost: 0,
            own_drops: 0,
            sip_seen: 0,
            new_call: Some(Duration::ZERO),
            new_tried: 0,
            new_heard: 0,
            new_late_failed: 0,
            faults: Vec::new(),
            own_lateness: Duration::ZERO,
        };
        for outage in outages {
            pooled.calls += outage.calls;
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
            pooled.faults.extend_from_slice(&outage.faults);
            pooled.own_lateness = pooled.own_lateness.max(outage.own_lateness);
        }
        pooled
    }

    /// Returns whether no call was lost and no rule broken.
    fn is_harmless(&self) -> bool {
        self.kept == self.calls && self.faults.is_empty()
    }

    /// Returns the outage in one line.
    fn line(&self, role: Role) -> String {
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
        kept + &seen + &format!("; new call after {} ms", millis_text(self.new_call))
    }
}

struct NewCalls {
    first: Option<Duration>,
    tried: u32,
    heard: u32,
    late_failed: u32,
}

impl NewCalls {
    fn of(args: &Args, at: Instant, seen: &Seen) -> Self {
        let calls = args.calls;
        let mut new = Self { first: None, tried: 0, heard: 0, late_failed: 0 };
        for (index, caller) in (0..).zip(new_callers(calls)) {
            new.tried += 1;
            let first = |phone| seen.heard.get(&phone).and_then(|heard| heard.first_at);
            let both = first(caller).zip(first(callee_of(calls, caller)));
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

/// Of each call, when its first re-INVITE came to either phone.
fn first_reinvites(calls: u32, at: Instant, entries: &[Entry]) -> Figures {
    let mut first = BTreeMap::new();
    for entry in entries {
        if let (What::Event(Event::Reinvite { .. }), Some(PhoneId(phone))) =
            (&entry.what, entry.phone)
            && is_kept_phone(calls, PhoneId(phone))
        {
            first.entry(phone % calls).or_insert(entry.at);
        }
    }
    let mut figures = Figures::default();
    for came_at in first.into_values() {
        figures.push(came_at.saturating_duration_since(at));
    }
    figures
}

fn faults(at: Instant, entries: &[Entry]) -> Vec<String> {
    let fault = |entry: &&Entry| matches!(entry.what, What::Fault(_));
    entries.iter().filter(fault).map(|entry| entry.line(at).trim().to_owned()).collect()
}

/// Lets the example and its children open as many files as they may at all.
fn raise_file_limit(calls: u32) -> anyhow::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    // A mediagate has four sockets a call.
    let needed = 4 * u64::from(calls + NEW_CALLS) + 100;
    if hard < needed {
        bail!(
            "{calls} calls need {needed} open files a process, and this user has {hard} (ulimit -Hn)"
        );
    }
    Ok(())
}

fn as_millis<S: serde::Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(millis(*span))
}

fn millis_or_null<S: serde::Serializer>(
    span: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    span.map(millis).serialize(serializer)
}
