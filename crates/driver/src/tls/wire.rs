//! The bytes of one connection, behind TLS or not.

use std::io::{self, IoSlice, Read as _, Write as _};
use std::sync::Arc;

use rustls::Connection as Session;
use rustls::pki_types::CertificateDer;
use socket2::Socket;

use super::HandshakeFault;

/// A socket and, once the handshake is done, the TLS on it.
pub(crate) struct Wire {
    /// Shared with the handshakes until they are done.
    pub(crate) socket: Arc<Socket>,
    tls: Option<Box<Session>>,
    /// The peer has said that nothing more comes.
    is_over: bool,
}

/// What one write did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Written {
    /// How many of the bytes to be said were taken; with TLS they may not be with the kernel yet.
    pub(crate) taken: usize,
    /// How many bytes the kernel took.
    pub(crate) sent: usize,
}

/// Why nothing could be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Tls(#[from] HandshakeFault),
}

/// Room for what is read, kept from one time to the next. The default has none.
#[derive(Default)]
pub(crate) struct Scratch {
    read: Vec<u8>,
    opened: Vec<u8>,
}

impl Wire {
    pub(crate) fn new(socket: Socket) -> Self {
        Self { socket: Arc::new(socket), tls: None, is_over: false }
    }

    /// Goes on with TLS, whose handshake is done. So many bytes at most are encrypted and not yet taken by
    /// the kernel.
    pub(crate) fn secure(&mut self, mut tls: Box<Session>, sealed_len_max: usize) {
        tls.set_buffer_limit(Some(sealed_len_max));
        self.tls = Some(tls);
    }

    /// The certificate that the peer has shown.
    pub(crate) fn shown(&self) -> Option<&CertificateDer<'static>> {
        self.tls.as_ref()?.peer_certificates()?.first()
    }

    /// Whether what was written is with the kernel.
    pub(crate) fn is_flushed(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| !tls.wants_write())
    }

    /// Whether the peer has said that nothing more comes.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Says that nothing more comes, if there is room for it.
    pub(crate) fn say_over(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            let _ = tls.write_tls(&mut &*self.socket);
        }
    }

    /// Reads once. Returns how many bytes came and what they say; no bytes are the end.
    pub(crate) fn read<'s>(
        &mut self,
        scratch: &'s mut Scratch,
    ) -> Result<(usize, &'s [u8]), ReadError> {
        let Some(tls) = &mut self.tls else {
            let len = (&*self.socket).read(&mut scratch.read)?;
            return Ok((len, &scratch.read[..len]));
        };
        let opened = &mut scratch.opened;
        opened.clear();
        // It may have come together with the end of the handshake.
        let (before, mut is_over) = open(tls, opened)?;
        let len = match (&*self.socket).read(&mut scratch.read) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && 0 < before => 0,
            read => read?,
        };
        let mut rest = &scratch.read[..len];
        while !rest.is_empty() {
            tls.read_tls(&mut rest)?;
            match open(tls, opened) {
                // What comes behind the end is nobody's.
                Ok((_, true)) => {
                    is_over = true;
                    break;
                }
                Ok(_) => {}
                Err(error) => {
                    // The peer is told why, if there is room.
                    let _ = tls.write_tls(&mut &*self.socket);
                    return Err(error);
                }
            }
        }
        self.is_over |= is_over;
        Ok((before + len, opened))
    }

    /// Writes once. While something encrypted waits for the kernel, nothing else is taken.
    pub(crate) fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<Written> {
        let Some(tls) = &mut self.tls else {
            let len = (&*self.socket).write_vectored(slices)?;
            return Ok(Written { taken: len, sent: len });
        };
        let taken = if tls.wants_write() { 0 } else { tls.writer().write_vectored(slices)? };
        match tls.write_tls(&mut &*self.socket) {
            Ok(sent) => Ok(Written { taken, sent }),
            Err(error) if is_transient(&error) => Ok(Written { taken, sent: 0 }),
            Err(error) => Err(error),
        }
    }
}

impl Scratch {
    /// Room for so many bytes at a time.
    pub(crate) fn new(len: usize) -> Self {
        Self { read: vec![0; len], opened: Vec::new() }
    }
}

/// Decrypts what has come; returns how much it is, and whether it is the last.
fn open(tls: &mut Session, opened: &mut Vec<u8>) -> Result<(usize, bool), ReadError> {
    let state = tls.process_new_packets().map_err(HandshakeFault::of)?;
    let (start, len, is_over) =
        (opened.len(), state.plaintext_bytes_to_read(), state.peer_has_closed());
    opened.resize(start + len, 0);
    tls.reader().read_exact(&mut opened[start..])?;
    Ok((len, is_over))
}

pub(crate) fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
