//! The gateway's side of leases and calls: who holds which, and which worker carries it.

mod blocks;
mod calls;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::frame::{
    Block, CallId, Command, Digest, DigestDiffers, FailReason, Failed, Inherit, Leased, LegSpec,
    Missing, Notice, Sync, Welcome,
};
use blocks::{Blocks, Holder};
use calls::{Calls, Obeyed};

/// How long the blocks of a node that is gone are kept for it and whoever carries on its calls, and its calls
/// for it and its standby: ports that no call has open may be named as the reserve of one. Those of a former
/// boot return earlier only to the next one, if that is the only peer, has said which calls it goes on with
/// and is short of blocks. A block in which a call is open stays until that ends, or goes to whoever is short
/// of blocks, has all calls that are open in it, and has said [`Inherit`](crate::Inherit).
pub const GONE_MAX: Duration = Duration::from_secs(60);

/// A node of the cluster, at the other end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer(pub u16);

/// What a [`Lessor`] has to know from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LessorConfig {
    /// As in [`Welcome::boot`].
    pub boot: u64,
    /// As in [`Welcome::host`].
    pub host: String,
    /// As in [`Welcome::advertise`].
    pub advertise: IpAddr,
    /// As in [`Welcome::beat`].
    pub beat: SocketAddr,
    /// As in [`Welcome::standby`].
    pub standby: bool,
    /// The lowest port, even.
    pub first_port: u16,
    /// Blocks that fit into the port range and the file limit. Each [`BLOCK_PORTS`](crate::BLOCK_PORTS) ports long.
    pub blocks: u16,
    /// At least one.
    pub workers: u16,
}

/// Gives blocks of ports to b2bs, and routes their commands to the workers.
///
/// A call belongs to whoever spoke of it last at its highest epoch. Commands of a lower epoch are ignored, also for a
/// while after the call's end.
#[derive(Debug)]
pub struct Lessor {
    config: LessorConfig,
    draining: bool,
    blocks: Blocks,
    calls: Calls,
    peers: BTreeMap<Peer, PeerState>,
    /// Former boots of peers, with the time at which the next one came; at most [`FORMER_MAX`].
    former: VecDeque<(Instant, Holder)>,
    outputs: VecDeque<LessorOutput>,
}

/// What a [`Lessor`] is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LessorInput {
    /// A link to a b2b can be used.
    PeerUp {
        /// Who is there.
        peer: Peer,
        /// Its boot; another one than before knows nothing of the old one's leases.
        boot: u64,
    },
    /// It can be used no more.
    PeerDown {
        /// Who was there.
        peer: Peer,
    },
    /// A frame came.
    Command {
        /// Who sent it.
        peer: Peer,
        /// What it says.
        command: Command,
    },
    /// A worker has something to say to a call's holder.
    Notice(Notice),
    /// The gateway shall end once its calls have; b2bs are asked for no new ones.
    Drain,
}

/// What a [`Lessor`] asks of its owner, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LessorOutput {
    /// Send this.
    Notice {
        /// To whom.
        peer: Peer,
        /// What.
        notice: Notice,
    },
    /// Have a worker's [`Relay::apply`](crate::Relay::apply) called.
    Apply {
        /// Counted from 0.
        worker: u16,
        /// The call.
        call: CallId,
        /// Its epoch.
        epoch: u32,
        /// Its wanted state.
        legs: Box<[LegSpec; 2]>,
    },
    /// Have a worker's [`Relay::close`](crate::Relay::close) called.
    Close {
        /// Counted from 0.
        worker: u16,
        /// The call.
        call: CallId,
    },
}

#[derive(Clone, Copy, Debug)]
struct PeerState {
    boot: u64,
    /// Who carries on its calls when it is gone.
    standby: Option<Peer>,
    /// `None` while it is there.
    gone_at: Option<Instant>,
    /// Gone for so long that its blocks were taken back.
    bare: bool,
    /// This boot has said which calls it holds.
    told: bool,
    /// It has said [`Inherit`](crate::Inherit) on this link.
    inherits: bool,
}

