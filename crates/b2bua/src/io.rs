//! What a [`crate::B2b`] is told and what it asks for.

use std::net::SocketAddr;

use bytes::Bytes;
use failover::replica::Key;
use failover::{Boot, CallId, Charge, Detail, Epoch, Latched, NodeId, Place, Slot, Transport};

use crate::Route;
use crate::admission::{Ask, Elsewhere, Refused};
use crate::frame::{SipIn, SipOut};

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A gate can be reached, or told its listeners anew.
    GateUp {
        /// The gate.
        gate: NodeId,
        /// Its boot; flows of an earlier one are gone.
        boot: Boot,
        /// Its listeners, numbered as in [`crate::Flow::listener`].
        listeners: Vec<Listener>,
    },
    /// The link to a gate ended. Its listeners are remembered and calls go on: what is lost
    /// meanwhile is repeated, as a lost datagram is.
    GateDown {
        /// The gate.
        gate: NodeId,
    },
    /// A message came through a gate.
    Sip(SipIn),
    /// From now on this b2b owns the slot in this epoch. Its records, if there are any, are restored
    /// afterwards.
    Owned {
        /// The slot.
        slot: Slot,
        /// Stands in every [`SipOut`] and media command of the slot.
        epoch: Epoch,
    },
    /// The answer to [`Output::Admit`]: the call counts against this until [`Output::Released`].
    Admitted {
        /// The call that asked. One that is gone meanwhile is released at once.
        call: CallId,
        /// What it counts against.
        charge: Charge,
        /// Where it goes, counting no more here, if there are no ports for it.
        elsewhere: Option<Elsewhere>,
    },
    /// The other answer to [`Output::Admit`]: nothing was counted.
    NotAdmitted {
        /// The call that asked.
        call: CallId,
        /// How its caller is answered, or where it may go instead.
        refused: Refused,
    },
    /// Calls that no registered user is called by go here from now on, in place of
    /// [`crate::Config::routes`].
    Routes(Vec<Route>),
    /// The answer to [`Output::Place`]. A place that the call no longer needs comes back as
    /// [`Output::Freed`].
    Placed {
        /// The call that asked.
        call: CallId,
        /// Ports for the media now; absent when only a standby was wanted.
        holder: Option<Place>,
        /// Ports at another gateway, should the holder die; absent when there is no other.
        standby: Option<Place>,
    },
    /// The other answer to [`Output::Place`].
    NotPlaced {
        /// The call that asked.
        call: CallId,
        /// Why there is nothing.
        why: NotPlaced,
    },
    /// A mediagate reports.
    Media {
        /// The mediagate.
        gateway: NodeId,
        /// Its boot.
        boot: Boot,
        /// What it saw.
        event: MediaEvent,
    },
    /// The mediagate is dead: its calls move now.
    GatewayDead {
        /// The mediagate.
        gateway: NodeId,
        /// The boot that died.
        boot: Boot,
    },
    /// Another b2b owns these slots now. Their calls are dropped and nobody hears of it; their ports
    /// stay taken for a while, since the new owner goes on with them.
    Lost {
        /// The slots.
        slots: Vec<Slot>,
    },
    /// The detail of a call is written down, and nobody need do it again.
    Written {
        /// The call.
        call: CallId,
    },
    /// No new calls from now on; [`crate::B2b::is_drained`] tells when the old ones have ended.
    Drain,
}

/// A socket of a gate towards phones and trunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its number at the gate.
    pub id: u8,
    /// What it carries.
    pub transport: Transport,
    /// The address that peers reach it at; stands in Contact and Via.
    pub advertise: SocketAddr,
}

/// Why a call gets no ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPlaced {
    /// No mediagate lives.
    NoGateway,
    /// Ports or files are exhausted everywhere.
    Full,
}

