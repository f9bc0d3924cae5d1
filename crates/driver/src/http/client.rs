//! What an operator's command asks of a running node.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::{DRAIN_PATH, Token};

/// Why a node did not do what it was told, or it is not known whether it did.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OrderError {
    /// The node cannot be reached, or did not answer.
    #[error("no answer from {addr}")]
    Reach {
        /// Where it was asked.
        addr: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// It has another token.
    #[error("the node does not accept the token")]
    Token,
    /// It takes no orders, as its configuration names no token.
    #[error("the node takes no orders: its configuration names no token")]
    Forbidden,
    /// It answered something else.
    #[error("the node answered {status}: {text}")]
    Refused {
        /// The status.
        status: u16,
        /// What it said.
        text: String,
    },
}

/// Tells the node that serves HTTP at `addr` to drain and then to end. Told twice, it drains once.
///
/// # Errors
/// When it does not answer that it will.
pub fn drain(addr: SocketAddr, token: &Token) -> Result<(), OrderError> {
    order(addr, token, "POST", DRAIN_PATH, b"").map(drop)
}

/// Puts `body` in the place of what the node that serves HTTP at `addr` has at `path` below `/api/v1/`,
/// and returns its answer.
///
/// # Errors
/// When it does not answer that it has taken it.
pub fn put(addr: SocketAddr, token: &Token, path: &str, body: &[u8]) -> Result<String, OrderError> {
    order(addr, token, "PUT", &format!("/api/v1/{path}"), body)
}

fn order(
    addr: SocketAddr,
    token: &Token,
    method: &str,
    path: &str,
    body: &[u8],
) -> Result<String, OrderError> {
    let answer = ask(addr, token, method, path, body);
    let (status, text) = answer.map_err(|source| OrderError::Reach { addr, source })?;
    match status {
        200 | 202 => Ok(text),
        401 => Err(OrderError::Token),
        403 => Err(OrderError::Forbidden),
        status => Err(OrderError::Refused { status, text: text.trim_end().to_owned() }),
    }
}

/// Returns the status and the body of the answer.
fn ask(
    addr: SocketAddr,
    token: &Token,
    method: &str,
    path: &str,
    body: &[u8],
) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&addr, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {addr}\r\nAuthorization: Bearer {}\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        token.word(),
        body.len()
    );
    // Who refuses an order need not read it all: what it says counts, not that it closed.
    let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
    let mut answer = Vec::new();
    let read = stream.take(ANSWER_MAX).read_to_end(&mut answer);
    if answer.is_empty() {
        sent.and(read)?;
    }
    // RFC 9112 §4: "HTTP/1.1 202 Accepted".
    let status = answer.strip_prefix(b"HTTP/1.1 ").and_then(|rest| rest.get(..3));
    let status = status.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    let status = status.ok_or(io::ErrorKind::InvalidData)?;
    let text = String::from_utf8_lossy(&answer);
    let text = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok((status, text.to_owned()))
}

/// How long a node may take for each step of an answer.
const PATIENCE: Duration = Duration::from_secs(5);
const ANSWER_MAX: u64 = 1 << 16;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn a_body_is_put_and_what_the_node_says_is_told() {
        let (taken, request) = answered("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
        assert_eq!(taken.unwrap(), "{}");
        assert!(request.starts_with("PUT /api/v1/a/b HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("\r\nAuthorization: Bearer correct-horse-battery\r\n"));
        assert!(request.contains("\r\nContent-Length: 5\r\n"), "{request}");
        assert!(request.ends_with("\r\n\r\nhello"), "{request}");

        let (refused, _) = answered("HTTP/1.1 409 Conflict\r\n\r\nversion 7 is in force\n");
        let text = refused.unwrap_err().to_string();
        assert_eq!(text, "the node answered 409: version 7 is in force");
        let (garbled, _) = answered("nonsense");
        assert!(matches!(garbled, Err(OrderError::Reach { .. })));
    }

    /// Returns what comes of one order that is answered so, and what came in.
    fn answered(answer: &'static str) -> (Result<String, OrderError>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let node = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut bytes = [0; 1024];
            while !request.ends_with(b"hello") {
                let len = stream.read(&mut bytes).unwrap();
                request.extend_from_slice(&bytes[..len]);
            }
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8(request).unwrap()
        });
        let token = Token::new("correct-horse-battery").unwrap();
        let taken = put(addr, &token, "a/b", b"hello");
        (taken, node.join().unwrap())
    }
}