impl Lessor {
    /// A gateway that has just started: every block rests, since an earlier boot may have used it.
    ///
    /// # Panics
    /// When there are no workers, or the blocks do not fit below port 65536.
    pub fn new(now: Instant, config: LessorConfig) -> Self {
        let LessorConfig { first_port, blocks, workers, boot, .. } = config;
        let blocks = Blocks::new(now, first_port, blocks, workers, boot);
        Self {
            config,
            draining: false,
            blocks,
            calls: Calls::default(),
            peers: BTreeMap::new(),
            former: VecDeque::new(),
            outputs: VecDeque::new(),
        }
    }

    /// Takes in what happened at `now`.
    pub fn handle_input(&mut self, now: Instant, input: LessorInput) {
        match input {
            LessorInput::PeerUp { peer, boot } => self.peer_up(now, peer, boot),
            LessorInput::PeerDown { peer } => {
                if let Some(state) = self.peers.get_mut(&peer) {
                    state.gone_at.get_or_insert(now);
                }
            }
            LessorInput::Command { peer, command } => self.command(now, peer, command),
            LessorInput::Notice(notice) => self.notice(now, notice),
            LessorInput::Drain => {
                self.draining = true;
                let there: Vec<Peer> = self.there().collect();
                for peer in there {
                    self.welcome(now, peer);
                }
            }
        }
    }

