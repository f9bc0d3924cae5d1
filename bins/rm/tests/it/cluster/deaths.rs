//! A media role dies at any message of a call: the call is not lost, and no
//! ghost of it is left a minute later.

use std::time::Duration;

use driver::NodeId;
use driver::sim::Path;
use testkit::scenario::{PHONES, Problem};
use testkit::{Command, DIGITS, Event, Fault, Incoming, Manners, PCMA, PhoneId, Reinvite, seeds};

use super::world::{B2B, CONTROLLER, FIRST_MEDIAGATE, GATE, Layout, OTHER_MEDIAGATE, World};

const A: PhoneId = PhoneId(0);
const B: PhoneId = PhoneId(1);

/// Messages of the whole call at gate and phones, if nothing happens.
const MESSAGES: u64 = 34;

/// Seeds of each test: two for each message, a death at once and one a moment later.
const SEEDS: u64 = 2 * MESSAGES;

/// How a node dies, and how it comes back.
#[derive(Clone, Copy, Debug)]
enum Death {
    /// It ends, and starts anew.
    Crash,
    /// It stands still, and goes on.
    Pause,
    /// Nothing reaches it or leaves it, until that heals.
    Cut,
}

#[test]
fn no_call_is_lost_when_its_mediagate_crashes() {
    each_seed(|seed| one_seed(seed, FIRST_MEDIAGATE, Death::Crash, &Manners::default()));
}

#[test]
fn no_call_is_lost_when_its_mediagate_stands_still() {
    each_seed(|seed| one_seed(seed, FIRST_MEDIAGATE, Death::Pause, &Manners::default()));
}

#[test]
fn no_call_is_lost_when_its_mediagate_is_cut_off() {
    each_seed(|seed| one_seed(seed, FIRST_MEDIAGATE, Death::Cut, &Manners::default()));
}

#[test]
fn no_call_is_lost_when_the_standby_mediagate_crashes() {
    each_seed(|seed| one_seed(seed, OTHER_MEDIAGATE, Death::Crash, &Manners::default()));
}

#[test]
fn no_call_sees_the_controller_die() {
    each_seed(|seed| {
        let death = if seed.is_multiple_of(3) { Death::Cut } else { Death::Crash };
        one_seed(seed, CONTROLLER, death, &Manners::default());
    });
}

#[test]
fn no_call_is_lost_when_phones_are_difficult() {
    each_seed(|seed| one_seed(seed, FIRST_MEDIAGATE, Death::Crash, &difficult(seed)));
}

/// Phones that do what many do: they answer early, late, at first not at all,
/// or with a hold of their own.
fn difficult(seed: u64) -> Manners {
    let after = Duration::from_millis(seed * 11 % 700);
    let refuse = |status, retry_after| Reinvite::Refuse {
        status,
        retry_after,
        after: Duration::from_millis(seed * 13 % 50),
        times: 1,
    };
    let mut manners = Manners::default();
    if seed.is_multiple_of(2) {
        manners.incoming = Incoming::EarlyMedia { progress_after: after / 4, answer_after: after };
    }
    match seed % 5 {
        0 => manners.reinvite = Reinvite::Accept { after },
        1 => manners.reinvite = refuse(491, None),
        2 => manners.reinvite = refuse(500, Some(1)),
        3 => manners.reinvite = refuse(503, None),
        _ => manners.glares = 1,
    }
    manners
}

fn each_seed(run: impl Fn(u64) + Sync) {
    seeds::each(0..SEEDS, |seed| {
        run(seed);
        Ok(())
    });
}

