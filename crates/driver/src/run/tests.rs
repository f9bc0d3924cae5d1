//! The loop with real sockets on loopback. Every wait ends with what is
//! waited for, or fails after a time that only a broken loop needs.

use std::net::UdpSocket;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::Waker;
use std::thread::JoinHandle;

use bytes::Bytes;

use super::*;
use crate::link::{Dial, Security};
use crate::node::{BindError, Class};

mod streams;

const PATIENCE: Duration = Duration::from_secs(20);
const SOCKET: SocketId = SocketId(7);
const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

#[test]
fn a_datagram_comes_in_and_its_answer_goes_out() {
    let node = Remote::start(config(1));
    let local = node.bind(None);
    let phone = phone();
    phone.send_to(b"hello", local).unwrap();
    let Input::Datagram { socket, from, bytes } = node.next() else { panic!("no datagram") };
    assert_eq!((socket, from, &bytes[..]), (SOCKET, phone.local_addr().unwrap(), &b"hello"[..]));

    node.order(Output::Datagram { socket: SOCKET, to: from, bytes: Bytes::from_static(b"hi") });
    assert_eq!(receive(&phone), b"hi");
}

#[test]
fn every_datagram_of_many_arrives_even_an_empty_one() {
    let node = Remote::start(config(1));
    let local = node.bind(None);
    let phone = phone();
    for index in 0..200_u8 {
        phone.send_to(&vec![index; usize::from(index)], local).unwrap();
    }
    for index in 0..200_u8 {
        let Input::Datagram { bytes, .. } = node.next() else { panic!("no datagram") };
        assert_eq!(bytes, vec![index; usize::from(index)]);
    }
}

#[test]
fn a_datagram_that_cannot_be_sent_takes_no_other_with_it() {
    let node = Remote::start(config(1));
    node.bind(None);
    let phone = phone();
    let to = phone.local_addr().unwrap();
    let send = |to, text| Output::Datagram { socket: SOCKET, to, bytes: Bytes::from_static(text) };
    let nowhere = SocketAddr::new(to.ip(), 0);
    let other_family = "[::1]:9".parse().unwrap();
    node.orders([send(to, b"a"), send(nowhere, b"b"), send(other_family, b"c"), send(to, b"d")]);
    assert_eq!(receive(&phone), b"a");
    assert_eq!(receive(&phone), b"d");
}

#[test]
fn a_connected_socket_learns_that_nobody_listens() {
    let node = Remote::start(config(1));
    let gone = phone().local_addr().unwrap();
    node.bind(Some(gone));
    node.order(Output::Datagram { socket: SOCKET, to: gone, bytes: Bytes::from_static(b"?") });
    assert_eq!(node.next(), Input::Refused { socket: SOCKET });
}

#[test]
fn an_address_that_cannot_be_bound_is_said_with_its_reason() {
    let node = Remote::start(config(1));
    let local = node.bind(None);
    let bind = |socket, local| Output::Bind { socket, local, peer: None };
    let failed = |socket, error| Input::BindFailed { socket, error };

    node.order(bind(SOCKET, ANY));
    assert_eq!(node.next(), failed(SOCKET, BindError::InUse));
    node.order(bind(SocketId(8), local));
    assert_eq!(node.next(), failed(SocketId(8), BindError::InUse));
    node.order(bind(SocketId(8), "192.0.2.1:0".parse().unwrap()));
    assert_eq!(node.next(), failed(SocketId(8), BindError::NotHere));

    node.orders([Output::Unbind { socket: SOCKET }, bind(SOCKET, local)]);
    assert_eq!(node.next(), Input::Bound { socket: SOCKET, local });
}

#[test]
fn what_was_said_before_a_socket_is_closed_is_sent() {
    let node = Remote::start(config(1));
    node.bind(None);
    let phone = phone();
    let (to, bytes) = (phone.local_addr().unwrap(), Bytes::from_static(b"bye"));
    node.orders([
        Output::Datagram { socket: SOCKET, to, bytes },
        Output::Unbind { socket: SOCKET },
    ]);
    assert_eq!(receive(&phone), b"bye");
}

