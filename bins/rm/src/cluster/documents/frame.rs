//! How nodes tell each other of documents.

use driver::codec::{decode, encode};

use bytes::Bytes;
use election::Segment;
use serde::{Deserialize, Serialize};

use crate::frames::Frame;

/// One frame about documents, over the link of class `Control`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DocumentFrame {
    /// What the sender has.
    Held(DocumentHeld),
    /// What the sender wants.
    Wanted(DocumentWanted),
    /// Some of it.
    Part(DocumentPart),
}

/// What a node has stored: first frame about documents on each link, and again when it changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentHeld {
    /// The version; zero for none.
    pub version: u64,
    /// The digest of the text.
    pub digest: u64,
    /// How long it is, in bytes.
    pub len: u32,
    /// The sender's segment.
    pub segment: Segment,
    /// Where the sender's own file says that it stands.
    pub site: String,
}

/// Asks for the next parts of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentWanted {
    /// The version.
    pub version: u64,
    /// The digest of the text.
    pub digest: u64,
    /// Where the wanted part begins, in bytes.
    pub offset: u32,
}

/// A part of a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentPart {
    /// The version.
    pub version: u64,
    /// The digest of the whole text.
    pub digest: u64,
    /// Where this part begins, in bytes.
    pub offset: u32,
    /// The part.
    pub bytes: Vec<u8>,
}

impl Frame for DocumentHeld {
    const KIND: u16 = 0x0431;
}
impl Frame for DocumentWanted {
    const KIND: u16 = 0x0432;
}
impl Frame for DocumentPart {
    const KIND: u16 = 0x0433;
}

impl DocumentFrame {
    /// Returns its kind and payload.
    pub fn encode(&self) -> (u16, Bytes) {
        match self {
            Self::Held(held) => (DocumentHeld::KIND, encode(held)),
            Self::Wanted(wanted) => (DocumentWanted::KIND, encode(wanted)),
            Self::Part(part) => (DocumentPart::KIND, encode(part)),
        }
    }

    /// Reads one; `None` for another kind, or one that is malformed.
    pub fn decode(kind: u16, payload: &[u8]) -> Option<Self> {
        match kind {
            DocumentHeld::KIND => decode(payload).ok().map(Self::Held),
            DocumentWanted::KIND => decode(payload).ok().map(Self::Wanted),
            DocumentPart::KIND => decode(payload).ok().map(Self::Part),
            _ => None,
        }
    }
}
