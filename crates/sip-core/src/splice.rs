//! Replacing stretches of bytes and keeping all others.

/// Bytes `at..end` become `text`; nothing at all for an insertion.
#[derive(Clone, Debug)]
struct Splice {
    at: usize,
    end: usize,
    text: Vec<u8>,
}

/// Changes to one run of bytes, in any order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Splices(Vec<Splice>);

impl Splices {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Replaces `at..end`. The same stretch can be replaced again: the later
    /// text counts. What lies inside a longer stretch that goes, goes with it.
    pub(crate) fn replace(&mut self, at: usize, end: usize, text: Vec<u8>) {
        self.0.retain(|splice| splice.at == splice.end || (splice.at, splice.end) != (at, end));
        self.0.push(Splice { at, end, text });
    }

    /// Inserts at `at`, behind what was inserted there before.
    pub(crate) fn insert(&mut self, at: usize, text: Vec<u8>) {
        self.0.push(Splice { at, end: at, text });
    }

    /// True when what stands just before `end` goes without replacement.
    pub(crate) fn removes_up_to(&self, end: usize) -> bool {
        self.0.iter().any(|splice| splice.end == end && splice.at < end && splice.text.is_empty())
    }

    /// Returns `bytes` with all changes made.
    pub(crate) fn apply(mut self, bytes: &[u8]) -> Vec<u8> {
        // Insertions at a place go before what is replaced there; the sort is
        // stable, so they keep the order of the calls. The longest of two
        // replacements that start together comes first and takes the other in.
        self.0.sort_by_key(|splice| {
            let is_replacement = splice.at != splice.end;
            (splice.at, is_replacement, std::cmp::Reverse(splice.end))
        });
        let grown: usize = self.0.iter().map(|splice| splice.text.len()).sum();
        let mut out = Vec::with_capacity(bytes.len() + grown);
        let mut done = 0;
        for splice in &self.0 {
            if splice.at < done {
                continue;
            }
            out.extend_from_slice(&bytes[done..splice.at]);
            out.extend_from_slice(&splice.text);
            done = splice.end;
        }
        out.extend_from_slice(&bytes[done..]);
        out
    }
}
