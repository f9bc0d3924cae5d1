//! Whole clusters with phones in `driver::sim`, and what must hold in them.
//!
//! ```
//! use std::time::Duration;
//! use testkit::scenario::Scenario;
//! use testkit::{Command, Config, Fleet, PhoneId};
//!
//! // No server at all: the phones call each other by their addresses.
//! let phones = Config { phones: 2, ..Config::new([10, 0, 0, 9].into()) };
//! let mut scenario = Scenario::<Fleet>::new(42, driver::sim::Config::default(), phones);
//! let (one, other) = (PhoneId(0), PhoneId(1));
//! let to = format!("sip:1001@{}", scenario.fleet().config().sip_addr(other));
//! scenario.plan(Duration::ZERO, one, Command::Call { to });
//! scenario.sim().run_for(Duration::from_secs(2));
//! scenario.assert_talking(&[(one, other)]);
//! ```

use std::fmt;
use std::time::{Duration, Instant};

use driver::sim::{self, Sim};
use driver::{Class, Input, Metrics, Node, NodeId, Output, Start};

use crate::fleet::{Config, Fleet};
use crate::journal::{Event, Fault, PhoneId};
use crate::phone::{Command, State};

/// The node of the phones.
pub const PHONES: NodeId = NodeId(u16::MAX);

/// A phone that should hear and has heard nothing for this long is deaf.
pub const DEAF: Duration = Duration::from_millis(200);

/// A node of a scenario.
#[derive(Debug)]
pub enum Member<N> {
    /// All phones.
    Phones(Box<Fleet>),
    /// One of the cluster.
    Server(N),
}

/// A simulated cluster with phones.
pub struct Scenario<N> {
    seed: u64,
    sim: Sim<Member<N>>,
    start: Instant,
}

/// What should not be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// A phone is not in the call that it should be in.
    Lost {
        /// The phone.
        phone: PhoneId,
        /// What it does instead.
        state: State,
    },
    /// A phone should hear the other side and does not.
    Deaf {
        /// The phone.
        phone: PhoneId,
        /// For how long.
        silence: Duration,
    },
    /// A phone is in a call that is over.
    Ghost {
        /// The phone.
        phone: PhoneId,
        /// What it does.
        state: State,
    },
    /// A phone saw a rule broken.
    Broken {
        /// The phone, if the message was for one.
        phone: Option<PhoneId>,
        /// The rule.
        fault: Fault,
    },
}

impl<N: Node> Scenario<N> {
    /// Returns a world with phones and nothing else. The same seed and the
    /// same calls give the same run.
    pub fn new(seed: u64, world: sim::Config, phones: Config) -> Self {
        let mut sim = Sim::new(seed, world);
        let start = sim.now();
        sim.add(PHONES, phones.ip, &[], move |start: Start| {
            let fleet = Fleet::new(phones.clone(), start.seed, start.instant);
            Member::Phones(Box::new(fleet))
        });
        Self { seed, sim, start }
    }

    /// Adds a node of the cluster; see [`Sim::add`].
    pub fn add(
        &mut self,
        id: NodeId,
        ip: std::net::IpAddr,
        dial: &[(NodeId, Class)],
        mut make: impl FnMut(Start) -> N + 'static,
    ) {
        self.sim.add(id, ip, dial, move |start| Member::Server(make(start)));
    }

    /// Returns the world, to run it and to do harm in it.
    pub fn sim(&mut self) -> &mut Sim<Member<N>> {
        &mut self.sim
    }

    /// Returns the lines that a node has written in all its lives.
    pub fn lines(&self, id: NodeId) -> &[String] {
        self.sim.lines(id)
    }

    /// Returns the time as the nodes see it.
    pub fn now(&self) -> Instant {
        self.sim.now()
    }

    /// Returns the phones.
    pub fn fleet(&self) -> &Fleet {
        match self.sim.node(PHONES) {
            Some(Member::Phones(fleet)) => fleet,
            Some(Member::Server(_)) | None => unreachable!("the phones run as long as the world"),
        }
    }

    /// Returns a node of the cluster, if it runs.
    pub fn server(&self, id: NodeId) -> Option<&N> {
        match self.sim.node(id)? {
            Member::Server(server) => Some(server),
            Member::Phones(_) => None,
        }
    }

    /// Lets a test change the phones.
    pub fn with_fleet<R>(&mut self, change: impl FnOnce(&mut Fleet, Instant) -> R) -> R {
        let result = self.sim.with(PHONES, |member, now| match member {
            Member::Phones(fleet) => change(fleet, now),
            Member::Server(_) => unreachable!("the node of the phones is the phones"),
        });
        result.expect("the phones run as long as the world")
    }

    /// Lets a phone do `command` this long from now.
    pub fn plan(&mut self, after: Duration, phone: PhoneId, command: Command) {
        self.with_fleet(|fleet, now| fleet.plan(now + after, phone, command));
    }

