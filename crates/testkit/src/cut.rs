//! Silence on a socket, made by a filter in the kernel.
//!
//! A filter drops what arrives and says nothing: no error, no reset, as when a
//! cable is pulled. It needs no right but the socket itself. What a process
//! *sends* is silenced where it would arrive, by its source address.

use std::collections::BTreeSet;
use std::io;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::os::fd::AsFd;

use socket2::{SockFilter, SockRef};

/// What a socket does not hear any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deaf {
    /// Anything.
    ToAll,
    /// What comes from these ports of an address.
    To {
        /// The address.
        ip: Ipv4Addr,
        /// The ports, at most [`RANGES_MAX`] ranges.
        ports: Vec<RangeInclusive<u16>>,
    },
}

/// How many ranges of ports a filter can tell apart.
pub const RANGES_MAX: usize = 100;

/// Lets a UDP or TCP socket over IPv4 hear no more what `deaf` says; replaces
/// a filter that it has. Sockets that a listener accepts later inherit it.
///
/// # Errors
/// When the kernel does not take the filter.
///
/// # Panics
/// When there are more than [`RANGES_MAX`] ranges.
pub fn cut(socket: impl AsFd, deaf: &Deaf) -> io::Result<()> {
    let drop = SockFilter::new(RETURN, 0, 0, 0);
    let filter = match deaf {
        Deaf::ToAll => vec![drop],
        Deaf::To { ip, ports } => {
            assert!(ports.len() <= RANGES_MAX, "a filter's jumps are short");
            let rest = |ranges: usize| u8::try_from(2 * ranges).unwrap_or(u8::MAX);
            let mut filter = vec![
                SockFilter::new(LOAD_WORD, 0, 0, SOURCE_ADDRESS),
                SockFilter::new(JUMP_EQUAL, 0, rest(ports.len()) + 1, ip.to_bits()),
                SockFilter::new(LOAD_HALF, 0, 0, SOURCE_PORT),
            ];
            for (index, range) in ports.iter().enumerate() {
                let left = rest(ports.len() - index - 1);
                filter.push(SockFilter::new(JUMP_AT_LEAST, 0, 1, u32::from(*range.start())));
                // Past the other ranges and the one instruction that keeps.
                filter.push(SockFilter::new(JUMP_ABOVE, 0, left + 1, u32::from(*range.end())));
            }
            filter.extend([SockFilter::new(RETURN, 0, 0, u32::MAX), drop]);
            filter
        }
    };
    SockRef::from(&socket).attach_filter(&filter)
}

/// Returns ports as ranges, no more than [`RANGES_MAX`]; they cover others
/// that lie between if need be.
pub fn ranges(ports: &BTreeSet<u16>) -> Vec<RangeInclusive<u16>> {
    let mut gap_max = 1;
    loop {
        let mut ranges: Vec<RangeInclusive<u16>> = Vec::new();
        for &port in ports {
            match ranges.last_mut() {
                Some(last) if u32::from(port - last.end()) <= gap_max => {
                    *last = *last.start()..=port;
                }
                Some(_) | None => ranges.push(port..=port),
            }
        }
        if ranges.len() <= RANGES_MAX {
            return ranges;
        }
        gap_max *= 2;
    }
}

/// Takes the filter of a socket away.
///
/// # Errors
/// When it has none.
pub fn heal(socket: impl AsFd) -> io::Result<()> {
    SockRef::from(&socket).detach_filter()
}

// Classic BPF: BPF_LD | BPF_ABS with BPF_W or BPF_H, BPF_JMP | BPF_K with
// BPF_JEQ, BPF_JGE or BPF_JGT, BPF_RET | BPF_K.
const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const JUMP_ABOVE: u16 = 0x25;
const RETURN: u16 = 0x06;

/// `SKF_NET_OFF`, the beginning of the IP header, and the source address in it.
const SOURCE_ADDRESS: u32 = 0xfff0_0000 + 12;
/// The port behind an IP header without options.
const SOURCE_PORT: u32 = 0xfff0_0000 + 20;

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
        let (two, address) = socket([127, 0, 0, 2]);
        let (two_too, _) = socket([127, 0, 0, 2]);
        let (three, _) = socket([127, 0, 0, 3]);
        let hear = |ears: &UdpSocket| [&two, &two_too, &three].map(|mouth| hears(mouth, ears));
        let ip = Ipv4Addr::new(127, 0, 0, 2);

        let port = address.port();
        cut(&ears, &Deaf::To { ip, ports: vec![1..=1, port..=port, 2..=2] }).unwrap();
        assert_eq!(hear(&ears), [false, true, true]);
        cut(&ears, &Deaf::To { ip, ports: vec![0..=u16::MAX] }).unwrap();
        assert_eq!(hear(&ears), [false, false, true]);
        cut(&ears, &Deaf::To { ip, ports: vec![7..=7; RANGES_MAX] }).unwrap();
        assert_eq!(hear(&ears), [true, true, true]);
        cut(&ears, &Deaf::ToAll).unwrap();
        assert_eq!(hear(&ears), [false, false, false]);
        heal(&ears).unwrap();
        assert_eq!(hear(&ears), [true, true, true]);
    }

    #[test]
    fn ports_become_few_ranges() {
        let some = [5, 7, 8, 9, 20].into_iter().collect();
        assert_eq!(ranges(&some), [5..=5, 7..=9, 20..=20]);

        let many: BTreeSet<u16> = (10_000..20_000).step_by(4).collect();
        let covered = ranges(&many);
        assert!(covered.len() <= RANGES_MAX);
        assert!(many.iter().all(|port| covered.iter().any(|range| range.contains(port))));
    }

    #[test]
    fn a_cut_stream_goes_on_once_healed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        far.set_read_timeout(Some(Duration::from_millis(50))).unwrap();

        let ip = Ipv4Addr::LOCALHOST;
        cut(&far, &Deaf::To { ip, ports: vec![0..=u16::MAX] }).unwrap();
        near.write_all(b"x").unwrap();
        assert!(far.read(&mut [0; 8]).is_err());

        heal(&far).unwrap();
        far.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        assert_eq!(far.read(&mut [0; 8]).unwrap(), 1);
    }
}
