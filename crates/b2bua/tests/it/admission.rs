//! New calls about which somebody decides.

use std::time::Duration;

use b2bua::admission::{Ask, Goes, Shared};
use b2bua::{Cause, Config, Input, Slot};
use failover::record::Phase;

use crate::phone::Text;
use crate::script;
use crate::world::{World, charge};

#[test]
fn nobody_hears_of_a_call_before_it_may_be() {
    let mut world = waiting();
    world.step("alice repeats");
    assert_eq!(world.phone("alice").inbox.len(), 0);
    assert_eq!(world.invites("bob"), 0);
    assert!(world.stored.iter().all(|(key, _)| matches!(key, b2bua::Key::Aor(_))));
    assert!(world.gateways.values().all(|gateway| gateway.taken.is_empty()));
    assert_eq!(world.desk.asks.len(), 1, "a copy of the INVITE asks nothing");

    world.step("call may be");
    assert_eq!(last(&world, "alice").status(), 100);
    world.steps(&["bob answers 200 with sdp", "alice acks", "alice says BYE", "bob answers 200"]);
    assert_eq!(world.desk.released.len(), 1);
    assert_eq!(world.details[0].charge, Some(charge()));
}

#[test]
fn a_refusal_has_its_status_and_says_why() {
    let mut world = waiting();
    world.step("call is refused 486");
    let answer = last(&world, "alice");
    assert_eq!(answer.status(), 486);
    assert_eq!(answer.header("Reason"), "SIP;cause=486;text=\"limit reached\"");
    assert!(answer.tag("To").len() > 2);
    world.step("alice acks");
    assert_eq!((world.invites("bob"), world.details.len()), (0, 0));
    assert_eq!(world.desk.released, [], "it was never counted");
    assert_eq!(world.b2b.figures().counters.not_admitted, 1);
}

#[test]
fn a_call_that_waits_can_be_cancelled_and_counts_no_more() {
    let mut world = waiting();
    let (call, _) = world.desk.asks[0];
    world.step("alice cancels");
    let [ok, terminated] = &world.phone("alice").inbox[..] else { panic!() };
    assert_eq!((ok.status(), ok.method()), (200, "CANCEL"));
    assert_eq!((terminated.status(), terminated.method()), (487, "INVITE"));
    assert_eq!(ok.tag("To"), terminated.tag("To"), "RFC 3261 §9.2");
    assert_eq!(world.desk.released, [call]);

    // A decision on its way meanwhile is taken back.
    assert!(world.desk.counted.insert(call));
    world.input(Input::Admitted { call, charge: charge(), elsewhere: None });
    assert_eq!(world.desk.released, [call, call]);
    assert_eq!((world.invites("bob"), world.b2b.figures().calls), (0, 0));
}

#[test]
fn a_call_about_which_nobody_decides_is_refused_after_a_while() {
    let mut world = waiting();
    world.advance(Duration::from_millis(1999));
    assert_eq!(world.phone("alice").inbox.len(), 0);
    world.advance(Duration::from_millis(2));
    let answer = last(&world, "alice");
    assert_eq!((answer.status(), answer.header("Reason").is_empty()), (480, false));
    assert_eq!(world.desk.released.len(), 1);
    assert!(world.desk.asks.is_empty());
}

#[test]
fn a_call_that_may_be_and_finds_no_ports_counts_no_more() {
    let mut world = waiting();
    world.steps(&["g31 fills", "g32 fills", "call may be"]);
    assert_eq!(last(&world, "alice").status(), 503);
    assert_eq!(world.desk.released.len(), 1);
}

#[test]
fn a_call_that_may_be_and_whose_callee_is_gone_counts_no_more() {
    let mut world = waiting();
    world.step("bob unregisters");
    world.step("call may be");
    assert_eq!(last(&world, "alice").status(), 404);
    assert_eq!((world.desk.released.len(), world.details.len()), (1, 0));
}

