//! A b2b's stock of one gateway's port numbers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use crate::frame::{BLOCK_LEGS, BLOCK_PORTS, Block, Inherit, Lease, Leased, Return, Welcome};

/// How long a number is kept back after its use, so that late packets of one call are not heard in the next.
pub const QUARANTINE: Duration = Duration::from_secs(2);

/// One b2b's side of the leases of one gateway.
///
/// Numbers for a call, or for a call's reserve on a standby gateway, are taken without a word to the gateway. More
/// blocks are asked for well before the stock runs dry: those that are ready or rest shall be some more than the last
/// two to three seconds took, because each number rests for two seconds after its use.
///
/// A gateway gives blocks in which calls go on that an earlier life of this node, or another one, began: the
/// owner says with [`Lessee::keep_back`] which numbers they name.
///
/// ```
/// use std::time::Instant;
/// use media::{Block, Leased, Lessee, LesseeInput, LesseeOutput, QUARANTINE, Welcome};
///
/// let now = Instant::now();
/// let mut lessee = Lessee::new(None);
/// let welcome = Welcome {
///     boot: 1,
///     host: "north".into(),
///     advertise: "192.0.2.1".parse()?,
///     legs_max: 512,
///     workers: 1,
///     beat: "192.0.2.1:7231".parse()?,
///     standby: false,
///     draining: false,
///     blocks: vec![],
/// };
/// lessee.handle_input(now, LesseeInput::Welcome(welcome));
/// assert!(matches!(lessee.poll_output(), Some(LesseeOutput::Inherit(_))));
/// let Some(LesseeOutput::Lease(lease)) = lessee.poll_output() else { panic!("it asks at once") };
/// assert_eq!(lease.blocks, 2);
///
/// // A gateway that has just started lets its first blocks rest, as an earlier boot may have used them.
/// let block = Block { index: 0, worker: 0, first_port: 10_000, rest_ms: 2000 };
/// lessee.handle_input(now, LesseeInput::Leased(Leased { boot: 1, blocks: vec![block] }));
/// assert_eq!(lessee.allocate(now), None);
/// let ports = lessee.allocate(now + QUARANTINE).expect("the block has rested");
/// assert_eq!(ports.ports, [10_000, 10_002]);
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Debug)]
pub struct Lessee {
    standby: Option<u16>,
    gateway: Option<Gateway>,
    /// Ports by worker; the one that has rested longest is taken first.
    ready: Vec<VecDeque<u16>>,
    resting: BTreeSet<(Instant, u16)>,
    /// By the gateway's boot and number, how many calls name it. Also of blocks that are not ours, or not
    /// yet.
    named: BTreeMap<(u64, u16), u16>,
    /// By first port.
    blocks: BTreeMap<u16, Block>,
    ask: Ask,
    /// When to look for idle blocks; `None` while there is no link.
    thin_at: Option<Instant>,
    rate: Rate,
    outputs: VecDeque<LesseeOutput>,
}

/// What a [`Lessee`] is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LesseeInput {
    /// The first frame of a new link. Another boot than before voids every block and number.
    Welcome(Welcome),
    /// The gateway's answer.
    Leased(Leased),
    /// The link ended. Numbers stay valid; nothing is asked for until the next [`LesseeInput::Welcome`].
    LinkDown,
}

/// What a [`Lessee`] wants sent to its gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LesseeOutput {
    /// Send this.
    Inherit(Inherit),
    /// Send this.
    Lease(Lease),
    /// Send this, behind every `Close` sent so far.
    Return(Return),
}

/// Port numbers for the two legs of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The gateway's boot in which they are valid.
    pub boot: u64,
    /// The RTP port of each leg, even; RTCP is on the next one.
    pub ports: [u16; 2],
}

#[derive(Clone, Copy, Debug)]
struct Gateway {
    boot: u64,
    legs_max: u32,
    workers: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    /// No link.
    Down,
    /// May ask at once.
    Free,
    /// Asked; the answer is on its way.
    Waiting,
    /// The gateway had too few; asks again later.
    Refused { until: Instant },
}

/// Numbers taken in this second and the ones before.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    since: Option<Instant>,
    taken: [u32; 3],
}

impl Lessee {
    /// A lessee without a gateway yet. `standby` is the node that would carry on its calls.
    pub fn new(standby: Option<u16>) -> Self {
        Self {
            standby,
            gateway: None,
            ready: Vec::new(),
            resting: BTreeSet::new(),
            named: BTreeMap::new(),
            blocks: BTreeMap::new(),
            ask: Ask::Down,
            thin_at: None,
            rate: Rate::default(),
            outputs: VecDeque::new(),
        }
    }

    /// Takes in what arrived at `now`.
    pub fn handle_input(&mut self, now: Instant, input: LesseeInput) {
        match input {
            LesseeInput::Welcome(welcome) => self.welcome(now, &welcome),
            LesseeInput::Leased(leased) => self.leased(now, &leased),
            LesseeInput::LinkDown => {
                self.ask = Ask::Down;
                self.thin_at = None;
            }
        }
        self.restock(now);
    }

