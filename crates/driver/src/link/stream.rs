//! The bytes of one connection, behind TLS or not.

use std::io::{self, Read as _, Write as _};
use std::sync::Arc;

use rustls::Connection as Session;
use rustls::pki_types::CertificateDer;
use socket2::Socket;

use crate::queue::Queue;
use crate::tls::HandshakeFault;

/// How much one turn reads from one link.
const READ_LEN_MAX: usize = 1 << 18;
/// How much is encrypted and not yet taken by the kernel. It has no age, so it is kept small.
const SEALED_LEN_MAX: usize = 1 << 17;

/// A socket and, once the handshake is done, the TLS on it.
pub(super) struct Stream {
    /// Shared with the handshakes until they are done.
    pub(super) socket: Arc<Socket>,
    tls: Option<Box<Session>>,
}

/// Why nothing could be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Tls(#[from] HandshakeFault),
}

/// Room for what is read, kept from one time to the next. The default has none.
#[derive(Default)]
pub(super) struct Scratch {
    read: Vec<u8>,
    opened: Vec<u8>,
}

impl Stream {
    pub(super) fn new(socket: Socket) -> Self {
        Self { socket: Arc::new(socket), tls: None }
    }

    /// Goes on with TLS, whose handshake is done.
    pub(super) fn secure(&mut self, mut tls: Box<Session>) {
        tls.set_buffer_limit(Some(SEALED_LEN_MAX));
        self.tls = Some(tls);
    }

    /// The certificate that the peer has shown.
    pub(super) fn shown(&self) -> Option<&CertificateDer<'static>> {
        self.tls.as_ref()?.peer_certificates()?.first()
    }

    /// Whether what was written is with the kernel.
    pub(super) fn is_flushed(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| !tls.wants_write())
    }

    /// Reads once. Returns how many bytes came and what they say; no bytes are the end.
    pub(super) fn read<'s>(
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
        let before = open(tls, opened)?;
        let len = match (&*self.socket).read(&mut scratch.read) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && 0 < before => 0,
            read => read?,
        };
        let mut rest = &scratch.read[..len];
        while !rest.is_empty() {
            tls.read_tls(&mut rest)?;
            if let Err(error) = open(tls, opened) {
                // The peer is told why, if there is room.
                let _ = tls.write_tls(&mut &*self.socket);
                return Err(error);
            }
        }
        Ok((before + len, opened))
    }

    /// Writes the queue once; returns how many bytes the kernel took.
    pub(super) fn write(&mut self, queue: &mut Queue) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            let len = (&*self.socket).write(queue.bytes())?;
            queue.written(len);
            return Ok(len);
        };
        if !tls.wants_write() {
            let len = tls.writer().write(queue.bytes())?;
            queue.written(len);
        }
        tls.write_tls(&mut &*self.socket)
    }
}

impl Scratch {
    pub(super) fn new() -> Self {
        Self { read: vec![0; READ_LEN_MAX], opened: Vec::new() }
    }
}

/// Decrypts what has come; returns how much it is.
fn open(tls: &mut Session, opened: &mut Vec<u8>) -> Result<usize, ReadError> {
    let state = tls.process_new_packets().map_err(HandshakeFault::of)?;
    let (start, len) = (opened.len(), state.plaintext_bytes_to_read());
    opened.resize(start + len, 0);
    tls.reader().read_exact(&mut opened[start..])?;
    Ok(len)
}
