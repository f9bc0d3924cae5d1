use std::net::Ipv4Addr;
use std::time::Duration;

use failover::controller::Here;
use failover::slots::Reign;
use failover::{Epoch, SlotMap};

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
    let transport = failover::Transport::Udp;
    config.listeners.push(ListenerConfig { transport, listen, advertise: listen });
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

#[test]
fn frames_of_a_peer_whose_role_does_not_send_them_change_nothing() {
    let (mut rm, start) = gate();
    let now = start + Duration::from_secs(1);
    let reign = |owner, epoch| Reign { owner, standby: None, epoch: Epoch(epoch) };

    hear(&mut rm, now, STRANGER, &SlotMap::whole(reign(STRANGER, u32::MAX)));
    hear(&mut rm, now, B2B, &SlotMap::whole(reign(B2B, 7)));
    hear(&mut rm, now, B2B, &Here);

    let slots = rm.gate.as_ref().unwrap().slots();
    assert!(slots.reigns().all(|(_, reign)| (reign.owner, reign.epoch) == (B2B, Epoch(7))));
    assert_eq!(rm.malformed, 2);
}
