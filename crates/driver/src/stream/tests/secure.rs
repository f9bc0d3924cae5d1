//! SIP over TLS: whom a listener believes, and what others may do to it.

use std::io::Read;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    SupportedProtocolVersion,
};

use super::*;
use crate::run::unix_ms;
use crate::tls::tests::{DAY_MS, Folder};
use crate::tls::{SipTls, SipTlsFiles, pem};

/// A listener for TLS that runs while it is looked at.
struct Secure {
    streams: Streams,
    poller: Rc<Poller>,
    local: SocketAddr,
    events: Vec<Input>,
}

impl Secure {
    fn new(limits: StreamLimits, files: &SipTlsFiles) -> Self {
        let poller = Rc::new(Poller::new().unwrap());
        let mut streams = Streams::new(poller.clone(), TOKENS).unwrap();
        let tls = SipTls::load(files.clone(), BTreeMap::new(), unix_ms()).unwrap();
        let local = streams.listen(ID, LOCAL, limits, Some(tls)).unwrap();
        Self { streams, poller, local, events: Vec::new() }
    }

    fn turn(&mut self) {
        let mut ready = Vec::new();
        self.poller.wait(Some(Duration::from_millis(5)), &mut ready).unwrap();
        self.streams.begin_turn();
        for (token, flags) in ready {
            if token == TOKENS.handshakes {
                self.streams.handshaken(clock());
            } else if TOKENS.listeners <= token {
                self.streams.accept(clock(), ID);
            } else {
                let id = u32::try_from(token - TOKENS.connections).unwrap();
                self.streams.ready(clock(), id, flags);
            }
        }
        while self.streams.read_next(clock()) {}
        self.streams.handle_timeout(clock());
        self.streams.flush(clock());
        self.events.extend(std::iter::from_fn(|| self.streams.poll_event()));
    }

    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let begun = clock();
        while !done(self) {
            assert!(begun.elapsed() < PATIENCE, "never {what}: {}", self.metrics());
            self.turn();
        }
    }

    /// Waits until a connection has ended for this reason.
    fn until_ended(&mut self, why: &str) {
        let line = format!("driver_stream_ends_total{{why=\"{why}\"}}");
        self.until(why, |site| site.metrics().contains(&line));
    }

    fn heard(&mut self) -> Input {
        self.until("anything heard", |site| !site.events.is_empty());
        self.events.remove(0)
    }

    fn say(&mut self, over: Option<ConnectionId>, to: SocketAddr, text: &str) {
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        self.streams.send(clock(), ID, over, to, bytes);
    }

    fn metrics(&self) -> String {
        let mut metrics = Metrics::default();
        self.streams.metrics(unix_ms(), &mut metrics);
        metrics.text()
    }
}

#[test]
fn messages_come_and_go_over_tls_1_2_and_1_3() {
    let folder = Folder::new("stream-both");
    let mut site = Secure::new(StreamLimits::default(), &folder.sip("127.0.0.1", unix_ms()));
    for version in [&TLS12, &TLS13] {
        let client = client(&folder, version);
        let local = site.local;
        let text = OPTIONS.repeat(500);
        let (sent, answer) = (text.clone(), "SIP/2.0 200 OK\r\n\r\n".repeat(5000));
        let len = answer.len();
        let phone = std::thread::spawn(move || {
            let mut phone = connect(client, local);
            phone.write_all(sent.as_bytes()).unwrap();
            phone.flush().unwrap();
            let mut answer = vec![0; len];
            phone.read_exact(&mut answer).unwrap();
            // Its end is said, not only that of the connection under it.
            assert_eq!(phone.read(&mut [0; 8]).unwrap(), 0);
            String::from_utf8(answer).unwrap()
        });
        let mut over = None;
        for _ in 0..500 {
            let Input::Message { connection, message, .. } = site.heard() else { panic!() };
            assert_eq!(&message.bytes()[..], OPTIONS.as_bytes());
            over = Some(connection);
        }
        let nowhere = SocketAddr::new(LOCAL.ip(), 0);
        site.say(over, nowhere, &answer);
        site.until("said", |site| site.streams.is_flushed());
        site.streams.close(clock(), over.unwrap().0, &Ending::Idle);
        assert_eq!(phone.join().unwrap(), answer);
    }
    assert!(site.metrics().contains("driver_stream_secured_total 2"), "{}", site.metrics());
}

