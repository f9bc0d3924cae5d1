//! The phones: N calls that must be kept, and spare phones for new ones.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use examples::account::wait_for;
use testkit::{
    Command, Config, Entry, Event, Fleet, Heard, Pace, PhoneId, State, Studio, What, drops_at,
};

use crate::survive::args::Args;
use crate::survive::layout::GATE;

const IP: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);

/// A new call is tried so often, from the moment of the death on.
pub(crate) const NEW_CALLS: u32 = 12;
/// And so far apart.
pub(crate) const NEW_CALL_EVERY: Duration = Duration::from_millis(100);

/// Up to so many calls all talk; of more, only the first [`VOICED`] do.
pub(crate) const VOICED_ALL_MAX: u32 = 1000;
const VOICED: u32 = 300;

/// A call is silent, and so not kept, if nothing came for this long.
const SILENT: Duration = Duration::from_millis(200);

/// The phones and what they are for.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) studio: Studio,
    calls: u32,
    slack: u32,
    drops: u64,
}

/// What the phones of one outage saw.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) entries: Vec<Entry>,
    /// By phone; `None` for one without a voice.
    pub(crate) heard: BTreeMap<PhoneId, Option<Heard>>,
    /// SIP messages that came, by phone and kind.
    pub(crate) received: BTreeMap<(PhoneId, String), u64>,
    pub(crate) pace: Pace,
    /// Packets that the kernel dropped at the phones' own sockets.
    pub(crate) dropped: u64,
    /// Calls in which both sides talk and hear.
    pub(crate) kept: Vec<PhoneId>,
}

impl Seen {
    /// Returns how many SIP messages these phones received.
    pub(crate) fn sip_seen(&self, counts: impl Fn(PhoneId) -> bool) -> u64 {
        self.received.iter().filter(|((phone, _), _)| counts(*phone)).map(|(_, n)| n).sum()
    }
}

impl Stage {
    /// Opens the phones and registers them.
    pub(crate) fn open(args: &Args) -> anyhow::Result<Self> {
        let phones = 2 * (args.calls + NEW_CALLS);
        let config = Config {
            phones,
            voices: (VOICED_ALL_MAX < args.calls).then_some(FIRST_KEPT + 2 * VOICED),
            sip_sockets: 16,
            server: Some(SocketAddr::from(GATE)),
            messages: args.ladder,
            realtime: !args.no_realtime,
            ..Config::new(IpAddr::V4(IP))
        };
        let studio = Studio::open(config, args.seed)?;
        let stage = Self { studio, calls: args.calls, slack: args.slack, drops: 0 };
        stage.studio.with(|fleet, now| {
            for phone in fleet.phones() {
                fleet.plan(now + Duration::from_millis(2) * phone.0, phone, Command::Register);
            }
        });
        let registered =
            wait_for(Duration::from_secs(40) + Duration::from_millis(2) * phones, || {
                stage.count(Event::Registered) == phones
            });
        if !registered {
            let count = stage.count(Event::Registered);
            bail!("{count} of {phones} phones could register\n{}", stage.faults_text());
        }
        Ok(stage)
    }

    /// Makes every call that does not stand, and waits until each is heard on
    /// both sides; returns how many were made.
    pub(crate) fn settle(&self) -> anyhow::Result<u32> {
        let made = self.make_calls();
        let spans = 10 + made / 20;
        for _ in 0..spans {
            let all = || self.talking() == self.calls;
            if wait_for(Duration::from_secs(2), all) {
                return Ok(made);
            }
            // A call that was refused is tried again.
            self.make_calls();
        }
        let (talking, calls) = (self.talking(), self.calls);
        bail!("only {talking} of {calls} calls can be heard\n{}", self.faults_text());
    }

