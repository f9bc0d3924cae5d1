//! One document for all nodes: whoever is given a newer one stores it and tells the others, and who
//! comes back fetches it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use driver::config::Faults;
use failover::NodeId;

pub use frame::{DocumentFrame, DocumentHeld, DocumentPart, DocumentWanted};
pub use reader::Reader;

use answers::{SPREAD, Waiting};
use fetch::Fetch;

use super::document::ClusterDocument;

mod answers;
mod fetch;
mod frame;
mod reader;
#[cfg(test)]
mod tests;

/// The document of this node, and what its peers are known to have.
///
/// A document with a higher version takes the place of the one before: on disk first, then here and
/// with all peers. Two texts of one version are a fault of their authors: nobody changes, both authors and an
/// operator are told, and the next version ends it.
#[derive(Debug)]
pub struct Documents {
    config: Config,
    current: Option<Arc<ClusterDocument>>,
    /// Being written to disk, the newest last.
    pending: Vec<Pending>,
    /// Who waits for peers to take in what is stored here.
    waiting: Vec<Waiting>,
    /// Being read, by the number that they were given away with.
    reading: BTreeMap<u64, Source>,
    serials: u64,
    /// Peers whose link is up, and what they have said.
    linked: BTreeMap<NodeId, Option<DocumentHeld>>,
    fetch: Option<Fetch>,
    /// A version that this node cannot read.
    unreadable: Option<(u64, u64)>,
    alarms: BTreeSet<Alarm>,
    outputs: VecDeque<Output>,
}

/// Who this node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// This node.
    pub node: NodeId,
    /// Its segment and its number there.
    pub id: election::NodeId,
    /// Where its own file says that it stands.
    pub site: String,
    /// Every other node of the cluster, in the place that it has.
    pub members: BTreeMap<NodeId, election::NodeId>,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// The control link to a node of the cluster came up or went down.
    Link {
        /// The peer.
        peer: NodeId,
        /// Whether it is up.
        up: bool,
    },
    /// A frame came over it.
    Frame {
        /// The peer.
        peer: NodeId,
        /// What came.
        frame: DocumentFrame,
    },
    /// An operator gives a document; [`Output::Answered`] follows.
    Put {
        /// The number to answer with.
        id: u64,
        /// Its text.
        text: Bytes,
        /// Whether it is taken whatever harm it does, as far as that may be meant.
        force: bool,
    },
    /// What [`Output::Read`] of this number asked for.
    Read {
        /// The number.
        serial: u64,
        /// What [`read`] returned.
        document: Result<Box<ClusterDocument>, PutError>,
    },
    /// What [`Output::Persist`] of this number asked for, and all before it, is on disk.
    Persisted(u64),
}

/// What it asks of its owner, in order.
#[derive(Clone, Debug)]
pub enum Output {
    /// Send this over the control link; what cannot be sent now is dropped.
    Send {
        /// The peer.
        peer: NodeId,
        /// The frame.
        frame: DocumentFrame,
    },
    /// Give this to a [`Reader`], whose answer is an input: it may take seconds.
    Read {
        /// The number to answer with.
        serial: u64,
        /// The text.
        bytes: Bytes,
    },
    /// Write this to disk in the place of what is there, then answer with [`Input::Persisted`].
    Persist {
        /// The number to answer with.
        serial: u64,
        /// The text.
        bytes: Bytes,
    },
    /// This is the document from now on.
    Document(Arc<ClusterDocument>),
    /// An operator's document was taken, or was not.
    Answered {
        /// The number of the [`Input::Put`].
        id: u64,
        /// The version that is stored here now and with all peers that were heard within a second, or what
        /// is wrong.
        answer: Result<u64, PutError>,
    },
    /// An operator must know; once for each cause.
    Alarm(Alarm),
}

