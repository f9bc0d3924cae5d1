//! What a process runs: one value that is told what happened and asked what
//! to do, by [`run`](crate::run()) with real sockets and by `sim`
//! with none.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use bytes::Bytes;
use sip_core::Message;

use crate::metrics::Metrics;
use crate::stream::StreamLimits;
use crate::tls::SipTls;

/// A process of a cluster; unique in it, given by the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u16);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A datagram or stream socket, named by the node that asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(pub u32);

/// A connection of a stream socket. Never zero; it names no other one that stands, and none at all
/// until four billion others have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u32);

/// Which of the connections to a peer a frame takes.
///
/// Each class has its own connection and queue, so that no beat and no vote
/// waits behind calls, and no call behind a copy of all records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Elections, deaths, slot maps, hand-over: few, small, first.
    Control,
    /// Messages and commands of calls.
    Calls,
    /// Records and everything that may wait.
    Bulk,
}

/// What a node learns when it is made.
#[derive(Clone, Debug)]
pub struct Start {
    /// Feeds every random choice of the node; differs per start.
    pub seed: u64,
    /// The first `now`.
    pub instant: Instant,
    /// Wall-clock time at `instant`, in milliseconds since 1970.
    ///
    /// Later wall-clock times are counted from this pair, so a jump of the
    /// clock shows only after a restart.
    pub unix_ms: u64,
    /// Grows with each start of this node.
    pub boot: u64,
    /// Higher than every epoch that an earlier life of this node chose itself.
    pub epoch: u32,
    /// Whether the protocol thread runs in a real-time class.
    pub realtime: bool,
    /// Makes the loop deliver [`Input::Woken`]; may be called by any thread.
    pub waker: Waker,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The socket is open; `local` has the port that the system chose if the
    /// node asked for port 0.
    Bound {
        /// The socket of the [`Output::Bind`] or [`Output::Listen`].
        socket: SocketId,
        /// Its local address.
        local: SocketAddr,
    },
    /// The socket could not be opened and does not exist.
    BindFailed {
        /// The socket of the [`Output::Bind`] or [`Output::Listen`].
        socket: SocketId,
        /// Why.
        error: BindError,
    },
    /// One datagram came.
    Datagram {
        /// The socket it came to.
        socket: SocketId,
        /// Its source address.
        from: SocketAddr,
        /// Its payload, in an allocation of its own.
        bytes: Bytes,
    },
    /// One SIP message came over a connection; look at its verdict. After one that a stream cannot be
    /// read beyond, nothing more comes, and what is said over the connection at once is the last.
    Message {
        /// The stream socket.
        socket: SocketId,
        /// The connection.
        connection: ConnectionId,
        /// The peer's end of it.
        from: SocketAddr,
        /// The message.
        message: Box<Message>,
    },
    /// A message of an [`Output::Stream`] was not said, or only its beginning: there is no connection
    /// to take it. What the kernel has taken may be lost without a word.
    Unsent {
        /// The stream socket.
        socket: SocketId,
        /// Where else it was to go, as in [`Output::Stream`].
        to: SocketAddr,
        /// The message.
        bytes: Bytes,
    },
    /// The host of a connected socket's peer answered that nobody listens
    /// there. Says nothing about which datagram.
    Refused {
        /// The connected socket.
        socket: SocketId,
    },
    /// A link can be used. Frames sent before are gone.
    LinkUp {
        /// Who is at the other end.
        peer: NodeId,
        /// Which of its links.
        class: Class,
        /// The peer's boot: a higher one than before is a new process.
        boot: u64,
    },
    /// A link ended. Frames that were not read by the peer are gone; the loop
    /// dials again by itself.
    LinkDown {
        /// Who was at the other end.
        peer: NodeId,
        /// Which of its links.
        class: Class,
    },
    /// One frame came over a link.
    Frame {
        /// Who sent it.
        peer: NodeId,
        /// Over which link.
        class: Class,
        /// What the payload is.
        kind: u16,
        /// The payload, in an allocation of its own.
        payload: Bytes,
    },
    /// The oldest frame queued for a peer is 100 ms old or the queue half
    /// full (`on`), or that is over (`!on`). Between the two, frames may be
    /// dropped for their age or for want of room; at no other time while the
    /// link is up. A link that ends takes its congestion with it.
    Congested {
        /// Whose queue.
        peer: NodeId,
        /// Which of its links.
        class: Class,
        /// Whether it is congested now.
        on: bool,
    },
    /// Somebody asks over HTTP, and knows the token if it wants to change anything. Only with
    /// [`RunConfig::api`](crate::RunConfig::api). Answered by [`Output::Reply`], at once or soon.
    Request {
        /// The number to answer with.
        id: u64,
        /// What is asked.
        request: Request,
    },
    /// A line has left the process, and outlives it even if it is killed.
    Written {
        /// The number of the [`Output::Write`].
        number: u64,
    },
    /// A line is lost: too much waits to be written, or it could not be. It may be asked for again, when
    /// there may be room.
    Unwritten {
        /// The number of the [`Output::Write`].
        number: u64,
    },
    /// [`Start::waker`] was used, once or several times.
    Woken,
    /// The operator wants the process to end once its work has.
    /// Answered by [`Output::Stop`] when done.
    Drain,
    /// The operator changed the configuration file.
    Reload,
}

