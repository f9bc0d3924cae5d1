//! What TLS on links costs: `cargo run --release -p driver --example tls`.
//!
//! Two nodes in one process exchange frames of 1 kB over loopback, without TLS and with it; each batch
//! is sent when the one before was answered. Then a client makes handshakes with one of them and nothing
//! else. Printed is CPU, of both ends together where nothing else is said.
#![expect(clippy::disallowed_methods, reason = "an example reads the clock and waits")]
#![expect(clippy::print_stdout, reason = "an example prints")]
#![expect(clippy::wildcard_enum_match_arm, reason = "the node has little to do")]

use std::collections::VecDeque;
use std::error::Error;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use driver::tls::{Tls, TlsFiles, authority, name};
use driver::{
    Class, Dial, Input, LinksConfig, Metrics, Node, NodeId, Output, RunConfig, Security, StopReason,
};
use nix::sys::resource::{UsageWho, getrusage};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

const FRAMES: u32 = 40_000;
const FRAME_LEN: usize = 1000;
const HANDSHAKES: u32 = 300;
const NODES: [NodeId; 2] = [NodeId(1), NodeId(2)];

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("holdline-tls-{}", std::process::id()));
    let now_ms = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
    let files = authority::issue(&folder, &NODES, 30, now_ms)?;
    let load = |files, node| Tls::load(files, node, now_ms).map_err(|mut errors| errors.remove(0));
    let tls = [load(&files[0], NODES[0])?, load(&files[1], NODES[1])?];
    for batch in [1, 8, 64] {
        let plain = frames([Security::Plaintext, Security::Plaintext], batch)?;
        let secure = frames(tls.clone().map(Security::Tls), batch)?;
        println!("frames by {batch:>2}  {plain:.2} us each without TLS, {secure:.2} us with");
    }
    handshakes(&tls[0], &files[1])?;
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Returns the CPU that a frame of such a batch takes, in microseconds.
fn frames(security: [Security; 2], batch: u32) -> Result<f64, Box<dyn Error>> {
    let (tell, told) = channel();
    let listen = free_addr()?;
    let [listening, dialling] = security;
    let listener = LinksConfig { listen: Some(listen), security: listening, ..Default::default() };
    let dial = vec![Dial { peer: NODES[0], addr: listen, classes: vec![Class::Calls] }];
    let dialler = LinksConfig { dial, security: dialling, ..Default::default() };
    let threads = [(NODES[0], listener), (NODES[1], dialler)].map(|(id, links)| {
        let tell = tell.clone();
        std::thread::spawn(move || driver::run(&run(id, links), |_| Peer::new(id, batch, tell)))
    });
    let used = told.recv()?;
    for thread in threads {
        thread.join().map_err(|_| "a loop panicked")??;
    }
    Ok(used.as_secs_f64() * 1e6 / f64::from(FRAMES))
}

/// Makes handshakes with a node that does nothing else.
fn handshakes(tls: &Tls, client: &TlsFiles) -> Result<(), Box<dyn Error>> {
    let listen = free_addr()?;
    let security = Security::Tls(tls.clone());
    let links = LinksConfig { listen: Some(listen), security, ..Default::default() };
    // It ends with the process.
    std::thread::Builder::new().name("loop".into()).spawn(move || {
        driver::run(&run(NODES[0], links), |_| Peer::new(NODES[0], 1, channel().0))
    })?;
    while TcpStream::connect(listen).is_err() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let config = Arc::new(client_config(client)?);
    let before = [cpu(UsageWho::RUSAGE_THREAD), thread_cpu("handshakes")?, thread_cpu("loop")?];
    let mut waits = Vec::new();
    for _ in 0..HANDSHAKES {
        let mut stream = TcpStream::connect(listen)?;
        stream.set_nodelay(true)?;
        let begun_at = Instant::now();
        let mut session =
            ClientConnection::new(config.clone(), ServerName::try_from(name(NODES[0]))?)?;
        while session.is_handshaking() {
            session.complete_io(&mut stream)?;
        }
        waits.push(begun_at.elapsed());
    }
    std::thread::sleep(Duration::from_millis(100));
    let after = [cpu(UsageWho::RUSAGE_THREAD), thread_cpu("handshakes")?, thread_cpu("loop")?];
    let each =
        |part: usize| (after[part] - before[part]).as_secs_f64() * 1e6 / f64::from(HANDSHAKES);
    waits.sort();
    println!("handshake     {:.0} us of CPU for the dialler", each(0));
    println!("              {:.0} us for the listener's thread of handshakes", each(1));
    println!("              {:.0} us for its loop, the TCP connection included", each(2));
    println!("              {:.2} ms for the dialler to wait, median", ms(waits[waits.len() / 2]));
    Ok(())
}

