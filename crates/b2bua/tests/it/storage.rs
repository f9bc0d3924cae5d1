//! Records that are kept elsewhere, and slots that come and go.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use b2bua::frame::{SipIn, SipOut};
use b2bua::{
    B2b, Config, Epoch, Flow, Input, Key, Listener, Output, Place, Route, Slot, Transport, Wanted,
};
use failover::{Boot, Clock, NodeId, UnixMs};
use sip_core::Message;

use crate::script;
use crate::world::World;

#[test]
fn a_plain_call_is_stored_seven_times_of_which_three_are_waited_for() {
    for timers in [0, 1800] {
        let config = Config { session_expires: timers, ..script::config() };
        assert_eq!(copies(&mut script::ready(config.clone())), expected(), "timers of {timers} s");
        let mut world = script::ready(config);
        world.steps(&["alice asks for 1800", "bob asks for 1800;refresher=uas"]);
        assert_eq!(copies(&mut world), expected(), "timers of {timers} s that phones know");
    }
}

/// Whether each change of a plain call is waited for.
fn copies(world: &mut World) -> Vec<(&'static str, Vec<bool>)> {
    world.stored.clear();
    let mut seen = Vec::new();
    for step in [
        "alice calls bob",
        "bob answers 180",
        "bob answers 200 with sdp",
        "alice acks",
        "alice says BYE",
        "bob answers 200",
    ] {
        world.step(step);
        let barriers: Vec<bool> = world.stored.drain(..).map(|(_, barrier)| barrier).collect();
        seen.push((step, barriers));
    }
    seen
}

fn expected() -> Vec<(&'static str, Vec<bool>)> {
    vec![
        ("alice calls bob", vec![true]),
        ("bob answers 180", vec![false]),
        ("bob answers 200 with sdp", vec![true]),
        ("alice acks", vec![false]),
        // The second time, its detail is written down: within 50 ms that is one change with the last.
        ("alice says BYE", vec![true, false]),
        ("bob answers 200", vec![false]),
    ]
}

#[test]
fn what_changes_nothing_is_not_stored() {
    let mut world = ready();
    world.steps(&["alice calls bob", "bob answers 200 with sdp", "alice acks"]);
    world.advance(Duration::from_secs(40));
    world.stored.clear();
    world.steps(&["alice repeats", "bob repeats", "alice repeats"]);
    world.advance(Duration::from_secs(100));
    assert_eq!(world.stored, []);
}

#[test]
fn a_binding_is_waited_for_and_one_that_runs_out_is_not() {
    let mut world = ready();
    world.stored.clear();
    world.step("alice registers");
    assert!(matches!(&world.stored[..], [(Key::Aor(_), true)]), "{:?}", world.stored);
    world.stored.clear();
    world.advance(Duration::from_secs(700));
    assert_eq!(world.stored.len(), 2, "bob's and alice's: {:?}", world.stored);
    assert!(world.stored.iter().all(|(_, barrier)| !barrier));
}

#[test]
fn a_tombstone_that_is_gone_is_gone_elsewhere_too() {
    let mut world = ready();
    world.steps(&["alice calls bob", "bob answers 486"]);
    world.step("alice acks");
    world.advance(Duration::from_secs(65));
    assert!(world.standby.keys().all(|key| matches!(key, Key::Aor(_))), "{:?}", world.standby);
}

#[test]
fn of_more_tombstones_than_there_is_room_for_the_oldest_goes_here_and_elsewhere() {
    let mut world = script::ready(Config { tombstones_max: 2, ..script::config() });
    let mut ended = Vec::new();
    for call in 1..=5 {
        world.steps(&["alice calls bob", "bob answers 486", "alice acks"]);
        world.advance(Duration::from_millis(500));
        let stones = world.standby.keys().filter(|key| matches!(key, Key::Call(_)));
        let stones: Vec<Key> = stones.cloned().collect();
        assert_eq!(stones.len(), call.min(2));
        ended
            .extend(stones.iter().filter(|key| !ended.contains(*key)).cloned().collect::<Vec<_>>());
        let newest = &ended[ended.len() - stones.len()..];
        assert!(stones.iter().all(|key| newest.contains(key)), "{stones:?} of {ended:?}");
        let figures = world.b2b.figures();
        assert_eq!(
            (figures.tombstones, figures.counters.forgotten),
            (call.min(2), call.saturating_sub(2) as u64)
        );
    }
}

