//! Everything in one process, composed from the crates: gate, b2b, controller, a mediagate with its
//! forwarding thread, a phone that echoes and one that plays a tone.
//!
//! A program of your own is composed in the same way: hold the nodes, hand the frames of one to the
//! other, and let `driver::run` do the rest.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it speaks to a person")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use b2bua::Transport;
use b2bua::gate::Network;
use clap::Parser;
use driver::{Class, Input, LogConfig, Metrics, Node, NodeId, Output, Start};
use mediagate::Mediagate;
use rm::{ListenerConfig, Peer, PeerRoles, Rm, Roles};
use testkit::{Command, Speech, Studio};

/// A telephone system on one address. Register two softphones and call.
#[derive(Debug, Parser)]
struct Args {
    /// Where phones find it.
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    listen: IpAddr,
    /// The SIP port. The next five are its own, too.
    #[arg(long, default_value_t = 5060, value_parser = clap::value_parser!(u16).range(1..=PORT_MAX))]
    port: u16,
    /// A network whose phones may register and call, such as 192.168.1.0/24.
    #[arg(long, value_name = "NETWORK")]
    trust: Vec<Network>,
    /// Ends after so many seconds, without being told to.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
}

/// The two nodes of this process. What others send over links, they hand to each other.
struct OneServer {
    rm: Rm,
    mediagate: Mediagate,
    now: Instant,
    until: Option<Instant>,
}

impl OneServer {
    fn new(args: &Args, start: Start) -> Self {
        let now = start.instant;
        let boot = start.boot;
        let mut rm = Rm::new(&signalling(args), &start);
        let mut mediagate = Mediagate::new(&media(args), start);
        let class = Class::Calls;
        rm.handle_input(now, Input::LinkUp { peer: MEDIAGATE, class, boot });
        mediagate.handle_input(now, Input::LinkUp { peer: RM, class, boot });
        let until = args.seconds.map(|seconds| now + Duration::from_secs(seconds));
        Self { rm, mediagate, now, until }
    }
}

impl Node for OneServer {
    fn handle_input(&mut self, now: Instant, input: Input) {
        self.now = now;
        // Only a forwarding thread of the mediagate wakes the loop.
        if input == Input::Woken {
            self.mediagate.handle_input(now, input);
        } else {
            self.rm.handle_input(now, input);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        if self.until.take_if(|until| *until <= now).is_some() {
            self.rm.handle_input(now, Input::Drain);
        }
        self.rm.handle_timeout(now);
        self.mediagate.handle_timeout(now);
    }

    fn end_turn(&mut self, now: Instant) {
        self.now = now;
        self.rm.end_turn(now);
        self.mediagate.end_turn(now);
    }

    fn poll_output(&mut self) -> Option<Output> {
        loop {
            let (to_rm, output) = match self.rm.poll_output() {
                Some(output) => (false, output),
                None => (true, self.mediagate.poll_output()?),
            };
            let Output::Frame { class, kind, payload, .. } = output else { return Some(output) };
            if to_rm {
                let frame = Input::Frame { peer: MEDIAGATE, class, kind, payload };
                self.rm.handle_input(self.now, frame);
                self.rm.end_turn(self.now);
            } else {
                let frame = Input::Frame { peer: RM, class, kind, payload };
                self.mediagate.handle_input(self.now, frame);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let timeouts = [self.rm.poll_timeout(), self.mediagate.poll_timeout(), self.until];
        timeouts.into_iter().flatten().min()
    }

    fn metrics(&self, out: &mut Metrics) {
        self.rm.metrics(out);
        self.mediagate.metrics(out);
    }
}

fn signalling(args: &Args) -> rm::Config {
    let sip = SocketAddr::new(args.listen, args.port);
    let mut config = rm::Config::new(failover::NodeId(RM.0), args.listen);
    config.roles = Roles { gate: true, b2b: true, controller: true };
    config.listeners =
        vec![ListenerConfig { transport: Transport::Udp, listen: sip, advertise: sip, tls: None }];
    config.trusted = args.trust.clone();
    let roles = PeerRoles { mediagate: true, ..PeerRoles::default() };
    config.peers = vec![Peer::new(failover::NodeId(MEDIAGATE.0), roles, None)];
    config
}

fn media(args: &Args) -> mediagate::Config {
    mediagate::Config::new(MEDIAGATE, args.listen, 0, args.port + 1)
}

/// Opens phones that register as `first_user` and up.
fn phones(args: &Args, first_user: u32, sip_port: u16, speech: Speech) -> anyhow::Result<Studio> {
    let config = testkit::Config {
        phones: PHONES,
        first_user,
        server: Some(SocketAddr::new(args.listen, args.port)),
        domain: args.listen.to_string(),
        sip_port,
        rtp_port: 34_000 + 4 * u16::try_from(first_user % 100)?,
        speech,
        messages: false,
        ..testkit::Config::new(args.listen)
    };
    let studio = Studio::open(config, u64::from(first_user))?;
    studio.with(|fleet, now| {
        // A gate that starts takes nothing for 300 ms, a mediagate rests its ports for 2 s.
        for phone in fleet.phones() {
            fleet.plan(now + Duration::from_millis(2500), phone, Command::Register);
        }
    });
    Ok(studio)
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    ensure!(
        args.listen.is_loopback() || !args.trust.is_empty(),
        "--listen {} is open to a network: say with --trust NETWORK whose phones may call",
        args.listen
    );
    driver::logging(&LogConfig { filter: "warn,rm=debug".to_owned() });
    let server = SocketAddr::new(args.listen, args.port);
    UdpSocket::bind(server)
        .with_context(|| format!("no SIP at {server}: choose another --port"))?;
    println!("Register softphones at {server} over UDP, with any user name and no password.");
    println!("Then call each other by user name, or {ECHO} for an echo, or {TONE} for a tone.");
    println!("Ctrl-C waits for the calls to end; a second one does not.");
    let mut studios = Vec::new();
    let config =
        driver::RunConfig { links: driver::LinksConfig::default(), ..signalling(&args).run() };
    driver::run(&config, |start| {
        // Threads begin here: the loop has seen to the signals.
        for (user, port, speech) in [(ECHO, 2, Speech::Echo), (TONE, 5, Speech::Tone)] {
            match phones(&args, user, args.port + port, speech) {
                Ok(studio) => studios.push(studio),
                Err(error) => eprintln!("no phone at {user}: {error}"),
            }
        }
        OneServer::new(&args, start)
    })?;
    Ok(())
}

const RM: NodeId = NodeId(1);
const MEDIAGATE: NodeId = NodeId(2);
/// Above it are the ports of the beats and of the phones.
const PORT_MAX: i64 = 65_530;
const ECHO: u32 = 600;
const TONE: u32 = 610;
/// Each phone has one call at a time; the next number is another phone.
const PHONES: u32 = 4;
