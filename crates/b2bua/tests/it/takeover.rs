//! The b2b dies: scenarios of call survival by their number. The standby goes on with what it held
//! when the last message left.

use std::time::Duration;

use b2bua::Cause;

use crate::phone::Text;
use crate::script;
use crate::world::World;

#[test]
fn t12_the_next_owner_uses_higher_cseqs_than_any_that_were_not_stored() {
    let mut world = talking();
    for _ in 0..9 {
        world.steps(&["alice says INFO", "bob answers 200"]);
    }
    let before = asked(&world, "bob").cseq();
    world.take_over();
    world.step("alice holds");
    assert!(before < asked(&world, "bob").cseq());
    world.steps(&["bob turns recvonly", "bob answers 200 with sdp", "alice acks"]);
    assert_eq!(last(&world, "alice").direction(), "recvonly");
}

#[test]
fn t12_who_takes_over_from_an_old_copy_uses_higher_cseqs_than_any_since() {
    let mut world = talking();
    let old = world.standby.clone();
    for _ in 0..40 {
        world.steps(&["alice says INFO", "bob answers 200"]);
    }
    let before = asked(&world, "bob").cseq();
    world.standby = old;
    world.doubts = true;
    world.take_over();
    world.advance(Duration::from_millis(100));

    let asked = asked(&world, "bob");
    assert_eq!(asked.method(), "INVITE", "whether the call is still there");
    assert!(before < asked.cseq(), "{before} then {}", asked.cseq());
}

#[test]
fn t13_tags_are_right_in_both_directions() {
    let mut world = talking();
    world.take_over();
    world.steps(&["alice holds", "bob turns recvonly", "bob answers 200 with sdp", "alice acks"]);
    world.steps(&["bob holds", "alice turns inactive", "alice answers 200 with sdp", "bob acks"]);
    assert_eq!(last(&world, "bob").status(), 200);
    world.steps(&["bob says BYE", "alice answers 200"]);
    assert_eq!(world.details[0].cause, Cause::Callee);
}

#[test]
fn t14_requests_of_the_next_owner_pass_three_recorded_proxies_in_order_on_each_leg() {
    for (name, proxy) in [("alice", "callees"), ("bob", "callers")] {
        let mut world = routed();
        let ack = &world.phone("callees").inbox[0];
        assert_eq!((ack.method(), routes(ack)), ("ACK", ROUTES[1].to_owned()));
        world.take_over();
        world.step(&format!("{name} says BYE"));

        let bye = asked(&world, proxy);
        let (route, other) = if name == "bob" { (ROUTES[0], "alice") } else { (ROUTES[1], "bob") };
        assert_eq!((bye.method(), routes(&bye)), ("BYE", route.to_owned()));
        assert!(bye.start().starts_with(&format!("BYE sip:{other}@")), "{}", bye.start());
    }
}

#[test]
fn t14_an_ack_of_the_next_owner_passes_the_same_proxies_as_the_invite_before_it() {
    for (asks, name, proxy, route) in
        [("alice", "bob", "callees", ROUTES[1]), ("bob", "alice", "callers", ROUTES[0])]
    {
        let mut world = routed();
        world.take_over();
        world.step(&format!("{asks} holds"));
        let invite = answers_over(&mut world, proxy, name);

        let ack = last(&world, proxy);
        assert_eq!((invite.method(), ack.method()), ("INVITE", "ACK"));
        assert_eq!(invite.cseq(), ack.cseq());
        assert_eq!([routes(&invite), routes(&ack)], [route, route]);
        let target = format!(" sip:{name}@");
        assert!([invite, ack].iter().all(|it| it.start().contains(&target)), "{name}");
    }
}

#[test]
fn t16_what_the_next_owner_sends_has_one_via_no_record_route_and_the_routes_of_its_dialog_only() {
    let mut world = routed();
    world.steps(&["phone carol 192.0.2.3:5060", "phone dave 192.0.2.4:5060", "dave registers"]);
    world.take_over();
    world.steps(&["bob says INFO", "carol calls dave", "alice holds"]);
    let hold = answers_over(&mut world, "callees", "bob");
    let ack = last(&world, "callees");
    world.step("alice acks");
    world.step("alice says BYE");
    let [info, new, bye] = ["callers", "dave", "callees"].map(|at| asked(&world, at));
    for (request, method, route) in [
        (info, "INFO", ROUTES[0]),
        (new, "INVITE", ""),
        (hold, "INVITE", ROUTES[1]),
        (ack, "ACK", ROUTES[1]),
        (bye, "BYE", ROUTES[1]),
    ] {
        assert_eq!((request.method(), routes(&request)), (method, route.to_owned()));
        assert_eq!(request.headers("Via").count(), 1, "{method}");
        assert_eq!(request.headers("Record-Route").count(), 0, "{method}");
    }
}

