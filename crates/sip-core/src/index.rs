//! Where things stand in a message. Nothing here owns bytes.

use std::sync::Arc;

/// Header lines that an index holds without heap memory.
const INLINE: usize = 32;

/// A stretch of a message, from its first byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) at: u32,
    pub(crate) end: u32,
}

#[expect(clippy::cast_possible_truncation, reason = "a head is shorter than 4 GB")]
impl Span {
    /// Returns where `part`, a slice of `whole`, stands in it.
    pub(crate) fn of(whole: &[u8], part: &[u8]) -> Self {
        let at = part.as_ptr().addr().wrapping_sub(whole.as_ptr().addr());
        debug_assert!(at + part.len() <= whole.len(), "the part is a slice of the whole");
        Self { at: at as u32, end: (at + part.len()) as u32 }
    }

    pub(crate) fn get(self, whole: &[u8]) -> &[u8] {
        &whole[self.at as usize..self.end as usize]
    }

    /// Like [`Span::get`]; an empty stretch is nothing.
    pub(crate) fn get_some(self, whole: &[u8]) -> Option<&[u8]> {
        (self.at < self.end).then(|| self.get(whole))
    }
}

/// One header line: its start, and its value without white space around it.
/// The line ends where the next one starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeaderRef {
    pub(crate) id: u8,
    pub(crate) at: u32,
    pub(crate) value: Span,
}

/// A [`HeaderRef`] in the first 64 kB.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Short {
    at: u16,
    value_at: u16,
    value_end: u16,
    id: u8,
}

impl Short {
    fn new(header: HeaderRef) -> Option<Self> {
        Some(Self {
            at: u16::try_from(header.at).ok()?,
            value_at: u16::try_from(header.value.at).ok()?,
            value_end: u16::try_from(header.value.end).ok()?,
            id: header.id,
        })
    }

    fn full(self) -> HeaderRef {
        let value = Span { at: u32::from(self.value_at), end: u32::from(self.value_end) };
        HeaderRef { id: self.id, at: u32::from(self.at), value }
    }
}

/// All header lines in order.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly every message is inline")]
pub(crate) enum Refs {
    Inline { len: u8, refs: [Short; INLINE] },
    Heap(Arc<[HeaderRef]>),
}

impl Refs {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Inline { len, .. } => usize::from(*len),
            Self::Heap(refs) => refs.len(),
        }
    }

    pub(crate) fn get(&self, index: usize) -> Option<HeaderRef> {
        match self {
            Self::Inline { len, refs } => refs[..usize::from(*len)].get(index).map(|r| r.full()),
            Self::Heap(refs) => refs.get(index).copied(),
        }
    }

    /// Returns the index of the first line at or after `from` that has this id.
    pub(crate) fn find(&self, id: u8, from: usize) -> Option<usize> {
        let found = match self {
            Self::Inline { len, refs } => {
                refs[..usize::from(*len)].get(from..)?.iter().position(|r| r.id == id)
            }
            Self::Heap(refs) => refs.get(from..)?.iter().position(|r| r.id == id),
        };
        found.map(|at| at + from)
    }
}

/// Collects header lines.
#[derive(Debug)]
pub(crate) struct RefsBuilder {
    len: usize,
    refs: [Short; INLINE],
    spilled: Vec<HeaderRef>,
}

impl RefsBuilder {
    pub(crate) fn new() -> Self {
        Self { len: 0, refs: [Short::default(); INLINE], spilled: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.len.max(self.spilled.len())
    }

    pub(crate) fn push(&mut self, header: HeaderRef) {
        if self.spilled.is_empty() {
            match Short::new(header) {
                Some(short) if self.len < INLINE => {
                    self.refs[self.len] = short;
                    self.len += 1;
                    return;
                }
                _ => self.spilled.extend(self.refs[..self.len].iter().map(|r| r.full())),
            }
        }
        self.spilled.push(header);
    }

    #[expect(clippy::cast_possible_truncation, reason = "at most INLINE")]
    pub(crate) fn finish(self) -> Refs {
        if self.spilled.is_empty() {
            Refs::Inline { len: self.len as u8, refs: self.refs }
        } else {
            Refs::Heap(self.spilled.into())
        }
    }
}