#[test]
fn an_end_that_is_said_ends_the_connection_at_once() {
    let folder = Folder::new("stream-end");
    let mut site = Secure::new(StreamLimits::default(), &folder.sip("127.0.0.1", unix_ms()));
    let (local, client) = (site.local, client(&folder, &TLS13));
    let (stay, stays) = channel::<()>();
    let phone = std::thread::spawn(move || {
        let mut phone = connect(client, local);
        phone.write_all(OPTIONS.as_bytes()).unwrap();
        phone.conn.send_close_notify();
        phone.flush().unwrap();
        // What is under it stands.
        let _ = stays.recv();
    });
    assert!(matches!(site.heard(), Input::Message { .. }));
    site.until_ended("closed");
    drop(stay);
    phone.join().unwrap();
}

#[test]
fn a_next_hop_is_told_a_message_only_if_it_shows_who_it_is() {
    let (folder, other, now) = (Folder::new("stream-hop"), Folder::new("stream-odd"), unix_ms());
    // The authority is as old as the oldest that it issues.
    let expired = folder.sip("127.0.0.1", now - 400 * DAY_MS);
    let expired = server(&expired);
    for name in ["sip-127.0.0.1.pem", "sip-127.0.0.1.key"] {
        std::fs::remove_file(folder.path(name)).unwrap();
    }
    let files = folder.sip("127.0.0.1", now);
    let mut site = Secure::new(StreamLimits::default(), &files);
    let cases = [
        (Some(server(&files)), ""),
        (Some(expired), "certificate_expired"),
        (Some(server(&folder.sip("127.0.0.2", now))), "certificate_of_another_name"),
        (Some(server(&folder.sip("sip.example.com", now))), "certificate_of_another_name"),
        (Some(server(&other.sip("127.0.0.1", now))), "certificate_of_unknown_authority"),
        (None, "plaintext"),
    ];
    for (server, why) in cases {
        let (to, peer) = next_hop(server);
        site.say(None, to, OPTIONS);
        if why.is_empty() {
            let heard = |site: &mut Secure, peer: &Receiver<String>| {
                let begun = clock();
                loop {
                    site.turn();
                    if let Ok(text) = peer.try_recv() {
                        return text;
                    }
                    assert!(begun.elapsed() < PATIENCE, "never heard: {}", site.metrics());
                }
            };
            assert_eq!(heard(&mut site, &peer), OPTIONS);
            // The next one goes over the same connection.
            site.say(None, to, OPTIONS);
            assert_eq!(heard(&mut site, &peer), OPTIONS);
        } else {
            let bytes = Bytes::from_static(OPTIONS.as_bytes());
            assert_eq!(site.heard(), Input::Unsent { socket: ID, to, bytes }, "{why}");
            site.until_ended(why);
            assert!(peer.recv_timeout(PATIENCE).is_err(), "it heard something all the same");
        }
    }
}

#[test]
fn a_domain_is_expected_where_the_operator_says_so() {
    let (folder, now) = (Folder::new("stream-domain"), unix_ms());
    let files = folder.sip("sip.example.com", now);
    for (domain, fits) in [("sip.example.com", true), ("example.com", false)] {
        let (to, peer) = next_hop(Some(server(&files)));
        let poller = Rc::new(Poller::new().unwrap());
        let mut streams = Streams::new(poller.clone(), TOKENS).unwrap();
        let domains = BTreeMap::from([(to, domain.parse().unwrap())]);
        let tls = SipTls::load(files.clone(), domains, now).unwrap();
        let local = streams.listen(ID, LOCAL, StreamLimits::default(), Some(tls)).unwrap();
        let mut site = Secure { streams, poller, local, events: Vec::new() };
        site.say(None, to, OPTIONS);
        if fits {
            site.until("secured", |site| site.metrics().contains("driver_stream_secured_total 1"));
            assert_eq!(peer.recv_timeout(PATIENCE).as_deref(), Ok(OPTIONS));
        } else {
            site.until_ended("certificate_of_another_name");
        }
    }
}

#[test]
fn without_an_authority_nobody_is_connected_to_and_what_was_to_be_said_comes_back() {
    let folder = Folder::new("stream-none");
    let files = folder.sip("127.0.0.1", unix_ms());
    let (to, _peer) = next_hop(Some(server(&files)));
    let mut site = Secure::new(StreamLimits::default(), &SipTlsFiles { authority: None, ..files });
    site.say(None, to, OPTIONS);
    let bytes = Bytes::from_static(OPTIONS.as_bytes());
    assert_eq!(site.heard(), Input::Unsent { socket: ID, to, bytes });
    assert!(site.streams.connections.is_empty());
}

