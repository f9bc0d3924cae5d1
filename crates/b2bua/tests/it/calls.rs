//! What the ladders do not show: refusals, limits, registrations.

use std::time::Duration;

use b2bua::{Cause, Config, Input};

use crate::phone::Text;
use crate::script;
use crate::world::World;

#[test]
fn a_request_that_the_other_leg_does_not_answer_gets_no_answer_either() {
    let mut world = talking();
    world.steps(&["bob says INFO", "alice answers 408"]);
    assert_eq!(last(&world, "bob").method(), "ACK");
}

#[test]
fn every_tag_names_the_slot_of_its_request() {
    let mut world = world();
    for number in 0..50 {
        let invite = world.phone_mut("alice").call(&format!("nobody{number}"), true);
        let slot = slot_of(&invite);
        let answer = world.ask("alice", &invite);
        assert_eq!(b2bua::slot::of_tag(answer.tag("To").as_bytes()), Some(slot));
    }
    world.step("alice calls bob");
    let slot = slot_of(world.phone("alice").last.as_ref().unwrap());
    let asked = world.phone("bob").asked.clone().unwrap();
    assert_eq!(b2bua::slot::of_tag(asked.tag("From").as_bytes()), Some(slot));
    assert_eq!(b2bua::slot::of_branch(asked.branch().as_bytes()), Some(slot));
    let tag = world.phone("alice").inbox.last().unwrap().tag("To").to_owned();
    assert_eq!(tag, "", "a 100 has no tag of ours");
}

#[test]
fn a_call_without_a_standby_gets_one_when_there_is_another_gateway() {
    let mut world = World::new(script::config());
    world.steps(&SETUP);
    world.steps(&["g32 dies", "alice calls bob", "bob answers 200 with sdp", "alice acks"]);
    world.step("g32 returns");
    world.advance(Duration::from_secs(30));
    assert!(world.b2b.records().all(|record| record.standby.is_some()));
    world.advance(Duration::from_secs(300));
    assert_eq!(world.gateways.values().map(|gateway| gateway.taken.len()).sum::<usize>(), 4);
}

#[test]
fn a_move_of_an_ended_call_takes_no_room_after_a_rebuild() {
    let mut world = talking();
    world.steps(&["g31 dies", "alice says BYE"]);
    world.rebuild();
    assert_eq!(world.b2b.figures().moves_in_flight, 0);
}

#[test]
fn a_phone_that_reinvites_without_end_fills_no_table() {
    let mut world = talking();
    for round in 0..50 {
        let (mine, theirs) =
            if round % 2 == 0 { ("sendonly", "recvonly") } else { ("sendrecv", "sendrecv") };
        world.steps(&[&format!("alice turns {mine}"), "alice reinvites"]);
        world.steps(&[&format!("bob turns {theirs}"), "bob answers 200 with sdp", "alice acks"]);
    }
    let record = world.b2b.records().next().unwrap();
    assert!(record.legs.iter().all(|leg| leg.outgoing.len() <= 4 && leg.incoming.len() <= 4));
}

#[test]
fn no_hop_left_is_483() {
    let mut world = world();
    let invite = world.phone_mut("alice").call("bob", true);
    let answer = world.ask("alice", &invite.replace("Max-Forwards: 70", "Max-Forwards: 0"));
    assert_eq!(answer.status(), 483);
}

#[test]
fn each_hop_costs_one_of_max_forwards() {
    let mut world = world();
    let invite = world.phone_mut("alice").call("bob", true);
    world.ask("alice", &invite.replace("Max-Forwards: 70", "Max-Forwards: 7"));
    assert_eq!(world.phone("bob").asked.clone().unwrap().header("Max-Forwards"), "6");
}

#[test]
fn a_call_that_comes_back_for_the_same_address_is_482_and_for_another_one_a_call() {
    for (address, status) in [("sip:9123@192.0.2.21:5060", 482), ("sip:bob@192.0.2.100:5060", 100)]
    {
        let mut world = world();
        world.steps(&["phone trunk1 192.0.2.21:5060", "alice calls 9123"]);
        let sent = world.phone("trunk1").asked.clone().unwrap();
        let via = "Via: SIP/2.0/UDP 192.0.2.21:5060;branch=z9hG4bK-proxy\r\nVia: ";
        let back = sent.0.replacen("Via: ", via, 1);
        let back = back.replacen("sip:9123@192.0.2.21:5060", address, 1);
        assert_eq!(world.ask("trunk1", &back).status(), status, "{address}");
    }
}

#[test]
fn what_a_request_requires_and_we_lack_is_420() {
    let mut world = world();
    let invite = world.phone_mut("alice").call("bob", true);
    let invite = invite.replacen("Contact:", "Require: 100rel\r\nContact:", 1);
    let answer = world.ask("alice", &invite);
    assert_eq!((answer.status(), answer.header("Unsupported")), (420, "100rel"));
}

