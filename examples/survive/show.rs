//! One death after the other.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use examples::account::{Account, clock, pause, pause_until};
use examples::figures::millis;
use examples::process::raise_file_limit;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::Signal;
use testkit::Entry;

use crate::survive::args::{Args, How, Role};
use crate::survive::controls::Groups;
use crate::survive::hogs::Hogs;
use crate::survive::layout::{Layout, Server};
use crate::survive::outage::{Outage, Watched};
use crate::survive::report::Report;
use crate::survive::servers::Servers;
use crate::survive::silence::Silence;
use crate::survive::stage::{NEW_CALL_EVERY, NEW_CALLS, Stage, VOICED_ALL_MAX};

/// How long each outage is watched.
const WATCHED: Duration = Duration::from_secs(3);
/// How long a returned process gets to be taken in again. The ports of a new
/// mediagate rest for 2 s.
const RETURN: Duration = Duration::from_secs(3);
/// How long after its last message a call is in the middle of nothing. Who takes it over sends its
/// ACK again if that is younger than 2 s, for it may be lost.
const SETTLED: Duration = Duration::from_millis(2500);
/// How long the port numbers of a dead b2b are kept for its calls. Thousands of
/// calls need those again before the next death.
const PORTS_RETURN: Duration = Duration::from_secs(65);
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

/// Runs everything that was asked for.
pub(crate) fn run(
    args: &Args,
    roles: &[Role],
    account: &Account,
    report: &mut Report,
) -> anyhow::Result<()> {
    raise_file_limit()?;
    let servers = Servers::start(args)?;
    check_file_limit(args.calls, servers.mediagates())?;
    let (layout, dir) = (args.layout.name(), servers.processes.dir().display());
    account.say(&format!("{layout}: all processes run; logs in {dir}"));
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
        if args.layout == Layout::One {
            show.restarts(Some(role), report)?;
        } else {
            show.role(role, report)?;
        }
    }
    if args.restarts_everything() {
        show.restarts(None, report)?;
    }
    if let Some(count) = args.hogs {
        let outage = show.hogs(count)?;
        report.hogs = Some(outage);
    }
    if report.is_met() {
        show.servers.processes.forget_logs();
    }
    Ok(())
}

/// The servers, the phones, and what is told about them.
pub(crate) struct Show<'a> {
    pub(crate) args: &'a Args,
    pub(crate) account: &'a Account,
    pub(crate) servers: Servers,
    pub(crate) stage: Stage,
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

    /// Restarts a role of the only server, or everything, as often as asked.
    fn restarts(&mut self, role: Option<Role>, report: &mut Report) -> anyhow::Result<()> {
        for _ in 0..self.args.kills {
            report.restarts.push(self.restart(role)?);
        }
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
        if role == Role::B2b {
            self.servers.wait_until_protected()?;
            pause(SETTLED);
        }
        let victim = self.victim(role)?;
        let how = self.args.how;
        let groups = (role == Role::B2b).then(|| Groups::new(self.args.calls, self.args.slack));
        let watched = match (role, groups) {
            (Role::Mediagate, _) => Watched::These(self.stage.calls_at(victim.ip().into())),
            (_, Some(groups)) => Watched::Groups(groups),
            (_, None) => Watched::All,
        };
        self.stage.begin()?;
        let mut silence = Silence::default();
        if let Some(groups) = groups {
            self.stage.plan(groups.before(clock()));
        }
        let at = clock();
        self.strike(victim, &mut silence)?;
        self.stage.call_anew(at, NEW_CALL_EVERY * self.args.slack);
        if let Some(groups) = groups {
            self.stage.plan(groups.after(at));
        }
        if role == Role::Mediagate {
            let ip = victim.ip().into();
            self.stage.studio.with(move |fleet, _| fleet.forbid(ip));
        }
        let until = at + groups.map_or(WATCHED * self.args.slack, Groups::done_after);
        while clock() < until {
            pause_until((clock() + Duration::from_millis(50)).min(until));
            if how == How::Cut {
                silence.cut(&self.servers, victim, &self.stage.studio)?;
            }
        }
        let tried = groups.map_or(0, Groups::tried);
        let seen = self.stage.end(self.args.calls - tried)?;
        let outage = Outage::new(self.args, at, &seen, &watched);
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
                self.servers.mediagate_at(ip).with_context(|| format!("{ip} is no mediagate"))?
            }
            Role::Controller | Role::Gate | Role::B2b => self.servers.leading(role)?,
        })
    }

    fn strike(&mut self, victim: Server, silence: &mut Silence) -> anyhow::Result<()> {
        match self.args.how {
            How::Kill => self.servers.kill(victim),
            How::Stop => self.servers.processes.signal(victim, Signal::SIGSTOP),
            How::Cut => silence.cut(&self.servers, victim, &self.stage.studio),
        }
    }

    /// Ends the last outage: a new process takes the dead one's place.
    fn recover(&mut self) -> anyhow::Result<()> {
        let Some((victim, mut silence)) = self.wound.take() else { return Ok(()) };
        if self.args.how == How::Cut {
            // The network heals over a process that no longer acts, so that
            // its end is told as any other.
            self.servers.processes.signal(victim, Signal::SIGSTOP)?;
            silence.heal(&self.servers, &self.stage.studio)?;
        }
        self.servers.restart(victim)?;
        let ip = victim.ip().into();
        self.stage.studio.with(move |fleet, _| fleet.allow(ip));
        pause(RETURN);
        if victim.role() == Role::B2b && VOICED_ALL_MAX < self.args.calls {
            let seconds = PORTS_RETURN.as_secs();
            self.account.say(&format!("{seconds} s until the dead b2b's port numbers are free"));
            pause(PORTS_RETURN);
        }
        self.servers.processes.check()
    }

    /// Lets busy processes run beside the calls.
    fn hogs(&mut self, count: u32) -> anyhow::Result<Outage> {
        self.account.say(&format!("{count} busy processes for {} s", HOGGED.as_secs()));
        self.stage.begin()?;
        let at = clock();
        let hogs = Hogs::start(count)?;
        pause(HOGGED);
        drop(hogs);
        let seen = self.stage.end(self.args.calls)?;
        let outage = Outage::new(self.args, at, &seen, &Watched::All);
        self.account.say(&format!("busy processes: {}", outage.line(Role::Mediagate)));
        Ok(outage)
    }

    pub(crate) fn tell_ladder(&self, at: Instant, entries: &[Entry]) {
        for entry in entries {
            self.account.say(&entry.line(at));
        }
    }
}

/// Fails if the mediagates could not carry all calls after the death of one.
fn check_file_limit(calls: u32, mediagates: usize) -> anyhow::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    // A mediagate has four sockets a call; one in five more where they do not
    // share evenly.
    let others = u64::try_from(mediagates)?.saturating_sub(1).max(1);
    let most = if others == 1 { u64::from(calls) } else { u64::from(calls) * 6 / (5 * others) };
    let needed = 4 * (most + u64::from(NEW_CALLS)) + 100;
    if hard < needed {
        bail!(
            "{calls} calls need {needed} open files a process, and this user has {hard} (ulimit -Hn)"
        );
    }
    Ok(())
}
