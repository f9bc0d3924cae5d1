//! Scenarios of call survival by their number, in which more than one b2b could act for a call: it is
//! acted for once.

use std::collections::BTreeSet;
use std::time::Duration;

use driver::{Input, SocketId};
use testkit::{Command, Incoming, Manners, PhoneId, Reinvite, State, What};

use super::pair::{takeovers, talking};
use super::world::{
    B2B, CONTROLLER, FIRST_MEDIAGATE, GATE, Layout, OTHER_B2B, OTHER_GATE, OTHER_MEDIAGATE, Setup,
    THIRD_B2B, World,
};

const A: PhoneId = PhoneId(0);
const B: PhoneId = PhoneId(1);

/// The first server is cut from its peer and the witness, and still hears its phones.
#[test]
fn t31_a_server_cut_off_is_mute_before_the_other_speaks_and_its_stale_bye_harms_nobody() {
    let mut tried = (40..60).map(|seed| talking(seed, Layout::Two));
    let (mut world, ..) = tried.find(|(_, owner, _)| *owner == B2B).expect("one seed of many");
    let cut_at = world.scenario.now();
    for other in [OTHER_B2B, CONTROLLER] {
        world.scenario.sim().cut_both(B2B, other);
    }
    let mute_after = elapses(&mut world, |world| 0 < world.figure(B2B, "rm_leases_lost_total"));
    let left = elapses(&mut world, |world| world.figure(OTHER_B2B, "rm_slots") == 256);
    assert!(
        mute_after <= MUTE_AFTER && Duration::from_millis(80) <= left,
        "{mute_after:?} {left:?}"
    );
    // Whatever phones ask of the first server from 150 ms on, nobody answers.
    world.hang_up(B);
    world.call(PhoneId(2), PhoneId(3));
    world.run(Duration::from_millis(500));
    let mute_at = cut_at + MUTE_AFTER;
    let entries = world.scenario.fleet().journal().entries().iter();
    let mut heard =
        entries.filter(|it| mute_at <= it.at && matches!(it.what, What::Received { .. }));
    assert_eq!(heard.next(), None, "{}", world.scenario);
    assert!(0 < world.figure(B2B, "rm_muted_total"), "it had something to say");

    world.scenario.sim().heal_all();
    world.run(Duration::from_secs(8));
    assert_eq!((world.figure(B2B, "rm_slots"), takeovers(&world)), (0, 1));
    assert_eq!(byes(&mut world), [1, 0], "{}", world.scenario);
    let stale = sent_bye(&world, B);
    world.call(A, B);
    world.run(Duration::from_secs(2));
    let socket = SocketId(0);
    let from = world.scenario.fleet().config().sip_addr(B);
    world.scenario.sim().tell(B2B, Input::Datagram { socket, from, bytes: stale });
    world.run(Duration::from_secs(2));
    let kinds = world.scenario.with_fleet(|fleet, _| fleet.journal_mut().take_received());
    assert_eq!(kinds.get(&(B, "200 to BYE".into())), Some(&1), "{kinds:?}");
    world.scenario.assert_talking(&[(A, B)]);
    assert_eq!(world.emitters.wrong(), Vec::<String>::new());
}

/// At the taker, while the old owner is its standby.
#[test]
fn t34_the_longest_time_of_a_call_ends_it_once_and_the_standby_says_nothing() {
    let tune = |config: &mut rm::Config| config.b2b.call = Duration::from_secs(20);
    let mut world = World::build(41, Setup { tune, ..Setup::new(Layout::Pair) });
    world.start();
    world.call(A, B);
    world.run(Duration::from_secs(10));
    let owner = world.owner().expect("one b2b has the call");
    world.scenario.sim().crash(owner);
    world.run(Duration::from_secs(1));
    world.scenario.sim().restart(owner);
    world.run(Duration::from_secs(5));
    let taker = world.owner().expect("the other has it");
    assert_ne!(taker, owner);
    assert_eq!(world.figure(taker, "rm_slots_unprotected"), 0, "the first is its standby");
    world.scenario.assert_talking(&[(A, B)]);
    byes(&mut world);
    // It was answered within a second.
    world.run(Duration::from_secs(5));
    assert_eq!(byes(&mut world), [1, 1], "{}", world.scenario);
    world.run(Duration::from_secs(120));

    assert_eq!((byes(&mut world), world.emitters.wrong()), ([0, 0], vec![]));
    world.scenario.assert_idle();
    for gate in [GATE, OTHER_GATE] {
        assert_eq!(world.figure(gate, "rm_gate_frames_total{fate=\"fenced\"}"), 0);
    }
    assert_eq!(world.figure(owner, "rm_muted_total"), 0);
    assert_eq!(world.lines().filter(|line| line.contains("\"too_long\"")).count(), 1);
}