#[test]
fn a_body_that_is_no_sdp_is_415_and_one_without_audio_488() {
    let mut world = world();
    let invite = world.phone_mut("alice").call("bob", true);
    let answer = world.ask("alice", &invite.replace("application/sdp", "text/plain"));
    assert_eq!((answer.status(), answer.header("Accept")), (415, "application/sdp"));

    let invite = world.phone_mut("alice").call("bob", true);
    assert_eq!(world.ask("alice", &invite.replace("m=audio 4120", "m=video 4120")).status(), 488);
}

#[test]
fn media_of_a_family_that_no_gateway_has_is_488() {
    let mut world = talking();
    let six = |text: String| {
        let text = text.replace("c=IN IP4 192.0.2.1", "c=IN IP6 2001:db8::1");
        let body = text.split_once("\r\n\r\n").unwrap().1.len();
        let (before, after) = text.split_once("Content-Length: ").unwrap();
        let (_, rest) = after.split_once("\r\n").unwrap();
        format!("{before}Content-Length: {body}\r\n{rest}")
    };
    let reinvite = six(world.phone_mut("alice").invite(true, true));
    assert_eq!(world.ask("alice", &reinvite).status(), 488);
    assert!(world.details.is_empty(), "the call goes on as it was");

    let mut world = self::world();
    let invite = six(world.phone_mut("alice").call("bob", true));
    assert_eq!(world.ask("alice", &invite).status(), 488);
    assert_eq!(world.invites("bob"), 0);
    assert!(world.gateways.values().all(|gateway| gateway.taken.is_empty()));
}

#[test]
fn an_address_of_another_kind_is_416() {
    let mut world = world();
    let invite = world.phone_mut("alice").call("bob", true);
    let answer = world.ask("alice", &invite.replacen("INVITE sip:bob@", "INVITE mailto:bob@", 1));
    assert_eq!(answer.status(), 416);
}

#[test]
fn a_reinvite_of_an_unknown_dialog_is_481() {
    let mut world = talking();
    let invite = world.phone_mut("alice").invite(true, true);
    let tag = Text(invite.clone()).tag("To").to_owned();
    let answer = world.ask("alice", &invite.replace(&tag, "000123456789abcdef"));
    assert_eq!(answer.status(), 481);
}

#[test]
fn a_request_with_an_old_cseq_is_500() {
    let mut world = talking();
    let bye = world.phone_mut("alice").say("BYE", None);
    let cseq = Text(bye.clone()).cseq();
    let old = bye.replace(&format!("CSeq: {cseq} "), "CSeq: 0 ");
    assert_eq!(world.ask("alice", &old).status(), 500);
    assert!(world.details.is_empty());
}

#[test]
fn a_second_video_stream_is_refused_and_keeps_its_place() {
    let mut world = world();
    let invite = world.phone_mut("alice").call("bob", true);
    let video = "m=video 5000 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n";
    let len: usize = Text(invite.clone()).header("Content-Length").parse().unwrap();
    let invite = invite.replace(
        &format!("Content-Length: {len}"),
        &format!("Content-Length: {}", len + video.len()),
    ) + video;
    world.ask("alice", &invite);
    let asked = world.phone("bob").asked.clone().unwrap();
    assert!(asked.body().contains("m=video 0 RTP/AVP 96"), "{}", asked.body());
}

#[test]
fn a_drained_b2b_takes_no_new_calls_and_says_when_the_last_one_has_ended() {
    let mut world = talking();
    world.input(Input::Drain);
    assert!(!world.b2b.is_drained());
    world.step("phone carol 192.0.2.3:5060");
    world.step("carol calls bob");
    let answer = last(&world, "carol");
    assert_eq!(answer.status(), 503);
    assert!((1..=5).contains(&answer.header("Retry-After").parse::<u32>().unwrap()));
    world.step("alice says BYE");
    assert!(world.b2b.is_drained());
}

#[test]
fn a_call_beyond_the_limit_is_put_off_and_no_other_is_touched() {
    let mut world = World::new(Config { calls_max: 1, ..script::config() });
    world.steps(&SETUP);
    world.steps(&["alice calls bob", "bob answers 200 with sdp", "alice acks"]);
    world.steps(&["phone carol 192.0.2.3:5060", "carol calls bob", "carol acks"]);
    assert_eq!(last(&world, "carol").status(), 503);
    world.steps(&["alice says BYE", "bob answers 200", "carol calls bob"]);
    assert_eq!(last(&world, "carol").status(), 100);
}

#[test]
fn a_full_gateway_refuses_the_call_that_needed_it() {
    let mut world = world();
    world.steps(&["g31 fills", "g32 fills", "alice calls bob", "alice acks"]);
    assert_eq!(last(&world, "alice").status(), 503);
    assert_eq!(world.details[0].cause, Cause::Refused(503));
}

