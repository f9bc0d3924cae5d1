//! Silence on a socket, made by a filter in the kernel.
//!
//! A filter drops what arrives and says nothing: no error, no reset, as when a
//! cable is pulled. It needs no right but the socket itself. What a process
//! *sends* is silenced where it would arrive, by its source address.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;

use socket2::{SockFilter, SockRef};

/// What a socket does not hear any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deaf {
    /// Anything.
    ToAll,
    /// What this address sends.
    To(Ipv4Addr),
}

/// Lets a UDP or TCP socket over IPv4 hear no more what `deaf` says; replaces
/// a filter that it has. Sockets that a listener accepts later inherit it.
///
/// # Errors
/// When the kernel does not take the filter.
pub fn cut(socket: impl AsFd, deaf: Deaf) -> io::Result<()> {
    let socket = SockRef::from(&socket);
    match deaf {
        Deaf::ToAll => socket.attach_filter(&[SockFilter::new(RETURN, 0, 0, 0)]),
        Deaf::To(ip) => socket.attach_filter(&[
            SockFilter::new(LOAD_WORD, 0, 0, SOURCE_ADDRESS),
            SockFilter::new(JUMP_EQUAL, 0, 1, ip.to_bits()),
            SockFilter::new(RETURN, 0, 0, 0),
            SockFilter::new(RETURN, 0, 0, u32::MAX),
        ]),
    }
}

/// Takes the filter of a socket away.
///
/// # Errors
/// When it has none.
pub fn heal(socket: impl AsFd) -> io::Result<()> {
    SockRef::from(&socket).detach_filter()
}

// Classic BPF: BPF_LD | BPF_W | BPF_ABS, BPF_JMP | BPF_JEQ | BPF_K, BPF_RET | BPF_K.
const LOAD_WORD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

/// `SKF_NET_OFF`, the beginning of the IP header, and the source address in it.
const SOURCE_ADDRESS: u32 = 0xfff0_0000 + 12;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
    use std::time::Duration;

    use super::*;

    fn socket(ip: [u8; 4]) -> (UdpSocket, SocketAddr) {
        let socket = UdpSocket::bind((Ipv4Addr::from(ip), 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let address = socket.local_addr().unwrap();
        (socket, address)
    }

    fn hears(from: &UdpSocket, to: &UdpSocket) -> bool {
        from.send_to(b"x", to.local_addr().unwrap()).unwrap();
        to.recv_from(&mut [0; 8]).is_ok()
    }

    #[test]
    fn a_cut_socket_hears_nothing_from_whom_it_is_cut() {
        let (ears, _) = socket([127, 0, 0, 1]);
        let (two, _) = socket([127, 0, 0, 2]);
        let (three, _) = socket([127, 0, 0, 3]);

        cut(&ears, Deaf::To(Ipv4Addr::new(127, 0, 0, 2))).unwrap();
        assert_eq!((hears(&two, &ears), hears(&three, &ears)), (false, true));
        cut(&ears, Deaf::ToAll).unwrap();
        assert_eq!((hears(&two, &ears), hears(&three, &ears)), (false, false));
        heal(&ears).unwrap();
        assert!(hears(&two, &ears));
    }

    #[test]
    fn a_cut_stream_goes_on_once_healed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        far.set_read_timeout(Some(Duration::from_millis(50))).unwrap();

        cut(&far, Deaf::To(Ipv4Addr::LOCALHOST)).unwrap();
        near.write_all(b"x").unwrap();
        assert!(far.read(&mut [0; 8]).is_err());

        heal(&far).unwrap();
        far.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        assert_eq!(far.read(&mut [0; 8]).unwrap(), 1);
    }
}
