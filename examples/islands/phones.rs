//! The phones of three segments: pairs that call each other through the gate of their own.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::bail;
use examples::account::wait_for;
use testkit::{Command, Config, Event, Fleet, PhoneId, State, Studio, What};

use crate::islands::layout::{SEGMENTS, gate, phones_ip};
use crate::islands::tree::{FIRST_USER, PAIRS, PROFILES, pairs_of};

/// Calls of each profile.
pub(crate) type Calls = [u32; PROFILES.len()];

/// Between two calls through one gate.
const BETWEEN: Duration = Duration::from_millis(10);
/// All of them must have come to something within this time.
const SETTLED_MAX: Duration = Duration::from_secs(90);

/// As a call that nobody answers is counted.
const NO_ANSWER: u16 = 408;

/// All phones.
#[derive(Debug)]
pub(crate) struct Phones {
    studios: Vec<Studio>,
    /// Rules that phones saw broken.
    pub(crate) faults: Vec<String>,
}

impl Phones {
    pub(crate) fn open(seed: u64) -> anyhow::Result<Self> {
        let open = |segment: usize| {
            let config = Config {
                phones: 2 * PAIRS,
                voices: Some(0),
                domain: gate(segment).ip().to_string(),
                first_user: FIRST_USER,
                server: Some(gate(segment)),
                messages: false,
                realtime: false,
                ..Config::new(IpAddr::V4(phones_ip(segment)))
            };
            Studio::open(config, seed.wrapping_add(segment as u64))
        };
        let studios = (0..SEGMENTS).map(open).collect::<Result<_, _>>()?;
        Ok(Self { studios, faults: Vec::new() })
    }

    /// Forgets what was seen so far, but for what was wrong.
    pub(crate) fn begin(&mut self) {
        for (segment, studio) in self.studios.iter().enumerate() {
            let faults = studio.with(|fleet, now| {
                fleet.journal_mut().take_received();
                let entries = fleet.journal_mut().take();
                let start = entries.first().map_or(now, |entry| entry.at);
                let faults = entries.iter().filter(|entry| matches!(entry.what, What::Fault(_)));
                faults.map(|entry| entry.line(start).trim().to_owned()).collect::<Vec<_>>()
            });
            let told = faults.into_iter().map(|fault| format!("segment {}: {fault}", segment + 1));
            self.faults.extend(told);
        }
    }

    /// Returns the messages that came to the phones of a segment since [`Self::begin`], by kind.
    pub(crate) fn received(&self, segment: usize) -> BTreeMap<String, u64> {
        let received = self.studios[segment].with(|fleet, _| fleet.journal_mut().take_received());
        let mut kinds = BTreeMap::new();
        for ((_, kind), count) in received {
            *kinds.entry(kind).or_default() += count;
        }
        kinds
    }

    /// Returns how many calls stand at both ends.
    pub(crate) fn standing(&self, segment: usize) -> Calls {
        self.studios[segment].with(|fleet, _| standing(fleet))
    }

    /// Lets calls end until no more than these stand; returns how many that were, once they are over.
    pub(crate) fn end_down_to(&self, wanted: [Option<Calls>; SEGMENTS]) -> anyhow::Result<usize> {
        let mut pairs: Pairs = Default::default();
        for (segment, wanted) in wanted.into_iter().enumerate() {
            let Some(wanted) = wanted else { continue };
            pairs[segment] = self.studios[segment].with(move |fleet, now| {
                let above: Vec<u32> = (0..PROFILES.len())
                    .flat_map(|index| {
                        let talking = pairs_of(index).filter(|pair| talks(fleet, *pair));
                        talking.skip(count(wanted[index])).collect::<Vec<_>>()
                    })
                    .collect();
                for (pair, planned) in above.iter().zip(0..) {
                    // From either side in turn.
                    let phone = if pair % 2 == 0 { caller(*pair) } else { callee(*pair) };
                    fleet.plan(now + BETWEEN / 2 * planned, phone, Command::Hangup);
                }
                above
            });
        }
        self.wait_until(&pairs, |fleet, pair, _| is_idle(fleet, pair))?;
        Ok(pairs.iter().map(Vec::len).sum())
    }

    /// Makes calls until these stand, or as many as are let in; returns how many were refused.
    pub(crate) fn fill(&mut self, wanted: [Option<Calls>; SEGMENTS]) -> anyhow::Result<usize> {
        self.begin();
        let mut pairs: Pairs = Default::default();
        for (segment, wanted) in wanted.into_iter().enumerate() {
            let Some(wanted) = wanted else { continue };
            pairs[segment] = self.studios[segment].with(move |fleet, now| {
                let stand = standing(fleet);
                let missing: Vec<u32> = (0..PROFILES.len())
                    .flat_map(|index| {
                        let missing = wanted[index].saturating_sub(stand[index]);
                        idle_pairs(fleet, index).take(count(missing)).collect::<Vec<_>>()
                    })
                    .collect();
                for (pair, planned) in missing.iter().zip(0..) {
                    call(fleet, now + BETWEEN * planned, *pair);
                }
                missing
            });
        }
        self.wait_until(&pairs, has_an_end)?;
        Ok((0..SEGMENTS).map(|segment| self.refusals(segment).len()).sum())
    }

