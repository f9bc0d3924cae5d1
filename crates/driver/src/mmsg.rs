//! Many datagrams in one system call.
//!
//! The wrappers of `nix` keep pointers of one call in the headers of the
//! next, and cannot tell how many datagrams were sent without reading
//! addresses that were never written; so these are ours.
#![expect(unsafe_code, reason = "recvmmsg and sendmmsg have no sound safe wrapper")]

use std::io;
use std::mem::zeroed;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::null_mut;

use bytes::Bytes;
use socket2::{SockAddr, SockAddrStorage};

/// Datagrams of one system call.
pub(crate) const BATCH: usize = BATCH_LEN as usize;
const BATCH_LEN: libc::c_uint = 64;
/// No datagram is longer.
const DATAGRAM_MAX: usize = 1 << 16;

/// Where datagrams are received.
pub(crate) struct Arena(Box<[u8]>);

impl Arena {
    pub(crate) fn new() -> Self {
        Self(vec![0; BATCH * DATAGRAM_MAX].into_boxed_slice())
    }

    /// Receives up to [`BATCH`] datagrams that have come, and gives each to
    /// `take` in an allocation of its own.
    ///
    /// # Errors
    /// When nothing had come, or what `socket` was told of an earlier datagram.
    pub(crate) fn receive(
        &mut self,
        socket: impl AsFd,
        mut take: impl FnMut(SocketAddr, Bytes),
    ) -> io::Result<()> {
        let mut names: [SockAddrStorage; BATCH] =
            std::array::from_fn(|_| SockAddrStorage::zeroed());
        let mut parts = [libc::iovec { iov_base: null_mut(), iov_len: 0 }; BATCH];
        // SAFETY: null pointers with lengths of zero are headers.
        let mut headers: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
        let chunks = self.0.chunks_exact_mut(DATAGRAM_MAX);
        for (((header, part), name), chunk) in
            headers.iter_mut().zip(&mut parts).zip(&mut names).zip(chunks)
        {
            part.iov_base = chunk.as_mut_ptr().cast();
            part.iov_len = chunk.len();
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_namelen = name.size_of();
            header.msg_hdr.msg_name = std::ptr::from_mut(name).cast();
        }
        // SAFETY: each header points to a name and a part of its own, each
        // part to a chunk of its own; all outlive the call, which writes to
        // nothing else.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_fd().as_raw_fd(),
                headers.as_mut_ptr(),
                BATCH_LEN,
                libc::MSG_DONTWAIT,
                null_mut(),
            )
        };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        let chunks = self.0.chunks_exact(DATAGRAM_MAX);
        for ((header, name), chunk) in headers.iter().zip(names).zip(chunks).take(count) {
            // SAFETY: the kernel wrote an address of this length there.
            let name = unsafe { SockAddr::new(name, header.msg_hdr.msg_namelen) };
            let len = chunk.len().min(header.msg_len as usize);
            if let Some(from) = name.as_socket() {
                take(from, Bytes::copy_from_slice(&chunk[..len]));
            }
        }
        Ok(())
    }
}

/// Sends up to [`BATCH`] of `datagrams`; returns how many were taken.
///
/// # Errors
/// Those of the first datagram; it was not sent.
pub(crate) fn send(
    socket: impl AsFd,
    is_connected: bool,
    datagrams: &[(SocketAddr, Bytes)],
) -> io::Result<usize> {
    let datagrams = &datagrams[..datagrams.len().min(BATCH)];
    let names: Vec<SockAddr> = datagrams.iter().map(|&(to, _)| SockAddr::from(to)).collect();
    let mut parts = [libc::iovec { iov_base: null_mut(), iov_len: 0 }; BATCH];
    // SAFETY: null pointers with lengths of zero are headers.
    let mut headers: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
    for (((header, part), name), (_, bytes)) in
        headers.iter_mut().zip(&mut parts).zip(&names).zip(datagrams)
    {
        part.iov_base = bytes.as_ptr().cast_mut().cast();
        part.iov_len = bytes.len();
        header.msg_hdr.msg_iov = part;
        header.msg_hdr.msg_iovlen = 1;
        if !is_connected {
            header.msg_hdr.msg_name = name.as_ptr().cast_mut().cast();
            header.msg_hdr.msg_namelen = name.len();
        }
    }
    // SAFETY: each of the first `len` headers points to a part and a name
    // that outlive the call, which only reads them and writes `msg_len`.
    let count = unsafe {
        libc::sendmmsg(
            socket.as_fd().as_raw_fd(),
            headers.as_mut_ptr(),
            libc::c_uint::try_from(datagrams.len()).unwrap_or(BATCH_LEN),
            libc::MSG_DONTWAIT,
        )
    };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}
