use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::*;
use crate::beat::{Beat, Hear};
use crate::frame::{FailReason, Failed};

#[test]
fn two_phones_hear_each_other_and_no_stranger() {
    let gateway = Gateway::start([127, 9, 0, 1]);
    let (one, other, stranger) = (phone(), phone(), phone());
    gateway.open(1, [(20_000, &one), (20_002, &other)]);

    one.send_to(&rtp(1), gateway.at(20_000)).unwrap();
    assert_eq!(receive(&other), (rtp(1), gateway.at(20_002)));
    other.send_to(&rtp(7), gateway.at(20_002)).unwrap();
    assert_eq!(receive(&one), (rtp(7), gateway.at(20_000)));

    // Both sockets are connected by now: the kernel keeps the stranger out.
    stranger.send_to(&rtp(9), gateway.at(20_000)).unwrap();
    one.send_to(&rtp(2), gateway.at(20_000)).unwrap();
    assert_eq!(receive(&other), (rtp(2), gateway.at(20_002)));
}

#[test]
fn reports_travel_on_the_next_port() {
    let gateway = Gateway::start([127, 9, 0, 2]);
    let (one, other) = (phone(), phone());
    let report = [0x80, 200, 0, 1, 0, 0, 0, 9];
    let rtcp = UdpSocket::bind(next_port(&one)).unwrap();
    gateway.open(1, [(20_000, &one), (20_002, &other)]);
    let heard = UdpSocket::bind(next_port(&other)).unwrap();
    heard.set_read_timeout(Some(DEADLINE)).unwrap();

    rtcp.send_to(&report, gateway.at(20_001)).unwrap();
    assert_eq!(receive(&heard), (report.to_vec(), gateway.at(20_003)));
}

#[test]
fn a_closed_call_gives_its_ports_back_to_the_system() {
    let gateway = Gateway::start([127, 9, 0, 3]);
    let (one, other) = (phone(), phone());
    gateway.open(1, [(20_000, &one), (20_002, &other)]);
    assert!(UdpSocket::bind(gateway.at(20_000)).is_err());

    gateway.workers.send(0, WorkerCommand::Close { call: CallId(1) }).unwrap();
    gateway.await_legs(0);

    for port in 20_000..20_004 {
        UdpSocket::bind(gateway.at(port)).unwrap();
    }
}