#[test]
fn a_phone_behind_a_nat_is_reached_where_its_registration_came_from() {
    let mut world = world();
    world.step("phone nat 192.0.2.50:1024");
    let register = world.phone_mut("nat").register(600);
    world.ask(
        "nat",
        &register.replace("Contact: <sip:nat@192.0.2.50:1024>", "Contact: <sip:nat@10.0.0.5:5060>"),
    );
    world.step("alice calls nat");
    assert_eq!(
        world.phone("nat").asked.clone().unwrap().start(),
        "INVITE sip:nat@10.0.0.5:5060 SIP/2.0"
    );
    let ok = world.phone_mut("nat").answer(200, true, "");
    world.send(
        "192.0.2.50:1024".parse().unwrap(),
        &ok.replace("nat@192.0.2.50:1024", "nat@10.0.0.5:5060"),
    );
    assert_eq!(world.phone("nat").acks.len(), 1, "the ACK went the same way");
}

#[test]
fn an_answer_names_another_port_and_what_follows_goes_there() {
    let mut world = world();
    world.steps(&[
        "phone trunk1 192.0.2.21:5060",
        "phone other 192.0.2.21:5090",
        "alice calls 9123",
    ]);
    let ok = world.phone_mut("trunk1").answer(200, true, "");
    world.send(
        "192.0.2.21:5060".parse().unwrap(),
        &ok.replace("trunk1@192.0.2.21:5060", "trunk1@192.0.2.21:5090"),
    );
    assert_eq!(world.phone("other").acks.len(), 1);
}

#[test]
fn requests_follow_the_recorded_route() {
    let mut world = world();
    world.steps(&[
        "phone trunk1 192.0.2.21:5060",
        "phone proxy 192.0.2.60:5060",
        "alice calls 9123",
    ]);
    let routes = "Record-Route: <sip:192.0.2.60;lr>\r\nRecord-Route: <sip:192.0.2.61;lr>\r\n";
    let ok = world.phone_mut("trunk1").answer(200, true, routes);
    world.send("192.0.2.21:5060".parse().unwrap(), &ok.replacen("192.0.2.60", "192.0.2.62", 0));
    let last_hop = world.phones.values().find(|phone| phone.acks.len() == 1).map(|p| &p.name);
    assert_eq!(last_hop, None, "the last recorded route comes first: 192.0.2.61");
    assert!(world.log.iter().any(|line| line.starts_with("  192.0.2.61:5060 < ACK")));
}

#[test]
fn too_short_a_registration_is_423_and_a_long_one_is_cut() {
    let mut world = world();
    let short = world.phone_mut("alice").register(5);
    let answer = world.ask("alice", &short);
    assert_eq!((answer.status(), answer.header("Min-Expires")), (423, "60"));
    let long = world.phone_mut("alice").register(1_000_000);
    let answer = world.ask("alice", &long);
    assert_eq!(answer.header("Contact"), "<sip:alice@192.0.2.1:5060>;expires=3600");
}

#[test]
fn a_registration_that_comes_late_changes_nothing() {
    let mut world = world();
    let old = world.phone_mut("alice").register(600);
    let new = world.phone_mut("alice").register(600);
    assert_eq!(world.ask("alice", &new).status(), 200);
    assert_eq!(world.ask("alice", &old).status(), 500);
}

#[test]
fn a_star_removes_all_contacts_but_only_alone_and_with_expires_0() {
    let mut world = world();
    let star = |world: &mut World, expires| {
        let register = world.phone_mut("bob").register(expires);
        world.ask("bob", &register.replace("Contact: <sip:bob@192.0.2.2:5060>", "Contact: *"))
    };
    assert_eq!(star(&mut world, 600).status(), 400);
    let answer = star(&mut world, 0);
    assert_eq!((answer.status(), answer.header("Contact")), (200, ""));
    assert_eq!(world.b2b.figures().aors, 0);
}

#[test]
fn contacts_of_one_address_are_bounded_and_the_oldest_goes() {
    let mut world = world();
    for port in 6000..6020 {
        let register = world.phone_mut("bob").register(600);
        world.ask(
            "bob",
            &register.replace("bob@192.0.2.2:5060>", &format!("bob@192.0.2.2:{port}>")),
        );
    }
    let bindings: Vec<_> = world.b2b.bindings().map(|(_, b)| b.uri.clone()).collect();
    assert_eq!(bindings.len(), 8);
    assert_eq!(bindings[7], "sip:bob@192.0.2.2:6019");
}