#[test]
fn two_nodes_link_up_and_a_new_boot_links_up_again() {
    let listener = Remote::start(config(1));
    let dial = |node| {
        let mut config = config(node);
        config.links.dial = vec![Dial {
            peer: NodeId(1),
            addr: listener.listens_on,
            classes: vec![Class::Calls, Class::Control],
        }];
        config
    };
    let dialler = Remote::start(dial(2));
    for node in [&listener, &dialler] {
        let mut classes: Vec<_> = (0..2).map(|_| node.next()).map(|input| up(&input)).collect();
        classes.sort();
        assert_eq!(classes, [Class::Control, Class::Calls]);
    }

    let frame = |peer, class, kind| {
        let payload = Bytes::from(vec![9; 70_000]);
        Output::Frame { peer: NodeId(peer), class, kind, payload }
    };
    for kind in 0x101..0x120 {
        dialler.order(frame(1, Class::Calls, kind));
        listener.order(frame(2, Class::Control, kind));
    }
    for (node, from, on) in [(&listener, 2, Class::Calls), (&dialler, 1, Class::Control)] {
        for expected in 0x101..0x120 {
            let Input::Frame { peer, class, kind, payload } = node.next() else {
                panic!("no frame")
            };
            assert_eq!((peer, class, kind), (NodeId(from), on, expected));
            assert_eq!(payload.len(), 70_000);
        }
    }

    dialler.stop();
    for _ in 0..2 {
        assert!(matches!(listener.next(), Input::LinkDown { peer: NodeId(2), .. }));
    }
    let _dialler = Remote::start(dial(2));
    for _ in 0..2 {
        up(&listener.next());
    }
}

#[test]
fn a_frame_said_with_the_stop_still_arrives() {
    let listener = Remote::start(config(1));
    let mut config = config(2);
    let classes = vec![Class::Bulk];
    config.links.dial = vec![Dial { peer: NodeId(1), addr: listener.listens_on, classes }];
    let dialler = Remote::start(config);
    up(&listener.next());
    up(&dialler.next());

    let payload = Bytes::from(vec![1; 900_000]);
    dialler.orders([
        Output::Frame { peer: NodeId(1), class: Class::Bulk, kind: 0x401, payload },
        Output::Stop(StopReason::Drained),
    ]);
    assert!(matches!(listener.next(), Input::Frame { kind: 0x401, .. }));
}

#[test]
fn a_node_is_told_that_its_line_is_written() {
    let node = Remote::start(config(1));
    // Here nobody logs, and so nobody wants it.
    node.order(Output::Write { number: 7, line: "a line".into() });
    assert_eq!(node.next(), Input::Written { number: 7 });
}

