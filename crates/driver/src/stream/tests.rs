//! What no node sees of streams.

mod secure;

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream};

use super::*;
use crate::metrics::Metrics;
use crate::run::clock;

const ID: SocketId = SocketId(1);
const TOKENS: Tokens = Tokens { listeners: 1 << 62, connections: 1 << 61, handshakes: 7 };
const LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// A stream socket, and the peers that made connections to it.
struct Site {
    streams: Streams,
    local: SocketAddr,
    peers: Vec<TcpStream>,
}

impl Site {
    fn new(limits: StreamLimits) -> Self {
        Self::at(LOCAL, limits)
    }

    fn at(local: SocketAddr, limits: StreamLimits) -> Self {
        let poller = Rc::new(Poller::new().unwrap());
        let mut streams = Streams::new(poller, TOKENS).unwrap();
        let local = streams.listen(ID, local, limits, None).unwrap();
        Self { streams, local, peers: Vec::new() }
    }

    /// Makes connections at `now` and returns their names.
    fn enter(&mut self, now: Instant, count: usize) -> Vec<u32> {
        let before: BTreeSet<u32> = self.streams.connections.keys().copied().collect();
        for _ in 0..count {
            self.peers.push(TcpStream::connect(self.local).unwrap());
            self.streams.accept(now, ID);
        }
        let ids = self.streams.connections.keys().copied();
        ids.filter(|id| !before.contains(id)).collect()
    }

    fn stands(&self, id: u32) -> bool {
        self.streams.connections.contains_key(&id)
    }

    fn refused(&self) -> String {
        let mut metrics = Metrics::default();
        self.streams.metrics(0, &mut metrics);
        metrics.text()
    }
}

#[test]
fn a_name_in_use_is_given_to_no_other_connection() {
    let mut site = Site::new(StreamLimits::default());
    let first = site.enter(clock(), 2);
    assert_eq!(first, [1, 2]);
    site.streams.connection_last = u32::MAX;
    assert_eq!(site.enter(clock(), 1), [3]);
}

#[test]
fn the_longest_silent_connection_of_a_source_makes_room_for_its_next_one() {
    let limits = StreamLimits { per_source_max: 3, ..StreamLimits::default() };
    let mut site = Site::new(limits);
    let begun = clock();
    let at = |seconds| begun + Duration::from_secs(seconds);
    let first = site.enter(at(0), 1)[0];
    let second = site.enter(at(1), 1)[0];
    let third = site.enter(at(2), 1)[0];
    // The first one is the only one that has carried a message.
    site.streams.connections.get_mut(&first).unwrap().first_until = None;
    let fourth = site.enter(at(3), 1)[0];
    assert_eq!([first, second, third, fourth].map(|id| site.stands(id)), [true, false, true, true]);
    for id in [third, fourth] {
        site.streams.connections.get_mut(&id).unwrap().first_until = None;
    }
    let fifth = site.enter(at(4), 1)[0];
    assert_eq!([first, third, fourth, fifth].map(|id| site.stands(id)), [false, true, true, true]);
}

#[test]
fn a_peer_that_only_says_keep_alives_is_cut_and_one_with_a_message_is_not() {
    let mut site = Site::new(StreamLimits::default());
    let now = clock();
    let ids = site.enter(now, 2);
    for id in &ids {
        let connection = site.streams.connections.get_mut(id).unwrap();
        connection.framer.handle_input(now, b"\r\n\r\n");
    }
    site.streams.connections.get_mut(&ids[0]).unwrap().first_until = None;
    site.streams.handle_timeout(now + Duration::from_secs(31));
    assert_eq!(site.streams.connections.len(), 2);
    site.streams.handle_timeout(now + Duration::from_secs(33));
    assert!(site.stands(ids[0]) && !site.stands(ids[1]));
}

#[test]
fn the_kernel_asks_whether_a_silent_peer_is_still_there() {
    let mut site = Site::new(StreamLimits::default());
    let id = site.enter(clock(), 1)[0];
    let socket = &site.streams.connections[&id].wire.socket;
    assert!(socket.keepalive().unwrap());
    assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(60));
    assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3);
}

#[test]
fn keep_alives_of_a_peer_that_reads_nothing_cost_one_answer() {
    let mut site = Site::new(StreamLimits::default());
    let now = clock();
    let id = site.enter(now, 1)[0];
    for _ in 0..100 {
        let connection = site.streams.connections.get_mut(&id).unwrap();
        connection.framer.handle_input(now, &b"\r\n\r\n".repeat(1000));
        site.streams.take(now, id);
    }
    assert_eq!(site.streams.connections.get_mut(&id).unwrap().take_unsent().len(), 1);
}

