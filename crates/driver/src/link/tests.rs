//! Links with real sockets and a time of the test's own.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::codec;
use crate::frame::{
    Frame, HELLO_V1, HelloV1, KEEPALIVE as KEEPALIVE_KIND, PAYLOAD_MAX, VERSION, header,
};
use crate::patience::KEEPALIVE;
use crate::run::clock;

mod secure;

const LISTENER_TOKEN: u64 = u64::MAX;
const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

#[test]
fn a_link_is_up_after_both_hellos() {
    let mut end = End::new(1);
    let mut peer = Peer::dial(&end);
    peer.say(HELLO_V1, &hello(2, 5));
    assert_eq!(end.next(), up(2, 5));
    let frame = peer.hear();
    assert_eq!(frame.kind, HELLO_V1);
    let hello: HelloV1 = codec::decode(&frame.payload).unwrap();
    assert_eq!((hello.node, hello.boot, hello.class), (1, 77, 1));

    peer.say(0x101, b"frame");
    let payload = Bytes::from_static(b"frame");
    let (peer, class) = (NodeId(2), Class::Calls);
    assert_eq!(end.next(), Input::Frame { peer, class, kind: 0x101, payload });
}

#[test]
fn frames_of_the_links_own_that_are_not_known_are_skipped() {
    let mut end = End::new(1);
    let mut peer = Peer::up(&mut end, 2, 5);
    peer.say(0x00ff, b"from next year");
    peer.say(0x101, b"");
    assert!(matches!(end.next(), Input::Frame { kind: 0x101, .. }));
    assert_eq!(end.links.counters.unknown, 1);
}

#[test]
fn a_silent_link_closes_and_keep_alives_come_before() {
    let mut end = End::new(1);
    let mut peer = Peer::up(&mut end, 2, 5);
    end.now += KEEPALIVE;
    end.turn();
    assert_eq!(peer.hear().kind, KEEPALIVE_KIND);
    end.now += SILENCE_MAX - KEEPALIVE;
    assert_eq!(end.next(), down(2));
}

#[test]
fn a_keep_alive_of_the_peer_is_no_silence() {
    let mut end = End::new(1);
    let mut peer = Peer::up(&mut end, 2, 5);
    for _ in 0..20 {
        end.now += KEEPALIVE;
        peer.say(KEEPALIVE_KIND, b"");
        let before = end.links.counters.bytes_in;
        while end.links.counters.bytes_in == before {
            end.turn();
        }
    }
    peer.say(0x101, b"");
    assert!(matches!(end.next(), Input::Frame { .. }));
}

#[test]
fn those_who_say_nothing_keep_nobody_out() {
    let mut end = End::new(1);
    let mut mute = Vec::new();
    for count in 1..=STRANGERS_MAX {
        mute.push(Peer::dial(&end));
        while end.links.connections.len() < count {
            end.turn();
        }
    }
    let _peer = Peer::up(&mut end, 2, 5);
    assert_eq!(end.links.connections.len(), STRANGERS_MAX);
    assert_eq!(end.links.faults.of("crowded"), 1);
    let _other = Peer::up(&mut end, 3, 5);
    assert_eq!(end.links.faults.of("crowded"), 1, "a link is no stranger");
}

#[test]
fn whoever_says_nothing_is_not_kept() {
    let mut end = End::new(1);
    let mut peer = Peer::dial(&end);
    while end.links.connections.is_empty() {
        end.turn();
    }
    end.now += GREETING_MAX;
    end.turn();
    peer.hear_end();
}

#[test]
fn a_second_process_with_an_earlier_boot_is_refused() {
    let mut end = End::new(1);
    let mut peer = Peer::up(&mut end, 2, 5);
    let mut duplicate = Peer::dial(&end);
    duplicate.say(HELLO_V1, &hello(2, 4));
    end.turn_until_closed(&mut duplicate);
    peer.say(0x101, b"");
    assert!(matches!(end.next(), Input::Frame { .. }));
}

