//! Streams of SIP on loopback: what peers may do, and what others notice of it.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::time::TimeValLike as _;
use sip_core::Verdict;

use super::*;
use crate::node::ConnectionId;
use crate::stream::StreamLimits;

const LIMITS: StreamLimits = StreamLimits {
    connections_max: 6,
    per_source_max: 4,
    message_len_max: 4096,
    message_time_max: Duration::from_millis(600),
    idle_max: Duration::from_millis(900),
    unsent_len_max: 64 * 1024,
    connect_time_max: Duration::from_millis(500),
};

/// Set in the process of a test that has one of its own.
const CHILD: &str = "HOLDLINE_TEST_CHILD";

/// Nothing is cut for its time.
const PATIENT: StreamLimits =
    StreamLimits { message_time_max: PATIENCE, idle_max: PATIENCE, ..LIMITS };

#[test]
fn a_message_comes_in_over_tcp_and_its_answer_goes_back_over_the_connection() {
    let (node, local) = listening(PATIENT);
    let mut phone = connect(local);
    phone.write_all(options(1).as_bytes()).unwrap();
    let (connection, from, text) = message(&node);
    assert_eq!((from, text), (phone.local_addr().unwrap(), options(1)));

    // No other way than the connection.
    node.order(stream(Some(connection), nowhere(), "SIP/2.0 200 OK\r\n\r\n"));
    assert_eq!(read(&mut phone, 18), "SIP/2.0 200 OK\r\n\r\n");
}

#[test]
fn messages_come_whole_however_the_stream_is_cut() {
    let (node, local) = listening(PATIENT);
    let mut phone = connect(local);
    let all = [options(1), options(2), options(3)].concat();
    let (first, rest) = all.split_at(37);
    let (second, third) = rest.split_at(options(1).len());
    for part in [first, second, third] {
        phone.write_all(part.as_bytes()).unwrap();
        std::thread::yield_now();
    }
    for number in 1..=3 {
        assert_eq!(message(&node).2, options(number));
    }
}

#[test]
fn a_keep_alive_is_answered_and_says_nothing_to_the_node() {
    let (node, local) = listening(PATIENT);
    let mut phone = connect(local);
    phone.write_all(b"\r\n\r\n").unwrap();
    assert_eq!(read(&mut phone, 2), "\r\n");
    phone.write_all(options(1).as_bytes()).unwrap();
    assert_eq!(message(&node).2, options(1));
}

#[test]
fn who_sends_a_byte_now_and_then_is_cut_and_others_go_on() {
    let (node, local) = listening(LIMITS);
    let (mut slow, mut silent, mut other) = (connect(local), connect(local), connect(local));
    let begun = clock();
    let mut number = 0;
    let mut ends = [None, None];
    while ends.iter().any(Option::is_none) {
        assert!(begun.elapsed() < PATIENCE, "nobody is cut");
        number += 1;
        other.write_all(options(number).as_bytes()).unwrap();
        assert_eq!(message(&node).2, options(number));
        // It may be cut already.
        let _ = slow.write_all(b"O");
        for (end, phone) in ends.iter_mut().zip([&mut slow, &mut silent]) {
            if end.is_none() && is_over(phone) {
                *end = Some(begun.elapsed());
            }
        }
    }
    for end in ends.into_iter().flatten() {
        assert!(LIMITS.message_time_max <= end, "cut after {end:?}");
    }
}

#[test]
fn a_head_without_an_end_is_cut() {
    let (_node, local) = listening(PATIENT);
    let mut phone = connect(local);
    let _ = phone.write_all(b"OPTIONS sip:a@example.com SIP/2.0\r\n");
    for _ in 0..200 {
        // It may be cut already.
        let _ = phone.write_all(b"Subject: and so on, and on, and on, and on\r\n");
    }
    assert!(ends(&mut phone));
}

#[test]
fn a_body_of_4_gb_is_answered_before_it_comes_and_the_connection_ends() {
    let (node, local) = listening(PATIENT);
    let mut phone = connect(local);
    let text = options(1).replace("Content-Length: 0", "Content-Length: 4294967295");
    phone.write_all(text.as_bytes()).unwrap();
    let Input::Message { connection, message, .. } = node.next() else { panic!("no message") };
    assert_eq!(message.verdict(), Verdict::Answer(513));

    node.order(stream(Some(connection), nowhere(), "SIP/2.0 513 Message Too Large\r\n\r\n"));
    let mut answer = String::new();
    phone.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "SIP/2.0 513 Message Too Large\r\n\r\n");
}

#[test]
fn what_is_no_sip_is_cut() {
    let (_node, local) = listening(PATIENT);
    let mut phone = connect(local);
    phone.write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n").unwrap();
    assert!(ends(&mut phone));
}