    /// Makes one call more of each profile; returns how each was refused, or `None` where it was not.
    pub(crate) fn one_more(&mut self, segment: usize) -> anyhow::Result<Vec<Option<u16>>> {
        self.begin();
        let mut pairs: Pairs = Default::default();
        pairs[segment] = self.studios[segment].with(|fleet, now| {
            let pairs = (0..PROFILES.len()).filter_map(|index| idle_pairs(fleet, index).next());
            let pairs: Vec<u32> = pairs.collect();
            for pair in &pairs {
                call(fleet, now, *pair);
            }
            pairs
        });
        self.wait_until(&pairs, has_an_end)?;
        let refusals = self.refusals(segment);
        Ok(pairs[segment].iter().map(|pair| refusals.get(&caller(*pair)).copied()).collect())
    }

    /// Lets the phones of a segment lose their calls without a word.
    pub(crate) fn forget(&self, segment: usize) -> anyhow::Result<()> {
        let mut pairs: Pairs = Default::default();
        pairs[segment] = self.studios[segment].with(|fleet, now| {
            for phone in fleet.phones() {
                if fleet.state(phone) != State::Idle {
                    fleet.plan(now, phone, Command::Forget);
                }
            }
            (0..PAIRS).collect()
        });
        self.wait_until(&pairs, |fleet, pair, _| is_idle(fleet, pair))
    }

    /// Waits until this holds of all of these pairs.
    fn wait_until(
        &self,
        pairs: &Pairs,
        holds: fn(&Fleet, u32, &BTreeMap<PhoneId, u16>) -> bool,
    ) -> anyhow::Result<()> {
        let done = wait_for(SETTLED_MAX, || {
            self.studios.iter().zip(pairs).all(|(studio, pairs)| {
                let pairs = pairs.clone();
                studio.with(move |fleet, _| {
                    let refusals = refusals(fleet);
                    pairs.into_iter().all(|pair| holds(fleet, pair, &refusals))
                })
            })
        });
        if !done {
            bail!("some calls came to nothing within {} s", SETTLED_MAX.as_secs());
        }
        Ok(())
    }

    fn refusals(&self, segment: usize) -> BTreeMap<PhoneId, u16> {
        self.studios[segment].with(|fleet, _| refusals(fleet))
    }
}

/// Pairs of phones by segment.
type Pairs = [Vec<u32>; SEGMENTS];

/// Whether a call that was tried stands or was refused.
fn has_an_end(fleet: &Fleet, pair: u32, refusals: &BTreeMap<PhoneId, u16>) -> bool {
    talks(fleet, pair) || is_idle(fleet, pair) && refusals.contains_key(&caller(pair))
}

fn refusals(fleet: &Fleet) -> BTreeMap<PhoneId, u16> {
    let refused = fleet.journal().events().filter_map(|(_, phone, event)| {
        let status = if let Event::Refused(status) = event {
            status
        } else if event == Event::TimedOut {
            NO_ANSWER
        } else {
            return None;
        };
        Some((phone?, status))
    });
    refused.collect()
}

fn call(fleet: &mut Fleet, at: Instant, pair: u32) {
    let to = fleet.config().aor(callee(pair));
    fleet.plan(at, caller(pair), Command::Call { to });
}

fn idle_pairs(fleet: &Fleet, profile: usize) -> impl Iterator<Item = u32> + '_ {
    pairs_of(profile).filter(|pair| is_idle(fleet, *pair))
}

fn standing(fleet: &Fleet) -> Calls {
    std::array::from_fn(|index| {
        let talking = pairs_of(index).filter(|pair| talks(fleet, *pair)).count();
        u32::try_from(talking).unwrap_or(u32::MAX)
    })
}

fn talks(fleet: &Fleet, pair: u32) -> bool {
    [caller(pair), callee(pair)]
        .into_iter()
        .all(|phone| matches!(fleet.state(phone), State::Talking { .. }))
}

fn is_idle(fleet: &Fleet, pair: u32) -> bool {
    [caller(pair), callee(pair)].into_iter().all(|phone| fleet.state(phone) == State::Idle)
}

fn caller(pair: u32) -> PhoneId {
    PhoneId(pair)
}

fn callee(pair: u32) -> PhoneId {
    PhoneId(PAIRS + pair)
}

fn count(calls: u32) -> usize {
    usize::try_from(calls).unwrap_or(usize::MAX)
}