fn client_config(files: &TlsFiles) -> Result<ClientConfig, Box<dyn Error>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&files.authority)?)?;
    let chain = vec![CertificateDer::from_pem_file(&files.certificate)?];
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(&files.key)?)?)
}

fn run(node: NodeId, links: LinksConfig) -> RunConfig {
    let role = "example".into();
    RunConfig {
        node,
        role,
        links,
        http: None,
        token: None,
        api: false,
        numbers: None,
        journal: None,
        realtime: false,
    }
}

fn free_addr() -> Result<SocketAddr, Box<dyn Error>> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// The second node sends, the first one answers each batch.
struct Peer {
    id: NodeId,
    batch: u32,
    count: u32,
    tell: Sender<Duration>,
    begun: Duration,
    payload: Bytes,
    outputs: VecDeque<Output>,
}

impl Peer {
    fn new(id: NodeId, batch: u32, tell: Sender<Duration>) -> Self {
        let payload = vec![7; FRAME_LEN].into();
        let (begun, outputs) = (Duration::ZERO, VecDeque::new());
        Self { id, batch, count: 0, tell, begun, payload, outputs }
    }

    fn send(&mut self, peer: NodeId, frames: u32, payload: &Bytes) {
        for _ in 0..frames {
            let payload = payload.clone();
            self.outputs.push_back(Output::Frame {
                peer,
                class: Class::Calls,
                kind: 0x101,
                payload,
            });
        }
    }
}

impl Node for Peer {
    fn handle_input(&mut self, _now: Instant, input: Input) {
        let sends = self.id == NODES[1];
        match input {
            Input::LinkUp { peer, .. } if sends => {
                self.begun = cpu(UsageWho::RUSAGE_SELF);
                self.send(peer, self.batch, &self.payload.clone());
            }
            Input::LinkDown { .. } if !sends => {
                self.outputs.push_back(Output::Stop(StopReason::Drained));
            }
            Input::Frame { peer, .. } if sends => {
                self.count += self.batch;
                if self.count < FRAMES {
                    self.send(peer, self.batch, &self.payload.clone());
                } else {
                    // Whoever asked has gone if this fails.
                    let _ = self.tell.send(cpu(UsageWho::RUSAGE_SELF) - self.begun);
                    self.outputs.push_back(Output::Stop(StopReason::Drained));
                }
            }
            Input::Frame { peer, .. } => {
                self.count += 1;
                if self.count.is_multiple_of(self.batch) {
                    self.send(peer, 1, &Bytes::new());
                }
            }
            _ => {}
        }
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn metrics(&self, _out: &mut Metrics) {}
}

/// Returns how much CPU this process, or this thread, has used.
fn cpu(who: UsageWho) -> Duration {
    let usage = getrusage(who).expect("a process may ask for its own usage");
    let span = |time: nix::sys::time::TimeVal| {
        let micros = time.tv_sec() * 1_000_000 + time.tv_usec();
        Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    };
    span(usage.user_time()) + span(usage.system_time())
}

/// Returns how much CPU the threads with this name have used.
fn thread_cpu(wanted: &str) -> Result<Duration, Box<dyn Error>> {
    let mut used = 0;
    for task in std::fs::read_dir(Path::new("/proc/self/task"))? {
        let task = task?.path();
        if std::fs::read_to_string(task.join("comm"))?.trim() == wanted {
            let text = std::fs::read_to_string(task.join("schedstat"))?;
            used += text.split(' ').next().unwrap_or_default().parse::<u64>()?;
        }
    }
    Ok(Duration::from_nanos(used))
}

fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}