#[test]
fn t24_a_ringing_call_is_answered_at_the_next_owner() {
    let mut world = ringing();
    world.take_over();
    world.step("bob answers 200 with sdp");
    assert_eq!(last(&world, "alice").status(), 200);
    world.step("alice acks");
    world.advance(Duration::from_secs(60));
    assert!(world.details.is_empty() && world.b2b.figures().calls == 1);
    assert_eq!(world.invites("bob"), 1, "it rings once");
}

#[test]
fn t24_a_ringing_call_can_be_cancelled_at_the_next_owner() {
    let mut world = ringing();
    world.take_over();
    world.step("alice cancels");
    assert_eq!(last(&world, "alice").status(), 487);
    // A provisional answer lets the CANCEL out (RFC 3261 §9.1): the phone repeats it for the copy
    // of its INVITE.
    world.step("bob answers 180");
    assert!(world.phone("bob").todo.iter().any(|asked| asked.method() == "CANCEL"));
    world.steps(&["bob answers cancel", "bob answers 487", "alice acks"]);
    world.advance(Duration::from_secs(70));
    assert_eq!(world.b2b.figures().tombstones, 0);
}

#[test]
fn t26_a_2xx_that_nobody_acknowledged_is_sent_again_by_the_next_owner() {
    let mut world = ringing();
    world.step("bob answers 200 with sdp");
    let acks = world.phone("bob").acks.len();
    world.log.clear();
    world.take_over();
    // The old owner may not have had the time to acknowledge.
    assert_eq!(world.phone("bob").acks.len(), acks + 1);
    world.advance(Duration::from_millis(10));
    let again: Vec<_> = world.log.iter().filter(|line| line.contains("200 INVITE")).collect();
    assert_eq!(again.len(), 1, "{:?}", world.log);
    assert!(again[0].starts_with("  alice < 200 INVITE") && again[0].ends_with("again"));
    // Nor may the next one's ACK have arrived: each copy gets one.
    world.step("bob repeats");
    assert_eq!(world.phone("bob").acks.len(), acks + 2);
    world.step("alice acks");
    world.advance(Duration::from_secs(60));
    assert!(world.details.is_empty(), "no BYE at 32 s");
}

#[test]
fn a_re_invite_that_was_just_accepted_is_acknowledged_again_before_anything_else() {
    let mut world = talking();
    world.advance(Duration::from_secs(10));
    world.steps(&["alice holds", "bob turns recvonly", "bob answers 200 with sdp"]);
    let acks = world.phone("bob").acks.len();
    world.take_over();
    assert_eq!(world.phone("bob").acks.len(), acks + 1);
    world.advance(Duration::from_secs(10));
    world.step("alice acks");
    let acks = world.phone("bob").acks.len();
    world.take_over();
    assert_eq!(world.phone("bob").acks.len(), acks, "a quiet call hears nothing");
}

#[test]
fn t30_after_a_takeover_a_bye_from_either_side_reaches_the_other_once() {
    for (one, other) in [("alice", "bob"), ("bob", "alice")] {
        let mut world = talking();
        world.take_over();
        world.step(&format!("{one} says BYE"));
        assert_eq!(asked(&world, other).method(), "BYE");
        world.step(&format!("{other} answers 200"));
        world.advance(Duration::from_secs(120));
        assert_eq!((byes(&world, other), world.details.len()), (1, 1));
    }
}

#[test]
fn t34_the_longest_time_of_a_call_ends_it_once_at_the_next_owner() {
    let mut world = talking();
    world.advance(Duration::from_secs(12 * 3600 - 10));
    world.take_over();
    world.advance(Duration::from_secs(9));
    assert!(world.details.is_empty());
    world.advance(Duration::from_secs(2));
    assert_eq!(world.details[0].cause, Cause::TooLong);
    for name in ["alice", "bob"] {
        assert_eq!(asked(&world, name).method(), "BYE");
        world.step(&format!("{name} answers 200"));
    }
    world.advance(Duration::from_secs(120));
    assert_eq!((byes(&world, "alice"), byes(&world, "bob"), world.details.len()), (1, 1, 1));
}

