//! The sockets of SIP streams.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::IpBindAddressNoPort;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

/// How long a connection may carry nothing until the peer's host is asked whether it is still there, how
/// long it has to answer, and how often it is asked.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;

pub(super) fn listen(addr: SocketAddr) -> io::Result<Socket> {
    let socket = new(addr)?;
    // A listener that ended a moment ago leaves connections behind.
    socket.set_reuse_address(true)?;
    socket.bind(&addr.into())?;
    socket.listen(1024)?;
    Ok(socket)
}

/// Begins to connect from `local`, or from whatever address the system takes.
pub(super) fn connect(local: IpAddr, addr: SocketAddr) -> io::Result<Socket> {
    let socket = new(addr)?;
    if !local.is_unspecified() {
        // The port is chosen when the peer is known: more connections than ports may stand.
        setsockopt(&socket, IpBindAddressNoPort, &true)?;
        socket.bind(&SocketAddr::new(local, 0).into())?;
    }
    match socket.connect(&addr.into()) {
        Ok(()) => Ok(socket),
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// Sets what a connection needs, whoever made it.
pub(super) fn set_up(socket: &Socket, unacknowledged_max: Duration) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE);
    let keepalive = keepalive.with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(unacknowledged_max))
}

fn new(addr: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    if addr.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}
