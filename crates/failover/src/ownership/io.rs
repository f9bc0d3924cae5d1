use crate::pulse::{Pulse, PulseBack};
use crate::slots::SlotSet;
use crate::voter::{Bid, Vote};
use crate::{Boot, Epoch, NodeId, SlotMap};

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Another b2b's pulse arrived. The node answers it itself.
    Pulse(Pulse),
    /// A pulse of ours was answered.
    Back(PulseBack),
    /// A pulse of ours was refused: its host lives and nobody listens there.
    Refused(NodeId),
    /// The control link to a voter or another b2b came up; its hello named this boot.
    LinkUp {
        /// Who is there.
        peer: NodeId,
        /// Its boot.
        boot: Boot,
    },
    /// The control link ended. Proves nothing, but asks the peer at once.
    LinkDown(NodeId),
    /// A voter or another b2b says who owns what.
    Map {
        /// Who does.
        from: NodeId,
        /// What it knows.
        map: SlotMap,
    },
    /// A voter answered a bid.
    Vote {
        /// The voter.
        from: NodeId,
        /// What it says.
        vote: Vote,
    },
    /// The standby holds everything of these slots.
    Synced {
        /// The standby.
        peer: NodeId,
        /// The slots.
        slots: SlotSet,
    },
    /// The standby no longer holds everything of these slots.
    Unsynced {
        /// The standby.
        peer: NodeId,
        /// The slots.
        slots: SlotSet,
    },
    /// Another b2b gives slots to this one, and has sent all of their records.
    HandOver {
        /// Who does.
        from: NodeId,
        /// The slots.
        slots: SlotSet,
        /// The epoch at which it owned them.
        epoch: Epoch,
    },
    /// Give every slot away, each as soon as a standby holds it, and take no more.
    Drain,
    /// The local store holds records of this epoch.
    Stored(Epoch),
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send the datagram. To this node itself when its own gate votes.
    Pulse {
        /// To whom.
        to: NodeId,
        /// The datagram.
        pulse: Pulse,
    },
    /// Send the bid. To this node itself when its own gate votes.
    Bid {
        /// To whom.
        to: NodeId,
        /// The frame.
        bid: Bid,
    },
    /// Send the map. To this node itself when its own gate votes.
    Map {
        /// To whom.
        to: NodeId,
        /// The frame.
        map: SlotMap,
    },
    /// These slots are ours from now on: restore what is held of them. Of slots that were ours
    /// already, and of those given away in vain, only the epoch is new: keep what is there.
    Own {
        /// The slots.
        slots: SlotSet,
        /// The epoch.
        epoch: Epoch,
    },
    /// These slots are another's: drop what is held of them and send nothing.
    Lose {
        /// The slots.
        slots: SlotSet,
    },
    /// Copy these slots of ours to this standby, from the beginning.
    Standby {
        /// The slots.
        slots: SlotSet,
        /// To whom; `None` to nobody.
        standby: Option<NodeId>,
        /// The epoch at which they are owned.
        epoch: Epoch,
    },
    /// Give these slots away: do nothing more for them, and let the standby know behind the last of
    /// their records. [`Output::Lose`] follows when it has taken them, else [`Output::Own`].
    HandOver {
        /// The slots.
        slots: SlotSet,
        /// The standby.
        to: NodeId,
        /// The epoch at which they are owned.
        epoch: Epoch,
    },
}
