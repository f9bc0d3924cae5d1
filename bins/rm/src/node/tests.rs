use std::net::Ipv4Addr;
use std::time::Duration;

use b2bua::frame::SipOut;
use bytes::Bytes;
use failover::controller::Here;
use failover::slots::Reign;
use failover::{Epoch, Flow, Slot, SlotMap, Transport};

use super::*;
use crate::config::{ListenerConfig, Peer, PeerRoles, Roles};
use crate::frames::Frame;

const GATE: NodeId = NodeId(1);
const B2B: NodeId = NodeId(2);
const STRANGER: NodeId = NodeId(9);

fn gate() -> (Rm, Instant) {
    let address = Ipv4Addr::LOCALHOST.into();
    let mut config = Config::new(GATE, address);
    config.roles = Roles { gate: true, ..Roles::default() };
    let listen = (address, 5060).into();
    let transport = Transport::Udp;
    config.listeners.push(ListenerConfig { transport, listen, advertise: listen, tls: None });
    let roles = PeerRoles { b2b: true, ..PeerRoles::default() };
    config.peers.push(Peer::new(B2B, roles, None));
    #[expect(clippy::disallowed_methods, reason = "an origin for the test")]
    let instant = Instant::now();
    let start = Start {
        seed: 1,
        instant,
        unix_ms: 1,
        boot: 1,
        epoch: 1,
        realtime: false,
        waker: noop_waker(),
    };
    (Rm::new(&config, &start), instant)
}

fn noop_waker() -> std::task::Waker {
    std::task::Waker::noop().clone()
}

fn hear<F: Frame>(rm: &mut Rm, now: Instant, from: NodeId, frame: &F) {
    let (peer, class) = (driver::NodeId(from.0), Class::Calls);
    let payload = driver::codec::encode(frame);
    rm.handle_input(now, Input::Frame { peer, class, kind: F::KIND, payload });
}

fn reign(owner: NodeId, epoch: u32) -> Reign {
    Reign { owner, standby: None, epoch: Epoch(epoch) }
}

#[test]
fn frames_of_a_peer_whose_role_does_not_send_them_change_nothing() {
    let (mut rm, start) = gate();
    let now = start + Duration::from_secs(1);

    hear(&mut rm, now, STRANGER, &SlotMap::whole(reign(STRANGER, u32::MAX)));
    hear(&mut rm, now, B2B, &SlotMap::whole(reign(B2B, 7)));
    hear(&mut rm, now, B2B, &Here);

    let slots = rm.gate.as_ref().unwrap().slots();
    assert!(slots.reigns().all(|(_, reign)| (reign.owner, reign.epoch) == (B2B, Epoch(7))));
    assert_eq!(rm.malformed, 2);
}

#[test]
fn frames_replayed_from_an_older_epoch_reach_no_phone_and_give_no_slot_back() {
    let (mut rm, start) = gate();
    let now = start + Duration::from_secs(1);
    hear(&mut rm, now, B2B, &SlotMap::whole(reign(B2B, 7)));
    hear(&mut rm, now, B2B, &SlotMap::whole(reign(STRANGER, 6)));
    let slots = rm.gate.as_ref().unwrap().slots();
    assert!(slots.reigns().all(|(_, reign)| (reign.owner, reign.epoch) == (B2B, Epoch(7))));

    while rm.poll_output().is_some() {}
    for (epoch, sent) in [(6, 0), (7, 1)] {
        let flow = Flow {
            gate: GATE,
            boot: Boot(1),
            listener: 0,
            transport: Transport::Udp,
            connection: 0,
            remote: (Ipv4Addr::LOCALHOST, 5070).into(),
        };
        let bytes = Bytes::from_static(b"OPTIONS");
        let frame = SipOut { slot: Slot(7), epoch: Epoch(epoch), flow, bytes };
        let (peer, class, payload) = (driver::NodeId(B2B.0), Class::Calls, frame.encode());
        rm.handle_input(now, Input::Frame { peer, class, kind: SipOut::KIND, payload });
        let outputs = std::iter::from_fn(|| rm.poll_output());
        let datagrams = outputs.filter(|output| matches!(output, Output::Datagram { .. }));
        assert_eq!(datagrams.count(), sent, "{epoch}");
    }
}

#[test]
fn a_record_is_readable_under_its_own_name_and_slot_only() {
    let stone = failover::Tombstone {
        call: failover::CallId(7),
        slot: Slot(1),
        until: UnixMs(0),
        legs: [failover::EndedLeg { local_tag: 1, peer: 2 }; 2],
        detail: None,
    };
    let bytes = crate::frames::value_bytes(failover::record::ValueRef::Ended(&stone));
    let key = |call| failover::replica::Key::Call(failover::CallId(call));
    let is_readable = crate::frames::is_readable;

    assert!(is_readable(Slot(1), &key(7), &bytes));
    assert!(!is_readable(Slot(2), &key(7), &bytes), "another slot");
    assert!(!is_readable(Slot(1), &key(8), &bytes), "another call");
    assert!(!is_readable(Slot(1), &key(7), &bytes[..bytes.len() - 1]), "a part");
    assert!(!is_readable(Slot(1), &key(7), &[&[2, 0x11], &bytes[2..]].concat()), "another version");
}
