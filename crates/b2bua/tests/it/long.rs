//! Requests that are too long for a datagram (RFC 3261 §18.1.1).

use std::time::Duration;

use crate::phone::Text;
use crate::script;
use crate::world::World;

const TRUNK: &str = "192.0.2.21:5060";

#[test]
fn a_long_invite_to_a_trunk_goes_by_tcp_with_its_cancel_and_the_ack_of_its_refusal() {
    let mut world = calling("900");
    let invite = by_tcp(&world, "INVITE");
    assert_eq!(invite.len(), 1, "{:?}", world.streams);
    assert!(1300 < invite[0].0.len() && invite[0].header("Via").starts_with("SIP/2.0/TCP "));
    assert_eq!(world.phone("trunk1").inbox.len(), 1);

    world.steps(&["trunk1 answers 180", "alice cancels"]);
    let cancel = by_tcp(&world, "CANCEL");
    assert_eq!((cancel.len(), cancel[0].branch()), (1, invite[0].branch()));
    world.steps(&["trunk1 answers cancel", "trunk1 answers 487"]);
    let ack = by_tcp(&world, "ACK");
    assert_eq!((ack.len(), ack[0].branch()), (1, invite[0].branch()));
    world.advance(Duration::from_secs(70));
    assert_eq!(by_tcp(&world, "INVITE").len(), 1, "no connection needs a copy");
}

#[test]
fn without_a_connection_a_long_invite_goes_by_datagram_and_the_next_one_at_once() {
    let mut world = World::new(script::config());
    world.refuses_streams = true;
    world.steps(&SETUP);
    call(&mut world, "alice", "900");

    let refused = by_tcp(&world, "INVITE").remove(0);
    let sent = asked(&world);
    // Nobody heard of the first one: this is the same request (RFC 3261 §18.1.1).
    assert!(sent.header("Via").starts_with("SIP/2.0/UDP "), "{sent:?}");
    assert_eq!(sent.0.replacen("SIP/2.0/UDP", "SIP/2.0/TCP", 1), refused.0);
    world.steps(&["trunk1 answers 200 with sdp", "alice acks", "alice says BYE"]);
    assert_eq!(asked(&world).method(), "BYE");
    world.step("trunk1 answers 200");
    assert_eq!(world.b2b.figures().calls, 0);

    let before = world.streams.len();
    call(&mut world, "carol", "901");
    assert_eq!(world.invites("trunk1"), 2);
    assert_eq!(world.streams.len(), before, "it is known that this trunk takes no connection");
    world.step("carol cancels");
    world.advance(Duration::from_secs(700));
    call(&mut world, "dave", "902");
    assert!(before < world.streams.len(), "it may take one by now");
}

#[test]
fn a_call_that_is_given_up_before_its_connection_fails_is_cancelled_by_datagram() {
    let mut world = calling("900");
    let invite = by_tcp(&world, "INVITE").remove(0);
    world.step("alice cancels");
    assert!(by_tcp(&world, "CANCEL").is_empty(), "nothing was answered yet");

    world.unsent(TRUNK.parse().unwrap(), &invite);
    world.step("trunk1 answers 180");
    let inbox = &world.phone("trunk1").inbox;
    let cancel = inbox.iter().find(|text| text.method() == "CANCEL").unwrap();
    assert!(cancel.header("Via").starts_with("SIP/2.0/UDP "));
    world.steps(&["trunk1 answers cancel", "trunk1 answers 487"]);
    world.advance(Duration::from_secs(70));
    assert_eq!(world.b2b.records().count(), 0);
}

#[test]
fn a_refusal_of_the_peer_itself_is_one() {
    let mut world = calling("900");
    world.step("trunk1 answers 503");
    let next = world.phone("trunk2").asked.clone().unwrap();
    assert!(next.header("Via").starts_with("SIP/2.0/TCP "), "{next:?}");
    assert_eq!(world.phone("trunk1").inbox.iter().filter(|it| it.method() == "INVITE").count(), 1);
}