#[test]
fn what_refuses_an_invite_in_any_case_is_said_before_anybody_is_asked() {
    let mut world = ready();
    let invite = world.phone_mut("alice").call("bob", true);
    let answer = world.ask("alice", &invite.replace("application/sdp", "text/plain"));
    assert_eq!(answer.status(), 415);
    let invite = world.phone_mut("alice").call("bob", true);
    let answer = world.ask("alice", &invite.replace("m=audio", "m=video"));
    assert_eq!(answer.status(), 488);
    assert!(world.desk.asks.is_empty());
}

#[test]
fn a_call_of_a_lost_slot_is_asked_for_by_the_next_owner() {
    let mut world = waiting();
    world.input(Input::Lost { slots: (0..=255).map(Slot).collect() });
    assert_eq!((world.desk.released.len(), world.phone("alice").inbox.len()), (1, 0));
    assert_eq!(world.b2b.poll_timeout().filter(|at| *at <= world.now), None);
    world.take_over();
    world.steps(&["alice repeats", "call may be", "bob answers 200 with sdp", "alice acks"]);
    assert_eq!(world.b2b.records().next().unwrap().phase, Phase::Talking);
}

#[test]
fn what_a_call_counts_against_goes_on_with_its_record() {
    let mut world = waiting();
    world.steps(&["call may be", "bob answers 200 with sdp", "alice acks"]);
    world.advance(Duration::from_millis(100));
    world.take_over();
    let charges: Vec<_> = world.b2b.charges().map(|(_, charge)| charge.clone()).collect();
    assert_eq!(charges, [charge()]);
    world.steps(&["bob says BYE", "alice answers 200"]);
    assert_eq!(world.desk.released.len(), 1);
    assert_eq!(world.details[0].charge, Some(charge()));
    assert_eq!(world.b2b.charges().count(), 0);
}

#[test]
fn calls_that_wait_take_room_and_are_waited_for_by_a_drain() {
    let mut world = World::new(Config { calls_max: 1, admits: true, ..script::config() });
    world.steps(&SETUP);
    world.step("alice calls bob");
    world.step("carol calls bob");
    assert_eq!(last(&world, "carol").status(), 503);
    world.input(Input::Drain);
    assert!(!world.b2b.is_drained());
    world.step("call is refused 480");
    assert!(world.b2b.is_drained());
}

#[test]
fn everything_that_names_a_tenant_is_asked_with() {
    let mut world = ready();
    let invite = world.phone_mut("alice").call("9%2077", true);
    let from = world.phone("alice").addr;
    let text = invite.replacen(" SIP/2.0\r\n", ";gvp-tenant-id=acme SIP/2.0\r\n", 1).replace(
        "Max-Forwards: 70\r\n",
        "Max-Forwards: 70\r\nx-genesys-GSW-ivr-profile-id: 7\r\n\
             X-Genesys-gsw-ivr-profile-name: menu\r\nX-Holdline-Shared: tried=3;outbound\r\n",
    );
    assert_ne!(text, invite);
    world.send(from, &text);
    let (_, ask) = world.desk.asks.pop().unwrap();
    let expected = Ask {
        slot: ask.slot,
        source: from,
        registered: false,
        goes: Goes::Trunk,
        user: "9 77".into(),
        tenant: Some("acme".into()),
        profile_id: Some("7".into()),
        profile_name: Some("menu".into()),
        draining: false,
        shared: Some(Shared { tried: vec![3], profile: "".into(), outbound: true }),
    };
    assert_eq!(ask, expected);
}

#[test]
fn a_call_that_goes_elsewhere_says_where_it_was_and_counts_nothing_here() {
    let mut world = waiting();
    world.steps(&["phone london 198.51.100.1:5060", "phone paris 198.51.100.2:5060"]);
    world.step("call goes to 198.51.100.1:5060,198.51.100.2:5060");
    let asked = world.phone("london").asked.clone().unwrap();
    assert!(asked.start().starts_with("INVITE sip:bob@198.51.100.1:5060 "), "{}", asked.start());
    assert_eq!(asked.header("X-Holdline-Shared"), "tried=1;profile=menu");
    assert_eq!(world.b2b.charges().count(), 0);

    // The first does not work: the next one is told the same, also by the next owner.
    world.step("london answers 503");
    world.take_over();
    world.advance(Duration::from_millis(600));
    let asked = world.phone("paris").asked.clone().unwrap();
    assert_eq!(asked.header("X-Holdline-Shared"), "tried=1;profile=menu");
    world.steps(&["paris answers 200 with sdp", "alice acks", "alice says BYE"]);
    assert_eq!((world.details[0].cause, &world.details[0].charge), (Cause::Caller, &None));
    assert_eq!(world.desk.released, []);
}

