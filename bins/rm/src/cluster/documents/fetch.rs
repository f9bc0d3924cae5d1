//! How a document comes from a peer, part by part.

use std::time::{Duration, Instant};

use failover::NodeId;

use super::{
    Alarm, DocumentFrame, DocumentHeld, DocumentPart, DocumentWanted, Documents, Output, Source,
};
use crate::cluster::document::{self, TEXT_MAX};

/// A document on its way here.
#[derive(Debug)]
pub(super) struct Fetch {
    version: u64,
    digest: u64,
    len: usize,
    pub(super) from: NodeId,
    bytes: Vec<u8>,
    /// Where the parts that were asked for end.
    until: usize,
    pub(super) ask_at: Instant,
}

/// How much of a document one frame carries. No more than that is on its way to a peer at a time: all others ask
/// at once for what is new, heartbeats wait behind it in every link, and a node that is silent for three seconds
/// is away.
pub(super) const PART_LEN: usize = 32 << 10;

/// What was asked for and has not come is asked for again after this.
const PATIENCE: Duration = Duration::from_secs(2);

impl Documents {
    /// Returns the highest version fetched from a peer that is being read.
    fn being_read(&self) -> Option<u64> {
        let versions = self.reading.values().filter_map(|source| match source {
            Source::Peer { version, .. } => Some(*version),
            Source::Operator { .. } => None,
        });
        versions.max()
    }

    pub(super) fn hear(&mut self, now: Instant, peer: NodeId, held: DocumentHeld) {
        if held.segment == self.config.id.segment && held.site != self.config.site {
            self.alarm(Alarm::Site(peer));
        }
        let (version, digest) = (held.version, held.digest);
        self.linked.insert(peer, Some(held));
        let newest = self.newest().map(|newest| (newest.version, newest.digest));
        if newest.is_some_and(|(other, text)| other == version && text != digest) {
            self.alarm(Alarm::Conflict { peer, version });
        }
        let fetched = self.fetch.as_ref().map(|fetch| fetch.version);
        let ahead = newest.map(|(version, _)| version).max(fetched).max(self.being_read());
        if ahead < Some(version) && version != 0 && self.unreadable != Some((version, digest)) {
            self.fetch_on(now);
        }
    }

    /// Asks for the newest document that a peer has, going on where an earlier asking ended.
    pub(super) fn fetch_on(&mut self, now: Instant) {
        let newest = self.newest().map(|newest| newest.version);
        let newest = newest.max(self.being_read()).unwrap_or(0);
        let bad = self.unreadable;
        let asked = self.fetch.as_ref().map(|fetch| fetch.from);
        let held = self.linked.iter().filter_map(|(peer, held)| Some((*peer, held.as_ref()?)));
        let held = held.filter(|(_, held)| {
            newest < held.version
                && bad != Some((held.version, held.digest))
                && (1..=TEXT_MAX).contains(&(held.len as usize))
        });
        // Another one than was asked before, if there is one.
        let best = held.max_by_key(|(peer, held)| (held.version, Some(*peer) != asked));
        let best = best.filter(|_| !self.is_busy());
        let Some((from, held)) = best else {
            self.fetch = None;
            return;
        };
        let (version, digest) = (held.version, held.digest);
        let same = |fetch: &Fetch| (fetch.version, fetch.digest) == (version, digest);
        let bytes = self.fetch.take().filter(same).map(|fetch| fetch.bytes).unwrap_or_default();
        let (len, until, ask_at) = (held.len as usize, bytes.len(), now);
        self.fetch = Some(Fetch { version, digest, len, from, bytes, until, ask_at });
        self.ask(now);
    }

    fn ask(&mut self, now: Instant) {
        let Some(fetch) = &mut self.fetch else { return };
        fetch.until = fetch.len.min(fetch.bytes.len() + PART_LEN);
        fetch.ask_at = now + PATIENCE;
        let offset = u32::try_from(fetch.bytes.len()).unwrap_or(u32::MAX);
        let wanted = DocumentWanted { version: fetch.version, digest: fetch.digest, offset };
        let frame = DocumentFrame::Wanted(wanted);
        self.outputs.push_back(Output::Send { peer: fetch.from, frame });
    }

    pub(super) fn give(&mut self, peer: NodeId, wanted: DocumentWanted) {
        let DocumentWanted { version, digest, offset } = wanted;
        let current = self.current.as_ref();
        let Some(current) = current.filter(|one| (one.version, one.digest) == (version, digest))
        else {
            return self.say(peer);
        };
        let rest = current.text.as_bytes().get(offset as usize..).unwrap_or_default();
        if let Some(part) = rest.chunks(PART_LEN).next() {
            let part = DocumentPart { version, digest, offset, bytes: part.to_vec() };
            self.outputs.push_back(Output::Send { peer, frame: DocumentFrame::Part(part) });
        }
    }

    pub(super) fn take(&mut self, now: Instant, peer: NodeId, part: &DocumentPart) {
        let Some(fetch) = &mut self.fetch else { return };
        let expected = (fetch.from, fetch.version, fetch.digest, fetch.bytes.len());
        let came = (peer, part.version, part.digest, part.offset as usize);
        if came != expected || part.bytes.is_empty() {
            return;
        }
        fetch.bytes.extend_from_slice(&part.bytes);
        fetch.ask_at = now + PATIENCE;
        if fetch.len <= fetch.bytes.len() {
            self.finish(now);
        } else if fetch.until <= fetch.bytes.len() {
            self.ask(now);
        }
    }

    fn finish(&mut self, now: Instant) {
        let Some(Fetch { version, digest, from: peer, bytes, .. }) = self.fetch.take() else {
            return;
        };
        if document::digest(&bytes) == digest {
            self.read(bytes.into(), Source::Peer { peer, version, digest });
        } else {
            self.unreadable = Some((version, digest));
            self.alarm(Alarm::Unreadable { peer, version });
            self.fetch_on(now);
        }
    }
}