#[test]
fn a_later_boot_replaces_the_links_of_the_one_before() {
    let mut end = End::new(1);
    let _peer = Peer::up(&mut end, 2, 5);
    let mut new = Peer::dial(&end);
    new.say(HELLO_V1, &hello(2, 6));
    assert_eq!(end.next(), down(2));
    assert_eq!(end.next(), up(2, 6));
}

#[test]
fn our_own_id_is_refused() {
    let mut end = End::new(1);
    let mut peer = Peer::dial(&end);
    peer.say(HELLO_V1, &hello(1, 5));
    end.turn_until_closed(&mut peer);
}

#[test]
fn a_peer_that_speaks_later_versions_only_is_refused_by_name() {
    let mut end = End::new(1);
    let mut peer = Peer::dial(&end);
    let role = "peer".into();
    let theirs = HelloV1 { node: 2, role, boot: 5, class: 1, version_min: 2, version_max: 3 };
    peer.say(HELLO_V1, &codec::encode(&theirs));
    end.turn_until_closed(&mut peer);
    assert_eq!(end.links.faults.of("no_common_version"), 1);
    assert_eq!(end.links.poll_event(), None);
}

#[test]
fn two_that_dial_each_other_end_with_one_link() {
    let mut ends = [End::new(1), End::new(2)];
    let addrs = ends.each_ref().map(|end| end.links.listens_on().unwrap());
    for (end, (peer, addr)) in ends.iter_mut().zip([(2, addrs[1]), (1, addrs[0])]) {
        end.dial(peer, addr);
    }
    let mut up = [0, 0];
    let mut quiet = 0;
    while quiet < 200 {
        quiet += 1;
        for (end, up) in ends.iter_mut().zip(&mut up) {
            end.now += Duration::from_millis(1);
            end.turn();
            while let Some(input) = end.links.poll_event() {
                quiet = 0;
                let is_down = matches!(input, Input::LinkDown { .. });
                assert!(is_down || matches!(input, Input::LinkUp { .. }));
                *up += if is_down { -1 } else { 1 };
            }
        }
    }
    assert_eq!(up, [1, 1]);
}

#[test]
fn a_peer_that_does_not_read_congests_its_queue_and_nothing_else() {
    let mut end = End::new(1);
    let mut peer = Peer::up(&mut end, 2, 5);
    let payload = vec![0; 10_000];
    let mut sent = 0;
    while end.links.is_flushed() {
        end.links.send(end.now, NodeId(2), Class::Calls, 0x101, &payload);
        sent += 1;
        end.turn();
        assert!(sent < 10_000, "the kernel's buffers are bounded");
    }
    end.now += Duration::from_millis(99);
    end.turn();
    assert_eq!(end.links.poll_event(), None);
    end.now += Duration::from_millis(1);
    let congested = |on| Input::Congested { peer: NodeId(2), class: Class::Calls, on };
    assert_eq!(end.next(), congested(true));

    peer.stream.set_nonblocking(true).unwrap();
    let mut sink = vec![0; 1 << 20];
    while !end.links.is_flushed() {
        let _ = peer.stream.read(&mut sink);
        end.turn();
    }
    assert_eq!(end.next(), congested(false));
    assert_eq!(end.links.counters.frames_out, sent);
    assert_eq!(end.links.counters.dropped_old, 0);
}

#[test]
fn a_queue_that_nobody_reads_drops_its_old_frames_and_stays_bounded() {
    let mut end = End::new(1);
    let mut peer = Peer::up(&mut end, 2, 5);
    let payload = vec![0; PAYLOAD_MAX];
    for _ in 0..40 {
        end.links.send(end.now, NodeId(2), Class::Calls, 0x101, &payload);
        end.turn();
    }
    assert!(0 < end.links.counters.dropped_full);
    assert!(matches!(end.next(), Input::Congested { on: true, .. }));
    peer.say(KEEPALIVE_KIND, b"");
    end.now += crate::queue::AGE_MAX;
    end.turn();
    end.turn();
    assert!(0 < end.links.counters.dropped_old);
    assert_eq!(end.links.poll_event(), None);
}

