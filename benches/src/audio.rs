//! Phones' audio: sends RTP through a relay at a steady pace and counts what comes back.
//!
//! Nobody sleeps on the phones' sockets and no epoll watches them: on loopback
//! the sender pays for waking its receiver, which no relay pays on a network.
//! A phone looks for packets when it sends, each 20 ms; how long a packet took
//! is told by the kernel's own stamp.

use std::net::{SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;

use crate::forward::bind;

/// G.711, 20 ms: 12 bytes of header and 160 of sound.
pub(crate) const PACKET_LEN: usize = 172;
/// Packets of one direction of a call in a second.
pub(crate) const RATE: u64 = 50;
/// Packets are counted under the phase in which they were sent.
pub(crate) const PHASES: usize = 3;

const STAMP: std::ops::Range<usize> = 12..20;
const PHASE: usize = 20;
/// Latencies are counted in steps of 10 µs, up to 500 ms.
const STEP: u64 = 10_000;
const STEPS: usize = 50_000;

/// One phone: its own address and the relay's towards it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phone {
    pub(crate) own: SocketAddrV4,
    pub(crate) relay: SocketAddrV4,
}

/// What became of the packets of one phase.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Packets that the generator itself sent more than 5 ms late.
    pub(crate) late: u64,
    latencies: Vec<u32>,
}

impl Tally {
    /// Returns the share of packets that never came, in percent.
    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
    pub(crate) fn loss_percent(&self) -> f64 {
        100.0 * self.sent.saturating_sub(self.received) as f64 / self.sent.max(1) as f64
    }

    /// Returns the latency in ms that `share` of the packets kept within.
    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
    pub(crate) fn latency(&self, share: f64) -> f64 {
        let wanted = self.received as f64 * share;
        let mut seen = 0.0;
        for (step, count) in self.latencies.iter().enumerate() {
            seen += f64::from(*count);
            if wanted <= seen {
                return (step + 1) as f64 * STEP as f64 / 1e6;
            }
        }
        STEPS as f64 * STEP as f64 / 1e6
    }

    /// Adds what another slice counted.
    pub(crate) fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.received += other.received;
        self.late += other.late;
        for (sum, count) in self.latencies.iter_mut().zip(&other.latencies) {
            *sum += count;
        }
    }
}

impl Default for Tally {
    fn default() -> Self {
        Self { sent: 0, received: 0, late: 0, latencies: vec![0; STEPS] }
    }
}

/// Audio that runs in a thread of its own until it is stopped.
#[derive(Debug)]
pub(crate) struct Audio {
    phase: Arc<AtomicUsize>,
    stopped: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<Vec<Tally>>>,
}

impl Audio {
    /// Lets every phone talk; phones at 2n and 2n + 1 hear each other.
    pub(crate) fn start(phones: &[Phone], core: Option<usize>) -> anyhow::Result<Self> {
        let generator = Generator::new(phones)?;
        let phase = Arc::new(AtomicUsize::new(0));
        let stopped = Arc::new(AtomicBool::new(false));
        let (its_phase, its_stopped) = (Arc::clone(&phase), Arc::clone(&stopped));
        let thread = std::thread::spawn(move || {
            crate::child::on_core(core, || generator.run(&its_phase, &its_stopped))?
        });
        Ok(Self { phase, stopped, thread })
    }

    /// Counts packets under `phase` from now on.
    pub(crate) fn phase(&self, phase: usize) {
        self.phase.store(phase, Ordering::Relaxed);
    }

    /// Stops and returns the tally of each phase.
    pub(crate) fn stop(self) -> anyhow::Result<Vec<Tally>> {
        self.stopped.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow::anyhow!("the generator panicked"))?
    }
}

struct Generator {
    sockets: Vec<UdpSocket>,
    tallies: Vec<Tally>,
    packet: [u8; PACKET_LEN],
}

impl Generator {
    fn new(phones: &[Phone]) -> anyhow::Result<Self> {
        let mut sockets = Vec::new();
        for phone in phones {
            let socket = bind(phone.own)?;
            socket.connect(phone.relay)?;
            setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
            sockets.push(socket);
        }
        let mut packet = [0xd5; PACKET_LEN];
        packet[..2].copy_from_slice(&[0x80, 0]);
        Ok(Self { sockets, tallies: vec![Tally::default(); PHASES], packet })
    }