#[test]
fn a_port_that_somebody_else_has_fails_its_call_and_no_other() {
    let gateway = Gateway::start([127, 9, 0, 4]);
    let (one, other) = (phone(), phone());
    gateway.open(1, [(20_000, &one), (20_002, &other)]);
    let _taken = UdpSocket::bind(gateway.at(20_007)).unwrap();

    gateway.apply(2, [(20_004, &one), (20_006, &other)]);
    gateway.woken.recv_timeout(DEADLINE).unwrap();
    let failed = Failed { call: CallId(2), epoch: 1, leg: 1, reason: FailReason::PortInUse };
    assert_eq!(gateway.workers.poll(), Some(Notice::Failed(failed)));

    one.send_to(&rtp(1), gateway.at(20_000)).unwrap();
    assert_eq!(receive(&other).0, rtp(1));
    UdpSocket::bind(gateway.at(20_004)).unwrap();
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a real worker is measured")]
fn a_phone_that_was_silent_may_come_back_from_another_port() {
    let gateway = Gateway::start([127, 9, 0, 5]);
    let (one, other, rebound) = (phone(), phone(), phone());
    gateway.open(1, [(20_000, &one), (20_002, &other)]);
    let before = Instant::now();
    one.send_to(&rtp(1), gateway.at(20_000)).unwrap();
    receive(&other);

    // The stream goes on from the new port at its own pace.
    rebound.connect(gateway.at(20_000)).unwrap();
    other.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let heard = (2..200).find(|seq| {
        // A refusal is of no interest: the port is still connected to the old source.
        let _ = rebound.send(&rtp(*seq));
        other.recv_from(&mut [0; 64]).is_ok()
    });
    assert!(heard.is_some());
    assert!(Duration::from_millis(500) <= before.elapsed());
}

#[test]
fn beats_come_to_whoever_asks_and_say_what_the_gateway_carries() {
    let gateway = Gateway::start([127, 9, 0, 6]);
    let (one, other) = (phone(), phone());
    gateway.open(1, [(20_000, &one), (20_002, &other)]);

    let first = gateway.beat();
    let next = gateway.beat();
    assert_eq!((first.gateway, first.boot, first.legs, first.legs_max), (31, 5, 2, 100));
    assert!(first.seq < next.seq);
}

#[test]
fn a_dead_gateway_refuses_its_hearers() {
    let gateway = Gateway::start([127, 9, 0, 7]);
    gateway.beat();

    let hearer = gateway.hearer.try_clone().unwrap();
    drop(gateway);
    let refused = std::iter::repeat_with(|| {
        // A refusal may also come back from sending; the next one brings another.
        let _ = hearer.send(&Hear { hearer: 1, realtime: false }.encode());
        hearer.recv(&mut [0; 64])
    })
    // What was sent before is still there to be read.
    .find_map(Result::err);
    assert_eq!(refused.map(|error| error.kind()), Some(io::ErrorKind::ConnectionRefused));
}

struct Gateway {
    workers: Workers,
    woken: Receiver<()>,
    hearer: UdpSocket,
    ip: IpAddr,
}

impl Gateway {
    /// Each test has an address of its own, so that no two share a port.
    fn start(ip: [u8; 4]) -> Self {
        let ip = IpAddr::from(Ipv4Addr::from(ip));
        let config = WorkersConfig {
            workers: 1,
            listen: ip,
            beat: SocketAddr::new(ip, 7231),
            hearers: vec!["127.0.0.0/8".parse().unwrap()],
            gateway: 31,
            boot: 5,
            standby: false,
            legs_max: 100,
            realtime: false,
            relay: RelayConfig {
                ports: 20_000..=20_199,
                addresses: vec![ip],
                silence_max: Duration::from_secs(60),
            },
        };
        let (wake, woken) = channel();
        let wake = move || wake.send(()).unwrap_or_default();
        let workers = Workers::start(config, wake, |_| ()).unwrap();
        let hearer = phone();
        hearer.connect(workers.beat_addr().unwrap()).unwrap();
        Self { workers, woken, hearer, ip }
    }

    fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.ip, port)
    }

    fn open(&self, call: u64, legs: [(u16, &UdpSocket); 2]) {
        self.apply(call, legs);
        self.await_legs(2);
    }

    fn apply(&self, call: u64, legs: [(u16, &UdpSocket); 2]) {
        let legs = legs.map(|(port, phone)| LegSpec {
            port,
            remote: Some(phone.local_addr().unwrap()),
            remote_rtcp: None,
            payload_types: vec![8],
            held: false,
            nat: false,
            latched: None,
        });
        let call = CallId(call);
        self.workers
            .send(0, WorkerCommand::Apply { call, epoch: 1, legs: Box::new(legs) })
            .unwrap();
    }

    /// Waits for a beat that says so.
    fn await_legs(&self, legs: u32) {
        while self.beat().legs != legs {}
    }

    fn beat(&self) -> Beat {
        self.hearer.send(&Hear { hearer: 1, realtime: false }.encode()).unwrap();
        Beat::decode(&receive(&self.hearer).0).unwrap()
    }
}

fn phone() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    socket
}

fn next_port(phone: &UdpSocket) -> SocketAddr {
    let mut addr = phone.local_addr().unwrap();
    addr.set_port(addr.port() + 1);
    addr
}

fn receive(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut bytes = [0; 2048];
    let (len, from) = socket.recv_from(&mut bytes).unwrap();
    (bytes[..len].to_vec(), from)
}

fn rtp(seq: u8) -> Vec<u8> {
    let mut packet = vec![0x80, 8, 0, seq, 0, 0, 0, 0, 0, 0, 0, 9];
    packet.extend([0x55; 160]);
    packet
}

const DEADLINE: Duration = Duration::from_secs(30);