#[test]
fn addresses_that_need_tls_are_refused_with_a_remedy() {
    let config = LinksConfig { listen: Some(ANY), ..LinksConfig::default() };
    let error = config.check(NodeId(1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "links of 127.0.0.1:0 need TLS; between loopback addresses they can be `Security::Plaintext`"
    );
    let security = Security::Plaintext;
    let addr = "192.0.2.1:1".parse().unwrap();
    let listen = LinksConfig { listen: Some(addr), security, ..LinksConfig::default() };
    let security = Security::Plaintext;
    let dial = |peer| Dial { peer: NodeId(peer), addr, classes: vec![Class::Calls] };
    let dials = LinksConfig { dial: vec![dial(2)], security, ..LinksConfig::default() };
    for config in [listen, dials.clone()] {
        assert!(matches!(config.check(NodeId(1)), Err(LinksError::NeedsTls(_))));
    }
    assert!(matches!(dials.check(NodeId(2)), Err(LinksError::DialsItself(NodeId(2)))));
    assert!(LinksConfig::default().check(NodeId(1)).is_ok());
}

#[test]
fn strangers_and_nodes_at_another_address_are_refused() {
    let elsewhere = "127.0.0.9".parse().unwrap();
    let mut end = End::new(1);
    end.links.peers = Some(BTreeMap::from([(NodeId(2), None), (NodeId(3), Some(elsewhere))]));
    for (node, boot) in [(0, 5), (1, 5), (3, 5), (4, 5)] {
        let mut peer = Peer::dial(&end);
        peer.say(HELLO_V1, &hello(node, boot));
        end.turn_until_closed(&mut peer);
    }
    let _known = Peer::up(&mut end, 2, 5);
    end.links.peers = None;
    let _anybody = Peer::up(&mut end, 4, 5);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_close_the_link_or_wait_for_more_but_never_panic(
        pieces in prop::collection::vec(piece(), 0..6),
        greets in any::<bool>(),
    ) {
        let mut end = End::new(1);
        let mut peer = if greets { Peer::up(&mut end, 2, 5) } else { Peer::dial(&end) };
        // The end may have closed already.
        let _ = peer.stream.write_all(&pieces.concat());
        let _ = peer.stream.shutdown(std::net::Shutdown::Write);
        while end.links.counters.reads == 0 || !end.links.connections.is_empty() {
            end.turn();
        }
        while let Some(input) = end.links.poll_event() {
            if let Input::Frame { kind, payload, .. } = input {
                prop_assert!(crate::frame::KIND_FIRST <= kind && payload.len() <= PAYLOAD_MAX);
            } else {
                let is_link = matches!(input, Input::LinkUp { .. } | Input::LinkDown { .. });
                prop_assert!(is_link);
            }
        }
    }
}

#[test]
fn a_fault_closes_the_link_at_once() {
    let too_long = header(u32::MAX, VERSION, 0x101).to_vec();
    let version = header(0, 9, 0x101).to_vec();
    let second_hello = said(HELLO_V1, &hello(2, 5));
    for (bytes, why) in [(too_long, "too_long"), (version, "version"), (second_hello, "no_hello")] {
        let mut end = End::new(1);
        let mut peer = Peer::up(&mut end, 2, 5);
        peer.stream.write_all(&bytes).unwrap();
        assert_eq!(end.next(), down(2));
        assert_eq!((end.links.faults.total(), end.links.faults.of(why)), (1, 1), "{why}");
    }
}

/// Random bytes, and frames that are nearly right.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        (any::<u16>(), prop::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(kind, payload)| said(kind, &payload)),
        (any::<u32>(), 0..3_u16, 0..4_u16)
            .prop_map(|(len, version, kind)| { header(len, version, kind).to_vec() }),
        (any::<u16>(), any::<u64>()).prop_map(|(node, boot)| said(HELLO_V1, &hello(node, boot))),
    ]
}