#[test]
fn one_source_has_its_newest_connections_and_all_sources_so_many() {
    let (node, local) = listening(PATIENT);
    let from = |last: u8| {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, last], 0)).into()).unwrap();
        socket.connect(&local.into()).unwrap();
        let phone = TcpStream::from(socket);
        phone.set_read_timeout(Some(PATIENCE)).unwrap();
        phone
    };
    let mut phones: Vec<TcpStream> = (0..LIMITS.per_source_max).map(|_| from(1)).collect();
    phones.push(from(1));
    assert!(ends(&mut phones.remove(0)), "one too many of a source");
    phones.extend((4..LIMITS.connections_max).map(|_| from(2)));
    assert!(ends(&mut from(3)), "one too many of all");
    for (number, phone) in (1..).zip(&mut phones) {
        phone.write_all(options(number).as_bytes()).unwrap();
        assert_eq!(message(&node).2, options(number));
    }

    // One that leaves makes room.
    phones.truncate(5);
    let begun = clock();
    while is_over(&mut from(2)) {
        assert!(begun.elapsed() < PATIENCE, "no room");
    }
}

#[test]
fn a_connection_that_carries_nothing_ends() {
    let (node, local) = listening(LIMITS);
    let mut phone = connect(local);
    let begun = clock();
    phone.write_all(options(1).as_bytes()).unwrap();
    assert_eq!(message(&node).2, options(1));
    assert!(ends(&mut phone));
    assert!(LIMITS.idle_max <= begun.elapsed(), "after {:?}", begun.elapsed());
}

#[test]
fn who_does_not_read_is_cut_and_what_waited_comes_back() {
    let (node, local) = listening(PATIENT);
    let (mut deaf, mut other) = (connect(local), connect(local));
    deaf.write_all(options(1).as_bytes()).unwrap();
    let (connection, ..) = message(&node);
    let text = "x".repeat(10_000);
    let mut unsent = 0;
    for _ in 0..10_000 {
        node.order(stream(Some(connection), nowhere(), &text));
        if let Ok(input) = node.told.try_recv() {
            let Input::Unsent { bytes, .. } = input else { panic!("{input:?}") };
            assert_eq!(bytes, text);
            unsent += 1;
            break;
        }
    }
    assert_eq!(unsent, 1, "whatever is said is kept");
    while let Ok(Input::Unsent { .. }) = node.told.recv_timeout(Duration::from_millis(200)) {}
    let begun = clock();
    let mut scratch = vec![0; 1 << 16];
    while deaf.read(&mut scratch).is_ok_and(|len| 0 < len) {
        assert!(begun.elapsed() < PATIENCE, "it is not cut");
    }
    assert!(begun.elapsed() < PATIENCE, "it is not cut");
    other.write_all(options(2).as_bytes()).unwrap();
    assert_eq!(message(&node).2, options(2));
}

/// The limit of files is that of a whole process, so the test has one of its own.
#[test]
fn without_files_nobody_new_is_taken_and_who_is_there_goes_on() {
    let name = "without_files_nobody_new_is_taken_and_who_is_there_goes_on";
    if std::env::var_os(CHILD).is_none() {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.arg(format!("run::tests::streams::{name}")).arg("--exact").env(CHILD, "");
        let output = child.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let (node, local) = listening(PATIENT);
    let mut phone = connect(local);
    let exchange = |phone: &mut TcpStream, number| {
        phone.write_all(options(number).as_bytes()).unwrap();
        assert_eq!(message(&node).2, options(number));
    };
    exchange(&mut phone, 1);
    // The caller's end gets the one number that is left, and nothing is left for ours.
    let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd();
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, u64::try_from(next).unwrap() + 1, hard).unwrap();
    let mut late = connect(local);
    late.write_all(options(2).as_bytes()).unwrap();
    let cpu = || {
        let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
        let times = [usage.user_time(), usage.system_time()];
        times.iter().map(|time| time.num_microseconds()).sum::<i64>()
    };
    let (begun, before) = (clock(), cpu());
    for number in 3..13 {
        exchange(&mut phone, number);
        let _ = node.told.recv_timeout(Duration::from_millis(50)).unwrap_err();
    }
    let (spent, elapsed) = (cpu() - before, begun.elapsed());
    assert!(spent < 250_000, "{spent} us of CPU in {elapsed:?}: it spins");

    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    assert_eq!(message(&node).2, options(2));
    exchange(&mut late, 13);
}

#[test]
fn messages_to_one_peer_share_a_connection_that_is_made_for_the_first() {
    let (node, local) = listening(PATIENT);
    let peer = TcpListener::bind(ANY).unwrap();
    let to = peer.local_addr().unwrap();
    node.orders([stream(None, to, &options(1)), stream(None, to, &options(2))]);
    let (mut phone, from) = peer.accept().unwrap();
    phone.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(from.ip(), local.ip());
    assert_eq!(read(&mut phone, 2 * options(1).len()), [options(1), options(2)].concat());
    node.order(stream(None, to, &options(3)));
    assert_eq!(read(&mut phone, options(3).len()), options(3));

    // What it says comes in over the same connection; once that is gone another one is made.
    phone.write_all(options(4).as_bytes()).unwrap();
    let (connection, from, _) = message(&node);
    assert_eq!(from, to);
    phone.shutdown(Shutdown::Both).unwrap();
    drop(phone);
    peer.set_nonblocking(true).unwrap();
    let begun = clock();
    let mut phone = loop {
        node.order(stream(Some(connection), to, &options(5)));
        match peer.accept() {
            Ok((phone, _)) => break phone,
            Err(_) => assert!(begun.elapsed() < PATIENCE, "no other connection is made"),
        }
        if let Ok(input) = node.told.recv_timeout(Duration::from_millis(20)) {
            assert!(matches!(input, Input::Unsent { .. }), "{input:?}");
        }
    };
    phone.set_nonblocking(false).unwrap();
    phone.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(read(&mut phone, options(5).len()), options(5));
}

