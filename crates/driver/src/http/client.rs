//! What an operator's command asks of a running node.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::{DRAIN_PATH, Token};

/// Why a node was not told to drain, or it is not known whether it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DrainError {
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
    #[error("the node answered {0}")]
    Status(u16),
}

/// Tells the node that serves HTTP at `addr` to drain and then to end. Told twice, it drains once.
///
/// # Errors
/// When it does not answer that it will.
pub fn drain(addr: SocketAddr, token: &Token) -> Result<(), DrainError> {
    match post(addr, token).map_err(|source| DrainError::Reach { addr, source })? {
        202 => Ok(()),
        401 => Err(DrainError::Token),
        403 => Err(DrainError::Forbidden),
        status => Err(DrainError::Status(status)),
    }
}

/// Returns the status of the answer.
fn post(addr: SocketAddr, token: &Token) -> io::Result<u16> {
    let mut stream = TcpStream::connect_timeout(&addr, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = format!(
        "POST {DRAIN_PATH} HTTP/1.1\r\nHost: {addr}\r\nAuthorization: Bearer {}\r\n\
         Content-Length: 0\r\nConnection: close\r\n\r\n",
        token.word()
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer)?;
    // RFC 9112 §4: "HTTP/1.1 202 Accepted".
    let status = answer.strip_prefix(b"HTTP/1.1 ").and_then(|rest| rest.get(..3));
    let status = status.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    status.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// How long a node may take for each step of an answer.
const PATIENCE: Duration = Duration::from_secs(5);
const ANSWER_MAX: u64 = 1 << 16;