/// Links and the time at which they are.
struct End {
    links: Links,
    poller: Rc<Poller>,
    now: Instant,
}

impl End {
    fn new(node: u16) -> Self {
        Self::with(node, Security::Plaintext)
    }

    fn with(node: u16, security: Security) -> Self {
        let poller = Rc::new(Poller::new().unwrap());
        let config = LinksConfig { listen: Some(ANY), security, ..LinksConfig::default() };
        let identity = Identity { node: NodeId(node), role: "test".into(), boot: 77 };
        let now = clock();
        let links = Links::new(&config, identity, now, poller.clone(), LISTENER_TOKEN).unwrap();
        Self { links, poller, now }
    }

    fn dial(&mut self, peer: u16, addr: SocketAddr) {
        self.links.targets.push(Target {
            peer: NodeId(peer),
            addr,
            class: Class::Calls,
            backoff: BACKOFF_MIN,
            state: TargetState::Waiting { dial_at: self.now },
        });
        self.links.look_at = self.now;
    }

    /// One turn of a loop that does not wait.
    fn turn(&mut self) {
        let mut ready = Vec::new();
        self.poller.wait(Some(Duration::ZERO), &mut ready).unwrap();
        for (token, flags) in ready {
            match token {
                LISTENER_TOKEN => self.links.accept(self.now),
                HANDSHAKES_TOKEN => self.links.handshaken(self.now),
                id => self.links.ready(self.now, id, flags),
            }
        }
        self.links.handle_timeout(self.now);
        assert!(self.now < self.links.poll_timeout());
        self.links.flush(self.now);
    }

    fn next(&mut self) -> Input {
        let until = clock() + Duration::from_secs(20);
        loop {
            if let Some(input) = self.links.poll_event() {
                return input;
            }
            self.turn();
            assert!(clock() < until, "nothing happens");
        }
    }

    fn turn_until_closed(&mut self, peer: &mut Peer) {
        let faults = self.links.faults.total();
        while self.links.faults.total() == faults {
            self.turn();
        }
        peer.hear_end();
    }
}

/// The other end, byte by byte.
struct Peer {
    stream: TcpStream,
}

impl Peer {
    fn dial(end: &End) -> Self {
        let stream = TcpStream::connect(end.links.listens_on().unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { stream }
    }

    fn up(end: &mut End, node: u16, boot: u64) -> Self {
        let mut peer = Self::dial(end);
        peer.say(HELLO_V1, &hello(node, boot));
        assert_eq!(end.next(), up(node, boot));
        end.turn();
        assert_eq!(peer.hear().kind, HELLO_V1);
        peer
    }

    fn say(&mut self, kind: u16, payload: &[u8]) {
        self.stream.write_all(&said(kind, payload)).unwrap();
    }

    fn hear(&mut self) -> Frame {
        let mut bytes = [0; 8];
        self.stream.read_exact(&mut bytes).unwrap();
        let [a, b, c, d, e, f, g, h] = bytes;
        let mut payload = vec![0; u32::from_be_bytes([a, b, c, d]) as usize];
        self.stream.read_exact(&mut payload).unwrap();
        Frame {
            version: u16::from_be_bytes([e, f]),
            kind: u16::from_be_bytes([g, h]),
            payload: payload.into(),
        }
    }

    /// Nothing more comes: an end or a reset.
    fn hear_end(&mut self) {
        assert!(!matches!(self.stream.read(&mut [0; 8]), Ok(1..)));
    }
}

fn said(kind: u16, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap();
    [&header(len, VERSION, kind)[..], payload].concat()
}

fn hello(node: u16, boot: u64) -> Bytes {
    let role = "peer".into();
    codec::encode(&HelloV1 { node, role, boot, class: 1, version_min: 1, version_max: 1 })
}

fn up(node: u16, boot: u64) -> Input {
    Input::LinkUp { peer: NodeId(node), class: Class::Calls, boot }
}

fn down(node: u16) -> Input {
    Input::LinkDown { peer: NodeId(node), class: Class::Calls }
}
