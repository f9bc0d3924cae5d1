//! The phones: N calls that must be kept, and spare phones for new ones.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use testkit::{
    Command, Config, Entry, Event, Fleet, Heard, Pace, PhoneId, State, Studio, What, drops_at,
};

use crate::survive::account::wait_for;
use crate::survive::args::Args;
use crate::survive::servers::GATE;

const IP: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);

/// A new call is tried so often, from the moment of the death on.
pub(crate) const NEW_CALLS: u32 = 12;
/// And so far apart.
pub(crate) const NEW_CALL_EVERY: Duration = Duration::from_millis(100);

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
    /// By phone.
    pub(crate) heard: BTreeMap<PhoneId, Heard>,
    /// SIP messages that came, by phone.
    received: BTreeMap<PhoneId, u64>,
    pub(crate) pace: Pace,
    /// Packets that the kernel dropped at the phones' own sockets.
    pub(crate) dropped: u64,
    /// Calls in which both sides talk and hear.
    pub(crate) kept: Vec<PhoneId>,
}

impl Seen {
    /// Returns how many SIP messages the phones of kept calls received.
    pub(crate) fn sip_seen(&self, calls: u32) -> u64 {
        self.received
            .iter()
            .filter(|(phone, _)| is_kept_phone(calls, **phone))
            .map(|(_, n)| n)
            .sum()
    }
}

impl Stage {
    /// Opens the phones and registers them.
    pub(crate) fn open(args: &Args) -> anyhow::Result<Self> {
        let phones = 2 * (args.calls + NEW_CALLS);
        let config = Config {
            phones,
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
                let callee = callee_of(calls, caller);
                match (fleet.state(caller), fleet.state(callee)) {
                    (State::Idle, State::Idle) => {
                        let to = fleet.config().aor(callee);
                        fleet.plan(at, caller, Command::Call { to });
                        at += Duration::from_millis(10);
                        made += 1;
                    }
                    (State::Idle, _) => fleet.plan(now, callee, Command::Hangup),
                    (_, State::Idle) => fleet.plan(now, caller, Command::Hangup),
                    _ => {}
                }
            }
            made
        })
    }

    /// Returns the address to which most phones send their voice.
    pub(crate) fn media_ip(&self) -> anyhow::Result<IpAddr> {
        let ips = self.studio.with(|fleet, _| {
            let mut ips = BTreeMap::<IpAddr, u32>::new();
            for to in fleet.phones().filter_map(|phone| fleet.speaks_to(phone)) {
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

    /// Lets spare phones make new calls.
    pub(crate) fn call_anew(&self, from: Instant) {
        let (calls, slack) = (self.calls, self.slack);
        self.studio.with(move |fleet, _| {
            for (index, caller) in (0..NEW_CALLS).zip(new_callers(calls)) {
                let to = fleet.config().aor(callee_of(calls, caller));
                fleet.plan(from + slack * NEW_CALL_EVERY * index, caller, Command::Call { to });
            }
        });
    }

    /// Ends to measure.
    ///
    /// A machine with other work may stand still just now, so a call that is
    /// silent gets a moment more to be heard.
    pub(crate) fn end(&mut self) -> anyhow::Result<Seen> {
        let calls = self.calls;
        wait_for(SILENT * self.slack, || self.talking() == calls);
        let (entries, heard, received, kept) = self.studio.with(move |fleet, now| {
            let kept = callers(calls).filter(|&caller| talks(fleet, now, calls, caller)).collect();
            let heard = fleet.phones().map(|phone| (phone, fleet.take_heard(now, phone))).collect();
            (fleet.journal_mut().take(), heard, fleet.journal_mut().take_received(), kept)
        });
        let pace = self.studio.take_pace();
        let dropped = drops_at(IP)?.saturating_sub(self.drops);
        Ok(Seen { entries, heard, received, pace, dropped, kept })
    }

    /// Ends the new calls.
    pub(crate) fn hang_up_new(&self) -> anyhow::Result<()> {
        let calls = self.calls;
        self.studio.with(move |fleet, now| {
            for caller in new_callers(calls) {
                fleet.plan(now, caller, Command::Hangup);
            }
        });
        let idle = wait_for(Duration::from_secs(40), || {
            self.studio.with(move |fleet, _| {
                let mut new =
                    new_callers(calls).flat_map(|caller| [caller, callee_of(calls, caller)]);
                new.all(|phone| fleet.state(phone) == State::Idle)
            })
        });
        if !idle {
            bail!("a new call did not end\n{}", self.faults_text());
        }
        Ok(())
    }

    /// Returns how many calls are heard on both sides.
    fn talking(&self) -> u32 {
        let calls = self.calls;
        self.studio.with(move |fleet, now| {
            let talking = callers(calls).filter(|&caller| talks(fleet, now, calls, caller));
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

/// The callers of the calls that must be kept.
fn callers(calls: u32) -> impl Iterator<Item = PhoneId> {
    (0..calls).map(PhoneId)
}

/// The callers of new calls.
pub(crate) fn new_callers(calls: u32) -> impl Iterator<Item = PhoneId> {
    (2 * calls..2 * calls + NEW_CALLS).map(PhoneId)
}

/// The phone that a caller calls.
pub(crate) fn callee_of(calls: u32, caller: PhoneId) -> PhoneId {
    PhoneId(caller.0 + if caller.0 < calls { calls } else { NEW_CALLS })
}

/// Returns whether a phone belongs to a call that must be kept.
pub(crate) fn is_kept_phone(calls: u32, phone: PhoneId) -> bool {
    phone.0 < 2 * calls
}

fn talks(fleet: &Fleet, now: Instant, calls: u32, caller: PhoneId) -> bool {
    [caller, callee_of(calls, caller)].into_iter().all(|phone| {
        let ear = fleet.ear(phone);
        matches!(fleet.state(phone), State::Talking { .. })
            && ear.is_hearing()
            && ear.silence(now) < SILENT
    })
}
