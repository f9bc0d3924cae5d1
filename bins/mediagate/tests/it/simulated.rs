//! A gateway, a b2b and two phones in the simulator.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::Bytes;
use driver::sim::{self, Sim};
use driver::{Class, Input, Metrics, Node, NodeId, Output, SocketId, Start, StopReason, codec};
use media::beat::{Beat, Hear};
use media::{
    CallId, Close, Digest, DigestDiffers, Failed, Frame, Leased, LegSpec, Lessee, LesseeInput,
    LesseeOutput, Notice, Open, Ports, Welcome,
};
use mediagate::{Config, Forwarding, Mediagate};

const GATEWAY: NodeId = NodeId(31);
const B2B: NodeId = NodeId(2);
const PHONES: NodeId = NodeId(90);
const GATEWAY_IP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 3));

#[test]
fn a_call_is_carried_between_two_phones_until_it_is_closed() {
    let mut world = World::new();
    world.sim.run_for(3 * SECOND);
    let ports = world.open(1);

    assert_eq!(world.say(0, ports.ports[0], 1), [(1, rtp(1))]);
    assert_eq!(world.say(1, ports.ports[1], 7), [(0, rtp(7))]);

    world.send(&Close { call: CallId(1), epoch: 1 });
    assert_eq!(world.say(0, ports.ports[0], 2), []);
}

#[test]
fn a_fresh_gateway_takes_its_first_call_two_seconds_after_its_start() {
    let mut world = World::new();
    world.sim.run_until(1900 * MS);
    assert_eq!(world.b2b(|b2b, now| b2b.lessee.allocate(now)), None);
    world.sim.run_until(2100 * MS);
    assert!(world.b2b(|b2b, now| b2b.lessee.allocate(now)).is_some());
}

#[test]
fn whoever_hears_a_gateway_learns_of_its_death_at_once() {
    let mut world = World::new();
    world.sim.run_for(SECOND);
    let heard = world.beats();
    world.sim.run_for(100 * MS);
    assert!(9 <= world.beats() - heard, "{} in 100 ms", world.beats() - heard);

    world.sim.crash(GATEWAY);
    let refused = |_, input: &Input| matches!(input, Input::Refused { .. });
    assert!(world.sim.run_until_input(150 * MS, refused));
}

#[test]
fn nobody_who_has_stopped_asking_gets_beats() {
    let mut world = World::new();
    world.sim.run_for(SECOND);
    world.b2b(|b2b, _| b2b.hears = false);
    world.sim.run_for(1200 * MS);

    let heard = world.beats();
    world.sim.run_for(SECOND);
    assert_eq!(world.beats(), heard);
}

#[test]
fn a_restarted_gateway_knows_nothing_and_its_lessee_neither() {
    let mut world = World::new();
    world.sim.run_for(3 * SECOND);
    let ports = world.open(1);

    world.sim.crash(GATEWAY);
    world.sim.run_for(SECOND);
    world.sim.restart(GATEWAY);
    world.sim.run_for(3 * SECOND);
    assert_eq!(world.say(0, ports.ports[0], 1), []);

    let again = world.open(2);
    assert_ne!(again.boot, ports.boot);
    assert_eq!(world.say(0, again.ports[0], 1), [(1, rtp(1))]);
}

#[test]
fn a_call_outlives_its_b2b_for_a_minute() {
    let mut world = World::new();
    world.sim.run_for(3 * SECOND);
    let ports = world.open(1);

    world.sim.crash(B2B);
    world.sim.run_for(59 * SECOND);
    assert_eq!(world.say(0, ports.ports[0], 1), [(1, rtp(1))]);
    world.sim.run_for(2 * SECOND);
    assert_eq!(world.say(0, ports.ports[0], 2), []);
}

#[test]
fn minds_that_differ_are_told_so() {
    let mut world = World::new();
    world.sim.run_for(3 * SECOND);
    world.open(1);

    world.send(&Digest::from_iter([CallId(1)]));
    assert_eq!(world.b2b(|b2b, _| b2b.notices.pop()), None);
    world.send(&Digest::default());
    let differs = DigestDiffers { held: Digest::from_iter([CallId(1)]) };
    assert_eq!(world.b2b(|b2b, _| b2b.notices.pop()), Some(Notice::DigestDiffers(differs)));
}