#[test]
fn whom_a_peer_has_made_a_connection_to_is_not_believed_to_be_the_next_hop() {
    let folder = Folder::new("stream-posing");
    let files = folder.sip("127.0.0.1", unix_ms());
    let mut site = Secure::new(StreamLimits::default(), &files);
    let (local, client) = (site.local, client(&folder, &TLS13));
    let (told, from) = channel();
    let (stay, stays) = channel::<()>();
    let phone = std::thread::spawn(move || {
        let mut phone = connect(client, local);
        phone.write_all(OPTIONS.as_bytes()).unwrap();
        told.send(phone.sock.local_addr().unwrap()).unwrap();
        let _ = stays.recv();
        // Nothing was said to it.
        phone.sock.set_nonblocking(true).unwrap();
        assert!(phone.read(&mut [0; 8]).is_err());
    });
    assert!(matches!(site.heard(), Input::Message { .. }));
    let to = from.recv().unwrap();
    site.say(None, to, OPTIONS);
    let bytes = Bytes::from_static(OPTIONS.as_bytes());
    assert_eq!(site.heard(), Input::Unsent { socket: ID, to, bytes }, "nobody listens there");
    drop(stay);
    phone.join().unwrap();
}

#[test]
fn who_must_show_a_certificate_and_has_none_is_refused_by_name() {
    let (folder, other, now) = (Folder::new("stream-mutual"), Folder::new("stream-m2"), unix_ms());
    let files = folder.sip("127.0.0.1", now);
    let asks = SipTlsFiles { clients: files.authority.clone(), ..files.clone() };
    let mut site = Secure::new(StreamLimits::default(), &asks);
    let strange = other.sip("127.0.0.1", now);
    for (shown, why) in [
        (Some(&files), ""),
        (None, "no_certificate"),
        (Some(&strange), "certificate_of_unknown_authority"),
    ] {
        let client = client_with(&folder, &TLS13, shown);
        let local = site.local;
        let phone = std::thread::spawn(move || {
            let mut phone = connect(client, local);
            let said = phone.write_all(OPTIONS.as_bytes()).and_then(|()| phone.flush());
            // The refusal comes after what TLS 1.3 lets the client say.
            said.is_ok() && phone.read(&mut [0; 8]).is_ok()
        });
        if why.is_empty() {
            let Input::Message { connection, from, .. } = site.heard() else { panic!() };
            site.say(Some(connection), from, "SIP/2.0 200 OK\r\n\r\n");
            site.until("said", |site| site.streams.is_flushed());
        } else {
            site.until_ended(why);
        }
        assert_eq!(phone.join().unwrap(), why.is_empty(), "{why}");
    }
    assert!(site.events.is_empty());
}

#[test]
fn whoever_breaks_the_rules_of_tls_is_cut_by_name_and_others_go_on() {
    let folder = Folder::new("stream-bad");
    let limits =
        StreamLimits { message_time_max: Duration::from_millis(400), ..StreamLimits::default() };
    let mut site = Secure::new(limits, &folder.sip("127.0.0.1", unix_ms()));
    // A record of 4 GB does not exist: its length has two bytes. This is a handshake without an end.
    let mut endless = Vec::new();
    for piece in 0..40_u32 {
        endless.extend_from_slice(&[0x16, 3, 3, 0x10, 0]);
        endless.extend(if piece == 0 { [1, 0, 0xff, 0xff] } else { [0; 4] });
        endless.extend([0; 0x1000 - 4]);
    }
    let cases: [(&[u8], &str); 9] = [
        (OPTIONS.as_bytes(), "plaintext"),
        (b"\x00\x01\x02 nonsense \xff\xff\xff\xff", "plaintext"),
        (b"GET / HTTP/1.1\r\n\r\n", "plaintext"),
        (b"\x16\x03\x01\xff\xff", "tls_protocol"),
        (b"\x16\x03\x01\x00\x04\x01\xff\xff\xff", "tls_protocol"),
        (b"\x17\x03\x03\x00\x01\x00", "tls_protocol"),
        (&endless, "handshake_too_long"),
        (b"\x16\x03\x01\x02\x00", "handshake_slow"),
        (b"", "handshake_slow"),
    ];
    let mut cut: BTreeMap<&str, u64> = BTreeMap::new();
    let mut peers = Vec::new();
    for (bytes, why) in cases {
        let mut peer = TcpStream::connect(site.local).unwrap();
        peer.set_nonblocking(true).unwrap();
        // Not all of the longest one may find room.
        let _ = peer.write(bytes);
        peers.push((peer, bytes));
        *cut.entry(why).or_default() += 1;
        let line = format!("driver_stream_ends_total{{why=\"{why}\"}} {}\n", cut[why]);
        let begun = clock();
        while !site.metrics().contains(&line) {
            assert!(begun.elapsed() < PATIENCE, "never {line}: {}", site.metrics());
            site.turn();
            let (peer, bytes) = peers.last_mut().unwrap();
            if 1000 < bytes.len() {
                let _ = peer.write(&bytes[..4096 + 5]);
            }
        }
    }
    let (local, client) = (site.local, client(&folder, &TLS13));
    let phone = std::thread::spawn(move || connect(client, local).write_all(OPTIONS.as_bytes()));
    assert!(matches!(site.heard(), Input::Message { .. }));
    phone.join().unwrap().unwrap();
}