/// Why a document was not taken. Nothing has changed, but for [`Twice`](Self::Twice).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PutError {
    /// It is no text.
    #[error("the document is not UTF-8")]
    NotText,
    /// Something is wrong in it.
    #[error("{0}")]
    Faulty(Faults),
    /// Its version is lower than that of the document in force.
    #[error("the document has version {given}, and version {have} is in force: give a higher one")]
    Old {
        /// Its version.
        given: u64,
        /// The version in force.
        have: u64,
    },
    /// Its version is that of the document in force, and its text another one.
    #[error("another document of version {0} is in force: give this one a higher version")]
    Conflict(u64),
    /// Another node was given another text of the same version at the same time. Each is stored where it was
    /// given, and neither takes the other's place.
    #[error(
        "it is stored here, and node {peer} has another document of version {version}: give all of them one of \
         a higher version"
    )]
    Twice {
        /// The node.
        peer: NodeId,
        /// The version.
        version: u64,
    },
    /// It would harm the cluster as it runs.
    #[error("{0}")]
    Harmful(Faults),
    /// Too many are being read.
    #[error("other documents are being read: try again")]
    Busy,
}

/// What an operator must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
#[non_exhaustive]
pub enum Alarm {
    /// This node has another text of the same version. Neither changes before a higher version comes.
    #[error("node {peer} has another document of version {version}")]
    Conflict {
        /// The node.
        peer: NodeId,
        /// The version.
        version: u64,
    },
    /// The document of this node cannot be read here: its program may be newer.
    #[error("the document of version {version} that node {peer} has cannot be read here")]
    Unreadable {
        /// The node.
        peer: NodeId,
        /// The version.
        version: u64,
    },
    /// This node of the same segment says that it stands on another site.
    #[error("node {0} of the same segment stands on another site, as its file says")]
    Site(NodeId),
    /// What was stored cannot be read.
    #[error("the stored document cannot be read")]
    Stored,
    /// The file that the configuration names has another text than what is stored of its version, which
    /// stays in force.
    #[error(
        "the document that the configuration names was changed without a higher version than {0}"
    )]
    File(u64),
}

#[derive(Debug)]
struct Pending {
    serial: u64,
    document: Arc<ClusterDocument>,
    /// Who waits for it to be stored.
    ids: Vec<u64>,
}

/// Where a document came from.
#[derive(Debug)]
enum Source {
    /// An operator, who waits under this number, and may use force.
    Operator {
        id: u64,
        force: bool,
    },
    Peer {
        peer: NodeId,
        version: u64,
        digest: u64,
    },
}

/// How many documents may be read and written at a time.
const READING_MAX: usize = 4;

/// How many faults are told of one document.
const ALARMS_MAX: usize = 64;

impl Documents {
    /// Starts with the newer of what the disk held and the file that the configuration names; of one
    /// version, with what the disk held. `stored` are the bytes of the last [`Output::Persist`].
    pub fn new(config: Config, stored: Option<&[u8]>, file: Option<ClusterDocument>) -> Self {
        let kept = stored.and_then(|stored| read(stored).ok()).map(|kept| *kept);
        let mut documents = Self {
            config,
            current: None,
            pending: Vec::new(),
            waiting: Vec::new(),
            reading: BTreeMap::new(),
            serials: 0,
            linked: BTreeMap::new(),
            fetch: None,
            unreadable: None,
            alarms: BTreeSet::new(),
            outputs: VecDeque::new(),
        };
        if stored.is_some() && kept.is_none() {
            documents.alarm(Alarm::Stored);
        }
        let version = |document: &Option<ClusterDocument>| document.as_ref().map(|one| one.version);
        if version(&kept) < version(&file) {
            let document = file.map(Arc::new);
            documents.current.clone_from(&document);
            if let Some(document) = document {
                documents.write(document, Vec::new());
            }
        } else {
            if version(&kept) == version(&file) && kept != file {
                documents.alarm(Alarm::File(version(&kept).unwrap_or(0)));
            }
            documents.current = kept.map(Arc::new);
        }
        documents
    }

    /// Takes in what happened at `now`.
    pub fn handle_input(&mut self, now: Instant, input: Input) {
        match input {
            Input::Link { peer, up: true } => {
                self.linked.insert(peer, None);
                self.say(peer);
            }
            Input::Link { peer, up: false } => {
                self.linked.remove(&peer);
                if self.fetch.as_ref().is_some_and(|fetch| fetch.from == peer) {
                    self.fetch_on(now);
                }
            }
            Input::Frame { peer, frame } if self.linked.contains_key(&peer) => match frame {
                DocumentFrame::Held(held) => self.hear(now, peer, held),
                DocumentFrame::Wanted(wanted) => self.give(peer, wanted),
                DocumentFrame::Part(part) => self.take(now, peer, &part),
            },
            Input::Frame { .. } => {}
            Input::Put { id, text, force } => self.put(now, id, text, force),
            Input::Read { serial, document } => self.have_read(now, serial, document),
            Input::Persisted(serial) => {
                self.persisted(now, serial);
                if self.fetch.is_none() {
                    self.fetch_on(now);
                }
            }
        }
        self.answer(now);
    }