/// What somebody asks over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is to be done.
    pub verb: Verb,
    /// The path below `/api/v1/`, without a slash in front.
    pub path: String,
    /// What stands behind the question mark; empty without one.
    pub query: String,
    /// The body, at most 16 MiB.
    pub body: Bytes,
}

/// The methods of HTTP that a node is asked by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Reads.
    Get,
    /// Puts the body in the place of what is there.
    Put,
    /// Does something.
    Post,
}

/// What is answered over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// JSON when the status is 200, else lines of plain text.
    pub body: Body,
}

/// The words of an answer.
#[derive(Clone)]
pub struct Body(Words);

#[derive(Clone)]
enum Words {
    Ready(String),
    Later(Arc<dyn Fn() -> String + Send + Sync>),
}

impl Body {
    /// Words that the thread makes which sends them, so that the loop does not wait for long ones.
    pub fn later(make: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self(Words::Later(Arc::new(make)))
    }

    /// Returns the words.
    pub fn into_text(self) -> String {
        match self.0 {
            Words::Ready(text) => text,
            Words::Later(make) => make(),
        }
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self(Words::Ready(text))
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Words::Ready(text) => text.fmt(f),
            Words::Later(_) => f.write_str("later"),
        }
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        self.clone().into_text() == other.clone().into_text()
    }
}

impl Eq for Body {}

/// Why a socket could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Another socket has this address, or this node has this `SocketId`.
    #[error("address already in use")]
    InUse,
    /// No interface of this host has the address.
    #[error("address is not on this host")]
    NotHere,
    /// The port needs a right that the process has not.
    #[error("permission denied")]
    Denied,
    /// The process or the host is out of file descriptors.
    #[error("out of file descriptors")]
    FilesExhausted,
    /// Anything else, as an errno of the system.
    #[error("system error {0}")]
    System(i32),
}