#[test]
fn stalled_handshakes_of_one_source_displace_each_other_and_nobody_else() {
    let folder = Folder::new("stream-stall");
    let limits = StreamLimits { per_source_max: 8, ..StreamLimits::default() };
    let mut site = Secure::new(limits, &folder.sip("127.0.0.1", unix_ms()));
    let mut stalled = Vec::new();
    for _ in 0..500 {
        let mut peer = TcpStream::connect(site.local).unwrap();
        let _ = peer.write(b"\x16\x03\x01\x02\x00");
        stalled.push(peer);
        site.turn();
    }
    site.until("displaced", |site| {
        site.metrics().contains("driver_stream_ends_total{why=\"displaced\"} 492")
    });
    assert_eq!(site.streams.connections.len(), 8);
    // No file is held for those that are gone.
    site.until("given back", |site| site.metrics().contains("driver_stream_handshakes 8\n"));
    drop(stalled);
    site.until("closed", |site| site.streams.connections.is_empty());
    site.until("given back", |site| site.metrics().contains("driver_stream_handshakes 0\n"));
}

#[test]
fn keys_that_are_changed_without_an_end_cut_a_connection() {
    let folder = Folder::new("stream-keys");
    let mut site = Secure::new(StreamLimits::default(), &folder.sip("127.0.0.1", unix_ms()));
    let (local, client) = (site.local, client(&folder, &TLS13));
    let phone = std::thread::spawn(move || {
        let mut phone = connect(client, local);
        phone.write_all(OPTIONS.as_bytes()).unwrap();
        let mut said = Ok(());
        for _ in 0..10_000 {
            let changed = phone.conn.refresh_traffic_keys();
            said = changed.map_err(io::Error::other).and_then(|()| phone.flush());
            if said.is_err() {
                break;
            }
        }
        said.is_err() || phone.read(&mut [0; 8]).is_err()
    });
    site.until_ended("tls_protocol");
    assert!(phone.join().unwrap());
}

#[test]
fn new_connections_get_the_certificate_that_was_put_in_the_place_of_the_old_one() {
    let (folder, now) = (Folder::new("stream-reload"), unix_ms());
    let files = folder.sip("127.0.0.1", now);
    let mut site = Secure::new(StreamLimits::default(), &files);
    let shown = |site: &mut Secure, folder: &Folder| {
        let (local, client) = (site.local, client(folder, &TLS13));
        let phone = std::thread::spawn(move || {
            let mut phone = connect(client, local);
            phone.write_all(OPTIONS.as_bytes()).unwrap();
            phone.conn.peer_certificates().unwrap()[0].to_vec()
        });
        assert!(matches!(site.heard(), Input::Message { .. }));
        phone.join().unwrap()
    };
    let first = shown(&mut site, &folder);
    std::fs::write(&files.certificate, "nothing").unwrap();
    site.streams.reload();
    site.until("refused", |site| {
        site.metrics().contains("driver_stream_certificate_reloads_failed_total 1")
    });
    assert_eq!(shown(&mut site, &folder), first, "the old one holds");

    for path in [&files.certificate, &files.key] {
        std::fs::remove_file(path).unwrap();
    }
    // It holds for a year from two days ago.
    folder.sip("127.0.0.1", now - 2 * DAY_MS);
    site.streams.reload();
    let days = "driver_stream_certificate_days_left{file=\"";
    site.until("reloaded", |site| {
        site.metrics().lines().any(|line| line.starts_with(days) && line.ends_with(" 362"))
    });
    assert_ne!(shown(&mut site, &folder), first);
}