    /// Lets idle callers call, 100 a second; a call that is half ended is ended.
    fn make_calls(&self) -> u32 {
        let calls = self.calls;
        self.studio.with(move |fleet, now| {
            let (mut at, mut made) = (now, 0);
            for caller in callers(calls) {
                let callee = callee_of(caller);
                match (fleet.state(caller), fleet.state(callee)) {
                    (State::Idle, State::Idle) => {
                        let to = fleet.config().aor(callee);
                        fleet.plan(at, caller, Command::Call { to });
                        at += Duration::from_millis(10);
                        made += 1;
                    }
                    (State::Talking { holds: true, .. }, _) => {
                        fleet.plan(now, caller, Command::Resume);
                    }
                    (_, State::Talking { holds: true, .. }) => {
                        fleet.plan(now, callee, Command::Resume);
                    }
                    (State::Idle, _) => fleet.plan(now, callee, Command::Hangup),
                    (_, State::Idle) => fleet.plan(now, caller, Command::Hangup),
                    _ => {}
                }
            }
            made
        })
    }

    /// Returns the calls whose media is at an address.
    pub(crate) fn calls_at(&self, ip: IpAddr) -> BTreeSet<u32> {
        let calls = self.calls;
        self.studio.with(move |fleet, _| {
            let there =
                |call: &u32| fleet.media_at(caller_of(*call)).is_some_and(|to| to.ip() == ip);
            (0..calls).filter(there).collect()
        })
    }

    /// Returns the address to which most phones send their voice.
    pub(crate) fn media_ip(&self) -> anyhow::Result<IpAddr> {
        let ips = self.studio.with(|fleet, _| {
            let mut ips = BTreeMap::<IpAddr, u32>::new();
            for to in fleet.phones().filter_map(|phone| fleet.media_at(phone)) {
                *ips.entry(to.ip()).or_default() += 1;
            }
            ips
        });
        let most = ips.into_iter().max_by_key(|&(_, count)| count);
        Ok(most.context("no phone speaks")?.0)
    }

    /// Begins to measure.
    pub(crate) fn begin(&mut self) -> anyhow::Result<()> {
        self.studio.with(|fleet, now| {
            fleet.journal_mut().take();
            fleet.journal_mut().take_received();
            for phone in fleet.phones() {
                fleet.take_heard(now, phone);
            }
        });
        self.studio.take_pace();
        self.drops = drops_at(IP)?;
        Ok(())
    }

    /// Lets phones do this.
    pub(crate) fn plan(&self, plan: Vec<(Instant, PhoneId, Command)>) {
        self.studio.with(move |fleet, _| {
            for (at, phone, command) in plan {
                fleet.plan(at, phone, command);
            }
        });
    }

    /// Lets spare phones make new calls.
    pub(crate) fn call_anew(&self, from: Instant, every: Duration) {
        self.studio.with(move |fleet, _| {
            for (index, caller) in (0..NEW_CALLS).zip(new_callers()) {
                let to = fleet.config().aor(callee_of(caller));
                fleet.plan(from + every * index, caller, Command::Call { to });
            }
        });
    }

    /// Ends to measure, while `expected` calls should talk.
    ///
    /// A machine with other work may stand still just now, so a call that is
    /// silent gets a moment more to be heard.
    pub(crate) fn end(&mut self, expected: u32) -> anyhow::Result<Seen> {
        let calls = self.calls;
        wait_for(SILENT * self.slack, || self.talking() == expected);
        let (entries, heard, received, kept) = self.studio.with(move |fleet, now| {
            let kept = callers(calls).filter(|&caller| talks(fleet, now, caller)).collect();
            let phones = fleet.phones();
            let heard = phones.map(|phone| {
                let heard = fleet.take_heard(now, phone);
                (phone, fleet.config().has_voice(phone).then_some(heard))
            });
            let heard = heard.collect();
            (fleet.journal_mut().take(), heard, fleet.journal_mut().take_received(), kept)
        });
        let pace = self.studio.take_pace();
        let dropped = drops_at(IP)?.saturating_sub(self.drops);
        Ok(Seen { entries, heard, received, pace, dropped, kept })
    }

