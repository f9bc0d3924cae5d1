use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use super::*;
use crate::http::serve_visits;
use crate::metrics::Metrics;
use crate::run::clock;

fn noop() -> std::task::Waker {
    std::task::Waker::noop().clone()
}

fn local() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn visit(door: SocketAddr, words: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(door).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(words).unwrap();
    stream
}

#[test]
fn visitors_who_never_finish_take_few_files_and_go_in_time() {
    let (board, door) =
        serve_visits(local(), Duration::from_millis(500), None, false, noop()).unwrap();
    board.post(clock(), Metrics::default(), None);

    let slow: Vec<_> =
        (0..2 * VISITORS_MAX).map(|_| visit(door, b"GET /healthz HTTP/1.1\r\nX-")).collect();
    let mut honest = visit(door, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");

    let mut answer = String::new();
    honest.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert_eq!(slow[0].try_clone().unwrap().read(&mut [0; 512]).unwrap(), 0);
}

#[test]
fn visitors_who_never_finish_keep_nobody_waiting() {
    let (board, door) =
        serve_visits(local(), Duration::from_secs(600), None, false, noop()).unwrap();
    board.post(clock(), Metrics::default(), None);

    let slow: Vec<_> =
        (0..2 * VISITORS_MAX).map(|_| visit(door, b"GET /healthz HTTP/1.1\r\nX-")).collect();
    for _ in 0..3 {
        let mut honest = visit(door, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut answer = String::new();
        honest.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    }
    // The oldest went, the newest stayed.
    let first = slow.first().unwrap();
    assert_eq!(first.try_clone().unwrap().read(&mut [0; 512]).unwrap(), 0);
    let last = slow.last().unwrap();
    last.set_nonblocking(true).unwrap();
    let error = last.try_clone().unwrap().read(&mut [0; 512]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn health_is_refused_with_the_reason_until_the_node_is_ready() {
    let (board, door) =
        serve_visits(local(), Duration::from_secs(10), None, false, noop()).unwrap();
    let health = || {
        let mut stream = visit(door, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].to_owned(), body.to_owned())
    };

    assert_eq!(health(), ("503".into(), "starting\n".into()));
    board.post(clock(), Metrics::default(), None);
    assert_eq!(health(), ("200".into(), "ok\n".into()));
    board.post(clock(), Metrics::default(), Some("draining"));
    assert_eq!(health(), ("503".into(), "draining\n".into()));
}