#[test]
fn a_line_that_has_a_folder_lies_there_before_the_node_is_told_and_one_without_room_comes_back() {
    let name = format!("holdline-journal-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let node = Remote::start(RunConfig { journal: Some(folder.join("details")), ..config(1) });
    let line = |number: u64| Output::Write { number, line: format!("{{\"call\":\"{number}\"}}") };
    node.order(line(7));
    assert_eq!(node.next(), Input::Written { number: 7 });
    let text = std::fs::read_to_string(folder.join("details/000000000001.jsonl")).unwrap();
    assert_eq!(text, "{\"call\":\"7\"}\n");

    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::write(&folder, "a file is in the way").unwrap();
    let other = Remote::start(RunConfig { journal: Some(folder.join("details")), ..config(2) });
    other.order(line(8));
    assert_eq!(other.next(), Input::Unwritten { number: 8 });
    std::fs::remove_file(&folder).unwrap();
    other.order(line(8));
    assert_eq!(other.next(), Input::Written { number: 8 });
    drop(other);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_node_that_gives_up_ends_the_loop_with_its_reason() {
    let node = Remote::start(config(1));
    node.order(Output::Stop(StopReason::Failed("no mediagate".into())));
    let error = node.thread.join().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "no mediagate");
}

#[test]
fn a_timer_of_less_than_a_millisecond_is_no_timer_of_none() {
    let node = Remote::start(config(1));
    node.tick.send(Duration::from_micros(300)).unwrap();
    node.waker.wake_by_ref();
    let (turns, ticks) = node.ticked.recv_timeout(PATIENCE).unwrap();
    // One turn a tick, and a few for the orders: it neither spins nor oversleeps.
    assert!((ticks..ticks + 20).contains(&turns), "{turns} turns for {ticks} ticks");
}

/// A node in a thread of its own that does what the test says and tells the
/// test what it is told.
struct Remote {
    told: Receiver<Input>,
    orders: Sender<Output>,
    tick: Sender<Duration>,
    ticked: Receiver<(u32, u32)>,
    waker: Waker,
    listens_on: SocketAddr,
    thread: JoinHandle<Result<(), RunError>>,
}

struct Probe {
    told: Sender<Input>,
    orders: Receiver<Output>,
    tick: Receiver<Duration>,
    ticked: Sender<(u32, u32)>,
    period: Duration,
    tick_at: Option<Instant>,
    ticks: u32,
    polls: std::cell::Cell<u32>,
}

impl Node for Probe {
    fn handle_input(&mut self, now: Instant, input: Input) {
        if input != Input::Woken {
            // The test may have seen enough.
            let _ = self.told.send(input);
        } else if let Ok(period) = self.tick.try_recv() {
            self.period = period;
            self.tick_at = Some(now + period);
            self.polls.set(0);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.tick_at = self.tick_at.filter(|&at| now < at);
        if self.tick_at.is_none() && self.ticks < 100 {
            self.ticks += 1;
            self.tick_at = Some(now + self.period);
            if self.ticks == 100 {
                let _ = self.ticked.send((self.polls.get() / 2, self.ticks));
                self.tick_at = None;
            }
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.orders.try_recv().ok()
    }

    /// The loop asks twice a turn.
    fn poll_timeout(&self) -> Option<Instant> {
        self.polls.set(self.polls.get() + 1);
        self.tick_at
    }

    fn metrics(&self, _out: &mut Metrics) {}
}

impl Remote {
    fn start(config: RunConfig) -> Self {
        let (to_test, told) = channel();
        let (orders, from_test) = channel();
        let (tick, ticks) = channel();
        let (to_ticked, ticked) = channel();
        let (to_handle, handle) = channel();
        let thread = std::thread::spawn(move || {
            let mut waker = Waker::noop().clone();
            let mut running = Loop::new(&config, |start| {
                waker = start.waker;
                Probe {
                    told: to_test,
                    orders: from_test,
                    tick: ticks,
                    ticked: to_ticked,
                    period: Duration::ZERO,
                    tick_at: None,
                    ticks: 0,
                    polls: std::cell::Cell::new(0),
                }
            })?;
            to_handle.send((waker, running.listens_on().unwrap())).unwrap();
            running.run()
        });
        let (waker, listens_on) = handle.recv_timeout(PATIENCE).unwrap();
        Self { told, orders, tick, ticked, waker, listens_on, thread }
    }

    fn next(&self) -> Input {
        self.told.recv_timeout(PATIENCE).expect("the node is told something")
    }

    fn order(&self, output: Output) {
        self.orders([output]);
    }

    fn orders<const N: usize>(&self, outputs: [Output; N]) {
        for output in outputs {
            self.orders.send(output).unwrap();
        }
        self.waker.wake_by_ref();
    }

    fn bind(&self, peer: Option<SocketAddr>) -> SocketAddr {
        self.order(Output::Bind { socket: SOCKET, local: ANY, peer });
        let Input::Bound { socket: SOCKET, local } = self.next() else { panic!("not bound") };
        local
    }

    fn stop(self) {
        self.order(Output::Stop(StopReason::Drained));
        self.thread.join().unwrap().unwrap();
    }
}

fn config(node: u16) -> RunConfig {
    RunConfig {
        node: NodeId(node),
        role: "test".into(),
        links: LinksConfig {
            listen: Some(ANY),
            local: Some(ANY.ip()),
            dial: Vec::new(),
            peers: None,
            security: Security::Plaintext,
        },
        http: None,
        token: None,
        api: false,
        numbers: None,
        journal: None,
        realtime: false,
    }
}

fn phone() -> UdpSocket {
    let socket = UdpSocket::bind(ANY).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn receive(phone: &UdpSocket) -> Vec<u8> {
    let mut bytes = [0; 2000];
    let len = phone.recv(&mut bytes).unwrap();
    bytes[..len].to_vec()
}

fn up(input: &Input) -> Class {
    let Input::LinkUp { class, .. } = input else { panic!("{input:?} is no link up") };
    *class
}