    /// Takes back what belonged to nodes that are gone.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.calls.forget(now);
        if self.sweep_at().is_some_and(|at| at <= now) {
            self.sweep(now);
        }
    }

    /// Returns the next thing to do. Drain until `None` after every other call.
    pub fn poll_output(&mut self) -> Option<LessorOutput> {
        self.outputs.pop_front()
    }

    /// Returns when `handle_timeout` is next needed.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.calls.forget_at().into_iter().chain(self.sweep_at()).min()
    }

    /// Legs of open calls.
    pub fn legs(&self) -> u32 {
        2 * self.calls.count()
    }

    /// Legs that can be open at once.
    pub fn legs_max(&self) -> u32 {
        u32::from(self.config.blocks) * u32::from(crate::BLOCK_LEGS)
    }

    /// Blocks that nobody holds.
    pub fn blocks_free(&self) -> usize {
        self.blocks.free()
    }

    /// Commands that came from below a call's epoch.
    pub fn stale_commands(&self) -> u64 {
        self.calls.stale()
    }

    fn peer_up(&mut self, now: Instant, peer: Peer, boot: u64) {
        let before = self.peers.get(&peer).copied();
        let standby = before.and_then(|before| before.standby);
        let told = before.is_some_and(|before| before.boot == boot && before.told);
        let state = PeerState { boot, standby, gone_at: None, bare: false, told, inherits: false };
        self.peers.insert(peer, state);
        if let Some(before) = before.filter(|before| before.boot != boot) {
            // It was there before: two processes had one id for a while, and this one goes on.
            self.former.retain(|(_, holder)| *holder != Holder { peer, boot });
            if self.former.len() == FORMER_MAX
                && let Some((_, holder)) = self.former.pop_front()
            {
                self.blocks.take_back(now, holder);
            }
            self.former.push_back((now, Holder { peer, boot: before.boot }));
        }
        self.welcome(now, peer);
    }

    fn welcome(&mut self, now: Instant, peer: Peer) {
        let Some(boot) = self.peers.get(&peer).map(|state| state.boot) else { return };
        let welcome = Welcome {
            boot: self.config.boot,
            host: self.config.host.clone(),
            advertise: self.config.advertise,
            legs_max: self.legs_max(),
            workers: self.config.workers,
            beat: self.config.beat,
            standby: self.config.standby,
            draining: self.draining,
            blocks: self.blocks.of(now, Holder { peer, boot }),
        };
        self.tell(peer, Notice::Welcome(welcome));
    }

    fn command(&mut self, now: Instant, peer: Peer, command: Command) {
        let there = self.peers.get(&peer).filter(|state| state.gone_at.is_none());
        let Some(boot) = there.map(|state| state.boot) else { return };
        let holder = Holder { peer, boot };
        match command {
            Command::Lease(lease) => {
                if let Some(state) = self.peers.get_mut(&peer) {
                    state.standby = lease.standby.map(Peer);
                }
                let blocks = self.lease(now, holder, lease.blocks);
                self.tell(peer, Notice::Leased(Leased { boot: self.config.boot, blocks }));
            }
            Command::Return(returned) => {
                if returned.boot == self.config.boot {
                    self.blocks.give_back(now, holder, returned.block);
                }
            }
            Command::Inherit(Inherit) => {
                if let Some(state) = self.peers.get_mut(&peer) {
                    state.inherits = true;
                }
            }
            Command::Open(open) => self.apply(now, peer, open.call, open.epoch, open.legs),
            Command::Update(update) => {
                self.apply(now, peer, update.call, update.epoch, update.legs);
            }
            Command::Close(close) => {
                if self.calls.may(close.call, close.epoch) {
                    self.close(now, close.call);
                    self.calls.bury(now, close.call, close.epoch);
                }
            }
            Command::Digest(theirs) => {
                let held: Digest = self.calls.held_by(peer).collect();
                if held == theirs {
                    self.told(peer);
                } else {
                    self.tell(peer, Notice::DigestDiffers(DigestDiffers { held }));
                }
            }
            Command::Sync(sync) => self.sync(now, peer, &sync),
        }
    }

    /// Gives blocks: free ones first, and then the rest of those in which only the holder's calls are open.
    fn lease(&mut self, now: Instant, holder: Holder, wanted: u16) -> Vec<Block> {
        if self.blocks.free() < usize::from(wanted) {
            self.end_former(now, holder);
        }
        let mut given = self.blocks.lease(now, holder, wanted);
        let may = self.peers.get(&holder.peer).is_some_and(|state| state.told && state.inherits);
        let short = usize::from(wanted) - given.len();
        if may && 0 < short && self.blocks.has_left() {
            let others = self.calls.ports_but_of(holder.peer);
            given.extend(self.blocks.inherit(now, holder, short, others));
        }
        given
    }

    fn apply(&mut self, now: Instant, peer: Peer, call: CallId, epoch: u32, legs: [LegSpec; 2]) {
        if !self.calls.may(call, epoch) {
            return;
        }
        let ports = [legs[0].port, legs[1].port];
        let workers = ports.map(|port| self.blocks.worker(port));
        let (Some(worker), true) = (workers[0], workers[0] == workers[1]) else {
            let leg = u8::from(workers[0].is_some());
            self.close(now, call);
            let failed = Failed { call, epoch, leg, reason: FailReason::BadPort };
            self.tell(peer, Notice::Failed(failed));
            return;
        };
        let obeyed = self.calls.obey(call, Obeyed { peer, epoch, worker, ports });
        for port in ports {
            self.blocks.open(port);
        }
        if let Some(before) = obeyed {
            self.release(now, before.ports);
            if before.worker != worker {
                self.outputs.push_back(LessorOutput::Close { worker: before.worker, call });
            }
        }
        let legs = Box::new(legs);
        self.outputs.push_back(LessorOutput::Apply { worker, call, epoch, legs });
    }

    fn close(&mut self, now: Instant, call: CallId) {
        if let Some(Obeyed { worker, ports, .. }) = self.calls.remove(call) {
            self.release(now, ports);
            self.outputs.push_back(LessorOutput::Close { worker, call });
        }
    }

    fn release(&mut self, now: Instant, ports: [u16; 2]) {
        for port in ports {
            self.blocks.close(now, port);
        }
    }

    fn sync(&mut self, now: Instant, peer: Peer, sync: &Sync) {
        let listed: BTreeMap<CallId, u32> = sync.calls.iter().copied().collect();
        let unlisted: Vec<CallId> =
            self.calls.held_by(peer).filter(|call| !listed.contains_key(call)).collect();
        for call in unlisted {
            self.close(now, call);
        }
        let claim = |(call, epoch): (&CallId, &u32)| {
            let missing = !self.calls.claim(*call, peer, *epoch);
            missing.then_some(*call)
        };
        let calls: Vec<CallId> = listed.iter().filter_map(claim).collect();
        if !calls.is_empty() {
            self.tell(peer, Notice::Missing(Missing { calls }));
        }
        self.told(peer);
    }

    /// A peer has said all that it goes on with of its former boots' calls.
    fn told(&mut self, peer: Peer) {
        if let Some(state) = self.peers.get_mut(&peer) {
            state.told = true;
        }
    }

    /// Takes back the blocks of a peer's former boots, if nobody else can name ports in them. Another peer
    /// may have taken calls over: it goes on naming the ports reserved for them until it has found others,
    /// and opens them only when the calls move here.
    fn end_former(&mut self, now: Instant, Holder { peer, boot }: Holder) {
        let told = self.peers.get(&peer).is_some_and(|state| state.told);
        if !told || self.peers.keys().any(|other| *other != peer) {
            return;
        }
        let blocks = &mut self.blocks;
        self.former.retain(|(_, holder)| {
            // A later one may be there still: two processes have one id.
            let is_done = holder.peer == peer && holder.boot < boot;
            if is_done {
                blocks.take_back(now, *holder);
            }
            !is_done
        });
    }

    /// What a worker has to say goes to the holder as it is now.
    fn notice(&mut self, now: Instant, notice: Notice) {
        let call = match &notice {
            Notice::Failed(failed) => failed.call,
            Notice::Latched(latched) => latched.call,
            Notice::Silent(silent) => silent.call,
            Notice::Welcome(_)
            | Notice::Leased(_)
            | Notice::DigestDiffers(_)
            | Notice::Missing(_) => return,
        };
        let Some(holder) = self.calls.get(call).map(|obeyed| obeyed.peer) else { return };
        if let Notice::Failed(_) = notice {
            // Also there, should a later command have opened it again: holder and worker shall agree.
            self.close(now, call);
        }
        self.tell(holder, notice);
    }

    /// Takes back what is due: of former boots the blocks, of peers that are gone also the calls.
    fn sweep(&mut self, now: Instant) {
        while let Some((at, holder)) = self.former.front().copied()
            && at + GONE_MAX <= now
        {
            self.former.pop_front();
            self.blocks.take_back(now, holder);
        }
        for (peer, state) in &mut self.peers {
            if !state.bare && state.gone_at.is_some_and(|at| at + GONE_MAX <= now) {
                state.bare = true;
                self.blocks.take_back(now, Holder { peer: *peer, boot: state.boot });
            }
        }
        let lost = self
            .peers
            .iter()
            .filter(|(_, state)| state.bare && self.gone_due(state).is_some_and(|at| at <= now));
        let lost: Vec<Peer> = lost.map(|(peer, _)| *peer).collect();
        for peer in lost {
            let calls: Vec<CallId> = self.calls.held_by(peer).collect();
            for call in calls {
                self.close(now, call);
            }
            self.peers.remove(&peer);
        }
    }

    fn sweep_at(&self) -> Option<Instant> {
        let former = self.former.front().map(|(at, _)| *at + GONE_MAX);
        let bare = self.peers.values().filter(|state| !state.bare);
        let bare = bare.filter_map(|state| state.gone_at.map(|at| at + GONE_MAX));
        let gone = self.peers.values().filter_map(|state| self.gone_due(state));
        former.into_iter().chain(bare).chain(gone).min()
    }

    /// When a peer and its standby will have been gone for long enough, as things are.
    fn gone_due(&self, state: &PeerState) -> Option<Instant> {
        let gone_at = state.gone_at?;
        match state.standby.and_then(|standby| self.peers.get(&standby)) {
            Some(standby) => standby.gone_at.map(|at| at.max(gone_at) + GONE_MAX),
            None => Some(gone_at + GONE_MAX),
        }
    }

    fn tell(&mut self, peer: Peer, notice: Notice) {
        self.outputs.push_back(LessorOutput::Notice { peer, notice });
    }

    /// Peers whose link is up.
    fn there(&self) -> impl Iterator<Item = Peer> + '_ {
        self.peers.iter().filter(|(_, state)| state.gone_at.is_none()).map(|(peer, _)| *peer)
    }
}

/// More starts in [`GONE_MAX`] than nodes that are well have together.
const FORMER_MAX: usize = 256;

#[cfg(test)]
mod tests;