#[test]
fn a_call_without_ports_goes_elsewhere_and_its_media_past_us() {
    let mut world = ready();
    world.step("phone london 198.51.100.1:5060");
    world.steps(&["g31 fills", "g32 fills", "call may go to 198.51.100.1:5060"]);
    world.steps(&["alice calls bob", "call may be"]);
    assert_eq!(world.desk.released.len(), 1, "it counts there");
    let asked = world.phone("london").asked.clone().unwrap();
    assert_eq!(asked.header("X-Holdline-Shared"), "tried=1;profile=menu");
    let of = |text: &Text| {
        let port = text.sdp("m=audio ").split(' ').next().unwrap_or_default().to_owned();
        (text.sdp("c=IN IP4 ").to_owned(), port)
    };
    let (alice, london) = (("192.0.2.1", 4120), ("198.51.100.1", 4120));
    let owned = |(ip, port): (&str, u16)| (ip.to_owned(), port.to_string());
    assert_eq!(of(&asked), owned(alice));
    world.steps(&["london answers 200 with sdp", "alice acks"]);
    assert_eq!(of(&last(&world, "alice")), owned(london));

    // The next owner asks for no ports, either, and whoever holds is understood.
    world.advance(Duration::from_millis(100));
    world.take_over();
    world.advance(Duration::from_secs(10));
    world.steps(&["g31 returns", "alice holds"]);
    let asked = world.phone("london").asked.clone().unwrap();
    assert_eq!((of(&asked), asked.direction()), (owned(alice), "sendonly"));
    world.steps(&["london turns recvonly", "london answers 200 with sdp", "alice acks"]);
    assert_eq!(of(&last(&world, "alice")), owned(london));
    world.steps(&["london says BYE", "alice answers 200"]);
    assert_eq!((world.details.len(), world.desk.released.len()), (1, 1));
    assert_eq!(world.gateways.values().map(|gateway| gateway.taken.len()).sum::<usize>(), 0);
}

#[test]
fn a_call_on_its_way_elsewhere_needs_no_ports_here() {
    let mut world = waiting();
    world.steps(&["phone london 198.51.100.1:5060", "g31 fills", "g32 fills"]);
    world.step("call goes to 198.51.100.1:5060");
    world.steps(&["london answers 200 with sdp", "alice acks", "alice says BYE"]);
    assert_eq!((world.details[0].cause, world.desk.released.len()), (Cause::Caller, 0));
}

#[test]
fn routes_can_change_between_two_calls() {
    let mut world = World::new(script::config());
    world.steps(&SETUP);
    world.input(Input::Routes(Vec::new()));
    let invite = world.phone_mut("alice").call("900", true);
    assert_eq!(world.ask("alice", &invite).status(), 404);
}

const SETUP: [&str; 8] = [
    "gateway 31",
    "gateway 32",
    "phone alice 192.0.2.1:5060",
    "phone bob 192.0.2.2:5060",
    "phone carol 192.0.2.3:5060",
    "bob registers",
    "calls wait",
    "wait 1",
];

/// A world in which calls wait until somebody decides.
fn ready() -> World {
    let mut world = World::new(Config { admits: true, ..script::config() });
    world.steps(&SETUP);
    world
}

/// Alice has called Bob, and nobody has decided.
fn waiting() -> World {
    let mut world = ready();
    world.step("alice calls bob");
    world
}

fn last(world: &World, name: &str) -> Text {
    world.phone(name).inbox.last().unwrap().clone()
}
