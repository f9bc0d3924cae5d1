use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::AtomicU32;
use std::task::Wake;

use super::*;
use crate::node::Verb;

#[test]
fn who_knows_the_token_lets_the_node_drain_and_wakes_it() {
    let run = Run::new(Some("correct-horse-battery"));
    drain(run.addr, &token("correct-horse-battery")).unwrap();
    assert_eq!(run.bell.0.load(Ordering::Relaxed), 1);
    assert!(run.board.take_drain());
    assert!(!run.board.take_drain(), "it is taken once");

    let answer = run.post("authorization: bearer correct-horse-battery\r\n");
    assert!(answer.starts_with("HTTP/1.1 202 Accepted\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n{\"draining\":true}\n"), "{answer}");
}

#[test]
fn who_does_not_know_the_token_changes_nothing() {
    let run = Run::new(Some("correct-horse-battery"));
    let error = drain(run.addr, &token("correct-horse-batterx")).unwrap_err();
    assert_eq!(error.to_string(), "the node does not accept the token");

    let wrong = [
        "",
        "Authorization: Bearer\r\n",
        "Authorization: Bearer \r\n",
        "Authorization: Bearer correct-horse-batter\r\n",
        "Authorization: Bearer correct-horse-batterycorrect-horse-battery\r\n",
        "Authorization: Basic correct-horse-battery\r\n",
        "Authorization: correct-horse-battery\r\n",
    ];
    for header in wrong {
        let answer = run.post(header);
        assert!(answer.starts_with("HTTP/1.1 401 Unauthorized\r\n"), "{header}: {answer}");
        assert!(answer.contains("\r\nwww-authenticate: Bearer"), "{header}: {answer}");
    }
    assert!(!run.board.take_drain());
}

#[test]
fn what_the_node_is_asked_it_answers_and_only_who_knows_the_token_changes_anything() {
    let run = Run::with_api(Some("correct-horse-battery"), true);
    let board = run.board.clone();
    let node = std::thread::spawn(move || {
        let mut seen = Vec::new();
        while seen.len() < 2 {
            for (id, request) in board.take_requests() {
                let body = format!("{{\"n\":{}}}", seen.len());
                seen.push(request);
                board.reply(id, Reply { status: 200, body: body.into() });
            }
            std::thread::yield_now();
        }
        seen
    });
    let answer = run.ask("PUT /api/v1/cluster/document", "");
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    let answer = run.ask("GET /api/v1/tenants?after=acme", "");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n{\"n\":0}"), "{answer}");
    let with_token = "Authorization: Bearer correct-horse-battery\r\n";
    let answer = run.ask("PUT /api/v1/cluster/document", with_token);
    assert!(answer.contains("application/json"), "{answer}");

    let [get, put] = &node.join().unwrap()[..] else { panic!() };
    assert_eq!((get.verb, &*get.path, &*get.query), (Verb::Get, "tenants", "after=acme"));
    assert_eq!((put.verb, &*put.path, &*put.query), (Verb::Put, "cluster/document", ""));
    assert_eq!(run.bell.0.load(Ordering::Relaxed), 2);
}

#[test]
fn a_node_that_answers_nobody_is_asked_by_few_and_remembers_nobody() {
    let run = Run::with_api(None, true);
    let open = || {
        let mut stream = TcpStream::connect(run.addr).unwrap();
        stream.write_all(b"GET /api/v1/cluster HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        stream
    };
    let waiting: Vec<TcpStream> = (0..16).map(|_| open()).collect();
    while run.bell.0.load(Ordering::Relaxed) < 16 {
        std::thread::yield_now();
    }
    let answer = run.ask("GET /api/v1/cluster", "");
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert_eq!(run.board.take_requests().len(), 16);
    drop(waiting);
    // Whoever has left makes room.
    while run.board.desk.len() != 0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_node_without_a_token_takes_no_orders() {
    let run = Run::new(None);
    let error = drain(run.addr, &token("correct-horse-battery")).unwrap_err();
    assert!(matches!(error, OrderError::Forbidden), "{error}");
    assert!(!run.board.take_drain());
}

#[test]
fn an_order_is_a_post_and_nothing_else() {
    let run = Run::new(Some("correct-horse-battery"));
    let with_token = "Authorization: Bearer correct-horse-battery\r\n";
    for method in ["GET", "PUT", "DELETE", "HEAD"] {
        let answer = run.ask(&format!("{method} {DRAIN_PATH}"), with_token);
        assert!(answer.starts_with("HTTP/1.1 405 Method Not Allowed\r\n"), "{method}: {answer}");
        assert!(answer.contains("\r\nallow: POST\r\n"), "{method}: {answer}");
    }
    let answer = run.ask("POST /healthz", with_token);
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    let answer = run.ask("POST /api/v1/explode", with_token);
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    assert!(!run.board.take_drain());
}

#[test]
fn nobody_answers_where_no_node_is() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = drain(closed, &token("correct-horse-battery")).unwrap_err();
    assert_eq!(error.to_string(), format!("no answer from {closed}"));
}

#[test]
fn a_token_is_one_word_in_a_file_that_not_everybody_may_read() {
    let path = std::env::temp_dir().join(format!("holdline-token-{}", std::process::id()));
    let write = |text: &str, mode| {
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        Token::read(&path)
    };
    assert!(write("correct-horse-battery\n", 0o600).unwrap().is(b"correct-horse-battery"));
    assert!(write("correct-horse-battery", 0o640).is_ok());
    assert!(matches!(write("correct-horse-battery", 0o644), Err(TokenError::Public(_))));
    for text in
        ["", "short", "two words of sixteen", "t\u{f6}ken-of-sixteen-bytes", &"x".repeat(513)]
    {
        assert!(matches!(write(text, 0o600), Err(TokenError::Word(_))), "{text}");
    }
    assert!(matches!(write(&"x".repeat(2000), 0o600), Err(TokenError::Word(_))));
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(Token::read(&path), Err(TokenError::Read { .. })));
    assert_eq!(format!("{:?}", token("correct-horse-battery")), "Token");
}

#[derive(Default)]
struct Bell(AtomicU32);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A node's HTTP thread.
struct Run {
    board: Arc<Board>,
    addr: SocketAddr,
    bell: Arc<Bell>,
}

impl Run {
    fn new(word: Option<&str>) -> Self {
        Self::with_api(word, false)
    }

    fn with_api(word: Option<&str>, api: bool) -> Self {
        let bell = Arc::new(Bell::default());
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let visit_max = Duration::from_secs(60);
        let (board, addr) =
            serve_visits(local, visit_max, word.map(token), api, bell.clone().into()).unwrap();
        Self { board, addr, bell }
    }

    fn post(&self, header: &str) -> String {
        self.ask(&format!("POST {DRAIN_PATH}"), header)
    }

    fn ask(&self, line: &str, header: &str) -> String {
        let mut stream = TcpStream::connect(self.addr).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let request = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{header}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

fn token(word: &str) -> Token {
    Token::new(word).unwrap()
}