#[test]
fn a_port_of_no_block_fails_its_call() {
    let mut world = World::new();
    world.sim.run_for(3 * SECOND);

    world.send(&Open { call: CallId(9), epoch: 1, legs: [leg(32_000, 0), leg(32_002, 1)] });
    let notice = world.b2b(|b2b, _| b2b.notices.pop());
    assert!(matches!(notice, Some(Notice::Failed(Failed { call: CallId(9), .. }))), "{notice:?}");
}

#[test]
fn a_draining_gateway_ends_with_its_last_call() {
    let mut world = World::new();
    world.sim.run_for(3 * SECOND);
    world.open(1);

    world.sim.tell(GATEWAY, Input::Drain);
    world.sim.run_for(SECOND);
    assert!(world.b2b(|b2b, _| b2b.welcomes.last().is_some_and(|welcome| welcome.draining)));
    assert_eq!(world.sim.stopped(GATEWAY), None);

    world.send(&Close { call: CallId(1), epoch: 1 });
    assert_eq!(world.sim.stopped(GATEWAY), Some(&StopReason::Drained));
}

struct World {
    sim: Sim<Any>,
}

impl World {
    fn new() -> Self {
        let mut sim = Sim::new(7, sim::Config::default());
        sim.add(GATEWAY, GATEWAY_IP, &[], |start| {
            let config = Config {
                forwarding: Forwarding::Inline,
                ports: 10_000..=14_095,
                ..Config::new(GATEWAY, GATEWAY_IP, 7131, 7231)
            };
            Any::Gateway(Box::new(Mediagate::new(&config, start)))
        });
        let dial = [(GATEWAY, Class::Calls)];
        sim.add(B2B, [10, 0, 0, 2].into(), &dial, |start| Any::B2b(Box::new(B2b::new(&start))));
        sim.add(PHONES, [10, 0, 0, 90].into(), &[], |_| Any::Phones(Phones::new()));
        Self { sim }
    }

    fn b2b<R>(&mut self, ask: impl FnOnce(&mut B2b, Instant) -> R) -> R {
        let asked = self.sim.with(B2B, |node, now| match node {
            Any::B2b(b2b) => ask(b2b, now),
            Any::Gateway(_) | Any::Phones(_) => panic!("no b2b"),
        });
        asked.unwrap()
    }

    /// Sends a frame to the gateway and gives it time to obey.
    fn send<F: Frame>(&mut self, frame: &F) {
        self.b2b(|b2b, _| b2b.send(frame));
        self.sim.run_for(100 * MS);
    }

    /// A call between the two phones.
    fn open(&mut self, call: u64) -> Ports {
        let ports = self.b2b(|b2b, now| b2b.lessee.allocate(now)).unwrap();
        let legs = [leg(ports.ports[0], 0), leg(ports.ports[1], 1)];
        self.send(&Open { call: CallId(call), epoch: 1, legs });
        ports
    }

    /// One phone sends a packet to a port of the gateway; returns what the phones heard.
    fn say(&mut self, phone: u32, port: u16, seq: u8) -> Vec<(u32, Bytes)> {
        self.phones(|phones| {
            let to = SocketAddr::new(GATEWAY_IP, port);
            let bytes = rtp(seq);
            phones.outputs.push_back(Output::Datagram { socket: SocketId(phone), to, bytes });
        });
        self.sim.run_for(100 * MS);
        self.phones(|phones| std::mem::take(&mut phones.heard))
    }

    fn phones<R>(&mut self, ask: impl FnOnce(&mut Phones) -> R) -> R {
        let asked = self.sim.with(PHONES, |node, _| match node {
            Any::Phones(phones) => ask(phones),
            Any::Gateway(_) | Any::B2b(_) => panic!("no phones"),
        });
        asked.unwrap()
    }

    fn beats(&mut self) -> usize {
        self.b2b(|b2b, _| b2b.beats)
    }
}

enum Any {
    Gateway(Box<Mediagate>),
    B2b(Box<B2b>),
    Phones(Phones),
}

/// As much of a b2b as a gateway needs.
struct B2b {
    lessee: Lessee,
    hears: bool,
    hear_at: Instant,
    beats: usize,
    welcomes: Vec<Welcome>,
    notices: Vec<Notice>,
    outputs: VecDeque<Output>,
}

impl B2b {
    fn new(start: &Start) -> Self {
        let beat = SocketAddr::new(GATEWAY_IP, 7231);
        let local = ([10, 0, 0, 2], 0).into();
        Self {
            lessee: Lessee::new(None),
            hears: true,
            hear_at: start.instant,
            beats: 0,
            welcomes: Vec::new(),
            notices: Vec::new(),
            outputs: [Output::Bind { socket: SocketId(0), local, peer: Some(beat) }].into(),
        }
    }