    /// Asks again where a gateway had too few blocks, and returns blocks that are not needed any more.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.settle(now);
        if let Ask::Refused { until } = self.ask
            && until <= now
        {
            self.ask = Ask::Free;
            self.restock(now);
        }
        if self.thin_at.is_some_and(|at| at <= now) {
            self.thin_at = Some(now + THIN_PERIOD);
            self.thin(now);
        }
    }

    /// Takes numbers for both legs of a call, out of one worker. `None`: the gateway can take no call of ours.
    pub fn allocate(&mut self, now: Instant) -> Option<Ports> {
        self.settle(now);
        let boot = self.boot()?;
        // The fullest worker, so that the workers fill evenly; the lowest of equals.
        let ready = self.ready.iter_mut().rev().max_by_key(|ready| ready.len())?;
        let ports = if ready.len() < 2 { None } else { ready.pop_front().zip(ready.pop_front()) };
        self.rate.take(now, 2);
        self.restock(now);
        let (first, second) = ports?;
        for port in [first, second] {
            self.named.insert((boot, port), 1);
        }
        Some(Ports { boot, ports: [first, second] })
    }

    /// Gives nobody a number that a call names which did not get it here: it is one of an earlier life of
    /// this node, or was another node's. The caller frees it like those that were allocated.
    pub fn keep_back(&mut self, boot: u64, port: u16) {
        let count = self.named.entry((boot, port)).or_default();
        *count = count.saturating_add(1);
        if *count == 1 && self.boot() == Some(boot) && self.block_of(port).is_some() {
            self.resting.retain(|(_, other)| *other != port);
            self.ready.iter_mut().for_each(|ready| ready.retain(|other| *other != port));
        }
    }

    /// Gives back a number after its `Close`, or one that was only reserved. Unless another call names it,
    /// too, it rests for [`QUARANTINE`].
    ///
    /// A number that no call names is ignored, and one of another boot, or of a block that is not ours, is
    /// forgotten.
    pub fn free(&mut self, now: Instant, boot: u64, port: u16) {
        let Some(count) = self.named.get_mut(&(boot, port)) else { return };
        *count -= 1;
        if 0 < *count {
            return;
        }
        self.named.remove(&(boot, port));
        if self.boot() == Some(boot) && self.block_of(port).is_some() {
            self.settle(now);
            self.resting.insert((now + QUARANTINE, port));
        }
    }

    /// Returns the next thing to send. Drain until `None` after every other call.
    pub fn poll_output(&mut self) -> Option<LesseeOutput> {
        self.outputs.pop_front()
    }

    /// Returns when `handle_timeout` is next needed.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let ask_at = match self.ask {
            Ask::Down | Ask::Free | Ask::Waiting => None,
            Ask::Refused { until } => Some(until),
        };
        ask_at.into_iter().chain(self.thin_at).min()
    }

    /// The gateway's boot, once it has said so.
    pub fn boot(&self) -> Option<u64> {
        self.gateway.map(|gateway| gateway.boot)
    }

    /// Numbers that can be taken at `now`; a call needs two of one worker.
    pub fn ready(&self, now: Instant) -> usize {
        let rested = self.resting.iter().take_while(|(at, _)| *at <= now).count();
        rested + self.ready.iter().map(VecDeque::len).sum::<usize>()
    }

    fn welcome(&mut self, now: Instant, welcome: &Welcome) {
        if self.boot() != Some(welcome.boot) {
            self.blocks.clear();
            self.resting.clear();
            self.ready.clear();
            self.ask = Ask::Down;
        }
        self.gateway = Some(Gateway {
            boot: welcome.boot,
            legs_max: welcome.legs_max,
            workers: welcome.workers,
        });
        self.ready.resize(usize::from(welcome.workers), VecDeque::new());
        // Later ones on the same link say nothing new about blocks: our own frames may have crossed them.
        if self.ask == Ask::Down {
            let held =
                |block: &Block| welcome.blocks.iter().any(|other| other.index == block.index);
            let lost: Vec<Block> =
                self.blocks.values().filter(|block| !held(block)).copied().collect();
            for block in lost {
                self.forget(block);
            }
            self.adopt(now, welcome.boot, &welcome.blocks);
            self.outputs.push_back(LesseeOutput::Inherit(Inherit));
            self.ask = Ask::Free;
            self.thin_at = Some(now + THIN_PERIOD);
        }
    }

    fn leased(&mut self, now: Instant, leased: &Leased) {
        if self.boot() != Some(leased.boot) || self.ask != Ask::Waiting {
            return;
        }
        self.adopt(now, leased.boot, &leased.blocks);
        self.ask =
            if leased.blocks.is_empty() { Ask::Refused { until: now + RETRY } } else { Ask::Free };
    }

    fn adopt(&mut self, now: Instant, boot: u64, blocks: &[Block]) {
        for block in blocks {
            let fits = usize::from(block.worker) < self.ready.len()
                && block.first_port.is_multiple_of(2)
                && block.first_port.checked_add(BLOCK_PORTS - 1).is_some()
                && self.block_of(block.first_port).is_none();
            if fits {
                self.blocks.insert(block.first_port, *block);
                let ready_at = now + Duration::from_millis(block.rest_ms.into());
                let idle = rtp_ports(block).filter(|port| !self.named.contains_key(&(boot, *port)));
                self.resting.extend(idle.map(|port| (ready_at, port)));
            }
        }
        self.settle(now);
    }

    /// Moves numbers that have rested to the ready ones.
    fn settle(&mut self, now: Instant) {
        while let Some(&(at, port)) = self.resting.first()
            && at <= now
        {
            self.resting.pop_first();
            if let Some(worker) = self.block_of(port).map(|block| usize::from(block.worker)) {
                self.ready[worker].push_back(port);
            }
        }
    }

    /// Asks for blocks when the stock is short of what is wanted.
    fn restock(&mut self, now: Instant) {
        let Some(gateway) = self.gateway.filter(|_| self.ask == Ask::Free) else { return };
        let short = self.wanted(now, gateway).saturating_sub(self.stock());
        if 0 < short {
            let blocks = short.div_ceil(BLOCK_LEGS.into());
            let blocks = u16::try_from(blocks).unwrap_or(u16::MAX);
            let lease = Lease { blocks, standby: self.standby };
            self.outputs.push_back(LesseeOutput::Lease(lease));
            self.ask = Ask::Waiting;
        }
    }

    /// Returns one idle block when the stock is more than twice what is wanted.
    fn thin(&mut self, now: Instant) {
        let Some(gateway) = self.gateway.filter(|_| self.ask == Ask::Free) else { return };
        if self.stock() < 2 * self.wanted(now, gateway) + u32::from(BLOCK_LEGS) {
            return;
        }
        let ready: BTreeSet<u16> = self.ready.iter().flatten().copied().collect();
        let idle = |block: &&Block| rtp_ports(block).all(|port| ready.contains(&port));
        if let Some(block) = self.blocks.values().rev().find(idle).copied() {
            self.forget(block);
            let block = Return { boot: gateway.boot, block: block.index };
            self.outputs.push_back(LesseeOutput::Return(block));
        }
    }

    fn wanted(&mut self, now: Instant, gateway: Gateway) -> u32 {
        let one_each = u32::from(gateway.workers) * u32::from(BLOCK_LEGS);
        let base = STOCK.min(gateway.legs_max / 4).max(one_each);
        base.max(self.rate.recent(now) / 4 * 5)
    }

    /// Numbers that are ready, or will be within the quarantine.
    fn stock(&self) -> u32 {
        let ready: usize = self.ready.iter().map(VecDeque::len).sum();
        u32::try_from(self.resting.len() + ready).expect("there are at most 65,536 ports")
    }

    fn forget(&mut self, block: Block) {
        let of_it = |port: u16| {
            port.checked_sub(block.first_port).is_some_and(|offset| offset < BLOCK_PORTS)
        };
        self.blocks.remove(&block.first_port);
        self.resting.retain(|(_, port)| !of_it(*port));
        for ready in &mut self.ready {
            ready.retain(|port| !of_it(*port));
        }
    }

    fn block_of(&self, port: u16) -> Option<&Block> {
        let (first_port, block) = self.blocks.range(..=port).next_back()?;
        (port - first_port < BLOCK_PORTS).then_some(block)
    }
}

impl Rate {
    fn take(&mut self, now: Instant, legs: u32) {
        self.roll(now);
        self.taken[0] += legs;
    }

    /// Numbers taken in the last two to three seconds.
    fn recent(&mut self, now: Instant) -> u32 {
        self.roll(now);
        self.taken.iter().sum()
    }

    fn roll(&mut self, now: Instant) {
        let since = *self.since.get_or_insert(now);
        let seconds = now.saturating_duration_since(since).as_secs();
        for _ in 0..seconds.min(3) {
            self.taken.rotate_right(1);
            self.taken[0] = 0;
        }
        self.since = Some(since + Duration::from_secs(seconds));
    }
}

fn rtp_ports(block: &Block) -> impl Iterator<Item = u16> {
    let first_port = block.first_port;
    (0..BLOCK_LEGS).map(move |leg| first_port + 2 * leg)
}

/// Numbers wanted in stock before anything is known about the rate: blocks asked for on the way may take a second.
const STOCK: u32 = 512;

/// How long to wait after the gateway had no block left.
const RETRY: Duration = Duration::from_secs(1);

/// Between two looks for idle blocks.
const THIN_PERIOD: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
