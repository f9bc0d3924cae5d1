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
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the end is the largest of the three")]
    fn new(header: HeaderRef) -> Option<Self> {
        let value_end = u16::try_from(header.value.end).ok()?;
        let (at, value_at) = (header.at as u16, header.value.at as u16);
        Some(Self { at, value_at, value_end, id: header.id })
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
    pub(crate) fn new() -> Self {
        Self::Inline { len: 0, refs: [Short::default(); INLINE] }
    }

    /// Adds a line; `spilled` takes all of them once they do not fit, and
    /// [`Refs::finish`] takes it back.
    pub(crate) fn push(&mut self, header: HeaderRef, spilled: &mut Vec<HeaderRef>) {
        if let Self::Inline { len, refs } = self
            && spilled.is_empty()
        {
            if let (Some(slot), Some(short)) = (refs.get_mut(usize::from(*len)), Short::new(header))
            {
                *slot = short;
                *len += 1;
                return;
            }
            spilled.extend(refs[..usize::from(*len)].iter().map(|r| r.full()));
        }
        spilled.push(header);
    }

    pub(crate) fn finish(&mut self, spilled: Vec<HeaderRef>) {
        if !spilled.is_empty() {
            *self = Self::Heap(spilled.into());
        }
    }

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