/// What the loop is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Open a datagram socket. Answered by [`Input::Bound`] or
    /// [`Input::BindFailed`], not before this call's outputs are drained.
    Bind {
        /// The name that the node will use; free until now.
        socket: SocketId,
        /// Port 0 lets the system choose.
        local: SocketAddr,
        /// Connects the socket: only this peer is heard, and its refusals
        /// are reported.
        peer: Option<SocketAddr>,
    },
    /// Open a stream socket for SIP, which takes connections and makes them from its address; it answers
    /// keep-alives by itself, and reads its certificates anew when the process is told to reload. Answered
    /// by [`Input::Bound`] or [`Input::BindFailed`], not before this call's outputs are drained.
    Listen {
        /// The name that the node will use; free until now.
        socket: SocketId,
        /// Port 0 lets the system choose.
        local: SocketAddr,
        /// What peers may do.
        limits: StreamLimits,
        /// What is shown and asked for where connections carry TLS; without it they are plain.
        tls: Option<SipTls>,
    },
    /// Say one SIP message over a connection. [`Input::Unsent`] gives back what cannot be said.
    Stream {
        /// The stream socket.
        socket: SocketId,
        /// The connection, as long as it stands.
        over: Option<ConnectionId>,
        /// Where else: over a connection with this peer, which is made if there is none. With port 0
        /// there is no other way.
        to: SocketAddr,
        /// The message.
        bytes: Bytes,
    },
    /// Close a socket; a stream socket with its connections. Nothing is heard from it any more.
    Unbind {
        /// The socket; one that does not exist is ignored.
        socket: SocketId,
    },
    /// Send one datagram. What the kernel will not take is dropped and counted.
    Datagram {
        /// From this socket.
        socket: SocketId,
        /// To this address; the peer's own if the socket is connected.
        to: SocketAddr,
        /// The payload.
        bytes: Bytes,
    },
    /// Send one frame. Dropped and counted if the link is not up or its
    /// queue is full.
    Frame {
        /// To this node.
        peer: NodeId,
        /// Over this link.
        class: Class,
        /// What the payload is.
        kind: u16,
        /// The payload, at most [`PAYLOAD_MAX`](crate::frame::PAYLOAD_MAX) bytes.
        payload: Bytes,
    },
    /// Answer an [`Input::Request`]. One that nobody waits for any more is dropped.
    Reply {
        /// Its number.
        id: u64,
        /// The answer.
        reply: Reply,
    },
    /// Write a line to the log, under the target `journal` at level `info`. Answered once by
    /// [`Input::Written`] or [`Input::Unwritten`], in any order; a process that dies before may have
    /// written it. Where the log leaves that level out, nothing is written, and that counts as done.
    Write {
        /// Names it in the answer; free until then.
        number: u64,
        /// What is written, without an end of line.
        line: String,
    },
    /// End the process once everything said before is sent.
    Stop(StopReason),
}

/// Why a node wants its process to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// It was told to drain and has.
    Drained,
    /// It cannot go on; the text tells an operator why.
    Failed(String),
}

/// The one value that a process runs.
///
/// The loop drains [`poll_output`](Self::poll_output) after every other call, sends nothing of that
/// before [`end_turn`](Self::end_turn), and then asks [`poll_timeout`](Self::poll_timeout). `now` never
/// goes back.
pub trait Node {
    /// Takes in what happened at `now`.
    fn handle_input(&mut self, now: Instant, input: Input);

    /// Does what is due at `now`; does nothing when nothing is due.
    fn handle_timeout(&mut self, now: Instant);

    /// Ends a turn: what came and was due is told, and what is said from here leaves at once.
    ///
    /// A turn can be long, and its process stopped in the middle of it. What may only leave while
    /// something lasts, such as a lease, is therefore kept until here and looked at once more: `now` is
    /// the time at which it leaves. A node that keeps nothing so has nothing to do here.
    fn end_turn(&mut self, _now: Instant) {}

    /// Returns the next thing to do, `None` when nothing is left.
    fn poll_output(&mut self) -> Option<Output>;

    /// Returns when `handle_timeout` is next needed: after
    /// `handle_timeout(now)`, later than `now`.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Writes the node's counters and gauges; called about once a second.
    fn metrics(&self, out: &mut Metrics);

    /// Returns why this node is to get no new work, in a few words for an
    /// operator; `None` while it can do all of its work. `/healthz` says it.
    fn unready(&self) -> Option<&'static str> {
        None
    }
}

impl<N: Node + ?Sized> Node for Box<N> {
    fn handle_input(&mut self, now: Instant, input: Input) {
        (**self).handle_input(now, input);
    }

    fn handle_timeout(&mut self, now: Instant) {
        (**self).handle_timeout(now);
    }

    fn end_turn(&mut self, now: Instant) {
        (**self).end_turn(now);
    }

    fn poll_output(&mut self) -> Option<Output> {
        (**self).poll_output()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (**self).poll_timeout()
    }

    fn metrics(&self, out: &mut Metrics) {
        (**self).metrics(out);
    }

    fn unready(&self) -> Option<&'static str> {
        (**self).unready()
    }
}