    fn send<F: Frame>(&mut self, frame: &F) {
        let (kind, payload) = (F::KIND, codec::encode(frame));
        let class = Class::Calls;
        self.outputs.push_back(Output::Frame { peer: GATEWAY, class, kind, payload });
    }

    fn frame(&mut self, now: Instant, kind: u16, payload: &[u8]) {
        match kind {
            Welcome::KIND => {
                let welcome: Welcome = codec::decode(payload).unwrap();
                self.welcomes.push(welcome.clone());
                self.lessee.handle_input(now, LesseeInput::Welcome(welcome));
            }
            Leased::KIND => {
                let leased = codec::decode(payload).unwrap();
                self.lessee.handle_input(now, LesseeInput::Leased(leased));
            }
            Failed::KIND => self.notices.push(Notice::Failed(codec::decode(payload).unwrap())),
            DigestDiffers::KIND => {
                self.notices.push(Notice::DigestDiffers(codec::decode(payload).unwrap()));
            }
            _ => {}
        }
    }

    fn settle(&mut self) {
        while let Some(output) = self.lessee.poll_output() {
            match output {
                LesseeOutput::Inherit(inherit) => self.send(&inherit),
                LesseeOutput::Lease(lease) => self.send(&lease),
                LesseeOutput::Return(returned) => self.send(&returned),
            }
        }
    }
}

struct Phones {
    heard: Vec<(u32, Bytes)>,
    outputs: VecDeque<Output>,
}

impl Phones {
    fn new() -> Self {
        let bind = |phone: u16| {
            let local = ([10, 0, 0, 90], 4000 + 10 * phone).into();
            Output::Bind { socket: SocketId(phone.into()), local, peer: None }
        };
        Self { heard: Vec::new(), outputs: [bind(0), bind(1)].into() }
    }
}

impl Node for Any {
    fn handle_input(&mut self, now: Instant, input: Input) {
        match (self, input) {
            (Self::Gateway(gateway), input) => gateway.handle_input(now, input),
            (Self::B2b(b2b), Input::Frame { kind, payload, .. }) => b2b.frame(now, kind, &payload),
            (Self::B2b(b2b), Input::Datagram { bytes, .. }) => {
                b2b.beats += usize::from(Beat::decode(&bytes).is_some());
            }
            (Self::B2b(b2b), Input::LinkDown { .. }) => {
                b2b.lessee.handle_input(now, LesseeInput::LinkDown);
            }
            (Self::Phones(phones), Input::Datagram { socket, bytes, .. }) => {
                phones.heard.push((socket.0, bytes));
            }
            (Self::B2b(_) | Self::Phones(_), _) => {}
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        match self {
            Self::Gateway(gateway) => gateway.handle_timeout(now),
            Self::B2b(b2b) => {
                b2b.lessee.handle_timeout(now);
                if b2b.hear_at <= now {
                    b2b.hear_at = now + 100 * MS;
                    if b2b.hears {
                        let hear = Hear { hearer: B2B.0, realtime: false }.encode();
                        let to = SocketAddr::new(GATEWAY_IP, 7231);
                        let bytes = Bytes::copy_from_slice(&hear);
                        b2b.outputs.push_back(Output::Datagram { socket: SocketId(0), to, bytes });
                    }
                }
            }
            Self::Phones(_) => {}
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        match self {
            Self::Gateway(gateway) => gateway.poll_output(),
            Self::B2b(b2b) => {
                b2b.settle();
                b2b.outputs.pop_front()
            }
            Self::Phones(phones) => phones.outputs.pop_front(),
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Gateway(gateway) => gateway.poll_timeout(),
            Self::B2b(b2b) => b2b.lessee.poll_timeout().into_iter().chain([b2b.hear_at]).min(),
            Self::Phones(_) => None,
        }
    }

    fn metrics(&self, out: &mut Metrics) {
        if let Self::Gateway(gateway) = self {
            gateway.metrics(out);
        }
    }
}

fn leg(port: u16, phone: u16) -> LegSpec {
    LegSpec {
        port,
        remote: Some(([10, 0, 0, 90], 4000 + 10 * phone).into()),
        remote_rtcp: None,
        payload_types: vec![8],
        held: false,
        nat: false,
        latched: None,
    }
}

fn rtp(seq: u8) -> Bytes {
    let mut packet = vec![0x80, 8, 0, seq, 0, 0, 0, 0, 0, 0, 0, 9];
    packet.extend([0x55; 160]);
    packet.into()
}

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