/// As if the system's source of randomness were broken. More calls would show no more: of two sequences
/// that are alike most numbers come twice, and two that are not have none of 64 bits in common among
/// ten thousand calls either, which b2bua's test of this name has, and which take a minute here.
#[test]
fn t35_what_two_processes_with_one_seed_name_at_once_has_no_name_twice() {
    const CALLS: usize = 2000;
    let mut world = World::build(42, Setup { one_seed: Some(42), ..Setup::new(Layout::Pair) });
    world.start();
    let incoming = Incoming::Refuse { status: 486, after: Duration::ZERO };
    for phone in world.scenario.fleet().phones() {
        let manners = Manners { incoming: incoming.clone(), ..Manners::default() };
        world.scenario.plan(Duration::ZERO, phone, Command::Behave(Box::new(manners)));
    }
    world.scenario.with_fleet(|fleet, _| fleet.journal_mut().take());
    let mut names: BTreeSet<(&str, Vec<u8>)> = BTreeSet::new();
    let mut keep = |kind, name: &[u8]| {
        names.insert((kind, name.to_vec()));
        if kind != "call" {
            // Before it stands the slot, which never has two owners.
            names.insert(("drawn", name[name.len() - 16..].to_vec()));
        }
    };
    for _ in 0..CALLS / 5 {
        for from in (0..10).step_by(2) {
            world.call(PhoneId(from), PhoneId(from + 1));
        }
        world.run(Duration::from_millis(100));
        for entry in world.scenario.with_fleet(|fleet, _| fleet.journal_mut().take()) {
            let What::Received { bytes, .. } = entry.what else { continue };
            let Ok(message) = sip_core::Message::parse(bytes) else { continue };
            if message.is_request() && message.method() == sip_core::Method::Invite {
                keep("branch", message.branch().unwrap());
                keep("call", message.call_id());
                keep("from", message.from_tag().unwrap());
            } else if message.status() == Some(486) {
                keep("to", message.to_tag().unwrap());
            }
        }
    }
    world.run(Duration::from_secs(2));

    let count = |kind: &str| names.iter().filter(|(known, _)| *known == kind).count();
    assert_eq!(["branch", "call", "from", "to"].map(count), [CALLS; 4]);
    assert_eq!(count("drawn"), 3 * CALLS);
    let calls: BTreeSet<&str> = world.lines().filter_map(|line| quoted(line, "call")).collect();
    assert_eq!(calls.len(), CALLS);
    for b2b in [B2B, OTHER_B2B] {
        assert!(CALLS as u64 / 4 < world.figure(b2b, "rm_calls_total"), "both have calls");
    }
}

/// B never answers the INVITE that moves its media: its transaction ends long after the call.
#[test]
fn t35_no_invite_is_sent_after_the_end_by_an_owner_or_the_next() {
    for dies in [false, true] {
        let (mut world, owner, _) = talking(43, Layout::Pair);
        let reinvite = Reinvite::Ignore { times: 99 };
        let manners = Manners { reinvite, ..Manners::default() };
        world.scenario.plan(Duration::ZERO, B, Command::Behave(Box::new(manners)));
        world.scenario.sim().crash(FIRST_MEDIAGATE);
        world.run(Duration::from_millis(600));
        let asked = |world: &mut World| {
            let kinds = world.scenario.with_fleet(|fleet, _| fleet.journal_mut().take_received());
            [A, B].map(|phone| kinds.get(&(phone, "INVITE".into())).copied().unwrap_or(0))
        };
        assert!(0 < asked(&mut world)[1], "its INVITE is under way");
        world.hang_up(A);
        world.run(Duration::from_millis(100));
        asked(&mut world);
        if dies {
            world.scenario.sim().crash(owner);
        }
        world.run(Duration::from_secs(120));

        assert_eq!(asked(&mut world), [0, 0], "{}", world.scenario);
        world.scenario.assert_none(&world.scenario.not_idle());
        assert_eq!(world.live_calls(), 0);
    }
}