#[test]
fn what_was_sealed_and_not_taken_by_the_kernel_comes_back() {
    let folder = Folder::new("stream-sealed");
    let limits = StreamLimits { unsent_len_max: 1 << 26, ..StreamLimits::default() };
    let mut site = Secure::new(limits, &folder.sip("127.0.0.1", unix_ms()));
    let (local, client) = (site.local, client(&folder, &TLS13));
    let (stay, stays) = channel::<()>();
    let phone = std::thread::spawn(move || {
        let mut phone = connect(client, local);
        phone.write_all(OPTIONS.as_bytes()).unwrap();
        let _ = stays.recv();
        phone
    });
    let Input::Message { connection, from, .. } = site.heard() else { panic!() };
    let messages = 16_000;
    for number in 0..messages {
        site.say(Some(connection), from, &format!("{number} {}", "x".repeat(2000)));
        site.streams.flush(clock());
    }
    let id = connection.0;
    assert!(!site.streams.is_flushed(), "the kernel took it all");
    site.streams.close(clock(), id, &Ending::Unread);
    site.events.extend(std::iter::from_fn(|| site.streams.poll_event()));
    let unsent: Vec<u64> = site
        .events
        .drain(..)
        .map(|event| {
            let Input::Unsent { bytes, .. } = event else { panic!("{event:?}") };
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            text.split(' ').next().unwrap().parse().unwrap()
        })
        .collect();
    let first = unsent[0];
    assert_eq!(unsent, (first..messages).collect::<Vec<_>>());
    drop(stay);
    // What it reads until the end is all that came before, and no message twice.
    let mut phone: StreamOwned<_, _> = phone.join().unwrap();
    let mut text = Vec::new();
    let _ = phone.read_to_end(&mut text);
    let text = String::from_utf8(text).unwrap();
    for number in 0..first {
        assert!(text.contains(&format!("{number} xx")), "{number} is lost");
    }
}

type Phone = StreamOwned<ClientConnection, TcpStream>;

fn connect(config: Arc<ClientConfig>, to: SocketAddr) -> Phone {
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let socket = TcpStream::connect(to).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    StreamOwned::new(ClientConnection::new(config, name).unwrap(), socket)
}

fn client(folder: &Folder, version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
    client_with(folder, version, None)
}

/// A client that believes the authority of a folder and shows a certificate.
fn client_with(
    folder: &Folder,
    version: &'static SupportedProtocolVersion,
    shown: Option<&SipTlsFiles>,
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(pem(&folder.path("ca.pem")).0);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_protocol_versions(&[version]).unwrap().with_root_certificates(roots);
    Arc::new(match shown {
        None => config.with_no_client_auth(),
        Some(files) => {
            let (chain, key) = (pem(&files.certificate).0, pem(&files.key).1.unwrap());
            config.with_client_auth_cert(chain, key).unwrap()
        }
    })
}

fn server(files: &SipTlsFiles) -> Arc<ServerConfig> {
    let (chain, key) = (pem(&files.certificate).0, pem(&files.key).1.unwrap());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    Arc::new(config.with_single_cert(chain, key).unwrap())
}

/// A next hop that tells the messages it hears on one connection; without TLS it answers in plain text.
fn next_hop(config: Option<Arc<ServerConfig>>) -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind(LOCAL).unwrap();
    let to = listener.local_addr().unwrap();
    let (told, heard) = channel();
    let _: JoinHandle<()> = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let Some(config) = config else {
            let _ = socket.write_all(b"SIP/2.0 400 Bad Request\r\n\r\n");
            let _ = socket.read(&mut [0; 8]);
            return;
        };
        let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), socket);
        let mut bytes = vec![0; OPTIONS.len()];
        while stream.read_exact(&mut bytes).is_ok() {
            let _ = told.send(String::from_utf8(bytes.clone()).unwrap());
        }
    });
    (to, heard)
}

const OPTIONS: &str = "OPTIONS sip:a@b SIP/2.0\r\nl:0\r\n\r\n";
/// Every wait ends with what is waited for, or fails after this time.
const PATIENCE: Duration = Duration::from_secs(20);
