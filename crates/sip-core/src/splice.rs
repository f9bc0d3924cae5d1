//! Replacing stretches of bytes and keeping all others.

use std::cmp::Reverse;
use std::ops::Range;

/// Splices that are held without heap memory.
const INLINE: usize = 6;

/// Bytes `at..end` become a stretch of the collected text; an insertion has no
/// bytes of its own.
#[derive(Clone, Debug, Default)]
struct Splice {
    at: usize,
    end: usize,
    text: Range<usize>,
    /// Among insertions at one place: the lower stands first.
    order: isize,
}

/// Changes to one run of bytes, in any order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Splices {
    text: Vec<u8>,
    len: usize,
    inline: [Splice; INLINE],
    /// All of them, once they are more than fit inline.
    spilled: Vec<Splice>,
}

impl Splices {
    /// Collects text in this memory.
    pub(crate) fn in_buffer(mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        Self { text: buffer, ..Self::default() }
    }

    /// Replaces `at..end` by what `write` appends. The same stretch can be
    /// replaced again: the later text counts. What lies inside a longer stretch
    /// that goes, goes with it.
    pub(crate) fn replace(&mut self, at: usize, end: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let text = self.write(write);
        let found = self.list_mut().iter_mut().find(|s| at < end && (s.at, s.end) == (at, end));
        match found {
            Some(splice) => splice.text = text,
            None => self.push(Splice { at, end, text, order: 0 }),
        }
    }

    pub(crate) fn remove(&mut self, at: usize, end: usize) {
        self.replace(at, end, |_| {});
    }

    /// Inserts at `at`, behind what was inserted there before.
    pub(crate) fn insert(&mut self, at: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let text = self.write(write);
        let order = self.list_mut().len().cast_signed();
        self.push(Splice { at, end: at, text, order });
    }

    /// Inserts at `at`, before what was inserted there.
    pub(crate) fn insert_first(&mut self, at: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let text = self.write(write);
        let order = -self.list_mut().len().cast_signed();
        self.push(Splice { at, end: at, text, order });
    }

    /// True when what stands just before `end` goes without replacement.
    pub(crate) fn removes_up_to(&mut self, end: usize) -> bool {
        self.list_mut().iter().any(|s| s.end == end && s.at < end && s.text.is_empty())
    }

    /// Returns `bytes` with all changes made, without spare capacity.
    pub(crate) fn apply(mut self, bytes: &[u8]) -> Vec<u8> {
        self.sort();
        let mut out = Vec::with_capacity(self.len_applied(bytes));
        let mut done = 0;
        for splice in self.in_effect() {
            out.extend_from_slice(&bytes[done..splice.at]);
            out.extend_from_slice(&self.text[splice.text.clone()]);
            done = splice.end;
        }
        out.extend_from_slice(&bytes[done..]);
        out
    }

    /// The same, in the memory of the collected text.
    pub(crate) fn apply_in_place(mut self, bytes: &[u8]) -> Vec<u8> {
        self.sort();
        let mut out = std::mem::take(&mut self.text);
        let collected = out.len();
        out.reserve(self.len_applied(bytes));
        let mut done = 0;
        for splice in self.in_effect() {
            out.extend_from_slice(&bytes[done..splice.at]);
            out.extend_from_within(splice.text.clone());
            done = splice.end;
        }
        out.extend_from_slice(&bytes[done..]);
        out.drain(..collected);
        out
    }

    /// Insertions go before what is replaced at their place. The longest of two
    /// replacements that start together comes first and takes the other in.
    fn sort(&mut self) {
        self.list_mut().sort_unstable_by_key(|splice| {
            (splice.at, splice.at != splice.end, splice.order, Reverse(splice.end))
        });
    }

    /// Those that no longer one has taken in, of sorted ones.
    fn in_effect(&self) -> impl Iterator<Item = &Splice> {
        let list = if self.spilled.is_empty() { &self.inline[..self.len] } else { &self.spilled };
        let mut done = 0;
        list.iter().filter(move |splice| {
            let counts = done <= splice.at;
            if counts {
                done = splice.end;
            }
            counts
        })
    }

    fn len_applied(&self, bytes: &[u8]) -> usize {
        self.in_effect()
            .fold(bytes.len(), |len, splice| len - (splice.end - splice.at) + splice.text.len())
    }

    fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Range<usize> {
        let start = self.text.len();
        if start == 0 {
            // Room for a Via and a URI, so that it seldom grows.
            self.text.reserve(192);
        }
        write(&mut self.text);
        start..self.text.len()
    }

    fn push(&mut self, splice: Splice) {
        if self.spilled.is_empty() {
            if let Some(slot) = self.inline.get_mut(self.len) {
                *slot = splice;
                self.len += 1;
                return;
            }
            self.spilled.extend(self.inline.iter_mut().map(std::mem::take));
        }
        self.spilled.push(splice);
    }

    fn list_mut(&mut self) -> &mut [Splice] {
        if self.spilled.is_empty() { &mut self.inline[..self.len] } else { &mut self.spilled }
    }
}