/// The next owner dies at any moment of its recovery, alone or with the call's mediagate.
#[test]
fn t38_a_second_death_in_recovery_leaves_one_owner_and_no_ghost() {
    let mut kept = 0;
    let trials = (0..12).map(|step| (step, Duration::from_millis(150 + step / 3 * 200)));
    for (step, after) in trials {
        let mut world = World::new(44 + step, Layout::Trio);
        world.start();
        world.call(A, B);
        world.run(Duration::from_secs(4));
        let first = world.owner().unwrap_or_else(|| panic!("{step}\n{}", world.scenario));
        world.scenario.sim().crash(first);
        if step % 3 == 1 {
            world.scenario.sim().crash(FIRST_MEDIAGATE);
        }
        elapses(&mut world, |world| world.owner().is_some());
        let second = world.owner().expect("another has it");
        world.run(after);
        world.scenario.sim().crash(second);
        if step % 3 == 2 {
            world.scenario.sim().crash(FIRST_MEDIAGATE);
        }
        world.run(Duration::from_secs(8));
        let third = [B2B, OTHER_B2B, THIRD_B2B].into_iter();
        let third = third.clone().find(|id| ![first, second].contains(id)).expect("of three");
        assert_eq!((world.slots(), world.figure(third, "rm_slots")), (256, 256), "{step}");
        for node in [first, second] {
            world.scenario.sim().restart(node);
        }
        world.run(Duration::from_secs(60));

        assert_eq!(world.slots(), 256, "{step}: one owner of each slot");
        assert_eq!(world.figure(third, "rm_slots"), 256, "{step}: nothing goes back by itself");
        let states = [A, B].map(|phone| world.scenario.fleet().state(phone));
        let talks = states == [State::Talking { holds: false, held: false }; 2];
        assert!(talks || states == [State::Idle; 2], "{step}: {states:?}\n{}", world.scenario);
        let (calls, legs) = (usize::from(talks), 2 * usize::from(talks));
        assert_eq!(world.live_calls(), calls, "{step}\n{}", world.scenario);
        let open = world.open_legs(FIRST_MEDIAGATE) + world.open_legs(OTHER_MEDIAGATE);
        assert_eq!(open, legs, "{step}");
        if talks {
            world.scenario.assert_talking(&[(A, B)]);
        }
        assert_eq!(world.emitters.wrong(), Vec::<String>::new(), "{step}");
        kept += calls;
    }
    assert!(8 <= kept, "a second death soon after the first costs a call: {kept} of 12");
}

/// When an owner is cut off it is mute by then, and a message that it has sent has arrived.
const MUTE_AFTER: Duration = Duration::from_millis(160);

/// Lets time pass in small steps until something is so; returns how long that was.
fn elapses(world: &mut World, is_so: impl Fn(&World) -> bool) -> Duration {
    const STEP: Duration = Duration::from_millis(1);
    for steps in 0..5000 {
        if is_so(world) {
            return STEP * steps;
        }
        world.run(STEP);
    }
    panic!("not so within 5 s\n{}", world.scenario)
}

/// How many BYEs came to A and to B since this was last asked.
fn byes(world: &mut World) -> [u64; 2] {
    let kinds = world.scenario.with_fleet(|fleet, _| fleet.journal_mut().take_received());
    [A, B].map(|phone| kinds.get(&(phone, "BYE".into())).copied().unwrap_or(0))
}

/// The BYE that a phone sent.
fn sent_bye(world: &World, phone: PhoneId) -> bytes::Bytes {
    let entries = world.scenario.fleet().journal().entries().iter();
    let mut sent = entries.filter(|entry| entry.phone == Some(phone)).filter_map(|entry| {
        let What::Sent { bytes, .. } = &entry.what else { return None };
        Some(bytes)
    });
    sent.rfind(|bytes| bytes.starts_with(b"BYE ")).expect("it sent one").clone()
}

/// The value of a key in a line of a call's detail, of those that are words.
fn quoted<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!("\"{key}\":\""))?;
    rest.split('"').next()
}