/// What a mediagate reports about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaEvent {
    /// The command of this epoch could not be obeyed; the leg has no socket.
    Failed {
        /// The call.
        call: CallId,
        /// The epoch of the command.
        epoch: Epoch,
        /// 0 is the caller's, 1 the callee's.
        leg: usize,
    },
    /// RTP of the leg was heard and its source locked.
    Latched {
        /// The call.
        call: CallId,
        /// The epoch in which the leg is open.
        epoch: Epoch,
        /// 0 is the caller's, 1 the callee's.
        leg: usize,
        /// What was locked.
        latched: Latched,
    },
    /// No RTP came from the leg for the media timeout although it is not held.
    Silent {
        /// The call.
        call: CallId,
        /// The epoch in which the leg is open.
        epoch: Epoch,
        /// 0 is the caller's, 1 the callee's.
        leg: usize,
    },
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A record is another one now: [`crate::B2b::stored`] has it. Comes before all messages of its
    /// turn, and only with [`crate::Config::stores`].
    Stored {
        /// Where it belongs.
        slot: Slot,
        /// Its name.
        key: Key,
        /// No message or detail of the slot may leave before the record is kept elsewhere.
        barrier: bool,
    },
    /// The message belongs to a slot of another b2b, or to an INVITE that may be there. Hand it to
    /// that one; it was not handled here.
    PassOn(SipIn),
    /// Hand the message to its gate.
    Sip(SipOut),
    /// May this call be? Only with [`crate::Config::admits`]. Answered by [`Input::Admitted`] or
    /// [`Input::NotAdmitted`], now or later; nothing was said to anybody yet.
    Admit {
        /// The call that asks.
        call: CallId,
        /// What is known of it.
        ask: Box<Ask>,
    },
    /// The call counts no more, or needs no answer to [`Output::Admit`] any more.
    Released {
        /// The call.
        call: CallId,
    },
    /// Choose ports; answered by [`Input::Placed`] or [`Input::NotPlaced`] before anything else is
    /// handled.
    Place {
        /// The call that asks.
        call: CallId,
        /// What it needs.
        wanted: Wanted,
    },
    /// Send the command to the mediagate, if that boot of it still lives.
    Media {
        /// The mediagate.
        gateway: NodeId,
        /// The boot whose ports the command names.
        boot: Boot,
        /// The command.
        command: MediaCommand,
    },
    /// The ports are in use: a record of another process, or of an earlier life of this one, names them. To
    /// be given to no other call until they come back as [`Output::Freed`].
    Named(Place),
    /// The ports are no longer needed.
    Freed(Place),
    /// A call ended: write this down, and say so with [`Input::Written`]. Its record stays until then, and
    /// the next owner of the slot says it again unless its record has that.
    Detail(Box<Detail>),
    /// Something an operator may want to read.
    Event(Event),
}

/// Which ports a call asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A holder and, if there is a second gateway, a standby.
    Both,
    /// Only a standby; not at this gateway.
    Standby {
        /// Where the call's media is.
        holder: NodeId,
    },
}

/// A command to a mediagate. Each carries the whole wanted state and may be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediaCommand {
    /// Open both legs.
    Open(Box<MediaCall>),
    /// Change what differs.
    Update(Box<MediaCall>),
    /// Close both legs.
    Close {
        /// The call.
        call: CallId,
        /// Obeyed unless a higher one was seen.
        epoch: Epoch,
    },
}

/// Both legs of a call as a mediagate is to serve them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaCall {
    /// The call.
    pub call: CallId,
    /// Obeyed unless a higher one was seen.
    pub epoch: Epoch,
    /// Caller and callee.
    pub legs: [MediaLeg; 2],
}

/// One leg as a mediagate is to serve it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaLeg {
    /// Our RTP port.
    pub port: u16,
    /// Where the phone wants its RTP; unknown before its SDP came.
    pub remote: Option<SocketAddr>,
    /// Where the phone wants its RTCP.
    pub remote_rtcp: Option<SocketAddr>,
    /// The payload types that the leg may carry.
    pub payload_types: Vec<u8>,
    /// The phone need not send: no timeout runs.
    pub held: bool,
    /// The phone's SDP does not name the address it signals from: its source may be another.
    pub nat: bool,
    /// What an earlier gateway had locked.
    pub latched: Option<Latched>,
}

/// Something an operator may want to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A contact was registered or refreshed.
    Registered {
        /// The address of record.
        aor: Bytes,
        /// The contact's URI.
        contact: Bytes,
        /// Where it signals from.
        from: SocketAddr,
        /// For how many seconds.
        expires: u32,
    },
    /// A contact was removed or ran out.
    Unregistered {
        /// The address of record.
        aor: Bytes,
    },
    /// A call began.
    Started {
        /// The call.
        call: CallId,
        /// The caller's address.
        from: Bytes,
        /// The address called.
        to: Bytes,
    },
    /// A call was answered.
    Answered {
        /// The call.
        call: CallId,
    },
    /// The media of a call went from one gateway to another.
    Moved {
        /// The call.
        call: CallId,
        /// Where it was.
        from: NodeId,
        /// Where it is.
        to: NodeId,
    },
    /// A phone accepted twice that its media moved, and none has come.
    Unheard {
        /// The call.
        call: CallId,
        /// 0 is the caller's, 1 the callee's.
        leg: usize,
    },
    /// A phone would not follow its media to another gateway; the leg is kept as it is.
    KeptApart {
        /// The call.
        call: CallId,
        /// 0 is the caller's, 1 the callee's.
        leg: usize,
        /// The last answer.
        status: u16,
    },
}