    fn run(mut self, phase: &AtomicUsize, stopped: &AtomicBool) -> anyhow::Result<Vec<Tally>> {
        let start = Instant::now();
        let phones = self.sockets.len() as u64;
        let per_second = RATE * phones;
        let mut sent = 0;
        while !stopped.load(Ordering::Relaxed) {
            let phase = phase.load(Ordering::Relaxed).min(PHASES - 1);
            let elapsed = start.elapsed();
            let due = u64::try_from(elapsed.as_micros())? * per_second / 1_000_000;
            if due <= sent {
                std::thread::sleep(Duration::from_micros(200));
            }
            while sent < due {
                let at = Duration::from_micros(sent * 1_000_000 / per_second);
                let phone = (sent % phones) as usize;
                self.receive(phone)?;
                self.send(phone, sent / phones, phase, start.elapsed().saturating_sub(at));
                sent += 1;
            }
        }
        std::thread::sleep(Duration::from_millis(300));
        for phone in 0..self.sockets.len() {
            self.receive(phone)?;
        }
        Ok(self.tallies)
    }

    /// Sends packet number `tick` of a phone.
    fn send(&mut self, phone: usize, tick: u64, phase: usize, late: Duration) {
        let sequence = (tick % 0x1_0000) as u16;
        let timestamp = (tick * 160 % 0x1_0000_0000) as u32;
        self.packet[2..4].copy_from_slice(&sequence.to_be_bytes());
        self.packet[4..8].copy_from_slice(&timestamp.to_be_bytes());
        self.packet[8..12].copy_from_slice(&(0x1000_0000 + phone as u32).to_be_bytes());
        self.packet[STAMP].copy_from_slice(&wall_clock().to_be_bytes());
        self.packet[PHASE] = phase as u8;
        let tally = &mut self.tallies[phase];
        tally.late += u64::from(Duration::from_millis(5) < late);
        // A refused packet (the relay is gone) is a lost one.
        let _ = self.sockets[phone].send(&self.packet);
        tally.sent += 1;
    }

    /// Takes in all that waits for a phone.
    fn receive(&mut self, phone: usize) -> anyhow::Result<()> {
        let socket = self.sockets[phone].as_raw_fd();
        let mut buffer = [0; 2048];
        let mut control = nix::cmsg_space!(TimeSpec);
        loop {
            let mut parts = [std::io::IoSliceMut::new(&mut buffer)];
            let flags = MsgFlags::MSG_DONTWAIT;
            let message = match recvmsg::<()>(socket, &mut parts, Some(&mut control), flags) {
                Ok(message) => message,
                // The relay closed its port; that is counted as loss.
                Err(Errno::ECONNREFUSED) => continue,
                Err(_) => return Ok(()),
            };
            let len = message.bytes;
            let arrived = message.cmsgs().context("a timestamp that was cut")?.find_map(|part| {
                let ControlMessageOwned::ScmTimestampns(time) = part else { return None };
                Some(Duration::from(time).as_nanos() as u64)
            });
            if len != PACKET_LEN || PHASES <= usize::from(buffer[PHASE]) {
                continue;
            }
            let sent: [u8; 8] = buffer[STAMP].try_into()?;
            let took = arrived.unwrap_or_else(wall_clock).saturating_sub(u64::from_be_bytes(sent));
            let tally = &mut self.tallies[usize::from(buffer[PHASE])];
            tally.received += 1;
            tally.latencies[((took / STEP) as usize).min(STEPS - 1)] += 1;
        }
    }
}

/// Nanoseconds since 1970, as the kernel stamps packets.
fn wall_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_the_step_that_holds_the_share() {
        let mut tally = Tally { sent: 4, received: 4, ..Tally::default() };
        tally.latencies[0] = 3;
        tally.latencies[99] = 1;

        assert!((tally.latency(0.5) - 0.01).abs() < 1e-9);
        assert!((tally.latency(0.99) - 1.0).abs() < 1e-9);
    }
}
