//! The bare forwarder: what a relay must cost at the least.
//!
//! One epoll over as many sockets as a relay has (RTP and RTCP of both legs),
//! one `recvfrom` and one `sendto` a packet, and nothing else: no check of the
//! source, no counters, no control.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsFd as _;

use anyhow::Context as _;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

/// Sockets of a call: RTP and RTCP towards the caller, then towards the callee.
pub(crate) const SOCKETS: u16 = 4;

/// Where to forward.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Address to receive on.
    #[arg(long)]
    pub(crate) listen: SocketAddrV4,
    /// Address of the first call's caller; each further call has ports 4 higher.
    #[arg(long)]
    pub(crate) caller: SocketAddrV4,
    /// Address of the first call's callee.
    #[arg(long)]
    pub(crate) callee: SocketAddrV4,
    /// Number of calls.
    #[arg(long)]
    pub(crate) calls: u16,
    /// Connects each socket to its phone, which makes sending cheaper.
    #[arg(long)]
    pub(crate) connected: bool,
}

/// Forwards until the process is killed.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    crate::raise_file_limit()?;
    let mut sockets = Vec::new();
    let mut peers = Vec::new();
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    for call in 0..args.calls {
        for index in 0..SOCKETS {
            let socket = bind(at(args.listen, call, index))?;
            let phone = if index < 2 { args.caller } else { args.callee };
            let phone = at(phone, call, index % 2);
            if args.connected {
                socket.connect(phone)?;
            }
            let event = EpollEvent::new(EpollFlags::EPOLLIN, u64::try_from(sockets.len())?);
            epoll.add(socket.as_fd(), event)?;
            sockets.push(socket);
            peers.push(phone);
        }
    }
    writeln!(std::io::stdout(), "ready")?;
    let mut events = [EpollEvent::empty(); 256];
    let mut packet = [0; 2048];
    loop {
        let count = epoll.wait(&mut events, EpollTimeout::NONE)?;
        for event in &events[..count] {
            let index = usize::try_from(event.data())?;
            let other = index ^ 2;
            // What cannot be received or sent is lost, as on any network.
            if args.connected {
                if let Ok(len) = sockets[index].recv(&mut packet) {
                    let _ = sockets[other].send(&packet[..len]);
                }
            } else if let Ok((len, _)) = sockets[index].recv_from(&mut packet) {
                let _ = sockets[other].send_to(&packet[..len], peers[other]);
            }
        }
    }
}

/// Returns the address of socket `index` of `call`, counted from `first`.
pub(crate) fn at(first: SocketAddrV4, call: u16, index: u16) -> SocketAddrV4 {
    SocketAddrV4::new(*first.ip(), first.port() + SOCKETS * call + index)
}

/// Binds a non-blocking socket.
pub(crate) fn bind(address: SocketAddrV4) -> anyhow::Result<UdpSocket> {
    let socket = UdpSocket::bind(address).with_context(|| format!("cannot bind {address}"))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Loopback addresses that nothing else uses.
pub(crate) const fn loopback(net: u8, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 77, net, host)
}