/// Runs one call: it rings, talks, is held and resumed, changes its codec, and
/// ends; at one message of it the victim dies, and comes back 2 s later.
fn one_seed(seed: u64, victim: NodeId, death: Death, manners: &Manners) {
    let mut world = World::new(seed, Layout::Three);
    world.start();
    let rough = seed % 4 == 3;
    if rough {
        roughen(&mut world);
    }
    let scenario = &mut world.scenario;
    let begin = scenario.sim().elapsed();
    let at = Duration::from_millis;
    for phone in [A, B] {
        scenario.plan(at(0), phone, Command::Behave(Box::new(manners.clone())));
    }
    scenario.call(at(1), A, B);
    scenario.plan(at(3000), B, Command::Hold);
    scenario.plan(at(9000), B, Command::Resume);
    scenario.plan(at(15_000), A, Command::Codecs(vec![PCMA, DIGITS]));
    let hang_up_at = at(25_000);
    scenario.plan(hang_up_at, A, Command::Hangup);

    let nth = u32::try_from(1 + seed % MESSAGES).expect("a call has few messages");
    assert!(scenario.run_until_message(at(26_000), nth), "seed {seed}: fewer messages\n{scenario}");
    if seed / MESSAGES % 2 == 1 {
        scenario.sim().run_for(at(seed * 7 % 60));
    }
    let timed = *manners == Manners::default() && !rough;
    forget_heard(&mut world);
    kill(&mut world, victim, death);
    world.run(at(2000));
    if timed {
        check_silence(&world, seed);
    }
    revive(&mut world, victim, death);

    let before_end = begin + hang_up_at - at(100);
    if world.scenario.sim().elapsed() < before_end {
        world.scenario.sim().run_until(before_end);
        check(&world, rough, victim, world.scenario.not_talking(&[(A, B)]));
    }
    world.scenario.sim().run_until(begin + hang_up_at + at(60_000));
    check(&world, rough, victim, world.scenario.not_idle());
    assert_eq!(world.live_calls(), 0, "seed {seed}: a ghost is left at the b2b");
}

/// Lets phones reach the cluster over a bad network: one packet of fifty is
/// lost, some come twice or late.
fn roughen(world: &mut World) {
    let path = Path { loss: 0.02, duplicate: 0.01, reorder: 0.01, ..Path::default() };
    for server in [GATE, FIRST_MEDIAGATE, OTHER_MEDIAGATE] {
        world.scenario.sim().set_path(PHONES, server, path);
        world.scenario.sim().set_path(server, PHONES, path);
    }
}

fn kill(world: &mut World, victim: NodeId, death: Death) {
    let sim = world.scenario.sim();
    match death {
        Death::Crash => sim.crash(victim),
        Death::Pause => sim.pause(victim),
        Death::Cut => {
            for other in [PHONES, GATE, B2B, CONTROLLER, FIRST_MEDIAGATE, OTHER_MEDIAGATE] {
                if other != victim {
                    sim.cut_both(victim, other);
                }
            }
        }
    }
}

fn revive(world: &mut World, victim: NodeId, death: Death) {
    let sim = world.scenario.sim();
    match death {
        Death::Crash => sim.restart(victim),
        Death::Pause => sim.resume(victim),
        Death::Cut => sim.heal_all(),
    }
}

fn forget_heard(world: &mut World) {
    world.scenario.with_fleet(|fleet, now| {
        for phone in [A, B] {
            fleet.take_heard(now, phone);
        }
    });
}

/// Checks that no phone of a call that stands was without voice for long:
/// detection in the simulator, which has no real-time class, takes 120 ms.
fn check_silence(world: &World, seed: u64) {
    let (fleet, now) = (world.scenario.fleet(), world.scenario.now());
    for phone in [A, B] {
        let silence = fleet.ear(phone).heard(now).silence;
        assert!(
            silence < Duration::from_millis(250),
            "seed {seed}: {silence:?}\n{}",
            world.scenario
        );
    }
}

/// Checks that nothing is wrong at the phones, and that every rule was kept.
fn check(world: &World, rough: bool, victim: NodeId, mut problems: Vec<Problem>) {
    let scenario = &world.scenario;
    // On a bad network an ACK can be lost, and the next INVITE come before
    // its copy.
    let early = |problem: &Problem| {
        matches!(problem, Problem::Broken { fault: Fault::InviteTooEarly { .. }, .. })
    };
    problems.extend(scenario.broken().into_iter().filter(|problem| !(rough && early(problem))));
    scenario.assert_none(&problems);
    if victim != FIRST_MEDIAGATE {
        let moves = |event| event == Event::Reinvite { moves: true };
        let moved = scenario.fleet().journal().events().any(|(_, _, event)| moves(event));
        assert!(!moved, "a call moved without need\n{scenario}");
    }
}