    /// Does whatever is due at `now`; does nothing when nothing is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.fetch.as_ref().is_some_and(|fetch| fetch.ask_at <= now) {
            self.fetch_on(now);
        }
        self.answer(now);
    }

    /// Returns the next thing to do. Drain until `None` after every other call.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next needed.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let waiting = self.waiting.iter().map(|waiting| waiting.until);
        self.fetch.as_ref().map(|fetch| fetch.ask_at).into_iter().chain(waiting).min()
    }

    /// Returns the document in force.
    pub fn current(&self) -> Option<&Arc<ClusterDocument>> {
        self.current.as_ref()
    }

    /// Returns what each peer with a link is known to have: its version, and whether it is the text
    /// that is in force here. For operators.
    pub fn peers(&self) -> impl Iterator<Item = (NodeId, u64, bool)> {
        let own = self.current.as_ref().map(|own| (own.version, own.digest));
        let heard = self.linked.iter().filter_map(|(peer, held)| Some((*peer, held.as_ref()?)));
        heard
            .map(move |(peer, held)| (peer, held.version, own == Some((held.version, held.digest))))
    }

    /// Whether no more can be taken in for now, each of which may be long: a disk may hang.
    fn is_busy(&self) -> bool {
        READING_MAX <= self.reading.len() + self.pending.len()
    }

    /// Returns the newest document here, stored or being stored.
    fn newest(&self) -> Option<&Arc<ClusterDocument>> {
        self.pending.last().map(|pending| &pending.document).or(self.current.as_ref())
    }

    fn put(&mut self, now: Instant, id: u64, text: Bytes, force: bool) {
        if self.newest().is_some_and(|newest| newest.text.as_bytes() == text) {
            self.answer_same(now, id);
        } else if self.is_busy() {
            self.outputs.push_back(Output::Answered { id, answer: Err(PutError::Busy) });
        } else {
            self.read(text, Source::Operator { id, force });
        }
    }

    /// Answers who gives what is here already, once it is stored.
    fn answer_same(&mut self, now: Instant, id: u64) {
        match (self.pending.last_mut(), &self.current) {
            (Some(pending), _) => pending.ids.push(id),
            (None, current) => {
                let said = current.as_ref().map(|current| (current.version, current.digest));
                let (version, digest) = said.unwrap_or_default();
                self.waiting.push(Waiting { ids: vec![id], version, digest, until: now });
            }
        }
    }

    fn read(&mut self, bytes: Bytes, source: Source) {
        self.serials += 1;
        self.reading.insert(self.serials, source);
        self.outputs.push_back(Output::Read { serial: self.serials, bytes });
    }

    fn have_read(
        &mut self,
        now: Instant,
        serial: u64,
        document: Result<Box<ClusterDocument>, PutError>,
    ) {
        let newest = self.newest().map(|newest| (newest.version, newest.digest));
        let newer = |document: &ClusterDocument| {
            let given = document.version;
            match newest {
                Some((have, digest)) if given == have && document.digest != digest => {
                    Err(PutError::Conflict(have))
                }
                Some((have, _)) if given < have => Err(PutError::Old { given, have }),
                newest => Ok(newest.is_none_or(|(have, _)| have < given)),
            }
        };
        match (self.reading.remove(&serial), document) {
            (None, _) => {}
            (Some(Source::Operator { id, force }), document) => {
                let taken = document.and_then(|one| {
                    let newer = newer(&one)?;
                    if newer {
                        let known = self.rival(one.version, one.digest).map(|_| one.version);
                        known.map_or(Ok(()), |version| Err(PutError::Conflict(version)))?;
                        self.look_for_harm(&one, force)?;
                    }
                    Ok((newer, one))
                });
                match taken {
                    Ok((true, document)) => self.write(Arc::from(document), vec![id]),
                    Ok((false, _)) => self.answer_same(now, id),
                    Err(error) => {
                        self.outputs.push_back(Output::Answered { id, answer: Err(error) });
                    }
                }
            }
            (Some(Source::Peer { version, .. }), Ok(document)) if document.version == version => {
                if newer(&document) == Ok(true) {
                    self.write(Arc::from(document), Vec::new());
                }
            }
            (Some(Source::Peer { peer, version, digest }), Ok(_) | Err(_)) => {
                self.unreadable = Some((version, digest));
                self.alarm(Alarm::Unreadable { peer, version });
                self.fetch_on(now);
            }
        }
    }

    /// Checks what a document would do to the nodes that are heard.
    fn look_for_harm(&self, document: &ClusterDocument, force: bool) -> Result<(), PutError> {
        let Config { node, id, members, .. } = &self.config;
        let linked = self.linked.keys().filter_map(|peer| Some((*peer, *members.get(peer)?)));
        let running = linked.chain([(*node, *id)]).collect();
        let harms = document.harms(self.newest().map(|newest| &**newest), &running);
        let harms = harms.into_iter().filter(|harm| !(force && harm.may_be_meant));
        let faults = Faults::new(harms.map(|harm| harm.fault).collect());
        faults.map_or(Ok(()), |faults| Err(PutError::Harmful(faults)))
    }

    fn write(&mut self, document: Arc<ClusterDocument>, ids: Vec<u64>) {
        self.serials += 1;
        let (serial, bytes) = (self.serials, Bytes::copy_from_slice(document.text.as_bytes()));
        self.outputs.push_back(Output::Persist { serial, bytes });
        self.pending.push(Pending { serial, document, ids });
    }

    fn persisted(&mut self, now: Instant, serial: u64) {
        let done = self.pending.iter().take_while(|pending| pending.serial <= serial).count();
        let done: Vec<Pending> = self.pending.drain(..done).collect();
        let ids: Vec<u64> = done.iter().flat_map(|pending| &pending.ids).copied().collect();
        let Some(last) = done.into_iter().next_back() else { return };
        if !ids.is_empty() {
            let (version, digest) = (last.document.version, last.document.digest);
            self.waiting.push(Waiting { ids, version, digest, until: now + SPREAD });
        }
        if self.current.as_ref() != Some(&last.document) {
            self.alarms.clear();
            self.current = Some(Arc::clone(&last.document));
            self.outputs.push_back(Output::Document(last.document));
        }
        let peers: Vec<NodeId> = self.linked.keys().copied().collect();
        for peer in peers {
            self.say(peer);
        }
    }

    /// Tells a peer what is stored here.
    fn say(&mut self, peer: NodeId) {
        let stored = self.current.as_ref().filter(|current| {
            // A first document from the configuration is in force before it is stored.
            self.pending.iter().all(|pending| pending.document != **current)
        });
        let (version, digest, len) = stored
            .map_or((0, 0, 0), |current| (current.version, current.digest, current.text.len()));
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let (segment, site) = (self.config.id.segment, self.config.site.clone());
        let held = DocumentHeld { version, digest, len, segment, site };
        self.outputs.push_back(Output::Send { peer, frame: DocumentFrame::Held(held) });
    }

    fn alarm(&mut self, alarm: Alarm) {
        if self.alarms.len() < ALARMS_MAX && self.alarms.insert(alarm) {
            self.outputs.push_back(Output::Alarm(alarm));
        }
    }
}

/// Reads a document.
///
/// # Errors
/// Everything that is wrong in it.
pub fn read(bytes: &[u8]) -> Result<Box<ClusterDocument>, PutError> {
    let text = std::str::from_utf8(bytes).map_err(|_| PutError::NotText)?;
    ClusterDocument::parse(text).map(Box::new).map_err(PutError::Faulty)
}

impl PutError {
    /// Returns the HTTP status that says so.
    pub fn status(&self) -> u16 {
        match self {
            Self::NotText | Self::Faulty(_) => 400,
            Self::Old { .. } | Self::Conflict(_) | Self::Twice { .. } | Self::Harmful(_) => 409,
            Self::Busy => 503,
        }
    }
}
