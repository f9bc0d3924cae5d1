//! The system calls of a worker that no kept crate wraps, and the process's limits.
#![expect(unsafe_code, reason = "system calls that no kept crate wraps")]

use std::io;
use std::mem::size_of;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Takes back a UDP socket's `connect`. Its local address and port stay, for they were bound explicitly.
pub(crate) fn disconnect(socket: &UdpSocket) -> io::Result<()> {
    let (address, len) = nobody();
    // SAFETY: the descriptor is open as long as `socket` is borrowed, and `address` is a whole `sockaddr` of `len`
    // bytes that lives until the call has returned; the kernel only reads it.
    let result = unsafe { libc::connect(socket.as_raw_fd(), &raw const address, len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The address family that takes a connection back, connect(2).
fn nobody() -> (libc::sockaddr, libc::socklen_t) {
    let family = libc::sa_family_t::try_from(libc::AF_UNSPEC).expect("the constant is 0");
    let len = libc::socklen_t::try_from(size_of::<libc::sockaddr>()).expect("it is 16");
    (libc::sockaddr { sa_family: family, sa_data: [0; 14] }, len)
}

/// Asks for a real-time class for the calling thread: round robin, above every ordinary thread and below the kernel's
/// own. Needs a privilege or a limit that many processes do not have.
pub(crate) fn be_realtime(priority: i32) -> io::Result<()> {
    let param = libc::sched_param { sched_priority: priority };
    // SAFETY: `param` is a whole `sched_param` that lives until the call has returned; 0 means the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const param) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Raises the process's limit of open files as far as it goes, and returns it.
///
/// # Errors
/// When the system will not say.
pub fn files_max() -> io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() {
        return Ok(hard);
    }
    Ok(soft)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disconnected_socket_keeps_its_port_and_hears_everybody() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let friend = UdpSocket::bind("127.0.0.1:0").unwrap();
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        let local = socket.local_addr().unwrap();
        // Port 0 above would be given up by the kernel; a port by name is not.
        drop(socket);
        let socket = UdpSocket::bind(local).unwrap();

        socket.connect(friend.local_addr().unwrap()).unwrap();
        disconnect(&socket).unwrap();
        other.send_to(b"x", local).unwrap();

        socket.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        let mut bytes = [0; 4];
        assert_eq!(socket.local_addr().unwrap(), local);
        assert_eq!(socket.recv_from(&mut bytes).unwrap().1, other.local_addr().unwrap());
    }

    #[test]
    fn the_limit_of_files_is_raised_to_the_hard_one() {
        let files = files_max().unwrap();

        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap().0, files);
    }
}
