//! Finds whole values in a file that the database cannot open.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use bytes::Bytes;
use memchr::memmem;

use super::envelope::{self, Envelope, LEN_MAX, MAGIC};

/// Calls `found` with every whole envelope in the file at `path`, in the order of the file.
///
/// # Errors
/// When the file cannot be read; what came before it was found.
pub(super) fn scan(path: &Path, mut found: impl FnMut(&Envelope<'_>)) -> io::Result<()> {
    let mut file = File::open(path)?;
    let finder = memmem::Finder::new(&MAGIC);
    let mut window = Vec::new();
    loop {
        let read = file.by_ref().take(CHUNK).read_to_end(&mut window)?;
        // An envelope that begins behind this may go on in the next chunk.
        let whole = if read == 0 { window.len() } else { window.len().saturating_sub(LEN_MAX) };
        let mut at = 0;
        while let Some(offset) = finder.find(&window[at..])
            && at + offset < whole
        {
            at += offset;
            at += match envelope::open(&window[at..]) {
                Some(envelope) => {
                    found(&envelope);
                    envelope.len
                }
                None => 1,
            };
        }
        if read == 0 {
            return Ok(());
        }
        window.drain(..at.max(whole));
    }
}

/// The newest value of each key, while envelopes are found in any order.
#[derive(Debug, Default)]
pub(super) struct Newest(BTreeMap<Bytes, (u64, Bytes)>);

impl Newest {
    pub(super) fn add(&mut self, envelope: &Envelope<'_>) {
        let key = Bytes::copy_from_slice(envelope.key);
        let known = self.0.get(&key).is_some_and(|&(number, _)| envelope.number <= number);
        if !known {
            self.0.insert(key, (envelope.number, Bytes::copy_from_slice(envelope.value)));
        }
    }

    pub(super) fn into_values(self) -> Vec<(Bytes, Bytes)> {
        self.0.into_iter().map(|(key, (_, value))| (key, value)).collect()
    }
}

/// How much is read at once, in bytes.
const CHUNK: u64 = 8 << 20;