    /// Lets one phone call another by its address of record, this long from now.
    pub fn call(&mut self, after: Duration, from: PhoneId, to: PhoneId) {
        let to = self.fleet().config().aor(to);
        self.plan(after, from, Command::Call { to });
    }

    /// Registers all phones and waits for it.
    ///
    /// # Panics
    /// When a phone is not registered within 40 s.
    pub fn register_all(&mut self) {
        self.with_fleet(|fleet, now| {
            for phone in fleet.phones() {
                fleet.plan(now + Duration::from_millis(1) * phone.0, phone, Command::Register);
            }
        });
        let phones = self.fleet().phones().count();
        for _ in 0..400 {
            self.sim.run_for(Duration::from_millis(100));
            let registered = |&(_, _, event): &(_, _, Event)| event == Event::Registered;
            if phones <= self.fleet().journal().events().filter(registered).count() {
                return;
            }
        }
        panic!("not every phone could register\n{self}");
    }

    /// Runs until any node was told its `nth` SIP message from now, counted
    /// from 1; returns false if that did not happen for `span`.
    pub fn run_until_message(&mut self, span: Duration, nth: u32) -> bool {
        let mut seen = 0;
        self.sim.run_until_input(span, |_, input| {
            if let Input::Datagram { bytes, .. } = input {
                seen += u32::from(is_sip(bytes));
            }
            seen == nth
        })
    }

    /// Returns what is wrong if these phones should be in calls with each
    /// other, each hearing the other unless held.
    pub fn not_talking(&self, calls: &[(PhoneId, PhoneId)]) -> Vec<Problem> {
        let (fleet, now) = (self.fleet(), self.sim.now());
        let mut problems = Vec::new();
        for phone in calls.iter().flat_map(|&(one, other)| [one, other]) {
            let (state, silence) = (fleet.state(phone), fleet.ear(phone).silence(now));
            if !matches!(state, State::Talking { .. }) {
                problems.push(Problem::Lost { phone, state });
            } else if DEAF < silence {
                problems.push(Problem::Deaf { phone, silence });
            }
        }
        problems
    }

    /// Returns the phones that are in a call.
    pub fn not_idle(&self) -> Vec<Problem> {
        let fleet = self.fleet();
        let busy = fleet.phones().map(|phone| (phone, fleet.state(phone)));
        busy.filter(|&(_, state)| state != State::Idle)
            .map(|(phone, state)| Problem::Ghost { phone, state })
            .collect()
    }

    /// Returns every rule that the phones saw broken.
    pub fn broken(&self) -> Vec<Problem> {
        let faults = self.fleet().journal().faults();
        faults.map(|(_, phone, fault)| Problem::Broken { phone, fault: fault.clone() }).collect()
    }

    /// Checks that these calls stand and are heard, and that no rule is broken.
    ///
    /// # Panics
    /// When that is not so; the message has the seed and the phones' journal.
    pub fn assert_talking(&self, calls: &[(PhoneId, PhoneId)]) {
        self.assert_none(&[self.not_talking(calls), self.broken()].concat());
    }

    /// Checks that no phone is in a call, and that no rule is broken.
    ///
    /// # Panics
    /// When that is not so; the message has the seed and the phones' journal.
    pub fn assert_idle(&self) {
        self.assert_none(&[self.not_idle(), self.broken()].concat());
    }

    /// Checks that there are no problems.
    ///
    /// # Panics
    /// When there are; the message has the seed and the phones' journal.
    pub fn assert_none(&self, problems: &[Problem]) {
        assert!(problems.is_empty(), "seed {}: {problems:#?}\n{self}", self.seed);
    }
}

/// The phones' journal.
impl<N: Node> fmt::Display for Scenario<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fleet().journal().text(self.start))
    }
}

impl<N: Node> Node for Member<N> {
    fn handle_input(&mut self, now: Instant, input: Input) {
        match self {
            Self::Phones(fleet) => fleet.handle_input(now, input),
            Self::Server(server) => server.handle_input(now, input),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        match self {
            Self::Phones(fleet) => fleet.handle_timeout(now),
            Self::Server(server) => server.handle_timeout(now),
        }
    }

    fn end_turn(&mut self, now: Instant) {
        match self {
            Self::Phones(fleet) => fleet.end_turn(now),
            Self::Server(server) => server.end_turn(now),
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        match self {
            Self::Phones(fleet) => fleet.poll_output(),
            Self::Server(server) => server.poll_output(),
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Phones(fleet) => fleet.poll_timeout(),
            Self::Server(server) => server.poll_timeout(),
        }
    }

    fn metrics(&self, out: &mut Metrics) {
        match self {
            Self::Phones(fleet) => fleet.metrics(out),
            Self::Server(server) => server.metrics(out),
        }
    }
}

fn is_sip(bytes: &[u8]) -> bool {
    let end = bytes.iter().position(|&byte| byte == b'\r').unwrap_or(0);
    bytes[..end].starts_with(b"SIP/2.0 ") || bytes[..end].ends_with(b" SIP/2.0")
}