/// Its re-INVITE to bob finds no answer: it times out long after the end.
#[test]
fn t35_after_the_end_no_invite_is_sent_by_any_owner() {
    for takes_over in [false, true] {
        let mut world = talking();
        world.steps(&["g31 dies", "alice says BYE"]);
        let before = (world.invites("alice"), world.invites("bob"));
        assert_eq!(before.1, 2, "a re-INVITE is under way");
        world.log.clear();
        if takes_over {
            world.take_over();
        }
        world.advance(Duration::from_secs(120));
        assert_eq!((world.invites("alice"), world.invites("bob")), before);
        let invites = world.log.iter().filter(|line| line.contains("bob < INVITE"));
        assert_eq!(invites.count(), 0, "{:?}", world.log);
        assert_eq!(world.b2b.figures().tombstones, 0);
    }
}

#[test]
fn a_call_that_ended_does_not_return_and_its_byes_are_answered() {
    let mut world = talking();
    world.steps(&["alice says BYE", "bob answers 200"]);
    world.take_over();
    assert_eq!(world.b2b.figures().calls, 0);
    let bye = world.phone("alice").last.clone().unwrap();
    let from = world.phone("alice").addr;
    world.phone_mut("alice").inbox.clear();
    world.send(from, &bye);
    assert_eq!(last(&world, "alice").status(), 200, "the copy of a BYE whose 200 was lost");
    world.advance(Duration::from_secs(120));
    assert_eq!(world.details.len(), 1, "I6: one detail record");
}

/// I6.
#[test]
fn what_the_old_owner_did_not_write_down_the_next_one_does() {
    for bye_is_answered in [false, true] {
        let mut world = talking();
        world.writes_details = false;
        world.step("alice says BYE");
        if bye_is_answered {
            world.step("bob answers 200");
            assert_eq!(world.b2b.figures().tombstones, 1);
        }
        world.advance(Duration::from_millis(60));
        world.take_over();
        assert_eq!(world.repeated_details, 1);
        world.writes_details = true;
        world.take_over();
        assert_eq!(world.repeated_details, 2);
        world.advance(Duration::from_millis(60));
        world.take_over();
        world.advance(Duration::from_secs(120));
        assert_eq!((world.details.len(), world.repeated_details), (1, 2), "it was written");
    }
}

#[test]
fn a_tombstone_stays_until_its_detail_is_written_however_long_that_takes() {
    let mut world = talking();
    world.writes_details = false;
    world.steps(&["alice says BYE", "bob answers 200"]);
    world.advance(Duration::from_secs(600));
    assert_eq!(world.b2b.figures().tombstones, 1);
    assert_eq!(world.b2b.poll_timeout(), None, "nothing is to be done about it");

    world.take_over();
    assert_eq!(world.repeated_details, 1);
    world.writes_details = true;
    world.take_over();
    world.advance(Duration::from_millis(1));

    assert_eq!((world.b2b.figures().tombstones, world.repeated_details), (0, 2));
}

#[test]
fn a_second_death_in_recovery_leaves_the_call_talking() {
    let mut world = talking();
    world.step("g31 dies");
    world.take_over();
    world.take_over();
    world.steps(&["alice answers 200 with sdp", "bob answers 200 with sdp"]);
    world.take_over();
    world.advance(Duration::from_secs(60));
    let record = world.b2b.records().next().unwrap();
    assert!(!record.is_stale(0) && !record.is_stale(1), "{record:?}");
    assert!(world.details.is_empty());
}

#[test]
fn a_gateway_that_died_unheard_by_the_old_owner_is_left_by_the_next_one() {
    let mut world = talking();
    let dead = world.b2b.records().next().unwrap().holder.unwrap();
    world.gateways.get_mut(&dead.gateway).unwrap().alive = false;
    world.deaths.push((dead.gateway, dead.boot));
    world.take_over();
    for name in ["alice", "bob"] {
        assert_eq!(asked(&world, name).method(), "INVITE");
        world.step(&format!("{name} answers 200 with sdp"));
    }
    let record = world.b2b.records().next().unwrap();
    assert!(record.holder.is_some_and(|holder| holder.gateway != dead.gateway));
}

/// I13: who takes over signalling leaves the media where it is: nothing is closed, and what is open
/// is told the new epoch with the same ports.
#[test]
fn i13_a_takeover_of_signalling_does_not_touch_the_media() {
    let mut world = talking();
    let before = world.gateways.values().map(|gateway| gateway.open.clone()).collect::<Vec<_>>();
    world.log.clear();
    world.take_over();
    world.advance(Duration::from_secs(60));

    assert!(world.log.iter().all(|line| !line.contains("close")), "{:?}", world.log);
    let after = world.gateways.values().map(|gateway| gateway.open.clone());
    for (before, after) in before.into_iter().zip(after) {
        assert_eq!(before.len(), after.len());
        for (id, call) in before {
            let ports = |call: &b2bua::MediaCall| {
                [0, 1].map(|leg: usize| (call.legs[leg].port, call.legs[leg].remote))
            };
            assert_eq!(ports(&call), ports(&after[&id]));
            assert!(call.epoch < after[&id].epoch);
        }
    }
}