#[test]
fn the_next_owner_takes_other_ports_for_the_standby_since_the_old_ones_are_not_its_own() {
    let mut world = ready();
    world.steps(&["alice calls bob", "bob answers 200 with sdp", "alice acks"]);
    world.advance(Duration::from_secs(3));
    let before = world.b2b.records().next().unwrap().clone();
    world.log.clear();
    world.take_over();
    world.advance(Duration::from_secs(2));

    let after = world.b2b.records().next().unwrap();
    assert_eq!(after.holder, before.holder, "voice stays where it is");
    assert_ne!(after.standby, before.standby);
    assert_eq!(after.standby.unwrap().gateway, before.standby.unwrap().gateway);
    let at_phones = world.log.iter().filter(|line| line.contains(" < ")).count();
    assert_eq!(at_phones, 0, "no open transaction, no message: {:?}", world.log);
}

#[test]
fn a_record_that_is_too_long_is_served_and_kept_nowhere() {
    let mut world = ready();
    world.phone_mut("alice").codecs = Box::leak(vec!["0"; 20_000].join(" ").into_boxed_str());
    world.steps(&["alice calls bob", "bob answers 200 with sdp", "alice acks"]);

    let call = world.b2b.records().next().unwrap().call;
    assert_eq!(world.b2b.stored(&Key::Call(call)), None);
    assert_eq!(world.b2b.figures().unprotected, 1);
    assert!(!world.standby.contains_key(&Key::Call(call)));
    world.steps(&["alice says BYE", "bob answers 200"]);
    assert_eq!(world.details.len(), 1);
    assert_eq!(world.b2b.figures().unprotected, 0);
}

#[test]
fn calls_of_lost_slots_go_without_a_word_and_their_ports_rest() {
    let mut world = ready();
    world.steps(&["alice calls bob", "bob answers 200 with sdp", "alice acks"]);
    world.log.clear();
    world.input(Input::Lost { slots: (0..=255).map(Slot).collect() });
    assert_eq!(world.b2b.figures().calls, 0);
    world.advance(Duration::from_secs(63));
    assert!(world.gateways.values().all(|gateway| gateway.taken.len() == 2));
    world.advance(Duration::from_secs(120));
    assert!(world.gateways.values().all(|gateway| gateway.taken.is_empty()));
    assert!(world.log.is_empty() && world.details.is_empty(), "{:?}", world.log);
}

#[test]
fn a_message_of_a_foreign_slot_is_passed_on_once() {
    let (mut b2b, now) = stranger();
    for slot in 0..128 {
        b2b.handle_input(now, Input::Owned { slot: Slot(slot), epoch: Epoch(1) });
    }
    let options = sip("OPTIONS", "a");
    assert_eq!(said(&mut b2b, now, &options, 200, 0), ["pass on, hops 1"]);
    assert_eq!(said(&mut b2b, now, &options, 200, 1), [""; 0]);
    assert_eq!(said(&mut b2b, now, &options, 100, 0), ["SIP/2.0 200 OK"]);
}

#[test]
fn a_cancel_without_its_invite_is_passed_on_before_it_is_481() {
    let (mut b2b, now) = stranger();
    for slot in 0..128 {
        b2b.handle_input(now, Input::Owned { slot: Slot(slot), epoch: Epoch(1) });
    }
    let cancel = sip("CANCEL", "a");
    let unknown = ["SIP/2.0 481 Call/Transaction Does Not Exist"];
    // Its INVITE may have followed a Replaces header to the other b2b; each copy is passed on.
    assert_eq!(said(&mut b2b, now, &cancel, 100, 0), ["pass on, hops 1"]);
    assert_eq!(said(&mut b2b, now, &cancel, 100, 0), ["pass on, hops 1"]);
    // The other one has not got it either.
    assert_eq!(said(&mut b2b, now, &cancel, 200, 1), unknown);

    for slot in 128..=255 {
        b2b.handle_input(now, Input::Owned { slot: Slot(slot), epoch: Epoch(1) });
    }
    assert_eq!(said(&mut b2b, now, &sip("CANCEL", "b"), 100, 0), unknown, "all slots are ours");
}

/// Hands a message in; returns what comes of it.
fn said(b2b: &mut B2b, now: std::time::Instant, text: &str, slot: u8, hops: u8) -> Vec<String> {
    let flow = Flow {
        gate: NodeId(2),
        boot: Boot(5),
        listener: 0,
        transport: Transport::Udp,
        connection: 0,
        remote: "192.0.2.1:5060".parse().unwrap(),
    };
    let bytes = text.to_owned().into();
    b2b.handle_input(now, Input::Sip(SipIn { slot: Slot(slot), hops, flow, bytes }));
    let mut said = Vec::new();
    while let Some(output) = b2b.poll_output() {
        said.push(if let Output::Sip(sip) = &output {
            let text = String::from_utf8(sip.bytes.to_vec()).unwrap();
            text.lines().next().unwrap_or_default().to_owned()
        } else if let Output::PassOn(sip) = &output {
            format!("pass on, hops {}", sip.hops)
        } else {
            panic!("{output:?}")
        });
    }
    said
}

