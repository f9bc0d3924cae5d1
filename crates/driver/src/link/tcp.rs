//! The sockets of links.

use std::io;
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

use crate::node::Class;

/// What the kernel may hold for a link of messages, each way, in bytes.
///
/// What waits there has no age, so it is kept small; 128 kB still carry
/// 1,000 messages a second over a round trip of 100 ms.
const BUFFER_LEN: usize = 1 << 17;
/// The same for a link of records, which may wait.
const BUFFER_LEN_BULK: usize = 1 << 20;

pub(super) fn listen(addr: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    // Connections inherit it; their class is not known before they greet.
    socket.set_recv_buffer_size(BUFFER_LEN)?;
    socket.set_send_buffer_size(BUFFER_LEN)?;
    socket.bind(&addr.into())?;
    socket.listen(128)?;
    Ok(socket)
}

/// Begins to connect from `local`, or from whatever address the system takes.
pub(super) fn connect(local: Option<IpAddr>, addr: SocketAddr, class: Class) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    let len = match class {
        Class::Control | Class::Calls => BUFFER_LEN,
        Class::Bulk => BUFFER_LEN_BULK,
    };
    socket.set_recv_buffer_size(len)?;
    socket.set_send_buffer_size(len)?;
    if let Some(local) = local {
        socket.bind(&SocketAddr::new(local, 0).into())?;
    }
    match socket.connect(&addr.into()) {
        Ok(()) => Ok(socket),
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}