#[test]
fn one_peer_is_sent_to_over_so_many_connections() {
    let limits = StreamLimits { per_source_max: 2, ..StreamLimits::default() };
    let mut site = Site::new(limits);
    let peers: Vec<_> = (0..3).map(|_| TcpListener::bind(LOCAL).unwrap()).collect();
    for peer in &peers {
        let to = peer.local_addr().unwrap();
        site.streams.send(clock(), ID, None, to, Bytes::from_static(b"x"));
    }
    assert_eq!(site.streams.connections.len(), 2);
    let (to, bytes) = (peers[2].local_addr().unwrap(), Bytes::from_static(b"x"));
    assert_eq!(site.streams.poll_event(), Some(Input::Unsent { socket: ID, to, bytes }));
    assert!(site.refused().contains("why=\"made\""), "{}", site.refused());
}

#[test]
fn all_listeners_share_the_files() {
    let mut site = Site::new(StreamLimits::default());
    let (other, limits) = (SocketId(2), StreamLimits::default());
    let local = site.streams.listen(other, LOCAL, limits, None).unwrap();
    site.streams.files = 8;
    let now = clock();
    site.enter(now, 5);
    for _ in 0..5 {
        site.peers.push(TcpStream::connect(local).unwrap());
        site.streams.accept(now, other);
    }
    let has = |id| site.streams.connections.values().filter(|it| it.listener == id).count();
    assert_eq!([ID, other].map(has), [2, 2]);
}

#[test]
fn what_waits_for_a_connection_that_ends_keeps_where_it_was_to_go() {
    let mut site = Site::new(StreamLimits::default());
    let now = clock();
    let id = site.enter(now, 1)[0];
    let nowhere = SocketAddr::new(LOCAL.ip(), 0);
    let over = Some(ConnectionId(id));
    let peer = TcpListener::bind(LOCAL).unwrap();
    let elsewhere = peer.local_addr().unwrap();
    site.streams.send(now, ID, over, nowhere, Bytes::from_static(b"a"));
    site.streams.send(now, ID, over, elsewhere, Bytes::from_static(b"b"));
    site.streams.close(now, id, &Ending::Closed);
    let bytes = Bytes::from_static(b"a");
    assert_eq!(site.streams.poll_event(), Some(Input::Unsent { socket: ID, to: nowhere, bytes }));
    assert_eq!(site.streams.poll_event(), None);
    let made: Vec<_> = site.streams.connections.values().map(|it| it.remote).collect();
    assert_eq!(made, [elsewhere]);
}

#[test]
fn nothing_is_heard_of_a_socket_that_was_closed() {
    let mut site = Site::new(StreamLimits::default());
    let now = clock();
    let id = site.enter(now, 1)[0];
    let nowhere = SocketAddr::new(LOCAL.ip(), 0);
    site.streams.send(now, ID, None, nowhere, Bytes::from_static(b"a"));
    // More than the kernel takes at once.
    let long = Bytes::from(vec![b'x'; 1 << 24]);
    site.streams.send(now, ID, Some(ConnectionId(id)), nowhere, long);
    site.streams.unlisten(now, ID);
    assert_eq!(site.streams.poll_event(), None);
    assert!(site.streams.connections.is_empty());
}

#[test]
fn a_message_longer_than_what_may_wait_is_said_when_nothing_else_waits() {
    let limits = StreamLimits { unsent_len_max: 1000, ..StreamLimits::default() };
    let mut site = Site::new(limits);
    let now = clock();
    let id = site.enter(now, 1)[0];
    let nowhere = SocketAddr::new(LOCAL.ip(), 0);
    let mut send = || {
        let bytes = Bytes::from(vec![b'x'; 2000]);
        site.streams.send(now, ID, Some(ConnectionId(id)), nowhere, bytes);
        site.streams.connections.contains_key(&id)
    };
    assert!(send());
    assert!(!send(), "the second one has to wait");
}

#[test]
fn a_turn_reads_so_much_and_the_next_one_begins_with_who_waits_longest() {
    let mut site = Site::new(StreamLimits::default());
    let now = clock();
    let ids = site.enter(now, 20);
    let text = "OPTIONS sip:a@b SIP/2.0\r\nl:0\r\n\r\n".repeat(600);
    for peer in &mut site.peers {
        peer.write_all(text.as_bytes()).unwrap();
    }
    let mut heard = BTreeSet::new();
    for turn in 1..=20 {
        site.streams.begin_turn();
        for id in &ids {
            site.streams.ready(now, *id, EpollFlags::EPOLLIN);
        }
        while site.streams.read_next(now) {}
        let mut messages = 0;
        while let Some(event) = site.streams.poll_event() {
            let Input::Message { connection, .. } = event else { panic!("{event:?}") };
            heard.insert(connection);
            messages += 1;
        }
        assert!((1..=1000).contains(&messages), "{messages} messages in turn {turn}");
    }
    assert_eq!(heard.len(), ids.len(), "every connection had its turn");
}