#[test]
fn what_nobody_takes_comes_back() {
    let (node, local) = listening(PATIENT);
    let gone = TcpListener::bind(ANY).unwrap().local_addr().unwrap();
    // TEST-NET-1: nobody answers there, or the host says at once that it has no way to it.
    let nobody = "192.0.2.1:5060".parse().unwrap();
    for to in [gone, nowhere(), nobody] {
        node.order(stream(None, to, &options(1)));
        let bytes = Bytes::from(options(1));
        assert_eq!(node.next(), Input::Unsent { socket: SOCKET, to, bytes });
    }

    let mut phone = connect(local);
    phone.write_all(options(1).as_bytes()).unwrap();
    let (connection, ..) = message(&node);
    drop(phone);
    let begun = clock();
    loop {
        assert!(begun.elapsed() < PATIENCE, "the connection never ends");
        node.order(stream(Some(connection), nowhere(), &options(2)));
        if let Ok(input) = node.told.recv_timeout(Duration::from_millis(50)) {
            let bytes = Bytes::from(options(2));
            assert_eq!(input, Input::Unsent { socket: SOCKET, to: nowhere(), bytes });
            break;
        }
    }
}

#[test]
fn what_was_said_with_the_stop_goes_out_over_a_connection_that_is_being_made() {
    let (node, _) = listening(PATIENT);
    let peer = TcpListener::bind(ANY).unwrap();
    let to = peer.local_addr().unwrap();
    node.orders([stream(None, to, &options(1)), Output::Stop(StopReason::Drained)]);
    let (mut phone, _) = peer.accept().unwrap();
    phone.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(read(&mut phone, options(1).len()), options(1));
}

#[test]
fn a_stream_and_a_datagram_socket_may_have_one_address_and_not_one_name() {
    let node = Remote::start(config(1));
    let local = node.bind(None);
    let listen = |socket| Output::Listen { socket, local, limits: LIMITS, tls: None };
    node.order(listen(SOCKET));
    let error = BindError::InUse;
    assert_eq!(node.next(), Input::BindFailed { socket: SOCKET, error });
    node.order(listen(SocketId(8)));
    assert_eq!(node.next(), Input::Bound { socket: SocketId(8), local });
    node.order(listen(SocketId(9)));
    assert_eq!(node.next(), Input::BindFailed { socket: SocketId(9), error });
    node.orders([Output::Unbind { socket: SocketId(8) }, listen(SocketId(9))]);
    assert_eq!(node.next(), Input::Bound { socket: SocketId(9), local });
}

fn listening(limits: StreamLimits) -> (Remote, SocketAddr) {
    let node = Remote::start(config(1));
    node.order(Output::Listen { socket: SOCKET, local: ANY, limits, tls: None });
    let Input::Bound { socket: SOCKET, local } = node.next() else { panic!("not bound") };
    (node, local)
}

fn connect(to: SocketAddr) -> TcpStream {
    let phone = TcpStream::connect(to).unwrap();
    phone.set_read_timeout(Some(PATIENCE)).unwrap();
    phone.set_nodelay(true).unwrap();
    phone
}

fn stream(over: Option<ConnectionId>, to: SocketAddr, text: &str) -> Output {
    Output::Stream { socket: SOCKET, over, to, bytes: Bytes::copy_from_slice(text.as_bytes()) }
}

fn message(node: &Remote) -> (ConnectionId, SocketAddr, String) {
    let input = node.next();
    let Input::Message { socket: SOCKET, connection, from, message } = input else {
        panic!("{input:?} is no message")
    };
    (connection, from, String::from_utf8(message.bytes().to_vec()).unwrap())
}

fn nowhere() -> SocketAddr {
    SocketAddr::new(ANY.ip(), 0)
}

fn read(phone: &mut TcpStream, len: usize) -> String {
    let mut bytes = vec![0; len];
    phone.read_exact(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Waits for the end of a connection on which nothing more is said.
fn ends(phone: &mut TcpStream) -> bool {
    match phone.read(&mut [0; 64]) {
        Ok(len) => len == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

/// Whether a connection has ended, looked at for a moment.
fn is_over(phone: &mut TcpStream) -> bool {
    phone.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    ends(phone)
}

fn options(number: u32) -> String {
    format!(
        "OPTIONS sip:a@example.com SIP/2.0\r\nVia: SIP/2.0/TCP 127.0.0.1;branch=z9hG4bK{number}\r\n\
         From: <sip:b@example.com>;tag=1\r\nTo: <sip:a@example.com>\r\nCall-ID: {number}\r\n\
         CSeq: 1 OPTIONS\r\nMax-Forwards: 70\r\nContent-Length: 0\r\n\r\n"
    )
}