    /// Ends the new calls.
    pub(crate) fn hang_up_new(&self) -> anyhow::Result<()> {
        self.studio.with(move |fleet, now| {
            for caller in new_callers() {
                fleet.plan(now, caller, Command::Hangup);
            }
        });
        let idle = wait_for(Duration::from_secs(40), || {
            self.studio.with(move |fleet, _| {
                let mut new = new_callers().flat_map(|caller| [caller, callee_of(caller)]);
                new.all(|phone| fleet.state(phone) == State::Idle)
            })
        });
        if !idle {
            bail!("a new call did not end\n{}", self.faults_text());
        }
        Ok(())
    }

    /// Returns how many calls are over at both phones.
    pub(crate) fn idle(&self) -> u32 {
        let calls = self.calls;
        self.studio.with(move |fleet, _| {
            let over = callers(calls).filter(|&caller| {
                [caller, callee_of(caller)].map(|phone| fleet.state(phone)) == [State::Idle; 2]
            });
            u32::try_from(over.count()).unwrap_or(u32::MAX)
        })
    }

    /// Returns how many calls are heard on both sides.
    pub(crate) fn talking(&self) -> u32 {
        let calls = self.calls;
        self.studio.with(move |fleet, now| {
            let talking = callers(calls).filter(|&caller| talks(fleet, now, caller));
            u32::try_from(talking.count()).unwrap_or(u32::MAX)
        })
    }

    fn count(&self, wanted: Event) -> u32 {
        self.studio.with(move |fleet, _| {
            let events = fleet.journal().events().filter(|&(_, _, event)| event == wanted);
            u32::try_from(events.count()).unwrap_or(u32::MAX)
        })
    }

    /// Returns the last things that went wrong at phones.
    fn faults_text(&self) -> String {
        self.studio.with(|fleet, now| {
            let start = fleet.journal().entries().first().map_or(now, |entry| entry.at);
            let wrong = |entry: &&Entry| match entry.what {
                What::Fault(_) => true,
                What::Event(event) => !matches!(
                    event,
                    Event::Registered | Event::Called | Event::Answered | Event::Ringing(_)
                ),
                What::Sent { .. } | What::Received { .. } => false,
            };
            let entries = fleet.journal().entries();
            let lines: Vec<String> =
                entries.iter().filter(wrong).map(|entry| entry.line(start)).collect();
            lines[lines.len().saturating_sub(20)..].join("\n")
        })
    }
}

/// The first phone of the calls that must be kept; before it stand those for
/// new calls.
const FIRST_KEPT: u32 = 2 * NEW_CALLS;

/// The caller of a call that must be kept; the callee follows it.
pub(crate) fn caller_of(call: u32) -> PhoneId {
    PhoneId(FIRST_KEPT + 2 * call)
}

/// The call of a phone; `None` for one that makes new calls.
pub(crate) fn call_of(phone: PhoneId) -> Option<u32> {
    phone.0.checked_sub(FIRST_KEPT).map(|index| index / 2)
}

/// The callers of the calls that must be kept.
fn callers(calls: u32) -> impl Iterator<Item = PhoneId> {
    (0..calls).map(caller_of)
}

/// The callers of new calls.
pub(crate) fn new_callers() -> impl Iterator<Item = PhoneId> {
    (0..NEW_CALLS).map(PhoneId)
}

/// The phone that a caller calls.
pub(crate) fn callee_of(caller: PhoneId) -> PhoneId {
    PhoneId(caller.0 + if call_of(caller).is_some() { 1 } else { NEW_CALLS })
}

fn talks(fleet: &Fleet, now: Instant, caller: PhoneId) -> bool {
    [caller, callee_of(caller)].into_iter().all(|phone| {
        let ear = fleet.ear(phone);
        let hears = ear.is_hearing() && ear.silence(now) < SILENT;
        matches!(fleet.state(phone), State::Talking { holds: false, held: false })
            && (hears || !fleet.config().has_voice(phone))
    })
}