#[test]
fn a_connection_that_was_made_for_answers_ends_soon_unless_it_carries_anything_else() {
    let mut site = Site::new(StreamLimits::default());
    let now = clock();
    let peers: Vec<_> = (0..3).map(|_| TcpListener::bind(LOCAL).unwrap()).collect();
    let answer = Bytes::from_static(b"SIP/2.0 200 OK\r\n\r\n");
    for (peer, also) in
        peers.iter().zip([None, Some(&b"OPTIONS sip:a@b SIP/2.0\r\n\r\n"[..]), None])
    {
        let to = peer.local_addr().unwrap();
        for bytes in [Some(answer.clone()), also.map(Bytes::from_static)].into_iter().flatten() {
            site.streams.send(now, ID, None, to, bytes);
        }
    }
    let ids: Vec<u32> = site.streams.connections.keys().copied().collect();
    for id in &ids {
        site.streams.ready(now, *id, EpollFlags::EPOLLOUT);
    }
    site.streams.flush(now);
    let heard = site.streams.connections.get_mut(&ids[2]).unwrap();
    heard.framer.handle_input(now, b"OPTIONS sip:a@b SIP/2.0\r\nl:0\r\n\r\n");
    site.streams.take(now, ids[2]);

    let stand = |site: &Site| ids.iter().map(|id| site.stands(*id)).collect::<Vec<_>>();
    site.streams.handle_timeout(now + Duration::from_secs(31));
    assert_eq!(stand(&site), [true; 3]);
    site.streams.handle_timeout(now + Duration::from_secs(32));
    assert_eq!(stand(&site), [false, true, true]);
}

#[test]
fn messages_come_and_go_over_ipv6_and_all_of_one_network_share_the_places_of_a_source() {
    let local: SocketAddr = "[::1]:0".parse().unwrap();
    if TcpListener::bind(local).is_err() {
        // A host without IPv6 has nothing to try this with.
        return;
    }
    let limits = StreamLimits { per_source_max: 2, ..StreamLimits::default() };
    let mut site = Site::at(local, limits);
    let now = clock();
    let ids = site.enter(now, 2);
    site.peers[1].write_all(b"OPTIONS sip:a@[::1] SIP/2.0\r\nl:0\r\n\r\n").unwrap();
    let event = loop {
        site.streams.begin_turn();
        site.streams.ready(now, ids[1], EpollFlags::EPOLLIN);
        while site.streams.read_next(now) {}
        if let Some(event) = site.streams.poll_event() {
            break event;
        }
    };
    let Input::Message { from, connection, .. } = event else { panic!("{event:?}") };
    assert_eq!((from, connection), (site.peers[1].local_addr().unwrap(), ConnectionId(ids[1])));

    // An answer goes back over it, and a request over one that is made.
    let answer = Bytes::from_static(b"SIP/2.0 200 OK\r\n\r\n");
    site.streams.send(now, ID, Some(connection), from, answer.clone());
    let peer = TcpListener::bind(local).unwrap();
    let to = peer.local_addr().unwrap();
    site.streams.send(now, ID, None, to, Bytes::from_static(b"INVITE"));
    let made = *site.streams.by_remote.get(&(ID, to)).unwrap();
    let mut accepted = peer.accept().unwrap().0;
    site.streams.ready(now, made, EpollFlags::EPOLLOUT);
    site.streams.flush(now);
    let mut heard = [0; 20];
    site.peers[1].read_exact(&mut heard[..answer.len()]).unwrap();
    assert_eq!(heard[..answer.len()], answer);
    let mut heard = [0; 6];
    accepted.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"INVITE");

    // The third one of the source takes the place of the silent one.
    let third = site.enter(now, 1)[0];
    assert_eq!([ids[0], ids[1], third].map(|id| site.stands(id)), [false, true, true]);
    let other_family = "127.0.0.1:9".parse().unwrap();
    site.streams.send(now, ID, None, other_family, answer.clone());
    let unsent = Input::Unsent { socket: ID, to: other_family, bytes: answer };
    assert_eq!(site.streams.poll_event(), Some(unsent));
}