#[test]
fn a_path_is_kept_and_calls_go_along_it() {
    let mut world = world();
    let register = world.phone_mut("bob").register(600);
    let path = "Path: <sip:192.0.2.77;lr>\r\nContact:";
    let answer = world.ask("bob", &register.replacen("Contact:", path, 1));
    assert_eq!(answer.header("Path"), "<sip:192.0.2.77;lr>");
    world.step("alice calls bob");
    assert_eq!(world.phone("bob").asked.clone().unwrap().header("Route"), "<sip:192.0.2.77;lr>");
}

#[test]
fn any_bytes_are_dropped_or_answered_and_counted() {
    let mut world = talking();
    let invite = world.phone_mut("alice").invite(true, true);
    for len in 0..invite.len() {
        world.send_raw("192.0.2.9:5060".parse().unwrap(), &invite.as_bytes()[..len]);
    }
    for index in 0..invite.len() {
        let mut bytes = invite.clone().into_bytes();
        bytes[index] ^= 0x15;
        world.send_raw("192.0.2.9:5060".parse().unwrap(), &bytes);
    }
    assert!(0 < world.b2b.figures().counters.discarded);
}

#[test]
fn a_record_of_a_g711_call_takes_less_than_two_kilobytes() {
    let mut world = talking();
    world.rebuild();
    assert!(world.record_len_max <= 2048, "{}", world.record_len_max);
    world.steps(&["g31 dies", "alice answers 200 with sdp", "bob answers 200 with sdp"]);
    world.rebuild();
    assert!(world.record_len_max <= 2048, "{}", world.record_len_max);
}

#[test]
fn of_a_call_that_is_over_on_both_sides_only_a_tombstone_is_left_for_64_seconds() {
    for rebuild in [false, true] {
        let mut world = talking();
        world.steps(&["alice says BYE", "bob answers 200"]);
        assert_eq!((world.b2b.records().count(), world.b2b.figures().tombstones), (0, 1));
        if rebuild {
            world.rebuild();
        }
        for (method, status) in [("BYE", 200), ("INFO", 481), ("UPDATE", 481)] {
            world.step(&format!("alice says {method}"));
            assert_eq!(last(&world, "alice").status(), status, "{method} after the end");
        }
        world.step("bob says BYE");
        assert_eq!(last(&world, "bob").status(), 200, "BYEs may cross");
        let bye = world.phone_mut("bob").say("BYE", None).replace(";tag=", ";tag=x");
        assert_eq!(world.ask("bob", &bye).status(), 481, "a stranger's");

        world.advance(Duration::from_secs(64));
        assert_eq!(world.b2b.figures().tombstones, 0);
        world.step("alice says BYE");
        assert_eq!(last(&world, "alice").status(), 481);
    }
}

#[test]
fn a_tombstone_is_small() {
    assert!(size_of::<failover::Tombstone>() <= 64);
}

#[test]
fn a_2xx_that_comes_after_the_end_is_acknowledged_and_that_of_another_branch_gets_its_bye() {
    let mut world = world();
    world.steps(&["phone trunk1 192.0.2.21:5060", "alice calls 9123"]);
    world.steps(&["trunk1 answers 200 as two with sdp", "alice acks"]);
    let invite = world.phone("trunk1").asked.clone().unwrap();
    let copy = world.phone("trunk1").last.clone().unwrap();
    world.steps(&["alice says BYE", "trunk1 answers 200"]);
    assert_eq!(world.b2b.records().count(), 0);

    let from = world.phone("trunk1").addr;
    let (acks, before) = (world.phone("trunk1").acks.len(), last(&world, "trunk1"));
    world.send(from, &copy);
    assert_eq!(world.phone("trunk1").acks.len(), acks + 1);
    assert_eq!(last(&world, "trunk1").header("To"), before.header("To"));
    assert_eq!(last(&world, "trunk1").method(), "ACK", "no second BYE");

    let other = world.phone_mut("trunk1").answer_to(&invite, 200, true, "", Some("one"));
    world.send(from, &other);
    let bye = last(&world, "trunk1");
    assert_eq!((bye.method(), bye.tag("To")), ("BYE", "one"));
    assert_eq!(world.phone("trunk1").acks.len(), acks + 2);
}

const SETUP: [&str; 5] = [
    "gateway 31",
    "gateway 32",
    "phone alice 192.0.2.1:5060",
    "phone bob 192.0.2.2:5060",
    "bob registers",
];

fn world() -> World {
    let mut world = World::new(script::config());
    world.steps(&SETUP);
    world
}

fn talking() -> World {
    let mut world = world();
    world.steps(&["alice calls bob", "bob answers 200 with sdp", "alice acks"]);
    world.advance(Duration::from_millis(10));
    world
}

fn slot_of(text: &str) -> b2bua::Slot {
    let message = sip_core::Message::parse(text.to_owned().into()).unwrap();
    b2bua::slot::SlotHash::new(7).of_message(&message)
}

fn last(world: &World, name: &str) -> Text {
    world.phone(name).inbox.last().cloned().unwrap()
}
