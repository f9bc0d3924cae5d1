//! Who may come in: few at once, and not for long.
//!
//! A connection is a file, and the files of a process belong to its calls.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot::{Receiver, Sender, channel};
use tokio::task::yield_now;
use tokio::time::{Sleep, sleep};

/// Connections at once; the oldest one ends when one more comes.
const VISITORS_MAX: usize = 64;

/// A listener that lets in a few at once.
pub(super) struct Door {
    listener: TcpListener,
    /// Who is in, the oldest first. Whoever is dropped here ends.
    inside: VecDeque<Sender<()>>,
    visit_max: Duration,
}

/// A connection that ends in time.
pub(super) struct Visit {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    turned_out: Receiver<()>,
}

impl Door {
    pub(super) fn new(listener: std::net::TcpListener, visit_max: Duration) -> io::Result<Self> {
        let listener = TcpListener::from_std(listener)?;
        Ok(Self { listener, inside: VecDeque::new(), visit_max })
    }
}

impl Listener for Door {
    type Io = Visit;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Visit, SocketAddr) {
        // Whoever is in gets a turn before the next one may turn it out: a request that is there whole is
        // answered.
        yield_now().await;
        let (stream, from) = Listener::accept(&mut self.listener).await;
        self.inside.retain(|visitor| !visitor.is_closed());
        if self.inside.len() == VISITORS_MAX {
            self.inside.pop_front();
        }
        let (visitor, turned_out) = channel();
        self.inside.push_back(visitor);
        (Visit { stream, end: Box::pin(sleep(self.visit_max)), turned_out }, from)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Visit {
    /// Returns an error once the time is over or the place taken; until then, wakes the task when it is.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let is_over = self.end.as_mut().poll(context).is_ready();
        if is_over || Pin::new(&mut self.turned_out).poll(context).is_ready() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }
}

impl AsyncRead for Visit {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, bytes)
    }
}

impl AsyncWrite for Visit {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