/// I4: one emitter per call and epoch. An owner that has lost its slots says nothing more, whatever
/// was under way.
#[test]
fn i4_who_has_lost_a_slot_sends_nothing_more_in_any_state_of_a_call() {
    let moments: [&[&str]; 5] = [
        &["alice calls bob"],
        &["alice calls bob", "bob answers 180", "bob answers 200 with sdp"],
        &["alice calls bob", "bob answers 200 with sdp", "alice acks", "g31 dies"],
        &["alice calls bob", "bob answers 200 with sdp", "alice acks", "alice holds"],
        &["alice calls bob", "bob answers 200 with sdp", "alice acks", "alice says BYE"],
    ];
    for steps in moments {
        let mut world = ready();
        world.steps(steps);
        world.log.clear();
        let slots = (0..=255).map(b2bua::Slot).collect();
        let details = world.details.len();
        world.input(b2bua::Input::Lost { slots });
        world.advance(Duration::from_secs(200));
        assert!(world.log.is_empty(), "{steps:?}: {:?}", world.log);
        assert_eq!(world.details.len(), details, "{steps:?}");
    }
}

/// The barrier of the INVITE came too late, so the standby never heard of the call.
#[test]
fn an_answer_to_an_invite_that_no_record_tells_of_is_acknowledged_and_ended() {
    let mut world = ready();
    world.step("alice calls bob");
    world.standby.retain(|key, _| matches!(key, b2bua::Key::Aor(_)));
    world.take_over();
    world.step("bob answers 200 with sdp");
    assert_eq!(world.phone("bob").acks, [1], "{:?}", world.log);
    let bye = asked(&world, "bob");
    assert_eq!((bye.method(), bye.cseq()), ("BYE", 2));
    assert!(bye.start().starts_with("BYE sip:bob@192.0.2.2:5060 "), "{}", bye.start());
    // Its copy, as the ACK may be lost, changes nothing but for another ACK.
    let ok = world.phone("bob").last.clone().unwrap();
    let from = world.phone("bob").addr;
    world.send(from, &ok);
    assert_eq!(world.phone("bob").acks, [1, 1]);
    assert_eq!(asked(&world, "bob"), bye);
    world.step("bob answers 200");
    world.advance(Duration::from_secs(120));
    assert_eq!((byes(&world, "bob"), world.b2b.figures().calls), (1, 0));
}

#[test]
fn an_answer_that_no_record_tells_of_goes_back_over_the_proxies_that_recorded_themselves() {
    let mut world = ready();
    world.steps(&["phone callees 192.0.2.71:5060", "alice calls bob"]);
    world.standby.retain(|key, _| matches!(key, b2bua::Key::Aor(_)));
    world.take_over();
    let recorded: String =
        ROUTES[1].split(' ').rev().map(|route| format!("Record-Route: {route}\r\n")).collect();
    let ok = world.phone_mut("bob").answer(200, true, &recorded);
    let from = world.phone("callees").addr;
    world.send(from, &ok);

    let [ack, bye] = &world.phone("callees").inbox[..] else { panic!("{:?}", world.log) };
    assert_eq!((ack.method(), bye.method()), ("ACK", "BYE"));
    assert_eq!([routes(ack), routes(bye)], [ROUTES[1], ROUTES[1]]);
}

#[test]
fn an_answer_to_a_re_invite_that_no_record_tells_of_is_acknowledged_and_the_leg_told_anew() {
    let mut world = talking();
    let before = world.standby.clone();
    world.step("alice holds");
    world.standby = before;
    world.take_over();
    let cseq = asked(&world, "bob").cseq();
    world.step("bob answers 200 with sdp");

    assert_eq!(world.phone("bob").acks.last(), Some(&cseq));
    let again = asked(&world, "bob");
    assert_eq!(again.method(), "INVITE");
    assert!(cseq < again.cseq());
    world.step("bob answers 200 with sdp");
    world.advance(Duration::from_secs(60));
    assert!(world.details.is_empty() && world.b2b.figures().calls == 1);
    let record = world.b2b.records().next().unwrap();
    assert!(record.legs.iter().all(failover::record::Leg::is_free), "{record:?}");
}

