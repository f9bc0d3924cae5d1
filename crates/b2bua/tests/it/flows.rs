//! Which flows belong to one phone.

use b2bua::{Flow, Transport};
use failover::{Boot, NodeId};

use crate::script;
use crate::world::World;

#[test]
fn a_phone_that_reconnected_is_known_by_where_it_can_be_reached_and_behind_a_nat_by_nothing() {
    let [reached, nat] = ["192.0.2.1:5060", "198.51.100.1:0"];
    for (registered, calls, is_known) in [
        ((7, reached), (7, reached), true),
        ((7, reached), (8, reached), true),
        ((7, reached), (8, "192.0.2.1:5062"), false),
        ((7, reached), (8, nat), false),
        ((7, nat), (7, nat), true),
        // Another phone behind it may have made that connection.
        ((7, nat), (8, nat), false),
    ] {
        let mut world = World::new(script::config());
        world.steps(&["gateway 31", "phone alice 192.0.2.1:5060", "phone trunk1 192.0.2.21:5060"]);
        let register = world.phone_mut("alice").register(600);
        world.send_over(stream(registered), &register);
        let invite = world.phone_mut("alice").call("900", true);
        world.send_over(stream(calls), &invite);

        let record = world.b2b.records().next().unwrap();
        assert_eq!(record.legs[0].registered, is_known, "{registered:?}, then {calls:?}");
    }
}

fn stream((connection, remote): (u32, &str)) -> Flow {
    let remote = remote.parse().unwrap();
    let (gate, boot) = (NodeId(2), Boot(5));
    Flow { gate, boot, listener: 1, transport: Transport::Tcp, connection, remote }
}
