//! What peers do with connections that mean no good.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustls::ClientConfig;

use super::line::{connect, now, secure, try_connect};
use super::pause;

/// How many connections one source tries to have at a time.
const CONNECTIONS: usize = 10_000;

/// As the process has it when its file says nothing.
const PER_SOURCE: usize = 256;

/// Begins everything at once, each from an address of its own: from `ip` with its last digit replaced.
/// A thread panics when its misuse is not cut off.
pub(super) fn begin(ip: &str, gate: &str) -> Vec<JoinHandle<()>> {
    let kinds: [fn(&str, &str); 6] =
        [one_byte_a_second, silence, endless_head, long_body, no_sip, crowd];
    let begin = |(digit, misuse): (usize, fn(&str, &str))| {
        let ip = format!("{}{digit}", &ip[..ip.len() - 1]);
        let gate = gate.to_owned();
        std::thread::spawn(move || misuse(&ip, &gate))
    };
    kinds.into_iter().enumerate().map(begin).collect()
}

/// Does the same to a port where TLS is spoken.
pub(super) fn begin_secure(
    ip: &str,
    gate: &str,
    client: &Arc<ClientConfig>,
) -> Vec<JoinHandle<()>> {
    type Misuse = fn(&str, &str, &Arc<ClientConfig>);
    let kinds: [Misuse; 8] = [
        |ip, gate, _| silence(ip, gate),
        |ip, gate, _| no_sip(ip, gate),
        |ip, gate, _| said_and_ends(ip, gate, OPTIONS.as_bytes()),
        |ip, gate, _| said_and_ends(ip, gate, b"\x16\x03\x01\x02\x00\x01"),
        |ip, gate, _| said_and_ends(ip, gate, b"\x16\x03\x01\xff\xff"),
        |ip, gate, _| stalled(ip, gate),
        |ip, gate, client| handshakes(ip, gate, client),
        |ip, gate, client| long_body_over(secure(connect(ip, gate), client.clone()), ip),
    ];
    let begin = |(digit, misuse): (usize, Misuse)| {
        let ip = format!("{}{digit}", &ip[..ip.len() - 1]);
        let (gate, client) = (gate.to_owned(), client.clone());
        std::thread::spawn(move || misuse(&ip, &gate, &client))
    };
    kinds.into_iter().enumerate().map(begin).collect()
}

fn said_and_ends(ip: &str, gate: &str, bytes: &[u8]) {
    let mut stream = connect(ip, gate);
    stream.write_all(bytes).unwrap();
    ends(&mut stream);
}

/// Begins more handshakes than one source may have connections, and ends none.
fn stalled(ip: &str, gate: &str) {
    let mut all = Vec::new();
    for _ in 0..2000 {
        if let Some(mut stream) = try_connect(ip, gate) {
            let _ = stream.write_all(b"\x16\x03\x01\x02\x00\x01");
            all.push(stream);
        }
    }
    for mut stream in all {
        ends(&mut stream);
    }
}

/// Makes one handshake after the other.
fn handshakes(ip: &str, gate: &str, client: &Arc<ClientConfig>) {
    for _ in 0..300 {
        drop(secure(connect(ip, gate), client.clone()));
    }
}

fn one_byte_a_second(ip: &str, gate: &str) {
    let mut stream = connect(ip, gate);
    let begun = now();
    for byte in HEAD.bytes().cycle() {
        if stream.write_all(&[byte]).is_err() || is_over(&mut stream) {
            break;
        }
        pause(950);
        assert!(begun.elapsed() < Duration::from_secs(30), "nobody cuts it off");
    }
    assert!(Duration::from_secs(2) <= begun.elapsed(), "cut off before its time");
}

fn silence(ip: &str, gate: &str) {
    ends(&mut connect(ip, gate));
}

fn endless_head(ip: &str, gate: &str) {
    let mut stream = connect(ip, gate);
    let _ = stream.write_all(HEAD.as_bytes());
    let line = format!("Subject: {}\r\n", "and so on ".repeat(100));
    stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    let written = (0..10_000).map(|_| stream.write_all(line.as_bytes()));
    let error = written.into_iter().find_map(Result::err).expect("nobody cuts it off");
    assert_ne!(error.kind(), ErrorKind::WouldBlock, "nobody reads and nobody cuts it off");
}

fn long_body(ip: &str, gate: &str) {
    long_body_over(connect(ip, gate), ip);
}

fn long_body_over(mut stream: impl Read + Write, ip: &str) {
    let text = format!(
        "{HEAD}Via: SIP/2.0/TCP {ip};branch=z9hG4bKlong\r\nFrom: <sip:a@b>;tag=1\r\nTo: <sip:a@b>\r\n\
         Call-ID: long\r\nCSeq: 1 OPTIONS\r\nMax-Forwards: 70\r\nContent-Length: 4294967295\r\n\r\n"
    );
    stream.write_all(text.as_bytes()).unwrap();
    let (begun, mut answer) = (now(), Vec::new());
    loop {
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(len) => answer.extend_from_slice(&bytes[..len]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "nobody cuts it off");
    }
    assert!(answer.starts_with(b"SIP/2.0 513 "), "{}", String::from_utf8_lossy(&answer));
}

fn no_sip(ip: &str, gate: &str) {
    let mut stream = connect(ip, gate);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n").unwrap();
    ends(&mut stream);
}

fn crowd(ip: &str, gate: &str) {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let mut all = Vec::new();
    for _ in 0..CONNECTIONS {
        // A connection that is refused may be reset before it stands.
        all.extend(try_connect(ip, gate));
    }
    all.retain(|stream| stream.set_nonblocking(true).is_ok());
    // Those of the last moment may not be judged yet. That the others were not cut for their silence is
    // seen in the figures.
    let begun = now();
    while PER_SOURCE < all.len() {
        all.retain_mut(|stream| !is_over(stream));
        assert!(begun.elapsed() < Duration::from_secs(30), "{} stand", all.len());
        pause(10);
    }
}

fn ends(stream: &mut TcpStream) {
    let begun = now();
    while !is_over(stream) {
        assert!(begun.elapsed() < Duration::from_secs(30), "nobody cuts it off");
    }
}

fn is_over(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 64]) {
        Ok(len) => len == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

const HEAD: &str = "OPTIONS sip:a@example.org SIP/2.0\r\n";
const OPTIONS: &str = "OPTIONS sip:a@example.org SIP/2.0\r\nContent-Length: 0\r\n\r\n";