fn sip(method: &str, branch: &str) -> String {
    format!(
        "{method} sip:bob@192.0.2.100 SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK{branch}\r\n\
         Max-Forwards: 70\r\nFrom: <sip:alice@192.0.2.100>;tag=1\r\nTo: <sip:bob@192.0.2.100>\r\n\
         Call-ID: c{branch}\r\nCSeq: 1 {method}\r\nContent-Length: 0\r\n\r\n"
    )
}

/// With one seed by accident, too.
#[test]
fn t35_what_two_b2bs_name_at_once_has_no_name_twice() {
    let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::new());
    for node in [1, 2] {
        let (mut b2b, now) = busy(NodeId(node));
        for call in 0..CALLS {
            b2b.handle_input(now, invite(node, call));
            while let Some(output) = b2b.poll_output() {
                match output {
                    Output::Place { call, wanted: Wanted::Both } => {
                        assert!(ids.insert(call), "{call}");
                        let port = u16::try_from(10_000 + 2 * (ids.len() % 20_000)).unwrap();
                        let place = Place {
                            gateway: NodeId(31),
                            boot: Boot(1),
                            address: [192, 0, 2, 31].into(),
                            ports: [port, port + 1],
                        };
                        b2b.handle_input(
                            now,
                            Input::Placed { call, holder: Some(place), standby: None },
                        );
                    }
                    Output::Sip(SipOut { bytes, .. }) => {
                        let sent = Message::parse(bytes).unwrap();
                        if sent.is_request() {
                            let parts =
                                [sent.branch().unwrap(), sent.call_id(), sent.from_tag().unwrap()];
                            names.extend(parts.map(<[u8]>::to_vec));
                        }
                    }
                    Output::Stored { .. }
                    | Output::PassOn(_)
                    | Output::Admit { .. }
                    | Output::Released { .. }
                    | Output::Place { .. }
                    | Output::Media { .. }
                    | Output::Named(_)
                    | Output::Freed(_)
                    | Output::Detail(_)
                    | Output::Event(_) => {}
                }
            }
        }
    }
    assert_eq!((ids.len(), names.len()), (2 * CALLS, 6 * CALLS));
}

const CALLS: usize = 5000;

/// A b2b with one seed that owns all slots and sends every call to one trunk.
fn busy(node: NodeId) -> (B2b, std::time::Instant) {
    let (_, now) = stranger();
    let clock = Clock { instant: now, unix_ms: UnixMs(1_700_000_000_000) };
    let trunk = SocketAddr::from(([192, 0, 2, 9], 5060)).into();
    let routes = vec![Route { prefix: Vec::new(), targets: vec![trunk] }];
    let mut b2b = B2b::new(Config { routes, ..Config::default() }, node, clock, 7);
    let advertise = SocketAddr::from(([192, 0, 2, 1], 5060));
    let listeners = vec![Listener { id: 0, transport: Transport::Udp, advertise }];
    b2b.handle_input(now, Input::GateUp { gate: NodeId(11), boot: Boot(1), listeners });
    for slot in 0..=u8::MAX {
        b2b.handle_input(now, Input::Owned { slot: Slot(slot), epoch: Epoch(5) });
    }
    (b2b, now)
}

fn invite(node: u16, call: usize) -> Input {
    let text = format!(
        "INVITE sip:carol@example.com SIP/2.0\r\n\
         Via: SIP/2.0/UDP 192.0.2.7:5060;branch=z9hG4bK{node}x{call}\r\n\
         Max-Forwards: 70\r\n\
         From: <sip:alice@example.com>;tag={node}x{call}\r\n\
         To: <sip:carol@example.com>\r\n\
         Call-ID: {node}x{call}@phone\r\n\
         CSeq: 1 INVITE\r\n\
         Contact: <sip:alice@192.0.2.7>\r\n\
         Content-Length: 0\r\n\r\n"
    );
    let flow = Flow {
        gate: NodeId(11),
        boot: Boot(1),
        listener: 0,
        transport: Transport::Udp,
        connection: 0,
        remote: SocketAddr::from(([192, 0, 2, 7], 5060)),
    };
    Input::Sip(SipIn { slot: Slot(3), hops: 0, flow, bytes: text.into() })
}

fn stranger() -> (B2b, std::time::Instant) {
    #[expect(clippy::disallowed_methods, reason = "an origin for the test")]
    let now = std::time::Instant::now();
    let clock = Clock { instant: now, unix_ms: UnixMs(1_700_000_000_000) };
    (B2b::new(Config::default(), NodeId(1), clock, 1), now)
}

fn ready() -> World {
    script::ready(script::config())
}
