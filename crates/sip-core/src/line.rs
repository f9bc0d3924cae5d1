//! One header line.

use crate::names::{GARBLED, Name, OTHER};

/// One header line of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    pub(crate) id: u8,
    pub(crate) name_text: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) whole: &'a [u8],
    pub(crate) at: usize,
}

impl<'a> Line<'a> {
    /// Returns the name; `None` when the line has none that can be read.
    #[must_use]
    pub fn name(&self) -> Option<Name<'a>> {
        match self.id {
            GARBLED => None,
            OTHER => Some(Name::new(self.name_text)),
            id => Name::from_id(id),
        }
    }

    /// Returns the name as written, compact or in odd case.
    #[must_use]
    pub const fn name_text(&self) -> &'a [u8] {
        self.name_text
    }

    /// Returns the value without white space around it.
    #[must_use]
    pub const fn value(&self) -> &'a [u8] {
        self.value
    }

    /// Returns the whole line, line break and folds included.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.whole
    }

    /// Returns where the line starts in the message.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.at
    }
}