#[test]
fn a_registered_phone_is_reached_on_its_flow_however_long_the_request() {
    let mut world = calling("bob");
    let invite = world.phone("bob").asked.clone().unwrap();
    assert!(1300 < invite.0.len() && invite.header("Via").starts_with("SIP/2.0/UDP "));
    world.steps(&["bob answers 200 with sdp", "alice acks"]);
    assert_eq!(world.streams.len(), 0);
}

#[test]
fn a_short_request_goes_by_datagram() {
    let mut world = World::new(script::config());
    world.steps(&SETUP);
    world.step("alice calls 900");
    assert!(asked(&world).header("Via").starts_with("SIP/2.0/UDP "));
    assert_eq!(world.streams.len(), 0);
}

#[test]
fn a_long_info_in_a_call_goes_by_tcp_and_by_datagram_when_that_fails() {
    for refuses in [false, true] {
        let mut world = World::new(script::config());
        world.refuses_streams = refuses;
        world.steps(&SETUP);
        world.steps(&["alice calls 900", "trunk1 answers 200 with sdp", "alice acks"]);
        let body = "x".repeat(1500);
        world.step(&format!("alice says INFO {body}"));

        assert_eq!(by_tcp(&world, "INFO").len(), 1);
        let info = asked(&world);
        assert_eq!((info.method(), info.body()), ("INFO", &body[..]));
        assert_eq!(info.header("Via").starts_with("SIP/2.0/UDP "), refuses);
        world.step("trunk1 answers 200");
        let answer = world.phone("alice").inbox.last().unwrap();
        assert_eq!((answer.status(), answer.method()), (200, "INFO"));
    }
}

#[test]
fn the_next_owner_goes_on_with_a_call_whose_invite_went_by_tcp() {
    for ringing in [false, true] {
        let mut world = calling("900");
        if ringing {
            world.step("trunk1 answers 180");
        }
        world.take_over();
        world.steps(&["trunk1 answers 200 with sdp", "alice acks", "alice says BYE"]);
        assert_eq!(asked(&world).method(), "BYE");
        world.step("trunk1 answers 200");
        assert_eq!(world.b2b.figures().calls, 0, "ringing: {ringing}");
    }
}

/// What was on its way through it is lost with its link.
#[test]
fn what_goes_over_a_connection_is_said_again_when_its_gate_is_back_until_it_is_answered() {
    let mut world = calling("900");
    let invite = by_tcp(&world, "INVITE").remove(0);
    world.introduce();
    assert_eq!(by_tcp(&world, "INVITE").len(), 1, "it may have just started and take nothing yet");
    world.advance(Duration::from_millis(600));
    assert_eq!(by_tcp(&world, "INVITE"), [invite.clone(), invite]);

    world.steps(&["trunk1 answers 200 with sdp", "alice acks"]);
    let said = world.streams.len();
    world.introduce();
    world.advance(Duration::from_millis(600));
    assert_eq!(world.streams.len(), said);
}

/// A world in which alice has called somebody with a long INVITE.
fn calling(user: &str) -> World {
    let mut world = World::new(script::config());
    world.steps(&SETUP);
    call(&mut world, "alice", user);
    world
}

fn call(world: &mut World, caller: &str, user: &str) {
    let from = world.phone(caller).addr;
    let text = world.phone_mut(caller).call(user, true);
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let body = format!("{body}a=x-long:{}\r\n", "x".repeat(900));
    let head: Vec<&str> = head.lines().filter(|line| !line.starts_with("Content-Length")).collect();
    let head = head.join("\r\n");
    world.send(from, &format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
}

fn by_tcp(world: &World, method: &str) -> Vec<Text> {
    let streams = world.streams.iter();
    let its = streams.filter(|(to, it)| *to == TRUNK.parse().unwrap() && it.method() == method);
    its.map(|(_, text)| text.clone()).collect()
}

fn asked(world: &World) -> Text {
    world.phone("trunk1").asked.clone().unwrap()
}

const SETUP: [&str; 9] = [
    "gateway 31",
    "gateway 32",
    "phone alice 192.0.2.1:5060",
    "phone bob 192.0.2.2:5060",
    "phone carol 192.0.2.3:5060",
    "phone dave 192.0.2.4:5060",
    "phone trunk1 192.0.2.21:5060",
    "phone trunk2 192.0.2.22:5060",
    "bob registers",
];