#[test]
fn an_answer_with_another_branch_or_tag_than_ours_gets_nothing() {
    let mut world = ready();
    world.step("alice calls bob");
    world.standby.retain(|key, _| matches!(key, b2bua::Key::Aor(_)));
    world.take_over();
    let asked = asked(&world, "bob");
    let ok = world.phone_mut("bob").answer(200, true, "");
    let (tag, from) = (asked.tag("From").to_owned(), world.phone("bob").addr);
    let slot = if tag.starts_with("00") { "01" } else { "00" };
    world.log.clear();
    for forged in [
        ok.replacen(&format!("tag={tag}"), "tag=theirs", 1),
        ok.replacen(&format!("tag={tag}"), &format!("tag={slot}{}", &tag[2..]), 1),
        ok.replacen("z9hG4bK", "z9hG4bKx", 1),
    ] {
        assert_ne!(forged, ok);
        world.send(from, &forged);
    }
    assert!(world.log.is_empty(), "{:?}", world.log);
}

#[test]
fn made_up_answers_get_no_more_than_a_bounded_number_of_byes() {
    let mut world = ready();
    world.step("alice calls bob");
    world.standby.retain(|key, _| matches!(key, b2bua::Key::Aor(_)));
    world.take_over();
    let ok = world.phone_mut("bob").answer(200, true, "");
    let (to, from) = (Text(ok.clone()).tag("To").to_owned(), world.phone("bob").addr);
    world.log.clear();
    for number in 0..1000 {
        world.send(from, &ok.replacen(&to, &format!("{to}-{number}"), 1));
    }
    let count = |method: &str| world.log.iter().filter(|line| line.ends_with(method)).count();
    assert_eq!((count("ACK"), count("BYE")), (256, 256));
}

fn ready() -> World {
    script::ready(script::config())
}

fn ringing() -> World {
    let mut world = ready();
    world.steps(&["alice calls bob", "bob answers 180"]);
    world
}

fn talking() -> World {
    let mut world = ready();
    world.steps(&["alice calls bob", "bob answers 200 with sdp", "alice acks"]);
    // What is stored without haste is stored.
    world.advance(Duration::from_millis(60));
    world
}

fn asked(world: &World, name: &str) -> Text {
    world.phone(name).asked.clone().unwrap()
}

fn last(world: &World, name: &str) -> Text {
    world.phone(name).inbox.last().cloned().unwrap()
}

/// The way to the caller, and to the callee.
const ROUTES: [&str; 2] = [
    "<sip:192.0.2.61;lr> <sip:192.0.2.62;lr> <sip:192.0.2.63;lr>",
    "<sip:192.0.2.71;lr> <sip:192.0.2.72;lr> <sip:192.0.2.73;lr>",
];

/// A call between phones behind three proxies each.
fn routed() -> World {
    let mut world = ready();
    world.steps(&["phone callers 192.0.2.61:5060", "phone callees 192.0.2.71:5060"]);
    let record = |route: &str| format!("Record-Route: {route}\r\n");
    let recorded: String = ROUTES[0].split(' ').map(record).collect();
    let vias = "Via: SIP/2.0/UDP 192.0.2.62;branch=z9hG4bK62\r\n";
    let invite = world.phone_mut("alice").call("bob", true);
    let (from, to) = (world.phone("alice").addr, world.phone("bob").addr);
    world.send(from, &invite.replacen("From:", &format!("{vias}{recorded}From:"), 1));
    // An answer has them as its requests met them: the nearest to the callee first.
    let recorded: String = ROUTES[1].split(' ').rev().map(record).collect();
    let ok = world.phone_mut("bob").answer(200, true, &recorded);
    world.send(to, &ok);
    world.step("alice acks");
    world.advance(Duration::from_millis(60));
    world
}

/// Lets a phone accept the INVITE that came to the proxy next to it; returns that.
fn answers_over(world: &mut World, proxy: &str, name: &str) -> Text {
    let invite = asked(world, proxy);
    let phone = world.phone_mut(name);
    phone.hear(invite.clone());
    let ok = phone.answer(200, true, "");
    let from = world.phone(proxy).addr;
    world.send(from, &ok);
    invite
}

/// How many BYEs came to a phone, copies not counted.
fn byes(world: &World, name: &str) -> usize {
    world.phone(name).inbox.iter().filter(|message| message.method() == "BYE").count()
}

fn routes(request: &Text) -> String {
    request.headers("Route").collect::<Vec<_>>().join(" ")
}
